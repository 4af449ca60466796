//! `bridge`: offers exports as JSON over HTTP until a signal stops the bridge.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use peregrine_bridge::{Bridge as Bridged, SetupError, StopHandle};
use serde_json::json;

use crate::args::{Bridge, Format};
use crate::interrupt::{Interrupt, InterruptOptions};
use crate::output::{self, BOLD, DIM, Failure};

/// How long the bridge may take to stop. This is longer than the time for which the bridge waits for running
/// calls.
const GRACE: Duration = Duration::from_secs(6);

/// Serves HTTP.
pub(crate) fn run(arguments: &Bridge, format: Format) -> Result<(), Failure> {
    let begun = Instant::now();
    let stop: Arc<OnceLock<StopHandle>> = Arc::default();
    let interrupt = handle_signals(format, Arc::clone(&stop))?;
    let Bridge { addresses, http, beyond_this_machine, host, body_max, calls, timeout } = arguments;
    let mut bridge = Bridged::new()
        .body_bytes_max(usize::try_from(*body_max).unwrap_or(usize::MAX))
        .calls_max((*calls).into())
        .call_limit(*timeout);
    for address in addresses {
        bridge = bridge.offer(address).map_err(unusable)?;
    }
    for name in host {
        bridge = bridge.host(name);
    }
    for address in http {
        bridge = match beyond_this_machine {
            true => bridge.listen_beyond_this_machine(address),
            false => bridge.listen(address),
        }
        .map_err(unusable)?;
    }
    let running = bridge.spawn().map_err(unusable)?;
    let _ = stop.set(running.stop_handle());
    if interrupt.signal().is_some() {
        running.stop_handle().stop();
    }
    let urls: Vec<String> =
        running.addresses().iter().map(|one| format!("http://{one}/")).collect();
    let process = std::process::id();
    match format {
        Format::Json | Format::Ndjson => output::print(json!({
            "ready": true,
            "offers": addresses,
            "process": process,
            "http": urls,
        }))?,
        Format::Human => {
            let offers = addresses.join(", ");
            output::note(format_args!(
                "offering {BOLD}{offers}{BOLD:#} {DIM}(process {process}; Ctrl-C stops it){DIM:#}"
            ));
            for url in &urls {
                output::note(format_args!("at {BOLD}{url}{BOLD:#} {DIM}(not encrypted){DIM:#}"));
            }
        }
    }
    running.wait();
    let time = output::age(begun.elapsed().as_millis() as u64);
    interrupt.ended(|| format!("the bridge ran for {time}"))
}

/// Stops the bridge on a signal.
fn handle_signals(format: Format, stop: Arc<OnceLock<StopHandle>>) -> Result<Interrupt, Failure> {
    let signals = InterruptOptions { format, grace: GRACE, executed: "maybe" };
    let first = move || {
        if let Some(stop) = stop.get() {
            stop.stop();
        }
    };
    Interrupt::handle(signals, first, || "the bridge stopped while calls were running".to_owned())
}

fn unusable(error: SetupError) -> Failure {
    let advice = match error {
        SetupError::Address(error) => return error.into(),
        SetupError::Beyond(_) => "--beyond-this-machine allows it",
        _ => "",
    };
    Failure::local(error.to_string(), advice)
}
