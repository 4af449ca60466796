//! Streams of interpreted stubs, whose items are [`Dynamic`] values, and calls with streams or callbacks.

use core::ops::{Deref, DerefMut};
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
use crate::interface::Direction;
use crate::stub::awaited::{AsyncCall, AsyncFrame, Scratch};
use crate::stub::compiled::{Arguments, Returned, failed};
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

/// A call with streams or callbacks.
struct StreamTransporter<'c, 'a, 's, R: Representation> {
    frame: &'c mut AsyncFrame<'a>,
    streams: &'c mut Streams<'s>,
    arguments: Arguments<'c, R>,
}

impl<'c, R: Representation> Deref for StreamTransporter<'c, '_, '_, R> {
    type Target = Arguments<'c, R>;
    fn deref(&self) -> &Arguments<'c, R> {
        &self.arguments
    }
}

impl<R: Representation> DerefMut for StreamTransporter<'_, '_, '_, R> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.arguments
    }
}

impl<'c, R: Representation> Transporter<'c, R> for StreamTransporter<'c, '_, '_, R> {
    fn opening(&mut self) -> Opening {
        self.streams.next_opening()
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
        wait_for(self.frame.ended_with(outs, self.streams))?;
        self.frame.returned()
    }
}

impl GenericClient {
    /// Makes a call with streams or callbacks.
    #[cold]
    #[inline(never)]
    pub(super) fn call_with_streams(
        &self,
        binding: &Binding,
        number: u32,
        routine: &Routine,
        arguments: &mut [Argument<'_>],
        result: &mut Dynamic,
    ) -> Result<bool, CallError> {
        let failed = |error| failed(binding, number, error);
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
            let made = wait_for(call.frame_with(&mut streams)).and_then(|mut frame| {
                let streams = &mut streams;
                match call.is_native() {
                    true => self.attempt::<Native>(&mut frame, streams, routine, arguments, result),
                    false => {
                        self.attempt::<Swapped>(&mut frame, streams, routine, arguments, result)
                    }
                }
            });
            match made {
                Ok(is_ok) => return Ok(is_ok),
                Err(error) => wait_for(call.again_unless(streams.have_moved(), error))?,
            }
        }
    }

    fn attempt<R: Representation>(
        &self,
        frame: &mut AsyncFrame<'_>,
        streams: &mut Streams<'_>,
        routine: &Routine,
        arguments: &mut [Argument<'_>],
        result: &mut Dynamic,
    ) -> Result<bool, CallError> {
        let mut scratch = Scratch::new();
        let head = frame.arguments_in(&mut scratch);
        let mut transporter =
            StreamTransporter::<'_, '_, '_, R> { frame, streams, arguments: head };
        interpret_with::<R, _, FEW, FEW>(
            self.program(),
            routine,
            &mut transporter,
            arguments,
            result,
        )
    }
}
