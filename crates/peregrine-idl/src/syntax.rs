//! The result of parsing a text. In it, types still have names, which are not yet replaced by numbers.

use std::collections::HashMap;

use peregrine::interface::{DescribedPlainVariant, DescribedType, Direction, Shape, System};
use proc_macro2::{Span, TokenStream};

use crate::default::Written;

/// The kind of a plain type, for a definition that has no `#[derive(...)]` in the text.
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
    pub(crate) is_function: bool,
    pub(crate) is_public: bool,
}

/// The systems, each with its word in attributes.
pub(crate) const SYSTEMS: [(&str, System); 2] =
    [("onc", System::Onc), ("courier", System::Courier)];

/// Returns the word for a system in attributes.
pub(crate) fn name_of(system: System) -> &'static str {
    SYSTEMS.iter().find(|(_, one)| *one == system).map_or("", |(word, _)| word)
}

/// A program of another RPC system, without the numbers of its procedures.
pub(crate) struct Program {
    pub(crate) system: System,
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

impl Trait {
    /// Returns the program of `system` that the trait is. `None` if the trait is no program of this system.
    pub(crate) fn program(&self, system: System) -> Option<&Program> {
        self.programs.iter().find(|one| one.system == system)
    }
}

pub(crate) struct Method {
    pub(crate) name: String,
    pub(crate) span: Span,
    pub(crate) docs: String,
    /// The numbers that the procedure has in other RPC systems.
    pub(crate) numbers: Vec<(System, u32)>,
    pub(crate) idempotent: bool,
    pub(crate) oneway: bool,
    pub(crate) was: Vec<String>,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) result: Type,
    pub(crate) error: Type,
}

impl Method {
    /// Returns the number that the procedure has in a system.
    pub(crate) fn number(&self, system: System) -> Option<u32> {
        self.numbers.iter().find(|(one, _)| *one == system).map(|(_, number)| *number)
    }
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

/// What `#[foreign(...)]` says of a type, a variant or a field.
#[derive(Default)]
pub(crate) struct Foreign {
    /// The maximum length of a field.
    pub(crate) max: Option<u32>,
    /// The number of a variant.
    pub(crate) case: Option<i64>,
    /// Whether a variant is used for all numbers that the other variants do not have.
    pub(crate) is_default: bool,
    /// The number of an error that Courier procedures report.
    pub(crate) error: Option<u16>,
    /// The type of the numbers of a union.
    pub(crate) switch: Option<Type>,
}

impl Foreign {
    /// Returns whether a variant has one of the attributes `case`, `default` and `error`.
    pub(crate) const fn has_number(&self) -> bool {
        self.case.is_some() || self.is_default || self.error.is_some()
    }
}

/// A struct, an enum or a trait.
pub(crate) struct Definition {
    pub(crate) span: Span,
    pub(crate) docs: String,
    pub(crate) foreign: Foreign,
    /// Whether the type derives `Foreign`.
    pub(crate) is_foreign: bool,
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
    Interface(Trait),
    /// Another name for a type.
    Alias(Type),
}

/// A variant of an enum that is not plain.
pub(crate) struct Variant {
    pub(crate) name: String,
    pub(crate) span: Span,
    pub(crate) docs: String,
    pub(crate) foreign: Foreign,
    /// The discriminant.
    pub(crate) number: i128,
    pub(crate) fields: Vec<Field>,
    pub(crate) was: Vec<String>,
    pub(crate) is_other: bool,
}

/// Returns whether variants have only discriminants: no fields, and no attribute with a number.
pub(crate) fn is_enumeration(variants: &[Variant]) -> bool {
    let is_plain = |one: &Variant| one.fields.is_empty() && !one.foreign.has_number();
    variants.iter().all(is_plain)
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
    pub(crate) foreign: Foreign,
    pub(crate) ty: Type,
    pub(crate) growth: Growth,
}
