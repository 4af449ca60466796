//! Room for calls and results: who gets it, who waits for it, and who is refused it.
//!
//! What a host's callers make a server keep has bounds. A call that would pass one waits until others
//! have made room: nothing is wrong with a client whose threads all call at once. It is refused only if
//! what takes the room does not go on, although callers that wait for it are heard of.
//!
//! * A call of several packets waits at its client, which is told to send nothing. The server keeps its
//!   place in a line, and no byte of it.
//! * A call that has come, and whose result there is no room for, waits here, with its arguments.
//!
//! Within a host's group the first that waits is the first that goes on, and groups take turns. What a
//! record has locked may lock a line, and not the other way round.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::records::Inner;
use super::retention::LimitReached;
use super::{CallBytes, EStack, Header, ReceiverState, Refusal, ServerSocket, Work};
use crate::path::datagram::peer::moment;
use crate::protocol::exchange::time::{MILLISECOND, Moment, SECOND};
use crate::sync::{Mutex, Rank};

/// A caller that waits asks at least every 400 ms. One that was not heard of for so long gets no room:
/// it may be gone, and the room with it.
const GONE: u64 = 1500 * MILLISECOND;

/// What a record's call waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WaitingFor {
    #[default]
    Nothing,
    /// Room for its arguments; whether it stands in the line.
    Room(bool),
    /// Room for its result.
    ResultRoom,
    /// A thread.
    Thread,
}

/// A call that waits at its client.
pub(super) struct QueuedCall {
    place: u32,
    sequence: u32,
    bytes: usize,
}

/// What waits, by groups of hosts, which take turns.
pub(super) struct FairQueue<T> {
    groups: Mutex<Groups<T>>,
    count: AtomicUsize,
}

struct Groups<T> {
    /// Those that have something waiting; the first is the next.
    turns: VecDeque<u16>,
    of: HashMap<u16, VecDeque<T>>,
}

impl<T> FairQueue<T> {
    /// `rank` is below those of the locks that callers of [`next`](Self::next) take in `may`.
    pub(super) fn new(rank: Rank) -> Self {
        let groups = Groups { turns: VecDeque::new(), of: HashMap::new() };
        Self { groups: Mutex::ranked(rank, groups), count: AtomicUsize::new(0) }
    }

    /// Whether anything waits.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    /// Whether anything of a group waits.
    fn has(&self, group: u16) -> bool {
        self.any() && self.groups.lock().of.contains_key(&group)
    }

    fn push(&self, group: u16, one: T) {
        let mut groups = self.groups.lock();
        let Groups { turns, of } = &mut *groups;
        let queue = of.entry(group).or_insert_with(|| {
            turns.push_back(group);
            VecDeque::new()
        });
        queue.push_back(one);
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    /// The first that may go on, of the group whose turn it is. A group whose own share is full is
    /// passed over. Where the whole is full nobody is: what needs much room would wait for ever.
    fn next(&self, may: impl Fn(u16, &T) -> Result<(), LimitReached>) -> Option<(u16, T)> {
        let mut groups = self.groups.lock();
        let Groups { turns, of } = &mut *groups;
        for turn in 0..turns.len() {
            let group = turns[turn];
            let queue = of.get_mut(&group)?;
            match may(group, queue.front()?) {
                Err(LimitReached::Group) => continue,
                Err(LimitReached::Total) => return None,
                Ok(()) => {}
            }
            let one = queue.pop_front()?;
            turns.remove(turn);
            if queue.is_empty() {
                of.remove(&group);
            } else {
                turns.push_back(group);
            }
            self.count.fetch_sub(1, Ordering::SeqCst);
            return Some((group, one));
        }
        None
    }
}

impl ServerSocket {
    /// Room for the first piece of a call of several packets, unless others of its group wait already.
    /// Without room the call waits at its client, or is refused.
    pub(super) fn begin(
        &self,
        receiver: &mut ReceiverState,
        inner: &mut Inner,
        now: Moment,
        header: &Header,
    ) {
        self.drop_call(inner);
        let (group, bytes) = (inner.group, header.shape.total as usize);
        let room = if self.line.has(group) { None } else { self.room(now, group, bytes) };
        match room {
            Some(call) => {
                inner.call = Some(call);
                inner.waits = WaitingFor::Nothing;
                self.calls.note_progress(group);
            }
            None => {
                inner.server_end.wait_for_room();
                inner.waits = WaitingFor::Room(false);
                self.still_waits(receiver, inner, now, header);
            }
        }
    }

    /// A packet came of a caller that waits for room.
    #[cold]
    pub(super) fn still_waits(
        &self,
        receiver: &mut ReceiverState,
        inner: &mut Inner,
        now: Moment,
        header: &Header,
    ) {
        let group = inner.group;
        match inner.waits {
            WaitingFor::Nothing => {}
            WaitingFor::ResultRoom => self.results.note_waiting(group, now),
            // Its arguments take room for as long as it waits.
            WaitingFor::Thread => self.calls.note_progress(group),
            WaitingFor::Room(_) if !inner.server_end.waits_for_room(header.sequence) => {
                // It was given up, or began again.
                inner.waits = WaitingFor::Nothing;
            }
            WaitingFor::Room(stands) => {
                // Those that hold the room may be gone.
                self.sweep_silent(now);
                let bytes = header.shape.total as usize;
                self.calls.note_waiting(group, bytes, now);
                if self.calls.is_stalled(group, bytes) {
                    inner.waits = WaitingFor::Nothing;
                    let text = "too many calls of several packets have begun, and do not go on";
                    receiver.serving.counting.refused(inner.row.as_ref().map(|row| &row.tally));
                    return self.reply_refusal(receiver, inner, &Refusal::exhausted(text));
                }
                if !stands {
                    inner.waits = WaitingFor::Room(true);
                    let bytes = inner.server_end.call_bytes() as usize;
                    let (place, sequence) = (header.handle.place, header.sequence);
                    self.line.push(group, QueuedCall { place, sequence, bytes });
                }
            }
        }
    }

    /// Gives room to calls that wait for it. The caller of this has no record locked.
    #[cold]
    pub(super) fn give_room(&self, receiver: &mut ReceiverState) {
        let reserve = |group, waiter: &QueuedCall| self.calls.try_reserve(group, waiter.bytes);
        while let Some((group, waiter)) = self.line.next(reserve) {
            let bytes = waiter.bytes;
            if !self.go_on(receiver, &waiter) {
                self.calls.subtract(group, bytes);
            }
        }
    }

    /// Has a client send its call, for which there is room now; false if it does not wait any more.
    fn go_on(&self, receiver: &mut ReceiverState, waiter: &QueuedCall) -> bool {
        let Some(record) = self.record(waiter.place) else { return false };
        let (mut inner, now) = (record.0.lock(), moment());
        if inner.waits != WaitingFor::Room(true)
            || !inner.server_end.waits_for_room(waiter.sequence)
        {
            return false;
        }
        if now.since(inner.server_end.last_heard()) > GONE {
            // If it is heard of again it stands in line again.
            inner.waits = WaitingFor::Room(false);
            return false;
        }
        inner.waits = WaitingFor::Nothing;
        let spare = self.estacks.take();
        let mut estack =
            spare.and_then(|mut spare| (spare.memory().len() <= waiter.bytes).then_some(spare));
        let estack = estack.get_or_insert_default();
        if !estack.reserve(waiter.bytes) {
            self.reply_refusal(receiver, &mut inner, &Refusal::exhausted("no memory for the call"));
            self.send_pending(inner, &mut receiver.output, &receiver.serving.counting);
            return false;
        }
        inner.server_end.resume();
        inner.call = Some((core::mem::take(estack), waiter.bytes));
        self.calls.note_progress(inner.group);
        self.send_pending(inner, &mut receiver.output, &receiver.serving.counting);
        true
    }

    /// Room for a call of several packets, reckoned.
    pub(super) fn room(&self, now: Moment, group: u16, bytes: usize) -> Option<(EStack, usize)> {
        let swept = Moment(self.swept.load(Ordering::Relaxed));
        if self.calls.any() && now.since(swept) >= SECOND {
            // Perhaps nobody goes on with them: a client that died while it sent has nobody to say so.
            self.sweep_silent(now);
        }
        let mut estack = self.estacks.take().unwrap_or_default();
        // What an earlier call needed is held for this one, too.
        let mut held = bytes.max(estack.memory().len());
        if !self.calls.reserve(group, held) {
            (estack, held) = (EStack::default(), bytes);
            self.sweep_silent(now);
            if !self.calls.reserve(group, held) {
                return None;
            }
        }
        if !estack.reserve(bytes) {
            self.calls.subtract(group, held);
            return None;
        }
        Some((estack, held))
    }

    pub(super) fn drop_call(&self, inner: &mut Inner) {
        // Whoever has borrowed it finds that it is not wanted back.
        inner.lent = None;
        if let Some((estack, bytes)) = inner.call.take() {
            self.done_with(inner.group, estack, bytes);
        }
    }

    pub(super) fn done_with(&self, group: u16, mut estack: EStack, bytes: usize) {
        self.calls.subtract(group, bytes);
        self.calls.note_progress(group);
        estack.trim();
        let kept = estack.memory().len();
        self.estacks.put(estack, kept);
    }

    // Results.

    /// Whether there is no room for one more result, although those who are silent for long lost
    /// theirs.
    #[inline]
    pub(super) fn is_short_of_results(&self, group: u16) -> bool {
        self.results.is_full(group) && {
            self.sweep_silent(moment());
            self.results.is_full(group)
        }
    }

    /// A call has come for whose result there is no room: it waits, or is refused.
    #[cold]
    pub(super) fn wait_for_results(&self, receiver: &mut ReceiverState, work: Work) {
        let group = work.group;
        if self.results.is_stalled(group) || self.host.is_stopping() {
            let text = "too many results are kept that no caller has acknowledged";
            return self.refuse_work(receiver, work, &Refusal::exhausted(text));
        }
        let Some(work) = self.keep_work(receiver, work, false) else { return };
        if let Some(record) = self.record(work.place) {
            record.0.lock().waits = WaitingFor::ResultRoom;
        }
        self.deferred.push(group, work);
    }

    /// Whether calls wait for room for their results.
    #[inline]
    pub(crate) fn has_deferred(&self) -> bool {
        self.deferred.any()
    }

    /// One of those calls, if it need not wait any more: there is room, or never will be.
    #[cold]
    pub(crate) fn deferred(&self) -> Option<Work> {
        let may = |group, work: &Work| {
            let waits = self.is_short_of_results(group)
                && !self.results.is_stalled(group)
                && !self.host.is_stopping()
                && !work.message.is_given_up(self, work.place);
            if waits { Err(LimitReached::Group) } else { Ok(()) }
        };
        let (_, work) = self.deferred.next(may)?;
        if let Some(record) = self.record(work.place) {
            record.0.lock().waits = WaitingFor::Nothing;
        }
        Some(work)
    }

    // Calls that wait for a thread.

    /// Makes a call independent of the hand that received it; refuses it if there is no memory.
    pub(crate) fn detach(&self, receiver: &mut ReceiverState, work: Work) -> Option<Work> {
        let work = self.keep_work(receiver, work, true)?;
        if let Some(record) = self.record(work.place) {
            let mut inner = record.0.lock();
            inner.waits = WaitingFor::Thread;
            // It may have been given up since it came.
            self.ends(&mut inner);
        }
        Some(work)
    }

    /// The procedure of a call that has waited is about to run; whether the call was given up.
    #[cold]
    pub(super) fn stops_waiting(&self, place: u32) -> bool {
        self.record(place).is_some_and(|record| {
            let mut inner = record.0.lock();
            inner.waits = WaitingFor::Nothing;
            inner.server_end.is_cancelled()
        })
    }

    // Procedures whose callers have given them up.

    /// The caller of a record has perhaps given its call up: if its procedure runs, it has captured a
    /// thread.
    #[cold]
    pub(super) fn note_given_up(&self, inner: &mut Inner) {
        if !inner.captured && inner.waits == WaitingFor::Nothing && inner.server_end.is_cancelled()
        {
            inner.captured = true;
            self.host.captured(1, 0);
        }
    }

    /// The procedure of a record has ended, or does not run: it has captured no thread any more.
    #[inline]
    pub(super) fn ends(&self, inner: &mut Inner) {
        if core::mem::take(&mut inner.captured) {
            self.host.captured(0, 1);
        }
    }

    /// The same; `queued`: how many of these there are is bounded by the queue, so that one that fits
    /// a packet is taken although its host has had its share.
    fn keep_work(
        &self,
        receiver: &mut ReceiverState,
        mut work: Work,
        queued: bool,
    ) -> Option<Work> {
        let range = match &work.message {
            CallBytes::Received(range) => range.clone(),
            CallBytes::Owned(..) => return Some(work),
        };
        let bytes = range.len();
        let mut room = self.room(moment(), work.group, bytes);
        if room.is_none() && queued {
            let mut estack = EStack::default();
            if estack.reserve(bytes) {
                self.calls.add(work.group, bytes);
                room = Some((estack, bytes));
            }
        }
        let Some((mut estack, bytes)) = room else {
            self.refuse_work(receiver, work, &Refusal::exhausted("too many calls wait"));
            return None;
        };
        let from = receiver.input.memory().get(range).unwrap_or(&[]);
        estack.memory()[..from.len()].copy_from_slice(from);
        work.message = CallBytes::Owned(estack, bytes);
        Some(work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(
        line: &FairQueue<u32>,
        may: impl Fn(u16, &u32) -> Result<(), LimitReached>,
    ) -> Vec<(u16, u32)> {
        core::iter::from_fn(|| line.next(&may)).collect()
    }

    #[test]
    fn groups_take_turns_and_each_goes_in_order() {
        let line = FairQueue::new(Rank::Leaf);
        for one in 0..3 {
            line.push(1, one);
        }
        line.push(2, 10);
        line.push(3, 20);
        assert!(line.has(1) && line.any() && !line.has(4));
        let order = all(&line, |_, _| Ok(()));
        assert_eq!(order, [(1, 0), (2, 10), (3, 20), (1, 1), (1, 2)]);
        assert!(!line.any() && !line.has(1));
    }

    #[test]
    fn full_share_holds_up_its_group_and_full_whole_everybody() {
        let line = FairQueue::new(Rank::Leaf);
        for group in [1, 2] {
            line.push(group, 5);
            line.push(group, 1);
        }
        let share = |group, _: &u32| if group == 1 { Err(LimitReached::Group) } else { Ok(()) };
        assert_eq!(all(&line, share), [(2, 5), (2, 1)]);
        line.push(2, 1);
        let whole = |_, bytes: &u32| if *bytes > 1 { Err(LimitReached::Total) } else { Ok(()) };
        assert_eq!(all(&line, whole), []);
        assert_eq!(all(&line, |_, _| Ok(())), [(1, 5), (2, 1), (1, 1)]);
    }
}
