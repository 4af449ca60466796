//! `Stat`: what a server has counted up to one moment, added up.

use std::time::Duration;

use super::histogram::{BUCKETS, bounds};
use crate::interface::Digest;

/// What a server has counted since it began, as of one moment.
///
/// Counts are taken while the server goes on: those of one row may be some nanoseconds older than those
/// of another.
///
/// ```
/// # use peregrine::{interface, Server};
/// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
/// # struct Same;
/// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
/// let running = Server::new().export("stat-example", EchoServer::new(Same))?.spawn()?;
/// let echo = EchoClient::bind("stat-example")?;
/// echo.echo(7)?;
/// let stat = peregrine::stat("stat-example")?;
/// assert_eq!(stat.export("stat-example").expect("it is exported").counts.calls, 1);
/// assert_eq!((stat.sessions.len(), stat.bindings.len()), (1, 1));
/// # Ok::<(), peregrine::CallError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, peregrine_macros::Value)]
pub struct Stat {
    /// The server as a whole.
    pub server: ServerStat,
    /// What it exports.
    pub exports: Vec<ExportStat>,
    /// Client processes, connections, and associations over datagrams; empty if they are not told.
    pub sessions: Vec<SessionStat>,
    /// What they are bound to; empty if they are not told.
    pub bindings: Vec<BindingStat>,
}

/// A server as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, peregrine_macros::Value)]
pub struct ServerStat {
    /// Its process, on its own machine.
    pub process: u32,
    /// How long ago it began, in milliseconds.
    pub age_ms: u64,
    /// When this was counted, in nanoseconds since the server's machine was started.
    pub at_ns: u64,
    /// Threads that serve calls over shared memory, over TCP and over datagrams, including those that
    /// wait for one.
    pub threads: [u32; 3],
    /// Of all that it exports, or has exported.
    pub counts: Counts,
    /// How its threads waited for calls.
    pub waits: WaitCounts,
    /// Packets of results that were sent again: they, or the word that they had come, were lost.
    pub resent: u64,
    /// Packets that had come before, and were answered by what was known of their call.
    pub came_again: u64,
    /// Calls that wait for a thread.
    pub queued: u64,
    /// Calls whose callers have given them up and that still run, over shared memory (each keeps an
    /// A-stack captured), TCP and datagrams.
    pub captured: [u64; 3],
    /// Sessions, those among them that are not in [`Stat::sessions`].
    pub sessions: u64,
    /// Bindings, those among them that are not in [`Stat::bindings`].
    pub bindings: u64,
}

/// One export.
#[derive(Clone, Debug, Default, PartialEq, Eq, peregrine_macros::Value)]
pub struct ExportStat {
    /// Its name; empty for all exports behind the [63rd](crate::limits::COUNTED_EXPORTS), which are
    /// counted as one.
    pub name: String,
    /// Name and version of its interface.
    pub interface: String,
    /// The same.
    pub version: u32,
    /// The identity of its interface, as bytes: [`ExportStat::digest`].
    pub digest: [u8; 16],
    /// How long ago it began, in milliseconds.
    pub age_ms: u64,
    /// Bindings that stand.
    pub bindings: u64,
    /// Of all its bindings, those that are over among them.
    pub counts: Counts,
    /// How long its procedures took.
    pub latency: Latency,
}

/// One session: a client process over shared memory, a connection over TCP, or, over datagrams, what
/// one thread of a client bound.
#[derive(Clone, Debug, Default, PartialEq, Eq, peregrine_macros::Value)]
pub struct SessionStat {
    /// Differs from that of every other session of the server.
    pub number: u64,
    /// `local`, `tcp`, `udp` or `ethernet`.
    pub path: String,
    /// The client's process; over a network 0, for nobody vouches for it.
    pub process: u32,
    /// Its user; over a network [`u32::MAX`], which is nobody.
    pub user: u32,
    /// Its group; over a network [`u32::MAX`].
    pub group: u32,
    /// Address and port, or Ethernet address, from which it came; empty on this machine's own path.
    pub from: String,
    /// How long ago it began, in milliseconds.
    pub age_ms: u64,
    /// Bindings that it has.
    pub bindings: u64,
    /// Of all these.
    pub counts: Counts,
}

/// One binding.
#[derive(Clone, Debug, Default, PartialEq, Eq, peregrine_macros::Value)]
pub struct BindingStat {
    /// With [`began_ns`](Self::began_ns), differs from that of every other binding of the server.
    pub number: u32,
    /// When it began, in nanoseconds since the server's machine was started.
    pub began_ns: u64,
    /// The [number](SessionStat::number) of its session; 0 if that is not shown.
    pub session: u64,
    /// The name of the export.
    pub export: String,
    /// How long ago it began, in milliseconds.
    pub age_ms: u64,
    /// Its own.
    pub counts: Counts,
}

/// What is counted of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, peregrine_macros::Value)]
pub struct Counts {
    /// Calls that ran, or run.
    pub calls: u64,
    /// Those of them that have not ended.
    pub in_flight: u64,
    /// Calls that were answered without running: not executed.
    pub refused: u64,
    /// Calls that ended with an error of the procedure's own, or without a result.
    pub failed: u64,
    /// Bytes of the messages of calls that ran.
    pub bytes_in: u64,
    /// Bytes of heads and out buffers of their results.
    pub bytes_out: u64,
}

/// How threads waited for calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, peregrine_macros::Value)]
pub struct WaitCounts {
    /// Waits that ended while the thread looked.
    pub spun: u64,
    /// Times that a thread slept.
    pub slept: u64,
}

/// How long procedures took, from before the arguments are read until the result is in place.
///
/// Of calls shorter than 4 us that come one after the other one in 64 is timed, chosen at random, and
/// stands for 64; all others are timed.
#[derive(Clone, Debug, Default, PartialEq, Eq, peregrine_macros::Value)]
pub struct Latency {
    /// Up to the last one that is not zero.
    pub(super) buckets: Vec<u64>,
}

impl Latency {
    /// Calls that it is of, about.
    pub fn calls(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The time within which this part of all calls ended, to a sixteenth; `None` if none was timed.
    ///
    /// ```
    /// # use peregrine::counters::Latency;
    /// assert_eq!(Latency::default().percentile(0.99), None);
    /// ```
    pub fn percentile(&self, part: f64) -> Option<Duration> {
        let all = self.calls();
        let rank = ((all as f64 * part.clamp(0.0, 1.0)).ceil() as u64).clamp(1, all.max(1));
        let mut below = 0u64;
        let found = self.buckets.iter().position(|count| {
            below = below.saturating_add(*count);
            below >= rank
        });
        let (from, to) = bounds(found?.min(BUCKETS - 1));
        Some(Duration::from_nanos(from.midpoint(to)))
    }

    /// What came since an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = earlier.buckets.iter().copied().chain(core::iter::repeat(0));
        let buckets = self.buckets.iter().zip(before);
        Self { buckets: buckets.map(|(now, before)| now.saturating_sub(before)).collect() }
    }

    /// Of both.
    pub(super) fn add(&mut self, other: &Self) {
        let longer = self.buckets.len().max(other.buckets.len());
        self.buckets.resize(longer, 0);
        for (sum, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum = sum.saturating_add(*more);
        }
    }
}

impl Counts {
    /// What came since an earlier moment; in flight are those that are now.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            calls: self.calls.saturating_sub(earlier.calls),
            in_flight: self.in_flight,
            refused: self.refused.saturating_sub(earlier.refused),
            failed: self.failed.saturating_sub(earlier.failed),
            bytes_in: self.bytes_in.saturating_sub(earlier.bytes_in),
            bytes_out: self.bytes_out.saturating_sub(earlier.bytes_out),
        }
    }

    pub(super) const fn add(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.in_flight = self.in_flight.saturating_add(other.in_flight);
        self.refused = self.refused.saturating_add(other.refused);
        self.failed = self.failed.saturating_add(other.failed);
        self.bytes_in = self.bytes_in.saturating_add(other.bytes_in);
        self.bytes_out = self.bytes_out.saturating_add(other.bytes_out);
    }
}

impl ExportStat {
    /// The identity of its interface.
    pub const fn digest(&self) -> Digest {
        Digest(self.digest)
    }
}

impl Stat {
    /// The export of that name.
    pub fn export(&self, name: &str) -> Option<&ExportStat> {
        self.exports.iter().find(|export| export.name == name)
    }

    /// How long procedures of all exports took.
    pub fn latency(&self) -> Latency {
        let mut all = Latency::default();
        self.exports.iter().for_each(|export| all.add(&export.latency));
        all
    }
}
