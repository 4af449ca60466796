//! `Vigil`: a caller that waits for long looks whether the server is still heard of.
//!
//! A server's process that ends closes the connection; a host that is gone, or a cable that is cut, says
//! nothing. The kernel asks for that so seldom that idle connections cost nothing. While a call is
//! in flight for long whoever receives asks more often: a few bytes that mean nothing, which the other kernel
//! acknowledges, whatever its server does. What is sent and not acknowledged is sent
//! again and again without being asked for, and so is what is asked of a receiver that has no room.

use core::time::Duration;
use std::time::Instant;

use super::Connection;
use crate::error::{Executed, Kind};
use crate::limits;
use crate::protocol::stream::{self as wire, Header};
use crate::sys::Pulse;

/// How long a caller waits before it looks, and how often it does from then on.
pub(super) const LOOK: Duration = Duration::from_millis(200);
/// After so much silence something is said that is to be acknowledged.
const ASK: Duration = Duration::from_millis(400);
/// So often at least the server must have been asked in vain.
const IN_VAIN: u32 = 2;

/// One wait.
#[derive(Debug, Default)]
pub(super) struct Vigil {
    /// When it was long for the first time, and when that was looked into last.
    since: Option<(Instant, Instant)>,
}

/// What is to be done about a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Do {
    Nothing,
    /// To say something.
    Ask,
    /// To wait no longer.
    End,
}

/// What to do when things stand so, after waiting for so long.
fn judge(pulse: &Pulse, waited: Duration) -> Do {
    // What was not heard before anybody waited was not to be heard.
    let silence = pulse.silence.min(waited);
    if silence >= limits::CALL_SILENCE && pulse.in_vain >= IN_VAIN {
        Do::End
    } else if silence >= ASK && pulse.owed == 0 {
        Do::Ask
    } else {
        Do::Nothing
    }
}

impl Vigil {
    /// To be called while nothing comes, as often as one likes: looks every now and then, and ends the
    /// connection if its server is not heard of any more.
    #[cold]
    pub(super) fn look(&mut self, connection: &Connection) {
        let now = Instant::now();
        let (since, looked) = *self.since.get_or_insert((now, now));
        if now - looked < LOOK && now != since {
            return;
        }
        self.since = Some((since, now));
        // It is called for the first time when it has waited that long.
        let waited = now - since + LOOK;
        let Ok(pulse) = connection.stream.pulse() else { return };
        match judge(&pulse, waited) {
            Do::Nothing => {}
            // To give up what never was is to say nothing.
            Do::Ask => connection.tell(Header::new(wire::Kind::Abandon, 0)),
            Do::End => {
                let ms = pulse.silence.as_millis();
                let text =
                    format!("nothing was heard of the server for {ms} ms, though it was asked");
                connection.end(Kind::ServerGone, Executed::Maybe, text);
            }
        }
    }

    /// Something came.
    #[inline]
    pub(super) const fn heard(&mut self) {
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_server_is_gone_when_it_was_asked_in_vain_for_long() {
        let pulse = |silence, in_vain, owed| Pulse { silence: ms(silence), in_vain, owed };
        let long = limits::CALL_SILENCE.as_millis() as u64;
        let hour = 3_600_000;
        for (pulse, waited, expected) in [
            (pulse(10, 0, 0), hour, Do::Nothing),
            // It works for long, and is asked now and then.
            (pulse(400, 0, 0), hour, Do::Ask),
            (pulse(600, 1, 32), hour, Do::Nothing),
            (pulse(long - 1, 9, 32), hour, Do::Nothing),
            (pulse(long, 9, 32), hour, Do::End),
            // Nobody asked for as long as nobody waited.
            (pulse(hour, 1, 32), 300, Do::Nothing),
            (pulse(hour, 0, 0), 500, Do::Ask),
            (pulse(hour, 9, 32), long, Do::End),
            // One without room answers each time that it is asked for some, ever more seldom.
            (pulse(long * 2, 0, 1 << 20), hour, Do::Nothing),
            // The machine was halted, and the other one had no reason to say anything.
            (pulse(long * 2, 0, 0), hour, Do::Ask),
        ] {
            assert_eq!(judge(&pulse, ms(waited)), expected, "{pulse:?} after {waited} ms");
        }
    }
}
