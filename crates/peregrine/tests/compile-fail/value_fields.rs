//! A field that is no value.

use peregrine::Value;

#[derive(Value)]
struct Holds {
    a: u8,
    b: usize,
}

fn main() {}
