//! The in-process path: a call uses the same stubs and the same bytes as on other paths, but no other
//! process.
//!
//! This path is meant for users' tests. It is also the reference for the contract that every path must keep:
//! arguments are copied as they would be between two domains.
//!
//! A limit has the same meaning as on other paths. A call whose deadline passes before its procedure begins
//! is not executed. A call whose procedure runs past the deadline fails as timed out, and may have executed.
//! The caller gets this error only after the procedure has returned, because both run on one thread. If the
//! procedure ran on a second thread, the caller could get the error in time. But the object under test would
//! then run on a thread that its test does not expect.
//!
//! An async procedure is polled once on the caller's thread. If it does not end then, its call is deferred:
//! the reply arrives in a slot of the frame, and the caller waits there.
//!
//! A blocking procedure with streams runs on a thread of its own, because its caller moves the items meanwhile. Its
//! reply arrives in the slot, too.

use core::cell::RefCell;
use core::sync::atomic::AtomicU32;
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use crate::call::deferred::{Cancels, Owed};
use crate::call::pending::{Bells, Rings};
use crate::call::{
    Answer, Answered, Begun, Call, CallPath, CallerInfo, Calls, EStack, Frames, Incoming, Layout,
    PathKind, Ran, Returned, Serve, Wait, execute, extensions, refuse, write_later,
};
use crate::error::{CallError, Executed, Kind, Phase};
use crate::growing::Growing;
use crate::serving::procedure;
use crate::sync::{Condvar, Mutex};
use crate::value::{Space, Window, bytes_of, bytes_of_blocks};

/// The path of calls that run on the caller's thread.
pub(crate) struct InProcess {
    serve: Arc<dyn Serve>,
    caller: Arc<CallerInfo>,
    source: Arc<Source>,
}

/// Keeps the deferred calls of an in-process path: one slot for each frame.
struct Source {
    frames: Arc<Frames>,
    slots: Growing<Slot>,
}

/// The deferred call of a frame.
#[derive(Default)]
struct Slot {
    deferred: Mutex<Deferred>,
    /// Notified when the reply has arrived.
    answered: Condvar,
}

#[derive(Default)]
struct Deferred {
    /// The number of the last call of the frame.
    call: u64,
    /// Whether the caller has given up this call.
    given_up: bool,
    cancels: Option<Arc<dyn Cancels>>,
    answered: Option<Late>,
}

/// A reply that arrives in a slot.
enum Late {
    Answered(Answered),
    /// The reply of a procedure that has run on a thread of its own.
    Memory(Ran, Vec<u128>),
}

impl Late {
    /// Writes the reply to the frame of the call.
    fn write(self, call: &Call<'_, '_, '_>) -> Ran {
        let reply = call.frame.reply_to();
        match self {
            Self::Answered(answered) => write_later(&answered, reply, &mut Vec::new()),
            Self::Memory(ran, memory) => {
                let bytes = bytes_of(&memory);
                let bytes = &bytes[..bytes.len().min(reply.window().len())];
                reply.copy_from(Window::from(bytes));
                ran
            }
        }
    }
}

/// The duty to answer a deferred call.
struct OwedReply {
    source: Arc<Source>,
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
            export: String::new(),
            process: std::process::id(),
            user: rustix::process::geteuid().as_raw(),
            group: rustix::process::getegid().as_raw(),
            from: None,
            hardware: None,
            ending: None,
        };
        let slots = Growing::new(frames.layout().count, |_| Slot::default());
        let source = Arc::new(Source { frames: Arc::clone(frames), slots });
        Self { serve, caller: Arc::new(caller), source }
    }

    /// Runs the call on this thread. The answer is [`Answer::Deferred`] if the procedure has not ended.
    fn run(&self, call: &mut Call<'_, '_, '_>) -> Result<Ran, CallError> {
        let Some(layout) = call.put(usize::MAX) else { return Err(too_large(call)) };
        call.head.flush();
        let due = call.limit.deadline();
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
        let number = self.source.begin(call.frame.index());
        if !self.serve.is_async() && self.serve.interface().has_streams(call.procedure) {
            return self.run_on_thread(call, &layout, number);
        }
        let calls = Arc::clone(&self.source) as Arc<dyn Calls>;
        let ran = procedure::within(&self.caller, due, calls, number, || {
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
        let (procedure, due) = (call.procedure, call.limit.deadline());
        let reply_bytes = call.frame.reply_to().window().len();
        let (serve, caller) = (Arc::clone(&self.serve), Arc::clone(&self.caller));
        let source = Arc::clone(&self.source);
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
            let calls = Arc::clone(&source) as Arc<dyn Calls>;
            let mut estack = EStack::default();
            let ran = procedure::within(&caller, due, calls, number, || {
                execute(&*serve, &incoming, reply, &mut estack)
            });
            let ran = ran.unwrap_or_else(|refusal| refuse(reply, &refusal));
            source.answer(number, Late::Memory(ran, memory));
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

    /// Returns the result of a call that has ended.
    fn take(call: &mut Call<'_, '_, '_>, ran: Ran) -> Result<Returned, CallError> {
        let Ran { answer, head_at, head_bytes, .. } = ran;
        if is_late(call.limit.deadline()) {
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

    /// Waits for the reply to a deferred call. Returns `None` if the deadline passes.
    fn await_reply(&self, index: u32, due: Option<Instant>) -> Option<Late> {
        let slot = &self.source.slots[index as usize];
        let mut deferred = slot.deferred.lock();
        loop {
            if let Some(answered) = deferred.answered.take() {
                return Some(answered);
            }
            let left =
                due.map_or(Duration::MAX, |due| due.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return None;
            }
            // Without a deadline, the caller waits again after an hour.
            let limit = left.min(Duration::from_secs(3600));
            deferred = slot.answered.wait_timeout(deferred, limit).0;
        }
    }
}

impl CallPath for InProcess {
    fn transport(&self, call: &mut Call<'_, '_, '_>) -> Result<Returned, CallError> {
        let ran = self.run(call)?;
        if ran.answer != Answer::Deferred {
            return Self::take(call, ran);
        }
        match self.await_reply(call.frame.index(), call.limit.deadline()) {
            Some(late) => {
                let ran = late.write(call);
                Self::take(call, ran)
            }
            None => Err(self.give_up(call)),
        }
    }

    fn begin(&self, call: &mut Call<'_, '_, '_>) -> Result<Begun, CallError> {
        match self.run(call)? {
            Ran { answer: Answer::Deferred, .. } => Ok(Begun::Pending),
            ran => Self::take(call, ran).map(Begun::Ended),
        }
    }

    fn poll(&self, call: &mut Call<'_, '_, '_>) -> Option<Result<Returned, CallError>> {
        let slot = &self.source.slots[call.frame.index() as usize];
        let answered = slot.deferred.lock().answered.take()?;
        if call.limit.deadline().is_some() {
            let rings: Arc<dyn Rings> = Arc::clone(&self.source) as _;
            Bells::of_process().forget(&rings, call.frame.index());
        }
        let ran = answered.write(call);
        Some(Self::take(call, ran))
    }

    fn arm(&self, frame: u32, deadline: Option<Instant>) {
        let has_answer = self.source.slots[frame as usize].deferred.lock().answered.is_some();
        let rings: Arc<dyn Rings> = Arc::clone(&self.source) as _;
        let watched =
            deadline.is_none() || Bells::of_process().watch(&rings, frame, deadline, false).is_ok();
        if has_answer || !watched {
            self.source.frames.bell(frame).ring();
        }
    }

    fn give_up(&self, call: &mut Call<'_, '_, '_>) -> CallError {
        let index = call.frame.index();
        let rings: Arc<dyn Rings> = Arc::clone(&self.source) as _;
        Bells::of_process().forget(&rings, index);
        let mut deferred = self.source.slots[index as usize].deferred.lock();
        deferred.given_up = true;
        let cancels = deferred.cancels.take();
        drop(deferred);
        if let Some(cancels) = cancels {
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
        self.source.frames.layout().bytes
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

impl Source {
    /// Begins a call of a frame. Returns the number of the call.
    fn begin(&self, index: u32) -> u64 {
        let mut deferred = self.slots[index as usize].deferred.lock();
        let count = (deferred.call as u32).wrapping_add(1);
        let call = u64::from(index) << 32 | u64::from(count);
        *deferred = Deferred { call, ..Deferred::default() };
        call
    }

    /// Stores the reply of a call, and wakes its caller.
    fn answer(&self, call: u64, late: Late) {
        let Some(slot) = self.slot(call) else { return };
        let mut deferred = slot.deferred.lock();
        // The frame may have another call already: its caller has given up this one.
        if deferred.call != call || deferred.given_up {
            return;
        }
        deferred.cancels = None;
        deferred.answered = Some(late);
        drop(deferred);
        slot.answered.notify_one();
        self.frames.bell((call >> 32) as u32).ring();
    }

    fn slot(&self, call: u64) -> Option<&Slot> {
        self.slots.get((call >> 32) as usize)
    }
}

impl Calls for Source {
    fn is_given_up(&self, call: u64) -> bool {
        self.slot(call).is_none_or(|slot| {
            let deferred = slot.deferred.lock();
            deferred.call != call || deferred.given_up
        })
    }

    fn defer(self: Arc<Self>, call: u64, cancels: Arc<dyn Cancels>) -> Option<Box<dyn Owed>> {
        self.slot(call)?.deferred.lock().cancels = Some(cancels);
        Some(Box::new(OwedReply { source: self, call }))
    }
}

impl Owed for OwedReply {
    fn leave_uncounted(&mut self, _: bool) {}

    fn answer(self: Box<Self>, answered: Answered) {
        self.source.answer(self.call, Late::Answered(answered));
    }
}

impl Rings for Source {
    fn word(&self, _: u32) -> Option<(&AtomicU32, u32)> {
        None
    }
    fn examine(&self, _: u32) {}
    fn ring(&self, call: u32) {
        self.frames.bell(call).ring();
    }
}

fn is_late(due: Option<Instant>) -> bool {
    due.is_some_and(|due| due <= Instant::now())
}

#[cold]
fn late() -> CallError {
    let text = "the deadline passed while the procedure ran";
    CallError::new(Kind::TimedOut, Executed::Maybe, text)
}

#[cold]
fn too_large(call: &Call<'_, '_, '_>) -> CallError {
    CallError::too_large(call.layout().total, call.frame.call_space().len(), None)
}
