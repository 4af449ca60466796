//! The in-process path: a call uses the same stubs and the same bytes as on other paths, but no other
//! process.
//!
//! This path is meant for users' tests. It is also the reference for the contract that every path must keep:
//! arguments are copied as they would be between two domains.
//!
//! A time limit has the same meaning as on other paths. A call whose deadline passes before its procedure
//! begins is not executed. A call whose procedure runs past the deadline fails as timed out, and may have
//! executed. The caller gets this error only after the procedure has returned, because both run on one
//! thread. If the procedure ran on a second thread, the caller could get the error in time. But the object
//! under test would then run on a thread that its test does not expect.
//!
//! An async procedure is polled once on the caller's thread. If it does not end then, its call is deferred.
//! The caller waits for the reply at the slot of the frame (`path/slots.rs`).
//!
//! A blocking procedure with streams runs on a thread of its own, because its caller moves the items
//! meanwhile. The caller gets the reply from the slot, too.

use core::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use super::slots::{Late, Slots, is_late, late, take_result, too_large};
use crate::call::deferred::{Cancels, Owed};
use crate::call::{
    Answer, Answered, Begun, Call, CallPath, CallerInfo, Calls, EStack, Frames, Incoming, Layout,
    PathKind, Ran, Returned, Serve, Wait, execute, extensions, refuse,
};
use crate::error::{CallError, Phase};
use crate::serving::procedure;
use crate::value::{Space, Window, bytes_of, bytes_of_blocks};

/// The path of calls within this process.
pub(crate) struct InProcess {
    serve: Arc<dyn Serve>,
    caller: Arc<CallerInfo>,
    /// Where the replies to deferred calls arrive.
    slots: Arc<Slots>,
}

/// The duty to answer a deferred call.
struct OwedReply {
    slots: Arc<Slots>,
    call: u64,
}

thread_local! {
    /// Idle E-stacks. Calls may nest, and each nested call needs its own E-stack.
    static ESTACKS: RefCell<Vec<EStack>> = const { RefCell::new(Vec::new()) };
}

impl InProcess {
    /// Returns the path to an object. `frames` are the frames of its calls.
    pub(crate) fn new(serve: Arc<dyn Serve>, frames: &Arc<Frames>) -> Self {
        let caller = CallerInfo {
            path: PathKind::InProcess,
            export: Box::default(),
            process: std::process::id(),
            user: rustix::process::geteuid().as_raw(),
            group: rustix::process::getegid().as_raw(),
            from: None,
            hardware: None,
            claimed: None,
            identity: None,
            ending: None,
            carried: None,
            account: Default::default(),
        };
        Self { serve, caller: Arc::new(caller), slots: Slots::new(frames) }
    }

    /// Runs the call on this thread. The answer is [`Answer::Deferred`] if the procedure has not ended.
    fn run(&self, call: &mut Call<'_, '_, '_>) -> Result<Ran, CallError> {
        let Some(layout) = call.put(usize::MAX) else { return Err(too_large(call)) };
        call.head.flush();
        let due = call.terms.deadline();
        if is_late(due) {
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
        let number = self.slots.begin(call.frame.index());
        if !self.serve.is_async() && self.serve.interface().has_streams(call.procedure) {
            return self.run_on_thread(call, &layout, number);
        }
        let calls = Arc::clone(&self.slots) as Arc<dyn Calls>;
        let with_metadata =
            call.terms.metadata().map(|metadata| self.caller.with_metadata(metadata));
        let caller = with_metadata.as_ref().unwrap_or(&self.caller);
        let ran = procedure::within(caller, due, calls, number, || {
            execute(&*self.serve, &incoming, reply, &mut estack)
        });
        estack.trim();
        ESTACKS.with_borrow_mut(|estacks| estacks.push(estack));
        Ok(ran.unwrap_or_else(|refusal| refuse(reply, &refusal)))
    }

    /// Begins to run a call on a thread of its own, with a copy of its message.
    #[cold]
    fn run_on_thread(
        &self,
        call: &Call<'_, '_, '_>,
        layout: &Layout,
        number: u64,
    ) -> Result<Ran, CallError> {
        let Layout { head, copied, total } = *layout;
        let mut message: Vec<u128> = vec![0; total.div_ceil(16)];
        let bytes = &mut bytes_of_blocks(&mut message)[..total];
        call.frame.call_space().window().read(0, bytes).ok_or_else(|| too_large(call))?;
        let (procedure, due) = (call.procedure, call.terms.deadline());
        let reply_bytes = call.frame.reply_to().window().len();
        let serve = Arc::clone(&self.serve);
        let caller = match call.terms.metadata() {
            None => Arc::clone(&self.caller),
            Some(metadata) => self.caller.with_metadata(metadata),
        };
        let slots = Arc::clone(&self.slots);
        let run = move || {
            let incoming = Incoming {
                procedure,
                space: Window::from(&bytes_of(&message)[..total]),
                head_bytes: head,
                copied,
                total,
                arrives: None,
                departs: None,
            };
            let mut memory = vec![0; reply_bytes.div_ceil(16)];
            let reply = Space::of_mut(&mut bytes_of_blocks(&mut memory)[..reply_bytes]);
            let calls = Arc::clone(&slots) as Arc<dyn Calls>;
            let mut estack = EStack::default();
            let ran = procedure::within(&caller, due, calls, number, || {
                execute(&*serve, &incoming, reply, &mut estack)
            });
            let ran = ran.unwrap_or_else(|refusal| refuse(reply, &refusal));
            slots.answer(number, Late::Memory(ran, memory));
        };
        let thread = std::thread::Builder::new().name("peregrine-call".into()).spawn(run);
        let thread = thread.map_err(|error| {
            CallError::system(Phase::Call, "cannot start the thread of a procedure", error)
        });
        thread.map(|_| Ran {
            answer: Answer::Deferred,
            head_at: 0,
            head_bytes: 0,
            block_bytes: 0,
            is_uncounted: false,
        })
    }
}

impl CallPath for InProcess {
    fn transport(&self, call: &mut Call<'_, '_, '_>) -> Result<Returned, CallError> {
        let ran = self.run(call)?;
        if ran.answer != Answer::Deferred {
            return take_result(call, ran);
        }
        match self.slots.wait(call.frame.index(), call.terms.deadline()) {
            Some(late) => late.take(call),
            None => Err(self.give_up(call)),
        }
    }

    fn begin(&self, call: &mut Call<'_, '_, '_>) -> Result<Begun, CallError> {
        match self.run(call)? {
            Ran { answer: Answer::Deferred, .. } => Ok(Begun::Pending),
            ran => take_result(call, ran).map(Begun::Ended),
        }
    }

    fn poll(&self, call: &mut Call<'_, '_, '_>) -> Option<Result<Returned, CallError>> {
        self.slots.poll(call)
    }

    fn arm(&self, frame: u32, deadline: Option<Instant>) {
        self.slots.arm(frame, deadline);
    }

    fn give_up(&self, call: &mut Call<'_, '_, '_>) -> CallError {
        if let (_, Some(cancels)) = self.slots.give_up(call.frame.index()) {
            cancels.cancel();
        }
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
        Wait::Adaptive
    }

    fn kind(&self) -> PathKind {
        PathKind::InProcess
    }

    fn explain(&self) -> String {
        String::new()
    }

    fn is_alive(&self) -> bool {
        true
    }

    fn captures(&self, _frame: u32) -> bool {
        false
    }

    fn is_released(&self, _frame: u32) -> bool {
        true
    }
}

impl Calls for Slots {
    fn is_given_up(&self, call: u64) -> bool {
        Self::is_given_up(self, call)
    }

    fn defer(self: Arc<Self>, call: u64, cancels: Arc<dyn Cancels>) -> Option<Box<dyn Owed>> {
        self.set_cancels(call, cancels)?;
        Some(Box::new(OwedReply { slots: self, call }))
    }
}

impl Owed for OwedReply {
    fn leave_uncounted(&mut self, _: bool) {}

    fn answer(self: Box<Self>, answered: Answered) {
        self.slots.answer(self.call, Late::Answered(answered));
    }
}
