//! `#[derive(Plain)]` refuses fields that are not plain, and types that are not `Copy`.

use peregrine::Plain;

#[derive(Clone, Copy, Plain)]
#[repr(C)]
struct Holds {
    a: &'static str,
}

#[derive(Plain)]
#[repr(C)]
struct Moved {
    a: u8,
}

fn main() {}
