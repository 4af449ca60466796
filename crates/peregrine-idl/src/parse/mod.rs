//! Parses tokens as a trait and the types that the trait uses.
//!
//! This parser uses parts of `syn`, but not `syn::File`. It differs from `syn::File` in three ways: it
//! accepts names in quotes, it skips bodies, and its recursion is bounded. `syn` recurses without a bound in
//! types and expressions.

mod attributes;
mod types;

use std::collections::{HashMap, HashSet};

use peregrine::interface::{Case, DescribedPlainVariant, DescribedType, Shape, System};
use proc_macro2::{Delimiter, Span, TokenTree};
use syn::parse::ParseStream;
use syn::{Error, Result, Token, Visibility, token};

use crate::syntax::{
    Body, Definition, Field, Kind, Method, Parameter, Source, Trait, Type, Variant,
};
use crate::tokens::{braces, expected, keyword, list, name, number, parentheses, sign};
use attributes::{Attributes, Foreign, attributes};
use types::{passed, ty};

/// Parses a whole text.
pub(crate) fn source(input: ParseStream<'_>, kinds: &HashMap<String, Kind>) -> Result<Source> {
    let mut found = Found { traits: Vec::new(), types: HashMap::new(), kinds, is_imported: false };
    found.items(input, None)?;
    match root(&found.traits, &found.types)? {
        Some(root) => Ok(Source { roots: vec![root], types: found.types }),
        None => Err(expected(input, "a trait")),
    }
}

/// Parses a whole text, whose traits are programs of other RPC systems. None of them is that of a callback.
pub(crate) fn programs(input: ParseStream<'_>) -> Result<Source> {
    let kinds = HashMap::new();
    let mut found =
        Found { traits: Vec::new(), types: HashMap::new(), kinds: &kinds, is_imported: true };
    found.items(input, None)?;
    Ok(Source { roots: found.traits, types: found.types })
}

/// Returns the path of the interface's trait: the only trait that no other trait uses for a callback. It is an
/// error if the text has several traits that no other trait uses. If traits use each other in a circle, so
/// that each of them is used, the first trait of the text is the interface.
fn root(traits: &[String], types: &HashMap<String, Definition>) -> Result<Option<String>> {
    let mut called = HashSet::new();
    for path in traits {
        let Some(Definition { body: Body::Interface(one), .. }) = types.get(path) else { continue };
        for parameter in one.methods.iter().flat_map(|method| &method.parameters) {
            if let Type::Interface(name) = &parameter.ty {
                called.extend(Some(name.path_in(types)).filter(|called| called != path));
            }
        }
    }
    let mut apart = traits.iter().filter(|path| !called.contains(*path));
    let (first, second) = (apart.next(), apart.next());
    if let Some(Definition { span, .. }) = second.and_then(|second| types.get(second)) {
        return Err(Error::new(*span, "more than one trait that no callback uses"));
    }
    Ok(first.or(traits.first()).cloned())
}

/// Parses types without a trait.
pub(crate) fn definitions(input: ParseStream<'_>) -> Result<HashMap<String, Definition>> {
    let kinds = HashMap::new();
    let mut found =
        Found { traits: Vec::new(), types: HashMap::new(), kinds: &kinds, is_imported: false };
    found.items(input, None)?;
    Ok(found.types)
}

/// The items of a text that have been parsed so far.
struct Found<'a> {
    /// The paths of the traits, in order.
    traits: Vec<String>,
    types: HashMap<String, Definition>,
    /// The kinds of types, by the names of the types. They apply to types that have no derives in the text.
    kinds: &'a HashMap<String, Kind>,
    /// Whether the text was printed by an import. Its functions, which return constants, are skipped.
    is_imported: bool,
}

impl Found<'_> {
    /// Parses the items of the whole text, or those of a module.
    fn items(&mut self, input: ParseStream<'_>, module: Option<&str>) -> Result<()> {
        while !input.is_empty() {
            let attributes = attributes(input)?;
            if input.is_empty() {
                break;
            }
            input.parse::<Visibility>()?;
            if keyword::<Token![impl]>(input) {
                skip_past(input, "`{`", |token| match token {
                    TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                    _ => false,
                })?;
            } else if keyword::<Token![use]>(input) {
                skip_past(input, "`;`", |token| match token {
                    TokenTree::Punct(sign) => sign.as_char() == ';',
                    _ => false,
                })?;
            } else if keyword::<Token![const]>(input) {
                skip_past(input, "`;`", |token| match token {
                    TokenTree::Punct(sign) => sign.as_char() == ';',
                    _ => false,
                })?;
            } else if self.is_imported && keyword::<Token![fn]>(input) {
                skip_past(input, "`{`", |token| match token {
                    TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                    _ => false,
                })?;
            } else if keyword::<Token![type]>(input) {
                let (name, span) = name(input)?;
                sign::<Token![=]>(input, "`=`")?;
                let body = Body::Alias(ty(input, module, 0)?);
                sign::<Token![;]>(input, "`;`")?;
                self.define(module, name, Definition { span, parameters: Vec::new(), body })?;
            } else if keyword::<Token![struct]>(input) {
                let (name, span) = name(input)?;
                let parameters = parameters(input)?;
                let body = structure(input, &attributes, module, self.kind(&attributes, &name))?;
                self.define(module, name, Definition { span, parameters, body })?;
            } else if keyword::<Token![enum]>(input) {
                let (name, span) = name(input)?;
                let parameters = parameters(input)?;
                let kind = self.kind(&attributes, &name);
                let body = enumeration(input, &attributes, module, span, kind)?;
                self.define(module, name, Definition { span, parameters, body })?;
            } else if keyword::<Token![trait]>(input) {
                let (name, span) = name(input)?;
                let found = interface(input, &name, &attributes, module)?;
                self.traits.push(path_of(module, &name));
                let body = Body::Interface(found);
                self.define(module, name, Definition { span, parameters: Vec::new(), body })?;
            } else if module.is_some() {
                return Err(expected(input, "a struct, an enum or a trait"));
            } else if keyword::<Token![mod]>(input) {
                let (name, _) = name(input)?;
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

    fn define(&mut self, module: Option<&str>, name: String, one: Definition) -> Result<()> {
        let span = one.span;
        match self.types.insert(path_of(module, &name), one) {
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

/// Skips tokens until `last` returns true for one of them. This token is skipped, too.
fn skip_past(
    input: ParseStream<'_>,
    wanted: &str,
    last: impl Fn(&TokenTree) -> bool,
) -> Result<()> {
    while !input.is_empty() {
        if last(&input.parse::<TokenTree>()?) {
            return Ok(());
        }
    }
    Err(expected(input, wanted))
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
        docs: attributes.docs.clone(),
        methods,
        programs: arguments.programs,
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
        idempotent: attributes.has("idempotent"),
        oneway: attributes.has("oneway"),
        was: attributes.was()?,
        parameters,
        result: *result,
        error: *error,
        numbers: [attributes.procedure(System::Onc)?, attributes.procedure(System::Courier)?],
    })
}

fn parameter(
    input: ParseStream<'_>,
    default_max_len: Option<u32>,
    module: Option<&str>,
) -> Result<Parameter> {
    let attributes = attributes(input)?;
    let (max_len, growth) = (attributes.max_len()?, attributes.growth()?);
    let (name, _) = name(input)?;
    sign::<Token![:]>(input, "`:`")?;
    let (direction, shape, ty) = passed(input, module)?;
    let max_len = max_len.or(default_max_len.filter(|_| shape != Shape::One));
    Ok(Parameter { name, direction, shape, ty, max_len, growth })
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
        let (growth, max) = (attributes.growth()?, attributes.foreign()?.max);
        input.parse::<Visibility>()?;
        let span = input.span();
        let name = number.to_string();
        number += 1;
        Ok(Field { name, span, ty: ty(input, module, 0)?, growth, max })
    })
}

fn named(inside: ParseStream<'_>, module: Option<&str>) -> Result<Vec<Field>> {
    list(inside, |input| {
        let attributes = attributes(input)?;
        let (growth, max) = (attributes.growth()?, attributes.foreign()?.max);
        input.parse::<Visibility>()?;
        let (name, span) = name(input)?;
        sign::<Token![:]>(input, "`:`")?;
        Ok(Field { name, span, ty: ty(input, module, 0)?, growth, max })
    })
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
        let foreign = attributes.foreign()?;
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
        let case = match foreign {
            Foreign { error: Some(error), .. } => Some(Case::Error(error)),
            Foreign { is_default: true, .. } => Some(Case::Default),
            Foreign { case, .. } => case.map(Case::Number),
        };
        Ok((Variant { name, fields, was, is_other, case }, value))
    })?;
    if !is_plain {
        return Ok(Body::Enum(numbered(variants)));
    }
    let Some(repr) = integer(attributes).or(integer_of) else {
        let what = "a plain enum needs `#[repr(u8)]`, or another integer type in `repr`";
        return Err(Error::new(span, what));
    };
    let plain = |(Variant { name, was, is_other, .. }, value)| DescribedPlainVariant {
        name,
        value,
        was,
        is_other,
    };
    let variants = variants.into_iter().map(plain).collect();
    Ok(Body::PlainEnum { repr, variants })
}

/// Returns variants with their numbers in other RPC systems. These are the discriminants, if no variant has
/// fields or an attribute with a number. A number that is the index of the variant is left out.
fn numbered(variants: Vec<(Variant, i128)>) -> Vec<Variant> {
    let has_discriminants =
        variants.iter().all(|(one, _)| one.fields.is_empty() && one.case.is_none());
    let one = |(index, (variant, value)): (i64, (Variant, i128))| {
        let case = match (has_discriminants, variant.case) {
            (true, _) => Case::numbered(index, value as i64),
            (false, Some(Case::Number(number))) => Case::numbered(index, number),
            (false, case) => case,
        };
        Variant { case, ..variant }
    };
    (0..).zip(variants).map(one).collect()
}

/// Returns the integer that `#[repr]` names.
fn integer(attributes: &Attributes) -> Option<DescribedType> {
    let integers = types::SIMPLE.iter().filter(|(name, _)| name.starts_with(['u', 'i']));
    let mut named = integers.filter(|(name, _)| attributes.has_word("repr", name));
    named.next().map(|(_, ty)| ty.clone())
}
