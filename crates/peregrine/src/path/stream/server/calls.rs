//! `InFlight`: the calls of a connection that have come and are not answered, and which of them nobody
//! waits for any more.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Calls by number, and whether their callers have given them up.
#[derive(Debug, Default)]
pub(super) struct InFlight(Mutex<Vec<(u32, bool)>>);

impl InFlight {
    fn calls(&self) -> MutexGuard<'_, Vec<(u32, bool)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call has come. Before anybody else reads on, who may find that it is given up.
    pub(super) fn begin(&self, number: u32) {
        self.calls().push((number, false));
    }

    /// It has been answered.
    pub(super) fn end(&self, number: u32) {
        let mut calls = self.calls();
        if let Some(at) = calls.iter().position(|(one, _)| *one == number) {
            calls.swap_remove(at);
        }
    }

    /// Nobody waits any more for a call, if there is one of that number.
    pub(super) fn abandon(&self, number: u32) {
        let mut calls = self.calls();
        let given_up = calls.iter_mut().filter(|(one, _)| *one == number);
        given_up.for_each(|(_, given_up)| *given_up = true);
    }

    /// Whether nobody waits for a call any more. One that has been answered is not known here.
    pub(super) fn is_abandoned(&self, number: u32) -> bool {
        self.calls().contains(&(number, true))
    }

    /// How many have been given up and are not answered.
    pub(super) fn abandoned(&self) -> u64 {
        self.calls().iter().filter(|(_, given_up)| *given_up).count() as u64
    }

    /// Whether there is any.
    pub(super) fn any(&self) -> bool {
        !self.calls().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_given_up_while_it_is_known() {
        let calls = InFlight::default();
        calls.abandon(7);
        calls.begin(7);
        calls.begin(8);
        assert!(!calls.is_abandoned(7), "what came before it was meant for another one");
        calls.abandon(7);
        assert!(calls.is_abandoned(7) && !calls.is_abandoned(8) && calls.any());
        calls.end(7);
        calls.end(9);
        calls.begin(7);
        assert!(!calls.is_abandoned(7), "the number is another call's");
        (7..9).for_each(|number| calls.end(number));
        assert!(!calls.any());
    }
}
