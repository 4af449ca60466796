//! `directory serve`: a name service in front of a directory, until a signal stops it.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand, value_parser};
use peregrine::{Address, ExportOptions, Server, StopHandle};
use peregrine_names::{NAME, NameService};
use serde_json::json;

use crate::args::{Format, time};
use crate::directory;
use crate::output::{self, BOLD, DIM, Failure};
use crate::security::{self, Listening};
use crate::serve::handle_signals;

/// Options of `directory`.
#[derive(Args, Debug)]
pub(crate) struct DirectoryCommand {
    #[command(subcommand)]
    command: Command,
}

/// The commands of `directory`.
#[derive(Debug, Subcommand)]
enum Command {
    /// Find servers and make calls for clients that know only this server, until SIGINT or SIGTERM
    Serve(ServeNames),
}

/// Options of `directory serve`.
#[derive(Args, Debug)]
#[command(after_help = CLIENTS)]
struct ServeNames {
    /// Name of the export
    #[arg(long, default_value = NAME)]
    name: String,
    /// Allow calls of every user of this machine, not only of the user that runs the server
    #[arg(long)]
    public: bool,
    /// Maximum number of calls of servers that run at a time, of which one caller gets at most half; with 0,
    /// the server only finds servers
    #[arg(long, value_name = "N", default_value_t = 32)]
    calls: u16,
    /// Maximum number of bindings to servers
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = value_parser!(u16).range(1..))]
    bindings: u16,
    /// Time limit of a call, such as 500ms or 2s; a caller may give a shorter one
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    limit: Duration,
    /// Also listen on a port, such as tcp:127.0.0.1:7000 (port 0: any); can be repeated
    #[arg(long, value_name = "ENDPOINT")]
    listen: Vec<String>,
    /// Allow --listen on addresses that other machines can reach. Calls are encrypted, and only trusted peers
    /// can call, by the keys of --identity [default: the directory of `keys`]
    #[arg(long, requires = "listen")]
    beyond_this_machine: bool,
    /// Do not encrypt calls, if there is no --identity: every host that reaches the port can call, and hosts
    /// on the way can read and change calls
    #[arg(long, requires = "beyond_this_machine")]
    i_trust_this_network: bool,
}

const CLIENTS: &str = "\
Clients:
  peregrine names --directory peregrine://HOST:PORT      the names of the directory
  peregrine ping NAME --directory peregrine://HOST:PORT  find a server, and call it directly
  peregrine call --via names@HOST:PORT NAME PROCEDURE    let the name service make the call

A call that the name service makes never has more rights than its caller: the server does not see who
calls, and only the user of the name service itself reaches servers by local paths, which show the user.
This needs a name service without supplementary groups. Callers on other machines reach no loopback
address. No call uses raw Ethernet.";

/// Runs a command of `directory`.
pub(crate) fn run(command: &DirectoryCommand, format: Format) -> Result<(), Failure> {
    match &command.command {
        Command::Serve(serve) => run_service(serve, format),
    }
}

/// Serves the names of the chosen directory.
fn run_service(serve: &ServeNames, format: Format) -> Result<(), Failure> {
    let begun = Instant::now();
    let stop: Arc<OnceLock<StopHandle>> = Arc::default();
    // The signal handler is installed before the export, so that a signal at any time removes the exported
    // name.
    let interrupt = handle_signals(format, Arc::clone(&stop))?;
    let directory = directory::chosen()?;
    let place = directory.describe();
    let service = NameService::new(directory).calls(serve.calls.into());
    let service = service.bindings(serve.bindings.into()).time(serve.limit);
    let mut options = ExportOptions::default();
    if serve.public {
        options = options.public();
    }
    let (is_beyond, is_network_trusted) = (serve.beyond_this_machine, serve.i_trust_this_network);
    let listening = Listening { is_beyond, is_network_trusted };
    let mut server = Server::new().notify_systemd()?;
    for endpoint in &serve.listen {
        server = listening.listen(server, endpoint)?;
    }
    let name = &serve.name;
    let server = service.export(security::report_refusals(server), name, &options)?.spawn()?;
    let _ = stop.set(server.stop_handle());
    if interrupt.signal().is_some() {
        server.stop_handle().stop();
    }
    let address = |text: String| text.parse::<Address>().map_or(text, |one| one.to_string());
    let endpoints = server.addresses().iter();
    let addresses: Vec<_> = endpoints.map(|one| address(format!("{one}/{name}"))).collect();
    let process = std::process::id();
    if format.is_json() {
        output::print(json!({
            "ready": true,
            "name": name,
            "directory": place,
            "public": serve.public,
            "calls": serve.calls,
            "process": process,
            "addresses": addresses,
        }))?;
    } else {
        let whom = if serve.public { "all users" } else { "this user" };
        output::note(format_args!(
            "serving the names in {BOLD}{place}{BOLD:#} as {BOLD}{name}{BOLD:#}, to {whom} \
             {DIM}(process {process}; Ctrl-C stops it){DIM:#}"
        ));
        for (address, endpoint) in addresses.iter().zip(server.addresses()) {
            let how = listening.in_words(endpoint);
            output::note(format_args!("and at {BOLD}{address}{BOLD:#} {DIM}({how}){DIM:#}"));
        }
        if serve.calls == 0 {
            output::note("it finds servers, and calls none of them");
        }
    }
    server.wait();
    let time = output::age(begun.elapsed().as_millis() as u64);
    interrupt.ended(|| format!("`{name}` was served for {time}; its name is removed"))
}
