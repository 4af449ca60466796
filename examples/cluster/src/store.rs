//! The interface of a store, and the object of a server: keys and values in memory, within limits.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use peregrine::{CallError, Value, interface};

/// The number of keys that a server holds at most.
const KEYS_MAX: usize = 100_000;
/// The number of bytes in the keys and values that a server holds at most.
const BYTES_MAX: usize = 64 << 20;
/// The number of keys in one page of [`Store::list`].
const PAGE: usize = 500;

/// A store of values with versions. The client chooses the version of a value, and the newest version wins.
/// So each procedure can be repeated.
#[interface]
pub(crate) trait Store {
    /// Returns the newest value of a key that this server has.
    #[idempotent]
    fn get(&self, #[max_len(64)] key: &str) -> peregrine::Result<Found>;
    /// Stores a value, unless the server has a newer version. Returns the version that the server has then.
    #[idempotent]
    fn put(
        &self,
        #[max_len(64)] key: &str,
        version: u64,
        #[max_len(4096)] value: &[u8],
    ) -> Result<u64, StoreError>;
    /// Returns the keys after this one in their order, with their versions.
    #[idempotent]
    fn list(&self, #[max_len(64)] after: &str) -> peregrine::Result<Page>;
    /// Returns the CRC32C of some bytes. It uses nothing of the store, so any server can compute it.
    #[idempotent]
    fn checksum(&self, #[max_len(65_536)] bytes: &[u8]) -> peregrine::Result<u32>;
}

/// A value and its version.
#[derive(Clone, Debug, PartialEq, Eq, Value)]
pub(crate) struct Versioned {
    pub(crate) version: u64,
    pub(crate) value: Vec<u8>,
}

/// What a server knows about a key.
#[derive(Clone, Debug, PartialEq, Eq, Value)]
pub(crate) struct Found {
    pub(crate) newest: Option<Versioned>,
    /// False while the server, which started empty, copies what the other replicas have. Until then, the
    /// answer says nothing about what was acknowledged.
    pub(crate) is_caught_up: bool,
}

/// A part of the list of keys.
#[derive(Clone, Debug, PartialEq, Eq, Value)]
pub(crate) struct Page {
    pub(crate) entries: Vec<Listed>,
    /// Whether there may be keys after the last entry.
    pub(crate) has_more: bool,
}

/// A key and the version of its value.
#[derive(Clone, Debug, PartialEq, Eq, Value)]
pub(crate) struct Listed {
    pub(crate) key: String,
    pub(crate) version: u64,
}

/// Why a value could not be stored.
#[derive(Debug, Value)]
pub(crate) enum StoreError {
    /// The call failed.
    Call(CallError),
    /// The key is empty.
    EmptyKey,
    /// The server holds as many keys or bytes as it may.
    Full { keys: u64, bytes: u64 },
}

impl From<CallError> for StoreError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

/// The keys and values of one server. A clone is the same store.
#[derive(Clone, Default)]
pub(crate) struct Shelf(Arc<Shared>);

#[derive(Default)]
struct Shared {
    entries: Mutex<Entries>,
    is_caught_up: AtomicBool,
}

#[derive(Default)]
struct Entries {
    by_key: BTreeMap<String, Versioned>,
    bytes: usize,
}

impl Shelf {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the version of a key, or 0.
    pub(crate) fn version(&self, key: &str) -> u64 {
        self.entries().by_key.get(key).map_or(0, |one| one.version)
    }

    pub(crate) fn keys(&self) -> usize {
        self.entries().by_key.len()
    }

    /// Notes that the store has everything that was acknowledged before.
    pub(crate) fn set_caught_up(&self) {
        self.0.is_caught_up.store(true, Ordering::Release);
    }

    /// Stores a value, unless there is a newer version. Returns the version that is stored then.
    ///
    /// # Errors
    /// If the store is full, or the key is empty. A list of keys begins after the empty one.
    pub(crate) fn keep(&self, key: &str, version: u64, value: &[u8]) -> Result<u64, StoreError> {
        if key.is_empty() {
            return Err(StoreError::EmptyKey);
        }
        let mut entries = self.entries();
        let known = entries.by_key.get(key);
        if let Some(known) = known.filter(|known| known.version >= version) {
            return Ok(known.version);
        }
        let freed = known.map_or(0, |known| key.len() + known.value.len());
        let bytes = entries.bytes - freed + key.len() + value.len();
        let is_new = known.is_none();
        if bytes > BYTES_MAX || is_new && entries.by_key.len() >= KEYS_MAX {
            let keys = entries.by_key.len() as u64;
            return Err(StoreError::Full { keys, bytes: entries.bytes as u64 });
        }
        entries.bytes = bytes;
        entries.by_key.insert(key.to_owned(), Versioned { version, value: value.to_vec() });
        Ok(version)
    }
}

impl Store for Shelf {
    fn get(&self, key: &str) -> peregrine::Result<Found> {
        // This is read first: what was acknowledged before the server had caught up is in the store then.
        let is_caught_up = self.0.is_caught_up.load(Ordering::Acquire);
        Ok(Found { newest: self.entries().by_key.get(key).cloned(), is_caught_up })
    }

    fn put(&self, key: &str, version: u64, value: &[u8]) -> Result<u64, StoreError> {
        self.keep(key, version, value)
    }

    fn list(&self, after: &str) -> peregrine::Result<Page> {
        let entries = self.entries();
        let mut rest = entries.by_key.range::<str, _>((Bound::Excluded(after), Bound::Unbounded));
        let listed =
            |(key, one): (&String, &Versioned)| Listed { key: key.clone(), version: one.version };
        let page: Vec<_> = rest.by_ref().take(PAGE).map(listed).collect();
        Ok(Page { entries: page, has_more: rest.next().is_some() })
    }

    fn checksum(&self, bytes: &[u8]) -> peregrine::Result<u32> {
        Ok(crc32c::crc32c(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_version_wins_in_any_order() {
        let shelf = Shelf::default();
        assert!(matches!(shelf.put("", 1, b"x"), Err(StoreError::EmptyKey)));
        assert_eq!(shelf.put("a", 2, b"two").unwrap(), 2);
        assert_eq!(shelf.put("a", 1, b"one").unwrap(), 2);
        assert_eq!(shelf.put("a", 2, b"again").unwrap(), 2);
        let found = shelf.get("a").unwrap();
        assert_eq!(found.newest, Some(Versioned { version: 2, value: b"two".to_vec() }));
        assert!(!found.is_caught_up);
        assert_eq!(shelf.get("b").unwrap().newest, None);
    }

    #[test]
    fn pages_contain_each_key_once() {
        let shelf = Shelf::default();
        let count = 2 * PAGE + 1;
        (0..count).for_each(|n| assert_eq!(shelf.put(&format!("{n:06}"), 7, &[]).unwrap(), 7));
        let (mut after, mut listed) = (String::new(), Vec::new());
        for has_more in [true, true, false] {
            let page = shelf.list(&after).unwrap();
            assert_eq!(page.has_more, has_more);
            after.clone_from(&page.entries.last().unwrap().key);
            listed.extend(page.entries.into_iter().map(|one| one.key));
        }
        assert_eq!(listed, (0..count).map(|n| format!("{n:06}")).collect::<Vec<_>>());
    }

    #[test]
    fn full_store_refuses_new_values_and_keeps_old_ones() {
        let shelf = Shelf::default();
        let value = vec![0; 4096];
        let mut stored = 0;
        let error = loop {
            match shelf.put(&format!("{stored}"), 1, &value) {
                Ok(_) => stored += 1,
                Err(error) => break error,
            }
            assert!(stored * value.len() <= BYTES_MAX);
        };
        assert!(matches!(error, StoreError::Full { keys, .. } if keys as usize == stored));
        // A shorter value in place of a longer one still fits.
        assert_eq!(shelf.put("0", 2, b"short").unwrap(), 2);
        assert_eq!(shelf.version("1"), 1);
    }
}
