//! What a process shows to the cluster, and whom it trusts: the files of TLS, and a user with a password.
//!
//! | option | variable | meaning |
//! |---|---|---|
//! | `ca` | `PEREGRINE_ETCD_CA` | PEM file of the CAs that members' certificates may have; it turns TLS on |
//! | `cert` | `PEREGRINE_ETCD_CERT` | PEM file of the own certificate |
//! | `key` | `PEREGRINE_ETCD_KEY` | PEM file of its private key |
//! | `USER@` | `PEREGRINE_ETCD_USER` | the user of etcd |
//! | `password_file` | `PEREGRINE_ETCD_PASSWORD_FILE` | the file with the password, without its line break |
//! | | `PEREGRINE_ETCD_PASSWORD` | the password, if there is no file |
//!
//! Files are read again when they are needed again, so they may be replaced while the process runs: the files
//! of TLS when no member answers, and the password when the cluster wants it.

use core::fmt;
use core::net::IpAddr;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use peregrine::CallError;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use zeroize::Zeroizing;

use crate::place::{Options, wrong};

/// The longest password.
const PASSWORD_BYTES_MAX: u64 = 4096;

/// How a process enters a cluster.
#[derive(Debug, Default)]
pub(crate) struct Access {
    pub(crate) tls: Option<Files>,
    pub(crate) login: Option<Login>,
}

/// The files of TLS.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    ca: PathBuf,
    /// The own certificate and its private key.
    own: Option<(PathBuf, PathBuf)>,
}

/// A user of etcd.
#[derive(Clone, Debug)]
pub(crate) struct Login {
    pub(crate) user: String,
    password: Password,
}

#[derive(Clone)]
enum Password {
    File(PathBuf),
    Text(Zeroizing<String>),
}

impl fmt::Debug for Password {
    /// Writes where the password is, and never the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "in {}", path.display()),
            Self::Text(_) => f.write_str("in the environment"),
        }
    }
}

impl Access {
    /// Returns what the options of a directory say, and the environment about what they leave open.
    ///
    /// # Errors
    /// If something is missing, or a password would cross a network in a form that others can read.
    pub(crate) fn new(
        options: Options,
        members: &[String],
        environment: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, CallError> {
        let variable = |name: &str| environment(&format!("PEREGRINE_ETCD_{name}"));
        let path =
            |given: Option<PathBuf>, name| given.or_else(|| variable(name).map(PathBuf::from));
        let text = |name| match variable(name).map(OsString::into_string) {
            None => Ok(None),
            Some(Ok(text)) => Ok(Some(text)),
            Some(Err(_)) => Err(wrong(&format!("$PEREGRINE_ETCD_{name} is not valid UTF-8"))),
        };
        let ca = path(options.ca, "CA");
        let own = (path(options.cert, "CERT"), path(options.key, "KEY"));
        let tls = match (ca, own) {
            (None, (None, None)) => None,
            (None, _) => {
                return Err(wrong(
                    "etcd: a certificate needs TLS: set `ca` or $PEREGRINE_ETCD_CA to the CA of the members",
                ));
            }
            (Some(ca), (None, None)) => Some(Files { ca, own: None }),
            (Some(ca), (Some(cert), Some(key))) => Some(Files { ca, own: Some((cert, key)) }),
            (Some(_), (Some(_), None)) => {
                return Err(wrong(
                    "etcd: the private key is missing: set `key` or $PEREGRINE_ETCD_KEY",
                ));
            }
            (Some(_), (None, Some(_))) => {
                return Err(wrong(
                    "etcd: the certificate is missing: set `cert` or $PEREGRINE_ETCD_CERT",
                ));
            }
        };
        let user = options.user.map_or_else(|| text("USER"), |user| Ok(Some(user)))?;
        let login =
            match user {
                None => None,
                Some(user) => {
                    let password = match path(options.password_file, "PASSWORD_FILE") {
                    Some(file) => Password::File(file),
                    None => Password::Text(text("PASSWORD")?.map(Zeroizing::new).ok_or_else(|| {
                        wrong(&format!(
                            "etcd: the user `{user}` has no password: set `password_file` or \
                             $PEREGRINE_ETCD_PASSWORD_FILE to a file that contains it"
                        ))
                    })?),
                };
                    Some(Login { user, password })
                }
            };
        if let (None, Some(login), false) = (&tls, &login, options.trusts_network)
            && let Some(far) = members.iter().find(|member| !is_on_this_machine(member))
        {
            return Err(wrong(&format!(
                "etcd: the password of `{}` would not be encrypted on the way to {far}: set `ca` or \
                 $PEREGRINE_ETCD_CA to the CA of the members, or `trust_network=true` if the network is trusted",
                login.user
            )));
        }
        Ok(Self { tls, login })
    }
}

/// Returns whether a host with a port is this machine, so that no network is used.
fn is_on_this_machine(member: &str) -> bool {
    let host = member.rsplit_once(':').map_or(member, |(host, _)| host);
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

impl Login {
    /// Returns the password.
    ///
    /// # Errors
    /// Why its file cannot be read.
    pub(crate) fn password(&self) -> Result<Zeroizing<String>, String> {
        let path = match &self.password {
            Password::Text(text) => return Ok(text.clone()),
            Password::File(path) => path,
        };
        // With this capacity, the text is never moved, so that no copy stays in memory.
        let mut text = Zeroizing::new(String::with_capacity(2 * PASSWORD_BYTES_MAX as usize));
        let read = File::open(path)
            .and_then(|file| file.take(PASSWORD_BYTES_MAX + 1).read_to_string(&mut text));
        match read {
            Err(error) => Err(format!("cannot read the password in {}: {error}", path.display())),
            Ok(read) if read as u64 > PASSWORD_BYTES_MAX => {
                Err(format!("the password in {} is too long", path.display()))
            }
            Ok(_) => {
                let length = text.trim_end_matches(['\r', '\n']).len();
                text.truncate(length);
                Ok(text)
            }
        }
    }
}

impl Files {
    /// Returns whether this process shows a certificate.
    pub(crate) const fn has_own(&self) -> bool {
        self.own.is_some()
    }

    /// Reads the files.
    ///
    /// # Errors
    /// Which file is not valid, and why.
    pub(crate) fn load(&self) -> Result<ClientConfig, String> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.ca)? {
            roots
                .add(certificate)
                .map_err(|error| format!("{} has no valid CA: {error}", self.ca.display()))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS cannot be used: {error}"))?
            .with_root_certificates(roots);
        let Some((cert, key)) = &self.own else { return Ok(builder.with_no_client_auth()) };
        let private = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| format!("cannot read a private key in {}: {error}", key.display()))?;
        builder.with_client_auth_cert(certificates(cert)?, private).map_err(|error| {
            let (cert, key) = (cert.display(), key.display());
            format!("the certificate in {cert} and the key in {key} cannot be used: {error}")
        })
    }
}

/// Returns the certificates in a PEM file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Err(error) => Err(format!("cannot read certificates in {}: {error}", path.display())),
        Ok(found) if found.is_empty() => Err(format!("{} has no certificate", path.display())),
        Ok(found) => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(options: &[(&str, &str)], variables: &[(&str, &str)]) -> Result<Access, String> {
        let given = |name: &str| {
            options.iter().find(|option| option.0 == name).map(|option| option.1.to_owned())
        };
        let path = |name| given(name).map(PathBuf::from);
        let options = Options {
            ca: path("ca"),
            cert: path("cert"),
            key: path("key"),
            user: given("user"),
            password_file: path("password_file"),
            trusts_network: false,
        };
        let environment = |name: &str| {
            let found =
                variables.iter().find(|variable| name == format!("PEREGRINE_ETCD_{}", variable.0));
            found.map(|variable| OsString::from(variable.1))
        };
        Access::new(options, &[], environment).map_err(|error| error.to_string())
    }

    #[test]
    fn environment_says_what_the_text_leaves_open() {
        let none = access(&[], &[]).unwrap();
        assert!(none.tls.is_none() && none.login.is_none());
        let all = [("CA", "a"), ("CERT", "c"), ("KEY", "k"), ("USER", "u"), ("PASSWORD_FILE", "p")];
        let found = format!("{:?}", access(&[("ca", "A"), ("user", "U")], &all).unwrap());
        for part in [r#"ca: "A""#, r#"Some(("c", "k"))"#, r#"user: "U""#, "in p"] {
            assert!(found.contains(part), "{part} in {found}");
        }
        for (options, variables, what) in [
            (&[("cert", "c"), ("key", "k")][..], &[][..], "a certificate needs TLS"),
            (&[("ca", "a"), ("cert", "c")], &[], "the private key is missing"),
            (&[("ca", "a")], &[("KEY", "k")], "the certificate is missing"),
            (&[("user", "u")], &[], "the user `u` has no password"),
        ] {
            let error = access(options, variables).unwrap_err();
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn password_needs_tls_beyond_this_machine() {
        let access = |members: &[&str], ca: Option<&str>, trusts_network| {
            let members: Vec<_> = members.iter().map(ToString::to_string).collect();
            let (user, ca) = (Some("u".to_owned()), ca.map(PathBuf::from));
            let options = Options { user, ca, trusts_network, ..Options::default() };
            let password =
                |name: &str| (name == "PEREGRINE_ETCD_PASSWORD").then(|| "secret".into());
            Access::new(options, &members, password).map_err(|error| error.to_string())
        };
        let near = ["localhost:2379", "127.0.0.2:1", "[::1]:2379"];
        assert!(access(&near, None, false).is_ok());
        for far in ["etcd1:2379", "192.0.2.1:2379", "[2001:db8::1]:2379", "localhost.example:1"] {
            let both = [near[0], far];
            let error = access(&both, None, false).unwrap_err();
            assert!(error.contains(far) && error.contains("not be encrypted"), "{error}");
            assert!(!error.contains("secret"));
            assert!(access(&both, None, true).is_ok());
            assert!(access(&both, Some("ca.pem"), false).is_ok());
        }
    }

    #[test]
    fn password_is_read_when_it_is_needed_and_never_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        let file = [("user", "u"), ("password_file", path.to_str().unwrap())];
        let login = access(&file, &[("PASSWORD", "other")]).unwrap().login.unwrap();
        assert!(login.password().unwrap_err().contains("cannot read the password in"));
        std::fs::write(&path, "secret\n").unwrap();
        assert_eq!(*login.password().unwrap(), "secret");
        std::fs::write(&path, " next \r\n").unwrap();
        assert_eq!(*login.password().unwrap(), " next ");
        std::fs::write(&path, "x".repeat(5000)).unwrap();
        assert!(login.password().unwrap_err().contains("too long"));
        let text = access(&[("user", "u")], &[("PASSWORD", "secret")]).unwrap().login.unwrap();
        assert_eq!(*text.password().unwrap(), "secret");
        assert!(!format!("{login:?} {text:?}").contains("secret"));
    }

    #[test]
    fn files_that_are_not_valid_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("empty"), "").unwrap();
        let files = |ca: &str, own: Option<(&str, &str)>| Files {
            ca: at(ca),
            own: own.map(|(cert, key)| (at(cert), at(key))),
        };
        let signed = rcgen::generate_simple_self_signed(["h".to_owned()]).unwrap();
        std::fs::write(at("good"), signed.cert.pem()).unwrap();
        std::fs::write(at("key"), signed.signing_key.serialize_pem()).unwrap();
        let other = rcgen::KeyPair::generate().unwrap();
        std::fs::write(at("other"), other.serialize_pem()).unwrap();
        for (files, what) in [
            (files("missing", None), "cannot read certificates in"),
            (files("empty", None), "empty has no certificate"),
            (files("good", Some(("empty", "key"))), "empty has no certificate"),
            (files("good", Some(("good", "good"))), "cannot read a private key in"),
            (files("good", Some(("good", "other"))), "cannot be used"),
        ] {
            let error = files.load().unwrap_err();
            assert!(error.contains(what), "{error}");
        }
        files("good", Some(("good", "key"))).load().unwrap();
    }
}
