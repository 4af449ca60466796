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

impl Explanation {
    /// These paths, the fastest first, with the same verdict.
    pub(super) fn all(
        address: &str,
        paths: impl Iterator<Item = PathKind>,
        verdict: Verdict,
        reason: &str,
    ) -> Self {
        let candidate = |path| Candidate { path, verdict, reason: reason.to_owned() };
        Self { address: address.to_owned(), candidates: paths.map(candidate).collect() }
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

    /// Notes that `path` was chosen. Slower ones that were to be tried are not needed.
    pub(super) fn choose(&mut self, path: PathKind, is_to_be_tried: impl Fn(PathKind) -> bool) {
        self.set(path, Verdict::Chosen, String::new());
        let slower = self.candidates.iter_mut().skip_while(|one| one.path != path).skip(1);
        for candidate in slower.filter(|one| is_to_be_tried(one.path)) {
            (candidate.verdict, candidate.reason) = (Verdict::NotNeeded, String::new());
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
