//! Parses input from a stream. Headers and bodies are parsed without harm. A parsed header or body is the
//! same after it was emitted and parsed again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| peregrine::fuzzing::stream_message(bytes));
