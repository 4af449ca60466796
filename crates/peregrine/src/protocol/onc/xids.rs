//! The numbers of calls (xids), and which caller waits for the reply to each of them.

use crate::protocol::exchange::time::{Moment, SECOND};

/// How long a server may remember a call, in nanoseconds. A number is not used for another call within this
/// time. Otherwise the server could take the other call for a retransmission.
pub(crate) const SPAN: u64 = 120 * SECOND;

/// The 32-bit numbers are divided into four quarters by their two highest bits. The time of the last use is
/// kept for each quarter, not for each number. This is the number of the lower bits.
const QUARTER_BITS: u32 = 30;

/// Why no call can begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The largest number of callers waits already.
    Full,
    /// The next number was used within [`SPAN`]. This needs more than two billion calls in that time.
    TooFast,
}

/// The callers that wait for replies, by the numbers of their calls.
///
/// Over datagrams, there is one table for each socket. Over streams, there is one for each server: if a
/// connection ends, the calls keep their numbers on the next connection, so that the server recognizes them.
#[derive(Debug)]
pub(crate) struct Waiters<T> {
    next: u32,
    /// When a number of each quarter was last used.
    used: [Option<Moment>; 4],
    /// The callers with their numbers, in the order of the numbers. A vector keeps its memory, so that calls
    /// do not allocate.
    waiting: Vec<(u32, T)>,
    count_max: usize,
}

impl<T> Waiters<T> {
    /// Makes a table for at most `count_max` callers. The first number is `start`. It should be random, so
    /// that the numbers of a process differ from those of earlier processes at the same address.
    pub(crate) const fn new(start: u32, count_max: usize) -> Self {
        Self { next: start, used: [None; 4], waiting: Vec::new(), count_max }
    }

    /// Adds a caller, and returns the number for its call.
    ///
    /// # Errors
    /// Fails if too many callers wait, or if numbers would be repeated too early. `waiter` is then dropped.
    pub(crate) fn add(&mut self, now: Moment, waiter: T) -> Result<u32, Refused> {
        if self.waiting.len() >= self.count_max {
            return Err(Refused::Full);
        }
        // Numbers of callers that still wait are skipped. There are at most `count_max` such numbers.
        let mut xid = self.next;
        while self.place(xid).is_ok() {
            xid = xid.wrapping_add(1);
        }
        let quarter = (xid >> QUARTER_BITS) as usize;
        let last = (self.next.wrapping_sub(1) >> QUARTER_BITS) as usize;
        let enters = quarter != last;
        if enters && self.used[quarter].is_some_and(|used| now.since(used) < SPAN) {
            return Err(Refused::TooFast);
        }
        self.used[quarter] = Some(now);
        self.next = xid.wrapping_add(1);
        let place = self.place(xid).unwrap_or_else(|place| place);
        self.waiting.insert(place, (xid, waiter));
        Ok(xid)
    }

    /// Returns the place of a number in the list, or the place at which to insert the number.
    fn place(&self, xid: u32) -> Result<usize, usize> {
        self.waiting.binary_search_by_key(&xid, |(xid, _)| *xid)
    }

    /// Returns the caller that waits for the reply with this number.
    pub(crate) fn find(&mut self, xid: u32) -> Option<&mut T> {
        let place = self.place(xid).ok()?;
        Some(&mut self.waiting[place].1)
    }

    /// Removes the caller that waits for the reply with this number. Returns `None` if no caller waits,
    /// because the reply is a duplicate, is late, or has a number that the client never used.
    pub(crate) fn remove(&mut self, xid: u32) -> Option<T> {
        let place = self.place(xid).ok()?;
        Some(self.waiting.remove(place).1)
    }

    /// Returns the callers that wait, in the order of their numbers. After a connection has ended, the code
    /// of the path fails their calls, or sends these calls again with the same numbers.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.waiting.iter().map(|(xid, waiter)| (*xid, waiter))
    }

    /// Removes all callers.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (u32, T)> {
        core::mem::take(&mut self.waiting).into_iter()
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: Moment = Moment(1000 * SECOND);

    #[test]
    fn late_duplicate_finds_no_caller() {
        let mut waiters = Waiters::new(u32::MAX, 3);
        assert_eq!(waiters.add(START, 'a'), Ok(u32::MAX));
        assert_eq!(waiters.add(START, 'b'), Ok(0));
        assert_eq!(waiters.add(START, 'c'), Ok(1));
        assert_eq!(waiters.find(0), Some(&mut 'b'));
        assert_eq!(waiters.find(5), None);
        assert_eq!(waiters.add(START, 'd'), Err(Refused::Full));
        assert_eq!(
            (waiters.remove(0), waiters.remove(0), waiters.remove(5)),
            (Some('b'), None, None)
        );
        assert_eq!(waiters.add(START, 'd'), Ok(2));
        assert!(waiters.iter().map(|(xid, _)| xid).eq([1, 2, u32::MAX]));
        assert!(waiters.drain().map(|(_, waiter)| waiter).eq(['c', 'd', 'a']));
        assert_eq!(waiters.len(), 0);
    }

    #[test]
    fn number_is_not_used_again_within_the_span() {
        let mut waiters = Waiters::new(0x3fff_ffff, 10);
        assert_eq!(waiters.add(START, ()), Ok(0x3fff_ffff));
        assert_eq!(waiters.add(START, ()), Ok(0x4000_0000));
        // Pretend that all higher numbers were used. The next number is then in the first quarter again.
        waiters.next = 0;
        let early = START.after(SPAN - 1);
        assert_eq!(waiters.add(early, ()), Err(Refused::TooFast));
        assert_eq!(waiters.add(START.after(SPAN), ()), Ok(0));
        // Within a quarter, the time is of no importance.
        assert_eq!(waiters.add(START.after(SPAN), ()), Ok(1));
        // The number of a caller that still waits is skipped, regardless of the age of the call.
        waiters.next = 0x3fff_ffff;
        assert_eq!(waiters.add(START.after(2 * SPAN), ()), Ok(0x4000_0001));
    }

    proptest! {
        #[test]
        fn waiting_numbers_are_unique(
            start in any::<u32>(), ends in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut waiters = Waiters::new(start, 16);
            let mut waiting = Vec::new();
            for end in ends {
                match waiters.add(START, end) {
                    Ok(xid) => {
                        prop_assert!(waiting.iter().all(|(other, _)| *other != xid));
                        waiting.push((xid, end));
                    }
                    Err(refused) => prop_assert_eq!((refused, waiting.len()), (Refused::Full, 16)),
                }
                if end % 3 == 0 || waiting.len() == 16 {
                    let (xid, tag) = waiting.swap_remove(usize::from(end) % waiting.len());
                    prop_assert_eq!(waiters.remove(xid), Some(tag));
                }
            }
            prop_assert_eq!(waiters.len(), waiting.len());
        }
    }
}
