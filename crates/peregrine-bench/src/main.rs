//! Measures Peregrine beside the limits of the machine that it runs on.

fn main() {}
