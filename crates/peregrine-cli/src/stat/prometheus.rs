//! `stat --prometheus`: prints the counters of a server as text for Prometheus, or serves the text over HTTP.

use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use peregrine::Address;
use peregrine::counters::{Counts, PROMETHEUS_CONTENT_TYPE, Stat};
use serde_json::json;

use super::endpoint::{self, Stop};
use super::{args, began_ms, is_same};
use crate::args::Format;
use crate::interrupt::Interrupt;
use crate::output::{self, BOLD, DIM, Failure, OrFail as _};
use crate::security::bind_options;

/// Prints the text for Prometheus once, or serves the text until a signal stops the command.
pub(super) fn run(arguments: &args::Stat, address: &str, format: Format) -> Result<(), Failure> {
    if let Some(listen) = &arguments.listen {
        return serve(address, listen, arguments.beyond_this_machine, format);
    }
    let text = peregrine::stat_with(address, &bind_options())?.to_prometheus();
    if format.is_json() {
        return output::print(json!({
            "address": address,
            "content_type": PROMETHEUS_CONTENT_TYPE,
            "text": text,
        }));
    }
    output::print(text.trim_end())
}

fn serve(address: &str, listen: &str, is_beyond: bool, format: Format) -> Result<(), Failure> {
    let begun = Instant::now();
    // The server need not run yet, but an address that is not valid never leads to a server.
    let _: Address = address.parse()?;
    let stop: Arc<OnceLock<Stop>> = Arc::default();
    let text = "the endpoint stopped while it answered requests";
    let interrupt = Interrupt::stopping(format, Arc::clone(&stop), Stop::stop, "no", text)?;
    let listeners = listeners(listen, is_beyond)?;
    let mut urls = Vec::new();
    for listener in &listeners {
        let at = listener.local_addr().or_fail("cannot read the address of the socket")?;
        urls.push(format!("http://{at}/metrics"));
    }
    let _ = stop.set(Stop::default());
    if let (Some(stop), Some(_)) = (stop.get(), interrupt.signal()) {
        stop.stop();
    }
    let process = std::process::id();
    match format {
        Format::Json | Format::Ndjson => output::print(json!({
            "ready": true,
            "address": address,
            "process": process,
            "http": urls,
        }))?,
        Format::Human => {
            output::note(format_args!(
                "serving the counters of {BOLD}{address}{BOLD:#} {DIM}(process {process}; Ctrl-C stops it){DIM:#}"
            ));
            for url in &urls {
                output::note(format_args!("at {BOLD}{url}{BOLD:#} {DIM}(not encrypted){DIM:#}"));
            }
        }
    }
    if let Some(stop) = stop.get() {
        let answered = endpoint::serve(listeners, Readings::new(address), stop);
        answered.or_fail("cannot serve over HTTP")?;
    }
    let time = output::age(begun.elapsed().as_millis() as u64);
    interrupt.ended(|| format!("the endpoint ran for {time}"))
}

/// Returns sockets that listen at all addresses of `HOST:PORT`.
fn listeners(listen: &str, is_beyond: bool) -> Result<Vec<TcpListener>, Failure> {
    let what = || format!("cannot listen at `{listen}`");
    let found: Vec<SocketAddr> = listen.to_socket_addrs().or_fail(what())?.collect();
    if !is_beyond && found.iter().any(|one| !one.ip().to_canonical().is_loopback()) {
        return Err(Failure::local(
            format!("other machines can reach `{listen}`, and HTTP is not encrypted"),
            "listen at a loopback address, such as 127.0.0.1:9464; --beyond-this-machine allows others",
        ));
    }
    let listen = |one: SocketAddr| {
        let listener = TcpListener::bind(one)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    found.into_iter().map(listen).collect::<std::io::Result<_>>().or_fail(what())
}

/// Reads the counters of a server again and again. No counter decreases while the server runs.
pub(super) struct Readings {
    /// The address of the server.
    pub(super) address: String,
    last: Stat,
}

impl Readings {
    fn new(address: &str) -> Self {
        Self { address: address.to_owned(), last: Stat::default() }
    }

    /// Asks the server, and returns the text for Prometheus. May wait for some seconds.
    ///
    /// # Errors
    /// In one line, if the server does not answer.
    pub(super) fn next(&mut self) -> Result<String, String> {
        let mut now = peregrine::stat_with(&self.address, &bind_options())
            .map_err(|error| Failure::from(error).brief())?;
        if is_same(&self.last, &now) {
            keep(&mut now, &self.last);
        }
        let text = now.to_prometheus();
        self.last = now;
        Ok(text)
    }
}

/// Raises the counters of `now` that are less than in the earlier reading `before` of the same server. A
/// reader of shared memory may miss the counts of a binding that ends meanwhile (docs/STAT.md). Prometheus
/// would take a counter that decreases for a server that was started again.
fn keep(now: &mut Stat, before: &Stat) {
    raise(&mut now.server.counts, &before.server.counts);
    let began: Vec<u64> = now.exports.iter().map(|one| began_ms(now, one.age_ms)).collect();
    for (export, began) in now.exports.iter_mut().zip(began) {
        // An export that was withdrawn and exported again begins at zero.
        if let Some(earlier) = before.export(&export.name)
            && began_ms(before, earlier.age_ms).abs_diff(began) <= 2
        {
            raise(&mut export.counts, &earlier.counts);
        }
    }
}

fn raise(now: &mut Counts, before: &Counts) {
    let ended = |counts: &Counts| counts.calls.saturating_sub(counts.in_flight);
    now.calls = ended(now).max(ended(before)).saturating_add(now.in_flight);
    now.refused = now.refused.max(before.refused);
    now.failed = now.failed.max(before.failed);
    now.bytes_in = now.bytes_in.max(before.bytes_in);
    now.bytes_out = now.bytes_out.max(before.bytes_out);
}

#[cfg(test)]
mod tests {
    use peregrine::counters::ExportStat;

    use super::*;

    fn reading(at_ms: u64, calls: u64, in_flight: u64, export_age_ms: u64) -> Stat {
        let counts = Counts { calls, in_flight, bytes_in: calls, ..Counts::default() };
        let name = "files".to_owned();
        let export = ExportStat { name, counts, age_ms: export_age_ms, ..ExportStat::default() };
        let mut stat = Stat { exports: vec![export], ..Stat::default() };
        (stat.server.at_ns, stat.server.age_ms) = (at_ms * 1_000_000, at_ms);
        stat.server.counts = counts;
        stat
    }

    #[test]
    fn counters_of_one_server_do_not_decrease() {
        let before = reading(1_000, 10, 2, 500);
        let mut now = reading(2_000, 7, 1, 1_500);
        assert!(is_same(&before, &now));
        keep(&mut now, &before);
        let due = Counts { calls: 9, in_flight: 1, bytes_in: 10, ..Counts::default() };
        assert_eq!((now.server.counts, now.exports[0].counts), (due, due));
        // The export was withdrawn, and the name was exported again.
        let mut now = reading(2_000, 7, 1, 100);
        keep(&mut now, &before);
        assert_eq!((now.server.counts.calls, now.exports[0].counts.calls), (9, 7));
    }

    #[test]
    fn larger_counters_are_kept() {
        let mut now = reading(2_000, 30, 3, 1_500);
        let read = now.clone();
        keep(&mut now, &reading(1_000, 10, 2, 500));
        assert_eq!(now, read);
    }
}
