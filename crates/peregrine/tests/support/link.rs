//! A network for one test. Two network namespaces are joined by a pair of interfaces, or by a third namespace
//! in the middle.

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::move_into_link_name_space;

use super::{Process, program};

/// The addresses of the two ends. Both are in one /24 network.
pub(crate) const ENDS: [&str; 2] = ["10.213.77.1", "10.213.77.2"];

/// Network namespaces and the connection between them. All of them are removed on drop. The near end has the
/// number 0, the far end has 1, and the middle has 2.
pub(crate) struct Link {
    names: Vec<String>,
    interfaces: [String; 2],
    /// The two interfaces of the middle. The first leads to end 0, and the second leads to end 1.
    middle: [String; 2],
}

std::thread_local! {
    /// The namespace at the far end of the link whose near end this thread has entered.
    static FAR: RefCell<Option<Arc<File>>> = const { RefCell::new(None) };
}

/// Runs `what` on a thread at the far end of the link that the calling thread has [entered](Link::enter).
pub(crate) fn at_far_end<T: Send>(what: impl FnOnce() -> T + Send) -> T {
    let far = FAR.with_borrow(Clone::clone).expect("this thread has entered a link");
    std::thread::scope(|scope| {
        let there = scope.spawn(move || {
            move_into_link_name_space(far.as_fd(), None).expect("the namespace");
            what()
        });
        there.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Runs a test case on a thread at the near end of a link. If there is no link, prints why the case is
/// skipped.
pub(crate) fn at_near_end(link: Result<Link, String>, case: impl FnOnce(&Link) + Send) {
    match link {
        Err(why) => println!("skipped: {why}"),
        Ok(link) => std::thread::scope(|scope| {
            let run = || {
                link.enter();
                case(&link);
            };
            scope.spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }),
    }
}

/// Runs the test function `name` of this program again, in a new network namespace. There, loopback has an
/// MTU of 1,500 bytes, and the environment variable `role` is set. The output of the run must contain `done`.
pub(crate) fn run_in_a_network_like_ethernet(name: &str, role: &str, done: &str) {
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", "ip link set lo up mtu 1500 && exec \"$0\" \"$@\""]);
    command.arg(program()).args([name, "--exact", "--nocapture", "--test-threads=1"]);
    match command.env(role, "1").stdin(Stdio::null()).output() {
        Err(error) => println!("skipped: {error}"),
        Ok(output) => {
            let output_text = [&output.stdout[..], &output.stderr].concat();
            let output_text = String::from_utf8_lossy(&output_text);
            if !output_text.contains("running 1 test") {
                println!("skipped: cannot make a network namespace: {output_text}");
                return;
            }
            assert!(output.status.success() && output_text.contains(done), "{output_text}");
        }
    }
}

fn open(name: &str) -> File {
    File::open(format!("/run/netns/{name}")).expect("a namespace")
}

fn move_into(name: &str) {
    move_into_link_name_space(open(name).as_fd(), None).expect("the namespace");
}

/// Runs `what` on a thread in the namespace of that name.
pub(crate) fn in_namespace<T: Send>(name: &str, what: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let there = scope.spawn(|| {
            move_into(name);
            what()
        });
        there.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn ip(arguments: &str) -> Result<(), String> {
    let done = Command::new("ip").args(arguments.split(' ')).output();
    let done = done.map_err(|error| format!("cannot run `ip`: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&done.stderr).trim()))
}

impl Link {
    /// Makes a link with two ends. The interfaces and the loopbacks of both ends are up.
    ///
    /// # Errors
    /// Fails if root, `ip`, or a kernel with `veth` is missing. The error says what is missing.
    pub(crate) fn new() -> Result<Self, String> {
        let link = Self::named(2)?;
        let ([a, b], [at_a, at_b]) = ([0, 1].map(|end| &link.names[end]), &link.interfaces);
        ip(&format!("link add {at_a} netns {a} type veth peer name {at_b} netns {b}"))?;
        link.up()
    }

    /// Makes a link with two ends that have several queues each. The kernel sends packets through the last
    /// queue of an end, so they arrive at the last queue of the other end.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub(crate) fn with_queues(count: usize) -> Result<Self, String> {
        let link = Self::named(2)?;
        let ([a, b], [at_a, at_b]) = ([0, 1].map(|end| &link.names[end]), &link.interfaces);
        let queues = format!("numtxqueues {count} numrxqueues {count}");
        ip(&format!(
            "link add {at_a} netns {a} {queues} type veth peer name {at_b} netns {b} {queues}"
        ))?;
        for (name, interface) in link.names.iter().zip(&link.interfaces) {
            let last = format!("/sys/class/net/{interface}/queues/tx-{}/xps_cpus", count - 1);
            let mut all = Command::new("ip");
            let echo = format!("echo ffffffff > {last} || echo 3 > {last}");
            let done = all.args(["netns", "exec", name, "sh", "-c", &echo]).status();
            if !done.is_ok_and(|status| status.success()) {
                return Err("cannot choose transmit queues (XPS)".to_owned());
            }
        }
        link.up()
    }

    /// Makes a link whose two ends are joined by a third namespace in the middle. Frames pass from one end to
    /// the other only if a program in the middle forwards them.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub(crate) fn with_middle() -> Result<Self, String> {
        let link = Self::named(3)?;
        let middle = &link.names[2];
        for ((name, end), to) in link.names.iter().zip(&link.interfaces).zip(&link.middle) {
            ip(&format!("link add {end} netns {name} type veth peer name {to} netns {middle}"))?;
            ip(&format!("-n {middle} link set {to} up promisc on"))?;
        }
        link.up()
    }

    /// Makes a link whose two ends are joined by a router in the middle. The router forwards only packets of
    /// at most `mtu` bytes. It reports longer packets to their sender by ICMP.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub(crate) fn routed(mtu: usize) -> Result<Self, String> {
        let link = Self::named(3)?;
        let middle = link.names[2].clone();
        ip(&format!("-n {middle} link set lo up"))?;
        let gateways = ["10.213.77.254", "10.213.77.253"];
        for (end, gateway) in gateways.iter().enumerate() {
            let (name, near, far) = (&link.names[end], &link.interfaces[end], &link.middle[end]);
            ip(&format!("link add {near} netns {name} type veth peer name {far} netns {middle}"))?;
            ip(&format!("-n {name} addr add {}/32 dev {near}", ENDS[end]))?;
            ip(&format!("-n {name} link set lo up"))?;
            ip(&format!("-n {name} link set {near} up"))?;
            ip(&format!("-n {middle} addr add {gateway}/32 dev {far}"))?;
            ip(&format!("-n {middle} link set {far} up"))?;
            ip(&format!("-n {name} route add {gateway} dev {near}"))?;
            ip(&format!("-n {name} route add default via {gateway}"))?;
            ip(&format!("-n {middle} route add {} dev {far} mtu {mtu}", ENDS[end]))?;
        }
        // `/proc/sys/net` belongs to the namespace of the thread that opens it.
        let forwards = link.at(2, || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1"));
        forwards.map_err(|error| format!("cannot enable forwarding: {error}"))?;
        Ok(link)
    }

    /// Configures a [routed](Self::routed) link so that it also forwards IPv6 packets of at most `mtu` bytes.
    /// Returns the IPv6 addresses of both ends.
    ///
    /// # Errors
    /// Fails if the kernel has no IPv6.
    pub(crate) fn route_six(&self, mtu: usize) -> Result<[&'static str; 2], String> {
        const ENDS: [&str; 2] = ["fd00:213:1::1", "fd00:213:2::1"];
        let gateways = ["fd00:213:1::fe", "fd00:213:2::fe"];
        let middle = &self.names[2];
        for (end, gateway) in gateways.iter().enumerate() {
            let (name, near, far) = (&self.names[end], &self.interfaces[end], &self.middle[end]);
            ip(&format!("-n {name} addr add {}/64 dev {near} nodad", ENDS[end]))?;
            ip(&format!("-n {middle} addr add {gateway}/64 dev {far} nodad"))?;
            ip(&format!("-n {name} -6 route add default via {gateway}"))?;
            ip(&format!("-n {middle} -6 route add {}/128 dev {far} mtu {mtu}", ENDS[end]))?;
        }
        let forwards = self.at(2, || std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1"));
        forwards.map_err(|error| format!("cannot enable IPv6 forwarding: {error}"))?;
        Ok(ENDS)
    }

    /// Limits the packets that an end sends to `mtu` bytes, and turns off segmentation offload there.
    pub(crate) fn set_mtu(&self, end: usize, mtu: usize) {
        let (name, interface) = (&self.names[end], &self.interfaces[end]);
        ip(&format!("-n {name} link set {interface} mtu {mtu} gso_max_segs 1"))
            .expect("an interface");
    }

    fn named(count: usize) -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let id = format!("{}{}", NEXT.fetch_add(1, Ordering::Relaxed), std::process::id());
        let interfaces = ["a", "b"].map(|end| format!("pr{end}{id}"));
        let middle = ["a", "b"].map(|end| format!("pm{end}{id}"));
        let mut link = Self { names: Vec::new(), interfaces, middle };
        for end in &["a", "b", "m"][..count] {
            let name = format!("prg-{end}{id}");
            ip(&format!("netns add {name}"))?;
            link.names.push(name);
        }
        Ok(link)
    }

    fn up(self) -> Result<Self, String> {
        for ((name, interface), end) in self.names.iter().zip(&self.interfaces).zip(ENDS) {
            ip(&format!("-n {name} addr add {end}/24 dev {interface}"))?;
            ip(&format!("-n {name} link set lo up"))?;
            ip(&format!("-n {name} link set {interface} up"))?;
        }
        Ok(self)
    }

    /// Runs `what` on a thread in the namespace with the number `which`.
    pub(crate) fn at<T: Send>(&self, which: usize, what: impl FnOnce() -> T + Send) -> T {
        in_namespace(&self.names[which], what)
    }

    /// Returns the names of the namespaces at the two ends.
    pub(crate) fn ends(&self) -> [&str; 2] {
        [&self.names[0], &self.names[1]]
    }

    /// Returns the two interfaces of the middle. The first leads to end 0, and the second leads to end 1.
    pub(crate) fn middle(&self) -> [&str; 2] {
        self.middle.each_ref().map(String::as_str)
    }

    /// Moves the calling thread permanently to the near end. Threads that it starts later are there, too.
    pub(crate) fn enter(&self) {
        FAR.set(Some(Arc::new(open(&self.names[1]))));
        move_into(&self.names[0]);
    }

    /// Returns the interface at an end.
    pub(crate) fn interface(&self, end: usize) -> &str {
        &self.interfaces[end]
    }

    /// Sets the interface of the near end `up` or `down`.
    pub(crate) fn set(&self, how: &str) {
        ip(&format!("-n {} link set {} {how}", self.names[0], self.interfaces[0])).expect("a link");
    }

    /// Sets the MTU of the interface at an end, in bytes. If there is a middle, also sets the MTU of the
    /// middle's interface that leads to this end.
    pub(crate) fn widen(&self, end: usize, bytes: usize) {
        let set = |name: &str, interface: &str| {
            ip(&format!("-n {name} link set {interface} mtu {bytes}")).expect("an interface");
        };
        set(&self.names[end], &self.interfaces[end]);
        if let Some(middle) = self.names.get(2) {
            set(middle, &self.middle[end]);
        }
    }

    /// Replaces an address of an end by another one.
    pub(crate) fn change_address(&self, end: usize, old: &str, new: &str) {
        let (name, interface) = (&self.names[end], &self.interfaces[end]);
        for (what, address) in [("del", old), ("add", new)] {
            let words = format!("-n {name} addr {what} {address}/24 dev {interface}");
            ip(&words).expect("an address");
        }
    }

    /// Adds an address to an end. `address` contains the length of the network's prefix, such as `/24`.
    pub(crate) fn add_address(&self, end: usize, address: &str) {
        let (name, interface) = (&self.names[end], &self.interfaces[end]);
        ip(&format!("-n {name} addr add {address} dev {interface}")).expect("an address");
    }

    /// Does the same as [`Process::launch`], but at one of the ends.
    pub(crate) fn launch(&self, end: usize, name: &str, role: &str, directory: &Path) -> Process {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[end]]).arg(program());
        Process::launch_by(command, name, role, directory)
    }

    /// Does the same as [`launch`](Self::launch), but the child sees the file `hosts` in place of
    /// `/etc/hosts`.
    pub(crate) fn with_hosts(
        &self,
        end: usize,
        name: &str,
        role: &str,
        hosts: &Path,
        directory: &Path,
    ) -> Process {
        let mut command = Command::new("ip");
        // `ip netns exec` gives the child a private mount namespace.
        let mount = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
        command.args(["netns", "exec", &self.names[end], "sh", "-c", mount]);
        command.arg(hosts).arg(program());
        Process::launch_by(command, name, role, directory)
    }

    /// Does the same as [`Process::start`], but at one of the ends.
    pub(crate) fn start(&self, end: usize, name: &str, role: &str, directory: &Path) -> Process {
        let mut process = self.launch(end, name, role, directory);
        process.until("ready");
        process
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}
