//! The interface of the examples that run anywhere.

use peregrine::interface;

/// Tells how it was reached.
#[interface]
pub trait Whereabouts {
    /// The path by which the call came, as the server sees it.
    fn path(&self) -> peregrine::Result<String>;
}
