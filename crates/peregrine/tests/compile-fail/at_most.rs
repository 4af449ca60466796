//! Numbers of simultaneous calls that are no such numbers.

use peregrine::interface;

#[interface]
trait Images {
    #[at_most(0)]
    fn none(&self) -> peregrine::Result<()>;
    #[at_most]
    fn nothing(&self) -> peregrine::Result<()>;
    #[at_most("4")]
    fn text(&self) -> peregrine::Result<()>;
    #[at_most(4.0)]
    fn fraction(&self) -> peregrine::Result<()>;
    #[at_most(-1)]
    fn negative(&self) -> peregrine::Result<()>;
    #[at_most(4294967296)]
    fn large(&self) -> peregrine::Result<()>;
    #[at_most(2, 3)]
    fn two(&self) -> peregrine::Result<()>;
    #[at_most = 4]
    fn equals(&self) -> peregrine::Result<()>;
    #[at_most(4u8)]
    fn suffix(&self) -> peregrine::Result<()>;
    #[at_most(4)]
    #[at_most(5)]
    fn twice(&self) -> peregrine::Result<()>;
    #[at_most(4)]
    fn good(&self) -> peregrine::Result<()>;
}

fn main() {}
