//! Compares the outcomes of calls with what the server ran. No call may run twice. No executed call may be
//! reported as not executed. Only executed calls may return. Messages must arrive intact.

// Each test program uses only some of these items.
#![allow(dead_code)]

use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use peregrine::{CallError, Executed, Kind, Out, interface};

#[interface]
pub(crate) trait Tally {
    /// Counts the call, and fills `into` with `back` bytes that depend on `id`. Returns a number that depends
    /// on `id` and `load`.
    fn enter(&self, id: u32, load: &[u8], back: u32, into: Out<'_, u8>) -> peregrine::Result<u64>;
    /// Returns the number of all calls. Fills `into` with the number of times that each call ran.
    fn counts(&self, #[max_len(1 << 20)] into: Out<'_, u8>) -> peregrine::Result<u64>;
    fn read(&self, bytes: u32, #[max_len(64 << 20)] into: Out<'_, u8>) -> peregrine::Result<()>;
}

/// How often each call ran. The call with the number `id` has the index `id`.
pub(crate) struct Counts {
    each: Vec<AtomicU8>,
    all: AtomicU64,
}

impl Counts {
    pub(crate) fn of(calls: u32) -> Self {
        let each = (0..calls).map(|_| AtomicU8::new(0)).collect();
        Self { each, all: AtomicU64::new(0) }
    }
}

/// Returns the byte with the index `at` of a call's payload or result.
pub(crate) fn byte(id: u32, at: usize) -> u8 {
    (id as usize ^ (at * 31 / 7)) as u8
}

fn answer(id: u32, load: &[u8]) -> u64 {
    let sum = load.iter().zip(1u64..).map(|(byte, at)| at * u64::from(*byte)).sum::<u64>();
    u64::from(id) << 32 ^ sum
}

impl Tally for Counts {
    fn enter(
        &self,
        id: u32,
        load: &[u8],
        back: u32,
        mut into: Out<'_, u8>,
    ) -> peregrine::Result<u64> {
        self.each[id as usize].fetch_add(1, Ordering::SeqCst);
        self.all.fetch_add(1, Ordering::SeqCst);
        if id.is_multiple_of(64) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let bytes: Vec<u8> = (0..back as usize).map(|at| byte(id, at)).collect();
        into.put(&bytes).expect("enough space");
        Ok(answer(id, load))
    }
    fn counts(&self, mut into: Out<'_, u8>) -> peregrine::Result<u64> {
        let each: Vec<u8> = self.each.iter().map(|count| count.load(Ordering::SeqCst)).collect();
        into.put(&each).expect("enough space");
        Ok(self.all.load(Ordering::SeqCst))
    }
    fn read(&self, bytes: u32, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        let bytes: Vec<u8> = (0..bytes as usize).map(|at| byte(7, at)).collect();
        into.put(&bytes).expect("enough space");
        Ok(())
    }
}

const RETURNED: u8 = b'r';
const NOT_EXECUTED: u8 = b'n';
const MAYBE: u8 = b'm';

/// The number of calls in total, the number of clients that share them, and the number of threads of each
/// client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) calls: u32,
    pub(crate) clients: u32,
    pub(crate) threads: u32,
}

impl Load {
    /// Makes one client's share of the calls, and writes their outcomes to a file in `directory`.
    pub(crate) fn run(self, tally: &TallyClient, number: u32, directory: &Path) {
        let share = self.calls / self.clients;
        let each = share.div_ceil(self.threads);
        let thread = |thread: u32| {
            let tally = tally.with_timeout(Duration::from_secs(60));
            let (first, last) = (thread * each, ((thread + 1) * each).min(share));
            (first..last).map(move |at| call(&tally, number * share + at)).collect::<Vec<u8>>()
        };
        let outcomes: Vec<u8> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..self.threads).map(|one| scope.spawn(move || thread(one))).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        });
        std::fs::write(directory.join(format!("outcomes{number}")), outcomes).unwrap();
    }

    /// Asks the server over the local path which calls ran, and checks all outcomes against the answer.
    /// Returns three counts: the calls that returned, the calls that were not executed, and the calls that
    /// may have been executed.
    pub(crate) fn check(self, directory: &Path) -> [u32; 3] {
        let outcomes: Vec<u8> = (0..self.clients)
            .flat_map(|client| std::fs::read(directory.join(format!("outcomes{client}"))).unwrap())
            .collect();
        assert_eq!(outcomes.len(), self.calls as usize, "every call has an outcome");
        // A call that was given up may still run until the server releases it. So the test asks for the
        // counts after a pause.
        std::thread::sleep(Duration::from_millis(200));
        let mut counts = vec![0; self.calls as usize];
        let mut into = Out::from(&mut counts[..]);
        TallyClient::bind("tally").unwrap().counts(into.by_ref()).unwrap();
        assert_eq!(into.filled(), self.calls as usize);
        let mut of = [0u32; 3];
        for (id, (outcome, count)) in outcomes.iter().zip(&counts).enumerate() {
            match *outcome {
                RETURNED => assert_eq!(*count, 1, "{id} returned"),
                NOT_EXECUTED => assert_eq!(*count, 0, "{id} was reported as not executed"),
                _ => assert!(*count <= 1, "{id} ran {count} times"),
            }
            of[[RETURNED, NOT_EXECUTED, MAYBE].iter().position(|one| one == outcome).unwrap()] += 1;
        }
        of
    }
}

fn call(tally: &TallyClient, id: u32) -> u8 {
    // Some messages take several packets, in one or in both directions. Some calls have short timeouts.
    let load = if id.is_multiple_of(8) { id % 4099 } else { id % 64 };
    let back = if (id / 8).is_multiple_of(8) { id % 6007 } else { id % 64 };
    let load: Vec<u8> = (0..load as usize).map(|at| byte(!id, at)).collect();
    let mut bytes = [0; 6007];
    let mut into = Out::from(&mut bytes[..]);
    let called = if id.is_multiple_of(16) {
        let impatient = tally.with_timeout(Duration::from_micros(u64::from(id % 7000)));
        impatient.enter(id, &load, back, into.by_ref())
    } else {
        tally.enter(id, &load, back, into.by_ref())
    };
    match called {
        Ok(number) => {
            assert_eq!(number, answer(id, &load), "the result of another call");
            assert_eq!(into.filled(), back as usize);
            assert!(bytes[..back as usize].iter().zip(0..).all(|(one, at)| *one == byte(id, at)));
            RETURNED
        }
        Err(error) => failed(&error),
    }
}

fn failed(error: &CallError) -> u8 {
    let known = [Kind::TimedOut, Kind::Overloaded, Kind::ServerGone, Kind::Exhausted];
    assert!(known.contains(&error.kind()), "{error}");
    match error.executed() {
        Executed::No => NOT_EXECUTED,
        Executed::Maybe => MAYBE,
    }
}
