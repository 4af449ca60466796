//! `#[allow("PATTERN")]` on a method: which callers may call the procedure. It is not part of the interface:
//! only the server stubs know it.

use proc_macro2::{TokenStream, TokenTree};
use quote::quote;
use syn::punctuated::Punctuated;
use syn::{Attribute, LitStr, Meta, Token};

use crate::check::{Interface, Method};
use crate::parse::Errors;

/// Removes the attributes with patterns from the list, and returns the patterns. `None` if there are no such
/// attributes. Attributes for lints, such as `#[allow(dead_code)]`, stay.
pub(crate) fn take(attributes: &mut Vec<Attribute>, errors: &mut Errors) -> Option<Vec<LitStr>> {
    let ours: Vec<_> = attributes.extract_if(.., |attribute| has_text(attribute)).collect();
    let mut patterns = None;
    for attribute in &ours {
        let found = attribute.parse_args_with(Punctuated::<LitStr, Token![,]>::parse_terminated);
        match found {
            Ok(found) => patterns.get_or_insert_with(Vec::new).extend(found),
            Err(_) => errors.at(
                attribute,
                "write patterns for callers as texts, as in `#[allow(\"ops/*\", \"uid:0\")]`, and lints in an attribute of their own",
            ),
        }
    }
    patterns
}

/// Returns whether an attribute is `#[allow(...)]`, and a text is among its arguments. The names of lints are
/// no texts.
fn has_text(attribute: &Attribute) -> bool {
    let Meta::List(list) = &attribute.meta else { return false };
    let is_text = |token| match token {
        TokenTree::Literal(literal) => literal.to_string().contains('"'),
        _ => false,
    };
    list.path.is_ident("allow") && list.tokens.clone().into_iter().any(is_text)
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
