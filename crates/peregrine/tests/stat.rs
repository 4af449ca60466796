//! Checks that the counters of a server agree exactly with the calls that were made. The tests read the
//! counters in shared pages and over networks, while procedures run, when callers abandon calls, and when
//! clients are killed. They also check which users may read the counters.

mod support;

use std::io::Write as _;
use std::net::TcpStream;
use std::ops::ControlFlow;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use peregrine::counters::Stat;
use peregrine::server_info::{
    ServerInfo as _, ServerInfoClient, ServerWatch as _, ServerWatchClient,
};
use peregrine::sys::Memory;
use peregrine::{
    CallError, Disclosure, Executed, ExportOptions, Insecure, Kind, Out, Running, Server, Sink,
    interface, limits, stat,
};
use support::impairments::Impairments;
use support::link::{ENDS, Link, at_far_end};
use support::relay::Relay;
use support::stream;
use support::wire::{self, Line};
use support::{Process, alone, become_user, role, until};

#[interface]
trait Work {
    fn null(&self) -> peregrine::Result<()>;
    fn size(&self, bytes: &[u8]) -> Result<u64, Refused>;
    fn fill(&self, bytes: u32, #[max_len(1 << 20)] into: Out<'_, u8>) -> peregrine::Result<()>;
    fn panic(&self) -> peregrine::Result<()>;
    /// Runs until the test opens the door.
    fn stay(&self) -> peregrine::Result<()>;
}

/// The error that the procedure `size` returns.
#[derive(Debug, peregrine::Value)]
enum Refused {
    Empty,
    Failed(String),
}

impl From<CallError> for Refused {
    fn from(error: CallError) -> Self {
        Self::Failed(error.to_string())
    }
}

#[derive(Default)]
struct Door {
    entered: AtomicU32,
    open: Mutex<bool>,
    opened: Condvar,
}

impl Door {
    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

struct Object(Arc<Door>);

impl Work for Object {
    fn null(&self) -> peregrine::Result<()> {
        Ok(())
    }
    fn size(&self, bytes: &[u8]) -> Result<u64, Refused> {
        if bytes.is_empty() { Err(Refused::Empty) } else { Ok(bytes.len() as u64) }
    }
    fn fill(&self, bytes: u32, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        into.put(&vec![7; bytes as usize]).expect("enough space");
        Ok(())
    }
    fn panic(&self) -> peregrine::Result<()> {
        panic!("a panic for the test")
    }
    fn stay(&self) -> peregrine::Result<()> {
        self.0.entered.fetch_add(1, Ordering::SeqCst);
        let open = self.0.open.lock().unwrap();
        let limit = Duration::from_secs(20);
        drop(self.0.opened.wait_timeout_while(open, limit, |open| !*open).unwrap());
        Ok(())
    }
}

/// Starts a server on the local path, over TCP and over UDP. `told` says which counters the server discloses.
fn serve(told: Disclosure) -> (Running, Arc<Door>) {
    let door = Arc::<Door>::default();
    let server =
        Server::new().disclosure(told).export("work", WorkServer::new(Object(door.clone())));
    let server = server.unwrap().export("idle", WorkServer::new(Object(door.clone()))).unwrap();
    let options = ExportOptions::default().users([12_345]);
    let server = server.export_with("secret", WorkServer::new(Object(door.clone())), options);
    let server = server.unwrap().listen("tcp:127.0.0.1:0").unwrap();
    (server.listen("udp:127.0.0.1:0").unwrap().spawn().unwrap(), door)
}

/// Returns the addresses of the server's endpoints, without the name of an export.
fn places(running: &Running) -> Vec<String> {
    let place = |one: &peregrine::Endpoint| one.to_string().replacen(':', ":@", 1);
    running.addresses().iter().map(place).collect()
}

/// Waits until `is_so` holds for the counters, and returns them.
#[track_caller]
fn settled(is_so: impl Fn(&Stat) -> bool) -> Stat {
    let mut last = Stat::default();
    until("the counters are final", || {
        last = stat("work").expect("the server discloses its counters");
        is_so(&last)
    });
    last
}

#[test]
fn counts_agree_with_calls_on_each_path() {
    let _alone = alone();
    let _directory = support::own_directory();
    let (running, _) = serve(Disclosure::Totals);
    let mut due = 0;
    let mut failed = 0;
    for address in ["work".to_owned()]
        .into_iter()
        .chain(running.addresses().iter().map(|endpoint| format!("{endpoint}/work")))
    {
        let before = stat("work").unwrap();
        let client = WorkClient::bind(&address).unwrap();
        for _ in 0..1000 {
            client.null().unwrap();
        }
        let told = settled(|stat| stat.server.counts.in_flight == 0);
        due += 1000;
        let work = told.export("work").unwrap();
        assert_eq!(work.counts.calls, due, "{address}");
        assert_eq!((work.counts.refused, work.counts.failed), (0, failed), "{address}");
        assert_eq!(work.counts.bytes_in, before.export("work").unwrap().counts.bytes_in);
        assert_eq!(told.export("idle").unwrap().counts, Default::default());
        assert!(told.server.waits.any(), "{address}: {:?}", told.server.waits);

        // The message of `size` consists of a head, which contains the length, and of the bytes.
        let before = work.counts;
        assert_eq!(client.size(&[1; 5000]).unwrap(), 5000);
        let mut buffer = Vec::with_capacity(9000);
        client.fill(7000, Out::from(&mut buffer)).unwrap();
        assert_eq!(buffer.len(), 7000);
        assert!(matches!(client.size(&[]), Err(Refused::Empty)));
        let error = client.panic().unwrap_err();
        assert_eq!(error.kind(), Kind::Panicked);
        (due, failed) = (due + 4, failed + 2);
        let told = settled(|stat| stat.server.counts.in_flight == 0);
        let since = told.export("work").unwrap().counts.since(&before);
        assert_eq!((since.calls, since.failed), (4, 2), "{address}");
        assert!((5000..5100).contains(&since.bytes_in), "{address}: {since:?}");
        assert!((7000..7200).contains(&since.bytes_out), "{address}: {since:?}");
        let session = told.sessions.last().expect("ours").clone();
        let binding = told.bindings.last().expect("ours").clone();
        assert_eq!((binding.session, &*binding.export), (session.number, "work"), "{address}");
        assert_eq!((binding.counts.calls, session.counts.calls), (1004, 1004), "{address}");
        assert_eq!((session.bindings, binding.counts.failed), (1, 2));
        match address.split_once(':') {
            None => {
                let own = rustix::process::geteuid().as_raw();
                let us = (&*session.path, session.process, session.user);
                assert_eq!(us, ("local", std::process::id(), own));
                assert_eq!(session.from, "");
            }
            Some((path, _)) => {
                assert_eq!((&*session.path, session.process), (path, 0));
                assert!(session.from.starts_with("127.0.0.1:"), "{}", session.from);
                assert_eq!(session.user, u32::MAX);
            }
        }
        let latency = told.export("work").unwrap().latency.percentile(0.5).expect("some");
        assert!(latency < Duration::from_millis(5), "{latency:?}");
        drop(client);
        let told = settled(|stat| stat.bindings.iter().all(|one| one.export != "work"));
        assert_eq!(
            told.export("work").unwrap().counts.calls,
            due,
            "calls of ended bindings should be included"
        );
        assert_eq!(told.export("work").unwrap().bindings, 0);
    }
}

/// Reports whether the server has counted any wait of a thread.
trait Waits {
    fn any(&self) -> bool;
}

impl Waits for peregrine::counters::WaitCounts {
    fn any(&self) -> bool {
        self.spun + self.slept > 0
    }
}

#[test]
fn running_and_abandoned_calls_are_counted() {
    let _alone = alone();
    let _directory = support::own_directory();
    let (running, door) = serve(Disclosure::Totals);
    let addresses = ["work".to_owned()].into_iter();
    let network = running.addresses().iter().map(|endpoint| format!("{endpoint}/work"));
    let clients: Vec<_> =
        addresses.chain(network).map(|address| WorkClient::bind(&address).unwrap()).collect();
    thread::scope(|scope| {
        for client in &clients {
            let client = client.clone();
            scope.spawn(move || client.stay().unwrap());
        }
        until("all run", || door.entered.load(Ordering::SeqCst) == 3);
        let told = stat("work").unwrap();
        assert_eq!((told.server.counts.in_flight, told.server.captured), (3, [0; 3]));
        assert!(told.bindings.iter().all(|binding| binding.counts.in_flight == 1));
        for client in &clients {
            let error = client.with_timeout(Duration::from_millis(800)).stay().unwrap_err();
            assert_eq!(error.kind(), Kind::TimedOut);
        }
        // Over datagrams, the frame of a call counts as captured only after the server has received the
        // cancellation.
        let told = settled(|stat| stat.server.captured == [1; 3]);
        assert_eq!(told.server.counts.in_flight, 6);
        door.open();
    });
    let told = settled(|stat| stat.server.counts.in_flight == 0 && stat.server.captured == [0; 3]);
    assert_eq!(told.server.counts.calls, 6);
}

#[test]
fn waiting_calls_are_counted() {
    let _alone = alone();
    let _directory = support::own_directory();
    let door = Arc::<Door>::default();
    let server = Server::new().threads(1);
    let server = server.export("work", WorkServer::new(Object(door.clone()))).unwrap();
    let server = server.listen("tcp:127.0.0.1:0").unwrap().listen("udp:127.0.0.1:0").unwrap();
    let running = server.spawn().unwrap();
    let network = running.addresses().iter().map(|endpoint| format!("{endpoint}/work"));
    let addresses: Vec<String> = ["work".to_owned()].into_iter().chain(network).collect();
    thread::scope(|scope| {
        for (number, address) in addresses.iter().enumerate() {
            // On each path, one call runs, and two calls wait because the server runs one call at a time.
            for _ in 0..3 {
                let client = WorkClient::bind(address).unwrap();
                scope.spawn(move || client.stay().unwrap());
            }
            let (runs, waits) = (number as u64 + 1, 2 * (number as u64 + 1));
            settled(|stat| (stat.server.queued, stat.server.counts.in_flight) == (waits, runs));
        }
        door.open();
    });
    let told = settled(|stat| stat.server.counts.in_flight == 0 && stat.server.queued == 0);
    assert_eq!((told.server.counts.calls, told.server.counts.refused), (9, 0));
}

#[test]
fn refused_calls_are_counted() {
    let _alone = alone();
    let directory = support::own_directory();
    let door = Arc::<Door>::default();
    let server = Server::new().threads(1).queue(0);
    let server = server.export("work", WorkServer::new(Object(door.clone()))).unwrap();
    let server = server.export("idle", WorkServer::new(Object(door.clone()))).unwrap();
    let running = server.listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
    let local = WorkClient::bind("work").unwrap();
    let tcp = WorkClient::bind(&format!("{}/work", running.addresses()[0])).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| local.stay().unwrap());
        scope.spawn(|| tcp.stay().unwrap());
        until("both run", || door.entered.load(Ordering::SeqCst) == 2);
        for client in [&local, &tcp] {
            let error = client.null().unwrap_err();
            assert_eq!(error.kind(), Kind::Overloaded);
        }
        let told = settled(|stat| stat.server.counts.refused == 2);
        assert_eq!((told.server.counts.calls, told.server.counts.in_flight), (2, 2));
        door.open();
    });
    // The interface has no procedure 77, so the server runs nothing.
    let mut session = wire::Session::new(directory.path(), "work", 1).unwrap();
    let message = session.post(0, 77);
    assert_eq!(session.reply_to(message, 0, wire::LIMIT), Some(2), "not executed");
    let told = settled(|stat| stat.server.counts.refused == 3);
    assert_eq!((told.server.counts.calls, told.server.counts.in_flight), (2, 0));
    // After the withdrawal, the export is no longer listed. Calls over its existing bindings are refused.
    let mut session = wire::Session::new(directory.path(), "idle", 1).unwrap();
    let endpoint = running.addresses()[0].to_string();
    let mut stream = TcpStream::connect(endpoint.strip_prefix("tcp:").unwrap()).unwrap();
    stream.write_all(&stream::bind("idle")).unwrap();
    let bound = stream::receive(&mut stream).expect("a binding");
    assert_eq!(bound.kind, stream::BOUND);
    let binding = u32::from_le_bytes(bound.body[8..12].try_into().unwrap());
    assert!(running.withdraw("idle"));
    assert!(stat("work").unwrap().export("idle").is_none());
    let message = session.post(0, 0);
    assert_eq!(session.reply_to(message, 0, wire::LIMIT), Some(2), "not executed");
    stream.write_all(&stream::call(binding, 1, 0, &[])).unwrap();
    let mut received = core::iter::from_fn(|| stream::receive(&mut stream));
    let reply = received.find(|message| message.kind == stream::REPLY).expect("a reply");
    assert_eq!((reply.words[0], reply.words[2]), (1, 2), "not executed");
    assert_eq!(wire::word(&reply.body, reply.words[4] as usize), Kind::Withdrawn as u32);
    let told = settled(|stat| stat.server.counts.refused == 5);
    assert_eq!((told.server.counts.calls, told.server.counts.in_flight), (2, 0));
    running.stop();
}

#[test]
fn counters_over_networks_follow_the_disclosure() {
    let _alone = alone();
    let _directory = support::own_directory();
    for told in [Disclosure::Totals, Disclosure::All] {
        let (running, _) = serve(told);
        let local = WorkClient::bind("work").unwrap();
        local.null().unwrap();
        for place in places(&running) {
            let server = ServerInfoClient::bind(&place).unwrap();
            let names = server.list().unwrap();
            let names: Vec<_> = names.iter().map(|export| &*export.name).collect();
            assert_eq!(names, ["work", "idle"], "{place}");
            let all = peregrine::exports(&place).unwrap();
            assert_eq!(all[0].interface, "Work");
            assert_eq!(all[0].digest, WorkClient::INTERFACE.digest().0);
            assert_eq!((all[0].process, all[0].bindings), (std::process::id(), 1));
            let listens: Vec<_> = running.addresses().iter().map(ToString::to_string).collect();
            assert_eq!(all[0].listens, listens);
            let stat = stat(&place).unwrap();
            assert_eq!(stat.export("work").unwrap().counts.calls, 1, "{place}");
            assert!(stat.export("secret").is_none(), "{place}");
            assert!(stat.server.sessions >= 2 && stat.server.bindings >= 2, "{place}");
            let shown = stat.sessions.iter().any(|session| session.path == "local");
            assert_eq!(shown, told == Disclosure::All, "{place}");
            assert_eq!(stat.bindings.is_empty(), told == Disclosure::Totals, "{place}");
            let said = peregrine::describe(&place).unwrap();
            assert_eq!(said.interface, "Server");
        }
        assert_eq!(
            running.names(),
            ["work", "idle", "secret"],
            "the server's own export should not be listed"
        );
        assert!(!running.withdraw(".server"));
    }
    let (running, _) = serve(Disclosure::Nothing);
    for place in places(&running) {
        assert_eq!(stat(&place).unwrap_err().kind(), Kind::NotFound, "{place}");
        assert_eq!(peregrine::exports(&place).unwrap_err().kind(), Kind::NotFound, "{place}");
    }
    assert_eq!(stat("work").unwrap_err().kind(), Kind::Denied);
}

#[test]
fn calls_over_a_link_are_counted() {
    let _alone = alone();
    let _directory = support::own_directory();
    let link = match Link::new() {
        Ok(link) => link,
        Err(why) => return println!("skipped: {why}"),
    };
    let over_the_link = || {
        link.enter();
        let server = Server::new().disclosure(Disclosure::All);
        let server = server.export("work", WorkServer::new(Object(Arc::default()))).unwrap();
        let at = format!("eth:{}:0", ENDS[1]);
        let running = at_far_end(|| {
            server
                .listen_beyond_this_machine(&at, Insecure::ITrustThisNetwork)
                .unwrap()
                .spawn()
                .unwrap()
        });
        let address = running.addresses()[0].to_string();
        let client = WorkClient::bind(&format!("{address}/work")).unwrap();
        (0..500).for_each(|_| client.null().unwrap());
        let place = address.replacen(':', ":@", 1);
        let told = stat(&place).unwrap();
        assert_eq!(told.export("work").unwrap().counts.calls, 500);
        let binding = told.bindings.iter().find(|one| one.export == "work").unwrap();
        assert_eq!(binding.counts.calls, 500);
        let session = told.sessions.iter().find(|one| one.number == binding.session).unwrap();
        assert_eq!((&*session.path, session.process), ("ethernet", 0));
        assert_eq!(session.from.split(':').count(), 6, "{}", session.from);
        assert_eq!(peregrine::exports(&place).unwrap()[0].name, "work");
    };
    thread::scope(|scope| {
        let near = scope.spawn(over_the_link);
        near.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

#[test]
fn name_in_the_hosts_file_leads_to_its_server() {
    let _alone = alone();
    let directory = support::own_directory();
    let (running, _) = serve(Disclosure::Totals);
    let hosts = directory.path().join("hosts");
    std::fs::write(
        &hosts,
        format!("far {}\n", running.addresses()[0].to_string().replace("tcp:", "tcp:work@",)),
    )
    .unwrap();
    // SAFETY: no other thread of this process reads the environment now.
    unsafe { std::env::set_var("PEREGRINE_HOSTS", &hosts) };
    assert_eq!(stat("far").unwrap().exports.len(), 3);
    assert_eq!(peregrine::exports("far").unwrap().len(), 2);
    assert_eq!(stat("nowhere").unwrap_err().kind(), Kind::NotFound);
    assert_eq!(peregrine::exports("work").unwrap_err().kind(), Kind::NotFound);
    // SAFETY: no other thread of this process reads the environment now.
    unsafe { std::env::remove_var("PEREGRINE_HOSTS") };
}

#[test]
fn retransmitted_packets_are_counted() {
    const CALLS: u64 = 300;
    let _alone = alone();
    let _directory = support::own_directory();
    let (running, _) = serve(Disclosure::Totals);
    let server = running.addresses()[1].to_string();
    let server = server.strip_prefix("udp:").unwrap().parse().unwrap();
    let impairments = Impairments {
        lost: 150,
        duplicated: 200,
        delayed: 0,
        delayed_us: 0,
        damaged: 0,
        delay_us: 0,
        cut_ms: (0, 0),
    };
    let mut relay = Relay::new("127.0.0.1:0".parse().unwrap(), server, impairments, 7);
    let address = format!("udp:{}/work", relay.address());
    let going = AtomicBool::new(true);
    thread::scope(|scope| {
        scope.spawn(|| {
            while going.load(Ordering::Relaxed) {
                relay.step(&mut |_, _| ());
            }
        });
        let _going = support::KeepGoing::new(&going);
        let client = WorkClient::bind(&address).unwrap();
        (0..CALLS).for_each(|_| client.null().unwrap());
    });
    let told = settled(|stat| stat.server.counts.in_flight == 0);
    assert_eq!(
        told.export("work").unwrap().counts.calls,
        CALLS,
        "no call ran twice, although packets arrived twice"
    );
    let (resent, again) = (told.server.resent, told.server.came_again);
    // The relay lost about a seventh of the results, and about a fifth of the calls arrived twice.
    assert!((10..CALLS).contains(&resent) && (10..CALLS).contains(&again), "{resent}, {again}");
    assert_eq!(stat("idle").unwrap().server.captured, [0; 3]);
}

/// Does the work of a child process that has a role. In the test run itself, this function does nothing.
#[test]
fn child() {
    let Some(role) = role() else { return };
    match &*role {
        "stranger" => {
            become_user(61_001, 61_001, &[]);
            let error = stat("work").unwrap_err();
            println!("\nready\n{:?}: {}", error.kind(), error.detail());
        }
        _ => {
            let client = WorkClient::bind(&role).unwrap();
            client.null().unwrap();
            println!("\nready");
            let _ = client.stay();
        }
    }
}

#[test]
fn killed_clients_are_removed_from_the_counters() {
    let _alone = alone();
    let directory = support::own_directory();
    let (running, door) = serve(Disclosure::Totals);
    let tcp = format!("{}/work", running.addresses()[0]);
    for (number, address) in ["work", &*tcp].into_iter().enumerate() {
        let mut process = Process::start("child", address, directory.path());
        let runs = number as u32 + 1;
        until("the child's call runs", || door.entered.load(Ordering::SeqCst) == runs);
        let told = stat("work").unwrap();
        assert_eq!((told.sessions.len(), told.bindings.len()), (1, 1));
        assert_eq!(told.bindings[0].counts.in_flight, 1);
        if number == 0 {
            assert_eq!(told.sessions[0].process, process.id());
        }
        process.kill();
        let told = settled(|stat| stat.sessions.is_empty() && stat.bindings.is_empty());
        // The procedure still runs, so its call still counts as in flight.
        assert_eq!(told.export("work").unwrap().counts.in_flight, u64::from(runs));
    }
    door.open();
    let told = settled(|stat| stat.server.counts.in_flight == 0);
    assert_eq!(told.export("work").unwrap().counts.calls, 4);
}

#[test]
fn rows_are_reused() {
    const SESSIONS: u64 = 10_000;
    let _alone = alone();
    let directory = support::own_directory();
    let (_running, _) = serve(Disclosure::Totals);
    let standing = WorkClient::bind("work").unwrap();
    for _ in 0..SESSIONS {
        let mut session = wire::Session::new(directory.path(), "work", 1).unwrap();
        assert_eq!(session.ping(0, wire::LIMIT), Some(0));
    }
    standing.null().unwrap();
    let told = settled(|stat| stat.server.sessions == 1);
    assert_eq!((told.sessions.len(), told.bindings.len()), (1, 1));
    assert_eq!(
        told.bindings[0].counts.calls, 1,
        "the counts of earlier bindings should not be included"
    );
    assert_eq!(told.export("work").unwrap().counts.calls, SESSIONS + 1);
}

#[test]
fn only_the_servers_own_user_may_read_the_counters() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can run a process of another user");
        return;
    }
    let _alone = alone();
    let directory = support::own_directory();
    let open = |path: &Path| {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    open(directory.path());
    let options = ExportOptions::default().public();
    let door = Arc::<Door>::default();
    let server = Server::new().export_with("work", WorkServer::new(Object(door)), options);
    let _running = server.unwrap().spawn().unwrap();
    let mut process = Process::start("child", "stranger", directory.path());
    let said = process.line();
    assert!(said.starts_with("Denied: the counters belong to user 0, not to user 61001"), "{said}");
    assert_eq!(stat("work").unwrap().server.process, std::process::id());
}

#[test]
fn counters_cannot_be_written_by_readers() {
    let _alone = alone();
    let directory = support::own_directory();
    let (_running, _) = serve(Disclosure::Totals);
    let line = Line::connect(directory.path(), "work").unwrap();
    let (answer, files) = line.ask(&wire::words(&[wire::MAGIC, wire::VERSION, wire::COUNT]));
    assert_eq!((wire::word(&answer, 0), files.len()), (wire::COUNTERS, 1));
    let bytes = rustix::fs::fstat(&files[0]).unwrap().st_size as usize;
    let error = Memory::received(files[0].as_fd(), bytes).unwrap_err();
    assert_eq!(
        error.kind(),
        std::io::ErrorKind::PermissionDenied,
        "the counters could be mapped for writing"
    );
    assert!(rustix::io::pwrite(&files[0], &[1], 0).is_err(), "the counters could be written");
    assert!(rustix::fs::ftruncate(&files[0], 0).is_err(), "the counters could be truncated");
    let mode = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    assert!(
        rustix::fs::fallocate(&files[0], mode, 0, 4096).is_err(),
        "a hole could be made in the counters"
    );
}

#[test]
fn invalid_counters_of_a_server_are_refused() {
    let _alone = alone();
    let directory = support::own_directory();
    let listener = wire::listen(directory.path(), "false");
    let bytes = {
        let (_running, _) = serve(Disclosure::Totals);
        let line = Line::connect(directory.path(), "work").unwrap();
        let (answer, _) = line.ask(&wire::words(&[wire::MAGIC, wire::VERSION, wire::COUNT]));
        u64::from_ne_bytes(answer[8..16].try_into().unwrap())
    };
    let counters = |bytes: u64| {
        let mut message = wire::words(&[wire::COUNTERS, 0]);
        message.extend(bytes.to_ne_bytes());
        message
    };
    let (_memory, right) = Memory::shared(bytes as usize).unwrap();
    let (_memory, small) = Memory::shared(4096).unwrap();
    let plain = tempfile::tempfile().unwrap();
    plain.set_len(bytes).unwrap();
    let cases: [(Vec<u8>, Vec<_>, &str); 7] = [
        (counters(bytes), vec![right.as_fd()], "version 0"),
        (counters(bytes), vec![small.as_fd()], "differs from the announced size"),
        (counters(bytes), vec![plain.as_fd()], "memfd"),
        (counters(bytes), vec![], "does not fit the client's request"),
        (counters(bytes), vec![right.as_fd(), small.as_fd()], "does not fit the client's request"),
        (counters(4096), vec![small.as_fd()], "4096 bytes instead of"),
        (vec![1, 2, 3], vec![], "ends before its last value"),
    ];
    for (answer, files, why) in cases {
        thread::scope(|scope| {
            let asks = scope.spawn(|| stat("false").unwrap_err());
            let mut line = None;
            until("a request comes", || {
                line = listener.accept().ok();
                line.is_some()
            });
            let line = line.unwrap();
            line.answer();
            line.send_with(&answer, &files).unwrap();
            let error = asks.join().unwrap();
            let said = format!("{error}: {}", error.chain());
            assert_eq!(error.kind(), Kind::ProtocolMismatch, "{said}");
            assert!(said.contains(why), "{said}");
        });
    }
}

/// Watches the counters until `count` readings have come, and returns these readings.
fn watched(address: &str, count: usize) -> Vec<Stat> {
    let mut readings = Vec::new();
    let sink = Sink::until(|stat| {
        readings.push(stat);
        if readings.len() == count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    peregrine::watch(address, Duration::from_millis(10), sink).unwrap();
    readings
}

#[test]
fn server_sends_its_counters_to_clients_that_watch() {
    let _alone = alone();
    let _directory = support::own_directory();
    let (running, _) = serve(Disclosure::Totals);
    let calls = |stat: &Stat| stat.export(".server").map(|export| export.counts.calls);
    for address in ["work".to_owned()].into_iter().chain(places(&running)) {
        let readings = watched(&address, 4);
        let is_in_order = |two: &[Stat]| two[0].server.at_ns < two[1].server.at_ns;
        assert!(readings.len() == 4 && readings.windows(2).all(is_in_order), "{address}");
        // No call is made for a reading, and no thread of the server waits.
        let (first, last) = (&readings[0], &readings[3]);
        assert_eq!(calls(first), calls(last), "{address}");
        let in_flight = last.server.in_flight.unwrap();
        let streams = u64::from(address != "work");
        assert_eq!((in_flight.deferred, in_flight.streams), (streams, streams), "{address}");
    }
    settled(|stat| stat.server.in_flight.unwrap().streams == 0);
    assert_eq!(
        peregrine::watch("@127.0.0.1:1", Duration::ZERO, Sink::new(drop)).unwrap_err().kind(),
        Kind::Unreachable
    );
}

#[test]
fn few_clients_at_a_time_get_a_stream_of_the_counters() {
    let _alone = alone();
    let _directory = support::own_directory();
    let (running, _) = serve(Disclosure::Totals);
    let place = places(&running).remove(0);
    let client = ServerWatchClient::bind(&place.replacen('@', ".watch@", 1)).unwrap();
    thread::scope(|scope| {
        let mut watchers: Vec<_> = (0..limits::WATCHERS)
            .map(|_| {
                let (sink, mut readings) = Sink::channel(1);
                let client = &client;
                let call = scope.spawn(move || client.watch(0, sink));
                assert!(readings.next().is_some());
                (readings, call)
            })
            .collect();
        let refused = client.watch(0, Sink::new(drop)).unwrap_err();
        assert_eq!((refused.kind(), refused.executed()), (Kind::Exhausted, Executed::No));
        // If no further client may have a stream, `watch` makes a call for each reading.
        let readings = watched(&place, 3);
        let calls = |stat: &Stat| stat.export(".server").unwrap().counts.calls;
        assert!(calls(&readings[2]) >= calls(&readings[0]) + 2);
        let (readings, call) = watchers.pop().unwrap();
        drop(readings);
        call.join().unwrap().unwrap();
        watchers.push({
            let (sink, mut readings) = Sink::channel(1);
            let call = scope.spawn(|| client.watch(0, sink));
            assert!(readings.next().is_some());
            (readings, call)
        });
        // A server that stops does not wait for its watchers.
        drop(running);
        for (readings, call) in watchers {
            let _ = readings.count();
            let ended = call.join().unwrap().unwrap_err();
            assert!(matches!(ended.kind(), Kind::Withdrawn | Kind::Stopped), "{ended}");
        }
    });
}
