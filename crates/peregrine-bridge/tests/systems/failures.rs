//! Servers and clients that fail, and what the other side learns.

use core::time::Duration;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};

use peregrine::{Executed, Kind};
use peregrine_bridge::{Bridge, SetupError};

use crate::pairs::SCHEMES;
use crate::stock::{Stock as _, StockClient, Stocked};
use crate::{World, fresh, interface_file, until};

#[test]
fn target_that_has_ended_is_reported_as_not_executed() {
    for target in ["local", "tcp", "onc+tcp", "courier+tcp"] {
        let server = Stocked::start();
        let world = World::to(&server, target);
        let clients = SCHEMES.map(|front| StockClient::bind(&world.address(front)).unwrap());
        clients.iter().for_each(|client| assert_eq!(client.add(1, 1).unwrap(), 2));
        drop(server);
        for (client, front) in clients.iter().zip(SCHEMES) {
            let error = client.add(1, 1).unwrap_err();
            assert_eq!(error.executed(), Executed::No, "{front} to {target}: {error}");
        }
        assert_eq!(
            world.http("add", r#"{"a": 1, "b": 1}"#).header("peregrine-executed"),
            Some("no")
        );
    }
}

#[test]
fn target_that_ends_during_a_call_may_have_executed_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut call) = (stream.unwrap(), [0; 100]);
            // This server answers procedure 0, and closes the connection after any other call.
            while stream.read(&mut call).is_ok_and(|read| read > 28) && call[24..28] == [0; 4] {
                let success = [&[0x80, 0, 0, 24], &call[4..8], &[0, 0, 0, 1], &[0; 16]].concat();
                stream.write_all(&success).unwrap();
            }
        }
    });
    let server = Stocked::start();
    let name = fresh("ends");
    let offer = format!("{name}=onc+tcp:127.0.0.1:{port}");
    let bridge = Bridge::new().offer_as(&offer, interface_file(server.file()).unwrap()).unwrap();
    let bridge = bridge.export_at(&format!("local:{name}")).unwrap();
    let bridge = bridge.export_at("onc+tcp:127.0.0.1:0").unwrap().spawn().unwrap();
    let onc = bridge.endpoints()[0].to_string();
    for address in [format!("local:{name}"), onc] {
        let error = StockClient::bind(&address).unwrap().add(1, 1).unwrap_err();
        assert_eq!(error.executed(), Executed::Maybe, "{address}: {error}");
    }
}

#[test]
fn answers_that_cannot_be_read_are_failures_of_the_target() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut call = [0; 2000];
        while let Ok((_, from)) = socket.recv_from(&mut call) {
            // The reply says that the call was executed, but it has too few bytes of results.
            let mut reply = call[..4].to_vec();
            reply.extend([0, 0, 0, 1].iter().chain(&[0; 16]).chain(&[0xff; 2]));
            let _ = socket.send_to(&reply, from);
        }
    });
    let server = Stocked::start();
    let offer = format!("wrong=onc+udp:127.0.0.1:{port}");
    let bridge = Bridge::new().offer_as(&offer, interface_file(server.file()).unwrap()).unwrap();
    let bridge = bridge.listen("127.0.0.1:0").unwrap().spawn().unwrap();
    let answer = crate::client::call(bridge.addresses()[0], "/wrong/add", r#"{"a": 1, "b": 2}"#);
    answer.failure(502, "BadResult", "maybe");
}

#[test]
fn fronts_survive_what_is_no_call() {
    let server = Stocked::start();
    let world = World::to(&server, "onc+udp");
    let place = |scheme: &str| world.address(scheme).rsplit_once("127.").unwrap().1.to_owned();
    let at = |scheme: &str| format!("127.{}", place(scheme).split('/').next().unwrap());
    for bytes in [&[][..], &[0xff; 4], &[0; 40], &[0x80, 0, 0, 4, 1, 2, 3, 4], &[0x7f; 9000]] {
        for scheme in ["udp", "onc+udp", "courier+udp"] {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let _ = socket.send_to(bytes, at(scheme));
        }
        for scheme in ["tcp", "onc+tcp", "courier+tcp"] {
            let mut stream = std::net::TcpStream::connect(at(scheme)).unwrap();
            let _ = stream.write_all(bytes);
        }
    }
    for front in SCHEMES {
        let client = StockClient::bind(&world.address(front)).unwrap();
        assert_eq!(client.add(20, 22).unwrap(), 42, "{front}");
    }
}

#[test]
fn calls_beyond_the_limit_are_refused() {
    let server = Stocked::start();
    let direct = StockClient::bind(&server.address("local")).unwrap();
    let world = World::with(&server, "tcp", |bridge| bridge.calls_max(1));
    let client = StockClient::bind(&world.address("local")).unwrap();
    let other = StockClient::bind(&world.address("tcp")).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| client.wait());
        until("the call runs", || direct.waiting().unwrap().run == 1);
        let error = other.add(1, 1).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::Overloaded, Executed::No), "{error}");
        world.http("add", r#"{"a": 1, "b": 1}"#).failure(503, "Overloaded", "no");
        direct.release().unwrap();
        waits.join().unwrap().unwrap();
    });
    assert_eq!(other.add(1, 1).unwrap(), 2);
}

#[test]
fn limit_of_the_bridge_ends_calls() {
    let server = Stocked::start();
    let limit = |bridge: Bridge| bridge.call_limit(Duration::from_millis(50));
    for target in ["tcp", "onc+udp", "courier+udp", "courier+tcp", "courier+exchange"] {
        let world = World::with(&server, target, limit);
        for front in ["local", "onc+tcp", "courier+udp", "courier+tcp", "courier+exchange"] {
            let error = StockClient::bind(&world.address(front)).unwrap().stay().unwrap_err();
            assert_eq!(error.executed(), Executed::Maybe, "{front} to {target}: {error}");
        }
    }
    StockClient::bind(&server.address("local")).unwrap().release().unwrap();
}

/// Returns a free port.
fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn two_bridges_that_call_each_other_end() {
    let server = Stocked::start();
    let ports = [port(), port()];
    let bridge = |own: u16, other: u16| {
        let offer = format!("{}=onc+tcp:127.0.0.1:{other}", fresh("loop"));
        let file = interface_file(server.file()).unwrap();
        let bridge = Bridge::new().calls_max(3).offer_as(&offer, file).unwrap();
        bridge.export_at(&format!("onc+tcp:127.0.0.1:{own}")).unwrap().spawn().unwrap()
    };
    let _bridges = [bridge(ports[0], ports[1]), bridge(ports[1], ports[0])];
    let client = StockClient::bind(&format!("onc+tcp:127.0.0.1:{}", ports[0])).unwrap();
    // The kind of the failure depends on which bridge has reached its limit.
    assert!(client.add(1, 1).is_err());
}

#[test]
fn bridge_does_not_call_itself() {
    let server = Stocked::start();
    let error = |offer: &str, listen: &str| {
        let file = interface_file(server.file()).unwrap();
        let bridge = Bridge::new().offer_as(offer, file).unwrap();
        bridge.export_at(listen).unwrap().spawn().err().unwrap()
    };
    let (own, name) = (port(), fresh("self"));
    for (offer, listen) in [
        (format!("{name}=onc+tcp:127.0.0.1:{own}"), format!("onc+tcp:127.0.0.1:{own}")),
        (format!("{name}=onc+udp:127.0.0.1:{own}"), format!("onc+udp:127.0.0.1:{own}")),
        (format!("{name}=courier+udp:127.0.0.1:{own}"), format!("courier+udp:127.0.0.1:{own}")),
        (format!("{name}=courier+exchange:127.0.0.1:{own}"), format!("udp:127.0.0.1:{own}")),
        (format!("{name}=courier+exchange:127.0.0.1:{own}"), format!("127.0.0.1:{own}")),
        (format!("{name}@127.0.0.1:{own}"), format!("tcp:127.0.0.1:{own}")),
        (name.clone(), format!("local:{name}")),
    ] {
        assert!(matches!(error(&offer, &listen), SetupError::Loop(_)), "{offer}");
    }
}
