//! The records of one datagram socket of a server. Each record belongs to one place of the table, and serves
//! one client handle at a time. Records are created in chunks when they are needed. They exist as long as the
//! socket.

use core::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};

use super::ServerSocket;
use super::deferred::DeferredCall;
use super::retention::RetainedResult;
use super::waiting::WaitingFor;
use crate::call::deferred::{Cancels, Owed};
use crate::call::{Account, Calls, EStack};
use crate::limits;
use crate::path::datagram::peer::PeerFlow;
use crate::protocol::exchange::server_end::ServerEnd;
use crate::serving::binding_table::BindingRow;
use crate::serving::deferrals::Deferrals;
use crate::sync::{Mutex, Rank};
use crate::sys::Address;

/// The number of records that are created together, when the first of them is needed.
const CHUNK: usize = 64;

pub(super) struct Records {
    chunks: Box<[OnceLock<Box<[Record]>>]>,
    /// The congestion control that is shared by all places to which no client was ever bound.
    unused_flow: Arc<PeerFlow>,
    /// The socket of these records.
    pub(super) service: Weak<ServerSocket>,
    /// The deferred calls of the server.
    pub(super) deferrals: Arc<Deferrals>,
    /// Whether the server has stopped, so that procedures may not wait any more.
    pub(super) stopped: AtomicBool,
}

/// The record of one client handle.
pub(super) struct Record(pub(super) Mutex<Inner>);

pub(super) struct Inner {
    pub(super) server_end: ServerEnd,
    /// The congestion control of the network path to the client. Places to which no client was ever bound
    /// share one value, and do not use it.
    pub(super) flow: Arc<PeerFlow>,
    /// Whether the pacer has an entry for this record.
    pub(super) paced: bool,
    /// The address from which the client last sent.
    pub(super) to: Address,
    /// The number of the group of hosts to which the client's host belongs.
    pub(super) group: u16,
    /// Whether the payloads of this client have checksums.
    pub(super) checked: bool,
    pub(super) row: Option<Arc<BindingRow>>,
    /// The memory of a call of several packets, and the number of bytes that the budget charges for this
    /// memory.
    pub(super) call: Option<(EStack, usize)>,
    /// What the call waits for. [`WaitingFor::Nothing`] if the call does not wait.
    pub(super) waits: WaitingFor,
    /// Whether the running procedure counts as captured: its client has cancelled the call.
    pub(super) captured: bool,
    /// The number of the current loan. `None` unless a thread has borrowed the memory of the call.
    pub(super) lent: Option<u32>,
    /// The number of the most recent loan.
    pub(super) loans: u32,
    /// The deferred call of the client. `None` if the client has no call, or a thread runs its call.
    pub(super) deferred: Option<Box<DeferredCall>>,
    /// The most recent result. `None` once the client has acknowledged it, or does not need it any more.
    pub(super) result: Option<RetainedResult>,
}

impl Records {
    /// Creates a table without records, for the socket `service`.
    pub(super) fn new(service: Weak<ServerSocket>, deferrals: Arc<Deferrals>) -> Self {
        let chunks = limits::CALLERS_MAX.div_ceil(CHUNK);
        Self {
            chunks: (0..chunks).map(|_| OnceLock::new()).collect(),
            unused_flow: PeerFlow::new(),
            service,
            deferrals,
            stopped: AtomicBool::new(false),
        }
    }

    /// Returns the records that exist.
    pub(super) fn all(&self) -> impl Iterator<Item = &Record> {
        self.chunks.iter().filter_map(OnceLock::get).flatten()
    }

    /// Returns the record of a place, if it exists.
    pub(super) fn record(&self, place: u32) -> Option<&Record> {
        let chunk = self.chunks.get(place as usize / CHUNK)?.get()?;
        chunk.get(place as usize % CHUNK)
    }

    /// Returns the record of a place, and creates the record if it does not exist yet. Returns `None` if
    /// there is no such place.
    pub(super) fn made(&self, place: u32) -> Option<&Record> {
        let number = place as usize / CHUNK;
        let first = (number * CHUNK) as u32;
        let vacant = |place| {
            Record(Mutex::ranked(
                Rank::Record,
                Inner {
                    server_end: ServerEnd::vacant(place),
                    flow: Arc::clone(&self.unused_flow),
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
                    deferred: None,
                    result: None,
                },
            ))
        };
        let make = || (first..first + CHUNK as u32).map(vacant).collect();
        self.chunks.get(number)?.get_or_init(make).get(place as usize % CHUNK)
    }
}

/// Returns the number of a call. This number consists of the place of the caller's record and the sequence
/// number of the call.
pub(super) fn call_number(place: u32, sequence: u32) -> u64 {
    u64::from(place) << 32 | u64::from(sequence)
}

impl Calls for Records {
    fn is_given_up(&self, call: u64) -> bool {
        let (place, sequence) = ((call >> 32) as u32, call as u32);
        self.record(place)
            .is_some_and(|record| record.0.lock().server_end.is_call_cancelled(sequence))
    }
    fn defer(self: Arc<Self>, call: u64, cancels: Arc<dyn Cancels>) -> Option<Box<dyn Owed>> {
        self.defer_call(call, cancels)
    }

    fn with_account(&self, call: u64, with: &mut dyn FnMut(&dyn Account)) {
        let record = self.record((call >> 32) as u32);
        if let Some(row) = record.and_then(|record| record.0.lock().row.clone()) {
            with(&self.deferrals.account(row));
        }
    }
}
