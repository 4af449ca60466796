//! The elements of these buffers are not plain. Each type is reported once.

use peregrine::{Lent, Out};

struct Own;

#[peregrine::interface]
trait Bounds {
    fn call(&self, into: Out<'_, String>) -> peregrine::Result<()>;
    fn call_again(&self, into: Out<'_, String>, from: Lent<'_, String>) -> peregrine::Result<()>;
    fn own(&self, from: Lent<'_, Own>) -> peregrine::Result<()>;
}

fn main() {}
