//! Defines the operations that are measured, and the method of measurement. Each operation is repeated.
//! Intervals in which something disturbed the operation do not count.

use core::fmt::{self, Debug};
use std::hint::black_box;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::cost::{Control, Copying, Design};

use super::packet::{Marshal, Unmarshal, keep_separate};
use super::user::{Data, PACKET, Placed, Room, User};
use super::{Stub, Used, compiled, interpreted};
use crate::statistics::{median, percentile};
use crate::subject::{Failure, Sample};

/// An operation that is repeated.
pub(crate) struct Repeated {
    run: Box<dyn FnMut(u32) -> bool>,
    last_ns: Option<f64>,
}

impl Debug for Repeated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Repeated").field("last_ns", &self.last_ns).finish_non_exhaustive()
    }
}

/// The number of repetitions in the first measurement, which only estimates the time of one repetition.
const GUESS: u32 = 2000;

impl Repeated {
    /// Creates an operation. `run` takes the number of repetitions, and returns whether all of them
    /// succeeded.
    pub(crate) fn new(run: impl FnMut(u32) -> bool + 'static) -> Self {
        Self { run: Box::new(run), last_ns: None }
    }

    /// Creates an operation that calls a stub. The operation owns the values, and a complete message of type
    /// `data`.
    pub(crate) fn of(stub: Stub, data: Data) -> Self {
        let mut user = User::full();
        let mut packet = Placed::boxed([0; PACKET]);
        let full = compiled::stub::<Marshal>(Copying::Block, data);
        full(&mut user, &mut packet[..]);
        Self::calling(user, packet, stub)
    }

    /// Creates an operation that calls a function in the same way as a stub, but with values of the type `V`.
    pub(crate) fn calling<V: 'static>(
        mut values: V,
        mut packet: Room,
        stub: fn(&mut V, &mut [u8]) -> Used,
    ) -> Self {
        let stub = black_box(stub);
        Self::new(move |calls| {
            let mut fine = true;
            for _ in 0..calls {
                fine &= stub(&mut values, &mut packet[..]).is_some();
            }
            fine
        })
    }

    /// Measures the operation for about the time `slice`.
    ///
    /// The processor's frequency varies, and sometimes another program uses the same core (perhaps its other
    /// hardware thread, or another virtual machine). So the time `slice` is divided into pieces, and the
    /// [pace](Pace) of the processor is measured before and after each piece. The pace contains the time of
    /// one multiplication. The time of a piece is divided by this time. The sample is the median of these
    /// quotients over the undisturbed pieces, multiplied by the usual time of one multiplication.
    pub(crate) fn measure(&mut self, slice: Duration) -> Result<Sample, Failure> {
        let last_ns = match self.last_ns {
            Some(ns) => ns,
            None => self.timed(GUESS)?,
        };
        let piece_ns = slice.as_nanos() as f64 / PIECES as f64;
        let calls = (piece_ns / last_ns.max(0.2)).clamp(4.0, 4e7) as u32;
        // Warms the caches, which other programs have used since the last measurement.
        self.timed(calls / 4 + 2)?;
        let (mut calm, mut all) = (Vec::with_capacity(PIECES), Vec::new());
        let mut before = Pace::now();
        while calm.len() < PIECES && all.len() < TRIES * PIECES {
            let ns = self.timed(calls)?;
            let after = Pace::now();
            let links = ns / ((before.link_ns + after.link_ns) / 2.0);
            if before.is_calm() && after.is_calm() {
                calm.push(links);
            }
            all.push(links);
            before = after;
        }
        let middle = median(if calm.is_empty() { &all } else { &calm });
        let ns = middle * USUAL.link_ns;
        self.last_ns = Some(ns);
        Ok(Sample { ns, cpu_ns: None })
    }

    /// Runs the operation once. Returns whether it succeeded.
    #[cfg(test)]
    pub(crate) fn once(&mut self) -> bool {
        (self.run)(1)
    }

    fn timed(&mut self, calls: u32) -> Result<f64, Failure> {
        let start = Instant::now();
        let fine = (self.run)(calls);
        let took = start.elapsed();
        if !fine {
            return Err("a stub failed to move its values".into());
        }
        Ok(took.as_nanos() as f64 / f64::from(calls))
    }
}

/// The number of pieces into which the time of a sample is divided.
const PIECES: usize = 9;
/// At most `TRIES * PIECES` pieces are measured, until [`PIECES`] of them are undisturbed.
const TRIES: usize = 6;

/// The current speed of the processor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The time of one multiplication (a link) in a chain of multiplications. Each multiplication waits for
    /// the previous one, so the time shows the clock frequency.
    link_ns: f64,
    /// The time of a series of independent steps, divided by `link_ns`. This number grows if another program
    /// uses the same execution units.
    row_links: f64,
}

impl Pace {
    /// Measures the pace, for some microseconds.
    fn now() -> Self {
        const ROUNDS: u32 = 1000;
        let start = Instant::now();
        let mut value = black_box(0x9e37_79b9_7f4a_7c15_u64);
        for _ in 0..ROUNDS {
            value = (value ^ 1).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        }
        black_box(value);
        let link_ns = start.elapsed().as_nanos() as f64 / f64::from(ROUNDS);
        let start = Instant::now();
        let mut values = black_box([1_u64, 2, 3, 4, 5, 6, 7, 8]);
        for round in 0..u64::from(ROUNDS) {
            for value in &mut values {
                *value = (*value ^ round).rotate_left(1);
            }
            keep_separate();
        }
        black_box(values);
        let row_ns = start.elapsed().as_nanos() as f64 / f64::from(ROUNDS);
        Self { link_ns, row_links: row_ns / link_ns }
    }

    fn is_calm(self) -> bool {
        self.row_links < 1.06 * USUAL.row_links
    }
}

/// The pace of this processor without disturbance.
static USUAL: LazyLock<Pace> = LazyLock::new(|| {
    let paces: Vec<Pace> = (0..20_000).map(|_| Pace::now()).collect();
    let of = |part: fn(&Pace) -> f64| paces.iter().map(part).collect::<Vec<_>>();
    Pace {
        link_ns: median(&of(|pace| pace.link_ns)),
        row_links: percentile(&of(|pace| pace.row_links), 0.1),
    }
});

/// Returns the stub of a design for a data type and a direction.
pub(crate) fn stub(design: Design, data: Data, marshals: bool) -> Stub {
    let (control, copying) = (design.control, design.copying);
    match (control, marshals) {
        (Control::Compiled, true) => compiled::stub::<Marshal>(copying, data),
        (Control::Compiled, false) => compiled::stub::<Unmarshal>(copying, data),
        (Control::Interpreted, true) => interpreted::stub::<Marshal>(copying, data),
        (Control::Interpreted, false) => interpreted::stub::<Unmarshal>(copying, data),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the message that a stub must write for a type. This function constructs it without a stub.
    fn expected(data: Data) -> Vec<u8> {
        let user = User::full();
        let words = |words: &[i32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let parts: Vec<Vec<u8>> = match data {
            Data::One => vec![words(&[user.one])],
            Data::Array => vec![words(&[256]), words(&user.array[..])],
            Data::Structure => vec![
                words(&[user.first, user.second, user.third, 256]),
                words(&user.array[..]),
                words(&[86]),
                words(user.records.as_flattened()),
                words(&[user.label, 1024]),
                user.text.to_vec(),
            ],
        };
        parts.concat()
    }

    #[test]
    fn all_designs_encode_and_decode_the_same_messages() {
        for data in Data::ALL {
            let expected = expected(data);
            assert_eq!(expected.len(), data.bytes());
            for design in Design::ALL {
                let mut user = User::full();
                let mut packet = vec![0xee; data.bytes() + 1];
                let used = stub(design, data, true)(&mut user, &mut packet);
                assert_eq!(used, Some(expected.len()), "{design:?} {data:?}");
                assert_eq!(packet.pop(), Some(0xee));
                assert!(packet == expected, "{design:?} {data:?}");
                assert_eq!(user, User::full());
                let mut user = User::empty();
                let used = stub(design, data, false)(&mut user, &mut packet);
                assert_eq!(used, Some(expected.len()), "{design:?} {data:?}");
                assert!(user == User::full().only(data), "{design:?} {data:?}");
            }
        }
    }

    #[test]
    fn short_message_or_wrong_count_is_refused() {
        for data in Data::ALL {
            for design in Design::ALL {
                for marshals in [true, false] {
                    let mut packet = expected(data);
                    packet.pop();
                    let stub = stub(design, data, marshals);
                    assert_eq!(stub(&mut User::full(), &mut packet), None, "{design:?} {data:?}");
                }
                if data != Data::One {
                    let mut packet = expected(data);
                    let count = if data == Data::Array { 0 } else { 12 };
                    packet[count] ^= 1;
                    let stub = stub(design, data, false);
                    assert_eq!(stub(&mut User::full(), &mut packet), None, "{design:?} {data:?}");
                }
            }
        }
    }
}
