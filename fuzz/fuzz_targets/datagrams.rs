//! Arbitrary datagrams from a known client and from unknown ones. The service accepts them, executes valid
//! calls, and keeps no state when their clients are forgotten.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine_fuzz::datagrams::run(bytes));
