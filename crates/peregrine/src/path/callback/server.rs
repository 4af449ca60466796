//! The caller's side of a callback: it runs the calls that the procedure makes to the caller's object.

use core::task::{Context, Waker};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use super::wire::{Handles, RequestHeader, RequestKind, Side};
use crate::call::deferred::{Cancels, Owed};
use crate::call::streams::{CallbackEnds, Room, STREAMS};
use crate::call::{
    Answer, Answered, CallerInfo, Calls, PathKind, Placed, Ran, Refusal, Reply, Request, Serve,
    Served, append, execute_in_place, refuse, with_scratch, write_later,
};
use crate::error::{CallError, Executed, Kind};
use crate::interface::InterfaceRef;
use crate::serving::procedure;
use crate::sync::Mutex;
use crate::value::{Space, Window, align_up, bytes_of_blocks};

/// The caller's side of a callback. Its owner must [close](Self::close) it.
pub(crate) struct ObjectSide(Arc<Side<Requests>>);

/// Takes the calls of the procedure, and keeps them until the owner of the [`ObjectSide`] runs them.
struct Requests {
    caller: Arc<CallerInfo>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The calls that were not begun.
    calls: VecDeque<Queued>,
    /// The calls that were begun and have no result, by their numbers.
    begun: HashMap<u64, Running>,
    /// Wakes the owner of the [`ObjectSide`], which waits for a call, or for credit for the result of a
    /// call.
    waker: Option<Waker>,
    /// `Some(None)` after the procedure has dropped the callback. `Some(Some(error))` after the callback
    /// has failed.
    ended: Option<Option<CallError>>,
    /// Whether this side has ended the callback.
    closed: bool,
}

struct Queued {
    header: RequestHeader,
    message: Vec<u128>,
    extensions: Vec<u8>,
    arrived: Instant,
    /// The size in bytes of the item that contained the call.
    item_bytes: usize,
}

struct Running {
    item_bytes: usize,
    cancelled: bool,
    /// What cancels the call. `None` unless the call is deferred.
    cancels: Option<Arc<dyn Cancels>>,
}

/// The outcome of [`ObjectSide::run_next`].
pub(crate) enum Next {
    /// A call has run.
    Ran,
    /// No call is queued, or there is no credit for the result of the next call. The waker of the context
    /// is woken when this changes.
    Nothing,
    /// The procedure has dropped the callback.
    Ended,
    Failed(CallError),
}

/// The duty to send the result of a call that was deferred.
struct OwedResult {
    side: Arc<Side<Requests>>,
    number: u64,
}

/// Takes the place of the object in calls of the built-in procedure [`STREAMS`]. It refuses all other
/// calls.
struct NoObject;

impl Serve for NoObject {
    fn interface(&self) -> InterfaceRef {
        InterfaceRef::none()
    }
    fn serve(&self, request: &mut Request<'_>, _: &mut Reply<'_>) -> Served {
        Err(Refusal::no_such_procedure(request.procedure()))
    }
}

impl ObjectSide {
    /// Makes the caller's side. `path` is the path of the binding, on which the procedure was called.
    pub(crate) fn new(ends: CallbackEnds, path: PathKind) -> Self {
        let caller = Arc::new(CallerInfo {
            path,
            export: Box::default(),
            process: 0,
            user: CallerInfo::NOBODY,
            group: CallerInfo::NOBODY,
            from: None,
            hardware: None,
            claimed: None,
            identity: None,
            ending: None,
            carried: None,
            account: Default::default(),
        });
        let side = Side::new(ends, Requests { caller, state: Mutex::default() });
        side.receive();
        Self(side)
    }

    /// Returns whether the procedure has used the callback, or has dropped it.
    pub(crate) fn has_begun(&self) -> bool {
        self.0.has_begun()
    }

    /// If nothing has arrived, asks the procedure's side whether it has opened the callback.
    pub(crate) fn ask(&self) {
        self.0.ask();
    }

    /// Runs the next call with `serve`. Before a call that has streams of its own, calls `before`.
    pub(crate) fn run_next(
        &self,
        serve: &dyn Serve,
        context: &mut Context<'_>,
        before: impl FnOnce(),
    ) -> Next {
        let mut state = self.0.handler.state.lock();
        let Some(queued) = state.calls.pop_front() else {
            return match &state.ended {
                Some(None) => Next::Ended,
                Some(Some(error)) => Next::Failed(error.copy()),
                None => {
                    state.waker = Some(context.waker().clone());
                    Next::Nothing
                }
            };
        };
        drop(state);
        // Without credit for its result, the call does not run, and its item is not consumed. So a
        // procedure that takes no results gets no credit for more calls.
        if let Room::Full = self.0.room() {
            let mut state = self.0.handler.state.lock();
            state.calls.push_front(queued);
            state.waker = Some(context.waker().clone());
            return Next::Nothing;
        }
        if serve.interface().has_streams(queued.header.procedure) {
            before();
        }
        run(&self.0, serve, queued);
        Next::Ran
    }

    /// Ends the callback. Calls that were not begun are refused with the reason, and deferred calls are
    /// cancelled.
    pub(crate) fn close(&self, reason: &str) {
        let mut state = self.0.handler.state.lock();
        if core::mem::replace(&mut state.closed, true) {
            return;
        }
        let (calls, begun) = (core::mem::take(&mut state.calls), core::mem::take(&mut state.begun));
        drop(state);
        for queued in calls {
            self.refuse(queued.header.number, &Refusal::new(Kind::Stopped, reason));
        }
        for (number, running) in begun {
            if let Some(cancels) = running.cancels {
                cancels.cancel();
            }
            self.refuse(number, &Refusal::abandoned(reason));
        }
        self.0.close(reason);
    }

    fn refuse(&self, number: u64, refusal: &Refusal) {
        with_scratch(self.0.item_bytes_max(), |space| {
            let ran = refuse(space, refusal);
            send_result(&self.0, number, &ran, space, &[]);
        });
    }
}

/// Runs a call, and sends its result unless the call is deferred.
fn run(side: &Arc<Side<Requests>>, serve: &dyn Serve, queued: Queued) {
    let Queued { header, mut message, extensions, arrived, item_bytes } = queued;
    let RequestHeader { number, procedure, head, copied, total, .. } = header;
    let running = Running { item_bytes, cancelled: false, cancels: None };
    side.handler.state.lock().begun.insert(number, running);
    with_scratch(side.item_bytes_max(), |space| {
        let mut blocks = Vec::new();
        let message = &mut bytes_of_blocks(&mut message)[..total as usize];
        let (head_bytes, copied) = (head as usize, copied as usize);
        let placed = Placed { procedure, message, head_bytes, copied };
        let calls = Arc::clone(side) as Arc<dyn Calls>;
        let extensions = Window::from(&extensions[..]);
        let waited = || arrived.elapsed();
        let caller = &side.handler.caller;
        let ran = procedure::within_received(caller, calls, number, extensions, waited, || {
            execute_in_place(serve, placed, space, &mut blocks)
        });
        let ran = ran.unwrap_or_else(|refusal| refuse(space, &refusal));
        if ran.answer != Answer::Deferred {
            side.handler.end_call(side, number);
            send_result(side, number, &ran, space, &blocks);
        }
    });
}

/// Sends the result of a call.
fn send_result(side: &Side<Requests>, number: u64, ran: &Ran, space: Space<'_>, blocks: &[u32]) {
    let mut item = Vec::new();
    append(&mut item, number, ran, space.window(), blocks);
    if side.send(number, &[Window::from(&item[..])]).is_err() {
        item.clear();
        let text = "the result of a callback does not fit a message";
        let refusal =
            Refusal { kind: Kind::TooLarge, executed: Executed::Maybe, text: text.into() };
        append(&mut item, number, &refuse(space, &refusal), space.window(), &[]);
        // This item always fits: it is short.
        let _ = side.send(number, &[Window::from(&item[..])]);
    }
}

impl Requests {
    /// Notes that the call `number` has ended. Returns false if this was noted before.
    fn end_call(&self, side: &Side<Self>, number: u64) -> bool {
        let ended = self.state.lock().begun.remove(&number);
        match ended {
            Some(running) => {
                side.consume(running.item_bytes);
                true
            }
            None => false,
        }
    }

    /// Cancels the call `number`, for which the procedure does not wait any more.
    fn cancel(&self, side: &Side<Self>, number: u64) {
        let mut state = self.state.lock();
        let queued = state.calls.iter().position(|queued| queued.header.number == number);
        if let Some(queued) = queued.and_then(|at| state.calls.remove(at)) {
            drop(state);
            side.consume(queued.item_bytes);
        } else if let Some(running) = state.begun.get_mut(&number) {
            running.cancelled = true;
            let cancels = running.cancels.take();
            drop(state);
            if let Some(cancels) = cancels {
                cancels.cancel();
            }
        }
    }
}

impl Handles for Requests {
    fn take(&self, side: &Arc<Side<Self>>, items: &mut &[u8]) -> Option<()> {
        let before = items.len();
        let (header, message, extensions) = RequestHeader::take(items)?;
        let item_bytes = before - items.len();
        if header.kind == RequestKind::Cancel {
            side.consume(item_bytes);
            self.cancel(side, header.number);
            return Some(());
        }
        let mut copy = vec![0; align_up(message.len()) / size_of::<u128>()];
        bytes_of_blocks(&mut copy)[..message.len()].copy_from_slice(message);
        let queued = Queued {
            header,
            message: copy,
            extensions: extensions.to_vec(),
            arrived: Instant::now(),
            item_bytes,
        };
        let mut state = self.state.lock();
        let number = header.number;
        let is_known = state.begun.contains_key(&number)
            || state.calls.iter().any(|queued| queued.header.number == number);
        if is_known {
            return None;
        }
        if state.closed {
            return Some(());
        }
        if header.procedure == STREAMS {
            // The current thread handles these items itself, because the thread that runs the object's
            // methods may be waiting for them.
            drop(state);
            run(side, &NoObject, queued);
            return Some(());
        }
        state.calls.push_back(queued);
        Some(())
    }

    fn woken(&self) {
        let waker = self.state.lock().waker.take();
        waker.into_iter().for_each(Waker::wake);
    }

    fn end(&self, _: &Side<Self>, error: Option<CallError>) {
        let mut state = self.state.lock();
        state.ended.get_or_insert(error);
        // Calls that were not begun are not run any more: their caller has gone.
        state.calls.clear();
        let begun: Vec<_> = state.begun.values_mut().filter_map(|one| one.cancels.take()).collect();
        drop(state);
        begun.into_iter().for_each(|cancels| cancels.cancel());
    }
}

impl Calls for Side<Requests> {
    fn is_given_up(&self, call: u64) -> bool {
        // Takes the items that have arrived, because an item may cancel the call. No other thread takes
        // items while this thread runs the object's method.
        self.look();
        let state = self.handler.state.lock();
        state.ended.is_some() || state.begun.get(&call).is_none_or(|running| running.cancelled)
    }

    fn defer(self: Arc<Self>, call: u64, cancels: Arc<dyn Cancels>) -> Option<Box<dyn Owed>> {
        self.handler.state.lock().begun.get_mut(&call)?.cancels = Some(cancels);
        Some(Box::new(OwedResult { side: self, number: call }))
    }
}

impl Owed for OwedResult {
    fn leave_uncounted(&mut self, _: bool) {}

    fn answer(self: Box<Self>, answered: Answered) {
        let Self { side, number } = *self;
        if !side.handler.end_call(&side, number) {
            return;
        }
        with_scratch(side.item_bytes_max(), |space| {
            let mut blocks = Vec::new();
            let ran = write_later(&answered, space, &mut blocks);
            send_result(&side, number, &ran, space, &blocks);
        });
    }
}
