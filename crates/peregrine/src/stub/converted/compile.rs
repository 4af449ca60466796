//! Compiles the program that converts the messages of a binding. When a client binds, this module compares
//! the descriptions of the two interfaces once, type by type.

use std::collections::HashMap;
use std::rc::Rc;

use super::program::{
    Argument, Blocks, Choice, Elements, Extent, Move, Op, OpId, Part, Program, Received, Routine,
};
use crate::interface::{
    Counterpart, Described, DescribedBody, DescribedField, DescribedGrowth, DescribedParameter,
    DescribedPlainVariant, DescribedType, DescribedVariant, Direction, Index, Shape, Step, steps,
    variant_of,
};

/// The largest number of steps and parts of a program. Interfaces that people write need far fewer.
const STEPS_MAX: usize = 1 << 20;

/// The largest depth to which plain types are nested in each other.
const PLAIN_DEPTH_MAX: u32 = 64;

/// The side whose interface a type belongs to: the client (`Ours`) or the server (`Theirs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Side {
    Ours,
    Theirs,
}

impl Program {
    /// Makes the program for two interfaces that fit, or returns `None` if no procedure needs conversion.
    ///
    /// # Errors
    /// If the program would have more than [`STEPS_MAX`] steps and parts.
    pub(crate) fn new(
        ours: &Described,
        theirs: &Described,
        procedures: &[Counterpart],
    ) -> Result<Option<Self>, String> {
        if !procedures.iter().any(|one| matches!(one, Counterpart::Converted(_))) {
            return Ok(None);
        }
        let mut compiler = Compiler {
            ours,
            theirs,
            program: <Self as Default>::default(),
            known: HashMap::new(),
            open: Vec::new(),
            plain: HashMap::new(),
            choices: HashMap::new(),
            defaults: HashMap::new(),
            names: HashMap::new(),
            moved: 0,
            too_many: false,
        };
        for (number, counterpart) in procedures.iter().enumerate() {
            let routine = match counterpart {
                Counterpart::Converted(their) => Some(compiler.routine(number, *their)),
                Counterpart::Equal(_) | Counterpart::Lacking => None,
            };
            compiler.program.routines.push(routine);
        }
        if compiler.too_many {
            return Err(format!(
                "the interfaces differ in too many places: to convert calls takes more than {STEPS_MAX} \
                 steps"
            ));
        }
        compiler.program.reduce();
        Ok(Some(compiler.program))
    }
}

/// The named types of a sender and of a receiver, each with its side and its number.
type Key = ((Side, usize), (Side, usize));

struct Compiler<'a> {
    ours: &'a Described,
    theirs: &'a Described,
    program: Program,
    /// The step of each pair of named types.
    known: HashMap<Key, OpId>,
    /// The pairs of named types whose bodies are not compiled yet, each with its step.
    open: Vec<(Key, OpId)>,
    /// For each pair of plain types: the moves that make the receiver's value part by part. Their offsets are
    /// from the start of the sender's value.
    plain: HashMap<Key, Rc<[Move]>>,
    /// The steps of plain enumerations within plain values.
    choices: HashMap<Key, OpId>,
    /// The position of each default in the program. The program contains each default once: a peer may
    /// declare a large default that is needed in many places.
    defaults: HashMap<&'a [u8], u32>,
    /// The position of each name in the program. The program contains each name once, because a name may be
    /// long.
    names: HashMap<&'a str, u32>,
    /// The number of moves that were made for all plain types.
    moved: usize,
    too_many: bool,
}

impl<'a> Compiler<'a> {
    fn side(&self, side: Side) -> &'a Described {
        match side {
            Side::Ours => self.ours,
            Side::Theirs => self.theirs,
        }
    }

    /// Returns the number of steps and parts until now.
    fn steps(&self) -> usize {
        let Program { ops, parts, variants, choices, moves, .. } = &self.program;
        ops.len() + parts.len() + variants.len() + choices.len() + moves.len()
    }

    fn push(&mut self, op: Op) -> OpId {
        if self.steps() >= STEPS_MAX {
            self.too_many = true;
            return 0;
        }
        self.program.ops.push(op);
        (self.program.ops.len() - 1) as OpId
    }

    fn filling(&mut self, bytes: &'a [u8]) -> u32 {
        let all = &mut self.program.defaults;
        *self.defaults.entry(bytes).or_insert_with(|| {
            all.push(bytes.into());
            (all.len() - 1) as u32
        })
    }

    fn name(&mut self, name: &'a str) -> u32 {
        let all = &mut self.program.names;
        *self.names.entry(name).or_insert_with(|| {
            all.push(name.into());
            (all.len() - 1) as u32
        })
    }

    /// Adds parts that follow each other. Adjacent numbers of the same size become one part. Returns the
    /// position of the first part, and the number of parts.
    fn parts(&mut self, parts: Vec<Part>) -> (u32, u32) {
        let first = self.program.parts.len();
        for part in parts {
            let before = self.program.parts.get(first..).and_then(<[Part]>::last).copied();
            match before.and_then(|before| self.joined(before, part)) {
                Some(both) => {
                    self.program.parts.pop();
                    self.program.parts.push(both);
                }
                None => self.program.parts.push(part),
            }
        }
        (first as u32, (self.program.parts.len() - first) as u32)
    }

    /// Returns one part instead of two, if both are numbers of the same size.
    fn joined(&mut self, before: Part, part: Part) -> Option<Part> {
        let (Part::Convert(before), Part::Convert(op)) = (before, part) else { return None };
        match (self.program.op(before), self.program.op(op)) {
            (Op::Numbers { bytes, count }, Op::Numbers { bytes: same, count: more })
                if bytes == same =>
            {
                let count = count.checked_add(more)?;
                Some(Part::Convert(self.push(Op::Numbers { bytes, count })))
            }
            _ => None,
        }
    }

    fn routine(&mut self, number: usize, their: u32) -> Routine {
        let ours = &self.ours.procedures[number];
        let theirs = &self.theirs.procedures[their as usize];
        let (mut arguments, mut back) = (Vec::new(), Vec::new());
        for step in steps(&ours.parameters, &theirs.parameters).unwrap_or_default() {
            let argument = match step {
                Step::Both(a, b) => {
                    let (a, b) = (&ours.parameters[a], &theirs.parameters[b]);
                    self.argument(a, b, &mut back)
                }
                Step::Ours(a) => {
                    let one = &ours.parameters[a];
                    let op = self.head(Side::Ours, one);
                    Argument { head: Part::Skip(op), blocks: blocks_of(one, true, false) }
                }
                Step::Theirs(b) => {
                    let one = &theirs.parameters[b];
                    let default = self.side(Side::Theirs).parameter_default(one).unwrap_or(&[]);
                    let (default, op) = (self.filling(default), self.head(Side::Theirs, one));
                    Argument { head: Part::Fill(default, op), blocks: blocks_of(one, false, true) }
                }
            };
            let before = arguments.last().filter(|one: &&Argument| one.blocks.is_none());
            match before.and_then(|before| self.joined(before.head, argument.head)) {
                Some(head) => {
                    arguments.pop();
                    arguments.push(Argument { head, blocks: argument.blocks });
                }
                None => arguments.push(argument),
            }
        }
        let result = self.reply(&ours.result, &theirs.result);
        let error = self.reply(&ours.error, &theirs.error);
        self.bodies();
        Routine {
            number: their,
            ins: blocks_in(&arguments, &[Direction::In, Direction::InOut]),
            lent: blocks_in(&arguments, &[Direction::Lent]),
            outs: blocks_in(&arguments, &[Direction::Out, Direction::InOut]),
            arguments: arguments.into(),
            result,
            error,
            back: back.into(),
        }
    }

    fn argument(
        &mut self,
        ours: &'a DescribedParameter,
        theirs: &'a DescribedParameter,
        back: &mut Vec<OpId>,
    ) -> Argument {
        let number = |compiler: &mut Self| compiler.push(Op::Numbers { bytes: 4, count: 1 });
        let mut blocks = blocks_of(ours, true, true);
        let head = match ours.shape {
            Shape::Text => number(self),
            // In the head, a stream or a callback has eight words. The items of streams and the calls of
            // callbacks are not converted.
            Shape::One if ours.direction.is_live() => self.push(Op::Numbers { bytes: 4, count: 8 }),
            Shape::One => {
                if ours.direction == Direction::InOut {
                    back.push(self.reply(&ours.ty, &theirs.ty));
                }
                self.call(&ours.ty, &theirs.ty)
            }
            Shape::Buffer => {
                let call = self.call(&ours.ty, &theirs.ty);
                let reply = self.reply(&ours.ty, &theirs.ty);
                let sizes = (self.ours.plain_bytes(&ours.ty), self.theirs.plain_bytes(&theirs.ty));
                if let (Some(our_bytes), Some(their_bytes)) = sizes {
                    // The elements are in a block. The head contains their number.
                    self.bodies();
                    let size = |bytes| u32::try_from(bytes).unwrap_or(u32::MAX);
                    let (our_bytes, their_bytes) = (size(our_bytes), size(their_bytes));
                    // The steps of both directions are compared separately, because an enum may be equal in
                    // one direction only.
                    let ways = match ours.direction {
                        Direction::In | Direction::Lent => &[call][..],
                        Direction::Sink | Direction::Source | Direction::Callback => &[],
                        Direction::Out => &[reply],
                        Direction::InOut => &[call, reply],
                    };
                    let unit = ways.iter().map(|op| self.unit(*op)).min().flatten();
                    let is_equal = unit.is_some() || ways.iter().all(|op| self.is_same(*op));
                    let unit = unit.unwrap_or(0);
                    let elements = Elements { call, reply, our_bytes, their_bytes, unit, is_equal };
                    if let Some(blocks) = &mut blocks {
                        blocks.elements = Some(elements);
                    }
                    number(self)
                } else {
                    if ours.direction == Direction::InOut {
                        let op = self.push(Op::Sequence(reply));
                        back.push(op);
                    }
                    self.push(Op::Sequence(call))
                }
            }
        };
        Argument { head: Part::Convert(head), blocks }
    }

    /// Returns the size in bytes of the numbers of a plain value. `None` if the value differs between the
    /// sides, or has numbers of several sizes.
    fn unit(&self, op: OpId) -> Option<u8> {
        match self.program.op(op) {
            Op::Numbers { bytes, .. } => Some(bytes),
            Op::Array(one, _) => self.unit(one),
            Op::Plain { from, to, first, count } if from == to => {
                match self.program.moves(first, count) {
                    [Move::Copy { at: 0, bytes, unit }] if *bytes == from.bytes => Some(*unit),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Returns whether a plain value has the same bytes on both sides, except for the byte order.
    fn is_same(&self, op: OpId) -> bool {
        match self.program.op(op) {
            Op::Numbers { .. } => true,
            Op::Array(one, _) => self.is_same(one),
            Op::Plain { from, to, first, count } if from == to => {
                let mut next = 0;
                self.program.moves(first, count).iter().all(|one| match one {
                    Move::Copy { at, bytes, .. } => {
                        let follows = *at == next;
                        next = at.saturating_add(*bytes);
                        follows
                    }
                    _ => false,
                })
            }
            _ => false,
        }
    }

    /// Returns the step that copies a parameter's part of the head unchanged. Only `side` has the parameter.
    fn head(&mut self, side: Side, one: &'a DescribedParameter) -> OpId {
        let number = Op::Numbers { bytes: 4, count: 1 };
        match one.shape {
            Shape::One => self.own(side, &one.ty),
            Shape::Text => self.push(number),
            Shape::Buffer if self.side(side).plain_bytes(&one.ty).is_some() => self.push(number),
            Shape::Buffer => {
                let element = self.own(side, &one.ty);
                self.push(Op::Sequence(element))
            }
        }
    }

    fn call(&mut self, ours: &'a DescribedType, theirs: &'a DescribedType) -> OpId {
        self.ty((Side::Ours, ours), (Side::Theirs, theirs))
    }

    fn reply(&mut self, ours: &'a DescribedType, theirs: &'a DescribedType) -> OpId {
        self.ty((Side::Theirs, theirs), (Side::Ours, ours))
    }

    /// Returns the step of a value whose type is the same for sender and receiver.
    fn own(&mut self, side: Side, ty: &'a DescribedType) -> OpId {
        self.ty((side, ty), (side, ty))
    }

    /// Returns the step that converts values of one type to another type that fits it. The bodies of named
    /// types are compiled later.
    fn ty(&mut self, from: (Side, &'a DescribedType), to: (Side, &'a DescribedType)) -> OpId {
        use DescribedType as T;
        let ((from_side, from_ty), (to_side, to_ty)) = (from, to);
        let part = |compiler: &mut Self, a, b| compiler.ty((from_side, a), (to_side, b));
        let op = match (from_ty, to_ty) {
            (T::Unit, _) => Op::Nothing,
            (T::Text, _) => {
                let byte = self.push(Op::Numbers { bytes: 1, count: 1 });
                Op::Sequence(byte)
            }
            (T::Array(_, 0), T::Array(..)) => Op::Nothing,
            (T::Array(a, count), T::Array(b, _)) => {
                let one = part(self, a, b);
                match (self.program.op(one), u32::try_from(*count)) {
                    // The steps of the named type are not compiled yet, so they cannot be combined with the
                    // array.
                    _ if matches!(**a, T::Named(_)) => Op::Array(one, *count),
                    (Op::Nothing, _) => Op::Nothing,
                    (Op::Numbers { bytes, count: 1 }, Ok(count)) => Op::Numbers { bytes, count },
                    _ => Op::Array(one, *count),
                }
            }
            (T::Sequence(a), T::Sequence(b)) => Op::Sequence(part(self, a, b)),
            (T::Option(a), T::Option(b)) => Op::Option(part(self, a, b)),
            (T::Result(ok, error), T::Result(to_ok, to_error)) => {
                let ok = part(self, ok, to_ok);
                Op::Result(ok, part(self, error, to_error))
            }
            (T::Tuple(ours), T::Tuple(theirs)) => {
                let parts = ours.iter().zip(theirs);
                let parts = parts.map(|(a, b)| Part::Convert(part(self, a, b))).collect();
                let (first, count) = self.parts(parts);
                Op::Record { first, count }
            }
            (T::Named(a), T::Named(b)) => {
                let key = ((from_side, *a), (to_side, *b));
                if let Some(op) = self.known.get(&key) {
                    return *op;
                }
                let op = self.push(Op::Nothing);
                self.known.insert(key, op);
                self.open.push((key, op));
                return op;
            }
            (a, b) => match (bytes_of(a), bytes_of(b)) {
                (Some(from), Some(to)) if from != to => {
                    Op::Resize { from, to, signed: a.signs().1 }
                }
                (Some(bytes), _) => Op::Numbers { bytes, count: 1 },
                (None, _) => Op::Nothing,
            },
        };
        self.push(op)
    }

    /// Compiles the bodies of the named types in `open`.
    fn bodies(&mut self) {
        while let Some((key, op)) = self.open.pop() {
            if self.too_many {
                return;
            }
            let body = self.body(key);
            if let Some(place) = self.program.ops.get_mut(op as usize) {
                *place = body;
            }
        }
    }

    fn body(&mut self, key: Key) -> Op {
        let ((from_side, a), (to_side, b)) = key;
        let (from, to) = (self.side(from_side), self.side(to_side));
        let (Some(one), Some(other)) = (from.types.get(a), to.types.get(b)) else {
            return Op::Nothing;
        };
        match (&one.body, &other.body) {
            (DescribedBody::Struct(fields), DescribedBody::Struct(others)) => {
                let (first, count) = self.fields((from_side, fields), (to_side, others));
                Op::Record { first, count }
            }
            (DescribedBody::Enum(variants), DescribedBody::Enum(others)) => {
                self.variants((from_side, variants), (to_side, others), &one.name)
            }
            (DescribedBody::Plain { .. }, DescribedBody::Plain { .. }) => {
                let moves = self.plain(key, 0);
                let first = self.program.moves.len() as u32;
                let count = moves.len() as u32;
                self.program.moves.extend_from_slice(&moves);
                Op::Plain { from: extent(from, a), to: extent(to, b), first, count }
            }
            (
                DescribedBody::PlainEnum { repr, variants },
                DescribedBody::PlainEnum { variants: others, .. },
            ) => match self.choices.get(&key) {
                Some(op) => self.program.op(*op),
                None => self.choice(repr, variants, others, &one.name),
            },
            _ => Op::Nothing,
        }
    }

    fn fields(
        &mut self,
        from: (Side, &'a [DescribedField]),
        to: (Side, &'a [DescribedField]),
    ) -> (u32, u32) {
        let mut parts = Vec::new();
        for step in steps(from.1, to.1).unwrap_or_default() {
            parts.push(match step {
                Step::Both(a, b) => {
                    let (a, b) = (&from.1[a], &to.1[b]);
                    Part::Convert(self.ty((from.0, &a.ty), (to.0, &b.ty)))
                }
                Step::Ours(a) => Part::Skip(self.own(from.0, &from.1[a].ty)),
                Step::Theirs(b) => {
                    let one = &to.1[b];
                    let (default, op) = self.filled(to.0, &one.ty, &one.growth);
                    Part::Fill(default, op)
                }
            });
        }
        self.parts(parts)
    }

    /// Adds the default of a field of one side to the program. Returns the number of the default, and the
    /// step that copies a value of the default's type unchanged.
    fn filled(
        &mut self,
        side: Side,
        ty: &'a DescribedType,
        growth: &'a DescribedGrowth,
    ) -> (u32, OpId) {
        let default = self.side(side).default_of(ty, growth).unwrap_or(&[]);
        let default = self.filling(default);
        (default, self.own(side, ty))
    }

    fn variants(
        &mut self,
        from: (Side, &'a [DescribedVariant]),
        to: (Side, &'a [DescribedVariant]),
        name: &'a str,
    ) -> Op {
        let index = Index::new(to.1);
        let other = to.1.iter().position(|one| one.is_other);
        let mut all = Vec::with_capacity(from.1.len());
        for sent in from.1 {
            all.push(match variant_of(sent, sent.is_other, &index, other) {
                None => Received::Unknown { name: self.name(&sent.name) },
                Some(number) => {
                    let received = &to.1[number];
                    let has_name = |one: &DescribedVariant| !one.fields.is_empty();
                    if !received.is_other {
                        let (first, count) =
                            self.fields((from.0, &sent.fields), (to.0, &received.fields));
                        Received::Variant { number: number as u32, first, count }
                    } else if sent.is_other && has_name(sent) == has_name(received) {
                        // Each of the two `other` variants has at most one field: the name of an unknown
                        // variant.
                        let both = sent.fields.iter().zip(&received.fields);
                        let parts = both.map(|(one, other)| {
                            Part::Convert(self.ty((from.0, &one.ty), (to.0, &other.ty)))
                        });
                        let parts = parts.collect();
                        let (first, count) = self.parts(parts);
                        Received::Variant { number: number as u32, first, count }
                    } else {
                        let (first, count) =
                            self.fields((from.0, &sent.fields), (from.0, &sent.fields));
                        let fields = self.push(Op::Record { first, count });
                        let name = has_name(received).then(|| self.name(&sent.name));
                        Received::Other { number: number as u32, fields, name }
                    }
                }
            });
        }
        let (first, count) = (self.program.variants.len() as u32, all.len() as u32);
        self.program.variants.extend(all);
        Op::Enum { first, count, ty: self.name(name) }
    }

    fn choice(
        &mut self,
        repr: &DescribedType,
        from: &'a [DescribedPlainVariant],
        to: &'a [DescribedPlainVariant],
        name: &'a str,
    ) -> Op {
        let bytes = bytes_of(repr).unwrap_or(1);
        let index = Index::new(to);
        let other = to.iter().position(|one| one.is_other);
        let mut all = Vec::with_capacity(from.len());
        for sent in from {
            let found = variant_of(sent, sent.is_other, &index, other).map(|found| to[found].value);
            all.push((sent, found));
        }
        if all.iter().all(|(sent, found)| *found == Some(sent.value)) {
            return Op::Numbers { bytes, count: 1 };
        }
        let mut choices: Vec<Choice> = Vec::with_capacity(all.len());
        for (sent, to) in all {
            choices.push(Choice { from: sent.value, to, name: self.name(&sent.name) });
        }
        choices.sort_by_key(|one| one.from);
        let (first, count) = (self.program.choices.len() as u32, choices.len() as u32);
        self.program.choices.extend(choices);
        Op::Choice { bytes, signed: repr.signs().1, first, count, ty: self.name(name) }
    }

    /// Returns the moves of a plain type. Their offsets are from the start of the sender's value. The moves
    /// are made once, because many other plain types may contain the type.
    fn plain(&mut self, key: Key, depth: u32) -> Rc<[Move]> {
        if let Some(moves) = self.plain.get(&key) {
            return Rc::clone(moves);
        }
        let ((from_side, a), (to_side, b)) = key;
        let (from, to) = (self.side(from_side), self.side(to_side));
        let bodies = (from.types.get(a).map(|one| &one.body), to.types.get(b).map(|one| &one.body));
        let (
            Some(DescribedBody::Plain { fields, .. }),
            Some(DescribedBody::Plain { fields: others, .. }),
        ) = bodies
        else {
            return Rc::default();
        };
        // The offsets of the sender's fields. The fields follow each other without padding.
        let mut offsets = Vec::with_capacity(fields.len());
        let mut end = 0u32;
        for field in fields {
            offsets.push(end);
            end = end.saturating_add(plain_bytes(from, &field.ty));
        }
        let mut moves = Vec::new();
        for step in steps(fields, others).unwrap_or_default() {
            match step {
                Step::Both(a, b) => {
                    let pair = ((from_side, &fields[a].ty), (to_side, &others[b].ty));
                    self.plain_value(pair, offsets[a], &mut moves, depth);
                }
                Step::Ours(_) => {}
                Step::Theirs(b) => {
                    let (default, op) = self.filled(to_side, &others[b].ty, &others[b].growth);
                    self.add(&[Move::Fill(default, op)], 0, &mut moves);
                }
            }
            if self.too_many {
                return Rc::default();
            }
        }
        let moves: Rc<[Move]> = moves.into();
        self.plain.insert(key, Rc::clone(&moves));
        moves
    }

    /// Adds the moves of a plain value of any type. The value begins at byte `at` of the sender's outer
    /// value.
    fn plain_value(
        &mut self,
        pair: ((Side, &'a DescribedType), (Side, &'a DescribedType)),
        at: u32,
        moves: &mut Vec<Move>,
        depth: u32,
    ) {
        let ((from_side, from), (to_side, to)) = pair;
        self.too_many |= depth > PLAIN_DEPTH_MAX;
        if self.too_many {
            return;
        }
        match (from, to) {
            (DescribedType::Array(a, count), DescribedType::Array(b, _)) => {
                let mut each = Vec::new();
                self.plain_value(((from_side, a), (to_side, b)), 0, &mut each, depth + 1);
                let bytes = plain_bytes(self.side(from_side), a);
                if let [Move::Copy { at: 0, bytes: all, unit }] = *each
                    && all == bytes
                {
                    // If one move copies a whole element, one move copies the whole array.
                    let bytes = plain_bytes(self.side(from_side), from);
                    return self.add(&[Move::Copy { at: 0, bytes, unit }], at, moves);
                }
                for index in 0..*count {
                    let offset = u32::try_from(index).unwrap_or(u32::MAX).saturating_mul(bytes);
                    self.add(&each, at.saturating_add(offset), moves);
                    if self.too_many || each.is_empty() {
                        return;
                    }
                }
            }
            (DescribedType::Named(a), DescribedType::Named(b)) => {
                let key = ((from_side, *a), (to_side, *b));
                let named = self.side(from_side).types.get(*a);
                if let Some(DescribedBody::PlainEnum { repr, .. }) = named.map(|one| &one.body) {
                    let bytes = bytes_of(repr).unwrap_or(1);
                    let op = self.choice_within(key);
                    let one = match self.program.op(op) {
                        Op::Numbers { .. } => {
                            Move::Copy { at: 0, bytes: bytes.into(), unit: bytes }
                        }
                        _ => Move::Convert { at: 0, bytes: bytes.into(), op },
                    };
                    return self.add(&[one], at, moves);
                }
                let each = self.plain(key, depth + 1);
                self.add(&each, at, moves);
            }
            _ => match (bytes_of(from), bytes_of(to)) {
                (Some(a), Some(b)) if a != b => {
                    let op = Op::Resize { from: a, to: b, signed: from.signs().1 };
                    let op = self.push(op);
                    self.add(&[Move::Convert { at: 0, bytes: a.into(), op }], at, moves);
                }
                (Some(bytes), _) => {
                    self.add(&[Move::Copy { at: 0, bytes: bytes.into(), unit: bytes }], at, moves);
                }
                _ => {}
            },
        }
    }

    /// Returns the step of a plain enumeration in a plain value.
    fn choice_within(&mut self, key: Key) -> OpId {
        if let Some(op) = self.choices.get(&key) {
            return *op;
        }
        let body = self.body(key);
        let op = self.push(body);
        self.choices.insert(key, op);
        op
    }

    /// Appends `more` to `moves`. The offsets in `more` are relative to byte `at` of the sender's value. A
    /// copy is joined with the copy before it, if both copy adjacent numbers of one size.
    fn add(&mut self, more: &[Move], at: u32, moves: &mut Vec<Move>) {
        self.moved += more.len();
        if self.moved > STEPS_MAX {
            self.too_many = true;
            return;
        }
        for one in more {
            let one = match *one {
                Move::Copy { at: offset, bytes, unit } => {
                    let next = at.saturating_add(offset);
                    if let Some(Move::Copy { at, bytes: before, unit: same }) = moves.last_mut()
                        && *same == unit
                        && at.saturating_add(*before) == next
                    {
                        *before = before.saturating_add(bytes);
                        continue;
                    }
                    Move::Copy { at: next, bytes, unit }
                }
                Move::Convert { at: offset, bytes, op } => {
                    Move::Convert { at: at.saturating_add(offset), bytes, op }
                }
                fill @ Move::Fill(..) => fill,
            };
            moves.push(one);
        }
    }
}

/// Returns the number of arguments with blocks in one of these directions.
fn blocks_in(arguments: &[Argument], directions: &[Direction]) -> usize {
    let is_one = |one: &&Argument| {
        one.blocks.as_ref().is_some_and(|blocks| directions.contains(&blocks.direction))
    };
    arguments.iter().filter(is_one).count()
}

/// Returns the blocks of a parameter, or `None` if it has none. `ours` and `theirs` say whether the client
/// and the server have the parameter.
fn blocks_of(one: &DescribedParameter, ours: bool, theirs: bool) -> Option<Blocks> {
    let blocks = Blocks { direction: one.direction, ours, theirs, elements: None };
    (one.shape != Shape::One).then_some(blocks)
}

/// Returns the size in bytes of a primitive type, or `None` for other types.
fn bytes_of(ty: &DescribedType) -> Option<u8> {
    ty.primitive_bytes().and_then(|bytes| u8::try_from(bytes).ok())
}

fn plain_bytes(whole: &Described, ty: &DescribedType) -> u32 {
    let bytes = whole.plain_bytes(ty).unwrap_or(0);
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn extent(whole: &Described, number: usize) -> Extent {
    let ty = DescribedType::Named(number);
    let align = whole.plain_alignment(&ty).and_then(|align| u8::try_from(align).ok());
    Extent { bytes: plain_bytes(whole, &ty), align: align.unwrap_or(1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::{Sides, compare};

    fn program(ours: &str, theirs: &str) -> Result<Option<Program>, String> {
        let [ours, theirs] = [ours, theirs].map(|lines| {
            Described::parse(&format!("interface I version 1\n{lines}")).expect("a description")
        });
        let comparison = compare(&ours, &theirs, Sides::BY_CLIENT);
        assert_eq!(comparison.misfit(), None);
        Program::new(&ours, &theirs, &comparison.procedures)
    }

    /// A hostile server can make a client pair one type of the client with each type of the server. The total
    /// number of steps must still be bounded.
    #[test]
    fn size_of_a_program_is_bounded() {
        let mut variants = " A {0: option<E#0>} other Other {}".to_owned();
        (0..300).for_each(|i| variants.push_str(&format!(" V{i} {{}}")));
        let ours = format!("f(in a: E#0) -> unit or text\nE#0 = enum{variants}\n");
        let chain = |types: usize| {
            let mut text = "f(in a: E#0) -> unit or text\n".to_owned();
            for number in 0..types {
                let next = (number + 1) % types;
                text.push_str(&format!(
                    "E#{number} = enum A {{0: option<E#{next}>}} other O {{}}\n"
                ));
            }
            text
        };
        assert!(program(&ours, &chain(50)).is_ok_and(|program| program.is_some()));
        let error = program(&ours, &chain(10_000)).expect_err("more steps than allowed");
        assert!(error.contains("too many places"), "{error}");
    }
}
