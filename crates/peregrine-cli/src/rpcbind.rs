//! `rpcbind`: gives clients of ONC RPC the ports of programs, until a signal stops it.

use std::net::{Ipv6Addr, TcpListener};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use peregrine::{RegisteredProgram, Server, StopHandle};
use serde_json::json;

use crate::args::{Format, Rpcbind};
use crate::list;
use crate::output::{self, BOLD, DIM, Failure};
use crate::security::Listening;
use crate::serve::handle_signals;

/// The port of rpcbind.
const PORT: u16 = 111;
/// The program number of rpcbind itself.
const PROGRAM: u32 = 100_000;

/// Runs rpcbind until a signal stops it.
pub(crate) fn run(arguments: &Rpcbind, format: Format) -> Result<(), Failure> {
    let begun = Instant::now();
    let stop: Arc<OnceLock<StopHandle>> = Arc::default();
    let interrupt = handle_signals(format, Arc::clone(&stop))?;
    let mut server = Server::new();
    let is_beyond = arguments.beyond_this_machine;
    let listening = Listening { is_beyond, is_network_trusted: true };
    for endpoint in endpoints(&arguments.listen) {
        server = listening.listen(server, &endpoint)?;
    }
    let rpcbind = peregrine::Rpcbind::new();
    let running = rpcbind.spawn(server)?;
    let _ = stop.set(running.stop_handle());
    if interrupt.signal().is_some() {
        running.stop_handle().stop();
    }
    let addresses: Vec<String> = running.addresses().iter().map(ToString::to_string).collect();
    let process = std::process::id();
    match format {
        Format::Json | Format::Ndjson => output::print(json!({
            "ready": true,
            "process": process,
            "addresses": addresses,
        }))?,
        Format::Human => {
            output::note(format_args!(
                "rpcbind answers {DIM}(process {process}; Ctrl-C stops it){DIM:#}"
            ));
            for address in &addresses {
                output::note(format_args!("at {BOLD}{address}{BOLD:#}"));
            }
        }
    }
    running.wait();
    let is_other = |one: &RegisteredProgram| one.program != PROGRAM;
    let lost: Vec<_> = rpcbind.registered().into_iter().filter(is_other).collect();
    let time = output::age(begun.elapsed().as_millis() as u64);
    if format == Format::Human && !lost.is_empty() {
        list::show_programs(&lost)?;
    }
    let count = lost.len();
    interrupt.ended(|| format!("rpcbind ran for {time}; {count} registrations are lost"))
}

/// Returns the endpoints at which to listen. `hosts` have the form HOST or HOST:PORT.
fn endpoints(hosts: &[String]) -> Vec<String> {
    let mut places: Vec<String> = hosts.iter().map(|host| with_port(host)).collect();
    if places.is_empty() {
        places.push(format!("127.0.0.1:{PORT}"));
        // libtirpc prefers IPv6 if the machine has IPv6.
        if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
            places.push(format!("[::1]:{PORT}"));
        }
    }
    let both = |place: &String| ["onc+udp", "onc+tcp"].map(|scheme| format!("{scheme}:{place}"));
    places.iter().flat_map(both).collect()
}

/// Adds the port of rpcbind to an address without a port.
fn with_port(host: &str) -> String {
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(before, _)| before.ends_with(']') || !before.contains(':'));
    if has_port { host.to_owned() } else { format!("{host}:{PORT}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_111_is_used_unless_another_is_given() {
        let all = ["0.0.0.0", "0.0.0.0:1111", "[::1]", "[::1]:1111", "localhost"].map(with_port);
        let expected = ["0.0.0.0:111", "0.0.0.0:1111", "[::1]:111", "[::1]:1111", "localhost:111"];
        assert_eq!(all, expected);
        let one = endpoints(&["127.0.0.1:0".to_owned()]);
        assert_eq!(one, ["onc+udp:127.0.0.1:0", "onc+tcp:127.0.0.1:0"]);
        let default = endpoints(&[]);
        assert_eq!(default[..2], ["onc+udp:127.0.0.1:111", "onc+tcp:127.0.0.1:111"]);
    }
}
