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
/// let [local, ..] = explanation.rungs();
/// assert_eq!((local.path, local.verdict), (PathKind::Local, Verdict::Failed));
/// assert!(local.reason.contains("no such export"));
/// println!("{explanation}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    pub(super) address: String,
    pub(super) rungs: [Rung; 4],
}

/// One path, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rung {
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
pub(super) const LADDER: [PathKind; 4] =
    [PathKind::Local, PathKind::Ethernet, PathKind::Udp, PathKind::Tcp];

impl Explanation {
    /// All paths with the same verdict.
    pub(crate) fn all(address: &str, verdict: Verdict, reason: &str) -> Self {
        let rungs = LADDER.map(|path| Rung { path, verdict, reason: reason.to_owned() });
        Self { address: address.to_owned(), rungs }
    }

    /// The address that was bound, as it was written.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// All four: local, ethernet, udp, tcp.
    pub const fn rungs(&self) -> &[Rung; 4] {
        &self.rungs
    }

    /// The path that was chosen; `None` if none works, or if calls leave no process.
    pub fn chosen(&self) -> Option<PathKind> {
        let mut chosen = self.rungs.iter().filter(|rung| rung.verdict == Verdict::Chosen);
        chosen.next().map(|rung| rung.path)
    }

    /// The chosen path and what carries its calls, in one line.
    pub fn summary(&self) -> String {
        let mut chosen = self.rungs.iter().filter(|rung| rung.verdict == Verdict::Chosen);
        match chosen.next() {
            None => "no path".to_owned(),
            Some(Rung { path, reason, .. }) if reason.is_empty() => path.to_string(),
            Some(Rung { path, reason, .. }) => format!("{path}: {reason}"),
        }
    }

    pub(super) fn set(&mut self, path: PathKind, verdict: Verdict, reason: String) {
        if let Some(rung) = self.rungs.iter_mut().find(|rung| rung.path == path) {
            (rung.verdict, rung.reason) = (verdict, reason);
        }
    }
}

impl fmt::Display for Explanation {
    /// A line for each path.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, rung) in self.rungs.iter().enumerate() {
            let Rung { path, verdict, reason } = rung;
            let end = if i + 1 < self.rungs.len() { "\n" } else { "" };
            match reason.is_empty() {
                true => write!(f, "{path:<9} {verdict}{end}")?,
                false => write!(f, "{path:<9} {verdict:<10}  {reason}{end}")?,
            }
        }
        Ok(())
    }
}
