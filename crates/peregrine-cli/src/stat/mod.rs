//! `stat`: shows the counters of a running server, once or periodically, or as text for Prometheus.

pub(crate) mod args;
mod endpoint;
mod json;
mod many;
mod procedures;
mod prometheus;
mod readings;
pub(crate) mod tables;

use std::collections::BTreeMap;
use std::time::Duration;

use peregrine::counters::Stat;
use peregrine::directory;

use crate::args::Format;
use crate::interrupt::{Interrupt, InterruptOptions};
use crate::output::{self, Failure};
use crate::screen::{Key, Screen};
use crate::security::bind_options;
use crate::servers;
use readings::Readings;

/// How long the current request to the server may still run after a signal interrupted the command.
const GRACE: Duration = Duration::from_millis(300);

/// Two readings of a server's counters. The interval is the time between them.
pub(super) struct Interval {
    /// The address of the server.
    pub(super) address: String,
    pub(super) before: Stat,
    pub(super) now: Stat,
    /// How long the request for the second reading took. `None` if the server sends readings by itself.
    pub(super) took: Option<Duration>,
}

impl Interval {
    /// Returns the interval between two readings. If another server replaced the server of the first reading,
    /// the interval begins at the start of the new server.
    fn new(address: &str, before: &Stat, now: Stat, took: Option<Duration>) -> Self {
        let before = if is_same(before, &now) { before.clone() } else { Stat::default() };
        Self { address: address.to_owned(), before, now, took }
    }

    /// Returns the length of the interval in seconds, by the clock of the server.
    pub(super) fn seconds(&self) -> f64 {
        let whole = self.now.server.age_ms.saturating_mul(1_000_000);
        let ns = match self.before.server.at_ns {
            0 => whole,
            before => self.now.server.at_ns.saturating_sub(before),
        };
        (ns as f64 / 1e9).max(1e-9)
    }

    /// Returns by how much a counter increased per second. The counter was `before` at the start of the
    /// interval, and is `now` at the end of the interval.
    pub(super) fn rate(&self, before: u64, now: u64) -> f64 {
        now.saturating_sub(before) as f64 / self.seconds()
    }
}

/// Returns whether two readings are of the same server.
fn is_same(before: &Stat, now: &Stat) -> bool {
    // A new server can have the same process ID as the old server, so the start times are compared, too.
    before.server.process == now.server.process
        && before.server.at_ns <= now.server.at_ns
        && began_ms(before, before.server.age_ms).abs_diff(began_ms(now, now.server.age_ms)) <= 2
}

/// Returns when a part of a server began, in milliseconds since the start of its machine. `age_ms` is the age
/// of the part at the time of the reading.
const fn began_ms(stat: &Stat, age_ms: u64) -> u64 {
    (stat.server.at_ns / 1_000_000).saturating_sub(age_ms)
}

/// Shows the counters of a server.
pub(crate) fn run(stat: &args::Stat, format: Format) -> Result<(), Failure> {
    let address = match &stat.address {
        Some(address) => address.clone(),
        None => the_only_server()?,
    };
    if stat.prometheus {
        return prometheus::run(stat, &address, format);
    }
    if format == Format::Json && stat.watch && stat.count.is_none() {
        return Err(Failure::Usage {
            what: "`--format json` prints one object, but `--watch` has no end".to_owned(),
            causes: Vec::new(),
            advice: "use `--format ndjson` for one object per interval, or `--count N` to end"
                .to_owned(),
            suggestions: Vec::new(),
        });
    }
    if let Some(several) = servers::several(&address) {
        return many::run(stat, &address, several, format);
    }
    // The first request comes before the switch to the alternate screen, so that an error of this request
    // stays visible.
    let (first, readings) = match stat.watch {
        true => Readings::watch(&address, stat.interval)?,
        false => (
            peregrine::stat_with(&address, &bind_options())?,
            Readings::ask(&address, stat.interval),
        ),
    };
    let screen = if stat.watch && !format.is_json() { Screen::take()? } else { None };
    let interrupt = interruptible(format, screen.as_ref(), "the server had not replied yet")?;
    let shown = show(stat, format, &address, (first, readings), screen.as_ref(), &interrupt);
    // Dropping the screen restores the terminal, before any error is reported.
    drop(screen);
    let shown = shown.and_then(|shown| {
        let what = || format!("{shown} intervals were shown");
        interrupt.check(what)
    });
    interrupt.leave();
    shown
}

/// Handles signals from now on. If the command does not end after a signal, restores the terminal, and
/// reports `text`.
pub(crate) fn interruptible(
    format: Format,
    screen: Option<&Screen>,
    text: &'static str,
) -> Result<Interrupt, Failure> {
    let signals = InterruptOptions { format, grace: GRACE, executed: "maybe" };
    let saved = screen.map(Screen::saved);
    let last = move || {
        // The terminal is restored before the report is printed, so that the report stays visible.
        if let Some(saved) = saved {
            // A separate thread restores the terminal, because writing blocks if the terminal does not accept
            // output.
            let (done, restored) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                saved.restore();
                let _ = done.send(());
            });
            let _ = restored.recv_timeout(GRACE);
        }
        text.to_owned()
    };
    Interrupt::handle(signals, || {}, last)
}

/// Shows intervals until the last one, until the user quits, or until a signal arrives. Returns the number of
/// intervals.
fn show(
    stat: &args::Stat,
    format: Format,
    address: &str,
    (first, mut readings): (Stat, Readings),
    screen: Option<&Screen>,
    interrupt: &Interrupt,
) -> Result<u64, Failure> {
    let count = stat.count.unwrap_or(if stat.watch { u64::MAX } else { 1 });
    let (mut before, mut all) = (first, Vec::new());
    let mut shown = 0;
    if let Some(screen) = screen {
        // Until the end of the first interval, the screen shows the totals since the start of the server.
        let since = Interval::new(address, &Stat::default(), before.clone(), None);
        screen.draw(|columns| tables::whole(&since, columns))?;
    }
    while shown < count {
        let is_ended = |wait| is_ended(wait, screen, interrupt);
        let Some((now, took)) = readings.next(is_ended)? else { break };
        let interval = Interval::new(address, &before, now, took);
        match (format, screen) {
            (Format::Human, Some(screen)) => {
                screen.draw(|columns| tables::whole(&interval, columns))?;
            }
            (Format::Human, None) if stat.watch => output::say(tables::line(&interval, shown))?,
            (Format::Human, None) => {
                let gap = if shown > 0 { "\n" } else { "" };
                let columns = output::columns();
                output::say(format_args!("{gap}{}", tables::whole(&interval, columns)))?;
            }
            (Format::Ndjson, _) => output::print(json::interval(&interval))?,
            (Format::Json, _) => all.push(json::interval(&interval)),
        }
        before = interval.now;
        shown += 1;
    }
    if format == Format::Json && interrupt.signal().is_none() {
        match (stat.count, all.pop()) {
            (None, Some(one)) => output::print(one)?,
            (_, last) => {
                all.extend(last);
                output::print(serde_json::json!({ "intervals": all }))?;
            }
        }
    }
    Ok(shown)
}

/// Waits for a key or a signal, for at most the time `wait`. Returns whether the key or the signal ends the
/// command.
pub(crate) fn is_ended(
    wait: Duration,
    screen: Option<&Screen>,
    interrupt: &Interrupt,
) -> Result<bool, Failure> {
    let key = match screen {
        None => {
            std::thread::sleep(wait);
            Key::None
        }
        Some(screen) => screen.key(wait)?,
    };
    Ok(key == Key::Quit || interrupt.signal().is_some())
}

/// Returns a name of the only server of this machine.
fn the_only_server() -> Result<String, Failure> {
    let mut servers: BTreeMap<u32, String> = BTreeMap::new();
    for entry in directory::list().into_iter().filter(|entry| entry.alive != Some(false)) {
        if let Ok(description) = peregrine::describe(&entry.name) {
            servers.entry(description.process).or_insert(entry.name);
        }
    }
    let names: Vec<String> = servers.into_values().collect();
    match &*names {
        [one] => Ok(one.clone()),
        [] => Err(Failure::local(
            "no server of this machine replies",
            "write the address of a server: `peregrine stat @HOST:PORT`",
        )),
        _ => {
            let what = format!("this machine has {} servers", names.len());
            let near = names.iter().take(3).map(|name| format!("peregrine stat {name}")).collect();
            Err(Failure::local(what, "choose a server: write any name that it exports")
                .suggest(near))
        }
    }
}
