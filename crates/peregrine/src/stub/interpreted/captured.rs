//! [`CapturedArgument`]: the arguments of a captured call, as far as they were captured.

use super::program::{Form, Program, Step};
use crate::call::streams::Opening;
use crate::foreign::{Courier, Xdr};
use crate::interface::{Direction, System};
use crate::value::{Dynamic, Invalid, Reader, Value, Window, align_up};

/// An argument of a [captured call](crate::Captured).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum CapturedArgument {
    /// The value of an in parameter or an in-out parameter. The elements of a buffer are
    /// [`Plain`](Dynamic::Plain).
    Value(Dynamic),
    /// A buffer for results.
    Out {
        /// The size in bytes of the caller's buffer.
        bytes: usize,
    },
    /// A lent buffer. Its content is not captured.
    Lent {
        /// The size in bytes of the buffer.
        bytes: usize,
    },
    /// A stream from the procedure to its caller. Its items are not captured.
    Sink,
    /// A stream from the caller to the procedure. Its items are not captured.
    Source,
    /// An object of the caller.
    Callback,
    /// The argument was not captured completely, because the arguments of the call are too large.
    Cut {
        /// The size in bytes of the argument, if it is known.
        bytes: Option<usize>,
    },
}

/// The captured parts of a message.
pub(crate) struct CapturedMessage<'a> {
    /// The system in whose representation the arguments are. `None`: Peregrine.
    pub(crate) system: Option<System>,
    pub(crate) head: &'a [u8],
    /// Whether the head is longer than what was captured of it.
    pub(crate) is_head_cut: bool,
    pub(crate) blocks: &'a [u8],
    /// The size in bytes of all copied blocks. Some of them may not have been captured.
    pub(crate) block_bytes: usize,
}

/// The copied blocks of a message, which are read one after the other.
struct Blocks<'a> {
    captured: &'a [u8],
    whole: usize,
    at: usize,
}

impl<'a> Blocks<'a> {
    /// Takes a block of `bytes` bytes. Returns `None` if it was not captured completely.
    fn take(&mut self, bytes: usize) -> Result<Option<&'a [u8]>, Invalid> {
        let end = self.at.checked_add(bytes).filter(|end| *end <= self.whole);
        let (at, end) = (self.at, end.ok_or(Invalid::Short)?);
        self.at = align_up(end).min(self.whole);
        Ok(self.captured.get(at..end))
    }
}

impl Program {
    /// Returns the arguments of a captured call, in the order of the parameters.
    ///
    /// # Errors
    /// If the arguments are not valid. The server refuses such a call.
    pub(crate) fn captured(
        &self,
        procedure: u32,
        message: &CapturedMessage<'_>,
    ) -> Result<Vec<CapturedArgument>, String> {
        let routine = self.routines.get(procedure as usize).ok_or("there is no such procedure")?;
        let values = match message.system {
            None => return self.captured_natively(&routine.parameters, message),
            Some(_) if message.is_head_cut => {
                return Ok(vec![CapturedArgument::Cut { bytes: None }; routine.parameters.len()]);
            }
            Some(System::Onc) => self.arguments_in::<Xdr>(routine, message.head),
            Some(System::Courier) => self.arguments_in::<Courier>(routine, message.head),
        };
        Ok(values?.into_iter().map(CapturedArgument::Value).collect())
    }

    fn captured_natively(
        &self,
        steps: &[Step],
        message: &CapturedMessage<'_>,
    ) -> Result<Vec<CapturedArgument>, String> {
        let mut head: Reader<'_> = Reader::new(Window::of(message.head));
        let (captured, whole) = (message.blocks, message.block_bytes);
        let mut blocks = Blocks { captured, whole, at: 0 };
        let mut arguments = Vec::with_capacity(steps.len());
        for step in steps {
            match self.captured_argument(step, &mut head, &mut blocks) {
                Ok(argument) => arguments.push(argument),
                // The head was not captured completely, so nothing is known of the further parameters.
                Err(Invalid::Short) if message.is_head_cut => break,
                Err(invalid) => return Err(format!("{}: {invalid}", step.name)),
            }
        }
        arguments.resize(steps.len(), CapturedArgument::Cut { bytes: None });
        Ok(arguments)
    }

    fn captured_argument(
        &self,
        step: &Step,
        head: &mut Reader<'_>,
        blocks: &mut Blocks<'_>,
    ) -> Result<CapturedArgument, Invalid> {
        let mut value = Dynamic::Unit;
        match step.form {
            Form::One(op) => self.take(op, head, &mut value)?,
            Form::Stream(_) | Form::Callback => {
                Opening::decode(head)?;
                return Ok(match (step.form, step.direction) {
                    (Form::Callback, _) => CapturedArgument::Callback,
                    (_, Direction::Sink) => CapturedArgument::Sink,
                    _ => CapturedArgument::Source,
                });
            }
            Form::Text => {
                let bytes = head.count()?;
                let Some(block) = blocks.take(bytes)? else {
                    return Ok(CapturedArgument::Cut { bytes: Some(bytes) });
                };
                value = Dynamic::from(core::str::from_utf8(block).map_err(|_| Invalid::Utf8)?);
            }
            Form::Head(one) => {
                let count = head.count()?;
                if count > step.max_len {
                    return Err(Invalid::TooLong);
                }
                self.take_all(one, count, head, &mut value, 0)?;
            }
            Form::Block(solid, op) => {
                let size = solid.bytes as usize;
                let bytes = head.count()?.checked_mul(size).ok_or(Invalid::TooLong)?;
                match step.direction {
                    Direction::Lent => return Ok(CapturedArgument::Lent { bytes }),
                    Direction::Out => return Ok(CapturedArgument::Out { bytes }),
                    _ => {}
                }
                let Some(block) = blocks.take(bytes)? else {
                    return Ok(CapturedArgument::Cut { bytes: Some(bytes) });
                };
                self.check_all(op, size, block).map_err(|_| Invalid::Bits)?;
                value = Dynamic::Plain(block.to_vec());
            }
        }
        Ok(CapturedArgument::Value(value))
    }
}
