//! Dialogues with a record: this comes, exactly that goes.

use super::super::flow::Unknown;
use super::super::header::checksum;
use super::super::message::PIECE_MIN;
use super::super::time::SECOND;
use super::*;

const PEER: u64 = 5;
const NOW: Moment = Moment(100 * SECOND);
const SECRET: [u8; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 0xff, 0xff, 0xff, 0xff];
/// The secret's last bytes make the first number 0: it has just wrapped round.
const FIRST: u32 = 0;

fn callee() -> Callee {
    let mut callee = Callee::vacant(4);
    let terms = Terms { piece: 1024, credits: 64, credits_here: 32, bytes_max: 1 << 20 };
    callee.occupy(NOW, SECRET, PEER, &terms);
    callee
}

fn packet(kind: Kind, sequence: u32) -> Header {
    let handle = Handle { place: 4, secret: SECRET };
    Header { piece: 1024, credits: 64, ..Header::new(kind, handle, sequence) }
}

fn call(sequence: u32, total: u32, fragment: u32) -> Header {
    let shape = Shape { what: 7, total, ..Shape::default() };
    Header { shape, fragment, ..packet(Kind::Call, sequence) }
}

fn receive(callee: &mut Callee, header: Header) -> Received {
    assert!(callee.knows(&header, PEER));
    callee.handle(NOW, &Unknown, &header, &[])
}

fn then(callee: &mut Callee, header: Header) -> Then {
    receive(callee, header).then
}

/// What goes out: kinds, fragments and flags.
fn sent(callee: &mut Callee) -> Vec<(Kind, u32, Flags)> {
    let mut out = [0; CONTROL_BYTES_MAX];
    let mut all = Vec::new();
    while let Some(send) = callee.poll_send(NOW, &Unknown, &mut out) {
        let behind = send.bytes - HEADER_BYTES + send.range.len();
        let header = Header::parse(out.first_chunk().unwrap(), behind).unwrap();
        all.push((header.kind, header.fragment, header.flags));
    }
    all
}

fn result(total: u32) -> Shape {
    Shape { what: 0, total, ..Shape::default() }
}

const DROPPED_AGAIN: Then = Then::Dropped(Dropped::Again);
const DROPPED_LATE: Then = Then::Dropped(Dropped::Late);

#[test]
fn a_call_of_one_packet_runs_once() {
    let callee = &mut callee();
    let received = receive(callee, call(FIRST, 100, 0));
    assert_eq!(received, Received { release: false, then: Then::Execute(0..100) });
    assert_eq!(then(callee, call(FIRST, 100, 0)), DROPPED_AGAIN);
    assert_eq!(sent(callee), []);
    assert_eq!(callee.replied(result(10)), Retain::Keep);
    assert_eq!(sent(callee), [(Kind::Result, 0, Flags::NONE)]);
    assert_eq!(then(callee, call(FIRST, 100, 0)), DROPPED_AGAIN);
    assert_eq!(sent(callee), []);
    // The next call acknowledges the result.
    let received = receive(callee, call(FIRST + 1, 100, 0));
    assert_eq!(received, Received { release: true, then: Then::Execute(0..100) });
    assert_eq!(then(callee, call(FIRST, 100, 0)), DROPPED_LATE);
}

#[test]
fn result_that_does_not_fit_the_way_is_cut_smaller_and_the_client_is_told() {
    let callee = &mut callee();
    then(callee, call(FIRST, 100, 0));
    assert!(!callee.narrow(512), "there is no result yet");
    assert_eq!(callee.replied(result(1000)), Retain::Keep);
    assert_eq!(sent(callee), [(Kind::Result, 0, Flags::NONE)]);
    assert!(callee.narrow(700) && !callee.narrow(700) && !callee.narrow(1000));
    let told = |callee: &mut Callee| {
        let mut out = [0; CONTROL_BYTES_MAX];
        let send = callee.poll_send(NOW, &Unknown, &mut out).expect("something to say");
        let payload = send.bytes - HEADER_BYTES + send.range.len();
        let header = Header::parse(out.first_chunk().unwrap(), payload).unwrap();
        (header.kind, header.piece, header.flags)
    };
    let have = (Kind::HaveCall, 688, Flags::ALL.with(Flags::REPLIED));
    assert_eq!(told(callee), have);
    assert_eq!([told(callee), told(callee)].map(|told| told.1), [688, 688]);
    // That was lost: the client asks as before, and is told again.
    let asks = Header { flags: Flags::PLEASE, ..packet(Kind::HaveResult, FIRST) };
    assert_eq!(then(callee, asks), DROPPED_LATE);
    assert_eq!(told(callee), have);
    // It is narrower still, and as narrow as can be.
    assert!(callee.narrow(0) && !callee.narrow(0));
    assert_eq!(told(callee).1, 512);
}

/// What goes out, and how many positions the client may send beyond what is there.
fn allowed(callee: &mut Callee) -> Option<(Kind, u32, u16)> {
    let mut out = [0; CONTROL_BYTES_MAX];
    let send = callee.poll_send(NOW, &Unknown, &mut out)?;
    let header = Header::parse(out.first_chunk().unwrap(), send.bytes - HEADER_BYTES).unwrap();
    Some((header.kind, header.fragment, header.credits))
}

#[test]
fn call_without_room_is_told_to_wait_and_then_to_go_on() {
    let callee = &mut callee();
    assert!(matches!(then(callee, call(FIRST, 2500, 1)), Then::Begin(_)));
    callee.wait_for_room();
    assert!(callee.waits_for_room(FIRST) && callee.standing() == Standing::Waiting);
    assert_eq!(allowed(callee), Some((Kind::HaveCall, 0, 0)));
    // What was on its way is not taken, and only questions are answered.
    assert_eq!(then(callee, call(FIRST, 2500, 2)), DROPPED_LATE);
    assert_eq!(allowed(callee), None);
    for question in [packet(Kind::Probe, FIRST), call(FIRST, 2500, 0)] {
        then(callee, question);
        assert_eq!(allowed(callee), Some((Kind::HaveCall, 0, 0)));
    }
    callee.go_on();
    assert_eq!(allowed(callee), Some((Kind::HaveCall, 0, 32)));
    assert_eq!(then(callee, call(FIRST, 2500, 1)), Then::Place(452..1476));
    assert_eq!(then(callee, call(FIRST, 2500, 2)), Then::Place(1476..2500));
    assert_eq!(then(callee, call(FIRST, 2500, 0)), Then::Execute(0..452));
    assert!(!callee.waits_for_room(FIRST));
}

#[test]
fn call_that_waits_for_room_can_be_refused_and_given_up() {
    let waiting = || {
        let mut callee = callee();
        then(&mut callee, call(FIRST, 2500, 1));
        callee.wait_for_room();
        allowed(&mut callee);
        callee
    };
    let callee = &mut waiting();
    assert_eq!(callee.replied(result(9)), Retain::Keep);
    assert_eq!(sent(callee), [(Kind::Result, 0, Flags::NONE)]);
    assert_eq!(then(callee, call(FIRST, 2500, 1)), DROPPED_AGAIN);
    let callee = &mut waiting();
    assert_eq!(then(callee, packet(Kind::Quit, FIRST)), Then::Nothing);
    assert_eq!(sent(callee), [(Kind::LetGo, 0, Flags::NONE)]);
    assert!(!callee.waits_for_room(FIRST));
    callee.go_on();
    assert_eq!((callee.standing(), sent(callee)), (Standing::Idle, vec![]));
}

#[test]
fn a_number_never_runs_again_whatever_the_state() {
    for acknowledged in [false, true] {
        let callee = &mut callee();
        then(callee, call(FIRST, 0, 0));
        callee.replied(result(0));
        if acknowledged {
            let all = Header { flags: Flags::ALL, ..packet(Kind::HaveResult, FIRST) };
            assert_eq!(receive(callee, all), Received { release: true, then: Then::Nothing });
        }
        for sequence in [FIRST, FIRST.wrapping_sub(1), FIRST.wrapping_sub(1000)] {
            for total in [0, 5000] {
                let then = then(callee, call(sequence, total, 0));
                assert!(matches!(then, Then::Dropped(_)), "{sequence} {total} {then:?}");
            }
        }
    }
}

#[test]
fn other_arguments_under_the_same_number_are_a_violation() {
    let callee = &mut callee();
    then(callee, call(FIRST, 100, 0));
    assert_eq!(then(callee, call(FIRST, 101, 0)), Then::Dropped(Dropped::Violation));
    then(callee, call(FIRST, 5000, 1));
    let callee = &mut self::callee();
    assert_eq!(then(callee, call(FIRST, 5000, 1)), Then::Begin(904..1928));
    assert_eq!(then(callee, call(FIRST, 5001, 2)), Then::Dropped(Dropped::Violation));
    assert_eq!(then(callee, call(FIRST + 1, 2 << 20, 1)), Then::Dropped(Dropped::Violation));
}

#[test]
fn pieces_are_placed_and_the_last_one_runs_it() {
    let callee = &mut callee();
    assert_eq!(then(callee, call(FIRST, 2500, 1)), Then::Begin(452..1476));
    assert_eq!(then(callee, call(FIRST, 2500, 1)), DROPPED_AGAIN);
    assert_eq!(then(callee, call(FIRST, 2500, 2)), Then::Place(1476..2500));
    assert_eq!(sent(callee), []);
    assert_eq!(then(callee, call(FIRST, 2500, 0)), Then::Execute(0..452));
    assert_eq!(sent(callee), []);
    assert_eq!(then(callee, call(FIRST, 2500, 2)), DROPPED_AGAIN);
}

#[test]
fn an_end_that_overtakes_is_answered_and_so_is_its_completion() {
    let callee = &mut callee();
    then(callee, call(FIRST, 3000, 1));
    assert_eq!(then(callee, call(FIRST, 3000, 0)), Then::Place(0..952));
    assert_eq!(sent(callee), [(Kind::HaveCall, 1, Flags::CHECKED)]);
    assert_eq!(then(callee, call(FIRST, 3000, 2)), Then::Execute(1976..3000));
    assert_eq!(sent(callee), [(Kind::HaveCall, 0, Flags::ALL)]);
}

#[test]
fn probes_tell_where_a_call_is_and_send_no_data() {
    let callee = &mut callee();
    let probe = packet(Kind::Probe, FIRST);
    assert_eq!(then(callee, probe), Then::Nothing);
    assert_eq!(sent(callee), [(Kind::HaveCall, 0, Flags::NONE)]);
    then(callee, call(FIRST, 3000, 1));
    then(callee, probe);
    assert_eq!(sent(callee), [(Kind::HaveCall, 1, Flags::NONE)]);
    then(callee, call(FIRST, 3000, 2));
    then(callee, call(FIRST, 3000, 0));
    then(callee, probe);
    assert_eq!(sent(callee), [(Kind::HaveCall, 0, Flags::ALL)]);
    callee.replied(result(9));
    sent(callee);
    then(callee, probe);
    assert_eq!(sent(callee), [(Kind::HaveCall, 0, Flags::ALL.with(Flags::REPLIED))]);
    // The client has waited, and nothing came.
    let nothing = Header { flags: Flags::PLEASE, ..packet(Kind::HaveResult, FIRST) };
    then(callee, nothing);
    assert_eq!(sent(callee), [(Kind::Result, 0, Flags::RESENT.with(Flags::PLEASE))]);
    let all = Header { flags: Flags::ALL, ..packet(Kind::HaveResult, FIRST) };
    assert!(receive(callee, all).release);
    assert_eq!(then(callee, probe), DROPPED_LATE);
}

#[test]
fn missing_pieces_of_a_result_are_sent_again() {
    let callee = &mut callee();
    then(callee, call(FIRST, 0, 0));
    callee.replied(result(3000));
    let fragments: Vec<_> = sent(callee).iter().map(|one| one.1).collect();
    assert_eq!(fragments, [1, 2, 0]);
    let bitmap = [0b10];
    let have = Header {
        flags: Flags::CHECKED,
        fragment: 1,
        echo: 3,
        check: checksum(&bitmap),
        ..packet(Kind::HaveResult, FIRST)
    };
    callee.handle(NOW, &Unknown, &Header { check: 1, ..have }, &bitmap);
    assert_eq!(sent(callee), []);
    callee.handle(NOW, &Unknown, &have, &bitmap);
    assert_eq!(sent(callee), [(Kind::Result, 2, Flags::RESENT.with(Flags::PLEASE))]);
}

#[test]
fn a_call_given_up_never_begins_afterwards() {
    let callee = &mut callee();
    assert_eq!(then(callee, packet(Kind::Quit, FIRST)), Then::Nothing);
    assert_eq!(sent(callee), [(Kind::LetGo, 0, Flags::NONE)]);
    assert_eq!(then(callee, call(FIRST, 0, 0)), DROPPED_LATE);
    then(callee, call(FIRST + 1, 5000, 1));
    assert_eq!(then(callee, packet(Kind::Quit, FIRST + 1)), Then::Abandon);
    assert_eq!(then(callee, call(FIRST + 1, 5000, 1)), DROPPED_LATE);
    // While it runs it is let go of at its end.
    sent(callee);
    then(callee, call(FIRST + 2, 0, 0));
    assert_eq!(then(callee, packet(Kind::Quit, FIRST + 2)), Then::Nothing);
    assert!(callee.is_given_up());
    assert_eq!(sent(callee), [(Kind::HaveCall, 0, Flags::ALL)]);
    assert_eq!(callee.replied(result(9)), Retain::Drop);
    assert_eq!(sent(callee), [(Kind::LetGo, 0, Flags::NONE)]);
    // A late one of an older call does nothing.
    then(callee, call(FIRST + 3, 0, 0));
    assert_eq!(then(callee, packet(Kind::Quit, FIRST + 2)), DROPPED_LATE);
    assert!(!callee.is_given_up());
}

#[test]
fn smaller_pieces_begin_a_call_again_and_larger_ones_come_too_late() {
    let callee = &mut callee();
    then(callee, call(FIRST, 3000, 1));
    let small = Header { piece: PIECE_MIN, ..call(FIRST, 3000, 1) };
    assert_eq!(then(callee, small), Then::Begin(440..952));
    assert_eq!(then(callee, call(FIRST, 3000, 2)), DROPPED_LATE);
    for fragment in 2..6 {
        let range = small.cut().range(fragment);
        assert_eq!(then(callee, Header { fragment, ..small }), Then::Place(range));
    }
    assert_eq!(then(callee, Header { fragment: 0, ..small }), Then::Execute(0..440));
    // The result is cut as the client asked last.
    callee.replied(result(1000));
    let mut out = [0; CONTROL_BYTES_MAX];
    assert_eq!(callee.poll_send(NOW, &Unknown, &mut out).map(|send| send.range), Some(488..1000));
    // A probe says it too.
    let callee = &mut self::callee();
    then(callee, call(FIRST, 3000, 1));
    let probe = Header { piece: PIECE_MIN, ..packet(Kind::Probe, FIRST) };
    assert_eq!(then(callee, probe), Then::Abandon);
    assert_eq!(sent(callee), [(Kind::HaveCall, 0, Flags::NONE)]);
    assert_eq!(then(callee, small), Then::Begin(440..952));
}

#[test]
fn a_refusal_instead_of_running_uses_the_number_up() {
    let callee = &mut callee();
    then(callee, call(FIRST, 3000, 1));
    assert_eq!(callee.replied(result(0)), Retain::Keep);
    assert_eq!(then(callee, call(FIRST, 3000, 0)), DROPPED_AGAIN);
    assert_eq!(callee.standing(), Standing::Replied);
}

#[test]
fn a_new_call_waits_for_the_end_of_the_one_before() {
    let callee = &mut callee();
    then(callee, call(FIRST, 0, 0));
    assert_eq!(then(callee, call(FIRST + 1, 0, 0)), DROPPED_LATE);
    assert_eq!(then(callee, packet(Kind::Quit, FIRST + 1)), DROPPED_LATE);
    assert_eq!(callee.standing(), Standing::Running);
}

#[test]
fn a_place_that_forgets_a_result_is_of_another_generation() {
    let mut callee = callee();
    let stranger =
        Header { handle: Handle { place: 4, secret: [9; 12] }, ..packet(Kind::Probe, 1) };
    assert!(!callee.knows(&stranger, PEER));
    let generation = |callee: &Callee| {
        let refusal = callee.refuse(&stranger, 77).expect("a refusal");
        assert_eq!((refusal.table(), refusal.flags), (77, Flags::NONE));
        assert_eq!(refusal.generation(), callee.lease().generation);
        refusal.generation()
    };
    assert_eq!(generation(&callee), 0);
    // An idle record, or one whose call never ran, is forgotten without a trace.
    then(&mut callee, call(FIRST, 3000, 1));
    callee.forget();
    assert_eq!(generation(&callee), 0);
    let terms = Terms { piece: 1024, credits: 64, credits_here: 32, bytes_max: 1 << 20 };
    let occupied = |callee: &mut Callee| callee.occupy(NOW, SECRET, PEER, &terms);
    // So is one whose client has the result, gave the call up, or said goodbye.
    let all = Header { flags: Flags::ALL, ..packet(Kind::HaveResult, FIRST) };
    for over in [all, packet(Kind::Quit, FIRST), packet(Kind::Bye, FIRST)] {
        occupied(&mut callee);
        then(&mut callee, call(FIRST, 0, 0));
        callee.replied(result(0));
        then(&mut callee, over);
        callee.forget();
        assert_eq!(generation(&callee), 0);
    }
    // One whose client perhaps waits is not.
    occupied(&mut callee);
    then(&mut callee, call(FIRST, 0, 0));
    callee.replied(result(0));
    callee.forget();
    assert_eq!(generation(&callee), 1);
    // A place remembers that when it is another's.
    occupied(&mut callee);
    assert_eq!(callee.lease().generation, 1);
    callee.forget();
    assert_eq!(generation(&callee), 1);
}

#[test]
fn from_elsewhere_a_handle_is_refused_and_the_refusal_says_why() {
    let callee = callee();
    let probe = packet(Kind::Probe, FIRST);
    assert!(!callee.knows(&probe, PEER + 1));
    assert_eq!(callee.refuse(&probe, 77).map(|refusal| refusal.flags), Some(Flags::ELSEWHERE));
    for kind in [Kind::Bye, Kind::Result, Kind::LetGo, Kind::Refused, Kind::HaveCall, Kind::Ask] {
        assert_eq!(callee.refuse(&packet(kind, FIRST), 77), None);
    }
}

#[test]
fn goodbye_ends_the_record_whichever_number_it_has() {
    for sequence in [FIRST.wrapping_sub(1), FIRST, FIRST + 1] {
        let callee = &mut callee();
        then(callee, call(FIRST, 0, 0));
        callee.replied(result(0));
        sent(callee);
        let received = receive(callee, packet(Kind::Bye, sequence));
        assert_eq!(received, Received { release: true, then: Then::Forget });
        callee.forget();
        assert!(!callee.knows(&packet(Kind::Call, FIRST + 1), PEER));
    }
}

#[test]
fn goodbye_cancels_what_runs_and_the_record_is_forgotten_at_its_end() {
    for given_up in [false, true] {
        let callee = &mut callee();
        then(callee, call(FIRST, 0, 0));
        if given_up {
            then(callee, packet(Kind::Quit, FIRST));
            sent(callee);
        }
        assert_eq!(then(callee, packet(Kind::Bye, FIRST)), Then::Nothing);
        assert!(callee.has_given_up(FIRST));
        assert_eq!(then(callee, packet(Kind::Probe, FIRST)), DROPPED_LATE);
        assert_eq!(then(callee, call(FIRST + 1, 0, 0)), DROPPED_LATE);
        assert_eq!(callee.look_after(NOW.after(100 * SECOND)), None);
        assert_eq!(callee.replied(result(9)), Retain::Forget);
        assert_eq!(sent(callee), []);
        assert_eq!(callee.standing(), Standing::Idle);
    }
}

/// An answer to what the record sent last.
fn answer(callee: &Callee) -> Header {
    Header { echo: callee.serial, ..packet(Kind::Probe, FIRST) }
}

/// Looks after a caller whenever it is due, until that time, and returns when it was asked, in
/// milliseconds.
fn asked_until(callee: &mut Callee, now: &mut Moment, end: Moment) -> Vec<u64> {
    let mut asked = Vec::new();
    while let Some(due) = callee.look_after(*now) {
        let questions = sent(callee);
        assert!(questions.iter().all(|one| *one == (Kind::Ask, 0, Flags::ALL)), "{questions:?}");
        asked.extend(questions.iter().map(|_| now.since(NOW) / MILLISECOND));
        if due > end {
            break;
        }
        *now = due;
    }
    asked
}

#[test]
fn a_silent_caller_is_asked_and_then_taken_for_gone() {
    let (callee, mut now) = (&mut callee(), NOW);
    assert_eq!(callee.look_after(now), None);
    then(callee, call(FIRST, 0, 0));
    let asked = asked_until(callee, &mut now, NOW.after(100 * SECOND));
    assert_eq!(asked, [500, 800, 1100, 1400, 1700]);
    assert_eq!(now.since(NOW), 2500 * MILLISECOND);
    assert!(callee.has_given_up(FIRST) && !callee.has_given_up(FIRST + 1));
    // It was only halted: it asks, is answered, and gets the result. The call stays cancelled.
    callee.handle(now, &Unknown, &packet(Kind::Probe, FIRST), &[]);
    assert_eq!(sent(callee), [(Kind::HaveCall, 0, Flags::ALL)]);
    assert!(callee.is_given_up());
    assert_eq!(callee.replied(result(10)), Retain::Keep);
    assert_eq!(sent(callee), [(Kind::Result, 0, Flags::NONE)]);
    assert!(!callee.is_given_up());
    // The next call is a new one.
    callee.handle(now, &Unknown, &call(FIRST + 1, 0, 0), &[]);
    assert!(!callee.is_given_up());
    assert!(callee.look_after(now).is_some());
}

#[test]
fn a_caller_that_is_heard_of_is_not_asked() {
    let (callee, mut now) = (&mut callee(), NOW);
    then(callee, call(FIRST, 0, 0));
    for _ in 0..100 {
        let then = now.after(440 * MILLISECOND);
        assert_eq!(asked_until(callee, &mut now, then), [0; 0]);
        now = then;
        callee.handle(now, &Unknown, &packet(Kind::Probe, FIRST), &[]);
        sent(callee);
    }
}

#[test]
fn a_caller_that_only_answers_is_asked_once_a_second_and_its_death_is_seen_in_time() {
    let (callee, mut now) = (&mut callee(), NOW);
    then(callee, call(FIRST, 0, 0));
    let mut questions = 0;
    while now < NOW.after(60 * SECOND) {
        let due = callee.look_after(now).expect("it runs");
        if sent(callee) == [(Kind::Ask, 0, Flags::ALL)] {
            questions += 1;
            let answer = answer(callee);
            callee.handle(now, &Unknown, &answer, &[]);
            sent(callee);
        } else {
            now = due;
        }
    }
    assert!((60..=61).contains(&questions), "{questions}");
    let silent = now;
    while let Some(due) = callee.look_after(now) {
        now = due;
    }
    assert!(now.since(silent) <= 2500 * MILLISECOND, "{}", now.since(silent));
    assert!(callee.is_given_up());
}

/// Its answers come in the order of the questions, each 1.9 seconds after its question.
#[test]
fn a_caller_far_away_is_not_taken_for_gone() {
    const ROUND_TRIP: u64 = 1900 * MILLISECOND;
    let (callee, mut now) = (&mut callee(), NOW);
    then(callee, call(FIRST, 0, 0));
    let mut answers = std::collections::VecDeque::new();
    while now < NOW.after(60 * SECOND) {
        let due = callee.look_after(now).expect("it is not taken for gone");
        let questions = sent(callee);
        answers.extend(questions.iter().map(|_| (now.after(ROUND_TRIP), answer(callee))));
        now = due;
        if answers.front().is_some_and(|(at, _)| *at <= due) {
            let (at, answer) = answers.pop_front().expect("there is one");
            now = at;
            callee.handle(now, &Unknown, &answer, &[]);
            sent(callee);
        }
    }
    assert!(!callee.is_given_up());
}

/// A probe that left the caller before the question reached it tells nothing of the round trip: the
/// caller is still asked after half a second, and not after one.
#[test]
fn packet_from_before_a_question_does_not_make_the_caller_a_quick_one() {
    for (answers, next) in [(true, SECOND), (false, 500 * MILLISECOND)] {
        let (callee, mut now) = (&mut callee(), NOW);
        then(callee, call(FIRST, 0, 0));
        now = now.after(500 * MILLISECOND);
        let early = packet(Kind::Probe, FIRST);
        callee.look_after(now);
        assert_eq!(sent(callee), [(Kind::Ask, 0, Flags::ALL)]);
        let probe = if answers { answer(callee) } else { early };
        callee.handle(now, &Unknown, &probe, &[]);
        sent(callee);
        assert_eq!(callee.look_after(now), Some(now.after(next)), "answers: {answers}");
    }
}

/// A server that was halted finds that nothing was heard for long, and what came meanwhile still to
/// be read.
#[test]
fn a_server_that_was_halted_judges_nobody_before_it_has_asked() {
    let (callee, mut now) = (&mut callee(), NOW);
    then(callee, call(FIRST, 0, 0));
    now = now.after(100 * SECOND);
    let due = callee.look_after(now).expect("it asks");
    assert!(due > now && !callee.is_given_up());
    callee.handle(now, &Unknown, &packet(Kind::Probe, FIRST), &[]);
    assert!(callee.look_after(now).is_some() && !callee.is_given_up());
}
