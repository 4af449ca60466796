//! Writes equations, and the names of their variables, as text.

use core::fmt::{self, Display, Write as _};

use super::derive::Place;
use super::equation::{Cost, Length, Part, Symbol};

/// The largest number of letters in the name of a variable. A peer may choose names of any length.
const NAME_MAX: usize = 60;

impl Display for Place<'_> {
    /// Writes the place as `parameter.field`, with `[]` for an element.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        let mut next = Some(self);
        while let Some(place) = next {
            parts.push(place.name);
            next = place.whole;
        }
        let mut left = NAME_MAX;
        let mut letters = |f: &mut fmt::Formatter<'_>, text: &str| {
            for letter in text.chars() {
                if left == 0 {
                    return Ok(());
                }
                left -= 1;
                f.write_char(if left == 0 { '…' } else { letter })?;
            }
            Ok(())
        };
        for (i, part) in parts.iter().rev().enumerate() {
            match part {
                Some(name) => {
                    if i > 0 {
                        letters(f, ".")?;
                    }
                    letters(f, name)?;
                }
                None => letters(f, "[]")?,
            }
        }
        Ok(())
    }
}

impl Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(count) => Display::fmt(count, f),
            Self::Variable(name) => f.write_str(name),
        }
    }
}

impl Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block(Length::Fixed(count), bytes) => {
                write!(f, "b({})", count.saturating_mul(*bytes))
            }
            Self::Block(length, 1) => write!(f, "b({length})"),
            Self::Block(length, bytes) => write!(f, "b({bytes} × {length})"),
            Self::Times(length, one) => write!(f, "{length} × ({one})"),
            Self::Unknown(name) => write!(f, "cost({name})"),
        }
    }
}

/// The number of symbols that an equation begins with. Loops and blocks follow, then the other symbols. Table
/// 5 of the paper that `derive.rs` cites has the same order.
const BEFORE_PARTS: usize = Symbol::Step as usize;

impl Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_nothing() {
            return f.write_str("0");
        }
        let mut between = "";
        let mut plus = || core::mem::replace(&mut between, " + ");
        let symbols = Symbol::ALL.into_iter().zip(self.counts).enumerate();
        let (before, after): (Vec<_>, Vec<_>) =
            symbols.filter(|(_, (_, count))| *count > 0).partition(|(i, _)| *i < BEFORE_PARTS);
        for (_, (symbol, count)) in before {
            write!(f, "{}{}{}", plus(), times(symbol, count), symbol.name())?;
        }
        for part in &self.parts {
            write!(f, "{}{part}", plus())?;
        }
        for (_, (symbol, count)) in after {
            write!(f, "{}{}{}", plus(), times(symbol, count), symbol.name())?;
        }
        Ok(())
    }
}

/// Returns the text of a count that precedes a symbol.
fn times(symbol: Symbol, count: u64) -> String {
    match (symbol, count) {
        (Symbol::ByteCopy, 4) => String::new(),
        (Symbol::ByteCopy, bytes) if bytes.is_multiple_of(4) => format!("{} ", bytes / 4),
        (Symbol::ByteCopy, bytes) if bytes.is_multiple_of(2) => format!("{}/2 ", bytes / 2),
        (Symbol::ByteCopy, bytes) => format!("{bytes}/4 "),
        (_, 1) => String::new(),
        (_, count) => format!("{count} "),
    }
}
