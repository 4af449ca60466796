//! Parses arbitrary bytes as the headers and bodies of a stream. Parsing must not panic. If a parsed header
//! or body is emitted and parsed again, the result is the same.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| peregrine::fuzzing::stream_message(bytes));
