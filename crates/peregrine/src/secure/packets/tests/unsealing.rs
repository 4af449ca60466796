//! Opening captured packets with a key log.

use proptest::prelude::*;
use ring::hkdf::{self, HKDF_SHA256, HKDF_SHA384, KeyType, Salt};
use rustls::Side;
use rustls::quic::Version;

use super::*;
use crate::protocol::exchange::sealed::Cover;
use crate::secure::key_log::{CLIENT, SERVER};
use crate::secure::tests::{expected, keys};
use crate::secure::{Identity, KeyError, Unsealed, Unsealer, tls};

/// Updates the keys after every third packet.
const SMALL: Limits = Limits { update_after: 3, sealed_max: 64, forged_max: 1000 };

/// Returns the two ends of a connection, the packets of its handshake, and the key log of the client.
fn logged() -> ([Arc<Channel>; 2], Vec<Vec<u8>>, Vec<u8>) {
    let home = tempfile::tempdir().unwrap();
    let log = home.path().join("keys.log");
    let (ada, bob) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    ada.log_keys_to(&log).unwrap();
    let client = tls::client(&ada, &keys(&[&bob]), expected("192.0.2.7"), Wire::Exchange);
    let server = tls::server(&bob, &keys(&[&ada]), Wire::Exchange);
    let mut world = World::new(&client, &server).limited(SMALL);
    world.run(&mut Dice::new(1), [0, 0]);
    let packets = world.log.iter().map(|(_, packet)| packet.clone()).collect();
    (world.channels(), packets, std::fs::read(log).unwrap())
}

/// Returns a packet, sealed, and as it is without seal.
fn sealed(by: &Channel, payload: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut bytes = packet(PacketKind::Call, payload);
    let plain = bytes[..bytes.len() - TAG_BYTES].to_vec();
    by.seal(&mut bytes).unwrap();
    (bytes, plain)
}

const fn count(opened: u64, closed: u64) -> Unsealed {
    Unsealed { opened, closed, handshake: 0, clear: 0 }
}

/// Makes a capture of both directions: packets with numbers as payload, sealed and plain. The keys are updated
/// many times.
fn conversation(ends: &[Arc<Channel>; 2], rounds: u32) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    for number in 0..rounds {
        let from = number as usize % 2;
        let (sealed, plain) = sealed(&ends[from], &number.to_le_bytes().repeat(9));
        assert!(ends[1 - from].open(&mut sealed.clone()).is_some());
        all.push((sealed, plain));
    }
    all
}

#[test]
fn packets_are_opened_through_updates_of_the_keys() {
    let (ends, handshake, log) = logged();
    let mut unsealer = Unsealer::new(&log).unwrap();
    assert_eq!(unsealer.connections(), 1);
    let mut out = Vec::new();
    let mut total = Unsealed::default();
    for packet in &handshake {
        let found = unsealer.unseal(packet, &mut out);
        assert_eq!(&out, packet, "packets of the handshake stay as they are");
        total.handshake += found.handshake;
        total.clear += found.clear;
    }
    assert!(total.handshake > 2 && total.clear > 2, "{total:?}");
    for (sealed, plain) in conversation(&ends, 200) {
        assert_eq!(unsealer.unseal(&sealed, &mut out), count(1, 0));
        assert_eq!(out, plain);
    }
    assert!(ends[0].phase() > 20, "{}", ends[0].phase());
}

#[test]
fn capture_may_begin_after_updates() {
    for skipped in [1, 9, 20] {
        let (ends, _, log) = logged();
        let all = conversation(&ends, 100);
        let mut unsealer = Unsealer::new(&log).unwrap();
        let mut out = Vec::new();
        for (sealed, plain) in &all[skipped..] {
            assert_eq!(unsealer.unseal(sealed, &mut out), count(1, 0), "after {skipped}");
            assert_eq!(&out, plain);
        }
    }
    // Beyond a bound, the keys are not found.
    let (ends, _, log) = logged();
    let all = conversation(&ends, 200);
    assert!(Cover::of(all[199].0.first_chunk().unwrap()).is_some() && ends[0].phase() > 16);
    let mut unsealer = Unsealer::new(&log).unwrap();
    assert_eq!(unsealer.unseal(&all[199].0, &mut Vec::new()), count(0, 1));
}

#[test]
fn packets_that_follow_each_other_are_opened() {
    let (ends, _, log) = logged();
    let mut unsealer = Unsealer::new(&log).unwrap();
    let pairs: Vec<_> = [700, 700, 3].map(|size| sealed(&ends[0], &vec![6; size])).into();
    let mut train = pairs.iter().flat_map(|(sealed, _)| sealed.clone()).collect::<Vec<_>>();
    let plain = pairs.iter().flat_map(|(_, plain)| plain.clone()).collect::<Vec<_>>();
    let mut out = Vec::new();
    assert_eq!(unsealer.unseal(&train, &mut out), count(3, 0));
    assert_eq!(out, plain);
    // One that is damaged stays as it is.
    train[HEADER_BYTES + 700 + TAG_BYTES + 100] ^= 1;
    assert_eq!(unsealer.unseal(&train, &mut out), count(2, 1));
    assert!(out.starts_with(&pairs[0].1) && out.ends_with(&pairs[2].1));
}

#[test]
fn packets_without_keys_stay_as_they_are() {
    let (ends, _, _) = logged();
    let (_, _, other) = logged();
    let (sealed, _) = sealed(&ends[0], b"the arguments");
    for log in [&other[..], b"", b"# a comment\nEXPORTER_SECRET 00 00\n"] {
        let mut unsealer = Unsealer::new(log).unwrap();
        let mut out = vec![1];
        for _ in 0..10 {
            assert_eq!(unsealer.unseal(&sealed, &mut out), count(0, 1));
            assert_eq!(out, sealed);
        }
        assert!(!format!("{unsealer:?}").contains("Secret"));
    }
}

#[test]
fn each_cipher_of_tls_is_opened() {
    struct Length(usize);
    impl KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    // The first keys of QUIC (RFC 9001, section 5.2) are made of a number that both sides know. They are the
    // only ones that rustls gives for each cipher without a handshake.
    const SALT: [u8; 20] = [
        0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8, 0x0c,
        0xad, 0xcc, 0xbb, 0x7f, 0x0a,
    ];
    let all = rustls::crypto::ring::default_provider().cipher_suites;
    let mut tried = 0;
    for suite in all {
        let Some(suite) = suite.tls13() else { continue };
        let name = format!("{:?}", suite.common.suite);
        let (hash, bytes): (hkdf::Algorithm, usize) = match name.ends_with("384") {
            true => (HKDF_SHA384, 48),
            false => (HKDF_SHA256, 32),
        };
        let secret = Salt::new(hash, &SALT).extract(&ID);
        let label = [&[0, bytes as u8, 15][..], b"tls13 client in", &[0]];
        let mut client = vec![0; bytes];
        secret.expand(&label, Length(bytes)).unwrap().fill(&mut client).unwrap();
        let hex: String = client.iter().map(|byte| format!("{byte:02x}")).collect();
        let log = format!("{CLIENT} {} {hex}\n", "ab".repeat(32));

        let keys = suite.quic_suite().unwrap().keys(&ID, Side::Client, Version::V1);
        let mut bytes = packet(PacketKind::Call, b"an argument");
        let plain = bytes[..bytes.len() - TAG_BYTES].to_vec();
        let (header, rest) = bytes.split_first_chunk_mut::<HEADER_BYTES>().unwrap();
        let (payload, tag) = rest.split_last_chunk_mut::<TAG_BYTES>().unwrap();
        Cover { number: 1234, phase: 0 }.put(header);
        let sealed = keys.local.packet.encrypt_in_place(1234, header, payload).unwrap();
        tag.copy_from_slice(sealed.as_ref());
        let mut out = Vec::new();
        let mut unsealer = Unsealer::new(log.as_bytes()).unwrap();
        assert_eq!(unsealer.unseal(&bytes, &mut out), count(1, 0), "{name}");
        assert_eq!(out, plain);
        tried += 1;
    }
    assert_eq!(tried, 3);
}

#[test]
fn damaged_logs_are_refused() {
    let (random, secret) = ("ab".repeat(32), "cd".repeat(32));
    let good = format!("{SERVER} {random} {secret}\r\n\n{CLIENT} {random} {secret}");
    assert_eq!(Unsealer::new(good.as_bytes()).unwrap().connections(), 1);
    for (line, why) in [
        (format!("{CLIENT} {random}"), "a random number and a secret"),
        (format!("{CLIENT} {random} {secret} 00"), "a random number and a secret"),
        (format!("{CLIENT} ab {secret}"), "64 hexadecimal digits"),
        (format!("{CLIENT} {} {secret}", "0g".repeat(32)), "64 hexadecimal digits"),
        (format!("{CLIENT} {random} {secret}00"), "64 or 96 hexadecimal digits"),
        (format!("{CLIENT} {random} {}", "ab".repeat(1000)), "64 or 96 hexadecimal digits"),
    ] {
        let error = Unsealer::new(format!("# log\n{line}").as_bytes()).unwrap_err();
        assert!(matches!(error, KeyError::Invalid { line: 2, .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(why) && !text.contains("cdcd"), "{text}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_taken(bytes: Vec<u8>, at in 0..400usize, change: u8, cut in 0..400usize) {
        let (random, secret) = ("ab".repeat(32), "cd".repeat(32));
        let log = format!("{CLIENT} {random} {secret}");
        let _ = Unsealer::new(&bytes);
        let mut unsealer = Unsealer::new(log.as_bytes()).unwrap();
        let mut out = Vec::new();
        unsealer.unseal(&bytes, &mut out);
        prop_assert_eq!(&out, &bytes);
        let one = packet(PacketKind::Call, &bytes);
        let mut two = [one.clone(), one].concat();
        for packet in [0, two.len() / 2] {
            two[packet + 28] |= 64;
        }
        if let Some(byte) = two.get_mut(at) {
            *byte ^= change;
        }
        two.truncate(two.len().saturating_sub(cut));
        unsealer.unseal(&two, &mut out);
        prop_assert_eq!(&out, &two);
    }
}
