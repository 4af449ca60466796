//! The macros refuse invalid arguments of attributes, and attributes at invalid places.

use peregrine::interface;

#[interface(name = "", version = 1)]
trait Empty {}

#[interface(name = "a name that goes on and on, for longer than anybody would like to read it")]
trait Long {}

#[interface(name = "white space")]
trait Letters {}

#[interface(name = 3, version = "1", max_len)]
trait Kinds {}

#[interface(version = 4294967296)]
trait TooLarge {}

#[interface(idempotent, versoin = 3)]
trait Unknown {}

#[interface(version = 1, version = 2)]
trait Twice {}

#[interface(name: "a")]
trait Syntax {}

#[interface]
trait Attributes {
    #[idempotent(always)]
    fn idempotent(&self) -> peregrine::Result<()>;
    #[idempotent]
    fn both_ways(&self, a: u8, value: &mut u32) -> peregrine::Result<()>;
    #[idempotent]
    fn both_ways_too(&self, values: &mut [u32]) -> peregrine::Result<()>;
    #[cfg(unix)]
    fn sometimes(&self) -> peregrine::Result<()>;
    #[cfg_attr(unix, doc = "unix")]
    fn documented(&self, #[cfg(unix)] a: u8) -> peregrine::Result<()>;
    #[max_len(4)]
    fn bounded(&self) -> peregrine::Result<()>;
    fn one(&self, #[max_len(4)] value: &u32, #[max_len(4)] text: String) -> peregrine::Result<()>;
    fn unsaid(&self, #[max_len] a: &str, #[max_len = 4] b: &str) -> peregrine::Result<()>;
    fn receiver(#[cfg(unix)] &self) -> peregrine::Result<()>;
    fn twice(&self, #[max_len(4)] #[max_len(5)] a: &str) -> peregrine::Result<()>;
}

#[interface]
#[idempotent]
trait Outside {
    fn parameter(&self, #[idempotent] a: u8) -> peregrine::Result<()>;
}

#[interface(max_len = 4)]
trait WrongType {
    fn buffer(&self, a: &[u8], #[max_len("four")] b: &str) -> peregrine::Result<()>;
}

fn main() {}
