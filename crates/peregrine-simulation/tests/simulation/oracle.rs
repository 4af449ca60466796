//! Records what really happened in a run: which calls were executed, and how they ended. Also checks the
//! rules that every run must obey.

use std::collections::BTreeMap;

use crate::exchange::client_end::{Executed, FailureReason, Outcome};
use crate::exchange::header::{Flags, Header};
use crate::network::Token;

/// The plan of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) total: u32,
    pub(crate) result: u32,
    /// How long the procedure runs, in nanoseconds, or `None` if it never ends.
    pub(crate) runs_for: Option<u64>,
    /// The time from the beginning of the call until the client cancels it, in nanoseconds.
    pub(crate) cancels_after: Option<u64>,
    /// Whether the procedure checks for cancellation, and ends when it is cancelled.
    pub(crate) checks_cancellation: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Ok,
    Failed(Executed, FailureReason),
    /// The call failed over a stream.
    StreamFailed(Executed, StreamFailure),
    /// The client that made the call crashed.
    Lost,
}

/// Why a call over a stream failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamFailure {
    /// The deadline passed before anything was sent.
    NotSent,
    /// The connection had ended before anything was sent.
    NoConnection,
    /// The deadline passed after only a part of the message was sent.
    PartlySent,
    /// The connection ended after only a part of the message was sent.
    Broken,
    /// The connection ended before the reply arrived.
    Unanswered,
    /// The deadline passed before the reply arrived.
    Late,
    /// The server refused the call.
    Refused,
}

impl Ending {
    /// Returns whether the ending reports that the call was not executed.
    pub(crate) const fn says_not_executed(self) -> bool {
        matches!(self, Self::Failed(Executed::No, _) | Self::StreamFailed(Executed::No, _))
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) plan: Plan,
    pub(crate) began: Option<u64>,
    pub(crate) ended: Option<(u64, Ending)>,
    pub(crate) executions: u32,
    /// When the procedure first noticed the cancellation.
    pub(crate) cancelled: Option<u64>,
}

/// The records of a run. Each violation of a rule adds a line to `violations`.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    pub(crate) calls: Vec<Call>,
    /// The calls that were sent over streams, by the number of the connection and the number of the call.
    sent: BTreeMap<(u64, u32), Token>,
    /// The executed calls, by the secret of the handle and the number of the call.
    executed: BTreeMap<([u8; 12], u32), Token>,
    pub(crate) violations: Vec<String>,
    pub(crate) resent: u32,
    /// How often a client that bound again found the previous server, and how often it found another server.
    pub(crate) bound_again: [u32; 2],
    pub(crate) packets: u64,
}

impl Oracle {
    pub(crate) fn plan(&mut self, plan: Plan) -> Token {
        self.calls.push(Call { plan, began: None, ended: None, executions: 0, cancelled: None });
        self.calls.len() as Token - 1
    }

    pub(crate) fn call(&mut self, token: Token) -> &mut Call {
        &mut self.calls[token as usize]
    }

    pub(crate) fn violated(&mut self, what: String) {
        self.violations.push(what);
    }

    pub(crate) fn sent(&mut self, header: &Header) {
        self.packets += 1;
        self.resent += u32::from(header.flags.has(Flags::RESENT));
    }

    /// Records that a call is sent over a stream.
    pub(crate) fn sends(&mut self, connection: u64, number: u32, token: Token) {
        self.sent.insert((connection, number), token);
    }

    /// Returns the call with the number `number` that was sent over the stream `connection`.
    pub(crate) fn token_of(&self, connection: u64, number: u32) -> Token {
        self.sent.get(&(connection, number)).copied().unwrap_or(Token::MAX)
    }

    pub(crate) fn executes(&mut self, secret: [u8; 12], sequence: u32, token: Token) {
        if let Some(earlier) = self.executed.insert((secret, sequence), token) {
            self.violated(format!("number {sequence} ran twice: {earlier}, {token}"));
        }
        let call = self.call(token);
        call.executions += 1;
        let (times, ended) = (call.executions, call.ended);
        if times > 1 {
            self.violated(format!("call {token} ran {times} times"));
        }
        if let Some((_, ending)) = ended.filter(|(_, ending)| ending.says_not_executed()) {
            self.violated(format!(
                "call {token} ran after it was reported as not executed ({ending:?})"
            ));
        }
    }

    pub(crate) fn ends(&mut self, now: u64, token: Token, outcome: &Outcome) {
        self.ends_as(
            now,
            token,
            match *outcome {
                Outcome::Returned(_) => Ending::Ok,
                Outcome::Failed { executed, why } => Ending::Failed(executed, why),
            },
        );
    }

    pub(crate) fn ends_as(&mut self, now: u64, token: Token, ending: Ending) {
        let call = self.call(token);
        let (executions, earlier) = (call.executions, call.ended.replace((now, ending)));
        if earlier.is_some() {
            self.violated(format!("call {token} ended twice"));
        }
        match ending {
            Ending::Ok if executions != 1 => {
                self.violated(format!("call {token} returned, but ran {executions} times"));
            }
            _ if ending.says_not_executed() && executions != 0 => {
                self.violated(format!(
                    "call {token} was reported as not executed, but ran ({ending:?})"
                ));
            }
            _ => {}
        }
    }

    /// Records that a client bound again. `before` is the incarnation of the server to which the client was
    /// bound before, and `now` is the incarnation of the current server. If they differ, the client has found
    /// another server.
    pub(crate) fn binds_again(&mut self, before: u64, now: u64) {
        self.bound_again[usize::from(before != now)] += 1;
    }

    /// Records that the client of this call has crashed.
    pub(crate) fn loses(&mut self, now: u64, token: Token) {
        let call = self.call(token);
        if call.ended.is_none() {
            call.ended = Some((now, Ending::Lost));
        }
    }

    /// Records that the procedure of a call noticed its cancellation.
    pub(crate) fn cancels(&mut self, now: u64, token: Token) {
        self.call(token).cancelled.get_or_insert(now);
    }

    pub(crate) fn count(&self, ending: impl Fn(Ending) -> bool) -> usize {
        let ended = self.calls.iter().filter_map(|call| call.ended);
        ended.filter(|(_, one)| ending(*one)).count()
    }

    pub(crate) fn all_ok(&self) -> bool {
        self.calls.iter().all(|call| matches!(call.ended, Some((_, Ending::Ok))))
    }
}
