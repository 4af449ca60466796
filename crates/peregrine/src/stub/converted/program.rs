//! The program that converts messages: steps over the values of two interfaces.

use crate::interface::Direction;

/// The position of an [`Op`] in its program.
pub(super) type OpId = u32;

/// A part of a message or of a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    /// The next value of the sender is converted for the receiver.
    Convert(OpId),
    /// The receiver has no such part: the next value of the sender is dropped.
    Skip(OpId),
    /// The sender has no such part: the receiver gets the default with this number. The [`OpId`] is the step
    /// that copies a value of the default's type without a conversion.
    Fill(u32, OpId),
}

/// One step of a program. `first` and `count` are a range of one of the program's lists.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    /// The value has no bytes on either side.
    Nothing,
    /// `count` numbers of 1, 2, 4, 8 or 16 bytes each, one after the other.
    Numbers {
        bytes: u8,
        count: u32,
    },
    /// An integer whose width changes. `from` and `to` are the widths in bytes.
    Resize {
        from: u8,
        to: u8,
        signed: bool,
    },
    /// A count, and then the values. The [`OpId`] is the step of one value.
    Sequence(OpId),
    /// A fixed number of values: the step of one value, and the number of values.
    Array(OpId, u64),
    Option(OpId),
    Result(OpId, OpId),
    /// A value that consists of parts, one after the other.
    Record {
        first: u32,
        count: u32,
    },
    /// A variant of an enum. The number of the sender's variant selects one of `count` entries, which begin
    /// at `first`. `ty` is the position of the enum's name.
    Enum {
        first: u32,
        count: u32,
        ty: u32,
    },
    /// A plain value, whose parts may have other offsets in the receiver's type.
    Plain {
        from: Extent,
        to: Extent,
        first: u32,
        count: u32,
    },
    /// A plain enum whose discriminants differ between sender and receiver.
    Choice {
        bytes: u8,
        signed: bool,
        first: u32,
        count: u32,
        ty: u32,
    },
}

/// The size in bytes and the alignment of a plain value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) bytes: u32,
    pub(super) align: u8,
}

/// What a receiver gets for a variant of a sender.
#[derive(Clone, Copy, Debug)]
pub(super) enum Received {
    /// The receiver's variant with this number. The parts are its fields.
    Variant { number: u32, first: u32, count: u32 },
    /// The receiver's variant for unknown variants. If this variant has a field, the field gets the name of
    /// the sent variant. `name` is the position of that name. `fields` is the step that skips the fields
    /// of the sent variant.
    Other { number: u32, fields: OpId, name: Option<u32> },
    /// The receiver has neither the variant with this name, nor a variant for unknown ones.
    Unknown { name: u32 },
}

/// An entry of a plain enum's table: what a receiver gets for one discriminant of the sender.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    /// The discriminant that the sender uses.
    pub(super) from: i128,
    /// The receiver's discriminant; `None` if the receiver does not have the variant.
    pub(super) to: Option<i128>,
    /// The position of the variant's name in the program.
    pub(super) name: u32,
}

/// How one part of a receiver's plain value is made. The moves of a value are in the order of its parts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Move {
    /// `bytes` bytes of the sender from the offset `at` on. They are numbers of `unit` bytes each.
    Copy { at: u32, bytes: u32, unit: u8 },
    /// A value of the sender that an op converts.
    Convert { at: u32, bytes: u32, op: OpId },
    /// The default with this number, for a part that the sender does not have. The [`OpId`] is the step that
    /// copies a value of the default's type without a conversion.
    Fill(u32, OpId),
}

/// Describes the blocks of a parameter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    pub(super) direction: Direction,
    /// Whether the client has the parameter.
    pub(super) ours: bool,
    /// Whether the server has the parameter.
    pub(super) theirs: bool,
    /// The elements in the blocks. `None`: the elements are in the head.
    pub(super) elements: Option<Elements>,
}

/// The plain elements of a buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Elements {
    /// The step that converts one element of a call.
    pub(super) call: OpId,
    /// The step that converts one element of a result.
    pub(super) reply: OpId,
    /// The size in bytes of one element in the client.
    pub(super) our_bytes: u32,
    /// The size in bytes of one element in the server.
    pub(super) their_bytes: u32,
    /// The size of one number in bytes, if the elements are equal on both sides and all their numbers have
    /// the same size. Otherwise 0.
    pub(super) unit: u8,
    /// Whether the elements are equal on both sides, except for the byte order.
    pub(super) is_equal: bool,
}

/// A parameter of either interface: its part of the head, and its blocks, if it is a buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Argument {
    pub(super) head: Part,
    pub(super) blocks: Option<Blocks>,
}

/// The steps that convert the messages of one procedure.
#[derive(Clone, Debug)]
pub(super) struct Routine {
    /// The number of the procedure at the server.
    pub(super) number: u32,
    pub(super) arguments: Box<[Argument]>,
    /// The number of parameters with a copied block in the call. A parameter counts once, whether the client,
    /// the server or both have it.
    pub(super) ins: usize,
    /// The number of parameters with a lent block, counted like `ins`.
    pub(super) lent: usize,
    /// The number of parameters with a block in the result, counted like `ins`.
    pub(super) outs: usize,
    pub(super) result: OpId,
    pub(super) error: OpId,
    /// The steps of the in-out values, which follow the result in the head.
    pub(super) back: Box<[OpId]>,
}

impl Routine {
    /// Returns the blocks of the parameters.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Blocks> {
        self.arguments.iter().filter_map(|argument| argument.blocks)
    }
}

/// The steps that convert the messages of all procedures whose messages differ.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    pub(super) ops: Vec<Op>,
    pub(super) parts: Vec<Part>,
    pub(super) variants: Vec<Received>,
    pub(super) choices: Vec<Choice>,
    pub(super) moves: Vec<Move>,
    pub(super) defaults: Vec<Box<[u8]>>,
    pub(super) names: Vec<Box<str>>,
    /// The routines by the client's numbers of the procedures. `None`: the procedure is not converted.
    pub(super) routines: Vec<Option<Routine>>,
}

impl Program {
    pub(super) fn routine(&self, procedure: u32) -> Option<&Routine> {
        self.routines.get(procedure as usize)?.as_ref()
    }

    /// Returns whether a procedure is converted.
    pub(crate) fn converts(&self, procedure: u32) -> bool {
        self.routine(procedure).is_some()
    }

    #[inline]
    pub(super) fn op(&self, op: OpId) -> Op {
        self.ops.get(op as usize).copied().unwrap_or(Op::Nothing)
    }

    #[inline]
    pub(super) fn parts(&self, first: u32, count: u32) -> &[Part] {
        range(&self.parts, first, count)
    }

    pub(super) fn variants(&self, first: u32, count: u32) -> &[Received] {
        range(&self.variants, first, count)
    }

    pub(super) fn choices(&self, first: u32, count: u32) -> &[Choice] {
        range(&self.choices, first, count)
    }

    #[inline]
    pub(super) fn moves(&self, first: u32, count: u32) -> &[Move] {
        range(&self.moves, first, count)
    }

    pub(super) fn filling(&self, number: u32) -> &[u8] {
        self.defaults.get(number as usize).map_or(&[], |default| default)
    }

    pub(super) fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", |name| name)
    }
}

#[inline]
fn range<T>(all: &[T], first: u32, count: u32) -> &[T] {
    let first = first as usize;
    all.get(first..first + count as usize).unwrap_or(&[])
}
