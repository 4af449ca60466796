//! Counts how often calls of Courier over TCP allocate memory after the client has bound: never, if the
//! arguments and the results need no memory themselves.
#![cfg(feature = "async")]

mod support;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;

use futures_lite::future::block_on;
use peregrine::{BindOptions, CourierForm, Wait, interface};
use support::heap::{Counting, fewest_allocations};

#[global_allocator]
static COUNTING: Counting = Counting;

#[interface(courier(program = 0x2000_0001, version = 2))]
trait Counted {
    #[courier(1)]
    fn same(&self, number: u16) -> peregrine::Result<u16>;
}

const FORMS: [CourierForm; 2] = [CourierForm::Records, CourierForm::Frames];

/// Starts a server for one client, which binds, and then makes calls with one word as the argument. Returns
/// the address.
fn serve(form: CourierForm) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // The first two bytes of the header of a message that has less than 256 bytes.
    let [first, second] = if form == CourierForm::Records { [0x80, 0] } else { [0, 1] };
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut call = [0; 64];
        // The client sends its versions, and calls a procedure that the server does not have.
        stream.read_exact(&mut call[..20]).unwrap();
        stream.write_all(&[first, second, 0, 4, 0, 3, 0, 3]).unwrap();
        stream.write_all(&[first, second, 0, 6, 0, 1, call[10], call[11], 0, 2]).unwrap();
        while stream.read_exact(&mut call[..18]).is_ok() {
            let [a, b] = [call[6], call[7]];
            let reply = [first, second, 0, 6, 0, 2, a, b, call[16], call[17]];
            stream.write_all(&reply).unwrap();
        }
    });
    format!("courier+tcp:{address}")
}

#[test]
fn calls_do_not_allocate() {
    threads();
    futures();
}

fn threads() {
    for form in FORMS {
        for wait in [Wait::Block, Wait::Spin] {
            let options = BindOptions::default().wait(wait).courier_form(form);
            let client = CountedClient::bind_with(&serve(form), &options).unwrap();
            let call = |number| assert_eq!(client.same(number).unwrap(), number);
            let counted = fewest_allocations(|| (0..100).for_each(call));
            assert_eq!(counted, 0, "{form:?} {wait:?}");
        }
    }
}

/// Checks that a call of an async stub allocates only the future of the stub.
fn futures() {
    for form in FORMS {
        let options = BindOptions::default().wait(Wait::Spin).courier_form(form);
        let client = block_on(CountedAsyncClient::bind_with(&serve(form), &options)).unwrap();
        let call = |number| assert_eq!(block_on(client.same(number)).unwrap(), number);
        let counted = fewest_allocations(|| (0..100).for_each(call));
        assert!(counted <= 100, "{form:?}: {counted} allocations for 100 calls");
    }
}
