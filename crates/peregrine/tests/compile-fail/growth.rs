//! The macros refuse wrong uses of the attributes by which interfaces grow.

use peregrine::{Out, Value, interface};

#[derive(Value)]
struct Assigned {
    #[default = 3]
    a: u32,
}

#[derive(Value)]
struct Bare {
    #[was(old)]
    a: u32,
}

#[derive(Value)]
struct Spaced {
    #[was("not a name")]
    a: u32,
}

#[derive(Value)]
struct Told {
    #[widens(u64)]
    a: u32,
}

#[derive(Value)]
struct Twice {
    #[default]
    #[default(4)]
    a: u32,
}

#[derive(Value)]
enum Colour {
    Red,
    #[other]
    Unknown(String, u32),
}

#[derive(Value)]
enum Shape {
    #[other]
    Unknown,
    #[other]
    New(String),
}

#[interface]
trait Grown {
    fn in_out(&self, #[default] a: &mut u32) -> peregrine::Result<()>;
    fn buffer(&self, #[default(vec![1])] a: &[u8]) -> peregrine::Result<()>;
    fn out(&self, #[default(7)] a: Out<'_, u8>) -> peregrine::Result<()>;
    #[was]
    fn named(&self) -> peregrine::Result<()>;
}

fn main() {}
