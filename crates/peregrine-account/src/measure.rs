//! Measures the parts of a call.
//!
//! In each round, calls of four kinds alternate: calls outside of the account, calls of the account, calls
//! that only carry the same number of bytes (*echoes*), and pairs of stamps with no call between them.

use core::time::Duration;
use std::time::Instant;

use peregrine::{Accounting, CallError, CallTimes, Executed, Kind, Step};

use crate::statistics::{quantile, undisturbed_mean};
use crate::{Account, Options, Part, Side};

/// How to make the calls of an account.
pub struct Calls<'a> {
    /// Makes the call outside of the account.
    pub plain: &'a mut dyn FnMut() -> Result<(), CallError>,
    /// Makes the call over [`Accounting::binding`].
    pub accounted: &'a mut dyn FnMut() -> Result<(), CallError>,
}

impl core::fmt::Debug for Calls<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Calls").finish_non_exhaustive()
    }
}

/// The parts, in order.
const PARTS: [(&str, Side); 10] = [
    ("stub begins", Side::Client),
    ("takes a frame, marshals", Side::Client),
    ("makes the message", Side::Client),
    ("transfer, there and back", Side::Between),
    ("checks the call", Side::Server),
    ("takes the arguments", Side::Server),
    ("server stub and procedure", Side::Server),
    ("makes the result", Side::Server),
    ("takes the result", Side::Client),
    ("unmarshals, ends", Side::Client),
];

/// The kinds of calls.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CallKind {
    /// A call outside of the account.
    Plain,
    Accounted,
    Echo,
}

/// The steps before and after a call.
const OUTER: [Step; 2] = [Step::Called, Step::Returned];

/// The order of the kinds of calls, again and again. Each kind follows each kind equally often, because a server
/// is ready for the next call later if it has recorded the call before.
const ORDER: [CallKind; 9] = {
    use CallKind::{Accounted, Echo, Plain};
    [Plain, Plain, Accounted, Plain, Echo, Accounted, Accounted, Echo, Echo]
};

/// The steps at which an account has a stamp in addition to those before and after the call: one of them in
/// each call. `None`: no further stamp.
///
/// The number of these entries, the number of [`ECHO`] and the number of a server's choices (7) have no common
/// divisor with each other, nor with the three calls of a kind in [`ORDER`]. So each step of one side occurs
/// with each step of the other.
const INNER: [Option<Step>; 8] = [
    Some(Step::Begun),
    None,
    Some(Step::Entered),
    None,
    Some(Step::Sending),
    Some(Step::Received),
    None,
    Some(Step::Taken),
];

/// The same for echoes. An echo has no stamp at both steps: locally, a stamp directly before the word is sent
/// changes how long the word takes.
const ECHO: [Step; 5] =
    [Step::Sending, Step::Received, Step::Received, Step::Sending, Step::Received];

/// An echo sends and returns this many bytes besides its buffers.
const ECHO_BYTES: usize = 16;

/// How often a round repeats [`ORDER`]: a multiple of the number of combinations of [`INNER`] with a server's
/// choices.
const REPETITIONS: usize = 2 * INNER.len() * 7;

/// If the procedure takes less than this time, in nanoseconds, echoes do not occupy the server.
const BUSY_MIN: f64 = 500.0;

/// How long an account waits for the record of a call that has ended.
const RECORD_WAIT: Duration = Duration::from_secs(1);

/// The smallest number of rounds.
const ROUNDS_MIN: usize = 3;

/// The times of the calls of a round.
#[derive(Default)]
struct Round {
    plain: Vec<CallTimes>,
    accounted: Vec<CallTimes>,
    echoes: Vec<CallTimes>,
    /// Pairs of stamps without a call.
    nothing: Vec<CallTimes>,
    /// The records of the server, for `accounted` and for `echoes`.
    server: Vec<CallTimes>,
    server_echoes: Vec<CallTimes>,
}

/// Measures an account.
pub(crate) fn account(
    accounting: &Accounting,
    mut calls: Calls<'_>,
    options: &Options,
) -> Result<Account, CallError> {
    let begun = Instant::now();
    // Not measured: until caches are warm, threads have their processors, and the clock's rate is known.
    while begun.elapsed() < options.limit.min(Duration::from_millis(60)) {
        (calls.plain)()?;
    }
    let rounds = rounds(accounting, &mut calls, options, begun);
    Accounting::record_all();
    let account = account_of(&rounds?);
    if account.parts.iter().all(|part| part.ns.is_finite()) {
        return Ok(account);
    }
    let text = "the server's records do not have all steps of the calls";
    Err(CallError::new(Kind::BadResult, Executed::Maybe, text))
}

/// Makes the calls of all rounds. The first round only shows how long the procedure takes, and is left out.
fn rounds(
    accounting: &Accounting,
    calls: &mut Calls<'_>,
    options: &Options,
    begun: Instant,
) -> Result<Vec<Round>, CallError> {
    (calls.accounted)()?;
    let [sent, back] = Accounting::last_bytes().map(|bytes| bytes.saturating_sub(ECHO_BYTES));
    let mut buffers = (vec![0; sent], vec![0; back]);
    let mut busy = 0.0;
    let mut rounds = Vec::new();
    let mut is_first = true;
    while rounds.len() < options.rounds.max(ROUNDS_MIN)
        && (rounds.len() < ROUNDS_MIN || begun.elapsed() < options.limit)
    {
        let round = round(accounting, calls, &mut buffers, Duration::from_nanos(busy as u64))?;
        // Echoes take as long at the server as the calls of the last round did.
        let missing = mean(&round.server, Step::Received, Step::Returned)
            - mean(&round.server_echoes, Step::Received, Step::Returned);
        busy = if busy + missing < BUSY_MIN { 0.0 } else { busy + missing };
        if !core::mem::take(&mut is_first) {
            rounds.push(round);
        }
    }
    Ok(rounds)
}

/// Makes the calls of a round. Echoes occupy the server for `busy`.
fn round(
    accounting: &Accounting,
    calls: &mut Calls<'_>,
    (bytes, back): &mut (Vec<u8>, Vec<u8>),
    busy: Duration,
) -> Result<Round, CallError> {
    let (mut round, mut of_echo) = (Round::default(), Vec::new());
    // Records of calls that failed or were not waited for.
    accounting.server_calls()?;
    for kind in ORDER.into_iter().cycle().take(REPETITIONS * ORDER.len()) {
        match kind {
            CallKind::Plain => {
                Accounting::record_only(&OUTER);
                Accounting::before_call();
                (calls.plain)()?;
                Accounting::after_call();
                round.plain.push(Accounting::last_call());
            }
            CallKind::Accounted => {
                let [called, returned] = OUTER;
                match INNER[round.accounted.len() % INNER.len()] {
                    None => Accounting::record_only(&OUTER),
                    Some(inner) => Accounting::record_only(&[called, inner, returned]),
                }
                Accounting::before_call();
                (calls.accounted)()?;
                Accounting::after_call();
                round.accounted.push(Accounting::last_call());
                of_echo.push(false);
            }
            CallKind::Echo => {
                let inner = ECHO[round.echoes.len() % ECHO.len()];
                Accounting::record_only(&[Step::Called, inner]);
                Accounting::before_call();
                accounting.echo(bytes, back, busy)?;
                Accounting::after_call();
                round.echoes.push(Accounting::last_call());
                of_echo.push(true);
            }
        }
        Accounting::record_only(&OUTER);
        Accounting::before_call();
        Accounting::after_call();
        round.nothing.push(Accounting::last_call());
    }
    let all = records(accounting, of_echo.len())?;
    for (times, of_echo) in all.into_iter().zip(of_echo) {
        let calls = if of_echo { &mut round.server_echoes } else { &mut round.server };
        calls.push(times);
    }
    Ok(round)
}

/// Returns the server's records of `count` calls. The server adds the record of a call after it has sent the
/// result, so the last record may come a moment later.
fn records(accounting: &Accounting, count: usize) -> Result<Vec<CallTimes>, CallError> {
    let (mut records, since) = (accounting.server_calls()?, Instant::now());
    while records.len() < count && since.elapsed() < RECORD_WAIT {
        std::thread::sleep(Duration::from_millis(1));
        records.extend(accounting.server_calls()?);
    }
    if records.len() == count { Ok(records) } else { Err(incomplete(records.len(), count)) }
}

fn incomplete(recorded: usize, made: usize) -> CallError {
    let text = format!(
        "the server has recorded {recorded} of {made} calls: it does not record calls of async \
         procedures, calls with metadata, nor calls after the client has bound again"
    );
    CallError::new(Kind::BadResult, Executed::Maybe, text)
}

/// Returns the mean time between two steps of calls that have stamps at both.
fn mean<'a>(calls: impl IntoIterator<Item = &'a CallTimes>, from: Step, to: Step) -> f64 {
    undisturbed_mean(calls.into_iter().filter_map(|call| call.between(from, to)).collect())
}

/// Returns the time that a stamp takes: the lower quartile of the time between two stamps with nothing between
/// them, because interruptions only make it longer.
fn stamp<'a>(calls: impl IntoIterator<Item = &'a CallTimes>, from: Step, to: Step) -> f64 {
    let between = calls.into_iter().filter_map(|call| call.between(from, to));
    quantile(between.map(|ns| ns as f64).collect(), 0.25)
}

fn has_stamp(times: &CallTimes) -> bool {
    [Step::Received, Step::Admitted].into_iter().any(|step| times.at(step).is_some())
}

fn account_of(rounds: &[Round]) -> Account {
    // The means of all rounds together. The mean of a single round depends on whether one of its calls was
    // interrupted.
    let mut all = Round::default();
    rounds.iter().for_each(|round| all.add(round));
    let client = stamp(&all.nothing, Step::Called, Step::Returned);
    let records = all.server.iter().chain(&all.server_echoes);
    let stamps = [client, stamp(records, Step::Admitted, Step::AdmittedAgain)];
    let of_rounds: Vec<_> = rounds.iter().map(|round| round.parts(stamps)).collect();
    let parts = PARTS.iter().zip(all.parts(stamps)).enumerate();
    let parts = parts.map(|(at, (&(name, side), ns))| {
        let of_rounds = || of_rounds.iter().map(|parts| parts[at]).collect();
        let spread_ns = quantile(of_rounds(), 0.75) - quantile(of_rounds(), 0.25);
        Part { name, side, ns, spread_ns }
    });
    Account {
        parts: parts.collect(),
        whole_ns: all.whole() - client,
        plain_ns: mean(&all.plain, Step::Called, Step::Returned) - client,
        stamp_ns: stamps,
        rounds: rounds.len(),
    }
}

impl Round {
    /// Adds the calls of a round.
    fn add(&mut self, round: &Self) {
        self.plain.extend(&round.plain);
        self.accounted.extend(&round.accounted);
        self.echoes.extend(&round.echoes);
        self.nothing.extend(&round.nothing);
        self.server.extend(&round.server);
        self.server_echoes.extend(&round.server_echoes);
    }

    /// Returns the mean time of the calls that have no stamps but those before and after the call.
    fn whole(&self) -> f64 {
        let pairs = self.accounted.iter().zip(&self.server).enumerate();
        let bare = pairs.filter(|(turn, (_, server))| {
            INNER[turn % INNER.len()].is_none() && !has_stamp(server)
        });
        mean(bare.map(|(_, (client, _))| client), Step::Called, Step::Returned)
    }

    /// Returns the time of each part. `stamps` is what a stamp takes at the client and at the server.
    fn parts(&self, [client, server]: [f64; 2]) -> [f64; PARTS.len()] {
        let until = |step| mean(&self.accounted, Step::Called, step) - client;
        let from = |step| mean(&self.accounted, step, Step::Returned) - client;
        let arrived = |step| mean(&self.server, Step::Received, step) - server;
        // The server's stamps would make an echo longer.
        let bare = self.echoes.iter().zip(&self.server_echoes);
        let bare = bare.filter(|(_, server)| !has_stamp(server)).map(|(client, _)| client);
        let away = mean(bare, Step::Called, Step::Received)
            - mean(&self.echoes, Step::Called, Step::Sending);
        let at_server = mean(&self.server_echoes, Step::Received, Step::Sending) - server;
        [
            until(Step::Begun),
            until(Step::Entered) - until(Step::Begun),
            until(Step::Sending) - until(Step::Entered),
            away - at_server,
            arrived(Step::Admitted),
            arrived(Step::Called) - arrived(Step::Admitted),
            arrived(Step::Returned) - arrived(Step::Called),
            arrived(Step::Sending) - arrived(Step::Returned),
            from(Step::Received) - from(Step::Taken),
            from(Step::Taken),
        ]
    }
}
