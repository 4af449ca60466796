//! Tests the directory with real members of etcd, which are killed, paused, cut off and begun anew. Without the
//! program `etcd`, the tests are skipped.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use peregrine::directory::{Directory, Offer, Offers};
use peregrine_etcd::Etcd;
use serde_json::{Value, json};

/// A member of a cluster.
struct Member {
    client: u16,
    arguments: Vec<String>,
    data: tempfile::TempDir,
    process: Option<Child>,
}

/// A cluster, whose members are killed when this value is dropped.
struct Cluster(Vec<Member>);

impl Member {
    fn start(&mut self) {
        let mut command = Command::new("etcd");
        command.args(&self.arguments).arg("--data-dir").arg(self.data.path().join("data"));
        let quiet = command.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
        self.process = Some(quiet.spawn().expect("etcd starts"));
    }

    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("a member to kill");
            process.wait().expect("a member to wait for");
        }
    }

    /// Makes a request of this member.
    fn ask(&self, what: &str, body: &Value) -> Option<Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.client)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        let body = body.to_string();
        let head = format!("POST /v3/{what} HTTP/1.0\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        head.contains(" 200 ").then(|| serde_json::from_str(body).ok())?
    }
}

impl Cluster {
    /// Starts a cluster, and waits until it has a leader. `None`: there is no `etcd` on this machine.
    fn start(count: usize) -> Option<Self> {
        if Command::new("etcd").arg("--version").output().is_err() {
            println!("skipped: there is no etcd");
            return None;
        }
        // The ports are free at the same time, so they differ.
        let ports: Vec<TcpListener> =
            (0..2 * count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let port = |at: usize| ports[at].local_addr().unwrap().port();
        let peers: Vec<String> =
            (0..count).map(|n| format!("m{n}=http://127.0.0.1:{}", port(count + n))).collect();
        let members = (0..count).map(|n| {
            let (own, peer) = (format!("http://127.0.0.1:{}", port(n)), &peers[n][3..]);
            let arguments = [
                ("--name", format!("m{n}")),
                ("--listen-client-urls", own.clone()),
                ("--advertise-client-urls", own),
                ("--listen-peer-urls", peer.to_owned()),
                ("--initial-advertise-peer-urls", peer.to_owned()),
                ("--initial-cluster", peers.join(",")),
                ("--initial-cluster-token", format!("peregrine-{}", std::process::id())),
                ("--heartbeat-interval", "100".to_owned()),
                ("--election-timeout", "1000".to_owned()),
            ];
            let arguments =
                arguments.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
            let data = tempfile::tempdir().unwrap();
            Member { client: port(n), arguments: arguments.collect(), data, process: None }
        });
        let mut cluster = Self(members.collect());
        drop(ports);
        cluster.0.iter_mut().for_each(Member::start);
        cluster.until_it_answers();
        Some(cluster)
    }

    fn until_it_answers(&self) {
        let all = json!({ "key": encoded("/x") });
        until("the cluster answers", || {
            self.0.iter().any(|one| one.ask("kv/range", &all).is_some())
        });
    }

    /// Returns the text of a directory in this cluster.
    fn text(&self, prefix: &str) -> String {
        let members: Vec<_> =
            self.0.iter().map(|one| format!("127.0.0.1:{}", one.client)).collect();
        format!("//{}/{prefix}", members.join(","))
    }

    fn open(&self, prefix: &str) -> Etcd {
        Etcd::open(&self.text(prefix)).unwrap()
    }

    /// Makes a request of the first member that answers.
    fn ask(&self, what: &str, body: &Value) -> Value {
        let mut answer = None;
        until("a member answers", || {
            answer = self.0.iter().find_map(|one| one.ask(what, body));
            answer.is_some()
        });
        answer.unwrap()
    }

    /// Returns the number of the member that leads.
    fn leader(&self) -> usize {
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

fn encoded(text: &str) -> String {
    STANDARD.encode(text)
}

fn offer(server: &str) -> Offer {
    Offer::new(server, [format!("files@{server}.example.org:7000")]).unwrap()
}

fn names_of(offers: &Offers) -> Vec<String> {
    offers.servers.iter().map(|one| one.server().to_owned()).collect()
}

fn servers(directory: &Etcd) -> Vec<String> {
    names_of(&directory.look_up("files").unwrap())
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < limit, "timed out while waiting: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn registrations_are_seen_by_other_processes() {
    let Some(cluster) = Cluster::start(1) else { return };
    let (own, other) = (cluster.open("p"), cluster.open("p"));
    let (sender, changes) = mpsc::channel();
    let _watch = other.watch("files", Box::new(move |now| sender.send(now).unwrap())).unwrap();
    let next = || names_of(&changes.recv().unwrap());
    assert!(next().is_empty());
    let one = own.register("files", &offer("a")).unwrap();
    assert_eq!(next(), ["a"]);
    let two = own.register("files", &offer("b")).unwrap();
    assert_eq!(next(), ["a", "b"]);
    assert_eq!(other.look_up("files").unwrap().servers, [offer("a"), offer("b")]);
    assert_eq!((other.names().unwrap(), one.problem()), (vec!["files".to_owned()], None));
    drop(one);
    assert_eq!(next(), ["b"]);
    drop(two);
    assert!(next().is_empty());
    // Another prefix is another directory.
    let elsewhere = cluster.open("q");
    let _three = elsewhere.register("files", &offer("c")).unwrap();
    until("the server is known", || servers(&elsewhere) == ["c"]);
    assert!(servers(&other).is_empty());
}

#[test]
fn names_stay_known_while_the_cluster_is_away() {
    let Some(mut cluster) = Cluster::start(1) else { return };
    let directory = cluster.open("p");
    let registered = directory.register("files", &offer("a")).unwrap();
    until("the server is known", || servers(&directory) == ["a"]);
    assert_eq!(directory.look_up("files").unwrap().age, None);
    cluster.0[0].kill();
    until("the loss is noticed", || directory.look_up("files").unwrap().age.is_some());
    assert_eq!(servers(&directory), ["a"]);
    until("the registration is in doubt", || registered.problem().is_some());
    let refused = directory.register("files", &offer("b")).unwrap_err();
    assert!(refused.to_string().contains("etcd at 127.0.0.1"), "{refused}");
    let stranger = cluster.open("p").look_up("files").unwrap_err();
    assert_eq!(stranger.kind(), peregrine::Kind::Unreachable, "{stranger}");
    cluster.0[0].start();
    until("the cluster is heard again", || directory.look_up("files").unwrap().age.is_none());
    until("the registration stands", || registered.problem().is_none());
    assert_eq!(servers(&directory), ["a"]);
}

#[test]
fn cluster_that_begins_anew_gets_the_registrations_again() {
    let Some(mut cluster) = Cluster::start(1) else { return };
    let (own, other) = (cluster.open("p"), cluster.open("p"));
    let _registered = own.register("files", &offer("a")).unwrap();
    (0..20).for_each(|_| drop(own.register("disk", &offer("b")).unwrap()));
    until("the server is known", || servers(&other) == ["a"]);
    cluster.0[0].kill();
    std::fs::remove_dir_all(cluster.0[0].data.path().join("data")).unwrap();
    cluster.0[0].start();
    cluster.until_it_answers();
    until("the server is known again", || {
        let found = other.look_up("files").unwrap();
        found.age.is_none() && names_of(&found) == ["a"]
    });
    let key = json!({ "key": encoded("/p/files/a") });
    until("the key is there", || cluster.ask("kv/range", &key).get("kvs").is_some());
    let _later = own.register("files", &offer("c")).unwrap();
    until("changes are seen again", || servers(&other) == ["a", "c"]);
}

#[test]
fn lost_lease_is_replaced() {
    let Some(cluster) = Cluster::start(1) else { return };
    let directory = cluster.open("p");
    let _registered = directory.register("files", &offer("a")).unwrap();
    let key = json!({ "key": encoded("/p/files/a") });
    let lease = cluster.ask("kv/range", &key)["kvs"][0]["lease"].clone();
    cluster.ask("lease/revoke", &json!({ "ID": lease }));
    until("the loss is seen", || servers(&directory).is_empty());
    until("the server is registered again", || servers(&directory) == ["a"]);
}

#[test]
fn dead_leader_is_replaced_without_a_loss() {
    let Some(mut cluster) = Cluster::start(3) else { return };
    let (own, other) = (cluster.open("p"), cluster.open("p"));
    let registered = own.register("files", &offer("a")).unwrap();
    until("the server is known", || servers(&other) == ["a"]);
    let leader = cluster.leader();
    cluster.0[leader].kill();
    let mut later = None;
    until("the others accept a registration", || {
        later = own.register("files", &offer("b")).ok();
        later.is_some()
    });
    until("changes are seen", || servers(&other) == ["a", "b"]);
    until("all is well", || {
        registered.problem().is_none() && other.look_up("files").unwrap().age.is_none()
    });
    cluster.0[leader].start();
}

#[test]
fn member_without_the_others_is_left() {
    let Some(cluster) = Cluster::start(3) else { return };
    let (own, other) = (cluster.open("p"), cluster.open("p"));
    let _registered = own.register("files", &offer("a")).unwrap();
    until("the server is known", || servers(&other) == ["a"]);
    // Two of three members stop without closing a connection, so the third one has no leader.
    for member in &cluster.0[1..] {
        signal(member, "STOP");
    }
    until("the loss is noticed", || other.look_up("files").unwrap().age.is_some());
    assert_eq!(servers(&other), ["a"]);
    for member in &cluster.0[1..] {
        signal(member, "CONT");
    }
    until("the cluster is heard again", || other.look_up("files").unwrap().age.is_none());
    until("the server is registered", || servers(&other) == ["a"]);
}

fn signal(member: &Member, signal: &str) {
    let process = member.process.as_ref().unwrap().id().to_string();
    let sent = Command::new("kill").args([&format!("-{signal}"), &process]).status().unwrap();
    assert!(sent.success());
}

/// Passes on connections to one port until it is cut.
struct Cable {
    address: SocketAddr,
    is_cut: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Cable {
    fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (is_cut, open) = (Arc::new(AtomicBool::new(false)), Arc::<Mutex<Vec<_>>>::default());
        let (cut, all) = (Arc::clone(&is_cut), Arc::clone(&open));
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
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
        Self { address, is_cut, open }
    }

    fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn mend(&self) {
        self.is_cut.store(false, Ordering::SeqCst);
    }
}

#[test]
fn changes_that_were_missed_are_made_up_for() {
    let Some(cluster) = Cluster::start(1) else { return };
    let cable = Cable::to(cluster.0[0].client);
    let (own, other) = (cluster.open("p"), Etcd::open(&format!("//{}/p", cable.address)).unwrap());
    let first = own.register("files", &offer("a")).unwrap();
    until("the server is known", || servers(&other) == ["a"]);
    for compacts in [false, true] {
        cable.cut();
        until("the loss is noticed", || other.look_up("files").unwrap().age.is_some());
        let missed = own.register("files", &offer("b")).unwrap();
        let _other = own.register("files", &offer("c")).unwrap();
        drop(missed);
        if compacts {
            let now = cluster.ask("kv/range", &json!({ "key": encoded("/x") }));
            let revision = now["header"]["revision"].clone();
            cluster.ask("kv/compaction", &json!({ "revision": revision }));
        }
        assert_eq!(servers(&other), ["a"]);
        cable.mend();
        until("the changes are known", || servers(&other) == ["a", "c"]);
        drop(_other);
        until("changes are seen", || servers(&other) == ["a"]);
    }
    drop(first);
}

#[test]
fn garbage_below_the_prefix_is_ignored_and_told() {
    let Some(cluster) = Cluster::start(1) else { return };
    let directory = cluster.open("p");
    let _registered = directory.register("files", &offer("a")).unwrap();
    for (key, value) in
        [("/p/files/x", "{"), ("/p/files", "x"), ("/p/../a", "{}"), ("/p/files/a/b", "{}")]
    {
        cluster.ask("kv/put", &json!({ "key": encoded(key), "value": encoded(value) }));
    }
    until("the garbage is told", || !directory.look_up("files").unwrap().remarks.is_empty());
    let found = directory.look_up("files").unwrap();
    assert_eq!(names_of(&found), ["a"]);
    assert!(found.remarks[0].starts_with("/p/files/x: EOF"), "{:?}", found.remarks);
}
