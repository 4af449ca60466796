//! Passes complete Ethernet frames from any sender to an endpoint, as a network interface does. The endpoint
//! delivers only the frames that are addressed to it, in their order of arrival. Frames that the endpoint
//! delivers together are from the same sender.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| peregrine::fuzzing::frames(bytes));
