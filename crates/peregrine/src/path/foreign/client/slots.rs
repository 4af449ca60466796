//! The slot of each frame, with the state of its call.
//!
//! | state | the call |
//! |---|---|
//! | `Idle` | does not exist: the frame is free |
//! | `Waits` | was begun, and has no outcome yet |
//! | `Ended` | has an outcome, which its caller has not taken yet |
//!
//! The caller begins the call and takes the outcome. The thread that receives for all callers, or the thread
//! that ends the connection, changes `Waits` to `Ended`.

use super::dialect::{Dialect, Message};
use crate::call::Answer;

/// The slot of a frame.
pub(super) struct Slot<D: Dialect> {
    pub(super) state: State<D>,
    /// Whether the future of the call has armed its bell.
    pub(super) is_armed: bool,
}

impl<D: Dialect> Default for Slot<D> {
    fn default() -> Self {
        Self { state: State::Idle, is_armed: false }
    }
}

#[derive(Default)]
pub(super) enum State<D: Dialect> {
    #[default]
    Idle,
    Waits(Waiting<D>),
    Ended(Ended<D>),
}

/// A call that has no outcome yet.
pub(super) struct Waiting<D: Dialect> {
    pub(super) message: Message,
    /// The state of a call over datagrams.
    pub(super) exchange: Option<D::Exchange>,
}

/// The outcome of a call, and how often the call was sent.
pub(super) struct Ended<D: Dialect> {
    pub(super) outcome: Outcome<D::Failure>,
    pub(super) transmissions: u32,
}

impl<D: Dialect> Clone for Ended<D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Dialect> Copy for Ended<D> {}

#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome<F> {
    /// The results, or an error that the procedure has reported, are in the frame. The second field is their
    /// number of bytes.
    Results(Answer, u32),
    /// The results have this number of bytes, which do not fit the frame.
    TooLong(usize),
    Failed(F),
}

impl<D: Dialect> Waiting<D> {
    pub(super) fn transmissions(&self) -> u32 {
        self.exchange.as_ref().map_or(1, D::transmissions)
    }

    pub(super) fn ended(&self, outcome: Outcome<D::Failure>) -> Ended<D> {
        Ended { outcome, transmissions: self.transmissions() }
    }
}
