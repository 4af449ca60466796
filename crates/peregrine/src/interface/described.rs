//! `Described`: the description of an interface that is known only at run time, as owned data.
//!
//! `text.rs` reads a description from a canonical text. The crate `peregrine-idl` reads a description from a
//! Rust trait, and prints a description as a Rust trait.

use super::brief::Brief;
use super::{Case, Digest, Direction, Program, Shape};
use crate::digest::sha256;

/// An interface, as its canonical text describes it. The crate `peregrine-idl` can also read a `Described`
/// from a Rust trait, and print it as a Rust trait.
///
/// ```
/// use peregrine::interface::{Described, DescribedType};
///
/// let text = "interface Add version 0\nadd(in a: i32, in b: i32) -> i32 or text\n";
/// let add = Described::parse(text)?;
/// assert_eq!(add.procedures[0].parameters[1].ty, DescribedType::I32);
/// assert_eq!(add.to_string(), text);
/// # Ok::<(), peregrine::interface::TextError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// The name of the interface.
    pub name: String,
    /// The version of the interface.
    pub version: u32,
    /// The documentation of the interface. It is part of neither the identity nor the canonical text.
    pub docs: String,
    /// The procedures. The number of a procedure is its index in this list.
    pub procedures: Vec<DescribedProcedure>,
    /// The named types. The number in [`DescribedType::Named`] is the index in this list.
    pub types: Vec<DescribedNamed>,
    /// The programs of other RPC systems that the interface also represents. They are not part of the
    /// identity.
    pub programs: Vec<Program>,
}

/// A procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedProcedure {
    /// The name of the procedure.
    pub name: String,
    /// The documentation of the procedure. It is not part of the identity of the interface.
    pub docs: String,
    /// Whether the procedure may be executed twice.
    pub idempotent: bool,
    /// Whether the client does not wait for the procedure's end.
    pub oneway: bool,
    /// The earlier names of the procedure.
    pub was: Vec<String>,
    /// The parameters in order.
    pub parameters: Vec<DescribedParameter>,
    /// The type of `Ok`.
    pub result: DescribedType,
    /// The type of `Err`.
    pub error: DescribedType,
}

/// A parameter of a procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedParameter {
    /// The name of the parameter.
    pub name: String,
    /// The direction in which the parameter is sent.
    pub direction: Direction,
    /// Whether the parameter is one value, a buffer of values, or text.
    pub shape: Shape,
    /// The type of the value, or of one element of the buffer. For text it is [`DescribedType::Text`].
    pub ty: DescribedType,
    /// The maximum number of elements of a buffer, or of bytes of a text.
    pub max_len: Option<u32>,
    /// How the parameter may differ from the same parameter of a peer.
    pub growth: DescribedGrowth,
}

/// How a field or a parameter may differ from the same one of an older or newer peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribedGrowth {
    /// The earlier names of the field or parameter.
    pub was: Vec<String>,
    /// Whether integers in the field or parameter may have another width at the peer.
    pub widens: bool,
    /// The value that is used if the peer does not have the field or parameter. Its form is that of
    /// [`default_bytes`](crate::value::default_bytes).
    pub default: Option<Vec<u8>>,
}

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DescribedType {
    /// `()`, which takes no bytes.
    Unit,
    /// A `bool`: one byte, 0 or 1.
    Bool,
    /// A Unicode scalar value in four bytes.
    Char,
    /// A text in UTF-8.
    Text,
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
    /// An array. The number is the number of its elements.
    Array(Box<Self>, u64),
    /// A sequence of values. The number of values is sent before the values.
    Sequence(Box<Self>),
    /// A value, or no value.
    Option(Box<Self>),
    /// A value of one of two types.
    Result(Box<Self>, Box<Self>),
    /// Several values, which are sent one after the other.
    Tuple(Vec<Self>),
    /// The type with this number in [`Described::types`].
    Named(usize),
}

/// A named type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedNamed {
    /// The name of the type. Other types may have the same name.
    pub name: String,
    /// The body of the type.
    pub body: DescribedBody,
}

/// The body of a named type.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DescribedBody {
    /// A plain struct: its fields follow each other without a gap.
    Plain {
        /// The size in bytes, which is the sum of the sizes of its fields.
        size: u64,
        /// The alignment in bytes: 1, 2, 4, 8 or 16.
        align: u64,
        /// The fields, in the order in which they are in memory. All of them are plain.
        fields: Vec<DescribedField>,
    },
    /// A plain enum: its variants have no fields.
    PlainEnum {
        /// The type of the integer that contains the discriminant.
        repr: DescribedType,
        /// The variants, whose discriminants are the allowed values.
        variants: Vec<DescribedPlainVariant>,
    },
    /// A structured struct: its fields are sent one after the other.
    Struct(Vec<DescribedField>),
    /// A structured enum: the number of the variant (u32) is sent, and then the fields of the variant.
    Enum(Vec<DescribedVariant>),
    /// The interface of a callback. It is the type of a callback parameter, and values never have this type.
    /// The name of the type is the name of the interface.
    Interface {
        /// The version of the interface.
        version: u32,
        /// The procedures. They have no documentation.
        procedures: Vec<DescribedProcedure>,
    },
}

/// A field of a named type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedField {
    /// The name of the field. In a tuple, it is the index of the field.
    pub name: String,
    /// The type of the field.
    pub ty: DescribedType,
    /// How the field may differ from the same field of a peer.
    pub growth: DescribedGrowth,
    /// The largest count of bytes or elements that other RPC systems may send. The count is not part of the
    /// identity.
    pub max: Option<u32>,
}

/// A variant of a plain enum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedPlainVariant {
    /// The name of the variant.
    pub name: String,
    /// The discriminant of the variant.
    pub value: i128,
    /// The earlier names of the variant.
    pub was: Vec<String>,
    /// Whether the variant represents all variants that only the peer knows.
    pub is_other: bool,
}

/// A variant of a structured enum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedVariant {
    /// The name of the variant.
    pub name: String,
    /// The fields of the variant. The list may be empty.
    pub fields: Vec<DescribedField>,
    /// The earlier names of the variant.
    pub was: Vec<String>,
    /// Whether the variant represents all variants that only the peer knows.
    pub is_other: bool,
    /// The number of the variant in other RPC systems. `None` means the index of the variant. In an enum with
    /// [`Case::Error`], `None` means a failure that is not reported. The number is not part of the identity.
    pub case: Option<Case>,
}

impl Described {
    /// Returns the identity of the interface, which is computed from the hash of the canonical text.
    pub fn digest(&self) -> Digest {
        let hash = sha256(self.to_string().as_bytes());
        Digest(core::array::from_fn(|i| hash[i]))
    }

    /// Returns the documentation of the interface and of its procedures, in order.
    pub fn docs(&self) -> Vec<String> {
        let procedures = self.procedures.iter().map(|one| &one.docs);
        core::iter::once(&self.docs).chain(procedures).cloned().collect()
    }

    /// Returns the same interface with other documentation. `docs` contains the documentation of the
    /// interface, followed by the documentation of each procedure, in order. Further texts are ignored.
    #[must_use]
    pub fn with_docs(mut self, docs: &[String]) -> Self {
        let mut docs = docs.iter();
        self.docs = docs.next().cloned().unwrap_or_default();
        for (procedure, docs) in self.procedures.iter_mut().zip(docs) {
            procedure.docs.clone_from(docs);
        }
        self
    }

    /// Returns the number and the description of the procedure with this name.
    pub fn procedure(&self, name: &str) -> Option<(u32, &DescribedProcedure)> {
        (0..).zip(&self.procedures).find(|(_, one)| one.name == name)
    }

    /// Returns whether a type is [`CallError`](crate::CallError), the type of a failed call.
    pub fn is_call_error(&self, ty: &DescribedType) -> bool {
        let DescribedType::Named(number) = ty else { return false };
        let Some(DescribedNamed { name, body }) = self.types.get(*number) else { return false };
        let DescribedBody::Struct(fields) = body else { return false };
        let chain =
            |field: &DescribedField| field.name == "chain" && field.ty == DescribedType::Text;
        name == "CallError" && fields.len() == 1 && fields.iter().all(chain)
    }

    /// Returns a message size in bytes, computed in the same way as by
    /// [`Interface::message_bytes`](super::Interface::message_bytes).
    pub fn message_bytes(&self) -> usize {
        self.procedures.iter().map(|one| self.procedure_bytes(one)).max().unwrap_or(0)
    }

    fn procedure_bytes(&self, procedure: &DescribedProcedure) -> usize {
        let (mut call, mut reply) = (64usize, 64usize);
        reply = reply.saturating_add(self.bytes_max(&procedure.result).unwrap_or(0));
        for parameter in &procedure.parameters {
            let one = self.bytes_max(&parameter.ty).unwrap_or(0);
            let count = parameter.max_len.unwrap_or(0) as usize;
            let bytes = match parameter.shape {
                Shape::One => one,
                Shape::Buffer => one.saturating_mul(count),
                Shape::Text => count,
            };
            let bytes = bytes.saturating_add(32);
            if parameter.direction.is_live() {
                // The call contains only the numbers that describe the stream or the callback.
                call = call.saturating_add(64);
                continue;
            }
            if parameter.direction != Direction::Out {
                call = call.saturating_add(bytes);
            }
            if matches!(parameter.direction, Direction::Out | Direction::InOut) {
                reply = reply.saturating_add(bytes);
            }
        }
        call.max(reply)
    }

    /// Returns the maximum number of bytes of a value of this type, without alignment. Returns `None` if the
    /// size is unlimited.
    pub fn bytes_max(&self, ty: &DescribedType) -> Option<usize> {
        Some(match ty {
            DescribedType::Unit => 0,
            DescribedType::Text | DescribedType::Sequence(_) => return None,
            DescribedType::Array(one, count) => {
                self.bytes_max(one)?.saturating_mul(usize::try_from(*count).unwrap_or(usize::MAX))
            }
            DescribedType::Option(one) => self.bytes_max(one)?.saturating_add(16),
            DescribedType::Result(ok, err) => {
                self.bytes_max(ok)?.max(self.bytes_max(err)?).saturating_add(16)
            }
            DescribedType::Tuple(parts) => {
                let mut sum = 0usize;
                for part in parts {
                    sum = sum.saturating_add(self.bytes_max(part)?).saturating_add(15);
                }
                sum
            }
            DescribedType::Named(number) => match &self.types.get(*number)?.body {
                DescribedBody::Plain { size, .. } => usize::try_from(*size).unwrap_or(usize::MAX),
                DescribedBody::PlainEnum { repr, .. } => repr.primitive_bytes()? as usize,
                DescribedBody::Struct(_)
                | DescribedBody::Enum(_)
                | DescribedBody::Interface { .. } => return None,
            },
            primitive => primitive.primitive_bytes()? as usize,
        })
    }

    /// Returns the size in bytes of a value of a plain type. Returns `None` if the type is not plain.
    pub fn plain_bytes(&self, ty: &DescribedType) -> Option<u64> {
        Some(match ty {
            DescribedType::Array(one, count) if *count > 0 => {
                self.plain_bytes(one)?.checked_mul(*count)?
            }
            DescribedType::Named(number) => match &self.types.get(*number)?.body {
                DescribedBody::Plain { size, .. } => *size,
                DescribedBody::PlainEnum { repr, .. } => repr.primitive_bytes()?,
                DescribedBody::Struct(_)
                | DescribedBody::Enum(_)
                | DescribedBody::Interface { .. } => return None,
            },
            primitive => primitive.primitive_bytes()?,
        })
    }

    /// Returns the alignment in bytes of a value of a plain type. Returns `None` if the type is not plain.
    pub fn plain_alignment(&self, ty: &DescribedType) -> Option<u64> {
        Some(match ty {
            DescribedType::Array(one, count) if *count > 0 => self.plain_alignment(one)?,
            DescribedType::Named(number) => match &self.types.get(*number)?.body {
                DescribedBody::Plain { align, .. } => *align,
                DescribedBody::PlainEnum { repr, .. } => repr.primitive_bytes()?,
                DescribedBody::Struct(_)
                | DescribedBody::Enum(_)
                | DescribedBody::Interface { .. } => return None,
            },
            primitive => primitive.primitive_bytes()?,
        })
    }

    /// Finds the first procedure that no Rust trait can contain, also in the interfaces of callbacks. Returns
    /// its line in the canonical text, and the reason.
    pub(super) fn impossible_procedure(&self) -> Option<(usize, String)> {
        let has_oneway = |all: &[DescribedProcedure]| all.iter().any(|one| one.oneway);
        let own = has_oneway(&self.procedures);
        for (line, procedure) in (2..).zip(&self.procedures) {
            if let Some(what) = self.impossible_in(own, procedure) {
                return Some((line, what));
            }
        }
        for (line, named) in (self.procedures.len() + 2..).zip(&self.types) {
            let DescribedBody::Interface { procedures, .. } = &named.body else { continue };
            let nested = has_oneway(procedures);
            let what = procedures.iter().find_map(|one| self.impossible_in(nested, one));
            if let Some(what) = what {
                return Some((line, what));
            }
        }
        None
    }

    /// Returns why no Rust trait can contain a procedure. `has_oneway` is whether the trait has a one-way
    /// procedure.
    fn impossible_in(&self, has_oneway: bool, procedure: &DescribedProcedure) -> Option<String> {
        if procedure.oneway && procedure.result != DescribedType::Unit {
            return Some("a one-way procedure returns a value".into());
        }
        if has_oneway && procedure.name == "flush" {
            return Some(
                "the name `flush` is reserved in an interface with one-way procedures".into(),
            );
        }
        for one in &procedure.parameters {
            let name = Brief(&one.name);
            let what = match one.direction {
                Direction::InOut if procedure.idempotent => {
                    "is sent both ways in a procedure that may run twice"
                }
                Direction::Lent | Direction::Out | Direction::InOut if procedure.oneway => {
                    "is passed in a way that a one-way procedure does not allow"
                }
                direction if direction.is_live() && procedure.oneway => {
                    "is passed in a way that a one-way procedure does not allow"
                }
                Direction::Lent | Direction::Out if self.plain_bytes(&one.ty).is_none() => {
                    "is a buffer of values that are not plain"
                }
                _ => continue,
            };
            return Some(format!("`{name}` {what}"));
        }
        None
    }

    /// Finds the first plain type whose description is not possible. Returns its number and the reason.
    pub(super) fn impossible_plain(&self) -> Option<(usize, String)> {
        for (number, named) in self.types.iter().enumerate() {
            match &named.body {
                DescribedBody::Plain { size, align, fields } => {
                    let what = self.impossible_fields(*size, *align, fields);
                    if let Some(what) = what {
                        return Some((number, what));
                    }
                }
                DescribedBody::PlainEnum { repr, variants } => {
                    let outside = variants.iter().find(|one| !repr.holds(one.value));
                    if let Some(DescribedPlainVariant { name, .. }) = outside {
                        let what = format!(
                            "the value of `{}` is outside the range of its integer type",
                            Brief(name)
                        );
                        return Some((number, what));
                    }
                }
                DescribedBody::Struct(_)
                | DescribedBody::Enum(_)
                | DescribedBody::Interface { .. } => {}
            }
        }
        let number = self.plain_in_itself()?;
        let name = Brief(&self.types[number].name);
        Some((number, format!("the plain type `{name}` contains itself")))
    }

    fn impossible_fields(
        &self,
        size: u64,
        align: u64,
        fields: &[DescribedField],
    ) -> Option<String> {
        let mut sum = 0u64;
        for field in fields {
            let Some(bytes) = self.plain_bytes(&field.ty) else {
                let name = Brief(&field.name);
                return Some(format!("the field `{name}` of a plain type is not plain"));
            };
            sum = sum.saturating_add(bytes);
        }
        if sum != size || size == 0 {
            return Some(format!("a plain type of {size} bytes has fields of {sum} bytes"));
        }
        let possible = align.is_power_of_two() && align <= 16 && size.is_multiple_of(align);
        (!possible).then(|| format!("a type of {size} bytes is not aligned to {align}"))
    }

    /// Returns the number of a plain type that contains itself, if there is such a type.
    ///
    /// First, types that contain no other plain types are removed, until no such type is left. Then each
    /// remaining type contains a remaining type. So a walk from a type to a type that it contains must enter
    /// a cycle.
    fn plain_in_itself(&self) -> Option<usize> {
        let mut parts: Vec<usize> = vec![0; self.types.len()];
        let mut wholes: Vec<Vec<usize>> = vec![Vec::new(); self.types.len()];
        for (number, named) in self.types.iter().enumerate() {
            let DescribedBody::Plain { fields, .. } = &named.body else { continue };
            for part in fields.iter().filter_map(|field| field.ty.plain_part()) {
                parts[number] += 1;
                wholes[part].push(number);
            }
        }
        let mut gone: Vec<usize> = (0..parts.len()).filter(|&one| parts[one] == 0).collect();
        while let Some(part) = gone.pop() {
            for whole in core::mem::take(&mut wholes[part]) {
                parts[whole] -= 1;
                if parts[whole] == 0 {
                    gone.push(whole);
                }
            }
        }
        let mut one = parts.iter().position(|&left| left > 0)?;
        // The walk ends at the first type that is visited twice. This type is in the cycle.
        let mut visited = vec![false; parts.len()];
        while !core::mem::replace(&mut visited[one], true) {
            let DescribedBody::Plain { fields, .. } = &self.types[one].body else { return None };
            let mut inside = fields.iter().filter_map(|field| field.ty.plain_part());
            one = inside.find(|&part| parts[part] > 0)?;
        }
        Some(one)
    }
}

impl DescribedType {
    /// Returns the size in bytes of a primitive type. Returns `None` if the type is not primitive.
    pub(crate) fn primitive_bytes(&self) -> Option<u64> {
        Some(match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 => 2,
            Self::Char | Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
            Self::U128 | Self::I128 => 16,
            _ => return None,
        })
    }

    /// Returns the number of the named type, if this type is a named type. If this type is an array, returns
    /// the number of the named type of its elements.
    pub(super) fn plain_part(&self) -> Option<usize> {
        match self {
            Self::Array(one, _) => one.plain_part(),
            Self::Named(number) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn is_integer(&self) -> bool {
        let (unsigned, signed) = self.signs();
        unsigned || signed
    }

    /// Returns whether the type is an unsigned integer, and whether it is a signed integer.
    pub(crate) fn signs(&self) -> (bool, bool) {
        let unsigned = matches!(self, Self::U8 | Self::U16 | Self::U32 | Self::U64 | Self::U128);
        let signed = matches!(self, Self::I8 | Self::I16 | Self::I32 | Self::I64 | Self::I128);
        (unsigned, signed)
    }

    /// Returns whether an integer of this type can have this value.
    pub(super) fn holds(&self, value: i128) -> bool {
        let bits = self.primitive_bytes().unwrap_or(0) * 8;
        match self.signs() {
            (true, _) => value >= 0 && (bits == 128 || value >> bits == 0),
            (_, true) => bits == 128 || matches!(value >> (bits - 1), 0 | -1),
            _ => false,
        }
    }
}
