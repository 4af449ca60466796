//! Interface files of ONC RPC (`.x`), the language of `rpcgen`: read, printed as Rust traits, and written.
//!
//! RFC 5531 and RFC 4506 define the language. [`import_onc`] also reads what `rpcgen` adds to it:
//!
//! * lines for the preprocessor: `#if`, `#ifdef`, `#ifndef`, `#elif`, `#else` and `#endif`. The file is read
//!   as for a client, so only `RPC_CLNT` is defined. `#define` with a number, a name or a text is a constant.
//!   `#include "file"` is read if [`Onc::include`] allows it, and so is `#include <file.x>`. Headers of C, as
//!   in `#include <file.h>`, are skipped;
//! * lines that begin with `%`, which are for C programs, are skipped. But if the file uses a name that it
//!   does not declare, the name may come from such a line, as in C: `%#define` with a number, or `%#include`
//!   of a header that `rpcgen` makes from an interface file. For `<rpcsvc/nis.h>`, that file is `nis.x`. The
//!   types `netobj`, `netbuf` and `des_block` of the RPC library are known;
//! * `unsigned` alone, `char`, `short` and `long` (which has 32 bits), `struct T` as the name of a type,
//!   members of enums without a value, several arguments, and types such as `u_int` and `uint32_t`.
//!
//! [`Imported::rust`] is the Rust text. A version of a program is a trait, a `typedef` with a maximum length
//! is a struct with one field, another `typedef` is a type alias, and a union is an enum with a variant for
//! each case. The comment before a declaration, or at its end, is its documentation.
//!
//! The text need not be trusted: time, memory and stack are bounded by [`ONC_BYTES_MAX`],
//! [`NESTING_MAX`](crate::NESTING_MAX) and [`ONC_INCLUDES_MAX`].

mod ast;
mod check;
mod condition;
mod export;
mod headers;
mod parse;
mod print;
mod scan;
mod source;
mod text;
mod uses;

use std::io;

pub use self::ast::*;
pub(crate) use self::source::Sources;
pub(crate) use self::uses::ordered;
use crate::diagnostic::{Diagnostic, Diagnostics};

/// The maximum length of a file, together with the files that it includes, in bytes.
///
/// ```
/// let large = " ".repeat(peregrine_idl::onc::ONC_BYTES_MAX + 1);
/// let error = peregrine_idl::import_onc(&large, "large.x").unwrap_err();
/// assert!(error.to_string().contains("1048577 bytes are more than 1048576"));
/// ```
pub const ONC_BYTES_MAX: usize = 1 << 20;

/// The maximum number of files that include each other in a chain. One import reads at most about ten times
/// this number of included files.
pub const ONC_INCLUDES_MAX: usize = 16;

/// An imported file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Imported {
    /// The content of the file.
    pub specification: Specification,
    /// The Rust text.
    pub rust: String,
    /// The traits in the text, in the order of the file.
    pub interfaces: Vec<ImportedInterface>,
    /// The types in the text. A type without a name is listed after the type that contains it.
    pub types: Vec<ImportedType>,
    /// The types that the file uses and does not declare. The Rust text uses them, too.
    pub missing: Vec<String>,
    /// A warning for each part of the Rust text that may need a change by hand.
    pub warnings: Diagnostics,
}

/// A version of a program, and its trait.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImportedInterface {
    /// The name of the program in the file.
    pub program: String,
    /// The number of the program.
    pub program_number: u32,
    /// The name of the version in the file.
    pub version: String,
    /// The number of the version.
    pub version_number: u32,
    /// The name of the trait.
    pub name: String,
    /// The procedures, without procedure 0.
    pub procedures: Vec<ImportedProcedure>,
}

/// A procedure, and its method.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImportedProcedure {
    /// The name in the file.
    pub name: String,
    /// The number.
    pub number: u32,
    /// The name of the method, without `r#`.
    pub method: String,
}

/// A type, and its name in Rust.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImportedType {
    /// The name in the file. For a type without a name, the name in Rust.
    pub name: String,
    /// The name in Rust, without `r#`.
    pub rust: String,
    /// The keyword of the type in the file: `enum`, `struct`, `union` or `typedef`.
    pub kind: &'static str,
}

/// A function that reads an included file, given its name.
type Include<'a> = dyn Fn(&str) -> io::Result<String> + 'a;

/// How a file is imported.
///
/// ```
/// use peregrine_idl::onc::Onc;
///
/// let mut onc = Onc::new();
/// onc.define("MAXNAMELEN", Some(255));
/// onc.include(|_| Ok("typedef opaque cookie[8];".to_owned()));
/// let text = "#include \"cookie.x\"\nstruct entry { string name<MAXNAMELEN>; cookie id; };";
/// let imported = onc.import(text, "entry.x")?;
/// assert!(imported.rust.contains("#[foreign(max = 255)]"));
/// # Ok::<(), peregrine_idl::Diagnostics>(())
/// ```
pub struct Onc<'a> {
    defines: Vec<(String, Option<i64>)>,
    include: Box<Include<'a>>,
}

impl core::fmt::Debug for Onc<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Onc").field("defines", &self.defines).finish_non_exhaustive()
    }
}

impl Default for Onc<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> Onc<'a> {
    /// Returns the default: nothing is defined except `RPC_CLNT`, and including an interface file is an
    /// error.
    pub fn new() -> Self {
        let refused = "includes are not allowed here";
        let include = move |_: &str| Err(io::Error::new(io::ErrorKind::Unsupported, refused));
        Self { defines: Vec::new(), include: Box::new(include) }
    }

    /// Defines a macro for `#if`. If it has a value, it is also a constant.
    pub fn define(&mut self, name: &str, value: Option<i64>) -> &mut Self {
        self.defines.push((name.to_owned(), value));
        self
    }

    /// Sets the function that reads included files. Its argument is the name between the quotes or angle
    /// brackets.
    pub fn include(&mut self, read: impl Fn(&str) -> io::Result<String> + 'a) -> &mut Self {
        self.include = Box::new(read);
        self
    }

    /// Imports a file. `name` is the name that diagnostics show.
    ///
    /// # Errors
    /// Fails with all errors and warnings if the text has an error or exceeds a bound.
    pub fn import(&self, text: &str, name: &str) -> Result<Imported, Diagnostics> {
        if text.len() > ONC_BYTES_MAX {
            let message = format!("{} bytes are more than {ONC_BYTES_MAX}", text.len());
            return Err(Diagnostic::whole(message, name).into());
        }
        let mut sources = Sources::default();
        let mut scanned = scan::tokens(self, text, name, &mut sources);
        let passed = core::mem::take(&mut scanned.passed);
        let mut specification = parse::specification(scanned, &mut sources);
        headers::supply(self, &mut specification, passed, &mut sources);
        let checked = check::checked(&specification, &mut sources);
        match sources.diagnostics() {
            found if found.has_error() => Err(found),
            warnings => Ok(print::rust(&checked, name, warnings)),
        }
    }
}

/// Checks a tree whose names have places in a Rust text, and writes it as an interface file. Returns also the
/// warnings.
pub(crate) fn checked_text(
    tree: &Specification,
    mut sources: Sources,
) -> Result<(String, Diagnostics), Diagnostics> {
    let _ = check::checked(tree, &mut sources);
    let warnings = sources.diagnostics();
    if warnings.has_error() {
        return Err(warnings);
    }
    // C programs get the types of the RPC library from headers, so the file does not declare these types.
    let library = headers::library_types();
    let is_own = |one: &&Definition| !library.contains(one);
    let definitions = tree.definitions.iter().filter(is_own).cloned().collect();
    Ok((export::text(&Specification { definitions }), warnings))
}

/// Imports an interface file of ONC RPC (`.x`). `name` is the name of the file that diagnostics show. [`Onc`]
/// has more settings.
///
/// ```
/// let text = "
///     typedef string path<1024>;
///     program FILEPROG {
///         version FILEVERS {
///             /* Returns the size of a file in bytes. */
///             unsigned hyper FILEPROC_SIZE(path) = 1;
///         } = 1;
///     } = 0x20000001;
/// ";
/// let imported = peregrine_idl::import_onc(text, "file.x")?;
/// assert!(imported.rust.ends_with(
///     "#[interface(name = \"file\", version = 1, onc(program = 536870913, version = 1))]
/// pub trait File {
///     /// Returns the size of a file in bytes.
///     #[onc(1)]
///     fn size(&self, path: Path) -> peregrine::Result<u64>;
/// }
/// "
/// ));
/// # Ok::<(), peregrine_idl::Diagnostics>(())
/// ```
///
/// # Errors
/// Fails with all errors and warnings if the text has an error or exceeds a bound.
pub fn import_onc(text: &str, name: &str) -> Result<Imported, Diagnostics> {
    Onc::new().import(text, name)
}

/// Writes an interface file of ONC RPC. The text contains no lines for the preprocessor, even if the imported
/// file contained some.
///
/// ```
/// use peregrine_idl::{export_onc, import_onc};
///
/// let text = "#ifdef RPC_CLNT\nstruct point { int x, y; };\n#endif";
/// assert!(import_onc(text, "point.x").is_err());
/// let point = import_onc("struct point { int x; int y; };", "point.x")?.specification;
/// let written = export_onc(&point);
/// assert_eq!(written, "struct point {\n\tint x;\n\tint y;\n};\n");
/// assert_eq!(import_onc(&written, "point.x")?.specification, point);
/// # Ok::<(), peregrine_idl::Diagnostics>(())
/// ```
pub fn export_onc(specification: &Specification) -> String {
    export::text(specification)
}
