//! Tests that the memory of a process which a core dump would contain has no private key, in any of its forms.

mod support;

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use peregrine::secure::{Expected, Identity, KeyDirectory, Overwrite, Trust, TrustedKey};
use peregrine::{BindOptions, Server, interface};
use support::{Process, directory, role};

#[interface]
trait Echo {
    fn echo(&self, x: u32) -> peregrine::Result<u32>;
}

struct Same;

impl Echo for Same {
    fn echo(&self, x: u32) -> peregrine::Result<u32> {
        Ok(x)
    }
}

/// Makes or reads an identity, and uses it for handshakes in both roles. Then waits for its end.
#[test]
fn child() {
    let Some(role) = role() else { return };
    let keys = KeyDirectory::at(directory().join("keys"));
    let identity = match role.as_str() {
        "makes" => {
            let identity = Identity::generate().unwrap();
            keys.save(&identity, Overwrite::No).unwrap();
            identity
        }
        _ => keys.identity().unwrap(),
    };
    let trust =
        Trust::of_keys([TrustedKey::new("own", identity.public_key(), "").unwrap()]).unwrap();
    let server = Server::new().export("echo", EchoServer::new(Same)).unwrap();
    let own = (identity.clone(), trust.clone());
    let running =
        server.listen_beyond_this_machine("tcp:127.0.0.1:0", own).unwrap().spawn().unwrap();
    let options = BindOptions::default().secure(identity, trust);
    let options = options.expect("key:own".parse::<Expected>().unwrap());
    let address = format!("{}/echo", running.addresses()[0]);
    let echo = EchoClient::bind_with(&address, &options).unwrap();
    assert_eq!(echo.echo(7).unwrap(), 7);
    println!("\nready");
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// Returns the ranges of memory that a core dump of a process contains, with their names. If `is_hidden` is
/// true, returns small ranges that it does not contain.
fn ranges(process: u32, is_hidden: bool) -> Vec<(u64, u64, String)> {
    let maps = fs::read_to_string(format!("/proc/{process}/smaps")).unwrap();
    let mut all = Vec::new();
    let mut current = None;
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let range = words.next().and_then(|range| range.split_once('-'));
        let number = |text| u64::from_str_radix(text, 16);
        if let Some((Ok(from), Ok(to))) = range.map(|(from, to)| (number(from), number(to))) {
            let is_writable = words.next().is_some_and(|rights| rights.starts_with("rw"));
            current = is_writable.then(|| (from, to, line.to_owned()));
        } else if let Some(flags) = line.strip_prefix("VmFlags:")
            && flags.split(' ').any(|flag| flag == "dd") == is_hidden
        {
            all.extend(current.take().filter(|(from, to, _)| !is_hidden || to - from <= 1 << 16));
        }
    }
    all
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| *byte == part[0]) {
        if rest[at..].starts_with(part) {
            return true;
        }
        rest = &rest[at + 1..];
    }
    false
}

/// Returns where these ranges of the memory of a process contain one of `parts`.
fn found(process: u32, ranges: Vec<(u64, u64, String)>, parts: &[(&str, Vec<u8>)]) -> Vec<String> {
    const PAGE: usize = 4096;
    let memory = File::open(format!("/proc/{process}/mem")).unwrap();
    let pages = File::open(format!("/proc/{process}/pagemap")).unwrap();
    let longest = parts.iter().map(|(_, part)| part.len()).max().unwrap();
    let mut all = Vec::new();
    // A page, and the end of the page before it.
    let mut bytes = vec![0; longest + PAGE];
    for (from, to, name) in ranges {
        let mut entries = vec![0; ((to - from) as usize / PAGE) * 8];
        pages.read_exact_at(&mut entries, from / PAGE as u64 * 8).unwrap();
        for (page, entry) in entries.as_chunks::<8>().0.iter().enumerate() {
            // Neither in memory nor on a swap device: the page was never touched.
            if u64::from_le_bytes(*entry) >> 62 == 0 {
                continue;
            }
            let at = from + (page * PAGE) as u64;
            bytes.copy_within(PAGE.., 0);
            let read = memory.read_at(&mut bytes[longest..], at).unwrap_or(0);
            for (what, part) in parts {
                if contains(&bytes[..longest + read], part) {
                    all.push(format!("{what} near {at:x} in {name}"));
                }
            }
        }
    }
    all
}

/// Returns the forms of the private key in a directory: its bytes, the numbers that Ed25519 makes of them, and
/// the text in its file.
fn forms(keys: &Path) -> Vec<(&'static str, Vec<u8>)> {
    let text = fs::read_to_string(keys.join("identity.key")).unwrap();
    let digits: String = text.lines().filter(|line| !line.starts_with('-')).collect();
    let output = std::process::Command::new("openssl")
        .args(["pkey", "-outform", "DER", "-in"])
        .arg(keys.join("identity.key"))
        .output();
    let mut forms = vec![("text", digits.as_bytes()[24..].to_vec())];
    if let Ok(output) = output.as_ref().map(|output| &output.stdout)
        && output.len() == 48
    {
        forms.push(("bytes", output[16..].to_vec()));
    } else {
        println!("skipped in part: there is no openssl");
    }
    forms
}

#[test]
fn core_dumps_contain_no_private_key() {
    let _alone = support::alone();
    let home = support::own_directory();
    for role in ["makes", "reads"] {
        let mut process = Process::start("child", role, home.path());
        let forms = forms(&home.path().join("keys"));
        let id = process.id();
        let dumped = found(id, ranges(id, false), &forms);
        assert!(dumped.is_empty(), "a process that {role} a key: {dumped:?}");
        // The search finds the key where it is.
        let is_found = !found(id, ranges(id, true), &forms[1..]).is_empty();
        assert!(is_found || forms.len() == 1, "the hidden memory of a process that {role} a key");
        process.kill();
    }
}
