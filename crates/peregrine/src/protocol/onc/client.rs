//! The client's state of one call over datagrams: when the call is retransmitted, when the client gives up,
//! and which datagrams are its reply.
//! The timers themselves are in `protocol/retransmission.rs`. The *driver* is the code of the path, which
//! sends and receives the datagrams.

use super::failure::Failure;
use super::items::Unreadable;
use super::message::{Reply, replied_to};
use crate::protocol::exchange::time::Moment;
use crate::protocol::retransmission::{Due, Timers};

pub(crate) use crate::protocol::retransmission::{CALL_TIME, Pace};

/// What the driver does next for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Waits for datagrams until this moment.
    Wait(Moment),
    /// Sends the same bytes again, and then calls [`step`](DatagramCall::step) again.
    Retransmit,
    /// Ends the call.
    GiveUp(Failure),
}

/// One call over datagrams. It is in flight from [`begin`](Self::begin) until [`receive`](Self::receive)
/// returns its reply, or [`step`](Self::step) returns [`Step::GiveUp`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct DatagramCall {
    xid: u32,
    timers: Timers,
    /// Why the last datagram with the number of this call was not its reply.
    unreadable: Option<Unreadable>,
}

impl DatagramCall {
    /// Begins a call that the driver sends now. The client gives up after `time` nanoseconds.
    pub(crate) fn begin(xid: u32, now: Moment, time: u64, pace: &Pace) -> Self {
        Self { xid, timers: Timers::begin(now, time, pace), unreadable: None }
    }

    /// Returns how often the call was sent.
    pub(crate) const fn transmissions(&self) -> u32 {
        self.timers.transmissions()
    }

    /// Returns when the driver must call [`step`](Self::step) if no datagram arrives earlier.
    pub(crate) const fn due(&self) -> Moment {
        self.timers.due()
    }

    /// Returns what the driver does now. After a long pause, for example because the machine was suspended,
    /// the call is sent again once, and not once for each wait that has passed.
    pub(crate) fn step(&mut self, now: Moment) -> Step {
        match self.timers.step(now) {
            Due::Wait(until) => Step::Wait(until),
            Due::Retransmit => Step::Retransmit,
            Due::GiveUp => {
                Step::GiveUp(self.unreadable.map_or(Failure::TimedOut, Failure::BadReply))
            }
        }
    }

    /// Takes a datagram from the server's address. Returns the reply and the offset of the results, if the
    /// datagram is the reply to this call. The reply may answer any copy of the call. All other datagrams are
    /// dropped: late replies to other calls, calls, and what cannot be read.
    ///
    /// The driver must drop datagrams from other addresses, because anybody may guess an xid.
    pub(crate) fn receive<'a>(
        &mut self,
        now: Moment,
        datagram: &'a [u8],
        pace: &mut Pace,
    ) -> Option<(Reply<'a>, usize)> {
        if replied_to(datagram) != Some(self.xid) {
            return None;
        }
        match Reply::parse(datagram) {
            Ok(reply) => {
                self.timers.answered(now, pace);
                Some(reply)
            }
            Err(unreadable) => {
                // The datagram may have been damaged or forged, so a good reply may still arrive.
                self.unreadable = Some(unreadable);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::exchange::time::{MILLISECOND, SECOND};
    use crate::protocol::onc::message::{Answer, Outcome};

    const START: Moment = Moment(1000 * SECOND);

    fn reply(xid: u32) -> Vec<u8> {
        let mut bytes = vec![0; 40];
        let length = Reply::accepted(xid, Outcome::Success).emit(&mut bytes).expect("room");
        bytes.truncate(length);
        bytes
    }

    /// Steps through a call that is never answered. Returns the times of the retransmissions and of the end,
    /// in milliseconds.
    fn unanswered(pace: &Pace, time: u64) -> Vec<u64> {
        let mut call = DatagramCall::begin(7, START, time, pace);
        let (mut now, mut times) = (START, Vec::new());
        loop {
            match call.step(now) {
                Step::Wait(until) => {
                    assert!(until > now);
                    now = until;
                    continue;
                }
                Step::Retransmit => times.push(now.since(START) / MILLISECOND),
                Step::GiveUp(failure) => {
                    assert_eq!(failure, Failure::TimedOut);
                    times.push(now.since(START) / MILLISECOND);
                    assert_eq!(call.transmissions() as usize, times.len());
                    return times;
                }
            }
        }
    }

    /// Makes a call that is answered after a time, without retransmission.
    fn answered(pace: &mut Pace, after: u64) {
        let mut call = DatagramCall::begin(7, START, CALL_TIME, pace);
        assert!(call.receive(START.after(after), &reply(7), pace).is_some());
    }

    #[test]
    fn waits_double_until_the_client_gives_up() {
        let mut pace = Pace::default();
        assert_eq!(unanswered(&pace, CALL_TIME), [1000, 3000, 7000, 15_000, 25_000]);
        let long = [1000, 3000, 7000, 15_000, 31_000, 61_000, 91_000, 100_000];
        assert_eq!(unanswered(&pace, 100 * SECOND), long);
        answered(&mut pace, 3 * MILLISECOND);
        let fast = [200, 600, 1400, 3000, 6200, 12_600, 25_000];
        assert_eq!(unanswered(&pace, CALL_TIME), fast);
    }

    #[test]
    fn reply_to_a_retransmitted_call_measures_nothing() {
        let mut pace = Pace::default();
        for _ in 0..20 {
            answered(&mut pace, 400 * MILLISECOND);
        }
        let usual = pace.wait();
        assert!((400..600).contains(&(usual / MILLISECOND)), "{usual}");
        let mut call = DatagramCall::begin(9, START, CALL_TIME, &pace);
        assert_eq!(call.step(START), Step::Wait(START.after(usual)));
        let late = START.after(usual);
        assert_eq!(call.step(late), Step::Retransmit);
        // The reply arrives at once. It may still answer the first copy.
        assert!(call.receive(late.after(1), &reply(9), &mut pace).is_some());
        assert_eq!(pace.wait(), 2 * usual);
        answered(&mut pace, 400 * MILLISECOND);
        assert!(pace.wait() < 600 * MILLISECOND);
    }

    #[test]
    fn only_the_reply_with_the_xid_counts() {
        let mut pace = Pace::default();
        let mut call = DatagramCall::begin(9, START, CALL_TIME, &pace);
        let now = START.after(MILLISECOND);
        let echo = {
            let mut bytes = reply(9);
            bytes[7] = 0;
            bytes
        };
        for other in [&reply(8)[..], &reply(10), &echo, &[], &reply(9)[..6], b"noise and more"] {
            assert_eq!(call.receive(now, other, &mut pace), None);
        }
        let reply = reply(9);
        let (received, offset) = call.receive(now, &reply, &mut pace).expect("the reply");
        assert!(matches!(received.answer, Answer::Accepted { outcome: Outcome::Success, .. }));
        assert_eq!(offset, 24);
    }

    #[test]
    fn unreadable_reply_is_reported_only_if_no_other_arrives() {
        let mut pace = Pace::default();
        let mut call = DatagramCall::begin(9, START, CALL_TIME, &pace);
        assert_eq!(call.receive(START, &reply(9)[..20], &mut pace), None);
        let mut other = call;
        assert!(other.receive(START, &reply(9), &mut pace).is_some());
        let bad = Failure::BadReply(Unreadable::Truncated);
        assert_eq!(call.step(START.after(CALL_TIME)), Step::GiveUp(bad));
    }

    #[test]
    fn machine_that_was_suspended_sends_one_copy() {
        let pace = Pace::default();
        let mut call = DatagramCall::begin(9, START, 3600 * SECOND, &pace);
        let now = START.after(1800 * SECOND);
        assert_eq!(call.step(now), Step::Retransmit);
        assert_eq!(call.step(now), Step::Wait(now.after(2 * SECOND)));
        assert_eq!(call.transmissions(), 2);
        // A time at the end of the clock's range does not overflow.
        let end = Moment(u64::MAX);
        let mut call = DatagramCall::begin(9, end, u64::MAX, &pace);
        assert!(matches!(call.step(end), Step::GiveUp(Failure::TimedOut)));
    }
}
