//! `Host`: the functions of the server that a connection uses.

use std::sync::Arc;
use std::time::Duration;

use crate::call::{Calls, Refusal, Wait};
use crate::error::Kind;
use crate::interface::Description;
use crate::protocol::stream::BindRequest;
use crate::serving::binding_table::BindingRow;

/// The functions of the server that a connection uses.
pub(crate) trait Host {
    /// Returns the row of a new binding, and its terms.
    ///
    /// # Errors
    /// If the client may not bind.
    fn bind(&self, bind: &BindRequest) -> Result<(Arc<BindingRow>, BindTerms), (Kind, String)>;

    /// Checks that an export has not been withdrawn. The connection calls this after it has added a binding,
    /// because a withdrawal revokes only bindings that exist.
    ///
    /// # Errors
    /// If the export has been withdrawn.
    fn still_offers(&self, name: &str) -> Result<(), (Kind, String)>;

    /// Describes the export that has this name.
    ///
    /// # Errors
    /// If there is no such export, or if clients on networks may not see it.
    fn describe(&self, name: &str) -> Result<Description, (Kind, String)>;

    /// Returns an object that reports whether a call was given up. A call is identified by its number.
    fn calls(&self) -> Arc<dyn Calls>;

    /// Notes that a call has arrived.
    fn called(&self);

    /// Notes that a call has its reply, or that its thread has panicked.
    fn answered(&self);

    /// Waits for a permit to run one more procedure. Calls `waits` before it waits.
    ///
    /// # Errors
    /// If the call must not run, or if `waits` fails.
    fn begin_procedure(
        &self,
        from_inside: bool,
        waits: &mut dyn FnMut() -> Result<(), Refusal>,
    ) -> Result<(), Refusal>;

    /// Gives back the permit of a procedure that has ended.
    fn end_procedure(&self);

    /// Counts procedures that run although their callers have given up the calls: adds `more` to the number,
    /// and subtracts `fewer`.
    fn captured(&self, more: usize, fewer: usize);

    /// Queues the connection, so that another thread receives.
    fn read_on(&self);

    /// Makes the keeper watch the connection.
    fn watch(&self);

    /// Returns whether other connections wait for a thread.
    fn is_hungry(&self) -> bool;

    /// Returns whether the server is stopping.
    fn is_stopping(&self) -> bool;

    /// Returns how threads wait for the next message.
    fn wait(&self) -> Wait;

    /// Notes that the connection waits for memory. A thread receives again when there may be memory for the
    /// message.
    fn hold(&self);

    /// Makes the keeper check the connection when the time `after` has passed.
    fn remind(&self, after: Duration);
}

/// The terms of a binding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BindTerms {
    /// A number that differs between two servers that listened at the same address one after the other.
    pub(crate) epoch: u64,
    /// The largest number of calls in flight.
    pub(crate) count_max: u32,
}
