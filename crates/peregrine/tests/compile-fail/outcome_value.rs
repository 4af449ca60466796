//! A result that is no value.

#[peregrine::interface]
trait Outcomes {
    fn no_value(&self) -> peregrine::Result<std::time::Instant>;
}

fn main() {}
