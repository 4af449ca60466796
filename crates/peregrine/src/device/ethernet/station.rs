//! `Station`: what this process has at an interface, and shares among its sockets there.
//!
//! A queue of an interface belongs to one process, and an interface has one program. Who comes second
//! receives through `AF_PACKET` what the first one's program lets pass. So that the frames of two
//! processes cannot be confused, each claims a *tag*, which its endpoints begin with; that, and the
//! queue, it does by names in the network namespace that vanish with the process.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram, UnixListener, UnixStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::pool::MEMORY;
use super::xdp::XdpQueue;
use crate::sys::{self, NetworkInterface, XDP_SOCKETS_MAX};

/// The queue that is used: the one to which interfaces lead what is no IP packet.
pub(super) const QUEUE: u32 = 0;

/// What this process has at an interface.
pub(crate) struct Station {
    interface: NetworkInterface,
    /// What all endpoints of this process begin with.
    tag: u8,
    _claim: UnixDatagram,
    slots: Mutex<Box<[bool]>>,
    /// The queue, or why there is none.
    queue: Result<Arc<XdpQueue>, String>,
    /// Tells others who has the queue.
    _holds: Option<UnixListener>,
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn name(what: &str) -> io::Result<UnixAddress> {
    UnixAddress::from_abstract_name(format!("peregrine/ethernet/{what}"))
}

impl Station {
    /// What this process has at an interface, made if it has nothing yet. Without `queue` it does
    /// not even try to get one.
    ///
    /// # Errors
    /// If it is no Ethernet, or there are as many processes at it as can be.
    pub(crate) fn at(interface: &NetworkInterface, queue: bool) -> io::Result<Arc<Self>> {
        type Stations = HashMap<(u64, u32, bool), Weak<Station>>;
        struct Table {
            /// A forked child begins with none: its parent's sockets are not its own.
            owner: u32,
            stations: Stations,
        }
        static TABLE: Mutex<Option<Table>> = Mutex::new(None);
        let mut table = locked(&TABLE);
        let owner = std::process::id();
        if table.as_ref().is_none_or(|table| table.owner != owner) {
            // Not dropped: what it has belongs to the parent.
            core::mem::forget(table.replace(Table { owner, stations: Stations::new() }));
        }
        let stations =
            &mut table.get_or_insert(Table { owner, stations: Stations::new() }).stations;
        // Numbers of interfaces are those of a network namespace, and threads may be in several.
        let namespace = rustix::fs::stat("/proc/thread-self/ns/net").map_or(0, |stat| stat.st_ino);
        let key = (namespace, interface.number, queue);
        if let Some(station) = stations.get(&key).and_then(Weak::upgrade) {
            return Ok(station);
        }
        let station = Arc::new(Self::new(interface, queue)?);
        stations.retain(|_, station| station.strong_count() > 0);
        stations.insert(key, Arc::downgrade(&station));
        Ok(station)
    }

    fn new(interface: &NetworkInterface, queue: bool) -> io::Result<Self> {
        if interface.hardware.is_none() {
            let text = format!("`{}` is no Ethernet", interface.name);
            return Err(io::Error::new(ErrorKind::Unsupported, text));
        }
        let (tag, claim) = claim(interface.number)?;
        let queue = match queue {
            true => XdpQueue::new(interface, tag).map_err(|error| explain(interface, &error)),
            false => Err("AF_PACKET was asked for".to_owned()),
        };
        let at = name(&format!("{}/queue/{QUEUE}", interface.number))?;
        let holds = queue.is_ok().then(|| UnixListener::bind_addr(&at).ok()).flatten();
        let slots = vec![false; XDP_SOCKETS_MAX as usize].into_boxed_slice();
        Ok(Self {
            interface: interface.clone(),
            tag,
            _claim: claim,
            slots: Mutex::new(slots),
            queue: queue.map(Arc::new),
            _holds: holds,
        })
    }

    pub(crate) const fn interface(&self) -> &NetworkInterface {
        &self.interface
    }

    /// What its sockets are, in words.
    pub(crate) fn describe(&self) -> String {
        match &self.queue {
            Ok(queue) => queue.describe(),
            Err(why) => format!("AF_PACKET ({why})"),
        }
    }

    pub(super) const fn queue(&self) -> Option<&Arc<XdpQueue>> {
        match &self.queue {
            Ok(queue) => Some(queue),
            Err(_) => None,
        }
    }

    /// An endpoint of this process that nobody uses.
    pub(super) fn endpoint(&self) -> io::Result<[u8; 2]> {
        let mut slots = locked(&self.slots);
        let free = slots.iter().position(|taken| !taken).ok_or(ErrorKind::QuotaExceeded)?;
        slots[free] = true;
        Ok([self.tag, free as u8])
    }

    pub(super) fn give_back(&self, endpoint: [u8; 2]) {
        locked(&self.slots)[usize::from(endpoint[1])] = false;
    }
}

/// A tag that no other process in this network namespace has at the interface.
fn claim(interface: u32) -> io::Result<(u8, UnixDatagram)> {
    let [first] = sys::random::<1>()?;
    for tag in (0..=u8::MAX).map(|n| first.wrapping_add(n)) {
        match UnixDatagram::bind_addr(&name(&format!("{interface}/{tag:02x}"))?) {
            Ok(claim) => return Ok((tag, claim)),
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
    let text = "256 processes are at the interface, more than can be told apart";
    Err(io::Error::new(ErrorKind::QuotaExceeded, text))
}

/// Why a queue could not be had, in words.
fn explain(interface: &NetworkInterface, error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EBUSY) => match holder(interface.number) {
            Some(holder) => format!("queue {QUEUE} of `{}` is {holder}'s", interface.name),
            None => format!("`{}` has a program that is not Peregrine's", interface.name),
        },
        Some(libc::EPERM | libc::EACCES) => {
            "AF_XDP needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF".to_owned()
        }
        Some(libc::EAFNOSUPPORT | libc::ENOSYS) => "this kernel has no AF_XDP".to_owned(),
        Some(libc::ENOBUFS) => {
            format!("AF_XDP needs {} MiB of locked memory (RLIMIT_MEMLOCK)", MEMORY >> 20)
        }
        _ => format!("AF_XDP: {error}"),
    }
}

/// Who has the queue, if it is one of us.
fn holder(interface: u32) -> Option<String> {
    let at = name(&format!("{interface}/queue/{QUEUE}")).ok()?;
    let stream = UnixStream::connect_addr(&at).ok()?;
    let whose = rustix::net::sockopt::socket_peercred(&stream).ok()?.pid;
    let pid = whose.as_raw_nonzero();
    let command = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(format!("process {pid} ({})", command.trim()))
}
