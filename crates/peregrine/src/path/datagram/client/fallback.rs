//! A binding over raw Ethernet that changes to UDP when the link does not carry frames any more.
//!
//! A binding changes to UDP once, between two calls. If the link falls silent during a call, that call fails,
//! as it would without a fallback. Later calls use UDP to the same server. If that server does not answer
//! over UDP, the later calls fail, too.
//!
//! A pending call stays with the path on which it began, even if other calls change to UDP meanwhile.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::handles::lost;
use super::{DatagramPath, HandleProvider};
use crate::call::{Begun, Call, CallPath, PathKind, Returned, Wait};
use crate::error::{CallError, Kind};
use crate::growing::Growing;
use crate::protocol::exchange::time::MILLISECOND;

/// The link counts as silent when all calls have failed for this long, and no packet has come from the
/// server. Within this time, the client usually sends several probes for a call.
const SILENCE: u64 = 600 * MILLISECOND;

/// Binds over UDP when this becomes necessary.
pub(crate) trait Fallback: Send + Sync {
    type Provider: HandleProvider;

    /// Binds to the same server over UDP, after a call has failed because the link was silent. The next call
    /// needs this binding. That call holds the frame `frame`.
    ///
    /// # Errors
    /// If the server is gone, or if another server answers.
    fn fall_back(
        &self,
        frame: u32,
        deadline: Option<Instant>,
    ) -> Result<DatagramPath<Self::Provider>, CallError>;

    /// Describes the device of the link.
    fn device(&self) -> String;
}

/// A binding over a link, with a fallback to UDP.
pub(crate) struct LinkedPath<R: HandleProvider, F: Fallback<Provider = R>> {
    link: DatagramPath<R>,
    udp: OnceLock<Arc<DatagramPath<R>>>,
    /// The number of calls that failed because the link was silent.
    silent: AtomicU32,
    /// For each frame: whether its pending call began over UDP. Only the holder of a frame uses its entry.
    over_udp: Growing<AtomicBool>,
    fallback: F,
}

impl<R: HandleProvider, F: Fallback<Provider = R>> LinkedPath<R, F> {
    pub(crate) fn new(link: DatagramPath<R>, fallback: F) -> Self {
        let over_udp = Growing::new(link.frames(), |_| AtomicBool::new(false));
        Self { link, udp: OnceLock::new(), silent: AtomicU32::new(0), over_udp, fallback }
    }

    fn udp(&self, frame: u32, deadline: Option<Instant>) -> Result<&DatagramPath<R>, CallError> {
        if let Some(udp) = self.udp.get() {
            return Ok(udp);
        }
        let new = Arc::new(self.fallback.fall_back(frame, deadline)?);
        // If two threads get here at the same time, the second new binding is dropped.
        Ok(self.udp.get_or_init(|| new))
    }

    /// Returns whether an error means that the link has been silent for too long.
    fn is_silence(&self, error: &CallError) -> bool {
        matches!(error.kind(), Kind::ServerGone | Kind::TimedOut) && self.link.silence() >= SILENCE
    }

    /// Returns the path over UDP, after a call has failed because the link was silent. Binds if necessary.
    #[cold]
    fn instead(
        &self,
        frame: u32,
        deadline: Option<Instant>,
    ) -> Result<&DatagramPath<R>, CallError> {
        self.udp(frame, deadline).map_err(|error| {
            // After a time-out, the next call tries the link again, because perhaps the server was only
            // halted for a while. After any other error, calls stay with UDP. In that case the server is
            // usually gone, and UDP reports this at once.
            if error.kind() == Kind::TimedOut {
                self.silent.store(0, Ordering::Relaxed);
            }
            lost(error, deadline)
        })
    }

    /// Counts a failed call over the link if the link has been silent for too long.
    #[cold]
    fn note(&self, error: &CallError) {
        if self.is_silence(error) {
            self.silent.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the path over UDP if the pending call of a frame began there. Returns `None` if the call began
    /// over the link.
    fn udp_of(&self, frame: u32) -> Option<&DatagramPath<R>> {
        let over_udp = self.over_udp[frame as usize].load(Ordering::Relaxed);
        self.udp.get().map(|udp| &**udp).filter(|_| over_udp)
    }
}

impl<R: HandleProvider, F: Fallback<Provider = R>> CallPath for LinkedPath<R, F> {
    #[inline]
    fn transport(&self, call: &mut Call<'_, '_, '_>) -> Result<Returned, CallError> {
        if self.silent.load(Ordering::Relaxed) > 0 {
            return self.instead(call.frame.index(), call.terms.deadline())?.transport(call);
        }
        self.link.transport(call).inspect_err(|error| self.note(error))
    }

    fn is_prepared(&self, frame: u32) -> bool {
        if self.silent.load(Ordering::Relaxed) > 0 {
            return self.udp.get().is_some_and(|udp| udp.is_prepared(frame));
        }
        self.link.is_prepared(frame)
    }

    fn prepare(&self, frame: u32, deadline: Option<Instant>) -> Result<(), CallError> {
        if self.silent.load(Ordering::Relaxed) > 0 {
            return self.instead(frame, deadline)?.prepare(frame, deadline);
        }
        self.link.prepare(frame, deadline)
    }

    fn begin(&self, call: &mut Call<'_, '_, '_>) -> Result<Begun, CallError> {
        let frame = call.frame.index();
        let is_silent = self.silent.load(Ordering::Relaxed) > 0;
        // The call begins on the path for which the frame was prepared, even if other calls have changed to
        // the other path since then. To prepare the frame for the other path, this thread would have to wait.
        let udp = self
            .udp
            .get()
            .filter(|udp| udp.is_prepared(frame) && (is_silent || !self.link.is_prepared(frame)));
        self.over_udp[frame as usize].store(udp.is_some(), Ordering::Relaxed);
        match udp {
            Some(udp) => udp.begin(call),
            None => self.link.begin(call).inspect_err(|error| self.note(error)),
        }
    }

    fn poll(&self, call: &mut Call<'_, '_, '_>) -> Option<Result<Returned, CallError>> {
        match self.udp_of(call.frame.index()) {
            Some(udp) => udp.poll(call),
            None => {
                let ended = self.link.poll(call)?;
                Some(ended.inspect_err(|error| self.note(error)))
            }
        }
    }

    fn arm(&self, frame: u32, deadline: Option<Instant>) {
        self.udp_of(frame).unwrap_or(&self.link).arm(frame, deadline);
    }

    fn give_up(&self, call: &mut Call<'_, '_, '_>) -> CallError {
        match self.udp_of(call.frame.index()) {
            Some(udp) => udp.give_up(call),
            None => {
                let error = self.link.give_up(call);
                self.note(&error);
                error
            }
        }
    }

    fn message_bytes(&self) -> usize {
        self.link.message_bytes()
    }

    fn retransmissions(&self, frame: u32) -> u32 {
        let udp = self.udp.get().map_or(0, |udp| udp.retransmissions(frame));
        self.link.retransmissions(frame).wrapping_add(udp)
    }

    fn server_cpu(&self, _frame: u32) -> Option<u32> {
        None
    }

    fn wait(&self) -> Wait {
        self.link.wait()
    }

    fn kind(&self) -> PathKind {
        if self.udp.get().is_some() { PathKind::Udp } else { PathKind::Ethernet }
    }

    fn is_alive(&self) -> bool {
        match self.udp.get() {
            Some(udp) => udp.is_alive(),
            None => self.link.is_alive(),
        }
    }

    fn captures(&self, frame: u32) -> bool {
        self.link.captures(frame)
    }

    fn is_released(&self, frame: u32) -> bool {
        // Both paths use the same frames, so the answer of one path suffices.
        self.link.is_released(frame)
    }

    fn explain(&self) -> String {
        let device = self.fallback.device();
        let text = match self.udp.get() {
            None => device,
            Some(_) => format!(
                "replaced by UDP after {} calls without an answer ({device})",
                self.silent.load(Ordering::Relaxed)
            ),
        };
        let path = self.udp.get().map_or(&self.link, |udp| udp);
        match path.association.channel() {
            None => text,
            Some(channel) => format!("{text}, {}", channel.in_words()),
        }
    }
}
