//! `least-loaded-p99`: how long calls take at five servers that are busy for 80 % of the time.
//!
//! Calls begin at random moments (a Poisson process) that do not depend on earlier calls, and their procedures
//! sleep for exponential times. A call's time counts from the moment at which it should have begun. Each
//! server runs one call at a time in the order of arrival, and sleeping takes no processor time. So the queues
//! are measured and not the scheduler. Both policies get the same moments and the same times.

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use peregrine::{Balance, BindOptions};

use super::servers::{EXPORT, Servers, Sleeping as _, SleepingPool};
use super::{LEAST_LOADED, RANDOM, options, row, wait_until_used};
use crate::cases::{Placement, Waiting};
use crate::local::in_turn;
use crate::row::Row;
use crate::statistics::percentile;
use crate::subject::{Failure, Sample};
use crate::{Progress, Selection};

/// The number of servers.
const SERVERS: u32 = 5;
/// The mean time of a procedure.
const MEAN: Duration = Duration::from_millis(5);
/// The part of the time in which a server is busy.
const LOAD: f64 = 0.8;
/// The number of threads that wait for calls. If all of them wait, further calls begin late, and this counts.
const CALLERS: u32 = 256;

/// Measures both policies in turn.
pub(super) fn measure(selection: &Selection, progress: &Progress) -> Result<Row, Failure> {
    let servers = Servers::start(SERVERS, 1, Waiting::Block, None)?;
    let (calls, rounds) = match selection.quick {
        true => (2_000, selection.rounds.unwrap_or(2)),
        false => (6_000, selection.rounds.unwrap_or(5)),
    };
    let mut rounds_done = 0;
    let samples = in_turn(rounds as usize, 2, |subject| {
        progress.show(&format!("{LEAST_LOADED}: round {} of {rounds}", rounds_done / 2 + 1));
        rounds_done += 1;
        let balance = [Balance::LeastLoaded, Balance::Random][subject].clone();
        let options = options(servers.addresses())?.wait(Waiting::Block.wait()).balance(balance);
        // The numbers differ from round to round, and not from policy to policy.
        let seed = 1 + (rounds_done as u64 - 1) / 2;
        let mut times = run(&options.astacks(CALLERS), calls, seed)?;
        times.sort_by(f64::total_cmp);
        Ok(Sample { ns: percentile(&times, 0.99), cpu_ns: None })
    })?;
    let row = row(LEAST_LOADED, Waiting::Block, Placement::Free, CALLERS, RANDOM, &samples);
    Ok(Row { path: Some("tcp"), link: Some("loopback"), ..row })
}

/// Random numbers that are the same in each run (SplitMix64).
struct Numbers(u64);

impl Numbers {
    /// Returns an exponential number with the mean 1.
    fn exponential(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let uniform = ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64;
        -(1.0 - uniform).ln()
    }
}

/// Makes calls by a pool. Returns how long each of them took, in nanoseconds.
fn run(options: &BindOptions, calls: u32, seed: u64) -> Result<Vec<f64>, Failure> {
    let pool = SleepingPool::bind_with(EXPORT, options)?;
    wait_until_used(|| pool.servers(), SERVERS as usize)?;
    let mut numbers = Numbers(seed);
    let between = MEAN.as_secs_f64() / (f64::from(SERVERS) * LOAD);
    let (send, receive) = channel::<(Instant, u32)>();
    let receive = Mutex::new(receive);
    let times = Mutex::new(Vec::with_capacity(calls as usize));
    std::thread::scope(|scope| {
        let work = || -> Result<(), Failure> {
            loop {
                let next = receive.lock().expect("no thread panics").recv();
                let Ok((begins, us)) = next else { return Ok(()) };
                pool.sleep(us)?;
                let took = begins.elapsed().as_nanos() as f64;
                times.lock().expect("no thread panics").push(took);
            }
        };
        let threads: Vec<_> = (0..CALLERS).map(|_| scope.spawn(work)).collect();
        let mut begins = Instant::now();
        for _ in 0..calls {
            begins += Duration::from_secs_f64(between * numbers.exponential());
            let us = (MEAN.as_micros() as f64 * numbers.exponential()) as u32;
            std::thread::sleep(begins.saturating_duration_since(Instant::now()));
            send.send((begins, us))?;
        }
        drop(send);
        threads.into_iter().try_for_each(|thread| thread.join().expect("a thread that calls"))
    })?;
    Ok(times.into_inner().expect("no thread panics"))
}
