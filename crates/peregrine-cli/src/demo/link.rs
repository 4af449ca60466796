//! A link of the demonstration's own: two network namespaces, joined by a pair of interfaces, with a
//! server at the far end. Raw Ethernet needs one, for on this machine nothing is at the other end.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::copy::{self, Copied};
use super::home::Home;
use crate::files::FilesClient;
use crate::output::{During, Failure};

/// Both ends of it.
const ENDS: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
const TOOLS: [&str; 3] = ["ip", "nsenter", "unshare"];

/// Two namespaces that live as long as the processes that hold them.
pub(super) struct Link {
    holders: [u32; 2],
}

/// Why there can be none here.
pub(super) fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("network namespaces of its own take root".to_owned());
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let is_there =
        |tool: &&str| std::env::split_paths(&paths).any(|path| path.join(tool).is_file());
    let missing = TOOLS.iter().find(|tool| !is_there(tool))?;
    Some(format!("network namespaces of its own take `{missing}`"))
}

impl Link {
    /// Makes the namespaces and joins them.
    pub(super) fn new(home: &Home) -> Result<Self, String> {
        let hold = || {
            let mut command = Command::new("unshare");
            // It says when it is in its namespace, and ends with whoever holds its input.
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

    /// Starts a server at the far end and copies a file from it at the near one: what that came to,
    /// from which address, and by which device.
    pub(super) fn copy(
        &self,
        home: &Home,
        (source, name): (&Path, &str),
        target: &Path,
    ) -> Result<(String, String, Copied), Failure> {
        let root = source.parent().and_then(Path::to_str).unwrap_or("/");
        let far = self.holders[1].to_string();
        let at = format!("eth:{}:0", ENDS[1]);
        let (_, said) = home.spawn_in(
            &["nsenter", "--net", "--target", &far],
            &["serve", root, "--name", "demo-link", "--listen", &at, "--beyond-this-machine"],
        )?;
        let address = said["addresses"][0].as_str().unwrap_or_default().to_owned();
        let near = format!("/proc/{}/ns/net", self.holders[0]);
        let fetch = || -> Result<_, Failure> {
            let namespace = File::open(&near).during("opening a network namespace")?;
            let kind = Some(LinkNameSpaceType::Network);
            let entered = move_into_link_name_space(namespace.as_fd(), kind);
            entered.map_err(io::Error::from).during("entering a network namespace")?;
            let client = FilesClient::bind(&address)?;
            let copied = copy::copy(&client, name, source, target)?;
            Ok((client.binding().explain().summary(), copied))
        };
        // A thread of its own, for it stays where it has gone.
        let (how, copied) = std::thread::scope(|scope| {
            scope.spawn(fetch).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        Ok((address, how, copied))
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
