//! `Records`: what a server knows of each caller at a socket, by place. Made by the dozen when they
//! are needed, and there for as long as the socket is.

use std::sync::{Arc, OnceLock};

use super::retention::RetainedResult;
use super::waiting::WaitingFor;
use crate::call::{Calls, EStack};
use crate::limits;
use crate::path::datagram::peer::PeerFlow;
use crate::protocol::exchange::server_end::ServerEnd;
use crate::serving::binding_table::BindingRow;
use crate::sync::{Mutex, Rank};
use crate::sys::Address;

/// Records that are made together, when the first of them is needed.
const CHUNK: usize = 64;

pub(super) struct Records {
    chunks: Box<[OnceLock<Box<[Record]>>]>,
    nobody: Arc<PeerFlow>,
}

/// One caller's.
pub(super) struct Record(pub(super) Mutex<Inner>);

pub(super) struct Inner {
    pub(super) server_end: ServerEnd,
    /// That to its client; of a place that was never bound, that to nobody.
    pub(super) flow: Arc<PeerFlow>,
    /// Whether it is noted that there is more to send later.
    pub(super) paced: bool,
    /// Where its client was last heard from, and to which group of hosts it belongs.
    pub(super) to: Address,
    pub(super) group: u16,
    /// Whether payloads are checked.
    pub(super) checked: bool,
    pub(super) row: Option<Arc<BindingRow>>,
    /// A call of several packets, and how much is reckoned for it.
    pub(super) call: Option<(EStack, usize)>,
    /// What its call waits for.
    pub(super) waits: WaitingFor,
    /// Its procedure is counted among those that run although their callers have given them up.
    pub(super) captured: bool,
    /// The number of the loan, while a thread has borrowed the memory of the call.
    pub(super) lent: Option<u32>,
    pub(super) loans: u32,
    /// The result that was sent last.
    pub(super) result: Option<RetainedResult>,
}

impl Records {
    /// None yet.
    pub(super) fn new() -> Self {
        let chunks = limits::CALLERS_MAX.div_ceil(CHUNK);
        Self { chunks: (0..chunks).map(|_| OnceLock::new()).collect(), nobody: PeerFlow::new() }
    }

    /// Those that were ever made.
    pub(super) fn all(&self) -> impl Iterator<Item = &Record> {
        self.chunks.iter().filter_map(OnceLock::get).flatten()
    }

    /// The record of a place, if it was ever made.
    pub(super) fn record(&self, place: u32) -> Option<&Record> {
        let chunk = self.chunks.get(place as usize / CHUNK)?.get()?;
        chunk.get(place as usize % CHUNK)
    }

    /// The record of a place, made if it is needed for the first time.
    pub(super) fn made(&self, place: u32) -> Option<&Record> {
        let number = place as usize / CHUNK;
        let first = (number * CHUNK) as u32;
        let vacant = |place| {
            Record(Mutex::ranked(
                Rank::Record,
                Inner {
                    server_end: ServerEnd::vacant(place),
                    flow: Arc::clone(&self.nobody),
                    paced: false,
                    to: Address::default(),
                    group: 0,
                    checked: false,
                    row: None,
                    call: None,
                    waits: WaitingFor::Nothing,
                    captured: false,
                    lent: None,
                    loans: 0,
                    result: None,
                },
            ))
        };
        let make = || (first..first + CHUNK as u32).map(vacant).collect();
        self.chunks.get(number)?.get_or_init(make).get(place as usize % CHUNK)
    }
}

/// What a call is known by: the place of its record, and its number there.
pub(super) fn call_number(place: u32, sequence: u32) -> u64 {
    u64::from(place) << 32 | u64::from(sequence)
}

impl Calls for Records {
    fn is_given_up(&self, call: u64) -> bool {
        let (place, sequence) = ((call >> 32) as u32, call as u32);
        self.record(place)
            .is_some_and(|record| record.0.lock().server_end.is_call_cancelled(sequence))
    }
}
