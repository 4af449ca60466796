//! Mutation testing: draws mutants at random, and runs the tests against each mutant. A mutant is a small
//! fault in the sources. The tests kill a mutant if they fail with it.
//!
//!     cargo run --release --manifest-path mutants/Cargo.toml -- [COUNT [SEED [PART OF A PATH]]]
//!
//! The program builds a copy of the sources once, with all drawn mutants in it. An environment variable
//! activates one of these mutants. Mutants that do not compile together with the others are built one by one.
//! Surviving mutants of `const` functions are also built one by one, because the compiler may evaluate such a
//! function without its mutant.

mod mutate;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use mutate::{Choice, FEATURES, Mutant, mutate};

const SOURCES: &str = "crates/peregrine/src";
/// The root file of the simulator.
const SIMULATION: &str = "crates/peregrine-simulation/tests/simulation/main.rs";
/// The directories of [`SOURCES`] that are mutated.
const DIRECTORIES: [&str; 3] = ["protocol", "call", "value"];
/// The environment variable with the number of seeds of the simulator, and its value for these tests.
const SEEDS: (&str, &str) = ("PEREGRINE_SEEDS", "500");
/// The factor in the time limit of a stage with a mutant. The limit is `SLOWER` times the time of the stage
/// without a mutant, plus [`LATER`]. A mutant with which a stage exceeds this limit counts as killed.
const SLOWER: u32 = 5;
/// The constant part of the time limit of a stage with a mutant. See [`SLOWER`].
const LATER: Duration = Duration::from_secs(30);
/// The limit of the address space of a test program, in kilobytes. Without a limit, a mutant could use all
/// memory.
const ADDRESSES_KB: u32 = 16_000_000;

/// The compiled test programs.
struct Programs {
    /// The directory in which the programs run.
    at: PathBuf,
    lib: PathBuf,
    simulation: PathBuf,
}

/// The tests that a filter selects in one program.
#[derive(Clone, Copy, PartialEq)]
struct Stage {
    name: &'static str,
    in_simulation: bool,
    filter: &'static str,
    /// A filter for tests that are not run, although `filter` selects them.
    skip: Option<&'static str>,
}

const fn stage(name: &'static str, in_simulation: bool, filter: &'static str) -> Stage {
    Stage { name, in_simulation, filter, skip: None }
}

const VALUE: [Stage; 1] = [stage("unit tests", false, "value::")];
/// The model checker is slow, and the unit tests kill most mutants. So the model checker runs last.
const CALL: [Stage; 2] = [
    Stage { skip: Some(MODEL), ..stage("unit tests", false, "call::") },
    stage("the model checker", false, MODEL),
];
const MODEL: &str = "call::pool::model";
const STREAM: [Stage; 1] = [stage("unit tests", false, "protocol::")];
/// The program of the simulator also contains the unit tests of the packet exchange.
const EXCHANGE: [Stage; 3] = [
    stage("unit tests", true, "exchange::"),
    stage("500 seeds", true, "seeds::"),
    stage("cases of the simulator", true, "cases::"),
];

/// Returns the stages for a file, which depend on the file's directory. The simulator contains only the
/// packet exchange, so its seeds cannot detect mutants in other parts of the library.
fn stages(file: &str) -> &'static [Stage] {
    let directories: [(&str, &[Stage]); 4] =
        [("value/", &VALUE), ("call/", &CALL), ("protocol/exchange/", &EXCHANGE), ("", &STREAM)];
    let found = directories.iter().find(|(directory, _)| file.starts_with(directory));
    found.expect("the last entry matches any file").1
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, or: u64| {
        arguments.get(at).map_or(or, |text| text.parse().expect("COUNT and SEED are numbers"))
    };
    let (count, seed) = (number(0, 60) as usize, number(1, 20_261_122));
    let only = arguments.get(2).map_or("", |part| part);
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tree = here.join("target/tree");
    copy(here.parent().expect("the repository"), &tree);
    let files = sources(&tree.join(SOURCES));
    let all = write(&tree, &files, &Choice::List);
    let drawn = draw(&all, count, seed, only);
    println!("{} mutants; {} are drawn with seed {seed}", all.len(), drawn.len());

    for root in ["crates/peregrine/src/lib.rs", SIMULATION] {
        let text = fs::read_to_string(tree.join(root)).expect("a root file");
        fs::write(tree.join(root), FEATURES.to_owned() + &text).expect("a copied file");
    }
    let mut alone = BTreeSet::new();
    let mut programs = loop {
        let switched: BTreeSet<usize> = drawn.difference(&alone).copied().collect();
        write(&tree, &files, &Choice::Switched(&switched));
        match build(&tree) {
            Ok(programs) => break programs,
            Err(errors) => match mutant_of_error(&tree, &files, &errors) {
                Some(number) => {
                    assert!(
                        alone.insert(number),
                        "the compiler reports a mutant that was removed:\n{errors}"
                    );
                }
                None => panic!("the sources cannot be built:\n{errors}"),
            },
        }
    };
    // How long each stage takes without a mutant.
    let mut usual: Vec<(Stage, Duration)> = Vec::new();
    for stage in drawn.iter().flat_map(|number| stages(&all[*number].file)) {
        if usual.iter().all(|(one, _)| one != stage) {
            let begun = Instant::now();
            let passed = run(&programs, stage, None, Duration::from_secs(1800));
            assert!(passed, "the {} fail without a mutant", stage.name);
            usual.push((*stage, begun.elapsed()));
            println!("{} {}: {:.1?} without a mutant", stage.filter, stage.name, begun.elapsed());
        }
    }
    let kills = |programs: &Programs, number: usize| {
        let killer = stages(&all[number].file).iter().find(|stage| {
            let usual = usual.iter().find(|(one, _)| one == *stage).expect("the stage was run").1;
            !run(programs, stage, Some(number), usual * SLOWER + LATER)
        });
        let how = killer.map_or("SURVIVES".into(), |stage| format!("killed by {}", stage.name));
        println!("{}: {how}", describe(&all, number));
        killer.is_some()
    };
    let (mut killed, mut unviable) = (0, 0);
    let switched: Vec<usize> = drawn.difference(&alone).copied().collect();
    for number in switched {
        if kills(&programs, number) {
            killed += 1;
        } else if all[number].is_const {
            alone.insert(number);
        }
    }
    for number in &alone {
        write(&tree, &files, &Choice::Fixed(*number));
        match build(&tree) {
            Ok(built) => {
                programs = built;
                killed += usize::from(kills(&programs, *number));
            }
            Err(_) => {
                unviable += 1;
                println!("{}: does not compile", describe(&all, *number));
            }
        }
    }
    let viable = drawn.len() - unviable;
    println!(
        "{viable} viable, {killed} killed: {:.0} %",
        100.0 * killed as f64 / viable.max(1) as f64
    );
}

fn describe(all: &[Mutant], number: usize) -> String {
    let Mutant { file, line, function, what, .. } = &all[number];
    format!("#{number} {file}:{line} {function} {what}")
}

/// Copies all files under version control, with changes that are not committed.
fn copy(repository: &Path, tree: &Path) {
    let script = "rm -rf \"$1\" && mkdir -p \"$1\" &&
        git ls-files -z | tar --null --ignore-failed-read -T - -cf - | tar -xf - -C \"$1\"";
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(script).arg("sh").arg(tree).current_dir(repository);
    assert!(shell.status().expect("a shell").success(), "the sources cannot be copied");
}

/// Returns the names and the texts of all source files except tests. The names are relative to `root`.
fn sources(root: &Path) -> Vec<(String, String)> {
    let mut open: Vec<PathBuf> = DIRECTORIES.iter().map(|name| root.join(name)).collect();
    let mut found = Vec::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path).expect("a directory");
            open.extend(entries.map(|entry| entry.expect("an entry").path()));
        } else {
            let name =
                path.strip_prefix(root).expect("a path below the root").to_str().expect("ASCII");
            found.push((name.to_owned(), fs::read_to_string(&path).expect("a source")));
        }
    }
    let of_tests: Vec<String> =
        found.iter().flat_map(|(name, text)| test_files(name, text)).collect();
    found.retain(|(name, _)| !of_tests.contains(name));
    found.sort();
    found
}

/// Returns the files of the modules that a source file declares for tests only.
fn test_files(name: &str, text: &str) -> Vec<String> {
    let directory = name
        .strip_suffix("mod.rs")
        .map_or_else(|| format!("{}/", name.trim_end_matches(".rs")), str::to_owned);
    let declared = text.split("#[cfg(test)]\nmod ").skip(1);
    let named = declared.filter_map(|rest| rest.split_once(';').map(|(module, _)| module));
    named.map(|module| format!("{directory}{module}.rs")).collect()
}

/// Writes the files of the copy, with the chosen mutants. Returns all mutants of these files, chosen or not.
fn write(tree: &Path, files: &[(String, String)], choice: &Choice<'_>) -> Vec<Mutant> {
    let mut all = Vec::new();
    for (name, source) in files {
        let mutated = mutate(name, source, choice, &mut all);
        let (path, text) = (tree.join(SOURCES).join(name), mutated.as_ref().unwrap_or(source));
        if fs::read_to_string(&path).expect("a copied file") != *text {
            fs::write(path, text).expect("a writable copy");
        }
    }
    all
}

/// Draws `count` mutants at random (SplitMix64), only from files whose paths contain `only`.
fn draw(all: &[Mutant], count: usize, seed: u64, only: &str) -> BTreeSet<usize> {
    let from: Vec<usize> = (0..all.len()).filter(|at| all[*at].file.contains(only)).collect();
    let mut state = seed;
    let mut drawn = BTreeSet::new();
    while drawn.len() < count.min(from.len()) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        drawn.insert(from[((mixed ^ mixed >> 31) % from.len() as u64) as usize]);
    }
    drawn
}

/// Builds the tests in the copy of the sources.
fn build(tree: &Path) -> Result<Programs, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = std::env::var_os("CARGO_TARGET_DIR");
    let output = output.map_or_else(|| tree.with_file_name("tested"), PathBuf::from);
    let built = Command::new(cargo)
        .args(["test", "--locked", "-p", "peregrine", "-p", "peregrine-simulation"])
        .args(["--lib", "--test", "simulation", "--no-run"])
        .env("CARGO_TARGET_DIR", output)
        // Mutants are activated by a function that only unstable compilers have. This variable permits such
        // functions.
        .env("RUSTC_BOOTSTRAP", "peregrine,simulation")
        .current_dir(tree)
        .output()
        .expect("cargo");
    let errors = String::from_utf8_lossy(&built.stderr).into_owned();
    if !built.status.success() {
        return Err(errors);
    }
    let program = |source: &str| {
        let line = errors.lines().find(|line| line.contains(&format!("{source} (")));
        let path = line.and_then(|line| line.split(['(', ')']).nth(1));
        tree.join(path.unwrap_or_else(|| panic!("no program of {source} in:\n{errors}")))
    };
    let at = tree.join("crates/peregrine");
    Ok(Programs { at, lib: program("src/lib.rs"), simulation: program("simulation/main.rs") })
}

/// Returns the mutant that contains the first error of the compiler.
fn mutant_of_error(tree: &Path, files: &[(String, String)], errors: &str) -> Option<usize> {
    let errors = errors.split("\nerror").skip(1);
    errors.into_iter().find_map(|error| {
        let place = error.split("--> ").nth(1)?.lines().next()?;
        let (path, place) = place.split_once(':')?;
        let line: usize = place.split(':').next()?.parse().ok()?;
        let (name, _) = files.iter().find(|(name, _)| path.ends_with(name))?;
        let text = fs::read_to_string(tree.join(SOURCES).join(name)).ok()?;
        let lines: Vec<&str> = text.lines().take(line + 1).collect();
        let number =
            |line: &&str| line.rsplit_once("mutant_is_on(")?.1.split("usize").next()?.parse().ok();
        lines.iter().rev().find_map(number)
    })
}

/// Returns whether the tests pass within the time limit.
fn run(programs: &Programs, stage: &Stage, mutant: Option<usize>, most: Duration) -> bool {
    let program = if stage.in_simulation { &programs.simulation } else { &programs.lib };
    let log = File::create(program.with_file_name("mutant.log")).expect("a log");
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg(format!("ulimit -v {ADDRESSES_KB}; exec \"$@\""))
        .arg("sh")
        .arg(program)
        .arg(stage.filter)
        .args(stage.skip.into_iter().flat_map(|skipped| ["--skip", skipped]))
        .env(SEEDS.0, SEEDS.1)
        .env("PEREGRINE_MUTANT", mutant.map_or(String::new(), |number| number.to_string()))
        .current_dir(&programs.at)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a descriptor"))
        .stderr(log);
    std::io::stdout().flush().expect("an output");
    let mut child = command.spawn().expect("a test program");
    let begun = Instant::now();
    let ended: Option<ExitStatus> = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break Some(status);
        }
        if begun.elapsed() > most {
            child.kill().expect("the child can be killed");
            child.wait().expect("the child has ended");
            break None;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    ended.is_some_and(|status| status.success())
}
