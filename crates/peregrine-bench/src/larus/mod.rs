//! The experiment `courier`: repeats the measurements of Larus, *On the Performance of Courier Remote
//! Procedure Calls Under 4.1c BSD*. In this directory, *the paper* is this paper. The paper compares Courier
//! over TCP with packet Courier. We add Courier's messages over our packet exchange, and our own calls.
//!
//! | file | what |
//! |---|---|
//! | `calls` | the test programs, and the ways to carry their calls |
//! | `profile` | where the processor time of the client goes |
//! | `paper`, `report` | the paper's figures, and Tables 1 to 11 |

pub(crate) mod calls;
mod paper;
mod profile;
pub(crate) mod report;

use std::time::Duration;

use serde_json::{Value, json};

use self::calls::{CALLS, Calls, Carrier, Test};
use self::profile::Profile;
use crate::cases::Placement;
use crate::network::far::{Far, Order};
use crate::network::link::Link;
use crate::network::{Filter, on_each_link};
use crate::row::Format;
use crate::subject::Failure;
use crate::{Progress, Selection, machine};

/// Where the processes run.
const PLACEMENT: Placement = Placement::TwoCores;

/// The measurements of one kind of call, with one carrier over one link.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    carrier: Carrier,
    link: Link,
    test: Test,
    /// The elapsed time of each run in milliseconds.
    elapsed_ms: Vec<f64>,
    /// The processor time of each run in milliseconds.
    cpu_ms: Vec<f64>,
    profile: Option<Profile>,
    /// The processor time in which the client swaps bytes, in milliseconds.
    swapping_ms: f64,
}

/// All measurements.
#[derive(Clone, Debug, Default)]
pub(crate) struct Study(Vec<Measured>);

impl Study {
    fn of(&self, carrier: Carrier, link: Link, test: Test) -> Option<&Measured> {
        self.0.iter().find(|one| (one.carrier, one.link, one.test) == (carrier, link, test))
    }
}

/// Makes the measurements, and prints the tables.
///
/// # Errors
/// If a call fails, or if the tables cannot be written.
pub(crate) fn run(selection: &Selection, progress: &Progress) -> Result<(), Failure> {
    let study = study(selection, progress)?;
    progress.show("");
    let machine = machine::description();
    match selection.format {
        Format::Human => print!("{}", report::text(&study)),
        Format::Json => println!("{:#}", to_json(&study, &machine)),
    }
    Ok(())
}

/// Makes the measurements.
///
/// # Errors
/// If a call fails.
pub(crate) fn study(selection: &Selection, progress: &Progress) -> Result<Study, Failure> {
    let missing = profile::missing();
    if let Some(why) = missing {
        eprintln!("profiles: skipped: {why}");
    }
    let mut study = Study::default();
    on_each_link(selection, &Filter::default(), PLACEMENT, |link, far| {
        for test in Test::ALL {
            progress.show(&format!("{}: {} bytes", link.name(), test.bytes()));
            let mut measured = measure(selection, link, test, far)?;
            if missing.is_none() {
                for one in &mut measured {
                    one.profile = profiled(selection, one, far)?;
                }
            }
            study.0.extend(measured);
        }
        Ok(())
    })?;
    Ok(study)
}

/// Measures one kind of call with each carrier. The carriers take turns.
fn measure(
    selection: &Selection,
    link: Link,
    test: Test,
    far: &mut Far,
) -> Result<Vec<Measured>, Failure> {
    let swapping_ms = profile::swapping_ns(test) * f64::from(CALLS) / 1e6;
    let mut all: Vec<_> = Carrier::COMPARED
        .map(|carrier| Measured {
            carrier,
            link,
            test,
            elapsed_ms: Vec::new(),
            cpu_ms: Vec::new(),
            profile: None,
            // Peregrine does not swap the bytes of the words.
            swapping_ms: if carrier == Carrier::Peregrine { 0.0 } else { swapping_ms },
        })
        .into();
    let rounds = if selection.quick { 2 } else { selection.few_rounds() };
    for round in 0..rounds {
        let places = 0..all.len();
        let order: Vec<_> = if round % 2 == 0 { places.collect() } else { places.rev().collect() };
        for place in order {
            let one = &mut all[place];
            let took = with_client(one.carrier, far, |calls| {
                // The first run warms the caches and the branch predictors.
                calls.run(test)?;
                calls.run(test)
            })?;
            one.elapsed_ms.push(took.elapsed.as_secs_f64() * 1e3);
            one.cpu_ms.push(took.cpu.as_secs_f64() * 1e3);
        }
    }
    Ok(all)
}

/// Takes the profile of one kind of call with one carrier. Returns `None` if `perf` did not start in time,
/// and thus took no samples.
fn profiled(
    selection: &Selection,
    one: &Measured,
    far: &mut Far,
) -> Result<Option<Profile>, Failure> {
    let time = Duration::from_millis(if selection.quick { 300 } else { 1000 });
    with_client(one.carrier, far, |calls| {
        calls.run(one.test)?;
        profile::sampled(time, || calls.run(one.test).map(drop))
    })
}

/// Starts a server at the far end, binds to it, and ends it after `body`.
///
/// # Errors
/// If the server does not start or a call fails.
pub(crate) fn with_client<T>(
    carrier: Carrier,
    far: &mut Far,
    body: impl FnOnce(&Calls) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let at = far.order(Order::Words(carrier))?;
    let calls = Calls::bind(carrier, at[0])?;
    let done = body(&calls);
    drop(calls);
    far.end_order()?;
    done
}

fn to_json(study: &Study, machine: &Value) -> Value {
    let rows: Vec<_> = study
        .0
        .iter()
        .map(|one| {
            json!({
                "carrier": one.carrier.name(),
                "link": one.link.name(),
                "bytes": one.test.bytes(),
                "result": one.test.has_result,
                "calls": CALLS,
                "elapsed_ms": one.elapsed_ms,
                "cpu_ms": one.cpu_ms,
                "profile": one.profile.map(|profile| json!({
                    "samples": profile.samples,
                    "sending_percent": profile.percent(profile.sending),
                    "receiving_percent": profile.percent(profile.receiving),
                })),
                "swapping_ms": one.swapping_ms,
            })
        })
        .collect();
    json!({ "experiment": "courier", "machine": machine, "rows": rows })
}
