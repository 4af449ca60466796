//! A link with a rate, a delay, a queue and losses, between two TUN devices: this kernel has no netem.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use peregrine::sys::Tun;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Bytes of a full packet with Ethernet's header.
const PACKET: u64 = 1514;
/// Packets that a queue holds at least.
const QUEUE_MIN: u64 = 100;
const PACKET_MAX: usize = 2048;

/// What a link is like, each way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) mbit: u64,
    /// There and back.
    pub(super) rtt_ms: u64,
    /// Packets lost, of a thousand.
    pub(super) loss: u64,
}

impl Shape {
    const fn bytes_per_second(self) -> u64 {
        self.mbit * 1_000_000 / 8
    }

    /// Bytes that wait at most: as many as are under way, or [`QUEUE_MIN`] packets.
    pub(super) fn queue(self) -> u64 {
        (self.bytes_per_second() * self.rtt_ms / 1000).max(QUEUE_MIN * PACKET)
    }
}

/// Carries packets one way until told to stop. `late` is by how many nanoseconds a packet left too late at
/// most: a relay that is too slow for the rate shows in it.
pub(super) fn carry(
    [from, to]: [&Tun; 2],
    shape: Shape,
    mut random: u64,
    stop: &AtomicBool,
    late: &AtomicU64,
) -> io::Result<()> {
    let mut under_way: VecDeque<(Instant, Box<[u8]>)> = VecDeque::new();
    let delay = Duration::from_micros(shape.rtt_ms * 500);
    let (rate, queue) = (shape.bytes_per_second(), shape.queue());
    let mut free = Instant::now();
    let mut packet = [0; PACKET_MAX];
    while !stop.load(Ordering::Relaxed) {
        // A few at a time, so that what is due leaves.
        for _ in 0..32 {
            let Ok(bytes) = rustix::io::read(from, &mut packet) else { break };
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let now = Instant::now();
            let waits = free.saturating_duration_since(now);
            let waiting = (waits.as_nanos() * u128::from(rate) / 1_000_000_000) as u64;
            let bytes_on_link = bytes as u64 + 14;
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
            late.fetch_max((now - *due).as_nanos() as u64, Ordering::Relaxed);
            // What the other side does not take is lost.
            let _ = rustix::io::write(to, packet);
            under_way.pop_front();
        }
        let rest = under_way.front().map_or(Duration::from_millis(20), |(due, _)| {
            due.saturating_duration_since(Instant::now())
        });
        let rest = Timespec::try_from(rest.min(Duration::from_millis(20))).unwrap_or_default();
        let _ = poll(&mut [PollFd::new(from, PollFlags::IN)], Some(&rest));
    }
    Ok(())
}
