//! The description of an interface: constant data that stubs and bindings use, and that people can read.
//!
//! `#[interface]` generates one [`Interface`] per trait. Its identity is the [`Digest`] of its canonical
//! text, which contains names, types, directions and limits, but no documentation. Types refer to each
//! other through function pointers, so the description of a recursive type is finite.

mod brief;
mod compare;
mod default;
mod described;
mod growth;
mod known;
#[cfg(test)]
pub(crate) mod made_up;
mod matching;
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
pub use growth::{DEFAULT_BYTES_MAX, Growth};
pub use known::InterfaceRef;
pub(crate) use matching::{Index, Step, steps, variant_of};
pub use rule::Rule;
#[cfg(feature = "json")]
pub(crate) use text::SIMPLE;
pub use text::TextError;

/// An interface: what a server exports and a client binds to.
#[derive(Debug, Clone, Copy)]
pub struct Interface {
    /// The trait's name, or the one given by `#[interface(name = "...")]`.
    pub name: &'static str,
    /// The version: `#[interface(version = N)]`, or 0 without this argument.
    pub version: u32,
    /// Documentation of the trait. It is not part of the identity.
    pub docs: &'static str,
    /// The procedures. Their position is their number on every path.
    pub procedures: &'static [Procedure],
    #[doc(hidden)]
    pub digest: fn() -> Digest,
}

/// A procedure of an interface.
#[derive(Debug, Clone, Copy)]
pub struct Procedure {
    /// The method's name.
    pub name: &'static str,
    /// Documentation of the method. It is not part of the identity.
    pub docs: &'static str,
    /// Whether it may be executed twice: `#[idempotent]`.
    pub idempotent: bool,
    /// Its earlier names: `#[was("old")]`.
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
    /// Its name in the trait.
    pub name: &'static str,
    /// The direction in which it is sent.
    pub direction: Direction,
    /// Whether it is one value, a buffer of values, or text.
    pub shape: Shape,
    /// The type of the value, or of one element.
    pub ty: &'static Type,
    /// The largest number of elements (bytes, for text): `#[max_len(N)]`.
    pub max_len: Option<u32>,
    /// How it may differ from that of a peer.
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
    /// The documentation of the interface and of its procedures, in order.
    pub docs: Vec<String>,
    /// The process ID of the server.
    pub process: u32,
    /// How long ago the export began, in milliseconds.
    pub age_ms: u64,
    /// The number of bindings to the export.
    pub bindings: u32,
    /// Where the server listens for calls of this export over networks, such as `tcp:0.0.0.0:7193`.
    pub listens: Vec<String>,
    /// A number that identifies the machine and the network namespace to which `listens` refers.
    pub network: u64,
}

impl Description {
    /// Returns the interface, read from the text, with the documentation.
    ///
    /// # Errors
    /// If the text is not a canonical text.
    pub fn parsed(&self) -> Result<Described, TextError> {
        Ok(Described::parse(&self.text)?.with_docs(&self.docs))
    }
}

/// The direction of a parameter (Peregrine section 3, Firefly's VAR IN and VAR OUT).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// With the call: `T`, `&T`, `&str`, `&[T]`.
    In,
    /// With the call, but without a copy for the procedure: `Lent<'_, T>`.
    Lent,
    /// With the result: `Out<'_, T>`.
    Out,
    /// Both ways: `&mut T`, `&mut [T]`.
    InOut,
}

/// Whether a parameter is one value, a buffer of values, or text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A value, in the head.
    One,
    /// Values one after the other: a block if they are plain, otherwise in the head.
    Buffer,
    /// `&str`: a block of UTF-8.
    Text,
}

/// The type of a value.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Type {
    /// `()`: no bytes.
    Unit,
    /// `bool`: one byte, 0 or 1.
    Bool,
    /// `char`: a Unicode scalar value in four bytes.
    Char,
    /// An unsigned byte.
    U8,
    /// Two bytes, unsigned.
    U16,
    /// Four bytes, unsigned.
    U32,
    /// Eight bytes, unsigned.
    U64,
    /// Sixteen bytes, unsigned.
    U128,
    /// A signed byte.
    I8,
    /// Two bytes, signed.
    I16,
    /// Four bytes, signed.
    I32,
    /// Eight bytes, signed.
    I64,
    /// Sixteen bytes, signed.
    I128,
    /// IEEE 754, four bytes.
    F32,
    /// IEEE 754, eight bytes.
    F64,
    /// UTF-8.
    Text,
    /// An array with this number of elements.
    Array(&'static Self, usize),
    /// A count of values, and then the values.
    Sequence(&'static Self),
    /// A value, or no value.
    Option(&'static Self),
    /// A value of one of two types.
    Result(&'static Self, &'static Self),
    /// Values one after the other.
    Tuple(&'static [&'static Self]),
    /// A type with a name. It may be recursive.
    Named(Named),
}

/// A type that the user named. A function returns its body.
#[derive(Debug, Clone, Copy)]
pub struct Named {
    /// Its name without a path, which is part of the interface's identity.
    pub name: &'static str,
    /// Returns a name that no other type of this process has. The name is only compared, never shown.
    pub path: fn() -> &'static str,
    /// Returns the body of the type.
    pub body: fn() -> Body,
}

/// The body of a named type.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Body {
    /// Plain: copied as it is in memory.
    Plain {
        /// The size in bytes.
        size: usize,
        /// Its alignment in bytes.
        align: usize,
        /// Its fields, in memory order.
        fields: &'static [Field],
    },
    /// Plain: an enumeration without payload.
    PlainEnum {
        /// The integer that holds the discriminant.
        repr: &'static Type,
        /// The allowed values.
        variants: &'static [PlainVariant],
    },
    /// Structured: its fields one after the other.
    Struct(&'static [Field]),
    /// Structured: the number of the variant (u32), then its fields.
    Enum(&'static [Variant]),
}

/// A field of a named type.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its name, or its number in a tuple.
    pub name: &'static str,
    /// Its type.
    pub ty: &'static Type,
    /// How it may differ from that of a peer.
    pub growth: Growth,
}

/// A variant of a plain enumeration.
#[derive(Debug, Clone, Copy)]
pub struct PlainVariant {
    /// Its name.
    pub name: &'static str,
    /// Its discriminant.
    pub value: i128,
    /// Its earlier names: `#[was("old")]`.
    pub was: &'static [&'static str],
    /// Whether it represents all variants that only the peer knows: `#[other]`.
    pub is_other: bool,
}

/// A variant of a structured enumeration.
#[derive(Debug, Clone, Copy)]
pub struct Variant {
    /// Its name.
    pub name: &'static str,
    /// Its fields. There may be none.
    pub fields: &'static [Field],
    /// Its earlier names: `#[was("old")]`.
    pub was: &'static [&'static str],
    /// Whether it represents all variants that only the peer knows: `#[other]`. It then has no field, or one
    /// text field for the name of the unknown variant.
    pub is_other: bool,
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

    /// Returns the text whose hash is the identity. It has a line with the name and the version, then a line
    /// for each procedure, and then a line for each named type.
    pub fn canonical_text(&self) -> String {
        let mut text = format!("interface {} version {}\n", self.name, self.version);
        let mut named = NamedTypes::default();
        for procedure in self.procedures {
            named.line(&mut text, |text, named| procedure.write(text, named));
        }
        // Describing one named type may add others to the list.
        let mut next = 0;
        while let Some(&one) = named.seen.get(next) {
            named.line(&mut text, |text, named| one.write(next, text, named));
            next += 1;
        }
        text
    }

    /// Returns a message size in bytes that suffices for the call and the result of every procedure with
    /// limited parameters. Parameters without `max_len` count as 0 bytes.
    pub fn message_bytes(&self) -> usize {
        self.procedures.iter().map(Procedure::message_bytes).max().unwrap_or(0)
    }
}

impl Procedure {
    /// Returns the size in bytes of the call or the result, whichever is larger. Parameters without limit
    /// count as 0 bytes.
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
    /// Returns the name of a type without parts, or `None` for other types.
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

    /// Returns the largest number of bytes of a value of the type, without alignment, or `None` if it is
    /// unlimited.
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
                Body::Struct(_) | Body::Enum(_) => return None,
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

/// The named types in the order in which they are mentioned. Their position is their number, which
/// distinguishes types with equal names and ends recursion.
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

/// The name under which a server describes itself. No program can export it.
pub(crate) const SERVER_NAME: &str = ".server";

/// Returns whether a name may be exported: 1 to 64 letters, digits, `-`, `_` or `.`, with no dot at the
/// beginning.
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
            Field { name: "value", ty: &Type::U32, growth: Growth::NONE },
            Field { name: "next", ty: &Type::Option(&LIST), growth: Growth::NONE },
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
