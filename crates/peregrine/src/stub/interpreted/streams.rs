//! Streams of interpreted stubs, whose items are [`Dynamic`] values. Calls that are made as a future: calls
//! with streams or callbacks, and calls that the caller may give up.

use core::future::poll_fn;
use core::ops::{Deref, DerefMut};
use core::pin::pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::Poll;
use std::borrow::Cow;
use std::sync::Arc;

use super::callbacks::{nested, served};
use super::client::{
    ADVICE, Argument, FEW, GenericClient, Sender, another, conclude, send, wrong_count,
};
use super::copies::{Copies, filled, outs_of, truncated};
use super::marshal::Stopped;
use super::program::{Form, OpId, Program, Routine, Step, Unfit};
use crate::binding::Binding;
use crate::call::streams::{Coding, Opening, Sink, Source, too_large};
use crate::error::{CallError, Executed, Kind};
use crate::interface::{Direction, System};
use crate::stub::awaited::{AsyncCall, AsyncFrame, Scratch};
use crate::stub::compiled::{Arguments, failed};
use crate::stub::few::Few;
use crate::stub::oneway::{after_oneway_async, in_place_async};
use crate::stub::streams::{CallbackDrive, SinkDrive, SourceDrive, Streams, wait_for};
use crate::value::{
    Block, Dynamic, Invalid, Native, OutBlock, Overflow, Reader, Representation, Space, Swapped,
    Writer,
};

/// Encodes and decodes the items of a stream. The type of the items is known only from a description.
pub(super) struct Items {
    program: Arc<Program>,
    op: OpId,
    /// The name of the parameter, for error messages.
    name: Box<str>,
    /// The number of items that were written.
    count: usize,
    /// Why the last item was refused.
    unfit: Option<Unfit>,
}

impl Items {
    /// Returns the coding of the items of a parameter.
    pub(super) fn new(program: &Arc<Program>, step: &Step, op: OpId) -> Self {
        Self { program: Arc::clone(program), op, name: step.name.clone(), count: 0, unfit: None }
    }
}

impl<R: Representation> Coding<Dynamic, R> for Items {
    fn encode(&mut self, item: &Dynamic, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
        match self.program.put(self.op, item, head) {
            Ok(()) => {
                self.count += 1;
                Ok(())
            }
            Err(Stopped::Overflow(overflow)) => Err(overflow),
            Err(Stopped::Unfit(unfit)) => {
                self.unfit = Some(unfit);
                // More space for the record does not help, so the error must not be `Full`.
                Err(Overflow::TooLong)
            }
        }
    }

    #[cold]
    fn refusal(&mut self, overflow: Overflow) -> CallError {
        let Some(unfit) = self.unfit.take() else { return too_large(overflow) };
        let text = unfit.at(self.count).of(&self.name).to_string();
        CallError::new(Kind::BadArguments, Executed::Maybe, text).with_advice(ADVICE)
    }

    fn decode(&mut self, count: usize, head: &mut Reader<'_, R>) -> Result<Vec<Dynamic>, Invalid> {
        let item = |_| {
            let mut item = Dynamic::Unit;
            self.program.take(self.op, head, &mut item).map(|()| item)
        };
        (0..count).map(item).collect()
    }
}

/// The caller's end of a stream or a callback.
enum End<'a> {
    Sink(SinkDrive<'a, Dynamic>),
    Source(SourceDrive<'a, Dynamic>),
    Callback(CallbackDrive<'static>),
}

impl<'a> End<'a> {
    /// Takes the stream out of an argument.
    fn take(
        program: &Arc<Program>,
        step: &Step,
        op: OpId,
        argument: &mut Argument<'a>,
    ) -> Result<Self, CallError> {
        let items = Items::new(program, step, op);
        match (argument, step.direction) {
            (Argument::Sink(sink), Direction::Sink) => {
                let sink = core::mem::replace(sink, Sink::new(drop));
                Ok(Self::Sink(SinkDrive::coded(sink, items)))
            }
            (Argument::Source(source), Direction::Source) => {
                let source = core::mem::replace(source, Source::new([]));
                Ok(Self::Source(SourceDrive::coded(source, items)))
            }
            (_, Direction::Sink) => Err(another(step, "a sink")),
            _ => Err(another(step, "a source")),
        }
    }
}

/// Begins a call. `'m` is the lifetime of the memory to which the arguments are written.
struct Beginning<'c, 'm, 'a, 's, R: Representation> {
    frame: &'c mut AsyncFrame<'a>,
    streams: Option<&'c mut Streams<'s>>,
    arguments: Arguments<'m, R>,
}

impl<'m, R: Representation> Deref for Beginning<'_, 'm, '_, '_, R> {
    type Target = Arguments<'m, R>;
    fn deref(&self) -> &Arguments<'m, R> {
        &self.arguments
    }
}

impl<R: Representation> DerefMut for Beginning<'_, '_, '_, '_, R> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.arguments
    }
}

impl<'m, 'a: 'm, R: Representation> Sender<'m, R> for Beginning<'_, 'm, 'a, '_, R> {
    type Sent = ();

    fn opening(&mut self) -> Opening {
        self.streams.as_mut().map_or_else(Opening::default, |streams| streams.next_opening())
    }

    fn send(
        &mut self,
        ins: &[Block<'_>],
        lent: &[Block<'_>],
        outs: &mut [OutBlock<'_>],
    ) -> Result<(), CallError> {
        let none = Arguments { head: Writer::represented(Space::of_mut(&mut [])) };
        let arguments = core::mem::replace(&mut self.arguments, none);
        self.frame.begin(arguments, ins, lent, outs)
    }
}

/// Notes in `begun` whether an attempt that failed may have executed the call. An earlier attempt may have
/// executed it, too.
fn note_attempt(begun: &AtomicBool, error: &CallError) {
    begun.store(error.executed() == Executed::Maybe, Ordering::Relaxed);
}

impl GenericClient {
    /// Calls like [`call_into`](Self::call_into), but gives up the call when the future `given_up` ends. The
    /// call runs on this thread. A one-way call is not given up. If the server is of another RPC system, the
    /// server does not learn that the call was given up.
    ///
    /// ```
    /// use core::future::pending;
    ///
    /// use peregrine::{Dynamic, GenericClient};
    /// # use peregrine::{Server, interface};
    /// # #[interface]
    /// # trait Sevens { fn seven(&self) -> peregrine::Result<u8>; }
    /// # struct Object;
    /// # impl Sevens for Object { fn seven(&self) -> peregrine::Result<u8> { Ok(7) } }
    /// # let name = format!("doc-given-up-{}", std::process::id());
    /// # let running = Server::new().export(&name, SevensServer::new(Object))?.spawn()?;
    ///
    /// let client = GenericClient::bind(&name)?;
    /// let mut seven = Dynamic::Unit;
    /// assert!(client.call_unless(0, &mut [], &mut seven, pending())?);
    /// assert_eq!(seven, Dynamic::U8(7));
    /// # drop(running);
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    ///
    /// # Errors
    /// Like [`call`](Self::call). If the call was given up, the kind is [`Kind::TimedOut`].
    pub fn call_unless(
        &self,
        procedure: u32,
        arguments: &mut [Argument<'_>],
        result: &mut Dynamic,
        given_up: impl Future<Output = ()>,
    ) -> Result<bool, CallError> {
        let known = self.described().procedures.get(procedure as usize);
        if known.is_none_or(|known| known.oneway) {
            return self.call_into(procedure, arguments, result);
        }
        let begun = AtomicBool::new(false);
        let mut call = pin!(self.call_in_turn(procedure, arguments, result, &begun));
        let mut given_up = pin!(given_up);
        wait_for(poll_fn(|context| {
            if let Poll::Ready(made) = call.as_mut().poll(context) {
                return Poll::Ready(made);
            }
            given_up.as_mut().poll(context).map(|()| {
                let is_begun = begun.load(Ordering::Relaxed);
                let executed = if is_begun { Executed::Maybe } else { Executed::No };
                let error = CallError::new(Kind::TimedOut, executed, "the caller gave up");
                Err(failed(self.binding(), procedure, error))
            })
        }))
    }

    /// Calls like [`call_into`](Self::call_into), but as a future: no thread waits for the result. Any
    /// executor can run the future. Dropping the future gives up the call.
    ///
    /// ```
    /// # use core::task::{Context, Poll, Waker};
    /// use peregrine::{Dynamic, GenericClient};
    /// # use peregrine::{Server, interface};
    /// # #[interface]
    /// # trait Eights { fn eight(&self) -> peregrine::Result<u8>; }
    /// # struct Object;
    /// # impl Eights for Object { fn eight(&self) -> peregrine::Result<u8> { Ok(8) } }
    /// # fn block_on<T>(future: impl Future<Output = T>) -> T {
    /// #     let mut future = Box::pin(future);
    /// #     loop {
    /// #         match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
    /// #             Poll::Ready(output) => return output,
    /// #             Poll::Pending => std::thread::yield_now(),
    /// #         }
    /// #     }
    /// # }
    /// # let name = format!("doc-call-async-{}", std::process::id());
    /// # let running = Server::new().export(&name, EightsServer::new(Object))?.spawn()?;
    ///
    /// let client = GenericClient::bind(&name)?;
    /// let mut eight = Dynamic::Unit;
    /// let is_ok = block_on(client.call_async(0, &mut [], &mut eight))?;
    /// assert!(is_ok);
    /// assert_eq!(eight, Dynamic::U8(8));
    /// # drop(running);
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    ///
    /// # Errors
    /// Like [`call`](Self::call).
    pub async fn call_async(
        &self,
        procedure: u32,
        arguments: &mut [Argument<'_>],
        result: &mut Dynamic,
    ) -> Result<bool, CallError> {
        self.call_in_turn(procedure, arguments, result, &AtomicBool::new(false)).await
    }

    /// Makes a call after the one-way calls that were made before. Sets `begun` when the call may have been
    /// sent.
    async fn call_in_turn(
        &self,
        number: u32,
        arguments: &mut [Argument<'_>],
        result: &mut Dynamic,
        begun: &AtomicBool,
    ) -> Result<bool, CallError> {
        let Some(routine) = self.routine(number) else {
            return Err(self.no_such(&format!("number {number}")));
        };
        if !self.has_oneway() {
            let binding = self.binding();
            return self.call_awaited(binding, number, routine, arguments, result, begun).await;
        }
        if !self.described().procedures[number as usize].oneway {
            let ordered = after_oneway_async(self.binding(), number).await?;
            let binding = ordered.binding();
            return self.call_awaited(binding, number, routine, arguments, result, begun).await;
        }
        let place = in_place_async(self.binding(), number).await?;
        let binding = place.binding();
        let made = self.call_awaited(binding, number, routine, arguments, result, begun).await;
        self.end_oneway(place, number, made, result)
    }

    /// Makes a call over this binding. Sets `begun` when the call may have been sent.
    pub(super) async fn call_awaited(
        &self,
        binding: &Binding,
        number: u32,
        routine: &Routine,
        arguments: &mut [Argument<'_>],
        result: &mut Dynamic,
        begun: &AtomicBool,
    ) -> Result<bool, CallError> {
        let failed = |error| failed(binding, number, error);
        if let Some(system) = binding.now().system() {
            let values = self.foreign_values(system, number, arguments).map_err(failed)?;
            let target = (system, binding, number);
            return self.call_foreign_awaited(target, &values, result, begun).await;
        }
        if arguments.len() != routine.parameters.len() {
            return Err(failed(wrong_count(routine, arguments.len())));
        }
        let mut ends = Vec::new();
        for (place, (step, argument)) in routine.parameters.iter().zip(&mut *arguments).enumerate()
        {
            let end = match step.form {
                Form::Stream(op) => End::take(self.shared_program(), step, op, argument),
                Form::Callback => {
                    let nested = nested(self.described(), number, place, step);
                    served(step, &nested, argument).map(End::Callback)
                }
                _ => continue,
            };
            ends.push(end.map_err(failed)?);
        }
        let mut streams = ends.iter_mut().fold(Streams::new(), |streams, end| match end {
            End::Sink(drive) => streams.with_sink(drive),
            End::Source(drive) => streams.with_source(drive),
            End::Callback(drive) => streams.with_callback(drive),
        });
        let mut call = AsyncCall::new(binding, number);
        loop {
            let attempt = async {
                let mut frame = match routine.has_streams {
                    true => call.frame_with(&mut streams).await?,
                    false => call.frame_alone().await?,
                };
                let streams = routine.has_streams.then_some(&mut streams);
                let ends = (&mut frame, streams, begun);
                match call.is_native() {
                    true => self.attempt::<Native>(ends, routine, arguments, result).await,
                    false => self.attempt::<Swapped>(ends, routine, arguments, result).await,
                }
            };
            let made = attempt.await;
            match made {
                Ok(is_ok) => return Ok(is_ok),
                Err(error) => {
                    note_attempt(begun, &error);
                    call.again_unless(streams.have_moved(), error).await?;
                }
            }
        }
    }

    /// Makes a call of another RPC system. Sets `begun` when the call may have been sent.
    async fn call_foreign_awaited(
        &self,
        (system, binding, number): (System, &Binding, u32),
        values: &[Cow<'_, Dynamic>],
        result: &mut Dynamic,
        begun: &AtomicBool,
    ) -> Result<bool, CallError> {
        let mut call = AsyncCall::new(binding, number);
        loop {
            let attempt = async {
                let mut frame = call.frame_alone().await?;
                self.begin_foreign(system, number, &mut frame, values, begun)?;
                frame.ended(&mut []).await?;
                self.take_foreign(system, number, frame.returned()?, result)
            };
            let made = attempt.await;
            match made {
                Ok(is_ok) => return Ok(is_ok),
                Err(error) => {
                    note_attempt(begun, &error);
                    call.again(error).await?;
                }
            }
        }
    }

    /// Begins a call of another RPC system.
    fn begin_foreign(
        &self,
        system: System,
        number: u32,
        frame: &mut AsyncFrame<'_>,
        values: &[Cow<'_, Dynamic>],
        begun: &AtomicBool,
    ) -> Result<(), CallError> {
        let mut scratch = Scratch::new();
        let mut arguments = frame.arguments_in(&mut scratch);
        self.put_foreign(system, number, &mut arguments, values)?;
        begun.store(true, Ordering::Relaxed);
        frame.begin(arguments, &[], &[], &mut [])
    }

    async fn attempt<R: Representation>(
        &self,
        (frame, mut streams, begun): (&mut AsyncFrame<'_>, Option<&mut Streams<'_>>, &AtomicBool),
        routine: &Routine,
        arguments: &mut [Argument<'_>],
        result: &mut Dynamic,
    ) -> Result<bool, CallError> {
        let program = self.program();
        let Copies { packed, mut apart } = Copies::of::<R>(program, routine, arguments)?;
        let mut apart_outs = outs_of(&mut apart);
        let mut outs = Few::<_, FEW>::new(routine.outs, OutBlock::none);
        {
            let mut scratch = Scratch::new();
            let head = frame.arguments_in::<R>(&mut scratch);
            let streams = streams.as_deref_mut();
            let mut stub = Beginning { frame: &mut *frame, streams, arguments: head };
            let to = (&mut stub, &mut outs);
            begun.store(true, Ordering::Relaxed);
            send::<R, _, FEW, FEW>(program, routine, to, arguments, &packed, &mut apart_outs)?;
        }
        match streams {
            Some(streams) => frame.ended_with(outs.all(), streams).await?,
            None => frame.ended(outs.all()).await?,
        }
        drop(outs);
        let filled = filled(apart_outs);
        let apart = truncated(apart, filled);
        conclude::<R>(program, routine, frame.returned()?, arguments, apart, result)
    }
}
