//! Opens the sealed packets of a capture, with the secrets of a key log.
//!
//! A packet names its connection by an id, and a key log names connections by the random numbers of clients.
//! So the first packet with an id is tried with the secrets of all connections in the log that have no id yet.
//! This needs no packet of the handshake, and works for captures that begin later. Keys are derived as in
//! RFC 9001, section 5.1, and updated as in section 6.1.

use core::fmt;
use std::collections::HashMap;

use ring::aead::{self, AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce};
use ring::hkdf::{self, HKDF_SHA256, HKDF_SHA384, KeyType, Okm, Prk};
use zeroize::Zeroizing;

use super::ConnectionId;
use crate::limits::KEY_LOG_CONNECTIONS_MAX;
use crate::protocol::exchange::header::{HEADER_BYTES, MAGIC, PacketKind, VERSION};
use crate::protocol::exchange::sealed::{Cover, PHASES, TAG_BYTES, restore, whole_number};
use crate::secure::KeyError;
use crate::secure::key_log::{CLIENT, RANDOM_BYTES, SECRET_BYTES_MAX, SERVER};

/// How often the keys of a connection may have been updated before its first captured packet.
const UPDATES_MAX: u64 = 15;
/// How many packets of a connection are tried with all secrets.
const SEARCHES_MAX: u8 = 3;
/// The largest number of ids whose secrets are not in the log.
const UNKNOWN_MAX: usize = 65_536;
/// How many bytes all searches for secrets may decrypt.
const EFFORT_MAX: u64 = 8 << 30;
/// What an attempt counts in addition to the bytes of its packet, because it derives a key.
const ATTEMPT_BYTES: u64 = 2048;

/// Opens sealed packets of captured calls, with a file that [`Identity::log_keys_to`] has written.
///
/// It is for programs that show captures of packets over UDP and raw Ethernet. `peregrine unseal` uses it.
///
/// ```
/// use peregrine::secure::Unsealer;
///
/// let mut unsealer = Unsealer::new(b"# no connection was made while the keys were logged\n")?;
/// assert_eq!(unsealer.connections(), 0);
/// let mut opened = Vec::new();
/// let count = unsealer.unseal(b"the payload of a datagram", &mut opened);
/// assert_eq!((opened.as_slice(), count.opened), (&b"the payload of a datagram"[..], 0));
/// # Ok::<(), peregrine::secure::KeyError>(())
/// ```
///
/// [`Identity::log_keys_to`]: crate::secure::Identity::log_keys_to
pub struct Unsealer {
    secrets: Vec<Secrets>,
    connections: HashMap<ConnectionId, Place>,
    /// The number of ids whose secrets were not found.
    unknown: usize,
    /// How many more bytes may be decrypted in searches.
    effort: u64,
    plain: Vec<u8>,
}

/// The number of packets that [`Unsealer::unseal`] has found, of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unsealed {
    /// Packets that were opened.
    pub opened: u64,
    /// Sealed packets that were not opened: their keys are not in the log, or they are damaged or forged.
    pub closed: u64,
    /// Sealed packets of handshakes, which stay as they are. They have certificates, and no calls.
    pub handshake: u64,
    /// Datagrams or frames with packets that are not sealed.
    pub clear: u64,
}

/// The secrets of one connection in the log.
struct Secrets {
    random: [u8; RANDOM_BYTES],
    /// Those of the client and of the server.
    sides: [Option<Zeroizing<Vec<u8>>>; 2],
    /// Whether the id of the connection is known.
    is_taken: bool,
}

/// What is known of an id.
enum Place {
    /// The keys of the client and of the server.
    Known(Box<[Option<Direction>; 2]>),
    /// The number of packets that were tried with all secrets.
    Unknown(u8),
}

impl Unsealer {
    /// Reads the secrets of a key log. Lines for other purposes are skipped.
    ///
    /// # Errors
    /// [`KeyError::Invalid`] if a line is damaged, or if there are more than
    /// [`KEY_LOG_CONNECTIONS_MAX`] connections.
    ///
    /// [`KEY_LOG_CONNECTIONS_MAX`]: crate::limits::KEY_LOG_CONNECTIONS_MAX
    pub fn new(key_log: &[u8]) -> Result<Self, KeyError> {
        let mut secrets: Vec<Secrets> = Vec::new();
        let mut places = HashMap::new();
        for (number, line) in (1..).zip(key_log.split(|byte| *byte == b'\n')) {
            let invalid = |why: &str| KeyError::Invalid {
                place: "the key log".to_owned(),
                line: number,
                why: why.to_owned(),
            };
            let mut words = line.trim_ascii().split(|byte| *byte == b' ');
            let side = match words.next() {
                Some(word) if word == CLIENT.as_bytes() => 0,
                Some(word) if word == SERVER.as_bytes() => 1,
                _ => continue,
            };
            let (Some(random), Some(secret), None) = (words.next(), words.next(), words.next())
            else {
                return Err(invalid("a line has a label, a random number and a secret"));
            };
            let random = bytes(random).and_then(|random| random.as_slice().try_into().ok());
            let random: [u8; RANDOM_BYTES] = random
                .ok_or_else(|| invalid("the random number must have 64 hexadecimal digits"))?;
            let secret = bytes(secret).filter(|secret| Hash::of(secret).is_some());
            let secret =
                secret.ok_or_else(|| invalid("a secret must have 64 or 96 hexadecimal digits"))?;
            let place = *places.entry(random).or_insert(secrets.len());
            if place == secrets.len() {
                if place == KEY_LOG_CONNECTIONS_MAX {
                    let why = format!("more than {KEY_LOG_CONNECTIONS_MAX} connections");
                    return Err(invalid(&why));
                }
                secrets.push(Secrets { random, sides: [None, None], is_taken: false });
            }
            secrets[place].sides[side] = Some(secret);
        }
        let connections = HashMap::new();
        Ok(Self { secrets, connections, unknown: 0, effort: EFFORT_MAX, plain: Vec::new() })
    }

    /// Returns the number of connections whose secrets the log has. Those of connections over TCP are among
    /// them.
    pub fn connections(&self) -> usize {
        self.secrets.len()
    }

    /// Writes the payload of a datagram, or of an Ethernet frame after the 4 bytes of endpoints, to `opened`,
    /// with all sealed packets opened. What `opened` held before is removed.
    ///
    /// An opened packet is 16 bytes shorter, and its header is that of a packet which was never sealed. All
    /// other bytes stay as they are. Several packets may follow each other, as they do in captures of the
    /// sending machine. Packets of both directions must be passed in about the order in which they were sent.
    pub fn unseal(&mut self, payload: &[u8], opened: &mut Vec<u8>) -> Unsealed {
        let mut count = Unsealed::default();
        opened.clear();
        let mut rest = payload;
        while let Some(header) = header_of(rest) {
            let Some(cover) = Cover::of(header) else {
                count.clear += 1;
                break;
            };
            if header[3] == PacketKind::Shake as u8 {
                count.handshake += 1;
                break;
            }
            let (packet, next) = rest.split_at(length_of(rest));
            if self.open(packet, cover) {
                let mut header = *header;
                restore(&mut header);
                opened.extend_from_slice(&header);
                opened.extend_from_slice(&self.plain);
                count.opened += 1;
            } else {
                opened.extend_from_slice(packet);
                count.closed += 1;
            }
            rest = next;
        }
        opened.extend_from_slice(rest);
        count
    }

    /// Decrypts a packet. Returns whether `plain` has its payload now.
    fn open(&mut self, packet: &[u8], cover: Cover) -> bool {
        let id = id_of(packet);
        match self.connections.get_mut(&id) {
            Some(Place::Known(directions)) => {
                let mut known = directions.iter_mut().flatten();
                return known.any(|direction| direction.open(packet, cover, &mut self.plain));
            }
            Some(Place::Unknown(searches)) if *searches < SEARCHES_MAX => *searches += 1,
            None if self.unknown < UNKNOWN_MAX => {
                self.unknown += 1;
                self.connections.insert(id, Place::Unknown(1));
            }
            Some(Place::Unknown(_)) | None => return false,
        }
        let Some(directions) = self.search(packet, cover) else { return false };
        self.unknown -= 1;
        self.connections.insert(id, Place::Known(Box::new(directions)));
        true
    }

    /// Searches the secrets of a packet. `plain` has its payload if they are found.
    fn search(&mut self, packet: &[u8], cover: Cover) -> Option<[Option<Direction>; 2]> {
        for phase in (cover.phase..=UPDATES_MAX).step_by(PHASES as usize) {
            for secrets in self.secrets.iter_mut().filter(|secrets| !secrets.is_taken) {
                for (side, secret) in secrets.sides.iter().enumerate() {
                    let Some(hash) = secret.as_ref().and_then(|secret| Hash::of(secret)) else {
                        continue;
                    };
                    for cipher in hash.ciphers() {
                        let effort = ATTEMPT_BYTES + packet.len() as u64;
                        self.effort = self.effort.checked_sub(effort)?;
                        let of = |side: &Option<Zeroizing<Vec<u8>>>| {
                            let secret = side.as_ref()?;
                            Some(Direction::at(secret, Hash::of(secret)?, cipher, phase))
                        };
                        let number = u64::from(cover.number);
                        let key = Key::at(secret.as_ref()?, hash, cipher, phase);
                        if !key.open(number, packet, &mut self.plain) {
                            continue;
                        }
                        secrets.is_taken = true;
                        let mut directions = [of(&secrets.sides[0]), of(&secrets.sides[1])];
                        directions[side].as_mut()?.largest = number;
                        return Some(directions);
                    }
                }
            }
        }
        None
    }
}

impl fmt::Debug for Unsealer {
    /// Writes how much is known, and never a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let taken = self.secrets.iter().filter(|secrets| secrets.is_taken);
        write!(f, "Unsealer({} of {} connections)", taken.count(), self.secrets.len())
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({:02x?})", self.random)
    }
}

/// Returns the bytes of hexadecimal digits.
fn bytes(digits: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    if pairs.len() > SECRET_BYTES_MAX {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut all = Zeroizing::new(Vec::with_capacity(pairs.len()));
    for [high, low] in pairs {
        all.push((digit(*high)? << 4 | digit(*low)?) as u8);
    }
    Some(all)
}

/// Returns the header of the packet at the front, if there is one of this version.
fn header_of(bytes: &[u8]) -> Option<&[u8; HEADER_BYTES]> {
    let header = bytes.first_chunk::<HEADER_BYTES>()?;
    (header[..2] == MAGIC && header[2] == VERSION).then_some(header)
}

fn id_of(packet: &[u8]) -> ConnectionId {
    let mut id = ConnectionId::default();
    id.copy_from_slice(&packet[12..20]);
    id
}

/// Returns the length of the sealed packet at the front: up to the next packet of the same connection, or to
/// the end. Its encrypted bytes do not look like such a header, except by chance of 1 to 2^88.
fn length_of(bytes: &[u8]) -> usize {
    let id = id_of(bytes);
    let begins = |at: &usize| {
        let next = header_of(&bytes[*at..]);
        next.is_some_and(|next| next[12..20] == id && Cover::of(next).is_some())
    };
    (HEADER_BYTES + TAG_BYTES..bytes.len()).find(begins).unwrap_or(bytes.len())
}

/// The hash function of a connection. The length of a secret shows which it is.
#[derive(Clone, Copy)]
enum Hash {
    Sha256,
    Sha384,
}

/// The ciphers of TLS 1.3 with SHA-256.
static CIPHERS_OF_SHA256: [&aead::Algorithm; 2] = [&AES_128_GCM, &CHACHA20_POLY1305];
/// Those with SHA-384.
static CIPHERS_OF_SHA384: [&aead::Algorithm; 1] = [&AES_256_GCM];

impl Hash {
    fn of(secret: &[u8]) -> Option<Self> {
        match secret.len() {
            32 => Some(Self::Sha256),
            48 => Some(Self::Sha384),
            _ => None,
        }
    }

    fn ciphers(self) -> impl Iterator<Item = &'static aead::Algorithm> {
        let ciphers = match self {
            Self::Sha256 => &CIPHERS_OF_SHA256[..],
            Self::Sha384 => &CIPHERS_OF_SHA384[..],
        };
        ciphers.iter().copied()
    }

    fn algorithm(self) -> hkdf::Algorithm {
        match self {
            Self::Sha256 => HKDF_SHA256,
            Self::Sha384 => HKDF_SHA384,
        }
    }

    fn secret(self, bytes: &[u8]) -> Prk {
        Prk::new_less_safe(self.algorithm(), bytes)
    }

    /// Returns the secret after an update of the keys.
    fn next(self, secret: &Prk) -> Prk {
        expand(secret, b"quic ku", self.algorithm(), |okm| Prk::from(okm))
    }
}

/// HKDF-Expand-Label of TLS 1.3 (RFC 8446, section 7.1), without a context.
fn expand<L: KeyType, T>(
    secret: &Prk,
    label: &[u8],
    kind: L,
    make: impl FnOnce(Okm<'_, L>) -> T,
) -> T {
    const PREFIX: &[u8] = b"tls13 ";
    let length = (kind.len() as u16).to_be_bytes();
    let label_length = [(PREFIX.len() + label.len()) as u8];
    let info = [&length[..], &label_length, PREFIX, label, &[0]];
    make(secret.expand(&info, kind).expect("a key is not longer than 255 hashes"))
}

/// The length of an initialization vector.
struct Vector;

impl KeyType for Vector {
    fn len(&self) -> usize {
        aead::NONCE_LEN
    }
}

/// The key of one direction, between two updates.
struct Key {
    key: LessSafeKey,
    vector: [u8; aead::NONCE_LEN],
}

impl Key {
    fn new(secret: &Prk, cipher: &'static aead::Algorithm) -> Self {
        let key = expand(secret, b"quic key", cipher, |okm| aead::UnboundKey::from(okm));
        let mut vector = [0; aead::NONCE_LEN];
        expand(secret, b"quic iv", Vector, |okm| okm.fill(&mut vector)).expect("the same length");
        Self { key: LessSafeKey::new(key), vector }
    }

    /// Returns the key after `phase` updates.
    fn at(secret: &[u8], hash: Hash, cipher: &'static aead::Algorithm, phase: u64) -> Self {
        let secret = (0..phase).fold(hash.secret(secret), |secret, _| hash.next(&secret));
        Self::new(&secret, cipher)
    }

    /// Decrypts a packet. Returns whether it is authentic, and `plain` has its payload.
    fn open(&self, number: u64, packet: &[u8], plain: &mut Vec<u8>) -> bool {
        let (header, payload) = packet.split_at(HEADER_BYTES);
        plain.clear();
        plain.extend_from_slice(payload);
        let mut nonce = self.vector;
        for (to, byte) in nonce[4..].iter_mut().zip(number.to_be_bytes()) {
            *to ^= byte;
        }
        let nonce = Nonce::assume_unique_for_key(nonce);
        let Ok(opened) = self.key.open_in_place(nonce, Aad::from(header), plain) else {
            return false;
        };
        let length = opened.len();
        plain.truncate(length);
        true
    }
}

/// What one side sends.
struct Direction {
    hash: Hash,
    cipher: &'static aead::Algorithm,
    /// How often the keys were updated.
    phase: u64,
    previous: Option<Key>,
    current: Key,
    next: Key,
    /// The secret of the next key.
    ahead: Prk,
    /// The largest number of all packets that were opened.
    largest: u64,
}

impl Direction {
    /// Returns the direction after `phase` updates.
    fn at(secret: &[u8], hash: Hash, cipher: &'static aead::Algorithm, phase: u64) -> Self {
        let secret = hash.secret(secret);
        let (current, ahead) = (Key::new(&secret, cipher), hash.next(&secret));
        let next = Key::new(&ahead, cipher);
        let mut direction =
            Self { hash, cipher, phase: 0, previous: None, current, next, ahead, largest: 0 };
        for _ in 0..phase {
            direction.update();
        }
        direction
    }

    fn update(&mut self) {
        self.phase += 1;
        self.ahead = self.hash.next(&self.ahead);
        let new = core::mem::replace(&mut self.next, Key::new(&self.ahead, self.cipher));
        self.previous = Some(core::mem::replace(&mut self.current, new));
    }

    /// Decrypts a packet, and follows an update of the keys.
    fn open(&mut self, packet: &[u8], cover: Cover, plain: &mut Vec<u8>) -> bool {
        let number = whole_number(self.largest, cover.number);
        let ahead = cover.phase.wrapping_sub(self.phase) % PHASES;
        let key = match ahead {
            0 => Some(&self.current),
            1 => Some(&self.next),
            3 => self.previous.as_ref(),
            _ => None,
        };
        let Some(key) = key else { return false };
        if !key.open(number, packet, plain) {
            return false;
        }
        self.largest = self.largest.max(number);
        if ahead == 1 {
            self.update();
        }
        true
    }
}
