//! Makes the document `docs/FAILURES.md`. It has a section for each case of the failure matrix, with a line
//! for each path.

use core::fmt::Write as _;

use peregrine::{CallError, Executed};

use super::cases::{Case, Must};
use super::client::Form;
use super::world::Way;

/// The observed outcome of a case on one path.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    /// The failure cannot happen on this path.
    None,
    /// This machine cannot cause the failure.
    Skipped,
    Returned,
    Failed {
        executed: Executed,
        kind: String,
        text: String,
    },
}

/// A case, and its outcome on each path.
pub(crate) struct Row {
    case: &'static Case,
    cells: Vec<Cell>,
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

    /// Returns the outcome. If the text of the outcome contains one of `texts`, that part is
    /// replaced by all of `texts`, because different runs report different texts.
    pub(crate) fn one_of<const N: usize>(self, texts: [&str; N]) -> Self {
        match self {
            Self::Failed { executed, kind, text } => {
                Self::Failed { executed, kind, text: either(text, texts) }
            }
            other => other,
        }
    }

    /// Returns whether the call was executed, and the kind of its error. `None` if the call has returned, or
    /// if the failure did not happen on this path.
    fn outcome(&self) -> Option<(Executed, &str)> {
        match self {
            Self::Failed { executed, kind, .. } => Some((*executed, kind)),
            _ => None,
        }
    }

    /// Returns the outcome's line of the table, or `None` if the failure did not happen on this path.
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

/// Returns a text without the parts that differ between runs: numbers become `N`, and addresses, paths
/// and the names of interfaces become placeholders.
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
    // Which text is reported depends on ICMP messages. The kernel limits their number per second.
    let deaths =
        ["the server does not answer any more", "no server listens any more where the server was"];
    either(plain, deaths).replace('|', "/")
}

/// Returns `text`. If it contains one of `texts`, that part is replaced by all of `texts`.
fn either<const N: usize>(text: String, texts: [&str; N]) -> String {
    match texts.into_iter().find(|one| text.contains(one)) {
        Some(one) => text.replace(one, &texts.join(", or: ")),
        None => text,
    }
}

impl Row {
    /// Makes a row. The outcomes are in the order of [`Way::ALL`].
    pub(crate) const fn of(case: &'static Case, cells: Vec<Cell>) -> Self {
        Self { case, cells }
    }

    fn seen(&self) -> impl Iterator<Item = (Way, &Cell)> {
        Way::ALL.into_iter().zip(&self.cells)
    }

    /// Returns the first line of the row's section.
    pub(crate) fn heading(&self) -> String {
        format!("\n## {}\n", self.case.title)
    }

    /// Returns the lines of the row's table.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.seen().filter_map(|(way, cell)| cell.line(way)).collect()
    }

    /// Returns the outcomes that differ from the required ones.
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

impl Row {
    /// Returns the outcomes that differ from those of the same case with another form of calls.
    pub(crate) fn differences(&self, other: &Self, form: Form) -> Vec<String> {
        let both = self.seen().zip(&other.cells);
        // The text of an error over an encrypted path may name other steps.
        let differ = both.filter(|((way, cell), other)| match form {
            Form::Sealed => cell.outcome() != other.outcome(),
            _ => cell.line(*way) != other.line(*way),
        });
        differ
            .map(|((way, cell), other)| {
                format!("{}, {way}: is {cell:?}, with {form} calls {other:?}", self.case.title)
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
# Failures: the outcome of a call, on every path

`crates/peregrine/tests/failure_matrix` produces each line of these tables. It kills, halts and
restarts real processes, and cuts networks between namespaces. It fails if a line is no longer true.
Each call is made three times: by a blocking client, by an async one, and encrypted. All get the
same outcome. The text of an error of an encrypted call may differ.
The path `ethernet` is raw Ethernet. In the texts, N is a number, ADDRESS is the address that was
bound, and DIRECTORY is a runtime directory.

A failed call is *not executed* only if that is certain. Such a call may be made again. Every other
failed call *may have executed*: if it is made again, it may be executed twice. Each error says what
its kind means and what to do.

Unless a part says otherwise, the client binds with the default options. So a binding whose server
has gone binds again, and repeats a call that was not executed
([`Rebind`](../crates/peregrine/src/binding/rebind.rs)). If the server is killed and no other server
takes its place, binding again fails too. The error then gives both reasons, the first one first.

ONC RPC, Courier and their servers promise less: see
[the last part](#onc-rpc-where-at-most-once-does-not-hold) for ONC RPC, and
[PROTOCOL.md](PROTOCOL.md), part 11, for Courier. [One part](#five-servers-under-one-name) is about
services with many servers: what calls notice when servers or the directory fail.
";

/// The part about services with many servers. The result of a run follows it.
const CLUSTER: &str = "
## Five servers under one name

The table shows what the calls of a service with many servers notice. `cluster chaos` of
[examples/cluster](../examples/cluster/README.md) printed it on a virtual machine with two
processors, on which nothing else ran. The test `examples/cluster/tests/chaos.rs` makes shorter runs
and checks that no value is lost; times differ between machines, and no test checks them.

Five servers are registered in three members of etcd. Each server and each member has a network
namespace of its own. Two clients make 200 calls a second each, at fixed moments. The *store* puts
and gets values, each at three of the servers. The *pool* is a `StorePool` with
`Balance::LeastLoaded` and `Rebind::Idempotent`. A row has the calls that ended in its window;
`during` lasts until all is as before the fault. In the longest gap, no call succeeded. It is about
5 ms if nothing happens.

";

/// Returns the result of the run that is kept beside the example.
fn result_of_cluster() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/cluster/result.md");
    std::fs::read_to_string(path).expect("examples/cluster/result.md")
}

const AFTER_CLUSTER: &str = "
While a server is silent, a get of the store that asks it first waits 50 ms and then asks the third
place. That is the 53 ms. A call of the pool that has chosen that server fails at its limit of one
second. It was not executed: the client first asks a server that has been silent whether it is
there, and sends the call only then. The pool sends few calls to this server until it answers.
";

/// The end of the document.
const TAIL: &str = "
## ONC RPC: where at most once does not hold

Peregrine's own protocols run a call at most once, whatever happens. ONC RPC has nothing by which a
server could always recognize a copy of a call. Over UDP the client sends a call again until a
reply arrives, and the server's cache of replies recognizes the copies as long as it remembers
them. So a procedure may run twice in these cases:

* **The server was restarted** between two copies. Its cache is empty. The same is true of a server
  of another author that has no cache: libtirpc has none unless the server asks for it.
* **The copy is late.** The cache of a Peregrine server remembers a call for 120 seconds after its
  end, and fewer seconds if it is full (16,384 calls, 16 MiB of replies; a quarter for each host).
* **The copy looks like another call**: it comes from another port, with another credential or
  another number, or to another UDP socket of the server. That happens if the client binds again,
  or is restarted and sends the call again.

The errors say what is known. A client of Peregrine reports a failed call as *not executed* only in
these cases:

* The server refused the call before it ran (no such program, version or procedure, arguments that
  it cannot read, a credential that it does not accept), and the client had sent the call once.
* The call was never sent.

Every other failure *may have executed*: no reply in time, the end of the connection, `SYSTEM_ERR`,
and each refusal of a call that was sent more than once, because an earlier copy may have run. Over
TCP a client of Peregrine sends each call once, and does not repeat it on another connection. So
over TCP a call of a Peregrine client runs at most once.

What to do: make procedures idempotent where ONC RPC is used, as NFS does. Use TCP for the others.
Or serve the same object over one of Peregrine's own paths, which need no such care.
[PROTOCOL.md](PROTOCOL.md), part 10, has the rules in detail.
";

/// Returns a paragraph in lines of at most 100 characters.
fn folded(text: &str) -> String {
    let (mut folded, mut column) = (String::new(), 0);
    for word in text.split_whitespace() {
        let letters = word.chars().count();
        if column == 0 {
            column = letters;
        } else if column + 1 + letters <= 100 {
            folded.push(' ');
            column += 1 + letters;
        } else {
            folded.push('\n');
            column = letters;
        }
        folded.push_str(word);
    }
    folded
}

/// Returns the whole document.
pub(crate) fn whole(rows: &[Row]) -> String {
    let mut text = HEAD.to_owned();
    for row in rows {
        let _ = write!(text, "{}\n{}\n", row.heading(), folded(row.case.text));
        let _ =
            write!(text, "\n| path | the call | kind | text of the error |\n|---|---|---|---|\n");
        row.lines().iter().for_each(|line| {
            let _ = writeln!(text, "{line}");
        });
        let none = row.seen().filter(|(_, cell)| matches!(cell, Cell::None));
        let none: Vec<String> = none.map(|(way, _)| way.to_string()).collect();
        if !none.is_empty() {
            let _ = writeln!(text, "\nThis cannot happen on the path {}.", none.join(", "));
        }
    }
    text + CLUSTER + &result_of_cluster() + AFTER_CLUSTER + TAIL
}
