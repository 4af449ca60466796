//! Passes any arguments in XDR or Courier to the interpreted server of any description.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| peregrine_fuzz::foreign_dynamic::run(bytes));
