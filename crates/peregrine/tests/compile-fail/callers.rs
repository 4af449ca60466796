//! Patterns for callers that are no texts.

use peregrine::interface;

#[interface]
trait Files {
    #[callers(ops)]
    fn erase(&self) -> peregrine::Result<()>;
    #[callers]
    fn list(&self) -> peregrine::Result<()>;
    #[callers("ops/*", 7)]
    fn read(&self) -> peregrine::Result<()>;
    #[callers = "ops/*"]
    fn write(&self) -> peregrine::Result<()>;
    #[callers("ops/*", "uid:0",)]
    fn good(&self) -> peregrine::Result<()>;
}

fn main() {}
