//! Converts Rust traits to interface files of other RPC systems.

mod choice;
mod courier;
mod onc;

use std::collections::HashSet;

use peregrine::interface::System;
use proc_macro2::{Span, TokenStream};
use syn::parse::{ParseStream, Parser as _};
use syn::{Error, LitStr, Token};

use crate::diagnostic::{Diagnostic, Diagnostics, Severity};
use crate::error::ParseError;
use crate::names::Names;
use crate::syntax::{Body, Constant, Definition, Source, Type, TypeName};
use crate::tokens::{expected, keyword, name, sign};
use crate::{names, parse, scan};

/// The maximum length of a Rust text that is exported, in bytes.
///
/// ```
/// use peregrine::interface::System;
/// use peregrine_idl::{EXPORT_BYTES_MAX, export_traits};
///
/// let long = " ".repeat(EXPORT_BYTES_MAX + 1);
/// assert!(export_traits(&long, "long.rs", System::Onc).is_err());
/// ```
pub const EXPORT_BYTES_MAX: usize = 1 << 20;

/// An interface file of another RPC system, made from Rust traits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exported {
    /// The text of the file.
    pub text: String,
    /// A warning for each part of the traits that the file lacks, although the traits are correct.
    pub warnings: Diagnostics,
}

/// Prints the traits of a Rust text as an interface file of another RPC system. `name` is the name of the
/// file that diagnostics show.
///
/// The text has the form that [`parse_traits`](crate::parse_traits) reads, and may be the source file of a
/// server. Its traits have `onc(...)` or `courier(...)` in `#[interface]`, and its types may have
/// `#[foreign(...)]`. Types that no such trait uses are exported if they derive `Foreign`, or are type
/// aliases. What the imports print can be exported, and importing the result leads to the same text.
///
/// ```
/// use peregrine::interface::System;
/// use peregrine_idl::export_traits;
///
/// let text = "
///     #[interface(name = \"file\", onc(program = 536870913, version = 1))]
///     trait File {
///         #[onc(1)]
///         fn size(&self, path: Path) -> peregrine::Result<u64>;
///     }
///     #[derive(Foreign, Value)]
///     struct Path(#[foreign(max = 1024)] ByteString);
/// ";
/// let written = export_traits(text, "file.rs", System::Onc)?.text;
/// assert!(written.contains("\t\tunsigned hyper FILEPROC_SIZE(path) = 1;\n"), "{written}");
/// assert!(written.contains("typedef string path<1024>;\n"));
///
/// let wrong = text.replace("u64", "u128");
/// let found = export_traits(&wrong, "file.rs", System::Onc).unwrap_err();
/// assert!(found.to_string().contains("`u128` has no form in XDR"));
/// # Ok::<(), peregrine_idl::Diagnostics>(())
/// ```
///
/// # Errors
/// Fails with all errors if the text cannot be read, or has no form in the language.
pub fn export_traits(text: &str, name: &str, system: System) -> Result<Exported, Diagnostics> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.len() > EXPORT_BYTES_MAX {
        let message = format!("{} bytes are more than {EXPORT_BYTES_MAX}", text.len());
        return Err(Diagnostic::whole(message, name).into());
    }
    crate::on_a_thread(|| {
        let tokens = scan::tokens(text).map_err(|error| of_parse_error(&error, text, name))?;
        let source = |input: ParseStream<'_>| parse::source(input, &Default::default());
        let source = source.parse2(tokens);
        let source = source
            .map_err(|error| of_parse_error(&ParseError::of_syn(text, &error), text, name))?;
        let source = choice::chosen(source, system);
        match system {
            System::Onc => onc::export(&source, text, name),
            System::Courier => courier::export(&source, text, name),
            other => Err(Diagnostic::whole(format!("{other} has no language here"), name).into()),
        }
    })
}

/// Returns an error of the parser with its source line.
fn of_parse_error(error: &ParseError, text: &str, name: &str) -> Diagnostics {
    let before: usize = text.split_inclusive('\n').take(error.line() - 1).map(str::len).sum();
    let line = text[before..].lines().next().unwrap_or_default();
    let column = line.char_indices().nth(error.column() - 1).map_or(line.len(), |(at, _)| at);
    let (at, severity) = (before + column, Severity::Error);
    Diagnostic::new(severity, error.reason().to_owned(), name, text, (at, at)).into()
}

/// Returns the range of a span in a text, as the byte offsets of its start and its end. Returns `(0, 0)` if
/// the span is not in the text.
fn bytes(span: Span, text: &str) -> (usize, usize) {
    let range = span.byte_range();
    match text.get(range.clone()) {
        Some(_) => (range.start, range.end),
        None => (0, 0),
    }
}

/// Returns the module of a path.
fn module_of(path: &str) -> Option<&str> {
    path.rsplit_once("::").map(|(module, _)| module)
}

/// Returns the last name of a path.
fn last_of(path: &str) -> &str {
    path.rsplit_once("::").map_or(path, |(_, last)| last)
}

/// Returns whether a name is that of the library's type `ByteString`.
fn is_byte_string(name: &TypeName, source: &Source) -> bool {
    let path = name.path_in(&source.types);
    last_of(&path) == "ByteString" && !source.types.contains_key(&path)
}

/// Returns the error message for a type that has no form in a representation.
fn no_form(ty: &Type, representation: &str) -> String {
    format!("`{}` has no form in {representation}", shown(ty))
}

/// Returns the text that errors show for a type in Rust.
fn shown(ty: &Type) -> String {
    match ty {
        Type::Simple(simple) => format!("{simple:?}").to_lowercase(),
        Type::Array(..) => "[T; N]".to_owned(),
        Type::Sequence(_) => "Vec<T>".to_owned(),
        Type::Option(_) => "Option<T>".to_owned(),
        Type::Result(..) => "Result<T, E>".to_owned(),
        Type::Tuple(_) => "a tuple".to_owned(),
        Type::Named(name) | Type::Interface(name) => name.path.clone(),
    }
}

/// Returns whether an enum is for errors of Courier procedures: whether a variant has `#[foreign(error =
/// N)]`.
fn is_error(definition: &Definition) -> bool {
    let Body::Enum(variants) = &definition.body else { return false };
    variants.iter().any(|one| one.foreign.error.is_some())
}

/// The names that are taken in one scope of an interface file.
#[derive(Default)]
struct Chosen {
    taken: HashSet<String>,
}

impl Chosen {
    /// Takes the first free name of `wanted` for which `is_right` returns true: importing this name leads to
    /// the same name in Rust. If there is no such name, takes the first free name of `wanted`. If no name is
    /// free, takes the last name of `wanted` with a number at its end.
    fn pick(&mut self, wanted: &[String], is_right: impl Fn(&str) -> bool) -> String {
        let right = wanted.iter().find(|one| is_right(one) && !self.taken.contains(*one));
        let free = right.or_else(|| wanted.iter().find(|one| !self.taken.contains(*one)));
        let name = match free {
            Some(name) => name.clone(),
            None => {
                let base = wanted.last().map_or("name", String::as_str);
                let mut numbered = (2..).map(|number| format!("{base}{number}"));
                numbered.find(|one| !self.taken.contains(one)).unwrap_or_default()
            }
        };
        self.taken.insert(name.clone());
        name
    }
}

/// Returns a name in camel case with a `_` before each capital letter but the first: `A_B` for `AB`.
fn split(name: &str) -> String {
    let mut split = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !split.is_empty() {
            split.push('_');
        }
        split.push(letter);
    }
    split
}

/// Converts a name to one that interface files permit. All characters but ASCII letters and digits become
/// `_`.
fn ascii(name: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = name.chars().map(letter).collect();
    let name = name.trim_start_matches('_');
    match name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() {
        true => format!("n{name}"),
        false => name.to_owned(),
    }
}

/// The type of a constant, and the tokens of its value.
struct Value {
    /// `None` means a text.
    ty: Option<Type>,
    tokens: TokenStream,
}

/// Reads the type of a constant, or of a function without parameters. Returns the type and the tokens of the
/// value.
fn value_of(constant: &Constant) -> Result<Value, Error> {
    let module = constant.module.as_deref();
    let parser = |input: ParseStream<'_>| {
        if input.peek(syn::token::Paren) {
            let inside = crate::tokens::parentheses(input)?;
            if !inside.is_empty() {
                return Err(expected(&inside, "a function without parameters"));
            }
            sign::<Token![->]>(input, "`->`")?;
            let ty = Some(parse::ty(input, module, 0)?);
            let tokens = crate::tokens::braces(input)?.parse()?;
            return Ok(Value { ty, tokens });
        }
        sign::<Token![:]>(input, "`:`")?;
        let ty = match keyword::<Token![&]>(input) {
            true => {
                input.parse::<Option<syn::Lifetime>>()?;
                name(input)?;
                None
            }
            false => Some(parse::ty(input, module, 0)?),
        };
        sign::<Token![=]>(input, "`=`")?;
        Ok(Value { ty, tokens: input.parse()? })
    };
    parser.parse2(constant.tokens.clone())
}

/// Reads a text between quotes.
fn text_of(tokens: &TokenStream) -> Result<String, Error> {
    let parser = |input: ParseStream<'_>| input.parse::<LitStr>().map(|text| text.value());
    parser.parse2(tokens.clone())
}

/// Returns the name that imports give to a parameter if the file contains no name for it. `wanted` is this
/// name in snake case, without a number at its end.
fn numbered(names: &mut Names, wanted: &str) -> String {
    names::written(&names.take(wanted))
}
