//! Tests this library against a client and a server in C (`foreign/`), which were written from the documents
//! alone. Each side calls the other over TCP and UDP. The programs in C run on this machine. If an emulator
//! is installed, they also run on an emulated big-endian machine.

#[path = "foreign/object.rs"]
mod object;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak, mpsc};
use std::time::{Duration, Instant};

use object::{Foreign as _, ForeignClient, ForeignServer, Object};
use peregrine::{BindOptions, Endpoint, Executed, Kind, Running, Server};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Time limit of every operation. A test that succeeds does not wait until this limit.
const LIMIT: Duration = Duration::from_secs(50);

/// The current version of the packet protocol.
const VERSION: u8 = 3;
/// The previous version of the packet protocol.
const PREVIOUS: u8 = VERSION - 1;

/// An argument that makes a program in C lose one of 12 packets.
const LOSE: &str = "12";

/// The client and the server in C, compiled for one machine.
#[derive(Debug)]
struct Programs {
    /// The emulator that runs the programs; `None` if this machine runs them.
    emulator: Option<&'static str>,
    directory: PathBuf,
}

/// Returns the first program of `names` that this machine can start.
fn program(names: &[&'static str]) -> Option<&'static str> {
    let starts = |name: &&&str| {
        let mut command = Command::new(name);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    };
    names.iter().find(starts).copied()
}

/// The directory that contains the C header of the interface. `peregrine describe` printed the header for a
/// server of type `Ours`.
static HEADER: LazyLock<PathBuf> = LazyLock::new(|| {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("foreign");
    std::fs::create_dir_all(&directory).unwrap();
    let server = Ours::start();
    let address = format!("tcp:127.0.0.1:{}/{}", server.tcp, server.name);
    let mut describe = Command::new(env!("CARGO_BIN_EXE_peregrine"));
    let printed = done(describe.args(["describe", "--format", "c", &address]));
    assert!(printed.status.success(), "{printed:?}");
    std::fs::write(directory.join("foreign.h"), printed.stdout).unwrap();
    directory
});

static NATIVE: LazyLock<Option<Programs>> = LazyLock::new(|| {
    let Some(compiler) = program(&["cc", "gcc", "clang"]) else {
        eprintln!("skipped: no C compiler is installed");
        return None;
    };
    Some(Programs::compiled(compiler, None, "native", &[]))
});

/// Programs for s390x, a 64-bit big-endian machine.
static BIG: LazyLock<Option<Programs>> = LazyLock::new(|| {
    let compiler = program(&["s390x-linux-gnu-gcc"]);
    let emulator = program(&["qemu-s390x", "qemu-s390x-static"]);
    let (Some(compiler), Some(emulator)) = (compiler, emulator) else {
        eprintln!("skipped: s390x-linux-gnu-gcc or qemu-s390x is not installed");
        return None;
    };
    Some(Programs::compiled(compiler, Some(emulator), "big", &[]))
});

impl Programs {
    fn compiled(
        compiler: &str,
        emulator: Option<&'static str>,
        name: &str,
        options: &[&str],
    ) -> Self {
        let directory = HEADER.join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foreign");
        let shared = ["wire", "values", "stream", "fragments", "interface"];
        for (program, own) in [("client", "exchange_client"), ("server", "exchange_server")] {
            let mut command = Command::new(compiler);
            command.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2"]).args(options);
            command.arg("-I").arg(&*HEADER).arg("-I").arg(&sources);
            if emulator.is_some() {
                command.arg("-static");
            }
            let all = shared.iter().chain([&program, &own]);
            command.args(all.map(|one| sources.join(one).with_extension("c")));
            let compiled = done(command.arg("-o").arg(directory.join(program)));
            assert!(compiled.status.success(), "{}", text(&compiled.stderr));
        }
        Self { emulator, directory }
    }

    /// Compiles a client and a server for another version of the packet protocol. Returns `None` if there is
    /// no compiler.
    fn of_version(version: u8) -> Option<Self> {
        let compiler = program(&["cc", "gcc", "clang"])?;
        let option = format!("-DPG_PACKET_VERSION={version}");
        Some(Self::compiled(compiler, None, &format!("version{version}"), &[&option]))
    }

    fn command(&self, name: &str) -> Command {
        let path = self.directory.join(name);
        let Some(emulator) = self.emulator else { return Command::new(path) };
        let mut command = Command::new(emulator);
        command.arg(path);
        command
    }

    /// Runs the client in C, which must fail to bind. Returns the error message of the client.
    fn cannot_bind(&self, port: u16, name: &str) -> String {
        let done = done(self.command("client").args(["udp", &port.to_string(), name]));
        assert_eq!(done.status.code(), Some(1), "{self:?}: {}", text(&done.stdout));
        text(&done.stderr).trim().to_owned()
    }

    /// Runs the client in C, which calls every procedure. Returns the output of the client.
    fn call(&self, carrier: &str, port: u16, name: &str, more: &[&str]) -> String {
        let port = port.to_string();
        let mut command = self.command("client");
        let done = done(command.args([carrier, &port, name]).args(more));
        assert!(done.status.success(), "{self:?} by {carrier}: {}", text(&done.stderr));
        text(&done.stdout)
    }

    fn serve(&self, more: &[&str]) -> Theirs {
        let mut command = self.command("server");
        let started = command.args(more).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = started.expect("the server can be started");
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let line = first_line(BufReader::new(output));
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["tcp", tcp, "udp", udp] = words[..] else { panic!("{line:?}") };
        let (tcp, udp) = (tcp.parse().unwrap(), udp.parse().unwrap());
        Theirs { child, input: Some(input), tcp, udp }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command and returns its output. Panics if the command has not ended after [`LIMIT`].
fn done(command: &mut Command) -> Output {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.expect("the command can be started");
    let id = child.id();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    match receiver.recv_timeout(LIMIT) {
        Ok(output) => output.expect("the output can be read"),
        Err(_) => {
            let _ = kill_process(Pid::from_raw(id.cast_signed()).unwrap(), Signal::KILL);
            panic!("{command:?} did not end in time")
        }
    }
}

fn first_line(mut output: BufReader<ChildStdout>) -> String {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let _ = output.read_line(&mut line);
        sender.send(line)
    });
    receiver.recv_timeout(LIMIT).expect("the program prints a line")
}

/// Returns the runtime directory that all servers of this program share. The directory is removed when the
/// last `Arc` is dropped.
fn own_directory() -> Arc<TempDir> {
    static SHARED: Mutex<Weak<TempDir>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        // SAFETY: the threads of this program read the environment through `std`, which locks it.
        unsafe { std::env::set_var("PEREGRINE_DIR", directory.path()) };
        *shared = Arc::downgrade(&directory);
        directory
    })
}

/// A server that uses this library.
struct Ours {
    running: Running,
    /// The runtime directory. It is dropped after the server.
    _directory: Arc<TempDir>,
    name: String,
    tcp: u16,
    udp: u16,
}

impl Ours {
    fn start() -> Self {
        Self::start_at("udp:127.0.0.1:0").unwrap()
    }

    fn start_at(udp: &str) -> peregrine::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("foreign-{}-{count}", std::process::id());
        let directory = own_directory();
        let server = Server::new().export(&name, ForeignServer::new(Object::default())).unwrap();
        let running = server.listen("tcp:127.0.0.1:0")?.listen(udp)?.spawn()?;
        let (mut tcp, mut udp) = (0, 0);
        for address in running.addresses() {
            let port = address.to_string().rsplit(':').next().unwrap().parse().unwrap();
            match address {
                Endpoint::Tcp(_) => tcp = port,
                _ => udp = port,
            }
        }
        Ok(Self { running, _directory: directory, name, tcp, udp })
    }
}

/// A server in C. It ends when its standard input is closed.
struct Theirs {
    child: Child,
    input: Option<ChildStdin>,
    tcp: u16,
    udp: u16,
}

impl Theirs {
    fn bind(&self, carrier: &str) -> ForeignClient {
        self.try_bind(carrier).unwrap()
    }

    fn try_bind(&self, carrier: &str) -> peregrine::Result<ForeignClient> {
        let port = if carrier == "udp" { self.udp } else { self.tcp };
        let options = BindOptions::default().timeout(LIMIT);
        ForeignClient::bind_with(&format!("{carrier}:127.0.0.1:{port}/foreign"), &options)
    }

    /// Closes the standard input of the server, and waits until the server has ended.
    fn stop(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn their_client_calls_our_server(programs: &Programs) {
    let server = Ours::start();
    for output in [
        programs.call("tcp", server.tcp, &server.name, &[]),
        programs.call("udp", server.udp, &server.name, &[]),
        programs.call("udp", server.udp, &server.name, &[LOSE]),
    ] {
        assert_eq!(output, "all results are correct: values are little-endian\n");
    }
}

#[test]
fn a_foreign_client_calls_our_server() {
    NATIVE.as_ref().into_iter().for_each(their_client_calls_our_server);
}

#[test]
fn a_foreign_big_endian_client_calls_our_server() {
    BIG.as_ref().into_iter().for_each(their_client_calls_our_server);
}

fn our_client_calls_their_server(programs: &Programs) {
    let server = programs.serve(&[]);
    for carrier in ["tcp", "udp"] {
        let client = server.bind(carrier);
        object::check(&client);
        client.binding().ping().unwrap();
        let described = peregrine::describe(&format!("tcp:127.0.0.1:{}/foreign", server.tcp));
        assert_eq!(described.unwrap().text, ForeignClient::INTERFACE.canonical_text());
        let late = client.with_timeout(Duration::from_millis(50)).pause(300).unwrap_err();
        assert_eq!((late.kind(), late.executed()), (Kind::TimedOut, Executed::Maybe));
        assert_eq!(client.pause(1).unwrap(), 1);
    }
    let client = server.bind("tcp");
    client.nothing().unwrap();
    server.stop();
    assert_eq!(client.nothing().unwrap_err().executed(), Executed::No);

    let server = programs.serve(&[LOSE]);
    object::check(&server.bind("udp"));
}

#[test]
fn our_client_calls_a_foreign_server() {
    NATIVE.as_ref().into_iter().for_each(our_client_calls_their_server);
}

#[test]
fn our_client_calls_a_foreign_big_endian_server() {
    BIG.as_ref().into_iter().for_each(our_client_calls_their_server);
}

#[test]
fn foreign_peers_of_both_byte_orders_call_each_other() {
    let (Some(native), Some(big)) = (&*NATIVE, &*BIG) else { return };
    for (server, client, order) in [(native, big, "little"), (big, native, "big")] {
        let server = server.serve(&[LOSE]);
        for (carrier, port) in [("tcp", server.tcp), ("udp", server.udp)] {
            let output = client.call(carrier, port, "foreign", &[]);
            assert_eq!(output, format!("all results are correct: values are {order}-endian\n"));
        }
        server.stop();
    }
}

/// If the versions of the packet protocol differ, the error names the versions of both sides.
#[test]
fn foreign_peers_of_other_versions_are_refused_by_name() {
    let Some(native) = &*NATIVE else { return };
    let versions = [PREVIOUS, VERSION + 1];
    let (ours, theirs) = (Ours::start(), native.serve(&[]));
    for version in versions {
        let programs =
            Programs::of_version(version).expect("the compiler of `NATIVE` is available");
        let message = |server, client| {
            format!(
                "the server speaks version {server} of the packet protocol, this client version \
                 {client}: use the same release on both sides"
            )
        };
        assert_eq!(programs.cannot_bind(ours.udp, &ours.name), message(VERSION, version));
        assert_eq!(programs.cannot_bind(theirs.udp, "foreign"), message(VERSION, version));
        let other = programs.serve(&[]);
        assert_eq!(native.cannot_bind(other.udp, "foreign"), message(version, VERSION));
        let error = other.try_bind("udp").unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::ProtocolMismatch, Executed::No));
        assert_eq!(error.detail(), message(version, VERSION));
    }
    // The server still serves clients of the same version.
    theirs.bind("udp").nothing().unwrap();
}

/// Forwards packets between one client and a server, but drops the client's packets of the version `version`.
/// Returns the port to which the client must send. With this forwarding, the server seems to be an old
/// release: releases before version 3 of the packet protocol ignored packets of other versions.
fn dropping_version(version: u8, server: u16) -> u16 {
    let front = UdpSocket::bind("127.0.0.1:0").unwrap();
    let back = UdpSocket::bind("127.0.0.1:0").unwrap();
    back.connect(("127.0.0.1", server)).unwrap();
    let port = front.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut packet = [0; 2048];
        front.set_read_timeout(Some(LIMIT)).unwrap();
        back.set_read_timeout(Some(LIMIT)).unwrap();
        while let Ok((bytes, client)) = front.recv_from(&mut packet) {
            if packet[2] != version {
                back.send(&packet[..bytes]).unwrap();
                let Ok(bytes) = back.recv(&mut packet) else { return };
                front.send_to(&packet[..bytes], client).unwrap();
            }
        }
    });
    port
}

#[test]
fn foreign_client_recognizes_a_server_of_the_version_before() {
    if NATIVE.is_none() {
        return;
    }
    let newer = Programs::of_version(VERSION + 1).expect("the compiler of `NATIVE` is available");
    let ours = Ours::start();
    assert_eq!(
        newer.cannot_bind(dropping_version(VERSION + 1, ours.udp), &ours.name),
        format!(
            "the server speaks version {VERSION} of the packet protocol, this client version {}",
            VERSION + 1
        )
    );
}

/// A restarted server does not know the handles of the server before it. A handle is the identifier of a
/// caller that makes one call at a time. After a pause, a client sends a probe before the call. The server
/// refuses the probe, so the call was certainly not executed.
#[test]
fn call_of_a_foreign_client_after_a_restart_was_not_executed() {
    let Some(programs) = &*NATIVE else { return };
    let before = Ours::start();
    let mut command = programs.command("client");
    command.args(["restarted", &before.udp.to_string(), &before.name]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "called\n");
    before.running.stop();
    let at = format!("udp:127.0.0.1:{}", before.udp);
    let until = Instant::now() + LIMIT;
    // A thread of the first server may still keep the socket open for a moment, until that thread has ended.
    let after = loop {
        match Ours::start_at(&at) {
            Ok(after) => break after,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(after.udp, before.udp);
    writeln!(child.stdin.take().unwrap(), "again").unwrap();
    let last = output.lines().map_while(Result::ok).last();
    assert_eq!(last.as_deref(), Some("not executed"));
    assert!(child.wait().unwrap().success());
}

/// Calls that arrive after the export is withdrawn, or after the server has stopped, fail with the
/// information that they were not executed.
#[test]
fn a_foreign_client_learns_that_an_export_is_gone() {
    let Some(programs) = &*NATIVE else { return };
    for stops_server in [false, true] {
        let Ours { running, _directory, name, tcp, .. } = Ours::start();
        let mut command = programs.command("client");
        command.args(["gone", &tcp.to_string(), &name]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "called\n");
        if stops_server {
            running.stop();
        } else {
            assert!(running.withdraw(&name));
        }
        let last = output.lines().map_while(Result::ok).last();
        assert_eq!(last.as_deref(), Some("gone"));
        assert!(child.wait().unwrap().success());
    }
}
