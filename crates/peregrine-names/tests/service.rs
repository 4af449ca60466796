//! Tests what a name service answers: servers, names, interfaces, second calls and watches.

mod support;

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use peregrine::directory::{self, Directory, Offer, Tree};
use peregrine::interface::Described;
use peregrine::{BindOptions, CallError, Executed, ExportOptions, Kind, Server, interface};
use peregrine_names::{Lookup, NameService, Names};
use support::{
    Counter, LIMIT, Role, ShopServer, Table, client, failed, role, role_words, serve, service,
    shop, unique, until,
};

/// Does the work of a child process that has a role. In the test run itself, this function does nothing.
#[test]
fn child() {
    let Some(role) = role() else { return };
    match role.split_once(' ').unwrap_or((&role, "")) {
        ("shop", _) => {
            let (_running, address) = shop("tcp:127.0.0.1:0", &Counter::default());
            println!("\nat {address}");
            std::thread::sleep(LIMIT);
        }
        // It has no deadline, and is killed while it waits.
        ("caller", address) => {
            let _ = client(address).call("shop", "wait", "{}");
        }
        _ => panic!("unknown role {role}"),
    }
}

/// Starts a child process that calls the procedure `wait` through the name service at `address`.
fn caller_of(address: &str) -> Role {
    let words = role_words();
    let mut command = std::process::Command::new(&words[0]);
    Role::start(&format!("caller {address}"), command.args(&words[1..]))
}

#[test]
fn client_that_knows_one_address_calls_a_server_over_every_path() {
    let table = Table::default();
    let counter = Counter::default();
    let shops = ["tcp:127.0.0.1:0", "udp:127.0.0.1:0"].map(|endpoint| shop(endpoint, &counter));
    let (_running, addresses) = serve(service(&table));
    for (_, shop) in &shops {
        table.set("shop", &[shop]);
        for address in &addresses {
            let names = client(address);
            let returned = names.call("shop", "add", r#"{"a": 2, "b": "40"}"#).unwrap();
            assert_eq!((&*returned.json, returned.is_error), (r#"{"result":42}"#, false));
            assert_eq!(&returned.address, shop, "over {address}");
            let sold = names.call("shop", "buy", r#"{"what": "tea"}"#).unwrap();
            assert_eq!((&*sold.json, sold.is_error), (r#"{"Sold":"tea"}"#, true));
            let sorted = names.call("shop", "sort", r#"{"values": [3, 1, 2]}"#).unwrap();
            assert_eq!(sorted.json, r#"{"result":null,"out":{"values":[1,2,3]}}"#);
            let filled = names.call("shop", "fill", r#"{"byte": 97, "into": 3}"#).unwrap();
            assert_eq!(filled.json, r#"{"result":null,"out":{"into":"aaa"}}"#);
            names.call("shop", "note", r#"{"number": 7}"#).unwrap();
        }
    }
    assert_eq!(counter.noted.load(Ordering::SeqCst), 42, "one-way calls have ended");
}

#[test]
fn interface_servers_and_names_are_found() {
    let table = Table::default();
    let (_shop, address) = shop("tcp:127.0.0.1:0", &Counter::default());
    table.set("shop", &[&address, "files@192.0.2.1:7000"]);
    (0..2500).for_each(|number| table.set(&format!("many-{number}"), &[]));
    let (_running, [_, tcp, _]) = serve(service(&table));
    let names = client(&tcp);
    let interface = names.describe("shop").unwrap();
    let json = serde_json::from_str(&interface.json).unwrap();
    assert_eq!(Described::from_json(&json).unwrap().name, "Shop");
    let known = names.resolve("shop").unwrap();
    assert_eq!(known.servers.len(), 2);
    assert_eq!(known.servers[0].addresses, [address]);
    assert_eq!(names.resolve("unknown").unwrap().servers, []);
    let page = names.names("many-2", u32::MAX).unwrap();
    assert_eq!((page.names.len(), page.has_more), (1000, true));
    // As a directory, it returns all names.
    let found = Names::at(&tcp, Default::default()).unwrap();
    assert_eq!(found.names().unwrap().len(), 2501);
    assert!(found.is_ordered());
}

#[test]
fn unfit_questions_are_refused_as_not_executed() {
    let table = Table::default();
    let counter = Counter::default();
    let (_shop, address) = shop("tcp:127.0.0.1:0", &counter);
    table.set("shop", &[&address]);
    table.set("own", &[&address.replace("shop", "")]);
    let (_running, [udp, tcp, local]) = serve(service(&table).arguments_bytes(1000));
    let (long, deep) = (format!("{{\"what\": \"{}\"}}", "x".repeat(1000)), "[".repeat(900));
    for address in [udp, tcp, local] {
        let names = client(&address);
        for (name, procedure, arguments, kind, why) in [
            ("unknown", "add", "{}", Kind::NotFound, "no server of `unknown` is in a table"),
            ("", "add", "{}", Kind::BadName, "is not a name"),
            (".server", "list", "{}", Kind::BadName, "is not a name"),
            ("shop@127.0.0.1", "add", "{}", Kind::BadName, "is not a name"),
            ("own", "list", "{}", Kind::Denied, "is a reserved name"),
            ("shop", "steal", "{}", Kind::NoSuchProcedure, "`Shop` has no procedure `steal`"),
            ("shop", "add", r#"{"a": 1}"#, Kind::BadArguments, "arguments.b: it is missing"),
            (
                "shop",
                "add",
                r#"{"a": 1, "b": -1}"#,
                Kind::BadArguments,
                "arguments.b: expected u64",
            ),
            ("shop", "add", "[1, 2]", Kind::BadArguments, "expected a JSON object"),
            ("shop", "add", "\u{0}\u{1b}", Kind::BadArguments, "expected a JSON object"),
            ("shop", "buy", &deep, Kind::BadArguments, "expected a JSON object"),
            ("shop", "buy", &long, Kind::TooLarge, "more than 1000 bytes"),
            ("shop", "list", "{}", Kind::BadArguments, "does not carry"),
        ] {
            let (found, executed, text) = failed(names.call(name, procedure, arguments));
            assert_eq!((found, executed), (kind, Executed::No), "{text}");
            assert!(text.contains(why), "{text}");
        }
        assert_eq!(failed(names.resolve("\u{7}")).0, Kind::BadName);
    }
}

#[test]
fn result_that_is_too_large_is_reported_as_executed() {
    let table = Table::default();
    let counter = Counter::default();
    let (_shop, address) = shop("tcp:127.0.0.1:0", &counter);
    table.set("shop", &[&address]);
    let (_running, [_, tcp, _]) = serve(service(&table).result_bytes(10_000));
    let names = client(&tcp);
    assert_eq!(names.call("shop", "long", r#"{"bytes": 9000}"#).unwrap().json.len(), 9013);
    for bytes in [10_000, 1_000_000] {
        let arguments = format!("{{\"bytes\": {bytes}}}");
        let (kind, executed, text) = failed(names.call("shop", "long", &arguments));
        assert_eq!((kind, executed), (Kind::TooLarge, Executed::Maybe), "{text}");
    }
    assert_eq!(counter.began.load(Ordering::SeqCst), 3, "no call was repeated");
}

#[test]
fn name_services_call_neither_themselves_nor_each_other() {
    let table = Table::default();
    let (_running, [udp, tcp, _]) = serve(service(&table));
    table.set("loop", &[&udp]);
    table.set("tcp-loop", &[&tcp]);
    let names = client(&tcp);
    let inner = r#"{"name": "loop", "procedure": "call", "arguments": "{}"}"#;
    for name in ["loop", "tcp-loop"] {
        let (kind, executed, text) = failed(names.call(name, "call", inner));
        assert_eq!((kind, executed), (Kind::Denied, Executed::No), "{text}");
        assert!(text.contains("is a name service"), "{text}");
    }
}

#[test]
fn name_service_that_is_its_own_directory_answers_with_the_reason() {
    /// A directory that is chosen later.
    #[derive(Debug, Default)]
    struct Later(std::sync::OnceLock<Names>);
    impl Directory for Later {
        fn offers(&self, name: &str) -> peregrine::Result<Vec<peregrine::Address>> {
            self.0.get().expect("it is chosen").offers(name)
        }
        fn describe(&self) -> String {
            "itself".to_owned()
        }
        fn names(&self) -> peregrine::Result<Vec<String>> {
            self.0.get().expect("it is chosen").names()
        }
    }
    let later = Arc::new(Later::default());
    let (_running, [_, tcp, _]) = serve(NameService::new(Arc::clone(&later) as _));
    later.0.set(Names::at(&tcp, Default::default()).unwrap()).unwrap();
    let names = client(&tcp);
    for (_, _, text) in [
        failed(names.resolve("shop")),
        failed(names.names("", 10)),
        failed(names.call("shop", "add", "{}")),
    ] {
        assert!(text.contains("name services have passed this question on"), "{text}");
    }
}

#[test]
fn two_name_services_that_ask_each_other_answer_with_the_reason() {
    /// A directory that is chosen later.
    #[derive(Debug, Default)]
    struct Later(std::sync::OnceLock<Names>);
    impl Directory for Later {
        fn offers(&self, name: &str) -> peregrine::Result<Vec<peregrine::Address>> {
            self.0.get().expect("it is chosen").offers(name)
        }
        fn describe(&self) -> String {
            "the other name service".to_owned()
        }
    }
    let both = [(); 2].map(|()| Arc::new(Later::default()));
    let running = [0, 1].map(|number| serve(NameService::new(Arc::clone(&both[number]) as _)));
    for number in [0, 1] {
        let other = &running[1 - number].1[1];
        both[number].0.set(Names::at(other, Default::default()).unwrap()).unwrap();
    }
    for (_, [udp, tcp, _]) in &running {
        for names in [client(udp), client(tcp)] {
            for (_, executed, text) in
                [failed(names.resolve("shop")), failed(names.call("shop", "add", "{}"))]
            {
                assert_eq!(executed, Executed::No, "{text}");
                assert!(text.contains("name services have passed this question on"), "{text}");
            }
        }
    }
}

#[test]
fn number_of_bindings_is_bounded_and_all_names_can_be_called() {
    let table = Table::default();
    let counter = Counter::default();
    let shops: Vec<_> = (0..6).map(|_| shop("tcp:127.0.0.1:0", &counter)).collect();
    for (number, (_, address)) in shops.iter().enumerate() {
        table.set(&format!("shop-{number}"), &[address]);
    }
    let (_running, [_, tcp, _]) = serve(service(&table).bindings(2));
    let names = client(&tcp);
    for number in (0..6).chain(0..6) {
        let name = format!("shop-{number}");
        assert_eq!(
            names.call(&name, "add", r#"{"a": 1, "b": 1}"#).unwrap().json,
            r#"{"result":2}"#
        );
    }
    let all = || shops.iter().map(|(running, _)| bindings(running)).sum::<u64>();
    until("at most two bindings are left", || all() <= 2);
}

#[test]
fn calls_beyond_the_bound_are_refused_and_not_executed() {
    let table = Table::default();
    let counter = Counter::default();
    let (_shop, address) = shop("tcp:127.0.0.1:0", &counter);
    table.set("shop", &[&address]);
    let (_running, [_, tcp, _]) = serve(service(&table).calls(1));
    let names = client(&tcp);
    std::thread::scope(|scope| {
        let limited = names.with_timeout(Duration::from_secs(5));
        let waits = scope.spawn(move || failed(limited.call("shop", "wait", "{}")));
        until("the first call runs", || counter.began.load(Ordering::SeqCst) == 1);
        let (kind, executed, text) = failed(names.call("shop", "add", r#"{"a": 1, "b": 1}"#));
        assert_eq!((kind, executed), (Kind::Overloaded, Executed::No), "{text}");
        let (kind, executed, text) = waits.join().unwrap();
        assert_eq!((kind, executed), (Kind::TimedOut, Executed::Maybe), "{text}");
    });
    // The deadline of the caller has ended the second call.
    until("the procedure sees the end", || counter.ended.load(Ordering::SeqCst) == 1);
    until("the permit is free", || names.call("shop", "add", r#"{"a": 1, "b": 1}"#).is_ok());
}

#[test]
fn service_without_calls_reaches_no_server() {
    let table = Table::default();
    let (shop, address) = shop("tcp:127.0.0.1:0", &Counter::default());
    table.set("shop", &[&address]);
    let (_running, [_, tcp, _]) = serve(service(&table).calls(0));
    let names = client(&tcp);
    for (kind, executed, text) in
        [failed(names.call("shop", "add", "{}")), failed(names.describe("shop"))]
    {
        assert_eq!((kind, executed), (Kind::Denied, Executed::No), "{text}");
        assert!(text.contains("this name service makes no calls"), "{text}");
    }
    assert_eq!(bindings(&shop), 0);
    assert_eq!(names.resolve("shop").unwrap().servers[0].addresses, [address]);
}

/// Returns the number of bindings that a server has.
fn bindings(running: &peregrine::Running) -> u64 {
    running.stat().exports.iter().map(|export| export.bindings).sum()
}

#[test]
fn one_caller_cannot_take_all_calls_and_watches() {
    let table = Table::default();
    let counter = Counter::default();
    let (_shop, address) = shop("tcp:127.0.0.1:0", &counter);
    table.set("shop", &[&address]);
    let (_running, [_, tcp, local]) = serve(service(&table).calls(2).watches(2));
    let mut greedy = caller_of(&tcp);
    until("the call runs", || counter.began.load(Ordering::SeqCst) == 1);
    // The other callers of this host over TCP are the same caller, as far as permits are concerned.
    for (kind, executed, text) in [
        failed(client(&tcp).call("shop", "add", r#"{"a": 1, "b": 1}"#)),
        failed(client(&tcp).describe("shop")),
    ] {
        assert_eq!((kind, executed), (Kind::Overloaded, Executed::No), "{text}");
    }
    // Other processes, and the same process by another path, still have a permit.
    assert!(client(&local).call("shop", "add", r#"{"a": 1, "b": 1}"#).is_ok());
    greedy.child.kill().unwrap();
    until("the permit is free", || client(&tcp).describe("shop").is_ok());
    let names = [&tcp, &local].map(|address| Names::at(address, Default::default()).unwrap());
    let watch = |names: &Names, seen: &Arc<AtomicU32>| {
        let seen = Arc::clone(seen);
        let count = move |_| {
            seen.fetch_add(1, Ordering::SeqCst);
        };
        names.watch("shop", Box::new(count)).unwrap()
    };
    // A watch begins with a look-up. What the watcher gets second comes by the watch itself.
    let seen = [(); 3].map(|()| Arc::<AtomicU32>::default());
    let works = |at: usize| seen[at].load(Ordering::SeqCst) == 2;
    let _first = watch(&names[0], &seen[0]);
    until("the first watch works", || works(0));
    let second = watch(&names[0], &seen[1]);
    until("the second watch is refused", || {
        second.problem().is_some_and(|why| why.contains("follows no more names now"))
    });
    let _other = watch(&names[1], &seen[2]);
    until("the watch of another caller works", || works(2));
    assert!(!works(1));
}

#[test]
fn time_of_a_call_is_bounded_by_the_limit_of_the_service() {
    let table = Table::default();
    let (_shop, address) = shop("tcp:127.0.0.1:0", &Counter::default());
    table.set("shop", &[&address]);
    let (_running, [_, tcp, _]) = serve(service(&table).time(Duration::from_millis(300)));
    let begun = Instant::now();
    let patient = client(&tcp).with_timeout(LIMIT);
    let (kind, executed, text) = failed(patient.call("shop", "wait", "{}"));
    assert_eq!((kind, executed), (Kind::TimedOut, Executed::Maybe), "{text}");
    assert!(begun.elapsed() < LIMIT, "the service ended the call, and not the caller");
}

#[test]
fn death_of_a_caller_without_a_deadline_ends_its_call() {
    let table = Table::default();
    let counter = Counter::default();
    let (_shop, address) = shop("tcp:127.0.0.1:0", &counter);
    table.set("shop", &[&address]);
    let (_running, addresses) = serve(service(&table).time(10 * LIMIT));
    for (number, address) in (1..).zip(&addresses) {
        let mut caller = caller_of(address);
        until("the call runs", || counter.began.load(Ordering::SeqCst) == number);
        caller.child.kill().unwrap();
        until("the procedure sees the end", || counter.ended.load(Ordering::SeqCst) == number);
    }
}

#[test]
fn call_of_a_dead_caller_reaches_no_server() {
    /// A directory that answers when the caller of the name service has given up.
    #[derive(Clone, Debug, Default)]
    struct Late(Table, Arc<AtomicU32>);
    impl Directory for Late {
        fn offers(&self, name: &str) -> peregrine::Result<Vec<peregrine::Address>> {
            if name == "shop" {
                self.1.fetch_add(1, Ordering::SeqCst);
                let caller = peregrine::caller().expect("inside a call");
                until("the caller has given up", || caller.is_cancelled());
            }
            self.0.offers(name)
        }
        fn describe(&self) -> String {
            "a late table".to_owned()
        }
        fn names(&self) -> peregrine::Result<Vec<String>> {
            self.0.names()
        }
    }
    let late = Late::default();
    let counter = Counter::default();
    let (running, address) = shop("tcp:127.0.0.1:0", &counter);
    late.0.set("shop", &[&address]);
    let service = NameService::new(Arc::new(late.clone())).calls(1);
    let (_running, [_, tcp, _]) = serve(service);
    let mut caller = caller_of(&tcp);
    until("the name service asks the directory", || late.1.load(Ordering::SeqCst) == 1);
    caller.child.kill().unwrap();
    let names = client(&tcp);
    until("the permit is free", || failed(names.describe("other")).0 == Kind::NotFound);
    assert_eq!((bindings(&running), counter.began.load(Ordering::SeqCst)), (0, 0));
}

#[test]
fn directory_that_fails_leaves_no_doubt_about_the_call() {
    /// A directory whose look-up may have run elsewhere.
    #[derive(Debug)]
    struct Broken;
    impl Directory for Broken {
        fn offers(&self, _: &str) -> peregrine::Result<Vec<peregrine::Address>> {
            Err(CallError::new(Kind::TimedOut, Executed::Maybe, "the directory is silent"))
        }
        fn describe(&self) -> String {
            "a broken directory".to_owned()
        }
    }
    let (_running, [_, tcp, _]) = serve(NameService::new(Arc::new(Broken)));
    let names = client(&tcp);
    for (kind, executed, text) in [
        failed(names.call("shop", "add", "{}")),
        failed(names.describe("shop")),
        failed(names.resolve("shop")),
    ] {
        assert_eq!((kind, executed), (Kind::TimedOut, Executed::No), "{text}");
        assert!(text.contains("the directory is silent"), "{text}");
    }
}

#[test]
fn unknown_host_is_unreachable_and_not_denied() {
    let table = Table::default();
    // A part of a name of a host has at most 63 letters, so no resolver is asked for this one.
    let nowhere = format!("tcp:shop@{}.invalid:7000", "x".repeat(64));
    table.set("shop", &["eth:shop@192.0.2.1", &nowhere]);
    let (_running, [_, tcp, _]) = serve(service(&table));
    let (kind, executed, text) = failed(client(&tcp).call("shop", "add", "{}"));
    assert_eq!((kind, executed), (Kind::Unreachable, Executed::No), "{text}");
    assert!(text.contains("cannot be found") && text.contains("is on raw Ethernet"), "{text}");
}

#[test]
fn server_that_dies_in_a_call_may_have_run_it_and_an_absent_one_has_not() {
    let table = Table::default();
    let counter = Counter::default();
    let words = role_words();
    let mut child = Role::start("shop", std::process::Command::new(&words[0]).args(&words[1..]));
    let dies = child.after("at ");
    let (_shop, other) = shop("tcp:127.0.0.1:0", &counter);
    table.set("shop", &[&dies, &other]);
    let (_running, [_, tcp, _]) = serve(service(&table));
    let names = client(&tcp);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| failed(names.call("shop", "wait", "{}")));
        child.after("waits");
        child.child.kill().unwrap();
        let (kind, executed, text) = waits.join().unwrap();
        assert_eq!((kind, executed), (Kind::ServerGone, Executed::Maybe), "{text}");
    });
    assert_eq!(counter.began.load(Ordering::SeqCst), 0, "the call was not repeated elsewhere");
    // The next call was certainly not executed at the dead server, so the other one runs it.
    let returned = names.call("shop", "add", r#"{"a": 1, "b": 1}"#).unwrap();
    assert_eq!(returned.address, other);
    table.set("shop", &[&dies]);
    let (_, executed, text) = failed(names.call("shop", "add", r#"{"a": 1, "b": 1}"#));
    assert_eq!(executed, Executed::No, "{text}");
    assert!(text.contains("no server of `shop` can be called from here"), "{text}");
}

#[test]
fn restarted_server_is_called_at_the_same_address() {
    let table = Table::default();
    let (first, address) = shop("tcp:127.0.0.1:0", &Counter::default());
    table.set("shop", &[&address]);
    let (_running, [_, tcp, _]) = serve(service(&table));
    let names = client(&tcp);
    let add = || names.call("shop", "add", r#"{"a": 1, "b": 1}"#).map(|returned| returned.json);
    assert_eq!(add().unwrap(), r#"{"result":2}"#);
    let endpoint = first.addresses()[0].to_string();
    first.stop();
    let (_second, _) = shop(&endpoint, &Counter::default());
    assert_eq!(add().unwrap(), r#"{"result":2}"#);
}

#[interface]
trait Depot {
    fn weigh(&self, what: &str) -> peregrine::Result<u32>;
    fn buy(&self, count: u32) -> peregrine::Result<u32>;
}

struct Scales;

impl Depot for Scales {
    fn weigh(&self, what: &str) -> peregrine::Result<u32> {
        Ok(what.len() as u32)
    }
    fn buy(&self, count: u32) -> peregrine::Result<u32> {
        Ok(count)
    }
}

#[test]
fn interface_of_a_replaced_server_is_read_again() {
    for scheme in ["udp", "tcp"] {
        let table = Table::default();
        let (first, address) = shop(&format!("{scheme}:127.0.0.1:0"), &Counter::default());
        table.set("shop", &[&address]);
        let (_running, [_, tcp, _]) = serve(service(&table));
        let names = client(&tcp);
        let endpoint = first.addresses()[0].to_string();
        let mut first = Some(first);
        let mut second = None;
        let replace = |first: &mut Option<peregrine::Running>| {
            if let Some(first) = first.take() {
                first.stop();
            }
            let options = ExportOptions::default().networks_only();
            let server = Server::new().export_with("shop", DepotServer::new(Scales), options);
            server.unwrap().listen(&endpoint).unwrap().spawn().unwrap()
        };
        for (procedure, arguments, json) in [
            ("weigh", r#"{"what": "tea"}"#, r#"{"result":3}"#),
            ("buy", r#"{"count": 2}"#, r#"{"result":2}"#),
        ] {
            if let Some(second) = second.take() {
                peregrine::Running::stop(second);
                first = Some(shop(&endpoint, &Counter::default()).0);
            }
            assert!(names.describe("shop").unwrap().json.contains("sort"));
            second = Some(replace(&mut first));
            let returned = names.call("shop", procedure, arguments);
            assert_eq!(returned.unwrap().json, json, "{procedure} over {scheme}");
            assert!(names.describe("shop").unwrap().json.contains("weigh"));
        }
    }
}

#[test]
fn metadata_of_the_caller_reaches_the_server() {
    let table = Table::default();
    let (_shop, address) = shop("tcp:127.0.0.1:0", &Counter::default());
    table.set("shop", &[&address]);
    let (_running, [_, tcp, _]) = serve(service(&table));
    let names = client(&tcp).with_metadata("token", "secret").unwrap();
    let returned = names.call("shop", "who", "{}").unwrap();
    assert_eq!(returned.json, r#"{"result":[4294967295,null,"secret"]}"#);
}

#[test]
fn directory_over_a_name_service_follows_changes_and_remembers() {
    peregrine_names::install();
    let shared = tempfile::tempdir().unwrap();
    let table = Table::default();
    table.set("polled", &["shop@192.0.2.1:7000"]);
    for (directory, name) in [
        (Arc::new(Tree::at(shared.path())) as Arc<dyn Directory>, "shop"),
        (Arc::new(table.clone()), "polled"),
    ] {
        let export = unique("names");
        let service = NameService::new(Arc::clone(&directory));
        let server = service.export(Server::new(), &export, &ExportOptions::default()).unwrap();
        let running = server.listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
        let endpoint = running.addresses()[0].clone();
        let place = endpoint.place().clone();
        let names = directory::open(&format!("peregrine://{place}/{export}")).unwrap();
        let (sender, changes) = channel();
        let watcher = move |offers: directory::Offers| {
            // The test may have ended.
            let _ = sender.send(offers.servers.len());
        };
        let watch = names.watch(name, Box::new(watcher)).unwrap();
        let first = changes.recv_timeout(LIMIT).unwrap();
        let standing = match name {
            "shop" => {
                let offer = Offer::new("a", ["shop@192.0.2.1:7000"]).unwrap();
                Some(directory.register(name, &offer).unwrap())
            }
            _ => {
                table.set(name, &["shop@192.0.2.1:7000", "shop@192.0.2.2:7000"]);
                None
            }
        };
        let is_more = |count: &usize| *count == first + 1;
        until("the change is seen", || {
            changes.recv_timeout(LIMIT).is_ok_and(|count| is_more(&count))
        });
        let offers = names.look_up(name).unwrap();
        assert_eq!((offers.servers.len(), offers.age), (first + 1, None));
        let refused = names.register(name, &offers.servers[0]).unwrap_err();
        assert!(refused.to_string().contains("cannot be registered through"), "{refused}");
        running.stop();
        let offers = names.look_up(name).unwrap();
        assert!(offers.servers.len() == first + 1 && offers.age.is_some(), "{offers:?}");
        assert!(names.look_up("never-asked").is_err());
        until("the watch reports the silence", || watch.problem().is_some());
        // The service comes back at the same place, and the watch goes on.
        let service = NameService::new(Arc::clone(&directory));
        let server = service.export(Server::new(), &export, &ExportOptions::default()).unwrap();
        let _running = server.listen(&endpoint.to_string()).unwrap().spawn().unwrap();
        until("the watch works again", || watch.problem().is_none());
        until("the answer is new", || names.look_up(name).unwrap().age.is_none());
        drop((watch, standing));
    }
}

/// The host of a name service may be cut off, so that nothing is refused and each question waits.
#[test]
fn silent_name_service_is_asked_by_one_look_up_at_a_time() {
    let table = Table::default();
    table.set("shop", &["shop@192.0.2.1:7000"]);
    let (running, [_, tcp, _]) = serve(service(&table));
    let options = BindOptions::default().bind_timeout(Duration::from_millis(300));
    let names = Names::at(&tcp, options).unwrap();
    assert_eq!(names.look_up("shop").unwrap().age, None);
    let place = tcp.rsplit_once('@').unwrap().1.to_owned();
    running.stop();
    let mut hole = None;
    until("the place is free", || {
        hole = TcpListener::bind(&place).ok();
        hole.is_some()
    });
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let hole = hole.unwrap();
    // Accepts connections, and never answers. It ends with the process.
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for connection in hole.incoming() {
            count.fetch_add(1, Ordering::SeqCst);
            open.push(connection);
        }
    });
    let is_old = || names.look_up("shop").unwrap().age.is_some();
    assert!(is_old());
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    std::thread::scope(|scope| {
        // After a pause, one look-up asks again.
        scope.spawn(|| until("a look-up asks", || is_old() && asked.load(Ordering::SeqCst) > 1));
        until("a look-up asks", || asked.load(Ordering::SeqCst) > 1);
        let begun = Instant::now();
        for _ in 0..20 {
            assert!(is_old());
        }
        // On a very slow machine, the pause may be over once more.
        let most = 2 + begun.elapsed().as_secs() as u32;
        let asked = asked.load(Ordering::SeqCst);
        assert!(asked <= most, "{asked} questions, at most {most}");
    });
}

#[test]
fn directory_over_a_name_service_keeps_what_its_watches_learn() {
    let table = Table::default();
    table.set("shop", &["shop@192.0.2.1:7000"]);
    let (running, [_, tcp, _]) = serve(service(&table));
    let names = Names::at(&tcp, Default::default()).unwrap();
    let (sender, changes) = channel();
    let watcher = move |offers: directory::Offers| {
        // The test may have ended.
        let _ = sender.send(offers.servers.len());
    };
    let watch = names.watch("shop", Box::new(watcher)).unwrap();
    table.set("shop", &["shop@192.0.2.1:7000", "shop@192.0.2.2:7000"]);
    until("the change is seen", || changes.recv_timeout(LIMIT).is_ok_and(|count| count == 2));
    running.stop();
    // No look-up has seen the change.
    let offers = names.look_up("shop").unwrap();
    assert!(offers.servers.len() == 2 && offers.age.is_some(), "{offers:?}");
    drop(watch);
}

#[test]
fn local_export_is_called_for_the_same_user() {
    if !rustix::process::getgroups().unwrap().iter().all(|one| *one == rustix::process::getegid()) {
        println!("skipped: this process has supplementary groups");
        return;
    }
    let table = Table::default();
    let name = unique("shop");
    let shop = ShopServer::new(Counter::default());
    let _shop = Server::new().export(&name, shop).unwrap().spawn().unwrap();
    table.set("shop", &[&name]);
    let (_running, [_, tcp, local]) = serve(service(&table));
    let own = rustix::process::geteuid().as_raw();
    let returned = client(&local).call("shop", "who", "{}").unwrap();
    assert_eq!(returned.json, format!(r#"{{"result":[{own},"uid:{own}",null]}}"#));
    // Over a network nothing proves who the caller is.
    let (kind, executed, text) = failed(client(&tcp).call("shop", "who", "{}"));
    assert_eq!((kind, executed), (Kind::Denied, Executed::No), "{text}");
    assert!(text.contains("only be called by the user of the name service"), "{text}");
    assert_eq!(client(&tcp).resolve("shop").unwrap().servers, []);
}
