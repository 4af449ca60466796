//! The type of a parameter does not implement `Value`.

struct Own;

#[peregrine::interface]
trait Bounds {
    fn call(&self, own: &Own) -> peregrine::Result<()>;
}

fn main() {}
