//! A caller that waits for long examines whether the server is still there.

use super::Connection;
use crate::path::stream::peer::now;
use crate::protocol::stream::client_end::EndReason;
use crate::protocol::stream::keep_alive::{Action, KeepAlive, Link};
use crate::protocol::stream::{Header, Kind};
use crate::sys::Pulse;

/// The keep-alive of one wait.
#[derive(Debug, Default)]
pub(super) struct Watch(KeepAlive);

impl Watch {
    /// Examines the connection if that is due, and ends it if its server is presumed dead. May be called
    /// at any rate while nothing is received.
    #[cold]
    pub(super) fn look(&mut self, connection: &Connection) {
        if !self.0.is_due(now()) {
            return;
        }
        let Ok(Pulse { silence, in_vain, owed }) = connection.stream.pulse() else { return };
        let link = Link { silence, unanswered: in_vain, unacknowledged: owed };
        match self.0.examine(&link) {
            Action::Wait => {}
            // No call has number 0, so its cancel means nothing.
            Action::Probe => connection.tell(Header::new(Kind::Abandon, 0)),
            Action::End(silence) => connection.end(EndReason::Silent(silence)),
        }
    }

    /// Something was received.
    #[inline]
    pub(super) const fn heard(&mut self) {
        self.0.heard();
    }
}
