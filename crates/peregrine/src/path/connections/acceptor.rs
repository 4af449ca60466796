//! [`Acceptors`]: the sockets that accept the connections of a server. The keeper watches them.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::device::tcp::{Listener, Stream};
use crate::keeper::{Keeper, Next, Watch, Watched};
use crate::sync::Mutex;

/// A part of a server that takes accepted connections.
pub(in crate::path) trait Admit: Send + Sync {
    /// Admits or refuses a client that has connected.
    ///
    /// # Errors
    /// If the connection has failed, or the machine lacks a resource.
    fn admit(self: &Arc<Self>, stream: Stream, from: SocketAddr) -> io::Result<()>;
}

/// The listening sockets of one path.
#[derive(Default)]
pub(in crate::path) struct Acceptors(Mutex<Vec<Accepting>>);

/// The watch of one listening socket.
struct Accepting {
    watch: Watch,
    /// Whether other processes have the socket, too, and accept connections after this server.
    is_inherited: bool,
}

impl Acceptors {
    /// Starts to accept connections at a listening socket. `admits` takes the connections.
    ///
    /// # Errors
    /// If the keeper cannot watch the socket.
    pub(in crate::path) fn open<A: Admit + 'static>(
        &self,
        keeper: &Arc<Keeper>,
        listener: Listener,
        admits: &Arc<A>,
    ) -> io::Result<()> {
        let is_inherited = listener.is_inherited();
        let acceptor = Arc::new(Acceptor { listener, admits: Arc::clone(admits) });
        let watch = keeper.watch(acceptor)?;
        self.0.lock().push(Accepting { watch, is_inherited });
        Ok(())
    }

    /// Stops accepting at sockets that the process inherited. Connections then wait there for the next
    /// server, which gets the same socket.
    pub(in crate::path) fn leave_to_others(&self) {
        let mut all = self.0.lock();
        let left: Vec<_> = all.extract_if(.., |one| one.is_inherited).collect();
        drop(all);
        drop(left);
    }

    /// Closes the sockets.
    pub(in crate::path) fn close(&self) {
        // Dropping a watch takes a lock of the keeper. So the watches are dropped after the lock is released.
        let watches: Vec<Accepting> = core::mem::take(&mut *self.0.lock());
        watches.into_iter().for_each(|one| drop(one.watch));
    }
}

/// A listening socket.
struct Acceptor<A> {
    listener: Listener,
    admits: Arc<A>,
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
