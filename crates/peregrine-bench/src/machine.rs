//! Describes the machine of a run. Also lists the processors that this process may use, and reads processor
//! times.

use std::fs;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// Returns a description of the machine. Every result contains this description.
pub(crate) fn description() -> Value {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = field(&cpuinfo, "model name").unwrap_or("unknown");
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    json!({
        "cpu": model,
        "cpus": processors().len(),
        "kernel": kernel.trim(),
        "date": date(),
    })
}

/// Returns the value after `name` and a colon.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

/// Returns the processors that this process may use.
pub(crate) fn processors() -> Vec<u32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    listed(field(&status, "Cpus_allowed_list").unwrap_or("0"))
}

/// Returns the numbers of a list such as `0-2,5`.
fn listed(list: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u32>().ok()?..=last.parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// Raises the limit of descriptors of this process and its children to the hard limit. A binding takes
/// several descriptors in the client process and in the server process.
pub(crate) fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // On failure the old limit applies, and an operation that needs more descriptors reports it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Returns the number of descriptors that a process may have.
pub(crate) fn descriptors() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Returns the total processor time of all threads of this process, including those that have ended.
pub(crate) fn own_cpu_time() -> Duration {
    let ran = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(ran.tv_sec as u64, ran.tv_nsec as u32)
}

/// Returns the total processor time of all live threads of a process.
pub(crate) fn cpu_time(process: u32) -> io::Result<Duration> {
    let mut sum = 0;
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        // A thread may end before its file is read.
        let schedstat = fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
        let ran = schedstat.split(' ').next();
        sum += ran.and_then(|ran| ran.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(sum))
}

/// Returns the current time in UTC, as in `2026-01-31T12:00:00Z`.
fn date() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = now.map_or(0, |now| now.as_secs());
    let (year, month, day) = civil(seconds / 86400);
    let rest = seconds % 86400;
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Returns the year, the month and the day of the date that is `days` days after 1970-01-01 (Hinnant's
/// `civil_from_days`).
const fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let leaps = day_of_era / 1460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leaps) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + (month <= 2) as u64;
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_converted_to_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_818), (2026, 12, 31));
    }

    #[test]
    fn list_of_processors_is_parsed() {
        assert_eq!(listed("0-2,5"), [0, 1, 2, 5]);
        assert_eq!(listed("3"), [3]);
    }
}
