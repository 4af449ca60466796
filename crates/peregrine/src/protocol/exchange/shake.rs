//! Transports the bytes of a handshake of TLS in packets, although packets are lost, duplicated and reordered.
//!
//! The bytes belong to three *levels*. Each level has a stream of bytes in each direction, and keys of its
//! own: the bytes of the first level are sent in clear, the others are sealed. This module knows only bytes
//! and levels. The driver knows TLS, and seals and opens the packets.
//!
//! The client begins with `HELLO`, and the server answers with a cookie, as when a client binds. Then both
//! sides send `SHAKE` packets. The header has these fields, besides the client's nonce as secret:
//!
//! | field | what |
//! |---|---|
//! | `what` | level: 0, 1 or 2 |
//! | `total` | offset of the bytes in the stream of the level |
//! | `head` | 0, or 256 + code of an alert of TLS |
//! | `at` | number of bytes |
//!
//! The body is little-endian. The offset of each field precedes its name: 0 cookie (zeros from the server);
//! 16 for each level, how many bytes of its stream have arrived without a hole, u32; 28 bytes of the stream.
//! Zeros may follow: packets of the first level from the client are padded to [`BIND_BYTES`], so that no
//! answer is longer.
//!
//! Only the client has a timer. It repeats what the server has not acknowledged. The server answers each
//! packet that it accepts with what the client has not acknowledged, in at most [`ANSWERS_MAX`] packets.

use super::bind::{BIND_BYTES, BindMessage, BindRefusal, Cookie, Cookies};
use super::header::{Flags, HEADER_BYTES, Handle, Header, PacketKind, SHAKE_BYTES_MAX, checksum};
use super::sealed::TAG_BYTES;
use super::time::{MILLISECOND, Moment, SECOND};

/// The largest number of bytes of a handshake that one side receives, in all levels together. It bounds the
/// certificates of a peer.
pub(crate) const RECEIVED_BYTES_MAX: usize = 16 << 10;
/// How long a server continues a handshake, in nanoseconds. It also answers repeated packets for this long
/// after the handshake has ended.
pub(crate) const SHAKE_TIME: u64 = 10 * SECOND;
/// The largest number of handshakes that a server has at one socket. Beyond it, the oldest one is given up.
pub(crate) const SHAKES_MAX: usize = 1024;
/// Like [`SHAKES_MAX`], but for one host.
pub(crate) const SHAKES_PER_HOST: usize = 64;
/// The largest number of packets by which a server answers one packet.
pub(crate) const ANSWERS_MAX: u8 = 4;

const TRIES_MAX: u8 = 10;
const WAIT_FIRST: u64 = 100 * MILLISECOND;
/// The shortest wait. It is longer than a server needs for a signature.
const WAIT_MIN: u64 = 20 * MILLISECOND;
const WAIT_MAX: u64 = SECOND;
const LEVELS: usize = 3;
const BODY_HEAD: usize = 28;
/// The largest number of bytes of a stream in one packet.
const BYTES_MAX: usize = SHAKE_BYTES_MAX - HEADER_BYTES - BODY_HEAD - TAG_BYTES;
/// The largest number of parts of a stream that arrived after a hole and are not connected.
const PARTS_MAX: usize = 16;

type Nonce = [u8; 12];

/// The keys by which bytes of a handshake are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// No keys.
    Clear = 0,
    /// The keys of the handshake.
    Handshake = 1,
    /// The keys of the packets after the handshake.
    Application = 2,
}

impl Level {
    const ALL: [Self; LEVELS] = [Self::Clear, Self::Handshake, Self::Application];

    /// Returns the level of a `SHAKE` packet.
    pub(crate) fn of(header: &Header) -> Option<Self> {
        let known = header.kind == PacketKind::Shake;
        Self::ALL.get(header.shape.what as usize).copied().filter(|_| known)
    }
}

/// What a `SHAKE` packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub(crate) cookie: Cookie,
    pub(crate) level: Level,
    /// Where the bytes are in the stream of the level.
    pub(crate) offset: u32,
    /// How many bytes of each stream the sender has received without a hole.
    pub(crate) received: [u32; LEVELS],
    /// The code of an alert of TLS, by which the sender ends the handshake.
    pub(crate) alert: Option<u8>,
    pub(crate) bytes: &'a [u8],
}

impl<'a> Message<'a> {
    /// Writes the packet. It has at least `bytes_min` bytes. Returns its length.
    ///
    /// # Panics
    /// Panics if the packet would be longer than [`SHAKE_BYTES_MAX`].
    pub(crate) fn emit(
        &self,
        nonce: Nonce,
        [serial, echo]: [u16; 2],
        bytes_min: usize,
        out: &mut [u8],
    ) -> usize {
        let used = HEADER_BYTES + BODY_HEAD + self.bytes.len();
        let length = used.max(bytes_min);
        assert!(length <= SHAKE_BYTES_MAX);
        let (header, body) = out[..length].split_first_chunk_mut().expect("a header");
        body.fill(0);
        body[..16].copy_from_slice(&self.cookie);
        for (to, received) in
            body[16..BODY_HEAD].as_chunks_mut::<4>().0.iter_mut().zip(self.received)
        {
            *to = received.to_le_bytes();
        }
        body[BODY_HEAD..used - HEADER_BYTES].copy_from_slice(self.bytes);
        let handle = Handle { place: 0, secret: nonce };
        let mut packet = Header::new(PacketKind::Shake, handle, 0);
        packet.shape.what = self.level as u32;
        packet.shape.total = self.offset;
        packet.shape.head = self.alert.map_or(0, |alert| 256 + u32::from(alert));
        packet.shape.at = self.bytes.len() as u32;
        let check = checksum(body);
        Header { serial, echo, flags: Flags::CHECKED, check, ..packet }.emit(header);
        length
    }

    /// Reads a packet. Returns `None` if it is damaged or has another kind.
    pub(crate) fn parse(header: &Header, body: &'a [u8]) -> Option<Self> {
        let level = Level::of(header)?;
        if header.handle.place != 0 || !header.holds(body) {
            return None;
        }
        let (cookie, rest) = body.split_first_chunk()?;
        let (received, rest) = rest.split_at_checked(BODY_HEAD - 16)?;
        let mut counts = [0; LEVELS];
        for (to, count) in counts.iter_mut().zip(received.as_chunks::<4>().0) {
            *to = u32::from_le_bytes(*count);
        }
        let bytes = rest.get(..header.shape.at as usize)?;
        let alert = match header.shape.head {
            0 => None,
            code => Some(u8::try_from(code.checked_sub(256)?).ok()?),
        };
        Some(Self {
            cookie: *cookie,
            level,
            offset: header.shape.total,
            received: counts,
            alert,
            bytes,
        })
    }
}

/// What a server does with a `SHAKE` packet in clear that belongs to no handshake that it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// Begin a handshake: the client's address is proven.
    Begin,
    /// Send this cookie, in a packet that serves to bind.
    SendCookie(Cookie),
}

/// Decides about a `SHAKE` packet in clear that belongs to no handshake that the server knows. Returns `None`
/// if the packet does not begin one. `address` is the client's address and port, as for [`Cookies::make`].
pub(crate) fn opening(
    cookies: &Cookies,
    now: Moment,
    address: &[u8],
    header: &Header,
    body: &[u8],
) -> Option<Opening> {
    let message = Message::parse(header, body)?;
    let begins = message.level == Level::Clear && message.offset == 0 && message.alert.is_none();
    if !begins || message.bytes.is_empty() || HEADER_BYTES + body.len() < BIND_BYTES {
        return None;
    }
    let nonce = &header.handle.secret;
    Some(match cookies.verify(now, address, nonce, &message.cookie) {
        true => Opening::Begin,
        false => Opening::SendCookie(cookies.make(now, address, nonce)),
    })
}

/// The two streams of one level.
#[derive(Debug, Default)]
struct Stream {
    /// Whether this side has the keys of the level.
    is_open: bool,
    sent: Vec<u8>,
    /// How many bytes of `sent` the peer has acknowledged.
    acknowledged: usize,
    /// Where the next packet of this flight begins.
    next: usize,
    /// The bytes that have arrived, with zeros in the place of holes.
    received: Vec<u8>,
    /// Which bytes have arrived, without gaps between them: beginnings and ends, in order.
    parts: Vec<(usize, usize)>,
    /// How many bytes the driver has taken.
    taken: usize,
}

impl Stream {
    /// Returns how many bytes have arrived without a hole.
    fn whole(&self) -> usize {
        self.parts.first().filter(|part| part.0 == 0).map_or(0, |part| part.1)
    }

    /// Keeps bytes. Returns whether some of them are new.
    fn keep(&mut self, at: usize, bytes: &[u8]) -> bool {
        let end = at + bytes.len();
        let is_known = self.parts.iter().any(|part| part.0 <= at && end <= part.1);
        if bytes.is_empty() || is_known {
            return false;
        }
        let touches = |part: &(usize, usize)| part.0 <= end && at <= part.1;
        let joined = self.parts.iter().filter(|part| touches(part));
        let (low, high) =
            joined.fold((at, end), |(low, high), part| (low.min(part.0), high.max(part.1)));
        if self.parts.len() == PARTS_MAX && !self.parts.iter().any(touches) {
            return false;
        }
        self.parts.retain(|part| !touches(part));
        let place = self.parts.partition_point(|part| part.0 < low);
        self.parts.insert(place, (low, high));
        if self.received.len() < end {
            self.received.resize(end, 0);
        }
        // Bytes that the driver has taken are never changed.
        let from = self.taken.max(at).min(end);
        self.received[from..end].copy_from_slice(&bytes[from - at..]);
        true
    }
}

/// What the peer has said that ends the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // there is only one for each handshake
pub(crate) enum End {
    /// An alert of TLS, and the level of its packet.
    Alert(u8, Level),
    /// The server does not make handshakes, and says why.
    Unbound(BindRefusal),
    /// The server does not answer.
    NoAnswer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A client that has no cookie yet.
    Hello,
    Shaking,
    /// A client that knows that it is accepted, and has one acknowledgement to send.
    Confirming,
    /// A client that has nothing to send any more.
    Done,
}

/// One end of a handshake.
#[derive(Debug)]
pub(crate) struct Shake {
    is_client: bool,
    nonce: Nonce,
    state: State,
    cookie: Cookie,
    streams: [Stream; LEVELS],
    alert: Option<u8>,
    end: Option<End>,
    serial: u16,
    echo: u16,
    /// How many more packets may be sent before the next one is received, or the next timer of a client.
    budget: u8,
    /// Whether a packet must be sent even if it has no bytes.
    owes_answer: bool,
    /// The packets that were received since this side sent the last one.
    unanswered: u8,
    tries: u8,
    begun: Moment,
    round_trip: u64,
    wait_first: u64,
    wait: u64,
    due: Moment,
}

impl Shake {
    /// Begins a client's end. `nonce` must be random.
    pub(crate) fn client(now: Moment, nonce: Nonce) -> Self {
        Self::begin(now, nonce, true, State::Hello)
    }

    /// Begins a server's end, for the client with this nonce.
    pub(crate) fn server(now: Moment, nonce: Nonce) -> Self {
        Self::begin(now, nonce, false, State::Shaking)
    }

    fn begin(now: Moment, nonce: Nonce, is_client: bool, state: State) -> Self {
        let mut streams = <[Stream; LEVELS]>::default();
        streams[0].is_open = true;
        Self {
            is_client,
            nonce,
            state,
            cookie: [0; 16],
            streams,
            alert: None,
            end: None,
            serial: 0,
            echo: 0,
            budget: 0,
            owes_answer: false,
            unanswered: 0,
            tries: 0,
            begun: now,
            round_trip: WAIT_FIRST,
            wait_first: WAIT_FIRST,
            wait: WAIT_FIRST,
            due: now,
        }
    }

    /// Says that this side has the keys of a level.
    pub(crate) fn open(&mut self, level: Level) {
        self.streams[level as usize].is_open = true;
    }

    /// Returns whether this side has the keys of a level.
    pub(crate) const fn is_open(&self, level: Level) -> bool {
        self.streams[level as usize].is_open
    }

    /// Returns the level of the packets that have no bytes.
    fn level(&self) -> Level {
        let open = Level::ALL.into_iter().rev().find(|level| self.is_open(*level));
        open.unwrap_or(Level::Clear)
    }

    /// Adds bytes to the stream of a level.
    pub(crate) fn write(&mut self, now: Moment, level: Level, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.streams[level as usize].sent.extend_from_slice(bytes);
            self.restart(now);
        }
    }

    /// Takes the next bytes of a level that have arrived without a hole.
    pub(crate) fn read(&mut self, level: Level) -> &[u8] {
        let stream = &mut self.streams[level as usize];
        let whole = stream.whole();
        let from = core::mem::replace(&mut stream.taken, whole);
        &stream.received[from..stream.taken]
    }

    /// Ends the handshake with an alert of TLS, which is sent to the peer.
    pub(crate) fn fail(&mut self, now: Moment, alert: u8) {
        self.alert = Some(alert);
        self.restart(now);
        self.owes_answer = true;
    }

    /// Begins a new flight of a client now.
    fn restart(&mut self, now: Moment) {
        if self.is_client {
            (self.tries, self.wait, self.due) = (0, self.wait_first, now);
        }
    }

    /// Says that a client is accepted: it sends one acknowledgement, and no more.
    pub(crate) fn confirm(&mut self, now: Moment) {
        if self.is_client && self.state == State::Shaking {
            self.state = State::Confirming;
            self.restart(now);
        }
    }

    /// Says that a server must answer, although it may have no bytes to send.
    pub(crate) const fn answer(&mut self) {
        self.owes_answer = true;
    }

    /// Handles a packet that was not sealed, or was opened: `opened` is the level of its keys. Returns whether
    /// the packet belongs to this handshake and was accepted.
    pub(crate) fn receive(
        &mut self,
        now: Moment,
        header: &Header,
        body: &[u8],
        opened: Level,
    ) -> bool {
        if header.handle.secret != self.nonce || header.handle.place != 0 || self.end.is_some() {
            return false;
        }
        if header.kind != PacketKind::Shake {
            let is_first = !self.is_open(Level::Handshake) && opened == Level::Clear;
            return self.is_client && is_first && self.receive_clear(now, header, body);
        }
        let Some(message) = Message::parse(header, body).filter(|message| message.level == opened)
        else {
            return false;
        };
        // As soon as there are keys, packets in clear are not believed any more. Anyone may have sent them. They
        // only show a server that the client lacks its answer.
        let is_late = opened == Level::Clear && self.is_open(Level::Handshake);
        let is_believed = !is_late || (!self.is_client && message.alert.is_none());
        if self.state == State::Hello || !is_believed {
            return false;
        }
        let others = self.streams.iter().zip(Level::ALL).filter(|(_, level)| *level != opened);
        let others: usize = others.map(|(stream, _)| stream.received.len()).sum();
        let end = (message.offset as usize).saturating_add(message.bytes.len());
        if others.saturating_add(end) > RECEIVED_BYTES_MAX {
            return false;
        }
        self.echo = header.serial;
        self.unanswered = self.unanswered.saturating_add(1);
        if let Some(alert) = message.alert {
            self.end = Some(End::Alert(alert, opened));
            return true;
        }
        let mut is_progress = false;
        // A packet cannot acknowledge bytes that are better protected than itself.
        let known = self.streams.iter_mut().zip(message.received).take(opened as usize + 1);
        for (stream, received) in known {
            let received = (received as usize).min(stream.sent.len());
            if received > stream.acknowledged {
                stream.acknowledged = received;
                is_progress = true;
            }
        }
        let stream = &mut self.streams[opened as usize];
        // A server that has keys has all bytes of the client that are in clear.
        let is_new = !is_late && stream.keep(message.offset as usize, message.bytes);
        // The last packet of a client only acknowledges, and needs no answer.
        let is_repeated = !is_new && opened != Level::Application;
        self.follow_up(now, is_repeated, is_progress || is_new);
        true
    }

    /// Decides what to send after a packet of the peer.
    fn follow_up(&mut self, now: Moment, is_repeated: bool, is_progress: bool) {
        if self.is_client {
            if is_progress && self.tries > 0 {
                (self.tries, self.wait) = (1, self.wait_first);
                self.due = now.after(self.wait);
            }
            // More than the server sends at once may be left.
            if is_progress && self.unanswered >= ANSWERS_MAX {
                self.due = now;
            }
        } else {
            self.budget = ANSWERS_MAX;
            self.owes_answer |= is_repeated || self.alert.is_some();
            for stream in &mut self.streams {
                stream.next = stream.acknowledged;
            }
        }
    }

    /// Handles a packet that serves to bind.
    fn receive_clear(&mut self, now: Moment, header: &Header, body: &[u8]) -> bool {
        match BindMessage::parse(header, body) {
            Some(BindMessage::Cookie(cookie, _)) if self.cookie != cookie => {
                if self.state == State::Hello {
                    self.round_trip = now.since(self.begun);
                    let wait = self.round_trip.saturating_mul(4);
                    self.wait_first = wait.clamp(WAIT_MIN, WAIT_FIRST);
                }
                self.cookie = cookie;
                self.state = State::Shaking;
                self.echo = header.serial;
                self.restart(now);
                true
            }
            Some(BindMessage::Unbound(refusal)) => {
                self.end = Some(End::Unbound(refusal));
                true
            }
            _ => false,
        }
    }

    /// Writes the next packet, if one is to be sent. Returns its length, and the level by whose keys it is
    /// to be sealed. The packet has no room for the tag yet.
    pub(crate) fn poll_send(
        &mut self,
        now: Moment,
        out: &mut [u8; SHAKE_BYTES_MAX],
    ) -> Option<(usize, Level)> {
        if self.is_client && now >= self.due && !self.begin_flight(now) {
            return None;
        }
        if self.budget == 0 || (self.end.is_some() && self.alert.is_none()) {
            return None;
        }
        if self.state == State::Hello {
            self.budget = 0;
            self.serial += 1;
            let out = out.first_chunk_mut().expect("a packet of a handshake is longer");
            BindMessage::Hello(false).emit(self.nonce, self.serial, self.echo, out);
            return Some((BIND_BYTES, Level::Clear));
        }
        let left = |level: &Level| {
            let stream = &self.streams[*level as usize];
            stream.is_open && stream.next < stream.sent.len()
        };
        let level = Level::ALL.into_iter().find(left).filter(|_| self.alert.is_none());
        if level.is_none() && !self.owes_answer {
            return None;
        }
        let level = level.unwrap_or_else(|| self.level());
        (self.owes_answer, self.unanswered) = (false, 0);
        let received = [0, 1, 2].map(|level| self.streams[level].whole() as u32);
        self.serial = self.serial.wrapping_add(1);
        let stream = &mut self.streams[level as usize];
        let end = stream.sent.len().min(stream.next + BYTES_MAX);
        let bytes = if self.alert.is_some() { &[] } else { &stream.sent[stream.next..end] };
        let message = Message {
            cookie: self.cookie,
            level,
            offset: stream.next as u32,
            received,
            alert: self.alert,
            bytes,
        };
        let bytes_min = if self.is_client && level == Level::Clear { BIND_BYTES } else { 0 };
        let length = message.emit(self.nonce, [self.serial, self.echo], bytes_min, out);
        stream.next = stream.next.max(end);
        if self.alert.is_some() || self.state == State::Confirming {
            self.budget = 0;
            if self.is_client {
                self.state = State::Done;
            }
        } else if !self.is_client {
            self.budget -= 1;
        }
        Some((length, level))
    }

    /// Begins to send again what is not acknowledged. Returns whether there is something to send.
    fn begin_flight(&mut self, now: Moment) -> bool {
        if self.state == State::Done || self.end.is_some() {
            return false;
        }
        if self.tries == TRIES_MAX {
            self.end = Some(End::NoAnswer);
            return false;
        }
        self.tries += 1;
        self.due = now.after(self.wait);
        self.wait = (self.wait * 2).min(WAIT_MAX);
        // All that is left is sent at once: at most `RECEIVED_BYTES_MAX` bytes, or the server refuses them.
        (self.budget, self.owes_answer) = (u8::MAX, true);
        for stream in &mut self.streams {
            stream.next = stream.acknowledged;
        }
        true
    }

    /// Returns when a client must be polled again, or when a server gives up the handshake.
    pub(crate) const fn next_timer(&self) -> Option<Moment> {
        if !self.is_client {
            return Some(self.begun.after(SHAKE_TIME));
        }
        match (&self.end, self.state) {
            (None, State::Hello | State::Shaking | State::Confirming) => Some(self.due),
            _ => None,
        }
    }

    /// Returns what the peer has said that ends the transport.
    pub(crate) const fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }
}

#[cfg(test)]
mod tests;
