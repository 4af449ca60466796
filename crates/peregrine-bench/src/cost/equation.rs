//! Defines the ten designs of stubs, and the equations of their costs. In this file, *the paper* is that of
//! Chung, Lazowska, Notkin and Zahorjan, which `derive.rs` cites.

/// How stubs are implemented: by code that is generated for each procedure, or by one stub that interprets
/// any description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// One stub interprets the description of each procedure.
    Interpreted,
    /// Each procedure has a stub.
    Compiled,
}

/// How a stub moves data between the user's memory and the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copying {
    /// Byte by byte, in the stub itself. A stub that swaps the byte order would have to move data in this
    /// way.
    InlineByte,
    /// Item by item, in the stub itself.
    InlineItem,
    /// Byte by byte, by a procedure call for each item.
    ProceduralByte,
    /// By a procedure call for each item. The procedure moves the item as a whole.
    ProceduralItem,
    /// Adjacent data is moved as one block.
    Block,
}

/// One of the ten designs of the paper's Table 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Design {
    /// Whether the stub is interpreted or compiled.
    pub(crate) control: Control,
    /// How data is moved.
    pub(crate) copying: Copying,
}

impl Design {
    /// All ten designs, in the order of the paper's Table 2.
    pub(crate) const ALL: [Self; 10] = {
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
    /// All five ways to copy, in the order of the paper's Table 2.
    pub(crate) const ALL: [Self; 5] = [
        Self::InlineByte,
        Self::InlineItem,
        Self::ProceduralByte,
        Self::ProceduralItem,
        Self::Block,
    ];

    pub(super) const fn is_procedural(self) -> bool {
        matches!(self, Self::ProceduralByte | Self::ProceduralItem)
    }
}

/// The terms of equations. On a machine, each term takes a fixed time (the paper's Table 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Symbol {
    /// `L_b`: moves four bytes one by one. An item of another size counts as a quarter of `L_b` per byte.
    ByteCopy,
    /// `L_i`: moves an item of any size as a whole.
    ItemCopy,
    /// `p`: calls a marshalling procedure.
    Call,
    /// `f`: takes one step of a loop.
    Step,
    /// `α`: begins a message that has blocks.
    BlockStart,
    /// `B`: sets up the interpreter. The interpreter is called for each message, and calls itself for each
    /// record.
    Setup,
    /// `A`: sets up an array in the interpreter.
    ArraySetup,
    /// `e`: examines the code of an elementary type, which is a part of the description, in the interpreter.
    Code,
}

impl Symbol {
    /// All symbols, in their order in equations.
    pub(crate) const ALL: [Self; 8] = [
        Self::ByteCopy,
        Self::ItemCopy,
        Self::Call,
        Self::Step,
        Self::BlockStart,
        Self::Setup,
        Self::ArraySetup,
        Self::Code,
    ];

    /// Returns the name of the symbol in equations.
    pub(crate) const fn name(self) -> &'static str {
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

    /// Returns the meaning of the symbol.
    pub(crate) const fn meaning(self) -> &'static str {
        match self {
            Self::ByteCopy => "move four bytes one by one",
            Self::ItemCopy => "move an item as one",
            Self::Call => "call a marshalling procedure",
            Self::Step => "take a step of a loop",
            Self::BlockStart => "begin a message that has blocks",
            Self::Setup => "set up the interpreter",
            Self::ArraySetup => "set up an array in the interpreter",
            Self::Code => "examine the code of an elementary type",
        }
    }
}

/// A number of elements or bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// A length that the type fixes, or the upper bound `max_len`.
    Fixed(u64),
    /// A length that differs from call to call. Its name consists of the names of the parameter and of the
    /// fields that lead to the value.
    Variable(String),
}

/// A part of an equation other than a symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// `b(n)`: moves a number of elements, each of the given size in bytes, as one block.
    Block(Length, u64),
    /// A loop: the number of its passes, and the cost of each.
    Times(Length, Cost),
    /// The cost of a type that contains itself, or that is too large for a complete description. The name is
    /// the place of the value in the call.
    Unknown(String),
}

/// An equation: the cost of marshalling (or of unmarshalling) the values of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// The count of each symbol. The count of `L_b` is in bytes.
    pub(super) counts: [u64; Symbol::ALL.len()],
    pub(super) parts: Vec<Part>,
}

/// The costs of one procedure in one design.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProcedureCost {
    /// The cost of the call message: `in`, `lent` and in-out values, and the capacities of `out` buffers.
    pub(crate) call: Cost,
    /// The cost of the result message: the value of `Ok`, and `out` and in-out values.
    pub(crate) result: Cost,
}

/// The time of each term of the equations on one machine. All times have the same unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Parameters<'a> {
    /// The time of each symbol, in the order of [`Symbol::ALL`].
    pub(crate) symbols: [f64; Symbol::ALL.len()],
    /// The sizes of blocks in bytes and their times, in ascending order. The times of other sizes are
    /// interpolated linearly, and extrapolated beyond either end.
    pub(crate) blocks: &'a [(u64, f64)],
}

impl Parameters<'static> {
    /// The paper's Table 6: a MicroVAX-II with Ultrix 2.0, in microseconds.
    pub(crate) const MICROVAX: Self = Self {
        symbols: [15.0, 10.0, 25.0, 3.0, 40.0, 45.0, 128.0, 23.0],
        blocks: &[(0, 0.0), (1024, 382.0)],
    };
}

impl Parameters<'_> {
    /// Returns the time of a symbol.
    pub(crate) const fn of(&self, symbol: Symbol) -> f64 {
        self.symbols[symbol as usize]
    }

    /// Returns the time of a block of `bytes` bytes, or 0 if no block was measured.
    pub(crate) fn block(&self, bytes: f64) -> f64 {
        let Some(last) = self.blocks.len().checked_sub(1) else { return 0.0 };
        let after = self.blocks.partition_point(|(known, _)| (*known as f64) < bytes);
        let after = after.max(1).min(last);
        let ((x0, y0), (x1, y1)) = (self.blocks[after.saturating_sub(1)], self.blocks[after]);
        if x0 == x1 {
            return y1;
        }
        let part = (bytes - x0 as f64) / (x1 as f64 - x0 as f64);
        (y1 - y0).mul_add(part, y0)
    }
}

impl Cost {
    /// Returns the count of each symbol outside of loops. The count of [`Symbol::ByteCopy`] is a multiple of
    /// 1/4.
    pub(crate) fn symbols(&self) -> impl Iterator<Item = (Symbol, f64)> {
        let times = |(symbol, count): (Symbol, &u64)| {
            let unit = if symbol == Symbol::ByteCopy { 4.0 } else { 1.0 };
            (*count > 0).then_some((symbol, *count as f64 / unit))
        };
        Symbol::ALL.into_iter().zip(&self.counts).filter_map(times)
    }

    /// Returns the blocks, loops and unknown parts.
    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Returns whether this cost is zero.
    pub(crate) fn is_nothing(&self) -> bool {
        self.parts.is_empty() && self.counts.iter().all(|count| *count == 0)
    }

    /// Returns the time that this cost takes, in the unit of the parameters. `value` returns the value of
    /// each variable, and the time of each [`Part::Unknown`].
    pub(crate) fn evaluate(&self, parameters: &Parameters<'_>, value: &dyn Fn(&str) -> f64) -> f64 {
        let length = |length: &Length| length.evaluate(value);
        let symbols = self.symbols().map(|(symbol, count)| count * parameters.of(symbol));
        let parts = self.parts.iter().map(|part| match part {
            Part::Block(count, bytes) => parameters.block(length(count) * *bytes as f64),
            Part::Times(count, one) => length(count) * one.evaluate(parameters, value),
            Part::Unknown(name) => value(name),
        });
        symbols.chain(parts).sum()
    }

    pub(super) fn symbol(symbol: Symbol) -> Self {
        Self::symbol_times(symbol, 1)
    }

    pub(super) fn symbol_times(symbol: Symbol, count: u64) -> Self {
        let mut cost = Self::default();
        cost.counts[symbol as usize] = count;
        cost
    }

    pub(super) fn part(part: Part) -> Self {
        Self { parts: vec![part], ..Self::default() }
    }

    pub(super) fn add(&mut self, other: Self) {
        for (count, other) in self.counts.iter_mut().zip(other.counts) {
            *count = count.saturating_add(other);
        }
        self.parts.extend(other.parts);
    }

    /// Returns the cost of a loop whose body has this cost. If the body costs nothing, the loop costs
    /// nothing.
    pub(super) fn times(self, length: Length) -> Self {
        if self.is_nothing() { self } else { Self::part(Part::Times(length, self)) }
    }

    /// Returns the time that this cost would take if all symbols took the same time. The time is used to
    /// choose the higher of two costs.
    pub(super) fn weight(&self) -> f64 {
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
