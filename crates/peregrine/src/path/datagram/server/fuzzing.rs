//! The fuzz target for the datagram path. A server handles fuzzed datagrams, from one client that it knows
//! and from unknown clients.

#![allow(missing_docs)]

#[cfg(feature = "secure")]
pub(crate) mod sealed;
#[cfg(feature = "secure")]
pub(crate) mod shaking;

use core::sync::atomic::AtomicU32;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use super::records::Record;
use super::{Address, Arrival, ExportHost, ReceiverState, ServerSocket, ThreadCache, moment};
use crate::call::{CallerInfo, Identified, PathKind, Refusal, Serve};
use crate::counters::{Page, Tally};
use crate::device::Socket;
use crate::device::udp::Udp;
use crate::error::Kind as ErrorKind;
use crate::interface::Description;
use crate::protocol::exchange::bind::{BindRequest, ExportName};
use crate::protocol::exchange::header::{HEADER_BYTES, Handle, VERSION, checksum};
use crate::protocol::exchange::server_end::RecordPhase;
use crate::serving::binding_table::BindingRow;
use crate::serving::deferrals::Deferrals;

/// The size of the largest message in bytes.
const BYTES: usize = 100_000;
/// The number of handles that are bound before each input is handled.
const HANDLES: usize = 3;
/// After this many inputs, the target forgets all records. After other inputs, it usually forgets only the
/// records of the handles that were bound for that input. Once every place of the table has been used, there
/// are thousands of records. Visiting all of them takes longer than handling an input.
const ALL_EVERY: u32 = 1024;

struct Only(Arc<dyn Serve>);

impl ExportHost for Only {
    fn bind(
        &self,
        _: &str,
        _: Option<[u8; 16]>,
        _: u64,
        from: &Address,
        _: Option<Identified>,
    ) -> Result<Arc<BindingRow>, (ErrorKind, String)> {
        let caller = CallerInfo {
            path: PathKind::Udp,
            export: "only".into(),
            process: 0,
            user: CallerInfo::NOBODY,
            group: CallerInfo::NOBODY,
            from: from.ip(),
            hardware: None,
            claimed: None,
            identity: None,
            ending: None,
            carried: None,
            account: Default::default(),
        };
        let phase = Arc::new(AtomicU32::new(0));
        Ok(Arc::new(BindingRow::new(
            1,
            (Arc::clone(&self.0), Arc::default()),
            Arc::new(caller),
            BYTES,
            phase,
            Tally::unseen(),
        )))
    }

    fn is_withdrawn(&self, _: &BindingRow) -> bool {
        false
    }
    fn describe(&self, _: &BindingRow) -> Option<Description> {
        None
    }

    fn captured(&self, _: usize, _: usize) {}
    fn is_stopping(&self) -> bool {
        false
    }

    fn report_panic(&self, _: Box<dyn core::any::Any + Send>) {}

    fn outlive(&self, _: &str, work: &mut dyn FnMut()) {
        work();
    }
}

/// A server socket that one thread serves.
pub struct Datagrams {
    service: Arc<ServerSocket>,
    receiver: ReceiverState,
    inputs: u32,
    /// An address at which no socket listens. Packets to this address are lost.
    closed_port: SocketAddr,
}

impl core::fmt::Debug for Datagrams {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.service.fmt(f)
    }
}

impl Datagrams {
    /// # Errors
    /// If no socket can be created.
    pub fn new(serve: Arc<dyn Serve>) -> io::Result<Self> {
        let page = Page::new()?;
        let service = ServerSocket::new(
            Socket::Udp(Udp::bound(SocketAddr::from(([127, 0, 0, 1], 0)))?),
            None,
            1,
            Arc::new(Only(serve)),
            Deferrals::new(&page),
            page,
            None,
        )?;
        let receiver = service.receiver()?;
        Ok(Self {
            service,
            receiver,
            inputs: 0,
            closed_port: "127.0.0.1:9".parse().expect("an address"),
        })
    }

    /// Handles the datagrams of an input. The input describes each datagram by one byte of flags, one for the
    /// handle, one for the sequence number, and two for the length. After them come the bytes of the
    /// datagram.
    ///
    /// # Panics
    /// If memory is still charged after the target has forgotten all clients.
    pub fn take(&mut self, mut input: &[u8]) {
        let handles = bind(&self.service, &self.closed_port.into(), None);
        let mut waiting = Vec::new();
        while let Some(([how, which, ahead, low, high], rest)) = input.split_first_chunk() {
            let bytes = usize::from(u16::from_le_bytes([*low, *high]));
            let (datagram, rest) = rest.split_at(bytes.min(rest.len()));
            input = rest;
            let handle = handles.get(usize::from(*which) % (HANDLES + 1));
            let mut datagram = datagram.to_vec();
            // The datagram is extended. So even a short input can contain calls of many packets.
            if how & 8 != 0 {
                datagram.resize(HEADER_BYTES + 512, *ahead);
            }
            known(&mut datagram, *how, handle, i32::from(*ahead as i8) / 16);
            self.receiver.input.memory()[..datagram.len()].copy_from_slice(&datagram);
            self.receiver.from = self.closed_port.into();
            let bytes = datagram.len();
            self.receiver.rest = Some((Arrival { bytes, segment: bytes, cut: false }, 0));
            let Some(work) = self.service.take(&mut self.receiver, false) else { continue };
            match how >> 4 & 3 {
                0 | 1 => {
                    self.service.run(&mut self.receiver, work);
                }
                2 => waiting.extend(self.service.detach(&mut self.receiver, work)),
                _ => {
                    let refusal =
                        Refusal::new(ErrorKind::Overloaded, "the input requests a refusal");
                    self.service.refuse_work(&mut self.receiver, work, &refusal);
                }
            }
            if how & 64 != 0 {
                waiting.drain(..).for_each(|work| {
                    self.service.run(&mut self.receiver, work);
                });
            }
        }
        waiting.into_iter().for_each(|work| {
            self.service.run(&mut self.receiver, work);
        });
        let of_handle = |handle: &Handle| self.service.records.record(handle.place);
        forget(&self.service, handles.iter().filter_map(of_handle));
        self.inputs = self.inputs.wrapping_add(1);
        // If an input contained a valid cookie, further handles may be bound, and their records may still
        // hold memory. Then all records are forgotten.
        if self.service.calls.any() || self.inputs.is_multiple_of(ALL_EVERY) {
            forget(&self.service, self.service.records.all());
        }
        assert!(!self.service.calls.any(), "bytes are charged although no call exists");
    }
}

/// Binds, and returns the handles. `connection` is the sealed connection of the client, if it has one.
fn bind(service: &ServerSocket, from: &Address, connection: Option<[u8; 8]>) -> Vec<Handle> {
    let wish = BindRequest {
        name: ExportName::new(b"only").expect("a name"),
        digest: None,
        handles: HANDLES as u16,
        piece: 512,
        result_bytes_max: BYTES as u32,
        credits: 50,
        payload_check: false,
    };
    let granted = service.grant(moment(), &wish, from, connection).expect("handles");
    granted.handles().iter().map(|granted| granted.handle).collect()
}

fn forget<'a>(service: &ServerSocket, records: impl Iterator<Item = &'a Record>) {
    let mut table = service.table.lock();
    for record in records {
        let mut inner = record.0.lock();
        assert_ne!(inner.server_end.phase(), RecordPhase::Running, "a procedure still runs");
        assert!(inner.server_end.phase() != RecordPhase::Replied || inner.result.is_some());
        if inner.server_end.phase() != RecordPhase::Vacant {
            service.forget(&mut inner, &mut ThreadCache::default());
            table.release(inner.server_end.bound_handle().place);
        }
    }
}

/// Writes `handle` into the header of a datagram, if a handle is given. The flags `how` select whether the
/// checksums of the payload and of the header are written, too.
fn known(datagram: &mut [u8], how: u8, handle: Option<&Handle>, ahead: i32) {
    let Some((header, payload)) = datagram.split_first_chunk_mut::<HEADER_BYTES>() else { return };
    header[..3].copy_from_slice(&[b'P', b'X', VERSION]);
    if let Some(handle) = handle {
        let sequence = handle.sequence().wrapping_add_signed(ahead);
        header[8..12].copy_from_slice(&handle.place.to_le_bytes());
        header[12..24].copy_from_slice(&handle.secret);
        header[24..28].copy_from_slice(&sequence.to_le_bytes());
    }
    if how & 2 != 0 {
        header[56..60].copy_from_slice(&checksum(payload).to_le_bytes());
    }
    if how & 1 != 0 {
        header[4..8].fill(0);
        let check = checksum(header);
        header[4..8].copy_from_slice(&check.to_le_bytes());
    }
}
