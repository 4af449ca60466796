//! Passes arbitrary datagrams from a known client and from unknown clients to a service. The service accepts
//! the datagrams, executes valid calls, and keeps no state of a client that it has forgotten.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine_fuzz::datagrams::run(bytes));
