//! Tests that client and server refuse each other for each reason, with an error of its own on both sides,
//! over TCP, UDP and raw Ethernet. Also when certificates expire and keys are removed while clients are
//! bound.

mod support;

use std::error::Error as _;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use peregrine::secure::{Expected, Identity, PeerReason, Refusal, Trust, TrustedKey};
use peregrine::{
    BindOptions, CallError, EthernetDevice, Executed, ExportOptions, Kind, PathKind, Rebind,
    Running, Server, interface,
};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ED25519, SanType, date_time_ymd,
};
use support::link::{ENDS, Link, at_far_end, at_near_end};

const LONG: Duration = Duration::from_secs(20);

/// Makes a runtime directory for this test. The tests run one at a time.
fn home() -> (MutexGuard<'static, ()>, tempfile::TempDir) {
    (support::alone(), support::own_directory())
}

/// A CA.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let pem = parameters.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(parameters, key), pem }
    }

    fn trust(&self) -> Trust {
        Trust::of_authorities(self.pem.as_bytes()).unwrap()
    }

    fn issue(&self, parameters: &CertificateParams) -> Identity {
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let pem = parameters.signed_by(&key, &self.issuer).unwrap().pem();
        Identity::from_pem(pem.as_bytes(), key.serialize_pem().as_bytes()).unwrap()
    }
}

/// Returns parameters of a certificate that is valid now, with the address of each server of these tests.
fn valid() -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.subject_alt_names =
        ["127.0.0.1", ENDS[1]].map(|at| SanType::IpAddress(at.parse().unwrap())).into();
    parameters.not_before = date_time_ymd(2020, 1, 1);
    parameters.not_after = date_time_ymd(2990, 1, 1);
    parameters
}

fn trusts(name: &str, peer: &Identity) -> Trust {
    Trust::of_keys([TrustedKey::new(name, peer.public_key(), "").unwrap()]).unwrap()
}

#[interface]
trait Desk {
    fn add(&self, a: u32, b: u32) -> peregrine::Result<u32>;
}

struct Clerk;

impl Desk for Clerk {
    fn add(&self, a: u32, b: u32) -> peregrine::Result<u32> {
        Ok(a + b)
    }
}

/// A server, its address, and the refusals that it reports.
struct Office {
    _running: Running,
    address: String,
    refusals: Receiver<Refusal>,
}

impl Office {
    fn new(at: &str, identity: &Identity, trust: &Trust) -> Self {
        let (sender, refusals) = channel();
        let sender = Mutex::new(sender);
        let networks = ExportOptions::default().networks_only();
        let server = Server::new().export_with("desk", DeskServer::new(Clerk), networks).unwrap();
        let server =
            server.ethernet_device(EthernetDevice::Packet).on_refused(move |_, refusal| {
                let _ = sender.lock().unwrap().send(refusal.clone());
            });
        let own = (identity.clone(), trust.clone());
        let server = server.listen_beyond_this_machine(at, own).unwrap();
        let running = match at.starts_with("eth:") {
            true => at_far_end(move || server.spawn().unwrap()),
            false => server.spawn().unwrap(),
        };
        let address = format!("{}/desk", running.addresses()[0]);
        Self { _running: running, address, refusals }
    }

    fn bind(&self, options: &BindOptions) -> Result<DeskClient, CallError> {
        DeskClient::bind_with(&self.address, options)
    }

    /// Returns the refusals of both sides for a client that cannot bind.
    fn refusals(&self, options: &BindOptions) -> [Refusal; 2] {
        let error = self.bind(options).unwrap_err();
        assert_eq!(error.executed(), Executed::No, "{error}");
        let of_client = error.source().and_then(|source| source.downcast_ref()).cloned();
        let of_client = of_client.unwrap_or_else(|| panic!("no refusal: {error}"));
        let of_server = self.refusals.recv_timeout(LONG);
        [of_client, of_server.unwrap_or_else(|_| panic!("the server reports nothing: {error}"))]
    }
}

fn options(identity: &Identity, trust: &Trust) -> BindOptions {
    let options = BindOptions::default().ethernet_device(EthernetDevice::Packet);
    options.secure(identity.clone(), trust.clone()).rebind(Rebind::Never)
}

type IsRight = fn(&Refusal) -> bool;

/// Tries each reason for a refusal, with the client and with the server as the side that refuses.
fn each_reason_has_its_own_error_on_both_sides(at: &str) {
    let (good, evil) = (Authority::new("good"), Authority::new("evil"));
    let (mut old, mut young) = (valid(), valid());
    old.not_after = date_time_ymd(2021, 2, 3);
    young.not_before = date_time_ymd(2980, 4, 5);
    let ada = good.issue(&valid());
    let trust = good.trust();
    let cases: [(Identity, IsRight, PeerReason); 3] = [
        (
            evil.issue(&valid()),
            |refusal| matches!(refusal, Refusal::WrongAuthority { .. }),
            PeerReason::WrongAuthority,
        ),
        (
            good.issue(&old),
            |refusal| matches!(refusal, Refusal::Expired { .. }),
            PeerReason::Expired,
        ),
        (
            good.issue(&young),
            |refusal| matches!(refusal, Refusal::NotYetValid { .. }),
            PeerReason::NotYetValid,
        ),
    ];
    for (bad, is_right, reason) in cases {
        let [ours, theirs] = Office::new(at, &bad, &trust).refusals(&options(&ada, &trust));
        assert!(is_right(&ours), "{ours}");
        assert_eq!(theirs, Refusal::RefusedByPeer(reason));
        let office = Office::new(at, &ada, &trust);
        let [ours, theirs] = office.refusals(&options(&bad, &trust));
        assert_eq!(ours, Refusal::RefusedByPeer(reason));
        assert!(is_right(&theirs), "{theirs}");
        // Others are not disturbed.
        let desk = office.bind(&options(&ada, &trust)).unwrap();
        assert_eq!(desk.add(1, 2).unwrap(), 3);
    }
    // The right CA has signed the certificate, but not for this server.
    let office = Office::new(at, &ada, &trust);
    let expected: Expected = "other.example".parse().unwrap();
    let wants_other = options(&ada, &trust).expect(expected.clone());
    let [ours, theirs] = office.refusals(&wants_other);
    assert!(
        matches!(&ours, Refusal::WrongName { expected: one, .. } if *one == expected),
        "{ours}"
    );
    assert_eq!(theirs, Refusal::RefusedByPeer(PeerReason::WrongName));
    // Keys that were removed, and keys that were never there.
    let [bob, eve] = [(); 2].map(|()| Identity::generate().unwrap());
    let knows_bob = trusts("bob", &bob);
    knows_bob.set_keys([]).unwrap();
    let removed = Refusal::Removed { key: bob.public_key() };
    let told = Refusal::RefusedByPeer(PeerReason::Removed);
    let knows_eve = trusts("eve", &eve);
    let by_client = Office::new(at, &bob, &knows_eve).refusals(&options(&eve, &knows_bob));
    assert_eq!(by_client, [removed.clone(), told.clone()]);
    let by_server = Office::new(at, &eve, &knows_bob).refusals(&options(&bob, &knows_eve));
    assert_eq!(by_server, [told, removed]);
    let unknown = Refusal::UnknownKey { key: bob.public_key() };
    let told = Refusal::RefusedByPeer(PeerReason::UnknownKey);
    let by_client = Office::new(at, &bob, &knows_eve).refusals(&options(&eve, &knows_eve));
    assert_eq!(by_client, [unknown.clone(), told.clone()]);
    let by_server = Office::new(at, &eve, &knows_eve).refusals(&options(&bob, &knows_eve));
    assert_eq!(by_server, [told, unknown]);
}

#[test]
fn each_reason_has_its_own_error_on_both_sides_over_tcp() {
    let _home = home();
    each_reason_has_its_own_error_on_both_sides("tcp:127.0.0.1:0");
}

#[test]
fn each_reason_has_its_own_error_on_both_sides_over_udp() {
    let _home = home();
    each_reason_has_its_own_error_on_both_sides("udp:127.0.0.1:0");
}

#[test]
fn each_reason_has_its_own_error_on_both_sides_over_ethernet() {
    let _alone = support::alone();
    at_near_end(Link::new(), |_| {
        let _directory = support::own_directory();
        each_reason_has_its_own_error_on_both_sides(&format!("eth:{}:0", ENDS[1]));
    });
}

/// Certificates count at the next handshake. Nothing looks at their dates while a connection lives.
#[test]
fn living_connections_outlive_certificates() {
    let _home = home();
    let authority = Authority::new("CA");
    for at in ["tcp:127.0.0.1:0", "udp:127.0.0.1:0"] {
        // A busy machine may need longer to bind than the certificate is valid.
        let bound = |seconds| {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
            let end = now + Duration::from_secs(seconds);
            let mut short = valid();
            short.not_after = date_time_ymd(1970, 1, 1) + end;
            let (server, client) = (authority.issue(&valid()), authority.issue(&short));
            let office = Office::new(at, &server, &authority.trust());
            let desk = office.bind(&options(&client, &authority.trust()));
            // Certificates have no parts of seconds.
            let is_over = SystemTime::UNIX_EPOCH + end < SystemTime::now() + Duration::from_secs(1);
            (!is_over).then(|| (desk.unwrap(), office, client))
        };
        let bound = [4, 16, 64].into_iter().find_map(bound);
        let (desk, office, client) = bound.expect("a machine that is less busy");
        support::until("the certificate has expired", || {
            // Each of these clients makes a handshake.
            assert_eq!(desk.add(1, 2).unwrap(), 3);
            let another = office.bind(&options(&client, &authority.trust()));
            another.is_err_and(|error| error.to_string().contains("expired"))
        });
        assert_eq!(desk.add(1, 2).unwrap(), 3);
    }
}

/// The client looks at its own trust, as the server does.
#[test]
fn removed_key_of_the_server_ends_connections_of_clients() {
    let _home = home();
    for (at, path) in [("tcp:127.0.0.1:0", PathKind::Tcp), ("udp:127.0.0.1:0", PathKind::Udp)] {
        let [ada, bob, other] = [(); 3].map(|()| Identity::generate().unwrap());
        let of_ada = trusts("bob", &bob);
        let office = Office::new(at, &bob, &trusts("ada", &ada));
        let desk = office.bind(&options(&ada, &of_ada)).unwrap();
        assert_eq!((desk.add(1, 2).unwrap(), desk.binding().path()), (3, path));
        // Another client has a trust of its own.
        let calm = office.bind(&options(&ada, &trusts("bob", &bob))).unwrap();
        // A change that leaves the server's key ends nothing. The client looks twice after a change.
        let keys = |all: &[(&str, &Identity)]| {
            let key = |(name, of): &(&str, &Identity)| {
                TrustedKey::new(name, of.public_key(), "").unwrap()
            };
            all.iter().map(key).collect::<Vec<_>>()
        };
        of_ada.set_keys(keys(&[("bob", &bob), ("other", &other)])).unwrap();
        std::thread::sleep(Duration::from_millis(2500));
        assert_eq!(desk.add(1, 2).unwrap(), 3);
        of_ada.set_keys(keys(&[("other", &other)])).unwrap();
        support::until("the client ends the connection", || !desk.is_alive());
        let error = desk.add(1, 2).unwrap_err();
        assert_eq!(error.executed(), Executed::No, "{error}");
        assert_eq!(error.kind(), Kind::ServerGone, "{error}");
        assert!(error.to_string().contains("does not trust the server any more"), "{error}");
        let [ours, theirs] = office.refusals(&options(&ada, &of_ada));
        assert_eq!(ours, Refusal::Removed { key: bob.public_key() });
        assert_eq!(theirs, Refusal::RefusedByPeer(PeerReason::Removed));
        assert_eq!(calm.add(1, 2).unwrap(), 3);
    }
}
