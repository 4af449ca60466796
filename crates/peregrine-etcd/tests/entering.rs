//! Tests how a process enters a cluster: by TLS with certificates of both sides, and by a user with a
//! password. Without the programs `etcd` and `etcdctl`, the tests are skipped.

mod support;

use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use peregrine::Kind;
use peregrine::directory::Directory;
use peregrine_etcd::Etcd;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use support::{Cluster, offer, servers, until};

/// A directory with the files of two CAs, `ca` and `other-ca`. The certificates `member` and `client` are of
/// the first one, and `stranger` is of the other one.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        for (ca, issued) in [("ca", &["member", "client"][..]), ("other-ca", &["stranger"])] {
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.distinguished_name.push(rcgen::DnType::CommonName, ca);
            let key = KeyPair::generate().unwrap();
            files.write(&format!("{ca}.pem"), &params.self_signed(&key).unwrap().pem());
            let issuer = Issuer::new(params, key);
            for name in issued {
                let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
                // A member also uses its certificate as a client, for its own gateway.
                params.extended_key_usages =
                    vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
                params.distinguished_name = rcgen::DistinguishedName::new();
                let key = KeyPair::generate().unwrap();
                files
                    .write(&format!("{name}.pem"), &params.signed_by(&key, &issuer).unwrap().pem());
                files.write(&format!("{name}.key"), &key.serialize_pem());
            }
        }
        files
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Starts a member that wants TLS and certificates of the first CA.
    fn cluster(&self) -> Option<Cluster> {
        let [cert, key, ca] = ["member.pem", "member.key", "ca.pem"].map(|name| self.text(name));
        let files = ["--cert-file", &cert, "--key-file", &key, "--trusted-ca-file", &ca];
        Cluster::start_with(1, "https", &[&files[..], &["--client-cert-auth"]].concat())
    }

    /// Returns the options of a directory with these files.
    fn options(&self, ca: &str, own: Option<&str>) -> String {
        let ca = format!("?ca={}", self.text(ca));
        let own = own.map(|own| {
            format!(
                "&cert={}&key={}",
                self.text(&format!("{own}.pem")),
                self.text(&format!("{own}.key"))
            )
        });
        ca + &own.unwrap_or_default()
    }
}

/// Runs `etcdctl`. Returns false if there is no such program.
fn control(cluster: &Cluster, scheme: &str, options: &[&str], command: &[&str]) -> bool {
    let member = format!("{scheme}://127.0.0.1:{}", cluster.0[0].client);
    let mut etcdctl = Command::new("etcdctl");
    etcdctl.env("ETCDCTL_API", "3").arg("--endpoints").arg(member).args(options).args(command);
    match etcdctl.output() {
        Ok(done) => {
            assert!(
                done.status.success(),
                "{command:?}: {}",
                String::from_utf8_lossy(&done.stderr)
            );
            true
        }
        Err(_) => {
            println!("skipped: there is no etcdctl");
            false
        }
    }
}

/// Adds the users `root` with the password `root`, and `me` with the password `first`, who may change what is
/// below `/p/`, and turns passwords on. Returns false if that is not possible.
fn add_users(cluster: &Cluster, scheme: &str, options: &[&str]) -> bool {
    control(cluster, scheme, options, &["user", "add", "root:root"])
        && control(cluster, scheme, options, &["user", "grant-role", "root", "root"])
        && control(cluster, scheme, options, &["user", "add", "me:first"])
        && control(cluster, scheme, options, &["role", "add", "writer"])
        && control(
            cluster,
            scheme,
            options,
            &["role", "grant-permission", "writer", "--prefix=true", "readwrite", "/p/"],
        )
        && control(cluster, scheme, options, &["user", "grant-role", "me", "writer"])
        && control(cluster, scheme, options, &["auth", "enable"])
}

/// Returns the text of a directory with a user.
fn with_user(cluster: &Cluster, user: &str, rest: &str) -> String {
    cluster.text(rest).replacen("//", &format!("//{user}@"), 1)
}

/// Returns why a directory cannot be used.
fn refused(text: &str) -> String {
    let error = Etcd::open(text).unwrap().look_up("files").unwrap_err();
    assert_eq!(error.kind(), Kind::Unreachable, "{error}");
    error.to_string()
}

#[test]
fn members_and_clients_prove_who_they_are() {
    let files = Files::new();
    let Some(cluster) = files.cluster() else { return };
    let open =
        |ca, own| Etcd::open(&cluster.text(&format!("p{}", files.options(ca, own)))).unwrap();
    let (own, other) = (open("ca.pem", Some("client")), open("ca.pem", Some("client")));
    let registered = own.register("files", &offer("a")).unwrap();
    until("the server is known", || servers(&other) == ["a"]);
    drop(registered);
    until("the server is withdrawn", || servers(&other).is_empty());
    for (options, why) in [
        (files.options("other-ca.pem", Some("client")), "the CA in `ca` has not signed"),
        (files.options("ca.pem", None), "set `cert` and `key`"),
        (files.options("ca.pem", Some("stranger")), "does not accept the certificate in `cert`"),
        (String::new(), "set `ca`, which turns TLS on"),
    ] {
        let error = refused(&cluster.text(&format!("p{options}")));
        assert!(error.contains(why), "{why} is not in: {error}");
    }
    let missing = cluster.text(&format!("p{}", files.options("missing.pem", None)));
    let error = Etcd::open(&missing).unwrap_err().to_string();
    assert!(
        error.contains("cannot read certificates in") && error.contains("missing.pem"),
        "{error}"
    );
}

#[test]
fn member_without_tls_is_told_from_others() {
    let files = Files::new();
    let Some(cluster) = Cluster::start(1) else { return };
    let error = refused(&cluster.text(&format!("p{}", files.options("ca.pem", None))));
    assert!(error.contains("not to use TLS") || error.contains("does not use TLS"), "{error}");
    assert!(error.contains("leave out `ca`, or check the port"), "{error}");
}

#[test]
fn certificates_are_replaced_while_a_process_runs() {
    let files = Files::new();
    let Some(cluster) = files.cluster() else { return };
    let copy = |from: &str| {
        for end in ["pem", "key"] {
            let text = std::fs::read(files.path(&format!("{from}.{end}"))).unwrap();
            std::fs::write(files.path(&format!("current.{end}")), text).unwrap();
        }
    };
    copy("stranger");
    let directory =
        Etcd::open(&cluster.text(&format!("p{}", files.options("ca.pem", Some("current")))))
            .unwrap();
    assert!(directory.look_up("files").is_err());
    copy("client");
    until("the new certificate is used", || directory.look_up("files").is_ok());
    let _registered = directory.register("files", &offer("a")).unwrap();
    until("the server is known", || servers(&directory) == ["a"]);
}

#[test]
fn user_enters_with_a_password_that_may_change() {
    let files = Files::new();
    let Some(mut cluster) = Cluster::start_with(1, "http", &["--auth-token-ttl", "1"]) else {
        return;
    };
    if !add_users(&cluster, "http", &[]) {
        return;
    }
    files.write("password", "first\n");
    let text =
        with_user(&cluster, "me", &format!("p?lease_s=2&password_file={}", files.text("password")));
    let own = Etcd::open(&text).unwrap();
    let registered = own.register("files", &offer("a")).unwrap();
    until("the server is known", || servers(&own) == ["a"]);
    assert!(!format!("{own:?} {}", own.describe()).contains("first"));

    // The token expires between two requests.
    let tokens = cluster.requests("Authenticate");
    until("the token is renewed", || {
        thread::sleep(Duration::from_secs(3));
        drop(own.register("files", &offer("b")).unwrap());
        cluster.requests("Authenticate") > tokens
    });

    // A change of roles makes all tokens invalid.
    assert!(control(&cluster, "http", &["--user", "root:root"], &["role", "add", "reader"]));
    drop(own.register("files", &offer("b")).unwrap());

    // A member that was restarted knows no tokens. The password has changed meanwhile.
    files.write("new", "second\n");
    let change = format!(
        "ETCDCTL_API=3 etcdctl --endpoints http://127.0.0.1:{} --user root:root user passwd me \
         --interactive=false < {}",
        cluster.0[0].client,
        files.text("new")
    );
    assert!(Command::new("sh").args(["-c", &change]).status().unwrap().success());
    files.write("password", "second\n");
    cluster.0[0].kill();
    until("the loss is noticed", || own.look_up("files").unwrap().age.is_some());
    cluster.0[0].start();
    until("the cluster is heard again", || own.look_up("files").unwrap().age.is_none());
    until("the server is registered", || registered.problem().is_none() && servers(&own) == ["a"]);

    files.write("wrong", "third\n");
    let wrong = with_user(&cluster, "me", &format!("p?password_file={}", files.text("wrong")));
    let error = refused(&wrong);
    assert!(error.contains("invalid user ID or password"), "{error}");
    assert!(!error.contains("third"), "{error}");
    let missing = with_user(&cluster, "me", &format!("p?password_file={}", files.text("missing")));
    let error = refused(&missing);
    assert!(error.contains("cannot read the password in"), "{error}");
    let error = refused(&cluster.text("p"));
    assert!(error.contains("user name is empty") && error.contains("set a user"), "{error}");
    let elsewhere =
        with_user(&cluster, "me", &format!("q?password_file={}", files.text("password")));
    let error = refused(&elsewhere);
    assert!(error.contains("permission denied"), "{error}");
    let error = Etcd::open(&elsewhere).unwrap().register("files", &offer("a")).unwrap_err();
    assert!(error.to_string().contains("permission denied"), "{error}");
}

#[test]
fn user_enters_over_tls() {
    let files = Files::new();
    let Some(cluster) = files.cluster() else { return };
    let [cert, key, ca] = ["client.pem", "client.key", "ca.pem"].map(|name| files.text(name));
    if !add_users(&cluster, "https", &["--cacert", &ca, "--cert", &cert, "--key", &key]) {
        return;
    }
    files.write("password", "first");
    let options = files.options("ca.pem", Some("client"));
    let rest = format!("p{options}&password_file={}", files.text("password"));
    let (own, other) = (
        Etcd::open(&with_user(&cluster, "me", &rest)).unwrap(),
        Etcd::open(&with_user(&cluster, "me", &rest)).unwrap(),
    );
    let registered = own.register("files", &offer("a")).unwrap();
    until("the server is known", || servers(&other) == ["a"]);
    drop(registered);
    until("the server is withdrawn", || servers(&other).is_empty());
    let error = refused(&cluster.text(&format!("p{options}")));
    assert!(error.contains("permission denied") && error.contains("set a user"), "{error}");
}
