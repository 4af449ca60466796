//! Passes calls of any RPC system on to a target (a server that the bridge offers), without JSON: the
//! parameters of a generic server become the arguments of a generic client.

use core::time::Duration;
use std::sync::Arc;

use peregrine::{
    Argument, CallError, Caller, Dynamic, Executed, GenericCall, GenericClient, GenericOutcome,
    GenericParameter, GenericServer, Kind, Limit, Sink, Source, caller,
};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::target::{Revision, Target};

/// The interval at which the bridge checks whether a caller has given up its call.
const LOOK: Duration = Duration::from_millis(50);

/// Passes on the calls of one interface of a target.
pub(crate) struct Forwarder {
    pub(crate) target: Arc<Target>,
    /// The interface with which the target was exported, and with which its callers have bound.
    pub(crate) interface: Revision,
    /// The permits: one for each call that may be answered at the same time.
    pub(crate) permits: Arc<Semaphore>,
    /// How long a call without streams may take, if its caller gives no limit.
    pub(crate) limit: Duration,
    /// The runtime whose timers the calls use.
    pub(crate) timers: Handle,
}

impl Forwarder {
    /// Makes the call at the target.
    pub(crate) fn pass_on(&self, call: &mut GenericCall<'_>) -> GenericOutcome {
        // If a bridge is its own target, the permits bound the number of calls that wait for each other.
        let Ok(_permit) = self.permits.try_acquire() else {
            let text = "the bridge answers as many calls as it may (--calls)";
            return Err(CallError::new(Kind::Overloaded, Executed::No, text));
        };
        let procedure = call.procedure();
        let has_streams = procedure.parameters.iter().any(|one| one.direction.is_stream());
        let limit = if has_streams { Limit::None } else { Limit::Within(self.limit) };
        let mut is_repeated = false;
        loop {
            let bound = self.target.bound();
            let bound = bound
                .map_err(|error| CallError::new(error.kind(), error.executed(), error.chain()))?;
            let earlier;
            let client = if bound.revision() == self.interface.number {
                &bound.client
            } else {
                // The interface of the target has changed since the caller bound.
                earlier = self.target.bind_as(&self.interface.described)?;
                &earlier
            };
            let made = self
                .target
                .call(client, procedure, limit, |client| pass_on(client, call, &self.timers));
            let Err(error) = made else { return made };
            // A call with streams is not repeated, because items may already have been transferred.
            if !self.target.failed(&bound, &error) || is_repeated || has_streams {
                return Err(error);
            }
            is_repeated = true;
        }
    }
}

/// Passes `call` on through `client`: calls the procedure that has the same number.
fn pass_on(client: &GenericClient, call: &mut GenericCall<'_>, timers: &Handle) -> GenericOutcome {
    let number = call.number();
    let caller = caller();
    let with_metadata;
    let client = match caller.as_ref().filter(|caller| !caller.metadata().is_empty()) {
        Some(caller) => {
            with_metadata = client.with_metadata_of(caller)?;
            &with_metadata
        }
        None => client,
    };
    let parameters = call.parameters().iter_mut();
    let mut arguments: Vec<Argument<'_>> = parameters
        .map(|parameter| match parameter {
            GenericParameter::In(value) => Argument::In(value),
            GenericParameter::InOut(value) => Argument::InOut(value),
            GenericParameter::Lent(bytes) => Argument::Bytes(*bytes),
            GenericParameter::Out(room) => Argument::Out(room.by_ref()),
            GenericParameter::Sink(sink) => {
                Argument::Sink(core::mem::replace(sink, Sink::new(drop)))
            }
            GenericParameter::Source(source) => {
                Argument::Source(core::mem::replace(source, Source::new([])))
            }
            GenericParameter::Callback(object) => {
                let (object, timers) = (object.clone(), timers.clone());
                Argument::Callback(Arc::new(GenericServer::passing_on(
                    object.described().clone(),
                    move |call| pass_on(&object, call, &timers),
                )))
            }
        })
        .collect();
    let mut result = Dynamic::Unit;
    // Callers of other systems cannot give up a call.
    let made = match caller.filter(|caller| caller.path().system().is_none()) {
        Some(caller) => {
            let _timers = timers.enter();
            client.call_unless(number, &mut arguments, &mut result, given_up(caller))
        }
        None => client.call_into(number, &mut arguments, &mut result),
    };
    Ok(if made? { Ok(result) } else { Err(result) })
}

/// Waits until a caller has given up its call.
async fn given_up(caller: Caller) {
    while !caller.is_cancelled() {
        tokio::time::sleep(LOOK).await;
    }
}
