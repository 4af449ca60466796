//! Emulates a link between two TUN devices, with a given rate, delay, queue and loss. It is used instead of
//! netem, because not every kernel has netem. The *relay* carries the packets: it is one thread for each
//! direction.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use peregrine::sys::Tun;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The size in bytes of a full packet with its Ethernet header.
const PACKET: u64 = 1514;
const ETHERNET_HEADER: u64 = 14;
/// The smallest number of packets that a queue holds.
const QUEUE_MIN: u64 = 100;
const PACKET_MAX: usize = 2048;
/// The largest number of packets that the relay reads before it sends the packets that are due.
const BATCH: usize = 32;
/// A packet counts as late if it leaves more than this time after it was due.
const LATE: Duration = Duration::from_millis(1);
/// The longest time until the relay checks whether it has to stop.
const REST_MAX: Duration = Duration::from_millis(20);

/// The properties of a link. They are the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) mbit: u64,
    /// The time of a round trip with empty queues, in milliseconds.
    pub(super) rtt_ms: u64,
    /// The number of packets per thousand that are lost at random.
    pub(super) loss: u64,
    /// The size of the queue, in percent of the bytes that a full link has in flight.
    pub(super) queue: u64,
}

impl Shape {
    const fn bytes_per_second(self) -> u64 {
        self.mbit * 1_000_000 / 8
    }

    /// Returns the size of the queue in bytes. The size is at least [`QUEUE_MIN`] packets.
    pub(super) fn queue_bytes(self) -> u64 {
        let under_way = self.bytes_per_second() * self.rtt_ms / 1000;
        (under_way * self.queue / 100).max(QUEUE_MIN * PACKET)
    }
}

/// Counters of one direction of a link.
#[derive(Debug, Default)]
pub(super) struct Carried {
    /// The number of bytes of UDP packets, with their IP headers.
    pub(super) udp: AtomicU64,
    /// The number of bytes of TCP packets, with their IP headers.
    pub(super) tcp: AtomicU64,
    packets: AtomicU64,
    /// The number of packets that left more than [`LATE`] after the time at which they were due.
    late: AtomicU64,
}

impl Carried {
    /// Returns the share of packets that left too late. This share shows whether the relay is too slow for
    /// the link.
    pub(super) fn late(&self) -> f64 {
        let packets = self.packets.load(Ordering::Relaxed).max(1);
        self.late.load(Ordering::Relaxed) as f64 / packets as f64
    }

    fn note(&self, packet: &[u8], late: Duration) {
        let of = match packet.get(9) {
            Some(17) => &self.udp,
            Some(6) => &self.tcp,
            _ => return,
        };
        of.fetch_add(packet.len() as u64, Ordering::Relaxed);
        self.packets.fetch_add(1, Ordering::Relaxed);
        if late > LATE {
            self.late.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Carries packets in one direction until `stop` is set.
pub(super) fn carry(
    [from, to]: [&Tun; 2],
    shape: Shape,
    mut random: u64,
    stop: &AtomicBool,
    carried: &Carried,
) -> io::Result<()> {
    let mut under_way: VecDeque<(Instant, Box<[u8]>)> = VecDeque::new();
    let delay = Duration::from_micros(shape.rtt_ms * 500);
    let (rate, queue) = (shape.bytes_per_second(), shape.queue_bytes());
    let mut free = Instant::now();
    let mut packet = [0; PACKET_MAX];
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..BATCH {
            let Ok(bytes) = rustix::io::read(from, &mut packet) else { break };
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let now = Instant::now();
            let waits = free.saturating_duration_since(now);
            let waiting = (waits.as_nanos() * u128::from(rate) / 1_000_000_000) as u64;
            let bytes_on_link = bytes as u64 + ETHERNET_HEADER;
            if random % 1000 < shape.loss || waiting + bytes_on_link > queue {
                continue;
            }
            free = free.max(now) + Duration::from_nanos(bytes_on_link * 1_000_000_000 / rate);
            under_way.push_back((free + delay, packet[..bytes].into()));
        }
        let now = Instant::now();
        while let Some((due, packet)) = under_way.front()
            && *due <= now
        {
            carried.note(packet, now - *due);
            // A packet that the other side does not accept is lost.
            let _ = rustix::io::write(to, packet);
            under_way.pop_front();
        }
        let rest = under_way
            .front()
            .map_or(REST_MAX, |(due, _)| due.saturating_duration_since(Instant::now()));
        let rest = Timespec::try_from(rest.min(REST_MAX)).unwrap_or_default();
        let _ = poll(&mut [PollFd::new(from, PollFlags::IN)], Some(&rest));
    }
    Ok(())
}
