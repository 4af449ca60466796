//! Calls that the library itself makes. They find out whether a server has a program, or ask a directory of
//! programs.

use std::time::Instant;

use super::slots::Outcome;
use super::{Dialect, Link};
use crate::call::{OnExhausted, Wait};
use crate::error::{CallError, Kind, Phase};

impl<D: Dialect> Link<D> {
    /// Makes a call, and returns its results, or why the server did not run it.
    ///
    /// # Errors
    /// If the call cannot be sent.
    pub(in crate::path) fn ask(
        &self,
        procedure: u32,
        arguments: &[u8],
        until: Instant,
    ) -> Result<Result<Vec<u8>, D::Failure>, CallError> {
        let frame = self.frames.take(|| Some(until), |_| true, OnExhausted::More);
        let frame = frame.ok_or_else(|| self.error_of(D::TIMED_OUT, 0))?;
        if frame.call_space().write(0, arguments).is_none() {
            return Err(CallError::too_large(arguments.len(), self.arguments_max(), None));
        }
        let left = until.saturating_duration_since(Instant::now());
        self.begin(frame.index(), procedure, arguments.len(), Some(left), true)?;
        let ended = match self.sends(frame.index(), Some(until)) {
            true => self.wait(frame.index(), Wait::Block, Some(until)),
            false => None,
        };
        let Some(ended) = ended else {
            self.give_up(frame.index());
            if self.holds(frame.index()) {
                // The socket may still send the message from the frame. So no other call gets this frame as
                // long as the link exists.
                frame.capture();
            }
            return Ok(Err(D::TIMED_OUT));
        };
        Ok(match ended.outcome {
            Outcome::Results(_, bytes) => {
                let mut results = vec![0; bytes as usize];
                let read = frame.reply_space().read(0, &mut results);
                read.map(|()| results).ok_or(D::TIMED_OUT)
            }
            Outcome::TooLong(_) => {
                let text = "the results do not fit a message";
                return Err(CallError::not_executed(Kind::TooLarge, Phase::Bind, text));
            }
            Outcome::Failed(failure) => Err(failure),
        })
    }

    /// Returns the error of binding after a call of [`ask`](Self::ask) has failed with `failure`.
    pub(in crate::path) fn bind_error(&self, failure: D::Failure) -> CallError {
        let error = self.error_of(failure, 0);
        let kind = match error.kind() {
            Kind::ServerGone => Kind::Unreachable,
            Kind::Withdrawn => Kind::NotFound,
            kind => kind,
        };
        CallError::not_executed(kind, Phase::Bind, error.detail())
    }
}
