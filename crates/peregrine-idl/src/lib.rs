//! Interfaces of Peregrine as Rust traits: read from text, and printed.
//!
//! A server is written against a trait. Programs that do not compile that trait (the `peregrine`
//! command, interface compilers, language bindings) know the interface as a [`Described`].
//! [`parse_trait`] reads a trait into one, and [`to_trait`] prints one as a trait.
//!
//! # What is read
//!
//! The text has one trait and the types that it uses. It may be the server's source file if that has
//! no more than this:
//!
//! * one trait, with the attributes of `#[interface]` (`name`, `version`, `max_len`) and methods that
//!   take `&self` and return `Result<T, E>` or `peregrine::Result<T>`;
//! * structs and enums. They are plain if they have `#[derive(Plain)]`, and otherwise structured values;
//! * the attributes by which interfaces grow: `#[default]`, `#[was]`, `#[widens]` and `#[other]`. The
//!   expression of a default consists of literals, floats such as `f64::NAN`, and what is made of them;
//! * types of the standard library that are values, such as `Duration`, `HashMap` and `PathBuf`, and types
//!   with parameters, such as `Page<Item>`;
//! * types of `uuid`, `bytes`, `chrono` and `time` that are values, such as `Uuid` and `DateTime<Utc>`,
//!   except for `time::Duration`: write `time::SignedDuration`. Types of other crates are printed as the
//!   structs and enums that describe them;
//! * modules that contain structs and enums, one level deep;
//! * `use` declarations and `impl` blocks, which are skipped, and comments;
//! * documentation comments, of which those of the trait and of its methods are kept.
//!
//! A name that is not a name in Rust may be in quotes: `fn "get-size"(&self) -> ...`. Interfaces that
//! other languages describe can have such names.
//!
//! # What is not in a description
//!
//! The printed trait is the one in the server's source, except for what a description does not
//! contain: bodies of `impl` blocks, other items, documentation of types. It compiles where
//! [`Plain`](peregrine::Plain), [`Value`](peregrine::Value), [`Lent`](peregrine::Lent) and
//! [`Out`](peregrine::Out) are in scope, if all of its names are names in Rust.
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

mod default;
mod error;
mod library;
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

use crate::syntax::Kind;

pub use error::ParseError;
pub use scan::{NESTING_MAX, NUMBER_LETTERS_MAX};

/// Reads a trait, the types that it needs, and its documentation.
///
/// The text need not be trusted. Its length is bounded by [`CANONICAL_BYTES_MAX`], its nesting by
/// [`NESTING_MAX`] and [`CANONICAL_DEPTH_MAX`](peregrine::limits::CANONICAL_DEPTH_MAX).
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
/// If the text is not such a trait, or exceeds a bound. The error has the line and the column.
pub fn parse_trait(text: &str) -> Result<Described, ParseError> {
    parse(text, &HashMap::new())
}

/// Reads a trait as [`parse_trait`] does. A type without derives gets the kind of the type of the same name
/// in `like`: structured, plain, or a plain enum with the same integer.
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
/// As [`parse_trait`].
pub fn parse_trait_like(text: &str, like: &Described) -> Result<Described, ParseError> {
    let kinds = like.types.iter().filter_map(|one| {
        let kind = match &one.body {
            DescribedBody::Plain { .. } => Kind::Plain,
            DescribedBody::PlainEnum { repr, .. } => Kind::PlainEnum(repr.clone()),
            _ => return None,
        };
        Some((one.name.clone(), kind))
    });
    parse(text, &kinds.collect())
}

fn parse(text: &str, kinds: &HashMap<String, Kind>) -> Result<Described, ParseError> {
    if text.len() > CANONICAL_BYTES_MAX {
        let reason = format!("{} bytes are more than {CANONICAL_BYTES_MAX}", text.len());
        return Err(ParseError::new(1, 1, reason));
    }
    // Until the thread ends, `proc_macro2` keeps each text that it has read, because spans refer to the text.
    // A new thread for each text keeps the memory of the process from growing.
    thread::scope(|scope| {
        let name = "peregrine-idl".to_owned();
        match thread::Builder::new().name(name).spawn_scoped(scope, || read(text, kinds)) {
            Ok(reader) => reader.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) => read(text, kinds),
        }
    })
}

fn read(text: &str, kinds: &HashMap<String, Kind>) -> Result<Described, ParseError> {
    let tokens = scan::tokens(text)?;
    let source = |input: ParseStream<'_>| parse::source(input, kinds);
    source
        .parse2(tokens)
        .and_then(resolve::described)
        .map_err(|error| ParseError::of_syn(text, &error))
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
