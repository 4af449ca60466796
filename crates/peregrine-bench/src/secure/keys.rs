//! The identities of both sides: files in the private runtime directory of the run, which every process of
//! the run can read.

use std::path::PathBuf;
use std::{fs, io};

use peregrine::secure::{Identity, Overwrite, Trust, TrustedKey};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::subject::Failure;

/// A side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The process that measures.
    Client,
    /// The process at the far end.
    Server,
}

impl Side {
    const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }

    const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// The identity of one side, and what it trusts: the key of the other side, and nothing else.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// For Peregrine.
    pub(crate) identity: Identity,
    /// For Peregrine.
    pub(crate) trust: Trust,
    pem: [Vec<u8>; 2],
    other: Vec<u8>,
}

impl Keys {
    /// Makes the identities of both sides, and writes them to files. Returns those of the client.
    pub(crate) fn make() -> Result<Self, Failure> {
        for side in [Side::Client, Side::Server] {
            let [cert, key] = files(side.name())?;
            Identity::generate()?.save(cert, key, Overwrite::No)?;
        }
        Self::load(Side::Client)
    }

    /// Reads the keys of a side. Later changes of the files have no effect, so no handshake looks at them.
    pub(crate) fn load(side: Side) -> Result<Self, Failure> {
        let read = |side: Side| -> Result<[Vec<u8>; 2], Failure> {
            let [cert, key] = files(side.name())?;
            Ok([fs::read(cert)?, fs::read(key)?])
        };
        Self::of(read(side)?, read(side.other())?, side)
    }

    fn of(pem: [Vec<u8>; 2], other: [Vec<u8>; 2], side: Side) -> Result<Self, Failure> {
        let identity = Identity::from_pem(&pem[0], &pem[1])?;
        let public = Identity::from_pem(&other[0], &other[1])?.public_key();
        let trust = Trust::of_keys([TrustedKey::new(side.other().name(), public, "")?])?;
        let [other, _] = other;
        Ok(Self { identity, trust, pem, other })
    }

    /// Returns the certificate and the private key of this side, for `rustls`.
    pub(super) fn own(
        &self,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Failure> {
        let [cert, key] = &self.pem;
        let cert = CertificateDer::from_pem_slice(cert)?;
        Ok((vec![cert], PrivateKeyDer::from_pem_slice(key)?))
    }

    /// Returns the certificate of the other side.
    pub(super) fn other(&self) -> Result<CertificateDer<'static>, Failure> {
        Ok(CertificateDer::from_pem_slice(&self.other)?)
    }
}

/// Returns the files of a certificate and its key. The names of exports do not begin with a dot.
fn files(name: &str) -> io::Result<[PathBuf; 2]> {
    let missing = || io::Error::other("there is no runtime directory");
    let directory = PathBuf::from(std::env::var_os("PEREGRINE_DIR").ok_or_else(missing)?);
    Ok(["pem", "key"].map(|ending| directory.join(format!(".{name}.{ending}"))))
}

/// The name in the certificate of gRPC's server.
#[cfg(feature = "peers")]
pub(crate) const TONIC_NAME: &str = "localhost";

/// Makes a certificate for gRPC, and writes it to files. `tonic` needs a certificate that contains the name
/// of the server. Client and server have the same certificate, and trust it.
#[cfg(feature = "peers")]
pub(crate) fn make_for_tonic() -> Result<(), Failure> {
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519)?;
    let cert = rcgen::CertificateParams::new([TONIC_NAME.to_owned()])?.self_signed(&pair)?;
    let [cert_file, key_file] = files("tonic")?;
    fs::write(cert_file, cert.pem())?;
    Ok(fs::write(key_file, pair.serialize_pem())?)
}

/// Reads the certificate for gRPC, and its key.
#[cfg(feature = "peers")]
pub(crate) fn for_tonic() -> Result<[Vec<u8>; 2], Failure> {
    let [cert, key] = files("tonic")?;
    Ok([fs::read(cert)?, fs::read(key)?])
}

#[cfg(test)]
impl Keys {
    /// Makes the identities of the client and of the server without files in the runtime directory.
    pub(super) fn pair() -> [Self; 2] {
        let directory = std::env::temp_dir().join(format!(
            "peregrine-bench-keys-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        fs::create_dir(&directory).unwrap();
        let pem = |name: &str| {
            let files = [directory.join(name), directory.join(format!("{name}.key"))];
            Identity::generate().unwrap().save(&files[0], &files[1], Overwrite::No).unwrap();
            files.map(|file| fs::read(file).unwrap())
        };
        let (client, server) = (pem("client"), pem("server"));
        fs::remove_dir_all(&directory).unwrap();
        [
            Self::of(client.clone(), server.clone(), Side::Client).unwrap(),
            Self::of(server, client, Side::Server).unwrap(),
        ]
    }
}
