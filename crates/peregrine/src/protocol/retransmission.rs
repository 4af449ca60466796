//! Decides when a client sends a call again over datagrams, if the reply is the only acknowledgement of the
//! call.
//!
//! The measured round trips contain the time that procedures take. A server may run a retransmitted call a
//! second time if it keeps no replies. So the client waits longer than Peregrine's own protocol, whose
//! retransmissions are harmless.

use super::exchange::rtt::Rtt;
use super::exchange::time::{MILLISECOND, Moment, SECOND};

/// How long a call may take altogether, unless the caller chooses otherwise.
pub(crate) const CALL_TIME: u64 = 25 * SECOND;
/// The wait before the first retransmission while no round trip has been measured.
const WAIT_FIRST: u64 = SECOND;
/// The shortest wait before a retransmission.
const WAIT_MIN: u64 = 200 * MILLISECOND;
/// The longest wait between two retransmissions.
const WAIT_MAX: u64 = 30 * SECOND;
/// What a client has measured of one server. All calls to this server share it.
///
/// The rules are Karn's. A reply to a call that was sent more than once measures nothing, because it may
/// answer any of the copies. After such a reply, the next calls begin with the wait that was long enough,
/// until a call is answered without retransmission. Otherwise a client would never learn that a server has
/// become slower. A call without a reply says nothing about a round trip, so it changes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    rtt: Option<Rtt>,
    /// The wait with which the last answered call ended, if that call was retransmitted.
    backed_off: Option<u64>,
}

impl Pace {
    /// Returns how long a new call waits before its first retransmission.
    pub(crate) fn wait(&self) -> u64 {
        let measured = self.rtt.map_or(WAIT_FIRST, |rtt| rtt.wait());
        self.backed_off.unwrap_or(measured)
    }

    /// Notes that a message which was sent once was answered after `nanoseconds`.
    pub(crate) fn measure(&mut self, nanoseconds: u64) {
        self.backed_off = None;
        if let Some(rtt) = &mut self.rtt {
            rtt.sample(nanoseconds);
        } else {
            let mut rtt = Rtt::new(nanoseconds);
            rtt.set_wait_min(WAIT_MIN);
            self.rtt = Some(rtt);
        }
    }
}

/// What is due for a call that was not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing before this moment.
    Wait(Moment),
    /// The call is sent again.
    Retransmit,
    /// The time of the call has passed.
    GiveUp,
}

/// The timers of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timers {
    begun: Moment,
    ends: Moment,
    wait: u64,
    due: Moment,
    transmissions: u32,
}

impl Timers {
    /// Begins the timers of a call that is sent now. The client gives up after `time` nanoseconds.
    pub(crate) fn begin(now: Moment, time: u64, pace: &Pace) -> Self {
        let (wait, ends) = (pace.wait(), now.after(time));
        Self { begun: now, ends, wait, due: now.after(wait).min(ends), transmissions: 1 }
    }

    /// Returns how often the call was sent.
    pub(crate) const fn transmissions(&self) -> u32 {
        self.transmissions
    }

    /// Returns when [`step`](Self::step) must be called if no datagram arrives earlier.
    pub(crate) const fn due(&self) -> Moment {
        self.due
    }

    /// Returns what is due now. After a long pause, for example because the machine was suspended, the call
    /// is sent again once, and not once for each wait that has passed.
    pub(crate) fn step(&mut self, now: Moment) -> Due {
        if now >= self.ends {
            return Due::GiveUp;
        }
        if now < self.due {
            return Due::Wait(self.due);
        }
        self.wait = self.wait.saturating_mul(2).min(WAIT_MAX);
        self.due = now.after(self.wait).min(self.ends);
        self.transmissions = self.transmissions.saturating_add(1);
        Due::Retransmit
    }

    /// Notes that the call was answered now.
    pub(crate) fn answered(&self, now: Moment, pace: &mut Pace) {
        if self.transmissions > 1 {
            pace.backed_off = Some(self.wait);
        } else {
            pace.measure(now.since(self.begun));
        }
    }
}
