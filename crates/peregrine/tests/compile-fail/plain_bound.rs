//! A buffer of elements that are not plain.

use peregrine::Out;

#[peregrine::interface]
trait Bounds {
    fn call(&self, into: Out<'_, String>) -> peregrine::Result<()>;
}

fn main() {}
