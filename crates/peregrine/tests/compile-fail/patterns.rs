//! Parameters that Rust refuses in a trait as well.

use peregrine::interface;

#[interface]
trait Patterns {
    fn anonymous(&self, _: u8) -> peregrine::Result<()>;
    fn mutable(&self, mut a: u8) -> peregrine::Result<()>;
    fn tuple(&self, (a, b): (u8, u8)) -> peregrine::Result<()>;
    fn variadic(&self, a: u8, ...) -> peregrine::Result<()>;
    fn by_mut_value(mut self) -> peregrine::Result<()>;
}

fn main() {}
