//! A server that writes down every call which it runs, so that one can ask after its death.

// Each test program uses its own part of this.
#![allow(dead_code)]

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use peregrine::{CallError, Executed, Kind, interface};

#[interface]
pub(crate) trait Ledger {
    /// Writes the number down, then takes its time.
    fn enter(&self, number: u64, ms: u32) -> peregrine::Result<u64>;
    /// Writes nothing down; how many bytes there were.
    fn swallow(&self, #[max_len(64 << 20)] bytes: &[u8]) -> peregrine::Result<u64>;
}

pub(crate) struct Book(pub(crate) PathBuf);

impl Book {
    /// That of the children in a directory.
    pub(crate) fn of(directory: &Path) -> Self {
        Self(directory.join("book.bin"))
    }

    /// What is written there, in the order in which it came.
    pub(crate) fn read(directory: &Path) -> Vec<u64> {
        let bytes = std::fs::read(Self::of(directory).0).unwrap_or_default();
        bytes.as_chunks().0.iter().map(|chunk| u64::from_le_bytes(*chunk)).collect()
    }

    /// Writes a number down.
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

/// What became of the calls of one thread.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    pub(crate) returned: Vec<u64>,
    pub(crate) not_executed: Vec<u64>,
    pub(crate) maybe: u64,
    /// The time that the longest call took, of those that [`caller`] made.
    pub(crate) longest: Duration,
}

impl Outcomes {
    /// A call that failed.
    pub(crate) fn failed(&mut self, number: u64, error: &CallError) {
        let known = [Kind::ServerGone, Kind::Unreachable, Kind::TimedOut];
        assert!(known.contains(&error.kind()), "{error}");
        match error.executed() {
            Executed::No => self.not_executed.push(number),
            Executed::Maybe => self.maybe += 1,
        }
    }

    /// Holds all outcomes against the book: how many calls returned, how many were not executed, and of
    /// how many nobody knows.
    pub(crate) fn hold(all: &[Self], directory: &Path) -> [usize; 3] {
        let mut entered = Book::read(directory);
        entered.sort_unstable();
        assert!(entered.windows(2).all(|pair| pair[0] != pair[1]), "a call ran twice");
        let (mut maybe, mut returned, mut not_executed) = (0, 0, 0);
        for one in all {
            maybe += one.maybe as usize;
            returned += one.returned.len();
            not_executed += one.not_executed.len();
            for number in &one.returned {
                assert!(entered.binary_search(number).is_ok(), "{number} returned and never ran");
            }
            for number in &one.not_executed {
                assert!(entered.binary_search(number).is_err(), "{number} ran and was said not to");
            }
        }
        assert!(entered.len() <= returned + maybe, "more ran than were called");
        [returned, not_executed, maybe]
    }
}

/// Binds and calls, and binds again when a call has failed, while `going`.
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
                    assert_eq!(answer, number + 1, "a crossed result");
                    outcomes.returned.push(number);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    outcomes.failed(number, &error);
                    // Every second time the same binding is tried on, which must not deceive.
                    if number.is_multiple_of(2) {
                        break;
                    }
                }
            }
        }
    }
    outcomes
}
