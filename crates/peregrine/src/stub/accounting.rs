//! Accounts of calls at the client: which steps a call passes, and when.

use core::marker::PhantomData;
use core::time::Duration;

use super::Stub;
use super::compiled::{ask, call, call_swapped, target};
use crate::binding::Binding;
use crate::call::accounted::{BEGIN, ECHO, END, RECORDS_MAX, TAKE};
use crate::error::{CallError, Kind, Phase};
use crate::steps::{self, Recording, STEPS, Stamps, Step};
use crate::value::{Out, Representation};

/// Records when the calls of a client pass their steps, at the client and at the server (Lampson's way of
/// accounting for time; Firefly RPC, 3.3).
///
/// Only calls over [`binding`](Self::binding) on the thread that has begun the account are recorded, and only
/// those of procedures that block their thread. They have no metadata. Over UDP and raw Ethernet, a call that
/// times out ends the account at the server. As long as this value exists, calls over networks of this process and of the server cost some
/// nanoseconds more.
///
/// ```
/// # use peregrine::{Accounting, BindOptions, Binding, Server, Step, interface};
/// # #[interface]
/// # trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
/// # struct Same;
/// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
/// # let server = Server::new().export("echo", EchoServer::new(Same))?;
/// # let running = server.listen("tcp:127.0.0.1:0")?.spawn()?;
/// # let address = format!("{}/echo", running.addresses()[0]);
/// let echo = EchoClient::bind(&address)?;
/// let accounting = Accounting::begin(echo.binding())?;
/// accounting.binding().ping()?;
/// let client = Accounting::last_call();
/// (0..20).try_for_each(|_| accounting.binding().ping())?;
/// let server = accounting.server_calls()?;
/// let sent = client.at(Step::Sending).unwrap();
/// assert!(client.at(Step::Received).unwrap() > sent);
/// assert!(server.iter().any(|call| call.between(Step::Received, Step::Sending) > Some(0)));
/// # Ok::<(), peregrine::CallError>(())
/// ```
#[derive(Debug)]
pub struct Accounting {
    binding: Binding,
    _recording: Recording,
    /// Over datagrams, each thread has an account of its own at the server.
    _of_thread: PhantomData<*const ()>,
}

/// When one call passed its steps, at one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallTimes(Stamps);

impl CallTimes {
    /// Returns when the call passed a step, in nanoseconds: at the client since the machine was started, at the
    /// server since the call's first recorded step. `None`: the call has
    /// not passed the step at this side.
    pub fn at(&self, step: Step) -> Option<u64> {
        Some(self.0[step as usize]).filter(|at| *at != 0)
    }

    /// Returns how long the call took from one step to a later one, in nanoseconds.
    pub fn between(&self, from: Step, to: Step) -> Option<u64> {
        self.at(to)?.checked_sub(self.at(from)?)
    }
}

impl Accounting {
    /// Begins an account of calls to the server of a binding.
    ///
    /// # Errors
    /// If the server is of another RPC system, or of a release that makes no accounts. If the binding is a pool,
    /// has metadata, or is within this process. Any error of a call.
    pub fn begin(binding: &Binding) -> Result<Self, CallError> {
        if let Some(why) = binding.unaccountable() {
            return Err(CallError::not_executed(Kind::BadArguments, Phase::Call, why));
        }
        let recording = Recording::begin();
        ask(binding, BEGIN)?;
        let binding = binding.accounted();
        Ok(Self { binding, _recording: recording, _of_thread: PhantomData })
    }

    /// Returns the binding whose calls are recorded.
    pub const fn binding(&self) -> &Binding {
        &self.binding
    }

    /// Sends `bytes` to the server, and receives as many bytes as `back` has. No object takes part. The server
    /// occupies its thread for `busy`, but at most for a millisecond, so that an echo can take as long as a call
    /// whose procedure does some work. The client may then sleep in both.
    ///
    /// # Errors
    /// Any error of a call. Calls of more bytes than the export allows fail.
    pub fn echo(&self, bytes: &[u8], back: &mut [u8], busy: Duration) -> Result<(), CallError> {
        fn body<R: Representation>(
            stub: &mut Stub<'_, R>,
            bytes: &[u8],
            back: &mut [u8],
            busy: u32,
        ) -> Result<Result<(), CallError>, CallError> {
            if bytes.is_empty() && back.is_empty() && busy == 0 {
                stub.head_only();
                return stub.transport(&[], &[], &mut [])?.ping();
            }
            stub.value(&busy)?;
            let mut out = Out::from(back);
            let block = stub.slice(bytes, usize::MAX)?;
            let outs = stub.out(&mut out, usize::MAX)?;
            stub.transport(&[block], &[], &mut [outs])?.ping()
        }
        let busy = u32::try_from(busy.as_nanos()).unwrap_or(u32::MAX);
        let (binding, target) = (&self.binding, target(&self.binding));
        match target.is_native(ECHO) {
            true => call(target, ECHO, |stub| body(stub, bytes, &mut *back, busy)),
            false => call_swapped(binding, ECHO, |stub| body(stub, bytes, &mut *back, busy)),
        }
    }

    /// Makes this thread record only these steps of its calls at the client from now on, because each record
    /// takes time. A server always chooses itself: in each call, it records at most two steps, except in the
    /// first recorded call of one of its threads.
    pub fn record_only(steps: &[Step]) {
        steps::choose(steps);
    }

    /// Makes this thread record all steps of its calls at the client from now on, as it did at first.
    pub fn record_all() {
        steps::choose_all();
    }

    /// Forgets what this thread has recorded, and records that it is about to make a call ([`Step::Called`]).
    #[inline]
    pub fn before_call() {
        steps::forget();
        steps::record(Step::Called);
    }

    /// Records that the call of this thread has returned ([`Step::Returned`]).
    #[inline]
    pub fn after_call() {
        steps::record(Step::Returned);
    }

    /// Returns how many bytes the last recorded call of this thread has sent, and how many have come back. Headers
    /// of the path are not counted.
    pub fn last_bytes() -> [usize; 2] {
        steps::bytes()
    }

    /// Returns when the last recorded call of this thread passed its steps at the client. Returns nothing a
    /// second time.
    pub fn last_call() -> CallTimes {
        CallTimes(steps::take())
    }

    /// Returns when calls passed their steps at the server, in the order of the calls. The times of a call count
    /// from 1 at its first recorded step. Each call is returned once. The server keeps at most 4,096 calls. It adds a call after it has sent the result, so the last call
    /// may be missing until a moment later.
    ///
    /// # Errors
    /// Any error of a call.
    pub fn server_calls(&self) -> Result<Vec<CallTimes>, CallError> {
        let mut calls = Vec::new();
        let plain = self.binding.unaccounted();
        loop {
            let bytes = ask(&plain, TAKE)?;
            let (records, rest) = bytes.as_chunks::<{ STEPS * size_of::<u64>() }>();
            if !rest.is_empty() || calls.len() + records.len() > RECORDS_MAX {
                return Err(CallError::bad_result("these are no records of calls"));
            }
            if records.is_empty() {
                return Ok(calls);
            }
            calls.extend(records.iter().map(|record| {
                let words = record.as_chunks::<8>().0;
                CallTimes(core::array::from_fn(|at| u64::from_le_bytes(words[at])))
            }));
        }
    }
}

impl Drop for Accounting {
    fn drop(&mut self) {
        // If the server is gone, it keeps no records.
        let _ = ask(&self.binding.unaccounted(), END);
    }
}
