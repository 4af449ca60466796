//! Callbacks that procedures have kept after the calls to which the callbacks belong. While a binding has
//! such callbacks, one thread runs the calls that arrive for them.

use core::task::{Context, Poll, Waker};
use std::sync::Arc;

use super::callback::{Driven, OpenCallback};
use super::{ClientConduit, OpenConduit};
use crate::binding::Bound;
use crate::call::Serve;
use crate::call::pending::park;
use crate::stub::callback::Revocation;
use crate::sync::Mutex;

/// A callback that the procedure has kept.
pub(super) struct KeptCallback {
    pub(super) open: OpenCallback,
    pub(super) serve: Arc<dyn Serve>,
    pub(super) revocation: Option<Arc<Revocation>>,
}

/// The callbacks that the procedures of a binding's server have kept.
#[derive(Default)]
pub(super) struct Kept(Mutex<State>);

#[derive(Default)]
struct State {
    /// The callbacks that the thread has not taken over yet.
    new: Vec<KeptCallback>,
    /// Whether the thread exists.
    runs: bool,
    /// Whether all clients of the binding were dropped.
    dropped: bool,
    /// Wakes the thread.
    waker: Option<Waker>,
}

impl ClientConduit {
    /// Lets a callback work after its call, until one side drops it or the binding ends.
    pub(super) fn keep(self: &Arc<Self>, callback: KeptCallback) {
        let bound = Arc::clone(&callback.open.bound);
        let mut state = self.kept.0.lock();
        state.new.push(callback);
        if core::mem::replace(&mut state.runs, true) {
            let waker = state.waker.take();
            drop(state);
            waker.into_iter().for_each(Waker::wake);
            return;
        }
        drop(state);
        // The thread uses the conduit from now on, so that the conduit stays open after the call.
        self.with(&bound, |_, state| state.users += 1);
        let conduit = Arc::clone(self);
        let run = {
            let bound = Arc::clone(&bound);
            move || conduit.run_kept(&bound)
        };
        let thread = std::thread::Builder::new().name("peregrine-callbacks".into()).spawn(run);
        if thread.is_err() {
            // Without a thread, nothing can run the calls of these callbacks. So the callbacks end.
            drop(OpenConduit { conduit: Arc::clone(self), bound: &bound, _reserved: None });
            let mut state = self.kept.0.lock();
            state.runs = false;
            let callbacks = core::mem::take(&mut state.new);
            drop(state);
            for callback in callbacks {
                callback.open.close("the caller cannot start the thread that runs callbacks");
            }
        }
    }

    /// Ends all kept callbacks, because all clients of the binding were dropped.
    pub(crate) fn drop_kept(&self) {
        // A forked child must not use the lock: if a thread of its parent held it during the fork, it is
        // never released in the child.
        if self.bound.upgrade().is_none_or(|bound| bound.mark.wiped()) {
            return;
        }
        let mut state = self.kept.0.lock();
        state.dropped = true;
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Runs the calls of kept callbacks, until there are no such callbacks any more.
    fn run_kept(self: Arc<Self>, bound: &Arc<Bound>) {
        let open = OpenConduit { conduit: Arc::clone(&self), bound, _reserved: None };
        let mut callbacks: Vec<KeptCallback> = Vec::new();
        park(None, |context| {
            loop {
                if self.has_no_more(&mut callbacks, context) {
                    return Poll::Ready(());
                }
                open.look();
                if run_all(&mut callbacks, context) {
                    continue;
                }
                open.sleep();
                if !run_all(&mut callbacks, context) {
                    return Poll::Pending;
                }
            }
        });
        drop(open);
        // The last message tells the server which callbacks have ended. So this thread holds the binding
        // until the server has answered that message.
        self.wait_until_closed(bound);
    }

    /// Takes over new callbacks. Returns whether the thread has nothing more to do.
    fn has_no_more(&self, callbacks: &mut Vec<KeptCallback>, context: &Context<'_>) -> bool {
        let mut state = self.kept.0.lock();
        callbacks.append(&mut state.new);
        state.waker = Some(context.waker().clone());
        let dropped = state.dropped;
        if callbacks.is_empty() {
            state.runs = false;
            state.waker = None;
            return true;
        }
        drop(state);
        if dropped {
            for callback in callbacks.drain(..) {
                callback.open.close("the client was dropped");
            }
            return self.has_no_more(callbacks, context);
        }
        false
    }
}

/// Runs calls that have arrived, and forgets callbacks that have ended. Returns whether there is more to do.
fn run_all(callbacks: &mut Vec<KeptCallback>, context: &mut Context<'_>) -> bool {
    let mut moved = false;
    callbacks.retain(|KeptCallback { open, serve, revocation }| {
        match open.run_calls(&**serve, revocation.as_deref(), context) {
            Driven::Goes(one) => {
                moved |= one;
                true
            }
            Driven::Ended(_) => {
                moved = true;
                false
            }
        }
    });
    moved
}
