//! The experiment `concurrent`: measures async calls to another process, one at a time and many in flight
//! from one thread. It compares them with blocking calls, and with calls by other systems if this program was
//! built with its peers. Also measures one-way calls and streams.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{Thread, current, park};

use crate::cases::{Case, Placement, Waiting};
use crate::local::{in_each_placement, rounds, split};
use crate::peer::Peer;
use crate::ring::LARGE_ITEM;
use crate::row::Row;
use crate::subject::{Events, Failure, Sample, Subject};
use crate::{Progress, Selection, network};

/// The names of the measurements: async null calls one at a time, and 1,000 in flight; one-way calls with
/// 16 bytes; items of streams with 16 bytes and with 64 KiB.
pub(crate) const CASES: [&str; 5] =
    ["async-null", "async-1000", ONEWAY, STREAMS[0].0, STREAMS[1].0];

const ONEWAY: &str = "oneway-16";
/// The cases with streams, the size of an item in bytes, and the name of the limit.
const STREAMS: [(&str, usize, &str); 2] =
    [("stream-16", 16, "ring"), ("stream-64k", LARGE_ITEM, "copy-then-read")];

/// The number of calls in flight of `async-1000`.
const IN_FLIGHT: u32 = 1000;

/// Measures everything that was selected.
pub(crate) fn measure(selection: &Selection, progress: &Progress) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    let null = Case::named("null").ok_or("there is no case `null`")?;
    in_each_placement(selection, |placement, peer| {
        if placement != Placement::TwoCores {
            return Ok(());
        }
        let cases = [
            (CASES[0], 1, "own-blocking", Waiting::Adaptive),
            (CASES[1], IN_FLIGHT, "own-spin", Waiting::Spin),
        ];
        for (case, in_flight, limit, limit_wait) in cases {
            if !selection.has_case(case) {
                continue;
            }
            progress.show(case);
            let wait = Waiting::Adaptive;
            let subjects =
                vec![Subject::futures(wait, in_flight), Subject::remote(null, limit_wait)];
            let samples = rounds(selection, peer, subjects)?;
            rows.push(near_row(case, wait, placement, limit, &samples));
        }
        #[cfg(feature = "peers")]
        if selection.has_case(CASES[0]) {
            rows.extend(near_peers(selection, peer)?);
        }
        if selection.has_case(ONEWAY) {
            progress.show(ONEWAY);
            rows.extend(oneway(selection, placement, peer)?);
        }
        for (case, bytes, limit) in STREAMS {
            if !selection.has_case(case) {
                continue;
            }
            progress.show(case);
            let subjects = vec![Subject::stream(bytes), Subject::ring(bytes)];
            let samples = rounds(selection, peer, subjects)?;
            rows.push(near_row(case, Waiting::Spin, placement, limit, &samples));
        }
        Ok(())
    })?;
    if selection.has_case(CASES[1]) {
        rows.extend(network::concurrent(selection, CASES[1], IN_FLIGHT, progress)?);
    }
    Ok(rows)
}

/// Returns the row of a case on the local path. `samples` has the samples of Peregrine, and those
/// of the limit.
pub(crate) fn near_row(
    case: &'static str,
    wait: Waiting,
    placement: Placement,
    limit: &'static str,
    samples: &[Vec<Sample>],
) -> Row {
    let ((ours, cpu), (theirs, _)) = (split(&samples[0]), split(&samples[1]));
    let row = Row {
        path: Some("local"),
        wait: Some(wait.name()),
        placement: Some(placement.name()),
        bindings: 1,
        ..Row::new(case)
    };
    row.ours(&ours, &cpu).limit(limit, &theirs).ratio(&ours, &theirs)
}

/// Measures async null calls one at a time, and compares them with null calls of other systems over Unix
/// sockets.
#[cfg(feature = "peers")]
fn near_peers(selection: &Selection, peer: &mut Peer) -> Result<Vec<Row>, Failure> {
    use crate::network::other::{self, Pair};
    /// The number of calls in the first measurement, which only estimates the time of a call.
    const GUESS: u32 = 48;
    let placement = Placement::TwoCores;
    let cpus = placement.processors(&crate::machine::processors()).unwrap_or_default();
    let directory = crate::run_directory::of_this_run()?;
    let mut pairs = Vec::new();
    for other in other::Peer::NEAR {
        let mut pair = Pair::start_near(other, &directory.join(other.name()), cpus)?;
        let each = pair.calls(GUESS, GUESS)?;
        pairs.push((other.name(), pair, each));
    }
    let wait = Waiting::Adaptive;
    let mut ours = Subject::futures(wait, 1);
    let slice = selection.slice();
    let samples = crate::local::in_turn(selection.rounds(), 1 + pairs.len(), |subject| {
        let Some((_, pair, each)) = subject.checked_sub(1).map(|pair| &mut pairs[pair]) else {
            return ours.measure(peer, slice);
        };
        let calls = (slice.as_nanos() as f64 / *each).clamp(8.0, 4e6) as u32;
        *each = pair.calls(GUESS, calls)?;
        Ok(Sample { ns: *each, cpu_ns: None })
    })?;
    let (ours, cpu) = split(&samples[0]);
    let rows = pairs.iter().zip(&samples[1..]).map(|((name, ..), theirs)| {
        let (theirs, _) = split(theirs);
        let row = Row {
            path: Some("local"),
            wait: Some(wait.name()),
            placement: Some(placement.name()),
            bindings: 1,
            ..Row::new(CASES[0])
        };
        row.ours(&ours, &cpu).limit(name, &theirs).ratio(&ours, &theirs)
    });
    Ok(rows.collect())
}

/// Measures one-way calls on the local path and over UDP.
fn oneway(
    selection: &Selection,
    placement: Placement,
    peer: &mut Peer,
) -> Result<Vec<Row>, Failure> {
    let events = |over_udp, oneway| Subject::events(Events { over_udp, oneway });
    let rows = [
        ("local", "memory", Waiting::Spin, "ring", [events(false, true), Subject::ring(16)]),
        (
            "udp",
            "loopback",
            Waiting::Adaptive,
            "own-two-way",
            [true, false].map(|oneway| events(true, oneway)),
        ),
    ];
    let measured = rows.into_iter().map(|(path, link, wait, limit, subjects)| {
        let samples = rounds(selection, peer, subjects.into())?;
        let ((ours, cpu), (theirs, _)) = (split(&samples[0]), split(&samples[1]));
        let row = Row {
            path: Some(path),
            link: Some(link),
            wait: Some(wait.name()),
            placement: Some(placement.name()),
            bindings: 1,
            ..Row::new(ONEWAY)
        };
        Ok(row.ours(&ours, &cpu).limit(limit, &theirs).ratio(&ours, &theirs))
    });
    measured.collect()
}

struct Unparks(Thread);

impl Wake for Unparks {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unparks(current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => park(),
        }
    }
}

/// The numbers of the futures that were woken, and the thread that polls them.
struct Woken {
    queue: Mutex<Vec<usize>>,
    thread: Thread,
}

/// The waker of one future: the number of the future, and the queue to which `wake` adds the number.
struct One(usize, Arc<Woken>);

impl Wake for One {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        let mut queue = self.1.queue.lock().expect("no thread panics with the lock");
        queue.push(self.0);
        let was_empty = queue.len() == 1;
        drop(queue);
        if was_empty {
            self.1.thread.unpark();
        }
    }
}

/// Runs all futures to their ends on this thread, and polls only those that were woken.
pub(crate) fn join<F: Future<Output = peregrine::Result<()>>>(
    futures: Vec<F>,
) -> peregrine::Result<()> {
    let mut futures: Vec<Option<Pin<Box<F>>>> =
        futures.into_iter().map(|one| Some(Box::pin(one))).collect();
    let queue = Mutex::new((0..futures.len()).collect());
    let woken = Arc::new(Woken { queue, thread: current() });
    let wakers: Vec<_> = (0..futures.len())
        .map(|number| Waker::from(Arc::new(One(number, Arc::clone(&woken)))))
        .collect();
    let (mut left, mut batch) = (futures.len(), Vec::new());
    while left > 0 {
        core::mem::swap(&mut batch, &mut *woken.queue.lock().expect("as above"));
        if batch.is_empty() {
            park();
        }
        for number in batch.drain(..) {
            let Some(future) = &mut futures[number] else { continue };
            let mut context = Context::from_waker(&wakers[number]);
            if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
                result?;
                futures[number] = None;
                left -= 1;
            }
        }
    }
    Ok(())
}
