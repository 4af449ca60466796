//! The macros refuse attributes of streams that would have no effect.

use peregrine::{Sink, Source, interface};

#[interface]
trait Numbers {
    fn wide(&self, #[widens] numbers: Sink<'_, u32>) -> peregrine::Result<()>;
    fn wide_too(&self, #[widens] numbers: Source<'_, u32>) -> peregrine::Result<()>;
    fn default(&self, #[default] numbers: Sink<'_, u32>) -> peregrine::Result<()>;
}

fn main() {}
