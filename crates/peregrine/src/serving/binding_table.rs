//! The bindings of one session or connection, as the server keeps them. A client names a binding by number.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;
use std::sync::Arc;

use super::export::Export;
use crate::call::accounted::unmarked;
use crate::call::{Caller, CallerInfo, Refusal, Serve};
use crate::counters::Tally;
use crate::error::Kind;
use crate::limits;
use crate::observe::{Tap, TapStub};

/// One binding, as a row of a table: the object on which calls run, and the client that makes the calls.
pub(crate) struct BindingRow {
    /// The number of the export of this binding.
    pub(crate) export: u64,
    pub(crate) serve: Arc<dyn Serve>,
    /// The tap of the export, through which other programs capture its calls.
    tap: TapStub,
    pub(crate) caller: Arc<CallerInfo>,
    /// The size in bytes of the largest message.
    pub(crate) message_bytes: usize,
    revoked: AtomicBool,
    /// How long the next procedure is expected to take, in microseconds.
    expected_us: AtomicU32,
    /// The number of bindings to the export. This binding is counted from its addition to its revocation.
    bindings: Arc<AtomicU32>,
    /// The counters of the calls of this binding.
    pub(crate) tally: Tally,
    /// The number of handles through which a client on a datagram path makes calls of this binding. See
    /// [`hold`](Self::hold).
    holders: AtomicU32,
}

impl BindingRow {
    pub(crate) fn new(
        export: u64,
        (serve, tap): (Arc<dyn Serve>, Arc<Tap>),
        caller: Arc<CallerInfo>,
        message_bytes: usize,
        bindings: Arc<AtomicU32>,
        tally: Tally,
    ) -> Self {
        let (revoked, expected_us) = (AtomicBool::new(false), AtomicU32::new(0));
        let holders = AtomicU32::new(0);
        Self {
            export,
            serve,
            tap: TapStub::new(tap),
            caller,
            message_bytes,
            revoked,
            expected_us,
            bindings,
            tally,
            holders,
        }
    }

    /// Returns the server stub that runs a call now. It captures the call if another program captures the
    /// calls of the export.
    #[inline]
    pub(crate) fn serve(&self) -> &dyn Serve {
        self.tap.of(&self.serve)
    }

    /// Adds a holder: one more handle through which a client makes calls of this binding. The binding is
    /// revoked when the last holder [releases](Self::release) it.
    pub(crate) fn hold(&self) {
        self.holders.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a holder. Revokes the binding if no holder is left.
    pub(crate) fn release(&self) {
        // Only holders count, not references to the row: a call that runs also has a reference.
        if self.holders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.revoke();
        }
    }

    /// Returns how long the next procedure of this binding is expected to take.
    #[inline]
    pub(crate) fn expected_time(&self) -> Duration {
        Duration::from_micros(self.expected_us.load(Ordering::Relaxed).into())
    }

    /// Records how long a procedure of this binding took. A longer time raises the expectation at once. A
    /// shorter time lowers the expectation by at most a quarter.
    #[inline]
    pub(crate) fn record_time(&self, time: Duration) {
        let now = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        let before = self.expected_us.load(Ordering::Relaxed);
        let next = now.max(before - before.div_ceil(4));
        if next != before {
            self.expected_us.store(next, Ordering::Relaxed);
        }
    }

    /// Returns whether a call whose message has `bytes` bytes may run.
    #[inline]
    pub(crate) fn admits(&self, bytes: u32) -> bool {
        bytes as usize <= self.message_bytes && !self.is_revoked()
    }

    /// Ends the binding: further calls are refused, and the binding is not counted any more. Running calls
    /// continue. The row must have been added to a table or [counted](Self::add_to_count) before.
    pub(crate) fn revoke(&self) {
        if !self.revoked.swap(true, Ordering::AcqRel) {
            self.bindings.fetch_sub(1, Ordering::Relaxed);
            self.tally.end();
            self.caller.account.end();
        }
    }

    /// Counts this binding among the bindings of its export, before the client can make calls. Must not be
    /// called for a row that is added to a table.
    pub(crate) fn add_to_count(&self) {
        self.bindings.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether this is a binding to the export through which clients ask for the server's health.
    pub(crate) const fn is_of_health(&self) -> bool {
        self.export == Export::OF_HEALTH
    }

    /// Returns why a call with a message of `bytes` bytes is refused.
    #[cold]
    pub(crate) fn refusal(row: Option<&Self>, bytes: u32) -> Refusal {
        match row {
            None => Refusal::new(Kind::Withdrawn, "no such binding"),
            Some(row) if row.is_revoked() => {
                let text = format!("`{}` was withdrawn", row.caller.export);
                Refusal::new(Kind::Withdrawn, text)
            }
            Some(row) => {
                let text = format!(
                    "the message has {bytes} bytes, and the server accepts at most {} \
                     (`ExportOptions::message_bytes_max`)",
                    row.message_bytes
                );
                Refusal::new(Kind::TooLarge, text)
            }
        }
    }

    /// Tells the layers of the export that the server has refused a call before its procedure.
    #[cold]
    pub(crate) fn report_refused(&self, procedure: u32, bytes: u32, refusal: &Refusal) {
        let procedure = unmarked(procedure).unwrap_or(procedure);
        self.serve().refused(procedure, bytes as usize, &Caller::of(&self.caller), refusal);
    }

    #[inline]
    pub(crate) fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::Acquire)
    }
}

/// The rows by number. The low 16 bits of a number are the index of a place in the table. The high 16 bits
/// count the uses of the place. So the number of a removed binding does not soon name another binding.
#[derive(Default)]
pub(crate) struct BindingTable {
    places: Vec<(u16, Option<Arc<BindingRow>>)>,
    free: Vec<u16>,
}

impl BindingTable {
    /// Adds a row and returns its number. Returns `None` if the table is full.
    pub(crate) fn add(&mut self, row: Arc<BindingRow>) -> Option<u32> {
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.places.len() < limits::BINDINGS_MAX => {
                self.places.push((0, None));
                u16::try_from(self.places.len() - 1).ok()?
            }
            None => return None,
        };
        let (used, vacant) = &mut self.places[usize::from(place)];
        *used = used.wrapping_add(1);
        row.bindings.fetch_add(1, Ordering::Relaxed);
        *vacant = Some(row);
        Some(u32::from(*used) << 16 | u32::from(place))
    }

    fn place(number: u32) -> (usize, u16) {
        ((number & 0xffff) as usize, (number >> 16) as u16)
    }

    /// Returns the row of binding `number`.
    pub(crate) fn get(&self, number: u32) -> Option<Arc<BindingRow>> {
        let (place, used) = Self::place(number);
        let (now, row) = self.places.get(place)?;
        row.as_ref().filter(|_| *now == used).map(Arc::clone)
    }

    /// Removes the row of a binding and revokes the binding.
    pub(crate) fn remove(&mut self, number: u32) -> Option<Arc<BindingRow>> {
        let row = self.get(number)?;
        let (place, _) = Self::place(number);
        self.places[place].1 = None;
        self.free.push(place as u16);
        row.revoke();
        Some(row)
    }

    /// Revokes all bindings of the session, because the session has ended.
    pub(crate) fn revoke_all(&self) {
        self.iter().for_each(|(_, row)| row.revoke());
    }

    /// Returns all rows with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Arc<BindingRow>)> {
        let numbered = (0u32..).zip(&self.places);
        numbered.filter_map(|(place, (used, row))| {
            Some((u32::from(*used) << 16 | place, row.as_ref()?))
        })
    }

    /// Returns the number of rows.
    pub(crate) const fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

/// A thread's cache of the rows that it used recently. The cache keeps the objects of these rows alive until
/// it [forgets](Self::forget) the rows.
#[derive(Default)]
pub(crate) struct BindingCache {
    last: Option<CachedRow>,
    /// The other recently used rows, by the low bits of their numbers.
    others: [Option<CachedRow>; Self::OTHERS],
}

/// A row, the number of its table, and the row's number in that table.
struct CachedRow {
    table: u64,
    number: u32,
    row: Arc<BindingRow>,
}

impl BindingCache {
    const OTHERS: usize = 16;

    /// Returns the row of binding `number` in a table. Calls `look_up` if the row is not in the cache.
    #[inline]
    pub(crate) fn get(
        &mut self,
        table: u64,
        number: u32,
        look_up: impl FnOnce() -> Option<Arc<BindingRow>>,
    ) -> Option<&Arc<BindingRow>> {
        let is_it = |found: &CachedRow| found.table == table && found.number == number;
        if !self.last.as_ref().is_some_and(is_it) {
            self.load(table, number, look_up);
        }
        self.last.as_ref().map(|found| &found.row)
    }

    #[cold]
    fn load(&mut self, table: u64, number: u32, look_up: impl FnOnce() -> Option<Arc<BindingRow>>) {
        if let Some(last) = self.last.take() {
            let place = last.number as usize % Self::OTHERS;
            self.others[place] = Some(last);
        }
        let place = &mut self.others[number as usize % Self::OTHERS];
        let found = place.take_if(|found| found.table == table && found.number == number);
        let looked_up = || look_up().map(|row| CachedRow { table, number, row });
        self.last = found.or_else(looked_up);
    }

    /// Forgets the row that was used last.
    pub(crate) fn forget_last(&mut self) {
        self.last = None;
    }

    /// Forgets all rows.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::accounted::marked;
    use crate::call::{PathKind, Reply, Request, Served};
    use crate::interface::InterfaceRef;

    struct Nothing;

    /// The procedure whose call was refused last.
    static REFUSED: AtomicU32 = AtomicU32::new(u32::MAX);

    impl Serve for Nothing {
        fn interface(&self) -> InterfaceRef {
            InterfaceRef::none()
        }
        fn refused(&self, procedure: u32, _: usize, _: &Caller, _: &Refusal) {
            REFUSED.store(procedure, Ordering::Relaxed);
        }
        fn serve(&self, _: &mut Request<'_>, _: &mut Reply<'_>) -> Served {
            Ok(())
        }
    }

    fn row() -> Arc<BindingRow> {
        let caller = CallerInfo {
            path: PathKind::Local,
            export: "nothing".into(),
            process: 1,
            user: 0,
            group: 0,
            from: None,
            hardware: None,
            claimed: None,
            identity: None,
            ending: None,
            carried: None,
            account: Default::default(),
        };
        Arc::new(BindingRow::new(
            0,
            (Arc::new(Nothing), Arc::default()),
            Arc::new(caller),
            100,
            Arc::default(),
            Tally::unseen(),
        ))
    }

    #[test]
    fn layers_see_refused_calls_of_accounts_as_other_calls() {
        for number in [3, marked(3)] {
            REFUSED.store(u32::MAX, Ordering::Relaxed);
            row().report_refused(number, 0, &Refusal::given_up());
            assert_eq!(REFUSED.load(Ordering::Relaxed), 3);
        }
    }

    #[test]
    fn number_of_a_removed_row_names_no_row() {
        let mut rows = BindingTable::default();
        let first = rows.add(row()).unwrap();
        let second = rows.add(row()).unwrap();
        assert_ne!(first, second);
        let removed = rows.remove(first).unwrap();
        assert!(!removed.admits(0));
        assert!(rows.remove(first).is_none() && rows.get(first).is_none());
        let third = rows.add(row()).unwrap();
        assert_eq!(third & 0xffff, first & 0xffff, "the place is used again");
        assert!(rows.get(first).is_none() && rows.get(third).is_some());
        assert_eq!(rows.len(), 2);
        assert_eq!(rows.iter().map(|(number, _)| number).collect::<Vec<_>>(), [third, second]);
        assert!(rows.get(u32::MAX).is_none());
        let admits = rows.get(second).unwrap();
        assert!(admits.admits(100) && !admits.admits(101));
    }

    #[test]
    fn rows_are_counted_from_addition_to_revocation() {
        let (mut rows, bindings) = (BindingTable::default(), Arc::new(AtomicU32::new(0)));
        let one = || {
            let BindingRow { serve, caller, .. } = &*row();
            let (serve, caller) = (Arc::clone(serve), Arc::clone(caller));
            Arc::new(BindingRow::new(
                0,
                (serve, Arc::default()),
                caller,
                100,
                Arc::clone(&bindings),
                Tally::unseen(),
            ))
        };
        let never_added = one();
        let first = rows.add(one()).unwrap();
        rows.add(one()).unwrap();
        rows.remove(first).unwrap();
        assert!(rows.remove(first).is_none());
        assert_eq!(bindings.load(Ordering::Relaxed), 1);
        rows.revoke_all();
        rows.revoke_all();
        drop((rows, never_added));
        assert_eq!(bindings.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn table_has_a_bound() {
        let (mut rows, row) = (BindingTable::default(), row());
        while rows.add(Arc::clone(&row)).is_some() {}
        assert_eq!(rows.len(), limits::BINDINGS_MAX);
    }
}
