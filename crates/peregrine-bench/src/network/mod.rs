//! The experiment `network`: measures calls across a link. Each call is compared with the fastest exchange
//! that the link allows.

mod echo;
pub(crate) mod far;
pub(crate) mod gone;
pub(crate) mod link;
mod order;
#[cfg(feature = "peers")]
pub(crate) mod other;
pub(crate) mod own;
pub(crate) mod path;
mod penalty;
mod raw;
pub(crate) mod wire;

use std::time::{Duration, Instant};

use clap::Args;
use peregrine::sys::pin_to;

use self::far::{Far, Order};
use self::link::Link;
use self::own::Own;
use self::path::Path;
use self::raw::Device;
use self::wire::{Exchange, HEADER, Packets, Stream};
use crate::cases::{Case, IN_16M, Placement, THREADS, Waiting};
use crate::local::{in_turn, split};
use crate::row::Row;
use crate::subject::{Failure, Sample};
use crate::{Progress, Selection, machine, statistics, window};

/// The filters that this experiment has in addition to those of `Selection`.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Filter {
    /// Only this link (may be repeated)
    #[arg(long = "link", value_enum)]
    pub(crate) links: Vec<Link>,
    /// Only this way to wait (may be repeated)
    #[arg(long = "wait", value_enum)]
    pub(crate) waits: Vec<Waiting>,
    /// Only this path (may be repeated)
    #[arg(long = "path", value_enum)]
    pub(crate) paths: Vec<Path>,
    /// Whether only the limits are measured, without Peregrine.
    #[arg(skip)]
    pub(crate) limits_only: bool,
}

impl Filter {
    /// Returns the filter for one link.
    pub(crate) fn only(link: Link) -> Self {
        Self { links: vec![link], ..Self::default() }
    }

    /// Returns this filter, restricted to the limits.
    pub(crate) fn limits_only(self) -> Self {
        Self { limits_only: true, ..self }
    }

    fn has_path(&self, path: Path) -> bool {
        self.paths.is_empty() || self.paths.contains(&path)
    }

    pub(crate) fn has_link(&self, link: Link) -> bool {
        self.links.is_empty() || self.links.contains(&link)
    }

    fn has_wait(&self, wait: Waiting) -> bool {
        self.waits.is_empty() || self.waits.contains(&wait)
    }
}

/// The calls of Tables 3 and 5 of the Peregrine paper, and a larger call.
const CASES: [&str; 9] = [
    "null",
    "in-4",
    "in-1024",
    "inout-1024",
    "in-3000",
    "inout-3000",
    "in-48000",
    "inout-48000",
    "in-16m",
];

/// Calls whose messages have end-to-end checksums: the names of their rows and of their cases, and the paths
/// on which they are measured.
const CHECKED: [(&str, &str, &[Path]); 3] = [
    ("in-1024-checked", "in-1024", &[Path::Udp, Path::Ethernet]),
    ("inout-3000-checked", "inout-3000", &[Path::Udp]),
    ("in-48000-checked", "in-48000", &[Path::Udp, Path::Ethernet]),
];

/// The name of an additional limit for Peregrine's calls over raw Ethernet: Peregrine's calls over UDP.
const OWN_UDP: &str = "own-udp";

/// The combinations of placement and waiting.
const CONDITIONS: [(Placement, Waiting); 3] = [
    (Placement::TwoCores, Waiting::Spin),
    (Placement::TwoCores, Waiting::Block),
    (Placement::OneCore, Waiting::Block),
];

/// The numbers of concurrent callers.
const CALLERS: [u32; 3] = [4, 16, 64];

/// A program that is measured across a link, round by round.
pub(crate) trait Subject {
    /// Returns the name of the subject, as rows show it.
    fn name(&self) -> &'static str;

    /// Measures `calls` calls, after `warm` calls that are not measured. Returns the mean times per call. All
    /// resources are released when this function returns, because no thread may spin while other subjects are
    /// measured.
    ///
    /// # Errors
    /// If the measurement fails.
    fn run(&mut self, far: &mut Far, warm: u32, calls: u32) -> Result<Sample, Failure>;
}

/// Returns the subject that makes Peregrine's calls on a path.
pub(crate) fn ours(path: Path, case: Case, wait: Waiting) -> Box<dyn Subject> {
    Box::new(Own { path, case, wait, check: None })
}

/// Returns the limits of a case on a path. Peregrine is compared with the fastest of them.
fn limits(path: Path, case: Case, wait: Waiting, link: Link) -> Vec<Box<dyn Subject>> {
    let spin = wait == Waiting::Spin;
    let framed = |device: &Device| -> Box<dyn Subject> {
        let [there, back] = [case.in_bytes, case.out_bytes].map(|bytes| raw::packets(bytes, link));
        let blast = there.is_blast() || back.is_blast();
        let name = if blast { device.blast() } else { device.pingpong() };
        Box::new(Framed { name, device: *device, spin, there, back, divisor: 1.0 })
    };
    match path {
        Path::Udp => {
            let packets = |bytes| Packets::of_message(bytes, link);
            let (there, back) = (packets(case.in_bytes), packets(case.out_bytes));
            let name =
                if there.is_blast() || back.is_blast() { "blast-ack" } else { "udp-pingpong" };
            vec![Box::new(Exchanged { name, spin, there, back, divisor: 1.0 })]
        }
        Path::Tcp => {
            let (there, back) = (HEADER + case.in_bytes, HEADER + case.out_bytes);
            vec![Box::new(Streamed { spin, there, back })]
        }
        Path::Ethernet | Path::EthernetPacket => path.devices().iter().map(framed).collect(),
    }
}

/// A subject that exchanges packets over UDP: `udp-pingpong`, `blast-ack`, or the measurement of the network
/// penalty (the time of one direction).
pub(crate) struct Exchanged {
    name: &'static str,
    spin: bool,
    there: Packets,
    back: Packets,
    /// The divisor of the time: 2 for the time of one direction, otherwise 1.
    divisor: f64,
}

impl Subject for Exchanged {
    fn name(&self) -> &'static str {
        self.name
    }

    fn run(&mut self, far: &mut Far, warm: u32, calls: u32) -> Result<Sample, Failure> {
        let (spin, there, back) = (self.spin, self.there, self.back);
        let what = Exchange { spin, there, back, trips: warm + calls };
        let at = far.order(Order::Udp(what))?;
        let sample = per_call(wire::udp_lead(at[0], what, warm)?, calls);
        Ok(Sample { ns: sample.ns / self.divisor, ..sample })
    }
}

/// A subject that exchanges raw Ethernet frames: `xdp-pingpong`, `packet-pingpong`, `blast-ack`, or the
/// measurement of the network penalty.
struct Framed {
    name: &'static str,
    device: Device,
    spin: bool,
    there: Packets,
    back: Packets,
    /// The divisor of the time, as in [`Exchanged`].
    divisor: f64,
}

impl Subject for Framed {
    fn name(&self) -> &'static str {
        self.name
    }

    fn run(&mut self, far: &mut Far, warm: u32, calls: u32) -> Result<Sample, Failure> {
        let (device, near) = (self.device, far.link().near());
        let (spin, there, back) = (self.spin, self.there, self.back);
        let what = Exchange { spin, there, back, trips: warm + calls };
        let at = far.order_raw(device, what)?;
        let sample = per_call(raw::lead(device, near, at, what, warm)?, calls);
        Ok(Sample { ns: sample.ns / self.divisor, ..sample })
    }
}

impl Exchanged {
    /// Returns the subject `udp-pingpong`. Its messages have `there` bytes, and its answers `back` bytes.
    pub(crate) const fn pingpong(spin: bool, there: usize, back: usize) -> Self {
        let there = Packets { bytes: there, segment: there };
        let back = Packets { bytes: back, segment: back };
        Self { name: "udp-pingpong", spin, there, back, divisor: 1.0 }
    }
}

/// The subject `tcp-pingpong`: a program that exchanges messages and answers over a TCP connection.
pub(crate) struct Streamed {
    pub(crate) spin: bool,
    /// The number of bytes of a message.
    pub(crate) there: usize,
    /// The number of bytes of an answer.
    pub(crate) back: usize,
}

impl Subject for Streamed {
    fn name(&self) -> &'static str {
        "tcp-pingpong"
    }

    fn run(&mut self, far: &mut Far, warm: u32, calls: u32) -> Result<Sample, Failure> {
        let (spin, there, back) = (self.spin, self.there, self.back);
        let what = Stream { spin, there, back, trips: warm + calls };
        let at = far.order(Order::Tcp(what))?;
        Ok(per_call(wire::tcp_lead(at[0], what, warm)?, calls))
    }
}

/// The subject that sends blasts (messages of many packets). The packets are sent one by one.
struct Blast {
    /// Whether the first packet is sent last. Otherwise it is sent first.
    first_last: bool,
}

impl Subject for Blast {
    fn name(&self) -> &'static str {
        if self.first_last { "first-last" } else { "in-order" }
    }

    fn run(&mut self, far: &mut Far, warm: u32, calls: u32) -> Result<Sample, Failure> {
        let at = far.order(Order::Blast(self.first_last, warm + calls))?;
        let took = order::lead(at[0], self.first_last, warm, warm + calls)?;
        Ok(per_call(took, calls))
    }
}

pub(crate) fn per_call(took: Duration, calls: u32) -> Sample {
    Sample { ns: took.as_nanos() as f64 / f64::from(calls), cpu_ns: None }
}

/// Calls the function `call` `calls` times, and returns the total time.
pub(crate) fn timed(
    calls: u32,
    mut call: impl FnMut() -> Result<(), Failure>,
) -> Result<Duration, Failure> {
    let start = Instant::now();
    (0..calls).try_for_each(|_| call())?;
    Ok(start.elapsed())
}

/// Measures calls, and the processor time of both processes. `run` makes a number of calls, and returns the
/// time that they took.
pub(crate) fn measured(
    far: &Far,
    warm: u32,
    calls: u32,
    mut run: impl FnMut(u32) -> Result<Duration, Failure>,
) -> Result<Sample, Failure> {
    run(warm)?;
    let before = far.cpu_time()?;
    // Reading the processor times disturbs both processes. A few calls that are not timed let the processes
    // settle.
    let settle = (calls / 8).clamp(1, 100);
    run(settle)?;
    let took = run(calls)?;
    let ran = far.cpu_time()?.saturating_sub(before);
    let cpu_ns = ran.as_nanos() as f64 / f64::from(calls + settle);
    Ok(Sample { cpu_ns: Some(cpu_ns), ..per_call(took, calls) })
}

/// The time for which calls are made before the measured ones. Peregrine and the limits use the same time,
/// because a limit with a shorter warm-up would make Peregrine look better.
const WARM_TIME: Duration = Duration::from_millis(8);

/// A subject, and the time per call that was measured last.
struct Timed {
    subject: Box<dyn Subject>,
    last_ns: Option<f64>,
}

impl Timed {
    fn measure(&mut self, far: &mut Far, slice: Duration) -> Result<Sample, Failure> {
        const GUESS: u32 = 2;
        let each = match self.last_ns {
            Some(ns) => ns,
            None => self.subject.run(far, GUESS, GUESS)?.ns,
        };
        let within = |time: Duration| time.as_nanos() as f64 / each.max(1.0);
        let warm = within(WARM_TIME).clamp(1.0, 1e6) as u32;
        let sample = self.subject.run(far, warm, within(slice).clamp(2.0, 4e6) as u32)?;
        self.last_ns = Some(sample.ns);
        Ok(sample)
    }
}

/// Measures all subjects in every round. Returns the samples by subject.
pub(crate) fn rounds(
    selection: &Selection,
    far: &mut Far,
    subjects: Vec<Box<dyn Subject>>,
) -> Result<Vec<Vec<Sample>>, Failure> {
    rounds_of(selection.rounds(), selection.slice(), far, subjects)
}

/// Measures each subject for about the time `slice` in each of `count` rounds, as [`rounds`] does.
pub(crate) fn rounds_of(
    count: usize,
    slice: Duration,
    far: &mut Far,
    subjects: Vec<Box<dyn Subject>>,
) -> Result<Vec<Vec<Sample>>, Failure> {
    let mut timed: Vec<_> =
        subjects.into_iter().map(|subject| Timed { subject, last_ns: None }).collect();
    in_turn(count, timed.len(), |subject| timed[subject].measure(far, slice))
}

/// Measures everything that was selected.
pub(crate) fn measure(
    selection: &Selection,
    filter: &Filter,
    progress: &Progress,
) -> Result<Vec<Row>, Failure> {
    let mut rows = calls(selection, filter, &CASES, progress)?;
    let crowds = filter.has_wait(Waiting::Block) && filter.has_path(Path::Udp);
    if crowds && selection.has_case(THREADS) {
        on_each_link(selection, filter, Placement::Free, |link, far| {
            for callers in CALLERS {
                progress.show(&format!("{}, free: {THREADS}, {callers}", link.name()));
                rows.push(crowded(selection, filter, callers, far)?);
            }
            Ok(())
        })?;
    }
    Ok(rows)
}

/// Measures those of `cases`, and of the cases with checksums, that were selected.
pub(crate) fn calls(
    selection: &Selection,
    filter: &Filter,
    cases: &[&str],
    progress: &Progress,
) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for (placement, wait) in CONDITIONS {
        if !filter.has_wait(wait) {
            continue;
        }
        on_each_link(selection, filter, placement, |link, far| {
            let paths = Paths::find(filter, wait, far)?;
            for name in cases.iter().filter(|name| selection.has_case(name)) {
                let case = Case::named(name).unwrap_or(IN_16M);
                let (place, wait_name) = (placement.name(), wait.name());
                progress.show(&format!("{}, {place}, {wait_name}: {name}", link.name()));
                for group in Path::GROUPS {
                    let paths = paths.of(group, case);
                    rows.extend(of_case(selection, case, (placement, wait), &paths, far)?);
                }
            }
            if (placement, wait) == CONDITIONS[0] {
                let wanted = CHECKED.into_iter().filter(|one| selection.has_case(one.0));
                for (name, case, along) in wanted {
                    for path in along.iter().filter(|path| paths.ours.contains(path)) {
                        progress.show(&format!("{}, {}: {name}", link.name(), path.name()));
                        rows.extend(checked(selection, name, case, *path, CONDITIONS[0], far)?);
                    }
                }
            }
            Ok(())
        })?;
    }
    Ok(rows)
}

/// Measures the network penalty (the time in which packets move from one machine to the other) of Tables 1
/// and 2 of the Peregrine paper. Also measures the gain of sending the first packet last.
pub(crate) fn penalties(
    selection: &Selection,
    filter: &Filter,
    progress: &Progress,
) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    on_each_link(selection, filter, Placement::TwoCores, |link, far| {
        for penalty in penalty::ALL.into_iter().filter(|one| selection.has_case(one.case)) {
            progress.show(&format!("{}: {}", link.name(), penalty.case));
            let Packets { bytes, segment } = penalty.packets();
            let (there, back) = (Packets { bytes, segment }, Packets { bytes, segment });
            let name = penalty::LIMIT;
            let both = Exchanged { name, spin: true, there, back, divisor: 2.0 };
            let (ns, _) = split(&rounds(selection, far, vec![Box::new(both)])?[0]);
            let row = row(penalty.case, None, Waiting::Spin, Placement::TwoCores, link);
            rows.push(row.limit(name, &ns));
            let framed = link == Link::Veth && filter.has_path(Path::Ethernet);
            let Some(packets) = penalty.frames().filter(|_| framed) else { continue };
            let (there, back, device) = (packets, packets, Device::XdpGeneric);
            let both = Framed { name, device, spin: true, there, back, divisor: 2.0 };
            let (ns, _) = split(&rounds(selection, far, vec![Box::new(both)])?[0]);
            let path = Some(Path::Ethernet.name());
            let row = self::row(penalty.case, path, Waiting::Spin, Placement::TwoCores, link);
            rows.push(row.limit(name, &ns));
        }
        if link == Link::Veth && selection.has_case(penalty::ORDER) {
            let orders = [true, false].map(|first_last| Box::new(Blast { first_last }));
            let orders = orders.map(|order| order as Box<dyn Subject>);
            let samples = rounds(selection, far, orders.into())?;
            let (first_last, in_order) = (split(&samples[0]).0, split(&samples[1]).0);
            let row = row(penalty::ORDER, Some("udp"), Waiting::Spin, Placement::TwoCores, link);
            let row = row.ours(&first_last, &[]).limit("in-order", &in_order);
            rows.push(row.ratio(&first_last, &in_order));
        }
        Ok(())
    })?;
    Ok(rows)
}

/// Measures async null calls of Peregrine over TCP and UDP, `in_flight` at a time from one thread. With the
/// feature `peers`, compares them with the same number of calls by tarpc.
pub(crate) fn concurrent(
    selection: &Selection,
    case: &'static str,
    in_flight: u32,
    progress: &Progress,
) -> Result<Vec<Row>, Failure> {
    let (placement, wait) = (Placement::TwoCores, Waiting::Adaptive);
    let filter = Filter::only(Link::Loopback);
    let mut rows = Vec::new();
    on_each_link(selection, &filter, placement, |link, far| {
        progress.show(&format!("{}: {case}", link.name()));
        let ours = Path::INTERNET.map(|path| own::Futures { path, wait, in_flight });
        let mut subjects: Vec<Box<dyn Subject>> = Vec::new();
        subjects.extend(ours.map(|one| Box::new(one) as Box<dyn Subject>));
        #[cfg(feature = "peers")]
        {
            let cpus = placement.processors(&machine::processors()).unwrap_or_default();
            let pair = other::Pair::start(other::Peer::Tarpc, far, cpus, in_flight)?;
            subjects.push(Box::new(pair));
        }
        let samples = rounds(selection, far, subjects)?;
        for (path, ours) in Path::INTERNET.into_iter().zip(&samples) {
            let (ours, cpu) = split(ours);
            let row = row(case, Some(path.name()), wait, placement, link).ours(&ours, &cpu);
            let row = match samples.get(2).map(|samples| split(samples).0) {
                Some(theirs) => row.limit("tarpc-tcp", &theirs).ratio(&ours, &theirs),
                None => row,
            };
            rows.push(Row { bindings: 1, ..row });
        }
        Ok(())
    })?;
    Ok(rows)
}

/// Measures null calls of Peregrine, compared with those of other systems and with the limits. All sides
/// sleep while they wait, because the other systems do.
#[cfg(feature = "peers")]
pub(crate) fn others(selection: &Selection, progress: &Progress) -> Result<Vec<Row>, Failure> {
    let (placement, wait) = (Placement::TwoCores, Waiting::Block);
    let cpus = placement.processors(&machine::processors()).unwrap_or_default();
    let mut rows = Vec::new();
    let Some(null) = Case::named("null").filter(|null| selection.has_case(null.name)) else {
        return Ok(rows);
    };
    on_each_link(selection, &Filter::default(), placement, |link, far| {
        progress.show(&format!("{}: peers", link.name()));
        let mut subjects: Vec<(Path, Box<dyn Subject>)> = Vec::new();
        for path in Path::INTERNET {
            let limits = limits(path, null, wait, link).into_iter();
            subjects.extend(limits.map(|limit| (path, limit)));
        }
        for peer in other::Peer::ALL {
            match peer.missing() {
                Some(why) => eprintln!("{}: skipped: {why}", peer.name()),
                None => {
                    let pair = other::Pair::start(peer, far, cpus, 1)?;
                    subjects.push((peer.path(), Box::new(pair)));
                }
            }
        }
        let count = subjects.len();
        subjects.extend(Path::INTERNET.into_iter().map(|path| (path, ours(path, null, wait))));
        let (paths, subjects): (Vec<_>, Vec<_>) = subjects.into_iter().unzip();
        let names: Vec<_> = subjects.iter().map(|subject| subject.name()).collect();
        let samples = rounds(selection, far, subjects)?;
        for (name, theirs) in names.iter().zip(&samples).take(count) {
            let (theirs, _) = split(theirs);
            for (path, ours) in paths.iter().zip(&samples).skip(count) {
                let (ours, cpu) = split(ours);
                let row = row(null.name, Some(path.name()), wait, placement, link);
                let row = row.ours(&ours, &cpu).limit(name, &theirs);
                rows.push(Row { bindings: 1, ..row.ratio(&ours, &theirs) });
            }
        }
        Ok(())
    })?;
    Ok(rows)
}

/// Returns the names of the cases that [`CASES`] lacks: network penalties, the order of packets, and calls
/// with checksums.
pub(crate) fn other_cases() -> impl Iterator<Item = &'static str> {
    let penalties = penalty::ALL.into_iter().map(|penalty| penalty.case);
    penalties.chain([penalty::ORDER]).chain(CHECKED.map(|(name, ..)| name))
}

pub(crate) fn row(
    case: &'static str,
    path: Option<&'static str>,
    wait: Waiting,
    placement: Placement,
    link: Link,
) -> Row {
    Row {
        path,
        link: Some(link.name()),
        wait: Some(wait.name()),
        placement: Some(placement.name()),
        ..Row::new(case)
    }
}

/// Runs `body` for each link, with a new far process. Each run uses a new thread, so that the processor
/// affinity of the run ends with the thread.
pub(crate) fn on_each_link(
    selection: &Selection,
    filter: &Filter,
    placement: Placement,
    mut body: impl FnMut(Link, &mut Far) -> Result<(), Failure> + Send,
) -> Result<(), Failure> {
    if !selection.has_placement(placement) {
        return Ok(());
    }
    let Some([here, there]) = placement.processors(&machine::processors()) else {
        eprintln!("{}: skipped: only one processor may be used", placement.name());
        return Ok(());
    };
    for link in Link::ALL.into_iter().filter(|link| filter.has_link(*link)) {
        if let Some(why) = link.missing() {
            eprintln!("{}: skipped: {why}", link.name());
            continue;
        }
        on_processors(link, [here, there], |far| body(link, far))?;
    }
    Ok(())
}

/// Runs `body` with a new far process. Both processes run on the given processors: first that of this
/// process, then that of the far one. The scheduler places a process whose entry is `None`.
pub(crate) fn on_processors(
    link: Link,
    [here, there]: [Option<u32>; 2],
    body: impl FnOnce(&mut Far) -> Result<(), Failure> + Send,
) -> Result<(), Failure> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            if let Some(cpu) = here {
                pin_to(cpu)?;
            }
            body(&mut Far::start(link, there)?)
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The paths of a link that are measured.
struct Paths {
    /// The paths whose limits can be measured.
    limits: Vec<Path>,
    /// The paths on which Peregrine is measured.
    ours: Vec<Path>,
}

impl Paths {
    /// Finds the paths that work on the link. Reports each path that is skipped, with the reason.
    fn find(filter: &Filter, wait: Waiting, far: &mut Far) -> Result<Self, Failure> {
        let (link, mut paths) = (far.link(), Self { limits: Vec::new(), ours: Vec::new() });
        let skipped = |what: &str, path: Path, why: &str| {
            eprintln!("{}, {}: {what}skipped: {why}", link.name(), path.name());
        };
        for path in Path::ALL.into_iter().filter(|path| filter.has_path(*path)) {
            if !path.is_on(link) {
                continue;
            }
            let mut devices = path.devices().iter();
            if let Some(why) = devices.find_map(|device| raw::missing(*device, link.near())) {
                skipped("", path, &why);
                continue;
            }
            paths.limits.push(path);
            if filter.limits_only {
                continue;
            }
            let case = Case::named("null").ok_or("no null call")?;
            // UDP and TCP are always available.
            let why = match path.devices() {
                [] => None,
                _ => Own { path, case, wait, check: None }.missing(far)?,
            };
            match why {
                Some(why) => skipped("Peregrine ", path, &why),
                None => paths.ours.push(path),
            }
        }
        Ok(paths)
    }

    /// Returns the paths of a group that carry a case. Peregrine's null call over raw Ethernet is also
    /// compared with its null call over UDP. So for the null call, UDP is added to the group of raw Ethernet.
    fn of(&self, group: &[Path], case: Case) -> Self {
        let some = |paths: &[Path]| -> Vec<Path> {
            let carry = |path: &&Path| group.contains(path) && path.carries(case);
            paths.iter().filter(carry).copied().collect()
        };
        let (limits, mut ours) = (some(&self.limits), some(&self.ours));
        if ours.contains(&Path::Ethernet) && case.name == "null" {
            ours.push(Path::Udp);
        }
        Self { limits, ours }
    }
}

/// The times of a limit in all rounds.
struct LimitTimes {
    path: Path,
    name: &'static str,
    ns: Vec<f64>,
}

/// Returns the limit with the smallest median time.
fn best<'a>(limits: impl Iterator<Item = &'a LimitTimes>) -> Option<&'a LimitTimes> {
    let median = |limit: &LimitTimes| statistics::median(&limit.ns);
    limits.min_by(|one, other| median(one).total_cmp(&median(other)))
}

/// Measures a case on the paths of a group. All paths are measured in the same rounds.
fn of_case(
    selection: &Selection,
    case: Case,
    (placement, wait): (Placement, Waiting),
    paths: &Paths,
    far: &mut Far,
) -> Result<Vec<Row>, Failure> {
    let link = far.link();
    let of = |path: &Path| -> Vec<(Path, Box<dyn Subject>)> {
        limits(*path, case, wait, link).into_iter().map(|limit| (*path, limit)).collect()
    };
    let (along, mut subjects): (Vec<_>, Vec<_>) = paths.limits.iter().flat_map(of).unzip();
    let names: Vec<_> = subjects.iter().map(|limit| limit.name()).collect();
    subjects.extend(paths.ours.iter().map(|path| ours(*path, case, wait)));
    let samples = rounds(selection, far, subjects)?;
    let (limits, own) = samples.split_at(along.len());
    let limits = along.into_iter().zip(names).zip(limits);
    let limits: Vec<_> =
        limits.map(|((path, name), ns)| LimitTimes { path, name, ns: split(ns).0 }).collect();
    let own_of = |path| paths.ours.iter().position(|one| *one == path).map(|n| split(&own[n]));
    let row = |path: Path| row(case.name, Some(path.name()), wait, placement, link);
    let mut rows = Vec::new();
    for path in &paths.limits {
        let along = || limits.iter().filter(|limit| limit.path == *path);
        let Some((ours, cpu)) = own_of(*path) else {
            rows.extend(along().map(|limit| row(*path).limit(limit.name, &limit.ns)));
            continue;
        };
        // A large message over UDP is compared with the fastest limit of all protocols.
        let large = case == IN_16M && *path == Path::Udp;
        let best = if large { best(limits.iter()) } else { best(along()) };
        let Some(LimitTimes { name, ns, .. }) = best else { continue };
        let row = row(*path).ours(&ours, &cpu).limit(name, ns).ratio(&ours, ns);
        rows.push(Row { bindings: 1, ..row });
    }
    if let (Some((ours, cpu)), Some((udp, _))) = (own_of(Path::Ethernet), own_of(Path::Udp)) {
        let row = row(Path::Ethernet).ours(&ours, &cpu).limit(OWN_UDP, &udp).ratio(&ours, &udp);
        rows.push(Row { bindings: 1, ..row });
    }
    Ok(rows)
}

/// Measures the cost of message checksums. The calls are compared with the same calls without checksums.
pub(crate) fn checked(
    selection: &Selection,
    name: &'static str,
    case: &str,
    path: Path,
    (placement, wait): (Placement, Waiting),
    far: &mut Far,
) -> Result<Option<Row>, Failure> {
    let Some(case) = Case::named(case) else { return Ok(None) };
    let own = |check| Box::new(Own { path, case, wait, check: Some(check) }) as Box<dyn Subject>;
    let samples = rounds(selection, far, [true, false].map(own).into())?;
    let ((ours, cpu), (plain, _)) = (split(&samples[0]), split(&samples[1]));
    let row = row(name, Some(path.name()), wait, placement, far.link());
    let row = row.ours(&ours, &cpu).limit("unchecked", &plain).ratio(&ours, &plain);
    Ok(Some(Row { bindings: 1, ..row }))
}

/// Measures many callers and the same number of server threads. The subjects are Peregrine's calls and both
/// limits of `echo.rs`. The row shows the faster limit.
fn crowded(
    selection: &Selection,
    filter: &Filter,
    callers: u32,
    far: &mut Far,
) -> Result<Row, Failure> {
    let wait = Waiting::Block;
    let null = Case::named("null").ok_or("no null call")?;
    let own = Own { path: Path::Udp, case: null, wait, check: None };
    let (count, length) = (callers as usize, selection.window());
    let subjects = if filter.limits_only { 2 } else { 3 };
    let samples = in_turn(selection.few_rounds(), subjects, |subject| match subject {
        2 => window::sample(length, |window| own::call_together(far, &own, count, window)),
        _ => window::sample(length, |window| {
            Ok((echo::call(far, count, subject == 1, window)?, None))
        }),
    })?;
    let ways = [("echo-each", split(&samples[0]).0), ("echo-shared", split(&samples[1]).0)];
    let median = |way: &(&str, Vec<f64>)| statistics::median(&way.1);
    let [each, shared] = &ways;
    let (name, ns) = if median(each) <= median(shared) { each } else { shared };
    let row = row(THREADS, Some("udp"), wait, Placement::Free, far.link()).limit(name, ns);
    let row = match samples.get(2).map(|own| split(own)) {
        Some((ours, cpu)) => row.ours(&ours, &cpu).ratio(&ours, ns),
        None => row,
    };
    Ok(Row { callers, bindings: 1, ..row })
}
