//! Clients that send too much, that send too slowly, or that call on behalf of a foreign page.

use core::time::Duration;
use std::io::Write as _;

use peregrine_bridge::Bridge;

use crate::World;
use crate::world::client::{Answer, ask, call, get, post, rest, send};

/// The time limit for clients: short enough for a test, and long enough for a client that is not slow.
const CLIENT_LIMIT: Duration = Duration::from_millis(500);

#[test]
fn large_requests_are_refused() {
    let world = World::with(|bridge| bridge.body_bytes_max(1000));
    let large = format!(r#"{{"why": "{}", "hard": true}}"#, "x".repeat(1000));
    world.call("refuse", &large).failure(413, "TooLarge", "no");
    // Only the header arrives: the bridge does not wait for a body that it refuses.
    let header = format!(
        "POST /demo/refuse HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Content-Length: 18446744073709551615\r\nConnection: close\r\n\r\n",
        world.at
    );
    let refused = String::from_utf8(rest(send(world.at, header.as_bytes()))).unwrap();
    assert!(refused.starts_with("HTTP/1.1 4"), "{refused}");
    // If a body is sent in chunks, the header does not say its size. So the bridge counts the bytes that it
    // reads.
    let chunks = format!("3e8\r\n{}\r\n1\r\nx\r\n", "x".repeat(1000));
    let chunked = format!(
        "POST /demo/refuse HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n{chunks}",
        world.at
    );
    ask(world.at, chunked.as_bytes()).failure(413, "TooLarge", "no");
    let header = format!("X-Long: {}\r\n", "x".repeat(20 << 10));
    let long = String::from_utf8(rest(send(world.at, &post(world.at, "/demo/go", &header, "{}"))));
    assert!(long.unwrap().starts_with("HTTP/1.1 431 "));
    assert_eq!(world.call("go", "{}").status, 200);
}

#[test]
fn slow_clients_are_left() {
    let world = World::with(|bridge| bridge.client_limit(CLIENT_LIMIT));
    // The client sends half a header. The test waits until the connection ends.
    let ended = rest(send(world.at, b"POST /demo/go HTTP/1.1\r\nHost:"));
    assert!(ended.is_empty() || ended.starts_with(b"HTTP/1.1 408 "));
    // The client sends a header, and a body without its last byte.
    let request = post(world.at, "/demo/add", "", r#"{"a": 1, "b": 1}"#);
    let answer = ask(world.at, &request[..request.len() - 1]);
    answer.failure(408, "SlowBody", "no");
    // The client does not read the items of a stream, so the bridge gives the call up.
    let reader = send(world.at, &post(world.at, "/demo/endless", "", "{}"));
    assert_eq!(world.call("given_up", r#"{"count": 1}"#).status, 200);
    drop(reader);
}

#[test]
fn requests_beyond_the_limit_are_refused_at_once() {
    let world = World::with(|bridge| bridge.calls_max(3));
    let wait = || send(world.at, &post(world.at, "/demo/wait", "", "{}"));
    let three = [wait(), wait(), wait()];
    // Another bridge to the same server is not at its limit, so it can ask how many calls run.
    let other = Bridge::new().offer(&world.server.address()).unwrap();
    let other = other.listen("127.0.0.1:0").unwrap().spawn().unwrap();
    let at = other.addresses()[0];
    let waiting = || call(at, "/demo/waiting", "{}").json()["result"] == 3;
    crate::world::until("three calls run", waiting);
    world.call("go", "{}").failure(503, "Overloaded", "no");
    get(world.at, "/").failure(503, "Overloaded", "no");
    assert_eq!(get(world.at, "/page.css").status, 200);
    drop(three);
    crate::world::until("a permit is free", || world.call("go", "{}").status == 200);
}

#[test]
fn foreign_pages_cannot_call() {
    let world = World::new();
    let with = |headers: &str| ask(world.at, &post(world.at, "/demo/go", headers, "{}"));
    with("Origin: http://evil.example\r\n").failure(403, "CrossSite", "no");
    with("Sec-Fetch-Site: cross-site\r\n").failure(403, "CrossSite", "no");
    let own = format!("Origin: http://{}\r\nSec-Fetch-Site: same-origin\r\n", world.at);
    assert_eq!(with(&own).status, 200);
    let replaced = |from: &str, to: &str| {
        let request = String::from_utf8(post(world.at, "/demo/go", "", "{}")).unwrap();
        ask(world.at, request.replace(from, to).as_bytes())
    };
    let own = format!("Host: {}", world.at);
    replaced(&own, "Host: evil.example").failure(421, "Misdirected", "no");
    replaced(&own, "Accept: x").failure(400, "BadRequest", "no");
    for media in
        ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
    {
        replaced("application/json", media).failure(415, "UnsupportedMediaType", "no");
    }
    replaced("Content-Type: application/json\r\n", "").failure(415, "UnsupportedMediaType", "no");
    let utf8 = "application/json; charset=utf-8";
    assert_eq!(replaced("application/json", utf8).status, 200);
    // The request by which a browser asks whether a foreign page may make calls.
    let asked: Answer = replaced("POST ", "OPTIONS ");
    asked.failure(405, "MethodNotAllowed", "no");
    assert!(!asked.head.contains("access-control"), "{asked:?}");
    get(world.at, "/demo/go").failure(405, "MethodNotAllowed", "no");
    assert!(get(world.at, "/").header("content-security-policy").is_some());
}

#[test]
fn rubbish_ends_only_its_own_connection() {
    let world = World::new();
    for rubbish in
        [&b"\0\xff\r\n\r\n"[..], b"GET / HTTP/9.9\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
    {
        let mut stream = send(world.at, rubbish);
        let _ = stream.write_all(b"\r\n\r\n");
        let ended = rest(stream);
        assert!(ended.is_empty() || ended.starts_with(b"HTTP/1.1 400"), "{ended:?}");
    }
    assert_eq!(call(world.at, "/demo/go", "{}").status, 200);
}
