//! `Host`: what a connection asks of the server that it belongs to.

use std::sync::Arc;
use std::time::Duration;

use crate::call::{Calls, Refusal, Wait};
use crate::error::Kind;
use crate::interface::Description;
use crate::protocol::stream::Bind;
use crate::serving::binding_table::BindingRow;

/// What the server does for its connections.
pub(crate) trait Host {
    /// A row for a new binding, and on what terms.
    ///
    /// # Errors
    /// Why there will be none.
    fn bind(&self, bind: &Bind) -> Result<(Arc<BindingRow>, Terms), (Kind, String)>;

    /// To be asked once the binding is among the connection's: those that were there before are revoked
    /// when an export is withdrawn.
    ///
    /// # Errors
    /// Why the binding is not to be.
    fn still_offers(&self, name: &str) -> Result<(), (Kind, String)>;

    /// What is exported under a name.
    ///
    /// # Errors
    /// Why that is not told.
    fn describe(&self, name: &str) -> Result<Description, (Kind, String)>;

    /// Who knows the calls of the connection by their numbers.
    fn calls(&self) -> Arc<dyn Calls>;

    /// A call has come.
    fn called(&self);

    /// It has been answered.
    fn answered(&self);

    /// Waits until one procedure more may run; is it to wait, `waits` is done first.
    ///
    /// # Errors
    /// Why the call is not run; those of `waits`.
    fn begin(
        &self,
        from_inside: bool,
        waits: &mut dyn FnMut() -> Result<(), Refusal>,
    ) -> Result<(), Refusal>;

    /// A procedure has ended.
    fn end(&self);

    /// So many procedures more, or fewer, run although their callers have given them up.
    fn captured(&self, more: usize, fewer: usize);

    /// Has another thread read on.
    fn read_on(&self);

    /// Has the keeper watch the connection.
    fn watch(&self);

    /// Whether other connections wait for a thread.
    fn is_hungry(&self) -> bool;

    /// Whether the server stops.
    fn is_stopping(&self) -> bool;

    /// How threads wait.
    fn wait(&self) -> Wait;

    /// Has the connection read on when there may be memory for its message.
    fn hold(&self);

    /// Has the keeper look at the connection after this time.
    fn remind(&self, after: Duration);
}

/// What a server says to all that bind to an export.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Differs between incarnations of the server.
    pub(crate) epoch: u64,
    /// Calls in flight at one time.
    pub(crate) count_max: u32,
}
