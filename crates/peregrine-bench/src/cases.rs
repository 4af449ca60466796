//! What is measured: cases, placements, ways to wait, and the limit that each is held against.

use clap::ValueEnum;
use clap::builder::PossibleValuesParser;
use peregrine::Wait;

/// One kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    /// As it stands in every row.
    pub(crate) name: &'static str,
    /// The procedure that is called.
    pub(crate) procedure: Procedure,
    /// The interface that it belongs to.
    pub(crate) size: Size,
    /// Bytes of arguments.
    pub(crate) in_bytes: usize,
    /// Bytes of results.
    pub(crate) out_bytes: usize,
}

/// The procedures of the interfaces that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Procedure {
    /// Nothing.
    Null,
    /// Two numbers in, one back.
    Add,
    /// Bytes in.
    Take,
    /// Bytes in and back.
    Both,
    /// Bytes out.
    Give,
    /// Bytes in that are not copied for the procedure.
    Lend,
}

/// The interfaces that are measured.
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
    /// As in the name of an export.
    const fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Middle => "middle",
            Self::Large => "large",
            Self::Huge => "huge",
        }
    }
}

/// The name of the object itself, called without any stub.
pub(crate) const LOCAL_CALL: &str = "local-call";

/// Bytes of a large call.
pub(crate) const LARGE: usize = 1 << 20;
/// Those of the largest.
pub(crate) const HUGE: usize = 16 << 20;

/// Calls to another process.
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

/// Much data across a network.
pub(crate) const IN_16M: Case = case("in-16m", Procedure::Take, Size::Huge, HUGE, 0);

/// Those that are measured on the in-process path too.
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
    /// The case of that name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        CASES.into_iter().find(|case| case.name == name)
    }
}

/// What may be asked for by name.
pub(crate) fn names() -> PossibleValuesParser {
    let calls = CASES.iter().map(|case| case.name);
    let others = [LOCAL_CALL, SYSTEM_CALL, IN_16M.name].into_iter().chain(MANY);
    let swapped = crate::swapped::CASES;
    PossibleValuesParser::new(
        others
            .chain(crate::network::other_cases())
            .chain(calls)
            .chain(swapped)
            .chain(crate::bind::CASES),
    )
}

/// A null call by many threads of one process, through one binding.
pub(crate) const THREADS: &str = "null-threads";
/// A null call by many processes.
pub(crate) const PROCESSES: &str = "null-processes";
/// A null call through each of many bindings of one process in turn; the bindings spread over
/// several exports.
pub(crate) const TURN: &str = "null-turn";
pub(crate) const TURN_SPREAD: &str = "null-turn-spread";
/// The same through eight of them, while the others are idle.
pub(crate) const ACTIVE: &str = "null-active";
pub(crate) const ACTIVE_SPREAD: &str = "null-active-spread";
/// A null call by one of many processes at a time: of some in a row, and the first of those.
pub(crate) const EACH: &str = "null-each";
pub(crate) const EACH_FIRST: &str = "null-each-first";

/// What there are many callers of, or many bindings.
pub(crate) const MANY: [&str; 8] =
    [THREADS, PROCESSES, TURN, TURN_SPREAD, ACTIVE, ACTIVE_SPREAD, EACH, EACH_FIRST];

/// How many call at one time.
pub(crate) const CALLERS: [u32; 4] = [1, 2, 4, 8];

/// How many bindings there are.
pub(crate) const BINDINGS: [u32; 4] = [1, 10, 100, 1000];

/// The name of a system call as a case of its own.
pub(crate) const SYSTEM_CALL: &str = "system-call";

/// Where the two processes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Placement {
    /// Each on a processor of its own
    TwoCores,
    /// Both on the same processor
    OneCore,
    /// Where the kernel puts them
    Free,
}

impl Placement {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::TwoCores, Self::OneCore, Self::Free];

    /// As it stands in every row.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::TwoCores => "two-cores",
            Self::OneCore => "one-core",
            Self::Free => "free",
        }
    }

    /// The processors of parent and child; `None` if the machine has too few.
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
    /// Looking at memory all the time
    Spin,
    /// Asleep in the kernel
    Block,
    /// Spin first, then block
    Adaptive,
}

impl Waiting {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Spin, Self::Block, Self::Adaptive];

    /// As it stands in every row.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Block => "block",
            Self::Adaptive => "adaptive",
        }
    }

    /// As the library takes it.
    pub(crate) const fn wait(self) -> Wait {
        match self {
            Self::Spin => Wait::Spin,
            Self::Block => Wait::Block,
            Self::Adaptive => Wait::Adaptive,
        }
    }
}

/// The export whose calls are accounted for.
pub(crate) const ACCOUNTED: &str = "spin-accounted";

/// How many exports of one server bindings are spread over.
pub(crate) const SPREAD: usize = 8;

/// One of those exports; their server waits adaptively.
pub(crate) fn spread_name(number: usize) -> String {
    format!("spread-small-{}", number % SPREAD)
}

/// The export of an interface whose server waits like that.
pub(crate) fn export_name(wait: Waiting, size: Size) -> String {
    format!("{}-{}", wait.name(), size.name())
}

/// What ours is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Cache lines that cross between two spinning processes, the payload copied out of them.
    Lines,
    /// The same for much data: copied in, one word of each line read in place.
    CopyThenRead,
    /// A futex wait and a futex wake-up each way.
    Futex,
    /// The processor given up until the word has changed.
    Yield,
    /// Our own calls with both sides spinning.
    OwnSpin,
    /// Our own calls with both sides asleep in between.
    OwnBlock,
    /// Our own calls through the only binding that there is.
    OneBinding,
    /// A system call that does nothing.
    SystemCall,
}

impl Limit {
    /// As it stands in every row.
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

    /// The limit of a case for two processes that spin.
    pub(crate) fn spinning(case: Case) -> Self {
        match case.size {
            Size::Small => Self::Lines,
            Size::Middle | Size::Large | Size::Huge => Self::CopyThenRead,
        }
    }

    /// All that a case is held against, each a row of its own.
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
