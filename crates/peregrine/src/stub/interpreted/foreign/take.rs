//! Unmarshals values from XDR or Courier, step by step.

use super::super::program::{Number, Op, OpId, Part, Program, Unfit};
use super::super::unmarshal::integer;
use super::NO_MAX;
use crate::foreign::{Cells, Input};
use crate::interface::Case;
use crate::limits;
use crate::value::{Dynamic, Invalid};

/// Why received bytes are not a value, and in which part of the value.
#[derive(Debug)]
pub(super) struct Unread {
    pub(super) invalid: Invalid,
    pub(super) at: Unfit,
}

impl From<Invalid> for Unread {
    #[cold]
    fn from(invalid: Invalid) -> Self {
        Self { invalid, at: Unfit::new(invalid.to_string()) }
    }
}

impl Unread {
    #[cold]
    pub(super) fn inside(self, path: impl FnOnce(Unfit) -> Unfit) -> Self {
        Self { at: path(self.at), ..self }
    }
}

type Taken = Result<Dynamic, Unread>;

/// Received bytes. The number of values that are made from the bytes is limited, so that their memory is
/// limited in proportion to the bytes. Values without bytes are counted, too, because they also need memory.
pub(super) struct Received<'a, R: Cells> {
    pub(super) input: Input<'a, R>,
    /// How many values can still be made.
    left: usize,
    /// How many elements without bytes can still be made.
    empty_left: usize,
    depth: u32,
}

impl<'a, R: Cells> Received<'a, R> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let empty_left = limits::EMPTY_VALUES_MAX;
        let left = empty_left + 4 * bytes.len();
        Self { input: Input::new(bytes), left, empty_left, depth: 0 }
    }

    fn makes_one(&mut self) -> Result<(), Invalid> {
        self.left = self.left.checked_sub(1).ok_or(Invalid::TooLong)?;
        Ok(())
    }

    fn wide(&mut self) -> Result<u64, Invalid> {
        let high: u32 = self.input.fixed()?;
        let low: u32 = self.input.fixed()?;
        Ok(u64::from(high) << 32 | u64::from(low))
    }

    /// Calls `inner`, which takes a value that is nested one level deeper.
    fn deeper(&mut self, inner: impl FnOnce(&mut Self) -> Taken) -> Taken {
        if self.depth >= limits::DEPTH_MAX {
            return Err(Invalid::TooDeep.into());
        }
        self.depth += 1;
        let taken = inner(self);
        self.depth -= 1;
        taken
    }
}

impl Program {
    /// Takes a value. If the value is a text or a sequence, `max` is its largest number of bytes or elements.
    pub(super) fn take_cells<R: Cells>(
        &self,
        op: OpId,
        max: u32,
        from: &mut Received<'_, R>,
        depth: u32,
    ) -> Taken {
        from.makes_one()?;
        if depth > limits::INTERPRETED_DEPTH_MAX {
            return Err(Invalid::TooDeep.into());
        }
        match self.op(op) {
            Op::Nothing => Ok(Dynamic::Unit),
            Op::Number(number) => Ok(take_number(number, from)?),
            Op::Choice { repr, first, count } => Ok(self.take_choice(repr, first, count, from)?),
            Op::Solid(solid, loose) => {
                let there = from.input.rest().len();
                let mut bytes = Vec::with_capacity(there.min(solid.bytes as usize));
                self.take_plain(loose, &mut bytes, from)?;
                Ok(Dynamic::Plain(bytes))
            }
            Op::Text => Ok(Dynamic::Text(from.input.text(max as usize)?.to_owned())),
            Op::Sequence(one) => self.take_elements(one, max, from, depth),
            Op::Array(one, count) => self.take_array(one, count, from, depth),
            Op::Option(one) => match from.input.cell()? {
                0 => Ok(Dynamic::Option(None)),
                1 => {
                    let value = from.deeper(|from| self.take_cells(one, NO_MAX, from, depth + 1));
                    Ok(Dynamic::Option(Some(Box::new(value?))))
                }
                _ => Err(Invalid::Bits.into()),
            },
            Op::Record { first, count } => {
                let fields = self.take_record(self.parts(first, count), max, from, depth);
                Ok(Dynamic::List(fields?))
            }
            Op::Enum { first, count } => self.take_union(first, count, from, depth),
            Op::Result(..) | Op::Refused => Err(Invalid::Bits.into()),
        }
    }

    fn take_choice<R: Cells>(
        &self,
        repr: Number,
        first: u32,
        count: u32,
        from: &mut Received<'_, R>,
    ) -> Result<Dynamic, Invalid> {
        let cell = from.input.cell()?;
        let known = self.discriminants(first, count);
        let all = [i128::from(cell), i128::from(cell as i32)];
        let number = all.into_iter().find(|number| known.binary_search(number).is_ok());
        Ok(repr.with(number.ok_or(Invalid::Bits)?))
    }

    fn take_array<R: Cells>(
        &self,
        one: OpId,
        count: u64,
        from: &mut Received<'_, R>,
        depth: u32,
    ) -> Taken {
        let mut values = Vec::new();
        // Values are added one by one, so that a large count alone allocates nothing.
        for i in 0..count as usize {
            values.push(
                self.take_cells(one, NO_MAX, from, depth + 1)
                    .map_err(|unread| unread.inside(|unfit| unfit.at(i)))?,
            );
        }
        Ok(Dynamic::List(values))
    }

    /// Takes a sequence: the number of elements, and the elements.
    pub(super) fn take_elements<R: Cells>(
        &self,
        one: OpId,
        max: u32,
        from: &mut Received<'_, R>,
        depth: u32,
    ) -> Taken {
        if self.op(one) == Op::Number(Number::U8) {
            return Ok(Dynamic::Plain(from.input.byte_string(max as usize)?.to_vec()));
        }
        let count = from.input.count(max as usize)?;
        if self.op(one) == Op::Nothing {
            from.empty_left = from.empty_left.checked_sub(count).ok_or(Invalid::TooLong)?;
            return Ok(Dynamic::Units(count as u32));
        }
        // Elements of all other types have at least one cell.
        let there = from.input.rest().len();
        if count > there / R::CELL {
            return Err(Invalid::Short.into());
        }
        let Some(solid) = self.solid_run(one) else {
            return from.deeper(|from| self.take_array(one, count as u64, from, depth));
        };
        let mut bytes = Vec::with_capacity(there.min(count * solid.bytes as usize));
        for i in 0..count {
            self.take_plain(one, &mut bytes, from)
                .map_err(|unread| unread.inside(|unfit| unfit.at(i)))?;
        }
        Ok(Dynamic::Plain(bytes))
    }

    /// Takes a value whose native form is one block, and appends this form to `bytes`.
    fn take_plain<R: Cells>(
        &self,
        op: OpId,
        bytes: &mut Vec<u8>,
        from: &mut Received<'_, R>,
    ) -> Result<(), Unread> {
        match self.op(op) {
            Op::Number(number) => take_number(number, from)?.write(bytes),
            Op::Choice { repr, first, count } => {
                self.take_choice(repr, first, count, from)?.write(bytes);
            }
            Op::Solid(_, loose) => self.take_plain(loose, bytes, from)?,
            Op::Array(one, count) if self.op(one) == Op::Number(Number::U8) => {
                let count = usize::try_from(count).map_err(|_| Invalid::Short)?;
                bytes.extend(from.input.opaque(count)?);
            }
            Op::Array(one, count) => {
                for i in 0..count as usize {
                    self.take_plain(one, bytes, from)
                        .map_err(|unread| unread.inside(|unfit| unfit.at(i)))?;
                }
            }
            Op::Record { first, count } => {
                for part in self.parts(first, count) {
                    self.take_plain(part.op, bytes, from)
                        .map_err(|unread| unread.inside(|unfit| unfit.of(&part.name)))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn take_record<R: Cells>(
        &self,
        parts: &[Part],
        max: u32,
        from: &mut Received<'_, R>,
        depth: u32,
    ) -> Result<Vec<Dynamic>, Unread> {
        // Values are added one by one, so that a type with many fields alone allocates nothing.
        let mut values = Vec::new();
        for part in parts {
            values.push(
                self.take_cells(part.op, part.max.min(max), from, depth + 1)
                    .map_err(|unread| unread.inside(|unfit| unfit.of(&part.name)))?,
            );
        }
        Ok(values)
    }

    fn take_union<R: Cells>(
        &self,
        first: u32,
        count: u32,
        from: &mut Received<'_, R>,
        depth: u32,
    ) -> Taken {
        let union = self.foreign.union(first);
        // The first field of the default variant is the number itself. So for this variant the number is read
        // again, from `before`.
        let before = from.input.rest();
        let cell = from.input.cell()?;
        let known = union.index_of(cell);
        let index = known.or(union.default).ok_or(Invalid::Bits)?;
        if matches!(union.case(index), Some(Case::Error(_)) | None) {
            return Err(Invalid::Bits.into());
        }
        if known.is_none() {
            from.input = Input::new(before);
        }
        let fields = self.take_arguments(first, count, index, from, depth)?;
        Ok(Dynamic::Variant(index, fields))
    }

    /// Takes the fields of the variant `index`.
    pub(super) fn take_arguments<R: Cells>(
        &self,
        first: u32,
        count: u32,
        index: u32,
        from: &mut Received<'_, R>,
        depth: u32,
    ) -> Result<Vec<Dynamic>, Unread> {
        let part = self.parts(first, count).get(index as usize).ok_or(Invalid::Bits)?;
        match self.op(part.op) {
            Op::Record { first, count } => self
                .take_record(self.parts(first, count), NO_MAX, from, depth)
                .map_err(|unread| unread.inside(|unfit| unfit.of(&part.name))),
            _ => Ok(Vec::new()),
        }
    }
}

fn take_number<R: Cells>(number: Number, from: &mut Received<'_, R>) -> Result<Dynamic, Invalid> {
    if !number.has_form::<R>() {
        return Err(Invalid::Bits);
    }
    let bits = |_| Invalid::Bits;
    // XDR widens small numbers to a cell of 4 bytes.
    let is_wide = R::CELL == 4;
    Ok(match number {
        Number::Bool => match from.input.cell()? {
            0 => Dynamic::Bool(false),
            1 => Dynamic::Bool(true),
            _ => return Err(Invalid::Bits),
        },
        Number::U8 => Dynamic::U8(from.input.cell()?.try_into().map_err(bits)?),
        Number::I8 => Dynamic::I8((from.input.cell()? as i32).try_into().map_err(bits)?),
        Number::U16 => Dynamic::U16(from.input.cell()?.try_into().map_err(bits)?),
        Number::I16 if is_wide => {
            Dynamic::I16((from.input.cell()? as i32).try_into().map_err(bits)?)
        }
        Number::I16 => Dynamic::I16(from.input.cell()? as i16),
        Number::U32 => Dynamic::U32(from.input.fixed()?),
        Number::I32 => Dynamic::I32(from.input.fixed()?),
        Number::U64 => Dynamic::U64(from.wide()?),
        Number::I64 => Dynamic::I64(from.wide()? as i64),
        Number::F32 => Dynamic::F32(f32::from_bits(from.input.fixed()?)),
        Number::F64 => Dynamic::F64(f64::from_bits(from.wide()?)),
        Number::Char | Number::U128 | Number::I128 => return Err(Invalid::Bits),
    })
}

impl Number {
    /// Returns `value` as an integer of this type, which must be able to represent it.
    const fn with(self, value: i128) -> Dynamic {
        match self {
            Self::U8 => Dynamic::U8(value as u8),
            Self::U16 => Dynamic::U16(value as u16),
            Self::U32 => Dynamic::U32(value as u32),
            Self::U64 => Dynamic::U64(value as u64),
            Self::U128 => Dynamic::U128(value as u128),
            Self::I8 => Dynamic::I8(value as i8),
            Self::I16 => Dynamic::I16(value as i16),
            Self::I32 => Dynamic::I32(value as i32),
            Self::I64 => Dynamic::I64(value as i64),
            _ => Dynamic::I128(value),
        }
    }
}

impl Dynamic {
    /// Appends a number to the bytes of a block.
    fn write(&self, bytes: &mut Vec<u8>) {
        macro_rules! numbers {
            ($($variant:ident)*) => {
                match self {
                    Self::Bool(value) => bytes.push(u8::from(*value)),
                    $(Self::$variant(value) => bytes.extend(value.to_ne_bytes()),)*
                    _ => debug_assert!(integer(self).is_none(), "every number is one of these"),
                }
            };
        }
        numbers!(U8 U16 U32 U64 U128 I8 I16 I32 I64 I128 F32 F64);
    }
}
