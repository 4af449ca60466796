//! The `#[interface]` attribute and the derives of Peregrine; use them through `peregrine`.
//!
//! Tokens go through three rooms: `parse` reads them, `check` makes a model of them or says
//! everything that is wrong at once, `expand` writes the model out as stubs. What tokens cannot
//! show (whether a type is a value) is left to trait bounds, checked where the type stands.

mod check;
mod derive_plain;
mod derive_value;
mod expand;
mod parse;

use proc_macro::TokenStream;

/// Makes a trait an interface that can be called from another domain.
///
/// For `trait Files` it adds `FilesClient`, which implements `Files` by calling a server, and
/// `FilesServer<T>`, which answers calls with an object of type `T: Files`.
///
/// Every method takes `&self` and returns a `Result` whose error is `From<CallError>`. The type
/// of a parameter says in which direction it travels:
///
/// | written | travels |
/// |---|---|
/// | `T`, `&T` | with the call, a value |
/// | `&str`, `&[T]` | with the call, a buffer |
/// | `Lent<'_, T>` | with the call, a buffer that is not copied for the procedure |
/// | `Out<'_, T>` | with the result: the caller's buffer, filled |
/// | `&mut T`, `&mut [T]` | both ways; assigned only when the result is `Ok` |
///
/// Arguments of the attribute, all optional:
///
/// - `name = "..."`: what the interface is called in its identity, instead of the trait's name.
/// - `version = N`: a number that is part of its identity; 0 unless given.
/// - `max_len = N`: the bound of every buffer that has none of its own.
///
/// Attributes within the trait:
///
/// - `#[max_len(N)]` on a buffer: the largest number of elements (bytes, for `&str`), a constant
///   expression of type `u32`. More is refused before the procedure runs, and bounded buffers
///   get A-stacks that are large enough.
/// - `#[idempotent]` on a method: it may safely run twice.
#[proc_macro_attribute]
pub fn interface(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::interface(arguments.into(), item.into()).into()
}

/// Makes a type of fixed layout a value that is copied as it lies in memory.
///
/// For structs with `#[repr(C)]` or `#[repr(transparent)]` whose fields are plain, and for
/// enumerations without payload that say their integer, such as `#[repr(u8)]`. The type must be
/// `Copy`. Padding, which would carry whatever memory held, is refused when compiling.
#[proc_macro_derive(Plain)]
pub fn derive_plain(item: TokenStream) -> TokenStream {
    let expanded = syn::parse(item).and_then(|input| derive_plain::expand(&input));
    expanded.unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a struct or an enumeration of values a value: its fields, one after the other.
///
/// Type parameters must be values too. Types may be recursive through `Box`, `Vec` or `Option`.
#[proc_macro_derive(Value)]
pub fn derive_value(item: TokenStream) -> TokenStream {
    let expanded = syn::parse(item).and_then(derive_value::expand);
    expanded.unwrap_or_else(syn::Error::into_compile_error).into()
}

/// The span of code that is ours, shown at a type of the user's: where the compiler shall say that
/// the type is no value, while names resolve and lints hold as in generated code.
fn generated_at(span: proc_macro2::Span) -> proc_macro2::Span {
    proc_macro2::Span::call_site().located_at(span)
}
