//! Counts with ptrace how many system calls client and server together make for one call.
//!
//! A child process is both client and server, and its threads are traced. The child makes two runs with
//! different numbers of calls, and marks the beginning and the end of each run. The difference between the
//! two runs gives the cost of one call.

mod services;
mod support;

use std::io;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};

use peregrine::directory::{Directory, Offer, Offers};
use peregrine::secure::{Identity, Trust, TrustedKey};
use peregrine::{
    Address, BindOptions, CallError, EthernetDevice, ExportOptions, Insecure, Server, Wait,
    interface, sys,
};
use services::{Nothing, Null, NullAsync as _, NullAsyncClient, NullClient, NullServer};
use support::futures::join_all;
use support::link::{ENDS, Link, in_namespace};

const PART: &str = "PEREGRINE_SYSCALLS_PART";
/// The environment variable that names the network namespace at the far end of a link. The child is at the
/// near end.
const FAR: &str = "PEREGRINE_SYSCALLS_FAR";
const CALLS: u64 = 500;
/// In the parts that bind, a bind counts as this number of calls.
const BINDS: u64 = 5;

/// One-way calls. The first call waits, and the other calls wait for the first one.
#[interface]
trait Queue {
    /// Ends when the gate is open.
    #[oneway]
    fn wait(&self) -> peregrine::Result<()>;
    #[oneway]
    fn note(&self, bytes: &[u8; 16]) -> peregrine::Result<()>;
}

/// The gate of [`Queue`]: whether the call that waits has begun, and whether it may end. Client and
/// server are in one process.
static GATE: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];

/// A program of ONC RPC and Courier.
#[interface(onc(program = 0x2000_0001, version = 1), courier(program = 0x2000_0001, version = 1))]
trait Program {
    #[onc(1)]
    #[courier(1)]
    fn nothing(&self) -> peregrine::Result<()>;
}

/// Starts a server of ONC RPC or Courier. It answers calls that have no results, with two system calls for
/// each call. Returns the address of the server.
fn serve_program(scheme: &str) -> String {
    use std::io::{Read as _, Write as _};
    /// The reply to a call without results, after the number of the call.
    const REPLY: [u8; 20] = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    if scheme == "onc+udp" {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut call, mut reply) = ([0; 100], [0; 24]);
            reply[4..].copy_from_slice(&REPLY);
            loop {
                let (_, from) = socket.recv_from(&mut call).unwrap();
                reply[..4].copy_from_slice(&call[..4]);
                socket.send_to(&reply, from).unwrap();
            }
        });
        return format!("{scheme}:{address}");
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    if scheme == "courier+tcp" {
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut call = [0; 100];
            // The client first sends its versions, and calls a procedure that the program does not have.
            stream.read_exact(&mut call[..20]).unwrap();
            stream.write_all(&[0x80, 0, 0, 4, 0, 3, 0, 3]).unwrap();
            stream.write_all(&[0x80, 0, 0, 6, 0, 1, call[10], call[11], 0, 2]).unwrap();
            while stream.read(&mut call).is_ok_and(|bytes| bytes == 16) {
                stream.write_all(&[0x80, 0, 0, 4, 0, 2, call[6], call[7]]).unwrap();
            }
        });
        return format!("{scheme}:{address}");
    }
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut call, mut reply) = ([0; 100], [0; 28]);
        reply[..4].copy_from_slice(&[0x80, 0, 0, 24]);
        reply[8..].copy_from_slice(&REPLY);
        // The client sends a small call with one system call, so it arrives as a whole.
        while stream.read(&mut call).is_ok_and(|bytes| bytes == 44) {
            reply[4..8].copy_from_slice(&call[4..8]);
            stream.write_all(&reply).unwrap();
        }
    });
    format!("{scheme}:{address}")
}

/// Waits until `flag` is set, and clears it. Makes no system call.
fn spin_until(flag: &AtomicBool) {
    while !flag.swap(false, Ordering::SeqCst) {
        std::hint::spin_loop();
    }
}

impl Queue for Nothing {
    fn wait(&self) -> peregrine::Result<()> {
        GATE[0].store(true, Ordering::SeqCst);
        spin_until(&GATE[1]);
        Ok(())
    }
    fn note(&self, _: &[u8; 16]) -> peregrine::Result<()> {
        Ok(())
    }
}

/// Makes one-way calls that share a message.
fn make_queued(client: &QueueClient, calls: u64) {
    client.wait().unwrap();
    spin_until(&GATE[0]);
    (0..calls).for_each(|_| client.note(&[7; 16]).unwrap());
    GATE[1].store(true, Ordering::SeqCst);
    client.flush().unwrap();
}

/// Marks where counting begins and ends. The mark is a system call that nothing else in this program makes.
fn mark() {
    // SAFETY: `getpgrp` takes no arguments.
    unsafe { libc::syscall(libc::SYS_getpgrp) };
}

/// Does the work of the traced process. In the test run itself, this function does nothing.
#[test]
fn child() {
    let Ok(part) = std::env::var(PART) else { return };
    let (wait, processors) = match part.as_str() {
        "spin" | "limited spin" | "udp spin" | "eth spin" | "packet spin" => (Wait::Spin, [0, 1]),
        "futures block" | "block" | "limited block" | "tcp block" | "tls block" | "udp block"
        | "eth block" => (Wait::Block, [0, 1]),
        "futures adaptive" => (Wait::Adaptive, [0, 1]),
        "oneway local" | "oneway tcp" | "oneway udp" => (Wait::Block, [0, 1]),
        _ => (Wait::Block, [0, 0]),
    };
    if let Some(("bind", to)) = part.split_once(' ') {
        return bind_again_and_again(to);
    }
    if let Some((scheme @ ("onc+udp" | "onc+tcp" | "courier+tcp"), _)) = part.split_once(' ') {
        sys::pin_to(0).unwrap();
        let address = serve_program(scheme);
        let options = BindOptions::default().wait(Wait::Block);
        let client = ProgramClient::bind_with(&address, &options).unwrap();
        sys::pin_to(1).unwrap();
        return counted(|calls| (0..calls).for_each(|_| client.nothing().unwrap()));
    }
    let _directory = support::own_directory();
    // The threads of the server run on the same processor as the thread that starts the server.
    sys::pin_to(processors[0]).unwrap();
    let server = Server::new().wait(wait).export("null", NullServer::new(Nothing)).unwrap();
    let server = server.export("queue", QueueServer::new(Nothing)).unwrap();
    let (scheme, way) = part.split_once(' ').unwrap_or_default();
    let device = if scheme == "packet" { EthernetDevice::Packet } else { EthernetDevice::Any };
    let server = server.ethernet_device(device);
    // Client and server have the same key.
    let identity = Identity::generate().unwrap();
    let key = TrustedKey::new("peer", identity.public_key(), "").unwrap();
    let trust = Trust::of_keys([key]).unwrap();
    let running = match std::env::var(FAR) {
        // This process is at the near end of a link, but the threads of the server are at the far end.
        Ok(far) => {
            let at = format!("eth:{}:0", ENDS[1]);
            let server =
                server.listen_beyond_this_machine(&at, Insecure::ITrustThisNetwork).unwrap();
            in_namespace(&far, move || server.spawn().unwrap())
        }
        Err(_) if scheme == "tls" => {
            let security = (identity.clone(), trust.clone());
            server.listen_beyond_this_machine("tcp:127.0.0.1:0", security).unwrap().spawn().unwrap()
        }
        Err(_) => {
            let server = server.listen("tcp:127.0.0.1:0").unwrap();
            server.listen("udp:127.0.0.1:0").unwrap().spawn().unwrap()
        }
    };
    let options = BindOptions::default().wait(wait).ethernet_device(device);
    let options = if scheme == "tls" { options.secure(identity, trust) } else { options };
    let address = match scheme {
        "tcp" | "tls" | "eth" | "packet" => format!("{}/null", running.addresses()[0]),
        "udp" => format!("{}/null", running.addresses()[1]),
        _ => "null".to_owned(),
    };
    let client = NullClient::bind_with(&address, &options).unwrap();
    let queue = match way {
        "tcp" => format!("tcp:queue@{}", running.addresses()[0].place()),
        "udp" => format!("udp:queue@{}", running.addresses()[1].place()),
        _ => "queue".to_owned(),
    };
    let queue = (scheme == "oneway").then(|| QueueClient::bind_with(&queue, &options).unwrap());
    let client = match scheme {
        "limited" => client.with_timeout(std::time::Duration::from_secs(60)),
        _ => client,
    };
    sys::pin_to(processors[1]).unwrap();
    let run = |calls: u64| match scheme {
        "futures" => make_together(&client, calls * TOGETHER / CALLS),
        "oneway" => make_queued(queue.as_ref().unwrap(), calls),
        _ => (0..calls).for_each(|_| client.null().unwrap()),
    };
    counted(run);
}

/// A directory whose knowledge is in the memory of the process.
#[derive(Debug)]
struct Known(Vec<Offer>);

impl Directory for Known {
    fn offers(&self, _: &str) -> Result<Vec<Address>, CallError> {
        Ok(self.0.iter().flat_map(Offer::addresses).cloned().collect())
    }

    fn describe(&self) -> String {
        "the servers that the test knows".to_owned()
    }

    fn look_up(&self, _: &str) -> Result<Offers, CallError> {
        Ok(Offers::of(self.0.clone()))
    }

    fn is_ordered(&self) -> bool {
        false
    }
}

/// Binds to a server by its address, or by a name that a directory knows.
fn bind_again_and_again(to: &str) {
    let _directory = support::own_directory();
    let options = ExportOptions::default().networks_only();
    let server = Server::new().export_with("null", NullServer::new(Nothing), options).unwrap();
    let server = server.listen("tcp:127.0.0.1:0").unwrap().listen("tcp:127.0.0.1:0").unwrap();
    let running = server.spawn().unwrap();
    let addresses: Vec<_> = running
        .addresses()
        .iter()
        .map(|endpoint| format!("tcp:null@{}", endpoint.place()).parse::<Address>().unwrap())
        .collect();
    let numbered = (1..).zip(&addresses).map(|(number, address)| {
        Offer::new(&format!("server{number}"), [address.to_string()]).unwrap()
    });
    let known = Known(numbered.collect());
    let address = if to == "name" { "tcp:null".to_owned() } else { addresses[0].to_string() };
    let options = BindOptions::default().wait(Wait::Block).directory(known);
    counted(|binds| {
        for _ in 0..binds / BINDS {
            NullClient::bind_with(&address, &options).unwrap();
        }
    });
}

/// Makes the two runs that are counted, and exits.
fn counted(run: impl Fn(u64)) {
    run(100);
    for calls in [CALLS, 2 * CALLS] {
        mark();
        run(calls);
        mark();
    }
    // From here on, nothing is counted. An orderly end may take long if a thread polls, so the process exits.
    std::process::exit(0);
}

/// The number of futures that make calls at the same time.
const FUTURES: u64 = 1000;
/// The number of calls of futures in the first run.
const TOGETHER: u64 = 20 * FUTURES;

/// Makes calls from one thread, many of them at a time.
fn make_together(client: &NullClient, calls: u64) {
    let client = &NullAsyncClient::from(client.clone());
    drop(join_all((0..FUTURES).map(|_| async move {
        for _ in 0..calls / FUTURES {
            client.null().await.unwrap();
        }
    })));
}

fn start(part: &str, far: Option<&str>) -> io::Result<Child> {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["child", "--exact", "--test-threads=1"]).env(PART, part);
    command.stdout(std::process::Stdio::null());
    command.envs(far.map(|far| (FAR, far)));
    let trace_me = || {
        // SAFETY: this call requests that the parent traces this process, and accesses no memory.
        match unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: between fork and exec, only one system call is made, and nothing is allocated.
    unsafe { command.pre_exec(trace_me) };
    command.spawn()
}

/// The purpose of a system call.
#[derive(Clone, Copy)]
enum What {
    /// Checks whether a packet or a message has arrived.
    Look,
    /// Yields the processor.
    Yield,
    /// Waits for another thread, or wakes another thread.
    Thread,
    Other,
}

fn what(number: u64) -> What {
    match number as i64 {
        libc::SYS_recvfrom | libc::SYS_recvmsg => What::Look,
        libc::SYS_sched_yield => What::Yield,
        libc::SYS_futex => What::Thread,
        _ => What::Other,
    }
}

/// Counts the system calls of all threads of the child, by purpose, separately for each of the two marked
/// runs.
fn count(part: &str, far: Option<&str>) -> io::Result<[[u64; 4]; 2]> {
    use libc::{PTRACE_O_EXITKILL, PTRACE_O_TRACECLONE, PTRACE_O_TRACESYSGOOD};
    let child = start(part, far)?;
    let pid = i32::try_from(child.id()).expect("a process number");
    let mut status = 0;
    let wait = |pid: i32, status: &mut i32| {
        // SAFETY: `waitpid` waits for a child of this process, and writes its status to `status`.
        unsafe { libc::waitpid(pid, status, libc::__WALL) }
    };
    let keep_going = |pid: i32, signal: i32| {
        // SAFETY: `ptrace` resumes a stopped thread that this process traces.
        unsafe { libc::ptrace(libc::PTRACE_SYSCALL, pid, 0, libc::c_long::from(signal)) };
    };
    if wait(pid, &mut status) != pid || !libc::WIFSTOPPED(status) {
        return Err(io::Error::other("the child cannot be traced here"));
    }
    let options = PTRACE_O_TRACECLONE | PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL;
    // SAFETY: `ptrace` sets options of a stopped child that this process traces.
    unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, libc::c_long::from(options)) };
    keep_going(pid, 0);
    let (mut counts, mut marks) = ([[0u64; 4]; 2], 0usize);
    // Each thread stops at the beginning and at the end of a system call.
    let mut inside = std::collections::HashSet::new();
    loop {
        let thread = wait(-1, &mut status);
        if thread < 0 {
            break;
        }
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            inside.remove(&thread);
            continue;
        }
        let signal = libc::WSTOPSIG(status);
        if signal != libc::SIGTRAP | 0x80 {
            // This is the first stop of a new thread, a clone event, or a signal for the child.
            let own = signal != libc::SIGTRAP && signal != libc::SIGSTOP;
            keep_going(thread, if own { signal } else { 0 });
            continue;
        }
        if inside.insert(thread) {
            let mut registers = core::mem::MaybeUninit::<libc::ptrace_syscall_info>::uninit();
            let size = size_of::<libc::ptrace_syscall_info>();
            // SAFETY: the kernel writes at most `size` bytes, and `registers` has that size.
            let written = unsafe {
                libc::ptrace(
                    libc::PTRACE_GET_SYSCALL_INFO,
                    thread,
                    size,
                    registers.as_mut_ptr().cast::<libc::c_void>(),
                )
            };
            if written < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH) {
                // The child has ended meanwhile.
                continue;
            }
            if written <= 0 {
                return Err(io::Error::other("the kernel does not report system call numbers"));
            }
            // SAFETY: the kernel has filled the part for this kind of stop.
            let stop = unsafe { registers.assume_init_ref() };
            // SAFETY: at an entry stop, the kernel fills the entry part, which begins with the number.
            let number = unsafe { stop.u.entry.nr };
            if number == libc::SYS_getpgrp as u64 {
                marks += 1;
            } else if marks % 2 == 1 {
                counts[marks / 2][what(number) as usize] += 1;
            }
        } else {
            inside.remove(&thread);
        }
        keep_going(thread, 0);
    }
    assert_eq!(marks, 4, "the child did not finish");
    Ok(counts)
}

/// Tracing and a busy machine may add up to half a system call to each call. The reasons are interrupted
/// sleeps that are repeated, timers that are set again because round trips became longer, and retransmitted
/// packets. If each call made one more system call, the count would be higher by one in each attempt.
const SLACK: f64 = 0.5;
const TRIES: usize = 10;

/// Checks that in at least one attempt, `part` makes fewer than `most` + [`SLACK`] system calls per call.
/// `counted` gets the numbers of checks, of yields, of system calls for other threads, and of all other
/// system calls. It returns the number to compare. `far` is the namespace of the server, if the server is in
/// another namespace.
fn at_most(part: &str, far: Option<&str>, most: f64, counted: impl Fn([f64; 4]) -> f64) {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        println!("skipped: needs two processors");
        return;
    }
    let mut seen = Vec::new();
    for _ in 0..TRIES {
        let [once, twice] = match count(part, far) {
            Ok(counts) => counts,
            Err(error) => {
                println!("skipped: {error}");
                return;
            }
        };
        let each = [0, 1, 2, 3].map(|n| (twice[n] as f64 - once[n] as f64) / CALLS as f64);
        let calls = counted(each);
        println!(
            "{part}: {calls:.3} system calls per call (check, yield, thread, other: {each:.3?})"
        );
        if calls < most + SLACK {
            return;
        }
        seen.push(calls);
    }
    panic!(
        "{part}: {seen:.3?} system calls per call in {TRIES} attempts, but at most {most} are needed"
    );
}

#[test]
fn polling_call_makes_no_system_call_and_blocking_call_makes_four() {
    let _alone = support::alone();
    let all = |each: [f64; 4]| each.iter().sum();
    let neither_look_nor_wake = |[.., others]: [f64; 4]| others;
    // The parts run one after the other, because all of them use the same processors.
    at_most("spin", None, 0.0, all);
    at_most("block", None, 4.0, all);
    // To check a deadline, a call reads a clock. On the machine of the test, this must not need a system
    // call.
    at_most("limited spin", None, 0.0, all);
    at_most("limited block", None, 4.0, all);
    at_most("hand over", None, 4.0, all);
    // A call needs two system calls to send, and two to receive.
    at_most("tcp block", None, 4.0, all);
    // Now and then, an encrypted call checks whether the socket has space.
    at_most("tls block", None, 4.0, all);
    at_most("udp block", None, 4.0, all);
    at_most("onc+udp block", None, 4.0, all);
    at_most("onc+tcp block", None, 4.0, all);
    at_most("courier+tcp block", None, 4.0, all);
    // Tracing makes procedures slow. So each call wakes a second thread of the server, which receives packets
    // meanwhile. `tests/counts.rs` checks without tracing that no thread sleeps.
    at_most("udp spin", None, 2.0, neither_look_nor_wake);
}

/// A client that binds by a name makes no system call to find the server, if the directory knows it already.
#[test]
fn name_that_is_known_costs_no_system_call() {
    let _alone = support::alone();
    // Sleeps and wake-ups depend on the scheduler.
    let own = |each: [f64; 4]| (each[0] + each[3]) * BINDS as f64;
    let mut least = f64::INFINITY;
    for _ in 0..3 {
        let Ok([once, twice]) = count("bind address", None) else {
            return println!("skipped: the child cannot be traced here");
        };
        let each = [0, 1, 2, 3].map(|n| (twice[n] as f64 - once[n] as f64) / CALLS as f64);
        least = least.min(own(each));
    }
    assert!(least > 1.0, "a bind makes {least} system calls");
    at_most("bind name", None, least, own);
}

/// Many calls in flight share batches. A batch needs a few system calls, so a single call needs almost none.
#[test]
fn thousand_calls_in_flight_share_their_system_calls() {
    const MOST: f64 = 0.1;
    let _alone = support::alone();
    for part in ["futures adaptive", "futures block"] {
        // `at_most` divides the counts by `CALLS`, but for these parts, the child makes `TOGETHER` calls
        // instead of `CALLS`.
        let each = |each: [f64; 4]| each.iter().sum::<f64>() * CALLS as f64 / TOGETHER as f64;
        let scaled = |counts| (each(counts) - MOST).max(0.0) * 1e6;
        at_most(part, None, 0.0, scaled);
    }
}

/// One-way calls that share a message also share its system calls. So each call needs almost none.
#[test]
fn oneway_calls_share_their_system_calls() {
    // A message over a network has several packets, timers make some system calls, and on a busy machine
    // threads sleep in the middle of a message. A call alone would need four system calls.
    const MOST: f64 = 0.1;
    let _alone = support::alone();
    for part in ["oneway local", "oneway tcp", "oneway udp"] {
        let scaled = |each: [f64; 4]| (each.iter().sum::<f64>() - MOST).max(0.0) * 1e6;
        at_most(part, None, 0.0, scaled);
    }
}

/// A call over raw Ethernet needs one system call in each direction, to send. Both sides find arriving
/// packets in memory, without a system call. Yields and system calls for other threads are not counted,
/// because only slow procedures cause them, and tracing makes procedures slow. Each check that is a system
/// call is counted.
#[test]
fn polling_call_over_raw_ethernet_makes_system_calls_only_to_send() {
    let _alone = support::alone();
    let link = match Link::new() {
        Ok(link) => link,
        Err(why) => return println!("skipped: {why}"),
    };
    let calls = || {
        link.enter();
        let far = Some(link.ends()[1]);
        let looks_and_others = |[looks, _, _, others]: [f64; 4]| looks + others;
        at_most("eth spin", far, 2.0, looks_and_others);
        at_most("packet spin", far, 2.0, looks_and_others);
        // A call needs two system calls to send, and two to sleep.
        at_most("eth block", far, 4.0, |each| each.iter().sum());
    };
    std::thread::scope(|scope| scope.spawn(calls).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}
