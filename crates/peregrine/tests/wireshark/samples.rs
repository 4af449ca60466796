//! Packets and messages that a test writes by the tables of `docs/PROTOCOL.md`.

pub(crate) const PLEASE: u16 = 1;
pub(crate) const RESENT: u16 = 2;
pub(crate) const CHECKED: u16 = 4;
pub(crate) const ALL: u16 = 8;
pub(crate) const REPLIED: u16 = 16;
pub(crate) const ELSEWHERE: u16 = 32;

/// The place of the handle in these packets.
pub(crate) const PLACE: u32 = 3;
/// The secret of the handle. The number of the first call is one more than its last four bytes.
pub(crate) const SECRET: [u8; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 0xff, 0xff, 0xff, 0xff];
/// The nonce of the client that binds.
pub(crate) const NONCE: [u8; 12] = [9; 12];
pub(crate) const DIGEST: [u8; 16] = [0xd1; 16];

/// The fields of a packet that the tests vary.
#[derive(Clone, Default)]
pub(crate) struct Packet {
    pub(crate) kind: u8,
    pub(crate) flags: u16,
    /// The number of the call at the handle, from 1 on.
    pub(crate) call: u32,
    pub(crate) what: u32,
    pub(crate) total: u32,
    pub(crate) head: u32,
    pub(crate) at: u32,
    pub(crate) fragment: u32,
    pub(crate) piece: u16,
    pub(crate) credits: u16,
    pub(crate) extensions: u16,
    pub(crate) payload: Vec<u8>,
}

impl Packet {
    /// Returns the bytes of the packet, with right checks.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let binds = (10..=14).contains(&self.kind);
        let (place, secret) = if binds { (0, NONCE) } else { (PLACE, SECRET) };
        let sequence = if binds { 0 } else { u32::MAX.wrapping_add(self.call) };
        let mut bytes = vec![b'P', b'X', 3, self.kind, 0, 0, 0, 0];
        bytes.extend(place.to_le_bytes());
        bytes.extend(secret);
        bytes.extend(sequence.to_le_bytes());
        bytes.extend([self.flags, 9].map(u16::to_le_bytes).concat());
        let words = [self.what, self.total, self.head, self.at, self.fragment];
        bytes.extend(words.map(u32::to_le_bytes).concat());
        bytes.extend([self.piece / 16, self.credits].map(u16::to_le_bytes).concat());
        bytes.extend([0; 4]);
        bytes.extend([self.extensions, 8].map(u16::to_le_bytes).concat());
        bytes.extend(&self.payload);
        with_checks(bytes)
    }
}

/// Writes the checks of a packet: of its payload, if the flags say so, and of its header.
pub(crate) fn with_checks(mut packet: Vec<u8>) -> Vec<u8> {
    if packet.len() >= 64 {
        if u16::from_le_bytes([packet[28], packet[29]]) & CHECKED != 0 {
            let check = crc32c::crc32c(&packet[64..]);
            packet[56..60].copy_from_slice(&check.to_le_bytes());
        }
        packet[4..8].fill(0);
        let check = crc32c::crc32c(&packet[..64]);
        packet[4..8].copy_from_slice(&check.to_le_bytes());
    }
    packet
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn text(text: &str) -> Vec<u8> {
    [&words(&[text.len() as u32]), text.as_bytes()].concat()
}

/// A refusal as the message of a reply: `Overloaded`.
pub(crate) fn refusal() -> Vec<u8> {
    [words(&[12]), text("too many calls wait")].concat()
}

/// Extensions of a call: a chain of one link, and a deadline of 1,500 microseconds. Zeros follow up to 48
/// bytes.
pub(crate) fn extensions() -> Vec<u8> {
    let mut bytes = words(&[1, 16, 7, 0, 42, 0, 2, 8, 1500, 0]);
    bytes.resize(48, 0);
    bytes
}

pub(crate) const CANONICAL: &str = "interface Desk version 2\n\
    add was plus(in a: i32, in b: i32) -> i32 or CallError#0\n\
    idempotent look() -> unit or CallError#0\n\
    oneway note(in text: str) -> unit or CallError#0\n\
    oneway was once() -> unit or CallError#0\n\
    CallError#0 = struct {chain: text}\n";

/// A description of the export `desk`, whose interface has [`DIGEST`].
pub(crate) fn description() -> Vec<u8> {
    let mut bytes =
        [text("Desk"), words(&[2]), DIGEST.to_vec(), text(CANONICAL), words(&[1])].concat();
    bytes.extend(text("A desk."));
    bytes.extend(words(&[77, 5, 0, 1, 1]));
    bytes.extend(text("udp:127.0.0.1:7193"));
    bytes.extend(words(&[8, 0]));
    bytes
}

/// The records of a batch: two one-way calls of procedure 2.
fn batch() -> Vec<u8> {
    let record =
        |number| [words(&[number, 0, 3, 2, 4, 4, 4, 0]), words(&[5]), vec![0; 12]].concat();
    [vec![0; 32], record(1), record(2)].concat()
}

/// The message of a call that carries records: a head with the number of their bytes and of the bytes that
/// the result may have, and the records.
fn carrier(records: &[u8]) -> Vec<u8> {
    [&words(&[records.len() as u32, 8192]), &[0; 8][..], records].concat()
}

/// The message of a result that carries records.
fn carried(records: &[u8]) -> Vec<u8> {
    [&words(&[records.len() as u32]), &[0; 28][..], records].concat()
}

/// Records of streams, after a header of 32 bytes: two items, credit, and the reason of an end.
fn streams(header: &[u8]) -> Vec<u8> {
    let mut bytes = header.to_vec();
    bytes.extend(words(&[1, 7, 8, 2, 0, 0, 4, 0, 100, 200, 0, 0]));
    bytes.extend(words(&[2, 8, 0, 0, 262_144, 0, 3, 0]));
    bytes.extend([words(&[4, 9, 4, 0, 0, 0, 1, 0]), b"full".to_vec(), vec![0; 12]].concat());
    bytes
}

pub(crate) const BATCH: u32 = 0xffff_fffd;
pub(crate) const STREAMS: u32 = 0xffff_fffc;
pub(crate) const DESCRIBE: u32 = 0xffff_fffe;

/// The messages of calls and replies: the procedure and the message of the call, then the answer, the head's
/// place and size, and the message of the reply.
type Exchange = (u32, Vec<u8>, u32, u32, u32, Vec<u8>);

/// Calls of each form, with their replies.
pub(crate) fn exchanges() -> Vec<Exchange> {
    let token = [[7; 16].to_vec(), words(&[5, 0, 3, 0])].concat();
    let result = [words(&[5, 0]), vec![0; 24]].concat();
    let size = refusal().len() as u32;
    let failed = words(&[1, 2, 4, 150, 1, 1, 0, 0, 9, 0, 2, 0, size, size, 0, 0]);
    let batch_result = [failed, refusal()].concat();
    let (sent, received) = (streams(&token), streams(&result));
    vec![
        (DESCRIBE, Vec::new(), 0, 0, description().len() as u32, description()),
        (0, words(&[2, 3]), 0, 0, 4, words(&[5])),
        (1, Vec::new(), 2, 0, refusal().len() as u32, refusal()),
        (BATCH, carrier(&batch()), 0, 4, 0, carried(&batch_result)),
        (STREAMS, carrier(&sent), 0, 4, 0, carried(&received)),
        (3, words(&[2, 3]), 1, 0, 8, words(&[1, 2])),
    ]
}

/// The packets of a client and a server: binding, calls of each form, and each other kind of packet.
pub(crate) fn packets() -> Vec<(bool, Vec<u8>)> {
    let bind_packet = |kind, body: &[u8]| {
        let mut payload = body.to_vec();
        payload.resize(448, 0);
        Packet { kind, flags: CHECKED, payload, ..Packet::default() }.to_bytes()
    };
    let half = |numbers: &[u16]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
    let cookie = [0xc0; 16];
    let located = [&cookie[..], &words(&[1]), &[2, 0, 0, 0, 0, 2], &[0x12, 0x34]].concat();
    let bind = [
        &cookie[..],
        &DIGEST,
        &words(&[2]),
        &half(&[1, 88]),
        &words(&[1 << 20]),
        &half(&[64, 4]),
        b"desk",
    ];
    let handle = [&words(&[PLACE, 6]), &SECRET[..]].concat();
    let bound = [
        &words(&[1, 2, 3, 4])[..],
        &DIGEST,
        &words(&[2]),
        &half(&[1, 88]),
        &words(&[1 << 20]),
        &half(&[64, 0]),
        &handle,
    ];
    let unbound = [&words(&[1])[..], &half(&[14]), b"no such export"];
    let mut packets = vec![
        (true, bind_packet(10, &words(&[1]))),
        (false, bind_packet(11, &located)),
        (true, bind_packet(12, &bind.concat())),
        (false, bind_packet(13, &bound.concat())),
    ];
    let mut call = 0;
    for (procedure, message, answer, at, head, result) in exchanges() {
        call += 1;
        let extensions = if call == 2 { extensions() } else { Vec::new() };
        let payload = [&extensions[..], &message].concat();
        let whole = Packet { call, piece: 1408, credits: 64, ..Packet::default() };
        let total = payload.len() as u32;
        let request = Packet {
            kind: 1,
            what: procedure,
            total,
            head: message.len().min(8) as u32,
            at: total,
            extensions: extensions.len() as u16,
            payload,
            ..whole.clone()
        };
        packets.push((true, request.to_bytes()));
        let total = result.len() as u32;
        let reply = Packet {
            kind: 2,
            flags: CHECKED,
            what: answer,
            total,
            head,
            at,
            payload: result,
            ..whole
        };
        packets.push((false, reply.to_bytes()));
    }
    packets.push((false, bind_packet(14, &unbound.concat())));
    packets.extend(controls());
    packets
}

/// The packets about call 7, and whether the client sends each of them.
fn controls() -> Vec<(bool, Vec<u8>)> {
    let about = Packet { call: 7, piece: 1408, credits: 64, ..Packet::default() };
    let have = Packet { kind: 3, total: 5, fragment: 3, ..about.clone() };
    let bitmap = Packet { flags: CHECKED, payload: vec![6], ..have.clone() };
    let all = |kind, flags| Packet { kind, flags, ..about.clone() };
    let bare = |kind, flags| Packet { kind, flags, call: 7, ..Packet::default() };
    let refused = Packet { kind: 8, total: 1, head: 2, at: 6, call: 7, ..Packet::default() };
    vec![
        (false, bitmap.to_bytes()),
        (false, all(3, ALL).to_bytes()),
        (false, all(3, ALL | REPLIED).to_bytes()),
        (false, Packet { credits: 0, ..all(3, 0) }.to_bytes()),
        (false, Packet { total: 1, fragment: 1, ..all(3, 0) }.to_bytes()),
        (true, all(4, ALL).to_bytes()),
        (true, Packet { total: 2, fragment: 2, ..all(4, PLEASE) }.to_bytes()),
        (true, all(5, PLEASE).to_bytes()),
        (true, bare(6, 0).to_bytes()),
        (false, bare(7, 0).to_bytes()),
        (false, refused.to_bytes()),
        (false, Packet { flags: ELSEWHERE, ..refused }.to_bytes()),
        (false, bare(15, ALL).to_bytes()),
        (true, bare(9, 0).to_bytes()),
    ]
}

/// Makes a message of the stream path. `words` are number, binding, procedure or answer, head, split.
pub(crate) fn message(kind: u8, words: [u32; 5], body: &[u8], extensions: &[u8]) -> Vec<u8> {
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend([kind, 1, b'P', b'g']);
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    bytes.extend((extensions.len() as u32).to_le_bytes());
    for part in [body, extensions] {
        bytes.extend(part);
        bytes.resize(bytes.len().next_multiple_of(16), 0);
    }
    bytes
}

/// The messages of a client and of a server over one connection, in the order of sending.
pub(crate) fn messages() -> Vec<(bool, Vec<u8>)> {
    let given = [&DIGEST[..], &words(&[1, 1, 1 << 20, 0, 8, 42]), &text("desk")].concat();
    let bound = words(&[1, 2, 5, 1, 1 << 20, 0, 8]);
    let mut messages = vec![
        (true, message(2, [1, 0, 0, 0, 0], b"desk", &[])),
        (false, message(67, [1, 0, 0, 0, 0], &description(), &[])),
        (true, message(1, [2, 0, 0, 0, 0], &given, &[])),
        (false, message(65, [2, 0, 0, 0, 0], &bound, &[])),
    ];
    // The numbers of calls are used again.
    for (number, (procedure, body, answer, at, head, result)) in exchanges().into_iter().enumerate()
    {
        let (number, size) = (3 + number as u32 % 2, body.len() as u32);
        let extensions = if number == 4 { &extensions()[..40] } else { &[] };
        let call = [number, 5, procedure, size.min(8), size];
        messages.push((true, message(4, call, &body, extensions)));
        messages.push((false, message(70, [number, 0, answer, head, at], &result, &[])));
    }
    messages.extend([
        (true, message(4, [9, 5, 1, 0, 0], &[], &[])),
        (true, message(5, [9, 0, 0, 0, 0], &[], &[])),
        (true, message(5, [0, 0, 0, 0, 0], &[], &[])),
        (false, message(70, [9, 0, 2, refusal().len() as u32, 0], &refusal(), &[])),
        (true, message(1, [6, 0, 0, 0, 0], &given, &[])),
        (false, message(66, [6, 0, 0, 0, 0], &refusal(), &[])),
        (true, message(3, [0, 5, 0, 0, 0], &[], &[])),
        (false, message(68, [0, 5, 0, 0, 0], &[], &[])),
        (false, message(69, [0, 0, 0, 0, 0], &[], &[])),
    ]);
    messages
}
