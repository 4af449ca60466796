//! The caller's ends of the streams of a call, which move items while the call is pending.

use core::task::{Context, Poll};
use std::sync::Arc;

use super::{CallbackDrive, ClientConduit, HEADER_BYTES, TURN};
use crate::binding::{Bound, Home};
use crate::call::streams::{
    Coding, Compiled, Flow, InBothOrders, Opening, Produce, Receive, Received, Room, Sink, Source,
    Stopped, Taken, opening,
};
use crate::error::{CallError, Kind};
use crate::limits;
use crate::value::{Native, Representation, Swapped, Value, Writer};

/// The caller's end of a stream.
pub(super) trait Drive: Send {
    /// Opens a stream for an attempt to make the call.
    fn open(&mut self, conduit: &Arc<ClientConduit>, bound: &Arc<Bound>);

    /// Returns the words that describe the stream in the arguments of the call.
    fn opening(&self) -> Opening;

    /// Moves items. Returns whether any were moved. If no item can be moved now, the waker of `context` is
    /// woken later.
    fn drive(&mut self, context: &mut Context<'_>) -> bool;

    /// Returns whether all items were moved.
    fn is_done(&self) -> bool;

    /// Returns whether the server has sent anything.
    fn has_begun(&self) -> bool;

    /// Asks the server whether the procedure has opened the stream, if the server has sent neither items nor
    /// the notice that no more items come.
    fn ask(&self);

    /// Returns whether an item was given to the caller's code, or taken from it.
    fn has_moved(&self) -> bool;

    /// Returns the error because of which not all items were moved.
    fn failure(&self) -> Option<&CallError>;

    /// Lets a callback work after its call, if the procedure may have kept the callback. `home` is the
    /// binding of the call.
    fn outlive(&mut self, home: &Home) {
        let _ = home;
    }
}

/// A stream that is open.
struct OpenStream {
    flow: Arc<Flow>,
    conduit: Arc<ClientConduit>,
    bound: Arc<Bound>,
}

impl OpenStream {
    fn tell(&self, tells: bool) {
        if tells {
            self.conduit.list(&self.bound, &self.flow);
        }
    }
}

/// The caller's end of a sink.
pub struct SinkDrive<'a, T> {
    /// What receives the items. `None` after the last item.
    receive: Option<Box<dyn Receive<T> + 'a>>,
    open: Option<OpenStream>,
    taken: Taken<T>,
    coding: Box<dyn InBothOrders<T>>,
    moved: bool,
    failure: Option<CallError>,
}

/// The caller's end of a source.
pub struct SourceDrive<'a, T> {
    /// What makes the items. `None` after the last item.
    produce: Option<Box<dyn Produce<T> + 'a>>,
    open: Option<OpenStream>,
    coding: Box<dyn InBothOrders<T>>,
    moved: bool,
    failure: Option<CallError>,
}

/// Returns the words that describe a stream in the arguments of a call.
fn words(open: Option<&OpenStream>, credit: usize) -> Opening {
    open.map_or([0; 8], |open| {
        let room = open.conduit.room - HEADER_BYTES;
        opening(open.conduit.token, open.flow.number, credit as u32, room as u32)
    })
}

impl<'a, T: Send + 'a> SinkDrive<'a, T> {
    /// Makes the caller's end of a stream.
    pub fn new(sink: Sink<'a, T>) -> Self
    where
        T: Value,
    {
        Self::coded(sink, Compiled)
    }

    /// Makes the caller's end of a stream. `coding` decodes its items.
    pub(in crate::stub) fn coded(
        sink: Sink<'a, T>,
        coding: impl InBothOrders<T> + 'static,
    ) -> Self {
        let (receive, coding) = (Some(sink.into_receive()), Box::new(coding));
        Self { receive, open: None, taken: Taken::default(), coding, moved: false, failure: None }
    }
}

impl<T: Send> SinkDrive<'_, T> {
    fn move_items<R: Representation>(&mut self, context: &mut Context<'_>) -> bool
    where
        dyn InBothOrders<T>: Coding<T, R>,
    {
        let (Some(open), Some(receive)) = (&self.open, &mut self.receive) else { return false };
        for moved in 0..TURN {
            if self.taken.is_empty() {
                match open.flow.receive(Some(context.waker())) {
                    Received::Items(chunk) => {
                        if let Err(invalid) = self.taken.fill(&chunk, &mut *self.coding) {
                            let text = format!("an item of a stream is invalid: {invalid}");
                            self.failure = Some(CallError::bad_result(text));
                            open.tell(open.flow.stop("an item is invalid"));
                            self.receive = None;
                            return true;
                        }
                        open.flow.recycle(chunk);
                        continue;
                    }
                    Received::Nothing => match receive.stopped(Some(context.waker())) {
                        None => return moved > 0,
                        Some(Stopped(reason)) => {
                            open.tell(open.flow.stop(&reason));
                            self.receive = None;
                        }
                    },
                    Received::End => self.receive = None,
                    Received::Broken(error) => {
                        self.failure = Some(error);
                        self.receive = None;
                    }
                }
                return true;
            }
            let ready = match receive.poll_ready(context) {
                Poll::Ready(ready) => ready,
                Poll::Pending => return moved > 0,
            };
            let Some((item, tells)) = self.taken.take(&open.flow) else { continue };
            if tells {
                open.tell(true);
                open.conduit.send_before_waiting(&open.bound);
            }
            self.moved = true;
            if let Err(Stopped(reason)) = ready.and_then(|()| receive.receive(item)) {
                open.tell(open.flow.stop(&reason));
                self.receive = None;
                return true;
            }
        }
        // Now the other streams and the call get their turn. Then this future is polled again.
        context.waker().wake_by_ref();
        true
    }
}

impl<T: Send> Drive for SinkDrive<'_, T> {
    fn open(&mut self, conduit: &Arc<ClientConduit>, bound: &Arc<Bound>) {
        let flow = |number, room| {
            let window = limits::STREAM_WINDOW as u64;
            Flow::new(number, room, 0, window, window)
        };
        let flow = conduit.add(bound, flow);
        let (conduit, bound) = (Arc::clone(conduit), Arc::clone(bound));
        self.open = Some(OpenStream { flow, conduit, bound });
    }

    fn opening(&self) -> Opening {
        words(self.open.as_ref(), limits::STREAM_WINDOW)
    }

    fn drive(&mut self, context: &mut Context<'_>) -> bool {
        match self.open.as_ref().is_some_and(|open| open.bound.is_swapped_server()) {
            true => self.move_items::<Swapped>(context),
            false => self.move_items::<Native>(context),
        }
    }

    fn is_done(&self) -> bool {
        self.receive.is_none()
    }

    fn ask(&self) {
        if let (Some(open), Some(_)) = (&self.open, &self.receive) {
            open.tell(open.flow.ask());
        }
    }

    fn has_begun(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.flow.has_begun())
    }

    fn has_moved(&self) -> bool {
        self.moved
    }

    fn failure(&self) -> Option<&CallError> {
        self.failure.as_ref()
    }
}

impl<T> Drop for SinkDrive<'_, T> {
    fn drop(&mut self) {
        if let (Some(open), Some(_)) = (&self.open, &self.receive)
            && !open.bound.mark.wiped()
        {
            open.tell(open.flow.stop("the caller has given up the call"));
            open.conduit.look(&open.bound);
        }
    }
}

impl<'a, T: Send + 'a> SourceDrive<'a, T> {
    /// Makes the caller's end of a stream.
    pub fn new(source: Source<'a, T>) -> Self
    where
        T: Value,
    {
        Self::coded(source, Compiled)
    }

    /// Makes the caller's end of a stream. `coding` encodes its items.
    pub(in crate::stub) fn coded(
        source: Source<'a, T>,
        coding: impl InBothOrders<T> + 'static,
    ) -> Self {
        let (produce, coding) = (Some(source.into_produce()), Box::new(coding));
        Self { produce, open: None, coding, moved: false, failure: None }
    }
}

impl<T: Send> SourceDrive<'_, T> {
    fn move_items<R: Representation>(&mut self, context: &mut Context<'_>) -> bool
    where
        dyn InBothOrders<T>: Coding<T, R>,
    {
        let (Some(open), Some(produce)) = (&self.open, &mut self.produce) else { return false };
        for moved in 0..TURN {
            match open.flow.room(Some(context.waker())) {
                Room::Free => {}
                Room::Full => return moved > 0,
                Room::Ended(error) => {
                    // `Stopped` is no failure: the procedure needs no more items, and its result says why.
                    self.failure = Some(error).filter(|error| error.kind() != Kind::Stopped);
                    self.produce = None;
                    return true;
                }
            }
            let Poll::Ready(item) = produce.poll_next(context) else { return moved > 0 };
            self.moved = true;
            let item = match item {
                Ok(Some(item)) => item,
                Ok(None) => {
                    open.tell(open.flow.finish());
                    self.produce = None;
                    return true;
                }
                Err(stopped) => {
                    self.failure = Some(stopped.into_error());
                    open.tell(open.flow.give_up());
                    self.produce = None;
                    return true;
                }
            };
            let coding = &mut self.coding;
            let encode = &mut |head: &mut Writer<'_, R>| coding.encode(&item, head);
            match open.flow.add(encode) {
                Ok(false) => {}
                Ok(true) => {
                    open.tell(true);
                    open.conduit.send_before_waiting(&open.bound);
                }
                Err(overflow) => {
                    self.failure = Some(self.coding.refusal(overflow));
                    open.tell(open.flow.give_up());
                    self.produce = None;
                    return true;
                }
            }
        }
        // Now the other streams and the call get their turn. Then this future is polled again.
        context.waker().wake_by_ref();
        true
    }
}

impl<T: Send> Drive for SourceDrive<'_, T> {
    fn open(&mut self, conduit: &Arc<ClientConduit>, bound: &Arc<Bound>) {
        let flow = conduit.add(bound, |number, room| Flow::new(number, room, 0, 0, 0));
        let (conduit, bound) = (Arc::clone(conduit), Arc::clone(bound));
        self.open = Some(OpenStream { flow, conduit, bound });
    }

    fn opening(&self) -> Opening {
        words(self.open.as_ref(), 0)
    }

    fn drive(&mut self, context: &mut Context<'_>) -> bool {
        match self.open.as_ref().is_some_and(|open| open.bound.is_swapped_server()) {
            true => self.move_items::<Swapped>(context),
            false => self.move_items::<Native>(context),
        }
    }

    fn is_done(&self) -> bool {
        // This is always true, because the procedure may end before the caller has made all items.
        true
    }

    fn ask(&self) {}

    fn has_begun(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.flow.has_begun())
    }

    fn has_moved(&self) -> bool {
        self.moved
    }

    fn failure(&self) -> Option<&CallError> {
        self.failure.as_ref()
    }
}

impl<T> Drop for SourceDrive<'_, T> {
    fn drop(&mut self) {
        if let (Some(open), Some(_)) = (&self.open, &self.produce)
            && !open.bound.mark.wiped()
        {
            open.tell(open.flow.give_up());
            open.conduit.look(&open.bound);
        }
    }
}

/// The caller's ends of all streams of a call.
pub struct Streams<'s> {
    streams: Vec<&'s mut dyn Drive>,
    /// The number of streams that the arguments contain already.
    marshalled: usize,
}

impl<'s> Streams<'s> {
    /// Returns an empty list of streams.
    #[expect(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self { streams: Vec::new(), marshalled: 0 }
    }

    /// Adds the caller's end of a sink.
    #[must_use]
    pub fn with_sink<T: Send>(mut self, sink: &'s mut SinkDrive<'_, T>) -> Self {
        self.streams.push(sink);
        self
    }

    /// Adds the caller's end of a source.
    #[must_use]
    pub fn with_source<T: Send>(mut self, source: &'s mut SourceDrive<'_, T>) -> Self {
        self.streams.push(source);
        self
    }

    /// Adds the caller's end of a callback.
    #[must_use]
    pub fn with_callback(mut self, callback: &'s mut CallbackDrive<'_>) -> Self {
        self.streams.push(callback);
        self
    }

    /// Opens the streams for an attempt to make the call.
    pub(in crate::stub) fn open(&mut self, conduit: &Arc<ClientConduit>, bound: &Arc<Bound>) {
        self.marshalled = 0;
        self.streams.iter_mut().for_each(|one| one.open(conduit, bound));
    }

    /// Returns the words that describe the next stream in the arguments of the call.
    pub fn next_opening(&mut self) -> Opening {
        let opening = self.streams.get(self.marshalled).map_or([0; 8], |one| one.opening());
        self.marshalled += 1;
        opening
    }

    /// Moves items. Returns whether any were moved.
    pub(in crate::stub) fn drive(&mut self, context: &mut Context<'_>) -> bool {
        let mut moved = false;
        for one in &mut self.streams {
            moved |= one.drive(context);
        }
        moved
    }

    /// Returns whether all items were received.
    pub(in crate::stub) fn are_done(&self) -> bool {
        self.streams.iter().all(|one| one.is_done())
    }

    /// Asks the server which streams the procedure has not opened. Called after the call has ended.
    pub(in crate::stub) fn ask(&self) {
        self.streams.iter().for_each(|one| one.ask());
    }

    /// Returns whether the procedure has begun to use one of the streams.
    pub(in crate::stub) fn have_begun(&self) -> bool {
        self.streams.iter().any(|one| one.has_begun())
    }

    /// Returns whether the caller's code has seen an item. If so, the call must not be repeated.
    pub fn have_moved(&self) -> bool {
        self.streams.iter().any(|one| one.has_moved())
    }

    /// Lets callbacks work after the call if the procedure may have kept them.
    pub(in crate::stub) fn outlive(&mut self, home: &Home) {
        self.streams.iter_mut().for_each(|one| one.outlive(home));
    }

    /// Returns why one of the streams has failed.
    pub(in crate::stub) fn failure(&self) -> Option<&CallError> {
        self.streams.iter().find_map(|one| one.failure())
    }
}

impl core::fmt::Debug for Streams<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Streams").finish_non_exhaustive()
    }
}

impl<T> core::fmt::Debug for SinkDrive<'_, T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SinkDrive").finish_non_exhaustive()
    }
}

impl<T> core::fmt::Debug for SourceDrive<'_, T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SourceDrive").finish_non_exhaustive()
    }
}
