//! The client of a sharded and replicated store. Each key has three replicas, and a quorum is two.
//!
//! The store has a fixed number of *places*. A place is a number with usually one server: a server at the
//! place 3 registers under the name `store-3`. The hash of a key and of each place decides which three places
//! have the key (rendezvous hashing), so all clients agree, and a server that is gone for a while moves no
//! key.
//!
//! A put has succeeded when two places have stored it. A get needs two places whose servers are caught up,
//! and takes the newest version. Two of three places always have one place in common with another two.
//!
//! A place has two servers while one replaces the other. It has stored a value when both have.

use std::hash::Hasher as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use peregrine::directory::{Directory, Offer, Offers, Standing};
use peregrine::{BindOptions, CallError, Executed, Kind, Wait};
use siphasher::sip::SipHasher13;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::store::{Found, StoreAsync as _, StoreAsyncClient, StoreError, Versioned};

/// The number of places that have a key.
pub(crate) const REPLICAS: usize = 3;
/// The number of places that must answer.
const QUORUM: usize = 2;
/// The most places that a store may have.
pub(crate) const PLACES_MAX: u32 = 64;

/// How long a call to one server may take. A server does not begin a put after this time.
pub(crate) const CALL_LIMIT: Duration = Duration::from_secs(1);

/// How long a new server waits before it copies what other servers have. In this time, all clients learn of
/// the server, and the puts end that clients began before.
pub(crate) const SETTLE: Duration = Duration::from_secs(2);

/// After this time, a get also asks the third place.
const IMPATIENT: Duration = Duration::from_millis(50);

/// The pause after a failed attempt to bind to a server.
const BIND_AGAIN: Duration = Duration::from_millis(200);

/// The most servers of one place that a client calls.
const SERVERS_MAX: usize = 4;

/// Returns the name under which the server at a place registers.
pub(crate) fn place_name(store: &str, place: u32) -> String {
    format!("{store}-{place}")
}

/// Returns the places of a key, the same ones for all clients.
pub(crate) fn places_of(key: &str, places: u32) -> [u32; REPLICAS] {
    let weight = |place: u32| {
        let mut hasher = SipHasher13::new();
        hasher.write(key.as_bytes());
        hasher.write_u32(place.to_le());
        hasher.finish()
    };
    let mut all: Vec<(u64, u32)> = (0..places).map(|place| (weight(place), place)).collect();
    all.sort_unstable_by(|one, other| other.cmp(one));
    [0, 1, 2].map(|at| all[at].1)
}

/// Why a get or a put has failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Whether any server may have stored the value.
    pub(crate) executed: Executed,
    /// The kind of the first failure at a place.
    kind: &'static str,
    pub(crate) text: String,
}

impl Failure {
    fn of_call(error: &CallError) -> Self {
        Self { executed: error.executed(), kind: kind_name(error.kind()), text: error.to_string() }
    }

    fn at_place(place: u32, kind: &'static str, why: &str) -> Self {
        Self { executed: Executed::No, kind, text: format!("place {place}: {why}") }
    }

    /// Returns a short text of which there are only a few.
    pub(crate) fn label(&self) -> String {
        format!("{} ({})", self.kind, self.executed)
    }
}

/// Returns a short text for a failed call, in the same form as [`Failure::label`].
pub(crate) fn label(error: &CallError) -> String {
    format!("{} ({})", kind_name(error.kind()), error.executed())
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::NotFound => "NotFound",
        Kind::Exhausted => "Exhausted",
        Kind::Overloaded => "Overloaded",
        Kind::ServerGone => "ServerGone",
        Kind::TimedOut => "TimedOut",
        Kind::Unreachable => "Unreachable",
        Kind::Withdrawn => "Withdrawn",
        other => other.text(),
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Call(error) => Self::of_call(&error),
            StoreError::EmptyKey => {
                let text = "a key must not be empty".to_owned();
                Self { executed: Executed::No, kind: "empty key", text }
            }
            StoreError::Full { keys, bytes } => {
                let text = format!("a server is full: it has {keys} keys with {bytes} bytes");
                Self { executed: Executed::No, kind: "full", text }
            }
        }
    }
}

/// A server, to which a task binds.
struct Server {
    offer: Offer,
    client: OnceLock<StoreAsyncClient>,
}

impl Server {
    /// Binds to the server, until this succeeds or the directory does not know the server any more.
    async fn bind(server: Weak<Self>) {
        loop {
            let Some(address) = server.upgrade().map(|it| it.offer.addresses()[0].to_string())
            else {
                return;
            };
            let options = BindOptions::default().timeout(CALL_LIMIT).wait(Wait::Block);
            let options = options.bind_timeout(CALL_LIMIT);
            if let Ok(client) = StoreAsyncClient::bind_with(&address, &options).await {
                if let Some(server) = server.upgrade() {
                    let _ = server.client.set(client);
                }
                return;
            }
            tokio::time::sleep(BIND_AGAIN).await;
        }
    }

    fn client(&self, place: u32) -> Result<&StoreAsyncClient, Failure> {
        let unbound = || {
            let why = format!("no binding to {} yet", self.offer);
            Failure::at_place(place, "Unreachable", &why)
        };
        self.client.get().ok_or_else(unbound)
    }
}

/// A place, and its servers.
struct Place {
    number: u32,
    servers: Mutex<Vec<Arc<Server>>>,
}

impl Place {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Server>>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what the directory knows.
    fn offered(&self, offers: Offers, runtime: &Handle) {
        let mut servers = self.lock();
        let mut now = Vec::new();
        for offer in offers.servers.into_iter().take(SERVERS_MAX) {
            match servers.iter().find(|one| one.offer == offer) {
                Some(known) => now.push(Arc::clone(known)),
                None => {
                    let server = Arc::new(Server { offer, client: OnceLock::new() });
                    runtime.spawn(Server::bind(Arc::downgrade(&server)));
                    now.push(server);
                }
            }
        }
        let former = std::mem::replace(&mut *servers, now);
        drop(servers);
        // Dropping a binding over raw Ethernet takes long, because the kernel does not close its sockets at
        // once. So neither this lock nor a thread that makes calls waits for it.
        runtime.spawn(async move {
            // The calls that use these servers end within this time.
            tokio::time::sleep(2 * CALL_LIMIT).await;
            tokio::task::spawn_blocking(move || drop(former));
        });
    }

    /// # Errors
    /// If the directory knows no server at this place.
    fn servers(&self) -> Result<Vec<Arc<Server>>, Failure> {
        let servers = self.lock().clone();
        match servers.is_empty() {
            true => Err(Failure::at_place(self.number, "NotFound", "no server is registered")),
            false => Ok(servers),
        }
    }

    /// Returns the newest value that the place has. All its servers must answer, because a server that was cut
    /// off may have missed what the other one has stored. One of them must be caught up.
    async fn get(&self, key: &str) -> Result<Found, Failure> {
        let servers = self.servers()?;
        let gets = servers.iter().map(|server| async {
            let found = server.client(self.number)?.get(key).await;
            found.map_err(|error| Failure::of_call(&error))
        });
        let mut all = Found { newest: None, is_caught_up: false };
        for found in join_all(gets).await {
            let Found { newest, is_caught_up } = found?;
            all.is_caught_up |= is_caught_up;
            let version = |one: &Option<Versioned>| one.as_ref().map(|one| one.version);
            if version(&newest) > version(&all.newest) {
                all.newest = newest;
            }
        }
        Ok(all)
    }

    /// Stores a value at all servers of this place.
    async fn put(&self, key: &str, new: &Versioned) -> Result<(), Failure> {
        let servers = self.servers()?;
        let puts = servers.iter().map(|server| async {
            let put = server.client(self.number)?.put(key, new.version, &new.value).await;
            put.map(drop).map_err(Failure::from)
        });
        let ended = join_all(puts).await;
        let has_not_run = |one: &Result<(), Failure>| {
            one.as_ref().is_err_and(|failure| failure.executed == Executed::No)
        };
        let executed = if ended.iter().all(has_not_run) { Executed::No } else { Executed::Maybe };
        let failed = ended.into_iter().find_map(Result::err);
        failed.map_or(Ok(()), |failure| Err(Failure { executed, ..failure }))
    }
}

/// The client of a store.
pub(crate) struct Replicas {
    places: Vec<Arc<Place>>,
    /// Which place of a key a get asks first.
    turn: AtomicUsize,
    /// The directory reports changes as long as these exist.
    _watches: Vec<Standing>,
}

impl Replicas {
    /// Begins to follow the places of a store. Runs in a runtime of tokio, whose tasks bind to servers.
    ///
    /// # Errors
    /// If the directory does not answer, or cannot be watched.
    pub(crate) fn new(
        directory: &dyn Directory,
        store: &str,
        places: u32,
    ) -> Result<Self, CallError> {
        let runtime = Handle::current();
        let mut watches = Vec::new();
        let mut all = Vec::new();
        for number in 0..places {
            let place = Arc::new(Place { number, servers: Mutex::default() });
            let (runtime, follows) = (runtime.clone(), Arc::clone(&place));
            let watcher = Box::new(move |offers| follows.offered(offers, &runtime));
            watches.push(directory.watch(&place_name(store, number), watcher)?);
            all.push(place);
        }
        Ok(Self { places: all, turn: AtomicUsize::new(0), _watches: watches })
    }

    /// Returns the places at which there is no server to which this client is bound.
    pub(crate) fn unbound(&self) -> Vec<u32> {
        let is_bound = |place: &Place| place.lock().iter().any(|one| one.client.get().is_some());
        let unbound = self.places.iter().filter(|place| !is_bound(place));
        unbound.map(|place| place.number).collect()
    }

    fn places_of(&self, key: &str) -> [Arc<Place>; REPLICAS] {
        places_of(key, self.places.len() as u32).map(|at| Arc::clone(&self.places[at as usize]))
    }

    /// Stores a value with a version. Succeeds when two places have it. The put at the third place goes on.
    ///
    /// # Errors
    /// If two places could not store the value. One place may have stored it, and then later gets may see it.
    pub(crate) async fn put(&self, key: &str, new: Versioned) -> Result<(), Failure> {
        let (done, mut ended) = mpsc::channel(REPLICAS);
        let new = Arc::new(new);
        for place in self.places_of(key) {
            let (done, key, new) = (done.clone(), key.to_owned(), Arc::clone(&new));
            tokio::spawn(async move {
                let put = place.put(&key, &new).await;
                let _ = done.send(put).await;
            });
        }
        drop(done);
        let (mut stored, mut first, mut executed) = (0, None, Executed::No);
        while let Some(put) = ended.recv().await {
            match put {
                Ok(()) => stored += 1,
                Err(failure) => {
                    if failure.executed == Executed::Maybe {
                        executed = Executed::Maybe;
                    }
                    first.get_or_insert(failure);
                }
            }
            if stored == QUORUM {
                return Ok(());
            }
        }
        let failure = first.unwrap_or_else(ended_early);
        let executed = if stored > 0 { Executed::Maybe } else { executed };
        Err(Failure { executed, ..failure })
    }

    /// Returns the newest version of a key. Asks two places, and the third one if one of them fails or is
    /// slow. Places that answered with an older version get the newest one.
    ///
    /// # Errors
    /// If less than two places that are caught up answer.
    pub(crate) async fn get(&self, key: &str) -> Result<Option<Versioned>, Failure> {
        let mut places = self.places_of(key);
        places.rotate_left(self.turn.fetch_add(1, Ordering::Relaxed) % REPLICAS);
        let (done, mut ended) = mpsc::channel(REPLICAS);
        let ask = |at: usize| {
            let (done, key, place) = (done.clone(), key.to_owned(), Arc::clone(&places[at]));
            tokio::spawn(async move {
                let found = place.get(&key).await;
                let _ = done.send((at, found)).await;
            });
        };
        (0..QUORUM).for_each(ask);
        let mut asked = QUORUM;
        let impatient = tokio::time::sleep(IMPATIENT);
        tokio::pin!(impatient);
        let (mut answers, mut votes, mut first) = (Vec::new(), 0, None);
        let mut count = 0;
        while votes < QUORUM && count < asked {
            tokio::select! {
                Some((at, found)) = ended.recv() => {
                    count += 1;
                    match found {
                        Ok(found) => {
                            votes += usize::from(found.is_caught_up);
                            answers.push((at, found));
                        }
                        Err(failure) => { first.get_or_insert(failure); }
                    }
                    if asked < REPLICAS && count > votes {
                        ask(asked);
                        asked += 1;
                    }
                }
                () = &mut impatient, if asked < REPLICAS => {
                    ask(asked);
                    asked += 1;
                }
            }
        }
        if votes < QUORUM {
            let catching_up = || {
                let why = "a server that has started is not caught up yet";
                Failure { executed: Executed::No, kind: "catching up", text: why.to_owned() }
            };
            return Err(first.unwrap_or_else(catching_up));
        }
        let version = |found: &Found| found.newest.as_ref().map_or(0, |one| one.version);
        let newest = answers.iter().map(|(_, found)| found).max_by_key(|found| version(found));
        let Some(newest) = newest.and_then(|found| found.newest.clone()) else { return Ok(None) };
        for (at, found) in &answers {
            if version(found) < newest.version {
                let (place, key, newest) =
                    (Arc::clone(&places[*at]), key.to_owned(), newest.clone());
                // If this fails, a later get repairs the place.
                tokio::spawn(async move { place.put(&key, &newest).await });
            }
        }
        Ok(Some(newest))
    }
}

/// Returns the failure for tasks that ended without an answer, because the program ends.
fn ended_early() -> Failure {
    let text = "the program ends".to_owned();
    Failure { executed: Executed::Maybe, kind: "ended", text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_has_its_part_of_the_keys() {
        let mut counts = [0; 5];
        for n in 0..1000 {
            let places = places_of(&format!("key-{n}"), 5);
            let [a, b, c] = places;
            assert!(a != b && b != c && a != c);
            places.iter().for_each(|place| counts[*place as usize] += 1);
        }
        assert!(counts.iter().all(|count| (500..700).contains(count)), "{counts:?}");
    }

    #[test]
    fn one_more_place_takes_keys_and_moves_no_other() {
        for n in 0..1000 {
            let key = format!("key-{n}");
            let (before, after) = (places_of(&key, 5), places_of(&key, 6));
            let kept: Vec<_> = after.into_iter().filter(|place| *place != 5).collect();
            assert_eq!(kept[..], before[..kept.len()]);
        }
    }
}
