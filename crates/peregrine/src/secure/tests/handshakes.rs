//! Handshakes in memory, over the bytes of a stream and over those of packets. Each refusal is checked on
//! both sides.

use std::fs::Permissions;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use rcgen::{ExtendedKeyUsagePurpose, PKCS_RSA_SHA256, date_time_ymd};
use rustls::quic::{self, Version};
use rustls::sign::CertifiedKey;
use rustls::{ClientConnection, CommonState, HandshakeKind, ServerConnection};

use super::super::refusal::{PeerReason, Refusal};
use super::super::tls::{self, Client, Server, Wire, refused_by_peer};
use super::super::{Identity, IdentityPattern, KeyError, Peer, Trust, TrustedKey};
use super::{Authority, RawKey, expected, keys, pair, parameters};

const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
pub(super) const WIRES: [Wire; 2] = [Wire::Stream, Wire::Exchange];

/// What the client and the server have found out when no more bytes move.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) client: Result<Peer, Refusal>,
    pub(super) server: Result<Peer, Refusal>,
    pub(super) is_resumed: bool,
}

pub(super) fn shake(client: &Client, server: &Server, wire: Wire) -> Ended {
    match wire {
        Wire::Stream => over_stream(client, server),
        Wire::Exchange => over_packets(client, server),
    }
}

fn is_resumed(state: &CommonState) -> bool {
    state.handshake_kind() == Some(HandshakeKind::Resumed)
}

fn over_stream(client: &Client, server: &Server) -> Ended {
    let mut one = ClientConnection::new(Arc::clone(&client.config), client.name(HOST)).unwrap();
    let mut other = ServerConnection::new(Arc::clone(&server.config)).unwrap();
    let (mut refused, mut refused_other) = (None, None);
    loop {
        let mut bytes = Vec::new();
        while one.wants_write() {
            one.write_tls(&mut bytes).unwrap();
        }
        let sent = bytes.len();
        if sent > 0 && refused_other.is_none() {
            let mut rest = &*bytes;
            while !rest.is_empty() && refused_other.is_none() {
                other.read_tls(&mut rest).unwrap();
                refused_other =
                    other.process_new_packets().err().map(|error| server.refusal(&error));
            }
        }
        let mut back = Vec::new();
        while other.wants_write() {
            other.write_tls(&mut back).unwrap();
        }
        let mut rest = &*back;
        while !rest.is_empty() && refused.is_none() {
            one.read_tls(&mut rest).unwrap();
            refused = one.process_new_packets().err().map(|error| client.refusal(&error));
        }
        if sent + back.len() == 0 {
            break;
        }
    }
    Ended {
        client: refused.map_or_else(|| client.peer(&one), Err),
        server: refused_other.map_or_else(|| server.peer(&other), Err),
        is_resumed: is_resumed(&one) && is_resumed(&other),
    }
}

fn over_packets(client: &Client, server: &Server) -> Ended {
    let (config, name) = (Arc::clone(&client.config), client.name(HOST));
    let one = quic::ClientConnection::new(config, Version::V1, name, b"client".to_vec());
    let mut one = quic::Connection::from(one.unwrap());
    let other =
        quic::ServerConnection::new(Arc::clone(&server.config), Version::V1, b"server".to_vec());
    let mut other = quic::Connection::from(other.unwrap());
    let (mut refused, mut refused_other) = (None, None);
    loop {
        let there = pass(&mut one, &mut other, &mut refused, &mut refused_other, |error| {
            server.refusal(error)
        });
        let back = pass(&mut other, &mut one, &mut refused_other, &mut refused, |error| {
            client.refusal(error)
        });
        if !there && !back {
            break;
        }
    }
    Ended {
        client: refused.map_or_else(|| client.peer(&one), Err),
        server: refused_other.map_or_else(|| server.peer(&other), Err),
        is_resumed: is_resumed(&one) && is_resumed(&other),
    }
}

/// Passes what one end has to say to the other end, and an alert back. Returns whether bytes were passed.
fn pass(
    from: &mut quic::Connection,
    to: &mut quic::Connection,
    from_refused: &mut Option<Refusal>,
    to_refused: &mut Option<Refusal>,
    explain: impl Fn(&rustls::Error) -> Refusal,
) -> bool {
    let mut has_passed = false;
    loop {
        let mut bytes = Vec::new();
        let change = from.write_hs(&mut bytes);
        if bytes.is_empty() && change.is_none() {
            return has_passed;
        }
        if bytes.is_empty() || to_refused.is_some() || from_refused.is_some() {
            continue;
        }
        has_passed = true;
        if let Err(error) = to.read_hs(&bytes) {
            *to_refused = Some(explain(&error));
            *from_refused = to.alert().map(refused_by_peer);
        }
    }
}

#[derive(Clone, Copy)]
enum Refuses {
    Client,
    Server,
}

/// Checks that one side refuses with a reason, and that the other side learns it.
#[track_caller]
fn refused(ended: &Ended, who: Refuses, is_right: impl Fn(&Refusal) -> bool, reason: PeerReason) {
    let (one, other) = match who {
        Refuses::Client => (&ended.client, &ended.server),
        Refuses::Server => (&ended.server, &ended.client),
    };
    let found = one.as_ref().expect_err("the peer must be refused");
    assert!(is_right(found), "{found:?}");
    assert_eq!(
        other.as_ref().expect_err("the refusal must arrive"),
        &Refusal::RefusedByPeer(reason)
    );
    // Both texts say more than which kind it is.
    assert!(found.to_string().len() > 20 && Refusal::RefusedByPeer(reason).to_string().len() > 30);
}

#[test]
fn peers_that_trust_each_others_keys_accept_each_other() {
    for wire in WIRES {
        let (client, server, trusts) = pair(wire);
        let ended = shake(&client, &server, wire);
        let (server, client) = (ended.client.unwrap(), ended.server.unwrap());
        assert_eq!((server.name(), client.name()), (Some("a"), Some("a")));
        assert_ne!(server.fingerprint(), client.fingerprint());
        assert!(!server.is_certified() && server.spiffe().is_none() && !ended.is_resumed);
        assert!(trusts[0].still_trusts(&server) && trusts[1].still_trusts(&client));
        assert!(!trusts[1].still_trusts(&server));
    }
}

#[test]
fn unknown_keys_are_refused() {
    for wire in WIRES {
        let [ada, bob, eve] = [(), (), ()].map(|()| Identity::generate().unwrap());
        let client = |identity: &Identity| {
            tls::client(identity, &keys(&[&bob]), expected("192.0.2.7"), wire)
        };
        let server = |identity: &Identity| tls::server(identity, &keys(&[&ada]), wire);
        let of = |key: &Identity| {
            let key = key.public_key();
            move |found: &Refusal| *found == Refusal::UnknownKey { key: key.clone() }
        };
        let ended = shake(&client(&ada), &server(&eve), wire);
        refused(&ended, Refuses::Client, of(&eve), PeerReason::UnknownKey);
        let ended = shake(&client(&eve), &server(&bob), wire);
        refused(&ended, Refuses::Server, of(&eve), PeerReason::UnknownKey);
        let text = ended.server.unwrap_err().to_string();
        assert!(text.contains(&format!("keys trust NAME {}", eve.public_key())), "{text}");
    }
}

#[test]
fn certificates_of_other_authorities_are_refused() {
    let (good, evil) = (Authority::new("same name"), Authority::new("same name"));
    let names = parameters(&["192.0.2.7", "spiffe://example.org/ops/ada"]);
    for wire in WIRES {
        let (ada, bob, eve) = (good.issue(&names), good.issue(&names), evil.issue(&names));
        let client =
            |identity: &Identity| tls::client(identity, &good.trust(), expected("192.0.2.7"), wire);
        let server = |identity: &Identity| tls::server(identity, &good.trust(), wire);
        let ended = shake(&client(&ada), &server(&bob), wire);
        let peer = ended.server.unwrap();
        assert_eq!(peer.to_string(), "spiffe://example.org/ops/ada");
        assert!(peer.is_certified() && ended.client.is_ok());
        assert!("ops/*".parse::<IdentityPattern>().unwrap().matches(&peer));
        assert!("*".parse::<IdentityPattern>().unwrap().matches(&peer));
        assert!(peer.fingerprint().to_string().parse::<IdentityPattern>().unwrap().matches(&peer));
        assert!(!"dev/*".parse::<IdentityPattern>().unwrap().matches(&peer));
        let is_wrong = |found: &Refusal| matches!(found, Refusal::WrongAuthority { .. });
        let ended = shake(&client(&ada), &server(&eve), wire);
        refused(&ended, Refuses::Client, is_wrong, PeerReason::WrongAuthority);
        let ended = shake(&client(&eve), &server(&bob), wire);
        refused(&ended, Refuses::Server, is_wrong, PeerReason::WrongAuthority);
    }
}

#[test]
fn certificates_are_refused_after_and_before_their_time() {
    let authority = Authority::new("CA");
    let good = authority.issue(&parameters(&["192.0.2.7"]));
    let mut old = parameters(&["192.0.2.7"]);
    old.not_after = date_time_ymd(2021, 2, 3);
    let mut young = parameters(&["192.0.2.7"]);
    young.not_before = date_time_ymd(2980, 4, 5);
    for wire in WIRES {
        let client = |identity: &Identity| {
            tls::client(identity, &authority.trust(), expected("192.0.2.7"), wire)
        };
        let server = |identity: &Identity| tls::server(identity, &authority.trust(), wire);
        for (names, date, reason) in [
            (&old, "2021-02-03T00:00:00Z", PeerReason::Expired),
            (&young, "2980-04-05T00:00:00Z", PeerReason::NotYetValid),
        ] {
            let bad = authority.issue(names);
            let is_dated = |found: &Refusal| {
                let is_kind = match found {
                    Refusal::Expired { .. } => reason == PeerReason::Expired,
                    Refusal::NotYetValid { .. } => reason == PeerReason::NotYetValid,
                    _ => false,
                };
                is_kind && found.to_string().contains(date)
            };
            let ended = shake(&client(&good), &server(&bad), wire);
            refused(&ended, Refuses::Client, is_dated, reason);
            let ended = shake(&client(&bad), &server(&good), wire);
            refused(&ended, Refuses::Server, is_dated, reason);
        }
    }
}

#[test]
fn dates_and_names_of_a_listed_key_do_not_count() {
    let authority = Authority::new("unknown to the others");
    let mut old = parameters(&["spiffe://example.org/ops/root", "evil.example"]);
    old.not_after = date_time_ymd(2021, 2, 3);
    for wire in WIRES {
        let (ada, bob) = (authority.issue(&old), authority.issue(&old));
        let client = tls::client(&ada, &keys(&[&bob]), expected("fs.example.org"), wire);
        let server = tls::server(&bob, &keys(&[&ada]), wire);
        let ended = shake(&client, &server, wire);
        let peer = ended.server.unwrap();
        // Nobody has proven what the certificate says about its owner.
        assert_eq!((peer.spiffe(), peer.dns_names(), peer.name()), (None, &[][..], Some("a")));
        assert!(!"ops/*".parse::<IdentityPattern>().unwrap().matches(&peer));
        assert!("a".parse::<IdentityPattern>().unwrap().matches(&peer));
        assert!(!"b".parse::<IdentityPattern>().unwrap().matches(&peer));
        assert_eq!(ended.client.unwrap().to_string(), "a");
    }
}

#[test]
fn a_server_with_another_name_than_expected_is_refused() {
    let authority = Authority::new("CA");
    let names = ["192.0.2.7", "fs.example.org", "*.cluster.example", "spiffe://example.org/fs"];
    let bob = authority.issue(&parameters(&names));
    let ada = authority.issue(&parameters(&[]));
    let key = bob.fingerprint().to_string();
    for wire in WIRES {
        let server = tls::server(&bob, &authority.trust(), wire);
        let shake_as = |text: &str, trust: &Trust| {
            shake(&tls::client(&ada, trust, expected(text), wire), &server, wire)
        };
        for text in [
            "192.0.2.7",
            "fs.example.org",
            "FS.example.org",
            "x.cluster.example",
            "spiffe://example.org/fs",
            &key,
        ] {
            let ended = shake_as(text, &authority.trust());
            assert!(ended.client.is_ok() && ended.server.is_ok(), "{text}: {ended:?}");
        }
        let other = ada.fingerprint().to_string();
        for text in [
            "192.0.2.8",
            "example.org",
            "fs.example.com",
            "x.y.cluster.example",
            "cluster.example",
            "spiffe://example.org/f",
            "spiffe://example.org/fs/x",
            "key:a",
            &other,
        ] {
            let is_wrong = |found: &Refusal| match found {
                Refusal::WrongName { presented, .. } => presented.len() == 3,
                _ => false,
            };
            let ended = shake_as(text, &authority.trust());
            refused(&ended, Refuses::Client, is_wrong, PeerReason::WrongName);
        }
        // A key in the list has the name that the list gives it, and no other of the list.
        let listed = keys(&[&bob, &ada]);
        for (text, is_right) in [("key:a", true), ("other.example", true), ("key:b", false)] {
            assert_eq!(shake_as(text, &listed).client.is_ok(), is_right, "{text}");
        }
        assert!(shake_as(&other, &listed).client.is_err());
    }
}

#[test]
fn a_key_that_was_removed_is_refused() {
    for wire in WIRES {
        let (client, server, [of_client, of_server]) = pair(wire);
        let first = shake(&client, &server, wire);
        let peer = first.server.unwrap();
        let before = of_server.changes();
        of_server.set_keys([]).unwrap();
        assert_ne!(of_server.changes(), before);
        assert!(!of_server.still_trusts(&peer));
        let is_removed =
            |found: &Refusal| *found == Refusal::Removed { key: peer.public_key().clone() };
        let ended = shake(&client, &server, wire);
        refused(&ended, Refuses::Server, is_removed, PeerReason::Removed);
        // It may come back.
        let line = TrustedKey::new("again", peer.public_key().clone(), "").unwrap();
        of_server.set_keys([line]).unwrap();
        assert_eq!(shake(&client, &server, wire).server.unwrap().name(), Some("again"));
        // Under another name it is another peer.
        assert!(!of_server.still_trusts(&peer));
        let peer = first.client.unwrap();
        of_client.set_keys([]).unwrap();
        let is_removed =
            |found: &Refusal| *found == Refusal::Removed { key: peer.public_key().clone() };
        let ended = shake(&client, &server, wire);
        refused(&ended, Refuses::Client, is_removed, PeerReason::Removed);
    }
}

/// Returns an identity whose certificate is replaced by another one, with another key.
fn with_certificate(cert: rustls_pki_types::CertificateDer<'static>) -> Arc<CertifiedKey> {
    let key = Arc::clone(&Identity::generate().unwrap().certified().key);
    Arc::new(CertifiedKey::new(vec![cert], key))
}

#[test]
fn weak_keys_and_purposes_are_refused() {
    let authority = Authority::new("CA");
    // The two numbers of an RSA key of 1024 bits (RFC 8017).
    let mut weak = vec![0x30, 0x81, 0x89, 0x02, 0x81, 0x81, 0x00];
    weak.extend([0xc5; 128]);
    weak.extend([0x02, 0x03, 0x01, 0x00, 0x01]);
    let weak = authority.certify(&RawKey(weak, &PKCS_RSA_SHA256));
    let good = authority.issue(&parameters(&["192.0.2.7"]));
    for wire in WIRES {
        let why = |text: &'static str| {
            move |found: &Refusal| {
                matches!(found, Refusal::Unsupported { .. }) && found.to_string().contains(text)
            }
        };
        let client = |identity: &Identity| {
            tls::client(identity, &authority.trust(), expected("192.0.2.7"), wire)
        };
        let server = |identity: &Identity| tls::server(identity, &authority.trust(), wire);
        let mut bad = server(&good);
        bad.show(with_certificate(weak.clone()));
        let ended = shake(&client(&good), &bad, wire);
        refused(&ended, Refuses::Client, why("1024 bits"), PeerReason::Unsupported);
        let mut bad = client(&good);
        bad.show(with_certificate(weak.clone()));
        let ended = shake(&bad, &server(&good), wire);
        refused(&ended, Refuses::Server, why("1024 bits"), PeerReason::Unsupported);
        // A certificate for servers only is none for a client, and the reverse.
        let mut only = parameters(&["192.0.2.7"]);
        only.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let ended = shake(&client(&authority.issue(&only)), &server(&authority.issue(&only)), wire);
        refused(&ended, Refuses::Server, why(""), PeerReason::Unsupported);
        only.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let ended = shake(&client(&good), &server(&authority.issue(&only)), wire);
        refused(&ended, Refuses::Client, why(""), PeerReason::Unsupported);
    }
}

#[test]
fn a_client_without_a_certificate_is_refused() {
    for wire in WIRES {
        let (mut client, server, _) = pair(wire);
        client.show_nothing();
        let ended = shake(&client, &server, wire);
        let is_none = |found: &Refusal| *found == Refusal::NoCertificate;
        refused(&ended, Refuses::Server, is_none, PeerReason::NoCertificate);
    }
}

#[test]
fn a_certificate_without_its_private_key_is_of_no_use() {
    for wire in WIRES {
        let (ada, bob) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let mut thief = tls::client(&ada, &keys(&[&bob]), expected("192.0.2.7"), wire);
        thief.show(with_certificate(ada.certified().cert[0].clone()));
        let server = tls::server(&bob, &keys(&[&ada]), wire);
        let ended = shake(&thief, &server, wire);
        let is_thief = |found: &Refusal| match found {
            Refusal::Broken { why } => why.contains("does not have the private key"),
            _ => false,
        };
        refused(&ended, Refuses::Server, is_thief, PeerReason::Alert(51));
    }
}

#[test]
fn handshakes_for_packets_are_none_for_streams() {
    let (client, _, _) = pair(Wire::Exchange);
    let (stream, server, _) = pair(Wire::Stream);
    let ended = over_stream(&client, &server);
    let is_other = |found: &Refusal| matches!(found, Refusal::OtherProtocol { .. });
    refused(&ended, Refuses::Server, is_other, PeerReason::OtherProtocol);
    // rustls itself accepts a client that names no protocol at all.
    let mut bare = stream.clone();
    bare.without_protocol();
    let ended = over_stream(&bare, &server);
    assert!(matches!(ended.server, Err(Refusal::OtherProtocol { .. })), "{ended:?}");
}

#[test]
fn bytes_that_are_no_tls_are_another_protocol() {
    let (_, server, _) = pair(Wire::Stream);
    for text in
        [&b"GET / HTTP/1.1\r\nhost: example.org\r\n\r\n"[..], &[0; 64], b"PEREGRINE 1\n12345678"]
    {
        let mut end = ServerConnection::new(Arc::clone(&server.config)).unwrap();
        end.read_tls(&mut &*text).unwrap();
        let error = end.process_new_packets().unwrap_err();
        let found = server.refusal(&error);
        assert!(matches!(found, Refusal::OtherProtocol { .. }), "{found:?}");
    }
}

#[test]
fn each_alert_has_a_reason() {
    let all = (0..=u8::MAX).map(|number| refused_by_peer(number.into()).to_string());
    let all: std::collections::HashSet<_> = all.collect();
    // Three alerts say that the protocol is another one.
    assert_eq!(all.len(), 254);
    assert!(all.iter().all(|text| text.starts_with("the peer refused: ")));
}

#[test]
fn keys_are_not_logged() {
    let (client, server, _) = pair(Wire::Stream);
    assert!(!client.config.key_log.will_log("CLIENT_TRAFFIC_SECRET_0"));
    assert!(!server.config.key_log.will_log("CLIENT_TRAFFIC_SECRET_0"));
    assert!(!client.config.enable_early_data && server.config.max_early_data_size == 0);
}

#[test]
fn keys_are_logged_on_request_by_either_side() {
    let home = tempfile::tempdir().unwrap();
    for wire in WIRES {
        let (ada, bob) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let files = [0, 1].map(|side| home.path().join(format!("{wire:?}{side}")));
        let client = tls::client(&ada, &keys(&[&bob]), expected("192.0.2.7"), wire);
        // The file may be named before or after the program has begun to use the identity.
        ada.log_keys_to(&files[0]).unwrap();
        bob.log_keys_to(&files[1]).unwrap();
        let server = tls::server(&bob, &keys(&[&ada]), wire);
        shake(&client, &server, wire).client.unwrap();
        let logs = files.map(|file| {
            let mode = std::fs::metadata(&file).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            let text = std::fs::read_to_string(file).unwrap();
            let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        });
        assert_eq!(logs[0], logs[1]);
        let labels: Vec<_> = logs[0].iter().map(|line| line.split(' ').next().unwrap()).collect();
        let mut all = crate::secure::key_log::LABELS;
        all.sort_unstable();
        assert_eq!(labels, all);
    }
    let ada = Identity::generate().unwrap();
    let open = home.path().join("open");
    std::fs::write(&open, "").unwrap();
    std::fs::set_permissions(&open, Permissions::from_mode(0o640)).unwrap();
    let refused = ada.log_keys_to(&open).unwrap_err();
    assert!(refused.to_string().contains("chmod 600"), "{refused}");
    let refused = ada.log_keys_to(home.path().join("none/keys.log")).unwrap_err();
    assert!(matches!(refused, KeyError::System { .. }), "{refused}");
    let refused = ada.log_keys_to("/dev/null").unwrap_err();
    assert!(matches!(refused, KeyError::Invalid { .. }), "{refused}");
    assert!(ada.problem().is_none());
}
