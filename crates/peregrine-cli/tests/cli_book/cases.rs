//! What is run and shown: a case for each part of the book, with the command lines of each.
//!
//! A new verb takes a new entry of [`CASES`], and nothing else.

use super::world::{World, leave_something_dead, nothing};

/// A part of the book.
pub(crate) struct Case {
    pub(crate) title: &'static str,
    pub(crate) text: &'static str,
    pub(crate) steps: &'static [Step],
}

/// One command line. `ADDRESS` in it stands for the export `files` by each path in turn.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    /// What stands behind `peregrine`.
    pub(crate) line: &'static str,
    /// The exit code.
    pub(crate) code: i32,
    /// In which forms it is run.
    pub(crate) forms: &'static [Form],
    /// In which it is shown; beyond the first path only for people.
    pub(crate) shown: &'static [Form],
    /// Ctrl-C is typed when this is on the screen, or when the first line has come through a pipe.
    pub(crate) until: &'static str,
    /// What is done before.
    pub(crate) before: fn(&World),
    /// Whether the document must show the very same; otherwise it differs from machine to machine.
    pub(crate) held: bool,
    /// Lines that are shown of it.
    pub(crate) lines: usize,
    /// Columns of the terminal.
    pub(crate) columns: u16,
}

/// How it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Human,
    Json,
    Ndjson,
}

use Form::{Human, Json, Ndjson};

impl Form {
    /// As it is asked for.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Human => "human",
            Self::Json => "json",
            Self::Ndjson => "ndjson",
        }
    }
}

impl Step {
    /// Whether the document shows this.
    pub(crate) fn shows(&self, form: Form, path: &str) -> bool {
        self.shown.contains(&form) && (form == Human || path == "local")
    }
}

/// What most steps have.
const STEP: Step = Step {
    line: "",
    code: 0,
    forms: &[Human, Json, Ndjson],
    shown: &[Human],
    until: "",
    before: nothing,
    held: true,
    lines: usize::MAX,
    columns: 100,
};

/// What is to be read by programs also when it is text is not folded.
const SCRIPT: Step = Step { columns: 1000, ..STEP };

pub(crate) static CASES: &[Case] = &[
    Case {
        title: "serve",
        text: "Exports a directory's files under a name, until it is stopped: Ctrl-C, or SIGTERM, after \
               which it exits with 0. `--listen` lets it be called over networks, too.",
        steps: &[
            Step {
                line: "serve photos",
                code: 130,
                shown: &[Human, Json],
                until: "Ctrl-C",
                ..STEP
            },
            Step {
                line: "serve photos --name archive --listen 127.0.0.1:0",
                code: 130,
                until: "and at udp:archive@127.0.0.1:",
                ..STEP
            },
        ],
    },
    Case {
        title: "list",
        text: "The names that are exported on this machine. A name is *alive*, *silent* (its server does not \
               answer), *dead* (its server has ended; `clean` removes what is left) or *hidden* (another \
               directory, which clients search first, has the name). Where a table does not fit it \
               becomes records, as here in a terminal of 40 columns.",
        steps: &[
            Step { line: "list", shown: &[Human, Json, Ndjson], ..STEP },
            Step { line: "list", columns: 40, forms: &[Human], ..STEP },
            Step { line: "list ADDRESS", ..STEP },
        ],
    },
    Case {
        title: "describe",
        text: "The interface of an export, as its server tells it: the trait that it was written against. \
               `--format json` has the same for programs; both are read back, here and by `call`, with \
               `--interface FILE`. `--format c` prints a header for a program in C ([PORTING.md](PORTING.md)).",
        steps: &[
            Step { line: "describe ADDRESS", shown: &[Human, Json], ..STEP },
            Step {
                line: "describe files --format c",
                forms: &[Human],
                lines: 6,
                columns: 200,
                ..STEP
            },
        ],
    },
    Case {
        title: "call",
        text: "Calls any procedure of any server: what it says of its interface is all that is needed. Arguments \
               are words (`path=hosts`), JSON (`sizes:='[1, 2]'`, or all of them in an object or an array), \
               files (`data=@photo.jpg`, `@arguments.json`) or standard input (`@-`); for a buffer that comes \
               back, how many elements there is room for (`into=64K`). An option that is left out is none; \
               every other parameter is required. Values in JSON look as serde would have them. What comes back \
               in buffers is shown as text or as digits (`--bytes`), or written to files as it is (`--out \
               NAME=FILE`).",
        steps: &[
            Step { line: "call ADDRESS read path=hello offset=0", shown: &[Human, Json], ..STEP },
            Step { line: "call files write path=note offset=0 bytes=words", code: 1, ..STEP },
            Step { line: "call files read path=hello offset=0 into=3 --bytes hex", ..STEP },
            Step {
                line: "call files read path=hello offset=0 --out into=photos/copy",
                shown: &[Human, Json],
                ..STEP
            },
            Step { line: "call ADDRESS size path=nowhere", code: 1, shown: &[Human, Json], ..STEP },
            Step { line: "call files siez path=hello", code: 2, ..STEP },
            Step { line: "call files read path=hello into=3", code: 2, ..STEP },
            Step { line: "call files size path:=7", code: 2, shown: &[Human, Json], ..STEP },
            Step { line: "call fiels size path=hello", code: 3, ..STEP },
        ],
    },
    Case {
        title: "explain",
        text: "Which path a client would take, and why none of the others.",
        steps: &[
            Step { line: "explain ADDRESS", shown: &[Human, Json], ..STEP },
            Step { line: "explain fiels", code: 3, ..STEP },
        ],
    },
    Case {
        title: "ping",
        text: "Calls the procedure that every export has and that does nothing. As `ndjson` there is a line each \
               second (`\"row\": \"interval\"`), and a last one of all calls. Ctrl-C ends it with what was \
               measured until then.",
        steps: &[
            Step { line: "ping ADDRESS -c 100", shown: &[Human, Json], ..STEP },
            Step { line: "ping files -c 100 --wait block", shown: &[Ndjson], ..STEP },
        ],
    },
    Case {
        title: "stat",
        text: "Live counters of a running server, its exports, sessions and bindings, read from pages that it shares: \
               asking costs it nothing. `--watch` shows one interval after the other, in place on a terminal (`q` \
               or Ctrl-C ends it). Over a network a server tells what it does not keep to itself.",
        steps: &[
            Step {
                line: "stat ADDRESS --interval 100ms",
                shown: &[Human, Json],
                held: false,
                ..STEP
            },
            Step {
                line: "stat files --interval 50ms --count 2",
                shown: &[Ndjson],
                lines: 2,
                held: false,
                ..STEP
            },
        ],
    },
    Case {
        title: "copy",
        text: "Fetches a file from a server of `serve`. A copy has its name when it is whole; one that is \
               interrupted leaves nothing.",
        steps: &[
            Step { line: "copy ADDRESS/hello copied", shown: &[Human, Json], ..STEP },
            Step { line: "copy files/none copied", code: 1, ..STEP },
        ],
    },
    Case {
        title: "demo",
        text: "Two processes, a file, every kind of parameter, and round trips beside this machine's limit. It makes processes and files of its own, and removes \
               them, also when it is interrupted. `peregrine` alone does the same.",
        steps: &[Step { line: "demo --quick", forms: &[Human], held: false, ..STEP }],
    },
    Case {
        title: "doctor",
        text: "What this machine allows, what that costs a call, and what to do about it, each as *good*, *slow* \
               or *missing*. Some of it is measured, and calls are made over a link of its own; `--quick` \
               leaves that out. It exits with 0 whatever it finds. As `ndjson` there is a line for each finding.",
        steps: &[
            Step { line: "doctor", forms: &[Human], held: false, ..STEP },
            Step { line: "doctor --quick", shown: &[Ndjson], lines: 2, held: false, ..STEP },
        ],
    },
    Case {
        title: "clean",
        text: "Removes what dead servers have left in the runtime directories. What is not surely dead stays: \
               a name goes only if its lock can be had and nobody listens at its socket, and a server that is \
               just starting loses nothing.",
        steps: &[
            Step {
                line: "clean --dry-run",
                before: leave_something_dead,
                shown: &[Human, Json],
                ..STEP
            },
            Step { line: "clean", before: leave_something_dead, ..STEP },
        ],
    },
    Case {
        title: "completions",
        text: "What makes a shell complete verbs, options and the names of exports that are alive. For bash, a line \
               of `~/.bashrc`: `source <(peregrine completions bash)`; `peregrine completions --help` says \
               it of the others.",
        steps: &[
            Step { line: "completions bash", shown: &[], ..SCRIPT },
            Step { line: "completions elvish", shown: &[], ..SCRIPT },
            Step { line: "completions fish", ..SCRIPT },
            Step { line: "completions powershell", shown: &[], ..SCRIPT },
            Step { line: "completions zsh", shown: &[], ..SCRIPT },
        ],
    },
    Case {
        title: "man",
        text: "The manual's page of the command; with `--dir` a page of it and one of each verb, as files.",
        steps: &[
            Step { line: "man", lines: 6, held: false, ..SCRIPT },
            Step { line: "man --dir pages", ..STEP },
        ],
    },
    Case {
        title: "When it fails",
        text: "What is wrong, why, and what to do; what was perhaps meant. As JSON, a failure has always the same \
               members: `kind`, `what`, `executed` (`\"no\"`, `\"maybe\"` or `\"yes\"`), `address`, `phase`, `causes`, \
               `advice` and `suggestions`; where something was measured before it failed, or is known \
               beside it, that stands beside `error` in the same object.",
        steps: &[
            Step { line: "ping fiels", code: 3, shown: &[Human, Json], ..STEP },
            Step { line: "ping udq:files", code: 3, ..STEP },
            Step { line: "ping tcp:files@127.0.0.1:1", code: 3, ..STEP },
            Step { line: "serve flies", code: 3, ..STEP },
            Step { line: "pnig files", code: 2, shown: &[Human, Json], ..STEP },
            Step { line: "ping files --wait nap", code: 2, ..STEP },
        ],
    },
];
