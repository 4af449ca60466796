//! `account`: shows where the time of a call goes.

pub(crate) mod args;
mod load;

use std::cell::RefCell;
use std::path::Path;
use std::time::{Duration, Instant};

use peregrine::{Accounting, Binding, PathKind};
use peregrine_account::{Account, Calls, Options};
use serde_json::json;

use crate::args::{Call, Format, ShownBytes};
use crate::call::repeated::RepeatedCall;
use crate::interrupt::{Interrupt, InterruptOptions};
use crate::output::{self, BOLD, DIM, FAIR, Failure, GOOD, OrFail as _, nanoseconds, table};
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
    let begun = Instant::now();
    let signals = InterruptOptions { format, grace: GRACE, executed: "maybe" };
    let interrupt = Interrupt::handle(signals, || {}, || "calls were made".to_owned())?;
    let options = Options { rounds: command.rounds.into(), limit: command.limit.unwrap_or(LIMIT) };
    let (account, path) = match &command.procedure {
        None => of_null(command, &options)?,
        Some(procedure) => of_procedure(command, procedure, &options)?,
    };
    interrupt.leave();
    let title = title(command, path);
    for (file, content) in [
        (&command.svg, Account::to_svg as fn(&Account, &str) -> String),
        (&command.html, Account::to_html),
    ] {
        if let Some(file) = file {
            write(file, &content(&account, &title))?;
        }
    }
    if format.is_json() {
        let mut whole = account.to_json();
        whole["address"] = json!(command.address);
        whole["procedure"] = json!(command.procedure);
        whole["path"] = json!(path.to_string());
        whole["wait"] = json!(command.wait.text());
        whole["took_ns"] = output::whole_ns(begun.elapsed());
        return output::print(whole);
    }
    show(&account, &title)
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

fn of_null(command: &args::Account, options: &Options) -> Result<(Account, PathKind), Failure> {
    let binding = Binding::bind_any(&command.address, &bind_options().wait(command.wait.into()))?;
    Ok((Account::of_null(&binding, options)?, binding.path()))
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

/// Makes an account of a procedure.
fn of_procedure(
    command: &args::Account,
    procedure: &str,
    options: &Options,
) -> Result<(Account, PathKind), Failure> {
    let mut call = repeated(command, procedure)?;
    call.try_once()?;
    let client = call.client().clone();
    let accounting = Accounting::begin(client.binding())?;
    let accounted = client.with_accounting(&accounting);
    let call = RefCell::new(call);
    let calls = Calls {
        plain: &mut || call.borrow_mut().make(&client),
        accounted: &mut || call.borrow_mut().make(&accounted),
    };
    Ok((Account::of(&accounting, calls, options)?, client.binding().path()))
}

fn show(account: &Account, title: &str) -> Result<(), Failure> {
    output::say(format_args!("{BOLD}{title}{BOLD:#}\n"))?;
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
    output::say(table(&header, &[2, 3, 4], parts.chain(sums).collect()))?;
    let rest = 100.0 * account.rest_ratio();
    let style = if account.rest_ratio().abs() <= SMALL_REST { GOOD } else { FAIR };
    let [client, server] = account.stamp_ns.map(nanoseconds);
    output::say(format_args!(
        "\n{style}rest {rest:+.1} %{style:#}; {:.2} times the transfer alone",
        account.whole_ns / account.transfer_ns()
    ))?;
    output::note(format_args!(
        "{DIM}{} rounds; a stamp takes {client} at the client and {server} at the server{DIM:#}",
        account.rounds
    ));
    Ok(())
}
