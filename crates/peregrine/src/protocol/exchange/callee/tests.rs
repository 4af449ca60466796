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
    let mut callee = Callee::vacant(4, Moment(0));
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
    assert_eq!(then(callee, packet(Kind::Bye, FIRST)), Then::Dropped(Dropped::Violation));
    assert_eq!(callee.standing(), Standing::Running);
}

#[test]
fn refusals_vouch_for_what_the_place_would_know() {
    let mut callee = callee();
    let stranger =
        Header { handle: Handle { place: 4, secret: [9; 12] }, ..packet(Kind::Probe, 1) };
    assert!(!callee.knows(&stranger, PEER));
    let age = |callee: &Callee, seconds: u64| {
        let now = Moment(seconds * SECOND);
        callee.refuse(now, &stranger, 77).expect("a refusal").age() / 1_000_000
    };
    assert_eq!(age(&callee, 300), 300);
    // An idle record, or one whose call never ran, is forgotten without a trace.
    then(&mut callee, call(FIRST, 3000, 1));
    callee.forget(Moment(310 * SECOND));
    assert_eq!(age(&callee, 320), 320);
    // One whose client perhaps waits is not.
    let terms = Terms { piece: 1024, credits: 64, credits_here: 32, bytes_max: 1 << 20 };
    callee.occupy(NOW, SECRET, PEER, &terms);
    then(&mut callee, call(FIRST, 0, 0));
    callee.replied(result(0));
    callee.forget(Moment(400 * SECOND));
    assert_eq!(age(&callee, 430), 30);
    // A place remembers that when it is another's.
    callee.occupy(NOW, [8; 12], PEER, &terms);
    callee.forget(Moment(500 * SECOND));
    assert_eq!(age(&callee, 530), 130);
}

#[test]
fn from_elsewhere_a_handle_is_refused_and_nothing_is_vouched_for() {
    let callee = callee();
    let probe = packet(Kind::Probe, FIRST);
    assert!(!callee.knows(&probe, PEER + 1));
    assert_eq!(callee.refuse(NOW, &probe, 77).map(|refusal| refusal.age()), Some(0));
    for kind in [Kind::Bye, Kind::Result, Kind::LetGo, Kind::Refused, Kind::HaveCall] {
        assert_eq!(callee.refuse(NOW, &packet(kind, FIRST), 77), None);
    }
}

#[test]
fn goodbye_ends_the_record() {
    let callee = &mut callee();
    then(callee, call(FIRST, 0, 0));
    callee.replied(result(0));
    sent(callee);
    let received = receive(callee, packet(Kind::Bye, FIRST));
    assert_eq!(received, Received { release: true, then: Then::Forget });
    callee.forget(NOW);
    assert!(!callee.knows(&packet(Kind::Call, FIRST + 1), PEER));
}
