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
//! | `BOUND` | 0 origin u64; 8 incarnation u64; 16 digest; 32 flags u32 (2 payload checks, 4 the server's values are big-endian); 36 handles u16; 38 piece / 16 u16; 40 largest call u32; 44 credits u16; 48 each handle: place u32, secret 12 bytes |
//! | `UNBOUND` | 0 kind u32; 4 bytes of the text u16; 6 text |

use core::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher24};

use super::header::{Flags, HEADER_BYTES, Handle, Header, Kind, checksum};
use super::message::is_piece;
use super::time::{MILLISECOND, Moment, SECOND};

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
pub(crate) struct Name {
    bytes: [u8; NAME_BYTES_MAX],
    length: u8,
}

impl Name {
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
pub(crate) struct OnLink {
    pub(crate) hardware: [u8; 6],
    pub(crate) endpoint: [u8; 2],
}

/// What a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) name: Name,
    /// Identity of its interface; `None` takes any.
    pub(crate) digest: Option<Digest>,
    pub(crate) handles: u16,
    /// Bytes of the largest piece that it can send and receive.
    pub(crate) piece: u32,
    pub(crate) result_bytes_max: u32,
    pub(crate) credits: u16,
    pub(crate) payload_check: bool,
}

/// What a server grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) origin: u64,
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
    handles: [Handle; HANDLES_MAX],
    count: u8,
}

impl Grant {
    /// The same with these handles; those beyond [`HANDLES_MAX`] are left out.
    pub(crate) fn with(mut self, handles: &[Handle]) -> Self {
        let count = handles.len().min(HANDLES_MAX);
        self.handles[..count].copy_from_slice(&handles[..count]);
        Self { count: count as u8, ..self }
    }

    pub(crate) const fn new(origin: u64, incarnation: u64, digest: Digest) -> Self {
        Self {
            origin,
            incarnation,
            digest,
            piece: 0,
            call_bytes_max: 0,
            credits: 0,
            payload_check: false,
            big_endian: false,
            handles: [Handle { place: 0, secret: [0; 12] }; HANDLES_MAX],
            count: 0,
        }
    }

    pub(crate) fn handles(&self) -> &[Handle] {
        &self.handles[..usize::from(self.count)]
    }
}

/// Why a server grants nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Denial {
    /// The number of a kind of error.
    pub(crate) kind: u32,
    text: [u8; TEXT_BYTES_MAX],
    length: u16,
}

impl Denial {
    /// A text that is too long is cut.
    pub(crate) fn new(kind: u32, text: &str) -> Self {
        let cut = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
        let mut bytes = [0; TEXT_BYTES_MAX];
        bytes[..cut.len()].copy_from_slice(cut.as_bytes());
        Self { kind, text: bytes, length: cut.len() as u16 }
    }

    /// As it was sent: perhaps no UTF-8.
    pub(crate) fn text(&self) -> &[u8] {
        &self.text[..usize::from(self.length)]
    }
}

/// What the body of a packet of binding says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // short-lived, and nothing is allocated here
pub(crate) enum Said {
    /// Whether the client asks where the server is on the link.
    Hello(bool),
    /// Also where it is there, if that was asked and there is an answer.
    Cookie(Cookie, Option<OnLink>),
    Bind(Cookie, Wish),
    Bound(Grant),
    Unbound(Denial),
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

impl Said {
    const fn kind(&self) -> Kind {
        match self {
            Self::Hello(_) => Kind::Hello,
            Self::Cookie(..) => Kind::Cookie,
            Self::Bind(..) => Kind::Bind,
            Self::Bound(_) => Kind::Bound,
            Self::Unbound(_) => Kind::Unbound,
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
            Self::Bind(cookie, wish) => {
                pen.put(cookie);
                pen.put(&wish.digest.unwrap_or_default());
                let any = if wish.digest.is_none() { ANY_DIGEST } else { 0 };
                let check = if wish.payload_check { PAYLOAD_CHECK } else { 0 };
                pen.put(&(any | check).to_le_bytes());
                pen.put(&wish.handles.to_le_bytes());
                pen.piece(wish.piece);
                pen.put(&wish.result_bytes_max.to_le_bytes());
                pen.put(&wish.credits.to_le_bytes());
                pen.put(&u16::from(wish.name.length).to_le_bytes());
                pen.put(wish.name.bytes());
            }
            Self::Bound(grant) => {
                pen.put(&grant.origin.to_le_bytes());
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
                for handle in grant.handles() {
                    pen.put(&handle.place.to_le_bytes());
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
            Kind::Hello => Self::Hello(cursor.u32()? & LINK != 0),
            Kind::Cookie => {
                let (cookie, flags) = (cursor.take()?, cursor.u32()?);
                let link = OnLink { hardware: cursor.take()?, endpoint: cursor.take()? };
                Self::Cookie(cookie, (flags & LINK != 0).then_some(link))
            }
            Kind::Bind => {
                let (cookie, digest, flags) = (cursor.take()?, cursor.take()?, cursor.u32()?);
                let (handles, piece) = (cursor.u16()?, cursor.piece()?);
                let (result_bytes_max, credits) = (cursor.u32()?, cursor.u16()?);
                let length = cursor.u16()?;
                let wish = Wish {
                    name: Name::new(cursor.0.get(..usize::from(length))?)?,
                    digest: (flags & ANY_DIGEST == 0).then_some(digest),
                    handles,
                    piece,
                    result_bytes_max,
                    credits,
                    payload_check: flags & PAYLOAD_CHECK != 0,
                };
                Self::Bind(cookie, wish)
            }
            Kind::Bound => {
                let (origin, incarnation) = (cursor.u64()?, cursor.u64()?);
                let mut grant = Grant::new(origin, incarnation, cursor.take()?);
                let flags = cursor.u32()?;
                grant.payload_check = flags & PAYLOAD_CHECK != 0;
                grant.big_endian = flags & BIG_ENDIAN != 0;
                let count = usize::from(cursor.u16()?);
                grant.piece = cursor.piece()?;
                grant.call_bytes_max = cursor.u32()?;
                grant.credits = cursor.u16()?;
                cursor.u16()?;
                for handle in grant.handles.get_mut(..count)? {
                    *handle = Handle { place: cursor.u32()?, secret: cursor.take()? };
                }
                Self::Bound(Grant { count: count as u8, ..grant })
            }
            Kind::Unbound => {
                let (kind, length) = (cursor.u32()?, cursor.u16()?);
                let mut text = [0; TEXT_BYTES_MAX];
                let bytes = cursor.0.get(..usize::from(length))?;
                text[..bytes.len()].copy_from_slice(bytes);
                Self::Unbound(Denial { kind, text, length })
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
    ) -> Option<Asked> {
        let nonce = &header.handle.secret;
        match Said::parse(header, body)? {
            Said::Bind(cookie, wish) if self.verify(now, address, nonce, &cookie) => {
                Some(Asked::Bind(wish))
            }
            // An old cookie: a new one lets the client go on.
            Said::Bind(..) => Some(Asked::Cookie(self.make(now, address, nonce), false)),
            Said::Hello(link) => Some(Asked::Cookie(self.make(now, address, nonce), link)),
            _ => None,
        }
    }
}

/// What a client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // short-lived, and nothing is allocated here
pub(crate) enum Asked {
    /// A cookie, this one, and perhaps where the server is on the link.
    Cookie(Cookie, bool),
    /// Grant or deny this; its address is proven.
    Bind(Wish),
}

/// How binding ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // one a binding
pub(crate) enum Bound {
    /// With handles; the round trip in nanoseconds.
    Granted(Grant, u64),
    /// Only asked where the server is on the link: there, if it is.
    Told(Option<OnLink>),
    Denied(Denial),
    /// Nobody answered.
    Dead,
}

/// The client's side of binding.
#[derive(Clone, Debug)]
pub(crate) struct Binding {
    nonce: Nonce,
    /// What it wants; `None` if only to know where the server is on the link.
    wish: Option<Wish>,
    state: State,
    tries: u8,
    serial: u16,
    echo: u16,
    /// When the packet of `serial` was sent.
    sent: Moment,
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
    Ended(Bound),
}

impl Binding {
    /// `nonce`: random.
    pub(crate) const fn new(now: Moment, nonce: Nonce, wish: Wish) -> Self {
        Self::begin(now, nonce, Some(wish))
    }

    /// Only asks where the server is on the link. `nonce`: random.
    pub(crate) const fn asking(now: Moment, nonce: Nonce) -> Self {
        Self::begin(now, nonce, None)
    }

    const fn begin(now: Moment, nonce: Nonce, wish: Option<Wish>) -> Self {
        Self {
            nonce,
            wish,
            state: State::Hello,
            tries: 0,
            serial: 0,
            echo: 0,
            sent: now,
            round_trip: WAIT_FIRST,
            wait: WAIT_FIRST,
            due: now,
        }
    }

    /// The next packet, if it is time for one.
    pub(crate) fn poll_send(&mut self, now: Moment, out: &mut [u8; BIND_BYTES]) -> Option<()> {
        let said = match (&self.state, self.wish) {
            (State::Hello, wish) => Said::Hello(wish.is_none()),
            (State::Bind(cookie), Some(wish)) => Said::Bind(*cookie, wish),
            (State::Ended(_), _) | (State::Bind(_), None) => return None,
        };
        if now < self.due {
            return None;
        }
        if self.tries == TRIES_MAX {
            self.state = State::Ended(Bound::Dead);
            return None;
        }
        self.tries += 1;
        self.serial += 1;
        self.sent = now;
        self.due = now.after(self.wait);
        self.wait = (self.wait * 2).min(WAIT_MAX);
        said.emit(self.nonce, self.serial, self.echo, out);
        Some(())
    }

    /// A packet of binding came from the server; whether it was of use.
    pub(crate) fn handle(&mut self, now: Moment, header: &Header, body: &[u8]) -> bool {
        if header.handle.secret != self.nonce || header.handle.place != 0 {
            return false;
        }
        let Some(said) = Said::parse(header, body) else { return false };
        self.state = match (said, self.state) {
            (Said::Cookie(_, link), State::Hello) if self.wish.is_none() => {
                State::Ended(Bound::Told(link))
            }
            (Said::Cookie(cookie, _), State::Hello) => {
                self.due = now;
                State::Bind(cookie)
            }
            // Only if it answers the last one: a late cookie of the first exchange is as good.
            (Said::Cookie(cookie, _), State::Bind(old)) if cookie != old => {
                self.due = now;
                State::Bind(cookie)
            }
            (Said::Bound(grant), State::Bind(_)) => {
                State::Ended(Bound::Granted(grant, self.measure(now, header)))
            }
            (Said::Unbound(denial), State::Hello | State::Bind(_)) => {
                State::Ended(Bound::Denied(denial))
            }
            _ => return false,
        };
        self.round_trip = self.measure(now, header);
        self.echo = header.serial;
        true
    }

    /// The round trip, if this answers the packet that was sent last.
    const fn measure(&self, now: Moment, header: &Header) -> u64 {
        if header.echo == self.serial { now.since(self.sent) } else { self.round_trip }
    }

    pub(crate) const fn next_timer(&self) -> Option<Moment> {
        match self.state {
            State::Ended(_) => None,
            _ => Some(self.due),
        }
    }

    /// How it ended, if it has.
    pub(crate) const fn outcome(&self) -> Option<&Bound> {
        match &self.state {
            State::Ended(bound) => Some(bound),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wish() -> Wish {
        Wish {
            name: Name::new(b"files").expect("a name"),
            digest: Some([9; 16]),
            handles: 2,
            piece: 1408,
            result_bytes_max: 1 << 20,
            credits: 256,
            payload_check: false,
        }
    }

    fn grant(handles: &[Handle]) -> Grant {
        Grant { piece: 1408, call_bytes_max: 1 << 20, credits: 64, ..Grant::new(5, 6, [9; 16]) }
            .with(handles)
    }

    fn read(packet: &[u8; BIND_BYTES]) -> (Header, Option<Said>) {
        let (header, body) = packet.split_first_chunk().expect("a header");
        let header = Header::parse(header, body.len()).expect("a header that is whole");
        (header, Said::parse(&header, body))
    }

    #[test]
    fn what_is_said_is_read_and_damage_is_seen() {
        let handles = [Handle { place: 3, secret: [4; 12] }; HANDLES_MAX];
        let all = [
            Said::Hello(false),
            Said::Hello(true),
            Said::Cookie([3; 16], None),
            Said::Cookie([3; 16], Some(OnLink { hardware: [4; 6], endpoint: [5, 6] })),
            Said::Bind([3; 16], wish()),
            Said::Bind([3; 16], Wish { digest: None, payload_check: true, ..wish() }),
            Said::Bound(grant(&handles)),
            Said::Unbound(Denial::new(7, &"é".repeat(1000))),
        ];
        for said in all {
            let mut packet = [0xaa; BIND_BYTES];
            said.emit([1; 12], 2, 3, &mut packet);
            let (header, read_back) = read(&packet);
            assert_eq!(read_back, Some(said));
            for at in HEADER_BYTES..BIND_BYTES {
                packet[at] ^= 4;
                assert_eq!(Said::parse(&header, &packet[HEADER_BYTES..]), None);
                packet[at] ^= 4;
            }
        }
    }

    #[test]
    fn a_cookie_is_of_one_client_and_two_slots() {
        let cookies = Cookies::new([1; 16]);
        let at = |slots: u64| Moment(slots * SLOT + 5);
        let cookie = cookies.make(at(7), b"here", &[2; 12]);
        assert!(cookies.verify(at(7), b"here", &[2; 12], &cookie));
        assert!(cookies.verify(at(8), b"here", &[2; 12], &cookie));
        assert!(!cookies.verify(at(9), b"here", &[2; 12], &cookie));
        assert!(!cookies.verify(at(6), b"here", &[2; 12], &cookie));
        assert!(!cookies.verify(at(7), b"there", &[2; 12], &cookie));
        assert!(!cookies.verify(at(7), b"here", &[3; 12], &cookie));
        assert!(!Cookies::new([2; 16]).verify(at(7), b"here", &[2; 12], &cookie));
    }

    /// The dialogue, with one packet lost on the way.
    #[test]
    fn a_client_is_bound_after_two_exchanges() {
        let cookies = Cookies::new([1; 16]);
        let mut binding = Binding::new(Moment(0), [8; 12], wish());
        let mut packet = [0; BIND_BYTES];
        assert_eq!(binding.poll_send(Moment(0), &mut packet), Some(()));
        assert_eq!(binding.poll_send(Moment(1), &mut packet), None);
        let again = binding.next_timer().expect("it waits");
        assert_eq!(binding.poll_send(again, &mut packet), Some(()));
        let (hello, _) = read(&packet);
        let body = &packet[HEADER_BYTES..];
        let Some(Asked::Cookie(cookie, false)) = cookies.asked(again, b"here", &hello, body) else {
            panic!("a cookie was expected")
        };
        let then = again.after(3 * MILLISECOND);
        Said::Cookie(cookie, None).emit([8; 12], 1, hello.serial, &mut packet);
        let (header, _) = read(&packet);
        assert!(binding.handle(then, &header, &packet[HEADER_BYTES..]));
        assert_eq!(binding.poll_send(then, &mut packet), Some(()));
        let (bind, _) = read(&packet);
        let asked = cookies.asked(then, b"here", &bind, &packet[HEADER_BYTES..]);
        assert_eq!(asked, Some(Asked::Bind(wish())));
        let elsewhere = cookies.asked(then, b"there", &bind, &packet[HEADER_BYTES..]);
        assert!(matches!(elsewhere, Some(Asked::Cookie(_, false))));
        let grant = grant(&[Handle { place: 1, secret: [5; 12] }]);
        Said::Bound(grant).emit([8; 12], 2, bind.serial, &mut packet);
        let (header, _) = read(&packet);
        assert!(binding.handle(then.after(50), &header, &packet[HEADER_BYTES..]));
        assert_eq!(binding.outcome(), Some(&Bound::Granted(grant, 50)));
        assert!(!binding.handle(then.after(60), &header, &packet[HEADER_BYTES..]));
    }

    #[test]
    fn a_client_that_asks_where_the_server_is_is_told_and_that_is_all() {
        let cookies = Cookies::new([1; 16]);
        for there in [None, Some(OnLink { hardware: [4; 6], endpoint: [5, 6] })] {
            let mut binding = Binding::asking(Moment(0), [8; 12]);
            let mut packet = [0; BIND_BYTES];
            assert_eq!(binding.poll_send(Moment(0), &mut packet), Some(()));
            let (hello, _) = read(&packet);
            let asked = cookies.asked(Moment(1), b"here", &hello, &packet[HEADER_BYTES..]);
            let Some(Asked::Cookie(cookie, true)) = asked else { panic!("{asked:?}") };
            Said::Cookie(cookie, there).emit([8; 12], 1, hello.serial, &mut packet);
            let (header, _) = read(&packet);
            assert!(binding.handle(Moment(2), &header, &packet[HEADER_BYTES..]));
            assert_eq!(binding.outcome(), Some(&Bound::Told(there)));
            assert_eq!(binding.poll_send(Moment(9 * SECOND), &mut packet), None);
        }
    }

    #[test]
    fn nobody_answers() {
        let mut binding = Binding::new(Moment(0), [8; 12], wish());
        let mut packets = 0;
        while let Some(due) = binding.next_timer() {
            packets += u32::from(binding.poll_send(due, &mut [0; BIND_BYTES]).is_some());
            assert!(due < Moment(20 * SECOND));
        }
        assert_eq!((packets, binding.outcome()), (10, Some(&Bound::Dead)));
    }

    proptest! {
        #[test]
        fn no_body_makes_it_panic(
            mut body in proptest::collection::vec(any::<u8>(), BODY_BYTES),
            kind in 0..5usize,
            count: u8,
        ) {
            let kinds = [Kind::Hello, Kind::Cookie, Kind::Bind, Kind::Bound, Kind::Unbound];
            body[37] = 0;
            body[36] = count % 20;
            let check = checksum(&body);
            let header = Header {
                flags: Flags::CHECKED, check, ..Header::new(kinds[kind], Handle::default(), 0)
            };
            if let Some(said) = Said::parse(&header, &body) {
                let mut packet = [0; BIND_BYTES];
                said.emit([0; 12], 0, 0, &mut packet);
                prop_assert_eq!(read(&packet).1, Some(said));
            }
        }
    }
}
