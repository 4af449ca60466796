//! The macro refuses types whose tokens already show that they cannot be sent.

use peregrine::{Lent, Out, interface};
use std::borrow::Cow;

macro_rules! number {
    () => {
        u8
    };
}

#[interface]
trait Types {
    fn machine(&self, a: usize, b: &[isize], c: Option<core::primitive::usize>) -> peregrine::Result<usize>;
    fn impl_trait(&self, a: impl Copy) -> peregrine::Result<()>;
    fn dyn_trait(&self, a: &dyn Send, b: Box<dyn Send>) -> peregrine::Result<()>;
    fn function(&self, a: fn(u8) -> u8) -> peregrine::Result<fn()>;
    fn pointer(&self, a: *const u8, b: &[*mut u8]) -> peregrine::Result<()>;
    fn from_macro(&self, a: number!()) -> peregrine::Result<()>;
    fn itself(&self, a: Self, b: &Self) -> peregrine::Result<()>;
    fn lifetimes(&self, a: &'static str, b: Out<'static, u8>) -> peregrine::Result<()>;
    fn nested(&self, a: &&u8, b: &[&str], c: Option<&u8>, d: (u8, &mut u8)) -> peregrine::Result<()>;
    fn nested_buffers(&self, a: Vec<Out<'_, u8>>, b: Option<Lent<'_, u8>>) -> peregrine::Result<()>;
    fn borrowed_buffers(&self, a: &mut Out<'_, u8>, b: &Lent<'_, u8>) -> peregrine::Result<()>;
    fn text(&self, a: &mut str) -> peregrine::Result<()>;
    fn slices(&self, a: [u8]) -> peregrine::Result<()>;
    fn borrowed_result(&self) -> peregrine::Result<&str>;
    fn borrowed_error(&self) -> Result<(), Cow<'_, str>>;
    fn buffer_result(&self) -> peregrine::Result<Out<'_, u8>>;
    fn bare_borrow(&self) -> &str;
}

fn main() {}
