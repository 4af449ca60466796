//! Tests `--identity`, `--trust` and `--expect` with real processes: two users, each with a key, and a third
//! one that no server trusts.

mod sandbox;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use sandbox::{Process, Sandbox, until};
use serde_json::Value;

/// Two users that trust each other, and the directories of their machines.
fn ada_and_bob() -> (Sandbox, Sandbox) {
    let (ada, bob) = (Sandbox::new(), Sandbox::new());
    for (sandbox, name) in [(&ada, "ada"), (&bob, "bob")] {
        let made = sandbox.run(&["keys", "new", "--name", name]);
        assert_eq!(made.code, 0, "{made:?}");
    }
    trusts(&ada, &bob, "bob");
    trusts(&bob, &ada, "ada");
    (ada, bob)
}

/// Lets one user trust the key of another.
fn trusts(one: &Sandbox, other: &Sandbox, name: &str) {
    let line = other.run(&["keys", "show", "--name", name]).out;
    let done = one.run(&["keys", "trust", line.trim_end()]);
    assert_eq!(done.code, 0, "{done:?}");
}

/// Starts a server of Bob's that listens over TCP. Returns its process and its address.
fn serve(bob: &Sandbox, options: &[&str]) -> (Process, String) {
    let (process, ready) = bob.serve_files(options);
    (process, ready["addresses"][0].as_str().unwrap().to_owned())
}

const TCP: [&str; 2] = ["--listen", "tcp:127.0.0.1:0"];

#[test]
fn every_verb_reaches_a_secure_server_only_with_a_key_that_it_trusts() {
    let (ada, bob) = ada_and_bob();
    let (_server, address) = serve(&bob, &[&TCP[..], &["--identity"]].concat());
    let at = format!("@{}", address.split_once('@').unwrap().1);
    let at = format!("tcp:{at}");
    let copied = ada.path("copied");
    let verbs: [&[&str]; 9] = [
        &["call", &address, "size", "path=hello"],
        &["copy", &format!("{address}/hello"), &copied],
        &["ping", &address, "--count", "3"],
        &["explain", &address],
        &["describe", &address],
        &["list", &at],
        &["stat", &at],
        &["health", &address],
        &["compare", &address, &address],
    ];
    let eve = Sandbox::new();
    assert_eq!(eve.run(&["keys", "new"]).code, 0);
    trusts(&eve, &bob, "bob");
    for verb in verbs {
        let done = ada.run(&[verb, &["--identity"]].concat());
        assert_eq!(done.code, 0, "{verb:?}: {done:?}");
        let plain = ada.run(verb);
        assert_eq!(plain.code, 3, "{verb:?} without a key: {plain:?}");
        assert!(plain.err.contains("TLS") || plain.out.contains("TLS"), "{verb:?}: {plain:?}");
        let (code, report) = eve.json(&[verb, &["--identity"]].concat());
        assert_eq!(code, 3, "{verb:?} of a stranger: {report}");
        assert_eq!(report["error"]["kind"], "Denied", "{verb:?}: {report}");
        assert_eq!(report["error"]["executed"], "no", "{verb:?}: {report}");
    }
    assert_eq!(std::fs::read_to_string(copied).unwrap(), "hello");
    let explained = ada.run(&["explain", &address, "--identity"]).out;
    let shown = bob.json(&["keys", "show"]).1;
    assert!(explained.contains(shown["fingerprint"].as_str().unwrap()), "{explained}");
}

#[test]
fn server_with_a_key_listens_beyond_this_machine_encrypted_by_two_commands() {
    let bob = Sandbox::new();
    let beyond = ["--listen", "tcp:0.0.0.0:0", "--beyond-this-machine"];
    let files = bob.path("files");
    let serve_files = [&["serve", &files][..], &beyond].concat();
    let done = bob.run(&serve_files);
    assert_eq!(done.code, 3, "{done:?}");
    assert!(done.err.contains("peregrine keys new"), "{done:?}");
    assert_eq!(bob.run(&["keys", "new"]).code, 0);
    let (_server, address) = serve(&bob, &beyond);
    let (code, report) = bob.json(&["ping", &address.replace("0.0.0.0", "127.0.0.1")]);
    assert_eq!((code, &report["error"]["executed"]), (3, &"no".into()));
    // A network that is trusted needs no key, but only if the user says so.
    let plain = Sandbox::new();
    let trusting = [&beyond[..], &["--i-trust-this-network"]].concat();
    let (_server, address) = serve(&plain, &trusting);
    assert_eq!(plain.run(&["ping", &address.replace("0.0.0.0", "127.0.0.1")]).code, 0);
    let done = plain.run(&["serve", &plain.path("files"), "--i-trust-this-network"]);
    assert_eq!(done.code, 2, "{done:?}");
}

#[test]
fn refused_clients_are_reported_and_a_removed_key_ends_its_bindings() {
    let (ada, bob) = ada_and_bob();
    let files = bob.path("files");
    let arguments = [&["serve", &files, "--identity"][..], &TCP].concat();
    let mut command = bob.command(&arguments);
    let mut server = command.stderr(Stdio::piped()).spawn().map(Process).unwrap();
    let mut said = BufReader::new(server.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let line = said.find(|line| line.contains("tcp:")).expect("the server says where it listens");
    assert!(line.contains("encrypted"), "{line}");
    let address = line.split(' ').find(|word| word.starts_with("tcp:")).unwrap().to_owned();
    let eve = Sandbox::new();
    assert_eq!(eve.run(&["keys", "new"]).code, 0);
    trusts(&eve, &bob, "bob");
    assert_eq!(eve.run(&["ping", &address, "--identity"]).code, 3);
    let line = said.find(|line| line.contains("refused")).expect("the server says who was refused");
    let fingerprint = eve.json(&["keys", "show"]).1["fingerprint"].clone();
    assert!(line.contains(fingerprint.as_str().unwrap()), "{line}");
    // Ada is trusted, until Bob removes her key while she calls.
    let mut pings = ada.command(&["ping", &address, "--identity", "--count", "10000000"]);
    let mut pings = pings.args(["--format", "json"]).stdout(Stdio::piped()).spawn().unwrap();
    let running = calls_of(&bob);
    until("Ada calls", || calls_of(&bob) > running);
    assert_eq!(bob.run(&["keys", "untrust", "ada"]).code, 0);
    let code = wait(&mut pings);
    assert!(code == 3 || code == 4, "{code}");
    let (code, report) = ada.json(&["ping", &address, "--identity"]);
    assert_eq!((code, &report["error"]["kind"]), (3, &"Denied".into()), "{report}");
}

/// Returns how many calls the server of a user has served, by the counters on its own machine.
fn calls_of(bob: &Sandbox) -> u64 {
    let (code, stat) = bob.json(&["stat", "files"]);
    assert_eq!(code, 0, "{stat}");
    let exports = stat["exports"].as_array().into_iter().flatten();
    exports.map(|one| one["calls"].as_u64().unwrap_or(0)).sum()
}

fn wait(child: &mut Child) -> i32 {
    let mut ended = None;
    until("the command ends", || {
        ended = child.try_wait().unwrap();
        ended.is_some()
    });
    ended.unwrap().code().unwrap()
}

#[test]
fn expected_server_must_have_the_key_that_was_named() {
    let (ada, bob) = ada_and_bob();
    let (_server, address) = serve(&bob, &[&TCP[..], &["--identity"]].concat());
    let fingerprint = bob.json(&["keys", "show"]).1["fingerprint"].clone();
    let fingerprint = fingerprint.as_str().unwrap();
    for expected in ["key:bob", fingerprint] {
        let done = ada.run(&["ping", &address, "--identity", "--expect", expected]);
        assert_eq!(done.code, 0, "{expected}: {done:?}");
    }
    let (code, report) = ada.json(&["ping", &address, "--identity", "--expect", "key:carol"]);
    assert_eq!((code, &report["error"]["kind"]), (3, &"Denied".into()), "{report}");
    let done = ada.run(&["ping", &address, "--expect", "key:bob"]);
    assert_eq!(done.code, 2, "--expect without --identity: {done:?}");
}

#[test]
fn keys_and_trust_may_be_files_anywhere() {
    let (ada, bob) = ada_and_bob();
    let keys =
        |sandbox: &Sandbox, file: &str| sandbox.path(&format!(".config/peregrine/keys/{file}"));
    let pair = |sandbox: &Sandbox| {
        format!("--identity={},{}", keys(sandbox, "identity.pem"), keys(sandbox, "identity.key"))
    };
    let trusted = keys(&bob, "trusted");
    let (_server, address) = serve(&bob, &[&TCP[..], &[&pair(&bob), "--trust", &trusted]].concat());
    let done = ada.run(&["ping", &address, &pair(&ada), "--trust", &keys(&ada, "")]);
    assert_eq!(done.code, 0, "{done:?}");
    let done = ada.run(&["ping", &address, &format!("--identity={}", keys(&ada, ""))]);
    assert_eq!(done.code, 0, "{done:?}");
    // The certificate of the server is not that of a CA. So the file is read, but no peer is trusted by it.
    let certificate = keys(&bob, "identity.pem");
    let (code, report) = ada.json(&["ping", &address, &pair(&ada), "--trust", &certificate]);
    assert_eq!(code, 3, "{report}");
    let (code, report) = ada.json(&["ping", &address, &pair(&ada)]);
    assert_eq!(code, 3, "{report}");
    assert!(report["error"]["what"].as_str().unwrap().contains("no peer is trusted"), "{report}");
    let (code, report) = ada.json(&["ping", &address, "--identity=/nowhere"]);
    assert_eq!((code, &report["error"]["executed"]), (3, &"no".into()), "{report}");
}

#[test]
fn counters_of_a_secure_server_are_watched_as_a_stream() {
    let (ada, bob) = ada_and_bob();
    let (_server, address) = serve(&bob, &[&TCP[..], &["--identity"]].concat());
    let at = format!("tcp:@{}", address.split_once('@').unwrap().1);
    let arguments = ["stat", &at, "--watch", "--interval", "100ms", "--count", "3", "--identity"];
    let done = ada.run(&[&arguments[..], &["--format", "ndjson"]].concat());
    assert_eq!(done.code, 0, "{done:?}");
    let lines: Vec<Value> =
        done.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() >= 3, "{done:?}");
}

/// Runs a program of another author until it ends, with an empty standard input.
fn stranger(command: &mut Command) -> Option<(bool, String)> {
    let output = command.stdin(Stdio::null()).output().ok()?;
    let said = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

#[test]
fn clients_of_other_tls_libraries_complete_the_handshake_and_are_checked() {
    let (ada, bob) = ada_and_bob();
    let (_server, address) = serve(&bob, &[&TCP[..], &["--identity"]].concat());
    let place = address.split_once('@').unwrap().1.to_owned();
    let port = place.rsplit_once(':').unwrap().1;
    let keys = |file: &str| ada.path(&format!(".config/peregrine/keys/{file}"));
    let openssl = |more: &[&str]| {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-connect", &place]).args(more);
        stranger(&mut command)
    };
    let own = ["-cert", &keys("identity.pem"), "-key", &keys("identity.key")];
    let alpn = ["-alpn", "peregrine/1"];
    match openssl(&[&own[..], &alpn, &["-tls1_3"]].concat()) {
        None => println!("skipped: there is no openssl"),
        Some((_, said)) => {
            assert!(said.contains("ALPN protocol: peregrine/1"), "{said}");
            assert!(said.contains("TLSv1.3"), "{said}");
            // Without a key, with another protocol, or with an older version of TLS, the server refuses.
            let refused = |more: &[&str], alert: &str| {
                let (_, said) = openssl(more).unwrap();
                assert!(said.contains(alert), "{more:?}: {said}");
            };
            refused(&[&alpn[..], &["-tls1_3", "-ign_eof"]].concat(), "certificate required");
            refused(&[&own[..], &["-alpn", "h2"]].concat(), "no application protocol");
            refused(&[&own[..], &alpn, &["-tls1_2"]].concat(), "protocol version");
        }
    }
    let gnutls = |more: &[&str]| {
        let mut command = Command::new("gnutls-cli");
        command
            .args(["--port", port, "127.0.0.1", "--insecure", "--alpn", "peregrine/1"])
            .args(more);
        stranger(&mut command)
    };
    let own = ["--x509certfile", &keys("identity.pem"), "--x509keyfile", &keys("identity.key")];
    match gnutls(&own) {
        None => println!("skipped: there is no gnutls-cli"),
        Some((_, said)) => {
            assert!(said.contains("Handshake was completed"), "{said}");
            assert!(said.contains("Application protocol: peregrine/1"), "{said}");
        }
    }
    // The server still serves.
    assert_eq!(ada.run(&["ping", &address, "--identity"]).code, 0);
}

#[test]
fn bridge_shows_its_key_to_servers_and_to_clients() {
    let (ada, bob) = ada_and_bob();
    let (_server, address) = serve(&bob, &[&TCP[..], &["--identity"]].concat());
    // Ada's bridge offers Bob's files, and Ada herself is a client of it.
    trusts(&ada, &ada, "ada");
    let arguments = ["bridge", &address, "--listen", "tcp:127.0.0.1:0", "--identity"];
    let arguments = [&arguments[..], &["--format", "json"]].concat();
    let mut bridge = Process::start(&mut ada.command(&arguments));
    let ready: Value = serde_json::from_str(&bridge.line()).unwrap();
    let front = ready["listens"][0].as_str().unwrap();
    let front = format!("{front}/files");
    let done = ada.run(&["call", &front, "size", "path=hello", "--identity"]);
    assert_eq!((done.code, done.out.trim()), (0, "5"), "{done:?}");
    assert_eq!(ada.run(&["call", &front, "size", "path=hello"]).code, 3);
}
