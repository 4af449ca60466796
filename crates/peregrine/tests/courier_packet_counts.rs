//! Counts what a call of packet Courier costs after the client has bound: datagrams, and allocations of the
//! client.
#![cfg(feature = "async")]

mod support;

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use futures_lite::future::block_on;
use peregrine::{BindOptions, Server, Wait, interface};
use support::heap::{Counting, fewest_allocations};

#[global_allocator]
static COUNTING: Counting = Counting;

#[interface(courier(program = 0x0018_0006, version = 2))]
trait Counted {
    #[courier(1)]
    fn same(&self, number: u32) -> peregrine::Result<u32>;
}

/// Answers packets as a server does, but without allocating memory. Returns the address.
fn serve(knows_parts: bool) -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        let (mut call, mut answer) = ([0; 100], [0; 100]);
        loop {
            let (length, from) = socket.recv_from(&mut call).unwrap();
            let length = reply(&call[..length], &mut answer, knows_parts);
            socket.send_to(&answer[..length], from).unwrap();
        }
    });
    format!("courier+udp:{address}")
}

const IN_PARTS: [u8; 2] = [0x50, 0x43];

/// Writes the answer to a packet. Returns its length.
fn reply(packet: &[u8], into: &mut [u8], knows_parts: bool) -> usize {
    into[..packet.len()].copy_from_slice(packet);
    let header = if packet[4..6] == IN_PARTS { 28 } else { 6 };
    if packet.len() == header {
        // HELLO becomes WELCOME, with a cookie.
        into[7] = 2;
        into[12] = 1;
        return header;
    }
    let payload = &packet[header..];
    let transaction = [payload[6], payload[7]];
    let message = &mut into[header + 4..];
    message[2..4].copy_from_slice(&transaction);
    // To bind, a client makes two calls that have special answers. It asks whether the server supports calls
    // in parts, and it calls procedure 0xffff, which the program does not have.
    let is_question = payload[8..12] == [0x50, 0x43, 0x50, 0x43];
    let bytes = match payload[14..16] {
        _ if is_question && knows_parts => {
            message[..2].copy_from_slice(&[0, 2]);
            4
        }
        _ if is_question => {
            message[..6].copy_from_slice(&[0, 1, transaction[0], transaction[1], 0, 0]);
            6
        }
        [0xff, 0xff] => {
            message[..6].copy_from_slice(&[0, 1, transaction[0], transaction[1], 0, 2]);
            6
        }
        _ => {
            message[..2].copy_from_slice(&[0, 2]);
            message[4..8].copy_from_slice(&payload[16..20]);
            8
        }
    };
    if header == 28 {
        into[7] = 6;
        into[20..24].copy_from_slice(&(4 + bytes as u32).to_be_bytes());
    }
    header + 4 + bytes
}

#[test]
fn calls_do_not_allocate() {
    let _directory = support::own_directory();
    for knows_parts in [false, true] {
        for wait in [Wait::Block, Wait::Spin] {
            let options = BindOptions::default().wait(wait);
            let client = CountedClient::bind_with(&serve(knows_parts), &options).unwrap();
            let call = |number| assert_eq!(client.same(number).unwrap(), number);
            let counted = fewest_allocations(|| (0..100).for_each(call));
            assert_eq!(counted, 0, "in parts: {knows_parts}, {wait:?}");
        }
        // Each call of an async client allocates its future.
        let options = BindOptions::default().wait(Wait::Spin);
        let address = serve(knows_parts);
        let client = block_on(CountedAsyncClient::bind_with(&address, &options)).unwrap();
        let call = |number| assert_eq!(block_on(client.same(number)).unwrap(), number);
        let counted = fewest_allocations(|| (0..100).for_each(call));
        assert!(counted <= 100, "in parts: {knows_parts}, {counted} allocations for 100 calls");
    }
    short_call_and_its_reply_are_two_datagrams();
}

struct Same;

impl Counted for Same {
    fn same(&self, number: u32) -> peregrine::Result<u32> {
        Ok(number)
    }
}

/// Forwards datagrams between one client and a server, and counts them. Returns the address and the count.
fn counting(server: &str) -> (String, Arc<AtomicU64>) {
    let [front, back] = [(); 2].map(|()| Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap()));
    back.connect(server.split_once(':').unwrap().1).unwrap();
    let address = front.local_addr().unwrap();
    let count = Arc::new(AtomicU64::new(0));
    let client = Arc::new(std::sync::OnceLock::new());
    let (to_server, counted, from) = (Arc::clone(&back), Arc::clone(&count), Arc::clone(&client));
    let replies = Arc::clone(&front);
    thread::spawn(move || {
        let mut bytes = [0; 2000];
        loop {
            let (length, sender) = front.recv_from(&mut bytes).unwrap();
            let _ = from.set(sender);
            counted.fetch_add(1, Ordering::SeqCst);
            to_server.send(&bytes[..length]).unwrap();
        }
    });
    let counted = Arc::clone(&count);
    thread::spawn(move || {
        let mut bytes = [0; 2000];
        loop {
            let length = back.recv(&mut bytes).unwrap();
            counted.fetch_add(1, Ordering::SeqCst);
            replies.send_to(&bytes[..length], client.get().unwrap()).unwrap();
        }
    });
    (format!("courier+udp:{address}"), count)
}

fn short_call_and_its_reply_are_two_datagrams() {
    let name = format!("courier-counts-{}", std::process::id());
    let server = Server::new().export(&name, CountedServer::new(Same)).unwrap();
    let running = server.listen("courier+udp:127.0.0.1:0").unwrap().spawn().unwrap();
    let (address, count) = counting(&running.addresses()[0].to_string());
    let client = CountedClient::bind(&address).unwrap();
    // Calls that follow each other closely need no new cookie. If the machine pauses, a new cookie may be
    // necessary. So the smallest number of datagrams is compared.
    let datagrams = |_| {
        let before = count.load(Ordering::SeqCst);
        (0..100).for_each(|number| assert_eq!(client.same(number).unwrap(), number));
        count.load(Ordering::SeqCst) - before
    };
    assert_eq!((0..5).map(datagrams).min(), Some(200));
}
