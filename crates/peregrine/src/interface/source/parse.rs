//! Rust as a description.

use std::collections::HashMap;

use super::resolve::Resolver;
use super::tokens::{Token, Word, tokens};
use crate::interface::{Described, DescribedType, Direction, Shape, TextError};
use crate::limits;

type Parsed<T> = Result<T, TextError>;

pub(super) fn trait_in(text: &str) -> Parsed<Described> {
    if text.len() > limits::CANONICAL_BYTES_MAX {
        let max = limits::CANONICAL_BYTES_MAX;
        return Err(TextError::new(1, format!("{} bytes are more than {max}", text.len())));
    }
    let mut reader = Reader { tokens: tokens(text)?, ..Reader::default() };
    reader.items(None)?;
    let Some(found) = reader.found.take() else {
        return Err(TextError::new(reader.line(), "there is no trait".into()));
    };
    let described = Resolver::new(&reader).whole(found)?;
    // What holds of a canonical text holds of this one.
    let read = Described::parse(&described.to_string())
        .map_err(|error| TextError::new(1, format!("it makes no interface: {error}")))?;
    let docs = described.docs();
    let read = read.with_docs(&docs);
    // A name in quotes may be anything, and is no grammar for all that.
    if read != described {
        return Err(TextError::new(1, "it has names that no interface can have".into()));
    }
    Ok(read)
}

/// A type as it is written. Named ones by the path of their names.
#[derive(Clone, Debug)]
pub(super) enum Written {
    Simple(DescribedType),
    Array(Box<Self>, u64),
    Sequence(Box<Self>),
    Option(Box<Self>),
    Result(Box<Self>, Box<Self>),
    Tuple(Vec<Self>),
    /// By its path, in this line; inside of this module.
    Named(String, usize, Option<String>),
}

pub(super) struct Method {
    pub(super) name: String,
    pub(super) docs: String,
    pub(super) idempotent: bool,
    pub(super) parameters: Vec<(String, Direction, Shape, Written, Option<u32>)>,
    pub(super) result: Written,
    pub(super) error: Written,
}

pub(super) struct Trait {
    pub(super) name: String,
    pub(super) version: u32,
    pub(super) docs: String,
    pub(super) methods: Vec<Method>,
}

#[derive(Clone)]
pub(super) enum Shaped {
    Plain { align: Option<(bool, u64)>, fields: Vec<(String, Written)> },
    PlainEnum { repr: DescribedType, variants: Vec<(String, i128)> },
    Struct(Vec<(String, Written)>),
    Enum(Vec<(String, Vec<(String, Written)>)>),
}

/// What attributes say.
#[derive(Default)]
struct Attributes {
    docs: Option<String>,
    /// What stands behind the name of each attribute.
    all: Vec<(String, Vec<Token>)>,
}

impl Attributes {
    fn find(&self, name: &str) -> Option<&[Token]> {
        self.all.iter().find(|(one, _)| one == name).map(|(_, tokens)| &tokens[..])
    }

    fn docs(&mut self) -> String {
        self.docs.take().unwrap_or_default()
    }

    fn says(&self, name: &str, word: &str) -> bool {
        let is = |token: &Token| token.kind == Word::Name(word.to_owned());
        self.all.iter().filter(|(one, _)| one == name).any(|(_, tokens)| tokens.iter().any(is))
    }
}

#[derive(Default)]
pub(super) struct Reader {
    tokens: Vec<Token>,
    at: usize,
    found: Option<Trait>,
    /// The module that is read.
    module: Option<String>,
    /// The bound of buffers that have none of their own.
    max_len: Option<u32>,
    /// Types by their paths: the name, and perhaps a module's before it.
    pub(super) types: HashMap<String, (usize, Shaped)>,
}

impl Reader {
    fn peek(&self) -> &Word {
        self.tokens.get(self.at).map_or(&Word::End, |token| &token.kind)
    }

    fn line(&self) -> usize {
        let last = self.tokens.len().saturating_sub(1);
        self.tokens.get(self.at.min(last)).map_or(1, |token| token.line)
    }

    fn next(&mut self) -> Word {
        let word = self.peek().clone();
        self.at += 1;
        word
    }

    fn fail<T>(&self, wanted: &str) -> Parsed<T> {
        let what = format!("{} stands where {wanted} should", self.peek().text());
        Err(TextError::new(self.line(), what))
    }

    fn takes(&mut self, sign: &str) -> bool {
        let there = matches!(self.peek(), Word::Sign(one) if *one == sign);
        self.at += usize::from(there);
        there
    }

    fn expect(&mut self, sign: &str) -> Parsed<()> {
        if self.takes(sign) { Ok(()) } else { self.fail(&format!("`{sign}`")) }
    }

    fn takes_word(&mut self, word: &str) -> bool {
        let there = matches!(self.peek(), Word::Name(one) if one == word);
        self.at += usize::from(there);
        there
    }

    fn name(&mut self) -> Parsed<String> {
        match self.peek() {
            Word::Name(name) | Word::Text(name) => {
                let name = name.clone();
                self.at += 1;
                Ok(name)
            }
            _ => self.fail("a name"),
        }
    }

    fn number<N: core::str::FromStr>(&mut self) -> Parsed<N> {
        let minus = if self.takes("-") { "-" } else { "" };
        let Word::Name(digits) = self.peek() else { return self.fail("a number") };
        let digits = digits.replace('_', "");
        let radix = [("0x", 16), ("0o", 8), ("0b", 2)].into_iter().find_map(|(with, radix)| {
            let digits = digits.strip_prefix(with)?;
            u128::from_str_radix(digits, radix).ok().map(|number| number.to_string())
        });
        match format!("{minus}{}", radix.unwrap_or(digits)).parse() {
            Ok(number) => {
                self.at += 1;
                Ok(number)
            }
            Err(_) => self.fail("a number in range"),
        }
    }

    /// Attributes and documentation before an item.
    fn attributes(&mut self) -> Parsed<Attributes> {
        let mut found = Attributes::default();
        loop {
            if let Word::Docs(line) = self.peek() {
                let docs = match found.docs.take() {
                    Some(before) => format!("{before}\n{line}"),
                    None => line.clone(),
                };
                found.docs = Some(docs);
                self.at += 1;
            } else if self.takes("#") {
                self.takes("!");
                let inside = self.balanced("[", "]")?;
                // The last name of its path counts.
                let names = inside
                    .iter()
                    .take_while(|token| matches!(&token.kind, Word::Name(_) | Word::Sign("::")));
                let length = names.count();
                if let Some(Word::Name(name)) = inside[..length].last().map(|one| &one.kind) {
                    found.all.push((name.clone(), inside[length..].to_vec()));
                }
            } else {
                return Ok(found);
            }
        }
    }

    /// What stands between two signs, other such pairs included.
    fn balanced(&mut self, open: &str, close: &str) -> Parsed<Vec<Token>> {
        self.expect(open)?;
        let (start, mut depth) = (self.at, 1);
        loop {
            match self.next() {
                Word::Sign(sign) if sign == open => depth += 1,
                Word::Sign(sign) if sign == close => depth -= 1,
                Word::End => {
                    self.at -= 1;
                    return self.fail(&format!("`{close}`"));
                }
                _ => {}
            }
            if depth == 0 {
                return Ok(self.tokens[start..self.at - 1].to_vec());
            }
        }
    }

    fn visibility(&mut self) -> Parsed<()> {
        if self.takes_word("pub") && matches!(self.peek(), Word::Sign("(")) {
            self.balanced("(", ")")?;
        }
        Ok(())
    }

    /// Items up to the end, or to that of a module.
    fn items(&mut self, module: Option<&str>) -> Parsed<()> {
        loop {
            if module.is_some() && self.takes("}") {
                return Ok(());
            }
            let mut attributes = self.attributes()?;
            if *self.peek() == Word::End {
                return if module.is_some() { self.fail("`}`") } else { Ok(()) };
            }
            self.visibility()?;
            let line = self.line();
            if self.takes_word("impl") {
                while !matches!(self.peek(), Word::Sign("{") | Word::End) {
                    self.at += 1;
                }
                self.balanced("{", "}")?;
            } else if self.takes_word("use") {
                while !self.takes(";") {
                    if self.next() == Word::End {
                        self.at -= 1;
                        return self.fail("`;`");
                    }
                }
            } else if module.is_none() && self.takes_word("mod") {
                let name = self.name()?;
                self.expect("{")?;
                self.module = Some(name.clone());
                self.items(Some(&name))?;
                self.module = None;
            } else if module.is_none() && self.takes_word("trait") {
                let one = self.one_trait(&mut attributes)?;
                if self.found.replace(one).is_some() {
                    return Err(TextError::new(line, "there is more than one trait".into()));
                }
            } else if self.takes_word("struct") {
                let name = self.name()?;
                let body = self.one_struct(&attributes)?;
                self.define(module, name, line, body)?;
            } else if self.takes_word("enum") {
                let name = self.name()?;
                let body = self.one_enum(&attributes)?;
                self.define(module, name, line, body)?;
            } else {
                return self.fail("a trait, a struct or an enum");
            }
        }
    }

    fn define(
        &mut self,
        module: Option<&str>,
        name: String,
        line: usize,
        body: Shaped,
    ) -> Parsed<()> {
        let path = module.map_or_else(|| name.clone(), |module| format!("{module}::{name}"));
        match self.types.insert(path, (line, body)) {
            None => Ok(()),
            Some((first, _)) => {
                let what = format!("`{name}` was described in line {first} already");
                Err(TextError::new(line, what))
            }
        }
    }

    fn one_trait(&mut self, attributes: &mut Attributes) -> Parsed<Trait> {
        let mut found =
            Trait { name: self.name()?, version: 0, docs: attributes.docs(), methods: Vec::new() };
        if let Some(said) = attributes.find("interface") {
            self.arguments(said, &mut found)?;
        }
        self.expect("{")?;
        while !self.takes("}") {
            let method = self.method()?;
            found.methods.push(method);
        }
        Ok(found)
    }

    /// `(name = "...", version = N)`.
    fn arguments(&mut self, said: &[Token], found: &mut Trait) -> Parsed<()> {
        for (i, token) in said.iter().enumerate() {
            let value = said.get(i + 2).map(|token| &token.kind);
            match (&token.kind, value) {
                (Word::Name(word), Some(Word::Text(name))) if word == "name" => {
                    found.name.clone_from(name);
                }
                (Word::Name(word), Some(Word::Name(number))) if word == "version" => {
                    found.version = number.parse().map_err(|_| {
                        TextError::new(token.line, format!("`{number}` is no version"))
                    })?;
                }
                (Word::Name(word), Some(Word::Name(number))) if word == "max_len" => {
                    self.max_len = Some(number.replace('_', "").parse().map_err(|_| {
                        TextError::new(token.line, format!("`{number}` is no bound"))
                    })?);
                }
                (Word::Name(word), Some(_))
                    if matches!(said.get(i + 1).map(|one| &one.kind), Some(Word::Sign("="))) =>
                {
                    let what = format!("`{word}` is unknown to interfaces");
                    return Err(TextError::new(token.line, what));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn method(&mut self) -> Parsed<Method> {
        let mut attributes = self.attributes()?;
        if !self.takes_word("fn") {
            return self.fail("a method");
        }
        let name = self.name()?;
        self.expect("(")?;
        self.expect("&")?;
        if !self.takes_word("self") {
            return self.fail("`self`");
        }
        let mut parameters = Vec::new();
        while !self.takes(")") {
            self.expect(",")?;
            if self.takes(")") {
                break;
            }
            parameters.push(self.parameter()?);
        }
        self.expect("->")?;
        let before = self.at;
        let returns = self.ty(0)?;
        self.expect(";")?;
        let Written::Result(result, error) = returns else {
            self.at = before;
            return self.fail("a `Result`");
        };
        let idempotent = attributes.find("idempotent").is_some();
        let docs = attributes.docs();
        Ok(Method { name, docs, idempotent, parameters, result: *result, error: *error })
    }

    fn parameter(&mut self) -> Parsed<(String, Direction, Shape, Written, Option<u32>)> {
        let attributes = self.attributes()?;
        let max_len =
            match attributes.find("max_len") {
                None => None,
                Some(said) => {
                    let mut inner = Self { tokens: said.to_vec(), ..Self::default() };
                    let read = inner.expect("(").and_then(|()| inner.number());
                    Some(read.map_err(|_| {
                        TextError::new(self.line(), "`max_len` needs a number".into())
                    })?)
                }
            };
        let name = self.name()?;
        self.expect(":")?;
        let (direction, shape, ty) = self.passed()?;
        let max_len = max_len.or(self.max_len.filter(|_| shape != Shape::One));
        Ok((name, direction, shape, ty, max_len))
    }

    /// How a parameter is written.
    fn passed(&mut self) -> Parsed<(Direction, Shape, Written)> {
        if self.takes("&") {
            if matches!(self.peek(), Word::Lifetime) {
                self.at += 1;
            }
            let direction = if self.takes_word("mut") { Direction::InOut } else { Direction::In };
            if direction == Direction::In && self.takes_word("str") {
                return Ok((direction, Shape::Text, Written::Simple(DescribedType::Text)));
            }
            if !self.takes("[") {
                return Ok((direction, Shape::One, self.ty(0)?));
            }
            let one = self.ty(1)?;
            if self.takes("]") {
                return Ok((direction, Shape::Buffer, one));
            }
            return Ok((direction, Shape::One, self.array_of(one)?));
        }
        let before = self.at;
        let path = if matches!(self.peek(), Word::Name(_)) { self.path()? } else { String::new() };
        let direction = match &*path {
            "Lent" => Direction::Lent,
            "Out" => Direction::Out,
            _ => {
                self.at = before;
                return Ok((Direction::In, Shape::One, self.ty(0)?));
            }
        };
        self.expect("<")?;
        if matches!(self.peek(), Word::Lifetime) {
            self.at += 1;
            self.expect(",")?;
        }
        let one = self.ty(0)?;
        self.takes(",");
        self.expect(">")?;
        Ok((direction, Shape::Buffer, one))
    }

    fn array_of(&mut self, one: Written) -> Parsed<Written> {
        self.expect(";")?;
        let count = self.number()?;
        self.expect("]")?;
        Ok(Written::Array(Box::new(one), count))
    }

    /// A path: its last name, and a module's before it; `super`, `crate` and our own name say nothing.
    fn path(&mut self) -> Parsed<String> {
        self.takes("::");
        let mut names = vec![self.name()?];
        while self.takes("::") {
            names.push(self.name()?);
        }
        let start = names
            .iter()
            .take(names.len() - 1)
            .take_while(|name| ["super", "crate", "self", "peregrine", "std"].contains(&&***name))
            .count();
        if start > 0 && names[start - 1] == "peregrine" && names.len() == start + 1 {
            // `peregrine::Result` has one parameter.
            return Ok(match &*names[start] {
                "Result" => "peregrine::Result".into(),
                _ => names.swap_remove(start),
            });
        }
        Ok(names[start..].join("::"))
    }

    fn ty(&mut self, depth: usize) -> Parsed<Written> {
        if depth > limits::CANONICAL_DEPTH_MAX {
            return self.fail("a type that is nested less deeply");
        }
        if self.takes("[") {
            let one = self.ty(depth + 1)?;
            return self.array_of(one);
        }
        if self.takes("(") {
            let mut parts = Vec::new();
            while !self.takes(")") {
                parts.push(self.ty(depth + 1)?);
                if !self.takes(",") {
                    self.expect(")")?;
                    break;
                }
            }
            return Ok(match parts.is_empty() {
                true => Written::Simple(DescribedType::Unit),
                false => Written::Tuple(parts),
            });
        }
        let line = self.line();
        let quoted = matches!(self.peek(), Word::Text(_));
        if !quoted && !matches!(self.peek(), Word::Name(_) | Word::Sign("::")) {
            return self.fail("a type");
        }
        let before = self.at;
        let path = self.path()?;
        if quoted {
            return Ok(Written::Named(path, line, None));
        }
        let of = |reader: &mut Self, count: usize| {
            reader.expect("<")?;
            let mut parts = Vec::new();
            while !reader.takes(">") {
                parts.push(reader.ty(depth + 1)?);
                if !reader.takes(",") {
                    reader.expect(">")?;
                    break;
                }
            }
            if parts.len() == count {
                return Ok(parts);
            }
            reader.at = before;
            reader.fail(&format!("a type of {count} parts"))
        };
        let simple = match &*path {
            "bool" => DescribedType::Bool,
            "char" => DescribedType::Char,
            "u8" => DescribedType::U8,
            "u16" => DescribedType::U16,
            "u32" => DescribedType::U32,
            "u64" => DescribedType::U64,
            "u128" => DescribedType::U128,
            "i8" => DescribedType::I8,
            "i16" => DescribedType::I16,
            "i32" => DescribedType::I32,
            "i64" => DescribedType::I64,
            "i128" => DescribedType::I128,
            "f32" => DescribedType::F32,
            "f64" => DescribedType::F64,
            "String" => DescribedType::Text,
            "usize" | "isize" => {
                self.at = before;
                return self.fail("a type that is the same on every machine (`u64`, `u32`)");
            }
            "Vec" => return Ok(Written::Sequence(only(of(self, 1)?))),
            "Option" => return Ok(Written::Option(only(of(self, 1)?))),
            "Box" => return Ok(*only(of(self, 1)?)),
            "Result" => {
                let mut parts = of(self, 2)?.into_iter().map(Box::new);
                return match (parts.next(), parts.next()) {
                    (Some(ok), Some(err)) => Ok(Written::Result(ok, err)),
                    _ => self.fail("a type"),
                };
            }
            "peregrine::Result" => {
                let failed = Written::Named("CallError".into(), line, None);
                return Ok(Written::Result(only(of(self, 1)?), Box::new(failed)));
            }
            _ => {
                let above = matches!(
                    self.tokens.get(before).map(|token| &token.kind),
                    Some(Word::Name(word)) if ["super", "crate"].contains(&&**word)
                );
                let module = self.module.clone().filter(|_| !above);
                return Ok(Written::Named(path, line, module));
            }
        };
        Ok(Written::Simple(simple))
    }

    fn one_struct(&mut self, attributes: &Attributes) -> Parsed<Shaped> {
        let fields = if self.takes(";") {
            Vec::new()
        } else if self.takes("(") {
            let fields = self.unnamed()?;
            self.expect(";")?;
            fields
        } else {
            self.expect("{")?;
            self.named()?
        };
        if !attributes.says("derive", "Plain") {
            return Ok(Shaped::Struct(fields));
        }
        let mut align = None;
        for (name, said) in attributes.all.iter().filter(|(name, _)| name == "repr") {
            for (i, token) in said.iter().enumerate() {
                let Word::Name(word) = &token.kind else { continue };
                let number = match said.get(i + 2).map(|token| &token.kind) {
                    Some(Word::Name(number)) => number.parse().ok(),
                    _ => None,
                };
                match (&**word, number) {
                    ("align", Some(number)) => align = Some((true, number)),
                    ("packed", number) => align = Some((false, number.unwrap_or(1))),
                    _ => {}
                }
            }
            debug_assert_eq!(name, "repr");
        }
        Ok(Shaped::Plain { align, fields })
    }

    fn unnamed(&mut self) -> Parsed<Vec<(String, Written)>> {
        let mut fields = Vec::new();
        while !self.takes(")") {
            self.attributes()?;
            self.visibility()?;
            fields.push((fields.len().to_string(), self.ty(0)?));
            if !self.takes(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(fields)
    }

    fn named(&mut self) -> Parsed<Vec<(String, Written)>> {
        let mut fields = Vec::new();
        while !self.takes("}") {
            self.attributes()?;
            self.visibility()?;
            let name = self.name()?;
            self.expect(":")?;
            fields.push((name, self.ty(0)?));
            if !self.takes(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(fields)
    }

    fn one_enum(&mut self, attributes: &Attributes) -> Parsed<Shaped> {
        let plain = attributes.says("derive", "Plain");
        self.expect("{")?;
        let (mut variants, mut numbers) = (Vec::new(), Vec::new());
        let mut next: i128 = 0;
        while !self.takes("}") {
            self.attributes()?;
            let name = self.name()?;
            let mut fields = Vec::new();
            if self.takes("(") {
                fields = self.unnamed()?;
            } else if self.takes("{") {
                fields = self.named()?;
            } else if self.takes("=") {
                next = self.number()?;
            }
            numbers.push((name.clone(), next));
            next = next.wrapping_add(1);
            if plain && !fields.is_empty() {
                return self.fail("a variant without fields, before this,");
            }
            variants.push((name, fields));
            if !self.takes(",") {
                self.expect("}")?;
                break;
            }
        }
        if !plain {
            return Ok(Shaped::Enum(variants));
        }
        const INTEGERS: &[(&str, DescribedType)] = &[
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
        ];
        match INTEGERS.iter().find(|(name, _)| attributes.says("repr", name)) {
            Some((_, repr)) => Ok(Shaped::PlainEnum { repr: repr.clone(), variants: numbers }),
            None => self.fail("an enum with `#[repr(u8)]` or another integer, before this,"),
        }
    }
}

fn only(mut parts: Vec<Written>) -> Box<Written> {
    Box::new(parts.swap_remove(0))
}
