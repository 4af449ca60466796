//! A bridge in the middle of a link. It impairs Peregrine's Ethernet frames as [`Impairments`] says, or drops
//! all of them. It forwards all other frames unchanged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use super::impairments::{Impairments, InFlight};
use super::link::Link;
use super::tap::{PEREGRINE_TYPE, Tap, VNET_HEADER_BYTES, ether_type};

/// The number of bytes before Peregrine's packet in an Ethernet frame: the Ethernet header and Peregrine's
/// link header.
pub(crate) const LINK_HEADER_BYTES: usize = 18;
const FRAME_MAX: usize = (1 << 16) + 64;

/// What a bridge has counted, and the settings that a test changes while the bridge runs.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The number of Peregrine's frames.
    pub(crate) frames: AtomicU64,
    /// The number of Peregrine's frames by kind of packet, which is byte 3 of the packet's header.
    pub(crate) kinds: [AtomicU64; 17],
    /// The number of frames that are not Peregrine's.
    pub(crate) others: AtomicU64,
    /// Whether the bridge drops all of Peregrine's frames.
    pub(crate) cut: AtomicBool,
    /// Whether the bridge drops all frames.
    pub(crate) dark: AtomicBool,
    /// If this is not 0: the bridge drops all frames after it has received this number of further bytes for
    /// the near end.
    pub(crate) dark_after: AtomicUsize,
    /// If this is not 0: the size in bytes of the largest IP packet that the bridge forwards. The bridge
    /// drops larger packets.
    pub(crate) narrow: AtomicUsize,
    /// The number of packets that were dropped because they were larger than `narrow`.
    pub(crate) vanished: AtomicU64,
    stopped: AtomicBool,
}

impl Seen {
    fn count_to_near_end(&self, bytes: usize) {
        let left = self.dark_after.load(Ordering::SeqCst);
        if left == 0 {
            return;
        }
        self.dark_after.store(left.saturating_sub(bytes), Ordering::SeqCst);
        if left <= bytes {
            self.dark.store(true, Ordering::SeqCst);
        }
    }
}

/// A bridge and its thread.
pub(crate) struct Bridge {
    pub(crate) seen: Arc<Seen>,
    thread: Option<JoinHandle<()>>,
}

impl Bridge {
    /// Connects the two ends of a link that has a [middle](Link::with_middle). For each of Peregrine's
    /// frames, `tap` gets the destination (end 0 or 1) and the bytes, before the bridge impairs the frame.
    pub(crate) fn new(
        link: &Link,
        impairments: Impairments,
        seed: u64,
        mut tap: impl FnMut(usize, &[u8]) + Send + 'static,
    ) -> Self {
        let names = link.middle().map(str::to_owned);
        let taps =
            link.at(2, move || names.map(|name| Tap::passing_on(&name).expect("a raw socket")));
        let seen = Arc::<Seen>::default();
        let shared = Arc::clone(&seen);
        let run = move || {
            let mut in_flight = InFlight::new(impairments, seed, LINK_HEADER_BYTES);
            while !shared.stopped.load(Ordering::Relaxed) {
                step(&taps, &shared, &mut in_flight, &mut tap);
            }
        };
        Self { seen, thread: Some(std::thread::spawn(run)) }
    }

    /// Returns three numbers of Peregrine's frames so far: all frames, frames with calls, and frames with
    /// results.
    pub(crate) fn counted(&self) -> [u64; 3] {
        let Seen { frames, kinds, .. } = &*self.seen;
        [frames, &kinds[1], &kinds[2]].map(|count| count.load(Ordering::SeqCst))
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.seen.stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns the size in bytes of the largest IP packet in a frame. The frame may be a batch of packets that
/// segmentation offload has not cut yet.
fn packet_bytes(frame: &[u8]) -> usize {
    const ETHERNET: usize = 14;
    const IP_AND_UDP: usize = 28;
    // The fields of `virtio_net_hdr`: flags, kind of batch, size of the headers, size of each segment.
    let piece = usize::from(u16::from_le_bytes([frame[4], frame[5]]));
    let whole = frame.len().saturating_sub(VNET_HEADER_BYTES + ETHERNET);
    if frame[1] == 0 { whole } else { whole.min(piece + IP_AND_UDP) }
}

/// Waits at most 20 ms for frames, receives them, and forwards the frames that are due.
fn step(
    taps: &[Tap; 2],
    seen: &Seen,
    in_flight: &mut InFlight<usize>,
    tap: &mut impl FnMut(usize, &[u8]),
) {
    let wait = in_flight.rest(Duration::from_millis(20)).subsec_nanos();
    let wait = rustix::time::Timespec { tv_sec: 0, tv_nsec: wait.into() };
    let mut fds = [0, 1].map(|end| PollFd::new(&taps[end], PollFlags::IN));
    let _ = poll(&mut fds, Some(&wait));
    let mut frame = [0; FRAME_MAX];
    for from in 0..2 {
        let to = 1 - from;
        for _ in 0..256 {
            let Some(bytes) = taps[from].receive(&mut frame) else { break };
            if to == 0 {
                seen.count_to_near_end(bytes);
            }
            if seen.dark.load(Ordering::SeqCst) {
                continue;
            }
            let whole = &frame[..bytes.max(VNET_HEADER_BYTES)];
            let narrow = seen.narrow.load(Ordering::SeqCst);
            if narrow > 0 && packet_bytes(whole) > narrow {
                seen.vanished.fetch_add(1, Ordering::SeqCst);
                continue;
            }
            if ether_type(&whole[VNET_HEADER_BYTES..]) != Some(PEREGRINE_TYPE) {
                seen.others.fetch_add(1, Ordering::SeqCst);
                let _ = taps[to].send(whole);
                continue;
            }
            let ours = &whole[VNET_HEADER_BYTES..];
            tap(to, ours);
            seen.frames.fetch_add(1, Ordering::SeqCst);
            if let Some(count) =
                ours.get(LINK_HEADER_BYTES + 3).and_then(|kind| seen.kinds.get(usize::from(*kind)))
            {
                count.fetch_add(1, Ordering::SeqCst);
            }
            if !seen.cut.load(Ordering::SeqCst) {
                in_flight.begin(to, ours);
            }
        }
    }
    while let Some((to, ours)) = in_flight.arrive() {
        // The zeros are a `virtio_net_hdr` without offloads. A frame that the interface does not accept is
        // lost.
        let _ = taps[to].send(&[&[0; VNET_HEADER_BYTES][..], &ours].concat());
    }
}
