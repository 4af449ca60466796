//! The type of a field does not implement `Value`.

use peregrine::Value;

#[derive(Value)]
struct Holds {
    a: u8,
    b: usize,
}

fn main() {}
