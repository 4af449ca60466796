//! A hand-written server of the local path, and a client that calls this server. The server is written from
//! the documents only.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use peregrine::{BindOptions, Executed, Kind, Wait, sys};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};

use crate::calls::{CASES, Golden, GoldenClient, SERVER_CASES, call};
use crate::document::{bytes, check};

pub(crate) const HANDSHAKE: &[&str] = &[
    "describe",
    "description",
    "bind",
    "bound",
    "bind again",
    "bound again",
    "ring",
    "refused",
    "goodbye",
    "unbind",
    "revoked",
    "deadline",
    "metadata",
    "count",
    "counters",
    "counters header",
    "counters thread",
    "counters export",
    "counters session",
    "counters binding",
    "counters lane",
];

/// The duration of each of the nine calls in the server's counters. It is the middle of a histogram bucket.
const LATENCY: Duration = Duration::from_nanos(100);
/// How long the client waits for a call that is not answered.
const LIMIT: Duration = Duration::from_millis(500);

/// A server of the local path. The only part of the library that it uses is `sys::Memory`, for shared memory.
struct Foreign {
    listener: OwnedFd,
}

impl Foreign {
    fn new(directory: &Path, name: &str) -> Self {
        let listener =
            rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        let address = SocketAddrUnix::new(directory.join(name)).unwrap();
        rustix::net::bind(&listener, &address).unwrap();
        rustix::net::listen(&listener, 4).unwrap();
        Self { listener }
    }

    /// Accepts a connection, and checks that the client's first message is the vector `request`.
    fn asked(&self, request: &str) -> OwnedFd {
        let socket = rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC).unwrap();
        check(request, &received(&socket));
        socket
    }

    fn serve(&self, taken_all: &Receiver<()>) {
        let asked = self.asked("describe");
        send(&asked, &bytes("description", 0), None);
        let asked = self.asked("count");
        let (counters, file) = counters();
        send(&asked, &bytes("counters", 0), Some(&file));
        drop(counters);
        let refused = self.asked("bind");
        send(&refused, &bytes("refused", 0), None);

        let socket = self.asked("bind");
        // The region begins with 4096 reserved bytes. An A-stack has one half for the call and one for the
        // reply. Each half has 32 + 2^20 + 2^21 bytes, rounded up to a multiple of 128.
        let half = 3 * (1 << 20) + 128;
        let (call, reply, taken) = (4096, 4096 + half, 4096 + 2 * half);
        let (memory, file) = sys::Memory::shared(6_299_648).unwrap();
        send(&socket, &bytes("bound", 0), Some(&file));
        // Receives rings until the client has posted call number `n`, and returns the posted word. On a slow
        // machine the client also rings for a call that was answered meanwhile. Then the word is 0.
        let rung_for = |n: u32| {
            loop {
                check("ring", &received(&socket));
                match memory.word(call).load(Ordering::Acquire) {
                    0 => {}
                    posted => {
                        assert_eq!(posted, n << 3 | 1);
                        return posted;
                    }
                }
            }
        };
        let mut calls = 0;
        for (n, case) in (1u32..).zip(CASES.iter().chain(SERVER_CASES)) {
            let posted = rung_for(n);
            let (call_word, reply_word) = (memory.word(call), memory.word(reply));
            memory.word(taken).store(posted, Ordering::Relaxed);
            if CASES.contains(case) {
                let mut header = [0; 28];
                memory.read(call + 4, &mut header).unwrap();
                assert_eq!(header[..4], bytes("bound", 0)[32..36], "the binding's number");
                check(&format!("call {case} header"), &header[4..20]);
                assert_eq!(header[24..], [0; 4], "an ordinary call has no flags or extensions");
                let mut message = bytes(&format!("call {case}"), 0);
                memory.read(call + 32, &mut message).unwrap();
                check(&format!("call {case}"), &message);
            }
            let header = bytes(&format!("reply {case} header"), 0xff);
            memory.write(reply + 4, &header).unwrap();
            let message = bytes(&format!("reply {case}"), 0xee);
            memory.write(reply + 32, &message).unwrap();
            calls = n;
            if reply_word.swap(posted, Ordering::AcqRel) == 2 {
                sys::futex_wake(reply_word);
            }
            // After a reply, the server no longer polls the A-stack, so the client rings for the next call.
            // If the next call is already posted, its caller rings later, when it sees that the server has
            // not taken the call.
            let _ = call_word.compare_exchange(posted, 0, Ordering::AcqRel, Ordering::Acquire);
        }
        // This call has metadata, which is in an extension. Its message has no bytes.
        let posted = rung_for(calls + 1);
        let (call_word, reply_word) = (memory.word(call), memory.word(reply));
        memory.word(taken).store(posted, Ordering::Relaxed);
        let flags = memory.word(call + 28).load(Ordering::Relaxed);
        assert_eq!(flags, 29, "bytes of extensions");
        let mut metadata = [0; 29];
        memory.read(call + 32, &mut metadata).unwrap();
        check("metadata", &metadata);
        memory.write(reply + 4, &bytes("reply nothing header", 0)).unwrap();
        if reply_word.swap(posted, Ordering::AcqRel) == 2 {
            sys::futex_wake(reply_word);
        }
        let _ = call_word.compare_exchange(posted, 0, Ordering::AcqRel, Ordering::Acquire);
        // This call has a time limit, and its message has no bytes. An extension after the message contains
        // the remaining time.
        let posted = rung_for(calls + 2);
        memory.word(taken).store(posted, Ordering::Relaxed);
        let manner = memory.word(call + 28).load(Ordering::Relaxed);
        assert_eq!(manner, 16, "bytes of extensions");
        let mut deadline = [0; 16];
        memory.read(call + 32, &mut deadline).unwrap();
        check("deadline", &deadline);
        let left = u64::from_le_bytes(*deadline.last_chunk().unwrap());
        assert!((1..=LIMIT.as_micros() as u64).contains(&left), "{left} us");
        // The server does not answer this call. The client gives it up, and notes that in the region.
        taken_all.recv().expect("the client gave up");
        // The client may have rung again before it saw that the call was taken.
        let mut again = [0; 256];
        while let Ok((bytes, _)) = rustix::net::recv(&socket, &mut again, RecvFlags::DONTWAIT) {
            check("ring", &again[..bytes]);
        }
        assert_eq!(memory.word(taken + 132).load(Ordering::Relaxed), posted);
        memory.write(reply + 4, &bytes("reply nothing header", 0)).unwrap();
        memory.word(reply).swap(posted, Ordering::AcqRel);
        memory.word(call).store(0, Ordering::Release);
        taken_all.recv().expect("the client took the last reply");
        // A second binding joins the session. The server revokes this binding, and the client releases it.
        let second = self.asked("bind again");
        send(&second, &bytes("bound again", 0), None);
        drop(second);
        taken_all.recv().expect("the client is bound twice");
        send(&socket, &bytes("revoked", 0), None);
        check("unbind", &received(&socket));
        send(&socket, &bytes("goodbye", 0), None);
        // Waits until the client has closed the session.
        assert!(received(&socket).is_empty());
    }
}

/// Makes the counters of a server, as the document specifies them.
fn counters() -> (sys::Memory, OwnedFd) {
    let (memory, file) = sys::Memory::shared(88_117_248).unwrap();
    for (at, name) in [
        (0, "header"),
        (4_096 + 128, "thread"),
        (20_480, "export"),
        (36_864, "session"),
        (1_085_440 + 64 * 128, "binding"),
        // The lane (the counts of one thread for one binding) of the second thread, for the binding in row
        // 64.
        (2_134_016 + (8_192 + 64) * 64, "lane"),
    ] {
        let vector = bytes(&format!("counters {name}"), 0);
        memory.write(at, &vector).unwrap();
    }
    memory.write(20_480 + 16 * 8, b"Alloy").unwrap();
    // The nine calls of 100 ns are in the bucket of 96 to 104 ns.
    let bucket = (4 << 3) + 4;
    let calls = 9u64.to_ne_bytes();
    memory.write(69_242_880 + 64 * 2_304 + bucket * 8, &calls).unwrap();
    (memory, file)
}

fn received(socket: &OwnedFd) -> Vec<u8> {
    let mut buffer = [0u8; 256];
    let (bytes, _) = rustix::net::recv(socket, &mut buffer, RecvFlags::empty()).unwrap();
    buffer[..bytes].to_vec()
}

fn send(socket: &OwnedFd, message: &[u8], file: Option<&OwnedFd>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let files = file.map(|file| [file.as_fd()]);
    if let Some(files) = &files {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(files)));
    }
    let message = [std::io::IoSlice::new(message)];
    rustix::net::sendmsg(socket, &message, &mut ancillary, SendFlags::empty()).unwrap();
}

/// A client calls through a region that a hand-written server gave it.
#[test]
fn client_writes_and_reads_documented_bytes() {
    const ROLE: &str = "PEREGRINE_TEST_ROLE";
    if std::env::var_os(ROLE).is_none() {
        // Names are looked up in a private runtime directory.
        let directory = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["foreign::client_writes_and_reads_documented_bytes", "--exact", "--nocapture"])
            .env(ROLE, "client")
            .env("PEREGRINE_DIR", directory.path())
            .spawn()
            .unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while Instant::now() < until {
            if let Some(status) = child.try_wait().unwrap() {
                assert!(status.success(), "the child failed: see its output above");
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        panic!("client and server wait for each other");
    }
    let directory = std::env::var_os("PEREGRINE_DIR").expect("set by the test");
    let foreign = Foreign::new(Path::new(&directory), "golden");
    let (took_all, taken_all) = channel();
    let server = std::thread::spawn(move || foreign.serve(&taken_all));

    let description = peregrine::describe("golden").unwrap();
    assert_eq!((&*description.interface, description.version), ("Golden", 0));
    assert_eq!((&*description.text, &*description.docs), ("text", &["d".to_owned()][..]));
    assert_eq!((description.process, description.age_ms, description.bindings), (1, 2, 3));
    assert_eq!(
        (&*description.listens, description.network),
        (&["tcp:127.0.0.1".to_owned()][..], 4)
    );
    let stat = peregrine::stat("golden").unwrap();
    assert_eq!((stat.server.process, stat.server.threads), (77, [0, 1, 0]));
    assert_eq!((stat.server.waits.spun, stat.server.waits.slept), (5, 6));
    assert_eq!((stat.server.resent, stat.server.came_again), (7, 8));
    let (gold, session) = (stat.export("gold").unwrap(), &stat.sessions[0]);
    assert_eq!((&*gold.interface, gold.version, gold.digest), ("Alloy", 3, [0xab; 16]));
    assert_eq!((session.number, &*session.path, &*session.from), (9, "tcp", "192.0.2.7:7001"));
    let counts = stat.bindings[0].counts;
    assert_eq!((counts.calls, counts.in_flight, counts.refused), (3, 1, 1));
    assert_eq!((counts.failed, counts.bytes_in, counts.bytes_out), (0, 64, 128));
    assert_eq!((gold.counts, session.counts, gold.bindings), (counts, counts, 1));
    assert_eq!((gold.latency.calls(), gold.latency.percentile(1.0)), (9, Some(LATENCY)));
    let options = BindOptions::default().astacks(1).wait(Wait::Block);
    let error = GoldenClient::bind_with("golden", &options).unwrap_err();
    assert_eq!((error.kind(), error.detail()), (Kind::Denied, "no"));

    // If the server receives bytes that it does not expect, it panics, and the client's call fails.
    let client = GoldenClient::bind_with("golden", &options);
    let client = client.unwrap();
    for case in CASES.iter().chain(SERVER_CASES) {
        call(&client, case);
    }
    let traced = client.with_metadata("trace", "7f3a").unwrap().with_metadata("user", "").unwrap();
    traced.nothing().unwrap();
    drop(traced);
    let error = client.with_timeout(LIMIT).nothing().unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::Maybe));
    took_all.send(()).expect("the server waits for this signal");
    took_all.send(()).expect("the server waits for this signal");
    let second = GoldenClient::bind_with("golden", &options).unwrap();
    assert!(second.is_alive());
    took_all.send(()).expect("the server waits for this signal");
    let until = Instant::now() + Duration::from_secs(10);
    while second.is_alive() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!second.is_alive() && client.is_alive());
    drop(second);
    let until = Instant::now() + Duration::from_secs(10);
    while client.is_alive() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    let error = client.nothing().unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::Withdrawn, Executed::No));
    drop(client);
    server.join().expect("the server received the expected bytes");
}
