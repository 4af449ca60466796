//! Finds the network interface that has a given IP address, and asks the kernel for the properties of the
//! interface.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::net::IpAddr;
use std::ptr;

use super::Address;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkInterface {
    /// The name of the interface.
    pub name: String,
    /// The index of the interface.
    pub number: u32,
    /// The hardware address, if it is an Ethernet interface.
    pub hardware: Option<[u8; 6]>,
    /// The MTU: the largest number of bytes that an Ethernet frame may have after its header.
    pub mtu: usize,
    /// The name of the driver. Empty if the kernel does not report it.
    pub driver: String,
    /// The number of receive queues. 1 if the kernel does not report it.
    pub queues: usize,
}

/// Returns the interface that has the address `address`.
///
/// # Errors
/// `NotFound` if no interface has the address; otherwise the errors of the system calls.
pub fn interface_of(address: IpAddr) -> io::Result<NetworkInterface> {
    let mut list = ptr::null_mut();
    // SAFETY: stores the address of a list, which is freed below.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let (mut at, mut name) = (list, None);
    while !at.is_null() && name.is_none() {
        // SAFETY: an entry of the list, which is valid until the list is freed.
        let entry = unsafe { &*at };
        if ip_of(entry.ifa_addr) == Some(address) {
            // SAFETY: the name is a C string that lives as long as the list.
            let text = unsafe { CStr::from_ptr(entry.ifa_name) };
            name = Some(text.to_owned());
        }
        at = entry.ifa_next;
    }
    // SAFETY: frees the list that was made above. Nothing refers to it any more.
    unsafe { libc::freeifaddrs(list) };
    let name = name.ok_or(io::ErrorKind::NotFound)?;
    let text = name.to_str().map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: reads a C string.
    let number = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if number == 0 {
        return Err(io::Error::last_os_error());
    }
    let Properties { hardware, mtu, driver, queues } = ask(text)?;
    Ok(NetworkInterface { name: text.to_owned(), number, hardware, mtu, driver, queues })
}

fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: every address begins with its family.
    match i32::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family says that this is an IPv4 address.
            let v4 = unsafe { &*address.cast::<libc::sockaddr_in>() };
            Some(IpAddr::from(v4.sin_addr.s_addr.to_ne_bytes()))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that this is an IPv6 address.
            let v6 = unsafe { &*address.cast::<libc::sockaddr_in6>() };
            Some(IpAddr::from(v6.sin6_addr.s6_addr))
        }
        _ => None,
    }
}

/// The answer to the request that `ethtool -i` sends, in the kernel's layout.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

/// The answer to the request that `ethtool -l` sends, in the kernel's layout.
#[repr(C)]
struct Channels {
    command: u32,
    most: [u32; 4],
    receive: u32,
    transmit: u32,
    other: u32,
    combined: u32,
}

/// The properties that the kernel reports: see [`NetworkInterface`].
struct Properties {
    hardware: Option<[u8; 6]>,
    mtu: usize,
    driver: String,
    queues: usize,
}

/// Asks the kernel for the properties of an interface.
fn ask(name: &str) -> io::Result<Properties> {
    const ETHTOOL_GDRVINFO: u32 = 3;
    const ETHTOOL_GCHANNELS: u32 = 0x3c;
    // SAFETY: a request of all zeros is valid.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *to = from.cast_signed() as libc::c_char;
    }
    let socket = super::Datagrams::new(&Address::from(std::net::SocketAddr::from(([0; 4], 0))))?;
    let io = |request: &mut libc::ifreq, what| {
        use std::os::fd::{AsFd, AsRawFd};
        // SAFETY: the kernel reads the name, and writes the answer into the request or the memory that the
        // request points to.
        let done = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), what, ptr::from_mut(request)) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(request.ifr_ifru) }
    };
    let answer = io(&mut request, libc::SIOCGIFHWADDR)?;
    // SAFETY: the kernel has filled this field of the union in answer to `SIOCGIFHWADDR`.
    let hardware = unsafe { answer.ifru_hwaddr };
    let bytes = core::array::from_fn(|i| hardware.sa_data[i] as u8);
    let ethernet = hardware.sa_family == libc::ARPHRD_ETHER;
    let answer = io(&mut request, libc::SIOCGIFMTU)?;
    // SAFETY: the kernel has filled this field of the union in answer to `SIOCGIFMTU`.
    let mtu = unsafe { answer.ifru_mtu };
    let mut info = DriverInfo { command: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
    request.ifr_ifru.ifru_data = ptr::from_mut(&mut info).cast();
    // Not every driver answers this request.
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
    Ok(Properties {
        hardware: ethernet.then_some(bytes),
        mtu: usize::try_from(mtu).unwrap_or(0),
        driver,
        queues: queues as usize,
    })
}
