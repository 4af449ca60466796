//! `Growing`: a table whose entries are made in groups, when one entry of a group is first used.
//!
//! Most sessions allow more calls at the same time than they ever make. The first [`GROUP`] entries exist
//! from the beginning. Later entries cost nothing until a call uses one of them.

use core::fmt;
use core::ops::Index;
use core::sync::atomic::{Ordering, fence};
use std::sync::OnceLock;

/// The number of entries that are made together.
const GROUP: usize = 64;

/// A table with a fixed number of entries. The entries are made on demand.
pub(crate) struct Growing<T> {
    first: Box<[T]>,
    more: Box<[OnceLock<Box<[T]>>]>,
    count: usize,
    make: Box<dyn Fn(u32) -> T + Send + Sync>,
}

impl<T> Growing<T> {
    /// Makes a table of `count` entries. `make` returns the entry for a number, and may be called at any
    /// time.
    pub(crate) fn new(count: u32, make: impl Fn(u32) -> T + Send + Sync + 'static) -> Self {
        let count = count as usize;
        let first = (0..count.min(GROUP)).map(|index| make(index as u32)).collect();
        let groups = count.saturating_sub(GROUP).div_ceil(GROUP);
        let more = (0..groups).map(|_| OnceLock::new()).collect();
        Self { first, more, count, make: Box::new(make) }
    }

    /// Returns the number of entries, whether they exist yet or not.
    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    /// Returns an entry, or `None` if the number is too high. Makes the entry if it does not exist yet.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        match self.first.get(index) {
            Some(entry) => Some(entry),
            None => self.beyond(index),
        }
    }

    /// Returns an entry after the first group.
    #[cold]
    fn beyond(&self, index: usize) -> Option<&T> {
        if index >= self.count {
            return None;
        }
        let later = index.checked_sub(GROUP)?;
        let group = self.more.get(later / GROUP)?;
        let entries = match group.get() {
            Some(entries) => entries,
            None => {
                let from = index - later % GROUP;
                let to = self.count.min(from + GROUP);
                let make = || (from..to).map(|index| (self.make)(index as u32)).collect();
                let entries = group.get_or_init(make);
                // SYNC: growing. If a thread sets a flag and then visits all entries, the thread sees this
                // group, or the user of this entry sees the flag.
                fence(Ordering::SeqCst);
                entries
            }
        };
        entries.get(later % GROUP)
    }

    /// Returns how many of the first `most` entries exist and fulfil a condition.
    #[inline]
    pub(crate) fn count_of(&self, most: usize, is_it: impl Fn(&T) -> bool) -> usize {
        let first = &self.first[..most.min(self.first.len())];
        let count = first.iter().filter(|one| is_it(one)).count();
        if most <= GROUP { count } else { count + self.count_beyond(most - GROUP, &is_it) }
    }

    #[cold]
    fn count_beyond(&self, most: usize, is_it: &dyn Fn(&T) -> bool) -> usize {
        let groups = self.more.iter().take(most.div_ceil(GROUP)).enumerate();
        let counts = groups.filter_map(|(at, group)| {
            let entries = group.get()?;
            let first = &entries[..entries.len().min(most - at * GROUP)];
            Some(first.iter().filter(|one| is_it(one)).count())
        });
        counts.sum()
    }

    /// Returns the entries that exist, in their order. The other entries were never used.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        // SYNC: growing, in `beyond`.
        fence(Ordering::SeqCst);
        self.first.iter().chain(self.more.iter().filter_map(OnceLock::get).flatten())
    }
}

impl<T> Index<usize> for Growing<T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, index: usize) -> &T {
        match self.get(index) {
            Some(entry) => entry,
            None => no_entry(index),
        }
    }
}

#[cold]
fn no_entry(index: usize) -> ! {
    panic!("the table has no entry {index}")
}

impl<T> fmt::Debug for Growing<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Growing").field("count", &self.count).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn entries_are_made_in_groups_when_they_are_first_used() {
        let made = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&made);
        let table = Growing::new(150, move |index| {
            counts.fetch_add(1, Ordering::Relaxed);
            index
        });
        let count = || made.load(Ordering::Relaxed);
        assert_eq!((table.len(), count(), table.iter().count()), (150, 64, 64));
        assert_eq!((table[0], table[63], count()), (0, 63, 64));
        assert_eq!((table[149], table[128], count()), (149, 128, 64 + 22));
        assert_eq!(table.count_of(150, |index| index % 2 == 0), 32 + 11);
        assert_eq!(table.count_of(140, |_| true), 64 + 12);
        assert_eq!((table.count_of(10, |_| true), count()), (10, 64 + 22));
        assert_eq!(table.get(100), Some(&100));
        assert_eq!((table.get(150), table.get(usize::MAX), count()), (None, None, 150));
        assert!(table.iter().copied().eq(0..150));
        let small = Growing::new(3, |index| index);
        assert_eq!((small.get(2), small.get(3), small.iter().count()), (Some(&2), None, 3));
    }
}
