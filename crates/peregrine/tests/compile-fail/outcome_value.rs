//! A result whose type does not implement `Value`.

#[peregrine::interface]
trait Outcomes {
    fn no_value(&self) -> peregrine::Result<std::time::Instant>;
}

fn main() {}
