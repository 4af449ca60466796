//! Tests of a blast, alone and together with an assembly at the receiver. A blast is the sending end of a
//! message. A position is the index of a piece of the message in the order of sending.

use core::cell::RefCell;

use proptest::prelude::*;

use super::super::assembly::{Assembly, PieceArrival};
use super::super::flow::Flow;
use super::*;

const NOW: Moment = Moment(1_000_000_000);

/// A message in transit, with the states of its sender and its receiver.
struct Way {
    blast: Blast,
    flow: RefCell<Flow>,
    credits: u16,
    seen: u16,
    missing: PositionSet,
    assembly: Assembly,
    beyond: PositionSet,
    serial: u16,
    /// The serial of the last packet that arrived at the receiver.
    echo: u16,
    sent: u32,
    resent: u32,
    /// How many times each position has arrived as new.
    new: Vec<u32>,
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
            new: vec![0; count as usize],
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

    /// Delivers a packet to the receiver. Returns whether the receiver answers the packet.
    fn arrive(&mut self, (position, flags, serial): (u32, Flags, u16)) -> bool {
        self.echo = serial;
        match self.assembly.receive(position, &mut self.beyond) {
            PieceArrival::New => self.new[position as usize] += 1,
            PieceArrival::OutOfWindow => panic!("position {position} is out of the window"),
            _ => {}
        }
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

    /// Sends everything that can be sent now, and delivers all packets except those that `lost` selects.
    /// Returns whether the receiver answers one of them.
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

/// A full bitmap may omit positions that do not fit into it. A shorter bitmap omits no position.
#[test]
fn full_bitmap_covers_nothing_beyond_its_end() {
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
fn message_within_the_window_requests_no_report() {
    let mut way = Way::new(34, 1024);
    for position in 0..34 {
        assert_eq!(way.poll(), Some((position, Flags::NONE, way.serial)));
    }
    assert_eq!(way.poll(), None);
}

/// The window has 700 positions on a path with a round trip of 50 ms. One position is due every 57 us.
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
    // At the start of a message, the sender sends the first 48 positions at once (`WINDOW_FIRST`), and at
    // most one more burst.
    let first = sends(&mut way, NOW);
    assert!((48..=48 + burst).contains(&first), "{first}");
    // A sender that polls whenever a position is due sends at most one burst each time.
    let (mut now, mut sent) = (NOW, first);
    while sent < 400 {
        now = way.blast.due().expect("a position is due");
        let once = sends(&mut way, now);
        assert!((1..=burst).contains(&once), "{once}");
        sent += once;
    }
    let pace = sent * 1_000_000_000 / now.since(NOW).max(1);
    assert!(pace < 700 * 20 * 3 / 2, "{pace} positions a second");
    // A sender that polls 40 ms late sends at most one burst, plus the positions that are due in a sixteenth
    // of a round trip.
    let late = sends(&mut way, now.after(40 * MILLISECOND));
    assert!((1..=burst + ROUND_TRIP / 16 / INTERVAL + 1).contains(&late), "{late}");
}

/// A blocked sender sends nothing, but asks for its share of the window now and then. Asking does not count
/// as use of the window, so the window decays.
#[test]
fn window_of_a_blocked_sender_decays() {
    let mut flow = Flow::new(Some(10 * MILLISECOND));
    flow.acknowledged(NOW, 16 * 48 - 48);
    let mut way = Way::new(3000, 1024);
    way.flow = RefCell::new(flow);
    let mut now = NOW;
    while way.blast.in_flight() < 16 * 48 {
        match way.poll_at(now) {
            Some(_) => {}
            None => now = way.blast.due().expect("a position is due"),
        }
    }
    let window = |way: &Way| way.flow.borrow().window();
    assert_eq!(window(&way), 16 * 48);
    for _ in 0..41 {
        now = now.after(10 * MILLISECOND);
        assert_eq!(way.poll_at(now), None);
    }
    assert_eq!(window(&way), 4 * 48);
}

#[test]
fn longer_message_requests_reports_at_half_a_window_and_before_it_stops() {
    let mut way = Way::new(100, 8);
    let flags: Vec<_> = core::iter::from_fn(|| way.poll()).map(|packet| packet.1).collect();
    let requests: Vec<_> = (0..flags.len()).filter(|i| flags[*i].has(Flags::REPORT)).collect();
    assert_eq!((flags.len(), requests), (8, vec![3, 7]));
}

#[test]
fn only_missing_positions_are_retransmitted() {
    let mut way = Way::new(20, 1024);
    assert!(way.burst(|position| position == 3 || position == 7));
    assert_eq!(way.report(false), ReportEffect::NewLosses);
    let first = way.poll().expect("position 3");
    let last = way.poll().expect("position 7");
    assert_eq!((first.0, first.1), (3, Flags::RESENT));
    assert_eq!((last.0, last.1), (7, Flags::RESENT.with(Flags::REPORT)));
    assert_eq!(way.poll(), None);
    // A late report of the same holes changes nothing, because the retransmitted positions are in flight.
    assert_eq!(way.report(false), ReportEffect::Progress);
    assert_eq!(way.poll(), None);
    way.arrive(first);
    assert!(way.arrive(last));
    assert!(way.assembly.is_whole());
    assert_eq!(way.report(false), ReportEffect::Progress);
    assert_eq!((way.poll(), way.sent), (None, 22));
}

#[test]
fn lost_end_is_found_after_a_wait() {
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
    let mut report = |have: ReceptionReport<'_>| way.hear(&have);
    assert_eq!(report(have(21, &[])), ReportEffect::Invalid);
    assert_eq!(report(have(u32::MAX, &[])), ReportEffect::Invalid);
    assert_eq!(report(have(u32::MAX, &[0xff; 128])), ReportEffect::Invalid);
    assert_eq!(report(have(19, &[2])), ReportEffect::Invalid);
    assert_eq!(report(have(20, &[])), ReportEffect::Progress);
    assert_eq!(report(have(4, &[])), ReportEffect::Invalid);
}

#[test]
fn loss_reduces_the_window_once_per_round_trip() {
    let mut way = Way::new(400, 1024);
    let window = |way: &Way| way.flow.borrow().window();
    way.burst(|position| position % 5 == 2);
    assert_eq!((way.report(true), window(&way)), (ReportEffect::NewLosses, 48));
    way.burst(|_| true);
    assert_eq!((way.report(true), window(&way)), (ReportEffect::NewLosses, 33));
    // All positions that the sender sent after the first reduction were lost, too. When they are
    // retransmitted, the window is reduced once more.
    way.burst(|_| true);
    assert_eq!(window(&way), 23);
}

#[test]
fn only_a_full_window_grows() {
    let window = |way: &Way| way.flow.borrow().window();
    // This message fits the window.
    let mut way = Way::new(40, 1024);
    way.burst(|_| false);
    assert_eq!((way.report(true), window(&way)), (ReportEffect::Progress, 48));
    // This message is longer than the window, but few positions were sent before the receiver answered.
    let mut way = Way::new(400, 1024);
    for _ in 0..10 {
        let packet = way.poll().expect("a position");
        way.arrive(packet);
    }
    assert_eq!((way.report(true), window(&way)), (ReportEffect::Progress, 48));
    // Now the sender sends the whole window.
    way.burst(|_| false);
    assert_eq!((way.report(true), window(&way)), (ReportEffect::Progress, 96));
}

/// Two positions are lost, and the sender finds the losses one after the other. A *round* is the
/// retransmission of positions that were declared lost. While the round of the first position is in progress,
/// the second position is lost again.
#[test]
fn loss_during_another_round_is_found_after_it() {
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
    // Two packets are sent after the lost one. The first of the two arrives, and the second is in flight.
    let newer = [way.poll().expect("a position"), way.poll().expect("a position")];
    assert_eq!(newer.map(|packet| packet.0), [32, 33]);
    way.arrive(newer[0]);
    assert_eq!(way.report(false), ReportEffect::NewLosses);
    assert_eq!(way.poll().expect("position 20").0, 20);
}

/// Positions that were declared lost were only late. The round of their retransmission ends when they arrive,
/// so another round can begin.
#[test]
fn round_ends_when_late_positions_arrive() {
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
    // A packet that was sent after the lost one arrives.
    way.arrive(newer[0]);
    assert_eq!(way.report(false), ReportEffect::NewLosses);
    assert_eq!(way.poll().expect("position 20").0, 20);
}

/// Each report of the receiver shows a new loss. The sender finds the loss of a retransmission even though it
/// retransmits further positions all the time. It retransmits only lost positions.
#[test]
fn second_loss_is_found_during_further_losses() {
    let mut way = Way::new(3000, 64);
    let (mut in_flight, mut lost) = (std::collections::VecDeque::new(), 0);
    let mut times = std::collections::HashMap::new();
    for round in 0.. {
        while let Some(packet) = way.poll() {
            in_flight.push_back((round, packet));
        }
        // A round trip takes four iterations of the loop over `round`.
        while in_flight.front().is_some_and(|(sent, _)| sent + 4 <= round) {
            let (_, packet) = in_flight.pop_front().expect("a packet in flight");
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
    /// Packets are lost, reordered and duplicated. Every position arrives, and the receiver accepts each
    /// position once. If nothing is lost, nothing is retransmitted.
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
            prop_assert!(rounds < 200 * count, "the message does not arrive");
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
                // The receiver may answer while the sender is still sending.
                if answers && !draw(loss) {
                    way.report(false);
                    answers = false;
                }
            }
            // The receiver either answers at once, or reports after a wait.
            if !draw(loss) {
                way.report(!answers);
            }
        }
        prop_assert!(way.new.iter().all(|times| *times == 1), "{:?}", way.new);
        if loss == 0 {
            prop_assert_eq!((way.sent, way.resent), (count, 0));
        }
    }
}
