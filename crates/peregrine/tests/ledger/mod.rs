//! Provides a server that writes the number of every call that it runs to a file. A test can read the numbers
//! even after the server has died.

// Each test program uses only some of these items.
#![allow(dead_code)]

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use peregrine::{CallError, Executed, Kind, interface};

#[interface]
pub(crate) trait Ledger {
    /// Records the number, then sleeps for `ms` milliseconds.
    fn enter(&self, number: u64, ms: u32) -> peregrine::Result<u64>;
    /// Records nothing, and returns the number of bytes.
    fn swallow(&self, #[max_len(64 << 20)] bytes: &[u8]) -> peregrine::Result<u64>;
}

/// A file with the numbers of all calls of `enter` that have run.
pub(crate) struct Book(pub(crate) PathBuf);

impl Book {
    /// Returns the file that all child processes with this runtime directory use.
    pub(crate) fn of(directory: &Path) -> Self {
        Self(directory.join("book.bin"))
    }

    /// Returns the recorded numbers in the order of their calls.
    pub(crate) fn read(directory: &Path) -> Vec<u64> {
        let bytes = std::fs::read(Self::of(directory).0).unwrap_or_default();
        bytes.as_chunks().0.iter().map(|chunk| u64::from_le_bytes(*chunk)).collect()
    }

    /// Records a number.
    pub(crate) fn write(&self, number: u64) {
        let mut file = OpenOptions::new().append(true).create(true).open(&self.0).unwrap();
        file.write_all(&number.to_le_bytes()).unwrap();
    }
}

impl Ledger for Book {
    fn enter(&self, number: u64, ms: u32) -> peregrine::Result<u64> {
        self.write(number);
        std::thread::sleep(Duration::from_millis(ms.into()));
        Ok(number + 1)
    }
    fn swallow(&self, bytes: &[u8]) -> peregrine::Result<u64> {
        Ok(bytes.len() as u64)
    }
}

/// The outcomes of the calls of one thread.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    /// The numbers of the calls that returned.
    pub(crate) returned: Vec<u64>,
    /// The numbers of the failed calls that were reported as not executed.
    pub(crate) not_executed: Vec<u64>,
    /// How many failed calls may have been executed.
    pub(crate) maybe: u64,
    /// The duration of the longest call that [`caller`] made.
    pub(crate) longest: Duration,
}

impl Outcomes {
    /// Records a failed call.
    pub(crate) fn failed(&mut self, number: u64, error: &CallError) {
        let known = [Kind::ServerGone, Kind::Unreachable, Kind::TimedOut];
        assert!(known.contains(&error.kind()), "{error}");
        match error.executed() {
            Executed::No => self.not_executed.push(number),
            Executed::Maybe => self.maybe += 1,
        }
    }

    /// Checks all outcomes against the recorded numbers. Returns three counts: the calls that returned, the
    /// calls that were not executed, and the calls that may have been executed.
    pub(crate) fn check(all: &[Self], directory: &Path) -> [usize; 3] {
        let mut entered = Book::read(directory);
        entered.sort_unstable();
        assert!(entered.windows(2).all(|pair| pair[0] != pair[1]), "a call ran twice");
        let (mut maybe, mut returned, mut not_executed) = (0, 0, 0);
        for one in all {
            maybe += one.maybe as usize;
            returned += one.returned.len();
            not_executed += one.not_executed.len();
            for number in &one.returned {
                assert!(entered.binary_search(number).is_ok(), "{number} returned but did not run");
            }
            for number in &one.not_executed {
                assert!(
                    entered.binary_search(number).is_err(),
                    "{number} ran but was reported as not executed"
                );
            }
        }
        assert!(entered.len() <= returned + maybe, "more calls ran than the outcomes allow");
        [returned, not_executed, maybe]
    }
}

/// Binds to `address`, and makes calls while `going` is set. After about half of the failed calls, binds
/// again. `next` is the number of the next call, and `answered` counts the calls that returned.
pub(crate) fn caller(
    address: &str,
    next: &AtomicU64,
    answered: &AtomicU64,
    going: &AtomicBool,
) -> Outcomes {
    let mut outcomes = Outcomes::default();
    while going.load(Ordering::Relaxed) {
        let ledger = match LedgerClient::bind(address) {
            Ok(ledger) => ledger,
            Err(error) => {
                assert_eq!(error.executed(), Executed::No, "{error}");
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
        };
        while going.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let begun = Instant::now();
            let outcome = ledger.enter(number, u32::from(number.is_multiple_of(8)));
            outcomes.longest = outcomes.longest.max(begun.elapsed());
            match outcome {
                Ok(answer) => {
                    assert_eq!(answer, number + 1, "the result of another call");
                    outcomes.returned.push(number);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    outcomes.failed(number, &error);
                    // After about half of the failures, the binding is used further. It must report the
                    // outcomes of later calls correctly, too.
                    if number.is_multiple_of(2) {
                        break;
                    }
                }
            }
        }
    }
    outcomes
}
