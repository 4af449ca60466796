//! `#[derive(Value)]` refuses types that cannot be values.

use peregrine::Value;

#[derive(Value)]
struct Borrows<'a>(&'a str);

#[derive(Value)]
enum Never {}

#[derive(Clone, Copy, Value)]
union Either {
    a: u8,
}

fn main() {}
