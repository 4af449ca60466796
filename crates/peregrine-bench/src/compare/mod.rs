//! The experiment `compare`: measures two builds of this program alternately, and compares the results row by
//! row.
//!
//! The script `crates/peregrine-bench/compare` builds two commits and starts this experiment. This experiment
//! runs the other experiments of both builds, and uses only their JSON output.

pub(crate) mod callgrind;
mod decision;
pub(crate) mod instructions;
mod program;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use clap::Args;

use self::decision::{Decision, decide};
use self::program::{Key, Program, Sample};
use crate::row::Format;
use crate::subject::Failure;
use crate::{Progress, machine};

/// The command lines of the experiments that are run by default.
const RUNS: [&str; 2] = ["local --quick", "network --quick"];

/// Two builds, and how they are compared.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The program of the older commit
    #[arg(long, value_name = "PROGRAM")]
    before: PathBuf,
    /// The program of the newer commit
    #[arg(long, value_name = "PROGRAM")]
    after: PathBuf,
    /// What both programs run, as in 'local --quick --case null' (may be repeated). Without it:
    /// 'local --quick' and 'network --quick'
    #[arg(long = "run", value_name = "WORDS")]
    runs: Vec<String>,
    /// Turns of every row. In a turn, both programs measure the row once
    #[arg(long, value_name = "N", default_value_t = 4)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    turns: u32,
    /// The largest number of turns of a row. A row gets more than '--turns' turns only while it is undecided
    /// whether the row is slower
    #[arg(long, value_name = "N", default_value_t = 24)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    turns_max: u32,
    /// How the result is shown
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// The results of both programs for one row, in the order of the turns.
#[derive(Clone, Debug, Default)]
struct Pairs {
    before: Vec<Sample>,
    after: Vec<Sample>,
}

impl Pairs {
    /// Returns the ratio of the new time to the old time for each turn. In a turn, one of these times is
    /// measured shortly after the other.
    fn ratios(&self) -> Vec<f64> {
        let pairs = self.before.iter().zip(&self.after);
        pairs.map(|(before, after)| after.ours_ns / before.ours_ns).collect()
    }

    /// Returns the ratio of the limit's new time to its old time for each turn. The limit is the program with
    /// which Peregrine is compared. It is the same in both builds, so these ratios show the influence of the
    /// machine.
    fn limit_ratios(&self) -> Vec<f64> {
        let pairs = self.before.iter().zip(&self.after);
        pairs.filter_map(|(before, after)| Some(after.limit_ns? / before.limit_ns?)).collect()
    }

    fn decision(&self) -> Decision {
        decide(&self.ratios())
    }
}

/// All results, and the measurements that failed.
#[derive(Debug, Default)]
struct Comparison {
    rows: BTreeMap<Key, Pairs>,
    /// The rows that only the older program has.
    before_only: BTreeSet<Key>,
    /// The rows that only the newer program has.
    after_only: BTreeSet<Key>,
    failures: Vec<String>,
}

/// Runs all measurements, and prints the table. Fails if a measurement failed.
pub(crate) fn run(options: &Options, progress: &Progress) -> Result<(), Failure> {
    let names = RUNS.map(str::to_owned);
    let runs = if options.runs.is_empty() { &names[..] } else { &options.runs[..] };
    let mut programs = [&options.before, &options.after].map(|path| Program::new(path));
    let mut all = Comparison::default();
    for (number, run) in runs.iter().enumerate() {
        let words: Vec<String> = run.split_whitespace().map(str::to_owned).collect();
        all.run(number, &words, options, &mut programs, progress);
    }
    progress.show("");
    // One turn may miss a row that both programs measured in another turn. Such a row is not listed as a row
    // of only one program.
    all.before_only.retain(|key| !all.rows.contains_key(key));
    all.after_only.retain(|key| !all.rows.contains_key(key));
    let paths = [&options.before, &options.after].map(|path| path.display().to_string());
    report::show(&all, runs, &paths, &machine::description(), options.format)?;
    if all.failures.is_empty() { Ok(()) } else { Err(all.failures.join("\n").into()) }
}

impl Comparison {
    /// Measures one experiment: first all of it, then case by case, then only undecided rows.
    fn run(
        &mut self,
        number: usize,
        words: &[String],
        options: &Options,
        programs: &mut [Program; 2],
        progress: &Progress,
    ) {
        if self.turn(number, words, 0, programs, progress).is_none() {
            return;
        }
        let keys: Vec<Key> = self.rows.keys().filter(|key| key.run == number).cloned().collect();
        let narrow = |key: &Key, options: &[&str], programs: &mut [Program; 2]| {
            program::narrowed(words, key, options, programs)
        };
        // The next turns measure case by case. So the two measurements of a row are seconds apart, not
        // minutes as in a whole run.
        let cases: BTreeSet<Vec<String>> =
            keys.iter().map(|key| narrow(key, &["case"], programs)).collect();
        for turn in 1..options.turns {
            for words in &cases {
                self.turn(number, words, turn, programs, progress);
            }
        }
        for turn in options.turns..options.turns_max {
            let undecided = |key: &&Key| self.rows[*key].decision() == Decision::Undecided;
            let rows: BTreeSet<Vec<String>> = keys
                .iter()
                .filter(undecided)
                .map(|key| narrow(key, &program::OPTIONS, programs))
                .collect();
            if rows.is_empty() {
                break;
            }
            for words in &rows {
                self.turn(number, words, turn, programs, progress);
            }
        }
    }

    /// Runs both programs once. Returns `None` if one of them fails.
    fn turn(
        &mut self,
        number: usize,
        words: &[String],
        turn: u32,
        programs: &mut [Program; 2],
        progress: &Progress,
    ) -> Option<()> {
        let mut measured = [BTreeMap::new(), BTreeMap::new()];
        // Each program is first in every other turn, so that a drift of the machine affects both programs
        // alike.
        for side in if turn.is_multiple_of(2) { [0, 1] } else { [1, 0] } {
            let name = ["before", "after"][side];
            progress.show(&format!("turn {}, {name}: {}", turn + 1, words.join(" ")));
            match programs[side].measure(number, words) {
                Ok(rows) => measured[side] = rows,
                Err(error) => {
                    self.failures.push(format!("{name}: {}: {error}", words.join(" ")));
                    return None;
                }
            }
        }
        let [before, mut after] = measured;
        for (key, sample) in before {
            match after.remove(&key) {
                Some(other) => {
                    let pairs = self.rows.entry(key).or_default();
                    pairs.before.push(sample);
                    pairs.after.push(other);
                }
                None => drop(self.before_only.insert(key)),
            }
        }
        self.after_only.extend(after.into_keys());
        Some(())
    }
}
