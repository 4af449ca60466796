//! Tests servers that register in a directory, here a tree of files, and clients that find them there.
#![cfg(feature = "json")]

mod support;

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use peregrine::directory::{Directory, Offer, Standing, Tree};
use peregrine::{Address, BindOptions, ExportOptions, Kind, Phase, Running, Server, interface};
use support::{Process, alone, own_directory, role, until};

/// How long procedures may run while a server stops.
const LIMIT: Duration = Duration::from_secs(60);

#[interface]
trait Desk {
    /// Returns the number of the desk.
    fn number(&self) -> peregrine::Result<u32>;
    /// Reports to the test that it runs, and waits until the test continues it. Returns the number.
    fn wait(&self) -> peregrine::Result<u32>;
}

struct Numbered {
    number: u32,
    runs: Mutex<Sender<()>>,
    continues: Mutex<Receiver<()>>,
}

impl Desk for Numbered {
    fn number(&self) -> peregrine::Result<u32> {
        Ok(self.number)
    }
    fn wait(&self) -> peregrine::Result<u32> {
        self.runs.lock().unwrap().send(()).unwrap();
        self.continues.lock().unwrap().recv_timeout(LIMIT).unwrap();
        Ok(self.number)
    }
}

/// The ends of the channels of one desk that the test has.
type Ends = (Receiver<()>, Sender<()>);

fn desk(number: u32) -> (DeskServer<Numbered>, Ends) {
    let ((runs, ran), (go, continues)) = (channel(), channel());
    let (runs, continues) = (Mutex::new(runs), Mutex::new(continues));
    (DeskServer::new(Numbered { number, runs, continues }), (ran, go))
}

/// Starts a server of `desk`, which networks only can call, so that several fit on one machine.
fn serve(number: u32, tree: &Tree) -> (Running, Ends) {
    let (object, ends) = desk(number);
    let options = ExportOptions::default().networks_only();
    let server = Server::new().export_with("desk", object, options).unwrap();
    let server = server.listen("127.0.0.1:0").unwrap().register_in(tree.clone());
    (server.advertise("127.0.0.1").unwrap().spawn().unwrap(), ends)
}

fn tree() -> (tempfile::TempDir, Tree) {
    let dir = tempfile::tempdir().unwrap();
    let tree = Tree::at(dir.path());
    (dir, tree)
}

fn client(tree: &Tree) -> DeskClient {
    DeskClient::bind_with("desk", &BindOptions::default().directory(tree.clone())).unwrap()
}

fn servers(tree: &Tree) -> usize {
    tree.look_up("desk").unwrap().servers.len()
}

#[test]
fn clients_find_the_next_server_when_one_stops() {
    let _alone = alone();
    let _directory = own_directory();
    let (_dir, tree) = tree();
    let (one, _ends) = serve(1, &tree);
    let desk = client(&tree);
    assert_eq!((servers(&tree), desk.number().unwrap()), (1, 1));
    let (two, _ends) = serve(2, &tree);
    assert_eq!(servers(&tree), 2);
    one.stop();
    assert_eq!(servers(&tree), 1);
    // Over UDP, a call may be sent before the client learns that its server has ended. It is then uncertain
    // whether the call was executed, so the client does not repeat it.
    until("the client finds the next server", || desk.number().is_ok_and(|number| number == 2));
    two.stop();
    until("the client learns that no server is left", || {
        let error = desk.number().unwrap_err();
        let is_certain = error.executed() == peregrine::Executed::No;
        is_certain && error.to_string().contains("not in files below")
    });
    let (_three, _ends) = serve(3, &tree);
    // After a failed attempt that took long, the client does not bind again at once.
    until("the client binds again", || desk.number().is_ok_and(|number| number == 3));
}

#[test]
fn server_with_a_text_of_its_own_is_the_same_after_a_restart() {
    let _directory = own_directory();
    let (_dir, tree) = tree();
    let known = || {
        let found = tree.look_up("desk").unwrap().servers;
        found.iter().map(|one| one.server().to_owned()).collect::<Vec<_>>()
    };
    let start = || {
        let options = ExportOptions::default().networks_only();
        let server = Server::new().export_with("desk", desk(1).0, options).unwrap();
        let server = server.listen("127.0.0.1:0").unwrap().advertise("127.0.0.1").unwrap();
        server.register_in(tree.clone())
    };
    for _ in 0..2 {
        let running = start().registered_as("fs-3").unwrap().spawn().unwrap();
        assert_eq!(known(), ["fs-3"]);
        running.stop();
        assert!(known().is_empty());
    }
    let random: Vec<_> = (0..2)
        .map(|_| {
            let running = start().spawn().unwrap();
            let known = known();
            running.stop();
            known
        })
        .collect();
    assert!(random[0].len() == 1 && random[1].len() == 1 && random[0] != random[1], "{random:?}");
    let error = start().registered_as("../x").unwrap_err();
    assert_eq!((error.kind(), error.phase()), (Kind::BadName, Phase::Export));
    assert!(error.to_string().contains("`../x` cannot identify a server"), "{error}");
}

#[test]
fn server_that_drains_is_withdrawn_first() {
    let _alone = alone();
    let _directory = own_directory();
    let (_dir, tree) = tree();
    let (running, (ran, go)) = serve(1, &tree);
    let desk = client(&tree);
    thread::scope(|scope| {
        let call = scope.spawn(|| desk.wait());
        ran.recv().unwrap();
        let drained = scope.spawn(|| running.drain(LIMIT));
        until("the server is withdrawn", || servers(&tree) == 0);
        assert!(!drained.is_finished());
        go.send(()).unwrap();
        assert_eq!(call.join().unwrap().unwrap(), 1);
        assert!(drained.join().unwrap());
    });
}

/// A directory that accepts registrations, and does not answer when they are withdrawn.
#[derive(Debug)]
struct Dead {
    /// Gets the name of the thread of each withdrawal.
    leaves: Sender<String>,
    continues: Arc<Mutex<Receiver<()>>>,
}

impl Directory for Dead {
    fn offers(&self, _: &str) -> peregrine::Result<Vec<Address>> {
        Ok(Vec::new())
    }
    fn describe(&self) -> String {
        "a dead directory".to_owned()
    }
    fn register(&self, _: &str, _: &Offer) -> peregrine::Result<Standing> {
        let (leaves, continues) = (self.leaves.clone(), Arc::clone(&self.continues));
        let end = move || {
            leaves.send(thread::current().name().unwrap_or_default().to_owned()).unwrap();
            // The test continues it after the server has ended. Without a limit, a failure would hang.
            continues.lock().unwrap().recv_timeout(LIMIT).expect("the server has ended before");
        };
        Ok(Standing::new(end, || None))
    }
}

#[test]
fn directory_that_does_not_answer_does_not_delay_the_end_of_a_server() {
    let _alone = alone();
    let _directory = own_directory();
    let ((leaves, left), (go, continues)) = (channel(), channel());
    let names = Dead { leaves, continues: Arc::new(Mutex::new(continues)) };
    let server = Server::new().listen("127.0.0.1:0").unwrap().register_in(names);
    let running = server.advertise("127.0.0.1").unwrap().spawn().unwrap();
    for name in ["one", "two", "three"] {
        let options = ExportOptions::default().networks_only();
        running.export_with(name, desk(1).0, options).unwrap();
    }
    assert!(running.withdraw("one"));
    assert_eq!(left.recv_timeout(LIMIT).unwrap(), "peregrine-leave");
    running.stop();
    // The withdrawals go on after the end of the server.
    for _ in 0..3 {
        go.send(()).unwrap();
    }
    for _ in 0..2 {
        assert_eq!(left.recv_timeout(LIMIT).unwrap(), "peregrine-leave");
    }
}

#[test]
fn exports_are_registered_and_withdrawn_one_by_one() {
    let _alone = alone();
    let _directory = own_directory();
    let (_dir, tree) = tree();
    let server = Server::new().listen("127.0.0.1:0").unwrap().register_in(tree.clone());
    let running = server.advertise("gate.example.org:70").unwrap().spawn().unwrap();
    assert!(tree.names().unwrap().is_empty());
    running.export_with("desk", desk(1).0, ExportOptions::default()).unwrap();
    let offer = tree.look_up("desk").unwrap().servers.remove(0);
    assert_eq!(offer.addresses()[0].to_string(), "desk@gate.example.org:70");
    assert!(running.registration_problems().is_empty());
    assert!(running.withdraw("desk") && !running.withdraw("desk"));
    assert!(tree.names().unwrap().is_empty());
    running.export_with("hidden", desk(2).0, ExportOptions::default().unregistered()).unwrap();
    assert!(tree.names().unwrap().is_empty(), "an export may opt out");
    let named = format!("hidden@{}", running.addresses()[0].place());
    assert_eq!(DeskClient::bind(&named).unwrap().number().unwrap(), 2);
}

#[test]
fn server_does_not_start_if_clients_could_not_find_it() {
    let _alone = alone();
    let _directory = own_directory();
    let (dir, tree) = tree();
    let server = Server::new().export("desk", desk(1).0).unwrap();
    let server = server.listen("127.0.0.1:0").unwrap().register_in(tree);
    let error = server.spawn().expect_err("no server");
    assert_eq!((error.kind(), error.phase()), (Kind::BadName, Phase::Export));
    assert!(error.to_string().contains("other machines cannot reach tcp:127.0.0.1:"), "{error}");
    for host in ["no host", "", "fs1:0", "a@b", "fs1\n"] {
        let error = Server::new().advertise(host).expect_err("no host");
        assert_eq!((error.kind(), error.phase()), (Kind::BadName, Phase::Export), "{host:?}");
    }
    let missing = Tree::at(dir.path().join("missing"));
    let server = Server::new().export("desk", desk(1).0).unwrap();
    let server = server.listen("127.0.0.1:0").unwrap().register_in(missing);
    let error = server.advertise("127.0.0.1").unwrap().spawn().expect_err("no server");
    assert_eq!((error.kind(), error.phase()), (Kind::System, Phase::Export), "{error}");
    assert!(error.to_string().contains("missing"), "{error}");
}

/// Does the work of a child process: `server PATH` or `client PATH`.
#[test]
fn child() {
    let Some(role) = role() else { return };
    let (what, path) = role.split_once(' ').unwrap();
    if what == "server" {
        let (_running, _ends) = serve(7, &Tree::at(path).lease(Duration::from_secs(1)));
        println!("\nready");
        let _ = std::io::stdin().read_line(&mut String::new());
        return;
    }
    // The environment chooses the directory of the whole program.
    // SAFETY: this process has only the threads of the test program, which use no environment now.
    unsafe { std::env::set_var("PEREGRINE_DIRECTORY", format!("file:{path}")) };
    println!("\nready");
    println!("number {}", DeskClient::bind("desk").unwrap().number().unwrap());
    // SAFETY: as above.
    unsafe { std::env::set_var("PEREGRINE_DIRECTORY", "nis:domain") };
    println!("error {}", DeskClient::bind("desk").unwrap_err());
}

fn start(what: &str, dir: &Path, runtime: &Path) -> Process {
    Process::start("child", &format!("{what} {}", dir.display()), runtime)
}

#[test]
fn killed_server_is_left_out_after_its_lease() {
    let _alone = alone();
    let directory = own_directory();
    let (dir, tree) = tree();
    let mut killed = start("server", dir.path(), directory.path());
    let (_running, _ends) = serve(1, &tree);
    // On a busy machine, the lease of the other process may be over for a moment.
    until("both servers are registered", || servers(&tree) == 2);
    killed.kill();
    until("the lease of the killed server is over", || servers(&tree) == 1);
    assert_eq!(client(&tree).number().unwrap(), 1);
}

#[test]
fn environment_chooses_the_directory() {
    let _alone = alone();
    let directory = own_directory();
    let (dir, tree) = tree();
    let (_running, _ends) = serve(5, &tree);
    let mut client = start("client", dir.path(), directory.path());
    assert_eq!(client.until("number "), "5");
    let error = client.until("error ");
    assert!(
        error.contains("$PEREGRINE_DIRECTORY: `nis:domain`: the directories of this program are"),
        "{error}"
    );
}

#[test]
fn garbage_in_the_directory_is_told_to_clients_that_find_no_server() {
    let _alone = alone();
    let _directory = own_directory();
    let (dir, tree) = tree();
    std::fs::create_dir(dir.path().join("desk")).unwrap();
    std::fs::write(dir.path().join("desk/by-hand.json"), "desk@fs1\n").unwrap();
    let options = BindOptions::default().directory(tree.clone());
    let error = DeskClient::bind_with("desk", &options).unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound, "{error}");
    assert!(error.to_string().contains("desk/by-hand.json:1: expected value"), "{error}");
    // A line that a person has written.
    let (_elsewhere, other) = self::tree();
    let (running, _ends) = serve(4, &other);
    let port = running.addresses()[0].place().port();
    let line = format!("{{\"server\":\"one\",\"addresses\":[\"desk@127.0.0.1:{port}\"]}}\n");
    std::fs::write(dir.path().join("desk/by-hand.json"), line).unwrap();
    assert_eq!(client(&tree).number().unwrap(), 4);
}

#[test]
fn server_that_is_registered_twice_is_one_server() {
    let (_dir, tree) = tree();
    let offer = Offer::new("one", ["desk@127.0.0.1:7000"]).unwrap();
    let first = tree.register("desk", &offer).unwrap();
    let second = tree.register("desk", &offer).unwrap();
    assert_eq!(servers(&tree), 1);
    drop((first, second));
    assert_eq!(servers(&tree), 0);
    let _shared: Arc<dyn Directory> = Arc::new(tree);
}
