//! The experiment `peers`: measures Peregrine's calls, and calls by other systems between two processes, in
//! the same rounds.
//!
//! | peer | what it is |
//! |---|---|
//! | `iceoryx2` | request and response through shared memory, both sides poll |
//! | `unix-socket` | a message and its answer through a `SOCK_SEQPACKET` socket, both sides sleep |
//!
//! Each system has two processes. They are pinned to the same processors as Peregrine's processes, and sleep
//! while they are not measured.

use std::process::Command;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use crate::cases::{Case, Placement, Waiting};
use crate::crowd::Crowd;
use crate::local::{in_each_placement, in_turn, split};
use crate::orders::{ChildSlot, Order, Place, Report};
use crate::row::Row;
use crate::subject::{Failure, Sample, Subject};
use crate::{Progress, Selection, iceoryx, machine, seqpacket};

/// The cases that are measured with each system.
const CASES: [&str; 2] = ["null", "in-200"];
/// The systems with which Peregrine is compared.
const PEERS: [&str; 2] = ["iceoryx2", "unix-socket"];
/// Every answer consists of this one byte.
pub(crate) const ANSWER: u8 = 0x5a;
/// The number of calls before the measured ones.
const WARM_CALLS: u32 = 300;
/// The number of calls in the first measurement, which only estimates the time of a call.
const GUESS: u32 = 48;

/// The arguments of a process.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    /// The system, and the side
    #[arg(long, value_enum)]
    role: Role,
    /// Bytes of arguments
    #[arg(long)]
    bytes: usize,
}

/// The role of a process.
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

/// Runs the process until its parent ends.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let slot = ChildSlot::open(&options.place)?;
    match options.role {
        Role::IceoryxServer => iceoryx::serve(slot, options.bytes),
        Role::IceoryxClient => iceoryx::call(slot, options.bytes),
        Role::SocketServer => seqpacket::serve(slot, options.bytes),
        Role::SocketClient => seqpacket::call(slot, options.bytes),
    }
}

/// Carries out the commands that a client process receives.
pub(crate) fn call_as_ordered(
    mut slot: ChildSlot,
    mut call: impl FnMut(&ChildSlot) -> Result<(), Failure>,
) -> Result<(), Failure> {
    slot.ready();
    while let Some(order) = slot.next() {
        let Order::Calls(warm, calls) = order else {
            return Err(format!("a client cannot carry out {order:?}").into());
        };
        for _ in 0..warm {
            call(&slot)?;
        }
        let start = Instant::now();
        for _ in 0..calls {
            call(&slot)?;
        }
        let (calls, ns) = (calls.into(), start.elapsed().as_nanos() as u64);
        slot.report(Report { calls, all: calls + u64::from(warm), ns, ..Report::default() });
    }
    Ok(())
}

/// The two processes of one system, for one case.
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
                command.args(["other-system", "--role", role.get_name(), "--bytes", &bytes]);
                if let Some(cpu) = cpu {
                    command.args(["--cpu", &cpu.to_string()]);
                }
            })
        };
        // The server starts first, because a client looks for the server only once.
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

    /// Makes `calls` calls while the server is awake. Returns the mean time of a call in nanoseconds.
    fn calls(&mut self, calls: u32) -> Result<f64, Failure> {
        self.server.order(0, Order::Serve);
        self.client.order(0, Order::Calls(WARM_CALLS, calls));
        let report = self.client.report(0)?;
        self.server.order(0, Order::Idle);
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
            progress.show(&format!("peers: {}", case.name));
            // Neither of the two other systems accepts an empty message.
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
                    // Peregrine's calls that sleep are not compared with iceoryx2, which never sleeps.
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
