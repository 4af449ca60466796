//! The in-process path: client and server are in one process. A call uses the same stubs and the same bytes
//! as a call on other paths.
//!
//! This path is meant for users' tests. It is also the reference for the contract that every path must keep:
//! arguments are copied as they would be between two processes.
//!
//! A limit has the same meaning as on other paths. A call whose deadline passes before its procedure begins
//! is not executed. A call whose procedure runs past the deadline fails as timed out, and may have executed.
//! The caller gets this error only after the procedure has returned, because both run on one thread. If the
//! procedure ran on a second thread, the caller could get the error in time. But the object under test would
//! then run on a thread that its test does not expect.

use core::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use crate::call::{
    Answer, Call, CallPath, CallerInfo, EStack, Incoming, PathKind, Ran, Returned, Serve, execute,
    extensions, refuse,
};
use crate::error::{CallError, Executed, Kind, Phase};
use crate::serving::procedure;

/// The path of calls that run on the caller's thread.
pub(crate) struct InProcess {
    serve: Arc<dyn Serve>,
    caller: Arc<CallerInfo>,
}

thread_local! {
    /// Idle E-stacks. Calls may nest, and each nested call needs its own E-stack.
    static ESTACKS: RefCell<Vec<EStack>> = const { RefCell::new(Vec::new()) };
}

impl InProcess {
    pub(crate) fn new(serve: Arc<dyn Serve>) -> Self {
        let caller = CallerInfo {
            path: PathKind::InProcess,
            export: String::new(),
            process: std::process::id(),
            user: rustix::process::geteuid().as_raw(),
            group: rustix::process::getegid().as_raw(),
            from: None,
            hardware: None,
            stopping: None,
        };
        Self { serve, caller: Arc::new(caller) }
    }
}

impl CallPath for InProcess {
    fn transport(&self, call: &mut Call<'_, '_, '_>) -> Result<Returned, CallError> {
        let Some(layout) = call.put(usize::MAX) else { return Err(too_large(call)) };
        call.head.flush();
        let due = call.limit.deadline();
        let is_late = || due.is_some_and(|due| due <= Instant::now());
        if is_late() {
            return Err(extensions::no_time_left());
        }
        let mut estack = ESTACKS.with_borrow_mut(Vec::pop).unwrap_or_default();
        let incoming = Incoming {
            procedure: call.procedure,
            space: call.frame.call_space().window(),
            head_bytes: layout.head,
            copied: layout.copied,
            total: layout.total,
            arrives: None,
            departs: None,
        };
        let reply = call.frame.reply_to();
        let ran = procedure::within(&self.caller, due, || {
            execute(&*self.serve, &incoming, reply, &mut estack)
        });
        let Ran { answer, head_at, head_bytes, .. } =
            ran.unwrap_or_else(|refusal| refuse(reply, &refusal));
        estack.trim();
        ESTACKS.with_borrow_mut(|estacks| estacks.push(estack));
        if is_late() {
            let text = "the deadline passed while the procedure ran";
            return Err(CallError::new(Kind::TimedOut, Executed::Maybe, text));
        }
        if answer == Answer::Ok {
            call.take_blocks(0).map_err(|invalid| {
                CallError::new(Kind::BadResult, Executed::Maybe, invalid.to_string())
                    .in_phase(Phase::Unmarshal)
            })?;
        }
        Ok(Returned { answer, head_at, head_bytes })
    }

    fn kind(&self) -> PathKind {
        PathKind::InProcess
    }

    fn is_alive(&self) -> bool {
        true
    }

    fn is_released(&self, _frame: u32) -> bool {
        true
    }
}

#[cold]
fn too_large(call: &Call<'_, '_, '_>) -> CallError {
    CallError::too_large(call.layout().total, call.frame.call_space().len(), None)
}
