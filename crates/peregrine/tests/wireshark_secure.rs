//! Tests that the dissector for Wireshark shows encrypted calls over TCP, if it has a key log, and not
//! otherwise.

#[path = "wireshark/pcap.rs"]
#[allow(dead_code)]
mod pcap;
mod support;
#[path = "wireshark/tshark.rs"]
#[allow(dead_code)]
mod tshark;

use std::path::Path;

use pcap::Frames;
use peregrine::secure::{Identity, Trust, TrustedKey};
use peregrine::{BindOptions, Server, interface};
use support::link::{ENDS, Link, at_far_end, at_near_end};
use support::tap::{ALL, Tap};
use tshark::Tshark;

/// The port of the server. The dissector does not expect Peregrine there, and no other protocol has it.
const PORT: u16 = 40_404;
/// The number of bytes of the large call, which needs several records of TLS.
const LARGE: usize = 50_000;
/// An argument, and its bytes as `tshark` shows them.
const SECRET: &str = "the safe is behind the picture";

#[interface]
trait Desk {
    fn note(&self, text: &str) -> peregrine::Result<u32>;
    fn upload(&self, bytes: &[u8]) -> peregrine::Result<u64>;
}

struct Object;

impl Desk for Object {
    fn note(&self, text: &str) -> peregrine::Result<u32> {
        Ok(text.len() as u32)
    }
    fn upload(&self, bytes: &[u8]) -> peregrine::Result<u64> {
        Ok(bytes.len() as u64)
    }
}

fn trusts(peer: &Identity) -> Trust {
    Trust::of_keys([TrustedKey::new("peer", peer.public_key(), "").unwrap()]).unwrap()
}

/// Captures the calls of two connections. The client of the second one resumes the session of the first.
fn capture(link: &Link, log: &Path) -> Frames {
    let (ada, bob) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    ada.log_keys_to(log).unwrap();
    let tap = Tap::of_both_directions(link.interface(0), ALL).expect("a raw socket");
    let of_server = (bob.clone(), trusts(&ada));
    let running = at_far_end(move || {
        let server = Server::new().export("desk", DeskServer::new(Object)).unwrap();
        let endpoint = format!("tcp:{}:{PORT}", ENDS[1]);
        server.listen_beyond_this_machine(&endpoint, of_server).unwrap().spawn().unwrap()
    });
    let address = format!("{}/desk", running.addresses()[0]);
    let options = BindOptions::default().secure(ada, trusts(&bob));
    let options = options.expect("key:peer".parse::<peregrine::secure::Expected>().unwrap());
    for _ in 0..2 {
        let desk = DeskClient::bind_with(&address, &options).unwrap();
        assert_eq!(desk.note(SECRET).unwrap(), SECRET.len() as u32);
        assert_eq!(desk.upload(&[1; LARGE]).unwrap(), LARGE as u64);
    }
    running.stop();
    let (mut frames, mut frame) = (Frames::default(), vec![0; 1 << 17]);
    while let Some(bytes) = tap.receive(&mut frame) {
        frames.push(frame[..bytes].to_vec());
    }
    frames
}

#[test]
fn encrypted_calls_over_tcp_are_shown_with_a_key_log() {
    let directory = support::own_directory();
    let log = directory.path().join("keys.log");
    let Some(tshark) = Tshark::new() else { return };
    at_near_end(Link::new(), |link| {
        let frames = capture(link, &log);
        assert!(frames.len() > 20, "only {} frames were captured", frames.len());
        assert_eq!(tshark.summaries(&frames, "peregrine"), [""; 0], "without the keys");

        let calls = "peregrine.message.kind == 4";
        let setting = format!("tls.keylog_file:{}", log.display());
        let tshark = tshark.with(&["-o", &setting]);
        let wrong = "peregrine.malformed || peregrine.cut_short || peregrine.not_aligned";
        assert_eq!(tshark.summaries(&frames, wrong), [""; 0]);
        assert_eq!(tshark.failures(&frames), [[""; 0]; 0]);
        let names = tshark.values(&frames, "peregrine.message.kind == 1", "peregrine.bind.name");
        assert!(!names.is_empty() && names.iter().all(|name| name == "desk"), "{names:?}");
        let parts = ["peregrine.head", "peregrine.blocks"];
        let blocks = parts.map(|part| tshark.values(&frames, calls, part)).concat();
        let of = |text: &[u8]| text.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let (secret, large) = (of(SECRET.as_bytes()), of(&[1; LARGE]));
        let count = |wanted: &str| blocks.iter().filter(|block| block.contains(wanted)).count();
        assert_eq!([count(&secret), count(&large)], [2, 2]);
        let linked = tshark.values(&frames, calls, "peregrine.response_in");
        assert!(linked.len() >= 4, "{linked:?}");
    });
}
