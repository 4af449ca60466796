//! Real processes for end-to-end tests: a test runs its own program again, as a child that plays
//! a part, and ends it in whatever way it wants.

// Each test program uses its own part of this.
#![allow(dead_code)]

pub(crate) mod bridge;
pub(crate) mod heap;
pub(crate) mod link;
pub(crate) mod nat;
pub(crate) mod relay;
pub(crate) mod spoof;
pub(crate) mod stream;
pub(crate) mod tap;
pub(crate) mod turned;
pub(crate) mod weather;
pub(crate) mod wire;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The variable that names a child's part.
const PART: &str = "PEREGRINE_TEST_PART";

/// A child process; killed when dropped.
pub(crate) struct Part {
    child: Child,
    lines: BufReader<ChildStdout>,
}

/// The part that this process plays; `None` in the test itself.
pub(crate) fn part() -> Option<String> {
    std::env::var(PART).ok()
}

impl Part {
    /// Runs the test function `name` of this program in a process of its own, which exports and
    /// binds in `directory`, and waits for its first line, `ready`.
    pub(crate) fn start(name: &str, part: &str, directory: &Path) -> Self {
        let mut part = Self::launch(name, part, directory);
        while part.line() != "ready" {}
        part
    }

    /// As [`start`](Self::start), but waits for nothing: it may not even have begun.
    pub(crate) fn launch(name: &str, part: &str, directory: &Path) -> Self {
        Self::launch_by(Command::new(program()), name, part, directory)
    }

    /// As [`launch`](Self::launch), where the environment names no runtime directory.
    pub(crate) fn launch_alone(name: &str, part: &str) -> Self {
        let mut command = Command::new(program());
        command.env("XDG_RUNTIME_DIR", "");
        Self::launch_by(command, name, part, Path::new(""))
    }

    /// As [`launch`](Self::launch), by a command that runs the program when its arguments follow.
    fn launch_by(mut command: Command, name: &str, part: &str, directory: &Path) -> Self {
        let mut child = command
            .args([name, "--exact", "--nocapture", "--test-threads=1"])
            .env(PART, part)
            .env("PEREGRINE_DIR", directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child process");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, lines }
    }

    /// Reads what it prints up to a line that begins so; the rest of that line.
    pub(crate) fn until(&mut self, beginning: &str) -> String {
        loop {
            if let Some(rest) = self.line().strip_prefix(beginning) {
                return rest.trim().to_owned();
            }
        }
    }

    /// The next line that it prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        let bytes = self.lines.read_line(&mut line).expect("text");
        assert!(bytes > 0, "the child ended before it said so");
        line.trim().to_owned()
    }

    /// Writes a line to its standard input.
    pub(crate) fn say(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("a pipe");
        writeln!(input, "{line}").expect("a child that reads");
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it at once, wherever it is.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("a child to kill");
        self.child.wait().expect("a child to wait for");
    }

    /// Halts it, or lets it go on. Once it is said to be halted none of its threads runs any more.
    pub(crate) fn signal(&self, signal: i32) {
        let pid = i32::try_from(self.child.id()).expect("a process number");
        // SAFETY: no memory is involved; the child is ours and not yet waited for.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
        let begun = Instant::now();
        while signal == libc::SIGSTOP && !is_halted(self.child.id()) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{pid} is not halted");
            std::thread::yield_now();
        }
    }
}

/// Whether all threads of a process are halted, or have ended.
fn is_halted(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    threads.flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // Behind the name, which may have anything in it.
        let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
        !matches!(state, Some('R' | 'S' | 'D'))
    })
}

fn program() -> PathBuf {
    std::env::current_exe().expect("our own path")
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How many descriptors a process of this user has open.
pub(crate) fn descriptors(pid: u32) -> usize {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("a process of ours");
    // The directory that is being read is one of our own.
    open.count() - usize::from(pid == std::process::id())
}

/// Descriptors of some processes while this one has a connection to a server and nothing else is
/// under way: when the connection is answered, the server has seen the end of all that were closed
/// before.
pub(crate) fn at_rest<const N: usize>(directory: &Path, name: &str, of: [u32; N]) -> [usize; N] {
    let line = wire::Line::connect(directory, name).expect("a server");
    let (answer, _) = line.ask(&wire::describe());
    assert_eq!(wire::word(&answer, 0), wire::DESCRIPTION);
    of.map(descriptors)
}

/// Waits until something is so that another process or thread brings about.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < limit, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Threads go on for as long as this lives: also a test that fails ends.
pub(crate) struct GoOn<'a>(&'a AtomicBool);

impl<'a> GoOn<'a> {
    pub(crate) fn with(going: &'a AtomicBool) -> Self {
        going.store(true, Ordering::Relaxed);
        Self(going)
    }
}

impl Drop for GoOn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Tests that change the environment, or count what their process has, run one at a time.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A runtime directory of this test's own, for all that this process exports and binds. To be
/// called once, first of all.
pub(crate) fn own_directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    // SAFETY: before any other thread of this process looks at the environment.
    unsafe { std::env::set_var("PEREGRINE_DIR", directory.path()) };
    directory
}

/// The runtime directory that [`own_directory`], or the test that started this child, has set.
pub(crate) fn directory() -> PathBuf {
    PathBuf::from(std::env::var_os("PEREGRINE_DIR").expect("set by the test"))
}

/// All of this process is somebody else from now on.
pub(crate) fn become_user(user: u32, group: u32, groups: &[u32]) {
    // SAFETY: reads as many numbers as it is told there are. The C library does it for all threads.
    assert_eq!(unsafe { libc::setgroups(groups.len(), groups.as_ptr()) }, 0);
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { libc::setresgid(group, group, group) }, 0);
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { libc::setresuid(user, user, user) }, 0);
}

/// This thread and those that it starts are without a system call from now on, as on a kernel that
/// does not have it.
pub(crate) fn without_system_call(number: libc::c_long) {
    let number = u32::try_from(number).expect("a number of a system call");
    filter(&mut [
        // The number is the first word of what is looked at.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, refusal(libc::ENOSYS)),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]);
}

/// The same for an option of sockets.
pub(crate) fn without_socket_option(option: u32) {
    let number = u32::try_from(libc::SYS_setsockopt).expect("a number of a system call");
    // The third argument: the arguments begin at byte 16, and of each the low word is looked at.
    let third = 16 + 2 * 8 + if cfg!(target_endian = "big") { 4 } else { 0 };
    filter(&mut [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 3, number),
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, third),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, option),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, refusal(libc::ENOPROTOOPT)),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]);
}

fn step(parts: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: u16::try_from(parts).expect("an instruction"), jt, jf, k }
}

const fn refusal(error: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | error.cast_unsigned()
}

/// Applies a filter of system calls to this thread and those that it starts.
fn filter(steps: &mut [libc::sock_filter]) {
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: numbers only.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    let filter = libc::c_ulong::from(libc::SECCOMP_MODE_FILTER);
    // SAFETY: reads the program, which is there until it returns.
    let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, filter, &raw const program, 0, 0) };
    assert_eq!(set, 0, "no filter: {}", std::io::Error::last_os_error());
}

/// How often the calling thread has slept.
pub(crate) fn own_sleeps() -> u64 {
    let mut usage = core::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: writes what it has to say about this thread to a place of ours.
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) }, 0);
    // SAFETY: the kernel has just written all of it, and zeros would do.
    unsafe { usage.assume_init_ref() }.ru_nvcsw.cast_unsigned()
}
