//! Tests Cooper's form of Courier.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::foreign::{World, name_of};
use crate::framing::words;
use crate::support::until;
use crate::world::rest;

/// Returns the bytes that ask for a program.
fn activation(name: &str) -> Vec<u8> {
    let mut bytes = words(&[name.len() as u16]);
    bytes.extend(name.as_bytes());
    bytes.resize(bytes.len().next_multiple_of(2), 0);
    bytes
}

fn activated(world: &World, name: &str) -> TcpStream {
    let mut stream = world.connect();
    stream.write_all(&activation(name)).unwrap();
    let mut answer = [1];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [0], "the program `{name}` was started");
    stream
}

fn read(stream: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; 2 * count];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

#[test]
fn program_has_the_name_of_its_interface_or_export() {
    let world = World::new("cooper");
    for name in ["Counter".to_owned(), name_of("cooper")] {
        let mut stream = activated(&world, &name);
        stream.write_all(&words(&[3, 1, 2])).unwrap();
        assert_eq!(read(&mut stream, 4), words(&[3, 2, 7, 7]));
    }
    let mut stream = activated(&world, "Newer");
    // A procedure without results has no reply.
    stream.write_all(&words(&[1, 0])).unwrap();
    until("it has run", || world.runs() == 1);
    for name in ["Other", "counter"] {
        let mut stream = world.connect();
        stream.write_all(&activation(name)).unwrap();
        assert_eq!(rest(&mut stream), b"Unknown Courier program.\0");
    }
}

#[test]
fn failures_end_the_connection_or_are_ignored() {
    let world = World::new("cooper-failures");
    // The arguments end too early.
    let mut stream = activated(&world, "Counter");
    stream.write_all(&words(&[3, 0])).unwrap();
    assert!(rest(&mut stream).is_empty());
    // An unknown procedure, and an error of a procedure without results, have no answer.
    let mut stream = activated(&world, "Counter");
    stream.write_all(&words(&[99, 1, 5])).unwrap();
    stream.write_all(&words(&[4, 1, 9])).unwrap();
    stream.write_all(&words(&[5, 0])).unwrap();
    stream.write_all(&words(&[1, 2, 1, 0x6100])).unwrap();
    assert_eq!(read(&mut stream, 2), words(&[1, 1]));
}

#[test]
fn results_that_do_not_fit_a_count_end_the_connection() {
    let world = World::new("cooper-large");
    let mut stream = activated(&world, "Counter");
    stream.write_all(&words(&[7, 1, 6])).unwrap();
    let reply = read(&mut stream, 2);
    assert_eq!(reply, words(&[60_007, 6]));
    read(&mut stream, 60_006);
    stream.write_all(&words(&[7, 1, 7])).unwrap();
    assert!(rest(&mut stream).is_empty());
}
