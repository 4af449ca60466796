//! Calls that fail, and what the answer says: the status, the kind, and whether the call was executed.

use std::net::Shutdown;

use peregrine::Insecure;
use peregrine_bridge::{Bridge, SetupError};
use serde_json::json;

use crate::World;
use crate::world::client::{ask, get, post, rest, send};
use crate::world::server;

#[test]
fn wrong_arguments_are_named_by_their_path() {
    let world = World::new();
    let places = [
        ("sum", r#"{"points": [{"x": 1, "y": 2}, {"x": "a", "y": 2}]}"#, "arguments.points[1].x: "),
        ("sum", r#"{"points": [{"x": 1}]}"#, "arguments.points[0].y: "),
        ("sum", r#"{"points": {}}"#, "arguments.points: "),
        ("sum", "{}", "arguments.points: it is missing"),
        ("sum", r#"{"points": [], "more": 1}"#, "arguments.more: "),
        ("add", r#"{"a": 1, "b": 9223372036854775808}"#, "arguments.b: "),
        ("total", r#"{"numbers": [1, -1]}"#, "arguments.numbers[1]: "),
        ("total", r#"{"numbers": 1}"#, "arguments.numbers: "),
        ("count", r#"{"end": 1, "numbers": []}"#, "arguments.numbers: "),
        ("fill", r#"{"values": [], "into": -1}"#, "arguments.into: "),
        ("fill", r#"{"values": [], "into": 1000000000000}"#, "arguments.into: the maximum is "),
        ("add", "[1, 2]", "arguments: expected an object"),
        ("add", "{", "arguments: cannot parse"),
        ("add", "", "arguments: cannot parse"),
    ];
    for (procedure, body, place) in places {
        let text = world.call(procedure, body).failure(400, "BadArguments", "no");
        assert!(text.starts_with(place), "{text}");
    }
    let deep = format!(r#"{{"points": {}}}"#, "[".repeat(100_000));
    world.call("sum", &deep).failure(400, "BadArguments", "no");
}

#[test]
fn paths_that_lead_to_nothing_are_not_found() {
    let world = World::new();
    let text = world.call("ad", "{}").failure(404, "NotFound", "no");
    assert_eq!(text, "`Demo` has no procedure `ad`");
    for path in ["/demo", "/other/add", "/demo/add/more", "/demo/%ff", "//"] {
        ask(world.at, &post(world.at, path, "", "{}")).failure(404, "NotFound", "no");
    }
    world.call("ask", "{}").failure(501, "Callback", "no");
}

#[test]
fn errors_of_procedures_have_their_values() {
    let world = World::new();
    let refused = world.call("refuse", r#"{"why": "late", "hard": true}"#);
    refused.failure(422, "Refused", "yes");
    assert_eq!(refused.json()["error"]["value"], json!({ "Refused": "late" }));
    world.call("panic", "{}").failure(502, "Panicked", "maybe");
    // The failure of a one-way call is reported to its caller, and to no other.
    let failed = world.call("note", r#"{"text": ""}"#);
    assert_eq!(failed.json()["error"]["kind"], "OneWay", "{failed:?}");
    assert_eq!(world.call("add", r#"{"a": 1, "b": 1}"#).status, 200);
}

#[test]
fn deadline_of_a_request_ends_its_call() {
    let world = World::new();
    // The procedure does not look at its deadline, so it still runs when the deadline has passed.
    let wait = r#"{"count": 1}"#;
    let wait = post(world.at, "/demo/given_up", "Peregrine-Timeout-Ms: 100\r\n", wait);
    ask(world.at, &wait).failure(504, "TimedOut", "maybe");
    for wrong in ["0", "-1", "1.5", "", "99999999999999999999", "5\r\nPeregrine-Timeout-Ms: 5"] {
        let wrong =
            post(world.at, "/demo/wait", &format!("Peregrine-Timeout-Ms: {wrong}\r\n"), "{}");
        ask(world.at, &wrong).failure(400, "BadRequest", "no");
    }
}

#[test]
fn call_is_given_up_if_its_client_goes_away() {
    let world = World::new();
    let client = send(world.at, &post(world.at, "/demo/wait", "", "{}"));
    world.until_waiting(1);
    client.shutdown(Shutdown::Both).unwrap();
    assert_eq!(world.call("given_up", r#"{"count": 1}"#).status, 200);
    let client = send(world.at, &post(world.at, "/demo/endless", "", "{}"));
    client.peek(&mut [0]).unwrap();
    client.shutdown(Shutdown::Both).unwrap();
    assert_eq!(world.call("given_up", r#"{"count": 2}"#).status, 200);
}

#[test]
fn restarted_server_is_taken_up_with_its_new_interface() {
    let mut world = World::new();
    let (add, subtract) = (r#"{"a": 7, "b": 2}"#, r#"{"a": 7, "b": 2}"#);
    assert_eq!(world.call("add", add).json(), json!({ "result": 9 }));
    world.call("subtract", subtract).failure(404, "NotFound", "no");
    // The server is killed while a call runs.
    let running = send(world.at, &post(world.at, "/demo/wait", "", "{}"));
    world.until_waiting(1);
    let endpoint = world.server.endpoint.clone();
    drop(world.server);
    let answer = String::from_utf8(rest(running)).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 502 ") && answer.contains("peregrine-executed: maybe"),
        "{answer}"
    );
    // No server runs.
    let call = |procedure: &str, body: &str| {
        ask(world.at, &post(world.at, &format!("/demo/{procedure}"), "", body))
    };
    call("add", add).failure(503, "Unreachable", "no");
    let page = get(world.at, "/");
    assert!(page.status == 200 && page.body.contains("not reachable"), "{page:?}");
    world.server = server::Running::of_age("new", &endpoint);
    let call = |procedure: &str, body: &str| world.call(procedure, body);
    assert_eq!(call("subtract", subtract).json(), json!({ "result": 5 }));
    call("add", add).failure(404, "NotFound", "no");
    let paths = get(world.at, "/openapi.json").json()["paths"].as_object().unwrap().clone();
    assert_eq!(paths.keys().collect::<Vec<_>>(), ["/demo/subtract"]);
}

#[test]
fn stopped_bridge_gives_up_its_calls() {
    let server = server::Running::start();
    let spawn = || {
        let bridge = Bridge::new().offer(&server.address()).unwrap();
        bridge.listen("127.0.0.1:0").unwrap().spawn().unwrap()
    };
    let (first, second) = (spawn(), spawn());
    let (at, other) = (first.addresses()[0], second.addresses()[0]);
    let client = send(at, &post(at, "/demo/wait", "", "{}"));
    let waiting = || ask(other, &post(other, "/demo/waiting", "", "{}")).json()["result"] == 1;
    crate::world::until("the call runs", waiting);
    drop(first);
    let given_up = ask(other, &post(other, "/demo/given_up", "", r#"{"count": 1}"#));
    assert_eq!(given_up.status, 200);
    assert_eq!(rest(client), b"");
}

#[test]
fn wrong_setups_are_refused() {
    let error = |made: Result<Bridge, SetupError>| made.err().unwrap();
    assert!(matches!(error(Bridge::new().listen("0.0.0.0:0")), SetupError::Beyond(_)));
    assert!(
        Bridge::new().listen_beyond_this_machine("0.0.0.0:0", Insecure::ITrustThisNetwork).is_ok()
    );
    assert!(matches!(error(Bridge::new().offer("a:b:c")), SetupError::Address(_)));
    assert!(matches!(error(Bridge::new().offer("a/b=c")), SetupError::Name(_)));
    let twice = Bridge::new().offer("a@one").unwrap().offer("a@two");
    assert!(error(twice).to_string().contains("NAME=ADDRESS"));
    assert!(Bridge::new().offer("a@one").unwrap().offer("b=a@two").is_ok());
    let nothing = Bridge::new().listen("127.0.0.1:0").unwrap().spawn();
    assert!(matches!(nothing, Err(SetupError::Offers(0))));
    let nowhere = Bridge::new().offer("a").unwrap().spawn();
    assert!(matches!(nowhere, Err(SetupError::Nowhere)));
}
