//! A binding that speaks raw Ethernet, and UDP once frames do not arrive any more.
//!
//! It changes over between two calls, and once: a call during which the link fell silent ends as it
//! would have ended, and what comes after it goes over UDP, to the same server or not at all.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::handles::lost;
use super::{DatagramPath, Renew};
use crate::call::{Call, CallPath, PathKind, Returned};
use crate::error::{CallError, Kind};
use crate::protocol::exchange::time::MILLISECOND;

/// Nothing heard for so long, by calls that all failed, means that frames do not arrive: by then each
/// has been sent several times.
const SILENCE: u64 = 600 * MILLISECOND;

/// Makes the way over UDP when it is needed.
pub(crate) trait Fallback: Send + Sync {
    type Renew: Renew;

    /// A way to the very server that the link led to, bound for a frame, which the caller has.
    ///
    /// # Errors
    /// If it is gone, or another.
    fn fall_back(
        &self,
        frame: u32,
        deadline: Option<Instant>,
    ) -> Result<DatagramPath<Self::Renew>, CallError>;

    /// What speaks on the link, in words.
    fn device(&self) -> String;
}

/// A binding's way over a link.
pub(crate) struct LinkedPath<R: Renew, F: Fallback<Renew = R>> {
    link: DatagramPath<R>,
    udp: OnceLock<Arc<DatagramPath<R>>>,
    /// Calls that heard nothing from the link.
    silent: AtomicU32,
    fallback: F,
}

impl<R: Renew, F: Fallback<Renew = R>> LinkedPath<R, F> {
    pub(crate) const fn new(link: DatagramPath<R>, fallback: F) -> Self {
        Self { link, udp: OnceLock::new(), silent: AtomicU32::new(0), fallback }
    }

    fn udp(&self, frame: u32, deadline: Option<Instant>) -> Result<&DatagramPath<R>, CallError> {
        if let Some(udp) = self.udp.get() {
            return Ok(udp);
        }
        let new = Arc::new(self.fallback.fall_back(frame, deadline)?);
        // Two callers may come here; what the second one has bound goes again.
        Ok(self.udp.get_or_init(|| new))
    }

    /// A call failed: whether for want of answers, none of which came although several were due.
    #[cold]
    fn is_silence(&self, error: &CallError) -> bool {
        matches!(error.kind(), Kind::ServerGone | Kind::TimedOut) && self.link.silence() >= SILENCE
    }

    /// A call after one that heard nothing.
    #[cold]
    fn transport_otherwise(&self, call: &mut Call<'_, '_, '_>) -> Result<Returned, CallError> {
        let deadline = call.limit.deadline();
        match self.udp(call.frame.index(), deadline) {
            Ok(udp) => udp.transport(call),
            Err(error) => {
                // Perhaps the server was halted for a while: then the link is asked again next time.
                // One that is gone for good is told so over UDP, and nothing is sent into the blue.
                if error.kind() == Kind::TimedOut {
                    self.silent.store(0, Ordering::Relaxed);
                }
                Err(lost(error, deadline))
            }
        }
    }
}

impl<R: Renew, F: Fallback<Renew = R>> CallPath for LinkedPath<R, F> {
    #[inline]
    fn transport(&self, call: &mut Call<'_, '_, '_>) -> Result<Returned, CallError> {
        if self.silent.load(Ordering::Relaxed) > 0 {
            return self.transport_otherwise(call);
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
        // Frames are the same for both.
        self.link.is_released(frame)
    }

    fn explain(&self) -> String {
        let device = self.fallback.device();
        match self.udp.get() {
            None => device,
            Some(_) => format!(
                "given up after {} calls without an answer ({device})",
                self.silent.load(Ordering::Relaxed)
            ),
        }
    }
}
