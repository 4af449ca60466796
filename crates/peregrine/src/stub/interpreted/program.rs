//! `Program`: a description that was converted to steps of known sizes.

use core::fmt;
use std::sync::{Arc, OnceLock};

use super::callbacks::Nested;
use super::foreign::{ForeignNotes, NO_MAX, Union};
use crate::interface::{
    Described, DescribedBody, DescribedField, DescribedParameter, DescribedType, Direction, Shape,
};

/// The program of an interpreted stub: one step for each piece of data whose size is known.
///
/// A plain struct, an array of structs of numbers, or a tuple without padding is one step: a block with a
/// size and an alignment, whatever its parts are. Only types without a fixed size (text, sequences,
/// options, enums with fields) need a step for each part. A program has one step for each type of its
/// description. So its size is at most a constant times the length of the description, also for recursive
/// types.
///
/// ```
/// use peregrine::interface::Described;
/// use peregrine::stub::Program;
///
/// let text = "interface I version 0\nf(in a: [tuple<u32, u32, u32>; 86]) -> unit or text\n";
/// let program = Program::flatten(&Described::parse(text)?);
/// assert_eq!(program.to_string(), "f: solid(1032 bytes) -> nothing or text\n");
/// # Ok::<(), peregrine::interface::TextError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Program {
    pub(super) ops: Vec<Op>,
    pub(super) parts: Vec<Part>,
    /// The valid discriminants of plain enums. The discriminants of one enum are adjacent and sorted.
    pub(super) discriminants: Vec<i128>,
    pub(super) routines: Vec<Routine>,
    /// Information that only calls of other RPC systems need.
    pub(super) foreign: ForeignNotes,
}

/// The index of a step in a program.
pub(super) type OpId = u32;

/// A part of a record, or a variant of an enum.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) op: OpId,
    /// The name of the field or variant, for error messages.
    pub(super) name: Box<str>,
    /// The largest count that other RPC systems may send for a field.
    pub(super) max: u32,
}

/// A step: how one value is marshalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// The value has no bytes.
    Nothing,
    /// A value that is not interpreted. Its type is a plain type that is not one block, because it is too
    /// large or nested too deeply.
    Refused,
    /// The value is one number.
    Number(Number),
    /// The discriminant of a plain enum: one of `discriminants[first..][..count]`.
    Choice { repr: Number, first: u32, count: u32 },
    /// A value that is one block, whatever its parts are. The [`OpId`] is the step that describes the parts.
    Solid(Solid, OpId),
    /// A text: a count of bytes, and then the bytes.
    Text,
    /// A count of values, and then the values. The [`OpId`] is the step of one value.
    Sequence(OpId),
    /// A fixed number of values: the step of one value, and the number of values.
    Array(OpId, u64),
    /// An option: a `bool`, and the value if the `bool` is true.
    Option(OpId),
    /// A result: a `bool` that selects one of the two types, and a value of this type.
    Result(OpId, OpId),
    /// A record: the parts `parts[first..][..count]`, one after the other.
    Record { first: u32, count: u32 },
    /// An enum: a number, and the part of `parts[first..][..count]` with that index.
    Enum { first: u32, count: u32 },
}

/// The properties of values that contain no padding, at whatever offset they begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Solid {
    pub(super) bytes: u32,
    pub(super) align: u8,
    /// The size in bytes of each number in the values, or 0 if the sizes differ.
    pub(super) unit: u8,
    /// Whether some bit patterns are invalid.
    pub(super) checked: bool,
}

/// The types that are sent as one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    Bool,
    Char,
    U8,
    U16,
    U32,
    U64,
    U128,
    I8,
    I16,
    I32,
    I64,
    I128,
    F32,
    F64,
}

impl Number {
    const fn of(ty: &DescribedType) -> Option<Self> {
        Some(match ty {
            DescribedType::Bool => Self::Bool,
            DescribedType::Char => Self::Char,
            DescribedType::U8 => Self::U8,
            DescribedType::U16 => Self::U16,
            DescribedType::U32 => Self::U32,
            DescribedType::U64 => Self::U64,
            DescribedType::U128 => Self::U128,
            DescribedType::I8 => Self::I8,
            DescribedType::I16 => Self::I16,
            DescribedType::I32 => Self::I32,
            DescribedType::I64 => Self::I64,
            DescribedType::I128 => Self::I128,
            DescribedType::F32 => Self::F32,
            DescribedType::F64 => Self::F64,
            _ => return None,
        })
    }

    /// Returns the size of the number in bytes. The alignment is the same.
    pub(super) const fn bytes(self) -> u8 {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 => 2,
            Self::Char | Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
            Self::U128 | Self::I128 => 16,
        }
    }

    pub(super) const fn solid(self) -> Solid {
        let bytes = self.bytes();
        let checked = matches!(self, Self::Bool | Self::Char);
        Solid { bytes: bytes as u32, align: bytes, unit: bytes, checked }
    }

    /// Returns the name of the type as text for people.
    pub(super) const fn text(self) -> &'static str {
        match self {
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
        }
    }
}

/// The steps of a procedure.
#[derive(Clone, Debug)]
pub(super) struct Routine {
    pub(super) name: Arc<str>,
    pub(super) parameters: Vec<Step>,
    pub(super) result: OpId,
    pub(super) error: OpId,
    /// Whether the error type is `CallError`. Such an error is returned as the error of the call.
    pub(super) fails_as_call: bool,
    /// The number of blocks of a call that are copied.
    pub(super) ins: usize,
    /// The number of blocks of a call that are lent.
    pub(super) lent: usize,
    /// The number of blocks of a result.
    pub(super) outs: usize,
    /// Whether parameters are streams or callbacks.
    pub(super) has_streams: bool,
}

/// The step of a parameter.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) name: Box<str>,
    pub(super) direction: Direction,
    pub(super) form: Form,
    /// The largest number of elements of the parameter.
    pub(super) max_len: usize,
    /// The interface of a callback, which is prepared when it is first needed. Interfaces can contain each
    /// other without end, so not all of them can be prepared in advance.
    pub(super) nested: OnceLock<Arc<Nested>>,
}

/// How a parameter is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The parameter is one value in the head.
    One(OpId),
    /// The parameter is text: a count in the head, and a block of bytes.
    Text,
    /// The parameter is a count in the head, and a block of elements. The [`Solid`] and the step describe one
    /// element.
    Block(Solid, OpId),
    /// The parameter is a count in the head, followed by elements in the head. Each element has this step.
    Head(OpId),
    /// The parameter is a stream: eight numbers in the head. The items have this step.
    Stream(OpId),
    /// The parameter is a callback: eight numbers in the head.
    Callback,
}

/// Why a value does not have the type that it should have: the place in the value, and what was expected
/// there.
///
/// ```
/// # use peregrine::{Dynamic, GenericServer, interface::Described};
/// # use peregrine::Argument;
/// # let text = "interface I version 0\nf(in a: sequence<tuple<u8, text>>) -> unit or text\n";
/// # let served = GenericServer::new(Described::parse(text)?, |_| Ok(Ok(Dynamic::Unit)));
/// # let client = peregrine::GenericClient::in_process(served);
/// let entries = Dynamic::List(vec![Dynamic::List(vec![Dynamic::U8(1), Dynamic::U8(2)])]);
/// let error = client.call("f", &mut [Argument::In(&entries)]).unwrap_err();
/// assert_eq!(error.detail(), "a[0].1: expected text, got a u8");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    path: String,
    what: String,
}

impl Unfit {
    #[cold]
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { path: String::new(), what: what.into() }
    }

    #[cold]
    pub(crate) fn expected(wanted: &str, got: &str) -> Self {
        Self::new(format!("expected {wanted}, got {got}"))
    }

    /// Adds a name to the front of the path: the wrong value is inside the field with this name.
    #[cold]
    #[must_use]
    pub(crate) fn of(mut self, name: &str) -> Self {
        let behind = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{name}{behind}{}", self.path);
        self
    }

    /// Adds `[index]` to the front of the path: the wrong value is inside the element with this index.
    #[cold]
    #[must_use]
    pub(crate) fn at(self, index: usize) -> Self {
        self.of(&format!("[{index}]"))
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.is_empty() {
            true => f.write_str(&self.what),
            false => write!(f, "{}: {}", self.path, self.what),
        }
    }
}

impl core::error::Error for Unfit {}

impl Program {
    /// Converts a description to a program.
    pub fn flatten(described: &Described) -> Self {
        let mut flattener = Flattener::new(described);
        for number in 0..described.types.len() {
            flattener.body(number);
        }
        let routines = described.procedures.iter().map(|procedure| {
            let parameters: Vec<_> =
                procedure.parameters.iter().map(|one| flattener.step(one)).collect();
            let count = |direction: &dyn Fn(Direction) -> bool| {
                let slices = parameters.iter().filter(|one| !matches!(one.form, Form::One(_)));
                slices.filter(|one| direction(one.direction)).count()
            };
            Routine {
                name: procedure.name.as_str().into(),
                ins: count(&|one| matches!(one, Direction::In | Direction::InOut)),
                lent: count(&|one| one == Direction::Lent),
                outs: count(&|one| matches!(one, Direction::Out | Direction::InOut)),
                has_streams: parameters.iter().any(|one| one.direction.is_live()),
                result: flattener.ty(&procedure.result),
                error: flattener.ty(&procedure.error),
                fails_as_call: described.is_call_error(&procedure.error),
                parameters,
            }
        });
        let mut routines: Vec<Routine> = routines.collect();
        flattener.join();
        let mut program = flattener.program;
        // Which blocks have no gaps is known only after `join`.
        for step in routines.iter_mut().flat_map(|one| &mut one.parameters) {
            if let Form::Block(solid, op) = &mut step.form {
                step.form = match program.solid(*op) {
                    Some(known) => Form::Block(Solid { align: solid.align, ..known }, *op),
                    None => Form::One(program.refused()),
                };
            }
        }
        program.routines = routines;
        program
    }

    fn refused(&mut self) -> OpId {
        self.ops.push(Op::Refused);
        (self.ops.len() - 1) as OpId
    }

    pub(super) fn op(&self, op: OpId) -> Op {
        self.ops.get(op as usize).copied().unwrap_or(Op::Nothing)
    }

    pub(super) fn parts(&self, first: u32, count: u32) -> &[Part] {
        &self.parts[first as usize..][..count as usize]
    }

    pub(super) fn discriminants(&self, first: u32, count: u32) -> &[i128] {
        &self.discriminants[first as usize..][..count as usize]
    }

    /// Returns the properties of one value of the step, if it is one block.
    pub(super) fn solid(&self, op: OpId) -> Option<Solid> {
        match self.op(op) {
            Op::Solid(solid, _) => Some(solid),
            Op::Number(number) => Some(number.solid()),
            Op::Choice { repr, .. } => Some(Solid { checked: true, ..repr.solid() }),
            _ => None,
        }
    }

    /// Returns the properties of one value of the step, if any number of adjacent values are together one
    /// block, too.
    #[inline]
    pub(super) fn solid_run(&self, op: OpId) -> Option<Solid> {
        self.solid(op).filter(|one| one.bytes.is_multiple_of(u32::from(one.align)))
    }

    /// Returns what a step expects, for error messages.
    pub(super) fn expected(&self, op: OpId) -> String {
        match self.op(op) {
            Op::Nothing => "nothing".into(),
            Op::Refused => "a smaller or less deeply nested type".into(),
            Op::Number(number) => number.text().into(),
            Op::Choice { repr, .. } => format!("one of the enum's {}", repr.text()),
            Op::Text => "text".into(),
            Op::Solid(solid, op) => format!("{} of {} bytes", self.expected(op), solid.bytes),
            Op::Sequence(_) => "a sequence".into(),
            Op::Array(_, count) => format!("an array of {count}"),
            Op::Option(_) => "an option".into(),
            Op::Result(..) => "a result".into(),
            Op::Record { count, .. } => format!("{count} fields"),
            Op::Enum { .. } => "a variant".into(),
        }
    }

    fn write(&self, op: OpId, f: &mut fmt::Formatter<'_>, depth: u32) -> fmt::Result {
        if depth > 3 {
            return f.write_str("..");
        }
        let list = |f: &mut fmt::Formatter<'_>, name: &str, parts: &[Part]| {
            write!(f, "{name}(")?;
            for (i, part) in parts.iter().take(WRITTEN_MAX).enumerate() {
                f.write_str(if i > 0 { ", " } else { "" })?;
                self.write(part.op, f, depth + 1)?;
            }
            f.write_str(if parts.len() > WRITTEN_MAX { ", ..)" } else { ")" })
        };
        match self.op(op) {
            Op::Nothing => f.write_str("nothing"),
            Op::Refused => f.write_str("refused"),
            Op::Number(number) | Op::Choice { repr: number, .. } => f.write_str(number.text()),
            Op::Solid(solid, _) => write!(f, "solid({} bytes)", solid.bytes),
            Op::Text => f.write_str("text"),
            Op::Sequence(one) | Op::Option(one) | Op::Array(one, _) => {
                f.write_str(match self.op(op) {
                    Op::Sequence(_) => "sequence(",
                    Op::Option(_) => "option(",
                    _ => "array(",
                })?;
                self.write(one, f, depth + 1)?;
                f.write_str(")")
            }
            Op::Result(ok, err) => {
                f.write_str("result(")?;
                self.write(ok, f, depth + 1)?;
                f.write_str(", ")?;
                self.write(err, f, depth + 1)?;
                f.write_str(")")
            }
            Op::Record { first, count } => list(f, "record", self.parts(first, count)),
            Op::Enum { first, count } => list(f, "enum", self.parts(first, count)),
        }
    }
}

/// Writes one line for each procedure, with its steps.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for routine in &self.routines {
            write!(f, "{}:", routine.name)?;
            for step in &routine.parameters {
                f.write_str(" ")?;
                match step.form {
                    Form::One(op) => self.write(op, f, 0)?,
                    Form::Text => f.write_str("text block")?,
                    Form::Stream(op) => {
                        f.write_str("stream(")?;
                        self.write(op, f, 1)?;
                        f.write_str(")")?;
                    }
                    Form::Callback => f.write_str("callback")?,
                    Form::Block(solid, _) => write!(f, "block({} bytes each)", solid.bytes)?,
                    Form::Head(op) => {
                        f.write_str("sequence(")?;
                        self.write(op, f, 1)?;
                        f.write_str(")")?;
                    }
                }
            }
            f.write_str(" -> ")?;
            self.write(routine.result, f, 0)?;
            f.write_str(" or ")?;
            self.write(routine.error, f, 0)?;
            f.write_str("\n")?;
        }
        Ok(())
    }
}

/// The largest number of a record's parts that are displayed.
const WRITTEN_MAX: usize = 16;
/// The largest nesting of types that are joined to one block. More deeply nested types need one step each.
const JOINED_DEPTH_MAX: u32 = 64;

struct Flattener<'a> {
    described: &'a Described,
    program: Program,
    /// For each step that is one block: the properties of its value, and the depth to which its parts are
    /// nested.
    solids: Vec<Option<(Solid, u32)>>,
    /// The steps of variants, in ascending order. These steps are not joined, so that errors can name the
    /// fields of variants.
    variants: Vec<OpId>,
}

impl<'a> Flattener<'a> {
    /// Makes a flattener with an empty program. The first steps of the program are reserved for the named
    /// types, by their numbers.
    fn new(described: &'a Described) -> Self {
        let program = Program {
            ops: vec![Op::Nothing; described.types.len()],
            parts: Vec::new(),
            discriminants: Vec::new(),
            routines: Vec::new(),
            foreign: ForeignNotes::of(described),
        };
        Self { described, program, solids: Vec::new(), variants: Vec::new() }
    }

    fn push(&mut self, op: Op) -> OpId {
        self.program.ops.push(op);
        (self.program.ops.len() - 1) as OpId
    }

    fn record<'p>(
        &mut self,
        parts: impl Iterator<Item = (&'p str, &'p DescribedType, Option<u32>)>,
    ) -> Op {
        // The parts of nested records are added first, so that the parts of one record are adjacent.
        let part = |(name, ty, max): (&str, &DescribedType, Option<u32>)| Part {
            op: self.ty(ty),
            name: name.into(),
            max: max.unwrap_or(NO_MAX),
        };
        let parts: Vec<Part> = parts.map(part).collect();
        let (first, count) = self.stand(parts);
        Op::Record { first, count }
    }

    fn stand(&mut self, parts: Vec<Part>) -> (u32, u32) {
        let (first, count) = (self.program.parts.len() as u32, parts.len() as u32);
        self.program.parts.extend(parts);
        (first, count)
    }

    fn fields(&mut self, fields: &'a [DescribedField]) -> Op {
        self.record(fields.iter().map(|field| (&*field.name, &field.ty, field.max)))
    }

    /// Flattens the body of a named type. The body names other types by their numbers, and this function does
    /// not follow the numbers. So the recursion is only as deep as the types that are nested within one line
    /// of a description.
    fn body(&mut self, number: usize) {
        let op = match &self.described.types[number].body {
            DescribedBody::Plain { fields, .. } | DescribedBody::Struct(fields) => {
                self.fields(fields)
            }
            DescribedBody::PlainEnum { repr, variants } => {
                let first = self.program.discriminants.len() as u32;
                let mut values: Vec<i128> = variants.iter().map(|one| one.value).collect();
                values.sort_unstable();
                values.dedup();
                let repr = Number::of(repr).unwrap_or(Number::U8);
                let count = values.len() as u32;
                self.program.discriminants.extend(values);
                Op::Choice { repr, first, count }
            }
            // An interface has no values. The description of a callback's interface has a program of its own.
            DescribedBody::Interface { .. } => Op::Nothing,
            DescribedBody::Enum(variants) => {
                let union = Union::of(variants);
                let variants = variants.iter().map(|variant| {
                    let op = self.fields(&variant.fields);
                    let op = self.push(op);
                    self.variants.push(op);
                    Part { op, name: variant.name.as_str().into(), max: NO_MAX }
                });
                let variants = variants.collect();
                let (first, count) = self.stand(variants);
                self.program.foreign.add(first, union);
                Op::Enum { first, count }
            }
        };
        self.program.ops[number] = op;
    }

    /// Adds the step of a type, and returns its number. Consecutive parts of a structure have separate steps
    /// here. They are joined to one step later.
    fn ty(&mut self, ty: &DescribedType) -> OpId {
        if let Some(number) = Number::of(ty) {
            return self.push(Op::Number(number));
        }
        let op = match ty {
            DescribedType::Named(number) if *number < self.described.types.len() => {
                return *number as OpId;
            }
            DescribedType::Text => Op::Text,
            DescribedType::Array(one, count) => Op::Array(self.ty(one), *count),
            DescribedType::Sequence(one) => Op::Sequence(self.ty(one)),
            DescribedType::Option(one) => Op::Option(self.ty(one)),
            DescribedType::Result(ok, err) => Op::Result(self.ty(ok), self.ty(err)),
            DescribedType::Tuple(parts) => {
                const NAMES: [&str; 8] = ["0", "1", "2", "3", "4", "5", "6", "7"];
                let names = NAMES.into_iter().chain(core::iter::repeat("…"));
                self.record(names.zip(parts).map(|(name, ty)| (name, ty, None)))
            }
            _ => Op::Nothing,
        };
        self.push(op)
    }

    fn step(&mut self, parameter: &DescribedParameter) -> Step {
        let op = self.ty(&parameter.ty);
        let form = match parameter.shape {
            Shape::One if parameter.direction.is_stream() => Form::Stream(op),
            Shape::One if parameter.direction == Direction::Callback => Form::Callback,
            Shape::One => Form::One(op),
            Shape::Text => Form::Text,
            // The type alone decides whether a slice is a block.
            Shape::Buffer => match self.described.plain_bytes(&parameter.ty) {
                Some(bytes) => {
                    let align = self.described.plain_alignment(&parameter.ty).unwrap_or(1) as u8;
                    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                    Form::Block(Solid { bytes, align, unit: 0, checked: true }, op)
                }
                None => Form::Head(op),
            },
        };
        let max_len = parameter.max_len.map_or(usize::MAX, |max_len| max_len as usize);
        let name = parameter.name.as_str().into();
        Step { name, direction: parameter.direction, form, max_len, nested: OnceLock::new() }
    }

    /// Joins the steps of data without gaps.
    fn join(&mut self) {
        let count = self.program.ops.len();
        self.solids = vec![None; count];
        let mut looked = vec![false; count];
        // A named type is usually mentioned before it is described. So in reverse order, a type is usually
        // examined before the types that contain it. Plain types come first, so that their depth is not
        // counted from a type that contains them.
        let plain = |op: &usize| {
            let body = self.described.types.get(*op).map(|named| &named.body);
            matches!(body, Some(DescribedBody::Plain { .. }))
        };
        let order: Vec<usize> = (0..count).rev().filter(plain).chain((0..count).rev()).collect();
        for op in order {
            self.look(op as OpId, &mut looked, 0);
        }
        let nothing = self.nothing(count);
        for (op, nothing) in (0..count).zip(nothing) {
            let loose = self.program.ops[op];
            let plain = matches!(
                self.described.types.get(op).map(|named| &named.body),
                Some(DescribedBody::Plain { .. })
            );
            if nothing {
                self.program.ops[op] = Op::Nothing;
            } else if let Some((solid, _)) = self.solids[op]
                && matches!(loose, Op::Array(..) | Op::Record { .. })
                && self.variants.binary_search(&(op as OpId)).is_err()
            {
                let loose = self.push(loose);
                self.program.ops[op] = Op::Solid(solid, loose);
            } else if plain {
                self.program.ops[op] = Op::Refused;
            }
        }
    }

    /// Returns for each step whether it occupies no bytes in any message. A step occupies no bytes if it has
    /// no parts, or if all of its parts occupy no bytes.
    fn nothing(&self, count: usize) -> Vec<bool> {
        let mut nothing = vec![false; count];
        let mut wholes: Vec<Vec<u32>> = vec![Vec::new(); count];
        let mut left = vec![0usize; count];
        let mut found = Vec::new();
        for (op, left) in left.iter_mut().enumerate() {
            let parts: Vec<OpId> = match self.program.ops[op] {
                Op::Nothing | Op::Array(_, 0) => Vec::new(),
                Op::Array(one, _) => vec![one],
                Op::Record { first, count } => {
                    self.program.parts(first, count).iter().map(|part| part.op).collect()
                }
                _ => continue,
            };
            *left = parts.len();
            if parts.is_empty() {
                found.push(op);
            }
            parts.into_iter().for_each(|part| wholes[part as usize].push(op as u32));
        }
        while let Some(one) = found.pop() {
            nothing[one] = true;
            for whole in core::mem::take(&mut wholes[one]) {
                left[whole as usize] -= 1;
                if left[whole as usize] == 0 {
                    found.push(whole as usize);
                }
            }
        }
        nothing
    }

    /// Determines whether a step is one block. A step that contains itself is not one block.
    fn look(&mut self, op: OpId, looked: &mut [bool], depth: u32) -> Option<(Solid, u32)> {
        let place = op as usize;
        if depth > JOINED_DEPTH_MAX {
            return None;
        }
        if core::mem::replace(&mut looked[place], true) {
            return self.solids[place];
        }
        let found = match self.program.ops[place] {
            Op::Number(number) => Some((number.solid(), 0)),
            Op::Choice { repr, .. } => Some((Solid { checked: true, ..repr.solid() }, 0)),
            Op::Array(one, count) => self
                .look(one, looked, depth + 1)
                .and_then(|(one, inside)| Some((many(one, count)?, inside + 1))),
            Op::Record { first, count } => self.look_at_record(place, first, count, looked, depth),
            _ => None,
        };
        let found = found.filter(|(_, inside)| *inside <= JOINED_DEPTH_MAX);
        self.solids[place] = found;
        found
    }

    fn look_at_record(
        &mut self,
        place: usize,
        first: u32,
        count: u32,
        looked: &mut [bool],
        depth: u32,
    ) -> Option<(Solid, u32)> {
        let mut whole: Option<Solid> = None;
        let (mut gap, mut deepest) = (false, 0);
        for i in first..first + count {
            let part = self.program.parts[i as usize].op;
            if matches!(self.program.ops[part as usize], Op::Nothing) {
                continue;
            }
            let (part, inside) = self.look(part, looked, depth + 1)?;
            deepest = deepest.max(inside + 1);
            whole = Some(match whole {
                None => part,
                Some(before) => {
                    // There may be a gap before this part, unless the part is aligned for every offset at
                    // which the first part may begin.
                    gap |= part.align > before.align
                        || !before.bytes.is_multiple_of(u32::from(part.align));
                    Solid {
                        bytes: before.bytes.checked_add(part.bytes)?,
                        align: before.align,
                        unit: if before.unit == part.unit { part.unit } else { 0 },
                        checked: before.checked || part.checked,
                    }
                }
            });
        }
        // A plain type has no gaps by definition, and declares its alignment.
        let plain = self.described.types.get(place).map(|named| &named.body);
        if let Some(DescribedBody::Plain { align, .. }) = plain {
            return whole.map(|whole| (Solid { align: *align as u8, ..whole }, deepest));
        }
        whole.filter(|_| !gap).map(|whole| (whole, deepest))
    }
}

/// Returns the properties of a block of `count` adjacent values, or `None` if there are gaps between them.
fn many(one: Solid, count: u64) -> Option<Solid> {
    let bytes = u32::try_from(count).ok()?.checked_mul(one.bytes)?;
    let follow = count == 1 || one.bytes.is_multiple_of(u32::from(one.align));
    (bytes > 0 && follow).then_some(Solid { bytes, ..one })
}
