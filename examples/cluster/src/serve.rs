//! A server of the store: it registers, copies what the other replicas have, and drains when it is stopped.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use peregrine::directory::{self, Directory};
use peregrine::{BindOptions, CallError, ExportOptions, Insecure, Server};
use serde_json::json;

use crate::replicas::{CALL_LIMIT, PLACES_MAX, REPLICAS, SETTLE, place_name, places_of};
use crate::store::{Shelf, Store as _, StoreClient, StoreError, StoreServer};
use crate::{Format, now_us};

/// The pause before a server that could not copy everything tries it again.
const COPY_AGAIN: Duration = Duration::from_millis(200);

/// Serves a place of the store until a signal arrives
#[derive(clap::Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The place of this server: 0 to one less than the number of places
    #[arg(long)]
    place: u32,
    /// Where the server listens, such as 192.0.2.7:7193. Port 0 is any free port
    #[arg(long, value_name = "ADDRESS")]
    listen: String,
    /// The host by which clients reach this server. By default the address at which it listens
    #[arg(long, value_name = "HOST")]
    advertise: Option<String>,
    /// Listen although other machines can reach the address, and calls are not encrypted
    #[arg(long)]
    trust_network: bool,
    /// A file that exists while the server runs and is caught up, for readiness probes
    #[arg(long, value_name = "PATH")]
    ready_file: Option<PathBuf>,
    /// How the server reports what it does
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Which store it is.
#[derive(clap::Args, Clone)]
pub(crate) struct StoreArgs {
    /// The directory, such as etcd://HOST,HOST/PREFIX
    #[arg(long, env = "PEREGRINE_DIRECTORY", value_name = "SCHEME:WHERE")]
    directory: String,
    /// The name of the store. The server at place 3 also has the name NAME-3
    #[arg(long, default_value = "store")]
    pub(crate) name: String,
    /// The number of places, the same one for all servers and clients
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(REPLICAS as i64..=i64::from(PLACES_MAX)))]
    pub(crate) places: u32,
}

impl StoreArgs {
    /// # Errors
    /// If the text of the directory is not valid.
    pub(crate) fn open(&self) -> Result<Arc<dyn Directory>, CallError> {
        peregrine_etcd::install();
        directory::open(&self.directory)
    }
}

/// Serves until a signal arrives.
///
/// # Errors
/// If the server cannot listen, or the directory does not accept the registration.
pub(crate) fn run(args: &Serve) -> Result<(), String> {
    let places = args.store.places;
    if args.place >= places {
        return Err(format!(
            "the place is {}, but the last one of {places} is {}: give another place, or more places",
            args.place,
            places - 1
        ));
    }
    serve(args).map_err(|error| error.to_string())
}

fn serve(args: &Serve) -> Result<(), CallError> {
    let directory = args.store.open()?;
    let ready = Ready::new(args.ready_file.clone())?;
    let (name, shelf) = (&args.store.name, Shelf::default());
    // Another server of the name may run on the same machine.
    let options = ExportOptions::default().networks_only();
    let mut server = Server::new().notify_systemd()?.stop_on_signals();
    for name in [name.clone(), place_name(name, args.place)] {
        server = server.export_with(&name, StoreServer::new(shelf.clone()), options.clone())?;
    }
    server = match args.trust_network {
        true => server.listen_beyond_this_machine(&args.listen, Insecure::ITrustThisNetwork)?,
        false => server.listen(&args.listen)?,
    };
    if let Some(host) = &args.advertise {
        server = server.advertise(host)?;
    }
    let begun = now_us();
    let running = server.register_in(Arc::clone(&directory)).spawn()?;
    let addresses: Vec<_> = running.addresses().iter().map(ToString::to_string).collect();
    report(args, "registered", &json!({ "begun_us": begun, "addresses": addresses }));
    let (store, place, format) = (args.store.clone(), args.place, args.format);
    let reports = Reports { place, format };
    let copied = shelf.clone();
    let copies = thread::Builder::new().name("catch-up".to_owned());
    let says = ready.clone();
    let copies = copies.spawn(move || {
        catch_up(&*directory, &store, place, &copied, &reports);
        if let Err(error) = says.set() {
            reports.say("not-ready", &json!({ "why": error.to_string() }));
        }
    });
    if let Err(error) = copies {
        // Such a server would never answer a get.
        let text = format!("cannot start the thread that copies from other servers: {error}");
        running.stop();
        return Err(CallError::new(peregrine::Kind::Exhausted, peregrine::Executed::No, text));
    }
    running.wait();
    ready.remove();
    report(args, "stopped", &json!({ "keys": shelf.keys() }));
    Ok(())
}

/// The file that says that the server is caught up.
#[derive(Clone)]
struct Ready(Option<PathBuf>);

impl Ready {
    /// Removes a file that an earlier server has left.
    ///
    /// # Errors
    /// If the file cannot be removed.
    fn new(path: Option<PathBuf>) -> Result<Self, CallError> {
        match path.as_deref().map(fs::remove_file) {
            Some(Err(error)) if error.kind() != std::io::ErrorKind::NotFound => {
                let path = path.as_deref().unwrap_or(Path::new("")).display();
                let text = format!("cannot remove {path}: {error}");
                Err(CallError::new(peregrine::Kind::BadName, peregrine::Executed::No, text))
            }
            _ => Ok(Self(path)),
        }
    }

    fn set(&self) -> std::io::Result<()> {
        self.0.as_ref().map_or(Ok(()), |path| fs::write(path, b""))
    }

    fn remove(&self) {
        if let Some(path) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

/// How the server reports what it does.
struct Reports {
    place: u32,
    format: Format,
}

fn report(args: &Serve, event: &str, details: &serde_json::Value) {
    Reports { place: args.place, format: args.format }.say(event, details);
}

impl Reports {
    /// Prints a line. Standard output may be closed, which is no reason to stop serving.
    fn say(&self, event: &str, details: &serde_json::Value) {
        use std::io::Write as _;
        let place = self.place;
        let line = match self.format {
            Format::Json => {
                let mut line = json!({ "event": event, "place": place, "at_us": now_us() });
                if let (Some(line), Some(details)) = (line.as_object_mut(), details.as_object()) {
                    line.extend(details.clone());
                }
                line.to_string()
            }
            _ => format!("place {place}: {event} {details}"),
        };
        let _ = writeln!(std::io::stdout(), "{line}");
    }
}

/// Copies what the other servers have, until all of it is here. Then gets count on this server.
///
/// A value that was acknowledged before this server started is at one other place at least. It may be at one
/// only, so the servers of all other places must be asked, also one that this server replaces.
fn catch_up(directory: &dyn Directory, store: &StoreArgs, own: u32, shelf: &Shelf, say: &Reports) {
    thread::sleep(SETTLE);
    let mut last = String::new();
    loop {
        match copy_all(directory, store, own, shelf) {
            Ok(()) => break,
            Err(why) => {
                if why != last {
                    say.say("waits", &json!({ "why": why }));
                    last = why;
                }
                thread::sleep(COPY_AGAIN);
            }
        }
    }
    shelf.set_caught_up();
    say.say("caught-up", &json!({ "keys": shelf.keys() }));
}

/// Copies what all other servers have. Returns why this is not complete.
fn copy_all(
    directory: &dyn Directory,
    store: &StoreArgs,
    own: u32,
    shelf: &Shelf,
) -> Result<(), String> {
    for place in 0..store.places {
        let name = place_name(&store.name, place);
        let offers = directory.look_up(&name).map_err(|error| error.to_string())?;
        if offers.servers.is_empty() && place != own {
            return Err(format!("no server has registered at place {place}: start one there"));
        }
        // At its own place, this server is one of the servers. It has nothing that it lacks.
        for offer in &offers.servers {
            let address = offer.addresses()[0].to_string();
            copy(&address, store.places, own, shelf).map_err(|why| format!("{address}: {why}"))?;
        }
    }
    Ok(())
}

/// Copies what one server has and this server should have.
fn copy(address: &str, places: u32, own: u32, shelf: &Shelf) -> Result<(), String> {
    let options = BindOptions::default().timeout(CALL_LIMIT).bind_timeout(CALL_LIMIT);
    let text = |error: CallError| error.to_string();
    let other = StoreClient::bind_with(address, &options).map_err(text)?;
    let mut after = String::new();
    loop {
        let page = other.list(&after).map_err(text)?;
        for listed in &page.entries {
            // The keys come in their order. Otherwise this loop might not end.
            if listed.key <= after {
                return Err("the keys are not in order".to_owned());
            }
            after.clone_from(&listed.key);
            if !places_of(&listed.key, places).contains(&own)
                || shelf.version(&listed.key) >= listed.version
            {
                continue;
            }
            if let Some(newest) = other.get(&listed.key).map_err(text)?.newest {
                let kept = shelf.keep(&listed.key, newest.version, &newest.value);
                kept.map_err(|error| match error {
                    StoreError::Call(error) => error.to_string(),
                    StoreError::EmptyKey => "another server has an empty key".to_owned(),
                    StoreError::Full { keys, .. } => {
                        format!("this server is full: it has {keys} keys")
                    }
                })?;
            }
        }
        if !page.has_more || page.entries.is_empty() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_file_exists_only_while_the_server_is_caught_up() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ready");
        fs::write(&path, b"of an earlier server").unwrap();
        let ready = Ready::new(Some(path.clone())).unwrap();
        assert!(!path.exists());
        ready.set().unwrap();
        assert!(path.exists());
        ready.remove();
        assert!(!path.exists());
        let error = Ready::new(Some(directory.path().to_owned())).err().unwrap();
        assert!(error.to_string().contains("cannot remove"), "{error}");
        Ready::new(None).unwrap().set().unwrap();
    }
}
