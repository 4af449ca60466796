//! An interface cannot be an auto trait. Stable Rust has no auto traits.

#[peregrine::interface]
auto trait Auto {}

fn main() {}
