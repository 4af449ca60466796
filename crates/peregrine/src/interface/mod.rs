//! The description of an interface: constant data that stubs and bindings use, and that can be printed for
//! users.
//!
//! `#[interface]` generates one [`Interface`] per trait. The identity of an interface is its [`Digest`],
//! which is computed from the canonical text. This text contains names, types, directions and limits, but no
//! documentation. Types refer to each other through function pointers, so the description of a recursive type
//! is finite.

mod brief;
mod compare;
mod default;
mod described;
mod foreign;
mod growth;
mod known;
#[cfg(test)]
pub(crate) mod made_up;
mod matching;
mod nested;
mod program;
mod rule;
mod text;

use core::fmt::{self, Write as _};

use crate::digest::sha256;
use crate::limits;

pub use compare::{Comparison, Counterpart, Difference, Sides, compare};
pub use described::{
    Described, DescribedBody, DescribedField, DescribedGrowth, DescribedNamed, DescribedParameter,
    DescribedPlainVariant, DescribedProcedure, DescribedType, DescribedVariant,
};
pub use foreign::Case;
#[cfg(feature = "json")]
pub(crate) use foreign::SYSTEMS;
pub use growth::{DEFAULT_BYTES_MAX, Growth};
pub use known::InterfaceRef;
pub(crate) use matching::{Index, Step, steps, variant_of};
pub use program::{Program, System};
pub use rule::Rule;
#[cfg(feature = "json")]
pub(crate) use text::SIMPLE;
pub use text::TextError;

/// An interface. A server exports an interface, and a client binds to it.
#[derive(Debug, Clone, Copy)]
pub struct Interface {
    /// The name of the interface: `#[interface(name = "...")]`, or otherwise the name of the trait.
    pub name: &'static str,
    /// The version of the interface: `#[interface(version = N)]`, or otherwise 0.
    pub version: u32,
    /// The documentation of the trait. It is not part of the identity.
    pub docs: &'static str,
    /// The procedures. On every path, the number of a procedure is its index in this list.
    pub procedures: &'static [Procedure],
    /// The programs of other RPC systems that the interface also represents. They are not part of the
    /// identity.
    pub programs: &'static [Program],
    #[doc(hidden)]
    pub digest: fn() -> Digest,
}

/// A procedure of an interface.
#[derive(Debug, Clone, Copy)]
pub struct Procedure {
    /// The name of the method.
    pub name: &'static str,
    /// The documentation of the method. It is not part of the identity.
    pub docs: &'static str,
    /// Whether the procedure may be executed twice: `#[idempotent]`.
    pub idempotent: bool,
    /// Whether the client does not wait for the procedure's end: `#[oneway]`.
    pub oneway: bool,
    /// The earlier names of the method: `#[was("old")]`.
    pub was: &'static [&'static str],
    /// The parameters in order.
    pub parameters: &'static [Parameter],
    /// The type of `Ok`.
    pub result: &'static Type,
    /// The type of `Err`.
    pub error: &'static Type,
}

/// A parameter of a procedure.
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    /// The name of the parameter in the trait.
    pub name: &'static str,
    /// The direction in which the parameter is sent.
    pub direction: Direction,
    /// Whether the parameter is one value, a buffer of values, or text.
    pub shape: Shape,
    /// The type of the value, or of one element of the buffer.
    pub ty: &'static Type,
    /// The maximum number of elements of a buffer, or of bytes of a text: `#[max_len(N)]`.
    pub max_len: Option<u32>,
    /// How the parameter may differ from the same parameter of a peer.
    pub growth: Growth,
}

/// The description of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The name of the interface.
    pub interface: String,
    /// The version of the interface.
    pub version: u32,
    /// The identity of the interface.
    pub digest: Digest,
    /// The canonical text of the interface.
    pub text: String,
    /// The documentation of the interface and of its procedures, in order. If the interface is also a program
    /// of another RPC system, the next text is its foreign text ([`Described::foreign_text`]).
    pub docs: Vec<String>,
    /// The process ID of the server.
    pub process: u32,
    /// How long ago the export began, in milliseconds.
    pub age_ms: u64,
    /// The number of bindings to the export.
    pub bindings: u32,
    /// The endpoints at which the server listens for calls of this export over networks, such as
    /// `tcp:0.0.0.0:7193`.
    pub listens: Vec<String>,
    /// A number that identifies the machine and the network namespace to which `listens` refers.
    pub network: u64,
}

impl Description {
    /// Returns the interface that `text` describes, with its documentation.
    ///
    /// # Errors
    /// Fails if `text` is not a canonical text.
    pub fn parsed(&self) -> Result<Described, TextError> {
        let described = Described::parse(&self.text)?.with_docs(&self.docs);
        match self.docs.get(1 + described.procedures.len()) {
            Some(foreign) => described.with_foreign_text(foreign),
            None => Ok(described),
        }
    }
}

/// The direction of a parameter (Peregrine section 3, Firefly's VAR IN and VAR OUT).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The parameter is sent with the call: `T`, `&T`, `&str`, `&[T]`.
    In,
    /// The parameter is sent with the call, but not copied for the procedure: `Lent<'_, T>`.
    Lent,
    /// The parameter is sent with the result: `Out<'_, T>`.
    Out,
    /// The parameter is sent with the call and with the result: `&mut T`, `&mut [T]`.
    InOut,
    /// The procedure sends items to its caller while the call runs: `Sink<'_, T>`.
    Sink,
    /// The caller sends items to the procedure while the call runs: `Source<'_, T>`.
    Source,
    /// The procedure calls an object of its caller: `Callback<'_, dyn Trait>`.
    Callback,
}

impl Direction {
    /// Returns whether the items of the parameter are sent while the call runs.
    pub const fn is_stream(self) -> bool {
        matches!(self, Self::Sink | Self::Source)
    }

    /// Returns whether both sides exchange messages for the parameter while the call runs. The call itself
    /// contains only the numbers that describe the stream or the callback.
    pub const fn is_live(self) -> bool {
        self.is_stream() || matches!(self, Self::Callback)
    }
}

/// Whether a parameter is one value, a buffer of values, or text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// One value. It is in the head, which is the first part of a message.
    One,
    /// A buffer of values. Plain values are in a block, which is a separate part of the message. Other values
    /// are in the head.
    Buffer,
    /// A text (`&str`). It is in a block, in UTF-8.
    Text,
}

/// The type of a value.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Type {
    /// `()`, which takes no bytes.
    Unit,
    /// `bool`: one byte, 0 or 1.
    Bool,
    /// `char`: a Unicode scalar value in four bytes.
    Char,
    /// An unsigned integer of one byte.
    U8,
    /// An unsigned integer of two bytes.
    U16,
    /// An unsigned integer of four bytes.
    U32,
    /// An unsigned integer of eight bytes.
    U64,
    /// An unsigned integer of sixteen bytes.
    U128,
    /// A signed integer of one byte.
    I8,
    /// A signed integer of two bytes.
    I16,
    /// A signed integer of four bytes.
    I32,
    /// A signed integer of eight bytes.
    I64,
    /// A signed integer of sixteen bytes.
    I128,
    /// A float of four bytes (IEEE 754).
    F32,
    /// A float of eight bytes (IEEE 754).
    F64,
    /// A text in UTF-8.
    Text,
    /// An array: the type and the number of its elements.
    Array(&'static Self, usize),
    /// A sequence of values. The number of values is sent before the values.
    Sequence(&'static Self),
    /// A value, or no value.
    Option(&'static Self),
    /// A value of one of two types.
    Result(&'static Self, &'static Self),
    /// Several values, which are sent one after the other.
    Tuple(&'static [&'static Self]),
    /// A type with a name. It may be recursive.
    Named(Named),
}

/// A type that has a name. The body is returned by a function, so the type may contain itself.
#[derive(Debug, Clone, Copy)]
pub struct Named {
    /// The name of the type, without a path. It is part of the interface's identity.
    pub name: &'static str,
    /// A function that returns a name that no other type of this process has. This name is only compared,
    /// never shown.
    pub path: fn() -> &'static str,
    /// A function that returns the body of the type.
    pub body: fn() -> Body,
}

/// The body of a named type.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Body {
    /// A plain struct: its values are copied as they are in memory.
    Plain {
        /// The size in bytes.
        size: usize,
        /// The alignment in bytes.
        align: usize,
        /// The fields, in the order in which they are in memory.
        fields: &'static [Field],
    },
    /// A plain enum: its variants have no fields.
    PlainEnum {
        /// The type of the integer that contains the discriminant.
        repr: &'static Type,
        /// The variants, whose discriminants are the allowed values.
        variants: &'static [PlainVariant],
    },
    /// A structured struct: its fields are sent one after the other.
    Struct(&'static [Field]),
    /// A structured enum: the number of the variant (u32) is sent, and then the fields of the variant.
    Enum(&'static [Variant]),
    /// The interface of a callback. It is the type of a callback parameter, and values never have this type.
    Interface(&'static Interface),
}

/// A field of a named type.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// The name of the field. In a tuple, it is the index of the field.
    pub name: &'static str,
    /// The type of the field.
    pub ty: &'static Type,
    /// How the field may differ from the same field of a peer.
    pub growth: Growth,
    /// The largest count that other RPC systems may send: `#[foreign(max = N)]`. It is not part of the
    /// identity.
    pub max: Option<u32>,
}

/// A variant of a plain enum.
#[derive(Debug, Clone, Copy)]
pub struct PlainVariant {
    /// The name of the variant.
    pub name: &'static str,
    /// The discriminant of the variant.
    pub value: i128,
    /// The earlier names of the variant: `#[was("old")]`.
    pub was: &'static [&'static str],
    /// Whether the variant represents all variants that only the peer knows: `#[other]`.
    pub is_other: bool,
}

/// A variant of a structured enum.
#[derive(Debug, Clone, Copy)]
pub struct Variant {
    /// The name of the variant.
    pub name: &'static str,
    /// The fields of the variant. The list may be empty.
    pub fields: &'static [Field],
    /// The earlier names of the variant: `#[was("old")]`.
    pub was: &'static [&'static str],
    /// Whether the variant represents all variants that only the peer knows: `#[other]`. Such a variant has
    /// no field, or one text field that contains the name of the unknown variant.
    pub is_other: bool,
    /// The number of the variant in other RPC systems. `None` means the index of the variant. The number is
    /// not part of the identity.
    pub case: Option<Case>,
}

/// The identity of an interface: the first 16 bytes of the SHA-256 of its canonical text.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 16]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl Interface {
    /// Returns the identity of the interface. It is computed once per process.
    pub fn digest(&self) -> Digest {
        (self.digest)()
    }

    #[doc(hidden)]
    pub fn compute_digest(&self) -> Digest {
        let hash = sha256(self.canonical_text().as_bytes());
        Digest(core::array::from_fn(|i| hash[i]))
    }

    /// Returns the canonical text, from whose hash the identity is computed. The text consists of a line with
    /// the name and the version, a line for each procedure, and a line for each named type.
    pub fn canonical_text(&self) -> String {
        self.text_and_types().0
    }

    /// Returns the canonical text, and the named types in the order of their numbers.
    fn text_and_types(&self) -> (String, Vec<Named>) {
        let mut text = format!("interface {} version {}\n", self.name, self.version);
        let mut named = NamedTypes::default();
        for procedure in self.procedures {
            named.line(&mut text, |text, named| procedure.write(text, named));
        }
        // The description of one named type may add other named types to the list.
        let mut next = 0;
        while let Some(&one) = named.seen.get(next) {
            named.line(&mut text, |text, named| one.write(next, text, named));
            next += 1;
        }
        (text, named.seen)
    }

    /// Returns a message size in bytes that suffices for the call and for the result of every procedure whose
    /// parameters are limited. A parameter without `max_len` counts as 0 bytes.
    pub fn message_bytes(&self) -> usize {
        self.procedures.iter().map(Procedure::message_bytes).max().unwrap_or(0)
    }
}

impl Procedure {
    /// Returns the maximum size in bytes of the call or the maximum size of the result, whichever is larger.
    /// A parameter without a limit counts as 0 bytes.
    fn message_bytes(&self) -> usize {
        let (mut call, mut reply) = (64usize, 64usize);
        reply = reply.saturating_add(self.result.bytes_max().unwrap_or(0));
        for parameter in self.parameters {
            let one = parameter.ty.bytes_max().unwrap_or(0);
            let count = parameter.max_len.unwrap_or(0) as usize;
            let bytes = match parameter.shape {
                Shape::One => one,
                Shape::Buffer => one.saturating_mul(count),
                Shape::Text => count,
            };
            let bytes = bytes.saturating_add(32);
            match parameter.direction {
                Direction::In | Direction::Lent => call = call.saturating_add(bytes),
                Direction::Out => reply = reply.saturating_add(bytes),
                // The call contains only the numbers that describe the stream or the callback.
                Direction::Sink | Direction::Source | Direction::Callback => {
                    call = call.saturating_add(64);
                }
                Direction::InOut => {
                    call = call.saturating_add(bytes);
                    reply = reply.saturating_add(bytes);
                }
            }
        }
        call.max(reply)
    }

    fn write(&self, text: &mut String, named: &mut NamedTypes) {
        if self.idempotent {
            text.push_str("idempotent ");
        }
        if self.oneway {
            text.push_str("oneway ");
        }
        text.push_str(self.name);
        growth::write_was(self.was, text);
        text.push('(');
        for (i, parameter) in self.parameters.iter().enumerate() {
            if i > 0 {
                text.push_str(", ");
            }
            parameter.write(text, named);
        }
        text.push_str(") -> ");
        self.result.write(text, named);
        text.push_str(" or ");
        self.error.write(text, named);
    }
}

impl Parameter {
    fn write(&self, text: &mut String, named: &mut NamedTypes) {
        text.push_str(match self.direction {
            Direction::In => "in ",
            Direction::Lent => "lent ",
            Direction::Out => "out ",
            Direction::InOut => "inout ",
            Direction::Sink => "sink ",
            Direction::Source => "source ",
            Direction::Callback => "callback ",
        });
        text.push_str(self.name);
        text.push_str(": ");
        match self.shape {
            Shape::One => self.ty.write(text, named),
            Shape::Text => text.push_str("str"),
            Shape::Buffer => {
                text.push('[');
                self.ty.write(text, named);
                text.push(']');
            }
        }
        if let Some(max_len) = self.max_len {
            let _ = write!(text, " max {max_len}");
        }
        self.growth.write(text);
    }
}

impl Type {
    /// Returns the name of a type that contains no other types. Returns `None` for other types.
    const fn simple_name(&self) -> Option<&'static str> {
        Some(match self {
            Self::Unit => "unit",
            Self::Bool => "bool",
            Self::Char => "char",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::U128 => "u128",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::I128 => "i128",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::Text => "text",
            _ => return None,
        })
    }

    /// Returns the maximum number of bytes of a value of this type, without alignment. Returns `None` if the
    /// size is unlimited.
    pub fn bytes_max(&self) -> Option<usize> {
        Some(match self {
            Self::Unit => 0,
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 => 2,
            Self::Char | Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
            Self::U128 | Self::I128 => 16,
            Self::Array(one, count) => one.bytes_max()?.saturating_mul(*count),
            Self::Option(one) => one.bytes_max()?.saturating_add(16),
            Self::Result(ok, err) => ok.bytes_max()?.max(err.bytes_max()?).saturating_add(16),
            Self::Tuple(parts) => {
                let mut sum = 0usize;
                for part in *parts {
                    sum = sum.saturating_add(part.bytes_max()?).saturating_add(15);
                }
                sum
            }
            Self::Named(named) => match (named.body)() {
                Body::Plain { size, .. } => size,
                Body::PlainEnum { repr, .. } => repr.bytes_max()?,
                Body::Struct(_) | Body::Enum(_) | Body::Interface(_) => return None,
            },
            Self::Text | Self::Sequence(_) => return None,
        })
    }

    fn write(&self, text: &mut String, named: &mut NamedTypes) {
        if let Some(name) = self.simple_name() {
            text.push_str(name);
            return;
        }
        match self {
            Self::Array(one, count) => {
                text.push('[');
                one.write(text, named);
                let _ = write!(text, "; {count}]");
            }
            Self::Sequence(one) => named.list("sequence<", &[one], text),
            Self::Option(one) => named.list("option<", &[one], text),
            Self::Result(ok, err) => named.list("result<", &[ok, err], text),
            Self::Tuple(parts) => named.list("tuple<", parts, text),
            Self::Named(one) => {
                let number = named.number(*one);
                let _ = write!(text, "{}#{number}", one.name);
            }
            _ => {}
        }
    }
}

impl Named {
    fn write(&self, number: usize, text: &mut String, named: &mut NamedTypes) {
        let _ = write!(text, "{}#{number} = ", self.name);
        match (self.body)() {
            Body::Plain { size, align, fields } => {
                let _ = write!(text, "plain {size} align {align} ");
                write_fields(fields, text, named);
            }
            Body::PlainEnum { repr, variants } => {
                text.push_str("plain enum ");
                repr.write(text, named);
                for PlainVariant { name, value, was, is_other } in variants {
                    let _ = write!(text, "{} {name}", if *is_other { " other" } else { "" });
                    growth::write_was(was, text);
                    let _ = write!(text, "={value}");
                }
            }
            Body::Struct(fields) => {
                text.push_str("struct ");
                write_fields(fields, text, named);
            }
            Body::Enum(variants) => {
                text.push_str("enum");
                for variant in variants {
                    let other = if variant.is_other { " other" } else { "" };
                    let _ = write!(text, "{other} {}", variant.name);
                    growth::write_was(variant.was, text);
                    text.push(' ');
                    write_fields(variant.fields, text, named);
                }
            }
            Body::Interface(interface) => {
                let _ = write!(text, "interface version {} {{", interface.version);
                for (i, procedure) in interface.procedures.iter().enumerate() {
                    text.push_str(if i > 0 { "; " } else { "" });
                    procedure.write(text, named);
                }
                text.push('}');
            }
        }
    }
}

fn write_fields(fields: &[Field], text: &mut String, named: &mut NamedTypes) {
    text.push('{');
    for (i, field) in fields.iter().enumerate() {
        let _ = write!(text, "{}{}: ", if i > 0 { ", " } else { "" }, field.name);
        field.ty.write(text, named);
        field.growth.write(text);
    }
    text.push('}');
}

/// The named types, in the order in which the canonical text mentions them. The number of a type is its index
/// in this list. The number distinguishes types with equal names, and ends the recursion at a type that was
/// mentioned before.
#[derive(Default)]
struct NamedTypes {
    seen: Vec<Named>,
}

impl NamedTypes {
    fn number(&mut self, one: Named) -> usize {
        let path = (one.path)();
        let known = self.seen.iter().position(|seen| (seen.path)() == path);
        known.unwrap_or_else(|| {
            self.seen.push(one);
            self.seen.len() - 1
        })
    }

    fn line(&mut self, text: &mut String, write: impl FnOnce(&mut String, &mut Self)) {
        write(text, self);
        text.push('\n');
    }

    fn list(&mut self, open: &str, parts: &[&'static Type], text: &mut String) {
        text.push_str(open);
        for (i, part) in parts.iter().enumerate() {
            if i > 0 {
                text.push_str(", ");
            }
            part.write(text, self);
        }
        text.push('>');
    }
}

/// The name of the export that describes the server itself. No program can export this name.
pub(crate) const SERVER_NAME: &str = ".server";
/// The reserved name of the export through which a server sends its counters again and again.
pub(crate) const WATCH_NAME: &str = ".watch";
/// The reserved name of the export through which a server reports its health.
pub(crate) const HEALTH_NAME: &str = ".health";

/// Returns whether a name may be exported. It must consist of 1 to 64 letters, digits, `-`, `_` or `.`, and
/// must not begin with a dot.
pub fn valid_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !name.is_empty()
        && name.len() <= limits::NAME_BYTES_MAX
        && !name.starts_with('.')
        && name.chars().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list_body() -> Body {
        Body::Struct(&[
            Field { name: "value", ty: &Type::U32, growth: Growth::NONE, max: None },
            Field { name: "next", ty: &Type::Option(&LIST), growth: Growth::NONE, max: None },
        ])
    }
    const LIST: Type = Type::Named(Named { name: "List", path: || "tests::List", body: list_body });

    const LISTS: Interface = Interface {
        name: "Lists",
        version: 2,
        docs: "not part of it",
        procedures: &[Procedure {
            name: "sum",
            docs: "nor this",
            idempotent: true,
            oneway: false,
            was: &[],
            parameters: &[
                Parameter {
                    name: "list",
                    direction: Direction::In,
                    shape: Shape::One,
                    ty: &LIST,
                    max_len: None,
                    growth: Growth::NONE,
                },
                Parameter {
                    name: "into",
                    direction: Direction::Out,
                    shape: Shape::Buffer,
                    ty: &Type::U8,
                    max_len: Some(1 << 20),
                    growth: Growth::NONE,
                },
            ],
            result: &Type::U64,
            error: &Type::Text,
        }],
        programs: &[],
        digest: || LISTS.compute_digest(),
    };

    #[test]
    fn the_canonical_text_is_fixed_and_ends_for_recursive_types() {
        assert_eq!(
            LISTS.canonical_text(),
            "interface Lists version 2\n\
             idempotent sum(in list: List#0, out into: [u8] max 1048576) -> u64 or text\n\
             List#0 = struct {value: u32, next: option<List#0>}\n"
        );
        assert_eq!(LISTS.digest(), LISTS.digest());
        let other = Interface { version: 3, digest: || Digest([0; 16]), ..LISTS };
        assert_ne!(LISTS.digest(), other.compute_digest());
        let documented = Interface { docs: "other docs", ..LISTS };
        assert_eq!(LISTS.digest(), documented.compute_digest());
    }

    #[test]
    fn the_canonical_text_is_read_back() {
        let described = Described::parse(&LISTS.canonical_text()).unwrap();
        assert_eq!(described.to_string(), LISTS.canonical_text());
        assert_eq!(described.procedures[0].parameters[0].ty, DescribedType::Named(0));
        assert_eq!(
            described.procedure_text(&described.procedures[0]),
            LISTS.canonical_text().lines().nth(1).unwrap()
        );
    }

    #[test]
    fn words_before_a_procedure_may_be_its_name() {
        for (line, name, oneway, was) in [
            ("oneway()", "oneway", false, &[][..]),
            ("oneway was a()", "oneway", false, &["a"]),
            ("oneway was()", "was", true, &[]),
            ("oneway was was was()", "was", true, &["was"]),
            ("idempotent was oneway was was()", "idempotent", false, &["oneway", "was"]),
        ] {
            let text = format!("interface I version 0\n{line} -> unit or text\n");
            let described = Described::parse(&text).unwrap();
            let one = &described.procedures[0];
            assert_eq!(
                (&*one.name, one.oneway, &one.was[..]),
                (name, oneway, &was.iter().map(|&one| one.to_owned()).collect::<Vec<_>>()[..]),
                "{line}"
            );
            assert!(!one.idempotent, "{line}");
            assert_eq!(described.to_string(), text);
        }
    }

    #[test]
    fn bounded_parameters_size_the_a_stack() {
        assert!(LISTS.message_bytes() >= 1 << 20);
        assert!(LISTS.message_bytes() < (1 << 20) + 1024);
    }

    #[test]
    fn names() {
        assert!(valid_name("files") && valid_name("a.b-c_9"));
        assert!(!valid_name("") && !valid_name(".x") && !valid_name("a/b"));
        assert!(!valid_name(&"a".repeat(65)));
    }
}
