//! `serve`: exports a directory's files until it is told to stop.

use peregrine::{ExportOptions, Server, directory};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use serde_json::json;

use crate::args::{Format, Serve};
use crate::files::{Directory, FilesServer};
use crate::output::{self, BOLD, DIM, During, Failure};

/// Serves one directory.
pub(crate) fn run(serve: &Serve, format: Format) -> Result<(), Failure> {
    if let Some(parent) = serve.parent {
        end_with(parent, Signal::TERM)?;
    }
    let shown = serve.dir.display();
    let dir = serve.dir.canonicalize().during(format_args!("serving {shown}"))?;
    let own = || dir.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = serve.name.clone().or_else(own).ok_or_else(|| {
        Failure::local(format!("{shown} has no name of its own"), "give it one with --name")
    })?;
    let files = Directory::open(&dir, serve.writable).during(format_args!("serving {shown}"))?;
    let mut options = ExportOptions::default();
    if serve.public {
        options = options.public();
    }
    let mut server = Server::new().threads(serve.threads.into()).stop_on_signals();
    for endpoint in &serve.listen {
        server = match serve.beyond_this_machine {
            true => server.listen_beyond_this_machine(endpoint)?,
            false => server.listen(endpoint)?,
        };
    }
    let server = server.export_with(&name, FilesServer::new(files), options)?.spawn()?;
    let addresses = server.addresses().iter().map(|endpoint| format!("{endpoint}/{name}"));
    let addresses: Vec<String> = addresses.collect();
    let process = std::process::id();
    match format {
        Format::Json => output::print(json!({
            "ready": true,
            "name": name,
            "directory": dir.display().to_string(),
            "writable": serve.writable,
            "public": serve.public,
            "process": process,
            "socket": socket(&name),
            "addresses": addresses,
        }))?,
        Format::Human => {
            let access = if serve.writable { "to read and write" } else { "to read" };
            let whom = if serve.public { "every user" } else { "this user" };
            output::tell(format_args!(
                "serving {BOLD}{}{BOLD:#} as {BOLD}{name}{BOLD:#}, {access}, to {whom} \
                 {DIM}(process {process}; Ctrl-C stops it){DIM:#}",
                dir.display()
            ));
            for address in &addresses {
                output::tell(format_args!(
                    "and at {BOLD}{address}{BOLD:#} {DIM}(not encrypted, to whoever reaches it){DIM:#}"
                ));
            }
        }
    }
    server.wait();
    if format == Format::Human {
        output::tell(format_args!("{name} is no longer served"));
    }
    Ok(())
}

/// Where the name stands.
fn socket(name: &str) -> Option<String> {
    let entries = directory::list();
    let entry = entries.into_iter().find(|entry| entry.alive && entry.name == name);
    entry.map(|entry| entry.socket.display().to_string())
}

/// Asks for a signal when the parent has ended.
pub(crate) fn end_with(parent: u32, signal: Signal) -> Result<(), Failure> {
    set_parent_process_death_signal(Some(signal)).during("minding the parent process")?;
    // It may have ended before that.
    let ours = getppid().map(Pid::as_raw_nonzero).map(|pid| pid.get().cast_unsigned());
    if ours == Some(parent) {
        return Ok(());
    }
    Err(Failure::local("the parent process has ended", "leave out --parent"))
}
