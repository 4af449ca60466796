//! Measures three versions of the routine that reads the header of a packet: without optimization, optimized,
//! and written by hand. The first one is compiled when the experiment runs, by `rustc`.

use std::path::Path;
use std::process::{Command, Output};

use super::super::measured::Measured;
use super::routine;
use crate::Progress;
use crate::run_directory::of_this_run;
use crate::subject::Failure;

/// The keys of the three versions.
pub(crate) const KEYS: [&str; 3] =
    ["versions/unoptimized", "versions/optimized", "versions/by-hand"];

/// The routine, as a file.
const SOURCE: &str = include_str!("routine.rs");
/// The end of the program that measures the routine without optimization.
const MAIN: &str = "\nfn main() {\n    let [plain, by_hand] = measure();\n    \
    println!(\"{plain} {by_hand}\");\n}\n";

/// Measures all versions.
pub(crate) fn measure(into: &mut Measured, progress: &Progress) -> Result<(), Failure> {
    progress.show("tables: versions of a routine");
    let [optimized, by_hand] = routine::measure();
    into.set(KEYS[1].into(), optimized);
    into.set(KEYS[2].into(), by_hand);
    match unoptimized() {
        Ok(ns) => into.set(KEYS[0].into(), ns),
        Err(why) => eprintln!("version without optimization: skipped: {why}"),
    }
    Ok(())
}

/// Compiles the routine without optimization, and returns its time in nanoseconds.
fn unoptimized() -> Result<f64, Failure> {
    let directory = of_this_run()?.join("versions");
    std::fs::create_dir_all(&directory)?;
    let [source, program] = ["routine.rs", "routine"].map(|name| directory.join(name));
    std::fs::write(&source, format!("{SOURCE}{MAIN}"))?;
    let mut compiler = Command::new("rustc");
    compiler.args(["--edition", "2024", "-C", "opt-level=0", "-C", "debug-assertions=yes"]);
    compiler.args(["--cap-lints", "allow"]).arg(&source).arg("-o").arg(&program);
    let done = compiler.output().map_err(|error| format!("cannot start rustc: {error}"))?;
    succeeded("rustc", &done)?;
    first_number(&program)
}

fn succeeded(program: &str, done: &Output) -> Result<(), Failure> {
    let errors = String::from_utf8_lossy(&done.stderr);
    if done.status.success() { Ok(()) } else { Err(format!("{program}: {}", errors.trim()).into()) }
}

/// Returns the first number that a program prints.
fn first_number(program: &Path) -> Result<f64, Failure> {
    let done = Command::new(program).output()?;
    succeeded("the program", &done)?;
    let text = String::from_utf8(done.stdout)?;
    Ok(text.split_whitespace().next().ok_or("the program has printed nothing")?.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_the_same_of_a_header() {
        let good = routine::example();
        assert!(routine::plain(&good).is_some());
        // Every change of one byte is accepted by both versions, with the same fields, or refused by both.
        for at in 0..good.len() {
            for byte in [0, 1, 2, 0x10, 0x7f, 0xff] {
                let mut packet = good;
                packet[at] = byte;
                assert_eq!(routine::plain(&packet), routine::by_hand(&packet), "{at} {byte}");
            }
        }
        assert_eq!(routine::plain(&good[..60]), None);
        assert_eq!(routine::by_hand(&good[..60]), None);
    }
}
