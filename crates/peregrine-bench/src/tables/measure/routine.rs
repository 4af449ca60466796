//! Reads and checks the header of a packet: two versions of the routine, and a program that measures them.
//! This file is also compiled alone, without optimization.

use std::hint::black_box;
use std::time::Instant;

/// The length of a header in bytes, as in `protocol/exchange/header.rs`.
const BYTES: usize = 64;
const MAGIC: [u8; 2] = *b"PX";
const VERSION: u8 = 3;
/// The bit of the flags without which no payload has a checksum.
const CHECKED: u16 = 1;

/// What the routine reads of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fields {
    kind: u8,
    place: u32,
    secret: [u32; 3],
    sequence: u32,
    flags: u16,
    serial: u16,
    what: u32,
    total: u32,
    head: u32,
    at: u32,
    fragment: u32,
    piece: u32,
    credits: u16,
}

/// Reads one field after the other, and checks each, as a first version does.
#[inline(never)]
pub(crate) fn plain(packet: &[u8]) -> Option<Fields> {
    let short = |at: usize| Some(u16::from_le_bytes(packet.get(at..at + 2)?.try_into().ok()?));
    let long = |at: usize| Some(u32::from_le_bytes(packet.get(at..at + 4)?.try_into().ok()?));
    if packet.len() < BYTES {
        return None;
    }
    if packet.get(..2)? != MAGIC || *packet.get(2)? != VERSION {
        return None;
    }
    let kind = *packet.get(3)?;
    if !(1..=16).contains(&kind) {
        return None;
    }
    let fields = Fields {
        kind,
        place: long(8)?,
        secret: [long(12)?, long(16)?, long(20)?],
        sequence: long(24)?,
        flags: short(28)?,
        serial: short(30)?,
        what: long(32)?,
        total: long(36)?,
        head: long(40)?,
        at: long(44)?,
        fragment: long(48)?,
        piece: u32::from(short(52)?) * 16,
        credits: short(54)?,
    };
    let check = long(56)?;
    if fields.head > fields.total || fields.at > fields.total {
        return None;
    }
    if fields.flags & CHECKED == 0 && check != 0 {
        return None;
    }
    Some(fields)
}

/// Reads the header as eight words of 64 bits, and makes all checks at once. This version is written so that
/// each load and each comparison is one instruction.
#[inline(never)]
pub(crate) fn by_hand(packet: &[u8]) -> Option<Fields> {
    let header: &[u8; BYTES] = packet.first_chunk()?;
    let word = |at: usize| {
        let bytes = [0, 1, 2, 3, 4, 5, 6, 7].map(|byte| header[8 * at + byte]);
        u64::from_le_bytes(bytes)
    };
    let words = [word(0), word(1), word(2), word(3), word(4), word(5), word(6), word(7)];
    const START: u64 = MAGIC[0] as u64 | (MAGIC[1] as u64) << 8 | (VERSION as u64) << 16;
    let low = |word: u64| word as u32;
    let high = |word: u64| (word >> 32) as u32;
    let kind = (words[0] >> 24) as u8;
    let flags = high(words[3]) as u16;
    let (total, head, at) = (high(words[4]), low(words[5]), high(words[5]));
    let wrong = (words[0] & 0xff_ffff != START)
        | (kind.wrapping_sub(1) >= 16)
        | (head > total)
        | (at > total)
        | ((flags & CHECKED == 0) & (low(words[7]) != 0));
    if wrong {
        return None;
    }
    Some(Fields {
        kind,
        place: low(words[1]),
        secret: [high(words[1]), low(words[2]), high(words[2])],
        sequence: low(words[3]),
        flags,
        serial: (words[3] >> 48) as u16,
        what: low(words[4]),
        total,
        head,
        at,
        fragment: low(words[6]),
        piece: (high(words[6]) & 0xffff) * 16,
        credits: (words[6] >> 48) as u16,
    })
}

/// Returns a header that both versions accept.
pub(crate) fn example() -> [u8; BYTES] {
    let mut header = [0; BYTES];
    for (at, byte) in header.iter_mut().enumerate() {
        *byte = at as u8;
    }
    header[..2].copy_from_slice(&MAGIC);
    header[2] = VERSION;
    header[3] = 2;
    header[28] = 1;
    // `total` is larger than `head` and `at`.
    header[36..40].copy_from_slice(&[0xff; 4]);
    header
}

/// A version of the routine.
type Version = fn(&[u8]) -> Option<Fields>;

/// Returns the nanoseconds that each version takes, in the fastest of several rounds.
pub(crate) fn measure() -> [f64; 2] {
    const ROUNDS: u32 = 30;
    const STEPS: u32 = 20_000;
    let packet = example();
    let versions: [Version; 2] = [plain, by_hand];
    let mut fastest = [f64::INFINITY; 2];
    for _ in 0..ROUNDS {
        for (version, fastest) in versions.into_iter().zip(&mut fastest) {
            let version = black_box(version);
            let start = Instant::now();
            for _ in 0..STEPS {
                black_box(version(black_box(&packet)));
            }
            *fastest = fastest.min(start.elapsed().as_nanos() as f64 / f64::from(STEPS));
        }
    }
    fastest
}
