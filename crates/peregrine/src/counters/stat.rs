//! `Stat`: the counts of a server at one moment.

use std::time::Duration;

use super::histogram::{BUCKETS, bounds};
use super::procedures::ProcedureStat;
use crate::interface::Digest;

/// The counts of a server since it began, at one moment.
///
/// The counts are read while the server continues. So the counts of one binding, for example, may be some
/// nanoseconds older than the counts of another one.
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
    /// The values of the server as a whole.
    pub server: ServerStat,
    /// The exports of the server.
    pub exports: Vec<ExportStat>,
    /// Client processes, connections, and associations over datagrams. Empty if they are not disclosed.
    pub sessions: Vec<SessionStat>,
    /// The bindings of clients. Empty if they are not disclosed.
    pub bindings: Vec<BindingStat>,
    /// The procedures for which the server keeps something, such as a census. There are at most
    /// [512](crate::limits::COUNTED_PROCEDURES). `None` if the server is of an earlier
    /// version.
    pub procedures: Option<Vec<ProcedureStat>>,
}

/// The values of a server as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, peregrine_macros::Value)]
pub struct ServerStat {
    /// The number of the server's process on its machine.
    pub process: u32,
    /// How long ago the server began, in milliseconds.
    pub age_ms: u64,
    /// When these values were read, in nanoseconds since the server's machine was started.
    pub at_ns: u64,
    /// The numbers of threads that serve calls over shared memory, over TCP and over datagrams, including
    /// threads that wait.
    pub threads: [u32; 3],
    /// The counts of all present and past exports together.
    pub counts: Counts,
    /// How the server's threads waited for calls.
    pub waits: WaitCounts,
    /// The number of packets of results that the server retransmitted, because the packets or their
    /// acknowledgements were lost or late.
    pub resent: u64,
    /// The number of duplicate packets. The server answered them from its record of the call.
    pub came_again: u64,
    /// The number of calls that wait for a thread.
    pub queued: u64,
    /// The numbers of abandoned calls that still run, over shared memory (each keeps an A-stack captured),
    /// TCP and datagrams.
    pub captured: [u64; 3],
    /// The number of sessions, including those that are not in [`Stat::sessions`].
    pub sessions: u64,
    /// The number of bindings, including those that are not in [`Stat::bindings`].
    pub bindings: u64,
    /// The calls in flight by kind, and the streams. `None` if the server does not count them, because it is
    /// of an earlier version.
    pub in_flight: Option<InFlightCounts>,
    /// The number of calls and requests to bind that were refused because of who made them
    /// ([`Server::on_denied`](crate::Server::on_denied)). `None` if the server does not count them, because it
    /// is of an earlier version.
    pub denied: Option<u64>,
}

/// The calls of a server that have begun and not ended, by kind, and its streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, peregrine_macros::Value)]
pub struct InFlightCounts {
    /// The number of calls that occupy a thread each. A batch of async calls counts as one while a thread
    /// runs it.
    pub blocking: u64,
    /// The number of calls of async procedures that occupy no thread.
    pub deferred: u64,
    /// The number of one-way calls that have arrived in batches. The calls of a batch count until all of them
    /// have ended. A one-way call that is not in a batch is a blocking or deferred call.
    pub oneway: u64,
    /// The number of streams, with two for each callback. The calls of streams are blocking or deferred
    /// calls.
    pub streams: u64,
    /// The number of bytes of items that all streams have buffered at the server. These are items that
    /// procedures have sent and that no message contains yet, and items that have arrived and that procedures
    /// have not taken yet.
    pub stream_bytes: u64,
}

/// One export of a server, and its counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, peregrine_macros::Value)]
pub struct ExportStat {
    /// The name of the export. The exports after the [63rd](crate::limits::COUNTED_EXPORTS) are counted as
    /// one export with an empty name.
    pub name: String,
    /// The name of the export's interface.
    pub interface: String,
    /// The version of the export's interface.
    pub version: u32,
    /// The identity of the export's interface, as bytes. See [`ExportStat::digest`].
    pub digest: [u8; 16],
    /// How long ago the export began, in milliseconds.
    pub age_ms: u64,
    /// The number of bindings to the export.
    pub bindings: u64,
    /// The counts of all bindings to the export, including those that have ended.
    pub counts: Counts,
    /// How long the export's procedures took.
    pub latency: Latency,
}

/// One session: a client process over shared memory, or a connection over TCP. Over datagrams, which have no
/// connections, each binding of each calling thread is a session. Threads that share a socket may share a
/// session.
#[derive(Clone, Debug, Default, PartialEq, Eq, peregrine_macros::Value)]
pub struct SessionStat {
    /// A number that no other session of the server has.
    pub number: u64,
    /// The path of the session: `local`, `tcp`, `udp` or `ethernet`.
    pub path: String,
    /// The number of the client's process. Over a network it is 0, because a network cannot prove the number.
    pub process: u32,
    /// The number of the client's user. It is [`u32::MAX`] over a network.
    pub user: u32,
    /// The number of the client's group. It is [`u32::MAX`] over a network.
    pub group: u32,
    /// The address and port, or Ethernet address, of the client. It is empty over shared memory.
    pub from: String,
    /// How long ago the session began, in milliseconds.
    pub age_ms: u64,
    /// The number of bindings of the session.
    pub bindings: u64,
    /// The counts of all bindings of the session.
    pub counts: Counts,
}

/// One binding of a client, and its counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, peregrine_macros::Value)]
pub struct BindingStat {
    /// The number of the binding. Together with [`began_ns`](Self::began_ns) it identifies the binding.
    pub number: u32,
    /// When the binding began, in nanoseconds since the server's machine was started.
    pub began_ns: u64,
    /// The [number](SessionStat::number) of the binding's session, or 0 if the session is not shown.
    pub session: u64,
    /// The name of the export to which the client is bound.
    pub export: String,
    /// How long ago the binding began, in milliseconds.
    pub age_ms: u64,
    /// The counts of the binding.
    pub counts: Counts,
}

/// The counts of calls of a server, an export, a session or a binding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, peregrine_macros::Value)]
pub struct Counts {
    /// The number of calls that have begun.
    pub calls: u64,
    /// The number of calls that have begun and not ended.
    pub in_flight: u64,
    /// The number of calls that were refused, so that they were not executed.
    pub refused: u64,
    /// The number of calls that ended with an error of the procedure, or without a result.
    pub failed: u64,
    /// The number of bytes of the messages of calls that were executed.
    pub bytes_in: u64,
    /// The number of bytes of the heads and out buffers of the results of executed calls.
    pub bytes_out: u64,
}

/// How threads waited for calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, peregrine_macros::Value)]
pub struct WaitCounts {
    /// The number of waits that ended while the thread polled.
    pub spun: u64,
    /// The number of times that a thread slept while it waited.
    pub slept: u64,
}

/// How long procedures took, from before the arguments are read until the result is complete.
///
/// Of successive calls shorter than 4 us, about one in 64 is timed, chosen at random. The time of a timed
/// call also counts for the calls that were not timed. A call is always timed if the thread slept before it,
/// or if the previous timed call took 4 us or longer.
#[derive(Clone, Debug, Default, PartialEq, Eq, peregrine_macros::Value)]
pub struct Latency {
    /// The number of calls in each bucket, up to the last bucket that is not empty.
    pub(super) buckets: Vec<u64>,
}

impl Latency {
    /// Returns approximately how many calls there were.
    pub fn calls(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns the time within which the fraction `part` of all calls ended. The time is accurate to a
    /// sixteenth of its value. Returns `None` if no call was timed.
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

    /// Returns the times of the calls since the moment of `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = earlier.buckets.iter().copied().chain(core::iter::repeat(0));
        let buckets = self.buckets.iter().zip(before);
        Self { buckets: buckets.map(|(now, before)| now.saturating_sub(before)).collect() }
    }

    /// Adds the counts of another latency histogram.
    pub(super) fn add(&mut self, other: &Self) {
        let longer = self.buckets.len().max(other.buckets.len());
        self.buckets.resize(longer, 0);
        for (sum, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum = sum.saturating_add(*more);
        }
    }
}

impl Counts {
    /// Returns the counts since the moment of `earlier`. The calls in flight are those of `self`.
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
    /// Returns the identity of the export's interface.
    pub const fn digest(&self) -> Digest {
        Digest(self.digest)
    }
}

impl Stat {
    /// Returns the export of this name.
    pub fn export(&self, name: &str) -> Option<&ExportStat> {
        self.exports.iter().find(|export| export.name == name)
    }

    /// Returns what the server keeps for a procedure of an export.
    ///
    /// ```
    /// assert_eq!(peregrine::counters::Stat::default().procedure("files", "read"), None);
    /// ```
    pub fn procedure(&self, export: &str, name: &str) -> Option<&ProcedureStat> {
        self.procedures.iter().flatten().find(|one| one.export == export && one.name == name)
    }

    /// Returns how long procedures of all exports took.
    pub fn latency(&self) -> Latency {
        let mut all = Latency::default();
        self.exports.iter().for_each(|export| all.add(&export.latency));
        all
    }
}
