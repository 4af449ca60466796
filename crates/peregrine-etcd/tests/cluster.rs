//! Tests the directory with real members of etcd, which are killed, paused, cut off and begun anew. Without
//! the program `etcd`, the tests are skipped.

mod support;

use std::sync::{Arc, Mutex, mpsc};

use peregrine::directory::{self, Directory, Offer, Offers};
use peregrine::{BindOptions, ExportOptions, Kind, Phase, Server};
use peregrine_etcd::Etcd;
use serde_json::json;
use support::{
    Cable, Cluster, Desk, DeskClient, DeskPool, DeskServer, Numbered, encoded, names_of, offer,
    servers, signal, until,
};

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
    assert_eq!((refused.kind(), refused.phase()), (Kind::Unreachable, Phase::Export));
    let stranger = cluster.open("p").look_up("files").unwrap_err();
    assert_eq!((stranger.kind(), stranger.phase()), (Kind::Unreachable, Phase::Resolve));
    assert!(directory.describe().contains(" s ago (no member"), "{}", directory.describe());
    cluster.0[0].start();
    until("the cluster is heard again", || directory.look_up("files").unwrap().age.is_none());
    until("the registration is in the cluster", || registered.problem().is_none());
    assert_eq!(servers(&directory), ["a"]);
}

#[test]
fn cluster_that_begins_anew_gets_the_registrations_again() {
    let Some(mut cluster) = Cluster::start(1) else { return };
    let (own, other) = (cluster.open("p"), cluster.open("p"));
    let _registered = own.register("files", &offer("a")).unwrap();
    (0..20).for_each(|_| drop(own.register("disk", &offer("b")).unwrap()));
    until("the server is known", || servers(&other) == ["a"]);
    cluster.begin_anew();
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
    until("the registration is in the cluster", || {
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
    until("the remarks name the garbage", || {
        directory.look_up("files").unwrap().remarks.len() == 3
    });
    let found = directory.look_up("files").unwrap();
    assert_eq!(names_of(&found), ["a"]);
    let begins = ["/p/files: the key names no server", "/p/files/a/b: ", "/p/files/x: EOF"];
    assert_eq!(found.remarks.len(), begins.len(), "{:?}", found.remarks);
    for (remark, begin) in found.remarks.iter().zip(begins) {
        assert!(remark.starts_with(begin), "{remark}");
    }
}

#[test]
fn names_stay_known_for_a_grace_time_if_all_data_are_lost() {
    let Some(mut cluster) = Cluster::start(3) else { return };
    let open = || Etcd::open(&cluster.text("p?lease_s=20&grace_s=15")).unwrap();
    let (own, other) = (open(), open());
    let _registered = own.register("files", &offer("a")).unwrap();
    // The server of this key does not live any more, and its key never ends.
    let dead = json!({ "key": encoded("/p/files/b"), "value": encoded(&offer("b").to_json()) });
    cluster.ask("kv/put", &dead);
    until("both servers are known", || servers(&other) == ["a", "b"]);
    let (sender, changes) = mpsc::channel();
    let _watch = other.watch("files", Box::new(move |now| sender.send(now).unwrap())).unwrap();
    assert_eq!(names_of(&changes.recv().unwrap()), ["a", "b"]);
    cluster.begin_anew();
    let mut has_remark = false;
    loop {
        let now: Offers = changes.recv().unwrap();
        has_remark |= now.remarks.iter().any(|one| one.contains("the cluster was begun anew"));
        let names = names_of(&now);
        assert!(names.contains(&"a".to_owned()), "a living server was never unknown: {now:?}");
        if names == ["a"] {
            break;
        }
    }
    assert!(has_remark, "a remark names the loss");
    assert!(other.look_up("files").unwrap().remarks.is_empty());
}

#[test]
fn server_that_is_cut_off_is_left_out_and_registers_again() {
    let Some(cluster) = Cluster::start(1) else { return };
    let cable = Cable::to(cluster.0[0].client);
    let cut_off = Etcd::open(&format!("//{}/p?lease_s=2", cable.address)).unwrap();
    let (own, other) = (cluster.open("p"), cluster.open("p"));
    let behind = cut_off.register("files", &offer("a")).unwrap();
    let before = own.register("files", &offer("b")).unwrap();
    until("both servers are known", || {
        servers(&other) == ["a", "b"] && servers(&cut_off) == ["a", "b"]
    });
    cable.cut();
    until("the lease of the server that is cut off is over", || servers(&other) == ["b"]);
    until("the server knows it", || behind.problem().is_some());
    assert_eq!(before.problem(), None);
    // The server that is cut off still knows the names.
    assert_eq!(servers(&cut_off), ["a", "b"]);
    cable.mend();
    until("the server is registered again", || servers(&other) == ["a", "b"]);
    until("the server knows it", || behind.problem().is_none());
}

#[test]
fn compaction_does_not_disturb_a_watch() {
    let Some(cluster) = Cluster::start(1) else { return };
    let (own, other) = (cluster.open("p"), cluster.open("p"));
    let (sender, changes) = mpsc::channel();
    let _watch = other.watch("files", Box::new(move |now| sender.send(now).unwrap())).unwrap();
    assert!(names_of(&changes.recv().unwrap()).is_empty());
    assert!(servers(&own).is_empty());
    until("both directories watch", || cluster.requests("Watch") == 2);
    for _ in 0..3 {
        let registered = own.register("files", &offer("a")).unwrap();
        assert_eq!(names_of(&changes.recv().unwrap()), ["a"]);
        let now = cluster.ask("kv/range", &json!({ "key": encoded("/x") }));
        cluster.ask("kv/compaction", &json!({ "revision": now["header"]["revision"] }));
        drop(registered);
        assert!(names_of(&changes.recv().unwrap()).is_empty());
    }
    assert_eq!(cluster.requests("Watch"), 2, "no watch had to begin again");
}

#[test]
fn lost_key_is_written_again() {
    let Some(cluster) = Cluster::start(1) else { return };
    let (own, other) = (cluster.open("p?lease_s=3600"), cluster.open("p"));
    let registered = own.register("files", &offer("a")).unwrap();
    until("the server is known", || servers(&other) == ["a"]);
    let (sender, changes) = mpsc::channel();
    let _watch = other.watch("files", Box::new(move |now| sender.send(now).unwrap())).unwrap();
    assert_eq!(names_of(&changes.recv().unwrap()), ["a"]);
    cluster.ask("kv/deleterange", &json!({ "key": encoded("/p/files/a") }));
    assert!(names_of(&changes.recv().unwrap()).is_empty());
    // The next renewal is in 20 minutes.
    assert_eq!(names_of(&changes.recv().unwrap()), ["a"]);
    drop(registered);
}

#[test]
fn later_server_of_one_identity_counts_and_the_earlier_one_is_told() {
    let Some(cluster) = Cluster::start(1) else { return };
    let (one, two, other) = (cluster.open("p"), cluster.open("p"), cluster.open("p"));
    let known = || other.look_up("files").unwrap().servers;
    let earlier = one.register("files", &offer("a")).unwrap();
    until("the server is known", || known() == [offer("a")]);
    let moved = Offer::new("a", ["files@elsewhere.example.org:7000"]).unwrap();
    let later = two.register("files", &moved).unwrap();
    until("the later one counts", || known() == [moved.clone()]);
    until("the earlier server knows it", || {
        earlier.problem().is_some_and(|problem| problem.contains("another server"))
    });
    assert_eq!(later.problem(), None);
    drop(later);
    until("the earlier one counts again", || known() == [offer("a")]);
    until("the earlier server knows it", || earlier.problem().is_none());
    // The end of the earlier one does not remove the key of the later one.
    let later = two.register("files", &moved).unwrap();
    drop(earlier);
    let last = one.register("files", &offer("b")).unwrap();
    until("both servers are known", || known() == [moved.clone(), offer("b")]);
    // Two registrations of one process with one key.
    let again = one.register("files", &offer("b")).unwrap();
    drop(last);
    let seen = one.register("files", &offer("c")).unwrap();
    until("a later change is known", || known() == [moved.clone(), offer("b"), offer("c")]);
    drop((again, later, seen));
    until("nothing is left", || known().is_empty());
}

#[test]
fn two_servers_with_one_address_count_once() {
    let Some(cluster) = Cluster::start(1) else { return };
    let directory = cluster.open("p");
    let at = |server: &str| Offer::new(server, ["files@gate.example.org:7000"]).unwrap();
    let (old, new) = (at("old"), at("new"));
    let _both = (directory.register("files", &old), directory.register("files", &new));
    until("the mistake is told", || {
        let found = directory.look_up("files").unwrap();
        found.remarks.iter().any(|one| one.contains("has the same addresses"))
    });
    assert_eq!(servers(&directory).len(), 1);
}

#[test]
fn process_reads_once_and_has_one_watch() {
    let Some(cluster) = Cluster::start(1) else { return };
    let methods = ["Range", "Watch", "Put", "LeaseGrant", "LeaseKeepAlive", "Txn", "Authenticate"];
    let counts = || methods.map(|method| cluster.requests(method));
    let before = counts();
    assert!(
        peregrine_etcd::install() && peregrine_etcd::install(),
        "the second call changes nothing"
    );
    let text = format!("etcd:{}", cluster.text("p?lease_s=3600"));
    let (directory, same) = (directory::open(&text).unwrap(), directory::open(&text).unwrap());
    assert!(Arc::ptr_eq(&directory, &same));
    let changes = ["files", "disk", "files"].map(|name| {
        let (sender, changes) = mpsc::channel();
        let watch = same.watch(name, Box::new(move |now| sender.send(names_of(&now)).unwrap()));
        assert!(changes.recv().unwrap().is_empty());
        (watch.unwrap(), changes)
    });
    for n in 0..1000 {
        directory.look_up("files").unwrap();
        directory.look_up(&format!("unknown-{n}")).unwrap();
        directory.names().unwrap();
    }
    let _files = directory.register("files", &offer("a")).unwrap();
    let disk = directory.register("disk", &offer("b")).unwrap();
    assert_eq!([&changes[0], &changes[2]].map(|one| one.1.recv().unwrap()), [["a"], ["a"]]);
    assert_eq!(changes[1].1.recv().unwrap(), ["b"]);
    drop(disk);
    assert!(changes[1].1.recv().unwrap().is_empty());
    let did = [1, 1, 2, 1, 0, 1, 0];
    let now = counts();
    let differences: Vec<u64> = now.iter().zip(before).map(|(now, before)| now - before).collect();
    assert_eq!(differences, did, "{methods:?}");
}

#[test]
fn watcher_that_waits_delays_no_renewal() {
    let Some(cluster) = Cluster::start(1) else { return };
    let (own, other) = (cluster.open("p?lease_s=1"), cluster.open("p"));
    let ((runs, ran), (go, continues)) = (mpsc::channel(), mpsc::channel::<()>());
    let mut calls = 0;
    let waits = Box::new(move |_: Offers| {
        calls += 1;
        if calls == 2 {
            runs.send(()).unwrap();
            let _ = continues.recv();
        }
    });
    let watch = own.watch("files", waits).unwrap();
    let registered = own.register("files", &offer("a")).unwrap();
    ran.recv().unwrap();
    let renewed = cluster.requests("LeaseKeepAlive");
    until("the lease is renewed", || cluster.requests("LeaseKeepAlive") > renewed + 5);
    assert_eq!(servers(&own), ["a"]);
    until("the server is known", || servers(&other) == ["a"]);
    go.send(()).unwrap();
    drop((watch, registered));
}

#[test]
fn watch_survives_a_panic_and_can_end_itself() {
    let Some(cluster) = Cluster::start(1) else { return };
    let directory = cluster.open("p");
    let mut calls = 0;
    let panics = Box::new(move |_: Offers| {
        calls += 1;
        assert!(calls != 2, "the watcher panics at the first change");
    });
    let watch = directory.watch("files", panics).unwrap();
    let _one = directory.register("files", &offer("a")).unwrap();
    until("the panic is told", || {
        watch.problem().is_some_and(|problem| problem.contains("panicked"))
    });
    let own: Arc<Mutex<Option<_>>> = Arc::default();
    let (held, (sender, ended)) = (Arc::clone(&own), mpsc::channel());
    let ends = Box::new(move |now: Offers| {
        if now.servers.len() == 2 {
            drop(held.lock().unwrap().take());
            sender.send(()).unwrap();
        }
    });
    *own.lock().unwrap() = Some(directory.watch("files", ends).unwrap());
    let _two = directory.register("files", &offer("b")).unwrap();
    ended.recv().unwrap();
    assert!(ended.recv().is_err(), "the watcher was dropped");
    until("the watcher runs again", || watch.problem().is_none());
}

#[test]
fn clients_bind_to_known_names_while_the_cluster_is_away() {
    let Some(mut cluster) = Cluster::start(1) else { return };
    let names: Arc<dyn Directory> = Arc::new(cluster.open("p"));
    let options = ExportOptions::default().networks_only();
    let name = format!("etcd-desk-{}", std::process::id());
    let server =
        Server::new().export_with(&name, DeskServer::new(Numbered::new(7)), options).unwrap();
    let server = server.listen("127.0.0.1:0").unwrap().advertise("127.0.0.1").unwrap();
    let running = server.register_in(Arc::clone(&names)).spawn().unwrap();
    let options = BindOptions::default().directory(Arc::clone(&names));
    until("the server is known", || names.look_up(&name).unwrap().servers.len() == 1);
    assert_eq!(DeskClient::bind_with(&name, &options).unwrap().number().unwrap(), 7);
    let pool = DeskPool::bind_with(&name, &options).unwrap();
    let remarks = |binding: &peregrine::Binding| binding.explain().remarks().join("; ");
    assert_eq!(remarks(pool.binding()), "");
    cluster.0[0].kill();
    until("the loss is noticed", || names.look_up(&name).unwrap().age.is_some());
    for _ in 0..10 {
        let desk = DeskClient::bind_with(&name, &options).unwrap();
        assert_eq!((desk.number().unwrap(), pool.number().unwrap()), (7, 7));
        let remarks = remarks(desk.binding());
        assert!(remarks.starts_with("the directory does not answer: this is "), "{remarks}");
    }
    // A pool that was bound before says so, and one that was bound now.
    let pools = [pool, DeskPool::bind_with(&name, &options).unwrap()];
    for pool in &pools {
        let remarks = remarks(pool.binding());
        let text = "the directory does not report changes now: the cluster has not answered for ";
        assert!(remarks.starts_with(text), "{remarks}");
    }
    let (explanation, bound) = peregrine::explain(&name, &options);
    bound.unwrap();
    assert!(explanation.chosen().is_some(), "{explanation}");
    // For a name that is not known, the age is in the reason.
    let (explanation, bound) = peregrine::explain("unknown-desk", &options);
    let error = bound.unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
    for text in [error.to_string(), explanation.to_string()] {
        assert!(
            text.contains("below /p/, as it was ") && text.contains(" s ago (no member"),
            "{text}"
        );
    }
    until("the server knows of the loss", || !running.registration_problems().is_empty());
    cluster.0[0].start();
    until("the cluster is heard again", || names.look_up(&name).unwrap().age.is_none());
    assert!(pools.iter().all(|pool| remarks(pool.binding()).is_empty()));
    until("the server is registered", || running.registration_problems().is_empty());
    running.stop();
    until("the server is withdrawn", || names.look_up(&name).unwrap().servers.is_empty());
}

#[test]
fn names_are_checked() {
    let directory = Etcd::open("//127.0.0.1:1").unwrap();
    for name in ["", "a/b", "../a", "a@b", "tcp:a"] {
        let error = directory.register(name, &offer("a")).unwrap_err();
        assert_eq!((error.kind(), error.phase()), (Kind::BadName, Phase::Export), "{name}");
    }
}
