//! Attributes of a method for its procedure descriptor: `#[at_most(N)]` and `#[within(TIME)]`. They are not part of the
//! interface: only the server stubs know them.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::ParseStream;
use syn::{Attribute, Ident, Lit, LitInt, Token};

use crate::callers;
use crate::check::{Interface, Method};
use crate::parse::{self, Errors};

/// What the attributes of a method say to its server.
#[derive(Default)]
pub(crate) struct Descriptor {
    /// How many calls of the procedure may run at once.
    pub(crate) at_most: Option<u32>,
    /// How long most calls of the procedure take at most.
    pub(crate) within: Option<Within>,
}

/// How long most calls of a procedure take at most: `#[within(50us, of = 99.9)]`.
pub(crate) struct Within {
    ns: u64,
    /// Of how many calls in 1,000 this is promised.
    of: u32,
}

impl Descriptor {
    /// Removes the attributes from the list, and reads them.
    pub(crate) fn take(attributes: &mut Vec<Attribute>, errors: &mut Errors) -> Self {
        let at_most = only(parse::take(attributes, "at_most"), errors);
        let within = only(parse::take(attributes, "within"), errors);
        Self {
            at_most: at_most.and_then(|attribute| calls(&attribute, errors)),
            within: within.and_then(|attribute| times(&attribute, errors)),
        }
    }
}

/// Returns the attribute, and reports further ones of the same name.
fn only(attributes: Vec<Attribute>, errors: &mut Errors) -> Option<Attribute> {
    let mut attributes = attributes.into_iter();
    let first = attributes.next();
    for attribute in attributes {
        let name = attribute.path().get_ident().map(ToString::to_string).unwrap_or_default();
        errors.at(attribute, format!("duplicate attribute `{name}`: remove one"));
    }
    first
}

/// Returns the number in `#[at_most(N)]`.
fn calls(attribute: &Attribute, errors: &mut Errors) -> Option<u32> {
    let number = attribute.parse_args::<LitInt>().ok().filter(|number| number.suffix().is_empty());
    match number.and_then(|number| number.base10_parse::<u32>().ok()) {
        None => errors.at(
            attribute,
            "write how many calls may run at once as a number of 32 bits, as in `#[at_most(4)]`",
        ),
        Some(0) => errors
            .at(attribute, "no call could run: write a number of at least 1, or remove the method"),
        some => return some,
    }
    None
}

/// Returns what `#[within(TIME)]` or `#[within(TIME, of = PERCENT)]` says.
fn times(attribute: &Attribute, errors: &mut Errors) -> Option<Within> {
    let parse = |input: ParseStream<'_>| {
        let time: Lit = input.parse()?;
        let mut of = None;
        if input.parse::<Option<Token![,]>>()?.is_some() && !input.is_empty() {
            let name: Ident = input.parse()?;
            if name != "of" {
                return Err(input.error("unknown option"));
            }
            input.parse::<Token![=]>()?;
            of = Some(input.parse::<Lit>()?);
            input.parse::<Option<Token![,]>>()?;
        }
        Ok((time, of))
    };
    let Ok((time, of)) = attribute.parse_args_with(parse) else {
        errors.at(
            attribute,
            "write how long calls may take, as in `#[within(50us)]` or `#[within(50us, of = 99.9)]`",
        );
        return None;
    };
    let ns = nanoseconds(&text_of(&time));
    if ns.is_none() {
        errors.at(
            &time,
            "write a time of more than zero with its unit `ns`, `us`, `ms` or `s`, as in `50us` or `1.5ms`",
        );
    }
    let calls = of.as_ref().map_or(Some(990), |of| per_thousand(&text_of(of)));
    if calls.is_none() {
        errors.at(
            &of,
            "write the percentage of calls from 0.1 to 100, with at most one decimal, as in `of = 99.9`",
        );
    }
    Some(Within { ns: ns?, of: calls? })
}

/// Returns the text of a literal. `50us` is a number with a suffix.
fn text_of(literal: &Lit) -> String {
    match literal {
        Lit::Str(text) => text.value(),
        Lit::Int(number) => number.to_string(),
        Lit::Float(number) => number.to_string(),
        _ => String::new(),
    }
}

/// Returns the number in a text such as `1.5`, in units of which `whole` are one. `None` if it is no such
/// number, or needs more digits.
fn decimal(text: &str, whole: u64) -> Option<u64> {
    let (before, after) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if before.is_empty() || !is_number(before) || !is_number(after) {
        return None;
    }
    let mut sum = before.parse::<u64>().ok()?.checked_mul(whole)?;
    let mut unit = whole;
    for digit in after.bytes() {
        let digit = u64::from(digit - b'0');
        if digit != 0 && !unit.is_multiple_of(10) {
            return None;
        }
        unit /= 10;
        sum = sum.checked_add(digit * unit)?;
    }
    Some(sum)
}

/// Returns a time such as `50us` in nanoseconds.
fn nanoseconds(text: &str) -> Option<u64> {
    let at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(at);
    let ns = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    decimal(number, ns).filter(|ns| *ns > 0)
}

/// Returns a percentage such as `99.9` in calls per thousand.
fn per_thousand(text: &str) -> Option<u32> {
    let calls = decimal(text, 10).and_then(|calls| u32::try_from(calls).ok())?;
    (1..=1000).contains(&calls).then_some(calls)
}

/// Generates the functions of a server stub that return what the attributes say, and who may call what.
pub(crate) fn server_side(model: &Interface) -> TokenStream {
    let allowed = callers::allowed(model);
    let at_most = listed(model, |method| {
        let most = method.descriptor.at_most?;
        Some(quote!(#most))
    });
    let at_most = at_most.map(|list| {
        quote! {
            fn at_most(&self) -> &'static [(&'static str, u32)] {
                #list
            }
        }
    });
    let within = listed(model, |method| {
        let Within { ns, of } = method.descriptor.within.as_ref()?;
        Some(quote!((#ns, #of)))
    });
    let within = within.map(|list| {
        quote! {
            fn within(&self) -> &'static [(&'static str, (u64, u32))] {
                #list
            }
        }
    });
    quote!(#allowed #at_most #within)
}

/// Returns a list with the name of each method for which `value` returns something. `None` if there is no
/// such method.
fn listed(
    model: &Interface,
    value: impl Fn(&Method) -> Option<TokenStream>,
) -> Option<TokenStream> {
    let one = |method: &Method| {
        let value = value(method)?;
        let name = method.ident.to_string();
        let name = name.strip_prefix("r#").unwrap_or(&name);
        Some(quote!((#name, #value)))
    };
    let list: Vec<_> = model.methods.iter().filter_map(one).collect();
    (!list.is_empty()).then(|| quote!(&[#(#list),*]))
}
