//! The socket through which clients of this machine connect to an export. The socket is in the runtime
//! directory.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use super::sessions::Sessions;
use crate::directory::Published;
use crate::error::Kind;
use crate::keeper::{Next, Watch, Watched};
use crate::limits;
use crate::path::local::ServerMessage;
use crate::serving::export::Export;
use crate::sync::{Mutex, Rank};
use crate::sys;

/// The socket at which clients of this machine connect to one export.
pub(super) struct NameSocket {
    pub(super) export: Arc<Export>,
    published: Published,
    sessions: Arc<Sessions>,
    watch: Mutex<Option<Watch>>,
}

impl NameSocket {
    /// Begins to accept clients.
    pub(super) fn open(
        export: Arc<Export>,
        published: Published,
        sessions: Arc<Sessions>,
    ) -> io::Result<Arc<Self>> {
        let watch = Mutex::ranked(Rank::ExportWatch, None);
        let socket = Arc::new(Self { export, published, sessions, watch });
        let watch = socket.sessions.core.keeper.watch(Arc::clone(&socket) as Arc<dyn Watched>)?;
        *socket.watch.lock() = Some(watch);
        Ok(socket)
    }

    /// Releases the name, because the server stops. Clients can still connect at another path, and ask for
    /// the health of the server. All other requests are refused.
    pub(super) fn begin_to_drain(&self) {
        self.published.begin_to_drain();
    }

    /// Removes the name from the directory and accepts no more clients. The caller has already closed the
    /// export.
    pub(super) fn close(&self) {
        /// A bound on the number of refused clients. No more clients can have connected before the name was
        /// removed.
        const CONNECTED_MAX: usize = 1 << 16;
        self.published.withdraw();
        drop(self.watch.lock().take());
        // Clients that connected before the name was removed get a refusal. Otherwise they would wait until
        // all procedures have ended.
        let refusal = ServerMessage::refused(Kind::Withdrawn, self.export.withdrawn()).to_bytes();
        for _ in 0..CONNECTED_MAX {
            let Ok(socket) = self.published.socket.accept() else { break };
            let _ = socket.send(&refusal, None);
        }
    }
}

impl Watched for NameSocket {
    fn fd(&self) -> BorrowedFd<'_> {
        self.published.socket.as_fd()
    }

    fn ready(self: Arc<Self>) -> Next {
        /// How long new clients wait while the machine is short of memory or descriptors.
        const SHORTAGE_PAUSE: Duration = Duration::from_millis(50);
        let Published { socket: listener, .. } = &self.published;
        if sys::is_congested(limits::CLOSING_MAX) {
            return Next::Pause(SHORTAGE_PAUSE);
        }
        // The number of clients that are accepted in a row is bounded, so that the keeper also serves other
        // sockets.
        for _ in 0..64 {
            let accepted = listener.accept();
            let admit = |socket| self.sessions.admit(&self.export, socket);
            let Err(error) = accepted.and_then(admit) else { continue };
            match error.raw_os_error() {
                Some(libc::EAGAIN) => return Next::Sleep,
                Some(libc::EMFILE | libc::ENFILE)
                    if self.sessions.refuse_for_descriptors(listener, &error) => {}
                Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                    return Next::Pause(SHORTAGE_PAUSE);
                }
                // The client has already closed its socket, or the socket failed.
                _ => {}
            }
        }
        Next::Sleep
    }
}
