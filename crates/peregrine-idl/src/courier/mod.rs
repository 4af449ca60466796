//! Interface files of Courier, the remote procedure call protocol of Xerox, as Rust traits.
//!
//! [`import_courier`] reads a program, which is the interface of a server, and prints it as a trait with its
//! types. [`export_courier`] prints the program in its own language again.
//!
//! # What is read
//!
//! The whole language of the standard, and what two compilers of the University of California at Berkeley
//! added to it: a header without numbers, and `LONG UNSPECIFIED`. Declarations can be in any order. A comment
//! directly before a declaration becomes its documentation.
//!
//! # The form in Rust
//!
//! | Courier | Rust |
//! |---|---|
//! | `BOOLEAN` | `bool` |
//! | `CARDINAL`, `UNSPECIFIED` | `u16` |
//! | `LONG CARDINAL`, `LONG UNSPECIFIED` | `u32` |
//! | `INTEGER`, `LONG INTEGER` | `i16`, `i32` |
//! | `STRING` | `ByteString`, because a string has Xerox' character set |
//! | enumeration | enum without fields |
//! | `ARRAY 3 OF T` | `[T; 3]` |
//! | `SEQUENCE OF T` | `Vec<T>`; a maximum becomes `#[foreign(max = N)]` |
//! | `RECORD` | struct |
//! | `CHOICE` | enum, with `#[foreign(case = N)]` for each designator |
//! | `PROCEDURE` | method with `#[courier(N)]`; several results become a struct |
//! | the errors that a procedure reports | enum, with `#[foreign(error = N)]` for each error |
//! | constant | `const`, or a function if the value needs memory |
//!
//! Types of other programs are in modules, such as `time_v2`. A type that contains itself is in a box. A
//! stream of the standard, which is a choice whose first arm ends with the rest of the stream, has the form
//! of a linked list.
//!
//! Procedures that transfer bulk data (`BulkData.Source` and `BulkData.Sink`) are left out with a warning,
//! because bulk data is not part of the messages of a call.
//!
//! The trait of a program without numbers has `courier` without arguments in `#[interface]`.

mod ast;
mod check;
mod export;
mod lex;
mod parse;
mod problems;
mod rust;
mod world;

pub use ast::{
    Arm, Constant, Count, Declaration, Dependency, Fields, Name, Numbers, Procedure, Program,
    Reference, Simple, Span, Tag, Type, Value,
};
pub use export::export_courier;

use crate::diagnostic::Diagnostics;
pub(crate) use problems::Problems;

/// The maximum length of the text of one program, in bytes.
///
/// ```
/// use peregrine_idl::courier::{COURIER_BYTES_MAX, import_courier};
///
/// let text = " ".repeat(COURIER_BYTES_MAX + 1);
/// assert!(import_courier(&text, "Long.cr", &mut |_| None).is_err());
/// ```
pub const COURIER_BYTES_MAX: usize = 1 << 20;

/// The maximum number of programs that one import reads.
pub const COURIER_PROGRAMS_MAX: usize = 64;

/// The text of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The name of the file, for diagnostics.
    pub name: String,
    /// The text.
    pub text: String,
}

/// The result of an import.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The trait and its types as Rust.
    pub rust: String,
    /// The syntax tree of the program.
    pub program: Program,
    /// A warning for each part of the program that the trait lacks, although the program is correct.
    pub warnings: Diagnostics,
}

/// Reads a program, and prints it as a Rust trait.
///
/// `name` is the name of the file, for diagnostics. `files` returns the text of a program that another one
/// depends upon, or `None` if there is no such text. Without this text, only declarations that do not use
/// that program can be read.
///
/// The text need not be trusted, because reading is bounded by [`COURIER_BYTES_MAX`],
/// [`COURIER_PROGRAMS_MAX`] and [`NESTING_MAX`](crate::NESTING_MAX).
///
/// ```
/// use peregrine_idl::courier::import_courier;
///
/// let text = "
///     Clock: PROGRAM 15 VERSION 2 =
///     BEGIN
///         Unset: ERROR = 0;
///         -- Returns the seconds since 1901.
///         Now: PROCEDURE RETURNS [seconds: LONG CARDINAL] REPORTS [Unset] = 0;
///     END.
/// ";
/// let clock = import_courier(text, "Clock2.cr", &mut |_| None)?;
/// assert!(clock.rust.contains("fn now(&self) -> Result<u32, ClockError>;"));
/// assert!(clock.rust.contains("/// Returns the seconds since 1901."));
/// # Ok::<(), peregrine_idl::Diagnostics>(())
/// ```
///
/// # Errors
/// Fails if a text is not a program, or exceeds a bound. Each error has its file, line and column.
pub fn import_courier(
    text: &str,
    name: &str,
    files: &mut dyn FnMut(&Dependency) -> Option<Source>,
) -> Result<Imported, Diagnostics> {
    let mut problems = Problems::default();
    let main = Source { name: name.to_owned(), text: text.to_owned() };
    let Some(mut world) = world::read(main, files, &mut problems) else {
        return Err(problems.errors);
    };
    let checked = check::check(&world, &mut problems);
    if problems.errors.has_error() {
        return Err(problems.errors);
    }
    let rust = rust::print(&world, &checked, &mut problems);
    let program = world.units.swap_remove(0).program;
    Ok(Imported { rust, program, warnings: problems.warnings })
}
