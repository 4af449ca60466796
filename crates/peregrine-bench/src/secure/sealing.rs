//! The limit `plain-and-sealing`: the time of a call without encryption, and the time in which its packets
//! are sealed and opened. The latter is measured alone, on one thread, in the same round.

use std::hint::black_box;
use std::time::Instant;

use rustls::crypto::ring;
use rustls::quic::{PacketKey, Version};

use super::PLAIN_AND_SEALING;
use crate::cases::{Case, Waiting};
use crate::network::far::Far;
use crate::network::link::Link;
use crate::network::path::Path;
use crate::network::wire::{HEADER, IP_UDP};
use crate::network::{Subject, ours, per_call};
use crate::subject::{Failure, Sample};

/// The number of bytes that sealing adds to a packet.
const TAG: usize = 16;

/// The keys of one direction: the key that seals, and the key that opens.
struct Direction {
    seal: Box<dyn PacketKey>,
    open: Box<dyn PacketKey>,
    number: u64,
}

impl Direction {
    /// Returns the keys of the cipher suite that `rustls` negotiates with itself.
    fn new() -> Result<Self, Failure> {
        let provider = ring::default_provider();
        let suite = provider.cipher_suites.iter().find_map(|suite| suite.tls13()?.quic_suite());
        let suite = suite.ok_or("no cipher suite seals packets")?;
        let keys = |side| suite.keys(b"bench", side, Version::V1);
        let (client, server) = (keys(rustls::Side::Client), keys(rustls::Side::Server));
        Ok(Self { seal: client.local.packet, open: server.remote.packet, number: 0 })
    }

    /// Seals a packet whose body has `bytes` bytes, and opens it again. `body` has space for the tag.
    fn pass(&mut self, body: &mut [u8], bytes: usize) -> Result<(), Failure> {
        let header = black_box([0x5a; HEADER]);
        let (payload, rest) = black_box(&mut *body).split_at_mut(bytes);
        let tag = self.seal.encrypt_in_place(self.number, &header, payload)?;
        rest[..TAG].copy_from_slice(tag.as_ref());
        let sealed = black_box(&mut body[..bytes + TAG]);
        let opened = self.open.decrypt_in_place(self.number, &header, sealed)?;
        self.number += 1;
        black_box(opened);
        Ok(())
    }
}

/// Returns the sizes of the bodies of the packets that carry `bytes` bytes across a link.
fn bodies(bytes: usize, link: Link) -> Vec<usize> {
    let piece = (link.mtu() - IP_UDP - HEADER - TAG) & !15;
    let count = bytes.div_ceil(piece).max(1);
    (0..count).map(|at| (bytes - at * piece).min(piece)).collect()
}

/// The limit.
pub(super) struct PlainAndSealing {
    plain: Box<dyn Subject>,
    keys: Direction,
    /// The sizes of the bodies of all packets of a call, in both directions.
    bodies: Vec<usize>,
    body: Vec<u8>,
}

impl PlainAndSealing {
    pub(super) fn new(path: Path, case: Case, wait: Waiting, link: Link) -> Result<Self, Failure> {
        let bodies = [bodies(case.in_bytes, link), bodies(case.out_bytes, link)].concat();
        let body = vec![0xa5; bodies.iter().max().unwrap_or(&0) + TAG];
        Ok(Self { plain: ours(path, case, wait), keys: Direction::new()?, bodies, body })
    }

    /// Returns the mean time in nanoseconds of sealing and opening all packets of a call.
    fn sealing_ns(&mut self, calls: u32) -> Result<f64, Failure> {
        let mut all = |calls: u32| {
            for _ in 0..calls {
                for bytes in &self.bodies {
                    self.keys.pass(&mut self.body, *bytes)?;
                }
            }
            Ok::<(), Failure>(())
        };
        all(calls.div_ceil(8))?;
        let start = Instant::now();
        all(calls)?;
        Ok(per_call(start.elapsed(), calls).ns)
    }
}

impl Subject for PlainAndSealing {
    fn name(&self) -> &'static str {
        PLAIN_AND_SEALING
    }

    fn run(&mut self, far: &mut Far, warm: u32, calls: u32) -> Result<Sample, Failure> {
        let plain = self.plain.run(far, warm, calls)?;
        let sealing = self.sealing_ns(calls)?;
        Ok(Sample { ns: plain.ns + sealing, cpu_ns: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_sealed_and_opened() {
        let mut keys = Direction::new().unwrap();
        for bytes in [0, 1, 1392] {
            let mut body = vec![7; bytes + TAG];
            keys.pass(&mut body, bytes).unwrap();
            assert!(body[..bytes].iter().all(|byte| *byte == 7));
        }
        // A packet does not open under another number, so it is really sealed.
        let mut body = vec![7; 64 + TAG];
        let tag = keys.seal.encrypt_in_place(9, &[], &mut body[..64]).unwrap();
        body[64..].copy_from_slice(tag.as_ref());
        assert!(body[..64].iter().any(|byte| *byte != 7));
        assert!(keys.open.decrypt_in_place(8, &[], &mut body).is_err());
    }

    #[test]
    fn bodies_of_packets_have_all_bytes_of_the_message() {
        assert_eq!(bodies(0, Link::Loopback), [0]);
        let all = bodies(48_000, Link::Veth);
        assert_eq!((all.len(), all.iter().sum::<usize>()), (35, 48_000));
        let fits = |body: &usize| body + HEADER + TAG + IP_UDP <= Link::Veth.mtu();
        assert!(all.iter().all(fits));
    }
}
