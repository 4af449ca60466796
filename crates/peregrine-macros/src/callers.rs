//! `#[callers("PATTERN")]` on a method: which callers may call the procedure. It is not part of the interface:
//! only the server stubs know it.

use proc_macro2::TokenStream;
use quote::quote;
use syn::punctuated::Punctuated;
use syn::{Attribute, LitStr, Token};

use crate::check::{Interface, Method};
use crate::parse::{self, Errors};

/// Removes the attributes from the list, and returns their patterns. `None` if there are no such attributes.
pub(crate) fn take(attributes: &mut Vec<Attribute>, errors: &mut Errors) -> Option<Vec<LitStr>> {
    let mut patterns = None;
    for attribute in parse::take(attributes, "callers") {
        let found = attribute.parse_args_with(Punctuated::<LitStr, Token![,]>::parse_terminated);
        match found {
            Ok(found) => patterns.get_or_insert_with(Vec::new).extend(found),
            Err(_) => errors.at(
                attribute,
                "write the patterns for callers as texts, as in `#[callers(\"ops/*\", \"uid:0\")]`",
            ),
        }
    }
    patterns
}

/// Generates the function of a server stub that returns the patterns.
pub(crate) fn allowed(model: &Interface) -> TokenStream {
    let limited = |method: &Method| {
        let patterns = method.allowed.as_ref()?;
        let name = method.ident.to_string();
        let name = name.strip_prefix("r#").unwrap_or(&name);
        Some(quote!((#name, &[#(#patterns),*])))
    };
    let limited: Vec<_> = model.methods.iter().filter_map(limited).collect();
    if limited.is_empty() {
        return TokenStream::new();
    }
    quote! {
        fn allowed(&self) -> &'static [(&'static str, &'static [&'static str])] {
            &[#(#limited),*]
        }
    }
}
