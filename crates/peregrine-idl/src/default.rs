//! Evaluates the expression of `#[default(...)]`, if it consists of literals.
//!
//! For source code that is compiled, the compiler evaluates any expression. This crate has only the text, so
//! the expression must consist of literals and of simple combinations of them. These are structs, variants,
//! tuples, arrays, `vec![]`, `Some`, `None`, `Box::new`, and texts. The expression may also contain floats
//! that have no literals, such as `f64::NAN`, and `new` or `from` of some types of the standard library.

use peregrine::interface::{Described, DescribedBody, DescribedField, DescribedType};
use proc_macro2::{Span, TokenStream, TokenTree};
use syn::parse::discouraged::Speculative as _;
use syn::parse::{ParseBuffer, ParseStream, Parser as _};
use syn::{Error, Ident, Lit, LitInt, LitStr, Result, Token, token};

use crate::library::{self, Constructor};
use crate::tokens::{braces, brackets, expected, keyword, list, name, number, parentheses, sign};

/// The largest number of values in a default. Values that take no bytes, such as `()`, count, too.
const VALUES_MAX: usize = 1 << 16;

/// A default as the source text contains it: `#[default]`, or `#[default(expression)]`.
#[derive(Clone, Debug)]
pub(crate) enum Written {
    OfType,
    Expression(TokenStream),
}

/// Returns the bytes of a default of the type `ty`, as `peregrine::value::default_bytes` would return them.
pub(crate) fn bytes(
    described: &Described,
    ty: &DescribedType,
    written: &Written,
    span: Span,
) -> Result<Vec<u8>> {
    let mut encoder = Encoder { described, bytes: Vec::new(), count: 0, span };
    match written {
        Written::OfType => encoder.of_type(ty)?,
        Written::Expression(tokens) => {
            let parser = |input: ParseStream<'_>| {
                encoder.value(input, ty)?;
                if input.is_empty() { Ok(()) } else { Err(expected(input, "the end")) }
            };
            parser.parse2(tokens.clone())?;
        }
    }
    Ok(encoder.bytes)
}

struct Encoder<'a> {
    described: &'a Described,
    bytes: Vec<u8>,
    count: usize,
    span: Span,
}

impl Encoder<'_> {
    fn one_more(&mut self, span: Span) -> Result<()> {
        self.count += 1;
        match self.count <= VALUES_MAX {
            true => Ok(()),
            false => Err(Error::new(span, format!("a default has at most {VALUES_MAX} values"))),
        }
    }

    fn align(&mut self, align: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(align.max(1)), 0);
    }

    /// Appends a number that takes `bytes` bytes, in little-endian order.
    fn number(&mut self, bytes: usize, value: i128) {
        self.align(bytes);
        self.bytes.extend(&value.to_le_bytes()[..bytes]);
    }

    /// Returns the size in bytes if `ty` is a number, a `bool` or a `char`.
    fn size(&self, ty: &DescribedType) -> Option<usize> {
        let is_simple = !matches!(ty, DescribedType::Named(_) | DescribedType::Array(..));
        self.described.plain_bytes(ty).filter(|_| is_simple).map(|bytes| bytes as usize)
    }

    /// Appends the value that `Default::default()` returns for a type.
    fn of_type(&mut self, ty: &DescribedType) -> Result<()> {
        self.one_more(self.span)?;
        match ty {
            DescribedType::Unit => {}
            DescribedType::Text | DescribedType::Sequence(_) => self.number(4, 0),
            DescribedType::Option(_) => self.number(1, 0),
            DescribedType::Array(one, count) => {
                for _ in 0..*count {
                    self.of_type(one)?;
                }
            }
            DescribedType::Tuple(parts) => {
                for part in parts {
                    self.of_type(part)?;
                }
            }
            simple => match self.size(simple) {
                Some(bytes) => self.number(bytes, 0),
                None => {
                    let what = "the default of this type is not in the text; write `#[default(...)]` \
                                with a value";
                    return Err(Error::new(self.span, what));
                }
            },
        }
        Ok(())
    }

    fn value(&mut self, input: ParseStream<'_>, ty: &DescribedType) -> Result<()> {
        self.one_more(input.span())?;
        if is_default(input) {
            return self.of_type(ty);
        }
        if let Some(inside) = boxed(input) {
            return self.each(&inside?, core::iter::once(ty));
        }
        match ty {
            DescribedType::Unit => {
                parentheses(input)?;
            }
            DescribedType::Text => {
                let text = text(input)?;
                self.number(4, text.len() as i128);
                self.bytes.extend(text.as_bytes());
            }
            DescribedType::Array(one, count) => {
                let inside = brackets(input)?;
                let mut found = 0;
                while !inside.is_empty() {
                    let before = inside.fork();
                    let bytes = self.bytes.len();
                    self.value(&inside, one)?;
                    found += 1;
                    if found == 1 && keyword::<Token![;]>(&inside) {
                        inside.parse::<TokenStream>()?;
                        if self.bytes.len() == bytes {
                            return Ok(());
                        }
                        return (1..*count).try_for_each(|_| self.value(&before.fork(), one));
                    }
                    if !inside.is_empty() {
                        sign::<Token![,]>(&inside, "`,`")?;
                    }
                }
                if found != *count {
                    return Err(expected(&inside, format_args!("{count} values")));
                }
            }
            DescribedType::Sequence(one) => self.sequence(input, one)?,
            DescribedType::Option(one) => {
                let (word, span) = name(input)?;
                match &*word {
                    "None" => self.number(1, 0),
                    "Some" => {
                        self.number(1, 1);
                        self.value(&parentheses(input)?, one)?;
                    }
                    _ => return Err(Error::new(span, "expected `None` or `Some(...)`")),
                }
            }
            DescribedType::Result(ok, error) => {
                let (word, span) = name(input)?;
                let (number, ty) = match &*word {
                    "Ok" => (0, ok),
                    "Err" => (1, error),
                    _ => return Err(Error::new(span, "expected `Ok(...)` or `Err(...)`")),
                };
                self.number(1, number);
                self.value(&parentheses(input)?, ty)?;
            }
            DescribedType::Tuple(parts) => {
                let inside = parentheses(input)?;
                self.each(&inside, parts.iter())?;
            }
            DescribedType::Named(number) => self.named(input, *number)?,
            simple => self.simple(input, simple)?,
        }
        Ok(())
    }

    /// Appends one value for each of `types`. In the input, commas separate the values.
    fn each<'t>(
        &mut self,
        inside: ParseStream<'_>,
        types: impl Iterator<Item = &'t DescribedType>,
    ) -> Result<()> {
        for ty in types {
            self.value(inside, ty)?;
            if !inside.is_empty() {
                sign::<Token![,]>(inside, "`,`")?;
            }
        }
        if inside.is_empty() { Ok(()) } else { Err(expected(inside, "no further value")) }
    }

    fn sequence(&mut self, input: ParseStream<'_>, one: &DescribedType) -> Result<()> {
        let (word, span) = name(input)?;
        if word == "Vec" && keyword::<Token![::]>(input) {
            name(input)?;
            parentheses(input)?;
            self.number(4, 0);
            return Ok(());
        }
        if word != "vec" || !keyword::<Token![!]>(input) {
            return Err(Error::new(span, "expected `vec![...]` or `Vec::new()`"));
        }
        let inside = brackets(input)?;
        self.align(4);
        let at = self.bytes.len();
        self.number(4, 0);
        let mut count = 0u32;
        let first = inside.fork();
        let bytes = self.bytes.len();
        while !inside.is_empty() {
            count += 1;
            self.value(&inside, one)?;
            if count == 1 && keyword::<Token![;]>(&inside) {
                count = number(&inside, "u32")?;
                let has_bytes = self.bytes.len() > bytes;
                // At this point the first value is already appended. If the count is 0, this value is
                // removed.
                if count == 0 {
                    self.bytes.truncate(bytes);
                }
                let more = if has_bytes { count.saturating_sub(1) } else { 0 };
                (0..more).try_for_each(|_| self.value(&first.fork(), one))?;
                if !inside.is_empty() {
                    return Err(expected(&inside, "no further value"));
                }
            } else if !inside.is_empty() {
                sign::<Token![,]>(&inside, "`,`")?;
            }
        }
        self.bytes[at..at + 4].copy_from_slice(&count.to_le_bytes());
        Ok(())
    }

    fn named(&mut self, input: ParseStream<'_>, number: usize) -> Result<()> {
        let described = self.described;
        let Some(named) = described.types.get(number) else {
            return Err(expected(input, "a value"));
        };
        // The last name in the path is the name of the struct or of the variant.
        let Path { word, span, .. } = path(input)?;
        match &named.body {
            DescribedBody::Struct(fields) => {
                let types = fields.iter().map(|field| &field.ty);
                match (library::constructor_of(described, named), &*word) {
                    (Some(Constructor::FromText), "from") => {
                        let inside = parentheses(input)?;
                        self.value(&inside, &DescribedType::Text)
                    }
                    (Some(Constructor::New), "new") | (Some(Constructor::From), "from") => {
                        self.each(&parentheses(input)?, types)
                    }
                    _ => self.fields(input, fields),
                }
            }
            DescribedBody::Plain { align, fields, .. } => {
                self.align(*align as usize);
                self.plain_fields(input, fields)
            }
            DescribedBody::PlainEnum { repr, variants } => {
                let variant = variants.iter().find(|one| one.name == word);
                let variant = variant.ok_or_else(|| unknown(span, &word))?;
                let bytes = self.size(repr).unwrap_or(1);
                self.number(bytes, variant.value);
                Ok(())
            }
            DescribedBody::Enum(variants) => {
                let found = variants.iter().position(|one| one.name == word);
                let found = found.ok_or_else(|| unknown(span, &word))?;
                self.number(4, found as i128);
                self.fields(input, &variants[found].fields)
            }
            _ => Err(Error::new(span, "the default of this type cannot be evaluated")),
        }
    }

    /// Appends the fields of a struct or a variant.
    fn fields(&mut self, input: ParseStream<'_>, fields: &[DescribedField]) -> Result<()> {
        for (field, tokens) in fields.iter().zip(written(input, fields)?) {
            let parser = |input: ParseStream<'_>| self.value(input, &field.ty);
            parser.parse2(tokens)?;
        }
        Ok(())
    }

    /// Appends the fields of a plain value. A plain value has no padding between its fields.
    fn plain_fields(&mut self, input: ParseStream<'_>, fields: &[DescribedField]) -> Result<()> {
        for (field, tokens) in fields.iter().zip(written(input, fields)?) {
            let mut one = Encoder { bytes: Vec::new(), ..*self };
            let parser = |input: ParseStream<'_>| one.value(input, &field.ty);
            parser.parse2(tokens)?;
            self.count = one.count;
            self.bytes.extend(one.bytes);
        }
        Ok(())
    }

    /// Appends a number, a `bool` or a `char`.
    fn simple(&mut self, input: ParseStream<'_>, ty: &DescribedType) -> Result<()> {
        let bytes = self.size(ty).unwrap_or(1);
        let span = input.span();
        if matches!(ty, DescribedType::F32 | DescribedType::F64) && input.peek(Ident) {
            let bits = constant(input, *ty == DescribedType::F64)?;
            self.number(bytes, bits.into());
            return Ok(());
        }
        let minus = keyword::<Token![-]>(input);
        if !input.peek(Lit) {
            let what = "expected a literal: a default in a text is written with literals only";
            return Err(Error::new(span, what));
        }
        let literal: Lit = input.parse()?;
        let unfit = |_| Error::new(span, "this literal does not fit the type of the default");
        let sign = if minus { "-" } else { "" };
        let value: i128 = match (&literal, ty) {
            (Lit::Bool(one), DescribedType::Bool) => one.value.into(),
            (Lit::Char(one), DescribedType::Char) => u32::from(one.value()).into(),
            (Lit::Byte(one), DescribedType::U8) => one.value().into(),
            (Lit::Float(_) | Lit::Int(_), DescribedType::F32) => {
                let number: f32 = digits(&literal, sign).parse().map_err(|_| unfit(()))?;
                number.to_bits().into()
            }
            (Lit::Float(_) | Lit::Int(_), DescribedType::F64) => {
                let number: f64 = digits(&literal, sign).parse().map_err(|_| unfit(()))?;
                number.to_bits().into()
            }
            (Lit::Int(_), DescribedType::U128) => {
                let number: u128 = digits(&literal, sign).parse().map_err(|_| unfit(()))?;
                number as i128
            }
            (Lit::Int(_), integer) => {
                let number: i128 = digits(&literal, sign).parse().map_err(|_| unfit(()))?;
                let bits = 8 * bytes as u32;
                let name = self.described.type_text(integer);
                let fits = match (name.as_bytes().first(), bits) {
                    (_, 128) => true,
                    (Some(b'u'), _) => number >= 0 && number >> bits == 0,
                    (Some(b'i'), _) => matches!(number >> (bits - 1), 0 | -1),
                    _ => false,
                };
                if !fits {
                    return Err(unfit(()));
                }
                number
            }
            _ => return Err(unfit(())),
        };
        self.number(bytes, value);
        Ok(())
    }
}

fn digits(literal: &Lit, sign: &str) -> String {
    match literal {
        Lit::Int(one) => format!("{sign}{}", one.base10_digits()),
        Lit::Float(one) => format!("{sign}{}", one.base10_digits()),
        _ => String::new(),
    }
}

/// The last two names of a path. `before` is empty if the path has only one name.
struct Path {
    before: String,
    word: String,
    span: Span,
}

fn path(input: ParseStream<'_>) -> Result<Path> {
    let (word, span) = name(input)?;
    let mut path = Path { before: String::new(), word, span };
    while keyword::<Token![::]>(input) {
        let (word, span) = name(input)?;
        path = Path { before: path.word, word, span };
    }
    Ok(path)
}

/// Parses a float that has no literal, such as `f64::NAN`. Returns its bits.
fn constant(input: ParseStream<'_>, is_wide: bool) -> Result<u64> {
    let Path { before, word, span } = path(input)?;
    let (ty, bits): (_, [u64; 3]) = match is_wide {
        true => ("f64", [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(f64::to_bits)),
        false => {
            ("f32", [f32::NAN, f32::INFINITY, f32::NEG_INFINITY].map(|one| one.to_bits().into()))
        }
    };
    if before == ty {
        match &*word {
            "NAN" => return Ok(bits[0]),
            "INFINITY" => return Ok(bits[1]),
            "NEG_INFINITY" => return Ok(bits[2]),
            "from_bits" => {
                let inside = parentheses(input)?;
                return if is_wide {
                    inside.parse::<LitInt>()?.base10_parse()
                } else {
                    inside.parse::<LitInt>()?.base10_parse::<u32>().map(u64::from)
                };
            }
            _ => {}
        }
    }
    let what = format!(
        "expected a literal, `{ty}::NAN`, `{ty}::INFINITY`, `{ty}::NEG_INFINITY` or `{ty}::from_bits(...)`"
    );
    Err(Error::new(span, what))
}

fn unknown(span: Span, variant: &str) -> Error {
    Error::new(span, format!("there is no variant `{variant}`"))
}

/// Consumes `Default::default()` if the input begins with it. Returns whether the input began with it.
fn is_default(input: ParseStream<'_>) -> bool {
    let ahead = input.fork();
    let is_next = || -> Result<bool> {
        let (mut word, _) = name(&ahead)?;
        let mut before = String::new();
        while keyword::<Token![::]>(&ahead) {
            before = core::mem::replace(&mut word, name(&ahead)?.0);
        }
        Ok(!before.is_empty() && word == "default" && parentheses(&ahead)?.is_empty())
    };
    let found = ahead.peek(Ident) && is_next().unwrap_or(false);
    if found {
        while !input.peek(token::Paren) {
            if input.parse::<TokenTree>().is_err() {
                return false;
            }
        }
        return parentheses(input).is_ok();
    }
    false
}

/// Consumes `Box::new` if it is next in the input. Returns the content of the parentheses after it.
fn boxed<'a>(input: ParseStream<'a>) -> Option<Result<ParseBuffer<'a>>> {
    let ahead = input.fork();
    let is_next = |word: &str| ahead.parse::<Ident>().is_ok_and(|found| found == word);
    if !(is_next("Box") && keyword::<Token![::]>(&ahead) && is_next("new")) {
        return None;
    }
    input.advance_to(&ahead);
    Some(parentheses(input))
}

/// Parses an expression for a text: a string literal, optionally with a method call such as `.to_owned()`,
/// `String::from(...)`, or `String::new()`.
fn text(input: ParseStream<'_>) -> Result<String> {
    if input.peek(LitStr) {
        let text = input.parse::<LitStr>()?.value();
        if keyword::<Token![.]>(input) {
            name(input)?;
            parentheses(input)?;
        }
        return Ok(text);
    }
    let wanted = "a string, or `String::new()`";
    if !input.peek(Ident) || name(&input.fork())?.0 != "String" {
        return Err(expected(input, wanted));
    }
    name(input)?;
    sign::<Token![::]>(input, "`::`")?;
    let (function, _) = name(input)?;
    let inside = parentheses(input)?;
    match &*function {
        "new" => Ok(String::new()),
        "from" => Ok(inside.parse::<LitStr>()?.value()),
        _ => Err(expected(&inside, wanted)),
    }
}

/// Takes the tokens up to the next comma.
fn until_comma(input: ParseStream<'_>) -> Result<TokenStream> {
    let mut tokens = Vec::new();
    while !input.is_empty() && !input.peek(Token![,]) {
        tokens.push(input.parse::<TokenTree>()?);
    }
    Ok(tokens.into_iter().collect())
}

/// Returns the expressions that the input contains for `fields`, in the order of the fields.
fn written(input: ParseStream<'_>, fields: &[DescribedField]) -> Result<Vec<TokenStream>> {
    if fields.is_empty() {
        if input.peek(token::Paren) || input.peek(token::Brace) {
            input.parse::<TokenTree>()?;
        }
        return Ok(Vec::new());
    }
    let is_tuple = input.peek(token::Paren);
    let inside = if is_tuple { parentheses(input)? } else { braces(input)? };
    let mut found: Vec<(String, TokenStream)> = Vec::new();
    list(&inside, |input| {
        let field = match is_tuple {
            true => found.len().to_string(),
            false => {
                let (field, _) = name(input)?;
                sign::<Token![:]>(input, "`:`")?;
                field
            }
        };
        found.push((field, until_comma(input)?));
        Ok(())
    })?;
    let mut all = Vec::new();
    for field in fields {
        let Some((_, tokens)) = found.iter().find(|(name, _)| *name == field.name) else {
            return Err(expected(&inside, format_args!("the field `{}`", field.name)));
        };
        all.push(tokens.clone());
    }
    Ok(all)
}
