//! `Host`: the functions of the server that a connection uses. With this trait, the code of a connection need
//! not know the rest of the server.

use std::sync::Arc;
use std::time::Duration;

use crate::call::{Calls, Refusal, Wait};
use crate::error::Kind;
use crate::interface::Description;
use crate::protocol::stream::BindRequest;
use crate::serving::binding_table::BindingRow;

/// The functions of the server that a connection uses.
pub(crate) trait Host {
    /// Returns the terms of a new binding, and its row. A row is the server's record of one binding.
    ///
    /// # Errors
    /// If the client may not bind.
    fn bind(&self, bind: &BindRequest) -> Result<(Arc<BindingRow>, BindTerms), (Kind, String)>;

    /// Checks that the export `name` has not been withdrawn. The connection calls this function after it has
    /// added a binding, because a withdrawal revokes only bindings that already exist.
    ///
    /// # Errors
    /// If the export has been withdrawn.
    fn still_offers(&self, name: &str) -> Result<(), (Kind, String)>;

    /// Describes the export with this name.
    ///
    /// # Errors
    /// If there is no such export, or if clients on networks may not see it.
    fn describe(&self, name: &str) -> Result<Description, (Kind, String)>;

    /// Returns an object that reports whether callers have given up their calls. The object identifies a call
    /// by the number of the call.
    fn calls(&self) -> Arc<dyn Calls>;

    /// Notes that a call has arrived.
    fn called(&self);

    /// Notes that a call has its reply, or that the thread of the call has panicked.
    fn answered(&self);

    /// Waits for a permit to run one more procedure. If a wait is necessary, first calls `waits`.
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

    /// Counts procedures that still run although their callers have given up. Adds `more` to the count, and
    /// subtracts `fewer`.
    fn captured(&self, more: usize, fewer: usize);

    /// Queues the connection, so that another thread receives from it.
    fn read_on(&self);

    /// Queues the connection, so that a thread sends the replies that could not be sent without waiting.
    fn send_on(&self);

    /// Lets the keeper, the background thread of the process, watch the connection.
    fn watch(&self);

    /// Returns whether other connections wait for a thread.
    fn is_hungry(&self) -> bool;

    /// Returns whether the server is stopping.
    fn is_stopping(&self) -> bool;

    /// Returns how threads wait for the next message.
    fn wait(&self) -> Wait;

    /// Notes that the connection waits for memory. When there may be memory for its message, a thread
    /// receives again.
    fn hold(&self);

    /// Schedules a check of the connection by the keeper, when the time `after` has passed.
    fn remind(&self, after: Duration);
}

/// The terms of a binding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BindTerms {
    /// A number that identifies one run of a server. Two servers that listen at one address, one after the
    /// other, have different epochs.
    pub(crate) epoch: u64,
    /// The largest number of calls in flight.
    pub(crate) count_max: u32,
}
