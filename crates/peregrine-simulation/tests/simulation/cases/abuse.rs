//! Simulates cases 54 to 56: invalid packets, and servers with too few places for the records of all clients.
//! A record is what a server keeps about one client activity.

use std::collections::HashSet;

use super::*;
use crate::exchange::client_end::DropReason;
use crate::exchange::header::{CONTROL_BYTES_MAX, HEADER_BYTES, Handle, checksum};
use crate::exchange::message::Shape;
use crate::exchange::server_end::{Action, Retain};
use crate::exchange::time::{MILLISECOND, Moment};
use crate::network::{Link, machine_of};
use crate::random::Random;
use crate::world::Event;

#[test]
fn case_54_other_arguments_with_the_same_number_are_not_executed() {
    let (mut client_end, mut server_end, flow) = crate::cost::pair([1; 12]);
    let mut out = [0; CONTROL_BYTES_MAX];
    client_end.begin(Shape::default()).expect("the client end is free");
    client_end.poll_send(Moment(0), &flow, &mut out).expect("a call packet is due");
    let call = Header::parse(out.first_chunk().expect("a header"), 0).expect("a valid header");
    assert_eq!(server_end.handle(Moment(0), &flow, &call, &[]).action, Action::Execute(0..0));
    let other = Header { shape: Shape { what: 9, ..call.shape }, ..call };
    let effect = server_end.handle(Moment(0), &flow, &other, &[]);
    assert_eq!(effect.action, Action::Dropped(DropReason::Violation));
}

#[test]
fn case_55_damaged_packets_are_dropped() {
    let mut world = world(&[Plan { total: 5000, result: 5000, ..NULL }; 100]);
    let bad = Link { corrupt: 200, truncate: 100, ..Link::PERFECT };
    (world.to_server, world.to_client) = (bad.clone(), bad);
    finish(&mut world);
    let ok = world.oracle.count(|ending| ending == Ending::Ok);
    assert!(ok >= 98, "{ok}");
    let dropped = world.server().map_or(0, |server| server.dropped);
    assert!(dropped > 100, "{dropped}");
}

/// During honest calls, the attacker sends noise, forged headers, and valid packets from forged addresses.
#[test]
fn host_without_a_handle_can_do_nothing() {
    let mut world = world(&[Plan { total: 3000, result: 3000, ..NULL }; 300]);
    world.attacks_until = 10 * SECOND;
    world.at(0, Event::Attack);
    for n in 1..200 {
        world.at(n * 50_000, Event::Attack);
    }
    finish(&mut world);
    assert!(world.oracle.all_ok());
    assert!(world.server().is_some_and(|server| server.dropped > 500));
}

#[test]
fn case_56_results_are_evicted_late_and_never_computed_again() {
    let server = ServerOptions { places: 2, share: 2, ..SERVER_OPTIONS };
    let client = ClientOptions { pause: 1, ..LASTING };
    let mut world = world_of(&[vec![NULL], vec![NULL]], server, client);
    // Client 1 makes two calls, one in each of its activities. Both results are lost, and the machine of
    // client 1 stops before the calls fail.
    world.script = Some(Box::new(|now, packet, header| {
        let lost =
            header.kind == PacketKind::Result && machine_of(packet.to) == 1 && now < 90 * SECOND;
        if lost { Fate::Drop } else { Fate::Pass }
    }));
    world.later(500 * MILLISECOND, crate::world::Change::Stop(1));
    world.run_until(10 * SECOND);
    world.start(2, &[vec![Plan { result: 10, ..NULL }]]);
    world.run_until(50 * SECOND);
    // Client 1 may still ask for both results. So the server evicts neither of their records for client 2.
    assert_eq!(world.oracle.calls[2].began, None);
    world.run_until(100 * SECOND);
    assert_eq!(ending(&world, 2), Some(Ending::Ok));
    world.later(0, crate::world::Change::Continue(1));
    world.run_until(200 * SECOND);
    check(&world);
    assert_eq!([executions(&world, 0), executions(&world, 1)], [1, 1]);
    // The server evicted one of the two records, so the call of that record is refused. The server still has
    // the result in the other record.
    let both = [ending(&world, 0), ending(&world, 1)];
    assert!(
        both.contains(&Some(Ending::Failed(Executed::Maybe, FailureReason::Refused))),
        "{both:?}"
    );
    assert!(both.contains(&Some(Ending::Ok)), "{both:?}");
}

/// The server forgets a client's idle record. The client binds again, and recognizes that the server is the
/// same one.
#[test]
fn forgotten_client_binds_to_the_same_server_again() {
    let server = ServerOptions { places: 1, share: 1, ..SERVER_OPTIONS };
    let client = ClientOptions { pause: 1, ..LASTING };
    let mut world = world_of(&[vec![NULL]], server, client);
    finish(&mut world);
    world.start(2, &[vec![NULL]]);
    world.run_until(10 * SECOND);
    let [evicted, again] = [NULL; 2].map(|plan| world.oracle.plan(plan));
    let now = world.now;
    let activity = &mut world.clients[0].as_mut().expect("a client").activities[0];
    activity.todo.extend([evicted, again]);
    activity.wake = now;
    world.at(now, Event::Wake(1, 0));
    world.run_until(20 * SECOND);
    check(&world);
    let not_executed = Ending::Failed(Executed::No, FailureReason::Refused);
    assert_eq!([ending(&world, 2), ending(&world, 3)], [Some(not_executed), Some(Ending::Ok)]);
    assert_eq!(world.oracle.bound_again, [1, 0]);
}

/// Returns a random but valid header, and the bitmap that follows it. The header has the right handle. Its
/// call number is close to `near`, the number of the current call.
fn any_packet(random: &mut Random, near: u32) -> (Header, Vec<u8>) {
    let kinds = [
        PacketKind::Call,
        PacketKind::Result,
        PacketKind::HaveCall,
        PacketKind::HaveResult,
        PacketKind::Probe,
        PacketKind::Cancel,
        PacketKind::Released,
        PacketKind::Bye,
        PacketKind::Refused,
        PacketKind::Ask,
    ];
    let rare = [PacketKind::Bye, PacketKind::Refused];
    let mut kind = *random.pick(&kinds);
    if rare.contains(&kind) && !random.chance(50) {
        kind = PacketKind::Probe;
    }
    let any = |random: &mut Random| match random.below(4) {
        0 => random.next() as u32,
        1 => random.below(3_000_000) as u32,
        _ => random.below(5000) as u32,
    };
    let total = any(random);
    let shape =
        Shape { what: 7, total, head: any(random) % 50, at: any(random) % 50, extension: 0 };
    let piece = 16 * random.pick(&[32, 33, 64, 88, 4090]);
    let mut flags = Flags::NONE;
    for flag in [Flags::REPORT, Flags::RESENT, Flags::ALL, Flags::REPLIED, Flags::ELSEWHERE] {
        flags = flags.with_if(random.chance(250), flag);
    }
    let length = if random.chance(500) { random.below(129) } else { random.below(3) };
    let bitmap: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
    let has_bitmap =
        matches!(kind, PacketKind::HaveCall | PacketKind::HaveResult) && !bitmap.is_empty();
    let handle = Handle { place: 0, secret: [1; 12] };
    let header = Header {
        flags: flags.with_if(has_bitmap, Flags::CHECKED),
        serial: random.next() as u16,
        echo: random.below(40) as u16,
        shape,
        fragment: any(random) % 4000,
        piece,
        credits: random.next() as u16,
        check: checksum(&bitmap),
        ..Header::new(kind, handle, near.wrapping_add(random.below(5) as u32).wrapping_sub(2))
    };
    (header, if has_bitmap { bitmap } else { Vec::new() })
}

/// A host that knows a handle may send any packets. Nothing may panic or run without end, and no call number
/// may be executed twice.
#[test]
fn host_with_a_handle_can_harm_only_that_handle() {
    for seed in 0..400 {
        let random = &mut Random::new(seed);
        let (mut client_end, mut server_end, flow) = crate::cost::pair([1; 12]);
        let (mut ran, mut out) = (HashSet::new(), [0; CONTROL_BYTES_MAX]);
        let mut now = Moment(1);
        for _ in 0..200 {
            let (header, bitmap) = any_packet(random, client_end.sequence());
            let mut bytes = [0; HEADER_BYTES];
            header.emit(&mut bytes);
            let payload_bytes = if header.kind.carries() {
                let cut = header.fragments();
                let fragment = header.fragment % cut.count();
                Header { fragment, ..header }.emit(&mut bytes);
                cut.range(fragment).len()
            } else {
                bitmap.len()
            };
            let Ok(header) = Header::parse(&bytes, payload_bytes) else { continue };
            now = now.after(random.below(SECOND));
            if server_end.accepts(&header, 5) {
                match server_end.handle(now, &flow, &header, &bitmap).action {
                    Action::Execute(_) => {
                        assert!(
                            ran.insert(server_end.sequence()),
                            "a number was executed twice, seed {seed}"
                        );
                    }
                    Action::Forget => server_end.forget(),
                    _ => {}
                }
            }
            if random.chance(300) {
                let result = Shape { total: random.below(9000) as u32, ..Shape::default() };
                if server_end.complete(result) == Retain::Forget {
                    server_end.forget();
                }
            }
            if random.chance(300) {
                server_end.check_caller(now);
            }
            client_end.handle(now, &flow, &header, &bitmap);
            client_end.handle_timer(now);
            if random.chance(100) {
                client_end.cancel(now);
            }
            client_end.outcome();
            let _ =
                client_end.begin(Shape { total: random.below(99_000) as u32, ..Shape::default() });
            let sent = std::iter::from_fn(|| client_end.poll_send(now, &flow, &mut out))
                .take(2000)
                .count();
            let answered = std::iter::from_fn(|| server_end.poll_send(now, &flow, &mut out))
                .take(2000)
                .count();
            assert!(sent < 2000 && answered < 2000, "an end sends without limit, seed {seed}");
        }
    }
}
