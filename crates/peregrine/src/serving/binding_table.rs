//! The bindings of a session or connection, as the server keeps them: numbers that mean one export each.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;
use std::sync::Arc;

use crate::call::{CallerInfo, Refusal, Serve};
use crate::counters::Tally;
use crate::error::Kind;
use crate::limits;

/// One binding: what its calls run, and for whom.
pub(crate) struct BindingRow {
    /// Which export of the server it is bound to.
    pub(crate) export: u64,
    pub(crate) serve: Arc<dyn Serve>,
    pub(crate) caller: Arc<CallerInfo>,
    /// Bytes that a message may have.
    pub(crate) message_bytes: usize,
    revoked: AtomicBool,
    /// How long its procedures take, in microseconds: as the last one, or shorter ones since.
    took_us: AtomicU32,
    /// How many rows of the export stand, this one among them once it was added.
    standing: Arc<AtomicU32>,
    /// Where its calls are counted.
    pub(crate) tally: Tally,
}

impl BindingRow {
    pub(crate) const fn new(
        export: u64,
        serve: Arc<dyn Serve>,
        caller: Arc<CallerInfo>,
        message_bytes: usize,
        standing: Arc<AtomicU32>,
        tally: Tally,
    ) -> Self {
        let (revoked, took_us) = (AtomicBool::new(false), AtomicU32::new(0));
        Self { export, serve, caller, message_bytes, revoked, took_us, standing, tally }
    }

    /// How long its next procedure is thought to take.
    #[inline]
    pub(crate) fn took(&self) -> Duration {
        Duration::from_micros(self.took_us.load(Ordering::Relaxed).into())
    }

    /// One of its procedures has taken so long. Long ones are remembered for a while.
    #[inline]
    pub(crate) fn has_taken(&self, time: Duration) {
        let now = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        let before = self.took_us.load(Ordering::Relaxed);
        let next = now.max(before - before.div_ceil(4));
        if next != before {
            self.took_us.store(next, Ordering::Relaxed);
        }
    }

    /// Whether calls of so many bytes are run.
    #[inline]
    pub(crate) fn admits(&self, bytes: u32) -> bool {
        bytes as usize <= self.message_bytes && !self.is_revoked()
    }

    /// Refuses all calls from now on. To be called of rows that were added.
    pub(crate) fn revoke(&self) {
        if !self.revoked.swap(true, Ordering::AcqRel) {
            self.standing.fetch_sub(1, Ordering::Relaxed);
            self.tally.end();
        }
    }

    /// It stands from now on, without a number among rows.
    pub(crate) fn stands(&self) {
        self.standing.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns why a call with a message of `bytes` bytes is refused.
    #[cold]
    pub(crate) fn refusal(row: Option<&Self>, bytes: u32) -> Refusal {
        match row {
            None => Refusal::new(Kind::Withdrawn, "there is no such binding"),
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

    #[inline]
    pub(crate) fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::Acquire)
    }
}

/// Rows by number: a place in the low 16 bits, above it how often the place was used before, so
/// that a number which has gone does not soon mean another binding.
#[derive(Default)]
pub(crate) struct BindingTable {
    places: Vec<(u16, Option<Arc<BindingRow>>)>,
    free: Vec<u16>,
}

impl BindingTable {
    /// Adds a row; its number, or `None` if there are too many.
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
        row.standing.fetch_add(1, Ordering::Relaxed);
        *vacant = Some(row);
        Some(u32::from(*used) << 16 | u32::from(place))
    }

    fn place(number: u32) -> (usize, u16) {
        ((number & 0xffff) as usize, (number >> 16) as u16)
    }

    /// The row of that number.
    pub(crate) fn get(&self, number: u32) -> Option<Arc<BindingRow>> {
        let (place, used) = Self::place(number);
        let (now, row) = self.places.get(place)?;
        row.as_ref().filter(|_| *now == used).map(Arc::clone)
    }

    /// Takes a row away; it admits no call any more.
    pub(crate) fn remove(&mut self, number: u32) -> Option<Arc<BindingRow>> {
        let row = self.get(number)?;
        let (place, _) = Self::place(number);
        self.places[place].1 = None;
        self.free.push(place as u16);
        row.revoke();
        Some(row)
    }

    /// Revokes all of them: the session has ended.
    pub(crate) fn revoke_all(&self) {
        self.iter().for_each(|(_, row)| row.revoke());
    }

    /// All rows, with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Arc<BindingRow>)> {
        let numbered = (0u32..).zip(&self.places);
        numbered.filter_map(|(place, (used, row))| {
            Some((u32::from(*used) << 16 | place, row.as_ref()?))
        })
    }

    /// How many there are.
    pub(crate) const fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

/// Rows that a thread has looked up lately. It keeps their objects alive until it
/// [forgets](Self::forget) them.
#[derive(Default)]
pub(crate) struct Lately {
    last: Option<Found>,
    /// Others, by the last bits of their numbers.
    others: [Option<Found>; Self::OTHERS],
}

/// A row, and its number in the table of a session or connection.
struct Found {
    table: u64,
    number: u32,
    row: Arc<BindingRow>,
}

impl Lately {
    const OTHERS: usize = 16;

    /// The row of that number in a table, which is looked up there unless the thread still has it.
    #[inline]
    pub(crate) fn get(
        &mut self,
        table: u64,
        number: u32,
        look_up: impl FnOnce() -> Option<Arc<BindingRow>>,
    ) -> Option<&Arc<BindingRow>> {
        let is_it = |found: &Found| found.table == table && found.number == number;
        if !self.last.as_ref().is_some_and(is_it) {
            self.turn_to(table, number, look_up);
        }
        self.last.as_ref().map(|found| &found.row)
    }

    #[cold]
    fn turn_to(
        &mut self,
        table: u64,
        number: u32,
        look_up: impl FnOnce() -> Option<Arc<BindingRow>>,
    ) {
        if let Some(last) = self.last.take() {
            let place = last.number as usize % Self::OTHERS;
            self.others[place] = Some(last);
        }
        let place = &mut self.others[number as usize % Self::OTHERS];
        let found = place.take_if(|found| found.table == table && found.number == number);
        let looked_up = || look_up().map(|row| Found { table, number, row });
        self.last = found.or_else(looked_up);
    }

    /// Forgets the row that was asked for last.
    pub(crate) fn forget_last(&mut self) {
        self.last = None;
    }

    /// Forgets all of them.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{PathKind, Reply, Request, Served};
    use crate::interface::InterfaceRef;

    struct Nothing;

    impl Serve for Nothing {
        fn interface(&self) -> InterfaceRef {
            InterfaceRef::none()
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
            stopping: None,
        };
        Arc::new(BindingRow::new(
            0,
            Arc::new(Nothing),
            Arc::new(caller),
            100,
            Arc::default(),
            Tally::unseen(),
        ))
    }

    #[test]
    fn numbers_that_have_gone_mean_nothing() {
        let mut rows = BindingTable::default();
        let first = rows.add(row()).unwrap();
        let second = rows.add(row()).unwrap();
        assert_ne!(first, second);
        let gone = rows.remove(first).unwrap();
        assert!(!gone.admits(0));
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
    fn those_that_stand_are_counted() {
        let (mut rows, standing) = (BindingTable::default(), Arc::new(AtomicU32::new(0)));
        let one = || {
            let BindingRow { serve, caller, .. } = &*row();
            let (serve, caller) = (Arc::clone(serve), Arc::clone(caller));
            Arc::new(BindingRow::new(0, serve, caller, 100, Arc::clone(&standing), Tally::unseen()))
        };
        let never = one();
        let first = rows.add(one()).unwrap();
        rows.add(one()).unwrap();
        rows.remove(first).unwrap();
        assert!(rows.remove(first).is_none());
        assert_eq!(standing.load(Ordering::Relaxed), 1);
        rows.revoke_all();
        rows.revoke_all();
        drop((rows, never));
        assert_eq!(standing.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn there_are_only_so_many() {
        let (mut rows, row) = (BindingTable::default(), row());
        while rows.add(Arc::clone(&row)).is_some() {}
        assert_eq!(rows.len(), limits::BINDINGS_MAX);
    }
}
