//! The blocks of a call that are not in the caller's memory: values that are packed before the call, and
//! separate memory into which blocks are received.

use super::client::{Argument, another, unfit, window_of};
use super::program::{Form, OpId, Program, Routine, Solid, Step, Unfit};
use crate::error::CallError;
use crate::interface::Direction;
use crate::value::{Dynamic, Out, Representation};

/// The blocks of a call that are not in the caller's memory. With each block: the index of its argument.
pub(super) struct Copies {
    /// Values that are not one block in memory are packed before the call.
    pub(super) packed: Vec<(usize, Vec<u8>)>,
    /// Values that must be checked or converted when they return are received into separate memory first.
    pub(super) apart: Vec<(usize, Vec<u8>)>,
}

impl Copies {
    /// Packs the values that are not one block in memory, and provides the separate memory.
    ///
    /// # Errors
    /// If the arguments do not match the interface.
    #[inline]
    pub(super) fn of<R: Representation>(
        program: &Program,
        routine: &Routine,
        arguments: &mut [Argument<'_>],
    ) -> Result<Self, CallError> {
        let (mut packed, mut apart) = (Vec::new(), Vec::new());
        for (i, (step, argument)) in routine.parameters.iter().zip(arguments).enumerate() {
            let Form::Block(solid, op) = step.form else { continue };
            if let Some(block) = pack::<R>(program, step, solid, op, argument)? {
                packed.push((i, block));
            }
            if (solid.checked || R::SWAPPED && solid.unit == 0)
                && let Some(bytes) = comes_apart(argument, solid, step.max_len)
            {
                apart.push((i, vec![0; bytes]));
            }
        }
        Ok(Self { packed, apart })
    }
}

/// Returns the buffers into which blocks are received that do not go to the caller's memory at once.
#[inline]
pub(super) fn outs_of(apart: &mut [(usize, Vec<u8>)]) -> Vec<(usize, Out<'_, u8>)> {
    apart.iter_mut().map(|(i, bytes)| (*i, Out::from(&mut bytes[..]))).collect()
}

/// Returns the number of bytes that each buffer has received.
#[inline]
pub(super) fn filled(outs: Vec<(usize, Out<'_, u8>)>) -> Vec<usize> {
    outs.iter().map(|(_, out)| out.filled()).collect()
}

/// Shortens each buffer to the bytes that it has received.
#[inline]
pub(super) fn truncated(
    mut apart: Vec<(usize, Vec<u8>)>,
    filled: Vec<usize>,
) -> Vec<(usize, Vec<u8>)> {
    for ((_, bytes), filled) in apart.iter_mut().zip(filled) {
        bytes.truncate(filled);
    }
    apart
}

/// Returns the size in bytes of the separate memory into which a block is received. `None` if the block is
/// received into the caller's memory.
#[cold]
fn comes_apart(argument: &Argument<'_>, solid: Solid, max_len: usize) -> Option<usize> {
    match argument {
        // If the call fails, the caller's value must stay unchanged.
        Argument::InOut(Dynamic::Plain(bytes)) => Some(bytes.len()),
        // Other processes can write to this memory, so the values can neither be converted nor checked there.
        Argument::Out(out) if out.is_shared() => {
            let size = solid.bytes as usize;
            Some((out.capacity() / size).min(max_len) * size)
        }
        _ => None,
    }
}

/// Makes a new block if the values of an argument must be packed or converted before they are sent. Returns
/// `None` if they are sent as they are. Checks the values, unless they were given as bytes.
fn pack<R: Representation>(
    program: &Program,
    step: &Step,
    solid: Solid,
    op: OpId,
    argument: &mut Argument<'_>,
) -> Result<Option<Vec<u8>>, CallError> {
    let size = solid.bytes as usize;
    let mixed = R::SWAPPED && solid.unit == 0;
    let value = match (&*argument, step.direction) {
        (Argument::Out(_), Direction::Out) => return Ok(None),
        (Argument::In(value), Direction::In | Direction::Lent) => value,
        (Argument::InOut(value), Direction::InOut) => &**value,
        (Argument::Bytes(lent), Direction::In | Direction::Lent) => {
            let window = window_of(lent)?;
            if !window.len().is_multiple_of(size) {
                return Err(another(step, &format!("elements of {size} bytes")));
            }
            if !mixed {
                return Ok(None);
            }
            let mut block = vec![0; window.len()];
            let _ = window.read(0, &mut block);
            program.turn(op, &mut block);
            return Ok(Some(block));
        }
        (_, Direction::Out) => return Err(another(step, "an out buffer")),
        (_, Direction::InOut) => return Err(another(step, "an argument that travels both ways")),
        _ => return Err(another(step, "a value, or bytes")),
    };
    let located = |error: Unfit| unfit(&error.of(&step.name));
    program.count(op, value).map_err(located)?;
    let mut block = match value {
        Dynamic::Plain(bytes) => {
            program.check_all(op, size, bytes).map_err(located)?;
            if !mixed {
                return Ok(None);
            }
            bytes.clone()
        }
        Dynamic::List(values) => {
            let mut block = Vec::with_capacity(values.len().saturating_mul(size).min(1 << 20));
            for (i, value) in values.iter().enumerate() {
                program.pack(op, value, &mut block).map_err(|error| located(error.at(i)))?;
            }
            block
        }
        _ => return Ok(None),
    };
    // The list becomes plain bytes, because the result arrives in this form. If the call returns, the
    // returned values replace these bytes.
    if let Argument::InOut(value @ Dynamic::List(_)) = argument {
        **value = Dynamic::Plain(block.clone());
    }
    if mixed {
        program.turn(op, &mut block);
    }
    Ok(Some(block))
}
