//! Sets up the link between the two processes of a measurement: loopback, or a veth pair between two network
//! namespaces.
//!
//! The namespaces have no names. Each exists as long as a process is in it. The kernel removes the veth pair
//! when the first of the two namespaces ends. So the pair is removed in whatever way a run ends. The whole
//! run is in a private namespace ([`enter`]). So the loopback interface of the run carries no packets of
//! other programs, and no packet filter rules apply to this interface.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use clap::ValueEnum;

/// The name of an environment variable. It is set if the process that measures is in a private namespace.
const OWN: &str = "PEREGRINE_BENCH_NAMESPACE";

/// The link that packets cross.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Link {
    /// Within one network namespace
    Loopback,
    /// Between two namespaces, with an MTU of 1500 bytes
    Veth,
}

impl Link {
    /// Both links.
    pub(crate) const ALL: [Self; 2] = [Self::Loopback, Self::Veth];

    /// Returns the name of the link in every row.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Veth => "veth",
        }
    }

    /// Returns the largest size of a packet in bytes, including the IP header.
    pub(crate) const fn mtu(self) -> usize {
        match self {
            Self::Loopback => 65_536,
            Self::Veth => 1500,
        }
    }

    /// Returns the address at which the far process listens.
    pub(crate) const fn far(self) -> IpAddr {
        IpAddr::V4(match self {
            Self::Loopback => Ipv4Addr::LOCALHOST,
            Self::Veth => Ipv4Addr::new(10, 1, 1, 2),
        })
    }

    /// Returns the address of the near process.
    pub(crate) const fn near(self) -> IpAddr {
        IpAddr::V4(match self {
            Self::Loopback => Ipv4Addr::LOCALHOST,
            Self::Veth => Ipv4Addr::new(10, 1, 1, 1),
        })
    }

    /// Returns why this link cannot be set up here, or `None` if it can.
    pub(crate) fn missing(self) -> Option<&'static str> {
        let lacks = self == Self::Veth && std::env::var_os(OWN).is_none();
        lacks.then_some("network namespaces need root, `unshare`, `nsenter` and `ip`")
    }

    /// Returns the command that starts this program as the far process, in the namespace of the far end.
    pub(crate) fn far_command(self) -> io::Result<Command> {
        let program = std::env::current_exe()?;
        Ok(match self {
            Self::Loopback => Command::new(program),
            Self::Veth => unshared(&program),
        })
    }

    /// Returns the command that starts this program once more in the namespace of the far process.
    #[cfg(feature = "peers")]
    pub(crate) fn second_far_command(self, far: u32) -> io::Result<Command> {
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

    /// Cuts the link at its far end. Loopback cannot be cut.
    pub(crate) fn cut(self, far: u32) -> io::Result<()> {
        match self {
            Self::Loopback => Err(io::ErrorKind::Unsupported.into()),
            Self::Veth => take_down(far),
        }
    }

    /// Connects the namespace of the far process to the namespace of this process. The far process must have
    /// entered its namespace.
    pub(crate) fn join(self, far: u32) -> io::Result<()> {
        if self == Self::Loopback {
            return Ok(());
        }
        let far = far.to_string();
        // The veth pair of the previous far process may still exist.
        let _ = ip(&["link", "del", "near"]);
        // The loopback of the far namespace is enabled, too, because packets of a process to its own address
        // pass through the loopback.
        ip(&["link", "add", "near", "type", "veth", "peer", "name", "far", "netns", &far])?;
        ip(&["addr", "add", "10.1.1.1/24", "dev", "near"])?;
        ip(&["link", "set", "near", "up"])?;
        let there = ["--net", "--target", &*far, "ip"];
        run("nsenter", &[&there[..], &["addr", "add", "10.1.1.2/24", "dev", "far"]].concat())?;
        run("nsenter", &[&there[..], &["link", "set", "lo", "up"]].concat())?;
        run("nsenter", &[&there[..], &["link", "set", "far", "up"]].concat())
    }
}

/// Disables the far end of a link, which is in the far process's namespace.
fn take_down(far: u32) -> io::Result<()> {
    let far = far.to_string();
    run("nsenter", &["--net", "--target", &far, "ip", "link", "set", "far", "down"])
}

/// Returns a command that runs `program` in a new network namespace.
fn unshared(program: &std::path::Path) -> Command {
    let mut command = Command::new("unshare");
    command.arg("--net").arg(program);
    command
}

/// Returns the command that runs this program in a new namespace, or in the current one if this process
/// cannot make a namespace.
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

/// Enables the loopback of a new namespace.
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
    let errors = String::from_utf8_lossy(&done.stderr);
    Err(io::Error::other(format!("{program} {}: {}", words.join(" "), errors.trim())))
}
