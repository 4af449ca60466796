//! These error types cannot be sent (`NoValue`), or cannot hold the error of a failed call (`NoCall`).

struct NoValue;

impl From<peregrine::CallError> for NoValue {
    fn from(_: peregrine::CallError) -> Self {
        Self
    }
}

#[derive(peregrine::Value)]
struct NoCall;

#[peregrine::interface]
trait Outcomes {
    fn no_value(&self) -> Result<u32, NoValue>;
    fn no_call(&self, a: u8) -> Result<u32, NoCall>;
    fn no_call_again(&self, a: u16) -> Result<u32, NoCall>;
}

fn main() {}
