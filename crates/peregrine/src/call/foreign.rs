//! A call from a client of another RPC system, as a path passes it to a server stub.

use super::{Answer, Refusal};
use crate::interface::{InterfaceRef, Program, System};

/// A call of a client of another RPC system.
#[derive(Clone, Copy, Debug)]
pub struct ForeignCall<'a> {
    /// The system of the client.
    pub system: System,
    /// The number of the program that the client calls. An interface may be several programs.
    pub program: u32,
    /// The version of the program.
    pub version: u32,
    /// The number of the procedure in this version of the program.
    pub procedure: u32,
    /// The arguments, in the representation of the system.
    pub arguments: &'a [u8],
}

impl ForeignCall<'_> {
    /// Returns the index of the called procedure in an interface. `None` if the interface does not have it.
    pub(crate) fn procedure_of(&self, interface: &InterfaceRef) -> Option<u32> {
        let is_called = |one: &&Program| {
            (one.system, one.number, one.version) == (self.system, self.program, self.version)
        };
        interface.programs().iter().find(is_called)?.index_of(self.procedure)
    }
}

/// What a server stub has written into the buffer for the results of a foreign call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignAnswer {
    /// The results.
    Returned,
    /// The arguments of the error with this number, which the procedure reports. Only Courier has such
    /// errors.
    Reported(u16),
}

impl From<ForeignAnswer> for Answer {
    fn from(answer: ForeignAnswer) -> Self {
        match answer {
            ForeignAnswer::Returned => Self::Ok,
            ForeignAnswer::Reported(_) => Self::Err,
        }
    }
}

/// The outcome of serving a foreign call.
pub type ServedForeign = Result<ForeignAnswer, Refusal>;
