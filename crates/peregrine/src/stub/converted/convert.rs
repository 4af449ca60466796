//! Runs a program that converts a message: reads each value of the sender once, and writes the values of the
//! receiver.

use super::program::{Extent, Move, Op, OpId, Part, Program, Received};
use crate::limits;
use crate::value::{
    Block, ByteOrder, Invalid, Native, Overflow, Reader, Representation, Swap, Swapped, Window,
    Writer,
};

/// Why a message cannot be converted.
#[derive(Debug)]
pub(super) enum Stopped {
    /// The sender's bytes are not valid values.
    Invalid(Invalid),
    /// The receiver's values do not fit the message.
    Overflow(Overflow),
    /// The integer `value` does not fit the receiver's width of `bytes` bytes. An unsigned integer of 128
    /// bits that exceeds the range of `i128` appears as a negative `value`.
    OutOfRange { value: i128, signed: bool, bytes: u8 },
    /// The receiver does not have a variant of an enum. `variant` and `ty` are the positions of the names of
    /// the variant and of the enum in the program.
    Unknown { ty: u32, variant: u32 },
}

impl From<Invalid> for Stopped {
    #[cold]
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid)
    }
}

impl From<Overflow> for Stopped {
    #[cold]
    fn from(overflow: Overflow) -> Self {
        Self::Overflow(overflow)
    }
}

pub(super) type Done = Result<(), Stopped>;

/// Evaluates `$todo` with `$number` as the unsigned integer type of `$bytes` bytes.
macro_rules! by_size {
    ($bytes:expr, $number:ident => $todo:expr) => {
        match $bytes {
            1 => {
                type $number = u8;
                $todo
            }
            2 => {
                type $number = u16;
                $todo
            }
            4 => {
                type $number = u32;
                $todo
            }
            8 => {
                type $number = u64;
                $todo
            }
            _ => {
                type $number = u128;
                $todo
            }
        }
    };
}

/// Returns how to convert blocks of numbers of this size to the other byte order.
pub(super) const fn swap_of(unit: u8) -> Option<&'static Swap> {
    match unit {
        2 => Swap::of::<u16>(),
        4 => Swap::of::<u32>(),
        8 => Swap::of::<u64>(),
        16 => Swap::of::<u128>(),
        _ => None,
    }
}

/// Returns how to convert numbers of this size from one representation to another.
const fn between<A: Representation, B: Representation>(unit: u8) -> Option<&'static Swap> {
    if A::SWAPPED == B::SWAPPED { None } else { swap_of(unit) }
}

/// The largest number of consecutive steps of one value that read no bytes.
const IDLE_STEPS_MAX: u32 = 4096;

impl Program {
    /// Converts one part of a message.
    #[inline]
    pub(super) fn part<A: Representation, B: Representation>(
        &self,
        part: Part,
        from: &mut Reader<'_, A>,
        to: &mut Writer<'_, B>,
        depth: u32,
    ) -> Done {
        match part {
            // Most parts are numbers, or the lengths of blocks.
            Part::Convert(op) if matches!(self.op(op), Op::Numbers { bytes: 4, count: 1 }) => {
                Ok(to.plain(&from.plain::<u32>()?)?)
            }
            Part::Convert(op) => self.convert(op, from, to, depth),
            Part::Skip(op) => self.skip(op, from, depth),
            Part::Fill(default, op) => self.fill(default, op, to, depth),
        }
    }

    /// Appends a default. Defaults are little-endian in the program.
    #[cold]
    fn fill<B: Representation>(
        &self,
        default: u32,
        op: OpId,
        to: &mut Writer<'_, B>,
        depth: u32,
    ) -> Done {
        let bytes = Window::from(self.filling(default));
        if ByteOrder::Little.is_native() {
            self.convert(op, &mut Reader::<Native>::represented(bytes), to, depth)
        } else {
            self.convert(op, &mut Reader::<Swapped>::represented(bytes), to, depth)
        }
    }

    /// Converts one value. A loop converts the last part of a record or a variant, instead of a nested call.
    /// So a list of any length needs no more stack than a short one.
    pub(super) fn convert<A: Representation, B: Representation>(
        &self,
        mut op: OpId,
        from: &mut Reader<'_, A>,
        to: &mut Writer<'_, B>,
        depth: u32,
    ) -> Done {
        if depth > limits::INTERPRETED_DEPTH_MAX {
            return Err(Invalid::TooDeep.into());
        }
        let (mut left, mut idle) = (from.remaining(), 0);
        loop {
            // Each kind of step has its own function, so that nested values need little stack.
            op = match self.op(op) {
                Op::Nothing => return Ok(()),
                Op::Numbers { bytes, count: 1 } => return number(bytes, from, to),
                Op::Sequence(one) => return self.sequence(one, from, to, depth),
                Op::Array(one, count) => return self.values(one, count, from, to, depth),
                Op::Option(one) => match tag(from, to)? {
                    true => one,
                    false => return Ok(()),
                },
                Op::Result(ok, error) => match tag(from, to)? {
                    true => error,
                    false => ok,
                },
                Op::Record { first, count } => {
                    match self.all_but_last(first, count, from, to, depth)? {
                        Some(last) => last,
                        None => return Ok(()),
                    }
                }
                Op::Enum { first, count, ty } => {
                    let (first, count) = self.variant(first, count, ty, from, to, depth)?;
                    match self.all_but_last(first, count, from, to, depth)? {
                        Some(last) => last,
                        None => return Ok(()),
                    }
                }
                solid => return self.solid(solid, from, to, depth),
            };
            // Many steps in a row read nothing only if a type contains itself and no bytes precede the inner
            // value.
            if from.remaining() == left {
                idle += 1;
                if idle > IDLE_STEPS_MAX {
                    return Err(Invalid::TooDeep.into());
                }
            } else {
                (left, idle) = (from.remaining(), 0);
            }
        }
    }

    /// Converts numbers, an integer whose width changes, a plain value or a plain enum.
    #[inline]
    fn solid<A: Representation, B: Representation>(
        &self,
        op: Op,
        from: &mut Reader<'_, A>,
        to: &mut Writer<'_, B>,
        depth: u32,
    ) -> Done {
        match op {
            Op::Numbers { bytes, count } => numbers(bytes, count as usize, from, to),
            Op::Resize { from: bytes, to: width, signed } => resize(bytes, width, signed, from, to),
            Op::Plain { from: source, to: target, first, count } => {
                let window = from.window(source.align.into(), source.bytes as usize)?;
                self.plain::<A, B>(first, count, window, target, to, depth)
            }
            Op::Choice { bytes, signed, first, count, ty } => {
                let value = integer(bytes, signed, from)?;
                let choices = self.choices(first, count);
                let found = choices.binary_search_by_key(&value, |one| one.from);
                let choice = choices[found.map_err(|_| Invalid::Bits)?];
                let Some(value) = choice.to else {
                    return Err(Stopped::Unknown { ty, variant: choice.name });
                };
                by_size!(bytes, N => to.plain(&(value as N))).map_err(Stopped::from)
            }
            _ => Ok(()),
        }
    }

    fn sequence<A: Representation, B: Representation>(
        &self,
        one: OpId,
        from: &mut Reader<'_, A>,
        to: &mut Writer<'_, B>,
        depth: u32,
    ) -> Done {
        let count = from.count()?;
        to.count(count)?;
        self.values(one, count as u64, from, to, depth)
    }

    /// Converts values of the same type that follow each other.
    pub(super) fn values<A: Representation, B: Representation>(
        &self,
        one: OpId,
        count: u64,
        from: &mut Reader<'_, A>,
        to: &mut Writer<'_, B>,
        depth: u32,
    ) -> Done {
        match self.op(one) {
            Op::Nothing => return Ok(()),
            Op::Numbers { bytes, count: each } => {
                let count =
                    usize::try_from(count).ok().and_then(|all| all.checked_mul(each as usize));
                return numbers(bytes, count.ok_or(Invalid::Short)?, from, to);
            }
            Op::Plain { from: source, to: target, first, count: moves } => {
                let extents = (source, target);
                if self.plain_elements::<A, B>(extents, (first, moves), count, from, to)? {
                    return Ok(());
                }
            }
            _ => {}
        }
        let mut empty = 0;
        for _ in 0..count {
            let before = from.remaining();
            self.convert(one, from, to, depth + 1)?;
            if from.remaining() == before {
                empty += 1;
                if empty > limits::EMPTY_VALUES_MAX {
                    return Err(Invalid::TooLong.into());
                }
            }
        }
        Ok(())
    }

    /// Converts all parts, with one exception: if the last part is a `Part::Convert`, returns the op of this
    /// part instead of converting the part.
    #[inline]
    fn all_but_last<A: Representation, B: Representation>(
        &self,
        first: u32,
        count: u32,
        from: &mut Reader<'_, A>,
        to: &mut Writer<'_, B>,
        depth: u32,
    ) -> Result<Option<OpId>, Stopped> {
        let Some((last, before)) = self.parts(first, count).split_last() else {
            return Ok(None);
        };
        for part in before {
            self.part(*part, from, to, depth + 1)?;
        }
        match last {
            Part::Convert(op) => Ok(Some(*op)),
            other => self.part(*other, from, to, depth + 1).map(|()| None),
        }
    }

    /// Converts the number of a variant, and returns the range of its parts. An unknown variant is converted
    /// completely, and the range is empty.
    fn variant<A: Representation, B: Representation>(
        &self,
        first: u32,
        count: u32,
        ty: u32,
        from: &mut Reader<'_, A>,
        to: &mut Writer<'_, B>,
        depth: u32,
    ) -> Result<(u32, u32), Stopped> {
        let number = from.plain::<u32>()?;
        let variant = self.variants(first, count).get(number as usize);
        match *variant.ok_or(Invalid::Bits)? {
            Received::Variant { number, first, count } => {
                to.plain(&number)?;
                Ok((first, count))
            }
            Received::Other { number, fields, name } => {
                to.plain(&number)?;
                self.skip(fields, from, depth + 1)?;
                if let Some(name) = name {
                    let name = self.name(name);
                    to.count(name.len())?;
                    to.plain_all(name.as_bytes())?;
                }
                Ok((0, 0))
            }
            Received::Unknown { name } => Err(Stopped::Unknown { ty, variant: name }),
        }
    }

    /// Converts a plain value. Its bytes are in `window`.
    pub(super) fn plain<A: Representation, B: Representation>(
        &self,
        first: u32,
        count: u32,
        window: Window<'_>,
        target: Extent,
        to: &mut Writer<'_, B>,
        depth: u32,
    ) -> Done {
        to.align_to(target.align.into())?;
        for one in self.moves(first, count) {
            match *one {
                Move::Copy { at, bytes, unit } => {
                    let part = window.part(at as usize, bytes as usize).ok_or(Invalid::Short)?;
                    to.block(1, &Block::new(part, between::<A, B>(unit)))?;
                }
                Move::Convert { at, bytes, op } => {
                    let part = window.part(at as usize, bytes as usize).ok_or(Invalid::Short)?;
                    self.packed(op, &mut Reader::<A>::represented(part), to, depth)?;
                }
                Move::Fill(default, op) => {
                    let bytes = Window::from(self.filling(default));
                    if ByteOrder::Little.is_native() {
                        self.packed(op, &mut Reader::<Native>::represented(bytes), to, depth)?;
                    } else {
                        self.packed(op, &mut Reader::<Swapped>::represented(bytes), to, depth)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Converts a value within a plain value, where nothing is aligned. An integer or a discriminant that
    /// changes is first converted in separate memory.
    #[cold]
    fn packed<A: Representation, B: Representation>(
        &self,
        op: OpId,
        from: &mut Reader<'_, A>,
        to: &mut Writer<'_, B>,
        depth: u32,
    ) -> Done {
        match self.op(op) {
            Op::Plain { from: source, to: target, first, count } => {
                let window = from.window(1, source.bytes as usize)?;
                let target = Extent { align: 1, ..target };
                self.plain::<A, B>(first, count, window, target, to, depth + 1)
            }
            Op::Array(one, count) => {
                (0..count).try_for_each(|_| self.packed(one, from, to, depth + 1))
            }
            Op::Numbers { bytes, count } => {
                let all = usize::from(bytes) * count as usize;
                let part = from.window(1, all)?;
                Ok(to.block(1, &Block::new(part, between::<A, B>(bytes)))?)
            }
            _ => {
                let mut memory = [0u8; 16];
                let mut place = Writer::<B>::represented(crate::value::Space::of_mut(&mut memory));
                self.convert(op, from, &mut place, depth + 1)?;
                place.flush();
                let bytes = place.len();
                Ok(to.block(1, &Block::new(Window::from(&memory[..bytes]), None))?)
            }
        }
    }

    /// Reads one value of the sender and discards it, because the receiver has no place for it. `op` is the
    /// step that copies a value of this type unchanged. Here, the step only shows where the value ends.
    pub(super) fn skip<A: Representation>(
        &self,
        mut op: OpId,
        from: &mut Reader<'_, A>,
        depth: u32,
    ) -> Done {
        if depth > limits::INTERPRETED_DEPTH_MAX {
            return Err(Invalid::TooDeep.into());
        }
        let (mut left, mut idle) = (from.remaining(), 0);
        loop {
            op = match self.op(op) {
                Op::Nothing => return Ok(()),
                Op::Numbers { bytes, count } => {
                    from.window(bytes.into(), usize::from(bytes) * count as usize)?;
                    return Ok(());
                }
                Op::Resize { from: bytes, .. } | Op::Choice { bytes, .. } => {
                    from.window(bytes.into(), bytes.into())?;
                    return Ok(());
                }
                Op::Sequence(one) => {
                    let count = from.count()?;
                    return self.skip_values(one, count as u64, from, depth);
                }
                Op::Array(one, count) => return self.skip_values(one, count, from, depth),
                Op::Option(one) => {
                    if !from.plain::<bool>()? {
                        return Ok(());
                    }
                    one
                }
                Op::Result(ok, error) => {
                    if from.plain::<bool>()? {
                        error
                    } else {
                        ok
                    }
                }
                Op::Record { first, count } => {
                    match self.skip_all_but_last(first, count, from, depth)? {
                        Some(last) => last,
                        None => return Ok(()),
                    }
                }
                Op::Enum { first, count, .. } => {
                    let number = from.plain::<u32>()?;
                    match self.variants(first, count).get(number as usize) {
                        Some(Received::Variant { first, count, .. }) => {
                            match self.skip_all_but_last(*first, *count, from, depth)? {
                                Some(last) => last,
                                None => return Ok(()),
                            }
                        }
                        Some(Received::Other { fields, .. }) => *fields,
                        _ => return Err(Invalid::Bits.into()),
                    }
                }
                Op::Plain { from: source, .. } => {
                    from.window(source.align.into(), source.bytes as usize)?;
                    return Ok(());
                }
            };
            if from.remaining() == left {
                idle += 1;
                if idle > IDLE_STEPS_MAX {
                    return Err(Invalid::TooDeep.into());
                }
            } else {
                (left, idle) = (from.remaining(), 0);
            }
        }
    }

    /// Skips all parts except the last one. Returns the op of the last part.
    fn skip_all_but_last<A: Representation>(
        &self,
        first: u32,
        count: u32,
        from: &mut Reader<'_, A>,
        depth: u32,
    ) -> Result<Option<OpId>, Stopped> {
        let op = |part: &Part| match part {
            Part::Convert(op) | Part::Skip(op) => Some(*op),
            Part::Fill(..) => None,
        };
        let Some((last, before)) = self.parts(first, count).split_last() else {
            return Ok(None);
        };
        for part in before.iter().filter_map(op) {
            self.skip(part, from, depth + 1)?;
        }
        Ok(op(last))
    }

    fn skip_values<A: Representation>(
        &self,
        one: OpId,
        count: u64,
        from: &mut Reader<'_, A>,
        depth: u32,
    ) -> Done {
        if let Op::Nothing = self.op(one) {
            return Ok(());
        }
        let mut empty = 0;
        for _ in 0..count {
            let before = from.remaining();
            self.skip(one, from, depth + 1)?;
            if from.remaining() == before {
                empty += 1;
                if empty > limits::EMPTY_VALUES_MAX {
                    return Err(Invalid::TooLong.into());
                }
            }
        }
        Ok(())
    }
}

/// Copies the `bool` that precedes the value of an option or a result.
#[inline]
fn tag<A: Representation, B: Representation>(
    from: &mut Reader<'_, A>,
    to: &mut Writer<'_, B>,
) -> Result<bool, Stopped> {
    let tag: bool = from.plain()?;
    to.plain(&tag)?;
    Ok(tag)
}

/// Copies one number.
#[inline]
fn number<A: Representation, B: Representation>(
    bytes: u8,
    from: &mut Reader<'_, A>,
    to: &mut Writer<'_, B>,
) -> Done {
    by_size!(bytes, N => Ok(to.plain(&from.plain::<N>()?)?))
}

/// Copies numbers that follow each other.
fn numbers<A: Representation, B: Representation>(
    bytes: u8,
    count: usize,
    from: &mut Reader<'_, A>,
    to: &mut Writer<'_, B>,
) -> Done {
    let all = count.checked_mul(bytes.into()).ok_or(Invalid::Short)?;
    let window = from.window(bytes.into(), all)?;
    if all > 0 {
        match between::<A, B>(bytes) {
            None => to.window(bytes.into(), window)?,
            swap => to.block(bytes.into(), &Block::new(window, swap))?,
        }
    }
    Ok(())
}

/// Reads an integer. An unsigned integer of 128 bits may wrap to a negative value.
fn integer<A: Representation>(
    bytes: u8,
    signed: bool,
    from: &mut Reader<'_, A>,
) -> Result<i128, Invalid> {
    Ok(match (bytes, signed) {
        (1, false) => from.plain::<u8>()?.into(),
        (2, false) => from.plain::<u16>()?.into(),
        (4, false) => from.plain::<u32>()?.into(),
        (8, false) => from.plain::<u64>()?.into(),
        (1, true) => from.plain::<i8>()?.into(),
        (2, true) => from.plain::<i16>()?.into(),
        (4, true) => from.plain::<i32>()?.into(),
        (8, true) => from.plain::<i64>()?.into(),
        _ => from.plain::<i128>()?,
    })
}

/// Converts an integer to another width.
fn resize<A: Representation, B: Representation>(
    bytes: u8,
    width: u8,
    signed: bool,
    from: &mut Reader<'_, A>,
    to: &mut Writer<'_, B>,
) -> Done {
    let value = integer(bytes, signed, from)?;
    // If an unsigned integer of 128 bits is negative here, it is too large for each narrower type.
    let bits = u32::from(width) * 8;
    let fits = match signed {
        _ if width == 16 => true,
        true => matches!(value >> (bits - 1), 0 | -1),
        false => value >> bits == 0,
    };
    if !fits {
        return Err(Stopped::OutOfRange { value, signed, bytes: width });
    }
    by_size!(width, N => to.plain(&(value as N))).map_err(Stopped::from)
}
