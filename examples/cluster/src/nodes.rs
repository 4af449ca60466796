//! The machines of a cluster: network namespaces on one bridge, members of etcd, and server processes.
//! All of it is removed when the value is dropped.
//!
//! Each machine is a namespace, also the one with the bridge. So nothing changes in the network of the machine
//! that runs this, and several clusters can run at the same time. Processes are ended by their own ids.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::move_into_link_name_space;
use serde_json::Value;
use tempfile::TempDir;

/// The beginning of the names of namespaces. The process id follows.
const PREFIX: &str = "peregrine-cluster-";
/// The number of members of etcd.
pub(crate) const MEMBERS: usize = 3;
/// The port of clients of etcd, and that of its members.
const CLIENT_PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;
/// How long a member of etcd may take to answer.
const ASK_LIMIT: Duration = Duration::from_secs(2);
/// The seconds after which etcd removes a server that has ended without a withdrawal.
const LEASE_S: u32 = 5;
/// The longest line that a process of the cluster may print.
const LINE_MAX: u64 = 1 << 20;

/// A line that a process has printed, or its end.
pub(crate) struct Said {
    /// The process id.
    pub(crate) by: u32,
    /// `None`: the process has closed its standard output.
    pub(crate) line: Option<String>,
}

/// A process of the cluster, which is killed on drop.
pub(crate) struct Process {
    child: Child,
    name: String,
    log: std::path::PathBuf,
}

impl Process {
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// # Errors
    /// If the process has ended.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), String> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let sent = pid.map(|pid| kill_process(pid, signal));
        match sent {
            Some(Ok(())) => Ok(()),
            _ => Err(format!("cannot send {signal:?} to {}: it has ended", self.name)),
        }
    }

    /// Kills the process, and waits until it has ended.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Returns how the process has ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let last: Vec<_> = log.lines().rev().take(5).collect();
        let last: Vec<_> = last.into_iter().rev().collect();
        Some(format!("{} has ended ({status}): {}", self.name, last.join("; ")))
    }

    /// Returns whether the process has ended, and with success.
    pub(crate) fn succeeded(&mut self) -> Option<bool> {
        self.child.try_wait().ok()?.map(|status| status.success())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// The machines, without what runs on them.
pub(crate) struct Nodes {
    id: String,
    /// The namespaces that exist.
    made: Vec<String>,
    files: TempDir,
    lines: Sender<Said>,
    servers: usize,
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for name in &self.made {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

impl Nodes {
    /// Makes the machines for this number of servers, the members of etcd, and clients. Lines of their
    /// processes go to `lines`.
    ///
    /// # Errors
    /// If a program or a permission is missing.
    pub(crate) fn new(servers: usize, lines: Sender<Said>) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("network namespaces need root: run this program by sudo".to_owned());
        }
        for (program, package) in [("etcd", "etcd-server"), ("setpriv", "util-linux")] {
            if Command::new(program).arg("--version").output().is_err() {
                return Err(format!("there is no `{program}`: install it (Debian: {package})"));
            }
        }
        remove_leftovers();
        let files = tempfile::tempdir();
        let files = files.map_err(|error| format!("cannot make a temporary directory: {error}"))?;
        let id = std::process::id().to_string();
        let mut nodes = Self { id, made: Vec::new(), files, lines, servers };
        let hub = nodes.make("hub")?;
        ip(&format!("-n {hub} link add bridge type bridge"))?;
        ip(&format!("-n {hub} link set bridge up"))?;
        ip(&format!("-n {hub} address add 10.77.0.1/16 dev bridge"))?;
        for n in 0..servers {
            nodes.attach(&server_node(n), &server_host(n))?;
        }
        for n in 0..MEMBERS {
            nodes.attach(&format!("etcd{n}"), &member_host(n))?;
        }
        nodes.attach("load", "10.77.3.1")?;
        Ok(nodes)
    }

    fn namespace(&self, node: &str) -> String {
        format!("{PREFIX}{}-{node}", self.id)
    }

    /// Makes a namespace.
    fn make(&mut self, node: &str) -> Result<String, String> {
        let name = self.namespace(node);
        ip(&format!("netns add {name}"))?;
        self.made.push(name.clone());
        ip(&format!("-n {name} link set lo up"))?;
        Ok(name)
    }

    /// Makes a machine that is attached to the bridge.
    fn attach(&mut self, node: &str, host: &str) -> Result<(), String> {
        let (name, hub) = (self.make(node)?, self.namespace("hub"));
        ip(&format!("link add eth0 netns {name} type veth peer name {node} netns {hub}"))?;
        ip(&format!("-n {hub} link set {node} master bridge up"))?;
        ip(&format!("-n {name} address add {host}/16 dev eth0"))?;
        ip(&format!("-n {name} link set eth0 up"))
    }

    /// Takes the cable of a server's machine out, or puts it in again.
    pub(crate) fn set_cable(&self, server: usize, is_in: bool) -> Result<(), String> {
        let how = if is_in { "up" } else { "down" };
        ip(&format!("-n {} link set {} {how}", self.namespace("hub"), server_node(server)))
    }

    /// Returns the text of the directory.
    pub(crate) fn directory(&self) -> String {
        let members: Vec<_> =
            (0..MEMBERS).map(|n| format!("{}:{CLIENT_PORT}", member_host(n))).collect();
        format!("etcd://{}/cluster?lease_s={LEASE_S}", members.join(","))
    }

    /// Starts a program on a machine. The kernel kills it when this thread ends.
    fn start(
        &self,
        node: &str,
        name: &str,
        program: &Path,
        words: &[String],
    ) -> Result<Process, String> {
        let log = self.files.path().join(format!("{name}.log"));
        let failed = |error: std::io::Error| format!("cannot start {name}: {error}");
        let errors = File::options().create(true).append(true).open(&log).map_err(failed)?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "ip", "netns", "exec", &self.namespace(node)]);
        command.arg(program).args(words);
        // Signals of the terminal go to this program alone, which then ends the others.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        for name in ["NOTIFY_SOCKET", "PEREGRINE_DIR", "PEREGRINE_DIRECTORY"] {
            command.env_remove(name);
        }
        let mut child = command.spawn().map_err(failed)?;
        let (out, by, lines) = (child.stdout.take(), child.id(), self.lines.clone());
        let process = Process { child, name: name.to_owned(), log };
        let read = move || {
            let Some(out) = out else { return };
            let mut out = BufReader::new(out);
            loop {
                let mut line = String::new();
                let bytes = out.by_ref().take(LINE_MAX).read_line(&mut line).unwrap_or(0);
                let line = (bytes > 0).then(|| line.trim_end().to_owned());
                let is_end = line.is_none();
                if lines.send(Said { by, line }).is_err() || is_end {
                    return;
                }
            }
        };
        thread::Builder::new().name(name.to_owned()).spawn(read).map_err(failed)?;
        Ok(process)
    }

    /// Starts this program on a machine.
    fn start_own(&self, node: &str, name: &str, words: Vec<String>) -> Result<Process, String> {
        let own = std::env::current_exe();
        let own = own.map_err(|error| format!("cannot find this program: {error}"))?;
        self.start(node, name, &own, &words)
    }

    /// Starts a server at a place, on the machine of that place. `scheme` begins its address.
    pub(crate) fn start_server(&self, place: usize, scheme: &str) -> Result<Process, String> {
        let words = format!(
            "serve --directory {} --place {place} --places {} --listen {scheme}{}:0 --trust-network --format json",
            self.directory(),
            self.servers,
            server_host(place)
        );
        self.start_own(&server_node(place), &format!("server {}", place + 1), split(&words))
    }

    /// Starts the load generator.
    pub(crate) fn start_load(
        &self,
        rate: u32,
        keys: u32,
        interval_ms: u64,
    ) -> Result<Process, String> {
        let words = format!(
            "load --directory {} --places {} --rate {rate} --keys {keys} --interval-ms {interval_ms} --format json",
            self.directory(),
            self.servers
        );
        self.start_own("load", "the load generator", split(&words))
    }

    /// Starts a member of etcd. A member that ran before has its data again.
    pub(crate) fn start_member(&self, n: usize) -> Result<Process, String> {
        let all: Vec<_> =
            (0..MEMBERS).map(|n| format!("m{n}=http://{}:{PEER_PORT}", member_host(n))).collect();
        let (host, data) = (member_host(n), self.files.path().join(format!("etcd{n}")));
        let words = format!(
            "--name m{n} --listen-client-urls http://{host}:{CLIENT_PORT} \
             --advertise-client-urls http://{host}:{CLIENT_PORT} \
             --listen-peer-urls http://{host}:{PEER_PORT} \
             --initial-advertise-peer-urls http://{host}:{PEER_PORT} --initial-cluster {} \
             --initial-cluster-token peregrine-cluster --initial-cluster-state new \
             --heartbeat-interval 100 --election-timeout 1000",
            all.join(",")
        );
        let mut words = split(&words);
        words.extend(["--data-dir".to_owned(), data.display().to_string()]);
        let program = Path::new("etcd");
        self.start(&format!("etcd{n}"), &format!("etcd {}", n + 1), program, &words)
    }

    /// Asks a member of etcd for its state. Returns its id and that of the leader. `None`: it does not
    /// answer, or knows no leader.
    fn member_state(&self, n: usize) -> Option<(String, String)> {
        let namespace = File::open(format!("/run/netns/{}", self.namespace("hub"))).ok()?;
        let ask = move || -> Option<Value> {
            // Only this thread enters the namespace.
            move_into_link_name_space(namespace.as_fd(), None).ok()?;
            let at = format!("{}:{CLIENT_PORT}", member_host(n)).parse().ok()?;
            let mut stream = TcpStream::connect_timeout(&at, ASK_LIMIT).ok()?;
            stream.set_read_timeout(Some(ASK_LIMIT)).ok()?;
            let request = "POST /v3/maintenance/status HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}";
            stream.write_all(request.as_bytes()).ok()?;
            let mut answer = String::new();
            stream.take(LINE_MAX).read_to_string(&mut answer).ok()?;
            let (_, body) = answer.split_once("\r\n\r\n")?;
            serde_json::from_str(body).ok()
        };
        let status = thread::spawn(ask).join().ok()??;
        let own = status["header"]["member_id"].as_str()?.to_owned();
        let leader = status["leader"].as_str().filter(|leader| *leader != "0")?;
        Some((own, leader.to_owned()))
    }

    /// Returns how many members of etcd agree on a leader, and which one that is.
    pub(crate) fn leader(&self) -> (usize, Option<usize>) {
        let states: Vec<_> = (0..MEMBERS).map(|n| self.member_state(n)).collect();
        let leader = states.iter().flatten().next().map(|(_, leader)| leader.clone());
        let agree = states.iter().flatten().filter(|state| Some(&state.1) == leader.as_ref());
        let is_leader = |state: &Option<(String, String)>| {
            state.as_ref().is_some_and(|state| Some(&state.0) == leader.as_ref())
        };
        (agree.count(), states.iter().position(is_leader))
    }
}

fn split(words: &str) -> Vec<String> {
    words.split_whitespace().map(str::to_owned).collect()
}

fn server_node(n: usize) -> String {
    format!("server{n}")
}

fn server_host(n: usize) -> String {
    format!("10.77.1.{}", n + 1)
}

fn member_host(n: usize) -> String {
    format!("10.77.2.{}", n + 1)
}

fn ip(words: &str) -> Result<(), String> {
    let done = Command::new("ip").args(words.split(' ')).stdin(Stdio::null()).output();
    let done = done.map_err(|error| format!("cannot run `ip` (Debian: iproute2): {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!("`ip {words}` failed: {}", String::from_utf8_lossy(&done.stderr).trim()))
}

/// Removes the namespaces of runs that were killed.
fn remove_leftovers() {
    let Ok(entries) = fs::read_dir("/run/netns") else { return };
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let id = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        let Some(id) = id.filter(|id| id.parse::<u32>().is_ok()) else { continue };
        if !Path::new("/proc").join(id).exists() {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}
