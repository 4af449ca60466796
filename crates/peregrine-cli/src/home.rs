//! Everything that a verb starts and makes beside itself, and its end: also by Ctrl-C or an error.

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
use crate::interrupt::{Interrupt, Terms};
use crate::output::{During, Failure};

/// How long a child has to stop in good order.
const STOP: Duration = Duration::from_secs(2);

/// A private directory and the processes that live in it; gone when this is dropped.
pub(crate) struct Home {
    path: PathBuf,
    things: Arc<Mutex<Things>>,
    interrupt: Interrupt,
}

struct Things {
    path: PathBuf,
    children: Vec<Child>,
}

/// Starts this program again, in a fresh directory that is its `$PEREGRINE_DIR` from the first
/// instruction on: the environment of a running process cannot be changed safely.
pub(crate) fn enter(demo: &Demo, format: Format, colour: Colour) -> Result<(), Failure> {
    let home = tempfile::Builder::new().prefix("peregrine-demo-").tempdir();
    let home = home.during("making a temporary directory")?;
    let program = std::env::current_exe().during("finding this program")?;
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
    // Comes back only if it fails; then the directory goes.
    Err(again.env("PEREGRINE_DIR", home.path().join("run")).exec()).during("starting again")
}

impl Home {
    /// Takes charge of the directory that [`enter`] made.
    pub(crate) fn adopt(path: &Path, format: Format) -> Result<Self, Failure> {
        let ours = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"peregrine-demo-"));
        let run = std::env::var_os("PEREGRINE_DIR").is_some_and(|run| path.join("run") == run);
        if !ours || !run {
            return Err(Failure::local("this is no demonstration's directory", "leave out --home"));
        }
        Self::of(path.to_owned(), format)
    }

    /// A fresh directory, in which children export.
    pub(crate) fn new(format: Format) -> Result<Self, Failure> {
        let home = tempfile::Builder::new().prefix("peregrine-").tempdir();
        Self::of(home.during("making a temporary directory")?.keep(), format)
    }

    fn of(path: PathBuf, format: Format) -> Result<Self, Failure> {
        let things = Things { path: path.clone(), children: Vec::new() };
        let things = Arc::new(Mutex::new(things));
        let terms = Terms { format, grace: Duration::ZERO, executed: "maybe" };
        let all = Arc::clone(&things);
        let last = move || {
            let mut things = lock(&all);
            things.end();
            // Never unlocked: whoever would start another process now waits for the end.
            core::mem::forget(things);
            "the processes and files that were made are gone again".to_owned()
        };
        let interrupt = Interrupt::mind(terms, || {}, last)?;
        Ok(Self { path, things, interrupt })
    }

    /// A place in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Starts this program as a child; returns its id and what it said when it was ready.
    pub(crate) fn spawn(&self, arguments: &[&str]) -> Result<(u32, Value), Failure> {
        self.spawn_in(&[], arguments)
    }

    /// The same by another program, which runs this one in its own place.
    pub(crate) fn spawn_in(
        &self,
        by: &[&str],
        arguments: &[&str],
    ) -> Result<(u32, Value), Failure> {
        let program = std::env::current_exe().during("finding this program")?;
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
            let mut things = lock(&self.things);
            let mut child = command.spawn().during("starting a second process")?;
            let (process, output) = (child.id(), child.stdout.take());
            things.children.push(child);
            (process, output)
        };
        let mut line = String::new();
        if let Some(output) = output {
            let read = BufReader::new(output).read_line(&mut line);
            read.during("waiting for the second process")?;
        }
        let said: Value = serde_json::from_str(&line).unwrap_or_default();
        if said["ready"] != true {
            let why = said["error"]["what"].as_str().unwrap_or("it ended");
            let text = format!("the second process did not start: {why}");
            return Err(Failure::local(text, "see its standard error"));
        }
        Ok((process, said))
    }

    /// Starts a process that says one line when it is ready, and then nothing.
    pub(crate) fn hold(&self, mut command: Command) -> io::Result<u32> {
        let (process, output) = {
            let mut things = lock(&self.things);
            let mut child = command.spawn()?;
            let (process, output) = (child.id(), child.stdout.take());
            things.children.push(child);
            (process, output)
        };
        let read = output.map(|output| BufReader::new(output).read_line(&mut String::new()));
        match read.transpose()? {
            Some(1..) => Ok(process),
            _ => Err(io::Error::other("it ended")),
        }
    }

    /// Stops one child and waits for its end.
    pub(crate) fn stop(&self, process: u32) {
        let mut things = lock(&self.things);
        let found = things.children.iter().position(|child| child.id() == process);
        if let Some(mut child) = found.map(|found| things.children.swap_remove(found)) {
            end(core::slice::from_mut(&mut child));
        }
    }

    /// Waits if a signal is just ending everything: what failed then failed because of it, and
    /// a signal that has reached a child is about to reach us.
    pub(crate) fn settle(&self) {
        std::thread::sleep(Duration::from_millis(50));
        self.interrupt.leave();
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // Whoever ends everything because of a signal finds nothing left to do, and says so.
        lock(&self.things).end();
        self.interrupt.leave();
    }
}

impl Things {
    fn end(&mut self) {
        end(&mut self.children);
        self.children.clear();
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Stops children in good order, or else not.
fn end(children: &mut [Child]) {
    for child in &mut *children {
        signal(child.id(), Signal::TERM);
        signal(child.id(), Signal::CONT);
    }
    let until = Instant::now() + STOP;
    for child in children {
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Sends a signal to a child that has not been waited for.
pub(crate) fn signal(process: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(process.cast_signed()) {
        let _ = kill_process(pid, signal);
    }
}

fn lock(things: &Mutex<Things>) -> MutexGuard<'_, Things> {
    things.lock().unwrap_or_else(PoisonError::into_inner)
}
