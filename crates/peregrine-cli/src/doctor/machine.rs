//! Checks properties of the machine: processors, clock, memory, network interfaces.

use std::fs;
use std::hint::black_box;
use std::time::Instant;

use peregrine::sys::online_cpus;
use rustix::thread::{CpuSet, sched_getaffinity};

use super::{Finding, Verdict, read_kernel_file};
use crate::output::nanoseconds;

const CPU: &str = "/sys/devices/system/cpu";

/// Checks all properties.
pub(super) fn look() -> Vec<Finding> {
    let information = read_kernel_file("/proc/cpuinfo").unwrap_or_default();
    vec![
        processors(),
        nodes(),
        governor(),
        sleep(is_virtual(&information)),
        clock(&information),
        pages(),
        interfaces(),
    ]
}

/// Returns whether `information`, the text of `/proc/cpuinfo`, contains a flag of the processor.
fn has(information: &str, flag: &str) -> bool {
    let flags = information.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|line| line.split_whitespace().any(|one| one == flag))
}

fn is_virtual(information: &str) -> bool {
    has(information, "hypervisor")
}

fn processors() -> Finding {
    let online = online_cpus();
    let allowed = sched_getaffinity(None).map_or(online, |set: CpuSet| set.count() as usize);
    let threads = match read_kernel_file(format!("{CPU}/smt/active")).as_deref() {
        Some("1") => "two threads per core",
        _ => "one thread per core",
    };
    let found = format!("{allowed} of {online} for this process, {threads}");
    if allowed > 1 {
        return Finding::good("processors", found)
            .costs("client and server poll shared memory on two processors, without the kernel");
    }
    Finding::new("processors", Verdict::Slow, found)
        .costs("client and server cannot run at the same time: each call takes two wake-ups")
        .fix(match online {
            1 => "give the machine a second processor".to_owned(),
            _ => format!("taskset -cp 0-{} {}", online - 1, std::process::id()),
        })
}

fn nodes() -> Finding {
    let found = fs::read_dir("/sys/devices/system/node").map_or(1, |all| {
        let is_node =
            |name: &str| name.strip_prefix("node").is_some_and(|rest| rest.parse::<u32>().is_ok());
        let names = all.filter_map(|one| one.ok()?.file_name().into_string().ok());
        names.filter(|name| is_node(name)).count().max(1)
    });
    if found == 1 {
        return Finding::good("memory nodes", "one").costs("all memory has the same latency");
    }
    Finding::new("memory nodes", Verdict::Slow, format!("{found}"))
        .costs("moving a cache line between nodes takes several times as long as within a node")
        .fix("numactl --cpunodebind=0 --membind=0 PROGRAM, for client and server")
}

fn governor() -> Finding {
    let what = "frequency";
    match read_kernel_file(format!("{CPU}/cpu0/cpufreq/scaling_governor")) {
        None => Finding::good(what, "not controlled by this system")
            .costs("no frequency change after an idle period is visible to this system"),
        Some(name) if name == "performance" => {
            Finding::good(what, "performance").costs("processors keep their frequency when idle")
        }
        Some(name) => Finding::new(what, Verdict::Slow, name)
            .costs("the first calls after a pause run at a low frequency")
            .fix("sudo cpupower frequency-set -g performance"),
    }
}

/// Checks how an idle processor sleeps. Leaving the idle state is the larger part of the cost of a wake-up.
fn sleep(is_virtual: bool) -> Finding {
    let what = "idle processors";
    let driver = read_kernel_file(format!("{CPU}/cpuidle/current_driver"));
    let driver = driver.filter(|name| name != "none").unwrap_or_default();
    let guest = if is_virtual { "a virtual machine" } else { "no virtual machine" };
    match (&*driver, is_virtual) {
        ("haltpoll", _) => Finding::good(what, format!("haltpoll, {guest}"))
            .costs("a processor polls for a while before it halts, so an early wake-up is cheap"),
        (_, true) => Finding::new(what, Verdict::Slow, format!("halts immediately, {guest}"))
            .costs("each wake-up of another processor exits to the hypervisor")
            .fix("sudo modprobe cpuidle-haltpoll force=1"),
        ("", false) => Finding::good(what, format!("halt, {guest}"))
            .costs("a wake-up takes little more than an interrupt"),
        (name, false) => Finding::new(what, Verdict::Slow, format!("{name}, {guest}"))
            .costs("a processor in a deep sleep state takes up to 100 us to wake up")
            .fix("sudo cpupower idle-set -D 10"),
    }
}

fn clock(information: &str) -> Finding {
    let source = "/sys/devices/system/clocksource/clocksource0";
    let current = read_kernel_file(format!("{source}/current_clocksource")).unwrap_or_default();
    let others = read_kernel_file(format!("{source}/available_clocksource")).unwrap_or_default();
    let steady = has(information, "constant_tsc") && has(information, "nonstop_tsc");
    let steady = if steady {
        "the processor has an invariant TSC"
    } else {
        "the processor has no invariant TSC"
    };
    let ns = stamp_ns();
    // On every machine, reading a clock by a system call takes longer than 100 ns.
    let verdict = if ns < 100.0 { Verdict::Good } else { Verdict::Slow };
    let fix = match others.split(' ').any(|name| name == "tsc") && current != "tsc" {
        true => format!("echo tsc | sudo tee {source}/current_clocksource"),
        false => "boot with tsc=reliable, if the TSC of the processor is reliable".to_owned(),
    };
    let named = if current.is_empty() { "unnamed".to_owned() } else { current };
    Finding::new("clock", verdict, format!("{named}, {} per reading; {steady}", nanoseconds(ns)))
        .costs("a call with a time limit reads the clock once, and again while it waits; a call without a limit never reads it")
        .fix(fix)
        .measured("time_stamp", ns)
}

/// Returns how long reading the clock takes, in nanoseconds. The result is the minimum of several rounds, so
/// that preemptions have no influence.
fn stamp_ns() -> f64 {
    const STAMPS: u32 = 2000;
    let round = |_| {
        let begun = Instant::now();
        for _ in 0..STAMPS {
            black_box(Instant::now());
        }
        begun.elapsed().as_nanos() as f64 / f64::from(STAMPS)
    };
    (0..10).map(round).fold(f64::INFINITY, f64::min)
}

/// Reports the setting for huge pages. Peregrine does not use huge pages.
fn pages() -> Finding {
    let shared = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    let shared = read_kernel_file(shared).and_then(|text| chosen(&text).map(str::to_owned));
    let free = read_kernel_file("/proc/meminfo").and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("HugePages_Free:"));
        line.map(|rest| rest.trim().to_owned())
    });
    let found = format!(
        "{} reserved and free; for shared memory: {}",
        free.as_deref().unwrap_or("none"),
        shared.as_deref().unwrap_or("not available")
    );
    Finding::good("huge pages", found).costs(
        "not needed: a call touches a few cache lines, and a large message passes through 2 MiB",
    )
}

/// Returns the word in brackets. In some kernel files, this word is the current setting.
fn chosen(text: &str) -> Option<&str> {
    text.split_once('[')?.1.split_once(']').map(|(word, _)| word)
}

fn interfaces() -> Finding {
    let mut all: Vec<(String, u32)> = fs::read_dir("/sys/class/net")
        .into_iter()
        .flatten()
        .filter_map(|one| {
            let one = one.ok()?;
            let mtu = read_kernel_file(one.path().join("mtu"))?.parse().ok()?;
            Some((one.file_name().into_string().ok()?, mtu))
        })
        .collect();
    all.sort();
    if all.is_empty() {
        return Finding::of("interfaces", false, "none")
            .costs("no calls over networks")
            .fix("ip link set lo up");
    }
    let small = all.iter().find(|(_, mtu)| *mtu < 1500).map(|(name, _)| name.clone());
    let listed: Vec<_> = all.iter().map(|(name, mtu)| format!("{name} {mtu}")).collect();
    let verdict = if small.is_some() { Verdict::Slow } else { Verdict::Good };
    Finding::new("interfaces", verdict, format!("MTU: {}", listed.join(", ")))
        .costs("48,000 bytes take 34 packets with an MTU of 1500, 6 with 9000, 1 with 65536")
        .fix(format!(
            "sudo ip link set {} mtu 1500, if the link supports it",
            small.unwrap_or_default()
        ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_whole_words() {
        let information = "processor: 0\nflags\t\t: fpu constant_tsc hypervisor\n";
        assert!(has(information, "constant_tsc") && is_virtual(information));
        assert!(!has(information, "tsc") && !has("", "fpu"));
    }

    #[test]
    fn chosen_word_is_in_brackets() {
        assert_eq!(chosen("always [madvise] never"), Some("madvise"));
        assert_eq!(chosen("never"), None);
    }
}
