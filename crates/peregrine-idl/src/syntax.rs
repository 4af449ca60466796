//! A parsed text. Its types still have names instead of numbers.

use std::collections::HashMap;

use peregrine::interface::{DescribedPlainVariant, DescribedType, Direction, Shape};
use proc_macro2::Span;

use crate::default::Written;

/// The kind of a plain type, for texts without derives.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Plain,
    PlainEnum(DescribedType),
}

/// Everything in a text.
pub(crate) struct Source {
    pub(crate) root: Trait,
    /// The types by their paths. A path is the name of a type, after the name of its module if there is one.
    pub(crate) types: HashMap<String, Definition>,
}

pub(crate) struct Trait {
    pub(crate) name: String,
    pub(crate) span: Span,
    pub(crate) version: u32,
    pub(crate) docs: String,
    pub(crate) methods: Vec<Method>,
}

pub(crate) struct Method {
    pub(crate) name: String,
    pub(crate) span: Span,
    pub(crate) docs: String,
    pub(crate) idempotent: bool,
    pub(crate) was: Vec<String>,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) result: Type,
    pub(crate) error: Type,
}

pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) direction: Direction,
    pub(crate) shape: Shape,
    pub(crate) ty: Type,
    pub(crate) max_len: Option<u32>,
    pub(crate) growth: Growth,
}

/// How a field or a parameter may differ between client and server.
pub(crate) struct Growth {
    pub(crate) was: Vec<String>,
    pub(crate) widens: bool,
    /// The default, and its position.
    pub(crate) default: Option<(Written, Span)>,
}

/// A type as it is written in the text.
#[derive(Clone)]
pub(crate) enum Type {
    Simple(DescribedType),
    Array(Box<Self>, u64),
    Sequence(Box<Self>),
    Option(Box<Self>),
    Result(Box<Self>, Box<Self>),
    Tuple(Vec<Self>),
    Named(TypeName),
}

/// The name by which a type is used.
#[derive(Clone)]
pub(crate) struct TypeName {
    /// The path without `super`, `crate` and names of crates.
    pub(crate) path: String,
    pub(crate) span: Span,
    /// The module that is searched first.
    pub(crate) module: Option<String>,
    /// The types between `<` and `>`.
    pub(crate) arguments: Vec<Type>,
}

/// A struct or an enum.
pub(crate) struct Definition {
    pub(crate) span: Span,
    /// The names of its type parameters.
    pub(crate) parameters: Vec<String>,
    pub(crate) body: Body,
}

pub(crate) enum Body {
    Plain { align: Option<Align>, fields: Vec<Field> },
    PlainEnum { repr: DescribedType, variants: Vec<DescribedPlainVariant> },
    Struct(Vec<Field>),
    Enum(Vec<Variant>),
}

/// A variant of an enum that is not plain.
pub(crate) struct Variant {
    pub(crate) name: String,
    pub(crate) fields: Vec<Field>,
    pub(crate) was: Vec<String>,
    pub(crate) is_other: bool,
}

/// The alignment that `#[repr]` declares.
#[derive(Clone, Copy)]
pub(crate) enum Align {
    AtLeast(u64),
    AtMost(u64),
}

pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) span: Span,
    pub(crate) ty: Type,
    pub(crate) growth: Growth,
}
