//! `account --load`: response times under load.

use std::time::{Duration, Instant};

use peregrine::{Binding, PathKind};
use peregrine_account::{Caller, Load, LoadOptions, ServerCounts};

use super::{args, described, repeated, title, write};
use crate::args::Format;
use crate::interrupt::{Interrupt, InterruptOptions};
use crate::output::{self, BOLD, Counted, DIM, Failure, nanoseconds, table};
use crate::security::bind_options;
use crate::stat::tables::rate;

/// How long the current run may still take after a signal interrupted the command.
const GRACE: Duration = Duration::from_millis(200);
/// How long all runs take, if no option says it.
const LIMIT: Duration = Duration::from_secs(20);
/// The steps of the progress bar.
const STEPS: f64 = 1000.0;

/// Measures response times, and shows them.
pub(super) fn run(command: &args::Account, format: Format) -> Result<(), Failure> {
    let begun = Instant::now();
    let signals = InterruptOptions { format, grace: GRACE, executed: "maybe" };
    let interrupt = Interrupt::handle(signals, || {}, || "calls were made".to_owned())?;
    let (callers, path) = callers(command)?;
    let options = LoadOptions { limit: command.limit.unwrap_or(LIMIT), ..LoadOptions::default() };
    let bar = output::bar(STEPS as u64, "measuring", Counted::Steps);
    let mut counts = || counts(&command.address);
    let load = Load::measure(callers, &options, &mut counts, &mut |part| {
        bar.set_position((part * STEPS) as u64);
    });
    bar.finish_and_clear();
    let load = load?;
    interrupt.leave();
    let title = title(command, path);
    for (file, content) in
        [(&command.svg, Load::to_svg as fn(&Load, &str) -> String), (&command.html, Load::to_html)]
    {
        if let Some(file) = file {
            write(file, &content(&load, &title))?;
        }
    }
    if format.is_json() {
        return output::print(described(load.to_json(), command, path, begun.elapsed()));
    }
    show(&load, &title)
}

/// Returns the callers. Each has a binding of its own.
fn callers(command: &args::Account) -> Result<(Vec<Caller<'static>>, PathKind), Failure> {
    let mut callers: Vec<Caller<'static>> = Vec::new();
    let mut path = None;
    for _ in 0..command.callers {
        let (caller, taken): (Caller<'static>, _) = match &command.procedure {
            None => {
                let options = bind_options().wait(command.wait.into());
                let binding = Binding::bind_any(&command.address, &options)?;
                let taken = binding.path();
                (Box::new(move || binding.ping()), taken)
            }
            Some(procedure) => {
                let mut call = repeated(command, procedure)?;
                call.try_once()?;
                let client = call.client().clone();
                let taken = client.binding().path();
                (Box::new(move || call.make(&client)), taken)
            }
        };
        callers.push(caller);
        path.get_or_insert(taken);
    }
    path.map(|path| (callers, path))
        .ok_or_else(|| Failure::local("there is no caller", "use --callers 1"))
}

/// Reads the counters of the server, if it shows them.
fn counts(address: &str) -> Option<ServerCounts> {
    let stat = peregrine::stat_with(address, &bind_options()).ok()?;
    let server = stat.server;
    Some(ServerCounts { slept: server.waits.slept, again: server.resent + server.came_again })
}

fn show(load: &Load, title: &str) -> Result<(), Failure> {
    output::say(format_args!("{BOLD}{title}{BOLD:#}\n"))?;
    let rows = load.levels.iter().map(|level| {
        let times = [
            level.response.mean_ns,
            level.constant.mean_ns,
            level.markov_ns,
            level.response.p99_ns,
            level.constant.p99_ns,
        ];
        let first = [format!("{:.0} %", 100.0 * level.utilization), rate(level.calls_per_s)];
        let last = [format!("{:.1} %", 100.0 * level.slept()), level.cause.to_string()];
        first.into_iter().chain(times.map(nanoseconds)).chain(last).collect()
    });
    let header = [
        "LOAD",
        "CALLS/S",
        "MEAN",
        "M/D/1",
        "S/(1-U)",
        "P99",
        "M/D/1",
        "SLEPT",
        "LONGER THAN A QUEUE",
    ];
    output::say(table(&header, &[0, 1, 2, 3, 4, 5, 6, 7], rows.collect()))?;
    let rows = load.closed.iter().map(|run| {
        let [think, response, law] = [run.think_ns, run.response_ns, run.law_ns()].map(nanoseconds);
        vec![run.callers.to_string(), think, rate(run.calls_per_s), response, law]
    });
    let header = ["CALLERS", "PAUSE", "CALLS/S", "CALL", "N/X - Z"];
    output::say(format_args!("\n{}\n", table(&header, &[0, 1, 2, 3, 4], rows.collect())))?;
    load.findings().iter().try_for_each(output::say)?;
    output::note(format_args!(
        "{DIM}times count from the moment at which a call was due; the queue gets the same moments{DIM:#}"
    ));
    Ok(())
}
