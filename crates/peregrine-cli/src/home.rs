//! The temporary directory and the child processes of a command.
//!
//! When the command ends, also after Ctrl-C or an error, the processes are stopped and the directory is
//! removed.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::args::{Colour, Demo, Format};
use crate::interrupt::{Interrupt, InterruptOptions};
use crate::output::{Failure, OrFail};

/// How long a child process may take to stop after SIGTERM.
const STOP_LIMIT: Duration = Duration::from_secs(2);

/// A private directory, and child processes that publish their exports in it. Dropping this value stops the
/// processes and removes the directory.
pub(crate) struct Home {
    path: PathBuf,
    contents: Arc<Mutex<Contents>>,
    interrupt: Interrupt,
}

struct Contents {
    path: PathBuf,
    children: Vec<Child>,
}

/// Executes this program again, with a new directory as `$PEREGRINE_DIR`, because the environment of a
/// running process cannot be changed safely.
pub(crate) fn enter(demo: &Demo, format: Format, colour: Colour) -> Result<(), Failure> {
    let home = tempfile::Builder::new().prefix("peregrine-demo-").tempdir();
    let home = home.or_fail("cannot create a temporary directory")?;
    let program = std::env::current_exe().or_fail("cannot find this program")?;
    let mut again = Command::new(program);
    again.arg("demo").arg("--home").arg(home.path());
    if let Some(file) = &demo.file {
        again.arg("--file").arg(file);
    }
    if let Some(bytes) = demo.bytes {
        again.arg("--bytes").arg(bytes.to_string());
    }
    if demo.quick {
        again.arg("--quick");
    }
    again.args(["--format", format.text(), "--color", colour.text()]);
    // `exec` returns only if it fails. In that case, dropping `home` removes the directory.
    Err(again.env("PEREGRINE_DIR", home.path().join("run")).exec())
        .or_fail("cannot execute this program")
}

impl Home {
    /// Takes over the directory that [`enter`] created.
    pub(crate) fn adopt(path: &Path, format: Format) -> Result<Self, Failure> {
        let ours = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"peregrine-demo-"));
        let run = std::env::var_os("PEREGRINE_DIR").is_some_and(|run| path.join("run") == run);
        if !ours || !run {
            return Err(Failure::local("not a directory of a demonstration", "omit --home"));
        }
        Self::of(path.to_owned(), format)
    }

    /// Creates a directory in which child processes publish their exports.
    pub(crate) fn new(format: Format) -> Result<Self, Failure> {
        let home = tempfile::Builder::new().prefix("peregrine-").tempdir();
        Self::of(home.or_fail("cannot create a temporary directory")?.keep(), format)
    }

    fn of(path: PathBuf, format: Format) -> Result<Self, Failure> {
        let contents = Contents { path: path.clone(), children: Vec::new() };
        let contents = Arc::new(Mutex::new(contents));
        let signals = InterruptOptions { format, grace: Duration::ZERO, executed: "maybe" };
        let all = Arc::clone(&contents);
        let last = move || {
            let mut contents = lock(&all);
            contents.end();
            // The lock stays locked until the process exits, so that no other thread can start another child
            // process.
            core::mem::forget(contents);
            "all processes and files of the command are removed".to_owned()
        };
        let interrupt = Interrupt::handle(signals, || {}, last)?;
        Ok(Self { path, contents, interrupt })
    }

    /// Returns the path of a file in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Starts this program as a child process. Returns the process ID of the child, and the JSON object that
    /// the child printed when it was ready.
    pub(crate) fn spawn(&self, arguments: &[&str]) -> Result<(u32, Value), Failure> {
        self.spawn_in(&[], arguments)
    }

    /// Starts this program like [`spawn`](Self::spawn), but lets another program, such as `nsenter`, execute
    /// it.
    pub(crate) fn spawn_in(
        &self,
        by: &[&str],
        arguments: &[&str],
    ) -> Result<(u32, Value), Failure> {
        let program = std::env::current_exe().or_fail("cannot find this program")?;
        let mut command = match by.split_first() {
            None => Command::new(program),
            Some((by, words)) => {
                let mut command = Command::new(by);
                command.args(words).arg(program);
                command
            }
        };
        command.args(arguments).args(["--parent", &std::process::id().to_string()]);
        command.env("PEREGRINE_DIR", self.path.join("run"));
        command.args(["--format", "json"]).stdin(Stdio::null()).stdout(Stdio::piped());
        let (process, output) = {
            let mut contents = lock(&self.contents);
            let mut child = command.spawn().or_fail("cannot start a second process")?;
            let (process, output) = (child.id(), child.stdout.take());
            contents.children.push(child);
            (process, output)
        };
        let mut line = String::new();
        if let Some(output) = output {
            let read = BufReader::new(output).read_line(&mut line);
            read.or_fail("cannot read from the second process")?;
        }
        let ready: Value = serde_json::from_str(&line).unwrap_or_default();
        if ready["ready"] != true {
            let why = ready["error"]["what"].as_str().unwrap_or("it ended");
            let text = format!("cannot start the second process: {why}");
            return Err(Failure::local(text, "see its standard error"));
        }
        Ok((process, ready))
    }

    /// Starts a child process, and waits until the child prints one line to show that it is ready.
    pub(crate) fn hold(&self, mut command: Command) -> io::Result<u32> {
        let (process, output) = {
            let mut contents = lock(&self.contents);
            let mut child = command.spawn()?;
            let (process, output) = (child.id(), child.stdout.take());
            contents.children.push(child);
            (process, output)
        };
        let read = output.map(|output| BufReader::new(output).read_line(&mut String::new()));
        match read.transpose()? {
            Some(1..) => Ok(process),
            _ => Err(io::Error::other("it ended")),
        }
    }

    /// Stops one child and waits until it has ended.
    pub(crate) fn stop(&self, process: u32) {
        let mut contents = lock(&self.contents);
        let found = contents.children.iter().position(|child| child.id() == process);
        if let Some(mut child) = found.map(|found| contents.children.swap_remove(found)) {
            end(core::slice::from_mut(&mut child));
        }
    }

    /// Waits 50 ms for a signal. A failure may be the consequence of Ctrl-C, which sends a signal to all
    /// processes. If a child received the signal first, this process receives it within this time. Then the
    /// signal handler reports the interruption instead of the failure.
    pub(crate) fn settle(&self) {
        std::thread::sleep(Duration::from_millis(50));
        self.interrupt.leave();
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // If a signal handler runs after this line, it finds nothing left to remove.
        lock(&self.contents).end();
        self.interrupt.leave();
    }
}

impl Contents {
    fn end(&mut self) {
        end(&mut self.children);
        self.children.clear();
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Stops children with SIGTERM, and kills those that do not stop in time.
fn end(children: &mut [Child]) {
    for child in &mut *children {
        signal(child.id(), Signal::TERM);
        signal(child.id(), Signal::CONT);
    }
    let until = Instant::now() + STOP_LIMIT;
    for child in children {
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Sends a signal to a child process. The child must not have been waited for: after the wait, its process ID
/// can belong to another process.
pub(crate) fn signal(process: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(process.cast_signed()) {
        let _ = kill_process(pid, signal);
    }
}

fn lock(contents: &Mutex<Contents>) -> MutexGuard<'_, Contents> {
    contents.lock().unwrap_or_else(PoisonError::into_inner)
}
