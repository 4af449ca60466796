//! A virtual link: two network namespaces, connected by a pair of network interfaces, with a server in the
//! far namespace.
//!
//! Raw Ethernet needs such a link, because a client cannot reach a server in its own namespace over raw
//! Ethernet.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::home::Home;
use crate::output::{Failure, OrFail};

/// The IP addresses of the near end and of the far end.
const ENDS: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
const TOOLS: [&str; 3] = ["ip", "nsenter", "unshare"];

/// Two network namespaces. A namespace exists until its process, whose ID is in `holders`, ends.
pub(crate) struct Link {
    holders: [u32; 2],
}

/// Returns why this process cannot create a link. Returns `None` if it can.
pub(crate) fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("creating network namespaces requires root".to_owned());
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let is_there =
        |tool: &&str| std::env::split_paths(&paths).any(|path| path.join(tool).is_file());
    let missing = TOOLS.iter().find(|tool| !is_there(tool))?;
    Some(format!("creating network namespaces requires `{missing}`"))
}

impl Link {
    /// Creates the two namespaces and connects them.
    pub(crate) fn new(home: &Home) -> Result<Self, String> {
        let hold = || {
            let mut command = Command::new("unshare");
            // The shell prints a line when it runs in the new namespace. Then `cat` runs until its standard
            // input is closed.
            command.args(["--net", "sh", "-c", "echo && exec cat"]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            home.hold(command).map_err(|error| format!("`unshare --net`: {error}"))
        };
        let link = Self { holders: [hold()?, hold()?] };
        let [near, far] = link.holders.map(|holder| holder.to_string());
        run(&format!("ip link add near netns {near} type veth peer name far netns {far}"))?;
        for ((holder, interface), address) in [near, far].iter().zip(["near", "far"]).zip(ENDS) {
            let inside = format!("nsenter --net --target {holder} ip");
            run(&format!("{inside} addr add {address}/24 dev {interface}"))?;
            run(&format!("{inside} link set {interface} up"))?;
            run(&format!("{inside} link set lo up"))?;
        }
        Ok(link)
    }

    /// Starts a server in the far namespace. The server exports a directory and listens at a free port, on
    /// the path that `scheme` names, such as `eth:`. Returns the addresses of the server.
    pub(crate) fn serve(
        &self,
        home: &Home,
        (root, name): (&str, &str),
        scheme: &str,
    ) -> Result<Vec<String>, Failure> {
        let far = self.holders[1].to_string();
        let at = format!("{scheme}{}:0", ENDS[1]);
        let (_, ready) = home.spawn_in(
            &["nsenter", "--net", "--target", &far],
            &[
                "serve",
                root,
                "--name",
                name,
                "--listen",
                &at,
                "--beyond-this-machine",
                "--i-trust-this-network",
            ],
        )?;
        let addresses = ready["addresses"].as_array().into_iter().flatten();
        Ok(addresses.filter_map(|one| one.as_str().map(str::to_owned)).collect())
    }

    /// Runs a closure in the near namespace.
    pub(crate) fn near<T: Send>(
        &self,
        act: impl FnOnce() -> Result<T, Failure> + Send,
    ) -> Result<T, Failure> {
        let near = format!("/proc/{}/ns/net", self.holders[0]);
        let there = || {
            let namespace = File::open(&near).or_fail("cannot open a network namespace")?;
            let kind = Some(LinkNameSpaceType::Network);
            let entered = move_into_link_name_space(namespace.as_fd(), kind);
            entered.map_err(io::Error::from).or_fail("cannot enter a network namespace")?;
            act()
        };
        // The closure runs on a separate thread, because a thread that entered the namespace stays there.
        std::thread::scope(|scope| {
            scope.spawn(there).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

fn run(command: &str) -> Result<(), String> {
    let mut words = command.split(' ');
    let done = Command::new(words.next().unwrap_or_default()).args(words).output();
    let done = done.map_err(|error| format!("`{command}`: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!("`{command}`: {}", String::from_utf8_lossy(&done.stderr).trim()))
}
