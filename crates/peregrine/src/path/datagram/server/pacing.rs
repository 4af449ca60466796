//! Paces the packets of results: a thread sends some packets later, so that they are spread over a round
//! trip. Also keeps the congestion control of the network path to each peer. All records of a peer share this
//! congestion control.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::ServerSocket;
use crate::path::datagram::peer::{PeerFlow, moment};
use crate::protocol::exchange::server_end::ServerEnd;
use crate::protocol::exchange::time::Moment;
use crate::sync::{Condvar, Mutex, MutexGuard, Rank};

/// How long the pacing thread waits for work before it ends.
const LINGER: Duration = Duration::from_secs(5);
/// The name of the pacing thread.
const THREAD: &str = "peregrine-pace";
/// The smallest number of entries at which entries of peers without a record are removed.
const FLOWS_MIN: usize = 64;

/// For each peer that has records: the congestion control of the network path to it. The key is the peer's
/// number.
#[derive(Default)]
pub(super) struct Flows(Mutex<Known>);

#[derive(Default)]
struct Known {
    flows: HashMap<u64, Weak<PeerFlow>>,
    /// When the table has this many entries, entries of peers without a record are removed before the next
    /// insertion.
    full: usize,
}

impl Flows {
    /// Returns the congestion control of the network path to a peer.
    pub(super) fn of(&self, peer: u64) -> Arc<PeerFlow> {
        let mut known = self.0.lock();
        if let Some(flow) = known.flows.get(&peer).and_then(Weak::upgrade) {
            return flow;
        }
        if known.flows.len() >= known.full {
            known.flows.retain(|_, flow| flow.strong_count() > 0);
            known.full = (2 * known.flows.len()).max(FLOWS_MIN);
        }
        let flow = PeerFlow::new();
        known.flows.insert(peer, Arc::downgrade(&flow));
        flow
    }
}

/// The records that have packets to send later, and the times at which these packets are due. The pacing
/// thread sends the packets. This thread exists only while there are such records, and for [`LINGER`]
/// afterwards.
pub(super) struct Pacer {
    state: Mutex<State>,
    earlier: Condvar,
}

impl Default for Pacer {
    fn default() -> Self {
        Self { state: Mutex::ranked(Rank::Pacer, State::default()), earlier: Condvar::new() }
    }
}

#[derive(Default)]
struct State {
    due: BinaryHeap<Reverse<(Moment, u32)>>,
    runs: bool,
    closed: bool,
}

impl Pacer {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Ends the pacing thread.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.earlier.notify_all();
    }

    /// Waits until a record has due packets. Returns the place of that record, or `None` if the thread must
    /// end.
    fn next(&self) -> Option<u32> {
        let mut state = self.state();
        loop {
            let now = moment();
            let wait = match state.due.peek() {
                _ if state.closed => return None,
                Some(Reverse((due, place))) if *due <= now => {
                    let place = *place;
                    state.due.pop();
                    return Some(place);
                }
                Some(Reverse((due, _))) => Duration::from_nanos(due.since(now)),
                None => LINGER,
            };
            let timed_out;
            (state, timed_out) = self.earlier.wait_timeout(state, wait);
            if timed_out && wait == LINGER && state.due.is_empty() {
                // If another thread adds a record from here on, that thread starts a new pacing thread.
                state.runs = false;
                return None;
            }
        }
    }
}

impl ServerSocket {
    /// Schedules the next packets of a record, if the record has packets to send later. If no pacing thread
    /// can be started, the client asks for the missing packets.
    #[inline]
    pub(super) fn pace(&self, server_end: &ServerEnd, paced: &mut bool) {
        if let Some(due) = server_end.next_send()
            && !*paced
        {
            *paced = self.send_later(due, server_end.bound_handle().place);
        }
    }

    #[cold]
    pub(super) fn send_later(&self, due: Moment, place: u32) -> bool {
        let mut state = self.pacer.state();
        if state.closed || (!state.runs && !self.start_pacing()) {
            return false;
        }
        state.runs = true;
        let first = state.due.peek().is_none_or(|Reverse((first, _))| due < *first);
        state.due.push(Reverse((due, place)));
        drop(state);
        if first {
            self.pacer.earlier.notify_one();
        }
        true
    }

    fn start_pacing(&self) -> bool {
        let (Some(service), Ok(mut receiver)) = (self.this.upgrade(), self.receiver()) else {
            return false;
        };
        let thread = std::thread::Builder::new().name(THREAD.into());
        let work = move || {
            service.host.outlive(THREAD, &mut || {
                while let Some(place) = service.pacer.next() {
                    let Some(record) = service.record(place) else { continue };
                    let mut inner = record.0.lock();
                    inner.paced = false;
                    service.send_pending(
                        inner,
                        &mut receiver.reply.output,
                        &receiver.serving.counting,
                    );
                }
            });
        };
        thread.spawn(work).is_ok()
    }
}
