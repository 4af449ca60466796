//! Tests `stat` and `list ADDRESS` end to end. The counters agree with the calls on every path, and `--watch`
//! restores the terminal.

use std::fs;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::num::NonZero;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pty_process::Size;
use pty_process::blocking::{Pty, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::tcgetattr;
use serde_json::Value;
use tempfile::TempDir;

const TIMEOUT: Duration = Duration::from_secs(30);

/// A runtime directory, and servers that publish their exports in it.
struct Sandbox {
    dir: TempDir,
    servers: Vec<Child>,
    /// The addresses of the first server.
    addresses: Vec<String>,
}

impl Sandbox {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["run", "files"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir, servers: Vec::new(), addresses: Vec::new() }
    }

    fn with_server() -> Self {
        let mut sandbox = Self::new();
        sandbox.serve("files");
        sandbox
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peregrine"));
        command.args(arguments).stdin(Stdio::null());
        command.env("PEREGRINE_DIR", self.dir.path().join("run")).env("TERM", "xterm-256color");
        command.env_remove("XDG_RUNTIME_DIR").env_remove("CLICOLOR_FORCE").env_remove("NO_COLOR");
        command
    }

    fn serve(&mut self, name: &str) {
        let files = self.dir.path().join("files");
        let listen = ["--listen", "tcp:127.0.0.1:0", "--listen", "udp:127.0.0.1:0"];
        let mut command =
            self.command(&["serve", files.to_str().unwrap(), "--name", name, "--format", "json"]);
        let mut server = command.args(listen).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let addresses = ready["addresses"].as_array().unwrap();
        if self.addresses.is_empty() {
            let address = |one: &Value| one.as_str().unwrap().to_owned();
            self.addresses = addresses.iter().map(address).collect();
        }
        self.servers.push(server);
    }

    /// Returns the addresses of the first server, without the name of the export.
    fn server_addresses(&self) -> Vec<String> {
        let bare = |address: &String| address.replacen("files@", "@", 1);
        self.addresses.iter().map(bare).collect()
    }

    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let Output { status, stdout, stderr } = self.command(arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let (out, err) = (text(stdout), text(stderr));
        assert!(!out.contains('\u{1b}'), "escapes in a pipe: {out:?}");
        (status.code().expect("the command should exit by itself"), out, err)
    }

    fn json(&self, arguments: &[&str]) -> (i32, Value) {
        let (code, out, err) = self.run(&[arguments, &["--format", "json"]].concat());
        let value = serde_json::from_str(&out);
        (code, value.unwrap_or_else(|error| panic!("{error} in {out:?}, {err}")))
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

#[track_caller]
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let limit = Instant::now() + TIMEOUT;
    while !done() {
        assert!(Instant::now() < limit, "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn of<'a>(all: &'a Value, name: &str) -> &'a Value {
    all.as_array().unwrap().iter().find(|one| one["name"] == name).expect("the name is exported")
}

#[test]
fn calls_are_counted_on_every_path() {
    let sandbox = Sandbox::with_server();
    let mut due = 0;
    let paths = ["files".to_owned()].into_iter().chain(sandbox.addresses.clone());
    let asked = ["files".to_owned()].into_iter().chain(sandbox.server_addresses());
    for (address, stat) in paths.zip(asked) {
        let (code, ..) = sandbox.run(&["ping", &address, "--count", "100"]);
        assert_eq!(code, 0);
        due += 100;
        let (code, report) = sandbox.json(&["stat", &stat, "--interval", "20ms"]);
        assert_eq!((code, &report["process"]), (0, &sandbox.servers[0].id().into()), "{stat}");
        let files = of(&report["exports"], "files");
        assert_eq!((&files["calls"], &files["in_flight"]), (&due.into(), &0.into()), "{stat}");
        assert_eq!((&files["refused"], &files["failed"]), (&0.into(), &0.into()), "{stat}");
        assert!(files["latency_since_it_began"]["p50_ns"].as_u64().unwrap() > 0, "{report}");
        assert!(
            report["interval_ns"].as_u64().unwrap() >= 20_000_000 && report["took_ns"].is_u64()
        );
        assert!(report["waits"]["slept"].as_u64().unwrap() > 0, "{report}");
        // Over a network, the call that requests these counts is itself in flight.
        let kinds = &report["in_flight_by_kind"];
        let blocking = u64::from(stat != "files");
        assert_eq!((&kinds["blocking"], &kinds["deferred"]), (&blocking.into(), &0.into()));
        assert_eq!(kinds["oneway"], 0);
        assert_eq!(report["streams"], serde_json::json!({ "open": 0, "bytes_buffered": 0 }));
    }
}

#[test]
fn ndjson_has_an_object_per_interval() {
    let sandbox = Sandbox::with_server();
    let arguments = ["stat", "--interval", "20ms", "--count", "3"];
    let (code, out, _) = sandbox.run(&[&arguments[..], &["--format", "ndjson"]].concat());
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((code, lines.len()), (0, 3));
    assert!(lines.iter().all(|line| line["exports"][0]["name"] == "files"));
    let (code, report) = sandbox.json(&arguments);
    assert_eq!((code, report["intervals"].as_array().unwrap().len()), (0, 3));
    // Without a terminal, `--watch` prints one line per interval.
    let (code, out, _) = sandbox.run(&[&arguments[..], &["--watch"]].concat());
    assert_eq!((code, out.lines().count()), (0, 3), "{out}");
    assert!(out.lines().all(|line| line.contains("calls/s  in flight 0")), "{out}");
    // A server at an address sends its counters as a stream.
    let address = &sandbox.server_addresses()[0];
    let (code, out, _) =
        sandbox.run(&[&arguments[..], &["--watch", "--format", "ndjson", address]].concat());
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((code, lines.len()), (0, 3), "{out}");
    let is_sent = |line: &Value| line["took_ns"].is_null() && line["streams"]["open"] == 1;
    assert!(lines.iter().all(is_sent), "{out}");
    // The server ends the stream when it notices that the client is gone.
    until("the stream has ended", || {
        let (code, out, _) = sandbox.run(&["stat", "--interval", "20ms"]);
        assert!(code == 0 && out.contains("EXPORT") && out.contains("calls/s"), "{out}");
        out.contains("in flight: 0 blocking, 0 deferred, 0 one-way; 0 streams with 0 B")
    });
}

#[test]
fn servers_at_addresses_are_listed() {
    let sandbox = Sandbox::with_server();
    for address in sandbox.server_addresses() {
        let (code, report) = sandbox.json(&["list", &address]);
        let exports = report["exports"].as_array().unwrap();
        assert_eq!((code, exports.len()), (0, 1), "{address}");
        let one = &exports[0];
        assert_eq!((&one["name"], &one["interface"]), (&"files".into(), &"Files".into()));
        assert_eq!(one["process"], sandbox.servers[0].id());
        let (_, described) = sandbox.json(&["describe", "files"]);
        assert_eq!(one["digest"], described["digest"]);
        assert_eq!(one["listens"].as_array().unwrap().len(), 2);
        let (code, out, _) = sandbox.run(&["list", &address]);
        assert!(code == 0 && out.starts_with("NAME") && out.contains("\nfiles"), "{out}");
        let (code, described) = sandbox.json(&["describe", &address]);
        assert_eq!((code, &described["interface"]), (0, &"Server".into()));
    }
    let (code, out, _) =
        sandbox.run(&["list", &sandbox.server_addresses()[0], "--format", "ndjson"]);
    assert_eq!((code, out.lines().count()), (0, 1));
    let (code, report) = sandbox.json(&["list", "@127.0.0.1:1"]);
    assert_eq!((code, &report["error"]["executed"]), (3, &"no".into()), "{report}");
    let (code, report) = sandbox.json(&["list", "@"]);
    assert_eq!((code, &report["error"]["kind"]), (3, &"BadName".into()), "{report}");
}

#[test]
fn default_is_the_only_server() {
    let mut sandbox = Sandbox::new();
    let (code, report) = sandbox.json(&["stat"]);
    assert_eq!((code, &report["error"]["executed"]), (3, &"no".into()));
    sandbox.serve("files");
    let (code, report) = sandbox.json(&["stat", "--interval", "10ms"]);
    assert_eq!((code, &report["address"]), (0, &"files".into()));
    sandbox.serve("more");
    let (code, report) = sandbox.json(&["stat"]);
    let near = report["error"]["suggestions"].as_array().unwrap();
    assert_eq!((code, near.len()), (3, 2), "{report}");
    let (code, report) = sandbox.json(&["stat", "fiels"]);
    assert_eq!((code, &report["error"]["suggestions"][0]), (3, &"files".into()));
    let (code, report) = sandbox.json(&["stat", "files", "--watch"]);
    assert_eq!((code, &report["error"]["kind"]), (2, &"Usage".into()));
    let (code, ..) = sandbox.run(&["stat", "files", "--interval", "1ms"]);
    assert_eq!(code, 2);
}

#[test]
fn closed_pipe_is_no_failure() {
    let sandbox = Sandbox::with_server();
    let mut command = sandbox.command(&["stat", "--watch", "--interval", "10ms"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    assert!(line.contains("calls/s"), "{line}");
    drop(out);
    assert_eq!(ended(&mut child).code(), Some(0));
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!(errors, "");
}

#[track_caller]
fn ended(child: &mut Child) -> ExitStatus {
    let mut status = None;
    until("the command ends", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

fn size(number: u16) -> NonZero<u16> {
    NonZero::new(number).expect("a terminal has a size")
}

/// A terminal, its screen, and a command that runs in it.
struct Terminal {
    pty: Arc<Pty>,
    seen: Arc<Mutex<vt100::Parser>>,
    child: Child,
}

impl Terminal {
    fn start(command: Command, rows: u16, columns: u16) -> Self {
        let (pty, pts) = open().unwrap();
        pty.resize(Size::new(rows, columns)).unwrap();
        let command = pty_process::blocking::Command::from(command);
        let (pty, seen) =
            (Arc::new(pty), Arc::new(Mutex::new(vt100::Parser::new(size(rows), size(columns), 0))));
        let child = command.spawn(pts).unwrap();
        let (reads, writes) = (Arc::clone(&pty), Arc::clone(&seen));
        // The thread ends when the terminal is closed.
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = (&*reads).read(&mut bytes) {
                writes.lock().unwrap().process(&bytes[..read]);
            }
        });
        Self { pty, seen, child }
    }

    fn text(&self) -> String {
        self.seen.lock().unwrap().screen().contents()
    }

    #[track_caller]
    fn until_seen(&self, what: &str) -> String {
        let limit = Instant::now() + TIMEOUT;
        loop {
            let text = self.text();
            if text.contains(what) {
                return text;
            }
            assert!(Instant::now() < limit, "no `{what}` in {text:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn press(&self, keys: &[u8]) {
        (&*self.pty).write_all(keys).unwrap();
    }

    fn is_drawn(&self) -> bool {
        let seen = self.seen.lock().unwrap();
        seen.screen().alternate_screen() && seen.screen().hide_cursor()
    }

    /// Asserts that the command has restored the screen, the cursor and the modes of the terminal.
    #[track_caller]
    fn assert_restored(&self) {
        until("the screen is restored", || {
            let seen = self.seen.lock().unwrap();
            !seen.screen().alternate_screen() && !seen.screen().hide_cursor()
        });
        let modes = tcgetattr(&*self.pty).unwrap().local_modes;
        use rustix::termios::LocalModes;
        assert!(
            modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG),
            "{modes:?}"
        );
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn watch(sandbox: &Sandbox, rows: u16, columns: u16, more: &[&str]) -> Terminal {
    let arguments = [&["stat", "files", "--watch", "--interval", "50ms"], more].concat();
    let mut command = Command::new(env!("CARGO_BIN_EXE_peregrine"));
    command.args(arguments).env("PEREGRINE_DIR", sandbox.dir.path().join("run"));
    command.env("TERM", "xterm-256color").env_remove("XDG_RUNTIME_DIR");
    command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
    Terminal::start(command, rows, columns)
}

#[test]
fn watch_draws_in_place_and_restores_the_terminal() {
    let sandbox = Sandbox::with_server();
    for key in [&b"q"[..], &[4], &[27]] {
        let mut terminal = watch(&sandbox, 24, 80, &[]);
        terminal.until_seen("EXPORT");
        until("the alternate screen is used", || terminal.is_drawn());
        let (code, ..) = sandbox.run(&["ping", "files", "--count", "50"]);
        assert_eq!(code, 0);
        terminal.until_seen("press q to quit");
        // While a taller table replaces the previous table, the screen shows parts of both.
        until("the table is redrawn in place", || terminal.text().matches("EXPORT").count() == 1);
        // Other keys have no effect.
        terminal.press(b"x\x1b[A");
        std::thread::sleep(Duration::from_millis(100));
        assert!(terminal.child.try_wait().unwrap().is_none());
        terminal.press(key);
        assert_eq!(ended(&mut terminal.child).code(), Some(0), "{key:?}");
        terminal.assert_restored();
        assert!(!terminal.text().contains("EXPORT"));
    }
    // Ctrl-C sends a signal; Ctrl-Z and Ctrl-\ have no effect.
    let mut terminal = watch(&sandbox, 24, 80, &[]);
    terminal.until_seen("EXPORT");
    terminal.press(&[26, 28]);
    std::thread::sleep(Duration::from_millis(100));
    assert!(terminal.child.try_wait().unwrap().is_none() && terminal.is_drawn());
    terminal.press(&[3]);
    assert_eq!(ended(&mut terminal.child).code(), Some(130));
    terminal.assert_restored();
    terminal.until_seen("interrupted");
    let mut terminal = watch(&sandbox, 24, 80, &["--count", "2"]);
    assert_eq!(ended(&mut terminal.child).code(), Some(0));
    terminal.assert_restored();
}

#[test]
fn watch_fits_small_terminals() {
    let sandbox = Sandbox::with_server();
    let terminal = watch(&sandbox, 40, 40, &[]);
    let text = terminal.until_seen("EXPORT");
    assert!(text.contains("P99") && !text.contains("INTERFACE"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
    drop(terminal);
    let terminal = watch(&sandbox, 4, 20, &[]);
    let text = terminal.until_seen("more lines");
    assert!(text.lines().count() <= 4, "{text}");
    // The command adapts to a new size of the terminal.
    terminal.pty.resize(Size::new(50, 160)).unwrap();
    terminal.seen.lock().unwrap().screen_mut().set_size(size(50), size(160));
    terminal.until_seen("INTERFACE");
}

#[test]
fn terminal_is_restored_however_the_command_ends() {
    let mut sandbox = Sandbox::with_server();
    let mut terminal = watch(&sandbox, 24, 80, &[]);
    terminal.until_seen("EXPORT");
    let pid = Pid::from_raw(terminal.child.id().cast_signed()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let status = ended(&mut terminal.child);
    assert_eq!(status.code().or(status.signal()), Some(128 + 15));
    terminal.assert_restored();
    terminal.until_seen("interrupted");

    // If the server hangs, Ctrl-C still ends the command within a bounded time.
    let mut terminal = watch(&sandbox, 24, 80, &[]);
    terminal.until_seen("EXPORT");
    let server = Pid::from_raw(sandbox.servers[0].id().cast_signed()).unwrap();
    kill_process(server, Signal::STOP).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let begun = Instant::now();
    terminal.press(&[3]);
    assert_eq!(ended(&mut terminal.child).code(), Some(130));
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    terminal.assert_restored();
    kill_process(server, Signal::CONT).unwrap();

    let mut terminal = watch(&sandbox, 24, 80, &[]);
    terminal.until_seen("EXPORT");
    sandbox.servers[0].kill().unwrap();
    sandbox.servers[0].wait().unwrap();
    assert_eq!(ended(&mut terminal.child).code(), Some(3));
    terminal.assert_restored();
    terminal.until_seen("error:");
}

#[test]
fn dumb_terminal_gets_lines() {
    let sandbox = Sandbox::with_server();
    let mut command = sandbox.command(&["stat", "--watch", "--interval", "20ms", "--count", "2"]);
    command.env("TERM", "dumb");
    let mut terminal = Terminal::start(command, 24, 120);
    assert_eq!(ended(&mut terminal.child).code(), Some(0));
    until("both lines are printed", || terminal.text().matches("calls/s").count() == 2);
    assert!(!terminal.is_drawn());
    // Without colours, the command still redraws the whole screen.
    let mut command = Command::new(env!("CARGO_BIN_EXE_peregrine"));
    command.args(["stat", "files", "--watch", "--interval", "20ms", "--color", "never"]);
    command.env("PEREGRINE_DIR", sandbox.dir.path().join("run")).env("TERM", "xterm");
    let terminal = Terminal::start(command, 24, 80);
    terminal.until_seen("EXPORT");
    until("the alternate screen is used", || terminal.is_drawn());
    let seen = terminal.seen.lock().unwrap();
    let cells = (0..24).flat_map(|row| (0..80).map(move |column| (row, column)));
    let bold = cells.filter_map(|(row, column)| seen.screen().cell(row, column));
    assert_eq!(bold.filter(|cell| cell.bold() || cell.dim()).count(), 0);
}
