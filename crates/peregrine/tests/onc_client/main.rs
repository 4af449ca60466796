//! Tests clients of ONC RPC with hand-written servers on real sockets.

#[path = "../support/foreign.rs"]
mod foreign;
#[cfg(feature = "async")]
mod pending;
mod server;
#[path = "../support/mod.rs"]
mod support;

use std::io::Write as _;
use std::net::{TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use foreign::kind;
use peregrine::foreign::{Xdr, to_bytes};
use peregrine::{
    AuthSys, BindOptions, Binding, CallError, Executed, Kind, Phase, Rebind, Wait, interface,
};
use proptest::prelude::*;
use server::{
    BOTH, Over, Received, read_record, received, record, reply, results, serve, serve_all,
    serve_badly_once, serve_early, serve_rpcbind, serve_slowly, serve_together, usual, words,
};
use support::until;

const LONG: Duration = Duration::from_secs(20);

#[interface(onc(program = 0x2000_0001, version = 2))]
trait Store {
    #[onc(1)]
    fn join(&self, words: &[String], by: &str) -> peregrine::Result<String>;
    #[onc(7)]
    fn double(&self, number: u32) -> peregrine::Result<u32>;
    #[onc(9)]
    fn reverse(&self, bytes: Vec<u8>) -> peregrine::Result<Vec<u8>>;
}

#[interface]
trait Ordinary {
    fn nothing(&self) -> peregrine::Result<()>;
}

fn bind(address: &str) -> StoreClient {
    bind_with(address, &BindOptions::default())
}

fn bind_with(address: &str, options: &BindOptions) -> StoreClient {
    StoreClient::bind_with(address, options).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn calls_reach_a_server_and_results_return() {
    for over in BOTH {
        for wait in [Wait::Spin, Wait::Block, Wait::Adaptive] {
            let address = serve(over, usual);
            let options = BindOptions::default().wait(wait);
            let store = bind_with(&address, &options);
            assert_eq!(store.double(21).unwrap(), 42);
            assert_eq!(store.reverse(vec![1, 2, 3]).unwrap(), [3, 2, 1]);
            store.binding().ping().unwrap();
            assert!(store.binding().is_alive());
            assert_eq!(store.binding().path().system(), Some(peregrine::foreign::System::Onc));
        }
    }
}

#[test]
fn each_answer_of_a_server_has_its_failure() {
    let no = Executed::No;
    let cases: [(&[u32], Kind, Executed, &str); 9] = [
        (&[0, 0, 0, 1], Kind::Withdrawn, no, "does not have the program"),
        (&[0, 0, 0, 2, 3, 4], Kind::InterfaceMismatch, no, "versions 3 to 4"),
        (&[0, 0, 0, 3], Kind::NoSuchProcedure, no, "no such procedure"),
        (&[0, 0, 0, 4], Kind::BadArguments, no, "cannot read the arguments"),
        (&[0, 0, 0, 5], Kind::Relayed, Executed::Maybe, "internal error"),
        (&[1, 0, 3, 3], Kind::ProtocolMismatch, no, "versions 3 to 3 of ONC RPC"),
        (&[1, 1, 1], Kind::Denied, no, "the credential is invalid"),
        (&[1, 1, 5], Kind::Denied, no, "a stronger kind of credential"),
        (&[1, 1, 99], Kind::Denied, no, "reason 99"),
    ];
    for over in BOTH {
        for (answer, expected, executed, text) in cases {
            let address =
                serve(over, move |call| vec![[words(&[call.xid, 1]), words(answer)].concat()]);
            let store = bind_with(&address, &BindOptions::default().rebind(Rebind::Never));
            let error = store.double(1).unwrap_err();
            assert_eq!(kind(&error), (expected, executed), "{over:?}: {error}");
            assert!(error.detail().contains(text), "{over:?}: {error}");
        }
    }
}

#[test]
fn unreadable_reply_may_have_executed() {
    let unreadable: [&[u32]; 5] = [&[7], &[0, 0, 0, 6], &[0, 0, 401, 0], &[1, 2], &[0]];
    for answer in unreadable {
        let bad = move |call: &Received| vec![[words(&[call.xid, 1]), words(answer)].concat()];
        let store = bind(&serve(Over::Tcp, bad));
        let error = store.double(1).unwrap_err();
        assert_eq!(kind(&error), (Kind::BadResult, Executed::Maybe), "{answer:?}: {error}");
        // The datagram may have been damaged on its way, so the client waits for another one.
        let address = serve(Over::Udp, move |call| [bad(call), usual(call)].concat());
        assert_eq!(bind(&address).double(4).unwrap(), 8, "{answer:?}");
    }
}

#[test]
fn replies_of_other_calls_and_duplicates_are_dropped() {
    for over in BOTH {
        let address = serve(over, |call| {
            let other = |xid: u32| reply(xid, 0, &words(&[0xbad]));
            let right = reply(call.xid, 0, &results(call));
            let not_a_reply = words(&[call.xid, 0, 2, 0, 0, 0]);
            let short = words(&[call.xid]);
            let late = other(call.xid.wrapping_sub(1));
            let forged = other(call.xid.wrapping_add(1));
            let empty = Vec::new();
            vec![late, forged, not_a_reply, short, empty, right.clone(), other(call.xid), right]
        });
        let store = bind(&address);
        for number in 0..50 {
            assert_eq!(store.double(number).unwrap(), 2 * number, "{over:?}");
        }
    }
}

#[test]
fn results_of_wrong_length_are_not_accepted() {
    for over in BOTH {
        for length in [0, 3, 5, 7] {
            let address = serve(over, move |call| vec![reply(call.xid, 0, &vec![0; length])]);
            let error = bind(&address).double(1).unwrap_err();
            assert_eq!(kind(&error), (Kind::BadResult, Executed::Maybe), "{length}: {error}");
        }
    }
}

/// Some servers send more than their interface file says. Other clients ignore the additional bytes, and so
/// does ours.
#[test]
fn cells_after_results_are_ignored() {
    for over in BOTH {
        let longer = |call: &Received| [results(call), words(&[1, 2])].concat();
        let address = serve(over, move |call| vec![reply(call.xid, 0, &longer(call))]);
        let store = bind(&address);
        for number in 0..3 {
            assert_eq!(store.double(number).unwrap(), 2 * number, "{over:?}");
        }
    }
}

#[test]
fn lost_call_is_sent_again_with_the_same_bytes() {
    let calls = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&calls);
    let first = std::sync::Mutex::new(None);
    let first = Arc::new(first);
    let address = serve(Over::Udp, move |call| {
        let before = first.lock().unwrap().get_or_insert_with(|| call.clone()).clone();
        assert_eq!(before, *call);
        match seen.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => Vec::new(),
            _ => usual(call),
        }
    });
    assert_eq!(bind(&address).double(3).unwrap(), 6);
    assert_eq!(calls.load(Ordering::SeqCst), 3);
}

#[test]
fn refusal_of_a_second_copy_may_have_executed() {
    let seen = Arc::new(AtomicU32::new(0));
    let address = serve(Over::Udp, move |call| match seen.fetch_add(1, Ordering::SeqCst) {
        0 => Vec::new(),
        _ => vec![reply(call.xid, 3, &[])],
    });
    let error = bind(&address).double(3).unwrap_err();
    assert_eq!(kind(&error), (Kind::NoSuchProcedure, Executed::Maybe));
}

#[test]
fn late_reply_to_a_call_that_was_given_up_is_dropped() {
    for over in BOTH {
        let held = Arc::new(std::sync::Mutex::new(Vec::new()));
        let address = serve(over, move |call| {
            let mut held = held.lock().unwrap();
            if call.procedure == 9 {
                held.extend(usual(call));
                return Vec::new();
            }
            // Send the late reply to the earlier call before the reply to this call.
            held.drain(..).chain(usual(call)).collect()
        });
        let store = bind(&address);
        let soon = store.with_timeout(Duration::from_millis(20));
        let error = soon.reverse(vec![1; 1000]).unwrap_err();
        assert_eq!(kind(&error), (Kind::TimedOut, Executed::Maybe), "{over:?}: {error}");
        assert_eq!(store.double(8).unwrap(), 16, "{over:?}");
    }
}

#[test]
fn record_may_be_divided_in_any_way() {
    for piece in [1, 3, 7] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("onc+tcp:{}", listener.local_addr().unwrap());
        thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            while let Some(message) = read_record(&mut stream) {
                let call = received(&message);
                let reply = reply(call.xid, 0, &results(&call));
                let mut bytes = Vec::new();
                for fragment in reply.chunks(piece) {
                    bytes.extend(words(&[0, fragment.len() as u32]));
                    bytes.extend(fragment);
                }
                bytes.extend(words(&[1 << 31]));
                let (first, second) = bytes.split_at(bytes.len() / 2);
                stream.write_all(first).unwrap();
                stream.write_all(second).unwrap();
            }
        });
        let store = bind(&address);
        for number in 0..10 {
            assert_eq!(store.double(number).unwrap(), 2 * number);
        }
        assert_eq!(store.reverse((0..200).collect()).unwrap(), (0..200).rev().collect::<Vec<u8>>());
    }
}

#[test]
fn call_whose_connection_is_lost_may_have_executed_and_the_next_one_binds_again() {
    let endless = words(&[0]).repeat(1 << 16 | 1);
    for bad in [Vec::new(), words(&[1 << 31 | 100, 1, 2]), words(&[u32::MAX, 1]), endless] {
        let store = bind(&serve_badly_once(bad));
        let error = store.double(1).unwrap_err();
        assert_eq!(kind(&error), (Kind::ServerGone, Executed::Maybe), "{error}");
        assert_eq!(store.double(5).unwrap(), 10);
    }
}

#[test]
fn closed_connection_is_noticed_before_the_next_call() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("onc+tcp:{}", listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        for count in [1, 2] {
            let mut stream = listener.accept().unwrap().0;
            for _ in 0..count {
                let call = received(&read_record(&mut stream).unwrap());
                stream.write_all(&record(&reply(call.xid, 0, &results(&call)))).unwrap();
            }
        }
    });
    let store = bind(&address);
    until("the client notices", || !store.binding().is_alive());
    // The call was not executed on the closed connection, so the binding repeats it on another one.
    assert_eq!(store.double(7).unwrap(), 14);
    server.join().unwrap();
}

#[test]
fn server_that_is_gone_refuses_datagrams() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let server = thread::spawn(move || {
        let mut bytes = [0; 100];
        let (length, from) = socket.recv_from(&mut bytes).unwrap();
        let call = received(&bytes[..length]);
        socket.send_to(&reply(call.xid, 0, &[]), from).unwrap();
    });
    let store = bind_with(&format!("onc+udp:{address}"), &BindOptions::default());
    server.join().unwrap();
    let error = store.double(1).unwrap_err();
    assert_eq!(kind(&error), (Kind::ServerGone, Executed::No), "{error}");
    assert!(!store.binding().is_alive());
    let error = StoreClient::bind(&format!("onc+udp:{address}")).err().unwrap();
    assert_eq!(kind(&error), (Kind::Unreachable, Executed::No), "{error}");
    assert_eq!(error.phase(), Phase::Bind);
    // A new server at the same port serves the binding.
    let socket = UdpSocket::bind(address).unwrap();
    thread::spawn(move || {
        let mut bytes = [0; 100];
        loop {
            let (length, from) = socket.recv_from(&mut bytes).unwrap();
            let call = received(&bytes[..length]);
            socket.send_to(&reply(call.xid, 0, &results(&call)), from).unwrap();
        }
    });
    assert_eq!(store.double(2).unwrap(), 4);
}

#[test]
fn large_messages_travel() {
    let pattern = |bytes: usize| (0..bytes).map(|at| (at * 7 + at / 251) as u8).collect::<Vec<_>>();
    for (over, bytes) in [(Over::Udp, 60_000), (Over::Tcp, 48_000), (Over::Tcp, 3_000_000)] {
        let store = bind(&serve(over, usual));
        for _ in 0..3 {
            let reversed = store.reverse(pattern(bytes)).unwrap();
            assert!(reversed.iter().rev().eq(&pattern(bytes)), "{over:?} {bytes}");
        }
    }
    let store = bind(&serve(Over::Udp, usual));
    let error = store.reverse(vec![1; 70_000]).unwrap_err();
    assert_eq!(kind(&error), (Kind::TooLarge, Executed::No), "{error}");
    // These are the most bytes that fit a datagram: its header has 40 bytes, the length has 4, and padding
    // may need 3.
    assert_eq!(store.reverse(vec![1; 65_507 - 3 - 44]).map(|bytes| bytes.len()).ok(), Some(65_460));
}

#[test]
fn server_that_does_not_read_delays_only_its_own_calls() {
    let (address, go) = serve_slowly();
    let options = BindOptions::default().message_bytes(40 << 20);
    let store = bind_with(&address, &options);
    let soon = store.with_timeout(Duration::from_millis(30));
    // The kernel's buffers already have a part of this message. The server may still receive the rest, and
    // execute the call.
    let error = soon.reverse(vec![1; 30 << 20]).unwrap_err();
    assert_eq!(kind(&error), (Kind::TimedOut, Executed::Maybe), "{error}");
    // Nothing of this message was sent.
    let error = soon.double(1).unwrap_err();
    assert_eq!(kind(&error), (Kind::TimedOut, Executed::No), "{error}");
    go.send(()).unwrap();
    assert_eq!(store.double(2).unwrap(), 4);
    assert_eq!(store.reverse(vec![7; 5 << 20]).unwrap(), vec![7; 5 << 20]);
}

#[test]
fn early_refusal_ends_a_call_after_its_message_was_sent() {
    let options = BindOptions::default().message_bytes(40 << 20);
    let store = bind_with(&serve_early(), &options);
    for _ in 0..3 {
        let error = store.reverse(vec![1; 30 << 20]).unwrap_err();
        assert_eq!(kind(&error), (Kind::Denied, Executed::No), "{error}");
        assert_eq!(store.double(1).unwrap(), 0);
    }
}

#[test]
fn many_threads_share_a_binding() {
    for over in BOTH {
        for wait in [Wait::Block, Wait::Adaptive] {
            let address = serve(over, usual);
            let store = bind_with(&address, &BindOptions::default().wait(wait));
            thread::scope(|scope| {
                for thread in 0..8 {
                    let store = &store;
                    scope.spawn(move || {
                        for number in 0..200 {
                            let number = thread * 1000 + number;
                            assert_eq!(store.double(number).unwrap(), 2 * number);
                        }
                    });
                }
            });
        }
    }
}

#[test]
fn interface_must_be_the_program_of_the_address() {
    let address = serve(Over::Udp, usual);
    assert_eq!(bind(&format!("{address}/536870913.2")).double(1).unwrap(), 2);
    let mismatch = |error: CallError, text: &str| {
        assert_eq!(kind(&error), (Kind::InterfaceMismatch, Executed::No), "{error}");
        assert!(error.detail().contains(text), "{error}");
    };
    for other in ["536870913.3", "100003.2"] {
        let error = StoreClient::bind(&format!("{address}/{other}")).err().unwrap();
        mismatch(error, "`Store` is version 2 of program 536870913");
    }
    mismatch(OrdinaryClient::bind(&address).err().unwrap(), "is no program of ONC RPC");
    for name in ["files", "1", "1.2.3", "1.x", "+1.2", "99999999999.1"] {
        let error = StoreClient::bind(&format!("{address}/{name}")).err().unwrap();
        assert_eq!(error.kind(), Kind::BadName, "{error}");
    }
}

#[test]
fn missing_program_or_version_is_reported_by_binding() {
    for over in BOTH {
        for (status, more, expected, text) in [
            (1, &[][..], Kind::NotFound, "does not have the program"),
            (2, &[3, 4], Kind::InterfaceMismatch, "has versions 3 to 4, not 2"),
        ] {
            let refuse = move |call: &Received| vec![reply(call.xid, status, &words(more))];
            let address = serve_all(over, refuse);
            let error = StoreClient::bind(&address).err().unwrap();
            assert_eq!(kind(&error), (expected, Executed::No), "{error}");
            assert!(error.detail().contains(text), "{error}");
        }
    }
}

#[test]
fn rpcbind_knows_the_port() {
    support::link::at_near_end(support::link::Link::new(), |link| {
        link.at(0, || {
            for over in BOTH {
                let address = serve(over, usual);
                let (scheme, at) = address.split_at(7);
                let port = at.rsplit_once(':').unwrap().1.parse().unwrap();
                serve_rpcbind(over, port);
                let store = bind(&format!("{scheme}:127.0.0.1"));
                assert_eq!(store.double(3).unwrap(), 6);
                assert!(store.binding().explain().summary().contains(&port.to_string()));
            }
        });
    });
    let error = StoreClient::bind("onc+udp:no-such-host.invalid").err().unwrap();
    assert_eq!((error.kind(), error.phase()), (Kind::Unreachable, Phase::Resolve), "{error}");
}

#[test]
fn binding_without_an_interface_pings() {
    let address = serve(Over::Tcp, usual);
    let options = BindOptions::default();
    let error = Binding::bind_any(&address, &options).unwrap_err();
    assert_eq!(error.kind(), Kind::BadName, "{error}");
    let binding = Binding::bind_any(&format!("{address}/536870913.2"), &options).unwrap();
    binding.ping().unwrap();
    assert!(binding.explain().summary().contains("version 2 of program 536870913"));
}

#[test]
fn explanation_names_only_paths_of_the_same_system() {
    let address = serve(Over::Udp, usual);
    let explained = |address: &str| {
        let (explanation, bound) = peregrine::explain(address, &BindOptions::default());
        (explanation.to_string(), bound.map_err(|error| error.kind()))
    };
    let (text, bound) = explained(&format!("{address}/536870913.2"));
    assert_eq!(bound, Ok(()));
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("onc+udp   chosen"), "{text}");
    assert!(lines[1].starts_with("onc+tcp   excluded"), "{text}");
    assert_eq!(lines.len(), 2, "{text}");
    let (text, _) = explained("surely-nobody-exports-this");
    assert!(!text.contains("onc"), "{text}");
}

#[test]
fn other_built_in_procedures_are_refused() {
    let address = serve(Over::Udp, usual);
    let error = peregrine::describe(&format!("{address}/536870913.2")).unwrap_err();
    assert_eq!(kind(&error), (Kind::NoSuchProcedure, Executed::No), "{error}");
}

#[test]
fn claimed_identity_is_sent_with_each_call() {
    for over in BOTH {
        let expected = [words(&[0, 4]), b"desk".to_vec(), words(&[1000, 100, 2, 27, 44])].concat();
        let address = serve_all(over, move |call| {
            assert_eq!(call.credential, (1, expected.clone()));
            usual(call)
        });
        let identity = AuthSys::new(1000, 100).groups(&[27, 44]).machine("desk");
        let options = BindOptions::default().onc_auth_sys(identity);
        assert_eq!(bind_with(&address, &options).double(2).unwrap(), 4);
        let _ = AuthSys::of_process();
        for wrong in
            [AuthSys::new(1, 1).groups(&[7; 17]), AuthSys::new(1, 1).machine(&"x".repeat(256))]
        {
            let options = BindOptions::default().onc_auth_sys(wrong);
            let error = StoreClient::bind_with(&address, &options).err().unwrap();
            assert_eq!(error.kind(), Kind::BadName, "{error}");
        }
    }
}

#[test]
fn arguments_are_the_values_one_after_the_other() {
    for over in BOTH {
        let (sender, calls) = std::sync::mpsc::channel();
        let sender = Arc::new(std::sync::Mutex::new(sender));
        let address = serve(over, move |call| {
            sender.lock().unwrap().send(call.clone()).unwrap();
            usual(call)
        });
        let store = bind(&address);
        let any_words = proptest::collection::vec("\\PC{0,20}", 0..10);
        let mut last: Option<u32> = None;
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(100));
        let ran = runner.run(&(any_words, "\\PC{0,20}"), |(words, by)| {
            prop_assert_eq!(store.join(&words, &by).unwrap(), "joined");
            let call = calls.recv().unwrap();
            let arguments = [to_bytes::<Xdr>(&words), to_bytes::<Xdr>(&by)].map(Result::unwrap);
            prop_assert_eq!(&call.arguments, &arguments.concat());
            prop_assert_eq!((call.procedure, call.credential), (1, (0, Vec::new())));
            Ok(())
        });
        ran.unwrap();
        // The number of each call is one more than that of the call before.
        for _ in 0..3 {
            store.double(1).unwrap();
            let xid = calls.recv().unwrap().xid;
            assert!(last.is_none_or(|last| xid == last.wrapping_add(1)));
            last = Some(xid);
        }
    }
}
