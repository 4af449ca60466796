//! Tests with Debian's rpcbind and rpcinfo.

use peregrine::Server;
use peregrine::foreign::ByteString;

use super::HOST;
use super::machine::{Daemon, alone, outcome, run};
use super::rpcb_prot::{RpList, Rpcb, RpcbV3, RpcbV3Client, RpcbV4, RpcbV4Client};
use super::wall::{Wall, WallServer};

/// A program that nothing else in the namespaces has.
const PROGRAM: u32 = 0x2000_0079;

fn text(text: &str) -> ByteString {
    ByteString::from(text)
}

/// Returns an entry of rpcbind.
pub(crate) fn entry(program: u32, version: u32, network: &str, address: &str) -> Rpcb {
    let (r_netid, r_addr) = (text(network), text(address));
    Rpcb { r_prog: program, r_vers: version, r_netid, r_addr, r_owner: text("superuser") }
}

/// Returns the addresses of a program in the results of a dump.
fn listed(list: &Option<Box<RpList>>, program: u32) -> Vec<String> {
    let nodes = std::iter::successors(list.as_ref(), |node| node.rpcb_next.as_ref());
    let ours = nodes.map(|node| &node.rpcb_map).filter(|entry| entry.r_prog == program);
    let text = |entry: &Rpcb| format!("{} {}", entry.r_netid.to_text(), entry.r_addr.to_text());
    let mut found: Vec<_> = ours.map(text).collect();
    found.sort();
    found
}

#[test]
fn our_client_uses_every_procedure_of_rpcbind() {
    alone("registry::our_client_uses_every_procedure_of_rpcbind", &["rpcbind"], || {
        let _rpcbind = Daemon::rpcbind();
        check_every_procedure();
    });
}

/// Calls every procedure of versions 3 and 4 of the rpcbind of the machine.
pub(crate) fn check_every_procedure() {
    for transport in ["udp", "tcp"] {
        let address = format!("onc+{transport}:{HOST}:111");
        let fourth = RpcbV4Client::bind(&address).expect("version 4");
        let third = RpcbV3Client::bind(&address).expect("version 3");
        let ours = || entry(PROGRAM, 5, "udp", "127.0.0.1.13.9");
        assert_eq!(third.getaddr(ours()).expect("an address"), text(""));
        assert!(third.set(ours()).expect("a flag"), "{transport}");
        let elsewhere = entry(PROGRAM, 5, "udp", "127.0.0.1.13.11");
        assert!(!third.set(elsewhere).expect("a flag"), "{transport}");
        assert!(fourth.set(entry(PROGRAM, 5, "tcp", "127.0.0.1.13.10")).expect("a flag"));
        // The program has an address for each transport. rpcbind returns the address for the transport over
        // which it received the request.
        let here = if transport == "udp" { "127.0.0.1.13.9" } else { "127.0.0.1.13.10" };
        assert_eq!(third.getaddr(ours()).expect("an address"), text(here));
        assert_eq!(fourth.getversaddr(ours()).expect("an address"), text(here));
        let other = entry(PROGRAM, 6, "udp", "");
        assert_eq!(fourth.getversaddr(other).expect("an address"), text(""));
        let both = ["tcp 127.0.0.1.13.10", "udp 127.0.0.1.13.9"];
        assert_eq!(listed(&third.dump().expect("a list"), PROGRAM), both);
        assert_eq!(listed(&fourth.dump().expect("a list"), PROGRAM), both);
        let places = fourth.getaddrlist(ours()).expect("a list");
        let nodes = std::iter::successors(places.as_ref(), |node| node.rpcb_entry_next.as_ref());
        let families: Vec<_> =
            nodes.map(|node| node.rpcb_entry_map.r_nc_protofmly.to_text()).collect();
        assert_eq!(families, ["inet", "inet"]);
        let all =
            peregrine::registered_programs(&format!("onc+{transport}:{HOST}")).expect("a list");
        let of = |program| all.iter().filter(move |one| one.program == program);
        assert_eq!(of(PROGRAM).map(|one| one.version).collect::<Vec<_>>(), [5, 5]);
        let is_named = std::path::Path::new("/etc/rpc").exists();
        let mut names = of(100_000).map(|one| one.name.as_deref());
        assert!(!is_named || names.all(|name| name == Some("portmapper")), "{all:?}");
        assert!(
            third.gettime().expect("seconds").abs_diff(fourth.gettime().expect("seconds")) < 60
        );
        assert!(fourth.getstat().expect("statistics").iter().any(|one| one.setinfo > 0));
        assert!(fourth.unset(entry(PROGRAM, 5, "", "")).expect("a flag"), "{transport}");
        assert_eq!(listed(&third.dump().expect("a list"), PROGRAM), [""; 0]);
    }
}

/// An object that the test only pings.
struct Deaf;

impl Wall for Deaf {
    fn wall(&self, _text: ByteString) -> peregrine::Result<()> {
        Ok(())
    }
}

fn started() -> Server {
    let server = Server::new().export("wall", WallServer::new(Deaf)).expect("an export");
    let server = server.listen(&format!("onc+udp:{HOST}:0")).expect("a port");
    server.listen(&format!("onc+tcp:{HOST}:0")).expect("a port")
}

/// Without rpcbind, rpcinfo calls procedure 0 at the address that the user gives.
#[test]
fn rpcinfo_calls_procedure_0_at_an_address() {
    alone("registry::rpcinfo_calls_procedure_0_at_an_address", &["rpcinfo"], || {
        let running = started().spawn().expect("a server");
        for endpoint in running.addresses() {
            let network = if endpoint.to_string().starts_with("onc+udp") { "udp" } else { "tcp" };
            let [high, low] = endpoint.place().port().to_be_bytes();
            let address = format!("{HOST}.{high}.{low}");
            let words =
                |version| ["-a", &*address, "-T", network, "100008", version].map(str::to_owned);
            let ready = run_owned(&words("1"));
            assert!(ready.contains("program 100008 version 1 ready and waiting"), "{ready}");
            let (code, other) = outcome_owned(&words("2"));
            assert_ne!(code, Some(0), "{other}");
            assert!(other.contains("low version = 1, high version = 1"), "{other}");
        }
    });
}

fn run_owned(arguments: &[String]) -> String {
    run("rpcinfo", &arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

fn outcome_owned(arguments: &[String]) -> (Option<i32>, String) {
    outcome("rpcinfo", &arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn rpcinfo_finds_our_server_through_rpcbind() {
    let needs = ["rpcbind", "rpcinfo"];
    alone("registry::rpcinfo_finds_our_server_through_rpcbind", &needs, || {
        let _rpcbind = Daemon::rpcbind();
        let _running = started().register_programs().spawn().expect("a server");
        for network in ["udp", "tcp"] {
            let ready = run("rpcinfo", &["-T", network, HOST, "100008", "1"]);
            assert!(ready.contains("program 100008 version 1 ready and waiting"), "{ready}");
            // Without a version, rpcinfo asks for version 0 first, and learns the versions from the refusal.
            let ready = run("rpcinfo", &["-T", network, HOST, "100008"]);
            assert!(ready.contains("program 100008 version 1 ready and waiting"), "{ready}");
        }
        for option in ["-u", "-t"] {
            let ready = run("rpcinfo", &[option, HOST, "100008", "1"]);
            assert!(ready.contains("program 100008 version 1 ready and waiting"), "{ready}");
        }
        for option in ["-p", "-s"] {
            let all = run("rpcinfo", &[option, HOST]);
            assert!(
                all.lines().any(|line| line.contains("100008") && line.contains("walld")),
                "{all}"
            );
        }
    });
}
