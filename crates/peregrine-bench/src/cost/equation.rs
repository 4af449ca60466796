//! The ten designs of stubs, and the equations of what they cost.

/// Whether a stub is code that was generated for the interface, or walks any description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// One stub walks the description of each procedure.
    Interpreted,
    /// Each procedure has a stub.
    Compiled,
}

/// How a stub moves data between where the user has it and the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copying {
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
pub(crate) struct Design {
    /// Interpreted or compiled.
    pub(crate) control: Control,
    /// How data is moved.
    pub(crate) copying: Copying,
}

impl Design {
    /// All ten, in the order of the paper's Table 2.
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
    /// All five, in the order of the paper's Table 2.
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

/// The terms of equations, each with one time per machine (the paper's Table 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Symbol {
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

    /// As equations write it.
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

    /// What it stands for.
    pub(crate) const fn meaning(self) -> &'static str {
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

/// A number of elements or bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// Given by the type, or the largest one, given by `max_len`.
    Fixed(u64),
    /// Different in each call. The name is that of the parameter, and the path from there.
    Variable(String),
}

/// A part of an equation that is no symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// `b(n)`: moves a number of elements of a number of bytes as one block.
    Block(Length, u64),
    /// A loop.
    Times(Length, Cost),
    /// The cost of a type that is a part of itself, or that is too large to be described whole. The name
    /// is its place in the call.
    Unknown(String),
}

/// An equation: what it costs to marshal (or to unmarshal) the values of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// The count of each symbol; that of `L_b` is in bytes.
    pub(super) counts: [u64; Symbol::ALL.len()],
    pub(super) parts: Vec<Part>,
}

/// The costs of one procedure in one design.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProcedureCost {
    /// Those of the call: the values that are `in`, `lent` or in-out, and the capacities of `out` buffers.
    pub(crate) call: Cost,
    /// Those of the result: the value of `Ok`, and what is `out` or in-out.
    pub(crate) result: Cost,
}

/// The times of a machine, in any unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Parameters<'a> {
    /// The time of each symbol, in the order of [`Symbol::ALL`].
    pub(crate) symbols: [f64; Symbol::ALL.len()],
    /// The times of blocks by their bytes, the shortest first. Other times are interpolated linearly,
    /// and extrapolated beyond either end.
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
    /// The time of a symbol.
    pub(crate) const fn of(&self, symbol: Symbol) -> f64 {
        self.symbols[symbol as usize]
    }

    /// The time of a block; 0 if no block was measured.
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
    /// The count of each symbol outside of loops. That of [`Symbol::ByteCopy`] may have quarters.
    pub(crate) fn symbols(&self) -> impl Iterator<Item = (Symbol, f64)> {
        let times = |(symbol, count): (Symbol, &u64)| {
            let unit = if symbol == Symbol::ByteCopy { 4.0 } else { 1.0 };
            (*count > 0).then_some((symbol, *count as f64 / unit))
        };
        Symbol::ALL.into_iter().zip(&self.counts).filter_map(times)
    }

    /// The blocks, loops and unknown parts.
    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Whether it costs nothing.
    pub(crate) fn is_nothing(&self) -> bool {
        self.parts.is_empty() && self.counts.iter().all(|count| *count == 0)
    }

    /// The time, in the parameters' unit. `value` returns the value of each variable, and the time of each
    /// [`Part::Unknown`].
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

    /// A loop over it; nothing if it is nothing.
    pub(super) fn times(self, length: Length) -> Self {
        if self.is_nothing() { self } else { Self::part(Part::Times(length, self)) }
    }

    /// What it would be if all symbols took the same time: to choose the dearer of two.
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
