//! Generates the calls of one-way methods, and the code by which other calls wait for them. Interfaces
//! without one-way methods have none of this code.

use proc_macro2::TokenStream;
use quote::quote;

use crate::check::{Interface, Method};
use crate::expand::Sent;
use crate::programs;

/// Returns whether an interface has a one-way method.
pub(crate) fn has_oneway(model: &Interface) -> bool {
    model.methods.iter().any(|method| method.oneway)
}

/// Generates the code before a method's call, which waits for earlier one-way calls. Also returns an
/// expression for the binding over which to make the call.
pub(crate) fn before(
    has_oneway: bool,
    is_async: bool,
    number: u32,
    outcome: &syn::Type,
) -> (TokenStream, TokenStream) {
    if !has_oneway {
        return (TokenStream::new(), quote!(&self.binding));
    }
    let waits = match is_async {
        true => quote!(::peregrine::__rt::after_oneway_async(&self.binding, #number).await),
        false => quote!(::peregrine::__rt::after_oneway(&self.binding, #number)),
    };
    let failed = failed(outcome);
    let before = quote! {
        let __ordered = match #waits {
            ::core::result::Result::Ok(__ordered) => __ordered,
            ::core::result::Result::Err(__error) => return #failed,
        };
    };
    (before, quote!(__ordered.binding()))
}

/// Generates the result of a method whose call has failed with `__error`.
fn failed(outcome: &syn::Type) -> TokenStream {
    quote!(::peregrine::__rt::outcome_of::<#outcome>(__error))
}

/// Generates the method that waits for the one-way calls.
pub(crate) fn flush(model: &Interface, is_async: bool) -> TokenStream {
    if !has_oneway(model) {
        return TokenStream::new();
    }
    let visibility = &model.visibility;
    let (sign, call) = match is_async {
        true => (quote!(async fn), quote!(::peregrine::__rt::flush_async(&self.binding).await)),
        false => (quote!(fn), quote!(::peregrine::__rt::flush(&self.binding))),
    };
    quote! {
        /// Waits until all one-way calls that were made before have ended.
        ///
        /// # Errors
        /// Fails if a one-way call has failed, and no call has reported this failure yet.
        #visibility #sign flush(
            &self,
        ) -> ::core::result::Result<(), ::peregrine::__rt::CallError> {
            #call
        }
    }
}

/// Generates the body of a one-way method. `in_place` is an expression for a call that cannot be queued. The
/// expression makes the call with the variable `__in_place`, of type `InPlace`, and returns the result of
/// `InPlace::ended`.
pub(crate) fn body(
    model: &Interface,
    number: u32,
    method: &Method,
    is_async: bool,
    in_place: &TokenStream,
) -> TokenStream {
    let outcome = &method.outcome;
    let sent: Vec<_> = method.parameters.iter().map(Sent::new).collect();
    let (marshal, ins) = (sent.iter().map(|one| &one.marshal), sent.iter().map(|one| &one.ins));
    let (name, wait) = match is_async {
        true => (quote!(call_oneway_async), quote!(.await)),
        false => (quote!(call_oneway), TokenStream::new()),
    };
    let failed = failed(outcome);
    let foreign = programs::queued(model, method);
    quote! {
        let __called = ::peregrine::__rt::#name(&self.binding, #number, |__stub| {
            #foreign
            #(#marshal)*
            __stub.submit(&[#(#ins)*]);
            ::core::result::Result::Ok(())
        })
        #wait;
        let __made = match __called {
            ::core::result::Result::Ok(::core::option::Option::None) => {
                ::core::result::Result::Ok(())
            }
            ::core::result::Result::Ok(::core::option::Option::Some(__in_place)) => #in_place,
            ::core::result::Result::Err(__error) => ::core::result::Result::Err(__error),
        };
        match __made {
            ::core::result::Result::Ok(()) => {
                <#outcome as ::peregrine::__rt::Outcome>::from_result(
                    ::core::result::Result::Ok(()),
                )
            }
            ::core::result::Result::Err(__error) => #failed,
        }
    }
}
