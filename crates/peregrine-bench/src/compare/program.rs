//! Runs one of the two builds that are compared, and reads the rows of its results. Also reads from its help
//! text which options select rows.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::subject::Failure;

/// The options that select rows. Each has the name of a field of a row.
pub(crate) const OPTIONS: [&str; 7] =
    ["case", "placement", "wait", "link", "path", "callers", "bindings"];

/// The fields that identify a row. The limit is not one of them, because rows that differ only in their limit
/// contain the same measured time of Peregrine. Only the first of such rows is kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// The index of the experiment in the list of runs.
    pub(crate) run: usize,
    /// The kind of call.
    pub(crate) case: String,
    /// The other fields, in the order of [`OPTIONS`].
    fields: [Option<String>; 6],
}

impl Key {
    fn of(run: usize, row: &Value) -> Option<Self> {
        let text = |name: &str| match &row[name] {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let fields = std::array::from_fn(|place| text(OPTIONS[place + 1]));
        Some(Self { run, case: text("case")?, fields })
    }

    /// Returns the value of a field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        if name == OPTIONS[0] {
            return Some(&self.case);
        }
        let place = OPTIONS[1..].iter().position(|option| *option == name)?;
        self.fields[place].as_deref()
    }
}

/// The result of one run for a row, in nanoseconds per call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) ours_ns: f64,
    pub(crate) limit_ns: Option<f64>,
}

/// Options, and the values that each option accepts. An empty list means that the option accepts any value.
type Choices = BTreeMap<String, Vec<String>>;

/// A build of this program.
#[derive(Debug)]
pub(crate) struct Program {
    path: PathBuf,
    /// The options of each experiment, which are read once from the experiment's help text.
    choices: BTreeMap<String, Choices>,
}

impl Program {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), choices: BTreeMap::new() }
    }

    /// Runs an experiment, and returns its rows.
    pub(crate) fn measure(
        &self,
        run: usize,
        words: &[String],
    ) -> Result<BTreeMap<Key, Sample>, Failure> {
        let done = Command::new(&self.path).args(words).args(["--format", "json"]).output()?;
        if !done.status.success() {
            let errors = String::from_utf8_lossy(&done.stderr);
            return Err(format!("{}: {}", done.status, errors.trim()).into());
        }
        let all: Value = serde_json::from_slice(&done.stdout)?;
        Ok(rows(run, all["rows"].as_array().ok_or("the output has no rows")?))
    }

    /// Returns whether an experiment has an option of this name that accepts the value.
    fn accepts(&mut self, experiment: &str, option: &str, value: &str) -> bool {
        let choices = self.choices.entry(experiment.to_owned()).or_insert_with(|| {
            let done = Command::new(&self.path).args([experiment, "-h"]).output();
            let text = done.map(|done| String::from_utf8_lossy(&done.stdout).into_owned());
            choices(&text.unwrap_or_default())
        });
        let values = choices.get(option);
        values.is_some_and(|all| all.is_empty() || all.iter().any(|one| one == value))
    }
}

fn rows(run: usize, rows: &[Value]) -> BTreeMap<Key, Sample> {
    let mut found = BTreeMap::new();
    for row in rows {
        let (Some(key), Some(ours_ns)) = (Key::of(run, row), row["ours_ns"].as_f64()) else {
            continue; // a row without Peregrine's time
        };
        if ours_ns > 0.0 {
            let limit_ns = row["limit_ns"].as_f64().filter(|ns| *ns > 0.0);
            found.entry(key).or_insert(Sample { ours_ns, limit_ns });
        }
    }
    found
}

/// Reads the options of a short help text, and their possible values.
fn choices(help: &str) -> Choices {
    let mut texts: Vec<String> = Vec::new();
    for line in help.lines().map(str::trim) {
        match texts.last_mut() {
            _ if line.starts_with('-') => texts.push(line.to_owned()),
            Some(text) => *text = format!("{text} {line}"),
            None => {}
        }
    }
    let option = |text: String| {
        let (_, name) = text.split_once("--")?;
        let name = name.split(|c: char| c.is_whitespace() || c == '=').next()?.to_owned();
        let values = text.split_once("[possible values: ").and_then(|(_, all)| all.split_once(']'));
        let values = values.map_or("", |(all, _)| all).split(',').map(str::trim);
        let values = values.filter(|value| !value.is_empty()).map(str::to_owned).collect();
        Some((name, values))
    };
    texts.into_iter().filter_map(option).collect()
}

/// Returns the command line of an experiment, with options that select only one row. Options that only one of
/// the two programs has are left out.
pub(crate) fn narrowed(
    words: &[String],
    row: &Key,
    options: &[&str],
    programs: &mut [Program; 2],
) -> Vec<String> {
    let mut words = words.to_vec();
    let Some(experiment) = words.first().cloned() else { return words };
    for option in options {
        let Some(value) = row.field(option) else { continue };
        if programs.iter_mut().all(|program| program.accepts(&experiment, option, value)) {
            words = without(&words, &format!("--{option}"));
            words.extend([format!("--{option}"), value.to_owned()]);
        }
    }
    words
}

/// Removes an option and its values from the words of a command line. Returns the other words.
fn without(words: &[String], option: &str) -> Vec<String> {
    let (mut kept, mut words) = (Vec::new(), words.iter());
    while let Some(word) = words.next() {
        if word == option {
            words.next();
        } else if word.strip_prefix(option).is_none_or(|rest| !rest.starts_with('=')) {
            kept.push(word.clone());
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const HELP: &str = "\
Calls to another process

Usage: peregrine-bench local [OPTIONS]

Options:
      --quick              Fewer and shorter rounds: ends within 45 seconds
      --case <NAME>        Only this case (may be repeated) [possible values: local-call, null,
                           in-16m]
      --rounds <N>         Rounds per row
      --bindings <N>       Only rows of so many bindings (may be repeated) [possible values: 1,
                           10]
  -h, --help               Print help (see more with '--help')
";

    fn program() -> Program {
        let choices = BTreeMap::from([("local".to_owned(), choices(HELP))]);
        Program { path: PathBuf::new(), choices }
    }

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn options_and_values_are_read_from_wrapped_help() {
        let mut program = program();
        assert!(program.accepts("local", "case", "null"));
        assert!(program.accepts("local", "case", "in-16m"));
        assert!(!program.accepts("local", "case", "in-17m"));
        assert!(program.accepts("local", "rounds", "3"));
        assert!(!program.accepts("local", "wait", "spin"));
        assert!(!program.accepts("local", "bindings", "0"));
    }

    #[test]
    fn row_is_narrowed_by_options_that_both_programs_have() {
        let row = json!({
            "case": "null", "path": "local", "wait": "spin", "callers": 1, "bindings": 10,
            "ours_ns": 7.0, "limit_ns": null,
        });
        let rows = rows(0, &[row]);
        let (key, sample) = rows.first_key_value().unwrap();
        assert_eq!(*sample, Sample { ours_ns: 7.0, limit_ns: None });
        let mut programs = [program(), program()];
        let base = words("local --quick --case in-16m --case=null --rounds 3");
        assert_eq!(
            narrowed(&base, key, &OPTIONS, &mut programs),
            words("local --quick --rounds 3 --case null --bindings 10")
        );
        programs[0].choices.get_mut("local").unwrap().remove("bindings");
        let narrow = narrowed(&base, key, &OPTIONS, &mut programs);
        assert_eq!(narrow, words("local --quick --rounds 3 --case null"));
    }

    #[test]
    fn rows_of_one_call_with_several_limits_are_merged() {
        let row = |limit: &str, ours: Option<f64>| json!({ "case": "null", "limit": limit, "ours_ns": ours, "limit_ns": 5.0 });
        let all = [row("lines", None), row("lines", Some(7.0)), row("spin", Some(7.0))];
        assert_eq!(rows(0, &all).len(), 1);
    }
}
