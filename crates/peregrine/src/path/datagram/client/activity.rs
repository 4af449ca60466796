//! A caller with what it sends and receives with, on a socket of its own or on one that it shares.

use core::time::Duration;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Instant;

use super::shared_socket::SharedSocket;
use crate::call::{Wait, block_cost};
use crate::device::{Arrival, BYTES_MAX, GsoBatch, Socket, Until, datagrams};
use crate::path::datagram::peer::{PeerFlow, YieldPolicy, moment};
use crate::path::datagram::wire::Packet;
use crate::path::datagram::wire::checks::{self, Chunk};
use crate::path::datagram::wire::message::{Message, WINDOWS_MAX};
use crate::protocol::exchange::client_end::{self, ClientEnd, DropReason, Handled};
use crate::protocol::exchange::header::{
    BITMAP_BYTES_MAX, CONTROL_BYTES_MAX, HEADER_BYTES, Header, carries,
};
use crate::protocol::exchange::time::Moment;
use crate::value::{Space, Window};

/// A frame's way to the network.
pub(super) enum CallSocket {
    /// A socket of its own.
    Own(Socket),
    /// One that others use as well.
    Shared(Arc<SharedSocket>),
}

impl CallSocket {
    #[inline]
    pub(super) fn socket(&self) -> &Socket {
        match self {
            Self::Own(socket) => socket,
            Self::Shared(shared) => shared.socket(),
        }
    }

    /// Sending told that an earlier packet was refused, whosever it was.
    #[cold]
    fn is_refused(&self, activity: &mut Activity) {
        activity.client_end.note_unreachable();
        if let Self::Shared(shared) = self {
            shared.refuse();
        }
    }
}

/// What keeps a packet from leaving this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendFailure {
    /// There is no way to the server from the socket's address, or that address is gone.
    NoRoute,
    /// It is larger than a link on its way takes in one piece.
    TooLarge,
}

impl SendFailure {
    /// What an error in sending means; `None` if it is a loss like any other.
    pub(super) fn of(error: &io::Error) -> Option<Self> {
        // Linux says `EINVAL` where the socket's own address is not this machine's any more.
        const NO_ROUTE: [i32; 6] = [
            libc::EINVAL,
            libc::EADDRNOTAVAIL,
            libc::ENETUNREACH,
            libc::EHOSTUNREACH,
            libc::ENETDOWN,
            libc::ENODEV,
        ];
        match error.raw_os_error()? {
            libc::EMSGSIZE => Some(Self::TooLarge),
            code => NO_ROUTE.contains(&code).then_some(Self::NoRoute),
        }
    }
}

/// A caller: one frame's for one binding.
pub(crate) struct Activity {
    pub(super) client_end: ClientEnd,
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
    yielding: YieldPolicy,
    /// On a shared socket: somebody else received something for it.
    pub(super) news: bool,
    /// How many refusals of the shared socket it knows.
    pub(super) refusals: u32,
    /// Whether any packet of its call has left this machine.
    pub(super) sent: bool,
    /// Why the last one that did not has not.
    pub(super) send_failure: Option<SendFailure>,
    /// Bytes of a full piece that get through, as far as is known.
    pub(super) piece_max: u32,
}

impl Activity {
    pub(super) fn new(
        client_end: ClientEnd,
        flow: Arc<PeerFlow>,
        index: u32,
        checked: bool,
    ) -> Self {
        Self {
            client_end,
            flow,
            index,
            checked,
            scratch: Vec::new(),
            heard: None,
            ended: Moment(0),
            yielding: YieldPolicy::default(),
            news: false,
            refusals: 0,
            sent: false,
            send_failure: None,
            piece_max: u32::MAX,
        }
    }

    /// The next packet to send, if there is one: written to `out`.
    #[inline]
    pub(super) fn poll_send(
        &mut self,
        now: Moment,
        out: &mut [u8; CONTROL_BYTES_MAX],
    ) -> Option<client_end::Outgoing> {
        self.client_end.poll_send(now, &*self.flow, out)
    }

    /// Takes a packet without a piece of a message.
    pub(super) fn hear(&mut self, packet: &[u8]) {
        let Some((header, rest)) = packet.split_first_chunk() else { return };
        let Ok(header) = Header::parse(header, rest.len()) else { return };
        if !header.kind.carries() && header.holds(rest) {
            self.client_end.handle(moment(), &*self.flow, &header, rest);
        }
    }
}

/// Sends all that a caller has to send.
pub(super) fn send(
    activity: &mut Activity,
    call_socket: &CallSocket,
    message: &Message<'_>,
    half: Space<'_>,
    total: u32,
    now: Moment,
) {
    let mut out = [0; CONTROL_BYTES_MAX];
    let Some(first) = activity.poll_send(now, &mut out) else { return };
    // A call without any bytes is not told from other packets by its range.
    if !out.first_chunk().is_some_and(carries) {
        deliver(activity, call_socket, &[Window::from(&out[..first.bytes])]);
    } else if let Message::Whole(_) = message
        && first.range.len() as u32 == total
        && let Some(header) = out.first_chunk_mut::<HEADER_BYTES>()
    {
        // Header and message lie behind each other.
        let whole = half.range(0, HEADER_BYTES + total as usize);
        if activity.checked {
            let payload = half.range(HEADER_BYTES, total as usize);
            checks::seal(header, &[payload.window()]);
        }
        let _ = whole.write(0, header);
        deliver(activity, call_socket, &[whole.window()]);
    } else {
        return send_batch(activity, call_socket, message, first, out, now);
    }
    if let Some(next) = activity.poll_send(now, &mut out) {
        send_batch(activity, call_socket, message, next, out, now);
    }
}

/// Sends several packets.
#[cold]
fn send_batch(
    activity: &mut Activity,
    call_socket: &CallSocket,
    message: &Message<'_>,
    first: client_end::Outgoing,
    mut out: [u8; CONTROL_BYTES_MAX],
    now: Moment,
) {
    let mut scratch = core::mem::take(&mut activity.scratch);
    scratch.resize(BYTES_MAX, 0);
    let mut batch = GsoBatch::new(&mut scratch, call_socket.socket());
    let mut windows = [Window::empty(); WINDOWS_MAX];
    let mut chunk = Chunk::default();
    let mut next = Some(first);
    while let Some(send) = next {
        let count = message.range(send.range, &mut windows);
        if activity.checked {
            checks::seal_one_of_many(&mut out, &windows[..count], &mut chunk);
        }
        if !batch.push(&out[..send.bytes], &windows[..count]) {
            note(activity, call_socket, batch.send(call_socket.socket(), None));
            batch.push(&out[..send.bytes], &windows[..count]);
        }
        next = activity.poll_send(now, &mut out);
    }
    note(activity, call_socket, batch.send(call_socket.socket(), None));
    activity.scratch = scratch;
}

/// Notes whether something has left.
fn note(activity: &mut Activity, call_socket: &CallSocket, sent: io::Result<()>) {
    match sent {
        Ok(()) => activity.sent = true,
        Err(error) if is_refusal(&error) => call_socket.is_refused(activity),
        Err(error) => activity.send_failure = SendFailure::of(&error).or(activity.send_failure),
    }
}

pub(super) fn is_refusal(error: &io::Error) -> bool {
    error.kind() == ErrorKind::ConnectionRefused
}

/// Sends one packet. What the network does not take is lost, like any other packet.
pub(super) fn deliver(activity: &mut Activity, call_socket: &CallSocket, packet: &[Window<'_>]) {
    deliver_by(activity, call_socket, || call_socket.socket().send(packet, None));
}

/// The same on behalf of a lane without a call, by the keeper for one: it does not wait for room.
pub(super) fn deliver_now(
    activity: &mut Activity,
    call_socket: &CallSocket,
    packet: &[Window<'_>],
) {
    deliver_by(activity, call_socket, || call_socket.socket().send_now(packet));
}

#[inline]
fn deliver_by(
    activity: &mut Activity,
    call_socket: &CallSocket,
    send: impl Fn() -> io::Result<()>,
) {
    match send() {
        Ok(()) => activity.sent = true,
        Err(error) => {
            if is_refusal(&error) {
                call_socket.is_refused(activity);
            }
            // Often that was said of an earlier packet, instead of sending this one.
            note(activity, call_socket, send());
        }
    }
}

/// What a caller waits for, and how.
pub(super) struct ReceiveWait {
    pub(super) wait: Wait,
    deadline: Option<Instant>,
    /// Until when it looks rather than sleeps.
    until: Option<Instant>,
}

/// What came of it.
pub(super) enum Waited {
    /// When they came.
    Packets(Moment),
    Nothing,
    Unreachable,
}

/// Where what comes is put.
pub(super) struct ResultPlacement<'a> {
    /// Room for a header, and the place of the result.
    pub(super) half: Space<'a>,
    /// Whether packets are received apart, and moved.
    pub(super) staged: bool,
}

impl ResultPlacement<'_> {
    pub(super) fn receive(
        &mut self,
        activity: &mut Activity,
        socket: &Socket,
        waiting: &mut ReceiveWait,
    ) -> Waited {
        let mut scratch = core::mem::take(&mut activity.scratch);
        if self.staged {
            scratch.resize(BYTES_MAX, 0);
            if !socket.has_gro() {
                // Without it each packet comes alone.
                let _ = socket.enable_gro();
            }
        }
        let place = if self.staged { Space::of_mut(&mut scratch) } else { self.half };
        let came = match waiting.receive(activity, socket, place) {
            Ok(Some(arrival)) => {
                let now = moment();
                let place = if !self.staged && arrival.bytes > arrival.segment {
                    // Only one that comes alone lies where it belongs: with a late one before it, this
                    // call's result would be behind that of another.
                    self.staged = true;
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
                        self.take(activity, now, place, &packet);
                    }
                }
                Waited::Packets(now)
            }
            Ok(None) => Waited::Nothing,
            Err(error) if is_refusal(&error) => Waited::Unreachable,
            // What was sent is as good as lost, and asked for again.
            Err(error) => {
                activity.send_failure = SendFailure::of(&error).or(activity.send_failure);
                Waited::Nothing
            }
        };
        activity.scratch = scratch;
        came
    }

    /// One datagram, which lies in `place`; whether it told the caller anything.
    #[inline]
    pub(super) fn take(
        &mut self,
        activity: &mut Activity,
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
            None if activity.checked => {
                let piece = place.range(from, payload);
                if !checks::holds(header, piece.window()) {
                    return false;
                }
                &[]
            }
            None => &[],
        };
        activity.heard = Some(now);
        let range = match activity.client_end.handle(now, &*activity.flow, header, bitmap) {
            Handled::Place(range) => range,
            Handled::Dropped(DropReason::UnknownHandle | DropReason::Late) => return false,
            // Also one that contradicts what was agreed: it may end the call.
            _ => return true,
        };
        if !self.staged && range.start == 0 && range.len() as u32 == header.shape.total {
            // It is there.
            return true;
        }
        let to = self.half.part(HEADER_BYTES + range.start as usize, range.len());
        if let (Some(to), Some(from)) = (to, place.part(from, payload)) {
            to.copy_from(from.window());
        }
        // The others must not be received over this one.
        self.staged = true;
        true
    }
}

impl ReceiveWait {
    pub(super) const fn new(wait: Wait, deadline: Option<Instant>) -> Self {
        Self { wait, deadline, until: None }
    }

    /// Nanoseconds until the caller's timer, its next packet or the deadline; the most there are if
    /// there is none of them.
    #[inline]
    pub(super) fn left(&self, activity: &Activity) -> u64 {
        let due = activity
            .client_end
            .next_timer()
            .into_iter()
            .chain(activity.client_end.next_send())
            .min();
        let due = due.map_or(u64::MAX, |due| due.since(moment()));
        let left = self
            .deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()).as_nanos() as u64);
        due.min(left.unwrap_or(u64::MAX))
    }

    /// Waits for something until the caller's timer or the deadline.
    pub(super) fn receive(
        &mut self,
        activity: &mut Activity,
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
                        activity.yielding.note_arrival(rounds, look == 0);
                        return Ok(Some(arrival));
                    }
                }
                rounds += 1;
                if activity.yielding.is_due(rounds) {
                    // The server may need this very processor.
                    std::thread::yield_now();
                }
                if self.wait == Wait::Adaptive {
                    self.until.get_or_insert_with(|| Instant::now() + block_cost());
                }
            }
            let limit = self.left(activity);
            if limit == 0 {
                return Ok(None);
            }
            if spins && self.until.is_none_or(|until| Instant::now() < until) {
                continue;
            }
            let until = match limit {
                u64::MAX => Until::Ever,
                limit if activity.client_end.next_send().is_some() => {
                    Until::Precisely(Duration::from_nanos(limit))
                }
                limit => Until::After(Duration::from_nanos(limit)),
            };
            return socket.receive(&into, None, until);
        }
    }
}
