//! [`ForeignPath`]: the path of one binding to a program of another RPC system.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::slots::{Ended, Outcome};
use super::{Dialect, Link, Wire};
use crate::call::chain::WaitingInside;
use crate::call::{
    Answer, Begun, Call, CallPath, Layout, PING, PathKind, Returned, Wait, block_cost, inside,
};
use crate::error::{CallError, Executed, Kind, NO_THREAD, Phase};
use crate::keeper::Watch;
use crate::path::bind::{BoundPath, system};
use crate::value::ByteOrder;

/// The path of one binding.
pub(in crate::path) struct ForeignPath<D: Dialect> {
    // Dropped first, so that the keeper does not watch a closed socket.
    pub(super) watch: OnceLock<Watch>,
    pub(super) link: Arc<Link<D>>,
    /// The number of each procedure, in the order of the methods.
    procedures: Cow<'static, [u32]>,
    wait: Wait,
    /// The address of the server and the program, as [`explain`](CallPath::explain) shows them.
    to: String,
}

impl<D: Dialect> ForeignPath<D> {
    /// Returns a new binding over a link. `to` describes the server and the program in explanations.
    ///
    /// # Errors
    /// If the keeper cannot watch a connection.
    pub(in crate::path) fn bound(
        link: Arc<Link<D>>,
        procedures: Cow<'static, [u32]>,
        wait: Wait,
        to: String,
    ) -> Result<BoundPath, CallError> {
        if wait == Wait::Adaptive {
            // Measures the cost of sleeping and waking now, so that the measurement does not delay the first
            // call.
            block_cost();
        }
        let (frames, is_connected) = (Arc::clone(link.frames()), matches!(link.wire, Wire::Tcp(_)));
        let path = Self { watch: OnceLock::new(), link, procedures, wait, to };
        if is_connected {
            // The keeper notices the end of the connection.
            path.watch().map_err(system(NO_THREAD))?;
        }
        Ok(BoundPath { path: Box::new(path), frames, order: ByteOrder::NATIVE })
    }

    /// Returns the number that a procedure has in the program. `number` is the index of the method, or
    /// [`PING`].
    fn procedure(&self, number: u32) -> Result<u32, CallError> {
        match self.procedures.get(number as usize) {
            Some(procedure) => Ok(*procedure),
            None if number == PING => self.link.dialect.ping().ok_or_else(not_there),
            None => Err(not_there()),
        }
    }

    /// Begins a call. Sends as much of it as the socket accepts.
    fn start(&self, call: &mut Call<'_, '_, '_>, may_wait: bool) -> Result<(), CallError> {
        let procedure = self.procedure(call.procedure)?;
        let Layout { head, total, .. } = call.layout();
        if head != total {
            // A foreign call has no blocks.
            return Err(not_there());
        }
        let most = self.link.arguments_max();
        if head > most {
            return Err(CallError::too_large(head, most, None));
        }
        call.head.flush();
        let deadline = call.terms.deadline();
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        self.link.begin(call.frame.index(), procedure, head, left, may_wait)
    }

    /// Converts the outcome of a call to the form that the stub expects.
    fn take(&self, procedure: u32, ended: Ended<D>) -> Result<Returned, CallError> {
        self.link.tidy_soon();
        match ended.outcome {
            Outcome::Results(answer, head_bytes) => Ok(Returned { answer, head_at: 0, head_bytes }),
            Outcome::TooLong(bytes) => {
                let text = format!("the results have {bytes} bytes, which do not fit a message");
                Err(CallError::new(Kind::TooLarge, Executed::Maybe, text))
            }
            Outcome::Failed(failure) if procedure == PING && D::is_well(failure) => {
                Ok(Returned { answer: Answer::Ok, head_at: 0, head_bytes: 0 })
            }
            Outcome::Failed(failure) => Err(self.link.error_of(failure, ended.transmissions)),
        }
    }
}

/// Returns the error of a call of a procedure that the program does not have.
#[cold]
pub(in crate::path) fn not_there() -> CallError {
    let text = "a program of another RPC system has only the procedures of its interface";
    CallError::not_executed(Kind::NoSuchProcedure, Phase::Call, text)
}

impl<D: Dialect> CallPath for ForeignPath<D> {
    fn transport(&self, call: &mut Call<'_, '_, '_>) -> Result<Returned, CallError> {
        self.start(call, true)?;
        let _waiting = inside().map(|_| WaitingInside::begin());
        let (frame, deadline) = (call.frame.index(), call.terms.deadline());
        let ended = match self.link.sends(frame, deadline) {
            true => self.link.wait(frame, self.wait, deadline),
            false => None,
        };
        match ended {
            Some(ended) => self.take(call.procedure, ended),
            None => Err(self.link.give_up(frame)),
        }
    }

    fn begin(&self, call: &mut Call<'_, '_, '_>) -> Result<Begun, CallError> {
        self.start(call, false)?;
        Ok(Begun::Pending)
    }

    fn poll(&self, call: &mut Call<'_, '_, '_>) -> Option<Result<Returned, CallError>> {
        let ended = self.link.poll(call.frame.index())?;
        Some(self.take(call.procedure, ended))
    }

    fn arm(&self, frame: u32, deadline: Option<Instant>) {
        self.arm_pending(frame, deadline);
    }

    fn give_up(&self, call: &mut Call<'_, '_, '_>) -> CallError {
        self.link.disarm(call.frame.index());
        self.link.give_up(call.frame.index())
    }

    fn is_prepared(&self, _frame: u32) -> bool {
        true
    }

    fn prepare(&self, _frame: u32, _deadline: Option<Instant>) -> Result<(), CallError> {
        Ok(())
    }

    fn message_bytes(&self) -> usize {
        self.link.arguments_max()
    }

    fn retransmissions(&self, _frame: u32) -> u32 {
        0
    }

    fn server_cpu(&self, _frame: u32) -> Option<u32> {
        None
    }

    fn wait(&self) -> Wait {
        self.wait
    }

    fn kind(&self) -> PathKind {
        self.link.kind
    }

    fn explain(&self) -> String {
        self.to.clone()
    }

    fn is_alive(&self) -> bool {
        !self.link.has_ended()
    }

    fn captures(&self, _frame: u32) -> bool {
        false
    }

    fn is_released(&self, frame: u32) -> bool {
        !self.link.holds(frame)
    }
}
