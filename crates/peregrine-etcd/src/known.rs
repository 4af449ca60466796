//! What this process knows of the directory: all servers of all names, from one reading and the changes after
//! it.
//!
//! A cluster may be begun anew, without data: its members were killed, and their disks replaced. Then it has
//! none of the servers, although most of them live, and register again within a lease. So a server that such
//! a cluster does not have stays known for a grace time, which begins with the first reading of the new
//! cluster. It is dropped after this time unless it has registered again. Its names have a remark meanwhile.
//!
//! Usually the new cluster shows itself by its number, its term or its revision. But its number may be the same,
//! and it may have made as many changes as the old one by the time at which this process comes back. So after
//! each loss of the watch, the process compares one key with what it knows, and later the number of keys.
//!
//! Time is an argument, and is always that of the monotonic clock. A jump of the wall clock changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use peregrine::directory::{Offer, Offers};
use peregrine::limits;
use serde_json::Value;

use crate::gateway::{decoded, number};
use crate::place::Place;

/// The largest number of keys that a process keeps.
pub(crate) const KEYS_MAX: usize = 1 << 16;
/// The largest number of bytes of keys and values that a process keeps.
const BYTES_MAX: usize = 64 << 20;

/// What is known of one key.
#[derive(Debug)]
struct Entry {
    /// The server, or why the value cannot be used.
    offer: Result<Offer, String>,
    /// The lease of the key, or 0.
    lease: i64,
    /// The revision at which the key was written last.
    modified: i64,
    /// The number of bytes that count for [`BYTES_MAX`].
    bytes: usize,
    /// Until when the server stays known although the cluster does not have the key.
    kept: Option<Instant>,
}

impl Entry {
    /// Returns whether clients see no difference.
    fn looks_like(&self, other: &Self) -> bool {
        self.offer == other.offer && self.kept.is_some() == other.kept.is_some()
    }
}

/// The servers of a name.
type Servers = BTreeMap<String, Entry>;

/// A state of the cluster, as this process knows it. Revisions of different generations cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// [`Known::generation`] before the request was sent.
    pub(crate) generation: u64,
    pub(crate) revision: i64,
}

/// What the cluster has at a key that this process has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The own value, with the own lease.
    Own,
    /// No value.
    Missing,
    /// The value of another registration.
    Other,
}

/// All names below a prefix.
#[derive(Debug)]
pub(crate) struct Known {
    place: Place,
    names: BTreeMap<String, Servers>,
    /// The number of keys, and the sum of their [`Entry::bytes`].
    keys: usize,
    bytes: usize,
    /// The number of keys that are left out, because there are too many or they are too large.
    left_out: usize,
    /// The number of keys that are no text. Nothing else is kept of them.
    ignored: usize,
    /// Whether the cluster was found to contradict what is known.
    is_contradicted: bool,
    /// The revision of the cluster up to which this is known.
    pub(crate) revision: i64,
    /// How often the cluster was found to have been begun anew.
    pub(crate) generation: u64,
    /// The number of the cluster, and the term of its leader.
    cluster: Option<String>,
    term: i64,
}

impl Known {
    pub(crate) const fn nothing(place: Place) -> Self {
        Self {
            place,
            names: BTreeMap::new(),
            keys: 0,
            bytes: 0,
            left_out: 0,
            ignored: 0,
            is_contradicted: false,
            revision: 0,
            generation: 0,
            cluster: None,
            term: 0,
        }
    }

    /// Returns whether the answer is from a cluster that was begun anew, and does not continue what is known:
    /// it is another cluster, or its revision or its term is smaller. Both only grow within one cluster.
    pub(crate) fn is_anew(&self, answer: &Value) -> bool {
        self.continues_not(cluster(answer).as_deref(), revision(answer), term(answer))
    }

    fn continues_not(
        &self,
        cluster: Option<&str>,
        revision: Option<i64>,
        term: Option<i64>,
    ) -> bool {
        let is_other =
            cluster.is_some() && self.cluster.is_some() && self.cluster.as_deref() != cluster;
        let is_smaller = |now: Option<i64>, known| now.is_some_and(|now| now < known);
        is_other || is_smaller(revision, self.revision) || is_smaller(term, self.term)
    }

    /// Takes one part of a reading of all keys, which have one revision. Returns whether there is room for
    /// further keys.
    pub(crate) fn read(&mut self, answer: &Value) -> bool {
        if self.revision == 0 {
            (self.cluster, self.term) = (cluster(answer), term(answer).unwrap_or_default());
            self.revision = revision(answer).unwrap_or_default();
        }
        for pair in answer.get("kvs").and_then(Value::as_array).into_iter().flatten() {
            match is_text(pair) {
                true => drop(self.put(pair)),
                false => self.ignored += 1,
            }
        }
        self.keys < KEYS_MAX && self.bytes < BYTES_MAX
    }

    /// Notes that the cluster has further keys, which were not read.
    pub(crate) const fn leave_out(&mut self, keys: usize) {
        self.left_out += keys;
    }

    /// Notes that the cluster contradicts what is known, so that the next reading is of another cluster.
    pub(crate) const fn contradict(&mut self) {
        self.is_contradicted = true;
    }

    /// Returns whether this process knows all keys that it has read.
    pub(crate) const fn is_whole(&self) -> bool {
        self.left_out == 0
    }

    /// Returns the key that was written last of those that the cluster has.
    pub(crate) fn last_key(&self) -> Option<String> {
        let (name, server, _) = self.last()?;
        Some(self.place.key(name, server))
    }

    fn last(&self) -> Option<(&String, &String, &Entry)> {
        let all = self.names.iter().flat_map(|(name, servers)| {
            servers.iter().map(move |(server, entry)| (name, server, entry))
        });
        all.filter(|(.., entry)| entry.kept.is_none()).max_by_key(|(.., entry)| entry.modified)
    }

    /// Returns whether the answer to a reading of [`last_key`](Self::last_key), as of the known revision,
    /// fits what is known. Each registration has a lease, whose number no other cluster has.
    pub(crate) fn fits_last(&self, answer: &Value) -> bool {
        let pair = answer.get("kvs").and_then(Value::as_array).and_then(|all| all.first());
        match (self.last(), pair) {
            (Some((.., known)), Some(pair)) => {
                number(pair.get("mod_revision")) == Some(known.modified)
                    && number(pair.get("lease")).unwrap_or_default() == known.lease
            }
            (known, pair) => known.is_none() && pair.is_none(),
        }
    }

    /// Returns whether an answer with the number of all keys, as of the known revision, fits what is known. If
    /// keys were left out, the number says nothing.
    pub(crate) fn fits_count(&self, answer: &Value) -> bool {
        if !self.is_whole() {
            return true;
        }
        let all = self.names.values().flat_map(BTreeMap::values);
        let own = all.filter(|entry| entry.kept.is_none()).count() + self.ignored;
        number(answer.get("count")).unwrap_or_default() == own as i64
    }

    /// Returns whether a reading contradicts what is known: a key that was written before the known revision
    /// is not known so.
    fn contradicts(&self, new: &Self) -> bool {
        let mut all = new.names.iter().flat_map(|(name, servers)| {
            servers.iter().map(move |(server, entry)| (name, server, entry))
        });
        self.is_whole()
            && all.any(|(name, server, entry)| {
                let known = self.names.get(name).and_then(|servers| servers.get(server));
                entry.modified <= self.revision
                    && known.is_none_or(|known| known.modified != entry.modified)
            })
    }

    /// Takes a reading of all keys. Returns the names that have changed.
    pub(crate) fn replace(&mut self, new: Self, now: Instant) -> BTreeSet<String> {
        let is_anew = self.is_contradicted
            || self.continues_not(new.cluster.as_deref(), Some(new.revision), Some(new.term))
            || self.contradicts(&new);
        let generation = self.generation + u64::from(is_anew);
        let before = core::mem::replace(self, new).names;
        self.generation = generation;
        let kept =
            before.iter().flat_map(|(name, servers)| servers.iter().map(move |one| (name, one)));
        for (name, (server, entry)) in kept {
            // A server that was kept before does not stay longer because of a second reading.
            let until = entry.kept.or_else(|| is_anew.then(|| now + self.place.grace));
            if let (Ok(offer), Some(until)) = (&entry.offer, until)
                && self.keys < KEYS_MAX
            {
                let all = self.names.entry(name.clone()).or_default();
                all.entry(server.clone()).or_insert_with(|| {
                    (self.keys, self.bytes) = (self.keys + 1, self.bytes + entry.bytes);
                    let offer = Ok(offer.clone());
                    Entry { offer, lease: 0, modified: 0, bytes: entry.bytes, kept: Some(until) }
                });
            }
        }
        let looks_same = |name: &String| match (before.get(name), self.names.get(name)) {
            (Some(before), Some(now)) => {
                before.len() == now.len()
                    && before.iter().zip(now).all(|(a, b)| a.0 == b.0 && a.1.looks_like(b.1))
            }
            _ => false,
        };
        before.keys().chain(self.names.keys()).filter(|name| !looks_same(name)).cloned().collect()
    }

    /// Returns when the next server is dropped that the cluster does not have.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.names.values().flat_map(BTreeMap::values).filter_map(|entry| entry.kept).min()
    }

    /// Drops the servers that a cluster without data did not get again in time. Returns their names.
    pub(crate) fn expire(&mut self, now: Instant) -> BTreeSet<String> {
        let mut changed = BTreeSet::new();
        for (name, servers) in &mut self.names {
            let is_over =
                |_: &String, entry: &mut Entry| entry.kept.is_some_and(|until| until <= now);
            for (_, entry) in servers.extract_if(.., is_over) {
                (self.keys, self.bytes) = (self.keys - 1, self.bytes - entry.bytes);
                changed.insert(name.clone());
            }
        }
        self.names.retain(|_, servers| !servers.is_empty());
        changed
    }

    /// Returns what the cluster has at the key of a server, compared with the value and the lease that this
    /// process has written.
    pub(crate) fn claim(&self, name: &str, offer: &Offer, lease: i64) -> Claim {
        let entry = self.names.get(name).and_then(|servers| servers.get(offer.server()));
        match entry {
            Some(entry) if entry.kept.is_none() => {
                match entry.lease == lease && entry.offer.as_ref() == Ok(offer) {
                    true => Claim::Own,
                    false => Claim::Other,
                }
            }
            _ => Claim::Missing,
        }
    }

    /// Takes one answer of a watch. Returns the names that have changed.
    pub(crate) fn change(&mut self, answer: &Value) -> BTreeSet<String> {
        let events = answer.get("events").and_then(Value::as_array);
        if events.is_none() {
            // The cluster says from time to time that all changes up to a revision have been sent. So the changes
            // that a new watch wants are seldom compacted.
            self.revision = self.revision.max(revision(answer).unwrap_or_default());
        }
        let mut changed = BTreeSet::new();
        for event in events.into_iter().flatten() {
            let Some(pair) = event.get("kv") else { continue };
            let is_gone = event.get("type").and_then(Value::as_str) == Some("DELETE");
            if !is_text(pair) {
                self.ignored = match is_gone {
                    true => self.ignored.saturating_sub(1),
                    false => self.ignored + usize::from(is_new(pair)),
                };
            }
            changed.extend(if is_gone { self.remove(pair) } else { self.put(pair) });
            if let Some(revision) = number(pair.get("mod_revision")) {
                self.revision = self.revision.max(revision);
            }
        }
        self.term = self.term.max(term(answer).unwrap_or_default());
        changed
    }

    /// Takes one key and its value. Returns the name if clients see a difference.
    fn put(&mut self, pair: &Value) -> Option<String> {
        let key = decoded(pair.get("key"))?;
        let (name, server) = self.place.name_of(&key)?;
        let value = decoded(pair.get("value")).ok_or_else(|| "the value is no text".to_owned());
        let length = value.as_ref().map_or(0, String::len);
        let offer = value.and_then(|value| match server {
            "" | "/" => Err("the key names no server".to_owned()),
            _ if value.len() > limits::RECORD_BYTES_MAX => Err("the value is too long".to_owned()),
            _ => Offer::from_json(&value),
        });
        let offer = offer.and_then(|offer| match offer.server() == server {
            true => Ok(offer),
            false => Err(format!("the value is of the server `{}`", offer.server())),
        });
        // The text may repeat the value.
        let offer = offer.map_err(|why| why.chars().take(limits::REMARK_MAX).collect::<String>());
        let before = self.take_out(name, server);
        let bytes = key.len() + offer.as_ref().map_or_else(String::len, |_| length);
        if self.keys == KEYS_MAX || self.bytes + bytes > BYTES_MAX {
            self.left_out += 1;
            return Some(name.to_owned());
        }
        (self.keys, self.bytes) = (self.keys + 1, self.bytes + bytes);
        let modified = number(pair.get("mod_revision")).unwrap_or_default();
        let lease = number(pair.get("lease")).unwrap_or_default();
        let entry = Entry { offer, lease, modified, bytes, kept: None };
        let looks_same = before.is_some_and(|before| before.looks_like(&entry));
        self.names.entry(name.to_owned()).or_default().insert(server.to_owned(), entry);
        (!looks_same).then(|| name.to_owned())
    }

    fn remove(&mut self, pair: &Value) -> Option<String> {
        let key = decoded(pair.get("key"))?;
        let (name, server) = self.place.name_of(&key)?;
        self.take_out(name, server).map(|_| name.to_owned())
    }

    fn take_out(&mut self, name: &str, server: &str) -> Option<Entry> {
        let servers = self.names.get_mut(name)?;
        let entry = servers.remove(server)?;
        if servers.is_empty() {
            self.names.remove(name);
        }
        (self.keys, self.bytes) = (self.keys - 1, self.bytes - entry.bytes);
        Some(entry)
    }

    /// Returns what is known of a name.
    pub(crate) fn offers(&self, name: &str) -> Offers {
        let entries = || self.names.get(name).into_iter().flatten();
        let usable = entries().filter_map(|(_, entry)| entry.offer.as_ref().ok().cloned());
        let mut offers = Offers::distinct(usable);
        for (server, entry) in entries() {
            if offers.remarks.len() == limits::REMARKS_MAX {
                break;
            }
            let key = || self.place.key(name, server);
            match &entry.offer {
                Err(why) => offers.remark(&format!("{}: {why}", key())),
                Ok(_) if entry.kept.is_some() => offers.remark(&format!(
                    "{}: the cluster was begun anew, and the server has not registered since",
                    key()
                )),
                Ok(_) => {}
            }
        }
        if self.left_out > 0 {
            offers.remark(&format!(
                "{} keys are left out: a process reads {KEYS_MAX} keys of a directory, with {} MiB",
                self.left_out,
                BYTES_MAX >> 20
            ));
        }
        offers
    }

    /// Returns the names that have servers.
    pub(crate) fn names(&self) -> Vec<String> {
        let usable = |servers: &Servers| servers.values().any(|entry| entry.offer.is_ok());
        self.names.iter().filter(|(_, all)| usable(all)).map(|(name, _)| name.clone()).collect()
    }
}

/// Returns the revision of the cluster at the time of an answer.
pub(crate) fn revision(answer: &Value) -> Option<i64> {
    number(answer.get("header")?.get("revision"))
}

/// Returns whether a key is a text.
fn is_text(pair: &Value) -> bool {
    decoded(pair.get("key")).is_some()
}

/// Returns whether a change has made a key, which did not exist before.
fn is_new(pair: &Value) -> bool {
    number(pair.get("version")) == Some(1)
}

/// Returns the term of the leader at the time of an answer.
fn term(answer: &Value) -> Option<i64> {
    number(answer.get("header")?.get("raft_term"))
}

/// Returns the number of the cluster.
fn cluster(answer: &Value) -> Option<String> {
    answer.get("header")?.get("cluster_id")?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::gateway::encoded;

    fn now() -> Instant {
        Instant::now()
    }

    fn known() -> Known {
        Known::nothing(Place::read("//a/p").unwrap().0)
    }

    fn replace(known: &mut Known, answer: &Value, now: Instant) -> BTreeSet<String> {
        let mut new = Known::nothing(known.place.clone());
        assert!(new.read(answer));
        known.replace(new, now)
    }

    fn pair(key: &str, value: &str, revision: i64) -> Value {
        let revision = revision.to_string();
        json!({ "key": encoded(key), "value": encoded(value), "mod_revision": revision })
    }

    fn offer(server: &str) -> String {
        Offer::new(server, [format!("files@{server}:7000")]).unwrap().to_json()
    }

    fn servers(known: &Known) -> Vec<String> {
        known.offers("files").servers.iter().map(|one| one.server().to_owned()).collect()
    }

    #[test]
    fn changes_follow_a_reading() {
        let mut known = known();
        let whole = json!({
            "header": { "revision": "7" },
            "kvs": [pair("/p/files/a", &offer("a"), 3), pair("/p/files/b", &offer("b"), 7)],
        });
        assert_eq!(replace(&mut known, &whole, now()).into_iter().collect::<Vec<_>>(), ["files"]);
        assert_eq!((servers(&known), known.revision), (vec!["a".into(), "b".into()], 7));
        assert!(replace(&mut known, &whole, now()).is_empty(), "nothing has changed");
        let events = json!({ "events": [
            { "type": "DELETE", "kv": { "key": encoded("/p/files/a"), "mod_revision": "9" } },
            { "kv": pair("/p/disk/c", &offer("c"), 10) },
        ] });
        let changed: Vec<_> = known.change(&events).into_iter().collect();
        assert_eq!(changed, ["disk", "files"]);
        assert_eq!((servers(&known), known.revision), (vec!["b".into()], 10));
        assert_eq!(known.names(), ["disk", "files"]);
        assert!(known.change(&json!({ "header": { "revision": "10" } })).is_empty());
        assert_eq!(known.revision, 10, "all changes up to this revision are known");
        assert_eq!(
            replace(&mut known, &json!({ "header": { "revision": "11" } }), now()).len(),
            2,
            "both were removed"
        );
        assert!(known.names().is_empty() && (known.keys, known.bytes) == (0, 0));
    }

    #[test]
    fn garbage_is_ignored_and_told() {
        let mut known = known();
        let events = json!({ "events": [
            { "kv": pair("/p/files/a", "garbage", 1) },
            { "kv": pair("/p/files/b", &offer("c"), 2) },
            { "kv": { "key": encoded("/p/files/d"), "value": "/w==" } },
            { "kv": pair("/p/files", &offer("e"), 3) },
            { "kv": pair("/elsewhere/files/f", &offer("f"), 4) },
            { "kv": {} },
            {},
            { "type": "DELETE", "kv": { "key": encoded("/p/files/unknown") } },
        ] });
        known.change(&events);
        let offers = known.offers("files");
        assert!(offers.servers.is_empty() && known.names().is_empty());
        let remarks = offers.remarks.join("\n");
        for remark in [
            "/p/files/a: expected value",
            "/p/files/b: the value is of the server `c`",
            "/p/files/d: the value is no text",
            "/p/files: the key names no server",
        ] {
            assert!(remarks.contains(remark), "{remark} in {remarks}");
        }
        assert_eq!(offers.remarks.len(), 4);
    }

    fn reading(revision: i64, term: i64, cluster: &str, servers: &[&str]) -> Value {
        let pairs = servers.iter().map(|one| pair(&format!("/p/files/{one}"), &offer(one), 1));
        json!({
            "header": {
                "revision": revision.to_string(),
                "raft_term": term.to_string(),
                "cluster_id": cluster,
            },
            "kvs": pairs.collect::<Vec<_>>(),
        })
    }

    #[test]
    fn servers_that_a_new_cluster_does_not_have_stay_for_the_grace_time() {
        let begin = now();
        let grace = known().place.grace;
        for anew in
            [reading(3, 9, "1", &["b"]), reading(9, 2, "1", &["b"]), reading(9, 9, "2", &["b"])]
        {
            let mut known = known();
            replace(&mut known, &reading(7, 5, "1", &["a", "b", "c"]), begin);
            assert!(known.is_anew(&anew));
            assert_eq!(replace(&mut known, &anew, begin).len(), 1);
            assert_eq!(servers(&known), ["a", "b", "c"]);
            let remarks = known.offers("files").remarks.join("\n");
            assert!(remarks.starts_with("/p/files/a: the cluster was begun anew"), "{remarks}");
            assert_eq!(known.next_end(), Some(begin + grace));
            // One of them registers again.
            let event = json!({ "events": [{ "kv": pair("/p/files/a", &offer("a"), 12) }] });
            assert_eq!(known.change(&event).len(), 1);
            // A second reading, also of a cluster that is new again, does not extend the time.
            let later = begin + grace / 2;
            replace(&mut known, &reading(1, 1, "3", &["a", "b"]), later);
            assert_eq!(servers(&known), ["a", "b", "c"]);
            let just_before = begin + grace - Duration::from_nanos(1);
            assert!(known.expire(just_before).is_empty());
            assert_eq!(known.expire(begin + grace).into_iter().collect::<Vec<_>>(), ["files"]);
            assert_eq!((servers(&known), known.keys), (vec!["a".into(), "b".into()], 2));
            assert_eq!((known.next_end(), known.offers("files").remarks.len()), (None, 0));
        }
    }

    #[test]
    fn servers_that_the_same_cluster_does_not_have_any_more_go_at_once() {
        let mut known = known();
        replace(&mut known, &reading(7, 5, "1", &["a", "b"]), now());
        let later = reading(9, 6, "1", &["b"]);
        assert!(!known.is_anew(&later));
        replace(&mut known, &later, now());
        assert_eq!(servers(&known), ["b"]);
    }

    #[test]
    fn own_keys_are_told_from_those_of_other_registrations() {
        let mut known = known();
        let own = Offer::from_json(&offer("a")).unwrap();
        assert_eq!(known.claim("files", &own, 7), Claim::Missing);
        let with = |lease: &str, value: &str| {
            let mut pair = pair("/p/files/a", value, 3);
            pair["lease"] = lease.into();
            json!({ "events": [{ "kv": pair }] })
        };
        known.change(&with("7", &offer("a")));
        assert_eq!(known.claim("files", &own, 7), Claim::Own);
        assert!(known.change(&with("8", &offer("a"))).is_empty(), "clients see no difference");
        assert_eq!(known.claim("files", &own, 7), Claim::Other);
        known.change(&with("7", "garbage"));
        assert_eq!(known.claim("files", &own, 7), Claim::Other);
    }

    #[test]
    fn number_of_keys_is_bounded_and_told() {
        let mut known = known();
        known.keys = KEYS_MAX;
        known.change(&json!({ "events": [{ "kv": pair("/p/files/a", &offer("a"), 1) }] }));
        let remarks = known.offers("files").remarks;
        let text = "1 keys are left out: a process reads 65536 keys of a directory, with 64 MiB";
        assert_eq!(remarks, [text]);
        assert!(!known.is_whole());
    }

    #[test]
    fn number_of_bytes_is_bounded_and_told() {
        let mut known = known();
        let mut put = |server: &str, value: &str| {
            let key = format!("/p/files/{server}");
            known.change(&json!({ "events": [{ "kv": pair(&key, value, 1) }] }));
            (known.keys, known.bytes, known.left_out)
        };
        let size = "/p/files/a".len() + offer("a").len();
        assert_eq!(put("a", &offer("a")), (1, size, 0));
        // Of garbage, only the key and the reason are kept.
        let garbage = size + "/p/files/x".len() + "the value is too long".len();
        assert_eq!(put("x", &"x".repeat(1 << 20)), (2, garbage, 0));
        // The reason would repeat the value.
        let value = json!({ "server": "y", "addresses": ["x".repeat(60_000)] }).to_string();
        let garbage = garbage + "/p/files/y".len() + limits::REMARK_MAX;
        assert_eq!(put("y", &value), (3, garbage, 0));
        known.bytes = BYTES_MAX - size;
        let mut put = |server: &str| {
            let event = json!({ "kv": pair(&format!("/p/files/{server}"), &offer(server), 2) });
            known.change(&json!({ "events": [event] }));
            (known.keys, known.left_out)
        };
        assert_eq!((put("b"), put("c")), ((4, 0), (4, 1)));
        assert_eq!(servers(&known), ["a", "b"]);
    }

    #[test]
    fn cluster_that_has_caught_up_is_told_from_the_known_one() {
        let with = |server: &str, lease: &str, revision: i64| {
            let mut pair = pair(&format!("/p/files/{server}"), &offer(server), revision);
            pair["lease"] = lease.into();
            pair
        };
        let header = json!({ "revision": "9", "raft_term": "2", "cluster_id": "1" });
        let whole = json!({ "header": header, "kvs": [with("a", "1", 4), with("b", "2", 8)] });
        let mut known = known();
        replace(&mut known, &whole, now());
        let fits = |known: &Known, count: &str, last: Option<Value>| {
            known.fits_last(&json!({ "header": header, "kvs": last.as_slice() }))
                && known.fits_count(&json!({ "header": header, "count": count }))
        };
        assert!(fits(&known, "2", Some(with("b", "2", 8))));
        assert_eq!(known.last_key().as_deref(), Some("/p/files/b"));
        // Fewer keys; no key; another lease; another revision.
        assert!(!fits(&known, "1", Some(with("b", "2", 8))));
        assert!(!fits(&known, "2", None));
        assert!(!fits(&known, "2", Some(with("b", "7", 8))));
        assert!(!fits(&known, "2", Some(with("b", "2", 7))));
        assert!(!fits(&known, "0", None));
        assert!(fits(&Known::nothing(known.place.clone()), "0", None));
        // Without the comparison, a reading shows it by a key that is not known as it was.
        let anew = json!({ "header": header, "kvs": [with("b", "7", 6)] });
        replace(&mut known, &anew, now());
        assert_eq!(servers(&known), ["a", "b"]);
        // After the comparison has failed, a reading of the same cluster keeps the servers.
        let nothing = json!({ "header": header });
        known.contradict();
        replace(&mut known, &nothing, now());
        assert_eq!(servers(&known), ["a", "b"]);
        assert!(fits(&known, "0", None), "the cluster does not have what was kept");
        assert!(!known.is_contradicted);
        assert_eq!(known.generation, 2);
    }

    #[test]
    fn number_of_keys_says_nothing_if_keys_were_left_out() {
        let mut known = known();
        replace(&mut known, &json!({ "header": { "revision": "4" }, "kvs": [] }), now());
        let fits = |known: &Known| known.fits_count(&json!({ "count": "7" }));
        assert!(!fits(&known));
        known.leave_out(7);
        assert!(fits(&known));
    }

    #[test]
    fn odd_keys_are_counted() {
        let odd = |version: &str, kind: &str| {
            let pair = json!({ "key": "/w==", "value": "", "version": version });
            json!({ "type": kind, "kv": pair })
        };
        let mut known = known();
        let pairs = [
            pair("/p/files", "", 1),
            pair("/p/files/", "", 2),
            pair("/p/files//", "", 3),
            odd("5", "")["kv"].clone(),
        ];
        replace(&mut known, &json!({ "header": { "revision": "4" }, "kvs": pairs }), now());
        let fits = |known: &Known, count: &str| known.fits_count(&json!({ "count": count }));
        assert!(fits(&known, "4") && !fits(&known, "5"));
        for (event, count) in [
            (odd("1", "PUT"), "5"),
            (odd("2", "PUT"), "5"),
            (odd("0", "DELETE"), "4"),
            (json!({ "type": "DELETE", "kv": { "key": encoded("/p/files/") } }), "3"),
        ] {
            known.change(&json!({ "events": [event] }));
            assert!(fits(&known, count), "{event} {count}");
        }
    }

    /// The time of day, which may jump, has no part in what this crate does. Leases are measured by the
    /// cluster, and everything else by the monotonic clock.
    #[test]
    fn no_file_reads_the_wall_clock() {
        let sources = [
            include_str!("access.rs"),
            include_str!("follow.rs"),
            include_str!("gateway.rs"),
            include_str!("known.rs"),
            include_str!("lease.rs"),
            include_str!("lib.rs"),
            include_str!("pause.rs"),
            include_str!("place.rs"),
            include_str!("shared.rs"),
            include_str!("watches.rs"),
        ];
        let clock = ["System", "Time"].concat();
        assert!(sources.iter().all(|source| !source.contains(&clock)));
    }
}
