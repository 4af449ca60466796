//! `bridge`: offers exports of any RPC system to clients of any other, and as JSON over HTTP, until a signal
//! stops the bridge.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use peregrine::{Address, Insecure};
use peregrine_bridge::{Bridge as Bridged, InterfaceFile, SetupError, StopHandle};
use serde_json::json;

use crate::args::{Bridge, Format};
use crate::interrupt::Interrupt;
use crate::output::{self, BOLD, DIM, Failure};
use crate::saved;
use crate::security::{Listening, bind_options};

/// Runs the bridge until a signal stops it.
pub(crate) fn run(arguments: &Bridge, format: Format) -> Result<(), Failure> {
    let begun = Instant::now();
    let stop: Arc<OnceLock<StopHandle>> = Arc::default();
    let text = "the bridge stopped while calls were running";
    let interrupt =
        Interrupt::stopping(format, Arc::clone(&stop), StopHandle::stop, "maybe", text)?;
    let Bridge { addresses, http, host, body_max, calls, timeout, .. } = arguments;
    let (is_beyond, is_network_trusted) =
        (arguments.beyond_this_machine, arguments.i_trust_this_network);
    let listening = Listening { is_beyond, is_network_trusted };
    let mut bridge = Bridged::new()
        .log(|text| output::note(text))
        .body_bytes_max(usize::try_from(*body_max).unwrap_or(usize::MAX))
        .calls_max((*calls).into())
        .call_limit(*timeout)
        .bind_with(bind_options())
        .notify_systemd()
        .map_err(unusable)?;
    for address in addresses {
        bridge = match interface_of(arguments, address)? {
            Some(file) => bridge.offer_as(address, file),
            None => bridge.offer(address),
        }
        .map_err(unusable)?;
    }
    for name in host {
        bridge = bridge.host(name);
    }
    for address in http {
        bridge = match is_network_trusted {
            true => bridge.listen_beyond_this_machine(address, Insecure::ITrustThisNetwork),
            false => bridge.listen(address),
        }
        .map_err(unusable)?;
    }
    for endpoint in &arguments.listen {
        bridge = match listening.security(endpoint)? {
            Some(security) => bridge.export_beyond_this_machine(endpoint, security),
            None => bridge.export_at(endpoint),
        }
        .map_err(unusable)?;
    }
    for program in &arguments.program {
        bridge = bridge.program(program).map_err(unusable)?;
    }
    let running = bridge.spawn().map_err(unusable)?;
    let _ = stop.set(running.stop_handle());
    if interrupt.signal().is_some() {
        running.stop_handle().stop();
    }
    let urls: Vec<String> =
        running.addresses().iter().map(|one| format!("http://{one}/")).collect();
    let local = arguments.listen.iter().filter(|one| one.starts_with("local:"));
    let networks: Vec<String> = running.endpoints().iter().map(ToString::to_string).collect();
    let process = std::process::id();
    match format {
        Format::Json | Format::Ndjson => output::print(json!({
            "ready": true,
            "offers": addresses,
            "process": process,
            "http": urls,
            "listens": networks.iter().chain(local).collect::<Vec<_>>(),
        }))?,
        Format::Human => {
            let offers = addresses.join(", ");
            output::note(format_args!(
                "offering {BOLD}{offers}{BOLD:#} {DIM}(process {process}; Ctrl-C stops it){DIM:#}"
            ));
            for url in &urls {
                output::note(format_args!("at {BOLD}{url}{BOLD:#} {DIM}(not encrypted){DIM:#}"));
            }
            for endpoint in running.endpoints() {
                let how = listening.in_words(endpoint);
                output::note(format_args!("at {BOLD}{endpoint}{BOLD:#} {DIM}({how}){DIM:#}"));
            }
            local.for_each(|name| output::note(format_args!("at {BOLD}{name}{BOLD:#}")));
        }
    }
    running.wait();
    let time = output::age(begun.elapsed().as_millis() as u64);
    interrupt.ended(|| format!("the bridge ran for {time}"))
}

/// Returns the file with the interface of the export that `offer` names. `offer` has the form `ADDRESS` or
/// `NAME=ADDRESS`.
fn interface_of(arguments: &Bridge, offer: &str) -> Result<Option<InterfaceFile>, Failure> {
    let address = offer.split_once('=').map_or(offer, |(_, address)| address);
    let parsed: Address = address.parse()?;
    let name = offer.split_once('=').map_or(parsed.name(), |(name, _)| name);
    let mut files = arguments.interface.iter();
    let own = files.find_map(|one| one.split_once('=').filter(|(of, _)| *of == name));
    let file = match own {
        Some((_, file)) => Some(file),
        // Servers of other systems do not describe their interfaces, so a file without a name is for them.
        None if parsed.path().is_some_and(|path| path.system().is_some()) => {
            let mut files = arguments.interface.iter();
            files.find(|one| !one.contains('=')).map(String::as_str)
        }
        None => None,
    };
    let Some(file) = file else { return Ok(None) };
    let address = address.to_owned();
    let read = move |path: &Path| saved::read_for_call(path, &address, "").map_err(Failure::brief);
    let file = InterfaceFile::new(file, read);
    file.map(Some).map_err(|what| Failure::local(what, "use a file with an interface"))
}

fn unusable(error: SetupError) -> Failure {
    let advice = match error {
        SetupError::Address(error) | SetupError::Front(error) | SetupError::Notify(error) => {
            return error.into();
        }
        SetupError::Beyond(_) => {
            "--beyond-this-machine with --i-trust-this-network allows it: HTTP is not encrypted"
        }
        SetupError::NoInterface(_) => "--interface FILE gives it",
        SetupError::Program(_) => "correct --program",
        SetupError::Unfit(..) => {
            "--program gives numbers; use another --listen for interfaces that the system cannot carry"
        }
        _ => "",
    };
    Failure::local(error.to_string(), advice)
}
