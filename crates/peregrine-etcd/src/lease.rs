//! Keeps the registrations of this process: one lease for all of them. If the lease is lost, makes a new one,
//! and registers again. If only a key is lost, writes it again.
//!
//! A key that could not be removed is removed later, while the lease is kept for other registrations. If there
//! are no others, nothing keeps the lease, so that the cluster removes the key with it.
//!
//! Two registrations may have one key: two servers were given the same identity. The later one counts. The
//! earlier one reports this as its problem, writes nothing, and registers again when the key is free. So two
//! servers never overwrite each other in turn.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use peregrine::directory::Offer;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep, sleep_until};

use crate::gateway::{DENIED, Gateway, NOT_FOUND, Trouble, encoded, number};
use crate::known::{Claim, Mark, revision};
use crate::pause::{Pause, random_part};
use crate::place::Place;
use crate::shared::Shared;

/// How soon a lost key is written again, at most. The time is random, because all servers may have lost their
/// keys at once.
const REPAIR_WITHIN: Duration = Duration::from_millis(500);
/// The first pause after a failed renewal.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The problem of a registration whose key another one has taken.
const TAKEN: &str = "another server has registered under the same identity";

/// What a thread of the program asks the thread of the directory to do.
pub(crate) enum Order {
    /// Write a key, and keep it.
    Register {
        number: u64,
        name: String,
        offer: Offer,
        problem: Arc<Problem>,
        done: mpsc::Sender<Result<(), Trouble>>,
    },
    /// Remove the key of an earlier order.
    Withdraw { number: u64, done: mpsc::Sender<()> },
}

/// Why a registration is not in the cluster now.
#[derive(Debug, Default)]
pub(crate) struct Problem(Mutex<Option<String>>);

impl Problem {
    pub(crate) fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, problem: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = problem;
    }
}

/// The states of a registration. It begins as `Lost`. A successful write makes it `Written`. A later write,
/// or the watch of the directory, shows that another registration has the key (`Taken`). The watch also
/// shows that the key has gone (`Lost`). With a new lease, all `Written` keys are `Lost`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Lost,
    /// Written with the current lease, then.
    Written(Mark),
    /// Another registration has the key. It was found, or this one was written, then.
    Taken(Mark),
}

/// When a key is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Write {
    /// In any case: the server has just begun, so it is the later one of two.
    Always,
    /// Unless another registration has the key.
    IfFree,
}

struct Entry {
    name: String,
    offer: Offer,
    problem: Arc<Problem>,
    state: State,
}

/// A key that must be removed.
struct Leaving {
    /// In base64.
    key: String,
    /// The lease of the key. With another lease, it belongs to another process.
    lease: i64,
    /// Until when the cluster may have the key, because of its lease.
    until: Instant,
}

/// The registrations of this process.
struct Lease<'a> {
    gateway: &'a Gateway,
    place: &'a Place,
    shared: &'a Shared,
    id: Option<i64>,
    entries: BTreeMap<u64, Entry>,
    leaving: Vec<Leaving>,
}

/// Fulfils orders until no thread can give any more.
pub(crate) async fn keep(
    gateway: &Gateway,
    place: &Place,
    shared: &Shared,
    orders: &mut UnboundedReceiver<Order>,
) {
    let (entries, leaving) = (BTreeMap::new(), Vec::new());
    let mut lease = Lease { gateway, place, shared, id: None, entries, leaving };
    let third = place.lease / 3;
    let next_renewal = || Instant::now() + until_renewal(place.lease);
    let mut pause = Pause::new(FIRST_PAUSE, third);
    let mut due = next_renewal();
    loop {
        let order = tokio::select! {
            order = orders.recv() => match order {
                None => return lease.finish(&mut pause).await,
                Some(order) => order,
            },
            () = shared.has_learnt.notified() => {
                if lease.look() {
                    due = due.min(Instant::now() + random_part(REPAIR_WITHIN));
                }
                continue;
            }
            () = sleep_until(due), if lease.has_duties() => {
                due = match lease.tend().await {
                    Ok(()) => {
                        pause.reset();
                        next_renewal()
                    }
                    Err(_) => Instant::now() + pause.next(),
                };
                continue;
            }
        };
        match order {
            Order::Register { number, name, offer, problem, done } => {
                if !lease.has_duties() {
                    due = next_renewal();
                }
                let entry = Entry { name, offer, problem, state: State::Lost };
                let registered = lease.register(number, entry).await;
                if registered.is_err() && lease.has_duties() {
                    due = due.min(Instant::now() + pause.next());
                }
                let _ = done.send(registered);
            }
            Order::Withdraw { number, done } => {
                if lease.withdraw(number).await.is_err() {
                    due = due.min(Instant::now() + pause.next());
                }
                let _ = done.send(());
            }
        }
    }
}

/// Returns the time between two renewals of a lease. Processes that began together do not renew together.
pub(crate) fn until_renewal(lease: Duration) -> Duration {
    let third = lease / 3;
    third - random_part(third / 4)
}

impl Lease<'_> {
    /// Returns whether there is something to keep or to remove.
    fn has_duties(&self) -> bool {
        !self.entries.is_empty() || !self.leaving.is_empty()
    }

    async fn register(&mut self, number: u64, entry: Entry) -> Result<(), Trouble> {
        self.entries.insert(number, entry);
        let registered = self.write_first(number).await;
        let is_written = |entry: &Entry| matches!(entry.state, State::Written(_));
        if self.entries.get(&number).is_some_and(is_written) {
            return Ok(());
        }
        // The cluster may have the key although its answer was lost.
        let is_certain = matches!(registered, Err(Trouble::Refused(..)));
        if let Some(ended) = self.entries.remove(&number)
            && !is_certain
        {
            self.release(ended);
        }
        registered
    }

    /// Writes the key of a new registration, and makes a lease for it if necessary.
    async fn write_first(&mut self, number: u64) -> Result<(), Trouble> {
        if self.id.is_some() {
            match self.put(number, Write::Always).await {
                // The lease was lost.
                Err(Trouble::Refused(code, _)) if code != DENIED => {}
                put => return put,
            }
        }
        self.grant().await?;
        self.put(number, Write::Always).await?;
        self.put_lost().await
    }

    /// Compares the registrations with what is known of the cluster. Returns whether one must be written.
    fn look(&mut self) -> bool {
        let Some(lease) = self.id else { return !self.entries.is_empty() };
        for entry in self.entries.values_mut() {
            let (State::Written(at) | State::Taken(at)) = entry.state else { continue };
            let claim = self.shared.claim(&entry.name, &entry.offer, lease, at);
            entry.state = match claim {
                None => continue,
                Some(Claim::Own) => State::Written(at),
                Some(Claim::Missing) => State::Lost,
                Some(Claim::Other) => State::Taken(at),
            };
            let is_taken = claim == Some(Claim::Other);
            entry.problem.set(is_taken.then(|| TAKEN.to_owned()));
        }
        self.entries.values().any(|entry| entry.state == State::Lost)
    }

    /// Renews the lease, and writes keys that were lost.
    async fn tend(&mut self) -> Result<(), Trouble> {
        if self.entries.is_empty() {
            return self.leave().await;
        }
        let renewed = match self.renew().await {
            Ok(()) => self.put_lost().await,
            failed => failed,
        };
        for entry in self.entries.values() {
            match (&renewed, entry.state) {
                (_, State::Taken(_)) => entry.problem.set(Some(TAKEN.to_owned())),
                (Ok(()), _) => entry.problem.set(None),
                // The other keys are in the cluster.
                (Err(Trouble::Refused(..)), State::Written(_)) => entry.problem.set(None),
                (Err(trouble), _) => entry.problem.set(Some(trouble.to_string())),
            }
        }
        renewed?;
        self.leave().await
    }

    async fn renew(&mut self) -> Result<(), Trouble> {
        let Some(id) = self.id else { return self.begin().await };
        let answer = self.gateway.ask("lease/keepalive", &json!({ "ID": id.to_string() })).await?;
        // The answer for a lease that has ended has no time to live.
        let left = answer.get("result").and_then(|result| number(result.get("TTL")));
        match left {
            Some(left) if left > 0 => {
                let until = self.end();
                let own = self.leaving.iter_mut().filter(|one| one.lease == id);
                own.for_each(|one| one.until = until);
                Ok(())
            }
            _ => self.begin().await,
        }
    }

    /// Returns when a lease ends that was renewed just now.
    fn end(&self) -> Instant {
        Instant::now() + self.place.lease
    }

    /// Makes a new lease, and writes all keys with it that no other registration has.
    async fn begin(&mut self) -> Result<(), Trouble> {
        self.grant().await?;
        self.put_lost().await
    }

    /// Makes a new lease, which no key has yet.
    async fn grant(&mut self) -> Result<(), Trouble> {
        let seconds = self.place.lease.as_secs();
        let answer = self.gateway.ask("lease/grant", &json!({ "TTL": seconds })).await?;
        let id = number(answer.get("ID"));
        self.id = Some(id.ok_or_else(|| Trouble::Garbled("a lease without `ID`".to_owned()))?);
        for entry in self.entries.values_mut() {
            if let State::Written(_) = entry.state {
                entry.state = State::Lost;
            }
        }
        Ok(())
    }

    /// Writes the keys that were lost, unless another registration has them meanwhile. One that the cluster
    /// refuses does not keep the others from being written.
    async fn put_lost(&mut self) -> Result<(), Trouble> {
        self.look();
        let is_lost = |one: &(&u64, &Entry)| one.1.state == State::Lost;
        let lost: Vec<u64> = self.entries.iter().filter(is_lost).map(|one| *one.0).collect();
        let mut all = Ok(());
        // If two have the same key, the later one counts.
        for number in lost.into_iter().rev() {
            if let Some(at) = self.later_one(number) {
                let entry = self.entries.get_mut(&number);
                entry.into_iter().for_each(|entry| entry.state = State::Taken(at));
                continue;
            }
            match self.put(number, Write::IfFree).await {
                Err(trouble @ Trouble::Refused(..)) => all = Err(trouble),
                put => put?,
            }
        }
        all
    }

    /// Returns when a later registration of this process with the same key was written, if there is one.
    fn later_one(&self, number: u64) -> Option<Mark> {
        let entry = self.entries.get(&number)?;
        let later = self.entries.range(number + 1..).map(|(_, later)| later);
        let key = |one: &Entry| (one.name.clone(), one.offer.server().to_owned());
        let mut same = later.filter(|later| key(later) == key(entry));
        same.find_map(|later| match later.state {
            State::Written(at) => Some(at),
            State::Lost | State::Taken(_) => None,
        })
    }

    /// Writes the key of a registration.
    async fn put(&mut self, number: u64, write: Write) -> Result<(), Trouble> {
        let (Some(id), Some(entry)) = (self.id, self.entries.get_mut(&number)) else {
            return Ok(());
        };
        // Later, the answer may be of a cluster that was begun anew.
        let generation = self.shared.with_known(|known| known.generation);
        let key = encoded(self.place.key(&entry.name, entry.offer.server()));
        let value = encoded(entry.offer.to_json());
        let put = json!({ "key": key, "value": value, "lease": id.to_string() });
        let (answer, is_written) = match write {
            Write::Always => (self.gateway.ask("kv/put", &put).await?, true),
            Write::IfFree => {
                let answer = self.gateway.ask("kv/txn", &put_if_free(&key, id, put)).await?;
                let is_written = has_put(&answer);
                (answer, is_written)
            }
        };
        let at = Mark { generation, revision: revision(&answer).unwrap_or_default() };
        if !is_written {
            entry.state = State::Taken(at);
            entry.problem.set(Some(TAKEN.to_owned()));
            return Ok(());
        }
        entry.state = State::Written(at);
        // An earlier registration with this key may have ended.
        self.leaving.retain(|one| one.key != key);
        Ok(())
    }

    /// Ends a registration, and removes its key.
    ///
    /// # Errors
    /// Why the key is not removed yet.
    async fn withdraw(&mut self, number: u64) -> Result<(), Trouble> {
        let Some(ended) = self.entries.remove(&number) else { return Ok(()) };
        // If the cluster did not answer a moment ago, further withdrawals do not wait for it in turn.
        let waits = !self.leaving.is_empty();
        match self.release(ended) {
            Some(other) => self.put(other, Write::IfFree).await,
            None if waits => Ok(()),
            None => self.leave().await,
        }
    }

    /// Notes that the key of a registration that has ended must be removed. If another registration of this
    /// process has the same key, returns this one, which must be written again.
    fn release(&mut self, ended: Entry) -> Option<u64> {
        let id = self.id?;
        let has_same_key =
            |one: &Entry| (&one.name, one.offer.server()) == (&ended.name, ended.offer.server());
        if let Some((number, other)) = self.entries.iter_mut().rev().find(|one| has_same_key(one.1))
        {
            // The key may belong to another process.
            if matches!(ended.state, State::Taken(_)) {
                return None;
            }
            other.state = State::Lost;
            return Some(*number);
        }
        let key = encoded(self.place.key(&ended.name, ended.offer.server()));
        let until = self.end();
        self.leaving.push(Leaving { key, lease: id, until });
        None
    }

    /// Removes the keys that must be removed. If there are no registrations, ends the lease, and all of its
    /// keys with it.
    async fn leave(&mut self) -> Result<(), Trouble> {
        let now = Instant::now();
        self.leaving.retain(|one| one.until > now);
        if let Some(id) = self.id.filter(|_| self.entries.is_empty()) {
            match self.gateway.ask("lease/revoke", &json!({ "ID": id.to_string() })).await {
                Ok(_) | Err(Trouble::Refused(NOT_FOUND, _)) => {
                    self.id = None;
                    self.leaving.retain(|one| one.lease != id);
                }
                Err(trouble) => return Err(trouble),
            }
        }
        while let Some(Leaving { key, lease, .. }) = self.leaving.first() {
            // The key may belong to another process meanwhile.
            let is_own = json!({
                "key": key,
                "target": "LEASE",
                "result": "EQUAL",
                "lease": lease.to_string(),
            });
            let remove = json!({ "request_delete_range": { "key": key } });
            let body = json!({ "compare": [is_own], "success": [remove] });
            self.gateway.ask("kv/txn", &body).await?;
            self.leaving.remove(0);
        }
        Ok(())
    }

    /// Removes the keys that are left, until the last of their leases is over.
    async fn finish(&mut self, pause: &mut Pause) {
        while self.leave().await.is_err() && !self.leaving.is_empty() {
            sleep(pause.next()).await;
        }
    }
}

/// Returns the transaction that writes a key, unless the key exists and has another lease.
fn put_if_free(key: &str, lease: i64, put: Value) -> Value {
    let is = |target: &str, member: &str, value: String| json!({ "key": key, "target": target, "result": "EQUAL", member: value });
    let put = json!([{ "request_put": put }]);
    let is_missing = is("CREATE", "create_revision", "0".to_owned());
    let if_missing = json!({ "request_txn": { "compare": [is_missing], "success": put } });
    json!({
        "compare": [is("LEASE", "lease", lease.to_string())],
        "success": put,
        "failure": [if_missing],
    })
}

/// Returns whether the transaction of [`put_if_free`] has written the key.
fn has_put(answer: &Value) -> bool {
    let is_done = |answer: &Value| answer.get("succeeded").and_then(Value::as_bool) == Some(true);
    let inner = answer.pointer("/responses/0/response_txn");
    is_done(answer) || inner.is_some_and(is_done)
}
