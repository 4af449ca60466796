//! Tests the connections and the threads of a server, and how the server stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use peregrine::Server;

use crate::foreign::{LIMIT, LaterAsyncServer, World, Yields, name_of};
use crate::support::until;
use crate::world::{
    PROGRAM_UNAVAILABLE, Transport as _, Udp, accepted, call, count, success, words,
};

#[test]
fn long_call_delays_no_other_call_of_its_connection() {
    let world = World::new("long");
    let mut client = world.tcp();
    client.send(&call(1, 2, 2, &[]));
    world.begun.recv().unwrap();
    for xid in 2..20 {
        assert_eq!(client.ask(&count(xid)), success(xid, &words(&[xid - 1])));
    }
    world.go_on.send(()).unwrap();
    assert_eq!(client.receive(), success(1, &words(&[19])));
}

#[test]
fn idle_connections_need_no_thread() {
    let world = World::new("idle");
    let mut clients: Vec<_> = (0..200).map(|_| world.tcp()).collect();
    for round in 0..2 {
        for (client, xid) in clients.iter_mut().zip(1000 * round..) {
            let reply = client.ask(&count(xid));
            assert_eq!(reply[..24], success(xid, &[]));
        }
        until("the threads end", || world.server.threads() < 20);
    }
    assert_eq!(world.runs(), 400);
}

#[test]
fn client_that_does_not_read_delays_no_other() {
    let world = World::new("unread");
    let mut greedy: Vec<_> = (0..3).map(|_| world.tcp()).collect();
    for client in &mut greedy {
        for xid in 0..20 {
            // The replies do not fit the buffers of the sockets.
            client.send(&call(xid, 2, 3, &words(&[1 << 20])));
        }
    }
    let mut client = world.tcp();
    for xid in 1..=100 {
        assert_eq!(client.ask(&count(1000 + xid)), success(1000 + xid, &words(&[xid])));
    }
}

#[test]
fn stopping_server_refuses_new_calls_and_ends_running_ones() {
    let world = World::new("stop");
    let (mut udp, mut tcp) = (world.udp(), world.tcp());
    udp.send(&call(1, 2, 2, &[]));
    tcp.send(&call(2, 2, 2, &[]));
    world.begun.recv().unwrap();
    world.begun.recv().unwrap();
    let server = world.server;
    let stopping = std::thread::spawn(move || server.drain(LIMIT));
    let mut xid = 10;
    loop {
        // Until the server stops, the calls run.
        let reply = udp.ask(&count(xid));
        if reply == accepted(xid, &[PROGRAM_UNAVAILABLE]) {
            break;
        }
        assert_eq!(reply[..24], success(xid, &[]));
        xid += 1;
    }
    for _ in 0..2 {
        world.go_on.send(()).unwrap();
    }
    assert_eq!(udp.receive()[..24], success(1, &[]));
    assert_eq!(tcp.receive()[..24], success(2, &[]));
    assert!(stopping.join().unwrap());
}

#[test]
fn async_procedures_are_served() {
    let runs = Arc::new(AtomicU32::new(0));
    let server = Server::new()
        .export(&name_of("later"), LaterAsyncServer::new(Yields(Arc::clone(&runs))))
        .unwrap()
        .listen("onc+udp:127.0.0.1:0")
        .unwrap()
        .spawn()
        .unwrap();
    let at = server.addresses()[0].to_string();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(at.strip_prefix("onc+udp:").unwrap()).unwrap();
    let mut client = Udp(socket);
    for xid in 0..10 {
        let later = words(&[xid, 0, 2, 0x2000_0019, 1, 1, 0, 0, 0, 0, xid]);
        assert_eq!(client.ask(&later), success(xid, &words(&[xid + 1])));
        assert_eq!(client.ask(&later), success(xid, &words(&[xid + 1])));
    }
    assert_eq!(runs.load(Ordering::SeqCst), 10);
}
