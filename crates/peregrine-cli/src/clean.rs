//! `clean`: removes files of dead servers from the runtime directories.

use std::io;
use std::path::PathBuf;

use peregrine::directory::{self, Entry, Leftover};
use serde_json::{Value, json};

use crate::args::{Clean, Format};
use crate::output::{self, BAD, BOLD, DIM, Failure};

/// The outcome of removing one leftover (a group of files of a dead server).
struct Cleaned {
    leftover: Leftover,
    files: Vec<PathBuf>,
    /// Why the leftover could not be removed. `None` if the removal did not fail.
    kept: Option<String>,
}

/// Removes the files that dead servers left in the runtime directories, or only lists them.
pub(crate) fn run(clean: &Clean, format: Format) -> Result<(), Failure> {
    let leftovers = directory::leftovers();
    let is_left = |entry: &Entry| {
        let same = |one: &Leftover| {
            one.name() == entry.name && entry.socket.parent() == Some(one.directory())
        };
        leftovers.iter().any(same)
    };
    let foreign = |entry: &Entry| entry.alive != Some(true) && !is_left(entry);
    // Names that only another user can remove. Their servers may be dead.
    let foreign: Vec<Entry> = directory::list().into_iter().filter(foreign).collect();
    let cleaned: Vec<Cleaned> =
        leftovers.into_iter().filter_map(|one| cleaned(one, clean.dry_run)).collect();
    let kept = cleaned.iter().filter(|one| one.kept.is_some()).count();
    let failed = || {
        let what = format!("cannot remove {kept} of {} dead names", cleaned.len());
        Failure::local(what, "see the reason of each; the owner of the directory can remove them")
    };
    if format.is_json() {
        let all = cleaned.iter().map(|one| one.to_json(clean.dry_run)).collect();
        let names: Vec<_> = foreign.iter().map(|entry| &entry.name).collect();
        let mut whole = json!({ "dry_run": clean.dry_run, "other_users": names });
        if kept > 0 && format == Format::Json {
            // A single object contains both the results and the error.
            whole["leftovers"] = json!(all);
            return Err(failed().with(whole));
        }
        output::print_all(format, "leftovers", all, whole)?;
        return if kept == 0 { Ok(()) } else { Err(failed()) };
    }
    if !foreign.is_empty() {
        let names: Vec<_> = foreign.iter().map(|entry| entry.name.as_str()).collect();
        output::note(format_args!(
            "skipped {}: these names belong to other users, and only their owners can remove them",
            names.join(", ")
        ));
    } else if cleaned.is_empty() {
        let path: Vec<_> =
            directory::search_path().iter().map(|dir| dir.display().to_string()).collect();
        output::note(format_args!("no files of dead servers in {}", path.join(", ")));
    }
    // Servers of earlier versions left one lock file per name. These files are only counted.
    let (locks, named): (Vec<_>, Vec<_>) = cleaned.iter().partition(|one| one.is_lock());
    for one in named {
        output::say(one.to_text(clean.dry_run))?;
    }
    if let [first, ..] = &*locks {
        let (count, verdict) = (locks.len(), first.verdict(clean.dry_run));
        output::say(format_args!("{BOLD}lock files without a socket{BOLD:#} {verdict}: {count}"))?;
    }
    if kept == 0 { Ok(()) } else { Err(failed()) }
}

/// Removes one leftover. Returns `None` if the server of the leftover was restarted meanwhile.
fn cleaned(leftover: Leftover, dry_run: bool) -> Option<Cleaned> {
    let removed = if dry_run { Ok(leftover.files().to_vec()) } else { leftover.remove() };
    let (files, kept) = match removed {
        Ok(files) => (files, None),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    Some(Cleaned { leftover, files, kept })
}

impl Cleaned {
    /// Returns whether only the lock file was left.
    fn is_lock(&self) -> bool {
        let locks = |file: &PathBuf| file.extension().is_some_and(|end| end == "lock");
        self.kept.is_none() && self.files.len() == 1 && self.files.iter().all(locks)
    }

    const fn verdict(&self, dry_run: bool) -> &'static str {
        match (&self.kept, dry_run) {
            (Some(_), _) => "kept",
            (None, true) => "would be removed",
            (None, false) => "removed",
        }
    }

    fn files(&self) -> Vec<String> {
        self.files.iter().map(|file| file.display().to_string()).collect()
    }

    fn to_json(&self, dry_run: bool) -> Value {
        json!({
            "name": self.leftover.name(),
            "directory": self.leftover.directory().display().to_string(),
            "files": self.files(),
            "removed": self.kept.is_none() && !dry_run,
            "why": self.kept,
        })
    }

    fn to_text(&self, dry_run: bool) -> String {
        let name = self.leftover.name();
        let verdict = self.verdict(dry_run);
        match &self.kept {
            Some(why) => {
                let dir = self.leftover.directory().display();
                format!("{BOLD}{name}{BOLD:#} {BAD}{verdict}{BAD:#} in {dir}: {why}")
            }
            None => {
                let files = self.files().join("\n  ");
                format!("{BOLD}{name}{BOLD:#} {verdict}\n  {DIM}{files}{DIM:#}")
            }
        }
    }
}
