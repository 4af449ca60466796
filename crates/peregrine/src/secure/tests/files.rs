//! Files: permissions, replacement, and changes while they are in use.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use super::super::files::{Guard, read};
use super::super::peer::Role;
use super::super::{Identity, KeyDirectory, KeyError, Overwrite, TrustedKey};
use super::{Authority, lines, parameters, shown};
use crate::limits;
use rustls_pki_types::UnixTime;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Returns a directory with an identity. It is removed when the first value is dropped.
fn made() -> (tempfile::TempDir, KeyDirectory, Identity) {
    let dir = tempfile::tempdir().unwrap();
    let directory = KeyDirectory::at(dir.path().join("config/peregrine/keys"));
    let identity = Identity::generate().unwrap();
    directory.save(&identity, Overwrite::No).unwrap();
    (dir, directory, identity)
}

#[test]
fn only_the_owner_can_read_a_new_key() {
    let (_dir, directory, identity) = made();
    assert_eq!(mode(directory.path()), 0o700);
    assert_eq!(mode(&directory.key_file()), 0o600);
    assert_eq!(mode(&directory.identity_file()), 0o644);
    let loaded = directory.identity().unwrap();
    assert_eq!(loaded.public_key(), identity.public_key());
    assert_eq!(loaded.certificate_pem(), identity.certificate_pem());
    let names: Vec<_> =
        fs::read_dir(directory.path()).unwrap().map(|one| one.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "no draft is left: {names:?}");
}

#[test]
fn openssl_reads_a_new_identity() {
    let (_dir, directory, identity) = made();
    let run = |arguments: &[&str], file: &Path| {
        let mut openssl = std::process::Command::new("openssl");
        openssl.args(arguments).arg("-in").arg(file).stderr(std::process::Stdio::inherit());
        openssl.output()
    };
    let key = match run(&["pkey", "-pubout", "-outform", "DER"], &directory.key_file()) {
        Ok(output) => output.stdout,
        Err(error) => return eprintln!("skipped: openssl cannot be run: {error}"),
    };
    assert_eq!(key, identity.public_key().der());
    let text = run(&["x509", "-noout", "-enddate"], &directory.identity_file()).unwrap().stdout;
    assert_eq!(text, b"notAfter=Dec 31 00:00:00 9999 GMT\n");
}

#[test]
fn a_key_that_others_can_use_is_refused() {
    let (_dir, directory, _) = made();
    let key = directory.key_file();
    for bad in [0o640, 0o604, 0o620, 0o602, 0o610, 0o666, 0o777] {
        set_mode(&key, bad);
        let error = directory.identity().unwrap_err();
        assert!(matches!(error, KeyError::Permissions { .. }), "{bad:o}: {error}");
        let advice = format!("run `chmod 600 {}`", key.display());
        assert!(error.to_string().contains(&advice), "{error}");
    }
    for good in [0o600, 0o400, 0o700] {
        set_mode(&key, good);
        assert!(directory.identity().is_ok(), "{good:o}");
    }
    set_mode(&directory.identity_file(), 0o664);
    let error = directory.identity().unwrap_err();
    assert!(error.to_string().contains("chmod go-w"), "{error}");
    set_mode(&directory.identity_file(), 0o644);
    // Who can write in the directory can replace the files.
    set_mode(directory.path(), 0o770);
    let error = directory.identity().unwrap_err();
    assert!(error.to_string().contains("replace files in this directory"), "{error}");
    set_mode(directory.path(), 0o1777);
    assert!(directory.identity().is_ok());
}

#[test]
fn a_list_that_others_can_change_is_refused() {
    let (_dir, directory, identity) = made();
    let line = TrustedKey::new("ada", identity.public_key(), "").unwrap();
    assert!(directory.add(&line).unwrap());
    assert_eq!(mode(&directory.trusted_file()), 0o644);
    set_mode(&directory.trusted_file(), 0o646);
    assert!(matches!(directory.trust().unwrap_err(), KeyError::Permissions { .. }));
    assert!(matches!(directory.trusted().unwrap_err(), KeyError::Permissions { .. }));
    assert!(matches!(directory.add(&line).unwrap_err(), KeyError::Permissions { .. }));
}

#[test]
fn strange_files_are_refused_without_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let fails = |name: &str, what: &str| {
        let error = read(&at(name), 100, Guard::Public, "make it").unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    };
    fails("none", "none does not exist: make it");
    fs::write(at("large"), [0; 101]).unwrap();
    set_mode(&at("large"), 0o600);
    fails("large", "more than 100 bytes");
    fs::create_dir(at("directory")).unwrap();
    fails("directory", "no regular file");
    rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), rustix::fs::Mode::RUSR).unwrap();
    fails("pipe", "no regular file");
    symlink("/dev/zero", at("endless")).unwrap();
    fails("endless", "no regular file");
    fs::write(at("exact"), [7; 100]).unwrap();
    set_mode(&at("exact"), 0o600);
    let (content, _) = read(&at("exact"), 100, Guard::Secret, "").unwrap();
    assert_eq!(**content, [7; 100]);
}

#[test]
fn nothing_is_overwritten_unless_it_is_requested() {
    let (_dir, directory, identity) = made();
    let other = Identity::generate().unwrap();
    assert!(matches!(directory.save(&other, Overwrite::No), Err(KeyError::Exists { .. })));
    fs::remove_file(directory.identity_file()).unwrap();
    let error = directory.save(&other, Overwrite::No).unwrap_err();
    assert!(matches!(error, KeyError::Exists { path } if path == directory.key_file()));
    assert!(!directory.identity_file().exists());
    directory.save(&identity, Overwrite::Yes).unwrap();
    assert_eq!(directory.identity().unwrap().fingerprint(), identity.fingerprint());
    directory.save(&other, Overwrite::Yes).unwrap();
    assert_eq!(directory.identity().unwrap().fingerprint(), other.fingerprint());
    assert_eq!(mode(&directory.key_file()), 0o600);
}

#[test]
fn keys_and_certificates_that_do_not_fit_are_refused() {
    let (_dir, directory, identity) = made();
    let other = Identity::generate().unwrap();
    fs::write(directory.identity_file(), other.certificate_pem()).unwrap();
    let error = directory.identity().unwrap_err().to_string();
    assert!(error.contains("identity.pem is for another key"), "{error}");
    let cert = identity.certificate_pem();
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    for (cert, key, what) in [
        (&*cert, "", "contains no private key"),
        (&cert, encrypted, "the key is encrypted"),
        (&cert, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "damaged"),
        (&cert, "-----BEGIN PRIVATE KEY-----\n*\n-----END PRIVATE KEY-----\n", "not valid PEM"),
        ("", encrypted, "contains no certificate"),
    ] {
        let error = Identity::from_pem(cert.as_bytes(), key.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(what), "{what}: {error}");
    }
    let key = fs::read(directory.key_file()).unwrap();
    let none = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let error = Identity::from_pem(none, &key).unwrap_err().to_string();
    assert!(error.starts_with("the certificate: no certificate"), "{error}");
    let many = cert.repeat(limits::CERTIFICATES_MAX + 1);
    assert!(
        Identity::from_pem(many.as_bytes(), b"").unwrap_err().to_string().contains("more than 8")
    );
}

#[test]
fn no_text_contains_a_private_key() {
    let (_dir, directory, identity) = made();
    let pem = fs::read_to_string(directory.key_file()).unwrap();
    assert!(pem.starts_with("-----BEGIN PRIVATE KEY-----\n"));
    let secret = pem.lines().nth(1).unwrap();
    let damaged = pem.replace(&secret[4..12], "!!!!!!!!");
    let swapped: String = pem.lines().rev().map(|line| format!("{line}\n")).collect();
    let cut = &pem[..pem.len() / 2];
    let cert = identity.certificate_pem();
    let mut texts = vec![format!("{identity:?} {:#?}", identity.clone())];
    for key in [&*damaged, &swapped, cut, &pem.repeat(2)] {
        match Identity::from_pem(cert.as_bytes(), key.as_bytes()) {
            Ok(read) => texts.push(format!("{read:?}")),
            Err(error) => texts.push(format!("{error} {error:?}")),
        }
        // A key where a certificate is expected, as when files are confused.
        let error = Identity::from_pem(key.as_bytes(), key.as_bytes()).unwrap_err();
        texts.push(format!("{error} {error:?}"));
    }
    for text in texts {
        for part in secret.as_bytes().windows(8) {
            assert!(!text.as_bytes().windows(8).any(|found| found == part), "{text}");
        }
    }
}

#[test]
fn lines_are_added_once_and_removed_by_name_fingerprint_or_key() {
    let (_dir, directory, _) = made();
    assert_eq!(directory.trusted().unwrap(), []);
    assert_eq!(directory.remove("ada").unwrap(), []);
    // As an editor leaves it, without an end of the last line.
    fs::write(directory.trusted_file(), "# who may call").unwrap();
    set_mode(&directory.trusted_file(), 0o644);
    let all: Vec<_> = (0..3).map(|_| Identity::generate().unwrap()).collect();
    let lines = lines(&[&all[0], &all[1], &all[2]]);
    for line in &lines {
        assert!(directory.add(line).unwrap());
        assert!(!directory.add(line).unwrap());
    }
    assert_eq!(directory.trusted().unwrap(), lines);
    assert_eq!(directory.remove("none").unwrap(), []);
    assert_eq!(directory.remove("a").unwrap(), lines[..1]);
    assert_eq!(directory.remove(&all[1].fingerprint().to_string()).unwrap(), lines[1..2]);
    assert_eq!(directory.remove(&all[2].public_key().to_string()).unwrap(), lines[2..]);
    assert_eq!(fs::read_to_string(directory.trusted_file()).unwrap(), "# who may call\n");
    fs::write(directory.trusted_file(), "# who\nada\n").unwrap();
    let error = directory.add(&lines[0]).unwrap_err().to_string();
    assert!(error.contains("trusted:2:"), "{error}");
    assert!(directory.trust().unwrap_err().to_string().contains("trusted:2:"));
}

#[test]
fn a_list_is_read_again_when_it_has_changed() {
    let (_dir, directory, ada) = made();
    let trust = directory.trust().unwrap();
    let cert = shown(&ada);
    let judge = || trust.judge(&cert, Role::Client, None, UnixTime::now());
    assert!(judge().is_err());
    let before = trust.changes();
    directory.add(&TrustedKey::new("ada", ada.public_key(), "").unwrap()).unwrap();
    assert_ne!(trust.changes(), before);
    let peer = judge().unwrap();
    assert!(trust.still_trusts(&peer) && trust.problems().is_empty());
    // A damaged line is ignored, and the others stay.
    let text = fs::read_to_string(directory.trusted_file()).unwrap();
    fs::write(directory.trusted_file(), format!("bob !!!\n{text}")).unwrap();
    assert!(trust.still_trusts(&peer));
    assert!(trust.problems()[0].contains("trusted:1:"), "{:?}", trust.problems());
    // A list that others can change is ignored.
    set_mode(&directory.trusted_file(), 0o666);
    assert!(!trust.still_trusts(&peer) && judge().is_err());
    assert!(trust.problems()[0].contains("chmod go-w"), "{:?}", trust.problems());
    set_mode(&directory.trusted_file(), 0o644);
    fs::write(directory.trusted_file(), &text).unwrap();
    assert!(trust.still_trusts(&peer) && trust.problems().is_empty());
    // The same holds for the directory. When only the directory changes, the list is read again.
    set_mode(directory.path(), 0o770);
    fs::write(directory.trusted_file(), format!("{text}\n")).unwrap();
    assert!(!trust.still_trusts(&peer));
    set_mode(directory.path(), 0o700);
    assert!(trust.still_trusts(&peer) && trust.problems().is_empty());
    directory.remove("ada").unwrap();
    assert!(!trust.still_trusts(&peer));
    let before = trust.changes();
    fs::remove_file(directory.trusted_file()).unwrap();
    assert!(!trust.still_trusts(&peer));
    assert_eq!(trust.changes(), before, "an empty list and none are the same");
}

#[test]
fn authorities_are_read_again_when_they_have_changed() {
    let (_dir, directory, _) = made();
    let trust = directory.trust().unwrap();
    let (one, other) = (Authority::new("one"), Authority::new("other"));
    let peers = [&one, &other].map(|ca| shown(&ca.issue(&parameters(&[]))));
    let accepted = || {
        peers.each_ref().map(|cert| trust.judge(cert, Role::Client, None, UnixTime::now()).is_ok())
    };
    assert_eq!(accepted(), [false, false]);
    let file = directory.authorities_file();
    for (content, expected) in [
        (one.pem(), [true, false]),
        (one.pem() + &other.pem(), [true, true]),
        (other.pem(), [false, true]),
        (
            other.pem() + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            [false, false],
        ),
        (String::new(), [false, false]),
        (other.pem(), [false, true]),
    ] {
        fs::write(&file, &content).unwrap();
        set_mode(&file, 0o644);
        assert_eq!(accepted(), expected);
    }
    fs::remove_file(&file).unwrap();
    assert_eq!(accepted(), [false, false]);
}

#[test]
fn an_identity_that_was_damaged_stays_in_use() {
    let (_dir, directory, first) = made();
    let loaded = directory.identity().unwrap();
    let second = Identity::generate().unwrap();
    fs::write(directory.identity_file(), second.certificate_pem()).unwrap();
    assert_eq!(loaded.fingerprint(), first.fingerprint());
    assert!(loaded.problem().unwrap().contains("is for another key"));
    directory.save(&second, Overwrite::Yes).unwrap();
    assert_eq!(loaded.fingerprint(), second.fingerprint());
    assert_eq!(loaded.problem(), None);
    set_mode(&directory.key_file(), 0o644);
    assert!(loaded.problem().unwrap().contains("chmod 600"));
    assert_eq!(loaded.fingerprint(), second.fingerprint());
}
