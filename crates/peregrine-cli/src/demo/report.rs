//! The output of the demonstration: text that is printed during the run, or one JSON object at the end.

use std::time::Duration;

use serde_json::{Value, json};

use super::FileServer;
use super::copy::Copied;
use super::directions::DirectionResult;
use super::measure::Row;
use crate::args::Format;
use crate::files::CHUNK_BYTES;
use crate::output::{self, BAD, BOLD, DIM, Failure, GOOD, nanoseconds, print};

/// All results of the demonstration.
pub(super) struct Report {
    /// The path over which the file was copied on this machine.
    pub(super) path: String,
    /// The process ID of the server that exported the files.
    pub(super) server_process: u32,
    /// How long binding to the server took.
    pub(super) bind: Duration,
    /// The name of the file that was copied.
    pub(super) source: String,
    /// The result of the local copy.
    pub(super) copied: Copied,
    /// The results of copies over network paths.
    pub(super) far: Vec<(String, Copied)>,
    /// Why the copy over raw Ethernet was skipped. `None` if it was not skipped.
    pub(super) skipped: Option<String>,
    /// The number of bytes that were written with `Lent` parameters.
    pub(super) written: usize,
    /// The result for each parameter direction.
    pub(super) directions: Vec<DirectionResult>,
    /// The rows of the table of round trips.
    pub(super) rows: Vec<Row>,
}

impl Report {
    /// Prints the last part of the report.
    pub(super) fn finish(&self, took: Duration, format: Format) -> Result<(), Failure> {
        let seconds = took.as_secs_f64();
        if format.is_json() {
            return print(self.to_json(seconds));
        }
        output::say(format_args!(
            "\nDone in {seconds:.1} s; all processes and files of the demonstration are removed.\n\
             Next: {BOLD}peregrine serve DIR{BOLD:#}, then {BOLD}peregrine describe NAME{BOLD:#} \
             or {BOLD}peregrine call NAME read path=FILE offset=0{BOLD:#}"
        ))
    }

    fn to_json(&self, seconds: f64) -> Value {
        let rows: Vec<Value> = self.rows.iter().map(|row| row.to_json(&self.path)).collect();
        let directions: Vec<Value> = self.directions.iter().map(DirectionResult::to_json).collect();
        let mut file = self.copied.to_json();
        file["path"] = json!(self.source);
        let far = self.far.iter().map(|(path, copied)| (path.clone(), copied.to_json()));
        json!({
            "ok": true,
            "path": self.path,
            "client_process": std::process::id(),
            "server_process": self.server_process,
            "bind_ns": self.bind.as_nanos() as u64,
            "file": file,
            "far": far.collect::<serde_json::Map<_, _>>(),
            "skipped": self.skipped.iter().map(|why| json!({ "path": "ethernet", "why": why }))
                .collect::<Vec<_>>(),
            "lent": { "bytes": self.written, "verified": true },
            "directions": directions,
            "rows": rows,
            "seconds": seconds,
        })
    }
}

/// Prints text if the format is text. With JSON, prints nothing here: the object that is printed at the end
/// contains all results.
fn say(format: Format, line: impl core::fmt::Display) -> Result<(), Failure> {
    if format == Format::Human { output::say(line) } else { Ok(()) }
}

/// Prints the title.
pub(super) fn title(format: Format) -> Result<(), Failure> {
    say(format, format_args!("{BOLD}Peregrine{BOLD:#}: one trait, two processes, on every path\n"))
}

/// Prints the processes, and the path that connects them.
pub(super) fn served(format: Format, served: &FileServer) -> Result<(), Failure> {
    let bind = nanoseconds(served.bind.as_nanos() as f64);
    let (address, path) = (served.client.binding().address(), served.path());
    let means = match path.as_str() {
        "local" => "shared memory",
        _ => "no shared memory",
    };
    let (client, server) = (std::process::id(), served.process);
    say(
        format,
        format_args!(
            "  client   process {client}\n  \
             server   process {server}, `peregrine serve`, exports `{address}`\n  \
             path     {BOLD}{path}{BOLD:#}: {means}; bound in {bind}\n"
        ),
    )
}

/// Prints the result of the local copy.
pub(super) fn copied(format: Format, copied: &Copied) -> Result<(), Failure> {
    let mib = copied.bytes as f64 / f64::from(1 << 20);
    let [calls, direct, ratio] = copied.rates();
    let (calls, direct) = (calls / 1e9, direct / 1e9);
    let verified = mark(copied.source == copied.copy);
    say(
        format,
        format_args!(
            "  {verified} {mib:.1} MiB copied by read(path, offset, into: Out<u8>), 1 MiB per call\n     \
             {BOLD}{calls:.2} GB/s{BOLD:#}; the same reads without calls {direct:.2} GB/s: ratio {ratio:.2}\n     \
             {DIM}sha256 of file and copy: {}{DIM:#}",
            copied.source
        ),
    )
}

/// Prints the result of a copy over a network path.
pub(super) fn copied_far(
    format: Format,
    address: &str,
    path: &str,
    copied: &Copied,
) -> Result<(), Failure> {
    let [calls, _, ratio] = copied.rates();
    let verified = mark(copied.source == copied.copy);
    let calls = calls / 1e9;
    say(
        format,
        format_args!(
            "  {verified} the same file from {BOLD}{address}{BOLD:#}, with the same code\n     \
             {BOLD}{calls:.2} GB/s{BOLD:#} over {path} on this machine: ratio {ratio:.2}"
        ),
    )
}

/// Prints why a path is skipped.
pub(super) fn skipped(format: Format, path: &str, why: &str) -> Result<(), Failure> {
    say(format, format_args!("  {DIM}- {path} skipped: {why}{DIM:#}"))
}

/// Prints the result of writing with a `Lent` parameter.
pub(super) fn written(format: Format, bytes: usize, equal: bool) -> Result<(), Failure> {
    let mark = mark(equal);
    let call = "write(path, offset, bytes: Lent<u8>)";
    say(format, format_args!("  {mark} {bytes} bytes written by {call} and verified on disk\n"))
}

/// Prints the results for all parameter directions.
pub(super) fn directions(
    format: Format,
    process: u32,
    all: &[DirectionResult],
) -> Result<(), Failure> {
    let title = format_args!("{BOLD}Parameter directions{BOLD:#}");
    say(format, format_args!("{title}, served by process {process}"))?;
    for DirectionResult { direction, call, result, right } in all {
        say(format, format_args!("  {} {direction:9} {call:36} {result}", mark(*right)))?;
    }
    Ok(())
}

/// Prints the table of round trips.
pub(super) fn rows(format: Format, rows: &[Row]) -> Result<(), Failure> {
    let header =
        ["", "CALL", "PLACEMENT", "WAIT", "ROUND TRIP", "LIMIT", "KIND", "RATIO", "SPREAD"];
    let lines = rows.iter().map(|row| {
        let [ratio, low, high] = row.ratio;
        vec![
            String::new(),
            row.case.to_owned(),
            row.placement.to_owned(),
            row.wait.to_owned(),
            nanoseconds(row.ours_ns),
            nanoseconds(row.limit_ns),
            row.limit.to_owned(),
            format!("{ratio:.2}"),
            format!("{low:.2} to {high:.2}"),
        ]
    });
    let table = output::table(&header, &[4, 5, 7], lines.collect());
    say(
        format,
        format_args!(
            "\n{BOLD}Round trips{BOLD:#} compared with the limit of this machine, in alternating rounds\n{table}\n  \
             {DIM}lines: two processes exchange two cache lines and the same payload by polling\n  \
             futex: the same, but both sides sleep in the kernel: four system calls per round trip{DIM:#}"
        ),
    )
}

fn mark(right: bool) -> String {
    if right { format!("{GOOD}ok{GOOD:#}") } else { format!("{BAD}wrong{BAD:#}") }
}

impl Copied {
    /// Returns the bytes per second of reads with calls, the bytes per second of reads without calls, and the
    /// ratio of the durations. All three are medians over the chunks, so that a single preemption does not
    /// distort them.
    fn rates(&self) -> [f64; 3] {
        let median = |of: fn(&[Duration; 2]) -> f64| {
            let mut all: Vec<f64> = self.times.iter().map(of).collect();
            all.sort_unstable_by(f64::total_cmp);
            all.get(all.len() / 2).copied().unwrap_or(0.0)
        };
        let chunk = self.bytes.min(CHUNK_BYTES as u64) as f64;
        let calls = median(|[call, _]| call.as_secs_f64());
        let direct = median(|[_, direct]| direct.as_secs_f64());
        let ratio = median(|[call, direct]| call.as_secs_f64() / direct.as_secs_f64().max(1e-9));
        [chunk / calls.max(1e-9), chunk / direct.max(1e-9), ratio]
    }

    fn to_json(&self) -> Value {
        let [calls, direct, ratio] = self.rates();
        json!({
            "bytes": self.bytes,
            "chunk_bytes": CHUNK_BYTES,
            "sha256": self.source,
            "verified": self.source == self.copy,
            "bytes_per_s": calls,
            "limit": "pread",
            "limit_bytes_per_s": direct,
            "ratio": ratio,
        })
    }
}

impl DirectionResult {
    fn to_json(&self) -> Value {
        json!({
            "direction": self.direction,
            "call": self.call,
            "result": self.result,
            "ok": self.right,
        })
    }
}
