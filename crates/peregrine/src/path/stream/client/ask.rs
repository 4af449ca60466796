//! Sends a request on a new connection, before other bindings can share that connection.

use std::io;
use std::time::Instant;

use crate::device::tcp::{Stream, WaitFor};
use crate::error::{CallError, Kind, Phase};
use crate::limits;
use crate::path::security::explained;
use crate::path::stream::peer::sending::{OnStall, Sending};
use crate::protocol::stream::{self as wire, HEADER_BYTES, Header};
use crate::value::Window;

/// Sends a request on a connection that no other thread uses yet. Returns the header and body of the answer.
pub(crate) fn ask_alone(
    stream: &Stream,
    kind: wire::MessageKind,
    body: &[u8],
    until: Instant,
) -> Result<(Header, Vec<u8>), CallError> {
    let failed = |what: &str, error: io::Error| match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            let text = format!("the server does not answer: {what} took too long");
            CallError::not_executed(Kind::TimedOut, Phase::Bind, text)
        }
        io::ErrorKind::UnexpectedEof => {
            let text = "the server closed the connection before it answered";
            CallError::not_executed(Kind::ServerGone, Phase::Bind, text)
        }
        _ => explained(what, error),
    };
    struct Soon<'a>(&'a Stream, Instant);
    impl OnStall for Soon<'_> {
        fn wait(&self) -> io::Result<()> {
            match self.0.wait(WaitFor::Writable, Some(self.1))?.writable {
                true => Ok(()),
                false => Err(io::ErrorKind::TimedOut.into()),
            }
        }
    }
    let header = Header { body: body.len() as u32, ..Header::new(kind, 1) };
    let header = header.to_bytes();
    let mut sending = Sending::new(stream, Soon(stream, until));
    let sent = sending.part(Window::from(&header[..]));
    let sent = sent.and_then(|()| sending.part(Window::from(body))).and_then(|()| sending.end());
    // A server that refuses the request may close the connection before it has received the whole request.
    // The client can still receive the server's answer. So an error of sending is reported only if there is
    // no answer.
    let receive = |into: &mut [u8]| {
        let mut at = 0;
        while at < into.len() {
            if !stream.wait(WaitFor::Readable, Some(until))?.readable {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match stream.receive(&mut into[at..], false) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => at += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    };
    let mut header = [0; HEADER_BYTES];
    receive(&mut header).map_err(|error| match (sent, error) {
        (Err(first), _) => failed("sending the request", first),
        (Ok(()), error) => failed("receiving the answer", error),
    })?;
    let strange = |text: String| CallError::not_executed(Kind::ProtocolMismatch, Phase::Bind, text);
    let header = Header::from_bytes(&header).map_err(|error| strange(error.to_string()))?;
    if header.body as usize > limits::HANDSHAKE_BYTES_MAX || header.extensions > 0 {
        return Err(strange("the server's answer is longer than the protocol allows".into()));
    }
    let mut body = vec![0; header.rest()];
    receive(&mut body).map_err(|error| failed("receiving the answer", error))?;
    body.truncate(header.body as usize);
    Ok((header, body))
}
