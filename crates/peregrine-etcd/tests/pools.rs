//! Tests pools whose servers are registered in a cluster of etcd, while the cluster fails and calls go on.
//! Without the program `etcd`, the tests are skipped.

mod support;

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use peregrine::directory::Directory;
use peregrine::{Balance, BindOptions, ExportOptions, PoolServer, PoolStanding, Running, Server};
use peregrine_etcd::Etcd;
use support::{Cable, Cluster, Desk, DeskPool, DeskServer, Numbered, until};

/// The number of servers of a service.
const SERVERS: usize = 4;

/// Returns a server that registers in the directory with this text.
fn server(name: &str, desk: Numbered, text: &str) -> Server {
    let options = ExportOptions::default().networks_only();
    let server = Server::new().export_with(name, DeskServer::new(desk), options).unwrap();
    let server = server.listen("127.0.0.1:0").unwrap().advertise("127.0.0.1").unwrap();
    server.register_in(Arc::new(Etcd::open(text).unwrap()))
}

/// Returns whether a pool knows this number of servers, and uses all of them.
fn uses(pool: &DeskPool, count: usize) -> bool {
    let servers = pool.servers();
    let is_used = |one: &PoolServer| one.standing == PoolStanding::Used;
    servers.len() == count && servers.iter().all(is_used)
}

/// A service whose servers reach the cluster through a cable each, and a pool of them.
struct Service {
    /// How many calls each server has executed.
    ran: Vec<Arc<AtomicU64>>,
    cables: Vec<Cable>,
    running: Vec<Running>,
    pool: DeskPool,
}

impl Service {
    fn start(cluster: &Cluster, name: &str) -> Self {
        let desks: Vec<_> = (0..SERVERS as u32).map(Numbered::new).collect();
        let ran = desks.iter().map(Numbered::calls).collect();
        let cables: Vec<_> = (0..SERVERS).map(|_| Cable::to(cluster.0[0].client)).collect();
        let started = cables.iter().zip(desks).map(|(cable, desk)| {
            server(name, desk, &format!("//{}/p?lease_s=2", cable.address)).spawn().unwrap()
        });
        let running = started.collect();
        let options = BindOptions::default()
            .directory(Arc::new(cluster.open("p")))
            .balance(Balance::RoundRobin)
            .wait_for(Duration::from_secs(60));
        let pool = DeskPool::bind_with(name, &options).unwrap();
        let service = Self { ran, cables, running, pool };
        service.until_used(SERVERS);
        service
    }

    /// Waits until the pool knows and uses this number of servers.
    fn until_used(&self, count: usize) {
        until("the pool uses these servers", || uses(&self.pool, count));
    }

    /// Waits until each of these servers has executed more calls.
    fn until_called(&self, servers: core::ops::Range<usize>) {
        for server in servers {
            let before = self.ran[server].load(Ordering::SeqCst);
            until("the server is called", || self.ran[server].load(Ordering::SeqCst) > before);
        }
    }

    /// Calls the pool from two threads while `meanwhile` runs. Not one call may fail or run twice.
    fn call_while(&self, meanwhile: impl FnOnce() + Send) {
        let stop = AtomicBool::new(false);
        let total = || self.ran.iter().map(|one| one.load(Ordering::SeqCst)).sum::<u64>();
        let before = total();
        thread::scope(|scope| {
            let call = || {
                let mut calls = 0;
                while !stop.load(Ordering::SeqCst) {
                    self.pool.number().expect("each call succeeds");
                    calls += 1;
                    thread::sleep(Duration::from_millis(1));
                }
                calls
            };
            let callers = [scope.spawn(call), scope.spawn(call)];
            // If `meanwhile` panics, the callers must end, too.
            let ended = scope.spawn(meanwhile).join();
            stop.store(true, Ordering::SeqCst);
            let calls: u64 = callers.into_iter().map(|one| one.join().unwrap()).sum();
            ended.unwrap();
            assert!(calls > 0);
            assert_eq!(total() - before, calls, "each call was executed once");
        });
    }

    fn stop(self) {
        self.running.into_iter().for_each(Running::stop);
    }
}

#[test]
fn cluster_that_loses_all_its_data_disturbs_no_call() {
    let Some(mut cluster) = Cluster::start(1) else { return };
    let service = Service::start(&cluster, "anew");
    service.call_while(|| {
        for _ in 0..2 {
            cluster.begin_anew();
            service.until_called(0..SERVERS);
            let names = cluster.open("p");
            until("all servers have registered again", || {
                names.look_up("anew").is_ok_and(|known| known.servers.len() == SERVERS)
            });
            service.until_used(SERVERS);
            service.until_called(0..SERVERS);
        }
    });
    assert!(service.running.iter().all(|one| one.registration_problems().is_empty()));
    service.stop();
}

/// Half of the servers cannot reach the cluster, but clients reach all of them. The pool leaves the half whose
/// registrations end, and loses no call by this.
#[test]
fn servers_that_only_the_cluster_does_not_reach_lose_no_call() {
    let Some(cluster) = Cluster::start(1) else { return };
    let service = Service::start(&cluster, "half");
    let half = SERVERS / 2;
    service.call_while(|| {
        service.cables[half..].iter().for_each(Cable::cut);
        service.until_used(half);
        service.until_called(0..half);
        service.cables[half..].iter().for_each(Cable::mend);
        service.until_used(SERVERS);
        service.until_called(0..SERVERS);
    });
    service.stop();
}

/// The variable that makes [`child`] a server: the text of the directory.
const DIRECTORY: &str = "PEREGRINE_TEST_DIRECTORY";

/// Runs a server process. In the test run itself the variable is missing, and this function does nothing.
#[test]
fn child() {
    let Ok(text) = std::env::var(DIRECTORY) else { return };
    let desk = Numbered::new(std::process::id());
    let calls = desk.calls();
    let running = server("rolling", desk, &text).stop_on_signals().spawn().unwrap();
    println!("\nready");
    running.wait();
    println!("\nran {}", calls.load(Ordering::SeqCst));
}

/// A server process. It is killed when this value is dropped.
struct Process {
    child: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(text: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child", "--nocapture"]).env(DIRECTORY, text);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut process = Self { child, output };
        process.next("ready");
        process
    }

    /// Waits for the next line that begins with this text. Returns the rest of the line.
    fn next(&mut self, begin: &str) -> String {
        let mut lines = self.output.by_ref().map(Result::unwrap);
        lines.find_map(|line| line.strip_prefix(begin).map(str::to_owned)).expect(begin)
    }

    /// Ends the process as a supervisor does. Returns how many calls it has executed.
    fn end(&mut self) -> u64 {
        let process = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &process]).status().unwrap().success());
        let ran = self.next("ran ").parse().unwrap();
        assert!(self.child.wait().unwrap().success());
        ran
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ten server processes are replaced one by one, under eight loaded clients. Not one call fails, and none runs
/// twice.
#[test]
fn all_server_processes_are_replaced_and_no_call_notices() {
    const COUNT: usize = 10;
    let Some(cluster) = Cluster::start(3) else { return };
    let text = cluster.text("p");
    let start = |_| Process::start(&text);
    let mut servers: VecDeque<_> = (0..COUNT).map(start).collect();
    let names: Arc<dyn Directory> = Arc::new(cluster.open("p"));
    let options = BindOptions::default().directory(Arc::clone(&names)).balance(Balance::RoundRobin);
    until("all servers are known", || {
        names.look_up("rolling").is_ok_and(|known| known.servers.len() == COUNT)
    });
    let pools: Vec<_> = (0..8).map(|_| DeskPool::bind_with("rolling", &options).unwrap()).collect();
    let all_use = |count| {
        until("the pools use these servers", || pools.iter().all(|pool| uses(pool, count)));
    };
    all_use(COUNT);
    let (stop, made) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut executed = 0;
    thread::scope(|scope| {
        let call = |pool: &DeskPool| {
            while !stop.load(Ordering::SeqCst) {
                pool.number().expect("each call succeeds");
                made.fetch_add(1, Ordering::SeqCst);
                thread::sleep(Duration::from_micros(200));
            }
        };
        let callers: Vec<_> = pools.iter().map(|pool| scope.spawn(move || call(pool))).collect();
        let replaced = scope.spawn(|| {
            for number in 0..COUNT {
                servers.push_back(start(number));
                all_use(COUNT + 1);
                executed += servers.pop_front().unwrap().end();
                all_use(COUNT);
            }
        });
        let replaced = replaced.join();
        stop.store(true, Ordering::SeqCst);
        let called: Vec<_> = callers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        assert!(replaced.is_ok() && called.iter().all(Result::is_ok));
    });
    executed += servers.iter_mut().map(Process::end).sum::<u64>();
    assert_eq!(executed, made.load(Ordering::SeqCst), "each call was executed once");
}

/// Many clients lose the cluster at the same time. They must not come back at the same time, and each of them
/// needs only a few requests.
#[test]
fn clients_come_back_one_after_the_other() {
    /// Enough clients to be a crowd.
    const CLIENTS: u64 = 32;
    let Some(cluster) = Cluster::start(1) else { return };
    let cables: Vec<_> = (0..CLIENTS).map(|_| Cable::to(cluster.0[0].client)).collect();
    let open = |cable: &Cable| Etcd::open(&format!("//{}/p", cable.address)).unwrap();
    let clients: Vec<_> = cables.iter().map(open).collect();
    let follow = |client: &Etcd| client.watch("files", Box::new(|_| ())).unwrap();
    let watches: Vec<_> = clients.iter().map(follow).collect();
    let is_away = |client: &Etcd| client.look_up("files").unwrap().age.is_some();
    until("all clients have read the names", || !clients.iter().any(is_away));
    let methods = ["Range", "Watch"];
    let before = methods.map(|method| cluster.requests(method));
    let accepted = || cables.iter().map(Cable::accepted).collect::<Vec<_>>();
    cables.iter().for_each(Cable::cut);
    until("all clients notice the loss", || clients.iter().all(is_away));
    let (begun, tried) = (Instant::now(), accepted());
    thread::sleep(Duration::from_secs(5));
    let (outage, attempts) = (begun.elapsed().as_secs(), accepted());
    let (begun, mut back) = (Instant::now(), Vec::new());
    cables.iter().for_each(Cable::mend);
    until("all clients are back", || {
        let count = clients.iter().filter(|one| !is_away(one)).count();
        back.resize(count, begun.elapsed());
        count as u64 == CLIENTS
    });
    // After a failure, a client waits for a second or longer, and an attempt needs few connections.
    for (before, after) in tried.iter().zip(&attempts) {
        assert!(after - before <= 3 * (outage + 1), "{before} to {after} in {outage} s");
    }
    // The count of the names is compared within ten seconds, also once before the loss.
    let [ranges, requests] = methods.map(|method| cluster.requests(method));
    assert_eq!(requests - before[1], CLIENTS, "one watch for each client");
    assert!(ranges - before[0] <= 3 * CLIENTS, "{} reads", ranges - before[0]);
    let millis = |at: usize| back[at].as_millis();
    let (first, middle, last) = (millis(0), millis(back.len() / 2), millis(back.len() - 1));
    let tries: u64 = attempts.iter().zip(&tried).map(|(after, before)| after - before).sum();
    println!(
        "{CLIENTS} clients: {tries} attempts in {outage} s; back after {first}, {middle} and {last} ms \
         (first, middle, last), with {} reads",
        ranges - before[0]
    );
    drop(watches);
}
