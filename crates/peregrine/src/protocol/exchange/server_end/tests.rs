//! Dialogues with a server end, the record of the calls of one handle. In each dialogue a packet arrives, and
//! the server end must send exactly the expected packets.

use super::super::flow::NoFlow;
use super::super::header::checksum;
use super::super::message::PIECE_MIN;
use super::super::time::SECOND;
use super::*;

const PEER: u64 = 5;
const NOW: Moment = Moment(100 * SECOND);
const SECRET: [u8; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 0xff, 0xff, 0xff, 0xff];
/// The number of the first call. The last four bytes of the secret make the number wrap around to zero.
const FIRST: u32 = 0;

fn server_end() -> ServerEnd {
    let mut server_end = ServerEnd::vacant(4);
    let terms = ServerTerms { piece: 1024, credits: 64, credits_here: 32, bytes_max: 1 << 20 };
    server_end.assign(NOW, SECRET, PEER, &terms);
    server_end
}

fn packet(kind: PacketKind, sequence: u32) -> Header {
    let handle = Handle { place: 4, secret: SECRET };
    Header { piece: 1024, credits: 64, ..Header::new(kind, handle, sequence) }
}

fn call(sequence: u32, total: u32, fragment: u32) -> Header {
    let shape = Shape { what: 7, total, ..Shape::default() };
    Header { shape, fragment, ..packet(PacketKind::Call, sequence) }
}

fn receive(server_end: &mut ServerEnd, header: Header) -> Effect {
    assert!(server_end.accepts(&header, PEER));
    server_end.handle(NOW, &NoFlow, &header, &[])
}

fn then(server_end: &mut ServerEnd, header: Header) -> Action {
    receive(server_end, header).action
}

/// Returns the kinds, fragments and flags of the packets that are sent now.
fn sent(server_end: &mut ServerEnd) -> Vec<(PacketKind, u32, Flags)> {
    let mut out = [0; CONTROL_BYTES_MAX];
    let mut all = Vec::new();
    while let Some(send) = server_end.poll_send(NOW, &NoFlow, &mut out) {
        let payload = send.bytes - HEADER_BYTES + send.range.len();
        let header = Header::parse(out.first_chunk().unwrap(), payload).unwrap();
        all.push((header.kind, header.fragment, header.flags));
    }
    all
}

fn result(total: u32) -> Shape {
    Shape { what: 0, total, ..Shape::default() }
}

const DROPPED_AGAIN: Action = Action::Dropped(DropReason::Duplicate);
const DROPPED_LATE: Action = Action::Dropped(DropReason::Late);

#[test]
fn call_of_one_packet_is_executed_once() {
    let server_end = &mut server_end();
    let effect = receive(server_end, call(FIRST, 100, 0));
    assert_eq!(effect, Effect { release: false, action: Action::Execute(0..100) });
    assert_eq!(then(server_end, call(FIRST, 100, 0)), DROPPED_AGAIN);
    assert_eq!(sent(server_end), []);
    assert_eq!(server_end.complete(result(10)), Retain::Keep);
    assert_eq!(sent(server_end), [(PacketKind::Result, 0, Flags::NONE)]);
    assert_eq!(then(server_end, call(FIRST, 100, 0)), DROPPED_AGAIN);
    assert_eq!(sent(server_end), []);
    // The next call acknowledges the result.
    let effect = receive(server_end, call(FIRST + 1, 100, 0));
    assert_eq!(effect, Effect { release: true, action: Action::Execute(0..100) });
    assert_eq!(then(server_end, call(FIRST, 100, 0)), DROPPED_LATE);
}

#[test]
fn result_larger_than_the_path_allows_is_cut_again() {
    let server_end = &mut server_end();
    then(server_end, call(FIRST, 100, 0));
    assert!(!server_end.reduce_piece(512), "the size changes only for a result");
    assert_eq!(server_end.complete(result(1000)), Retain::Keep);
    assert_eq!(sent(server_end), [(PacketKind::Result, 0, Flags::NONE)]);
    assert!(
        server_end.reduce_piece(700)
            && !server_end.reduce_piece(700)
            && !server_end.reduce_piece(1000)
    );
    let next = |server_end: &mut ServerEnd| {
        let mut out = [0; CONTROL_BYTES_MAX];
        let send = server_end.poll_send(NOW, &NoFlow, &mut out).expect("a packet");
        let payload = send.bytes - HEADER_BYTES + send.range.len();
        let header = Header::parse(out.first_chunk().unwrap(), payload).unwrap();
        (header.kind, header.piece, header.flags)
    };
    let have = (PacketKind::HaveCall, 688, Flags::ALL.with(Flags::REPLIED));
    assert_eq!(next(server_end), have);
    assert_eq!([next(server_end), next(server_end)].map(|sent| sent.1), [688, 688]);
    // The report was lost. The client still asks for pieces of the old size, and gets the report again.
    let asks = Header { flags: Flags::REPORT, ..packet(PacketKind::HaveResult, FIRST) };
    assert_eq!(then(server_end, asks), DROPPED_LATE);
    assert_eq!(next(server_end), have);
    // The size of pieces is reduced once more, to the smallest size.
    assert!(server_end.reduce_piece(0) && !server_end.reduce_piece(0));
    assert_eq!(next(server_end).1, 512);
}

/// Returns the kind, the fragment and the credits of the next packet.
fn allowed(server_end: &mut ServerEnd) -> Option<(PacketKind, u32, u16)> {
    let mut out = [0; CONTROL_BYTES_MAX];
    let send = server_end.poll_send(NOW, &NoFlow, &mut out)?;
    let header = Header::parse(out.first_chunk().unwrap(), send.bytes - HEADER_BYTES).unwrap();
    Some((header.kind, header.fragment, header.credits))
}

#[test]
fn call_without_memory_waits_and_then_resumes() {
    let server_end = &mut server_end();
    assert!(matches!(then(server_end, call(FIRST, 2500, 1)), Action::Begin(_)));
    server_end.wait_for_room();
    assert!(server_end.waits_for_room(FIRST) && server_end.phase() == RecordPhase::Waiting);
    assert_eq!(allowed(server_end), Some((PacketKind::HaveCall, 0, 0)));
    // Pieces that are in flight are dropped, and only questions are answered.
    assert_eq!(then(server_end, call(FIRST, 2500, 2)), DROPPED_LATE);
    assert_eq!(allowed(server_end), None);
    for question in [packet(PacketKind::Probe, FIRST), call(FIRST, 2500, 0)] {
        then(server_end, question);
        assert_eq!(allowed(server_end), Some((PacketKind::HaveCall, 0, 0)));
    }
    server_end.resume();
    assert_eq!(allowed(server_end), Some((PacketKind::HaveCall, 0, 32)));
    assert_eq!(then(server_end, call(FIRST, 2500, 1)), Action::Place(452..1476));
    assert_eq!(then(server_end, call(FIRST, 2500, 2)), Action::Place(1476..2500));
    assert_eq!(then(server_end, call(FIRST, 2500, 0)), Action::Execute(0..452));
    assert!(!server_end.waits_for_room(FIRST));
}

#[test]
fn waiting_call_can_be_refused_or_cancelled() {
    let waiting = || {
        let mut server_end = server_end();
        then(&mut server_end, call(FIRST, 2500, 1));
        server_end.wait_for_room();
        allowed(&mut server_end);
        server_end
    };
    let server_end = &mut waiting();
    assert_eq!(server_end.complete(result(9)), Retain::Keep);
    assert_eq!(sent(server_end), [(PacketKind::Result, 0, Flags::NONE)]);
    assert_eq!(then(server_end, call(FIRST, 2500, 1)), DROPPED_AGAIN);
    let server_end = &mut waiting();
    assert_eq!(then(server_end, packet(PacketKind::Cancel, FIRST)), Action::Nothing);
    assert_eq!(sent(server_end), [(PacketKind::Released, 0, Flags::NONE)]);
    assert!(!server_end.waits_for_room(FIRST));
    server_end.resume();
    assert_eq!((server_end.phase(), sent(server_end)), (RecordPhase::Idle, vec![]));
}

#[test]
fn number_is_never_executed_twice_in_any_state() {
    for acknowledged in [false, true] {
        let server_end = &mut server_end();
        then(server_end, call(FIRST, 0, 0));
        server_end.complete(result(0));
        if acknowledged {
            let all = Header { flags: Flags::ALL, ..packet(PacketKind::HaveResult, FIRST) };
            assert_eq!(receive(server_end, all), Effect { release: true, action: Action::Nothing });
        }
        for sequence in [FIRST, FIRST.wrapping_sub(1), FIRST.wrapping_sub(1000)] {
            for total in [0, 5000] {
                let then = then(server_end, call(sequence, total, 0));
                assert!(matches!(then, Action::Dropped(_)), "{sequence} {total} {then:?}");
            }
        }
    }
}

#[test]
fn other_arguments_under_the_same_number_are_a_violation() {
    let server_end = &mut server_end();
    then(server_end, call(FIRST, 100, 0));
    assert_eq!(then(server_end, call(FIRST, 101, 0)), Action::Dropped(DropReason::Violation));
    then(server_end, call(FIRST, 5000, 1));
    let server_end = &mut self::server_end();
    assert_eq!(then(server_end, call(FIRST, 5000, 1)), Action::Begin(904..1928));
    assert_eq!(then(server_end, call(FIRST, 5001, 2)), Action::Dropped(DropReason::Violation));
    assert_eq!(
        then(server_end, call(FIRST + 1, 2 << 20, 1)),
        Action::Dropped(DropReason::Violation)
    );
}

#[test]
fn last_missing_piece_executes_the_call() {
    let server_end = &mut server_end();
    assert_eq!(then(server_end, call(FIRST, 2500, 1)), Action::Begin(452..1476));
    assert_eq!(then(server_end, call(FIRST, 2500, 1)), DROPPED_AGAIN);
    assert_eq!(then(server_end, call(FIRST, 2500, 2)), Action::Place(1476..2500));
    assert_eq!(sent(server_end), []);
    assert_eq!(then(server_end, call(FIRST, 2500, 0)), Action::Execute(0..452));
    assert_eq!(sent(server_end), []);
    assert_eq!(then(server_end, call(FIRST, 2500, 2)), DROPPED_AGAIN);
}

#[test]
fn early_end_of_a_blast_is_reported_and_so_is_completion() {
    let server_end = &mut server_end();
    then(server_end, call(FIRST, 3000, 1));
    assert_eq!(then(server_end, call(FIRST, 3000, 0)), Action::Place(0..952));
    assert_eq!(sent(server_end), [(PacketKind::HaveCall, 1, Flags::CHECKED)]);
    assert_eq!(then(server_end, call(FIRST, 3000, 2)), Action::Execute(1976..3000));
    assert_eq!(sent(server_end), [(PacketKind::HaveCall, 0, Flags::ALL)]);
}

#[test]
fn probe_reports_the_state_and_sends_no_data() {
    let server_end = &mut server_end();
    let probe = packet(PacketKind::Probe, FIRST);
    assert_eq!(then(server_end, probe), Action::Nothing);
    assert_eq!(sent(server_end), [(PacketKind::HaveCall, 0, Flags::NONE)]);
    then(server_end, call(FIRST, 3000, 1));
    then(server_end, probe);
    assert_eq!(sent(server_end), [(PacketKind::HaveCall, 1, Flags::NONE)]);
    then(server_end, call(FIRST, 3000, 2));
    then(server_end, call(FIRST, 3000, 0));
    then(server_end, probe);
    assert_eq!(sent(server_end), [(PacketKind::HaveCall, 0, Flags::ALL)]);
    server_end.complete(result(9));
    sent(server_end);
    then(server_end, probe);
    assert_eq!(sent(server_end), [(PacketKind::HaveCall, 0, Flags::ALL.with(Flags::REPLIED))]);
    // This report says that the client has waited for late packets, and that nothing of the result has
    // arrived.
    let nothing = Header { flags: Flags::REPORT, ..packet(PacketKind::HaveResult, FIRST) };
    then(server_end, nothing);
    assert_eq!(sent(server_end), [(PacketKind::Result, 0, Flags::RESENT.with(Flags::REPORT))]);
    let all = Header { flags: Flags::ALL, ..packet(PacketKind::HaveResult, FIRST) };
    assert!(receive(server_end, all).release);
    assert_eq!(then(server_end, probe), DROPPED_LATE);
}

#[test]
fn missing_pieces_of_a_result_are_retransmitted() {
    let server_end = &mut server_end();
    then(server_end, call(FIRST, 0, 0));
    server_end.complete(result(3000));
    let fragments: Vec<_> = sent(server_end).iter().map(|one| one.1).collect();
    assert_eq!(fragments, [1, 2, 0]);
    let bitmap = [0b10];
    let have = Header {
        flags: Flags::CHECKED,
        fragment: 1,
        echo: 3,
        check: checksum(&bitmap),
        ..packet(PacketKind::HaveResult, FIRST)
    };
    server_end.handle(NOW, &NoFlow, &Header { check: 1, ..have }, &bitmap);
    assert_eq!(sent(server_end), []);
    server_end.handle(NOW, &NoFlow, &have, &bitmap);
    assert_eq!(sent(server_end), [(PacketKind::Result, 2, Flags::RESENT.with(Flags::REPORT))]);
}

#[test]
fn cancelled_call_never_begins() {
    let server_end = &mut server_end();
    assert_eq!(then(server_end, packet(PacketKind::Cancel, FIRST)), Action::Nothing);
    assert_eq!(sent(server_end), [(PacketKind::Released, 0, Flags::NONE)]);
    assert_eq!(then(server_end, call(FIRST, 0, 0)), DROPPED_LATE);
    then(server_end, call(FIRST + 1, 5000, 1));
    assert_eq!(then(server_end, packet(PacketKind::Cancel, FIRST + 1)), Action::Discard);
    assert_eq!(then(server_end, call(FIRST + 1, 5000, 1)), DROPPED_LATE);
    // If the cancelled call already runs, it is released when its procedure ends.
    sent(server_end);
    then(server_end, call(FIRST + 2, 0, 0));
    assert_eq!(then(server_end, packet(PacketKind::Cancel, FIRST + 2)), Action::Nothing);
    assert!(server_end.is_cancelled());
    assert_eq!(sent(server_end), [(PacketKind::HaveCall, 0, Flags::ALL)]);
    assert_eq!(server_end.complete(result(9)), Retain::Drop);
    assert_eq!(sent(server_end), [(PacketKind::Released, 0, Flags::NONE)]);
    // A late cancellation of an older call has no effect.
    then(server_end, call(FIRST + 3, 0, 0));
    assert_eq!(then(server_end, packet(PacketKind::Cancel, FIRST + 2)), DROPPED_LATE);
    assert!(!server_end.is_cancelled());
}

#[test]
fn smaller_pieces_restart_a_call_and_larger_ones_are_late() {
    let server_end = &mut server_end();
    then(server_end, call(FIRST, 3000, 1));
    let small = Header { piece: PIECE_MIN, ..call(FIRST, 3000, 1) };
    assert_eq!(then(server_end, small), Action::Begin(440..952));
    assert_eq!(then(server_end, call(FIRST, 3000, 2)), DROPPED_LATE);
    for fragment in 2..6 {
        let range = small.fragments().range(fragment);
        assert_eq!(then(server_end, Header { fragment, ..small }), Action::Place(range));
    }
    assert_eq!(then(server_end, Header { fragment: 0, ..small }), Action::Execute(0..440));
    // The pieces of the result have the size that the client used last.
    server_end.complete(result(1000));
    let mut out = [0; CONTROL_BYTES_MAX];
    assert_eq!(
        server_end.poll_send(NOW, &NoFlow, &mut out).map(|send| send.range),
        Some(488..1000)
    );
    // A probe with a smaller size of pieces makes the call begin again.
    let server_end = &mut self::server_end();
    then(server_end, call(FIRST, 3000, 1));
    let probe = Header { piece: PIECE_MIN, ..packet(PacketKind::Probe, FIRST) };
    assert_eq!(then(server_end, probe), Action::Discard);
    assert_eq!(sent(server_end), [(PacketKind::HaveCall, 0, Flags::NONE)]);
    assert_eq!(then(server_end, small), Action::Begin(440..952));
}

#[test]
fn refused_call_uses_its_number_up() {
    let server_end = &mut server_end();
    then(server_end, call(FIRST, 3000, 1));
    assert_eq!(server_end.complete(result(0)), Retain::Keep);
    assert_eq!(then(server_end, call(FIRST, 3000, 0)), DROPPED_AGAIN);
    assert_eq!(server_end.phase(), RecordPhase::Replied);
}

#[test]
fn next_call_waits_for_the_end_of_the_last() {
    let server_end = &mut server_end();
    then(server_end, call(FIRST, 0, 0));
    assert_eq!(then(server_end, call(FIRST + 1, 0, 0)), DROPPED_LATE);
    assert_eq!(then(server_end, packet(PacketKind::Cancel, FIRST + 1)), DROPPED_LATE);
    assert_eq!(server_end.phase(), RecordPhase::Running);
}

#[test]
fn forgotten_result_raises_the_generation() {
    let mut server_end = server_end();
    let stranger =
        Header { handle: Handle { place: 4, secret: [9; 12] }, ..packet(PacketKind::Probe, 1) };
    assert!(!server_end.accepts(&stranger, PEER));
    let generation = |server_end: &ServerEnd| {
        let refusal = server_end.refusal_of(&stranger, 77).expect("a refusal");
        assert_eq!((refusal.table(), refusal.flags), (77, Flags::NONE));
        assert_eq!(refusal.generation(), server_end.granted_handle().generation);
        refusal.generation()
    };
    assert_eq!(generation(&server_end), 0);
    // The generation does not rise if the call of the forgotten record was never executed.
    then(&mut server_end, call(FIRST, 3000, 1));
    server_end.forget();
    assert_eq!(generation(&server_end), 0);
    let terms = ServerTerms { piece: 1024, credits: 64, credits_here: 32, bytes_max: 1 << 20 };
    let occupied = |server_end: &mut ServerEnd| server_end.assign(NOW, SECRET, PEER, &terms);
    // The generation does not rise either if the client has the result, has cancelled the call, or has sent a
    // goodbye.
    let all = Header { flags: Flags::ALL, ..packet(PacketKind::HaveResult, FIRST) };
    for over in [all, packet(PacketKind::Cancel, FIRST), packet(PacketKind::Bye, FIRST)] {
        occupied(&mut server_end);
        then(&mut server_end, call(FIRST, 0, 0));
        server_end.complete(result(0));
        then(&mut server_end, over);
        server_end.forget();
        assert_eq!(generation(&server_end), 0);
    }
    // The generation rises if the client may still wait for the forgotten result.
    occupied(&mut server_end);
    then(&mut server_end, call(FIRST, 0, 0));
    server_end.complete(result(0));
    server_end.forget();
    assert_eq!(generation(&server_end), 1);
    // The next handle of the place has the new generation.
    occupied(&mut server_end);
    assert_eq!(server_end.granted_handle().generation, 1);
    server_end.forget();
    assert_eq!(generation(&server_end), 1);
}

#[test]
fn handle_from_another_address_is_refused_with_the_reason() {
    let server_end = server_end();
    let probe = packet(PacketKind::Probe, FIRST);
    assert!(!server_end.accepts(&probe, PEER + 1));
    assert_eq!(
        server_end.refusal_of(&probe, 77).map(|refusal| refusal.flags),
        Some(Flags::ELSEWHERE)
    );
    for kind in [
        PacketKind::Bye,
        PacketKind::Result,
        PacketKind::Released,
        PacketKind::Refused,
        PacketKind::HaveCall,
        PacketKind::Ask,
    ] {
        assert_eq!(server_end.refusal_of(&packet(kind, FIRST), 77), None);
    }
}

#[test]
fn goodbye_with_any_number_ends_the_record() {
    for sequence in [FIRST.wrapping_sub(1), FIRST, FIRST + 1] {
        let server_end = &mut server_end();
        then(server_end, call(FIRST, 0, 0));
        server_end.complete(result(0));
        sent(server_end);
        let effect = receive(server_end, packet(PacketKind::Bye, sequence));
        assert_eq!(effect, Effect { release: true, action: Action::Forget });
        server_end.forget();
        assert!(!server_end.accepts(&packet(PacketKind::Call, FIRST + 1), PEER));
    }
}

#[test]
fn goodbye_cancels_a_procedure_whose_end_frees_the_record() {
    for given_up in [false, true] {
        let server_end = &mut server_end();
        then(server_end, call(FIRST, 0, 0));
        if given_up {
            then(server_end, packet(PacketKind::Cancel, FIRST));
            sent(server_end);
        }
        assert_eq!(then(server_end, packet(PacketKind::Bye, FIRST)), Action::Nothing);
        assert!(server_end.is_call_cancelled(FIRST));
        assert_eq!(then(server_end, packet(PacketKind::Probe, FIRST)), DROPPED_LATE);
        assert_eq!(then(server_end, call(FIRST + 1, 0, 0)), DROPPED_LATE);
        assert_eq!(server_end.check_caller(NOW.after(100 * SECOND)), None);
        assert_eq!(server_end.complete(result(9)), Retain::Forget);
        assert_eq!(sent(server_end), []);
        assert_eq!(server_end.phase(), RecordPhase::Idle);
    }
}

/// Makes a packet of the client that answers the record's last packet.
fn answer(server_end: &ServerEnd) -> Header {
    Header { echo: server_end.serial, ..packet(PacketKind::Probe, FIRST) }
}

/// Checks the client whenever a check is due, until `end`. Returns the times at which the server asks the
/// client, in milliseconds.
fn asked_until(server_end: &mut ServerEnd, now: &mut Moment, end: Moment) -> Vec<u64> {
    let mut asked = Vec::new();
    while let Some(due) = server_end.check_caller(*now) {
        let questions = sent(server_end);
        assert!(
            questions.iter().all(|one| *one == (PacketKind::Ask, 0, Flags::ALL)),
            "{questions:?}"
        );
        asked.extend(questions.iter().map(|_| now.since(NOW) / MILLISECOND));
        if due > end {
            break;
        }
        *now = due;
    }
    asked
}

#[test]
fn silent_client_is_asked_and_then_taken_for_dead() {
    let (server_end, mut now) = (&mut server_end(), NOW);
    assert_eq!(server_end.check_caller(now), None);
    then(server_end, call(FIRST, 0, 0));
    let asked = asked_until(server_end, &mut now, NOW.after(100 * SECOND));
    assert_eq!(asked, [500, 800, 1100, 1400, 1700]);
    assert_eq!(now.since(NOW), 2500 * MILLISECOND);
    assert!(server_end.is_call_cancelled(FIRST) && !server_end.is_call_cancelled(FIRST + 1));
    // The client was only halted. The server answers its probe, and the client gets the result. But the call
    // stays cancelled while it runs.
    server_end.handle(now, &NoFlow, &packet(PacketKind::Probe, FIRST), &[]);
    assert_eq!(sent(server_end), [(PacketKind::HaveCall, 0, Flags::ALL)]);
    assert!(server_end.is_cancelled());
    assert_eq!(server_end.complete(result(10)), Retain::Keep);
    assert_eq!(sent(server_end), [(PacketKind::Result, 0, Flags::NONE)]);
    assert!(!server_end.is_cancelled());
    // The next call is not cancelled.
    server_end.handle(now, &NoFlow, &call(FIRST + 1, 0, 0), &[]);
    assert!(!server_end.is_cancelled());
    assert!(server_end.check_caller(now).is_some());
}

#[test]
fn client_that_sends_is_not_asked() {
    let (server_end, mut now) = (&mut server_end(), NOW);
    then(server_end, call(FIRST, 0, 0));
    for _ in 0..100 {
        let then = now.after(440 * MILLISECOND);
        assert_eq!(asked_until(server_end, &mut now, then), [0; 0]);
        now = then;
        server_end.handle(now, &NoFlow, &packet(PacketKind::Probe, FIRST), &[]);
        sent(server_end);
    }
}

#[test]
fn answering_client_is_asked_once_a_second() {
    let (server_end, mut now) = (&mut server_end(), NOW);
    then(server_end, call(FIRST, 0, 0));
    let mut questions = 0;
    while now < NOW.after(60 * SECOND) {
        let due = server_end.check_caller(now).expect("a running procedure");
        if sent(server_end) == [(PacketKind::Ask, 0, Flags::ALL)] {
            questions += 1;
            let answer = answer(server_end);
            server_end.handle(now, &NoFlow, &answer, &[]);
            sent(server_end);
        } else {
            now = due;
        }
    }
    assert!((60..=61).contains(&questions), "{questions}");
    let silent = now;
    while let Some(due) = server_end.check_caller(now) {
        now = due;
    }
    assert!(now.since(silent) <= 2500 * MILLISECOND, "{}", now.since(silent));
    assert!(server_end.is_cancelled());
}

/// The answers arrive in the order of the questions, each 1.9 seconds after its question.
#[test]
fn distant_client_is_not_taken_for_dead() {
    const ROUND_TRIP: u64 = 1900 * MILLISECOND;
    let (server_end, mut now) = (&mut server_end(), NOW);
    then(server_end, call(FIRST, 0, 0));
    let mut answers = std::collections::VecDeque::new();
    while now < NOW.after(60 * SECOND) {
        let due = server_end.check_caller(now).expect("a client that is not presumed dead");
        let questions = sent(server_end);
        answers.extend(questions.iter().map(|_| (now.after(ROUND_TRIP), answer(server_end))));
        now = due;
        if answers.front().is_some_and(|(at, _)| *at <= due) {
            let (at, answer) = answers.pop_front().expect("an answer");
            now = at;
            server_end.handle(now, &NoFlow, &answer, &[]);
            sent(server_end);
        }
    }
    assert!(!server_end.is_cancelled());
}

/// If a probe left the client before the question arrived there, the probe does not show how soon the client
/// answers. So the server continues to ask after half a second of silence, rather than after one second.
#[test]
fn packet_sent_before_the_question_is_not_its_answer() {
    for (answers, next) in [(true, SECOND), (false, 500 * MILLISECOND)] {
        let (server_end, mut now) = (&mut server_end(), NOW);
        then(server_end, call(FIRST, 0, 0));
        now = now.after(500 * MILLISECOND);
        let early = packet(PacketKind::Probe, FIRST);
        server_end.check_caller(now);
        assert_eq!(sent(server_end), [(PacketKind::Ask, 0, Flags::ALL)]);
        let probe = if answers { answer(server_end) } else { early };
        server_end.handle(now, &NoFlow, &probe, &[]);
        sent(server_end);
        assert_eq!(server_end.check_caller(now), Some(now.after(next)), "answers: {answers}");
    }
}

/// A server that was halted sees a long silence. But packets of the client may have arrived, and the server
/// has not read them yet. So the server must not presume the client dead at once.
#[test]
fn halted_server_asks_before_it_takes_a_client_for_dead() {
    let (server_end, mut now) = (&mut server_end(), NOW);
    then(server_end, call(FIRST, 0, 0));
    now = now.after(100 * SECOND);
    let due = server_end.check_caller(now).expect("a further check");
    assert!(due > now && !server_end.is_cancelled());
    server_end.handle(now, &NoFlow, &packet(PacketKind::Probe, FIRST), &[]);
    assert!(server_end.check_caller(now).is_some() && !server_end.is_cancelled());
}
