//! The interfaces of rpcbind, as the interface files of ONC RPC declare them (`pmap_prot.x`, `rpcb_prot.x`).
//!
//! CALLIT, BCAST and INDIRECT, by which rpcbind makes calls on behalf of its clients, are left out. A client
//! that calls one of them gets the error that the procedure does not exist.

use crate::error::Result;
use crate::foreign::{ByteString, Foreign};

/// The port of a program, in version 2.
#[derive(Clone, Debug, PartialEq, peregrine_macros::Value, Foreign)]
pub(super) struct Mapping {
    pub(super) program: u32,
    pub(super) version: u32,
    /// 6 for TCP, 17 for UDP.
    pub(super) protocol: u32,
    pub(super) port: u32,
}

/// A list of [`Mapping`]s.
#[derive(Clone, Debug, PartialEq, peregrine_macros::Value, Foreign)]
#[foreign(xdr)]
pub(super) struct Mappings {
    pub(super) first: Mapping,
    #[list]
    pub(super) rest: Option<Box<Self>>,
}

/// The address of a program, in versions 3 and 4.
#[derive(Clone, Debug, PartialEq, peregrine_macros::Value, Foreign)]
pub(super) struct Rpcb {
    pub(super) program: u32,
    pub(super) version: u32,
    /// The name of the network, such as `udp6`.
    pub(super) network: ByteString,
    /// The universal address.
    pub(super) address: ByteString,
    pub(super) owner: ByteString,
}

/// A list of [`Rpcb`]s.
#[derive(Clone, Debug, PartialEq, peregrine_macros::Value, Foreign)]
#[foreign(xdr)]
pub(super) struct Rpcbs {
    pub(super) first: Rpcb,
    #[list]
    pub(super) rest: Option<Box<Self>>,
}

/// One address of a program, with the properties of its network.
#[derive(Clone, Debug, PartialEq, peregrine_macros::Value, Foreign)]
pub(super) struct Place {
    pub(super) address: ByteString,
    pub(super) network: ByteString,
    /// 1 for datagrams, 3 for connections that deliver all data before they end.
    pub(super) semantics: u32,
    /// The family of protocols, such as `inet6`.
    pub(super) family: ByteString,
    /// The protocol, such as `tcp`.
    pub(super) protocol: ByteString,
}

/// A list of [`Place`]s.
#[derive(Clone, Debug, PartialEq, peregrine_macros::Value, Foreign)]
#[foreign(xdr)]
pub(super) struct Places {
    pub(super) first: Place,
    #[list]
    pub(super) rest: Option<Box<Self>>,
}

/// An address as a `struct sockaddr` of the machine of rpcbind (`struct netbuf`).
#[derive(Clone, Debug, Default, PartialEq, peregrine_macros::Value, Foreign)]
pub(super) struct Netbuf {
    pub(super) room: u32,
    pub(super) bytes: Vec<u8>,
}

/// How often each procedure of a version was called.
#[derive(Clone, Debug, Default, PartialEq, peregrine_macros::Value, Foreign)]
#[foreign(xdr)]
pub(super) struct Calls {
    pub(super) procedures: [i32; 13],
    /// How often SET has registered a program.
    pub(super) set: i32,
    /// How often UNSET has removed a program.
    pub(super) unset: i32,
    /// How often each address was asked for.
    pub(super) addresses: Option<Box<AddressCalls>>,
    /// How often rpcbind made calls on behalf of its clients. Always `None`, because this rpcbind makes no
    /// such calls.
    pub(super) indirect: Option<Box<IndirectCalls>>,
}

/// How often the address of a program was asked for.
#[derive(Clone, Debug, PartialEq, peregrine_macros::Value, Foreign)]
#[foreign(xdr)]
pub(super) struct AddressCalls {
    pub(super) program: u32,
    pub(super) version: u32,
    pub(super) success: i32,
    pub(super) failure: i32,
    pub(super) network: ByteString,
    #[list]
    pub(super) rest: Option<Box<Self>>,
}

/// How often rpcbind called one procedure on behalf of its clients.
#[derive(Clone, Debug, PartialEq, peregrine_macros::Value, Foreign)]
#[foreign(xdr)]
pub(super) struct IndirectCalls {
    pub(super) program: u32,
    pub(super) version: u32,
    pub(super) procedure: u32,
    pub(super) success: i32,
    pub(super) failure: i32,
    pub(super) is_indirect: i32,
    pub(super) network: ByteString,
    #[list]
    pub(super) rest: Option<Box<Self>>,
}

/// Version 2 (portmap), which knows only IPv4.
#[peregrine_macros::interface(name = "portmap", version = 2, onc(program = 100000, version = 2))]
pub(super) trait Portmap {
    /// Registers a program. Returns whether it was registered.
    #[onc(1)]
    fn set(&self, mapping: Mapping) -> Result<bool>;
    /// Removes a program from all protocols. Returns whether it was removed.
    #[onc(2)]
    fn unset(&self, mapping: Mapping) -> Result<bool>;
    /// Returns the port of a program, or 0 if the program is not registered.
    #[onc(3)]
    fn getport(&self, mapping: Mapping) -> Result<u32>;
    /// Returns all programs.
    #[onc(4)]
    fn dump(&self) -> Result<Option<Box<Mappings>>>;
}

/// Version 3.
#[peregrine_macros::interface(name = "rpcb", version = 3, onc(program = 100000, version = 3))]
pub(super) trait RpcbindV3 {
    /// Registers a program in one network. Returns whether it was registered.
    #[onc(1)]
    fn set(&self, rpcb: Rpcb) -> Result<bool>;
    /// Removes a program from one network, or from all if the network has no name.
    #[onc(2)]
    fn unset(&self, rpcb: Rpcb) -> Result<bool>;
    /// Returns the address of a program in the network of the caller, or an empty text if the program has
    /// none there.
    #[onc(3)]
    fn getaddr(&self, rpcb: Rpcb) -> Result<ByteString>;
    /// Returns all programs.
    #[onc(4)]
    fn dump(&self) -> Result<Option<Box<Rpcbs>>>;
    /// Returns the seconds since 1970.
    #[onc(6)]
    fn gettime(&self) -> Result<u32>;
    /// Converts a universal address of the caller's network to a `struct sockaddr`.
    #[onc(7)]
    fn uaddr2taddr(&self, address: ByteString) -> Result<Netbuf>;
    /// Converts a `struct sockaddr` to a universal address.
    #[onc(8)]
    fn taddr2uaddr(&self, address: Netbuf) -> Result<ByteString>;
}

/// Version 4.
#[peregrine_macros::interface(name = "rpcb", version = 4, onc(program = 100000, version = 4))]
pub(super) trait RpcbindV4 {
    /// As in version 3.
    #[onc(1)]
    fn set(&self, rpcb: Rpcb) -> Result<bool>;
    /// As in version 3.
    #[onc(2)]
    fn unset(&self, rpcb: Rpcb) -> Result<bool>;
    /// As in version 3.
    #[onc(3)]
    fn getaddr(&self, rpcb: Rpcb) -> Result<ByteString>;
    /// As in version 3.
    #[onc(4)]
    fn dump(&self) -> Result<Option<Box<Rpcbs>>>;
    /// As in version 3.
    #[onc(6)]
    fn gettime(&self) -> Result<u32>;
    /// As in version 3.
    #[onc(7)]
    fn uaddr2taddr(&self, address: ByteString) -> Result<Netbuf>;
    /// As in version 3.
    #[onc(8)]
    fn taddr2uaddr(&self, address: Netbuf) -> Result<ByteString>;
    /// Returns the address of exactly this version of a program.
    #[onc(9)]
    fn getversaddr(&self, rpcb: Rpcb) -> Result<ByteString>;
    /// Returns all addresses of exactly this version of a program in the family of the caller's network.
    #[onc(11)]
    fn getaddrlist(&self, rpcb: Rpcb) -> Result<Option<Box<Places>>>;
    /// Returns how often each procedure was called, one element for each of the versions 2, 3 and 4.
    #[onc(12)]
    fn getstat(&self) -> Result<[Calls; 3]>;
}
