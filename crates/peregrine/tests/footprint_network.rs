//! What an idle client costs its server over a network: exact counts of the server's memory, whose
//! clients are other processes.

mod services;
mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use peregrine::{Running, Server};
use services::{Nothing, Null, NullClient, NullServer};
use support::heap::{Counting, bytes_in_use};

#[global_allocator]
static COUNTING: Counting = Counting;

/// The allocator counts for the whole process: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

const ADDRESS: &str = "PEREGRINE_FOOTPRINT_ADDRESS";

/// A process that binds as many clients as it is told, calls once with each, and is idle.
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

/// A child that ends when this does.
struct Clients(Child, BufReader<std::process::ChildStderr>);

impl Clients {
    fn of(address: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["child", "--exact", "--nocapture", "--test-threads=1"]).env(ADDRESS, address);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = BufReader::new(child.stderr.take().unwrap());
        Self(child, said)
    }

    fn begin(&mut self, number: usize) {
        writeln!(self.0.stdin.as_ref().unwrap(), "{number}").unwrap();
    }

    fn have_called(&mut self) {
        let mut line = String::new();
        self.1.read_line(&mut line).unwrap();
        assert_eq!(line, "called\n");
    }

    fn bind(&mut self, number: usize) {
        self.begin(number);
        self.have_called();
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
fn an_idle_client_over_udp_costs_the_server_less_than_a_kilobyte() {
    const CLIENT_BYTES: i64 = 1 << 10;
    let _alone = ALONE.lock().unwrap();
    let _directory = support::own_directory();
    let (running, address) = serve("udp:127.0.0.1:0");
    let mut clients = Clients::of(&address);
    // Whatever a server needs once. Records are made by the 64.
    clients.bind(256);
    let first = in_use();
    clients.bind(1024);
    let bytes = || (in_use() - first) / 1024;
    // A client that has just called is idle as soon as it has acknowledged the result.
    println!("{} bytes a client over UDP that has just called", bytes());
    support::until("an idle client takes no more", || bytes() <= CLIENT_BYTES);
    println!("{} bytes an idle client over UDP", bytes());
    // Who was answered late has asked for handles twice.
    let bindings = peregrine::describe("null").unwrap().bindings;
    assert!((1280..1400).contains(&bindings), "{bindings} of 1280 clients");
    drop(clients);
    running.stop();
}

#[test]
fn what_an_idle_connection_costs_the_server() {
    const CONNECTION_BYTES: i64 = 24 << 10;
    const CONNECTIONS: i64 = 16;
    let _alone = ALONE.lock().unwrap();
    let _directory = support::own_directory();
    let (running, address) = serve("tcp:127.0.0.1:0");
    let mut first: Vec<_> = (0..4).map(|_| Clients::of(&address)).collect();
    first.iter_mut().for_each(|clients| clients.bind(1));
    let before = in_use();
    let mut more: Vec<_> = (0..CONNECTIONS).map(|_| Clients::of(&address)).collect();
    // What each needs here as a child is no connection's.
    let children = in_use();
    more.iter_mut().for_each(|clients| clients.begin(1));
    more.iter_mut().for_each(Clients::have_called);
    let bytes = || (in_use() - children) / CONNECTIONS;
    support::until("an idle connection takes no more", || bytes() <= CONNECTION_BYTES);
    println!("{} bytes an idle connection over TCP; {} a child", bytes(), children - before);
    // Another binding on the same connection.
    let before = in_use();
    more[0].bind(256);
    let bytes = || (in_use() - before) / 256;
    support::until("an idle binding takes no more", || bytes() <= 1 << 10);
    println!("{} bytes an idle binding over TCP", bytes());
    drop((first, more));
    running.stop();
}
