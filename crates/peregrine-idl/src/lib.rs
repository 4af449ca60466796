//! Reads Rust traits from text as interfaces of Peregrine, and prints interfaces as Rust traits. Also turns
//! interface files of ONC RPC ([`onc`]) and Courier ([`courier`]) into Rust traits, and Rust traits into such
//! files ([`export_traits`]).
//!
//! A server implements a trait. Some programs do not compile this trait: the `peregrine` command, interface
//! compilers, and language bindings. They represent an interface as a [`Described`]. [`parse_trait`] converts
//! the text of a trait to a [`Described`], and [`to_trait`] prints a [`Described`] as a trait.
//!
//! # What is read
//!
//! The text must contain one trait, the types that it uses, and the traits of its callbacks. The text may be
//! the server's source file, if that file contains only the following:
//!
//! * one trait that is not the trait of a callback, with the attributes of `#[interface]` (`name`, `version`,
//!   `max_len`) and methods that take `&self` and return `Result<T, E>` or `peregrine::Result<T>`;
//! * structs and enums. They are plain if they have `#[derive(Plain)]`, and otherwise structured values;
//! * the attributes by which interfaces grow: `#[default]`, `#[was]`, `#[widens]` and `#[other]`. The
//!   expression of a default must consist of literals, floats such as `f64::NAN`, and simple combinations of
//!   them;
//! * types of the standard library that are values, such as `Duration`, `HashMap` and `PathBuf`, and types
//!   with parameters, such as `Page<Item>`;
//! * types of `uuid`, `bytes`, `chrono` and `time` that are values, such as `Uuid` and `DateTime<Utc>`. The
//!   exception is `time::Duration`: write `time::SignedDuration` instead. [`to_trait`] prints a type of
//!   another crate as the struct or enum that describes it;
//! * the traits of callbacks, such as `Listener` for `Callback<'_, dyn Listener>`;
//! * modules that contain structs, enums and traits of callbacks, one level deep;
//! * the numbers and bounds of other RPC systems: `onc(...)` and `courier(...)` in `#[interface]`,
//!   `#[onc(N)]` and `#[courier(N)]`, and `#[foreign(...)]` with numbers;
//! * other names of types, such as `type Key = [u8; 8];`;
//! * `use` declarations, constants, functions and `impl` blocks, which are skipped, and comments;
//! * documentation comments. Those of the trait and of its methods are kept.
//!
//! A name that is not a valid name in Rust may be in quotes: `fn "get-size"(&self) -> ...`. Interfaces that
//! come from other languages can have such names.
//!
//! # What is not in a description
//!
//! The printed trait equals the one in the server's source, except for parts that a description does not
//! contain: bodies of `impl` blocks, other items, the documentation of types and of the traits of callbacks,
//! and whether a callback may be kept after the call (`Callback<'static, ...>`). The printed trait compiles
//! if all of its names are valid names in Rust, and if [`Plain`](peregrine::Plain),
//! [`Value`](peregrine::Value), [`Lent`](peregrine::Lent), [`Out`](peregrine::Out),
//! [`Sink`](peregrine::Sink), [`Source`](peregrine::Source) and [`Callback`](peregrine::Callback) are in
//! scope.
//!
//! ```
//! let files = peregrine_idl::parse_trait(
//!     "
//!     /// A remote file service.
//!     trait Files {
//!         fn read(&self, path: &str, offset: u64, into: Out<'_, u8>) -> Result<(), FileError>;
//!     }
//!     #[derive(Value)]
//!     enum FileError { NotFound, Other(String) }
//!     ",
//! )?;
//! assert_eq!(files.procedures[0].parameters[2].name, "into");
//! assert_eq!(files.docs, "A remote file service.");
//! // What is printed is read again.
//! let text = peregrine_idl::to_trait(&files);
//! assert_eq!(peregrine_idl::parse_trait(&text)?, files);
//! # Ok::<(), peregrine_idl::ParseError>(())
//! ```
#![forbid(unsafe_code)]

pub mod courier;
mod default;
mod diagnostic;
mod error;
mod export;
mod graph;
mod layout;
mod library;
mod names;
pub mod onc;
mod parse;
mod print;
mod resolve;
mod scan;
mod syntax;
mod tokens;

use std::collections::HashMap;
use std::panic::resume_unwind;
use std::thread;

use peregrine::interface::{Described, DescribedBody};
use peregrine::limits::CANONICAL_BYTES_MAX;
use syn::parse::{ParseStream, Parser};

use crate::syntax::{Kind, Source};

pub use diagnostic::{DIAGNOSTICS_MAX, Diagnostic, Diagnostics, Severity};
pub use error::ParseError;
pub use export::{EXPORT_BYTES_MAX, Exported, export_traits};
pub use onc::{export_onc, import_onc};
pub use scan::{NESTING_MAX, NUMBER_LETTERS_MAX};

/// Reads a trait, the types that it needs, and its documentation.
///
/// The text need not be trusted, because parsing is bounded. The bound of its length is
/// [`CANONICAL_BYTES_MAX`]. The bounds of its nesting are [`NESTING_MAX`] and
/// [`CANONICAL_DEPTH_MAX`](peregrine::limits::CANONICAL_DEPTH_MAX).
///
/// ```
/// let text = "trait Add { fn add(&self, a: i32, b: i32) -> peregrine::Result<i32>; }";
/// let add = peregrine_idl::parse_trait(text)?;
/// assert_eq!(add.name, "Add");
/// assert_eq!(add.procedures[0].parameters.len(), 2);
///
/// let wrong = "trait Add {\n    fn add(&self, a: usize) -> peregrine::Result<i32>;\n}";
/// let error = peregrine_idl::parse_trait(wrong).unwrap_err();
/// assert_eq!((error.line(), error.column()), (2, 22));
/// # Ok::<(), peregrine_idl::ParseError>(())
/// ```
///
/// # Errors
/// Fails if the text is not such a trait, or exceeds a bound. The error contains the line and the column.
pub fn parse_trait(text: &str) -> Result<Described, ParseError> {
    parse(text, &HashMap::new(), of_root)
}

/// Reads all interfaces of a text: each trait that is not the trait of a callback. The text is like that of
/// [`parse_trait`], but may have any number of such traits.
///
/// The result of [`import_onc`] and [`courier::import_courier`] is such a text, so that a program can call a
/// server of ONC RPC or Courier without a compiler.
///
/// ```
/// use peregrine_idl::{import_onc, parse_traits};
///
/// let text = "program CLOCK {
///     version FIRST { int GET(void) = 1; } = 1;
///     version SECOND { hyper GET(void) = 1; } = 2;
/// } = 0x20000002;";
/// let imported = import_onc(text, "clock.x")?;
/// let interfaces = parse_traits(&imported.rust)?;
/// assert_eq!(interfaces[1].to_string(), "interface clock version 2\nget() -> i64 or CallError#0\n\
///                                        CallError#0 = struct {chain: text}\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Fails in the same cases as [`parse_trait`], except that the number of traits does not matter.
pub fn parse_traits(text: &str) -> Result<Vec<Described>, ParseError> {
    parse(text, &HashMap::new(), |_, source| {
        parse::roots(source).iter().map(|root| resolve::described(source, root)).collect()
    })
}

/// Reads a trait like [`parse_trait`]. If a type has no derives, it gets the kind that the type of the same
/// name has in `like`. The kinds are: structured, plain, and plain enum with a certain integer.
///
/// ```
/// use peregrine::interface::{Described, DescribedBody};
///
/// let like = "interface A version 0\nf(in a: P#0) -> unit or text\nP#0 = plain 4 align 4 {x: u32}\n";
/// let like = Described::parse(like)?;
/// let text = "trait A { fn f(&self, a: &P) -> Result<(), String>; } struct P { x: u32 }";
/// assert_eq!(peregrine_idl::parse_trait_like(text, &like)?, like);
/// assert_ne!(peregrine_idl::parse_trait(text)?, like);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Fails in the same cases as [`parse_trait`].
pub fn parse_trait_like(text: &str, like: &Described) -> Result<Described, ParseError> {
    let kinds = like.types.iter().filter_map(|one| {
        let kind = match &one.body {
            DescribedBody::Plain { .. } => Kind::Plain,
            DescribedBody::PlainEnum { repr, .. } => Kind::PlainEnum(repr.clone()),
            _ => return None,
        };
        Some((one.name.clone(), kind))
    });
    parse(text, &kinds.collect(), of_root)
}

/// Returns the only interface of a text.
fn of_root(input: ParseStream<'_>, source: &Source) -> syn::Result<Described> {
    resolve::described(source, &parse::root(input, source)?)
}

/// Reads a text within bounds, and returns the result of `make`.
fn parse<T: Send>(
    text: &str,
    kinds: &HashMap<String, Kind>,
    make: impl Fn(ParseStream<'_>, &Source) -> syn::Result<T> + Sync,
) -> Result<T, ParseError> {
    if text.len() > CANONICAL_BYTES_MAX {
        let reason = format!("{} bytes are more than {CANONICAL_BYTES_MAX}", text.len());
        return Err(ParseError::new(1, 1, reason));
    }
    on_a_thread(|| {
        let tokens = scan::tokens(text)?;
        let source = |input: ParseStream<'_>| {
            let source = parse::source(input, kinds)?;
            make(input, &source)
        };
        source.parse2(tokens).map_err(|error| ParseError::of_syn(text, &error))
    })
}

/// Runs a function that reads tokens. `proc_macro2` keeps each text until the thread that has read it ends,
/// because spans refer to the text. With a new thread for each text, the memory of the process does not grow.
fn on_a_thread<T: Send>(run: impl Fn() -> T + Sync) -> T {
    thread::scope(|scope| {
        let name = "peregrine-idl".to_owned();
        match thread::Builder::new().name(name).spawn_scoped(scope, &run) {
            Ok(reader) => reader.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) => run(),
        }
    })
}

/// Prints an interface as a trait in Rust, with the types that it needs.
///
/// ```
/// use peregrine::interface::{Described, DescribedBody};
///
/// let text = "interface Add version 2\nadd(in a: i32, out sums: [i64] max 8) -> unit or CallError#0\n\
///             CallError#0 = struct {chain: text}\n";
/// assert_eq!(
///     peregrine_idl::to_trait(&Described::parse(text)?),
///     "#[interface(version = 2)]
/// pub trait Add {
///     fn add(&self, a: i32, #[max_len(8)] sums: Out<'_, i64>) -> peregrine::Result<()>;
/// }
/// "
/// );
/// # Ok::<(), peregrine::interface::TextError>(())
/// ```
pub fn to_trait(described: &Described) -> String {
    print::trait_of(described)
}
