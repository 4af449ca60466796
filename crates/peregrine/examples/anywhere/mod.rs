//! The interface of the examples `anywhere_server` and `anywhere_client`.

use peregrine::interface;

/// Reports by which path it was called.
#[interface]
pub trait Whereabouts {
    /// Returns the path of the call, as the server sees it.
    fn path(&self) -> peregrine::Result<String>;
}
