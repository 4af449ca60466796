//! The document: a part for each case, with transcripts in which what differs from run to run is
//! replaced in a few stated ways.

use core::fmt::Write as _;

use serde_json::Value;

use super::cases::{Case, Step};

/// A command line, and what it gave.
pub(crate) struct Shown {
    pub(crate) line: String,
    pub(crate) text: String,
    pub(crate) holds: Holds,
}

/// Whether the document must show the very same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// It must.
    Always,
    /// It must, but not here, where others export, too.
    Elsewhere,
    /// It is of the machine on which it was written.
    Never,
}

/// A transcript as it stands in the document.
pub(crate) struct Block {
    head: String,
    text: String,
    holds: Holds,
}

/// A case, and its transcripts.
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

    /// The block, or that of the document as it is if this machine's would differ. What is held nowhere
    /// is replaced with figures that were measured `well`.
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

/// The text without what differs from run to run.
pub(crate) fn plain(text: &str, differs: &[(String, String)]) -> String {
    placed(text, differs).split('\n').map(timeless).collect::<Vec<_>>().join("\n")
}

/// The text with its own names for this place and what runs in it.
pub(crate) fn placed(text: &str, differs: &[(String, String)]) -> String {
    differs.iter().fold(text.to_owned(), |text, (from, to)| exchanged(&text, from, to))
}

/// The text with one word in the place of another. In a column of numbers, before which are two
/// blanks at least and behind which are others, the word ends where the other did.
fn exchanged(text: &str, from: &str, to: &str) -> String {
    let (mut whole, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(from) {
        let (before, found) = rest.split_at(at);
        let behind = &found[from.len()..];
        whole.push_str(before);
        // A number is no part of another one, nor a path the beginning of a longer name.
        let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if whole.ends_with(part) || behind.starts_with(part) {
            whole.push_str(from);
        } else if from.bytes().all(|byte| byte.is_ascii_digit()) {
            aligned(&mut whole, from.len(), to, behind);
        } else {
            whole.push_str(to);
        }
        rest = behind;
    }
    whole + rest
}

/// Appends what stands for a text of so many letters, and before `behind`.
fn aligned(whole: &mut String, letters: usize, to: &str, behind: &str) {
    let is_last = behind.is_empty() || behind.starts_with('\n');
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

/// A line with `T` for each time, and `N` for each rate.
fn timeless(line: &str) -> String {
    const TIMES: [&str; 7] = ["ns", "us", "ms", "s", "min", "h", "d"];
    let (mut whole, mut rest) = (String::new(), line);
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, found) = rest.split_at(at);
        whole.push_str(before);
        let digits = found.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(found.len());
        let (number, behind) = found.split_at(digits);
        let unit = behind.strip_prefix(' ').unwrap_or_default();
        let unit = &unit
            [..unit.find(|c: char| !c.is_ascii_alphabetic() && c != '/').unwrap_or(unit.len())];
        let is_word = !whole.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '.');
        let is_rate = unit == "GB/s" || behind.starts_with(" per s)");
        // Those of who has just gone may stand a moment longer.
        let is_bindings = whole.trim_end().trim_end_matches(':').ends_with("bindings");
        rest = behind;
        if is_word && TIMES.contains(&unit) {
            rest = &behind[1 + unit.len()..];
            aligned(&mut whole, number.len() + 1 + unit.len(), "T", rest);
        } else if is_word && (is_rate || is_bindings) {
            aligned(&mut whole, number.len(), "N", rest);
        } else {
            whole.push_str(number);
        }
    }
    whole + rest
}

/// A JSON object on a line, as it was printed.
pub(crate) fn compact(value: Value, differs: &[(String, String)]) -> String {
    unquoted(&plain(&constant(value).to_string(), differs))
}

/// The same broken into lines.
pub(crate) fn pretty(value: Value, differs: &[(String, String)]) -> String {
    let text = serde_json::to_string_pretty(&constant(value)).expect("it was JSON");
    unquoted(&plain(&text, differs))
}

/// The value with placeholders for the times and rates in it.
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

What `peregrine` does, verb by verb. Every transcript here was produced by
`crates/peregrine-cli/tests/cli_book`, in a terminal of 100 columns or through a pipe; the test fails if one is no longer
so, and `PEREGRINE_WRITE=1 cargo test -p peregrine-cli --test cli_book` writes them anew. What differs from run to run is
replaced, in these ways and no others: T is a time, N a rate or a number of bindings; the directory in which all runs is `/home/ada`, its runtime
directory `/run/user/1000/peregrine`; the server of `files` is process 4711 and listens at the ports 7000 (UDP) and
7001 (TCP), a process that is shown itself is 4712 and listens at 7002. JSON is broken into lines; the command prints an
object as one. What `demo`, `doctor` and `man` show differs from machine to machine: it is not held, its figures are those
that were measured, and it is written anew only with `--release`.

**Addresses** are `NAME`, `NAME@HOST` or `NAME@HOST:PORT`, perhaps with `local:`, `eth:`, `udp:` or `tcp:` in front to
take that path and no other. Options stand anywhere: before the verb, behind it, between its words.

| option | says |
|---|---|
| `--format human` | text for people, the default: answers on standard output, talk on standard error |
| `--format json` | one object, alone on standard output; of a server one when it is ready, and one more if it fails or is interrupted |
| `--format ndjson` | an object a line: one for each result of verbs that have several |
| `--color auto`, `always`, `never` | when there are colours; `auto`: on a terminal, unless NO_COLOR is set or TERM is `dumb` |

| exit code | means |
|---|---|
| 0 | fine, also if whoever reads stops early (`peregrine list \\| head -1`) |
| 1 | the procedure itself said no |
| 2 | the command line makes no sense |
| 3 | it failed and nothing was executed: it may be repeated |
| 4 | it failed and may have been executed |
| 130 | Ctrl-C; of another signal 128 and its number |
";

/// The whole document. What this machine would show otherwise is taken from it as it was before, but
/// what is held nowhere only unless it was measured `well`.
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

/// Prose in lines of at most 120 letters.
fn folded(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("one at least");
        if !line.is_empty() && line.len() + 1 + word.len() > 120 {
            lines.push(word.to_owned());
        } else {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
    }
    lines.join("\n")
}

#[test]
fn what_differs_is_replaced_and_nothing_else() {
    let differs =
        [("512".to_owned(), "4711".to_owned()), ("/tmp/x".to_owned(), "/home/ada".to_owned())];
    for (text, shown) in [
        ("process 512 of 5120", "process 4711 of 5120"),
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
