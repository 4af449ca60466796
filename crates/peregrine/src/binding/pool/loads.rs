//! Asks servers how many calls they run, for [`Balance::LeastLoaded`](crate::Balance::LeastLoaded).
//!
//! A pool knows its own calls exactly, but not those of other clients. One thread of the process asks each
//! server that a pool uses, about twice a second, and only while the pool makes calls. A server that does not
//! answer in time counts as busy. It is asked less and less often, because the others are asked after it. One
//! that discloses nothing is not asked again.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::sync::{Arc, Weak};
use std::time::Instant;

use super::Pool;
use super::members::{Choice, Member};
use crate::address::Address;
use crate::binding::{BindOptions, Rebind};
use crate::directory::Offer;
use crate::error::{CallError, Kind};
use crate::observe::Layers;
use crate::server_info::{SERVER_NAME, ServerInfo as _, ServerInfoClient};
use crate::sync::Mutex;
use crate::sys::{self, PerProcess};

/// The time between two readings of a server's counters. Each pause is between a half and the whole of it
/// longer, so that clients do not ask at the same moments.
const EVERY: Duration = Duration::from_millis(400);

/// How long a server may take for its answer.
const WITHIN: Duration = Duration::from_millis(250);

/// The load that is assumed of a server that does not answer in time.
const BUSY: u32 = 1 << 20;

/// The largest number of readings for which a server that does not answer is not asked.
const SKIPPED_MAX: u32 = 15;

/// How a pool asks a server.
#[derive(Default)]
pub(super) enum Asking {
    #[default]
    NotYet,
    Bound(ServerInfoClient),
    /// The server did not answer, and is not asked for a time.
    Silent {
        /// For how many readings the server is not asked.
        skip: u32,
        /// For how many readings it is not asked after another question without an answer.
        next: u32,
    },
    /// The server does not disclose its counters.
    Never,
}

impl Asking {
    /// Returns whether the server is asked now: after how many readings in which it was not asked. Otherwise
    /// counts a reading in which it is not asked.
    fn is_due(&mut self) -> Option<u32> {
        match self {
            Self::Silent { skip: 0, next } => Some(*next),
            Self::Silent { skip, .. } => {
                *skip -= 1;
                None
            }
            _ => Some(0),
        }
    }

    /// The state after a question without an answer. Before the question, `skipped` readings were to be
    /// skipped.
    fn silent(skipped: u32) -> Self {
        Self::Silent { skip: skipped, next: (2 * skipped + 1).min(SKIPPED_MAX) }
    }
}

/// The pools whose servers are asked.
static POOLS: PerProcess<Asked> = PerProcess::new();

#[derive(Default)]
struct Asked(Mutex<Pools>);

#[derive(Default)]
struct Pools {
    all: Vec<Weak<Pool>>,
    runs: bool,
}

/// Asks the servers of a pool until the pool is dropped, if the pool needs their load. If no thread can be
/// started, the pool counts its own calls only.
pub(super) fn ask(pool: &Arc<Pool>) {
    if pool.choice != Choice::LessLoaded {
        return;
    }
    let asked = POOLS.own();
    let mut pools = asked.0.lock();
    pools.all.push(Arc::downgrade(pool));
    if !pools.runs {
        let thread = std::thread::Builder::new().name("peregrine-loads".into());
        pools.runs = thread.spawn(|| asked.run()).is_ok();
    }
}

impl Asked {
    fn run(&self) {
        let mut random = sys::random().map_or(1, u64::from_ne_bytes);
        let mut seen: Vec<(Weak<Pool>, u64)> = Vec::new();
        loop {
            let more = f64::from(super::next(&mut random)) / f64::from(u32::MAX);
            std::thread::sleep(EVERY.mul_f64(1.0 + more / 2.0));
            let pools = {
                let mut pools = self.0.lock();
                pools.all.retain(|pool| pool.strong_count() > 0);
                pools.runs = !pools.all.is_empty();
                pools.all.clone()
            };
            if pools.is_empty() {
                return;
            }
            seen.retain(|one| one.0.strong_count() > 0);
            for weak in pools {
                let Some(pool) = weak.upgrade() else { continue };
                let turns = pool.turns.sum();
                let known = seen.iter_mut().find(|one| one.0.ptr_eq(&weak));
                let is_idle = known.as_ref().is_some_and(|one| one.1 == turns);
                match known {
                    Some(known) => known.1 = turns,
                    None => seen.push((weak, turns)),
                }
                // The list is not kept while servers are asked, so that those that end are dropped.
                let members = pool.members.share();
                if is_idle || members.preferred < 2 {
                    continue;
                }
                let asked: Vec<_> = members.preferred().iter().map(Arc::downgrade).collect();
                let options = options(&pool.asked.options);
                drop((members, pool));
                for member in asked {
                    if let Some(member) = member.upgrade() {
                        member.ask(&options);
                    }
                }
            }
        }
    }
}

/// Returns the options with which a server is asked.
fn options(options: &BindOptions) -> BindOptions {
    let within = WITHIN.min(options.bind_limit / 10);
    let mut options = options.clone().astacks(1).rebind(Rebind::Never).bind_timeout(within);
    options.wait_for = Duration::ZERO;
    options.layers = Layers::none();
    options
}

/// Asks a server once how many calls it runs. A server that does not answer in time, or that cannot be
/// reached, counts as busy.
pub(in crate::binding) fn load(offer: &Offer, options: &BindOptions) -> u32 {
    let address = offer.addresses().first();
    running(&mut Asking::NotYet, address, &self::options(options)).unwrap_or(BUSY)
}

impl Member {
    /// Asks the server how many calls it runs, and notes how many of them are of other clients.
    fn ask(&self, options: &BindOptions) {
        let mut asking = self.asking.lock();
        let Some(skipped) = asking.is_due() else { return };
        let before = self.own_calls();
        let running = match running(&mut asking, self.address.as_ref(), options) {
            Ok(running) => running,
            Err(error) => {
                let never =
                    matches!(error.kind(), Kind::NotFound | Kind::Denied | Kind::InterfaceMismatch);
                *asking = if never { Asking::Never } else { Asking::silent(skipped) };
                if never { 0 } else { BUSY }
            }
        };
        // Calls of this pool may have begun or ended meanwhile. The larger number is the better guess,
        // because too many calls of others would keep calls away from an idle server.
        let own = before.max(self.own_calls());
        self.others.store(running.saturating_sub(own), Ordering::Relaxed);
    }
}

/// Returns how many calls a server runs. The question itself does not count.
fn running(
    asking: &mut Asking,
    address: Option<&Address>,
    options: &BindOptions,
) -> Result<u32, CallError> {
    let begun = Instant::now();
    let client = match asking {
        Asking::Never => return Ok(0),
        Asking::Bound(client) => client,
        Asking::NotYet | Asking::Silent { .. } => {
            let Some(address) = address else {
                *asking = Asking::Never;
                return Ok(0);
            };
            let at = address.named(SERVER_NAME).to_string();
            *asking = Asking::Bound(ServerInfoClient::bind_with(&at, options)?);
            let Asking::Bound(client) = asking else { return Ok(0) };
            client
        }
    };
    let left = options.bind_limit.saturating_sub(begun.elapsed());
    let stat = client.with_timeout(left.max(options.bind_limit / 2)).stat()?.server;
    // A server may send any numbers.
    let all = stat.counts.in_flight.saturating_add(stat.queued).saturating_sub(1);
    Ok(u32::try_from(all).unwrap_or(BUSY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_servers_are_asked_less_and_less_often() {
        let mut asking = Asking::NotYet;
        let mut asked = Vec::new();
        for reading in 0..60 {
            if let Some(skipped) = asking.is_due() {
                asked.push(reading);
                asking = Asking::silent(skipped);
            }
        }
        assert_eq!(asked, [0, 1, 3, 7, 15, 31, 47]);
    }
}
