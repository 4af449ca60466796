//! Network interfaces: which one has an address, and what it is like.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::net::IpAddr;
use std::ptr;

use super::Address;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkInterface {
    /// Its name.
    pub name: String,
    /// Its number.
    pub number: u32,
    /// Its hardware address, if it is an Ethernet.
    pub hardware: Option<[u8; 6]>,
    /// Bytes behind the Ethernet header that a frame may have.
    pub mtu: usize,
    /// The name of its driver; empty if the kernel does not tell.
    pub driver: String,
    /// How many queues it receives by; 1 if the kernel does not tell.
    pub queues: usize,
}

/// The interface that has an address of its own.
///
/// # Errors
/// `NotFound` if none has; those of the system calls.
pub fn interface_of(address: IpAddr) -> io::Result<NetworkInterface> {
    let mut list = ptr::null_mut();
    // SAFETY: writes the start of a list, which is given back below.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let (mut at, mut name) = (list, None);
    while !at.is_null() && name.is_none() {
        // SAFETY: an entry of the list, which lives until it is given back.
        let entry = unsafe { &*at };
        if ip_of(entry.ifa_addr) == Some(address) {
            // SAFETY: names are C strings that live as long as the list.
            let text = unsafe { CStr::from_ptr(entry.ifa_name) };
            name = Some(text.to_owned());
        }
        at = entry.ifa_next;
    }
    // SAFETY: the list that was made above; nothing refers to it any more.
    unsafe { libc::freeifaddrs(list) };
    let name = name.ok_or(io::ErrorKind::NotFound)?;
    let text = name.to_str().map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: reads a C string.
    let number = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if number == 0 {
        return Err(io::Error::last_os_error());
    }
    let Asked { hardware, mtu, driver, queues } = ask(text)?;
    Ok(NetworkInterface { name: text.to_owned(), number, hardware, mtu, driver, queues })
}

fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: every address begins with its family.
    match i32::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family says so.
            let v4 = unsafe { &*address.cast::<libc::sockaddr_in>() };
            Some(IpAddr::from(v4.sin_addr.s_addr.to_ne_bytes()))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says so.
            let v6 = unsafe { &*address.cast::<libc::sockaddr_in6>() };
            Some(IpAddr::from(v6.sin6_addr.s6_addr))
        }
        _ => None,
    }
}

/// What `ethtool -i` shows, as the kernel writes it.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

/// What `ethtool -l` shows, as the kernel writes it.
#[repr(C)]
struct Channels {
    command: u32,
    most: [u32; 4],
    receive: u32,
    transmit: u32,
    other: u32,
    combined: u32,
}

/// What an interface says of itself: see [`NetworkInterface`].
struct Asked {
    hardware: Option<[u8; 6]>,
    mtu: usize,
    driver: String,
    queues: usize,
}

/// Asks an interface.
fn ask(name: &str) -> io::Result<Asked> {
    const ETHTOOL_GDRVINFO: u32 = 3;
    const ETHTOOL_GCHANNELS: u32 = 0x3c;
    // SAFETY: all zeros is a request.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *to = from.cast_signed() as libc::c_char;
    }
    let socket = super::Datagrams::new(&Address::from(std::net::SocketAddr::from(([0; 4], 0))))?;
    let io = |request: &mut libc::ifreq, what| {
        use std::os::fd::{AsFd, AsRawFd};
        // SAFETY: reads the name and writes an answer into the request, or to where that points.
        let done = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), what, ptr::from_mut(request)) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(request.ifr_ifru) }
    };
    let answer = io(&mut request, libc::SIOCGIFHWADDR)?;
    // SAFETY: that is what was asked for.
    let hardware = unsafe { answer.ifru_hwaddr };
    let bytes = core::array::from_fn(|i| hardware.sa_data[i] as u8);
    let ethernet = hardware.sa_family == libc::ARPHRD_ETHER;
    let answer = io(&mut request, libc::SIOCGIFMTU)?;
    // SAFETY: that is what was asked for.
    let mtu = unsafe { answer.ifru_mtu };
    let mut info = DriverInfo { command: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
    request.ifr_ifru.ifru_data = ptr::from_mut(&mut info).cast();
    // Not all tell.
    let told = io(&mut request, libc::SIOCETHTOOL).is_ok();
    let driver = CStr::from_bytes_until_nul(&info.driver).unwrap_or_default();
    let driver = if told { driver.to_string_lossy().into_owned() } else { String::new() };
    let mut channels = Channels {
        command: ETHTOOL_GCHANNELS,
        most: [0; 4],
        receive: 0,
        transmit: 0,
        other: 0,
        combined: 0,
    };
    request.ifr_ifru.ifru_data = ptr::from_mut(&mut channels).cast();
    let told = io(&mut request, libc::SIOCETHTOOL).is_ok();
    let queues = if told { channels.receive.saturating_add(channels.combined).max(1) } else { 1 };
    Ok(Asked {
        hardware: ethernet.then_some(bytes),
        mtu: usize::try_from(mtu).unwrap_or(0),
        driver,
        queues: queues as usize,
    })
}
