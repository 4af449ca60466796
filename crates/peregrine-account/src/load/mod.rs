//! Response times under load, next to what queueing theory predicts (Lampson, *Performance*).
//!
//! Calls are made in two ways. In a *closed* run, each caller makes its next call when the last one has returned,
//! which shows the service time and the capacity. In an *open* run, calls are due at random moments, whether or
//! not the earlier ones have returned, as they are if many independent users make them. The response time of a
//! call counts from the moment at which it was due, so a call that waits behind others is not left out.
//!
//! The same moments are given to a queue in which each call takes the mean service time (M/D/1), and to one in
//! which each takes one of the measured times (M/G/1). Where calls take longer than in these models,
//! [`Level::cause`] says why.

mod model;
mod plot;
mod report;
mod run;

use core::time::Duration;
use std::time::Instant;

use hdrhistogram::Histogram;
use peregrine::CallError;

use crate::statistics::quantile;
use model::{Line, Numbers, fit, markov_ns, queue};
use run::{Run, closed, open};

/// Makes a call. Each caller has a client of its own.
pub type Caller<'a> = Box<dyn FnMut() -> Result<(), CallError> + Send + 'a>;

/// The largest number of calls of one run.
const CALLS_MAX: usize = 200_000;
/// The smallest number of calls of an open run.
const CALLS_MIN: usize = 50;
/// The smallest number of rounds.
const ROUNDS_MIN: usize = 3;
/// The pause between two calls of a closed run with pauses, as a multiple of the service time.
const THINK: f64 = 2.0;
/// The largest part of a mean by which measurement and model may differ without a cause being named.
const SMALL: f64 = 0.10;
/// If this part of the calls was due while all callers were occupied, a level is saturated.
const SATURATED: f64 = 0.995;

/// How a load is measured.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// The parts of the capacity at which calls are due in open runs, above 0 and below 1.
    pub levels: Vec<f64>,
    /// How long all runs may take together.
    pub limit: Duration,
    /// The moments at which calls are due depend on this number only.
    pub seed: u64,
}

impl Default for LoadOptions {
    /// 10 to 95 per cent of the capacity, in 20 seconds.
    fn default() -> Self {
        let levels = vec![0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95];
        Self { levels, limit: Duration::from_secs(20), seed: 1 }
    }
}

/// Counters of the server, which show why calls took longer.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerCounts {
    /// How often a thread of the server slept while it waited for a call.
    pub slept: u64,
    /// The number of packets that the server sent again, or received again.
    pub again: u64,
}

/// The time of many calls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Times {
    pub mean_ns: f64,
    pub p50_ns: f64,
    pub p90_ns: f64,
    pub p99_ns: f64,
    pub p999_ns: f64,
    pub max_ns: f64,
}

/// Why calls took longer at a level than a queue explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// They did not: the mean differs by at most 10 per cent from that of the queue.
    None,
    /// They took less time than the queue predicts.
    Faster,
    /// More calls were due than the server could serve in this run.
    Saturated,
    /// A few calls took very much longer, because something else ran on their processors. Most calls took as
    /// long as in the queue.
    Interruptions,
    /// A thread slept while it waited, and had to be woken.
    Sleeps,
    /// Packets were sent again.
    PacketsAgain,
    /// Calls began late although a caller was free: its processor did something else.
    CallerLate,
    /// Each call took longer than in the closed run, for another reason.
    LongerCalls,
    /// Calls waited longer behind others than the queue predicts.
    Queue,
}

/// The calls at one level of load.
#[derive(Clone, Debug)]
pub struct Level {
    /// Which part of the capacity was due.
    pub utilization: f64,
    /// How many calls were due per second, and how many ended per second.
    pub offered_per_s: f64,
    /// How many calls ended per second.
    pub calls_per_s: f64,
    /// The number of calls of all rounds.
    pub calls: usize,
    /// From the moment at which a call was due until its result.
    pub response: Times,
    /// From the moment at which a call began until its result.
    pub call: Times,
    /// How late calls began although a caller was free, in nanoseconds: the mean.
    pub late_ns: f64,
    /// The number of calls that have not returned when a call is due: the mean. Calls that are due at random
    /// moments find as many as there are on average.
    pub in_system: f64,
    /// Which part of the calls had to wait for a thread that slept, at the client and at the server. The server
    /// is unknown if it does not show its counters.
    pub slept_ratio: [Option<f64>; 2],
    /// How many packets were sent again per call, if the server shows its counters.
    pub again_ratio: Option<f64>,
    /// The mean response time with exponential service times: s / (1 - u) with one caller.
    pub markov_ns: f64,
    /// The response times of the same calls if each took the mean service time (M/D/1).
    pub constant: Times,
    /// The response times of the same calls if each took a time as in the closed run (M/G/1).
    pub general: Times,
    /// Why calls took longer than in the queue of the last field.
    pub cause: Cause,
    histogram: Histogram<u64>,
    constant_histogram: Histogram<u64>,
}

/// A closed run: a number of callers, each of which makes one call after the other.
#[derive(Clone, Copy, Debug)]
pub struct ClosedRun {
    /// The number of callers, N.
    pub callers: usize,
    /// The pause between two calls of a caller, z, in nanoseconds.
    pub think_ns: f64,
    /// The throughput, x.
    pub calls_per_s: f64,
    /// The mean time of a call, r, in nanoseconds.
    pub response_ns: f64,
}

impl ClosedRun {
    /// Returns the mean time of a call that follows from the throughput: r = N / x - z.
    pub fn law_ns(&self) -> f64 {
        self.callers as f64 * 1e9 / self.calls_per_s - self.think_ns
    }
}

/// The time of calls of which some take a slow path: t = unit (1 + m s).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FastPath {
    /// How long a call takes on the fast path, in nanoseconds.
    pub unit_ns: f64,
    /// How much longer a call takes on the slow path, as a multiple of `unit_ns`.
    pub slow: f64,
}

/// How the throughput grows with the number of callers (Amdahl's law).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Amdahl {
    /// The part of a call that only one caller can be in.
    pub serial: f64,
    /// The throughput that no number of callers exceeds, in calls per second.
    pub bound_per_s: f64,
}

/// Response times under load.
#[derive(Clone, Debug)]
pub struct Load {
    /// The number of callers in open runs.
    pub callers: usize,
    /// How long calls take when all callers make one after the other.
    pub service: Times,
    /// The squared coefficient of variation of these times: their variance over the square of their mean.
    pub variation: f64,
    /// How many calls all callers make per second, at most.
    pub capacity_per_s: f64,
    /// The open runs, in the order of [`LoadOptions::levels`].
    pub levels: Vec<Level>,
    /// The closed runs.
    pub closed: Vec<ClosedRun>,
    /// What a call that waits for a sleeping thread costs. `None` if no level differs from the others in this.
    pub fast_path: Option<FastPath>,
    /// `None` if there was only one caller.
    pub amdahl: Option<Amdahl>,
}

impl Load {
    /// Measures response times. `callers` make the calls, all of them in each open run. `counts` reads the
    /// counters of the server. `progress` is called with the part of the time that has passed.
    ///
    /// # Errors
    /// If a call fails.
    ///
    /// # Panics
    /// If there is no caller, or a level is not between 0 and 1.
    pub fn measure(
        mut callers: Vec<Caller<'_>>,
        options: &LoadOptions,
        counts: &mut dyn FnMut() -> Option<ServerCounts>,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Self, CallError> {
        let levels = &options.levels;
        assert!(!callers.is_empty(), "a load has at least one caller");
        assert!(levels.iter().all(|level| *level > 0.0 && *level < 1.0), "{levels:?}");
        let steps = steps(callers.len());
        let runs = levels.len() + 1 + 2 * steps.len();
        let slice = options.limit.div_f64((ROUNDS_MIN * runs) as f64);
        let mut measuring = Measuring { slice, ..Measuring::default() };
        let begun = Instant::now();
        closed(&mut callers, Duration::from_millis(60), Duration::ZERO, CALLS_MAX)?;
        let mut gathered: Vec<Gathered> = levels.iter().map(|_| Gathered::default()).collect();
        let mut of_steps = vec![[Vec::new(), Vec::new()]; steps.len()];
        for round in 0.. {
            let mut done = 0;
            let mut report = |done: usize| {
                let rounds = round as f64 + done as f64 / runs as f64;
                let time = begun.elapsed().as_secs_f64() / options.limit.as_secs_f64();
                progress((rounds / ROUNDS_MIN as f64).min(1.0).max(time.min(1.0)));
            };
            let service = measuring.service(&mut callers)?;
            for (level, utilization) in gathered.iter_mut().zip(levels) {
                done += 1;
                report(done);
                let seed = options.seed.wrapping_mul(1000).wrapping_add(round * 100 + done as u64);
                let load = (*utilization, &service);
                level.add(&mut callers, load, (seed, slice), counts)?;
            }
            for (count, runs) in steps.iter().zip(&mut of_steps) {
                for (think, runs) in [0.0, THINK].into_iter().zip(runs) {
                    done += 1;
                    report(done);
                    let think = Duration::from_nanos((think * service.mean_ns) as u64);
                    let run = closed(&mut callers[..*count], slice, think, CALLS_MAX)?;
                    runs.push(one_closed(&run, *count, think));
                }
            }
            if round + 1 >= ROUNDS_MIN as u64 && begun.elapsed() >= options.limit {
                break;
            }
        }
        let levels = levels.iter().zip(gathered).map(|(share, level)| level.level(*share));
        let levels: Vec<Level> = levels.collect();
        let closed: Vec<ClosedRun> =
            of_steps.iter().flatten().map(|runs| median_run(runs)).collect();
        Ok(Self {
            callers: callers.len(),
            service: measuring.times(),
            variation: measuring.variation(),
            capacity_per_s: quantile(measuring.capacities, 0.5),
            fast_path: fast_path(&levels),
            amdahl: amdahl(&closed),
            levels,
            closed,
        })
    }

    /// Returns what follows from the figures, a sentence each.
    pub fn findings(&self) -> Vec<String> {
        report::findings(self)
    }

    /// Returns the load as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        report::json(self)
    }

    /// Returns a picture (SVG): response times at each level next to the models, their distribution, and the
    /// throughput of closed runs. `title` says which call it is.
    pub fn to_svg(&self, title: &str) -> String {
        plot::svg(self, title)
    }

    /// Returns a page (HTML) with the [picture](Self::to_svg), and tables with all figures.
    pub fn to_html(&self, title: &str) -> String {
        report::html(self, title)
    }
}

/// Returns the numbers of callers of the closed runs: powers of two, and all callers.
fn steps(callers: usize) -> Vec<usize> {
    let powers = (0..).map(|power| 1 << power).take_while(|count| *count < callers);
    powers.chain([callers]).collect()
}

fn one_closed(run: &Run, callers: usize, think: Duration) -> ClosedRun {
    let response_ns = run.durations().sum::<u64>() as f64 / run.calls.len().max(1) as f64;
    let think_ns = think.as_nanos() as f64;
    ClosedRun { callers, think_ns, calls_per_s: run.per_s(), response_ns }
}

/// Returns the run with the median throughput.
fn median_run(runs: &[ClosedRun]) -> ClosedRun {
    let mut runs = runs.to_vec();
    runs.sort_by(|one, other| one.calls_per_s.total_cmp(&other.calls_per_s));
    runs[runs.len() / 2]
}

fn histogram(times: impl IntoIterator<Item = u64>) -> Histogram<u64> {
    let mut histogram = Histogram::new(3).unwrap_or_else(|error| panic!("three digits: {error}"));
    for time in times {
        // A histogram that grows takes any time.
        let _ = histogram.record(time);
    }
    histogram
}

impl Times {
    fn of(histogram: &Histogram<u64>) -> Self {
        let at = |part| histogram.value_at_quantile(part) as f64;
        Self {
            mean_ns: histogram.mean(),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: histogram.max() as f64,
        }
    }
}

/// The service times of one round.
struct Service {
    mean_ns: f64,
    per_s: f64,
    durations: Vec<u64>,
}

/// What all closed runs of all callers have measured.
#[derive(Default)]
struct Measuring {
    slice: Duration,
    durations: Vec<u64>,
    capacities: Vec<f64>,
}

impl Measuring {
    fn service(&mut self, callers: &mut [Caller<'_>]) -> Result<Service, CallError> {
        let run = closed(callers, self.slice, Duration::ZERO, CALLS_MAX)?;
        let (per_s, durations) = (run.per_s(), run.durations().collect::<Vec<_>>());
        self.durations.extend(&durations);
        self.capacities.push(per_s);
        // With one caller, the time that is not within a call is the clock's, and belongs to the service.
        Ok(Service { mean_ns: callers.len() as f64 * 1e9 / per_s, per_s, durations })
    }

    fn times(&self) -> Times {
        Times::of(&histogram(self.durations.iter().copied()))
    }

    fn variation(&self) -> f64 {
        let count = self.durations.len().max(1) as f64;
        let mean = self.durations.iter().sum::<u64>() as f64 / count;
        let squares: f64 = self.durations.iter().map(|ns| (*ns as f64 - mean).powi(2)).sum();
        squares / count / (mean * mean)
    }
}

/// The open runs of one level.
#[derive(Default)]
struct Gathered {
    calls: usize,
    responses: Vec<u64>,
    durations: Vec<u64>,
    late: Vec<u64>,
    /// The sum of the numbers of calls that calls have found, and of the calls that found no free caller.
    found: usize,
    occupied: usize,
    sleeps: u64,
    server: Option<ServerCounts>,
    is_server_known: bool,
    constant: Vec<u64>,
    general: Vec<u64>,
    /// Of each round.
    offered: Vec<f64>,
    per_s: Vec<f64>,
    markov: Vec<f64>,
    service: Vec<f64>,
}

impl Gathered {
    /// Makes an open run, and gives the same moments to the models.
    fn add(
        &mut self,
        callers: &mut [Caller<'_>],
        (utilization, service): (f64, &Service),
        (seed, slice): (u64, Duration),
        counts: &mut dyn FnMut() -> Option<ServerCounts>,
    ) -> Result<(), CallError> {
        let rate = utilization * service.per_s;
        let count = (slice.as_secs_f64() * rate) as usize;
        let mut numbers = Numbers::new(seed);
        let arrivals = numbers.arrivals(count.clamp(CALLS_MIN, CALLS_MAX), 1e9 / rate);
        let before = counts();
        let run = open(callers, &arrivals)?;
        let after = counts();
        if let (Some(before), Some(after)) = (before, after) {
            let sum = self.server.get_or_insert_default();
            sum.slept += after.slept.saturating_sub(before.slept);
            sum.again += after.again.saturating_sub(before.again);
        }
        self.is_server_known = after.is_some();
        self.take(&run, callers.len());
        let mean = service.mean_ns as u64;
        self.constant.extend(queue(&arrivals, callers.len(), || mean));
        let times = &service.durations;
        self.general.extend(queue(&arrivals, callers.len(), || times[numbers.below(times.len())]));
        self.offered.push(rate);
        self.markov.push(markov_ns(service.mean_ns, utilization, callers.len()));
        self.service.push(service.mean_ns);
        Ok(())
    }

    fn take(&mut self, run: &Run, callers: usize) {
        self.calls += run.calls.len();
        self.sleeps += run.sleeps;
        self.per_s.push(run.per_s());
        self.durations.extend(run.durations());
        let mut ends: Vec<u64> = run.calls.iter().map(|call| call.ended).collect();
        ends.sort_unstable();
        let mut ended = 0;
        for (arrived, call) in run.calls.iter().enumerate() {
            while ends.get(ended).is_some_and(|end| *end <= call.due) {
                ended += 1;
            }
            let found = arrived - ended;
            self.found += found;
            self.responses.push(call.ended - call.due);
            if found < callers {
                self.late.push(call.begun - call.due);
            } else {
                self.occupied += 1;
            }
        }
    }

    fn level(self, utilization: f64) -> Level {
        let calls = self.calls.max(1) as f64;
        let mean = |times: &[u64]| times.iter().sum::<u64>() as f64 / times.len().max(1) as f64;
        let (responses, constant) = (histogram(self.responses), histogram(self.constant));
        let general = Times::of(&histogram(self.general));
        let server = self.server.filter(|_| self.is_server_known);
        let of_server = |count: u64| count as f64 / calls;
        let mut level = Level {
            utilization,
            offered_per_s: quantile(self.offered, 0.5),
            calls_per_s: quantile(self.per_s, 0.5),
            calls: self.calls,
            response: Times::of(&responses),
            call: Times::of(&histogram(self.durations)),
            late_ns: mean(&self.late),
            in_system: self.found as f64 / calls,
            slept_ratio: [
                Some((self.sleeps as f64 / calls).min(1.0)),
                server.map(|counts| of_server(counts.slept).min(1.0)),
            ],
            again_ratio: server.map(|counts| of_server(counts.again)),
            markov_ns: quantile(self.markov, 0.5),
            constant: Times::of(&constant),
            general,
            cause: Cause::None,
            histogram: responses,
            constant_histogram: constant,
        };
        level.cause = level.cause(quantile(self.service, 0.5), self.occupied as f64 / calls);
        level
    }
}

impl Level {
    /// Returns n = r x: the mean number of calls that follows from the response time and the throughput
    /// (Little's law).
    pub fn little(&self) -> f64 {
        self.response.mean_ns * self.calls_per_s / 1e9
    }

    /// Returns the time within which this part of the calls had their results, in nanoseconds: as measured, and
    /// in the queue with constant service times.
    pub fn quantile_ns(&self, part: f64) -> [f64; 2] {
        [&self.histogram, &self.constant_histogram]
            .map(|times| times.value_at_quantile(part) as f64)
    }

    /// Returns which part of the calls waited for a thread that slept, at either side.
    pub fn slept(&self) -> f64 {
        self.slept_ratio.iter().flatten().copied().fold(0.0, f64::max)
    }

    /// Says why calls took longer than in the queue. `service_ns` is the mean service time in closed runs.
    fn cause(&self, service_ns: f64, occupied: f64) -> Cause {
        let excess = self.response.mean_ns - self.general.mean_ns;
        if excess.abs() <= SMALL * self.general.mean_ns {
            return Cause::None;
        }
        if excess < 0.0 {
            return Cause::Faster;
        }
        if occupied > SATURATED {
            return Cause::Saturated;
        }
        if self.response.p90_ns <= (1.0 + SMALL) * self.general.p90_ns {
            return Cause::Interruptions;
        }
        let longer = self.call.mean_ns - service_ns;
        if longer.max(self.late_ns) < SMALL * self.general.mean_ns / 2.0 {
            return Cause::Queue;
        }
        if self.late_ns > longer {
            return Cause::CallerLate;
        }
        match (self.again_ratio, self.slept()) {
            (Some(again), _) if again > 0.01 => Cause::PacketsAgain,
            (_, slept) if slept > 0.01 => Cause::Sleeps,
            _ => Cause::LongerCalls,
        }
    }
}

/// Fits t = unit (1 + m s) to the levels, where m is the part of the calls that waited for a sleeping thread.
fn fast_path(levels: &[Level]) -> Option<FastPath> {
    let points = levels.iter().map(|level| (level.slept(), level.call.mean_ns, 1.0));
    let Line { begin, slope } = fit(points)?;
    (begin > 0.0).then(|| FastPath { unit_ns: begin, slow: slope / begin })
}

/// Fits Amdahl's law, x1 / x = f + (1 - f) / N, to the closed runs without pauses.
fn amdahl(runs: &[ClosedRun]) -> Option<Amdahl> {
    let runs = || runs.iter().filter(|run| run.think_ns == 0.0);
    let alone = runs().find(|run| run.callers == 1)?.calls_per_s;
    let points = runs().map(|run| (1.0 / run.callers as f64, alone / run.calls_per_s, 1.0));
    let Line { begin, .. } = fit(points)?;
    // Several callers may also be slower than one, because they disturb each other.
    let most = runs().map(|run| run.calls_per_s).fold(0.0, f64::max);
    let serial = begin.clamp(0.0, alone / most);
    Some(Amdahl { serial, bound_per_s: if serial > 0.0 { alone / serial } else { f64::INFINITY } })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a call that takes at least `ns`.
    fn busy(ns: u64) -> Caller<'static> {
        Box::new(move || {
            let until = Instant::now() + Duration::from_nanos(ns);
            while Instant::now() < until {
                core::hint::spin_loop();
            }
            Ok(())
        })
    }

    fn quick() -> LoadOptions {
        LoadOptions { levels: vec![0.2, 0.8], limit: Duration::from_millis(200), seed: 7 }
    }

    #[test]
    fn load_has_all_levels_closed_runs_and_laws() {
        let (mut slept, mut part) = (0, 0.0);
        let mut counts = || {
            slept += 3;
            Some(ServerCounts { slept, again: 0 })
        };
        let load =
            Load::measure(vec![busy(20_000), busy(20_000)], &quick(), &mut counts, &mut |at| {
                assert!(at >= part && at <= 1.0, "{part} {at}");
                part = at;
            });
        let load = load.unwrap();
        assert_eq!(
            load.levels.iter().map(|level| level.utilization).collect::<Vec<_>>(),
            [0.2, 0.8]
        );
        for level in &load.levels {
            assert!(level.calls >= 3 * CALLS_MIN);
            let Times { mean_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns } = level.response;
            assert!(p50_ns >= 19_000.0 && mean_ns >= 19_000.0, "{level:?}");
            assert!([p50_ns, p90_ns, p99_ns, p999_ns, max_ns].is_sorted());
            assert!(level.call.mean_ns <= mean_ns && level.constant.p50_ns >= 9_000.0);
            assert!(level.slept_ratio[1] > Some(0.0) && level.again_ratio == Some(0.0));
            assert!(level.markov_ns > 0.0 && level.little() > 0.0);
        }
        let closed: Vec<_> =
            load.closed.iter().map(|run| (run.callers, run.think_ns > 0.0)).collect();
        assert_eq!(closed, [(1, false), (1, true), (2, false), (2, true)]);
        assert!(load.amdahl.is_some() && load.capacity_per_s < 2.0 * 50_001.0);
        let json = load.to_json();
        assert_eq!(json["levels"].as_array().unwrap().len(), 2);
        let picture = load.to_svg("a <call>");
        for tag in ["svg", "text", "title"] {
            let count = |what: String| picture.matches(&what).count();
            assert_eq!(count(format!("<{tag}")), count(format!("</{tag}>")), "{tag}");
        }
        assert!(!picture.contains("<call>") && !picture.contains("NaN"), "{picture}");
        assert!(load.to_html("a call").contains("<svg"));
    }

    #[test]
    fn failed_calls_are_reported() {
        let mut left = 500;
        let failing: Caller<'_> = Box::new(move || {
            left -= 1;
            let text = "the server has gone";
            let error =
                CallError::new(peregrine::Kind::ServerGone, peregrine::Executed::Maybe, text);
            if left > 0 { Ok(()) } else { Err(error) }
        });
        let failed = Load::measure(vec![failing], &quick(), &mut || None, &mut |_| {});
        assert!(failed.unwrap_err().to_string().contains("the server has gone"));
    }

    #[test]
    fn causes_follow_from_the_figures() {
        let times = |mean_ns| Times { mean_ns, p90_ns: 2.0 * mean_ns, ..Times::default() };
        let level = Level {
            utilization: 0.5,
            offered_per_s: 1.0,
            calls_per_s: 1.0,
            calls: 1,
            response: times(3000.0),
            call: times(1000.0),
            late_ns: 10.0,
            in_system: 1.0,
            slept_ratio: [Some(0.0), None],
            again_ratio: None,
            markov_ns: 2000.0,
            constant: times(1500.0),
            general: times(1500.0),
            cause: Cause::None,
            histogram: histogram([]),
            constant_histogram: histogram([]),
        };
        let cause = |change: &dyn Fn(&mut Level)| {
            let mut level = level.clone();
            change(&mut level);
            level.cause(1000.0, 0.5)
        };
        assert_eq!(cause(&|level: &mut Level| level.response = times(1600.0)), Cause::None);
        assert_eq!(cause(&|level: &mut Level| level.response = times(1300.0)), Cause::Faster);
        assert_eq!(cause(&|_: &mut Level| {}), Cause::Queue);
        assert_eq!(
            cause(&|level: &mut Level| level.response.p90_ns = 3200.0),
            Cause::Interruptions
        );
        assert_eq!(cause(&|level: &mut Level| level.late_ns = 900.0), Cause::CallerLate);
        assert_eq!(cause(&|level: &mut Level| level.call = times(1800.0)), Cause::LongerCalls);
        let slow = |level: &mut Level| {
            (level.call, level.slept_ratio) = (times(1800.0), [None, Some(0.2)])
        };
        assert_eq!(cause(&slow), Cause::Sleeps);
        let again =
            |level: &mut Level| (level.call, level.again_ratio) = (times(1800.0), Some(0.2));
        assert_eq!(cause(&again), Cause::PacketsAgain);
        assert_eq!(level.cause(1000.0, 1.0), Cause::Saturated);
    }

    #[test]
    fn laws_are_fitted() {
        let run = |callers, calls_per_s| ClosedRun {
            callers,
            think_ns: 0.0,
            calls_per_s,
            response_ns: 1.0,
        };
        // Half of each call is serial.
        let runs = [run(1, 100.0), run(2, 100.0 / 0.75), run(4, 100.0 / 0.625)];
        let law = amdahl(&runs).unwrap();
        assert!((law.serial - 0.5).abs() < 1e-9 && (law.bound_per_s - 200.0).abs() < 1e-6);
        assert_eq!(amdahl(&runs[..1]), None);
        let law = amdahl(&[run(1, 100.0), run(2, 200.0)]).unwrap();
        assert!(law.serial.abs() < 1e-9 && law.bound_per_s > 1e9);
        assert!((run(4, 1e6).law_ns() - 4000.0).abs() < 1e-9);
    }
}
