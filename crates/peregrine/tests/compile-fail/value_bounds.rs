//! These parameters and results have types that are not values. Each such type is reported once.

use std::sync::Mutex;

struct One;
struct Two;
struct Three;
struct Four;

#[peregrine::interface]
trait Bounds {
    fn by_value(&self, own: One, again: One) -> peregrine::Result<One>;
    fn by_reference(&self, own: &Two, both: &mut Two) -> peregrine::Result<Option<u8>>;
    fn slices(&self, own: &[Three], both: &mut [Three]) -> peregrine::Result<()>;
    fn within(&self, own: Vec<Four>) -> peregrine::Result<()>;
    fn result(&self) -> peregrine::Result<Mutex<u8>>;
    fn result_again(&self) -> peregrine::Result<Mutex<u8>>;
}

struct Object;

impl Bounds for Object {
    fn by_value(&self, _: One, _: One) -> peregrine::Result<One> {
        Ok(One)
    }
    fn by_reference(&self, _: &Two, _: &mut Two) -> peregrine::Result<Option<u8>> {
        Ok(None)
    }
    fn slices(&self, _: &[Three], _: &mut [Three]) -> peregrine::Result<()> {
        Ok(())
    }
    fn within(&self, _: Vec<Four>) -> peregrine::Result<()> {
        Ok(())
    }
    fn result(&self) -> peregrine::Result<Mutex<u8>> {
        Ok(Mutex::new(1))
    }
    fn result_again(&self) -> peregrine::Result<Mutex<u8>> {
        Ok(Mutex::new(1))
    }
}

fn main() {
    let client = BoundsClient::in_process(Object);
    let _ = client.by_value(One, One);
    let _ = client.by_reference(&Two, &mut Two);
}
