//! Clients of servers that support only calls in one datagram, and that fail in many ways. The tests
//! themselves are the servers.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use peregrine::{BindOptions, Binding, Executed, Kind, Phase, Rebind};

use crate::foreign::{REJECTIONS, kind};
use crate::world::{ABORT, Counter as _, CounterClient, Fault, REJECT, RETURN, words};

/// A whole call as the server receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Call {
    id: u32,
    transaction: u16,
    procedure: u16,
    arguments: Vec<u8>,
    datagram: Vec<u8>,
}

impl Call {
    fn of(datagram: &[u8]) -> Self {
        let word = |at: usize| u16::from_be_bytes([datagram[at], datagram[at + 1]]);
        assert_eq!((word(4), word(6), word(8), word(10)), (2, 3, 3, 0), "a whole call");
        Self {
            id: u32::from_be_bytes(*datagram.first_chunk().unwrap()),
            transaction: word(12),
            procedure: word(20),
            arguments: datagram[22..].to_vec(),
            datagram: datagram.to_vec(),
        }
    }

    fn reply(&self, kind: u16, rest: &[u8]) -> Vec<u8> {
        [&self.id.to_be_bytes()[..], &words(&[2, 3, 3, kind, self.transaction]), rest].concat()
    }

    fn usual(&self) -> Vec<Vec<u8>> {
        vec![self.reply(RETURN, &words(&[0, self.procedure]))]
    }
}

/// Starts a server that answers with `answer` the calls that a client makes after it has bound. Returns the
/// address.
fn serve(answer: impl Fn(&Call) -> Vec<Vec<u8>> + Send + 'static) -> String {
    serve_all(move |call| match (call.datagram.get(14..18), call.procedure) {
        // When a client binds, it asks whether the server supports calls in parts, and calls a procedure that
        // the server does not have.
        (Some([0x50, 0x43, 0x50, 0x43]), _) => vec![call.reply(REJECT, &words(&[0]))],
        (_, u16::MAX) => vec![call.reply(REJECT, &words(&[2]))],
        _ => answer(call),
    })
}

fn serve_all(answer: impl Fn(&Call) -> Vec<Vec<u8>> + Send + 'static) -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = format!("courier+udp:{}", socket.local_addr().unwrap());
    thread::spawn(move || {
        let mut bytes = vec![0; 65_536];
        while let Ok((length, from)) = socket.recv_from(&mut bytes) {
            for reply in answer(&Call::of(&bytes[..length])) {
                let _ = socket.send_to(&reply, from);
            }
        }
    });
    address
}

fn bind(address: &str) -> CounterClient {
    let options = BindOptions::default().rebind(Rebind::Never);
    CounterClient::bind_with(address, &options).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn client_uses_whole_calls_if_the_server_does_not_know_parts() {
    let client = bind(&serve(Call::usual));
    assert_eq!(client.count("x").unwrap(), 1);
    client.binding().ping().unwrap();
    let summary = client.binding().explain().summary();
    assert!(summary.contains("in whole datagrams"), "{summary}");
    let error = client.echo(vec![0; 33_000]).unwrap_err();
    assert_eq!(kind(&error), (Kind::TooLarge, Executed::No), "{error}");
}

#[test]
fn each_answer_of_a_server_has_its_failure() {
    for (reason, expected, executed, text) in REJECTIONS {
        let client = bind(&serve(move |call| vec![call.reply(REJECT, &words(reason))]));
        let error = client.count("x").unwrap_err();
        assert_eq!(kind(&error), (expected, executed), "{error}");
        assert!(error.detail().contains(text), "{error}");
    }
}

#[test]
fn reported_error_is_the_error_of_the_method() {
    let client = bind(&serve(|call| vec![call.reply(ABORT, &words(&[9, 3]))]));
    assert!(matches!(client.fail(1), Err(Fault::Counted { count: 3 })));
    // `count` declares no errors.
    let error = client.count("x").unwrap_err();
    assert_eq!(kind(&error), (Kind::BadResult, Executed::Maybe), "{error}");
    let client = bind(&serve(|call| vec![call.reply(ABORT, &words(&[8]))]));
    let Err(Fault::Failed(error)) = client.fail(1) else { panic!("an unknown error") };
    assert_eq!(kind(&error), (Kind::BadResult, Executed::Maybe), "{error}");
}

#[test]
fn lost_call_is_sent_again_with_the_same_bytes() {
    let (seen, first) = (AtomicU32::new(0), std::sync::Mutex::new(None));
    let client = bind(&serve(move |call| {
        let before = first.lock().unwrap().get_or_insert_with(|| call.clone()).clone();
        assert_eq!(before, *call);
        match seen.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => Vec::new(),
            _ => call.usual(),
        }
    }));
    assert_eq!(client.count("x").unwrap(), 1);
}

#[test]
fn refusal_of_a_second_copy_may_have_executed() {
    let seen = AtomicU32::new(0);
    let client = bind(&serve(move |call| match seen.fetch_add(1, Ordering::SeqCst) {
        0 => Vec::new(),
        _ => vec![call.reply(REJECT, &words(&[2]))],
    }));
    let error = client.count("x").unwrap_err();
    assert_eq!(kind(&error), (Kind::NoSuchProcedure, Executed::Maybe), "{error}");
}

#[test]
fn other_datagrams_are_dropped() {
    let client = bind(&serve(|call| {
        let right = call.usual().remove(0);
        let changed = |at: usize, byte: u8| {
            let mut bytes = right.clone();
            bytes[at] ^= byte;
            bytes
        };
        // Replies with another number, client type, version, message type or transaction, and truncated
        // replies.
        let mut all =
            [(3, 1), (5, 1), (7, 4), (10, 1), (13, 1)].map(|(at, byte)| changed(at, byte)).to_vec();
        all.extend((0..13).map(|end| right[..end].to_vec()));
        all.extend([call.datagram.clone(), right.clone(), right.clone()]);
        all
    }));
    for _ in 0..50 {
        assert_eq!(client.count("x").unwrap(), 1);
    }
}

#[test]
fn results_of_wrong_length_are_not_accepted() {
    for length in [0, 2, 6] {
        let client = bind(&serve(move |call| vec![call.reply(RETURN, &vec![0; length])]));
        let error = client.count("x").unwrap_err();
        assert_eq!(kind(&error), (Kind::BadResult, Executed::Maybe), "{length}: {error}");
    }
}

#[test]
fn late_reply_to_a_call_that_was_given_up_is_dropped() {
    let held = std::sync::Mutex::new(Vec::new());
    let client = bind(&serve(move |call| {
        let mut held = held.lock().unwrap();
        if call.procedure == 2 {
            held.extend(call.usual());
            return Vec::new();
        }
        held.drain(..).chain(call.usual()).collect()
    }));
    let error = client.with_timeout(Duration::from_millis(20)).wait().unwrap_err();
    assert_eq!(kind(&error), (Kind::TimedOut, Executed::Maybe), "{error}");
    assert_eq!(client.count("x").unwrap(), 1);
}

#[test]
fn port_that_is_closed_refuses_calls() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let server = thread::spawn(move || {
        let mut bytes = [0; 100];
        for reason in [0, 2] {
            let (length, from) = socket.recv_from(&mut bytes).unwrap();
            let call = Call::of(&bytes[..length]);
            socket.send_to(&call.reply(REJECT, &words(&[reason])), from).unwrap();
        }
    });
    let client = bind(&format!("courier+udp:{address}"));
    server.join().unwrap();
    let error = client.count("x").unwrap_err();
    assert_eq!(kind(&error), (Kind::ServerGone, Executed::No), "{error}");
    assert!(!client.binding().is_alive());
    let error = CounterClient::bind(&format!("courier+udp:{address}")).err().unwrap();
    assert_eq!(kind(&error), (Kind::Unreachable, Executed::No), "{error}");
}

#[test]
fn missing_program_or_version_is_reported_by_binding() {
    for (reason, expected, text) in [
        (&[0][..], Kind::NotFound, "does not have the program"),
        (&[1, 3, 4], Kind::InterfaceMismatch, "has versions 3 to 4, not 2"),
    ] {
        let address = serve_all(move |call| vec![call.reply(REJECT, &words(reason))]);
        let error = CounterClient::bind(&address).err().unwrap();
        assert_eq!(kind(&error), (expected, Executed::No), "{error}");
        assert_eq!(error.phase(), Phase::Bind);
        assert!(error.detail().contains(text), "{error}");
    }
}

#[test]
fn interface_must_be_the_program_of_the_address() {
    let address = serve(Call::usual);
    assert_eq!(bind(&format!("{address}/1572869.2")).count("x").unwrap(), 1);
    let error = CounterClient::bind(&format!("{address}/1572869.3")).err().unwrap();
    assert_eq!(error.kind(), Kind::InterfaceMismatch, "{error}");
    let options = BindOptions::default();
    let error = Binding::bind_any(&format!("{address}/7.65536"), &options).unwrap_err();
    assert_eq!(error.kind(), Kind::BadName, "{error}");
    Binding::bind_any(&format!("{address}/7.1"), &options).unwrap().ping().unwrap();
}

#[test]
fn silent_server_makes_binding_fail() {
    let calls = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&calls);
    let address = serve_all(move |_| {
        seen.fetch_add(1, Ordering::SeqCst);
        Vec::new()
    });
    let options = BindOptions::default().bind_timeout(Duration::from_millis(1500));
    let error = CounterClient::bind_with(&address, &options).err().unwrap();
    assert_eq!(kind(&error), (Kind::TimedOut, Executed::No), "{error}");
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}
