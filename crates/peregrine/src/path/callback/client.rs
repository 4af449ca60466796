//! The procedure's side of a callback: a call path to the object of the caller.

use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use super::wire::{Handles, RequestHeader, RequestKind, Side, item_bytes, take_result};
use crate::call::chain::WaitingInside;
use crate::call::extensions::{self, Extensions};
use crate::call::metadata::no_space_for_metadata;
use crate::call::streams::{CallbackEnds, Opening};
use crate::call::words::HEADER_BYTES;
use crate::call::{
    Answer, Begun, Call, CallPath, Calls, Frames, PathKind, Ran, Refusal, Returned, Wait, caller,
    inside, source_of_thread,
};
use crate::error::{CallError, Executed, Kind, Phase};
use crate::limits;
use crate::path::bind::BoundPath;
use crate::path::slots::{Late, Slots, is_late, late, too_large};
use crate::sync::Mutex;
use crate::sys::ForkMark;
use crate::value::{Window, align_up, bytes_of_blocks};

/// The path from a procedure to an object of its caller.
struct CallbackPath {
    side: Arc<Side<Results>>,
    slots: Arc<Slots>,
    kind: PathKind,
    mark: ForkMark,
    /// The call that brought the callback, and with whose end the callback ends. The first part is the
    /// source of the call, such as a connection, and the second is the call's number there. `None` if the
    /// procedure may keep the callback.
    call: Option<(Arc<dyn Calls>, u64)>,
}

/// Receives the results of the calls that the procedure makes to the object.
struct Results {
    slots: Arc<Slots>,
    /// Why no more results come.
    ended: Mutex<Option<CallError>>,
}

/// The interval of the checks by which a procedure that waits for a result learns that its own caller has
/// given up.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// Opens the procedure's side of a callback. `bytes` is the size of the largest message that the object's
/// interface needs. `outlives` is whether the procedure may keep the callback after the call.
///
/// # Errors
/// If `opening` does not describe a callback, or there is no memory.
pub(crate) fn open(opening: &Opening, bytes: usize, outlives: bool) -> Result<BoundPath, Refusal> {
    let no_memory = || Refusal::exhausted("no memory for a callback");
    let mark = ForkMark::of_process().map_err(|_| no_memory())?;
    let (ends, order) = CallbackEnds::of_procedure(opening)?;
    // A record must have space for one item: a header, the message, and its extensions.
    let around = HEADER_BYTES + item_bytes(0, extensions::BYTES_MAX);
    let bytes = bytes.min(ends.room.saturating_sub(around)) & !15;
    let frames = Frames::private(limits::CALLBACK_CALLS_MAX, limits::ASTACKS, bytes.max(1024));
    let Ok(frames) = frames.map(Arc::new) else {
        ends.close("the server has no memory for the callback");
        return Err(no_memory());
    };
    let slots = Slots::new(&frames);
    let ended = Mutex::default();
    let side = Side::new(ends, Results { slots: Arc::clone(&slots), ended });
    side.receive();
    let kind = caller().map_or(PathKind::InProcess, |caller| caller.path());
    let call = if outlives { None } else { source_of_thread() };
    Ok(BoundPath { path: Box::new(CallbackPath { side, slots, kind, mark, call }), frames, order })
}

impl CallbackPath {
    /// Sends a call.
    ///
    /// # Errors
    /// If the call was not sent.
    fn send(&self, call: &mut Call<'_, '_, '_>) -> Result<(), CallError> {
        let Some(layout) = call.put(usize::MAX) else { return Err(too_large(call)) };
        call.head.flush();
        let inside = inside();
        let has_extensions = inside.is_some() || !call.terms.are_none();
        let extensions = has_extensions.then(|| Extensions::of(inside, call.terms)).transpose()?;
        let extensions = extensions.as_ref().map_or(&[][..], Extensions::as_bytes);
        let number = self.slots.begin(call.frame.index());
        // If the callback ends after this check, `Results::end` fails the call in its slot.
        if let Some(error) = &*self.side.handler.ended.lock() {
            return Err(error.copy());
        }
        if self.side.has_ended() {
            return Err(ended(&self.side));
        }
        let header = RequestHeader {
            number,
            kind: RequestKind::Call,
            procedure: call.procedure,
            // The sizes fit 32 bits, because a frame has fewer than 2^32 bytes.
            head: layout.head as u32,
            copied: layout.copied as u32,
            total: layout.total as u32,
            extensions: extensions.len() as u32,
        };
        let message = call.frame.call_space().window().part(0, layout.total);
        let message = message.ok_or_else(|| too_large(call))?;
        let header = header.to_bytes();
        let parts = [Window::from(&header[..]), message, Window::from(extensions)];
        self.side.send(number, &parts).map_err(|_| match call.terms.metadata() {
            None => too_large(call),
            Some(_) => no_space_for_metadata(layout.total),
        })
    }
}

impl CallbackPath {
    /// Waits for the result of a call. Returns `None` if the deadline passes.
    fn wait_for(&self, frame: u32, deadline: Option<Instant>) -> Option<Late> {
        let Some((calls, call)) = &self.call else { return self.slots.wait(frame, deadline) };
        loop {
            let look = Instant::now() + CHECK_EVERY;
            let until = deadline.map_or(look, |deadline| deadline.min(look));
            if let Some(late) = self.slots.wait(frame, Some(until)) {
                return Some(late);
            }
            if calls.is_given_up(*call) {
                let text = "the caller has given up the call that brought the callback";
                return Some(Late::Failed(CallError::new(Kind::Stopped, Executed::Maybe, text)));
            }
            if is_late(deadline) {
                return None;
            }
        }
    }
}

/// Makes the error of a call that the object has not begun, because the caller has ended the callback.
#[cold]
fn ended(side: &Side<Results>) -> CallError {
    let reason = side.reason().unwrap_or_else(|| "the caller does not say why".into());
    let text = format!("the callback has ended: {reason}");
    CallError::not_executed(Kind::Stopped, Phase::Call, text)
}

impl CallPath for CallbackPath {
    fn transport(&self, call: &mut Call<'_, '_, '_>) -> Result<Returned, CallError> {
        self.send(call)?;
        // Notes that this thread waits, so that another thread can run calls meanwhile: the object may call
        // this server again.
        let _waits = inside().map(|_| WaitingInside::begin());
        match self.wait_for(call.frame.index(), call.terms.deadline()) {
            Some(late) => late.take(call),
            None => Err(self.give_up(call)),
        }
    }

    fn begin(&self, call: &mut Call<'_, '_, '_>) -> Result<Begun, CallError> {
        self.send(call).map(|()| Begun::Pending)
    }

    fn poll(&self, call: &mut Call<'_, '_, '_>) -> Option<Result<Returned, CallError>> {
        self.slots.poll(call)
    }

    fn arm(&self, frame: u32, deadline: Option<Instant>) {
        self.slots.arm(frame, deadline);
    }

    fn give_up(&self, call: &mut Call<'_, '_, '_>) -> CallError {
        let (number, _) = self.slots.give_up(call.frame.index());
        if self.side.take_back(number) {
            return extensions::no_time_left();
        }
        let header = RequestHeader {
            number,
            kind: RequestKind::Cancel,
            procedure: 0,
            head: 0,
            copied: 0,
            total: 0,
            extensions: 0,
        };
        // A header always fits a message.
        let _ = self.side.send(number, &[Window::from(&header.to_bytes()[..])]);
        late()
    }

    fn is_prepared(&self, _frame: u32) -> bool {
        true
    }

    fn prepare(&self, _frame: u32, _deadline: Option<Instant>) -> Result<(), CallError> {
        Ok(())
    }

    fn message_bytes(&self) -> usize {
        self.slots.frames.layout().bytes
    }

    fn retransmissions(&self, _frame: u32) -> u32 {
        0
    }

    fn server_cpu(&self, _frame: u32) -> Option<u32> {
        None
    }

    fn wait(&self) -> Wait {
        Wait::Block
    }

    fn kind(&self) -> PathKind {
        self.kind
    }

    fn explain(&self) -> String {
        "a callback uses the binding of its caller".into()
    }

    fn is_alive(&self) -> bool {
        !self.side.has_ended() && self.side.handler.ended.lock().is_none()
    }

    fn captures(&self, _frame: u32) -> bool {
        false
    }

    fn is_released(&self, _frame: u32) -> bool {
        true
    }
}

impl Drop for CallbackPath {
    fn drop(&mut self) {
        // A forked child must not use the locks: a thread of its parent may have held them.
        if self.mark.wiped() {
            return;
        }
        self.side.close("the procedure has dropped the callback");
    }
}

impl Handles for Results {
    fn take(&self, side: &Arc<Side<Self>>, items: &mut &[u8]) -> Option<()> {
        let before = items.len();
        let (record, result) = take_result(items)?;
        side.consume(before - items.len());
        let answer = Answer::from_number(record.answer)
            .filter(|answer| !matches!(answer, Answer::PostAgain | Answer::Deferred))?;
        let mut memory: Vec<u128> = vec![0; align_up(result.len()) / size_of::<u128>()];
        bytes_of_blocks(&mut memory)[..result.len()].copy_from_slice(result);
        let (head_at, head_bytes) = (record.head_at, record.head_bytes);
        let ran = Ran { answer, head_at, head_bytes, block_bytes: 0, is_uncounted: false };
        self.slots.answer(record.number, Late::Memory(ran, memory));
        Some(())
    }

    fn woken(&self) {}

    fn end(&self, side: &Side<Self>, error: Option<CallError>) {
        // If there is an error, a call that begins later is certainly not executed, but a call in flight may
        // have been executed.
        let (later, in_flight) = match error {
            Some(error) => {
                let later = CallError::not_executed(error.kind(), Phase::Call, error.detail());
                (later, error)
            }
            // Before the object's side ends the callback, it answers every call that it has begun. So calls
            // without an answer are not executed.
            None => (ended(side), ended(side)),
        };
        let mut known = self.ended.lock();
        if known.is_none() {
            *known = Some(later);
            drop(known);
            self.slots.fail_all(&in_flight);
        }
    }
}

const _: () = assert!(limits::CALLBACK_CALLS_MAX >= limits::ASTACKS);
