//! The layout of the pages in which a server shares its counters: words of 64 bits, in the machine's byte
//! order.
//!
//! | at | what | each |
//! |---|---|---|
//! | 0 | header | 4,096 bytes |
//! | [`THREADS_AT`] | a row for each thread that serves calls; only the thread writes to it | 128 bytes |
//! | [`EXPORTS_AT`] | a row for each export | 256 bytes |
//! | [`SESSIONS_AT`] | a row for each session | 128 bytes |
//! | [`BINDINGS_AT`] | a row for each binding, and rows that bindings share | 128 bytes |
//! | [`LANES_AT`] | the counts of each thread for each binding | 64 bytes |
//! | [`HISTOGRAMS_AT`] | for each thread, for each export: how long calls took | 2,304 bytes |
//!
//! The lanes of the last row of threads, which no thread has, are the rows of procedures.
//!
//! Bindings without a row of their own share the first 64 rows of bindings: one row for each export.
//!
//! Most of the pages are never touched, and then cost no memory.

use super::histogram::BUCKETS;
use super::sizes::SIZE_BUCKETS;
use crate::limits::{
    COUNTED_BINDINGS, COUNTED_EXPORTS, COUNTED_PROCEDURES, COUNTED_SESSIONS, COUNTED_THREADS,
};

/// The first word of the pages, by which readers recognize pages of counters.
pub(super) const MAGIC: u64 = u64::from_be_bytes(*b"PRGcount");
/// The version of this layout. Readers refuse pages of other versions.
pub(super) const VERSION: u64 = 1;

const WORD: usize = size_of::<u64>();
const HEADER_BYTES: usize = 4096;
const THREAD_BYTES: usize = 128;
const EXPORT_BYTES: usize = 256;
const SESSION_BYTES: usize = 128;
const BINDING_BYTES: usize = 128;
const LANE_BYTES: usize = 64;
const HISTOGRAM_BYTES: usize = 2304;
const PROCEDURE_BYTES: usize = 1024;

pub(super) const THREADS_AT: usize = HEADER_BYTES;
pub(super) const EXPORTS_AT: usize = THREADS_AT + COUNTED_THREADS * THREAD_BYTES;
pub(super) const SESSIONS_AT: usize = EXPORTS_AT + COUNTED_EXPORTS * EXPORT_BYTES;
pub(super) const BINDINGS_AT: usize = SESSIONS_AT + COUNTED_SESSIONS * SESSION_BYTES;
pub(super) const LANES_AT: usize = BINDINGS_AT + COUNTED_BINDINGS * BINDING_BYTES;
pub(super) const HISTOGRAMS_AT: usize = LANES_AT + COUNTED_THREADS * COUNTED_BINDINGS * LANE_BYTES;
/// The row of threads whose lanes are the rows of procedures. No thread has it.
pub(super) const THREAD_OF_PROCEDURES: usize = COUNTED_THREADS - 1;
pub(super) const PROCEDURES_AT: usize = lane_at(THREAD_OF_PROCEDURES, 0);
/// The size of all pages together, in bytes.
pub(crate) const PAGE_BYTES: usize =
    HISTOGRAMS_AT + COUNTED_THREADS * COUNTED_EXPORTS * HISTOGRAM_BYTES;

/// The number of kinds of threads: local, TCP, datagrams. For each of them, the header has the number of
/// threads that share row 0, and the number of captured calls. The threads of other RPC systems count as
/// those of TCP or of datagrams. A further kind needs a new version of the layout.
pub(crate) const THREAD_KINDS: usize = 3;

/// The indexes of the words in the header. The words from `CAPTURED` on are gauges: the server computes them
/// only on request, and they keep the values of the last request.
pub(super) mod header {
    pub(crate) const WORDS: usize = 32;
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const VERSION: usize = 1;
    /// The size of all pages together, in bytes.
    pub(crate) const BYTES: usize = 2;
    pub(crate) const PROCESS: usize = 3;
    /// The time at which the server began, in nanoseconds since the machine was started.
    pub(crate) const SINCE: usize = 4;
    /// The number of the first session row that was never used.
    pub(crate) const SESSIONS: usize = 5;
    /// The number of the first binding row that was never used.
    pub(crate) const BINDINGS: usize = 6;
    /// Odd while the counts of an ended binding are added to its export.
    pub(crate) const SETTLED: usize = 7;
    /// The number of sessions without a row.
    pub(crate) const SESSIONS_UNSHOWN: usize = 8;
    /// The number of bindings without a row.
    pub(crate) const BINDINGS_UNSHOWN: usize = 9;
    /// The first of three words, for local, TCP and datagrams: the number of threads that share row 0,
    /// because no row was left.
    pub(crate) const THREADS_SHARED: usize = 10;
    /// The first of three words, for local, TCP and datagrams: the number of abandoned calls that still run.
    pub(crate) const CAPTURED: usize = 16;
    /// The number of calls that wait for a thread.
    pub(crate) const QUEUED: usize = 19;
    /// The number of words that follow this word, or 0 if the server has no such words. Later versions may
    /// have more of them.
    pub(crate) const KINDS: usize = 20;
    /// The number of deferred calls.
    pub(crate) const DEFERRED: usize = 21;
    /// The number of one-way calls in batches that have not ended.
    pub(crate) const ONEWAY: usize = 22;
    /// The number of threads that run a batch of one-way calls.
    pub(crate) const ONEWAY_THREADS: usize = 23;
    /// The number of streams.
    pub(crate) const STREAMS: usize = 24;
    /// The number of bytes of items that all streams have buffered at the server.
    pub(crate) const STREAM_BYTES: usize = 25;
    /// The number of calls and requests to bind that were refused because of who made them. Not a gauge: it
    /// is counted when they are refused.
    pub(crate) const DENIED: usize = 26;
    /// The number of the first row of procedures that was never used. Not a gauge.
    pub(crate) const PROCEDURES: usize = 27;
    /// The value of the word [`KINDS`].
    pub(crate) const KINDS_WORDS: u64 = (PROCEDURES - KINDS) as u64;
    /// The value of the word [`KINDS`] of servers that do not have the word [`PROCEDURES`].
    pub(crate) const KINDS_WORDS_BEFORE_PROCEDURES: u64 = (DENIED - KINDS) as u64;
    /// The value of the word [`KINDS`] of servers that do not have the word [`DENIED`].
    pub(crate) const KINDS_WORDS_BEFORE_DENIED: u64 = (STREAM_BYTES - KINDS) as u64;
}

/// The indexes of the words in the row of a thread.
pub(super) mod thread {
    pub(crate) const WORDS: usize = 16;
    /// The kind of calls that the thread serves, or zero if no thread has this row now.
    pub(crate) const KIND: usize = 0;
    /// A bit for each [`GROUP`](super::GROUP) of bindings for which the row has ever had counts.
    pub(crate) const BINDINGS: usize = 1;
    /// A bit for each export for which the row has a histogram.
    pub(crate) const EXPORTS: usize = 2;
    /// The number of waits that ended while the thread still polled, because a call arrived.
    pub(crate) const SPUN: usize = 3;
    /// The number of times that the thread slept while it waited for a call.
    pub(crate) const SLEPT: usize = 4;
    /// The number of retransmitted packets of results.
    pub(crate) const RESENT: usize = 5;
    /// The number of duplicate packets that were received.
    pub(crate) const AGAIN: usize = 6;
    /// The number of calls that were refused because their binding does not exist.
    pub(crate) const STRANGE: usize = 7;
    /// The lower half says which call the thread runs: the row of the call's binding plus one, or 0 for none.
    /// The upper half changes with each change of the lower half.
    pub(crate) const RUNS: usize = 8;
}

/// The indexes of the first words in the rows of exports, sessions and bindings, and the values of `STATE`.
/// These rows are written while readers may read them.
pub(super) mod row {
    /// A number that changes with each write to the row. It is odd while the row is being written.
    pub(crate) const SEQUENCE: usize = 0;
    pub(crate) const STATE: usize = 1;
    /// The row is not in use.
    pub(crate) const VACANT: u64 = 0;
    /// The export, session or binding of the row exists.
    pub(crate) const STANDS: u64 = 1;
    /// The export or binding has ended. A binding's counts have not been added to its export yet.
    pub(crate) const ENDED: u64 = 2;
    /// The row is for all exports without a row, or for all bindings to an export without a row.
    pub(crate) const OTHERS: u64 = 3;
}

/// The indexes of the words in the row of an export.
pub(super) mod export {
    pub(crate) const WORDS: usize = 32;
    pub(crate) const SINCE: usize = 2;
    pub(crate) const VERSION: usize = 3;
    pub(crate) const DIGEST: usize = 4;
    /// The lower half is the length in bytes of the export's name, and the upper half that of the interface's
    /// name.
    pub(crate) const LENGTHS: usize = 6;
    pub(crate) const NAME: usize = 8;
    pub(crate) const INTERFACE: usize = 16;
    /// The first of the words with the sums of the counts of ended bindings.
    pub(crate) const PAST: usize = 24;
}

/// The indexes of the words in the row of a session.
pub(super) mod session {
    pub(crate) const WORDS: usize = 16;
    pub(crate) const NUMBER: usize = 2;
    pub(crate) const SINCE: usize = 3;
    pub(crate) const PATH: usize = 4;
    pub(crate) const PROCESS: usize = 5;
    pub(crate) const USER: usize = 6;
    pub(crate) const GROUP: usize = 7;
    /// The upper half is the IP version of the address, 4 or 6, or 0 if there is no address. The lower half
    /// is the port.
    pub(crate) const PORT: usize = 8;
    /// The client's IP address, in network byte order.
    pub(crate) const ADDRESS: usize = 9;
    /// The six bytes of the hardware address, and then a byte that is 1 if the address is valid.
    pub(crate) const HARDWARE: usize = 11;
}

/// The indexes of the words in the row of a binding.
pub(super) mod binding {
    pub(crate) const WORDS: usize = 16;
    pub(crate) const SINCE: usize = 2;
    pub(crate) const EXPORT: usize = 3;
    /// The number of the binding's session, or zero if the session has no row.
    pub(crate) const SESSION: usize = 4;
    /// The first of the words with the sums of the counts that the row's lanes had when the binding began.
    pub(crate) const BASE: usize = 8;
}

/// The indexes of the words in a lane: the counts of one thread for one binding.
pub(super) mod lane {
    pub(crate) const WORDS: usize = 8;
    /// The number of calls that run in threads without a row. A thread with a row notes in that row which
    /// call it runs.
    pub(crate) const RUNS: usize = 0;
    /// The number of calls that have ended.
    pub(crate) const ENDED: usize = 1;
    /// The number of calls that were not executed.
    pub(crate) const REFUSED: usize = 2;
    /// The number of calls that ended with an error.
    pub(crate) const FAILED: usize = 3;
    /// The number of bytes of the messages of calls.
    pub(crate) const IN: usize = 4;
    /// The number of bytes of results.
    pub(crate) const OUT: usize = 5;
}

/// The indexes of the words in the row of a procedure.
pub(super) mod procedure {
    use super::SIZE_BUCKETS;

    pub(crate) const WORDS: usize = 128;
    /// The lower half is the length in bytes of the export's name, and the upper half that of the procedure's
    /// name.
    pub(crate) const LENGTHS: usize = 2;
    /// How many calls may run at once, or 0 if any number may.
    pub(crate) const AT_MOST: usize = 3;
    /// The number of calls that run.
    pub(crate) const RUNNING: usize = 4;
    /// The number of calls that were refused because too many ran.
    pub(crate) const REFUSED: usize = 5;
    /// The time in nanoseconds that calls may take, or 0 if nothing is promised.
    pub(crate) const LIMIT_NS: usize = 6;
    /// Of how many calls in 1,000 this is promised.
    pub(crate) const PROMISED: usize = 7;
    pub(crate) const EXPORT: usize = 8;
    pub(crate) const NAME: usize = 16;
    /// The number of calls that have ended.
    pub(crate) const CALLS: usize = 24;
    /// The number of calls that took longer.
    pub(crate) const LATE: usize = 25;
    /// The number of the last 1,000 calls that took longer.
    pub(crate) const LATE_NOW: usize = 26;
    /// When the procedure became late, in nanoseconds since the machine was started, or 0.
    pub(crate) const LATE_SINCE: usize = 27;
    /// 1 if the words that follow have a census.
    pub(crate) const HAS_CENSUS: usize = 32;
    /// The number of calls from other machines.
    pub(crate) const REMOTE: usize = 33;
    /// The first of the buckets for the sizes of arguments.
    pub(crate) const ARGUMENTS: usize = 34;
    /// The first of the buckets for the sizes of results.
    pub(crate) const RESULTS: usize = ARGUMENTS + SIZE_BUCKETS;
    const _: () = assert!(RESULTS + SIZE_BUCKETS <= WORDS);
}

/// The number of words of a lane that are used.
pub(super) const COUNTS: usize = 6;
/// The number of bindings that share one bit of [`thread::BINDINGS`].
pub(super) const GROUP: usize = COUNTED_BINDINGS / 64;

/// The size in bytes of a text in the row of an export.
pub(super) const TEXT_BYTES: usize = 64;

const _: () = {
    assert!(COUNTED_EXPORTS <= 64 && COUNTED_EXPORTS <= COUNTED_BINDINGS);
    assert!(COUNTED_BINDINGS.is_multiple_of(64));
    assert!(header::WORDS * WORD <= HEADER_BYTES && header::PROCEDURES < header::WORDS);
    assert!(header::THREADS_SHARED + THREAD_KINDS <= header::CAPTURED);
    assert!(header::CAPTURED + THREAD_KINDS <= header::QUEUED);
    assert!(thread::WORDS * WORD == THREAD_BYTES && thread::RUNS < thread::WORDS);
    assert!(export::WORDS * WORD == EXPORT_BYTES && export::PAST + COUNTS <= export::WORDS);
    assert!(export::NAME * WORD + TEXT_BYTES <= export::INTERFACE * WORD);
    assert!(export::INTERFACE * WORD + TEXT_BYTES <= export::PAST * WORD);
    assert!(session::WORDS * WORD == SESSION_BYTES && session::HARDWARE < session::WORDS);
    assert!(session::ADDRESS + 2 <= session::HARDWARE);
    assert!(binding::WORDS * WORD == BINDING_BYTES && binding::BASE + COUNTS <= binding::WORDS);
    assert!(lane::WORDS * WORD == LANE_BYTES && lane::OUT < COUNTS && COUNTS <= lane::WORDS);
    assert!(BUCKETS * WORD <= HISTOGRAM_BYTES);
    assert!(procedure::WORDS * WORD == PROCEDURE_BYTES);
    assert!(COUNTED_PROCEDURES * PROCEDURE_BYTES <= COUNTED_BINDINGS * LANE_BYTES);
    // Rows of threads and lanes are aligned to cache lines, so no two threads write to one cache line.
    assert!(THREADS_AT.is_multiple_of(LANE_BYTES) && THREAD_BYTES.is_multiple_of(LANE_BYTES));
    assert!(LANES_AT.is_multiple_of(LANE_BYTES));
    assert!(HISTOGRAMS_AT.is_multiple_of(LANE_BYTES) && HISTOGRAM_BYTES.is_multiple_of(LANE_BYTES));
    assert!(crate::limits::NAME_BYTES_MAX <= TEXT_BYTES);
};

pub(super) const fn thread_at(thread: usize) -> usize {
    THREADS_AT + thread * THREAD_BYTES
}

pub(super) const fn export_at(export: usize) -> usize {
    EXPORTS_AT + export * EXPORT_BYTES
}

pub(super) const fn session_at(session: usize) -> usize {
    SESSIONS_AT + session * SESSION_BYTES
}

pub(super) const fn binding_at(binding: usize) -> usize {
    BINDINGS_AT + binding * BINDING_BYTES
}

#[inline]
pub(super) const fn lane_at(thread: usize, binding: usize) -> usize {
    LANES_AT + (thread * COUNTED_BINDINGS + binding) * LANE_BYTES
}

pub(super) const fn procedure_at(procedure: usize) -> usize {
    PROCEDURES_AT + procedure * PROCEDURE_BYTES
}

pub(super) const fn histogram_at(thread: usize, export: usize) -> usize {
    HISTOGRAMS_AT + (thread * COUNTED_EXPORTS + export) * HISTOGRAM_BYTES
}

/// Returns the text of `bytes` bytes in words of a row. `None` if it is no text, or has too many bytes.
pub(super) fn text_of(words: &[u64], bytes: u64) -> Option<String> {
    let mut text = [0; TEXT_BYTES];
    for (bytes, word) in text.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_ne_bytes());
    }
    let text = text.get(..usize::try_from(bytes).ok()?)?;
    core::str::from_utf8(text).ok().map(str::to_owned)
}
