//! A cluster to look at: servers of a sharded and replicated store, a load generator, and faults.
#![forbid(unsafe_code)]

mod chaos;
mod load;
mod measured;
mod nodes;
mod replicas;
mod report;
mod serve;
mod store;
mod view;

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser;

/// A sharded and replicated store on several servers
#[derive(Parser)]
#[command(name = "cluster", version)]
enum Command {
    Serve(serve::Serve),
    Load(load::LoadArgs),
    Chaos(chaos::ChaosArgs),
}

/// How a result is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Text,
    Json,
    Markdown,
}

/// Returns the time of day in microseconds. All processes of a machine have the same clock.
fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

fn main() -> ExitCode {
    let ended = match Command::parse() {
        Command::Serve(args) => serve::run(&args).map(|()| true),
        Command::Load(args) => load::run(&args),
        Command::Chaos(args) => chaos::run(&args),
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("cluster: {why}");
            ExitCode::from(2)
        }
    }
}
