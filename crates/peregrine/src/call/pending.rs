//! Pending calls: calls that were begun, and for which no thread waits.
//!
//! A path begins such a call with [`CallPath::begin`]. Each [`CallPath::poll`] checks once whether the reply
//! has arrived. If it has not, [`CallPath::arm`] makes the [`Bell`] of the call's frame ring when the next
//! check may find the reply. So the caller can be a future, which is polled again when the bell rings.
//!
//! The order of a call is: `begin`, then any number of `poll` and `arm`, and then either a result of `poll`
//! or [`CallPath::give_up`].
//!
//! [`CallPath::begin`]: super::CallPath::begin
//! [`CallPath::poll`]: super::CallPath::poll
//! [`CallPath::arm`]: super::CallPath::arm
//! [`CallPath::give_up`]: super::CallPath::give_up

mod bells;
mod park;
mod timers;
mod unblock;

pub(crate) use bells::{Bells, Rings};
pub(crate) use park::{block_on, park};
pub(crate) use unblock::unblock;

use core::task::Waker;

use super::Returned;
use crate::sync::Mutex;

/// The state of a call after [`CallPath::begin`](super::CallPath::begin).
#[derive(Clone, Copy, Debug)]
pub enum Begun {
    /// The call has its result already.
    Ended(Returned),
    /// The reply is still to come.
    Pending,
}

/// Wakes the future of a frame's pending call when the call may have a reply.
#[derive(Default)]
pub struct Bell(Mutex<Option<Waker>>);

impl Bell {
    /// Sets the waker that the next ring wakes.
    pub fn set(&self, waker: &Waker) {
        // A waker is foreign code, so it is cloned and dropped while the lock is not held.
        let is_known = self.0.lock().as_ref().is_some_and(|known| known.will_wake(waker));
        if !is_known {
            let before = self.0.lock().replace(waker.clone());
            drop(before);
        }
    }

    /// Wakes the waker that was set last, and forgets it.
    pub fn ring(&self) {
        // The waker runs foreign code, so it is woken after the lock is released.
        let waker = self.0.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Forgets the waker.
    pub fn clear(&self) {
        let waker = self.0.lock().take();
        drop(waker);
    }
}

impl core::fmt::Debug for Bell {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Bell").finish_non_exhaustive()
    }
}
