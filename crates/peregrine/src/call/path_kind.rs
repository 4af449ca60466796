//! `PathKind`: the paths by which calls reach an object.

use crate::interface::System;

/// The kind of path that a binding uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PathKind {
    /// Calls within one process.
    InProcess,
    /// Calls through shared memory to another process of this machine.
    Local,
    /// Calls over a TCP connection.
    Tcp,
    /// Calls over UDP datagrams.
    Udp,
    /// Calls over raw Ethernet frames, without IP.
    Ethernet,
    /// Calls of ONC RPC over UDP datagrams.
    OncUdp,
    /// Calls of ONC RPC over a TCP connection.
    OncTcp,
    /// Calls of Courier over UDP datagrams.
    CourierUdp,
    /// Calls of Courier over a TCP connection.
    CourierTcp,
    /// Calls of Courier over Peregrine's own packet exchange.
    CourierExchange,
}

impl PathKind {
    /// The paths that an address can name, and the scheme of each path.
    pub(crate) const SCHEMES: &[(Self, &str)] = &[
        (Self::Local, "local"),
        (Self::Ethernet, "eth"),
        (Self::Udp, "udp"),
        (Self::Tcp, "tcp"),
        (Self::OncUdp, "onc+udp"),
        (Self::OncTcp, "onc+tcp"),
        (Self::CourierUdp, "courier+udp"),
        (Self::CourierTcp, "courier+tcp"),
        (Self::CourierExchange, "courier+exchange"),
    ];

    /// Returns the other RPC system whose protocol the path speaks. `None`: the path speaks Peregrine's own.
    pub const fn system(self) -> Option<System> {
        match self {
            Self::OncUdp | Self::OncTcp => Some(System::Onc),
            Self::CourierUdp | Self::CourierTcp | Self::CourierExchange => Some(System::Courier),
            Self::InProcess | Self::Local | Self::Tcp | Self::Udp | Self::Ethernet => None,
        }
    }

    /// Returns whether the path reaches only processes of this machine. An address that names such a path
    /// has no host.
    ///
    /// ```
    /// use peregrine::PathKind;
    ///
    /// assert!(PathKind::Local.is_on_this_machine() && !PathKind::Tcp.is_on_this_machine());
    /// ```
    pub const fn is_on_this_machine(self) -> bool {
        matches!(self, Self::InProcess | Self::Local)
    }

    /// Returns the scheme with which an address names the path, if there is one.
    pub(crate) fn scheme(self) -> Option<&'static str> {
        let found = Self::SCHEMES.iter().find(|(path, _)| *path == self);
        found.map(|(_, scheme)| *scheme)
    }
}

impl core::fmt::Display for PathKind {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(match self {
            Self::InProcess => "in-process",
            Self::Local => "local",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Ethernet => "ethernet",
            Self::OncUdp => "onc+udp",
            Self::OncTcp => "onc+tcp",
            Self::CourierUdp => "courier+udp",
            Self::CourierTcp => "courier+tcp",
            Self::CourierExchange => "courier+exchange",
        })
    }
}
