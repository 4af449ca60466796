//! `stat` for a name with several servers: the counters of each of them, once or periodically.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use peregrine::counters::Stat;
use serde_json::{Value, json};

use super::{Interval, args, interruptible, is_ended, json as one, tables};
use crate::args::Format;
use crate::interrupt::Interrupt;
use crate::output::{self, BAD, BOLD, DIM, Failure, visible};
use crate::screen::Screen;
use crate::security::bind_options;
use crate::servers::{self, Server, Several};

/// The interval at which the command checks whether a signal or a key ends it.
const CHECK: Duration = Duration::from_millis(20);

/// The last reading of a server, or the failure to read.
type Reading = Server<Stat>;

/// Shows the counters of all servers of a name. The directory is asked again in each interval, so that the
/// output follows its changes.
pub(super) fn run(
    stat: &args::Stat,
    address: &str,
    several: Several,
    format: Format,
) -> Result<(), Failure> {
    let first = read(&several, true);
    if first.iter().all(|one| one.answer.is_err()) {
        let rows: Vec<Value> = first.iter().map(Server::to_json).collect();
        let results = json!({ "address": address, "servers": rows });
        return Err(servers::first_failure(first).with(results));
    }
    if !format.is_json() {
        several.note_remarks();
    }
    let screen = if stat.watch && !format.is_json() { Screen::take()? } else { None };
    let interrupt = interruptible(format, screen.as_ref(), "the servers had not replied yet")?;
    let shown = show(stat, format, address, (several, first), screen.as_ref(), &interrupt);
    // Dropping the screen restores the terminal, before any error is reported.
    drop(screen);
    let shown = shown.and_then(|shown| interrupt.check(|| format!("{shown} intervals were shown")));
    interrupt.leave();
    shown
}

fn read(several: &Several, binds: bool) -> Vec<Reading> {
    several.ask(binds, |address| peregrine::stat_with(address, &bind_options()))
}

/// Shows intervals until the last one, until the user quits, or until a signal arrives. Returns the number of
/// intervals.
fn show(
    stat: &args::Stat,
    format: Format,
    address: &str,
    (mut several, mut before): (Several, Vec<Reading>),
    screen: Option<&Screen>,
    interrupt: &Interrupt,
) -> Result<u64, Failure> {
    let count = stat.count.unwrap_or(if stat.watch { u64::MAX } else { 1 });
    let (mut shown, mut all) = (0, Vec::new());
    if let Some(screen) = screen {
        // Until the end of the first interval, the screen shows the totals since the start of the servers.
        screen.draw(|columns| whole(address, &intervals(&[], &before), columns))?;
    }
    let mut due = Instant::now() + stat.interval;
    while shown < count {
        let left = due.saturating_duration_since(Instant::now());
        if is_ended(left.min(CHECK), screen, interrupt)? {
            break;
        }
        if left > CHECK {
            continue;
        }
        // A directory that knows less than two servers now still leads to the servers that it knew.
        several = servers::several(address).unwrap_or(several);
        let mut now = read(&several, false);
        for one in &mut now {
            // The path is that of the first reading: to bind for each reading would cost too much.
            let known = before.iter().find(|known| known.address == one.address);
            if let (Some(known), Ok(_)) = (known, &one.answer) {
                (one.path, one.reason) = (known.path, known.reason.clone());
            }
        }
        due = (due + stat.interval).max(Instant::now());
        let intervals = intervals(&before, &now);
        match (format, screen) {
            (Format::Human, Some(screen)) => {
                screen.draw(|columns| whole(address, &intervals, columns))?;
            }
            (Format::Human, None) if stat.watch => {
                for (server, interval) in &intervals {
                    let name = server.offer.server();
                    match interval {
                        Ok(interval) => output::say(format_args!(
                            "{name:<16} {}",
                            tables::line(interval, shown)
                        ))?,
                        Err(why) => output::say(format_args!("{name:<16} fails: {why}"))?,
                    }
                }
            }
            (Format::Human, None) => {
                let gap = if shown > 0 { "\n" } else { "" };
                let text = whole(address, &intervals, output::columns());
                output::say(format_args!("{gap}{text}"))?;
            }
            (Format::Ndjson, _) => intervals.iter().map(to_json).try_for_each(output::print)?,
            (Format::Json, _) => all.push(json!({
                "address": address,
                "servers": intervals.iter().map(to_json).collect::<Vec<_>>(),
            })),
        }
        before = now;
        shown += 1;
    }
    if format == Format::Json && interrupt.signal().is_none() {
        match (stat.count, all.pop()) {
            (None, Some(one)) => output::print(one)?,
            (_, last) => {
                all.extend(last);
                output::print(json!({ "intervals": all }))?;
            }
        }
    }
    Ok(shown)
}

/// A server, and its interval, or the reason why it has no interval.
type Watched<'a> = (&'a Reading, Result<Interval, &'a str>);

/// Returns the interval of each server since the reading `before`.
fn intervals<'a>(before: &[Reading], now: &'a [Reading]) -> Vec<Watched<'a>> {
    let of = |server: &'a Reading| {
        let Ok(stat) = &server.answer else { return (server, Err(&*server.reason)) };
        let same = |one: &&Reading| one.offer.server() == server.offer.server();
        let known = before.iter().find(same).and_then(|one| one.answer.as_ref().ok());
        let none = Stat::default();
        let name = server.address.clone().unwrap_or_default();
        (server, Ok(Interval::new(&name, known.unwrap_or(&none), stat.clone(), None)))
    };
    now.iter().map(of).collect()
}

/// Formats a section for each server.
fn whole(address: &str, watched: &[Watched<'_>], columns: Option<usize>) -> String {
    let answer = watched.iter().filter(|(_, interval)| interval.is_ok()).count();
    let mut text = format!("{BOLD}{address}{BOLD:#}: {answer} of {} servers answer", watched.len());
    for (server, interval) in watched {
        let _ = write!(text, "\n\n{BOLD}server {}{BOLD:#}", visible(server.offer.server()));
        match interval {
            Ok(interval) => {
                if let Some(path) = server.path {
                    let _ = write!(text, "  {DIM}{path}: {}{DIM:#}", visible(&server.reason));
                }
                let _ = write!(text, "\n{}", tables::whole(interval, columns));
            }
            Err(why) => {
                let _ = write!(text, "  {BAD}fails{BAD:#}\n{}", visible(why));
            }
        }
    }
    text
}

fn to_json((server, interval): &Watched<'_>) -> Value {
    let mut whole = server.to_json();
    if let (Ok(interval), Some(members)) = (interval, whole.as_object_mut())
        && let Value::Object(counters) = one::interval(interval)
    {
        members.extend(counters);
    }
    whole
}
