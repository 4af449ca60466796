//! Parses attributes and documentation comments.

use peregrine::interface::System;
use proc_macro2::{Span, TokenStream, TokenTree};
use syn::parse::{ParseStream, Parser as _};
use syn::{Error, LitBool, LitStr, Result, Token, token};

use super::types::ty;
use crate::default::Written;
use crate::syntax::{Align, Foreign, Growth, Program, SYSTEMS};
use crate::tokens::{brackets, expected, is_name, keyword, list, name, number, parentheses, sign};

/// The attributes before an item.
pub(super) struct Attributes {
    /// The lines of documentation.
    pub(super) docs: String,
    all: Vec<Attribute>,
}

struct Attribute {
    /// The last name in the path of the attribute, such as `interface` in `#[peregrine::interface(...)]`.
    name: String,
    span: Span,
    /// The tokens after the path.
    arguments: TokenStream,
}

/// The arguments of `#[interface(...)]`.
#[derive(Default)]
pub(super) struct Arguments {
    pub(super) name: Option<String>,
    pub(super) version: u32,
    pub(super) max_len: Option<u32>,
    pub(super) programs: Vec<Program>,
}

/// Parses all attributes before an item. Attributes that apply to the whole text (`#![...]`, `//!`) are
/// skipped.
///
/// `syn::Attribute` is not used, because it parses the values of attributes as expressions, with unbounded
/// recursion.
pub(super) fn attributes(input: ParseStream<'_>) -> Result<Attributes> {
    let (mut lines, mut all) = (Vec::new(), Vec::new());
    while keyword::<Token![#]>(input) {
        let is_inner = keyword::<Token![!]>(input);
        let one = attribute(&brackets(input)?)?;
        if is_inner {
            continue;
        }
        if one.name == "doc"
            && let Ok(line) = doc.parse2(one.arguments.clone())
        {
            lines.push(line.strip_prefix(' ').unwrap_or(&line).to_owned());
        }
        all.push(one);
    }
    Ok(Attributes { docs: lines.join("\n"), all })
}

fn attribute(inside: ParseStream<'_>) -> Result<Attribute> {
    let (mut last, span) = name(inside)?;
    while keyword::<Token![::]>(inside) {
        (last, _) = name(inside)?;
    }
    Ok(Attribute { name: last, span, arguments: inside.parse()? })
}

/// Parses the `= "..."` of a documentation attribute.
fn doc(input: ParseStream<'_>) -> Result<String> {
    sign::<Token![=]>(input, "`=`")?;
    Ok(input.parse::<LitStr>()?.value())
}

impl Attributes {
    fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Attribute> {
        self.all.iter().filter(move |one| one.name == name)
    }

    /// Returns whether there is an attribute of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.of(name).next().is_some()
    }

    /// Returns whether an attribute of this name contains `word` in its parentheses.
    pub(super) fn has_word(&self, name: &str, word: &str) -> bool {
        self.of(name).flat_map(Attribute::words).any(|(one, _)| one == word)
    }

    /// Returns the bound in `#[max_len(N)]`.
    pub(super) fn max_len(&self) -> Result<Option<u32>> {
        let Some(one) = self.of("max_len").next() else { return Ok(None) };
        let bound = |input: ParseStream<'_>| number(&parentheses(input)?, "u32");
        // If the arguments are missing, they have no position, so the error gets the position of the
        // attribute.
        let at = |error| match one.arguments.is_empty() {
            true => Error::new(one.span, "`max_len` needs a number: `#[max_len(4096)]`"),
            false => error,
        };
        bound.parse2(one.arguments.clone()).map(Some).map_err(at)
    }

    /// Returns the alignment in `#[repr(C, align(N))]` or `#[repr(C, packed(N))]`.
    pub(super) fn align(&self) -> Result<Option<Align>> {
        let mut align = None;
        for (word, argument) in self.of("repr").flat_map(Attribute::words) {
            let number = |input: ParseStream<'_>| number(input, "u64");
            let argument = argument.filter(|inside| !inside.is_empty());
            let argument = argument.map(|inside| number.parse2(inside)).transpose()?;
            match (&*word, argument) {
                ("align", Some(bytes)) => align = Some(Align::AtLeast(bytes)),
                ("packed", bytes) => align = Some(Align::AtMost(bytes.unwrap_or(1))),
                _ => {}
            }
        }
        Ok(align)
    }

    /// Returns the earlier names in `#[was("old")]`.
    pub(super) fn was(&self) -> Result<Vec<String>> {
        let names = |input: ParseStream<'_>| {
            list(&parentheses(input)?, |input| name(input).map(|(name, _)| name))
        };
        let mut all = Vec::new();
        for one in self.of("was") {
            all.extend(names.parse2(one.arguments.clone())?);
        }
        Ok(all)
    }

    /// Returns which differences the attributes allow for a field or a parameter when the interface grows.
    pub(super) fn growth(&self) -> Result<Growth> {
        let mut growth = Growth { was: self.was()?, widens: self.has("widens"), default: None };
        if let Some(one) = self.of("default").next() {
            let written = match one.arguments.clone().into_iter().next() {
                Some(TokenTree::Group(group)) => Written::Expression(group.stream()),
                _ => Written::OfType,
            };
            growth.default = Some((written, one.span));
        }
        Ok(growth)
    }

    /// Returns what `#[foreign(...)]` says of a type, a variant or a field. `module` is the module in which it
    /// is written.
    pub(super) fn foreign(&self, module: Option<&str>) -> Result<Foreign> {
        let mut found = Foreign::default();
        let mut one = |input: ParseStream<'_>| {
            let before = input.fork();
            let (word, _) = name(input)?;
            match &*word {
                "default" => {
                    found.is_default = true;
                    return Ok(());
                }
                "xdr" | "courier" => return Ok(()),
                "max" | "case" | "error" | "switch" => sign::<Token![=]>(input, "`=`")?,
                _ => {
                    let wanted = "`max`, `case`, `default`, `error`, `switch`, `xdr` or `courier`";
                    return Err(expected(&before, wanted));
                }
            }
            match &*word {
                "max" => found.max = Some(number(input, "u32")?),
                "error" => found.error = Some(number(input, "u16")?),
                "switch" => found.switch = Some(ty(input, module, 0)?),
                _ => {
                    found.case = Some(match input.peek(LitBool) {
                        true => input.parse::<LitBool>()?.value.into(),
                        false => number(input, "i64")?,
                    });
                }
            }
            Ok(())
        };
        for attribute in self.of("foreign") {
            let all = |input: ParseStream<'_>| list(&parentheses(input)?, &mut one);
            all.parse2(attribute.arguments.clone())?;
        }
        Ok(found)
    }

    /// Returns the numbers of a procedure in other systems: `#[onc(N)]` and `#[courier(N)]`.
    pub(super) fn numbers(&self) -> Result<Vec<(System, u32)>> {
        let mut all = Vec::new();
        for (word, system) in SYSTEMS {
            let Some(one) = self.of(word).next() else { continue };
            let procedure = |input: ParseStream<'_>| number(&parentheses(input)?, "u32");
            all.push((system, procedure.parse2(one.arguments.clone())?));
        }
        Ok(all)
    }

    /// Returns the arguments of `#[interface]`.
    pub(super) fn interface(&self) -> Result<Arguments> {
        match self.of("interface").next() {
            Some(one) if !one.arguments.is_empty() => arguments.parse2(one.arguments.clone()),
            _ => Ok(Arguments::default()),
        }
    }
}

impl Attribute {
    /// Returns the words in the attribute's parentheses. If tokens in parentheses follow a word, returns them
    /// with the word.
    fn words(&self) -> Vec<(String, Option<TokenStream>)> {
        let Some(TokenTree::Group(all)) = self.arguments.clone().into_iter().next() else {
            return Vec::new();
        };
        let mut words: Vec<(String, Option<TokenStream>)> = Vec::new();
        for token in all.stream() {
            match token {
                TokenTree::Ident(word) => words.push((word.to_string(), None)),
                TokenTree::Group(group) => {
                    if let Some((_, argument)) = words.last_mut() {
                        *argument = Some(group.stream());
                    }
                }
                _ => {}
            }
        }
        words
    }
}

/// Parses the arguments of `#[interface]`: `(name = "...", version = N, max_len = N)`, and programs.
fn arguments(input: ParseStream<'_>) -> Result<Arguments> {
    let mut found = Arguments::default();
    list(&parentheses(input)?, |input| {
        let before = input.fork();
        let (word, _) = name(input)?;
        if let Some((_, system)) = SYSTEMS.into_iter().find(|(one, _)| *one == word) {
            // A Courier program that is started by its name has no numbers.
            let has_numbers = system != System::Courier || input.peek(token::Paren);
            let numbers = if has_numbers { Some(program(input)?) } else { None };
            found.programs.push(Program { system, numbers });
            return Ok(());
        }
        if !["name", "version", "max_len"].contains(&&*word) {
            return Err(expected(&before, "`name`, `version`, `max_len`, `onc` or `courier`"));
        }
        sign::<Token![=]>(input, "`=`")?;
        match &*word {
            "version" => found.version = number(input, "u32")?,
            "max_len" => found.max_len = Some(number(input, "u32")?),
            _ => found.name = Some(interface_name(input)?),
        }
        Ok(())
    })?;
    Ok(found)
}

/// Parses `(program = N, version = N)`.
fn program(input: ParseStream<'_>) -> Result<(u32, u32)> {
    let inside = parentheses(input)?;
    let (mut found, before) = ([None; 2], inside.fork());
    list(&inside, |input| {
        let (word, span) = name(input)?;
        sign::<Token![=]>(input, "`=`")?;
        let Some(at) = ["program", "version"].iter().position(|one| *one == word) else {
            return Err(Error::new(span, "expected `program` or `version`"));
        };
        found[at] = Some(number(input, "u32")?);
        Ok(())
    })?;
    match found {
        [Some(program), Some(version)] => Ok((program, version)),
        _ => Err(expected(&before, "`program = N, version = N`")),
    }
}

fn interface_name(input: ParseStream<'_>) -> Result<String> {
    if !input.peek(LitStr) || !is_name(&input.fork().parse::<LitStr>()?.value()) {
        let wanted = "a name in quotes, of letters, digits, `_`, `-` and `.`";
        return Err(expected(input, wanted));
    }
    Ok(input.parse::<LitStr>()?.value())
}
