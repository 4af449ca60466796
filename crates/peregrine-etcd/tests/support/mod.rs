//! Members of etcd, cables that are cut, and what the tests of this crate share.

// Each test program uses only a part of this module.
#![allow(dead_code)]

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use peregrine::directory::{Directory, Offer, Offers};
use peregrine::interface;
use peregrine_etcd::Etcd;
use serde_json::{Value, json};

/// The interface of the servers that these tests register.
#[interface]
pub(crate) trait Desk {
    fn number(&self) -> peregrine::Result<u32>;
}

/// Answers with its number, and counts its calls.
pub(crate) struct Numbered(u32, Arc<AtomicU64>);

impl Numbered {
    pub(crate) fn new(number: u32) -> Self {
        Self(number, Arc::default())
    }

    pub(crate) fn calls(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.1)
    }
}

impl Desk for Numbered {
    fn number(&self) -> peregrine::Result<u32> {
        self.1.fetch_add(1, Ordering::SeqCst);
        Ok(self.0)
    }
}

/// A member of a cluster.
pub(crate) struct Member {
    pub(crate) client: u16,
    /// The port at which the member always answers without TLS, with its metrics.
    metrics: u16,
    arguments: Vec<String>,
    pub(crate) data: tempfile::TempDir,
    pub(crate) process: Option<Child>,
}

/// A cluster, whose members are killed when this value is dropped.
pub(crate) struct Cluster(pub(crate) Vec<Member>);

impl Member {
    pub(crate) fn start(&mut self) {
        let mut command = Command::new("etcd");
        command.args(&self.arguments).arg("--data-dir").arg(self.data.path().join("data"));
        let quiet = command.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
        self.process = Some(quiet.spawn().expect("etcd starts"));
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("a member to kill");
            process.wait().expect("a member to wait for");
        }
    }

    /// Makes a request of this member.
    pub(crate) fn ask(&self, what: &str, body: &Value) -> Option<Value> {
        let body = body.to_string();
        let head = format!("POST /v3/{what} HTTP/1.0\r\nContent-Length: {}\r\n\r\n", body.len());
        serde_json::from_str(&exchange(self.client, &(head + &body))?).ok()
    }

    /// Returns a page of this member.
    fn get(&self, page: &str) -> Option<String> {
        exchange(self.metrics, &format!("GET /{page} HTTP/1.0\r\n\r\n"))
    }

    fn is_healthy(&self) -> bool {
        self.get("health").is_some_and(|text| text.contains("true"))
    }
}

/// Makes a request. Returns the body of the answer, unless it is an error.
fn exchange(port: u16, request: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.lines().next()?.contains(" 200 ").then(|| body.to_owned())
}

impl Cluster {
    /// Starts a cluster, and waits until it has a leader. `None`: there is no `etcd` on this machine.
    pub(crate) fn start(count: usize) -> Option<Self> {
        Self::start_with(count, "http", &[])
    }

    /// Starts a cluster whose members have these further arguments.
    pub(crate) fn start_with(count: usize, scheme: &str, further: &[&str]) -> Option<Self> {
        if Command::new("etcd").arg("--version").output().is_err() {
            println!("skipped: there is no etcd");
            return None;
        }
        // Another program may take one of the ports before its member does. Then the member ends.
        for _ in 0..10 {
            let mut cluster = Self::of(count, scheme, further);
            cluster.0.iter_mut().for_each(Member::start);
            let mut has_failed = false;
            until("the cluster answers", || {
                let ended = |one: &mut Member| {
                    one.process.as_mut().is_some_and(|it| it.try_wait().unwrap().is_some())
                };
                has_failed = cluster.0.iter_mut().any(ended);
                has_failed || cluster.0.iter().any(Member::is_healthy)
            });
            if !has_failed {
                return Some(cluster);
            }
        }
        panic!("no cluster could be started");
    }

    fn of(count: usize, scheme: &str, further: &[&str]) -> Self {
        // The ports are free at the same time, so they differ.
        let ports: Vec<TcpListener> =
            (0..3 * count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let port = |at: usize| ports[at].local_addr().unwrap().port();
        let peers: Vec<String> =
            (0..count).map(|n| format!("m{n}=http://127.0.0.1:{}", port(count + n))).collect();
        let members = (0..count).map(|n| {
            let own = format!("{scheme}://127.0.0.1:{}", port(n));
            let metrics = port(2 * count + n);
            let peer = &peers[n][3..];
            let arguments = [
                ("--name", format!("m{n}")),
                ("--listen-client-urls", own.clone()),
                ("--advertise-client-urls", own),
                ("--listen-peer-urls", peer.to_owned()),
                ("--initial-advertise-peer-urls", peer.to_owned()),
                ("--listen-metrics-urls", format!("http://127.0.0.1:{metrics}")),
                ("--initial-cluster", peers.join(",")),
                ("--initial-cluster-token", format!("peregrine-{}", std::process::id())),
                ("--heartbeat-interval", "100".to_owned()),
                ("--election-timeout", "1000".to_owned()),
            ];
            let arguments =
                arguments.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
            let arguments = arguments.chain(further.iter().map(ToString::to_string));
            let data = tempfile::tempdir().unwrap();
            Member { client: port(n), metrics, arguments: arguments.collect(), data, process: None }
        });
        Self(members.collect())
    }

    pub(crate) fn until_it_answers(&self) {
        until("the cluster answers", || self.0.iter().any(Member::is_healthy));
    }

    /// Kills all members, and starts them without their data.
    pub(crate) fn begin_anew(&mut self) {
        self.0.iter_mut().for_each(Member::kill);
        for member in &mut self.0 {
            std::fs::remove_dir_all(member.data.path().join("data")).unwrap();
            member.start();
        }
        self.until_it_answers();
    }

    /// Returns how many requests of a method the first member has begun to answer.
    pub(crate) fn requests(&self, method: &str) -> u64 {
        let mut found = None;
        until("the member has metrics", || {
            found = self.0[0].get("metrics").map(|text| {
                let name = format!("grpc_method=\"{method}\"");
                let mut lines = text.lines().filter(|line| {
                    line.starts_with("grpc_server_started_total{") && line.contains(&name)
                });
                lines.next().map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
            });
            found.is_some()
        });
        found.unwrap()
    }

    /// Returns the text of a directory in this cluster.
    pub(crate) fn text(&self, prefix: &str) -> String {
        let members: Vec<_> =
            self.0.iter().map(|one| format!("127.0.0.1:{}", one.client)).collect();
        format!("//{}/{prefix}", members.join(","))
    }

    pub(crate) fn open(&self, prefix: &str) -> Etcd {
        Etcd::open(&self.text(prefix)).unwrap()
    }

    /// Makes a request of the first member that answers.
    pub(crate) fn ask(&self, what: &str, body: &Value) -> Value {
        let mut answer = None;
        until("a member answers", || {
            answer = self.0.iter().find_map(|one| one.ask(what, body));
            answer.is_some()
        });
        answer.unwrap()
    }

    /// Returns the number of the member that leads.
    pub(crate) fn leader(&self) -> usize {
        let id = |value: &Value| value.as_str().map(str::to_owned);
        let mut found = None;
        until("the cluster has a leader", || {
            found = self.0.iter().position(|one| {
                let status = one.ask("maintenance/status", &json!({}));
                status.is_some_and(|status| {
                    let leader = id(&status["leader"]);
                    leader.is_some() && leader == id(&status["header"]["member_id"])
                })
            });
            found.is_some()
        });
        found.unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(Member::kill);
    }
}

pub(crate) fn encoded(text: &str) -> String {
    STANDARD.encode(text)
}

pub(crate) fn offer(server: &str) -> Offer {
    Offer::new(server, [format!("files@{server}.example.org:7000")]).unwrap()
}

pub(crate) fn names_of(offers: &Offers) -> Vec<String> {
    offers.servers.iter().map(|one| one.server().to_owned()).collect()
}

pub(crate) fn servers(directory: &Etcd) -> Vec<String> {
    names_of(&directory.look_up("files").unwrap())
}

pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < limit, "timed out while waiting: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn signal(member: &Member, signal: &str) {
    let process = member.process.as_ref().unwrap().id().to_string();
    let sent = Command::new("kill").args([&format!("-{signal}"), &process]).status().unwrap();
    assert!(sent.success());
}

/// Passes on connections to one port until it is cut.
pub(crate) struct Cable {
    pub(crate) address: SocketAddr,
    is_cut: Arc<AtomicBool>,
    accepted: Arc<AtomicU64>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Cable {
    pub(crate) fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (is_cut, open) = (Arc::new(AtomicBool::new(false)), Arc::<Mutex<Vec<_>>>::default());
        let accepted = Arc::<AtomicU64>::default();
        let (cut, all, count) = (Arc::clone(&is_cut), Arc::clone(&open), Arc::clone(&accepted));
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::SeqCst);
                if cut.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                for (mut from, mut to) in [
                    (near.try_clone().unwrap(), far.try_clone().unwrap()),
                    (far.try_clone().unwrap(), near.try_clone().unwrap()),
                ] {
                    thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
                all.lock().unwrap().extend([near, far]);
            }
        });
        Self { address, is_cut, accepted, open }
    }

    /// Returns how many connections were opened, also while the cable was cut.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::SeqCst)
    }

    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn mend(&self) {
        self.is_cut.store(false, Ordering::SeqCst);
    }
}
