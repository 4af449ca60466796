//! Controls the child process of a measurement: starts it, gives it commands, and kills it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use peregrine::sys::Memory;

use crate::cases::{EVENTS, STREAMS, Size, Waiting, export_name, spread_name};
use crate::child::{READY, echo_line};
use crate::machine::{cpu_time, own_cpu_time};
use crate::pingpong::{self, Exchange, MEMORY};

/// The child process of a measurement. Dropping this value kills the process.
#[derive(Debug)]
pub(crate) struct Peer {
    child: Child,
    orders: ChildStdin,
    memory: Memory,
    prefix: &'static str,
    /// The descriptor of `memory`, which both processes share. It stays open, because the child opens the
    /// memory by the path of this descriptor in `/proc`.
    _file: OwnedFd,
    /// Whether this process wants the child to end.
    ending: Arc<AtomicBool>,
}

impl Peer {
    /// Starts the child on a processor, and waits until it serves.
    pub(crate) fn start(cpu: Option<u32>) -> io::Result<Self> {
        Self::start_as("", cpu)
    }

    /// Starts a further child, as [`Peer::start`] does. The names of this child's exports begin with
    /// `prefix`.
    pub(crate) fn start_as(prefix: &'static str, cpu: Option<u32>) -> io::Result<Self> {
        let (memory, file) = Memory::shared(MEMORY)?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["child", "--memory", &path, "--prefix", prefix]);
        if let Some(cpu) = cpu {
            command.args(["--cpu", &cpu.to_string()]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let missing = || io::Error::other("the other process has no pipes");
        let orders = child.stdin.take().ok_or_else(missing)?;
        let mut output = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        if line.trim_end() != READY {
            let status = child.wait()?;
            return Err(io::Error::other(format!("the other process ended: {status}")));
        }
        let ending = Arc::new(AtomicBool::new(false));
        end_with_child(output, Arc::clone(&ending));
        Ok(Self { child, orders, memory, prefix, _file: file, ending })
    }

    /// Exchanges messages with the child. Returns the time of `trips` messages, after `warm` messages that
    /// are not timed.
    pub(crate) fn exchange(
        &mut self,
        what: Exchange,
        warm: u32,
        trips: u32,
    ) -> io::Result<Duration> {
        pingpong::reset(&self.memory);
        self.orders.write_all(echo_line(what, warm + trips).as_bytes())?;
        Ok(pingpong::exchange(&mut self.memory, what, warm, trips))
    }

    /// Returns the name of the child's export of the interface `size`. The export belongs to the server that
    /// waits in the way `wait`.
    pub(crate) fn export(&self, wait: Waiting, size: Size) -> String {
        format!("{}{}", self.prefix, export_name(wait, size))
    }

    /// Returns the name of the child's export that is `name` without the prefix of the child.
    pub(crate) fn named(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Returns the name of the child's export of the interface with one-way calls.
    pub(crate) fn events(&self, wait: Waiting) -> String {
        format!("{}{EVENTS}-{}", self.prefix, wait.name())
    }

    /// Returns the name of the child's export of the interface with streams.
    pub(crate) fn streams(&self, wait: Waiting) -> String {
        format!("{}{STREAMS}-{}", self.prefix, wait.name())
    }

    /// Returns the name of one of the exports over which bindings are spread.
    pub(crate) fn spread_export(&self, number: usize) -> String {
        format!("{}{}", self.prefix, spread_name(number))
    }

    /// Returns the sum of the processor times of this process and of the child.
    pub(crate) fn cpu_time(&mut self) -> io::Result<Duration> {
        // The kernel updates the processor time of a thread of another process only when it schedules on that
        // thread's processor. The line `poke` wakes a thread of the child, so that the kernel schedules
        // there.
        self.orders.write_all(b"poke\n")?;
        std::thread::yield_now();
        Ok(own_cpu_time() + cpu_time(self.child.id())?)
    }

    /// Kills the child (SIGKILL).
    pub(crate) fn kill(&mut self) -> io::Result<()> {
        self.ending.store(true, Ordering::Release);
        self.child.kill()
    }
}

/// Ends this process if the child ends unexpectedly. Otherwise this process could wait for ever for a word
/// that the child has to write.
fn end_with_child(mut output: impl Read + Send + 'static, ending: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        let _ = io::copy(&mut output, &mut io::sink());
        if !ending.load(Ordering::Acquire) {
            eprintln!("peregrine-bench: the other process ended in the middle of a measurement");
            std::process::exit(1);
        }
    });
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.kill();
        let _ = self.child.wait();
    }
}
