//! Connections, threads, and how a server stops.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use peregrine::Server;

use crate::foreign::{LIMIT, LaterAsyncServer, World, Yields, name_of};
use crate::framing::{BOTH, Framing, words};
use crate::support::until;
use crate::world::{call, count, rejected, returned};

#[test]
fn calls_of_one_connection_run_one_after_the_other() {
    let world = World::new("long");
    let mut client = world.client(Framing::Records);
    client.send(&call(1, 2, 2, &[]));
    world.begun.recv().unwrap();
    client.send(&count(2));
    // Meanwhile, the server serves other connections.
    let mut other = world.client(Framing::Frames);
    for n in 1..20 {
        assert_eq!(other.ask(&count(9)), returned(9, &[n]));
    }
    world.go_on.send(()).unwrap();
    assert_eq!(client.receive(), returned(1, &[20]));
    assert_eq!(client.receive(), returned(2, &[21]));
}

#[test]
fn idle_connections_need_no_thread() {
    let world = World::new("idle");
    let mut clients: Vec<_> = (0..200).map(|n| world.client(BOTH[n % 2])).collect();
    for _ in 0..2 {
        for client in &mut clients {
            assert_eq!(client.ask(&count(1))[..4], returned(1, &[]));
        }
        until("the threads end", || world.server.threads() < 20);
    }
    assert_eq!(world.runs(), 400);
}

#[test]
fn client_that_does_not_read_delays_no_other() {
    let world = World::new("unread");
    for framing in BOTH {
        let mut greedy: Vec<_> = (0..3).map(|_| world.client(framing)).collect();
        for client in &mut greedy {
            for tid in 0..20 {
                // The replies do not fit the buffers of the sockets.
                client.send(&call(tid, 2, 7, &[40]));
            }
        }
        let mut client = world.client(framing);
        for tid in 1..=100 {
            assert_eq!(client.ask(&count(tid))[..4], returned(tid, &[]));
        }
    }
}

#[test]
fn client_that_sends_half_a_message_delays_no_other() {
    let world = World::new("half");
    for framing in BOTH {
        let message = framing.whole(&count(7));
        let mut halves: Vec<_> = (0..50)
            .map(|_| {
                let mut client = world.client(framing);
                client.stream.write_all(&message[..7]).unwrap();
                client
            })
            .collect();
        let mut whole = world.client(framing);
        assert_eq!(whole.ask(&count(1))[..4], returned(1, &[]));
        for client in &mut halves {
            client.stream.write_all(&message[7..]).unwrap();
            assert_eq!(client.receive()[..4], returned(7, &[]));
        }
    }
    assert_eq!(world.runs(), 102);
}

#[test]
fn stopping_server_refuses_new_calls_and_ends_running_ones() {
    let world = World::new("stop");
    let (mut running, mut other) = (world.client(Framing::Frames), world.client(Framing::Records));
    running.send(&call(2, 2, 2, &[]));
    world.begun.recv().unwrap();
    let server = world.server;
    let stopping = std::thread::spawn(move || server.drain(LIMIT));
    loop {
        // Calls run until the server begins to stop. Later calls are rejected.
        let reply = other.ask(&count(3));
        if reply == rejected(3, &[0]) {
            break;
        }
        assert_eq!(reply[..4], returned(3, &[]));
    }
    world.go_on.send(()).unwrap();
    assert_eq!(running.receive()[..4], returned(2, &[]));
    assert!(stopping.join().unwrap());
}

#[test]
fn server_listens_again_at_its_port() {
    let world = World::new("again");
    let address = world.address();
    let mut client = world.client(Framing::Records);
    assert_eq!(client.ask(&count(1)), returned(1, &[1]));
    drop(world);
    assert_eq!(Framing::Records.read(&mut client.stream), None);
    let world = World::at("again", address);
    assert_eq!(world.client(Framing::Frames).ask(&count(1)), returned(1, &[1]));
}

#[test]
fn async_procedures_are_served() {
    let runs = Arc::new(AtomicU32::new(0));
    let server = Server::new()
        .export(&name_of("later"), LaterAsyncServer::new(Yields(Arc::clone(&runs))))
        .unwrap()
        .listen("courier+tcp:127.0.0.1:0")
        .unwrap()
        .spawn()
        .unwrap();
    let at = server.addresses()[0].to_string();
    let mut stream =
        std::net::TcpStream::connect(at.strip_prefix("courier+tcp:").unwrap()).unwrap();
    stream.write_all(&Framing::Records.whole(&words(&[3, 3]))).unwrap();
    assert_eq!(Framing::Records.read(&mut stream), Some(words(&[3, 3])));
    for tid in 0..10 {
        let later = words(&[0, tid, 1, 0x8019, 1, 1, tid]);
        stream.write_all(&Framing::Records.whole(&later)).unwrap();
        assert_eq!(Framing::Records.read(&mut stream), Some(returned(tid, &[tid + 1])));
    }
    assert_eq!(runs.load(Ordering::SeqCst), 10);
}
