//! An activity: the client end of a handle with its frame's socket, and how a call sends and receives
//! over that socket.

use core::time::Duration;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Instant;

use super::shared_socket::SharedSocket;
use crate::call::{Wait, block_cost};
use crate::device::{Arrival, BYTES_MAX, GsoBatch, Socket, Until, datagrams};
use crate::path::datagram::peer::{PeerFlow, YieldPolicy, moment};
use crate::path::datagram::wire::Packet;
use crate::path::datagram::wire::checks::{self, ChecksumBuffer};
use crate::path::datagram::wire::message::{Message, WINDOWS_MAX};
use crate::protocol::exchange::client_end::{self, ClientEnd, DropReason, Handled};
use crate::protocol::exchange::header::{
    BITMAP_BYTES_MAX, CONTROL_BYTES_MAX, HEADER_BYTES, Header, carries,
};
use crate::protocol::exchange::time::Moment;
use crate::value::{Space, Window};

/// The socket of a frame.
pub(super) enum CallSocket {
    /// A socket that only this frame uses.
    Own(Socket),
    /// A socket that other frames use as well.
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

    /// Handles a refusal (a closed port) that a send reported. An earlier packet of any frame with this
    /// socket may have caused it.
    #[cold]
    fn handle_refusal(&self, activity: &mut Activity) {
        activity.client_end.note_unreachable();
        if let Self::Shared(shared) = self {
            shared.note_refusal();
        }
    }
}

/// Why a packet did not leave this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendFailure {
    /// There is no route to the server from the socket's address, or this machine has lost that
    /// address.
    NoRoute,
    /// The packet is larger than the MTU of a link on its route.
    TooLarge,
}

impl SendFailure {
    /// Returns what an error of a send means, or `None` if the packet only counts as lost.
    pub(super) fn of(error: &io::Error) -> Option<Self> {
        // Linux returns `EINVAL` if this machine has lost the socket's address.
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

/// The calls of one frame for one binding, one after another (an *activity* in the terms of Birrell and
/// Nelson).
pub(crate) struct Activity {
    pub(super) client_end: ClientEnd,
    flow: Arc<PeerFlow>,
    pub(super) index: u32,
    /// Whether payloads carry checksums.
    pub(super) checked: bool,
    /// Memory for the headers of GSO batches, and for received datagrams before they are moved to their
    /// places.
    scratch: Vec<u8>,
    /// The time at which the most recent packet of the current call arrived. `None` before the first packet.
    pub(super) heard: Option<Moment>,
    /// The time at which the last call ended.
    pub(super) ended: Moment,
    yielding: YieldPolicy,
    /// On a shared socket: whether another thread has received a packet for this activity.
    pub(super) news: bool,
    /// The number of refusals at the shared socket that this activity has handled.
    pub(super) refusals: u32,
    /// Whether any packet of the call has left this machine.
    pub(super) sent: bool,
    /// The most recent reason why a packet of the call could not be sent. The call takes it out and
    /// handles it.
    pub(super) send_failure: Option<SendFailure>,
    /// The size in bytes of the largest pieces that reach the server, as far as is known.
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

    /// Writes the next packet to `out`, if there is one to send.
    #[inline]
    pub(super) fn poll_send(
        &mut self,
        now: Moment,
        out: &mut [u8; CONTROL_BYTES_MAX],
    ) -> Option<client_end::Outgoing> {
        self.client_end.poll_send(now, &*self.flow, out)
    }

    /// Handles a received control packet, which carries no piece of a message.
    pub(super) fn handle_control(&mut self, packet: &[u8]) {
        let Some((header, rest)) = packet.split_first_chunk() else { return };
        let Ok(header) = Header::parse(header, rest.len()) else { return };
        if !header.kind.carries() && header.holds(rest) {
            self.client_end.handle(moment(), &*self.flow, &header, rest);
        }
    }
}

/// Sends the packets that the activity has to send.
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
    // An empty range does not identify a control packet, because the range of an empty call is empty,
    // too. So the kind in the header decides.
    if !out.first_chunk().is_some_and(carries) {
        deliver(activity, call_socket, &[Window::from(&out[..first.bytes])]);
    } else if let Message::Whole(_) = message
        && first.range.len() as u32 == total
        && let Some(header) = out.first_chunk_mut::<HEADER_BYTES>()
    {
        // The header lies directly before the message.
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
    let mut chunk = ChecksumBuffer::default();
    let mut next = Some(first);
    while let Some(send) = next {
        let count = message.range(send.range, &mut windows);
        if activity.checked {
            checks::seal_one_of_many(&mut out, &windows[..count], &mut chunk);
        }
        if !batch.push(&out[..send.bytes], &windows[..count]) {
            note_sent(activity, call_socket, batch.send(call_socket.socket(), None));
            batch.push(&out[..send.bytes], &windows[..count]);
        }
        next = activity.poll_send(now, &mut out);
    }
    note_sent(activity, call_socket, batch.send(call_socket.socket(), None));
    activity.scratch = scratch;
}

/// Notes the result of sending.
fn note_sent(activity: &mut Activity, call_socket: &CallSocket, sent: io::Result<()>) {
    match sent {
        Ok(()) => activity.sent = true,
        Err(error) if is_refusal(&error) => call_socket.handle_refusal(activity),
        Err(error) => activity.send_failure = SendFailure::of(&error).or(activity.send_failure),
    }
}

pub(super) fn is_refusal(error: &io::Error) -> bool {
    error.kind() == ErrorKind::ConnectionRefused
}

/// Sends one packet. A failed send is repeated once. If it fails again, the packet counts as lost.
pub(super) fn deliver(activity: &mut Activity, call_socket: &CallSocket, packet: &[Window<'_>]) {
    deliver_by(activity, call_socket, || call_socket.socket().send(packet, None));
}

/// Sends one packet of an activity without a call. The function does not wait for free space in the send
/// buffer, because the calling thread may be the keeper.
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
                call_socket.handle_refusal(activity);
            }
            // Usually an earlier packet caused this error, and this packet was not sent. So it is sent
            // again.
            note_sent(activity, call_socket, send());
        }
    }
}

/// How a call waits for packets, and its deadline.
pub(super) struct ReceiveWait {
    pub(super) wait: Wait,
    deadline: Option<Instant>,
    /// The time at which the thread stops polling and sleeps.
    until: Option<Instant>,
}

/// How a wait ended.
pub(super) enum Waited {
    /// Packets arrived at this time.
    Packets(Moment),
    Nothing,
    Unreachable,
}

/// Where the packets of a result are received.
pub(super) struct ResultPlacement<'a> {
    /// The memory for a header, and for the result after it.
    pub(super) half: Space<'a>,
    /// Whether packets are received into other memory first, and then moved to their places.
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
                // Without GRO, the kernel delivers each packet alone.
                let _ = socket.enable_gro();
            }
        }
        let place = if self.staged { Space::of_mut(&mut scratch) } else { self.half };
        let waited = match waiting.receive(activity, socket, place) {
            Ok(Some(arrival)) => {
                let now = moment();
                let place = if !self.staged && arrival.bytes > arrival.segment {
                    // Only the first packet of a batch is in its place. If that is a late packet, the
                    // result of this call is in the wrong place. So the whole batch is moved to other
                    // memory first.
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
            // If the error belongs to a sent packet, that packet is retransmitted.
            Err(error) => {
                activity.send_failure = SendFailure::of(&error).or(activity.send_failure);
                Waited::Nothing
            }
        };
        activity.scratch = scratch;
        waited
    }

    /// Handles one datagram, which lies in `place`. Returns whether it may have changed the activity's
    /// state.
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
            // The result is also true for a packet that violates the protocol, because such a
            // packet may end the call.
            _ => return true,
        };
        if !self.staged && range.start == 0 && range.len() as u32 == header.shape.total {
            // The result is in its place.
            return true;
        }
        let to = self.half.part(HEADER_BYTES + range.start as usize, range.len());
        if let (Some(to), Some(from)) = (to, place.part(from, payload)) {
            to.copy_from(from.window());
        }
        // Further packets must not overwrite this piece.
        self.staged = true;
        true
    }
}

impl ReceiveWait {
    pub(super) const fn new(wait: Wait, deadline: Option<Instant>) -> Self {
        Self { wait, deadline, until: None }
    }

    /// Returns the number of nanoseconds until the next timer, the next send or the deadline, whichever comes
    /// first. `u64::MAX` means that no such time is set.
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

    /// Waits for a packet until the next timer or the deadline.
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
                    // The server may need this processor.
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
