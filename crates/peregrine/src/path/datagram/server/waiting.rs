//! Calls that wait for memory or for a thread. This module queues such calls, or refuses them.
//!
//! The memory that the clients of a host may occupy is limited. A client with many threads may make many
//! calls at once. So a call that would exceed a limit waits until earlier calls release memory. The server
//! refuses a waiting call only if the calls that occupy the memory make no progress, while packets of the
//! waiting client arrive.
//!
//! * A call of several packets waits at its client: the server asks the client to send nothing for now. The
//!   server has an entry for this call in a queue, but none of the call's bytes.
//! * If there is no memory for the result of a call, the call waits at the server, together with its
//!   arguments.
//!
//! Hosts are divided into groups. Within a group, calls are served in order. The groups are served
//! round-robin. Lock order: first the queue of calls that wait at the server, then a record, then the queue
//! of calls that wait at their clients.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::records::Inner;
use super::retention::LimitReached;
use super::{CallBytes, EStack, Header, ReceiverState, Refusal, ServerSocket, Work};
use crate::call::deferred::Cancels;
use crate::path::datagram::peer::moment;
use crate::protocol::exchange::server_end::RecordPhase;
use crate::protocol::exchange::time::{MILLISECOND, Moment, SECOND};
use crate::sync::{Mutex, Rank};

/// A client that was silent for this many nanoseconds gets no memory, because the client may be dead. A live
/// waiting client sends a probe at least every 400 ms.
const GONE: u64 = 1500 * MILLISECOND;

/// What the call of a record waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WaitingFor {
    #[default]
    Nothing,
    /// Memory for the arguments. The flag is true if the queue contains the call.
    Room(bool),
    /// Memory for the result.
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

/// A queue that consists of one queue for each group of hosts. The groups are served round-robin.
pub(super) struct FairQueue<T> {
    groups: Mutex<Groups<T>>,
    count: AtomicUsize,
}

struct Groups<T> {
    /// The groups that have waiting entries. The first group is served next.
    turns: VecDeque<u16>,
    /// The entries of each group. The oldest entry is the first.
    of: HashMap<u16, VecDeque<T>>,
}

impl<T> FairQueue<T> {
    /// Creates an empty queue. The function that is passed to [`next`](Self::next) can take locks. `rank`
    /// must be below the ranks of these locks.
    pub(super) fn new(rank: Rank) -> Self {
        let groups = Groups { turns: VecDeque::new(), of: HashMap::new() };
        Self { groups: Mutex::ranked(rank, groups), count: AtomicUsize::new(0) }
    }

    /// Returns whether any entry waits.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    /// Returns whether any entry of this group waits.
    fn has(&self, group: u16) -> bool {
        self.any() && self.groups.lock().of.contains_key(&group)
    }

    pub(super) fn push(&self, group: u16, one: T) {
        let mut groups = self.groups.lock();
        let Groups { turns, of } = &mut *groups;
        let queue = of.entry(group).or_insert_with(|| {
            turns.push_back(group);
            VecDeque::new()
        });
        queue.push_back(one);
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    /// Removes and returns the first entry of the next group, if `may` permits this. Skips groups that have
    /// used up their share. If all groups together have too little memory left for an entry, returns `None`,
    /// even if a smaller entry of another group would fit. If smaller entries overtook a large entry, the
    /// large entry could wait forever.
    pub(super) fn next(
        &self,
        may: impl Fn(u16, &T) -> Result<(), LimitReached>,
    ) -> Option<(u16, T)> {
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
    /// Reserves memory for a call of several packets, when the first piece of the call arrives. If there is
    /// no memory, or if calls of the same group already wait, the call waits at its client, or is refused.
    pub(super) fn begin(
        &self,
        receiver: &mut ReceiverState,
        inner: &mut Inner,
        now: Moment,
        header: &Header,
    ) {
        self.drop_call(inner);
        let (group, bytes) = (inner.group, header.shape.total as usize);
        let room = if self.queued.has(group) { None } else { self.room(now, group, bytes) };
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

    /// Handles a packet of a client whose call waits.
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
            // This call occupies memory, for which other calls may wait. They must not be refused while
            // packets of this client arrive. So such a packet counts as progress.
            WaitingFor::Thread => self.calls.note_progress(group),
            WaitingFor::Room(_) if inner.server_end.phase() != RecordPhase::Waiting => {
                // The call was cancelled, or the client has already begun its next call.
                inner.waits = WaitingFor::Nothing;
            }
            // This is a late packet of an earlier call. It does not concern the waiting call.
            WaitingFor::Room(_) if !inner.server_end.waits_for_room(header.sequence) => {}
            WaitingFor::Room(is_queued) => {
                // The clients that occupy the memory may be dead. In that case, the sweep releases the
                // memory.
                self.sweep_silent(now);
                let bytes = inner.server_end.call_bytes() as usize;
                self.calls.note_waiting(group, bytes, now);
                if self.calls.is_stalled(group, bytes) {
                    inner.waits = WaitingFor::Nothing;
                    let text = "too many incomplete calls make no progress";
                    receiver.serving.counting.refused(inner.row.as_ref().map(|row| &row.tally));
                    let refusal = Refusal::exhausted(text);
                    return self.reply_refusal(&mut receiver.reply, inner, &refusal);
                }
                if !is_queued {
                    inner.waits = WaitingFor::Room(true);
                    let (place, sequence) = (header.handle.place, header.sequence);
                    self.queued.push(group, QueuedCall { place, sequence, bytes });
                }
            }
        }
    }

    /// Gives memory to waiting calls. The calling thread must hold no lock of a record.
    #[cold]
    pub(super) fn give_room(&self, receiver: &mut ReceiverState) {
        let reserve = |group, waiter: &QueuedCall| self.calls.try_reserve(group, waiter.bytes);
        while let Some((group, waiter)) = self.queued.next(reserve) {
            let bytes = waiter.bytes;
            if !self.resume(receiver, &waiter) {
                self.calls.subtract(group, bytes);
            }
        }
    }

    /// Asks a client to send its waiting call. Returns false if the call does not use the reserved memory,
    /// for example because the call does not wait any more.
    fn resume(&self, receiver: &mut ReceiverState, waiter: &QueuedCall) -> bool {
        let Some(record) = self.record(waiter.place) else { return false };
        let (mut inner, now) = (record.0.lock(), moment());
        if inner.waits != WaitingFor::Room(true)
            || !inner.server_end.waits_for_room(waiter.sequence)
        {
            return false;
        }
        if now.since(inner.server_end.last_heard()) > GONE {
            // The call is queued again when the next packet of the client arrives.
            inner.waits = WaitingFor::Room(false);
            return false;
        }
        inner.waits = WaitingFor::Nothing;
        let mut estack = self.estacks.take().unwrap_or_default();
        let kept = estack.memory().len();
        if kept > waiter.bytes {
            // This recycled E-stack is put back: with it, the call would be charged more bytes than were
            // reserved.
            self.estacks.put(core::mem::take(&mut estack), kept);
        }
        if !estack.reserve(waiter.bytes) {
            let refusal = Refusal::exhausted("no memory for the call");
            self.reply_refusal(&mut receiver.reply, &mut inner, &refusal);
            self.send_pending(inner, &mut receiver.reply.output, &receiver.serving.counting);
            return false;
        }
        inner.server_end.resume();
        inner.call = Some((estack, waiter.bytes));
        self.calls.note_progress(inner.group);
        self.send_pending(inner, &mut receiver.reply.output, &receiver.serving.counting);
        true
    }

    /// Reserves memory for a call of `bytes` bytes. Returns the memory, and the number of bytes that are
    /// charged for it.
    pub(super) fn room(&self, now: Moment, group: u16, bytes: usize) -> Option<(EStack, usize)> {
        let swept = Moment(self.swept.load(Ordering::Relaxed));
        if self.calls.any() && now.since(swept) >= SECOND {
            // A client that died while it sent a call still occupies memory of this server. The sweep
            // releases such memory.
            self.sweep_silent(now);
        }
        let mut estack = self.estacks.take().unwrap_or_default();
        // If an E-stack is recycled, its whole memory is charged.
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
        // If a thread has borrowed the memory of the call, that thread notices this change, and releases the
        // memory.
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

    /// Returns whether there is no memory for a further result, even after silent clients were evicted.
    #[inline]
    pub(super) fn is_short_of_results(&self, group: u16) -> bool {
        self.results.is_full(group) && {
            self.sweep_silent(moment());
            self.results.is_full(group)
        }
    }

    /// Handles a call for whose result there is no memory: queues the call, or refuses it.
    #[cold]
    pub(super) fn wait_for_results(&self, receiver: &mut ReceiverState, work: Work) {
        let group = work.group;
        if self.results.is_stalled(group) || self.host.is_stopping() {
            let text = "too many results wait for acknowledgements";
            return self.refuse_work(receiver, work, &Refusal::exhausted(text));
        }
        let Some(work) = self.keep_work(receiver, work, false) else { return };
        if let Some(record) = self.record(work.place) {
            record.0.lock().waits = WaitingFor::ResultRoom;
        }
        self.postponed.push(group, work);
    }

    /// Returns whether any call waits for memory for its result.
    #[inline]
    pub(crate) fn has_postponed(&self) -> bool {
        self.postponed.any()
    }

    /// Removes and returns a call that must not wait any more for memory for its result. The reason is one of
    /// four: there is memory now, the wait has stalled, the server stops, or the call was cancelled.
    #[cold]
    pub(crate) fn postponed(&self) -> Option<Work> {
        let may = |group, work: &Work| {
            let waits = self.is_short_of_results(group)
                && !self.results.is_stalled(group)
                && !self.host.is_stopping()
                && !work.message.is_given_up(self, work.place);
            if waits { Err(LimitReached::Group) } else { Ok(()) }
        };
        let (_, work) = self.postponed.next(may)?;
        if let Some(record) = self.record(work.place) {
            record.0.lock().waits = WaitingFor::Nothing;
        }
        Some(work)
    }

    // Calls that wait for a thread.

    /// Detaches a call from the thread that received it, so that another thread can run it. If there is no
    /// memory, refuses the call, and returns `None`.
    pub(crate) fn detach(&self, receiver: &mut ReceiverState, work: Work) -> Option<Work> {
        let work = self.keep_work(receiver, work, true)?;
        if let Some(record) = self.record(work.place) {
            let mut inner = record.0.lock();
            inner.waits = WaitingFor::Thread;
            // If the call was cancelled after it arrived, it was counted as captured. A waiting call must not
            // count as captured.
            self.ends(&mut inner);
        }
        Some(work)
    }

    /// Notes that a call does not wait any more. Returns whether the call was cancelled.
    #[cold]
    pub(super) fn stops_waiting(&self, place: u32) -> bool {
        self.record(place).is_some_and(|record| {
            let mut inner = record.0.lock();
            inner.waits = WaitingFor::Nothing;
            inner.server_end.is_cancelled()
        })
    }

    // Procedures whose clients have cancelled the calls.

    /// Counts the running procedure of a record as captured, if the client has cancelled the call. If the
    /// call is deferred, no thread runs it, and nothing is counted. Instead, this function returns the
    /// [`Cancels`] of the call. The caller must release its locks, and then cancel the call with this value.
    #[cold]
    #[must_use]
    pub(super) fn note_given_up(&self, inner: &mut Inner) -> Option<Arc<dyn Cancels>> {
        if !inner.server_end.is_cancelled() {
            return None;
        }
        if let Some(deferred) = &mut inner.deferred {
            return deferred.cancels.take();
        }
        if !inner.captured && inner.waits == WaitingFor::Nothing {
            inner.captured = true;
            self.host.captured(1, 0);
        }
        None
    }

    /// Stops counting the procedure of a record as captured, because the procedure has ended or does not run.
    #[inline]
    pub(super) fn ends(&self, inner: &mut Inner) {
        if core::mem::take(&mut inner.captured) {
            self.host.captured(0, 1);
        }
    }

    /// Copies the bytes of a received call into memory that only this call uses. `queued` is true if the call
    /// goes to a queue of bounded length. Such a call is accepted even if its host has used up its share,
    /// because the bytes of each call fit one packet.
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
        queue: &FairQueue<u32>,
        may: impl Fn(u16, &u32) -> Result<(), LimitReached>,
    ) -> Vec<(u16, u32)> {
        core::iter::from_fn(|| queue.next(&may)).collect()
    }

    #[test]
    fn groups_are_served_round_robin_and_each_in_order() {
        let queue = FairQueue::new(Rank::Leaf);
        for one in 0..3 {
            queue.push(1, one);
        }
        queue.push(2, 10);
        queue.push(3, 20);
        assert!(queue.has(1) && queue.any() && !queue.has(4));
        let order = all(&queue, |_, _| Ok(()));
        assert_eq!(order, [(1, 0), (2, 10), (3, 20), (1, 1), (1, 2)]);
        assert!(!queue.any() && !queue.has(1));
    }

    #[test]
    fn exhausted_share_delays_its_group_and_exhausted_total_delays_all() {
        let queue = FairQueue::new(Rank::Leaf);
        for group in [1, 2] {
            queue.push(group, 5);
            queue.push(group, 1);
        }
        let share = |group, _: &u32| if group == 1 { Err(LimitReached::Group) } else { Ok(()) };
        assert_eq!(all(&queue, share), [(2, 5), (2, 1)]);
        queue.push(2, 1);
        let total = |_, bytes: &u32| if *bytes > 1 { Err(LimitReached::Total) } else { Ok(()) };
        assert_eq!(all(&queue, total), []);
        assert_eq!(all(&queue, |_, _| Ok(())), [(1, 5), (2, 1), (1, 1)]);
    }
}
