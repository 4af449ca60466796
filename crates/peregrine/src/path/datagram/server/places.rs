//! Manages the places of the server's table. Each place has the record of one client handle. This module
//! binds clients, handles their goodbyes, and evicts silent clients.
//!
//! Lock order: first the table, then a record.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::records::Record;
use super::retention::ThreadCache;
use super::waiting::WaitingFor;
use super::{ErrorKind, Inner, SWEEP, ServerSocket};
use crate::call::extensions;
use crate::limits;
use crate::path::datagram::peer::{PeerAddress, credits};
use crate::path::datagram::sealed::of_connection;
use crate::protocol::exchange::bind::{
    BIND_BYTES, BindAction, BindMessage, BindRefusal, BindRequest, Cookies, Grant, GrantedHandle,
    HANDLES_MAX,
};
use crate::protocol::exchange::header::{HEADER_BYTES, Handle, Header, PacketKind};
use crate::protocol::exchange::message::TOTAL_MAX;
use crate::protocol::exchange::server_end::{RecordPhase, ServerTerms};
use crate::protocol::exchange::table::is_evictable;
use crate::protocol::exchange::time::Moment;
use crate::serving::binding_table::BindingRow;
use crate::sync::Mutex;
use crate::sys::{self, Address};
use crate::value::{ByteOrder, Window};

impl ServerSocket {
    /// Returns how many threads still run procedures although their clients have cancelled the calls.
    pub(crate) fn captured(&self) -> u64 {
        let given_up = |record: &Record| {
            let inner = record.0.try_lock();
            inner.is_some_and(|inner| inner.server_end.is_cancelled() && inner.deferred.is_none())
        };
        self.records.all().filter(|record| given_up(record)).count() as u64
    }

    /// Returns the number of calls that were refused before they ran.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns whether any client is bound.
    pub(super) fn has_clients(&self) -> bool {
        self.records.all().any(|record| record.0.lock().row.is_some())
    }

    /// Answers a packet of the bind exchange.
    pub(super) fn bind(&self, now: Moment, header: &Header, body: &[u8], from: &Address) {
        let text = format!("{from:?}");
        let mut stranger = false;
        if header.kind == PacketKind::Shake && self.sealed.is_none() {
            return self.refuse_handshake(now, header, body, from);
        }
        let connection = self.connection_of(header);
        let asked = match connection {
            Some(_) => Cookies::asked_by_proven(header, body),
            None => self.cookies.asked(now, text.as_bytes(), header, body),
        };
        let answer = match asked {
            Some(BindAction::SendCookie(cookie, link)) => {
                stranger = true;
                BindMessage::Cookie(cookie, self.link.filter(|_| link))
            }
            Some(BindAction::Decide(wish)) => {
                self.note_verified(from);
                match self.grant(now, &wish, from, connection) {
                    Ok(grant) => BindMessage::Bound(grant),
                    Err((kind, text)) => BindMessage::Unbound(BindRefusal::new(kind as u32, &text)),
                }
            }
            None => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                return;
            }
        };
        let mut packet = [0; BIND_BYTES];
        answer.emit(header.handle.secret, 0, header.serial, &mut packet);
        if stranger {
            return self.answer_unverified(now, &packet, from);
        }
        self.note_sent(1, self.socket.send(&[Window::from(&packet[..])], Some(from)));
    }

    /// Grants handles to a client that binds. If its packets are sealed, the secrets of the handles begin with
    /// the number of the connection.
    pub(super) fn grant(
        &self,
        now: Moment,
        wish: &BindRequest,
        from: &Address,
        connection: Option<[u8; 8]>,
    ) -> Result<Grant, (ErrorKind, String)> {
        let name = core::str::from_utf8(wish.name.bytes())
            .map_err(|_| (ErrorKind::NotFound, "the name is not valid UTF-8".to_owned()))?;
        let identity = match (&self.sealed, connection) {
            (Some(sealed), Some(connection)) => match sealed.peer(&connection) {
                Some(peer) => Some(peer),
                None => {
                    let text = "the connection has ended".to_owned();
                    return Err((ErrorKind::ServerGone, text));
                }
            },
            _ => None,
        };
        let row =
            self.host.bind(name, wish.digest, wish.result_bytes_max.into(), from, identity)?;
        let piece = self.socket.payload_to(from, HEADER_BYTES).unwrap_or(1024);
        let piece = (piece as u32).min(wish.piece) & !15;
        let credits_here = credits(self.buffer, piece);
        // The extensions of a call count in addition to the size of its message.
        let bytes_max = (row.message_bytes + extensions::BYTES_MAX).min(TOTAL_MAX as usize) as u32;
        let terms = ServerTerms { piece, credits: wish.credits, credits_here, bytes_max };
        let wanted = usize::from(wish.handles).clamp(1, HANDLES_MAX);
        let mut handles = [GrantedHandle::default(); HANDLES_MAX];
        let mut count = 0;
        // A withdrawal finds a row, the server's record of a binding, by the handles of the binding. It
        // then subtracts the row from the count of bindings. So the row is added to this count before a
        // handle exists. The row is also held until all handles are granted. Otherwise an eviction of the
        // first of them could revoke the binding.
        row.add_to_count();
        row.hold();
        while count < wanted
            && let Some(granted) =
                self.admit(now, (&row, connection), from, &terms, wish.payload_check)
        {
            handles[count] = granted;
            count += 1;
        }
        // A withdrawal that began before this moment may have missed the new handles. So the server checks
        // again.
        let is_withdrawn = self.host.is_withdrawn(&row);
        if is_withdrawn {
            row.revoke();
        }
        row.release();
        if is_withdrawn {
            self.departed.add(row);
            let text = format!("`{name}` was withdrawn");
            return Err((ErrorKind::Withdrawn, text));
        }
        if count == 0 {
            return Err((ErrorKind::Exhausted, self.no_place_text(from)));
        }
        let digest = row.serve.interface().digest().0;
        let mut grant = Grant::new(self.number, self.incarnation, digest);
        (grant.piece, grant.call_bytes_max, grant.credits) = (piece, bytes_max, credits_here);
        grant.payload_check = wish.payload_check;
        grant.big_endian = row.serve.byte_order() == ByteOrder::Big;
        Ok(grant.with(&handles[..count]))
    }

    /// Returns a text that explains why a client gets no place in the table.
    #[cold]
    fn no_place_text(&self, from: &Address) -> String {
        let host = self.peer(PeerAddress::of(from).host());
        let table = self.table.lock();
        if table.is_group_full(host) {
            let most = limits::CALLERS_PER_HOST;
            format!("{most} clients of this host are bound, the most that one host may have")
        } else if table.is_full() {
            format!("{} clients are bound, the most for all hosts together", limits::CALLERS_MAX)
        } else {
            "there is no memory for one more client".to_owned()
        }
    }

    /// Grants one more handle of the binding `row`, if a place is free, or if the client at some place can
    /// be evicted.
    pub(super) fn admit(
        &self,
        now: Moment,
        (row, connection): (&Arc<BindingRow>, Option<[u8; 8]>),
        from: &Address,
        terms: &ServerTerms,
        checked: bool,
    ) -> Option<GrantedHandle> {
        let secret = of_connection(connection, sys::random().ok()?);
        let from_whom = PeerAddress::of(from);
        let (peer, host) = (self.peer(from_whom), self.peer(from_whom.host()));
        let phase = |place| {
            let vacant = (RecordPhase::Vacant, now);
            self.record(place).map_or(vacant, |record| {
                let inner = record.0.lock();
                (inner.server_end.phase(), inner.server_end.last_heard())
            })
        };
        let mut table = self.table.lock();
        let admission = table.admit(now, host, phase)?;
        let mut inner = self.records.made(admission.place)?.0.lock();
        if admission.evict {
            // The client of this record may have sent a packet after the table chose this place.
            let silence = now.since(inner.server_end.last_heard());
            if !is_evictable(inner.server_end.phase(), silence) {
                table.reassign(admission.place, inner.group.into());
                return None;
            }
            self.forget(&mut inner, &mut ThreadCache::default());
        }
        inner.flow = self.flows.of(peer);
        inner.server_end.assign(now, secret, peer, terms);
        if let Some(sealed) = &self.sealed {
            sealed.note_handles(&secret, 1);
        }
        inner.to = *from;
        (inner.group, inner.checked) = (host as u16, checked);
        row.hold();
        inner.row = Some(Arc::clone(row));
        Some(inner.server_end.granted_handle())
    }

    /// Revokes the handles of clients that hold memory, if the clients were silent for so long that the table
    /// may evict them.
    #[cold]
    pub(super) fn sweep_silent(&self, now: Moment) {
        let last = self.swept.load(Ordering::Relaxed);
        let (order, recent) = (Ordering::Relaxed, last != 0 && now.since(Moment(last)) < SWEEP);
        if recent || self.swept.compare_exchange(last, now.0, order, order).is_err() {
            return;
        }
        // This thread may hold the lock of a record. A thread in `admit` may hold the lock of the table, and
        // wait for that record. So this thread must not wait for the table.
        let Some(mut table) = self.table.try_lock() else { return };
        let mut spare = ThreadCache::default();
        for place in 0..limits::CALLERS_MAX as u32 {
            let Some(mut inner) = self.record(place).and_then(|record| record.0.try_lock()) else {
                continue;
            };
            let holds = inner.call.is_some() || inner.lent.is_some() || inner.result.is_some();
            let silence = now.since(inner.server_end.last_heard());
            if holds && is_evictable(inner.server_end.phase(), silence) {
                self.forget(&mut inner, &mut spare);
                table.release(place);
            }
        }
    }

    /// Revokes the handle of a record, and releases the memory of its call and its result. The caller must
    /// call [`drop_departed`](Self::drop_departed) after it has released all locks.
    pub(super) fn forget(&self, inner: &mut Inner, spare: &mut ThreadCache) {
        debug_assert!(inner.deferred.is_none(), "a procedure still runs");
        if let Some(sealed) = self.sealed.as_ref().filter(|_| inner.row.is_some()) {
            sealed.note_handles(&inner.server_end.bound_handle().secret, -1);
        }
        inner.server_end.forget();
        self.drop_call(inner);
        inner.waits = WaitingFor::Nothing;
        if let Some(result) = inner.result.take() {
            self.results.release(spare, inner.group, result);
        }
        if let Some(row) = inner.row.take() {
            row.release();
            self.departed.add(row);
        }
    }

    /// Frees the place of a client that has said goodbye.
    #[cold]
    pub(super) fn bye(&self, handle: Handle, spare: &mut ThreadCache) {
        let Some(record) = self.record(handle.place) else { return };
        // Lock order, as in `admit`: first the table, then the record. The place may already belong to
        // another client.
        let (mut table, mut inner) = (self.table.lock(), record.0.lock());
        if inner.server_end.bound_handle() == handle
            && inner.server_end.phase() == RecordPhase::Idle
        {
            self.forget(&mut inner, spare);
            table.release(handle.place);
        }
        drop((inner, table));
        self.drop_departed();
    }

    /// Drops the rows of clients that have gone. The caller must hold no lock.
    #[cold]
    pub(super) fn drop_departed(&self) {
        if !self.departed.any.swap(false, Ordering::AcqRel) {
            return;
        }
        let rows = core::mem::take(&mut *self.departed.rows.lock());
        let (last, others): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|row| self.host.is_withdrawn(row));
        drop(others);
        if self.host.is_stopping() {
            // The thread that stops the server drops these rows with the socket, and waits for that.
            self.departed.rows.lock().extend(last);
        } else if !last.is_empty() {
            // If no thread can be started, the closure is dropped here, and the rows with it.
            let _ = std::thread::Builder::new().name("peregrine-drop".into()).spawn(|| drop(last));
        }
    }
}

/// The rows of clients that have gone. The row of a withdrawn export may be the last owner of the exported
/// object, and dropping the object runs code of the application, which may take any time and call this server.
/// So such rows are dropped on a thread of their own, and no row while a lock is held.
#[derive(Default)]
pub(super) struct DepartedRows {
    any: AtomicBool,
    rows: Mutex<Vec<Arc<BindingRow>>>,
}

impl DepartedRows {
    fn add(&self, row: Arc<BindingRow>) {
        self.rows.lock().push(row);
        self.any.store(true, Ordering::Release);
    }

    /// Returns whether there are rows to drop.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }
}
