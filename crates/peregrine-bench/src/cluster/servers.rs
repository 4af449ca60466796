//! The server process of the experiment `cluster`.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use clap::Args;
use peregrine::sys::pin_to;
use peregrine::{ExportOptions, Server, interface};

use crate::cases::Waiting;
use crate::child::READY;
use crate::interfaces::{Object, SmallServer};
use crate::subject::Failure;

/// The name of the export.
pub(super) const EXPORT: &str = "cluster";

/// Options of the server process.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The processor to run on
    #[arg(long)]
    cpu: Option<u32>,
    /// The number of servers. With more than one, each runs one call at a time
    #[arg(long, default_value_t = 1)]
    servers: u32,
    /// The number of endpoints of each server
    #[arg(long, default_value_t = 1)]
    endpoints: u32,
    /// How the servers wait
    #[arg(long, value_enum)]
    wait: Waiting,
}

/// Procedures that take as long as the client says.
#[interface]
pub(crate) trait Sleeping {
    /// Sleeps for this number of microseconds.
    fn sleep(&self, us: u32) -> peregrine::Result<()>;
}

struct Sleeps;

impl Sleeping for Sleeps {
    fn sleep(&self, us: u32) -> peregrine::Result<()> {
        std::thread::sleep(Duration::from_micros(us.into()));
        Ok(())
    }
}

/// Runs servers until the parent has ended.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    if let Some(cpu) = options.cpu {
        pin_to(cpu)?;
    }
    let mut all = Vec::new();
    for _ in 0..options.servers {
        let server = Server::new().wait(options.wait.wait());
        let mut server = match options.servers {
            1 => server.export(EXPORT, SmallServer::new(Object))?,
            _ => {
                // Networks only can call it, because a name on this machine is one server.
                let far = ExportOptions::default().networks_only();
                let server = server.export_with(EXPORT, SleepingServer::new(Sleeps), far)?;
                server.threads(1).queue(10_000)
            }
        };
        for _ in 0..options.endpoints {
            server = server.listen("tcp:127.0.0.1:0")?;
        }
        let running = server.spawn()?;
        running.addresses().iter().for_each(|address| println!("{}", address.place()));
        all.push(running);
    }
    println!("{READY}");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// A process with servers. Dropping this value kills the process.
pub(super) struct Servers {
    child: Child,
    addresses: Vec<String>,
}

impl Servers {
    /// Starts the process, and waits until the servers serve.
    pub(super) fn start(
        servers: u32,
        endpoints: u32,
        wait: Waiting,
        cpu: Option<u32>,
    ) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["cluster-servers", "--servers", &servers.to_string()]);
        command.args(["--endpoints", &endpoints.to_string(), "--wait", wait.name()]);
        if let Some(cpu) = cpu {
            command.args(["--cpu", &cpu.to_string()]);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().ok_or("the servers have no output")?;
        let mut this = Self { child, addresses: Vec::new() };
        for line in BufReader::new(output).lines() {
            let line = line?;
            if line == READY {
                return Ok(this);
            }
            this.addresses.push(line);
        }
        Err("the servers have ended".into())
    }

    /// Returns the addresses of all endpoints, as HOST:PORT.
    pub(super) fn addresses(&self) -> &[String] {
        &self.addresses
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
