//! Passes calls of several clients, in any order, to the cache of replies of a server of ONC RPC.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine::fuzzing::onc::replies(bytes));
