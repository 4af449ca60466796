//! Tests that a client which wants encryption never uses less: at no address, by no path, and not after its
//! server was restarted.

mod support;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, MutexGuard};

use peregrine::directory::Hosts;
use peregrine::secure::{Identity, Trust, TrustedKey};
use peregrine::{
    BindOptions, CallError, Executed, ExportOptions, Insecure, Kind, PathKind, Running, Security,
    Server, Verdict, explain, interface,
};

static ADA: LazyLock<Identity> = LazyLock::new(|| Identity::generate().unwrap());
static BOB: LazyLock<Identity> = LazyLock::new(|| Identity::generate().unwrap());

fn home() -> (MutexGuard<'static, ()>, tempfile::TempDir) {
    (support::alone(), support::own_directory())
}

fn trusts(name: &str, peer: &Identity) -> Trust {
    Trust::of_keys([TrustedKey::new(name, peer.public_key(), "").unwrap()]).unwrap()
}

/// The security of Bob's server, which knows Ada.
fn of_bob() -> Security {
    (BOB.clone(), trusts("ada", &ADA)).into()
}

/// The options of Ada, who knows Bob.
fn of_ada() -> BindOptions {
    BindOptions::default().secure(ADA.clone(), trusts("bob", &BOB))
}

#[interface]
trait Vault {
    fn put(&self, secret: &str) -> peregrine::Result<()>;
}

/// Counts the calls that it gets.
#[derive(Clone, Default)]
struct Counts(Arc<AtomicU32>);

impl Vault for Counts {
    fn put(&self, _: &str) -> peregrine::Result<()> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

impl Counts {
    fn calls(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Exports a vault that only networks reach, at each of these endpoints.
fn serve(counts: &Counts, endpoints: impl IntoIterator<Item = (String, Security)>) -> Running {
    let networks = ExportOptions::default().networks_only();
    let vault = VaultServer::new(counts.clone());
    let mut server = Server::new().export_with("vault", vault, networks).unwrap();
    for (at, security) in endpoints {
        server = server.listen_beyond_this_machine(&at, security).unwrap();
    }
    server.spawn().unwrap()
}

fn any_port(security: impl Into<Security>) -> [(String, Security); 1] {
    [("tcp:127.0.0.1:0".to_owned(), security.into())]
}

fn place(running: &Running) -> SocketAddr {
    running.addresses()[0].to_string().split_once(':').unwrap().1.parse().unwrap()
}

fn fails(address: &str, options: &BindOptions) -> CallError {
    let error = VaultClient::bind_with(address, options).expect_err("less is offered");
    assert_eq!(error.executed(), Executed::No, "{error}");
    error
}

#[test]
fn plain_server_is_not_used_and_explain_says_why() {
    let _home = home();
    let plain = Counts::default();
    let running = serve(&plain, any_port(Insecure::ITrustThisNetwork));
    let address = format!("vault@{}", place(&running));
    let error = fails(&address, &of_ada());
    assert!(error.to_string().contains("does not use TLS"), "{error}");
    let (explanation, bound) = explain(&address, &of_ada());
    assert!(bound.is_err());
    let of = |path| {
        let mut all = explanation.candidates().iter();
        all.find(|one| one.path == path).unwrap_or_else(|| panic!("{path}: {explanation}"))
    };
    assert_eq!(of(PathKind::Tcp).verdict, Verdict::Failed);
    assert!(of(PathKind::Tcp).reason.contains("does not use TLS"), "{explanation}");
    for path in [PathKind::Udp, PathKind::Ethernet] {
        assert_ne!(of(path).verdict, Verdict::Chosen, "{explanation}");
    }
    // A client that wants no encryption uses the same server.
    VaultClient::bind(&address).unwrap().put("nothing").unwrap();
    assert_eq!(plain.calls(), 1);
}

/// The server also serves in clear at the same port over UDP, where it would accept the client.
#[test]
fn client_that_is_refused_over_tcp_does_not_try_udp() {
    let _home = home();
    let counts = Counts::default();
    let tcp = serve(&counts, any_port(of_bob()));
    let at = place(&tcp);
    let udp = (format!("udp:{at}"), Insecure::ITrustThisNetwork.into());
    let _udp = serve(&counts, [udp]);
    let eve = Identity::generate().unwrap();
    let options = BindOptions::default().secure(eve, trusts("bob", &BOB));
    let address = format!("vault@{at}");
    let error = fails(&address, &options);
    assert_eq!(error.kind(), Kind::Denied, "{error}");
    // A client that does not know the server does not try UDP either.
    let options = BindOptions::default().secure(ADA.clone(), trusts("carol", &ADA));
    assert_eq!(fails(&address, &options).kind(), Kind::Denied);
    assert_eq!(counts.calls(), 0);
    // Without encryption, the client would have been served over UDP.
    let plain = VaultClient::bind(&address).unwrap();
    assert_eq!(plain.binding().path(), PathKind::Udp);
    let sealed = VaultClient::bind_with(&address, &of_ada()).unwrap();
    assert_eq!(sealed.binding().path(), PathKind::Tcp);
}

#[test]
fn of_two_known_addresses_the_encrypted_one_is_used() {
    let (_alone, directory) = home();
    let [plain, sealed] = [(); 2].map(|()| Counts::default());
    let plains = serve(&plain, any_port(Insecure::ITrustThisNetwork));
    let seals = serve(&sealed, any_port(of_bob()));
    let file = directory.path().join("hosts");
    let hosts = |places: &[SocketAddr]| {
        let places: Vec<_> = places.iter().map(|place| format!("vault@{place}")).collect();
        std::fs::write(&file, format!("vault {}\n", places.join(" "))).unwrap();
        of_ada().directory(Hosts::of([file.clone()]))
    };
    for places in [[place(&plains), place(&seals)], [place(&seals), place(&plains)]] {
        let vault = VaultClient::bind_with("vault", &hosts(&places)).unwrap();
        vault.put("secret").unwrap();
    }
    assert_eq!((plain.calls(), sealed.calls()), (0, 2));
    // When the encrypted one is gone, the other one is not used.
    let both = [place(&seals), place(&plains)];
    drop(seals);
    let error = fails("vault", &hosts(&both));
    assert!(error.to_string().contains("does not use TLS"), "{error}");
    assert_eq!(plain.calls(), 0);
    VaultClient::bind_with("vault", &BindOptions::default().directory(Hosts::of([file.clone()])))
        .unwrap()
        .put("nothing")
        .unwrap();
    assert_eq!(plain.calls(), 1);
}

#[test]
fn binding_does_not_continue_at_a_server_that_was_restarted_without_encryption() {
    let _home = home();
    let (sealed, plain) = (Counts::default(), Counts::default());
    let running = serve(&sealed, any_port(of_bob()));
    let at = place(&running);
    let vault = VaultClient::bind_with(&format!("tcp:vault@{at}"), &of_ada()).unwrap();
    vault.put("secret").unwrap();
    drop(running);
    support::until("the client notices", || !vault.is_alive());
    let again = serve(&plain, [(format!("tcp:{at}"), Insecure::ITrustThisNetwork.into())]);
    for _ in 0..3 {
        let error = vault.put("secret").unwrap_err();
        assert_eq!(error.executed(), Executed::No, "{error}");
        assert!(error.to_string().contains("TLS"), "{error}");
    }
    drop(again);
    // Another server has the address, and its key is not known.
    let eve = Identity::generate().unwrap();
    let stranger: Security = (eve.clone(), trusts("ada", &ADA)).into();
    let again = serve(&plain, [(format!("tcp:{at}"), stranger)]);
    let error = vault.put("secret").unwrap_err();
    assert!(error.to_string().contains(&eve.fingerprint().to_string()), "{error}");
    drop(again);
    // The right server is back.
    let _running = serve(&sealed, [(format!("tcp:{at}"), of_bob())]);
    vault.put("secret").unwrap();
    assert_eq!((sealed.calls(), plain.calls()), (2, 0));
}

/// The kernel says who is at the other end of a local binding, and no network carries its messages.
#[test]
fn local_path_stays_allowed() {
    let _home = home();
    let counts = Counts::default();
    let server = Server::new().export("vault", VaultServer::new(counts.clone())).unwrap();
    let server = server.listen_beyond_this_machine("tcp:127.0.0.1:0", of_bob()).unwrap();
    let running = server.spawn().unwrap();
    for address in ["vault".to_owned(), format!("vault@{}", place(&running))] {
        let vault = VaultClient::bind_with(&address, &of_ada()).unwrap();
        assert_eq!(vault.binding().path(), PathKind::Local);
        vault.put("secret").unwrap();
    }
    assert_eq!(counts.calls(), 2);
    // A plain client also uses the local path, and no other one.
    VaultClient::bind("vault").unwrap().put("nothing").unwrap();
    let address = format!("tcp:vault@{}", place(&running));
    assert_eq!(fails(&address, &BindOptions::default()).kind(), Kind::Denied);
}

/// One server has an endpoint for each kind of network.
#[test]
fn endpoints_of_one_server_differ_in_security() {
    let _home = home();
    let counts = Counts::default();
    let carol = Identity::generate().unwrap();
    let of_carol: Security = (carol.clone(), trusts("ada", &ADA)).into();
    let all = [of_bob(), Insecure::ITrustThisNetwork.into(), of_carol];
    let running = serve(&counts, all.map(|security| ("tcp:127.0.0.1:0".to_owned(), security)));
    let [of_bob, plain, of_carol] = running.addresses() else { panic!("three endpoints") };
    let knows_carol = BindOptions::default().secure(ADA.clone(), trusts("carol", &carol));
    let at = |endpoint| format!("{endpoint}/vault");
    VaultClient::bind_with(&at(of_bob), &of_ada()).unwrap().put("secret").unwrap();
    VaultClient::bind_with(&at(of_carol), &knows_carol).unwrap().put("secret").unwrap();
    VaultClient::bind(&at(plain)).unwrap().put("nothing").unwrap();
    assert_eq!(counts.calls(), 3);
    fails(&at(of_bob), &knows_carol);
    fails(&at(of_carol), &of_ada());
    fails(&at(plain), &of_ada());
    fails(&at(of_bob), &BindOptions::default());
    // The client that wants encryption at the plain endpoint is not counted: nothing refused it.
    support::until("three refusals are counted", || running.refused_clients() == 3);
    assert_eq!(counts.calls(), 3);
}

/// Each endpoint has its own trust, and the server looks at all of them.
#[test]
fn removed_key_ends_connections_of_the_endpoint_that_has_the_trust() {
    let _home = home();
    let counts = Counts::default();
    let [first, second] = [(); 2].map(|()| trusts("ada", &ADA));
    let by = |trust: &Trust| Security::from((BOB.clone(), trust.clone()));
    let at = "tcp:127.0.0.1:0".to_owned();
    let running = serve(&counts, [(at.clone(), by(&first)), (at, by(&second))]);
    let [one, other] = [0, 1].map(|which| {
        let address = format!("{}/vault", running.addresses()[which]);
        VaultClient::bind_with(&address, &of_ada()).unwrap()
    });
    second.set_keys([]).unwrap();
    support::until("the connection ends", || !other.is_alive());
    assert!(one.is_alive());
    one.put("secret").unwrap();
    let error = other.put("secret").unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::Denied, Executed::No), "{error}");
    first.set_keys([]).unwrap();
    support::until("the connection ends", || !one.is_alive());
}
