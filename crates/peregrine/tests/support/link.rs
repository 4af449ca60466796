//! Two network namespaces and a pair of interfaces between them, or a third one in the middle: a
//! network of a test's own.

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::move_into_link_name_space;

use super::{Part, program};

/// The addresses of both ends, within a network of 256.
pub(crate) const ENDS: [&str; 2] = ["10.213.77.1", "10.213.77.2"];

/// Namespaces and their connection; gone when this is dropped. The near end is 0, the far end 1, the
/// middle 2.
pub(crate) struct Link {
    names: Vec<String>,
    interfaces: [String; 2],
    /// In the middle, those that lead to the ends.
    middle: [String; 2],
}

std::thread_local! {
    /// The namespace at the other end of the link that a thread is in.
    static FAR: RefCell<Option<Arc<File>>> = const { RefCell::new(None) };
}

/// Does something on a thread at the far end of the link that this one is [in](Link::enter).
pub(crate) fn at_far_end<T: Send>(what: impl FnOnce() -> T + Send) -> T {
    let far = FAR.with_borrow(Clone::clone).expect("a link that was entered");
    std::thread::scope(|scope| {
        let there = scope.spawn(move || {
            move_into_link_name_space(far.as_fd(), None).expect("the namespace");
            what()
        });
        there.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Runs a case on a thread at the near end of a link, or says why it is skipped.
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

/// Runs the test function `name` of this program again, with the variable `part` set, in a network of
/// its own whose loopback takes packets of 1,500 bytes. It must print `done`.
pub(crate) fn run_in_a_network_like_ethernet(name: &str, part: &str, done: &str) {
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", "ip link set lo up mtu 1500 && exec \"$0\" \"$@\""]);
    command.arg(program()).args([name, "--exact", "--nocapture", "--test-threads=1"]);
    match command.env(part, "1").stdin(Stdio::null()).output() {
        Err(error) => println!("skipped: {error}"),
        Ok(output) => {
            let said = [&output.stdout[..], &output.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            if !said.contains("running 1 test") {
                println!("skipped: no network of its own: {said}");
                return;
            }
            assert!(output.status.success() && said.contains(done), "{said}");
        }
    }
}

fn open(name: &str) -> File {
    File::open(format!("/run/netns/{name}")).expect("a namespace")
}

fn move_into(name: &str) {
    move_into_link_name_space(open(name).as_fd(), None).expect("the namespace");
}

/// Does something on a thread in a namespace of that name.
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
    let done = done.map_err(|error| format!("no `ip`: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&done.stderr).trim()))
}

impl Link {
    /// Both ends are up, and so are their loopbacks.
    ///
    /// # Errors
    /// What is missing: it needs root, `ip`, and a kernel with `veth`.
    pub(crate) fn new() -> Result<Self, String> {
        let link = Self::named(2)?;
        let ([a, b], [at_a, at_b]) = ([0, 1].map(|end| &link.names[end]), &link.interfaces);
        ip(&format!("link add {at_a} netns {a} type veth peer name {at_b} netns {b}"))?;
        link.up()
    }

    /// The same with so many queues at each end. What the kernel sends from an end leaves by the last of
    /// them, and arrives by that of the other end.
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
                return Err("no choice of queues (XPS)".to_owned());
            }
        }
        link.up()
    }

    /// The same, where nothing gets from one end to the other unless somebody in the middle passes it
    /// on.
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

    /// The same with a router in the middle, whose way to either end takes packets of so many bytes; it says
    /// so of those that it does not forward.
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
        // `/proc/sys/net` is that of the thread which opens it.
        let forwards = link.at(2, || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1"));
        forwards.map_err(|error| format!("no forwarding: {error}"))?;
        Ok(link)
    }

    /// Has a [routed](Self::routed) link lead packets of IPv6, too, of so many bytes. The addresses of
    /// both ends.
    ///
    /// # Errors
    /// If there is no IPv6.
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
        forwards.map_err(|error| format!("no forwarding of IPv6: {error}"))?;
        Ok(ENDS)
    }

    /// Has an end send packets of so many bytes at most, each for itself.
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

    /// Does something on a thread in one of the namespaces.
    pub(crate) fn at<T: Send>(&self, which: usize, what: impl FnOnce() -> T + Send) -> T {
        in_namespace(&self.names[which], what)
    }

    /// The names of the namespaces at the ends.
    pub(crate) fn ends(&self) -> [&str; 2] {
        [&self.names[0], &self.names[1]]
    }

    /// The interfaces in the middle, by the end to which they lead.
    pub(crate) fn middle(&self) -> [&str; 2] {
        self.middle.each_ref().map(String::as_str)
    }

    /// Puts this thread, and those that it starts, at the near end, for good.
    pub(crate) fn enter(&self) {
        FAR.set(Some(Arc::new(open(&self.names[1]))));
        move_into(&self.names[0]);
    }

    /// The interface at an end.
    pub(crate) fn interface(&self, end: usize) -> &str {
        &self.interfaces[end]
    }

    /// Cuts the connection (`down`), or joins it again (`up`).
    pub(crate) fn set(&self, how: &str) {
        ip(&format!("-n {} link set {} {how}", self.names[0], self.interfaces[0])).expect("a link");
    }

    /// Lets the interfaces at an end, and that in the middle which leads there, take packets of so many bytes.
    pub(crate) fn widen(&self, end: usize, bytes: usize) {
        let set = |name: &str, interface: &str| {
            ip(&format!("-n {name} link set {interface} mtu {bytes}")).expect("an interface");
        };
        set(&self.names[end], &self.interfaces[end]);
        if let Some(middle) = self.names.get(2) {
            set(middle, &self.middle[end]);
        }
    }

    /// Takes an address from an end, and gives it another one.
    pub(crate) fn change_address(&self, end: usize, old: &str, new: &str) {
        let (name, interface) = (&self.names[end], &self.interfaces[end]);
        for (what, address) in [("del", old), ("add", new)] {
            let words = format!("-n {name} addr {what} {address}/24 dev {interface}");
            ip(&words).expect("an address");
        }
    }

    /// Gives an end one more address, with the length of its network.
    pub(crate) fn add_address(&self, end: usize, address: &str) {
        let (name, interface) = (&self.names[end], &self.interfaces[end]);
        ip(&format!("-n {name} addr add {address} dev {interface}")).expect("an address");
    }

    /// As [`Part::launch`], at one of the ends.
    pub(crate) fn launch(&self, end: usize, name: &str, part: &str, directory: &Path) -> Part {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[end]]).arg(program());
        Part::launch_by(command, name, part, directory)
    }

    /// As [`launch`](Self::launch), with a file of its own in the place of `/etc/hosts`.
    pub(crate) fn with_hosts(
        &self,
        end: usize,
        name: &str,
        part: &str,
        hosts: &Path,
        directory: &Path,
    ) -> Part {
        let mut command = Command::new("ip");
        // `ip netns exec` gives it a mount namespace of its own.
        let mount = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
        command.args(["netns", "exec", &self.names[end], "sh", "-c", mount]);
        command.arg(hosts).arg(program());
        Part::launch_by(command, name, part, directory)
    }

    /// As [`Part::start`], at one of the ends.
    pub(crate) fn start(&self, end: usize, name: &str, part: &str, directory: &Path) -> Part {
        let mut part = self.launch(end, name, part, directory);
        part.until("ready");
        part
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}
