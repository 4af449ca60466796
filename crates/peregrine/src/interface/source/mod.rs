//! The trait as one writes it: a description in Rust, printed and read back.
//!
//! It is what stands in the server's source, save for what a description does not know: bodies, other
//! items, documentation of types. What is printed compiles where [`Plain`](crate::Plain),
//! [`Value`](crate::Value), [`Lent`](crate::Lent) and [`Out`](crate::Out) are in scope, if its names are
//! names in Rust. What is read is that and no more of the language: one trait, its types, attributes,
//! comments and imports.

mod parse;
mod print;
mod resolve;
mod tokens;

#[cfg(test)]
mod tests;

use super::{Described, TextError};

/// What another name than its own stands for in Rust.
const TAKEN: &[&str] = &[
    "bool",
    "char",
    "str",
    "u8",
    "u16",
    "u32",
    "u64",
    "u128",
    "usize",
    "i8",
    "i16",
    "i32",
    "i64",
    "i128",
    "isize",
    "f32",
    "f64",
    "String",
    "Vec",
    "Option",
    "Result",
    "Box",
    "Lent",
    "Out",
    "CallError",
    "Self",
    "Plain",
    "Value",
];

/// Words that are no names unless `r#` stands before them.
const KEYWORDS: &[&str] = &[
    "abstract",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "const",
    "continue",
    "do",
    "dyn",
    "else",
    "enum",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "pub",
    "ref",
    "return",
    "static",
    "struct",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    concat!("un", "safe"),
    "unsized",
    "use",
    "virtual",
    "where",
    "while",
    "yield",
];

impl Described {
    /// The interface as a trait in Rust, with the types that it needs.
    ///
    /// ```
    /// use peregrine::interface::Described;
    ///
    /// let text = "interface Add version 2\nadd(in a: i32, out sums: [i64] max 8) -> unit or CallError#0\n\
    ///             CallError#0 = struct {chain: text}\n";
    /// assert_eq!(
    ///     Described::parse(text)?.to_trait(),
    ///     "#[interface(version = 2)]
    /// pub trait Add {
    ///     fn add(&self, a: i32, #[max_len(8)] sums: Out<'_, i64>) -> peregrine::Result<()>;
    /// }
    /// "
    /// );
    /// # Ok::<(), peregrine::interface::TextError>(())
    /// ```
    pub fn to_trait(&self) -> String {
        print::trait_of(self)
    }

    /// Reads a trait as one writes it, and the types that it needs; documentation too.
    ///
    /// ```
    /// use peregrine::interface::Described;
    ///
    /// let files = Described::parse_trait(
    ///     "
    ///     /// A remote file service.
    ///     trait Files {
    ///         fn read(&self, path: &str, offset: u64, into: Out<'_, u8>) -> Result<(), FileError>;
    ///     }
    ///     #[derive(Value)]
    ///     enum FileError { NotFound, Other(String) }
    ///     ",
    /// )?;
    /// assert_eq!(files.procedures[0].parameters[2].name, "into");
    /// assert_eq!(files.docs, "A remote file service.");
    /// // What is printed is read again.
    /// assert_eq!(Described::parse_trait(&files.to_trait())?, files);
    /// # Ok::<(), peregrine::interface::TextError>(())
    /// ```
    ///
    /// # Errors
    /// If it is no such trait, or is beyond the bounds of [`parse`](Self::parse); the line counts in
    /// this text.
    pub fn parse_trait(text: &str) -> Result<Self, TextError> {
        parse::trait_in(text)
    }
}
