//! Removes the steps of a conversion program that do nothing.
//!
//! The server itself describes its types. It may nest structs without bytes in each other and in arrays, so
//! that a value of no bytes takes any number of steps. It may also nest structs of one field deeply. After
//! such steps are removed, the number of steps is at most a small multiple of the number of bytes that are
//! read and written.

use super::program::{Op, OpId, Part, Program, Received};

impl Part {
    const fn op(self) -> OpId {
        match self {
            Self::Convert(op) | Self::Skip(op) | Self::Fill(_, op) => op,
        }
    }
}

impl Program {
    /// Replaces each op of a value without bytes by `Op::Nothing`, and each op of a struct with one part by
    /// the op of that part.
    pub(super) fn reduce(&mut self) {
        let nothing = self.nothing();
        for place in 0..self.ops.len() {
            match self.ops[place] {
                _ if nothing[place] => self.ops[place] = Op::Nothing,
                Op::Record { first, count } => {
                    let count = retain(&mut self.parts, first, count, &nothing);
                    self.ops[place] = Op::Record { first, count };
                }
                _ => {}
            }
        }
        for variant in &mut self.variants {
            if let Received::Variant { first, count, .. } = variant {
                *count = retain(&mut self.parts, *first, *count, &nothing);
            }
        }
        self.unwrap_records();
    }

    /// Returns, for each op, whether it takes no bytes on either side: it has no parts, or none of its parts
    /// takes bytes. The result is false for a type whose values always contain a value of the same type.
    fn nothing(&self) -> Vec<bool> {
        let mut nothing = vec![false; self.ops.len()];
        let mut wholes: Vec<Vec<OpId>> = vec![Vec::new(); self.ops.len()];
        let mut left = vec![0usize; self.ops.len()];
        let mut found = Vec::new();
        for (place, op) in self.ops.iter().enumerate() {
            let mut inside = |part: OpId| {
                if let Some(wholes) = wholes.get_mut(part as usize) {
                    wholes.push(place as OpId);
                    left[place] += 1;
                }
            };
            match op {
                Op::Nothing => {}
                Op::Array(one, _) => inside(*one),
                Op::Record { first, count } => {
                    self.parts(*first, *count).iter().for_each(|part| inside(part.op()));
                }
                _ => continue,
            }
            if left[place] == 0 {
                found.push(place);
            }
        }
        while let Some(one) = found.pop() {
            nothing[one] = true;
            for whole in core::mem::take(&mut wholes[one]) {
                let whole = whole as usize;
                left[whole] -= 1;
                if left[whole] == 0 {
                    found.push(whole);
                }
            }
        }
        nothing
    }

    /// Replaces each record of one converted part by the op of that part, through any number of nested
    /// records.
    fn unwrap_records(&mut self) {
        let mut is_done = vec![false; self.ops.len()];
        let mut way = Vec::new();
        for start in 0..self.ops.len() {
            let mut place = start;
            while !core::mem::replace(&mut is_done[place], true)
                && let Op::Record { first, count: 1 } = self.ops[place]
                && let [Part::Convert(next)] = self.parts(first, 1)
            {
                way.push(place);
                place = *next as usize;
            }
            // If the chain of records leads back to its start, the type contains itself. The ops of the chain
            // then stay records.
            let end = self.ops[place];
            way.drain(..).for_each(|one| self.ops[one] = end);
        }
    }
}

/// Keeps the parts of a range that take bytes, and returns their number.
fn retain(parts: &mut [Part], first: u32, count: u32, nothing: &[bool]) -> u32 {
    let first = first as usize;
    let Some(parts) = parts.get_mut(first..first + count as usize) else { return count };
    let mut kept = 0;
    for place in 0..parts.len() {
        if !nothing.get(parts[place].op() as usize).copied().unwrap_or(false) {
            parts[kept] = parts[place];
            kept += 1;
        }
    }
    kept as u32
}
