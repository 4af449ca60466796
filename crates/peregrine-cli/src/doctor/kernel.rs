//! Checks features of the kernel. Each check tries to use the feature, and then releases what it acquired.

use std::io;
use std::net::SocketAddr;

use peregrine::sys::{Address, Datagrams, IfFull, Memory, membarrier};
use peregrine::value::Window;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use rustix::system::uname;
use rustix::thread::futex;

use super::{Finding, Verdict};

/// Checks all features.
pub(super) fn look() -> Vec<Finding> {
    vec![
        release(),
        futex_sets(),
        barriers(),
        sealing(),
        process_descriptors(),
        packets(),
        xdp(),
        offload(),
    ]
}

/// Returns the major and the minor version at the start of a kernel release, such as 5 and 4.
fn number(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn release() -> Finding {
    let system = uname();
    let release = system.release().to_string_lossy();
    let new_enough = number(&release).is_some_and(|number| number >= (5, 4));
    Finding::of("Linux", new_enough, release.clone())
        .costs("5.4 or later is required; with 5.16 or later, a thread waits for many callers at a time")
        .fix("run a newer kernel")
}

fn futex_sets() -> Finding {
    // The kernel refuses an empty list of futexes. If it has this system call, the error is not ENOSYS.
    let flags = futex::WaitvFlags::empty();
    let result = futex::waitv(&[], flags, None, futex::ClockId::Monotonic);
    let has = result != Err(Errno::NOSYS);
    let verdict = if has { Verdict::Good } else { Verdict::Slow };
    Finding::new("futex_waitv", verdict, if has { "available" } else { "not available" })
        .costs(match has {
            true => "a server thread waits for many callers at a time",
            false => "a sleeping server thread waits for one caller; the other callers wake it through a socket",
        })
        .fix("run Linux 5.16 or later")
}

fn barriers() -> Finding {
    let has = membarrier();
    let verdict = if has { Verdict::Good } else { Verdict::Slow };
    Finding::new("membarrier", verdict, if has { "available" } else { "not available" })
        .costs(match has {
            true => "memory barriers are paid by waiting threads, not by calls",
            false => "a server thread waits for one caller at a time",
        })
        .fix("use a kernel with CONFIG_MEMBARRIER, and run the program outside of sandboxes that forbid membarrier")
}

fn sealing() -> Finding {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let sealed = memfd_create("peregrine-doctor", flags)
        .and_then(|file| fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW));
    needed("sealed memory", sealed, "neither side can truncate memory that the other side maps")
}

fn process_descriptors() -> Finding {
    let opened = pidfd_open(getpid(), PidfdFlags::empty()).map(drop);
    needed(
        "pidfd",
        opened,
        "the end of the peer process is detected immediately, also without a call",
    )
}

/// Reports a feature of the kernel that the local path requires.
fn needed(what: &'static str, tried: Result<(), Errno>, why: &str) -> Finding {
    match tried {
        Ok(()) => Finding::good(what, "available").costs(why),
        Err(error) => Finding::of(what, false, io::Error::from(error).to_string())
            .costs("no calls through shared memory: network paths take more than ten times as long")
            .fix("use Linux 5.4 or later, and run the program outside of sandboxes that forbid this feature"),
    }
}

fn packets() -> Finding {
    let what = "AF_PACKET";
    match socket(AddressFamily::PACKET, SocketType::RAW, None) {
        Ok(_) => Finding::good(what, "available").costs(
            "raw Ethernet works, even if another process uses the AF_XDP queue of the interface",
        ),
        Err(error) => Finding::of(what, false, io::Error::from(error).to_string())
            .costs("no raw Ethernet: calls to machines on the same link use UDP")
            .fix(fix_of(error)),
    }
}

fn xdp() -> Finding {
    let what = "AF_XDP";
    match socket(AddressFamily::XDP, SocketType::RAW, None) {
        Ok(_) => Finding::good(what, "available").costs(
            "frames are received by polling memory, without a system call until a thread sleeps",
        ),
        Err(error) => Finding::new(what, Verdict::Slow, io::Error::from(error).to_string())
            .costs("raw Ethernet uses AF_PACKET, and a frame takes some microseconds more")
            .fix(fix_of(error)),
    }
}

fn fix_of(error: Errno) -> &'static str {
    match error {
        Errno::PERM | Errno::ACCESS => "see CAP_NET_RAW above",
        _ => "run a kernel with CONFIG_PACKET and CONFIG_XDP_SOCKETS",
    }
}

/// Checks whether one system call sends several datagrams, and whether one system call receives several
/// datagrams.
fn offload() -> Finding {
    let what = "UDP GSO and GRO";
    match send_batch() {
        Ok((sent, received)) => {
            let (verdict, found) = match (sent, received) {
                (true, true) => (Verdict::Good, "available"),
                (true, false) => (Verdict::Slow, "GSO only: datagrams are received one by one"),
                _ => (Verdict::Slow, "not available"),
            };
            Finding::new(what, verdict, found)
                .costs(match verdict {
                    Verdict::Good => {
                        "large messages over UDP take one system call per about 40 packets"
                    }
                    _ => "large messages over UDP take one system call per packet",
                })
                .fix("run Linux 5.0 or later")
        }
        Err(error) => Finding::of(what, false, error.to_string())
            .costs("no calls over UDP through the loopback interface")
            .fix("ip link set lo up"),
    }
}

/// Returns whether one system call sends four datagrams, and whether one system call receives four datagrams.
fn send_batch() -> io::Result<(bool, bool)> {
    const SEGMENT: usize = 1000;
    let any = Address::from(SocketAddr::from(([127, 0, 0, 1], 0)));
    let [to, from] = [Datagrams::new(&any)?, Datagrams::new(&any)?];
    to.bind(&any)?;
    to.limit(std::time::Duration::from_millis(200))?;
    let merges = to.merge(true).is_ok();
    from.connect(&to.local()?)?;
    let bytes = [7; 4 * SEGMENT];
    if from.gather(&[Window::of(&bytes)], None, Some(SEGMENT as u16), IfFull::Wait).is_err() {
        from.send(Window::of(&bytes[..SEGMENT]), None, IfFull::Wait)?;
        return Ok((false, false));
    }
    let mut room = Memory::private(1 << 16)?;
    let arrived = to.scatter(&[room.space_mut()], None, false)?;
    Ok((true, merges && arrived.bytes == bytes.len() && arrived.segment == SEGMENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_number_is_parsed() {
        assert_eq!(number("6.18.44-fc-v657"), Some((6, 18)));
        assert_eq!(number("5.4"), Some((5, 4)));
        assert!(number("5.10.0-8-amd64") > number("5.4.0"));
        assert_eq!(number("plan9"), None);
    }
}
