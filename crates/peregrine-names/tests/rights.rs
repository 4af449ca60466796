//! Tests that the second call never has more rights than the caller of the name service.

mod support;

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::LazyLock;

use peregrine::secure::{Identity, Trust, TrustedKey};
use peregrine::{BindOptions, Executed, ExportOptions, Insecure, Kind, Server};
use peregrine_names::{Lookup, LookupClient};
use support::{Counter, Role, ShopServer, Table, client, failed, role, role_words, service, shop};

const OTHER: u32 = 61_999;
/// An address of no loopback network, which the test gives to its own loopback interface.
const HOST: &str = "192.0.2.1";

/// Does the work of a child process that has a role. In the test run itself, this function does nothing.
#[test]
fn child() {
    let Some(role) = role() else { return };
    match role.split_once(' ').unwrap_or((&role, "")) {
        ("caller", address) => {
            let names = client(address);
            for name in ["local", "network"] {
                let said = match names.call(name, "who", "{}") {
                    Ok(returned) => returned.json,
                    Err(error) => error.to_string(),
                };
                println!("\n{name}: {said}");
            }
        }
        ("users", _) => users(),
        ("groups", _) => groups(),
        ("machines", _) => machines(),
        _ => panic!("unknown role {role}"),
    }
}

/// A name service of root, with an export for all users, is called by another user.
fn users() {
    let table = Table::default();
    let shops = ShopServer::new(Counter::default());
    let _private = Server::new().export("shop", shops).unwrap().spawn().unwrap();
    let (_shop, address) = shop("tcp:127.0.0.1:0", &Counter::default());
    table.set("local", &["shop"]);
    table.set("network", &[&address]);
    let options = ExportOptions::default().public();
    let server = service(&table).export(Server::new(), "names", &options).unwrap();
    let _running = server.spawn().unwrap();
    let own = client("names").call("local", "who", "{}").unwrap();
    println!("\nown: {}", own.json);
    let words = role_words();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).uid(OTHER).gid(OTHER);
    let mut caller = Role::start("caller names", &mut command);
    for name in ["local", "network"] {
        println!("\n{name}: {}", caller.after(&format!("{name}:")));
    }
}

#[test]
fn other_user_gets_no_rights_of_the_user_of_the_name_service() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can change its user");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let words = role_words();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).env("PEREGRINE_DIR", directory.path().join("run"));
    std::os::unix::fs::chown(directory.path(), Some(0), Some(0)).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(directory.path(), open).unwrap();
    let mut users = Role::start("users", &mut command);
    assert_eq!(users.after("own:"), r#"{"result":[0,"uid:0",null]}"#);
    let local = users.after("local:");
    assert!(local.contains("only be called by the user of the name service"), "{local}");
    assert!(local.contains("not executed"), "{local}");
    assert_eq!(users.after("network:"), r#"{"result":[4294967295,null,null]}"#);
}

/// A name service that has a supplementary group is called by its own user. A server admits that group.
fn groups() {
    let table = Table::default();
    let options = ExportOptions::default().groups([OTHER]);
    let server = Server::new().export_with("shop", ShopServer::new(Counter::default()), options);
    let _shop = server.unwrap().spawn().unwrap();
    table.set("local", &["shop"]);
    let server = service(&table).export(Server::new(), "names", &ExportOptions::default());
    let _running = server.unwrap().spawn().unwrap();
    let (kind, executed, text) = failed(client("names").call("local", "who", "{}"));
    println!("\ngroups: {kind:?} {executed:?} {text}");
}

#[test]
fn supplementary_groups_of_the_name_service_are_not_lent() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can change its groups");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--groups", &OTHER.to_string()]).args(role_words());
    let mut groups = Role::start("groups", command.env("PEREGRINE_DIR", directory.path()));
    let failure = groups.after("groups:");
    assert!(failure.starts_with("Denied No "), "{failure}");
    assert!(failure.contains("supplementary groups"), "{failure}");
}

/// A name service is called from an address that is no loopback address, as by another machine.
fn machines() {
    let table = Table::default();
    let (_loopback, hidden) = shop("tcp:127.0.0.1:0", &Counter::default());
    let options = ExportOptions::default().networks_only();
    let shops = ShopServer::new(Counter::default());
    let server = Server::new().export_with("shop", shops, options.clone()).unwrap();
    let open =
        server.listen_beyond_this_machine(&format!("tcp:{HOST}:0"), Insecure::ITrustThisNetwork);
    let open = open.unwrap().spawn().unwrap();
    table.set("local", &[&hidden]);
    table.set("network", &[&format!("tcp:shop@{}", open.addresses()[0].place())]);
    for scheme in ["udp", "tcp"] {
        let server = service(&table).export(Server::new(), "names", &options).unwrap();
        let endpoint = format!("{scheme}:{HOST}:0");
        let server = server.listen_beyond_this_machine(&endpoint, Insecure::ITrustThisNetwork);
        let running = server.unwrap().spawn().unwrap();
        let names = client(&format!("{}/names", running.addresses()[0]));
        let (kind, executed, text) = failed(names.call("local", "who", "{}"));
        assert_eq!((kind, executed), (Kind::Denied, Executed::No), "{text}");
        assert!(text.contains("is on the machine of the name service"), "{text}");
        let known = names.resolve("local").unwrap();
        assert!(known.servers.is_empty() && known.remarks[0].starts_with("left out"), "{known:?}");
        assert!(names.call("network", "who", "{}").is_ok());
        assert_eq!(names.resolve("network").unwrap().servers.len(), 1);
    }
    println!("\nmachines: checked");
}

#[test]
fn other_machine_reaches_no_loopback_address_through_the_name_service() {
    let script = format!("ip link set lo up && ip addr add {HOST}/32 dev lo && exec \"$@\"");
    let probe = ["-n", "sh", "-c", &script, "sh", "true"];
    if !Command::new("unshare").args(probe).status().is_ok_and(|status| status.success()) {
        println!("skipped: this user cannot make a network namespace");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command.args(["-n", "sh", "-c", &script, "sh"]).args(role_words());
    let mut machines = Role::start("machines", command.env("PEREGRINE_DIR", directory.path()));
    assert_eq!(machines.after("machines:"), "checked");
}

static ADA: LazyLock<Identity> = LazyLock::new(|| Identity::generate().unwrap());
static BOB: LazyLock<Identity> = LazyLock::new(|| Identity::generate().unwrap());

#[test]
fn server_that_requires_identities_refuses_the_second_call() {
    let key = |name: &str, peer: &Identity| TrustedKey::new(name, peer.public_key(), "").unwrap();
    let of_bob = || {
        let trust = Trust::of_keys([key("ada", &ADA), key("bob", &BOB)]).unwrap();
        (BOB.clone(), trust)
    };
    let networks = || ExportOptions::default().networks_only();
    let counter = Counter::default();
    let shops = || ShopServer::new(counter.clone());
    let server = Server::new().export_with("shop", shops(), networks()).unwrap();
    let server = server.export_with("vault", shops(), networks().identities(["ada"])).unwrap();
    let sealed = server.listen_beyond_this_machine("tcp:127.0.0.1:0", of_bob()).unwrap();
    let sealed = sealed.listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
    let [with_identity, plain] = [0, 1].map(|number| sealed.addresses()[number].place().clone());
    let table = Table::default();
    table.set("shop", &[&format!("tcp:shop@{with_identity}")]);
    table.set("vault", &[&format!("tcp:vault@{plain}")]);
    table.set("open", &[&format!("tcp:shop@{plain}")]);
    // The name service listens with Bob's identity, which the server trusts, and does not use it.
    let server = service(&table).export(Server::new(), "names", &networks()).unwrap();
    let server = server.listen_beyond_this_machine("tcp:127.0.0.1:0", of_bob()).unwrap();
    let running = server.spawn().unwrap();
    let trust = Trust::of_keys([key("bob", &BOB)]).unwrap();
    let options = BindOptions::default().secure(ADA.clone(), trust);
    let address = format!("{}/names", running.addresses()[0]);
    let names = LookupClient::bind_with(&address, &options).unwrap();
    for (name, why) in [("shop", "TLS"), ("vault", "without encryption nothing proves who calls")] {
        let (_, executed, text) = failed(names.call(name, "who", "{}"));
        assert_eq!(executed, Executed::No, "{text}");
        assert!(text.contains(why), "{text}");
    }
    let returned = names.call("open", "who", "{}").unwrap();
    assert_eq!(returned.json, r#"{"result":[4294967295,null,null]}"#);
}
