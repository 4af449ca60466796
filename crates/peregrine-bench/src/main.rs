//! Compares Peregrine with the limits of the machine that it runs on.
//!
//! The main figures are ratios: Peregrine's time divided by the time of a *limit*. A limit is the smallest
//! program that moves the same data in the same way. The limit and Peregrine are measured alternately, round
//! by round, in one run.
#![forbid(unsafe_code)]

mod account;
mod bind;
mod bindings;
mod caller;
mod cases;
mod child;
mod cluster;
mod command;
mod compare;
mod concurrent;
mod cost;
mod crowd;
mod death;
mod foreign;
mod goodput;
mod growth;
#[cfg(feature = "peers")]
mod iceoryx;
mod interfaces;
mod larus;
mod limits;
mod local;
mod machine;
mod marks;
mod network;
mod orders;
mod peer;
#[cfg(feature = "peers")]
mod peers;
mod pingpong;
mod ring;
mod row;
mod run_directory;
mod secure;
#[cfg(feature = "peers")]
mod seqpacket;
mod statistics;
mod stubs;
mod subject;
mod swapped;
mod tables;
mod throughput;
mod window;

use std::error::Error;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::cases::Placement;
use crate::row::Format;

/// Compares Peregrine with the limits of this machine.
#[derive(Debug, Parser)]
#[command(name = "peregrine-bench", version)]
struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Debug, Subcommand)]
enum Experiment {
    /// The limits of the machine, without Peregrine.
    Limits {
        #[command(flatten)]
        selection: Selection,
        #[command(flatten)]
        filter: network::Filter,
    },
    /// Calls to another process of this machine, each compared with its limit.
    Local {
        #[command(flatten)]
        selection: Selection,
        #[command(flatten)]
        filter: local::Filter,
    },
    /// Calls to another machine, each compared with its limit: over loopback, and over a veth pair between
    /// two network namespaces (needs root).
    Network {
        #[command(flatten)]
        selection: Selection,
        #[command(flatten)]
        filter: network::Filter,
    },
    /// The time of each step of a call (needs the feature `stamps`).
    Account(Selection),
    /// Calls by other systems to another process or machine, in the same rounds as Peregrine's calls (needs
    /// the feature `peers`).
    Peers {
        #[command(flatten)]
        selection: Selection,
        /// Only calls across a network
        #[arg(long)]
        network_only: bool,
    },
    /// Calls to a server of the other byte order, each compared with the same call to a server of this
    /// machine's byte order.
    Swapped(Selection),
    /// The time of binding, compared with the system calls that it needs. Also how soon a binding works again
    /// after its server has been restarted, how soon the death of a server is noticed, and calls to a server
    /// of the other byte order.
    Bind(Selection),
    /// Calls to a server whose interface has grown, each compared with the interpreted call to a server that
    /// has the client's interface. Also the time of binding to a server whose interface has grown.
    Growth(Selection),
    /// Calls to servers of other RPC systems, each compared with its limit: ONC RPC over UDP and TCP, and
    /// with the feature `peers`, libtirpc. Also calls through a bridge, and the time of writing and reading
    /// XDR.
    Foreign(Selection),
    /// Courier over TCP, packet Courier, Courier over Peregrine's packet exchange, and Peregrine: the study
    /// of Larus on this machine, with profiles if `perf` works.
    Courier(Selection),
    /// Encrypted and authenticated calls over TCP and UDP, and binding, each compared with the smallest
    /// program that does the same cryptography.
    Secure(Selection),
    /// Calls by a pool of servers, compared with calls by a binding, and two ways to choose a server compared
    /// with each other.
    Cluster(Selection),
    /// Async calls, alone and 1,000 in flight from one thread, compared with blocking calls
    Concurrent(Selection),
    /// Every table of the papers that Peregrine implements, measured on this machine, next to the paper's
    /// figures. Writes docs/TABLES.md, or compares it with a new run (needs root for virtual networks).
    Tables(tables::Options),
    /// The costs of ten designs of stubs, and of Peregrine's: the study of Chung, Lazowska, Notkin and
    /// Zahorjan on this machine.
    Stubs {
        #[command(flatten)]
        selection: Selection,
        #[command(flatten)]
        picture: stubs::Picture,
    },
    /// The cost of marshalling any interface in each of ten stub designs: an equation for every procedure,
    /// and its value with parameters that are measured now.
    Cost(cost::Options),
    /// A whole `peregrine call` as a process, compared with the same program when it does nothing.
    Command(Selection),
    /// How soon a caller learns that its server has failed: killed, or (needs root) cut off.
    Death(Deaths),
    /// Large results over links of a given rate, delay and loss, compared with TCP (cubic): alone and
    /// together (needs root).
    Goodput(goodput::Options),
    /// Compares two builds of this program, measured alternately. The script `crates/peregrine-bench/compare`
    /// builds two commits and starts this experiment.
    #[command(hide = true)]
    Compare(compare::Options),
    /// Compares the instructions per call of two builds. The script `crates/peregrine-bench/compare` starts
    /// this experiment.
    #[command(hide = true)]
    Instructions(compare::instructions::Options),
    /// The other process of a measurement.
    #[command(hide = true)]
    Child(child::Options),
    /// The process at the far end of a link.
    #[command(hide = true)]
    Far(network::far::Options),
    /// One of many calling processes.
    #[command(hide = true)]
    Caller(caller::Options),
    /// The server process of the experiment `bind`.
    #[command(hide = true)]
    Binder(bind::Options),
    /// The server process of the experiment `cluster`.
    #[command(hide = true)]
    ClusterServers(cluster::Options),
    /// The server process of the experiment `swapped`.
    #[command(hide = true)]
    Declared(swapped::Options),
    /// The client or the server process of another system.
    #[cfg(feature = "peers")]
    #[command(hide = true)]
    OtherSystem(peers::Options),
    /// The client or the server process of another system that calls across a network.
    #[cfg(feature = "peers")]
    #[command(hide = true)]
    OtherNetwork(network::other::Options),
}

impl Experiment {
    /// Returns whether the command runs in the environment in which it was started. All other commands get a
    /// new runtime directory and network namespace. Three kinds of commands run in the existing environment.
    /// A process of an experiment uses the directory and the namespace of its experiment. `cost` contacts the
    /// user's servers. A comparison only starts other commands, each of which gets a new directory and
    /// namespace.
    const fn runs_here(&self) -> bool {
        match self {
            Self::Compare(_) | Self::Instructions(_) => true,
            Self::Child(_)
            | Self::Far(_)
            | Self::Caller(_)
            | Self::Declared(_)
            | Self::ClusterServers(_)
            | Self::Binder(_) => true,
            Self::Cost(_) => true,
            #[cfg(feature = "peers")]
            Self::OtherSystem(_) | Self::OtherNetwork(_) => true,
            _ => false,
        }
    }
}

/// The selected measurements, the number of rounds, and the format of the result.
#[derive(Clone, Debug, Args)]
pub(crate) struct Selection {
    /// Fewer and shorter rounds: ends within 45 seconds
    #[arg(long)]
    quick: bool,
    /// How the result is shown
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Only this case (may be repeated)
    #[arg(long = "case", value_name = "NAME", value_parser = cases::names())]
    cases: Vec<String>,
    /// Only this placement (may be repeated)
    #[arg(long = "placement", value_enum)]
    placements: Vec<Placement>,
    /// Rounds per row
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
}

/// Options of the experiment `death`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Deaths {
    /// 20 rounds instead of 100, and 5 instead of 20 across networks
    #[arg(long)]
    quick: bool,
    /// How the result is shown
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// How many servers on this machine are killed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// How many servers fail across each network, for each kind of failure
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    far_rounds: Option<u32>,
}

impl Selection {
    fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 7 } else { 25 }).max(1) as usize
    }

    /// Returns the number of rounds of measurements that take long because they have many callers or many
    /// bindings.
    fn few_rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 5 } else { 15 }).max(1) as usize
    }

    /// Returns the time for which Peregrine, or one limit, is measured in one round.
    const fn slice(&self) -> Duration {
        Duration::from_millis(if self.quick { 2 } else { 4 })
    }

    /// Returns the time for which the calls of many callers are counted, in each round.
    const fn window(&self) -> Duration {
        Duration::from_millis(if self.quick { 20 } else { 40 })
    }

    fn has_case(&self, name: &str) -> bool {
        self.cases.is_empty() || self.cases.iter().any(|case| case == name)
    }

    fn has_placement(&self, placement: Placement) -> bool {
        self.placements.is_empty() || self.placements.contains(&placement)
    }
}

/// One line on a terminal that shows the current measurement.
#[derive(Debug)]
pub(crate) struct Progress {
    shown: bool,
}

impl Progress {
    fn new() -> Self {
        Self { shown: std::io::stderr().is_terminal() }
    }

    /// Replaces the text of the line.
    pub(crate) fn show(&self, text: &str) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.show("");
    }
}

fn run(arguments: Arguments) -> Result<(), Box<dyn Error + Send + Sync>> {
    let progress = Progress::new();
    let (name, format, rows) = match arguments.experiment {
        Experiment::Child(options) => return child::run(&options),
        Experiment::Far(options) => return network::far::run(&options),
        Experiment::Caller(options) => return caller::run(&options),
        Experiment::Declared(options) => return swapped::run(&options),
        Experiment::Binder(options) => return bind::run(&options),
        Experiment::ClusterServers(options) => return cluster::run(&options),
        Experiment::Compare(options) => return compare::run(&options, &progress),
        Experiment::Instructions(options) => {
            return compare::instructions::run(&options, &progress);
        }
        Experiment::Limits { selection, filter } => {
            ("limits", selection.format, limits::measure(&selection, filter, &progress)?)
        }
        Experiment::Local { selection, filter } => {
            ("local", selection.format, local::measure(&selection, &filter, &progress)?)
        }
        Experiment::Network { selection, filter } => {
            ("network", selection.format, network::measure(&selection, &filter, &progress)?)
        }
        Experiment::Swapped(selection) => {
            let allowed = machine::processors();
            ("swapped", selection.format, swapped::measure(&selection, &allowed, &progress)?)
        }
        Experiment::Growth(selection) => {
            let allowed = machine::processors();
            ("growth", selection.format, growth::measure(&selection, &allowed, &progress)?)
        }
        Experiment::Foreign(selection) => {
            ("foreign", selection.format, foreign::measure(&selection, &progress)?)
        }
        Experiment::Secure(selection) => {
            ("secure", selection.format, secure::measure(&selection, &progress)?)
        }
        Experiment::Cluster(selection) => {
            ("cluster", selection.format, cluster::measure(&selection, &progress)?)
        }
        Experiment::Concurrent(selection) => {
            ("concurrent", selection.format, concurrent::measure(&selection, &progress)?)
        }
        Experiment::Stubs { selection, picture } => {
            return stubs::run(&selection, &picture, &progress);
        }
        Experiment::Tables(options) => return tables::run(&options, &progress),
        Experiment::Courier(selection) => return larus::run(&selection, &progress),
        Experiment::Account(selection) => return account::show(&selection, &progress),
        #[cfg(feature = "peers")]
        Experiment::OtherSystem(options) => return peers::run(&options),
        #[cfg(feature = "peers")]
        Experiment::OtherNetwork(options) => return network::other::run(&options),
        #[cfg(feature = "peers")]
        Experiment::Peers { selection, network_only } => {
            let mut rows = Vec::new();
            if !network_only {
                rows = peers::measure(&selection, &progress)?;
                if selection.cases.is_empty() {
                    rows.extend(stubs::encodings::measure(&selection, &progress)?);
                }
            }
            rows.extend(network::others(&selection, &progress)?);
            ("peers", selection.format, rows)
        }
        #[cfg(not(feature = "peers"))]
        Experiment::Peers { .. } => {
            let how = "cargo run --release -p peregrine-bench --features peers -- peers";
            return Err(format!("this program was built without its peers; run `{how}`").into());
        }
        Experiment::Bind(selection) => {
            let mut rows = Vec::new();
            // The processors are listed before this process is pinned, because a pinned process lists only
            // one processor.
            let allowed = machine::processors();
            if selection.cases.is_empty() {
                let rounds = if selection.quick { (20, 5) } else { (100, 20) };
                rows.extend(death::measure(rounds.0, rounds.1, &progress)?);
            }
            rows.extend(bind::measure(&selection, &allowed, &progress)?);
            rows.extend(swapped::measure(&selection, &allowed, &progress)?);
            ("bind", selection.format, rows)
        }
        Experiment::Cost(options) => return cost::run(&options, &progress),
        Experiment::Goodput(options) => return goodput::run(&options, &progress),
        Experiment::Command(selection) => {
            ("command", selection.format, command::measure(&selection, &progress)?)
        }
        Experiment::Death(deaths) => {
            let rounds = deaths.rounds.unwrap_or(if deaths.quick { 20 } else { 100 });
            let far = deaths.far_rounds.unwrap_or(if deaths.quick { 5 } else { 20 });
            let rows = death::measure(rounds as usize, far as usize, &progress)?;
            ("death", deaths.format, rows)
        }
    };
    drop(progress);
    row::show(name, &rows, format)?;
    Ok(())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = if arguments.experiment.runs_here() {
        run(arguments).map(|()| ExitCode::SUCCESS)
    } else if run_directory::inside() {
        run_directory::end_with_creator();
        network::link::raise_loopback()
            .map_err(Into::into)
            .and_then(|()| run(arguments))
            .map(|()| ExitCode::SUCCESS)
    } else {
        machine::raise_descriptors();
        run_directory::enter()
    };
    outcome.unwrap_or_else(|error| {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        eprintln!("peregrine-bench: {text}");
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn options_do_not_conflict() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn filters_accept_only_measured_numbers_of_callers_and_bindings() {
        let filter = |options: &[&str]| {
            let words = ["peregrine-bench", "local"].iter().chain(options);
            match Arguments::try_parse_from(words).map(|arguments| arguments.experiment) {
                Ok(Experiment::Local { filter, .. }) => Some(filter),
                _ => None,
            }
        };
        let all = filter(&[]).unwrap();
        assert!(all.has(1, 1) && all.has(8, 1) && all.has(1, 1000));
        let some = filter(&["--callers", "8", "--callers", "2", "--bindings", "8"]).unwrap();
        assert!(some.has(8, 8) && some.has(2, 8) && !some.has(4, 8) && !some.has(8, 1));
        assert!(filter(&["--bindings", "1001"]).is_none());
    }
}
