//! The experiment `instructions`: counts the instructions that a call executes in each of two builds.
//!
//! Callgrind counts the instructions of the program `examples/counted.rs`. Each of the two builds of this
//! program contains the library of another commit. For calls on the local path, callgrind runs both
//! processes, each on a separate processor. Each process then polls for the other's message long before the
//! message arrives, so every call takes the same branches.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use comfy_table::{CellAlignment, Table};
use peregrine::sys::pin_to;
use serde_json::{Value, json};

use super::callgrind::{Counts, per_call};
use crate::cases::Placement;
use crate::row::Format;
use crate::run_directory::RunDirectory;
use crate::subject::Failure;
use crate::{Progress, machine};

/// How long a process may run under callgrind. Usually it runs for about a second.
const LIMIT: Duration = Duration::from_secs(120);

const PATHS: [&str; 2] = ["in-process", "local"];
const CASES: [&str; 3] = ["null", "in-200", "in-1024"];
const WAIT: &str = "spin";

/// Two builds of the program that is counted.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The program of the older commit
    #[arg(long, value_name = "PROGRAM")]
    before: PathBuf,
    /// The program of the newer commit
    #[arg(long, value_name = "PROGRAM")]
    after: PathBuf,
    /// Calls of a run
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1000..=10_000_000))]
    calls: u32,
    /// Runs of each case
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=99))]
    runs: u32,
    /// How the result is shown
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// The number of instructions per call, by the name of the function.
type Functions = BTreeMap<String, u64>;

/// The counts of one process of one case, in both builds.
#[derive(Debug)]
struct Row {
    path: &'static str,
    case: &'static str,
    side: &'static str,
    /// The instructions of the older build, and those of the newer build.
    functions: [Functions; 2],
}

/// Counts instructions, and prints a table of all cases and a table of their functions.
pub(crate) fn run(options: &Options, progress: &Progress) -> Result<(), Failure> {
    if let Some(why) = missing() {
        eprintln!("instructions: skipped: {why}");
        return Ok(());
    }
    let here = Placement::TwoCores.processors(&machine::processors());
    if here.is_none() {
        eprintln!("local: skipped: only one processor may be used");
    }
    let directory = RunDirectory::make()?;
    let (before, after) = (directory.path().join("before"), directory.path().join("after"));
    copy_for_valgrind(&options.before, &before)?;
    copy_for_valgrind(&options.after, &after)?;
    let mut rows = Vec::new();
    for path in PATHS {
        let Some(processors) = here.or_else(|| (path == PATHS[0]).then_some([None; 2])) else {
            continue;
        };
        for case in CASES {
            let count = |name: &str, program: &Path| {
                progress.show(&format!("{name}: {path}, {case}"));
                Counted { program, directory: directory.path(), path, case, processors }
                    .sides(options.calls, options.runs)
            };
            let (before, after) = (count("before", &before)?, count("after", &after)?);
            for ((side, before), (_, after)) in before.into_iter().zip(after) {
                rows.push(Row { path, case, side, functions: [before, after] });
            }
        }
    }
    progress.show("");
    let text = match options.format {
        Format::Human => format!("{}\n\n{}", table(&rows), functions(&rows)),
        Format::Json => {
            let [before, after] = [&options.before, &options.after].map(|path| path.display());
            let text = json!({
                "experiment": "instructions",
                "machine": machine::description(),
                "before": before.to_string(),
                "after": after.to_string(),
                "rows": rows.iter().map(Row::json).collect::<Vec<Value>>(),
            });
            format!("{text:#}")
        }
    };
    writeln!(std::io::stdout().lock(), "{text}")?;
    Ok(())
}

/// Returns why instructions cannot be counted here, or `None` if they can.
fn missing() -> Option<&'static str> {
    let done = Command::new("valgrind").args(["--tool=callgrind", "--version"]).output();
    match done {
        Ok(done) if done.status.success() => None,
        _ => Some(
            "valgrind is not installed (Debian, Ubuntu: `apt-get install valgrind`; Fedora: `dnf \
             install valgrind`)",
        ),
    }
}

/// Copies a program. On x86-64 the copy is patched, so that it also runs under valgrind releases that lack
/// `pidfd_open`.
fn copy_for_valgrind(from: &Path, to: &Path) -> Result<(), Failure> {
    let name = |error| format!("cannot copy {}: {error}", from.display());
    fs::copy(from, to).map_err(name)?;
    if cfg!(target_arch = "x86_64") {
        let mut program = fs::read(to)?;
        replace_pidfd_open(&mut program);
        fs::write(to, program)?;
    }
    Ok(())
}

/// Patches a program so that it creates an inotify descriptor instead of a descriptor of a process. Under
/// Valgrind 3.19, `pidfd_open` fails with `ENOSYS`, and then no client can bind. The inotify descriptor never
/// becomes readable, so the server does not notice that the client ends. The patch does not change the code
/// of calls.
fn replace_pidfd_open(program: &mut [u8]) {
    /// The instruction `mov eax, 434`, which loads the number of `pidfd_open`.
    const PIDFD_OPEN: [u8; 5] = [0xb8, 0xb2, 0x01, 0, 0];
    /// The instruction that replaces `PIDFD_OPEN`. It loads the number of `inotify_init`, which takes no
    /// argument.
    const INOTIFY_INIT: [u8; 5] = [0xb8, 0xfd, 0, 0, 0];
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    /// The instruction `syscall` must follow the instruction `PIDFD_OPEN` within this number of bytes. The
    /// instructions in between load the arguments.
    const BETWEEN: usize = 12;
    let mut at = 0;
    while at + PIDFD_OPEN.len() + BETWEEN <= program.len() {
        let (head, rest) = program[at..].split_at_mut(PIDFD_OPEN.len());
        if *head == PIDFD_OPEN && rest[..BETWEEN].windows(2).any(|two| two == SYSCALL) {
            head.copy_from_slice(&INOTIFY_INIT);
        }
        at += 1;
    }
}

/// One case, as one of the two builds runs it.
struct Counted<'a> {
    program: &'a Path,
    /// The directory for exports and counts.
    directory: &'a Path,
    path: &'static str,
    case: &'static str,
    /// The processors of the client and of the server. `None` lets the scheduler choose.
    processors: [Option<u32>; 2],
}

impl Counted<'_> {
    /// Returns the numbers of instructions per call for each process.
    fn sides(&self, calls: u32, runs: u32) -> Result<Vec<(&'static str, Functions)>, Failure> {
        let idle = self.count(0)?;
        let runs = (0..runs).map(|_| self.count(calls)).collect::<Result<Vec<_>, _>>()?;
        let mut sides = Vec::new();
        for (number, (side, idle)) in idle.into_iter().enumerate() {
            let runs: Vec<Counts> = runs.iter().map(|run| run[number].1.clone()).collect();
            sides.push((side, per_call(&idle, &runs, calls)));
        }
        Ok(sides)
    }

    /// Runs the processes of the case once.
    fn count(&self, calls: u32) -> Result<Vec<(&'static str, Counts)>, Failure> {
        let calls = calls.to_string();
        let client = [self.path, self.case, WAIT, &calls];
        if self.path == PATHS[0] {
            Process::start(self, "process", None, &client)?.end()?;
            return Ok(vec![("process", self.counts("process")?)]);
        }
        let [here, there] = self.processors;
        let mut server = Process::start(self, "server", there, &["serve", WAIT])?;
        server.wait_until_ready()?;
        Process::start(self, "client", here, &client)?.end()?;
        server.end()?;
        ["client", "server"].into_iter().map(|side| Ok((side, self.counts(side)?))).collect()
    }

    fn counts(&self, side: &str) -> Result<Counts, Failure> {
        Counts::read(&fs::read_to_string(self.directory.join(side).with_extension("counts"))?)
    }
}

/// A process under callgrind. Dropping this value kills the process.
struct Process {
    child: Child,
    input: Option<ChildStdin>,
    /// What the process and valgrind wrote.
    log: PathBuf,
}

impl Process {
    fn start(
        counted: &Counted<'_>,
        side: &str,
        processor: Option<u32>,
        words: &[&str],
    ) -> Result<Self, Failure> {
        let place = counted.directory.join(side);
        let (counts, log) = (place.with_extension("counts"), place.with_extension("log"));
        let mut command = Command::new("valgrind");
        command
            .args(["--tool=callgrind", "--dump-instr=yes"])
            .args(["--compress-pos=no", "--compress-strings=no"])
            .arg(format!("--callgrind-out-file={}", counts.display()))
            .arg(counted.program)
            .args(words)
            .env("PEREGRINE_DIR", counted.directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?);
        // A process inherits the processor of the thread that starts it.
        let start = || {
            processor.map_or(Ok(()), pin_to)?;
            command.spawn()
        };
        let mut child = std::thread::scope(|scope| {
            let thread = scope.spawn(start);
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        let input = child.stdin.take();
        Ok(Self { child, input, log })
    }

    /// Waits for the line that the server writes once clients can bind.
    fn wait_until_ready(&mut self) -> Result<(), Failure> {
        let output = self.child.stdout.take().ok_or("the process has no output")?;
        let mut line = String::new();
        // The read returns at the latest when the process ends.
        BufReader::new(output).read_line(&mut line)?;
        if line == "ready\n" { Ok(()) } else { Err(self.failure("the server did not start")) }
    }

    /// Closes the standard input of the process, and waits until the process has ended. A server ends when
    /// its standard input ends.
    fn end(mut self) -> Result<(), Failure> {
        drop(self.input.take());
        let start = Instant::now();
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(self.failure(&status.to_string())),
                None if start.elapsed() > LIMIT => {
                    return Err(self.failure("the process did not end in time"));
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Returns an error with the last lines that the process wrote.
    fn failure(&self, what: &str) -> Failure {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(20)..].join("\n");
        format!("cannot count instructions: {what}\n{last}").into()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // `kill` and `wait` fail if the process has ended already. This is not an error.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Row {
    fn sums(&self) -> [u64; 2] {
        [0, 1].map(|build: usize| self.functions[build].values().sum())
    }

    /// Returns the name of each function, and its numbers of instructions in the older and in the newer
    /// build.
    fn by_function(&self) -> Vec<(&str, [u64; 2])> {
        let names: BTreeSet<&str> =
            self.functions.iter().flat_map(BTreeMap::keys).map(String::as_str).collect();
        let of = |name: &str| {
            [0, 1].map(|build: usize| self.functions[build].get(name).copied().unwrap_or(0))
        };
        let mut all: Vec<_> = names.into_iter().map(|name| (name, of(name))).collect();
        all.sort_by_key(|(_, [before, after])| std::cmp::Reverse(*before.max(after)));
        all
    }

    fn json(&self) -> Value {
        let [before, after] = self.sums();
        let functions = self.by_function().into_iter().map(
            |(name, [before, after])| json!({ "function": name, "before": before, "after": after }),
        );
        json!({
            "path": self.path,
            "case": self.case,
            "side": self.side,
            "before": before,
            "after": after,
            "difference": after.cast_signed() - before.cast_signed(),
            "functions": functions.collect::<Vec<_>>(),
        })
    }
}

/// Returns the cells of the columns `before`, `after` and `difference`. A difference other than 0 has a sign.
fn cells([before, after]: [u64; 2]) -> [String; 3] {
    let difference = after.cast_signed() - before.cast_signed();
    let difference = if difference == 0 { "0".to_owned() } else { format!("{difference:+}") };
    [before.to_string(), after.to_string(), difference]
}

fn table_of(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(header);
    for number in 3..6 {
        if let Some(column) = table.column_mut(number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn table(rows: &[Row]) -> String {
    let mut table = table_of(&["path", "case", "side", "before", "after", "difference"]);
    for row in rows {
        let fields = [row.path, row.case, row.side].map(str::to_owned);
        table.add_row(fields.into_iter().chain(cells(row.sums())));
    }
    table.trim_fmt()
}

fn functions(rows: &[Row]) -> String {
    let header = ["path", "case", "side", "before", "after", "difference", "function"];
    let mut table = table_of(&header);
    for row in rows {
        for (name, sums) in row.by_function() {
            let fields = [row.path, row.case, row.side].map(str::to_owned);
            table.add_row(fields.into_iter().chain(cells(sums)).chain([name.to_owned()]));
        }
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_call_is_replaced_only_where_it_is_made() {
        let load = [0xb8, 0xb2, 0x01, 0, 0];
        let made = [&load[..], &[0x48, 0x89, 0xef, 0x31, 0xf6, 0x0f, 0x05], &[0x90; 20]].concat();
        let number = [&load[..], &[0x90; 27]].concat();
        let mut program = [made.clone(), number.clone(), load.to_vec()].concat();
        replace_pidfd_open(&mut program);
        assert_eq!(program[..5], [0xb8, 0xfd, 0, 0, 0]);
        assert_eq!(program[5..], [&made[5..], &number, &load].concat());
        replace_pidfd_open(&mut []);
    }

    #[test]
    fn difference_has_a_sign_and_functions_of_one_build_are_shown() {
        let functions = |name: &str, sum| Functions::from([(name.to_owned(), sum)]);
        let row = Row {
            path: "local",
            case: "null",
            side: "client",
            functions: [functions("old", 100), functions("new", 97)],
        };
        assert_eq!(cells(row.sums()), ["100", "97", "-3"]);
        assert_eq!(row.by_function(), [("old", [100, 0]), ("new", [0, 97])]);
        assert_eq!(row.json()["difference"], -3);
        assert_eq!(cells([4, 4])[2], "0");
    }
}
