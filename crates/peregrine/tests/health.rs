//! Tests what servers report about their health: on every path, while all threads are busy, while they stop,
//! and to clients of servers that do not know the question.

mod contract;
mod room;
mod support;

use std::io::Write as _;
use std::net::TcpListener;
use std::time::Duration;

use peregrine::{
    Disclosure, Executed, ExportOptions, GenericClient, Health, Kind, PathKind, Server, health,
    health_within,
};
use room::{Carrier, Inside, RoomServer};
use support::link::{Link, at_near_end};
use support::{alone, own_directory, stream, wire};

/// Runs a case over each network path.
fn on_each_network_path(case: fn(Carrier)) {
    case(Carrier { scheme: "tcp", path: PathKind::Tcp });
    case(Carrier { scheme: "udp", path: PathKind::Udp });
    at_near_end(Link::new(), |_| case(Carrier { scheme: "eth", path: PathKind::Ethernet }));
}

#[test]
fn health_is_reported_while_all_threads_are_busy() {
    on_each_network_path(room::health_is_reported_while_all_threads_are_busy);
}

#[test]
fn stopping_server_reports_that_it_drains() {
    on_each_network_path(room::stopping_server_reports_that_it_drains);
}

/// Returns the kind and the text of the error of a failed question, which is never executed.
#[track_caller]
fn failed(address: &str) -> (Kind, String) {
    let error = health_within(address, Duration::from_secs(5)).unwrap_err();
    assert_eq!(error.executed(), Executed::No, "{error}");
    assert!(error.to_string().contains(address), "{error}");
    (error.kind(), error.detail().to_owned())
}

#[test]
fn only_exports_that_the_client_may_call_are_known() {
    let _home = (alone(), own_directory());
    let server = Server::new().export("open", RoomServer::new(Inside::of(1))).unwrap();
    let limited = ExportOptions::default().users([1]);
    let server = server.export_with("limited", RoomServer::new(Inside::of(1)), limited).unwrap();
    // The health is no counter, so a server that discloses nothing reports it as well.
    let server = server.disclosure(Disclosure::Nothing);
    let running = server.listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
    let at = running.addresses()[0].to_string();
    let place = at.strip_prefix("tcp:").unwrap();
    for known in ["open", "limited", &format!("open@{place}"), &format!("@{place}")] {
        assert_eq!(health(known).unwrap(), Health::Serving, "{known}");
    }
    for name in ["limited", "unknown"] {
        let expected = (Kind::NotFound, format!("the server offers no `{name}` to networks"));
        assert_eq!(failed(&format!("{name}@{place}")), expected);
    }
    let (kind, text) = failed("unknown");
    assert_eq!(kind, Kind::NotFound);
    assert!(text.starts_with("nothing in "), "{text}");
    for foreign in ["onc+udp:127.0.0.1:7", "courier+tcp:127.0.0.1:7/open"] {
        assert_eq!(failed(foreign).0, Kind::BadName);
    }
    // The interface of the question is described like any other.
    let asked = GenericClient::bind(&format!(".health@{place}")).unwrap();
    assert_eq!(asked.described().name, "ServerHealth");
    // An export that was withdrawn is not known any more.
    assert!(running.withdraw("open"));
    assert_eq!(failed("open").0, Kind::NotFound);
    assert_eq!(failed(&format!("open@{place}")).0, Kind::NotFound);
    assert_eq!(health(&format!("@{place}")).unwrap(), Health::Serving);
}

#[test]
fn server_that_does_not_answer_is_not_waited_for() {
    let (_alone, directory) = (alone(), own_directory());
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let _listens = wire::listen(directory.path(), "silent");
    for address in [format!("tcp:silent@{}", silent.local_addr().unwrap()), "silent".to_owned()] {
        let error = health_within(&address, Duration::from_millis(50)).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::No), "{error}");
    }
}

/// Returns a refusal with this kind and text, as a server sends it in the body of a message.
fn refusal(kind: Kind, text: &str) -> Vec<u8> {
    let mut body = wire::words(&[kind as u32, text.len() as u32]);
    body.extend(text.as_bytes());
    body
}

#[test]
fn server_of_an_earlier_version_is_recognized() {
    let (_alone, directory) = (alone(), own_directory());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let local = wire::listen(directory.path(), "old");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut connection, _) = listener.accept().unwrap();
            let asked = stream::receive(&mut connection).unwrap();
            assert_eq!(asked.kind, stream::BIND);
            let body = refusal(Kind::NotFound, "the server has no `.health`");
            let words = [asked.words[0], 0, 0, 0, 0, 0];
            let mut message = stream::header(stream::REFUSED, body.len() as u32, words);
            message.extend(&body);
            message.resize(message.len().next_multiple_of(16), 0);
            connection.write_all(&message).unwrap();
            assert!(stream::receive(&mut connection).is_none(), "the client goes");
        });
        let (kind, text) = failed(&format!("tcp:old@{at}"));
        assert_eq!(kind, Kind::ProtocolMismatch);
        assert!(text.starts_with("the server's version does not report its health"), "{text}");
        scope.spawn(|| {
            let mut client = None;
            support::until("a client connects", || {
                client = local.accept().ok();
                client.is_some()
            });
            let client = client.unwrap();
            assert_eq!(wire::word(&client.answer().0, 8), wire::HEALTH);
            let mut message = wire::words(&[wire::REFUSED]);
            message.extend(refusal(Kind::ProtocolMismatch, "unknown request 6"));
            client.send(&message).unwrap();
        });
        let (kind, text) = failed("old");
        assert_eq!(kind, Kind::ProtocolMismatch);
        assert!(text.contains("unknown request 6"), "{text}");
    });
}
