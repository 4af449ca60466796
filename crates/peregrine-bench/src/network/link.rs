//! What lies between the two processes: loopback, or a veth pair between two network namespaces.
//!
//! The namespaces have no names: each is held by the processes in it and vanishes with them, the
//! pair with the first of both, however a run ends. The whole run is in one of its own
//! ([`enter`]), so that nobody else's packets and rules are on its loopback.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use clap::ValueEnum;

/// Tells the process that measures that it is in a namespace of its own.
const OWN: &str = "PEREGRINE_BENCH_NAMESPACE";

/// What packets cross.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Link {
    /// Within one network namespace
    Loopback,
    /// Between two, Ethernet frames of 1500 bytes
    Veth,
}

impl Link {
    /// Both of them.
    pub(crate) const ALL: [Self; 2] = [Self::Loopback, Self::Veth];

    /// As it stands in every row.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Veth => "veth",
        }
    }

    /// Bytes that a packet may have, IP header included.
    pub(crate) const fn mtu(self) -> usize {
        match self {
            Self::Loopback => 65_536,
            Self::Veth => 1500,
        }
    }

    /// Where the far process listens.
    pub(crate) const fn far(self) -> IpAddr {
        IpAddr::V4(match self {
            Self::Loopback => Ipv4Addr::LOCALHOST,
            Self::Veth => Ipv4Addr::new(10, 1, 1, 2),
        })
    }

    /// Where the near process is.
    pub(crate) const fn near(self) -> IpAddr {
        IpAddr::V4(match self {
            Self::Loopback => Ipv4Addr::LOCALHOST,
            Self::Veth => Ipv4Addr::new(10, 1, 1, 1),
        })
    }

    /// Why there is no such link here, if there is none.
    pub(crate) fn missing(self) -> Option<&'static str> {
        let lacks = self == Self::Veth && std::env::var_os(OWN).is_none();
        lacks.then_some("network namespaces need root, `unshare`, `nsenter` and `ip`")
    }

    /// The command that starts the far process of this program where it belongs.
    pub(crate) fn far_command(self) -> io::Result<Command> {
        let program = std::env::current_exe()?;
        Ok(match self {
            Self::Loopback => Command::new(program),
            Self::Veth => unshared(&program),
        })
    }

    /// The command that starts another process of this program beside the far one.
    #[cfg(feature = "peers")]
    pub(crate) fn beside_command(self, far: u32) -> io::Result<Command> {
        let program = std::env::current_exe()?;
        Ok(match self {
            Self::Loopback => Command::new(program),
            Self::Veth => {
                let mut command = Command::new("nsenter");
                command.args(["--net", "--target", &far.to_string()]).arg(program);
                command
            }
        })
    }

    /// Cuts it at the far end; there is nothing to cut within one namespace.
    pub(crate) fn cut(self, far: u32) -> io::Result<()> {
        match self {
            Self::Loopback => Err(io::ErrorKind::Unsupported.into()),
            Self::Veth => take_down(far),
        }
    }

    /// Joins the far process's namespace to ours, once it is in it.
    pub(crate) fn join(self, far: u32) -> io::Result<()> {
        if self == Self::Loopback {
            return Ok(());
        }
        let far = far.to_string();
        // That of the far process before may not have vanished yet.
        let _ = ip(&["link", "del", "near"]);
        // Its loopback too: who sends to its own address sends there.
        ip(&["link", "add", "near", "type", "veth", "peer", "name", "far", "netns", &far])?;
        ip(&["addr", "add", "10.1.1.1/24", "dev", "near"])?;
        ip(&["link", "set", "near", "up"])?;
        let there = ["--net", "--target", &*far, "ip"];
        run("nsenter", &[&there[..], &["addr", "add", "10.1.1.2/24", "dev", "far"]].concat())?;
        run("nsenter", &[&there[..], &["link", "set", "lo", "up"]].concat())?;
        run("nsenter", &[&there[..], &["link", "set", "far", "up"]].concat())
    }
}

/// Takes the far end of a link down, which is in the far process's namespace.
fn take_down(far: u32) -> io::Result<()> {
    let far = far.to_string();
    run("nsenter", &["--net", "--target", &far, "ip", "link", "set", "far", "down"])
}

/// A command that runs `program` in a network namespace of its own.
fn unshared(program: &std::path::Path) -> Command {
    let mut command = Command::new("unshare");
    command.arg("--net").arg(program);
    command
}

/// The command that runs this program in a namespace of its own, where that is possible.
pub(crate) fn enter() -> io::Result<Command> {
    let program = std::env::current_exe()?;
    let may = rustix::process::geteuid().is_root()
        && ["unshare", "nsenter", "ip"].iter().all(|tool| is_there(tool))
        && run("unshare", &["--net", "true"]).is_ok();
    Ok(if may {
        let mut command = unshared(&program);
        command.env(OWN, "1");
        command
    } else {
        Command::new(program)
    })
}

/// Makes the loopback of a fresh namespace work.
pub(crate) fn raise_loopback() -> io::Result<()> {
    if std::env::var_os(OWN).is_some() { ip(&["link", "set", "lo", "up"]) } else { Ok(()) }
}

fn is_there(tool: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|path| path.join(tool).is_file())
}

pub(crate) fn ip(words: &[&str]) -> io::Result<()> {
    run("ip", words)
}

pub(crate) fn run(program: &str, words: &[&str]) -> io::Result<()> {
    let done = Command::new(program).args(words).output()?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(io::Error::other(format!("{program} {}: {}", words.join(" "), said.trim())))
}
