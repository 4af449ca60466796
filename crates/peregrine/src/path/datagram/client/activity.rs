//! An *activity*: the sequence of calls of one frame for one binding. This module sends and receives the
//! packets of an activity over the socket of its frame. A frame is the memory of one call and its result.

use core::time::Duration;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Instant;

use super::pending::PendingCall;
use super::shared_socket::SharedSocket;
use super::watched_socket::WatchedSocket;
use crate::call::{Wait, block_cost};
use crate::device::{Arrival, BYTES_MAX, GsoBatch, NoWait, Socket, Until, datagrams};
use crate::path::datagram::peer::{PeerFlow, moment};
use crate::path::datagram::wire::Packet;
use crate::path::datagram::wire::checks::{self, ChecksumBuffer};
use crate::path::datagram::wire::message::{Message, WINDOWS_MAX};
use crate::path::yielding::YieldPolicy;
use crate::protocol::exchange::client_end::{self, ClientEnd, DropReason, Handled};
use crate::protocol::exchange::header::{
    BITMAP_BYTES_MAX, CONTROL_BYTES_MAX, HEADER_BYTES, Header, carries,
};
use crate::protocol::exchange::time::Moment;
use crate::sys::IfFull;
use crate::value::{Space, Window};

/// The socket of a frame.
pub(super) enum CallSocket {
    /// A socket that no other frame uses.
    Own(WatchedSocket),
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

    /// Handles a refusal that a send reported: a packet reached a closed port. That packet may be an earlier
    /// packet of any frame with this socket.
    #[cold]
    fn handle_refusal(&self, activity: &mut Activity) {
        activity.client_end.note_unreachable(moment());
        if let Self::Shared(shared) = self {
            shared.note_refusal();
        }
    }
}

/// Why a packet did not leave this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendFailure {
    /// There is no route to the server from the address of the socket, or this machine has lost that address.
    NoRoute,
    /// The packet is larger than the MTU of a link on its route.
    TooLarge,
}

impl SendFailure {
    /// Returns what an error of a send means. `None` means that the packet only counts as lost.
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

/// The calls of one frame for one binding, one after another. Birrell and Nelson call such a sequence an
/// *activity*.
pub(crate) struct Activity {
    pub(super) client_end: ClientEnd,
    flow: Arc<PeerFlow>,
    pub(super) index: u32,
    /// Whether payloads carry checksums.
    pub(super) checked: bool,
    /// Memory for the headers of GSO batches. It also holds received datagrams until they are moved to their
    /// final places.
    scratch: Vec<u8>,
    /// The time at which the most recent packet of the current call arrived. `None` before the first packet.
    pub(super) heard: Option<Moment>,
    /// The time at which the last successful call ended.
    pub(super) ended: Moment,
    yielding: YieldPolicy,
    /// On a shared socket: whether another thread has received a packet for this activity, and this activity
    /// has not noticed the packet yet.
    pub(super) news: bool,
    /// The value of the shared socket's count of refusals when this activity last checked that count.
    pub(super) refusals: u32,
    /// Whether any packet of the current call has left this machine.
    pub(super) sent: bool,
    /// The most recent reason why a packet of the current call could not be sent. `None` after the call has
    /// handled the reason.
    pub(super) send_failure: Option<SendFailure>,
    /// The size in bytes of the largest message pieces that reach the server, as far as is known.
    pub(super) piece_max: u32,
    /// The pending call. `None` if the activity has never had a pending call.
    pub(super) pending: Option<Box<PendingCall>>,
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
            pending: None,
        }
    }

    /// Writes the next packet to `out`, if a packet must be sent now.
    #[inline]
    pub(super) fn poll_send(
        &mut self,
        now: Moment,
        out: &mut [u8; CONTROL_BYTES_MAX],
    ) -> Option<client_end::Outgoing> {
        self.client_end.poll_send(now, &*self.flow, out)
    }

    /// Handles a received control packet. A control packet carries no piece of a message.
    pub(super) fn handle_control(&mut self, packet: &[u8]) {
        let Some((header, rest)) = packet.split_first_chunk() else { return };
        let Ok(header) = Header::parse(header, rest.len()) else { return };
        if !header.kind.carries() && header.holds(rest) {
            self.client_end.handle(moment(), &*self.flow, &header, rest);
        }
    }
}

/// What a call sends.
pub(super) struct Sending<'a> {
    pub(super) message: &'a Message<'a>,
    /// The half of the frame for the call: the memory for a header, and for the message after the header.
    pub(super) half: Space<'a>,
    /// The length of the message in bytes.
    pub(super) total: u32,
    /// What to do if the send buffer is full.
    pub(super) if_full: IfFull,
}

/// Sends the packets of the activity that must be sent now.
pub(super) fn send(
    activity: &mut Activity,
    call_socket: &CallSocket,
    sending: &Sending<'_>,
    now: Moment,
) {
    let Sending { message, half, total, if_full } = *sending;
    let mut out = [0; CONTROL_BYTES_MAX];
    let Some(first) = activity.poll_send(now, &mut out) else { return };
    // An empty range does not show that this is a control packet, because an empty call has an empty range,
    // too. So the kind in the header decides.
    if !out.first_chunk().is_some_and(carries) {
        deliver(activity, call_socket, &[Window::from(&out[..first.bytes])], if_full);
    } else if let Message::Whole(_) = message
        && first.range.len() as u32 == total
        && let Some(header) = out.first_chunk_mut::<HEADER_BYTES>()
    {
        // In memory, the space for the header lies directly before the message. So both are sent as one part.
        let whole = half.range(0, HEADER_BYTES + total as usize);
        if activity.checked {
            let payload = half.range(HEADER_BYTES, total as usize);
            checks::seal(header, &[payload.window()]);
        }
        let _ = whole.write(0, header);
        deliver(activity, call_socket, &[whole.window()], if_full);
    } else {
        return send_batch(activity, call_socket, sending, first, out, now);
    }
    if let Some(next) = activity.poll_send(now, &mut out) {
        send_batch(activity, call_socket, sending, next, out, now);
    }
}

/// Sends several packets of a message.
#[cold]
fn send_batch(
    activity: &mut Activity,
    call_socket: &CallSocket,
    sending: &Sending<'_>,
    first: client_end::Outgoing,
    mut out: [u8; CONTROL_BYTES_MAX],
    now: Moment,
) {
    let mut scratch = core::mem::take(&mut activity.scratch);
    scratch.resize(BYTES_MAX, 0);
    let socket = call_socket.socket();
    let mut batch = GsoBatch::new(&mut scratch, socket);
    let by = |batch: &mut GsoBatch<'_>| match sending.if_full {
        IfFull::Wait => batch.send(socket, None),
        IfFull::Fail => batch.send(&NoWait(socket), None),
    };
    let mut windows = [Window::empty(); WINDOWS_MAX];
    let mut chunk = ChecksumBuffer::default();
    let mut next = Some(first);
    while let Some(send) = next {
        let count = sending.message.range(send.range, &mut windows);
        if activity.checked {
            checks::seal_one_of_many(&mut out, &windows[..count], &mut chunk);
        }
        if !batch.push(&out[..send.bytes], &windows[..count]) {
            note_sent(activity, call_socket, by(&mut batch));
            batch.push(&out[..send.bytes], &windows[..count]);
        }
        next = activity.poll_send(now, &mut out);
    }
    note_sent(activity, call_socket, by(&mut batch));
    activity.scratch = scratch;
}

/// Notes whether sending succeeded.
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

/// Sends one packet. If sending fails, tries once more. If the second try fails, too, the packet counts as
/// lost.
///
/// With [`IfFull::Fail`], does not wait for free space in the send buffer. This is for threads that must not
/// be delayed: the keeper, which is the background thread of the process, and the threads of futures.
#[inline]
pub(super) fn deliver(
    activity: &mut Activity,
    call_socket: &CallSocket,
    packet: &[Window<'_>],
    if_full: IfFull,
) {
    let send = || match if_full {
        IfFull::Wait => call_socket.socket().send(packet, None),
        IfFull::Fail => call_socket.socket().send_now(packet),
    };
    match send() {
        Ok(()) => activity.sent = true,
        Err(error) => {
            if is_refusal(&error) {
                call_socket.handle_refusal(activity);
            }
            // Usually an earlier packet caused this error, and the kernel did not send this packet. So this
            // packet is sent again.
            note_sent(activity, call_socket, send());
        }
    }
}

/// How a call waits for packets, and until when.
pub(super) struct ReceiveWait {
    pub(super) wait: Wait,
    deadline: Option<Instant>,
    /// The time at which the thread stops polling, and sleeps instead.
    until: Option<Instant>,
}

/// How a wait ended.
pub(super) enum Waited {
    /// Packets arrived at this time.
    Packets(Moment),
    Nothing,
    Unreachable,
}

impl Waited {
    pub(super) const fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing)
    }
}

/// The memory into which the packets of a result are received.
pub(super) struct ResultPlacement<'a> {
    /// The half of the frame for the result: the memory for a header, and for the result after the header.
    pub(super) half: Space<'a>,
    /// Whether packets are first received into other memory, and then moved to their places.
    pub(super) staged: bool,
}

impl ResultPlacement<'_> {
    /// Receives once from the activity's own socket. `receive` receives the packets into the given memory.
    #[inline]
    pub(super) fn receive(
        &mut self,
        activity: &mut Activity,
        socket: &Socket,
        receive: impl FnOnce(&mut Activity, Space<'_>) -> io::Result<Option<Arrival>>,
    ) -> Waited {
        let mut scratch = core::mem::take(&mut activity.scratch);
        if self.staged {
            scratch.resize(BYTES_MAX, 0);
            if !socket.has_gro() {
                // If this fails, the kernel delivers each packet alone.
                let _ = socket.enable_gro();
            }
        }
        let place = if self.staged { Space::of_mut(&mut scratch) } else { self.half };
        let waited = match receive(activity, place) {
            Ok(Some(arrival)) => {
                let now = moment();
                let place = if !self.staged && arrival.bytes > arrival.segment {
                    // A batch was received, and only its first packet lies at its place. If the first packet
                    // is a late packet of an earlier call, the result of this call lies at the wrong place.
                    // So the whole batch is first moved to other memory.
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
            // If this error belongs to an earlier packet that this socket sent, that packet is retransmitted
            // later.
            Err(error) => {
                activity.send_failure = SendFailure::of(&error).or(activity.send_failure);
                Waited::Nothing
            }
        };
        activity.scratch = scratch;
        waited
    }

    /// Handles one datagram that lies in `place`. Returns whether the datagram may have changed the state of
    /// the activity.
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
            // A packet that violates the protocol may end the call. So the function returns true for such a
            // packet, too.
            _ => return true,
        };
        if !self.staged && range.start == 0 && range.len() as u32 == header.shape.total {
            // The whole result already lies at its final place.
            return true;
        }
        let to = self.half.part(HEADER_BYTES + range.start as usize, range.len());
        if let (Some(to), Some(from)) = (to, place.part(from, payload)) {
            to.copy_from(from.window());
        }
        // From here on, further packets are received into other memory, so that they do not overwrite this
        // piece.
        self.staged = true;
        true
    }
}

/// Receives the packets that have arrived at a socket. Does not wait.
pub(super) fn receive_now(socket: &Socket, place: Space<'_>) -> io::Result<Option<Arrival>> {
    socket.receive(&[place], None, Until::Now)
}

impl ReceiveWait {
    pub(super) const fn new(wait: Wait, deadline: Option<Instant>) -> Self {
        Self { wait, deadline, until: None }
    }

    /// Returns the number of nanoseconds until the next timer, the next send or the deadline, whichever comes
    /// first. Returns `u64::MAX` if no such time is set.
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

    /// Waits for a packet, until the next timer, the next send or the deadline.
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
                    // The server may need the processor on which this thread runs.
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
