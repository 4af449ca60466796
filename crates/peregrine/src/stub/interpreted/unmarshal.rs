//! Unmarshals values from the head of a message, step by step. An existing value is overwritten, so that a
//! value that is received repeatedly needs no new memory.

use super::program::{Number, Op, OpId, Part, Program, Solid};
use super::solid::swap_of;
use crate::limits;
use crate::value::{Dynamic, Invalid, Reader, Representation};

type Taken = Result<(), Invalid>;

impl Program {
    /// Reads a value from a head.
    ///
    /// The memory of the value is limited in proportion to the received bytes. Fields without bytes and
    /// nested structs also need memory, so each value is counted.
    #[inline]
    pub(super) fn take<R: Representation>(
        &self,
        op: OpId,
        head: &mut Reader<'_, R>,
        into: &mut Dynamic,
    ) -> Taken {
        self.take_in(op, head, into, 0)
    }

    fn take_in<R: Representation>(
        &self,
        op: OpId,
        head: &mut Reader<'_, R>,
        into: &mut Dynamic,
        depth: u32,
    ) -> Taken {
        head.makes_one()?;
        match self.op(op) {
            Op::Number(number) => take_number(number, head, into),
            Op::Solid(solid, _) => self.take_block(op, solid, solid.bytes as usize, head, into),
            Op::Text => take_text(head, into),
            step => self.take_structured(op, step, head, into, depth),
        }
    }

    /// Reads values without padding, which are `count` adjacent bytes of the head.
    fn take_block<R: Representation>(
        &self,
        op: OpId,
        solid: Solid,
        count: usize,
        head: &mut Reader<'_, R>,
        into: &mut Dynamic,
    ) -> Taken {
        let bytes = plain_of(into);
        let swap = if R::SWAPPED { swap_of(solid.unit) } else { None };
        head.bytes(usize::from(solid.align), count, swap, bytes)?;
        if R::SWAPPED && solid.unit == 0 {
            self.turn(op, bytes);
        }
        if solid.checked {
            self.check_all(op, solid.bytes as usize, bytes).map_err(|_| Invalid::Bits)?;
        }
        Ok(())
    }

    fn take_structured<R: Representation>(
        &self,
        op: OpId,
        step: Op,
        head: &mut Reader<'_, R>,
        into: &mut Dynamic,
        depth: u32,
    ) -> Taken {
        if depth > limits::INTERPRETED_DEPTH_MAX {
            return Err(Invalid::TooDeep);
        }
        // Each kind of step has its own function, so that a nested value needs stack only for the kinds that
        // it contains.
        match step {
            Op::Nothing => {
                *into = Dynamic::Unit;
                Ok(())
            }
            Op::Choice { repr, first, count } => {
                take_number(repr, head, into)?;
                let value = integer(into).ok_or(Invalid::Bits)?;
                self.choice(value, first, count).map_err(|_| Invalid::Bits)
            }
            Op::Sequence(one) => self.take_sequence(one, head, into, depth),
            Op::Array(one, count) => {
                let count = usize::try_from(count).map_err(|_| Invalid::Short)?;
                self.take_each(one, count, head, list_of(into), depth)
            }
            Op::Record { first, count } => {
                self.take_fields(self.parts(first, count), head, list_of(into), depth)
            }
            Op::Option(one) => self.take_option(one, head, into, depth),
            Op::Result(ok, err) => self.take_result([ok, err], head, into, depth),
            Op::Enum { first, count } => {
                self.take_variant(self.parts(first, count), head, into, depth)
            }
            _ => {
                debug_assert_eq!(self.op(op), Op::Refused);
                Err(Invalid::TooDeep)
            }
        }
    }

    fn take_sequence<R: Representation>(
        &self,
        one: OpId,
        head: &mut Reader<'_, R>,
        into: &mut Dynamic,
        depth: u32,
    ) -> Taken {
        let count = head.count()?;
        self.take_all(one, count, head, into, depth)
    }

    fn take_option<R: Representation>(
        &self,
        one: OpId,
        head: &mut Reader<'_, R>,
        into: &mut Dynamic,
        depth: u32,
    ) -> Taken {
        if !head.plain::<bool>()? {
            *into = Dynamic::Option(None);
            return Ok(());
        }
        if !matches!(into, Dynamic::Option(Some(_))) {
            *into = Dynamic::Option(Some(Box::default()));
        }
        let Dynamic::Option(Some(value)) = into else { return Ok(()) };
        head.deeper(|head| self.take_in(one, head, value, depth + 1))
    }

    fn take_result<R: Representation>(
        &self,
        [ok, err]: [OpId; 2],
        head: &mut Reader<'_, R>,
        into: &mut Dynamic,
        depth: u32,
    ) -> Taken {
        let is_err = head.plain::<bool>()?;
        match into {
            Dynamic::Result(Ok(_)) if !is_err => {}
            Dynamic::Result(Err(_)) if is_err => {}
            _ if is_err => *into = Dynamic::Result(Err(Box::default())),
            _ => *into = Dynamic::Result(Ok(Box::default())),
        }
        let Dynamic::Result(Ok(value) | Err(value)) = into else { return Ok(()) };
        let one = if is_err { err } else { ok };
        head.deeper(|head| self.take_in(one, head, value, depth + 1))
    }

    fn take_variant<R: Representation>(
        &self,
        variants: &[Part],
        head: &mut Reader<'_, R>,
        into: &mut Dynamic,
        depth: u32,
    ) -> Taken {
        let number = head.plain::<u32>()?;
        let variant = variants.get(number as usize).ok_or(Invalid::Bits)?;
        match into {
            Dynamic::Variant(before, _) => *before = number,
            _ => *into = Dynamic::Variant(number, Vec::new()),
        }
        let Dynamic::Variant(_, fields) = into else { return Ok(()) };
        match self.op(variant.op) {
            Op::Record { first, count } => {
                self.take_fields(self.parts(first, count), head, fields, depth)
            }
            _ => {
                fields.clear();
                Ok(())
            }
        }
    }

    fn take_fields<R: Representation>(
        &self,
        parts: &[Part],
        head: &mut Reader<'_, R>,
        values: &mut Vec<Dynamic>,
        depth: u32,
    ) -> Taken {
        values.resize_with(parts.len(), Dynamic::default);
        let mut all = parts.iter().zip(values);
        all.try_for_each(|(part, value)| self.take_in(part.op, head, value, depth + 1))
    }

    fn take_each<R: Representation>(
        &self,
        one: OpId,
        count: usize,
        head: &mut Reader<'_, R>,
        values: &mut Vec<Dynamic>,
        depth: u32,
    ) -> Taken {
        values.truncate(count);
        for i in 0..count {
            // Values are added one by one, so that a large count alone allocates nothing.
            if i == values.len() {
                values.push(Dynamic::default());
            }
            let value = values.get_mut(i).ok_or(Invalid::Short)?;
            self.take_in(one, head, value, depth + 1)?;
        }
        Ok(())
    }

    /// Reads `count` elements of a sequence.
    pub(super) fn take_all<R: Representation>(
        &self,
        one: OpId,
        count: usize,
        head: &mut Reader<'_, R>,
        into: &mut Dynamic,
        depth: u32,
    ) -> Taken {
        if self.op(one) == Op::Nothing {
            *into = Dynamic::Units(u32::try_from(count).map_err(|_| Invalid::TooLong)?);
            return Ok(());
        }
        if let Some(solid) = self.solid_run(one) {
            let bytes = count.checked_mul(solid.bytes as usize).ok_or(Invalid::Short)?;
            return self.take_block(one, solid, bytes, head, into);
        }
        head.deeper(|head| self.take_each(one, count, head, list_of(into), depth))
    }
}

#[inline]
fn take_number<R: Representation>(
    number: Number,
    head: &mut Reader<'_, R>,
    into: &mut Dynamic,
) -> Taken {
    macro_rules! numbers {
        ($($variant:ident)*) => {
            match number {
                $(Number::$variant => Dynamic::$variant(head.plain()?),)*
            }
        };
    }
    *into = numbers!(Bool Char U8 U16 U32 U64 U128 I8 I16 I32 I64 I128 F32 F64);
    Ok(())
}

fn take_text<R: Representation>(head: &mut Reader<'_, R>, into: &mut Dynamic) -> Taken {
    let count = head.count()?;
    let mut bytes = match core::mem::take(into) {
        Dynamic::Text(text) => text.into_bytes(),
        _ => Vec::new(),
    };
    head.bytes(1, count, None, &mut bytes)?;
    *into = Dynamic::Text(String::from_utf8(bytes).map_err(|_| Invalid::Utf8)?);
    Ok(())
}

pub(super) fn integer(value: &Dynamic) -> Option<i128> {
    Some(match *value {
        Dynamic::U8(value) => value.into(),
        Dynamic::U16(value) => value.into(),
        Dynamic::U32(value) => value.into(),
        Dynamic::U64(value) => value.into(),
        // A program holds each discriminant as an `i128`, so large discriminants of the type `u128` are
        // wrapped there, too.
        Dynamic::U128(value) => value as i128,
        Dynamic::I8(value) => value.into(),
        Dynamic::I16(value) => value.into(),
        Dynamic::I32(value) => value.into(),
        Dynamic::I64(value) => value.into(),
        Dynamic::I128(value) => value,
        _ => return None,
    })
}

/// Makes the value plain if it is not plain. Returns the value's bytes for the caller to overwrite.
fn plain_of(value: &mut Dynamic) -> &mut Vec<u8> {
    if !matches!(value, Dynamic::Plain(_)) {
        *value = Dynamic::Plain(Vec::new());
    }
    match value {
        Dynamic::Plain(bytes) => bytes,
        _ => unreachable!("the value is plain"),
    }
}

/// Makes the value a list if it is not a list. Returns the value's elements for the caller to overwrite.
fn list_of(value: &mut Dynamic) -> &mut Vec<Dynamic> {
    if !matches!(value, Dynamic::List(_)) {
        *value = Dynamic::List(Vec::new());
    }
    match value {
        Dynamic::List(values) => values,
        _ => unreachable!("the value is a list"),
    }
}
