//! Reads the pages of counters of any server, in bounded time and with checks.
//!
//! The server writes to the pages at the same time, and may be hostile. Whatever the pages contain, reading
//! ends. The reader returns a [`Stat`], or says why the pages are invalid.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::sync::atomic::{AtomicU64, Ordering, fence};

use super::histogram::BUCKETS;
use super::layout::{
    COUNTS, GROUP, MAGIC, PAGE_BYTES, THREAD_KINDS, VERSION, binding, binding_at, export,
    export_at, header, histogram_at, lane, lane_at, row, session, session_at, text_of, thread,
    thread_at,
};
use super::page::PATHS;
use super::procedures::procedures;
use super::stat::{
    BindingStat, Counts, ExportStat, InFlightCounts, Latency, ServerStat, SessionStat, Stat,
    WaitCounts,
};
use crate::interface::valid_name;
use crate::limits::{COUNTED_BINDINGS, COUNTED_EXPORTS, COUNTED_SESSIONS, COUNTED_THREADS};
use crate::sys::{self, Memory};

/// The largest number of attempts to read a row while it is being written.
const TRIES: usize = 64;
/// The largest number of attempts to read all pages while bindings end. If a binding ends during the last
/// attempt, its counts may be missing from its export, because exports are read before bindings.
const PASSES: usize = 32;

/// Why pages of counters are invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// The pages have this version, which differs from [`VERSION`]. The number is 0 if the pages are not
    /// pages of counters.
    Version(u64),
    /// A row has contents that no server writes. The fields are the kind of the row and its number.
    Row(&'static str, usize),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => {
                write!(
                    f,
                    "the server's counters have version {version}, and this program reads version {VERSION}"
                )
            }
            Self::Row(of, number) => write!(f, "row {number} of {of} has impossible values"),
        }
    }
}

/// Reads the counts that the pages contain now.
pub(crate) fn read(memory: &Memory) -> Result<Stat, Unreadable> {
    let words: &[AtomicU64; header::WORDS] = memory.longs(0);
    let word = |index: usize| words[index].load(Ordering::Acquire);
    if word(header::MAGIC) != MAGIC || word(header::BYTES) != PAGE_BYTES as u64 {
        return Err(Unreadable::Version(0));
    }
    if word(header::VERSION) != VERSION {
        return Err(Unreadable::Version(word(header::VERSION)));
    }
    let mut pass = 1;
    loop {
        // SYNC: settled, in the `Drop` of `Tally`.
        let settled = word(header::SETTLED);
        let stat = read_once(memory, word)?;
        fence(Ordering::Acquire);
        let is_whole = settled.is_multiple_of(2) && word(header::SETTLED) == settled;
        if is_whole || pass == PASSES {
            return Ok(stat);
        }
        pass += 1;
        std::thread::yield_now();
    }
}

fn read_once(memory: &Memory, word: impl Fn(usize) -> u64) -> Result<Stat, Unreadable> {
    let now = sys::boot_ns();
    let process = u32::try_from(word(header::PROCESS));
    let mut server = ServerStat {
        process: process.map_err(|_| Unreadable::Row("the server", 0))?,
        age_ms: age_ms(now, word(header::SINCE)),
        at_ns: now,
        queued: word(header::QUEUED),
        captured: core::array::from_fn::<_, THREAD_KINDS, _>(|i| word(header::CAPTURED + i)),
        sessions: word(header::SESSIONS_UNSHOWN),
        bindings: word(header::BINDINGS_UNSHOWN),
        threads: core::array::from_fn::<_, THREAD_KINDS, _>(|i| {
            u32::try_from(word(header::THREADS_SHARED + i)).unwrap_or(u32::MAX)
        }),
        ..ServerStat::default()
    };
    let threads = threads(memory, &mut server);
    let mut exports = exports(memory, &threads, now)?;
    let most = |index, most| usize::try_from(word(index)).unwrap_or(most).min(most);
    let mut sessions = sessions(memory, most(header::SESSIONS, COUNTED_SESSIONS), now)?;
    let count = most(header::BINDINGS, COUNTED_BINDINGS);
    let bindings = bindings(memory, &threads, count, now, &mut exports, &mut sessions)?;
    exports.iter().flatten().for_each(|(export, _)| server.counts.add(&export.counts));
    // A server with an earlier version of this library does not have these words in its pages.
    let words = word(header::KINDS);
    server.denied = (words >= header::KINDS_WORDS_BEFORE_PROCEDURES).then(|| word(header::DENIED));
    server.in_flight = (words >= header::KINDS_WORDS_BEFORE_DENIED).then(|| InFlightCounts {
        blocking: server.counts.in_flight.saturating_sub(word(header::ONEWAY_THREADS)),
        deferred: word(header::DEFERRED),
        oneway: word(header::ONEWAY),
        streams: word(header::STREAMS),
        stream_bytes: word(header::STREAM_BYTES),
    });
    server.sessions = server.sessions.saturating_add(sessions.len() as u64);
    server.bindings = server.bindings.saturating_add(bindings.len() as u64);
    let stands = |(export, stands): (ExportStat, bool)| stands.then_some(export);
    let exports = exports.into_iter().flatten().filter_map(stands).collect();
    let has_procedures = words >= header::KINDS_WORDS;
    let procedures = has_procedures.then(|| procedures(memory, word(header::PROCEDURES), now));
    let procedures = procedures.transpose()?;
    Ok(Stat { server, exports, sessions, bindings, procedures })
}

pub(super) fn age_ms(now: u64, since: u64) -> u64 {
    now.saturating_sub(since) / 1_000_000
}

/// Returns a row as it was at one moment. Returns `None` if no attempt finds the row complete: the row is
/// written all the time, or its writer stopped in the middle.
pub(super) fn row<const N: usize>(memory: &Memory, at: usize) -> Option<[u64; N]> {
    let words: &[AtomicU64; N] = memory.longs(at);
    for _ in 0..TRIES {
        // SYNC: row, in `Page::write`.
        let before = words[row::SEQUENCE].load(Ordering::Acquire);
        if before.is_multiple_of(2) {
            let copy = core::array::from_fn(|i| words[i].load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if words[row::SEQUENCE].load(Ordering::Relaxed) == before {
                return Some(copy);
            }
        }
        core::hint::spin_loop();
    }
    None
}

/// The values that a thread's row contains.
struct ThreadRow {
    number: usize,
    groups: u64,
    exports: u64,
}

fn threads(memory: &Memory, server: &mut ServerStat) -> Vec<ThreadRow> {
    let mut rows = Vec::new();
    for number in 0..COUNTED_THREADS {
        let words: &[AtomicU64; thread::WORDS] = memory.longs(thread_at(number));
        let word = |index: usize| words[index].load(Ordering::Relaxed);
        let kind = usize::try_from(word(thread::KIND)).unwrap_or(usize::MAX);
        if let Some(count) = kind.checked_sub(1).and_then(|kind| server.threads.get_mut(kind)) {
            *count = count.saturating_add(1);
        }
        let WaitCounts { spun, slept } = &mut server.waits;
        for (sum, index) in [
            (spun, thread::SPUN),
            (slept, thread::SLEPT),
            (&mut server.resent, thread::RESENT),
            (&mut server.came_again, thread::AGAIN),
            (&mut server.counts.refused, thread::STRANGE),
        ] {
            *sum = sum.saturating_add(word(index));
        }
        let (groups, exports) = (word(thread::BINDINGS), word(thread::EXPORTS));
        if groups | exports != 0 {
            rows.push(ThreadRow { number, groups, exports });
        }
    }
    rows
}

fn counts(words: &[u64; COUNTS]) -> Counts {
    // Forged pages may contain anything. A negative number counts as zero.
    let in_flight = words[lane::RUNS].cast_signed().max(0).cast_unsigned();
    Counts {
        calls: words[lane::ENDED].saturating_add(in_flight),
        in_flight,
        refused: words[lane::REFUSED],
        failed: words[lane::FAILED],
        bytes_in: words[lane::IN],
        bytes_out: words[lane::OUT],
    }
}

/// Returns the exports by row, and whether each still exists. The entry of an unused row is `None`.
fn exports(
    memory: &Memory,
    threads: &[ThreadRow],
    now: u64,
) -> Result<Vec<Option<(ExportStat, bool)>>, Unreadable> {
    (0..COUNTED_EXPORTS)
        .map(|number| {
            let Some(words) = row::<{ export::WORDS }>(memory, export_at(number)) else {
                return Ok(None);
            };
            let wrong = Unreadable::Row("exports", number);
            let (others, stands) = match words[row::STATE] {
                row::VACANT => return Ok(None),
                row::STANDS => (false, true),
                row::ENDED => (false, false),
                row::OTHERS => (true, true),
                _ => return Err(wrong),
            };
            let lengths = words[export::LENGTHS];
            let text = |at: usize, bytes: u64| text_of(&words[at..], bytes).ok_or(wrong.clone());
            let name = text(export::NAME, lengths & u64::from(u32::MAX))?;
            let interface = text(export::INTERFACE, lengths >> 32)?;
            let is_named = valid_name(name.strip_prefix('.').unwrap_or(&name));
            if is_named == others || interface.chars().any(char::is_control) {
                return Err(wrong);
            }
            let version = u32::try_from(words[export::VERSION]).map_err(|_| wrong)?;
            let mut digest = [0; 16];
            for (bytes, word) in digest.chunks_exact_mut(8).zip(&words[export::DIGEST..]) {
                bytes.copy_from_slice(&word.to_ne_bytes());
            }
            let past = core::array::from_fn(|i| words[export::PAST + i]);
            let export = ExportStat {
                name,
                interface,
                version,
                digest,
                age_ms: age_ms(now, words[export::SINCE]),
                bindings: 0,
                counts: counts(&past),
                latency: latency(memory, threads, number),
            };
            Ok(Some((export, stands)))
        })
        .collect()
}

fn latency(memory: &Memory, threads: &[ThreadRow], export: usize) -> Latency {
    let mut sums = [0u64; BUCKETS];
    for row in threads.iter().filter(|row| row.exports >> export & 1 == 1) {
        let buckets: &[AtomicU64; BUCKETS] = memory.longs(histogram_at(row.number, export));
        for (sum, bucket) in sums.iter_mut().zip(buckets) {
            *sum = sum.saturating_add(bucket.load(Ordering::Relaxed));
        }
    }
    let used = sums.iter().rposition(|sum| *sum != 0).map_or(0, |last| last + 1);
    Latency { buckets: sums[..used].to_vec() }
}

fn sessions(memory: &Memory, count: usize, now: u64) -> Result<Vec<SessionStat>, Unreadable> {
    let mut sessions = Vec::new();
    for number in 0..count {
        let Some(words) = row::<{ session::WORDS }>(memory, session_at(number)) else { continue };
        let wrong = Unreadable::Row("sessions", number);
        match words[row::STATE] {
            row::VACANT => continue,
            row::STANDS => {}
            _ => return Err(wrong),
        }
        sessions.push(session_of(&words, now).ok_or(wrong)?);
    }
    sessions.sort_by_key(|session| session.number);
    Ok(sessions)
}

fn session_of(words: &[u64; session::WORDS], now: u64) -> Option<SessionStat> {
    let (path, _) = PATHS.iter().find(|(_, number)| *number == words[session::PATH])?;
    let number = |index: usize| u32::try_from(words[index]).ok();
    let mut address = [0; 16];
    for (bytes, word) in address.chunks_exact_mut(8).zip(&words[session::ADDRESS..]) {
        bytes.copy_from_slice(&word.to_ne_bytes());
    }
    let [a, b, c, d, ..] = address;
    let port = u16::try_from(words[session::PORT] & u64::from(u32::MAX)).ok()?;
    let ip: Option<IpAddr> = match words[session::PORT] >> 32 {
        0 => None,
        4 => Some(Ipv4Addr::from([a, b, c, d]).into()),
        6 => Some(Ipv6Addr::from(address).into()),
        _ => return None,
    };
    let from = match (ip, words[session::HARDWARE].to_ne_bytes()) {
        (Some(ip), _) => SocketAddr::new(ip, port).to_string(),
        (None, [a, b, c, d, e, f, 1, 0]) => {
            format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
        }
        (None, [.., 0, 0]) => String::new(),
        _ => return None,
    };
    Some(SessionStat {
        number: words[session::NUMBER],
        path: path.to_string(),
        process: number(session::PROCESS)?,
        user: number(session::USER)?,
        group: number(session::GROUP)?,
        from,
        age_ms: age_ms(now, words[session::SINCE]),
        bindings: 0,
        counts: Counts::default(),
    })
}

/// Returns what a thread has counted for a binding. If the thread runs a call of the binding, that call
/// counts as in flight.
fn counted(memory: &Memory, number: usize, binding: usize) -> [u64; COUNTS] {
    let words: &[AtomicU64; thread::WORDS] = memory.longs(thread_at(number));
    let lane: &[AtomicU64; lane::WORDS] = memory.longs(lane_at(number, binding));
    let is_it = |runs: u64| runs & u64::from(u32::MAX) == binding as u64 + 1;
    let mut tried = 0;
    loop {
        // SYNC: runs, in `Counting::runs`. A call that does not run any more has been counted.
        let before = words[thread::RUNS].load(Ordering::Acquire);
        let mut counts: [u64; COUNTS] = core::array::from_fn(|i| lane[i].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let after = words[thread::RUNS].load(Ordering::Relaxed);
        tried += 1;
        // If the word changed, a call of the binding may have ended between the loads. It could then count
        // twice: as ended, and as in flight. So the thread's counts are read again.
        if before == after || !(is_it(before) || is_it(after)) || tried == TRIES {
            counts[lane::RUNS] = counts[lane::RUNS].wrapping_add(is_it(before).into());
            return counts;
        }
        core::hint::spin_loop();
    }
}

/// Reads the bindings. Also adds the counts of each binding to those of its export and of its session.
fn bindings(
    memory: &Memory,
    threads: &[ThreadRow],
    count: usize,
    now: u64,
    exports: &mut [Option<(ExportStat, bool)>],
    sessions: &mut [SessionStat],
) -> Result<Vec<BindingStat>, Unreadable> {
    let mut bindings = Vec::new();
    for number in 0..count {
        let Some(words) = row::<{ binding::WORDS }>(memory, binding_at(number)) else { continue };
        let wrong = || Unreadable::Row("bindings", number);
        let state = words[row::STATE];
        let others = number < COUNTED_EXPORTS;
        match state {
            row::VACANT => continue,
            row::STANDS | row::ENDED if !others => {}
            row::OTHERS if others => {}
            _ => return Err(wrong()),
        }
        let place = usize::try_from(words[binding::EXPORT]).map_err(|_| wrong())?;
        let (export, _) = exports.get_mut(place).and_then(Option::as_mut).ok_or_else(wrong)?;
        let mut sums: [u64; COUNTS] =
            core::array::from_fn(|i| words[binding::BASE + i].wrapping_neg());
        for row in threads.iter().filter(|row| row.groups >> (number / GROUP) & 1 == 1) {
            for (sum, word) in sums.iter_mut().zip(counted(memory, row.number, number)) {
                *sum = sum.wrapping_add(word);
            }
        }
        let counts = counts(&sums);
        export.counts.add(&counts);
        if state != row::STANDS {
            continue;
        }
        export.bindings += 1;
        let session = words[binding::SESSION];
        if let Ok(at) = sessions.binary_search_by_key(&session, |session| session.number) {
            sessions[at].bindings += 1;
            sessions[at].counts.add(&counts);
        }
        bindings.push(BindingStat {
            number: number as u32,
            began_ns: words[binding::SINCE],
            session,
            export: export.name.clone(),
            age_ms: age_ms(now, words[binding::SINCE]),
            counts,
        });
    }
    Ok(bindings)
}
