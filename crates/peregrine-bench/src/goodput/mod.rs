//! The experiment `goodput`: measures how fast large results cross a link, compared with the kernel's TCP
//! (cubic) on the same link. It also measures how Peregrine and TCP share the link when they use it together.

mod bench;
mod relay;

use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use self::bench::{BYTES_MAX, Bench};
use self::relay::Shape;
use crate::row::Format;
use crate::subject::Failure;
use crate::{Progress, machine};

/// The size of the smallest result in bytes.
const BYTES_MIN: usize = 1 << 16;
/// Determines the size of a result: the number of bytes that TCP reads in this time, or in
/// [`RESULT_ROUND_TRIPS`] round trips if they take longer. With smaller results, the round trip between two
/// calls would take a large part of the time.
const RESULT_TIME: Duration = Duration::from_secs(1);
/// TCP would need at least this number of round trips to read a result. See [`RESULT_TIME`].
const RESULT_ROUND_TRIPS: u32 = 10;

/// The links that are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Grid {
    /// Two rates, one round trip, with and without loss
    Quick,
    /// All rates and round trips without loss, and twelve links with loss
    #[default]
    Main,
    /// All rates, round trips and losses
    Full,
}

const MBIT: [u64; 4] = [10, 50, 100, 500];
const RTT_MS: [u64; 4] = [1, 10, 50, 300];
const LOSS: [u64; 4] = [0, 1, 10, 50];
/// The lossy links of the grid `main`. Each rate, each round trip and each loss occurs three or four times.
const LOSSY: [(u64, u64, u64); 12] = [
    (10, 300, 1),
    (50, 50, 1),
    (100, 10, 1),
    (500, 1, 1),
    (10, 1, 10),
    (50, 10, 10),
    (100, 50, 10),
    (500, 300, 10),
    (10, 50, 50),
    (50, 300, 50),
    (100, 1, 50),
    (500, 10, 50),
];

impl Grid {
    /// Returns three numbers for each link: the rate in Mbit/s, the round trip in milliseconds, and the loss
    /// in thousandths.
    fn links(self) -> Vec<(u64, u64, u64)> {
        let product = |losses: &'static [u64]| {
            let pairs = MBIT.iter().flat_map(|mbit| RTT_MS.map(|rtt_ms| (*mbit, rtt_ms)));
            pairs.flat_map(|(mbit, rtt_ms)| losses.iter().map(move |loss| (mbit, rtt_ms, *loss)))
        };
        match self {
            Self::Quick => vec![(10, 10, 0), (10, 10, 10), (100, 10, 0), (100, 10, 10)],
            Self::Main => product(&LOSS[..1]).chain(LOSSY).collect(),
            Self::Full => product(&LOSS).collect(),
        }
    }
}

/// The links to measure, and the format of the figures.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The links that are measured
    #[arg(long, value_enum, default_value_t)]
    grid: Grid,
    /// How the result is shown
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Only links of this rate, in Mbit/s (may be repeated)
    #[arg(long = "mbit", value_name = "N")]
    mbit: Vec<u64>,
    /// Only links of this round trip, in milliseconds (may be repeated)
    #[arg(long = "rtt", value_name = "MS")]
    rtt: Vec<u64>,
    /// Only links with this loss, in thousandths (may be repeated)
    #[arg(long = "loss", value_name = "N")]
    loss: Vec<u64>,
    /// The size of each link's queue, in percent of the bytes that a full link has in flight, but at least
    /// 100 packets
    #[arg(long, value_name = "N", default_value_t = 100)]
    queue: u64,
    /// For how many seconds each flow runs alone; both together run twice as long
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// How many times each flow runs alone
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// How many times both flows run together
    #[arg(long, value_name = "N", default_value_t = 3)]
    together: u64,
}

impl Options {
    fn shapes(&self) -> impl Iterator<Item = Shape> {
        let chosen = |given: &[u64], value| given.is_empty() || given.contains(&value);
        let links = self.grid.links().into_iter().filter(move |(mbit, rtt_ms, loss)| {
            chosen(&self.mbit, *mbit) && chosen(&self.rtt, *rtt_ms) && chosen(&self.loss, *loss)
        });
        links.map(|(mbit, rtt_ms, loss)| Shape { mbit, rtt_ms, loss, queue: self.queue })
    }
}

/// Returns the rate, in Mbit/s, at which `bytes` bytes were transferred in the time `time`.
fn rate(bytes: u64, time: Duration) -> f64 {
    bytes as f64 * 8.0 / 1e6 / time.as_secs_f64()
}

fn geometric_mean(values: &[f64]) -> f64 {
    (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp()
}

/// The rates of Peregrine and of TCP in one round, in Mbit/s.
type Pair = [f64; 2];

/// The rates of several rounds.
struct Rounds(Vec<Pair>);

impl Rounds {
    fn mean(&self, which: usize) -> f64 {
        let rates: Vec<f64> = self.0.iter().map(|pair| pair[which]).collect();
        geometric_mean(&rates)
    }

    /// Returns three numbers: the geometric mean of the ratios of all rounds, the smallest ratio, and the
    /// largest ratio. A ratio is Peregrine's rate divided by TCP's rate.
    fn ratio(&self) -> [f64; 3] {
        let ratios: Vec<f64> = self.0.iter().map(|[ours, tcp]| ours / tcp).collect();
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let most = ratios.iter().copied().fold(0.0, f64::max);
        [geometric_mean(&ratios), least, most]
    }

    fn json(&self) -> Value {
        json!({ "rounds_mbit": self.0, "ratio": self.ratio() })
    }

    fn text(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let [mean, least, most] = self.ratio();
        format!("{:8.2} {:8.2}  {mean:.2} ({least:.2}-{most:.2})", self.mean(0), self.mean(1))
    }
}

struct Measured {
    shape: Shape,
    alone: Rounds,
    /// The rates of Peregrine and of TCP while both run at the same time on one link.
    together: Rounds,
    /// The largest share of packets that the relay (the threads that emulate the link) carried too late.
    late: f64,
}

impl Measured {
    fn json(&self) -> Value {
        let Shape { mbit, rtt_ms, loss, .. } = self.shape;
        json!({
            "mbit": mbit, "rtt_ms": rtt_ms, "loss_permille": loss,
            "queue_bytes": self.shape.queue_bytes(), "alone": self.alone.json(),
            "together": self.together.json(), "relay_late": self.late,
        })
    }

    fn line(&self) -> String {
        let Shape { mbit, rtt_ms, loss, .. } = self.shape;
        let (loss, late) = (loss as f64 / 10.0, 100.0 * self.late);
        let (alone, together) = (self.alone.text(), self.together.text());
        format!("{mbit:5} {rtt_ms:6} {loss:6.1}  {alone:36}{together:36}{late:5.2}")
    }
}

fn measure(shape: Shape, options: &Options) -> Result<Measured, Failure> {
    let length = Duration::from_secs(options.seconds);
    let (mut alone, mut together, mut late) = (Vec::new(), Vec::new(), 0.0_f64);
    let mut bytes = BYTES_MIN;
    for _ in 0..options.rounds {
        let (read, late_tcp) = Bench::new()?.over(shape, |bench, _| bench.read_tcp(length))?;
        let tcp = rate(read, length);
        let time = RESULT_TIME.max(Duration::from_millis(shape.rtt_ms) * RESULT_ROUND_TRIPS);
        bytes = ((tcp * 1e6 / 8.0 * time.as_secs_f64()) as usize).clamp(BYTES_MIN, BYTES_MAX);
        let calls = Bench::new()?.over(shape, |bench, _| bench.read_calls(length, bytes));
        let ((read, took), late_calls) = calls?;
        alone.push([rate(read, took), tcp]);
        late = late.max(late_tcp).max(late_calls);
    }
    for _ in 0..options.together {
        let (pair, late_both) = both(shape, length, bytes)?;
        together.push(pair);
        late = late.max(late_both);
    }
    Ok(Measured { shape, alone: Rounds(alone), together: Rounds(together), late })
}

/// Runs Peregrine and TCP at the same time, for twice `length`. Measures the rates of both in the second
/// half, from the bytes of the IP packets that leave the link.
fn both(shape: Shape, length: Duration, bytes: usize) -> Result<(Pair, f64), Failure> {
    Bench::new()?.over(shape, |bench, carried| {
        let so_far = || [&carried.udp, &carried.tcp].map(|bytes| bytes.load(Ordering::Relaxed));
        std::thread::scope(|scope| {
            let calls = scope.spawn(|| bench.read_calls(2 * length, bytes).map(drop));
            let stream = scope.spawn(|| bench.read_tcp(2 * length).map(drop));
            std::thread::sleep(length);
            let before = so_far();
            std::thread::sleep(length);
            let after = so_far();
            calls.join().map_err(|_| "a call panicked")??;
            stream.join().map_err(|_| "the TCP reader panicked")??;
            Ok([0, 1].map(|which| rate(after[which] - before[which], length)))
        })
    })
}

/// Measures the chosen links, and shows the figures.
pub(crate) fn run(options: &Options, progress: &Progress) -> Result<(), Failure> {
    let mut rows = Vec::new();
    let human = options.format == Format::Human;
    if human {
        println!("Mbit/s: Peregrine, TCP cubic, and the ratio of both (min-max of the rounds)");
        let heads = ["each alone", "together on one link", "late/%"];
        println!(" rate rtt/ms loss/%  {:36}{:36}{}", heads[0], heads[1], heads[2]);
    }
    for shape in options.shapes() {
        progress.show(&format!("{shape:?}"));
        let measured = measure(shape, options)?;
        if human {
            println!("{}", measured.line());
        }
        rows.push(measured.json());
    }
    if !human {
        let machine = machine::description();
        let all = json!({ "experiment": "goodput", "machine": machine, "rows": rows });
        println!("{all:#}");
    }
    Ok(())
}
