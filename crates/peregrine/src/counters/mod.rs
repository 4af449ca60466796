//! The counters of a server, in pages that other processes can read: calls, waits, retransmitted packets.
//!
//! To count a call, its thread makes a few stores to cache lines that only this thread writes. Counting needs
//! no locked instruction, no system call and no allocation. A reader maps the pages and adds the counts up,
//! which costs the server nothing. The rows of sessions and bindings are written when these begin or end. A
//! sequence number in each row keeps a reader from using a row that is only half written.
//!
//! `layout` has the layout of the pages, `page` writes rows, `counting` counts for one thread, and `reading`
//! makes a [`Stat`] from the pages of any server. See `docs/STAT.md`. `procedures` has the rows of procedures. `prometheus` turns a [`Stat`] into text.
//! See `docs/METRICS.md`.

mod counting;
mod histogram;
mod layout;
mod page;
mod procedures;
mod prometheus;
mod reading;
mod sizes;
mod stat;
#[cfg(test)]
mod tests;

pub(crate) use counting::{Counting, ThreadKind};
pub(crate) use layout::{PAGE_BYTES, THREAD_KINDS};
pub(crate) use page::{ExportCounters, Gauges, Page, SessionCounters, Tally, Visitor};
pub use procedures::{AtMostStat, Census, ProcedureStat, WithinStat};
pub(crate) use procedures::{CensusCounts, ProcedureCounts, WithinCounts};
pub use prometheus::PROMETHEUS_CONTENT_TYPE;
pub(crate) use reading::read;
pub use sizes::Sizes;
pub(crate) use sizes::{SIZE_BUCKETS, size_bucket};
pub use stat::{
    BindingStat, Counts, ExportStat, InFlightCounts, Latency, ServerStat, SessionStat, Stat,
    WaitCounts,
};
