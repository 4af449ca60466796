//! Lists what the experiments measure: the cases (kinds of call), the placements of the two processes on
//! processors, the ways to wait, and the limits. A *limit* is what a case is compared with: a minimal program
//! without Peregrine, a system call, or Peregrine itself under other conditions.

use clap::ValueEnum;
use clap::builder::PossibleValuesParser;
use peregrine::Wait;

/// One kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    /// The name of the case in every row.
    pub(crate) name: &'static str,
    /// The procedure that is called.
    pub(crate) procedure: Procedure,
    /// The interface to which the procedure belongs.
    pub(crate) size: Size,
    /// The number of bytes of arguments.
    pub(crate) in_bytes: usize,
    /// The number of bytes of results.
    pub(crate) out_bytes: usize,
}

/// The procedures of the interfaces that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Procedure {
    /// Does nothing.
    Null,
    /// Takes two numbers, and returns one.
    Add,
    /// Takes bytes.
    Take,
    /// Takes bytes, and returns them.
    Both,
    /// Returns bytes.
    Give,
    /// Takes bytes that are not copied for the procedure.
    Lend,
}

/// The interfaces that are measured. Each interface has a different largest size of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// Up to 3000 bytes.
    Small,
    /// Up to 48,000 bytes.
    Middle,
    /// Up to 1 MiB.
    Large,
    /// Up to 16 MiB: across networks only.
    Huge,
}

impl Size {
    /// Returns the name of the size, which is a part of the name of an export.
    const fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Middle => "middle",
            Self::Large => "large",
            Self::Huge => "huge",
        }
    }
}

/// The case in which a method of the object is called directly, without any stub.
pub(crate) const LOCAL_CALL: &str = "local-call";

/// The number of bytes of data of a large call.
pub(crate) const LARGE: usize = 1 << 20;
/// The number of bytes of data of the largest call.
pub(crate) const HUGE: usize = 16 << 20;

/// The cases of calls to another process.
pub(crate) const CASES: [Case; 16] = {
    use Procedure::{Add, Both, Give, Lend, Null, Take};
    use Size::{Large, Middle, Small};
    [
        case("null", Null, Small, 0, 0),
        case("add", Add, Small, 8, 4),
        case("in-4", Take, Small, 4, 0),
        case("in-200", Take, Small, 200, 0),
        case("inout-200", Both, Small, 200, 200),
        case("in-1024", Take, Small, 1024, 0),
        case("inout-1024", Both, Small, 1024, 1024),
        case("in-1440", Take, Small, 1440, 0),
        case("out-1440", Give, Small, 0, 1440),
        case("in-3000", Take, Small, 3000, 0),
        case("inout-3000", Both, Small, 3000, 3000),
        case("in-48000", Take, Middle, 48_000, 0),
        case("inout-48000", Both, Middle, 48_000, 48_000),
        case("in-1m", Take, Large, LARGE, 0),
        case("in-1m-lent", Lend, Large, LARGE, 0),
        case("out-1m", Give, Large, 0, LARGE),
    ]
};

/// The case of a call with 16 MiB of data across a network.
pub(crate) const IN_16M: Case = case("in-16m", Procedure::Take, Size::Huge, HUGE, 0);

/// The cases that are measured on the in-process path, too.
pub(crate) const IN_PROCESS: [&str; 2] = ["null", "in-1024"];

const fn case(
    name: &'static str,
    procedure: Procedure,
    size: Size,
    in_bytes: usize,
    out_bytes: usize,
) -> Case {
    Case { name, procedure, size, in_bytes, out_bytes }
}

impl Case {
    /// Returns the case with the name `name`.
    pub(crate) fn named(name: &str) -> Option<Self> {
        CASES.into_iter().find(|case| case.name == name)
    }
}

/// Returns the names of cases that options accept.
pub(crate) fn names() -> PossibleValuesParser {
    let calls = CASES.iter().map(|case| case.name);
    let others = [LOCAL_CALL, SYSTEM_CALL, IN_16M.name].into_iter().chain(MANY);
    let swapped = crate::swapped::CASES;
    PossibleValuesParser::new(
        others
            .chain(crate::network::other_cases())
            .chain(calls)
            .chain(swapped)
            .chain(crate::bind::CASES)
            .chain(crate::concurrent::CASES)
            .chain(crate::secure::CASES)
            .chain(crate::cluster::CASES)
            .chain(crate::growth::CALLS)
            .chain([crate::growth::BIND, crate::foreign::ARRAY])
            .chain([crate::foreign::bridge::BRIDGE_NULL, crate::foreign::bridge::HTTP_NULL]),
    )
}

/// Null calls by many threads of one process, through one binding.
pub(crate) const THREADS: &str = "null-threads";
/// Null calls by many processes.
pub(crate) const PROCESSES: &str = "null-processes";
/// Null calls through many bindings of one process, in rotation.
pub(crate) const TURN: &str = "null-turn";
/// As [`TURN`], but the bindings are spread over several exports.
pub(crate) const TURN_SPREAD: &str = "null-turn-spread";
/// Null calls through eight of many bindings of one process, while the other bindings are idle.
pub(crate) const ACTIVE: &str = "null-active";
/// As [`ACTIVE`], but the bindings are spread over several exports.
pub(crate) const ACTIVE_SPREAD: &str = "null-active-spread";
/// Null calls by many processes. One process at a time makes a series of calls.
pub(crate) const EACH: &str = "null-each";
/// The first call of each series in [`EACH`].
pub(crate) const EACH_FIRST: &str = "null-each-first";

/// The cases with many callers or many bindings.
pub(crate) const MANY: [&str; 8] =
    [THREADS, PROCESSES, TURN, TURN_SPREAD, ACTIVE, ACTIVE_SPREAD, EACH, EACH_FIRST];

/// The numbers of concurrent callers that are measured.
pub(crate) const CALLERS: [u32; 4] = [1, 2, 4, 8];

/// The numbers of bindings that are measured.
pub(crate) const BINDINGS: [u32; 4] = [1, 10, 100, 1000];

/// The case in which a system call is made instead of a call of Peregrine.
pub(crate) const SYSTEM_CALL: &str = "system-call";

/// Where the two processes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Placement {
    /// Each on a separate processor
    TwoCores,
    /// Both on the same processor
    OneCore,
    /// Where the scheduler places them
    Free,
}

impl Placement {
    /// All placements.
    pub(crate) const ALL: [Self; 3] = [Self::TwoCores, Self::OneCore, Self::Free];

    /// Returns the name of the placement, as rows show it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::TwoCores => "two-cores",
            Self::OneCore => "one-core",
            Self::Free => "free",
        }
    }

    /// Returns the processors of the parent and the child, or `None` if `allowed` contains too few
    /// processors. If the scheduler chooses the processor of a process, the entry of this process is `None`.
    pub(crate) fn processors(self, allowed: &[u32]) -> Option<[Option<u32>; 2]> {
        let (first, second) = (allowed.first().copied(), allowed.get(1).copied());
        match self {
            Self::TwoCores => second.map(|_| [first, second]),
            Self::OneCore => first.map(|_| [first, first]),
            Self::Free => Some([None, None]),
        }
    }
}

/// How both sides wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Waiting {
    /// Polling memory all the time
    Spin,
    /// Blocked in the kernel
    Block,
    /// Spin first, then block
    Adaptive,
}

impl Waiting {
    /// All ways to wait.
    pub(crate) const ALL: [Self; 3] = [Self::Spin, Self::Block, Self::Adaptive];

    /// Returns the name of this way to wait, as rows show it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Block => "block",
            Self::Adaptive => "adaptive",
        }
    }

    /// Returns the library's option for this way to wait.
    pub(crate) const fn wait(self) -> Wait {
        match self {
            Self::Spin => Wait::Spin,
            Self::Block => Wait::Block,
            Self::Adaptive => Wait::Adaptive,
        }
    }
}

/// The beginning of the names of the exports with one-way calls.
pub(crate) const EVENTS: &str = "events";
/// The beginning of the names of exports with streams.
pub(crate) const STREAMS: &str = "streams";

/// The name of the export that the experiment `account` measures.
pub(crate) const ACCOUNTED: &str = "spin-accounted";
/// The name of the export with the layer that makes spans of calls.
pub(crate) const TRACED: &str = "spin-traced";

/// The number of exports of one server over which bindings are spread.
pub(crate) const SPREAD: usize = 8;

/// Returns the name of one of the exports over which bindings are spread. The server of these
/// exports waits adaptively.
pub(crate) fn spread_name(number: usize) -> String {
    format!("spread-small-{}", number % SPREAD)
}

/// Returns the name of the export of the interface `size`. The export belongs to the server that waits in the
/// way `wait`.
pub(crate) fn export_name(wait: Waiting, size: Size) -> String {
    format!("{}-{}", wait.name(), size.name())
}

/// A kind of limit with which Peregrine is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Two spinning processes pass cache lines to each other, and the receiver copies the payload out of
    /// these lines.
    Lines,
    /// For large payloads: the sender copies the payload into shared memory, and the receiver reads one word
    /// of each cache line.
    CopyThenRead,
    /// A futex wait and a futex wake-up in each direction.
    Futex,
    /// Each side yields the processor until the other side has changed a word.
    Yield,
    /// Peregrine's calls with both sides spinning.
    OwnSpin,
    /// Peregrine's calls with both sides blocking.
    OwnBlock,
    /// Peregrine's calls through the only binding of a server.
    OneBinding,
    /// A system call that does nothing.
    SystemCall,
}

impl Limit {
    /// Returns the name of the limit, as rows show it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Lines => "lines",
            Self::CopyThenRead => "copy-then-read",
            Self::Futex => "futex",
            Self::Yield => "yield",
            Self::OwnSpin => "spin",
            Self::OwnBlock => "block",
            Self::OneBinding => "one-binding",
            Self::SystemCall => "syscall",
        }
    }

    /// Returns the limit with which a case is compared if both processes spin.
    pub(crate) fn spinning(case: Case) -> Self {
        match case.size {
            Size::Small => Self::Lines,
            Size::Middle | Size::Large | Size::Huge => Self::CopyThenRead,
        }
    }

    /// Returns all limits with which a case is compared. The results contain one row for each limit.
    pub(crate) fn of(case: Case, wait: Waiting, placement: Placement) -> Vec<Self> {
        match (placement, wait) {
            (Placement::OneCore, _) => vec![Self::Futex, Self::Yield],
            (_, Waiting::Block) => vec![Self::Futex],
            (Placement::TwoCores, Waiting::Adaptive) if case.procedure == Procedure::Null => {
                vec![Self::spinning(case), Self::OwnSpin]
            }
            _ => vec![Self::spinning(case)],
        }
    }
}
