//! A bound that 32 bits cannot say.

use peregrine::interface;

#[interface]
trait Literal {
    fn buffer(&self, #[max_len(4_294_967_296)] a: &str) -> peregrine::Result<()>;
}

fn main() {}
