//! Rows for procedures, of which the server keeps something: how many calls run at once, and a census.
//!
//! A server computes them only on request, as it does gauges. The rows are where the lanes of one row of
//! threads would be, which no thread gets. So the pages have the same size as those of earlier versions, whose
//! readers do not look there.

use core::sync::atomic::Ordering;

use super::layout::{PROCEDURES_AT, TEXT_BYTES, header, procedure, procedure_at, row, text_of};
use super::page::{Page, text_words};
use super::reading::{self, Unreadable};
use super::sizes::{SIZE_BUCKETS, Sizes};
use crate::interface::valid_name;
use crate::limits::COUNTED_PROCEDURES;
use crate::sys::Memory;

/// What a server keeps for one procedure of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq, peregrine_macros::Value)]
pub struct ProcedureStat {
    /// The name of the export.
    pub export: String,
    /// The name of the procedure. It is cut after 64 bytes.
    pub name: String,
    /// The limit of running calls. `None` if there is no limit.
    pub at_most: Option<AtMostStat>,
    /// How long calls take, compared with what `#[within(TIME)]` promises. `None` if nothing is promised.
    pub within: Option<WithinStat>,
    /// The sizes of arguments and results, and where the calls came from. `None` if the server makes no
    /// [census](crate::Server::census).
    pub census: Option<Census>,
}

/// How many calls of a procedure with `#[at_most(N)]` run and were refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, peregrine_macros::Value)]
pub struct AtMostStat {
    /// The number of calls that may run at once.
    pub most: u32,
    /// The number of calls that run now.
    pub running: u32,
    /// The number of calls that were refused because that many calls ran.
    pub refused: u64,
}

/// How long calls of a procedure with `#[within(TIME)]` take.
///
/// The procedure is late from the moment when too many of its last 1,000 calls took longer than the limit. It
/// is in time again when 1,000 calls have ended since then, of which no more took longer than may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, peregrine_macros::Value)]
pub struct WithinStat {
    /// The time that calls may take, in nanoseconds.
    pub limit_ns: u64,
    /// Of how many calls in 1,000 this is promised.
    pub promised: u32,
    /// The number of calls that have ended.
    pub calls: u64,
    /// The number of calls that took longer.
    pub late: u64,
    /// How many of the last 1,000 calls took longer.
    pub late_now: u32,
    /// How long ago the procedure became late, in milliseconds. `None` if it is in time.
    pub late_for_ms: Option<u64>,
}

/// The census of a procedure: how many bytes its calls carried, and where they came from. It has the calls
/// that have ended with a result, or with an error of the procedure.
#[derive(Clone, Debug, Default, PartialEq, Eq, peregrine_macros::Value)]
pub struct Census {
    /// The number of calls that came from other machines. Calls from a loopback address came from this
    /// machine.
    pub remote: u64,
    /// The sizes of the messages of calls: of their heads and their blocks.
    pub arguments: Sizes,
    /// The sizes of results: of their heads, and of what was filled of their out buffers.
    pub results: Sizes,
}

impl Census {
    /// Returns the number of calls.
    ///
    /// ```
    /// assert_eq!(peregrine::counters::Census::default().calls(), 0);
    /// ```
    pub fn calls(&self) -> u64 {
        self.arguments.calls()
    }

    /// Returns the census of the calls since the moment of `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            remote: self.remote.saturating_sub(earlier.remote),
            arguments: self.arguments.since(&earlier.arguments),
            results: self.results.since(&earlier.results),
        }
    }

    /// Adds another census.
    pub(super) fn add(&mut self, other: &Self) {
        self.remote = self.remote.saturating_add(other.remote);
        self.arguments.add(&other.arguments);
        self.results.add(&other.results);
    }
}

/// What the server itself knows of the census of a procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CensusCounts {
    pub(crate) remote: u64,
    pub(crate) arguments: [u64; SIZE_BUCKETS],
    pub(crate) results: [u64; SIZE_BUCKETS],
}

/// What the server itself knows of how long calls of a procedure take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WithinCounts {
    pub(crate) limit_ns: u64,
    pub(crate) promised: u32,
    pub(crate) calls: u64,
    pub(crate) late: u64,
    pub(crate) late_now: u32,
    /// When the procedure became late, in nanoseconds since the machine was started. 0 if it is in time.
    pub(crate) late_since: u64,
}

/// What the server itself knows of a procedure.
#[derive(Debug, Default)]
pub(crate) struct ProcedureCounts<'a> {
    pub(crate) export: &'a str,
    pub(crate) name: &'a str,
    pub(crate) at_most: Option<AtMostStat>,
    pub(crate) census: Option<CensusCounts>,
    pub(crate) within: Option<WithinCounts>,
}

impl Page {
    /// Writes the row of a procedure.
    pub(crate) fn write_procedure(&self, number: u32, counts: &ProcedureCounts<'_>) {
        let ProcedureCounts { export, name, at_most, census, within } = counts;
        let (export, export_bytes) = text_words(export, procedure::EXPORT);
        let (name, name_bytes) = text_words(name, procedure::NAME);
        let mut words = [0; procedure::WORDS];
        for (index, word) in export.into_iter().chain(name) {
            words[index] = word;
        }
        words[procedure::LENGTHS] = name_bytes << 32 | export_bytes;
        if let Some(AtMostStat { most, running, refused }) = *at_most {
            words[procedure::AT_MOST] = most.into();
            words[procedure::RUNNING] = running.into();
            words[procedure::REFUSED] = refused;
        }
        if let Some(WithinCounts { limit_ns, promised, calls, late, late_now, late_since }) =
            *within
        {
            words[procedure::LIMIT_NS] = limit_ns;
            words[procedure::PROMISED] = promised.into();
            words[procedure::CALLS] = calls;
            words[procedure::LATE] = late;
            words[procedure::LATE_NOW] = late_now.into();
            words[procedure::LATE_SINCE] = late_since;
        }
        if let Some(CensusCounts { remote, arguments, results }) = census {
            words[procedure::HAS_CENSUS] = 1;
            words[procedure::REMOTE] = *remote;
            words[procedure::ARGUMENTS..][..SIZE_BUCKETS].copy_from_slice(arguments);
            words[procedure::RESULTS..][..SIZE_BUCKETS].copy_from_slice(results);
        }
        self.write_whole(procedure_at(number as usize), row::STANDS, &words);
    }
}

/// Reads the rows of procedures. `used` is the number of the first row that was never used.
pub(super) fn procedures(
    memory: &Memory,
    used: u64,
    now: u64,
) -> Result<Vec<ProcedureStat>, Unreadable> {
    let used = usize::try_from(used).unwrap_or(COUNTED_PROCEDURES).min(COUNTED_PROCEDURES);
    let mut procedures = Vec::new();
    for number in 0..used {
        let Some(words) = reading::row::<{ procedure::WORDS }>(memory, procedure_at(number)) else {
            continue;
        };
        match words[row::STATE] {
            row::VACANT => {}
            row::STANDS => {
                procedures
                    .push(procedure_of(&words, now).ok_or(Unreadable::Row("procedures", number))?);
            }
            _ => return Err(Unreadable::Row("procedures", number)),
        }
    }
    Ok(procedures)
}

fn procedure_of(words: &[u64; procedure::WORDS], now: u64) -> Option<ProcedureStat> {
    let lengths = words[procedure::LENGTHS];
    let export = text_of(&words[procedure::EXPORT..], lengths & u64::from(u32::MAX))?;
    let name = text_of(&words[procedure::NAME..], lengths >> 32)?;
    if !valid_name(&export) || name.chars().any(char::is_control) {
        return None;
    }
    let number = |index: usize| u32::try_from(words[index]).ok();
    let at_most = match number(procedure::AT_MOST)? {
        0 => None,
        most => Some(AtMostStat {
            most,
            running: number(procedure::RUNNING)?,
            refused: words[procedure::REFUSED],
        }),
    };
    let within = match words[procedure::LIMIT_NS] {
        0 => None,
        limit_ns => {
            let since = words[procedure::LATE_SINCE];
            Some(WithinStat {
                limit_ns,
                promised: number(procedure::PROMISED)?,
                calls: words[procedure::CALLS],
                late: words[procedure::LATE],
                late_now: number(procedure::LATE_NOW)?,
                late_for_ms: (since != 0).then(|| reading::age_ms(now, since)),
            })
        }
    };
    let sizes = |at: usize| Sizes::of(&words[at..][..SIZE_BUCKETS]);
    let census = (words[procedure::HAS_CENSUS] == 1).then(|| Census {
        remote: words[procedure::REMOTE],
        arguments: sizes(procedure::ARGUMENTS),
        results: sizes(procedure::RESULTS),
    });
    Some(ProcedureStat { export, name, at_most, within, census })
}

impl Page {
    /// Returns a row for a procedure, or `None` if none is left.
    pub(crate) fn take_procedure(&self) -> Option<u32> {
        let mut rows = self.rows();
        let taken = rows.procedures.take();
        let used = self.word(0, header::PROCEDURES);
        used.store(rows.procedures.next.into(), Ordering::Relaxed);
        taken
    }

    /// Releases the row of a procedure.
    pub(crate) fn leave_procedure(&self, number: u32) {
        if self.memory().is_ours() {
            let mut rows = self.rows();
            self.write(procedure_at(number as usize), row::VACANT, &[]);
            rows.procedures.free.push(number);
        }
    }

    fn write_whole(&self, at: usize, state: u64, words: &[u64; procedure::WORDS]) {
        let _rows = self.rows();
        let words: [_; procedure::WORDS] = core::array::from_fn(|index| (index, words[index]));
        self.write(at, state, &words[procedure::LENGTHS..]);
    }
}

const _: () = assert!(PROCEDURES_AT.is_multiple_of(64) && procedure::LENGTHS > row::STATE);
const _: () = assert!(crate::limits::NAME_BYTES_MAX <= TEXT_BYTES);
