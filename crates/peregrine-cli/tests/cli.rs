//! Tests the command end to end: with real processes, and a separate runtime directory per test.

mod sandbox;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;
use sandbox::{Done, Process, Sandbox, until};
use serde_json::Value;

#[test]
fn served_directory_is_listed_described_and_pinged() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve(&[]);
    let listed = sandbox.list();
    assert_eq!(listed.len(), 1);
    let one = &listed[0];
    assert_eq!((&one["name"], &one["alive"]), (&"files".into(), &true.into()));
    assert_eq!((&one["interface"], &one["version"]), (&"Files".into(), &0.into()));
    assert_eq!(one["process"], server.0.id());
    let text = sandbox.run(&["list"]).out;
    let row = text.lines().find(|line| line.starts_with("files ")).unwrap();
    for part in ["alive", "Files", &server.0.id().to_string(), &sandbox.path("run/files")] {
        assert!(row.contains(part), "{part:?} is missing in {row:?}");
    }

    let (code, described) = sandbox.json(&["describe", "files"]);
    assert_eq!(code, 0);
    assert_eq!(described["digest"], one["digest"]);
    let procedures = described["procedures"].as_array().unwrap();
    let names: Vec<_> = procedures.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["size", "read", "write"]);
    assert!(procedures[0]["signature"].as_str().unwrap().starts_with("size(in path: str) -> u64"));
    assert_eq!(procedures[0]["docs"], "Returns the size of a file in bytes.");
    assert_eq!(procedures[0]["idempotent"], true);
    assert_eq!(described["types"][0]["name"], "FileError");
    let text = sandbox.run(&["describe", "files"]).out;
    for part in [
        "pub trait Files {",
        "/// Returns the size of a file in bytes.",
        "Out<'_, u8>",
        "pub enum FileError {",
    ] {
        assert!(text.contains(part), "{part:?} is missing in {text:?}");
    }

    for wait in ["spin", "block", "adaptive"] {
        let (code, pinged) = sandbox.json(&["ping", "files", "-c", "100", "--wait", wait]);
        assert_eq!((code, &pinged["calls"]), (0, &100.into()));
        assert_eq!((&pinged["path"], &pinged["wait"]), (&"local".into(), &wait.into()));
        let times = ["min_ns", "median_ns", "p99_ns", "max_ns"].map(|key| pinged[key].as_u64());
        assert!(times.is_sorted() && times[0] > Some(0), "{pinged}");
        assert!(pinged["per_s"].as_f64().unwrap() > 0.0);
    }
    let done = sandbox.run(&["ping", "files", "-c", "10"]);
    assert!(done.code == 0 && done.out.contains("10 calls: min "), "{done:?}");
}

#[test]
fn unknown_name_is_not_executed_and_gets_suggestions() {
    let sandbox = Sandbox::new();
    let _server = sandbox.serve(&[]);
    for command in ["describe", "ping"] {
        let (code, report) = sandbox.json(&[command, "fiels"]);
        let error = &report["error"];
        assert_eq!(
            (code, &error["kind"], &error["executed"]),
            (3, &"NotFound".into(), &"no".into())
        );
        assert_eq!((&error["address"], &error["phase"]), (&"fiels".into(), &"resolving".into()));
        assert_eq!(error["suggestions"], serde_json::json!(["files"]));
        assert!(!error["advice"].as_str().unwrap().is_empty());
        assert!(!error["causes"].as_array().unwrap().is_empty());
    }
    let done = sandbox.run(&["ping", "fiels"]);
    assert!(done.code == 3 && done.out.is_empty(), "{done:?}");
    assert!(done.err.starts_with("error: resolving at `fiels`: "), "{done:?}");
    assert!(done.err.contains("help: did you mean `files`?"), "{done:?}");
    let (_, report) = sandbox.json(&["ping", "something-else"]);
    assert_eq!(report["error"]["suggestions"], serde_json::json!([]));
}

#[test]
fn invalid_command_line_is_a_usage_error() {
    let sandbox = Sandbox::new();
    for arguments in [&["describe"][..], &["pong"], &["ping", "files", "-c", "0"], &["serve"]] {
        let done = sandbox.run(arguments);
        assert!(done.code == 2 && done.out.is_empty() && !done.err.is_empty(), "{done:?}");
    }
    assert_eq!(sandbox.run(&["--help"]).code, 0);
}

#[test]
fn live_name_and_invalid_name_are_refused() {
    let sandbox = Sandbox::new();
    let _server = sandbox.serve(&[]);
    let files = sandbox.path("files");
    for (arguments, kind) in [
        (&["serve", &files][..], "NameTaken"),
        (&["serve", &files, "--name", "../files"], "BadName"),
        (&["serve", &sandbox.path("nowhere")], "Local"),
    ] {
        let (code, report) = sandbox.json(arguments);
        assert_eq!((code, &report["error"]["kind"]), (3, &kind.into()), "{report}");
        assert_eq!(report["error"]["executed"], "no");
    }
    let _other = sandbox.serve(&["--name", "others", "--public", "--threads", "2"]);
    assert_eq!(sandbox.list().len(), 2);
}

#[test]
fn signals_stop_a_server_and_remove_its_name() {
    let sandbox = Sandbox::new();
    for (signal, code) in [(Signal::TERM, 0), (Signal::INT, 130)] {
        let mut server = sandbox.serve(&[]);
        assert_eq!(sandbox.list().len(), 1);
        server.signal(signal);
        assert_eq!(server.wait().code(), Some(code));
        assert!(sandbox.list().is_empty());
    }
    let done = sandbox.run(&["list"]);
    assert_eq!(done.code, 0);
}

#[test]
fn name_of_a_killed_server_is_dead_and_can_be_replaced() {
    let sandbox = Sandbox::new();
    let mut server = sandbox.serve(&[]);
    server.signal(Signal::KILL);
    server.wait();
    let listed = sandbox.list();
    assert_eq!((listed.len(), &listed[0]["state"]), (1, &"dead".into()));
    assert_eq!(listed[0]["alive"], false);
    let (code, report) = sandbox.json(&["ping", "files"]);
    assert_eq!((code, &report["error"]["kind"]), (3, &"NotFound".into()));
    assert_eq!(report["error"]["suggestions"], serde_json::json!([]));

    let server = sandbox.serve(&[]);
    let listed = sandbox.list();
    assert_eq!((listed.len(), &listed[0]["state"]), (1, &"alive".into()));
    assert_eq!(listed[0]["process"], server.0.id());
    assert_eq!(sandbox.run(&["ping", "files", "-c", "1"]).code, 0);
}

#[test]
fn ping_reports_the_death_of_the_server() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve(&[]);
    let ping = ["ping", "files", "-c", "10000000", "--format", "json"];
    let mut ping = Process::start(&mut sandbox.command(&ping));
    until("the client is bound", || sandbox.list()[0]["bindings"] == 1);
    server.signal(Signal::KILL);
    let code = ping.wait().code().unwrap();
    let mut out = String::new();
    ping.0.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    let report: Value = serde_json::from_str(&out).unwrap();
    let executed = if code == 3 { "no" } else { "maybe" };
    assert!(code == 3 || code == 4, "{report}");
    assert_eq!(
        (&report["error"]["kind"], &report["error"]["executed"]),
        (&"ServerGone".into(), &executed.into())
    );
}

#[test]
fn closed_pipe_is_no_failure() {
    let sandbox = Sandbox::new();
    let _server = sandbox.serve(&[]);
    for arguments in [&["list"][..], &["describe", "files", "--format", "json"], &["--help"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = sandbox.command(arguments).stdout(writer).stderr(Stdio::piped()).output();
        let done = Done::of(&output.unwrap());
        assert!(done.code == 0 && done.err.is_empty(), "{done:?}");
    }
}

#[test]
fn demonstration_succeeds_and_removes_everything() {
    let sandbox = Sandbox::new();
    let (code, report) = sandbox.json(&["demo", "--quick", "--bytes", "3000001"]);
    assert_eq!(code, 0, "{report}");
    assert_eq!((&report["ok"], &report["path"]), (&true.into(), &"local".into()));
    assert_eq!(
        (&report["file"]["bytes"], &report["file"]["verified"]),
        (&3_000_001.into(), &true.into())
    );
    assert_eq!(report["file"]["sha256"].as_str().unwrap().len(), 64);
    assert_eq!(report["lent"]["verified"], true);
    assert_ne!(report["client_process"], report["server_process"]);
    let directions = report["directions"].as_array().unwrap();
    assert_eq!(directions.len(), 8);
    assert!(directions.iter().all(|one| one["ok"] == true), "{report}");
    let rows = report["rows"].as_array().unwrap();
    assert!(rows.len() == 4 || rows.len() == 16, "{report}");
    assert!(rows.iter().all(|row| row["ratio"].as_f64().unwrap() > 0.0), "{report}");
    assert!(sandbox.is_tidy() && sandbox.list().is_empty());
}

#[test]
fn demonstration_copies_a_given_file_and_refuses_others() {
    let sandbox = Sandbox::new();
    let (code, report) = sandbox.json(&["demo", "--quick", "--file", &sandbox.path("files/hello")]);
    assert_eq!(code, 0, "{report}");
    let hash = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    assert_eq!(report["file"]["sha256"], hash);
    let left: Vec<_> = fs::read_dir(sandbox.path("files")).unwrap().collect();
    assert_eq!(left.len(), 1, "the demo must not write to the directory of its file");

    let (code, report) = sandbox.json(&["demo", "--file", &sandbox.path("files")]);
    assert_eq!((code, &report["error"]["executed"]), (1, &"yes".into()), "{report}");
    let (code, _) = sandbox.json(&["demo", "--file", &sandbox.path("nothing")]);
    assert_eq!(code, 3);
    assert!(sandbox.is_tidy());
}

#[test]
fn interrupted_demonstration_removes_everything() {
    let sandbox = Sandbox::new();
    // The first demonstration is interrupted during the copy, and the second during the
    // measurement. The second one may be stopping a child process at that time.
    for (children, bytes) in [(1, "64M"), (3, "1M")] {
        let mut demo = Process::start(&mut sandbox.command(&["demo", "--bytes", bytes]));
        let mut found = Vec::new();
        until("the processes of the demonstration run", || {
            found = demo.children();
            found.len() >= children
        });
        demo.signal(Signal::INT);
        assert_eq!(demo.wait().code(), Some(130));
        assert!(sandbox.is_tidy());
        for child in found {
            until("all child processes have ended", || !Path::new("/proc").join(&child).exists());
        }
    }
}

#[test]
fn files_are_served_copied_and_pinged_over_tcp() {
    let sandbox = Sandbox::new();
    let large: Vec<u8> = (0..3_000_000u32).map(|i| (i * 7 / 3) as u8).collect();
    fs::create_dir(sandbox.0.path().join("files/deep")).unwrap();
    fs::write(sandbox.0.path().join("files/deep/large"), &large).unwrap();
    let files = sandbox.path("files");
    let arguments = ["serve", &files, "--listen", "tcp:127.0.0.1:0", "--listen", "tcp:127.0.0.1:0"];
    let arguments = [&arguments[..], &["--format", "json"]].concat();
    let mut server = Process::start(&mut sandbox.command(&arguments));
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    let addresses: Vec<&str> =
        ready["addresses"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    assert!(addresses.len() == 2 && addresses[0] != addresses[1]);

    for from in [addresses[0], addresses[1], "files", "local:files"] {
        let to = sandbox.path("tmp");
        let (code, report) = sandbox.json(&["copy", &format!("{from}/deep/large"), &to]);
        let path = if from.starts_with("tcp:") { "tcp" } else { "local" };
        assert_eq!(
            (code, report["bytes"].as_u64(), &report["path"]),
            (0, Some(3_000_000), &path.into())
        );
        let copy = sandbox.0.path().join("tmp/large");
        assert!(fs::read(&copy).unwrap() == large);
        fs::remove_file(copy).unwrap();
    }
    let to = sandbox.path("tmp/other");
    let done = sandbox.run(&["copy", &format!("{}/hello", addresses[0]), &to]);
    assert_eq!((done.code, fs::read(&to).unwrap()), (0, b"hello".to_vec()), "{done:?}");
    fs::remove_file(&to).unwrap();
    let (code, report) = sandbox.json(&["ping", addresses[0], "-c", "50"]);
    assert_eq!((code, &report["path"], &report["calls"]), (0, &"tcp".into(), &50.into()));
    let (code, report) = sandbox.json(&["describe", addresses[0]]);
    assert_eq!((code, &report["interface"]), (0, &"Files".into()));
    let (code, report) = sandbox.json(&["explain", addresses[0]]);
    assert_eq!((code, &report["path"]), (0, &"tcp".into()));
    assert_eq!(report["paths"].as_array().map(Vec::len), Some(4));
    let (code, report) = sandbox.json(&["explain", "nobody"]);
    assert_eq!((code, &report["error"]["kind"]), (3, &"NotFound".into()));
    assert_eq!((&report["path"], &report["paths"][0]["verdict"]), (&Value::Null, &"failed".into()));
    let explained = sandbox.run(&["explain", "local:files"]);
    assert!(explained.out.contains("local     chosen"), "{explained:?}");

    for (arguments, code, kind) in [
        (["copy", &format!("{}/none", addresses[0]), &to], 1, "Refused"),
        (["copy", addresses[0], &to], 3, "Local"),
        (["copy", "tcp:127.0.0.1:/files/hello", &to], 3, "BadName"),
        (["copy", "tcp:nobody-knows/files/hello", &to], 3, "NotFound"),
        (["copy", &format!("{}/x", addresses[0].replace("files@", "other@")), &to], 3, "NotFound"),
        (["serve", &files, "--listen=tcp:0.0.0.0:0"], 3, "Denied"),
    ] {
        let (exit_code, report) = sandbox.json(&arguments);
        assert_eq!((exit_code, &report["error"]["kind"]), (code, &kind.into()), "{arguments:?}");
    }
    assert!(sandbox.is_tidy(), "failed copies leave no files");
    server.signal(Signal::TERM);
    assert!(server.wait().success());
    let (code, error) = sandbox.json(&["ping", addresses[0]]);
    assert_eq!((code, &error["error"]["kind"]), (3, &"Unreachable".into()));
}

#[test]
fn listening_beyond_this_machine_requires_an_option() {
    let sandbox = Sandbox::new();
    let beyond = ["--listen", "tcp:0.0.0.0:0", "--beyond-this-machine"];
    drop(sandbox.serve(&[&beyond[..], &["--i-trust-this-network"]].concat()));
    let done = sandbox.run(&["serve", &sandbox.path("files"), "--beyond-this-machine"]);
    assert_eq!(done.code, 2, "{done:?}");
}

#[test]
fn exports_of_another_user_are_unknown_and_not_dead() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    const OTHER: u32 = 61_999;
    if !rustix::process::geteuid().is_root() {
        println!("skipped: changing the user requires root");
        return;
    }
    let sandbox = Sandbox::new();
    fs::set_permissions(sandbox.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let _private = sandbox.serve(&["--name", "private"]);
    let mut public = sandbox.serve(&["--name", "public", "--public"]);
    let other = |arguments: &[&str]| {
        let mut command = sandbox.command(arguments);
        Done::of(&command.uid(OTHER).gid(OTHER).output().expect("the command can be executed"))
    };
    let json = |arguments: &[&str]| -> Value {
        let done = other(&[arguments, &["--format", "json"]].concat());
        assert_eq!(done.code, 0, "{done:?}");
        serde_json::from_str(&done.out).unwrap()
    };
    let states = || {
        let listed = json(&["list"]);
        let exports = listed["exports"].as_array().unwrap().clone();
        let of = |name: &str| {
            let one = exports.iter().find(|one| one["name"] == name).unwrap();
            (one["alive"].clone(), one["state"].as_str().unwrap().to_owned())
        };
        [of("private"), of("public")]
    };
    let unknown = (Value::Null, "unknown".to_owned());
    assert_eq!(states(), [unknown.clone(), (true.into(), "alive".into())]);
    let done = other(&["list"]);
    assert!(done.code == 0 && done.err.contains("private to another user"), "{done:?}");
    public.0.kill().unwrap();
    public.wait();
    assert_eq!(states(), [unknown, (false.into(), "dead".into())]);
    // The other user can remove neither of the two exports.
    let cleaned = json(&["clean"]);
    let left = cleaned["leftovers"].as_array().unwrap();
    let run = sandbox.path("run");
    assert!(left.iter().all(|one| one["directory"] != run), "{cleaned}");
    let names = cleaned["other_users"].as_array().unwrap();
    assert!(["private", "public"].iter().all(|name| names.contains(&(*name).into())), "{cleaned}");
    let done = other(&["clean", "--dry-run"]);
    assert!(done.err.contains("skipped ") && done.err.contains("public"), "{done:?}");
}
