//! The `#[interface]` attribute and the derives of Peregrine; use them through `peregrine`.
//!
//! `parse` turns tokens into syntax. `check` turns syntax into a model, or reports all errors at once.
//! `expand` writes the stubs of the model. Tokens do not show whether a type is a value: trait bounds check
//! this, and `types` makes the compiler report each wrong type once, where it is written.

mod asynchronous;
mod check;
mod derive_plain;
mod derive_value;
mod expand;
mod growth;
mod list;
mod parse;
mod types;

use proc_macro::TokenStream;

/// Makes a trait an interface that other processes and machines can call.
///
/// For `trait Files` it adds `FilesClient`, which implements `Files` by calling a server, and
/// `FilesServer<T>`, which answers calls with an object of type `T: Files`.
///
/// Every method takes `&self` and returns a `Result` whose error implements `From<CallError>`. The
/// type of a parameter determines its direction:
///
/// | type | direction |
/// |---|---|
/// | `T`, `&T` | with the call, a value |
/// | `&str`, `&[T]` | with the call, a buffer |
/// | `Lent<'_, T>` | with the call, a buffer that is not copied for the procedure |
/// | `Out<'_, T>` | with the result: the caller's buffer, filled |
/// | `&mut T`, `&mut [T]` | both ways; assigned only when the result is `Ok` |
///
/// Arguments of the attribute, all optional:
///
/// - `name = "..."`: the name of the interface, which is part of its identity. The default is the
///   name of the trait.
/// - `version = N`: a number that is part of the identity. The default is 0.
/// - `max_len = N`: the bound of every buffer without a `#[max_len]` attribute.
///
/// Attributes within the trait:
///
/// - `#[max_len(N)]` on a buffer: the maximum number of elements (bytes, for `&str`), a constant
///   expression of type `u32`. A longer buffer is refused before the procedure runs. The A-stacks of
///   a binding are large enough for all bounded buffers.
/// - `#[idempotent]` on a method: the method may safely run twice.
///
/// Interfaces may change while old and new programs run (docs/EVOLUTION.md):
///
/// - `#[default]` or `#[default(expression)]` on a parameter: the value that a server gets from a client
///   without the parameter. Such a parameter may be added and removed. The default of a buffer is empty.
/// - `#[was("old")]` on a method or parameter: its name in older interfaces.
/// - `#[widens]` on a parameter: the width of its integers may differ on the two sides, as `u32` and
///   `u64` do.
#[proc_macro_attribute]
pub fn interface(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::interface(arguments.into(), item.into()).into()
}

/// Makes a type of fixed layout a value. Its values are copied as they are in memory, without encoding.
///
/// The type is a struct with `#[repr(C)]` or `#[repr(transparent)]` whose fields are plain, or an
/// enum without fields that names its integer type, such as `#[repr(u8)]`. The type must be `Copy`.
/// Padding is a compile error, because it would send uninitialized memory.
///
/// The attributes `#[default]`, `#[was("old")]` and `#[widens]` of fields, and `#[other]` of variants, are those
/// of `#[derive(Value)]`.
#[proc_macro_derive(Plain, attributes(default, other, was, widens))]
pub fn derive_plain(item: TokenStream) -> TokenStream {
    let expanded = syn::parse(item).and_then(|input| derive_plain::expand(&input));
    expanded.unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a struct or an enum a value. Its fields must be values, and are sent one after the other.
///
/// Type parameters must be values too. A type may be recursive through `Box`, `Vec` or `Option`, with up
/// to 256 levels (`limits::DEPTH_MAX`).
///
/// Linked lists may be longer: if the last field of a struct is `Option<Box<Self>>`, or one variant of an
/// enum ends with `Box<Self>`, up to 10,000 nodes (`limits::LIST_NODES_MAX`) are sent. `#[list]` at this
/// field of a struct removes the limit. It also implements `Drop`, which frees the nodes in a loop: the
/// compiler's own code would need stack for each node. So fields cannot be moved out of such a struct;
/// use `Option::take` or `std::mem::take`.
///
/// Types may change while old and new programs run (docs/EVOLUTION.md):
///
/// - `#[default]` or `#[default(expression)]` on a field: its value if the peer does not know it. Fields that
///   have a default or are an `Option` may be added and removed.
/// - `#[other]` on a variant, such as `Unknown(String)`: it receives variants that are not known here, with
///   their names.
/// - `#[was("old")]` on a field or variant: its name in older programs.
/// - `#[widens]` on a field: the width of its integers may differ on the two sides, as `u32` and `u64` do.
#[proc_macro_derive(Value, attributes(default, list, other, was, widens))]
pub fn derive_value(item: TokenStream) -> TokenStream {
    let expanded = syn::parse(item).and_then(derive_value::expand);
    expanded.unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Returns a span for generated code that concerns the user's type at `span`.
///
/// The compiler reports errors in this code at the type. Names resolve and lints apply as in other generated
/// code.
fn generated_at(span: proc_macro2::Span) -> proc_macro2::Span {
    proc_macro2::Span::call_site().located_at(span)
}
