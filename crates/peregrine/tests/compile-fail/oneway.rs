//! The macros refuse one-way methods whose result or parameters need the caller to wait.

use peregrine::{Lent, Out, interface};

#[interface]
trait Values {
    #[oneway]
    fn number(&self) -> peregrine::Result<u32>;
    #[oneway]
    fn text(&self) -> Result<String, peregrine::CallError>;
}

#[interface]
trait Parameters {
    #[oneway]
    fn out(&self, a: u8, into: Out<'_, u8>) -> peregrine::Result<()>;
    #[oneway]
    fn lent(&self, from: Lent<'_, u8>) -> peregrine::Result<()>;
    #[oneway]
    fn in_out(&self, value: &mut u32, values: &mut [u32]) -> peregrine::Result<()>;
}

#[interface]
trait Attributes {
    #[oneway(always)]
    fn arguments(&self) -> peregrine::Result<()>;
    #[oneway]
    #[oneway]
    fn twice(&self) -> peregrine::Result<()>;
    #[oneway]
    #[idempotent]
    fn idempotent(&self) -> peregrine::Result<()>;
}

#[interface]
trait Named {
    fn flush(&self) -> peregrine::Result<()>;
    #[oneway]
    fn log(&self, line: &str) -> peregrine::Result<()>;
}

#[interface]
trait Allowed {
    fn flush(&self) -> peregrine::Result<()>;
}

fn main() {}
