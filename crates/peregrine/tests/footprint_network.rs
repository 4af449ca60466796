//! Counts the memory that a server uses for each idle client over a network. The clients are other processes.

mod services;
mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use peregrine::{Running, Server};
use services::{Nothing, Null, NullClient, NullServer};
use support::heap::{Counting, bytes_in_use};

#[global_allocator]
static COUNTING: Counting = Counting;

const ADDRESS: &str = "PEREGRINE_FOOTPRINT_ADDRESS";

/// Runs in child processes. For each number that it reads from its input, it binds that many clients and
/// makes a call with each. The clients then stay idle.
#[test]
fn child() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let mut clients = Vec::new();
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        let number: usize = line.trim().parse().unwrap();
        for _ in 0..number {
            let client = NullClient::bind(&address).unwrap();
            client.null().unwrap();
            clients.push(client);
        }
        eprintln!("called");
        line.clear();
    }
    std::process::exit(0);
}

/// A child process, which ends when this value is dropped.
struct Clients(Child, BufReader<std::process::ChildStderr>);

impl Clients {
    fn of(address: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["child", "--exact", "--nocapture", "--test-threads=1"]).env(ADDRESS, address);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stderr.take().unwrap());
        Self(child, output)
    }

    fn begin(&mut self, number: usize) {
        writeln!(self.0.stdin.as_ref().unwrap(), "{number}").unwrap();
    }

    fn await_called(&mut self) {
        let mut line = String::new();
        self.1.read_line(&mut line).unwrap();
        assert_eq!(line, "called\n");
    }

    fn bind(&mut self, number: usize) {
        self.begin(number);
        self.await_called();
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn serve(at: &str) -> (Running, String) {
    let server = Server::new().export("null", NullServer::new(Nothing)).unwrap();
    let running = server.listen(at).unwrap().spawn().unwrap();
    let address = format!("{}/null", running.addresses()[0]);
    (running, address)
}

fn in_use() -> i64 {
    bytes_in_use()
}

#[test]
fn idle_client_over_udp_costs_the_server_less_than_a_kilobyte() {
    const CLIENT_BYTES: i64 = 1 << 10;
    let _alone = support::alone();
    let _directory = support::own_directory();
    let (running, address) = serve("udp:127.0.0.1:0");
    let mut clients = Clients::of(&address);
    // For the first clients, the server allocates memory that it needs only once. It allocates its records of
    // clients in groups of 64.
    clients.bind(256);
    let first = in_use();
    clients.bind(1024);
    let bytes = || (in_use() - first) / 1024;
    // A client is idle as soon as it has acknowledged its last result.
    println!("{} bytes per client over UDP that has just called", bytes());
    support::until("idle clients cost little", || bytes() <= CLIENT_BYTES);
    println!("{} bytes per idle client over UDP", bytes());
    // If the answer to a bind arrives late, the client asks again, and the server makes a second binding. So
    // the server may have more bindings than there are clients.
    let bindings = peregrine::describe("null").unwrap().bindings;
    assert!((1280..1400).contains(&bindings), "{bindings} of 1280 clients");
    drop(clients);
    running.stop();
}

#[test]
fn idle_connection_over_tcp_costs_the_server_little() {
    const CONNECTION_BYTES: i64 = 24 << 10;
    const CONNECTIONS: i64 = 16;
    let _alone = support::alone();
    let _directory = support::own_directory();
    let (running, address) = serve("tcp:127.0.0.1:0");
    let mut first: Vec<_> = (0..4).map(|_| Clients::of(&address)).collect();
    first.iter_mut().for_each(|clients| clients.bind(1));
    let before = in_use();
    let mut more: Vec<_> = (0..CONNECTIONS).map(|_| Clients::of(&address)).collect();
    // This process also allocates memory for each child process. The test does not count this memory as
    // memory of a connection.
    let children = in_use();
    more.iter_mut().for_each(|clients| clients.begin(1));
    more.iter_mut().for_each(Clients::await_called);
    let bytes = || (in_use() - children) / CONNECTIONS;
    support::until("idle connections cost little", || bytes() <= CONNECTION_BYTES);
    println!(
        "{} bytes per idle connection over TCP; {} for the children",
        bytes(),
        children - before
    );
    // Further bindings use the same connection.
    let before = in_use();
    more[0].bind(256);
    let bytes = || (in_use() - before) / 256;
    support::until("idle bindings cost little", || bytes() <= 1 << 10);
    println!("{} bytes per idle binding over TCP", bytes());
    drop((first, more));
    running.stop();
}
