//! The servers that a pool calls now, and which of them the next call takes.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use super::loads::Asking;
use crate::address::Address;
use crate::binding::Bound;
use crate::call::Frames;
use crate::path::balance::Balance;
use crate::sync::{Mutex, Rank};

/// The number of counters over which threads are spread, so that two threads rarely write to the same cache
/// line. A power of two.
const SHARDS: usize = 8;

/// A value with a cache line of its own.
#[repr(align(128))]
#[derive(Default)]
struct Own<T>(T);

/// A server that a pool calls. If it was left out and comes back, it is a new member.
pub(super) struct Member {
    pub(super) bound: Arc<Bound>,
    /// The frames of `bound`, which each choice looks at.
    frames: Arc<Frames>,
    /// The calls of other clients that were under way when the server was last asked.
    pub(super) others: AtomicU32,
    /// Where the server is asked for its load. `None`: no directory has said where it is.
    pub(super) address: Option<Address>,
    pub(super) asking: Mutex<Asking>,
}

impl Member {
    pub(super) fn new(bound: Bound, address: Option<Address>) -> Self {
        let asking = Mutex::ranked(Rank::PoolLoad, Asking::NotYet);
        let frames = Arc::clone(&bound.frames);
        Self { bound: Arc::new(bound), frames, others: AtomicU32::new(0), address, asking }
    }

    /// Returns the number of this pool's calls that are under way: those that use a frame, or
    /// that are pending.
    #[inline]
    pub(super) fn own_calls(&self) -> u32 {
        self.frames.in_use().max(self.frames.pending())
    }

    /// Returns the number of calls that the server probably runs.
    #[inline]
    fn load(&self) -> u32 {
        self.own_calls().saturating_add(self.others.load(Ordering::Relaxed))
    }
}

/// The servers that a pool calls now. The ones that it prefers come first.
#[derive(Default)]
pub(super) struct Members {
    pub(super) all: Box<[Arc<Member>]>,
    /// The number of servers at the beginning of `all` among which calls are spread. 0 if there are none.
    pub(super) preferred: u32,
}

impl Members {
    /// Returns the servers among which calls are spread.
    pub(super) fn preferred(&self) -> &[Arc<Member>] {
        &self.all[..self.preferred as usize]
    }
}

/// How a pool chooses a server for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// The first one: the order says everything.
    First,
    Random,
    InTurn,
    LessLoaded,
}

impl From<&Balance> for Choice {
    fn from(balance: &Balance) -> Self {
        match balance {
            Balance::First | Balance::Key(_) => Self::First,
            Balance::Random => Self::Random,
            Balance::RoundRobin => Self::InTurn,
            Balance::LeastLoaded => Self::LessLoaded,
        }
    }
}

impl Choice {
    /// Returns the place in [`Members::all`] of the server that a call takes. `turn` is a number that grows
    /// with the calls of a thread. There must be at least one preferred server.
    #[inline]
    pub(super) fn choose(self, members: &Members, turn: u32) -> usize {
        let count = members.preferred;
        if count == 1 {
            return 0;
        }
        match self {
            Self::First => 0,
            Self::InTurn => (turn % count) as usize,
            Self::Random => below(mixed(turn) as u32, count),
            Self::LessLoaded => {
                let random = mixed(turn);
                let one = below(random as u32, count);
                let load = members.all[one].load();
                // No server has less to do than an idle one.
                if load == 0 {
                    return one;
                }
                let distance = 1 + below((random >> 32) as u32, count - 1);
                let other = (one + distance) % count as usize;
                match members.all[other].load() < load {
                    true => other,
                    false => one,
                }
            }
        }
    }
}

/// Returns a number from 0 to `count` - 1 for a random number.
#[inline]
const fn below(random: u32, count: u32) -> usize {
    ((random as u64 * count as u64) >> 32) as usize
}

/// Returns a number whose bits depend on all bits of `number`: the output function of SplitMix64 (G. Steele,
/// D. Lea, C. Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014).
#[inline]
const fn mixed(number: u32) -> u64 {
    let mut z = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Numbers that grow with the calls of a pool's threads, and how many calls were made.
pub(super) struct Turns([Own<AtomicU32>; SHARDS]);

/// After this many calls of a thread, [`Turns::next`] says so. A power of two.
pub(super) const ROUND: u32 = 64;

impl Turns {
    /// Begins at random numbers, so that the threads and the clients begin with different servers.
    pub(super) fn new(mut random: impl FnMut() -> u32) -> Self {
        Self(core::array::from_fn(|_| Own(AtomicU32::new(random()))))
    }

    /// Returns a number that changes if calls are made.
    pub(super) fn sum(&self) -> u64 {
        self.0.iter().map(|one| u64::from(one.0.load(Ordering::Relaxed))).sum()
    }

    /// Returns the next number of a thread, and whether it has made [`ROUND`] calls. If two threads use the
    /// same counter at the same time, they may get the same number.
    #[inline]
    pub(super) fn next(&self, thread: u32) -> (u32, bool) {
        let counter = &self.0[thread as usize % SHARDS].0;
        let turn = counter.load(Ordering::Relaxed);
        counter.store(turn.wrapping_add(1), Ordering::Relaxed);
        (turn, turn.is_multiple_of(ROUND))
    }
}
