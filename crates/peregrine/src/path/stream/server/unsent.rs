//! Replies of deferred calls that wait to be sent.
//!
//! The thread that ends a procedure belongs to an executor, and must not wait for a client that does not
//! read. So it adds the reply to the queue of the connection, and sends the queue only as far as this is
//! possible without waiting. If the socket is full, a thread of the server sends the rest. That
//! thread waits for the client as with any other reply, so the same time limits apply to a client that does
//! not read. At most one thread waits in this way for each connection. This needs neither another kind of
//! thread nor a second watch of the socket.
//!
//! A thread sends only while it has the lock for sending. If the thread gives up the lock within a message,
//! the rest of the message is at the front of the queue. So a thread that takes the lock sends the queue
//! before its own message.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use super::deferred::{ReplyMessage, UnansweredLater};
use super::stall::{NoStall, ReplyStall};
use super::{AcceptedConnection, Host};
use crate::limits;
use crate::path::connections::intake::{Intake, Reservation};
use crate::path::stream::peer::send_lock::SendGuard;
use crate::path::stream::peer::sending::OnStall;
use crate::sync::Mutex;

/// The largest number of system calls in which a thread sends without waiting. Without this limit, a client
/// that reads as fast as the thread sends could occupy the thread forever.
pub(super) const SENDS_MAX: usize = 16;

/// The replies of a connection that wait to be sent.
pub(super) struct Unsent {
    queue: Mutex<Queue>,
    /// The number of replies in the queue.
    count: AtomicUsize,
    /// Whether a thread of the server sends the queue, or was asked to send it.
    is_attended: AtomicBool,
    /// Bounds the memory of the replies of all connections.
    memory: Arc<Intake>,
}

#[derive(Default)]
struct Queue {
    replies: VecDeque<UnsentReply>,
    /// Whether the connection has ended. If it has, no reply is added.
    ended: bool,
}

/// A reply that was not sent completely.
pub(super) struct UnsentReply {
    message: ReplyMessage,
    /// The number of bytes that were sent.
    sent: usize,
    _unanswered: UnansweredLater,
}

impl UnsentReply {
    pub(super) const fn new(message: ReplyMessage, unanswered: UnansweredLater) -> Self {
        Self { message, sent: 0, _unanswered: unanswered }
    }
}

impl Unsent {
    /// Returns an empty queue. `memory` bounds the memory of the replies of all connections.
    pub(super) fn new(memory: Arc<Intake>) -> Self {
        let (count, is_attended) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { queue: Mutex::default(), count, is_attended, memory }
    }

    /// Reserves memory for a reply to a client of this host. Returns `None` if no memory is left.
    pub(super) fn reserve(&self, host: IpAddr, bytes: usize) -> Option<Reservation> {
        self.memory.reserve(host, bytes, 0)
    }

    /// Returns whether no reply waits.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Adds a reply with `add`, unless the connection has ended.
    fn add(&self, reply: UnsentReply, add: fn(&mut VecDeque<UnsentReply>, UnsentReply)) {
        let mut queue = self.queue.lock();
        if queue.ended {
            // The reply is dropped after the lock is released.
            drop(queue);
            return;
        }
        add(&mut queue.replies, reply);
        self.count.store(queue.replies.len(), Ordering::SeqCst);
    }

    fn next(&self) -> Option<UnsentReply> {
        let mut queue = self.queue.lock();
        let reply = queue.replies.pop_front();
        self.count.store(queue.replies.len(), Ordering::SeqCst);
        drop(queue);
        reply
    }

    /// Drops all replies, because the connection has ended.
    pub(super) fn end(&self) {
        let mut queue = self.queue.lock();
        queue.ended = true;
        let replies = core::mem::take(&mut queue.replies);
        self.count.store(0, Ordering::SeqCst);
        drop(queue);
        drop(replies);
    }
}

impl AcceptedConnection {
    /// Sends a reply if this is possible without waiting. Otherwise the reply is sent later.
    pub(super) fn send_later(&self, reply: UnsentReply, host: &dyn Host) {
        self.unsent.add(reply, VecDeque::push_back);
        self.send_unsent(host);
    }

    /// Sends the replies that wait, as far as this is possible without waiting. Asks a thread of the server
    /// to send the rest.
    pub(super) fn send_unsent(&self, host: &dyn Host) {
        // SYNC: unsent replies. One thread adds a reply, and then tries to take the lock for sending. Another
        // thread that has the lock releases it, and then looks for replies. So at least one of the two sends
        // the reply.
        while !self.unsent.is_empty() {
            let Some(lock) = self.output.try_take() else { return };
            let sent = self.send_queue(&lock, &NoStall, SENDS_MAX);
            drop(lock);
            match sent {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !self.unsent.is_attended.swap(true, Ordering::SeqCst) {
                        host.send_on();
                    }
                    return;
                }
                Err(_) => return,
            }
        }
    }

    /// Sends the replies that wait, and waits for the client if the socket is full. Closes the connection if
    /// the client does not read the replies in time.
    pub(super) fn send_unsent_waiting(&self, host: &dyn Host) {
        loop {
            let until = Instant::now() + limits::UNREAD_TIME[1];
            match self.output.take(Some(until)) {
                Some(lock) => {
                    let stall = ReplyStall { incoming: self, host };
                    // If this fails, `send_queue` has closed the connection.
                    let _ = self.send_queue(&lock, &stall, usize::MAX);
                }
                None => self.close(),
            }
            // From now on, a thread that adds a reply may ask a thread of the server again to send the queue.
            self.unsent.is_attended.store(false, Ordering::SeqCst);
            let is_done = self.unsent.is_empty() || self.closed.load(Ordering::Acquire);
            if is_done || self.unsent.is_attended.swap(true, Ordering::SeqCst) {
                return;
            }
        }
    }

    /// Sends the replies that wait, until none is left. Makes at most `sends` system calls. Fails with
    /// [`io::ErrorKind::WouldBlock`] if it has made all of them, or if the socket is full and `stall` does
    /// not wait. The rest of a reply then stays at the front of the queue. Any other error ends the
    /// connection.
    pub(super) fn send_queue(
        &self,
        _lock: &SendGuard<'_>,
        stall: &impl OnStall,
        mut sends: usize,
    ) -> io::Result<()> {
        while let Some(mut reply) = self.unsent.next() {
            match self.send_rest(&mut reply, stall, &mut sends) {
                Ok(()) => drop(reply),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.unsent.add(reply, VecDeque::push_front);
                    return Err(error);
                }
                Err(error) => {
                    // The connection ends before the lock is released. Otherwise another thread could send a
                    // message after a part of this reply. The client would read that message as the rest of
                    // the reply.
                    self.close();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn send_rest(
        &self,
        reply: &mut UnsentReply,
        stall: &impl OnStall,
        sends: &mut usize,
    ) -> io::Result<()> {
        let UnsentReply { message, sent, .. } = reply;
        while *sent < message.bytes {
            *sends = sends.checked_sub(1).ok_or(io::ErrorKind::WouldBlock)?;
            match self.stream.send_some(&message.memory.memory()[*sent..message.bytes]) {
                Ok(bytes) => *sent += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => stall.wait()?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
