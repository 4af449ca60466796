//! The identity that this process shows to peers on networks, and the peers that it trusts: `--identity`,
//! `--trust` and `--expect`. Also the file for their keys, which the environment may name.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use clap::{Args, ValueHint};
use peregrine::secure::{Expected, Identity, KeyDirectory, KeyError, Trust};
use peregrine::{BindOptions, Endpoint, Insecure, Server};

use crate::directory;
use crate::output::{self, DIM, Failure};

/// The shortest interval between two messages about clients that were refused.
const REFUSALS_EVERY: Duration = Duration::from_secs(1);
/// The beginning of a file of certificates.
const PEM: &str = "-----BEGIN";

/// Which key this process shows, and which keys of others it trusts.
#[derive(Args, Debug)]
pub(crate) struct Security {
    /// Show this key to peers, encrypt all calls over networks, and accept only peers that are trusted.
    /// DIR contains keys as `peregrine keys new` makes them [default: the directory of `keys`]; CERT,KEY are
    /// two files of PEM
    #[arg(
        long,
        global = true,
        value_name = "DIR|CERT,KEY",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        help_heading = "Security"
    )]
    pub(crate) identity: Option<String>,
    /// Trust these peers: a file with the lines of `peregrine keys trust`, a file with certificates of CAs,
    /// or a directory with both; one of each can be given [default: those in the directory of --identity]
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        value_hint = ValueHint::AnyPath,
        requires = "identity",
        help_heading = "Security"
    )]
    pub(crate) trust: Vec<PathBuf>,
    /// Call only this server, wherever it is: the name or the fingerprint of a trusted key, as key:NAME or
    /// SHA256:..., or a name in its certificate, as spiffe://DOMAIN/PATH or a host [default: the host of the
    /// address]
    #[arg(
        long,
        global = true,
        value_name = "PEER",
        requires = "identity",
        help_heading = "Security"
    )]
    pub(crate) expect: Option<Expected>,
}

/// What the options of this process mean.
struct Chosen {
    identity: Identity,
    trust: Trust,
    expect: Option<Expected>,
}

/// `None` if this process shows no key.
static CHOSEN: OnceLock<Option<Chosen>> = OnceLock::new();

fn failed(what: &str, error: &KeyError, advice: &'static str) -> Failure {
    let (causes, what) = (vec![error.to_string()], what.to_owned());
    Failure::Local { what, causes, advice, suggestions: Vec::new() }
}

impl Security {
    /// Reads the keys. From then on, [`bind_options`] uses them.
    pub(crate) fn choose(&self) -> Result<(), Failure> {
        let chosen = match &self.identity {
            None => None,
            Some(text) => Some(self.read(text)?),
        };
        let _ = CHOSEN.set(chosen);
        Ok(())
    }

    fn read(&self, text: &str) -> Result<Chosen, Failure> {
        let advice = "`peregrine keys new` makes a key, and `peregrine keys show` checks it";
        let directory = match text {
            "" => Some(of_environment()?),
            text if text.contains(',') => None,
            text => Some(KeyDirectory::at(text)),
        };
        let identity = match (&directory, text.split_once(',')) {
            (Some(directory), _) => directory.identity(),
            (None, pair) => {
                let (cert, key) = pair.unwrap_or_default();
                Identity::load(cert, key)
            }
        };
        let identity = identity.map_err(|error| failed("cannot read the key", &error, advice))?;
        log_keys(&identity)?;
        Ok(Chosen {
            identity,
            trust: self.trusted(directory.as_ref())?,
            expect: self.expect.clone(),
        })
    }

    fn trusted(&self, directory: Option<&KeyDirectory>) -> Result<Trust, Failure> {
        let unreadable = |error: &KeyError| {
            failed("cannot read which peers are trusted", error, "mend the file with an editor")
        };
        if self.trust.is_empty() {
            let Some(directory) = directory else {
                let what = "no peer is trusted: --identity=CERT,KEY says nothing about peers";
                return Err(Failure::local(
                    what,
                    "add --trust with a CA, or with the keys of peers",
                ));
            };
            return directory.trust().map_err(|error| unreadable(&error));
        }
        let (mut keys, mut authorities) = (None, None);
        for path in &self.trust {
            let (one, other) = lists_at(path)?;
            for (place, found) in [(&mut keys, one), (&mut authorities, other)] {
                let Some(found) = found else { continue };
                if place.replace(found).is_some() {
                    let what = "--trust names two lists of keys, or two lists of CAs";
                    return Err(Failure::local(what, "put them into one file"));
                }
            }
        }
        Trust::load(keys, authorities).map_err(|error| unreadable(&error))
    }
}

fn of_environment() -> Result<KeyDirectory, Failure> {
    let advice = "write --identity=DIR, or set PEREGRINE_KEYS";
    KeyDirectory::of_environment()
        .map_err(|error| failed("no directory for keys is known", &error, advice))
}

/// The variable that names a file for the keys of connections.
const KEY_LOG: &str = "PEREGRINE_KEY_LOG";

/// The identity whose keys are logged.
static LOGGED: OnceLock<Identity> = OnceLock::new();

/// Lets the keys of connections be written to a file, if the environment names one. Prints a note, because
/// anyone with the file can read the calls.
fn log_keys(identity: &Identity) -> Result<(), Failure> {
    let Some(path) = std::env::var_os(KEY_LOG).filter(|path| !path.is_empty()) else {
        return Ok(());
    };
    let advice = "let PEREGRINE_KEY_LOG name a file that only you can read, or unset it";
    let logged = identity.log_keys_to(&path);
    logged.map_err(|error| failed("cannot log keys", &error, advice))?;
    if LOGGED.set(identity.clone()).is_ok() {
        output::note(format_args!(
            "the keys of encrypted calls are written to {}: anyone with this file can read the calls",
            Path::new(&path).display()
        ));
    }
    Ok(())
}

/// Reports at the end of a command that keys could not be written to the file, if so.
pub(crate) struct ReportKeyLog;

impl Drop for ReportKeyLog {
    fn drop(&mut self) {
        if let Some(problem) = LOGGED.get().and_then(Identity::problem) {
            output::note(problem);
        }
    }
}

/// Returns the list of keys and the list of CAs at a path, which is a directory or one of these files.
fn lists_at(path: &Path) -> Result<(Option<PathBuf>, Option<PathBuf>), Failure> {
    let unreadable = |error: std::io::Error| {
        let what = format!("cannot read {}: {error}", path.display());
        Failure::local(what, "let --trust name a file or a directory")
    };
    if std::fs::metadata(path).map_err(unreadable)?.is_dir() {
        let directory = KeyDirectory::at(path);
        let existing = |file: PathBuf| Some(file).filter(|file| file.exists());
        let lists = (existing(directory.trusted_file()), existing(directory.authorities_file()));
        if lists == (None, None) {
            let what = format!("{} contains neither keys nor CAs", path.display());
            return Err(Failure::local(what, "`peregrine keys trust` adds keys of peers"));
        }
        return Ok(lists);
    }
    let text = std::fs::read(path).map_err(unreadable)?;
    let is_pem = text.windows(PEM.len()).any(|window| window == PEM.as_bytes());
    let path = Some(path.to_path_buf());
    Ok(if is_pem { (None, path) } else { (path, None) })
}

/// Returns the options for all bindings of this process.
pub(crate) fn bind_options() -> BindOptions {
    let options = directory::add_to(BindOptions::default());
    let Some(Some(chosen)) = CHOSEN.get() else { return options };
    let options = options.secure(chosen.identity.clone(), chosen.trust.clone());
    match &chosen.expect {
        Some(expected) => options.expect(expected.clone()),
        None => options,
    }
}

/// Where a server of this process listens, and what protects calls there.
pub(crate) struct Listening {
    /// Whether endpoints that other machines can reach are allowed.
    pub(crate) is_beyond: bool,
    /// Whether such endpoints may be without encryption.
    pub(crate) is_network_trusted: bool,
}

impl Listening {
    /// Returns what protects calls at an endpoint. `None`: only this machine can reach it, and nothing
    /// protects calls.
    pub(crate) fn security(&self, endpoint: &str) -> Result<Option<peregrine::Security>, Failure> {
        let chosen = CHOSEN.get().and_then(Option::as_ref);
        let is_foreign = matches!(endpoint.parse(), Ok(Endpoint::Foreign(..)));
        if self.is_network_trusted && (chosen.is_none() || is_foreign) {
            return Ok(self.is_beyond.then_some(Insecure::ITrustThisNetwork.into()));
        }
        if let Some(Chosen { identity, trust, .. }) = chosen {
            return Ok(Some((identity.clone(), trust.clone()).into()));
        }
        if !self.is_beyond {
            return Ok(None);
        }
        let directory = of_environment()?;
        if !directory.identity_file().exists() {
            let what = "other machines could call without encryption: this user has no key yet";
            return Err(Failure::local(what, NO_KEY));
        }
        let advice = "`peregrine keys show` checks the key";
        let failed = |error: KeyError| failed("cannot read the key of this user", &error, advice);
        let identity = directory.identity().map_err(failed)?;
        let trust = directory.trust().map_err(failed)?;
        log_keys(&identity)?;
        Ok(Some((identity, trust).into()))
    }

    /// Lets a server listen at an endpoint.
    pub(crate) fn listen(&self, server: Server, endpoint: &str) -> Result<Server, Failure> {
        Ok(match self.security(endpoint)? {
            Some(security) => server.listen_beyond_this_machine(endpoint, security)?,
            None => server.listen(endpoint)?,
        })
    }

    /// Says in words how calls at an endpoint are protected.
    pub(crate) fn in_words(&self, endpoint: &Endpoint) -> &'static str {
        let is_foreign = matches!(endpoint, Endpoint::Foreign(..));
        let has_key = CHOSEN.get().is_some_and(Option::is_some);
        let is_encrypted = match self.is_network_trusted {
            true => has_key && !is_foreign,
            false => has_key || self.is_beyond,
        };
        match (is_encrypted, self.is_beyond) {
            (true, _) => "encrypted, open to the peers that are trusted",
            (false, true) => "not encrypted, open to every host that reaches it",
            (false, false) => "not encrypted, open to every user of this machine",
        }
    }
}

/// The advice for a server without a key.
const NO_KEY: &str = "`peregrine keys new` makes a key; or add --i-trust-this-network, if all of its hosts are \
     trusted";

/// Reports the clients that a server refuses on standard error, at most one in each second.
pub(crate) fn report_refusals(server: Server) -> Server {
    /// When a message was printed, and how many refusals have not been reported since.
    struct Reported(Option<Instant>, u64);
    let reported = Mutex::new(Reported(None, 0));
    server.on_refused(move |from, refusal| {
        let mut reported = reported.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if reported.0.is_some_and(|last| last.elapsed() < REFUSALS_EVERY) {
            reported.1 += 1;
            return;
        }
        let more = match reported.1 {
            0 => String::new(),
            more => format!(" {DIM}(and {more} others before){DIM:#}"),
        };
        *reported = Reported(Some(Instant::now()), 0);
        output::note(format_args!(
            "refused {from}: {}{more}",
            output::visible(&refusal.to_string())
        ));
    })
}
