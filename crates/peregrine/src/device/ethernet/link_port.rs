//! A link port: the state that all sockets of one process at one network interface share.
//!
//! At most one process has the receive queue ([`QUEUE`]) of an interface. The XDP program of the interface
//! directs the frames for that process into the process's AF_XDP sockets, and lets all other frames pass.
//! Other processes receive their frames through `AF_PACKET`.
//!
//! To keep the frames of two processes apart, each process claims a *tag*. The tag is the first byte of all
//! endpoints of the process. A process claims its tag and the queue by binding abstract socket names in the
//! network namespace. The kernel removes these names when the process ends.

use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram, UnixListener};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::pool::MEMORY;
use super::xdp::XdpQueue;
use crate::registry::Registry;
use crate::sync::{Mutex, Rank};
use crate::sys::{self, NetworkInterface, PerProcess, XDP_SOCKETS_MAX};

/// The receive queue that Peregrine uses. Interfaces direct frames without an IP packet to this queue.
pub(super) const QUEUE: u32 = 0;

/// The device through which a process uses an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LinkDevice {
    /// AF_XDP if the queue is free, otherwise AF_PACKET.
    Xdp { zero_copy: bool },
    /// AF_PACKET.
    Packet,
    /// AF_PACKET, because the user chose no device. AF_XDP is not the default, because AF_XDP attaches a
    /// program to the interface, and many drivers then reset the interface. If this process already has the
    /// queue, the socket uses AF_XDP nevertheless.
    PacketByDefault,
}

/// The state that all sockets of this process at one interface share. Several link ports for one interface
/// exist only if sockets of this process requested different devices.
pub(crate) struct LinkPort {
    interface: NetworkInterface,
    by: LinkDevice,
    /// The first byte of this process's endpoints.
    tag: u8,
    _claim: UnixDatagram,
    slots: Mutex<Box<[bool]>>,
    /// The queue, or the reason why this link port does not have the queue.
    queue: Result<Arc<XdpQueue>, String>,
    /// The listener that is bound to the name of the queue. By connecting to the listener, other processes
    /// find out which process has the queue. `None` if this link port does not have the queue, or cannot
    /// listen.
    holds: Option<UnixListener>,
}

fn name(what: &str) -> io::Result<UnixAddress> {
    UnixAddress::from_abstract_name(format!("peregrine/ethernet/{what}"))
}

impl LinkPort {
    /// Returns the link port of this process at an interface. If there is no such link port, creates one.
    /// `port` is the UDP port at which a server listens.
    ///
    /// # Errors
    /// If the interface is not an Ethernet interface, or too many processes use it.
    pub(crate) fn at(
        interface: &NetworkInterface,
        by: LinkDevice,
        port: Option<u16>,
    ) -> io::Result<Arc<Self>> {
        static LINK_PORTS: Registry<(u64, u32), LinkPort> = Registry::new(Rank::LinkPorts);
        // The number of an interface is valid in one network namespace only. The threads of a process may be
        // in several namespaces.
        let namespace = rustix::fs::stat("/proc/thread-self/ns/net").map_or(0, |stat| stat.st_ino);
        let entry = LINK_PORTS.entry((namespace, interface.number));
        let mut link_ports = entry.lock();
        let find = |fits: &dyn Fn(LinkDevice) -> bool| {
            link_ports.iter().filter_map(Weak::upgrade).find(|link_port| fits(link_port.by))
        };
        // A process has one queue at an interface. All requests of the process for AF_XDP share this queue,
        // with or without zero copy.
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
            let text = format!("`{}` is not an Ethernet interface", interface.name);
            return Err(io::Error::new(ErrorKind::Unsupported, text));
        }
        let (tag, claim) = claim(interface.number, port)?;
        let queue = match by {
            LinkDevice::Xdp { zero_copy } => take_queue(interface, tag, zero_copy),
            LinkDevice::Packet => Err("AF_PACKET was asked for".to_owned()),
            LinkDevice::PacketByDefault => {
                let text = "the default; `eth:` or an `EthernetDevice` selects AF_XDP";
                Err(text.to_owned())
            }
        };
        let holds = queue.is_ok().then(|| announce_queue(interface).ok()).flatten();
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

    /// Describes the device of the sockets at this link port.
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

    /// Reserves an unused endpoint of this process, and returns it.
    pub(super) fn endpoint(&self) -> io::Result<[u8; 2]> {
        // Closes the connections of other processes, which connected only to find out which process has the
        // queue.
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

/// Claims a tag that no other process in this network namespace has at the interface.
///
/// `port` only determines which tag is tried first. With its former port, a restarted server thus gets its
/// former tag again, if that tag is still free. Clients of the server's previous run then reach the new run,
/// and the new run reports to them that their handles are not valid. Without a port, the first tag is random.
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
    let text = "256 processes already use the interface";
    Err(io::Error::new(ErrorKind::QuotaExceeded, text))
}

/// How long the kernel may take to release a queue that this process gave up. The release usually takes
/// milliseconds, but it runs on a kernel thread, which a busy machine may delay.
const RELEASE: Duration = Duration::from_secs(2);

/// Takes the queue of an interface. On failure, returns a text that explains why.
fn take_queue(interface: &NetworkInterface, tag: u8, zero_copy: bool) -> Result<XdpQueue, String> {
    let until = Instant::now() + RELEASE;
    loop {
        match XdpQueue::new(interface, tag, zero_copy) {
            Err(error)
                if is_taken(&error) && is_leaving(interface.number) && Instant::now() < until =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            done => return done.map_err(|error| explain(interface, &error)),
        }
    }
}

/// The time at which this process last gave up a queue, or `None` if it never did.
static LEFT: PerProcess<Mutex<Option<Instant>>> = PerProcess::new();

/// Returns whether the queue of an interface will probably be free soon. Another thread of this process may
/// be giving the queue up. Or this process gave up a queue so recently that the kernel may not have released
/// it yet.
fn is_leaving(interface: u32) -> bool {
    match holder(interface) {
        Some(Holder::This) => true,
        Some(_) => false,
        None => LEFT.own().lock().is_some_and(|left| left.elapsed() < RELEASE),
    }
}

impl Drop for LinkPort {
    fn drop(&mut self) {
        if self.queue.is_ok() {
            // The time is noted before the fields are dropped. Dropping `holds` stops this process from
            // listening at the name of the queue, but the kernel may release the queue later. If `take_queue`
            // runs in between, it waits for the queue only because of this time.
            *LEFT.own().lock() = Some(Instant::now());
        }
    }
}

fn is_taken(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EBUSY)
}

/// Explains why the queue is not available.
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

/// The process that has the queue of an interface.
enum Holder {
    This,
    /// Another process, by its number and its name.
    Process(String),
    /// Another process that could not be identified. The backlog of its listener is full, or the process has
    /// just ended.
    Unknown,
}

/// Creates the listener by which other processes find out that this process has the queue.
fn announce_queue(interface: &NetworkInterface) -> io::Result<UnixListener> {
    let at = name(&format!("{}/queue/{QUEUE}", interface.number))?;
    let listener = UnixListener::bind_addr(&at)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Returns the process that has the queue, if that process uses Peregrine. This function connects to
/// the listener of that process without waiting, and reads the peer credentials of the connection.
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
