//! Counts the messages of one-way calls as they pass between client and server. `tests/syscalls.rs`
//! counts the system calls of one-way calls, also on the local path.

use std::collections::BTreeSet;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};

use crate::contract::Form;
use crate::journal::{Journal as _, Way, World, until};
use crate::support;
use crate::support::impairments::Impairments;
use crate::support::relay::Relay;

/// The number of the procedure that runs a batch.
const BATCH: u32 = u32::MAX - 2;
/// The number of calls that are made while another call runs.
const CALLS: usize = 1000;

/// The number of the call that a message carries. It identifies the message.
type Number = u32;

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Makes [`CALLS`] calls through `address` while a call of `wait` runs. Then ends `wait`, and waits for all
/// calls.
fn make_calls(world: &mut World, address: String) {
    world.address = address;
    let client = world.client(Form::Blocking);
    client.wait().unwrap();
    until(|| world.object.0.waiting.load(Ordering::SeqCst) == 1);
    (0..CALLS).for_each(|number| client.note(&number.to_string()).unwrap());
    world.object.open();
    client.flush().unwrap();
    assert_eq!(world.object.seen().len(), CALLS);
}

fn place(world: &World) -> SocketAddr {
    let running = world.running.as_ref().unwrap();
    running.addresses()[0].place().to_string().parse().unwrap()
}

/// Makes [`CALLS`] calls over UDP. Returns the call numbers of the batches that the relay forwards.
fn batches_over_udp(world: &mut World) -> BTreeSet<Number> {
    const CALL: u8 = 1;
    let at = "127.0.0.1:0".parse().unwrap();
    let mut relay = Relay::new(at, place(world), Impairments::default(), 1);
    let (address, ended) = (relay.address(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let seen = scope.spawn(|| {
            let mut seen = BTreeSet::new();
            while !ended.load(Ordering::SeqCst) {
                // The header of a packet has its kind, the number of the call, and the procedure.
                relay.step(&mut |_, packet| {
                    if packet[3] == CALL && word(packet, 32) == BATCH {
                        seen.insert(word(packet, 24));
                    }
                });
            }
            seen
        });
        make_calls(world, format!("udp:{}@{address}", world.name));
        ended.store(true, Ordering::SeqCst);
        seen.join().unwrap()
    })
}

/// Forwards the messages of a connection. Sends the call number of each batch to `seen`.
fn pass_on(client: TcpStream, server: SocketAddr, seen: &Sender<Number>) -> io::Result<()> {
    const CALL: u8 = 4;
    let (mut from, mut to) = (client.try_clone()?, TcpStream::connect(server)?);
    let (mut back_from, mut back_to) = (to.try_clone()?, client);
    std::thread::spawn(move || io::copy(&mut back_from, &mut back_to));
    loop {
        let mut message = vec![0; 32];
        from.read_exact(&mut message)?;
        // The header of a message has the sizes of its body and its extensions, its kind, the number of
        // the call, and the procedure.
        let [body, extensions] = [0, 28].map(|at| word(&message, at) as usize);
        if message[4] == CALL && word(&message, 16) == BATCH {
            let _ = seen.send(word(&message, 8));
        }
        message.resize(32 + (body + extensions).next_multiple_of(16), 0);
        from.read_exact(&mut message[32..])?;
        to.write_all(&message)?;
    }
}

/// Makes [`CALLS`] calls over TCP. Returns the call numbers of the batches that [`pass_on`] forwards.
fn batches_over_tcp(world: &mut World) -> BTreeSet<Number> {
    let (listener, server) = (TcpListener::bind("127.0.0.1:0").unwrap(), place(world));
    let address = listener.local_addr().unwrap();
    let (sender, seen) = channel();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let sender = sender.clone();
            std::thread::spawn(move || pass_on(client.unwrap(), server, &sender));
        }
    });
    make_calls(world, format!("tcp:{}@{address}", world.name));
    seen.try_iter().collect()
}

/// A thousand calls that are made while another call runs share one message.
#[test]
fn thousand_calls_share_a_message() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    for form in [Form::Blocking, Form::Async] {
        for (way, batches) in [
            (Way::Udp, batches_over_udp as fn(&mut World) -> BTreeSet<Number>),
            (Way::Tcp, batches_over_tcp),
        ] {
            let seen = batches(&mut World::new(way, form));
            // One message has the call that waits, and the other message has all other calls.
            assert_eq!(seen.len(), 2, "{way:?}, {form:?}: {seen:?}");
        }
    }
}
