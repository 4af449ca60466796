//! Marshals values to the head of a message, step by step.

use super::program::{Number, Op, OpId, Part, Program, Solid, Unfit};
use super::solid::swap_of;
use super::unmarshal::integer;
use crate::limits;
use crate::value::{Dynamic, Overflow, Representation, Writer};

/// Why a value cannot be marshalled.
#[derive(Debug)]
pub(super) enum Stopped {
    /// The value does not have the type that it should have.
    Unfit(Unfit),
    /// The value does not fit the message.
    Overflow(Overflow),
}

impl From<Unfit> for Stopped {
    #[cold]
    fn from(unfit: Unfit) -> Self {
        Self::Unfit(unfit)
    }
}

impl From<Overflow> for Stopped {
    #[cold]
    fn from(overflow: Overflow) -> Self {
        Self::Overflow(overflow)
    }
}

impl Stopped {
    #[cold]
    pub(super) fn inside(self, path: impl FnOnce(Unfit) -> Unfit) -> Self {
        match self {
            Self::Unfit(unfit) => Self::Unfit(path(unfit)),
            overflow => overflow,
        }
    }
}

type Put = Result<(), Stopped>;

impl Program {
    /// Appends a value to the head of a message.
    #[inline]
    pub(super) fn put<R: Representation>(
        &self,
        op: OpId,
        value: &Dynamic,
        head: &mut Writer<'_, R>,
    ) -> Put {
        self.put_in(op, value, head, 0)
    }

    #[inline]
    fn put_in<R: Representation>(
        &self,
        op: OpId,
        value: &Dynamic,
        head: &mut Writer<'_, R>,
        depth: u32,
    ) -> Put {
        match self.op(op) {
            Op::Number(number) => self.put_number(number, value, head),
            Op::Solid(solid, _) => self.put_solid(op, solid, value, head),
            Op::Text => match value {
                Dynamic::Text(text) => Ok(put_text(text, head)?),
                other => Err(Unfit::expected("text", other.kind()).into()),
            },
            step => self.put_structured(op, step, value, head, depth),
        }
    }

    #[inline]
    fn put_number<R: Representation>(
        &self,
        number: Number,
        value: &Dynamic,
        head: &mut Writer<'_, R>,
    ) -> Put {
        macro_rules! numbers {
            ($($variant:ident)*) => {
                match (number, value) {
                    $((Number::$variant, Dynamic::$variant(number)) => Ok(head.plain(number)?),)*
                    (number, other) => Err(Unfit::expected(number.text(), other.kind()).into()),
                }
            };
        }
        numbers!(U32 I32 U64 I64 U8 Bool U16 F64 F32 I16 I8 Char U128 I128)
    }

    #[inline]
    fn put_solid<R: Representation>(
        &self,
        op: OpId,
        solid: Solid,
        value: &Dynamic,
        head: &mut Writer<'_, R>,
    ) -> Put {
        match value {
            Dynamic::Plain(bytes) if bytes.len() == solid.bytes as usize => {
                if solid.checked {
                    self.check(op, bytes)?;
                }
                self.put_block(op, solid, bytes, head)
            }
            other => self.put_packed(op, solid, other, head),
        }
    }

    /// Appends a value that is one block, but was given as a list of its parts.
    #[cold]
    fn put_packed<R: Representation>(
        &self,
        op: OpId,
        solid: Solid,
        value: &Dynamic,
        head: &mut Writer<'_, R>,
    ) -> Put {
        let mut block = Vec::with_capacity(solid.bytes.min(1 << 16) as usize);
        self.pack(op, value, &mut block)?;
        self.put_block(op, solid, &block, head)
    }

    /// Appends any number of values that together are one block.
    #[inline]
    fn put_block<R: Representation>(
        &self,
        op: OpId,
        solid: Solid,
        bytes: &[u8],
        head: &mut Writer<'_, R>,
    ) -> Put {
        let align = usize::from(solid.align);
        if R::SWAPPED && solid.unit == 0 {
            let mut turned = bytes.to_vec();
            self.turn(op, &mut turned);
            return Ok(head.bytes(align, &turned, None)?);
        }
        let swap = if R::SWAPPED { swap_of(solid.unit) } else { None };
        Ok(head.bytes(align, bytes, swap)?)
    }

    fn put_structured<R: Representation>(
        &self,
        op: OpId,
        step: Op,
        value: &Dynamic,
        head: &mut Writer<'_, R>,
        depth: u32,
    ) -> Put {
        if depth > limits::INTERPRETED_DEPTH_MAX {
            return Err(Overflow::TooDeep.into());
        }
        match (step, value) {
            (Op::Nothing, value) if value.is_nothing() => Ok(()),
            (Op::Array(one, count), Dynamic::List(values)) if values.len() as u64 == count => {
                self.put_each(one, values, head, depth)
            }
            (Op::Record { first, count }, Dynamic::List(values)) => {
                self.put_fields(self.parts(first, count), values, head, depth)
            }
            (Op::Option(one), Dynamic::Option(value)) => {
                self.put_option(one, value.as_deref(), head, depth)
            }
            (Op::Result(ok, err), Dynamic::Result(value)) => {
                head.plain(&value.is_err())?;
                match value {
                    Ok(value) => self.put_inside(ok, value, head, depth),
                    Err(value) => self.put_inside(err, value, head, depth),
                }
            }
            (Op::Enum { first, count }, Dynamic::Variant(number, fields)) => {
                self.put_variant(self.parts(first, count), *number, fields, head, depth)
            }
            (Op::Choice { repr, .. }, value) => self.put_choice(op, repr, value, head),
            (Op::Sequence(one), value) => self.put_sequence(one, value, head, depth),
            (_, other) => Err(self.misfit(op, other).into()),
        }
    }

    #[cold]
    pub(super) fn misfit(&self, op: OpId, value: &Dynamic) -> Unfit {
        let got = match value {
            Dynamic::List(values) => format!("{} values", values.len()),
            other => other.kind().to_owned(),
        };
        Unfit::expected(&self.expected(op), &got)
    }

    fn put_sequence<R: Representation>(
        &self,
        one: OpId,
        value: &Dynamic,
        head: &mut Writer<'_, R>,
        depth: u32,
    ) -> Put {
        head.count(self.count(one, value)?)?;
        nested(head, |head| self.put_all(one, value, head, depth))
    }

    fn put_inside<R: Representation>(
        &self,
        one: OpId,
        value: &Dynamic,
        head: &mut Writer<'_, R>,
        depth: u32,
    ) -> Put {
        nested(head, |head| self.put_in(one, value, head, depth + 1))
    }

    fn put_option<R: Representation>(
        &self,
        one: OpId,
        value: Option<&Dynamic>,
        head: &mut Writer<'_, R>,
        depth: u32,
    ) -> Put {
        head.plain(&value.is_some())?;
        value.map_or(Ok(()), |value| self.put_inside(one, value, head, depth))
    }

    fn put_variant<R: Representation>(
        &self,
        variants: &[Part],
        number: u32,
        fields: &[Dynamic],
        head: &mut Writer<'_, R>,
        depth: u32,
    ) -> Put {
        let variant = variants.get(number as usize).ok_or_else(|| {
            Unfit::new(format!("expected a variant below {}, got {number}", variants.len()))
        })?;
        head.plain(&number)?;
        let put = match self.op(variant.op) {
            Op::Record { first, count } => {
                self.put_fields(self.parts(first, count), fields, head, depth)
            }
            _ if fields.iter().all(Dynamic::is_nothing) => Ok(()),
            _ => Err(Unfit::expected("no fields", "some").into()),
        };
        put.map_err(|stopped| stopped.inside(|unfit| unfit.of(&variant.name)))
    }

    fn put_choice<R: Representation>(
        &self,
        op: OpId,
        repr: Number,
        value: &Dynamic,
        head: &mut Writer<'_, R>,
    ) -> Put {
        let Op::Choice { first, count, .. } = self.op(op) else { return Ok(()) };
        self.put_number(repr, value, head)?;
        let number = integer(value).unwrap_or(i128::MIN);
        Ok(self.choice(number, first, count)?)
    }

    fn put_fields<R: Representation>(
        &self,
        parts: &[Part],
        values: &[Dynamic],
        head: &mut Writer<'_, R>,
        depth: u32,
    ) -> Put {
        if values.len() != parts.len() {
            let got = format!("{} values", values.len());
            return Err(Unfit::expected(&format!("{} fields", parts.len()), &got).into());
        }
        for (part, value) in parts.iter().zip(values) {
            self.put_in(part.op, value, head, depth + 1)
                .map_err(|stopped| stopped.inside(|unfit| unfit.of(&part.name)))?;
        }
        Ok(())
    }

    fn put_each<R: Representation>(
        &self,
        one: OpId,
        values: &[Dynamic],
        head: &mut Writer<'_, R>,
        depth: u32,
    ) -> Put {
        values.iter().enumerate().try_for_each(|(i, value)| {
            self.put_in(one, value, head, depth + 1)
                .map_err(|stopped| stopped.inside(|unfit| unfit.at(i)))
        })
    }

    /// Returns the number of elements of a sequence.
    pub(super) fn count(&self, one: OpId, value: &Dynamic) -> Result<usize, Unfit> {
        let run = self.solid_run(one).map(|solid| solid.bytes as usize);
        match (value, run) {
            (Dynamic::List(values), _) => Ok(values.len()),
            (Dynamic::Plain(bytes), Some(size)) if bytes.len().is_multiple_of(size) => {
                Ok(bytes.len() / size)
            }
            (Dynamic::Plain(bytes), Some(size)) => {
                let got = format!("{} bytes", bytes.len());
                Err(Unfit::expected(&format!("elements of {size} bytes"), &got))
            }
            (Dynamic::Units(count), _) if self.op(one) == Op::Nothing => Ok(*count as usize),
            (other, _) => Err(Unfit::expected("a sequence", other.kind())),
        }
    }

    /// Appends the elements of a sequence, but not their number.
    pub(super) fn put_all<R: Representation>(
        &self,
        one: OpId,
        value: &Dynamic,
        head: &mut Writer<'_, R>,
        depth: u32,
    ) -> Put {
        match value {
            Dynamic::List(values) => self.put_each(one, values, head, depth),
            Dynamic::Plain(bytes) if !bytes.is_empty() => {
                let Some(solid) = self.solid_run(one) else {
                    return Err(Unfit::expected("a list", "plain data").into());
                };
                self.check_all(one, solid.bytes as usize, bytes)?;
                self.put_block(one, solid, bytes, head)
            }
            _ => Ok(()),
        }
    }
}

fn put_text<R: Representation>(text: &str, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
    head.count(text.len())?;
    if text.is_empty() { Ok(()) } else { head.bytes(1, text.as_bytes(), None) }
}

/// Calls `inner` one level of nesting deeper.
pub(super) fn nested<R: Representation>(
    head: &mut Writer<'_, R>,
    inner: impl FnOnce(&mut Writer<'_, R>) -> Put,
) -> Put {
    let mut put = Ok(());
    head.deeper(|head| {
        put = inner(head);
        Ok(())
    })?;
    put
}
