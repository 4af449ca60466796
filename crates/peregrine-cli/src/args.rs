//! The command line: commands, options and arguments.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::styling::AnsiColor;
use clap::builder::{ArgPredicate, Styles};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint, value_parser};
use clap_complete::engine::ArgValueCompleter;
use peregrine::Wait;
use peregrine::json::Bytes;

use crate::account::args::Account;
use crate::completions::{self, Shell};
use crate::directory::Chosen;
use crate::keys::args::Keys;
use crate::name_service::DirectoryCommand;
use crate::names::Names;
use crate::register::Register;
use crate::security::Security;
use crate::stat::args::Stat;
use crate::unseal::args::Unseal;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

const EXIT_CODES: &str = "\
Exit codes:
  0    success
  1    an error of the procedure; `compare`: a change breaks clients; `--check`: not up to date
  2    usage error
  3    the command failed and nothing was executed: it is safe to repeat it
  4    the command failed and the call may have been executed
  5, 6 `health`: the server is about to stop (5), or overloaded (6)
  7    `health`: the server reports what this version does not know
  130  interrupted by Ctrl-C (128 plus the number of the signal)

Environment:
  PEREGRINE_DIR    the runtime directory, in which servers export and clients search first
  PEREGRINE_HOSTS  the hosts file, which maps names to the machines that serve them
  PEREGRINE_DIRECTORY
                   the directory in place of the hosts file, as for --directory
  PEREGRINE_KEYS   the directory of the own key and of the keys that are trusted
  PEREGRINE_KEY_LOG
                   a file to which the keys of encrypted connections are appended, so that Wireshark can
                   decrypt captures of them. Anyone with the file can read these calls
  NO_COLOR         disables colours, also on a terminal";

/// Calls procedures of servers on this machine and over networks, and inspects servers.
///
/// Without a command, it runs the demonstration.
#[derive(Debug, Parser)]
#[command(name = "peregrine", version, styles = STYLES, after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    /// Output format; JSON, and the C header of `describe`, are the only text on standard output
    #[arg(long, global = true, value_enum, default_value_t = FormatOption::Human)]
    pub(crate) format: FormatOption,
    /// When to use colours; `auto`: on a terminal, unless NO_COLOR is set or TERM is `dumb`
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = Colour::Auto)]
    pub(crate) color: Colour,
    /// Which key to show to peers, and which peers to trust.
    #[command(flatten)]
    pub(crate) security: Security,
    /// Which directory to ask for the servers of names.
    #[command(flatten)]
    pub(crate) directory: Chosen,
    /// The command to run.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// The value of `--format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatOption {
    /// Text
    Human,
    /// One JSON object
    Json,
    /// One JSON object per line: one for each result of a command that has several
    Ndjson,
    /// A C header; only for `describe`
    C,
}

/// When output has colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Colour {
    /// On a terminal that supports them
    Auto,
    /// Also in files and pipes
    Always,
    /// Never
    Never,
}

/// The format of results and failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Text.
    Human,
    /// One JSON object.
    Json,
    /// One JSON object per line.
    Ndjson,
}

impl Format {
    /// Returns whether the output is JSON.
    pub(crate) const fn is_json(self) -> bool {
        matches!(self, Self::Json | Self::Ndjson)
    }

    /// Returns the value of the option.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Human => "human",
            Self::Json => "json",
            Self::Ndjson => "ndjson",
        }
    }
}

impl Colour {
    /// Returns the value of the option.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        }
    }
}

impl Arguments {
    /// Returns the format of results and failures.
    pub(crate) const fn format(&self) -> Format {
        match self.format {
            FormatOption::Json => Format::Json,
            FormatOption::Ndjson => Format::Ndjson,
            FormatOption::Human | FormatOption::C => Format::Human,
        }
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Copy a file between two processes, call with every kind of parameter, and measure round trips
    Demo(Demo),
    /// Export the files of a directory until SIGINT or SIGTERM
    Serve(Serve),
    /// Offer exports to clients of other RPC systems, and as JSON over HTTP with a web page, until SIGINT
    /// or SIGTERM
    Bridge(Bridge),
    /// Tell clients of ONC RPC the ports of programs, until SIGINT or SIGTERM
    Rpcbind(Rpcbind),
    /// Copy a file from a `serve` server on this machine or over a network
    Copy(Copy),
    /// List the exports of this machine, or of a server on another one
    List {
        /// The server: @HOST or @HOST:PORT, optionally with the prefix eth:, udp: or tcp:, or a name
        /// in a hosts file [default: all servers of this machine]. onc+tcp:HOST and onc+udp:HOST list
        /// the programs of ONC RPC that the rpcbind of a machine knows
        address: Option<String>,
    },
    /// List the names of a directory and their servers, on this machine and on others
    Names(Names),
    /// Register a server in a directory until SIGINT or SIGTERM, if the server does not do so
    Register(Register),
    /// Serve a directory to clients that know one address only
    Directory(DirectoryCommand),
    /// Show the interface of an export as a Rust trait
    Describe(Describe),
    /// Show which changes of an interface break which clients
    Compare(Compare),
    /// Print an interface file of ONC RPC (.x) or Courier (.cr) as Rust traits
    Import(Import),
    /// Print Rust traits as an interface file of ONC RPC (.x) or Courier (.cr)
    Export(Export),
    /// Call a procedure of any server, with arguments as NAME=VALUE or JSON
    Call(Call),
    /// Show which path a client would use, and why it would not use the others
    Explain {
        /// Name or address of the export: NAME, NAME@HOST or NAME@HOST:PORT, optionally with the
        /// prefix local:, eth:, udp: or tcp:; or onc+udp:HOST/PROGRAM.VERSION or onc+tcp:, for a program
        /// of ONC RPC
        #[arg(add = ArgValueCompleter::new(completions::addresses))]
        address: String,
    },
    /// Measure how long a call of an empty procedure takes
    Ping(Ping),
    /// Show where the time of a call goes, part by part, at the client and at the server
    Account(Account),
    /// Ask a server whether it serves, is overloaded, or is about to stop; the exit code says which
    Health(Health),
    /// Show the counters of a running server: calls, rates, latency, sessions, bindings
    Stat(Stat),
    /// Show the calls of a server of this machine as they happen: arguments, caller, outcome, time
    Capture(Capture),
    /// Check what this machine supports, how that affects calls, and how to improve it
    Doctor(Doctor),
    /// Remove files of dead servers from the runtime directories
    Clean(Clean),
    /// Make the key of this user, show it, and say which keys of others are trusted
    Keys(Keys),
    /// Open the encrypted packets of a capture with logged keys, so that Wireshark shows the calls
    Unseal(Unseal),
    /// Print a completion script for a shell: commands, options, exports, procedures, parameters
    Completions {
        /// Which shell
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Print the manual page, or write the pages of all commands
    Man(Man),
    /// The server of the demonstration, with every kind of parameter.
    #[command(hide = true)]
    DemoServer(DemoServer),
    /// The peer of the ping-pong of the demonstration.
    #[command(hide = true)]
    DemoEcho(DemoEcho),
}

impl Default for Command {
    fn default() -> Self {
        Self::Demo(Demo::default())
    }
}

/// Options of `demo`.
#[derive(Args, Debug, Default)]
pub(crate) struct Demo {
    /// Copy this file instead of a generated one
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, conflicts_with = "bytes")]
    pub(crate) file: Option<PathBuf>,
    /// Size of the generated file, such as 64M [default: 256M]
    #[arg(long, value_name = "N", value_parser = bytes)]
    pub(crate) bytes: Option<u64>,
    /// Measure for a shorter time
    #[arg(long)]
    pub(crate) quick: bool,
    /// The working directory of this run; the run creates and removes it.
    #[arg(long, hide = true)]
    pub(crate) home: Option<PathBuf>,
}

/// Options of `serve`.
#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// The directory to export
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) dir: PathBuf,
    /// Name of the export [default: the name of the directory]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Allow calls of every user of this machine, not only of the user that runs the server
    #[arg(long)]
    pub(crate) public: bool,
    /// Allow callers to write files
    #[arg(long)]
    pub(crate) writable: bool,
    /// Maximum number of calls that run at a time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = value_parser!(u16).range(1..))]
    pub(crate) threads: u16,
    /// Also listen on a port, such as tcp:127.0.0.1:7000 or eth:192.0.2.7:7000 (port 0: any); can be
    /// repeated
    #[arg(long, value_name = "ENDPOINT")]
    pub(crate) listen: Vec<String>,
    /// Allow --listen on addresses that other machines can reach. Calls are encrypted, and only trusted peers
    /// can call, by the keys of --identity [default: the directory of `keys`]
    #[arg(long, requires = "listen")]
    pub(crate) beyond_this_machine: bool,
    /// Do not encrypt calls, if there is no --identity: every host that reaches the port can call, and hosts
    /// on the way can read and change calls
    #[arg(long, requires = "beyond_this_machine")]
    pub(crate) i_trust_this_network: bool,
    /// Register the export in the directory of --directory or $PEREGRINE_DIRECTORY while the server runs
    #[arg(long, requires = "listen")]
    pub(crate) register: bool,
    /// The host by which other machines reach this server, for --register: HOST or HOST:PORT; can be repeated
    /// [default: the addresses of --listen]
    #[arg(long, value_name = "HOST", requires = "register")]
    pub(crate) advertise: Vec<String>,
    /// What distinguishes this server from others of its name in the directory, so that it is the same after a
    /// restart [default: a random text]
    #[arg(long, value_name = "TEXT", requires = "register")]
    pub(crate) registered_as: Option<String>,
    /// Stop when this parent process has ended.
    #[arg(long, hide = true, value_name = "PID")]
    pub(crate) parent: Option<u32>,
}

/// Options of `bridge`.
#[derive(Args, Debug)]
pub(crate) struct Bridge {
    /// Names or addresses of exports: NAME, NAME@HOST or NAME@HOST:PORT, optionally with the prefix
    /// local:, eth:, udp: or tcp:; or onc+udp:HOST/PROGRAM.VERSION, onc+tcp:, courier+udp:, courier+tcp: or
    /// courier+exchange:, for a program of another RPC system; NAME=ADDRESS offers an export under another
    /// name
    #[arg(required = true, value_name = "ADDRESS", add = ArgValueCompleter::new(completions::addresses))]
    pub(crate) addresses: Vec<String>,
    /// Interface file of the exports of other RPC systems (.x, .cr, .rs or .json), or, as NAME=FILE, of one
    /// export; can be repeated. Changes of the file are used without a restart
    #[arg(long, value_name = "[NAME=]FILE", value_hint = ValueHint::FilePath)]
    pub(crate) interface: Vec<String>,
    /// Where to listen for HTTP (port 0: any); can be repeated; without it, only if there is no --listen.
    /// HTTP is not encrypted, and every user of this machine can make calls
    #[arg(
        long,
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:8080",
        default_value_if("listen", ArgPredicate::IsPresent, None)
    )]
    pub(crate) http: Vec<String>,
    /// Where clients of RPC systems call the exports: [tcp:|udp:]HOST:PORT, onc+udp:HOST:PORT,
    /// onc+tcp:HOST:PORT, courier+udp:HOST:PORT, courier+tcp:HOST:PORT, or local:NAME for the export NAME;
    /// can be repeated. Clients of Courier at courier+exchange: use udp:HOST:PORT. Calls have the rights of
    /// the bridge
    #[arg(long, value_name = "ENDPOINT")]
    pub(crate) listen: Vec<String>,
    /// By which numbers clients of another RPC system know an export: NAME=onc:NUMBER.VERSION or
    /// NAME=courier:NUMBER.VERSION; can be repeated
    #[arg(long, value_name = "NAME=SYSTEM:NUMBER.VERSION", requires = "listen")]
    pub(crate) program: Vec<String>,
    /// Allow --http and --listen at addresses that other machines can reach. Calls at Peregrine's own
    /// endpoints are encrypted by the keys of --identity [default: the directory of `keys`]. HTTP, ONC RPC and
    /// Courier cannot be encrypted, and need --i-trust-this-network
    #[arg(long)]
    pub(crate) beyond_this_machine: bool,
    /// Allow endpoints without encryption: every host that reaches them can call, and hosts on the way can
    /// read and change calls
    #[arg(long, requires = "beyond_this_machine")]
    pub(crate) i_trust_this_network: bool,
    /// A name of this machine that requests may use, in addition to `localhost` and IP addresses; can be
    /// repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Vec<String>,
    /// Maximum size of the body of a request, such as 4M
    #[arg(long, value_name = "N", default_value = "1M", value_parser = bytes)]
    pub(crate) body_max: u64,
    /// Maximum number of requests and calls that are answered at a time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = value_parser!(u16).range(1..=1024))]
    pub(crate) calls: u16,
    /// Time limit of a call without streams, unless the caller says it, such as 500ms or 2s
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    pub(crate) timeout: Duration,
}

/// Options of `rpcbind`.
#[derive(Args, Debug)]
#[command(after_help = RPCBIND_RULES)]
pub(crate) struct Rpcbind {
    /// Where to listen over UDP and TCP: HOST or HOST:PORT; can be repeated [default: port 111 of 127.0.0.1,
    /// and of ::1 if this machine has IPv6]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Vec<String>,
    /// Allow --listen at addresses that other machines can reach. ONC RPC has no encryption
    #[arg(long, requires = "listen")]
    pub(crate) beyond_this_machine: bool,
}

const RPCBIND_RULES: &str = "\
Who may change what:
  Programs of this machine register programs, and remove those of the same owner. The owner is the
  superuser if the caller uses a port below 1024, and unknown otherwise. Other machines only ask.

`peregrine list onc+tcp:127.0.0.1` shows what is registered. When the command ends, it shows which
registrations are lost. It has versions 2, 3 and 4 of the protocol, and makes no calls for others.";

/// Options of `copy`.
#[derive(Args, Debug)]
pub(crate) struct Copy {
    /// The file: NAME/PATH or NAME@HOST:PORT/PATH, optionally with the prefix local:, eth:, udp: or tcp:
    #[arg(value_name = "ADDRESS/PATH")]
    pub(crate) from: String,
    /// The destination: a file or a directory
    #[arg(value_name = "DEST", value_hint = ValueHint::AnyPath)]
    pub(crate) to: PathBuf,
}

/// Options of `ping`.
#[derive(Args, Debug)]
pub(crate) struct Ping {
    /// Name or address of the export: NAME, NAME@HOST or NAME@HOST:PORT, optionally with the prefix
    /// local:, eth:, udp: or tcp:; or onc+udp:HOST/PROGRAM.VERSION or onc+tcp:, for a program of ONC RPC
    #[arg(add = ArgValueCompleter::new(completions::addresses))]
    pub(crate) name: String,
    /// Number of calls
    #[arg(short, long, default_value_t = 10_000, value_parser = value_parser!(u32).range(1..=10_000_000))]
    pub(crate) count: u32,
    /// How to wait for each result
    #[arg(long, value_enum, default_value_t = WaitOption::Adaptive)]
    pub(crate) wait: WaitOption,
}

/// Options of `health`.
#[derive(Args, Debug)]
pub(crate) struct Health {
    /// Name or address of the export: NAME, NAME@HOST or NAME@HOST:PORT, or @HOST for a server whatever it
    /// exports, optionally with the prefix local:, eth:, udp: or tcp:
    #[arg(add = ArgValueCompleter::new(completions::addresses))]
    pub(crate) address: String,
    /// How long to wait for the answer, such as 200ms, 1s or 1m
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time)]
    pub(crate) timeout: Duration,
}

/// Options of `capture`.
#[derive(Args, Debug)]
#[command(after_help = CAPTURE_RULES)]
pub(crate) struct Capture {
    /// Name of the export, on this machine
    #[arg(add = ArgValueCompleter::new(completions::addresses))]
    pub(crate) name: String,
    /// Show only calls of this procedure
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(completions::procedures))]
    pub(crate) procedure: Option<String>,
    /// Show only calls that failed: the procedure returned neither a result nor its own error
    #[arg(long)]
    pub(crate) failed: bool,
    /// End after this number of calls
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// How many bytes of the arguments of each call to show, up to 32K
    #[arg(long, value_name = "N", default_value = "4K", value_parser = bytes)]
    pub(crate) argument_bytes: u64,
    /// How to show bytes
    #[arg(long, value_enum, default_value_t = ShownBytes::Auto)]
    pub(crate) bytes: ShownBytes,
}

const CAPTURE_RULES: &str = "\
Only the user of the server and root may capture calls. A capture never delays a call: if calls end faster
than they are printed, some are left out, and their number is shown. Calls of all clients are shown, over
all paths, when they have ended. The contents of lent buffers, streams and results are not shown.";

/// Options of `describe`.
#[derive(Args, Debug)]
pub(crate) struct Describe {
    /// Name or address of the export: NAME, NAME@HOST or NAME@HOST:PORT, optionally with the prefix
    /// local:, eth:, udp: or tcp:
    #[arg(add = ArgValueCompleter::new(completions::addresses), required_unless_present = "interface")]
    pub(crate) address: Option<String>,
    /// Show an interface from a file instead of a server: JSON or a trait that `describe` printed
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "address")]
    pub(crate) interface: Option<PathBuf>,
    /// Also write the description to a file: a trait if it ends in .rs, otherwise JSON
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) save: Option<PathBuf>,
    /// Ask the name service at this address for the interface of a name
    #[arg(long, value_name = "ADDRESS", conflicts_with = "interface")]
    pub(crate) via: Option<String>,
}

/// Options of `compare`.
#[derive(Args, Debug)]
#[command(after_help = COMPARE_ARGUMENTS)]
pub(crate) struct Compare {
    /// The older interface: an address, or a file that ends in .rs or .json
    #[arg(add = ArgValueCompleter::new(completions::interfaces))]
    pub(crate) old: String,
    /// The newer interface: an address, or a file that ends in .rs or .json
    #[arg(add = ArgValueCompleter::new(completions::interfaces))]
    pub(crate) new: String,
}

const COMPARE_ARGUMENTS: &str = "\
Arguments:
  files, files@HOST:PORT  the interface of an export, which the server describes
  files.rs                a trait and its types; attributes and derives may be missing
  files.json              a description that `describe --save` wrote

Exit codes:
  0    all clients can call all servers
  1    clients of one age cannot call servers of the other
  3    an interface cannot be read, and nothing was compared";

/// Options of `import`.
#[derive(Args, Debug)]
#[command(after_help = IMPORT_HELP)]
pub(crate) struct Import {
    /// The interface file; a name that ends in .cr is one of Courier, others are of ONC RPC
    #[arg(value_name = "FILE.x|FILE.cr", add = ArgValueCompleter::new(completions::interface_files))]
    pub(crate) file: PathBuf,
    /// Where to search files that the file includes or depends upon, after the directory of the file;
    /// can be repeated
    #[arg(short = 'I', long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) include: Vec<PathBuf>,
    /// For FILE.x: define a macro for the preprocessor, and a constant if it has a value; can be repeated
    #[arg(short = 'D', long, value_name = "NAME[=NUMBER]", value_parser = definition)]
    pub(crate) define: Vec<(String, Option<i64>)>,
    /// Also write the descriptions of the traits as JSON, for calls without a compiler
    #[arg(long, value_name = "FILE.json", value_hint = ValueHint::FilePath)]
    pub(crate) save: Option<PathBuf>,
    /// Print nothing, but compare this file with the Rust text, or with the descriptions if its name ends
    /// in .json
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "save")]
    pub(crate) check: Option<PathBuf>,
}

const IMPORT_HELP: &str = "\
Examples:
  peregrine import mount.x > src/mount.rs
      writes a module with a trait for each version of each program of ONC RPC
  peregrine import Filing6.cr -I xns > src/filing.rs
      finds the programs that Filing depends upon in the directory xns
  peregrine import mount.x --save mount.json
  peregrine call onc+udp:HOST export --interface mount.json
      calls a server without compiling anything
  peregrine import mount.x --check src/mount.rs
      fails if the module is not up to date; for builds and CI

The Rust text needs only the crate `peregrine`. A server implements the trait, and a client is bound at
an address such as onc+udp:HOST or courier+tcp:HOST. A type that is declared nowhere is a warning:
define it beside the text.

Exit codes:
  0    the file was imported; there may be warnings
  1    the file of --check is not up to date
  3    the file has errors, or cannot be read";

/// Options of `export`.
#[derive(Args, Debug)]
#[command(after_help = EXPORT_HELP)]
pub(crate) struct Export {
    /// The Rust file, with the traits and their types
    #[arg(value_name = "FILE.rs", add = ArgValueCompleter::new(completions::rust_files))]
    pub(crate) file: PathBuf,
    /// The language of the interface file
    #[arg(long, value_enum)]
    pub(crate) to: Language,
    /// Print nothing, but compare this file with the interface file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) check: Option<PathBuf>,
}

const EXPORT_HELP: &str = "\
Examples:
  peregrine export src/weather.rs --to onc > weather.x
      writes an interface file for rpcgen
  peregrine export src/clock.rs --to courier > Clock2.cr
  peregrine export src/weather.rs --to onc --check weather.x
      fails if the interface file is not up to date; for builds and CI

A trait has `onc(program = N, version = N)` or `courier(...)` in `#[interface]`, and each method has
`#[onc(N)]` or `#[courier(N)]`. Traits with the same program number become versions of one program.
Constants with numbers and texts are exported, too. Other items of the file are skipped.

Exit codes:
  0    the traits were exported; there may be warnings
  1    the file of --check is not up to date
  3    the traits have no form in the language, or the file cannot be read";

/// The value of `--to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Language {
    /// ONC RPC, the language of rpcgen
    Onc,
    /// Courier
    Courier,
}

/// Parses the value of `--define`.
fn definition(text: &str) -> Result<(String, Option<i64>), String> {
    let (name, value) =
        text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_name {
        return Err(format!("`{name}` is not a name"));
    }
    let value = value.map(str::parse).transpose().map_err(|error| format!("{error}"))?;
    Ok((name.to_owned(), value))
}

/// Parses the value of `--metadata`.
fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Options of `call`.
#[derive(Args, Debug)]
#[command(after_help = CALL_ARGUMENTS)]
pub(crate) struct Call {
    /// Name or address of the export: NAME, NAME@HOST or NAME@HOST:PORT, optionally with the prefix
    /// local:, eth:, udp: or tcp:
    #[arg(add = ArgValueCompleter::new(completions::addresses))]
    pub(crate) address: String,
    /// The procedure; `describe` lists them
    #[arg(add = ArgValueCompleter::new(completions::procedures))]
    pub(crate) procedure: String,
    /// NAME=VALUE, NAME:=JSON, NAME=@FILE, a JSON object or array, @FILE, or @- for standard input
    #[arg(value_name = "ARGUMENT", allow_hyphen_values = false, add = ArgValueCompleter::new(completions::parameters))]
    pub(crate) arguments: Vec<String>,
    /// Write the content of a returned buffer to a file; `-` is standard output
    #[arg(long, value_name = "NAME=FILE", add = ArgValueCompleter::new(completions::out_buffers))]
    pub(crate) out: Vec<String>,
    /// How to show bytes
    #[arg(long, value_enum, default_value_t = ShownBytes::Auto)]
    pub(crate) bytes: ShownBytes,
    /// Time limit of the call, such as 500ms or 2s
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) timeout: Option<Duration>,
    /// Send this pair of metadata with the call; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub(crate) metadata: Vec<(String, String)>,
    /// Use the interface in this file instead of asking the server for it: JSON, a trait, .x or .cr
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) interface: Option<PathBuf>,
    /// Let the name service at this address find the server of the name, and make the call
    #[arg(long, value_name = "ADDRESS", conflicts_with = "interface", add = ArgValueCompleter::new(completions::addresses))]
    pub(crate) via: Option<String>,
}

const CALL_ARGUMENTS: &str = "\
Arguments:
  path=hosts           a text, number or enum as it is; other types as JSON
  sizes:='[1, 2]'      JSON
  data=@photo.jpg      the content of a file: bytes, text or JSON
  into=64K             the maximum number of elements of a returned buffer
  items=@list.ndjson   the items of a source, one in each line; @- reads lines as they come
  '{\"path\": \"hosts\"}'  all arguments by name, or in order in an array
  @arguments.json, @-  the same from a file, or from standard input

A parameter with a default is optional, also one of type Option, whose default is None. All others are
required. The items of a sink are printed as they arrive, one in each line, and the result goes to
standard error. So are the calls of a callback, with their arguments; each of them returns zero, an
empty text or the like. With `--format json`, they are members of the one object.";

/// The value of `--bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShownBytes {
    /// As text if they are valid UTF-8, otherwise as hexadecimal digits
    Auto,
    /// As text, with invalid bytes replaced
    Text,
    /// As hexadecimal digits
    Hex,
    /// As an array of numbers
    Array,
}

impl From<ShownBytes> for Bytes {
    fn from(shown: ShownBytes) -> Self {
        match shown {
            ShownBytes::Auto => Self::Auto,
            ShownBytes::Text => Self::Text,
            ShownBytes::Hex => Self::Hex,
            ShownBytes::Array => Self::Array,
        }
    }
}

/// Options of `doctor`.
#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// Skip measurements, and do not create a network link
    #[arg(long)]
    pub(crate) quick: bool,
}

/// Options of `clean`.
#[derive(Args, Debug)]
pub(crate) struct Clean {
    /// Show what would be removed, without removing it
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Options of `man`.
#[derive(Args, Debug)]
pub(crate) struct Man {
    /// Write a page for each command and one for the program to this directory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,
}

/// Options of the server of the demonstration.
#[derive(Args, Debug)]
pub(crate) struct DemoServer {
    /// Name of the export.
    #[arg(long)]
    pub(crate) name: String,
    /// How the threads of the server wait.
    #[arg(long, value_enum)]
    pub(crate) wait: WaitOption,
    /// The process ID of the parent. This process ends when the parent ends.
    #[arg(long)]
    pub(crate) parent: u32,
}

/// Options of the peer of the ping-pong.
#[derive(Args, Debug)]
pub(crate) struct DemoEcho {
    /// Path of the shared memory.
    #[arg(long)]
    pub(crate) memory: PathBuf,
    /// The process ID of the parent. This process ends when the parent ends.
    #[arg(long)]
    pub(crate) parent: u32,
}

/// The value of `--wait`: how a thread waits for its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WaitOption {
    /// Poll memory all the time
    Spin,
    /// Sleep in the kernel
    Block,
    /// Spin for about as long as a wake-up takes, then sleep
    Adaptive,
}

impl WaitOption {
    /// Returns the value of the option.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Block => "block",
            Self::Adaptive => "adaptive",
        }
    }
}

impl From<WaitOption> for Wait {
    fn from(how: WaitOption) -> Self {
        match how {
            WaitOption::Spin => Self::Spin,
            WaitOption::Block => Self::Block,
            WaitOption::Adaptive => Self::Adaptive,
        }
    }
}

/// Parses a duration of 10 ms to 24 h. A number without a unit is in seconds.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let ms: f64 = match &text[digits.len()..] {
        "ms" => 1.0,
        "s" | "" => 1e3,
        "m" | "min" => 60e3,
        "h" => 3600e3,
        unit => return Err(format!("unknown unit `{unit}`: use ms, s, m or h")),
    };
    let number: f64 = digits.parse().map_err(|error| format!("{error}"))?;
    let all = number * ms;
    if !(10.0..=86_400e3).contains(&all) {
        return Err("expected 10ms to 24h".to_owned());
    }
    Ok(Duration::from_secs_f64(all / 1e3))
}

/// Parses a number with an optional suffix K, M or G (powers of 1024).
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|error| format!("{error}"))?;
    number.checked_mul(1 << shift).ok_or_else(|| "too large".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(bytes("7"), Ok(7));
        assert_eq!(bytes("64k"), Ok(64 << 10));
        assert_eq!(bytes("3G"), Ok(3 << 30));
        assert!(bytes("").is_err() && bytes("M").is_err() && bytes("é").is_err());
        assert!(bytes("99999999999G").is_err());
    }

    #[test]
    fn times_have_units() {
        for (text, ms) in [("200ms", 200), ("1s", 1000), ("0.5", 500), ("2m", 120_000)] {
            assert_eq!(time(text), Ok(Duration::from_millis(ms)));
        }
        for text in ["", "s", "1ms", "25h", "-1s", "NaN", "inf", "1 s", "3d", "1é"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
