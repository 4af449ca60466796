//! The environment in which the command lines of `docs/CLI.md` run. In it, a server exports `files` on every
//! path.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use peregrine::directory;
use rustix::process::Signal;
use serde_json::Value;

use super::cases::{Form, Step};
use super::document::{self, Holds, Shown};
use super::sandbox::{Process, Sandbox};
use super::terminal::Terminal;

/// The number of rows of the terminal. The longest output fits this number.
const ROWS: u16 = 300;
/// Commands that show all runtime directories of the machine. One of these directories is outside the
/// sandbox, so the output depends on the other servers of the machine.
const OF_ALL: [&str; 2] = ["list", "clean"];
/// The members of the JSON object of a failure, in order.
const MEMBERS: [&str; 8] =
    ["kind", "what", "executed", "address", "phase", "causes", "advice", "suggestions"];

/// The environment of the command lines: a sandbox, a server and its addresses.
pub(crate) struct World {
    sandbox: Sandbox,
    /// The server, which runs as long as the environment exists.
    _server: Process,
    /// The address of `files` on each path.
    at: Vec<(&'static str, String)>,
    /// Texts that differ between runs, and their replacements.
    differs: Vec<(String, String)>,
    /// Whether other servers have exports in a directory that the clients of all users search.
    crowded: bool,
    /// Whether this user cannot read the directory that the clients of all users search. If so, a name that
    /// is not found may exist in that directory.
    closed: bool,
}

/// Does nothing. It is for steps that need no preparation.
pub(crate) const fn nothing(_: &World) {}

/// Starts a server and kills it. Its exported name stays in the runtime directory.
pub(crate) fn leave_something_dead(world: &World) {
    let server = world.sandbox.serve(&["--name", "old"]);
    server.signal(Signal::KILL);
}

/// The interfaces for `compare`, with the names of their files.
const INTERFACES: [(&str, &str); 4] = [
    (
        "shop-1.rs",
        "trait Shop {
    fn find(&self, name: &str) -> peregrine::Result<Item>;
    fn order(&self, item: &Item, payment: Payment) -> peregrine::Result<u64>;
}
struct Item { name: String, #[widens] price: u32 }
enum Payment { Cash }
",
    ),
    // Compared with the first interface: a new field, a wider field, a new parameter, and a procedure with a
    // new name.
    (
        "shop-2.rs",
        "trait Shop {
    fn find(&self, name: &str) -> peregrine::Result<Item>;
    #[was(\"order\")]
    fn buy(&self, item: &Item, payment: Payment, #[default(1)] count: u32) -> peregrine::Result<u64>;
}
struct Item { name: String, #[default(\"piece\")] unit: String, #[widens] price: u64 }
enum Payment { Cash }
",
    ),
    // This interface has a variant that servers of the first interface do not know.
    (
        "shop-3.rs",
        "trait Shop {
    fn find(&self, name: &str) -> peregrine::Result<Item>;
    fn order(&self, item: &Item, payment: Payment) -> peregrine::Result<u64>;
}
struct Item { name: String, note: Option<String>, #[widens] price: u32 }
enum Payment { Cash, Card }
",
    ),
    // This interface has a result of another type, and a new field without a default.
    (
        "shop-4.rs",
        "trait Shop {
    fn find(&self, name: &str) -> peregrine::Result<Option<Item>>;
    fn order(&self, item: &Item, payment: Payment) -> peregrine::Result<u64>;
}
struct Item { name: String, unit: String, #[widens] price: u32 }
enum Payment { Cash }
",
    ),
];

/// Writes the files that `compare` compares.
pub(crate) fn leave_interfaces(world: &World) {
    for (name, text) in INTERFACES {
        std::fs::write(world.sandbox.path(name), text).unwrap();
    }
}

/// Writes a directory of names. The server of `files` counts as two servers, one for each path.
/// The third server does not run.
pub(crate) fn leave_names(world: &World) {
    let _ = std::fs::remove_dir_all(world.sandbox.path("names"));
    let [udp, tcp] = [&world.at[1].1, &world.at[2].1];
    for (name, server, address) in [
        ("files", "fs1", &**udp),
        ("files", "fs2", &**tcp),
        ("files", "fs3", "tcp:files@127.0.0.1:1"),
        ("birds", "fs9", "birds@fs9.example.org:7000"),
    ] {
        let place = std::path::PathBuf::from(world.sandbox.path("names")).join(name);
        std::fs::create_dir_all(&place).unwrap();
        let line = serde_json::json!({ "server": server, "addresses": [address] });
        std::fs::write(place.join(format!("{server}.json")), line.to_string()).unwrap();
    }
}

/// An identity for the document. Nothing else uses it.
const IDENTITY: [(&str, u32, &str); 2] = [
    (
        "identity.pem",
        0o644,
        "-----BEGIN CERTIFICATE-----\n\
         MIIBNDCB56ADAgECAhQ3XiMqmDaDm+W2Cy7atlkEpomlEzAFBgMrZXAwDzENMAsG\n\
         A1UEAwwEdGVzdDAgFw0yNjExMjYyMDUxMTVaGA8yMTI2MTEwMjIwNTExNVowDzEN\n\
         MAsGA1UEAwwEdGVzdDAqMAUGAytlcAMhALbIWz92eYRtITCoFAPdwizyJkS/ZdSC\n\
         pTBAb948cb24o1MwUTAdBgNVHQ4EFgQUQ3Jq2fRVz2hIIFxvrN9zx01c2pgwHwYD\n\
         VR0jBBgwFoAUQ3Jq2fRVz2hIIFxvrN9zx01c2pgwDwYDVR0TAQH/BAUwAwEB/zAF\n\
         BgMrZXADQQBZrSmf0Vh9/mvLr+uO9Q4pOQ439WOFgECZIXN90bhjh2VcTOi2gqF9\n\
         uFrclYX7cgK2N/uFLs6Mqq4hThPJb5sN\n\
         -----END CERTIFICATE-----\n\n",
    ),
    (
        "identity.key",
        0o600,
        "-----BEGIN PRIVATE KEY-----\n\
         MC4CAQAwBQYDK2VwBCIEIAPOfC2n0m7Pqb9UaU43NUc1AW0mTWBF9rnkqgxJBcO5\n\
         -----END PRIVATE KEY-----\n\n",
    ),
];

fn set_mode(path: impl AsRef<std::path::Path>, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Removes all keys.
pub(crate) fn leave_no_keys(world: &World) {
    let _ = std::fs::remove_dir_all(world.sandbox.path(".config/peregrine"));
}

/// Writes an identity whose peers are not trusted yet.
pub(crate) fn leave_keys(world: &World) {
    leave_no_keys(world);
    let directory = std::path::PathBuf::from(world.sandbox.path(".config/peregrine/keys"));
    std::fs::create_dir_all(&directory).unwrap();
    set_mode(&directory, 0o700);
    for (name, mode, text) in IDENTITY {
        let file = directory.join(name);
        std::fs::write(&file, text).unwrap();
        set_mode(&file, mode);
    }
}

/// Writes an identity that trusts two peers.
pub(crate) fn leave_trusted_keys(world: &World) {
    leave_keys(world);
    let trusted = "# who may call\n\
        bob MCowBQYDK2VwAyEAn7IvDwfFKAYLRXLiQnFg7arDuneRo6Sa5w/jkiNYRfI= bob@desk\n\
        cara MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE= cara@lab\n";
    let file = world.sandbox.path(".config/peregrine/keys/trusted");
    std::fs::write(&file, trusted).unwrap();
    set_mode(file, 0o644);
}

/// Writes a capture with a sealed packet in a frame of raw Ethernet, and the key log for it.
pub(crate) fn leave_capture(world: &World) {
    let bytes = |text: &str| -> Vec<u8> {
        let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(byte).collect()
    };
    let mut capture = bytes("4d3cb2a10200040000000000000000000000040001000000");
    let frame = bytes(&[FRAME, PACKET].concat());
    let length = (frame.len() as u32).to_le_bytes();
    capture.extend([[0; 4], [0; 4], length, length].concat());
    capture.extend(frame);
    std::fs::write(world.sandbox.path("calls.pcap"), capture).unwrap();
    let log = format!("CLIENT_TRAFFIC_SECRET_0 {} {PACKET_SECRET}\n", "ab".repeat(32));
    std::fs::write(world.sandbox.path("keys.log"), log).unwrap();
}

/// The header of a frame, and the endpoints.
const FRAME: &str = "02000000000202000000000188b500010002";
/// A sealed packet of a call.
const PACKET: &str = "5058030105000000030000000300000009080706010203040100000040000100000000000800000008000000\
    0000000000000000000000000000000000000000c2d44af75b47d0c889324763bdf84f761ca1752e2a37305f";
/// The secret of its client.
const PACKET_SECRET: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// Writes an identity whose private key others can read.
pub(crate) fn leave_open_key(world: &World) {
    leave_keys(world);
    set_mode(world.sandbox.path(".config/peregrine/keys/identity.key"), 0o644);
}

/// Writes the files that `import` and `export` read. One of them causes a warning, and another one has two
/// errors.
pub(crate) fn leave_onc_interfaces(world: &World) {
    let mount = "typedef string dirpath<1024>;
union status switch (unsigned code) {
case 0:
\topaque handle[32];
default:
\tvoid;
};
program MOUNTPROG {
\tversion MOUNTVERS {
\t\t/* Returns the handle of a directory. */
\t\tstatus MOUNTPROC_MNT(dirpath) = 1;
\t\tmountlist MOUNTPROC_DUMP(void) = 2;
\t} = 1;
} = 100005;
";
    std::fs::write(world.sandbox.path("mount.x"), mount).unwrap();
    let wrong = "struct entry {\n\tstring name[255];\n\tint size\n};\n";
    std::fs::write(world.sandbox.path("wrong.x"), wrong).unwrap();
    let clock = "Clock: PROGRAM 15 VERSION 2 =
BEGIN
    Unset: ERROR = 0;
    -- Returns the seconds since 1901.
    Now: PROCEDURE RETURNS [seconds: LONG CARDINAL] REPORTS [Unset] = 0;
END.
";
    std::fs::write(world.sandbox.path("Clock2.cr"), clock).unwrap();
    let clock = "#[interface(name = \"Clock\", version = 2, courier(program = 15, version = 2))]
pub trait Clock {
    /// Returns the seconds since 1901.
    #[courier(0)]
    fn now(&self) -> peregrine::Result<u32>;
}
";
    std::fs::write(world.sandbox.path("clock.rs"), clock).unwrap();
}

impl World {
    pub(crate) fn new() -> Self {
        let crowded = !directory::list().is_empty() || !directory::leftovers().is_empty();
        if crowded {
            eprintln!("skipped: comparing lists, because other servers export on this machine");
        }
        let looked = std::fs::read_dir("/run/peregrine").map_err(|error| error.kind());
        let closed = matches!(looked, Err(ErrorKind::PermissionDenied));
        let sandbox = Sandbox::new();
        std::fs::create_dir(sandbox.path("photos")).unwrap();
        let listen = ["--listen", "udp:127.0.0.1:0", "--listen", "tcp:127.0.0.1:0"];
        let (server, ready) = sandbox.serve_files(&listen);
        let root = sandbox.path("").trim_end_matches('/').to_owned();
        let mut differs = vec![
            (sandbox.path("run"), "/run/user/1000/peregrine".to_owned()),
            (root, "/home/ada".to_owned()),
            (server.0.id().to_string(), "4711".to_owned()),
            (env!("CARGO_BIN_EXE_peregrine").to_owned(), "peregrine".to_owned()),
        ];
        let mut at = vec![("local", "files".to_owned())];
        for (path, address) in ["udp", "tcp"].iter().zip(ready["addresses"].as_array().unwrap()) {
            let host = address.as_str().unwrap().strip_prefix(&format!("{path}:files@")).unwrap();
            let port = host.rsplit(':').next().unwrap();
            differs
                .push((port.to_owned(), if *path == "udp" { "7000" } else { "7001" }.to_owned()));
            at.push((*path, format!("{path}:files@{host}")));
        }
        Self { sandbox, _server: server, at, differs, crowded, closed }
    }

    /// Returns the paths on which a step runs, each with the address of `files` on that path.
    pub(crate) fn addresses(&self, step: &Step) -> Vec<(&'static str, String)> {
        let all = if step.line.contains("ADDRESS") { self.at.len() } else { 1 };
        self.at[..all].to_vec()
    }

    /// Returns on which machines the output of a step must be the same as in the document.
    fn holds(&self, step: &Step) -> Holds {
        let command = step.line.split(' ').next().unwrap_or_default();
        match step.held {
            true if self.crowded && OF_ALL.contains(&command) => Holds::Elsewhere,
            true if self.closed && step.code == 3 => Holds::Elsewhere,
            true => Holds::Always,
            false => Holds::Never,
        }
    }

    /// Splits a command line into words like a shell. Single quotes are supported.
    fn command(&self, line: &str) -> Command {
        let (mut words, mut is_quoted) = (vec![String::new()], false);
        for letter in line.chars() {
            match letter {
                '\'' => is_quoted = !is_quoted,
                ' ' if !is_quoted => words.push(String::new()),
                letter => words.last_mut().expect("at least one word").push(letter),
            }
        }
        self.sandbox.command(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Returns all texts to replace. Some of them are known only after a step: the number of its process, and
    /// the ports in its output.
    fn differs(&self, process: u32, out: &str) -> Vec<(String, String)> {
        let mut all = self.differs.clone();
        all.push((process.to_string(), "4712".to_owned()));
        // These are the ports of a server that the step started.
        for part in out.split("127.0.0.1:").skip(1) {
            let port: String = part.chars().take_while(char::is_ascii_digit).collect();
            if port.len() == 5 && !all.iter().any(|(known, _)| *known == port) {
                all.push((port, "7002".to_owned()));
            }
        }
        all
    }

    /// Runs a command line in a terminal. Returns the screen after the command has ended.
    pub(crate) fn in_terminal(&self, step: &Step, line: &str) -> Shown {
        let terminal = Terminal::start(self.command(line), ROWS, step.columns);
        let process = terminal.process.0.id();
        if !step.until.is_empty() {
            terminal.until(step.until);
            terminal.until_line_ends();
            terminal.interrupt();
        }
        let seen = terminal.end();
        let text = seen.text();
        assert_eq!(seen.code, step.code, "{line}:\n{text}");
        assert_eq!(seen.wrapped(), Vec::<String>::new(), "{line}");
        assert!(!seen.screen.hide_cursor(), "{line}");
        let differs = self.differs(process, &text);
        let line = document::plain(line, &differs);
        let text = match step.held {
            true => document::plain(&text, &differs),
            false => document::placed(&text, &differs),
        };
        Shown { line, text, holds: self.holds(step) }
    }

    /// Runs a command line with pipes. Checks its output, and returns it.
    pub(crate) fn through_pipe(&self, step: &Step, line: &str, form: Form, path: &str) -> Shown {
        let line = format!("{line} --format {}", form.text());
        let mut process = Process::start(&mut self.command(&line));
        let id = process.0.id();
        let mut output = BufReader::new(process.0.stdout.take().unwrap());
        let mut out = String::new();
        if !step.until.is_empty() {
            output.read_line(&mut out).unwrap();
            process.signal(Signal::INT);
        }
        output.read_to_string(&mut out).unwrap();
        let mut err = String::new();
        process.0.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        let code = process.wait().code();
        assert_eq!(code, Some(step.code), "{line}: {out}{err}");
        assert!(!out.contains('\u{1b}') && !err.contains('\u{1b}'), "colours in a pipe: {out}");
        let objects: Vec<Value> = out
            .lines()
            .map(|one| serde_json::from_str(one).unwrap_or_else(|e| panic!("{line}: {e}: {out}")))
            .collect();
        self.check(step, &objects, &line, form, path);
        let differs = self.differs(id, &out);
        let text = objects.into_iter().map(|one| match form {
            Form::Ndjson => document::compact(one, &differs),
            _ => document::pretty(one, &differs),
        });
        let text = text.collect::<Vec<_>>().join("\n");
        Shown { line: document::plain(&line, &differs), text, holds: self.holds(step) }
    }

    fn check(&self, step: &Step, objects: &[Value], line: &str, form: Form, path: &str) {
        let is_interrupted = usize::from(!step.until.is_empty());
        if form == Form::Json {
            assert_eq!(objects.len(), 1 + is_interrupted, "{line}: one object");
        }
        assert!(objects.iter().all(Value::is_object), "{line}");
        let Some(last) = objects.last() else { return assert_eq!(step.code, 0, "{line}") };
        match last.get("error") {
            // If compared interfaces do not fit, or a checked file is not up to date, the exit code is 1, but
            // the output contains no error.
            None if last["fits"] == false || last["is_same"] == false => {
                assert_eq!(step.code, 1, "{line}: {last}");
            }
            None => assert_eq!(step.code, 0, "{line}: {last}"),
            Some(error) => {
                let members: Vec<_> = error.as_object().unwrap().keys().collect();
                assert_eq!(members, MEMBERS, "{line}");
                assert_ne!(step.code, 0, "{line}: {last}");
            }
        }
        let has_address = step.line.contains("ADDRESS");
        // In NDJSON, a command with several results prints a line for each result. Such a line contains no
        // duration, even if there is only one line.
        let is_line = form == Form::Ndjson && objects.len() == 1 && last["error"].is_null();
        if (has_address && !is_line) || (step.code > 2 && is_interrupted == 0) {
            assert!(last["took_ns"].as_u64() > Some(0), "{line} has no time: {last}");
        }
        if let Some(taken) = last["path"].as_str()
            && has_address
        {
            assert_eq!(taken, path, "{line}");
        }
    }
}
