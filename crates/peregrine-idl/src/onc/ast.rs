//! The content of an interface file of ONC RPC, as a tree.

use core::fmt::{self, Display};

/// Where a name is in the files that were read. All places compare as equal. So two trees are equal if they
/// differ only in places.
#[derive(Clone, Copy, Debug, Default, Eq)]
pub struct Place {
    pub(super) file: u32,
    pub(super) start: u32,
    pub(super) end: u32,
}

impl Place {
    /// Returns a place in the first file.
    pub(crate) const fn new(start: usize, end: usize) -> Self {
        Self { file: 0, start: start as u32, end: end as u32 }
    }
}

impl Definition {
    /// Returns whether the definition is a struct or a union. `rpcgen` makes a C struct from either of them.
    pub(super) const fn is_tagged(&self) -> bool {
        let Self::Type(TypeDefinition { body, .. }) = self else { return false };
        matches!(body, Body::Struct(_) | Body::Union(_))
    }
}

impl PartialEq for Place {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// A name, as it is written in the file.
///
/// ```
/// use peregrine_idl::onc::Name;
///
/// assert_eq!(Name::from("nfs_fh").to_string(), "nfs_fh");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The name.
    pub text: String,
    /// Where the name is, or the default place if the name was not read from a file.
    pub place: Place,
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Self { text: text.to_owned(), place: Place::default() }
    }
}

impl Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// An interface file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Specification {
    /// What the file defines. Constants of `#define` are the first ones.
    pub definitions: Vec<Definition>,
}

/// One definition of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Definition {
    /// `const`, or `#define` with a number, a name or a text.
    Constant(Constant),
    /// `enum`, `struct`, `union` or `typedef`.
    Type(TypeDefinition),
    /// `program`.
    Program(Program),
}

/// A constant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constant {
    /// The comment at the definition, without its delimiters.
    pub docs: String,
    /// The name.
    pub name: Name,
    /// The value.
    pub value: ConstantValue,
}

/// The value of a constant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConstantValue {
    /// A number, or the name of another constant.
    Number(Value),
    /// A text. In a file, it is between double quotes, with the escape sequences of C.
    Text(String),
}

/// A number in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Number(i128),
    /// The name of a constant, of a member of an enum, or of a procedure.
    Name(Name),
}

/// A named type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeDefinition {
    /// The comment at the definition.
    pub docs: String,
    /// The name.
    pub name: Name,
    /// The kind of the type, and its content.
    pub body: Body,
}

/// The kind of a named type, and its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// `enum`.
    Enum(Vec<Member>),
    /// `struct`.
    Struct(Vec<Declaration>),
    /// `union`.
    Union(Box<Union>),
    /// `typedef`: another name of a type.
    Alias(Type),
}

/// A member of an enum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The comment at the member.
    pub docs: String,
    /// The name.
    pub name: Name,
    /// The value that the file contains. If it is `None`, the value is one more than that of the previous
    /// member, or 0 for the first member.
    pub value: Option<Value>,
}

/// A field of a struct, or the data of an arm of a union.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// The comment at the declaration.
    pub docs: String,
    /// The name.
    pub name: Name,
    /// The type.
    pub ty: Type,
}

/// A union.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Union {
    /// The value that decides which arm is present.
    pub switch: Declaration,
    /// The arms with `case`.
    pub arms: Vec<Arm>,
    /// The arm with `default`.
    pub default: Option<DefaultArm>,
}

/// An arm of a union.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arm {
    /// The comment before the first case.
    pub docs: String,
    /// The values for which the arm is present.
    pub cases: Vec<Value>,
    /// The data. `None` means `void`.
    pub data: Option<Declaration>,
}

/// The arm of a union that is present for all other values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultArm {
    /// The comment before the arm.
    pub docs: String,
    /// The data. `None` means `void`.
    pub data: Option<Declaration>,
}

/// A type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// No value. Only a result can have this type.
    Void,
    /// `bool`.
    Bool,
    /// `char`, in one cell of four bytes.
    Char,
    /// `unsigned char`, in one cell.
    UnsignedChar,
    /// `short`, in one cell.
    Short,
    /// `unsigned short`, in one cell.
    UnsignedShort,
    /// `int` or `long`, of 32 bits.
    Int,
    /// `unsigned`, `unsigned int` or `unsigned long`, of 32 bits.
    UnsignedInt,
    /// `hyper`, of 64 bits.
    Hyper,
    /// `unsigned hyper`, of 64 bits.
    UnsignedHyper,
    /// `float`.
    Float,
    /// `double`.
    Double,
    /// `quadruple`, of 16 bytes.
    Quadruple,
    /// `string<N>`, with its maximum length.
    String(Option<Value>),
    /// `opaque[N]`.
    Opaque(Value),
    /// `opaque<N>`, with its maximum length.
    Bytes(Option<Value>),
    /// A type with a name.
    Named(Name),
    /// An enum, struct or union without a name. It is never an alias.
    Inline(Box<Body>),
    /// `T x[N]`.
    Array(Box<Self>, Value),
    /// `T x<N>`, with its maximum number of elements.
    Sequence(Box<Self>, Option<Value>),
    /// `T *x`: a value that may be absent.
    Pointer(Box<Self>),
}

/// A program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The comment at the program.
    pub docs: String,
    /// The name.
    pub name: Name,
    /// The number.
    pub number: Value,
    /// The versions.
    pub versions: Vec<Version>,
}

/// A version of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The comment at the version.
    pub docs: String,
    /// The name.
    pub name: Name,
    /// The number.
    pub number: Value,
    /// The procedures.
    pub procedures: Vec<Procedure>,
}

/// A procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Procedure {
    /// The comment at the procedure.
    pub docs: String,
    /// The name.
    pub name: Name,
    /// The number.
    pub number: Value,
    /// The arguments. An empty list means `void`.
    pub arguments: Vec<Argument>,
    /// The result.
    pub result: Type,
}

/// An argument of a procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// The name, if there is one.
    pub name: Option<Name>,
    /// The type.
    pub ty: Type,
}
