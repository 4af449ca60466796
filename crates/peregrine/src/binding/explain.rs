//! `Explanation`: which path binding chose, and why none of the others.

use core::fmt;

use crate::call::PathKind;

/// What became of the four paths when somebody bound, the fastest first.
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
}

/// One path, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Which path.
    pub path: PathKind,
    /// Whether it was taken.
    pub verdict: Verdict,
    /// What carries the calls, or why it was not taken.
    pub reason: String,
}

/// Whether a path was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// Calls take it.
    Chosen,
    /// It was tried, and does not work.
    Failed,
    /// It leads nowhere: nobody offers it, or the address excludes it.
    Excluded,
    /// A faster one works.
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

/// The paths, the fastest first.
pub(super) const PATHS: &[PathKind] =
    &[PathKind::Local, PathKind::Ethernet, PathKind::Udp, PathKind::Tcp];

impl Explanation {
    /// All paths with the same verdict.
    pub(crate) fn all(address: &str, verdict: Verdict, reason: &str) -> Self {
        let candidate =
            |path: &PathKind| Candidate { path: *path, verdict, reason: reason.to_owned() };
        let candidates = PATHS.iter().map(candidate).collect();
        Self { address: address.to_owned(), candidates }
    }

    /// The address that was bound, as it was written.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// All paths, the fastest first.
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// The path that was chosen; `None` if none works, or if calls leave no process.
    pub fn chosen(&self) -> Option<PathKind> {
        let mut chosen =
            self.candidates.iter().filter(|candidate| candidate.verdict == Verdict::Chosen);
        chosen.next().map(|candidate| candidate.path)
    }

    /// The chosen path and what carries its calls, in one line.
    pub fn summary(&self) -> String {
        let mut chosen =
            self.candidates.iter().filter(|candidate| candidate.verdict == Verdict::Chosen);
        match chosen.next() {
            None => "no path".to_owned(),
            Some(Candidate { path, reason, .. }) if reason.is_empty() => path.to_string(),
            Some(Candidate { path, reason, .. }) => format!("{path}: {reason}"),
        }
    }

    pub(super) fn set(&mut self, path: PathKind, verdict: Verdict, reason: String) {
        if let Some(candidate) = self.candidates.iter_mut().find(|candidate| candidate.path == path)
        {
            (candidate.verdict, candidate.reason) = (verdict, reason);
        }
    }
}

impl fmt::Display for Explanation {
    /// A line for each path.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, candidate) in self.candidates.iter().enumerate() {
            let Candidate { path, verdict, reason } = candidate;
            let end = if i + 1 < self.candidates.len() { "\n" } else { "" };
            match reason.is_empty() {
                true => write!(f, "{path:<9} {verdict}{end}")?,
                false => write!(f, "{path:<9} {verdict:<10}  {reason}{end}")?,
            }
        }
        Ok(())
    }
}
