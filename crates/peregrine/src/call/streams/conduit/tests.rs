//! Dialogues with a conduit whose messages and results overtake each other.

use super::*;
use crate::call::streams::{message_header, result_number};
use proptest::prelude::*;

const ROOM: usize = 4096;

/// A client with one conduit, which follows the rules of the documentation of [`super::super`].
struct Client {
    token: Token,
    /// The number of calls with streams that are under way.
    users: usize,
    is_closed: bool,
    /// The number of streams for which the client has not sent an `Ask` record yet.
    to_ask: u32,
    asked: u32,
    answers: u32,
    next: u64,
    next_result: u64,
    has_early_result: bool,
    outstanding: Vec<Outstanding>,
}

enum Outstanding {
    Message(Vec<u8>),
    Held(Arc<ThreadWait>),
    Result(Vec<u8>),
}

impl Client {
    fn new() -> Self {
        Self {
            token: crate::sys::random().unwrap(),
            users: 0,
            is_closed: true,
            to_ask: 0,
            asked: 0,
            answers: 0,
            next: 0,
            next_result: 0,
            has_early_result: false,
            outstanding: Vec::new(),
        }
    }

    fn has_message(&self) -> bool {
        let has_records = self.to_ask > 0;
        !self.has_early_result
            && match self.users {
                0 => has_records || !self.is_closed,
                _ => has_records || self.outstanding.is_empty(),
            }
    }

    /// Sends messages while the client has one to send, and fewer than two messages are outstanding.
    fn send(&mut self) {
        while self.outstanding.len() < 2 && self.has_message() {
            let is_open = self.users > 0;
            let is_first = core::mem::replace(&mut self.is_closed, !is_open);
            let mut message = message_header(self.token, self.next, is_open, is_first).to_vec();
            self.next += 1;
            for _ in 0..core::mem::take(&mut self.to_ask) {
                self.asked += 1;
                let ask = Record::bare(RecordKind::Ask, self.asked);
                message.extend_from_slice(&ask.to_bytes());
            }
            self.outstanding.push(Outstanding::Message(message));
        }
    }

    /// Delivers the outstanding message or result that `which` selects: a message to the server, a result to
    /// the client.
    fn deliver(&mut self, which: usize) {
        if self.outstanding.is_empty() {
            return;
        }
        let at = which % self.outstanding.len();
        let moved = match self.outstanding.swap_remove(at) {
            Outstanding::Message(message) => {
                let (token, header) = read_message(&message).unwrap();
                let conduit = Conduits::of_process().conduit(token);
                let served = conduit.serve(header, &message, ROOM);
                match served.unwrap_or_else(|refusal| panic!("{header:?}: {refusal:?}")) {
                    Served::Now(result) => Outstanding::Result(result),
                    Served::Held(wait) => Outstanding::Held(wait.unwrap()),
                }
            }
            Outstanding::Held(wait) => {
                let ended = wait.0.lock().0.take();
                match ended {
                    Some(result) => Outstanding::Result(result.unwrap()),
                    None => Outstanding::Held(wait),
                }
            }
            Outstanding::Result(result) => {
                let number = result_number(&result).unwrap();
                if number == self.next_result {
                    self.next_result += 1 + u64::from(core::mem::take(&mut self.has_early_result));
                } else {
                    assert_eq!((number, self.has_early_result), (self.next_result + 1, false));
                    self.has_early_result = true;
                }
                Record::all(&result, |record, _| {
                    self.answers += u32::from(record.kind == RecordKind::End);
                    Some(())
                })
                .unwrap();
                return;
            }
        };
        self.outstanding.push(moved);
    }
}

/// Keeps the conduit at the server while a procedure has an open stream. `None` without such a stream.
#[derive(Default)]
struct Pin(Option<Arc<Conduit>>);

impl Pin {
    fn turn(&mut self, token: Token) {
        match self.0.take() {
            None => {
                let flow = Arc::new(Flow::new(1 << 20, ROOM, 0, 0, 0));
                self.0 = Conduit::open(token, &flow).ok();
            }
            Some(conduit) => {
                let _ = conduit.state.lock().flows.remove(&(1 << 20));
                Conduits::of_process().forget(&conduit);
            }
        }
    }
}

/// Runs a dialogue, and checks that the server has answered everything and has forgotten the conduit.
fn run(steps: &[(u8, usize)]) {
    let (mut client, mut pin) = (Client::new(), Pin::default());
    for &(step, which) in steps {
        match step {
            0 => client.users += 1,
            1 => client.users = client.users.saturating_sub(1),
            2 => client.to_ask += 1,
            3 => pin.turn(client.token),
            _ => client.deliver(which),
        }
        client.send();
    }
    client.users = 0;
    for which in 0..100 {
        client.send();
        client.deliver(which);
    }
    assert!(client.outstanding.is_empty() && !client.has_message());
    assert_eq!((client.next_result, client.answers), (client.next, client.asked));
    if pin.0.is_some() {
        pin.turn(client.token);
    }
    assert!(!Conduits::of_process().0.lock().contains_key(&client.token));
}

/// The second message of a client without open streams arrives first. Then a procedure opens the conduit, and
/// the first message arrives. The third message must not wait for the second.
#[test]
fn overtaken_message_does_not_hold_up_later_ones() {
    run(&[(2, 0), (2, 0), (4, 1), (4, 1), (3, 0), (4, 0), (0, 0), (4, 0), (4, 0), (4, 0), (2, 0)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// However messages and results overtake each other, the server answers all messages.
    #[test]
    fn messages_may_overtake_each_other(
        steps in prop::collection::vec((0_u8..10, 0_usize..2), 0..60),
    ) {
        run(&steps);
    }
}

/// The largest numbers are refused, so no count overflows.
#[test]
fn numbers_of_hostile_messages_are_bounded() {
    let message = |number| message_header([7; 16], number, true, true);
    assert!(read_message(&message(1 << 62)).is_some());
    assert!(read_message(&message(u64::MAX)).is_none());
}
