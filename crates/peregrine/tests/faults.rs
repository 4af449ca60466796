//! Tests panics outside of calls. An exported object that panics when it is dropped affects no client on any
//! path, and the server's owner is notified.

mod support;

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use peregrine::{BindOptions, Executed, Fault, Insecure, Kind, Running, Server, interface};
use support::link::{ENDS, Link, at_far_end, at_near_end};
use support::{Process, alone, own_directory, role, until};

/// The time limit of events that should be immediate.
const LIMIT: Duration = Duration::from_secs(20);
/// The number of exports that the test withdraws and whose objects panic when they are dropped. One more such
/// export stays until the server ends.
const FRAGILE: usize = 3;

#[interface]
trait Echo {
    fn echo(&self, x: u32) -> peregrine::Result<u32>;
    /// Waits until the file at the path `file` exists, and returns 7. The calling process creates the file.
    fn wait(&self, file: &str) -> peregrine::Result<u32>;
}

/// An object that panics when it is dropped, if it has a name.
struct Object(Option<String>);

impl Echo for Object {
    fn echo(&self, x: u32) -> peregrine::Result<u32> {
        Ok(x)
    }
    fn wait(&self, file: &str) -> peregrine::Result<u32> {
        until("the file exists", || std::path::Path::new(file).exists());
        Ok(7)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        if let Some(name) = &self.0 {
            panic!("{name} panics when dropped");
        }
    }
}

fn options() -> BindOptions {
    BindOptions::default().timeout(LIMIT).bind_timeout(LIMIT)
}

fn fragile(number: usize) -> String {
    format!("fragile{number}")
}

/// Runs in client processes. It calls each fragile export until the export is withdrawn. Then it drops the
/// client of this export, and calls another export.
#[test]
fn child() {
    let Some(at) = role() else { return };
    let bind = |name: &str| {
        let address = if at == "local" { name.to_owned() } else { format!("{at}/{name}") };
        EchoClient::bind_with(&address, &options().rebind(peregrine::Rebind::Never)).unwrap()
    };
    let sound = bind("sound");
    let file = std::env::var("PEREGRINE_DIR").unwrap() + "/.go";
    let clients: Vec<_> = (0..FRAGILE).map(|number| bind(&fragile(number))).collect();
    println!("\nready");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| sound.wait(&file));
        for (number, client) in clients.into_iter().enumerate() {
            let failed = std::iter::repeat_with(|| client.echo(1)).find_map(Result::err).unwrap();
            assert_eq!((failed.kind(), failed.executed()), (Kind::Withdrawn, Executed::No));
            drop(client);
            // Bind anew to an export of the same server.
            assert_eq!(bind("sound").echo(2).unwrap(), 2);
            println!("withdrawn {number}");
        }
        std::fs::write(&file, "").unwrap();
        println!("waited {}", waits.join().unwrap().unwrap());
    });
}

fn serve(at: Option<&str>) -> (Running, String, Receiver<Fault>) {
    let (sender, faults) = channel();
    let report = move |fault: &Fault| sender.send(fault.clone()).unwrap();
    let server = Server::new().threads(4).on_fault(report);
    let server = server.export("sound", EchoServer::new(Object(None))).unwrap();
    let server = (0..=FRAGILE).map(fragile).fold(server, |server, name| {
        server.export(&name, EchoServer::new(Object(Some(name.clone())))).unwrap()
    });
    let server = match at {
        Some(at) => server.listen_beyond_this_machine(at, Insecure::ITrustThisNetwork).unwrap(),
        None => server,
    };
    let running = server.spawn().unwrap();
    let address = running.addresses().first().map_or("local".into(), ToString::to_string);
    (running, address, faults)
}

/// Checks that the owner is notified of the fault of each export in `names`, in any order. The order is
/// undefined because an object is dropped by the last thread that ran its calls.
#[track_caller]
fn faults_are_reported(faults: &Receiver<Fault>, mut names: Vec<String>) {
    while !names.is_empty() {
        let fault = faults.recv_timeout(LIMIT).expect("the owner is notified");
        let message = fault.to_string();
        let Fault::Dropping { export, text, .. } = fault else { panic!("{message}") };
        let at =
            names.iter().position(|name| *name == export).unwrap_or_else(|| panic!("{message}"));
        let name = names.remove(at);
        assert_eq!(text, format!("{name} panics when dropped"));
        assert!(message.contains(&name), "{message}");
    }
}

fn check_panicking_drops(at: Option<&str>) {
    let _alone = alone();
    let directory = own_directory();
    let (running, address, faults) = serve(at);
    let client = Process::start("child", &address, directory.path());
    check_with_client(running, &address, &faults, client);
}

fn check_with_client(
    running: Running,
    address: &str,
    faults: &Receiver<Fault>,
    mut client: Process,
) {
    for number in 0..FRAGILE {
        assert!(running.withdraw(&fragile(number)));
        assert_eq!(client.line(), format!("withdrawn {number}"));
    }
    assert_eq!(client.line(), "waited 7", "a call should return although objects panic");
    drop(client);
    // Over datagrams, the server may still keep the bindings of the client that has ended. The faults are
    // reported nevertheless, and new bindings work.
    faults_are_reported(faults, (0..FRAGILE).map(fragile).collect());
    let other = if address == "local" { "sound".into() } else { format!("{address}/sound") };
    assert_eq!(EchoClient::bind_with(&other, &options()).unwrap().echo(3).unwrap(), 3);
    // The last fragile object is dropped with the server.
    running.stop_handle().stop();
    running.wait();
    faults_are_reported(faults, vec![fragile(FRAGILE)]);
    assert!(faults.recv_timeout(LIMIT).is_err(), "each fault is reported once");
}

#[test]
fn panicking_drop_affects_no_client_locally() {
    check_panicking_drops(None);
}

#[test]
fn panicking_drop_affects_no_client_over_tcp() {
    check_panicking_drops(Some("tcp:127.0.0.1:0"));
}

#[test]
fn panicking_drop_affects_no_client_over_udp() {
    check_panicking_drops(Some("udp:127.0.0.1:0"));
}

#[test]
fn panicking_drop_affects_no_client_over_raw_ethernet() {
    let _alone = alone();
    let directory = own_directory();
    at_near_end(Link::new(), move |link| {
        let at = format!("eth:{}:0", ENDS[1]);
        let (running, address, faults) = at_far_end(|| serve(Some(&at)));
        let mut client = link.launch(0, "child", &address, directory.path());
        client.until("ready");
        check_with_client(running, &address, &faults, client);
    });
}

/// The owner's hook is the function that the server calls for a fault. A panic in the hook does not end the
/// server either.
#[test]
fn panicking_hook_affects_no_client() {
    let _alone = alone();
    let _directory = own_directory();
    let server = Server::new().on_fault(|fault| panic!("{fault}"));
    let server = server.export("one", EchoServer::new(Object(Some("one".into())))).unwrap();
    let running = server.export("two", EchoServer::new(Object(None))).unwrap().spawn().unwrap();
    let two = EchoClient::bind("two").unwrap();
    assert!(running.withdraw("one"));
    assert_eq!(two.echo(4).unwrap(), 4);
    assert!(running.drain(LIMIT));
}
