//! Getting handles: two exchanges, in the first of which the server remembers nothing.
//!
//! `HELLO` is answered with a cookie, which proves to the server that the client is where it says to
//! be; `BIND` shows it. The header's secret is the client's nonce throughout, its place and sequence
//! are zero. No answer is longer than its request, so nobody is made to send to a third one more
//! than was sent to him. Behind the headers, little-endian, padded with zeros to [`BODY_BYTES`]:
//!
//! | kind | what |
//! |---|---|
//! | `HELLO` | 0 flags u32 (1 where on the link?) |
//! | `COOKIE` | 0 cookie; 16 flags u32 (1 on the link, there:); 20 hardware address; 26 endpoint |
//! | `BIND` | 0 cookie; 16 digest; 32 flags u32 (1 any digest, 2 payload checks wished); 36 handles u16; 38 piece / 16 u16; 40 largest result u32; 44 credits u16; 46 bytes of the name u16; 48 name |
//! | `BOUND` | 0 table u64; 8 incarnation u64; 16 digest; 32 flags u32 (2 payload checks, 4 the server's values are big-endian); 36 handles u16; 38 piece / 16 u16; 40 largest call u32; 44 credits u16; 48 each handle: place u32, generation u32, secret 12 bytes |
//! | `UNBOUND` | 0 kind u32; 4 bytes of the text u16; 6 text |

use core::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher24};

use super::header::{Flags, HEADER_BYTES, Handle, Header, HeaderError, PacketKind, checksum};
use super::message::is_piece;
use super::time::{MILLISECOND, Moment, SECOND};
use super::versions;

/// Bytes behind the header of every packet of binding.
pub(crate) const BODY_BYTES: usize = 448;
/// Bytes of every packet of binding.
pub(crate) const BIND_BYTES: usize = HEADER_BYTES + BODY_BYTES;
/// Handles that one `BIND` gets.
pub(crate) const HANDLES_MAX: usize = 16;
/// Bytes of a name.
pub(crate) const NAME_BYTES_MAX: usize = 64;
const TEXT_BYTES_MAX: usize = BODY_BYTES - 6;
/// A cookie is good for one to two of these.
const SLOT: u64 = 60 * SECOND;
const TRIES_MAX: u8 = 10;
/// After so many unanswered packets the client asks whether the server is of an older release.
const VERSION_ASKED: [u8; 2] = [3, 6];
const WAIT_FIRST: u64 = 100 * MILLISECOND;
const WAIT_MAX: u64 = SECOND;

const LINK: u32 = 1;
const ANY_DIGEST: u32 = 1;
const PAYLOAD_CHECK: u32 = 2;
const BIG_ENDIAN: u32 = 4;

type Nonce = [u8; 12];
pub(crate) type Digest = [u8; 16];
pub(crate) type Cookie = [u8; 16];
type Body = [u8; BODY_BYTES];

/// A name of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExportName {
    bytes: [u8; NAME_BYTES_MAX],
    length: u8,
}

impl ExportName {
    /// `None` if it is too long, or empty.
    pub(crate) fn new(name: &[u8]) -> Option<Self> {
        let mut bytes = [0; NAME_BYTES_MAX];
        bytes.get_mut(..name.len())?.copy_from_slice(name);
        (!name.is_empty()).then_some(Self { bytes, length: name.len() as u8 })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// Where a server is on the link that it and the client are at, if they are at one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkLocation {
    pub(crate) hardware: [u8; 6],
    pub(crate) endpoint: [u8; 2],
}

/// What a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BindRequest {
    pub(crate) name: ExportName,
    /// Identity of its interface; `None` takes any.
    pub(crate) digest: Option<Digest>,
    pub(crate) handles: u16,
    /// Bytes of the largest piece that it can send and receive.
    pub(crate) piece: u32,
    pub(crate) result_bytes_max: u32,
    pub(crate) credits: u16,
    pub(crate) payload_check: bool,
}

/// A handle as it was granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GrantedHandle {
    pub(crate) handle: Handle,
    /// How often the handle's place had forgotten a result before.
    pub(crate) generation: u32,
}

/// What a server grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// Names the table that granted the handles: random, drawn when its socket was opened. A server
    /// has one table for each of its sockets.
    pub(crate) table: u64,
    /// Random, and the server's for as long as it listens: another one, later at the same address,
    /// knows none of its callers.
    pub(crate) incarnation: u64,
    /// Identity of its interface.
    pub(crate) digest: Digest,
    pub(crate) piece: u32,
    pub(crate) call_bytes_max: u32,
    pub(crate) credits: u16,
    pub(crate) payload_check: bool,
    /// Whether the values of calls and results are big-endian.
    pub(crate) big_endian: bool,
    handles: [GrantedHandle; HANDLES_MAX],
    count: u8,
}

impl Grant {
    /// The same with these handles; those beyond [`HANDLES_MAX`] are left out.
    pub(crate) fn with(mut self, handles: &[GrantedHandle]) -> Self {
        let count = handles.len().min(HANDLES_MAX);
        self.handles[..count].copy_from_slice(&handles[..count]);
        Self { count: count as u8, ..self }
    }

    pub(crate) const fn new(table: u64, incarnation: u64, digest: Digest) -> Self {
        const NO_LEASE: GrantedHandle =
            GrantedHandle { handle: Handle { place: 0, secret: [0; 12] }, generation: 0 };
        Self {
            table,
            incarnation,
            digest,
            piece: 0,
            call_bytes_max: 0,
            credits: 0,
            payload_check: false,
            big_endian: false,
            handles: [NO_LEASE; HANDLES_MAX],
            count: 0,
        }
    }

    /// The handles.
    pub(crate) fn handles(&self) -> &[GrantedHandle] {
        &self.handles[..usize::from(self.count)]
    }
}

/// Why a server grants nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BindRefusal {
    /// The number of a kind of error.
    pub(crate) kind: u32,
    text: [u8; TEXT_BYTES_MAX],
    length: u16,
}

impl BindRefusal {
    /// A text that is too long is cut.
    pub(crate) fn new(kind: u32, text: &str) -> Self {
        let fragments = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
        let mut bytes = [0; TEXT_BYTES_MAX];
        bytes[..fragments.len()].copy_from_slice(fragments.as_bytes());
        Self { kind, text: bytes, length: fragments.len() as u16 }
    }

    /// As it was sent: perhaps no UTF-8.
    pub(crate) fn text(&self) -> &[u8] {
        &self.text[..usize::from(self.length)]
    }
}

/// What the body of a packet of binding says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // short-lived, and nothing is allocated here
pub(crate) enum BindMessage {
    /// Whether the client asks where the server is on the link.
    Hello(bool),
    /// Also where it is there, if that was asked and there is an answer.
    Cookie(Cookie, Option<LinkLocation>),
    Bind(Cookie, BindRequest),
    Bound(Grant),
    Unbound(BindRefusal),
}

/// Reads numbers and bytes from the front.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }
    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }
    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
    fn piece(&mut self) -> Option<u32> {
        self.u16().map(|sixteenths| u32::from(sixteenths) * 16).filter(|piece| is_piece(*piece))
    }
}

/// Writes behind each other.
struct Pen<'a>(&'a mut Body, usize);

impl Pen<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.0[self.1..self.1 + bytes.len()].copy_from_slice(bytes);
        self.1 += bytes.len();
    }
    fn piece(&mut self, piece: u32) {
        self.put(&((piece / 16) as u16).to_le_bytes());
    }
}

impl BindMessage {
    const fn kind(&self) -> PacketKind {
        match self {
            Self::Hello(_) => PacketKind::Hello,
            Self::Cookie(..) => PacketKind::Cookie,
            Self::Bind(..) => PacketKind::Bind,
            Self::Bound(_) => PacketKind::Bound,
            Self::Unbound(_) => PacketKind::Unbound,
        }
    }

    /// Writes the packet.
    pub(crate) fn emit(&self, nonce: Nonce, serial: u16, echo: u16, out: &mut [u8; BIND_BYTES]) {
        let (header, body) = out.split_first_chunk_mut().expect("room for a header");
        let body: &mut Body = body.try_into().expect("room for a body");
        body.fill(0);
        self.write(&mut Pen(body, 0));
        let handle = Handle { place: 0, secret: nonce };
        let check = checksum(body);
        Header {
            serial,
            echo,
            flags: Flags::CHECKED,
            check,
            ..Header::new(self.kind(), handle, 0)
        }
        .emit(header);
    }

    fn write(&self, pen: &mut Pen<'_>) {
        match self {
            Self::Hello(link) => pen.put(&(if *link { LINK } else { 0 }).to_le_bytes()),
            Self::Cookie(cookie, link) => {
                pen.put(cookie);
                pen.put(&(if link.is_some() { LINK } else { 0 }).to_le_bytes());
                if let Some(link) = link {
                    pen.put(&link.hardware);
                    pen.put(&link.endpoint);
                }
            }
            Self::Bind(cookie, request) => {
                pen.put(cookie);
                pen.put(&request.digest.unwrap_or_default());
                let any = if request.digest.is_none() { ANY_DIGEST } else { 0 };
                let check = if request.payload_check { PAYLOAD_CHECK } else { 0 };
                pen.put(&(any | check).to_le_bytes());
                pen.put(&request.handles.to_le_bytes());
                pen.piece(request.piece);
                pen.put(&request.result_bytes_max.to_le_bytes());
                pen.put(&request.credits.to_le_bytes());
                pen.put(&u16::from(request.name.length).to_le_bytes());
                pen.put(request.name.bytes());
            }
            Self::Bound(grant) => {
                pen.put(&grant.table.to_le_bytes());
                pen.put(&grant.incarnation.to_le_bytes());
                pen.put(&grant.digest);
                let check = if grant.payload_check { PAYLOAD_CHECK } else { 0 };
                let order = if grant.big_endian { BIG_ENDIAN } else { 0 };
                pen.put(&(check | order).to_le_bytes());
                pen.put(&u16::from(grant.count).to_le_bytes());
                pen.piece(grant.piece);
                pen.put(&grant.call_bytes_max.to_le_bytes());
                pen.put(&grant.credits.to_le_bytes());
                pen.put(&[0; 2]);
                for GrantedHandle { handle, generation } in grant.handles() {
                    pen.put(&handle.place.to_le_bytes());
                    pen.put(&generation.to_le_bytes());
                    pen.put(&handle.secret);
                }
            }
            Self::Unbound(denial) => {
                pen.put(&denial.kind.to_le_bytes());
                pen.put(&denial.length.to_le_bytes());
                pen.put(denial.text());
            }
        }
    }

    /// What a body says behind a header of a kind of binding; `None` if it is damaged or is none.
    pub(crate) fn parse(header: &Header, body: &[u8]) -> Option<Self> {
        if body.len() != BODY_BYTES || !header.holds(body) {
            return None;
        }
        let cursor = &mut Cursor(body);
        Some(match header.kind {
            PacketKind::Hello => Self::Hello(cursor.u32()? & LINK != 0),
            PacketKind::Cookie => {
                let (cookie, flags) = (cursor.take()?, cursor.u32()?);
                let link = LinkLocation { hardware: cursor.take()?, endpoint: cursor.take()? };
                Self::Cookie(cookie, (flags & LINK != 0).then_some(link))
            }
            PacketKind::Bind => {
                let (cookie, digest, flags) = (cursor.take()?, cursor.take()?, cursor.u32()?);
                let (handles, piece) = (cursor.u16()?, cursor.piece()?);
                let (result_bytes_max, credits) = (cursor.u32()?, cursor.u16()?);
                let length = cursor.u16()?;
                let request = BindRequest {
                    name: ExportName::new(cursor.0.get(..usize::from(length))?)?,
                    digest: (flags & ANY_DIGEST == 0).then_some(digest),
                    handles,
                    piece,
                    result_bytes_max,
                    credits,
                    payload_check: flags & PAYLOAD_CHECK != 0,
                };
                Self::Bind(cookie, request)
            }
            PacketKind::Bound => {
                let (table, incarnation) = (cursor.u64()?, cursor.u64()?);
                let mut grant = Grant::new(table, incarnation, cursor.take()?);
                let flags = cursor.u32()?;
                grant.payload_check = flags & PAYLOAD_CHECK != 0;
                grant.big_endian = flags & BIG_ENDIAN != 0;
                let count = usize::from(cursor.u16()?);
                grant.piece = cursor.piece()?;
                grant.call_bytes_max = cursor.u32()?;
                grant.credits = cursor.u16()?;
                cursor.u16()?;
                for granted in grant.handles.get_mut(..count)? {
                    let (place, generation) = (cursor.u32()?, cursor.u32()?);
                    let handle = Handle { place, secret: cursor.take()? };
                    *granted = GrantedHandle { handle, generation };
                }
                Self::Bound(Grant { count: count as u8, ..grant })
            }
            PacketKind::Unbound => {
                let (kind, length) = (cursor.u32()?, cursor.u16()?);
                let mut text = [0; TEXT_BYTES_MAX];
                let bytes = cursor.0.get(..usize::from(length))?;
                text[..bytes.len()].copy_from_slice(bytes);
                Self::Unbound(BindRefusal { kind, text, length })
            }
            _ => return None,
        })
    }
}

/// The server's cookies: a keyed hash of who asks and when, so that nothing need be remembered.
#[derive(Clone)]
pub(crate) struct Cookies {
    key: [u8; 16],
}

impl core::fmt::Debug for Cookies {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Cookies")
    }
}

impl Cookies {
    /// With a key that is random, and nobody else's.
    pub(crate) const fn new(key: [u8; 16]) -> Self {
        Self { key }
    }

    /// The cookie of a client at an address (in any unambiguous form, with the port).
    pub(crate) fn make(&self, now: Moment, address: &[u8], nonce: &Nonce) -> Cookie {
        self.of_slot(now.0 / SLOT, address, nonce)
    }

    fn of_slot(&self, slot: u64, address: &[u8], nonce: &Nonce) -> Cookie {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(&slot.to_le_bytes());
        hasher.write(nonce);
        hasher.write(address);
        hasher.finish128().as_bytes()
    }

    /// Whether a cookie was made for this client lately.
    pub(crate) fn verify(
        &self,
        now: Moment,
        address: &[u8],
        nonce: &Nonce,
        cookie: &Cookie,
    ) -> bool {
        let slot = now.0 / SLOT;
        let same = |slot| {
            let right = self.of_slot(slot, address, nonce);
            // All bytes are looked at, so that how long it takes tells nothing of them.
            right.iter().zip(cookie).fold(0, |different, (a, b)| different | (a ^ b)) == 0
        };
        same(slot) || (slot > 0 && same(slot - 1))
    }

    /// What a server does with a packet of binding: says something itself, or has a client that is
    /// where it says to be.
    pub(crate) fn asked(
        &self,
        now: Moment,
        address: &[u8],
        header: &Header,
        body: &[u8],
    ) -> Option<BindAction> {
        let nonce = &header.handle.secret;
        match BindMessage::parse(header, body)? {
            BindMessage::Bind(cookie, request) if self.verify(now, address, nonce, &cookie) => {
                Some(BindAction::Decide(request))
            }
            // An old cookie: a new one lets the client go on.
            BindMessage::Bind(..) => {
                Some(BindAction::SendCookie(self.make(now, address, nonce), false))
            }
            BindMessage::Hello(link) => {
                Some(BindAction::SendCookie(self.make(now, address, nonce), link))
            }
            _ => None,
        }
    }
}

/// What a client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // short-lived, and nothing is allocated here
pub(crate) enum BindAction {
    /// A cookie, this one, and perhaps where the server is on the link.
    SendCookie(Cookie, bool),
    /// Grant or deny this; its address is proven.
    Decide(BindRequest),
}

/// How binding ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // one a binding
pub(crate) enum BindOutcome {
    /// With handles; the round trip in nanoseconds.
    Granted(Grant, u64),
    /// Only asked where the server is on the link: there, if it is.
    Location(Option<LinkLocation>),
    Refused(BindRefusal),
    /// The server speaks this version of the packet protocol, an older one than this side.
    OtherVersion(u8),
    /// Nobody answered.
    NoAnswer,
}

/// The client's side of binding.
#[derive(Clone, Debug)]
pub(crate) struct BindExchange {
    nonce: Nonce,
    /// What it wants; `None` if only to know where the server is on the link.
    request: Option<BindRequest>,
    state: State,
    tries: u8,
    /// The next packet asks whether the server speaks the version before this one.
    asks_version: bool,
    serial: u16,
    echo: u16,
    /// When each packet was sent, the one of serial 1 first.
    sent: [Moment; TRIES_MAX as usize],
    round_trip: u64,
    wait: u64,
    due: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // one a binding
enum State {
    /// To send, or waiting for the answer.
    Hello,
    Bind(Cookie),
    Ended(BindOutcome),
}

impl BindExchange {
    /// `nonce`: random.
    pub(crate) const fn new(now: Moment, nonce: Nonce, request: BindRequest) -> Self {
        Self::begin(now, nonce, Some(request))
    }

    /// Only asks where the server is on the link. `nonce`: random.
    pub(crate) const fn locating(now: Moment, nonce: Nonce) -> Self {
        Self::begin(now, nonce, None)
    }

    const fn begin(now: Moment, nonce: Nonce, request: Option<BindRequest>) -> Self {
        Self {
            nonce,
            request,
            state: State::Hello,
            tries: 0,
            asks_version: false,
            serial: 0,
            echo: 0,
            sent: [now; TRIES_MAX as usize],
            round_trip: WAIT_FIRST,
            wait: WAIT_FIRST,
            due: now,
        }
    }

    /// The next packet, if it is time for one.
    pub(crate) fn poll_send(&mut self, now: Moment, out: &mut [u8; BIND_BYTES]) -> Option<()> {
        let said = match (&self.state, self.request) {
            (State::Hello, request) => BindMessage::Hello(request.is_none()),
            (State::Bind(cookie), Some(request)) => BindMessage::Bind(*cookie, request),
            (State::Ended(_), _) | (State::Bind(_), None) => return None,
        };
        if now < self.due {
            return None;
        }
        if core::mem::take(&mut self.asks_version) {
            versions::ask(self.nonce, out);
            self.due = now.after(self.wait);
            return Some(());
        }
        if self.tries == TRIES_MAX {
            self.state = State::Ended(BindOutcome::NoAnswer);
            return None;
        }
        self.sent[usize::from(self.tries)] = now;
        self.tries += 1;
        self.serial += 1;
        self.due = now.after(self.wait);
        self.wait = (self.wait * 2).min(WAIT_MAX);
        said.emit(self.nonce, self.serial, self.echo, out);
        if self.state == State::Hello && VERSION_ASKED.contains(&self.tries) {
            // A server of an older release drops what it cannot read, and says nothing.
            (self.asks_version, self.due) = (true, now);
        }
        Some(())
    }

    /// A packet came; whether it was of use.
    pub(crate) fn receive(&mut self, now: Moment, packet: &[u8]) -> bool {
        let Some((header, body)) = packet.split_first_chunk() else { return false };
        match Header::parse(header, body.len()) {
            Ok(header) => self.handle(now, &header, body),
            Err(HeaderError::Version) => self.handle_other_version(packet),
            Err(_) => false,
        }
    }

    /// The server speaks the version before this one, if it answers that one's question.
    fn handle_other_version(&mut self, packet: &[u8]) -> bool {
        let Some(other) = versions::read(packet) else { return false };
        let answers = other.kind == PacketKind::Cookie && other.nonce == self.nonce;
        if answers && self.state == State::Hello {
            self.state = State::Ended(BindOutcome::OtherVersion(other.version));
        }
        answers
    }

    /// A packet of binding came from the server; whether it was of use.
    pub(crate) fn handle(&mut self, now: Moment, header: &Header, body: &[u8]) -> bool {
        if header.handle.secret != self.nonce || header.handle.place != 0 {
            return false;
        }
        let Some(said) = BindMessage::parse(header, body) else { return false };
        self.state = match (said, self.state) {
            (BindMessage::Cookie(_, link), State::Hello) if self.request.is_none() => {
                State::Ended(BindOutcome::Location(link))
            }
            (BindMessage::Cookie(cookie, _), State::Hello) => {
                self.due = now;
                State::Bind(cookie)
            }
            // Only if it answers the last one: a late cookie of the first exchange is as good.
            (BindMessage::Cookie(cookie, _), State::Bind(old)) if cookie != old => {
                self.due = now;
                State::Bind(cookie)
            }
            (BindMessage::Bound(grant), State::Bind(_)) => {
                State::Ended(BindOutcome::Granted(grant, self.measure(now, header.echo)))
            }
            (BindMessage::Unbound(denial), State::Hello | State::Bind(_)) => {
                State::Ended(BindOutcome::Refused(denial))
            }
            _ => return false,
        };
        self.round_trip = self.measure(now, header.echo);
        self.echo = header.serial;
        true
    }

    /// The round trip of the packet that is answered. If that takes longer than the wait for an answer,
    /// each packet is sent more than once, and the answer to the first one comes first. The echo tells
    /// which one it is for. So, unlike TCP, the client can measure packets that it sent again.
    fn measure(&self, now: Moment, echo: u16) -> u64 {
        let sent = &self.sent[..usize::from(self.serial)];
        let answered = usize::from(echo).checked_sub(1).and_then(|at| sent.get(at));
        answered.map_or(self.round_trip, |sent| now.since(*sent))
    }

    pub(crate) const fn next_timer(&self) -> Option<Moment> {
        match self.state {
            State::Ended(_) => None,
            _ => Some(self.due),
        }
    }

    /// How it ended, if it has.
    pub(crate) const fn outcome(&self) -> Option<&BindOutcome> {
        match &self.state {
            State::Ended(bound) => Some(bound),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
