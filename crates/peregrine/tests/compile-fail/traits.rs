//! The macro refuses traits and other items that cannot be interfaces.

use peregrine::interface;

#[interface]
trait Generic<'a, T, const N: usize> {
    fn call(&self) -> peregrine::Result<()>;
}

#[interface]
trait Where
where
    u8: Copy,
{
    fn call(&self) -> peregrine::Result<()>;
}

trait Base {}

#[interface]
trait Super: Send + Sync + 'static + Base {
    fn call(&self) -> peregrine::Result<()>;
}

#[interface]
unsafe trait Unsafe {
    fn call(&self) -> peregrine::Result<()>;
}

macro_rules! methods {
    () => {};
}

#[interface]
trait Items {
    type Item;
    const NUMBER: u32;
    methods!();
}

#[interface]
struct NoTrait;

#[interface]
fn no_trait() {}

fn main() {}
