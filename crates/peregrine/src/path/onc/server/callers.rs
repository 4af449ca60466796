//! The callers of a UDP socket or a connection. A caller is an address with a credential, and has a row for
//! each export that it calls.

use core::ops::Deref;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::address::host_of;
use crate::call::{CallerInfo, Claimed, PathKind};
use crate::counters::Visitor;
use crate::protocol::onc::message::{AuthSys, Call, Flavour};
use crate::serving::binding_table::BindingRow;
use crate::serving::export::Export;
use crate::sync::{Mutex, MutexGuard};

/// The rows of callers. If there are too many, the oldest row is dropped, first that of the same host. The
/// caller gets a new row with its next call.
pub(super) struct Callers {
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
}

/// What identifies a caller and the program that it calls.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    from: SocketAddr,
    program: u32,
    version: u32,
    flavour: u32,
    credential: Box<[u8]>,
}

/// The row of a caller. It ends when nothing refers to it any more: neither [`Callers`] nor a running call.
pub(super) struct CallerRow(Arc<BindingRow>);

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

impl Key {
    fn of(from: SocketAddr, call: &Call<'_>) -> Self {
        let Call { program, version, credential, .. } = *call;
        // The stamp of a credential with user and groups is a number without meaning.
        let stamp = if credential.flavour == Flavour::SYS { 4 } else { 0 };
        let body = credential.body.get(stamp..).unwrap_or_default();
        let flavour = credential.flavour.0;
        Self { from, program, version, flavour, credential: body.into() }
    }
}

impl Callers {
    /// Returns an empty table for at most `most` rows, and `most_per_host` of each host.
    pub(super) fn new(most: usize, most_per_host: usize) -> Self {
        Self { rows: Mutex::default(), most, most_per_host }
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock()
    }

    /// Returns the row of the caller of a call, if it exists.
    pub(super) fn get(&self, from: SocketAddr, call: &Call<'_>) -> Option<Arc<CallerRow>> {
        let key = Key::of(from, call);
        self.rows().rows.get(&key).filter(|row| !row.is_revoked()).map(Arc::clone)
    }

    /// Adds a row for the caller of a call.
    pub(super) fn add(
        &self,
        path: PathKind,
        from: SocketAddr,
        call: &Call<'_>,
        export: &Export,
    ) -> Arc<CallerRow> {
        let claimed = AuthSys::parse(call.credential.body).ok().map(|sys| Claimed {
            machine: String::from_utf8_lossy(sys.machine).into_owned(),
            user: sys.user,
            group: sys.group,
            groups: sys.groups.as_slice().to_vec(),
        });
        let caller = CallerInfo {
            path,
            export: export.name.clone(),
            process: 0,
            user: CallerInfo::NOBODY,
            group: CallerInfo::NOBODY,
            from: Some(from),
            hardware: None,
            claimed: claimed.filter(|_| call.credential.flavour == Flavour::SYS),
            ending: None,
        };
        let tally = export.counters.tally_of(&Visitor::of(&caller));
        let row = export.bind(caller, export.message_bytes_max(), tally);
        row.add_to_count();
        let row = Arc::new(CallerRow(row));
        let removed = self.rows().insert(Key::of(from, call), Arc::clone(&row), self);
        // A removed row may be the last owner of the exported object. So it is dropped after the lock is
        // released.
        drop(removed);
        row
    }

    /// Drops the rows of an export that was withdrawn.
    pub(super) fn revoke(&self, export: u64) {
        let removed = self.rows().take(|row| row.export == export);
        removed.iter().for_each(|row| row.revoke());
    }

    /// Drops all rows, because the server or the connection ends.
    pub(super) fn revoke_all(&self) {
        let removed = self.rows().take(|_| true);
        removed.iter().for_each(|row| row.revoke());
    }
}

impl Rows {
    /// Adds a row. Returns the rows that were removed to make room for it.
    fn insert(&mut self, key: Key, row: Arc<CallerRow>, bounds: &Callers) -> Vec<Arc<CallerRow>> {
        if let Some(present) = self.rows.get_mut(&key) {
            // The row of a withdrawn export, or another thread has added the same caller.
            return vec![core::mem::replace(present, row)];
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
        self.rows.remove(&self.order.remove(&oldest)?)
    }

    /// Removes and returns the rows for which `is_removed` returns true.
    fn take(&mut self, is_removed: impl Fn(&BindingRow) -> bool) -> Vec<Arc<CallerRow>> {
        let removed = self.rows.extract_if(|_, row| is_removed(row)).map(|(_, row)| row).collect();
        self.order.retain(|_, key| self.rows.contains_key(key));
        self.hosts.retain(|_, numbers| {
            numbers.retain(|number| self.order.contains_key(number));
            !numbers.is_empty()
        });
        removed
    }
}
