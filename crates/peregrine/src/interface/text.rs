//! Reads a canonical text, which describes an interface.
//!
//! A peer may have sent the text, so the text is checked. Its length and the depth of its types are limited.
//! Numbers and names must follow the grammar (REPRESENTATION.md, part 6). Plain types must have the layout
//! that results from their fields. If an accepted text is parsed and printed again, the result is the same
//! text.

mod print;

use core::fmt::{self, Display};

pub(super) use print::InDescription;

use super::brief::Brief;
use super::described::{
    Described, DescribedBody, DescribedField, DescribedGrowth, DescribedNamed, DescribedParameter,
    DescribedPlainVariant, DescribedProcedure, DescribedType, DescribedVariant,
};
use super::{DEFAULT_BYTES_MAX, Direction, Shape};
use crate::limits;

/// The reason why a text is not a canonical text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    line: usize,
    what: String,
}

impl TextError {
    /// Makes the error of a foreign text.
    pub(super) fn foreign(line: usize, what: String) -> Self {
        Self { line, what: format!("the text for other RPC systems: {what}") }
    }

    /// Returns the number of the invalid line. The first line is 1.
    pub const fn line(&self) -> usize {
        self.line
    }

    /// Returns why the line is invalid, without the number of the line. Tools that read interfaces in other
    /// forms use this reason, with line numbers of those forms.
    ///
    /// ```
    /// use peregrine::interface::Described;
    ///
    /// let error = Described::parse("interface Add version x\n").unwrap_err();
    /// assert_eq!(error.to_string(), format!("line 1 of the interface's description: {}", error.reason()));
    /// ```
    pub fn reason(&self) -> &str {
        &self.what
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
    /// Fails if the text is not canonical, or exceeds [`limits::CANONICAL_BYTES_MAX`] or
    /// [`limits::CANONICAL_DEPTH_MAX`]. Also fails if the text describes an impossible type, such as a plain
    /// type whose size differs from that of its fields.
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
            let what = format!("`{}#{}` is described nowhere", Brief(name), types.len());
            return fail(last, what);
        }
        let described = Self {
            name: name.into(),
            version,
            docs: String::new(),
            procedures,
            types,
            programs: Vec::new(),
        };
        let impossible = described.impossible_callback();
        let impossible = impossible.or_else(|| described.impossible_growth());
        if let Some((line, what)) = impossible.or_else(|| described.impossible_procedure()) {
            return fail(line, what);
        }
        match described.impossible_plain() {
            Some((number, what)) => fail(described.procedures.len() + 2 + number, what),
            None => Ok(described),
        }
    }
}

/// The types that contain no other types, by their names in the text.
pub(crate) const SIMPLE: &[(&str, DescribedType)] = &[
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

/// Returns whether a line describes a named type. Such a line begins with `NAME#`.
fn begins_a_type(line: &str) -> bool {
    line.trim_start_matches(in_name).starts_with('#')
}

/// Returns whether an identifier or the name of an interface may contain this character.
fn in_name(c: char) -> bool {
    let beyond_ascii = !c.is_ascii() && !c.is_whitespace() && !c.is_control();
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.') || beyond_ascii
}

/// A parser of lines, one line after the other.
#[derive(Default)]
struct Reader<'a> {
    /// The part of the current line that was not read yet.
    rest: &'a str,
    /// The number of the current line.
    number: usize,
    /// The names of the named types that were mentioned. The index of a name is the number of its type.
    mentioned: Vec<&'a str>,
}

impl<'a> Reader<'a> {
    /// Reads a line with the function `one`, which must read the line to its end.
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
            format!("expected {wanted} at the end")
        } else {
            format!("expected {wanted}, found `{}`", found.escape_debug())
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

    /// Reads a decimal number. It must have the form in which numbers are printed: without `+`, and without
    /// leading zeros.
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
        let (idempotent, oneway) = (self.mark("idempotent "), self.mark("oneway "));
        let name = self.name()?.into();
        let was = self.was()?;
        self.expect("(")?;
        let parameters = self.list(")", Self::parameter)?;
        self.expect(" -> ")?;
        let result = self.ty(0)?;
        self.expect(" or ")?;
        let error = self.ty(0)?;
        Ok(DescribedProcedure {
            name,
            docs: String::new(),
            idempotent,
            oneway,
            was,
            parameters,
            result,
            error,
        })
    }

    /// Reads a mark, such as `oneway`, before the name of a procedure. A procedure may have the same word as
    /// its name. The number of words before the parameters shows which it is: the name, and pairs of `was`
    /// and an earlier name, are an odd number of words. With a mark, the number is even.
    fn mark(&mut self, word: &str) -> bool {
        let before = self.rest.split('(').next().unwrap_or_default();
        before.split(' ').count().is_multiple_of(2) && self.takes(word)
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
            return self.fail("a slice before this");
        }
        if direction.is_stream() && shape != Shape::One {
            return self.fail("the type of an item before this");
        }
        let is_name = shape == Shape::One && matches!(ty, DescribedType::Named(_));
        if *direction == Direction::Callback && !is_name {
            return self.fail("the name of an interface before this");
        }
        let max_len = if self.takes(" max ") { Some(self.number()?) } else { None };
        let growth = self.growth()?;
        Ok(DescribedParameter { name, direction: *direction, shape, ty, max_len, growth })
    }

    /// Reads earlier names. The word ` was ` precedes each of them.
    fn was(&mut self) -> Parsed<Vec<String>> {
        let mut was = Vec::new();
        while self.takes(" was ") {
            was.push(self.name()?.into());
        }
        Ok(was)
    }

    fn growth(&mut self) -> Parsed<DescribedGrowth> {
        let (was, widens) = (self.was()?, self.takes(" widens"));
        let default = if self.takes(" = x") { Some(self.hex()?) } else { None };
        Ok(DescribedGrowth { was, widens, default })
    }

    /// Reads bytes. Each byte consists of two hexadecimal digits in lower case.
    fn hex(&mut self) -> Parsed<Vec<u8>> {
        let is_digit = |c: char| c.is_ascii_digit() || matches!(c, 'a'..='f');
        let rest = self.rest.trim_start_matches(is_digit);
        let (digits, rest) = self.rest.split_at(self.rest.len() - rest.len());
        if digits.len() % 2 != 0 || digits.len() > 2 * DEFAULT_BYTES_MAX {
            return self.fail(&format!("at most {DEFAULT_BYTES_MAX} bytes, of two digits each"));
        }
        self.rest = rest;
        let digit = |c: u8| if c <= b'9' { c - b'0' } else { c - b'a' + 10 };
        let pairs = digits.as_bytes().as_chunks::<2>().0.iter();
        Ok(pairs.map(|&[high, low]| digit(high) << 4 | digit(low)).collect())
    }

    /// Reads a variant. Returns whether it is the variant for unknown variants, its name, and its earlier
    /// names. An ordinary variant may have the name `other`.
    fn variant(&mut self) -> Parsed<(bool, String, Vec<String>)> {
        let start = self.rest;
        let name = self.name()?;
        let was = self.was();
        let is_whole = was.is_ok() && (self.rest.starts_with(" {") || self.rest.starts_with('='));
        if !is_whole && name == "other" {
            self.rest = start;
            self.expect("other ")?;
            return Ok((true, self.name()?.into(), self.was()?));
        }
        Ok((false, name.into(), was?))
    }

    /// Reads `str`, `[type]`, or a type. The type may also be an array `[type; N]`.
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

    /// Reads the number of a named type. Either an earlier part of the text mentioned this type, or its
    /// number is the next one.
    fn mention(&mut self, name: &'a str) -> Parsed<DescribedType> {
        let number = self.number()?;
        match self.mentioned.get(number) {
            Some(known) if *known == name => {}
            None if number == self.mentioned.len() => self.mentioned.push(name),
            _ => {
                let what = format!(
                    "`{}#{number}` has a number out of order, or the number of another type",
                    Brief(name)
                );
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
            let what =
                format!("`{}#{told}` was not mentioned, or is described out of order", Brief(name));
            return Err(TextError { line: self.number, what });
        }
        self.expect(" = ")?;
        Ok(DescribedNamed { name: name.into(), body: self.body()? })
    }

    fn body(&mut self) -> Parsed<DescribedBody> {
        if self.takes("plain enum ") {
            let repr = self.ty(0)?;
            if !repr.is_integer() {
                return self.fail("an integer before this");
            }
            let mut variants = Vec::new();
            while self.takes(" ") {
                let (is_other, name, was) = self.variant()?;
                self.expect("=")?;
                let value = self.number()?;
                variants.push(DescribedPlainVariant { name, value, was, is_other });
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
        if self.takes("interface version ") {
            let version = self.number()?;
            self.expect(" {")?;
            let procedures = self.list_with("; ", "}", Self::procedure)?;
            return Ok(DescribedBody::Interface { version, procedures });
        }
        self.expect("enum")?;
        let mut variants = Vec::new();
        while self.takes(" ") {
            let (is_other, name, was) = self.variant()?;
            self.expect(" ")?;
            variants.push(DescribedVariant {
                name,
                fields: self.fields()?,
                was,
                is_other,
                case: None,
            });
        }
        Ok(DescribedBody::Enum(variants))
    }

    fn fields(&mut self) -> Parsed<Vec<DescribedField>> {
        self.expect("{")?;
        self.list("}", |reader| {
            let name = reader.name()?.into();
            reader.expect(": ")?;
            Ok(DescribedField { name, ty: reader.ty(0)?, growth: reader.growth()?, max: None })
        })
    }

    /// Reads a list of items with commas between them, up to `close`. The list may be empty.
    fn list<T>(&mut self, close: &str, one: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        self.list_with(", ", close, one)
    }

    fn list_with<T>(
        &mut self,
        separator: &str,
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
            self.expect(separator)?;
        }
    }
}

const DIRECTIONS: &[(&str, Direction)] = &[
    ("in ", Direction::In),
    ("lent ", Direction::Lent),
    ("out ", Direction::Out),
    ("inout ", Direction::InOut),
    ("sink ", Direction::Sink),
    ("source ", Direction::Source),
    ("callback ", Direction::Callback),
];

fn only(mut parts: Vec<DescribedType>) -> Box<DescribedType> {
    Box::new(parts.swap_remove(0))
}

#[cfg(test)]
mod tests;
