//! Programs in Rust call servers in Python.

use std::time::Duration;

use peregrine::{BindOptions, CallError, CourierForm, Executed, Kind};
use serde_json::json;

use crate::foreign::kind;
use crate::interop::*;
use crate::program::{ada, text};
use crate::python::{self, Server};
use crate::{CARRIERS, STANDARD};

fn form(carrier: &str) -> CourierForm {
    match carrier {
        "tcp-rm" => CourierForm::Records,
        "tcp-spp" => CourierForm::Frames,
        _ => CourierForm::Cooper,
    }
}

fn bind(carrier: &str, port: u16) -> Result<InteropClient, CallError> {
    let options = BindOptions::default().courier_form(form(carrier));
    let scheme = if carrier == "udp" { "courier+udp" } else { "courier+tcp" };
    InteropClient::bind_with(&format!("{scheme}:127.0.0.1:{port}"), &options)
}

#[test]
fn client_calls_every_procedure_of_a_python_server() {
    if !python::is_installed() {
        return;
    }
    for carrier in CARRIERS {
        // In Cooper's form and in packets, messages are not divided.
        let divided = ["--chunk", "3"];
        for ways in [&divided[..], &["--versions", "joined"], &[]] {
            if ["cooper", "udp"].contains(&carrier) && !ways.is_empty() {
                continue;
            }
            let server = Server::start(carrier, ways);
            let it =
                bind(carrier, server.port).unwrap_or_else(|error| panic!("{carrier}: {error}"));
            every_procedure(&it);
            let calls = server.stop();
            let notes = calls.iter().filter(|call| call["procedure"] == "Note").count();
            assert_eq!(notes, 2, "{carrier} {ways:?}");
        }
    }
}

fn every_procedure(it: &InteropClient) {
    it.nothing().unwrap();
    assert!(it.echo_boolean(true).unwrap() && !it.echo_boolean(false).unwrap());
    assert_eq!(it.echo_cardinal(65535).unwrap(), 65535);
    assert_eq!(it.echo_long_cardinal(u32::MAX).unwrap(), u32::MAX);
    assert_eq!(it.echo_integer(-32768).unwrap(), -32768);
    assert_eq!(it.echo_long_integer(-2).unwrap(), -2);
    assert_eq!(it.echo_unspecified(4660).unwrap(), 4660);
    assert_eq!(it.echo_long_unspecified(0x1234_5678).unwrap(), 0x1234_5678);
    for value in [text(""), text("a"), text("ab")] {
        assert_eq!(it.echo_string(value.clone()).unwrap(), value);
    }
    assert_eq!(it.echo_colour(Colour::Blue).unwrap(), Colour::Blue);
    assert_eq!(it.echo_array([1, 2, 3]).unwrap(), [1, 2, 3]);
    // The arguments fit a datagram.
    let long: Vec<u32> = (0..16_000).collect();
    assert_eq!(it.echo_sequence(long.clone()).unwrap(), long);
    let bounded = vec![text(""), text("abc")];
    let returned = it.echo_bounded(EchoBoundedValue(bounded.clone())).unwrap();
    assert_eq!(returned, EchoBoundedResult(bounded));
    assert_eq!(it.echo_record(ada()).unwrap(), ada());
    assert_eq!(it.echo_empties(vec![(); 3]).unwrap(), [(); 3]);
    for shape in [
        Shape::Point,
        Shape::Circle(ShapeCircle { radius: 70_000 }),
        Shape::Disc(ShapeCircle { radius: 1 }),
        Shape::Polygon(vec![1, -1]),
    ] {
        assert_eq!(it.echo_choice(shape.clone()).unwrap(), shape);
    }
    let answer = Answer::Text(text("yes"));
    assert_eq!(it.echo_answer(answer.clone()).unwrap(), answer);
    let leaf = Tree { label: 2, children: vec![] };
    let tree = Tree { label: 1, children: vec![leaf.clone(), leaf] };
    assert_eq!(it.echo_tree(tree.clone()).unwrap(), tree);
    let list = List::Node { head: 7, rest: Box::new(List::Nil) };
    assert_eq!(it.echo_list(list.clone()).unwrap(), list);
    let last = Box::new(StreamOfCardinal::LastSegment(vec![3]));
    let stream = StreamOfCardinal::NextSegment { segment: vec![1, 2], rest_of_stream: last };
    assert_eq!(it.echo_stream(stream.clone()).unwrap(), stream);
    assert_eq!(it.add(1, -3).unwrap(), -2);
    let divided = DivideResults { quotient: -3, remainder: -1 };
    assert_eq!(it.divide(-7, 2).unwrap(), divided);
    it.fail(Failure::None).unwrap();
    assert_eq!(it.sleep(1).unwrap(), 1);
    it.note(text("first")).unwrap();
    it.note(text("second")).unwrap();
    assert_eq!(it.notes().unwrap(), [text("first"), text("second")]);
}

#[test]
fn errors_of_a_python_server_are_those_of_the_interface() {
    if !python::is_installed() {
        return;
    }
    for carrier in STANDARD {
        let server = Server::start(carrier, &[]);
        let it = bind(carrier, server.port).unwrap();
        assert!(matches!(it.add(i32::MAX, 1), Err(AddError::Overflow)));
        assert!(matches!(it.divide(5, 0), Err(DivideError::DivisionByZero { dividend: 5 })));
        assert!(matches!(it.fail(Failure::Plain), Err(FailError::Plain)));
        let reason = text("the reason");
        let failed = it.fail(Failure::Text);
        assert!(matches!(failed, Err(FailError::Text { text }) if text == reason));
        let Err(FailError::Detailed { person, codes }) = it.fail(Failure::Record) else { panic!() };
        assert_eq!((person, codes), (ada(), vec![1, 2, 3]));
        let Err(FailError::Call(error)) = it.fail(Failure::Undeclared) else { panic!() };
        assert_eq!(kind(&error), (Kind::Relayed, Executed::Maybe), "{error}");
        it.binding().ping().unwrap();
        let calls = server.stop();
        // When the client binds and when it pings, it calls a procedure that the program does not have. The
        // server also rejects the call whose error is not declared. Over UDP, it also asks when it binds
        // whether the server supports calls in parts (of several packets).
        let rejected = calls.iter().filter(|call| call["outcome"] == "reject").count();
        assert_eq!(rejected, if carrier == "udp" { 4 } else { 3 }, "{calls:?}");
    }
}

#[test]
fn programs_and_versions_that_a_python_server_lacks_are_reported_by_bind() {
    if !python::is_installed() {
        return;
    }
    for carrier in STANDARD {
        let cases: [(&[&str], Kind, &str); 3] = [
            (&["--program", "7"], Kind::NotFound, "does not have the program"),
            (&["--version", "5"], Kind::InterfaceMismatch, "has versions 5 to 5, not 2"),
            (&["--speaks", "4-9"], Kind::ProtocolMismatch, "versions 4 to 9 of Courier"),
        ];
        for (ways, expected, text) in cases {
            if carrier == "udp" && ways[0] == "--speaks" {
                // A server does not answer datagrams that announce other versions of Courier.
                continue;
            }
            let server = Server::start(carrier, ways);
            let error = bind(carrier, server.port).expect_err("it does not fit");
            assert_eq!(kind(&error), (expected, Executed::No), "{carrier}: {error}");
            assert!(error.detail().contains(text), "{carrier}: {error}");
        }
    }
    let server = Server::start("cooper", &[]);
    let other = format!("courier+tcp:127.0.0.1:{}/Other", server.port);
    let error = InteropClient::bind(&other).expect_err("there is no such program");
    assert_eq!(kind(&error), (Kind::NotFound, Executed::No), "{error}");
    assert!(error.detail().contains("Unknown Courier program"), "{error}");
}

#[test]
fn name_in_an_address_means_coopers_form() {
    if !python::is_installed() {
        return;
    }
    let server = Server::start("cooper", &[]);
    let address = format!("courier+tcp:127.0.0.1:{}/Interop", server.port);
    let options = BindOptions::default().timeout(Duration::from_secs(20));
    let it = InteropClient::bind_with(&address, &options).unwrap();
    assert_eq!(it.add(20, 22).unwrap(), 42);
    let explained = it.binding().explain().to_string();
    assert!(explained.contains("the program `Interop`"), "{explained}");
    // In Cooper's form, the server closes the connection instead of reporting an error.
    let Err(DivideError::Call(error)) = it.divide(1, 0) else { panic!() };
    assert_eq!(kind(&error), (Kind::ServerGone, Executed::Maybe), "{error}");
    assert_eq!(it.add(1, 2).unwrap(), 3);
    assert_eq!(server.stop().last().unwrap()["results"], json!({"sum": 3}));
}

#[test]
fn lost_datagrams_are_sent_again_and_no_call_runs_twice() {
    if !python::is_installed() {
        return;
    }
    // The server drops the first datagrams: the calls by which the client binds, or the replies to these
    // calls.
    for ways in [["--lose-calls", "2"], ["--lose-replies", "2"]] {
        let server = Server::start("udp", &ways);
        let options = BindOptions::default().bind_timeout(Duration::from_secs(20));
        let address = format!("courier+udp:127.0.0.1:{}", server.port);
        let it = InteropClient::bind_with(&address, &options).unwrap();
        it.note(text("first")).unwrap();
        it.note(text("second")).unwrap();
        assert_eq!(it.notes().unwrap(), [text("first"), text("second")], "{ways:?}");
        let calls = server.stop();
        let notes = calls.iter().filter(|call| call["procedure"] == "Note").count();
        assert_eq!(notes, 2, "{ways:?}");
    }
}
