//! Measures calls over network paths, on a virtual link between two network namespaces.

use std::time::{Duration, Instant};

use peregrine::{BindOptions, Binding};

use super::{Finding, Verdict};
use crate::args::Format;
use crate::home::Home;
use crate::link::{Link, missing};
use crate::output::{Failure, OrFail as _, nanoseconds};

/// The number of calls per path. The result for a path is the median of their durations.
const CALLS: usize = 400;
const WHAT: &str = "calls over a link";

/// A path, its network device, and the duration of a call in nanoseconds.
type Measured = (&'static str, String, f64);

/// Measures calls over raw Ethernet, UDP and TCP, one path after the other.
pub(super) fn measure(format: Format) -> Vec<Finding> {
    if let Some(why) = missing() {
        return vec![
            Finding::new(WHAT, Verdict::Missing, format!("not measured: {why}"))
                .costs("nothing; only the time of a call over a network path is not measured")
                .fix("sudo peregrine doctor"),
        ];
    }
    match called(format) {
        Ok(all) => all.into_iter().map(finding).collect(),
        Err(failure) => vec![
            Finding::new(WHAT, Verdict::Missing, format!("not measured: {}", failure.brief()))
                .costs("nothing; only the time of a call over a network path is not measured")
                .fix("see the cause; `peregrine doctor --quick` skips this measurement"),
        ],
    }
}

fn finding((path, how, ns): Measured) -> Finding {
    let (what, name) = match path {
        "eth" => ("a call over raw Ethernet", "call_ethernet"),
        "udp" => ("a call over UDP", "call_udp"),
        _ => ("a call over TCP", "call_tcp"),
    };
    let is_slow = path == "eth" && !how.contains("AF_XDP");
    let verdict = if is_slow { Verdict::Slow } else { Verdict::Good };
    Finding::new(what, verdict, format!("{} by {how}", nanoseconds(ns)))
        .costs("measured on this machine through a pair of virtual interfaces; a real link adds its latency")
        .fix("see AF_XDP, CAP_BPF and locked memory above")
        .measured(name, ns)
}

fn called(format: Format) -> Result<Vec<Measured>, Failure> {
    let home = Home::new(format)?;
    let called = call_all(&home);
    if called.is_err() {
        home.settle();
    }
    called
}

fn call_all(home: &Home) -> Result<Vec<Measured>, Failure> {
    let root = home.path("files");
    std::fs::create_dir(&root).or_fail("cannot create a directory")?;
    let root = root.to_str().unwrap_or("/").to_owned();
    let link = Link::new(home).map_err(|why| Failure::local(why, "see the cause"))?;
    let mut all = Vec::new();
    for path in ["eth", "udp", "tcp"] {
        let name = format!("doctor-{path}");
        let addresses = link.serve(home, (&root, &name), &format!("{path}:"))?;
        let address = addresses.into_iter().next().unwrap_or_default();
        let (how, ns) = link.near(|| ping(&address))?;
        all.push((path, how, ns));
    }
    Ok(all)
}

/// Returns the network device of a binding, and the median duration of a call in nanoseconds.
fn ping(address: &str) -> Result<(String, f64), Failure> {
    let options = BindOptions::default().timeout(Duration::from_secs(2));
    let binding = Binding::bind_any(address, &options)?;
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let begun = Instant::now();
        binding.ping()?;
        times.push(begun.elapsed().as_nanos() as f64);
    }
    times.sort_unstable_by(f64::total_cmp);
    Ok((binding.explain().summary(), times[CALLS / 2]))
}
