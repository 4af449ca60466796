//! The bindings of a session, as the server keeps them: numbers that mean one export each.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use crate::call::{CallerInfo, Serve};
use crate::limits;

/// One binding: what its calls run, and for whom.
pub(crate) struct Row {
    /// Which export of the server it is bound to.
    pub(crate) export: u64,
    pub(crate) serve: Arc<dyn Serve>,
    pub(crate) caller: Arc<CallerInfo>,
    /// Bytes that a message may have.
    pub(crate) message_bytes: usize,
    revoked: AtomicBool,
}

impl Row {
    pub(crate) const fn new(
        export: u64,
        serve: Arc<dyn Serve>,
        caller: Arc<CallerInfo>,
        message_bytes: usize,
    ) -> Self {
        Self { export, serve, caller, message_bytes, revoked: AtomicBool::new(false) }
    }

    /// Whether calls of so many bytes are run.
    #[inline]
    pub(super) fn admits(&self, bytes: u32) -> bool {
        bytes as usize <= self.message_bytes && !self.is_revoked()
    }

    /// Refuses all calls from now on.
    pub(crate) fn revoke(&self) {
        self.revoked.store(true, Ordering::Release);
    }

    #[inline]
    pub(super) fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::Acquire)
    }
}

/// Rows by number: a place in the low 16 bits, above it how often the place was used before, so
/// that a number which has gone does not soon mean another binding.
#[derive(Default)]
pub(crate) struct Rows {
    places: Vec<(u16, Option<Arc<Row>>)>,
    free: Vec<u16>,
}

impl Rows {
    /// Adds a row; its number, or `None` if there are too many.
    pub(crate) fn add(&mut self, row: Arc<Row>) -> Option<u32> {
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
        *vacant = Some(row);
        Some(u32::from(*used) << 16 | u32::from(place))
    }

    fn place(number: u32) -> (usize, u16) {
        ((number & 0xffff) as usize, (number >> 16) as u16)
    }

    /// The row of that number.
    pub(crate) fn get(&self, number: u32) -> Option<Arc<Row>> {
        let (place, used) = Self::place(number);
        let (now, row) = self.places.get(place)?;
        row.as_ref().filter(|_| *now == used).map(Arc::clone)
    }

    /// Takes a row away; it admits no call any more.
    pub(crate) fn remove(&mut self, number: u32) -> Option<Arc<Row>> {
        let row = self.get(number)?;
        let (place, _) = Self::place(number);
        self.places[place].1 = None;
        self.free.push(place as u16);
        row.revoke();
        Some(row)
    }

    /// All rows, with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Arc<Row>)> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{PathKind, Reply, Request, Served};
    use crate::interface::{Digest, Interface};

    struct Nothing;

    impl Serve for Nothing {
        fn interface(&self) -> &'static Interface {
            &Interface {
                name: "",
                version: 0,
                docs: "",
                procedures: &[],
                digest: || Digest([0; 16]),
            }
        }
        fn serve(&self, _: &mut Request<'_>, _: &mut Reply<'_>) -> Served {
            Ok(())
        }
    }

    fn row() -> Arc<Row> {
        let caller = CallerInfo {
            path: PathKind::Local,
            export: "nothing".into(),
            process: 1,
            user: 0,
            group: 0,
        };
        Arc::new(Row::new(0, Arc::new(Nothing), Arc::new(caller), 100))
    }

    #[test]
    fn numbers_that_have_gone_mean_nothing() {
        let mut rows = Rows::default();
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
    fn there_are_only_so_many() {
        let (mut rows, row) = (Rows::default(), row());
        while rows.add(Arc::clone(&row)).is_some() {}
        assert_eq!(rows.len(), limits::BINDINGS_MAX);
    }
}
