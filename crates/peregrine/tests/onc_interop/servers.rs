//! Tests clients in Rust with servers of other authors, as Debian has them.

use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};

use peregrine::foreign::ByteString;
use peregrine::{CallError, Server};

use super::machine::{Daemon, alone, command, run, until_registered};
use super::nis::{Ypall, YpallClient, YpallMap};
use super::rstat::{RstatV3 as _, RstatV3Client};
use super::rusers::{Rusers as _, RusersClient};
use super::rusers2::{Rusers as _, RusersClient as Rusers2Client};
use super::sm_inter::{Mon, MonId, MyId, Res, Sm, SmClient, SmName};
use super::statd::{SmNotify, SmNotifyClient, StatChge, Status, Watcher, WatcherServer};
use super::yp::{Domainname, Keydat, Mapname, Yp, YpClient, YpreqKey, YpreqNokey, Ypstat};
use super::{HOST, NAME};

/// Writes one user into the file of users that are logged in.
fn log_in(user: &str, line: &str, host: &str) {
    // The type 7 of an entry means that a user is logged in. An entry has these fields, in this order: type,
    // process, identifier, user, line, host, address, time.
    let text = format!(
        "[7] [00001] [7   ] [{user:<8}] [{line:<12}] [{host:<20}] [0.0.0.0        ] \
         [2023-11-14T22:13:20,000000+00:00]\n"
    );
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), text).expect("a file");
    run("utmpdump", &["-r", "-o", "/run/utmp", &file.path().to_string_lossy()]);
}

#[test]
fn our_client_asks_rpc_rusersd() {
    let needs = ["rpcbind", "rpcinfo", "rpc.rusersd", "utmpdump"];
    alone("servers::our_client_asks_rpc_rusersd", &needs, || {
        let _rpcbind = Daemon::rpcbind();
        log_in("ada", "pts/7", "far.example");
        let _daemon = Daemon::start("rpc.rusersd", &[]);
        until_registered(100_002, 3, "udp");
        let users = RusersClient::bind(&format!("onc+udp:{HOST}")).expect("version 3");
        assert_eq!(users.num().expect("a number"), 1);
        let all = users.allnames().expect("users");
        let [user] = &*all else { panic!("{all:?}") };
        assert_eq!(user.ut_user.to_text(), "ada");
        assert_eq!(user.ut_line.to_text(), "pts/7");
        assert_eq!(user.ut_host.to_text(), "far.example");
        assert_eq!((user.ut_type, user.ut_time), (7, 1_700_000_000));
        let users = Rusers2Client::bind(&format!("onc+udp:{HOST}")).expect("version 2");
        let all = users.allnames().expect("users");
        let [user] = &*all else { panic!("{all:?}") };
        // In version 2, rpc.rusersd sends the whole field of the name, with zeros at the end.
        assert_eq!(user.ui_utmp.ut_name.to_text(), "ada\0\0\0\0\0");
    });
}

/// Debian's rpc.rstatd sends one cell of XDR more than its interface file says. The C library and Peregrine
/// ignore cells after the last value of the results.
#[test]
fn our_client_asks_rpc_rstatd() {
    let needs = ["rpcbind", "rpcinfo", "rpc.rstatd", "rup"];
    alone("servers::our_client_asks_rpc_rstatd", &needs, || {
        let _rpcbind = Daemon::rpcbind();
        let _daemon = Daemon::start("rpc.rstatd", &[]);
        until_registered(100_001, 3, "udp");
        let load = RstatV3Client::bind(&format!("onc+udp:{HOST}")).expect("version 3");
        load.havedisk().expect("a number");
        let found = load.stats().expect("numbers");
        // Both moments are in seconds since 1970, and `rup` prints their difference.
        assert!(found.boottime.tv_sec > 0 && found.curtime.tv_sec >= found.boottime.tv_sec);
        let shown = run("rup", &[HOST]);
        assert!(shown.contains("load"), "{shown}");
    });
}

/// Receives the changes that rpc.statd reports.
struct Seen(Mutex<mpsc::Sender<Status>>);

impl Watcher for Seen {
    fn changed(&self, status: Status) -> peregrine::Result<()> {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // After the test has failed, there is no receiver.
        let _ = sender.send(status);
        Ok(())
    }
}

/// Gives rpc.statd an empty directory for its state. The directory belongs to the user `statd`, as which
/// rpc.statd runs.
fn prepare_statd() {
    let set_up = "mount -t tmpfs tmpfs /var/lib/nfs && mkdir /var/lib/nfs/sm /var/lib/nfs/sm.bak \
                  && chown -R statd /var/lib/nfs";
    let done = Command::new("sh").args(["-c", set_up]).stdin(Stdio::null()).status();
    assert!(done.expect("a shell").success());
}

/// Our client asks rpc.statd to watch a machine. Our client then reports that this machine was started
/// again, and rpc.statd calls our server.
#[test]
fn rpc_statd_is_called_and_calls_our_server() {
    let needs = ["rpcbind", "rpcinfo", "rpc.statd"];
    alone("servers::rpc_statd_is_called_and_calls_our_server", &needs, || {
        let _rpcbind = Daemon::rpcbind();
        prepare_statd();
        let _daemon = Daemon::start("rpc.statd", &["-F", "-L"]);
        until_registered(100_024, 1, "tcp");
        let (sender, changes) = mpsc::channel();
        let server = WatcherServer::new(Seen(sender.into()));
        let server = Server::new().export("watcher", server).expect("an export");
        let server = server.listen("onc+udp:127.0.0.1:0").expect("a port");
        let _running = server.register_programs().spawn().expect("a server");
        for transport in ["udp", "tcp"] {
            let monitor = SmClient::bind(&format!("onc+{transport}:{HOST}")).expect("rpc.statd");
            let name = || ByteString::from(NAME);
            let found = monitor.sm_stat(SmName { mon_name: name() }).expect("a state");
            assert_eq!(found.res_stat, Res::StatSucc, "{transport}");
            let my_id = || MyId { my_name: name(), my_prog: 100_021, my_vers: 4, my_proc: 16 };
            let id = || MonId { mon_name: name(), my_id: my_id() };
            let secret = *b"sixteen bytes of";
            let added = monitor.sm_mon(Mon { mon_id: id(), r#priv: secret }).expect("a state");
            assert_eq!(added.res_stat, Res::StatSucc, "{transport}");
            let state = added.state + 2;
            let notify =
                SmNotifyClient::bind(&format!("onc+{transport}:{HOST}")).expect("rpc.statd");
            notify.notify(StatChge { mon_name: name(), state }).expect("no result");
            let change = changes.recv().expect("a change");
            assert_eq!((change.mon_name, change.state, change.r#priv), (name(), state, secret));
            monitor.sm_unmon(id()).expect("a state");
            monitor.sm_unmon_all(my_id()).expect("a state");
        }
    });
}

/// Makes a map of NIS with two entries.
fn prepare_ypserv() {
    let set_up = "mount -t tmpfs tmpfs /var/yp && mkdir /var/yp/office && \
                  printf 'ada Lovelace\\ngrace Hopper\\n' | \"$0\" - /var/yp/office/people";
    let mut shell = command("sh", &["-c", set_up, "/usr/lib/yp/makedbm"]);
    assert!(shell.status().expect("a shell").success());
}

fn key(key: &[u8]) -> YpreqKey {
    let (domain, map) = (Domainname("office".into()), Mapname("people".into()));
    YpreqKey { domain, map, key: Keydat(key.to_vec()) }
}

#[test]
fn our_client_asks_ypserv() {
    let needs = ["rpcbind", "rpcinfo", "ypserv", "makedbm"];
    alone("servers::our_client_asks_ypserv", &needs, || {
        let _rpcbind = Daemon::rpcbind();
        prepare_ypserv();
        let _daemon = Daemon::start("ypserv", &["--foreground"]);
        until_registered(100_004, 2, "tcp");
        for transport in ["udp", "tcp"] {
            let nis = YpClient::bind(&format!("onc+{transport}:{HOST}")).expect("ypserv");
            check_ypserv(&nis).expect(transport);
            let other = Domainname("no-such-domain".into());
            assert!(!nis.domain(other).expect("a flag"), "{transport}");
        }
        // ypserv sends a whole map over TCP only.
        let all = YpallClient::bind(&format!("onc+tcp:{HOST}")).expect("ypserv");
        let map = YpallMap { domain: "office".into(), map: "people".into() };
        let entries = all.ypall_all(map).expect("a map");
        let entries = std::iter::successors(entries.as_ref(), |entry| entry.next.as_ref());
        // 1 is the number of YP_TRUE. The last entry has another status, and no key.
        let keys = entries.filter(|entry| entry.stat == 1).map(|entry| entry.key.clone());
        let mut found: Vec<_> = keys.map(|key| String::from_utf8(key).expect("a name")).collect();
        found.retain(|key| !key.starts_with("YP_"));
        found.sort();
        assert_eq!(found, ["ada", "grace"]);
    });
}

fn check_ypserv(nis: &YpClient) -> Result<(), CallError> {
    let place =
        || YpreqNokey { domain: Domainname("office".into()), map: Mapname("people".into()) };
    assert!(nis.domain(Domainname("office".into()))?);
    let found = nis.r#match(key(b"ada"))?;
    assert_eq!((found.stat, &*found.val.0), (Ypstat::YpTrue, &b"Lovelace"[..]));
    assert_eq!(nis.r#match(key(b"nobody"))?.stat, Ypstat::YpNokey);
    let first = nis.first(key(b""))?;
    assert_eq!(first.stat, Ypstat::YpTrue);
    let second = nis.next(key(&first.key.0))?;
    assert_eq!(second.stat, Ypstat::YpTrue);
    let mut names = [first.val.0, second.val.0];
    names.sort();
    assert_eq!(names, [b"Hopper".to_vec(), b"Lovelace".to_vec()]);
    assert_eq!(nis.next(key(&second.key.0))?.stat, Ypstat::YpNomore);
    assert_eq!(nis.master(place())?.peer.0.to_text(), NAME);
    assert!(nis.order(place())?.ordernum > 0);
    let maps = nis.maplist(Domainname("office".into()))?.maps.expect("a map");
    assert_eq!((maps.map.0.to_text(), maps.next.is_none()), ("people".into(), true));
    Ok(())
}
