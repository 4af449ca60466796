//! Parses arbitrary bytes as messages of ONC RPC, as a stream of records, and as messages of rpcbind.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine::fuzzing::onc::message(bytes));
