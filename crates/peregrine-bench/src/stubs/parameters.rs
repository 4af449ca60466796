//! Measures the parameters of the paper's model. Each parameter is measured by a separate micro-program.
//!
//! No parameter is fitted to the times of stubs. Each parameter is the time of the operation that the paper's
//! Table 6 defines, measured alone. The cost of calling a stub is the time of an empty stub. This cost is
//! subtracted from each parameter, and added to the equations.

use std::time::Duration;

use super::copying::{InlineByte, InlineItem, Mover, Procedural};
use super::packet::{Marshal, Packet, Unmarshal, Way, keep_separate};
use super::repeated::Repeated;
use super::user::{BLOCKS, Data, User};
use super::{Stub, Used, interpreted};
use crate::cost::{Parameters, Symbol};
use crate::local::in_turn;
use crate::statistics::median;
use crate::subject::{Failure, Sample};

/// Does nothing. The time of this empty stub is the cost of calling a stub.
pub(crate) fn nothing(_: &mut User, _: &mut [u8]) -> Used {
    keep_separate();
    Some(0)
}

/// The number of items that [`straight`] moves.
pub(crate) const STRAIGHT: usize = 32;
/// The number of elements over which [`steps`] loops.
pub(crate) const STEPS: usize = super::user::INTEGERS;

/// Moves one item after the other, without a loop.
#[inline(always)]
fn straight(mover: &impl Mover, user: &mut User, packet: &mut [u8]) -> Used {
    let (bytes, mut packet) = (packet.len(), Packet::new(packet));
    // Skips a number of bytes that the compiler does not know. So the compiler does not know the positions of
    // the items. This is also the case in a stub that has moved other values before.
    packet.next(user.lengths[0])?;
    let array = &mut user.array.value;
    macro_rules! items {
        ($($place:literal)*) => {$(mover.item(&mut packet, &mut array[$place])?;)*};
    }
    items!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
    Some(bytes - packet.left())
}

/// Moves items byte by byte.
pub(crate) fn straight_bytes<W: Way>(user: &mut User, packet: &mut [u8]) -> Used {
    straight(&InlineByte::<W>::new(), user, packet)
}

/// Moves each item as a whole.
pub(crate) fn straight_items<W: Way>(user: &mut User, packet: &mut [u8]) -> Used {
    straight(&InlineItem::<W>::new(), user, packet)
}

/// Calls, for each item, a procedure that does nothing.
pub(crate) fn straight_calls(user: &mut User, packet: &mut [u8]) -> Used {
    straight(&Procedural::<Marshal>::nothing(), user, packet)
}

/// Loops over the array, and moves nothing. The loop reads each element, because the compiler would remove a
/// loop that reads nothing.
pub(crate) fn steps(user: &mut User, _: &mut [u8]) -> Used {
    for one in user.integers()? {
        keep_separate();
        if *one == 0 {
            return None;
        }
    }
    Some(0)
}

/// Moves only a block. In the message, the block follows the place of a count. The count itself is not moved.
pub(crate) fn block<W: Way, const I: usize>(user: &mut User, packet: &mut [u8]) -> Used {
    let bytes = user.lengths[I];
    let user = user.flat.get_mut(..bytes)?;
    W::block(packet.get_mut(4..)?.get_mut(..bytes)?, user);
    Some(bytes)
}

/// Moves a block as [`block`] does. Also checks that the message has enough bytes left, and advances in it,
/// as a stub does.
pub(crate) fn block_in_stub<W: Way, const I: usize>(user: &mut User, packet: &mut [u8]) -> Used {
    let (bytes, mut packet) = (packet.len(), Packet::new(packet));
    packet.next(4)?;
    let user_bytes = user.lengths[I];
    let user = user.flat.get_mut(..user_bytes)?;
    W::block(packet.next(user_bytes)?, user);
    Some(bytes - packet.left())
}

/// A micro-program: its name, and its stub.
type Named = (&'static str, Stub);

/// The number of micro-programs that precede the micro-programs for blocks.
const SINGLE: usize = 8;

/// Returns the micro-programs of a direction.
fn micro_programs<W: Way>() -> Vec<Named> {
    let single: [Named; SINGLE] = [
        ("nothing", nothing),
        ("L_b", straight_bytes::<W>),
        ("L_i", straight_items::<W>),
        ("p", straight_calls),
        ("f", steps),
        ("B", interpreted::nothing),
        ("A", interpreted::arrays_for_nothing),
        ("e", interpreted::integers_for_nothing),
    ];
    let blocks: [Stub; BLOCKS.len() + 1] = [
        block::<W, 0>,
        block::<W, 1>,
        block::<W, 2>,
        block::<W, 3>,
        block::<W, 4>,
        block::<W, 5>,
        block::<W, 6>,
        block::<W, 7>,
        block::<W, 8>,
        block_in_stub::<W, IN_STUB>,
    ];
    single.into_iter().chain(blocks.map(|block| ("b", block))).collect()
}

/// The index in [`BLOCKS`] of the block that is also measured in a stub. This block has 1024 bytes.
const IN_STUB: usize = 6;

/// Returns all programs that measure the parameters of one direction.
pub(crate) fn all(marshals: bool) -> Vec<Repeated> {
    let programs =
        if marshals { micro_programs::<Marshal>() } else { micro_programs::<Unmarshal>() };
    programs.into_iter().map(|(_, stub)| Repeated::of(stub, Data::Structure)).collect()
}

/// Measures the parameters of marshalling.
pub(crate) fn measure(rounds: usize, slice: Duration) -> Result<Measured, Failure> {
    let mut programs = all(true);
    let samples = in_turn(rounds, programs.len(), |which| programs[which].measure(slice))?;
    let ns = |samples: &Vec<Sample>| samples.iter().map(|sample| sample.ns).collect::<Vec<_>>();
    let medians: Vec<f64> = samples.iter().map(|samples| median(&ns(samples))).collect();
    Ok(Measured::from_medians(&medians))
}

/// The times of the parameters on this machine, in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// The cost of calling a stub.
    pub(crate) call: f64,
    /// The time of each symbol, in the order of [`Symbol::ALL`].
    pub(crate) symbols: [f64; Symbol::ALL.len()],
    /// The size in bytes and the time of each measured block.
    pub(crate) blocks: Vec<(u64, f64)>,
}

impl Measured {
    /// Computes the parameters from the median times of the programs that [`all`] returns.
    pub(crate) fn from_medians(ns: &[f64]) -> Self {
        let call = ns[0];
        let over = |ns: f64| (ns - call).max(0.0);
        let many = interpreted::MANY as f64;
        let setup = over(ns[5]);
        let code = (over(ns[7]) - setup).max(0.0) / many;
        let array = ((over(ns[6]) - setup) / many - code).max(0.0);
        let blocks: Vec<(u64, f64)> =
            BLOCKS.into_iter().zip(ns[SINGLE..].iter().map(|ns| over(*ns))).collect();
        let in_stub = over(ns[SINGLE + BLOCKS.len()]);
        let symbols = [
            over(ns[1]) / STRAIGHT as f64,
            over(ns[2]) / STRAIGHT as f64,
            over(ns[3]) / STRAIGHT as f64,
            over(ns[4]) / STEPS as f64,
            (in_stub - blocks[IN_STUB].1).max(0.0),
            setup,
            array,
            code,
        ];
        Self { call, symbols, blocks }
    }

    pub(crate) fn parameters(&self) -> Parameters<'_> {
        Parameters { symbols: self.symbols, blocks: &self.blocks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_parameters_are_times() {
        let measured = measure(3, Duration::from_micros(200)).unwrap();
        let Parameters { symbols, blocks } = measured.parameters();
        assert!(symbols.iter().all(|ns| (0.0..1e6).contains(ns)), "{symbols:?}");
        assert!(blocks.is_sorted_by_key(|(bytes, _)| *bytes));
        assert!(blocks.iter().all(|(_, ns)| (0.0..1e9).contains(ns)), "{blocks:?}");
    }
}
