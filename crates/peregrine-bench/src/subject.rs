//! Defines the subjects that are measured in a round: a limit, or calls of Peregrine. Each subject is
//! measured for a short time.

use std::borrow::Cow;
use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use peregrine::{BindOptions, Lent, Out, Source, Tracing, Wait};

use crate::cases::{ACCOUNTED, Case, LARGE, Limit, Procedure, Size, TRACED, Waiting};
use crate::concurrent;
use crate::interfaces::{
    Accounted, AccountedClient, Events as _, EventsClient, Huge, HugeClient, Large, LargeClient,
    Middle, MiddleClient, Object, Small, SmallAsync as _, SmallAsyncClient, SmallClient,
    Streams as _, StreamsClient, sum_of_lines,
};
use crate::peer::Peer;
use crate::pingpong::{Exchange, Way};
use crate::ring::LARGE_ITEM;

/// Any failure of a round.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// The result of one measurement, in nanoseconds per call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// The time of a round trip.
    pub(crate) ns: f64,
    /// The processor time of both processes.
    pub(crate) cpu_ns: Option<f64>,
}

/// An operation that is measured, and the time of one call in its last measurement.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    what: What,
    last_ns: Option<f64>,
}

#[derive(Clone, Debug)]
enum What {
    Exchange(Exchange),
    SystemCall,
    Remote(Case, Waiting),
    /// Calls of a client with the layer `Tracing` to a server with this layer. Both sides poll.
    Traced(Case),
    /// Async null calls. The number says how many of them are in flight.
    Futures(Waiting, u32),
    InProcess(Case),
    Object(Procedure),
    /// One-way calls with 16 bytes, or ordinary calls with the same argument.
    Events(Events),
    /// Items of this number of bytes, which a stream carries to a procedure.
    Stream(usize),
    /// Calls that another module makes. The number is an argument of the function.
    Other(OtherCalls, usize),
}

/// A function that makes calls to the other process: which calls, and how many.
pub(crate) type OtherCalls = fn(&mut Peer, usize, u32) -> Result<Sample, Failure>;

/// Calls of the interface [`Events`](crate::interfaces::Events).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Events {
    /// Whether the calls go over UDP, and not over the local path.
    pub(crate) over_udp: bool,
    pub(crate) oneway: bool,
}

/// The number of calls (or round trips) in the first measurement, which only estimates the time of one call.
const GUESS: u32 = 48;
/// The number of round trips before the measured ones. After these round trips, the child is awake.
pub(crate) const WARM_TRIPS: u32 = 64;
/// The number of calls through a new binding before the measured ones. Fewer calls are made if they do not
/// fit into [`WARM_TIME`].
pub(crate) const WARM_CALLS: u32 = 300;
/// The longest time of the calls before the measured ones.
const WARM_TIME: Duration = Duration::from_millis(3);

impl Subject {
    const fn new(what: What) -> Self {
        Self { what, last_ns: None }
    }

    /// Returns the subject that measures `limit` for a case.
    pub(crate) const fn limit(limit: Limit, case: Case) -> Self {
        let way = match limit {
            Limit::OwnSpin => return Self::remote(case, Waiting::Spin),
            Limit::OwnBlock => return Self::remote(case, Waiting::Block),
            Limit::OneBinding => return Self::remote(case, Waiting::Adaptive),
            Limit::SystemCall => return Self::new(What::SystemCall),
            Limit::Lines | Limit::CopyThenRead => Way::Spin,
            Limit::Futex => Way::Futex,
            Limit::Yield => Way::Yield,
        };
        Self::new(What::Exchange(Exchange {
            way,
            in_bytes: case.in_bytes,
            out_bytes: case.out_bytes,
        }))
    }

    /// Returns the subject that calls the other process.
    pub(crate) const fn remote(case: Case, wait: Waiting) -> Self {
        Self::new(What::Remote(case, wait))
    }

    /// Returns the subject that calls the other process. Both sides poll, and both have the layer `Tracing`.
    /// No program has a subscriber, so the layer is idle.
    pub(crate) const fn traced(case: Case) -> Self {
        Self::new(What::Traced(case))
    }

    /// Returns the subject that makes async null calls from one thread, `in_flight` at a time.
    pub(crate) const fn futures(wait: Waiting, in_flight: u32) -> Self {
        Self::new(What::Futures(wait, in_flight))
    }

    /// Returns the subject that makes one-way or ordinary calls with 16 bytes of arguments.
    pub(crate) const fn events(events: Events) -> Self {
        Self::new(What::Events(events))
    }

    /// Returns the subject that sends items of `bytes` bytes in a stream.
    pub(crate) const fn stream(bytes: usize) -> Self {
        Self::new(What::Stream(bytes))
    }

    /// Returns the subject that makes the calls `run(peer, which, number)`.
    pub(crate) const fn other(run: OtherCalls, which: usize) -> Self {
        Self::new(What::Other(run, which))
    }

    /// Returns the subject that passes `bytes` bytes at a time through a ring in shared memory.
    pub(crate) const fn ring(bytes: usize) -> Self {
        Self::new(What::Exchange(Exchange { way: Way::Ring, in_bytes: bytes, out_bytes: 0 }))
    }

    /// Returns the subject that calls through the stubs within this process.
    pub(crate) const fn in_process(case: Case) -> Self {
        Self::new(What::InProcess(case))
    }

    /// Returns the subject that calls the methods of the object directly.
    pub(crate) const fn object(procedure: Procedure) -> Self {
        Self::new(What::Object(procedure))
    }

    /// Measures the subject for about the time `slice`.
    pub(crate) fn measure(&mut self, peer: &mut Peer, slice: Duration) -> Result<Sample, Failure> {
        if self.last_ns.is_none() {
            let guess = self.run(peer, GUESS)?;
            self.last_ns = Some(guess.ns);
        }
        let each = self.last_ns.unwrap_or(1.0).max(0.5);
        let calls = (slice.as_nanos() as f64 / each).clamp(8.0, 4e6) as u32;
        let sample = self.run(peer, calls)?;
        self.last_ns = Some(sample.ns);
        Ok(sample)
    }

    fn run(&self, peer: &mut Peer, calls: u32) -> Result<Sample, Failure> {
        let alone = |took: Duration| Sample { ns: per_call(took, calls), cpu_ns: None };
        let mut buffer = vec![0xa5; LARGE];
        Ok(match self.what {
            What::Exchange(what) => alone(peer.exchange(what, WARM_TRIPS, calls)?),
            What::SystemCall => alone(timed(calls, || {
                black_box(std::os::unix::process::parent_id());
                Ok(())
            })?),
            What::InProcess(case) => {
                let client = SmallClient::in_process(Object);
                let mut run = |calls| small(&client, case.procedure, &mut buffer, case, calls);
                run(WARM_CALLS)?;
                alone(run(calls)?)
            }
            What::Object(procedure) => {
                let (object, case) = (black_box(&Object), Case::named("null").expect("a case"));
                small(object, procedure, &mut buffer, case, WARM_CALLS)?;
                alone(small(object, procedure, &mut buffer, case, calls)?)
            }
            What::Remote(case, wait) => {
                let (name, options) = (peer.export(wait, case.size), BindOptions::default());
                remote(peer, &name, case, &options.wait(wait.wait()), &mut buffer, calls)?
            }
            What::Traced(case) => {
                let (name, options) = (peer.named(TRACED), BindOptions::default().wait(Wait::Spin));
                remote(peer, &name, case, &options.layer(Tracing::new()), &mut buffer, calls)?
            }
            What::Futures(wait, in_flight) => futures(peer, wait, in_flight, calls)?,
            What::Events(events) => make_events(peer, events, calls)?,
            What::Stream(bytes) => send_items(peer, bytes, calls)?,
            What::Other(run, which) => run(peer, which, calls)?,
        })
    }
}

/// Returns the time of one call in nanoseconds.
pub(crate) fn per_call(took: Duration, calls: u32) -> f64 {
    took.as_nanos() as f64 / f64::from(calls)
}

/// Makes calls to an export through a new binding, and then drops the binding, so that no server thread spins for it while
/// the limit is measured.
fn remote(
    peer: &mut Peer,
    name: &str,
    case: Case,
    options: &BindOptions,
    buffer: &mut [u8],
    calls: u32,
) -> Result<Sample, Failure> {
    let client = Client::bind_with(name, case.size, options)?;
    let mut run = |calls| client.run(case, buffer, calls);
    let start = Instant::now();
    let mut warm = 0;
    while warm < WARM_CALLS && start.elapsed() < WARM_TIME {
        run(4)?;
        warm += 4;
    }
    let before = peer.cpu_time()?;
    // Reading the processor times disturbs both processes. A few calls that are not timed let the processes
    // settle.
    let settle = (calls / 8).clamp(2, 100);
    run(settle)?;
    let took = run(calls)?;
    let ran = peer.cpu_time()?.saturating_sub(before);
    drop(client);
    quiet(name)?;
    Ok(Sample { ns: per_call(took, calls), cpu_ns: Some(per_call(ran, calls + settle)) })
}

/// Makes `calls` async null calls through a new binding. Each of `in_flight` futures makes a part of the
/// calls, one after the other.
fn futures(peer: &mut Peer, wait: Waiting, in_flight: u32, calls: u32) -> Result<Sample, Failure> {
    let name = peer.export(wait, Size::Small);
    let options = BindOptions::default().wait(wait.wait());
    let client = SmallAsyncClient::from(SmallClient::bind_with(&name, &options)?);
    repeat_together(&client, in_flight, WARM_CALLS)?;
    let before = peer.cpu_time()?;
    let (calls, took) = repeat_together(&client, in_flight, calls)?;
    let ran = peer.cpu_time()?.saturating_sub(before);
    drop(client);
    quiet(&name)?;
    Ok(Sample { ns: per_call(took, calls), cpu_ns: Some(per_call(ran, calls)) })
}

/// Makes at least `calls` async null calls from one thread, `in_flight` at a time. Returns the number of
/// calls, and their time.
pub(crate) fn repeat_together(
    client: &SmallAsyncClient,
    in_flight: u32,
    calls: u32,
) -> peregrine::Result<(u32, Duration)> {
    let each = calls.div_ceil(in_flight).max(1);
    let start = Instant::now();
    if in_flight == 1 {
        concurrent::block_on(repeat(client, each))?;
    } else {
        concurrent::join((0..in_flight).map(|_| repeat(client, each)).collect())?;
    }
    Ok((each * in_flight, start.elapsed()))
}

/// Makes calls with 16 bytes through a new binding. One-way calls are measured until all of them have ended.
fn make_events(peer: &mut Peer, events: Events, calls: u32) -> Result<Sample, Failure> {
    let wait = if events.over_udp { Waiting::Adaptive } else { Waiting::Spin };
    let name = peer.events(wait);
    let address = match events.over_udp {
        false => name.clone(),
        true => {
            let listens = peregrine::describe(&name)?.listens;
            let endpoint = listens.iter().find_map(|one| one.strip_prefix("udp:"));
            format!("udp:{name}@{}", endpoint.ok_or("the server does not listen over UDP")?)
        }
    };
    let client = EventsClient::bind_with(&address, &BindOptions::default().wait(wait.wait()))?;
    let bytes = [0xa5; 16];
    let run = |calls: u32| -> peregrine::Result<Duration> {
        let start = Instant::now();
        match events.oneway {
            true => timed(calls, || client.note(black_box(&bytes)))?,
            false => timed(calls, || client.noted(black_box(&bytes)))?,
        };
        client.flush()?;
        Ok(start.elapsed())
    };
    run(WARM_CALLS)?;
    let before = peer.cpu_time()?;
    let took = run(calls)?;
    let ran = peer.cpu_time()?.saturating_sub(before);
    drop(client);
    quiet(&name)?;
    Ok(Sample { ns: per_call(took, calls), cpu_ns: Some(per_call(ran, calls)) })
}

/// Sends items of `bytes` bytes in a stream of one call.
fn send_items(peer: &mut Peer, bytes: usize, items: u32) -> Result<Sample, Failure> {
    static ITEM: [u8; LARGE_ITEM] = [0xa5; LARGE_ITEM];
    let wait = Waiting::Spin;
    let name = peer.streams(wait);
    // The stream has many items, so that the beginning and the end of its call hardly count.
    let items = items.max(if bytes == LARGE_ITEM { 256 } else { 1 << 16 });
    let client = StreamsClient::bind_with(&name, &BindOptions::default().wait(wait.wait()))?;
    let run = |items: u32| -> peregrine::Result<Duration> {
        let start = Instant::now();
        match bytes {
            LARGE_ITEM => {
                let item = |_| Cow::Borrowed(&black_box(&ITEM)[..]);
                client.large(Source::new((0..items).map(item)))?;
            }
            _ => client.small(Source::new((0..items).map(|_| black_box([0xa5; 16]))))?,
        }
        Ok(start.elapsed())
    };
    run(if bytes == LARGE_ITEM { WARM_TRIPS } else { WARM_CALLS })?;
    let before = peer.cpu_time()?;
    let took = run(items)?;
    let ran = peer.cpu_time()?.saturating_sub(before);
    drop(client);
    quiet(&name)?;
    Ok(Sample { ns: per_call(took, items), cpu_ns: Some(per_call(ran, items)) })
}

/// Makes async null calls one after the other.
async fn repeat(client: &SmallAsyncClient, calls: u32) -> peregrine::Result<()> {
    for _ in 0..calls {
        client.null().await?;
    }
    Ok(())
}

/// Makes calls whose steps are recorded as stamps, and returns their time without binding and unbinding.
pub(crate) fn accounted(case: Case, calls: u32) -> Result<Duration, Failure> {
    let client = AccountedClient::bind_with(ACCOUNTED, &BindOptions::default().wait(Wait::Spin))?;
    let mut buffer = vec![0xa5; LARGE];
    let mut run = |calls| match case.procedure {
        Procedure::Null => timed(calls, || client.null()),
        Procedure::Both => {
            let bytes = &mut buffer[..case.in_bytes];
            timed(calls, || client.both(black_box(bytes)))
        }
        _ => {
            let bytes = &buffer[..case.in_bytes];
            timed(calls, || client.take(black_box(bytes)))
        }
    };
    run(WARM_CALLS)?;
    let took = run(calls)?;
    drop(client);
    quiet(ACCOUNTED)?;
    Ok(took)
}

/// Returns the stamps that the server has recorded since the last call of this function.
pub(crate) fn server_stamps() -> Result<Vec<u64>, Failure> {
    let client = AccountedClient::bind(ACCOUNTED)?;
    let mut stamps = Vec::with_capacity(1 << 14);
    client.stamps(Out::from(&mut stamps))?;
    drop(client);
    quiet(ACCOUNTED)?;
    Ok(stamps)
}

/// Waits until the server's threads have left the closed sessions of the export `name`.
pub(crate) fn quiet(name: &str) -> Result<(), Failure> {
    let start = Instant::now();
    while peregrine::describe(name)?.bindings > 0 {
        if start.elapsed() > Duration::from_secs(5) {
            return Err(format!("the server still has a closed session of `{name}`").into());
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    // The session is closed. Threads that spin for it notice this within microseconds.
    std::thread::sleep(Duration::from_micros(300));
    Ok(())
}

/// A client of one of the interfaces that are measured.
pub(crate) enum Client {
    Small(SmallClient),
    Middle(MiddleClient),
    Large(LargeClient),
    Huge(HugeClient),
}

impl Client {
    /// Binds to the export `name`. The export must have the interface for data of the size `size`.
    pub(crate) fn bind_with(
        name: &str,
        size: Size,
        options: &BindOptions,
    ) -> peregrine::Result<Self> {
        Ok(match size {
            Size::Small => Self::Small(SmallClient::bind_with(name, options)?),
            Size::Middle => Self::Middle(MiddleClient::bind_with(name, options)?),
            Size::Large => Self::Large(LargeClient::bind_with(name, options)?),
            Size::Huge => Self::Huge(HugeClient::bind_with(name, options)?),
        })
    }

    /// Makes `calls` calls of a case, with arguments from `buffer`. Returns the time of all calls.
    pub(crate) fn run(
        &self,
        case: Case,
        buffer: &mut [u8],
        calls: u32,
    ) -> peregrine::Result<Duration> {
        let both = case.procedure == Procedure::Both;
        match self {
            Self::Small(client) => small(client, case.procedure, buffer, case, calls),
            Self::Middle(client) if both => {
                let bytes = &mut buffer[..case.in_bytes];
                timed(calls, || client.both(black_box(bytes)))
            }
            Self::Middle(client) => {
                let bytes = &buffer[..case.in_bytes];
                timed(calls, || client.take(black_box(bytes)))
            }
            Self::Large(client) => large(client, buffer, case, calls),
            Self::Huge(client) => {
                let bytes = &buffer[..case.in_bytes];
                timed(calls, || client.take(black_box(bytes)))
            }
        }
    }
}

/// Makes calls of the interface [`Large`], and returns the time of all calls.
fn large(
    object: &impl Large,
    buffer: &mut [u8],
    case: Case,
    calls: u32,
) -> peregrine::Result<Duration> {
    if case.procedure == Procedure::Give {
        let bytes = &mut buffer[..case.out_bytes];
        return timed(calls, || {
            object.give(Out::from(black_box(&mut *bytes)))?;
            // One word of each cache line is read, because the limit and the procedures do the same with data
            // that they receive.
            black_box(sum_of_lines(black_box(bytes)));
            Ok(())
        });
    }
    let bytes = &buffer[..case.in_bytes];
    match case.procedure {
        Procedure::Lend => timed(calls, || object.lend(Lent::from(black_box(bytes)))),
        _ => timed(calls, || object.take(black_box(bytes))),
    }
}

/// Makes calls of any implementation of the interface [`Small`], and returns the time of all calls.
fn small(
    object: &impl Small,
    procedure: Procedure,
    buffer: &mut [u8],
    case: Case,
    calls: u32,
) -> peregrine::Result<Duration> {
    match procedure {
        Procedure::Null => timed(calls, || object.null()),
        Procedure::Add => timed(calls, || {
            black_box(object.add(black_box(3), black_box(4))?);
            Ok(())
        }),
        Procedure::Take | Procedure::Lend => {
            let bytes = &buffer[..case.in_bytes];
            timed(calls, || object.take(black_box(bytes)))
        }
        Procedure::Both => {
            let bytes = &mut buffer[..case.in_bytes];
            timed(calls, || object.both(black_box(bytes)))
        }
        Procedure::Give => {
            let bytes = &mut buffer[..case.out_bytes];
            timed(calls, || object.give(Out::from(black_box(&mut *bytes))))
        }
    }
}

/// Calls the function `call` `calls` times, and returns the total time.
#[inline]
pub(crate) fn timed(
    calls: u32,
    mut call: impl FnMut() -> peregrine::Result<()>,
) -> peregrine::Result<Duration> {
    let start = Instant::now();
    for _ in 0..calls {
        call()?;
    }
    Ok(start.elapsed())
}
