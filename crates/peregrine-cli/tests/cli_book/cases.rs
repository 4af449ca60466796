//! The sections of the document `docs/CLI.md`, with the command lines that each section shows.
//!
//! To document a new command, add an entry to [`CASES`]. Nothing else is needed.

use super::world::{
    World, leave_capture, leave_interfaces, leave_keys, leave_names, leave_no_keys,
    leave_onc_interfaces, leave_open_key, leave_something_dead, leave_trusted_keys, nothing,
};

/// A section of the document.
pub(crate) struct Case {
    pub(crate) title: &'static str,
    pub(crate) text: &'static str,
    pub(crate) steps: &'static [Step],
}

/// One command line, and how to run it. In the line, `ADDRESS` stands for the address of the export `files`
/// on each path.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    /// The arguments for `peregrine`.
    pub(crate) line: &'static str,
    /// The expected exit code.
    pub(crate) code: i32,
    /// The formats in which the command runs.
    pub(crate) forms: &'static [Form],
    /// The formats that the document shows. On paths other than `local`, the document shows only text.
    pub(crate) shown: &'static [Form],
    /// In a terminal, the test sends Ctrl-C when this text is on the screen. In a pipe, it sends Ctrl-C after
    /// the first line.
    pub(crate) until: &'static str,
    /// A function that runs before the command.
    pub(crate) before: fn(&World),
    /// Whether the document must show exactly this output. It is false if the output depends on the machine.
    pub(crate) held: bool,
    /// The maximum number of lines that the document shows.
    pub(crate) lines: usize,
    /// The number of columns of the terminal.
    pub(crate) columns: u16,
}

/// A format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Human,
    Json,
    Ndjson,
}

use Form::{Human, Json, Ndjson};

impl Form {
    /// Returns the value of `--format`.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Human => "human",
            Self::Json => "json",
            Self::Ndjson => "ndjson",
        }
    }
}

impl Step {
    /// Returns whether the document shows the output in this format on this path.
    pub(crate) fn shows(&self, form: Form, path: &str) -> bool {
        self.shown.contains(&form) && (form == Human || path == "local")
    }
}

/// The defaults of a step.
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

/// A step whose output is text for programs, which must not be folded.
const SCRIPT: Step = Step { columns: 1000, ..STEP };

pub(crate) static CASES: &[Case] = &[
    Case {
        title: "serve",
        text: "Exports the files of a directory under a name, until Ctrl-C or SIGTERM stops it. After SIGTERM, \
               the exit code is 0. With `--listen`, it can also be called over networks. At addresses that other \
               machines can reach (`--beyond-this-machine`), calls are encrypted, and only peers that are \
               trusted can call: `peregrine keys` makes the key of the server and says who is trusted. Clients \
               use `--identity`. With `--register`, the server registers in the directory of `--directory` or \
               `$PEREGRINE_DIRECTORY`, and `--advertise` says by which host other machines reach it. After \
               a signal, it withdraws before it refuses calls.",
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
            Step {
                line: "serve photos --name archive --listen tcp:0.0.0.0:0 --beyond-this-machine",
                code: 3,
                before: leave_no_keys,
                ..STEP
            },
            Step {
                line: "serve photos --name archive --listen tcp:127.0.0.1:0 --identity",
                code: 130,
                before: leave_keys,
                until: "that are trusted)",
                ..STEP
            },
            Step {
                line: "serve photos --name archive --listen tcp:127.0.0.1:0 --register --advertise \
                       fs1.example.org --directory file:names",
                code: 130,
                before: leave_names,
                until: "registered in",
                ..STEP
            },
            Step {
                line: "serve photos --name archive --listen tcp:127.0.0.1:0 --register",
                code: 3,
                ..STEP
            },
        ],
    },
    Case {
        title: "bridge",
        text: "Offers exports as JSON over HTTP, with a web page, until Ctrl-C or SIGTERM stops it: \
               `POST /files/size` with the body `{\"path\": \"hello\"}` calls the procedure `size` of `files`. \
               The servers need not run yet, and may be restarted.\n\n\
               With `--listen`, clients of other RPC systems call the exports, too, and with `--interface`, an \
               export can be a program of another system: `peregrine bridge users=onc+udp:HOST/100002.3 \
               --interface rusers.x --listen local:users`. [BRIDGE.md](BRIDGE.md) describes requests, answers, \
               numbers of programs, and limits.",
        steps: &[
            Step {
                line: "bridge files archive=files --http 127.0.0.1:0",
                code: 130,
                shown: &[Human, Json],
                until: "(not encrypted)",
                ..STEP
            },
            Step {
                line: "bridge files --listen tcp:127.0.0.1:0",
                code: 130,
                until: "user of this machine)",
                ..STEP
            },
            Step { line: "bridge files --http 192.0.2.7:8080", code: 3, ..STEP },
            Step {
                line: "bridge files --listen onc+tcp:127.0.0.1:0 --program photos=onc:536870912.1",
                code: 3,
                ..STEP
            },
        ],
    },
    Case {
        title: "rpcbind",
        text: "Tells clients of ONC RPC the ports of the programs that servers register, until Ctrl-C or SIGTERM \
               stops it. It is a small rpcbind for machines without one. Without `--listen`, it listens at port \
               111, for which it needs a permission.",
        steps: &[
            Step {
                line: "rpcbind --listen 127.0.0.1:0",
                code: 130,
                shown: &[Human, Json],
                until: "onc+tcp:",
                held: false,
                ..STEP
            },
            Step { line: "rpcbind --listen 192.0.2.7", code: 3, ..STEP },
        ],
    },
    Case {
        title: "list",
        text: "Lists the exports of this machine. A name is *alive*, *silent* (its server does not reply), *dead* \
               (its server has ended; `clean` removes its files) or *hidden* (clients find the name in \
               another directory first). If a table is too wide, each row becomes a record, as here in a \
               terminal with 40 columns. If a name has several servers in the directory, `list NAME` shows which \
               of them answer, and what each of them exports.",
        steps: &[
            Step { line: "list", shown: &[Human, Json, Ndjson], ..STEP },
            Step { line: "list", columns: 40, forms: &[Human], ..STEP },
            Step { line: "list ADDRESS", ..STEP },
            Step { line: "list files --directory file:names", before: leave_names, ..STEP },
        ],
    },
    Case {
        title: "names",
        text: "Lists the names of a directory with their servers. The directory is that of `--directory`, as \
               `file:PATH`, `hosts:PATH` or `etcd://HOST,HOST/PREFIX`, or else that of `$PEREGRINE_DIRECTORY`. \
               Without either, the names are those of the hosts files and of this machine. All commands find \
               the servers of names in the same directory. What the directory contains and cannot be used is a \
               note on standard error. So is the age of the names if the directory does not answer. `--watch` \
               follows the changes, in place on a terminal, until `q` or Ctrl-C. Otherwise, it prints a line \
               with `+` for each server that is new, and one with `-` for each that is gone. As JSON, it prints \
               an object for each state.",
        steps: &[
            Step {
                line: "names --directory file:names",
                before: leave_names,
                shown: &[Human, Json, Ndjson],
                ..STEP
            },
            Step { line: "names --directory file:nmaes", code: 3, ..STEP },
            Step { line: "names --directory nis:domain", code: 3, ..STEP },
        ],
    },
    Case {
        title: "register",
        text: "Registers a server that does not know directories, such as an older one, until a \
               signal ends the command. Then it withdraws the registration, and the exit code is 0. An address \
               without a name, as `@HOST:PORT`, gets the name that is registered. Several addresses may come \
               before the name. `--server` distinguishes the server from the other servers of the name. The \
               default is its host and port, so that the command takes over its own registration after \
               a crash. Two commands must not register different servers by the same text. If the directory \
               does not answer, a note says so, and another one when it answers again.",
        steps: &[
            Step {
                line: "register @fs1.example.org:7000 photos --directory file:names",
                before: leave_names,
                shown: &[Human, Json],
                until: "withdraws it)",
                ..STEP
            },
            Step { line: "register photos photos --directory file:names", code: 3, ..STEP },
        ],
    },
    Case {
        title: "directory serve",
        text: "Serves the names of a directory to clients that know only this server, until Ctrl-C or SIGTERM. \
               For them, `--directory peregrine://HOST:PORT` is the directory. With `call --via ADDRESS` and \
               `describe --via ADDRESS`, they let this server find the server of a name and call it. Such a \
               call has at most the rights of its caller: the server does not see who calls, and only the user \
               of the name service itself reaches servers by local paths, which show the user. With `--calls 0`, it \
               only finds servers.",
        steps: &[
            Step {
                line: "directory serve --listen tcp:127.0.0.1:0 --directory file:names",
                code: 130,
                before: leave_names,
                shown: &[Human, Json],
                until: "and at",
                ..STEP
            },
            Step {
                line: "call files size path=hello --via tcp:names@127.0.0.1:1",
                code: 3,
                ..STEP
            },
        ],
    },
    Case {
        title: "describe",
        text: "Shows the interface of an export as a Rust trait. `--format json` prints it as JSON. `--save FILE` \
               also writes it to a file: as a trait if the name ends in `.rs`, otherwise as JSON. `describe` \
               and `call` read such files with `--interface FILE`, and `compare` compares them. `--format c` \
               prints a C header ([PORTING.md](PORTING.md)). If a name has several servers in the directory, \
               a comment describes each of them. The interface is that of the first one that answers.",
        steps: &[
            Step { line: "describe ADDRESS", shown: &[Human, Json], ..STEP },
            Step {
                line: "describe files --directory file:names",
                before: leave_names,
                lines: 5,
                ..STEP
            },
            Step { line: "describe ADDRESS --save files.json", lines: 4, ..STEP },
            Step { line: "describe files --save files.rs", shown: &[], ..STEP },
            Step { line: "describe --interface files.json", lines: 4, ..STEP },
            Step { line: "describe --interface files.rs", shown: &[], ..STEP },
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
        title: "compare",
        text: "Compares two interfaces, the older one first, and shows which changes break which clients. Each \
               is an export, which its server describes, or a file: a trait and its types (`.rs`), or a \
               description that `describe --save` wrote (`.json`). The first line says in which order servers \
               and clients can be replaced. Below it are the changes for both directions, by the rules of \
               [EVOLUTION.md](EVOLUTION.md); `no` marks those that break clients. The exit code is 1 if \
               clients of one age cannot call servers of the other, so that `compare` can stop a pipeline.",
        steps: &[
            Step { line: "compare shop-1.rs shop-2.rs", before: leave_interfaces, ..STEP },
            Step { line: "compare shop-1.rs shop-3.rs", code: 1, shown: &[Human, Json], ..STEP },
            Step { line: "compare shop-3.rs shop-1.rs", code: 1, shown: &[], ..STEP },
            Step { line: "compare shop-1.rs shop-4.rs", code: 1, ..STEP },
            Step { line: "compare files.json ADDRESS", shown: &[Human, Json], ..STEP },
            Step { line: "compare ADDRESS files.rs", shown: &[], ..STEP },
            Step { line: "compare shop-1.rs shop-5.rs", code: 3, shown: &[Human, Json], ..STEP },
            Step { line: "compare shop-1.rs fiels", code: 3, ..STEP },
            Step { line: "compare shop-1.rs", code: 2, shown: &[], ..STEP },
        ],
    },
    Case {
        title: "import",
        text: "Prints an interface file of ONC RPC (`.x`, the language of `rpcgen`) or Courier (`.cr`) as Rust: \
               a trait for each version of each program, with its types and constants. Conditions of the \
               preprocessor are those of a client. `-D NAME=NUMBER` defines a macro that the file lacks. Files \
               that it includes, and the programs that a Courier program depends upon (`NAME2.cr`, with the \
               version, or `NAME.cr`), are beside the file or in a directory of `-I`. The text is formatted as \
               `rustfmt` does, and a file always leads to the same text. Errors and warnings show the line, and \
               go to standard error. A type that is declared nowhere is a warning, and must be written by hand. \
               With `--format json`, the one object also has the description of each trait, and the \
               diagnostics. `--save FILE` writes the descriptions to a file, with which `call --interface FILE` \
               calls a server without a compiler. `--check FILE` compares a file with the text, or with the \
               descriptions if its name ends in `.json`, and exits with 1 if it is not up to date.",
        steps: &[
            Step {
                line: "import mount.x",
                before: leave_onc_interfaces,
                shown: &[Human, Json],
                ..STEP
            },
            Step { line: "import wrong.x", code: 3, shown: &[Human, Json], ..STEP },
            Step { line: "import muont.x", code: 3, ..STEP },
            Step { line: "import Clock2.cr --save clock.json", shown: &[Human, Json], ..STEP },
            Step { line: "import Clock2.cr --check clock.json", shown: &[Human, Json], ..STEP },
            Step {
                line: "import Clock2.cr --check clock.rs",
                code: 1,
                shown: &[Human, Json],
                ..STEP
            },
            Step { line: "import mount.x --save mount.json", code: 3, ..STEP },
            Step { line: "import mount.x --define LENGTH=many", code: 2, shown: &[], ..STEP },
        ],
    },
    Case {
        title: "export",
        text: "Prints Rust traits as an interface file of ONC RPC (`--to onc`) or Courier (`--to courier`). The \
               traits have `onc(...)` or `courier(...)` in `#[interface]`, as those that `import` prints. What \
               has no form in the language is an error at its line. `--check FILE` compares a file with the \
               text, as for `import`. What `import` prints is exported as a file from which `import` prints the \
               same again.",
        steps: &[
            Step {
                line: "export clock.rs --to courier",
                before: leave_onc_interfaces,
                shown: &[Human, Json],
                ..STEP
            },
            Step { line: "export clock.rs --to onc", code: 3, shown: &[Human, Json], ..STEP },
            Step {
                line: "export clock.rs --to courier --check Clock2.cr",
                code: 1,
                shown: &[Human],
                ..STEP
            },
        ],
    },
    Case {
        title: "call",
        text: "Calls any procedure of any server, with the interface that the server describes. An argument is a \
               word (`path=hosts`), JSON (`sizes:='[1, 2]'`, or an object or array with all arguments), a \
               file (`data=@photo.jpg`, `@arguments.json`) or standard input (`@-`). For a returned buffer, \
               it is the maximum number of elements (`into=64K`). A missing argument of type `Option` is \
               `None`; all other arguments are required. Values in JSON have the form that serde uses. \
               Returned buffers are shown as text or as digits (`--bytes`), or written to files (`--out \
               NAME=FILE`). The items of a source are the lines of a file (`items=@list.ndjson`) or of standard \
               input (`items=@-`), which are read while the call runs, or a JSON array. The items of a sink are \
               printed as they arrive, one JSON value in each line, and the result goes to standard error. With \
               `--format ndjson`, each line names its sink, and the last line has the result. With `--format \
               json`, the one object has all items. A callback needs no argument: the command serves its \
               interface. Each call that arrives is printed like an item, with its arguments, and returns an \
               empty value: `()`, zero, an empty text or list, `None`. A call whose result has no empty value, \
               such as an enum, fails. `--metadata KEY=VALUE` sends a pair of metadata with the call, and may be \
               given several times.",
        steps: &[
            Step { line: "call ADDRESS read path=hello offset=0", shown: &[Human, Json], ..STEP },
            Step { line: "call files size path=hello --metadata tenant=birds", ..STEP },
            Step { line: "call files size path=hello --metadata Tenant=birds", code: 3, ..STEP },
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
        text: "Shows which path a client would use, and why it would not use the others. If a name has several \
               servers in the directory, it also shows how a pool uses each of them, and by which path: *used*, \
               *farther* (nearer servers are used), *other byte order*, *binding*, *left out* (it has failed) or \
               *spare* (there are enough others).",
        steps: &[
            Step { line: "explain ADDRESS", shown: &[Human, Json], ..STEP },
            Step {
                line: "explain files --directory file:names",
                before: leave_names,
                shown: &[Human, Json],
                ..STEP
            },
            Step { line: "explain fiels", code: 3, ..STEP },
        ],
    },
    Case {
        title: "ping",
        text: "Measures calls of the empty procedure that every export has. `--format ndjson` prints a line per \
               second (`\"row\": \"interval\"`), and a last line for all calls. After Ctrl-C, it prints the \
               measurements until then.",
        steps: &[
            Step { line: "ping ADDRESS -c 100", shown: &[Human, Json], ..STEP },
            Step { line: "ping files -c 100 --wait block", shown: &[Ndjson], ..STEP },
        ],
    },
    Case {
        title: "health",
        text: "Asks a server whether it serves, is overloaded, or is about to stop. It answers also while all of \
               its threads are busy. The exit code is for supervisors: 0 if it serves, 5 if it is about to \
               stop, 6 if it is overloaded, and 3 if it is gone or does not answer within `--timeout`. If \
               a name has several servers in the directory, it asks all of them. The exit code is that of the \
               healthiest one, because clients can use the name as long as one server serves.",
        steps: &[
            Step { line: "health ADDRESS", shown: &[Human, Json], ..STEP },
            Step {
                line: "health files --directory file:names",
                before: leave_names,
                shown: &[Human, Json],
                ..STEP
            },
            Step { line: "health fiels", code: 3, shown: &[Human, Json], ..STEP },
            Step { line: "health tcp:files@127.0.0.1:1 --timeout 1s", code: 3, ..STEP },
            Step { line: "health files --timeout soon", code: 2, ..STEP },
        ],
    },
    Case {
        title: "capture",
        text: "Shows the calls of a server of this machine as they happen, to the server's own user and to root. \
               Ctrl-C ends it, with the number of calls that were shown and left out. With `--format ndjson`, \
               each call is one line.",
        steps: &[
            Step { line: "capture fiels --count 1", code: 3, shown: &[Human, Json], ..STEP },
            Step { line: "capture files --procedure steal --count 1", code: 3, ..STEP },
            Step { line: "capture files --count 0", code: 2, ..STEP },
        ],
    },
    Case {
        title: "stat",
        text: "Shows live counters of a server and of its exports, sessions and bindings. On the same machine, it \
               reads them from memory that the server shares, at no cost for the server. `--watch` shows one \
               interval after the other, in place on a terminal, until `q` or Ctrl-C. Over a network, it shows \
               what the server discloses. If a name has several servers in the directory, it shows each of \
               them, and the members of the object are in a list `servers`.\n\n\
               `--prometheus` prints the counts of one server for Prometheus, and with `--listen` it serves them \
               over HTTP. \
               [METRICS.md](METRICS.md) lists the metrics.",
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
            Step {
                line: "stat files --interval 100ms --directory file:names",
                before: leave_names,
                shown: &[],
                ..STEP
            },
            Step { line: "stat files --prometheus", lines: 6, held: false, ..SCRIPT },
            Step {
                line: "stat files --prometheus --listen 127.0.0.1:0",
                code: 130,
                shown: &[Human, Json],
                until: "(not encrypted)",
                held: false,
                ..STEP
            },
            Step { line: "stat files --prometheus --listen 192.0.2.7:9464", code: 3, ..STEP },
        ],
    },
    Case {
        title: "account",
        text: "Shows where the time of a call goes: the parts at the client and at the server, and the transfer. \
               Both sides record when calls pass their steps. The transfer is measured by calls of the same size \
               that do nothing. The parts add up to the whole call but for the rest, which is printed, too. \
               `--svg` and `--html` write a picture. The server may be in use meanwhile. `--watch` makes one \
               short account after the other. With `--load`, it shows how long calls take that are due at random \
               moments, next to a queue that gets the same moments. The chapter [Where the time of a call \
               goes](GUIDE.md#where-the-time-of-a-call-goes) explains the parts.",
        steps: &[
            Step { line: "account ADDRESS", shown: &[Human], held: false, ..STEP },
            Step { line: "account files size path=hello --rounds 5", held: false, ..STEP },
            Step { line: "account files --rounds 5", shown: &[Json], held: false, ..STEP },
            Step {
                line: "account files --watch --interval 200ms --count 2",
                forms: &[Ndjson],
                shown: &[],
                ..STEP
            },
            Step { line: "account files --load --limit 2s", shown: &[], ..STEP },
            Step { line: "account files siz", code: 2, ..STEP },
        ],
    },
    Case {
        title: "copy",
        text: "Copies a file from a server of `serve`. The copy appears under its name when it is complete; an \
               interrupted copy is removed.",
        steps: &[
            Step { line: "copy ADDRESS/hello copied", shown: &[Human, Json], ..STEP },
            Step { line: "copy files/none copied", code: 1, ..STEP },
        ],
    },
    Case {
        title: "demo",
        text: "Copies a file between two processes, calls with every kind of parameter, and compares round trips \
               with the limit of this machine. It removes all its processes and files, also when it is \
               interrupted. `peregrine` without a command does the same.",
        steps: &[Step { line: "demo --quick", forms: &[Human], held: false, ..STEP }],
    },
    Case {
        title: "doctor",
        text: "Checks what this machine supports, how that affects calls, and how to improve it. Each finding is \
               *good*, *slow* or *missing*. It also measures wake-ups, and calls over a virtual link; \
               `--quick` skips the measurements. The exit code is 0 for all findings. `--format ndjson` \
               prints a line per finding.",
        steps: &[
            Step { line: "doctor", forms: &[Human], held: false, ..STEP },
            Step { line: "doctor --quick", shown: &[Ndjson], lines: 2, held: false, ..STEP },
        ],
    },
    Case {
        title: "clean",
        text: "Removes files of dead servers from the runtime directories. It removes a name only if it can \
               acquire the lock of the name and nothing listens on its socket, so that a starting server \
               is not affected.",
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
        title: "keys",
        text: "Makes the key of this user, shows it, and says which keys of others are trusted. `keys new` and \
               `keys show` print one line for peers on standard output: a name, the public key and a comment. A \
               peer passes that line to `keys trust`, as arguments or, with `-`, by standard input, and may \
               change the name: it is what this peer calls the key from then on. Both sides compare the \
               fingerprint. `keys untrust` removes a key by its name, its fingerprint or itself. A key is never \
               replaced without `--force`, and a private key that others can read is not used. The files are \
               in `~/.config/peregrine/keys`, or in `$PEREGRINE_KEYS` or `--dir`. The chapter [From one \
               machine to many, safely](GUIDE.md#from-one-machine-to-many-safely) explains them.",
        steps: &[
            Step {
                line: "keys new --name ada --comment ada@laptop",
                before: leave_no_keys,
                held: false,
                ..STEP
            },
            Step {
                line: "keys new --name ada --comment ada@laptop",
                code: 3,
                before: leave_keys,
                ..STEP
            },
            Step {
                line: "keys show --name ada --comment ada@laptop",
                before: leave_trusted_keys,
                shown: &[Human, Json],
                ..STEP
            },
            Step {
                line: "keys show --trusted",
                before: leave_trusted_keys,
                shown: &[Human, Ndjson],
                ..STEP
            },
            Step {
                line: "keys trust bob MCowBQYDK2VwAyEAn7IvDwfFKAYLRXLiQnFg7arDuneRo6Sa5w/jkiNYRfI= bob@desk",
                before: leave_keys,
                shown: &[Human, Json],
                ..STEP
            },
            Step {
                line: "keys trust cara MCowBQYDK2VwAyEAn7IvDwfFKAYLRXLiQnFg7arDuneRo6Sa5w/jkiNYRfJ=",
                code: 3,
                before: leave_trusted_keys,
                ..STEP
            },
            Step {
                line: "keys untrust cara",
                before: leave_trusted_keys,
                shown: &[Human, Json],
                ..STEP
            },
            Step { line: "keys untrust kara", code: 3, before: leave_trusted_keys, ..STEP },
            Step { line: "keys show", code: 3, before: leave_open_key, ..STEP },
            Step { line: "keys", code: 2, shown: &[], ..STEP },
        ],
    },
    Case {
        title: "unseal",
        text: "Copies a capture of packets over UDP or raw Ethernet, in the format pcap or pcapng, and opens the \
               encrypted packets whose keys were logged. Then [the dissector](wireshark/README.md) shows their \
               calls. A program logs keys after it has called `Identity::log_keys_to`, and the command `peregrine` \
               does so if `PEREGRINE_KEY_LOG` names a file. Anyone with the keys or the new file can read the \
               calls. Only its owner can read the new file. Packets without keys stay as they are. Calls over \
               TCP need no `unseal`, because Wireshark decrypts TLS by itself.",
        steps: &[
            Step {
                line: "unseal calls.pcap --keys keys.log opened.pcap",
                before: leave_capture,
                shown: &[Human, Json],
                ..STEP
            },
            Step { line: "unseal calls.pcap --keys kyes.log opened.pcap", code: 3, ..STEP },
            Step { line: "unseal keys.log --keys keys.log opened.pcap", code: 3, ..STEP },
            Step { line: "unseal calls.pcap opened.pcap", code: 2, ..STEP },
        ],
    },
    Case {
        title: "completions",
        text: "Prints a script with which a shell completes commands, options, exports, procedures and parameters. \
               For bash, add this line to `~/.bashrc`: `source <(peregrine completions bash)`. `peregrine \
               completions --help` shows the lines for other shells.",
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
        text: "Prints the manual page of the program. With `--dir`, it writes this page and one page per command.",
        steps: &[
            Step { line: "man", lines: 6, held: false, ..SCRIPT },
            Step { line: "man --dir pages", ..STEP },
        ],
    },
    Case {
        title: "Failures",
        text: "A failure shows what failed, why, and what to do, and suggests similar names. In JSON, the member \
               `error` always has the same members: `kind`, `what`, `executed` (`\"no\"`, `\"maybe\"` or \
               `\"yes\"`), `address`, `phase`, `causes`, `advice` and `suggestions`. Results from before the \
               failure are in the same object as `error`.",
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
