//! The procedure's ends of streams. The caller of the procedure may be in another process.

use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::conduit::Conduit;
use super::flow::{Chunk, Flow, Received, Room};
use super::{Coding, Compiled, Opening, Produce, Receive, Sink, Source, Stopped, token_of};
use crate::call::caller::{Calls, due, source_of_thread};
use crate::call::chain::WaitingInside;
use crate::call::request::Refusal;
use crate::error::{CallError, Executed, Kind};
use crate::limits;
use crate::value::{Invalid, Native, Reader, Representation, Value, Writer};

/// The interval at which a procedure that waits for its caller checks whether the caller has given up the
/// call.
pub(super) const CHECK_EVERY: Duration = Duration::from_millis(100);

/// The smallest limit in bytes that a client may set for records. A record is a part of a message, and
/// concerns one stream.
const ROOM_MIN: u32 = 1 << 10;

/// Returns the largest size in bytes of a record that a client takes.
///
/// # Errors
/// If the size is less than [`ROOM_MIN`].
pub(super) fn room_of(opening: &Opening) -> Result<usize, Refusal> {
    let [.., room, _] = *opening;
    if room < ROOM_MIN {
        return Err(Refusal::new(Kind::BadArguments, "the records of the stream are too small"));
    }
    Ok((room as usize).min(limits::MESSAGE_BYTES_MAX))
}

/// The procedure's end of a stream, and the call to which the stream belongs.
struct Ends {
    flow: Arc<Flow>,
    conduit: Arc<Conduit>,
    /// Where the call came from (such as a session or a connection), and the call's number there.
    call: Option<(Arc<dyn Calls>, u64)>,
    due: Option<Instant>,
    /// Permits another thread for the messages of the conduit while one thread runs the procedure. `None` if
    /// the procedure is async.
    _waits: Option<WaitingInside>,
}

/// The procedure's end of a sink.
pub(super) struct RemoteSink<T> {
    ends: Ends,
    coding: Box<dyn Coding<T, Native>>,
}

/// The procedure's end of a source.
pub(super) struct RemoteSource<T> {
    ends: Ends,
    items: Taken<T>,
    coding: Box<dyn Coding<T, Native>>,
}

/// The decoded items of a record that were not taken yet, and the number and the cost of all items of the
/// record.
pub(crate) struct Taken<T> {
    items: VecDeque<T>,
    count: u64,
    cost: u64,
}

impl<T> Default for Taken<T> {
    fn default() -> Self {
        Self { items: VecDeque::new(), count: 0, cost: 0 }
    }
}

impl<T> Taken<T> {
    /// Returns whether all decoded items were taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Decodes the items of a record. The items of all earlier records have been taken.
    ///
    /// # Errors
    /// If an item is invalid.
    pub(crate) fn fill<R: Representation>(
        &mut self,
        chunk: &Chunk,
        coding: &mut (impl Coding<T, R> + ?Sized),
    ) -> Result<(), Invalid> {
        let mut reader = Reader::<'_, R>::represented(chunk.items());
        self.items = coding.decode(chunk.count() as usize, &mut reader)?.into();
        (self.count, self.cost) = (chunk.count().into(), chunk.cost());
        if reader.remaining() == 0 { Ok(()) } else { Err(Invalid::Long) }
    }

    /// Takes an item. After the last item of a record, notes in the flow that the items were consumed.
    /// Returns the item, and whether the conduit must be told that there is something to send.
    pub(crate) fn take(&mut self, flow: &Flow) -> Option<(T, bool)> {
        let item = self.items.pop_front()?;
        let tells = self.items.is_empty() && flow.consume(self.count, self.cost);
        Some((item, tells))
    }
}

impl Ends {
    /// Opens the procedure's end of a stream. This thread runs the call of the stream.
    fn open(
        opening: &Opening,
        flow: impl FnOnce(u32, u32, usize) -> Flow,
        waits: bool,
    ) -> Result<Self, Refusal> {
        let [.., number, credit, _, _] = *opening;
        let flow = Arc::new(flow(number, credit, room_of(opening)?));
        let conduit = Conduit::open(token_of(opening), &flow)?;
        let waits = waits.then(WaitingInside::begin);
        Ok(Self { flow, conduit, call: source_of_thread(), due: due(), _waits: waits })
    }

    /// Returns an error if the caller does not wait for the call any more.
    fn check(&self) -> Result<(), CallError> {
        let given_up = self.due.is_some_and(|due| due <= Instant::now())
            || self.call.as_ref().is_some_and(|(calls, call)| calls.is_given_up(*call));
        if given_up {
            let text = "the caller has given up the call";
            return Err(CallError::new(Kind::Stopped, Executed::Maybe, text));
        }
        Ok(())
    }

    /// Tells the conduit that there is something to send, if `tells` is true.
    fn tell(&self, tells: bool) {
        if tells {
            self.conduit.list(&self.flow, false);
        }
    }
}

/// Opens the sink of a procedure. `waits` is whether the procedure runs on this thread.
///
/// # Errors
/// If `opening` does not describe a stream, or the stream is open already.
pub(crate) fn open_sink<T>(
    opening: &Opening,
    waits: bool,
    coding: impl Coding<T, Native> + 'static,
) -> Result<Sink<'static, T>, Refusal> {
    let flow = |number, credit: u32, room| Flow::new(number, room, credit.into(), 0, 0);
    let ends = Ends::open(opening, flow, waits)?;
    Ok(Sink::of_procedure(RemoteSink { ends, coding: Box::new(coding) }))
}

/// Opens the source of a procedure. `waits` is whether the procedure runs on this thread.
///
/// # Errors
/// If `opening` does not describe a stream, or the stream is open already.
pub(crate) fn open_source<T>(
    opening: &Opening,
    waits: bool,
    coding: impl Coding<T, Native> + 'static,
) -> Result<Source<'static, T>, Refusal> {
    let flow = |number, _, room| Flow::new(number, room, 0, 0, limits::STREAM_WINDOW as u64);
    let ends = Ends::open(opening, flow, waits)?;
    let tells = ends.flow.begin();
    ends.tell(tells);
    let (items, coding) = (Taken::default(), Box::new(coding));
    Ok(Source::of_procedure(RemoteSource { ends, items, coding }))
}

impl<T> RemoteSink<T> {
    /// Returns whether an item may be sent.
    pub(super) fn poll_room(&self, context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        match self.ends.flow.room(Some(context.waker())) {
            Room::Free => Poll::Ready(Ok(())),
            Room::Ended(error) => Poll::Ready(Err(error)),
            Room::Full => match self.ends.check() {
                Ok(()) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            },
        }
    }

    /// Returns why an item cannot be sent. If there is no reason, `waker` is woken when this changes.
    pub(super) fn stopped(&self, waker: Option<&Waker>) -> Option<CallError> {
        self.ends.flow.ended(waker).or_else(|| self.ends.check().err())
    }

    /// Sends an item. The caller has checked that there is room for the item.
    ///
    /// # Errors
    /// If the item does not fit a record, or is not of the type of the stream.
    pub(super) fn add(&mut self, item: &T) -> Result<(), CallError> {
        let Self { ends, coding } = self;
        let encode = &mut |head: &mut Writer<'_, Native>| coding.encode(item, head);
        let added = ends.flow.add(encode);
        let tells = added.map_err(|overflow| self.coding.refusal(overflow))?;
        self.ends.tell(tells);
        Ok(())
    }
}

impl<T> Drop for RemoteSink<T> {
    fn drop(&mut self) {
        if self.ends.flow.finish() {
            self.ends.conduit.list(&self.ends.flow, true);
        }
    }
}

/// Lets a procedure pass its sink on to a call that it makes.
impl<T: Send> Receive<T> for RemoteSink<T> {
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Stopped>> {
        self.poll_room(context).map_err(|error| Stopped(error.to_string()))
    }

    fn receive(&mut self, item: T) -> Result<(), Stopped> {
        self.add(&item).map_err(|error| Stopped(error.to_string()))
    }

    fn stopped(&self, waker: Option<&Waker>) -> Option<Stopped> {
        Self::stopped(self, waker).map(|error| Stopped(error.to_string()))
    }
}

impl<T> RemoteSource<T> {
    /// Takes the next item.
    pub(super) fn poll_take(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<T>, CallError>> {
        loop {
            if let Some((item, tells)) = self.items.take(&self.ends.flow) {
                self.ends.tell(tells);
                return Poll::Ready(Ok(Some(item)));
            }
            match self.ends.flow.receive(Some(context.waker())) {
                Received::Items(chunk) => {
                    if let Err(invalid) = self.items.fill(&chunk, &mut *self.coding) {
                        let text = format!("an item of a stream is invalid: {invalid}");
                        let error = CallError::new(Kind::BadArguments, Executed::Maybe, text);
                        self.ends.flow.fail(&error);
                        return Poll::Ready(Err(error));
                    }
                    self.ends.flow.recycle(chunk);
                }
                Received::End => return Poll::Ready(Ok(None)),
                Received::Broken(error) => return Poll::Ready(Err(error)),
                Received::Nothing => {
                    return match self.ends.check() {
                        Ok(()) => Poll::Pending,
                        Err(error) => Poll::Ready(Err(error)),
                    };
                }
            }
        }
    }
}

impl<T> Drop for RemoteSource<T> {
    fn drop(&mut self) {
        if self.ends.flow.stop("the procedure has ended, or has dropped the stream") {
            self.ends.conduit.list(&self.ends.flow, true);
        }
    }
}

/// Lets a procedure pass its source on to a call that it makes.
impl<T: Send> Produce<T> for RemoteSource<T> {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<T>, Stopped>> {
        self.poll_take(context).map_err(|error| Stopped(error.to_string()))
    }
}

impl crate::call::Request<'_> {
    /// Takes a sink, for a procedure that runs on this thread.
    ///
    /// # Errors
    /// If the next argument does not describe a stream, or the stream is open already.
    pub fn sink<T: Value>(&mut self) -> Result<Sink<'static, T>, Refusal> {
        open_sink(&self.value()?, true, Compiled)
    }

    /// Takes a sink, for an async procedure.
    ///
    /// # Errors
    /// If the next argument does not describe a stream, or the stream is open already.
    pub fn sink_async<T: Value>(&mut self) -> Result<Sink<'static, T>, Refusal> {
        open_sink(&self.value()?, false, Compiled)
    }

    /// Takes a source, for a procedure that runs on this thread.
    ///
    /// # Errors
    /// If the next argument does not describe a stream, or the stream is open already.
    pub fn source<T: Value>(&mut self) -> Result<Source<'static, T>, Refusal> {
        open_source(&self.value()?, true, Compiled)
    }

    /// Takes a source, for an async procedure.
    ///
    /// # Errors
    /// If the next argument does not describe a stream, or the stream is open already.
    pub fn source_async<T: Value>(&mut self) -> Result<Source<'static, T>, Refusal> {
        open_source(&self.value()?, false, Compiled)
    }
}
