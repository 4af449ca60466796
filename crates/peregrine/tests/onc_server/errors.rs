//! Tests each error of the protocol, and that the server serves the calls after it.

use crate::foreign::{World, name_of};
use crate::world::{
    Counter, CounterServer, GARBAGE_ARGUMENTS, PROCEDURE_UNAVAILABLE, PROGRAM, PROGRAM_MISMATCH,
    PROGRAM_UNAVAILABLE, SYSTEM_ERROR, Transport as _, accepted, call, count, denied, opaque,
    over_both, success, words,
};
use peregrine::{ExportOptions, Insecure, Server};

#[test]
fn each_error_has_its_own_answer() {
    over_both("errors", |world, client| {
        let other_version = words(&[1, 0, 3, PROGRAM, 2, 1, 0, 0, 0, 0]);
        assert_eq!(client.ask(&other_version), denied(1, &[0, 2, 2]));
        let unknown = words(&[2, 0, 2, PROGRAM + 1, 2, 1, 0, 0, 0, 0]);
        assert_eq!(client.ask(&unknown), accepted(2, &[PROGRAM_UNAVAILABLE]));
        for version in [0, 1, 3, 5, u32::MAX] {
            let mismatch = accepted(3, &[PROGRAM_MISMATCH, 2, 4]);
            assert_eq!(client.ask(&call(3, version, 1, &[])), mismatch);
            assert_eq!(client.ask(&call(3, version, 0, &[])), mismatch);
        }
        assert_eq!(client.ask(&call(4, 2, 9, &[])), accepted(4, &[PROCEDURE_UNAVAILABLE]));
        // Invalid arguments: a text that is longer than the message, bytes after the arguments, and bytes
        // that are no text.
        for wrong in [words(&[5, 0]), [opaque(b"label"), words(&[0])].concat(), opaque(&[0xff; 4])]
        {
            assert_eq!(client.ask(&call(5, 2, 1, &wrong)), accepted(5, &[GARBAGE_ARGUMENTS]));
        }
        assert_eq!(client.ask(&call(6, 2, 5, &[])), accepted(6, &[SYSTEM_ERROR]));
        assert_eq!(world.runs(), 0);
        assert_eq!(client.ask(&call(7, 2, 0, &[1; 40])), success(7, &[]));
        assert_eq!(client.ask(&count(8)), success(8, &words(&[1])));
    });
}

#[test]
fn credentials_are_read_up_to_400_bytes_and_others_are_refused() {
    const BAD_CREDENTIAL: [u32; 2] = [1, 1];
    const BAD_VERIFIER: [u32; 2] = [1, 3];
    over_both("credentials", |_, client| {
        let mut with = |xid, credential: (u32, &[u8]), verifier: (u32, &[u8])| {
            let header = words(&[xid, 0, 2, PROGRAM, 2, 1]);
            let auth = |(flavour, body): (u32, &[u8])| [words(&[flavour]), opaque(body)].concat();
            let message = [header, auth(credential), auth(verifier), opaque(b"label")].concat();
            client.ask(&message)
        };
        let none = (0, &[][..]);
        assert_eq!(with(1, (0, &[7; 400]), none), success(1, &words(&[1])));
        assert_eq!(with(2, none, (0, &[7; 400])), success(2, &words(&[2])));
        assert_eq!(with(3, (0, &[7; 401]), none), denied(3, &BAD_CREDENTIAL));
        assert_eq!(with(4, none, (0, &[7; 401])), denied(4, &BAD_VERIFIER));
        let sys = |machine: usize, groups: u32| {
            let groups_of = words(&vec![7; groups as usize]);
            [words(&[0]), opaque(&vec![b'm'; machine]), words(&[1, 2, groups]), groups_of].concat()
        };
        assert_eq!(with(5, (1, &sys(255, 16)), none), success(5, &words(&[3])));
        for wrong in
            [sys(256, 0), sys(1, 17), vec![], vec![0; 19], [sys(1, 1), vec![0; 4]].concat()]
        {
            assert_eq!(with(6, (1, &wrong), none), denied(6, &BAD_CREDENTIAL));
        }
        // AUTH_SHORT, AUTH_DH, RPCSEC_GSS, AUTH_TLS and a flavour that does not exist.
        for flavour in [2, 3, 6, 7, 390_003, u32::MAX] {
            assert_eq!(with(7, (flavour, &[0; 20]), none), denied(7, &BAD_CREDENTIAL));
        }
        // If a length in the header exceeds the message, the header is incomplete, and there is no call to
        // answer. Over UDP the next call is answered, and over TCP the connection has ended: see `records`.
        assert_eq!(with(8, none, none), success(8, &words(&[4])));
    });
}

#[test]
fn results_that_do_not_fit_are_a_system_error() {
    let world = World::with("large", |server| server);
    let (mut udp, mut tcp) = (world.udp(), world.tcp());
    // A datagram has at most 65,507 bytes. The header has 24 of them, the length of the result has 4, and
    // padding may need 3.
    let most = 65_507 - 28 - 3;
    assert_eq!(
        udp.ask(&call(1, 2, 3, &words(&[most]))),
        success(1, &opaque(&vec![7; most as usize]))
    );
    assert_eq!(udp.ask(&call(2, 2, 3, &words(&[most + 1]))), accepted(2, &[SYSTEM_ERROR]));
    let larger = success(3, &opaque(&vec![7; 100_000]));
    assert_eq!(tcp.ask(&call(3, 2, 3, &words(&[100_000]))), larger);
    let limit = peregrine::limits::MESSAGE_BYTES as u32;
    assert_eq!(tcp.ask(&call(4, 2, 3, &words(&[limit]))), accepted(4, &[SYSTEM_ERROR]));
    assert_eq!(tcp.ask(&call(5, 2, 3, &words(&[limit - 4]))).len(), 24 + limit as usize);
}

#[test]
fn withdrawn_program_is_unavailable() {
    over_both("withdrawn", |world, client| {
        assert_eq!(client.ask(&count(1)), success(1, &words(&[1])));
        let names = world.server.names();
        let name = names.iter().find(|name| !name.contains("-4-")).unwrap();
        assert!(world.server.withdraw(name));
        assert_eq!(client.ask(&count(2)), accepted(2, &[PROGRAM_MISMATCH, 4, 4]));
        let name = names.iter().find(|name| name.contains("-4-")).unwrap();
        assert!(world.server.withdraw(name));
        assert_eq!(client.ask(&count(3)), accepted(3, &[PROGRAM_UNAVAILABLE]));
        assert_eq!(client.ask(&call(4, 4, 1, &[])), accepted(4, &[PROGRAM_UNAVAILABLE]));
    });
}

struct Limited;

impl Counter for Limited {
    fn count(&self, _: &str) -> peregrine::Result<u32> {
        panic!("a network proves no user")
    }
    fn wait(&self) -> peregrine::Result<u32> {
        Ok(0)
    }
    fn bytes(&self, _: u32) -> peregrine::Result<Vec<u8>> {
        Ok(Vec::new())
    }
    fn claims(&self) -> peregrine::Result<String> {
        Ok(String::new())
    }
    fn panics(&self) -> peregrine::Result<()> {
        Ok(())
    }
}

#[test]
fn export_that_is_limited_to_users_is_not_offered() {
    let options = ExportOptions::default().users([1]);
    let server = Server::new()
        .export_with(&name_of("limited"), CounterServer::new(Limited), options)
        .unwrap()
        .listen("onc+udp:127.0.0.1:0")
        .unwrap()
        .spawn()
        .unwrap();
    let at = server.addresses()[0].to_string();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(at.strip_prefix("onc+udp:").unwrap()).unwrap();
    let mut client = crate::world::Udp(socket);
    assert_eq!(client.ask(&count(1)), accepted(1, &[PROGRAM_UNAVAILABLE]));
}

#[test]
fn only_this_machine_is_served_unless_more_is_asked_for() {
    for endpoint in ["onc+udp:0.0.0.0:0", "onc+tcp:0.0.0.0:0"] {
        let error = Server::new().listen(endpoint).unwrap_err();
        assert_eq!(error.kind(), peregrine::Kind::Denied);
        assert!(
            Server::new().listen_beyond_this_machine(endpoint, Insecure::ITrustThisNetwork).is_ok()
        );
    }
}
