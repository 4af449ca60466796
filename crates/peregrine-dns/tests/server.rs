//! Tests the directory with a real name server, BIND, whose records change, and which is killed and begun
//! anew. Without the program `named`, the tests are skipped.

use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use peregrine::directory::{Directory, Offer, Offers};
use peregrine::{BindOptions, Kind, Server, interface, limits};
use peregrine_dns::Dns;

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

/// A name server with the zone `example.test`. It is killed when this value is dropped.
struct Named {
    port: u16,
    files: tempfile::TempDir,
    process: Option<Child>,
    /// The number of the zone's version.
    serial: u32,
}

impl Named {
    /// Starts a name server with these records. `None`: the program is not installed.
    fn start(records: &str) -> Option<Self> {
        let program = program()?;
        let files = tempfile::tempdir().unwrap();
        let port = loop {
            let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = tcp.local_addr().unwrap().port();
            if UdpSocket::bind(("127.0.0.1", port)).is_ok() {
                break port;
            }
        };
        let text = format!(
            "options {{ directory \"{files}\"; listen-on port {port} {{ 127.0.0.1; }};\n\
             listen-on-v6 {{ none; }}; pid-file none; session-keyfile none; recursion no;\n\
             dnssec-validation no; notify no; allow-transfer {{ none; }}; lock-file none;\n\
             max-records-per-type 0; }};\n\
             controls {{ }};\n\
             zone \"example.test\" {{ type primary; file \"zone\"; }};\n",
            files = files.path().display(),
        );
        std::fs::write(files.path().join("named.conf"), text).unwrap();
        let mut named = Self { port, files, process: None, serial: 0 };
        named.write(records);
        named.begin(program);
        Some(named)
    }

    fn write(&mut self, records: &str) {
        self.serial += 1;
        let text = format!(
            "$TTL 1\n@ SOA ns admin {} 3600 3600 3600 1\n@ NS ns\nns A 127.0.0.1\n{records}\n",
            self.serial,
        );
        let (new, path) = (self.files.path().join("new"), self.files.path().join("zone"));
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, &path).unwrap();
    }

    /// Starts the program, and waits until it answers.
    fn begin(&mut self, program: &str) {
        let log = std::fs::File::create(self.files.path().join("log")).unwrap();
        let mut process = Command::new(program)
            .args(["-g", "-n", "1", "-c"])
            .arg(self.files.path().join("named.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let log = || std::fs::read_to_string(self.files.path().join("log")).unwrap();
        while !log().contains(" running\n") {
            if let Some(status) = process.try_wait().unwrap() {
                panic!("{program}: {status}\n{}", log());
            }
            thread::sleep(Duration::from_millis(20));
        }
        self.process = Some(process);
        assert!(!log().contains("not loaded"), "{}", log());
    }

    /// Replaces the records while the program runs.
    fn replace(&mut self, records: &str) {
        self.write(records);
        let process = self.process.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args(["-HUP", &process]).status().unwrap().success());
    }

    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    fn directory(&self) -> Dns {
        Dns::open(&format!("//127.0.0.1:{}/example.test", self.port)).unwrap()
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the program, which the path of users may not contain.
fn program() -> Option<&'static str> {
    let found = ["/usr/sbin/named", "/usr/bin/named"].into_iter().find(|at| Path::new(at).exists());
    if found.is_none() {
        eprintln!("skipped: the program `named` is not installed");
    }
    found
}

/// Returns what is known once `is_wanted` holds.
fn until(directory: &Dns, name: &str, is_wanted: impl Fn(&Offers) -> bool) -> Offers {
    loop {
        match directory.look_up(name) {
            Ok(found) if is_wanted(&found) => return found,
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), Kind::Unreachable),
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Returns what the name server says about a name.
fn found(directory: &Dns, name: &str) -> Offers {
    until(directory, name, |found| found.age.is_none())
}

fn texts(offers: &Offers) -> Vec<String> {
    let mut texts: Vec<_> = offers.servers.iter().map(Offer::to_string).collect();
    texts.sort();
    texts
}

#[test]
fn services_are_found_in_order_of_their_priority() {
    let Some(named) = Named::start(
        "_files._tcp SRV 20 0 7000 last\n_files._tcp SRV 10 0 7000 first\n\
         _files._udp SRV 20 0 7000 last\n_files._udp SRV 30 0 0 nothing\n\
         first A 127.0.0.1\nfirst AAAA ::1\nlast A 127.0.0.2\nfiles A 127.0.0.3\n",
    ) else {
        return;
    };
    let directory = named.directory();
    for _ in 0..20 {
        let found = found(&directory, "files");
        let all: Vec<_> = found.servers.iter().map(Offer::to_string).collect();
        let expected = [
            "first.example.test-7000 at tcp:files@127.0.0.1:7000 tcp:files@[::1]:7000",
            "last.example.test-7000 at files@127.0.0.2:7000",
        ];
        assert_eq!(all, expected);
        let priorities: Vec<_> = found.servers.iter().map(Offer::priority).collect();
        assert_eq!(priorities, [10, 20]);
        assert_eq!(found.remarks.len(), 1, "{:?}", found.remarks);
        assert!(found.remarks[0].contains("its port is 0"), "{:?}", found.remarks);
    }
}

#[test]
fn names_without_services_are_found_by_their_addresses_or_ports() {
    let Some(named) = Named::start(
        "headless A 127.0.0.1\nheadless A 127.0.0.2\nheadless AAAA ::1\n\
         _peregrine._tcp.pods SRV 0 0 7000 pod1\npod1 A 127.0.0.1\npods A 127.0.0.1\n\
         alias CNAME headless\n_gone._tcp SRV 0 0 0 .\ngone A 127.0.0.1\n",
    ) else {
        return;
    };
    let directory = named.directory();
    let machines = ["127.0.0.1 at NAME@127.0.0.1:7193", "127.0.0.2 at NAME@127.0.0.2:7193"];
    for name in ["headless", "alias"] {
        let all = texts(&found(&directory, name));
        let expected = machines.map(|text| text.replace("NAME", name));
        assert_eq!(all[1..], expected, "{all:?}");
        assert_eq!(all[0], format!("--1 at {name}@[::1]:7193"));
    }
    let pods = texts(&found(&directory, "pods"));
    assert_eq!(pods, ["pod1.example.test-7000 at tcp:pods@127.0.0.1:7000"]);
    // The domain says that no server offers this name.
    let gone = found(&directory, "gone");
    assert_eq!((gone.servers.len(), gone.remarks.len()), (0, 1));
}

#[test]
fn program_binds_to_the_server_that_the_directory_names() {
    const OWN: &str = "program_binds_to_the_server_that_the_directory_names";
    const IS_CHILD: &str = "IS_CHILD_OF_TEST";
    if std::env::var_os(IS_CHILD).is_none() {
        // The export must not appear in the runtime directory of the machine.
        let runtime = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", OWN, "--nocapture"]);
        child.env("PEREGRINE_DIR", runtime.path()).env(IS_CHILD, "1");
        assert!(child.status().unwrap().success());
        return;
    }
    let server = Server::new().export("echo", EchoServer::new(Same)).unwrap();
    let running = server.listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
    let port = running.addresses()[0].place().port();
    let Some(named) = Named::start(&format!("_echo._tcp SRV 0 0 {port} here\nhere A 127.0.0.1\n"))
    else {
        return;
    };
    let directory = named.directory();
    found(&directory, "echo");
    let options = BindOptions::default().directory(directory);
    let echo = EchoClient::bind_with("tcp:echo", &options).unwrap();
    assert_eq!(echo.echo(3).unwrap(), 3);
    let error = EchoClient::bind_with("nothing", &options).err().unwrap();
    assert_eq!(error.kind(), Kind::NotFound, "{error}");
    assert!(error.to_string().contains("below example.test"), "{error}");
}

#[test]
fn thousand_records_come_over_tcp() {
    let services: String =
        (1..=1000).map(|port| format!("_many._tcp SRV 0 0 {port} host\n")).collect();
    let more: String =
        (1..=1100).map(|n| format!("more A 127.1.{}.{}\n", n / 200, n % 200)).collect();
    let Some(named) = Named::start(&format!("{services}host A 127.0.0.1\n{more}")) else { return };
    let directory = named.directory();
    let many = found(&directory, "many");
    assert_eq!((many.servers.len(), many.remarks.len()), (1000, 0));
    let more = found(&directory, "more");
    assert_eq!((more.servers.len(), more.remarks.len()), (limits::SERVERS_MAX, 1));
}

#[test]
fn changes_are_noticed_and_the_last_answer_survives_the_name_server() {
    let Some(mut named) = Named::start("files A 127.0.0.1\n") else { return };
    let directory = named.directory();
    found(&directory, "files");
    let (told, is_told) = mpsc::channel();
    let watcher = move |offers: Offers| told.send(texts(&offers)).unwrap();
    let standing = directory.watch("files", Box::new(watcher)).unwrap();
    let one = "127.0.0.1 at files@127.0.0.1:7193";
    let other = "127.0.0.2 at files@127.0.0.2:7193";
    assert_eq!(is_told.recv().unwrap(), [one]);
    named.replace("files A 127.0.0.1\nfiles A 127.0.0.2\n");
    assert_eq!(is_told.recv().unwrap(), [one, other]);
    named.kill();
    let stale = until(&directory, "files", |found| found.age.is_some());
    assert_eq!(texts(&stale), [one, other]);
    while standing.problem().is_none() {
        thread::sleep(Duration::from_millis(20));
    }
    named.write("files A 127.0.0.2\n");
    named.begin(program().unwrap());
    assert_eq!(is_told.recv().unwrap(), [other]);
    assert_eq!(texts(&found(&directory, "files")), [other]);
    named.replace("");
    assert_eq!(is_told.recv().unwrap(), [""; 0]);
    assert_eq!(found(&directory, "files").remarks, [""; 0]);
}
