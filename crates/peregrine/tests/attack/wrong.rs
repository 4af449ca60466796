//! Makes every kind of invalid handshake on the local path, both as a client and as a server. A handshake is
//! the exchange of messages over the socket when a client binds.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use peregrine::Kind;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::Shutdown;

use super::noise::Noise;
use super::wire::{
    BIND, BOUND, COUNT, DESCRIBE, DESCRIPTION, GOODBYE, HEALTH, LIMIT, Line, MAGIC, REFUSED, RING,
    Region, Session, Token, UNBIND, VERSION, bind, bound, describe, region_bytes, request, word,
    words,
};

/// The server that a hostile client attacks, and a binding of an honest client of that server.
#[derive(Clone, Copy)]
pub(crate) struct Stage<'a> {
    pub(crate) directory: &'a Path,
    /// The server's export.
    pub(crate) name: &'a str,
    /// The number of a binding of the honest client.
    pub(crate) other: u32,
}

impl Stage<'_> {
    fn line(&self) -> Line {
        Line::connect(self.directory, self.name).expect("a server that accepts connections")
    }

    fn session(&self) -> Session {
        Session::new(self.directory, self.name, 4).expect("a session")
    }
}

/// The name of an invalid behaviour, and a function that shows this behaviour as a client.
pub(crate) type Case = (&'static str, fn(Stage<'_>));

pub(crate) const CLIENTS: &[Case] = &[
    ("truncated requests", cut_off),
    ("requests with extra bytes", too_long),
    ("requests of another protocol", foreign),
    ("requests of unknown kinds", unknown),
    ("unexpected descriptors", descriptors),
    ("invalid counts and sizes", sizes),
    ("tokens of no session", tokens),
    ("rings without a binding", ring_unbound),
    ("a second bind", bind_twice),
    ("a bind after joining a session", join_twice),
    ("many binds and unbinds", counted),
    ("numbers of other clients' bindings", others),
    ("half-closed connections", half_closed),
    ("thousands of short connections", connects_and_closes),
    ("answers that the client does not read", never_reads),
];

/// Sends a message over a new connection. If the server sends a refusal before it closes the connection,
/// returns the kind of the refusal.
fn refusal(stage: Stage<'_>, message: &[u8]) -> Option<u32> {
    let line = stage.line();
    let _ = line.send(message);
    let answers = line.receive_all();
    assert!(answers.len() <= 1, "{answers:?}");
    answers.first().map(|answer| {
        assert_eq!(word(answer, 0), REFUSED, "{message:?} was answered with {answer:?}");
        word(answer, 4)
    })
}

fn all_requests() -> Vec<Vec<u8>> {
    vec![
        bind(4, 4096, &[]),
        bind(4, 4096, &[[7; 16]; 8]),
        describe(),
        words(&[MAGIC, VERSION, COUNT]),
        words(&[MAGIC, VERSION, HEALTH]),
        request(RING, 0),
        request(UNBIND, 1),
    ]
}

fn cut_off(stage: Stage<'_>) {
    for whole in all_requests() {
        for length in 1..whole.len() {
            let kind = refusal(stage, &whole[..length]);
            assert_eq!(kind, Some(Kind::ProtocolMismatch as u32), "{length} bytes of {whole:?}");
        }
    }
    // The server treats an empty message as the end of the connection.
    assert_eq!(refusal(stage, &[]), None);
}

fn too_long(stage: Stage<'_>) {
    for request in all_requests() {
        for more in [1, 4, 200, 256, 4096, 60_000] {
            let mut long = request.clone();
            long.extend(vec![0; more]);
            let kind = refusal(stage, &long);
            assert_eq!(kind, Some(Kind::ProtocolMismatch as u32), "{more} more than {request:?}");
        }
    }
}

fn foreign(stage: Stage<'_>) {
    for header in [[MAGIC + 1, VERSION], [MAGIC, 0], [MAGIC, 1], [MAGIC, VERSION + 1], [0, 0]] {
        let kind = refusal(stage, &words(&[header[0], header[1], DESCRIBE]));
        assert_eq!(kind, Some(Kind::ProtocolMismatch as u32));
    }
    let mut noise = Noise::new(7);
    for length in 1..256 {
        let kind = refusal(stage, &noise.bytes(length));
        assert_eq!(kind, Some(Kind::ProtocolMismatch as u32), "{length} bytes of noise");
    }
}

fn unknown(stage: Stage<'_>) {
    for kind in [0, 7, 8, 100, BOUND, GOODBYE, u32::MAX] {
        let refused = refusal(stage, &words(&[MAGIC, VERSION, kind]));
        assert_eq!(refused, Some(Kind::ProtocolMismatch as u32), "request {kind}");
    }
    // Two invalid bind requests. The first has a flag that is neither 0 nor 1. The second announces more
    // tokens than it contains.
    let mut neither = bind(1, 4096, &[]);
    neither[12] = 2;
    assert_eq!(refusal(stage, &neither), Some(Kind::ProtocolMismatch as u32));
    let mut many = bind(1, 4096, &[]);
    let count = many.len() - 4;
    many[count..].copy_from_slice(&u32::MAX.to_ne_bytes());
    assert_eq!(refusal(stage, &many), Some(Kind::ProtocolMismatch as u32));
}

/// Checks that the server refuses every message with descriptors. If the kernel supports `SO_PASSRIGHTS`,
/// such a message cannot even be sent.
fn descriptors(stage: Stage<'_>) {
    let file = std::fs::File::open("/dev/null").expect("`/dev/null` opens");
    for count in [1, 2, 4, 5, 200, 253] {
        let files = vec![file.as_fd(); count];
        for request in [describe(), bind(1, 4096, &[])] {
            let line = stage.line();
            if line.send_with(&request, &files).is_err() {
                continue;
            }
            let answers = line.receive_all();
            assert_eq!(word(&answers[0], 0), REFUSED, "{count} descriptors");
            assert_eq!(word(&answers[0], 4), Kind::ProtocolMismatch as u32);
        }
        let session = stage.session();
        if session.line.send_with(&request(RING, 0), &files).is_ok() {
            assert_eq!(word(&session.line.receive_all()[0], 0), REFUSED);
        }
    }
}

fn sizes(stage: Stage<'_>) {
    for (count, bytes) in [(0, 0), (u32::MAX, 0), (1, 1), (2000, 15), (1, (1 << 20) - 1)] {
        let line = stage.line();
        let (answer, files) = line.ask(&bind(count, bytes, &[]));
        let session = Session::of_answer(line, &answer, &files).expect("a session");
        assert!((1..=1024).contains(&session.region.count), "{count} A-stacks requested");
        assert!(session.region.bytes >= bytes as usize && session.region.bytes.is_multiple_of(16));
    }
    let line = stage.line();
    for bytes in [(16 << 20) + 1, 1 << 30, 1 << 32, u64::MAX - 7, u64::MAX] {
        let (answer, files) = line.ask(&bind(u32::MAX, bytes, &[]));
        assert_eq!((word(&answer, 0), word(&answer, 4)), (REFUSED, Kind::TooLarge as u32));
        assert!(files.is_empty());
    }
    // After a refusal because of the requested size, a client may request less on the same connection.
    assert_eq!(word(&line.ask(&bind(1, 16, &[])).0, 0), BOUND);
}

fn tokens(stage: Stage<'_>) {
    let mut noise = Noise::new(3);
    let own = stage.session();
    for count in 0..=8 {
        let tokens: Vec<Token> = (0..count).map(|_| noise.bytes(16).try_into().unwrap()).collect();
        let line = stage.line();
        let (answer, files) = line.ask(&bind(1, 4096, &tokens));
        let new = Session::of_answer(line, &answer, &files).expect("a new session");
        assert!(!tokens.contains(&new.token) && new.token != own.token);
    }
    // A client whose token has one wrong bit does not join the session. It gets a new session.
    let mut nearly = own.token;
    nearly[15] ^= 1;
    let (answer, files) = stage.line().ask(&bind(1, 4096, &[nearly]));
    assert!(word(&answer, 0) == BOUND && files.len() == 1 && answer[16..32] != own.token);
    // The server refuses more tokens than a request may have.
    let many = vec![own.token; 20];
    assert_eq!(refusal(stage, &bind(1, 4096, &many)), Some(Kind::ProtocolMismatch as u32));
}

fn ring_unbound(stage: Stage<'_>) {
    for request in [request(RING, 0), request(RING, u32::MAX), request(UNBIND, stage.other)] {
        assert_eq!(refusal(stage, &request), None);
    }
}

fn bind_twice(stage: Stage<'_>) {
    let session = stage.session();
    session.line.send(&bind(1, 4096, &[])).expect("space for a request");
    let answers = session.line.receive_all();
    let refusal = (REFUSED, Kind::ProtocolMismatch as u32);
    assert_eq!((word(&answers[0], 0), word(&answers[0], 4)), refusal);
    let own = stage.session();
    own.line.send(&bind(1, 4096, &[own.token])).expect("space for a request");
    assert_eq!(word(&own.line.receive_all()[0], 0), REFUSED);
}

/// Returns the number of bindings that the export reports.
fn reported_bindings(stage: Stage<'_>) -> u32 {
    let (description, _) = stage.line().ask(&describe());
    // After the number of bindings, a description has the number of endpoints, which is 0. An 8-byte number
    // follows, which identifies the server's machine and network namespace.
    assert_eq!(word(&description, description.len() - 12), 0);
    word(&description, description.len() - 16)
}

/// Checks that the reported number of bindings is correct after binds and unbinds in any order.
fn counted(stage: Stage<'_>) {
    let before = reported_bindings(stage);
    let session = stage.session();
    let numbers: Vec<u32> =
        (0..5).map(|_| word(&stage.line().ask(&bind(1, 4096, &[session.token])).0, 32)).collect();
    assert_eq!(reported_bindings(stage), before + 6);
    for number in [numbers[0], numbers[0], numbers[3]] {
        session.line.send(&request(UNBIND, number)).expect("space for a request");
    }
    assert!(
        super::eventually(LIMIT, || reported_bindings(stage) == before + 4),
        "{}",
        reported_bindings(stage)
    );
    drop(session);
    assert!(
        super::eventually(LIMIT, || reported_bindings(stage) == before),
        "{}",
        reported_bindings(stage)
    );
}

/// Checks that the server accepts no second bind over a connection by which a client has joined a session.
/// The server refuses the bind, or closes the connection.
fn join_twice(stage: Stage<'_>) {
    let session = stage.session();
    let line = stage.line();
    let (answer, files) = line.ask(&bind(1, 4096, &[session.token]));
    assert!(word(&answer, 0) == BOUND && files.is_empty());
    assert_ne!(word(&answer, 32), session.binding, "the number of the new binding");
    let _ = line.send(&bind(1, 4096, &[session.token]));
    // The second bind is refused, unless the server has closed the connection before.
    for answer in line.receive_all() {
        assert_eq!((word(&answer, 0), word(&answer, 4)), (REFUSED, Kind::ProtocolMismatch as u32));
    }
}

fn others(stage: Stage<'_>) {
    let mut session = stage.session();
    let (mine, other) = (session.binding, stage.other);
    for number in [other ^ 1, 0, u32::MAX, mine.wrapping_add(1), mine ^ 1 << 16, mine ^ 1 << 31] {
        session.line.send(&request(UNBIND, number)).expect("space for a request");
    }
    for index in [4, 63, 64, 1023, 1024, u32::MAX] {
        session.line.send(&request(RING, index)).expect("space for a request");
    }
    assert_eq!(session.ping(0, LIMIT), Some(0), "the client's own binding still works");
    // The client ends its own binding twice.
    session.line.send(&request(UNBIND, mine)).expect("space for a request");
    session.line.send(&request(UNBIND, mine)).expect("space for a request");
    // The server may see a call in shared memory before it reads the unbind requests from the socket. So the
    // call is repeated.
    let gone = super::eventually(LIMIT, || session.ping(0, LIMIT) == Some(2));
    assert!(gone, "a call without a binding is not executed");
    session.binding = mine.wrapping_add(1 << 16);
    assert_eq!(
        session.ping(1, LIMIT),
        Some(2),
        "a call of a binding that never existed is not executed"
    );
    assert!(session.line.is_open());
}

fn half_closed(stage: Stage<'_>) {
    for how in [Shutdown::Read, Shutdown::Write, Shutdown::Both] {
        let line = stage.line();
        let _ = rustix::net::shutdown(&line.0, how);
        let _ = line.send(&describe());
        let session = stage.session();
        let _ = rustix::net::shutdown(&session.line.0, how);
        let _ = session.line.send(&describe());
    }
}

fn connects_and_closes(stage: Stage<'_>) {
    let mut noise = Noise::new(11);
    for _ in 0..3000 {
        let Ok(line) = Line::connect(stage.directory, stage.name) else { continue };
        match noise.below(4) {
            0 => drop(line.send(&describe())),
            1 => drop(line.send(&bind(1, 4096, &[]))),
            _ => {}
        }
    }
}

fn never_reads(stage: Stage<'_>) {
    for session in [stage.session().line, stage.line()] {
        let until = Instant::now() + LIMIT;
        loop {
            match session.send(&describe()) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(_) => break,
            }
            assert!(
                Instant::now() < until,
                "the server does not stop answering a client that reads nothing"
            );
        }
    }
}

/// The name of a case, and a function that answers a bind as a server. The connection is closed when the
/// function returns.
pub(crate) type Answer = (&'static str, fn(Line));

pub(crate) const SERVERS: &[Answer] = &[
    ("nothing at all", |line| drop(line.receive_all())),
    ("a closed connection", drop),
    ("an empty record", |line| answers_with(line, &[], None)),
    ("one byte", |line| answers_with(line, &[1], None)),
    ("another kind", |line| answers_with(line, &words(&[GOODBYE]), None)),
    ("a request", |line| answers_with(line, &describe(), None)),
    ("a description", |line| answers_with(line, &description(&[0; 8]), None)),
    ("a long text", |line| answers_with(line, &description(&vec![b'x'; 65_000]), None)),
    ("a message beyond the largest size", |line| answers_with(line, &vec![0; 65_537], None)),
    ("a refusal of an unknown kind", |line| answers_with(line, &words(&[REFUSED, 999, 0]), None)),
    ("a truncated refusal", |line| answers_with(line, &words(&[REFUSED, 4, 100]), None)),
    ("a truncated grant", |line| {
        let (message, file) = good();
        answers_with(line, &message[..40], Some(&file));
    }),
    ("a grant with an extra byte", |line| {
        let (mut message, file) = good();
        message.push(0);
        answers_with(line, &message, Some(&file));
    }),
    ("a grant of another version", |line| {
        let (mut message, file) = good();
        message[4] += 1;
        answers_with(line, &message, Some(&file));
    }),
    ("a grant with an unknown representation", |line| {
        let (mut message, file) = good();
        message[48..].copy_from_slice(&3u32.to_ne_bytes());
        answers_with(line, &message, Some(&file));
    }),
    ("no region", |line| answers_with(line, &good().0, None)),
    ("two regions", |line| {
        let (message, file) = good();
        let _ = line.send_with(&message, &[file.as_fd(), file.as_fd()]);
        line.receive_all();
    }),
    ("many regions", |line| {
        let (message, file) = good();
        let _ = line.send_with(&message, &vec![file.as_fd(); 253]);
        line.receive_all();
    }),
    ("messages of no bytes", |line| sized(line, 1, 0)),
    ("messages of an odd number of bytes", |line| sized(line, 1, (1 << 20) + 1)),
    ("messages of few bytes", |line| sized(line, 1, 16)),
    ("messages of more bytes than memory has", |line| sized(line, 1, u64::MAX)),
    ("messages of almost 2^64 bytes", |line| sized(line, 1, u64::MAX - 159)),
    ("messages beyond the largest A-stack", |line| sized(line, 1, (1 << 30) + 16)),
    ("no A-stacks", |line| sized(line, 0, 1 << 20)),
    ("more A-stacks than a region may have", |line| sized(line, u32::MAX, 1 << 20)),
    ("a region beyond the largest size", |line| sized(line, 1024, 1 << 30)),
    ("a smaller region", |line| with(line, sealed(region_bytes(1, 1 << 20) as u64 - 4096))),
    ("a larger region", |line| with(line, sealed(region_bytes(1, 1 << 20) as u64 + 4096))),
    ("an empty region", |line| with(line, sealed(0))),
    ("a region without seals", |line| {
        let file = memory();
        ftruncate(&file, region_bytes(1, 1 << 20) as u64).expect("a size");
        with(line, file);
    }),
    ("a region that can shrink", |line| {
        with(line, seal(region_bytes(1, 1 << 20) as u64, SealFlags::GROW | SealFlags::SEAL));
    }),
    ("a region that cannot be written", |line| {
        let all = SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL | SealFlags::WRITE;
        with(line, seal(region_bytes(1, 1 << 20) as u64, all));
    }),
    ("a region of huge pages", |line| {
        // On a machine without huge pages, the server sends an empty message.
        match memfd_create(c"huge", MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB) {
            Ok(file) => {
                let _ = ftruncate(&file, 4 << 20);
                let _ = fcntl_add_seals(&file, all_seals());
                // The region has 4 MiB: one A-stack with messages of 2,094,880 bytes.
                let _ = line.send_with(&bound([5; 16], 1, 1, 2_094_880), &[file.as_fd()]);
                line.receive_all();
            }
            Err(_) => answers_with(line, &[], None),
        }
    }),
    ("a pipe", |line| with(line, io::pipe().expect("a pipe").0.into())),
    ("a file", |line| with(line, tempfile::tempfile().expect("a file").into())),
    ("a directory", |line| with(line, std::fs::File::open("/").expect("a directory").into())),
    ("a device", |line| with(line, std::fs::File::open("/dev/zero").expect("a device").into())),
    ("the connection's own socket", |line| {
        let copy = line.0.try_clone().expect("a descriptor");
        with(line, copy);
    }),
];

/// Sends a message, then reads until the client closes the connection.
fn answers_with(line: Line, message: &[u8], file: Option<&OwnedFd>) {
    let files: Vec<BorrowedFd<'_>> = file.iter().map(|file| file.as_fd()).collect();
    let _ = line.send_with(message, &files);
    line.receive_all();
}

fn with(line: Line, file: OwnedFd) {
    answers_with(line, &good().0, Some(&file));
}

/// Announces an invalid count or size of A-stacks, with a valid region.
fn sized(line: Line, count: u32, bytes: u64) {
    answers_with(line, &bound([5; 16], 1, count, bytes), Some(&good().1));
}

/// Returns the message by which an honest server accepts a bind, and the descriptor of the server's region.
pub(crate) fn good() -> (Vec<u8>, OwnedFd) {
    let (_, file) = Region::new(1, 1 << 20);
    (bound([5; 16], 1, 1, 1 << 20), file)
}

fn memory() -> OwnedFd {
    memfd_create(c"region", MemfdFlags::ALLOW_SEALING).expect("memory")
}

fn all_seals() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
}

fn sealed(bytes: u64) -> OwnedFd {
    seal(bytes, all_seals())
}

fn seal(bytes: u64, seals: SealFlags) -> OwnedFd {
    let file = memory();
    ftruncate(&file, bytes).expect("a size");
    fcntl_add_seals(&file, seals).expect("seals");
    file
}

fn description(text: &[u8]) -> Vec<u8> {
    let mut message = words(&[DESCRIPTION, 1, u32::from_ne_bytes(*b"A\0\0\0"), 0, 0, 0, 0, 0]);
    message.extend(words(&[text.len() as u32]));
    message.extend(text);
    message.resize(message.len().next_multiple_of(4), 0);
    message.extend(words(&[0, 1, 0, 0, 0, 0]));
    message
}

/// Returns whether a request is a bind.
pub(crate) fn is_bind(message: &[u8]) -> bool {
    word(message, 8) == BIND
}
