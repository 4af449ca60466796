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
    /// The sender has no such part: the receiver gets this default, whose steps are those of its type.
    Fill(u32, OpId),
}

/// One step of a program. Ranges are positions in the lists of the program.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    /// No bytes on either side.
    Nothing,
    /// This many numbers of 1, 2, 4, 8 or 16 bytes each, one after the other.
    Numbers {
        bytes: u8,
        count: u32,
    },
    /// An integer whose width changes.
    Resize {
        from: u8,
        to: u8,
        signed: bool,
    },
    /// A count and as many values.
    Sequence(OpId),
    /// As many values.
    Array(OpId, u64),
    Option(OpId),
    Result(OpId, OpId),
    /// Parts one after the other.
    Record {
        first: u32,
        count: u32,
    },
    /// A variant, by the sender's number.
    Enum {
        first: u32,
        count: u32,
        ty: u32,
    },
    /// A plain value, whose parts may lie at other offsets.
    Plain {
        from: Extent,
        to: Extent,
        first: u32,
        count: u32,
    },
    /// A plain enumeration with other discriminants.
    Choice {
        bytes: u8,
        signed: bool,
        first: u32,
        count: u32,
        ty: u32,
    },
}

/// The size and the alignment of a plain value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) bytes: u32,
    pub(super) align: u8,
}

/// What a receiver gets for a variant of a sender.
#[derive(Clone, Copy, Debug)]
pub(super) enum Received {
    /// The variant with this number. The parts are its fields.
    Variant { number: u32, first: u32, count: u32 },
    /// The variant for unknown ones, with the name of the sent one if it has a field. `fields` is the
    /// record of the sender's fields.
    Other { number: u32, fields: OpId, name: Option<u32> },
    /// The receiver cannot have the variant with this name.
    Unknown { name: u32 },
}

/// What a receiver gets for a discriminant of a sender: another one, or nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    pub(super) from: i128,
    pub(super) to: Option<i128>,
    pub(super) name: u32,
}

/// A part of a plain value, in the order in which the receiver has them.
#[derive(Clone, Copy, Debug)]
pub(super) enum Move {
    /// Bytes of the sender, which are numbers of `unit` bytes.
    Copy { at: u32, bytes: u32, unit: u8 },
    /// A value of the sender that an op converts.
    Convert { at: u32, bytes: u32, op: OpId },
    /// A default, whose steps are those of its type.
    Fill(u32, OpId),
}

/// The blocks of a parameter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    pub(super) direction: Direction,
    /// Whether the client passes them, and whether the server gets them.
    pub(super) ours: bool,
    pub(super) theirs: bool,
    /// The elements, unless they are in the head.
    pub(super) elements: Option<Elements>,
}

/// The plain elements of a buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Elements {
    /// The steps of one element on its way to the server, and back.
    pub(super) call: OpId,
    pub(super) reply: OpId,
    /// The size of one element in bytes.
    pub(super) our_bytes: u32,
    pub(super) their_bytes: u32,
    /// The size of the numbers of which the elements consist, if they are equal on both sides. 0: they
    /// differ, or have numbers of several sizes.
    pub(super) unit: u8,
    pub(super) is_equal: bool,
}

/// A parameter of either interface: its part of the head, and its blocks, if it is a buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Argument {
    pub(super) head: Part,
    pub(super) blocks: Option<Blocks>,
}

/// The conversion of one procedure.
#[derive(Clone, Debug)]
pub(super) struct Routine {
    /// The server's number.
    pub(super) number: u32,
    pub(super) arguments: Box<[Argument]>,
    /// The number of blocks that the server gets, of those that it gets lent, and of those that either side
    /// returns.
    pub(super) ins: usize,
    pub(super) lent: usize,
    pub(super) outs: usize,
    pub(super) result: OpId,
    pub(super) error: OpId,
    /// The in-out values after the result.
    pub(super) back: Box<[OpId]>,
}

/// The conversion of all procedures whose messages differ.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    pub(super) ops: Vec<Op>,
    pub(super) parts: Vec<Part>,
    pub(super) variants: Vec<Received>,
    pub(super) choices: Vec<Choice>,
    pub(super) moves: Vec<Move>,
    pub(super) defaults: Vec<Box<[u8]>>,
    pub(super) names: Vec<Box<str>>,
    /// By the client's number.
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
