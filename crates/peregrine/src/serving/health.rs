//! [`Health`]: whether a server serves, is overloaded, or is about to stop.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use super::ServerCore;

/// What a server reports about itself, on any path. See [`health`](fn@crate::health).
///
/// A server that has ended reports nothing: the question fails with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, peregrine_macros::Value)]
#[non_exhaustive]
pub enum Health {
    /// The server runs calls at once.
    Serving,
    /// The server is about to stop. It refuses new calls, and waits for those that run.
    Draining,
    /// On at least one path, all threads that may run procedures do so, or no further call may be deferred. A
    /// call that arrives there waits, or is refused.
    ///
    /// A report is a snapshot. A server with few threads is overloaded for moments, also under normal load.
    Overloaded,
    /// A later version of the server reports something else.
    #[other]
    Unknown,
}

impl Health {
    /// Returns the report in one word, such as `serving`.
    ///
    /// ```
    /// assert_eq!(peregrine::Health::Draining.text(), "draining");
    /// ```
    pub const fn text(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Draining => "draining",
            Self::Overloaded => "overloaded",
            Self::Unknown => "unknown",
        }
    }

    /// Returns the number of this report in messages of the local path.
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Unknown => 0,
            Self::Serving => 1,
            Self::Draining => 2,
            Self::Overloaded => 3,
        }
    }

    /// Returns the report with this number.
    pub(crate) const fn of_number(number: u32) -> Self {
        match number {
            1 => Self::Serving,
            2 => Self::Draining,
            3 => Self::Overloaded,
            _ => Self::Unknown,
        }
    }
}

impl core::fmt::Display for Health {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.text())
    }
}

/// The names of the exports that networks could call when the server began to stop.
pub(crate) type DrainingNames = OnceLock<Vec<String>>;

impl ServerCore {
    /// Returns the health of the server. Needs no free thread of the server.
    pub(crate) fn health(&self) -> Health {
        if self.stopping.load(Ordering::Relaxed) {
            Health::Draining
        } else if self.disclosed.is_full() || self.deferrals.is_full() {
            Health::Overloaded
        } else {
            Health::Serving
        }
    }

    /// Notes that the server begins to stop.
    pub(crate) fn begin_to_stop(&self) {
        let exports = self.exports.lock();
        let offered = exports.iter().filter(|one| one.is_named() && one.is_offered_in_clear());
        let names = offered.map(|export| export.name.clone()).collect();
        drop(exports);
        let _ = self.draining.set(names);
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Returns whether the server stops, and networks could call an export with this name before.
    pub(crate) fn drains(&self, name: &str) -> bool {
        self.draining.get().is_some_and(|names| names.iter().any(|one| one == name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_a_report_is_read_as_written() {
        for health in [Health::Serving, Health::Draining, Health::Overloaded, Health::Unknown] {
            assert_eq!(Health::of_number(health.number()), health);
        }
        assert_eq!(Health::of_number(4), Health::Unknown);
    }
}
