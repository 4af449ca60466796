//! [`Slots`]: the memory for replies that another thread sends later. Each frame of a binding has one slot.

use core::sync::atomic::AtomicU32;
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use crate::call::deferred::Cancels;
use crate::call::pending::{Bells, Rings};
use crate::call::{Answer, Answered, Call, Frames, Ran, Returned, write_later};
use crate::error::{CallError, Executed, Kind, Phase};
use crate::growing::Growing;
use crate::sync::{Condvar, Mutex};
use crate::value::{Window, bytes_of};

/// The slots of a binding.
pub(super) struct Slots {
    pub(super) frames: Arc<Frames>,
    slots: Growing<Slot>,
}

/// The slot of a frame.
#[derive(Default)]
struct Slot {
    pending: Mutex<Pending>,
    /// Notified when the reply has arrived.
    answered: Condvar,
}

#[derive(Default)]
struct Pending {
    /// The number of the last call of the frame.
    call: u64,
    /// Whether the caller has given up the call `call`.
    given_up: bool,
    cancels: Option<Arc<dyn Cancels>>,
    answered: Option<Late>,
}

/// A reply that arrives in a slot.
pub(super) enum Late {
    Answered(Answered),
    /// A reply with the layout of a frame's reply space.
    Memory(Ran, Vec<u128>),
    Failed(CallError),
}

impl Late {
    /// Writes the reply to the frame of the call, and takes the result.
    pub(super) fn take(self, call: &mut Call<'_, '_, '_>) -> Result<Returned, CallError> {
        let reply = call.frame.reply_to();
        let ran = match self {
            Self::Answered(answered) => write_later(&answered, reply, &mut Vec::new()),
            Self::Memory(ran, memory) => {
                let bytes = bytes_of(&memory);
                let bytes = &bytes[..bytes.len().min(reply.window().len())];
                reply.copy_from(Window::from(bytes));
                ran
            }
            Self::Failed(error) => return Err(error),
        };
        take_result(call, ran)
    }
}

/// Takes the result of a call whose reply is in its frame.
pub(super) fn take_result(call: &mut Call<'_, '_, '_>, ran: Ran) -> Result<Returned, CallError> {
    let Ran { answer, head_at, head_bytes, .. } = ran;
    if is_late(call.terms.deadline()) {
        return Err(late());
    }
    if answer == Answer::Ok {
        call.take_blocks(0).map_err(|invalid| {
            CallError::new(Kind::BadResult, Executed::Maybe, invalid.to_string())
                .in_phase(Phase::Unmarshal)
        })?;
    }
    Ok(Returned { answer, head_at, head_bytes })
}

/// Returns whether a deadline has passed.
pub(super) fn is_late(due: Option<Instant>) -> bool {
    due.is_some_and(|due| due <= Instant::now())
}

#[cold]
pub(super) fn late() -> CallError {
    let text = "the deadline passed while the procedure ran";
    CallError::new(Kind::TimedOut, Executed::Maybe, text)
}

#[cold]
pub(super) fn too_large(call: &Call<'_, '_, '_>) -> CallError {
    CallError::too_large(call.layout().total, call.frame.call_space().len(), None)
}

impl Slots {
    /// Makes a slot for each of the frames.
    pub(super) fn new(frames: &Arc<Frames>) -> Arc<Self> {
        let slots = Growing::new(frames.layout().count, |_| Slot::default());
        Arc::new(Self { frames: Arc::clone(frames), slots })
    }

    /// Begins a call of a frame. Returns the number of the call.
    pub(super) fn begin(&self, frame: u32) -> u64 {
        let mut pending = self.slots[frame as usize].pending.lock();
        let count = (pending.call as u32).wrapping_add(1);
        let call = u64::from(frame) << 32 | u64::from(count);
        *pending = Pending { call, ..Pending::default() };
        call
    }

    /// Stores the reply of a call, and wakes its caller.
    pub(super) fn answer(&self, call: u64, late: Late) {
        let Some(slot) = self.slot(call) else { return };
        let mut pending = slot.pending.lock();
        // If the caller has given up this call, the frame may have another call already.
        if pending.call != call || pending.given_up {
            return;
        }
        pending.cancels = None;
        pending.answered = Some(late);
        drop(pending);
        slot.answered.notify_one();
        self.frames.bell((call >> 32) as u32).ring();
    }

    /// Fails all calls that have no reply. `error` is their error.
    pub(super) fn fail_all(&self, error: &CallError) {
        for frame in 0..self.frames.layout().count {
            let unanswered = {
                let pending = self.slots[frame as usize].pending.lock();
                pending.answered.is_none().then_some(pending.call)
            };
            // No call has the number 0.
            if let Some(call @ 1..) = unanswered {
                self.answer(call, Late::Failed(error.copy()));
            }
        }
    }

    /// Waits for the reply to a call. Returns `None` if the deadline passes.
    pub(super) fn wait(&self, frame: u32, due: Option<Instant>) -> Option<Late> {
        let slot = &self.slots[frame as usize];
        let mut pending = slot.pending.lock();
        loop {
            if let Some(answered) = pending.answered.take() {
                return Some(answered);
            }
            let left =
                due.map_or(Duration::MAX, |due| due.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return None;
            }
            // Without a deadline, the caller waits again after an hour.
            let limit = left.min(Duration::from_secs(3600));
            pending = slot.answered.wait_timeout(pending, limit).0;
        }
    }

    /// Takes the reply to a pending call, if it has arrived.
    pub(super) fn poll(
        self: &Arc<Self>,
        call: &mut Call<'_, '_, '_>,
    ) -> Option<Result<Returned, CallError>> {
        let frame = call.frame.index();
        let answered = self.slots[frame as usize].pending.lock().answered.take()?;
        if call.terms.deadline().is_some() {
            Bells::of_process().forget(&self.rings(), frame);
        }
        Some(answered.take(call))
    }

    /// Makes the bell of a frame ring when the reply arrives, or at `deadline` if that is earlier.
    pub(super) fn arm(self: &Arc<Self>, frame: u32, deadline: Option<Instant>) {
        let has_answer = self.slots[frame as usize].pending.lock().answered.is_some();
        let watched = deadline.is_none()
            || Bells::of_process().watch(&self.rings(), frame, deadline, false).is_ok();
        if has_answer || !watched {
            self.frames.bell(frame).ring();
        }
    }

    /// Gives up the call of a frame. Returns the number of the call, and what cancels it.
    pub(super) fn give_up(self: &Arc<Self>, frame: u32) -> (u64, Option<Arc<dyn Cancels>>) {
        Bells::of_process().forget(&self.rings(), frame);
        let mut pending = self.slots[frame as usize].pending.lock();
        pending.given_up = true;
        (pending.call, pending.cancels.take())
    }

    /// Returns whether the caller has given up a call.
    pub(super) fn is_given_up(&self, call: u64) -> bool {
        self.slot(call).is_none_or(|slot| {
            let pending = slot.pending.lock();
            pending.call != call || pending.given_up
        })
    }

    /// Sets what cancels a call. Returns `None` if there is no such call.
    pub(super) fn set_cancels(&self, call: u64, cancels: Arc<dyn Cancels>) -> Option<()> {
        self.slot(call)?.pending.lock().cancels = Some(cancels);
        Some(())
    }

    fn slot(&self, call: u64) -> Option<&Slot> {
        self.slots.get((call >> 32) as usize)
    }

    fn rings(self: &Arc<Self>) -> Arc<dyn Rings> {
        Arc::clone(self) as _
    }
}

impl Rings for Slots {
    fn word(&self, _: u32) -> Option<(&AtomicU32, u32)> {
        None
    }
    fn examine(&self, _: u32) {}
    fn ring(&self, frame: u32) {
        self.frames.bell(frame).ring();
    }
}
