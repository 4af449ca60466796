//! Packets after the handshake.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::protocol::exchange::sealed::Cover;

const SMALL: Limits = Limits { update_after: 8, sealed_max: 64, forged_max: 1000 };

fn sealed(by: &Channel, kind: PacketKind, payload: &[u8]) -> Vec<u8> {
    let mut packet = packet(kind, payload);
    by.seal(&mut packet).unwrap();
    packet
}

/// Sends a packet, and checks that it arrives.
#[track_caller]
fn pass(from: &Channel, to: &Channel) {
    let mut packet = sealed(from, PacketKind::Call, b"payload");
    assert_eq!(to.open(&mut packet), Some(HEADER_BYTES + 7));
}

#[test]
fn every_size_is_opened_as_it_was_sealed() {
    let ends = connected(None);
    let mut dice = Dice::new(5);
    for size in (0..2000).chain([4096, 8192, 65_000]) {
        let payload: Vec<u8> = (0..size).map(|_| dice.below(256) as u8).collect();
        let [from, to] = if size % 2 == 0 { [0, 1] } else { [1, 0] };
        let plain = packet(PacketKind::Result, &payload);
        let mut packet = sealed(&ends[from], PacketKind::Result, &payload);
        assert_eq!(packet.len(), plain.len());
        assert!(size < 16 || packet[HEADER_BYTES..][..size] != payload);
        assert_eq!(ends[to].open(&mut packet), Some(HEADER_BYTES + size));
        assert_eq!(packet[..HEADER_BYTES + size], plain[..HEADER_BYTES + size]);
    }
    assert_eq!(ends.map(|end| end.forged()), [0, 0]);
}

#[test]
fn changed_packets_are_refused() {
    let [one, other] = connected(None);
    let packet = sealed(&one, PacketKind::Call, b"some payload of a call");
    let mut refused = 0;
    for at in 0..packet.len() {
        for bit in 0..8 {
            let mut changed = packet.clone();
            changed[at] ^= 1 << bit;
            assert_eq!(other.open(&mut changed), None, "byte {at}, bit {bit}");
            refused += 1;
        }
    }
    for length in 0..packet.len() {
        assert_eq!(other.open(&mut packet[..length].to_vec()), None, "{length} bytes");
    }
    assert!(other.forged() > 0 && other.forged() <= refused + packet.len() as u64);
    // Each side has its own keys, and so does each connection.
    assert_eq!(one.open(&mut packet.clone()), None);
    let [_, third] = connected(None);
    assert_eq!(third.open(&mut packet.clone()), None);
    // All that has changed nothing.
    assert_eq!((one.phase(), other.phase()), (0, 0));
    assert!(other.open(&mut packet.clone()).is_some());
    pass(&one, &other);
    pass(&other, &one);
}

#[test]
fn request_to_bind_is_taken_once() {
    let [one, other] = connected(None);
    let binds: Vec<_> = (0..40).map(|_| sealed(&one, PacketKind::Bind, b"bind")).collect();
    let call = sealed(&one, PacketKind::Call, b"call");
    for bind in binds.iter().rev() {
        assert!(other.open(&mut bind.clone()).is_some());
    }
    assert!(binds.iter().all(|bind| other.open(&mut bind.clone()).is_none()));
    // Other packets are protected by their sequences.
    assert!(other.open(&mut call.clone()).is_some() && other.open(&mut call.clone()).is_some());
    assert_eq!(other.forged(), 0);
}

/// The direction, the number of the keys, and the number of the packet.
fn used(channel: usize, packet: &[u8]) -> (usize, u64, u32) {
    let cover = Cover::of(packet.first_chunk().unwrap()).unwrap();
    (channel, cover.phase, cover.number)
}

#[test]
fn no_key_and_number_are_used_twice() {
    let ends = connected(Some(SMALL));
    let (mut seen, mut dice) = (BTreeSet::new(), Dice::new(11));
    let mut way: Vec<(usize, Vec<u8>)> = Vec::new();
    let (mut opened, mut sent) = (0, 0);
    for _ in 0..4000 {
        let from = dice.below(2) as usize;
        if dice.below(2) == 0 {
            // The same packet again is a retransmission.
            let packet = sealed(&ends[from], PacketKind::Call, b"again");
            assert!(seen.insert(used(from, &packet)), "{:?}", used(from, &packet));
            sent += 1;
            if dice.below(10) > 0 {
                way.push((1 - from, packet));
            }
        } else if !way.is_empty() {
            // Mostly in order: a packet is late by at most some others.
            let at = dice.below(4).min(way.len() as u64 - 1) as usize;
            let (to, mut packet) = way.remove(at);
            opened += usize::from(ends[to].open(&mut packet).is_some());
        }
    }
    assert!(ends.iter().all(|end| end.phase() > 20), "{} {}", ends[0].phase(), ends[1].phase());
    assert!(ends[0].phase().abs_diff(ends[1].phase()) <= 1);
    // All numbers of a direction differ, under whichever keys.
    let numbers: BTreeSet<_> = seen.iter().map(|(from, _, number)| (*from, *number)).collect();
    assert_eq!(numbers.len(), seen.len());
    assert!(opened * 10 > sent * 8, "{opened} of {sent}");
}

#[test]
fn each_side_updates_keys() {
    for first in [0, 1] {
        let ends = connected(Some(SMALL));
        let (one, other) = (&ends[first], &ends[1 - first]);
        pass(other, one);
        let late = sealed(other, PacketKind::Result, b"late");
        let early = sealed(one, PacketKind::Call, b"early");
        while one.phase() == 0 {
            pass(one, other);
        }
        assert_eq!((one.phase(), other.phase()), (1, 1));
        // Late packets of the old phase are opened, also after packets of the new one.
        pass(other, one);
        pass(one, other);
        assert!(one.open(&mut late.clone()).is_some());
        assert!(other.open(&mut early.clone()).is_some());
        // After another update, they are not.
        while one.phase() == 1 {
            pass(one, other);
            pass(other, one);
        }
        assert!(one.open(&mut late.clone()).is_none());
        assert_eq!(one.phase(), other.phase());
        (0..1000).for_each(|_| {
            pass(one, other);
            pass(other, one);
        });
        assert!(one.phase() > 50 && one.phase() == other.phase());
    }
}

#[test]
fn both_sides_update_keys_at_once() {
    let [one, other] = connected(Some(SMALL));
    pass(&one, &other);
    pass(&other, &one);
    for round in 1..50 {
        let mut way = Vec::new();
        while one.phase() < round {
            way.push((&other, sealed(&one, PacketKind::Call, b"x")));
        }
        while other.phase() < round {
            way.push((&one, sealed(&other, PacketKind::Call, b"x")));
        }
        // The first packets of the new phase cross.
        for (to, packet) in &mut way {
            assert!(to.open(packet).is_some());
        }
        assert_eq!((one.phase(), other.phase()), (round, round));
        pass(&one, &other);
        pass(&other, &one);
    }
}

#[test]
fn keys_are_updated_again_only_after_an_answer() {
    let [one, other] = connected(Some(SMALL));
    pass(&other, &one);
    let mut packets = Vec::new();
    let mut packet = packet(PacketKind::Call, b"x");
    while one.seal(&mut packet).is_ok() {
        packets.push(packet.clone());
        packet = super::packet(PacketKind::Call, b"x");
    }
    // The first keys were used `update_after` times and the next ones `sealed_max` times.
    assert_eq!((one.phase(), one.has_ended()), (1, true));
    assert_eq!(packets.len() as u64 + 1, SMALL.update_after + SMALL.sealed_max);
    assert!(packets.iter().all(|packet| other.open(&mut packet.clone()).is_some()));
    assert_eq!(other.phase(), 1);
}

#[test]
fn peer_that_updates_keys_without_an_answer_is_ignored() {
    let ends = connected(Some(SMALL));
    // This side has sealed nothing under the second keys. So nobody can have received that.
    let [one, other] = [&ends[0], &ends[1]];
    pass(other, one);
    while one.phase() == 0 {
        pass(one, other);
    }
    let phase = other.phase();
    one.update(one.phase(), true);
    let mut packet = sealed(one, PacketKind::Call, b"x");
    assert_eq!((other.open(&mut packet), other.phase()), (None, phase));
}

#[test]
fn too_many_forged_packets_end_the_connection() {
    let [one, other] = connected(Some(Limits { forged_max: 10, ..SMALL }));
    let packet = sealed(&one, PacketKind::Call, b"x");
    for forged in 1..=10 {
        assert!(!other.has_ended());
        let mut changed = packet.clone();
        changed[70] ^= 1;
        assert_eq!((other.open(&mut changed), other.forged()), (None, forged));
    }
    assert!(other.has_ended() && other.open(&mut packet.clone()).is_none());
    assert!(other.seal(&mut super::packet(PacketKind::Call, b"x")).is_err());
}

#[test]
fn connection_that_was_ended_seals_and_opens_nothing() {
    let [one, other] = connected(None);
    let mut packet = sealed(&one, PacketKind::Call, b"x");
    other.end();
    assert!(other.open(&mut packet).is_none());
    assert!(other.seal(&mut super::packet(PacketKind::Call, b"x")).is_err());
}

#[test]
fn threads_seal_and_open_at_once() {
    let limits = Limits { update_after: 100, sealed_max: 1 << 20, forged_max: 1000 };
    let ends = connected(Some(limits));
    // An end updates its keys only if the other one has used them. So no end may be far ahead.
    let round = std::sync::Barrier::new(4);
    let work = |from: &Channel, to: &Channel| {
        let mut numbers = Vec::new();
        for number in 0..2000 {
            if number % 50 == 0 {
                round.wait();
            }
            let mut packet = sealed(from, PacketKind::Call, b"payload");
            numbers.push(used(0, &packet).2);
            // A thread may stop between sealing and opening, while others update the keys more than once.
            let _ = to.open(&mut packet);
        }
        numbers
    };
    let [one, other] = [&ends[0], &ends[1]];
    let numbers = std::thread::scope(|scope| {
        let threads = [(one, other), (one, other), (other, one), (other, one)]
            .map(|(from, to)| scope.spawn(move || work(from, to)));
        threads.map(|thread| thread.join().unwrap())
    });
    for pair in [&numbers[..2], &numbers[2..]] {
        let all: BTreeSet<_> = pair.iter().flatten().collect();
        assert_eq!(all.len(), 4000);
    }
    let phases = [one.phase(), other.phase()];
    assert!(phases[0] > 10 && phases[0].abs_diff(phases[1]) <= 1, "{phases:?}");
    pass(one, other);
    pass(other, one);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn no_bytes_are_a_sealed_packet(packets in proptest::collection::vec(
        proptest::collection::vec(any::<u8>(), 0..300), 1..20,
    )) {
        let [one, other] = connected(None);
        for mut packet in packets {
            prop_assert_eq!(one.open(&mut packet.clone()), None);
            if let Some(header) = packet.first_chunk_mut() {
                Cover { number: 3, phase: 1 }.put(header);
            }
            prop_assert_eq!(one.open(&mut packet), None);
        }
        prop_assert_eq!(one.phase(), 0);
        pass(&other, &one);
    }
}
