//! The keep-alive of a caller: after a long wait, the caller checks whether the server is still alive.

use super::Connection;
use crate::path::stream::peer::now;
use crate::protocol::stream::client_end::EndReason;
use crate::protocol::stream::keep_alive::{Action, KeepAlive, Link};
use crate::protocol::stream::{Header, MessageKind};
use crate::sys::TcpHealth;

/// The keep-alive state of one wait.
#[derive(Debug, Default)]
pub(super) struct Watch(KeepAlive);

impl Watch {
    /// Examines the connection if an examination is due. Ends the connection if the server is presumed dead.
    /// The caller may call this function often: between two examinations it does nothing.
    #[cold]
    pub(super) fn look(&mut self, connection: &Connection) {
        if !self.0.is_due(now()) {
            return;
        }
        let Ok(TcpHealth { silence, unanswered, unacknowledged }) = connection.stream.health()
        else {
            return;
        };
        let link = Link { silence, unanswered, unacknowledged };
        match self.0.examine(&link) {
            Action::Wait => {}
            // The probe is a cancellation of the call number 0. No call has this number, so the server
            // ignores the probe.
            Action::Probe => connection.send_notice(Header::new(MessageKind::Abandon, 0)),
            Action::End(silence) => connection.end(EndReason::Silent(silence)),
        }
    }

    /// Notes that the client has received bytes.
    #[inline]
    pub(super) const fn heard(&mut self) {
        self.0.heard();
    }
}
