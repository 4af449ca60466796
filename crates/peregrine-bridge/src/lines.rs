//! The events of a running call, and the lines of the answer that report them.

use core::task::{Context, Poll, ready};

use hyper::body::Bytes;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::failure::Failure;

/// What a running call reports to the connection.
pub(crate) enum Event {
    /// An item of a stream, as a line of JSON.
    Item(Bytes),
    /// The end of the call: its result as JSON text.
    End(Result<Bytes, Failure>),
}

/// A running call, seen from its connection. The call is given up when this value is dropped.
pub(crate) struct Pending {
    pub(crate) events: mpsc::Receiver<Event>,
    /// The call holds the receiver of this channel. It gives up when this sender is dropped.
    pub(crate) _waits: oneshot::Sender<()>,
}

/// The lines of an answer: one JSON object for each item of the call's streams, and one for the end of the
/// call.
pub(crate) struct Lines {
    /// The line of the first item, which has already arrived. `None` after this line was returned.
    first: Option<Bytes>,
    pending: Pending,
    has_ended: bool,
}

impl Lines {
    pub(crate) const fn new(first: Bytes, pending: Pending) -> Self {
        Self { first: Some(first), pending, has_ended: false }
    }

    /// Returns the next line, or `None` after the last one.
    pub(crate) fn poll_line(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        if self.has_ended {
            return Poll::Ready(None);
        }
        let end = match ready!(self.pending.events.poll_recv(context)) {
            Some(Event::Item(item)) => return Poll::Ready(Some(item)),
            Some(Event::End(end)) => end,
            None => Err(Failure::internal()),
        };
        self.has_ended = true;
        Poll::Ready(Some(match end {
            Ok(text) => [&text[..], b"\n"].concat().into(),
            Err(failure) => line(&failure.to_json()),
        }))
    }
}

/// Returns a JSON value as a line.
pub(crate) fn line(value: &Value) -> Bytes {
    let mut line = value.to_string();
    line.push('\n');
    line.into()
}
