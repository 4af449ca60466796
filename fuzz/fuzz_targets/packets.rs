//! A packet of the packet exchange, and its message about binding.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine::fuzzing::exchange::packets(bytes));
