//! The calls of one connection whose replies have not arrived.
//!
//! A client may send further calls before the reply to an earlier call has arrived, for example if it does
//! not need the result. A server of the standard answers one call before it reads the next one. So replies
//! arrive in the order of the calls.

use std::collections::VecDeque;

/// The largest number of calls without reply. If a server rejects all of them, its replies still fit the
/// buffers of the connection. So a client that sends without reading does not block the server.
pub(crate) const CALLS_MAX: usize = 1024;

/// The error if [`CALLS_MAX`] calls are outstanding already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// A reply that does not belong to the oldest call. The client closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnexpectedReply;

/// The calls without replies, the oldest first. The value `T` of a call says which caller waits for the
/// reply, or that no caller waits.
#[derive(Debug)]
pub(crate) struct Outstanding<T> {
    next: u16,
    calls: VecDeque<(u16, T)>,
}

impl<T> Outstanding<T> {
    pub(crate) const fn new() -> Self {
        Self { next: 0, calls: VecDeque::new() }
    }

    /// Adds a call, which must be sent after all calls that were added before. Returns the transaction number
    /// of the call.
    ///
    /// # Errors
    /// Fails if [`CALLS_MAX`] calls are outstanding. A reply must be read before a call can be added.
    pub(crate) fn add(&mut self, waiter: T) -> Result<u16, Full> {
        if self.calls.len() >= CALLS_MAX {
            return Err(Full);
        }
        let transaction = self.next;
        self.next = transaction.wrapping_add(1);
        self.calls.push_back((transaction, waiter));
        Ok(transaction)
    }

    /// Returns the value that says which caller waits for the reply to a call. A caller that gives up changes
    /// this value, because the reply still arrives.
    pub(crate) fn find(&mut self, transaction: u16) -> Option<&mut T> {
        let mut calls = self.calls.iter_mut();
        calls.find(|(number, _)| *number == transaction).map(|(_, waiter)| waiter)
    }

    /// Removes the oldest call, to which a reply with this transaction number has arrived.
    ///
    /// # Errors
    /// Fails if the oldest call has another number, or if no call waits for a reply.
    pub(crate) fn answered(&mut self, transaction: u16) -> Result<T, UnexpectedReply> {
        let call = self.calls.pop_front_if(|(number, _)| *number == transaction);
        call.map(|(_, waiter)| waiter).ok_or(UnexpectedReply)
    }

    /// Returns the transaction number of the oldest call.
    pub(crate) fn oldest(&self) -> Option<u16> {
        self.calls.front().map(|(number, _)| *number)
    }

    /// Removes a call that was never sent. Does nothing if there is no such call.
    pub(crate) fn take_back(&mut self, transaction: u16) {
        self.calls.retain(|(number, _)| *number != transaction);
    }

    /// Removes all calls, oldest first, because the connection has ended. Returns their transaction numbers
    /// and values.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (u16, T)> {
        core::mem::take(&mut self.calls).into_iter()
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_arrive_in_the_order_of_the_calls() {
        let mut calls = Outstanding::new();
        assert_eq!([calls.add('a'), calls.add('b'), calls.add('c')], [Ok(0), Ok(1), Ok(2)]);
        assert_eq!(calls.answered(1), Err(UnexpectedReply));
        assert_eq!((calls.answered(0), calls.answered(0)), (Ok('a'), Err(UnexpectedReply)));
        // The caller gives up. The call keeps its place until the reply arrives.
        *calls.find(1).expect("a call") = '-';
        assert_eq!(calls.find(0), None);
        assert_eq!((calls.answered(1), calls.len()), (Ok('-'), 1));
        assert_eq!(calls.oldest(), Some(2));
        assert!(calls.drain().eq([(2, 'c')]));
        assert_eq!((calls.len(), calls.answered(2)), (0, Err(UnexpectedReply)));
    }

    #[test]
    fn call_that_was_never_sent_has_no_reply() {
        let mut calls = Outstanding::new();
        assert_eq!([calls.add('a'), calls.add('b'), calls.add('c')], [Ok(0), Ok(1), Ok(2)]);
        calls.take_back(1);
        calls.take_back(7);
        assert_eq!([calls.answered(0), calls.answered(2)], [Ok('a'), Ok('c')]);
        assert_eq!(calls.oldest(), None);
    }

    #[test]
    fn calls_are_bounded_and_numbers_wrap() {
        let mut calls = Outstanding::new();
        for number in 0..CALLS_MAX {
            assert_eq!(calls.add(number), Ok(number as u16));
        }
        assert_eq!(calls.add(0), Err(Full));
        for number in CALLS_MAX..70_000 {
            let oldest = number - CALLS_MAX;
            assert_eq!(calls.answered(oldest as u16), Ok(oldest));
            assert_eq!(calls.add(number), Ok(number as u16));
        }
        assert_eq!(calls.len(), CALLS_MAX);
    }
}
