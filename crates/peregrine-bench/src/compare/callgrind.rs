//! Reads the counts that callgrind wrote, and finds the instructions that every call executes.
//!
//! A process makes several thousand calls. Most instructions of a call are executed once per call.
//! Instructions in a loop over the parts of a message are executed a fixed number of times per call.
//! Instructions of a waiting loop are executed a varying number of times. Instructions of the set-up are
//! executed only a few times in total.

use std::collections::BTreeMap;

use crate::subject::Failure;

/// The largest fraction of the calls that may omit an instruction of the fast path. The median run must not
/// exceed the first value, and at least four of five runs must not exceed the second value. A call may omit
/// an instruction for two reasons. Calls that the server times (about one of 64) take other branches. And a
/// message may have arrived before its receiver polls for it. The counts of waiting loops vary more between
/// runs, so these bounds exclude their instructions.
const MISSING: [f64; 2] = [0.1, 0.2];

/// The largest fraction of the calls that may execute an instruction of the fast path twice. The median run
/// must not exceed the first value, and at least four of five runs must not exceed the second value.
const MORE: [f64; 2] = [0.01, 0.02];

/// The tolerance for an instruction that is executed several times per call, as a fraction of the number of
/// calls. In every run, the instruction's count may differ by this much from a multiple of the number of
/// calls. A larger tolerance would also accept waiting loops, because their counts are always near some
/// multiple.
const LOOPS: f64 = 0.005;

/// How often each instruction was executed in one run: by object file and address.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counts(BTreeMap<(String, u64), Executed>);

/// The function and the count of one instruction.
#[derive(Clone, Debug, Default, PartialEq)]
struct Executed {
    /// The name of the function that contains the instruction. For an instruction of an inlined function,
    /// this is the name of the surrounding function.
    function: String,
    /// The number of executions.
    times: u64,
}

impl Counts {
    /// Reads a file that callgrind wrote with `--dump-instr=yes`, `--compress-pos=no` and
    /// `--compress-strings=no`.
    ///
    /// # Errors
    /// If the text has another format.
    pub(crate) fn read(text: &str) -> Result<Self, Failure> {
        if !text.lines().any(|line| line == "positions: instr line") {
            return Err("callgrind wrote no counts of instructions".into());
        }
        let mut counts = Self::default();
        let (mut object, mut function, mut is_callee) = ("", "", false);
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("ob=") {
                object = name;
            } else if let Some(name) = line.strip_prefix("fn=") {
                function = name;
            } else if line.starts_with("calls=") {
                // The next line contains the sum of all instructions of the callee. It is ignored, because
                // the lines of the callee itself contain the same instructions.
                is_callee = true;
            } else if line.starts_with("0x") && !std::mem::take(&mut is_callee) {
                let mut words = line.split(' ');
                let (address, _, times) = (words.next(), words.next(), words.next());
                let address = address.and_then(|text| text.strip_prefix("0x"));
                let address = address.and_then(|text| u64::from_str_radix(text, 16).ok());
                let (Some(address), Some(times)) = (address, times.map_or(Some(0), number)) else {
                    return Err(format!("callgrind wrote a line of another form: {line}").into());
                };
                let one = counts.0.entry((object.to_owned(), address)).or_default();
                one.times += times;
                // Callgrind lists a recursive function several times, as in "name'2".
                one.function = function.split('\'').next().unwrap_or_default().to_owned();
            }
        }
        Ok(counts)
    }
}

fn number(text: &str) -> Option<u64> {
    text.parse().ok()
}

/// Returns the number of instructions that every call executes in each function, by the function's name.
/// `idle` contains the counts of a run without calls. Each of `runs` contains the counts of a run with
/// `calls` calls.
pub(crate) fn per_call(idle: &Counts, runs: &[Counts], calls: u32) -> BTreeMap<String, u64> {
    let calls = f64::from(calls);
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    let Some(first) = runs.first() else { return sums };
    for (place, one) in &first.0 {
        let times = |run: &Counts| run.0.get(place).map_or(0.0, |one| one.times as f64);
        let before = times(idle);
        let mut all: Vec<f64> = runs.iter().map(|run| times(run) - before).collect();
        all.sort_unstable_by(f64::total_cmp);
        let executions = steady(&all, calls);
        if executions > 0 {
            *sums.entry(one.function.clone()).or_default() += executions;
        }
    }
    sums
}

/// Returns how often each call executes an instruction, or 0 if the counts vary by more than the tolerances
/// above. `counts` are the instruction's counts of all runs, in ascending order.
fn steady(counts: &[f64], calls: f64) -> u64 {
    let middle = counts[counts.len() / 2];
    let each = (middle / calls).round();
    let is_near = |count: f64, missing: f64, more: f64| {
        (-missing * calls..=more * calls).contains(&(count - each * calls))
    };
    let holds = match each {
        1.0 => {
            let far = counts.iter().filter(|count| !is_near(**count, MISSING[1], MORE[1]));
            is_near(middle, MISSING[0], MORE[0]) && far.count() <= counts.len() / 5
        }
        _ => counts.iter().all(|count| is_near(*count, LOOPS, LOOPS)),
    };
    if holds { each as u64 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# callgrind format
version: 1
positions: instr line
events: Ir
summary: 14073844

ob=/usr/bin/counted
fl=src/main.rs
fn=call
0x1000 32 1000
0x1002 32 7
fi=src/inlined.rs
0x1004 9 600
calls=1000 0x2000 40
0x1004 9 123456
0x1006 9 4000
fe=src/main.rs
0x1004 33 400

fn=copy'2
0x2000 40 1990
cob=/usr/lib/libc.so.6
cfn=memcpy
calls=1 0x2000
0x2004 41 5

ob=/usr/lib/libc.so.6
fn=memcpy
0x2000 1 50
";

    fn counts(all: &[(u64, u64)]) -> Counts {
        let one = |times: u64| Executed { function: "call".into(), times };
        let all = all.iter().map(|(address, times)| ((String::new(), *address), one(*times)));
        Counts(all.collect())
    }

    #[test]
    fn counts_of_one_address_are_added_without_those_of_callees() {
        let all = Counts::read(TEXT).unwrap();
        let of = |object: &str, address: u64| all.0.get(&(object.to_owned(), address)).cloned();
        let one = |function: &str, times| Some(Executed { function: function.into(), times });
        assert_eq!(of("/usr/bin/counted", 0x1000), one("call", 1000));
        assert_eq!(of("/usr/bin/counted", 0x1004), one("call", 1000));
        assert_eq!(of("/usr/bin/counted", 0x2000), one("copy", 1990));
        assert_eq!(of("/usr/bin/counted", 0x2004), None);
        assert_eq!(of("/usr/lib/libc.so.6", 0x2000), one("memcpy", 50));
    }

    #[test]
    fn other_text_is_refused() {
        assert!(Counts::read("").is_err());
        assert!(Counts::read("positions: line\n12 34\n").is_err());
        assert!(Counts::read("positions: instr line\n0x12 3 4x\n").is_err());
    }

    #[test]
    fn only_what_every_call_executes_is_counted() {
        let idle = counts(&[(1, 50), (2, 500)]);
        let runs = [
            counts(&[(1, 1050), (2, 500), (3, 984), (4, 3001), (5, 7311), (6, 810)]),
            counts(&[(1, 1050), (2, 500), (3, 984), (4, 3000), (5, 7000), (6, 850)]),
            counts(&[(1, 1051), (2, 500), (3, 984), (4, 3000), (5, 6820), (6, 999)]),
        ];
        // Instructions 1 and 3 are executed once per call, and instruction 4 three times. The others are not
        // counted: 2 is set-up, 5 is in a loop that waits, and 6 is missing in some calls.
        assert_eq!(per_call(&idle, &runs, 1000), BTreeMap::from([("call".to_owned(), 5)]));
        assert!(per_call(&idle, &[], 1000).is_empty());
    }

    #[test]
    fn loop_that_waits_about_once_a_call_is_not_counted() {
        assert_eq!(steady(&[850.0, 950.0, 1000.0], 1000.0), 1);
        assert_eq!(steady(&[620.0, 1000.0, 1000.0], 1000.0), 0);
        assert_eq!(steady(&[990.0, 1000.0, 1100.0], 1000.0), 0);
        // One disturbed run does not change the result.
        assert_eq!(steady(&[500.0, 980.0, 990.0, 1000.0, 1000.0], 1000.0), 1);
        assert_eq!(steady(&[980.0, 990.0, 990.0, 1000.0, 1400.0], 1000.0), 1);
        assert_eq!(steady(&[500.0, 600.0, 990.0, 1000.0, 1000.0], 1000.0), 0);
        assert_eq!(steady(&[0.0, 0.0, 1000.0], 1000.0), 0);
        assert_eq!(steady(&[7000.0, 7000.0, 7300.0], 1000.0), 0);
    }
}
