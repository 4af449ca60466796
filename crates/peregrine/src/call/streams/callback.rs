//! The two streams of a callback (`path/callback/`): one carries calls, the other carries results.

use std::sync::Arc;

use super::conduit::Conduit;
use super::flow::Flow;
use super::remote::room_of;
use super::{Opening, token_of};
use crate::call::request::Refusal;
use crate::error::Kind;
use crate::limits;
use crate::value::ByteOrder;

/// What sends the records of streams: a conduit.
pub(crate) trait Carries: Send + Sync {
    /// Notes that a stream has something to send. `is_last` is true if the owner of this end no longer needs
    /// the stream. The calling thread must hold no lock that a waker takes.
    fn list(&self, flow: &Arc<Flow>, is_last: bool);

    /// Takes the records that have arrived at this process.
    fn look(&self);
}

/// The ends of the two streams of a callback at one side.
pub(crate) struct CallbackEnds {
    pub(crate) incoming: Arc<Flow>,
    pub(crate) outgoing: Arc<Flow>,
    pub(crate) carrier: Arc<dyn Carries>,
    /// How many bytes a record may have.
    pub(crate) room: usize,
}

/// Carries the streams of a procedure.
struct OfServer(Arc<Conduit>);

impl Carries for OfServer {
    fn list(&self, flow: &Arc<Flow>, is_last: bool) {
        self.0.list(flow, is_last);
    }

    // The threads of the server take records when the records arrive, so there is nothing to do.
    fn look(&self) {}
}

impl CallbackEnds {
    /// Makes the caller's ends of the two streams of a callback. The streams have the numbers `number` and
    /// `number` + 1. `carrier` sends their records.
    pub(crate) fn of_caller(number: u32, room: usize, carrier: Arc<dyn Carries>) -> Self {
        let window = limits::STREAM_WINDOW as u64;
        let incoming = Arc::new(Flow::new(number, room, 0, window, window));
        let outgoing = Arc::new(Flow::new(number.wrapping_add(1), room, 0, 0, 0));
        Self { incoming, outgoing, carrier, room }
    }

    /// Returns the words that describe the callback in the arguments of the call.
    pub(crate) fn opening(&self, token: super::Token) -> Opening {
        let credit = limits::STREAM_WINDOW as u32;
        let mut words = super::opening(token, self.incoming.number, credit, self.room as u32);
        words[7] = ByteOrder::NATIVE.number();
        words
    }

    /// Ends both streams.
    pub(crate) fn close(&self, reason: &str) {
        if self.incoming.stop(reason) {
            self.carrier.list(&self.incoming, true);
        }
        if self.outgoing.finish() {
            self.carrier.list(&self.outgoing, true);
        }
    }

    /// Opens a procedure's ends of a callback. Returns them with the byte order of the caller.
    ///
    /// # Errors
    /// If the words of `opening` do not describe a callback, or one of its streams is open already.
    pub(crate) fn of_procedure(opening: &Opening) -> Result<(Self, ByteOrder), Refusal> {
        let [.., number, credit, _, order] = *opening;
        let order = ByteOrder::from_number(order).ok_or_else(|| {
            Refusal::new(Kind::BadArguments, "a callback has an unknown byte order")
        })?;
        let room = room_of(opening)?;
        let window = limits::STREAM_WINDOW as u64;
        let outgoing = Arc::new(Flow::new(number, room, credit.into(), 0, 0).unattended());
        let incoming = Arc::new(Flow::new(number.wrapping_add(1), room, 0, 0, window).unattended());
        let conduit = Conduit::open(token_of(opening), &outgoing)?;
        if let Err(refusal) = Conduit::open(token_of(opening), &incoming) {
            outgoing.give_up();
            conduit.list(&outgoing, true);
            return Err(refusal);
        }
        let carrier = Arc::new(OfServer(conduit));
        if incoming.begin() {
            carrier.list(&incoming, false);
        }
        Ok((Self { incoming, outgoing, carrier, room }, order))
    }
}
