//! A parsed text. Its types still have names instead of numbers.

use std::collections::HashMap;

use peregrine::interface::{DescribedType, Direction, Shape};
use proc_macro2::Span;

/// Everything in a text.
pub(crate) struct Source {
    pub(crate) root: Trait,
    /// Types by their paths: the name, after that of the module if there is one.
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
}

/// A type as it is written in the text.
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
pub(crate) struct TypeName {
    /// The path without `super`, `crate` and names of crates.
    pub(crate) path: String,
    pub(crate) span: Span,
    /// The module that is searched first.
    pub(crate) module: Option<String>,
}

/// A struct or an enum.
pub(crate) struct Definition {
    pub(crate) span: Span,
    pub(crate) body: Body,
}

pub(crate) enum Body {
    Plain { align: Option<Align>, fields: Vec<Field> },
    PlainEnum { repr: DescribedType, variants: Vec<(String, i128)> },
    Struct(Vec<Field>),
    Enum(Vec<(String, Vec<Field>)>),
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
}
