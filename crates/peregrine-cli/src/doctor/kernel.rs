//! What the kernel can: each is asked for, and given back at once.

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

/// All of them.
pub(super) fn look() -> Vec<Finding> {
    vec![
        release(),
        futex_sets(),
        barriers(),
        sealing(),
        process_descriptors(),
        packets(),
        xdp(),
        trains(),
    ]
}

/// The number of a release, such as 5.4, as it is written in front of it.
fn number(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn release() -> Finding {
    let told = uname();
    let release = told.release().to_string_lossy();
    let new_enough = number(&release).is_some_and(|number| number >= (5, 4));
    Finding::of("Linux", new_enough, release.clone())
        .costs("5.4 or later is needed; 5.16 and later let threads sleep on many calls at once")
        .fix("run a later kernel")
}

fn futex_sets() -> Finding {
    // No set is empty: a kernel that knows them says that this is no valid one.
    let flags = futex::WaitvFlags::empty();
    let said = futex::waitv(&[], flags, None, futex::ClockId::Monotonic);
    let has = said != Err(Errno::NOSYS);
    let verdict = if has { Verdict::Good } else { Verdict::Slow };
    Finding::new("futex_waitv", verdict, if has { "there" } else { "not there" })
        .costs(match has {
            true => "a server's thread sleeps on many callers at once",
            false => "a sleeping thread minds one caller; each other one rings it by a socket",
        })
        .fix("run Linux 5.16 or later")
}

fn barriers() -> Finding {
    let has = membarrier();
    let verdict = if has { Verdict::Good } else { Verdict::Slow };
    Finding::new("membarrier", verdict, if has { "there" } else { "not there" })
        .costs(match has {
            true => "who waits pays for the order of memory, and no call does",
            false => "a server's thread minds one caller at a time",
        })
        .fix("run a kernel with CONFIG_MEMBARRIER, and outside of sandboxes that forbid it")
}

fn sealing() -> Finding {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let sealed = memfd_create("peregrine-doctor", flags)
        .and_then(|file| fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW));
    needed(
        "sealed memory",
        sealed,
        "memory that both sides map cannot be cut away from under the other",
    )
}

fn process_descriptors() -> Finding {
    let opened = pidfd_open(getpid(), PidfdFlags::empty()).map(drop);
    needed(
        "pidfd",
        opened,
        "the death of the other side is noticed at once, without any call to it",
    )
}

/// What the local path cannot do without.
fn needed(what: &'static str, tried: Result<(), Errno>, why: &str) -> Finding {
    match tried {
        Ok(()) => Finding::good(what, "there").costs(why),
        Err(error) => Finding::of(what, false, io::Error::from(error).to_string())
            .costs("no calls through shared memory: only over networks, at more than ten times the time")
            .fix("run Linux 5.4 or later, and outside of sandboxes that forbid it"),
    }
}

fn packets() -> Finding {
    let what = "AF_PACKET";
    match socket(AddressFamily::PACKET, SocketType::RAW, None) {
        Ok(_) => Finding::good(what, "a socket was to be had").costs(
            "raw Ethernet works, also for processes that find the queue of an interface taken",
        ),
        Err(error) => Finding::of(what, false, io::Error::from(error).to_string())
            .costs("no raw Ethernet: machines of one link are called over UDP")
            .fix(fix_of(error)),
    }
}

fn xdp() -> Finding {
    let what = "AF_XDP";
    match socket(AddressFamily::XDP, SocketType::RAW, None) {
        Ok(_) => Finding::good(what, "a socket was to be had")
            .costs("looking for a frame is looking at memory; no system call until one sleeps"),
        Err(error) => Finding::new(what, Verdict::Slow, io::Error::from(error).to_string())
            .costs("raw Ethernet goes by AF_PACKET, and a frame costs some microseconds more")
            .fix(fix_of(error)),
    }
}

fn fix_of(error: Errno) -> &'static str {
    match error {
        Errno::PERM | Errno::ACCESS => "see CAP_NET_RAW above",
        _ => "run a kernel with CONFIG_PACKET and CONFIG_XDP_SOCKETS",
    }
}

/// A train of datagrams is sent by one call, and received by one, between two sockets of ours.
fn trains() -> Finding {
    let what = "trains of datagrams";
    match train() {
        Ok((sent, received)) => {
            let (verdict, found) = match (sent, received) {
                (true, true) => (Verdict::Good, "sent and received as one (UDP GSO and GRO)"),
                (true, false) => (Verdict::Slow, "sent as one, received one by one"),
                _ => (Verdict::Slow, "sent and received one by one"),
            };
            Finding::new(what, verdict, found)
                .costs(match verdict {
                    Verdict::Good => {
                        "large messages over UDP take a system call for some 40 packets"
                    }
                    _ => "large messages over UDP take a system call for each packet",
                })
                .fix("run Linux 5.0 or later")
        }
        Err(error) => Finding::of(what, false, error.to_string())
            .costs("no calls over UDP through the loopback interface")
            .fix("ip link set lo up"),
    }
}

/// Whether four datagrams leave as one, and whether they arrive as one.
fn train() -> io::Result<(bool, bool)> {
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
    fn releases_have_numbers() {
        assert_eq!(number("6.18.44-fc-v657"), Some((6, 18)));
        assert_eq!(number("5.4"), Some((5, 4)));
        assert!(number("5.10.0-8-amd64") > number("5.4.0"));
        assert_eq!(number("plan9"), None);
    }
}
