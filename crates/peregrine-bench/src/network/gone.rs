//! Measures how soon a call fails after its server has failed. The server process is killed, or the link to
//! its machine is cut.

use std::time::{Duration, Instant};

use peregrine::{BindOptions, Executed};

use super::far::{Far, Order};
use super::link::Link;
use super::own;
use super::path::Path;
use crate::cases::{Size, Waiting};
use crate::interfaces::{Small, SmallClient};
use crate::subject::Failure;

/// The kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerFailure {
    /// The server process is killed, and its machine stays up.
    Killed,
    /// No packet arrives from the server's machine any more.
    Cut,
}

/// The measured combinations: kind of failure, path, link.
pub(crate) const ALL: [(ServerFailure, Path, Link); 4] = [
    (ServerFailure::Killed, Path::Udp, Link::Loopback),
    (ServerFailure::Killed, Path::Tcp, Link::Loopback),
    (ServerFailure::Cut, Path::Udp, Link::Veth),
    (ServerFailure::Cut, Path::Tcp, Link::Veth),
];

/// Makes a call whose procedure sleeps for `long_ms` milliseconds. During the call, after the time `runs`,
/// kills the server or cuts the link. Returns the time from this failure until the call has failed.
pub(crate) fn once(
    (failure, path, link): (ServerFailure, Path, Link),
    wait: Waiting,
    runs: Duration,
    long_ms: u32,
) -> Result<Duration, Failure> {
    let mut far = Far::start(link, None)?;
    let at = far.order(Order::Serve(path, wait, 2))?;
    let address = format!("{}:{}/{}", path.scheme(), at[0], own::name(Size::Small));
    let client = SmallClient::bind_with(&address, &BindOptions::default().wait(wait.wait()))?;
    client.null()?;
    let (gone, (outcome, noticed)) = std::thread::scope(|scope| {
        let caller = scope.spawn(|| (client.sleep(long_ms), Instant::now()));
        std::thread::sleep(runs);
        let gone = Instant::now();
        let done = match failure {
            ServerFailure::Killed => far.kill(),
            ServerFailure::Cut => far.cut(),
        };
        let caller = caller.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        done.map(|()| (gone, caller))
    })?;
    match outcome {
        Err(error) if error.executed() == Executed::Maybe && noticed > gone => Ok(noticed - gone),
        Err(error) => Err(error.into()),
        Ok(()) => Err("a procedure that sleeps for a minute returned early".into()),
    }
}
