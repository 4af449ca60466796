//! The experiment `peers`: our calls, and the same done in other ways between two processes, in the
//! same rounds.
//!
//! | peer | what it is |
//! |---|---|
//! | `iceoryx2` | request and response through shared memory, both sides look all the time |
//! | `unix-socket` | a message and its answer through a `SOCK_SEQPACKET` socket, both sides sleep |
//!
//! Each has two processes of its own, pinned as ours are, that are asleep while it is not their turn.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use crate::cases::{Case, Placement, Waiting};
use crate::crowd::Crowd;
use crate::local::{in_each_placement, in_turn, split};
use crate::orders::{Order, Place, Post, Report};
use crate::row::Row;
use crate::subject::{Failure, Sample, Subject};
use crate::{Progress, Selection, iceoryx, machine, seqpacket};

/// The cases that there are of each.
const CASES: [&str; 2] = ["null", "in-200"];
/// What ours is held against.
const PEERS: [&str; 2] = ["iceoryx2", "unix-socket"];
/// The byte of an answer that has nothing to say.
pub(crate) const ANSWER: u8 = 0x5a;
/// Calls before the measured ones.
const WARM_CALLS: u32 = 300;
/// Calls of the first guess at how long one takes.
const GUESS: u32 = 48;

/// What a process is told at once.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    /// The way, and the side
    #[arg(long, value_enum)]
    role: Role,
    /// Bytes of arguments
    #[arg(long)]
    bytes: usize,
}

/// Which of the processes it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// Answers requests
    IceoryxServer,
    /// Sends requests
    IceoryxClient,
    /// Answers messages
    SocketServer,
    /// Sends messages
    SocketClient,
}

/// Does what the process is there for, until its parent ends.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let post = Post::open(&options.place)?;
    match options.role {
        Role::IceoryxServer => iceoryx::serve(post, options.bytes),
        Role::IceoryxClient => iceoryx::call(post, options.bytes),
        Role::SocketServer => seqpacket::serve(post, options.bytes),
        Role::SocketClient => seqpacket::call(post, options.bytes),
    }
}

/// Carries out a client's orders.
pub(crate) fn call_as_ordered(
    mut post: Post,
    mut call: impl FnMut(&Post) -> Result<(), Failure>,
) -> Result<(), Failure> {
    post.ready();
    while let Some(order) = post.next() {
        let Order::Calls(warm, calls) = order else {
            return Err(format!("a client does not do this: {order:?}").into());
        };
        for _ in 0..warm {
            call(&post)?;
        }
        let start = Instant::now();
        for _ in 0..calls {
            call(&post)?;
        }
        let (calls, ns) = (calls.into(), start.elapsed().as_nanos() as u64);
        post.report(Report { calls, all: calls + u64::from(warm), ns, ..Report::default() });
    }
    Ok(())
}

/// The directory of this run, which is removed after it.
pub(crate) fn room() -> Result<PathBuf, Failure> {
    let room = std::env::var_os("PEREGRINE_DIR").ok_or("there is no directory for this run")?;
    Ok(room.into())
}

/// A way to call, one case of it: its two processes.
struct Pair {
    server: Crowd,
    client: Crowd,
    last_ns: Option<f64>,
}

impl Pair {
    fn start(
        [server, client]: [Role; 2],
        bytes: usize,
        [here, there]: [Option<u32>; 2],
    ) -> Result<Self, Failure> {
        let one = |role: Role, cpu: Option<u32>| {
            Crowd::start(1, |command: &mut Command| {
                let role = role.to_possible_value().expect("a role has a name");
                let bytes = bytes.to_string();
                command.args(["other-way", "--role", role.get_name(), "--bytes", &bytes]);
                if let Some(cpu) = cpu {
                    command.args(["--cpu", &cpu.to_string()]);
                }
            })
        };
        // The server first: a client looks for it but once.
        let server = one(server, there)?;
        Ok(Self { server, client: one(client, here)?, last_ns: None })
    }

    fn measure(&mut self, slice: Duration) -> Result<Sample, Failure> {
        let each = match self.last_ns {
            Some(ns) => ns,
            None => self.calls(GUESS)?,
        };
        let calls = (slice.as_nanos() as f64 / each.max(1.0)).clamp(8.0, 4e6) as u32;
        let ns = self.calls(calls)?;
        self.last_ns = Some(ns);
        Ok(Sample { ns, cpu_ns: None })
    }

    /// So many calls, while the server is awake; the nanoseconds of each.
    fn calls(&mut self, calls: u32) -> Result<f64, Failure> {
        self.server.order(0, Order::Serve);
        self.client.order(0, Order::Calls(WARM_CALLS, calls));
        let report = self.client.report(0)?;
        self.server.order(0, Order::Rest);
        self.server.report(0)?;
        Ok(report.ns as f64 / f64::from(calls))
    }
}

/// Measures what was selected.
pub(crate) fn measure(selection: &Selection, progress: &Progress) -> Result<Vec<Row>, Failure> {
    let mut selection = selection.clone();
    selection.placements = vec![Placement::TwoCores];
    let mut rows = Vec::new();
    in_each_placement(&selection, |placement, peer| {
        let cpus = placement.processors(&machine::processors()).unwrap_or_default();
        for case in CASES.into_iter().filter_map(Case::named) {
            if !selection.has_case(case.name) {
                continue;
            }
            progress.say(&format!("peers: {}", case.name));
            // A message without a byte is none, to either.
            let bytes = case.in_bytes.max(1);
            let mut ours = Waiting::ALL.map(|wait| Subject::remote(case, wait));
            let mut theirs = [
                Pair::start([Role::IceoryxServer, Role::IceoryxClient], bytes, cpus)?,
                Pair::start([Role::SocketServer, Role::SocketClient], bytes, cpus)?,
            ];
            let samples = in_turn(selection.rounds(), 5, |subject| match subject {
                0..3 => ours[subject].measure(peer, selection.slice()),
                _ => theirs[subject - 3].measure(selection.slice()),
            })?;
            for (wait, ours) in Waiting::ALL.into_iter().zip(&samples) {
                for (name, theirs) in PEERS.into_iter().zip(&samples[3..]) {
                    // Who sleeps is not held against one who never does.
                    if wait == Waiting::Block && name == PEERS[0] {
                        continue;
                    }
                    let ((ours, cpu), (theirs, _)) = (split(ours), split(theirs));
                    let row = Row {
                        path: Some("local"),
                        wait: Some(wait.name()),
                        placement: Some(placement.name()),
                        bindings: 1,
                        ..Row::new(case.name)
                    };
                    let row = row.ours(&ours, &cpu).limit(name, &theirs);
                    rows.push(row.ratio(&ours, &theirs));
                }
            }
        }
        Ok(())
    })?;
    Ok(rows)
}
