//! What this process knows of the directory: all servers of all names, from one reading and the changes after
//! it.

use std::collections::{BTreeMap, BTreeSet};

use peregrine::directory::{Offer, Offers};
use peregrine::limits;
use serde_json::Value;

use crate::gateway::{decoded, number};
use crate::place::Place;

/// The largest number of keys that a process keeps.
const KEYS_MAX: usize = 1 << 16;

/// The servers of a name, or why the value of a key cannot be used.
type Servers = BTreeMap<String, Result<Offer, String>>;

/// All names below a prefix.
#[derive(Debug)]
pub(crate) struct Known {
    place: Place,
    names: BTreeMap<String, Servers>,
    /// The number of keys.
    keys: usize,
    /// The revision of the cluster up to which this is known.
    pub(crate) revision: i64,
}

impl Known {
    pub(crate) const fn nothing(place: Place) -> Self {
        Self { place, names: BTreeMap::new(), keys: 0, revision: 0 }
    }

    /// Takes the answer to a reading of all keys. Returns the names that have changed.
    pub(crate) fn replace(&mut self, answer: &Value) -> BTreeSet<String> {
        let before = core::mem::take(&mut self.names);
        self.keys = 0;
        for pair in answer.get("kvs").and_then(Value::as_array).into_iter().flatten() {
            self.put(pair);
        }
        self.revision = revision(answer).unwrap_or_default();
        let names = before.keys().chain(self.names.keys());
        let changed = names.filter(|name| before.get(*name) != self.names.get(*name));
        changed.cloned().collect()
    }

    /// Takes one answer of a watch. Returns the names that have changed.
    pub(crate) fn change(&mut self, answer: &Value) -> BTreeSet<String> {
        let events = answer.get("events").and_then(Value::as_array);
        let mut changed = BTreeSet::new();
        for event in events.into_iter().flatten() {
            let Some(pair) = event.get("kv") else { continue };
            let is_gone = event.get("type").and_then(Value::as_str) == Some("DELETE");
            changed.extend(if is_gone { self.remove(pair) } else { self.put(pair) });
            if let Some(revision) = number(pair.get("mod_revision")) {
                self.revision = self.revision.max(revision);
            }
        }
        changed
    }

    /// Takes one key and its value. Returns the name, if the key belongs to one.
    fn put(&mut self, pair: &Value) -> Option<String> {
        let key = decoded(pair.get("key"))?;
        let (name, server) = self.place.name_of(&key)?;
        let value = decoded(pair.get("value")).ok_or_else(|| "the value is no text".to_owned());
        let offer = value.and_then(|value| Offer::from_json(&value)).and_then(|offer| {
            match offer.server() == server {
                true => Ok(offer),
                false => Err(format!("the value is of the server `{}`", offer.server())),
            }
        });
        let servers = self.names.entry(name.to_owned()).or_default();
        let is_new = !servers.contains_key(server);
        if is_new && self.keys == KEYS_MAX {
            return None;
        }
        self.keys += usize::from(is_new);
        servers.insert(server.to_owned(), offer);
        Some(name.to_owned())
    }

    fn remove(&mut self, pair: &Value) -> Option<String> {
        let key = decoded(pair.get("key"))?;
        let (name, server) = self.place.name_of(&key)?;
        let servers = self.names.get_mut(name)?;
        drop(servers.remove(server)?);
        self.keys -= 1;
        if servers.is_empty() {
            self.names.remove(name);
        }
        Some(name.to_owned())
    }

    /// Returns what is known of a name.
    pub(crate) fn offers(&self, name: &str) -> Offers {
        let mut offers = Offers::default();
        for (server, offer) in self.names.get(name).into_iter().flatten() {
            match offer {
                Ok(offer) if offers.servers.len() < limits::SERVERS_MAX => {
                    offers.servers.push(offer.clone());
                }
                Ok(_) => {
                    let most = limits::SERVERS_MAX;
                    offers.remark(&format!("{server}: there are {most} servers"));
                }
                Err(why) => {
                    let key = self.place.key(name, server);
                    offers.remark(&format!("{key}: {why}"));
                }
            }
        }
        offers
    }

    /// Returns the names that have servers.
    pub(crate) fn names(&self) -> Vec<String> {
        let usable = |servers: &Servers| servers.values().any(Result::is_ok);
        self.names.iter().filter(|(_, all)| usable(all)).map(|(name, _)| name.clone()).collect()
    }
}

/// Returns the revision of the cluster at the time of an answer.
pub(crate) fn revision(answer: &Value) -> Option<i64> {
    number(answer.get("header")?.get("revision"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::gateway::encoded;

    fn known() -> Known {
        Known::nothing(Place::read("//a/p").unwrap())
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
        assert_eq!(known.replace(&whole).into_iter().collect::<Vec<_>>(), ["files"]);
        assert_eq!((servers(&known), known.revision), (vec!["a".into(), "b".into()], 7));
        assert!(known.replace(&whole).is_empty(), "nothing has changed");
        let events = json!({ "events": [
            { "type": "DELETE", "kv": { "key": encoded("/p/files/a"), "mod_revision": "9" } },
            { "kv": pair("/p/disk/c", &offer("c"), 10) },
        ] });
        let changed: Vec<_> = known.change(&events).into_iter().collect();
        assert_eq!(changed, ["disk", "files"]);
        assert_eq!((servers(&known), known.revision), (vec!["b".into()], 10));
        assert_eq!(known.names(), ["disk", "files"]);
        assert_eq!(known.replace(&json!({})).len(), 2, "the cluster has lost everything");
        assert!(known.names().is_empty() && known.keys == 0);
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
        ] {
            assert!(remarks.contains(remark), "{remark} in {remarks}");
        }
        assert_eq!(offers.remarks.len(), 3);
    }
}
