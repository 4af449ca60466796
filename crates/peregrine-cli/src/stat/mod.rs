//! `stat`: what a running server counts, once or over and over: calls, rates, latency, who is bound.

mod screen;
mod tables;
mod told;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use peregrine::counters::Stat;
use peregrine::directory;

use crate::args::{self, Format};
use crate::interrupt::{Interrupt, Terms};
use crate::output::{self, Failure};
use screen::{Pressed, Screen};

/// How long the server has to answer once the command is to end.
const GRACE: Duration = Duration::from_millis(300);

/// What was counted between two moments.
pub(super) struct Interval {
    /// Whom it was asked of.
    pub(super) address: String,
    pub(super) before: Stat,
    pub(super) now: Stat,
    /// How long asking took.
    pub(super) took: Duration,
}

impl Interval {
    /// From one reading to the next; if another server answers by now, since that one began.
    fn new(address: &str, before: &Stat, now: Stat, took: Duration) -> Self {
        // A process may have the number of the one before, and as many calls: what counts is when it began.
        let began =
            |stat: &Stat| (stat.server.at_ns / 1_000_000).saturating_sub(stat.server.age_ms);
        let same = before.server.process == now.server.process
            && before.server.at_ns <= now.server.at_ns
            && began(before).abs_diff(began(&now)) <= 2;
        let before = if same { before.clone() } else { Stat::default() };
        Self { address: address.to_owned(), before, now, took }
    }

    /// How long it was, by the server's clock.
    pub(super) fn seconds(&self) -> f64 {
        let whole = self.now.server.age_ms.saturating_mul(1_000_000);
        let ns = match self.before.server.at_ns {
            0 => whole,
            before => self.now.server.at_ns.saturating_sub(before),
        };
        (ns as f64 / 1e9).max(1e-9)
    }

    /// So many more, each second.
    pub(super) fn rate(&self, before: u64, now: u64) -> f64 {
        now.saturating_sub(before) as f64 / self.seconds()
    }
}

/// Tells what a server counts.
pub(crate) fn run(stat: &args::Stat, format: Format) -> Result<(), Failure> {
    let address = match &stat.address {
        Some(address) => address.clone(),
        None => the_only_server()?,
    };
    if format == Format::Json && stat.watch && stat.count.is_none() {
        return Err(Failure::Usage {
            what: "`--format json` is one object, and `--watch` has no end".to_owned(),
            causes: Vec::new(),
            advice:
                "write `--format ndjson`: an object for each interval; or say how many: `--count N`"
                    .to_owned(),
            suggestions: Vec::new(),
        });
    }
    // What cannot be asked is said before the screen is taken.
    let first = peregrine::stat(&address)?;
    let screen = if stat.watch && !format.is_json() { Screen::take()? } else { None };
    let terms = Terms { format, grace: GRACE, executed: "maybe" };
    let leaving = screen.as_ref().map(Screen::way_back);
    let last = move || {
        // The terminal first: what is said then stays.
        if let Some(way_back) = leaving {
            // A terminal that takes nothing is not waited for.
            let (done, gone) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                way_back.go();
                let _ = done.send(());
            });
            let _ = gone.recv_timeout(GRACE);
        }
        "the server had no answer yet".to_owned()
    };
    let interrupt = Interrupt::mind(terms, || {}, last)?;
    let shown = show(stat, format, &address, first, screen.as_ref(), &interrupt);
    // First of all the terminal is as it was: whatever is said is said there.
    drop(screen);
    let shown = shown.and_then(|shown| {
        let what = || format!("{shown} intervals were shown");
        interrupt.check(what)
    });
    interrupt.leave();
    shown
}

/// Shows one interval after the other; how many were shown.
fn show(
    stat: &args::Stat,
    format: Format,
    address: &str,
    first: Stat,
    screen: Option<&Screen>,
    interrupt: &Interrupt,
) -> Result<u64, Failure> {
    let count = stat.count.unwrap_or(if stat.watch { u64::MAX } else { 1 });
    let (mut before, mut all) = (first, Vec::new());
    let mut shown = 0;
    let mut due = Instant::now();
    if let Some(screen) = screen {
        // Something to look at until the first interval is over.
        let since = Interval::new(address, &Stat::default(), before.clone(), Duration::ZERO);
        screen.draw(|columns| tables::whole(&since, columns))?;
    }
    while shown < count {
        due += stat.interval;
        if wait(due, screen, interrupt)? == Pressed::End || interrupt.signal().is_some() {
            break;
        }
        let begun = Instant::now();
        let now = peregrine::stat(address)?;
        let took = begun.elapsed();
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
            (Format::Ndjson, _) => output::print(told::interval(&interval))?,
            (Format::Json, _) => all.push(told::interval(&interval)),
        }
        before = interval.now;
        shown += 1;
        // Who was halted, or asks a server that is slow, does not catch up.
        due = due.max(Instant::now() - stat.interval);
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

/// Waits until the next interval is over, or somebody wants to leave.
fn wait(due: Instant, screen: Option<&Screen>, interrupt: &Interrupt) -> Result<Pressed, Failure> {
    /// A signal is seen within this.
    const LOOK: Duration = Duration::from_millis(20);
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() || interrupt.signal().is_some() {
            return Ok(Pressed::Nothing);
        }
        match screen {
            None => std::thread::sleep(left.min(LOOK)),
            Some(screen) => match screen.pressed(left.min(LOOK))? {
                Pressed::Nothing => {}
                pressed => return Ok(pressed),
            },
        }
    }
}

/// The name of the server of this machine, if there is but one.
fn the_only_server() -> Result<String, Failure> {
    let mut servers: BTreeMap<u32, String> = BTreeMap::new();
    for entry in directory::list().into_iter().filter(|entry| entry.alive != Some(false)) {
        if let Ok(said) = peregrine::describe(&entry.name) {
            servers.entry(said.process).or_insert(entry.name);
        }
    }
    let names: Vec<String> = servers.into_values().collect();
    match &*names {
        [one] => Ok(one.clone()),
        [] => Err(Failure::local(
            "no server of this machine answers",
            "name one at a place: `peregrine stat @HOST:PORT`",
        )),
        _ => {
            let what = format!("{} servers of this machine answer", names.len());
            let near = names.iter().take(3).map(|name| format!("peregrine stat {name}")).collect();
            Err(Failure::local(what, "say which, by any name that it exports").or_meant(near))
        }
    }
}
