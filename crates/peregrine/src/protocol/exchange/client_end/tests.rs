//! Dialogues with a client end. In each dialogue a packet arrives, and the client end must send exactly the
//! expected packets.

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
    client_end.begin(shape(total)).expect("the call can begin");
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

/// Returns the kinds, fragments and flags of the packets that are sent now.
fn sent(client_end: &mut ClientEnd, now: Moment) -> Vec<(PacketKind, u32, Flags)> {
    let mut out = [0; CONTROL_BYTES_MAX];
    let mut all = Vec::new();
    while let Some(send) = client_end.poll_send(now, &NoFlow, &mut out) {
        let payload = send.bytes - HEADER_BYTES + send.range.len();
        let header = Header::parse(out.first_chunk().unwrap(), payload).unwrap();
        all.push((header.kind, header.fragment, header.flags));
    }
    all
}

#[test]
fn call_restarts_with_smaller_pieces_where_larger_ones_are_lost() {
    let mut client_end = calling(4096);
    client_end.reduce_piece(2000, NOW);
    assert_eq!(sent(&mut client_end, NOW), [], "the pieces are not larger than the new limit");
    client_end.reduce_piece(1000, NOW);
    let again = sent(&mut client_end, NOW);
    // The size is rounded down to a multiple of 16. So there are five pieces of at most 992 bytes, not four
    // of 1,024.
    assert_eq!(again.len(), 5, "{again:?}");
    assert!(
        again.iter().all(|(kind, _, flags)| *kind == PacketKind::Call && flags.has(Flags::RESENT))
    );
    client_end.reduce_piece(PIECE_MIN, NOW);
    assert_eq!(sent(&mut client_end, NOW).len(), 8);
    // Without a call in progress, the new size applies to the next call.
    let mut idle = self::client_end();
    idle.reduce_piece(1, NOW);
    idle.begin(shape(4096)).expect("the call can begin");
    assert_eq!(sent(&mut idle, NOW).len(), 8, "the size is at least `PIECE_MIN`");
}

/// Advances to the next timer. Returns the time until then, and the packets that the client end sends then.
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
fn short_call_is_one_packet_and_its_result_needs_no_answer() {
    let mut client_end = client_end();
    client_end.begin(shape(100)).expect("the call can begin");
    assert_eq!(sent(&mut client_end, NOW), [(PacketKind::Call, 0, Flags::NONE)]);
    assert_eq!(client_end.begin(shape(0)), Err(BeginError::Busy));
    assert_eq!(client_end.next_timer(), Some(NOW.after(WAIT_MIN)));
    assert_eq!(client_end.handle(NOW, &NoFlow, &result(9, 0), &[]), Handled::Place(0..9));
    assert_eq!(client_end.outcome(), Some(Outcome::Returned(shape(9))));
    assert_eq!((client_end.outcome(), client_end.next_timer()), (None, None));
    assert_eq!(sent(&mut client_end, NOW), []);
    // A duplicate of the result arrives.
    assert_eq!(
        client_end.handle(NOW, &NoFlow, &result(9, 0), &[]),
        Handled::Dropped(DropReason::Late)
    );
    assert!(client_end.owes_acknowledgement());
    client_end.begin(shape(100)).expect("the call can begin");
    assert!(!client_end.owes_acknowledgement());
    // A result of the previous call does not belong to this call.
    assert_eq!(
        client_end.handle(NOW, &NoFlow, &result(9, 0), &[]),
        Handled::Dropped(DropReason::Late)
    );
    assert_eq!(client_end.outcome(), None);
}

/// All measured answers took the same time, which is longer than the shortest wait. The next answer has time
/// to arrive before the client repeats its question.
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
fn waiting_call_asks_until_it_may_be_sent() {
    let (mut client_end, mut now) = (calling(2500), NOW);
    let have = packet(PacketKind::HaveCall, FIRST);
    let wait = Header { credits: 0, ..have };
    assert_eq!(client_end.handle(now, &NoFlow, &wait, &[]), Handled::Nothing);
    // The call waits as long as the server answers that it has no memory. Meanwhile, the client only probes,
    // and sends no piece of the call.
    for round in 0..50 {
        let (waited, question) = next(&mut client_end, &mut now);
        assert_eq!(question, [PROBE]);
        let expected = if round == 0 { WAIT_MAX } else { CALM_MAX };
        assert_eq!(waited, expected, "{round}");
        assert_eq!(client_end.handle(now, &NoFlow, &wait, &[]), Handled::Nothing);
    }
    assert_eq!(sent(&mut client_end, now), []);
    // The whole call is sent again, in the same order as the first time.
    assert_eq!(client_end.handle(now, &NoFlow, &have, &[]), Handled::Nothing);
    let pieces = [1, 2, 0].map(|fragment| (PacketKind::Call, fragment, Flags::NONE));
    assert_eq!(sent(&mut client_end, now), pieces);
    assert_eq!(client_end.retransmissions(), 3);
    assert_eq!(client_end.handle(now, &NoFlow, &result(9, 0), &[]), Handled::Place(0..9));
    assert_eq!(client_end.outcome(), Some(Outcome::Returned(shape(9))));
}

#[test]
fn late_request_to_wait_delays_a_call_until_its_next_question() {
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

/// The client sends the whole call. The server asks the client to wait, but soon accepts pieces again. The
/// request to wait reaches the client late. The permission to send follows it, so the client begins again at
/// the first position. The next report of the server then covers more positions than the client has sent
/// since that new beginning.
#[test]
fn reports_of_earlier_pieces_count_after_a_late_permission_to_send() {
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
        // Positions 0 to 3, 5 and 6 have arrived. Position 4 is late, or lost.
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
fn waiting_call_fails_when_the_server_is_silent() {
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
fn result_without_a_next_call_is_acknowledged_on_request() {
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
fn questions_become_rarer_until_the_server_is_taken_for_dead() {
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
fn probes_become_rarer_while_the_procedure_runs() {
    let (mut client_end, mut now) = (calling(100), NOW);
    client_end.handle(NOW, &NoFlow, &all(FIRST), &[]);
    let mut waits = Vec::new();
    for _ in 0..6 {
        let (waited, sent) = next(&mut client_end, &mut now);
        assert_eq!(sent, [PROBE]);
        waits.push(waited / MILLISECOND);
        let answer = Header { echo: client_end.serial, ..all(FIRST) };
        client_end.handle(now, &NoFlow, &answer, &[]);
        // A late duplicate of this answer has no effect.
        client_end.handle(now, &NoFlow, &answer, &[]);
    }
    assert_eq!(waits, [200, 400, 400, 400, 400, 400]);
    // Without answers, the client asks at shorter intervals. The call fails after ten questions.
    let mut waits = Vec::new();
    while !client_end.is_closed() {
        waits.push(next(&mut client_end, &mut now).0 / MILLISECOND);
    }
    assert_eq!((waits[0], waits.len()), (400, 11));
    assert!(waits[1..].iter().all(|wait| (180..=220).contains(wait)), "{waits:?}");
}

#[test]
fn only_missing_pieces_are_retransmitted_after_a_moment() {
    let (mut client_end, mut now) = (calling(3000), NOW);
    assert_eq!(next(&mut client_end, &mut now).1, [PROBE]);
    // Of three positions, only the middle one has arrived at the server.
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
    assert_eq!(client_end.retransmissions(), 2);
}

#[test]
fn late_pieces_are_not_retransmitted() {
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
fn lost_result_is_requested_once_the_server_has_sent_it() {
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
fn result_of_several_pieces_is_assembled() {
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
    // The server sends fragment 0 of a result last. Here fragment 0 arrives before fragment 2. After a moment
    // the client reports what has arrived.
    assert_eq!(client_end.handle(now, &NoFlow, &result(3000, 0), &[]), Handled::Place(0..952));
    assert_eq!(sent(&mut client_end, now), []);
    let (waited, sent_then) = next(&mut client_end, &mut now);
    assert!(waited < MILLISECOND);
    assert_eq!(sent_then, [(PacketKind::HaveResult, 1, Flags::CHECKED)]);
    // Nothing arrives, so the client requests the rest.
    let (waited, sent_then) = next(&mut client_end, &mut now);
    assert_eq!(waited, WAIT_MIN);
    assert_eq!(sent_then, [(PacketKind::HaveResult, 1, Flags::REPORT.with(Flags::CHECKED))]);
    assert_eq!(client_end.outcome(), None);
    assert_eq!(client_end.handle(now, &NoFlow, &result(3000, 2), &[]), Handled::Place(1976..3000));
    assert_eq!(client_end.outcome(), Some(Outcome::Returned(shape(3000))));
    assert_eq!(sent(&mut client_end, now), []);
}

#[test]
fn windowed_result_without_holes_is_answered_at_once() {
    let mut client_end = calling(0);
    let request = Header { flags: Flags::REPORT, ..result(9000, 1) };
    client_end.handle(NOW, &NoFlow, &request, &[]);
    assert_eq!(sent(&mut client_end, NOW), [(PacketKind::HaveResult, 1, Flags::NONE)]);
    // If a position is missing, the client answers only when that position has arrived, or after a moment.
    client_end.handle(NOW, &NoFlow, &Header { fragment: 3, ..request }, &[]);
    assert_eq!(sent(&mut client_end, NOW), []);
    client_end.handle(NOW, &NoFlow, &result(9000, 2), &[]);
    assert_eq!(sent(&mut client_end, NOW), [(PacketKind::HaveResult, 3, Flags::NONE)]);
}

/// Returns a refusal by the table with the number `table`. At the handle's place, the server has discarded
/// `generation` results.
fn refusal(table: u64, generation: u32) -> Header {
    Header::refusal(&packet(PacketKind::Call, FIRST), table, generation)
}

#[test]
fn refusal_proves_not_executed_only_if_its_table_forgot_nothing() {
    let (certain, doubt) = (Executed::No, Executed::Maybe);
    for (table, generation, heard, expected) in [
        (TABLE, GENERATION, false, certain),
        // The server has discarded a result at the place since it granted the handle.
        (TABLE, GENERATION + 1, false, doubt),
        // The generation is lower than it was when the server granted the handle.
        (TABLE, GENERATION - 1, false, doubt),
        // The refusal comes from another server at the same address, or from another socket of this server.
        (TABLE + 1, GENERATION, false, doubt),
        // The server has reported that the whole call has arrived.
        (TABLE, GENERATION, true, doubt),
    ] {
        // The outcome does not depend on the time since the call began.
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
    // The refusal of another call is late.
    let mut client_end = calling(0);
    let old = Header { sequence: FIRST.wrapping_sub(1), ..refusal(TABLE, GENERATION) };
    assert_eq!(client_end.handle(NOW, &NoFlow, &old, &[]), Handled::Dropped(DropReason::Late));
}

#[test]
fn refusal_for_the_address_proves_nothing_about_the_call() {
    let mut client_end = calling(0);
    let refusal = Header { flags: Flags::ELSEWHERE, ..refusal(TABLE, GENERATION) };
    client_end.handle(NOW, &NoFlow, &refusal, &[]);
    assert_eq!(client_end.outcome(), failed(Executed::Maybe, FailureReason::AddressChanged));
}

/// Begins a call one second after the server's last packet. The client first asks whether the server knows
/// the handle.
fn asking() -> (ClientEnd, Moment) {
    let (mut client_end, now) = (client_end(), NOW.after(SECOND));
    client_end.begin(shape(3000)).expect("the call can begin");
    assert_eq!(sent(&mut client_end, now), [PROBE]);
    (client_end, now)
}

#[test]
fn server_is_asked_before_a_call_after_a_pause() {
    let (mut client_end, now) = asking();
    // A packet that the server sent before it received the question proves nothing.
    let early = Header { echo: client_end.serial - 1, ..packet(PacketKind::HaveCall, FIRST) };
    assert_eq!(client_end.handle(now, &NoFlow, &early, &[]), Handled::Dropped(DropReason::Late));
    assert_eq!(sent(&mut client_end, now), []);
    let answer = Header { echo: client_end.serial, ..early };
    assert_eq!(client_end.handle(now, &NoFlow, &answer, &[]), Handled::Nothing);
    let pieces: Vec<_> = sent(&mut client_end, now).iter().map(|one| (one.0, one.1)).collect();
    assert_eq!(pieces, [(PacketKind::Call, 1), (PacketKind::Call, 2), (PacketKind::Call, 0)]);
    assert_eq!(client_end.handle(now, &NoFlow, &result(9, 0), &[]), Handled::Place(0..9));
    // The next call follows soon, so the client asks no question before it.
    client_end.outcome();
    client_end.begin(shape(0)).expect("the call can begin");
    let soon = now.after(9 * MILLISECOND);
    assert_eq!(sent(&mut client_end, soon), [(PacketKind::Call, 0, Flags::NONE)]);
}

#[test]
fn unsent_call_was_not_executed_whichever_table_refuses() {
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

/// The client cancels its call while it still asks whether the server knows the handle. The client repeats
/// the cancellation until the server has answered or is presumed dead.
#[test]
fn cancelled_call_continues_its_questions() {
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
fn servers_question_is_answered_with_the_state_of_the_call() {
    let ask = packet(PacketKind::Ask, FIRST);
    // A server asks only about a call that runs. So the question shows that the whole call has arrived at the
    // server, and the client only probes from now on.
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
    // A question is late if it arrives after the result, or is about another call.
    let mut client_end = calling(0);
    client_end.handle(NOW, &NoFlow, &result(0, 0), &[]);
    assert_eq!(client_end.handle(NOW, &NoFlow, &ask, &[]), Handled::Dropped(DropReason::Late));
    let other = packet(PacketKind::Ask, FIRST + 1);
    assert_eq!(client_end.handle(NOW, &NoFlow, &other, &[]), Handled::Dropped(DropReason::Late));
    assert_eq!(sent(&mut client_end, NOW), []);
}

#[test]
fn client_repeats_its_goodbye_to_a_server_it_took_for_dead() {
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
fn goodbye_ends_an_open_or_cancelled_call() {
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
fn cancelled_call_captures_the_handle_until_its_release() {
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
    // If the server never answers, the handle is closed.
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
fn call_cancelled_before_sending_uses_no_number() {
    let mut client_end = client_end();
    client_end.begin(shape(0)).expect("the call can begin");
    client_end.cancel(NOW);
    assert_eq!(client_end.outcome(), failed(Executed::No, FailureReason::Cancelled));
    assert_eq!(sent(&mut client_end, NOW), []);
    client_end.begin(shape(0)).expect("the next call can begin");
    assert_eq!(client_end.sequence, FIRST);
}

#[test]
fn three_icmp_refusals_end_a_call() {
    let mut client_end = calling(0);
    let mut now = NOW;
    client_end.note_unreachable(now);
    client_end.note_unreachable(now);
    client_end.note_unreachable(now);
    assert!(!client_end.is_closed(), "the refusals were for one packet");
    for _ in 0..2 {
        next(&mut client_end, &mut now);
        client_end.note_unreachable(now);
    }
    assert_eq!(client_end.outcome(), failed(Executed::Maybe, FailureReason::Unreachable));
}

#[test]
fn hints_end_a_call_only_after_ten_unanswered_questions() {
    let mut client_end = calling(0);
    client_end.take_refusals_as_hints();
    let (mut now, mut asked) = (NOW, 0);
    // However many hints arrive, the answer that arrives in time is the result.
    for _ in 0..100 {
        client_end.note_unreachable(now);
    }
    assert!(client_end.is_in_progress());
    let mut answered = client_end.clone();
    answered.handle(now, &NoFlow, &result(0, 0), &[]);
    assert!(matches!(answered.outcome(), Some(Outcome::Returned(_))));
    loop {
        let due = client_end.next_timer().expect("a call has a timer");
        assert!(due > now, "the answer has time to arrive");
        now = due;
        client_end.handle_timer(now);
        if let Some(outcome) = client_end.outcome() {
            assert_eq!(Some(outcome), failed(Executed::Maybe, FailureReason::Dead));
            break;
        }
        asked += sent(&mut client_end, now).len();
        client_end.note_unreachable(now);
    }
    assert_eq!(asked, 10);
    assert!(now.since(NOW) < SECOND, "hints shorten the wait");
}

#[test]
fn result_larger_than_agreed_ends_the_call() {
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
fn result_is_accepted_in_smaller_pieces_on_the_servers_request() {
    let (mut client_end, now) = (calling(0), NOW);
    client_end.handle(now, &NoFlow, &Header { fragment: 1, ..result(3000, 1) }, &[]);
    let flags = Flags::ALL.with(Flags::REPLIED);
    let larger = Header { flags, piece: 1040, ..all(FIRST) };
    client_end.handle(now, &NoFlow, &larger, &[]);
    // While the call still runs, there is no result that the server could cut into smaller pieces.
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
fn pieces_that_never_arrive_are_reduced() {
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
    // If no piece of a result arrives, the client reduces the size of pieces.
    let (mut client_end, mut now) = (calling(0), NOW);
    let flags = Flags::ALL.with(Flags::REPLIED);
    client_end.handle(now, &NoFlow, &Header { flags, ..all(FIRST) }, &[]);
    let asks = (PacketKind::HaveResult, 0, Flags::REPORT);
    let mut answered = 0;
    while client_end.piece == 1024 {
        let asked = next(&mut client_end, &mut now).1;
        if asked.contains(&PROBE) {
            assert_eq!(asked, [asks, PROBE]);
            // The server answers that it has sent the result.
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

/// If the server stops answering, the client learns nothing about the sizes of pieces that the path can
/// carry. So the client keeps the size of pieces, and presumes the server dead.
#[test]
fn silence_does_not_reduce_pieces() {
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
fn packets_of_other_handles_are_dropped() {
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
