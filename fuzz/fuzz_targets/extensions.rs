//! Reads arbitrary bytes as the extensions of a call: its chain, its deadline and its metadata. Reading must
//! not panic. If metadata is read, and then written and read again, the result is the same.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| peregrine::fuzzing::extensions(bytes));
