//! Compares three ways to write the header of a packet:
//!
//! * *fields*: all fields are written for each packet, and the checksum covers all of them. The library does this,
//!   and this program uses its code.
//! * *template*: the first 24 bytes were written at bind, with their checksum. The other fields are written for
//!   each packet, and the checksum is continued (Peregrine, 4.1).
//! * *patched*: the header of the last packet is kept. Only the sequence, the serials and the length are written
//!   into it, and the checksum of the first 24 bytes is continued. This suffices only for calls that fit one
//!   packet and have the procedure and flags of the last one.
//!
//!     cargo run --release -p peregrine-bench --example header
//!
//! The ways alternate round by round. Each prints its median.

#![allow(dead_code, reason = "the library's modules have more functions than this program uses")]
#![allow(unexpected_cfgs, reason = "the library has features that this program does not have")]

#[path = "../../peregrine/src/protocol/exchange/header.rs"]
mod header;
#[path = "../../peregrine/src/protocol/exchange/message.rs"]
mod message;

use std::hint::black_box;
use std::time::Instant;

use header::{HEADER_BYTES, Handle, Header, PacketKind, checksum, checksum_more};
use message::Shape;

/// The number of headers in a round, and the number of rounds.
const HEADERS: u32 = 200_000;
const ROUNDS: usize = 61;
/// The bytes that are the same for all packets of a handle: the magic, the kind, and the handle.
const SAME: usize = 24;

/// What is made at bind.
struct Template {
    bytes: [u8; HEADER_BYTES],
    /// The checksum of the first [`SAME`] bytes, with zeros as the check.
    check: u32,
    /// The flags of all headers of this program. The library's type does not show them.
    flags: u16,
}

impl Template {
    fn new(header: &Header) -> Self {
        let mut bytes = [0; HEADER_BYTES];
        header.emit(&mut bytes);
        bytes[4..8].fill(0);
        Self { check: checksum(&bytes[..SAME]), bytes, flags: 0 }
    }

    /// Writes a header of the template's handle. It equals what [`Header::emit`] writes.
    #[inline]
    fn emit(&self, header: &Header, out: &mut [u8; HEADER_BYTES]) {
        let mut words = [0_u64; 5];
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let halves = |low: u16, high: u16| u32::from(low) | u32::from(high) << 16;
        words[0] = pair(header.sequence, halves(self.flags, header.serial));
        words[1] = pair(header.shape.what, header.shape.total);
        words[2] = pair(header.shape.head, header.shape.at);
        words[3] = pair(header.fragment, halves((header.piece / 16) as u16, header.credits));
        words[4] = pair(header.check, halves(header.shape.extension, header.echo));
        out[..SAME].copy_from_slice(&self.bytes[..SAME]);
        for (to, from) in out[SAME..].as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *to = from.to_le_bytes();
        }
        let check = checksum_more(self.check, &out[SAME..]);
        out[4..8].copy_from_slice(&check.to_le_bytes());
    }

    /// Patches the header of the last packet, and copies it to where it is sent from.
    #[inline]
    fn patch(&mut self, header: &Header, out: &mut [u8; HEADER_BYTES]) {
        self.bytes[24..28].copy_from_slice(&header.sequence.to_le_bytes());
        self.bytes[30..32].copy_from_slice(&header.serial.to_le_bytes());
        self.bytes[36..40].copy_from_slice(&header.shape.total.to_le_bytes());
        self.bytes[62..64].copy_from_slice(&header.echo.to_le_bytes());
        *out = self.bytes;
        let check = checksum_more(self.check, &self.bytes[SAME..]);
        out[4..8].copy_from_slice(&check.to_le_bytes());
    }
}

fn call(number: u32) -> Header {
    let handle = Handle { place: 7, secret: *b"twelve bytes" };
    let mut header = Header::new(PacketKind::Call, handle, number);
    (header.serial, header.echo) = (number as u16, (number >> 1) as u16);
    header.shape = Shape { what: 3, total: number & 1023, ..Shape::default() };
    (header.piece, header.credits) = (1408, 48);
    header
}

/// Measures one way, in nanoseconds for each header.
fn measure(mut emit: impl FnMut(&Header, &mut [u8; HEADER_BYTES])) -> f64 {
    let mut out = [0; HEADER_BYTES];
    let begun = Instant::now();
    for number in 0..HEADERS {
        emit(&black_box(call(number)), black_box(&mut out));
    }
    begun.elapsed().as_nanos() as f64 / f64::from(HEADERS)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let mut template = Template::new(&call(0));
    for number in [0, 1, 4711, u32::MAX] {
        let mut outs = [[0; HEADER_BYTES]; 3];
        call(number).emit(&mut outs[0]);
        template.emit(&call(number), &mut outs[1]);
        template.patch(&call(number), &mut outs[2]);
        assert!(outs[0] == outs[1] && outs[0] == outs[2], "all ways write the same header");
    }
    let mut times = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        let round = [
            measure(|header, _| {
                black_box(header);
            }),
            measure(Header::emit),
            measure(|header, out| template.emit(header, out)),
            measure(|header, out| template.patch(header, out)),
        ];
        times.iter_mut().zip(round).for_each(|(times, time)| times.push(time));
    }
    let [nothing, ways @ ..] = times.map(median);
    for (name, time) in ["fields", "template", "patched"].into_iter().zip(ways) {
        println!("{name:10} {:5.1} ns, without the loop {:5.1} ns", time, time - nothing);
    }
}
