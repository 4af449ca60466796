//! Starts a cluster, calls it, lets one fault happen after the other, and measures what callers notice.

use std::collections::{BTreeSet, HashMap};
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::load::{Interval, Line, Verified};
use crate::measured::Tally;
use crate::nodes::{MEMBERS, Nodes, Process, Said};
use crate::report::{Ended, Report, Window};
use crate::view::View;
use crate::{Format, now_us};

/// The time between two lines of the load generator, in milliseconds.
const INTERVAL_MS: u64 = 200;
/// How long anything may take that must happen. A busy machine is slow, so this is long.
const LIMIT: Duration = Duration::from_secs(120);
/// How often members of etcd are asked for their leader.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Starts a cluster in network namespaces, and lets faults happen while it is called
#[derive(clap::Args)]
pub(crate) struct ChaosArgs {
    /// The length of each window in seconds: before, during and after a fault
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Windows of one second
    #[arg(long, conflicts_with = "seconds")]
    quick: bool,
    /// Only these faults, in this order. By default all but `wipe`
    #[arg(long = "fault", value_enum)]
    faults: Vec<Fault>,
    /// The number of servers
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(3..=20))]
    servers: u32,
    /// Gets and puts per second, and as many calls of the pool
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// The number of keys
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    keys: u32,
    /// The path of calls to the servers
    #[arg(long, value_enum, default_value_t = Path::Any)]
    path: Path,
    /// How the result is printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// The path of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Path {
    /// The fastest path that works: raw Ethernet, since all programs run as root
    Any,
    Udp,
    Tcp,
}

impl Path {
    /// Returns the beginning of the addresses at which servers listen.
    fn scheme(self) -> &'static str {
        match self {
            Self::Any => "",
            Self::Udp => "udp:",
            Self::Tcp => "tcp:",
        }
    }
}

/// What happens to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Fault {
    /// A server is killed, and started again
    Kill,
    /// A server is stopped by SIGSTOP, and continued
    Pause,
    /// The cable of a server is taken out, and put in again
    Cut,
    /// The leader of etcd is killed, and started again
    Leader,
    /// All members of etcd are killed, and started again
    Etcd,
    /// All servers are replaced one after the other
    Replace,
    /// All servers are killed at the same time, which loses all values. It shows that losses are noticed
    Wipe,
}

impl Fault {
    /// The faults that a store must survive.
    const ALL: [Self; 6] =
        [Self::Kill, Self::Pause, Self::Cut, Self::Leader, Self::Etcd, Self::Replace];

    fn text(self) -> &'static str {
        match self {
            Self::Kill => "kill a server",
            Self::Pause => "pause a server",
            Self::Cut => "cut off a server",
            Self::Leader => "kill the leader of etcd",
            Self::Etcd => "kill all of etcd",
            Self::Replace => "replace all servers",
            Self::Wipe => "kill all servers at once",
        }
    }
}

/// A server process.
struct Server {
    process: Process,
    /// `starting`, `catching up`, `ok`, or what the fault did to it.
    state: &'static str,
    is_caught_up: bool,
}

/// A server that has begun to register.
struct Registered {
    begun_us: u64,
    endpoints: Vec<String>,
}

/// A cluster that runs.
struct Cluster {
    // Processes are dropped, and thereby killed, before their machines.
    /// The servers of each place: two while one replaces the other.
    places: Vec<Vec<Server>>,
    members: Vec<Option<Process>>,
    load: Option<Process>,
    nodes: Nodes,
    path: Path,
    lines: Receiver<Said>,
    interrupted: Arc<AtomicBool>,
    view: View,
    store: Tally,
    pool: Tally,
    last: Interval,
    /// How many lines the load generator has printed.
    intervals: u64,
    registered: Vec<Registered>,
    /// When the pool first knew and first used the server at each address.
    joined: HashMap<String, [u64; 2]>,
    /// The paths over which the pool reached its servers.
    paths: BTreeSet<String>,
    verified: Option<Verified>,
}

/// Runs the faults and prints the result. Returns whether nothing was lost and the cluster served after each
/// fault.
///
/// # Errors
/// If the cluster could not be started, a process ended unexpectedly, or a signal arrived.
pub(crate) fn run(args: &ChaosArgs) -> Result<bool, String> {
    let seconds = if args.quick { 1.0 } else { args.seconds };
    let length = Duration::try_from_secs_f64(seconds).ok();
    let length = length.filter(|length| (0.2..=3600.0).contains(&length.as_secs_f64()));
    let length = length.ok_or("`--seconds` must be from 0.2 to 3600")?;
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in
        [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP]
    {
        let registered = signal_hook::flag::register(signal, Arc::clone(&interrupted));
        registered.map_err(|error| format!("cannot handle signals: {error}"))?;
    }
    let mut cluster = Cluster::start(args, interrupted)?;
    let faults = if args.faults.is_empty() { &Fault::ALL[..] } else { &args.faults };
    let mut ended = Vec::new();
    for (at, fault) in faults.iter().enumerate() {
        // Another server has the fault each time.
        ended.push(cluster.endure(*fault, at % args.servers as usize, length)?);
    }
    let [known_us, joined_us] = [0, 1].map(|at| cluster.joined_us(at));
    let paths = cluster.paths.clone();
    let verified = cluster.verify()?;
    let report = Report {
        servers: args.servers as usize,
        members: MEMBERS,
        rate: args.rate,
        keys: args.keys,
        faults: ended,
        paths,
        known_us,
        joined_us,
        verified,
    };
    drop(cluster);
    let printed = std::io::stdout().write_all(report.text(args.format).as_bytes());
    printed.map_err(|error| format!("cannot print the result: {error}"))?;
    let problems = report.problems();
    problems.iter().for_each(|problem| eprintln!("cluster: {problem}"));
    Ok(problems.is_empty())
}

impl Cluster {
    /// Starts all processes, and waits until the cluster serves.
    fn start(args: &ChaosArgs, interrupted: Arc<AtomicBool>) -> Result<Self, String> {
        let (sender, lines) = mpsc::channel();
        let count = args.servers as usize;
        let mut view = View::new();
        view.phase("making the network");
        let mut cluster = Self {
            nodes: Nodes::new(count, sender)?,
            places: (0..count).map(|_| Vec::new()).collect(),
            members: (0..MEMBERS).map(|_| None).collect(),
            load: None,
            path: args.path,
            lines,
            interrupted,
            view,
            store: Tally::default(),
            pool: Tally::default(),
            last: Interval::default(),
            intervals: 0,
            registered: Vec::new(),
            joined: HashMap::new(),
            paths: BTreeSet::new(),
            verified: None,
        };
        cluster.view.phase("starting etcd");
        (0..MEMBERS).try_for_each(|n| cluster.start_member(n))?;
        cluster.until_etcd_is_whole()?;
        cluster.view.phase("starting the servers");
        (0..count).try_for_each(|place| cluster.start_server(place))?;
        cluster.until("the servers are caught up", Self::are_servers_ok)?;
        // These servers register before there is a pool.
        cluster.registered.clear();
        cluster.view.phase("starting the load");
        cluster.load = Some(cluster.nodes.start_load(args.rate, args.keys, INTERVAL_MS)?);
        cluster.until("the cluster serves", Self::serves)?;
        Ok(cluster)
    }

    fn start_member(&mut self, n: usize) -> Result<(), String> {
        self.members[n] = Some(self.nodes.start_member(n)?);
        Ok(())
    }

    fn start_server(&mut self, place: usize) -> Result<(), String> {
        let process = self.nodes.start_server(place, self.path.scheme())?;
        self.places[place].push(Server { process, state: "starting", is_caught_up: false });
        Ok(())
    }

    /// Takes over what processes have printed. Waits up to 50 ms for it.
    ///
    /// # Errors
    /// If a process has ended that should run, or a signal has arrived.
    fn step(&mut self) -> Result<(), String> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err("interrupted: everything was ended and removed".to_owned());
        }
        match self.lines.recv_timeout(Duration::from_millis(50)) {
            Ok(Said { by, line: Some(line) }) => self.said(by, &line),
            Ok(Said { by, line: None }) => self.check_end(by),
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => Err("the cluster has no processes".to_owned()),
        }
    }

    fn said(&mut self, by: u32, line: &str) -> Result<(), String> {
        if self.load.as_ref().is_some_and(|load| load.id() == by) {
            let line = serde_json::from_str(line);
            match line.map_err(|error| format!("cannot read the load generator: {error}"))? {
                Line::Begun => {}
                Line::Interval(interval) => self.measured(interval),
                Line::Verified(verified) => self.verified = Some(verified),
            }
            return Ok(());
        }
        let servers = self.places.iter_mut().flatten();
        let Some(server) = servers.into_iter().find(|one| one.process.id() == by) else {
            return Ok(());
        };
        let Ok(said) = serde_json::from_str::<Value>(line) else { return Ok(()) };
        match said["event"].as_str() {
            Some("registered") => {
                server.state = "catching up";
                let begun_us = said["begun_us"].as_u64().unwrap_or_else(now_us);
                let all = said["addresses"].as_array().into_iter().flatten();
                let endpoints = all.filter_map(Value::as_str).map(str::to_owned).collect();
                self.registered.push(Registered { begun_us, endpoints });
            }
            Some("caught-up") => (server.state, server.is_caught_up) = ("ok", true),
            _ => {}
        }
        Ok(())
    }

    fn measured(&mut self, interval: Interval) {
        self.store.merge(&interval.store);
        self.pool.merge(&interval.pool);
        for one in &interval.joined {
            self.paths.insert(one.path.clone());
            for address in &one.addresses {
                let place = address.rsplit('@').next().unwrap_or(address);
                self.joined.entry(place.to_owned()).or_insert([one.known_us, one.used_us]);
            }
        }
        self.intervals += 1;
        self.last = interval;
        let state = |servers: &Vec<Server>| {
            let each: Vec<_> = servers.iter().map(|one| one.state).collect();
            if each.is_empty() { "killed".to_owned() } else { each.join("+") }
        };
        let servers: Vec<_> = self.places.iter().map(state).collect();
        let runs = |one: &Option<Process>| if one.is_some() { "ok" } else { "killed" };
        let members: Vec<_> = self.members.iter().map(runs).collect();
        self.view.show(&servers, &members, &self.last);
    }

    /// # Errors
    /// If this is a process that should still run.
    fn check_end(&mut self, by: u32) -> Result<(), String> {
        let servers = self.places.iter_mut().flatten().map(|one| &mut one.process);
        let others = self.members.iter_mut().flatten();
        let load = self.load.iter_mut().filter(|_| self.verified.is_none());
        let mut all = servers.chain(others).chain(load);
        let Some(process) = all.find(|one| one.id() == by) else { return Ok(()) };
        // Its output ends just before the process does.
        let begun = Instant::now();
        loop {
            if let Some(how) = process.ended() {
                return Err(how);
            }
            if begun.elapsed() > LIMIT {
                return Err("a process has closed its standard output".to_owned());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until something is so. Returns false if it is not within the limit.
    fn within(&mut self, mut is_so: impl FnMut(&mut Self) -> bool) -> Result<bool, String> {
        let begun = Instant::now();
        while !is_so(self) {
            if begun.elapsed() > LIMIT {
                return Ok(false);
            }
            self.step()?;
        }
        Ok(true)
    }

    fn until(&mut self, what: &str, is_so: impl FnMut(&mut Self) -> bool) -> Result<(), String> {
        match self.within(is_so)? {
            true => Ok(()),
            false => {
                Err(format!("waited until {what}, but it was not so after {} s", LIMIT.as_secs()))
            }
        }
    }

    fn until_etcd_is_whole(&mut self) -> Result<(), String> {
        let mut asked: Option<Instant> = None;
        self.until("the members of etcd agree on a leader", |cluster| {
            if asked.is_some_and(|asked| asked.elapsed() < ASK_EVERY) {
                return false;
            }
            asked = Some(Instant::now());
            cluster.nodes.leader().0 == MEMBERS
        })
    }

    fn are_servers_ok(&mut self) -> bool {
        let is_ok = |servers: &Vec<Server>| servers.len() == 1 && servers[0].is_caught_up;
        self.places.iter().all(is_ok)
    }

    /// Returns whether no call failed in the last interval, and the pool uses all servers, also the new ones.
    fn serves(&mut self) -> bool {
        if self.joined_us(1).len() < self.registered.len() {
            return false;
        }
        let has_served = |tally: &Tally| tally.calls > 0 && tally.failed() == 0;
        let Interval { store, pool, used, .. } = &self.last;
        has_served(store) && has_served(pool) && *used == self.places.len()
    }

    /// Waits for the end of an interval, and begins to measure.
    fn begin_window(&mut self) -> Result<Instant, String> {
        let intervals = self.intervals;
        self.until("the load generator reports", |cluster| cluster.intervals > intervals)?;
        (self.store, self.pool) = Default::default();
        Ok(Instant::now())
    }

    fn end_window(&mut self, name: &'static str, begun: Instant) -> Window {
        let seconds = begun.elapsed().as_secs_f64();
        Window { name, seconds, store: (&self.store).into(), pool: (&self.pool).into() }
    }

    /// Measures for some time.
    fn measure(&mut self, length: Duration) -> Result<(), String> {
        let begun = Instant::now();
        while begun.elapsed() < length {
            self.step()?;
        }
        Ok(())
    }

    /// Lets a fault happen, and repairs it. Measures before, during and after it.
    fn endure(&mut self, fault: Fault, at: usize, length: Duration) -> Result<Ended, String> {
        let text = fault.text();
        let lost = self.last.violations;
        self.view.phase(&format!("{text}: before"));
        let begun = self.begin_window()?;
        self.measure(length)?;
        let intervals = self.intervals;
        self.until("the load generator reports", |cluster| cluster.intervals > intervals)?;
        let before = self.end_window("before", begun);

        self.view.phase(&format!("{text}: during"));
        (self.store, self.pool) = Default::default();
        let begun = Instant::now();
        self.happen(fault, at, length)?;
        let repaired = Instant::now();
        self.view.phase(&format!("{text}: repaired"));
        self.until_etcd_is_whole()?;
        // What was printed before the repair does not show what happens after it.
        let intervals = self.intervals + 1;
        let is_well = self.within(|cluster| {
            cluster.intervals > intervals && cluster.are_servers_ok() && cluster.serves()
        })?;
        let recovered_s = is_well.then(|| repaired.elapsed().as_secs_f64());
        let during = self.end_window("during", begun);

        self.view.phase(&format!("{text}: after"));
        let begun = self.begin_window()?;
        self.measure(length)?;
        let after = self.end_window("after", begun);
        let violations = self.last.violations - lost;
        Ok(Ended { fault: text, windows: vec![before, during, after], violations, recovered_s })
    }

    /// Lets a fault happen for some time, and repairs it.
    fn happen(&mut self, fault: Fault, at: usize, length: Duration) -> Result<(), String> {
        match fault {
            Fault::Kill => {
                for server in std::mem::take(&mut self.places[at]) {
                    server.process.kill();
                }
                self.measure(length)?;
                self.start_server(at)
            }
            Fault::Pause => {
                self.signal(at, Signal::STOP, "paused")?;
                self.measure(length)?;
                self.signal(at, Signal::CONT, "ok")
            }
            Fault::Cut => {
                self.nodes.set_cable(at, false)?;
                self.places[at].iter_mut().for_each(|one| one.state = "cut off");
                self.measure(length)?;
                self.nodes.set_cable(at, true)?;
                self.places[at].iter_mut().for_each(|one| one.state = "ok");
                Ok(())
            }
            Fault::Leader => {
                let (_, leader) = self.nodes.leader();
                let leader = leader.ok_or("etcd has no leader that could be killed")?;
                self.members[leader].take().into_iter().for_each(Process::kill);
                self.measure(length)?;
                self.start_member(leader)
            }
            Fault::Etcd => {
                self.members.iter_mut().filter_map(Option::take).for_each(Process::kill);
                self.measure(length)?;
                (0..MEMBERS).try_for_each(|n| self.start_member(n))
            }
            Fault::Wipe => {
                for server in self.places.iter_mut().flat_map(std::mem::take) {
                    server.process.kill();
                }
                self.measure(length)?;
                (0..self.places.len()).try_for_each(|place| self.start_server(place))
            }
            Fault::Replace => {
                let begun = Instant::now();
                (0..self.places.len()).try_for_each(|place| self.replace(place))?;
                self.measure(length.saturating_sub(begun.elapsed()))
            }
        }
    }

    fn signal(&mut self, at: usize, signal: Signal, state: &'static str) -> Result<(), String> {
        self.places[at].iter_mut().try_for_each(|one| {
            one.state = state;
            one.process.signal(signal)
        })
    }

    /// Starts another server at a place. When it is caught up, stops the earlier one.
    fn replace(&mut self, place: usize) -> Result<(), String> {
        self.start_server(place)?;
        self.until("the new server is caught up", |cluster| {
            cluster.places[place].last().is_some_and(|new| new.is_caught_up)
        })?;
        let mut old = self.places[place].remove(0).process;
        old.signal(Signal::TERM)?;
        let mut ended = None;
        self.until("the old server has drained", |_| {
            ended = old.succeeded();
            ended.is_some()
        })?;
        match ended {
            Some(true) => Ok(()),
            _ => Err(old.ended().unwrap_or_else(|| "the old server has failed".to_owned())),
        }
    }

    /// Returns how long it took from the begin of each registration until the pool knew the server (0) or used
    /// it (1).
    fn joined_us(&self, at: usize) -> Vec<u64> {
        let took = |one: &Registered| {
            let is_it = |place: &&String| one.endpoints.iter().any(|it| it.ends_with(&***place));
            let place = self.joined.keys().find(is_it)?;
            Some(self.joined[place][at].saturating_sub(one.begun_us))
        };
        self.registered.iter().filter_map(took).collect()
    }

    /// Ends the load, which then reads all keys again.
    fn verify(&mut self) -> Result<Verified, String> {
        self.view.phase("reading all keys again");
        let load = self.load.as_ref().ok_or("there is no load")?;
        load.signal(Signal::TERM)?;
        self.until("all keys were read again", |cluster| cluster.verified.is_some())?;
        self.verified.clone().ok_or_else(|| "the load generator has ended early".to_owned())
    }
}
