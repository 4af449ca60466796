//! Runs a process that sleeps, and that makes null calls when its parent asks for them.

use std::error::Error;
use std::time::Instant;

use clap::Args;
use peregrine::BindOptions;

use crate::cases::Waiting;
use crate::interfaces::{Small, SmallClient};
use crate::orders::{ChildSlot, Order, Place, Report, SINGLY};
use crate::window::now_ns;

/// The arguments of a caller.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    /// The export to bind to
    #[arg(long)]
    export: String,
    /// How the process waits for results
    #[arg(long, value_enum)]
    wait: Waiting,
}

/// Carries out the parent's commands until the parent has ended.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut slot = ChildSlot::open(&options.place)?;
    let bind = BindOptions::default().wait(options.wait.wait());
    let client = SmallClient::bind_with(&options.export, &bind)?;
    // During the first call through a binding, the server makes preparations for the binding. These
    // preparations must not be measured.
    client.null()?;
    slot.ready();
    while let Some(order) = slot.next() {
        let report = match order {
            Order::Window(window) => {
                let counted = window.count(now_ns, || client.null())?;
                let (calls, all, ns) = (counted.calls, counted.all, counted.late_ns);
                Report { calls, all, ns, ..Report::default() }
            }
            Order::Singly => singly(&client)?,
            Order::Idle => Report::default(),
            other => return Err(format!("a caller cannot carry out {other:?}").into()),
        };
        slot.report(report);
    }
    Ok(())
}

/// Times each call separately. The measured time of each call includes one reading of the clock, which takes
/// 20 to 30 ns.
fn singly(client: &SmallClient) -> peregrine::Result<Report> {
    let mut each_ns = [0; SINGLY];
    let mut began = Instant::now();
    for ns in &mut each_ns {
        client.null()?;
        let ended = Instant::now();
        *ns = u32::try_from((ended - began).as_nanos()).unwrap_or(u32::MAX);
        began = ended;
    }
    let (calls, ns) = (SINGLY as u64, each_ns.iter().map(|ns| u64::from(*ns)).sum());
    Ok(Report { calls, all: calls, ns, each_ns })
}
