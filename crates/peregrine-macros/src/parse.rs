//! Converts tokens to syntax: the arguments of the attribute, the trait, and the attributes within the trait.

use proc_macro2::TokenStream;
use quote::ToTokens as _;
use syn::ext::IdentExt as _;
use syn::parse::{ParseStream, Parser as _};
use syn::punctuated::Punctuated;
use syn::{Attribute, Error, Expr, ExprLit, Item, ItemTrait, Lit, LitStr, Meta, Token};

use crate::programs::{Program, System};

/// The arguments of `#[interface(...)]`.
#[derive(Default)]
pub(crate) struct Arguments {
    pub(crate) name: Option<LitStr>,
    pub(crate) version: Option<u32>,
    pub(crate) max_len: Option<Expr>,
    pub(crate) programs: Vec<Program>,
}

/// Reads the arguments of the attribute. Reports wrong arguments as errors, and skips them.
pub(crate) fn arguments(tokens: TokenStream, errors: &mut Errors) -> Arguments {
    let mut arguments = Arguments::default();
    let parser = Punctuated::<Argument, Token![,]>::parse_terminated;
    match parser.parse2(tokens) {
        Ok(list) => list.into_iter().for_each(|one| argument(one, &mut arguments, errors)),
        Err(error) => errors.push(error),
    }
    arguments
}

struct Argument {
    name: syn::Ident,
    value: Option<Expr>,
    /// The tokens in parentheses after the name.
    list: Option<TokenStream>,
}

impl syn::parse::Parse for Argument {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let name = input.call(syn::Ident::parse_any)?;
        let list = if input.peek(syn::token::Paren) {
            let list;
            syn::parenthesized!(list in input);
            Some(list.parse()?)
        } else {
            None
        };
        let value = match input.parse::<Option<Token![=]>>()? {
            Some(_) => Some(input.parse()?),
            None => None,
        };
        Ok(Self { name, value, list })
    }
}

fn argument(one: Argument, arguments: &mut Arguments, errors: &mut Errors) {
    let Argument { name, value, list } = one;
    if let Some(system) = System::ALL.into_iter().find(|system| name == system.name()) {
        let known = arguments.programs.iter().any(|program| program.system() == system);
        let list = list.or_else(|| value.map(Expr::into_token_stream));
        match Program::read(system, name.clone(), list) {
            Ok(program) => arguments.programs.push(program),
            Err(error) => errors.push(error),
        }
        if known {
            errors.at(&name, format!("duplicate argument `{name}`: remove one"));
        }
        return;
    }
    let twice = match name.to_string().as_str() {
        "name" => match string(value.as_ref()) {
            Some(text) => arguments.name.replace(text).is_some(),
            None => return errors.at(name, "write `name = \"...\"`, a string"),
        },
        "version" => match number(value.as_ref()) {
            Some(version) => arguments.version.replace(version).is_some(),
            None => return errors.at(name, "write `version = N`, a number of 32 bits"),
        },
        "max_len" => match value {
            Some(max_len) => arguments.max_len.replace(max_len).is_some(),
            None => return errors.at(name, "write `max_len = N`, a constant of type `u32`"),
        },
        _ => {
            return errors.at(
                name,
                "unknown argument: `#[interface]` takes `name = \"...\"`, `version = N`, `max_len = N`, `onc(...)` and `courier(...)`",
            );
        }
    };
    if twice {
        errors.at(&name, format!("duplicate argument `{name}`: remove one"));
    }
}

fn string(value: Option<&Expr>) -> Option<LitStr> {
    match value {
        Some(Expr::Lit(ExprLit { lit: Lit::Str(text), .. })) => Some(text.clone()),
        _ => None,
    }
}

fn number(value: Option<&Expr>) -> Option<u32> {
    match value {
        Some(Expr::Lit(ExprLit { lit: Lit::Int(number), .. })) => number.base10_parse().ok(),
        _ => None,
    }
}

/// Reads the trait to which the attribute is applied.
pub(crate) fn item_trait(tokens: TokenStream) -> syn::Result<ItemTrait> {
    match syn::parse2(tokens)? {
        Item::Trait(item) => Ok(item),
        other => Err(Error::new_spanned(
            other,
            "expected a trait: `#[interface]` makes the methods of a trait procedures",
        )),
    }
}

/// Returns the text of the documentation comments, without the space at the start of each line.
pub(crate) fn docs(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => string(Some(&pair.value)),
        _ => None,
    });
    let lines = lines.map(|line| {
        let line = line.value();
        line.strip_prefix(' ').unwrap_or(&line).to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Removes the attributes of this name from the list, and returns them.
pub(crate) fn take(attributes: &mut Vec<Attribute>, name: &str) -> Vec<Attribute> {
    attributes.extract_if(.., |attribute| attribute.path().is_ident(name)).collect()
}

/// Returns the bound in `#[max_len(N)]`.
pub(crate) fn max_len(attribute: &Attribute) -> syn::Result<Expr> {
    match &attribute.meta {
        Meta::List(list) => list.parse_args(),
        _ => Err(Error::new_spanned(
            attribute,
            "write `#[max_len(N)]`, where N is a constant of type `u32`",
        )),
    }
}

/// All errors that were found. They are reported together.
#[derive(Default)]
pub(crate) struct Errors(Option<Error>);

impl Errors {
    pub(crate) fn at(&mut self, tokens: impl quote::ToTokens, text: impl std::fmt::Display) {
        self.push(Error::new_spanned(tokens, text));
    }

    pub(crate) fn push(&mut self, error: Error) {
        match &mut self.0 {
            Some(errors) => errors.combine(error),
            None => self.0 = Some(error),
        }
    }

    /// Returns the number of errors so far.
    pub(crate) fn count(&self) -> usize {
        self.0.iter().flatten().count()
    }

    pub(crate) fn or<T>(self, value: T) -> syn::Result<T> {
        match self.0 {
            Some(errors) => Err(errors),
            None => Ok(value),
        }
    }
}
