//! Generates the document `docs/CLI.md`: a section per case, with transcripts. Placeholders replace texts
//! that differ between runs.

use core::fmt::Write as _;

use serde_json::Value;

use super::cases::{Case, Step};

/// A command line and its output.
pub(crate) struct Shown {
    pub(crate) line: String,
    pub(crate) text: String,
    pub(crate) holds: Holds,
}

/// On which machines the output of a command must be the same as in the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// On every machine.
    Always,
    /// Only on other machines. On this one, other servers have exports, or this user cannot read
    /// `/run/peregrine`.
    Elsewhere,
    /// Never: the output depends on the machine.
    Never,
}

/// A transcript in the document.
pub(crate) struct Block {
    head: String,
    text: String,
    holds: Holds,
}

/// A case and its transcripts.
pub(crate) struct Part {
    pub(crate) case: &'static Case,
    pub(crate) blocks: Vec<Block>,
}

impl Block {
    pub(crate) fn new(step: &Step, shown: Shown) -> Self {
        let Shown { line, text, holds } = shown;
        let mut lines: Vec<&str> = text.lines().collect();
        if lines.len() > step.lines {
            lines.truncate(step.lines);
            lines.push("...");
        }
        let wide = if step.columns < 100 { "    # in a terminal of 40 columns" } else { "" };
        let code =
            if step.code == 0 { String::new() } else { format!("[exit code {}]\n", step.code) };
        let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>() + &code;
        Self { head: format!("$ peregrine {line}{wide}\n"), text, holds }
    }

    /// Returns the text of the block for the new document. The text comes from this test run, or from the
    /// same block of the existing document `before`. With [`Holds::Elsewhere`], it comes from the existing
    /// document. With [`Holds::Never`], it comes from this run only in an optimized build (`well`).
    fn whole(&self, before: &str, well: bool) -> String {
        let keeps = match self.holds {
            Holds::Always => false,
            Holds::Elsewhere => true,
            Holds::Never => !well,
        };
        if keeps
            && let Some((_, rest)) = before.split_once(&format!("```console\n{}", self.head))
            && let Some((text, _)) = rest.split_once("```\n")
        {
            return format!("```console\n{}{text}```\n", self.head);
        }
        format!("```console\n{}{}```\n", self.head, self.text)
    }
}

/// Replaces everything that differs between runs by placeholders.
pub(crate) fn plain(text: &str, differs: &[(String, String)]) -> String {
    placed(text, differs).split('\n').map(timeless).collect::<Vec<_>>().join("\n")
}

/// Replaces directories, process IDs and ports. What has been replaced is not replaced again: a process ID may
/// equal the port that stands in the document.
pub(crate) fn placed(text: &str, differs: &[(String, String)]) -> String {
    let (mut whole, mut end) = (String::new(), 0);
    let next = |end: usize| {
        let found =
            differs.iter().filter_map(|(from, to)| Some((word(text, end, from)?, from, to)));
        found.min_by_key(|(start, from, _)| (*start, usize::MAX - from.len()))
    };
    while let Some((start, from, to)) = next(end) {
        whole.push_str(&text[end..start]);
        end = start + from.len();
        if from.bytes().all(|byte| byte.is_ascii_digit()) {
            // The columns of tables stay aligned.
            aligned(&mut whole, from.len(), to, &text[end..]);
        } else {
            whole.push_str(to);
        }
    }
    whole + &text[end..]
}

/// Returns where the whole word `word` begins in `text`, at `from` or later. A part of a longer name or number
/// is no word.
fn word(text: &str, from: usize, word: &str) -> Option<usize> {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut places = text[from..].match_indices(word).map(|(at, _)| from + at);
    places.find(|at| !text[..*at].ends_with(part) && !text[at + word.len()..].starts_with(part))
}

/// Appends `to` in place of a text of `letters` characters. `after` is the text after the replaced text. In a
/// table column that is not the last, first adds or removes spaces, so that `to` ends where the replaced text
/// ended. Two spaces at the end of `whole` show that the text is in a table.
fn aligned(whole: &mut String, letters: usize, to: &str, after: &str) {
    let is_last = after.is_empty() || after.starts_with('\n');
    if whole.ends_with("  ") && !is_last {
        for _ in to.len()..letters {
            whole.push(' ');
        }
        for _ in letters..to.len() {
            if whole.ends_with("   ") {
                whole.pop();
            }
        }
    }
    whole.push_str(to);
}

/// Replaces durations with `T`, and rates with `N`.
fn timeless(line: &str) -> String {
    const TIMES: [&str; 7] = ["ns", "us", "ms", "s", "min", "h", "d"];
    let (mut whole, mut rest) = (String::new(), line);
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, found) = rest.split_at(at);
        whole.push_str(before);
        let digits = found.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(found.len());
        let (number, after) = found.split_at(digits);
        let unit = after.strip_prefix(' ').unwrap_or_default();
        let unit = &unit
            [..unit.find(|c: char| !c.is_ascii_alphabetic() && c != '/').unwrap_or(unit.len())];
        let is_word = !whole.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '.');
        let is_rate = unit == "GB/s" || after.starts_with(" per s)");
        // A number of bindings is replaced, too, because the server may briefly count the bindings of a
        // client that has ended.
        let is_bindings = whole.trim_end().trim_end_matches(':').ends_with("bindings");
        rest = after;
        if is_word && TIMES.contains(&unit) {
            rest = &after[1 + unit.len()..];
            aligned(&mut whole, number.len() + 1 + unit.len(), "T", rest);
        } else if is_word && (is_rate || is_bindings) {
            aligned(&mut whole, number.len(), "N", rest);
        } else {
            whole.push_str(number);
        }
    }
    whole + rest
}

/// Formats a JSON object on one line.
pub(crate) fn compact(value: Value, differs: &[(String, String)]) -> String {
    unquoted(&plain(&constant(value).to_string(), differs))
}

/// Formats a JSON object on several lines.
pub(crate) fn pretty(value: Value, differs: &[(String, String)]) -> String {
    let text = serde_json::to_string_pretty(&constant(value)).expect("valid JSON");
    unquoted(&plain(&text, differs))
}

/// Replaces the times and rates in a JSON value with placeholders.
fn constant(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.into_iter().map(|(name, value)| {
                let is_time = name.ends_with("_ns") || name.ends_with("_ms") || name == "seconds";
                let value = match value {
                    Value::Number(_) if is_time => "T".into(),
                    Value::Number(_) if name.ends_with("per_s") || name == "bindings" => "N".into(),
                    value => constant(value),
                };
                (name, value)
            });
            Value::Object(members.collect())
        }
        Value::Array(values) => values.into_iter().map(constant).collect(),
        value => value,
    }
}

fn unquoted(text: &str) -> String {
    text.replace("\"T\"", "T").replace("\"N\"", "N")
}

const HEAD: &str = "\
# The command line

All commands of `peregrine`, with transcripts. The test `crates/peregrine-cli/tests/cli_book` runs
every command line, in a terminal with 100 columns or in a pipe, and compares the output with this
document. `PEREGRINE_WRITE=1 cargo test -p peregrine-cli --test cli_book` generates the document.

Texts that differ between runs are replaced:

* T is a time; N is a rate or a number of bindings.
* The working directory is `/home/ada`, and the runtime directory `/run/user/1000/peregrine`.
* The server of `files` is process 4711, and listens on the ports 7000 (UDP) and 7001 (TCP). A
  server that the transcript starts is process 4712, and listens on port 7002.
* JSON is shown on several lines; the command prints each object on one line.
* The output of `demo`, `doctor`, `stat` and `man` depends on the machine and is not compared. Its
  times are measured by a test run with `--release`.

**Addresses** are `NAME`, `NAME@HOST` or `NAME@HOST:PORT`. The prefix `local:`, `eth:`, `udp:` or
`tcp:` selects one path. Options can be anywhere on the command line.

| option | meaning |
|---|---|
| `--format human` | text (default): results on standard output, notes on standard error |
| `--format json` | one object on standard output; `serve` prints a second one if it fails |
| `--format ndjson` | one object per line, for each result of a command that has several |
| `--color auto` | colours on a terminal, unless NO_COLOR is set or TERM is `dumb` |
| `--color always`, `never` | colours always or never |
| `--directory SCHEME:WHERE` | where to find the servers of names, such as `file:PATH` |

| exit code | meaning |
|---|---|
| 0 | success, also if the reader closes the pipe early (`peregrine list \\| head -1`) |
| 1 | an error of the procedure; `compare`: a change breaks clients; `--check`: not up to date |
| 2 | usage error |
| 3 | the command failed and nothing was executed: it is safe to repeat it |
| 4 | the command failed and the call may have been executed |
| 5, 6 | `health`: the server is about to stop (5), or overloaded (6) |
| 7 | `health`: the server reports what this version does not know |
| 130 | interrupted by Ctrl-C; for another signal, 128 plus its number |
";

/// Returns the whole document. Transcripts that depend on the machine are taken from the existing
/// document `before`, unless an optimized build (`well`) measured them.
pub(crate) fn whole(parts: &[Part], before: &str, well: bool) -> String {
    let mut text = HEAD.to_owned();
    for Part { case, blocks } in parts {
        let _ = write!(text, "\n## {}\n\n{}\n", case.title, folded(case.text));
        for block in blocks {
            let _ = write!(text, "\n{}", block.whole(before, well));
        }
    }
    text
}

/// Folds prose to lines of at most 100 characters.
fn folded(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("at least one line");
        if !line.is_empty() && line.len() + 1 + word.len() > 100 {
            lines.push(word.to_owned());
        } else {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
    }
    lines.join("\n")
}

#[test]
fn only_differing_texts_are_replaced() {
    let differs = [("512", "4711"), ("/tmp/x", "/home/ada"), ("4711", "4712")];
    let differs = differs.map(|(from, to)| (from.to_owned(), to.to_owned()));
    for (text, shown) in [
        ("process 512 of 5120", "process 4711 of 5120"),
        ("process 4711 of server 512", "process 4712 of server 4711"),
        ("files   512   30 s  512  /tmp/x/run", "files  4711      T  4711  /home/ada/run"),
        ("/tmp/xy", "/tmp/xy"),
        ("min 1.23 us  median 451 ns (2000 per s)", "min T  median T (N per s)"),
        ("5 bytes: 0.53 GB/s", "5 bytes: N GB/s"),
        ("version 3 sha 1 sorts", "version 3 sha 1 sorts"),
        ("bindings: 1", "bindings: N"),
        ("  bindings   0", "  bindings   N"),
    ] {
        assert_eq!(plain(text, &differs), shown);
    }
}
