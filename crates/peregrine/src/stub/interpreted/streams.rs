//! Streams of interpreted stubs, whose items are [`Dynamic`] values. Calls that are made as a future: calls
//! with streams or callbacks, and calls that the caller may give up.

use core::future::poll_fn;
use core::ops::{Deref, DerefMut};
use core::pin::{Pin, pin};
use core::task::Poll;
use std::borrow::Cow;
use std::sync::Arc;

use super::callbacks::{nested, served};
use super::client::{
    ADVICE, Argument, FEW, GenericClient, Transporter, another, interpret_with, wrong_count,
};
use super::marshal::Stopped;
use super::program::{Form, OpId, Program, Routine, Step, Unfit};
use crate::binding::Binding;
use crate::call::streams::{Coding, Opening, Sink, Source, too_large};
use crate::error::{CallError, Executed, Kind};
use crate::interface::{Direction, System};
use crate::stub::awaited::{AsyncCall, AsyncFrame, Scratch};
use crate::stub::compiled::{Arguments, Returned, failed};
use crate::stub::oneway::after_oneway;
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

/// The future that ends when the caller gives up its call. `None` if the caller waits in any case.
pub(super) struct GivenUp<'f>(Option<Pin<&'f mut dyn Future<Output = ()>>>);

impl GivenUp<'_> {
    /// For a caller that never gives up its call.
    pub(super) const NEVER: Self = Self(None);

    /// Runs `future` on this thread until it ends, or until the caller gives up. If the caller gives up, the
    /// error says `executed`.
    fn wait<T>(
        &mut self,
        executed: Executed,
        future: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let Some(given_up) = &mut self.0 else { return wait_for(future) };
        let mut future = pin!(future);
        wait_for(poll_fn(|context| {
            if let Poll::Ready(ended) = future.as_mut().poll(context) {
                return Poll::Ready(ended);
            }
            let given_up = given_up.as_mut().poll(context);
            given_up.map(|()| Err(CallError::new(Kind::TimedOut, executed, "the caller gave up")))
        }))
    }
}

/// A call that is made as a future.
struct FutureTransporter<'c, 'a, 's, 'f, R: Representation> {
    frame: &'c mut AsyncFrame<'a>,
    /// The streams of the call. `None` if the procedure has neither streams nor callbacks.
    streams: Option<&'c mut Streams<'s>>,
    given_up: &'c mut GivenUp<'f>,
    arguments: Arguments<'c, R>,
}

impl<'c, R: Representation> Deref for FutureTransporter<'c, '_, '_, '_, R> {
    type Target = Arguments<'c, R>;
    fn deref(&self) -> &Arguments<'c, R> {
        &self.arguments
    }
}

impl<R: Representation> DerefMut for FutureTransporter<'_, '_, '_, '_, R> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.arguments
    }
}

impl<'c, R: Representation> Transporter<'c, R> for FutureTransporter<'c, '_, '_, '_, R> {
    fn opening(&mut self) -> Opening {
        self.streams.as_mut().map_or_else(Opening::default, |streams| streams.next_opening())
    }

    fn transport(
        &mut self,
        ins: &[Block<'_>],
        lent: &[Block<'_>],
        outs: &mut [OutBlock<'_>],
    ) -> Result<Returned<'_, R>, CallError> {
        let none = Arguments { head: Writer::represented(Space::of_mut(&mut [])) };
        let arguments = core::mem::replace(&mut self.arguments, none);
        self.frame.begin(arguments, ins, lent, outs)?;
        match &mut self.streams {
            Some(streams) => {
                self.given_up.wait(Executed::Maybe, self.frame.ended_with(outs, streams))?;
            }
            None => self.given_up.wait(Executed::Maybe, self.frame.ended(outs))?,
        }
        self.frame.returned()
    }
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
        let (Some(known), Some(routine)) = (known, self.routine(procedure)) else {
            return self.call_into(procedure, arguments, result);
        };
        if known.oneway {
            return self.call_into(procedure, arguments, result);
        }
        let given_up = GivenUp(Some(pin!(given_up)));
        if !self.has_oneway() {
            let binding = self.binding();
            return self.call_as_future(binding, procedure, routine, arguments, result, given_up);
        }
        let ordered = after_oneway(self.binding(), procedure)?;
        let binding = ordered.binding();
        self.call_as_future(binding, procedure, routine, arguments, result, given_up)
    }

    /// Makes a call as a future, which runs on this thread.
    #[cold]
    #[inline(never)]
    pub(super) fn call_as_future(
        &self,
        binding: &Binding,
        number: u32,
        routine: &Routine,
        arguments: &mut [Argument<'_>],
        result: &mut Dynamic,
        mut given_up: GivenUp<'_>,
    ) -> Result<bool, CallError> {
        let failed = |error| failed(binding, number, error);
        if let Some(system) = binding.now().system() {
            let values = self.foreign_values(system, number, arguments).map_err(failed)?;
            return self.call_foreign_as_future(
                (system, binding, number),
                &values,
                result,
                given_up,
            );
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
            let frame = match routine.has_streams {
                true => given_up.wait(Executed::No, call.frame_with(&mut streams)),
                false => given_up.wait(Executed::No, call.frame_alone()),
            };
            let made = frame.and_then(|mut frame| {
                let streams = routine.has_streams.then_some(&mut streams);
                let ends = (&mut frame, streams, &mut given_up);
                match call.is_native() {
                    true => self.attempt::<Native>(ends, routine, arguments, result),
                    false => self.attempt::<Swapped>(ends, routine, arguments, result),
                }
            });
            match made {
                Ok(is_ok) => return Ok(is_ok),
                Err(error) => wait_for(call.again_unless(streams.have_moved(), error))?,
            }
        }
    }

    /// Makes a call to a server of another RPC system as a future, which runs on this thread.
    fn call_foreign_as_future(
        &self,
        (system, binding, number): (System, &Binding, u32),
        values: &[Cow<'_, Dynamic>],
        result: &mut Dynamic,
        mut given_up: GivenUp<'_>,
    ) -> Result<bool, CallError> {
        let mut call = AsyncCall::new(binding, number);
        loop {
            let frame = given_up.wait(Executed::No, call.frame_alone());
            let made = frame.and_then(|mut frame| {
                let (mut scratch, given_up) = (Scratch::new(), &mut given_up);
                let arguments = frame.arguments_in(&mut scratch);
                let (frame, streams) = (&mut frame, None);
                let mut stub = FutureTransporter { frame, streams, given_up, arguments };
                self.interpret_foreign(system, number, &mut stub, values, result)
            });
            match made {
                Ok(is_ok) => return Ok(is_ok),
                Err(error) => wait_for(call.again(error))?,
            }
        }
    }

    fn attempt<R: Representation>(
        &self,
        (frame, streams, given_up): (
            &mut AsyncFrame<'_>,
            Option<&mut Streams<'_>>,
            &mut GivenUp<'_>,
        ),
        routine: &Routine,
        arguments: &mut [Argument<'_>],
        result: &mut Dynamic,
    ) -> Result<bool, CallError> {
        let mut scratch = Scratch::new();
        let head = frame.arguments_in(&mut scratch);
        let mut transporter =
            FutureTransporter::<'_, '_, '_, '_, R> { frame, streams, given_up, arguments: head };
        interpret_with::<R, _, FEW, FEW>(
            self.program(),
            routine,
            &mut transporter,
            arguments,
            result,
        )
    }
}
