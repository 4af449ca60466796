//! Measures how much time is saved if the first packet of a message is sent last.
//!
//! In Peregrine, the receiver assembles a message in the buffer of the message's first packet. Each other
//! packet is copied to its final place in this buffer while the next packet is in transmission. Peregrine
//! sends the first packet last. So no copy remains when the last packet has arrived. If the packets are sent
//! in order, the last one remains to be copied.
//!
//! In this experiment, the packets are sent one by one, because the packets of a GSO batch arrive together.
//! Both sides poll all the time.

use std::hint::black_box;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use peregrine::sys::{Address, Datagrams, IfFull};
use peregrine::value::{Space, Window};

use super::wire::HEADER;

const PIECE: usize = 1408;
/// The number of packets of a message of 48,000 bytes.
const COUNT: usize = 35;
const PACKET: usize = HEADER + PIECE;

fn receive(socket: &Datagrams, into: &mut [u8], from: Option<&mut Address>) -> io::Result<usize> {
    let mut from = from;
    loop {
        match socket.receive(Space::of_mut(into), from.as_deref_mut(), true) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            arrived => return arrived.map(|arrival| arrival.bytes),
        }
    }
}

/// Sends `trips` blasts (messages of [`COUNT`] packets), and waits for the acknowledgement of each. Returns
/// the time of all but the first `warm` blasts.
pub(crate) fn lead(
    to: SocketAddr,
    first_last: bool,
    warm: u32,
    trips: u32,
) -> io::Result<Duration> {
    let to = Address::from(to);
    let socket = Datagrams::new(&to)?;
    socket.connect(&to)?;
    let mut packets = vec![[0xa5; PACKET]; COUNT];
    for (number, packet) in packets.iter_mut().enumerate() {
        packet[0] = number as u8;
    }
    packets.rotate_left(usize::from(first_last));
    let mut acknowledgement = [0; HEADER];
    let mut start = Instant::now();
    for trip in 0..trips {
        if trip == warm {
            start = Instant::now();
        }
        for packet in &packets {
            socket.send(Window::of(packet), None, IfFull::Wait)?;
        }
        receive(&socket, &mut acknowledgement, None)?;
    }
    Ok(start.elapsed())
}

/// Receives the blasts. Every packet except the first is copied to its place in the buffer of the first
/// packet.
pub(crate) fn follow(socket: &Datagrams, first_last: bool, trips: u32) -> io::Result<()> {
    socket.size_buffers(4 << 20, 4 << 20)?;
    // The buffer of the first packet is large enough for the whole message.
    let (mut whole, mut other) = (vec![0; HEADER + COUNT * PIECE], [0; PACKET]);
    let mut from = Address::default();
    for _ in 0..trips {
        for position in 0..COUNT {
            if position == if first_last { COUNT - 1 } else { 0 } {
                receive(socket, &mut whole[..PACKET], Some(&mut from))?;
                continue;
            }
            receive(socket, &mut other, Some(&mut from))?;
            let at = HEADER + usize::from(other[0]).min(COUNT - 1) * PIECE;
            whole[at..at + PIECE].copy_from_slice(&other[HEADER..]);
        }
        black_box(&mut whole);
        socket.send(Window::of(&whole[..HEADER]), Some(&from), IfFull::Wait)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::far::listening;

    #[test]
    fn blasts_arrive_in_either_order() {
        for first_last in [false, true] {
            let (socket, to) = listening([127, 0, 0, 1].into()).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| follow(&socket, first_last, 4).unwrap());
                lead(to, first_last, 1, 4).unwrap();
            });
        }
    }
}
