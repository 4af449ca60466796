//! Passes complete Ethernet frames from any sender to an endpoint, as an interface does. Only frames for this
//! endpoint are delivered, in order, from one sender at a time.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| peregrine::fuzzing::frames(bytes));
