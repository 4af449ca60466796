//! Tests callbacks when the process of the client or of the server dies, and in a forked child process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use super::support::{Process, role};
use super::*;

/// Runs a server or a client as a child process. In the test run itself there is no role, and this
/// function does nothing.
#[test]
fn child() {
    let Some(role) = role() else { return };
    match role.split_once(' ') {
        Some(("server", listens)) => {
            let server = Server::new().export("service", ServiceServer::new(Object::default()));
            let server = match listens {
                "" => server.unwrap(),
                endpoint => server.unwrap().listen(endpoint).unwrap(),
            };
            let running = server.spawn().unwrap();
            let port = running.addresses().first().map(ToString::to_string).unwrap_or_default();
            println!("\nport {}", port.rsplit(':').next().unwrap_or_default());
            println!("ready");
            running.wait();
        }
        Some(("client", address)) => {
            let client = ServiceClient::bind(address).unwrap();
            client.keep(1, Callback::new(Arc::new(Doubler::new(None)))).unwrap();
            println!("\nready");
            let _ = client.hold(Callback::new(Doubler::new(None)));
        }
        _ => panic!("{role}"),
    }
}

/// The paths to another process.
const PATHS: [&str; 3] = ["local", "tcp", "udp"];

/// Returns the address of the export on a path. `port` is the port of the server.
fn address(path: &str, port: &str) -> String {
    match path {
        "local" => "local:service".to_owned(),
        path => format!("{path}:service@127.0.0.1:{port}"),
    }
}

/// Starts a server for a path. Returns the server's process and the address of its export.
fn server(path: &str, directory: &Path) -> (Process, String) {
    let listens = if path == "local" { "" } else { "127.0.0.1:0" };
    let mut process = Process::launch("failures::child", &format!("server {listens}"), directory);
    let port = process.until("port");
    process.until("ready");
    let address = address(path, &port);
    (process, address)
}

/// An object of the client that kills the server when the server calls it.
struct Killer(Mutex<Option<Process>>);

impl Double for Killer {
    fn double(&self, number: u64) -> peregrine::Result<u64> {
        drop(self.0.lock().unwrap().take());
        Ok(number)
    }
}

#[test]
fn callbacks_of_a_killed_server_end() {
    let _alone = alone();
    let directory = own_directory();
    for path in PATHS {
        println!("{path}");
        let (process, address) = server(path, directory.path());
        let client = ServiceClient::bind(&address).unwrap();
        let kept = Arc::new(Doubler::new(None));
        client.keep(1, Callback::new(Arc::clone(&kept))).unwrap();
        let killer = Killer(Mutex::new(Some(process)));
        let error = client.kill(Callback::new(&killer)).unwrap_err();
        assert_eq!(
            (error.kind(), error.executed()),
            (Kind::ServerGone, Executed::Maybe),
            "{error}"
        );
        until("the kept object is released", || Arc::strong_count(&kept) == 1);
    }
}

#[test]
fn procedure_learns_that_its_caller_was_killed() {
    let _alone = alone();
    let directory = own_directory();
    for path in PATHS {
        println!("{path}");
        let object = Arc::new(Object::default());
        let server = Server::new().export("service", ServiceServer::new(Arc::clone(&object)));
        let server = match path {
            "local" => server.unwrap(),
            _ => server.unwrap().listen("127.0.0.1:0").unwrap(),
        };
        let running = server.spawn().unwrap();
        let port = running.addresses().first().map(ToString::to_string).unwrap_or_default();
        let address = address(path, port.rsplit(':').next().unwrap_or_default());
        let mut client =
            Process::launch("failures::child", &format!("client {address}"), directory.path());
        client.until("ready");
        let kept = object.listener(1);
        assert_eq!(kept.double(3).unwrap(), 6);
        until("the procedure runs", || object.held.load(Ordering::SeqCst) == 1);
        drop(client);
        until("the procedure learns that the client is gone", || {
            object.held.load(Ordering::SeqCst) == 2
        });
        until("the kept callback fails", || kept.double(3).is_err());
        assert!(!kept.client().unwrap().binding().is_alive());
        running.stop();
    }
}

#[test]
fn forked_child_cannot_use_callbacks_of_its_parent() {
    let _alone = alone();
    let directory = own_directory();
    let (_process, address) = server("local", directory.path());
    let kept = Arc::new(Doubler::new(None));
    let mut client = Some(ServiceClient::bind(&address).unwrap());
    client.as_ref().unwrap().keep(1, Callback::new(Arc::clone(&kept))).unwrap();
    let run = AssertUnwindSafe(|| {
        let parent = client.take().unwrap();
        let error = parent.doubles(&[1], Callback::new(Doubler::new(None))).unwrap_err();
        let Refusal::Failed(error) = error else { panic!("{error:?}") };
        assert_eq!((error.kind(), error.executed()), (Kind::Forked, Executed::No), "{error}");
        // This forked child has no thread that runs the kept callback. The drop must not need that thread.
        drop(parent);
        let own = ServiceClient::bind(&address).unwrap();
        assert_eq!(own.doubles(&[1], Callback::new(Doubler::new(None))).unwrap(), [2]);
        own.keep(2, Callback::new(Doubler::new(None))).unwrap();
        assert_eq!(own.call(2, 4).unwrap(), 8);
    });
    // SAFETY: the child runs only `run`, and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let worked = catch_unwind(run).is_ok();
        // SAFETY: `_exit` ends the child at once, and runs no exit handlers or destructors.
        unsafe { libc::_exit(if worked { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: the child is ours, and the kernel writes one status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child could use its parent's callback, or could not use its own");
    assert_eq!(client.as_ref().unwrap().call(1, 4).unwrap(), 8);
    drop(client);
    until("the kept object is released", || Arc::strong_count(&kept) == 1);
}
