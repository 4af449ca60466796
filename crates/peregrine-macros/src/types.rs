//! Determines how stubs name the types of an interface, so that the compiler reports a wrong type only once.
//!
//! If a type is not a value, a trait bound fails at each use of the type in generated code. The compiler
//! drops an error message that equals an earlier one. So the stubs always name a type in the same form, such
//! as `<T as Travels>::Is`, and at the same position: that of its first mention in the trait.

use proc_macro2::{Group, Span, TokenStream, TokenTree};
use quote::{ToTokens as _, quote_spanned};
use syn::Type;
use syn::spanned::Spanned as _;

use crate::check::{Form, Interface};
use crate::generated_at;

/// The types of an interface, each with the position of its first mention.
#[derive(Default)]
struct Types(Vec<(String, Span)>);

/// Replaces the types of parameters and results by the forms that the stubs use.
pub(crate) fn name(model: &mut Interface) {
    let mut types = Types::default();
    for method in &mut model.methods {
        for parameter in &mut method.parameters {
            parameter.ty = match parameter.form {
                Form::Text => continue,
                Form::Callback { .. } => types.bound(&parameter.ty, "Callable"),
                Form::Out | Form::Lent => types.bound(&parameter.ty, "TravelsAsBlock"),
                _ => types.bound(&parameter.ty, "Travels"),
            };
        }
        method.outcome = types.bound(&method.returns, "Outcome");
    }
}

impl Types {
    /// Returns `<T as BOUND>::Is`, at the position of the first mention of the type.
    fn bound(&mut self, ty: &Type, bound: &str) -> Type {
        let text = ty.to_token_stream().to_string();
        let first = self.0.iter().find(|(seen, _)| *seen == text).map(|(_, span)| *span);
        let span = first.unwrap_or_else(|| ty.span());
        if first.is_none() {
            self.0.push((text, span));
        }
        let (ty, bound) = (moved(ty.to_token_stream(), span), quote::format_ident!("{bound}"));
        Type::Verbatim(quote_spanned! {generated_at(span)=>
            <#ty as ::peregrine::__rt::#bound>::Is
        })
    }
}

/// Returns the tokens, moved to the position `place`. Names in the tokens resolve as before.
fn moved(tokens: TokenStream, place: Span) -> TokenStream {
    let moved = |token: TokenTree| {
        let mut token = match token {
            TokenTree::Group(group) => {
                TokenTree::Group(Group::new(group.delimiter(), moved(group.stream(), place)))
            }
            other => other,
        };
        token.set_span(token.span().located_at(place));
        token
    };
    tokens.into_iter().map(moved).collect()
}
