//! What can be written on the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::Styles;
use clap::builder::styling::AnsiColor;
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint, value_parser};
use clap_complete::engine::ArgValueCompleter;
use peregrine::Wait;
use peregrine::json::Bytes;

use crate::completions::{self, Shell};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

const EXIT_CODES: &str = "\
Exit codes:
  0    fine
  1    the procedure itself said no
  2    the command line makes no sense
  3    it failed and nothing was executed: it may be repeated
  4    it failed and may have been executed
  130  Ctrl-C (128 and the number of whatever signal ended it)

Environment:
  PEREGRINE_DIR    where names are exported and looked up first
  PEREGRINE_HOSTS  the file that says on which machines names are served
  NO_COLOR         no colours, even on a terminal";

/// Remote procedure calls that cost what the distance costs, and nothing more.
///
/// Without a command it runs the demonstration.
#[derive(Debug, Parser)]
#[command(name = "peregrine", version, styles = STYLES, after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    /// How to answer; JSON, and a header in C (of `describe`), stand alone on standard output
    #[arg(long, global = true, value_enum, default_value_t = Written::Human)]
    pub(crate) format: Written,
    /// When to use colours; `auto`: on a terminal, unless NO_COLOR is set or TERM is `dumb`
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = Colour::Auto)]
    pub(crate) color: Colour,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// How an answer is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Written {
    /// Text for people
    Human,
    /// One JSON object
    Json,
    /// A JSON object a line: one for each result of those that have several
    Ndjson,
    /// A header for a program in C: only of `describe`
    C,
}

/// When there are colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Colour {
    /// On a terminal that has them
    Auto,
    /// Into files and pipes, too
    Always,
    /// Nowhere
    Never,
}

/// How to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Text for people.
    Human,
    /// One JSON object.
    Json,
    /// A JSON object a line.
    Ndjson,
}

impl Format {
    /// Whether programs read it.
    pub(crate) const fn is_json(self) -> bool {
        matches!(self, Self::Json | Self::Ndjson)
    }

    /// As it is written on the command line.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Human => "human",
            Self::Json => "json",
            Self::Ndjson => "ndjson",
        }
    }
}

impl Colour {
    /// As it is written on the command line.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        }
    }
}

impl Arguments {
    /// How answers, and failures, are told.
    pub(crate) const fn answers(&self) -> Format {
        match self.format {
            Written::Json => Format::Json,
            Written::Ndjson => Format::Ndjson,
            Written::Human | Written::C => Format::Human,
        }
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Copy a file between two processes, call every kind of parameter, measure round trips
    Demo(Demo),
    /// Export a directory's files until SIGINT or SIGTERM
    Serve(Serve),
    /// Copy a file from a server of `serve`, here or over a network
    Copy(Copy),
    /// List the names that are exported on this machine, or by a server elsewhere
    List {
        /// The server: @HOST or @HOST:PORT, perhaps with eth:, udp: or tcp: in front, or a name that
        /// a hosts file has [default: all of this machine]
        address: Option<String>,
    },
    /// Show the interface of an export, as the trait that its server was written against
    Describe(Describe),
    /// Call a procedure of any server, with arguments as NAME=VALUE or JSON
    Call(Call),
    /// Tell which path a client would take, and why none of the others
    Explain {
        /// Name or address of the export: NAME, NAME@HOST or NAME@HOST:PORT, perhaps with local:,
        /// eth:, udp: or tcp: in front
        #[arg(add = ArgValueCompleter::new(completions::addresses))]
        address: String,
    },
    /// Call the procedure that does nothing, and say how long it takes
    Ping(Ping),
    /// Show what a running server counts: calls, rates, latency, sessions, bindings
    Stat(Stat),
    /// Tell what this machine allows, what that costs a call, and how to mend it
    Doctor(Doctor),
    /// Remove what dead servers have left in the runtime directories
    Clean(Clean),
    /// Print a script that makes a shell complete verbs, options, exports, procedures and parameters
    Completions {
        /// Which shell
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Print the manual's page, or write all of them
    Man(Man),
    /// The demonstration's server of every kind of parameter.
    #[command(hide = true)]
    DemoServer(DemoServer),
    /// The other end of the demonstration's ping-pong.
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
    /// Copy this file rather than one that is made up
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, conflicts_with = "bytes")]
    pub(crate) file: Option<PathBuf>,
    /// Size of the file that is made up, such as 64M [default: 256M]
    #[arg(long, value_name = "N", value_parser = bytes)]
    pub(crate) bytes: Option<u64>,
    /// Measure for a shorter time
    #[arg(long)]
    pub(crate) quick: bool,
    /// The directory that this run lives in, made and removed by itself.
    #[arg(long, hide = true)]
    pub(crate) home: Option<PathBuf>,
}

/// Options of `serve`.
#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// Directory whose files are exported
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) dir: PathBuf,
    /// Name of the export [default: the directory's own]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Let every user of the machine call, not only this one
    #[arg(long)]
    pub(crate) public: bool,
    /// Let callers write files too
    #[arg(long)]
    pub(crate) writable: bool,
    /// Calls that run at one time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = value_parser!(u16).range(1..))]
    pub(crate) threads: u16,
    /// Listen also at a port, such as tcp:127.0.0.1:7000 or eth:192.0.2.7:7000 (port 0: any); may be given several times.
    /// Nothing on a network is encrypted yet, and whoever reaches the port may call
    #[arg(long, value_name = "ENDPOINT")]
    pub(crate) listen: Vec<String>,
    /// Allow --listen where other machines can reach it
    #[arg(long, requires = "listen")]
    pub(crate) beyond_this_machine: bool,
    /// Stop when this parent has ended.
    #[arg(long, hide = true, value_name = "PID")]
    pub(crate) parent: Option<u32>,
}

/// Options of `copy`.
#[derive(Args, Debug)]
pub(crate) struct Copy {
    /// Which file: NAME/PATH or NAME@HOST:PORT/PATH, perhaps with local:, eth:, udp: or tcp: in front
    #[arg(value_name = "ADDRESS/PATH")]
    pub(crate) from: String,
    /// Where the copy goes: a file, or a directory
    #[arg(value_name = "DEST", value_hint = ValueHint::AnyPath)]
    pub(crate) to: PathBuf,
}

/// Options of `ping`.
#[derive(Args, Debug)]
pub(crate) struct Ping {
    /// Name or address of the export: NAME, NAME@HOST or NAME@HOST:PORT, perhaps with local:, eth:,
    /// udp: or tcp: in front
    #[arg(add = ArgValueCompleter::new(completions::addresses))]
    pub(crate) name: String,
    /// How many calls
    #[arg(short, long, default_value_t = 10_000, value_parser = value_parser!(u32).range(1..=10_000_000))]
    pub(crate) count: u32,
    /// How to wait for each result
    #[arg(long, value_enum, default_value_t = WaitHow::Adaptive)]
    pub(crate) wait: WaitHow,
}

/// Options of `stat`.
#[derive(Args, Debug)]
pub(crate) struct Stat {
    /// Any name of a server of this machine, or the address of one: @HOST or @HOST:PORT, perhaps with
    /// eth:, udp: or tcp: in front [default: the only one here]
    #[arg(add = ArgValueCompleter::new(completions::addresses))]
    pub(crate) address: Option<String>,
    /// How long to count for each result, such as 200ms, 1s or 1m
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
    pub(crate) interval: Duration,
    /// Show one interval after the other: on a terminal in place, until `q` or Ctrl-C; elsewhere in
    /// lines
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// End after so many intervals [default: 1, or none with --watch]
    #[arg(short, long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}

/// Options of `describe`.
#[derive(Args, Debug)]
pub(crate) struct Describe {
    /// Name or address of the export: NAME, NAME@HOST or NAME@HOST:PORT, perhaps with local:, eth:,
    /// udp: or tcp: in front
    #[arg(add = ArgValueCompleter::new(completions::addresses), required_unless_present = "interface")]
    pub(crate) address: Option<String>,
    /// Show what was saved here, and ask nobody: JSON or a trait that `describe` has printed
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "address")]
    pub(crate) interface: Option<PathBuf>,
}

/// Options of `call`.
#[derive(Args, Debug)]
#[command(after_help = CALL_ARGUMENTS)]
pub(crate) struct Call {
    /// Name or address of the export: NAME, NAME@HOST or NAME@HOST:PORT, perhaps with local:, eth:,
    /// udp: or tcp: in front
    #[arg(add = ArgValueCompleter::new(completions::addresses))]
    pub(crate) address: String,
    /// Which procedure: `describe` shows what there is
    #[arg(add = ArgValueCompleter::new(completions::procedures))]
    pub(crate) procedure: String,
    /// NAME=VALUE, NAME:=JSON, NAME=@FILE, a JSON object or array, @FILE, or @- for standard input
    #[arg(value_name = "ARGUMENT", allow_hyphen_values = false, add = ArgValueCompleter::new(completions::parameters))]
    pub(crate) arguments: Vec<String>,
    /// Write what comes back in a buffer to a file, as it is; `-` is standard output
    #[arg(long, value_name = "NAME=FILE", add = ArgValueCompleter::new(completions::out_buffers))]
    pub(crate) out: Vec<String>,
    /// How bytes are shown
    #[arg(long, value_enum, default_value_t = ShownBytes::Auto)]
    pub(crate) bytes: ShownBytes,
    /// Give up after so long, such as 500ms or 2s
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) timeout: Option<Duration>,
    /// Call by this description, which was saved, rather than by what the server says
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) interface: Option<PathBuf>,
}

const CALL_ARGUMENTS: &str = "\
Arguments:
  path=hosts           a word: text as it is, numbers, enums and the rest as JSON
  sizes:='[1, 2]'      JSON in any case
  data=@photo.jpg      a file: its bytes or text, or the JSON in it
  into=64K             room for so many elements of a buffer that comes back
  '{\"path\": \"hosts\"}'  all of them by name; an array has them in order
  @arguments.json, @-  the same from a file, or from standard input

An option may be left out and is none then. Every other parameter is required.";

/// How bytes are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShownBytes {
    /// As text if they are text, otherwise as hexadecimal digits
    Auto,
    /// As text, in which what is none is replaced
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
    /// Measure nothing, and make no link of its own: only ask
    #[arg(long)]
    pub(crate) quick: bool,
}

/// Options of `clean`.
#[derive(Args, Debug)]
pub(crate) struct Clean {
    /// Only tell what would be removed
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Options of `man`.
#[derive(Args, Debug)]
pub(crate) struct Man {
    /// Write a page for each verb, and one for all, into this directory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,
}

/// Options of the demonstration's server.
#[derive(Args, Debug)]
pub(crate) struct DemoServer {
    /// Name of the export.
    #[arg(long)]
    pub(crate) name: String,
    /// How its threads wait.
    #[arg(long, value_enum)]
    pub(crate) wait: WaitHow,
    /// The process with which it ends.
    #[arg(long)]
    pub(crate) parent: u32,
}

/// Options of the ping-pong's other end.
#[derive(Args, Debug)]
pub(crate) struct DemoEcho {
    /// The shared memory, as a path.
    #[arg(long)]
    pub(crate) memory: PathBuf,
    /// The process with which it ends.
    #[arg(long)]
    pub(crate) parent: u32,
}

/// How one waits for the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WaitHow {
    /// Look at memory all the time
    Spin,
    /// Sleep in the kernel
    Block,
    /// Spin for about what sleeping costs, then sleep
    Adaptive,
}

impl WaitHow {
    /// As it is written on the command line.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Block => "block",
            Self::Adaptive => "adaptive",
        }
    }
}

impl From<WaitHow> for Wait {
    fn from(how: WaitHow) -> Self {
        match how {
            WaitHow::Spin => Self::Spin,
            WaitHow::Block => Self::Block,
            WaitHow::Adaptive => Self::Adaptive,
        }
    }
}

/// A time of 10 ms to a day, with its unit.
fn time(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let ms: f64 = match &text[digits.len()..] {
        "ms" => 1.0,
        "s" | "" => 1e3,
        "m" | "min" => 60e3,
        "h" => 3600e3,
        unit => return Err(format!("`{unit}` is no unit of time: ms, s, m or h")),
    };
    let number: f64 = digits.parse().map_err(|error| format!("{error}"))?;
    let all = number * ms;
    if !(10.0..=86_400e3).contains(&all) {
        return Err("expected 10ms to 24h".to_owned());
    }
    Ok(Duration::from_secs_f64(all / 1e3))
}

/// A number of bytes, perhaps with K, M or G behind it (powers of 1024).
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
