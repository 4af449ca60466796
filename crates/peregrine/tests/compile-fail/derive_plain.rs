//! `#[derive(Plain)]` refuses these types. Their tokens already show that they are not plain.

use peregrine::Plain;

#[derive(Clone, Copy, Plain)]
struct Unsaid(u8);

#[derive(Clone, Copy, Plain)]
#[repr(C)]
struct Generic<T>(T);

#[derive(Clone, Copy, Plain)]
#[repr(C)]
struct Nothing;

#[derive(Clone, Copy, Plain)]
#[repr(C)]
union Either {
    a: u8,
    b: i8,
}

#[derive(Clone, Copy, Plain)]
enum Unsized {
    A,
}

#[derive(Clone, Copy, Plain)]
#[repr(C)]
enum OfC {
    A,
}

#[derive(Clone, Copy, Plain)]
#[repr(u8)]
enum Payload {
    A(u8),
}

#[derive(Clone, Copy, Plain)]
enum Never {}

fn main() {}
