//! `peregrine`: shows what calls cost here, serves a directory, and tells what is exported.
#![forbid(unsafe_code)]

mod args;
mod copy;
mod demo;
mod describe;
mod explain;
mod files;
mod header;
mod list;
mod output;
mod ping;
mod serve;

use std::process::ExitCode;

use args::{Arguments, Command};

fn main() -> ExitCode {
    let arguments = Arguments::checked();
    let format = arguments.answers();
    let Arguments { format: written, command } = arguments;
    let done = match command.unwrap_or_default() {
        Command::Demo(demo) => demo::run(&demo, format),
        Command::Serve(serve) => serve::run(&serve, format),
        Command::Copy(copy) => copy::run(&copy, format),
        Command::List => list::run(format),
        Command::Describe { name } => describe::run(&name, written),
        Command::Explain { address } => explain::run(&address, format),
        Command::Ping(ping) => ping::run(&ping, format),
        Command::DemoServer(part) => demo::serve_directions(&part),
        Command::DemoEcho(part) => demo::echo(&part),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(format),
    }
}
