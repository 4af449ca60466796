//! Starts real processes for end-to-end tests. A test starts its own program again as a child process. An
//! environment variable gives the child a role, which says what the child does.

// Each test program uses only some of these items.
#![allow(dead_code)]

pub(crate) mod bridge;
pub(crate) mod futures;
pub(crate) mod heap;
pub(crate) mod impairments;
pub(crate) mod link;
pub(crate) mod nat;
pub(crate) mod paths;
pub(crate) mod relay;
pub(crate) mod spoof;
pub(crate) mod stream;
pub(crate) mod swapped;
pub(crate) mod tap;
pub(crate) mod tasks;
pub(crate) mod wire;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The environment variable that contains the child's role.
const ROLE: &str = "PEREGRINE_TEST_ROLE";

/// A child process, which is killed when this value is dropped.
pub(crate) struct Process {
    child: Child,
    lines: BufReader<ChildStdout>,
}

/// Runs a function in a forked child. Returns the result of the function, or false if the function panicked.
/// The child must not use anything that another thread of its parent may have locked.
pub(crate) fn in_a_child(run: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs only `run`, and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let run = std::panic::AssertUnwindSafe(run);
        let worked = std::panic::catch_unwind(run).unwrap_or(false);
        // SAFETY: `_exit` ends the child at once, and runs no exit handlers or destructors.
        unsafe { libc::_exit(if worked { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: the child is ours, and the kernel writes one status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status == 0
}

/// Returns the role of this process, or `None` in the test itself.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

impl Process {
    /// Starts a child process that runs the test function `name` of this program. Waits until the child
    /// prints the line `ready`. `directory` is the child's runtime directory.
    pub(crate) fn start(name: &str, role: &str, directory: &Path) -> Self {
        let mut process = Self::launch(name, role, directory);
        while process.line() != "ready" {}
        process
    }

    /// Does the same as [`start`](Self::start), but does not wait for the line `ready`.
    pub(crate) fn launch(name: &str, role: &str, directory: &Path) -> Self {
        Self::launch_by(Command::new(program()), name, role, directory)
    }

    /// Does the same as [`launch`](Self::launch), but the child's environment names no runtime directory.
    pub(crate) fn launch_alone(name: &str, role: &str) -> Self {
        let mut command = Command::new(program());
        command.env("XDG_RUNTIME_DIR", "");
        Self::launch_by(command, name, role, Path::new(""))
    }

    /// Does the same as [`launch`](Self::launch), but with a given command, to which it adds the arguments.
    fn launch_by(mut command: Command, name: &str, role: &str, directory: &Path) -> Self {
        let mut child = command
            .args([name, "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env("PEREGRINE_DIR", directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child process");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, lines }
    }

    /// Reads lines until one begins with `beginning`. Returns the rest of that line.
    pub(crate) fn until(&mut self, beginning: &str) -> String {
        loop {
            if let Some(rest) = self.line().strip_prefix(beginning) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Returns the next line that the child prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        let bytes = self.lines.read_line(&mut line).expect("text");
        assert!(bytes > 0, "the child ended before it printed the expected line");
        line.trim().to_owned()
    }

    /// Writes a line to the child's standard input.
    pub(crate) fn write_line(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("a pipe");
        writeln!(input, "{line}").expect("the child reads its input");
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns whether the process holds an XDP program, and therefore owns the first queue of an interface.
    pub(crate) fn holds_xdp_program(&self) -> bool {
        let files = std::fs::read_dir(format!("/proc/{}/fdinfo", self.id())).expect("a process");
        files.flatten().any(|file| {
            let text = std::fs::read_to_string(file.path()).unwrap_or_default();
            text.contains("link_type:\txdp")
        })
    }

    /// Kills the child, and waits until it has ended.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("a child to kill");
        self.child.wait().expect("a child to wait for");
    }

    /// Sends a signal to the child. After SIGSTOP, waits until all threads of the child have stopped.
    pub(crate) fn signal(&self, signal: i32) {
        let pid = i32::try_from(self.child.id()).expect("a process number");
        // SAFETY: no memory is involved; the child is ours and not yet waited for.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
        let begun = Instant::now();
        while signal == libc::SIGSTOP && !is_stopped(self.child.id()) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{pid} does not stop");
            std::thread::yield_now();
        }
    }
}

/// Returns whether all threads of a process are stopped or have ended.
fn is_stopped(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    threads.flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // In `stat`, the state follows the name, which is in parentheses. The name may contain any character.
        let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
        !matches!(state, Some('R' | 'S' | 'D'))
    })
}

fn program() -> PathBuf {
    std::env::current_exe().expect("the path of this program")
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the number of open descriptors of a process that belongs to this user.
pub(crate) fn descriptors(pid: u32) -> usize {
    let entries =
        std::fs::read_dir(format!("/proc/{pid}/fd")).expect("the process is of this user");
    // If a process lists its own directory, the listing opens one more descriptor.
    entries.count() - usize::from(pid == std::process::id())
}

/// Returns the number of descriptors of each process in `of`. While it counts, this process has one
/// connection to a server. The answer on that connection proves that the server has seen the end of all
/// connections that were closed before.
pub(crate) fn at_rest<const N: usize>(directory: &Path, name: &str, of: [u32; N]) -> [usize; N] {
    let line = wire::Line::connect(directory, name).expect("a server");
    let (answer, _) = line.ask(&wire::describe());
    assert_eq!(wire::word(&answer, 0), wire::DESCRIPTION);
    of.map(descriptors)
}

/// Waits until `holds` returns true. Another process or thread must make it true.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < limit, "timed out while waiting: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sets a flag, and clears the flag when dropped. Threads that run while the flag is set therefore end even
/// if the test fails.
pub(crate) struct KeepGoing<'a>(&'a AtomicBool);

impl<'a> KeepGoing<'a> {
    pub(crate) fn new(going: &'a AtomicBool) -> Self {
        going.store(true, Ordering::Relaxed);
        Self(going)
    }
}

impl Drop for KeepGoing<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Lets only one test of the process run at a time. Tests need this if they change the environment or count
/// resources of the process.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a runtime directory for all exports and bindings of this process. A test calls this function once,
/// before anything else.
pub(crate) fn own_directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    // SAFETY: no other thread of this process reads the environment yet.
    unsafe { std::env::set_var("PEREGRINE_DIR", directory.path()) };
    directory
}

/// Sets the directory of keys for this process and its children. A test calls this function once, after
/// [`own_directory`].
pub(crate) fn use_keys(directory: &Path) {
    // SAFETY: no other thread of this process reads the environment yet.
    unsafe { std::env::set_var("PEREGRINE_KEYS", directory) };
}

/// Returns the runtime directory that [`own_directory`] has set. In a child process, the parent has set it.
pub(crate) fn directory() -> PathBuf {
    PathBuf::from(std::env::var_os("PEREGRINE_DIR").expect("set by the test"))
}

/// Changes the user of all threads of this process.
pub(crate) fn become_user(user: u32, group: u32, groups: &[u32]) {
    // SAFETY: the kernel reads `groups.len()` numbers. The C library applies the call to all threads.
    assert_eq!(unsafe { libc::setgroups(groups.len(), groups.as_ptr()) }, 0);
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { libc::setresgid(group, group, group) }, 0);
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { libc::setresuid(user, user, user) }, 0);
}

/// Makes a system call fail with ENOSYS, as on a kernel that lacks the call. This applies to the calling
/// thread and to the threads that it starts.
pub(crate) fn without_system_call(number: libc::c_long) {
    let number = u32::try_from(number).expect("a number of a system call");
    filter(&mut [
        // The filter's input begins with the number of the system call.
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, fail_with(libc::ENOSYS)),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]);
}

/// Makes setting a socket option fail with ENOPROTOOPT. This applies to the calling thread and to the threads
/// that it starts.
pub(crate) fn without_socket_option(option: u32) {
    let number = u32::try_from(libc::SYS_setsockopt).expect("a number of a system call");
    // The arguments begin at byte 16. The filter compares the low word of the third argument.
    let third = 16 + 2 * 8 + if cfg!(target_endian = "big") { 4 } else { 0 };
    filter(&mut [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 3, number),
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, third),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, option),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, fail_with(libc::ENOPROTOOPT)),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]);
}

fn instruction(parts: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: u16::try_from(parts).expect("an instruction"), jt, jf, k }
}

const fn fail_with(error: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | error.cast_unsigned()
}

/// Applies a system call filter to the calling thread and to the threads that it starts.
fn filter(instructions: &mut [libc::sock_filter]) {
    let program =
        libc::sock_fprog { len: instructions.len() as u16, filter: instructions.as_mut_ptr() };
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    let filter = libc::c_ulong::from(libc::SECCOMP_MODE_FILTER);
    // SAFETY: the kernel reads the program, which outlives the call.
    let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, filter, &raw const program, 0, 0) };
    assert_eq!(set, 0, "cannot install the filter: {}", std::io::Error::last_os_error());
}

/// Returns how often the calling thread has slept (voluntary context switches).
pub(crate) fn own_sleeps() -> u64 {
    let mut usage = core::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes one `rusage`, and `usage` has its size.
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) }, 0);
    // SAFETY: the kernel has just written all of it, and all zeros is valid too.
    unsafe { usage.assume_init_ref() }.ru_nvcsw.cast_unsigned()
}
