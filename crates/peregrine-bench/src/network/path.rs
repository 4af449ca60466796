//! Lists the protocols that carry messages across a link, and their names.

use clap::ValueEnum;

use super::link::Link;
use super::raw::Device;
use crate::cases::Case;

/// The protocol that carries messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Path {
    /// Datagrams
    Udp,
    /// Streams
    Tcp,
    /// Raw Ethernet frames, by AF_XDP
    Ethernet,
    /// Raw Ethernet frames, by AF_PACKET
    EthernetPacket,
}

impl Path {
    /// All paths.
    pub(crate) const ALL: [Self; 4] = [Self::Udp, Self::Tcp, Self::Ethernet, Self::EthernetPacket];
    /// The paths that exist on every link.
    pub(crate) const INTERNET: [Self; 2] = [Self::Udp, Self::Tcp];
    /// The groups of paths. The paths of a group are measured in the same rounds. A network interface accepts
    /// no GSO batches while an XDP program is attached to it. AF_XDP needs such a program, so raw Ethernet is
    /// measured apart from UDP and TCP.
    pub(crate) const GROUPS: [&[Self]; 2] =
        [&Self::INTERNET, &[Self::Ethernet, Self::EthernetPacket]];

    /// Returns the name of the path in every row.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Ethernet => "ethernet",
            Self::EthernetPacket => "ethernet-packet",
        }
    }

    /// Returns the prefix of Peregrine's addresses on this path.
    pub(crate) const fn scheme(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Ethernet | Self::EthernetPacket => "eth",
        }
    }

    /// Returns the devices that can pass the raw Ethernet frames of this path. UDP and TCP have no such
    /// device.
    pub(crate) const fn devices(self) -> &'static [Device] {
        match self {
            Self::Udp | Self::Tcp => &[],
            Self::Ethernet => &[Device::Xdp, Device::XdpGeneric],
            Self::EthernetPacket => &[Device::Packet],
        }
    }

    /// Returns whether a case is measured on this path. AF_PACKET carries the null call only.
    pub(crate) fn carries(self, case: Case) -> bool {
        self != Self::EthernetPacket || case.name == "null"
    }

    /// Returns whether this path exists on a link. Loopback has no Ethernet.
    pub(crate) fn is_on(self, link: Link) -> bool {
        self.devices().is_empty() || link == Link::Veth
    }
}
