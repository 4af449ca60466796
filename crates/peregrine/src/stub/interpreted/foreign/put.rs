//! Marshals values to XDR or Courier, step by step.

use super::super::marshal::Stopped;
use super::super::program::{Number, Op, OpId, Part, Program, Unfit};
use super::super::unmarshal::integer;
use super::{NO_MAX, no_form};
use crate::foreign::{Cells, Output};
use crate::interface::Case;
use crate::limits;
use crate::value::{Dynamic, Overflow};

type Put = Result<(), Stopped>;

impl Program {
    /// Appends a value. If the value is a text or a sequence, `max` is its largest number of bytes or
    /// elements.
    pub(super) fn put_cells<R: Cells>(
        &self,
        op: OpId,
        value: &Dynamic,
        max: u32,
        to: &mut Output<'_, R>,
        depth: u32,
    ) -> Put {
        if depth > limits::INTERPRETED_DEPTH_MAX {
            return Err(Overflow::TooDeep.into());
        }
        match (self.op(op), value) {
            (Op::Number(number), value) => put_number::<R>(number, value, to),
            (Op::Solid(solid, loose), Dynamic::Plain(bytes)) => {
                if bytes.len() != solid.bytes as usize {
                    return Err(self.misfit(op, value).into());
                }
                self.check(op, bytes)?;
                self.put_plain(loose, &mut &bytes[..], to)
            }
            (Op::Solid(_, loose), value) => self.put_cells(loose, value, max, to, depth),
            (Op::Text, Dynamic::Text(text)) => {
                check_max(text.len(), max)?;
                Ok(to.text(text)?)
            }
            (Op::Sequence(one), value) => self.put_elements(one, value, max, to, depth),
            (step, value) => self.put_parts(op, step, value, max, to, depth),
        }
    }

    fn put_parts<R: Cells>(
        &self,
        op: OpId,
        step: Op,
        value: &Dynamic,
        max: u32,
        to: &mut Output<'_, R>,
        depth: u32,
    ) -> Put {
        match (step, value) {
            (Op::Nothing, value) if value.is_nothing() => Ok(()),
            (Op::Choice { first, count, .. }, value) => {
                let number = integer(value).ok_or_else(|| self.misfit(op, value))?;
                self.choice(number, first, count)?;
                Ok(to.cell(number as u32)?)
            }
            (Op::Array(one, count), Dynamic::List(values)) if values.len() as u64 == count => {
                if self.op(one) == Op::Number(Number::U8) {
                    return Ok(to.opaque(&bytes_of(values)?)?);
                }
                self.put_list(one, values, to, depth)
            }
            (Op::Record { first, count }, Dynamic::List(values)) => {
                self.put_record(self.parts(first, count), values, max, to, depth)
            }
            (Op::Option(_), Dynamic::Option(None)) => Ok(to.cell(0)?),
            (Op::Option(one), Dynamic::Option(Some(value))) => {
                to.cell(1)?;
                deeper(to, |to| self.put_cells(one, value, NO_MAX, to, depth + 1))
            }
            (Op::Enum { first, count }, Dynamic::Variant(number, fields)) => {
                self.put_union((first, count), *number, fields, to, depth)
            }
            (Op::Result(..) | Op::Refused, _) => Err(no_form::<R>("the type").into()),
            (_, other) => Err(self.misfit(op, other).into()),
        }
    }

    fn put_record<R: Cells>(
        &self,
        parts: &[Part],
        values: &[Dynamic],
        max: u32,
        to: &mut Output<'_, R>,
        depth: u32,
    ) -> Put {
        if values.len() != parts.len() {
            let got = format!("{} values", values.len());
            return Err(Unfit::expected(&format!("{} fields", parts.len()), &got).into());
        }
        parts.iter().zip(values).try_for_each(|(part, value)| {
            // The only field of a byte string is its bytes, so the bound of the byte string applies to this
            // field.
            self.put_cells(part.op, value, part.max.min(max), to, depth + 1)
                .map_err(|stopped| stopped.inside(|unfit| unfit.of(&part.name)))
        })
    }

    fn put_union<R: Cells>(
        &self,
        (first, count): (u32, u32),
        number: u32,
        fields: &[Dynamic],
        to: &mut Output<'_, R>,
        depth: u32,
    ) -> Put {
        let part = self
            .parts(first, count)
            .get(number as usize)
            .ok_or_else(|| Unfit::new(format!("expected a variant below {count}, got {number}")))?;
        let inside = |unfit: Unfit| unfit.of(&part.name);
        match self.foreign.union(first).case(number) {
            Some(Case::Number(number)) => to.cell(number as u32)?,
            // The first field of the default variant is the number.
            Some(Case::Default) => {
                let cell = fields.first().and_then(integer).unwrap_or_default() as u32;
                if self.foreign.union(first).index_of(cell).is_some() {
                    return Err(inside(Unfit::new("the number is that of another variant")).into());
                }
            }
            Some(Case::Error(_)) | None => return Err(inside(no_form::<R>("the variant")).into()),
        }
        self.put_arguments(part.op, fields, to, depth).map_err(|stopped| stopped.inside(inside))
    }

    /// Appends the fields of a variant. `op` is the step of these fields.
    pub(super) fn put_arguments<R: Cells>(
        &self,
        op: OpId,
        fields: &[Dynamic],
        to: &mut Output<'_, R>,
        depth: u32,
    ) -> Put {
        match self.op(op) {
            Op::Record { first, count } => {
                self.put_record(self.parts(first, count), fields, NO_MAX, to, depth)
            }
            _ if fields.iter().all(Dynamic::is_nothing) => Ok(()),
            _ => Err(Unfit::expected("no fields", "some").into()),
        }
    }

    /// Appends a sequence: the number of elements, and the elements.
    pub(super) fn put_elements<R: Cells>(
        &self,
        one: OpId,
        value: &Dynamic,
        max: u32,
        to: &mut Output<'_, R>,
        depth: u32,
    ) -> Put {
        let count = self.count(one, value)?;
        check_max(count, max)?;
        if self.op(one) == Op::Number(Number::U8) {
            match value {
                Dynamic::Plain(bytes) => to.byte_string(bytes)?,
                Dynamic::List(values) => to.byte_string(&bytes_of(values)?)?,
                other => return Err(Unfit::expected("a sequence", other.kind()).into()),
            }
            return Ok(());
        }
        to.count(count)?;
        deeper(to, |to| match value {
            Dynamic::List(values) => self.put_list(one, values, to, depth),
            Dynamic::Plain(bytes) if count > 0 => {
                self.check_all(one, bytes.len() / count, bytes)?;
                let mut rest = &bytes[..];
                (0..count).try_for_each(|_| self.put_plain(one, &mut rest, to))
            }
            _ => Ok(()),
        })
    }

    fn put_list<R: Cells>(
        &self,
        one: OpId,
        values: &[Dynamic],
        to: &mut Output<'_, R>,
        depth: u32,
    ) -> Put {
        values.iter().enumerate().try_for_each(|(i, value)| {
            self.put_cells(one, value, NO_MAX, to, depth + 1)
                .map_err(|stopped| stopped.inside(|unfit| unfit.at(i)))
        })
    }

    /// Appends a valid value whose native form is one block. Removes the bytes of the value from the front of
    /// `bytes`.
    fn put_plain<R: Cells>(&self, op: OpId, bytes: &mut &[u8], to: &mut Output<'_, R>) -> Put {
        match self.op(op) {
            Op::Number(number) => put_number::<R>(number, &number.read(bytes), to),
            Op::Choice { repr, .. } => {
                Ok(to.cell(integer(&repr.read(bytes)).unwrap_or_default() as u32)?)
            }
            Op::Solid(_, loose) => self.put_plain(loose, bytes, to),
            Op::Array(one, count) if self.op(one) == Op::Number(Number::U8) => {
                let own = bytes.split_off(..count as usize).unwrap_or_default();
                Ok(to.opaque(own)?)
            }
            Op::Array(one, count) => (0..count).try_for_each(|_| self.put_plain(one, bytes, to)),
            Op::Record { first, count } => {
                let mut parts = self.parts(first, count).iter();
                parts.try_for_each(|part| self.put_plain(part.op, bytes, to))
            }
            _ => Ok(()),
        }
    }
}

impl Number {
    /// Reads a number from the front of a block, and removes its bytes.
    pub(super) fn read(self, bytes: &mut &[u8]) -> Dynamic {
        macro_rules! numbers {
            ($($variant:ident $ty:ty,)*) => {
                match self {
                    Self::Bool => Dynamic::Bool(bytes.split_off_first() == Some(&1)),
                    Self::Char => {
                        let own = bytes.split_off(..4).and_then(<[u8]>::first_chunk);
                        let letter = own.and_then(|own| char::from_u32(u32::from_ne_bytes(*own)));
                        Dynamic::Char(letter.unwrap_or_default())
                    }
                    $(Self::$variant => {
                        let own = bytes.split_off(..size_of::<$ty>()).and_then(<[u8]>::first_chunk);
                        Dynamic::$variant(own.map_or_else(Default::default, |own| {
                            <$ty>::from_ne_bytes(*own)
                        }))
                    })*
                }
            };
        }
        numbers!(
            U8 u8, U16 u16, U32 u32, U64 u64, U128 u128, I8 i8, I16 i16, I32 i32, I64 i64, I128 i128,
            F32 f32, F64 f64,
        )
    }
}

fn put_number<R: Cells>(number: Number, value: &Dynamic, to: &mut Output<'_, R>) -> Put {
    if !number.has_form::<R>() {
        return Err(no_form::<R>(number.text()).into());
    }
    let wide = |value: u64, to: &mut Output<'_, R>| {
        to.fixed(&((value >> 32) as u32))?;
        to.fixed(&(value as u32))
    };
    match (number, value) {
        (Number::Bool, Dynamic::Bool(value)) => to.cell(u32::from(*value))?,
        (Number::U8, Dynamic::U8(value)) => to.cell(u32::from(*value))?,
        (Number::I8, Dynamic::I8(value)) => to.cell(*value as u32)?,
        (Number::U16, Dynamic::U16(value)) => to.cell(u32::from(*value))?,
        (Number::I16, Dynamic::I16(value)) => to.cell(*value as u32)?,
        (Number::U32, Dynamic::U32(value)) => to.fixed(value)?,
        (Number::I32, Dynamic::I32(value)) => to.fixed(value)?,
        (Number::U64, Dynamic::U64(value)) => wide(*value, to)?,
        (Number::I64, Dynamic::I64(value)) => wide(*value as u64, to)?,
        (Number::F32, Dynamic::F32(value)) => to.fixed(&value.to_bits())?,
        (Number::F64, Dynamic::F64(value)) => wide(value.to_bits(), to)?,
        (_, other) => return Err(Unfit::expected(number.text(), other.kind()).into()),
    }
    Ok(())
}

fn check_max(count: usize, max: u32) -> Put {
    match max {
        NO_MAX => Ok(()),
        max if count <= max as usize => Ok(()),
        max => Err(Unfit::expected(&format!("at most {max} elements"), &count.to_string()).into()),
    }
}

/// Returns the bytes of a list of `u8`.
fn bytes_of(values: &[Dynamic]) -> Result<Vec<u8>, Unfit> {
    let one = |(i, value): (usize, &Dynamic)| match value {
        Dynamic::U8(byte) => Ok(*byte),
        other => Err(Unfit::expected("u8", other.kind()).at(i)),
    };
    values.iter().enumerate().map(one).collect()
}

/// Calls `inner` one level of nesting deeper.
fn deeper<R: Cells>(to: &mut Output<'_, R>, inner: impl FnOnce(&mut Output<'_, R>) -> Put) -> Put {
    let mut put = Ok(());
    to.deeper(|to| {
        put = inner(to);
        Ok(())
    })?;
    put
}
