//! Samples in which system calls this process spends its processor time. The samples are taken by the program
//! `perf` of Linux. The paper used `gprof`.

use std::hint::black_box;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use peregrine::foreign::{Courier, Foreign as _, Output};
use rustix::process::{Pid, Signal, kill_process};

use super::calls::Test;
use crate::subject::Failure;

/// The number of samples of each second of processor time.
const RATE: &str = "9973";

/// The kernel's functions that send.
const SENDS: [&str; 4] = ["sys_sendto", "sys_sendmsg", "sys_write", "sys_writev"];
/// The kernel's functions that receive or wait.
const RECEIVES: [&str; 8] = [
    "sys_recvfrom",
    "sys_recvmsg",
    "sys_recvmmsg",
    "sys_read",
    "sys_poll",
    "sys_ppoll",
    "sys_epoll_",
    "sys_futex",
];

/// The numbers of samples: in total, and in system calls that send or receive.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Profile {
    /// The number of all samples.
    pub(crate) samples: u32,
    /// The number of samples in system calls that send.
    pub(crate) sending: u32,
    /// The number of samples in system calls that receive or wait.
    pub(crate) receiving: u32,
}

impl Profile {
    /// Returns `part`, a number of samples, as a percentage of all samples.
    pub(crate) fn percent(&self, part: u32) -> f64 {
        100.0 * f64::from(part) / f64::from(self.samples.max(1))
    }

    /// Counts the samples in the output of `perf script -F ip,sym`. For each sample, the output has the
    /// functions, the innermost first, and an empty line.
    fn of(script: &str) -> Self {
        let mut profile = Self::default();
        for stack in script.split("\n\n").filter(|stack| !stack.trim().is_empty()) {
            let is_in = |names: &[&str]| {
                stack.lines().any(|line| names.iter().any(|name| line.contains(name)))
            };
            profile.samples += 1;
            if is_in(&SENDS) {
                profile.sending += 1;
            } else if is_in(&RECEIVES) {
                profile.receiving += 1;
            }
        }
        profile
    }
}

/// A run of `perf` that takes samples of this process. Dropping this value ends the run.
struct Sampling {
    perf: Child,
    file: PathBuf,
}

impl Sampling {
    fn begin() -> io::Result<Self> {
        let file =
            std::env::temp_dir().join(format!("peregrine-bench-{}.perf", std::process::id()));
        let process = std::process::id().to_string();
        let mut command = Command::new("perf");
        command.args(["record", "-q", "-g", "-e", "cpu-clock", "-F", RATE, "-p", &process, "-o"]);
        command.arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { perf: command.spawn()?, file })
    }

    /// Ends the run, and returns the profile. Returns `None` if there are no samples.
    fn end(mut self) -> Result<Option<Profile>, Failure> {
        self.stop()?;
        let mut command = Command::new("perf");
        command
            .args(["script", "--no-inline", "-F", "ip,sym", "-i"])
            .arg(&self.file)
            .stderr(Stdio::null());
        let output = command.stdin(Stdio::null()).output()?;
        let profile = Profile::of(&String::from_utf8_lossy(&output.stdout));
        Ok((profile.samples > 0).then_some(profile))
    }

    fn stop(&mut self) -> io::Result<()> {
        if self.perf.try_wait()?.is_none()
            && let Some(perf) = Pid::from_raw(self.perf.id().cast_signed())
        {
            kill_process(perf, Signal::INT)?;
        }
        self.perf.wait().map(drop)
    }
}

impl Drop for Sampling {
    fn drop(&mut self) {
        let _ = self.stop();
        let _ = std::fs::remove_file(&self.file);
    }
}

/// Returns why no profile can be taken here, or `None` if one can.
pub(crate) fn missing() -> Option<&'static str> {
    let probe = Command::new("perf")
        .args(["record", "-q", "-e", "cpu-clock", "-o", "/dev/null", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let works = probe.is_ok_and(|status| status.success());
    (!works)
        .then_some("`perf` is missing, or may not take samples (install linux-perf, run as root)")
}

/// Takes samples while `run` runs again and again, for `time`. `perf` needs a part of this time to start.
/// Returns `None` if it has taken no samples.
///
/// # Errors
/// If `run` fails, or if `perf` fails.
pub(crate) fn sampled(
    time: Duration,
    mut run: impl FnMut() -> Result<(), Failure>,
) -> Result<Option<Profile>, Failure> {
    let sampling = Sampling::begin()?;
    let start = Instant::now();
    while start.elapsed() < time {
        run()?;
    }
    sampling.end()
}

/// Returns the nanoseconds that the client takes to swap the bytes of the words of one call: the time to
/// write the words in the format of Courier, minus the time to copy them. The profile cannot show this part,
/// because the compiler inlines the code that swaps into the code that sends.
pub(crate) fn swapping_ns(test: Test) -> f64 {
    match test.words {
        1 => swapping_words_ns::<1>(),
        100 => swapping_words_ns::<100>(),
        1000 => swapping_words_ns::<1000>(),
        _ => 0.0,
    }
}

fn swapping_words_ns<const N: usize>() -> f64 {
    let words = [0x0123_4567_u32; N];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    let mut message = vec![0; 4 * N];
    let written = fastest_ns(|| {
        let mut output = Output::<Courier>::new(black_box(&mut message));
        black_box(&words).put(&mut output).expect("room for the words");
    });
    let copied = fastest_ns(|| black_box(&mut message).copy_from_slice(black_box(&bytes)));
    (written - copied).max(0.0)
}

/// Returns the mean time of one step in nanoseconds, in the fastest of several rounds.
fn fastest_ns(mut step: impl FnMut()) -> f64 {
    const ROUNDS: u32 = 20;
    const STEPS: u32 = 10_000;
    let round = |_| {
        let start = Instant::now();
        (0..STEPS).for_each(|_| step());
        start.elapsed().as_nanos() as f64 / f64::from(STEPS)
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_counted_by_their_system_call() {
        let script = "\tudp_sendmsg\n\t__x64_sys_sendto\n\tcall\n\n\tschedule\n\t__x64_sys_recvfrom\n\n\
            \tput\n\tmain\n\n\tmain\n\n";
        let profile = Profile::of(script);
        let expected = Profile { samples: 4, sending: 1, receiving: 1 };
        assert_eq!(profile, expected);
        assert_eq!(profile.percent(profile.sending), 25.0);
        assert_eq!(Profile::of(""), Profile::default());
        assert_eq!(Profile::default().percent(0), 0.0);
    }
}
