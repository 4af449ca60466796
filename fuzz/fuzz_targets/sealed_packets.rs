//! A host between two clients and a server repeats and changes their sealed packets, and exchanges the
//! handles. One of the clients is hostile.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine_fuzz::sealed::packets(bytes));
