//! Detects whether a silent server is dead.
//!
//! When a server's process ends, its kernel closes the connection. If the server's host loses power or a link
//! breaks, nothing closes the connection. The client's kernel probes idle connections only seldom, so that
//! idle connections cost little. So while a call waits for a long time, the client itself probes more often.
//! It sends a few bytes without meaning, and the server's kernel acknowledges them whatever the server does.
//! While sent bytes are not acknowledged, no probe is needed, because the kernel retransmits them. If the
//! receive buffer of the peer is full, no probe is needed either, because the kernel sends zero-window
//! probes.

use core::time::Duration;

use crate::limits;

/// The time after which a waiting caller first examines the connection. It is also the interval between later
/// examinations.
pub(crate) const EXAMINE_EVERY: Duration = Duration::from_millis(200);
/// The silence after which the client sends a probe.
const PROBE_AFTER: Duration = Duration::from_millis(400);
/// A silent server is presumed dead only after at least this number of unanswered transmissions.
const UNANSWERED_MIN: u32 = 2;

/// The state of a connection, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// The time since anything was received from the peer. Acknowledgements are included.
    pub(crate) silence: Duration,
    /// The number of transmissions since anything was received from the peer.
    pub(crate) unanswered: u32,
    /// The number of bytes that were sent and are not acknowledged yet.
    pub(crate) unacknowledged: usize,
}

/// What a caller must do if the server is silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Wait,
    /// Send a message that has no meaning, but is acknowledged: a cancel of call 0.
    Probe,
    /// End the connection, because the server was silent for this long.
    End(Duration),
}

/// The keep-alive state of one wait for a reply. Times are measured from any fixed moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeepAlive {
    /// The times of the first and the last examination.
    examined: Option<(Duration, Duration)>,
}

impl KeepAlive {
    /// Returns whether the caller must examine the connection now. The caller first calls this function after
    /// it has waited for [`EXAMINE_EVERY`], and then any number of times while nothing is received.
    pub(crate) fn is_due(&mut self, now: Duration) -> bool {
        let (first, last) = *self.examined.get_or_insert((now, now));
        let is_due = now.saturating_sub(last) >= EXAMINE_EVERY || now == first;
        if is_due {
            self.examined = Some((first, now));
        }
        is_due
    }

    /// Decides what the caller must do about a connection that is in this state.
    pub(crate) fn examine(&self, link: &Link) -> Action {
        let waited =
            self.examined.map_or(Duration::ZERO, |(first, last)| last.saturating_sub(first));
        judge(link, waited + EXAMINE_EVERY)
    }

    /// Notes that something was received.
    #[inline]
    pub(crate) const fn heard(&mut self) {
        self.examined = None;
    }
}

/// Decides what the caller must do after a wait of this length.
fn judge(link: &Link, waited: Duration) -> Action {
    // The silence before the wait does not count, because no answer was expected then.
    let silence = link.silence.min(waited);
    if silence >= limits::CALL_SILENCE && link.unanswered >= UNANSWERED_MIN {
        Action::End(link.silence)
    } else if silence >= PROBE_AFTER && link.unacknowledged == 0 {
        Action::Probe
    } else {
        Action::Wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn server_is_presumed_dead_after_long_silence_and_unanswered_probes() {
        let link = |silence, unanswered, unacknowledged| Link {
            silence: ms(silence),
            unanswered,
            unacknowledged,
        };
        let long = limits::CALL_SILENCE.as_millis() as u64;
        let hour = 3_600_000;
        for (link, waited, expected) in [
            (link(10, 0, 0), hour, Action::Wait),
            // The procedure takes long, so the client sends a probe from time to time.
            (link(400, 0, 0), hour, Action::Probe),
            (link(600, 1, 32), hour, Action::Wait),
            (link(long - 1, 9, 32), hour, Action::Wait),
            (link(long, 9, 32), hour, Action::End(ms(long))),
            // The server was silent for an hour, but only the silence during the wait counts.
            (link(hour, 1, 32), 300, Action::Wait),
            (link(hour, 0, 0), 500, Action::Probe),
            (link(hour, 9, 32), long, Action::End(ms(hour))),
            // The receive buffer of the peer is full. The peer has answered the last zero-window probe, so it
            // is alive.
            (link(long * 2, 0, 1 << 20), hour, Action::Wait),
            // This machine was suspended. No probe was sent meanwhile, so the silence does not show that the
            // server is dead.
            (link(long * 2, 0, 0), hour, Action::Probe),
        ] {
            assert_eq!(judge(&link, ms(waited)), expected, "{link:?} after {waited} ms");
        }
    }

    #[test]
    fn examinations_are_as_seldom_as_their_interval() {
        let mut keep_alive = KeepAlive::default();
        let due: Vec<u64> = (0..1000).filter(|at| keep_alive.is_due(ms(*at))).collect();
        assert_eq!(due, [0, 200, 400, 600, 800]);
        keep_alive.heard();
        assert!(
            keep_alive.is_due(ms(1000)),
            "the first examination of a new wait must be due at once"
        );
    }
}
