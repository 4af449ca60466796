//! The `#[interface]` attribute and the derives of Peregrine. Use them through the crate `peregrine`.
//!
//! The work has three steps. `parse` converts tokens to syntax. `check` converts syntax to a model of the
//! interface, or reports all errors at once. `expand` generates the stubs from the model. Tokens do not show
//! whether a type is a value, so trait bounds in the generated code check this. `types` ensures that the
//! compiler reports each wrong type only once, at the place where it is written.

mod asynchronous;
mod callers;
mod check;
mod derive_foreign;
mod derive_plain;
mod derive_value;
mod descriptor;
mod expand;
mod growth;
mod list;
mod oneway;
mod parse;
mod pool;
mod programs;
mod types;

use proc_macro::TokenStream;

/// Converts a trait to an interface that other processes and machines can call.
///
/// For `trait Files`, the attribute generates `FilesClient`, which implements `Files` by calling a server. It
/// also generates `FilesServer<T>`, which answers calls with an object of type `T: Files`.
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
/// | `Callback<'_, dyn Trait>` | with the call: an object of the caller, which the procedure calls |
///
/// Arguments of the attribute, all optional:
///
/// - `name = "..."`: the name of the interface. It is part of the interface's identity. The default is the
///   name of the trait.
/// - `version = N`: a number that is also part of the interface's identity. The default is 0.
/// - `max_len = N`: the bound of every buffer without a `#[max_len]` attribute.
/// - `onc(program = N, version = N)` and `courier(program = N, version = N)`: the identity of the interface
///   in another RPC system. Each method then has the number of its procedure: `#[onc(N)]`, `#[courier(N)]`.
///   `peregrine::foreign::Program` has all these numbers as constants. `courier` alone is for a program that
///   is started by its name.
///
/// Attributes within the trait:
///
/// - `#[max_len(N)]` on a buffer: the maximum number of elements (for `&str`, of bytes). N is a constant
///   expression of type `u32`. A longer buffer is refused before the procedure runs. The A-stacks of a
///   binding, which hold the messages of its calls, are large enough for all bounded buffers.
/// - `#[idempotent]` on a method: the method may safely run twice.
/// - `#[oneway]` on a method: the client does not wait for the method's end. The method returns
///   `Result<(), E>`, and only takes parameters that travel with the call. If the method fails, the next call
///   of the client returns the error. The client also has a method `flush`, which waits for the one-way
///   calls.
///
/// `#[callers("PATTERN", ...)]` on a method lets only callers call the procedure that match one of the patterns
/// (`ExportOptions::allow`, which may replace them). It holds for exports of the generated server, and not for
/// callbacks or calls within a process. Only the server knows the patterns: they are no part of the interface,
/// so clients with other patterns, or with none, can call the server.
///
/// `#[at_most(N)]` on a method lets at most N of its calls run at once at each export. A further call is not
/// executed (`Kind::Overloaded`), and does not wait. A call of an async method runs until the method has ended.
/// As with `#[callers]`, only exports of the generated server follow it, and it is no part of the interface.
///
/// `#[within(50us)]` on a method promises that 99 % of its calls take at most 50 microseconds in the server, and
/// `#[within(50us, of = 99.9)]` that 99.9 % do. The units are `ns`, `us`, `ms` and `s`. The server measures the
/// calls of such methods, and reports when the promise is broken and kept again (`Server::on_late`). Where the
/// attribute holds is as for `#[at_most]`.
///
/// Interfaces may change while programs that use the old interface still run (docs/EVOLUTION.md):
///
/// - `#[default]` or `#[default(expression)]` on a parameter: the value that the server uses if the client
///   does not know the parameter. A parameter with a default may be added and removed. The default of a
///   buffer is an empty buffer.
/// - `#[was("old")]` on a method or parameter: the name that it had in older interfaces.
/// - `#[widens]` on a parameter: integers in it may have different widths on the two sides, such as `u32` and
///   `u64`.
#[proc_macro_attribute]
pub fn interface(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::interface(arguments.into(), item.into()).into()
}

/// Makes a type with a fixed layout a value. Messages contain its values as they are in memory, without
/// encoding.
///
/// The type is a struct with `#[repr(C)]` or `#[repr(transparent)]` whose fields are plain, or an
/// enum without fields that names its integer type, such as `#[repr(u8)]`. The type must be `Copy`.
/// Padding is a compile error, because it would send uninitialized memory.
///
/// The attributes `#[default]`, `#[was("old")]` and `#[widens]` of fields, and `#[other]` of variants, have
/// the same meaning as for `#[derive(Value)]`.
#[proc_macro_derive(Plain, attributes(default, other, was, widens))]
pub fn derive_plain(item: TokenStream) -> TokenStream {
    let expanded = syn::parse(item).and_then(|input| derive_plain::expand(&input));
    expanded.unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a struct or an enum a value. Its fields must be values, and are sent one after the other.
///
/// Type parameters must be values, too. A type may be recursive through `Box`, `Vec` or `Option`. Then a
/// value may have up to 256 levels (`limits::DEPTH_MAX`).
///
/// Linked lists may be longer: up to 10,000 nodes (`limits::LIST_NODES_MAX`). A struct is a linked list if
/// its last field is `Option<Box<Self>>`. An enum is a linked list if exactly one variant ends with
/// `Box<Self>`. `#[list]` at the last field of such a struct removes the limit. `#[list]` also implements
/// `Drop`: the implementation frees the nodes in a loop, because the compiler's own code would need stack for
/// each node. So fields cannot be moved out of such a struct. Use `Option::take` or `std::mem::take` instead.
///
/// Types may change while programs that use the old types still run (docs/EVOLUTION.md):
///
/// - `#[default]` or `#[default(expression)]` on a field: the value of the field if the peer does not know
///   the field. Fields may be added and removed if they have a default or are an `Option`.
/// - `#[other]` on a variant, such as `Unknown(String)`: the variant receives all variants that this program
///   does not know, with their names.
/// - `#[was("old")]` on a field or variant: the name that it had in older programs.
/// - `#[widens]` on a field: integers in it may have different widths on the two sides, such as `u32` and
///   `u64`.
#[proc_macro_derive(Value, attributes(default, list, other, was, widens))]
pub fn derive_value(item: TokenStream) -> TokenStream {
    let expanded = syn::parse(item).and_then(derive_value::expand);
    expanded.unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Gives a struct or an enum a form in XDR and in Courier, the representations of ONC RPC and of Xerox's
/// Courier.
///
/// The type has a form in each representation in which all of its fields have one. Its bytes are those of
/// the fields, one after the other. The type may have any of these attributes:
///
/// - `#[foreign(max = N)]` on a field: the maximum number of bytes of a `String` or a `ByteString`, or of
///   elements of a `Vec<T>`. Longer values are refused when they are sent and when they arrive.
/// - `#[foreign(case = N)]` on each variant of an enum with fields: the number that is sent before the fields
///   (`union` in XDR, `CHOICE` in Courier). N is a constant of any integer type, `true` or `false`, or a
///   variant of an enum without fields.
/// - `#[foreign(default)]` on one variant: it receives all other numbers. Its first field is the number: an
///   `i32` or `u32` in XDR, a `u16` in Courier.
/// - `#[foreign(switch = T)]` on an enum: the type of the numbers. It is `bool`, an integer type, or an enum
///   without fields. Each case must be one of its values. The bytes are the same without this attribute.
/// - `#[foreign(error = N)]` on variants of an enum: an error of Courier procedures. The derive then
///   implements `Reports` instead of `Foreign`.
/// - `#[foreign(xdr)]` or `#[foreign(courier)]` on the type, or both: only these representations. The fields
///   must have a form in them. Types that contain each other need this attribute.
/// - `#[list]` on the last field of a struct, of type `Option<Box<Self>>`: see `#[derive(Value)]`, which the
///   type must derive, too.
///
/// The numbers of an enum whose variants have neither fields nor `case` are its discriminants.
///
/// Linked lists are sent and received in a loop. Without `#[list]`, they have at most 10,000 nodes. Other
/// values may have up to 256 levels.
#[proc_macro_derive(Foreign, attributes(foreign, list))]
pub fn derive_foreign(item: TokenStream) -> TokenStream {
    let expanded = syn::parse(item).and_then(|input| derive_foreign::expand(&input));
    expanded.unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Returns a span for generated code that concerns the user's type at `span`.
///
/// The compiler reports errors in this code at the type. In all other respects the code counts as generated:
/// names resolve, and lints apply, as in the rest of the generated code.
fn generated_at(span: proc_macro2::Span) -> proc_macro2::Span {
    proc_macro2::Span::call_site().located_at(span)
}
