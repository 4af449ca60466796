//! Runs the child process of a measurement. The child serves the interfaces that are measured. It also
//! answers the messages of the limits (the minimal programs with which Peregrine is compared).
//!
//! The child reads commands from its standard input, and ends when the input ends.

use std::error::Error;
use std::fs::File;
use std::io::{self, BufRead};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process;
use std::sync::mpsc;

use clap::Args;
use peregrine::sys::{Memory, pin_to};
use peregrine::{CallError, Running, Server, Tracing};

use crate::cases::{
    ACCOUNTED, EVENTS, SPREAD, STREAMS, Size, TRACED, Waiting, export_name, spread_name,
};
use crate::interfaces::{
    AccountedServer, EventsServer, LargeServer, MiddleServer, Object, SmallServer, StreamsServer,
};
use crate::pingpong::{self, Exchange, MEMORY, Way};
use crate::ring;
use crate::subject::WARM_TRIPS;
use crate::tables;

/// The arguments of the child.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The file of the memory that the child shares with the parent
    #[arg(long)]
    memory: PathBuf,
    /// The processor to run on
    #[arg(long)]
    cpu: Option<u32>,
    /// The prefix of the names of its exports
    #[arg(long, default_value = "")]
    prefix: String,
}

/// The line that the child prints once clients can bind.
pub(crate) const READY: &str = "ready";

/// Returns the line by which the parent asks the child to answer `trips` messages.
pub(crate) fn echo_line(what: Exchange, trips: u32) -> String {
    let Exchange { way, in_bytes, out_bytes } = what;
    format!("echo {} {in_bytes} {out_bytes} {trips}\n", way.name())
}

fn echo_of(line: &str) -> Option<(Exchange, u32)> {
    let mut words = line.strip_prefix("echo ")?.split(' ');
    let way = Way::named(words.next()?)?;
    let mut number = || words.next()?.parse::<u32>().ok();
    let (in_bytes, out_bytes, trips) = (number()?, number()?, number()?);
    let what = Exchange { way, in_bytes: in_bytes as usize, out_bytes: out_bytes as usize };
    Some((what, trips))
}

fn serve(prefix: &str, wait: Waiting) -> Result<Running, CallError> {
    let name = |size| format!("{prefix}{}", export_name(wait, size));
    let mut server = Server::new()
        .wait(wait.wait())
        .export(&name(Size::Small), SmallServer::new(Object))?
        .export(&name(Size::Middle), MiddleServer::new(Object))?
        .export(&name(Size::Large), LargeServer::new(Object))?;
    if wait == Waiting::Adaptive {
        for number in 0..SPREAD {
            let name = format!("{prefix}{}", spread_name(number));
            server = server.export(&name, SmallServer::new(Object))?;
        }
    }
    server.spawn()
}

/// Serves calls and answers messages until the parent has ended. Then the process exits at once, even in the
/// middle of an exchange.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error + Send + Sync>> {
    // The process is pinned before it starts any thread, so that all its threads run on this processor.
    if let Some(cpu) = options.cpu {
        pin_to(cpu)?;
    }
    let file = File::options().read(true).write(true).open(&options.memory)?;
    let mut memory = Memory::received(file.as_fd(), MEMORY)?;
    let (sender, orders) = mpsc::channel();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            // A line that is no request for an echo only wakes this thread. The wake-up causes the kernel to
            // schedule on this processor (see `Peer::cpu_time`).
            if let Some(echo) = echo_of(&line) {
                let _ = sender.send(echo);
            }
        }
        process::exit(0);
    });
    let prefix = &options.prefix;
    let servers = Waiting::ALL.into_iter().map(|wait| serve(prefix, wait));
    let _servers: Vec<Running> = servers.collect::<Result<_, CallError>>()?;
    let _accounted = Server::new()
        .wait(Waiting::Spin.wait())
        .export(&format!("{prefix}{ACCOUNTED}"), AccountedServer::new(Object))?
        .spawn()?;
    let _traced = Server::new()
        .wait(Waiting::Spin.wait())
        .layer(Tracing::new())
        .export(&format!("{prefix}{TRACED}"), SmallServer::new(Object))?
        .spawn()?;
    let _events: Vec<Running> =
        [(Waiting::Spin, None), (Waiting::Adaptive, Some("udp:127.0.0.1:0"))]
            .into_iter()
            .map(|(wait, listens)| {
                let name = format!("{prefix}{EVENTS}-{}", wait.name());
                let streams = format!("{prefix}{STREAMS}-{}", wait.name());
                let server = Server::new()
                    .wait(wait.wait())
                    .export(&name, EventsServer::new(Object))?
                    .export(&streams, StreamsServer::new(Object))?;
                match listens {
                    Some(endpoint) => server.listen(endpoint)?.spawn(),
                    None => server.spawn(),
                }
            })
            .collect::<Result<_, CallError>>()?;
    let _marshalled = tables::serve(prefix)?;
    println!("{READY}");
    for (what, trips) in orders {
        if what.way == Way::Ring {
            ring::follow(&mut memory, what.in_bytes, WARM_TRIPS, trips - WARM_TRIPS);
            continue;
        }
        pingpong::echo(&mut memory, what, trips);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_for_an_echo_is_parsed() {
        let what = Exchange { way: Way::Futex, in_bytes: 200, out_bytes: 8 };
        let line = echo_line(what, 77);
        assert_eq!(echo_of(line.trim_end()), Some((what, 77)));
        assert_eq!(echo_of("poke"), None);
    }
}
