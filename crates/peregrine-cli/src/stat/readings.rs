//! The readings of a server's counters: the server sends them, or the command asks for each of them.

use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use peregrine::counters::Stat;
use peregrine::{CallError, Sink};

use crate::output::Failure;
use crate::security::bind_options;

/// The interval at which the command checks whether a signal or a key ends it.
const CHECK: Duration = Duration::from_millis(20);

/// Where readings come from.
pub(super) enum Readings {
    /// The command asks for a reading at each interval.
    Ask { address: String, every: Duration, due: Instant },
    /// The server sends readings. If it cannot, the library asks for them.
    Watch(Receiver<Result<Stat, CallError>>),
}

impl Readings {
    /// Asks for readings. The first one comes after an interval.
    pub(super) fn ask(address: &str, every: Duration) -> Self {
        Self::Ask { address: address.to_owned(), every, due: Instant::now() + every }
    }

    /// Makes the server send readings. Also returns the first one, which comes at once.
    pub(super) fn watch(address: &str, every: Duration) -> Result<(Stat, Self), Failure> {
        // The thread ends together with the process.
        let (sender, receiver) = sync_channel(1);
        let address = address.to_owned();
        thread::spawn(move || {
            let sink = Sink::new(|stat| drop(sender.send(Ok(stat))));
            if let Err(error) = peregrine::watch_with(&address, every, sink, &bind_options()) {
                let _ = sender.send(Err(error));
            }
        });
        match receiver.recv() {
            Ok(first) => Ok((first?, Self::Watch(receiver))),
            Err(_) => Err(Failure::local("the server sends no counters", "try again")),
        }
    }

    /// Waits for the next reading. If the command asked for the reading, also returns how long the request
    /// took. Returns no reading if the command ends. `is_ended` waits for the given time, and returns whether
    /// the command ends.
    pub(super) fn next(
        &mut self,
        is_ended: impl Fn(Duration) -> Result<bool, Failure>,
    ) -> Result<Option<(Stat, Option<Duration>)>, Failure> {
        match self {
            Self::Ask { address, every, due } => {
                loop {
                    let left = due.saturating_duration_since(Instant::now());
                    if is_ended(left.min(CHECK))? {
                        return Ok(None);
                    }
                    if left <= CHECK {
                        break;
                    }
                }
                let begun = Instant::now();
                let stat = peregrine::stat_with(address, &bind_options())?;
                // If the command was delayed for longer than an interval, the missed intervals are skipped.
                *due = (*due + *every).max(Instant::now());
                Ok(Some((stat, Some(begun.elapsed()))))
            }
            Self::Watch(receiver) => loop {
                if is_ended(Duration::ZERO)? {
                    return Ok(None);
                }
                match receiver.recv_timeout(CHECK) {
                    Ok(reading) => return Ok(Some((reading?, None))),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return Ok(None),
                }
            },
        }
    }
}
