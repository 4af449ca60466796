//! Passes arbitrary datagrams from a known client and from unknown clients to a service. The service accepts
//! the datagrams and executes valid calls. It keeps no state of a client after it has forgotten the client.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine_fuzz::datagrams::run(bytes));
