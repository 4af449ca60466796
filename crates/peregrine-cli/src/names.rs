//! `names`: lists the names of a directory with their servers, once or as they change.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use peregrine::directory::{self as runtime, Directory, Offers};
use serde_json::{Value, json};

use crate::args::Format;
use crate::directory;
use crate::interrupt::Interrupt;
use crate::output::{self, BAD, BOLD, DIM, Failure, visible};
use crate::screen::Screen;
use crate::servers::{joined, stale};
use crate::stat::{interruptible, is_ended};

/// The interval at which the directory is read with `--watch`. Directories in etcd answer from memory, and a
/// tree of files is watched by reading, too. A name service is asked by one call for each name.
const EVERY: Duration = Duration::from_millis(500);
/// The interval at which the command checks whether a signal or a key ends it.
const CHECK: Duration = Duration::from_millis(20);

/// Options of `names`.
#[derive(Args, Debug)]
pub(crate) struct Names {
    /// Follow the changes until `q` or Ctrl-C: in place on a terminal, otherwise with a line for each change;
    /// as JSON, with an object for each state
    #[arg(short, long)]
    pub(crate) watch: bool,
}

/// The directory whose names are listed.
struct Listed {
    directory: Arc<dyn Directory>,
    /// Whether the exports of this machine are listed, too.
    has_machine: bool,
}

/// A name, and what is known about it.
#[derive(Clone, Default)]
struct Name {
    /// Whether a server of this machine exports the name, and the names of this machine are listed.
    is_here: bool,
    offers: Offers,
}

/// All names of a directory at one time.
#[derive(Default)]
struct State {
    names: BTreeMap<String, Name>,
    /// Why the directory could not be read. The names are then those of the last time.
    problem: Option<String>,
}

/// Lists the names.
pub(crate) fn run(names: &Names, format: Format) -> Result<(), Failure> {
    let begun = Instant::now();
    let has_machine = !directory::is_chosen();
    let listed = Listed { directory: directory::chosen()?, has_machine };
    let state = State { names: listed.read()?, problem: None };
    if names.watch {
        return watch(&listed, state, format);
    }
    let took = output::whole_ns(begun.elapsed());
    if format.is_json() {
        let names = state.names.iter().map(|(name, known)| to_json(name, known));
        let whole = json!({ "directory": listed.describe(), "took_ns": took });
        return output::print_all(format, "names", names.collect(), whole);
    }
    if state.names.is_empty() {
        output::note(format_args!("no names in {}", listed.describe()));
        return Ok(());
    }
    output::say(table(&state, output::columns()))?;
    remarks(&state).into_iter().for_each(output::note);
    Ok(())
}

impl Listed {
    /// Reads all names and their servers.
    fn read(&self) -> Result<BTreeMap<String, Name>, Failure> {
        let mut names = BTreeMap::new();
        for name in self.directory.names()? {
            // A name that cannot be read does not hide the others.
            let offers = self.directory.look_up(&name).unwrap_or_else(|error| {
                let mut unknown = Offers::default();
                unknown.remark(error.detail());
                unknown
            });
            names.insert(name, Name { is_here: false, offers });
        }
        if self.has_machine {
            for entry in runtime::list().into_iter().filter(|entry| entry.alive == Some(true)) {
                names.entry(entry.name).or_default().is_here = true;
            }
        }
        // A tree keeps the empty directory of a name whose last server was withdrawn.
        names.retain(|_, name| {
            name.is_here || !name.offers.servers.is_empty() || !name.offers.remarks.is_empty()
        });
        Ok(names)
    }

    fn describe(&self) -> String {
        let directory = self.directory.describe();
        if self.has_machine { format!("{directory}, and this machine") } else { directory }
    }
}

/// Follows the changes until the user quits, or until a signal arrives.
fn watch(listed: &Listed, mut state: State, format: Format) -> Result<(), Failure> {
    let screen = if format.is_json() { None } else { Screen::take()? };
    let interrupt = interruptible(format, screen.as_ref(), "the directory had not answered yet")?;
    let shown = follow(listed, &mut state, format, screen.as_ref(), &interrupt);
    // Dropping the screen restores the terminal, before any error is reported.
    drop(screen);
    let what = || format!("{} names were known", state.names.len());
    let shown = shown.and_then(|()| interrupt.check(what));
    interrupt.leave();
    shown
}

fn follow(
    listed: &Listed,
    state: &mut State,
    format: Format,
    screen: Option<&Screen>,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    show(listed, &State::default(), state, format, screen, true)?;
    loop {
        let due = Instant::now() + EVERY;
        while let left = due.saturating_duration_since(Instant::now())
            && !left.is_zero()
        {
            if is_ended(left.min(CHECK), screen, interrupt)? {
                return Ok(());
            }
        }
        let now = match listed.read() {
            Ok(names) => State { names, problem: None },
            // What was known is still shown.
            Err(failure) => State { names: state.names.clone(), problem: Some(failure.brief()) },
        };
        let is_changed = !is_same(state, &now);
        show(listed, state, &now, format, screen, is_changed)?;
        *state = now;
    }
}

/// Returns whether nothing has changed but the age of what is known.
fn is_same(before: &State, now: &State) -> bool {
    let same = |(one, other): ((&String, &Name), (&String, &Name))| {
        one.0 == other.0
            && one.1.is_here == other.1.is_here
            && one.1.offers.servers == other.1.offers.servers
            && one.1.offers.remarks == other.1.offers.remarks
            && one.1.offers.age.is_some() == other.1.offers.age.is_some()
    };
    before.problem.is_some() == now.problem.is_some()
        && before.names.len() == now.names.len()
        && before.names.iter().zip(&now.names).all(same)
}

/// Shows a state. Without a screen, shows it only if it has changed since the state `before`.
fn show(
    listed: &Listed,
    before: &State,
    now: &State,
    format: Format,
    screen: Option<&Screen>,
    is_changed: bool,
) -> Result<(), Failure> {
    if let Some(screen) = screen {
        return screen.draw(|columns| {
            let head = format!("{BOLD}{}{BOLD:#}", visible(&listed.describe()));
            let remarks = remarks(now).join("\n");
            format!("{head}\n{}\n\n{DIM}{remarks}{DIM:#}", table(now, columns))
        });
    }
    if !is_changed {
        return Ok(());
    }
    if format.is_json() {
        let names = now.names.iter().map(|(name, known)| to_json(name, known));
        return output::print(json!({
            "directory": listed.describe(),
            "names": names.collect::<Vec<_>>(),
            "problem": now.problem,
        }));
    }
    let (old, new) = (rows(before), rows(now));
    let gone = old.iter().filter(|row| !new.contains(row)).map(|row| ('-', row));
    let come = new.iter().filter(|row| !old.contains(row)).map(|row| ('+', row));
    for (sign, row) in gone.chain(come) {
        output::say(format_args!("{sign} {}", row.join("  ")))?;
    }
    let known = remarks(before);
    remarks(now).into_iter().filter(|remark| !known.contains(remark)).for_each(output::note);
    if before.problem.is_some() && now.problem.is_none() {
        output::note("the directory can be read again");
    }
    Ok(())
}

/// Returns a row for each server of each name.
fn rows(state: &State) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for (name, known) in &state.names {
        if known.is_here {
            rows.push(vec![name.clone(), "(this machine)".to_owned(), format!("local:{name}")]);
        }
        let servers = known.offers.servers.iter();
        rows.extend(
            servers.map(|offer| {
                vec![name.clone(), offer.server().to_owned(), joined(offer.addresses())]
            }),
        );
    }
    rows
}

fn table(state: &State, columns: Option<usize>) -> String {
    output::table_fitted(&["NAME", "SERVER", "ADDRESSES"], &[], rows(state), columns)
}

/// Returns what is known besides the servers: why the directory could not be read, how old the knowledge is,
/// and what the directory contains and cannot be used.
fn remarks(state: &State) -> Vec<String> {
    let problem = state.problem.iter();
    let mut remarks: Vec<String> =
        problem.map(|why| format!("{BAD}the directory cannot be read:{BAD:#} {why}")).collect();
    let ages = state.names.values().filter_map(|name| name.offers.age);
    remarks.extend(ages.max().map(stale));
    for (name, known) in &state.names {
        let told = known.offers.remarks.iter();
        remarks.extend(told.map(|remark| format!("`{name}`: {}", visible(remark))));
    }
    remarks
}

fn to_json(name: &str, known: &Name) -> Value {
    let servers = known.offers.servers.iter().map(|offer| {
        let addresses = offer.addresses().iter().map(ToString::to_string);
        json!({ "server": offer.server(), "addresses": addresses.collect::<Vec<_>>() })
    });
    json!({
        "name": name,
        "is_here": known.is_here,
        "servers": servers.collect::<Vec<_>>(),
        "age_ms": known.offers.age.map(|age| age.as_millis() as u64),
        "remarks": known.offers.remarks,
    })
}
