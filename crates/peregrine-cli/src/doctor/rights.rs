//! Checks the rights of this process: capabilities, limits, and access to the runtime directory.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use peregrine::directory;
use rustix::fs::{Access, access};
use rustix::process::{Resource, geteuid, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use super::{Finding, Verdict};

/// The number of bytes that AF_XDP locks in memory per queue. See
/// `crates/peregrine/src/device/ethernet/pool.rs`.
const LOCKED_BYTES: u64 = 8 << 20;

/// Checks all rights.
pub(super) fn look() -> Vec<Finding> {
    let held = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    let mut all = of_capabilities(held);
    all.push(locked_memory(held.contains(CapabilitySet::IPC_LOCK)));
    all.push(descriptors());
    all.push(runtime_directory());
    all
}

fn of_capabilities(held: CapabilitySet) -> Vec<Finding> {
    let program = std::env::current_exe();
    let program = program.map_or("PROGRAM".to_owned(), |path| path.display().to_string());
    let grant =
        |what: &str| format!("sudo setcap {what}+ep {program}, and the same for your own programs");
    let has = |set| if held.contains(set) { "granted" } else { "not granted" };
    let raw = held.contains(CapabilitySet::NET_RAW);
    let fast = CapabilitySet::NET_ADMIN | CapabilitySet::BPF;
    let without_fast = if held.contains(fast) { Verdict::Good } else { Verdict::Slow };
    vec![
        Finding::of("CAP_NET_RAW", raw, has(CapabilitySet::NET_RAW))
            .costs(match raw {
                true => "raw Ethernet works for clients and servers",
                false => "no raw Ethernet: calls to machines on the same link use UDP, which takes about twice as long",
            })
            .fix(grant("cap_net_raw,cap_net_admin,cap_bpf")),
        Finding::new("CAP_NET_ADMIN", without_fast, has(CapabilitySet::NET_ADMIN))
            .costs(match without_fast {
                Verdict::Good => "with CAP_BPF, frames are received by AF_XDP",
                _ => "without CAP_NET_ADMIN and CAP_BPF, raw Ethernet uses AF_PACKET, and a frame \
                      takes some microseconds more",
            })
            .fix(grant("cap_net_raw,cap_net_admin,cap_bpf")),
        Finding::new("CAP_BPF", without_fast, has(CapabilitySet::BPF))
            .costs("AF_XDP requires it, to load the program that distributes frames")
            .fix(grant("cap_net_raw,cap_net_admin,cap_bpf")),
        Finding::of(
            "CAP_SYS_PTRACE",
            held.contains(CapabilitySet::SYS_PTRACE),
            has(CapabilitySet::SYS_PTRACE),
        )
        .costs("no call needs it; tools such as strace need it for servers of other users")
        .fix("run these tools as root"),
    ]
}

fn locked_memory(exempt: bool) -> Finding {
    let what = "locked memory";
    let limit = getrlimit(Resource::Memlock).current;
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    let found = match (exempt, limit) {
        (true, _) => "no limit for this process (CAP_IPC_LOCK)".to_owned(),
        (_, None) => "no limit".to_owned(),
        (_, Some(bytes)) => format!("limit {}", mib(bytes)),
    };
    let verdict = match exempt || limit.is_none_or(|bytes| bytes >= LOCKED_BYTES) {
        true => Verdict::Good,
        false => Verdict::Slow,
    };
    Finding::new(what, verdict, found)
        .costs(format!("AF_XDP locks {} per queue; other paths lock no memory", mib(LOCKED_BYTES)))
        .fix(format!("ulimit -l {}", LOCKED_BYTES >> 10))
}

fn descriptors() -> Finding {
    let limits = getrlimit(Resource::Nofile);
    let text = |limit: Option<u64>| limit.map_or("no limit".to_owned(), |limit| limit.to_string());
    let [soft, hard] = [limits.current, limits.maximum].map(text);
    let verdict = match limits.current.is_none_or(|limit| limit >= 1024) {
        true => Verdict::Good,
        false => Verdict::Slow,
    };
    Finding::new("descriptors", verdict, format!("soft limit {soft}, hard limit {hard}"))
        .costs("a session takes three on each side, for any number of bindings; over UDP, a calling thread takes one")
        .fix(format!("ulimit -n {hard}"))
}

/// Checks the runtime directory in which a server of this user would publish its exports.
fn runtime_directory() -> Finding {
    let what = "runtime directory";
    let path = directory::search_path().swap_remove(0);
    let shown = path.display().to_string();
    let Ok(about) = fs::metadata(&path) else { return future_directory(&path) };
    let own = geteuid().as_raw();
    let mode = about.mode();
    let open = mode & 0o022 != 0 && mode & 0o1000 == 0;
    let writable = access(&path, Access::WRITE_OK | Access::EXEC_OK).is_ok();
    if !about.is_dir() || !writable {
        return Finding::of(what, false, format!("cannot write to {shown}"))
            .costs("servers cannot export there; clients can still find exports")
            .fix("mkdir -m 700 ~/.peregrine; export PEREGRINE_DIR=~/.peregrine");
    }
    if open {
        return Finding::new(what, Verdict::Slow, format!("{shown}, where other users can write"))
            .costs("no time, but other users can replace your servers with their own")
            .fix(format!("chmod go-w {shown}"));
    }
    let whose = match about.uid() {
        uid if uid == own => "owned by this user".to_owned(),
        uid => format!("owned by user {uid}"),
    };
    Finding::good(what, format!("{shown}, {whose}, mode {:o}", mode & 0o7777))
        .costs("servers export there, and clients search there first")
}

/// Checks a runtime directory that does not exist yet. The first server would create it.
fn future_directory(path: &Path) -> Finding {
    let what = "runtime directory";
    let shown = path.display();
    let there = path.ancestors().skip(1).find(|parent| parent.is_dir());
    let writable = there.is_some_and(|dir| access(dir, Access::WRITE_OK | Access::EXEC_OK).is_ok());
    if writable {
        return Finding::good(what, format!("{shown}, which the first server creates"))
            .costs("servers export there, and clients search there first");
    }
    Finding::of(what, false, format!("cannot create {shown}"))
        .costs("servers cannot export")
        .fix("mkdir -m 700 ~/.peregrine; export PEREGRINE_DIR=~/.peregrine")
}
