//! What this process may: capabilities, limits, and the runtime directory.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use peregrine::directory;
use rustix::fs::{Access, access};
use rustix::process::{Resource, geteuid, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use super::{Finding, Verdict};

/// Bytes that AF_XDP locks for a queue: `crates/peregrine/src/device/ethernet/pool.rs`.
const LOCKED_BYTES: u64 = 8 << 20;

/// All of them.
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
        |what: &str| format!("sudo setcap {what}+ep {program} (and so each program of yours)");
    let has =
        |set| if held.contains(set) { "this process has it" } else { "this process has it not" };
    let raw = held.contains(CapabilitySet::NET_RAW);
    let fast = CapabilitySet::NET_ADMIN | CapabilitySet::BPF;
    let without_fast = if held.contains(fast) { Verdict::Good } else { Verdict::Slow };
    vec![
        Finding::of("CAP_NET_RAW", raw, has(CapabilitySet::NET_RAW))
            .costs(match raw {
                true => "raw Ethernet can be called and served",
                false => "no raw Ethernet: machines of one link are called over UDP, at about twice the time",
            })
            .fix(grant("cap_net_raw,cap_net_admin,cap_bpf")),
        Finding::new("CAP_NET_ADMIN", without_fast, has(CapabilitySet::NET_ADMIN))
            .costs(match without_fast {
                Verdict::Good => "with CAP_BPF: frames are received by AF_XDP",
                _ => "with CAP_BPF it takes AF_XDP; without both raw Ethernet goes by AF_PACKET, \
                      and a frame costs some microseconds more",
            })
            .fix(grant("cap_net_raw,cap_net_admin,cap_bpf")),
        Finding::new("CAP_BPF", without_fast, has(CapabilitySet::BPF))
            .costs("the same: a program of Peregrine's own leads frames to the threads that wait")
            .fix(grant("cap_net_raw,cap_net_admin,cap_bpf")),
        Finding::of(
            "CAP_SYS_PTRACE",
            held.contains(CapabilitySet::SYS_PTRACE),
            has(CapabilitySet::SYS_PTRACE),
        )
        .costs("no call needs it: only looking into servers of other users, by strace and the like")
        .fix("run such tools as root"),
    ]
}

fn locked_memory(exempt: bool) -> Finding {
    let what = "locked memory";
    let limit = getrlimit(Resource::Memlock).current;
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    let found = match (exempt, limit) {
        (true, _) => "no limit for this process (CAP_IPC_LOCK)".to_owned(),
        (_, None) => "no limit".to_owned(),
        (_, Some(bytes)) => format!("{} may be locked", mib(bytes)),
    };
    let verdict = match exempt || limit.is_none_or(|bytes| bytes >= LOCKED_BYTES) {
        true => Verdict::Good,
        false => Verdict::Slow,
    };
    Finding::new(what, verdict, found)
        .costs(format!("AF_XDP locks {} a queue; nothing else locks any", mib(LOCKED_BYTES)))
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
    Finding::new("descriptors", verdict, format!("{soft} at a time, at most {hard}"))
        .costs("a session takes three of each side, however many bindings it has; a calling thread over UDP one")
        .fix(format!("ulimit -n {hard}"))
}

/// Where this process would export.
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
        return Finding::of(what, false, format!("{shown} is not this user's to write"))
            .costs("nothing can be exported there; what others export is found")
            .fix("mkdir -m 700 ~/.peregrine; export PEREGRINE_DIR=~/.peregrine");
    }
    if open {
        return Finding::new(what, Verdict::Slow, format!("{shown}, where others may write, too"))
            .costs("no time; but others may put servers of their own in the place of yours")
            .fix(format!("chmod go-w {shown}"));
    }
    let whose = match about.uid() {
        uid if uid == own => "this user's".to_owned(),
        uid => format!("user {uid}'s"),
    };
    Finding::good(what, format!("{shown}, {whose}, mode {:o}", mode & 0o7777))
        .costs("names are exported there, and looked for there first")
}

/// A directory that the first server makes.
fn future_directory(path: &Path) -> Finding {
    let what = "runtime directory";
    let shown = path.display();
    let there = path.ancestors().skip(1).find(|parent| parent.is_dir());
    let writable = there.is_some_and(|dir| access(dir, Access::WRITE_OK | Access::EXEC_OK).is_ok());
    if writable {
        return Finding::good(what, format!("{shown}, which the first server will make"))
            .costs("names are exported there, and looked for there first");
    }
    Finding::of(what, false, format!("{shown} is not there, and this user cannot make it"))
        .costs("nothing can be exported")
        .fix("mkdir -m 700 ~/.peregrine; export PEREGRINE_DIR=~/.peregrine")
}
