//! The socket of an export in the runtime directory, at which clients of this machine connect.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use super::sessions::Sessions;
use crate::directory::Published;
use crate::error::Kind;
use crate::keeper::{Next, Watch, Watched};
use crate::limits;
use crate::path::local::Answer;
use crate::serving::export::Export;
use crate::sync::{Mutex, Rank};
use crate::sys;

/// The socket of one export.
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

    /// Removes the name from the directory and accepts no more clients. The export is closed.
    pub(super) fn close(&self) {
        /// More clients than can have connected before the name was removed.
        const CONNECTED_MAX: usize = 1 << 16;
        self.published.withdraw();
        drop(self.watch.lock().take());
        // Clients that connected meanwhile would otherwise wait until all procedures have ended.
        let refusal = Answer::refused(Kind::Withdrawn, self.export.withdrawn()).to_bytes();
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
        /// How long clients wait when the machine is short of something.
        const SHORT: Duration = Duration::from_millis(50);
        let Published { socket: listener, .. } = &self.published;
        if sys::is_congested(limits::CLOSING_MAX) {
            return Next::Pause(SHORT);
        }
        // As many as may come at once; the keeper has others to look after too.
        for _ in 0..64 {
            let come = listener.accept();
            let let_in = |socket| self.sessions.let_in(&self.export, socket);
            let Err(error) = come.and_then(let_in) else { continue };
            match error.raw_os_error() {
                Some(libc::EAGAIN) => return Next::Sleep,
                Some(libc::EMFILE | libc::ENFILE) if self.sessions.turn_away(listener, &error) => {}
                Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                    return Next::Pause(SHORT);
                }
                // This client has gone already, or something about it failed.
                _ => {}
            }
        }
        Next::Sleep
    }
}
