//! What is measured, and how: something is done again and again, in pieces of time in which nobody disturbed.

use core::fmt::{self, Debug};
use std::hint::black_box;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::cost::{Control, Copying, Design};

use super::packet::{Marshal, Unmarshal, apart};
use super::user::{Data, PACKET, Placed, Room, User};
use super::{Stub, Used, compiled, interpreted};
use crate::statistics::{median, percentile};
use crate::subject::{Failure, Sample};

/// Something that is done again and again.
pub(crate) struct Program {
    run: Box<dyn FnMut(u32) -> bool>,
    last_ns: Option<f64>,
}

impl Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").field("last_ns", &self.last_ns).finish_non_exhaustive()
    }
}

/// Times of the first guess at how long one takes.
const GUESS: u32 = 2000;

impl Program {
    /// `run` does it so many times, and says whether all of them went well.
    pub(crate) fn new(run: impl FnMut(u32) -> bool + 'static) -> Self {
        Self { run: Box::new(run), last_ns: None }
    }

    /// Calls of a stub, with values and a message of its own: a full one of what `data` is.
    pub(crate) fn of(stub: Stub, data: Data) -> Self {
        let mut user = User::full();
        let mut packet = Placed::boxed([0; PACKET]);
        let full = compiled::stub::<Marshal>(Copying::Block, data);
        full(&mut user, &mut packet[..]);
        Self::calling(user, packet, stub)
    }

    /// Calls of anything that is like a stub, with values of its own kind.
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

    /// Measures for about `slice`.
    ///
    /// The processor's clock is not the same all the time, and now and then somebody else uses parts of the
    /// same core (the other thread of it, perhaps of another virtual machine). So the slice is cut into pieces,
    /// each between two looks at the [pace](Pace). The sample is the middle one of those pieces that were not
    /// disturbed, in links of the chain, times what a link takes usually.
    pub(crate) fn measure(&mut self, slice: Duration) -> Result<Sample, Failure> {
        let last_ns = match self.last_ns {
            Some(ns) => ns,
            None => self.timed(GUESS)?,
        };
        let piece_ns = slice.as_nanos() as f64 / PIECES as f64;
        let calls = (piece_ns / last_ns.max(0.2)).clamp(4.0, 4e7) as u32;
        // It has been some time, and others have used the caches.
        self.timed(calls / 4 + 2)?;
        let (mut calm, mut all) = (Vec::with_capacity(PIECES), Vec::new());
        let mut before = Pace::now();
        while calm.len() < PIECES && all.len() < TRIES * PIECES {
            let ns = self.timed(calls)?;
            let behind = Pace::now();
            let links = ns / ((before.link_ns + behind.link_ns) / 2.0);
            if before.is_calm() && behind.is_calm() {
                calm.push(links);
            }
            all.push(links);
            before = behind;
        }
        let middle = median(if calm.is_empty() { &all } else { &calm });
        let ns = middle * USUAL.link_ns;
        self.last_ns = Some(ns);
        Ok(Sample { ns, cpu_ns: None })
    }

    /// Does it once; whether it went well.
    #[cfg(test)]
    pub(crate) fn once(&mut self) -> bool {
        (self.run)(1)
    }

    fn timed(&mut self, calls: u32) -> Result<f64, Failure> {
        let start = Instant::now();
        let fine = (self.run)(calls);
        let took = start.elapsed();
        if !fine {
            return Err("a stub refused what it was to move".into());
        }
        Ok(took.as_nanos() as f64 / f64::from(calls))
    }
}

/// Pieces of a slice.
const PIECES: usize = 9;
/// How many times as many are tried, to have so many that were not disturbed.
const TRIES: usize = 6;

/// How fast the processor is just now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// What a link of a chain of multiplications takes: each waits for the one before, whatever else the
    /// processor could do meanwhile. So it tells the clock.
    link_ns: f64,
    /// What a row of independent steps takes, in links: more, if somebody else uses the same units.
    row_links: f64,
}

impl Pace {
    /// Looks for some microseconds.
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
            apart();
        }
        black_box(values);
        let row_ns = start.elapsed().as_nanos() as f64 / f64::from(ROUNDS);
        Self { link_ns, row_links: row_ns / link_ns }
    }

    fn is_calm(self) -> bool {
        self.row_links < 1.06 * USUAL.row_links
    }
}

/// The pace when nobody disturbs.
static USUAL: LazyLock<Pace> = LazyLock::new(|| {
    let paces: Vec<Pace> = (0..20_000).map(|_| Pace::now()).collect();
    let of = |part: fn(&Pace) -> f64| paces.iter().map(part).collect::<Vec<_>>();
    Pace {
        link_ns: median(&of(|pace| pace.link_ns)),
        row_links: percentile(&of(|pace| pace.row_links), 0.1),
    }
});

/// The stub of a design for one of the data types, to the message or from it.
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

    /// The message of a type, written out plainly.
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
    fn all_designs_make_the_same_messages_and_take_them_apart() {
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
    fn what_is_too_short_or_counts_otherwise_is_refused() {
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
