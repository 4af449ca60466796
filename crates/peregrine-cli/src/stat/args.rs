//! The options of `stat`.

use std::time::Duration;

use clap::{Args, value_parser};
use clap_complete::engine::ArgValueCompleter;

use crate::args::time;
use crate::completions;

/// Options of `stat`.
#[derive(Args, Debug)]
pub(crate) struct Stat {
    /// Any name that a server of this machine exports, or the address of a server: @HOST or
    /// @HOST:PORT, optionally with the prefix eth:, udp: or tcp: [default: the only server here]
    #[arg(add = ArgValueCompleter::new(completions::addresses))]
    pub(crate) address: Option<String>,
    /// Length of an interval, such as 200ms, 1s or 1m
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
    pub(crate) interval: Duration,
    /// Show one interval after the other until `q` or Ctrl-C: in place on a terminal, otherwise one
    /// per line
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// Number of intervals [default: 1, or unlimited with --watch]
    #[arg(short, long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Print all counts since the start of the server, in the text format of Prometheus
    #[arg(long, conflicts_with_all = ["interval", "watch", "count"])]
    pub(crate) prometheus: bool,
    /// Serve this text at http://HOST:PORT/metrics until Ctrl-C; each request asks the server anew
    #[arg(long, value_name = "HOST:PORT", requires = "prometheus")]
    pub(crate) listen: Option<String>,
    /// Allow --listen at addresses that other machines can reach; HTTP is not encrypted, and every host
    /// that reaches the port can read the counts
    #[arg(long, requires = "listen")]
    pub(crate) beyond_this_machine: bool,
}
