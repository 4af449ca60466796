//! What comes over a stream: headers and bodies are read without harm, and what is read is written
//! as it came.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| peregrine::fuzzing::stream_message(bytes));
