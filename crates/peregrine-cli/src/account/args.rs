//! The options of `account`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint, value_parser};
use clap_complete::engine::ArgValueCompleter;

use crate::args::{WaitOption, time};
use crate::completions;

/// Options of `account`.
#[derive(Args, Debug)]
#[command(after_help = RULES)]
pub(crate) struct Account {
    /// Name or address of the export: NAME, NAME@HOST or NAME@HOST:PORT, optionally with the prefix
    /// local:, eth:, udp: or tcp:
    #[arg(add = ArgValueCompleter::new(completions::addresses))]
    pub(crate) address: String,
    /// The procedure, which is called many thousand times [default: a call that does nothing]
    #[arg(add = ArgValueCompleter::new(completions::procedures))]
    pub(crate) procedure: Option<String>,
    /// The arguments, as for `call`
    #[arg(value_name = "ARGUMENT", allow_hyphen_values = false, add = ArgValueCompleter::new(completions::parameters))]
    pub(crate) arguments: Vec<String>,
    /// How to wait for each result
    #[arg(long, value_enum, default_value_t = WaitOption::Adaptive)]
    pub(crate) wait: WaitOption,
    /// Measure response times under load: closed and open runs, next to the models of queueing theory
    #[arg(long)]
    pub(crate) load: bool,
    /// With --load: the number of callers that share the calls
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u16).range(1..=256), requires = "load")]
    pub(crate) callers: u16,
    /// Make one short account after the other, in place on a terminal, until `q` or Ctrl-C
    #[arg(long, conflicts_with_all = ["load", "rounds", "limit", "svg", "html"])]
    pub(crate) watch: bool,
    /// With --watch: how often, such as 500ms or 5s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time, requires = "watch")]
    pub(crate) interval: Duration,
    /// With --watch: the number of accounts [default: unlimited]
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..), requires = "watch")]
    pub(crate) count: Option<u64>,
    /// Number of rounds; a round makes each kind of call 336 times
    #[arg(long, value_name = "N", default_value_t = 41, value_parser = value_parser!(u16).range(3..=1000), conflicts_with = "load")]
    pub(crate) rounds: u16,
    /// End earlier if the rounds take longer than this time, such as 500ms or 5s [default: 10s, 20s with
    /// --load]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) limit: Option<Duration>,
    /// Write a picture, in which each part is a bar, to this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) svg: Option<PathBuf>,
    /// Write a page with the picture and the table to this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) html: Option<PathBuf>,
}

const RULES: &str = "\
Both sides note when calls pass their steps. The parts add up to the whole call, except for the rest. The
transfer is measured with calls that carry as many bytes, and that no object takes part in. The time that a
note takes is measured and subtracted. The server may be in use meanwhile.

With --load, calls are due at random moments, as often as 10 to 95 per cent of the capacity allow. The response
time counts from the moment at which a call was due. It is shown next to that of a queue that gets the same
moments (M/D/1), and the last column says why calls took longer.

The procedure is called again and again with the same arguments, so choose one that may be. Procedures with
streams, callbacks or no reply have no account, and async ones only on the client's side.";
