//! The layers of a binding or an export, and a call that they have seen begin.
//!
//! Each layer keeps the states of its running calls itself, in memory that grows with the number of calls that
//! run at one time. A running call has a ticket for each layer, by which the layer finds the state again. So
//! layers with states of different types are called in the same way, without an allocation for each call.

use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Instant;

use super::layer::{Layer, LayerCall, LayerEnd, LayerOutcome, LayerRefusal, LayerSide};
use super::within::Scope;
use crate::error::{Executed, Kind};
use crate::interface::InterfaceRef;
use crate::limits::LAYERS_MAX;
use crate::sync::Mutex;

/// The number of locks over which a layer distributes the states of its running calls, by threads. Fewer
/// threads than that rarely wait for each other.
const SHARDS: usize = 16;

/// A layer whose state has any type.
trait AnyLayer: Send + Sync {
    /// Begins a call. Returns the ticket of its state.
    fn begin(&self, call: &mut LayerCall<'_>) -> Result<u32, LayerRefusal>;

    /// Ends the call of a ticket.
    fn end(&self, ticket: u32, end: &LayerEnd<'_>);

    /// Returns whether the layer would do nothing for a call without metadata.
    fn is_idle(&self, side: LayerSide) -> bool;
}

/// A layer, and the states of its running calls.
struct WithStates<L: Layer> {
    layer: L,
    states: [Mutex<States<L::State>>; SHARDS],
}

/// The states of running calls, and which places are free.
struct States<S> {
    places: Vec<Option<S>>,
    free: Vec<u32>,
}

impl<S> Default for States<S> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

/// Returns the number of the shard that this thread uses.
fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SHARD: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    }
    // A thread that ends has no such number any more.
    SHARD.try_with(|shard| *shard).unwrap_or(0)
}

impl<L: Layer> AnyLayer for WithStates<L> {
    fn begin(&self, call: &mut LayerCall<'_>) -> Result<u32, LayerRefusal> {
        let state = self.layer.begin(call)?;
        let shard = shard();
        let mut states = self.states[shard].lock();
        let place = match states.free.pop() {
            Some(place) => place,
            None => {
                states.places.push(None);
                states.places.len() as u32 - 1
            }
        };
        states.places[place as usize] = Some(state);
        Ok(place * SHARDS as u32 + shard as u32)
    }

    fn end(&self, ticket: u32, end: &LayerEnd<'_>) {
        let (place, shard) = (ticket / SHARDS as u32, ticket as usize % SHARDS);
        let mut states = self.states[shard].lock();
        let state = states.places.get_mut(place as usize).and_then(Option::take);
        if state.is_some() {
            states.free.push(place);
        }
        drop(states);
        if let Some(state) = state {
            self.layer.end(state, end);
        }
    }

    fn is_idle(&self, side: LayerSide) -> bool {
        self.layer.is_idle(side)
    }
}

/// Layers in the order in which they begin.
#[derive(Clone, Default)]
pub(crate) struct Layers(Vec<Arc<dyn AnyLayer>>);

impl fmt::Debug for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} layers", self.0.len())
    }
}

impl Layers {
    /// Returns no layers.
    pub(crate) const fn none() -> Self {
        Self(Vec::new())
    }

    /// Adds a layer, which begins after the others.
    ///
    /// # Panics
    /// If there are [`LAYERS_MAX`] layers.
    pub(crate) fn add(&mut self, layer: impl Layer) {
        assert!(self.0.len() < LAYERS_MAX, "more than {LAYERS_MAX} layers");
        let states = core::array::from_fn(|_| Mutex::default());
        self.0.push(Arc::new(WithStates { layer, states }));
    }

    /// Returns these layers, and inside of them those of `inner`.
    ///
    /// # Panics
    /// If there are more than [`LAYERS_MAX`] layers together.
    pub(crate) fn around(&self, inner: &Self) -> Self {
        let all: Vec<_> = self.0.iter().chain(&inner.0).cloned().collect();
        assert!(all.len() <= LAYERS_MAX, "more than {LAYERS_MAX} layers");
        Self(all)
    }

    /// Returns whether there are no layers.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns what these layers observe: the calls of an interface. `name` is what [`LayerCall::name`]
    /// returns.
    pub(crate) fn observe(&self, interface: InterfaceRef, name: &str) -> Arc<Observed> {
        let has_callbacks = interface.has_callbacks();
        Arc::new(Observed { layers: self.clone(), interface, name: name.to_owned(), has_callbacks })
    }
}

/// The layers of a binding or an export, and whose calls they see.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(super) layers: Layers,
    pub(super) interface: InterfaceRef,
    pub(super) name: String,
    /// Whether a procedure of the interface can call objects of its caller.
    pub(super) has_callbacks: bool,
}

impl Observed {
    /// Returns whether all layers would do nothing for a call without metadata that begins now.
    #[inline]
    pub(super) fn is_idle(&self, side: LayerSide) -> bool {
        self.layers.0.iter().all(|layer| layer.is_idle(side))
    }

    /// Begins a call: the outermost layer first.
    ///
    /// # Errors
    /// If a layer refuses the call. The layers outside of it have seen the end of the call.
    pub(super) fn begin(
        self: &Arc<Self>,
        call: &mut LayerCall<'_>,
    ) -> Result<Running, LayerRefusal> {
        let begun = Instant::now();
        let (observed, procedure) = (Arc::clone(self), call.procedure);
        let mut running = Running {
            observed,
            procedure,
            begun,
            tickets: [0; LAYERS_MAX],
            scope: None,
            count: 0,
            retransmissions: 0,
            retransmissions_before: 0,
        };
        for layer in &self.layers.0 {
            match layer.begin(call) {
                Ok(ticket) => {
                    running.tickets[running.count] = ticket;
                    running.count += 1;
                }
                Err(refusal) => {
                    let (kind, executed, text) = (refusal.kind(), Executed::No, refusal.text());
                    running.end(LayerOutcome::Failed { kind, executed, text }, 0);
                    return Err(refusal);
                }
            }
        }
        running.scope = call.scope.take();
        Ok(running)
    }
}

/// A call that layers have seen begin. If this value is dropped, the layers see that the call has failed.
#[derive(Debug)]
pub(super) struct Running {
    observed: Arc<Observed>,
    procedure: u32,
    begun: Instant,
    tickets: [u32; LAYERS_MAX],
    /// The number of layers that have not seen the end.
    count: usize,
    scope: Option<Arc<Scope>>,
    /// At the client, how many packets of the call were sent again.
    retransmissions: u32,
    /// At the client, the path's count of retransmissions before the call.
    retransmissions_before: u32,
}

impl Running {
    /// Notes the path's count of retransmissions before the call.
    pub(super) const fn count_retransmissions_from(&mut self, before: u32) {
        self.retransmissions_before = before;
    }

    /// Notes the path's count of retransmissions after the call.
    pub(super) const fn count_retransmissions_to(&mut self, after: u32) {
        self.retransmissions = after.wrapping_sub(self.retransmissions_before);
    }

    /// Returns what the calls of the procedure are within.
    pub(super) fn scope(&self) -> Option<Arc<Scope>> {
        self.scope.clone()
    }

    /// Ends the call: the innermost layer first.
    pub(super) fn end(mut self, outcome: LayerOutcome<'_>, result_bytes: usize) {
        self.finish(outcome, result_bytes);
    }

    fn finish(&mut self, outcome: LayerOutcome<'_>, result_bytes: usize) {
        let (interface, procedure) = (&self.observed.interface, self.procedure);
        let took = self.begun.elapsed();
        let retransmissions = self.retransmissions;
        let end = LayerEnd { interface, procedure, outcome, result_bytes, took, retransmissions };
        while let Some(last) = self.count.checked_sub(1) {
            self.count = last;
            self.observed.layers.0[last].end(self.tickets[last], &end);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.count == 0 {
            return;
        }
        let (kind, text) = match std::thread::panicking() {
            true => (Kind::Panicked, "the procedure panicked"),
            false => (Kind::Withdrawn, "the call was dropped before its end"),
        };
        self.finish(LayerOutcome::Failed { kind, executed: Executed::Maybe, text }, 0);
    }
}
