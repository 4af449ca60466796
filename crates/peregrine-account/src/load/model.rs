//! What queueing theory predicts, and the random moments at which calls arrive.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

/// Random numbers that are the same in each run (SplitMix64).
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns an exponential number with the mean 1.
    fn exponential(&mut self) -> f64 {
        // 53 random bits, and never zero.
        let uniform = ((self.next() >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
        -uniform.ln()
    }

    /// Returns a number below `bound`.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// Returns when `count` calls arrive, in nanoseconds since the begin: a Poisson process with this mean time
    /// between two arrivals.
    pub(super) fn arrivals(&mut self, count: usize, between_ns: f64) -> Vec<u64> {
        let mut at = 0.0;
        let next = |_| {
            at += between_ns * self.exponential();
            at as u64
        };
        (0..count).map(next).collect()
    }
}

/// Returns the response times that a queue would have: `servers` servers take the calls in the order of their
/// arrival, and `service` returns how long the next call takes.
pub(super) fn queue(
    arrivals: &[u64],
    servers: usize,
    mut service: impl FnMut() -> u64,
) -> Vec<u64> {
    let mut free: BinaryHeap<Reverse<u64>> = (0..servers.max(1)).map(|_| Reverse(0)).collect();
    let respond = |arrival: &u64| {
        let Reverse(since) = free.pop().unwrap_or(Reverse(0));
        let end = since.max(*arrival) + service();
        free.push(Reverse(end));
        end - arrival
    };
    arrivals.iter().map(respond).collect()
}

/// Returns the mean response time of a queue with exponential service times of the mean `service_ns`. For one
/// server, it is Lampson's s / (1 - u). For several servers, it is Erlang's C formula.
pub(super) fn markov_ns(service_ns: f64, utilization: f64, servers: usize) -> f64 {
    let count = servers.max(1);
    let offered = utilization * count as f64;
    // Erlang's B formula, from server to server.
    let blocked = (1..=count).fold(1.0, |blocked, server| {
        let more = offered * blocked;
        more / (server as f64 + more)
    });
    let waits = blocked / (1.0 - utilization * (1.0 - blocked));
    service_ns * (1.0 + waits / (count as f64 * (1.0 - utilization)))
}

/// The line y = begin + slope * x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) begin: f64,
    pub(super) slope: f64,
}

/// Returns the line with the least sum of weighted squared distances. Returns `None` if all points have nearly
/// the same x.
pub(super) fn fit(points: impl Iterator<Item = (f64, f64, f64)> + Clone) -> Option<Line> {
    let sum = |of: fn((f64, f64, f64)) -> f64| points.clone().map(of).sum::<f64>();
    let weight = sum(|(_, _, w)| w);
    let (x, y) = (sum(|(x, _, w)| w * x) / weight, sum(|(_, y, w)| w * y) / weight);
    let moment =
        |of: &dyn Fn(f64, f64) -> f64| points.clone().map(|(x, y, w)| w * of(x, y)).sum::<f64>();
    let square = moment(&|one, _| (one - x) * (one - x));
    // The mean square must be above the noise of what is counted. It is NaN if there are no points.
    let is_spread = square > weight * 1e-6 * (1.0 + x * x);
    if !is_spread {
        return None;
    }
    let slope = moment(&|one, other| (one - x) * (other - y)) / square;
    Some(Line { begin: y - slope * x, slope })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_a_poisson_process() {
        let arrivals = Numbers::new(7).arrivals(100_000, 50.0);
        assert!(arrivals.is_sorted());
        let mean = arrivals[99_999] as f64 / 100_000.0;
        assert!((49.0..51.0).contains(&mean), "{mean}");
        let gaps = arrivals.windows(2).filter(|two| two[1] - two[0] > 100).count();
        // exp(-2) of the gaps are longer than twice the mean.
        assert!((13_000..14_100).contains(&gaps), "{gaps}");
        assert_eq!(arrivals[..9], Numbers::new(7).arrivals(9, 50.0));
    }

    #[test]
    fn queue_of_one_and_of_two_servers() {
        let arrivals = [0, 10, 20, 200];
        assert_eq!(queue(&arrivals, 1, || 50), [50, 90, 130, 50]);
        assert_eq!(queue(&arrivals, 2, || 50), [50, 50, 80, 50]);
    }

    #[test]
    fn simulated_queues_agree_with_the_formulas() {
        let service = 1000.0;
        for utilization in [0.3, 0.8] {
            let arrivals = Numbers::new(3).arrivals(400_000, service / utilization);
            let mean = |times: Vec<u64>| times.iter().sum::<u64>() as f64 / times.len() as f64;
            let constant = mean(queue(&arrivals, 1, || 1000));
            // Pollaczek and Khinchine: half of the waiting time of exponential service times.
            let expected = service * (1.0 + utilization / (2.0 * (1.0 - utilization)));
            assert!((constant / expected - 1.0).abs() < 0.03, "{constant} {expected}");
            let mut numbers = Numbers::new(4);
            let random = mean(queue(&arrivals, 1, || (service * numbers.exponential()) as u64));
            let expected = markov_ns(service, utilization, 1);
            assert!((expected - service / (1.0 - utilization)).abs() < 1e-6);
            assert!((random / expected - 1.0).abs() < 0.05, "{random} {expected}");
            let arrivals: Vec<u64> = arrivals.iter().map(|at| at / 4).collect();
            let random = mean(queue(&arrivals, 4, || (service * numbers.exponential()) as u64));
            let expected = markov_ns(service, utilization, 4);
            assert!((random / expected - 1.0).abs() < 0.05, "{random} {expected}");
        }
    }

    #[test]
    fn lines_are_fitted_if_there_is_one() {
        let points = [(0.0, 5.0, 1.0), (1.0, 7.0, 2.0), (3.0, 11.0, 1.0)];
        let line = fit(points.into_iter()).unwrap();
        assert!((line.begin - 5.0).abs() < 1e-9 && (line.slope - 2.0).abs() < 1e-9, "{line:?}");
        assert_eq!(fit([(2.0, 1.0, 1.0), (2.0, 3.0, 1.0)].into_iter()), None);
        assert_eq!(fit(core::iter::empty()), None);
    }
}
