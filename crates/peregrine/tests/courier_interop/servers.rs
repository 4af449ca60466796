//! Programs in Python call servers in Rust.

use serde_json::{Value, json};

use crate::CARRIERS;
use crate::program::serve;
use crate::python;

/// Returns the names of procedures that return their argument, each with an argument.
fn echoes() -> Vec<(&'static str, Value)> {
    vec![
        ("EchoBoolean", json!(true)),
        ("EchoCardinal", json!(65535)),
        ("EchoLongCardinal", json!(u32::MAX)),
        ("EchoInteger", json!(-32768)),
        ("EchoLongInteger", json!(-2)),
        ("EchoUnspecified", json!(4660)),
        ("EchoLongUnspecified", json!(305_419_896)),
        ("EchoString", json!("an odd count of bytes")),
        ("EchoString", json!({"hex": "ff00"})),
        ("EchoColour", json!("blue")),
        ("EchoArray", json!([1, 2, 3])),
        ("EchoSequence", json!([1, 65536])),
        ("EchoBounded", json!(["", "a", "ab", "abc"])),
        ("EchoRecord", json!({"name": "Ada", "age": 36, "flags": [true, false]})),
        ("EchoEmpties", json!([{}, {}, {}])),
        ("EchoChoice", json!({"disc": {"radius": 70000}})),
        ("EchoChoice", json!({"polygon": [1, -1]})),
        ("EchoAnswer", json!({"number": -5})),
        ("EchoTree", json!({"label": 1, "children": [{"label": 2, "children": []}]})),
        ("EchoList", json!({"node": {"head": 7, "rest": {"nil": {}}}})),
        ("EchoStream", json!([[1, 2], [3]])),
    ]
}

fn returned(results: &Value) -> Value {
    json!({"outcome": "return", "results": results})
}

#[test]
fn python_client_calls_every_procedure() {
    if !python::is_installed() {
        return;
    }
    for carrier in CARRIERS {
        let (_server, port) = serve(carrier, "every");
        let call = |procedure: &str, arguments: Value| {
            python::call(carrier, port, &[procedure, &arguments.to_string()])
        };
        for (procedure, value) in echoes() {
            let outcome = call(procedure, json!([value]));
            assert_eq!(outcome, returned(&json!({"result": value})), "{carrier} {procedure}");
        }
        assert_eq!(call("Nothing", json!([])), returned(&json!({})), "{carrier}");
        assert_eq!(call("Add", json!([1, -3])), returned(&json!({"sum": -2})), "{carrier}");
        let divided = returned(&json!({"quotient": -3, "remainder": -1}));
        assert_eq!(call("Divide", json!([-7, 2])), divided, "{carrier}");
        assert_eq!(call("Note", json!(["first"])), returned(&json!({})), "{carrier}");
        assert_eq!(call("Note", json!(["second"])), returned(&json!({})), "{carrier}");
        let notes = call("Notes", json!([]));
        if carrier == "cooper" {
            // In this form, the client does not wait until calls without results have run. These calls use
            // other connections, so the notes may be incomplete.
            assert_eq!(notes["outcome"], "return");
        } else {
            assert_eq!(notes, returned(&json!({"notes": ["first", "second"]})), "{carrier}");
        }
    }
}

#[test]
fn errors_reach_a_python_client() {
    if !python::is_installed() {
        return;
    }
    for carrier in CARRIERS {
        let (_server, port) = serve(carrier, "errors");
        let call = |procedure: &str, arguments: Value| {
            python::call(carrier, port, &[procedure, &arguments.to_string()])
        };
        if carrier == "cooper" {
            // In this form, the end of the connection is the only sign of a failure.
            let failed = call("Divide", json!([1, 0]));
            assert_eq!(
                (&failed["outcome"], &failed["executed"]),
                (&json!("failed"), &json!("maybe"))
            );
            assert_eq!(call("Fail", json!(["plain"])), returned(&json!({})));
            continue;
        }
        let aborted = |error: &str, number: u16, arguments: Value| {
            let error = json!({"error": error, "number": number, "error_arguments": arguments});
            let Value::Object(mut all) = error else { unreachable!() };
            all.insert("outcome".to_owned(), json!("abort"));
            Value::Object(all)
        };
        let zero = aborted("DivisionByZero", 65535, json!({"dividend": 1}));
        assert_eq!(call("Divide", json!([1, 0])), zero, "{carrier}");
        assert_eq!(call("Fail", json!(["plain"])), aborted("Plain", 0, json!({})));
        let text = aborted("Text", 1, json!({"text": "the reason"}));
        assert_eq!(call("Fail", json!(["text"])), text, "{carrier}");
        let person = json!({"name": "Ada", "age": 36, "flags": [true, false]});
        let detailed = aborted("Detailed", 2, json!({"person": person, "codes": [1, 2, 3]}));
        assert_eq!(call("Fail", json!(["record"])), detailed, "{carrier}");
        let rejected = call("Fail", json!(["undeclared"]));
        assert_eq!((&rejected["outcome"], &rejected["number"]), (&json!("reject"), &json!(65535)));
    }
}

#[test]
fn python_client_may_divide_messages_and_announce_versions_in_every_way() {
    if !python::is_installed() {
        return;
    }
    let (_server, port) = serve("tcp-rm", "ways");
    let sum = returned(&json!({"sum": 3}));
    for carrier in ["tcp-rm", "tcp-spp"] {
        for ways in [["--chunk", "1"], ["--versions", "separate"], ["--speaks", "2-9"]] {
            let outcome = python::call(carrier, port, &[&ways[..], &["Add", "[1, 2]"]].concat());
            assert_eq!(outcome, sum, "{carrier} {ways:?}");
        }
        let failed = python::call(carrier, port, &["--speaks", "4-9", "Add", "[1, 2]"]);
        assert_eq!((&failed["outcome"], &failed["executed"]), (&json!("failed"), &json!("no")));
        let failed = python::call(carrier, port, &["--version", "9", "Add", "[1, 2]"]);
        let versions = [&failed["number"], &failed["lowest"], &failed["highest"]];
        assert_eq!(versions, [&json!(1), &json!(2), &json!(2)], "{carrier}");
    }
}

#[test]
fn python_attacks_have_the_answers_that_it_expects() {
    if !python::is_installed() {
        return;
    }
    // The Python program expects the answers of a server that has a port only for Cooper's form. Peregrine
    // serves all forms at one port. So it takes the length of an empty name as the start of a frame, and a
    // length with the highest bit as the start of a record. If a name could be a path, Peregrine ends the
    // connection without a text.
    let excepted =
        ["an empty name", "a long name without bytes", "a path as name", "a hidden file as name"];
    for carrier in CARRIERS {
        let (_server, port) = serve(carrier, "attacks");
        let port = port.to_string();
        let (_, lines) = python::run(&["hostile", "--carrier", carrier, "--port", &port]);
        assert!(lines.len() > 10, "{lines:?}");
        for line in lines {
            let name = line["case"].as_str().unwrap_or_default();
            let is_right = line["ok"] == true || excepted.contains(&name);
            assert!(is_right, "{carrier}: {line}");
        }
    }
}

#[test]
fn datagrams_of_a_python_client_that_arrive_several_times_run_one_call() {
    if !python::is_installed() {
        return;
    }
    let (_server, port) = serve("udp", "duplicates");
    for text in ["first", "second"] {
        let argument = json!([text]).to_string();
        let noted = python::call("udp", port, &["--duplicates", "4", "Note", &argument]);
        assert_eq!(noted, returned(&json!({})));
    }
    let notes = python::call("udp", port, &["Notes", "[]"]);
    assert_eq!(notes, returned(&json!({"notes": ["first", "second"]})));
    let failed = python::call("udp", port, &["--version", "9", "Add", "[1, 2]"]);
    assert_eq!([&failed["lowest"], &failed["highest"]], [&json!(2), &json!(2)]);
    // A server does not answer clients whose versions it does not have.
    let failed = python::call("udp", port, &["--speaks", "4-9", "--limit", "0.5", "Add", "[1, 2]"]);
    assert_eq!(failed["outcome"], "failed");
}
