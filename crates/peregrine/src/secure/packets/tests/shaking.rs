//! Handshakes.

use rcgen::date_time_ymd;
use rustls::HandshakeKind;

use super::*;
use crate::secure::tests::{Authority, expected, keys, pair, parameters, with_many_names};
use crate::secure::{Identity, PeerReason, Refusal, tls};

#[test]
fn handshake_without_loss_takes_few_packets() {
    let (client, server, trusts) = pair(Wire::Exchange);
    let mut world = World::new(&client, &server);
    world.run(&mut Dice::new(1), [0, 0]);
    let [one, other] = world.channels();
    assert_eq!((one.id(), other.id()), (ID, ID));
    assert_eq!((one.theirs(), other.theirs()), (&ours(ID), &ours([0; 8])));
    assert!(trusts[0].still_trusts(one.peer()) && trusts[1].still_trusts(other.peer()));
    // HELLO, the first bytes, the end of the handshake, an acknowledgement; and the answers.
    assert_eq!(world.sent, [4, 4], "{:?}", world.log);
    assert!(world.log.iter().all(|(_, packet)| packet.len() <= SHAKE_BYTES_MAX));
    // No answer to a packet in clear is longer than the packet, until the address is proven.
    assert!(world.log[..3].iter().all(|(_, packet)| packet.len() == BIND_BYTES));
}

#[test]
fn handshake_survives_loss_duplication_and_reordering() {
    let (client, server, _) = pair(Wire::Exchange);
    for seed in 0..60 {
        let mut world = World::new(&client, &server);
        world.run(&mut Dice::new(seed), [20, 20]);
        let [one, other] = world.channels();
        assert_eq!(one.id(), other.id(), "seed {seed}");
    }
}

#[test]
fn long_certificates_need_several_packets() {
    let authority = Authority::new("CA");
    let names: Vec<String> = (0..140).map(|at| format!("a{at}.of-a-long-name.example")).collect();
    let mut names: Vec<&str> = names.iter().map(|name| &**name).collect();
    names.push("192.0.2.7");
    let (ada, bob) = (authority.issue(&parameters(&names)), authority.issue(&parameters(&names)));
    let client = tls::client(&ada, &authority.trust(), expected("192.0.2.7"), Wire::Exchange);
    let server = tls::server(&bob, &authority.trust(), Wire::Exchange);
    for seed in 0..20 {
        let lost = if seed == 0 { [0, 0] } else { [15, 15] };
        let mut world = World::new(&client, &server);
        world.run(&mut Dice::new(seed), lost);
        let [one, _] = world.channels();
        assert_eq!(one.peer().dns_names().len(), 140, "seed {seed}");
        // Without loss, the client asks for the rest before any timer.
        assert!(seed > 0 || world.now < Moment(60 * MILLISECOND), "{:?}", world.now);
        client.forget();
    }
}

/// No certificates that can be loaded are too long for a handshake.
#[test]
fn largest_certificates_of_both_ends_fit_into_a_handshake() {
    let authority = Authority::new("CA");
    let issue = |count| authority.try_issue(&with_many_names(count), &[]);
    let largest = (1..).take_while(|count| issue(*count).is_ok()).last().unwrap();
    let [ada, bob] = [(); 2].map(|()| issue(largest).unwrap());
    let client = tls::client(&ada, &authority.trust(), expected("192.0.2.7"), Wire::Exchange);
    let server = tls::server(&bob, &authority.trust(), Wire::Exchange);
    let mut world = World::new(&client, &server);
    world.run(&mut Dice::new(1), [0, 0]);
    world.channels();
}

#[test]
fn handshake_is_resumed() {
    let (client, server, trusts) = pair(Wire::Exchange);
    let shake = || {
        let mut world = World::new(&client, &server);
        world.run(&mut Dice::new(1), [0, 0]);
        world
    };
    assert_eq!(shake().client.tls.handshake_kind(), Some(HandshakeKind::Full));
    let again = shake();
    assert_eq!(again.client.tls.handshake_kind(), Some(HandshakeKind::Resumed));
    let [one, other] = again.channels();
    assert!(trusts[0].still_trusts(one.peer()) && trusts[1].still_trusts(other.peer()));
    // A resumed handshake does not show certificates. A removed key is refused all the same.
    trusts[1].set_keys([]).unwrap();
    let [one, other] = shake().outcomes();
    let is_removed = |refusal: &Refusal| matches!(refusal, Refusal::Removed { .. });
    assert!(matches!(other, Some(Err(Failure::Refused(refusal))) if is_removed(&refusal)));
    let removed = Refusal::RefusedByPeer(PeerReason::Removed);
    assert!(matches!(one, Some(Err(Failure::Refused(refusal))) if refusal == removed));
}

/// Checks that the end `by` refuses the other end for a reason, and that the other end learns it, also if
/// packets are lost.
#[track_caller]
fn refused(
    client: &Client,
    server: &Server,
    by: usize,
    is_right: impl Fn(&Refusal) -> bool,
    reason: PeerReason,
) {
    for seed in 0..8 {
        // A client sends its alert once. So its server learns the reason only if no packet is lost.
        let lost = if seed > 0 && by == 1 { [20, 20] } else { [0, 0] };
        let mut world = World::new(client, server);
        world.run(&mut Dice::new(seed), lost);
        let refusals = world.outcomes().map(|outcome| match outcome {
            Some(Err(Failure::Refused(refusal))) => refusal,
            other => panic!("seed {seed}: {other:?}"),
        });
        assert!(is_right(&refusals[by]), "seed {seed}: {refusals:?}");
        assert_eq!(refusals[1 - by], Refusal::RefusedByPeer(reason), "seed {seed}");
    }
}

#[test]
fn refused_ends_learn_the_reason() {
    let wire = Wire::Exchange;
    let (good, evil) = (Authority::new("CA"), Authority::new("CA"));
    let names = parameters(&["192.0.2.7"]);
    let (mut old, mut young) = (names.clone(), names.clone());
    old.not_after = date_time_ymd(2021, 2, 3);
    young.not_before = date_time_ymd(2980, 4, 5);
    let ada = good.issue(&names);
    let client =
        |identity: &Identity| tls::client(identity, &good.trust(), expected("192.0.2.7"), wire);
    let server = |identity: &Identity| tls::server(identity, &good.trust(), wire);
    type IsRight = fn(&Refusal) -> bool;
    let cases: [(Identity, IsRight, PeerReason); 3] = [
        (
            evil.issue(&names),
            |r| matches!(r, Refusal::WrongAuthority { .. }),
            PeerReason::WrongAuthority,
        ),
        (good.issue(&old), |r| matches!(r, Refusal::Expired { .. }), PeerReason::Expired),
        (good.issue(&young), |r| matches!(r, Refusal::NotYetValid { .. }), PeerReason::NotYetValid),
    ];
    for (bad, is_right, reason) in cases {
        refused(&client(&ada), &server(&bad), 0, is_right, reason);
        refused(&client(&bad), &server(&ada), 1, is_right, reason);
    }
    let other = tls::client(&ada, &good.trust(), expected("192.0.2.8"), wire);
    let is_wrong: IsRight = |r| matches!(r, Refusal::WrongName { .. });
    refused(&other, &server(&ada), 0, is_wrong, PeerReason::WrongName);
    // A client of another protocol, and one that names no protocol.
    let is_other: IsRight = |r| matches!(r, Refusal::OtherProtocol { .. });
    let stream = tls::client(&ada, &good.trust(), expected("192.0.2.7"), Wire::Stream);
    refused(&stream, &server(&ada), 1, is_other, PeerReason::OtherProtocol);
    let mut bare = client(&ada);
    bare.without_protocol();
    refused(&bare, &server(&ada), 1, is_other, PeerReason::OtherProtocol);
    let mut silent = client(&ada);
    silent.show_nothing();
    refused(&silent, &server(&ada), 1, |r| *r == Refusal::NoCertificate, PeerReason::NoCertificate);
    // Keys.
    let [one, two, eve] = [(); 3].map(|()| Identity::generate().unwrap());
    let is_unknown: IsRight = |r| matches!(r, Refusal::UnknownKey { .. });
    let client = tls::client(&one, &keys(&[&two]), expected("192.0.2.7"), wire);
    refused(
        &client,
        &tls::server(&eve, &keys(&[&one]), wire),
        0,
        is_unknown,
        PeerReason::UnknownKey,
    );
    refused(
        &client,
        &tls::server(&two, &keys(&[&eve]), wire),
        1,
        is_unknown,
        PeerReason::UnknownKey,
    );
}

#[test]
fn changed_packets_of_a_handshake_change_nothing() {
    let (client, server, _) = pair(Wire::Exchange);
    let mut model = World::new(&client, &server);
    model.run(&mut Dice::new(3), [0, 0]);
    let mut world = World::new(&client, &server);
    // Each packet arrives once for each byte of it, with this byte changed, before it arrives itself.
    for _ in 0..20 {
        world.poll_client();
        if world.way.is_empty() {
            break;
        }
        let (to_server, packet) = world.way[0].clone();
        for at in 0..packet.len() {
            let mut changed = packet.clone();
            changed[at] ^= 1 << (at % 8);
            let (length, sent) = (world.way.len(), world.sent);
            if to_server {
                world.serve(&mut changed);
            } else {
                assert!(!world.client.receive(world.now, &mut changed), "byte {at}");
            }
            assert_eq!((world.way.len(), world.sent), (length, sent), "byte {at}");
        }
        world.deliver(0);
    }
    world.channels();
    assert_eq!(world.sent, model.sent);
}

#[test]
fn alert_in_clear_is_not_believed_when_there_are_keys() {
    let (client, server, _) = pair(Wire::Exchange);
    let mut world = World::new(&client, &server);
    let forged = |level: shake::Level, alert| {
        let mut out = [0; SHAKE_BYTES_MAX];
        let message = shake::Message {
            cookie: [0; 16],
            level,
            offset: 0,
            received: [9999; 3],
            alert,
            bytes: &[],
        };
        let length = message.emit(NONCE, [1, 1], 0, &mut out);
        out[..length].to_vec()
    };
    for _ in 0..20 {
        world.poll_client();
        if world.way.is_empty() {
            break;
        }
        if let Some(server) = &mut world.server {
            for level in [shake::Level::Clear, shake::Level::Handshake, shake::Level::Application] {
                assert!(!server.receive(world.now, &mut forged(level, Some(49))));
                if world.client.handshake.is_some() {
                    assert!(!world.client.receive(world.now, &mut forged(level, Some(49))));
                    assert!(!world.client.receive(world.now, &mut forged(level, None)));
                }
            }
        }
        world.deliver(0);
    }
    world.channels();
}

#[test]
fn client_of_a_silent_server_gives_up() {
    let (client, server, _) = pair(Wire::Exchange);
    let mut world = World::new(&client, &server);
    world.run(&mut Dice::new(1), [100, 0]);
    assert_eq!(world.sent, [10, 0]);
    assert_eq!(world.now, Moment(MILLISECOND + (100 + 200 + 400 + 800 + 6 * 1000) * MILLISECOND));
    assert!(matches!(world.outcomes()[0], Some(Err(Failure::NoAnswer))));
}

#[test]
fn memory_of_a_handshake_is_bounded() {
    let (_, server, _) = pair(Wire::Exchange);
    let mut end = Shaking::server(&server, &ours(ID), NONCE, Moment(0)).unwrap();
    let mut taken = 0;
    // Bytes with holes, so TLS gets none of them.
    for at in (1..40_000).step_by(1000) {
        let mut out = [0; SHAKE_BYTES_MAX];
        let bytes = [0; 999];
        let message = shake::Message {
            cookie: [0; 16],
            level: shake::Level::Clear,
            offset: at,
            received: [0; 3],
            alert: None,
            bytes: &bytes,
        };
        let length = message.emit(NONCE, [1, 1], 0, &mut out);
        taken += usize::from(end.receive(Moment(0), &mut out[..length]));
    }
    assert!(taken <= shake::RECEIVED_BYTES_MAX / 999, "{taken}");
    assert_eq!(end.next_timer(), Some(Moment(shake::SHAKE_TIME)));
}

#[test]
fn parameters_are_checked() {
    let bytes = ours(ID).to_bytes();
    assert_eq!(Parameters::from_bytes(&bytes), Ok(ours(ID)));
    assert_eq!(Parameters::from_bytes(&[&bytes[..], &[1, 2, 3]].concat()), Ok(ours(ID)));
    assert!((0..bytes.len()).all(|end| Parameters::from_bytes(&bytes[..end]).is_err()));
    let other = [&[bytes[0] - 1], &bytes[1..]].concat();
    assert!(Parameters::from_bytes(&other).unwrap_err().contains("version"));
    let no_piece = [&bytes[..2], &[0, 0], &bytes[4..]].concat();
    assert!(Parameters::from_bytes(&no_piece).is_err());
}
