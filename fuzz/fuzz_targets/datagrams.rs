//! Datagrams of any bytes, from a caller that the service knows and from others: the service takes
//! them, runs what is a call, and keeps nothing of it when its callers are forgotten.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine_fuzz::datagrams::run(bytes));
