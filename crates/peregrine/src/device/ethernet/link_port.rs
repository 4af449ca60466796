//! `LinkPort`: what this process has at an interface, and shares among its sockets there.
//!
//! A queue of an interface belongs to one process, and an interface has one program. Who comes second
//! receives through `AF_PACKET` what the first one's program lets pass. So that the frames of two
//! processes cannot be confused, each claims a *tag*, which its endpoints begin with; that, and the
//! queue, it does by names in the network namespace that vanish with the process.

use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram, UnixListener};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::pool::{LEAVING, MEMORY};
use super::xdp::XdpQueue;
use crate::registry::Registry;
use crate::sync::{Mutex, Rank};
use crate::sys::{self, NetworkInterface, PerProcess, XDP_SOCKETS_MAX};

/// The queue that is used: the one to which interfaces lead what is no IP packet.
pub(super) const QUEUE: u32 = 0;

/// By which device a process speaks at an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LinkDevice {
    /// AF_XDP if the queue is to be had, otherwise AF_PACKET.
    Xdp { zero_copy: bool },
    /// AF_PACKET.
    Packet,
    /// AF_PACKET, because nobody asked for more: AF_XDP attaches a program to the interface, for which
    /// many drivers reset it. A queue that this process has already is used.
    PacketByDefault,
}

/// What this process has at an interface.
pub(crate) struct LinkPort {
    interface: NetworkInterface,
    by: LinkDevice,
    /// What all endpoints of this process begin with.
    tag: u8,
    _claim: UnixDatagram,
    slots: Mutex<Box<[bool]>>,
    /// The queue, or why there is none.
    queue: Result<Arc<XdpQueue>, String>,
    /// Tells others who has the queue.
    holds: Option<UnixListener>,
}

fn name(what: &str) -> io::Result<UnixAddress> {
    UnixAddress::from_abstract_name(format!("peregrine/ethernet/{what}"))
}

impl LinkPort {
    /// What this process has at an interface, made if it has nothing yet. A server tells the port at
    /// which it listens.
    ///
    /// # Errors
    /// If it is no Ethernet, or there are as many processes at it as can be.
    pub(crate) fn at(
        interface: &NetworkInterface,
        by: LinkDevice,
        port: Option<u16>,
    ) -> io::Result<Arc<Self>> {
        static LINK_PORTS: Registry<(u64, u32), LinkPort> = Registry::new(Rank::LinkPorts);
        // An interface's number is valid in one network namespace, and threads may be in several.
        let namespace = rustix::fs::stat("/proc/thread-self/ns/net").map_or(0, |stat| stat.st_ino);
        let entry = LINK_PORTS.entry((namespace, interface.number));
        let mut link_ports = entry.lock();
        let find = |fits: &dyn Fn(LinkDevice) -> bool| {
            link_ports.iter().filter_map(Weak::upgrade).find(|link_port| fits(link_port.by))
        };
        // A process has one queue at an interface, whichever way it was asked for first.
        let has_queue = |by| matches!(by, LinkDevice::Xdp { .. });
        let found = match by {
            LinkDevice::Xdp { .. } => find(&has_queue),
            LinkDevice::Packet => find(&|other| other == by),
            LinkDevice::PacketByDefault => find(&has_queue).or_else(|| find(&|other| other == by)),
        };
        if let Some(link_port) = found {
            return Ok(link_port);
        }
        let link_port = Arc::new(Self::new(interface, by, port)?);
        link_ports.retain(|link_port| link_port.strong_count() > 0);
        link_ports.push(Arc::downgrade(&link_port));
        Ok(link_port)
    }

    fn new(interface: &NetworkInterface, by: LinkDevice, port: Option<u16>) -> io::Result<Self> {
        if interface.hardware.is_none() {
            let text = format!("`{}` is no Ethernet", interface.name);
            return Err(io::Error::new(ErrorKind::Unsupported, text));
        }
        let (tag, claim) = claim(interface.number, port)?;
        let queue = match by {
            LinkDevice::Xdp { zero_copy } => take_queue(interface, tag, zero_copy),
            LinkDevice::Packet => Err("AF_PACKET was asked for".to_owned()),
            LinkDevice::PacketByDefault => {
                Err("AF_XDP only where `eth:` or a device is asked for".to_owned())
            }
        };
        let holds = queue.is_ok().then(|| hold(interface).ok()).flatten();
        let slots = vec![false; XDP_SOCKETS_MAX as usize].into_boxed_slice();
        Ok(Self {
            interface: interface.clone(),
            by,
            tag,
            _claim: claim,
            slots: Mutex::new(slots),
            queue: queue.map(Arc::new),
            holds,
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
        // Those who have asked have their answer.
        while self.holds.as_ref().is_some_and(|holds| holds.accept().is_ok()) {}
        let mut slots = self.slots.lock();
        let free = slots.iter().position(|taken| !taken).ok_or(ErrorKind::QuotaExceeded)?;
        slots[free] = true;
        Ok([self.tag, free as u8])
    }

    pub(super) fn give_back(&self, endpoint: [u8; 2]) {
        self.slots.lock()[usize::from(endpoint[1])] = false;
    }
}

/// A tag that no other process in this network namespace has at the interface.
///
/// A server that is started again takes the one that it had, if it is free: so those who knew the last
/// one reach it, and it can tell them that it runs nothing of theirs.
fn claim(interface: u32, port: Option<u16>) -> io::Result<(u8, UnixDatagram)> {
    let first = match port.map(u16::to_le_bytes) {
        Some([low, high]) => low ^ high,
        None => sys::random::<1>()?[0],
    };
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

/// Takes the queue of an interface, or says why it is not to be had.
fn take_queue(interface: &NetworkInterface, tag: u8, zero_copy: bool) -> Result<XdpQueue, String> {
    let until = Instant::now() + LEAVING;
    loop {
        match XdpQueue::new(interface, tag, zero_copy) {
            // Another thread of this process gives it up just now, or has: the kernel takes its time.
            Err(error)
                if is_taken(&error)
                    && (matches!(holder(interface.number), Some(Holder::This))
                        || has_just_left())
                    && Instant::now() < until =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            done => return done.map_err(|error| explain(interface, &error)),
        }
    }
}

/// When this process gave up a queue last.
static LEFT: PerProcess<Mutex<Option<Instant>>> = PerProcess::new();

/// Whether this process gave up a queue just now.
fn has_just_left() -> bool {
    LEFT.own().lock().is_some_and(|left| left.elapsed() < LEAVING)
}

impl Drop for LinkPort {
    fn drop(&mut self) {
        if self.queue.is_ok() {
            // Before it is closed, and before nobody can ask any more who has it.
            *LEFT.own().lock() = Some(Instant::now());
        }
    }
}

fn is_taken(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EBUSY)
}

/// Why a queue could not be had, in words.
fn explain(interface: &NetworkInterface, error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EBUSY) => {
            let of = format!("queue {QUEUE} of `{}` is", interface.name);
            match holder(interface.number) {
                Some(Holder::This) => format!("{of} being given up by this process"),
                Some(Holder::Process(process)) => format!("{of} {process}'s"),
                Some(Holder::Unknown) => format!("{of} another process's"),
                None => format!("`{}` has a program that is not Peregrine's", interface.name),
            }
        }
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

/// Who has the queue of an interface, as one of us says.
enum Holder {
    This,
    /// Its number and its name.
    Process(String),
    /// Too many have asked, or it has just gone.
    Unknown,
}

/// Lets others know that this process has the queue.
fn hold(interface: &NetworkInterface) -> io::Result<UnixListener> {
    let at = name(&format!("{}/queue/{QUEUE}", interface.number))?;
    let listener = UnixListener::bind_addr(&at)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Who has the queue, if it is one of us. Asking is to connect, which waits for nobody: the one who is
/// asked need not even look.
fn holder(interface: u32) -> Option<Holder> {
    let at = format!("peregrine/ethernet/{interface}/queue/{QUEUE}");
    let at = SocketAddrUnix::new_abstract_name(at.as_bytes()).ok()?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    match net::connect(&socket, &at) {
        Ok(()) => {}
        Err(Errno::AGAIN) => return Some(Holder::Unknown),
        Err(_) => return None,
    }
    let Ok(whose) = net::sockopt::socket_peercred(&socket) else { return Some(Holder::Unknown) };
    let pid = whose.pid.as_raw_nonzero();
    if pid.get().cast_unsigned() == std::process::id() {
        return Some(Holder::This);
    }
    let command = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(Holder::Process(format!("process {pid} ({})", command.trim())))
}
