//! The type of a result does not implement `Value`.

#[peregrine::interface]
trait Outcomes {
    fn no_value(&self) -> peregrine::Result<std::time::Instant>;
}

fn main() {}
