//! Certificates that are long, damaged, or contradict themselves.

use proptest::prelude::*;
use rustls_pki_types::{CertificateDer, UnixTime};

use super::super::peer::Role;
use super::super::refusal::Refusal;
use super::super::{Identity, Trust};
use super::{Authority, keys, lines, parameters, shown, with_many_names};
use crate::limits;

fn judge(trust: &Trust, chain: &[CertificateDer<'_>]) -> Result<super::super::Peer, Refusal> {
    trust.judge(chain, Role::Client, None, UnixTime::now())
}

#[test]
fn chains_lead_through_other_authorities_to_a_trusted_one() {
    let root = Authority::new("root");
    let (middle, other) = (root.below("middle"), Authority::new("middle"));
    let names = parameters(&["spiffe://example.org/x"]);
    let peer = judge(&root.trust(), &shown(&middle.issue_through(&names, &[&middle]))).unwrap();
    assert_eq!(peer.spiffe().unwrap().path(), "x");
    let is_wrong = |chain: &Identity| {
        matches!(judge(&root.trust(), &shown(chain)), Err(Refusal::WrongAuthority { .. }))
    };
    assert!(is_wrong(&middle.issue(&names)), "a certificate is missing");
    assert!(is_wrong(&other.issue_through(&names, &[&other])));
    assert!(is_wrong(&other.issue_through(&names, &[&middle])));
    // A certificate that is no CA signs nothing.
    assert!(judge(&middle.trust(), &shown(&middle.issue(&names))).is_ok());
}

#[test]
fn certificates_that_fit_into_no_handshake_are_refused_when_they_are_loaded() {
    let root = Authority::new("root");
    let issue = |count| root.try_issue(&with_many_names(count), &[&root]);
    let largest = (1..).take_while(|count| issue(*count).is_ok()).last().unwrap();
    let bytes: usize = shown(&issue(largest).unwrap()).iter().map(|cert| cert.len()).sum();
    assert!(limits::CHAIN_BYTES_MAX - bytes < 66, "{bytes}");
    let error = issue(largest + 1).unwrap_err().to_string();
    assert!(error.contains("bytes, and a handshake has room for 13312"), "{error}");
}

#[test]
fn number_of_certificates_is_bounded() {
    let root = Authority::new("root");
    let names = parameters(&[]);
    let others = vec![&root; limits::CERTIFICATES_MAX - 1];
    assert!(judge(&root.trust(), &shown(&root.issue_through(&names, &others))).is_ok());
    let mut chain = shown(&root.issue_through(&names, &others));
    chain.push(chain[1].clone());
    let found = judge(&root.trust(), &chain).unwrap_err();
    assert!(
        matches!(&found, Refusal::Unsupported { why } if why.contains("more than 8")),
        "{found:?}"
    );
    assert_eq!(judge(&root.trust(), &[]).unwrap_err(), Refusal::NoCertificate);
    let pem = root.pem().repeat(limits::AUTHORITIES_MAX + 1);
    assert!(
        Trust::of_authorities(pem.as_bytes()).unwrap_err().to_string().contains("more than 256")
    );
}

#[test]
fn a_certificate_has_one_spiffe_id_or_none() {
    let root = Authority::new("root");
    let issue = |names: &[&str]| judge(&root.trust(), &shown(&root.issue(&parameters(names))));
    assert_eq!(issue(&["https://example.org/x", "a.example"]).unwrap().spiffe(), None);
    assert_eq!(issue(&["a.example", "b.example"]).unwrap().dns_names(), ["a.example", "b.example"]);
    for names in [
        &["spiffe://a/x", "spiffe://a/y"][..],
        &["spiffe://a/x", "https://a/x"],
        &["https://a/x", "spiffe://a/x"],
        &["spiffe://a/x/"],
        &["spiffe://a/../x"],
        &["SPIFFE://a/x"],
        &["spiffe://a:80/x"],
    ] {
        assert!(matches!(issue(names), Err(Refusal::Unsupported { .. })), "{names:?}");
    }
}

#[test]
fn both_ways_to_be_trusted_add_up() {
    let root = Authority::new("root");
    let certified = root.issue(&parameters(&["spiffe://example.org/x"]));
    let bare = Identity::generate().unwrap();
    let trust = Trust::of_both(root.pem().as_bytes(), lines(&[&bare, &certified])).unwrap();
    assert_eq!(judge(&trust, &shown(&bare)).unwrap().to_string(), "a");
    let both = judge(&trust, &shown(&certified)).unwrap();
    assert_eq!((both.name(), both.spiffe().map(|id| id.path())), (Some("b"), Some("x")));
    // The CA still vouches for a key that is not in the list any more. It is another peer by its names.
    trust.set_keys(lines(&[&bare])).unwrap();
    assert_eq!(judge(&trust, &shown(&certified)).unwrap().name(), None);
    assert!(!trust.still_trusts(&both));
    let eve = Identity::generate().unwrap();
    assert!(matches!(judge(&trust, &shown(&eve)), Err(Refusal::UnknownKey { .. })));
    let eve = Authority::new("evil").issue(&parameters(&[]));
    assert!(matches!(judge(&trust, &shown(&eve)), Err(Refusal::WrongAuthority { .. })));
}

#[test]
fn a_certificate_of_a_listed_key_need_not_be_signed_well() {
    let (ada, eve) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let mut cert = shown(&ada)[0].to_vec();
    *cert.last_mut().unwrap() ^= 1;
    let cert = [CertificateDer::from(cert)];
    // The handshake proves that the peer has the key.
    assert!(judge(&keys(&[&ada]), &cert).is_ok());
    assert!(judge(&keys(&[&eve]), &cert).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_changed_certificate_is_refused(at in any::<prop::sample::Index>(), bit in 0..8) {
        let root = Authority::new("root");
        let cert = shown(&root.issue(&parameters(&["spiffe://example.org/x", "a.example"])));
        let mut bytes = cert[0].to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= 1u8 << bit;
        prop_assert!(judge(&root.trust(), &cert).is_ok());
        prop_assert!(judge(&root.trust(), &[CertificateDer::from(bytes)]).is_err());
    }

    #[test]
    fn no_bytes_are_a_certificate(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let trust = keys(&[&Identity::generate().unwrap()]);
        prop_assert!(judge(&trust, &[CertificateDer::from(bytes)]).is_err());
    }
}
