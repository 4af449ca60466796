//! The protocol by which a client requests handles. A handle identifies one sequence of calls and the
//! server's record of it. The client and the server exchange packets twice. The server keeps no state between
//! the two exchanges.
//!
//! The server answers `HELLO` with a cookie. The client returns the cookie in `BIND`, which proves to the
//! server that the client receives packets at its address. In the headers of these packets, the secret is the
//! client's nonce, and place and sequence are zero. No answer is longer than its request. So an attacker that
//! forges source addresses causes no more traffic than it sends itself. The bodies are little-endian, and
//! padded with zeros to [`BODY_BYTES`]. In this table, the offset of each field precedes its name:
//!
//! | kind | body |
//! |---|---|
//! | `HELLO` | 0 flags u32 (1 requests the location on the link) |
//! | `COOKIE` | 0 cookie; 16 flags u32 (1: the server is on the link, and its location follows); 20 hardware address; 26 endpoint |
//! | `BIND` | 0 cookie; 16 digest; 32 flags u32 (1 any digest, 2 payload checks requested); 36 handles u16; 38 piece / 16 u16; 40 largest result u32; 44 credits u16; 46 bytes of the name u16; 48 name |
//! | `BOUND` | 0 table u64; 8 incarnation u64; 16 digest; 32 flags u32 (2 payload checks, 4 the server's values are big-endian); 36 handles u16; 38 piece / 16 u16; 40 largest call u32; 44 credits u16; 48 each handle: place u32, generation u32, secret 12 bytes |
//! | `UNBOUND` | 0 kind u32; 4 bytes of the text u16; 6 text |

use core::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher24};

use super::header::{Flags, HEADER_BYTES, Handle, Header, HeaderError, PacketKind, checksum};
use super::message::is_piece;
use super::time::{MILLISECOND, Moment, SECOND};
use super::versions;

/// The length in bytes of the body of a packet that serves to bind.
pub(crate) const BODY_BYTES: usize = 448;
/// The length in bytes of a packet that serves to bind.
pub(crate) const BIND_BYTES: usize = HEADER_BYTES + BODY_BYTES;
/// The largest number of handles that one `BIND` can get.
pub(crate) const HANDLES_MAX: usize = 16;
/// The length in bytes of the longest name.
pub(crate) const NAME_BYTES_MAX: usize = 64;
const TEXT_BYTES_MAX: usize = BODY_BYTES - 6;
/// The length of a time slot, in nanoseconds. A cookie is valid in its own slot and in the next one.
const SLOT: u64 = 60 * SECOND;
const TRIES_MAX: u8 = 10;
/// The numbers of the `HELLO` packets after which the client also sends one `HELLO` in the previous version
/// of the protocol.
const VERSION_ASKED: [u8; 2] = [3, 6];
/// How long a client waits for the first answer, if it does not know the round trip.
const WAIT_FIRST: u64 = 100 * MILLISECOND;
/// The shortest wait of a client that knows the round trip.
const WAIT_MIN: u64 = 10 * MILLISECOND;
const WAIT_MAX: u64 = SECOND;

const LINK: u32 = 1;
const ANY_DIGEST: u32 = 1;
const PAYLOAD_CHECK: u32 = 2;
const BIG_ENDIAN: u32 = 4;

pub(crate) type Nonce = [u8; 12];
pub(crate) type Digest = [u8; 16];
pub(crate) type Cookie = [u8; 16];
type Body = [u8; BODY_BYTES];

/// The cookie in a `BIND` that needs none, because the connection proves who sends it.
const NO_COOKIE: Cookie = [0; 16];

/// The name of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExportName {
    bytes: [u8; NAME_BYTES_MAX],
    length: u8,
}

impl ExportName {
    /// Makes a name. Returns `None` if the name is empty or too long.
    pub(crate) fn new(name: &[u8]) -> Option<Self> {
        let mut bytes = [0; NAME_BYTES_MAX];
        bytes.get_mut(..name.len())?.copy_from_slice(name);
        (!name.is_empty()).then_some(Self { bytes, length: name.len() as u8 })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// The location of a server on the Ethernet link that the server shares with the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkLocation {
    pub(crate) hardware: [u8; 6],
    pub(crate) endpoint: [u8; 2],
}

/// What a client requests when it binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BindRequest {
    pub(crate) name: ExportName,
    /// The digest of the client's interface. `None` accepts any interface.
    pub(crate) digest: Option<Digest>,
    pub(crate) handles: u16,
    /// The length in bytes of the largest piece of a message that the client can send and receive in one
    /// packet.
    pub(crate) piece: u32,
    pub(crate) result_bytes_max: u32,
    pub(crate) credits: u16,
    pub(crate) payload_check: bool,
}

/// A handle in a grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GrantedHandle {
    pub(crate) handle: Handle,
    /// The number of results that the server had discarded at the handle's place when it granted the handle.
    pub(crate) generation: u32,
}

/// What a server grants when a client binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The number of the table that granted the handles. It was drawn at random when the socket of the table
    /// was opened. A server has one table for each of its sockets.
    pub(crate) table: u64,
    /// A random number that identifies this run of the server. A later server at the same address has another
    /// number, and knows none of the handles in this grant.
    pub(crate) incarnation: u64,
    /// The digest of the interface of the export.
    pub(crate) digest: Digest,
    pub(crate) piece: u32,
    pub(crate) call_bytes_max: u32,
    pub(crate) credits: u16,
    pub(crate) payload_check: bool,
    /// Whether the values in calls and results are big-endian.
    pub(crate) big_endian: bool,
    handles: [GrantedHandle; HANDLES_MAX],
    count: u8,
}

impl Grant {
    /// Returns this grant with the first [`HANDLES_MAX`] handles of the list.
    pub(crate) fn with(mut self, handles: &[GrantedHandle]) -> Self {
        let count = handles.len().min(HANDLES_MAX);
        self.handles[..count].copy_from_slice(&handles[..count]);
        Self { count: count as u8, ..self }
    }

    pub(crate) const fn new(table: u64, incarnation: u64, digest: Digest) -> Self {
        const NO_HANDLE: GrantedHandle =
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
            handles: [NO_HANDLE; HANDLES_MAX],
            count: 0,
        }
    }

    /// Returns the handles.
    pub(crate) fn handles(&self) -> &[GrantedHandle] {
        &self.handles[..usize::from(self.count)]
    }
}

/// Why a server refuses to bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BindRefusal {
    /// The number that stands for the kind of error.
    pub(crate) kind: u32,
    text: [u8; TEXT_BYTES_MAX],
    length: u16,
}

impl BindRefusal {
    /// Makes a refusal. If the text is too long, it is truncated.
    pub(crate) fn new(kind: u32, text: &str) -> Self {
        let text = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
        let mut bytes = [0; TEXT_BYTES_MAX];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Self { kind, text: bytes, length: text.len() as u16 }
    }

    /// Returns the text as the server sent it. The text need not be UTF-8.
    pub(crate) fn text(&self) -> &[u8] {
        &self.text[..usize::from(self.length)]
    }
}

/// The contents of a packet that serves to bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // short-lived; nothing here allocates
pub(crate) enum BindMessage {
    /// A request for a cookie. The flag shows whether the client requests the server's location on the link.
    Hello(bool),
    /// A cookie, and the server's location on the link. The location is missing if the client did not request
    /// it or the server has none.
    Cookie(Cookie, Option<LinkLocation>),
    Bind(Cookie, BindRequest),
    Bound(Grant),
    Unbound(BindRefusal),
}

/// Reads numbers and bytes from the front of a body.
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

/// Writes values into a body, one after another. The number is the offset at which the next value is written.
struct BodyWriter<'a>(&'a mut Body, usize);

impl BodyWriter<'_> {
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
        let (header, body) = out.split_first_chunk_mut().expect("a packet has a header");
        let body: &mut Body = body.try_into().expect("a packet has a body");
        body.fill(0);
        self.write(&mut BodyWriter(body, 0));
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

    fn write(&self, pen: &mut BodyWriter<'_>) {
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

    /// Reads the body of a packet that serves to bind. Returns `None` if the body is damaged, or the packet
    /// has another kind.
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

/// Makes and checks the server's cookies. A cookie is a keyed hash of the client's address, the client's
/// nonce and the time. Clients return their cookies, so the server need not remember clients.
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
    /// Makes a source of cookies. The key must be random and secret.
    pub(crate) const fn new(key: [u8; 16]) -> Self {
        Self { key }
    }

    /// Makes the cookie of a client. `address` is the client's address and port, in any unambiguous form.
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

    /// Returns whether a cookie was made for this client in the current time slot or the one before it.
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
            // All bytes are compared, so that the duration of the comparison does not reveal where the
            // cookies differ.
            right.iter().zip(cookie).fold(0, |different, (a, b)| different | (a ^ b)) == 0
        };
        same(slot) || (slot > 0 && same(slot - 1))
    }

    /// Returns what the server does with a packet that serves to bind, and came over a sealed connection.
    pub(crate) fn asked_by_proven(header: &Header, body: &[u8]) -> Option<BindAction> {
        match BindMessage::parse(header, body)? {
            BindMessage::Bind(_, request) => Some(BindAction::Decide(request)),
            _ => None,
        }
    }

    /// Returns what the server does with a packet that serves to bind. The server sends a cookie, or decides
    /// about the request of a client whose address is proven. Returns `None` if the packet is damaged, or is
    /// neither a `HELLO` nor a `BIND`.
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
            // The cookie has expired, or was not made for this client. The client continues with a new
            // cookie.
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

/// What a server does with a packet that serves to bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // short-lived; nothing here allocates
pub(crate) enum BindAction {
    /// Send this cookie, with the server's location on the link if the flag is set.
    SendCookie(Cookie, bool),
    /// Grant or refuse this request, which comes from a proven address.
    Decide(BindRequest),
}

/// How a bind exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // there is only one for each binding
pub(crate) enum BindOutcome {
    /// The server granted handles. The number is the round trip in nanoseconds.
    Granted(Grant, u64),
    /// The client requested only the server's location on the link. `None` means that the server has none.
    Location(Option<LinkLocation>),
    /// The server refused the request.
    Refused(BindRefusal),
    /// The server has this older version of the protocol.
    OtherVersion(u8),
    /// The server did not answer.
    NoAnswer,
}

/// The client's side of the two exchanges that bind.
#[derive(Clone, Debug)]
pub(crate) struct BindExchange {
    nonce: Nonce,
    /// What the client requests. `None` if the client requests only the location on the link.
    request: Option<BindRequest>,
    state: State,
    tries: u8,
    /// Whether the next packet is a `HELLO` in the previous version of the protocol.
    asks_version: bool,
    serial: u16,
    echo: u16,
    /// The times at which the packets were sent, beginning with the packet with serial 1.
    sent: [Moment; TRIES_MAX as usize],
    round_trip: u64,
    wait: u64,
    due: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // there is only one for each binding
enum State {
    /// The client requests a cookie.
    Hello,
    /// The client requests handles with this cookie.
    Bind(Cookie),
    Ended(BindOutcome),
}

impl BindExchange {
    /// Begins an exchange that requests handles. `nonce` must be random.
    pub(crate) const fn new(now: Moment, nonce: Nonce, request: BindRequest) -> Self {
        Self::begin(now, nonce, Some(request))
    }

    /// Begins an exchange that requests only the server's location on the link. `nonce` must be random.
    pub(crate) const fn locating(now: Moment, nonce: Nonce) -> Self {
        Self::begin(now, nonce, None)
    }

    /// Begins an exchange over a sealed connection, whose handshake has proven the client's address already.
    /// So the client requests handles at once. `nonce` must be random but for the number of the connection.
    pub(crate) const fn proven(now: Moment, nonce: Nonce, request: BindRequest) -> Self {
        let state = State::Bind(NO_COOKIE);
        Self { state, ..Self::begin(now, nonce, Some(request)) }
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

    /// Makes the first waits shorter if the server is near. `round_trip` is in nanoseconds.
    pub(crate) fn over_round_trip(self, round_trip: u64) -> Self {
        let wait = round_trip.saturating_mul(4).clamp(WAIT_MIN, WAIT_FIRST);
        Self { wait, ..self }
    }

    /// Returns the number of the exchange, and the cookie that the server has sent, if it has.
    pub(crate) const fn cookie(&self) -> (Nonce, Option<Cookie>) {
        match self.state {
            State::Bind(cookie) => (self.nonce, Some(cookie)),
            _ => (self.nonce, None),
        }
    }

    /// Writes the next packet, if it is due.
    pub(crate) fn poll_send(&mut self, now: Moment, out: &mut [u8; BIND_BYTES]) -> Option<()> {
        let message = match (&self.state, self.request) {
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
        message.emit(self.nonce, self.serial, self.echo, out);
        if self.state == State::Hello && VERSION_ASKED.contains(&self.tries) {
            // Servers of older releases do not answer packets of other versions. So the client now asks in
            // the previous version, too.
            (self.asks_version, self.due) = (true, now);
        }
        Some(())
    }

    /// Handles a packet. Returns whether the packet was an answer to this exchange.
    pub(crate) fn receive(&mut self, now: Moment, packet: &[u8]) -> bool {
        let Some((header, body)) = packet.split_first_chunk() else { return false };
        match Header::parse(header, body.len()) {
            Ok(header) => self.handle(now, &header, body),
            Err(HeaderError::Version) => self.handle_other_version(packet),
            Err(_) => false,
        }
    }

    /// Handles a packet of another version. It may be the answer to the packet that the client sent in the
    /// previous version.
    fn handle_other_version(&mut self, packet: &[u8]) -> bool {
        let Some(other) = versions::read(packet) else { return false };
        let answers = other.kind == PacketKind::Cookie && other.nonce == self.nonce;
        if answers && self.state == State::Hello {
            self.state = State::Ended(BindOutcome::OtherVersion(other.version));
        }
        answers
    }

    /// Handles a packet of the server. Returns whether the packet was an answer to this exchange.
    pub(crate) fn handle(&mut self, now: Moment, header: &Header, body: &[u8]) -> bool {
        if header.handle.secret != self.nonce || header.handle.place != 0 {
            return false;
        }
        let Some(message) = BindMessage::parse(header, body) else { return false };
        self.state = match (message, self.state) {
            (BindMessage::Cookie(_, link), State::Hello) if self.request.is_none() => {
                State::Ended(BindOutcome::Location(link))
            }
            (BindMessage::Cookie(cookie, _), State::Hello) => {
                self.due = now;
                State::Bind(cookie)
            }
            // The client ignores a cookie that it already has. Such a cookie is a late duplicate of the first
            // answer, or answers a retransmitted `HELLO`.
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

    /// Returns the round trip of the packet that was answered. If the round trip is longer than the wait for
    /// an answer, the client sends each packet more than once. Then the first answer belongs to the first
    /// packet. The echo in the answer identifies that packet. So, unlike TCP, the client can measure the
    /// round trip of retransmitted packets.
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

    /// Returns how the exchange ended, if it has ended.
    pub(crate) const fn outcome(&self) -> Option<&BindOutcome> {
        match &self.state {
            State::Ended(bound) => Some(bound),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
