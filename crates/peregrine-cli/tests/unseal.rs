//! Tests that calls in sealed packets are shown by the dissector for Wireshark after `unseal`, and only with
//! the keys that a client or a server has logged.

#[path = "../../peregrine/tests/wireshark/pcap.rs"]
#[allow(dead_code)]
mod pcap;
mod sandbox;
#[path = "../../peregrine/tests/wireshark/tshark.rs"]
#[allow(dead_code)]
mod tshark;

use std::collections::HashMap;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use pcap::{Frames, To};
use sandbox::{Done, Process, Sandbox};
use tshark::Tshark;

/// The port of the server in the captures. The dissector does not expect Peregrine there.
const PORT: u16 = 40_404;
/// An argument of a call.
const SECRET: &str = "a-name-that-only-one-call-has";

/// Two users that trust each other.
fn ada_and_bob() -> (Sandbox, Sandbox) {
    let (ada, bob) = (Sandbox::new(), Sandbox::new());
    for (sandbox, name) in [(&ada, "ada"), (&bob, "bob")] {
        assert_eq!(sandbox.run(&["keys", "new", "--name", name]).code, 0);
    }
    for (one, other, name) in [(&ada, &bob, "bob"), (&bob, &ada, "ada")] {
        let line = other.run(&["keys", "show", "--name", name]).out;
        assert_eq!(one.run(&["keys", "trust", line.trim_end()]).code, 0);
    }
    (ada, bob)
}

/// Relays datagrams to a server, and captures them. Returns its address. It runs until the test ends.
fn relay(server: &str, captured: &Arc<Mutex<Frames>>) -> String {
    let front = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
    let address = front.local_addr().unwrap().to_string();
    let (server, captured) = (server.to_owned(), Arc::clone(captured));
    std::thread::spawn(move || {
        let mut clients = HashMap::new();
        let mut bytes = vec![0; 1 << 16];
        loop {
            let Ok((length, client)) = front.recv_from(&mut bytes) else { continue };
            captured.lock().unwrap().udp(PORT, To::Server, &bytes[..length]);
            let back = clients.entry(client).or_insert_with(|| {
                let back = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
                back.connect(&server).unwrap();
                let (front, captured) = (Arc::clone(&front), Arc::clone(&captured));
                let socket = Arc::clone(&back);
                std::thread::spawn(move || {
                    let mut bytes = vec![0; 1 << 16];
                    while let Ok(length) = socket.recv(&mut bytes) {
                        captured.lock().unwrap().udp(PORT, To::Client, &bytes[..length]);
                        let _ = front.send_to(&bytes[..length], client);
                    }
                });
                back
            });
            let _ = back.send(&bytes[..length]);
        }
    });
    address
}

/// Starts a server with an identity. Returns its address. The keys are logged to `log`, if it is not empty.
fn serve(bob: &Sandbox, log: &str) -> (Process, String) {
    let files = bob.path("files");
    let options =
        ["serve", &files, "--format", "json", "--listen", "udp:127.0.0.1:0", "--identity"];
    let mut server = Process::start(bob.command(&options).env("PEREGRINE_KEY_LOG", log));
    let ready: serde_json::Value = serde_json::from_str(&server.line()).unwrap();
    let address = ready["addresses"][0].as_str().unwrap().to_owned();
    (server, address)
}

/// Makes a call in sealed packets, and captures it.
fn capture(ada: &Sandbox, bob: &Sandbox, file: &str, log: &str, server_log: &str) -> Frames {
    let (_server, address) = serve(bob, server_log);
    let captured = Arc::new(Mutex::new(Frames::default()));
    let at = relay(address.split_once('@').unwrap().1, &captured);
    let address = format!("udp:files@{at}");
    let call = ["call", &address, "size", &format!("path={SECRET}"), "--identity"];
    for arguments in [&["describe", &address, "--identity"][..], &call] {
        let done = ada.command(arguments).env("PEREGRINE_KEY_LOG", log).output().unwrap();
        let errors = String::from_utf8(done.stderr).unwrap();
        assert!(errors.contains("anyone with this file can read the calls"), "{errors}");
        let is_call = arguments[0] == "call";
        assert_eq!(done.status.code(), Some(i32::from(is_call)), "there is no such file: {errors}");
    }
    let frames = std::mem::take(&mut *captured.lock().unwrap());
    frames.write(Path::new(file)).unwrap();
    frames
}

/// Returns the files in a directory and below it that have a secret of a connection.
fn key_logs(directory: &Path) -> Vec<PathBuf> {
    let (mut found, mut rest) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(path) = rest.pop() {
        let kind = path.symlink_metadata().unwrap().file_type();
        if kind.is_dir() {
            rest.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if kind.is_file() {
            let content = std::fs::read(&path).unwrap();
            if content.windows(LABEL.len()).any(|part| part == LABEL.as_bytes()) {
                found.push(path);
            }
        }
    }
    found
}

/// A part of each line of a key log.
const LABEL: &str = "TRAFFIC_SECRET";

#[test]
fn keys_are_logged_only_if_the_variable_names_a_file() {
    let (ada, bob) = ada_and_bob();
    let (_server, address) = serve(&bob, "");
    let log = ada.path("keys.log");
    let size = ["call", &address, "size", "path=hello", "--identity"];
    for (variable, value) in
        [("OTHER", ""), ("PEREGRINE_KEY_LOG", ""), ("SSLKEYLOGFILE", &*log), ("RUST_LOG", "trace")]
    {
        let done = Done::of(&ada.command(&size).env(variable, value).output().unwrap());
        assert!(done.code == 0 && done.err.starts_with("path udp, "), "{variable}: {done:?}");
        assert!(!done.err.contains("keys") && !done.err.contains(LABEL), "{variable}: {done:?}");
        assert!(!done.out.contains(LABEL));
    }
    for sandbox in [&ada, &bob] {
        assert_eq!(key_logs(sandbox.0.path()), [""; 0].map(PathBuf::from));
    }
    // The search finds keys.
    let done = Done::of(&ada.command(&size).env("PEREGRINE_KEY_LOG", &log).output().unwrap());
    assert!(done.code == 0 && done.err.contains(&log), "{done:?}");
    assert_eq!(key_logs(ada.0.path()), [Path::new(&log)]);
}

fn mode(file: &str) -> u32 {
    std::fs::metadata(file).unwrap().permissions().mode() & 0o777
}

#[test]
fn sealed_calls_are_shown_with_a_key_log_only() {
    let (ada, bob) = ada_and_bob();
    let (file, opened) = (ada.path("calls.pcap"), ada.path("opened.pcap"));
    let (log, server_log) = (ada.path("keys.log"), bob.path("keys.log"));
    let frames = capture(&ada, &bob, &file, &log, &server_log);
    assert_eq!([mode(&log), mode(&server_log)], [0o600; 2]);
    let raw = std::fs::read(&file).unwrap();
    let is_in = |bytes: &[u8]| bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes());
    assert!(!is_in(&raw));

    // The keys of either side suffice.
    for keys in [&server_log, &log] {
        let (code, result) = ada.json(&["unseal", &file, "--keys", keys, &opened]);
        assert_eq!(code, 0, "{result}");
        assert_eq!(result["closed"], 0, "{result}");
        assert!(result["connections"].as_u64().unwrap() >= 2, "{result}");
        assert!(result["opened"].as_u64().unwrap() >= 8, "{result}");
        assert!(result["handshake"].as_u64().unwrap() >= 4, "{result}");
        assert_eq!(result["frames"], frames.len(), "{result}");
        assert_eq!(mode(&opened), 0o600);
        assert!(is_in(&std::fs::read(&opened).unwrap()));
    }

    // Other keys open nothing, and everything stays as it is.
    std::fs::write(ada.path("none"), "").unwrap();
    let none = ada.run(&["unseal", &file, "--keys", &ada.path("none"), &ada.path("closed.pcap")]);
    assert!(none.code == 0 && none.err.contains("stay as they are"), "{none:?}");
    assert!(none.out.ends_with("opened packets: 0\n"), "{none:?}");
    assert!(!is_in(&std::fs::read(ada.path("closed.pcap")).unwrap()));

    let Some(tshark) = Tshark::new() else { return };
    let shown = |file: &str, filter: &str, field: &str| {
        let arguments = ["-r", file, "-2", "-n", "-Y", filter, "-T", "fields", "-e", field];
        tshark.print(&arguments).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let hex: String = SECRET.bytes().map(|byte| format!("{byte:02x}")).collect();
    let of_size = "peregrine.packet.kind == 1 && peregrine.method == \"size\"";
    for field in ["peregrine.head", "peregrine.blocks", "peregrine.packet.payload"] {
        let closed = shown(&file, "peregrine", field);
        assert!(!closed.iter().any(|bytes| bytes.contains(&hex)), "{field}: {closed:?}");
    }
    assert_eq!(shown(&file, of_size, "frame.number"), [""; 0]);
    let arguments = ["peregrine.head", "peregrine.blocks"];
    let arguments = arguments.map(|field| shown(&opened, of_size, field)).concat();
    assert!(arguments.iter().any(|bytes| bytes.contains(&hex)), "{arguments:?}");
    let wrong = "peregrine.malformed || peregrine.bad_check || peregrine.cut_short";
    assert_eq!(shown(&opened, wrong, "frame.number"), [""; 0]);
    // The lengths and checksums before the packets are right, too.
    let tshark = tshark.with(&["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]);
    let wrong = "peregrine && udp.length > 8 && udp.checksum.status == 0";
    let arguments = ["-r", &opened, "-Y", wrong, "-T", "fields", "-e", "frame.number"];
    assert_eq!(tshark.print(&arguments), "");
}

#[test]
fn files_that_cannot_be_used_are_explained() {
    let ada = Sandbox::new();
    let write = |name: &str, content: &[u8]| {
        std::fs::write(ada.path(name), content).unwrap();
        ada.path(name)
    };
    let capture = ada.path("empty.pcap");
    Frames::default().write(Path::new(&capture)).unwrap();
    let (keys, out) = (write("keys", b""), ada.path("out.pcap"));
    let damaged = write("damaged", b"CLIENT_TRAFFIC_SECRET_0 ab\n");
    let text = write("text", b"no capture");
    let missing = ada.path("missing");
    for (capture, keys, why) in [
        (&text, &keys, "no capture in the format pcap or pcapng"),
        (&missing, &keys, "cannot open"),
        (&capture, &missing, "cannot read the keys"),
        (&capture, &damaged, "the key log:1: a line has"),
    ] {
        let done = ada.run(&["unseal", capture, "--keys", keys, &out]);
        assert!(done.code == 3 && done.err.contains(why), "{why}: {done:?}");
        assert!(!Path::new(&out).exists(), "{why}");
    }
    let done = ada.run(&["unseal", &capture, "--keys", &keys, &out]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(std::fs::read(&out).unwrap().len(), 24);
    // Only a regular file is replaced.
    let link = ada.path("link.pcap");
    std::os::unix::fs::symlink(&text, &link).unwrap();
    for special in [&link, &ada.path("files")] {
        let done = ada.run(&["unseal", &capture, "--keys", &keys, special]);
        assert!(done.code == 3 && done.err.contains("no regular file"), "{done:?}");
    }
    assert_eq!(std::fs::read(&link).unwrap(), b"no capture");
    let open = write("open.log", b"");
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(ada.run(&["keys", "new"]).code, 0);
    let call = ["call", "tcp:files@127.0.0.1:1", "size", "path=x", "--identity"];
    let done = ada.command(&call).env("PEREGRINE_KEY_LOG", &open).output().unwrap();
    let errors = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.code() == Some(3) && errors.contains("chmod 600"), "{errors}");
}
