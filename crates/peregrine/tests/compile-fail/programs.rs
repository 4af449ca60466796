//! The macro refuses numbers for other RPC systems that contradict each other, and types that have no form in
//! these systems.

use peregrine::{Out, interface};

#[interface(onc(program = 1))]
trait NoVersion {}

#[interface(courier(program = 1, version = 70000))]
trait TooLarge {}

#[interface(onc(program = 1, version = 1), onc(program = 2, version = 1))]
trait Twice {}

#[interface(onc(program = 1, version = 1))]
trait Numbers {
    fn missing(&self) -> peregrine::Result<()>;
    #[onc(0)]
    fn zero(&self) -> peregrine::Result<()>;
    #[onc(1)]
    fn one(&self) -> peregrine::Result<()>;
    #[onc(1)]
    fn same(&self) -> peregrine::Result<()>;
    #[onc(2)]
    fn buffer(&self, into: Out<'_, u8>) -> peregrine::Result<()>;
    #[onc(3)]
    #[oneway]
    fn oneway(&self) -> peregrine::Result<()>;
    #[courier(4)]
    #[onc(4)]
    fn other(&self) -> peregrine::Result<()>;
}

fn main() {}
