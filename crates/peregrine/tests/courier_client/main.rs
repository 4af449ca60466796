//! Tests of clients of Courier over TCP, with servers that do not use the library (`server.rs`).

#[path = "../support/foreign.rs"]
mod foreign;
#[path = "../courier_server/framing.rs"]
mod framing;
mod oneway;
#[cfg(feature = "async")]
mod pending;
mod server;
#[path = "../support/mod.rs"]
mod support;

use std::io::Write as _;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use foreign::{REJECTIONS, kind};
use framing::{BOTH, Framing, words};
use peregrine::foreign::Foreign;
use peregrine::{
    BindOptions, Binding, CallError, CourierForm, Executed, Kind, Phase, Rebind, Value, Wait,
    interface,
};
use server::{Connection, Received, listen, serve, serve_cooper, serve_first, usual, word};
use support::until;

const LONG: Duration = Duration::from_secs(20);

/// Why `check` fails.
#[derive(Debug, Foreign, Value)]
enum CheckError {
    #[foreign(error = 7)]
    Refused {
        why: u16,
    },
    Call(CallError),
}

impl From<CallError> for CheckError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

#[interface(courier(program = 0x0002_0001, version = 2))]
trait Store {
    #[courier(7)]
    fn double(&self, number: u16) -> peregrine::Result<u16>;
    #[courier(9)]
    fn reverse(&self, numbers: Vec<u16>) -> peregrine::Result<Vec<u16>>;
    #[courier(11)]
    fn check(&self) -> Result<(), CheckError>;
}

#[interface]
trait Ordinary {
    fn nothing(&self) -> peregrine::Result<()>;
}

fn options(framing: Framing) -> BindOptions {
    BindOptions::default().courier_form(match framing {
        Framing::Records => CourierForm::Records,
        Framing::Frames => CourierForm::Frames,
    })
}

fn bind(framing: Framing, address: &str) -> StoreClient {
    bind_with(address, &options(framing))
}

fn bind_with(address: &str, options: &BindOptions) -> StoreClient {
    StoreClient::bind_with(address, options).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn calls_reach_a_server_and_results_return() {
    for framing in BOTH {
        for wait in [Wait::Spin, Wait::Block, Wait::Adaptive] {
            let store = bind_with(&serve(framing, usual), &options(framing).wait(wait));
            assert_eq!(store.double(21).unwrap(), 42);
            assert_eq!(store.reverse(vec![1, 2, 3]).unwrap(), [3, 2, 1]);
            store.check().unwrap();
            store.binding().ping().unwrap();
            assert!(store.binding().is_alive());
            assert_eq!(store.binding().path().system(), Some(peregrine::foreign::System::Courier));
            let explained = store.binding().explain().to_string();
            let form = format!("in {framing:?}").to_lowercase();
            assert!(explained.contains(&form), "{explained}");
        }
    }
}

#[test]
fn each_rejection_has_its_failure() {
    for framing in BOTH {
        for (reason, expected, executed, text) in REJECTIONS {
            let rejected = move |call: &Received| vec![words(&[&[1, call.tid], reason].concat())];
            let address = serve(framing, rejected);
            let store = bind_with(&address, &options(framing).rebind(Rebind::Never));
            let error = store.double(1).unwrap_err();
            assert_eq!(kind(&error), (expected, executed), "{framing:?}: {error}");
            assert!(error.detail().contains(text), "{framing:?}: {error}");
        }
    }
}

#[test]
fn reported_errors_are_those_of_the_method() {
    let abort = |error: u16, arguments: &'static [u16]| {
        move |call: &Received| vec![words(&[&[3, call.tid, error], arguments].concat())]
    };
    for framing in BOTH {
        let store = bind(framing, &serve(framing, abort(7, &[9])));
        assert!(matches!(store.check(), Err(CheckError::Refused { why: 9 })));
        // An error with another number, and errors with wrong arguments.
        for (error, arguments) in [(8, &[9][..]), (7, &[]), (7, &[9, 9])] {
            let store = bind(framing, &serve(framing, abort(error, arguments)));
            let Err(CheckError::Call(error)) = store.check() else { panic!() };
            assert_eq!(kind(&error), (Kind::BadResult, Executed::Maybe), "{error}");
        }
        // The method `double` declares no errors.
        let store = bind(framing, &serve(framing, abort(7, &[9])));
        let error = store.double(1).unwrap_err();
        assert_eq!(kind(&error), (Kind::BadResult, Executed::Maybe), "{error}");
    }
}

#[test]
fn unreadable_reply_may_have_executed() {
    let unreadable: [fn(u16) -> Vec<u8>; 5] = [
        |_| words(&[2]),
        |tid| words(&[7, tid]),
        |tid| [&words(&[2, tid])[..], &[0]].concat(),
        |tid| words(&[1, tid, 2, 0]),
        |_| Vec::new(),
    ];
    for framing in BOTH {
        for bad in unreadable {
            let store = bind(framing, &serve(framing, move |call| vec![bad(call.tid)]));
            let error = store.double(1).unwrap_err();
            assert_eq!(kind(&error), (Kind::BadResult, Executed::Maybe), "{error}");
        }
        for length in [0, 2, 5] {
            let results = move |call: &Received| {
                vec![words(&[&[2, call.tid], &vec![1; length][..]].concat())]
            };
            let error = bind(framing, &serve(framing, results)).double(1).unwrap_err();
            assert_eq!(kind(&error), (Kind::BadResult, Executed::Maybe), "{length}: {error}");
        }
    }
}

#[test]
fn reply_with_a_wrong_number_ends_the_connection() {
    for framing in BOTH {
        let address = serve_first(framing, |mut connection| {
            let call = connection.call().unwrap();
            connection.send(&words(&[2, call.tid.wrapping_add(1), 5]));
            // The client closes the connection.
            assert_eq!(connection.call(), None);
        });
        let store = bind(framing, &address);
        let error = store.double(1).unwrap_err();
        assert_eq!(kind(&error), (Kind::BadResult, Executed::Maybe), "{error}");
        assert!(error.detail().contains("does not belong"), "{error}");
        assert_eq!(store.double(4).unwrap(), 8);
    }
}

#[test]
fn late_reply_to_a_call_that_was_given_up_keeps_its_place() {
    for framing in BOTH {
        let (go, goes) = channel();
        let address = serve_first(framing, move |mut connection| {
            let late = connection.call().unwrap();
            goes.recv().unwrap();
            usual(&late).iter().for_each(|message| connection.send(message));
            while let Some(call) = connection.call() {
                usual(&call).iter().for_each(|message| connection.send(message));
            }
        });
        let store = bind(framing, &address);
        let soon = store.with_timeout(Duration::from_millis(20));
        let error = soon.reverse(vec![1; 1000]).unwrap_err();
        assert_eq!(kind(&error), (Kind::TimedOut, Executed::Maybe), "{error}");
        go.send(()).unwrap();
        for number in 0..50 {
            assert_eq!(store.double(number).unwrap(), 2 * number);
        }
    }
}

#[test]
fn calls_that_nobody_answers_are_bounded() {
    let framing = Framing::Records;
    let (done, is_done) = channel::<()>();
    let address = serve_first(framing, move |mut connection| {
        let read = thread::spawn(move || while connection.call().is_some() {});
        let _ = is_done.recv();
        let _ = read;
    });
    let store = bind_with(&address, &options(framing).rebind(Rebind::Never));
    let soon = store.with_timeout(Duration::from_micros(1));
    let mut failures = (0..1100).map(|_| soon.double(1).unwrap_err());
    let full = failures.find(|error| error.kind() != Kind::TimedOut).expect("a bound");
    assert_eq!(kind(&full), (Kind::Exhausted, Executed::No), "{full}");
    done.send(()).unwrap();
}

#[test]
fn pieces_of_any_size_are_a_message() {
    for framing in BOTH {
        for size in [1, 3, 7] {
            let address = serve_first(framing, move |mut connection| {
                while let Some(call) = connection.call() {
                    let reply = usual(&call).remove(0);
                    let mut bytes = Vec::new();
                    for piece in reply.chunks(size) {
                        // An empty piece, and one with some bytes.
                        bytes.extend([0, 0, 0, 0, 0, 0, 0, piece.len() as u8]);
                        bytes.extend(piece);
                    }
                    bytes.extend(match framing {
                        Framing::Records => [0x80, 0, 0, 0],
                        Framing::Frames => [0, 1, 0, 0],
                    });
                    let (first, second) = bytes.split_at(bytes.len() / 2);
                    connection.stream.write_all(first).unwrap();
                    connection.stream.write_all(second).unwrap();
                }
            });
            let store = bind(framing, &address);
            for number in 0..10 {
                assert_eq!(store.double(number).unwrap(), 2 * number);
            }
            let numbers: Vec<u16> = (0..200).collect();
            assert!(store.reverse(numbers.clone()).unwrap().iter().rev().eq(&numbers));
        }
    }
}

#[test]
fn large_messages_travel() {
    let numbers: Vec<u16> = (0..=u16::MAX).take(65_535).collect();
    for framing in BOTH {
        let store = bind(framing, &serve(framing, usual));
        for _ in 0..3 {
            assert!(store.reverse(numbers.clone()).unwrap().iter().rev().eq(&numbers));
        }
    }
    // The count of a sequence is one word, so a sequence has at most 65,535 elements.
    let store = bind(Framing::Records, &serve(Framing::Records, usual));
    let error = store.reverse(vec![1; 65_536]).unwrap_err();
    assert_eq!((error.executed(), error.phase()), (Executed::No, Phase::Marshal), "{error}");
}

#[test]
fn lost_connection_may_have_executed_and_the_next_call_binds_again() {
    for framing in BOTH {
        let half = framing.whole(&words(&[2, 1, 2]))[..7].to_vec();
        let endless = [0; 4].repeat(1 << 16 | 1);
        let long = match framing {
            Framing::Records => words(&[0xffff, 0xffff]),
            Framing::Frames => words(&[7, 7]),
        };
        for bad in [Vec::new(), half, endless, long] {
            let address = serve_first(framing, move |mut connection| {
                connection.call().unwrap();
                let _ = connection.stream.write_all(&bad);
            });
            let store = bind(framing, &address);
            let error = store.double(1).unwrap_err();
            assert_eq!(kind(&error), (Kind::ServerGone, Executed::Maybe), "{error}");
            assert_eq!(store.double(5).unwrap(), 10);
        }
    }
}

#[test]
fn closed_connection_is_noticed_before_the_next_call() {
    for framing in BOTH {
        let address = serve_first(framing, drop);
        let store = bind(framing, &address);
        until("the client notices", || !store.binding().is_alive());
        // The call was not executed on the closed connection, so the binding repeats it on another one.
        assert_eq!(store.double(7).unwrap(), 14);
    }
}

#[test]
fn end_of_the_data_is_answered() {
    let (answers, answer) = channel();
    let address = serve_first(Framing::Frames, move |mut connection| {
        connection.call().unwrap();
        connection.stream.write_all(&[254, 0, 0, 0]).unwrap();
        let mut received = Vec::new();
        std::io::Read::read_to_end(&mut connection.stream, &mut received).unwrap();
        answers.send(received).unwrap();
    });
    let store = bind(Framing::Frames, &address);
    let error = store.double(1).unwrap_err();
    assert_eq!(kind(&error), (Kind::ServerGone, Executed::Maybe), "{error}");
    assert_eq!(answer.recv().unwrap(), [255, 0, 0, 0]);
    assert_eq!(store.double(7).unwrap(), 14);
}

#[test]
fn versions_that_do_not_meet_are_reported_by_bind() {
    for framing in BOTH {
        for [low, high] in [[1, 2], [4, 9]] {
            let (listener, address) = listen();
            let server = thread::spawn(move || {
                let mut stream = listener.accept().unwrap().0;
                stream.write_all(&framing.whole(&words(&[low, high]))).unwrap();
                // The client closes the connection.
                while framing.read(&mut stream).is_some() {}
            });
            let error = StoreClient::bind_with(&address, &options(framing)).err().unwrap();
            assert_eq!(kind(&error), (Kind::ProtocolMismatch, Executed::No), "{error}");
            assert!(error.detail().contains(&format!("versions {low} to {high}")), "{error}");
            server.join().unwrap();
        }
    }
}

#[test]
fn missing_programs_are_reported_by_bind() {
    let cases: [(&[u16], Kind, &str); 3] = [
        (&[0], Kind::NotFound, "does not have the program"),
        (&[1, 5, 9], Kind::InterfaceMismatch, "has versions 5 to 9, not 2"),
        (&[0xffff], Kind::Relayed, "reason 65535"),
    ];
    for framing in BOTH {
        for (reason, expected, text) in cases {
            let (listener, address) = listen();
            let server = thread::spawn(move || {
                let mut connection = Connection::accept(&listener, framing);
                let call = connection.call().unwrap();
                connection.send(&words(&[&[1, call.tid], reason].concat()));
                assert_eq!(connection.call(), None);
            });
            let error = StoreClient::bind_with(&address, &options(framing)).err().unwrap();
            assert_eq!(kind(&error), (expected, Executed::No), "{error}");
            assert_eq!(error.phase(), Phase::Bind);
            assert!(error.detail().contains(text), "{error}");
            server.join().unwrap();
        }
    }
}

#[test]
fn silent_server_is_reported_by_bind() {
    let (listener, address) = listen();
    let soon = BindOptions::default().bind_timeout(Duration::from_millis(50));
    for form in [CourierForm::Records, CourierForm::Frames, CourierForm::Cooper] {
        let error =
            StoreClient::bind_with(&address, &soon.clone().courier_form(form)).err().unwrap();
        assert_eq!(kind(&error), (Kind::TimedOut, Executed::No), "{form:?}: {error}");
    }
    drop(listener);
    let error = StoreClient::bind(&address).err().unwrap();
    assert_eq!(kind(&error), (Kind::Unreachable, Executed::No), "{error}");
}

#[test]
fn address_and_interface_must_name_the_same_program() {
    let address = serve(Framing::Records, usual);
    assert_eq!(bind(Framing::Records, &format!("{address}/131073.2")).double(1).unwrap(), 2);
    let refusal = |name: &str| StoreClient::bind(&format!("{address}/{name}")).err().unwrap();
    for (name, expected) in [
        ("131073.3", Kind::InterfaceMismatch),
        ("7.2", Kind::InterfaceMismatch),
        ("7", Kind::BadName),
    ] {
        let error = refusal(name);
        assert_eq!(kind(&error), (expected, Executed::No), "{name}: {error}");
    }
    let error = OrdinaryClient::bind(&address).err().unwrap();
    assert_eq!(kind(&error), (Kind::InterfaceMismatch, Executed::No), "{error}");
    // `bind_any` knows no interface, so the address must name the program.
    let binding = Binding::bind_any(&format!("{address}/131073.2"), &BindOptions::default());
    binding.unwrap().ping().unwrap();
}

#[test]
fn server_that_does_not_read_delays_only_its_own_calls() {
    for framing in BOTH {
        let (go, goes) = channel();
        let address = serve_first(framing, move |mut connection| {
            goes.recv().unwrap();
            while let Some(call) = connection.call() {
                usual(&call).iter().for_each(|message| connection.send(message));
            }
        });
        let store = bind(framing, &address);
        thread::scope(|scope| {
            // The messages do not fit the buffers of the sockets.
            let calls: Vec<_> = (0..100_u16)
                .map(|n| {
                    let store = &store;
                    scope.spawn(move || store.reverse(vec![n; 60_000]))
                })
                .collect();
            go.send(()).unwrap();
            for (n, call) in calls.into_iter().enumerate() {
                let reversed = call.join().unwrap();
                assert!(reversed.is_ok_and(|all| all == vec![n as u16; 60_000]));
            }
        });
    }
}

#[test]
fn threads_share_a_connection() {
    for framing in BOTH {
        let store = bind(framing, &serve(framing, usual));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for number in 0..500 {
                        assert_eq!(store.double(number).unwrap(), 2 * number);
                    }
                });
            }
        });
    }
}

#[test]
fn calls_in_coopers_form_have_no_failures() {
    let address = serve_cooper("Store", |call| match call.procedure {
        7 => words(&[1, 2 * word(&call.arguments, 0)]),
        9 => [words(&[(call.arguments.len() / 2) as u16]), call.arguments.clone()].concat(),
        _ => Vec::new(),
    });
    let store = bind_with(&format!("{address}/Store"), &BindOptions::default());
    assert_eq!(store.double(4).unwrap(), 8);
    // A procedure without results has no reply, so its call ends when it is sent.
    store.check().unwrap();
    assert_eq!(store.reverse(vec![5; 30_000]).unwrap(), [5; 30_000]);
    let error = store.reverse(vec![1; 65_535]).unwrap_err();
    assert_eq!(kind(&error), (Kind::TooLarge, Executed::No), "{error}");
    let error = store.binding().ping().unwrap_err();
    assert_eq!(kind(&error), (Kind::NoSuchProcedure, Executed::No), "{error}");
}

#[test]
fn results_without_a_call_end_the_connection() {
    let twice = |call: &Received| words(&[1, 2 * word(&call.arguments, 0), 1, 1]);
    let options = BindOptions::default().courier_form(CourierForm::Cooper);
    let store = bind_with(&serve_cooper("Store", twice), &options);
    assert_eq!(store.double(4).unwrap(), 8);
    until("the client notices", || !store.binding().is_alive());
}
