//! What marshalling costs in each of ten stub designs: an equation for every procedure.
//!
//! Chung, Lazowska, Notkin and Zahorjan (*Performance Implications of Design Alternatives for Remote
//! Procedure Call Stubs*, Table 5) give the equations of one data type and remark that those of others
//! can be generated from the interface's description: this does. An equation is a sum of [`Symbol`]s,
//! of blocks `b(n)` and of loops; what a machine needs for each is a matter of [`Parameters`], which
//! somebody else measures. There is no clock here.
//!
//! A description may come from a peer. Work and result are bounded by
//! [`COST_TERMS_MAX`](crate::limits::COST_TERMS_MAX) and [`DEPTH_MAX`](crate::limits::DEPTH_MAX), numbers
//! saturate, and what lies beyond, or is a part of itself, is a variable of its own.

mod print;

use super::{
    Described, DescribedBody, DescribedField, DescribedParameter, DescribedProcedure,
    DescribedType, Direction, Shape,
};
use crate::limits;

/// Whether a stub is code of its own for each interface, or one that walks any description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// One stub walks the description of each procedure.
    Interpreted,
    /// Each procedure has a stub.
    Compiled,
}

/// How a stub moves data between where the user has it and the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copying {
    /// Byte by byte, as for swapping, in the stub itself.
    InlineByte,
    /// Item by item, in the stub itself.
    InlineItem,
    /// Byte by byte, by a procedure call for each item.
    ProceduralByte,
    /// By a procedure call for each item, which moves it as one.
    ProceduralItem,
    /// What lies together in memory is moved together.
    Block,
}

/// One of the ten designs of the paper's Table 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Design {
    /// Interpreted or compiled.
    pub control: Control,
    /// How data is moved.
    pub copying: Copying,
}

impl Design {
    /// All ten, in the order of the paper's Table 2.
    ///
    /// ```
    /// use peregrine::interface::{Copying, Design};
    ///
    /// assert_eq!(Design::ALL.len(), 10);
    /// assert_eq!(Design::ALL[9].copying, Copying::Block);
    /// ```
    pub const ALL: [Self; 10] = {
        let mut all = [Self { control: Control::Interpreted, copying: Copying::InlineByte }; 10];
        let mut i = 0;
        while i < all.len() {
            if i >= Copying::ALL.len() {
                all[i].control = Control::Compiled;
            }
            all[i].copying = Copying::ALL[i % Copying::ALL.len()];
            i += 1;
        }
        all
    };
}

impl Copying {
    /// All five, in the order of the paper's Table 2.
    pub const ALL: [Self; 5] = [
        Self::InlineByte,
        Self::InlineItem,
        Self::ProceduralByte,
        Self::ProceduralItem,
        Self::Block,
    ];

    const fn is_procedural(self) -> bool {
        matches!(self, Self::ProceduralByte | Self::ProceduralItem)
    }
}

/// What stands in equations, each with one time per machine (the paper's Table 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symbol {
    /// `L_b`: moves four bytes one by one. Items of other sizes count as so many quarters of it.
    ByteCopy,
    /// `L_i`: moves an item, whatever its size, as one.
    ItemCopy,
    /// `p`: calls a marshalling procedure.
    Call,
    /// `f`: takes a step of a loop.
    Step,
    /// `α`: begins a message that has blocks.
    BlockStart,
    /// `B`: sets up the interpreter, which is called for each message, and by itself for each record.
    Setup,
    /// `A`: sets up an array in the interpreter.
    ArraySetup,
    /// `e`: looks at the code of an elementary type in the interpreter.
    Code,
}

impl Symbol {
    /// All of them, in the order in which equations have them.
    pub const ALL: [Self; 8] = [
        Self::ByteCopy,
        Self::ItemCopy,
        Self::Call,
        Self::Step,
        Self::BlockStart,
        Self::Setup,
        Self::ArraySetup,
        Self::Code,
    ];

    /// As it stands in equations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ByteCopy => "L_b",
            Self::ItemCopy => "L_i",
            Self::Call => "p",
            Self::Step => "f",
            Self::BlockStart => "α",
            Self::Setup => "B",
            Self::ArraySetup => "A",
            Self::Code => "e",
        }
    }

    /// What it stands for.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::ByteCopy => "move four bytes one by one",
            Self::ItemCopy => "move an item as one",
            Self::Call => "call a marshalling procedure",
            Self::Step => "take a step of a loop",
            Self::BlockStart => "begin a message that has blocks",
            Self::Setup => "set up the interpreter",
            Self::ArraySetup => "set up an array in the interpreter",
            Self::Code => "look at the code of an elementary type",
        }
    }
}

/// How many there are of something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Length {
    /// So many: by the type, or at most, by `max_len`.
    Fixed(u64),
    /// As many as a call has; named after the parameter, and the way from there.
    Variable(String),
}

/// A part of an equation that is no symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// `b(n)`: moves so many times so many bytes as one block.
    Block(Length, u64),
    /// A loop: so many times the same.
    Times(Length, Cost),
    /// What a type costs that is a part of itself, or that is too large to be described whole; by its
    /// place in the call.
    Unknown(String),
}

/// An equation: what it costs to marshal (or to unmarshal) the values of a message.
///
/// ```
/// use peregrine::interface::{Control, Copying, Described, Design, Length, Parameters, Part};
///
/// let text = "interface Sum version 0\nsum(in all: [i32] max 256) -> i64 or text\n";
/// let sum = Described::parse(text)?;
/// let design = Design { control: Control::Compiled, copying: Copying::InlineItem };
/// let call = &sum.costs(design)[0].call;
/// assert_eq!(call.to_string(), "L_i + 256 × (L_i + f)");
/// // What it was on a MicroVAX-II, in microseconds.
/// assert_eq!(call.evaluate(&Parameters::MICROVAX, &|_| 0.0), 3338.0);
/// # Ok::<(), peregrine::interface::TextError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// How often each symbol stands in it; of `L_b` the bytes.
    counts: [u64; Symbol::ALL.len()],
    parts: Vec<Part>,
}

/// What one procedure costs in one design.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcedureCost {
    /// The call's values: what is `in`, `lent` or in-out, and how much room an `out` buffer has.
    pub call: Cost,
    /// The result's: what `Ok` carries, what is `out` or in-out.
    pub result: Cost,
}

/// What a machine needs for each symbol, in any unit of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters<'a> {
    /// The time of each symbol, in the order of [`Symbol::ALL`].
    pub symbols: [f64; Symbol::ALL.len()],
    /// The times of blocks by their bytes, the shortest first. Between two of them it is
    /// a straight line, and so it is beyond either end.
    pub blocks: &'a [(u64, f64)],
}

impl Parameters<'static> {
    /// The paper's Table 6: a MicroVAX-II with Ultrix 2.0, in microseconds.
    pub const MICROVAX: Self = Self {
        symbols: [15.0, 10.0, 25.0, 3.0, 40.0, 45.0, 128.0, 23.0],
        blocks: &[(0, 0.0), (1024, 382.0)],
    };
}

impl Parameters<'_> {
    /// The time of a symbol.
    pub const fn of(&self, symbol: Symbol) -> f64 {
        self.symbols[symbol as usize]
    }

    /// The time of a block of so many bytes; 0 if none was measured.
    pub fn block(&self, bytes: f64) -> f64 {
        let Some(last) = self.blocks.len().checked_sub(1) else { return 0.0 };
        let behind = self.blocks.partition_point(|(known, _)| (*known as f64) < bytes);
        let behind = behind.max(1).min(last);
        let ((x0, y0), (x1, y1)) = (self.blocks[behind.saturating_sub(1)], self.blocks[behind]);
        if x0 == x1 {
            return y1;
        }
        let part = (bytes - x0 as f64) / (x1 as f64 - x0 as f64);
        (y1 - y0).mul_add(part, y0)
    }
}

impl Cost {
    /// How often each symbol stands in it, outside of loops: of [`Symbol::ByteCopy`] perhaps a number of
    /// quarters.
    pub fn symbols(&self) -> impl Iterator<Item = (Symbol, f64)> {
        let times = |(symbol, count): (Symbol, &u64)| {
            let unit = if symbol == Symbol::ByteCopy { 4.0 } else { 1.0 };
            (*count > 0).then_some((symbol, *count as f64 / unit))
        };
        Symbol::ALL.into_iter().zip(&self.counts).filter_map(times)
    }

    /// The blocks, loops and unknown parts.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Whether it costs nothing.
    pub fn is_nothing(&self) -> bool {
        self.parts.is_empty() && self.counts.iter().all(|count| *count == 0)
    }

    /// The time, in the parameters' unit. `value` says of each variable how long that is; of an
    /// [`Part::Unknown`] the time that it takes.
    pub fn evaluate(&self, parameters: &Parameters<'_>, value: &dyn Fn(&str) -> f64) -> f64 {
        let length = |length: &Length| length.evaluate(value);
        let symbols = self.symbols().map(|(symbol, count)| count * parameters.of(symbol));
        let parts = self.parts.iter().map(|part| match part {
            Part::Block(count, bytes) => parameters.block(length(count) * *bytes as f64),
            Part::Times(count, one) => length(count) * one.evaluate(parameters, value),
            Part::Unknown(name) => value(name),
        });
        symbols.chain(parts).sum()
    }

    fn symbol(symbol: Symbol) -> Self {
        Self::symbol_times(symbol, 1)
    }

    fn symbol_times(symbol: Symbol, count: u64) -> Self {
        let mut cost = Self::default();
        cost.counts[symbol as usize] = count;
        cost
    }

    fn part(part: Part) -> Self {
        Self { parts: vec![part], ..Self::default() }
    }

    fn add(&mut self, other: Self) {
        for (count, other) in self.counts.iter_mut().zip(other.counts) {
            *count = count.saturating_add(other);
        }
        self.parts.extend(other.parts);
    }

    /// All of it so many times; nothing if it is nothing.
    fn times(self, length: Length) -> Self {
        if self.is_nothing() { self } else { Self::part(Part::Times(length, self)) }
    }

    /// What it would be if every symbol took as long: to tell which of two is dearer.
    fn weight(&self) -> f64 {
        let even = Parameters { symbols: [1.0; Symbol::ALL.len()], blocks: &[(0, 1.0), (16, 2.0)] };
        self.evaluate(&even, &|_| 1.0)
    }
}

impl Length {
    fn evaluate(&self, value: &dyn Fn(&str) -> f64) -> f64 {
        match self {
            Self::Fixed(count) => *count as f64,
            Self::Variable(name) => value(name),
        }
    }
}

impl Described {
    /// What each procedure costs in a design, in order.
    ///
    /// An array, a sequence or a buffer is its count (an array of the type `[T; N]` has none) and a loop over its
    /// elements; of a choice (an option, a result, an enumeration) the dearest is taken; text is a count
    /// and a block in every design, for its bytes are never swapped.
    pub fn costs(&self, design: Design) -> Vec<ProcedureCost> {
        let mut deriving =
            Deriving { of: self, design, left: limits::COST_TERMS_MAX, depth: 0, within: vec![] };
        self.procedures.iter().map(|procedure| deriving.procedure(procedure)).collect()
    }
}

/// Where a value lies in a call, from the parameter on.
#[derive(Clone, Copy)]
struct Place<'a> {
    /// What it is a part of.
    whole: Option<&'a Self>,
    /// Its name there; none for the elements of something.
    name: Option<&'a str>,
}

impl<'a> Place<'a> {
    const fn of(name: &'a str) -> Self {
        Self { whole: None, name: Some(name) }
    }

    const fn part(&'a self, name: &'a str) -> Self {
        Self { whole: Some(self), name: Some(name) }
    }

    const fn element(&'a self) -> Self {
        Self { whole: Some(self), name: None }
    }
}

/// What moves a value, and what the interpreter adds to that.
#[derive(Default)]
struct Parts {
    moving: Cost,
    interpreting: Cost,
}

impl Parts {
    fn add(&mut self, other: Self) {
        self.moving.add(other.moving);
        self.interpreting.add(other.interpreting);
    }

    fn weight(&self) -> f64 {
        self.moving.weight() + self.interpreting.weight()
    }

    fn dearer(self, other: Self) -> Self {
        if other.weight() > self.weight() { other } else { self }
    }
}

/// Walks types and writes equations.
struct Deriving<'a> {
    of: &'a Described,
    design: Design,
    /// Values that may still be looked at.
    left: usize,
    depth: u32,
    /// The named types of which the present one is a part.
    within: Vec<usize>,
}

impl Deriving<'_> {
    fn procedure(&mut self, procedure: &DescribedProcedure) -> ProcedureCost {
        let call = self.message(|this, parts| {
            for parameter in &procedure.parameters {
                parts.add(this.with_call(parameter));
            }
        });
        let result = self.message(|this, parts| {
            parts.add(this.value(&procedure.result, &Place::of("result")));
            for parameter in &procedure.parameters {
                parts.add(this.with_result(parameter));
            }
        });
        ProcedureCost { call, result }
    }

    /// All of a message: what is due once comes to it.
    fn message(&mut self, values: impl FnOnce(&mut Self, &mut Parts)) -> Cost {
        let mut parts = Parts::default();
        values(self, &mut parts);
        let Parts { moving: mut cost, interpreting } = parts;
        if self.design.copying == Copying::Block && has_block(&cost) {
            cost.add(Cost::symbol(Symbol::BlockStart));
        }
        if self.design.control == Control::Interpreted {
            cost.add(Cost::symbol(Symbol::Setup));
            cost.add(interpreting);
        }
        cost
    }

    fn with_call(&mut self, parameter: &DescribedParameter) -> Parts {
        match parameter.direction {
            // How much room there is.
            Direction::Out => self.item(4),
            _ if parameter.shape == Shape::One => {
                self.value(&parameter.ty, &Place::of(&parameter.name))
            }
            _ => self.buffer(parameter, true),
        }
    }

    fn with_result(&mut self, parameter: &DescribedParameter) -> Parts {
        match (parameter.direction, parameter.shape) {
            (Direction::In | Direction::Lent, _) => Parts::default(),
            (_, Shape::One) => self.value(&parameter.ty, &Place::of(&parameter.name)),
            _ => self.buffer(parameter, false),
        }
    }

    fn buffer(&mut self, parameter: &DescribedParameter, counted: bool) -> Parts {
        let place = Place::of(&parameter.name);
        let length = match parameter.max_len {
            Some(most) => Length::Fixed(most.into()),
            None => Length::Variable(place.to_string()),
        };
        if parameter.shape == Shape::Text {
            return self.text(length);
        }
        self.elements(&parameter.ty, length, counted, &place)
    }

    /// An item of so many bytes, on its own.
    fn item(&self, bytes: u64) -> Parts {
        Parts { moving: self.moved(bytes), interpreting: Cost::symbol(Symbol::Code) }
    }

    fn moved(&self, bytes: u64) -> Cost {
        let mut cost = match self.design.copying {
            Copying::InlineByte | Copying::ProceduralByte => {
                Cost::symbol_times(Symbol::ByteCopy, bytes)
            }
            _ => Cost::symbol(Symbol::ItemCopy),
        };
        if self.design.copying.is_procedural() {
            cost.add(Cost::symbol(Symbol::Call));
        }
        cost
    }

    fn text(&self, length: Length) -> Parts {
        let mut parts = self.item(4);
        parts.moving.add(Cost::part(Part::Block(length, 1)));
        parts
    }

    /// So many values one after the other, behind their count if there is one.
    fn elements(
        &mut self,
        ty: &DescribedType,
        length: Length,
        counted: bool,
        place: &Place<'_>,
    ) -> Parts {
        let mut all = Parts::default();
        if counted {
            all.moving.add(self.moved(4));
        }
        all.interpreting.add(Cost::symbol(Symbol::ArraySetup));
        let bytes = self.of.plain_bytes(ty);
        let Parts { mut moving, interpreting } = self.value(ty, &place.element());
        let record = self.is_record(ty);
        if let (Copying::Block, Some(bytes)) = (self.design.copying, bytes) {
            // An interpreter meets records one by one, and does not know how large they all are.
            if !(record && self.design.control == Control::Interpreted) {
                all.moving.add(Cost::part(Part::Block(length.clone(), bytes)));
                moving = Cost::default();
            }
        } else if record
            && self.design.copying.is_procedural()
            && self.design.control == Control::Compiled
        {
            // A record among others is marshalled by a procedure of its own. (An interpreter has the
            // call of itself instead.)
            moving.add(Cost::symbol(Symbol::Call));
        }
        if !moving.is_nothing() {
            moving.add(Cost::symbol(Symbol::Step));
        }
        all.moving.add(moving.times(length.clone()));
        // The code of an elementary type is looked at once for all elements.
        let once = if record { interpreting.times(length) } else { interpreting };
        all.interpreting.add(once);
        all
    }

    /// Whether values of the type are several, for which an interpreter calls itself.
    fn is_record(&self, ty: &DescribedType) -> bool {
        match ty {
            DescribedType::Tuple(_) => true,
            DescribedType::Array(one, _) => self.is_record(one),
            DescribedType::Named(number) => {
                let named = self.of.types.get(*number);
                named.is_some_and(|named| !matches!(named.body, DescribedBody::PlainEnum { .. }))
            }
            DescribedType::Sequence(_) | DescribedType::Option(_) | DescribedType::Result(..) => {
                true
            }
            _ => false,
        }
    }

    /// One value.
    fn value(&mut self, ty: &DescribedType, place: &Place<'_>) -> Parts {
        if self.left == 0 || self.depth >= limits::DEPTH_MAX {
            return unknown(place);
        }
        self.left -= 1;
        self.depth += 1;
        let parts = self.value_within(ty, place);
        self.depth -= 1;
        parts
    }

    fn value_within(&mut self, ty: &DescribedType, place: &Place<'_>) -> Parts {
        match ty {
            DescribedType::Unit => Parts::default(),
            DescribedType::Text => self.text(Length::Variable(place.to_string())),
            DescribedType::Array(one, count) => {
                self.elements(one, Length::Fixed(*count), false, place)
            }
            DescribedType::Sequence(one) => {
                self.elements(one, Length::Variable(place.to_string()), true, place)
            }
            DescribedType::Option(one) => {
                let mut parts = self.item(1);
                parts.add(self.value(one, place));
                parts
            }
            DescribedType::Result(ok, err) => {
                let mut parts = self.item(1);
                let ok = self.value(ok, &place.part("ok"));
                parts.add(ok.dearer(self.value(err, &place.part("err"))));
                parts
            }
            DescribedType::Tuple(all) => {
                self.record(all.iter().map(|one| ("", one)), place, self.of.plain_bytes(ty))
            }
            DescribedType::Named(number) => self.named(*number, place),
            primitive => self.item(self.of.plain_bytes(primitive).unwrap_or(0)),
        }
    }

    /// The parts of a record, for which an interpreter calls itself; `plain` bytes if it is a block.
    fn record<'b>(
        &mut self,
        all: impl Iterator<Item = (&'b str, &'b DescribedType)>,
        place: &Place<'_>,
        plain: Option<u64>,
    ) -> Parts {
        let mut parts = Parts::default();
        parts.interpreting.add(Cost::symbol(Symbol::Setup));
        let mut count = 0;
        for (i, (name, ty)) in all.enumerate() {
            if self.left == 0 {
                parts.add(unknown(place));
                break;
            }
            let number = i.to_string();
            let name = if name.is_empty() { &number } else { name };
            parts.add(self.value(ty, &place.part(name)));
            count += 1;
        }
        if let (Copying::Block, Some(bytes), 2..) = (self.design.copying, plain, count) {
            parts.moving = Cost::part(Part::Block(Length::Fixed(1), bytes));
        }
        parts
    }

    fn named(&mut self, number: usize, place: &Place<'_>) -> Parts {
        let Some(named) = self.of.types.get(number) else { return unknown(place) };
        if self.within.contains(&number) {
            return unknown(place);
        }
        self.within.push(number);
        let fields = |fields: &'_ [DescribedField]| fields.len();
        let parts = match &named.body {
            DescribedBody::PlainEnum { repr, .. } => {
                self.item(self.of.plain_bytes(repr).unwrap_or(0))
            }
            DescribedBody::Plain { size, fields, .. } => {
                let fields = fields.iter().map(|field| (&*field.name, &field.ty));
                self.record(fields, place, Some(*size))
            }
            DescribedBody::Struct(all) if fields(all) == 0 => Parts::default(),
            DescribedBody::Struct(all) => {
                self.record(all.iter().map(|field| (&*field.name, &field.ty)), place, None)
            }
            DescribedBody::Enum(variants) => {
                let mut parts = self.item(4);
                let mut dearest = Parts::default();
                for variant in variants.iter().filter(|variant| !variant.fields.is_empty()) {
                    if self.left == 0 {
                        dearest = dearest.dearer(unknown(place));
                        break;
                    }
                    let place = place.part(&variant.name);
                    let fields = variant.fields.iter().map(|field| (&*field.name, &field.ty));
                    dearest = dearest.dearer(self.record(fields, &place, None));
                }
                parts.add(dearest);
                parts
            }
        };
        self.within.pop();
        parts
    }
}

fn unknown(place: &Place<'_>) -> Parts {
    let moving = Cost::part(Part::Unknown(place.to_string()));
    Parts { moving, interpreting: Cost::default() }
}

fn has_block(cost: &Cost) -> bool {
    cost.parts.iter().any(|part| match part {
        Part::Block(..) => true,
        Part::Times(_, one) => has_block(one),
        Part::Unknown(_) => false,
    })
}

#[cfg(test)]
mod tests;
