//! Panics outside of any call: an exported object that panics when it is dropped harms nobody, on any
//! path, and the server's owner is told.

mod support;

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use peregrine::{BindOptions, Executed, Fault, Kind, Running, Server, interface};
use support::link::{ENDS, Link, at_far_end, at_near_end};
use support::{Part, alone, own_directory, part, until};

/// Long for something that takes no time.
const LIMIT: Duration = Duration::from_secs(20);
/// Exports whose object panics when it is dropped.
const FRAGILE: usize = 3;

#[interface]
trait Echo {
    fn echo(&self, x: u32) -> peregrine::Result<u32>;
    /// Returns when its caller's process has said so by making a file of this name.
    fn wait(&self, file: &str) -> peregrine::Result<u32>;
}

/// Panics when it is dropped, if it has a name.
struct Object(Option<String>);

impl Echo for Object {
    fn echo(&self, x: u32) -> peregrine::Result<u32> {
        Ok(x)
    }
    fn wait(&self, file: &str) -> peregrine::Result<u32> {
        until("the file is there", || std::path::Path::new(file).exists());
        Ok(7)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        if let Some(name) = &self.0 {
            panic!("{name} does not like to go");
        }
    }
}

fn options() -> BindOptions {
    BindOptions::default().timeout(LIMIT).bind_timeout(LIMIT)
}

fn fragile(number: usize) -> String {
    format!("fragile{number}")
}

/// A client process: calls each fragile export until that is withdrawn, forgets it, and calls another.
#[test]
fn child() {
    let Some(at) = part() else { return };
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
            // A new binding to an export of the same server.
            assert_eq!(bind("sound").echo(2).unwrap(), 2);
            println!("went {number}");
        }
        std::fs::write(&file, "").unwrap();
        println!("waited {}", waits.join().unwrap().unwrap());
    });
}

fn serve(at: Option<&str>) -> (Running, String, Receiver<Fault>) {
    let (told, faults) = channel();
    let tell = move |fault: &Fault| told.send(fault.clone()).unwrap();
    let server = Server::new().threads(4).on_fault(tell);
    let server = server.export("sound", EchoServer::new(Object(None))).unwrap();
    let server = (0..=FRAGILE).map(fragile).fold(server, |server, name| {
        server.export(&name, EchoServer::new(Object(Some(name.clone())))).unwrap()
    });
    let server = match at {
        Some(at) => server.listen_beyond_this_machine(at).unwrap(),
        None => server,
    };
    let running = server.spawn().unwrap();
    let address = running.addresses().first().map_or("local".into(), ToString::to_string);
    (running, address, faults)
}

/// The owner is told of each of these, in any order: an object goes with the last thread that ran its
/// calls.
#[track_caller]
fn are_told(faults: &Receiver<Fault>, mut names: Vec<String>) {
    while !names.is_empty() {
        let fault = faults.recv_timeout(LIMIT).expect("the owner is told");
        let said = fault.to_string();
        let Fault::Dropping { export, text, .. } = fault else { panic!("{said}") };
        let at = names.iter().position(|name| *name == export).unwrap_or_else(|| panic!("{said}"));
        let name = names.remove(at);
        assert_eq!(text, format!("{name} does not like to go"));
        assert!(said.contains(&name), "{said}");
    }
}

fn drops_harm_nobody(at: Option<&str>) {
    let _alone = alone();
    let directory = own_directory();
    let (running, address, faults) = serve(at);
    let client = Part::start("child", &address, directory.path());
    harm_nobody(running, &address, &faults, client);
}

fn harm_nobody(running: Running, address: &str, faults: &Receiver<Fault>, mut client: Part) {
    for number in 0..FRAGILE {
        assert!(running.withdraw(&fragile(number)));
        assert_eq!(client.line(), format!("went {number}"));
    }
    assert_eq!(client.line(), "waited 7", "a call that ran meanwhile");
    drop(client);
    // Over datagrams a client's end is noticed when others need its place; binding again is enough.
    are_told(faults, (0..FRAGILE).map(fragile).collect());
    let other = if address == "local" { "sound".into() } else { format!("{address}/sound") };
    assert_eq!(EchoClient::bind_with(&other, &options()).unwrap().echo(3).unwrap(), 3);
    // What is left goes with the server.
    running.stop_handle().stop();
    running.wait();
    are_told(faults, vec![fragile(FRAGILE)]);
    assert!(faults.recv_timeout(LIMIT).is_err(), "each is told once");
}

#[test]
fn panicking_drop_harms_nobody_locally() {
    drops_harm_nobody(None);
}

#[test]
fn panicking_drop_harms_nobody_over_tcp() {
    drops_harm_nobody(Some("tcp:127.0.0.1:0"));
}

#[test]
fn panicking_drop_harms_nobody_over_udp() {
    drops_harm_nobody(Some("udp:127.0.0.1:0"));
}

#[test]
fn panicking_drop_harms_nobody_over_raw_ethernet() {
    let _alone = alone();
    let directory = own_directory();
    at_near_end(Link::new(), move |link| {
        let at = format!("eth:{}:0", ENDS[1]);
        let (running, address, faults) = at_far_end(|| serve(Some(&at)));
        let mut client = link.launch(0, "child", &address, directory.path());
        client.until("ready");
        harm_nobody(running, &address, &faults, client);
    });
}

/// The owner's hook is no way to end the server either.
#[test]
fn panicking_hook_harms_nobody() {
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
