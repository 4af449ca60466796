//! A socket that carries calls, and that the keeper watches while futures sleep. A thread that waits for a
//! packet sleeps on the socket. For a future, the keeper, the background thread of the process, notices the
//! packet.
//!
//! The keeper begins to watch a socket when the first future sleeps there. A socket that only threads use is
//! never watched, and needs no additional system call. The keeper reports the socket once, and then waits
//! until the socket is [armed](Watches::arm) again. So packets for threads wake the keeper at most once.
//!
//! If a packet has arrived before the socket is armed, arming reports it at once, because the kernel
//! reports the state of a socket, and not a change of the state.

use core::ops::Deref;
use core::sync::atomic::{AtomicBool, Ordering, fence};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::event::epoll::EventFlags;

use crate::device::Socket;
use crate::keeper::{Keeper, Next, Watch, Watched};
use crate::path::leader::Substitute;
use crate::sync::{Mutex, Rank};

/// A function that the keeper calls on its thread when a packet has arrived. It must not wait.
pub(super) type WhenReady = Arc<dyn Fn() + Send + Sync>;

/// A socket, and the keeper's watches of it.
pub(super) struct WatchedSocket {
    // This field is dropped first. So the keeper stops watching before the socket is closed.
    watches: Arc<Watches>,
    socket: Arc<Socket>,
}

/// The watches of the descriptors of one socket.
pub(super) struct Watches(Mutex<Vec<(Watch, Arc<Descriptor>)>>);

/// One descriptor of a socket.
struct Descriptor {
    socket: Arc<Socket>,
    /// The index of this descriptor among the descriptors of the socket.
    number: usize,
    /// Whether the kernel will report the next packet to the keeper, or has just reported one.
    armed: AtomicBool,
    when_ready: WhenReady,
}

impl WatchedSocket {
    pub(super) fn new(socket: Socket) -> Self {
        let watches = Arc::new(Watches(Mutex::ranked(Rank::SocketWatch, Vec::new())));
        Self { watches, socket: Arc::new(socket) }
    }

    /// Returns the watches of the socket.
    pub(super) const fn watches(&self) -> &Arc<Watches> {
        &self.watches
    }

    /// Makes the keeper watch the socket. Each time that the socket is armed, the keeper calls `when_ready`
    /// once, when a packet arrives or an error is pending. If unreceived packets are already there, the
    /// keeper calls it at once. Only the first call of this function for a socket uses `when_ready`, and arms
    /// the socket.
    ///
    /// # Errors
    /// If the keeper cannot watch the socket.
    pub(super) fn watch(&self, when_ready: impl FnOnce() -> WhenReady) -> io::Result<()> {
        let mut watches = self.watches.0.lock();
        if watches.is_empty() {
            let (keeper, when_ready) = (Keeper::of_process()?, when_ready());
            let mut new = Vec::new();
            for number in 0..self.socket.descriptors() {
                let descriptor = Arc::new(Descriptor {
                    socket: Arc::clone(&self.socket),
                    number,
                    armed: AtomicBool::new(true),
                    when_ready: Arc::clone(&when_ready),
                });
                new.push((keeper.watch(Arc::clone(&descriptor) as _)?, descriptor));
            }
            *watches = new;
        }
        Ok(())
    }
}

impl Deref for WatchedSocket {
    type Target = Socket;

    #[inline]
    fn deref(&self) -> &Socket {
        &self.socket
    }
}

impl Watches {
    /// Makes the keeper report the next packet. Does nothing if the keeper has never watched the socket.
    pub(super) fn arm(&self) {
        for (watch, descriptor) in &*self.0.lock() {
            // SYNC: datagram-armed. If the keeper has cleared the flag, this thread arms the descriptor.
            // Otherwise the keeper has not begun to handle the last report of the kernel. When the keeper
            // handles that report, it sees everything that this thread did before.
            fence(Ordering::SeqCst);
            if !descriptor.armed.swap(true, Ordering::SeqCst) {
                watch.rearm();
            }
        }
    }
}

impl Substitute for Watches {
    fn stand_by(&self) {
        self.arm();
    }
}

impl Watched for Descriptor {
    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.descriptor(self.number)
    }

    fn interest(&self) -> EventFlags {
        EventFlags::IN | EventFlags::ONESHOT
    }

    fn ready(self: Arc<Self>) -> Next {
        // SYNC: datagram-armed, in `Watches::arm`.
        self.armed.swap(false, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        // Otherwise a pending error would be reported again each time that the socket is armed.
        self.socket.clear_link_error();
        (self.when_ready)();
        Next::Sleep
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Until;
    use crate::device::udp::Udp;
    use crate::value::Space;
    use std::net::UdpSocket;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn keeper_reports_a_socket_once_each_time_that_it_is_armed() {
        let long = Duration::from_secs(20);
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let udp = Udp::connected(peer.local_addr().unwrap()).unwrap();
        let own = udp.local().unwrap();
        let socket = WatchedSocket::new(Socket::Udp(udp));
        let (sender, reports) = channel();
        let watch = |sender: std::sync::mpsc::Sender<()>| {
            let sender = std::sync::Mutex::new(sender);
            socket.watch(|| Arc::new(move || sender.lock().unwrap().send(()).unwrap_or_default()))
        };
        // A socket that is not watched cannot be armed.
        socket.watches().arm();
        watch(sender.clone()).unwrap();
        watch(sender).unwrap();
        for _ in 0..3 {
            peer.send_to(b"packet", own).unwrap();
            assert_eq!(reports.recv_timeout(long), Ok(()));
            peer.send_to(b"packet", own).unwrap();
            assert!(reports.recv_timeout(Duration::from_millis(20)).is_err(), "not armed");
            // The packets that are there are reported at once.
            socket.watches().arm();
            assert_eq!(reports.recv_timeout(long), Ok(()));
            let receive = || socket.receive(&[Space::of_mut(&mut [0; 16])], None, Until::Now);
            while receive().unwrap().is_some() {}
            socket.watches().arm();
        }
        drop(socket);
        assert!(reports.recv_timeout(long).is_err(), "the watch holds the function");
    }
}
