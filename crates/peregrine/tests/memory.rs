//! Tests failed allocations, and memory that must not be in core dumps.

mod attack;
mod support;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use attack::no_longer_than;
use attack::vault::{Honest, VaultClient, VaultServer, check, serve};
use attack::wire::Session;
use peregrine::{Executed, Insecure, Kind, PathKind, Server};
use support::link::{ENDS, Link, at_near_end};
use support::{Process, role, until};

/// How long a test waits for an event that must happen. The limit allows for busy machines.
const LIMIT: Duration = Duration::from_secs(10);

/// Does the work of a child process that has a role. In the test run itself, this function does nothing.
#[test]
fn child() {
    let Some(role) = role() else { return };
    no_longer_than(Duration::from_secs(50));
    let directory = support::directory();
    let words: Vec<&str> = role.split(' ').collect();
    match words[0] {
        "server" => serve(),
        // Runs a server that also listens at an endpoint.
        "listens" => {
            let server = Server::new().export("vault", VaultServer::new(Honest)).unwrap();
            let running = server
                .listen_beyond_this_machine(words[1], Insecure::ITrustThisNetwork)
                .unwrap()
                .spawn()
                .unwrap();
            println!("\nat {}/vault", running.addresses()[0]);
            running.wait();
        }
        "client" => {
            let vault = VaultClient::bind("vault").unwrap();
            (0..100).for_each(|n| check(&vault, n).expect("a call"));
            println!("\nready");
            std::thread::sleep(Duration::from_secs(40));
        }
        "on-a-full-disk" => on_a_full_disk(&directory.join("full"), words.get(1) == Some(&"late")),
        "confined" => confined(words[1], words[2]),
        other => panic!("unknown role `{other}`"),
    }
}

/// Mounts a small file system that only this process and its children see.
fn mount(at: &Path) -> Result<(), String> {
    // SAFETY: `unshare` uses no memory of this process. Only one thread of this process opens files.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(std::io::Error::last_os_error().to_string());
    }
    let run = |arguments: &[&str]| {
        let status = Command::new("mount").args(arguments).status().map_err(|e| e.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("mount {arguments:?}: {status}")) }
    };
    run(&["--make-rprivate", "/"])?;
    run(&["-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", at.to_str().expect("text")])
}

fn fill(directory: &Path) {
    let mut file = std::fs::File::create(directory.join("filling")).unwrap();
    let full = std::io::copy(&mut std::io::repeat(7), &mut file).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
}

/// Starts a server and calls it while the file system of the runtime directory is full. The file system is
/// filled before the server starts, or after its start if `late` is true.
fn on_a_full_disk(directory: &Path, late: bool) {
    std::fs::create_dir(directory).unwrap();
    if let Err(why) = mount(directory) {
        println!("\nready\nskipped: {why}");
        return;
    }
    if late {
        // The file system has just enough free space left for the sockets and locks of the first server.
        std::fs::write(directory.join("filling"), [7; 60 << 10]).unwrap();
    } else {
        fill(directory);
    }
    let server = Process::start("child", "server", directory);
    if late {
        fill(directory);
    }
    let _client = Process::start("child", "client", directory);
    let mut session = Session::new(directory, "vault", 1).expect("a session");
    assert_eq!(session.ping(0, LIMIT), Some(0));
    // After this pause, the server's threads poll, each on a processor that it has claimed.
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(session.ping(0, LIMIT), Some(0));
    drop(server);
    println!("\nready\nserved");
}

#[test]
fn full_file_system_of_the_runtime_directory_harms_no_server() {
    let directory = tempfile::tempdir().unwrap();
    for when in ["early", "late"] {
        let mut process =
            Process::start("child", &format!("on-a-full-disk {when}"), directory.path());
        let said = process.line();
        if said.starts_with("skipped") {
            println!("{said}");
            return;
        }
        assert_eq!(said, "served", "{when}");
        drop(process);
        std::fs::remove_dir(directory.path().join("full")).unwrap();
    }
}

/// Returns the flags of those mappings of a process whose names contain `what`.
fn flags_of(pid: u32, what: &str) -> Vec<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps")).expect("a child process");
    let mut flags = Vec::new();
    let mut within = false;
    for line in text.lines() {
        let first = line.split(' ').next().unwrap_or_default();
        if let Some(found) = line.strip_prefix("VmFlags:") {
            if within {
                flags.push(found.to_owned());
            }
        } else if !first.ends_with(':') {
            within = line.contains(what);
        }
    }
    flags
}

#[test]
fn shared_memory_stays_out_of_core_dumps() {
    let directory = tempfile::tempdir().unwrap();
    let server = Process::start("child", "server", directory.path());
    let client = Process::start("child", "client", directory.path());
    let expected = [
        (server.id(), "memfd:peregrine"),
        (server.id(), "memfd:counters"),
        (server.id(), ".processors"),
        (client.id(), "memfd:peregrine"),
    ];
    for (pid, what) in expected {
        let found = flags_of(pid, what);
        assert!(!found.is_empty(), "{what} is not mapped");
        for flags in found {
            assert!(flags.split(' ').any(|flag| flag == "dd"), "{what} would be dumped: {flags}");
        }
    }
}

/// Binds to an address: first while the address space is too small for all call frames, and then while it is
/// large enough. Each limit leaves some free address space. Without free space, the standard library could
/// not start a thread, and would end the process.
fn confined(address: &str, path: &str) {
    println!("\nready");
    // The size in bytes of all call frames of a binding. It is larger on the local path: in shared memory,
    // the two halves of a frame (call and reply) each have more space than the largest message needs.
    let frames: u64 = if path == "Local" { 144 << 20 } else { 128 << 20 };
    let used = || {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096
    };
    // Binding starts a thread, which needs space for its signal stack. If there is no space, the standard
    // library ends the process. So the thread is started before the limit is set.
    let vault = VaultClient::bind(address).unwrap();
    assert_eq!(format!("{:?}", vault.binding().path()), path);
    let most = used();
    drop(vault);
    // The test waits until nine tenths of the frames' memory is unmapped. It cannot wait until all other
    // memory is unmapped, too: the C library keeps 64 MiB of address space for each thread that ever
    // allocated.
    until("the frames are unmapped", || used() + frames * 9 / 10 < most);
    let used = used();
    let (mut refused, mut bound) = (0, 0);
    for more in [frames / 6, frames / 3, frames * 2 / 3, 2 << 30] {
        let limit = libc::rlimit { rlim_cur: used + more, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the kernel reads `limit`, which outlives the call.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
        match VaultClient::bind(address) {
            Ok(vault) => {
                check(&vault, more).unwrap();
                bound += 1;
            }
            Err(error) => {
                refused += 1;
                assert_eq!(error.kind(), Kind::Exhausted, "{more} bytes more: {error}");
                assert_eq!(error.executed(), Executed::No);
                let text = error.to_string();
                let here = format!("process {} cannot map", std::process::id());
                assert!(text.contains(&here) && text.contains("RLIMIT_AS"), "{text}");
                assert!(!text.contains("release of Peregrine"), "{text}");
                println!("{more}: {text}");
            }
        }
    }
    println!("\nrefused {refused}\nbound {bound}");
}

/// Checks the output of [`confined`]: some of its binds were refused, and others succeeded.
fn was_told(mut client: Process) {
    let [refused, bound] =
        ["refused ", "bound "].map(|what| client.until(what).parse::<u32>().expect("a number"));
    assert!(refused > 0 && bound > 0, "{refused} binds refused, {bound} bound");
}

#[test]
fn client_without_address_space_gets_an_error_that_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let _server = Process::start("child", "server", directory.path());
    was_told(Process::launch("child", "confined vault Local", directory.path()));
}

/// Checks that a client without enough free address space gets an error when it binds to `endpoint` over
/// `path`. Client and server are on this machine.
fn client_without_address_space_gets_an_error(endpoint: &str, path: PathKind) {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Process::launch("child", &format!("listens {endpoint}"), directory.path());
    let address = server.until("at ");
    was_told(Process::launch("child", &format!("confined {address} {path:?}"), directory.path()));
}

#[test]
fn client_without_address_space_gets_an_error_over_tcp() {
    client_without_address_space_gets_an_error("tcp:127.0.0.1:0", PathKind::Tcp);
}

#[test]
fn client_without_address_space_gets_an_error_over_udp() {
    client_without_address_space_gets_an_error("udp:127.0.0.1:0", PathKind::Udp);
}

#[test]
fn client_without_address_space_gets_an_error_over_raw_ethernet() {
    let directory = tempfile::tempdir().unwrap();
    at_near_end(Link::new(), |link| {
        let role = format!("listens eth:{}:0", ENDS[1]);
        let mut server = link.launch(1, "child", &role, directory.path());
        let address = server.until("at ");
        let path = PathKind::Ethernet;
        let role = format!("confined {address} {path:?}");
        was_told(link.launch(0, "child", &role, directory.path()));
    });
}
