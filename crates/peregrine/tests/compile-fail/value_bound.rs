//! A parameter that is no value.

struct Own;

#[peregrine::interface]
trait Bounds {
    fn call(&self, own: &Own) -> peregrine::Result<()>;
}

fn main() {}
