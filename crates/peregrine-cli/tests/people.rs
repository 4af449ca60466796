//! Tests the command in a terminal. Text fits the terminal, colours follow the options, and an interrupted
//! command cleans up.

mod sandbox;
mod terminal;

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sandbox::{Done, Process, Sandbox, until};
use serde_json::Value;
use terminal::{Seen, Terminal};

/// Runs a command in a terminal with `columns` columns, until the command ends.
fn seen(sandbox: &Sandbox, arguments: &[&str], columns: u16) -> Seen {
    Terminal::start(sandbox.command(arguments), 200, columns).end()
}

/// Command lines and their exit codes. Together, the commands print most kinds of output.
const SHOWN: [(&[&str], i32); 18] = [
    (&["list"], 0),
    (&["describe", "files"], 0),
    (&["call", "files", "read", "path=hello", "offset=0"], 0),
    (&["call", "files", "size", "path=none"], 1),
    (&["call", "files", "raed", "path=hello"], 2),
    (&["explain", "files"], 0),
    (&["explain", "tcp:fiels"], 3),
    (&["ping", "files", "-c", "20"], 0),
    (&["ping", "fiels"], 3),
    (&["ping", "udq:files"], 3),
    (&["copy", "files/hello", "tmp/copied"], 0),
    (&["copy", "files/none", "tmp/none"], 1),
    (&["doctor", "--quick"], 0),
    (&["clean", "--dry-run"], 0),
    (&["serve", "flies"], 3),
    (&["pnig", "files"], 2),
    (&["--help"], 0),
    (&["ping", "--help"], 0),
];

#[test]
fn output_fits_the_terminal() {
    let sandbox = Sandbox::new();
    let _server = sandbox.serve(&["--name", "a-name-that-is-rather-long"]);
    let _files = sandbox.serve(&[]);
    for columns in [24, 40, 80, 200] {
        for (arguments, code) in SHOWN {
            let seen = seen(&sandbox, arguments, columns);
            assert_eq!(seen.code, code, "{arguments:?}:\n{}", seen.text());
            assert!(!seen.text().is_empty(), "{arguments:?}");
            assert_eq!(seen.wrapped(), Vec::<String>::new(), "{arguments:?}, {columns} columns");
            assert!(!seen.screen.hide_cursor());
        }
    }
}

#[test]
fn list_is_a_table_or_records() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve(&[]);
    let wide = seen(&sandbox, &["list"], 120).text();
    let row = wide.lines().find(|line| line.starts_with("files ")).unwrap();
    assert!(row.contains("alive") && row.contains(&server.0.id().to_string()), "{wide}");
    let narrow = seen(&sandbox, &["list"], 40).text();
    let record: Vec<&str> =
        narrow.lines().skip_while(|line| *line != "files").take(8).map(str::trim).collect();
    assert_eq!(record[0], "files", "{narrow}");
    for (line, name) in record[1..].iter().zip(["state", "interface", "version", "process"]) {
        assert!(line.starts_with(name), "{narrow}");
    }
    assert!(record[7].starts_with("socket"), "{narrow}");
}

#[test]
fn colours_follow_options_and_environment() {
    let sandbox = Sandbox::new();
    let _server = sandbox.serve(&[]);
    let words = ["ping", "files", "-c", "3"];
    let in_terminal = |kind: &str, more: &[&str], variables: &[(&str, &str)]| {
        let mut command = sandbox.command(&[&words, more].concat());
        command.envs(variables.iter().copied());
        Terminal::start_as(command, kind, 50, 100).end().is_coloured()
    };
    assert!(in_terminal("xterm", &[], &[]));
    assert!(!in_terminal("xterm", &["--color", "never"], &[]));
    assert!(!in_terminal("xterm", &["--color=never"], &[("CLICOLOR_FORCE", "1")]));
    assert!(!in_terminal("xterm", &[], &[("NO_COLOR", "1")]));
    assert!(in_terminal("xterm", &["--color", "always"], &[("NO_COLOR", "1")]));
    assert!(!in_terminal("dumb", &[], &[]));
    // Reports of failures, and texts of the argument parser, follow `--color`, too.
    for words in [&["ping", "fiels"][..], &["pnig"], &["--help"]] {
        for (colour, is) in [("auto", true), ("always", true), ("never", false)] {
            let seen = seen(&sandbox, &[words, &["--color", colour]].concat(), 100);
            assert_eq!(seen.is_coloured(), is, "{words:?} {colour}");
        }
    }
    // In a pipe, text is coloured only with `always`. JSON is never coloured.
    let out = |more: &[&str]| {
        let output = sandbox.command(&[&words, more].concat()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(!out(&[]).contains('\u{1b}') && out(&["--color", "always"]).contains('\u{1b}'));
    assert!(!out(&["--color", "always", "--format", "json"]).contains('\u{1b}'));
}

#[test]
fn global_options_are_accepted_anywhere() {
    let sandbox = Sandbox::new();
    let _server = sandbox.serve(&[]);
    for words in [
        &["--format", "json", "ping", "files", "-c", "3"][..],
        &["ping", "--format", "json", "-c", "3", "files"],
        &["ping", "-c", "3", "files", "--format=json"],
        &["--color", "never", "ping", "files", "--format", "json", "-c3"],
    ] {
        let done = sandbox.run(words);
        let report: Value = serde_json::from_str(&done.out).unwrap_or_else(|_| panic!("{done:?}"));
        assert_eq!((done.code, &report["calls"]), (0, &3.into()));
        assert!(report["took_ns"].as_u64().unwrap() > 0);
    }
}

/// The members of the JSON object of a failure, in order.
const MEMBERS: [&str; 8] =
    ["kind", "what", "executed", "address", "phase", "causes", "advice", "suggestions"];

#[test]
fn usage_error_is_reported_like_any_failure() {
    let sandbox = Sandbox::new();
    for format in ["json", "ndjson"] {
        for (words, suggestion) in [
            (&["pnig"][..], "ping"),
            (&["ping", "files", "--cuont", "3"], "--count"),
            (&["ping", "files", "--wait", "spni"], "spin"),
            (&["serve"], ""),
            (&["ping", "files", "-c", "0"], ""),
        ] {
            let done = sandbox.run(&[&["--format", format], words].concat());
            let report: Value =
                serde_json::from_str(&done.out).unwrap_or_else(|_| panic!("{done:?}"));
            let error = report["error"].as_object().unwrap();
            assert_eq!(error.keys().collect::<Vec<_>>(), MEMBERS);
            assert_eq!(
                (done.code, &error["kind"], &error["executed"]),
                (2, &"Usage".into(), &"no".into())
            );
            assert!(done.err.is_empty() && !error["what"].as_str().unwrap().is_empty());
            let suggestions = error["suggestions"].as_array().unwrap();
            assert!(suggestion.is_empty() || suggestions.contains(&suggestion.into()), "{report}");
        }
    }
    let done = sandbox.run(&["list", "--format", "c"]);
    assert!(done.code == 2 && done.err.contains("use it with `describe`"), "{done:?}");
    let done = sandbox.run(&["pnig"]);
    assert!(done.code == 2 && done.err.contains("'ping'"), "{done:?}");
}

#[test]
fn reader_that_closes_the_pipe_is_no_failure() {
    let sandbox = Sandbox::new();
    let _server = sandbox.serve(&[]);
    let program = env!("CARGO_BIN_EXE_peregrine");
    for words in ["describe files", "doctor", "--help", "man", "list", "completions zsh"] {
        for format in ["human", "ndjson"] {
            let mut shell = sandbox.command(&[]);
            let line = format!("set -o pipefail; {program} {words} --format {format} | head -1");
            let mut through = Command::new("bash");
            through.args(["-c", &line]).stdin(Stdio::null());
            for (name, value) in shell.args::<[&str; 0], &str>([]).get_envs() {
                match value {
                    Some(value) => through.env(name, value),
                    None => through.env_remove(name),
                };
            }
            let done = Done::of(&through.current_dir(sandbox.0.path()).output().unwrap());
            assert!(done.code == 0 && done.err.is_empty(), "{words}: {done:?}");
            assert_eq!(done.out.lines().count(), 1, "{words}: {done:?}");
        }
    }
}

#[test]
fn ctrl_c_stops_a_server_and_removes_its_name() {
    let sandbox = Sandbox::new();
    let terminal = Terminal::start(sandbox.command(&["serve", "files"]), 30, 100);
    terminal.until("Ctrl-C stops it");
    assert_eq!(sandbox.list().len(), 1);
    terminal.interrupt();
    let seen = terminal.end();
    let text = seen.text();
    assert_eq!(seen.code, 130, "{text}");
    assert!(text.contains("interrupted: `files` was served for "), "{text}");
    assert!(!seen.screen.hide_cursor());
    assert!(sandbox.list().is_empty() && !sandbox.0.path().join("run/files").exists());
}

#[test]
fn server_respects_an_ignored_hangup() {
    let sandbox = Sandbox::new();
    let program = env!("CARGO_BIN_EXE_peregrine");
    let own = fs::read_to_string("/proc/self/status").unwrap();
    let own = own.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let hangs_up = u64::from_str_radix(own.trim(), 16).unwrap() & 1 == 0;
    for (ignored, code) in [("", 129), ("trap '' HUP;", 0)] {
        if code == 129 && !hangs_up {
            eprintln!("skipped: hangups are ignored in this test");
            continue;
        }
        let mut shell = Command::new("sh");
        let serve = format!("{ignored} exec {program} serve files --format json");
        shell.args(["-c", &serve]).current_dir(sandbox.0.path());
        shell.env("PEREGRINE_DIR", sandbox.path("run")).stdin(Stdio::null());
        let mut server = Process::start(&mut shell);
        assert!(server.line().contains("\"ready\":true"));
        server.signal(Signal::HUP);
        if code == 0 {
            std::thread::sleep(Duration::from_millis(100));
            assert_eq!(sandbox.run(&["ping", "files", "-c", "1"]).code, 0);
            server.signal(Signal::TERM);
        }
        assert_eq!(server.wait().code(), Some(code));
        assert!(sandbox.list().is_empty());
    }
}

#[test]
fn interrupted_ping_reports_its_measurements() {
    let sandbox = Sandbox::new();
    let _server = sandbox.serve(&[]);
    let ping = ["ping", "files", "-c", "10000000"];
    let terminal = Terminal::start(sandbox.command(&ping), 30, 100);
    until("the client is bound", || sandbox.list()[0]["bindings"] == 1);
    std::thread::sleep(Duration::from_millis(50));
    terminal.interrupt();
    let seen = terminal.end();
    let text = seen.text();
    assert_eq!(seen.code, 130, "{text}");
    assert!(text.contains(" of 10000000 calls were made") && text.contains("median"), "{text}");
    // In JSON, a single object contains the measurements and the error.
    let mut ping =
        Process::start(&mut sandbox.command(&[&ping[..], &["--format", "json"]].concat()));
    until("the client is bound", || sandbox.list()[0]["bindings"] == 1);
    std::thread::sleep(Duration::from_millis(50));
    ping.signal(Signal::INT);
    assert_eq!(ping.wait().code(), Some(130));
    let mut out = String::new();
    ping.0.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["error"]["kind"], "Interrupted");
    assert!(
        report["calls"].as_u64() > Some(0) && report["median_ns"].as_u64() > Some(0),
        "{report}"
    );
}

#[test]
fn ctrl_c_ends_a_ping_without_a_reply() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve(&[]);
    let ping = ["ping", "files", "-c", "10000000"];
    let terminal = Terminal::start(sandbox.command(&ping), 30, 100);
    until("the client is bound", || sandbox.list()[0]["bindings"] == 1);
    server.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(50));
    let begun = Instant::now();
    terminal.interrupt();
    let seen = terminal.end();
    server.signal(Signal::CONT);
    assert!(begun.elapsed() < Duration::from_secs(4), "the command waited for the call");
    assert_eq!(seen.code, 130, "{}", seen.text());
    assert!(seen.text().contains("interrupted: a call had no reply yet"), "{}", seen.text());
}

#[test]
fn suggestions_come_from_the_server_at_the_address() {
    let sandbox = Sandbox::new();
    let (_server, ready) = sandbox.serve_files(&["--listen", "127.0.0.1:0"]);
    for address in ready["addresses"].as_array().unwrap() {
        let address = address.as_str().unwrap();
        let wrong = address.replace("files@", "fiels@");
        let (code, report) = sandbox.json(&["ping", &wrong]);
        assert_eq!((code, &report["error"]["kind"]), (3, &"NotFound".into()), "{report}");
        assert_eq!(report["error"]["suggestions"], serde_json::json!([address]));
    }
}

#[test]
fn interruption_does_not_wait_for_a_reader() {
    let sandbox = Sandbox::new();
    let _server = sandbox.serve(&[]);
    let stat = ["stat", "files", "--watch", "--interval", "10ms", "--format", "ndjson"];
    let mut stat = Process::start(&mut sandbox.command(&stat));
    // Nothing reads the pipe, so it becomes full.
    let mut before = 0;
    until("the pipe is full", || {
        std::thread::sleep(Duration::from_millis(200));
        let now = rustix::io::ioctl_fionread(stat.0.stdout.as_ref().unwrap()).unwrap();
        std::mem::replace(&mut before, now) == now && now > 4096
    });
    let begun = Instant::now();
    stat.signal(Signal::INT);
    assert_eq!(stat.wait().code(), Some(130));
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn text_of_others_cannot_control_the_terminal() {
    let sandbox = Sandbox::new();
    let _server = sandbox.serve(&[]);
    for (name, shown) in [
        ("\u{1b}[41mred", "\\u{1b}[41mred"),
        ("\u{1b}[2Jclear", "\\u{1b}[2Jclear"),
        ("\u{1b}]0;title\u{7}", "\\u{1b}]0;title\\u{7}"),
        ("over\rwritten", "over\\rwritten"),
    ] {
        let seen = seen(&sandbox, &["copy", &format!("files/{name}"), "tmp/x"], 100);
        assert_eq!(seen.code, 1, "{}", seen.text());
        assert!(seen.text().contains(shown), "{}", seen.text());
    }
}

#[test]
fn failure_to_write_output_may_have_been_executed() {
    let sandbox = Sandbox::new();
    let _server = sandbox.serve(&[]);
    for format in ["human", "json"] {
        let full = fs::File::create("/dev/full").unwrap();
        let mut command = sandbox.command(&["ping", "files", "-c", "3", "--format", format]);
        let output = command.stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(4));
    }
}

/// Creates a sparse file that is so large that a copy of it does not end during a test.
fn endless(sandbox: &Sandbox) {
    let file = fs::File::create(sandbox.path("files/endless")).unwrap();
    file.write_at(&[1], 1 << 40).unwrap();
}

fn is_empty(path: &str) -> bool {
    fs::read_dir(path).unwrap().next().is_none()
}

#[test]
fn interrupted_copy_is_removed() {
    let sandbox = Sandbox::new();
    endless(&sandbox);
    let (server, _) = sandbox.serve_files(&[]);
    let to = sandbox.path("tmp");
    let copy = ["copy", "files/endless", &to];
    // In the first round, the server replies. In the second round, the server hangs.
    for hangs in [false, true] {
        let terminal = Terminal::start(sandbox.command(&copy), 30, 100);
        terminal.until("1.00 TiB");
        assert!(!is_empty(&to));
        if hangs {
            server.signal(Signal::STOP);
            std::thread::sleep(Duration::from_millis(50));
        }
        let begun = Instant::now();
        terminal.interrupt();
        let seen = terminal.end();
        server.signal(Signal::CONT);
        assert!(begun.elapsed() < Duration::from_secs(10));
        let text = seen.text();
        assert_eq!(seen.code, 130, "{text}");
        assert!(text.contains("bytes were copied; the incomplete copy is removed"), "{text}");
        assert!(!text.contains("copying "), "the bar is not cleared: {text}");
        assert!(!seen.screen.hide_cursor() && seen.screen.cursor_position().1 == 0);
        assert!(is_empty(&to));
    }
    // The progress bar is also cleared when the server dies.
    let terminal = Terminal::start(sandbox.command(&copy), 30, 100);
    terminal.until("1.00 TiB");
    server.signal(Signal::KILL);
    let seen = terminal.end();
    let text = seen.text();
    // Whether the call was executed depends on timing.
    assert!(seen.code == 3 || seen.code == 4, "{text}");
    assert!(text.starts_with("error: calling `read`") && !text.contains("copying "), "{text}");
    assert!(is_empty(&to));
}

#[test]
fn special_files_are_written_and_not_replaced() {
    let sandbox = Sandbox::new();
    let _server = sandbox.serve(&[]);
    let pipe = sandbox.path("tmp/pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::os::unix::fs::symlink("target", sandbox.path("tmp/link")).unwrap();
    fs::write(sandbox.path("tmp/target"), "something longer").unwrap();
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read_to_string(pipe).unwrap()
    });
    let done = sandbox.run(&["copy", "files/hello", &pipe]);
    assert!(done.code == 0 && done.err.contains("5 bytes of files/hello"), "{done:?}");
    assert_eq!(reader.join().unwrap(), "hello");
    assert!(!fs::symlink_metadata(&pipe).unwrap().is_file());
    let done = sandbox.run(&["copy", "files/hello", &sandbox.path("tmp/link")]);
    assert_eq!(
        (done.code, &*fs::read_to_string(sandbox.path("tmp/target")).unwrap()),
        (0, "hello")
    );
    assert!(fs::symlink_metadata(sandbox.path("tmp/link")).unwrap().is_symlink());
    let done = sandbox.run(&["copy", "files/hello", "/dev/stdout"]);
    assert_eq!((done.code, &*done.out), (0, "hello"), "{done:?}");
}

#[test]
fn interrupted_demonstration_removes_everything() {
    let sandbox = Sandbox::new();
    let demo = sandbox.command(&["demo", "--bytes", "64M"]);
    let terminal = Terminal::start(demo, 100, 100);
    terminal.until("server   process ");
    let children = terminal.process.children();
    assert!(!children.is_empty());
    terminal.interrupt();
    let seen = terminal.end();
    let text = seen.text();
    assert_eq!(seen.code, 130, "{text}");
    assert!(text.ends_with("all processes and files of the command are removed"), "{text}");
    assert!(!text.contains("copying "), "{text}");
    assert!(sandbox.is_tidy());
    for child in children {
        until("all child processes have ended", || !Path::new("/proc").join(&child).exists());
    }
}

#[test]
fn interrupted_doctor_removes_everything() {
    let sandbox = Sandbox::new();
    let terminal = Terminal::start(sandbox.command(&["doctor"]), 200, 100);
    let mut children = Vec::new();
    until("the command creates a link", || {
        children = terminal.process.children();
        !children.is_empty() || terminal.screen().contents().contains("calls over a link")
    });
    if children.is_empty() {
        return eprintln!("skipped: cannot create a link");
    }
    terminal.interrupt();
    let seen = terminal.end();
    assert_eq!(seen.code, 130, "{}", seen.text());
    assert!(sandbox.is_tidy());
    for child in children {
        until("all child processes have ended", || !Path::new("/proc").join(&child).exists());
    }
}

/// Starts bash, with the completion script of this program.
fn completing_shell(sandbox: &Sandbox) -> Terminal {
    let program = Path::new(env!("CARGO_BIN_EXE_peregrine"));
    let mut shell = Command::new("bash");
    shell.args(["--norc", "--noprofile", "-i"]).env_clear();
    let dirs = program.parent().unwrap().display();
    shell.env("PATH", format!("{dirs}:/usr/bin:/bin")).env("PS1", "$ ");
    shell.env("PEREGRINE_DIR", sandbox.path("run")).env("HOME", sandbox.0.path());
    shell.env("HISTFILE", "/dev/null").current_dir(sandbox.0.path());
    let terminal = Terminal::start(shell, 40, 100);
    terminal.until("$ ");
    terminal.write("source <(peregrine completions bash)\n");
    terminal
}

#[test]
fn shell_completes_commands_options_and_names() {
    let sandbox = Sandbox::new();
    let _server = sandbox.serve(&["--name", "archive-of-files"]);
    let terminal = completing_shell(&sandbox);
    terminal.write("peregrine pi\t");
    terminal.until("peregrine ping");
    terminal.write("arch\t");
    terminal.until("peregrine ping archive-of-files");
    terminal.write("--wai\t");
    terminal.until("archive-of-files --wait");
    terminal.write("bl\t");
    terminal.until("--wait block");
    terminal.write("-c 3\n");
    terminal.until("3 calls: min");
    terminal.write("peregrine ping local:arch\t");
    terminal.until("peregrine ping local:archive-of-files");
    fs::write(sandbox.path("photos.rs"), "").unwrap();
    fs::write(sandbox.path("photos.x"), "").unwrap();
    terminal.write("\nperegrine import pho\t");
    terminal.until("peregrine import photos.x");
    terminal.write("\nperegrine export --to onc pho\t");
    terminal.until("peregrine export --to onc photos.rs");
    // For `compare`, bash completes the names of both files and exports.
    terminal.write("\nperegrine compare pho\t");
    terminal.until("peregrine compare photos.rs");
    terminal.write("arch\t");
    terminal.until("photos.rs archive-of-files");
    terminal.write("\nexit\n");
    assert_eq!(terminal.end().code, 3);
}

#[test]
fn shell_completes_procedures_and_parameters_of_a_server() {
    let sandbox = Sandbox::new();
    let (_server, ready) = sandbox.serve_files(&["--listen", "tcp:127.0.0.1:0"]);
    let address = ready["addresses"][0].as_str().unwrap();
    for address in ["files", address] {
        let terminal = completing_shell(&sandbox);
        terminal.write(&format!("peregrine call {address} re\t"));
        terminal.until(&format!("{address} read "));
        terminal.write("pa\t");
        terminal.until("read path=");
        terminal.write("hello of\t");
        terminal.until("path=hello offset=");
        terminal.write("0 --out in\t");
        terminal.until("offset=0 --out into=");
        terminal.write("copied\n");
        terminal.until("copied");
        terminal.write("exit\n");
        assert_eq!(terminal.end().code, 0);
        assert_eq!(fs::read(sandbox.path("copied")).unwrap(), b"hello");
        fs::remove_file(sandbox.path("copied")).unwrap();
    }
}

#[test]
fn manual_has_a_page_per_command() {
    let sandbox = Sandbox::new();
    let done = sandbox.run(&["man"]);
    assert!(done.code == 0 && done.out.contains(".TH peregrine 1"), "{done:?}");
    let (code, report) = sandbox.json(&["man", "--dir", "tmp/man1"]);
    let files: Vec<&str> =
        report["files"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    assert_eq!((code, files[0]), (0, "tmp/man1/peregrine.1"));
    for command in [
        "serve", "bridge", "copy", "list", "describe", "compare", "import", "export", "call",
        "explain", "ping", "doctor", "clean",
    ] {
        let page = format!("tmp/man1/peregrine-{command}.1");
        assert!(files.contains(&&*page), "{page} is not in {files:?}");
        let text = fs::read_to_string(sandbox.path(&page)).unwrap();
        assert!(text.contains("\\-\\-format") && text.contains(".SH SYNOPSIS"), "{text}");
    }
    assert!(!files.iter().any(|file| file.contains("demo-")), "hidden commands have no page");
}

#[test]
fn clean_removes_only_dead_names() {
    let sandbox = Sandbox::new();
    let _alive = sandbox.serve(&[]);
    let dead = sandbox.serve(&["--name", "dead"]);
    dead.signal(Signal::KILL);
    drop(dead);
    let here = |report: &Value| -> Vec<Value> {
        let all = report["leftovers"].as_array().unwrap().iter();
        let run = sandbox.path("run");
        all.filter(|one| one["directory"].as_str() == Some(&*run)).cloned().collect()
    };
    let (code, report) = sandbox.json(&["clean", "--dry-run"]);
    let found = here(&report);
    assert_eq!((code, found.len(), &found[0]["name"]), (0, 1, &"dead".into()), "{report}");
    assert_eq!(
        (&found[0]["removed"], found[0]["files"][0].as_str()),
        (&false.into(), Some(&*sandbox.path("run/dead")))
    );
    assert_eq!(sandbox.list().len(), 2);
    let seen = seen(&sandbox, &["clean"], 100);
    assert!(seen.code == 0 && seen.text().contains("dead removed"), "{}", seen.text());
    assert_eq!(sandbox.list().len(), 1);
    assert_eq!(sandbox.run(&["ping", "files", "-c", "1"]).code, 0);
    let left: Vec<_> =
        fs::read_dir(sandbox.path("run")).unwrap().map(|one| one.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_str().unwrap().contains("dead")), "{left:?}");
}
