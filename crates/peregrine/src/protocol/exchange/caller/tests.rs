//! Dialogues with a caller: this comes, exactly that goes.

use super::super::flow::Unknown;
use super::super::rtt::WAIT_MIN;
use super::super::time::{MICROSECOND, SECOND};
use super::*;

const NOW: Moment = Moment(100 * SECOND);
const SECRET: [u8; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 0xff, 0xff, 0xff, 0xff];
const FIRST: u32 = 0;
const TABLE: u64 = 77;
const GENERATION: u32 = 3;
const ROUND_TRIP: u64 = 100 * MICROSECOND;

fn caller() -> Caller {
    let terms = Terms {
        piece: 1024,
        credits: 64,
        credits_here: 32,
        call_bytes_max: 1 << 20,
        result_bytes_max: 1 << 20,
        table: TABLE,
    };
    let handle = Handle { place: 4, secret: SECRET };
    let mut caller = Caller::new(Lease { handle, generation: GENERATION }, terms, ROUND_TRIP, 3);
    caller.heard_at(NOW);
    caller
}

fn shape(total: u32) -> Shape {
    Shape { what: 7, total, ..Shape::default() }
}

/// Begins a call and sends its first packets.
fn calling(total: u32) -> Caller {
    let mut caller = caller();
    caller.begin(shape(total)).expect("it can begin");
    sent(&mut caller, NOW);
    caller
}

fn packet(kind: Kind, sequence: u32) -> Header {
    let handle = Handle { place: 4, secret: SECRET };
    Header { piece: 1024, credits: 64, ..Header::new(kind, handle, sequence) }
}

fn result(total: u32, fragment: u32) -> Header {
    Header { shape: shape(total), fragment, ..packet(Kind::Result, FIRST) }
}

fn all(sequence: u32) -> Header {
    Header { flags: Flags::ALL, ..packet(Kind::HaveCall, sequence) }
}

/// What goes out: kinds, fragments and flags.
fn sent(caller: &mut Caller, now: Moment) -> Vec<(Kind, u32, Flags)> {
    let mut out = [0; CONTROL_BYTES_MAX];
    let mut all = Vec::new();
    while let Some(send) = caller.poll_send(now, &Unknown, &mut out) {
        let behind = send.bytes - HEADER_BYTES + send.range.len();
        let header = Header::parse(out.first_chunk().unwrap(), behind).unwrap();
        all.push((header.kind, header.fragment, header.flags));
    }
    all
}

#[test]
fn call_begins_again_in_smaller_pieces_where_larger_ones_vanish() {
    let mut caller = calling(4096);
    caller.narrow(2000, NOW);
    assert_eq!(sent(&mut caller, NOW), [], "its pieces are no larger than that");
    caller.narrow(1000, NOW);
    let again = sent(&mut caller, NOW);
    // A multiple of 16: five pieces of at most 992 bytes instead of four of 1,024.
    assert_eq!(again.len(), 5, "{again:?}");
    assert!(again.iter().all(|(kind, _, flags)| *kind == Kind::Call && flags.has(Flags::RESENT)));
    caller.narrow(PIECE_MIN, NOW);
    assert_eq!(sent(&mut caller, NOW).len(), 8);
    // Before any call it counts for the next one.
    let mut idle = self::caller();
    idle.narrow(1, NOW);
    idle.begin(shape(4096)).expect("it can begin");
    assert_eq!(sent(&mut idle, NOW).len(), 8, "no piece is smaller than the smallest");
}

/// Lets the next timer come, and returns how long that took and what goes out then.
fn next(caller: &mut Caller, now: &mut Moment) -> (u64, Vec<(Kind, u32, Flags)>) {
    let due = caller.next_timer().expect("a timer");
    let waited = due.since(*now);
    *now = (*now).max(due);
    caller.timer(*now);
    (waited, sent(caller, *now))
}

const PROBE: (Kind, u32, Flags) = (Kind::Probe, 0, Flags::NONE);

fn failed(executed: Executed, why: Why) -> Option<Outcome> {
    Some(Outcome::Failed { executed, why })
}

#[test]
fn a_quiet_call_is_one_packet_and_its_result_needs_no_answer() {
    let mut caller = caller();
    caller.begin(shape(100)).expect("it can begin");
    assert_eq!(sent(&mut caller, NOW), [(Kind::Call, 0, Flags::NONE)]);
    assert_eq!(caller.begin(shape(0)), Err(Unbegun::Busy));
    assert_eq!(caller.next_timer(), Some(NOW.after(WAIT_MIN)));
    assert_eq!(caller.handle(NOW, &Unknown, &result(9, 0), &[]), Handled::Place(0..9));
    assert_eq!(caller.outcome(), Some(Outcome::Returned(shape(9))));
    assert_eq!((caller.outcome(), caller.next_timer()), (None, None));
    assert_eq!(sent(&mut caller, NOW), []);
    // It comes once more.
    assert_eq!(caller.handle(NOW, &Unknown, &result(9, 0), &[]), Handled::Dropped(Dropped::Late));
    assert!(caller.owes_acknowledgement());
    caller.begin(shape(100)).expect("it can begin");
    assert!(!caller.owes_acknowledgement());
    // The result of the call before is not that of this one.
    assert_eq!(caller.handle(NOW, &Unknown, &result(9, 0), &[]), Handled::Dropped(Dropped::Late));
    assert_eq!(caller.outcome(), None);
}

/// Where all answers take as long, and longer than the shortest patience, an answer comes before its
/// question is repeated.
#[test]
fn question_is_not_repeated_before_its_answer_can_come() {
    const FAR: u64 = 253 * MILLISECOND;
    let (mut caller, mut now) = (calling(100), NOW);
    for _ in 0..100 {
        caller.rtt.sample(FAR);
    }
    let (mut asked, mut soonest) = (Vec::new(), u64::MAX);
    for _ in 0..9 {
        let (waited, question) = next(&mut caller, &mut now);
        soonest = if asked.is_empty() { soonest } else { soonest.min(waited) };
        asked.extend(question);
    }
    assert_eq!(asked, [PROBE; 9]);
    assert!((FAR + MILLISECOND..FAR * 5 / 4).contains(&soonest), "{soonest}");
}

#[test]
fn call_that_is_told_to_wait_asks_until_it_may_go_on() {
    let (mut caller, mut now) = (calling(2500), NOW);
    let have = packet(Kind::HaveCall, FIRST);
    let wait = Header { credits: 0, ..have };
    assert_eq!(caller.handle(now, &Unknown, &wait, &[]), Handled::Nothing);
    // It is not silence: as long as the server says so, the call waits, and sends nothing of itself.
    for round in 0..50 {
        let (waited, said) = next(&mut caller, &mut now);
        assert_eq!(said, [PROBE]);
        let expected = if round == 0 { WAIT_MAX } else { CALM_MAX };
        assert_eq!(waited, expected, "{round}");
        assert_eq!(caller.handle(now, &Unknown, &wait, &[]), Handled::Nothing);
    }
    assert_eq!(sent(&mut caller, now), []);
    // All of it is sent, as if for the first time.
    assert_eq!(caller.handle(now, &Unknown, &have, &[]), Handled::Nothing);
    let pieces = [1, 2, 0].map(|fragment| (Kind::Call, fragment, Flags::NONE));
    assert_eq!(sent(&mut caller, now), pieces);
    assert_eq!(caller.handle(now, &Unknown, &result(9, 0), &[]), Handled::Place(0..9));
    assert_eq!(caller.outcome(), Some(Outcome::Returned(shape(9))));
}

#[test]
fn late_word_to_wait_holds_a_call_up_until_the_next_question() {
    let (mut caller, mut now) = (calling(100_000), NOW);
    let have = |next| Header { fragment: next, ..packet(Kind::HaveCall, FIRST) };
    caller.handle(now, &Unknown, &have(10), &[]);
    sent(&mut caller, now);
    caller.handle(now, &Unknown, &Header { credits: 0, ..have(0) }, &[]);
    assert_eq!(sent(&mut caller, now), []);
    assert_eq!(next(&mut caller, &mut now).1, [PROBE]);
    caller.handle(now, &Unknown, &have(20), &[]);
    let more = sent(&mut caller, now);
    assert!(!more.is_empty() && more.iter().all(|(kind, ..)| *kind == Kind::Call));
}

/// The server made the call wait for a moment, and has taken pieces since. The client hears of the wait
/// only after it has sent more than it sends when it begins again.
#[test]
fn late_word_to_go_on_hides_nothing_that_the_server_has() {
    for holes in [false, true] {
        let (mut caller, mut now) = (calling(20_000), NOW);
        let have = |next| Header { fragment: next, credits: 1, ..packet(Kind::HaveCall, FIRST) };
        let calls = |at: &[u32]| -> Vec<_> {
            at.iter().map(|at| (Kind::Call, *at, Flags::PLEASE)).collect()
        };
        caller.handle(now, &Unknown, &Header { credits: 0, ..have(0) }, &[]);
        caller.handle(now, &Unknown, &have(0), &[]);
        assert_eq!(sent(&mut caller, now), calls(&[1, 2]));
        if !holes {
            caller.handle(now, &Unknown, &have(4), &[]);
            assert_eq!(sent(&mut caller, now), calls(&[5, 6]));
            continue;
        }
        // The server has positions 5 and 6 as well. The one before them is late, or lost.
        let header = Header { shape: shape(6), ..have(4) };
        caller.handle(now, &Unknown, &header, &[0b110]);
        assert_eq!(sent(&mut caller, now), calls(&[8, 9]));
        caller.handle(now, &Unknown, &Header { shape: shape(8), ..have(4) }, &[0b11110]);
        let (_, again) = next(&mut caller, &mut now);
        assert_eq!(again[0].1, 5, "{again:?}");
        assert!(again[0].2.has(Flags::RESENT), "{again:?}");
    }
}

#[test]
fn call_that_waits_is_dead_when_nobody_answers() {
    let (mut caller, mut now) = (calling(2500), NOW);
    caller.handle(now, &Unknown, &Header { credits: 0, ..packet(Kind::HaveCall, FIRST) }, &[]);
    for _ in 0..20 {
        if caller.next_timer().is_some() {
            next(&mut caller, &mut now);
        }
    }
    assert_eq!(caller.outcome(), failed(Executed::Maybe, Why::Dead));
}

#[test]
fn what_no_call_acknowledged_is_acknowledged_when_asked() {
    let mut caller = calling(0);
    caller.handle(NOW, &Unknown, &result(0, 0), &[]);
    caller.outcome();
    caller.acknowledge();
    assert_eq!(sent(&mut caller, NOW), [(Kind::HaveResult, 0, Flags::ALL)]);
    assert!(!caller.owes_acknowledgement());
    caller.bye();
    assert_eq!(sent(&mut caller, NOW), [(Kind::Bye, 0, Flags::NONE)]);
    assert_eq!(caller.begin(shape(0)), Err(Unbegun::Gone));
}

#[test]
fn it_asks_with_growing_intervals_and_then_takes_the_server_for_dead() {
    let (mut caller, mut now) = (calling(100), NOW);
    let (mut waits, mut all) = (Vec::new(), Vec::new());
    while !caller.is_gone() {
        let (waited, sent) = next(&mut caller, &mut now);
        waits.push(waited / MILLISECOND);
        all.extend(sent);
    }
    assert_eq!(all.pop(), Some((Kind::Bye, 0, Flags::NONE)));
    assert!(all.iter().all(|one| *one == PROBE), "{all:?}");
    assert_eq!(caller.outcome(), failed(Executed::Maybe, Why::Dead));
    for (wait, expected) in waits.iter().zip([5, 10, 20, 40, 80, 160]) {
        assert!(wait.abs_diff(expected) <= expected / 10 + 1, "{waits:?}");
    }
    assert!(waits[6..].iter().all(|wait| (180..=220).contains(wait)), "{waits:?}");
    assert_eq!((all.len(), waits.len()), (15, 16));
}

#[test]
fn while_the_server_works_it_is_asked_more_and_more_seldom() {
    let (mut caller, mut now) = (calling(100), NOW);
    caller.handle(NOW, &Unknown, &all(FIRST), &[]);
    let mut waits = Vec::new();
    for _ in 0..6 {
        let (waited, sent) = next(&mut caller, &mut now);
        assert_eq!(sent, [PROBE]);
        waits.push(waited / MILLISECOND);
        let answer = Header { echo: caller.serial, ..all(FIRST) };
        caller.handle(now, &Unknown, &answer, &[]);
        // A late one of the same makes no difference.
        caller.handle(now, &Unknown, &answer, &[]);
    }
    assert_eq!(waits, [200, 400, 400, 400, 400, 400]);
    // Unanswered, it asks quickly, and gives up after ten.
    let mut waits = Vec::new();
    while !caller.is_gone() {
        waits.push(next(&mut caller, &mut now).0 / MILLISECOND);
    }
    assert_eq!((waits[0], waits.len()), (400, 11));
    assert!(waits[1..].iter().all(|wait| (180..=220).contains(wait)), "{waits:?}");
}

#[test]
fn what_the_server_misses_is_sent_after_a_moment_and_nothing_else() {
    let (mut caller, mut now) = (calling(3000), NOW);
    assert_eq!(next(&mut caller, &mut now).1, [PROBE]);
    // It has the middle of three only.
    let bitmap = [0b10];
    let have = Header {
        flags: Flags::CHECKED,
        check: checksum(&bitmap),
        echo: caller.serial,
        ..packet(Kind::HaveCall, FIRST)
    };
    let damaged = Header { check: 1, ..have };
    assert_eq!(caller.handle(now, &Unknown, &damaged, &bitmap), Handled::Dropped(Dropped::Damaged));
    assert_eq!(caller.handle(now, &Unknown, &have, &bitmap), Handled::Nothing);
    assert_eq!(sent(&mut caller, now), []);
    let (waited, sent) = next(&mut caller, &mut now);
    assert!(waited < MILLISECOND, "{waited}");
    let again = Flags::RESENT;
    let expected = [(Kind::Call, 1, again), (Kind::Call, 0, again.with(Flags::PLEASE))];
    assert_eq!(sent, expected);
}

#[test]
fn holes_that_close_by_themselves_cost_no_data() {
    let (mut caller, mut now) = (calling(3000), NOW);
    let bitmap = [0b10];
    let have = Header {
        flags: Flags::CHECKED,
        fragment: 1,
        check: checksum(&bitmap),
        echo: 3,
        ..packet(Kind::HaveCall, FIRST)
    };
    caller.handle(now, &Unknown, &have, &bitmap);
    caller.handle(now, &Unknown, &all(FIRST), &[]);
    assert_eq!(next(&mut caller, &mut now).1, [PROBE]);
}

#[test]
fn a_lost_result_is_asked_for_once_the_server_says_that_it_was_sent() {
    let (mut caller, mut now) = (calling(0), NOW);
    next(&mut caller, &mut now);
    let flags = Flags::ALL.with(Flags::REPLIED);
    caller.handle(now, &Unknown, &Header { flags, ..all(FIRST) }, &[]);
    assert_eq!(sent(&mut caller, now), []);
    let (waited, sent) = next(&mut caller, &mut now);
    assert!(waited < MILLISECOND);
    assert_eq!(sent, [(Kind::HaveResult, 0, Flags::PLEASE)]);
    assert_eq!(caller.handle(now, &Unknown, &result(9, 0), &[]), Handled::Place(0..9));
}

#[test]
fn a_result_of_several_pieces_is_put_together() {
    let (mut caller, mut now) = (calling(0), NOW);
    assert_eq!(caller.handle(now, &Unknown, &result(3000, 1), &[]), Handled::Place(952..1976));
    assert_eq!(
        caller.handle(now, &Unknown, &result(3000, 1), &[]),
        Handled::Dropped(Dropped::Again)
    );
    let other = Header { shape: shape(3001), ..result(3000, 2) };
    assert_eq!(caller.handle(now, &Unknown, &other, &[]), Handled::Dropped(Dropped::Violation));
    // The end overtakes: after a moment it says what it has.
    assert_eq!(caller.handle(now, &Unknown, &result(3000, 0), &[]), Handled::Place(0..952));
    assert_eq!(sent(&mut caller, now), []);
    let (waited, sent_then) = next(&mut caller, &mut now);
    assert!(waited < MILLISECOND);
    assert_eq!(sent_then, [(Kind::HaveResult, 1, Flags::CHECKED)]);
    // Nothing comes: it asks.
    let (waited, sent_then) = next(&mut caller, &mut now);
    assert_eq!(waited, WAIT_MIN);
    assert_eq!(sent_then, [(Kind::HaveResult, 1, Flags::PLEASE.with(Flags::CHECKED))]);
    assert_eq!(caller.outcome(), None);
    assert_eq!(caller.handle(now, &Unknown, &result(3000, 2), &[]), Handled::Place(1976..3000));
    assert_eq!(caller.outcome(), Some(Outcome::Returned(shape(3000))));
    assert_eq!(sent(&mut caller, now), []);
}

#[test]
fn a_windowed_result_is_answered_at_once_if_it_has_no_holes() {
    let mut caller = calling(0);
    let please = Header { flags: Flags::PLEASE, ..result(9000, 1) };
    caller.handle(NOW, &Unknown, &please, &[]);
    assert_eq!(sent(&mut caller, NOW), [(Kind::HaveResult, 1, Flags::NONE)]);
    // With a hole only when it closes, or after a moment.
    caller.handle(NOW, &Unknown, &Header { fragment: 3, ..please }, &[]);
    assert_eq!(sent(&mut caller, NOW), []);
    caller.handle(NOW, &Unknown, &result(9000, 2), &[]);
    assert_eq!(sent(&mut caller, NOW), [(Kind::HaveResult, 3, Flags::NONE)]);
}

/// A refusal by that table, at whose place so many results were forgotten.
fn refusal(table: u64, generation: u32) -> Header {
    Header::refusal(&packet(Kind::Call, FIRST), table, generation)
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
            let mut caller = calling(0);
            if heard {
                caller.handle(NOW, &Unknown, &all(FIRST), &[]);
            }
            caller.handle(NOW.after(later), &Unknown, &refusal(table, generation), &[]);
            let outcome = caller.outcome();
            assert_eq!(outcome, failed(expected, Why::Refused), "{table} {generation} {heard}");
            assert!(caller.is_gone());
        }
    }
    // Of another call, it is late.
    let mut caller = calling(0);
    let old = Header { sequence: FIRST.wrapping_sub(1), ..refusal(TABLE, GENERATION) };
    assert_eq!(caller.handle(NOW, &Unknown, &old, &[]), Handled::Dropped(Dropped::Late));
}

#[test]
fn a_refusal_because_of_the_address_says_so_and_nothing_of_the_call() {
    let mut caller = calling(0);
    let refusal = Header { flags: Flags::ELSEWHERE, ..refusal(TABLE, GENERATION) };
    caller.handle(NOW, &Unknown, &refusal, &[]);
    assert_eq!(caller.outcome(), failed(Executed::Maybe, Why::Elsewhere));
}

/// Begins a call a second after the server was heard of: it is asked whether it knows the handle.
fn asking() -> (Caller, Moment) {
    let (mut caller, now) = (caller(), NOW.after(SECOND));
    caller.begin(shape(3000)).expect("it can begin");
    assert_eq!(sent(&mut caller, now), [PROBE]);
    (caller, now)
}

#[test]
fn after_a_pause_the_server_is_asked_before_anything_is_sent() {
    let (mut caller, now) = asking();
    // What was said before the question proves nothing.
    let early = Header { echo: caller.serial - 1, ..packet(Kind::HaveCall, FIRST) };
    assert_eq!(caller.handle(now, &Unknown, &early, &[]), Handled::Dropped(Dropped::Late));
    assert_eq!(sent(&mut caller, now), []);
    let answer = Header { echo: caller.serial, ..early };
    assert_eq!(caller.handle(now, &Unknown, &answer, &[]), Handled::Nothing);
    let pieces: Vec<_> = sent(&mut caller, now).iter().map(|one| (one.0, one.1)).collect();
    assert_eq!(pieces, [(Kind::Call, 1), (Kind::Call, 2), (Kind::Call, 0)]);
    assert_eq!(caller.handle(now, &Unknown, &result(9, 0), &[]), Handled::Place(0..9));
    // The next one follows at once.
    caller.outcome();
    caller.begin(shape(0)).expect("it can begin");
    let soon = now.after(9 * MILLISECOND);
    assert_eq!(sent(&mut caller, soon), [(Kind::Call, 0, Flags::NONE)]);
}

#[test]
fn what_was_not_sent_was_not_executed_whoever_refuses_it() {
    let (mut caller, now) = asking();
    caller.handle(now, &Unknown, &refusal(TABLE + 1, 9), &[]);
    assert_eq!(caller.outcome(), failed(Executed::No, Why::Refused));
    let (mut caller, now) = asking();
    caller.handle(now, &Unknown, &Header { flags: Flags::ELSEWHERE, ..refusal(TABLE, 3) }, &[]);
    assert_eq!(caller.outcome(), failed(Executed::No, Why::Elsewhere));
    let (mut caller, mut now) = asking();
    while !caller.is_gone() {
        next(&mut caller, &mut now);
    }
    assert_eq!(caller.outcome(), failed(Executed::No, Why::Dead));
}

/// However short the limits of calls are, the questions of the first one go on until the server has
/// answered, or is dead.
#[test]
fn call_given_up_while_it_asks_goes_on_asking() {
    let (mut caller, now) = asking();
    caller.quit(now);
    assert_eq!(caller.outcome(), failed(Executed::No, Why::Quit));
    assert_eq!(sent(&mut caller, now), [(Kind::Quit, 0, Flags::NONE)]);
    assert!(caller.is_captured());
    caller.handle(now, &Unknown, &packet(Kind::LetGo, FIRST), &[]);
    assert_eq!((caller.begin(shape(0)), caller.sequence), (Ok(()), FIRST + 1));
    let (mut caller, mut now) = asking();
    let begun = now;
    caller.quit(now);
    let mut all = sent(&mut caller, now);
    while !caller.is_gone() {
        all.extend(next(&mut caller, &mut now).1);
    }
    assert_eq!(all.pop(), Some((Kind::Bye, 0, Flags::NONE)));
    assert_eq!(all, [(Kind::Quit, 0, Flags::NONE); 10]);
    assert!(now.since(begun) < 3 * SECOND, "{now:?}");
}

#[test]
fn a_server_that_asks_is_told_whether_the_call_is_open() {
    let ask = packet(Kind::Ask, FIRST);
    // The question says that the server has the whole call.
    let (mut caller, mut now) = (calling(3000), NOW);
    assert_eq!(caller.handle(NOW, &Unknown, &ask, &[]), Handled::Nothing);
    assert_eq!(sent(&mut caller, NOW), [PROBE]);
    let (waited, then) = next(&mut caller, &mut now);
    assert_eq!((waited, then), (WAIT_MAX, vec![PROBE]));
    let mut caller = calling(0);
    caller.quit(NOW);
    sent(&mut caller, NOW);
    assert_eq!(caller.handle(NOW, &Unknown, &ask, &[]), Handled::Nothing);
    assert_eq!(sent(&mut caller, NOW), [(Kind::Quit, 0, Flags::NONE)]);
    // After the result, or of another call, it is late.
    let mut caller = calling(0);
    caller.handle(NOW, &Unknown, &result(0, 0), &[]);
    assert_eq!(caller.handle(NOW, &Unknown, &ask, &[]), Handled::Dropped(Dropped::Late));
    let other = packet(Kind::Ask, FIRST + 1);
    assert_eq!(caller.handle(NOW, &Unknown, &other, &[]), Handled::Dropped(Dropped::Late));
    assert_eq!(sent(&mut caller, NOW), []);
}

#[test]
fn a_client_that_takes_the_server_for_dead_says_goodbye_and_says_it_again_when_asked() {
    let (mut caller, mut now) = (calling(0), NOW);
    let mut last = Vec::new();
    while !caller.is_gone() {
        (_, last) = next(&mut caller, &mut now);
    }
    assert_eq!(last, [(Kind::Bye, 0, Flags::NONE)]);
    assert_eq!(caller.handle(now, &Unknown, &packet(Kind::Ask, FIRST), &[]), Handled::Nothing);
    assert_eq!(sent(&mut caller, now), [(Kind::Bye, 0, Flags::NONE)]);
}

#[test]
fn goodbye_ends_a_call_that_is_open_or_was_given_up() {
    let mut caller = calling(0);
    caller.bye();
    assert_eq!(caller.outcome(), failed(Executed::Maybe, Why::Quit));
    assert_eq!(sent(&mut caller, NOW), [(Kind::Bye, 0, Flags::NONE)]);
    let mut caller = calling(0);
    caller.quit(NOW);
    caller.bye();
    assert_eq!(sent(&mut caller, NOW), [(Kind::Bye, 0, Flags::NONE)]);
    assert!(caller.is_gone() && !caller.is_captured());
    caller.bye();
    assert_eq!(sent(&mut caller, NOW), []);
}

#[test]
fn a_call_given_up_captures_the_handle_until_the_server_lets_go() {
    let (mut caller, mut now) = (calling(0), NOW);
    caller.quit(now);
    assert_eq!(caller.outcome(), failed(Executed::Maybe, Why::Quit));
    assert_eq!(sent(&mut caller, now), [(Kind::Quit, 0, Flags::NONE)]);
    assert_eq!(caller.begin(shape(0)), Err(Unbegun::Busy));
    assert_eq!(caller.handle(now, &Unknown, &result(0, 0), &[]), Handled::Dropped(Dropped::Late));
    let (waited, sent_then) = next(&mut caller, &mut now);
    assert!((180..=220).contains(&(waited / MILLISECOND)));
    assert_eq!(sent_then, [(Kind::Quit, 0, Flags::NONE)]);
    caller.handle(now, &Unknown, &all(FIRST), &[]);
    assert_eq!(next(&mut caller, &mut now).0, 400 * MILLISECOND);
    assert_eq!(caller.handle(now, &Unknown, &packet(Kind::LetGo, FIRST), &[]), Handled::Nothing);
    assert_eq!((caller.begin(shape(0)), caller.sequence), (Ok(()), FIRST + 1));
    // If it never does, the handle is of no use any more.
    let (mut caller, mut now) = (calling(0), NOW);
    caller.quit(now);
    let mut all = sent(&mut caller, now);
    while !caller.is_gone() {
        all.extend(next(&mut caller, &mut now).1);
    }
    assert_eq!(all.pop(), Some((Kind::Bye, 0, Flags::NONE)));
    assert_eq!(all, [(Kind::Quit, 0, Flags::NONE); 10]);
}

#[test]
fn a_call_given_up_before_it_was_sent_never_was() {
    let mut caller = caller();
    caller.begin(shape(0)).expect("it can begin");
    caller.quit(NOW);
    assert_eq!(caller.outcome(), failed(Executed::No, Why::Quit));
    assert_eq!(sent(&mut caller, NOW), []);
    caller.begin(shape(0)).expect("it can begin again");
    assert_eq!(caller.sequence, FIRST);
}

#[test]
fn three_refusals_by_the_machine_are_enough() {
    let mut caller = calling(0);
    let mut now = NOW;
    caller.unreachable();
    caller.unreachable();
    caller.unreachable();
    assert!(!caller.is_gone(), "they were for one packet");
    for _ in 0..2 {
        next(&mut caller, &mut now);
        caller.unreachable();
    }
    assert_eq!(caller.outcome(), failed(Executed::Maybe, Why::Unreachable));
}

#[test]
fn a_result_larger_than_agreed_is_given_up() {
    let mut caller = calling(0);
    let large = result((1 << 20) + 1, 0);
    assert_eq!(caller.handle(NOW, &Unknown, &large, &[]), Handled::Dropped(Dropped::Violation));
    assert_eq!(caller.outcome(), failed(Executed::Maybe, Why::Protocol));
    assert_eq!(sent(&mut caller, NOW), [(Kind::Quit, 0, Flags::NONE)]);
    assert_eq!(self::caller().begin(shape((1 << 20) + 1)), Err(Unbegun::TooLarge));
}

#[test]
fn result_comes_in_smaller_pieces_if_the_server_says_so() {
    let (mut caller, now) = (calling(0), NOW);
    caller.handle(now, &Unknown, &Header { fragment: 1, ..result(3000, 1) }, &[]);
    let flags = Flags::ALL.with(Flags::REPLIED);
    let larger = Header { flags, piece: 1040, ..all(FIRST) };
    caller.handle(now, &Unknown, &larger, &[]);
    // A call that runs still has no result to be cut.
    caller.handle(now, &Unknown, &Header { piece: 512, ..all(FIRST) }, &[]);
    assert_eq!(caller.piece, 1024);
    caller.handle(now, &Unknown, &Header { flags, piece: 688, ..all(FIRST) }, &[]);
    assert_eq!(caller.piece, 688);
    let late = Header { fragment: 2, ..result(3000, 2) };
    assert_eq!(caller.handle(now, &Unknown, &late, &[]), Handled::Dropped(Dropped::Late));
    for fragment in [1, 2, 3, 4, 0] {
        let piece = Header { fragment, piece: 688, ..result(3000, fragment) };
        let placed = caller.handle(now, &Unknown, &piece, &[]);
        assert!(matches!(placed, Handled::Place(_)), "{fragment}: {placed:?}");
    }
    assert!(matches!(caller.outcome(), Some(Outcome::Returned(_))));
}

#[test]
fn pieces_that_never_arrive_are_made_smaller() {
    let (mut caller, mut now) = (calling(3000), NOW);
    let mut rounds = 0;
    while caller.piece == 1024 {
        rounds += 1;
        let (_, sent) = next(&mut caller, &mut now);
        if sent == [PROBE] {
            let have = Header { echo: caller.serial, ..packet(Kind::HaveCall, FIRST) };
            caller.handle(now, &Unknown, &have, &[]);
        }
        assert!(rounds < 20);
    }
    assert_eq!(caller.piece, 512);
    // The same for a result of which nothing comes.
    let (mut caller, mut now) = (calling(0), NOW);
    let flags = Flags::ALL.with(Flags::REPLIED);
    caller.handle(now, &Unknown, &Header { flags, ..all(FIRST) }, &[]);
    let asks = (Kind::HaveResult, 0, Flags::PLEASE);
    let mut answered = 0;
    while caller.piece == 1024 {
        let asked = next(&mut caller, &mut now).1;
        if asked.contains(&PROBE) {
            assert_eq!(asked, [asks, PROBE]);
            // The server answers where the call is, and that it sent the result.
            let answer = Header { flags, echo: caller.serial, ..all(FIRST) };
            caller.handle(now, &Unknown, &answer, &[]);
            answered += 1;
            assert_eq!(sent(&mut caller, now), [asks]);
        } else {
            assert_eq!(asked, [asks]);
        }
        assert!(answered < 20);
    }
    assert_eq!((caller.piece, answered), (512, 4));
    let late = Header { fragment: 1, ..result(3000, 1) };
    assert_eq!(caller.handle(now, &Unknown, &late, &[]), Handled::Dropped(Dropped::Late));
}

/// Without any answer the way is cut, and nothing is known of what it carries.
#[test]
fn silence_makes_no_piece_smaller() {
    let (mut caller, mut now) = (calling(0), NOW);
    let flags = Flags::ALL.with(Flags::REPLIED);
    caller.handle(now, &Unknown, &Header { flags, ..all(FIRST) }, &[]);
    while !caller.is_gone() {
        next(&mut caller, &mut now);
    }
    assert_eq!((caller.piece, caller.outcome()), (1024, failed(Executed::Maybe, Why::Dead)));
    assert!((2000..2700).contains(&(now.since(NOW) / MILLISECOND)), "{:?}", now.since(NOW));
}

#[test]
fn strangers_are_not_heard() {
    let mut caller = calling(0);
    let stranger = Header { handle: Handle::default(), ..result(0, 0) };
    assert_eq!(caller.handle(NOW, &Unknown, &stranger, &[]), Handled::Dropped(Dropped::Stranger));
    for kind in [Kind::Call, Kind::Probe, Kind::Quit, Kind::Bye, Kind::Bound, Kind::LetGo] {
        let handled = caller.handle(NOW, &Unknown, &packet(kind, FIRST), &[]);
        assert_eq!(handled, Handled::Dropped(Dropped::Violation), "{kind:?}");
    }
    assert_eq!(caller.outcome(), None);
}
