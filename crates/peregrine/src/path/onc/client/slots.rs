//! The state of the call of each frame.
//!
//! | state | the call |
//! |---|---|
//! | `Idle` | does not exist: the frame is free |
//! | `Waits` | was begun, and has no outcome yet |
//! | `Ended` | has an outcome, which its caller has not taken yet |
//!
//! The caller begins the call and takes the outcome. The thread that receives for all callers, or the thread
//! that ends the connection, changes `Waits` to `Ended`.

use crate::protocol::exchange::time::Moment;
use crate::protocol::onc::client::{DatagramCall, Pace};
use crate::protocol::onc::failure::Failure;
use crate::protocol::onc::message::{Reply, replied_to};

/// The slot of a frame.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) state: State,
    /// Whether the future of the call has armed its bell.
    pub(super) is_armed: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) enum State {
    #[default]
    Idle,
    Waits(Waiting),
    Ended(Ended),
}

/// A call that has no outcome yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) message: Message,
    /// The timers of a call over datagrams.
    pub(super) datagram: Option<DatagramCall>,
}

/// What is needed to send a call, besides the arguments in its frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) frame: u32,
    pub(super) xid: u32,
    pub(super) procedure: u32,
    /// The number of bytes of the arguments.
    pub(super) bytes: usize,
}

/// The outcome of a call, and how often the call was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    pub(super) transmissions: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    /// The frame has this number of bytes of results.
    Results(u32),
    /// The results have this number of bytes, which do not fit the frame.
    TooLong(usize),
    Failed(Failure),
}

impl Waiting {
    pub(super) fn transmissions(&self) -> u32 {
        self.datagram.map_or(1, |call| call.transmissions())
    }

    /// Reads a message from the server. Returns the reply and the offset of the results, or `None` if the
    /// message is not the reply to this call.
    pub(super) fn receive<'a>(
        &mut self,
        now: Moment,
        message: &'a [u8],
        pace: &mut Pace,
    ) -> Option<Result<(Reply<'a>, usize), Failure>> {
        match &mut self.datagram {
            Some(call) => call.receive(now, message, pace).map(Ok),
            // No other reply with this number follows on a stream.
            None if replied_to(message) == Some(self.message.xid) => {
                Some(Reply::parse(message).map_err(Failure::BadReply))
            }
            None => None,
        }
    }

    pub(super) fn ended(&self, outcome: Outcome) -> Ended {
        Ended { outcome, transmissions: self.transmissions() }
    }
}
