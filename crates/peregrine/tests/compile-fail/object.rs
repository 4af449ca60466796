//! A server cannot export an object that threads cannot share.

use std::rc::Rc;

#[peregrine::interface]
trait Shared {
    fn call(&self) -> peregrine::Result<()>;
}

struct Lonely(Rc<u8>);

impl Shared for Lonely {
    fn call(&self) -> peregrine::Result<()> {
        Ok(())
    }
}

fn main() {
    let _ = SharedServer::new(Lonely(Rc::new(1)));
    let _ = SharedClient::in_process(Lonely(Rc::new(1)));
}
