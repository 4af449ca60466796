//! The servers of a name that has several. A command asks each of them, and shows one row for each.

use std::error::Error as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use peregrine::directory::{Offer, Offers};
use peregrine::{Address, CallError, PathKind};
use serde_json::{Value, json};

use crate::directory;
use crate::output::{self, Failure};
use crate::security::bind_options;

/// The number of servers that are asked at the same time.
const ASKED_MAX: usize = 16;

/// The servers of a name that a user wrote.
pub(crate) struct Several {
    /// What the directory knows.
    pub(crate) offers: Offers,
    /// The only path that the user wants, as it is written in addresses: `udp:`, or nothing.
    scheme: String,
    path: Option<PathKind>,
}

/// What a server has answered.
pub(crate) struct Server<T> {
    /// What the directory knows about the server.
    pub(crate) offer: Offer,
    /// The address at which the server has answered. `None`: it has not answered.
    pub(crate) address: Option<String>,
    /// The path that a client would use, if a binding to the server succeeds.
    pub(crate) path: Option<PathKind>,
    /// What carries the calls, or why the server does not answer. May be empty.
    pub(crate) reason: String,
    /// The answer.
    pub(crate) answer: Result<T, Failure>,
}

/// The row of a server in a table.
pub(crate) struct Row {
    pub(crate) server: String,
    pub(crate) standing: String,
    pub(crate) path: Option<PathKind>,
    /// The address that was used, or all addresses.
    pub(crate) at: String,
    pub(crate) reason: String,
}

/// Returns the servers of a name, if the directory knows several. `None`: the address contains a place, the
/// name has at most one server, or the directory cannot be asked. Then the command does what it does without
/// a directory, and reports the error of the directory if it needs the directory.
pub(crate) fn several(address: &str) -> Option<Several> {
    let parsed: Address = address.parse().ok()?;
    let path = parsed.path();
    let is_elsewhere = |path: PathKind| !path.is_on_this_machine() && path.system().is_none();
    if parsed.place().is_some() || !path.is_none_or(is_elsewhere) {
        return None;
    }
    let offers = directory::chosen().ok()?.look_up(parsed.name()).ok()?;
    let scheme = address.strip_suffix(parsed.name()).unwrap_or_default().to_owned();
    (offers.servers.len() > 1).then_some(Several { offers, scheme, path })
}

impl Several {
    /// Asks all servers by `ask`, several at the same time, so that a server that hangs does not delay the
    /// others. `ask` gets one address of a server after the other, until one answers. If `binds` is true, also
    /// binds to each server that has answered, to find out its path.
    pub(crate) fn ask<T: Send>(
        &self,
        binds: bool,
        ask: impl Fn(&str) -> Result<T, CallError> + Sync,
    ) -> Vec<Server<T>> {
        let next = AtomicUsize::new(0);
        let work = || {
            let mut asked = Vec::new();
            while let at = next.fetch_add(1, Ordering::Relaxed)
                && let Some(offer) = self.offers.servers.get(at)
            {
                asked.push((at, self.ask_one(offer, binds, &ask)));
            }
            asked
        };
        let mut asked: Vec<_> = thread::scope(|scope| {
            let count = self.offers.servers.len().min(ASKED_MAX);
            let threads: Vec<_> = (0..count).map(|_| scope.spawn(work)).collect();
            let ended = threads.into_iter().map(|thread| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            ended.flatten().collect()
        });
        asked.sort_by_key(|(at, _)| *at);
        asked.into_iter().map(|(_, server)| server).collect()
    }

    fn ask_one<T>(
        &self,
        offer: &Offer,
        binds: bool,
        ask: impl Fn(&str) -> Result<T, CallError>,
    ) -> Server<T> {
        let mut failure = None;
        for address in self.addresses(offer) {
            match ask(&address) {
                Ok(answer) => {
                    let (path, reason) =
                        if binds { chosen_path(&address) } else { (None, String::new()) };
                    let (offer, address, answer) = (offer.clone(), Some(address), Ok(answer));
                    return Server { offer, address, path, reason, answer };
                }
                Err(error) => failure = Some(error),
            }
        }
        let reason = failure
            .as_ref()
            .map_or_else(|| format!("the server has no address for {}", self.scheme), why);
        let failure = failure.map_or_else(
            || Failure::local(reason.clone(), "write the name without a path"),
            Failure::from,
        );
        Server { offer: offer.clone(), address: None, path: None, reason, answer: Err(failure) }
    }

    /// Returns the addresses of a server that suit the path that the user wants.
    pub(crate) fn addresses(&self, offer: &Offer) -> Vec<String> {
        let suiting =
            offer.addresses().iter().filter_map(|address| match (self.path, address.path()) {
                (Some(wanted), Some(path)) if wanted != path => None,
                (Some(_), None) => Some(format!("{}{address}", self.scheme)),
                _ => Some(address.to_string()),
            });
        suiting.collect()
    }

    /// Prints on standard error what the directory says besides the servers.
    pub(crate) fn note_remarks(&self) {
        if let Some(age) = self.offers.age {
            output::note(stale(age));
        }
        for remark in &self.offers.remarks {
            output::note(format_args!("directory: {remark}"));
        }
    }
}

/// Says how old the knowledge of a directory is that does not answer.
pub(crate) fn stale(age: std::time::Duration) -> String {
    let age = output::age(age.as_millis() as u64);
    format!("the directory does not answer; this was known {age} ago")
}

/// Returns why something failed in one line, without the address, which has a column of its own.
pub(crate) fn why(error: &CallError) -> String {
    let mut text = error.kind().text().to_owned();
    let mut add = |more: &str| {
        if !more.is_empty() {
            text.push_str(": ");
            text.push_str(more);
        }
    };
    add(error.detail());
    let mut cause = error.source();
    while let Some(error) = cause {
        add(&error.to_string());
        cause = error.source();
    }
    text
}

/// Binds to an address. Returns the path, and what carries the calls.
fn chosen_path(address: &str) -> (Option<PathKind>, String) {
    let (explanation, _) = peregrine::explain(address, &bind_options());
    let chosen = explanation.chosen();
    let one = explanation.candidates().iter().find(|one| Some(one.path) == chosen);
    (chosen, one.map(|one| one.reason.clone()).unwrap_or_default())
}

impl<T> Server<T> {
    /// Returns whether the server has answered, in one word.
    pub(crate) fn standing(&self) -> &'static str {
        if self.answer.is_ok() { "answers" } else { "fails" }
    }

    /// Returns the row of this server.
    pub(crate) fn row(&self, standing: &str) -> Row {
        Row {
            server: self.offer.server().to_owned(),
            standing: standing.to_owned(),
            path: self.path,
            at: self.address.clone().unwrap_or_else(|| joined(self.offer.addresses())),
            reason: self.reason.clone(),
        }
    }

    /// Returns what is known about the server as a JSON object.
    pub(crate) fn to_json(&self) -> Value {
        let addresses = self.offer.addresses().iter().map(ToString::to_string);
        json!({
            "server": self.offer.server(),
            "addresses": addresses.collect::<Vec<_>>(),
            "address": self.address,
            "standing": self.standing(),
            "path": self.path.map(|path| path.to_string()),
            "reason": self.reason,
        })
    }
}

/// Returns the failure of a command to which no server has answered: that of the first server.
pub(crate) fn first_failure<T>(servers: Vec<Server<T>>) -> Failure {
    let mut failures = servers.into_iter().filter_map(|one| one.answer.err());
    let none = || Failure::local("the name has no server", "see `peregrine names`");
    failures.next().unwrap_or_else(none)
}

/// Returns addresses in one text.
pub(crate) fn joined(addresses: &[Address]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// Formats rows as a table. `standing` is the header of the second column.
pub(crate) fn table(standing: &str, rows: Vec<Row>) -> String {
    table_within(standing, rows, output::columns())
}

/// Formats rows as a table for a terminal with `columns` columns.
pub(crate) fn table_within(standing: &str, rows: Vec<Row>, columns: Option<usize>) -> String {
    let cells = rows.into_iter().map(|row| {
        let path = row.path.map_or_else(|| "-".to_owned(), |path| path.to_string());
        let reason = if row.reason.is_empty() { "-".to_owned() } else { row.reason };
        vec![row.server, row.standing, path, row.at, reason]
    });
    let header = ["SERVER", standing, "PATH", "ADDRESS", "REASON"];
    output::table_fitted(&header, &[], cells.collect(), columns)
}
