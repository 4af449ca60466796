//! Error types of the standard library cannot hold the error of a failed call. Each type is reported once.

use std::io;

#[peregrine::interface]
trait Outcomes {
    fn text(&self) -> Result<u32, String>;
    fn text_again(&self, a: u8) -> Result<u8, String>;
    fn input(&self) -> io::Result<u32>;
    fn input_again(&self) -> Result<u32, std::io::Error>;
}

fn main() {}
