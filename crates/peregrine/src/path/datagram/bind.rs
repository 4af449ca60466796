//! The client's side of binding: asking whoever listens at an address for handles.

use core::time::Duration;
use std::io::{self, ErrorKind};
use std::time::Instant;

use super::client::connected;
use super::{BUFFER_BYTES, credits, moment};
use crate::device::{Node, Route, Socket, Until, Use};
use crate::error::{CallError, Kind, Phase};
use crate::protocol::exchange::bind::{self as wire, BIND_BYTES, Bound, Grant, OnLink, Wish};
use crate::protocol::exchange::caller::Terms;
use crate::protocol::exchange::header::{HEADER_BYTES, Header};
use crate::protocol::exchange::message::PIECE_MAX;
use crate::sys;
use crate::value::{Space, Window};

/// What a server granted: handles, on which terms, and the first round trip.
pub(crate) type Granted = (Grant, Terms, u64);

fn failed(what: &str, error: io::Error) -> CallError {
    CallError::system(Phase::Bind, what.to_owned(), error)
}

/// Asks a server for handles.
pub(crate) fn bind(to: &Route, wish: Wish, until: Instant) -> Result<Granted, CallError> {
    let socket = connected(to, Use::Calls).map_err(|error| failed("making a socket", error))?;
    bind_over(&socket, to, wish, until)
}

/// The same over a socket that nobody else uses meanwhile.
pub(super) fn bind_over(
    socket: &Socket,
    to: &Route,
    wish: Wish,
    until: Instant,
) -> Result<Granted, CallError> {
    let nonce = sys::random().map_err(|error| failed("asking for random bytes", error))?;
    ask(socket, to, wish, nonce, until, &mut |memory, due| receive_from(socket, memory, due))
}

/// Waits for an answer for so long, and puts it there: how many bytes it has.
pub(super) type Receive<'a> =
    &'a mut dyn FnMut(&mut [u8; BIND_BYTES], Duration) -> io::Result<Option<usize>>;

/// The same with that nonce over any socket.
pub(super) fn ask(
    socket: &Socket,
    to: &Route,
    mut wish: Wish,
    nonce: [u8; 12],
    until: Instant,
    receive: Receive<'_>,
) -> Result<Granted, CallError> {
    let buffer = socket
        .size_buffers(BUFFER_BYTES)
        .map_err(|error| failed("sizing a socket's buffer", error))?;
    let payload = socket.payload(HEADER_BYTES);
    let payload = payload.map_err(|error| failed("asking for the route's MTU", error))?;
    wish.piece = (payload as u32).min(PIECE_MAX);
    wish.credits = credits(buffer, wish.piece);
    let binding = wire::Binding::new(moment(), nonce, wish);
    match converse(socket, to, binding, until, receive)? {
        Bound::Granted(grant, _) if wish.payload_check && !grant.payload_check => {
            let text = "the server checks no payloads".to_owned();
            Err(CallError::not_executed(Kind::ProtocolMismatch, Phase::Bind, text))
        }
        Bound::Granted(grant, round_trip) => {
            let terms = Terms {
                piece: grant.piece,
                credits: grant.credits,
                credits_here: wish.credits,
                call_bytes_max: grant.call_bytes_max,
                result_bytes_max: wish.result_bytes_max,
                origin: grant.origin,
            };
            Ok((grant, terms, round_trip))
        }
        Bound::Denied(denial) => {
            let text = String::from_utf8_lossy(denial.text()).into_owned();
            Err(denied(denial.kind, text))
        }
        Bound::Dead | Bound::Told(_) => Err(silent(to, 0)),
    }
}

/// Asks a server where it is on the link that both are at, if they are at one: `None` if it offers
/// none there.
pub(crate) fn where_on_link(to: &Route, until: Instant) -> Result<Option<Node>, CallError> {
    let socket = connected(to, Use::Calls).map_err(|error| failed("making a socket", error))?;
    let nonce = sys::random().map_err(|error| failed("asking for random bytes", error))?;
    let binding = wire::Binding::asking(moment(), nonce);
    let told = converse(&socket, to, binding, until, &mut |memory, due| {
        receive_from(&socket, memory, due)
    })?;
    match told {
        Bound::Told(there) => {
            Ok(there.map(|OnLink { hardware, endpoint }| Node { hardware, endpoint }))
        }
        Bound::Denied(denial) => {
            let text = String::from_utf8_lossy(denial.text()).into_owned();
            Err(denied(denial.kind, text))
        }
        Bound::Dead | Bound::Granted(..) => Err(silent(to, 0)),
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
    mut binding: wire::Binding,
    until: Instant,
    receive: Receive<'_>,
) -> Result<Bound, CallError> {
    let (mut out, mut memory) = ([0; BIND_BYTES], [0; BIND_BYTES]);
    let mut refused = 0;
    loop {
        let now = moment();
        if binding.poll_send(now, &mut out).is_some() {
            let _ = socket.send(&[Window::from(&out[..])], None);
        }
        match binding.outcome() {
            Some(Bound::Dead) => return Err(silent(to, refused)),
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
                let Some((header, body)) = memory[..bytes].split_first_chunk() else {
                    continue;
                };
                if let Ok(header) = Header::parse(header, body.len()) {
                    binding.handle(moment(), &header, body);
                }
            }
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                // A server that is about to start is waited for a little.
                refused += 1;
                if refused == 3 {
                    return Err(silent(to, refused));
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(failed("receiving the server's answer", error)),
        }
    }
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
fn denied(kind: u32, text: String) -> CallError {
    let kind = Kind::from_number(kind).unwrap_or(Kind::ProtocolMismatch);
    CallError::not_executed(kind, Phase::Bind, text)
}

#[cold]
fn silent(to: &Route, refused: u32) -> CallError {
    if refused > 0 {
        let text = format!("nobody listens at {to}");
        return CallError::not_executed(Kind::Unreachable, Phase::Bind, text);
    }
    CallError::not_executed(Kind::TimedOut, Phase::Bind, format!("{to} does not answer"))
}
