//! [`LayeredPath`]: the call path of a binding that has layers.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use super::layer::{LayerCall, LayerOutcome, LayerRefusal, LayerSide};
use super::layers::{Observed, Running};
use crate::call::{
    Answer, Begun, Call, CallPath, CallTerms, Frames, Metadata, Refusal, Returned, pass_on,
};
use crate::error::{CallError, Phase};
use crate::sync::Mutex;
use crate::value::{Native, OutBlock, Reader};

/// A path that calls the layers of a binding around each call of a procedure of the interface. Other calls,
/// such as those that carry streams, pass it unseen.
pub(crate) struct LayeredPath {
    path: Box<dyn CallPath>,
    observed: Arc<Observed>,
    /// For each procedure of the client, its number in the calls of this path. `None`: the same number.
    numbers: Option<Box<[Option<u32>]>>,
    /// For each frame, its pending call.
    pending: Box<[Pending]>,
}

/// The pending call of a frame.
#[derive(Default)]
struct Pending {
    /// Whether layers have seen the call begin. Only the holder of the frame uses this flag.
    is_seen: AtomicBool,
    running: Mutex<Option<Running>>,
}

/// The advice for a call that a layer of the client has refused.
const ADVICE: &str = "see the reason, which comes from a layer of this program's binding";

impl LayeredPath {
    /// Returns the path of a binding with layers, over `path`. `frames` are the frames of `path`. `numbers` has
    /// the server's number of each procedure of the client, if these numbers differ.
    pub(crate) fn over(
        path: Box<dyn CallPath>,
        frames: &Frames,
        observed: Arc<Observed>,
        numbers: Option<&[Option<u32>]>,
    ) -> Self {
        let pending = (0..frames.layout().count).map(|_| Pending::default()).collect();
        Self { path, observed, numbers: numbers.map(Into::into), pending }
    }

    /// Returns the client's number of the procedure that has this number in the calls of this path. `None` if
    /// it is no procedure of the interface.
    fn procedure(&self, number: u32) -> Option<u32> {
        match &self.numbers {
            None => ((number as usize) < self.observed.interface.procedures()).then_some(number),
            Some(numbers) => {
                let found = numbers.iter().position(|one| *one == Some(number));
                found.map(|index| index as u32)
            }
        }
    }

    /// Makes a call by `make`, and tells the layers that it begins. The call carries the metadata that layers
    /// have added.
    fn begun<T>(
        &self,
        procedure: u32,
        call: &mut Call<'_, '_, '_>,
        make: impl FnOnce(&mut Call<'_, '_, '_>) -> Result<T, CallError>,
    ) -> Result<(Running, Result<T, CallError>), CallError> {
        let before = self.path.retransmissions(call.frame.index());
        let mut seen = LayerCall {
            side: LayerSide::Client,
            interface: &self.observed.interface,
            procedure,
            path: self.path.kind(),
            name: &self.observed.name,
            caller: None,
            given: call.terms.metadata().unwrap_or(Metadata::EMPTY),
            added: None,
            argument_bytes: call.layout().total,
            message: None,
            deadline: call.terms.deadline(),
            scope: None,
        };
        let mut running = self.observed.begin(&mut seen).map_err(refused)?;
        running.count_retransmissions_from(before);
        let deadline = call.terms.deadline();
        let terms = match &seen.added {
            Some(metadata) => CallTerms::Metadata { metadata, deadline },
            None => call.terms,
        };
        let made = make(&mut Call {
            procedure: call.procedure,
            frame: call.frame,
            head: &mut *call.head,
            ins: call.ins,
            lent: call.lent,
            outs: &mut *call.outs,
            terms,
        });
        Ok((running, made))
    }

    /// Returns whether a call need not be seen, because the layers would do nothing.
    #[inline]
    fn is_idle(&self, call: &Call<'_, '_, '_>) -> bool {
        call.terms.metadata().is_none() && self.observed.is_idle(LayerSide::Client)
    }

    /// Tells the layers how a call has ended.
    fn end(
        &self,
        mut running: Running,
        call: &Call<'_, '_, '_>,
        ended: &Result<Returned, CallError>,
    ) {
        running.count_retransmissions_to(self.path.retransmissions(call.frame.index()));
        match ended {
            Ok(returned) => returned_to(running, call, *returned),
            Err(error) => failed(running, error),
        }
    }
}

#[cold]
fn refused(refusal: LayerRefusal) -> CallError {
    CallError::not_executed(refusal.kind(), Phase::Call, refusal.text()).with_advice(ADVICE)
}

/// Tells the layers what the server has returned for a call.
fn returned_to(running: Running, call: &Call<'_, '_, '_>, returned: Returned) {
    let Returned { answer, head_at, head_bytes } = returned;
    match answer {
        Answer::Ok => {
            let blocks: usize = call.outs.iter().map(OutBlock::filled_bytes).sum();
            running.end(LayerOutcome::Returned, head_bytes as usize + blocks);
        }
        Answer::Err => running.end(LayerOutcome::ReturnedError, head_bytes as usize),
        _ => {
            let head = call.frame.reply_space().part(head_at as usize, head_bytes as usize);
            let refusal = head
                .and_then(|head| Refusal::read(answer, &mut Reader::<Native>::represented(head)));
            let refusal =
                refusal.unwrap_or_else(|| Refusal::bad_result("the refusal is invalid".into()));
            let Refusal { kind, executed, ref text } = refusal;
            running.end(LayerOutcome::Failed { kind, executed, text }, 0);
        }
    }
}

fn failed(running: Running, error: &CallError) {
    let (kind, executed, text) = (error.kind(), error.executed(), error.cause());
    running.end(LayerOutcome::Failed { kind, executed, text: &text }, 0);
}

impl CallPath for LayeredPath {
    fn transport(&self, call: &mut Call<'_, '_, '_>) -> Result<Returned, CallError> {
        if self.is_idle(call) {
            return self.path.transport(call);
        }
        let Some(procedure) = self.procedure(call.procedure) else {
            return self.path.transport(call);
        };
        let (running, ended) = self.begun(procedure, call, |call| self.path.transport(call))?;
        self.end(running, call, &ended);
        ended
    }

    fn begin(&self, call: &mut Call<'_, '_, '_>) -> Result<Begun, CallError> {
        if self.is_idle(call) {
            return self.path.begin(call);
        }
        let Some(procedure) = self.procedure(call.procedure) else {
            return self.path.begin(call);
        };
        let (running, begun) = self.begun(procedure, call, |call| self.path.begin(call))?;
        match begun {
            Ok(Begun::Pending) => {
                let pending = &self.pending[call.frame.index() as usize];
                *pending.running.lock() = Some(running);
                pending.is_seen.store(true, Ordering::Relaxed);
                Ok(Begun::Pending)
            }
            Ok(Begun::Ended(returned)) => {
                let ended = Ok(returned);
                self.end(running, call, &ended);
                ended.map(Begun::Ended)
            }
            Err(error) => {
                let failed = Err(error);
                self.end(running, call, &failed);
                failed.map(Begun::Ended)
            }
        }
    }

    fn poll(&self, call: &mut Call<'_, '_, '_>) -> Option<Result<Returned, CallError>> {
        let ended = self.path.poll(call)?;
        if let Some(running) = self.pending[call.frame.index() as usize].take() {
            self.end(running, call, &ended);
        }
        Some(ended)
    }

    fn give_up(&self, call: &mut Call<'_, '_, '_>) -> CallError {
        let error = self.path.give_up(call);
        if let Some(mut running) = self.pending[call.frame.index() as usize].take() {
            running.count_retransmissions_to(self.path.retransmissions(call.frame.index()));
            failed(running, &error);
        }
        error
    }

    pass_on! {
        self => self.path;
        arm, is_prepared, prepare, message_bytes, server_cpu, wait, kind, explain, is_alive,
        captures, is_released, retransmissions
    }
}

impl Pending {
    /// Returns the pending call, if layers have seen it begin and not end.
    fn take(&self) -> Option<Running> {
        if !self.is_seen.load(Ordering::Relaxed) {
            return None;
        }
        self.is_seen.store(false, Ordering::Relaxed);
        self.running.lock().take()
    }
}
