//! A server that writes down every call which it runs, so that one can ask after its death.

// Each test program uses its own part of this.
#![allow(dead_code)]

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use peregrine::interface;

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
}

impl Ledger for Book {
    fn enter(&self, number: u64, ms: u32) -> peregrine::Result<u64> {
        let mut file = OpenOptions::new().append(true).create(true).open(&self.0).unwrap();
        file.write_all(&number.to_le_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(ms.into()));
        Ok(number + 1)
    }
    fn swallow(&self, bytes: &[u8]) -> peregrine::Result<u64> {
        Ok(bytes.len() as u64)
    }
}
