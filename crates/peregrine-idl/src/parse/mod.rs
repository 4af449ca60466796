//! Parses tokens as a trait and the types that the trait uses.
//!
//! This parser uses parts of `syn`, but not `syn::File`. It differs from `syn::File` in three ways: it
//! accepts names in quotes, it skips bodies, and its recursion is bounded. `syn` recurses without a bound in
//! types and expressions.

mod attributes;
mod types;

use std::collections::{HashMap, HashSet};

use peregrine::interface::{DescribedPlainVariant, DescribedType, Shape};
use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use syn::parse::ParseStream;
use syn::{Error, Ident, Result, Token, Visibility, token};

use crate::syntax::{
    Body, Constant, Definition, Field, Item, Kind, Method, Parameter, Source, Trait, Type, Variant,
};
use crate::tokens::{braces, expected, keyword, list, name, number, parentheses, sign};
use attributes::{Attributes, attributes};
use types::passed;
pub(crate) use types::ty;

/// Parses a whole text.
pub(crate) fn source(input: ParseStream<'_>, kinds: &HashMap<String, Kind>) -> Result<Source> {
    let mut found = Found { source: Source::default(), kinds };
    found.items(input, None)?;
    Ok(found.source)
}

/// Returns the path of the interface's trait: the only trait that no other trait uses for a callback. It is
/// an error if the text has several traits that no other trait uses. If traits use each other in a circle, so
/// that each of them is used, the first trait of the text is the interface.
pub(crate) fn root(input: ParseStream<'_>, source: &Source) -> Result<String> {
    let roots = roots(source);
    if let Some(Definition { span, .. }) = roots.get(1).and_then(|second| source.types.get(second))
    {
        return Err(Error::new(*span, "more than one trait that no callback uses"));
    }
    roots.into_iter().next().ok_or_else(|| expected(input, "a trait"))
}

/// Returns the paths of the traits that no other trait uses for a callback. If there is no such trait,
/// returns the path of the first trait of the text.
pub(crate) fn roots(source: &Source) -> Vec<String> {
    let types = &source.types;
    let is_trait = |path: &&String| {
        matches!(types.get(*path), Some(Definition { body: Body::Interface(_), .. }))
    };
    let paths = source.items.iter().filter_map(|item| match item {
        Item::Type(path) => Some(path),
        _ => None,
    });
    let traits: Vec<&String> = paths.filter(is_trait).collect();
    let mut called = HashSet::new();
    for path in traits.iter().copied() {
        let Some(Definition { body: Body::Interface(one), .. }) = types.get(path) else { continue };
        for parameter in one.methods.iter().flat_map(|method| &method.parameters) {
            if let Type::Interface(name) = &parameter.ty {
                called.extend(Some(name.path_in(types)).filter(|called| called != path));
            }
        }
    }
    let apart = traits.iter().copied().filter(|path| !called.contains(*path));
    let apart: Vec<String> = apart.cloned().collect();
    match apart.is_empty() {
        true => traits.into_iter().take(1).cloned().collect(),
        false => apart,
    }
}

/// Parses the attributes before an item, and returns the documentation in them.
pub(crate) fn docs(input: ParseStream<'_>) -> Result<String> {
    attributes(input).map(|attributes| attributes.docs)
}

/// Parses the types of a text that has no trait.
pub(crate) fn definitions(input: ParseStream<'_>) -> Result<HashMap<String, Definition>> {
    source(input, &HashMap::new()).map(|source| source.types)
}

/// The items of a text that have been parsed so far.
struct Found<'a> {
    source: Source,
    /// The kinds of types, by the names of the types. They apply to types that have no derives in the text.
    kinds: &'a HashMap<String, Kind>,
}

impl Found<'_> {
    /// Parses the items of the whole text, or those of a module.
    fn items(&mut self, input: ParseStream<'_>, module: Option<&str>) -> Result<()> {
        while !input.is_empty() {
            let attributes = attributes(input)?;
            if input.is_empty() {
                break;
            }
            let is_public = !matches!(input.parse()?, Visibility::Inherited);
            if input.peek(Token![async]) && input.peek2(Token![fn]) {
                input.parse::<Token![async]>()?;
            }
            if keyword::<Token![impl]>(input) {
                let is_own = input.peek(Ident) && input.peek2(token::Brace);
                let of = if is_own { Some(name(input)?.0) } else { None };
                let tokens = past_braces(input)?;
                let content = tokens.into_iter().last();
                let Some(TokenTree::Group(content)) = content else { continue };
                self.source.items.push(Item::Impl(of, content.stream()));
            } else if input.peek(Token![const]) || input.peek(Token![fn]) {
                let is_function = input.peek(Token![fn]);
                input.parse::<TokenTree>()?;
                let (name, span) = name(input)?;
                let tokens = if is_function { past_braces(input)? } else { past_semicolon(input)? };
                let (docs, module) = (attributes.docs, module.map(str::to_owned));
                let one = Constant { name, span, docs, module, tokens, is_function, is_public };
                self.source.items.push(Item::Constant(one));
            } else if keyword::<Token![type]>(input) {
                let (name, span) = name(input)?;
                sign::<Token![=]>(input, "`=`")?;
                let body = Body::Alias(ty(input, module, 0)?);
                sign::<Token![;]>(input, "`;`")?;
                self.define(module, name, span, Vec::new(), &attributes, body)?;
            } else if keyword::<Token![use]>(input) {
                past_semicolon(input)?;
            } else if keyword::<Token![struct]>(input) {
                let (name, span) = name(input)?;
                let parameters = parameters(input)?;
                let body = structure(input, &attributes, module, self.kind(&attributes, &name))?;
                self.define(module, name, span, parameters, &attributes, body)?;
            } else if keyword::<Token![enum]>(input) {
                let (name, span) = name(input)?;
                let parameters = parameters(input)?;
                let kind = self.kind(&attributes, &name);
                let body = enumeration(input, &attributes, module, span, kind)?;
                self.define(module, name, span, parameters, &attributes, body)?;
            } else if keyword::<Token![trait]>(input) {
                let (name, span) = name(input)?;
                let found = interface(input, &name, &attributes, module)?;
                self.define(module, name, span, Vec::new(), &attributes, Body::Interface(found))?;
            } else if module.is_some() {
                return Err(expected(input, "a struct, an enum or a trait"));
            } else if keyword::<Token![mod]>(input) {
                let (name, _) = name(input)?;
                self.source.modules.insert(name.clone(), attributes.docs);
                self.items(&braces(input)?, Some(&name))?;
            } else {
                return Err(expected(input, "a trait, a struct, an enum or a module"));
            }
        }
        Ok(())
    }

    /// Returns the kind of this type in `kinds`. Returns `None` if the type has derives, or if `kinds` does
    /// not contain it.
    fn kind(&self, attributes: &Attributes, name: &str) -> Option<&Kind> {
        self.kinds.get(name).filter(|_| !attributes.has("derive"))
    }

    fn define(
        &mut self,
        module: Option<&str>,
        name: String,
        span: Span,
        parameters: Vec<String>,
        attributes: &Attributes,
        body: Body,
    ) -> Result<()> {
        let (docs, foreign) = (attributes.docs.clone(), attributes.foreign(module)?);
        let is_foreign = attributes.has_word("derive", "Foreign");
        let one = Definition { span, docs, foreign, is_foreign, parameters, body };
        let path = path_of(module, &name);
        self.source.items.push(Item::Type(path.clone()));
        match self.source.types.insert(path, one) {
            None => Ok(()),
            Some(first) => {
                let line = first.span.start().line;
                Err(Error::new(span, format!("`{name}` is already defined in line {line}")))
            }
        }
    }
}

/// Returns the path of a type or a trait that is defined in a module.
fn path_of(module: Option<&str>, name: &str) -> String {
    module.map_or_else(|| name.to_owned(), |module| format!("{module}::{name}"))
}

/// Parses the type parameters of a struct or an enum, without their bounds.
fn parameters(input: ParseStream<'_>) -> Result<Vec<String>> {
    let mut all = Vec::new();
    if !keyword::<Token![<]>(input) {
        return Ok(all);
    }
    while !keyword::<Token![>]>(input) {
        all.push(name(input)?.0);
        if keyword::<Token![:]>(input) {
            while !input.is_empty() && !input.peek(Token![,]) && !input.peek(Token![>]) {
                input.parse::<TokenTree>()?;
            }
        }
        if !input.peek(Token![>]) {
            sign::<Token![,]>(input, "`,` or `>`")?;
        }
    }
    Ok(all)
}

/// Returns all tokens to the next braces, with the braces.
fn past_braces(input: ParseStream<'_>) -> Result<TokenStream> {
    let mut tokens = TokenStream::new();
    while !input.is_empty() {
        let token = input.parse::<TokenTree>()?;
        let is_last =
            matches!(&token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
        tokens.extend([token]);
        if is_last {
            return Ok(tokens);
        }
    }
    Err(expected(input, "`{`"))
}

/// Returns all tokens to the next semicolon, which is skipped.
fn past_semicolon(input: ParseStream<'_>) -> Result<TokenStream> {
    let mut tokens = TokenStream::new();
    while !input.is_empty() {
        if keyword::<Token![;]>(input) {
            return Ok(tokens);
        }
        tokens.extend([input.parse::<TokenTree>()?]);
    }
    Err(expected(input, "`;`"))
}

/// Parses the rest of a trait, which follows its name.
fn interface(
    input: ParseStream<'_>,
    name: &str,
    attributes: &Attributes,
    module: Option<&str>,
) -> Result<Trait> {
    let arguments = attributes.interface()?;
    let inside = braces(input)?;
    let mut methods = Vec::new();
    while !inside.is_empty() {
        methods.push(method(&inside, arguments.max_len, module)?);
    }
    Ok(Trait {
        name: arguments.name.unwrap_or_else(|| name.to_owned()),
        version: arguments.version,
        programs: arguments.programs,
        docs: attributes.docs.clone(),
        methods,
    })
}

fn method(input: ParseStream<'_>, max_len: Option<u32>, module: Option<&str>) -> Result<Method> {
    let attributes = attributes(input)?;
    if !keyword::<Token![fn]>(input) {
        return Err(expected(input, "a method"));
    }
    let (name, span) = name(input)?;
    if attributes.has("idempotent") && attributes.has("oneway") {
        let what = "a one-way method is never repeated: remove `#[oneway]` or `#[idempotent]`";
        return Err(Error::new(span, what));
    }
    let inside = parentheses(input)?;
    sign::<Token![&]>(&inside, "`&self`")?;
    sign::<Token![self]>(&inside, "`self`")?;
    let mut parameters = Vec::new();
    if !inside.is_empty() {
        sign::<Token![,]>(&inside, "`,`")?;
        parameters = list(&inside, |input| parameter(input, max_len, module))?;
    }
    sign::<Token![->]>(input, "`->` and a `Result`")?;
    let before = input.fork();
    let Type::Result(result, error) = ty(input, module, 0)? else {
        return Err(expected(&before, "`Result<T, E>` or `peregrine::Result<T>`"));
    };
    sign::<Token![;]>(input, "`;`")?;
    Ok(Method {
        name,
        span,
        docs: attributes.docs.clone(),
        numbers: attributes.numbers()?,
        idempotent: attributes.has("idempotent"),
        oneway: attributes.has("oneway"),
        was: attributes.was()?,
        parameters,
        result: *result,
        error: *error,
    })
}

fn parameter(
    input: ParseStream<'_>,
    default_max_len: Option<u32>,
    module: Option<&str>,
) -> Result<Parameter> {
    let attributes = attributes(input)?;
    let (max_len, growth) = (attributes.max_len()?, attributes.growth()?);
    let (name, span) = name(input)?;
    sign::<Token![:]>(input, "`:`")?;
    let (direction, shape, ty) = passed(input, module)?;
    let max_len = max_len.or(default_max_len.filter(|_| shape != Shape::One));
    Ok(Parameter { name, span, direction, shape, ty, max_len, growth })
}

/// Parses the rest of a struct, which follows its name.
fn structure(
    input: ParseStream<'_>,
    attributes: &Attributes,
    module: Option<&str>,
    kind: Option<&Kind>,
) -> Result<Body> {
    let fields = if input.peek(token::Paren) {
        let fields = unnamed(&parentheses(input)?, module)?;
        sign::<Token![;]>(input, "`;`")?;
        fields
    } else if input.peek(token::Brace) {
        named(&braces(input)?, module)?
    } else {
        sign::<Token![;]>(input, "`{`, `(` or `;`")?;
        Vec::new()
    };
    let is_plain = attributes.has_word("derive", "Plain") || matches!(kind, Some(Kind::Plain));
    Ok(match is_plain {
        true => Body::Plain { align: attributes.align()?, fields },
        false => Body::Struct(fields),
    })
}

/// Parses fields that have numbers instead of names.
fn unnamed(inside: ParseStream<'_>, module: Option<&str>) -> Result<Vec<Field>> {
    let mut number = 0;
    list(inside, |input| {
        let attributes = attributes(input)?;
        input.parse::<Visibility>()?;
        let span = input.span();
        let name = number.to_string();
        number += 1;
        field(name, span, ty(input, module, 0)?, &attributes, module)
    })
}

fn named(inside: ParseStream<'_>, module: Option<&str>) -> Result<Vec<Field>> {
    list(inside, |input| {
        let attributes = attributes(input)?;
        input.parse::<Visibility>()?;
        let (name, span) = name(input)?;
        sign::<Token![:]>(input, "`:`")?;
        field(name, span, ty(input, module, 0)?, &attributes, module)
    })
}

fn field(
    name: String,
    span: Span,
    ty: Type,
    attributes: &Attributes,
    module: Option<&str>,
) -> Result<Field> {
    let (docs, foreign) = (attributes.docs.clone(), attributes.foreign(module)?);
    Ok(Field { name, span, docs, foreign, ty, growth: attributes.growth()? })
}

/// Parses the rest of an enum, which follows its name. `span` is the position of the name.
fn enumeration(
    input: ParseStream<'_>,
    attributes: &Attributes,
    module: Option<&str>,
    span: Span,
    kind: Option<&Kind>,
) -> Result<Body> {
    let integer_of = match kind {
        Some(Kind::PlainEnum(integer)) => Some(integer.clone()),
        _ => None,
    };
    let is_plain = attributes.has_word("derive", "Plain") || integer_of.is_some();
    let mut next: i128 = 0;
    let variants = list(&braces(input)?, |input| {
        let attributes = attributes::attributes(input)?;
        let (was, is_other) = (attributes.was()?, attributes.has("other"));
        let (name, span) = name(input)?;
        let mut fields = Vec::new();
        if input.peek(token::Paren) {
            fields = unnamed(&parentheses(input)?, module)?;
        } else if input.peek(token::Brace) {
            fields = named(&braces(input)?, module)?;
        } else if keyword::<Token![=]>(input) {
            next = number(input, "i128")?;
        }
        if is_plain && !fields.is_empty() {
            let what = format!("the variant `{name}` of a plain enum cannot have fields");
            return Err(Error::new(span, what));
        }
        let value = next;
        next = next.wrapping_add(1);
        let (docs, foreign) = (attributes.docs.clone(), attributes.foreign(module)?);
        Ok(Variant { name, span, docs, foreign, number: value, fields, was, is_other })
    })?;
    if !is_plain {
        return Ok(Body::Enum(variants));
    }
    let Some(repr) = integer(attributes).or(integer_of) else {
        let what = "a plain enum needs `#[repr(u8)]`, or another integer type in `repr`";
        return Err(Error::new(span, what));
    };
    let plain = |Variant { name, number, was, is_other, .. }| DescribedPlainVariant {
        name,
        value: number,
        was,
        is_other,
    };
    let variants = variants.into_iter().map(plain).collect();
    Ok(Body::PlainEnum { repr, variants })
}

/// Returns the integer that `#[repr]` names.
fn integer(attributes: &Attributes) -> Option<DescribedType> {
    let integers = types::SIMPLE.iter().filter(|(name, _)| name.starts_with(['u', 'i']));
    let mut named = integers.filter(|(name, _)| attributes.has_word("repr", name));
    named.next().map(|(_, ty)| ty.clone())
}
