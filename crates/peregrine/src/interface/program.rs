//! [`System`] and [`Program`]: an interface as a program of another RPC system.

use std::borrow::Cow;

/// Another RPC system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum System {
    /// ONC RPC (Sun RPC, RFC 5531). Its values are in XDR.
    Onc,
    /// Courier (Xerox's standard XSIS 038112).
    Courier,
}

impl core::fmt::Display for System {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(match self {
            Self::Onc => "ONC RPC",
            Self::Courier => "Courier",
        })
    }
}

/// The numbers by which another RPC system knows an interface: the argument `onc(...)` or `courier(...)` of
/// `#[interface]`. They are not part of the identity of the interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The system that has the program.
    pub system: System,
    /// The number of the program.
    pub number: u32,
    /// The version of the program.
    pub version: u32,
    /// The number of each procedure, in the order of the methods.
    pub procedures: Cow<'static, [u32]>,
}

impl Program {
    /// Returns the index of the method whose procedure has the number `number` in the other system.
    pub fn index_of(&self, number: u32) -> Option<u32> {
        self.procedures.iter().position(|one| *one == number).map(|index| index as u32)
    }
}
