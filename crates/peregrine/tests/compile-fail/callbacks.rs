//! The macros refuse callbacks that are not whole parameters, or whose types are not interfaces.

use peregrine::{Callback, interface};

#[interface]
trait Listener {
    fn notify(&self, text: &str) -> peregrine::Result<()>;
}

trait Ordinary {}

#[interface]
trait Types {
    fn no_lifetime(&self, a: Callback<dyn Listener>) -> peregrine::Result<()>;
    fn no_interface(&self, a: Callback<'_>) -> peregrine::Result<()>;
    fn nothing(&self, a: Callback) -> peregrine::Result<()>;
    fn two(&self, a: Callback<'_, dyn Listener, dyn Listener>) -> peregrine::Result<()>;
    fn lifetimes(&self, a: Callback<'_, '_, dyn Listener>) -> peregrine::Result<()>;
    fn named_lifetime(&self, a: Callback<'a, dyn Listener>) -> peregrine::Result<()>;
    fn no_dyn(&self, a: Callback<'_, Listener>) -> peregrine::Result<()>;
    fn client(&self, a: Callback<'_, ListenerClient>) -> peregrine::Result<()>;
    fn bounds(&self, a: Callback<'_, dyn Listener + Send>) -> peregrine::Result<()>;
    fn generic(&self, a: Callback<'_, dyn Fn(u8)>) -> peregrine::Result<()>;
    fn generic_too(&self, a: Callback<'_, dyn Iterator<Item = u8>>) -> peregrine::Result<()>;
    fn constant(&self, a: Callback<'_, 4>) -> peregrine::Result<()>;
}

#[interface]
trait Places {
    fn borrowed(&self, a: &Callback<'_, dyn Listener>) -> peregrine::Result<()>;
    fn within(&self, a: Vec<Callback<'_, dyn Listener>>) -> peregrine::Result<()>;
    fn optional(&self, a: Option<Callback<'static, dyn Listener>>) -> peregrine::Result<()>;
    fn result(&self) -> peregrine::Result<Callback<'static, dyn Listener>>;
}

#[interface]
trait Attributes {
    fn default(&self, #[default] a: Callback<'_, dyn Listener>) -> peregrine::Result<()>;
    fn bounded(&self, #[max_len(4)] a: Callback<'_, dyn Listener>) -> peregrine::Result<()>;
    fn widens(&self, #[widens] a: Callback<'_, dyn Listener>) -> peregrine::Result<()>;
    #[oneway]
    fn oneway(&self, a: Callback<'static, dyn Listener>) -> peregrine::Result<()>;
}

fn main() {}
