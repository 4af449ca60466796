//! The thread that keeps the pools of a process: it takes over what directories report, and begins to bind to
//! servers that are due. It sleeps while there is nothing to do, and ends with the last pool.

use std::sync::{Arc, Weak};
use std::time::Instant;

use super::Pool;
use crate::error::{CallError, Phase};
use crate::sync::{Condvar, Mutex};
use crate::sys::PerProcess;

/// The pools of this process. A forked child has its own.
static KEEPER: PerProcess<Keeper> = PerProcess::new();

#[derive(Default)]
struct Keeper {
    pools: Mutex<Pools>,
    work: Condvar,
}

#[derive(Default)]
struct Pools {
    all: Vec<Weak<Pool>>,
    /// Whether the thread runs.
    runs: bool,
    /// Whether there is work that the thread has not seen.
    has_work: bool,
}

/// Makes the thread keep a pool until the pool is dropped.
///
/// # Errors
/// If the thread cannot be started.
pub(super) fn keep(pool: &Arc<Pool>) -> Result<(), CallError> {
    let keeper = KEEPER.own();
    let mut pools = keeper.pools.lock();
    if !pools.runs {
        let thread = std::thread::Builder::new().name("peregrine-pools".into());
        thread.spawn(|| keeper.run()).map_err(|error| {
            CallError::system(Phase::Bind, "cannot start the thread that keeps pools", error)
        })?;
        pools.runs = true;
    }
    pools.all.push(Arc::downgrade(pool));
    pools.has_work = true;
    keeper.work.notify_one();
    Ok(())
}

/// Makes the thread look after all pools.
pub(super) fn wake() {
    let keeper = KEEPER.own();
    keeper.pools.lock().has_work = true;
    keeper.work.notify_one();
}

impl Keeper {
    fn run(&self) {
        while let Some(pools) = self.pools() {
            let due = pools.iter().filter_map(Weak::upgrade).filter_map(|pool| pool.look_after());
            let due = due.min();
            let pools = self.pools.lock();
            if pools.has_work {
                continue;
            }
            let sleeping = match due {
                Some(due) => {
                    let left = due.saturating_duration_since(Instant::now());
                    self.work.wait_timeout(pools, left).0
                }
                None => self.work.wait(pools),
            };
            drop(sleeping);
        }
    }

    /// Returns the pools. If there are none, notes that the thread ends.
    fn pools(&self) -> Option<Vec<Weak<Pool>>> {
        let mut pools = self.pools.lock();
        pools.has_work = false;
        pools.all.retain(|pool| pool.strong_count() > 0);
        pools.runs = !pools.all.is_empty();
        pools.runs.then(|| pools.all.clone())
    }
}
