//! An auto trait, which is not available in stable Rust.

#[peregrine::interface]
auto trait Auto {}

fn main() {}
