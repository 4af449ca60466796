//! The document: a part for each case, a line for each path.

use core::fmt::Write as _;

use peregrine::{CallError, Executed};

use super::cases::{Case, Must};
use super::world::Way;

/// What was seen.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    /// There is no such thing on this path.
    None,
    /// This machine cannot show it.
    Skipped,
    Returned,
    Failed {
        executed: Executed,
        kind: String,
        text: String,
    },
}

/// A case, and what was seen of it on each path.
pub(crate) struct Row {
    case: &'static Case,
    pub(crate) cells: Vec<Cell>,
}

impl Cell {
    pub(crate) fn of<T>(outcome: Result<T, CallError>) -> Self {
        match outcome {
            Ok(_) => Self::Returned,
            Err(error) => Self::Failed {
                executed: error.executed(),
                kind: format!("{:?}", error.kind()),
                text: plain(&error.chain()),
            },
        }
    }

    /// The line of the table, if there is one.
    fn line(&self, way: Way) -> Option<String> {
        Some(match self {
            Self::None | Self::Skipped => return None,
            Self::Returned => format!("| {way} | executed | | the result |"),
            Self::Failed { executed, kind, text } => {
                format!("| {way} | {executed} | `{kind}` | {text} |")
            }
        })
    }
}

/// A text without what differs from run to run: numbers of processes and times become `N`, addresses
/// and paths what they are.
pub(super) fn plain(text: &str) -> String {
    let mut plain = String::new();
    for word in text.split_inclusive(' ') {
        let (word, space) = word.strip_suffix(' ').map_or((word, ""), |word| (word, " "));
        let is_address = word.contains(super::world::PLACE) || word.contains("10.213.77.");
        let bare = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '/');
        if word.contains("/.tmp") || bare.starts_with("/tmp/") {
            plain.push_str(&word.replace(bare, "DIRECTORY"));
        } else if is_address || bare.contains("local:subject") {
            plain.push_str(&word.replace(bare, "ADDRESS"));
        } else if bare.starts_with("pra") || bare.starts_with("prb") {
            plain.push_str(&word.replace(bare, "INTERFACE"));
        } else if bare.split(':').count() > 2 && !bare.contains("::") {
            plain.push_str(&word.replace(bare, "HARDWARE"));
        } else if bare.chars().all(|c| c.is_ascii_digit()) && !bare.is_empty() {
            plain.push_str(&word.replace(bare, "N"));
        } else {
            plain.push_str(word);
        }
        plain.push_str(space);
    }
    // Which of the two it is depends on how many refusals the kernel lets out within a second.
    let deaths =
        ["the server does not answer any more", "nobody listens any more where the server was"];
    for death in deaths {
        if plain.contains(death) {
            return plain.replace(death, &deaths.join(", or: "));
        }
    }
    plain.replace('|', "/")
}

impl Row {
    pub(crate) const fn of(case: &'static Case) -> Self {
        Self { case, cells: Vec::new() }
    }

    fn seen(&self) -> impl Iterator<Item = (Way, &Cell)> {
        Way::ALL.into_iter().zip(&self.cells)
    }

    /// The line that its part begins with.
    pub(crate) fn heading(&self) -> String {
        format!("\n## {}\n", self.case.title)
    }

    /// The lines of its table.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.seen().filter_map(|(way, cell)| cell.line(way)).collect()
    }

    /// What is not as the case says that it must be.
    pub(crate) fn wrong(&self) -> Vec<String> {
        let musts = self.seen().zip(&self.case.must);
        let wrong = musts.filter(|((_, cell), must)| !must.holds(cell));
        wrong
            .map(|((way, cell), must)| {
                format!("{}, {way}: must be {must:?}, is {cell:?}", self.case.title)
            })
            .collect()
    }
}

impl Must {
    fn holds(&self, cell: &Cell) -> bool {
        match (self, cell) {
            (_, Cell::Skipped) | (Self::Nothing, Cell::None) | (Self::Return, Cell::Returned) => {
                true
            }
            (Self::Fail(executed, kind), Cell::Failed { executed: is, kind: of, .. }) => {
                executed == is && format!("{kind:?}") == *of
            }
            _ => false,
        }
    }
}

const HEAD: &str = "\
# Failures: what becomes of a call, on every path

Each line of the tables was seen by `crates/peregrine/tests/failure_matrix`, with real processes that were
killed, halted and started again, and networks of namespaces that were cut; the test fails if one is no
longer so. Raw Ethernet is `ethernet` here. In the texts N is a number, ADDRESS the address that was bound,
DIRECTORY a runtime directory.

*Not executed* is said only if it is certain: such a call may be made again. *May have executed* is said of
all others: a caller that makes one again may have it executed twice. What the kinds mean, and what to do
about each, is told by the error itself.

Unless a part says otherwise the client binds with the default options, so that a binding whose server has
gone is bound again, and a call repeated that was not executed ([`Rebind`](../crates/peregrine/src/binding/rebind.rs)).
A server that is killed without a successor is such a case where binding again does not help: the error
says why, behind what failed first.
";

/// The whole document.
pub(crate) fn whole(rows: &[Row]) -> String {
    let mut text = HEAD.to_owned();
    for row in rows {
        let _ = write!(text, "{}\n{}\n", row.heading(), row.case.text);
        let _ = write!(text, "\n| path | the call | kind | what is told |\n|---|---|---|---|\n");
        row.lines().iter().for_each(|line| {
            let _ = writeln!(text, "{line}");
        });
        let none = row.seen().filter(|(_, cell)| matches!(cell, Cell::None));
        let none: Vec<String> = none.map(|(way, _)| way.to_string()).collect();
        if !none.is_empty() {
            let _ = writeln!(text, "\nThere is no such thing on the path {}.", none.join(", "));
        }
    }
    text
}
