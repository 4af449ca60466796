//! The `peregrine` command.

fn main() {}
