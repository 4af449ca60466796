//! A result whose error cannot be a failed call.

#[peregrine::interface]
trait Outcomes {
    fn no_call_error(&self) -> Result<u32, String>;
}

fn main() {}
