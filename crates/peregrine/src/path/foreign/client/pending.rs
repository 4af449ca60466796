//! Pending calls: calls that a future has begun, and for which no thread waits.
//!
//! Each time that a future is polled, it receives what has arrived, unless another thread leads. Before it
//! sleeps, it arms its bell. From then on, the bell rings when the reply arrives, when the call must be sent
//! again, and at the deadline. While futures sleep and no thread leads, the keeper watches the socket, and
//! leads for a moment when something arrives ([`leader`](crate::path::leader)). The keeper also learns that a
//! connection has ended, and sends the messages that a connection did not accept at once.

use core::sync::atomic::{AtomicBool, Ordering, fence};
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use rustix::event::epoll::EventFlags;

use super::call::ForeignPath;
use super::slots::{Ended, State};
use super::{Dialect, Link, Looks, Progress, Wire, left};
use crate::call::pending::{Bells, Rings};
use crate::keeper::{Keeper, Next, WatchHandle, Watched};
use crate::path::leader::Substitute;

/// How long the keeper pauses while another thread receives.
const SOON: Duration = Duration::from_millis(5);

/// The shortest time for which the memory of a large message is kept for another large message.
const TIDY: Duration = Duration::from_secs(1);

/// The state that decides whether the keeper receives when something arrives.
#[derive(Default)]
pub(super) struct Arming {
    armed: AtomicBool,
    /// The keeper's watch of the socket, once there is one.
    watch: OnceLock<WatchHandle>,
}

impl Substitute for Arming {
    fn stand_by(&self) {
        // SYNC: foreign-armed. If the keeper has cleared the flag, this thread renews the watch. Otherwise
        // the keeper has not begun to handle the last report of the kernel. When the keeper handles that
        // report, it sees everything that this thread did before.
        fence(Ordering::SeqCst);
        if !self.armed.swap(true, Ordering::SeqCst) {
            self.renew();
        }
    }
}

impl Arming {
    /// Makes the keeper call [`Watched::tick`] after this time.
    fn remind(&self, after: Duration) {
        if let Some(watch) = self.watch.get() {
            watch.remind_by(Instant::now() + after);
        }
    }

    pub(super) fn renew(&self) {
        if let Some(watch) = self.watch.get() {
            watch.renew();
        }
    }
}

impl<D: Dialect> ForeignPath<D> {
    /// Makes the keeper watch the socket.
    ///
    /// # Errors
    /// If the keeper cannot watch the socket.
    pub(in crate::path) fn watch(&self) -> io::Result<()> {
        if self.watch.get().is_some() {
            return Ok(());
        }
        let watch = Keeper::of_process()?.watch(Arc::new(Watcher(Arc::clone(&self.link))))?;
        let handle = watch.handle();
        // If another thread has set a watch meanwhile, that watch stays, and the watch of this thread ends.
        if self.watch.set(watch).is_ok() && self.link.arming.watch.set(handle).is_ok() {
            // `armed` may have been set before the handle of the watch was stored. The watch was not
            // renewed then.
            self.link.arming.renew();
        }
        Ok(())
    }

    pub(super) fn arm_pending(&self, frame: u32, deadline: Option<Instant>) {
        let armed = self.watch().and_then(|()| self.link.arm(frame, deadline));
        if !armed.is_ok_and(|armed| armed) {
            // The future is polled at once, and tries again.
            self.link.frames.bell(frame).ring();
        }
    }
}

impl<D: Dialect> Link<D> {
    /// Takes the outcome of a pending call, if there is one.
    pub(super) fn poll(self: &Arc<Self>, frame: u32) -> Option<Ended<D>> {
        if !self.has_outcome(frame)
            && let Some(leader) = self.leadership.try_lead()
        {
            let _ = self.lead(leader, Looks::All);
        }
        if self.holds(frame) {
            // The frame must not be used for another call before the message was sent. So a call whose
            // message is not sent completely does not end.
            self.flush();
            if self.holds(frame) {
                return None;
            }
        }
        match self.progress(frame) {
            Progress::Take(ended) => {
                self.disarm(frame);
                Some(ended)
            }
            Progress::Wait(_) => None,
        }
    }

    /// Returns whether the call of a frame has an outcome that its caller has not taken.
    pub(super) fn has_outcome(&self, frame: u32) -> bool {
        matches!(self.slot(frame).lock().state, State::Ended(_))
    }

    /// Makes the bell of a frame ring when the future of its call must be polled. Returns false if the future
    /// must be polled at once.
    fn arm(self: &Arc<Self>, frame: u32, deadline: Option<Instant>) -> io::Result<bool> {
        self.slot(frame).lock().is_armed = true;
        self.leadership.sleep(frame);
        // A thread that receives the outcome stores it, and then wakes the future. The future is already
        // registered when it looks for the outcome here. So the future sees the outcome, or it is woken.
        let due = match &self.slot(frame).lock().state {
            State::Waits(call) => call.exchange.as_ref().map(D::due),
            State::Ended(_) | State::Idle => return Ok(self.holds(frame)),
        };
        let now = Instant::now();
        let at = left(due, deadline, now).and_then(|left| now.checked_add(left));
        if at.is_some() {
            Bells::of_process().watch(&self.rings(), frame, at, false)?;
        }
        Ok(true)
    }

    /// Ends the sleep of the future of a call that has ended, or is given up.
    pub(super) fn disarm(self: &Arc<Self>, frame: u32) {
        let was_armed = core::mem::take(&mut self.slot(frame).lock().is_armed);
        if was_armed {
            self.leadership.rouse(frame);
            Bells::of_process().forget(&self.rings(), frame);
        }
    }

    /// Makes the keeper release the memory of large messages from now on.
    #[inline]
    pub(super) fn tidy_soon(&self) {
        if self.tidying.begins() {
            self.arming.remind(TIDY);
        }
    }

    fn rings(self: &Arc<Self>) -> Arc<dyn Rings> {
        Arc::clone(self) as _
    }
}

impl<D: Dialect> Rings for Link<D> {
    fn word(&self, _: u32) -> Option<(&core::sync::atomic::AtomicU32, u32)> {
        None
    }
    fn examine(&self, _: u32) {}
    fn ring(&self, frame: u32) {
        self.frames.bell(frame).ring();
    }
}

/// A link, as the keeper watches it.
struct Watcher<D: Dialect>(Arc<Link<D>>);

impl<D: Dialect> Watched for Watcher<D> {
    fn fd(&self) -> BorrowedFd<'_> {
        match &self.0.wire {
            Wire::Udp(socket) => socket.descriptor(0),
            Wire::Tcp(stream) => stream.as_fd(),
        }
    }

    fn interest(&self) -> EventFlags {
        let link = &*self.0;
        let mut events = EventFlags::ONESHOT;
        events.set(EventFlags::IN, link.arming.armed.load(Ordering::SeqCst));
        if matches!(link.wire, Wire::Tcp(_)) {
            events |= EventFlags::RDHUP;
            events.set(EventFlags::OUT, link.is_stuck.load(Ordering::SeqCst));
        }
        events
    }

    fn tick(self: Arc<Self>) -> Next {
        let link = &*self.0;
        if link.tidying.tidy(&link.frames)
            && let Some(watch) = link.arming.watch.get()
        {
            watch.remind_by_without_waking(Instant::now() + TIDY);
        }
        Next::Sleep
    }

    fn ready(self: Arc<Self>) -> Next {
        self.ready_for(EventFlags::empty())
    }

    fn ready_for(self: Arc<Self>, events: EventFlags) -> Next {
        let link = &*self.0;
        // SYNC: foreign-armed, in `Arming::stand_by`.
        link.arming.armed.swap(false, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if link.is_stuck.load(Ordering::SeqCst) {
            link.flush();
        }
        let ends = events.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        let is_tcp = matches!(link.wire, Wire::Tcp(_));
        match link.leadership.try_lead() {
            Some(leader) => _ = link.lead(leader, Looks::All),
            // The leader receives what has arrived. If the leader stops now, it may miss the end of the
            // connection. So the keeper tries again soon.
            None if is_tcp && ends => return Next::Pause(SOON),
            None => {}
        }
        if link.has_ended() {
            return Next::Forget;
        }
        if is_tcp {
            link.arming.renew();
        }
        Next::Sleep
    }
}
