//! What a run has measured: one value for each key, accounts of calls, and the two studies. A group of
//! measurements is made once, and used by several tables.

use std::collections::BTreeMap;

use peregrine_account::Account;

use super::measure;
use crate::subject::Failure;
use crate::{Progress, Selection, larus, stubs};

/// Measurements that are made together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group {
    /// Calls between two processes of this machine, and their limits.
    Local,
    /// Calls whose arguments or results are of several types, and calls without stubs.
    Marshalling,
    /// Calls of a program that reads files through a file service, and the packets of this machine.
    Census,
    /// Calls by several processes.
    Processors,
    /// The time that packets take across a link.
    Penalty,
    /// Calls across a link, and their limits.
    Network,
    /// Calls by several threads across a link.
    Threads,
    /// Accounts of calls.
    Accounts,
    /// Three versions of a routine.
    Versions,
    /// The memory and the disk.
    Hardware,
    /// Calls by other systems.
    Peers,
    /// The study of stubs.
    Stubs,
    /// The study of Courier.
    Courier,
}

impl Group {
    /// All groups, in the order in which they are measured.
    pub(crate) const ALL: [Self; 13] = [
        Self::Local,
        Self::Marshalling,
        Self::Census,
        Self::Processors,
        Self::Penalty,
        Self::Network,
        Self::Threads,
        Self::Accounts,
        Self::Versions,
        Self::Hardware,
        Self::Peers,
        Self::Stubs,
        Self::Courier,
    ];

    /// Returns why this group cannot be measured here, or `None` if it can.
    pub(crate) fn missing(self) -> Option<String> {
        let link = || crate::network::link::Link::Veth.missing().map(str::to_owned);
        let processors = crate::machine::processors().len();
        let two = || (processors < 2).then(|| "two processors are needed".to_owned());
        match self {
            Self::Local | Self::Marshalling => two(),
            Self::Penalty | Self::Network | Self::Threads | Self::Accounts | Self::Courier => {
                two().or_else(link)
            }
            Self::Peers if !cfg!(feature = "peers") => {
                let how = "the table needs other systems: build with `--features peers`";
                Some(how.to_owned())
            }
            Self::Peers => two().or_else(link),
            Self::Census | Self::Processors | Self::Versions | Self::Hardware | Self::Stubs => None,
        }
    }
}

/// The number of bytes of the data of each call of a census: arguments and results.
pub(crate) type Sizes = BTreeMap<u64, u64>;

/// All measurements of a run.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// Times in nanoseconds, unless the key says something else.
    values: BTreeMap<String, f64>,
    pub(super) accounts: BTreeMap<&'static str, Account>,
    pub(super) sizes: Sizes,
    pub(super) stubs: Option<stubs::Study>,
    pub(super) courier: Option<larus::Study>,
    /// The groups that could not be measured here, and why.
    pub(super) missing: BTreeMap<Group, String>,
    /// The groups whose measurement failed, and why.
    pub(super) failed: BTreeMap<Group, String>,
    /// If this is set, every key has a value (for tests of the tables).
    #[cfg(test)]
    synthetic: bool,
}

impl Measured {
    /// Measures the groups, each once.
    pub(crate) fn measure(groups: &[Group], selection: &Selection, progress: &Progress) -> Self {
        let mut measured = Self::default();
        for group in Group::ALL.into_iter().filter(|group| groups.contains(group)) {
            if let Some(why) = group.missing() {
                measured.missing.insert(group, why);
                continue;
            }
            let done = measured.add(group, selection, progress);
            if let Err(error) = done {
                measured.failed.insert(group, error.to_string());
            }
        }
        measured
    }

    fn add(
        &mut self,
        group: Group,
        selection: &Selection,
        progress: &Progress,
    ) -> Result<(), Failure> {
        match group {
            Group::Local => measure::local::local(self, selection, progress),
            Group::Marshalling => measure::local::marshalling(self, selection, progress),
            Group::Census => measure::census::measure(self, progress),
            Group::Processors => measure::processors::processors(self, selection, progress),
            Group::Penalty => measure::network::penalty(self, selection, progress),
            Group::Network => measure::network::calls(self, selection, progress),
            Group::Threads => measure::processors::threads(self, selection, progress),
            Group::Accounts => measure::accounts::measure(self, selection, progress),
            Group::Versions => measure::versions::measure(self, progress),
            Group::Hardware => measure::hardware::measure(self, progress),
            Group::Peers => measure::network::peers(self, selection, progress),
            Group::Stubs => {
                // Another thread measures the study, because the study pins its thread to one processor.
                let study = std::thread::scope(|scope| {
                    let study = scope.spawn(|| stubs::study(selection, progress));
                    study.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })?;
                self.stubs = Some(study);
                Ok(())
            }
            Group::Courier => {
                self.courier = Some(larus::study(selection, progress)?);
                Ok(())
            }
        }
    }

    /// Adds a value.
    pub(super) fn set(&mut self, key: String, value: f64) {
        self.values.insert(key, value);
    }

    /// Returns a value.
    pub(crate) fn value(&self, key: &str) -> Option<f64> {
        #[cfg(test)]
        if self.synthetic {
            return Some(1000.0);
        }
        self.values.get(key).copied().filter(|value| value.is_finite())
    }

    /// Returns a time in microseconds.
    pub(crate) fn us(&self, key: &str) -> Option<f64> {
        self.value(key).map(|ns| ns / 1e3)
    }

    /// Returns the sum of values, or `None` if one of them is missing.
    pub(crate) fn sum(&self, keys: &[&str]) -> Option<f64> {
        keys.iter().map(|key| self.value(key)).sum()
    }

    /// Returns the time of the parts of an account with these numbers, in nanoseconds.
    pub(crate) fn parts(&self, account: &str, parts: &[usize]) -> Option<f64> {
        let account = self.accounts.get(account)?;
        parts.iter().map(|part| account.parts.get(*part).map(|part| part.ns)).sum()
    }

    /// Returns all values with their keys.
    pub(crate) fn values(&self) -> &BTreeMap<String, f64> {
        &self.values
    }

    /// Returns why a table with these groups cannot be measured here, or `None` if it can.
    pub(crate) fn why_missing(&self, groups: &[Group]) -> Option<&str> {
        groups.iter().find_map(|group| self.missing.get(group)).map(String::as_str)
    }

    /// Returns a value for every key, and all studies, with invented figures.
    #[cfg(test)]
    pub(crate) fn synthetic() -> Self {
        use peregrine_account::{Part, Side};
        let part = |_| Part { name: "part", side: Side::Client, ns: 100.0, spread_ns: 1.0 };
        let account = || Account {
            parts: (0..10).map(part).collect(),
            whole_ns: 1010.0,
            plain_ns: 1000.0,
            stamp_ns: [20.0, 20.0],
            rounds: 9,
        };
        let accounts = measure::accounts::ALL.map(|name| (name, account()));
        Self {
            accounts: accounts.into(),
            sizes: Sizes::from([(8, 10), (60, 100), (1000, 50), (5000, 7)]),
            courier: Some(larus::report::synthetic()),
            synthetic: true,
            ..Self::default()
        }
    }
}
