//! A caller with what it sends and receives with, on a socket of its own or on one that it shares.

use core::ops::Range;
use core::time::Duration;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Instant;

use super::checks::Chunk;
use super::message::{Message, WINDOWS_MAX};
use super::sharing::Shared;
use super::{Offers, PeerFlow, checks, moment};
use crate::call::{Wait, block_cost};
use crate::device::{Arrival, BYTES_MAX, Socket, Train, Until, datagrams};
use crate::protocol::exchange::caller::{self, Caller, Dropped, Handled};
use crate::protocol::exchange::header::{
    BITMAP_BYTES_MAX, CONTROL_BYTES_MAX, HEADER_BYTES, Header, carries,
};
use crate::protocol::exchange::time::Moment;
use crate::value::{Space, Window};

/// A frame's way to the network.
pub(super) enum Way {
    /// A socket of its own.
    Own(Socket),
    /// One that others use as well.
    Shared(Arc<Shared>),
}

impl Way {
    #[inline]
    pub(super) fn socket(&self) -> &Socket {
        match self {
            Self::Own(socket) => socket,
            Self::Shared(shared) => shared.socket(),
        }
    }

    /// Sending told that an earlier packet was refused, whosever it was.
    #[cold]
    fn is_refused(&self, lane: &mut Lane) {
        lane.caller.unreachable();
        if let Self::Shared(shared) = self {
            shared.refuse();
        }
    }
}

/// What keeps a packet from leaving this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// There is no way to the server from the socket's address, or that address is gone.
    Stranded,
    /// It is larger than a link on its way takes in one piece.
    TooLarge,
}

impl Trouble {
    /// What an error in sending means; `None` if it is a loss like any other.
    pub(super) fn of(error: &io::Error) -> Option<Self> {
        // Linux says `EINVAL` where the socket's own address is not this machine's any more.
        const STRANDED: [i32; 6] = [
            libc::EINVAL,
            libc::EADDRNOTAVAIL,
            libc::ENETUNREACH,
            libc::EHOSTUNREACH,
            libc::ENETDOWN,
            libc::ENODEV,
        ];
        match error.raw_os_error()? {
            libc::EMSGSIZE => Some(Self::TooLarge),
            code => STRANDED.contains(&code).then_some(Self::Stranded),
        }
    }
}

/// A caller: one frame's for one binding.
pub(crate) struct Lane {
    pub(super) caller: Caller,
    flow: Arc<PeerFlow>,
    pub(super) index: u32,
    /// Whether payloads are checked.
    pub(super) checked: bool,
    /// Headers of trains, and datagrams that have no better place yet.
    scratch: Vec<u8>,
    /// When something was heard last, since its call began.
    pub(super) heard: Option<Moment>,
    /// When its last call ended.
    pub(super) ended: Moment,
    offers: Offers,
    /// On a shared socket: somebody else received something for it.
    pub(super) news: bool,
    /// How many refusals of the shared socket it knows.
    pub(super) refusals: u32,
    /// Whether any packet of its call has left this machine.
    pub(super) sent: bool,
    /// Why the last one that did not has not.
    pub(super) trouble: Option<Trouble>,
    /// Bytes of a full piece that get through, as far as is known.
    pub(super) piece_max: u32,
}

impl Lane {
    pub(super) fn new(caller: Caller, flow: Arc<PeerFlow>, index: u32, checked: bool) -> Self {
        Self {
            caller,
            flow,
            index,
            checked,
            scratch: Vec::new(),
            heard: None,
            ended: Moment(0),
            offers: Offers::default(),
            news: false,
            refusals: 0,
            sent: false,
            trouble: None,
            piece_max: u32::MAX,
        }
    }

    /// The next packet to send, if there is one: written to `out`.
    #[inline]
    pub(super) fn poll_send(
        &mut self,
        now: Moment,
        out: &mut [u8; CONTROL_BYTES_MAX],
    ) -> Option<caller::Send> {
        self.caller.poll_send(now, &*self.flow, out)
    }

    /// Takes a packet without a piece of a message.
    pub(super) fn hear(&mut self, packet: &[u8]) {
        let Some((header, rest)) = packet.split_first_chunk() else { return };
        let Ok(header) = Header::parse(header, rest.len()) else { return };
        if !header.kind.carries() && header.holds(rest) {
            self.caller.handle(moment(), &*self.flow, &header, rest);
        }
    }
}

/// Sends all that a caller has to send.
pub(super) fn send(
    lane: &mut Lane,
    way: &Way,
    message: &Message<'_>,
    half: Space<'_>,
    total: u32,
    now: Moment,
) {
    let mut out = [0; CONTROL_BYTES_MAX];
    let Some(first) = lane.poll_send(now, &mut out) else { return };
    // A call without any bytes is not told from other packets by its range.
    if !out.first_chunk().is_some_and(carries) {
        deliver(lane, way, &[Window::from(&out[..first.bytes])]);
    } else if let Message::Whole(_) = message
        && first.range.len() as u32 == total
        && let Some(header) = out.first_chunk_mut::<HEADER_BYTES>()
    {
        // Header and message lie behind each other.
        let whole = half.range(0, HEADER_BYTES + total as usize);
        if lane.checked {
            let payload = half.range(HEADER_BYTES, total as usize);
            checks::seal(header, &[payload.window()]);
        }
        let _ = whole.write(0, header);
        deliver(lane, way, &[whole.window()]);
    } else {
        return send_train(lane, way, message, first, out, now);
    }
    if let Some(next) = lane.poll_send(now, &mut out) {
        send_train(lane, way, message, next, out, now);
    }
}

/// Sends several packets.
#[cold]
fn send_train(
    lane: &mut Lane,
    way: &Way,
    message: &Message<'_>,
    first: caller::Send,
    mut out: [u8; CONTROL_BYTES_MAX],
    now: Moment,
) {
    let mut scratch = core::mem::take(&mut lane.scratch);
    scratch.resize(BYTES_MAX, 0);
    let mut train = Train::new(&mut scratch, way.socket());
    let mut windows = [Window::empty(); WINDOWS_MAX];
    let mut chunk = Chunk::default();
    let mut next = Some(first);
    while let Some(send) = next {
        let count = message.range(send.range, &mut windows);
        if lane.checked {
            checks::seal_one_of_many(&mut out, &windows[..count], &mut chunk);
        }
        if !train.push(&out[..send.bytes], &windows[..count]) {
            note(lane, way, train.send(way.socket(), None));
            train.push(&out[..send.bytes], &windows[..count]);
        }
        next = lane.poll_send(now, &mut out);
    }
    note(lane, way, train.send(way.socket(), None));
    lane.scratch = scratch;
}

/// Notes whether something has left.
fn note(lane: &mut Lane, way: &Way, sent: io::Result<()>) {
    match sent {
        Ok(()) => lane.sent = true,
        Err(error) if is_refusal(&error) => way.is_refused(lane),
        Err(error) => lane.trouble = Trouble::of(&error).or(lane.trouble),
    }
}

pub(super) fn is_refusal(error: &io::Error) -> bool {
    error.kind() == ErrorKind::ConnectionRefused
}

/// Sends one packet. What the network does not take is lost, like any other packet.
pub(super) fn deliver(lane: &mut Lane, way: &Way, packet: &[Window<'_>]) {
    deliver_by(lane, way, || way.socket().send(packet, None));
}

/// The same on behalf of a lane without a call, by the keeper for one: it does not wait for room.
pub(super) fn deliver_now(lane: &mut Lane, way: &Way, packet: &[Window<'_>]) {
    deliver_by(lane, way, || way.socket().send_now(packet));
}

#[inline]
fn deliver_by(lane: &mut Lane, way: &Way, send: impl Fn() -> io::Result<()>) {
    match send() {
        Ok(()) => lane.sent = true,
        Err(error) => {
            if is_refusal(&error) {
                way.is_refused(lane);
            }
            // Often that was said of an earlier packet, instead of sending this one.
            note(lane, way, send());
        }
    }
}

/// What a caller waits for, and how.
pub(super) struct Waiting {
    pub(super) wait: Wait,
    deadline: Option<Instant>,
    /// Until when it looks rather than sleeps.
    until: Option<Instant>,
}

/// What came of it.
pub(super) enum Came {
    /// When they came.
    Packets(Moment),
    Nothing,
    Unreachable,
}

/// Where what comes is put.
pub(super) struct Receiving<'a> {
    /// Room for a header, and the place of the result.
    pub(super) half: Space<'a>,
    /// Whether packets are received apart, and moved.
    pub(super) apart: bool,
}

/// A datagram whose header is good, in the memory into which it was received.
pub(super) struct Packet {
    pub(super) header: Header,
    /// Where what stands behind the header begins, and its bytes.
    from: usize,
    payload: usize,
}

impl Packet {
    /// The datagram that lies at this range of `place`, if it is one of ours.
    #[inline]
    pub(super) fn at(place: Space<'_>, at: Range<usize>) -> Option<Self> {
        let payload = at.len().checked_sub(HEADER_BYTES)?;
        let mut header = [0; HEADER_BYTES];
        place.read(at.start, &mut header)?;
        let header = Header::parse(&header, payload).ok()?;
        Some(Self { header, from: at.start + HEADER_BYTES, payload })
    }
}

impl Receiving<'_> {
    pub(super) fn receive(
        &mut self,
        lane: &mut Lane,
        socket: &Socket,
        waiting: &mut Waiting,
    ) -> Came {
        let mut scratch = core::mem::take(&mut lane.scratch);
        if self.apart {
            scratch.resize(BYTES_MAX, 0);
            if !socket.merges() {
                // Without it each packet comes alone.
                let _ = socket.merge();
            }
        }
        let place = if self.apart { Space::of_mut(&mut scratch) } else { self.half };
        let came = match waiting.receive(lane, socket, place) {
            Ok(Some(arrival)) => {
                let now = moment();
                let place = if !self.apart && arrival.bytes > arrival.segment {
                    // Only one that comes alone lies where it belongs: with a late one before it, this
                    // call's result would be behind that of another.
                    self.apart = true;
                    scratch.resize(BYTES_MAX, 0);
                    let _ = self.half.read(0, &mut scratch[..arrival.bytes]);
                    Space::of_mut(&mut scratch)
                } else {
                    place
                };
                for range in datagrams(arrival) {
                    if !(arrival.cut && range.end == arrival.bytes)
                        && let Some(packet) = Packet::at(place, range)
                    {
                        self.take(lane, now, place, &packet);
                    }
                }
                Came::Packets(now)
            }
            Ok(None) => Came::Nothing,
            Err(error) if is_refusal(&error) => Came::Unreachable,
            // What was sent is as good as lost, and asked for again.
            Err(error) => {
                lane.trouble = Trouble::of(&error).or(lane.trouble);
                Came::Nothing
            }
        };
        lane.scratch = scratch;
        came
    }

    /// One datagram, which lies in `place`; whether it told the caller anything.
    #[inline]
    pub(super) fn take(
        &mut self,
        lane: &mut Lane,
        now: Moment,
        place: Space<'_>,
        packet: &Packet,
    ) -> bool {
        let Packet { header, from, payload } = packet;
        let (from, payload) = (*from, *payload);
        let mut bitmap = [0; BITMAP_BYTES_MAX];
        let bitmap = match bitmap.get_mut(..payload).filter(|_| !header.kind.carries()) {
            Some(bitmap) => {
                let _ = place.read(from, bitmap);
                if !header.holds(bitmap) {
                    return false;
                }
                &*bitmap
            }
            None if lane.checked => {
                let piece = place.range(from, payload);
                if !checks::holds(header, piece.window()) {
                    return false;
                }
                &[]
            }
            None => &[],
        };
        lane.heard = Some(now);
        let range = match lane.caller.handle(now, &*lane.flow, header, bitmap) {
            Handled::Place(range) => range,
            Handled::Dropped(Dropped::Stranger | Dropped::Late) => return false,
            // Also one that contradicts what was agreed: it may end the call.
            _ => return true,
        };
        if !self.apart && range.start == 0 && range.len() as u32 == header.shape.total {
            // It is there.
            return true;
        }
        let to = self.half.part(HEADER_BYTES + range.start as usize, range.len());
        if let (Some(to), Some(from)) = (to, place.part(from, payload)) {
            to.copy_from(from.window());
        }
        // The others must not be received over this one.
        self.apart = true;
        true
    }
}

impl Waiting {
    pub(super) const fn new(wait: Wait, deadline: Option<Instant>) -> Self {
        Self { wait, deadline, until: None }
    }

    /// Nanoseconds until the caller's timer, its next packet or the deadline; the most there are if
    /// there is none of them.
    #[inline]
    pub(super) fn left(&self, lane: &Lane) -> u64 {
        let due = lane.caller.next_timer().into_iter().chain(lane.caller.next_send()).min();
        let due = due.map_or(u64::MAX, |due| due.since(moment()));
        let left = self
            .deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()).as_nanos() as u64);
        due.min(left.unwrap_or(u64::MAX))
    }

    /// Waits for something until the caller's timer or the deadline.
    pub(super) fn receive(
        &mut self,
        lane: &mut Lane,
        socket: &Socket,
        place: Space<'_>,
    ) -> io::Result<Option<Arrival>> {
        let into = [place];
        let mut rounds = 0;
        let spins = self.wait != Wait::Block;
        loop {
            if spins && self.until.is_none_or(|until| Instant::now() < until) {
                for look in 0..socket.looks() {
                    if let Some(arrival) = socket.receive(&into, None, Until::Now)? {
                        lane.offers.came(rounds, look == 0);
                        return Ok(Some(arrival));
                    }
                }
                rounds += 1;
                if lane.offers.is_due(rounds) {
                    // The server may need this very processor.
                    std::thread::yield_now();
                }
                if self.wait == Wait::Adaptive {
                    self.until.get_or_insert_with(|| Instant::now() + block_cost());
                }
            }
            let limit = self.left(lane);
            if limit == 0 {
                return Ok(None);
            }
            if spins && self.until.is_none_or(|until| Instant::now() < until) {
                continue;
            }
            let until = match limit {
                u64::MAX => Until::Ever,
                limit if lane.caller.next_send().is_some() => {
                    Until::Precisely(Duration::from_nanos(limit))
                }
                limit => Until::After(Duration::from_nanos(limit)),
            };
            return socket.receive(&into, None, until);
        }
    }
}
