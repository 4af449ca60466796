//! Tests the reading of pages: pages that a server writes, and forged pages.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::layout::{
    BINDINGS_AT, EXPORTS_AT, LANES_AT, PAGE_BYTES, SESSIONS_AT, THREADS_AT, VERSION, export,
    export_at, header, procedure, procedure_at, row, session, session_at, thread, thread_at,
};
use super::reading::{Unreadable, read};
use super::*;
use crate::call::{Answer, InFlightNow, PathKind};
use crate::interface::{Digest, Interface, InterfaceRef};
use crate::limits::{
    COUNTED_BINDINGS, COUNTED_EXPORTS, COUNTED_PROCEDURES, COUNTED_SESSIONS, COUNTED_THREADS,
};
use crate::sys::Memory;

static NOTHING: Interface = Interface {
    name: "Nothing",
    version: 3,
    docs: "",
    procedures: &[],
    programs: &[],
    digest: || Digest([9; 16]),
};

fn visitor(from: Option<&str>) -> Visitor {
    let from = from.map(|from| from.parse().unwrap());
    let path = if from.is_some() { PathKind::Tcp } else { PathKind::Local };
    Visitor { path, process: 7, user: 8, group: 9, from, hardware: None }
}

fn call(counting: &mut Counting, tally: &Tally) {
    let begun = counting.begin(tally);
    counting.end(tally, Counting::took(begun), Answer::Ok, 10, 20);
}

/// A server with one export and one session.
struct Server {
    page: Arc<Page>,
    export: ExportCounters,
    session: SessionCounters,
}

impl Server {
    fn new() -> Self {
        let page = Page::new().unwrap();
        let export = ExportCounters::new(&page, "nothing", &InterfaceRef::from(&NOTHING));
        let session = SessionCounters::new(&page, &visitor(Some("[::1]:7")));
        Self { page, export, session }
    }

    fn tally(&self) -> Tally {
        self.export.tally(self.session.number())
    }

    fn read(&self) -> Stat {
        read(self.page.memory()).unwrap()
    }
}

#[test]
fn reader_gets_what_was_counted() {
    let server = Server::new();
    let tally = server.tally();
    let kinds = [ThreadKind::Local, ThreadKind::Stream, ThreadKind::Stream];
    let mut threads = kinds.map(|kind| Counting::new(&server.page, kind));
    for counting in &mut threads {
        (0..1000).for_each(|_| call(counting, &tally));
        counting.refused(Some(&tally));
        counting.refused(None);
        counting.looked();
        counting.found();
        counting.found();
        counting.slept();
        counting.resent(2);
        counting.came_again();
    }
    let begun = threads[0].begin(&tally);
    let stat = server.read();
    let counts = Counts {
        calls: 3001,
        in_flight: 1,
        refused: 3,
        failed: 0,
        bytes_in: 30_000,
        bytes_out: 60_000,
    };
    let export = stat.export("nothing").unwrap();
    assert_eq!((export.counts, export.bindings), (counts, 1));
    assert_eq!((&*export.interface, export.version, export.digest), ("Nothing", 3, [9; 16]));
    assert_eq!((stat.bindings[0].counts, stat.sessions[0].counts), (counts, counts));
    let one = &stat.sessions[0];
    assert_eq!((&*one.path, one.process, one.user, one.group), ("tcp", 7, 8, 9));
    assert_eq!((&*one.from, one.bindings, one.number), ("[::1]:7", 1, stat.bindings[0].session));
    assert_eq!(stat.server.counts, Counts { refused: 6, ..counts });
    assert_eq!(stat.server.waits, WaitCounts { spun: 3, slept: 3 });
    assert_eq!((stat.server.resent, stat.server.came_again), (6, 3));
    assert_eq!(stat.server.threads, [1, 2, 0]);
    // Of the 3,000 calls, about one in 64 is timed and counts for about 64.
    let of = export.latency.calls();
    assert!((1800..=3300).contains(&of), "{of}");
    threads[0].end(&tally, Counting::took(begun), Answer::Err, 0, 0);
    // A call that must be posted again does not count. A call with invalid arguments counts as refused.
    for answer in [Answer::PostAgain, Answer::NotExecuted] {
        let begun = threads[1].begin(&tally);
        threads[1].end(&tally, Counting::took(begun), answer, 5, 5);
    }
    let now = server.read().server.counts;
    assert_eq!(now, Counts { in_flight: 0, failed: 1, refused: 7, ..counts });
    drop(threads);
    assert_eq!(server.read().server.threads, [0; 3]);
    drop(tally);
    let stat = server.read();
    assert_eq!((stat.bindings.len(), stat.server.counts.calls), (0, 3001));
    // The next binding that uses the row begins with zero counts.
    let tally = server.tally();
    assert_eq!(server.read().bindings[0].counts, Counts::default());
    call(&mut Counting::new(&server.page, ThreadKind::Local), &tally);
    let stat = server.read();
    assert_eq!((stat.bindings[0].counts.calls, stat.server.counts.calls), (1, 3002));
    drop(server.session);
    assert!(read(server.page.memory()).unwrap().sessions.is_empty());
}

#[test]
fn kinds_of_calls_are_read_unless_the_server_is_older() {
    let server = Server::new();
    let tally = server.tally();
    let mut threads = [0; 3].map(|_| Counting::new(&server.page, ThreadKind::Local));
    let begin = |counting: &mut Counting| counting.begin(&tally);
    assert_eq!(threads.iter_mut().map(begin).count(), 3);
    let in_flight = InFlightNow { oneway: 7, oneway_threads: 1, streams: 8, stream_bytes: 9 };
    server.page.set_gauges(&Gauges { deferred: 6, in_flight, ..Gauges::default() });
    let kinds = InFlightCounts { blocking: 2, deferred: 6, oneway: 7, streams: 8, stream_bytes: 9 };
    assert_eq!(server.read().server.in_flight, Some(kinds));
    // The word `KINDS` says how many words with counts by kind follow it. A later version may have more such
    // words, and an earlier version has none.
    set(server.page.memory(), 8 * header::KINDS, header::KINDS_WORDS + 1);
    server.page.count_denied();
    let read = server.read().server;
    assert_eq!((read.in_flight, read.denied), (Some(kinds), Some(1)));
    set(server.page.memory(), 8 * header::KINDS, header::KINDS_WORDS_BEFORE_DENIED);
    let read = server.read().server;
    assert_eq!((read.in_flight, read.denied), (Some(kinds), None));
    set(server.page.memory(), 8 * header::KINDS, 0);
    let read = server.read().server;
    assert_eq!((read.in_flight, read.denied), (None, None));
}

#[test]
fn long_calls_are_all_timed() {
    let server = Server::new();
    let tally = server.tally();
    let mut counting = Counting::new(&server.page, ThreadKind::Local);
    for _ in 0..20 {
        let begun = counting.begin(&tally);
        std::thread::sleep(Duration::from_millis(1));
        counting.end(&tally, Counting::took(begun), Answer::Ok, 0, 0);
    }
    let latency = server.read().latency();
    assert_eq!(latency.calls(), 20);
    let [half, most] = [0.5, 1.0].map(|part| latency.percentile(part).unwrap());
    assert!(half >= Duration::from_micros(900) && most >= half, "{half:?}, {most:?}");
    assert_eq!(latency.since(&latency).percentile(0.5), None);
}

#[test]
fn sessions_and_bindings_without_a_row_are_counted() {
    let server = Server::new();
    let page = &server.page;
    let sessions: Vec<_> =
        (0..COUNTED_SESSIONS + 2).map(|_| SessionCounters::new(page, &visitor(None))).collect();
    let tallies: Vec<_> = (0..COUNTED_BINDINGS).map(|_| server.tally()).collect();
    let mut threads: Vec<_> =
        (0..COUNTED_THREADS + 1).map(|_| Counting::new(page, ThreadKind::Datagram)).collect();
    let (own, none) = (tallies.first().unwrap(), tallies.last().unwrap());
    for counting in &mut threads {
        call(counting, own);
        call(counting, none);
    }
    own.refused();
    none.refused();
    let stat = server.read();
    let calls = COUNTED_THREADS as u64 + 1;
    assert_eq!(stat.export("nothing").unwrap().counts.calls, 2 * calls);
    assert_eq!(stat.server.counts.refused, 2);
    assert_eq!(stat.bindings[0].counts.calls, calls);
    assert_eq!(stat.server.threads, [0, 0, COUNTED_THREADS as u32 + 1]);
    assert_eq!(stat.server.sessions as usize, COUNTED_SESSIONS + 3);
    assert_eq!(stat.sessions.len(), COUNTED_SESSIONS);
    assert_eq!(stat.server.bindings as usize, COUNTED_BINDINGS);
    assert_eq!(stat.bindings.len(), COUNTED_BINDINGS - COUNTED_EXPORTS);
    drop((sessions, tallies));
    let stat = server.read();
    assert_eq!((stat.server.sessions, stat.server.bindings), (1, 0));
    assert_eq!(stat.server.counts.calls, 2 * calls);

    threads.truncate(COUNTED_THREADS - 2);
    assert_eq!(server.read().server.threads, [0, 0, COUNTED_THREADS as u32 - 2]);
    threads.truncate(1);
    assert_eq!(server.read().server.threads, [0, 0, 1]);

    let exports: Vec<_> = (0..COUNTED_EXPORTS + 3)
        .map(|number| {
            ExportCounters::new(page, &format!("export-{number}"), &InterfaceRef::from(&NOTHING))
        })
        .collect();
    let last = exports.last().unwrap().tally(0);
    call(&mut threads[0], &last);
    let stat = server.read();
    assert_eq!(stat.exports.len(), COUNTED_EXPORTS);
    let others = stat.exports.last().unwrap();
    assert_eq!((&*others.name, others.counts.calls, others.bindings), ("", 1, 1));
    drop(exports);
    let stat = server.read();
    assert_eq!(stat.exports.len(), 2, "the first export, and all others as one");
}

#[test]
fn readers_never_see_half_of_a_row() {
    let server = Server::new();
    let page = Arc::clone(&server.page);
    let until = Instant::now() + Duration::from_millis(300);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while Instant::now() < until {
                // Every session that is written has equal user and group numbers. A reader that sees
                // different numbers has read a row that was half written.
                for number in [1, u32::MAX] {
                    let visitor = Visitor { user: number, group: number, ..visitor(None) };
                    drop(SessionCounters::new(&page, &visitor));
                }
            }
        });
        let mut seen = 0;
        while Instant::now() < until {
            for session in server.read().sessions.iter().filter(|one| one.from.is_empty()) {
                assert_eq!(session.user, session.group);
                seen += 1;
            }
        }
        assert!(seen > 0, "no session was seen");
    });
}

#[test]
fn ended_binding_is_not_counted_twice() {
    let server = Server::new();
    let (begun, ended) = (AtomicU64::new(0), AtomicU64::new(0));
    let until = Instant::now() + Duration::from_millis(300);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut counting = Counting::new(&server.page, ThreadKind::Local);
            while Instant::now() < until {
                let tally = server.tally();
                begun.fetch_add(100, Ordering::SeqCst);
                (0..100).for_each(|_| call(&mut counting, &tally));
                drop(tally);
                ended.fetch_add(100, Ordering::SeqCst);
                std::thread::sleep(Duration::from_micros(300));
            }
        });
        while Instant::now() < until {
            let least = ended.load(Ordering::SeqCst);
            let calls = server.read().server.counts.calls;
            let most = begun.load(Ordering::SeqCst);
            assert!((least..=most).contains(&calls), "{calls} of {least} to {most}");
        }
    });
    assert_eq!(server.read().server.counts.calls, ended.into_inner());
}

/// Returns a server that has been called, its bindings, and a copy of its pages that the test can write to.
fn forged() -> (Server, Vec<Tally>, Memory) {
    let server = Server::new();
    let mut counting = Counting::new(&server.page, ThreadKind::Local);
    let tallies: Vec<_> = (0..5).map(|_| server.tally()).collect();
    tallies.iter().for_each(|tally| call(&mut counting, tally));
    let memory = Memory::private(PAGE_BYTES).unwrap();
    for at in (0..LANES_AT).step_by(8) {
        match word(server.page.memory(), at) {
            0 => {}
            word => set(&memory, at, word),
        }
    }
    assert_eq!(read(&memory).unwrap().bindings.len(), 5);
    (server, tallies, memory)
}

fn word(memory: &Memory, at: usize) -> u64 {
    let [word] = memory.longs(at);
    word.load(Ordering::Relaxed)
}

fn set(memory: &Memory, at: usize, value: u64) {
    let [word] = memory.longs(at);
    word.store(value, Ordering::Relaxed);
}

#[test]
fn invalid_rows_are_refused() {
    let (_server, _tallies, memory) = forged();
    let place = |at: usize, index: usize| at + 8 * index;
    let cases = [
        (place(0, header::MAGIC), 1, Unreadable::Version(0)),
        (place(0, header::BYTES), 4096, Unreadable::Version(0)),
        (place(0, header::VERSION), VERSION + 1, Unreadable::Version(VERSION + 1)),
        (place(0, header::PROCESS), u64::MAX, Unreadable::Row("the server", 0)),
        (place(export_at(0), row::STATE), 4, Unreadable::Row("exports", 0)),
        (place(export_at(0), row::STATE), row::OTHERS, Unreadable::Row("exports", 0)),
        (place(export_at(0), export::LENGTHS), 65, Unreadable::Row("exports", 0)),
        (place(export_at(0), export::NAME), 0x1b, Unreadable::Row("exports", 0)),
        (place(export_at(0), export::INTERFACE), 0xff, Unreadable::Row("exports", 0)),
        (place(export_at(0), export::VERSION), 1 << 32, Unreadable::Row("exports", 0)),
        (place(export_at(0), row::STATE), row::VACANT, Unreadable::Row("bindings", 0)),
        (place(session_at(0), row::STATE), row::ENDED, Unreadable::Row("sessions", 0)),
        (place(session_at(0), session::PATH), 10, Unreadable::Row("sessions", 0)),
        (place(session_at(0), session::PORT), 5 << 32, Unreadable::Row("sessions", 0)),
        (place(session_at(0), session::USER), 1 << 32, Unreadable::Row("sessions", 0)),
    ];
    for (at, value, unreadable) in cases {
        let before = word(&memory, at);
        set(&memory, at, value);
        assert_eq!(read(&memory), Err(unreadable.clone()), "{value} at {at}");
        assert!(!unreadable.to_string().is_empty());
        set(&memory, at, before);
    }
    // A row that is being written, and never completed, is left out.
    set(&memory, place(session_at(0), row::SEQUENCE), 3);
    assert!(read(&memory).unwrap().sessions.is_empty());
    // Readers accept any value of a count.
    for index in [thread::SPUN, thread::RESENT] {
        set(&memory, place(thread_at(1), index), u64::MAX);
        set(&memory, place(thread_at(2), index), u64::MAX);
    }
    assert_eq!(read(&memory).unwrap().server.resent, u64::MAX);
}

#[test]
fn reading_ends_for_any_contents() {
    let (_server, _tallies, memory) = forged();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |end: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % end as u64) as usize
    };
    let used = [
        (0, 8 * header::WORDS),
        (THREADS_AT, 256),
        (EXPORTS_AT, 256),
        (SESSIONS_AT, 128),
        (BINDINGS_AT, 128),
        (BINDINGS_AT + COUNTED_EXPORTS * 128, 640),
    ];
    let (mut refused, mut read_all) = (0, 0);
    for _ in 0..2000 {
        let (from, bytes) = used[below(used.len())];
        let at = from + below(bytes / 8) * 8;
        let before = word(&memory, at);
        set(&memory, at, before ^ 1 << below(64));
        match read(&memory) {
            Ok(_) => read_all += 1,
            Err(_) => refused += 1,
        }
        set(&memory, at, before);
    }
    assert!(refused > 50 && read_all > 50, "{refused} refused, {read_all} read");
    // Sets all bits of each word before the lanes, except for the first three words.
    for at in (8 * 3..LANES_AT).step_by(8) {
        set(&memory, at, u64::MAX);
    }
    let begun = Instant::now();
    assert!(read(&memory).is_err());
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn procedures_are_read_as_written_and_their_rows_are_used_again() {
    let server = Server::new();
    let page = &server.page;
    let sizes = |at: usize| {
        let mut counts = [0; SIZE_BUCKETS];
        counts[at] = 3;
        counts
    };
    let counts = CensusCounts { remote: 2, arguments: sizes(5), results: sizes(SIZE_BUCKETS - 1) };
    let at_most = AtMostStat { most: 4, running: 1, refused: 7 };
    let times = WithinCounts {
        limit_ns: 50_000,
        promised: 999,
        calls: 3000,
        late: 40,
        late_now: 30,
        // In the future, so that its age is the same in all readings.
        late_since: u64::MAX,
    };
    let long = "n".repeat(80);
    let rows: Vec<_> = (0..COUNTED_PROCEDURES + 1).map(|_| page.take_procedure()).collect();
    assert_eq!(rows.iter().flatten().count(), COUNTED_PROCEDURES);
    assert_eq!(server.read().procedures, Some(Vec::new()));
    let (first, last) = (rows[0].unwrap(), rows[COUNTED_PROCEDURES - 1].unwrap());
    let one = ProcedureCounts {
        export: "nothing",
        name: &long,
        at_most: Some(at_most),
        census: Some(counts),
        within: Some(times),
    };
    page.write_procedure(first, &one);
    page.write_procedure(
        last,
        &ProcedureCounts { export: "nothing", name: "plain", ..Default::default() },
    );
    let stat = server.read();
    let read = stat.procedure("nothing", &long[..64]).unwrap();
    assert_eq!(read.at_most, Some(at_most));
    let within = read.within.unwrap();
    let late = (within.calls, within.late, within.late_now);
    assert_eq!((within.limit_ns, within.promised, late), (50_000, 999, (3000, 40, 30)));
    assert_eq!(within.late_for_ms, Some(0));
    let census = read.census.as_ref().unwrap();
    assert_eq!((census.remote, census.calls(), census.arguments.percentile(1.0)), (2, 3, Some(31)));
    assert_eq!(census.results.percentile(0.1), Some(u64::MAX));
    let plain = stat.procedure("nothing", "plain").unwrap();
    assert_eq!((plain.at_most, &plain.census, plain.within), (None, &None, None));
    // No thread counts where these rows are.
    let threads: Vec<_> =
        (0..COUNTED_THREADS).map(|_| Counting::new(page, ThreadKind::Datagram)).collect();
    drop(threads);
    assert_eq!(server.read().procedures, stat.procedures);
    page.leave_procedure(first);
    assert_eq!(server.read().procedures.unwrap().len(), 1);
    assert_eq!(page.take_procedure(), Some(first));
}

#[test]
fn rows_of_procedures_with_impossible_values_are_refused() {
    let (server, _tallies, memory) = forged();
    let _row = server.page.take_procedure();
    set(&memory, 8 * header::PROCEDURES, u64::MAX);
    assert_eq!(read(&memory).unwrap().procedures, Some(Vec::new()));
    let place = |index: usize| procedure_at(0) + 8 * index;
    set(&memory, place(procedure::LENGTHS), 1);
    set(&memory, place(procedure::EXPORT), u64::from(b'x'));
    set(&memory, place(row::STATE), row::STANDS);
    assert_eq!(read(&memory).unwrap().procedures.unwrap()[0].export, "x");
    let wrong = Err(Unreadable::Row("procedures", 0));
    for (index, value) in [
        (row::STATE, row::OTHERS),
        (procedure::LENGTHS, 65),
        (procedure::LENGTHS, 0),
        (procedure::LENGTHS, 65 << 32 | 1),
        (procedure::EXPORT, 0x1b),
        (procedure::AT_MOST, 1 << 32),
    ] {
        let before = word(&memory, place(index));
        set(&memory, place(index), value);
        assert_eq!(read(&memory), wrong, "{value} at {index}");
        set(&memory, place(index), before);
    }
    // A server of an earlier version has no such rows.
    set(&memory, 8 * header::KINDS, header::KINDS_WORDS_BEFORE_PROCEDURES);
    assert_eq!(read(&memory).unwrap().procedures, None);
}

/// Returns the calls that have ended, which is a counter of Prometheus.
fn ended(stat: &Stat) -> u64 {
    let text = stat.to_prometheus();
    let line = text.lines().find_map(|line| line.strip_prefix("peregrine_calls_total "));
    line.unwrap().parse().unwrap()
}

#[test]
fn counter_of_calls_does_not_decrease_when_a_call_is_deferred() {
    let server = Server::new();
    let tally = server.tally();
    let mut counting = Counting::new(&server.page, ThreadKind::Local);
    counting.begin(&tally);
    assert_eq!((server.read().server.counts.calls, ended(&server.read())), (1, 0));
    counting.leave(&tally);
    assert_eq!((server.read().server.counts.calls, ended(&server.read())), (0, 0));
    counting.end_deferred(&tally, 9, Answer::Ok, 10, 20);
    assert_eq!((server.read().server.counts.calls, ended(&server.read())), (1, 1));
}

#[test]
fn no_count_is_missing_for_the_server_itself_while_bindings_end() {
    const BINDINGS: u64 = 20_000;
    let server = Server::new();
    std::thread::scope(|scope| {
        let churn = scope.spawn(|| {
            let mut counting = Counting::new(&server.page, ThreadKind::Local);
            for _ in 0..BINDINGS {
                call(&mut counting, &server.tally());
            }
        });
        let mut last = 0;
        while !churn.is_finished() {
            let now = ended(&server.page.read());
            assert!(now >= last, "{now} after {last}");
            last = now;
        }
    });
    assert_eq!(ended(&server.page.read()), BINDINGS);
}
