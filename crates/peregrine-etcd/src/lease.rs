//! Keeps the registrations of this process: one lease for all of them. If the lease is lost, makes a new one,
//! and registers again.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep_until};

use crate::gateway::{Gateway, Trouble, encoded, number};
use crate::pause::Pause;

/// What a thread of the program asks the thread of the directory to do.
pub(crate) enum Order {
    /// Write a key, and keep it.
    Register { number: u64, key: String, value: String, done: mpsc::Sender<Result<(), Trouble>> },
    /// Remove the key of an earlier order.
    Withdraw { number: u64, done: mpsc::Sender<()> },
}

/// Why registrations are not in the cluster now.
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

/// The registrations of this process.
struct Lease<'a> {
    gateway: &'a Gateway,
    seconds: u64,
    id: Option<i64>,
    entries: BTreeMap<u64, (String, String)>,
}

/// Fulfils orders until no thread can give any more.
pub(crate) async fn keep(
    gateway: &Gateway,
    seconds: u64,
    problem: &Problem,
    orders: &mut UnboundedReceiver<Order>,
) {
    let mut lease = Lease { gateway, seconds, id: None, entries: BTreeMap::new() };
    let every = Duration::from_secs(seconds) / 3;
    let mut pause = Pause::new(Duration::from_millis(200), every);
    let mut due = Instant::now() + every;
    loop {
        let order = tokio::select! {
            order = orders.recv() => match order {
                None => return,
                Some(order) => order,
            },
            () = sleep_until(due), if !lease.entries.is_empty() => {
                let renewed = lease.renew().await;
                due = Instant::now() + if renewed.is_ok() { every } else { pause.next() };
                if renewed.is_ok() {
                    pause.reset();
                }
                problem.set(renewed.err().map(|trouble| trouble.to_string()));
                continue;
            }
        };
        match order {
            Order::Register { number, key, value, done } => {
                if lease.entries.is_empty() {
                    due = Instant::now() + every;
                }
                let _ = done.send(lease.register(number, key, value).await);
            }
            Order::Withdraw { number, done } => {
                lease.withdraw(number).await;
                let _ = done.send(());
            }
        }
    }
}

impl Lease<'_> {
    async fn register(&mut self, number: u64, key: String, value: String) -> Result<(), Trouble> {
        self.entries.insert(number, (key, value));
        let registered = match self.id {
            None => self.begin().await,
            Some(id) => match self.put(number, id).await {
                // The lease was lost.
                Err(Trouble::Refused(..)) => self.begin().await,
                put => put,
            },
        };
        if registered.is_err() {
            self.entries.remove(&number);
        }
        registered
    }

    /// Makes a new lease, and registers everything with it.
    async fn begin(&mut self) -> Result<(), Trouble> {
        let answer = self.gateway.ask("lease/grant", &json!({ "TTL": self.seconds })).await?;
        let id = number(answer.get("ID"));
        let id = id.ok_or_else(|| Trouble::Garbled("a lease without `ID`".to_owned()))?;
        self.id = Some(id);
        let numbers: Vec<u64> = self.entries.keys().copied().collect();
        for number in numbers {
            self.put(number, id).await?;
        }
        Ok(())
    }

    async fn put(&self, number: u64, id: i64) -> Result<(), Trouble> {
        let Some((key, value)) = self.entries.get(&number) else { return Ok(()) };
        let body = json!({ "key": encoded(key), "value": encoded(value), "lease": id.to_string() });
        self.gateway.ask("kv/put", &body).await.map(drop)
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

    async fn withdraw(&mut self, number: u64) {
        let Some((key, _)) = self.entries.remove(&number) else { return };
        let removed = self.gateway.ask("kv/deleterange", &json!({ "key": encoded(&key) })).await;
        if let (Some(id), true) = (self.id, self.entries.is_empty()) {
            // The lease would end by itself.
            let ended = json!({ "ID": id.to_string() });
            let _ = self.gateway.ask("lease/revoke", &ended).await.map(|_: Value| ());
            self.id = None;
        }
        // If the cluster does not answer, the key ends with the lease.
        drop(removed);
    }
}
