//! The compiler reports a callback whose trait is not an interface.

use peregrine::{Callback, interface};

trait Ordinary {}

#[interface]
trait Chat {
    fn join(&self, listener: Callback<'_, dyn Ordinary>) -> peregrine::Result<()>;
}

fn main() {}
