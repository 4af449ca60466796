//! The macro refuses a bound that does not fit into 32 bits.

use peregrine::interface;

#[interface]
trait Literal {
    fn buffer(&self, #[max_len(4_294_967_296)] a: &str) -> peregrine::Result<()>;
}

fn main() {}
