//! `Registry`: the sessions and connections that the bindings of a process share, by destination.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use crate::sync::{Mutex, Rank};
use crate::sys::PerProcess;

/// Sessions, connections, associations or link ports of this process, by key. The registry holds weak
/// references, so it keeps no value alive.
///
/// A forked child begins with an empty registry, and takes no lock that its parent may have held.
pub(crate) struct Registry<K: 'static, V: 'static> {
    entries: PerProcess<Mutex<HashMap<K, Entry<V>>>>,
    rank: Rank,
}

/// The values of one key. A thread holds the lock from its search until it has added a new value. Otherwise
/// two threads could create two values where one suffices.
pub(crate) type Entry<V> = Arc<Mutex<Vec<Weak<V>>>>;

impl<K: Eq + Hash + Send, V: Send + Sync> Registry<K, V> {
    /// Returns an empty registry. The locks of its entries have the rank `rank`.
    pub(crate) const fn new(rank: Rank) -> Self {
        Self { entries: PerProcess::new(), rank }
    }

    /// Returns the entry of a key. Also removes the entries that are not in use and have no live value.
    pub(crate) fn entry(&'static self, key: K) -> Entry<V> {
        let mut entries = self.entries.own().lock();
        entries.retain(|_, entry| {
            Arc::strong_count(entry) > 1
                || entry.try_lock().is_some_and(|all| all.iter().any(|one| one.strong_count() > 0))
        });
        let empty = || Arc::new(Mutex::ranked(self.rank, Vec::new()));
        Arc::clone(entries.entry(key).or_insert_with(empty))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static REGISTRY: Registry<u32, String> = Registry::new(Rank::Server);

    #[test]
    fn entry_is_kept_while_a_value_lives_or_a_thread_uses_it() {
        let keys = || REGISTRY.entries.own().lock().keys().copied().collect::<Vec<_>>();
        let (first, value) = (REGISTRY.entry(1), Arc::new("session".to_owned()));
        first.lock().push(Arc::downgrade(&value));
        assert!(Arc::ptr_eq(&first, &REGISTRY.entry(1)), "one entry for one key");
        drop(first);
        drop(REGISTRY.entry(2));
        assert!(keys().contains(&1), "the entry of a live value must be kept");
        let third = REGISTRY.entry(3);
        assert!(!keys().contains(&2), "an unused entry without a value must be removed");
        drop(value);
        drop(REGISTRY.entry(4));
        assert!(!keys().contains(&1) && keys().contains(&3));
        drop(third);
    }
}
