//! What carries messages across a link, and what the least that takes is called.

use clap::ValueEnum;

use super::link::Link;
use super::raw::Device;
use crate::cases::Case;

/// What carries messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Path {
    /// Datagrams
    Udp,
    /// Streams
    Tcp,
    /// Frames of our own, by AF_XDP
    Ethernet,
    /// Frames of our own, by AF_PACKET
    EthernetPacket,
}

impl Path {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Udp, Self::Tcp, Self::Ethernet, Self::EthernetPacket];
    /// Those that are on every link.
    pub(crate) const INTERNET: [Self; 2] = [Self::Udp, Self::Tcp];
    /// Those that are measured in the same rounds. An interface takes no trains while it runs a
    /// program for frames, and what that leaves behind is to be seen by nobody else.
    pub(crate) const GROUPS: [&[Self]; 2] =
        [&Self::INTERNET, &[Self::Ethernet, Self::EthernetPacket]];

    /// As it stands in every row.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Ethernet => "ethernet",
            Self::EthernetPacket => "ethernet-packet",
        }
    }

    /// What addresses of ours begin with.
    pub(crate) const fn scheme(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Ethernet | Self::EthernetPacket => "eth",
        }
    }

    /// By what frames can pass, if they are our own.
    pub(crate) const fn devices(self) -> &'static [Device] {
        match self {
            Self::Udp | Self::Tcp => &[],
            Self::Ethernet => &[Device::Xdp, Device::XdpBehind],
            Self::EthernetPacket => &[Device::Packet],
        }
    }

    /// Whether a case is measured along it: by AF_PACKET, the null call only.
    pub(crate) fn carries(self, case: Case) -> bool {
        self != Self::EthernetPacket || case.name == "null"
    }

    /// Whether it is on a link. Loopback has no Ethernet.
    pub(crate) fn is_on(self, link: Link) -> bool {
        self.devices().is_empty() || link == Link::Veth
    }
}
