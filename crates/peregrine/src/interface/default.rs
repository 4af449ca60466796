//! Checks defaults, and the other rules for changes of interfaces, in a description that a peer may have
//! sent.

use std::collections::HashMap;

use super::brief::Brief;
use super::{
    DEFAULT_BYTES_MAX, Described, DescribedBody, DescribedField, DescribedGrowth,
    DescribedParameter, DescribedProcedure, DescribedType, Direction, Shape,
};
use crate::limits::CANONICAL_DEPTH_MAX;

/// The maximum number of steps that the check of all defaults in one description may take.
const STEPS_MAX: usize = 1 << 20;

/// The reason why a default is refused.
const UNFIT: &str = "the default is not a value of its type";

impl Described {
    /// Returns the declared default of a field, or of a parameter that is one value. If an option has no
    /// declared default, its default is the option without a value. Returns `None` if there is no default.
    pub(crate) fn default_of<'a>(
        &self,
        ty: &DescribedType,
        growth: &'a DescribedGrowth,
    ) -> Option<&'a [u8]> {
        match (&growth.default, ty) {
            (Some(bytes), _) => Some(bytes),
            (None, DescribedType::Option(_)) => Some(&[0]),
            _ => None,
        }
    }

    /// Returns the default of a parameter. The default of a buffer or a text is always empty. Returns `None`
    /// if the parameter has no default. An in-out parameter never has one.
    pub(crate) fn parameter_default<'a>(&self, one: &'a DescribedParameter) -> Option<&'a [u8]> {
        match (one.direction, one.shape) {
            (Direction::InOut, _) => None,
            (direction, _) if direction.is_live() => None,
            (_, Shape::One) => self.default_of(&one.ty, &one.growth),
            _ => one.growth.default.as_deref(),
        }
    }

    /// Finds the first default or variant that is not allowed. Returns its line in the canonical text, and
    /// the reason.
    pub(super) fn impossible_growth(&self) -> Option<(usize, String)> {
        let mut walk =
            Walk { whole: self, bytes: &[], at: 0, steps: 0, discriminants: HashMap::new() };
        for (line, procedure) in (2..).zip(&self.procedures) {
            if let Err(what) = walk.procedure(procedure) {
                return Some((line, what));
            }
        }
        for (line, named) in (self.procedures.len() + 2..).zip(&self.types) {
            if let Err(what) = walk.body(&named.body) {
                return Some((line, what));
            }
        }
        None
    }
}

/// Reads the values in a default, which are in little-endian form, and checks them.
struct Walk<'a> {
    whole: &'a Described,
    bytes: &'a [u8],
    at: usize,
    steps: usize,
    /// For each plain enum that occurred, its sorted discriminants. The key is the number of the type. The
    /// discriminants are sorted only once, because a default may contain thousands of values of an enum with
    /// many variants.
    discriminants: HashMap<usize, Vec<i128>>,
}

impl<'a> Walk<'a> {
    fn procedure(&mut self, procedure: &'a DescribedProcedure) -> Result<(), String> {
        procedure.parameters.iter().try_for_each(|one| {
            self.parameter(one).map_err(|what| format!("`{}`: {what}", Brief(&one.name)))
        })
    }

    fn parameter(&mut self, one: &'a DescribedParameter) -> Result<(), &'static str> {
        let Some(default) = &one.growth.default else { return Ok(()) };
        match (one.direction, one.shape) {
            (Direction::InOut, _) => Err("an in-out parameter cannot have a default"),
            (Direction::Sink | Direction::Source, _) => Err("a stream cannot have a default"),
            (Direction::Callback, _) => Err("a callback cannot have a default"),
            (_, Shape::One) => self.whole(&one.ty, default),
            _ if default[..] == [0; 4] => Ok(()),
            _ => Err("the default of a buffer is always empty"),
        }
    }

    fn body(&mut self, body: &'a DescribedBody) -> Result<(), String> {
        let mut others = 0;
        match body {
            DescribedBody::Plain { fields, .. } | DescribedBody::Struct(fields) => {
                self.fields(fields)?;
            }
            DescribedBody::PlainEnum { variants, .. } => {
                others = variants.iter().filter(|one| one.is_other).count();
            }
            DescribedBody::Enum(variants) => {
                for variant in variants {
                    self.fields(&variant.fields)?;
                    let is_name = variant.fields.iter().all(|one| one.ty == DescribedType::Text);
                    if variant.is_other && (variant.fields.len() > 1 || !is_name) {
                        let name = Brief(&variant.name);
                        return Err(format!(
                            "`{name}` is for unknown variants: it may have no field except one text"
                        ));
                    }
                    others += usize::from(variant.is_other);
                }
            }
            DescribedBody::Interface { procedures, .. } => {
                procedures.iter().try_for_each(|one| self.procedure(one))?;
            }
        }
        match others {
            0 | 1 => Ok(()),
            _ => {
                Err("more than one variant is for unknown variants: an enum can have only one"
                    .into())
            }
        }
    }

    fn fields(&mut self, fields: &'a [DescribedField]) -> Result<(), String> {
        for field in fields {
            if let Some(default) = &field.growth.default {
                self.whole(&field.ty, default)
                    .map_err(|what| format!("`{}`: {what}", Brief(&field.name)))?;
            }
        }
        Ok(())
    }

    /// Checks that the bytes are exactly one value of the type `ty`.
    fn whole(&mut self, ty: &'a DescribedType, bytes: &'a [u8]) -> Result<(), &'static str> {
        (self.bytes, self.at) = (bytes, 0);
        self.value(ty, 0).ok_or(UNFIT)?;
        if self.at == bytes.len() && bytes.len() <= DEFAULT_BYTES_MAX { Ok(()) } else { Err(UNFIT) }
    }

    fn value(&mut self, ty: &'a DescribedType, depth: usize) -> Option<()> {
        self.steps += 1;
        if depth > CANONICAL_DEPTH_MAX || self.steps > STEPS_MAX {
            return None;
        }
        match ty {
            DescribedType::Unit => Some(()),
            DescribedType::Text => {
                let count = self.count()?;
                core::str::from_utf8(self.take(1, count)?).ok().map(drop)
            }
            DescribedType::Array(one, count) => self.values(one, *count, depth),
            DescribedType::Sequence(one) => {
                let count = self.count()? as u64;
                self.values(one, count, depth)
            }
            DescribedType::Option(one) => match self.take(1, 1)? {
                [0] => Some(()),
                [1] => self.value(one, depth + 1),
                _ => None,
            },
            DescribedType::Result(ok, error) => match self.take(1, 1)? {
                [0] => self.value(ok, depth + 1),
                [1] => self.value(error, depth + 1),
                _ => None,
            },
            DescribedType::Tuple(parts) => {
                parts.iter().try_for_each(|part| self.value(part, depth + 1))
            }
            DescribedType::Named(number) => match &self.whole.types.get(*number)?.body {
                DescribedBody::Plain { size, align, fields } => {
                    // The declared size and alignment may be invalid here, because they are checked later.
                    let at = self.at.checked_next_multiple_of(usize::try_from(*align).ok()?)?;
                    self.take(usize::try_from(*align).ok()?, usize::try_from(*size).ok()?)?;
                    self.plain_fields(fields, at, depth)
                }
                DescribedBody::PlainEnum { repr, variants } => {
                    let bytes = usize::try_from(repr.primitive_bytes()?).ok()?;
                    let value = integer(self.take(bytes, bytes)?, repr);
                    let known = self.discriminants.entry(*number).or_insert_with(|| {
                        let mut all: Vec<_> = variants.iter().map(|one| one.value).collect();
                        all.sort_unstable();
                        all
                    });
                    known.binary_search(&value).ok().map(drop)
                }
                DescribedBody::Struct(fields) => {
                    fields.iter().try_for_each(|field| self.value(&field.ty, depth + 1))
                }
                DescribedBody::Enum(variants) => {
                    let number = u32::from_le_bytes(self.take(4, 4)?.try_into().ok()?);
                    let fields = &variants.get(number as usize)?.fields;
                    fields.iter().try_for_each(|field| self.value(&field.ty, depth + 1))
                }
                DescribedBody::Interface { .. } => None,
            },
            primitive => {
                let bytes = usize::try_from(primitive.primitive_bytes()?).ok()?;
                let value = self.take(bytes, bytes)?;
                is_valid(primitive, value).then_some(())
            }
        }
    }

    /// Checks the fields of a plain value. The first field is at `at`, and there is no padding between
    /// fields.
    fn plain_fields(
        &mut self,
        fields: &'a [DescribedField],
        mut at: usize,
        depth: usize,
    ) -> Option<()> {
        let (bytes, end) = (self.bytes, self.at);
        for field in fields {
            let size = usize::try_from(self.whole.plain_bytes(&field.ty)?).ok()?;
            (self.bytes, self.at) = (bytes.get(at..at.checked_add(size)?)?, 0);
            self.value(&field.ty, depth + 1)?;
            at += size;
        }
        (self.bytes, self.at) = (bytes, end);
        Some(())
    }

    fn values(&mut self, one: &'a DescribedType, count: u64, depth: usize) -> Option<()> {
        (0..count).try_for_each(|_| self.value(one, depth + 1))
    }

    fn count(&mut self) -> Option<usize> {
        let count = u32::from_le_bytes(self.take(4, 4)?.try_into().ok()?);
        Some(count as usize)
    }

    /// Reads `count` bytes at the next multiple of `align`. The padding before these bytes must be zero.
    fn take(&mut self, align: usize, count: usize) -> Option<&'a [u8]> {
        if count == 0 {
            return Some(&[]);
        }
        let at = self.at.checked_next_multiple_of(align)?;
        let end = at.checked_add(count)?;
        let padding = self.bytes.get(self.at..at)?;
        let taken = self.bytes.get(at..end)?;
        self.at = end;
        padding.iter().all(|byte| *byte == 0).then_some(taken)
    }
}

/// Returns whether these bytes are a valid value of a primitive type.
fn is_valid(ty: &DescribedType, bytes: &[u8]) -> bool {
    match ty {
        DescribedType::Bool => bytes[0] <= 1,
        DescribedType::Char => {
            let bits = <[u8; 4]>::try_from(bytes).map(u32::from_le_bytes);
            bits.is_ok_and(|bits| char::from_u32(bits).is_some())
        }
        _ => true,
    }
}

/// Returns the value of a little-endian integer. A `u128` above `i128::MAX` becomes negative, as the
/// discriminants in a description do.
fn integer(bytes: &[u8], repr: &DescribedType) -> i128 {
    let is_negative = repr.signs().1 && bytes.last().is_some_and(|last| last & 0x80 != 0);
    let mut whole = [if is_negative { 0xff } else { 0 }; 16];
    whole[..bytes.len()].copy_from_slice(bytes);
    i128::from_le_bytes(whole)
}

#[cfg(test)]
mod tests {
    use crate::interface::Described;

    fn parse(lines: &str) -> Result<Described, String> {
        let text = format!("interface I version 1\n{lines}");
        let read = Described::parse(&text).map_err(|error| error.to_string())?;
        assert_eq!(read.to_string(), text);
        Ok(read)
    }

    #[test]
    fn growth_is_read_and_printed() {
        for lines in [
            "f was e was d(in a: u32 was b widens = x01000000) -> unit or text\n",
            "f(in a: [u8] max 5 = x00000000, in b: str = x00000000) -> unit or text\n",
            "f(in a: A#0) -> unit or text\nA#0 = struct {x: option<u8>, y: text = x0100000061}\n",
            "f() -> A#0 or text\nA#0 = enum B was C {} other Unknown {0: text}\n",
            "f() -> A#0 or text\nA#0 = enum other was X {} other other {}\n",
            "f() -> A#0 or text\nA#0 = plain enum u8 B=1 other C was D=255\n",
            "f() -> A#0 or text\nA#0 = plain 6 align 2 {x: u16, y: [u16; 2] = x01000200}\n",
            "f(in a: tuple<u8, u32> = x0100000002000000) -> unit or text\n",
        ] {
            parse(lines).unwrap();
        }
    }

    #[test]
    fn defaults_that_do_not_fit_are_refused() {
        for (lines, reason) in [
            ("f(in a: u32 = x0100) -> unit or text\n", "`a`: the default is not a value"),
            ("f(in a: u32 = x0100000000) -> unit or text\n", "`a`: the default is not a value"),
            ("f(in a: bool = x02) -> unit or text\n", "`a`: the default is not a value"),
            ("f(in a: char = x00d80000) -> unit or text\n", "`a`: the default is not a value"),
            ("f(in a: text = x01000000ff) -> unit or text\n", "`a`: the default is not a value"),
            ("f(in a: tuple<u8, u16> = x01010000) -> unit or text\n", "`a`: the default"),
            ("f(in a: sequence<unit> = xffffffff) -> unit or text\n", "`a`: the default"),
            ("f(inout a: u8 = x00) -> unit or text\n", "in-out"),
            ("f(in a: [u8] = x0100000001) -> unit or text\n", "always empty"),
            ("f(in a: u8 = x0) -> unit or text\n", "two digits each"),
            ("f(in a: u8 = x0G) -> unit or text\n", "two digits each"),
            (
                "f() -> A#0 or text\nA#0 = plain enum u8 B=1 other C=2 other D=3\n",
                "more than one variant",
            ),
            ("f() -> A#0 or text\nA#0 = enum other B {0: u8}\n", "unknown variants"),
            ("f(in a: A#0 = x02) -> unit or text\nA#0 = plain enum u8 B=1\n", "`a`: the default"),
            ("f(in a: A#0 = x01000000) -> unit or text\nA#0 = enum B {}\n", "`a`: the default"),
            ("f() -> A#0 or text\nA#0 = struct {x: option<A#0> = x0101}\n", "`x`: the default"),
        ] {
            let error = parse(lines).unwrap_err();
            assert!(error.contains(reason), "{error}\nrather than\n{reason}");
        }
    }
}
