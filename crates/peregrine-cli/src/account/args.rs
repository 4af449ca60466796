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
    /// Number of rounds; a round makes each kind of call 336 times
    #[arg(long, value_name = "N", default_value_t = 41, value_parser = value_parser!(u16).range(3..=1000))]
    pub(crate) rounds: u16,
    /// End earlier if the rounds take longer than this time, such as 500ms or 5s
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    pub(crate) limit: Duration,
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

The procedure is called again and again with the same arguments, so choose one that may be. Procedures with
streams, callbacks or no reply have no account, and async ones only on the client's side.";
