//! What a server counts, in pages that others may look at: calls, waits, packets sent again.
//!
//! Counting costs a call a few stores to lines that its thread alone writes: no locked instruction, no
//! system call, nothing to allocate. Whoever looks maps the pages for reading and adds up; the server
//! does not notice. What rows mean is said when a session or a binding begins or ends, behind a
//! sequence number, so that nobody sees half of it.
//!
//! `layout` says where everything lies, `page` writes rows, `counting` is what a thread has of its own,
//! `reading` makes a [`Stat`] of a page, whoever wrote it. See `docs/STAT.md`.

mod counting;
mod histogram;
mod layout;
mod page;
mod reading;
mod stat;
#[cfg(test)]
mod tests;

pub(crate) use counting::{Counting, ThreadKind};
pub(crate) use layout::PAGE_BYTES;
pub(crate) use page::{ExportCounters, Gauges, Page, SessionTold, Tally, Visitor};
pub(crate) use reading::read;
pub use stat::{
    BindingStat, Counts, ExportStat, Latency, ServerStat, SessionStat, Stat, WaitCounts,
};
