//! `account --watch`: one account after the other.

use std::time::Instant;

use peregrine_account::{Account, Options};
use serde_json::json;

use super::{Subject, args, described, text, title};
use crate::args::Format;
use crate::output::{self, Failure, nanoseconds};
use crate::screen::Screen;
use crate::stat::{interruptible, is_ended};

/// The number of rounds of one account.
const ROUNDS: usize = 3;
/// The part of an interval in which an account is measured, at most.
const MEASURED: f64 = 0.5;

/// Makes accounts until the last one, until the user quits, or until a signal arrives.
pub(super) fn run(command: &args::Account, format: Format) -> Result<(), Failure> {
    if format == Format::Json && command.count.is_none() {
        return Err(Failure::Usage {
            what: "`--format json` prints one object, but `--watch` has no end".to_owned(),
            causes: Vec::new(),
            advice: "use `--format ndjson` for one object per account, or `--count N` to end"
                .to_owned(),
            suggestions: Vec::new(),
        });
    }
    let subject = Subject::bind(command)?;
    let title = title(command, subject.path());
    let options = Options { rounds: ROUNDS, limit: command.interval.mul_f64(MEASURED) };
    let screen = if format.is_json() { None } else { Screen::take()? };
    let interrupt = interruptible(format, screen.as_ref(), "calls were made")?;
    let mut accounts = Vec::new();
    let mut measure = || {
        let (mut due, mut shown) = (Instant::now(), 0);
        while shown < command.count.unwrap_or(u64::MAX) {
            if is_ended(due.saturating_duration_since(Instant::now()), screen.as_ref(), &interrupt)?
            {
                break;
            }
            due = (due + command.interval).max(Instant::now());
            let begun = Instant::now();
            let account = subject.measure(&options)?;
            let object = || described(account.to_json(), command, subject.path(), begun.elapsed());
            match (format, &screen) {
                (Format::Human, Some(screen)) => {
                    screen.draw(|columns| text(&account, &title, columns))?;
                }
                (Format::Human, None) => output::say(line(&account, &title, shown))?,
                (Format::Ndjson, _) => output::print(object())?,
                (Format::Json, _) => accounts.push(object()),
            }
            shown += 1;
        }
        Ok(shown)
    };
    let shown: Result<u64, Failure> = measure();
    // Dropping the screen restores the terminal, before any error is reported.
    drop(screen);
    let shown = shown?;
    interrupt.check(|| format!("{shown} accounts were made"))?;
    interrupt.leave();
    match format {
        Format::Json => output::print(json!({ "accounts": accounts })),
        _ => Ok(()),
    }
}

/// Returns an account as a line, below a line of titles if it is the first.
fn line(account: &Account, title: &str, number: u64) -> String {
    let columns = |[whole, sum, transfer, rest, longest]: [&str; 5]| {
        format!("{whole:>9} {sum:>9} {transfer:>9} {rest:>7}  {longest}")
    };
    let longest = account.parts.iter().filter(|part| part.side != peregrine_account::Side::Between);
    let longest = longest.max_by(|one, other| one.ns.total_cmp(&other.ns));
    let longest = longest.map_or_else(String::new, |part| {
        format!("{}: {}, {}", part.side, part.name, nanoseconds(part.ns))
    });
    let rest = format!("{:+.1} %", 100.0 * account.rest_ratio());
    let [whole, sum, transfer] =
        [account.whole_ns, account.sum_ns(), account.transfer_ns()].map(nanoseconds);
    let line = columns([&whole, &sum, &transfer, &rest, &longest]);
    match number {
        0 => format!(
            "{title}\n{}\n{line}",
            columns(["WHOLE", "SUM", "TRANSFER", "REST", "LONGEST PART"])
        ),
        _ => line,
    }
}
