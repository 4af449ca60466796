//! The callers of a datagram socket or a connection. A caller is an address with a credential. The server
//! keeps a row for each caller and each program that the caller calls.

use core::ops::Deref;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::address::host_of;
use crate::call::{CallerInfo, Claimed, PathKind};
use crate::counters::Visitor;
use crate::serving::binding_table::BindingRow;
use crate::serving::export::Export;
use crate::sync::{Mutex, MutexGuard};

/// The rows of callers. If the host of a new caller has too many rows, its oldest row is dropped. If there
/// are too many rows in total, the oldest of all is dropped. The caller of a dropped row gets a new row with
/// its next call.
pub(crate) struct Callers {
    rows: Mutex<Rows>,
    most: usize,
    most_per_host: usize,
}

#[derive(Default)]
struct Rows {
    rows: HashMap<Key, Arc<CallerRow>>,
    /// The keys of all rows, oldest first. Each row has a number, in the order in which rows were added.
    order: BTreeMap<u64, Key>,
    /// The numbers of the rows of each host, oldest first.
    hosts: HashMap<IpAddr, VecDeque<u64>>,
    added: u64,
    /// The row that was found last. Most calls come from the caller of the previous call, and comparing keys
    /// takes less time than hashing.
    last: Option<(Key, Arc<CallerRow>)>,
}

/// The key of a row: it identifies a caller and the program that it calls.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    from: SocketAddr,
    program: u32,
    version: u32,
    flavour: u32,
    credential: Box<[u8]>,
}

/// The row of a caller. It is revoked when nothing refers to it any more: neither [`Callers`] nor a running
/// call.
pub(crate) struct CallerRow(Arc<BindingRow>);

impl Deref for CallerRow {
    type Target = BindingRow;

    fn deref(&self) -> &BindingRow {
        &self.0
    }
}

impl Drop for CallerRow {
    fn drop(&mut self) {
        self.0.revoke();
    }
}

/// A caller as its call describes it.
#[derive(Clone, Copy)]
pub(crate) struct Caller<'a> {
    pub(crate) from: SocketAddr,
    pub(crate) program: u32,
    pub(crate) version: u32,
    /// The kind of the credential. Zero in systems without credentials.
    pub(crate) flavour: u32,
    /// The bytes of the credential that identify the caller. Empty in systems without credentials.
    pub(crate) credential: &'a [u8],
}

impl Caller<'_> {
    fn is(&self, key: &Key) -> bool {
        self.from == key.from
            && (self.program, self.version) == (key.program, key.version)
            && self.flavour == key.flavour
            && *self.credential == *key.credential
    }

    fn key(&self) -> Key {
        let Self { from, program, version, flavour, credential } = *self;
        Key { from, program, version, flavour, credential: credential.into() }
    }
}

impl Callers {
    /// Returns an empty table for at most `most` rows, of which each host has at most `most_per_host`.
    pub(crate) fn new(most: usize, most_per_host: usize) -> Self {
        Self { rows: Mutex::default(), most, most_per_host }
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock()
    }

    /// Returns the row of the caller of a call, if it exists.
    pub(crate) fn get(&self, caller: &Caller<'_>) -> Option<Arc<CallerRow>> {
        let mut rows = self.rows();
        if let Some((key, row)) = &rows.last
            && caller.is(key)
            && !row.is_revoked()
        {
            return Some(Arc::clone(row));
        }
        let key = caller.key();
        let row = rows.rows.get(&key).filter(|row| !row.is_revoked()).map(Arc::clone)?;
        rows.last = Some((key, Arc::clone(&row)));
        Some(row)
    }

    /// Adds a row for the caller of a call. `claimed` is the identity that the caller claims.
    pub(crate) fn add(
        &self,
        path: PathKind,
        caller: &Caller<'_>,
        claimed: Option<Claimed>,
        export: &Export,
    ) -> Arc<CallerRow> {
        let info = CallerInfo {
            path,
            export: export.name.as_str().into(),
            process: 0,
            user: CallerInfo::NOBODY,
            group: CallerInfo::NOBODY,
            from: Some(caller.from),
            hardware: None,
            claimed: claimed.map(Box::new),
            identity: None,
            ending: None,
            carried: None,
            account: Default::default(),
        };
        let tally = export.counters.tally_of(&Visitor::of(&info));
        let row = export.bind(info, export.message_bytes_max(), tally);
        row.add_to_count();
        let row = Arc::new(CallerRow(row));
        let removed = self.rows().insert(caller.key(), Arc::clone(&row), self);
        // A removed row may be the last owner of the exported object. So it is dropped after the lock is
        // released.
        drop(removed);
        row
    }

    /// Drops the rows of an export that was withdrawn.
    pub(crate) fn revoke(&self, export: u64) {
        let removed = self.rows().take(|row| row.export == export);
        removed.iter().for_each(|row| row.revoke());
    }

    /// Drops all rows, because the server or the connection ends.
    pub(crate) fn revoke_all(&self) {
        let removed = self.rows().take(|_| true);
        removed.iter().for_each(|row| row.revoke());
    }
}

impl Rows {
    /// Adds a row. Returns the rows that were replaced, or removed because a limit was reached.
    fn insert(&mut self, key: Key, row: Arc<CallerRow>, bounds: &Callers) -> Vec<Arc<CallerRow>> {
        if let Some(present) = self.rows.get_mut(&key) {
            // The present row is that of a withdrawn export, or another thread has added a row for the same
            // caller.
            let replaced = core::mem::replace(present, row);
            self.forget(&replaced);
            return vec![replaced];
        }
        let host = host_of(key.from.ip());
        let theirs = self.hosts.get(&host).map_or(0, VecDeque::len);
        let full = if theirs >= bounds.most_per_host {
            Some(host)
        } else if self.rows.len() >= bounds.most {
            self.order.first_key_value().map(|(_, key)| host_of(key.from.ip()))
        } else {
            None
        };
        let removed = full.and_then(|host| self.remove_oldest(host));
        self.added += 1;
        self.order.insert(self.added, key.clone());
        self.hosts.entry(host).or_default().push_back(self.added);
        self.rows.insert(key, row);
        removed.into_iter().collect()
    }

    fn remove_oldest(&mut self, host: IpAddr) -> Option<Arc<CallerRow>> {
        let numbers = self.hosts.get_mut(&host)?;
        let oldest = numbers.pop_front()?;
        if numbers.is_empty() {
            self.hosts.remove(&host);
        }
        let removed = self.rows.remove(&self.order.remove(&oldest)?)?;
        self.forget(&removed);
        Some(removed)
    }

    /// Notes that a row was removed, so that it is not found any more.
    fn forget(&mut self, removed: &Arc<CallerRow>) {
        self.last.take_if(|(_, last)| Arc::ptr_eq(last, removed));
    }

    /// Removes and returns the rows for which `is_removed` returns true.
    fn take(&mut self, is_removed: impl Fn(&BindingRow) -> bool) -> Vec<Arc<CallerRow>> {
        let extracted = self.rows.extract_if(|_, row| is_removed(row));
        let removed: Vec<_> = extracted.map(|(_, row)| row).collect();
        removed.iter().for_each(|row| self.forget(row));
        self.order.retain(|_, key| self.rows.contains_key(key));
        self.hosts.retain(|_, numbers| {
            numbers.retain(|number| self.order.contains_key(number));
            !numbers.is_empty()
        });
        removed
    }
}
