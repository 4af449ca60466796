//! An auto trait, which stable Rust has not at all.

#[peregrine::interface]
auto trait Auto {}

fn main() {}
