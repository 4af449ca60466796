//! Tests what a process makes up for after the cluster, a member or a connection was lost, with real members
//! of etcd. Without the program `etcd`, the tests are skipped.

mod support;

use std::sync::mpsc;

use peregrine::directory::{Directory, Offer, Offers, Standing};
use peregrine::{ExportOptions, Kind, Phase, Server};
use peregrine_etcd::Etcd;
use serde_json::{Value, json};
use support::{
    Cable, Cluster, DeskServer, Numbered, encoded, names_of, offer, servers, signal, until,
};

/// Returns whether the cluster has the key of a server of `files`.
fn has_key(cluster: &Cluster, server: &str) -> bool {
    let key = json!({ "key": encoded(&format!("/p/files/{server}")) });
    cluster.ask("kv/range", &key).get("kvs").is_some()
}

fn revision(cluster: &Cluster) -> i64 {
    let now = cluster.ask("kv/range", &json!({ "key": encoded("/x") }));
    now["header"]["revision"].as_str().unwrap().parse().unwrap()
}

#[test]
fn withdrawal_that_the_cluster_did_not_get_is_made_up_for() {
    let Some(cluster) = Cluster::start(1) else { return };
    let cable = Cable::to(cluster.0[0].client);
    // Without a further attempt, the keys would stay for an hour.
    let open = || Etcd::open(&format!("//{}/p?lease_s=3600", cable.address)).unwrap();
    let own = open();
    let (one, two) =
        (own.register("files", &offer("a")).unwrap(), own.register("files", &offer("b")).unwrap());
    cable.cut();
    drop(one);
    assert!(has_key(&cluster, "a"), "the withdrawal did not reach the cluster");
    cable.mend();
    until("the server is withdrawn", || !has_key(&cluster, "a"));
    assert!(has_key(&cluster, "b"), "the other one is registered");
    until("the registration is in the cluster", || two.problem().is_none());
    // Also the last one, whose directory ends with it.
    cable.cut();
    drop((two, own));
    assert!(has_key(&cluster, "b"));
    cable.mend();
    until("the last server is withdrawn", || !has_key(&cluster, "b"));
    // A server that registers again meanwhile keeps its key.
    let own = open();
    let other = own.register("files", &offer("c")).unwrap();
    let before = own.register("files", &offer("a")).unwrap();
    cable.cut();
    drop(before);
    cable.mend();
    let again = own.register("files", &offer("a")).unwrap();
    drop(other);
    until("the other one is withdrawn", || !has_key(&cluster, "c"));
    assert!(has_key(&cluster, "a") && again.problem().is_none());
}

#[test]
fn member_that_hangs_is_left() {
    let Some(cluster) = Cluster::start(3) else { return };
    // Members are asked in a random order: this opens directories until one follows the first member.
    let other = loop {
        let before = cluster.requests("Watch");
        let other = cluster.open("p?lease_s=1");
        assert!(servers(&other).is_empty());
        until("the directory watches", || other.look_up("files").unwrap().age.is_none());
        std::thread::sleep(std::time::Duration::from_millis(200));
        if cluster.requests("Watch") > before {
            break other;
        }
    };
    signal(&cluster.0[0], "STOP");
    let members: Vec<_> =
        cluster.0[1..].iter().map(|one| format!("127.0.0.1:{}", one.client)).collect();
    let own = Etcd::open(&format!("//{}/p", members.join(","))).unwrap();
    let mut registered = None;
    until("the others accept a registration", || {
        registered = own.register("files", &offer("a")).ok();
        registered.is_some()
    });
    until("another member is followed", || servers(&other) == ["a"]);
    signal(&cluster.0[0], "CONT");
}

#[test]
fn cluster_that_was_begun_anew_and_has_caught_up_is_noticed() {
    let Some(mut cluster) = Cluster::start(1) else { return };
    let cable = Cable::to(cluster.0[0].client);
    // The server of this key does not live any more, and its key never ends.
    let put = |cluster: &Cluster, server: &str| {
        let key = encoded(&format!("/p/files/{server}"));
        let value = encoded(&offer(server).to_json());
        cluster.ask("kv/put", &json!({ "key": key, "value": value }));
    };
    put(&cluster, "dead");
    let other = Etcd::open(&format!("//{}/p?grace_s=3600", cable.address)).unwrap();
    for _ in 0..5 {
        cluster.ask("kv/put", &json!({ "key": encoded("/p/disk/x"), "value": "" }));
    }
    until("the server is known", || servers(&other) == ["dead"]);
    let known = revision(&cluster);
    until("the changes are known", || other.names().unwrap() == ["files"]);
    cable.cut();
    until("the loss is noticed", || other.look_up("files").unwrap().age.is_some());
    cluster.begin_anew();
    // This change has a revision that the process knows already.
    put(&cluster, "new");
    assert!(revision(&cluster) <= known);
    while revision(&cluster) <= known + 5 {
        cluster.ask("kv/put", &json!({ "key": encoded("/x"), "value": "" }));
    }
    cable.mend();
    until("the new server is known", || servers(&other) == ["dead", "new"]);
    let remarks = other.look_up("files").unwrap().remarks.join("\n");
    assert!(remarks.contains("/p/files/dead: the cluster was begun anew"), "{remarks}");
}

#[test]
fn process_that_comes_back_does_not_read_everything_again() {
    let Some(cluster) = Cluster::start(1) else { return };
    let cable = Cable::to(cluster.0[0].client);
    let (own, other) = (cluster.open("p"), Etcd::open(&format!("//{}/p", cable.address)).unwrap());
    let _one = own.register("files", &offer("a")).unwrap();
    until("the server is known", || servers(&other) == ["a"]);
    for (server, all) in [("b", &["a", "b"][..]), ("c", &["a", "c"])] {
        let (ranges, watches) = (cluster.requests("Range"), cluster.requests("Watch"));
        cable.cut();
        until("the loss is noticed", || other.look_up("files").unwrap().age.is_some());
        let registered = own.register("files", &offer(server)).unwrap();
        cable.mend();
        until("the cluster is heard again", || {
            other.look_up("files").unwrap().age.is_none() && servers(&other) == all
        });
        // The number of keys is asked for within some seconds.
        let ranges = cluster.requests("Range") - ranges;
        assert!((1..=2).contains(&ranges), "{ranges}");
        assert_eq!(cluster.requests("Watch") - watches, 1);
        assert!(other.look_up("files").unwrap().remarks.is_empty());
        drop(registered);
        until("the server is withdrawn", || servers(&other) == ["a"]);
    }
}

#[test]
fn many_names_are_read_in_parts() {
    let Some(cluster) = Cluster::start(1) else { return };
    for part in 0..13 {
        let puts = (0..100).map(|n| {
            let server = format!("s{}", part * 100 + n);
            let value = encoded(&offer(&server).to_json());
            json!({ "request_put": { "key": encoded(&format!("/p/n{server}/{server}")), "value": value } })
        });
        cluster.ask("kv/txn", &json!({ "success": puts.collect::<Vec<Value>>() }));
    }
    // Values that are no servers make an answer too long, so that it is asked for in smaller parts.
    let long = encoded(&"x".repeat(1 << 20));
    for n in 0..12 {
        let key = encoded(&format!("/p/long/{n:03}"));
        cluster.ask("kv/put", &json!({ "key": key, "value": long }));
    }
    let before = cluster.requests("Range");
    let directory = cluster.open("p");
    let mut names = Vec::new();
    until("all names are read", || {
        names = directory.names().unwrap_or_default();
        !names.is_empty()
    });
    assert_eq!(names.len(), 1300);
    assert!(!directory.look_up("long").unwrap().remarks.is_empty());
    let parts = cluster.requests("Range") - before;
    assert!((4..30).contains(&parts), "{parts} parts");
}

#[test]
fn server_that_comes_and_goes_costs_a_slow_watcher_one_call() {
    let Some(cluster) = Cluster::start(1) else { return };
    let (own, other) = (cluster.open("p"), cluster.open("p"));
    let ((runs, ran), (go, continues)) = (mpsc::channel(), mpsc::channel::<()>());
    let mut calls = 0;
    let waits = Box::new(move |now: Offers| {
        calls += 1;
        runs.send((calls, names_of(&now))).unwrap();
        if calls == 2 {
            let _ = continues.recv();
        }
    });
    let watch = other.watch("files", waits).unwrap();
    assert!(ran.recv().unwrap().1.is_empty());
    let first = own.register("files", &offer("first")).unwrap();
    assert_eq!(ran.recv().unwrap(), (2, vec!["first".to_owned()]));
    for _ in 0..50 {
        drop(own.register("files", &offer("a")).unwrap());
    }
    drop(first);
    let _last = own.register("files", &offer("last")).unwrap();
    until("the last change is known", || servers(&other) == ["last"]);
    go.send(()).unwrap();
    assert_eq!(ran.recv().unwrap(), (3, vec!["last".to_owned()]));
    drop(watch);
    // The directory knows the last change a moment before it makes the watcher due, so there may be one more
    // call, which brings nothing new.
    let further: Vec<_> = ran.iter().collect();
    assert!(
        further.len() <= 1 && further.iter().all(|(_, names)| *names == ["last"]),
        "{further:?}"
    );
}

#[test]
fn server_does_not_start_while_the_cluster_is_away() {
    let away = "//127.0.0.1:1,127.0.0.1:2/p";
    let options = ExportOptions::default().networks_only();
    let name = format!("etcd-away-{}", std::process::id());
    let server =
        Server::new().export_with(&name, DeskServer::new(Numbered::new(7)), options).unwrap();
    let server = server.listen("127.0.0.1:0").unwrap().advertise("127.0.0.1").unwrap();
    let error = server.register_in(Etcd::open(away).unwrap()).spawn().map(drop).unwrap_err();
    assert_eq!((error.kind(), error.phase()), (Kind::Unreachable, Phase::Export));
    let text = error.to_string();
    for part in [
        "etcd at 127.0.0.1:1, 127.0.0.1:2 below /p/",
        "no member of the cluster answers",
        "Connection refused",
        &name,
    ] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
}

/// Returns the addresses of the servers of `files` as a directory knows them.
fn known(directory: &Etcd) -> Vec<Offer> {
    directory.look_up("files").unwrap().servers
}

fn is_taken(registered: &Standing) -> bool {
    registered.problem().is_some_and(|problem| problem.contains("another server"))
}

#[test]
fn server_that_lost_its_lease_does_not_replace_a_later_one() {
    let Some(cluster) = Cluster::start(1) else { return };
    let cable = Cable::to(cluster.0[0].client);
    let one = Etcd::open(&format!("//{}/p?lease_s=2", cable.address)).unwrap();
    let (two, other) = (cluster.open("p?lease_s=3600"), cluster.open("p"));
    let earlier = one.register("files", &offer("a")).unwrap();
    let third = one.register("files", &offer("b")).unwrap();
    cable.cut();
    until("the lease is over", || !has_key(&cluster, "a") && !has_key(&cluster, "b"));
    let moved = Offer::new("a", ["files@elsewhere.example.org:7000"]).unwrap();
    let later = two.register("files", &moved).unwrap();
    cable.mend();
    until("the key without another server is written", || has_key(&cluster, "b"));
    until("the earlier server knows it", || is_taken(&earlier) && third.problem().is_none());
    until("the later server is known", || known(&other) == [moved.clone(), offer("b")]);
    assert_eq!(later.problem(), None);
    drop(later);
    until("the earlier one counts again", || known(&other) == [offer("a"), offer("b")]);
    until("the earlier server knows it", || earlier.problem().is_none());
}

#[test]
fn server_without_its_key_gets_it_from_a_cluster_that_was_begun_anew() {
    let Some(mut cluster) = Cluster::start(1) else { return };
    let cable = Cable::to(cluster.0[0].client);
    for _ in 0..100 {
        cluster.ask("kv/put", &json!({ "key": encoded("/x"), "value": "" }));
    }
    let one = cluster.open("p?lease_s=2&grace_s=1");
    let two = Etcd::open(&format!("//{}/p", cable.address)).unwrap();
    let earlier = one.register("files", &offer("a")).unwrap();
    let moved = Offer::new("a", ["files@elsewhere.example.org:7000"]).unwrap();
    let _later = two.register("files", &moved).unwrap();
    until("the earlier server knows it", || is_taken(&earlier));
    cable.cut();
    cluster.begin_anew();
    until("the earlier one counts again", || {
        has_key(&cluster, "a") && known(&one) == [offer("a")] && earlier.problem().is_none()
    });
    assert!(revision(&cluster) < 100);
}
