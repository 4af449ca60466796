//! Tests the defaults of a program that sets no option, on every path: how many calls can be in flight, and
//! how large messages may be. The texts of errors are tested, too: a test does what an error advises, and
//! then succeeds.

mod support;

use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use peregrine::{
    Argument, BindOptions, CallError, Dynamic, Executed, ExportOptions, GenericClient, Insecure,
    Kind, Phase, Running, Server, Value, interface, limits,
};
use support::link::{ENDS, Link, at_near_end};
use support::{Process, role};

/// The timeout of calls, so that a failing test does not hang.
const LIMIT: Duration = Duration::from_secs(30);

const MIB: usize = 1 << 20;

#[interface]
trait Office {
    /// Returns when `callers` calls of this procedure run at the same time.
    fn meet(&self, callers: u32) -> peregrine::Result<u32>;
    /// Returns when `release` has been called.
    fn poll(&self) -> peregrine::Result<()>;
    fn release(&self) -> peregrine::Result<()>;
    fn polls(&self) -> peregrine::Result<u32>;
    fn count(&self, data: &[u8]) -> peregrine::Result<u64>;
    fn make(&self, bytes: u64) -> peregrine::Result<Vec<u8>>;
    /// Returns when the server stops.
    fn serve(&self) -> peregrine::Result<u32>;
    fn depth(&self, node: &Node) -> peregrine::Result<u32>;
    fn length(&self, nodes: &[u32]) -> peregrine::Result<u32>;
    /// Calls itself `more` times through the server.
    fn down(&self, more: u32) -> peregrine::Result<u32>;
}

/// A type that contains itself, but is not encoded as a linked list, because the next node is not its last
/// field. So its values are nested.
#[derive(Value, Debug)]
struct Node {
    next: Option<Box<Self>>,
    number: u32,
}

#[derive(Default)]
struct Object {
    own: Mutex<Option<OfficeClient>>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    met: u32,
    polls: u32,
    released: bool,
}

impl Object {
    fn wait(&self, change: impl FnOnce(&mut State), is_over: impl Fn(&State) -> bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        self.changed.notify_all();
        let is_cancelled = || peregrine::caller().is_some_and(|caller| caller.is_cancelled());
        while !is_over(&state) && !is_cancelled() {
            state = self.changed.wait_timeout(state, Duration::from_millis(50)).unwrap().0;
        }
    }
}

impl Office for Object {
    fn meet(&self, callers: u32) -> peregrine::Result<u32> {
        self.wait(|state| state.met += 1, |state| state.met >= callers);
        Ok(callers)
    }
    fn poll(&self) -> peregrine::Result<()> {
        self.wait(|state| state.polls += 1, |state| state.released);
        Ok(())
    }
    fn release(&self) -> peregrine::Result<()> {
        self.wait(|state| state.released = true, |_| true);
        Ok(())
    }
    fn polls(&self) -> peregrine::Result<u32> {
        Ok(self.state.lock().unwrap().polls)
    }
    fn count(&self, data: &[u8]) -> peregrine::Result<u64> {
        Ok(data.iter().map(|byte| u64::from(*byte)).sum())
    }
    fn make(&self, bytes: u64) -> peregrine::Result<Vec<u8>> {
        Ok(vec![1; bytes as usize])
    }
    fn serve(&self) -> peregrine::Result<u32> {
        let caller = peregrine::caller().expect("a caller");
        self.wait(|state| state.polls += 1, |_| caller.is_stopping());
        Ok(7)
    }
    fn depth(&self, node: &Node) -> peregrine::Result<u32> {
        let next = |node: &Node| node.next.as_ref().map_or(0, |next| next.number);
        Ok(node.number + next(node))
    }
    fn length(&self, nodes: &[u32]) -> peregrine::Result<u32> {
        Ok(nodes.len() as u32)
    }
    fn down(&self, more: u32) -> peregrine::Result<u32> {
        if more == 0 {
            return Ok(0);
        }
        let own = self.own.lock().unwrap().get_or_insert_with(office).clone();
        Ok(own.down(more - 1)? + 1)
    }
}

fn office() -> OfficeClient {
    OfficeClient::bind("office").unwrap()
}

/// Runs in child processes with a role; in the test itself this does nothing.
#[test]
fn child() {
    let Some(role) = role() else { return };
    let office = OfficeServer::new(Object::default());
    let options = match &*role {
        "exports-publicly" => ExportOptions::default().public(),
        _ => ExportOptions::default(),
    };
    let server = Server::new().export_with("office", office, options).unwrap();
    match role.split(' ').collect::<Vec<_>>()[..] {
        ["drains"] => {
            let running = server.drain_on_signals(LIMIT).spawn().unwrap();
            println!("\nready");
            running.wait();
            println!("\nended");
        }
        ["exports" | "exports-publicly"] => {
            let running = server.spawn().unwrap();
            println!("\nready");
            running.wait();
        }
        // A server that listens on raw Ethernet.
        ["serves", at] => {
            let running = server
                .listen_beyond_this_machine(at, Insecure::ITrustThisNetwork)
                .unwrap()
                .spawn()
                .unwrap();
            println!("\nat {}", running.addresses()[0].place());
            running.wait();
        }
        // A process that has no permission for raw Ethernet, neither as a server nor as a client.
        ["unprivileged", at, to] => {
            drop(server);
            support::become_user(61_234, 61_234, &[]);
            let listens = |at: &str| {
                let office = OfficeServer::new(Object::default());
                let server = Server::new().export("other", office)?;
                server
                    .listen_beyond_this_machine(at, Insecure::ITrustThisNetwork)?
                    .spawn()
                    .map(drop)
            };
            println!("\nfailed {}", listens(&format!("eth:{at}")).unwrap_err());
            listens(&format!("udp:{at}")).unwrap();
            let bind = |path: &str| OfficeClient::bind(&format!("{path}:{to}/office"));
            println!("\nfailed {}", bind("eth").err().unwrap());
            // Follow the advice of the error.
            bind("udp").unwrap().count(&[1]).unwrap();
            println!("\nserved");
        }
        ref other => panic!("unknown role {other:?}"),
    }
}

/// Starts a server in the test's own process. Returns the server, and its address on each path.
fn serve(server: Server, options: ExportOptions) -> (Running, Vec<String>) {
    serve_object(server, options, Object::default())
}

fn serve_object(
    server: Server,
    options: ExportOptions,
    object: impl Office + Send + Sync + 'static,
) -> (Running, Vec<String>) {
    let server = server.export_with("office", OfficeServer::new(object), options).unwrap();
    let server = server.listen("tcp:127.0.0.1:0").unwrap().listen("udp:127.0.0.1:0").unwrap();
    let running = server.spawn().unwrap();
    let named = running.addresses().iter().map(|address| format!("{address}/office"));
    let addresses = ["local:office".to_owned()].into_iter().chain(named).collect();
    (running, addresses)
}

fn on_every_path(test: impl Fn(&str)) {
    let _alone = support::alone();
    let _directory = support::own_directory();
    for path in 0..3 {
        let (_running, addresses) = serve(Server::new(), ExportOptions::default());
        println!("{}", addresses[path]);
        test(&addresses[path]);
    }
}

#[test]
fn two_hundred_calls_of_one_client_run_at_the_same_time() {
    on_every_path(|address| {
        let office = OfficeClient::bind(address).unwrap().with_timeout(LIMIT);
        std::thread::scope(|scope| {
            let calls: Vec<_> = (0..200).map(|_| scope.spawn(|| office.meet(200))).collect();
            let ended = calls.into_iter().map(|call| call.join().unwrap());
            let failed: Vec<_> = ended.filter_map(Result::err).collect();
            assert!(failed.is_empty(), "{} of 200 calls: {}", failed.len(), failed[0]);
        });
    });
}

#[test]
fn hundred_long_polls_leave_threads_for_other_calls() {
    on_every_path(|address| {
        let office = OfficeClient::bind(address).unwrap().with_timeout(LIMIT);
        std::thread::scope(|scope| {
            let polls: Vec<_> = (0..100).map(|_| scope.spawn(|| office.poll())).collect();
            support::until("all polls run", || office.polls().is_ok_and(|polls| polls == 100));
            office.release().unwrap();
            polls.into_iter().for_each(|poll| poll.join().unwrap().unwrap());
        });
    });
}

#[test]
fn astacks_option_bounds_calls_in_flight() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    for path in 0..3 {
        let (_running, addresses) = serve(Server::new(), ExportOptions::default());
        let address = &addresses[path];
        let options = BindOptions::default().astacks(2);
        let office = OfficeClient::bind_with(address, &options).unwrap();
        let limited = office.with_timeout(Duration::from_millis(200));
        std::thread::scope(|scope| {
            let polls: Vec<_> = (0..2).map(|_| scope.spawn(|| office.poll())).collect();
            // While an A-stack is free, a call of `polls` succeeds at once.
            let mut refused = None;
            support::until("both A-stacks are used", || {
                refused = limited.polls().err();
                refused.is_some()
            });
            let error = refused.unwrap();
            assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::No));
            let text = error.to_string();
            assert!(text.contains("2 calls are in flight"), "{text}");
            assert!(text.contains("`BindOptions::astacks`"), "{text}");
            // Follow the advice: use more A-stacks.
            OfficeClient::bind(address).unwrap().release().unwrap();
            polls.into_iter().for_each(|poll| poll.join().unwrap().unwrap());
        });
    }
}

#[test]
fn overload_error_names_running_threads_and_waiting_calls() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    for path in 0..3 {
        let object = Arc::new(Object::default());
        let server = Server::new().threads(2).queue(3);
        let (running, addresses) =
            serve_object(server, ExportOptions::default(), Arc::clone(&object));
        let office = OfficeClient::bind(&addresses[path]).unwrap().with_timeout(LIMIT);
        let errors = Mutex::new(Vec::new());
        let poll = || {
            let error = office.poll().err();
            errors.lock().unwrap().extend(error);
        };
        std::thread::scope(|scope| {
            (0..16).for_each(|_| drop(scope.spawn(poll)));
            support::until("calls are refused", || !errors.lock().unwrap().is_empty());
            // These calls were refused while two threads ran procedures.
            let refused: Vec<CallError> = errors.lock().unwrap().drain(..).collect();
            object.release().unwrap();
            for error in refused {
                assert_eq!((error.kind(), error.executed()), (Kind::Overloaded, Executed::No));
                let text = error.to_string();
                assert!(text.contains("2 threads run procedures, "), "{text}");
                assert!(text.contains(" calls wait: `Server::threads` is 2"), "{text}");
            }
        });
        drop(running);
        // Follow the advice: use more threads.
        let object = Arc::new(Object::default());
        let (_running, addresses) =
            serve_object(Server::new().threads(16), ExportOptions::default(), Arc::clone(&object));
        let office = OfficeClient::bind(&addresses[path]).unwrap().with_timeout(LIMIT);
        std::thread::scope(|scope| {
            let polls: Vec<_> = (0..16).map(|_| scope.spawn(|| office.poll())).collect();
            support::until("all calls run", || object.polls().unwrap() == 16);
            object.release().unwrap();
            polls.into_iter().for_each(|poll| poll.join().unwrap().unwrap());
        });
    }
}

#[test]
fn messages_of_sixteen_mebibytes_need_no_option() {
    on_every_path(|address| {
        let office = OfficeClient::bind(address).unwrap();
        // 64 bytes are left for the head of the message. The head contains the number of bytes of the
        // argument.
        for bytes in [MIB, limits::MESSAGE_BYTES - 64] {
            assert_eq!(office.count(&vec![1; bytes]).unwrap(), bytes as u64);
            assert_eq!(office.make(bytes as u64).unwrap().len(), bytes);
        }
        let beyond = limits::MESSAGE_BYTES + 1;
        let error = office.count(&vec![1; beyond]).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::TooLarge, Executed::No));
        let text = error.to_string();
        for part in ["`BindOptions::message_bytes`", "`ExportOptions::message_bytes_max`"] {
            assert!(text.contains(part), "{text}");
        }
        // The head takes 16 bytes.
        let sizes = [(beyond + 16).to_string(), limits::MESSAGE_BYTES.to_string()];
        assert!(sizes.iter().all(|size| text.contains(size)), "{text}");
        let error = office.make(beyond as u64).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::TooLarge, Executed::Maybe));
        assert_eq!(office.count(&[1]).unwrap(), 1);
    });
    let office = OfficeClient::in_process(Object::default());
    let bytes = limits::MESSAGE_BYTES - 64;
    assert_eq!(office.count(&vec![1; bytes]).unwrap(), bytes as u64);
    assert_eq!(office.make(bytes as u64).unwrap().len(), bytes);
    let error = office.count(&vec![1; bytes + 128]).unwrap_err();
    assert!(error.to_string().contains("`BindOptions::message_bytes`"), "{error}");
}

#[test]
fn either_side_can_lower_message_size_and_both_can_raise_it() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let by_client = BindOptions::default().message_bytes(64 << 10);
    let by_server = ExportOptions::default().message_bytes_max(64 << 10);
    for path in 0..3 {
        for (server, client) in [
            (ExportOptions::default(), &by_client),
            (by_server.clone(), &BindOptions::default()),
            (by_server.clone(), &by_client),
        ] {
            let (_running, addresses) = serve(Server::new(), server);
            let office = OfficeClient::bind_with(&addresses[path], client).unwrap();
            assert_eq!(office.count(&vec![1; 60 << 10]).unwrap(), 60 << 10);
            let error = office.count(&vec![1; 65 << 10]).unwrap_err();
            assert_eq!((error.kind(), error.executed()), (Kind::TooLarge, Executed::No));
            let text = error.to_string();
            assert!(text.contains("65536") && text.contains("ExportOptions::message_"), "{text}");
        }
        // Follow the advice of the error.
        let (_running, addresses) =
            serve(Server::new(), ExportOptions::default().message_bytes_max(40 * MIB));
        let larger = BindOptions::default().message_bytes(33 * MIB);
        let office = OfficeClient::bind_with(&addresses[path], &larger).unwrap();
        assert_eq!(office.count(&vec![1; 32 * MIB]).unwrap(), 32 << 20);
        assert_eq!(office.make(32 << 20).unwrap().len(), 32 * MIB);
        let too_large = BindOptions::default().message_bytes(41 * MIB);
        let error = OfficeClient::bind_with(&addresses[path], &too_large).err().unwrap();
        assert_eq!(error.kind(), Kind::TooLarge);
        let text = error.to_string();
        assert!(text.contains(&(41 * MIB).to_string()), "{text}");
        assert!(text.contains(&(40 * MIB).to_string()), "{text}");
    }
}

#[test]
fn drain_on_signals_gives_procedures_time_to_stop() {
    let _alone = support::alone();
    let directory = support::own_directory();
    let mut server = Process::start("child", "drains", directory.path());
    let office = office().with_timeout(LIMIT);
    std::thread::scope(|scope| {
        let serves = scope.spawn(|| office.serve());
        support::until("the procedure runs", || office.polls().is_ok_and(|polls| polls == 1));
        server.signal(libc::SIGTERM);
        // The procedure returns, and its caller receives the result.
        assert_eq!(serves.join().unwrap().unwrap(), 7);
    });
    server.until("ended");
}

#[test]
fn procedures_learn_on_every_path_that_the_server_stops() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    for path in 0..3 {
        let (running, addresses) = serve(Server::new(), ExportOptions::default());
        let office = OfficeClient::bind(&addresses[path]).unwrap().with_timeout(LIMIT);
        std::thread::scope(|scope| {
            let serves = scope.spawn(|| office.serve());
            support::until("the procedure runs", || office.polls().is_ok_and(|polls| polls == 1));
            assert!(running.drain(LIMIT), "{}", addresses[path]);
            assert_eq!(serves.join().unwrap().unwrap(), 7);
        });
    }
}

#[test]
fn public_export_opens_directories_that_a_private_server_made() {
    let directory = tempfile::tempdir().unwrap();
    let below = directory.path().join("app/run");
    let mode = |of: &Path| std::fs::metadata(of).unwrap().permissions().mode() & 0o777;
    let modes = || (mode(&directory.path().join("app")), mode(&below));
    let private = Process::start("child", "exports", &below);
    assert_eq!(modes(), (0o700, 0o700));
    drop(private);
    let _public = Process::start("child", "exports-publicly", &below);
    assert_eq!(modes(), (0o711, 0o755));
}

#[test]
fn error_for_unknown_name_lists_searched_hosts_files() {
    let _alone = support::alone();
    let directory = support::own_directory();
    let hosts = directory.path().join("hosts");
    std::fs::write(&hosts, "# nothing\n").unwrap();
    let options =
        BindOptions::default().directory(peregrine::directory::Hosts::of([hosts.clone()]));
    let error = OfficeClient::bind_with("office", &options).err().unwrap();
    assert_eq!((error.kind(), error.phase()), (Kind::NotFound, Phase::Resolve));
    let text = error.to_string();
    assert!(text.contains(&format!("not in hosts file {}", hosts.display())), "{text}");
    assert!(text.contains(&directory.path().display().to_string()), "{text}");
    for error in [OfficeClient::bind("office").err(), peregrine::describe("office").err()] {
        let text = error.unwrap().to_string();
        assert!(text.contains("/etc/peregrine/hosts"), "{text}");
    }
    // If the client searches only this machine, the error names no hosts file.
    let text = OfficeClient::bind("local:office").err().unwrap().to_string();
    assert!(!text.contains("hosts file"), "{text}");
    // Follow the advice of the error: add the name to the hosts file.
    let (_running, addresses) = serve(Server::new(), ExportOptions::default());
    let at = addresses[1].strip_suffix("/office").unwrap().strip_prefix("tcp:").unwrap();
    std::fs::write(&hosts, format!("bureau tcp:office@{at}\n")).unwrap();
    OfficeClient::bind_with("bureau", &options).unwrap().count(&[1]).unwrap();
}

fn nested(levels: u32) -> Node {
    let mut node = Node { number: 1, next: None };
    for _ in 1..levels {
        node = Node { number: 1, next: Some(Box::new(node)) };
    }
    node
}

#[test]
fn advice_on_nesting_names_the_limit_and_works() {
    let office = OfficeClient::in_process(Object::default());
    let error = office.depth(&nested(200)).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&format!("at most {} levels", limits::DEPTH_MAX)), "{text}");
    assert!(text.contains("the nodes of a list in a `Vec`") && !text.contains("max_len"), "{text}");
    assert_eq!(office.length(&[1; 200]).unwrap(), 200);
}

#[test]
fn advice_on_large_results_works() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let (_running, addresses) =
        serve(Server::new(), ExportOptions::default().message_bytes_max(40 * MIB));
    for address in &addresses {
        let office = OfficeClient::bind(address).unwrap();
        let text = office.make(32 << 20).unwrap_err().to_string();
        assert!(text.contains(&format!("room for {}", limits::MESSAGE_BYTES)), "{text}");
        assert!(text.contains("return a smaller") && !text.contains("max_len"), "{text}");
        for part in ["BindOptions::message_bytes", "ExportOptions::message_bytes_max"] {
            assert!(text.contains(part), "{text}");
        }
        let options = BindOptions::default().message_bytes(33 * MIB);
        let office = OfficeClient::bind_with(address, &options).unwrap();
        assert_eq!(office.make(32 << 20).unwrap().len(), 32 * MIB);
    }
}

#[test]
fn advice_on_endpoints_shows_their_format() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let listen = |at: &str| {
        let server = Server::new().export("office", OfficeServer::new(Object::default()))?;
        server.listen(at)?.spawn().map(drop)
    };
    for wrong in ["7000", "localhost", "eth:", "local:office"] {
        let error: CallError = listen(wrong).unwrap_err();
        assert_eq!((error.kind(), error.phase()), (Kind::BadName, Phase::Export));
        let text = error.to_string();
        assert!(text.contains("PORT"), "{text}");
        assert!(text.contains("write HOST:PORT, such as 127.0.0.1:7000"), "{text}");
        assert!(!text.contains("resolving") && !text.contains("NAME"), "{text}");
    }
    let error = listen("0.0.0.0:0").unwrap_err();
    assert!(error.advice().contains("Server::listen_beyond_this_machine"), "{error}");
    // Follow the advice, with a port that the system chooses.
    listen("127.0.0.1:0").unwrap();
    listen("tcp:127.0.0.1:0").unwrap();
}

#[test]
fn advice_on_filtered_udp_names_port_and_firewall() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let office = OfficeServer::new(Object::default());
    let server = Server::new().export("office", office).unwrap();
    let running = server.listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
    let at = running.addresses()[0].place().clone();
    // This socket receives datagrams and never answers, like a firewall that drops packets.
    let _silent = UdpSocket::bind((at.host(), at.port())).unwrap();
    let options = BindOptions::default().bind_timeout(Duration::from_millis(300));
    let error = OfficeClient::bind_with(&format!("udp:{at}/office"), &options).err().unwrap();
    assert_eq!(error.kind(), Kind::TimedOut);
    let text = error.to_string();
    assert!(text.contains(&at.port().to_string()) && text.contains("firewalls"), "{text}");
    assert!(!text.contains("busy"), "{text}");
    OfficeClient::bind(&format!("tcp:{at}/office")).unwrap().count(&[1]).unwrap();
}

#[test]
fn advice_on_missing_permission_for_raw_ethernet_names_it() {
    let directory = tempfile::tempdir().unwrap();
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(directory.path(), all).unwrap();
    at_near_end(Link::new(), |link| {
        let serves = format!("serves eth:{}:0", ENDS[1]);
        let mut server = link.launch(1, "child", &serves, directory.path());
        let unprivileged = format!("unprivileged {}:0 {}", ENDS[0], server.until("at "));
        let own = tempfile::tempdir().unwrap();
        let all = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(own.path(), all).unwrap();
        let mut client = link.launch(0, "child", &unprivileged, own.path());
        for _ in 0..2 {
            let text = client.until("failed ");
            assert!(text.contains("CAP_NET_RAW") && text.contains("use udp:"), "{text}");
            assert!(!text.contains("run as the server's user"), "{text}");
        }
        client.until("served");
    });
}

#[test]
fn advice_on_wrong_argument_names_the_description() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let (_running, addresses) = serve(Server::new(), ExportOptions::default());
    let client = GenericClient::bind(&addresses[0]).unwrap();
    let wrong = Dynamic::Text("seven".into());
    for arguments in [&mut [Argument::In(&wrong)][..], &mut []] {
        let error = client.call("meet", arguments).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::BadArguments, Executed::No));
        let text = error.to_string();
        assert!(text.contains("`peregrine describe`") && !text.contains("report it"), "{text}");
    }
    let described = peregrine::describe(&addresses[0]).unwrap().text;
    assert!(described.contains("meet"), "{described}");
}

#[test]
fn error_relayed_by_many_servers_is_reported_once() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let (_running, _) = serve(Server::new(), ExportOptions::default());
    let office = office();
    assert_eq!(office.down(10).unwrap(), 10);
    let text = office.down(100).unwrap_err().to_string();
    assert!(text.contains(&format!("more than {} nested calls", limits::CHAIN_MAX)), "{text}");
    assert!(text.contains(" servers)") && text.len() < 400, "{text}");
    assert_eq!(text.matches("the server's own call failed").count(), 1, "{text}");
}
