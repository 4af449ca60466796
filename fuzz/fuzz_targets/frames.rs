//! What comes over a link: whole Ethernet frames, of anybody, are received as those of an interface are.
//! What is received is what frames for this endpoint brought, in order, from one sender at a time.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| peregrine::fuzzing::frames(bytes));
