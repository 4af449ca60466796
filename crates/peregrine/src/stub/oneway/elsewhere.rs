//! Work for a batch on a separate thread, because the work may wait. The thread prepares a frame, binds
//! again, or makes the calls one by one if the server has no batches.

use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use super::state::{Chunk, Entry, State, Turn, frame_of};
use super::{OneWay, Returned};
use crate::binding::Bound;
use crate::call::batch::CallRecord;
use crate::call::{Answer, Call, CallTerms};
use crate::error::{CallError, Executed, Kind, Phase};
use crate::stub::compiled::no_frame;
use crate::value::{Block, Native, Reader, Window, Writer, align_up};

/// The longest time for preparing a frame, or for binding again.
const WITHIN: Duration = Duration::from_secs(5);

impl OneWay {
    /// Prepares a frame, and sends the batch in it.
    pub(super) fn prepare(&self, state: &mut State, chunk: Chunk, index: u32) {
        let bound = Arc::clone(&chunk.bound);
        let spawned = self.spawn(state, chunk, move |this, chunk| {
            let bound = Arc::clone(&chunk.bound);
            let prepared = bound.path.prepare(index, Instant::now().checked_add(WITHIN));
            this.with(|this, state| {
                let frame = frame_of(&bound, index);
                match prepared {
                    Ok(()) => this.begin(state, chunk, frame),
                    Err(error) => {
                        drop(frame);
                        this.lost(state, chunk, &error);
                    }
                }
                this.on_ring(state);
            });
        });
        if !spawned {
            drop(frame_of(&bound, index));
        }
    }

    /// Returns whether the calls of a batch, which were not executed, can be made in another way.
    pub(super) fn recovers(&self, chunk: &Chunk, error: &CallError) -> bool {
        error.kind() == Kind::NoSuchProcedure || self.is_repeated(chunk, error)
    }

    /// Returns whether a batch that has failed with this error is sent again, after binding again.
    pub(super) fn is_repeated(&self, chunk: &Chunk, error: &CallError) -> bool {
        let home = self.home.get().and_then(std::sync::Weak::upgrade);
        home.is_some_and(|home| home.repeats(&chunk.bound, 0, error))
    }

    /// Sends the batch again after binding again, or makes its calls one by one.
    pub(super) fn recover(&self, state: &mut State, chunk: Chunk, error: CallError) {
        if error.kind() == Kind::NoSuchProcedure {
            state.batchless = Arc::downgrade(&chunk.bound);
            self.spawn(state, chunk, Self::make_one_by_one);
        } else {
            self.spawn(state, chunk, move |this, chunk| this.send_again(chunk, error));
        }
    }

    fn send_again(&self, mut chunk: Chunk, error: CallError) {
        let home = self.home.get().and_then(std::sync::Weak::upgrade);
        let until = Instant::now().checked_add(WITHIN);
        let bound = match home {
            Some(home) => home.again_for(&chunk.bound, 0, error, until),
            None => Err(error),
        };
        // The records only suit a server with the same interface and byte order.
        let suits =
            |bound: &Bound| chunk.bound.is_like(bound) || chunk.bound.is_same_program(bound);
        let bound = bound.and_then(|bound| match suits(&bound) {
            true => Ok(bound),
            false => {
                let text = "the new server has another interface: make the calls again";
                Err(CallError::not_executed(Kind::ServerGone, Phase::Call, text))
            }
        });
        self.with(|this, state| {
            match bound {
                Ok(bound) => {
                    (chunk.bound, chunk.again) = (bound, true);
                    state.turn = Turn::Free;
                    state.queue.push_front(Entry::Batch(chunk));
                }
                Err(error) => this.lost(state, chunk, &error),
            }
            this.on_ring(state);
        });
    }

    fn make_one_by_one(&self, chunk: Chunk) {
        for (record, message) in chunk.calls() {
            let procedure = (record.number >> 32) as u32;
            match make_one(&chunk.bound, &record, message) {
                Ok(Ok(())) => {}
                Ok(Err(bytes)) => {
                    let text = || self.own_error(procedure, self.text_of(procedure, &bytes));
                    self.with(|_, state| state.failures.note(1, 0, text));
                }
                Err(error) => {
                    let error = self.of(procedure, error);
                    self.with(|_, state| state.failures.note_error(1, &error));
                }
            }
        }
        self.with(|this, state| {
            state.end_chunk(chunk);
            this.on_ring(state);
        });
    }

    /// Runs `work` with a batch on a separate thread. If no thread can be started, notes that the calls have
    /// failed, and returns false.
    fn spawn(
        &self,
        state: &mut State,
        chunk: Chunk,
        work: impl FnOnce(&Self, Chunk) + Send + 'static,
    ) -> bool {
        let Some(this) = self.this.upgrade() else { return false };
        // If no thread can be started, the closure is dropped, and the batch is still needed. So the closure
        // does not own the batch, but shares it with this function.
        let chunk = Arc::new(crate::sync::Mutex::new(Some(chunk)));
        let given = Arc::clone(&chunk);
        let thread = std::thread::Builder::new().name("peregrine-oneway".into());
        let spawned = thread.spawn(move || {
            let chunk = given.lock().take();
            if let Some(chunk) = chunk {
                work(&this, chunk);
            }
        });
        let Err(error) = spawned else { return true };
        let chunk = chunk.lock().take();
        if let Some(chunk) = chunk {
            let error = CallError::system(Phase::Call, "cannot run a thread", error);
            self.lost(state, chunk, &error);
        }
        false
    }
}

/// Makes the call of a record as an ordinary call. The inner error has the bytes of the procedure's own
/// error.
fn make_one(
    bound: &Bound,
    record: &CallRecord,
    message: &[u8],
) -> Result<Result<(), Vec<u8>>, CallError> {
    let deadline = record.left.and_then(|left| Instant::now().checked_add(left));
    let is_released = |frame| bound.path.is_released(frame);
    let frame = bound.frames.take(|| deadline, is_released, bound.on_exhausted);
    let frame = frame.ok_or_else(|| no_frame(&bound.frames))?;
    let (head_bytes, copied) = (record.head as usize, record.copied as usize);
    let mut head = Writer::<Native>::new(frame.call_space());
    head.bytes(1, &message[..head_bytes], None).map_err(super::does_not_fit)?;
    let blocks = [Block::from(Window::from(&message[align_up(head_bytes).min(copied)..copied]))];
    let ins = if copied > head_bytes { &blocks[..] } else { &[] };
    let terms = CallTerms::until(deadline);
    let procedure = record.procedure;
    let mut call =
        Call { procedure, frame: &frame, head: &mut head, ins, lent: &[], outs: &mut [], terms };
    let made = bound.path.transport(&mut call).and_then(|returned| {
        let mut returned = Returned::<Native>::of(&frame, returned)?;
        match returned.answer() {
            Answer::Ok => Ok(Ok(())),
            Answer::Err => {
                let head: &mut Reader<'_, Native> = returned.head();
                let bytes = head.plain_vec(head.remaining());
                Ok(Err(bytes.unwrap_or_default()))
            }
            _ => Err(returned.refused()),
        }
    });
    if let Err(error) = &made
        && (error.executed() == Executed::Maybe || bound.path.captures(frame.index()))
    {
        frame.capture();
    }
    made
}
