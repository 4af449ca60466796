//! Starts many child processes, gives them commands, and reads their reports. This file is the parent's side.
//! The file `orders.rs` contains the commands and the children's side.

use std::io::{self, PipeWriter};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use peregrine::sys::Memory;

use crate::machine::cpu_time;
use crate::orders::{self, Order, Place, READY, Report};

/// Child processes that sleep until they receive commands. The children end when this value is dropped, or
/// when this process ends.
#[derive(Debug)]
pub(crate) struct Crowd {
    members: Vec<Member>,
    memory: Memory,
    /// The descriptor of `memory`, which all processes share. It stays open, because the children open the
    /// memory by the path of this descriptor in `/proc`.
    _file: OwnedFd,
    /// The writing end of a pipe whose reading end is the standard input of all children. The children end
    /// when the writing end is closed.
    life: Option<PipeWriter>,
}

#[derive(Debug)]
struct Member {
    child: Child,
    /// The number of the last command that the child was given.
    given: u32,
}

/// The largest number of children that start concurrently.
const STARTED_MAX: usize = 32;

impl Crowd {
    /// Starts `count` children, and waits until they are ready. `role` adds the arguments that select the
    /// role of each child.
    pub(crate) fn start(count: usize, role: impl Fn(&mut Command)) -> io::Result<Self> {
        let (memory, file) = Memory::shared(orders::memory_bytes(count))?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let (input, life) = io::pipe()?;
        let members = Vec::with_capacity(count);
        let mut crowd = Self { members, memory, _file: file, life: Some(life) };
        let program = std::env::current_exe()?;
        while crowd.members.len() < count {
            let begun = crowd.members.len();
            for slot in begun..count.min(begun + STARTED_MAX) {
                let mut command = Command::new(&program);
                role(&mut command);
                command.args(Place::arguments(&path, count, slot));
                command.stdin(Stdio::from(input.try_clone()?)).stdout(Stdio::null());
                crowd.members.push(Member { child: command.spawn()?, given: READY });
            }
            for member in begun..crowd.members.len() {
                crowd.report(member)?;
            }
        }
        Ok(crowd)
    }

    /// Returns the number of children.
    pub(crate) const fn len(&self) -> usize {
        self.members.len()
    }

    /// Gives a command to the child `member`. The child must have reported on the previous command, unless
    /// the previous command was [`Order::Serve`].
    pub(crate) fn order(&mut self, member: usize, order: Order) {
        let given = &mut self.members[member].given;
        *given += 1;
        orders::give(&self.memory, member, *given, order);
    }

    /// Sleeps until the child `member` has reported on its last command, and returns the report.
    ///
    /// # Errors
    /// If the child ends before it has reported.
    pub(crate) fn report(&mut self, member: usize) -> io::Result<Report> {
        let Member { child, given } = &mut self.members[member];
        loop {
            if let Some(report) = orders::reported(&self.memory, member, *given) {
                return Ok(report);
            }
            if let Some(status) = child.try_wait()? {
                return Err(io::Error::other(format!("a calling process has ended: {status}")));
            }
        }
    }

    /// Returns the total processor time of all children.
    pub(crate) fn cpu_time(&self) -> io::Result<Duration> {
        self.members.iter().map(|member| cpu_time(member.child.id())).sum()
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        /// The time in which the children may release their resources.
        const GRACE: Duration = Duration::from_millis(1500);
        self.life = None;
        let start = Instant::now();
        for Member { child, .. } in &mut self.members {
            while start.elapsed() < GRACE && matches!(child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_micros(500));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
