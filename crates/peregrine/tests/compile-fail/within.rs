//! Promised times that are no times, and parts of calls that are no parts.

use peregrine::interface;

#[interface]
trait Images {
    #[within(0us)]
    fn zero(&self) -> peregrine::Result<()>;
    #[within(50)]
    fn unit(&self) -> peregrine::Result<()>;
    #[within(50min)]
    fn minutes(&self) -> peregrine::Result<()>;
    #[within("soon")]
    fn text(&self) -> peregrine::Result<()>;
    #[within(1.0001us)]
    fn fine(&self) -> peregrine::Result<()>;
    #[within(99999999999999999999s)]
    fn long(&self) -> peregrine::Result<()>;
    #[within]
    fn nothing(&self) -> peregrine::Result<()>;
    #[within(LIMIT)]
    fn constant(&self) -> peregrine::Result<()>;
    #[within(50us, 99)]
    fn unnamed(&self) -> peregrine::Result<()>;
    #[within(50us, part = 99)]
    fn unknown(&self) -> peregrine::Result<()>;
    #[within(50us, of = 0)]
    fn none(&self) -> peregrine::Result<()>;
    #[within(50us, of = 100.1)]
    fn more(&self) -> peregrine::Result<()>;
    #[within(50us, of = 99.95)]
    fn exact(&self) -> peregrine::Result<()>;
    #[within(50us)]
    #[within(60us)]
    fn twice(&self) -> peregrine::Result<()>;
    #[within(50us)]
    fn good(&self) -> peregrine::Result<()>;
    #[within("1.5 ms", of = 99.9,)]
    fn space(&self) -> peregrine::Result<()>;
    #[within("1.5ms", of = 99.9,)]
    fn better(&self) -> peregrine::Result<()>;
}

fn main() {}
