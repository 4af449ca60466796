//! The syntax tree of a Courier program.

use core::ops::Range;

/// A range of bytes in the text of a program.
///
/// All spans compare as equal. So two trees are equal if their programs are equal, even if the texts are laid
/// out differently.
#[derive(Clone, Debug, Default)]
pub struct Span {
    /// The offset of the first byte.
    pub start: usize,
    /// The offset after the last byte.
    pub end: usize,
}

impl PartialEq for Span {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Span {}

impl From<Range<usize>> for Span {
    fn from(range: Range<usize>) -> Self {
        Self { start: range.start, end: range.end }
    }
}

impl From<Span> for Range<usize> {
    fn from(span: Span) -> Self {
        span.start..span.end
    }
}

/// A name in a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The text of the name.
    pub text: String,
    /// Where it is written.
    pub span: Span,
}

impl From<&str> for Name {
    /// Returns a name that is not in a text.
    fn from(text: &str) -> Self {
        Self { text: text.to_owned(), span: Span::default() }
    }
}

/// A reference to a declaration of this program (`Time`), or of a program that it depends upon
/// (`Clock.Time`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The name of the program, which is written before a full stop.
    pub program: Option<Name>,
    /// The name of the type, the constant or the error.
    pub name: Name,
}

/// A whole program, which is one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The comment directly before the program, without the dashes.
    pub docs: String,
    /// The name of the program.
    pub name: Name,
    /// The numbers in the header. Programs for Cooper's compiler (University of California at Berkeley) have
    /// none.
    pub numbers: Option<Numbers>,
    /// The programs whose declarations this one uses.
    pub depends: Vec<Dependency>,
    /// The types, constants, procedures and errors, in the order of the text.
    pub declarations: Vec<Declaration>,
}

/// The number of a program, and its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Numbers {
    /// The number of the program.
    pub program: u32,
    /// The version of the program.
    pub version: u16,
}

/// A program in `DEPENDS UPON`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// The name by which references use the program.
    pub name: Name,
    /// The numbers of the program.
    pub numbers: Numbers,
}

/// A type, a constant, a procedure or an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// The comment directly before the declaration, without the dashes.
    pub docs: String,
    /// The name that the declaration defines.
    pub name: Name,
    /// The type.
    pub ty: Type,
    /// The value of a constant. For a procedure or an error, this is its number. A type has no value.
    pub value: Option<Constant>,
}

/// A type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// A built-in type of the language.
    Simple(Simple),
    /// `{red(0), green(1)}`
    Enumeration(Vec<Tag>),
    /// `ARRAY 3 OF CARDINAL`
    Array(Count, Box<Self>),
    /// `SEQUENCE 3 OF CARDINAL`, or without a maximum.
    Sequence(Option<Count>, Box<Self>),
    /// `RECORD [a, b: CARDINAL]`
    Record(Vec<Fields>),
    /// `CHOICE Enumeration OF {...}`, or without an enumeration.
    Choice(Option<Reference>, Vec<Arm>),
    /// `PROCEDURE [...] RETURNS [...] REPORTS [...]`
    Procedure(Procedure),
    /// `ERROR [...]`
    Error(Vec<Fields>),
    /// A declared type.
    Named(Reference),
}

/// The built-in types of the language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the language")]
pub enum Simple {
    Boolean,
    Cardinal,
    LongCardinal,
    Integer,
    LongInteger,
    Unspecified,
    LongUnspecified,
    String,
}

/// A number, or the name of a constant in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Count {
    /// A number.
    Number(i64, Span),
    /// A constant.
    Named(Reference),
}

/// A name with its number: `red(0)`. In an arm of a choice with an enumeration, the number may be absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The name.
    pub name: Name,
    /// The number.
    pub number: Option<Count>,
}

/// Fields that share a type: `a, b: CARDINAL`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields {
    /// The names of the fields.
    pub names: Vec<Name>,
    /// The type of each of these fields.
    pub ty: Type,
}

/// An arm of a choice: the type of the value for some designators, as in `circle(0), disc(1) => CARDINAL`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arm {
    /// The designators.
    pub tags: Vec<Tag>,
    /// The type of the value that follows each of these designators.
    pub ty: Type,
}

/// What a procedure takes, returns and reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Procedure {
    /// The arguments.
    pub arguments: Vec<Fields>,
    /// The results.
    pub results: Vec<Fields>,
    /// The errors.
    pub reports: Vec<Reference>,
}

/// The value of a constant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constant {
    /// Where it is written.
    pub span: Span,
    /// The value.
    pub value: Value,
}

/// The forms of constants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// `TRUE` or `FALSE`
    Boolean(bool),
    /// A number, in any of its notations.
    Number(i64),
    /// `"text"`
    Text(String),
    /// The name of another constant, a name of an enumeration, or a designator without a value.
    Named(Reference),
    /// A designator of a choice and the value after it: `circle 3`.
    Chosen(Name, Box<Constant>),
    /// The elements of an array or a sequence, or the fields of a record in their order: `[1, 2]`.
    List(Vec<Constant>),
    /// The fields of a record with their names: `[x, y: 0]`.
    Fields(Vec<(Vec<Name>, Constant)>),
}
