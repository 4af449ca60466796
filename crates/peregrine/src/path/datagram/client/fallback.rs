//! A binding over raw Ethernet that changes to UDP when the link does not carry frames any more.
//!
//! A binding changes to UDP once, between two calls. If the link falls silent during a call, that call fails,
//! as it would without a fallback. Later calls use UDP to the same server. If that server does not answer
//! over UDP, the later calls fail, too.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::handles::lost;
use super::{DatagramPath, HandleProvider};
use crate::call::{Call, CallPath, PathKind, Returned};
use crate::error::{CallError, Kind};
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
    fallback: F,
}

impl<R: HandleProvider, F: Fallback<Provider = R>> LinkedPath<R, F> {
    pub(crate) const fn new(link: DatagramPath<R>, fallback: F) -> Self {
        Self { link, udp: OnceLock::new(), silent: AtomicU32::new(0), fallback }
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
    #[cold]
    fn is_silence(&self, error: &CallError) -> bool {
        matches!(error.kind(), Kind::ServerGone | Kind::TimedOut) && self.link.silence() >= SILENCE
    }

    /// Sends a call over UDP, after an earlier call has failed because the link was silent.
    #[cold]
    fn transport_over_udp(&self, call: &mut Call<'_, '_, '_>) -> Result<Returned, CallError> {
        let deadline = call.limit.deadline();
        match self.udp(call.frame.index(), deadline) {
            Ok(udp) => udp.transport(call),
            Err(error) => {
                // After a time-out, the next call tries the link again, because perhaps the server was only
                // halted for a while. After any other error, calls stay with UDP. In that case the server is
                // usually gone, and UDP reports this at once.
                if error.kind() == Kind::TimedOut {
                    self.silent.store(0, Ordering::Relaxed);
                }
                Err(lost(error, deadline))
            }
        }
    }
}

impl<R: HandleProvider, F: Fallback<Provider = R>> CallPath for LinkedPath<R, F> {
    #[inline]
    fn transport(&self, call: &mut Call<'_, '_, '_>) -> Result<Returned, CallError> {
        if self.silent.load(Ordering::Relaxed) > 0 {
            return self.transport_over_udp(call);
        }
        let result = self.link.transport(call);
        if let Err(error) = &result
            && self.is_silence(error)
        {
            self.silent.fetch_add(1, Ordering::Relaxed);
        }
        result
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
        match self.udp.get() {
            None => device,
            Some(_) => format!(
                "replaced by UDP after {} calls without an answer ({device})",
                self.silent.load(Ordering::Relaxed)
            ),
        }
    }
}
