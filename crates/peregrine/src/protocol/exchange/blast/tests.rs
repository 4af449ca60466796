//! Tests of a blast, alone and with the assembly at its other end.

use core::cell::RefCell;

use proptest::prelude::*;

use super::super::assembly::{Assembly, PieceArrival};
use super::super::flow::Flow;
use super::*;

const NOW: Moment = Moment(1_000_000_000);

/// A message on its way, and the two ends of it.
struct Way {
    blast: Blast,
    flow: RefCell<Flow>,
    credits: u16,
    seen: u16,
    missing: PositionSet,
    assembly: Assembly,
    beyond: PositionSet,
    serial: u16,
    /// What the receiver heard last.
    echo: u16,
    sent: u32,
    resent: u32,
}

impl Way {
    fn new(count: u32, credits: u16) -> Self {
        let (fragments, mut beyond) = (Fragments::new(count * 512, 512), PositionSet::default());
        assert_eq!(fragments.count(), count);
        Self {
            blast: Blast::new(fragments),
            flow: RefCell::new(Flow::new(None)),
            credits,
            seen: 0,
            missing: PositionSet::default(),
            assembly: Assembly::new(fragments, &mut beyond),
            beyond,
            serial: 0xff00,
            echo: 0xff00,
            sent: 0,
            resent: 0,
        }
    }

    fn poll(&mut self) -> Option<(u32, Flags, u16)> {
        self.poll_at(NOW)
    }

    fn poll_at(&mut self, now: Moment) -> Option<(u32, Flags, u16)> {
        let serial = self.serial.wrapping_add(1);
        let path =
            &mut SendPath { now, credits: self.credits, flow: &self.flow, seen: &mut self.seen };
        let (position, flags) = self.blast.poll(serial, path, false, &mut self.missing)?;
        self.serial = serial;
        self.sent += 1;
        self.resent += u32::from(flags.has(Flags::RESENT));
        Some((position, flags, serial))
    }

    /// A packet arrives; whether the receiver answers it.
    fn arrive(&mut self, (position, flags, serial): (u32, Flags, u16)) -> bool {
        self.echo = serial;
        assert_ne!(self.assembly.receive(position, &mut self.beyond), PieceArrival::OutOfWindow);
        flags.has(Flags::REPORT) || position + 1 == self.assembly.fragments().count()
    }

    fn report(&mut self, waited: bool) -> ReportEffect {
        let mut bitmap = [0; BITMAP_BYTES_MAX];
        let (next, bytes) = self.assembly.report(&self.beyond, &mut bitmap);
        let (bitmap, had) = (&bitmap[..bytes], self.assembly.received_count());
        self.hear(&ReceptionReport { next, bitmap, had, echo: self.echo, waited })
    }

    fn hear(&mut self, have: &ReceptionReport<'_>) -> ReportEffect {
        let path = &mut SendPath {
            now: NOW,
            credits: self.credits,
            flow: &self.flow,
            seen: &mut self.seen,
        };
        self.blast.handle_report(have, path, &mut self.missing)
    }

    /// Everything that can be sent now arrives, but for what `lost` says.
    fn burst(&mut self, mut lost: impl FnMut(u32) -> bool) -> bool {
        let mut answers = false;
        while let Some(packet) = self.poll() {
            if !lost(packet.0) {
                answers |= self.arrive(packet);
            }
        }
        answers
    }
}

/// A bitmap that is full may have had no room for more; a shorter one tells of everything.
#[test]
fn full_bitmap_tells_nothing_of_what_lies_behind_it() {
    let bitmap = [0xff; BITMAP_BYTES_MAX];
    let have = |bytes: usize| ReceptionReport {
        next: 10,
        bitmap: &bitmap[..bytes],
        had: 10,
        echo: 0,
        waited: false,
    };
    assert_eq!(have(BITMAP_BYTES_MAX).covered_end(), 10 + 8 * BITMAP_BYTES_MAX as u32);
    assert_eq!([have(BITMAP_BYTES_MAX - 1).covered_end(), have(0).covered_end()], [u32::MAX; 2]);
}

#[test]
fn what_fits_the_window_is_one_blast_that_asks_nothing() {
    let mut way = Way::new(34, 1024);
    for position in 0..34 {
        assert_eq!(way.poll(), Some((position, Flags::NONE, way.serial)));
    }
    assert_eq!(way.poll(), None);
}

/// A window of 700 positions on a path of 50 ms: one position is due every 57 us.
#[test]
fn paced_sender_sends_in_bounded_bursts() {
    const ROUND_TRIP: u64 = 50 * MILLISECOND;
    const INTERVAL: u64 = ROUND_TRIP * 4 / 5 / 700;
    let mut flow = Flow::new(Some(ROUND_TRIP));
    flow.acknowledged(NOW, 1000 - 48);
    flow.reduce();
    assert_eq!(flow.window(), 700);
    let mut way = Way::new(2000, 1024);
    way.flow = RefCell::new(flow);
    let sends = |way: &mut Way, now| core::iter::from_fn(|| way.poll_at(now)).count() as u64;
    let burst = MILLISECOND / INTERVAL;
    // A message begins with as much as leaves at once where nothing is known.
    let first = sends(&mut way, NOW);
    assert!((48..=48 + burst).contains(&first), "{first}");
    // A sender that comes when it is due sends one burst.
    let (mut now, mut sent) = (NOW, first);
    while sent < 400 {
        now = way.blast.due().expect("more is to be sent");
        let once = sends(&mut way, now);
        assert!((1..=burst).contains(&once), "{once}");
        sent += once;
    }
    let pace = sent * 1_000_000_000 / now.since(NOW).max(1);
    assert!(pace < 700 * 20 * 3 / 2, "{pace} positions a second");
    // One that comes late by most of a round trip makes up for a sixteenth of it, and no more.
    let late = sends(&mut way, now.after(40 * MILLISECOND));
    assert!((1..=burst + ROUND_TRIP / 16 / INTERVAL + 1).contains(&late), "{late}");
}

#[test]
fn a_longer_one_asks_at_half_a_window_and_before_it_stops() {
    let mut way = Way::new(100, 8);
    let flags: Vec<_> = core::iter::from_fn(|| way.poll()).map(|packet| packet.1).collect();
    let please: Vec<_> = (0..flags.len()).filter(|i| flags[*i].has(Flags::REPORT)).collect();
    assert_eq!((flags.len(), please), (8, vec![3, 7]));
}

#[test]
fn exactly_what_is_missing_is_sent_again() {
    let mut way = Way::new(20, 1024);
    assert!(way.burst(|position| position == 3 || position == 7));
    assert_eq!(way.report(false), ReportEffect::NewLosses);
    let first = way.poll().expect("position 3");
    let last = way.poll().expect("position 7");
    assert_eq!((first.0, first.1), (3, Flags::RESENT));
    assert_eq!((last.0, last.1), (7, Flags::RESENT.with(Flags::REPORT)));
    assert_eq!(way.poll(), None);
    // A late report of the same holes changes nothing: what was sent again is on its way.
    assert_eq!(way.report(false), ReportEffect::Progress);
    assert_eq!(way.poll(), None);
    way.arrive(first);
    assert!(way.arrive(last));
    assert!(way.assembly.is_whole());
    assert_eq!(way.report(false), ReportEffect::Progress);
    assert_eq!((way.poll(), way.sent), (None, 22));
}

#[test]
fn a_lost_end_is_found_by_who_waited() {
    let mut way = Way::new(4, 1024);
    way.burst(|position| position >= 2);
    assert_eq!(way.report(false), ReportEffect::Progress);
    assert_eq!(way.poll(), None);
    assert_eq!(way.report(true), ReportEffect::NewLosses);
    assert_eq!(way.poll().map(|packet| packet.0), Some(2));
    assert_eq!(way.poll().map(|packet| packet.0), Some(3));
}

#[test]
fn impossible_reports_change_nothing() {
    let mut way = Way::new(20, 1024);
    way.burst(|_| false);
    let have =
        |next, bitmap| ReceptionReport { next, bitmap, had: u32::MAX, echo: 0, waited: false };
    let mut say = |have: ReceptionReport<'_>| way.hear(&have);
    assert_eq!(say(have(21, &[])), ReportEffect::Invalid);
    assert_eq!(say(have(u32::MAX, &[])), ReportEffect::Invalid);
    assert_eq!(say(have(u32::MAX, &[0xff; 128])), ReportEffect::Invalid);
    assert_eq!(say(have(19, &[2])), ReportEffect::Invalid);
    assert_eq!(say(have(20, &[])), ReportEffect::Progress);
    assert_eq!(say(have(4, &[])), ReportEffect::Invalid);
}

#[test]
fn a_loss_reduces_the_window_once_a_round() {
    let mut way = Way::new(400, 1024);
    let window = |way: &Way| way.flow.borrow().window();
    way.burst(|position| position % 5 == 2);
    assert_eq!((way.report(true), window(&way)), (ReportEffect::NewLosses, 48));
    way.burst(|_| true);
    assert_eq!((way.report(true), window(&way)), (ReportEffect::NewLosses, 33));
    // What was sent after the reduction was lost too, all of it at once.
    way.burst(|_| true);
    assert_eq!(window(&way), 23);
}

#[test]
fn only_a_window_that_was_full_grows() {
    let window = |way: &Way| way.flow.borrow().window();
    // A message that fits it.
    let mut way = Way::new(40, 1024);
    way.burst(|_| false);
    assert_eq!((way.report(true), window(&way)), (ReportEffect::Progress, 48));
    // A longer one of which little was sent when the receiver answered.
    let mut way = Way::new(400, 1024);
    for _ in 0..10 {
        let packet = way.poll().expect("a position");
        way.arrive(packet);
    }
    assert_eq!((way.report(true), window(&way)), (ReportEffect::Progress, 48));
    // All that may be sent.
    way.burst(|_| false);
    assert_eq!((way.report(true), window(&way)), (ReportEffect::Progress, 96));
}

/// Two positions are lost, and both are found one after the other. The second is lost again, while the
/// round of the first is under way.
#[test]
fn what_is_lost_again_during_another_round_is_found_once_that_is_over() {
    let mut way = Way::new(400, 1024);
    let mut packets: Vec<_> = (0..32).map(|_| way.poll().expect("a position")).collect();
    packets.remove(20);
    packets.remove(10);
    for packet in packets.drain(..18) {
        way.arrive(packet);
    }
    assert_eq!(way.report(false), ReportEffect::NewLosses);
    let first = way.poll().expect("position 10");
    assert_eq!((first.0, first.1.has(Flags::RESENT)), (10, true));
    for packet in packets.drain(..) {
        way.arrive(packet);
    }
    assert_eq!(way.report(false), ReportEffect::NewLosses);
    let lost = way.poll().expect("position 20");
    assert_eq!((lost.0, lost.1.has(Flags::RESENT)), (20, true));
    way.arrive(first);
    assert_eq!(way.report(false), ReportEffect::Progress);
    // The receiver hears something that was sent after it, and more is under way.
    let newer = [way.poll().expect("a position"), way.poll().expect("a position")];
    assert_eq!(newer.map(|packet| packet.0), [32, 33]);
    way.arrive(newer[0]);
    assert_eq!(way.report(false), ReportEffect::NewLosses);
    assert_eq!(way.poll().expect("position 20").0, 20);
}

/// What was taken for lost was only late. Its round ends when it comes, and another one can begin.
#[test]
fn round_ends_when_what_was_late_has_come() {
    let mut way = Way::new(400, 1024);
    let mut packets: Vec<_> = (0..24).map(|_| way.poll().expect("a position")).collect();
    packets.remove(20);
    let late = packets.remove(10);
    for packet in packets.drain(..15) {
        way.arrive(packet);
    }
    assert_eq!(way.report(false), ReportEffect::NewLosses);
    assert_eq!(way.poll().expect("position 10").0, 10);
    way.arrive(late);
    for packet in packets.drain(..) {
        way.arrive(packet);
    }
    assert_eq!(way.report(false), ReportEffect::NewLosses);
    let lost = way.poll().expect("position 20");
    let newer = [way.poll().expect("a position"), way.poll().expect("a position")];
    assert_eq!((lost.0, lost.1.has(Flags::RESENT)), (20, true));
    // The receiver has heard something that was sent after it.
    way.arrive(newer[0]);
    assert_eq!(way.report(false), ReportEffect::NewLosses);
    assert_eq!(way.poll().expect("position 20").0, 20);
}

/// The receiver tells of a loss in each of its answers; one of what was sent again is found although
/// more is sent again all the time, and nothing is sent again that was not lost.
#[test]
fn what_was_lost_twice_is_found_while_more_is_lost() {
    let mut way = Way::new(3000, 64);
    let (mut under_way, mut lost) = (std::collections::VecDeque::new(), 0);
    let mut times = std::collections::HashMap::new();
    for round in 0.. {
        while let Some(packet) = way.poll() {
            under_way.push_back((round, packet));
        }
        // A round trip is four rounds.
        while under_way.front().is_some_and(|(sent, _)| sent + 4 <= round) {
            let (_, packet) = under_way.pop_front().expect("there is one");
            let time = times.entry(packet.0).or_insert(0);
            *time += 1;
            if *time <= [0, 1, 2][packet.0 as usize % 50 % 3] && packet.0 % 50 < 3 {
                lost += 1;
            } else {
                way.arrive(packet);
            }
        }
        if way.assembly.is_whole() {
            break;
        }
        way.report(false);
        assert!(round < 4000, "{:?}", way.blast);
    }
    assert_eq!(way.resent, lost);
}

proptest! {
    /// Whatever is lost, overtaken or sent twice: every position arrives, once as new; and as long
    /// as nothing is, nothing is sent again.
    #[test]
    fn all_arrives_whatever_is_lost(
        count in 1..3000u32,
        credits in 0..1100u16,
        loss in 0..60u64,
        mut chance: u64,
    ) {
        let mut draw = move |percent: u64| {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            chance >> 33 & 127 < percent
        };
        let mut way = Way::new(count, credits);
        let (mut late, mut rounds) = (Vec::new(), 0);
        while !way.assembly.is_whole() {
            rounds += 1;
            prop_assert!(rounds < 200 * count, "no end");
            let mut answers = false;
            while let Some(packet) = way.poll() {
                if draw(loss) {
                    continue;
                }
                if draw(loss / 2) {
                    late.push(packet);
                    continue;
                }
                answers |= way.arrive(packet);
                if draw(loss / 4) {
                    way.arrive(packet);
                }
                if draw(loss) && let Some(packet) = late.pop() {
                    answers |= way.arrive(packet);
                }
                // Half a window was answered while the rest is still being sent.
                if answers && !draw(loss) {
                    way.report(false);
                    answers = false;
                }
            }
            // The answer comes, or the client asks.
            if !draw(loss) {
                way.report(!answers);
            }
        }
        if loss == 0 {
            prop_assert_eq!((way.sent, way.resent), (count, 0));
        }
    }
}
