//! `serve`: exports the files of a directory until a signal stops the server.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use peregrine::{Address, Endpoint, ExportOptions, Server, StopHandle, directory};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use serde_json::json;

use crate::args::{Format, Serve};
use crate::files::{Directory, FilesServer};
use crate::interrupt::Interrupt;
use crate::output::{self, BOLD, DIM, Failure, OrFail};
use crate::security::{self, Listening};
use crate::{directory as names, register};

/// The interval at which a server that registers looks for signals, and whether the directory answers.
const LOOK: Duration = Duration::from_millis(50);

/// Serves one directory.
pub(crate) fn run(serve: &Serve, format: Format) -> Result<(), Failure> {
    if let Some(parent) = serve.parent {
        end_with(parent, Signal::TERM)?;
    }
    // The signal handler is installed before the export, so that a signal at any time removes the exported
    // name.
    let begun = Instant::now();
    let stop: Arc<OnceLock<StopHandle>> = Arc::default();
    let interrupt = handle_signals(format, Arc::clone(&stop))?;
    let shown = serve.dir.display();
    let dir = serve.dir.canonicalize().or_fail(format_args!("cannot serve {shown}"));
    let dir = dir.map_err(|failure| failure.suggest(output::near_files(&serve.dir)))?;
    let own = || dir.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = serve.name.clone().or_else(own).ok_or_else(|| {
        Failure::local(format!("{shown} has no directory name"), "name the export with --name")
    })?;
    let files =
        Directory::open(&dir, serve.writable).or_fail(format_args!("cannot serve {shown}"))?;
    let mut options = ExportOptions::default();
    if serve.public {
        options = options.public();
    }
    let mut server = Server::new().threads(serve.threads.into()).notify_systemd()?;
    let (is_beyond, is_network_trusted) = (serve.beyond_this_machine, serve.i_trust_this_network);
    let listening = Listening { is_beyond, is_network_trusted };
    for endpoint in &serve.listen {
        server = listening.listen(server, endpoint)?;
    }
    let mut server = security::report_refusals(server);
    let mut registered_in = None;
    if serve.register {
        let directory = names::chosen()?;
        registered_in = Some(directory.describe());
        server = server.register_in(directory);
        for host in &serve.advertise {
            server = server.advertise(host)?;
        }
        if let Some(text) = &serve.registered_as {
            server = server.registered_as(text)?;
        }
    }
    let server = server.export_with(&name, FilesServer::new(files), options)?.spawn()?;
    let _ = stop.set(server.stop_handle());
    if interrupt.signal().is_some() {
        server.stop_handle().stop();
    }
    let addresses: Vec<String> =
        server.addresses().iter().map(|endpoint| address_at(endpoint, &name)).collect();
    let process = std::process::id();
    match format {
        Format::Json | Format::Ndjson => {
            let mut ready = json!({
                "ready": true,
                "name": name,
                "directory": dir.display().to_string(),
                "writable": serve.writable,
                "public": serve.public,
                "process": process,
                "socket": socket(&name),
                "addresses": addresses,
            });
            if let Some(place) = &registered_in {
                ready["registered_in"] = json!(place);
            }
            output::print(ready)?;
        }
        Format::Human => {
            let access = if serve.writable { "to read and write" } else { "to read" };
            let whom = if serve.public { "all users" } else { "this user" };
            output::note(format_args!(
                "serving {BOLD}{}{BOLD:#} as {BOLD}{name}{BOLD:#}, {access}, to {whom} \
                 {DIM}(process {process}; Ctrl-C stops it){DIM:#}",
                dir.display()
            ));
            for (address, endpoint) in addresses.iter().zip(server.addresses()) {
                let how = listening.in_words(endpoint);
                output::note(format_args!("and at {BOLD}{address}{BOLD:#} {DIM}({how}){DIM:#}"));
            }
            if let Some(place) = &registered_in {
                output::note(format_args!("registered in {place}"));
            }
        }
    }
    let mut problem = None;
    // A signal also stops the server, which first withdraws its registration.
    while registered_in.is_some() && interrupt.signal().is_none() {
        register::report(&name, server.registration_problems(), &mut problem, format)?;
        std::thread::sleep(LOOK);
    }
    server.wait();
    let time = output::age(begun.elapsed().as_millis() as u64);
    interrupt.ended(|| format!("`{name}` was served for {time}; its name is removed"))
}

/// Stops a server on a signal.
pub(crate) fn handle_signals(
    format: Format,
    stop: Arc<OnceLock<StopHandle>>,
) -> Result<Interrupt, Failure> {
    let text = "the server stopped while procedures were running";
    Interrupt::stopping(format, stop, StopHandle::stop, "no", text)
}

/// Returns the address of an export at an endpoint, such as `tcp:files@192.0.2.7:7000`.
fn address_at(endpoint: &Endpoint, name: &str) -> String {
    let text = format!("{endpoint}/{name}");
    text.parse::<Address>().map_or(text, |address| address.to_string())
}

/// Returns the path of the socket of the export `name` on this machine.
fn socket(name: &str) -> Option<String> {
    let entries = directory::list();
    let entry = entries.into_iter().find(|entry| entry.alive == Some(true) && entry.name == name);
    entry.map(|entry| entry.socket.display().to_string())
}

/// Asks the kernel to send a signal to this process when the parent process ends.
pub(crate) fn end_with(parent: u32, signal: Signal) -> Result<(), Failure> {
    set_parent_process_death_signal(Some(signal)).or_fail("cannot watch the parent process")?;
    // If the parent ended before the request, the kernel sends no signal. So this function checks
    // whether the parent has ended.
    let ours = getppid().map(Pid::as_raw_nonzero).map(|pid| pid.get().cast_unsigned());
    if ours == Some(parent) {
        return Ok(());
    }
    Err(Failure::local("the parent process has ended", "omit --parent"))
}
