//! Dialogues with a caller: this comes, exactly that goes.

use super::super::flow::NoFlow;
use super::super::rtt::WAIT_MIN;
use super::super::time::{MICROSECOND, SECOND};
use super::*;

const NOW: Moment = Moment(100 * SECOND);
const SECRET: [u8; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 0xff, 0xff, 0xff, 0xff];
const FIRST: u32 = 0;
const TABLE: u64 = 77;
const GENERATION: u32 = 3;
const ROUND_TRIP: u64 = 100 * MICROSECOND;

fn client_end() -> ClientEnd {
    let terms = ClientTerms {
        piece: 1024,
        credits: 64,
        credits_here: 32,
        call_bytes_max: 1 << 20,
        result_bytes_max: 1 << 20,
        table: TABLE,
    };
    let handle = Handle { place: 4, secret: SECRET };
    let mut client_end =
        ClientEnd::new(GrantedHandle { handle, generation: GENERATION }, terms, ROUND_TRIP, 3);
    client_end.set_last_heard(NOW);
    client_end
}

fn shape(total: u32) -> Shape {
    Shape { what: 7, total, ..Shape::default() }
}

/// Begins a call and sends its first packets.
fn calling(total: u32) -> ClientEnd {
    let mut client_end = client_end();
    client_end.begin(shape(total)).expect("it can begin");
    sent(&mut client_end, NOW);
    client_end
}

fn packet(kind: PacketKind, sequence: u32) -> Header {
    let handle = Handle { place: 4, secret: SECRET };
    Header { piece: 1024, credits: 64, ..Header::new(kind, handle, sequence) }
}

fn result(total: u32, fragment: u32) -> Header {
    Header { shape: shape(total), fragment, ..packet(PacketKind::Result, FIRST) }
}

fn all(sequence: u32) -> Header {
    Header { flags: Flags::ALL, ..packet(PacketKind::HaveCall, sequence) }
}

/// What goes out: kinds, fragments and flags.
fn sent(client_end: &mut ClientEnd, now: Moment) -> Vec<(PacketKind, u32, Flags)> {
    let mut out = [0; CONTROL_BYTES_MAX];
    let mut all = Vec::new();
    while let Some(send) = client_end.poll_send(now, &NoFlow, &mut out) {
        let behind = send.bytes - HEADER_BYTES + send.range.len();
        let header = Header::parse(out.first_chunk().unwrap(), behind).unwrap();
        all.push((header.kind, header.fragment, header.flags));
    }
    all
}

#[test]
fn call_begins_again_in_smaller_pieces_where_larger_ones_vanish() {
    let mut client_end = calling(4096);
    client_end.reduce_piece(2000, NOW);
    assert_eq!(sent(&mut client_end, NOW), [], "its pieces are no larger than that");
    client_end.reduce_piece(1000, NOW);
    let again = sent(&mut client_end, NOW);
    // A multiple of 16: five pieces of at most 992 bytes instead of four of 1,024.
    assert_eq!(again.len(), 5, "{again:?}");
    assert!(
        again.iter().all(|(kind, _, flags)| *kind == PacketKind::Call && flags.has(Flags::RESENT))
    );
    client_end.reduce_piece(PIECE_MIN, NOW);
    assert_eq!(sent(&mut client_end, NOW).len(), 8);
    // Before any call it counts for the next one.
    let mut idle = self::client_end();
    idle.reduce_piece(1, NOW);
    idle.begin(shape(4096)).expect("it can begin");
    assert_eq!(sent(&mut idle, NOW).len(), 8, "no piece is smaller than the smallest");
}

/// Lets the next timer come, and returns how long that took and what goes out then.
fn next(client_end: &mut ClientEnd, now: &mut Moment) -> (u64, Vec<(PacketKind, u32, Flags)>) {
    let due = client_end.next_timer().expect("a timer");
    let waited = due.since(*now);
    *now = (*now).max(due);
    client_end.handle_timer(*now);
    (waited, sent(client_end, *now))
}

const PROBE: (PacketKind, u32, Flags) = (PacketKind::Probe, 0, Flags::NONE);

fn failed(executed: Executed, why: FailureReason) -> Option<Outcome> {
    Some(Outcome::Failed { executed, why })
}

#[test]
fn a_quiet_call_is_one_packet_and_its_result_needs_no_answer() {
    let mut client_end = client_end();
    client_end.begin(shape(100)).expect("it can begin");
    assert_eq!(sent(&mut client_end, NOW), [(PacketKind::Call, 0, Flags::NONE)]);
    assert_eq!(client_end.begin(shape(0)), Err(BeginError::Busy));
    assert_eq!(client_end.next_timer(), Some(NOW.after(WAIT_MIN)));
    assert_eq!(client_end.handle(NOW, &NoFlow, &result(9, 0), &[]), Handled::Place(0..9));
    assert_eq!(client_end.outcome(), Some(Outcome::Returned(shape(9))));
    assert_eq!((client_end.outcome(), client_end.next_timer()), (None, None));
    assert_eq!(sent(&mut client_end, NOW), []);
    // It comes once more.
    assert_eq!(
        client_end.handle(NOW, &NoFlow, &result(9, 0), &[]),
        Handled::Dropped(DropReason::Late)
    );
    assert!(client_end.owes_acknowledgement());
    client_end.begin(shape(100)).expect("it can begin");
    assert!(!client_end.owes_acknowledgement());
    // The result of the call before is not that of this one.
    assert_eq!(
        client_end.handle(NOW, &NoFlow, &result(9, 0), &[]),
        Handled::Dropped(DropReason::Late)
    );
    assert_eq!(client_end.outcome(), None);
}

/// Where all answers take as long, and longer than the shortest patience, an answer comes before its
/// question is repeated.
#[test]
fn question_is_not_repeated_before_its_answer_can_come() {
    const FAR: u64 = 253 * MILLISECOND;
    let (mut client_end, mut now) = (calling(100), NOW);
    for _ in 0..100 {
        client_end.rtt.sample(FAR);
    }
    let (mut asked, mut soonest) = (Vec::new(), u64::MAX);
    for _ in 0..9 {
        let (waited, question) = next(&mut client_end, &mut now);
        soonest = if asked.is_empty() { soonest } else { soonest.min(waited) };
        asked.extend(question);
    }
    assert_eq!(asked, [PROBE; 9]);
    assert!((FAR + MILLISECOND..FAR * 5 / 4).contains(&soonest), "{soonest}");
}

#[test]
fn call_that_is_told_to_wait_asks_until_it_may_go_on() {
    let (mut client_end, mut now) = (calling(2500), NOW);
    let have = packet(PacketKind::HaveCall, FIRST);
    let wait = Header { credits: 0, ..have };
    assert_eq!(client_end.handle(now, &NoFlow, &wait, &[]), Handled::Nothing);
    // It is not silence: as long as the server says so, the call waits, and sends nothing of itself.
    for round in 0..50 {
        let (waited, said) = next(&mut client_end, &mut now);
        assert_eq!(said, [PROBE]);
        let expected = if round == 0 { WAIT_MAX } else { CALM_MAX };
        assert_eq!(waited, expected, "{round}");
        assert_eq!(client_end.handle(now, &NoFlow, &wait, &[]), Handled::Nothing);
    }
    assert_eq!(sent(&mut client_end, now), []);
    // All of it is sent, as if for the first time.
    assert_eq!(client_end.handle(now, &NoFlow, &have, &[]), Handled::Nothing);
    let pieces = [1, 2, 0].map(|fragment| (PacketKind::Call, fragment, Flags::NONE));
    assert_eq!(sent(&mut client_end, now), pieces);
    assert_eq!(client_end.handle(now, &NoFlow, &result(9, 0), &[]), Handled::Place(0..9));
    assert_eq!(client_end.outcome(), Some(Outcome::Returned(shape(9))));
}

#[test]
fn late_word_to_wait_holds_a_call_up_until_the_next_question() {
    let (mut client_end, mut now) = (calling(100_000), NOW);
    let have = |next| Header { fragment: next, ..packet(PacketKind::HaveCall, FIRST) };
    client_end.handle(now, &NoFlow, &have(10), &[]);
    sent(&mut client_end, now);
    client_end.handle(now, &NoFlow, &Header { credits: 0, ..have(0) }, &[]);
    assert_eq!(sent(&mut client_end, now), []);
    assert_eq!(next(&mut client_end, &mut now).1, [PROBE]);
    client_end.handle(now, &NoFlow, &have(20), &[]);
    let more = sent(&mut client_end, now);
    assert!(!more.is_empty() && more.iter().all(|(kind, ..)| *kind == PacketKind::Call));
}

/// The server made the call wait for a moment, and has taken pieces since. The client hears of the wait
/// only after it has sent more than it sends when it begins again.
#[test]
fn late_word_to_go_on_hides_nothing_that_the_server_has() {
    for holes in [false, true] {
        let (mut client_end, mut now) = (calling(20_000), NOW);
        let have =
            |next| Header { fragment: next, credits: 1, ..packet(PacketKind::HaveCall, FIRST) };
        let calls = |at: &[u32]| -> Vec<_> {
            at.iter().map(|at| (PacketKind::Call, *at, Flags::REPORT)).collect()
        };
        client_end.handle(now, &NoFlow, &Header { credits: 0, ..have(0) }, &[]);
        client_end.handle(now, &NoFlow, &have(0), &[]);
        assert_eq!(sent(&mut client_end, now), calls(&[1, 2]));
        if !holes {
            client_end.handle(now, &NoFlow, &have(4), &[]);
            assert_eq!(sent(&mut client_end, now), calls(&[5, 6]));
            continue;
        }
        // The server has positions 5 and 6 as well. The one before them is late, or lost.
        let header = Header { shape: shape(6), ..have(4) };
        client_end.handle(now, &NoFlow, &header, &[0b110]);
        assert_eq!(sent(&mut client_end, now), calls(&[8, 9]));
        client_end.handle(now, &NoFlow, &Header { shape: shape(8), ..have(4) }, &[0b11110]);
        let (_, again) = next(&mut client_end, &mut now);
        assert_eq!(again[0].1, 5, "{again:?}");
        assert!(again[0].2.has(Flags::RESENT), "{again:?}");
    }
}

#[test]
fn call_that_waits_is_dead_when_nobody_answers() {
    let (mut client_end, mut now) = (calling(2500), NOW);
    client_end.handle(
        now,
        &NoFlow,
        &Header { credits: 0, ..packet(PacketKind::HaveCall, FIRST) },
        &[],
    );
    for _ in 0..20 {
        if client_end.next_timer().is_some() {
            next(&mut client_end, &mut now);
        }
    }
    assert_eq!(client_end.outcome(), failed(Executed::Maybe, FailureReason::Dead));
}

#[test]
fn what_no_call_acknowledged_is_acknowledged_when_asked() {
    let mut client_end = calling(0);
    client_end.handle(NOW, &NoFlow, &result(0, 0), &[]);
    client_end.outcome();
    client_end.acknowledge();
    assert_eq!(sent(&mut client_end, NOW), [(PacketKind::HaveResult, 0, Flags::ALL)]);
    assert!(!client_end.owes_acknowledgement());
    client_end.close();
    assert_eq!(sent(&mut client_end, NOW), [(PacketKind::Bye, 0, Flags::NONE)]);
    assert_eq!(client_end.begin(shape(0)), Err(BeginError::Closed));
}

#[test]
fn it_asks_with_growing_intervals_and_then_takes_the_server_for_dead() {
    let (mut client_end, mut now) = (calling(100), NOW);
    let (mut waits, mut all) = (Vec::new(), Vec::new());
    while !client_end.is_closed() {
        let (waited, sent) = next(&mut client_end, &mut now);
        waits.push(waited / MILLISECOND);
        all.extend(sent);
    }
    assert_eq!(all.pop(), Some((PacketKind::Bye, 0, Flags::NONE)));
    assert!(all.iter().all(|one| *one == PROBE), "{all:?}");
    assert_eq!(client_end.outcome(), failed(Executed::Maybe, FailureReason::Dead));
    for (wait, expected) in waits.iter().zip([5, 10, 20, 40, 80, 160]) {
        assert!(wait.abs_diff(expected) <= expected / 10 + 1, "{waits:?}");
    }
    assert!(waits[6..].iter().all(|wait| (180..=220).contains(wait)), "{waits:?}");
    assert_eq!((all.len(), waits.len()), (15, 16));
}

#[test]
fn while_the_server_works_it_is_asked_more_and_more_seldom() {
    let (mut client_end, mut now) = (calling(100), NOW);
    client_end.handle(NOW, &NoFlow, &all(FIRST), &[]);
    let mut waits = Vec::new();
    for _ in 0..6 {
        let (waited, sent) = next(&mut client_end, &mut now);
        assert_eq!(sent, [PROBE]);
        waits.push(waited / MILLISECOND);
        let answer = Header { echo: client_end.serial, ..all(FIRST) };
        client_end.handle(now, &NoFlow, &answer, &[]);
        // A late one of the same makes no difference.
        client_end.handle(now, &NoFlow, &answer, &[]);
    }
    assert_eq!(waits, [200, 400, 400, 400, 400, 400]);
    // Unanswered, it asks quickly, and gives up after ten.
    let mut waits = Vec::new();
    while !client_end.is_closed() {
        waits.push(next(&mut client_end, &mut now).0 / MILLISECOND);
    }
    assert_eq!((waits[0], waits.len()), (400, 11));
    assert!(waits[1..].iter().all(|wait| (180..=220).contains(wait)), "{waits:?}");
}

#[test]
fn what_the_server_misses_is_sent_after_a_moment_and_nothing_else() {
    let (mut client_end, mut now) = (calling(3000), NOW);
    assert_eq!(next(&mut client_end, &mut now).1, [PROBE]);
    // It has the middle of three only.
    let bitmap = [0b10];
    let have = Header {
        flags: Flags::CHECKED,
        check: checksum(&bitmap),
        echo: client_end.serial,
        ..packet(PacketKind::HaveCall, FIRST)
    };
    let damaged = Header { check: 1, ..have };
    assert_eq!(
        client_end.handle(now, &NoFlow, &damaged, &bitmap),
        Handled::Dropped(DropReason::Damaged)
    );
    assert_eq!(client_end.handle(now, &NoFlow, &have, &bitmap), Handled::Nothing);
    assert_eq!(sent(&mut client_end, now), []);
    let (waited, sent) = next(&mut client_end, &mut now);
    assert!(waited < MILLISECOND, "{waited}");
    let again = Flags::RESENT;
    let expected = [(PacketKind::Call, 1, again), (PacketKind::Call, 0, again.with(Flags::REPORT))];
    assert_eq!(sent, expected);
}

#[test]
fn holes_that_close_by_themselves_cost_no_data() {
    let (mut client_end, mut now) = (calling(3000), NOW);
    let bitmap = [0b10];
    let have = Header {
        flags: Flags::CHECKED,
        fragment: 1,
        check: checksum(&bitmap),
        echo: 3,
        ..packet(PacketKind::HaveCall, FIRST)
    };
    client_end.handle(now, &NoFlow, &have, &bitmap);
    client_end.handle(now, &NoFlow, &all(FIRST), &[]);
    assert_eq!(next(&mut client_end, &mut now).1, [PROBE]);
}

#[test]
fn a_lost_result_is_asked_for_once_the_server_says_that_it_was_sent() {
    let (mut client_end, mut now) = (calling(0), NOW);
    next(&mut client_end, &mut now);
    let flags = Flags::ALL.with(Flags::REPLIED);
    client_end.handle(now, &NoFlow, &Header { flags, ..all(FIRST) }, &[]);
    assert_eq!(sent(&mut client_end, now), []);
    let (waited, sent) = next(&mut client_end, &mut now);
    assert!(waited < MILLISECOND);
    assert_eq!(sent, [(PacketKind::HaveResult, 0, Flags::REPORT)]);
    assert_eq!(client_end.handle(now, &NoFlow, &result(9, 0), &[]), Handled::Place(0..9));
}

#[test]
fn a_result_of_several_pieces_is_put_together() {
    let (mut client_end, mut now) = (calling(0), NOW);
    assert_eq!(client_end.handle(now, &NoFlow, &result(3000, 1), &[]), Handled::Place(952..1976));
    assert_eq!(
        client_end.handle(now, &NoFlow, &result(3000, 1), &[]),
        Handled::Dropped(DropReason::Duplicate)
    );
    let other = Header { shape: shape(3001), ..result(3000, 2) };
    assert_eq!(
        client_end.handle(now, &NoFlow, &other, &[]),
        Handled::Dropped(DropReason::Violation)
    );
    // The end overtakes: after a moment it says what it has.
    assert_eq!(client_end.handle(now, &NoFlow, &result(3000, 0), &[]), Handled::Place(0..952));
    assert_eq!(sent(&mut client_end, now), []);
    let (waited, sent_then) = next(&mut client_end, &mut now);
    assert!(waited < MILLISECOND);
    assert_eq!(sent_then, [(PacketKind::HaveResult, 1, Flags::CHECKED)]);
    // Nothing comes: it asks.
    let (waited, sent_then) = next(&mut client_end, &mut now);
    assert_eq!(waited, WAIT_MIN);
    assert_eq!(sent_then, [(PacketKind::HaveResult, 1, Flags::REPORT.with(Flags::CHECKED))]);
    assert_eq!(client_end.outcome(), None);
    assert_eq!(client_end.handle(now, &NoFlow, &result(3000, 2), &[]), Handled::Place(1976..3000));
    assert_eq!(client_end.outcome(), Some(Outcome::Returned(shape(3000))));
    assert_eq!(sent(&mut client_end, now), []);
}

#[test]
fn a_windowed_result_is_answered_at_once_if_it_has_no_holes() {
    let mut client_end = calling(0);
    let please = Header { flags: Flags::REPORT, ..result(9000, 1) };
    client_end.handle(NOW, &NoFlow, &please, &[]);
    assert_eq!(sent(&mut client_end, NOW), [(PacketKind::HaveResult, 1, Flags::NONE)]);
    // With a hole only when it closes, or after a moment.
    client_end.handle(NOW, &NoFlow, &Header { fragment: 3, ..please }, &[]);
    assert_eq!(sent(&mut client_end, NOW), []);
    client_end.handle(NOW, &NoFlow, &result(9000, 2), &[]);
    assert_eq!(sent(&mut client_end, NOW), [(PacketKind::HaveResult, 3, Flags::NONE)]);
}

/// A refusal by that table, at whose place so many results were forgotten.
fn refusal(table: u64, generation: u32) -> Header {
    Header::refusal(&packet(PacketKind::Call, FIRST), table, generation)
}

#[test]
fn a_refusal_says_not_executed_only_if_its_table_has_forgotten_nothing() {
    let (certain, doubt) = (Executed::No, Executed::Maybe);
    for (table, generation, heard, expected) in [
        (TABLE, GENERATION, false, certain),
        // The place has forgotten a result, or its number is from another time.
        (TABLE, GENERATION + 1, false, doubt),
        (TABLE, GENERATION - 1, false, doubt),
        // Another server at the same address, or another socket of the same one.
        (TABLE + 1, GENERATION, false, doubt),
        // The call had been taken.
        (TABLE, GENERATION, true, doubt),
    ] {
        // However long ago the call began by whichever clock.
        for later in [0, 500 * MILLISECOND, 100_000 * SECOND] {
            let mut client_end = calling(0);
            if heard {
                client_end.handle(NOW, &NoFlow, &all(FIRST), &[]);
            }
            client_end.handle(NOW.after(later), &NoFlow, &refusal(table, generation), &[]);
            let outcome = client_end.outcome();
            assert_eq!(
                outcome,
                failed(expected, FailureReason::Refused),
                "{table} {generation} {heard}"
            );
            assert!(client_end.is_closed());
        }
    }
    // Of another call, it is late.
    let mut client_end = calling(0);
    let old = Header { sequence: FIRST.wrapping_sub(1), ..refusal(TABLE, GENERATION) };
    assert_eq!(client_end.handle(NOW, &NoFlow, &old, &[]), Handled::Dropped(DropReason::Late));
}

#[test]
fn a_refusal_because_of_the_address_says_so_and_nothing_of_the_call() {
    let mut client_end = calling(0);
    let refusal = Header { flags: Flags::ELSEWHERE, ..refusal(TABLE, GENERATION) };
    client_end.handle(NOW, &NoFlow, &refusal, &[]);
    assert_eq!(client_end.outcome(), failed(Executed::Maybe, FailureReason::AddressChanged));
}

/// Begins a call a second after the server was heard of: it is asked whether it knows the handle.
fn asking() -> (ClientEnd, Moment) {
    let (mut client_end, now) = (client_end(), NOW.after(SECOND));
    client_end.begin(shape(3000)).expect("it can begin");
    assert_eq!(sent(&mut client_end, now), [PROBE]);
    (client_end, now)
}

#[test]
fn after_a_pause_the_server_is_asked_before_anything_is_sent() {
    let (mut client_end, now) = asking();
    // What was said before the question proves nothing.
    let early = Header { echo: client_end.serial - 1, ..packet(PacketKind::HaveCall, FIRST) };
    assert_eq!(client_end.handle(now, &NoFlow, &early, &[]), Handled::Dropped(DropReason::Late));
    assert_eq!(sent(&mut client_end, now), []);
    let answer = Header { echo: client_end.serial, ..early };
    assert_eq!(client_end.handle(now, &NoFlow, &answer, &[]), Handled::Nothing);
    let pieces: Vec<_> = sent(&mut client_end, now).iter().map(|one| (one.0, one.1)).collect();
    assert_eq!(pieces, [(PacketKind::Call, 1), (PacketKind::Call, 2), (PacketKind::Call, 0)]);
    assert_eq!(client_end.handle(now, &NoFlow, &result(9, 0), &[]), Handled::Place(0..9));
    // The next one follows at once.
    client_end.outcome();
    client_end.begin(shape(0)).expect("it can begin");
    let soon = now.after(9 * MILLISECOND);
    assert_eq!(sent(&mut client_end, soon), [(PacketKind::Call, 0, Flags::NONE)]);
}

#[test]
fn what_was_not_sent_was_not_executed_whoever_refuses_it() {
    let (mut client_end, now) = asking();
    client_end.handle(now, &NoFlow, &refusal(TABLE + 1, 9), &[]);
    assert_eq!(client_end.outcome(), failed(Executed::No, FailureReason::Refused));
    let (mut client_end, now) = asking();
    client_end.handle(now, &NoFlow, &Header { flags: Flags::ELSEWHERE, ..refusal(TABLE, 3) }, &[]);
    assert_eq!(client_end.outcome(), failed(Executed::No, FailureReason::AddressChanged));
    let (mut client_end, mut now) = asking();
    while !client_end.is_closed() {
        next(&mut client_end, &mut now);
    }
    assert_eq!(client_end.outcome(), failed(Executed::No, FailureReason::Dead));
}

/// However short the limits of calls are, the questions of the first one go on until the server has
/// answered, or is dead.
#[test]
fn call_given_up_while_it_asks_goes_on_asking() {
    let (mut client_end, now) = asking();
    client_end.cancel(now);
    assert_eq!(client_end.outcome(), failed(Executed::No, FailureReason::Cancelled));
    assert_eq!(sent(&mut client_end, now), [(PacketKind::Cancel, 0, Flags::NONE)]);
    assert!(client_end.is_captured());
    client_end.handle(now, &NoFlow, &packet(PacketKind::Released, FIRST), &[]);
    assert_eq!((client_end.begin(shape(0)), client_end.sequence), (Ok(()), FIRST + 1));
    let (mut client_end, mut now) = asking();
    let begun = now;
    client_end.cancel(now);
    let mut all = sent(&mut client_end, now);
    while !client_end.is_closed() {
        all.extend(next(&mut client_end, &mut now).1);
    }
    assert_eq!(all.pop(), Some((PacketKind::Bye, 0, Flags::NONE)));
    assert_eq!(all, [(PacketKind::Cancel, 0, Flags::NONE); 10]);
    assert!(now.since(begun) < 3 * SECOND, "{now:?}");
}

#[test]
fn a_server_that_asks_is_told_whether_the_call_is_open() {
    let ask = packet(PacketKind::Ask, FIRST);
    // The question says that the server has the whole call.
    let (mut client_end, mut now) = (calling(3000), NOW);
    assert_eq!(client_end.handle(NOW, &NoFlow, &ask, &[]), Handled::Nothing);
    assert_eq!(sent(&mut client_end, NOW), [PROBE]);
    let (waited, question) = next(&mut client_end, &mut now);
    assert_eq!((waited, question), (WAIT_MAX, vec![PROBE]));
    let mut client_end = calling(0);
    client_end.cancel(NOW);
    sent(&mut client_end, NOW);
    assert_eq!(client_end.handle(NOW, &NoFlow, &ask, &[]), Handled::Nothing);
    assert_eq!(sent(&mut client_end, NOW), [(PacketKind::Cancel, 0, Flags::NONE)]);
    // After the result, or of another call, it is late.
    let mut client_end = calling(0);
    client_end.handle(NOW, &NoFlow, &result(0, 0), &[]);
    assert_eq!(client_end.handle(NOW, &NoFlow, &ask, &[]), Handled::Dropped(DropReason::Late));
    let other = packet(PacketKind::Ask, FIRST + 1);
    assert_eq!(client_end.handle(NOW, &NoFlow, &other, &[]), Handled::Dropped(DropReason::Late));
    assert_eq!(sent(&mut client_end, NOW), []);
}

#[test]
fn a_client_that_takes_the_server_for_dead_says_goodbye_and_says_it_again_when_asked() {
    let (mut client_end, mut now) = (calling(0), NOW);
    let mut last = Vec::new();
    while !client_end.is_closed() {
        (_, last) = next(&mut client_end, &mut now);
    }
    assert_eq!(last, [(PacketKind::Bye, 0, Flags::NONE)]);
    assert_eq!(
        client_end.handle(now, &NoFlow, &packet(PacketKind::Ask, FIRST), &[]),
        Handled::Nothing
    );
    assert_eq!(sent(&mut client_end, now), [(PacketKind::Bye, 0, Flags::NONE)]);
}

#[test]
fn goodbye_ends_a_call_that_is_open_or_was_given_up() {
    let mut client_end = calling(0);
    client_end.close();
    assert_eq!(client_end.outcome(), failed(Executed::Maybe, FailureReason::Cancelled));
    assert_eq!(sent(&mut client_end, NOW), [(PacketKind::Bye, 0, Flags::NONE)]);
    let mut client_end = calling(0);
    client_end.cancel(NOW);
    client_end.close();
    assert_eq!(sent(&mut client_end, NOW), [(PacketKind::Bye, 0, Flags::NONE)]);
    assert!(client_end.is_closed() && !client_end.is_captured());
    client_end.close();
    assert_eq!(sent(&mut client_end, NOW), []);
}

#[test]
fn a_call_given_up_captures_the_handle_until_the_server_lets_go() {
    let (mut client_end, mut now) = (calling(0), NOW);
    client_end.cancel(now);
    assert_eq!(client_end.outcome(), failed(Executed::Maybe, FailureReason::Cancelled));
    assert_eq!(sent(&mut client_end, now), [(PacketKind::Cancel, 0, Flags::NONE)]);
    assert_eq!(client_end.begin(shape(0)), Err(BeginError::Busy));
    assert_eq!(
        client_end.handle(now, &NoFlow, &result(0, 0), &[]),
        Handled::Dropped(DropReason::Late)
    );
    let (waited, sent_then) = next(&mut client_end, &mut now);
    assert!((180..=220).contains(&(waited / MILLISECOND)));
    assert_eq!(sent_then, [(PacketKind::Cancel, 0, Flags::NONE)]);
    client_end.handle(now, &NoFlow, &all(FIRST), &[]);
    assert_eq!(next(&mut client_end, &mut now).0, 400 * MILLISECOND);
    assert_eq!(
        client_end.handle(now, &NoFlow, &packet(PacketKind::Released, FIRST), &[]),
        Handled::Nothing
    );
    assert_eq!((client_end.begin(shape(0)), client_end.sequence), (Ok(()), FIRST + 1));
    // If it never does, the handle is of no use any more.
    let (mut client_end, mut now) = (calling(0), NOW);
    client_end.cancel(now);
    let mut all = sent(&mut client_end, now);
    while !client_end.is_closed() {
        all.extend(next(&mut client_end, &mut now).1);
    }
    assert_eq!(all.pop(), Some((PacketKind::Bye, 0, Flags::NONE)));
    assert_eq!(all, [(PacketKind::Cancel, 0, Flags::NONE); 10]);
}

#[test]
fn a_call_given_up_before_it_was_sent_never_was() {
    let mut client_end = client_end();
    client_end.begin(shape(0)).expect("it can begin");
    client_end.cancel(NOW);
    assert_eq!(client_end.outcome(), failed(Executed::No, FailureReason::Cancelled));
    assert_eq!(sent(&mut client_end, NOW), []);
    client_end.begin(shape(0)).expect("it can begin again");
    assert_eq!(client_end.sequence, FIRST);
}

#[test]
fn three_refusals_by_the_machine_are_enough() {
    let mut client_end = calling(0);
    let mut now = NOW;
    client_end.note_unreachable();
    client_end.note_unreachable();
    client_end.note_unreachable();
    assert!(!client_end.is_closed(), "they were for one packet");
    for _ in 0..2 {
        next(&mut client_end, &mut now);
        client_end.note_unreachable();
    }
    assert_eq!(client_end.outcome(), failed(Executed::Maybe, FailureReason::Unreachable));
}

#[test]
fn a_result_larger_than_agreed_is_given_up() {
    let mut client_end = calling(0);
    let large = result((1 << 20) + 1, 0);
    assert_eq!(
        client_end.handle(NOW, &NoFlow, &large, &[]),
        Handled::Dropped(DropReason::Violation)
    );
    assert_eq!(client_end.outcome(), failed(Executed::Maybe, FailureReason::Protocol));
    assert_eq!(sent(&mut client_end, NOW), [(PacketKind::Cancel, 0, Flags::NONE)]);
    assert_eq!(self::client_end().begin(shape((1 << 20) + 1)), Err(BeginError::TooLarge));
}

#[test]
fn result_comes_in_smaller_pieces_if_the_server_says_so() {
    let (mut client_end, now) = (calling(0), NOW);
    client_end.handle(now, &NoFlow, &Header { fragment: 1, ..result(3000, 1) }, &[]);
    let flags = Flags::ALL.with(Flags::REPLIED);
    let larger = Header { flags, piece: 1040, ..all(FIRST) };
    client_end.handle(now, &NoFlow, &larger, &[]);
    // A call that runs still has no result to be cut.
    client_end.handle(now, &NoFlow, &Header { piece: 512, ..all(FIRST) }, &[]);
    assert_eq!(client_end.piece, 1024);
    client_end.handle(now, &NoFlow, &Header { flags, piece: 688, ..all(FIRST) }, &[]);
    assert_eq!(client_end.piece, 688);
    let late = Header { fragment: 2, ..result(3000, 2) };
    assert_eq!(client_end.handle(now, &NoFlow, &late, &[]), Handled::Dropped(DropReason::Late));
    for fragment in [1, 2, 3, 4, 0] {
        let piece = Header { fragment, piece: 688, ..result(3000, fragment) };
        let placed = client_end.handle(now, &NoFlow, &piece, &[]);
        assert!(matches!(placed, Handled::Place(_)), "{fragment}: {placed:?}");
    }
    assert!(matches!(client_end.outcome(), Some(Outcome::Returned(_))));
}

#[test]
fn pieces_that_never_arrive_are_made_smaller() {
    let (mut client_end, mut now) = (calling(3000), NOW);
    let mut rounds = 0;
    while client_end.piece == 1024 {
        rounds += 1;
        let (_, sent) = next(&mut client_end, &mut now);
        if sent == [PROBE] {
            let have = Header { echo: client_end.serial, ..packet(PacketKind::HaveCall, FIRST) };
            client_end.handle(now, &NoFlow, &have, &[]);
        }
        assert!(rounds < 20);
    }
    assert_eq!(client_end.piece, 512);
    // The same for a result of which nothing comes.
    let (mut client_end, mut now) = (calling(0), NOW);
    let flags = Flags::ALL.with(Flags::REPLIED);
    client_end.handle(now, &NoFlow, &Header { flags, ..all(FIRST) }, &[]);
    let asks = (PacketKind::HaveResult, 0, Flags::REPORT);
    let mut answered = 0;
    while client_end.piece == 1024 {
        let asked = next(&mut client_end, &mut now).1;
        if asked.contains(&PROBE) {
            assert_eq!(asked, [asks, PROBE]);
            // The server answers where the call is, and that it sent the result.
            let answer = Header { flags, echo: client_end.serial, ..all(FIRST) };
            client_end.handle(now, &NoFlow, &answer, &[]);
            answered += 1;
            assert_eq!(sent(&mut client_end, now), [asks]);
        } else {
            assert_eq!(asked, [asks]);
        }
        assert!(answered < 20);
    }
    assert_eq!((client_end.piece, answered), (512, 4));
    let late = Header { fragment: 1, ..result(3000, 1) };
    assert_eq!(client_end.handle(now, &NoFlow, &late, &[]), Handled::Dropped(DropReason::Late));
}

/// Without any answer the way is cut, and nothing is known of what it carries.
#[test]
fn silence_makes_no_piece_smaller() {
    let (mut client_end, mut now) = (calling(0), NOW);
    let flags = Flags::ALL.with(Flags::REPLIED);
    client_end.handle(now, &NoFlow, &Header { flags, ..all(FIRST) }, &[]);
    while !client_end.is_closed() {
        next(&mut client_end, &mut now);
    }
    assert_eq!(
        (client_end.piece, client_end.outcome()),
        (1024, failed(Executed::Maybe, FailureReason::Dead))
    );
    assert!((2000..2700).contains(&(now.since(NOW) / MILLISECOND)), "{:?}", now.since(NOW));
}

#[test]
fn strangers_are_not_heard() {
    let mut client_end = calling(0);
    let stranger = Header { handle: Handle::default(), ..result(0, 0) };
    assert_eq!(
        client_end.handle(NOW, &NoFlow, &stranger, &[]),
        Handled::Dropped(DropReason::UnknownHandle)
    );
    for kind in [
        PacketKind::Call,
        PacketKind::Probe,
        PacketKind::Cancel,
        PacketKind::Bye,
        PacketKind::Bound,
        PacketKind::Released,
    ] {
        let handled = client_end.handle(NOW, &NoFlow, &packet(kind, FIRST), &[]);
        assert_eq!(handled, Handled::Dropped(DropReason::Violation), "{kind:?}");
    }
    assert_eq!(client_end.outcome(), None);
}
