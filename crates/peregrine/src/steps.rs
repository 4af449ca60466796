//! The times at which calls of this process pass their steps, for accounts of where the time of a call goes.
//!
//! A thread records a *stamp*, which is a time, at each step. Nothing is recorded unless an account is being
//! made: each side knows that from a mark that the calls of an account carry (`call/accounted.rs`), or from
//! [`ACTIVE`]. The stamps of one call are in memory of the thread, where the next call replaces them.

use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::sys;

/// A step of a call, whose time an [`Accounting`](crate::Accounting) records.
///
/// A client passes `Called`, `Begun`, `Entered`, `Sending`, `Sent`, `Received`, `Taken` and
/// `Returned`, in this order. A server passes `Received`, `Admitted`, `AdmittedAgain`, `Called`, `Returned`,
/// `Sending` and `Sent`.
// The numbers are part of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// The client's stub begins.
    Begun = 0,
    /// The client's path takes the call over. The arguments in the head are marshalled.
    Entered = 1,
    /// The first packet, or the word in memory, is about to be sent.
    Sending = 2,
    /// The last packet was sent. The peer may already have it.
    Sent = 3,
    /// The last packet has arrived, or the word was seen.
    Received = 4,
    /// The client's path has the result.
    Taken = 5,
    /// The server has checked the call, and runs it.
    Admitted = 6,
    /// Directly after `Admitted`: the difference is what a stamp costs.
    AdmittedAgain = 7,
    /// The client's program is about to make the call. At the server: its stub is called, and the arguments are
    /// in private memory.
    Called = 8,
    /// The call has returned to the client's program. At the server: its stub has returned.
    Returned = 9,
}

/// The number of the steps.
pub(crate) const STEPS: usize = 10;

/// The stamps of a call: the time of each step, in nanoseconds since the machine was started. 0: the call has
/// not passed this step.
pub(crate) type Stamps = [u64; STEPS];

/// The number of accounts that are being made in this process, as client or as server. The networks look at
/// it; the local path need not, because its calls are marked.
static ACTIVE: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static STAMPS: [Cell<u64>; STEPS] = const { [const { Cell::new(0) }; STEPS] };
    /// The bytes that the last call of an account has sent, and those that have come back.
    static BYTES: Cell<[usize; 2]> = const { Cell::new([0; 2]) };
    /// The steps that this thread records: one bit for each.
    static CHOSEN: Cell<u32> = const { Cell::new(ALL) };
}

/// All steps.
const ALL: u32 = (1 << STEPS) - 1;

/// Makes this thread record only these steps from now on. Few stamps disturb a call less: on some machines one
/// takes as long as a cache line that moves between processors.
pub(crate) fn choose(steps: &[Step]) {
    CHOSEN.set(steps.iter().fold(0, |bits, step| bits | 1 << *step as u32));
}

/// Makes this thread record all steps from now on.
pub(crate) fn choose_all() {
    CHOSEN.set(ALL);
}

/// As long as this value exists, its thread records nothing.
pub(crate) struct Pause(u32);

impl Pause {
    pub(crate) fn begin() -> Self {
        Self(CHOSEN.replace(0))
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        CHOSEN.set(self.0);
    }
}

/// As long as this value exists, all threads of this process record the steps of calls over networks.
#[derive(Debug)]
pub(crate) struct Recording(());

impl Recording {
    pub(crate) fn begin() -> Self {
        ACTIVE.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        ACTIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Records that this thread passes a step, if an account is being made.
#[inline(always)]
pub(crate) fn pass(step: Step) {
    if is_recording() {
        record(step);
    }
}

/// Records that this thread passes a step, if the step is [chosen](choose). If the step may occur several times
/// in a call, the last time counts, except for [`Step::Sending`].
#[inline(always)]
pub(crate) fn record(step: Step) {
    if CHOSEN.get() & 1 << step as u32 != 0 {
        put(step);
    }
}

#[cold]
fn put(step: Step) {
    STAMPS.with(|stamps| {
        if step == Step::Sending && stamps[step as usize].get() != 0 {
            return;
        }
        stamps[step as usize].set(sys::moment());
    });
}

/// Records that the client's stub begins a call.
#[cold]
pub(crate) fn begin() {
    keep_only(Step::Called);
    record(Step::Begun);
}

/// Records that the server has checked a call, and runs it.
#[cold]
fn admit() {
    keep_only(Step::Received);
    record(Step::Admitted);
    record(Step::AdmittedAgain);
}

/// Does the same as [`admit`], if an account is being made.
#[inline(always)]
pub(crate) fn pass_admission() {
    if is_recording() {
        admit();
    }
}

/// Returns whether an account is being made in this process.
#[inline(always)]
pub(crate) fn is_recording() -> bool {
    ACTIVE.load(Ordering::Relaxed) != 0
}

/// Forgets all stamps of this thread but that of one step.
fn keep_only(step: Step) {
    STAMPS.with(|stamps| {
        let kept = stamps[step as usize].get();
        stamps.iter().for_each(|stamp| stamp.set(0));
        stamps[step as usize].set(kept);
    });
}

/// Forgets all stamps of this thread, because its call ends later, or on another thread.
#[cold]
pub(crate) fn forget() {
    STAMPS.with(|stamps| stamps.iter().for_each(|stamp| stamp.set(0)));
}

/// Notes how many bytes the message of a call has.
#[cold]
pub(crate) fn note_sent(bytes: usize) {
    BYTES.set([bytes, 0]);
}

/// Notes how many bytes the result of the last call has.
#[cold]
pub(crate) fn note_received(bytes: usize) {
    let [sent, _] = BYTES.get();
    BYTES.set([sent, bytes]);
}

/// Returns how many bytes the last call of an account of this thread has sent, and how many have come back.
pub(crate) fn bytes() -> [usize; 2] {
    BYTES.get()
}

/// Returns the stamps of this thread's last call, and forgets them.
pub(crate) fn take() -> Stamps {
    let mut taken = STAMPS.with(|stamps| core::array::from_fn(|at| stamps[at].take()));
    sys::to_times(&mut taken);
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_send_and_last_arrival_of_a_call_count() {
        choose_all();
        forget();
        for step in
            [Step::Received, Step::Sending, Step::Sent, Step::Sending, Step::Sent, Step::Received]
        {
            record(step);
            std::thread::sleep(core::time::Duration::from_micros(20));
        }
        let stamps = take();
        let at = |step: Step| stamps[step as usize];
        assert!(at(Step::Sending) < at(Step::Sent) && at(Step::Sent) < at(Step::Received));
        assert!(at(Step::Sent) - at(Step::Sending) >= 60_000, "{stamps:?}");
        assert_eq!(at(Step::Called), 0);
        assert_eq!(take(), [0; STEPS]);
    }

    #[test]
    fn only_chosen_steps_are_recorded() {
        choose(&[Step::Called, Step::Taken]);
        [Step::Begun, Step::Called, Step::Taken].into_iter().for_each(record);
        let stamps = take();
        assert_eq!(stamps.iter().filter(|stamp| **stamp != 0).count(), 2, "{stamps:?}");
        assert!(stamps[Step::Called as usize] <= stamps[Step::Taken as usize]);
        choose_all();
    }

    #[test]
    fn new_call_forgets_the_last_one_and_calls_of_procedures_are_not_recorded() {
        choose_all();
        [Step::Sending, Step::Received, Step::Called].into_iter().for_each(record);
        begin();
        let pause = Pause::begin();
        [Step::Sending, Step::Received].into_iter().for_each(record);
        drop(pause);
        record(Step::Taken);
        let stamps = take();
        let passed = [Step::Called, Step::Begun, Step::Taken].map(|step| stamps[step as usize]);
        assert!(passed.is_sorted() && !passed.contains(&0), "{stamps:?}");
        assert_eq!(stamps.iter().filter(|stamp| **stamp != 0).count(), 3, "{stamps:?}");
    }

    #[test]
    fn nothing_is_recorded_unless_an_account_is_made() {
        pass(Step::Called);
        let before = take();
        let recording = Recording::begin();
        pass(Step::Called);
        drop(recording);
        assert_ne!(take()[Step::Called as usize], 0);
        // Another test of this process may be making an account.
        assert!(before[Step::Called as usize] == 0 || ACTIVE.load(Ordering::Relaxed) != 0);
    }
}
