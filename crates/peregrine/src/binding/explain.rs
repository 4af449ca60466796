//! `Explanation`: the path that binding chose, and why it chose no other.

use core::fmt;

use super::pool::PoolServer;
use crate::call::PathKind;

/// The outcome of each path when a client binds, the fastest path first.
///
/// ```
/// use peregrine::{BindOptions, PathKind, Verdict};
///
/// let (explanation, _) = peregrine::explain("surely-nobody-exports-this", &BindOptions::default());
/// assert_eq!(explanation.chosen(), None);
/// let local = &explanation.candidates()[0];
/// assert_eq!((local.path, local.verdict), (PathKind::Local, Verdict::Failed));
/// assert!(local.reason.contains("no such export"));
/// println!("{explanation}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    pub(super) address: String,
    pub(super) candidates: Vec<Candidate>,
    /// The servers of a pool.
    pub(super) servers: Vec<PoolServer>,
    /// What the directory of a pool contains and cannot be used.
    pub(super) remarks: Vec<String>,
}

/// A path that binding considered, and the outcome for this path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The path.
    pub path: PathKind,
    /// Whether binding chose the path.
    pub verdict: Verdict,
    /// What carries the calls, or why the path was not chosen. May be empty.
    pub reason: String,
}

/// Whether binding chose a path, or why it did not choose the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// Calls take this path.
    Chosen,
    /// Binding tried this path without success.
    Failed,
    /// Binding did not try this path: no server offers it, or the address excludes it.
    Excluded,
    /// Binding did not try this path, because a faster one works or the object is in this process.
    NotNeeded,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Chosen => "chosen",
            Self::Failed => "failed",
            Self::Excluded => "excluded",
            Self::NotNeeded => "not needed",
        })
    }
}

impl Explanation {
    /// Returns an explanation that has these paths, the fastest first, all with the same verdict.
    pub(super) fn all(
        address: &str,
        paths: impl Iterator<Item = PathKind>,
        verdict: Verdict,
        reason: &str,
    ) -> Self {
        let candidate = |path| Candidate { path, verdict, reason: reason.to_owned() };
        Self {
            address: address.to_owned(),
            candidates: paths.map(candidate).collect(),
            servers: Vec::new(),
            remarks: Vec::new(),
        }
    }

    /// Returns the address to which the client binds, as it was written.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns all paths with their outcomes, the fastest path first.
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// Returns the servers of a pool, by their names. Empty if the binding is no pool. The paths are then those
    /// to one of these servers.
    pub fn servers(&self) -> &[PoolServer] {
        &self.servers
    }

    /// Returns what the directory of a pool contains and cannot be used, and why it does not report changes now.
    /// For a client of one server, returns how old the knowledge of the directory was, if it did not answer when
    /// the client bound. For people.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Returns the path that was chosen. `None`: no path works, or calls stay within the process.
    pub fn chosen(&self) -> Option<PathKind> {
        self.chosen_candidate().map(|candidate| candidate.path)
    }

    /// Returns the chosen path and what carries its calls, in one line.
    pub fn summary(&self) -> String {
        match self.chosen_candidate() {
            None => "no path".to_owned(),
            Some(Candidate { path, reason, .. }) if reason.is_empty() => path.to_string(),
            Some(Candidate { path, reason, .. }) => format!("{path}: {reason}"),
        }
    }

    fn chosen_candidate(&self) -> Option<&Candidate> {
        self.candidates.iter().find(|candidate| candidate.verdict == Verdict::Chosen)
    }

    /// Sets the outcome of a path.
    pub(super) fn set(&mut self, path: PathKind, verdict: Verdict, reason: String) {
        if let Some(candidate) = self.candidates.iter_mut().find(|candidate| candidate.path == path)
        {
            (candidate.verdict, candidate.reason) = (verdict, reason);
        }
    }

    /// Marks `path` as chosen. The slower paths that would have been tried are marked as not needed.
    pub(super) fn choose(&mut self, path: PathKind, is_to_be_tried: impl Fn(PathKind) -> bool) {
        self.set(path, Verdict::Chosen, String::new());
        let slower = self.candidates.iter_mut().skip_while(|one| one.path != path).skip(1);
        for candidate in slower.filter(|one| is_to_be_tried(one.path)) {
            (candidate.verdict, candidate.reason) = (Verdict::NotNeeded, String::new());
        }
    }
}

impl fmt::Display for Explanation {
    /// Writes one line for each path and its outcome, and one for each server of a pool.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, candidate) in self.candidates.iter().enumerate() {
            let Candidate { path, verdict, reason } = candidate;
            let end = if i + 1 < self.candidates.len() { "\n" } else { "" };
            match reason.is_empty() {
                true => write!(f, "{path:<9} {verdict}{end}")?,
                false => write!(f, "{path:<9} {verdict:<10}  {reason}{end}")?,
            }
        }
        self.servers.iter().try_for_each(|server| write!(f, "\n{server}"))?;
        self.remarks.iter().try_for_each(|remark| write!(f, "\n{remark}"))
    }
}
