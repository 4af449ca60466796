//! The client's side of binding: asking whoever listens at an address for handles.
//!
//! Handles are bound over the very socket that will carry their calls. Of several addresses the first
//! that answers is taken, each asked a little later than the one before (as RFC 8305 has it for TCP).

use core::time::Duration;
use std::io::{self, ErrorKind};
use std::time::Instant;

use super::association::connected;
use crate::device::{LinkAddress, Route, Socket, SocketUse, Until, wait_for_any};
use crate::error::{CallError, Kind, NO_DATAGRAMS, NO_RAW_ETHERNET, Phase};
use crate::path::bind::STAGGER;
use crate::path::datagram::peer::{BUFFER_BYTES, PeerFlow, credits, moment};
use crate::protocol::exchange::bind::{
    self as wire, BIND_BYTES, BindOutcome, BindRequest, Grant, GrantedHandle, LinkLocation,
};
use crate::protocol::exchange::client_end::{ClientEnd, ClientTerms};
use crate::protocol::exchange::header::{CONTROL_BYTES_MAX, HEADER_BYTES, VERSION};
use crate::protocol::exchange::message::PIECE_MAX;
use crate::sys;
use crate::value::{Space, Window};

/// What a server granted: handles, on which terms, and the first round trip.
pub(crate) struct Granted {
    pub(crate) grant: Grant,
    pub(crate) terms: ClientTerms,
    pub(crate) round_trip_ns: u64,
}

/// A machine that refused so many packets has no server there. One that is about to start is waited for.
const REFUSED_MAX: u32 = 3;

fn failed(what: &str, error: io::Error) -> CallError {
    CallError::system(Phase::Bind, what.to_owned(), error)
}

/// Why there is no socket to an address.
fn no_socket(to: &Route, error: io::Error) -> CallError {
    match error.kind() {
        ErrorKind::NetworkUnreachable
        | ErrorKind::HostUnreachable
        | ErrorKind::AddrNotAvailable => {
            let text = format!("there is no route to {to}");
            CallError::not_executed(Kind::Unreachable, Phase::Bind, text).because(error)
        }
        _ if matches!(to, Route::Link(..)) => {
            failed("making a socket", error).denied_means(NO_RAW_ETHERNET)
        }
        _ => failed("making a socket", error),
    }
}

/// Asks for handles by the first of several routes where a server answers: by which one it was, and over
/// which socket.
///
/// # Errors
/// The server's, or why none answers.
pub(crate) fn bind(
    routes: &[Route],
    wish: BindRequest,
    until: Instant,
) -> Result<(usize, Socket, Granted), CallError> {
    let Attempt { number, socket, binding, wish, .. } = race(routes, Some(wish), until)?;
    let to = &routes[number];
    let receive: Receive<'_> = &mut |memory, due| receive_from(&socket, memory, due);
    let bound = converse(&socket, to, binding, until, receive)?;
    let granted = granted(bound, wish, to)?;
    Ok((number, socket, granted))
}

/// Asks for handles over a socket that nobody else uses meanwhile.
pub(super) fn bind_over(
    socket: &Socket,
    to: &Route,
    wish: BindRequest,
    until: Instant,
) -> Result<Granted, CallError> {
    let nonce = nonce()?;
    ask(socket, to, wish, nonce, until, &mut |memory, due| receive_from(socket, memory, due))
}

fn nonce() -> Result<[u8; 12], CallError> {
    sys::random().map_err(|error| failed("asking for random bytes", error))
}

/// Waits for an answer for so long, and puts it there: how many bytes it has.
pub(super) type Receive<'a> =
    &'a mut dyn FnMut(&mut [u8; BIND_BYTES], Duration) -> io::Result<Option<usize>>;

/// The same with that nonce over any socket.
pub(super) fn ask(
    socket: &Socket,
    to: &Route,
    wish: BindRequest,
    nonce: [u8; 12],
    until: Instant,
    receive: Receive<'_>,
) -> Result<Granted, CallError> {
    let wish = fitted(socket, wish)?;
    let binding = wire::BindExchange::new(moment(), nonce, wish);
    granted(converse(socket, to, binding, until, receive)?, Some(wish), to)
}

/// What can be wished for over a socket.
fn fitted(socket: &Socket, wish: BindRequest) -> Result<BindRequest, CallError> {
    let buffer = socket
        .size_buffers(BUFFER_BYTES)
        .map_err(|error| failed("sizing a socket's buffer", error))?;
    let payload = socket.payload(HEADER_BYTES);
    let payload = payload.map_err(|error| failed("asking for the route's MTU", error))?;
    let piece = (payload as u32).min(PIECE_MAX);
    Ok(BindRequest { piece, credits: credits(buffer, piece), ..wish })
}

/// What came of binding.
fn granted(
    bound: BindOutcome,
    wish: Option<BindRequest>,
    to: &Route,
) -> Result<Granted, CallError> {
    match (bound, wish) {
        (BindOutcome::Granted(grant, _), Some(wish))
            if wish.payload_check && !grant.payload_check =>
        {
            let text = "the server checks no payloads".to_owned();
            Err(CallError::not_executed(Kind::ProtocolMismatch, Phase::Bind, text))
        }
        (BindOutcome::Granted(grant, round_trip), Some(wish)) => {
            let terms = ClientTerms {
                piece: grant.piece,
                credits: grant.credits,
                credits_here: wish.credits,
                call_bytes_max: grant.call_bytes_max,
                result_bytes_max: wish.result_bytes_max,
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

/// Asks for the place on the link of the first server that answers at some addresses, if they are at the
/// same one: which of the addresses answered, and `None` if that server offers none there.
///
/// # Errors
/// Why none answers.
pub(crate) fn where_on_link(
    routes: &[Route],
    until: Instant,
) -> Result<(usize, Option<LinkAddress>), CallError> {
    let Attempt { number, socket, binding, .. } = race(routes, None, until)?;
    let to = &routes[number];
    let receive: Receive<'_> = &mut |memory, due| receive_from(&socket, memory, due);
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

/// One of the routes that are asked at the same time.
struct Attempt {
    number: usize,
    socket: Socket,
    binding: wire::BindExchange,
    wish: Option<BindRequest>,
    refused: u32,
}

impl Attempt {
    fn begin(to: &Route, number: usize, wish: Option<BindRequest>) -> Result<Self, CallError> {
        let socket = connected(to, SocketUse::Calls).map_err(|error| no_socket(to, error))?;
        let wish = wish.map(|wish| fitted(&socket, wish)).transpose()?;
        let (now, nonce) = (moment(), nonce()?);
        let binding = match wish {
            Some(wish) => wire::BindExchange::new(now, nonce, wish),
            None => wire::BindExchange::locating(now, nonce),
        };
        Ok(Self { number, socket, binding, wish, refused: 0 })
    }

    /// Takes what has come; whether it was an answer.
    fn hear(&mut self, due: Duration) -> io::Result<bool> {
        let mut memory = [0; BIND_BYTES];
        let came = receive_from(&self.socket, &mut memory, due)?;
        Ok(came.is_some_and(|bytes| heard(&mut self.binding, &memory[..bytes])))
    }
}

/// Asks by each route, and returns the first that was answered; the others are given up.
fn race(routes: &[Route], wish: Option<BindRequest>, until: Instant) -> Result<Attempt, CallError> {
    let mut attempts: Vec<Attempt> = Vec::new();
    let (mut next, mut starts) = (0, Instant::now());
    let mut failure = None;
    loop {
        while next < routes.len() && (attempts.is_empty() || Instant::now() >= starts) {
            match Attempt::begin(&routes[next], next, wish) {
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
            let goes_on = attempt.binding.outcome().is_none() && attempt.refused < REFUSED_MAX;
            if !goes_on {
                failure = Some(silent(&routes[attempt.number], attempt.refused));
            }
            goes_on
        });
        let Some(first) = attempts.first() else {
            if next < routes.len() {
                continue;
            }
            return Err(failure.unwrap_or_else(nobody));
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
        // One alone waits on its own socket, of whatever kind.
        let alone = attempts.len() == 1;
        if !alone {
            let sockets: Vec<&Socket> = attempts.iter().map(|attempt| &attempt.socket).collect();
            wait_for_any(&sockets, due).map_err(|error| failed("waiting for an answer", error))?;
        }
        let due = if alone { due } else { Duration::ZERO };
        for at in 0..attempts.len() {
            match attempts[at].hear(due) {
                Ok(true) => return Ok(attempts.swap_remove(at)),
                Ok(false) => {}
                Err(error) => {
                    let refused = error.kind() == ErrorKind::ConnectionRefused;
                    attempts[at].refused += if refused { 1 } else { REFUSED_MAX };
                    // The next one need not wait any longer.
                    starts = Instant::now();
                }
            }
        }
    }
}

/// Says to a server that some handles are not needed.
pub(super) fn say_goodbye(socket: &Socket, handles: &[GrantedHandle], terms: ClientTerms) {
    for handle in handles {
        let mut client_end = ClientEnd::new(*handle, terms, 0, 1);
        client_end.close();
        let mut out = [0; CONTROL_BYTES_MAX];
        if let Some(send) = client_end.poll_send(moment(), &*PeerFlow::new(), &mut out) {
            let _ = socket.send(&[Window::from(&out[..send.bytes])], None);
        }
    }
}

/// Receives once.
fn receive_from(
    socket: &Socket,
    memory: &mut [u8; BIND_BYTES],
    due: Duration,
) -> io::Result<Option<usize>> {
    let into = [Space::of_mut(memory)];
    let until = if due.is_zero() { Until::Now } else { Until::After(due) };
    let came = socket.receive(&into, None, until)?;
    Ok(came.filter(|arrival| !arrival.cut).map(|arrival| arrival.bytes))
}

/// Sends and receives what belongs to binding, to its end.
fn converse(
    socket: &Socket,
    to: &Route,
    mut binding: wire::BindExchange,
    until: Instant,
    receive: Receive<'_>,
) -> Result<BindOutcome, CallError> {
    let (mut out, mut memory) = ([0; BIND_BYTES], [0; BIND_BYTES]);
    let mut refused = 0;
    loop {
        let now = moment();
        if binding.poll_send(now, &mut out).is_some() {
            let _ = socket.send(&[Window::from(&out[..])], None);
        }
        match binding.outcome() {
            Some(BindOutcome::NoAnswer) => return Err(silent(to, refused)),
            Some(bound) => return Ok(*bound),
            None => {}
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(silent(to, refused));
        }
        let due =
            binding.next_timer().map_or(left, |due| left.min(Duration::from_nanos(due.since(now))));
        match receive(&mut memory, due) {
            Ok(Some(bytes)) => {
                heard(&mut binding, &memory[..bytes]);
            }
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                // A server that is about to start is waited for a little.
                refused += 1;
                if refused == REFUSED_MAX {
                    return Err(silent(to, refused));
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(failed("receiving the server's answer", error)),
        }
    }
}

/// Takes a packet; whether it was an answer.
fn heard(binding: &mut wire::BindExchange, packet: &[u8]) -> bool {
    binding.receive(moment(), packet)
}

/// What the server says to a caller that it knew, and does not know any more: whatever it is, the
/// binding is of no use, and whoever bound decides what to do. What this side is short of stays what
/// it is, and so does a call whose time is up.
#[cold]
pub(crate) fn lost(error: CallError, deadline: Option<Instant>) -> CallError {
    let late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
    match error.kind() {
        Kind::TimedOut if late => error,
        Kind::Exhausted | Kind::System | Kind::Unreachable | Kind::ServerGone | Kind::Withdrawn => {
            error
        }
        _ => {
            let text = "the server grants this binding nothing any more";
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
    CallError::not_executed(kind, Phase::Bind, text)
}

#[cold]
fn nobody() -> CallError {
    CallError::not_executed(Kind::Unreachable, Phase::Bind, "the place has no address")
}

#[cold]
fn silent(to: &Route, refused: u32) -> CallError {
    if refused > 0 {
        let text = format!("nobody listens at {to}");
        return CallError::not_executed(Kind::Unreachable, Phase::Bind, text);
    }
    let error =
        CallError::not_executed(Kind::TimedOut, Phase::Bind, format!("{to} does not answer"));
    error.with_advice(NO_DATAGRAMS)
}
