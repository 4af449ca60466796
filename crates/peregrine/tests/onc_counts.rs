//! Counts how often calls of ONC RPC allocate memory after the client has bound: never, if the arguments and
//! the results need no memory themselves.
#![cfg(feature = "async")]

mod support;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::thread;

use futures_lite::future::block_on;
use peregrine::{BindOptions, Wait, interface};
use support::heap::{Counting, fewest_allocations};

#[global_allocator]
static COUNTING: Counting = Counting;

#[interface(onc(program = 0x2000_0001, version = 2))]
trait Counted {
    #[onc(1)]
    fn same(&self, number: u32) -> peregrine::Result<u32>;
}

/// Writes the reply to a call. The header of the call has 40 bytes. The results are the arguments. Returns
/// the length of the reply in bytes.
fn reply(call: &[u8], into: &mut [u8]) -> usize {
    let arguments = &call[40..];
    into[..4].copy_from_slice(&call[..4]);
    into[4..24].copy_from_slice(&[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    into[24..24 + arguments.len()].copy_from_slice(arguments);
    24 + arguments.len()
}

fn serve_udp() -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        let (mut call, mut answer) = ([0; 100], [0; 100]);
        loop {
            let (length, from) = socket.recv_from(&mut call).unwrap();
            let length = reply(&call[..length], &mut answer);
            socket.send_to(&answer[..length], from).unwrap();
        }
    });
    format!("onc+udp:{address}")
}

fn serve_tcp() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut call, mut answer) = ([0; 100], [0; 100]);
        while stream.read_exact(&mut call[..4]).is_ok() {
            let length = usize::from(call[3]);
            stream.read_exact(&mut call[..length]).unwrap();
            let length = reply(&call[..length], &mut answer[4..]);
            answer[..4].copy_from_slice(&(1 << 31 | length as u32).to_be_bytes());
            stream.write_all(&answer[..4 + length]).unwrap();
        }
    });
    format!("onc+tcp:{address}")
}

#[test]
fn calls_do_not_allocate() {
    threads();
    futures();
}

fn threads() {
    for serve in [serve_udp, serve_tcp] {
        for wait in [Wait::Block, Wait::Spin] {
            let options = BindOptions::default().wait(wait);
            let address = serve();
            let client = CountedClient::bind_with(&address, &options).unwrap();
            let call = |number| assert_eq!(client.same(number).unwrap(), number);
            let counted = fewest_allocations(|| (0..100).for_each(call));
            assert_eq!(counted, 0, "{address} {wait:?}");
        }
    }
}

/// Checks that a call of an async stub allocates only the future of the stub.
fn futures() {
    for serve in [serve_udp, serve_tcp] {
        let options = BindOptions::default().wait(Wait::Spin);
        let address = serve();
        let client = block_on(CountedAsyncClient::bind_with(&address, &options)).unwrap();
        let call = |number| assert_eq!(block_on(client.same(number)).unwrap(), number);
        let counted = fewest_allocations(|| (0..100).for_each(call));
        assert!(counted <= 100, "{address}: {counted} allocations for 100 calls");
    }
}
