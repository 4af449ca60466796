//! A bridge in the middle of a link, which harms Peregrine's frames as [`Weather`] says, or lets none
//! of them through, and passes on everything else as it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use super::link::Link;
use super::tap::{OURS, TO_DO, Tap, ether_type};
use super::weather::{UnderWay, Weather};

/// Bytes before a packet in a frame.
pub(crate) const BEFORE: usize = 18;
const FRAME_MAX: usize = (1 << 16) + 64;

/// What a bridge has seen, and is told.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Peregrine's frames.
    pub(crate) frames: AtomicU64,
    /// Those of them whose packet is of a kind: byte 3 of its header.
    pub(crate) kinds: [AtomicU64; 16],
    /// Frames of others.
    pub(crate) others: AtomicU64,
    /// Whether none of Peregrine's frames gets through.
    pub(crate) cut: AtomicBool,
    /// Whether nothing at all gets through.
    pub(crate) dark: AtomicBool,
    /// If not 0: every packet is dropped after this many more bytes to the near end.
    pub(crate) dark_after: AtomicUsize,
    /// Packets of the internet that have more bytes vanish, if this is not 0; and how many have.
    pub(crate) narrow: AtomicUsize,
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

/// A bridge, and the thread that is it.
pub(crate) struct Bridge {
    pub(crate) seen: Arc<Seen>,
    thread: Option<JoinHandle<()>>,
}

impl Bridge {
    /// Joins the ends of a link that has a [middle](Link::with_middle). `tap` sees Peregrine's frames
    /// before anything happens to them, and to which end they go.
    pub(crate) fn new(
        link: &Link,
        weather: Weather,
        seed: u64,
        mut tap: impl FnMut(usize, &[u8]) + Send + 'static,
    ) -> Self {
        let names = link.middle().map(str::to_owned);
        let taps =
            link.at(2, move || names.map(|name| Tap::passing_on(&name).expect("a raw socket")));
        let seen = Arc::<Seen>::default();
        let told = Arc::clone(&seen);
        let run = move || {
            let mut under_way = UnderWay::new(weather, seed, BEFORE);
            while !told.stopped.load(Ordering::Relaxed) {
                step(&taps, &told, &mut under_way, &mut tap);
            }
        };
        Self { seen, thread: Some(std::thread::spawn(run)) }
    }

    /// Peregrine's frames so far: all, those of calls, those of results.
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

/// Bytes of the largest packet that a frame brings: it may be a train, which has yet to be cut.
fn packet_bytes(frame: &[u8]) -> usize {
    const ETHERNET: usize = 14;
    const IP_AND_UDP: usize = 28;
    // A `virtio_net_hdr`: flags, kind of train, bytes of headers, bytes of each piece.
    let piece = usize::from(u16::from_le_bytes([frame[4], frame[5]]));
    let whole = frame.len().saturating_sub(TO_DO + ETHERNET);
    if frame[1] == 0 { whole } else { whole.min(piece + IP_AND_UDP) }
}

/// Waits for frames, 20 ms at most, and passes on what has come and what is due.
fn step(
    taps: &[Tap; 2],
    seen: &Seen,
    under_way: &mut UnderWay<usize>,
    tap: &mut impl FnMut(usize, &[u8]),
) {
    let wait = under_way.rest(Duration::from_millis(20)).subsec_nanos();
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
            let whole = &frame[..bytes.max(TO_DO)];
            let narrow = seen.narrow.load(Ordering::SeqCst);
            if narrow > 0 && packet_bytes(whole) > narrow {
                seen.vanished.fetch_add(1, Ordering::SeqCst);
                continue;
            }
            if ether_type(&whole[TO_DO..]) != Some(OURS) {
                seen.others.fetch_add(1, Ordering::SeqCst);
                let _ = taps[to].send(whole);
                continue;
            }
            let ours = &whole[TO_DO..];
            tap(to, ours);
            seen.frames.fetch_add(1, Ordering::SeqCst);
            if let Some(count) =
                ours.get(BEFORE + 3).and_then(|kind| seen.kinds.get(usize::from(*kind)))
            {
                count.fetch_add(1, Ordering::SeqCst);
            }
            if !seen.cut.load(Ordering::SeqCst) {
                under_way.begin(to, ours);
            }
        }
    }
    while let Some((to, ours)) = under_way.arrive() {
        // Nothing is left to be done to it. What an interface does not take is lost.
        let _ = taps[to].send(&[&[0; TO_DO][..], &ours].concat());
    }
}
