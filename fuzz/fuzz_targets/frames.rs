//! Input from a link: complete Ethernet frames of any sender, received as from an interface. Only frames for
//! this endpoint are delivered, in order, from one sender at a time.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| peregrine::fuzzing::frames(bytes));
