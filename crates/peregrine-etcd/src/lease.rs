//! Keeps the registrations of this process: one lease for all of them. If the lease is lost, makes a new one,
//! and registers again. If only a key is lost, writes it again.
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
use tokio::time::{Instant, sleep_until};

use crate::gateway::{DENIED, Gateway, Trouble, encoded, number};
use crate::known::{Claim, revision};
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

/// The states of a registration. It begins as `Lost`. A successful write makes it `Written`, also from
/// `Taken`. The watch of the directory shows later that the key has gone (`Lost`), or that another
/// registration has it (`Taken`). With a new lease, all `Written` keys are `Lost`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Lost,
    /// Written with the current lease, at this revision.
    Written(i64),
    /// Another registration has the key. This one was written at this revision.
    Taken(i64),
}

struct Entry {
    name: String,
    offer: Offer,
    problem: Arc<Problem>,
    state: State,
}

/// The registrations of this process.
struct Lease<'a> {
    gateway: &'a Gateway,
    place: &'a Place,
    shared: &'a Shared,
    id: Option<i64>,
    entries: BTreeMap<u64, Entry>,
}

/// Fulfils orders until no thread can give any more.
pub(crate) async fn keep(
    gateway: &Gateway,
    place: &Place,
    shared: &Shared,
    orders: &mut UnboundedReceiver<Order>,
) {
    let mut lease = Lease { gateway, place, shared, id: None, entries: BTreeMap::new() };
    let third = place.lease / 3;
    // Processes that began together do not renew together.
    let next_renewal = || Instant::now() + third - random_part(third / 4);
    let mut pause = Pause::new(FIRST_PAUSE, third);
    let mut due = next_renewal();
    loop {
        let order = tokio::select! {
            order = orders.recv() => match order {
                None => return,
                Some(order) => order,
            },
            () = shared.has_learnt.notified() => {
                if lease.look() {
                    due = due.min(Instant::now() + random_part(REPAIR_WITHIN));
                }
                continue;
            }
            () = sleep_until(due), if !lease.entries.is_empty() => {
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
                if lease.entries.is_empty() {
                    due = next_renewal();
                }
                let entry = Entry { name, offer, problem, state: State::Lost };
                let _ = done.send(lease.register(number, entry).await);
            }
            Order::Withdraw { number, done } => {
                lease.withdraw(number).await;
                let _ = done.send(());
            }
        }
    }
}

impl Lease<'_> {
    async fn register(&mut self, number: u64, entry: Entry) -> Result<(), Trouble> {
        self.entries.insert(number, entry);
        let registered = match self.id {
            None => self.begin().await,
            Some(_) => match self.put(number).await {
                // The lease was lost.
                Err(Trouble::Refused(code, _)) if code != DENIED => self.begin().await,
                put => put,
            },
        };
        let is_written = |entry: &Entry| matches!(entry.state, State::Written(_));
        if self.entries.get(&number).is_some_and(is_written) {
            return Ok(());
        }
        self.entries.remove(&number);
        registered
    }

    /// Compares the registrations with what is known of the cluster. Returns whether one must be written.
    fn look(&mut self) -> bool {
        let Some(lease) = self.id else { return !self.entries.is_empty() };
        for entry in self.entries.values_mut() {
            let (State::Written(revision) | State::Taken(revision)) = entry.state else { continue };
            let claim = self.shared.claim(&entry.name, &entry.offer, lease, revision);
            entry.state = match claim {
                None => continue,
                Some(Claim::Own) => State::Written(revision),
                Some(Claim::Missing) => State::Lost,
                Some(Claim::Other) => State::Taken(revision),
            };
            let is_taken = claim == Some(Claim::Other);
            entry.problem.set(is_taken.then(|| TAKEN.to_owned()));
        }
        self.entries.values().any(|entry| entry.state == State::Lost)
    }

    /// Renews the lease, and writes keys that were lost.
    async fn tend(&mut self) -> Result<(), Trouble> {
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
        renewed
    }

    async fn renew(&mut self) -> Result<(), Trouble> {
        let Some(id) = self.id else { return self.begin().await };
        let answer = self.gateway.ask("lease/keepalive", &json!({ "ID": id.to_string() })).await?;
        // The answer for a lease that has ended has no time to live.
        let left = answer.get("result").and_then(|result| number(result.get("TTL")));
        match left {
            Some(left) if left > 0 => Ok(()),
            _ => self.begin().await,
        }
    }

    /// Makes a new lease, and writes all keys with it that no other registration has.
    async fn begin(&mut self) -> Result<(), Trouble> {
        let seconds = self.place.lease.as_secs();
        let answer = self.gateway.ask("lease/grant", &json!({ "TTL": seconds })).await?;
        let id = number(answer.get("ID"));
        self.id = Some(id.ok_or_else(|| Trouble::Garbled("a lease without `ID`".to_owned()))?);
        for entry in self.entries.values_mut() {
            if let State::Written(_) = entry.state {
                entry.state = State::Lost;
            }
        }
        self.put_lost().await
    }

    /// Writes the keys that were lost. One that the cluster refuses does not keep the others from being
    /// written.
    async fn put_lost(&mut self) -> Result<(), Trouble> {
        self.look();
        let is_lost = |one: &(&u64, &Entry)| one.1.state == State::Lost;
        let lost: Vec<u64> = self.entries.iter().filter(is_lost).map(|one| *one.0).collect();
        let mut all = Ok(());
        for number in lost {
            match self.put(number).await {
                Err(trouble @ Trouble::Refused(..)) => all = Err(trouble),
                put => put?,
            }
        }
        all
    }

    async fn put(&mut self, number: u64) -> Result<(), Trouble> {
        let (Some(id), Some(entry)) = (self.id, self.entries.get_mut(&number)) else {
            return Ok(());
        };
        let key = self.place.key(&entry.name, entry.offer.server());
        let value = encoded(&entry.offer.to_json());
        let body = json!({ "key": encoded(&key), "value": value, "lease": id.to_string() });
        let answer = self.gateway.ask("kv/put", &body).await?;
        entry.state = State::Written(revision(&answer).unwrap_or_default());
        Ok(())
    }

    /// Removes a key. If the cluster does not answer, the key ends with its lease.
    async fn withdraw(&mut self, number: u64) {
        let Some(ended) = self.entries.remove(&number) else { return };
        let Some(id) = self.id else { return };
        let has_same_key =
            |one: &Entry| (&one.name, one.offer.server()) == (&ended.name, ended.offer.server());
        let other = self.entries.iter().rev().find(|one| has_same_key(one.1));
        if let Some(other) = other.map(|one| *one.0) {
            // An earlier registration of this process has the key again, unless it belongs to another
            // process.
            if !matches!(ended.state, State::Taken(_)) {
                let _ = self.put(other).await;
            }
            return;
        }
        let key = encoded(&self.place.key(&ended.name, ended.offer.server()));
        // The key may belong to another process meanwhile.
        let is_own = json!({
            "key": key,
            "target": "LEASE",
            "result": "EQUAL",
            "lease": id.to_string(),
        });
        let remove = json!({ "request_delete_range": { "key": key } });
        let body = json!({ "compare": [is_own], "success": [remove] });
        let _ = self.gateway.ask("kv/txn", &body).await.map(|_: Value| ());
        if self.entries.is_empty() {
            let ended = json!({ "ID": id.to_string() });
            let _ = self.gateway.ask("lease/revoke", &ended).await.map(|_: Value| ());
            self.id = None;
        }
    }
}
