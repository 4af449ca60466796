//! Rust itself refuses these methods in a trait. The macro reports most of them, too.

use peregrine::{Lent, Out, interface};

#[interface]
trait RustToo {
    const fn const_(&self) -> peregrine::Result<()>;
    fn twice(&self) -> peregrine::Result<()>;
    fn twice(&self, a: u8) -> peregrine::Result<()>;
    fn anonymous(&self, _: u8) -> peregrine::Result<()>;
    fn mutable(&self, mut a: u8) -> peregrine::Result<()>;
    fn tuple(&self, (a, b): (u8, u8)) -> peregrine::Result<()>;
    fn variadic(&self, a: u8, _: ...) -> peregrine::Result<()>;
    fn by_mut_value(mut self) -> peregrine::Result<()>;
    fn never(&self) -> peregrine::Result<!>;
    fn inferred(&self, a: _) -> peregrine::Result<()>;
    fn bare_buffers(&self, a: Out, b: Lent<'_>) -> peregrine::Result<()>;
}

fn main() {}
