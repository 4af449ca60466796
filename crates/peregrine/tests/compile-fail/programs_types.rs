//! A type that has no form in the other RPC system is reported where it is written.

use peregrine::interface;

#[interface(courier(program = 1, version = 1))]
trait Wide {
    #[courier(0)]
    fn wide(&self, number: u64) -> peregrine::Result<()>;
    #[courier(1)]
    fn result(&self) -> peregrine::Result<f32>;
}

#[derive(Debug, peregrine::Value)]
enum Failure {
    Failed(String),
}

impl From<peregrine::CallError> for Failure {
    fn from(error: peregrine::CallError) -> Self {
        Self::Failed(error.to_string())
    }
}

#[interface(onc(program = 1, version = 1))]
trait Fails {
    #[onc(1)]
    fn fails(&self) -> Result<(), Failure>;
}

fn main() {}
