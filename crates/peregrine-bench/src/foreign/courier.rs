//! Measures null calls by Courier across loopback. A TCP connection carries the messages as records, or
//! Peregrine's packet exchange carries them.

use crate::cases::Waiting;
use crate::larus::calls::Carrier;
use crate::larus::with_client;
use crate::network::far::Far;
use crate::network::{Streamed, Subject, per_call};
use crate::subject::{Failure, Sample};

/// The name of the limit that is Peregrine's own null call over UDP.
pub(crate) const OWN_UDP: &str = "own-udp";

/// The number of bytes of a null call on a connection: the marker of the record, and the message.
const CALL_BYTES: usize = 16;
/// The number of bytes of the reply to a null call.
const REPLY_BYTES: usize = 8;

/// How all clients and servers wait.
pub(super) const WAIT: Waiting = Waiting::Block;

/// The name of the path in a row, the subject (what makes the measured calls), and the subject that is its
/// limit.
pub(super) type Compared = (&'static str, Box<dyn Subject>, Box<dyn Subject>);

/// Returns each path of Courier, with its subject and its limit.
pub(super) fn compared() -> [Compared; 2] {
    let nulls = |carrier| Box::new(Nulls(carrier)) as Box<dyn Subject>;
    let pingpong = Streamed { spin: false, there: CALL_BYTES, back: REPLY_BYTES };
    [
        ("courier-tcp", nulls(Carrier::Records), Box::new(pingpong)),
        ("courier-exchange", nulls(Carrier::Exchange), nulls(Carrier::Peregrine)),
    ]
}

/// The subject that makes null calls.
struct Nulls(Carrier);

impl Subject for Nulls {
    fn name(&self) -> &'static str {
        if self.0 == Carrier::Peregrine { OWN_UDP } else { "peregrine" }
    }

    fn run(&mut self, far: &mut Far, warm: u32, calls: u32) -> Result<Sample, Failure> {
        let took = with_client(self.0, far, |client| {
            client.nulls(warm)?;
            client.nulls(calls)
        })?;
        Ok(per_call(took, calls))
    }
}
