//! Tests servers as services of systemd. The test plays systemd: it receives the reports of a server, and
//! passes sockets to it.

mod services;
mod support;

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as LocalAddress, UnixDatagram};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use peregrine::{BindOptions, Health, Kind, PathKind, Server, health};
use rustix::process::{Pid, Signal, kill_process};
use services::{Nothing, Null as _, NullClient, NullServer};
use support::role;

/// How long a test waits for something that must happen.
const LIMIT: Duration = Duration::from_secs(20);

/// The server process. In the test run itself there is no role, and this function does nothing. The role
/// names the endpoints at which the server listens.
#[test]
fn child() {
    let Some(role) = role() else { return };
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let single = threads() == 1;
    let start = || {
        let mut server = Server::new().notify_systemd()?.stop_on_signals();
        let left = std::env::var_os("NOTIFY_SOCKET").is_some();
        assert!(!single || !left, "child processes would inherit the variable");
        server = server.export("service", NullServer::new(Nothing))?;
        for endpoint in role.split_whitespace() {
            server = server.listen(endpoint)?;
        }
        server.spawn()
    };
    let before = inherited_by_programs();
    match start() {
        Ok(running) => {
            println!("\ninherited {before}, and then {}", inherited_by_programs());
            println!("ready");
            running.wait();
            println!("ended");
        }
        Err(error) => println!("\nerror: {error}"),
    }
}

/// Returns which of the descriptors 3 and 4 a program inherits that this process starts now.
fn inherited_by_programs() -> String {
    let script = "for n in 3 4; do if [ -e /proc/self/fd/$n ]; then echo -n $n; fi; done";
    let output = Command::new("sh").args(["-c", script]).output().expect("a shell");
    String::from_utf8(output.stdout).unwrap()
}

/// A server process, which is ended when this value is dropped.
struct Service(Child);

impl Service {
    /// Starts a server with environment variables, and with sockets as descriptors 3 and 4. `PID` in a value
    /// stands for the process ID of the server.
    fn start(
        directory: &Path,
        endpoints: &str,
        variables: &[(&str, &str)],
        sockets: Option<(OwnedFd, OwnedFd)>,
    ) -> Self {
        let mut script = String::new();
        let mut command = Command::new("sh");
        if let Some((tcp, udp)) = sockets {
            // The shell moves the sockets to the numbers that systemd would use.
            command.stdin(Stdio::from(tcp)).stderr(Stdio::from(udp));
            script += "exec 3<&0 4<&2 0</dev/null 2>/dev/null; ";
        }
        for (name, value) in variables {
            let value = value.replace("PID", "$$");
            script += &format!("export {name}=\"{value}\"; ");
        }
        script += "exec \"$0\" child --exact --nocapture --test-threads=1";
        let program = std::env::current_exe().unwrap();
        let child = command
            .arg("-c")
            .arg(script)
            .arg(program)
            .env("PEREGRINE_TEST_ROLE", endpoints)
            .env("PEREGRINE_DIR", directory)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        Self(child)
    }

    /// Returns the first line of output that begins with one of these words.
    fn says(&mut self, words: &[&str]) -> String {
        let output = self.0.stdout.as_mut().unwrap();
        let mut lines = BufReader::new(output).lines();
        let found = lines.find_map(|line| {
            let line = line.unwrap();
            words.iter().any(|word| line.starts_with(word)).then_some(line)
        });
        found.expect("the server says what happens")
    }

    fn is_ready(&mut self) {
        assert_eq!(self.says(&["ready", "error"]), "ready");
    }

    fn terminate(&mut self) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
    }

    fn end(mut self) {
        self.terminate();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the next report that is not one of `skipped`.
fn report(socket: &UnixDatagram, skipped: &str) -> String {
    let mut buffer = [0; 1024];
    loop {
        let bytes = socket.recv(&mut buffer).expect("a report in time");
        let text = core::str::from_utf8(&buffer[..bytes]).unwrap();
        if text != skipped {
            return text.to_owned();
        }
    }
}

#[test]
fn server_reports_that_it_is_ready_alive_and_stopping() {
    const ALIVE: &str = "WATCHDOG=1\n";
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let name = format!("peregrine-test-{}", std::process::id());
    let by_path = UnixDatagram::bind(&path).unwrap();
    let by_name = LocalAddress::from_abstract_name(&name).unwrap();
    let by_name = UnixDatagram::bind_addr(&by_name).unwrap();
    for (socket, address) in
        [(by_path, path.to_str().unwrap().to_owned()), (by_name, format!("@{name}"))]
    {
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        let variables =
            [("NOTIFY_SOCKET", &*address), ("WATCHDOG_USEC", "100000"), ("WATCHDOG_PID", "PID")];
        let mut service = Service::start(directory.path(), "tcp:127.0.0.1:0", &variables, None);
        let ready = report(&socket, ALIVE);
        let status = ready.strip_prefix("READY=1\nSTATUS=serving service at tcp:127.0.0.1:");
        let port = status.and_then(|port| port.strip_suffix('\n')).expect(&ready);
        assert!(port.parse::<u16>().is_ok(), "{ready}");
        service.is_ready();
        assert_eq!(report(&socket, ""), ALIVE);
        assert_eq!(report(&socket, ""), ALIVE);
        service.terminate();
        let stopping = report(&socket, ALIVE);
        assert_eq!(stopping, "STOPPING=1\nSTATUS=draining: waiting for calls that run\n");
        assert!(service.0.wait().unwrap().success());
    }
}

#[test]
fn server_without_a_supervisor_fails_to_start_with_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let gone = directory.path().join("gone");
    for (variables, text) in [
        ([("NOTIFY_SOCKET", gone.to_str().unwrap()), ("X", "")], "cannot report to systemd at /"),
        (
            [("NOTIFY_SOCKET", "notify"), ("X", "")],
            "NOTIFY_SOCKET is \"notify\": neither an absolute",
        ),
        (
            [("NOTIFY_SOCKET", "/x"), ("WATCHDOG_USEC", "soon")],
            "WATCHDOG_USEC is \"soon\", and not",
        ),
        ([("NOTIFY_SOCKET", "/x"), ("WATCHDOG_USEC", "0")], "WATCHDOG_USEC is \"0\", and not"),
    ] {
        let mut service = Service::start(directory.path(), "", &variables, None);
        let error = service.says(&["ready", "error"]);
        assert!(error.contains(text), "{error}");
    }
}

/// Sockets that a test passes to servers, as systemd does. It keeps them while no server runs.
struct Sockets {
    tcp: TcpListener,
    udp: UdpSocket,
}

impl Sockets {
    fn new(address: SocketAddr) -> Self {
        loop {
            let tcp = TcpListener::bind(address).unwrap();
            // Another program may use the same port over UDP.
            if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()) {
                return Self { tcp, udp };
            }
        }
    }

    fn at(&self) -> SocketAddr {
        self.tcp.local_addr().unwrap()
    }

    fn copies(&self) -> Option<(OwnedFd, OwnedFd)> {
        Some((self.tcp.try_clone().unwrap().into(), self.udp.try_clone().unwrap().into()))
    }
}

const PASSED: [(&str, &str); 3] =
    [("LISTEN_PID", "PID"), ("LISTEN_FDS", "2"), ("LISTEN_FDNAMES", "web:packets")];

#[test]
fn server_takes_inherited_sockets_and_leaves_them_to_the_next_server() {
    let directory = tempfile::tempdir().unwrap();
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let Ok(address) = address.parse::<SocketAddr>() else { continue };
        if TcpListener::bind(address).is_err() {
            println!("skipped: this machine has no IPv6");
            continue;
        }
        let sockets = Sockets::new(address);
        let at = sockets.at();
        let options = BindOptions::default().bind_timeout(LIMIT).timeout(LIMIT);
        let call = |scheme: &str| {
            let client = NullClient::bind_with(&format!("{scheme}:service@{at}"), &options)?;
            client.null().map(|()| client.binding().path())
        };
        for _ in 0..2 {
            // This client connects before a server runs, and waits for it.
            let early = std::thread::scope(|scope| {
                let early = scope.spawn(|| call("tcp"));
                let endpoint = at.to_string();
                let mut service =
                    Service::start(directory.path(), &endpoint, &PASSED, sockets.copies());
                service.is_ready();
                assert_eq!(call("tcp").unwrap(), PathKind::Tcp);
                assert_eq!(call("udp").unwrap(), PathKind::Udp);
                assert_eq!(health(&format!("udp:service@{at}")).unwrap(), Health::Serving);
                let early = early.join().unwrap();
                service.end();
                early
            });
            assert_eq!(early.unwrap(), PathKind::Tcp);
        }
    }
}

#[test]
fn programs_that_a_server_starts_inherit_no_socket_that_it_has_taken() {
    let directory = tempfile::tempdir().unwrap();
    let sockets = Sockets::new("127.0.0.1:0".parse().unwrap());
    let endpoint = sockets.at().to_string();
    let mut service = Service::start(directory.path(), &endpoint, &PASSED, sockets.copies());
    let said = service.says(&["inherited", "error"]);
    assert_eq!(said, "inherited 34, and then ");
    service.end();
}

#[test]
fn wrong_descriptions_of_inherited_sockets_are_errors() {
    let directory = tempfile::tempdir().unwrap();
    let sockets = Sockets::new("127.0.0.1:0".parse().unwrap());
    let (at, port) = (sockets.at().to_string(), sockets.at().port());
    // The numbers of variables differ, so an unused one fills the gaps.
    let unused = ("UNUSED", "");
    for (variables, endpoint, text) in [
        ([("LISTEN_PID", "PID"), ("LISTEN_FDS", "-1"), unused], &at, "LISTEN_FDS is \"-1\""),
        ([("LISTEN_PID", "PID"), ("LISTEN_FDS", "9999"), unused], &at, "a number up to 64"),
        ([("LISTEN_PID", "me"), ("LISTEN_FDS", "2"), unused], &at, "LISTEN_PID is \"me\""),
        (
            [("LISTEN_PID", "PID"), ("LISTEN_FDS", "2"), ("LISTEN_FDNAMES", "web")],
            &at,
            "LISTEN_FDNAMES has 1 names, and LISTEN_FDS is 2",
        ),
        // The sockets are for another process, so the server opens its own one.
        ([("LISTEN_PID", "1"), ("LISTEN_FDS", "2"), unused], &at, "in use"),
    ] {
        let endpoint = format!("tcp:{endpoint}");
        let mut service = Service::start(directory.path(), &endpoint, &variables, sockets.copies());
        let error = service.says(&["ready", "error"]);
        assert!(error.contains(text), "{error}");
    }
    // An inherited socket has the port at all addresses, and the server wants it at one of them.
    let wide = Sockets::new("0.0.0.0:0".parse().unwrap());
    let endpoint = format!("tcp:127.0.0.1:{}", wide.at().port());
    let mut service = Service::start(directory.path(), &endpoint, &PASSED, wide.copies());
    let error = service.says(&["ready", "error"]);
    let text = format!("this process has inherited sockets at {} (web), which", wide.at());
    assert!(error.contains(&text), "{error}");
    let variables = [("LISTEN_PID", "PID"), ("LISTEN_FDS", "30")];
    let endpoint = format!("tcp:127.0.0.2:{port}");
    let mut service = Service::start(directory.path(), &endpoint, &variables, sockets.copies());
    let error = service.says(&["ready", "error"]);
    assert!(error.contains("LISTEN_FDS includes descriptor "), "{error}");
    assert!(error.contains(", which is not open"), "{error}");
    assert_eq!(
        health(&format!("tcp:service@127.0.0.2:{port}")).unwrap_err().kind(),
        Kind::Unreachable
    );
}

/// Returns the values of a setting of a unit file.
fn settings<'a>(unit: &'a str, name: &str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('=')).collect()
}

#[test]
fn example_units_fit_each_other_and_are_valid() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let read = |name: &str| std::fs::read_to_string(docs.join(name)).unwrap();
    let (service, socket) = (read("peregrine.service"), read("peregrine.socket"));
    let command = settings(&service, "ExecStart")[0];
    let (_, listens) = command.split_once(" --listen ").expect("an endpoint");
    assert_eq!(settings(&socket, "ListenStream"), [listens]);
    assert_eq!(settings(&socket, "ListenDatagram"), [listens]);
    assert_eq!(settings(&service, "Type"), ["notify"]);
    assert_eq!(settings(&service, "Requires"), ["peregrine.socket"]);

    // systemd checks whether the program exists. It need not be installed for this test.
    let directory = tempfile::tempdir().unwrap();
    let service = service.replace("/usr/local/bin/peregrine", "/bin/true");
    let paths =
        [("peregrine.service", service), ("peregrine.socket", socket)].map(|(name, text)| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        });
    let verified = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .args(paths)
        .env("SYSTEMD_UNIT_PATH", format!("{}:", directory.path().display()))
        .output();
    let Ok(output) = verified else {
        return println!("skipped: there is no systemd-analyze");
    };
    let said = String::from_utf8_lossy(&output.stderr);
    let about_these: Vec<&str> = said.lines().filter(|line| line.contains("peregrine.s")).collect();
    assert!(about_these.is_empty(), "{said}");
}
