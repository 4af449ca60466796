//! [`Acceptor`]: a socket that accepts the connections of a server. The keeper watches it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::device::tcp::{Listener, Stream};
use crate::keeper::{Next, Watched};

/// Something that takes connections.
pub(in crate::path) trait Admit: Send + Sync {
    /// Admits or refuses a client that has connected.
    ///
    /// # Errors
    /// If the connection has failed, or the machine lacks a resource.
    fn admit(self: &Arc<Self>, stream: Stream, from: SocketAddr) -> io::Result<()>;
}

/// A listening socket.
pub(in crate::path) struct Acceptor<A> {
    pub(in crate::path) listener: Listener,
    pub(in crate::path) admits: Arc<A>,
}

impl<A: Admit> Watched for Acceptor<A> {
    fn fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    fn ready(self: Arc<Self>) -> Next {
        /// How long new clients wait if the machine lacks a resource, such as descriptors or memory.
        const SHORT: Duration = Duration::from_millis(50);
        // The number of clients that are accepted in a row is bounded. Otherwise the keeper could not do its
        // other work.
        for _ in 0..64 {
            let accepted = self.listener.accept();
            let admit = |(stream, from)| self.admits.admit(stream, from);
            let Err(error) = accepted.and_then(admit) else { continue };
            match error.raw_os_error() {
                Some(libc::EAGAIN) => return Next::Sleep,
                Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                    return Next::Pause(SHORT);
                }
                // This client has already closed the connection, or the client's socket has failed.
                _ => {}
            }
        }
        Next::Sleep
    }
}
