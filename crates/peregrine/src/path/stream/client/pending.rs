//! Pending calls: calls that a future has begun, and for which no thread waits.
//!
//! A future looks for its reply when it is polled, and receives what has arrived if no other thread does.
//! Before the future sleeps, it arms the bell of its frame. `turns.rs` decides which thread then receives the
//! reply and rings the bell. `outbox.rs` has the messages that the socket did not accept at once, and
//! `ticks.rs` the deadlines.

use core::sync::atomic::Ordering;
use std::io;
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;

use super::Connection;
use super::call::StreamPath;
use super::input::Input;
use super::outbox::{Fate, GivenUp, Message};
use super::turns::{Fired, SLEEPER, Turns, WATCHED, Word as _, full_fence};
use crate::call::extensions::Extensions;
use crate::call::{Begun, Call, Returned, Wait, inside};
use crate::error::{CallError, Executed, Kind, Phase};
use crate::keeper::{Next, WatchHandle};
use crate::limits;
use crate::protocol::stream::client_end::{ARMED, ASLEEP, CAPTURED, DONE, LEADS, SENDING, WAITING};
use crate::sync::MutexGuard;
use crate::sys;

impl StreamPath {
    /// Begins a call. The whole message is copied to the frame first, because the caller's memory may be gone
    /// when the last part of the message is sent.
    pub(super) fn begin_pending(&self, call: &mut Call<'_, '_, '_>) -> Result<Begun, CallError> {
        self.check_revoked()?;
        let layout = call.put(self.message_bytes);
        let Some(layout) = layout.filter(|layout| layout.total <= self.message_bytes) else {
            return Err(self.too_large(call.layout().total));
        };
        call.head.flush();
        let (inside, carried) = (inside(), &mut None);
        let extensions: &[u8] = if inside.is_some() || !call.terms.are_none() {
            carried.insert(Extensions::of(inside, call.terms)?).as_bytes()
        } else {
            &[]
        };
        let (connection, frame) = (&*self.connection, call.frame.index());
        let header = self.header(call, &layout, extensions, connection.end.begin(frame));
        let message = Message { frame, header: header.to_bytes(), body: layout.total, extensions };
        if let Err(error) = connection.send_or_queue(&message) {
            connection.slot(frame).release();
            return Err(error);
        }
        if layout.total > limits::ASTACK_BYTES_KEPT {
            connection.tidying.note(frame);
            connection.used();
        }
        Ok(Begun::Pending)
    }

    pub(super) fn poll_pending(
        &self,
        call: &mut Call<'_, '_, '_>,
    ) -> Option<Result<Returned, CallError>> {
        let (connection, frame) = (&*self.connection, call.frame.index());
        let slot = connection.slot(frame);
        let state = slot.state.load(Ordering::Acquire);
        if state != DONE && !connection.has_ended() {
            if state == ARMED {
                // The bell is armed, so another thread or the keeper receives the reply.
                return None;
            }
            connection.listen();
            if self.wait == Wait::Spin {
                // A future that spins never sleeps, so it never arms its bell. Arming would also schedule an
                // examination of the connection, so the examination is scheduled here.
                connection.examine_soon();
            }
        }
        let has_ended = connection.has_ended();
        if !slot.is_done() && !has_ended {
            return None;
        }
        // A server may answer a call before it has received the whole message. The frame must not be used
        // again before the message was sent.
        // SYNC: early reply, the other half is in `Connection::is_sent`. This thread has looked for the
        // reply, and now reads whether the message was sent.
        full_fence();
        if has_ended && connection.outbox.holds(frame) {
            connection.settle_queue();
        }
        let fate = connection.outbox.fate(frame);
        if fate == Fate::Unsent {
            // The thread that is still sending the message rings the bell afterwards.
            return None;
        }
        connection.disarm(frame);
        Some(match fate {
            Fate::Never(text) => {
                connection.outbox.forget(frame);
                slot.release();
                Err(connection.not_sent(text))
            }
            _ if slot.is_done() => self.take(frame, call),
            _ => self.ended(frame, call),
        })
    }

    /// Gives up a call. If nothing of its message was sent, the call is certainly not executed. Otherwise the
    /// frame stays captured until the message was sent, and the reply to the cancelled call has arrived.
    pub(super) fn give_up_pending(&self, call: &mut Call<'_, '_, '_>) -> CallError {
        let (connection, frame) = (&*self.connection, call.frame.index());
        connection.disarm(frame);
        // The slot is captured first. After `give_up`, the sending thread may drop the message, and then it
        // releases the captured slot.
        let awaits_reply = connection.slot(frame).capture();
        match connection.outbox.give_up(frame) {
            GivenUp::Never => {
                connection.slot(frame).release();
                let text = "the server does not read from the connection";
                return CallError::not_executed(Kind::TimedOut, Phase::Call, text);
            }
            GivenUp::Sent if awaits_reply => connection.cancel(frame),
            GivenUp::Sent | GivenUp::Later => {}
        }
        // The reply may still arrive. If no thread receives it, the keeper does.
        connection.watch_for_late_reply();
        CallError::new(Kind::TimedOut, Executed::Maybe, "the server has not answered")
    }
}

impl Connection {
    /// Sets the keeper's watch of this connection.
    pub(crate) fn set_watch(&self, watch: WatchHandle) {
        let _ = self.watch.set(watch);
    }

    #[cold]
    pub(super) fn renew_watch(&self) {
        if let Some(watch) = self.watch.get() {
            watch.renew();
        }
    }

    /// Arranges that the bell of a frame rings when the reply has arrived, when the connection has ended, and
    /// at the deadline.
    pub(super) fn arm(&self, frame: u32, deadline: Option<Instant>) {
        let slot = self.slot(frame);
        if let Some(deadline) = deadline {
            self.remind_of(frame, deadline);
        }
        if slot.state.load(Ordering::Acquire) == ARMED {
            return;
        }
        // The call is counted before its slot becomes `ARMED`. Otherwise a thread that takes the reply at
        // once would decrement the count below 0.
        self.turns.add(SLEEPER);
        let sleeps = slot.moves(SENDING, ARMED);
        if sleeps {
            self.examine_soon();
        } else {
            self.turns.sub(SLEEPER);
        }
        // SYNC: end, the other half is in `ring_all`. This thread has armed the bell, and now reads whether
        // the connection has ended. The keeper reads that the connection has ended, and then rings all bells.
        // So at least one of the two rings this bell.
        full_fence();
        if !sleeps || self.has_ended() {
            if self.has_ended() {
                self.settle_queue();
            }
            // SYNC: early reply. A thread that is still sending the message rings the bell afterwards.
            if !self.outbox.holds(frame) {
                self.frames.bell(frame).ring();
            }
            return;
        }
        self.sleep();
    }

    /// Makes sure that a reply is received although its caller has given up.
    #[cold]
    pub(crate) fn watch_for_late_reply(&self) {
        self.watch_for_owed_replies();
    }

    /// Ends the sleep of a call that has ended, or is given up.
    fn disarm(&self, frame: u32) {
        self.ticks.forget(frame);
        if self.slot(frame).moves(ARMED, SENDING) {
            self.turns.sub(SLEEPER);
        }
    }

    /// Stops being the leader by releasing the lock `input`. Then rings the bells of the calls whose replies
    /// were received.
    pub(super) fn ring(&self, mut input: MutexGuard<'_, Input>) {
        if input.rings.is_empty() {
            return;
        }
        let rings = input.rings.take();
        drop(input);
        for frame in rings.frames() {
            self.frames.bell(frame).ring();
        }
    }

    /// Returns the events for which the keeper watches the socket.
    pub(crate) fn interest(&self) -> EventFlags {
        let mut events = EventFlags::RDHUP | EventFlags::ONESHOT;
        // Replies wake the keeper only if no thread receives them.
        events.set(EventFlags::IN, self.turns.load(Ordering::SeqCst) & WATCHED != 0);
        events.set(EventFlags::OUT, self.outbox.is_stuck());
        events
    }

    /// Handles events of the socket. The keeper calls this function. After a pause, `events` is empty.
    pub(crate) fn ready(&self, events: EventFlags) -> Next {
        /// How long the keeper pauses while another thread receives.
        const SOON: Duration = Duration::from_millis(5);
        let is_watched = self.outbox.is_stuck() && self.settle_queue();
        if events == EventFlags::OUT {
            if !is_watched {
                self.renew_watch();
            }
            return Next::Sleep;
        }
        let ends = events.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        let next = match self.fired(ends) {
            Fired::Received => Next::Sleep,
            Fired::LeftToLeader => {
                // The leader renews the registration with epoll only when it gives up the lead. If queued
                // bytes wait for space in the socket, epoll must report that space now.
                if self.outbox.is_stuck() {
                    self.renew_watch();
                }
                Next::Sleep
            }
            Fired::Retry => Next::Pause(SOON),
        };
        if self.has_ended() { self.ring_all() } else { next }
    }

    /// Wakes all futures, because the connection has ended.
    #[cold]
    fn ring_all(&self) -> Next {
        self.settle_queue();
        // SYNC: end, the other half is in `arm`. This thread has seen that the connection has ended, and now
        // rings all bells.
        full_fence();
        for frame in 0..self.frames.active() {
            self.frames.bell(frame).ring();
        }
        Next::Forget
    }
}

impl Turns for Connection {
    type Word = core::sync::atomic::AtomicU32;
    type Lead<'a> = MutexGuard<'a, Input>;

    fn fence() {
        full_fence();
    }

    fn word(&self) -> &Self::Word {
        &self.turns
    }

    fn try_lead(&self) -> Option<Self::Lead<'_>> {
        self.try_turn()
    }

    fn receive(&self, input: &mut Self::Lead<'_>) -> bool {
        self.drain(input);
        !input.rings.is_empty()
    }

    fn receive_ahead(&self, input: &mut Self::Lead<'_>) -> bool {
        while (!input.is_dry() || self.stream.holds_received()) && !self.has_ended() {
            if input.rings.is_full() {
                return false;
            }
            match self.step(input, None, false) {
                Ok(()) => {}
                // The bytes were only a part of a record of TLS.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) => self.lost(&error),
            }
        }
        true
    }

    fn ring(&self, input: Self::Lead<'_>) {
        Self::ring(self, input);
    }

    fn poke(&self) {
        for slot in self.end.slots().take(self.frames.active() as usize) {
            if slot.moves(WAITING, LEADS) {
                return;
            }
            if slot.moves(ASLEEP, LEADS) {
                sys::futex_wake(&slot.state);
                return;
            }
        }
    }

    fn owes_replies(&self) -> bool {
        self.end.slots().any(|slot| slot.state.load(Ordering::Relaxed) == CAPTURED)
    }

    fn renew(&self) {
        self.renew_watch();
    }
}
