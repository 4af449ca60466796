//! Requests handles from the server at an address. A handle identifies a sequence of calls, and the server's
//! record of that sequence.
//!
//! A handle is requested over the socket that will later carry its calls. If a name has several addresses,
//! the client uses the first address that answers. The client asks each address a little later than the
//! previous one, as RFC 8305 describes for TCP.

use core::time::Duration;
use std::io::{self, ErrorKind};
use std::time::Instant;

use super::association::{LostReason, connected};
use crate::device::{LinkAddress, Route, Socket, SocketUse, Until, wait_for_any};
use crate::error::{CallError, Kind, NO_RAW_ETHERNET, Phase};
use crate::path::bind::{NO_RIGHT, STAGGER, no_address};
use crate::path::datagram::peer::{BUFFER_BYTES, PeerFlow, credits, moment, silent};
use crate::path::datagram::sealed::{ClientChannel, Wants, of_connection, shake_hands};
use crate::protocol::exchange::bind::{
    self as wire, BIND_BYTES, BindOutcome, BindRequest, Grant, GrantedHandle, LinkLocation, Nonce,
};
use crate::protocol::exchange::client_end::{ClientEnd, ClientTerms};
use crate::protocol::exchange::header::{CONTROL_BYTES_MAX, HEADER_BYTES, Handle, VERSION};
use crate::protocol::exchange::message::PIECE_MAX;
use crate::sys;
use crate::value::{Space, Window};

/// What a server has granted: handles, and the terms of the handles. Also contains the duration of the
/// first round trip.
pub(crate) struct Granted {
    pub(crate) grant: Grant,
    pub(crate) terms: ClientTerms,
    pub(crate) round_trip_ns: u64,
}

/// After this many refused packets, the client concludes that no server listens at an address. Until then,
/// the client sends again, because the server may be about to start.
const REFUSED_MAX: u32 = 3;

fn failed(what: &str, error: io::Error) -> CallError {
    CallError::system(Phase::Bind, what.to_owned(), error)
}

/// Returns the error for a route for which no socket can be created.
fn no_socket(to: &Route, error: io::Error) -> CallError {
    match error.kind() {
        ErrorKind::NetworkUnreachable
        | ErrorKind::HostUnreachable
        | ErrorKind::AddrNotAvailable => {
            let text = format!("there is no route to {to}");
            CallError::not_executed(Kind::Unreachable, Phase::Bind, text).because(error)
        }
        _ if matches!(to, Route::Link(..)) => {
            failed("cannot make a socket", error).denied_means(NO_RAW_ETHERNET)
        }
        _ => failed("cannot make a socket", error),
    }
}

/// What a first bind has made.
pub(crate) struct FirstBind {
    /// The index of the route on which the server has answered.
    pub(crate) route: usize,
    /// The socket, which encrypts its packets if there is a channel.
    pub(crate) socket: Socket,
    pub(crate) granted: Granted,
    pub(crate) channel: Option<ClientChannel>,
}

/// Requests handles over the first of `routes` on which a server answers. If the binding is secure, makes the
/// handshake first.
///
/// # Errors
/// The server's error, or the reason why no server answers, or why one side refuses the other.
pub(crate) fn bind(
    routes: &[Route],
    request: BindRequest,
    security: Option<Wants<'_>>,
    until: Instant,
) -> Result<FirstBind, CallError> {
    let Attempt { number, mut socket, mut binding, mut request, .. } =
        race(routes, Some(request), until)?;
    let to = &routes[number];
    let mut channel = None;
    if let Some(security) = security
        && let (first, Some(cookie)) = binding.cookie()
    {
        let made = shake_hands(security, (&socket, to), (first, cookie), until)?;
        socket = socket.sealed(made.seal());
        channel = Some(made);
        // The pieces are smaller now.
        request = request.map(|request| fitted(&socket, request)).transpose()?;
        binding = exchange(&socket, nonce(&socket)?, request.expect("a bind has a request"));
    }
    let receive: ReceivePacket<'_> = &mut |memory, due| receive_from(&socket, memory, due);
    let bound = converse(&socket, to, binding, until, receive)?;
    let granted = granted(bound, request, to)?;
    // The keys are those of one run of one server. Its grant comes by these keys.
    let run = channel.as_ref().map(ClientChannel::incarnation);
    if security.is_some() && run != Some(granted.grant.incarnation) {
        return Err(LostReason::AnotherServer.failure());
    }
    Ok(FirstBind { route: number, socket, granted, channel })
}

/// Makes a handshake over a route, by a socket that is not used afterwards.
///
/// # Errors
/// If the server does not answer, or if one side refuses the other.
pub(crate) fn shake_over(
    route: &Route,
    request: BindRequest,
    security: Wants<'_>,
    until: Instant,
) -> Result<ClientChannel, CallError> {
    let Attempt { socket, binding, .. } = race(core::slice::from_ref(route), Some(request), until)?;
    match binding.cookie() {
        (nonce, Some(cookie)) => shake_hands(security, (&socket, route), (nonce, cookie), until),
        _ => Err(silent(route, 0)),
    }
}

/// A bind request of an association whose round-trip time is known.
#[derive(Clone, Copy)]
pub(super) struct Renewal {
    pub(super) request: BindRequest,
    pub(super) round_trip: Duration,
    pub(super) until: Instant,
}

impl Renewal {
    /// Returns the request for a handle over the own socket of a frame.
    pub(super) const fn over_own(self) -> Self {
        Self { request: BindRequest { handles: 1, ..self.request }, ..self }
    }

    /// Begins the exchange. Also returns the request, adapted to the socket.
    fn begin(
        self,
        socket: &Socket,
        nonce: [u8; 12],
    ) -> Result<(wire::BindExchange, BindRequest), CallError> {
        let request = fitted(socket, self.request)?;
        let round_trip = u64::try_from(self.round_trip.as_nanos()).unwrap_or(u64::MAX);
        Ok((exchange(socket, nonce, request).over_round_trip(round_trip), request))
    }
}

/// Requests handles over a socket. No other thread may use the socket at the same time.
pub(super) fn bind_over(
    socket: &Socket,
    to: &Route,
    renewal: Renewal,
) -> Result<Granted, CallError> {
    ask(socket, to, renewal, nonce(socket)?, &mut |memory, due| receive_from(socket, memory, due))
}

/// Returns a number for a bind exchange. Over a sealed connection, it begins with that of the connection.
pub(super) fn nonce(socket: &Socket) -> Result<Nonce, CallError> {
    let random = sys::random().map_err(|error| failed("cannot read random bytes", error));
    random.map(|nonce| of_connection(socket.connection(), nonce))
}

/// Begins a bind exchange over a socket.
fn exchange(socket: &Socket, nonce: Nonce, request: BindRequest) -> wire::BindExchange {
    if socket.is_sealed() {
        wire::BindExchange::proven(moment(), nonce, request)
    } else {
        wire::BindExchange::new(moment(), nonce, request)
    }
}

/// A function that waits for a packet for at most the given time. It writes the packet to the given memory,
/// and returns the length of the packet.
pub(super) type ReceivePacket<'a> =
    &'a mut dyn FnMut(&mut [u8; BIND_BYTES], Duration) -> io::Result<Option<usize>>;

/// Requests handles in a bind exchange with the random number `nonce`. `receive` receives the packets that
/// belong to this exchange.
pub(super) fn ask(
    socket: &Socket,
    to: &Route,
    renewal: Renewal,
    nonce: [u8; 12],
    receive: ReceivePacket<'_>,
) -> Result<Granted, CallError> {
    let (binding, request) = renewal.begin(socket, nonce)?;
    granted(converse(socket, to, binding, renewal.until, receive)?, Some(request), to)
}

/// Adapts a bind request to the receive buffer of a socket and to the MTU of the socket's route.
fn fitted(socket: &Socket, request: BindRequest) -> Result<BindRequest, CallError> {
    let buffer = socket
        .size_buffers(BUFFER_BYTES)
        .map_err(|error| failed("cannot set the size of a socket's buffer", error))?;
    let payload = socket.payload(HEADER_BYTES);
    let payload = payload.map_err(|error| failed("cannot read the route's MTU", error))?;
    let piece = (payload as u32).min(PIECE_MAX);
    Ok(BindRequest { piece, credits: credits(buffer, piece), ..request })
}

/// Returns what the server granted in a bind exchange, or the error of the exchange.
fn granted(
    bound: BindOutcome,
    request: Option<BindRequest>,
    to: &Route,
) -> Result<Granted, CallError> {
    match (bound, request) {
        (BindOutcome::Granted(grant, _), Some(request))
            if request.payload_check && !grant.payload_check =>
        {
            let text = "the server does not support checksums of payloads".to_owned();
            Err(CallError::not_executed(Kind::ProtocolMismatch, Phase::Bind, text))
        }
        (BindOutcome::Granted(grant, round_trip), Some(request)) => {
            let terms = ClientTerms {
                piece: grant.piece,
                credits: grant.credits,
                credits_here: request.credits,
                call_bytes_max: grant.call_bytes_max,
                result_bytes_max: request.result_bytes_max,
                table: grant.table,
            };
            Ok(Granted { grant, terms, round_trip_ns: round_trip })
        }
        (BindOutcome::Refused(denial), _) => {
            let text = String::from_utf8_lossy(denial.text()).into_owned();
            Err(denied(denial.kind, text))
        }
        (BindOutcome::OtherVersion(version), _) => Err(other_version(version)),
        (BindOutcome::NoAnswer | BindOutcome::Location(_) | BindOutcome::Granted(..), _) => {
            Err(silent(to, 0))
        }
    }
}

/// Asks for the location of a server on the link, over all of `routes`. Returns the index of the first
/// route over which a server answers, and that server's location. The location is `None` if that server
/// does not use raw Ethernet.
///
/// # Errors
/// The reason why no server answers.
pub(crate) fn where_on_link(
    routes: &[Route],
    until: Instant,
) -> Result<(usize, Option<LinkAddress>), CallError> {
    let Attempt { number, socket, binding, .. } = race(routes, None, until)?;
    let to = &routes[number];
    let receive: ReceivePacket<'_> = &mut |memory, due| receive_from(&socket, memory, due);
    match converse(&socket, to, binding, until, receive)? {
        BindOutcome::Location(there) => {
            let there =
                there.map(|LinkLocation { hardware, endpoint }| LinkAddress { hardware, endpoint });
            Ok((number, there))
        }
        BindOutcome::Refused(denial) => {
            let text = String::from_utf8_lossy(denial.text()).into_owned();
            Err(denied(denial.kind, text))
        }
        BindOutcome::OtherVersion(version) => Err(other_version(version)),
        BindOutcome::NoAnswer | BindOutcome::Granted(..) => Err(silent(to, 0)),
    }
}

/// An attempt to reach a server over one route. Attempts over several routes run at the same time.
struct Attempt {
    number: usize,
    socket: Socket,
    binding: wire::BindExchange,
    request: Option<BindRequest>,
    refused: u32,
}

impl Attempt {
    fn begin(to: &Route, number: usize, request: Option<BindRequest>) -> Result<Self, CallError> {
        let socket = connected(to, SocketUse::Calls).map_err(|error| no_socket(to, error))?;
        let request = request.map(|request| fitted(&socket, request)).transpose()?;
        let (now, nonce) = (moment(), nonce(&socket)?);
        let binding = match request {
            Some(request) => wire::BindExchange::new(now, nonce, request),
            None => wire::BindExchange::locating(now, nonce),
        };
        Ok(Self { number, socket, binding, request, refused: 0 })
    }

    /// Receives a packet. Returns whether the packet was an answer.
    fn receive(&mut self, due: Duration) -> io::Result<bool> {
        let mut memory = [0; BIND_BYTES];
        let received = receive_from(&self.socket, &mut memory, due)?;
        Ok(received.is_some_and(|bytes| handle_packet(&mut self.binding, &memory[..bytes])))
    }
}

/// Tries the routes. Returns the first attempt that got an answer, and drops the other attempts.
fn race(
    routes: &[Route],
    request: Option<BindRequest>,
    until: Instant,
) -> Result<Attempt, CallError> {
    let mut attempts: Vec<Attempt> = Vec::new();
    let (mut next, mut starts) = (0, Instant::now());
    let mut failure = None;
    loop {
        while next < routes.len() && (attempts.is_empty() || Instant::now() >= starts) {
            match Attempt::begin(&routes[next], next, request) {
                Ok(attempt) => {
                    attempts.push(attempt);
                    starts = Instant::now() + STAGGER;
                }
                Err(error) => failure = Some(error),
            }
            next += 1;
        }
        let now = moment();
        attempts.retain_mut(|attempt| {
            let mut out = [0; BIND_BYTES];
            if attempt.binding.poll_send(now, &mut out).is_some() {
                let _ = attempt.socket.send(&[Window::from(&out[..])], None);
            }
            let continues = attempt.binding.outcome().is_none() && attempt.refused < REFUSED_MAX;
            if !continues {
                failure = Some(silent(&routes[attempt.number], attempt.refused));
            }
            continues
        });
        let Some(first) = attempts.first() else {
            if next < routes.len() {
                continue;
            }
            return Err(failure.unwrap_or_else(no_address));
        };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(silent(&routes[first.number], first.refused));
        }
        let timers = attempts.iter().filter_map(|attempt| attempt.binding.next_timer());
        let due = timers.min().map_or(left, |due| Duration::from_nanos(due.since(now)));
        let mut due = due.min(left);
        if next < routes.len() {
            due = due.min(starts.saturating_duration_since(Instant::now()));
        }
        // A single attempt waits on its own socket. It cannot use `wait_for_any`, because that function does
        // not support raw Ethernet.
        let alone = attempts.len() == 1;
        if !alone {
            let sockets: Vec<&Socket> = attempts.iter().map(|attempt| &attempt.socket).collect();
            wait_for_any(&sockets, due)
                .map_err(|error| failed("cannot wait for an answer", error))?;
        }
        let due = if alone { due } else { Duration::ZERO };
        for at in 0..attempts.len() {
            match attempts[at].receive(due) {
                Ok(true) => return Ok(attempts.swap_remove(at)),
                Ok(false) => {}
                Err(error) => {
                    let refused = error.kind() == ErrorKind::ConnectionRefused;
                    attempts[at].refused += if refused { 1 } else { REFUSED_MAX };
                    // The next attempt begins at once.
                    starts = Instant::now();
                }
            }
        }
    }
}

/// Notifies a server that the client does not need these handles any more. Does not wait.
pub(super) fn say_goodbye(socket: &Socket, handles: &[GrantedHandle], terms: ClientTerms) {
    for handle in handles {
        let mut client_end = ClientEnd::new(*handle, terms, 0, 1);
        client_end.close();
        let mut out = [0; CONTROL_BYTES_MAX];
        if let Some(send) = client_end.poll_send(moment(), &*PeerFlow::new(), &mut out) {
            let _ = socket.send_now(&[Window::from(&out[..send.bytes])]);
        }
    }
}

/// Receives one packet. Waits for at most `due`.
pub(super) fn receive_from(
    socket: &Socket,
    memory: &mut [u8; BIND_BYTES],
    due: Duration,
) -> io::Result<Option<usize>> {
    let into = [Space::of_mut(memory)];
    let until = if due.is_zero() { Until::Now } else { Until::After(due) };
    let mut received = socket.receive(&into, None, until)?;
    if received.is_none() && until != Until::Now {
        // On a busy machine, this thread may have waited for a processor after the time-out. The packet may
        // have arrived meanwhile.
        received = socket.receive(&into, None, Until::Now)?;
    }
    Ok(received.filter(|arrival| !arrival.cut).map(|arrival| arrival.bytes))
}

/// Sends and receives the packets of a bind exchange until it ends.
fn converse(
    socket: &Socket,
    to: &Route,
    binding: wire::BindExchange,
    until: Instant,
    receive: ReceivePacket<'_>,
) -> Result<BindOutcome, CallError> {
    let mut memory = [0; BIND_BYTES];
    let mut conversation = Conversation::new(binding, until);
    loop {
        if let Some(ended) = conversation.advance(socket, to) {
            return ended;
        }
        let received = receive(&mut memory, conversation.left());
        if conversation.handle(received, &memory, socket.is_sealed())?
            && conversation.refused < REFUSED_MAX
        {
            // The server may be about to start, so the client waits a little before it sends again.
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A bind exchange over one socket. Its functions do not wait.
struct Conversation {
    binding: wire::BindExchange,
    /// The time at which the exchange ends without an answer.
    until: Instant,
    /// How often the server's machine has reported a closed port.
    refused: u32,
    /// Whether a packet was sent since the last such report. Over a sealed connection, a report is not
    /// proven, so one packet does not count more than once.
    asked: bool,
}

impl Conversation {
    const fn new(binding: wire::BindExchange, until: Instant) -> Self {
        Self { binding, until, refused: 0, asked: false }
    }

    /// Sends the packet that is due. Returns how the exchange ended, if it has ended.
    fn advance(&mut self, socket: &Socket, to: &Route) -> Option<Result<BindOutcome, CallError>> {
        if self.refused >= REFUSED_MAX {
            return Some(Err(silent(to, self.refused)));
        }
        let mut out = [0; BIND_BYTES];
        if self.binding.poll_send(moment(), &mut out).is_some() {
            self.asked = true;
            let _ = socket.send_now(&[Window::from(&out[..])]);
        }
        match self.binding.outcome() {
            Some(BindOutcome::NoAnswer) => Some(Err(silent(to, self.refused))),
            Some(bound) => Some(Ok(*bound)),
            None if Instant::now() >= self.until => Some(Err(silent(to, self.refused))),
            None => None,
        }
    }

    /// Returns how long the exchange can wait for a packet before it must act.
    fn left(&self) -> Duration {
        let left = self.until.saturating_duration_since(Instant::now());
        let due = self.binding.next_timer().map(|due| Duration::from_nanos(due.since(moment())));
        due.map_or(left, |due| due.min(left))
    }

    /// Handles what was received into `memory`. Returns whether the server's machine reported a closed port.
    fn handle(
        &mut self,
        received: io::Result<Option<usize>>,
        memory: &[u8; BIND_BYTES],
        is_sealed: bool,
    ) -> Result<bool, CallError> {
        match received {
            Ok(Some(bytes)) => {
                handle_packet(&mut self.binding, &memory[..bytes]);
                Ok(false)
            }
            Ok(None) => Ok(false),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                self.refused += u32::from(core::mem::take(&mut self.asked) || !is_sealed);
                Ok(true)
            }
            Err(error) => Err(failed("cannot receive the server's answer", error)),
        }
    }
}

/// A request for handles over a socket that carries calls. No thread waits for the answer.
pub(super) struct Asking {
    conversation: Conversation,
    request: BindRequest,
    /// The time at which the client began to ask.
    pub(super) begun: Instant,
    nonce: [u8; 12],
}

impl Asking {
    /// Begins to request handles over `socket`.
    pub(super) fn new(socket: &Socket, renewal: Renewal) -> Result<Self, CallError> {
        let nonce = nonce(socket)?;
        let (binding, request) = renewal.begin(socket, nonce)?;
        let conversation = Conversation::new(binding, renewal.until);
        Ok(Self { conversation, request, begun: Instant::now(), nonce })
    }

    /// Returns what identifies the packets that answer this request.
    pub(super) const fn key(&self) -> Handle {
        Handle { place: 0, secret: self.nonce }
    }

    /// Returns how long the request can wait for a packet before it must act.
    pub(super) fn left(&self) -> Duration {
        self.conversation.left()
    }

    /// Sends what is due, and handles the packets that `receive` returns. `receive` does not wait. Returns
    /// what the server has granted, or why it has granted nothing. Returns `None` before the answer arrives.
    pub(super) fn poll(
        &mut self,
        socket: &Socket,
        to: &Route,
        receive: &mut dyn FnMut(&mut [u8; BIND_BYTES]) -> io::Result<Option<usize>>,
    ) -> Option<Result<Granted, CallError>> {
        /// The largest number of packets that one call of this function receives.
        const PACKETS_MAX: u32 = 16;
        let mut memory = [0; BIND_BYTES];
        for _ in 0..PACKETS_MAX {
            if let Some(ended) = self.conversation.advance(socket, to) {
                return Some(ended.and_then(|bound| granted(bound, Some(self.request), to)));
            }
            let received = receive(&mut memory);
            let is_empty = matches!(received, Ok(None));
            match self.conversation.handle(received, &memory, socket.is_sealed()) {
                Ok(_) if is_empty => return None,
                Ok(_) => {}
                Err(error) => return Some(Err(error)),
            }
        }
        None
    }
}

/// Handles a packet. Returns whether the packet was an answer.
fn handle_packet(binding: &mut wire::BindExchange, packet: &[u8]) -> bool {
    binding.receive(moment(), packet)
}

/// Converts the error of a bind for a call whose frame could not get a new handle. Most errors become
/// [`Kind::ServerGone`], because the binding cannot be used any more. Errors of this machine and an expired
/// deadline stay unchanged.
#[cold]
pub(crate) fn lost(error: CallError, deadline: Option<Instant>) -> CallError {
    let late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
    match error.kind() {
        Kind::TimedOut if late => error,
        Kind::Exhausted | Kind::System | Kind::Unreachable | Kind::ServerGone | Kind::Withdrawn => {
            error
        }
        _ => {
            let text = "the server does not renew this binding";
            CallError::not_executed(Kind::ServerGone, Phase::Call, text).because(error.chain())
        }
    }
}

#[cold]
fn other_version(version: u8) -> CallError {
    let text = format!(
        "the server speaks version {version} of the packet protocol, this release version \
         {VERSION}: use the same release on both sides"
    );
    CallError::not_executed(Kind::ProtocolMismatch, Phase::Bind, text)
}

#[cold]
fn denied(kind: u32, text: String) -> CallError {
    let kind = Kind::from_number(kind).unwrap_or(Kind::ProtocolMismatch);
    let error = CallError::not_executed(kind, Phase::Bind, text);
    error.denied_means(NO_RIGHT)
}
