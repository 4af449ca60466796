//! Sockets that this process has inherited from the program that started it, such as systemd (socket
//! activation). `LISTEN_FDS` is their number, and the first of them is descriptor 3.
//!
//! A server that would open a socket at an address takes the inherited socket with this address instead. The
//! inherited descriptor stays open, and the server uses a copy. So a later server of the process can take the
//! socket again, and connections that arrive meanwhile wait.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::net::{SocketType, getsockname, sockopt};

use crate::sys::{copy_of_descriptor, keep_from_children, trusted_variable};

/// The number of the first inherited socket.
const FIRST: RawFd = 3;
/// The largest number of inherited sockets.
const SOCKETS_MAX: usize = 64;

/// Which inherited sockets are in use, one bit for each.
static IN_USE: AtomicU64 = AtomicU64::new(0);

/// The use of an inherited socket. When this value is dropped, the socket can be taken again.
#[derive(Debug)]
pub(super) struct Taken(usize);

impl Drop for Taken {
    fn drop(&mut self) {
        // SYNC: inherited, acquired in `take`.
        IN_USE.fetch_and(!(1 << self.0), Ordering::AcqRel);
    }
}

/// Takes the inherited socket of this type and with this address. Returns `None` if there is none, or if a
/// server of this process uses it already. A socket of type `STREAM` must listen.
///
/// # Errors
/// If the environment variables contradict each other or the open descriptors.
pub(super) fn take(kind: SocketType, address: &SocketAddr) -> io::Result<Option<(OwnedFd, Taken)>> {
    for index in 0..names()?.len() {
        let number = FIRST + index as RawFd;
        let Some((socket, at)) = inspect(number, kind)? else { continue };
        if at != *address {
            continue;
        }
        // SYNC: inherited, released in the drop of `Taken`.
        if IN_USE.fetch_or(1 << index, Ordering::AcqRel) & 1 << index == 0 {
            keep_from_children(number);
            return Ok(Some((socket, Taken(index))));
        }
    }
    Ok(None)
}

/// Adds the addresses of inherited sockets to the error of a server that cannot listen at an address. One of
/// these sockets may be why the address is in use.
pub(super) fn explain(error: io::Error, kind: SocketType) -> io::Error {
    if error.kind() != io::ErrorKind::AddrInUse {
        return error;
    }
    let Ok(names) = names() else { return error };
    let described = names.iter().enumerate().filter_map(|(index, name)| {
        let (_, at) = inspect(FIRST + index as RawFd, kind).ok()??;
        Some(match name.as_str() {
            "" => at.to_string(),
            name => format!("{at} ({name})"),
        })
    });
    let described: Vec<String> = described.collect();
    if described.is_empty() {
        return error;
    }
    let text = format!(
        "{error}; this process has inherited sockets at {}, which only a server takes that listens at \
         exactly such an address",
        described.join(", ")
    );
    io::Error::new(io::ErrorKind::AddrInUse, text)
}

/// Returns a copy of an inherited socket and its address, if it is a socket of this type with an address of
/// IP. A socket of type `STREAM` must listen.
fn inspect(number: RawFd, kind: SocketType) -> io::Result<Option<(OwnedFd, SocketAddr)>> {
    let socket = copy_of_descriptor(number).map_err(|error| match error.raw_os_error() {
        Some(libc::EBADF) => {
            invalid(format!("LISTEN_FDS includes descriptor {number}, which is not open"))
        }
        _ => error,
    })?;
    match sockopt::socket_type(&socket) {
        Ok(found) if found == kind => {}
        // Pipes, files and other sockets are for other parts of the program.
        Ok(_) | Err(Errno::NOTSOCK) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    if kind == SocketType::STREAM && !sockopt::socket_acceptconn(&socket)? {
        return Ok(None);
    }
    let address = SocketAddr::try_from(getsockname(&socket)?).ok();
    Ok(address.map(|address| (socket, address)))
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// Returns the names of the inherited sockets. A name is empty if the environment has none.
///
/// # Errors
/// If an environment variable is not as systemd would set it.
fn names() -> io::Result<Vec<String>> {
    let text = |name: &str| {
        let value = trusted_variable(name);
        value.map(|value| value.to_string_lossy().into_owned())
    };
    names_of(
        text("LISTEN_PID").as_deref(),
        text("LISTEN_FDS").as_deref(),
        text("LISTEN_FDNAMES").as_deref(),
        std::process::id(),
    )
}

/// As [`names`], for these values of the variables in the process `own`.
fn names_of(
    process: Option<&str>,
    count: Option<&str>,
    names: Option<&str>,
    own: u32,
) -> io::Result<Vec<String>> {
    let (Some(process), Some(count)) = (process, count) else { return Ok(Vec::new()) };
    let Ok(process) = process.parse::<u32>() else {
        return Err(invalid(format!("LISTEN_PID is {process:?}, which is no process ID")));
    };
    if process != own {
        // The sockets are for the parent of this process, which has not removed the variables.
        return Ok(Vec::new());
    }
    let Some(count) = count.parse().ok().filter(|count| *count <= SOCKETS_MAX) else {
        let most = SOCKETS_MAX;
        return Err(invalid(format!("LISTEN_FDS is {count:?}, and not a number up to {most}")));
    };
    let Some(names) = names else { return Ok(vec![String::new(); count]) };
    let names: Vec<String> = match count {
        0 => Vec::new(),
        _ => names.split(':').map(str::to_owned).collect(),
    };
    if names.len() != count {
        let text = format!("LISTEN_FDNAMES has {} names, and LISTEN_FDS is {count}", names.len());
        return Err(invalid(text));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_read_as_systemd_sets_them() {
        let read = |process, count, names| {
            names_of(process, count, names, 7).map_err(|error| error.to_string())
        };
        let none: Result<Vec<String>, String> = Ok(Vec::new());
        assert_eq!(read(None, Some("2"), None), none);
        assert_eq!(read(Some("7"), None, None), none);
        assert_eq!(
            read(Some("8"), Some("many"), None),
            none,
            "the sockets are for another process"
        );
        assert_eq!(read(Some("7"), Some("0"), Some("")), none);
        assert_eq!(read(Some("7"), Some("2"), None).unwrap(), ["", ""]);
        assert_eq!(read(Some("7"), Some("2"), Some("web:")).unwrap(), ["web", ""]);
        for (process, count, names, text) in [
            ("own", "1", None, "LISTEN_PID is \"own\", which is no process ID"),
            ("7", "-1", None, "LISTEN_FDS is \"-1\", and not a number up to 64"),
            ("7", "65", None, "LISTEN_FDS is \"65\", and not a number up to 64"),
            ("7", "2", Some("web"), "LISTEN_FDNAMES has 1 names, and LISTEN_FDS is 2"),
        ] {
            assert_eq!(read(Some(process), Some(count), names), Err(text.to_owned()));
        }
    }

    #[test]
    fn only_a_listening_socket_of_ip_is_taken() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        use std::os::fd::AsRawFd as _;
        let found = |number, kind| inspect(number, kind).map(|found| found.map(|(_, at)| at));
        let number = listener.as_raw_fd();
        assert_eq!(found(number, SocketType::STREAM).unwrap(), Some(at));
        assert_eq!(found(number, SocketType::DGRAM).unwrap(), None);
        let connected = std::net::TcpStream::connect(at).unwrap();
        assert_eq!(found(connected.as_raw_fd(), SocketType::STREAM).unwrap(), None);
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(found(file.as_raw_fd(), SocketType::STREAM).unwrap(), None);
        let local = std::os::unix::net::UnixDatagram::unbound().unwrap();
        assert_eq!(found(local.as_raw_fd(), SocketType::DGRAM).unwrap(), None);
        let error = found(1 << 20, SocketType::STREAM).unwrap_err().to_string();
        assert_eq!(error, "LISTEN_FDS includes descriptor 1048576, which is not open");
    }
}
