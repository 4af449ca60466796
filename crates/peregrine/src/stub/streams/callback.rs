//! The caller's end of a callback: the thread that waits for the procedure runs the procedure's calls.

use core::task::Context;
use std::sync::Arc;
use std::task::Wake as _;

use super::drive::Drive;
use super::kept::KeptCallback;
use super::{ClientConduit, TURN};
use crate::binding::{Bound, Home, Next, ObjectSide};
use crate::call::Serve;
use crate::call::streams::{Carries, Flow, Opening};
use crate::error::CallError;
use crate::observe::Layered;
use crate::stub::callback::{Callback, Revocation};

/// The caller's end of a callback.
pub struct CallbackDrive<'a> {
    object: Object<'a>,
    revocation: Option<Arc<Revocation>>,
    open: Option<OpenCallback>,
    opening: Opening,
    has_moved: bool,
    ended: Option<Option<CallError>>,
}

/// What serves the calls.
enum Object<'a> {
    /// An object that the procedure can call only during the call.
    Lent(Box<dyn Serve + 'a>),
    /// An object that the procedure may keep.
    Given(Arc<dyn Serve>),
}

/// A callback that is open.
pub(super) struct OpenCallback {
    side: ObjectSide,
    pub(super) conduit: Arc<ClientConduit>,
    pub(super) bound: Arc<Bound>,
}

/// Sends the records of a caller's streams.
pub(super) struct OfClient {
    pub(super) conduit: Arc<ClientConduit>,
    /// The conduit works only while its binding exists.
    pub(super) _bound: Arc<Bound>,
}

impl Carries for OfClient {
    fn list(&self, flow: &Arc<Flow>, _: bool) {
        self.conduit.list_later(flow);
        self.look();
    }

    // This thread may hold the lock of another conduit, so it must not wait for the lock of this one.
    fn look(&self) {
        Arc::clone(&self.conduit).wake();
    }
}

/// What has happened to a callback.
pub(super) enum Driven {
    /// The callback goes on. The value says whether calls have run.
    Goes(bool),
    /// The callback has ended. If it has failed, the value is the error.
    Ended(Option<CallError>),
}

impl Drop for OpenCallback {
    fn drop(&mut self) {
        // A forked child must not use the locks: those that threads of its parent held during the fork are
        // never released in the child.
        if !self.bound.mark.wiped() {
            self.side.close("the caller has ended the callback");
        }
    }
}

impl OpenCallback {
    /// Runs the calls that have arrived. The waker of `context` is woken when more calls arrive.
    pub(super) fn run_calls(
        &self,
        serve: &dyn Serve,
        revocation: Option<&Revocation>,
        context: &mut Context<'_>,
    ) -> Driven {
        let layered;
        let serve = match self.bound.is_layered() {
            false => serve,
            true => {
                let observed = self.bound.layers.observe(serve.interface(), "");
                layered = Layered::over(serve, observed);
                &layered
            }
        };
        for ran in 0..TURN {
            if revocation.is_some_and(|revocation| revocation.is_revoked(context.waker())) {
                self.side.close("the caller has revoked the callback");
                return Driven::Ended(None);
            }
            // A method may wait for items of its own streams. The bells are armed first, so that messages
            // move meanwhile.
            let before = || self.conduit.sleep(&self.bound);
            match self.side.run_next(serve, context, before) {
                Next::Ran => {}
                Next::Nothing => return Driven::Goes(ran > 0),
                Next::Ended => return Driven::Ended(None),
                Next::Failed(error) => return Driven::Ended(Some(error)),
            }
        }
        // Now the other streams and the call get their turn. Then this future is polled again.
        context.waker().wake_by_ref();
        Driven::Goes(true)
    }

    /// Ends the callback.
    pub(super) fn close(&self, reason: &str) {
        self.side.close(reason);
    }
}

impl<'a> CallbackDrive<'a> {
    /// Makes the caller's end of a callback that ends with its call.
    pub fn new<L: ?Sized>(callback: Callback<'a, L>) -> Self {
        let (serve, revocation) = callback.into_parts();
        Self::of(Object::Lent(serve), revocation)
    }

    const fn of(object: Object<'a>, revocation: Option<Arc<Revocation>>) -> Self {
        Self { object, revocation, open: None, opening: [0; 8], has_moved: false, ended: None }
    }
}

impl CallbackDrive<'static> {
    /// Makes the caller's end of a callback that the procedure may keep after the call.
    pub fn kept<L: ?Sized>(callback: Callback<'static, L>) -> Self {
        let (serve, revocation) = callback.into_parts();
        Self::of(Object::Given(serve.into()), revocation)
    }

    /// Makes the caller's end of a callback from a server. The procedure may keep the callback after the
    /// call.
    pub(in crate::stub) fn of_server(server: Arc<dyn Serve>) -> Self {
        Self::of(Object::Given(server), None)
    }
}

impl Drive for CallbackDrive<'_> {
    fn open(&mut self, conduit: &Arc<ClientConduit>, bound: &Arc<Bound>) {
        let ends = conduit.add_callback(bound);
        self.opening = ends.opening(conduit.token);
        let side = ObjectSide::new(ends, bound.path.kind());
        let (conduit, bound) = (Arc::clone(conduit), Arc::clone(bound));
        self.open = Some(OpenCallback { side, conduit, bound });
        self.ended = None;
    }

    fn opening(&self) -> Opening {
        self.opening
    }

    fn drive(&mut self, context: &mut Context<'_>) -> bool {
        let (Some(open), None) = (&self.open, &self.ended) else { return false };
        let serve = match &self.object {
            Object::Lent(serve) => &**serve,
            Object::Given(serve) => &**serve,
        };
        match open.run_calls(serve, self.revocation.as_deref(), context) {
            Driven::Goes(moved) => {
                self.has_moved |= moved;
                moved
            }
            Driven::Ended(error) => {
                self.ended = Some(error);
                true
            }
        }
    }

    fn is_done(&self) -> bool {
        self.ended.is_some() || matches!(self.object, Object::Given(_))
    }

    fn has_begun(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.side.has_begun())
    }

    fn ask(&self) {
        if let (Some(open), None) = (&self.open, &self.ended) {
            open.side.ask();
        }
    }

    fn has_moved(&self) -> bool {
        self.has_moved
    }

    fn failure(&self) -> Option<&CallError> {
        self.ended.as_ref()?.as_ref()
    }

    fn outlive(&mut self, home: &Home) {
        let (Object::Given(serve), None) = (&self.object, &self.ended) else { return };
        let Some(open) = self.open.take() else { return };
        let (serve, revocation) = (Arc::clone(serve), self.revocation.take());
        home.keeps(&open.conduit);
        let conduit = Arc::clone(&open.conduit);
        conduit.keep(KeptCallback { open, serve, revocation });
    }
}

impl core::fmt::Debug for CallbackDrive<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("CallbackDrive").finish_non_exhaustive()
    }
}
