//! `account`: shows where the time of a call goes.

pub(crate) mod args;
mod load;
mod watch;

use std::cell::RefCell;
use std::path::Path;
use std::time::{Duration, Instant};

use peregrine::{Accounting, Binding, CallError, GenericClient, PathKind};
use peregrine_account::{Account, Calls, Options};
use serde_json::{Value, json};

use crate::args::{Call, Format, ShownBytes};
use crate::call::repeated::RepeatedCall;
use crate::interrupt::{Interrupt, InterruptOptions};
use crate::output::{self, BOLD, DIM, FAIR, Failure, GOOD, OrFail as _, nanoseconds, table_fitted};
use crate::security::bind_options;

/// How long the current call may still run after a signal interrupted the command.
const GRACE: Duration = Duration::from_millis(200);
/// How long an account takes at most, if no option says it.
const LIMIT: Duration = Duration::from_secs(10);
/// A rest of at most this part of the whole is small.
const SMALL_REST: f64 = 0.05;

/// Makes an account.
pub(crate) fn run(command: &args::Account, format: Format) -> Result<(), Failure> {
    if command.load {
        return load::run(command, format);
    }
    if command.watch {
        return watch::run(command, format);
    }
    let begun = Instant::now();
    let signals = InterruptOptions { format, grace: GRACE, executed: "maybe" };
    let interrupt = Interrupt::handle(signals, || {}, || "calls were made".to_owned())?;
    let options = Options { rounds: command.rounds.into(), limit: command.limit.unwrap_or(LIMIT) };
    let subject = Subject::bind(command)?;
    let account = subject.measure(&options)?;
    interrupt.leave();
    let title = title(command, subject.path());
    for (file, content) in [
        (&command.svg, Account::to_svg as fn(&Account, &str) -> String),
        (&command.html, Account::to_html),
    ] {
        if let Some(file) = file {
            write(file, &content(&account, &title))?;
        }
    }
    if format.is_json() {
        let whole = described(account.to_json(), command, subject.path(), begun.elapsed());
        return output::print(whole);
    }
    show(&account, &title)
}

/// Adds to an object which call it is about, and how long the command took.
fn described(mut whole: Value, command: &args::Account, path: PathKind, took: Duration) -> Value {
    whole["address"] = json!(command.address);
    whole["procedure"] = json!(command.procedure);
    whole["path"] = json!(path.to_string());
    whole["wait"] = json!(command.wait.text());
    whole["took_ns"] = output::whole_ns(took);
    whole
}

fn write(file: &Path, content: &str) -> Result<(), Failure> {
    std::fs::write(file, content).or_fail(format!("cannot write {}", file.display()))?;
    output::note(format!("{DIM}wrote {}{DIM:#}", file.display()));
    Ok(())
}

fn title(command: &args::Account, path: PathKind) -> String {
    let procedure = command.procedure.as_deref().unwrap_or("a call that does nothing");
    format!("{procedure} at {}, {path}, {}", command.address, command.wait.text())
}

/// What accounts are made of.
enum Subject {
    /// Calls that do nothing.
    Null(Binding),
    Procedure(GenericClient, Box<RefCell<RepeatedCall>>),
}

impl Subject {
    /// Binds, and makes the call once, so that an error of the procedure itself is shown as such.
    fn bind(command: &args::Account) -> Result<Self, Failure> {
        let Some(procedure) = &command.procedure else {
            let options = bind_options().wait(command.wait.into());
            return Ok(Self::Null(Binding::bind_any(&command.address, &options)?));
        };
        let mut call = repeated(command, procedure)?;
        call.try_once()?;
        Ok(Self::Procedure(call.client().clone(), Box::new(RefCell::new(call))))
    }

    fn path(&self) -> PathKind {
        match self {
            Self::Null(binding) => binding.path(),
            Self::Procedure(client, _) => client.binding().path(),
        }
    }

    /// Makes an account.
    fn measure(&self, options: &Options) -> Result<Account, CallError> {
        match self {
            Self::Null(binding) => Account::of_null(binding, options),
            Self::Procedure(client, call) => {
                let accounting = Accounting::begin(client.binding())?;
                let accounted = client.with_accounting(&accounting);
                let calls = Calls {
                    plain: &mut || call.borrow_mut().make(client),
                    accounted: &mut || call.borrow_mut().make(&accounted),
                };
                Account::of(&accounting, calls, options)
            }
        }
    }
}

/// Binds, and reads the arguments of the call.
fn repeated(command: &args::Account, procedure: &str) -> Result<RepeatedCall, Failure> {
    let call = Call {
        address: command.address.clone(),
        procedure: procedure.to_owned(),
        arguments: command.arguments.clone(),
        out: Vec::new(),
        bytes: ShownBytes::Auto,
        timeout: None,
        metadata: Vec::new(),
        interface: None,
        via: None,
    };
    RepeatedCall::prepare(&call, bind_options().wait(command.wait.into()))
}

fn show(account: &Account, title: &str) -> Result<(), Failure> {
    output::say(text(account, title, output::columns()))?;
    let [client, server] = account.stamp_ns.map(nanoseconds);
    output::note(format_args!(
        "{DIM}{} rounds; a stamp takes {client} at the client and {server} at the server{DIM:#}",
        account.rounds
    ));
    Ok(())
}

/// Returns the account as a table that fits this number of columns.
fn text(account: &Account, title: &str, columns: Option<usize>) -> String {
    let share = |ns: f64| {
        let tenths = (1000.0 * ns / account.whole_ns).round();
        // Adding zero makes a negative zero positive.
        format!("{:.1} %", tenths / 10.0 + 0.0)
    };
    let nanoseconds = |ns: f64| nanoseconds(if ns.abs() < 0.5 { 0.0 } else { ns });
    let parts = account.parts.iter().map(|part| {
        let (side, name) = (part.side.to_string(), part.name.to_owned());
        vec![side, name, nanoseconds(part.ns), nanoseconds(part.spread_ns), share(part.ns)]
    });
    let sums = [
        ("sum", account.sum_ns()),
        ("whole, without stamps", account.whole_ns),
        ("the same call outside of the account", account.plain_ns),
    ];
    let sums = sums.map(|(name, ns)| {
        vec![String::new(), name.to_owned(), nanoseconds(ns), String::new(), share(ns)]
    });
    let header = ["SIDE", "PART", "TIME", "SPREAD", "OF THE WHOLE"];
    let table = table_fitted(&header, &[2, 3, 4], parts.chain(sums).collect(), columns);
    let rest = 100.0 * account.rest_ratio();
    let style = if account.rest_ratio().abs() <= SMALL_REST { GOOD } else { FAIR };
    format!(
        "{BOLD}{title}{BOLD:#}\n\n{table}\n\n{style}rest {rest:+.1} %{style:#}; {:.2} times the transfer alone",
        account.whole_ns / account.transfer_ns()
    )
}
