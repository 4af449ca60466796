//! Tests our rpcbind with rpcinfo, with a program in C and with our servers. Also tests our servers with
//! Debian's rpcbind.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use peregrine::{CallError, Executed, Insecure, Kind, Rpcbind, Running, Server, interface};
use tempfile::TempDir;

use super::HOST;
use super::c_programs::{compile, library_flags};
use super::machine::{Daemon, alone, are_installed, command, outcome, run};
use super::registry::{check_every_procedure, entry};
use super::rpcb_prot::{RpcbRmtcallargs, RpcbV3, RpcbV3Client, RpcbV4, RpcbV4Client};
use crate::support::until;

/// The program that `registered.c` also serves.
#[interface(onc(program = 0x2000_0079, version = 1))]
trait Next {
    #[onc(1)]
    fn next(&self, number: i32) -> peregrine::Result<i32>;
}

const PROGRAM: u32 = 0x2000_0079;

/// The number of the program in decimal, which rpcinfo expects.
const NUMBER: &str = "536871033";

struct Adder;

impl Next for Adder {
    fn next(&self, number: i32) -> peregrine::Result<i32> {
        Ok(number + 1)
    }
}

/// The addresses at which our rpcbind listens in tests without a second machine.
const HERE: [&str; 2] = [HOST, "[::1]"];

/// The address of our rpcbind in the network of two machines.
const NEAR: &str = "192.0.2.1";
/// The address of the other machine, which reaches our rpcbind.
const FAR: &str = "192.0.2.2";

/// The directory with the program that is compiled from `registered.c`.
struct Tool(TempDir);

impl Tool {
    /// Compiles the program. Returns `None` if the compiler is not installed.
    fn compiled() -> Option<Self> {
        if !are_installed(&["gcc", "pkg-config"]) {
            return None;
        }
        let flags = library_flags()?;
        let place = tempfile::tempdir().expect("a temporary directory");
        // Other users run the program, too.
        run("chmod", &["755", &place.path().to_string_lossy()]);
        std::fs::write(place.path().join("registered.c"), include_str!("registered.c"))
            .expect("a file");
        compile(place.path(), "registered", &["registered.c"], &flags);
        Some(Self(place))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("registered")
    }

    /// Runs a command of the program. Returns the line that it prints.
    fn says(&self, words: &[&str]) -> String {
        let path = self.path();
        outcome(&path.to_string_lossy(), words).1.trim().to_owned()
    }

    /// Runs a command of the program as a user other than root.
    fn says_to_user(&self, words: &[&str]) -> String {
        let path = self.path();
        let user = ["--reuid", "65534", "--clear-groups", &path.to_string_lossy()];
        outcome("setpriv", &[&user[..], words].concat()).1.trim().to_owned()
    }

    /// Runs a command of the program on the other machine.
    fn says_far(&self, words: &[&str]) -> String {
        let path = self.path();
        let mut far = far(&path.to_string_lossy());
        let output = far.args(words).output().expect("a program that can be started");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Starts the program as a server, and waits until the server is registered.
    fn serve(&self) -> Daemon {
        let mut daemon =
            Daemon::spawn(Command::new(self.path()).arg("serve").stdout(Stdio::piped()));
        let output = daemon.child().stdout.take().expect("a pipe");
        let line = BufReader::new(output).lines().next().expect("a line").expect("text");
        assert_eq!(line, "ready");
        daemon
    }
}

/// Ends the server in C, and waits until it has removed its program.
fn end(mut server: Daemon) {
    let pid = rustix::process::Pid::from_child(server.child());
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("a process");
    until("the program is removed", || registered() == 0);
}

/// Returns a command on the other machine.
fn far(program: &str) -> Command {
    command("nsenter", &["--net=/run/netns/far", program])
}

/// Starts our rpcbind at the addresses `hosts`. Our rpcbind has no local socket, so libtirpc reaches it over
/// IPv6 if the machine has IPv6.
fn our_rpcbind(hosts: [&str; 2]) -> (Rpcbind, Running) {
    let mut server = Server::new();
    for host in hosts {
        for scheme in ["onc+udp", "onc+tcp"] {
            let endpoint = format!("{scheme}:{host}:111");
            server = server
                .listen_beyond_this_machine(&endpoint, Insecure::ITrustThisNetwork)
                .expect("the port of rpcbind");
        }
    }
    let rpcbind = Rpcbind::new();
    let running = rpcbind.spawn(server).expect("a server");
    (rpcbind, running)
}

/// Starts a server in Rust that registers its program.
fn started(name: &str) -> Result<Running, CallError> {
    let server = Server::new().export(name, NextServer::new(Adder))?;
    let server = server.listen(&format!("onc+udp:{HOST}:0"))?;
    server.listen(&format!("onc+tcp:{HOST}:0"))?.register_programs().spawn()
}

/// Calls the program in Rust, over UDP and TCP.
fn next() -> Result<i32, CallError> {
    NextClient::bind(&format!("onc+udp:{HOST}"))?.next(20)?;
    NextClient::bind(&format!("onc+tcp:{HOST}"))?.next(20)
}

/// Returns how often the program is registered.
fn registered() -> usize {
    let all = peregrine::registered_programs(&format!("onc+tcp:{HOST}")).expect("a list");
    all.iter().filter(|one| one.program == PROGRAM).count()
}

#[test]
fn rpcinfo_asks_our_rpcbind() {
    alone("our_rpcbind::rpcinfo_asks_our_rpcbind", &["rpcinfo"], || {
        let (rpcbind, _running) = our_rpcbind(HERE);
        for network in ["udp", "tcp"] {
            for version in ["2", "3", "4"] {
                let ready = run("rpcinfo", &["-T", network, HOST, "100000", version]);
                let expected = format!("program 100000 version {version} ready and waiting");
                assert!(ready.contains(&expected), "{ready}");
            }
        }
        let _server = started("next").expect("a registered server");
        let old = run("rpcinfo", &["-p", HOST]);
        let has = |network: &str| {
            let is_ours = |line: &str| line.contains(NUMBER) && line.contains(network);
            old.lines().any(is_ours)
        };
        assert!(has("udp") && has("tcp") && old.contains("100000"), "{old}");
        let short = run("rpcinfo", &["-s", HOST]);
        assert!(short.lines().any(|line| line.contains(NUMBER)), "{short}");
        let places = run("rpcinfo", &["-l", HOST, NUMBER, "1"]);
        assert!(places.contains("udp") && places.contains("127.0.0.1."), "{places}");
        let calls = run("rpcinfo", &["-m", HOST]);
        assert!(calls.contains("(version 4) statistics"), "{calls}");
        let all = rpcbind.registered();
        assert_eq!(all.iter().filter(|one| one.program == PROGRAM).count(), 2);
        assert_eq!(all.iter().filter(|one| one.owner == "superuser").count(), all.len());
    });
}

#[test]
fn our_rpcbind_has_every_procedure_that_makes_no_calls() {
    alone("our_rpcbind::our_rpcbind_has_every_procedure_that_makes_no_calls", &[], || {
        let _rpcbind = our_rpcbind(HERE);
        check_every_procedure();
        for transport in ["udp", "tcp"] {
            let address = format!("onc+{transport}:{HOST}:111");
            let third = RpcbV3Client::bind(&address).expect("version 3");
            let fourth = RpcbV4Client::bind(&address).expect("version 4");
            for address in ["127.0.0.1.3.9", "192.0.2.7.255.255"] {
                let there = third.uaddr2taddr(address.into()).expect("an address");
                assert_eq!(fourth.taddr2uaddr(there).expect("a text").to_text(), address);
            }
            let nothing = third.uaddr2taddr("somewhere".into()).expect("no address");
            assert!(nothing.buf.is_empty());
            assert_eq!(fourth.taddr2uaddr(nothing).expect("no text").to_text(), "");
            let call = || RpcbRmtcallargs { prog: 100_000, vers: 4, proc: 0, args: Vec::new() };
            for error in [
                third.callit(call()).expect_err("a refusal"),
                fourth.bcast(call()).expect_err("a refusal"),
                fourth.indirect(call()).expect_err("a refusal"),
            ] {
                assert_eq!(error.kind(), Kind::NoSuchProcedure, "{error}");
            }
        }
    });
}

#[test]
fn table_of_our_rpcbind_does_not_grow_without_end() {
    alone("our_rpcbind::table_of_our_rpcbind_does_not_grow_without_end", &[], || {
        let _rpcbind = our_rpcbind(HERE);
        let rpcbind = RpcbV4Client::bind(&format!("onc+tcp:{HOST}:111")).expect("version 4");
        let set = |version| rpcbind.set(entry(PROGRAM, version, "udp", "127.0.0.1.8.1"));
        let accepted = (0..2000).filter(|version| set(*version).expect("a flag")).count();
        assert!((500..1024).contains(&accepted), "{accepted}");
        assert_eq!(registered(), accepted);
        let long = "x".repeat(100_000);
        assert!(!rpcbind.set(entry(PROGRAM, 2000, "local", &long)).expect("a flag"));
    });
}

#[test]
fn c_programs_find_each_other_by_our_rpcbind() {
    let needs = ["rpcinfo", "setpriv"];
    alone("our_rpcbind::c_programs_find_each_other_by_our_rpcbind", &needs, || {
        let Some(tool) = Tool::compiled() else { return };
        let _rpcbind = our_rpcbind(HERE);
        let server = tool.serve();
        for transport in ["udp", "tcp"] {
            assert_eq!(tool.says(&["call", HOST, transport]), "21", "{transport}");
            run("rpcinfo", &["-T", transport, HOST, NUMBER, "1"]);
        }
        assert_eq!(next().expect("the server in C"), 21);
        let port = tool.says(&["pmap_getport", "17"]).parse::<u16>().expect("a port");
        let [high, low] = port.to_be_bytes();
        assert_eq!(tool.says(&["rpcb_getaddr", HOST, "udp"]), format!("{HOST}.{high}.{low}"));
        end(server);
        assert_eq!(tool.says(&["pmap_set", "17", "2049"]), "changed");
        assert_eq!(tool.says(&["pmap_set", "17", "2050"]), "unchanged");
        assert_eq!(tool.says(&["pmap_getport", "17"]), "2049");
        assert_eq!(tool.says(&["pmap_getport", "6"]), "0");
        assert_eq!(tool.says(&["pmap_unset"]), "changed");
        assert_eq!(tool.says(&["rpcb_set", "tcp", "0.0.0.0.8.1"]), "changed");
        assert_eq!(tool.says(&["rpcb_getaddr", HOST, "tcp"]), "127.0.0.1.8.1");
        // Users cannot change what root has registered, and root can change everything.
        assert_eq!(tool.says_to_user(&["rpcb_unset"]), "unchanged");
        assert_eq!(tool.says_to_user(&["rpcb_set", "tcp", "0.0.0.0.8.2"]), "unchanged");
        assert_eq!(tool.says(&["rpcb_unset"]), "changed");
        assert_eq!(tool.says_to_user(&["rpcb_set", "tcp", "0.0.0.0.3.1"]), "unchanged");
        assert_eq!(tool.says_to_user(&["rpcb_set", "tcp", "0.0.0.0.8.1"]), "changed");
        assert_eq!(tool.says(&["rpcb_unset"]), "changed");
        assert_eq!(registered(), 0);
        assert_eq!(next().expect_err("no server").kind(), Kind::NotFound);
    });
}

/// Registers servers at the rpcbind of the machine, and checks that other programs find them there.
fn check_registration(tool: &Tool) {
    let running = started("next").expect("a registered server");
    for transport in ["udp", "tcp"] {
        let ready = run("rpcinfo", &["-T", transport, HOST, NUMBER, "1"]);
        assert!(ready.contains("version 1 ready and waiting"), "{ready}");
        assert_eq!(tool.says(&["call", HOST, transport]), "21");
    }
    assert_eq!(next().expect("the server in Rust"), 21);
    let error = started("other").expect_err("the program has a server");
    assert_eq!((error.kind(), error.executed()), (Kind::NameTaken, Executed::No), "{error}");
    assert!(running.withdraw("next"));
    assert_eq!(registered(), 0);
    running.stop();
    started("next").expect("a registered server").stop();
    assert_eq!(registered(), 0);
    // The program of a server that is killed stays registered.
    drop(tool.serve());
    assert_eq!(registered(), 4);
    assert_ne!(tool.says(&["call", HOST, "tcp"]), "21");
    let running = started("next").expect("the program is replaced");
    assert_eq!(next().expect("the server in Rust"), 21);
    // The server in C replaces the registration of our server. When our server ends, the registration of the
    // server in C stays.
    let other = tool.serve();
    running.stop();
    assert_eq!(registered(), 4);
    assert_eq!(tool.says(&["call", HOST, "udp"]), "21");
    end(other);
}

#[test]
fn our_server_registers_at_debians_rpcbind() {
    let needs = ["rpcbind", "rpcinfo"];
    alone("our_rpcbind::our_server_registers_at_debians_rpcbind", &needs, || {
        let Some(tool) = Tool::compiled() else { return };
        let error = started("next").expect_err("no rpcbind");
        assert_eq!((error.kind(), error.executed()), (Kind::Unreachable, Executed::No), "{error}");
        let _rpcbind = Daemon::rpcbind();
        check_registration(&tool);
        // rpcbind knows the user of a server from the local socket.
        let _running = started("next").expect("a registered server");
        let all = peregrine::registered_programs(&format!("onc+tcp:{HOST}")).expect("a list");
        let mut ours = all.iter().filter(|one| one.program == PROGRAM);
        assert!(ours.all(|one| one.owner == "superuser"), "{all:?}");
    });
}

#[test]
fn our_server_registers_at_our_rpcbind() {
    alone("our_rpcbind::our_server_registers_at_our_rpcbind", &["rpcinfo"], || {
        let Some(tool) = Tool::compiled() else { return };
        let _rpcbind = our_rpcbind(HERE);
        check_registration(&tool);
    });
}

/// Makes a network of two machines.
fn make_network() {
    let set_up = format!(
        "mkdir -p /run/netns && ip netns add far && \
         ip link add near type veth peer name far netns far && \
         ip address add {NEAR}/24 dev near && ip link set near up && \
         nsenter --net=/run/netns/far sh -c \
         'ip link set lo up && ip address add {FAR}/24 dev far && ip link set far up'"
    );
    run("sh", &["-c", &set_up]);
}

#[test]
fn other_machines_ask_our_rpcbind_and_change_nothing() {
    let needs = ["ip", "nsenter"];
    alone("our_rpcbind::other_machines_ask_our_rpcbind_and_change_nothing", &needs, || {
        let Some(tool) = Tool::compiled() else { return };
        make_network();
        let _rpcbind = our_rpcbind(["0.0.0.0", "[::]"]);
        for transport in ["udp", "tcp"] {
            assert_eq!(tool.says_far(&["set", NEAR, transport]), "unchanged");
        }
        assert_eq!(registered(), 0);
        let server = tool.serve();
        for transport in ["udp", "tcp"] {
            assert_eq!(tool.says_far(&["unset", NEAR, transport]), "unchanged");
            assert_eq!(tool.says_far(&["call", NEAR, transport]), "21");
            let found = tool.says_far(&["rpcb_getaddr", NEAR, transport]);
            assert!(found.starts_with("192.0.2.1."), "{found}");
            for procedure in ["bcast", "indirect"] {
                let refused = tool.says_far(&[procedure, NEAR, transport]);
                assert_eq!(refused, "RPC: Procedure unavailable", "{procedure}");
            }
        }
        // Lists are long, and the source address of a datagram may be forged. So rpcbind sends lists to other
        // machines only over TCP.
        assert_eq!(tool.says_far(&["dump", NEAR, "tcp"]), "4");
        assert_eq!(tool.says_far(&["dump", NEAR, "udp"]), "RPC: Remote system error");
        assert_eq!(tool.says(&["dump", HOST, "udp"]), "4");
        drop(server);
        // Other machines do not reach a server that listens at the loopback interface.
        let _running = started("next").expect("a registered server");
        let found = tool.says_far(&["rpcb_getaddr", NEAR, "udp"]);
        assert!(found.contains("not registered"), "{found}");
        assert_eq!(next().expect("the server in Rust"), 21);
    });
}
