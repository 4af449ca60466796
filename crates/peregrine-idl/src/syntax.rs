//! The result of parsing a text. In it, types still have names, which are not yet replaced by numbers.

use std::collections::HashMap;

use peregrine::interface::{DescribedPlainVariant, DescribedType, Direction, Shape};
use proc_macro2::{Span, TokenStream};

use crate::default::Written;

/// The kind that a plain type gets if it has no derives in the text.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Plain,
    PlainEnum(DescribedType),
}

/// All items of a text.
#[derive(Default)]
pub(crate) struct Source {
    /// The types and the traits, by their paths. The path of a type is its name. If the type is in a module,
    /// the name of the module precedes the name of the type.
    pub(crate) types: HashMap<String, Definition>,
    /// The items in the order of the text.
    pub(crate) items: Vec<Item>,
    /// The documentation of the modules, by their names.
    pub(crate) modules: HashMap<String, String>,
}

/// An item of a text.
pub(crate) enum Item {
    /// A struct, an enum, an alias or a trait, by its path.
    Type(String),
    /// A constant, or a function.
    Constant(Constant),
    /// The content of an `impl` block, and the name of the type if the block is not for a trait.
    Impl(Option<String>, TokenStream),
}

/// A constant, or a function, which may have parameters.
pub(crate) struct Constant {
    pub(crate) name: String,
    pub(crate) span: Span,
    pub(crate) docs: String,
    pub(crate) module: Option<String>,
    /// The tokens after the name, without the semicolon at the end.
    pub(crate) tokens: TokenStream,
}

/// The identity of an interface in another RPC system.
pub(crate) struct Program {
    /// `onc` or `courier`.
    pub(crate) system: String,
    /// The number and the version. A Courier program that is started by its name has none.
    pub(crate) numbers: Option<(u32, u32)>,
}

pub(crate) struct Trait {
    pub(crate) name: String,
    pub(crate) version: u32,
    pub(crate) programs: Vec<Program>,
    pub(crate) docs: String,
    pub(crate) methods: Vec<Method>,
}

pub(crate) struct Method {
    pub(crate) name: String,
    pub(crate) span: Span,
    pub(crate) docs: String,
    /// The number that the procedure has in other RPC systems: `onc`, `courier`.
    pub(crate) numbers: Vec<(&'static str, u32)>,
    pub(crate) idempotent: bool,
    pub(crate) oneway: bool,
    pub(crate) was: Vec<String>,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) result: Type,
    pub(crate) error: Type,
}

pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) span: Span,
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
    /// The default, and the position of the default in the text.
    pub(crate) default: Option<(Written, Span)>,
}

/// A type, as it is written in the text.
#[derive(Clone)]
pub(crate) enum Type {
    Simple(DescribedType),
    Array(Box<Self>, u64),
    Sequence(Box<Self>),
    Option(Box<Self>),
    Result(Box<Self>, Box<Self>),
    Tuple(Vec<Self>),
    Named(TypeName),
    /// The trait of a callback.
    Interface(TypeName),
}

/// The name by which a type is used.
#[derive(Clone)]
pub(crate) struct TypeName {
    /// The path without `super`, `crate` and names of crates.
    pub(crate) path: String,
    pub(crate) span: Span,
    /// The module in which the type is searched first.
    pub(crate) module: Option<String>,
    /// The types between `<` and `>`.
    pub(crate) arguments: Vec<Type>,
}

impl TypeName {
    /// Returns the path under which the type or the trait is defined in `types`, if it is defined there.
    pub(crate) fn path_in(&self, types: &HashMap<String, Definition>) -> String {
        let Self { path, module, .. } = self;
        let within = module.as_ref().map(|module| format!("{module}::{path}"));
        let within = within.filter(|one| types.contains_key(one));
        within.unwrap_or_else(|| path.clone())
    }
}

/// A struct, an enum or a trait.
pub(crate) struct Definition {
    pub(crate) span: Span,
    pub(crate) docs: String,
    /// The content of the attributes `#[foreign(...)]`.
    pub(crate) foreign: Vec<TokenStream>,
    /// The names of the type parameters.
    pub(crate) parameters: Vec<String>,
    pub(crate) body: Body,
}

pub(crate) enum Body {
    Plain {
        align: Option<Align>,
        fields: Vec<Field>,
    },
    PlainEnum {
        repr: DescribedType,
        variants: Vec<DescribedPlainVariant>,
    },
    Struct(Vec<Field>),
    Enum(Vec<Variant>),
    /// Another name of a type.
    Alias(Type),
    Interface(Trait),
}

/// A variant of an enum that is not plain.
pub(crate) struct Variant {
    pub(crate) name: String,
    pub(crate) span: Span,
    pub(crate) docs: String,
    pub(crate) foreign: Vec<TokenStream>,
    /// The discriminant.
    pub(crate) number: i128,
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
    pub(crate) docs: String,
    pub(crate) foreign: Vec<TokenStream>,
    pub(crate) ty: Type,
    pub(crate) growth: Growth,
}
