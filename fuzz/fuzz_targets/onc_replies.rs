//! Makes calls of several clients to the reply cache of a server of ONC RPC, in any order.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine::fuzzing::onc::replies(bytes));
