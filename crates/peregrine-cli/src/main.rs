//! `peregrine`: calls, serves and inspects exports, and measures what calls cost on this machine.
#![forbid(unsafe_code)]

mod account;
mod args;
mod bridge;
mod call;
mod capture;
mod check;
mod clean;
mod compare;
mod completions;
mod copy;
mod demo;
mod describe;
mod directory;
mod doctor;
mod explain;
mod export;
mod files;
mod header;
mod health;
mod home;
mod import;
mod interrupt;
mod keys;
mod link;
mod list;
mod man;
mod name_service;
mod names;
mod output;
mod ping;
mod register;
mod rpcbind;
mod saved;
mod screen;
mod security;
mod serve;
mod servers;
mod stat;
mod unseal;
mod usage;

use std::process::ExitCode;
use std::time::Instant;

use args::{Arguments, Command, Format};
use output::Failure;
use usage::Parsed;

fn main() -> ExitCode {
    let begun = Instant::now();
    directory::install();
    completions::answer();
    let arguments = match usage::read() {
        Parsed::Command(arguments) => *arguments,
        Parsed::Exit(code) => return code.into(),
        Parsed::Invalid(failure, format) => return failure.report(format, begun.elapsed()).into(),
    };
    let format = arguments.format();
    match run(arguments, format) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(format, begun.elapsed()).into(),
    }
}

fn run(arguments: Arguments, format: Format) -> Result<(), Failure> {
    let Arguments { format: written, color: colour, security, directory, command } = arguments;
    // A directory may be a name service, to which the identity of this process is shown.
    security.choose()?;
    directory.choose()?;
    let _reported = security::ReportKeyLog;
    match command.unwrap_or_default() {
        Command::Demo(demo) => demo::run(&demo, format, colour),
        Command::Serve(serve) => serve::run(&serve, format),
        Command::Bridge(bridge) => bridge::run(&bridge, format),
        Command::Rpcbind(rpcbind) => rpcbind::run(&rpcbind, format),
        Command::Copy(copy) => copy::run(&copy, format),
        Command::List { address } => list::run(address.as_deref(), format),
        Command::Names(names) => names::run(&names, format),
        Command::Directory(directory) => name_service::run(&directory, format),
        Command::Register(register) => register::run(&register, format),
        Command::Describe(describe) => describe::run(&describe, written),
        Command::Compare(compare) => compare::run(&compare, format),
        Command::Import(import) => import::run(&import, format),
        Command::Export(export) => export::run(&export, format),
        Command::Call(call) => call::run(&call, format),
        Command::Explain { address } => explain::run(&address, format),
        Command::Ping(ping) => ping::run(&ping, format),
        Command::Account(account) => account::run(&account, format),
        Command::Health(health) => health::run(&health, format),
        Command::Capture(capture) => capture::run(&capture, format),
        Command::Stat(stat) => stat::run(&stat, format),
        Command::Doctor(doctor) => doctor::run(&doctor, format),
        Command::Clean(clean) => clean::run(&clean, format),
        Command::Keys(keys) => keys::run(&keys, format),
        Command::Unseal(unseal) => unseal::run(&unseal, format),
        Command::Completions { shell } => completions::run(shell, format),
        Command::Man(man) => man::run(&man, format),
        Command::DemoServer(part) => demo::serve_directions(&part),
        Command::DemoEcho(part) => demo::echo(&part),
    }
}
