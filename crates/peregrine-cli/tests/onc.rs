//! Tests the command with addresses of ONC RPC: against a thread that answers like rpcbind, and against the
//! command `rpcbind`.

mod sandbox;

use std::net::UdpSocket;
use std::thread;

use rustix::process::Signal;
use sandbox::{Process, Sandbox};
use serde_json::{Value, json};

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn text(text: &str) -> Vec<u8> {
    let padding = text.len().next_multiple_of(4) - text.len();
    [words(&[text.len() as u32]), text.into(), vec![0; padding]].concat()
}

/// Starts a thread that answers like rpcbind at a free port. It answers procedure 0, which does nothing, and
/// procedure 4, which lists two programs. Returns its address.
fn rpcbind() -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = format!("onc+udp:{}", socket.local_addr().unwrap());
    thread::spawn(move || {
        let mut call = [0; 200];
        loop {
            let (_, from) = socket.recv_from(&mut call).unwrap();
            let procedure = u32::from_be_bytes(call[20..24].try_into().unwrap());
            let mut reply = [call[..4].to_vec(), words(&[1, 0, 0, 0, 0])].concat();
            if procedure == 4 {
                for (program, name) in [(100_000, "udp"), (0x2000_0077, "u\u{1b}dp")] {
                    reply.extend(words(&[1, program, 4]));
                    reply.extend([text(name), text("0.0.0.0.0.111"), text("root")].concat());
                }
                reply.extend(words(&[0]));
            }
            socket.send_to(&reply, from).unwrap();
        }
    });
    address
}

#[test]
fn programs_of_a_machine_are_listed() {
    let (sandbox, address) = (Sandbox::new(), rpcbind());
    let done = sandbox.run(&["list", &address]);
    assert_eq!(done.code, 0, "{}", done.err);
    let lines: Vec<_> = done.out.lines().collect();
    assert!(lines[0].trim_start().starts_with("PROGRAM  VERSION  NETWORK"), "{}", done.out);
    assert!(lines[1].contains("100000") && lines[1].contains("0.0.0.0.0.111"), "{}", done.out);
    assert!(lines[2].contains("u?dp"), "{}", done.out);
    assert_eq!(lines.len(), 3, "{}", done.out);
    let (code, listed) = sandbox.json(&["list", &address]);
    assert_eq!((code, &listed["programs"][0]["program"]), (0, &json!(100_000)));
    assert_eq!(listed["programs"][1]["name"], json!(null));
}

#[test]
fn procedure_0_is_called_by_ping_and_explain() {
    let (sandbox, address) = (Sandbox::new(), rpcbind());
    let program = format!("{address}/100000.4");
    let done = sandbox.run(&["ping", &program, "-c", "20"]);
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(done.out.contains("path onc+udp: version 4 of program 100000"), "{}", done.out);
    let done = sandbox.run(&["explain", &program]);
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(done.out.contains("onc+tcp") && !done.out.contains("ethernet"), "{}", done.out);
    let done = sandbox.run(&["ping", &address]);
    assert_ne!(done.code, 0);
    assert!(done.err.contains("the address names no program"), "{}", done.err);
}

/// Starts the command `rpcbind`. Returns its address over TCP.
fn our_rpcbind(sandbox: &Sandbox) -> (Process, String) {
    let words = ["rpcbind", "--listen", "127.0.0.1:0", "--format", "json"];
    let mut process = Process::start(&mut sandbox.command(&words));
    let ready: Value = serde_json::from_str(&process.line()).unwrap();
    assert_eq!((&ready["ready"], &ready["process"]), (&true.into(), &process.0.id().into()));
    let address = ready["addresses"][1].as_str().unwrap().to_owned();
    assert!(address.starts_with("onc+tcp:127.0.0.1:"), "{address}");
    (process, address)
}

#[test]
fn rpcbind_lists_itself_and_ends_at_signals() {
    for signal in [Signal::TERM, Signal::INT] {
        let sandbox = Sandbox::new();
        let (mut process, address) = our_rpcbind(&sandbox);
        let (code, listed) = sandbox.json(&["list", &address]);
        let programs = listed["programs"].as_array().unwrap();
        // rpcbind lists itself: three versions, each over UDP and TCP.
        assert_eq!((code, programs.len()), (0, 6));
        assert!(programs.iter().all(|one| one["program"] == 100_000), "{listed}");
        let done = sandbox.run(&["ping", &format!("{address}/100000.4"), "-c", "20"]);
        assert_eq!(done.code, 0, "{}", done.err);
        process.signal(signal);
        let code = process.wait().code();
        assert_eq!(code, Some(if signal == Signal::TERM { 0 } else { 130 }));
        assert!(sandbox.is_tidy());
    }
}

#[test]
fn rpcbind_listens_beyond_the_machine_only_if_asked() {
    let sandbox = Sandbox::new();
    let done = sandbox.run(&["rpcbind", "--listen", "0.0.0.0"]);
    assert_eq!(done.code, 3, "{}", done.err);
    assert!(done.err.contains("can be reached from other machines"), "{}", done.err);
    let done = sandbox.run(&["rpcbind", "--beyond-this-machine"]);
    assert_eq!(done.code, 2, "{}", done.err);
}
