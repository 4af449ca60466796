//! These types are not plain because of their layout: they have padding, no bytes, or a large alignment.

use peregrine::Plain;

#[derive(Clone, Copy, Plain)]
#[repr(C)]
struct Entry {
    a: u8,
    b: u32,
}

#[derive(Clone, Copy, Plain)]
#[repr(C)]
struct Trailing {
    a: u32,
    b: u8,
}

#[derive(Clone, Copy, Plain)]
#[repr(C)]
struct Hollow {
    a: [u8; 0],
}

#[derive(Clone, Copy, Plain)]
#[repr(C, align(32))]
struct Aligned {
    a: [u8; 32],
}

fn main() {}
