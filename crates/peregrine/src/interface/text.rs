//! The canonical text read back: an interface as somebody else describes it.
//!
//! The text comes from a peer, so nothing in it is believed: its length and the depth of its types
//! are bounded, numbers and names are those of the grammar (REPRESENTATION.md, part 6), and plain
//! types have the layout that their fields give. What is accepted prints the same text again.

mod print;

use core::fmt::{self, Display};

use super::{Direction, Shape};
use crate::limits;

/// An interface as a canonical text describes it.
///
/// ```
/// use peregrine::interface::{Described, DescribedType};
///
/// let text = "interface Add version 0\nadd(in a: i32, in b: i32) -> i32 or text\n";
/// let add = Described::parse(text)?;
/// assert_eq!(add.procedures[0].parameters[1].ty, DescribedType::I32);
/// assert_eq!(add.to_string(), text);
/// # Ok::<(), peregrine::interface::TextError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: u32,
    /// The procedures; their position is their number.
    pub procedures: Vec<DescribedProcedure>,
    /// The named types; their position is the number by which [`DescribedType::Named`] means them.
    pub types: Vec<DescribedNamed>,
}

/// A procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedProcedure {
    /// Its name.
    pub name: String,
    /// Whether it may safely run twice.
    pub idempotent: bool,
    /// The parameters in order.
    pub parameters: Vec<DescribedParameter>,
    /// What `Ok` carries.
    pub result: DescribedType,
    /// What `Err` carries.
    pub error: DescribedType,
}

/// A parameter of a procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedParameter {
    /// Its name.
    pub name: String,
    /// In which direction it travels.
    pub direction: Direction,
    /// Whether it is one value, a buffer of them, or text.
    pub shape: Shape,
    /// The type of the value, or of one element; [`DescribedType::Text`] for text.
    pub ty: DescribedType,
    /// The largest number of elements (bytes, for text).
    pub max_len: Option<u32>,
}

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DescribedType {
    /// `()`: no bytes.
    Unit,
    /// One byte, 0 or 1.
    Bool,
    /// A Unicode scalar value in four bytes.
    Char,
    /// UTF-8.
    Text,
    /// An unsigned byte.
    U8,
    /// Two bytes, unsigned.
    U16,
    /// Four bytes, unsigned.
    U32,
    /// Eight bytes, unsigned.
    U64,
    /// Sixteen bytes, unsigned.
    U128,
    /// A signed byte.
    I8,
    /// Two bytes, signed.
    I16,
    /// Four bytes, signed.
    I32,
    /// Eight bytes, signed.
    I64,
    /// Sixteen bytes, signed.
    I128,
    /// IEEE 754, four bytes.
    F32,
    /// IEEE 754, eight bytes.
    F64,
    /// So many of them.
    Array(Box<Self>, u64),
    /// A count and so many of them.
    Sequence(Box<Self>),
    /// Present or absent.
    Option(Box<Self>),
    /// Either.
    Result(Box<Self>, Box<Self>),
    /// One after the other.
    Tuple(Vec<Self>),
    /// That of this number in [`Described::types`].
    Named(usize),
}

/// A named type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedNamed {
    /// Its name; others may have the same.
    pub name: String,
    /// What it is made of.
    pub body: DescribedBody,
}

/// What a named type is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DescribedBody {
    /// Plain: its fields follow each other without a gap.
    Plain {
        /// Bytes it takes: those of its fields.
        size: u64,
        /// Its alignment in bytes: 1, 2, 4, 8 or 16.
        align: u64,
        /// Its fields, in memory order, all plain.
        fields: Vec<DescribedField>,
    },
    /// Plain: an enumeration without payload.
    PlainEnum {
        /// The integer that holds the discriminant.
        repr: DescribedType,
        /// The allowed values.
        variants: Vec<(String, i128)>,
    },
    /// Structured: its fields one after the other.
    Struct(Vec<DescribedField>),
    /// Structured: the number of the variant (u32), then its fields.
    Enum(Vec<DescribedVariant>),
}

/// A field of a named type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedField {
    /// Its name, or its number in a tuple.
    pub name: String,
    /// Its type.
    pub ty: DescribedType,
}

/// A variant of a structured enumeration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedVariant {
    /// Its name.
    pub name: String,
    /// Its fields, perhaps none.
    pub fields: Vec<DescribedField>,
}

/// Why a text is not the canonical text of any interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    line: usize,
    what: String,
}

impl TextError {
    /// The line that is wrong, the first being 1.
    pub const fn line(&self) -> usize {
        self.line
    }
}

impl Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} of the interface's description: {}", self.line, self.what)
    }
}

impl core::error::Error for TextError {}

type Parsed<T> = Result<T, TextError>;

impl Described {
    /// Reads a canonical text.
    ///
    /// # Errors
    /// If it is none, says what it cannot mean (a plain type of another size than its fields), or is
    /// beyond [`limits::CANONICAL_BYTES_MAX`] or [`limits::CANONICAL_DEPTH_MAX`].
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let fail = |line, what: String| Err(TextError { line, what });
        if text.len() > limits::CANONICAL_BYTES_MAX {
            let max = limits::CANONICAL_BYTES_MAX;
            return fail(1, format!("{} bytes are more than {max}", text.len()));
        }
        let Some(lines) = text.strip_suffix('\n') else {
            return fail(text.lines().count().max(1), "does not end with a line feed".into());
        };
        let mut lines = lines.split('\n').zip(1..).peekable();
        let mut reader = Reader::default();

        let first = lines.next().unwrap_or_default();
        let (name, version) = reader.line(first, Reader::title)?;
        let mut procedures = Vec::new();
        while let Some(one) = lines.next_if(|(text, _)| !begins_a_type(text)) {
            procedures.push(reader.line(one, Reader::procedure)?);
        }
        let mut types = Vec::new();
        let mut last = procedures.len() + 1;
        for one in lines {
            last = one.1;
            let number = types.len();
            types.push(reader.line(one, |reader| reader.named(number))?);
        }
        if let Some(name) = reader.mentioned.get(types.len()) {
            return fail(last, format!("`{name}#{}` is described nowhere", types.len()));
        }
        let described = Self { name: name.into(), version, procedures, types };
        match described.impossible_plain() {
            Some((number, what)) => fail(described.procedures.len() + 2 + number, what),
            None => Ok(described),
        }
    }

    /// Bytes that a plain value takes; `None` if values of the type are not plain.
    pub fn plain_bytes(&self, ty: &DescribedType) -> Option<u64> {
        Some(match ty {
            DescribedType::Array(one, count) if *count > 0 => {
                self.plain_bytes(one)?.checked_mul(*count)?
            }
            DescribedType::Named(number) => match &self.types.get(*number)?.body {
                DescribedBody::Plain { size, .. } => *size,
                DescribedBody::PlainEnum { repr, .. } => repr.primitive_bytes()?,
                DescribedBody::Struct(_) | DescribedBody::Enum(_) => return None,
            },
            primitive => primitive.primitive_bytes()?,
        })
    }

    /// The alignment of a plain value; `None` if values of the type are not plain.
    pub fn plain_alignment(&self, ty: &DescribedType) -> Option<u64> {
        Some(match ty {
            DescribedType::Array(one, count) if *count > 0 => self.plain_alignment(one)?,
            DescribedType::Named(number) => match &self.types.get(*number)?.body {
                DescribedBody::Plain { align, .. } => *align,
                DescribedBody::PlainEnum { repr, .. } => repr.primitive_bytes()?,
                DescribedBody::Struct(_) | DescribedBody::Enum(_) => return None,
            },
            primitive => primitive.primitive_bytes()?,
        })
    }

    /// The first plain type that cannot be as it is described, and why.
    fn impossible_plain(&self) -> Option<(usize, String)> {
        for (number, named) in self.types.iter().enumerate() {
            match &named.body {
                DescribedBody::Plain { size, align, fields } => {
                    let what = self.impossible_fields(*size, *align, fields);
                    if let Some(what) = what {
                        return Some((number, what));
                    }
                }
                DescribedBody::PlainEnum { repr, variants } => {
                    let outside = variants.iter().find(|(_, value)| !repr.holds(*value));
                    if let Some((name, _)) = outside {
                        return Some((number, format!("`{name}` is outside of its integer")));
                    }
                }
                DescribedBody::Struct(_) | DescribedBody::Enum(_) => {}
            }
        }
        self.plain_in_itself().map(|number| (number, "a plain type contains itself".into()))
    }

    fn impossible_fields(
        &self,
        size: u64,
        align: u64,
        fields: &[DescribedField],
    ) -> Option<String> {
        let mut sum = 0u64;
        for field in fields {
            let Some(bytes) = self.plain_bytes(&field.ty) else {
                return Some(format!("the field `{}` of a plain type is not plain", field.name));
            };
            sum = sum.saturating_add(bytes);
        }
        if sum != size || size == 0 {
            return Some(format!("a plain type of {size} bytes has fields of {sum} bytes"));
        }
        let possible = align.is_power_of_two() && align <= 16 && size.is_multiple_of(align);
        (!possible).then(|| format!("a type of {size} bytes is not aligned to {align}"))
    }

    /// A plain type that is a part of itself, if there is one. Types are taken away whose plain parts
    /// are all gone; what is left goes in circles.
    fn plain_in_itself(&self) -> Option<usize> {
        let mut parts: Vec<usize> = vec![0; self.types.len()];
        let mut wholes: Vec<Vec<usize>> = vec![Vec::new(); self.types.len()];
        for (number, named) in self.types.iter().enumerate() {
            let DescribedBody::Plain { fields, .. } = &named.body else { continue };
            for part in fields.iter().filter_map(|field| field.ty.plain_part()) {
                parts[number] += 1;
                wholes[part].push(number);
            }
        }
        let mut gone: Vec<usize> = (0..parts.len()).filter(|&one| parts[one] == 0).collect();
        while let Some(part) = gone.pop() {
            for whole in core::mem::take(&mut wholes[part]) {
                parts[whole] -= 1;
                if parts[whole] == 0 {
                    gone.push(whole);
                }
            }
        }
        parts.iter().position(|&left| left > 0)
    }
}

/// Types without parts, by their names in the text.
const SIMPLE: &[(&str, DescribedType)] = &[
    ("unit", DescribedType::Unit),
    ("bool", DescribedType::Bool),
    ("char", DescribedType::Char),
    ("text", DescribedType::Text),
    ("u8", DescribedType::U8),
    ("u16", DescribedType::U16),
    ("u32", DescribedType::U32),
    ("u64", DescribedType::U64),
    ("u128", DescribedType::U128),
    ("i8", DescribedType::I8),
    ("i16", DescribedType::I16),
    ("i32", DescribedType::I32),
    ("i64", DescribedType::I64),
    ("i128", DescribedType::I128),
    ("f32", DescribedType::F32),
    ("f64", DescribedType::F64),
];

impl DescribedType {
    /// Bytes of a primitive type.
    fn primitive_bytes(&self) -> Option<u64> {
        Some(match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 => 2,
            Self::Char | Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
            Self::U128 | Self::I128 => 16,
            _ => return None,
        })
    }

    /// The named type in it, through arrays.
    fn plain_part(&self) -> Option<usize> {
        match self {
            Self::Array(one, _) => one.plain_part(),
            Self::Named(number) => Some(*number),
            _ => None,
        }
    }

    fn is_integer(&self) -> bool {
        let (unsigned, signed) = self.signs();
        unsigned || signed
    }

    /// Whether it is an unsigned integer, and whether a signed one.
    fn signs(&self) -> (bool, bool) {
        let unsigned = matches!(self, Self::U8 | Self::U16 | Self::U32 | Self::U64 | Self::U128);
        let signed = matches!(self, Self::I8 | Self::I16 | Self::I32 | Self::I64 | Self::I128);
        (unsigned, signed)
    }

    /// Whether an integer of this type has the value.
    fn holds(&self, value: i128) -> bool {
        let bits = self.primitive_bytes().unwrap_or(0) * 8;
        match self.signs() {
            (true, _) => value >= 0 && (bits == 128 || value >> bits == 0),
            (_, true) => bits == 128 || matches!(value >> (bits - 1), 0 | -1),
            _ => false,
        }
    }
}

/// A line that describes a named type begins with `NAME#`.
fn begins_a_type(line: &str) -> bool {
    line.trim_start_matches(in_name).starts_with('#')
}

/// Letters of a name: of an identifier, or of an interface's name.
fn in_name(c: char) -> bool {
    let beyond_ascii = !c.is_ascii() && !c.is_whitespace() && !c.is_control();
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.') || beyond_ascii
}

/// Reads lines one after the other.
#[derive(Default)]
struct Reader<'a> {
    /// What is left of the line.
    rest: &'a str,
    /// The line's number.
    number: usize,
    /// Names of the named types that were mentioned, by their numbers.
    mentioned: Vec<&'a str>,
}

impl<'a> Reader<'a> {
    /// Reads all of a line by `one`.
    fn line<T>(
        &mut self,
        (rest, number): (&'a str, usize),
        one: impl FnOnce(&mut Self) -> Parsed<T>,
    ) -> Parsed<T> {
        (self.rest, self.number) = (rest, number);
        let read = one(self)?;
        if self.rest.is_empty() { Ok(read) } else { self.fail("the line's end") }
    }

    fn fail<T>(&self, wanted: &str) -> Parsed<T> {
        let found: String = self.rest.chars().take(24).collect();
        let what = if found.is_empty() {
            format!("ends where {wanted} should stand")
        } else {
            format!("`{}` stands where {wanted} should", found.escape_debug())
        };
        Err(TextError { line: self.number, what })
    }

    fn takes(&mut self, what: &str) -> bool {
        let rest = self.rest.strip_prefix(what);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, what: &str) -> Parsed<()> {
        if self.takes(what) { Ok(()) } else { self.fail(&format!("`{what}`")) }
    }

    fn name(&mut self) -> Parsed<&'a str> {
        let rest = self.rest.trim_start_matches(in_name);
        let (name, rest) = self.rest.split_at(self.rest.len() - rest.len());
        if name.is_empty() {
            return self.fail("a name");
        }
        self.rest = rest;
        Ok(name)
    }

    /// A decimal number as it is printed: no sign but the minus, no zero in front.
    fn number<N: core::str::FromStr + Display>(&mut self) -> Parsed<N> {
        let digits = self.rest.strip_prefix('-').unwrap_or(self.rest);
        let rest = digits.trim_start_matches(|c: char| c.is_ascii_digit());
        let (digits, rest) = self.rest.split_at(self.rest.len() - rest.len());
        match digits.parse::<N>() {
            Ok(number) if number.to_string() == digits => {
                self.rest = rest;
                Ok(number)
            }
            _ => self.fail("a number in range"),
        }
    }

    fn title(&mut self) -> Parsed<(&'a str, u32)> {
        self.expect("interface ")?;
        let name = self.name()?;
        self.expect(" version ")?;
        Ok((name, self.number()?))
    }

    fn procedure(&mut self) -> Parsed<DescribedProcedure> {
        let idempotent = self.takes("idempotent ");
        let name = self.name()?.into();
        self.expect("(")?;
        let parameters = self.list(")", Self::parameter)?;
        self.expect(" -> ")?;
        let result = self.ty(0)?;
        self.expect(" or ")?;
        let error = self.ty(0)?;
        Ok(DescribedProcedure { name, idempotent, parameters, result, error })
    }

    fn parameter(&mut self) -> Parsed<DescribedParameter> {
        let Some((_, direction)) = DIRECTIONS.iter().find(|(text, _)| self.takes(text)) else {
            return self.fail("a direction");
        };
        let name = self.name()?.into();
        self.expect(": ")?;
        let (shape, ty) = self.shape()?;
        if *direction != Direction::In && shape == Shape::Text
            || matches!(direction, Direction::Lent | Direction::Out) && shape == Shape::One
        {
            return self.fail("a slice, before this,");
        }
        let max_len = if self.takes(" max ") { Some(self.number()?) } else { None };
        Ok(DescribedParameter { name, direction: *direction, shape, ty, max_len })
    }

    /// `str`, `[type]` or a type, which may be an array `[type; N]`.
    fn shape(&mut self) -> Parsed<(Shape, DescribedType)> {
        if self.rest.trim_start_matches(in_name).len() + 3 == self.rest.len() && self.takes("str") {
            return Ok((Shape::Text, DescribedType::Text));
        }
        if !self.takes("[") {
            return Ok((Shape::One, self.ty(0)?));
        }
        let one = self.ty(1)?;
        if self.takes("]") {
            return Ok((Shape::Buffer, one));
        }
        Ok((Shape::One, self.array_of(one)?))
    }

    fn array_of(&mut self, one: DescribedType) -> Parsed<DescribedType> {
        self.expect("; ")?;
        let count = self.number()?;
        self.expect("]")?;
        Ok(DescribedType::Array(Box::new(one), count))
    }

    fn ty(&mut self, depth: usize) -> Parsed<DescribedType> {
        if depth > limits::CANONICAL_DEPTH_MAX {
            return self.fail("a type that is nested less deeply");
        }
        if self.takes("[") {
            let one = self.ty(depth + 1)?;
            return self.array_of(one);
        }
        let before = self.rest;
        let name = self.name()?;
        if self.takes("#") {
            return self.mention(name);
        }
        if self.takes("<") {
            let parts = self.list(">", |reader| reader.ty(depth + 1))?;
            return match (name, parts.len()) {
                ("tuple", 1..) => Ok(DescribedType::Tuple(parts)),
                ("sequence", 1) => Ok(DescribedType::Sequence(only(parts))),
                ("option", 1) => Ok(DescribedType::Option(only(parts))),
                ("result", 2) => {
                    let mut parts = parts.into_iter().map(Box::new);
                    let (Some(ok), Some(err)) = (parts.next(), parts.next()) else {
                        return self.fail("a type");
                    };
                    Ok(DescribedType::Result(ok, err))
                }
                _ => {
                    self.rest = before;
                    self.fail("a type")
                }
            };
        }
        match SIMPLE.iter().find(|(simple, _)| *simple == name) {
            Some((_, ty)) => Ok(ty.clone()),
            None => {
                self.rest = before;
                self.fail("a type")
            }
        }
    }

    /// The number of a named type: that of one mentioned before, or the next one.
    fn mention(&mut self, name: &'a str) -> Parsed<DescribedType> {
        let number = self.number()?;
        match self.mentioned.get(number) {
            Some(known) if *known == name => {}
            None if number == self.mentioned.len() => self.mentioned.push(name),
            _ => {
                let what = format!("`{name}#{number}` is not the type of that number");
                return Err(TextError { line: self.number, what });
            }
        }
        Ok(DescribedType::Named(number))
    }

    fn named(&mut self, number: usize) -> Parsed<DescribedNamed> {
        let name = self.name()?;
        self.expect("#")?;
        let told: usize = self.number()?;
        if told != number || self.mentioned.get(number) != Some(&name) {
            let what = format!("`{name}#{told}` was not mentioned, or not in this order");
            return Err(TextError { line: self.number, what });
        }
        self.expect(" = ")?;
        Ok(DescribedNamed { name: name.into(), body: self.body()? })
    }

    fn body(&mut self) -> Parsed<DescribedBody> {
        if self.takes("plain enum ") {
            let repr = self.ty(0)?;
            if !repr.is_integer() {
                return self.fail("an integer, before this,");
            }
            let mut variants = Vec::new();
            while self.takes(" ") {
                let name = self.name()?.into();
                self.expect("=")?;
                variants.push((name, self.number()?));
            }
            return Ok(DescribedBody::PlainEnum { repr, variants });
        }
        if self.takes("plain ") {
            let size = self.number()?;
            self.expect(" align ")?;
            let align = self.number()?;
            self.expect(" ")?;
            return Ok(DescribedBody::Plain { size, align, fields: self.fields()? });
        }
        if self.takes("struct ") {
            return Ok(DescribedBody::Struct(self.fields()?));
        }
        self.expect("enum")?;
        let mut variants = Vec::new();
        while self.takes(" ") {
            let name = self.name()?.into();
            self.expect(" ")?;
            variants.push(DescribedVariant { name, fields: self.fields()? });
        }
        Ok(DescribedBody::Enum(variants))
    }

    fn fields(&mut self) -> Parsed<Vec<DescribedField>> {
        self.expect("{")?;
        self.list("}", |reader| {
            let name = reader.name()?.into();
            reader.expect(": ")?;
            Ok(DescribedField { name, ty: reader.ty(0)? })
        })
    }

    /// What stands before `close`, with commas between; perhaps nothing.
    fn list<T>(
        &mut self,
        close: &str,
        mut one: impl FnMut(&mut Self) -> Parsed<T>,
    ) -> Parsed<Vec<T>> {
        let mut all = Vec::new();
        if self.takes(close) {
            return Ok(all);
        }
        loop {
            all.push(one(self)?);
            if self.takes(close) {
                return Ok(all);
            }
            self.expect(", ")?;
        }
    }
}

const DIRECTIONS: &[(&str, Direction)] = &[
    ("in ", Direction::In),
    ("lent ", Direction::Lent),
    ("out ", Direction::Out),
    ("inout ", Direction::InOut),
];

fn only(mut parts: Vec<DescribedType>) -> Box<DescribedType> {
    Box::new(parts.swap_remove(0))
}

#[cfg(test)]
mod tests;
