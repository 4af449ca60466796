//! Servers that go under a call: killed, or behind a link that is cut. The time until the call fails.

use std::time::{Duration, Instant};

use peregrine::{BindOptions, Executed};

use super::far::{Far, Order};
use super::link::Link;
use super::own;
use super::path::Path;
use crate::cases::{Size, Waiting};
use crate::interfaces::{Small, SmallClient};
use crate::subject::Failure;

/// How a server goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Going {
    /// Its process is killed, and its machine lives.
    Killed,
    /// Nothing comes from its machine any more.
    Cut,
}

/// What is measured: how it goes, along which path, across what.
pub(crate) const ALL: [(Going, Path, Link); 4] = [
    (Going::Killed, Path::Udp, Link::Loopback),
    (Going::Killed, Path::Tcp, Link::Loopback),
    (Going::Cut, Path::Udp, Link::Veth),
    (Going::Cut, Path::Tcp, Link::Veth),
];

/// Makes a call that does not end, and has its server go when it `runs` for so long: how long the caller
/// waits then.
pub(crate) fn once(
    (going, path, link): (Going, Path, Link),
    wait: Waiting,
    runs: Duration,
    long_ms: u32,
) -> Result<Duration, Failure> {
    let mut far = Far::start(link, None)?;
    let at = far.order(Order::Serve(path, wait, 2))?;
    let address = format!("{}:{}/{}", path.scheme(), at[0], own::name(Size::Small));
    let client = SmallClient::bind_with(&address, &BindOptions::default().wait(wait.wait()))?;
    client.null()?;
    let (gone, (outcome, told)) = std::thread::scope(|scope| {
        let caller = scope.spawn(|| (client.sleep(long_ms), Instant::now()));
        std::thread::sleep(runs);
        let gone = Instant::now();
        let done = match going {
            Going::Killed => far.kill(),
            Going::Cut => far.cut(),
        };
        let caller = caller.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        done.map(|()| (gone, caller))
    })?;
    match outcome {
        Err(error) if error.executed() == Executed::Maybe && told > gone => Ok(told - gone),
        Err(error) => Err(error.into()),
        Ok(()) => Err("a procedure of a minute returned at once".into()),
    }
}
