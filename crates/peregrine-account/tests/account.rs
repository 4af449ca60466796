//! Accounts of calls to a server in another process, over each path. The parts of a call must add up to the
//! whole, except for 5 per cent.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use peregrine::sys::pin_to;
use peregrine::{Accounting, BindOptions, Insecure, Out, Server, Wait, interface};
use peregrine_account::{Account, Calls, Options, Side};
use tempfile::TempDir;

/// Set for child processes: `serve`, `serve-link ADDRESS` or `account ADDRESS PATH`.
const ROLE: &str = "PEREGRINE_ACCOUNT_ROLE";

/// The tests run one after another, because they measure.
static ALONE: Mutex<()> = Mutex::new(());

/// The addresses of the two ends of a link.
const ENDS: [&str; 2] = ["10.213.78.1", "10.213.78.2"];

#[interface]
trait Store {
    fn nothing(&self) -> peregrine::Result<()>;
    fn take(&self, #[max_len(48_000)] bytes: &[u8]) -> peregrine::Result<u64>;
    fn give(&self, #[max_len(48_000)] bytes: Out<'_, u8>) -> peregrine::Result<()>;
}

struct Sums;

impl Store for Sums {
    fn nothing(&self) -> peregrine::Result<()> {
        Ok(())
    }
    fn take(&self, bytes: &[u8]) -> peregrine::Result<u64> {
        Ok(bytes.iter().step_by(64).map(|byte| u64::from(*byte)).sum())
    }
    fn give(&self, mut bytes: Out<'_, u8>) -> peregrine::Result<()> {
        let all = vec![7; bytes.capacity()];
        bytes.put(&all).expect("the bytes fit");
        Ok(())
    }
}

/// A child process, which is ended on drop.
struct Process(Child, BufReader<ChildStdout>);

impl Process {
    /// Starts this program again by `command`, with its own directory for names.
    fn start(mut command: Command, directory: &TempDir, role: &str) -> Self {
        let program = std::env::current_exe().expect("this program");
        command.arg(format!("PEREGRINE_DIR={}", directory.path().display()));
        let arguments = ["child", "--exact", "--nocapture", "--test-threads=1"];
        command.arg(program).args(arguments).env(ROLE, role);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("a child process");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        Self(child, output)
    }

    /// Returns the rest of the next line that begins with `start`.
    fn line(&mut self, start: &str) -> String {
        let mut line = String::new();
        while self.1.read_line(&mut line).expect("the output of the child") > 0 {
            if let Some(rest) = line.strip_prefix(start) {
                return rest.trim().to_owned();
            }
            print!("{line}");
            line.clear();
        }
        panic!("the child has ended without `{start}`");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Does the work of child processes. In the test itself this does nothing.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let words: Vec<&str> = role.split(' ').collect();
    // Each side has its own processor. Where both share one, a call also waits until the other side gives the
    // processor back, and what it does until then is in no part.
    // A machine with one processor refuses the other one.
    let _ = pin_to(u32::from(words[0] != "account"));
    if words[0] == "account" {
        [0, 1000, 48_000].into_iter().for_each(|bytes| adds_up(words[1], words[2], bytes));
        return println!("\nall added up");
    }
    let server = Server::new().export("store", StoreServer::new(Sums)).unwrap();
    let server = match words[0] {
        "serve" => server.listen("udp:127.0.0.1:0").unwrap().listen("tcp:127.0.0.1:0").unwrap(),
        _ => server.listen_beyond_this_machine(words[1], Insecure::ITrustThisNetwork).unwrap(),
    };
    let running = server.spawn().unwrap();
    for address in running.addresses() {
        println!("\nat {address}/store");
    }
    println!("\nready");
    running.wait();
}

/// Makes an account of a call that sends `bytes` bytes.
fn account(address: &str, path: &str, bytes: usize) -> Account {
    // A call over UDP or TCP takes about as long as an adaptive client polls, so that some of its calls would
    // sleep and others would not.
    let wait = if ["udp", "tcp"].contains(&path) { Wait::Block } else { Wait::Adaptive };
    let options = BindOptions::default().wait(wait);
    let store = StoreClient::bind_with(address, &options).unwrap();
    assert_eq!(store.binding().path().to_string(), path);
    let accounting = Accounting::begin(store.binding()).unwrap();
    let accounted = store.with_accounting(&accounting);
    let sent = vec![1; bytes];
    let call = |store: &StoreClient| match bytes {
        0 => store.nothing(),
        _ => store.take(&sent).map(|sum| assert_eq!(sum, bytes.div_ceil(64) as u64)),
    };
    let (mut plain, mut recorded) = (|| call(&store), || call(&accounted));
    let calls = Calls { plain: &mut plain, accounted: &mut recorded };
    let options = Options { rounds: 21, ..Options::default() };
    Account::of(&accounting, calls, &options).unwrap()
}

/// Checks that the parts of a call add up to the whole. Other programs of the machine may disturb an account,
/// so there are three tries.
fn adds_up(address: &str, path: &str, bytes: usize) {
    let mut rests = Vec::new();
    for _ in 0..3 {
        let account = account(address, path, bytes);
        println!("{path}, {bytes} bytes\n{account}\n");
        assert!(account.rounds >= 3 && account.parts.iter().all(|part| part.ns.is_finite()));
        rests.push(account.rest_ratio());
        if account.rest_ratio().abs() <= 0.05 {
            return;
        }
    }
    panic!("{path}, {bytes} bytes: the parts do not add up to the whole: {rests:?}");
}

#[test]
fn parts_of_calls_add_up_on_this_machine() {
    let _alone = ALONE.lock();
    let directory = tempfile::tempdir().unwrap();
    let start = |role: &str| Process::start(Command::new("env"), &directory, role);
    let mut server = start("serve");
    let [udp, tcp] = [server.line("at "), server.line("at ")];
    server.line("ready");
    for (address, path) in [("local:store", "local"), (&udp, "udp"), (&tcp, "tcp")] {
        let mut client = start(&format!("account {address} {path}"));
        client.line("all added up");
    }
}

/// Runs `ip`. Returns why it has failed.
fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    let output = output.map_err(|error| format!("cannot run `ip`: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("ip {arguments}: {}", text.trim())) }
}

/// Two network namespaces that a link joins. They are removed on drop.
struct Link([String; 2]);

impl Link {
    fn new() -> Result<Self, String> {
        let id = std::process::id();
        let names = ["a", "b"].map(|end| format!("prg-account-{end}{id}"));
        let [a, b] = &names;
        let interfaces = ["a", "b"].map(|end| format!("pa{end}{id}"));
        ip(&format!("netns add {a}"))?;
        let link = Self(names.clone());
        ip(&format!("netns add {b}"))?;
        let [at_a, at_b] = &interfaces;
        ip(&format!("link add {at_a} netns {a} type veth peer name {at_b} netns {b}"))?;
        for ((name, interface), end) in names.iter().zip(&interfaces).zip(ENDS) {
            ip(&format!("-n {name} addr add {end}/24 dev {interface}"))?;
            ip(&format!("-n {name} link set lo up"))?;
            ip(&format!("-n {name} link set {interface} up"))?;
        }
        Ok(link)
    }

    fn command(&self, end: usize) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0[end], "env"]);
        command
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.0.iter().for_each(|name| drop(ip(&format!("netns del {name}"))));
    }
}

#[test]
fn parts_of_calls_add_up_over_raw_ethernet() {
    let _alone = ALONE.lock();
    let directory = tempfile::tempdir().unwrap();
    let link = match Link::new() {
        Ok(link) => link,
        Err(why) => return println!("skipped: {why}"),
    };
    let start = |end, role: &str| Process::start(link.command(end), &directory, role);
    let mut server = start(1, &format!("serve-link eth:{}:7000", ENDS[1]));
    let address = server.line("at ");
    server.line("ready");
    let mut client = start(0, &format!("account {address} ethernet"));
    client.line("all added up");
}

#[test]
fn results_belong_to_the_transfer_and_the_server() {
    let _alone = ALONE.lock();
    let directory = tempfile::tempdir().unwrap();
    let mut server = Process::start(Command::new("env"), &directory, "serve");
    let [_udp, tcp] = [server.line("at "), server.line("at ")];
    let store = StoreClient::bind(&tcp).unwrap();
    let accounting = Accounting::begin(store.binding()).unwrap();
    let accounted = store.with_accounting(&accounting);
    let mut bytes = vec![0; 48_000];
    let mut again = vec![0; 48_000];
    let calls = Calls {
        plain: &mut || store.give(Out::from(&mut bytes[..])),
        accounted: &mut || accounted.give(Out::from(&mut again[..])),
    };
    let account = Account::of(&accounting, calls, &Options::quick()).unwrap();
    assert!(bytes == [7; 48_000] && again == bytes);
    let json = account.to_json();
    let parts = json["parts"].as_array().unwrap();
    let sum: f64 = parts.iter().map(|part| part["ns"].as_f64().unwrap()).sum();
    assert!((sum - json["sum_ns"].as_f64().unwrap()).abs() < 1.0);
    let rest = (json["whole_ns"].as_f64().unwrap() - sum) / json["whole_ns"].as_f64().unwrap();
    assert!((rest - json["rest_ratio"].as_f64().unwrap()).abs() < 1e-6);
    let sides = [Side::Client, Side::Between, Side::Server];
    for side in sides {
        let of_side = account.parts.iter().filter(|part| part.side == side);
        assert!(of_side.map(|part| part.ns).sum::<f64>() > 0.0, "{account}");
    }
    let text = account.to_string();
    assert!(text.contains("transfer, there and back") && text.lines().count() == 14, "{text}");
}
