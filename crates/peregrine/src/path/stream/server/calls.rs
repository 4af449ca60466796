//! `InFlight`: the calls of a connection that have come and are not answered, and which of them nobody
//! waits for any more.

use crate::sync::{Mutex, MutexGuard};

/// Calls by number.
#[derive(Debug, Default)]
pub(super) struct InFlight(Mutex<Calls>);

#[derive(Debug, Default)]
struct Calls {
    calls: Vec<Call>,
    /// The connection has ended: nobody waits for any of them.
    over: bool,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    number: u32,
    /// Whether its procedure has begun to run.
    runs: bool,
    given_up: bool,
}

impl InFlight {
    #[track_caller]
    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.0.lock()
    }

    /// A call has come. Before another thread reads on, which may find that it is given up.
    pub(super) fn begin(&self, number: u32) {
        self.calls().calls.push(Call { number, runs: false, given_up: false });
    }

    /// Its procedure is about to run; false if the call was given up, and is not to run.
    pub(super) fn starts(&self, number: u32) -> bool {
        let mut calls = self.calls();
        if calls.over {
            return false;
        }
        let call = calls.calls.iter_mut().find(|call| call.number == number);
        call.is_some_and(|call| {
            call.runs = !call.given_up;
            call.runs
        })
    }

    /// It has been answered; whether its procedure was captured.
    pub(super) fn end(&self, number: u32) -> bool {
        let mut calls = self.calls();
        let at = calls.calls.iter().position(|call| call.number == number);
        let ended = at.map(|at| calls.calls.swap_remove(at));
        ended.is_some_and(|call| call.runs && call.given_up)
    }

    /// Nobody waits any more for a call, if there is one of that number; how many procedures that
    /// captures.
    pub(super) fn abandon(&self, number: u32) -> usize {
        self.calls().abandon(|call| call.number == number)
    }

    /// The same of all calls: the connection has ended.
    pub(super) fn abandon_all(&self) -> usize {
        let mut calls = self.calls();
        calls.over = true;
        calls.abandon(|_| true)
    }

    /// Whether nobody waits for a call any more. One that has been answered is not known here.
    pub(super) fn is_abandoned(&self, number: u32) -> bool {
        self.calls().calls.iter().any(|call| call.number == number && call.given_up)
    }

    /// How many have been given up and are not answered.
    pub(super) fn abandoned(&self) -> u64 {
        self.calls().calls.iter().filter(|call| call.given_up).count() as u64
    }

    /// Whether there is any.
    pub(super) fn any(&self) -> bool {
        !self.calls().calls.is_empty()
    }
}

impl Calls {
    fn abandon(&mut self, which: impl Fn(&Call) -> bool) -> usize {
        let given_up = self.calls.iter_mut().filter(|call| which(call) && !call.given_up);
        given_up
            .map(|call| {
                call.given_up = true;
                usize::from(call.runs)
            })
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn procedure_is_captured_once_and_until_it_ends() {
        let calls = InFlight::default();
        (1..5).for_each(|number| calls.begin(number));
        assert!(calls.starts(1) && calls.starts(2));
        assert_eq!((calls.abandon(1), calls.abandon(1)), (1, 0));
        assert_eq!(calls.abandon(3), 0, "it does not run yet");
        assert!(!calls.starts(3), "it was given up before it could run");
        assert_eq!(calls.abandon_all(), 1, "only the second is captured anew");
        assert!(!calls.starts(4) && !calls.starts(5));
        assert_eq!([1, 2, 3, 4].map(|number| calls.end(number)), [true, true, false, false]);
    }

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
        (7..9).for_each(|number| assert!(!calls.end(number)));
        assert!(!calls.any());
    }
}
