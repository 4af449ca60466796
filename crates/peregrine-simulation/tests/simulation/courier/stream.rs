//! Simulates calls of Courier over a connection that divides its bytes in any way, and ends at any time. Some
//! callers do not wait for the reply, and some give up.

use crate::exchange::client_end::Executed;
use crate::protocol::courier::failure::Failure;
use crate::protocol::courier::message::{Answer, CALL_BYTES, Call, Reply, Versions};
use crate::protocol::courier::outstanding::Outstanding;
use crate::protocol::courier::stream::{Event, Framing, Input};
use crate::random::Random;

const CALLS: u64 = 60;
const MESSAGE_MAX: usize = 200;

/// Whether a caller waits for the reply to a call. The value has the number of the call.
#[derive(Debug, PartialEq, Eq)]
enum Waiter {
    Caller(u64),
    /// The call has no result that the caller needs, or the caller has given up.
    Nobody(u64),
}

/// One direction of a connection.
struct Pipe {
    framing: Framing,
    bytes: Vec<u8>,
    input: Input,
}

impl Pipe {
    fn new(framing: Framing) -> Self {
        Self { framing, bytes: Vec::new(), input: Input::new(framing, MESSAGE_MAX) }
    }

    fn write(&mut self, message: &[u8]) {
        for (before, range) in (0..).map_while(|index| self.framing.piece(message.len(), index)) {
            self.bytes.extend(before);
            self.bytes.extend(&message[range]);
        }
    }

    /// Delivers some of the bytes. Returns the messages that are complete.
    fn deliver(&mut self, random: &mut Random) -> Vec<Vec<u8>> {
        let count = random.below(self.bytes.len() as u64 + 1) as usize;
        let (mut now, mut messages) = (&self.bytes[..count], Vec::new());
        while let Some(event) = self.input.take(&mut now).expect("a stream in order") {
            let Event::Message(message) = event else { panic!("the data have no end") };
            messages.push(message);
        }
        self.bytes.drain(..count);
        messages
    }
}

/// Runs a connection until all calls are answered, or until the connection ends. Returns how many calls ran,
/// and how many replies arrived.
fn run(seed: u64) -> (u64, u64) {
    let random = &mut Random::new(seed);
    let framing = *random.pick(&[Framing::Records, Framing::Frames]);
    let (mut to_server, mut to_client) = (Pipe::new(framing), Pipe::new(framing));
    // The server sends its versions when it accepts the connection. The client sends its versions with its
    // first call.
    to_client.write(&Versions::OURS.to_bytes());
    let mut calls = Outstanding::new();
    let cut_after = if random.chance(500) { random.below(400) } else { u64::MAX };
    let (mut begun, mut executed, mut answered, mut steps) = (0_u64, 0_u64, 0_u64, 0_u64);
    while answered < CALLS && steps < cut_after {
        steps += 1;
        if begun < CALLS && random.chance(300) {
            let waiter = match random.chance(300) {
                true => Waiter::Nobody(begun),
                false => Waiter::Caller(begun),
            };
            let transaction = calls.add(waiter).expect("room");
            let header = Call { transaction, program: 7, version: 1, procedure: 2 };
            let mut message = vec![0; CALL_BYTES];
            header.emit(&mut message).expect("room");
            message.extend(begun.to_be_bytes());
            message.resize(message.len() + 2 * random.below(80) as usize, 0);
            if begun == 0 {
                message.splice(..0, Versions::OURS.to_bytes());
            }
            to_server.write(&message);
            begun += 1;
        }
        if begun > 0 && random.chance(100) {
            // A caller gives up. Its reply still arrives.
            let number = random.below(begun);
            if let Some(waiter) = calls.find(number as u16) {
                *waiter = Waiter::Nobody(number);
            }
        }
        for message in to_server.deliver(random) {
            let (call, arguments) = Call::parse(&message).expect("a call");
            assert_eq!(message[arguments..][..8], executed.to_be_bytes(), "seed {seed}: the order");
            let reply = Reply { transaction: call.transaction, answer: Answer::Return };
            let mut reply = reply.to_vec();
            reply.extend(executed.to_be_bytes());
            to_client.write(&reply);
            executed += 1;
        }
        for message in to_client.deliver(random) {
            let (reply, results) = Reply::parse(&message).expect("a reply");
            let waiter = calls.answered(reply.transaction).expect("the reply to the oldest call");
            let (Waiter::Caller(number) | Waiter::Nobody(number)) = waiter;
            assert_eq!(message[results..], number.to_be_bytes(), "seed {seed}: another reply");
            answered += 1;
        }
    }
    // The connection ends. Calls that wait for a reply may have run. Calls that were not sent have not run.
    assert_eq!(calls.drain().count() as u64, begun - answered);
    assert!(answered <= executed && executed <= begun);
    assert_eq!(Failure::Disconnected.executed(1), Executed::Maybe);
    assert_eq!(Failure::Disconnected.executed(0), Executed::No);
    let is_whole = [&to_server, &to_client].map(|pipe| pipe.input.end().is_ok());
    assert!(answered < CALLS || is_whole == [true, true], "seed {seed}");
    (executed, answered)
}

#[test]
fn calls_over_a_stream_run_in_order_and_once() {
    let (mut cut, mut lost) = (0, 0);
    for seed in 0..500 {
        let (executed, answered) = run(seed);
        cut += u64::from(answered < CALLS);
        lost += executed - answered;
    }
    // Some connections have ended, and some of their calls have run without a reply.
    assert!(cut > 50 && lost > 50, "{cut} {lost}");
}
