//! Captures that a test writes: frames, and a file that Wireshark reads.

use std::io;
use std::path::Path;

/// The server's port in made-up frames. The dissector expects Peregrine there.
pub(crate) const PORT: u16 = 7193;
/// The client's port. No protocol is known to use it.
const CLIENT_PORT: u16 = 50_000;
/// The type of Peregrine's Ethernet frames.
pub(crate) const ETHER_TYPE: u16 = 0x88b5;

/// The frames of a capture. Frame number n, counted from 1, arrived n microseconds after the beginning.
#[derive(Default)]
pub(crate) struct Frames {
    /// The captured bytes of each frame, and the length that it had.
    frames: Vec<(Vec<u8>, usize)>,
}

/// The direction of a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum To {
    Server,
    Client,
}

/// A TCP connection of a capture.
pub(crate) struct Connection {
    client: [u8; 4],
    server_port: u16,
    /// The numbers of the next bytes to the server and to the client.
    next: [u32; 2],
}

impl Connection {
    /// Makes a connection of the client machine with this number.
    pub(crate) const fn new(client: usize, server_port: u16) -> Self {
        let [.., high, middle, low] = (client as u32).to_be_bytes();
        Self { client: [10, high, middle, low], server_port, next: [1000, 2000] }
    }

    /// Adds a segment to a capture.
    pub(crate) fn send(&mut self, frames: &mut Frames, to: To, payload: &[u8]) {
        let from = usize::from(to == To::Client);
        let (sequence, acknowledged) = (self.next[from], self.next[1 - from]);
        self.next[from] += payload.len() as u32;
        let mut segment = ports(CLIENT_PORT, self.server_port, to);
        segment.extend(sequence.to_be_bytes());
        segment.extend(acknowledged.to_be_bytes());
        // 20 bytes of header; PSH and ACK; a window; no checksum; no urgent data.
        segment.extend([0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
        segment.extend(payload);
        frames.push(ipv4(6, self.client, to, &segment));
    }
}

fn ports(client: u16, server: u16, to: To) -> Vec<u8> {
    let [from, to] = if to == To::Server { [client, server] } else { [server, client] };
    [from.to_be_bytes(), to.to_be_bytes()].concat()
}

fn ipv4(protocol: u8, client: [u8; 4], to: To, payload: &[u8]) -> Vec<u8> {
    let server = [192, 0, 2, 1];
    let [from, to] = if to == To::Server { [client, server] } else { [server, client] };
    let length = u16::try_from(20 + payload.len()).expect("a packet of IPv4");
    let mut packet = vec![0x45, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
    packet.extend([from, to].concat());
    packet.extend(payload);
    ethernet(0x0800, &packet)
}

fn ethernet(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    frame.extend(ether_type.to_be_bytes());
    frame.extend(payload);
    frame
}

impl Frames {
    pub(crate) fn push(&mut self, frame: Vec<u8>) {
        let length = frame.len();
        self.frames.push((frame, length));
    }

    /// Returns the number of frames, which is the number of the last one.
    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Adds a datagram to or from the port `server` of the server.
    pub(crate) fn udp(&mut self, server: u16, to: To, payload: &[u8]) {
        let mut datagram = ports(CLIENT_PORT, server, to);
        datagram.extend(u16::try_from(8 + payload.len()).expect("a datagram").to_be_bytes());
        datagram.extend([0, 0]);
        datagram.extend(payload);
        self.push(ipv4(17, [10, 0, 0, 1], to, &datagram));
    }

    /// Adds a frame of raw Ethernet. `payload` begins with the endpoints.
    pub(crate) fn ethernet(&mut self, payload: &[u8]) {
        self.push(ethernet(ETHER_TYPE, payload));
    }

    /// Cuts the last frame short, as a capture does that keeps only the first `bytes` bytes of each frame.
    pub(crate) fn keep_only(&mut self, bytes: usize) {
        self.frames.last_mut().expect("a frame").0.truncate(bytes);
    }

    /// Writes the capture to a file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn write(&self, file: &Path) -> io::Result<()> {
        let mut bytes = Vec::new();
        bytes.extend(0xa1b2_c3d4_u32.to_le_bytes());
        bytes.extend([2_u16, 4].map(u16::to_le_bytes).concat());
        // No time zone, no accuracy, the longest frame, and Ethernet.
        bytes.extend([0_u32, 0, 1 << 18, 1].map(u32::to_le_bytes).concat());
        for ((frame, length), number) in self.frames.iter().zip(1_u32..) {
            let (second, microsecond) = (1 + number / 1_000_000, number % 1_000_000);
            let sizes = [frame.len() as u32, *length as u32];
            bytes.extend(
                [[second, microsecond], sizes].concat().iter().flat_map(|n| n.to_le_bytes()),
            );
            bytes.extend(frame);
        }
        std::fs::write(file, bytes)
    }
}
