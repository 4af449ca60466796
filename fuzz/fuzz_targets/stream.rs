//! Input from a stream: headers and bodies are parsed without harm, and what is parsed is emitted again in
//! the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| peregrine::fuzzing::stream_message(bytes));
