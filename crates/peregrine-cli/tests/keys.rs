//! Tests `keys` end to end: two users who trust each other's keys.

mod sandbox;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use sandbox::{Done, Sandbox};

const KEYS: &str = ".config/peregrine/keys";

fn mode(sandbox: &Sandbox, name: &str) -> u32 {
    fs::metadata(sandbox.path(&format!("{KEYS}/{name}"))).unwrap().permissions().mode() & 0o7777
}

fn piped(sandbox: &Sandbox, arguments: &[&str], input: &str) -> Done {
    let mut command = sandbox.command(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    process.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    Done::of(&process.wait_with_output().unwrap())
}

#[test]
fn two_users_trust_each_other_by_one_line_each() {
    let (ada, bob) = (Sandbox::new(), Sandbox::new());
    let made = ada.run(&["keys", "new", "--name", "ada"]);
    assert_eq!((made.code, made.out.lines().count()), (0, 1), "{made:?}");
    assert_eq!((mode(&ada, "identity.key"), mode(&ada, "")), (0o600, 0o700));
    let line = made.out.trim_end().to_owned();
    assert!(line.starts_with("ada MCowBQYDK2VwAyEA"), "{line}");
    // Once as the arguments of a shell, which are words.
    let words: Vec<&str> = [&["keys", "trust"][..], &line.split(' ').collect::<Vec<_>>()].concat();
    let done = bob.run(&words);
    assert!(done.code == 0 && done.out.contains("ada is now trusted: SHA256:"), "{done:?}");
    let (_, shown) = ada.json(&["keys", "show", "--name", "ada"]);
    let fingerprint = shown["fingerprint"].as_str().unwrap();
    assert!(done.out.contains(fingerprint), "{done:?} {shown}");
    assert_eq!(shown["line"], *line);
    // And once through a pipe, with more than one line.
    assert_eq!(bob.run(&["keys", "new", "--name", "bob"]).code, 0);
    let theirs = bob.run(&["keys", "show", "--name", "bob"]).out;
    let done = piped(&ada, &["keys", "trust", "-"], &format!("# keys\n\n{theirs}"));
    assert!(done.code == 0 && done.out.starts_with("bob is now trusted"), "{done:?}");
    let again = piped(&ada, &["keys", "trust", "-"], &theirs.replacen("bob", "robert", 1));
    assert!(again.out.starts_with("bob is already trusted"), "{again:?}");
    let (_, all) = ada.json(&["keys", "show", "--trusted"]);
    assert_eq!(all["trusted"].as_array().unwrap().len(), 1);
    assert_eq!(all["trusted"][0]["name"], "bob");

    let (code, removed) = bob.json(&["keys", "untrust", fingerprint]);
    assert_eq!((code, &removed["removed"][0]["name"]), (0, &"ada".into()));
    assert_eq!(bob.run(&["keys", "untrust", "ada"]).code, 3);
    assert!(bob.run(&["keys", "show", "--trusted"]).err.contains("no key is trusted"));
}

#[test]
fn a_key_is_replaced_only_if_forced() {
    let ada = Sandbox::new();
    let key = ada.path(&format!("{KEYS}/identity.key"));
    assert_eq!(ada.run(&["keys", "new"]).code, 0);
    let first = fs::read(&key).unwrap();
    let refused = ada.run(&["keys", "new"]);
    assert!(refused.code == 3 && refused.err.contains("--force replaces it"), "{refused:?}");
    assert_eq!(fs::read(&key).unwrap(), first);
    assert_eq!(ada.run(&["keys", "new", "--force"]).code, 0);
    assert_ne!(fs::read(&key).unwrap(), first);
    assert_eq!(mode(&ada, "identity.key"), 0o600);
}

#[test]
fn a_second_key_with_the_same_name_must_be_requested() {
    let (ada, eve) = (Sandbox::new(), Sandbox::new());
    let line = |name: &str| {
        assert_eq!(eve.run(&["keys", "new", "--force"]).code, 0);
        eve.run(&["keys", "show", "--name", name]).out.trim_end().to_owned()
    };
    assert_eq!(ada.run(&["keys", "trust", &line("bob")]).code, 0);
    let second = line("bob");
    let refused = ada.run(&["keys", "trust", &second]);
    assert!(refused.code == 3 && refused.err.contains("the name of another key"), "{refused:?}");
    assert_eq!(ada.run(&["keys", "trust", "--also", &second]).code, 0);
    let (_, removed) = ada.json(&["keys", "untrust", "bob"]);
    assert_eq!(removed["removed"].as_array().unwrap().len(), 2);
}

#[test]
fn wrong_files_and_lines_are_refused_and_change_nothing() {
    let ada = Sandbox::new();
    for line in [
        "",
        "bob",
        "bob MCowBQYDK2VwAyEA",
        "b/b MCowBQYDK2VwAyEAn7IvDwfFKAYLRXLiQnFg7arDuneRo6Sa5w/jkiNYRfI=",
    ] {
        let done = ada.run(&["keys", "trust", line]);
        assert!(done.code == 3 && done.err.contains("cannot read the line"), "{line}: {done:?}");
    }
    let done = piped(&ada, &["keys", "trust", "-"], "\n# nothing\n");
    assert!(done.code == 3 && done.err.contains("no line"), "{done:?}");
    assert!(!fs::exists(ada.path(KEYS)).unwrap());
    let missing = ada.run(&["keys", "show"]);
    assert!(missing.code == 3 && missing.err.contains("peregrine keys new"), "{missing:?}");

    assert_eq!(ada.run(&["keys", "new"]).code, 0);
    let key = ada.path(&format!("{KEYS}/identity.key"));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
    let open = ada.run(&["keys", "show"]);
    assert!(open.code == 3 && open.err.contains(&format!("chmod 600 {key}")), "{open:?}");
    let secret = fs::read_to_string(&key).unwrap().lines().nth(1).unwrap().to_owned();
    assert!(!open.err.contains(&secret) && !open.out.contains(&secret));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();

    fs::write(ada.path(&format!("{KEYS}/trusted")), "# fine\nbob\n").unwrap();
    let broken = ada.run(&["keys", "show", "--trusted"]);
    assert!(broken.code == 3 && broken.err.contains("trusted:2:"), "{broken:?}");
}

#[test]
fn the_directory_is_the_one_that_is_asked_for() {
    let ada = Sandbox::new();
    let own = ada.path("own");
    assert_eq!(ada.run(&["keys", "--dir", &own, "new"]).code, 0);
    let (_, by_option) = ada.json(&["keys", "show", "--dir", &own]);
    let mut command = ada.command(&["keys", "show", "--format", "json"]);
    let by_variable = Done::of(&command.env("PEREGRINE_KEYS", &own).output().unwrap());
    let by_variable: serde_json::Value = serde_json::from_str(&by_variable.out).unwrap();
    assert_eq!(by_option, by_variable);
    assert_eq!(by_option["directory"], *own);
    let mut command = ada.command(&["keys", "new"]);
    let done = Done::of(&command.env("XDG_CONFIG_HOME", ada.path("config")).output().unwrap());
    assert_eq!(done.code, 0);
    assert!(fs::exists(ada.path("config/peregrine/keys/identity.key")).unwrap());
    let mut command = ada.command(&["keys", "new"]);
    let done = Done::of(&command.env_remove("HOME").output().unwrap());
    assert!(done.code == 3 && done.err.contains("set PEREGRINE_KEYS"), "{done:?}");
}
