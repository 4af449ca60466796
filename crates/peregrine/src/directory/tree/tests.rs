//! Tests a tree of files.

use std::fs::File;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::mpsc;

use super::*;
use crate::error::Kind;

fn tree() -> (tempfile::TempDir, Tree) {
    let dir = tempfile::tempdir().unwrap();
    let tree = Tree::at(dir.path());
    (dir, tree)
}

fn offer(server: &str) -> Offer {
    Offer::new(server, [format!("files@{server}.example.org:7000")]).unwrap()
}

fn servers(tree: &Tree) -> Vec<String> {
    let found = tree.look_up("files").unwrap();
    found.servers.iter().map(|one| one.server().to_owned()).collect()
}

/// Writes a file for `files`, which was modified `age` ago.
fn write(dir: &Path, file: &str, text: &str, age: Duration) {
    fs::create_dir_all(dir.join("files")).unwrap();
    let path = dir.join("files").join(file);
    fs::write(&path, text).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
}

fn line(server: &str, lease: Option<u64>) -> String {
    Record { offer: offer(server), lease: lease.map(Duration::from_secs) }.to_line()
}

#[test]
fn registration_lasts_until_it_is_dropped() {
    let (dir, tree) = tree();
    assert!(tree.names().unwrap().is_empty() && servers(&tree).is_empty());
    let one = tree.register("files", &offer("a")).unwrap();
    let other = tree.register("files", &offer("b")).unwrap();
    assert_eq!(
        (servers(&tree), tree.names().unwrap()),
        (["a", "b"].map(String::from).into(), vec!["files".into()])
    );
    assert_eq!((one.problem(), other.problem()), (None, None));
    drop(one);
    assert_eq!(servers(&tree), ["b"]);
    drop(other);
    assert!(servers(&tree).is_empty() && tree.names().unwrap().is_empty());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn lost_registration_is_made_again() {
    let (dir, tree) = tree();
    let tree = tree.lease(Duration::from_secs(1));
    let standing = tree.register("files", &offer("a")).unwrap();
    let files = dir.path().join("files");
    // The thread may write the file between two of these steps.
    until(|| fs::remove_dir_all(&files).is_ok());
    until(|| servers(&tree) == ["a"]);
    fs::write(files.join("a.json"), "").unwrap();
    until(|| servers(&tree) == ["a"]);
    // Where the directory of the name should be is a file: the thread reports it, and goes on trying.
    until(|| fs::remove_dir_all(&files).is_ok() && fs::write(&files, "").is_ok());
    until(|| standing.problem().is_some_and(|problem| problem.contains("cannot renew")));
    fs::remove_file(dir.path().join("files")).unwrap();
    until(|| servers(&tree) == ["a"] && standing.problem().is_none());
}

#[test]
fn later_server_of_one_identity_counts_and_the_earlier_one_is_told() {
    let (dir, tree) = tree();
    let tree = tree.lease(Duration::from_secs(1));
    let earlier = tree.register("files", &offer("a")).unwrap();
    // Another process has another value for the same tree.
    let elsewhere = Tree::at(dir.path()).lease(Duration::from_secs(3600));
    let moved = Offer::new("a", ["files@elsewhere.example.org:7000"]).unwrap();
    let later = elsewhere.register("files", &moved).unwrap();
    until(|| earlier.problem().is_some_and(|problem| problem.contains("another server")));
    assert_eq!(tree.look_up("files").unwrap().servers, [moved]);
    assert_eq!(later.problem(), None);
    drop(later);
    until(|| tree.look_up("files").unwrap().servers == [offer("a")]);
    until(|| earlier.problem().is_none());
    // The end of the earlier one does not remove the file of the later one.
    let later = elsewhere.register("files", &offer("b")).unwrap();
    drop(earlier);
    assert_eq!(servers(&tree), ["b"]);
    drop(later);
    // Two registrations of one process with the same addresses are one server, until both have ended.
    let (one, two) = (
        tree.register("files", &offer("a")).unwrap(),
        tree.register("files", &offer("a")).unwrap(),
    );
    drop(two);
    assert_eq!(servers(&tree), ["a"]);
    drop(one);
    assert!(servers(&tree).is_empty());
}

#[test]
fn late_withdrawal_leaves_the_file_of_the_successor() {
    let (dir, tree) = tree();
    let before = tree.register("files", &offer("a")).unwrap();
    // Another process, with the same identity and the same addresses.
    let after = Tree::at(dir.path()).register("files", &offer("a")).unwrap();
    drop(before);
    assert_eq!(servers(&tree), ["a"]);
    drop(after);
    assert!(servers(&tree).is_empty());
}

#[test]
fn long_leases_are_renewed_as_often_as_short_ones() {
    assert_eq!(every(Duration::from_secs(3)), Duration::from_secs(1));
    assert_eq!(every(Duration::from_secs(300)), RENEW_MAX);
}

#[test]
fn number_of_files_is_bounded() {
    let (dir, tree) = tree();
    for n in (0..limits::SERVERS_MAX + 3).rev() {
        write(dir.path(), &format!("{n:04}.json"), "", Duration::ZERO);
    }
    let (files, is_cut) = files_of(&dir.path().join("files")).unwrap();
    let last = format!("{:04}.json", limits::SERVERS_MAX - 1);
    assert_eq!((files.len(), files.last(), is_cut), (limits::SERVERS_MAX, Some(&last), true));
    assert!(tree.look_up("files").unwrap().remarks[0].ends_with("only 1024 files are read"));
}

#[test]
fn files_of_other_machines_and_of_killed_processes_are_no_obstacle() {
    let (dir, tree) = tree();
    // A process of another machine, which has the same number, writes these files now.
    for n in 0..300 {
        write(dir.path(), &format!(".{}-{n}.new", std::process::id()), "", Duration::ZERO);
    }
    write(dir.path(), ".old.new", "", Duration::from_secs(3600));
    let _registered = tree.register("files", &offer("a")).unwrap();
    assert_eq!(servers(&tree), ["a"]);
    let left = fs::read_dir(dir.path().join("files")).unwrap();
    let left: Vec<_> = left.map(|one| one.unwrap().file_name()).collect();
    assert_eq!(left.len(), 301, "300 files of the other machine, and the registration");
    assert!(!left.iter().any(|name| name == ".old.new"), "the file of a killed process is removed");
}

#[test]
fn renewed_file_becomes_no_older_than_its_lease() {
    let (dir, tree) = tree();
    let tree = tree.lease(Duration::from_secs(1));
    let _standing = tree.register("files", &offer("a")).unwrap();
    let file = File::options().write(true).open(dir.path().join("files/a.json")).unwrap();
    let old = SystemTime::now() - Duration::from_secs(1000);
    file.set_modified(old).unwrap();
    until(|| file.metadata().unwrap().modified().unwrap() > old + Duration::from_secs(500));
}

#[test]
fn server_whose_lease_is_over_counts_only_if_there_is_no_other() {
    let (dir, tree) = tree();
    write(dir.path(), "a.json", &line("a", Some(30)), Duration::from_secs(60));
    assert_eq!(servers(&tree), ["a"], "the clock may be wrong");
    write(dir.path(), "b.json", &line("b", Some(30)), Duration::ZERO);
    assert_eq!(servers(&tree), ["b"]);
    write(dir.path(), "c.json", &line("c", None), Duration::from_secs(1_000_000));
    assert_eq!(servers(&tree), ["b", "c"], "a line without a lease never ends");
}

/// What counts is the clock of the file system. If that of this machine is ahead, all servers seem to be dead.
#[test]
fn wrong_clock_removes_no_living_server() {
    let (dir, _) = tree();
    let behind = Duration::from_secs(10_000);
    write(dir.path(), "own.json", &line("own", Some(30)), behind);
    write(dir.path(), "a.json", &line("a", Some(30)), behind + Duration::from_secs(20));
    write(dir.path(), "dead.json", &line("dead", Some(30)), behind + Duration::from_secs(1000));
    let place = dir.path().join("files");
    remove_dead(&place, &place.join("own.json"));
    let mut left: Vec<_> =
        fs::read_dir(&place).unwrap().map(|one| one.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["a.json", "own.json"]);
}

#[test]
fn garbage_is_ignored_and_told() {
    let (dir, tree) = tree();
    let two = format!("{}\n\n{}\n", line("a", None), line("b", None));
    write(dir.path(), "1.json", &two, Duration::ZERO);
    write(dir.path(), "2.json", "{\"server\":\"c\"\n", Duration::ZERO);
    write(dir.path(), "3.json", &line("a", None), Duration::ZERO);
    write(dir.path(), "4.json", &"x".repeat(limits::RECORD_BYTES_MAX + 1), Duration::ZERO);
    write(dir.path(), "5.json", "\u{0}", Duration::ZERO);
    // These are not read at all.
    write(dir.path(), ".6.json", "garbage", Duration::ZERO);
    write(dir.path(), "7.txt", "garbage", Duration::ZERO);
    let place = dir.path().join("files");
    fs::create_dir(place.join("8.json")).unwrap();
    assert!(Command::new("mkfifo").arg(place.join("9.json")).status().unwrap().success());
    symlink("/nonexistent", place.join("link.json")).unwrap();
    let found = tree.look_up("files").unwrap();
    let names: Vec<_> = found.servers.iter().map(Offer::server).collect();
    assert_eq!(names, ["a", "b"]);
    let remarks = found.remarks.join("\n");
    for remark in [
        "2.json:1: EOF",
        "4.json: it has more than 65536 bytes",
        "5.json:1: expected value",
        "8.json: it is not a file",
        "9.json: it is not a file",
        "one more server called a at files@a.example.org:7000",
    ] {
        assert!(remarks.contains(remark), "{remark} in {remarks}");
    }
    assert!(!remarks.contains("garbage") && !remarks.contains("7.txt"), "{remarks}");
}

#[test]
fn number_of_servers_is_bounded() {
    let (dir, tree) = tree();
    let many: String = (0..400).map(|n| line(&format!("s{n}"), None) + "\n").collect();
    for file in 0..3 {
        // The addresses also differ: servers at the same addresses count once.
        let text = many.replace("\"server\":\"s", &format!("\"server\":\"s{file}-"));
        let text = text.replace("files@s", &format!("files@s{file}-"));
        write(dir.path(), &format!("{file}.json"), &text, Duration::ZERO);
    }
    let found = tree.look_up("files").unwrap();
    assert_eq!(found.servers.len(), limits::SERVERS_MAX);
    assert_eq!(found.remarks, ["176 servers are left out: there are 1024 servers"]);
}

#[test]
fn tree_must_exist_and_names_must_be_valid() {
    let missing = Tree::at("/nonexistent/tree");
    let errors = [
        missing.look_up("files").unwrap_err(),
        missing.names().unwrap_err(),
        missing.register("files", &offer("a")).unwrap_err(),
        missing.watch("files", Box::new(|_| ())).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), Kind::System);
        assert!(error.to_string().contains("reading /nonexistent/tree"), "{error}");
    }
    let (_dir, tree) = tree();
    for name in ["../x", "", ".x", "a/b"] {
        assert_eq!(tree.look_up(name).unwrap_err().kind(), Kind::BadName);
        assert_eq!(tree.register(name, &offer("a")).unwrap_err().kind(), Kind::BadName);
    }
}

#[test]
fn watcher_is_told_what_is_known_and_each_change() {
    let (dir, tree) = tree();
    let (sender, changes) = mpsc::channel();
    let watch = tree.watch("files", Box::new(move |now| sender.send(now).unwrap())).unwrap();
    let next = || {
        let now = changes.recv().unwrap();
        now.servers.iter().map(|one| one.server().to_owned()).collect::<Vec<_>>()
    };
    assert!(next().is_empty());
    let one = tree.register("files", &offer("a")).unwrap();
    assert_eq!(next(), ["a"]);
    drop(one);
    assert!(next().is_empty());
    // A tree that cannot be read is no change.
    let aside = dir.path().with_extension("aside");
    fs::rename(dir.path(), &aside).unwrap();
    until(|| watch.problem().is_some());
    fs::rename(&aside, dir.path()).unwrap();
    until(|| watch.problem().is_none());
    drop(watch);
    assert!(changes.recv().is_err(), "the watcher was dropped");
}

#[test]
fn watch_survives_a_panic_and_can_end_itself() {
    let (_dir, tree) = tree();
    let mut calls = 0;
    let panics = Box::new(move |_: Offers| {
        calls += 1;
        assert!(calls != 2, "the watcher panics at the first change");
    });
    let watch = tree.watch("files", panics).unwrap();
    let _one = tree.register("files", &offer("a")).unwrap();
    until(|| watch.problem().is_some_and(|problem| problem.contains("panicked")));
    until(|| watch.problem().is_none());
    let own: Arc<crate::sync::Mutex<Option<Standing>>> = Arc::default();
    let (held, (sender, ended)) = (Arc::clone(&own), mpsc::channel());
    let ends = Box::new(move |now: Offers| {
        if now.servers.len() == 2 {
            let watch = held.lock().take();
            drop(watch);
            sender.send(()).unwrap();
        }
    });
    *own.lock() = Some(tree.watch("files", ends).unwrap());
    let _two = tree.register("files", &offer("b")).unwrap();
    ended.recv().unwrap();
    assert!(ended.recv().is_err(), "the watcher was dropped");
}

fn until(mut holds: impl FnMut() -> bool) {
    let limit = std::time::Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(std::time::Instant::now() < limit, "timed out");
        std::thread::sleep(Duration::from_millis(5));
    }
}
