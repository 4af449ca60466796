//! Attributes of a method for its procedure descriptor, such as `#[at_most(N)]`. They are not part of the
//! interface: only the server stubs know them.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, LitInt};

use crate::callers;
use crate::check::{Interface, Method};
use crate::parse::{self, Errors};

/// What the attributes of a method say to its server.
#[derive(Default)]
pub(crate) struct Descriptor {
    /// How many calls of the procedure may run at once.
    pub(crate) at_most: Option<u32>,
}

impl Descriptor {
    /// Removes the attributes from the list, and reads them.
    pub(crate) fn take(attributes: &mut Vec<Attribute>, errors: &mut Errors) -> Self {
        let at_most = only(parse::take(attributes, "at_most"), errors);
        Self { at_most: at_most.and_then(|attribute| calls(&attribute, errors)) }
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
    quote!(#allowed #at_most)
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
