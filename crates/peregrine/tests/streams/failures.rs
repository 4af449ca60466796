//! Tests streams whose client or server dies, is restarted, forks, or gives up.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use peregrine::{ExportOptions, Wait};

use super::support::{Process, role};
use super::*;

/// Runs a server or a client as a child process. In the test run itself there is no role, and this
/// function does nothing.
#[test]
fn child() {
    let Some(role) = role() else { return };
    match role.split_once(' ') {
        Some(("server", listens)) => {
            let server = Server::new().export("streams", StreamsServer::new(Object::default()));
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
            let client = StreamsClient::bind(address).unwrap();
            println!("\nready");
            let _ = client.endless(Sink::new(|_| std::thread::sleep(Duration::from_millis(1))));
        }
        _ => panic!("{role}"),
    }
}

/// The paths to another process.
const PATHS: [&str; 3] = ["local", "tcp", "udp"];

/// Starts a server process for a path. Returns the process, and the address of the export.
fn server(path: &str, port: &str, directory: &Path) -> (Process, String) {
    let listens = if path == "local" { String::new() } else { format!("127.0.0.1:{port}") };
    let mut process = Process::launch("failures::child", &format!("server {listens}"), directory);
    let port = process.until("port");
    process.until("ready");
    let address = match path {
        "local" => "local:streams".to_owned(),
        path => format!("{path}:streams@127.0.0.1:{port}"),
    };
    (process, address)
}

#[test]
fn streams_of_a_killed_server_fail() {
    let _alone = alone();
    let directory = own_directory();
    for path in PATHS {
        println!("{path}");
        let (process, address) = server(path, "0", directory.path());
        let client = StreamsClient::bind(&address).unwrap();
        let mut process = Some(process);
        let mut count = 0;
        let receive = |number| {
            assert_eq!(number, count);
            count += 1;
            if count == 5000 {
                drop(process.take());
            }
        };
        let error = client.endless(Sink::new(receive)).unwrap_err();
        let outcome = (error.kind(), error.executed());
        assert_eq!(outcome, (Kind::ServerGone, Executed::Maybe), "{error}");
        assert!(count >= 5000, "{count}");
        // In this second case, the client is sending items when the server dies.
        let (process, address) = server(path, "0", directory.path());
        let client = StreamsClient::bind(&address).unwrap();
        let mut process = Some(process);
        let numbers = (0..).inspect(|number| {
            if *number == 5000 {
                drop(process.take());
            }
        });
        let error = client.sum(Source::new(numbers)).unwrap_err();
        let outcome = (error.kind(), error.executed());
        assert_eq!(outcome, (Kind::ServerGone, Executed::Maybe), "{error}");
    }
}

#[test]
fn procedures_of_a_killed_client_end() {
    let _alone = alone();
    let directory = own_directory();
    let object = Arc::new(Object::default());
    let server = Server::new().export("streams", StreamsServer::new(Arc::clone(&object)));
    let running = server.unwrap().listen("127.0.0.1:0").unwrap().spawn().unwrap();
    let endpoint = running.addresses()[0].to_string();
    let port = endpoint.rsplit(':').next().unwrap();
    for path in PATHS {
        println!("{path}");
        let address = match path {
            "local" => "local:streams".to_owned(),
            path => format!("{path}:streams@127.0.0.1:{port}"),
        };
        object.sent.store(0, Ordering::SeqCst);
        let before = object.ended.load(Ordering::SeqCst);
        let client =
            Process::start("failures::child", &format!("client {address}"), directory.path());
        until("the procedure sends", || object.sent.load(Ordering::SeqCst) > 0);
        drop(client);
        until("the procedure ends", || object.ended.load(Ordering::SeqCst) > before);
    }
}

/// A call is repeated on the new server if none of its items has been sent.
#[test]
fn streams_work_after_the_server_was_restarted() {
    let _alone = alone();
    let directory = own_directory();
    for path in PATHS {
        println!("{path}");
        let (process, address) = server(path, "0", directory.path());
        let port = address.rsplit(':').next().unwrap().to_owned();
        let client = StreamsClient::bind(&address).unwrap();
        assert_eq!(client.sum(Source::new(0..100)).unwrap(), 4950);
        drop(process);
        let (_process, _) = server(path, &port, directory.path());
        let mut count = 0;
        let mut counted = client.count(0, 100, Sink::new(|_| count += 1));
        if path == "udp" && counted.is_err() {
            // Over datagrams, the client may send this call without a probe. Then the refusal by the new
            // server does not prove that the old server has not executed the call.
            let error = counted.unwrap_err();
            assert_eq!((error.kind(), count), (Kind::ServerGone, 0), "{error}");
            counted = client.count(0, 100, Sink::new(|_| count += 1));
        }
        assert_eq!((counted.unwrap(), count), (100, 100));
        assert_eq!(client.sum(Source::new(0..100)).unwrap(), 4950);
    }
}

#[test]
fn deadline_holds_for_calls_with_streams() {
    each(2, |client, object| {
        let limited = client.with_timeout(Duration::from_millis(50));
        let error = limited.endless(Sink::new(drop)).unwrap_err();
        let outcome = (error.kind(), error.executed());
        assert_eq!(outcome, (Kind::TimedOut, Executed::Maybe), "{error}");
        until("the procedure ends", || object.ended.load(Ordering::SeqCst) == 1);
        // In this case, the time limit passes while the procedure waits for an item.
        let (source, sender) = Source::channel(1);
        let error = limited.sum(source).unwrap_err();
        assert_eq!(error.kind(), Kind::TimedOut, "{error}");
        drop(sender);
        assert_eq!(client.sum(Source::new(0..100)).unwrap(), 4950);
    });
}

/// A binding with one A-stack can make calls with streams, too.
#[test]
fn streams_add_their_own_a_stacks() {
    let _alone = alone();
    let _directory = own_directory();
    let server = Server::new().export("streams", StreamsServer::new(Object::default()));
    let _running = server.unwrap().spawn().unwrap();
    let options = BindOptions::default().astacks(1);
    let client = StreamsClient::bind_with("local:streams", &options).unwrap();
    assert_eq!(client.sum(Source::new(0..10)).unwrap(), 45);
}

#[test]
fn few_a_stacks_are_an_error() {
    let _alone = alone();
    let _directory = own_directory();
    for (count, is_enough) in [(3, false), (4, true)] {
        let options = ExportOptions::default().astacks_max(count);
        let streams = StreamsServer::new(Object::default());
        let server = Server::new().export_with("streams", streams, options);
        let _running = server.unwrap().spawn().unwrap();
        let client = StreamsClient::bind("local:streams").unwrap();
        let summed = client.with_timeout(Duration::from_secs(20)).sum(Source::new(0..10));
        match summed {
            Ok(sum) => assert!(is_enough && sum == 45),
            Err(error) => {
                assert!(!is_enough, "{error}");
                let outcome = (error.kind(), error.executed());
                assert_eq!(outcome, (Kind::Exhausted, Executed::No), "{error}");
            }
        }
    }
}

#[test]
fn forked_child_cannot_use_streams_of_its_parent() {
    let _alone = alone();
    let directory = own_directory();
    let (_process, address) = server("local", "", directory.path());
    let client = StreamsClient::bind(&address).unwrap();
    assert_eq!(client.sum(Source::new(0..100)).unwrap(), 4950);
    let (sink, numbers) = Sink::channel(1);
    std::thread::scope(|scope| {
        let call = scope.spawn(|| client.endless(sink));
        let mut numbers = numbers;
        assert_eq!(numbers.next(), Some(0));
        let run = || {
            let error = client.sum(Source::new(0..100)).unwrap_err();
            assert_eq!((error.kind(), error.executed()), (Kind::Forked, Executed::No), "{error}");
            let own = StreamsClient::bind(&address).unwrap();
            assert_eq!(own.sum(Source::new(0..100)).unwrap(), 4950);
        };
        // SAFETY: the child runs only `run`, and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let worked = catch_unwind(AssertUnwindSafe(run)).is_ok();
            // SAFETY: `_exit` ends the child at once, and runs no exit handlers or destructors.
            unsafe { libc::_exit(if worked { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: the child is ours, and the kernel writes one status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child used its parent's streams, or could not use its own");
        assert!(numbers.by_ref().take(30_000).eq(1..30_001));
        drop(numbers);
        assert!(call.join().unwrap().unwrap() > 30_000);
    });
}

/// A server does not answer a message of streams before it has records to send. A drain does not wait for
/// these messages, because they are not running calls.
#[test]
fn server_that_stops_does_not_wait_for_readers() {
    let _alone = alone();
    let _directory = own_directory();
    for path in PATHS {
        println!("{path}");
        let server = Server::new().export("streams", StreamsServer::new(Object::default()));
        let running = server.unwrap().listen("127.0.0.1:0").unwrap().spawn().unwrap();
        let endpoint = running.addresses()[0].to_string();
        let port = endpoint.rsplit(':').next().unwrap();
        let address = match path {
            "local" => "local:streams".to_owned(),
            path => format!("{path}:streams@127.0.0.1:{port}"),
        };
        let client = StreamsClient::bind(&address).unwrap();
        let (sink, mut numbers) = Sink::channel(1);
        std::thread::scope(|scope| {
            let call = scope.spawn(|| client.count(0, 100, sink));
            assert_eq!(numbers.next(), Some(0));
            // The procedure ends, but the call does not end, because its items were not read. The
            // drain must not wait for the call.
            assert!(running.drain(Duration::from_secs(10)));
            drop(numbers);
            let _ = call.join().unwrap();
        });
    }
}

/// The client may be dropped before it has sent the message that ends its streams. The server must
/// not keep the binding, even if the server still holds an earlier message.
#[test]
fn binding_ends_with_its_client() {
    let _alone = alone();
    let _directory = own_directory();
    for wait in [Wait::Block, Wait::Adaptive, Wait::Spin] {
        let server = Server::new().wait(wait);
        let server = server.export("streams", StreamsServer::new(Object::default())).unwrap();
        let _running = server.spawn().unwrap();
        for count in [1, 100, 3000].repeat(5) {
            let options = BindOptions::default().wait(wait);
            let client = StreamsClient::bind_with("streams", &options).unwrap();
            assert_eq!(client.sum(Source::new(0..count)).unwrap(), (0..count).sum::<u64>());
            drop(client);
            let bindings = || peregrine::describe("streams").unwrap().bindings;
            until("the binding has ended", || bindings() == 0);
        }
    }
}
