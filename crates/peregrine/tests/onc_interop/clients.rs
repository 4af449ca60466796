//! Tests clients of other authors, as Debian has them, with servers in Rust.

use std::sync::{Mutex, PoisonError};

use peregrine::foreign::ByteString;
use peregrine::{CallError, Running, Server};

use super::HOST;
use super::machine::{Daemon, alone, run};
use super::mount::{
    Dirpath, Exportnode, Exports, Fhstatus, Groupnode, Groups, Mount, MountServer, Mountbody,
    Mountlist, Name,
};
use super::nis::{Ypall, YpallEntries, YpallEntry, YpallMap, YpallServer};
use super::rstat::{RstatTimeval, RstatV3, RstatV3Server, Statstime};
use super::rusers2::{RuUtmp, Rusers, RusersServer, Utmpidle, Utmpidlearr};
use super::wall::{Wall, WallServer};
use super::yp::{
    Domainname, Keydat, Mapname, Peername, Valdat, Yp, YpServer, YpmapParms, Ypmaplist, YpreqKey,
    YpreqNokey, YpreqXfr, YprespAll, YprespKeyVal, YprespMaplist, YprespMaster, YprespOrder,
    YprespVal, YprespXfr, Ypstat, Ypxfrstat,
};

/// Serves an export over UDP and TCP, and registers its program at rpcbind.
fn serve(server: Result<Server, CallError>) -> Running {
    let server = server.expect("an export");
    let server = server.listen(&format!("onc+udp:{HOST}:0")).expect("a port");
    let server = server.listen(&format!("onc+tcp:{HOST}:0")).expect("a port");
    server.register_programs().spawn().expect("a server")
}

struct Users;

impl Rusers for Users {
    fn num(&self) -> peregrine::Result<i32> {
        Ok(1)
    }

    fn names(&self) -> peregrine::Result<Utmpidlearr> {
        let name = ByteString::from("grace");
        let (line, host) = (ByteString::from("pts/3"), ByteString::from("far"));
        let ui_utmp =
            RuUtmp { ut_line: line, ut_name: name, ut_host: host, ut_time: 1_700_000_000 };
        Ok(vec![Utmpidle { ui_utmp, ui_idle: 5 }])
    }

    fn allnames(&self) -> peregrine::Result<Utmpidlearr> {
        self.names()
    }
}

#[test]
fn rusers_asks_our_server() {
    alone("clients::rusers_asks_our_server", &["rpcbind", "rusers"], || {
        let _rpcbind = Daemon::rpcbind();
        let _running = serve(Server::new().export("it", RusersServer::new(Users)));
        let users = run("rusers", &["-l", HOST]);
        assert!(
            users.contains("grace") && users.contains("pts/3") && users.contains("far"),
            "{users}"
        );
    });
}

struct Load;

impl RstatV3 for Load {
    fn stats(&self) -> peregrine::Result<Statstime> {
        let at = |tv_sec| RstatTimeval { tv_sec, tv_usec: 0 };
        Ok(Statstime {
            cp_time: [1; 4],
            dk_xfer: [0; 4],
            v_pgpgin: 0,
            v_pgpgout: 0,
            v_pswpin: 0,
            v_pswpout: 0,
            v_intr: 0,
            if_ipackets: 0,
            if_ierrors: 0,
            if_oerrors: 0,
            if_collisions: 0,
            v_swtch: 2_000_000_000,
            // The load is in units of 1/256.
            avenrun: [256, 512, 832],
            boottime: at(1_700_000_000),
            curtime: at(1_700_000_000 + 3 * 24 * 3600),
            if_opackets: 77,
        })
    }

    fn havedisk(&self) -> peregrine::Result<u32> {
        Ok(0)
    }
}

#[test]
fn rup_and_rsysinfo_ask_our_server() {
    let needs = ["rpcbind", "rup", "rsysinfo"];
    alone("clients::rup_and_rsysinfo_ask_our_server", &needs, || {
        let _rpcbind = Daemon::rpcbind();
        let _running = serve(Server::new().export("it", RstatV3Server::new(Load)));
        let load = run("rup", &[HOST]);
        assert!(load.contains("3 days") && load.contains("1.00 2.00 3.25"), "{load}");
        let system = run("rsysinfo", &[HOST]);
        assert!(system.contains("context switches: 2000000000"), "{system}");
        assert!(system.contains("tx: 77"), "{system}");
    });
}

#[derive(Default)]
struct Messages(Mutex<Vec<String>>);

impl Wall for &'static Messages {
    fn wall(&self, text: ByteString) -> peregrine::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(text.to_text().into_owned());
        Ok(())
    }
}

#[test]
fn rwall_sends_a_message_to_our_server() {
    alone("clients::rwall_sends_a_message_to_our_server", &["rpcbind", "rwall"], || {
        let _rpcbind = Daemon::rpcbind();
        let messages: &'static Messages = Box::leak(Box::default());
        let _running = serve(Server::new().export("it", WallServer::new(messages)));
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "The shop closes at noon.\n").expect("a file");
        run("rwall", &[HOST, &file.path().to_string_lossy()]);
        let got = messages.0.lock().unwrap_or_else(PoisonError::into_inner);
        let [message] = &**got else { panic!("{got:?}") };
        assert!(message.contains("The shop closes at noon."), "{message}");
    });
}

struct Shares;

/// Returns a list of names.
fn groups(names: &[&str]) -> Groups {
    names.iter().rev().fold(None, |gr_next, name| {
        let gr_name = Name(ByteString::from(*name));
        Some(Box::new(Groupnode { gr_name, gr_next }))
    })
}

impl Mount for Shares {
    fn mnt(&self, dirpath: Dirpath) -> peregrine::Result<Fhstatus> {
        let is_known = dirpath.0.to_text() == "/export/home";
        // 13 is the number of EACCES.
        Ok(if is_known { Fhstatus::Case0([7; 32]) } else { Fhstatus::Default(13) })
    }

    fn dump(&self) -> peregrine::Result<Mountlist> {
        let (ml_hostname, ml_directory) =
            (Name("desk.example".into()), Dirpath("/export/home".into()));
        Ok(Some(Box::new(Mountbody { ml_hostname, ml_directory, ml_next: None })))
    }

    fn umnt(&self, _dirpath: Dirpath) -> peregrine::Result<()> {
        Ok(())
    }

    fn umntall(&self) -> peregrine::Result<()> {
        Ok(())
    }

    fn export(&self) -> peregrine::Result<Exports> {
        let node = |path: &str, ex_groups, ex_next| {
            let ex_dir = Dirpath(ByteString::from(path));
            Some(Box::new(Exportnode { ex_dir, ex_groups, ex_next }))
        };
        let second = node("/export/public", None, None);
        Ok(node("/export/home", groups(&["desk.example", "lab.example"]), second))
    }

    fn exportall(&self) -> peregrine::Result<Exports> {
        self.export()
    }
}

#[test]
fn showmount_lists_what_our_server_exports() {
    alone("clients::showmount_lists_what_our_server_exports", &["rpcbind", "showmount"], || {
        let _rpcbind = Daemon::rpcbind();
        let _running = serve(Server::new().export("it", MountServer::new(Shares)));
        let exports = run("showmount", &["-e", HOST]);
        let line = |path: &str, to: &str| {
            let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            exports.lines().any(|line| words(line) == [path, to])
        };
        assert!(line("/export/home", "desk.example,lab.example"), "{exports}");
        assert!(line("/export/public", "(everyone)"), "{exports}");
        let mounts = run("showmount", &["-a", HOST]);
        assert!(mounts.contains("desk.example:/export/home"), "{mounts}");
        assert!(run("showmount", &["-d", HOST]).contains("/export/home"));
    });
}

/// The entries of the map `people`.
const PEOPLE: [(&str, &str); 2] = [("ada", "Lovelace"), ("grace", "Hopper")];

/// Serves whole maps of NIS.
struct WholeMap;

impl Ypall for WholeMap {
    fn ypall_all(&self, map: YpallMap) -> peregrine::Result<YpallEntries> {
        assert_eq!((&*map.domain.to_text(), &*map.map.to_text()), ("office", "people"));
        // 2 is the number of YP_NOMORE, and 1 that of YP_TRUE.
        let end = YpallEntry { stat: 2, val: Vec::new(), key: Vec::new(), next: None };
        let mut next = Some(Box::new(end));
        for (key, value) in PEOPLE.iter().rev() {
            let (val, key) = ((*value).into(), (*key).into());
            next = Some(Box::new(YpallEntry { stat: 1, val, key, next }));
        }
        Ok(next)
    }
}

#[test]
fn ypcat_reads_a_map_of_our_server() {
    alone("clients::ypcat_reads_a_map_of_our_server", &["rpcbind", "ypcat"], || {
        let _rpcbind = Daemon::rpcbind();
        let _running = serve(Server::new().export("it", YpallServer::new(WholeMap)));
        let map = run("ypcat", &["-k", "-h", HOST, "-d", "office", "people"]);
        assert!(map.contains("ada Lovelace\ngrace Hopper\n"), "{map}");
    });
}

/// Serves the other procedures of NIS.
struct Nis;

impl Yp for Nis {
    fn domain(&self, domainname: Domainname) -> peregrine::Result<bool> {
        Ok(domainname.0.to_text() == "office")
    }

    fn domain_nonack(&self, domainname: Domainname) -> peregrine::Result<bool> {
        self.domain(domainname)
    }

    fn r#match(&self, ypreq_key: YpreqKey) -> peregrine::Result<YprespVal> {
        let found = PEOPLE.iter().find(|(key, _)| key.as_bytes() == ypreq_key.key.0);
        let stat = if found.is_some() { Ypstat::YpTrue } else { Ypstat::YpNokey };
        Ok(YprespVal { stat, val: Valdat(found.map_or("", |(_, value)| value).into()) })
    }

    fn first(&self, _ypreq_key: YpreqKey) -> peregrine::Result<YprespKeyVal> {
        let (key, value) = PEOPLE[0];
        Ok(YprespKeyVal {
            stat: Ypstat::YpTrue,
            val: Valdat(value.into()),
            key: Keydat(key.into()),
        })
    }

    fn next(&self, _ypreq_key: YpreqKey) -> peregrine::Result<YprespKeyVal> {
        Ok(YprespKeyVal {
            stat: Ypstat::YpNomore,
            val: Valdat(Vec::new()),
            key: Keydat(Vec::new()),
        })
    }

    fn xfr(&self, ypreq_xfr: YpreqXfr) -> peregrine::Result<YprespXfr> {
        let YpreqXfr { transid, map_parms: YpmapParms { .. }, .. } = ypreq_xfr;
        Ok(YprespXfr { transid, xfrstat: Ypxfrstat::YpxfrRefused })
    }

    fn clear(&self) -> peregrine::Result<()> {
        Ok(())
    }

    fn all(&self, _ypreq_nokey: YpreqNokey) -> peregrine::Result<YprespAll> {
        Ok(YprespAll::False)
    }

    fn master(&self, _ypreq_nokey: YpreqNokey) -> peregrine::Result<YprespMaster> {
        Ok(YprespMaster { stat: Ypstat::YpTrue, peer: Peername("master.example".into()) })
    }

    fn order(&self, _ypreq_nokey: YpreqNokey) -> peregrine::Result<YprespOrder> {
        Ok(YprespOrder { stat: Ypstat::YpTrue, ordernum: 1_700_000_000 })
    }

    fn maplist(&self, _domainname: Domainname) -> peregrine::Result<YprespMaplist> {
        let maps = Some(Box::new(Ypmaplist { map: Mapname("people".into()), next: None }));
        Ok(YprespMaplist { stat: Ypstat::YpTrue, maps })
    }
}

#[test]
fn yppoll_asks_our_server() {
    alone("clients::yppoll_asks_our_server", &["rpcbind", "yppoll"], || {
        let _rpcbind = Daemon::rpcbind();
        let _running = serve(Server::new().export("it", YpServer::new(Nis)));
        let map = run("yppoll", &["-h", HOST, "-d", "office", "people"]);
        assert!(map.contains("Domain office is supported."), "{map}");
        assert!(map.contains("order number 1700000000"), "{map}");
        assert!(map.contains("The master server is master.example."), "{map}");
    });
}
