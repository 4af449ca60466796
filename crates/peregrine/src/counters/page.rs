//! `Page`: the shared pages of a server's counters, and the use of their rows. A row belongs to one thread,
//! export, session or binding.
//!
//! Rows are assigned and released when a thread, export, session or binding begins or ends, under one lock
//! that no call takes. A *lane* has the counts of one thread for one row of bindings (docs/STAT.md). Only its
//! thread writes to a lane. (Threads that share the row [`SHARED`] also share its lanes.) A lane is never
//! reset. When a binding ends, its row records the sums of its lanes. The counts of the next binding in this
//! row start from these sums. A row gets another binding only after the [`Tally`] of the earlier binding was
//! dropped. After that, no thread counts for the earlier binding.

use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::counting::ThreadKind;
use super::layout::{
    COUNTS, GROUP, MAGIC, PAGE_BYTES, TEXT_BYTES, THREAD_KINDS, THREAD_OF_PROCEDURES, VERSION,
    binding, binding_at, export, export_at, header, lane, lane_at, row, session, session_at,
    thread, thread_at,
};
use super::{Stat, reading};
use crate::call::{CallerInfo, InFlightNow, PathKind};
use crate::interface::InterfaceRef;
use crate::limits::{
    COUNTED_BINDINGS, COUNTED_EXPORTS, COUNTED_PROCEDURES, COUNTED_SESSIONS, COUNTED_THREADS,
};
use crate::sync::{Mutex, MutexGuard};
use crate::sys::{self, Memory};

/// The row of all threads that have no row of their own, or serve no calls. Its words are changed with locked
/// instructions.
pub(super) const SHARED: usize = 0;

/// The counters of a server.
pub(crate) struct Page {
    memory: Memory,
    /// The descriptor that other processes map, or `None` if the kernel cannot keep other processes from
    /// writing.
    file: Option<OwnedFd>,
    rows: Mutex<Rows>,
}

pub(super) struct Rows {
    threads: [bool; COUNTED_THREADS],
    exports: usize,
    sessions: Places,
    bindings: Places,
    pub(super) procedures: Places,
    sessions_begun: u64,
}

/// The rows of one kind that are not in use: those in `free`, and those from `next` to `most`, which were
/// never used.
pub(super) struct Places {
    pub(super) free: Vec<u32>,
    pub(super) next: u32,
    most: u32,
}

impl Places {
    pub(super) fn take(&mut self) -> Option<u32> {
        if let Some(place) = self.free.pop() {
            return Some(place);
        }
        let place = (self.next < self.most).then_some(self.next)?;
        self.next += 1;
        Some(place)
    }
}

/// Values that the server computes only when a reader requests them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gauges {
    /// The numbers of abandoned calls that still run: local, TCP, datagrams.
    pub(crate) captured: [u64; THREAD_KINDS],
    /// The number of calls that wait for a thread.
    pub(crate) queued: u64,
    /// The number of deferred calls.
    pub(crate) deferred: u64,
    /// The counts of one-way calls and of streams.
    pub(crate) in_flight: InFlightNow,
}

/// The client at the other end of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visitor {
    pub(crate) path: PathKind,
    pub(crate) process: u32,
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) from: Option<SocketAddr>,
    pub(crate) hardware: Option<[u8; 6]>,
}

/// The number of each path in the rows of sessions. Each path needs a number, because readers refuse rows
/// with other numbers.
pub(super) const PATHS: [(PathKind, u64); 9] = [
    (PathKind::Local, 1),
    (PathKind::Tcp, 2),
    (PathKind::Udp, 3),
    (PathKind::Ethernet, 4),
    (PathKind::OncUdp, 5),
    (PathKind::OncTcp, 6),
    (PathKind::CourierUdp, 7),
    (PathKind::CourierTcp, 8),
    (PathKind::CourierExchange, 9),
];

impl Page {
    /// Returns the counters of a server that begins now. All counts are zero.
    ///
    /// # Errors
    /// Fails if there is no memory.
    pub(crate) fn new() -> std::io::Result<Arc<Self>> {
        let (memory, file) = match Memory::shown(PAGE_BYTES) {
            Ok((memory, file)) => (memory, Some(file)),
            // Without the file, no other process can read the counters, but the server works.
            Err(_) => (Memory::private(PAGE_BYTES)?, None),
        };
        let rows = Rows {
            threads: [false; COUNTED_THREADS],
            exports: 0,
            sessions: Places { free: Vec::new(), next: 0, most: COUNTED_SESSIONS as u32 },
            bindings: Places {
                free: Vec::new(),
                next: COUNTED_EXPORTS as u32,
                most: COUNTED_BINDINGS as u32,
            },
            procedures: Places { free: Vec::new(), next: 0, most: COUNTED_PROCEDURES as u32 },
            sessions_begun: 0,
        };
        let page = Self { memory, file, rows: Mutex::new(rows) };
        let words: &[AtomicU64; header::WORDS] = page.memory.longs(0);
        words[header::BYTES].store(PAGE_BYTES as u64, Ordering::Relaxed);
        words[header::PROCESS].store(std::process::id().into(), Ordering::Relaxed);
        words[header::SINCE].store(sys::boot_ns(), Ordering::Relaxed);
        words[header::BINDINGS].store(COUNTED_EXPORTS as u64, Ordering::Relaxed);
        words[header::KINDS].store(header::KINDS_WORDS, Ordering::Relaxed);
        words[header::VERSION].store(VERSION, Ordering::Relaxed);
        words[header::MAGIC].store(MAGIC, Ordering::Release);
        Ok(Arc::new(page))
    }

    /// Counts a call or a request to bind that was refused because of who made it.
    #[cold]
    pub(crate) fn count_denied(&self) {
        self.word(0, header::DENIED).fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how often [`count_denied`](Self::count_denied) was called.
    pub(crate) fn denied(&self) -> u64 {
        self.word(0, header::DENIED).load(Ordering::Relaxed)
    }

    /// Returns the descriptor that other processes map. `None`: other processes cannot map the counters.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(|file| file.as_fd())
    }

    pub(crate) const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the counts of this process's own server. No session or binding begins or ends meanwhile, so no
    /// count is missing.
    ///
    /// # Panics
    /// If the pages are invalid. Only this process can write them.
    pub(crate) fn read(&self) -> Stat {
        let _rows = self.rows();
        reading::read(&self.memory).expect("a server writes valid counters")
    }

    #[track_caller]
    pub(super) fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock()
    }

    #[inline]
    pub(super) fn word(&self, at: usize, index: usize) -> &AtomicU64 {
        let [word] = self.memory.longs(at + index * size_of::<u64>());
        word
    }

    /// Returns the lane of a thread for a binding.
    #[inline]
    pub(super) fn lane(&self, thread: usize, binding: u32) -> &[AtomicU64; lane::WORDS] {
        self.memory.longs(lane_at(thread, binding as usize))
    }

    /// Writes a row, and keeps readers from using it while it is half written.
    pub(super) fn write(&self, at: usize, state: u64, words: &[(usize, u64)]) {
        let sequence = self.begin_to_write(at);
        for (index, word) in words {
            self.word(at, *index).store(*word, Ordering::Relaxed);
        }
        self.word(at, row::STATE).store(state, Ordering::Relaxed);
        let odd = sequence.load(Ordering::Relaxed);
        sequence.store(odd.wrapping_add(1), Ordering::Release);
    }

    /// Marks a row as invalid until it is [written](Self::write).
    fn begin_to_write(&self, at: usize) -> &AtomicU64 {
        let sequence = self.word(at, row::SEQUENCE);
        sequence.store(sequence.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
        // SYNC: row, in `reading::row`. Nothing that is written after this fence is visible before the odd
        // number.
        fence(Ordering::Release);
        sequence
    }

    /// Returns the sums, over all threads, of the counts in the lanes of a row of bindings.
    fn total(&self, binding: u32) -> [u64; COUNTS] {
        let bit = 1 << (binding as usize / GROUP);
        let mut total = [0u64; COUNTS];
        for one in 0..COUNTED_THREADS {
            let groups = self.word(thread_at(one), thread::BINDINGS).load(Ordering::Relaxed);
            if groups & bit != 0 {
                for (sum, word) in total.iter_mut().zip(self.lane(one, binding)) {
                    *sum = sum.wrapping_add(word.load(Ordering::Relaxed));
                }
            }
        }
        total
    }

    /// Returns a row for a thread, or [`SHARED`] if none is left.
    pub(super) fn take_thread(&self, kind: ThreadKind) -> usize {
        let mut rows = self.rows();
        let found = (0..THREAD_OF_PROCEDURES).skip(1).find(|one| !rows.threads[*one]);
        let Some(number) = found else {
            self.threads_shared(kind).fetch_add(1, Ordering::Relaxed);
            return SHARED;
        };
        rows.threads[number] = true;
        self.word(thread_at(number), thread::KIND).store(kind as u64, Ordering::Relaxed);
        number
    }

    /// Returns the count of the threads of a kind that share the row [`SHARED`].
    fn threads_shared(&self, kind: ThreadKind) -> &AtomicU64 {
        // The header has one word for each kind of thread.
        self.word(0, header::THREADS_SHARED + kind.index())
    }

    pub(super) fn leave_thread(&self, number: usize, kind: ThreadKind) {
        if number == SHARED {
            self.threads_shared(kind).fetch_sub(1, Ordering::Relaxed);
        } else {
            self.word(thread_at(number), thread::KIND).store(0, Ordering::Relaxed);
            let runs = self.word(thread_at(number), thread::RUNS);
            runs.fetch_and(!u64::from(u32::MAX), Ordering::Relaxed);
            self.rows().threads[number] = false;
        }
    }

    /// Stores the values that are computed only on request.
    pub(crate) fn set_gauges(&self, gauges: &Gauges) {
        let words: &[AtomicU64; header::WORDS] = self.memory.longs(0);
        for (at, captured) in gauges.captured.iter().enumerate() {
            words[header::CAPTURED + at].store(*captured, Ordering::Relaxed);
        }
        let InFlightNow { oneway, oneway_threads, streams, stream_bytes } = gauges.in_flight;
        for (at, gauge) in [
            (header::QUEUED, gauges.queued),
            (header::DEFERRED, gauges.deferred),
            (header::ONEWAY, oneway),
            (header::ONEWAY_THREADS, oneway_threads),
            (header::STREAMS, streams),
            (header::STREAM_BYTES, stream_bytes),
        ] {
            words[at].store(gauge, Ordering::Relaxed);
        }
    }
}

pub(super) fn text_words(text: &str, at: usize) -> ([(usize, u64); TEXT_BYTES / 8], u64) {
    let text = &text.as_bytes()[..text.floor_char_boundary(TEXT_BYTES)];
    let mut bytes = [0; TEXT_BYTES];
    bytes[..text.len()].copy_from_slice(text);
    let (words, _) = bytes.as_chunks::<8>();
    let word = |i: usize| (at + i, u64::from_ne_bytes(words[i]));
    (core::array::from_fn(word), text.len() as u64)
}

/// The row of an export, for as long as the export exists.
pub(crate) struct ExportCounters {
    page: Arc<Page>,
    row: u32,
    ended: AtomicBool,
}

impl ExportCounters {
    pub(crate) fn new(page: &Arc<Page>, name: &str, interface: &InterfaceRef) -> Self {
        let mut rows = page.rows();
        // All exports that get no row of their own share the last row.
        let number = rows.exports.min(COUNTED_EXPORTS - 1);
        let others = number == COUNTED_EXPORTS - 1;
        rows.exports += 1;
        let (at, name) = (export_at(number), if others { "" } else { name });
        let (name, name_bytes) = text_words(name, export::NAME);
        let (of, of_bytes) =
            text_words(if others { "" } else { interface.name() }, export::INTERFACE);
        let digest = if others { [0; 16] } else { interface.digest().0 };
        let (halves, _) = digest.as_chunks::<8>();
        let mut words = vec![
            (export::SINCE, sys::boot_ns()),
            (export::VERSION, if others { 0 } else { interface.version().into() }),
            (export::DIGEST, u64::from_ne_bytes(halves[0])),
            (export::DIGEST + 1, u64::from_ne_bytes(halves[1])),
            (export::LENGTHS, of_bytes << 32 | name_bytes),
        ];
        words.extend(name.into_iter().chain(of));
        page.write(at, if others { row::OTHERS } else { row::STANDS }, &words);
        let others = [(binding::EXPORT, number as u64)];
        page.write(binding_at(number), row::OTHERS, &others);
        drop(rows);
        Self { page: Arc::clone(page), row: number as u32, ended: AtomicBool::new(false) }
    }

    /// Marks the row as ended, because the export has ended.
    pub(crate) fn end(&self) {
        let ended = self.ended.swap(true, Ordering::Relaxed);
        if !ended && self.page.memory.is_ours() && self.row as usize != COUNTED_EXPORTS - 1 {
            let _rows = self.page.rows();
            self.page.write(export_at(self.row as usize), row::ENDED, &[]);
        }
    }

    /// Returns the counters of a new binding to the export, in the session or connection with this number.
    pub(crate) fn tally(&self, session: u64) -> Tally {
        Tally::new(&self.page, self.row, session, None)
    }

    /// Returns the counters of a new binding to the export, on a path that has neither sessions nor
    /// connections, such as datagrams. The binding counts as a session. `visitor` is the client of the
    /// binding.
    pub(crate) fn tally_of(&self, visitor: &Visitor) -> Tally {
        let session = SessionCounters::new(&self.page, visitor);
        Tally::new(&self.page, self.row, session.number(), Some(session))
    }
}

impl Drop for ExportCounters {
    fn drop(&mut self) {
        self.end();
    }
}

/// The row of a session, for as long as the session exists.
pub(crate) struct SessionCounters {
    page: Arc<Page>,
    row: Option<u32>,
    number: u64,
    ended: AtomicBool,
}

impl SessionCounters {
    pub(crate) fn new(page: &Arc<Page>, visitor: &Visitor) -> Self {
        let mut rows = page.rows();
        rows.sessions_begun += 1;
        let (number, taken) = (rows.sessions_begun, rows.sessions.take());
        match taken {
            Some(place) => {
                let used = page.word(0, header::SESSIONS);
                used.store(rows.sessions.next.into(), Ordering::Relaxed);
                page.write(session_at(place as usize), row::STANDS, &visitor.words(number));
            }
            None => drop(page.word(0, header::SESSIONS_UNSHOWN).fetch_add(1, Ordering::Relaxed)),
        }
        drop(rows);
        Self { page: Arc::clone(page), row: taken, number, ended: AtomicBool::new(false) }
    }

    /// Returns the number by which the rows of bindings refer to this session, or zero if the session has no
    /// row.
    pub(crate) const fn number(&self) -> u64 {
        if self.row.is_some() { self.number } else { 0 }
    }

    /// Releases the row, because the session has ended.
    pub(crate) fn end(&self) {
        if self.ended.swap(true, Ordering::Relaxed) || !self.page.memory.is_ours() {
            return;
        }
        let mut rows = self.page.rows();
        match self.row {
            Some(place) => {
                self.page.write(session_at(place as usize), row::VACANT, &[]);
                rows.sessions.free.push(place);
            }
            None => {
                self.page.word(0, header::SESSIONS_UNSHOWN).fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for SessionCounters {
    fn drop(&mut self) {
        self.end();
    }
}

impl Visitor {
    pub(crate) const fn of(caller: &CallerInfo) -> Self {
        let CallerInfo { path, process, user, group, from, hardware, .. } = *caller;
        Self { path, process, user, group, from, hardware }
    }

    fn words(&self, number: u64) -> [(usize, u64); 10] {
        let path = PATHS.iter().find(|(path, _)| *path == self.path).map_or(0, |(_, path)| *path);
        let mut address = [0; 16];
        let family: u64 = match self.from.map(|from| from.ip()) {
            None => 0,
            Some(IpAddr::V4(ip)) => {
                address[..4].copy_from_slice(&ip.octets());
                4
            }
            Some(IpAddr::V6(ip)) => {
                address = ip.octets();
                6
            }
        };
        let (halves, _) = address.as_chunks::<8>();
        let mut hardware = [0; 8];
        if let Some(bytes) = self.hardware {
            hardware[..6].copy_from_slice(&bytes);
            hardware[6] = 1;
        }
        let port = self.from.map_or(0, |from| from.port());
        [
            (session::NUMBER, number),
            (session::SINCE, sys::boot_ns()),
            (session::PATH, path),
            (session::PROCESS, self.process.into()),
            (session::USER, self.user.into()),
            (session::GROUP, self.group.into()),
            (session::PORT, family << 32 | u64::from(port)),
            (session::ADDRESS, u64::from_ne_bytes(halves[0])),
            (session::ADDRESS + 1, u64::from_ne_bytes(halves[1])),
            (session::HARDWARE, u64::from_ne_bytes(hardware)),
        ]
    }
}

/// The place in the pages where calls of a binding are counted.
pub(crate) struct Tally {
    /// The number of a row of bindings: the binding's own row, or the row that all bindings to the export
    /// without a row of their own share.
    pub(super) row: u32,
    pub(super) export: u32,
    /// Fields that no call reads. They are in separate memory, so that the fields that calls read take fewer
    /// cache lines.
    rest: Box<Rest>,
}

struct Rest {
    page: Arc<Page>,
    ended: AtomicBool,
    session: Option<SessionCounters>,
}

impl Tally {
    fn new(page: &Arc<Page>, export: u32, session: u64, own: Option<SessionCounters>) -> Self {
        let mut rows = page.rows();
        let place = rows.bindings.take();
        match place {
            Some(place) => {
                let used = page.word(0, header::BINDINGS);
                used.store(rows.bindings.next.into(), Ordering::Relaxed);
                let words = [
                    (binding::SINCE, sys::boot_ns()),
                    (binding::EXPORT, export.into()),
                    (binding::SESSION, session),
                ];
                page.write(binding_at(place as usize), row::STANDS, &words);
            }
            None => drop(page.word(0, header::BINDINGS_UNSHOWN).fetch_add(1, Ordering::Relaxed)),
        }
        drop(rows);
        let row = place.unwrap_or(export);
        let (page, ended) = (Arc::clone(page), AtomicBool::new(false));
        Self { row, export, rest: Box::new(Rest { page, ended, session: own }) }
    }

    /// Returns counters in new pages that no reader maps.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn unseen() -> Self {
        let page = Page::new().expect("memory for counters");
        Self::new(&page, 0, 0, None)
    }

    const fn has_row(&self) -> bool {
        self.row as usize >= COUNTED_EXPORTS
    }

    /// Notes that the binding has ended. Calls of the binding may still run.
    pub(crate) fn end(&self) {
        let Rest { page, ended, session } = &*self.rest;
        if ended.swap(true, Ordering::Relaxed) || !page.memory.is_ours() {
            return;
        }
        if let Some(session) = session {
            session.end();
        }
        let _rows = page.rows();
        if self.has_row() {
            page.write(binding_at(self.row as usize), row::ENDED, &[]);
        } else {
            page.word(0, header::BINDINGS_UNSHOWN).fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Counts a call that was refused by a thread without counters.
    #[cold]
    pub(crate) fn refused(&self) {
        let page = &*self.rest.page;
        let groups = page.word(thread_at(SHARED), thread::BINDINGS);
        groups.fetch_or(1 << (self.row as usize / GROUP), Ordering::Relaxed);
        page.lane(SHARED, self.row)[lane::REFUSED].fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Tally {
    /// Adds the counts of the binding to its export and releases the row, because no thread counts for the
    /// binding any more.
    fn drop(&mut self) {
        self.end();
        let page = &*self.rest.page;
        if !self.has_row() || !page.memory.is_ours() {
            return;
        }
        let mut rows = page.rows();
        let total = page.total(self.row);
        let at = binding_at(self.row as usize);
        let settled = page.word(0, header::SETTLED);
        let before = settled.load(Ordering::Relaxed);
        // SYNC: settled, in `reading::read`: a reader that sees any of the following stores also sees that
        // `settled` is odd, or that it has changed.
        settled.store(before.wrapping_add(1), Ordering::Relaxed);
        // The row becomes invalid before the counts of the export change. A reader that sees the new counts
        // of the export therefore does not add the row's counts again.
        page.begin_to_write(at);
        let mut words = [(0, 0); COUNTS];
        for (i, word) in words.iter_mut().enumerate() {
            let base = page.word(at, binding::BASE + i).load(Ordering::Relaxed);
            let past = page.word(export_at(self.export as usize), export::PAST + i);
            let sum = past.load(Ordering::Relaxed).wrapping_add(total[i].wrapping_sub(base));
            past.store(sum, Ordering::Relaxed);
            *word = (binding::BASE + i, total[i]);
        }
        page.write(at, row::VACANT, &words);
        settled.store(before.wrapping_add(2), Ordering::Release);
        rows.bindings.free.push(self.row);
    }
}

impl core::fmt::Debug for Page {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Page").field("memory", &self.memory).finish_non_exhaustive()
    }
}
