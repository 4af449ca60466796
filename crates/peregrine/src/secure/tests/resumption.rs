//! Handshakes that are resumed, and when they must not be.

use std::time::{Duration, SystemTime};

use rcgen::date_time_ymd;
use rustls::server::StoresServerSessions as _;

use super::super::refusal::{PeerReason, Refusal};
use super::super::sessions::ServerSessions;
use super::super::tls::{self, Wire};
use super::super::{Identity, KeyDirectory, Overwrite};
use super::handshakes::{WIRES, shake};
use super::{Authority, expected, keys, lines, pair, parameters};
use crate::limits;

#[test]
fn second_handshakes_are_resumed_with_the_same_peers() {
    for wire in WIRES {
        let (client, server, _) = pair(wire);
        let first = shake(&client, &server, wire);
        let second = shake(&client, &server, wire);
        assert!(!first.is_resumed && second.is_resumed, "{second:?}");
        assert_eq!(first.client, second.client);
        assert_eq!(first.server, second.server);
    }
}

#[test]
fn each_change_of_the_trust_ends_all_sessions() {
    for wire in WIRES {
        let (client, server, [_, of_server]) = pair(wire);
        let first = shake(&client, &server, wire);
        let key = first.server.unwrap().public_key().clone();
        of_server.set_keys([]).unwrap();
        let ended = shake(&client, &server, wire);
        assert_eq!(ended.server.unwrap_err(), Refusal::Removed { key });
        assert_eq!(ended.client.unwrap_err(), Refusal::RefusedByPeer(PeerReason::Removed));
        // The client's list changes, but not for this server: the next handshake is a full one.
        let (client, server, trusts) = pair(wire);
        let server_key = shake(&client, &server, wire).client.unwrap().public_key().clone();
        let more = Identity::generate().unwrap();
        let old = trusts[0].key_of("a").unwrap();
        assert_eq!(*old.key(), server_key);
        let mut new = lines(&[&more, &more]);
        new.remove(0);
        new.push(old);
        trusts[0].set_keys(new).unwrap();
        let ended = shake(&client, &server, wire);
        assert!(!ended.is_resumed && ended.client.is_ok() && ended.server.is_ok(), "{ended:?}");
        assert!(shake(&client, &server, wire).is_resumed);
    }
}

#[test]
fn a_new_certificate_ends_all_sessions_and_is_shown() {
    for wire in WIRES {
        let dir = tempfile::tempdir().unwrap();
        let directory = KeyDirectory::at(dir.path().join("keys"));
        let (ada, bob, next) = (
            Identity::generate().unwrap(),
            Identity::generate().unwrap(),
            Identity::generate().unwrap(),
        );
        directory.save(&ada, Overwrite::No).unwrap();
        let loaded = directory.identity().unwrap();
        let client = tls::client(&loaded, &keys(&[&bob]), expected("192.0.2.7"), wire);
        let server = tls::server(&bob, &keys(&[&ada, &next]), wire);
        assert_eq!(shake(&client, &server, wire).server.unwrap().name(), Some("a"));
        assert!(shake(&client, &server, wire).is_resumed);
        directory.save(&next, Overwrite::Yes).unwrap();
        let ended = shake(&client, &server, wire);
        assert!(!ended.is_resumed, "{ended:?}");
        assert_eq!(ended.server.unwrap().name(), Some("b"));
        assert_eq!(loaded.fingerprint(), next.fingerprint());
    }
}

#[test]
fn a_peer_that_is_refused_after_a_resumed_handshake_cannot_resume_again() {
    let authority = Authority::new("CA");
    let names = parameters(&["192.0.2.7"]);
    // A busy machine may need longer for the first handshakes than the certificate is valid.
    let made = |seconds| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let end = now + Duration::from_secs(seconds);
        let mut short = names.clone();
        short.not_after = date_time_ymd(1970, 1, 1) + end;
        let (lasting, expiring) = (authority.issue(&names), authority.issue(&short));
        let cases = WIRES.map(|wire| {
            [[&expiring, &lasting], [&lasting, &expiring]].map(|[ada, bob]| {
                let client = tls::client(ada, &authority.trust(), expected("192.0.2.7"), wire);
                let server = tls::server(bob, &authority.trust(), wire);
                let handshakes = [(); 2].map(|()| shake(&client, &server, wire));
                (client, server, wire, handshakes)
            })
        });
        // Certificates have no parts of seconds.
        let is_over = SystemTime::UNIX_EPOCH + end < SystemTime::now() + Duration::from_secs(1);
        (!is_over).then_some(cases)
    };
    let cases = [4, 16, 64].into_iter().find_map(made).expect("a machine that is less busy");
    for (.., [first, second]) in cases.iter().flatten() {
        assert!(first.server.is_ok() && first.client.is_ok(), "{first:?}");
        assert!(second.is_resumed && second.server.is_ok() && second.client.is_ok(), "{second:?}");
    }
    for (at, (client, server, wire, _)) in cases.iter().flatten().enumerate() {
        // A change of the trust would end all sessions. Only the time changes.
        let ended = loop {
            let ended = shake(client, server, *wire);
            assert!(ended.is_resumed, "{ended:?}");
            if ended.server.is_err() || ended.client.is_err() {
                break ended;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let refused = if at % 2 == 0 { ended.server } else { ended.client };
        assert!(matches!(refused, Err(Refusal::Expired { .. })), "{refused:?}");
        // The side that has refused makes full handshakes only, and these are refused, too.
        let again = shake(client, server, *wire);
        assert!(!again.is_resumed, "{again:?}");
        let refused = if at % 2 == 0 { again.server } else { again.client };
        assert!(matches!(refused, Err(Refusal::Expired { .. })), "{refused:?}");
    }
}

#[test]
fn sessions_are_bounded_in_size_number_and_time() {
    let (identity, trust) = (Identity::generate().unwrap(), keys(&[]));
    let sessions = ServerSessions::new(&trust, &identity);
    let key = |number: usize| number.to_be_bytes().to_vec();
    assert!(!sessions.put(key(0), vec![0; limits::TLS_SESSION_BYTES_MAX + 1]));
    assert!(sessions.put(key(0), vec![7; limits::TLS_SESSION_BYTES_MAX]));
    assert_eq!(sessions.get(&key(0)).unwrap(), vec![7; limits::TLS_SESSION_BYTES_MAX]);
    // Each is used once.
    assert!(sessions.take(&key(0)).is_some() && sessions.take(&key(0)).is_none());
    for number in 0..4 * limits::TLS_SESSIONS_MAX {
        assert!(sessions.put(key(number), vec![1]));
    }
    let kept =
        (0..4 * limits::TLS_SESSIONS_MAX).filter(|number| sessions.get(&key(*number)).is_some());
    let kept = kept.count();
    assert!((1..=2 * limits::TLS_SESSIONS_MAX).contains(&kept), "{kept}");
    assert!(sessions.put(key(1), vec![1]));
    sessions.age(key(1), limits::TLS_SESSION_TIME.as_secs() - 30);
    assert!(sessions.get(&key(1)).is_some());
    sessions.age(key(1), limits::TLS_SESSION_TIME.as_secs());
    assert!(sessions.get(&key(1)).is_none());
    assert!(sessions.put(key(1), vec![1]));
    sessions.forget();
    assert!(sessions.get(&key(1)).is_none());
}

#[test]
fn sessions_of_a_client_are_used_only_for_the_same_expectation() {
    let (ada, bob) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let trust = keys(&[&bob]);
    let server = tls::server(&bob, &keys(&[&ada]), Wire::Stream);
    let right = tls::client(&ada, &trust, expected("key:a"), Wire::Stream);
    assert!(shake(&right, &server, Wire::Stream).client.is_ok());
    let wrong = tls::client(&ada, &trust, expected("key:b"), Wire::Stream);
    let ended = shake(&wrong, &server, Wire::Stream);
    assert!(!ended.is_resumed && matches!(ended.client, Err(Refusal::WrongName { .. })));
}
