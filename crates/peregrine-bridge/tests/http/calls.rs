//! Calls that succeed, and the documents that describe the procedures.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::World;
use crate::world::client::{ask, get, post, rest, send};

#[test]
fn arguments_and_results_are_json() {
    let world = World::new();
    let ok = |procedure: &str, body: &str| {
        let answer = world.call(procedure, body);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.header("peregrine-executed"), Some("yes"));
        answer.json()
    };
    assert_eq!(ok("add", r#"{"a": 2, "b": -5}"#), json!({ "result": -3 }));
    let largest = ok("add", r#"{"a": "9223372036854775806", "b": 1}"#);
    assert_eq!(largest, json!({ "result": i64::MAX }));
    let points = r#"{"points": [{"x": 1, "y": 2}, {"x": 3, "y": 4}]}"#;
    assert_eq!(ok("sum", points), json!({ "result": { "x": 4, "y": 6 } }));
    let filled = ok("fill", r#"{"values": [1, 2], "into": 3}"#);
    assert_eq!(filled, json!({ "result": 3, "out": { "values": [2, 4], "into": "aaa" } }));
    assert_eq!(ok("total", r#"{"numbers": [1, 2, 3]}"#), json!({ "result": 6 }));
    assert_eq!(ok("note", r#"{"text": "x"}"#), json!({ "result": null }));
}

/// Reads until a line of the answer is a JSON object, and returns the object.
fn next(stream: &mut BufReader<TcpStream>) -> Value {
    loop {
        let mut line = String::new();
        assert_ne!(stream.read_line(&mut line).unwrap(), 0, "the answer has ended");
        if line.starts_with('{') {
            return serde_json::from_str(&line).unwrap();
        }
    }
}

#[test]
fn items_arrive_while_the_call_runs() {
    let world = World::new();
    let stream = send(world.at, &post(world.at, "/demo/two", "", "{}"));
    let mut stream = BufReader::new(stream);
    assert_eq!(next(&mut stream), json!({ "sink": "numbers", "item": 1 }));
    assert_eq!(world.call("go", "{}").status, 200);
    assert_eq!(next(&mut stream), json!({ "sink": "numbers", "item": 2 }));
    assert_eq!(next(&mut stream), json!({ "result": null }));
    let counted = world.call("count", r#"{"end": 10000}"#);
    assert_eq!(counted.header("content-type"), Some("application/x-ndjson"));
    let lines: Vec<&str> = counted.body.lines().collect();
    assert_eq!((lines.len(), lines[10_000]), (10_001, r#"{"result":10000}"#));
    // If a stream has no items, the answer is that of an ordinary call.
    assert_eq!(world.call("count", r#"{"end": 0}"#).json(), json!({ "result": 0 }));
}

#[test]
fn many_clients_call_at_once() {
    let world = World::with(|bridge| bridge.calls_max(16));
    let done = std::thread::scope(|scope| {
        let clients = (0..16).map(|client: i64| {
            let world = &world;
            scope.spawn(move || {
                for number in 0..50 {
                    let sum = world.call("add", &format!(r#"{{"a": {client}, "b": {number}}}"#));
                    assert_eq!(sum.json(), json!({ "result": client + number }), "{sum:?}");
                }
            })
        });
        let clients: Vec<_> = clients.collect();
        clients.into_iter().map(|client| client.join().unwrap()).count()
    });
    assert_eq!(done, 16);
}

#[test]
fn one_connection_carries_many_requests() {
    let world = World::new();
    let request = |last: bool| {
        let one =
            String::from_utf8(post(world.at, "/demo/add", "", r#"{"a": 1, "b": 2}"#)).unwrap();
        if last { one } else { one.replace("Connection: close\r\n", "") }
    };
    let all = [request(false), request(false), request(true)].concat();
    let answers = String::from_utf8(rest(send(world.at, all.as_bytes()))).unwrap();
    assert_eq!(answers.matches(r#"{"result":3}"#).count(), 3, "{answers}");
}

/// Calls `visit` with each reference in a document.
fn references(value: &Value, visit: &mut impl FnMut(&str)) {
    match value {
        Value::Object(all) => {
            if let Some(Value::String(to)) = all.get("$ref") {
                visit(to);
            }
            all.values().for_each(|one| references(one, visit));
        }
        Value::Array(all) => all.iter().for_each(|one| references(one, visit)),
        _ => {}
    }
}

#[test]
fn openapi_document_describes_each_procedure() {
    let world = World::new();
    let document = get(world.at, "/openapi.json").json();
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().unwrap();
    // The document does not contain the procedure `ask`, because it has a callback.
    assert_eq!(paths.len(), 14);
    let sum = &paths["/demo/sum"]["post"];
    assert_eq!(sum["description"], "Adds points.");
    let arguments = &sum["requestBody"]["content"]["application/json"]["schema"];
    assert_eq!(arguments["required"], json!(["points"]));
    let mut count = 0;
    references(&document, &mut |to| {
        let found = document.pointer(to.strip_prefix('#').unwrap());
        assert!(found.is_some(), "{to} leads to nothing");
        count += 1;
    });
    assert!(count > 20);
}

#[test]
fn page_shows_each_procedure() {
    let world = World::new();
    let page = get(world.at, "/");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    for part in ["Adds points.", "data-path=\"/demo/sum\"", "has a callback"] {
        assert!(page.body.contains(part), "{part} is missing");
    }
    for (file, media) in [("/page.css", "text/css"), ("/page.js", "text/javascript")] {
        let file = get(world.at, file);
        assert!(file.status == 200 && file.header("content-type").unwrap().starts_with(media));
    }
}

#[test]
fn headers_become_metadata_of_the_call() {
    let world = World::new();
    let call = |procedure: &str, headers: &str| {
        ask(world.at, &post(world.at, &format!("/demo/{procedure}"), headers, "{}"))
    };
    let both = "Peregrine-Meta-Tenant: birds\r\nPEREGRINE-META-a.b_1: \u{e9}\r\n";
    assert_eq!(call("metadata", both).json()["result"], json!(["tenant=birds", "a.b_1=\u{e9}"]));
    assert_eq!(call("metadata", "").json()["result"], json!([]));
    let one = call("note_metadata", "Peregrine-Meta-Tenant: birds\r\n");
    assert_eq!(one.status, 200, "{one:?}");
    let many: String = (0..33).map(|n| format!("Peregrine-Meta-{n}: v\r\n")).collect();
    let long = format!("Peregrine-Meta-K: {}\r\n", "v".repeat(3072));
    for (headers, kind) in [
        (&*many, "BadArguments"),
        (&*long, "BadArguments"),
        ("Peregrine-Meta-: v\r\n", "BadArguments"),
        ("Peregrine-Meta-a!: v\r\n", "BadArguments"),
        ("Peregrine-Meta-K: 1\r\nPeregrine-Meta-k: 2\r\n", "BadRequest"),
    ] {
        call("metadata", headers).failure(400, kind, "no");
        call("note_metadata", headers).failure(400, kind, "no");
    }
}
