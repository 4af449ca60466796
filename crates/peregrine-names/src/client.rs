//! [`Names`]: a name service as the directory of a client.

use core::fmt;
use core::time::Duration;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use peregrine::directory::{self, Directory, Offer, Offers, Standing, Watcher};
use peregrine::{Address, BindOptions, CallError, Executed, Kind, Phase, caller};

use crate::bindings::Nowhere;
use crate::follow;
use crate::interface::{Lookup, LookupClient, NAME, NamesError};

/// The metadata that counts the name services through which a question has come.
pub(crate) const HOPS: &str = "peregrine-name-services";
/// How long the name service may take for an answer.
const LIMIT: Duration = Duration::from_secs(5);
/// How long a name service that has not answered is not asked for what is known, at least.
const PAUSE: Duration = Duration::from_secs(1);
/// How many times longer than the question without an answer the pause is. Most look-ups of known names thus
/// take no time, also if the name service is silent without refusing anything.
const PAUSE_FACTOR: u32 = 4;
/// The maximum number of names of which the last answer is kept.
const KNOWN_MAX: usize = 4096;
/// The maximum number of names that are listed.
const NAMES_MAX: usize = 100_000;
/// The number of names for which one call asks.
const PAGE: u32 = 1000;

/// Makes the options with which this process binds to name services.
static OPTIONS: OnceLock<fn() -> BindOptions> = OnceLock::new();

/// Lets [`directory::open`] and `$PEREGRINE_DIRECTORY` open name services: `peregrine://HOST[:PORT][/NAME]`,
/// or `peregrine:` and the address of the name service. Returns false if another crate has taken the scheme.
pub fn install() -> bool {
    directory::add_scheme("peregrine", |text| {
        let options = OPTIONS.get().map_or_else(BindOptions::default, |options| options());
        Ok(Arc::new(Names::at(&address_of(text)?, options)?))
    })
}

/// As [`install`], with options for the bindings to name services, such as an identity.
pub fn install_with(options: fn() -> BindOptions) -> bool {
    let _ = OPTIONS.set(options);
    install()
}

/// Returns the address that the text of a directory means, without `peregrine:`.
fn address_of(text: &str) -> Result<String, CallError> {
    let Some(rest) = text.strip_prefix("//") else { return Ok(text.to_owned()) };
    let (place, name) = match rest.split_once('/') {
        Some((place, "")) => (place, NAME),
        Some((place, name)) => (place, name),
        None => (rest, NAME),
    };
    let address = format!("{name}@{place}");
    let is_one = address.parse::<Address>().is_ok_and(|one| one.place().is_some());
    if is_one && !name.contains('@') {
        return Ok(address);
    }
    let text =
        format!("`peregrine:{text}`: write peregrine://HOST, //HOST:PORT or //HOST:PORT/NAME");
    Err(CallError::new(Kind::BadName, Executed::No, text).in_phase(Phase::Resolve))
}

/// A name service, as the directory of a client.
///
/// What it has answered stays known: when it does not answer, look-ups return the last answer, and
/// [`Offers::age`] says how old it is.
pub struct Names {
    pub(crate) address: String,
    pub(crate) options: BindOptions,
    /// The watches keep what they learn here, too.
    pub(crate) state: Arc<Mutex<State>>,
}

#[derive(Default)]
pub(crate) struct State {
    client: Option<LookupClient>,
    known: HashMap<String, (Offers, Instant)>,
    names: Option<Vec<String>>,
    is_unordered: bool,
    silent: Option<Silence>,
}

/// The name service did not answer.
struct Silence {
    /// Until when it is not asked for what is known.
    until: Instant,
    why: String,
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Names({})", self.address)
    }
}

impl Names {
    /// Uses the name service at an address. It is bound when it is needed.
    ///
    /// # Errors
    /// If the address is invalid.
    pub fn at(address: &str, options: BindOptions) -> Result<Self, CallError> {
        let _: Address = address.parse()?;
        // The address leads to the name service without a directory. Otherwise, the directory that the
        // environment selects could be this one.
        let options = options.directory(Nowhere);
        Ok(Self { address: address.to_owned(), options, state: Arc::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Returns the client of the name service, for calls of this thread.
    fn client(&self) -> Result<LookupClient, CallError> {
        let known = self.state().client.clone();
        let client = match known {
            Some(client) => client,
            None => {
                let bound = LookupClient::bind_with(&self.address, &self.options)?;
                self.state().client.insert(bound).clone()
            }
        };
        let client = client.with_timeout(LIMIT);
        match hops() {
            None => Ok(client),
            Some(hops) => client.with_metadata(HOPS, &hops),
        }
    }

    /// Asks the name service.
    fn ask<T>(
        &self,
        ask: impl FnOnce(&LookupClient) -> Result<T, NamesError>,
    ) -> Result<T, CallError> {
        let begun = Instant::now();
        let made = self.client().map_err(NamesError::from).and_then(|client| ask(&client));
        let mut state = self.state();
        let error = match made {
            Ok(made) => {
                state.silent = None;
                return Ok(made);
            }
            Err(error) => error,
        };
        let NamesError::Call(error) = error else {
            state.silent = None;
            return Err(error.into_call_error());
        };
        let now = Instant::now();
        let pause = PAUSE.max(now.saturating_duration_since(begun) * PAUSE_FACTOR);
        state.silent = Some(Silence { until: now + pause, why: error.chain() });
        // A new binding may do better, for example in a forked child.
        let ended = state.client.take();
        drop(state);
        drop(ended);
        Err(error)
    }

    /// Returns why the name service should not be asked now: it did not answer, or another thread finds out
    /// whether it answers again.
    fn silence(&self) -> Option<String> {
        let mut state = self.state();
        let silence = state.silent.as_mut()?;
        let now = Instant::now();
        if now < silence.until {
            return Some(silence.why.clone());
        }
        // This thread asks. It notes the result earlier than that.
        silence.until = now + 2 * LIMIT;
        None
    }

    /// Returns the last answer, with its age.
    fn last(&self, name: &str, why: &str) -> Option<Offers> {
        let (mut offers, at) = self.state().known.get(name)?.clone();
        offers.age = Some(offers.age.unwrap_or_default() + at.elapsed());
        offers.remark(&format!(
            "this is the last answer of the name service at {}, which cannot be asked now: {why}",
            self.address
        ));
        Some(offers)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps an answer about a name.
pub(crate) fn keep(state: &Mutex<State>, name: &str, offers: &Offers, is_ordered: bool) {
    let mut state = lock(state);
    state.silent = None;
    state.is_unordered = !is_ordered;
    if state.known.len() >= KNOWN_MAX && !state.known.contains_key(name) {
        let oldest = state.known.iter().min_by_key(|(_, (_, at))| *at);
        let oldest = oldest.map(|(name, _)| name.clone());
        oldest.map(|oldest| state.known.remove(&oldest));
    }
    state.known.insert(name.to_owned(), (offers.clone(), Instant::now()));
}

/// Returns the number of name services through which a call of this thread comes, as metadata. `None`: the
/// thread runs no call.
pub(crate) fn hops() -> Option<String> {
    let caller = caller()?;
    let hops = caller.metadata().get(HOPS).and_then(|hops| hops.parse::<u32>().ok());
    Some(hops.unwrap_or(0).saturating_add(1).to_string())
}

impl Directory for Names {
    fn offers(&self, name: &str) -> Result<Vec<Address>, CallError> {
        Ok(self.look_up(name)?.addresses().cloned().collect())
    }

    fn describe(&self) -> String {
        format!("the name service at {}", self.address)
    }

    fn look_up(&self, name: &str) -> Result<Offers, CallError> {
        if let Some(last) = self.silence().and_then(|why| self.last(name, &why)) {
            return Ok(last);
        }
        match self.ask(|client| client.resolve(name)) {
            Ok(known) => {
                let offers = known.to_offers();
                keep(&self.state, name, &offers, known.is_ordered);
                Ok(offers)
            }
            Err(error) => self.last(name, &error.chain()).ok_or(error),
        }
    }

    fn is_ordered(&self) -> bool {
        !self.state().is_unordered
    }

    fn names(&self) -> Result<Vec<String>, CallError> {
        let asked = self.ask(|client| {
            let mut names: Vec<String> = Vec::new();
            loop {
                let after = names.last().cloned().unwrap_or_default();
                let page = client.names(&after, PAGE)?;
                let is_sorted = page.names.first().is_none_or(|first| **first > *after)
                    && page.names.is_sorted();
                names.extend(page.names);
                let is_endless = page.has_more && names.last().is_none_or(|last| *last <= after);
                if !is_sorted || is_endless || names.len() > NAMES_MAX {
                    let text =
                        "the name service does not list its names in order, or lists too many";
                    return Err(CallError::new(Kind::BadResult, Executed::No, text).into());
                }
                if !page.has_more {
                    return Ok(names);
                }
            }
        });
        match asked {
            Ok(names) => {
                self.state().names = Some(names.clone());
                Ok(names)
            }
            Err(error) => self.state().names.clone().ok_or(error),
        }
    }

    fn register(&self, name: &str, _: &Offer) -> Result<Standing, CallError> {
        let text = format!(
            "`{name}` cannot be registered through {}: register in the directory itself",
            self.describe()
        );
        Err(CallError::new(Kind::BadName, Executed::No, text).in_phase(Phase::Export))
    }

    fn watch(&self, name: &str, mut watcher: Watcher) -> Result<Standing, CallError> {
        watcher(self.look_up(name)?);
        follow::begin(self, name, watcher)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_directory_leads_to_an_address() {
        for (text, address) in [
            ("//fs1", "names@fs1"),
            ("//fs1:7000/", "names@fs1:7000"),
            ("//[::1]:7000/west", "west@[::1]:7000"),
            ("tcp:names@fs1:7000", "tcp:names@fs1:7000"),
            ("names", "names"),
        ] {
            assert_eq!(address_of(text).unwrap(), address);
        }
        for text in ["//", "///names", "//fs1/a/b", "//fs1/a@b", "//fs1:x"] {
            let error = address_of(text).unwrap_err();
            assert!(error.to_string().contains("write peregrine://HOST"), "{error}");
        }
    }
}
