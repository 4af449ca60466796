//! Tests commands that find servers in an etcd cluster. Without the program `etcd`, the test with it is
//! skipped.
#![cfg(feature = "etcd")]

mod sandbox;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use sandbox::{Done, Process, Sandbox, until};
use serde_json::Value;

/// Starts a member of etcd. Returns it with its port. `None`: there is no `etcd` on this machine.
fn etcd(sandbox: &Sandbox) -> Option<(Process, u16)> {
    if Command::new("etcd").arg("--version").output().is_err() {
        println!("skipped: there is no etcd");
        return None;
    }
    // Another program may take one of the ports before etcd does. Then etcd ends.
    for attempt in 0..10 {
        let ports = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [port, peer] = ports.map(|one| one.local_addr().unwrap().port());
        let url = |port| format!("http://127.0.0.1:{port}");
        let mut command = Command::new("etcd");
        command.args(["--data-dir", &sandbox.path(&format!("etcd-{attempt}")), "--name", "m"]);
        command.args(["--listen-client-urls", &url(port), "--advertise-client-urls", &url(port)]);
        command.args(["--listen-peer-urls", &url(peer)]);
        command.args(["--initial-advertise-peer-urls", &url(peer)]);
        command.args(["--initial-cluster", &format!("m={}", url(peer))]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut member = Process(command.spawn().unwrap());
        let mut has_ended = false;
        until("etcd answers", || {
            has_ended = member.0.try_wait().unwrap().is_some();
            has_ended || is_healthy(port)
        });
        if !has_ended {
            return Some((member, port));
        }
    }
    panic!("etcd could not be started");
}

fn is_healthy(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut answer = String::new();
    stream.write_all(b"GET /health HTTP/1.0\r\n\r\n").is_ok()
        && stream.read_to_string(&mut answer).is_ok()
        && answer.contains("\"true\"")
}

#[test]
fn commands_find_servers_in_etcd() {
    // The client's runtime directory is another one, so only the directory in etcd connects both.
    let (server, client) = (Sandbox::new(), Sandbox::new());
    let Some((mut member, port)) = etcd(&server) else { return };
    let directory = format!("etcd://127.0.0.1:{port}/test");
    let files = server.path("files");
    let mut serve = server.command(&["serve", &files, "--format", "json", "--name", "papers"]);
    serve.args(["--listen", "tcp:127.0.0.1:0", "--register", "--advertise", "127.0.0.1"]);
    let mut serving = Process::start(serve.env("PEREGRINE_DIRECTORY", &directory));
    let ready: Value = serde_json::from_str(&serving.line()).unwrap();
    assert_eq!(ready["ready"], true);
    let run = |arguments: &[&str]| {
        let mut command = client.command(arguments);
        Done::of(&command.env("PEREGRINE_DIRECTORY", &directory).output().unwrap())
    };
    let copied = client.path("copied");
    for arguments in [
        &["describe", "papers"][..],
        &["explain", "papers"],
        &["ping", "papers", "--count", "2"],
        &["health", "papers"],
        &["call", "papers", "size", "path=hello"],
        &["copy", "papers/hello", &copied],
    ] {
        let done = run(arguments);
        assert_eq!(done.code, 0, "{arguments:?}: {done:?}");
    }
    assert_eq!(std::fs::read_to_string(&copied).unwrap(), "hello");
    let unknown = run(&["explain", "letters"]);
    assert_eq!(unknown.code, 3, "{unknown:?}");
    let place = format!("not in etcd at 127.0.0.1:{port} below /test/");
    assert!(unknown.out.contains(&place), "{unknown:?}");

    serving.signal(Signal::TERM);
    serving.wait();
    let stopped = run(&["explain", "papers"]);
    assert!(stopped.code == 3 && stopped.out.contains(&place), "{stopped:?}");
    member.0.kill().unwrap();
    member.wait();
    let away = run(&["explain", "papers"]);
    assert_eq!(away.code, 3, "{away:?}");
    assert!(away.out.contains("no member of the cluster answers"), "{away:?}");
}

#[test]
fn server_does_not_start_where_it_cannot_register() {
    let sandbox = Sandbox::new();
    let files = sandbox.path("files");
    let arguments =
        ["serve", &files, "--listen", "tcp:127.0.0.1:0", "--register", "--advertise", "127.0.0.1"];
    for (directory, why) in [
        ("etcd://127.0.0.1:1", "no member of the cluster answers"),
        ("etcd://127.0.0.1:1?password=secret", "a password belongs into a file"),
        ("hosts:/nonexistent", "cannot register servers"),
    ] {
        let mut command = sandbox.command(&arguments);
        let done = Done::of(&command.env("PEREGRINE_DIRECTORY", directory).output().unwrap());
        assert!(done.code == 3 && done.err.contains(why), "{done:?}");
        assert!(!done.err.contains("secret"), "{done:?}");
    }
}
