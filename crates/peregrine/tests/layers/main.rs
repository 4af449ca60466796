//! Tests layers: what they see of each kind of call at both sides, and how they refuse calls.
#![cfg(feature = "async")]

#[path = "../support/mod.rs"]
mod support;

mod endings;
mod idle;
mod packets;
mod refusals;

use std::future::pending;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use peregrine::{
    BindOptions, CallError, Callback, Executed, ExportOptions, Kind, Layer, LayerCall, LayerEnd,
    LayerOutcome, LayerRefusal, LayerSide, Out, PathKind, Running, Server, Sink, caller, interface,
};
use support::futures::{block_on, join_all};
use support::heap::Counting;
use support::{alone, own_directory, until};

#[global_allocator]
static COUNTING: Counting = Counting;

#[interface]
trait Listener {
    fn told(&self, number: u32) -> peregrine::Result<u32>;
}

#[interface]
trait Work {
    fn add(&self, a: u32, b: u32) -> peregrine::Result<u32>;
    fn fails(&self) -> peregrine::Result<()>;
    fn panics(&self) -> peregrine::Result<()>;
    /// Returns the metadata of the call.
    fn seen(&self) -> peregrine::Result<Vec<String>>;
    fn copy(&self, from: &[u8], into: Out<'_, u8>) -> peregrine::Result<()>;
    #[oneway]
    fn note(&self, number: u32) -> peregrine::Result<()>;
    fn send(&self, times: u32, items: Sink<'_, u32>) -> peregrine::Result<()>;
    fn back(&self, listener: Callback<'_, dyn Listener>) -> peregrine::Result<u32>;
    /// Returns when the gate is open, or the caller has given up.
    fn waits(&self) -> peregrine::Result<()>;
}

#[derive(Default)]
struct Object {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Object {
    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

fn own_error() -> CallError {
    CallError::new(Kind::NotFound, Executed::Maybe, "the procedure's own")
}

fn pairs() -> Vec<String> {
    let caller = caller().expect("a procedure has a caller");
    caller.metadata().iter().map(|(key, value)| format!("{key}={value}")).collect()
}

impl Work for Object {
    fn add(&self, a: u32, b: u32) -> peregrine::Result<u32> {
        Ok(a + b)
    }
    fn fails(&self) -> peregrine::Result<()> {
        Err(own_error())
    }
    fn panics(&self) -> peregrine::Result<()> {
        panic!("the test makes this panic");
    }
    fn seen(&self) -> peregrine::Result<Vec<String>> {
        Ok(pairs())
    }
    fn copy(&self, from: &[u8], mut into: Out<'_, u8>) -> peregrine::Result<()> {
        into.put(from).expect("the buffer is large enough");
        Ok(())
    }
    fn note(&self, _: u32) -> peregrine::Result<()> {
        Ok(())
    }
    fn send(&self, times: u32, mut items: Sink<'_, u32>) -> peregrine::Result<()> {
        (0..times).try_for_each(|number| items.send(number))
    }
    fn back(&self, listener: Callback<'_, dyn Listener>) -> peregrine::Result<u32> {
        listener.told(1)?;
        listener.told(2)
    }
    fn waits(&self) -> peregrine::Result<()> {
        let caller = caller().expect("a procedure has a caller");
        let mut open = self.open.lock().unwrap();
        while !*open && !caller.is_cancelled() {
            open = self.opened.wait_timeout(open, Duration::from_millis(5)).unwrap().0;
        }
        Ok(())
    }
}

impl Listener for Object {
    fn told(&self, number: u32) -> peregrine::Result<u32> {
        Ok(number)
    }
}

/// An object with async procedures. A procedure that is not done after its first poll is deferred.
struct AsyncObject;

async fn yields() {
    let mut polled = false;
    std::future::poll_fn(|context| {
        context.waker().wake_by_ref();
        match std::mem::replace(&mut polled, true) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
}

impl WorkAsync for AsyncObject {
    async fn add(&self, a: u32, b: u32) -> peregrine::Result<u32> {
        if a.is_multiple_of(2) {
            yields().await;
        }
        Ok(a + b)
    }
    async fn fails(&self) -> peregrine::Result<()> {
        yields().await;
        Err(own_error())
    }
    async fn panics(&self) -> peregrine::Result<()> {
        yields().await;
        panic!("the test makes this panic");
    }
    async fn seen(&self) -> peregrine::Result<Vec<String>> {
        panic!("the test makes this panic in the first poll");
    }
    async fn copy(&self, from: &[u8], mut into: Out<'_, u8>) -> peregrine::Result<()> {
        yields().await;
        into.put(from).expect("the buffer is large enough");
        Ok(())
    }
    async fn note(&self, number: u32) -> peregrine::Result<()> {
        if number.is_multiple_of(2) {
            yields().await;
        }
        Ok(())
    }
    async fn send(&self, times: u32, mut items: Sink<'_, u32>) -> peregrine::Result<()> {
        for number in 0..times {
            items.send_async(number).await?;
        }
        Ok(())
    }
    async fn back(&self, listener: Callback<'_, dyn Listener>) -> peregrine::Result<u32> {
        let listener = listener.async_client()?;
        ListenerAsync::told(&listener, 1).await?;
        ListenerAsync::told(&listener, 2).await
    }
    async fn waits(&self) -> peregrine::Result<()> {
        pending().await
    }
}

/// What layers have seen, one line for each event.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn write(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    /// Returns the lines since the last call of this function.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    /// Waits until `count` lines were written, and returns them.
    fn wait(&self, count: usize) -> Vec<String> {
        until("the layers have seen the calls", || self.0.lock().unwrap().len() >= count);
        self.take()
    }
}

/// Writes what it sees to a log.
struct Writes {
    name: &'static str,
    log: Log,
}

fn described(outcome: LayerOutcome<'_>) -> String {
    match outcome {
        LayerOutcome::Returned => "ok".to_owned(),
        LayerOutcome::ReturnedError => "error".to_owned(),
        LayerOutcome::Failed { kind, executed, text } => {
            assert!(!text.is_empty());
            format!("{kind:?} {executed}")
        }
        _ => unreachable!("there are no other outcomes"),
    }
}

impl Layer for Writes {
    type State = String;

    fn begin(&self, call: &mut LayerCall<'_>) -> Result<String, LayerRefusal> {
        let side = match call.side() {
            LayerSide::Client => "calls",
            LayerSide::Server => "serves",
        };
        assert_eq!(call.caller().is_some(), call.side() == LayerSide::Server);
        self.log.write(format!("{} {side} {}", self.name, call.procedure()));
        Ok(call.procedure().to_owned())
    }

    fn end(&self, state: String, end: &LayerEnd<'_>) {
        assert_eq!(state, end.procedure());
        self.log.write(format!("{} ended {state} {}", self.name, described(end.outcome())));
    }
}

/// Adds metadata to each call.
struct Adds(&'static str, &'static str);

impl Layer for Adds {
    type State = ();

    fn begin(&self, call: &mut LayerCall<'_>) -> Result<(), LayerRefusal> {
        Ok(call.add_metadata(self.0, self.1)?)
    }

    fn end(&self, _: (), _: &LayerEnd<'_>) {}
}

fn writes(name: &'static str, log: &Log) -> Writes {
    Writes { name, log: log.clone() }
}

/// Starts a server whose layers write to a log, and calls `test` with an address of it on each path.
fn everywhere(is_async: bool, test: impl Fn(&str, &Log)) {
    for path in ["local", "tcp", "udp"] {
        println!("{path}");
        let log = Log::default();
        let server = Server::new().layer(writes("server", &log));
        let options = ExportOptions::default().layer(writes("export", &log));
        let server = match is_async {
            true => server.export_with("work", WorkAsyncServer::new(AsyncObject), options),
            false => server.export_with("work", WorkServer::new(Object::default()), options),
        };
        let server = server.unwrap();
        let running = match path {
            "local" => server.spawn().unwrap(),
            _ => server.listen(&format!("{path}:127.0.0.1:0")).unwrap().spawn().unwrap(),
        };
        test(&address(&running), &log);
        running.stop();
    }
}

fn address(running: &Running) -> String {
    match running.addresses().first() {
        None => "local:work".to_owned(),
        Some(endpoint) => format!("{endpoint}/work"),
    }
}

fn client(at: &str, options: BindOptions) -> WorkClient {
    WorkClient::bind_with(at, &options).unwrap()
}

/// Returns what layers see of a call: the client's, the server's and the export's.
fn nested(procedure: &str, outcome: &str) -> Vec<String> {
    let begun = [("client", "calls"), ("server", "serves"), ("export", "serves")];
    let begun = begun.map(|(name, verb)| format!("{name} {verb} {procedure}"));
    let ended = ["export", "server", "client"];
    [begun, ended.map(|name| format!("{name} ended {procedure} {outcome}"))].concat()
}

#[test]
fn layers_nest_and_see_how_calls_end() {
    let _alone = alone();
    let _directory = own_directory();
    for is_async in [false, true] {
        everywhere(is_async, |at, log| {
            let work = client(at, BindOptions::default().layer(writes("client", log)));
            let awaited = WorkAsyncClient::from(work.clone());
            let procedures =
                [("add", "ok"), ("fails", "error"), ("panics", "Panicked may have executed")];
            for (procedure, outcome) in procedures {
                for blocks in [true, false] {
                    let result = match (procedure, blocks) {
                        ("add", true) => work.add(2, 3).map(drop),
                        ("add", false) => block_on(WorkAsync::add(&awaited, 2, 3)).map(drop),
                        ("fails", true) => work.fails(),
                        ("fails", false) => block_on(WorkAsync::fails(&awaited)),
                        (_, true) => work.panics(),
                        (_, false) => block_on(WorkAsync::panics(&awaited)),
                    };
                    assert_eq!(result.is_ok(), procedure == "add");
                    assert_eq!(log.take(), nested(procedure, outcome));
                }
            }
            if is_async {
                assert_eq!(work.seen().unwrap_err().kind(), Kind::Panicked);
                assert_eq!(log.take(), nested("seen", "Panicked may have executed"));
            }
            work.binding().ping().unwrap();
            assert_eq!(log.take(), [""; 0]);
        });
    }
}

#[test]
fn metadata_of_client_layers_arrives() {
    let _alone = alone();
    let _directory = own_directory();
    everywhere(false, |at, _| {
        let options = BindOptions::default().layer(Adds("one", "1")).layer(Adds("two", "2"));
        let work = client(at, options);
        let traced = work.with_metadata("own", "0").unwrap();
        let awaited = WorkAsyncClient::from(traced.clone());
        for _ in 0..3 {
            assert_eq!(work.seen().unwrap(), ["one=1", "two=2"]);
            assert_eq!(traced.seen().unwrap(), ["own=0", "one=1", "two=2"]);
            let seen = block_on(WorkAsync::seen(&awaited)).unwrap();
            assert_eq!(seen, ["own=0", "one=1", "two=2"]);
        }
        let invalid = client(at, BindOptions::default().layer(Adds("Not a key", "")));
        let error = invalid.seen().unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::BadArguments, Executed::No), "{error}");
    });
}

/// Counts the lines that begin with each name and have each ending.
fn count(lines: &[String], begins: &str, ends: &str) -> usize {
    lines.iter().filter(|line| line.starts_with(begins) && line.ends_with(ends)).count()
}

#[test]
fn each_of_many_calls_is_seen_once() {
    const CALLS: usize = 200;
    let _alone = alone();
    let _directory = own_directory();
    for is_async in [false, true] {
        everywhere(is_async, |at, log| {
            for layered in [true, false] {
                let options = match layered {
                    true => BindOptions::default().layer(writes("client", log)),
                    false => BindOptions::default(),
                };
                let work = client(at, options);
                let awaited = WorkAsyncClient::from(work.clone());
                let calls = (0..CALLS as u32).map(|a| WorkAsync::add(&awaited, a, 1));
                let sums: Vec<_> = join_all(calls).into_iter().map(Result::unwrap).collect();
                assert_eq!(sums, (1..=CALLS as u32).collect::<Vec<_>>());
                (0..CALLS as u32).for_each(|number| work.note(number).unwrap());
                work.flush().unwrap();
                let lines = log.take();
                for name in ["client", "server", "export"] {
                    let calls = if name == "client" && !layered { 0 } else { CALLS };
                    for procedure in ["add", "note"] {
                        assert_eq!(count(&lines, name, &format!("s {procedure}")), calls, "{name}");
                        let ended = format!("ended {procedure} ok");
                        assert_eq!(count(&lines, name, &ended), calls, "{name} {procedure}");
                    }
                }
            }
        });
    }
}

#[test]
fn calls_with_streams_and_callbacks_are_seen() {
    let _alone = alone();
    let _directory = own_directory();
    for is_async in [false, true] {
        everywhere(is_async, |at, log| {
            let work = client(at, BindOptions::default().layer(writes("client", log)));
            let mut items = Vec::new();
            work.send(500, Sink::new(|item| items.push(item))).unwrap();
            assert_eq!(items, (0..500).collect::<Vec<_>>());
            assert_eq!(log.take(), nested("send", "ok"));
            let listener = Object::default();
            assert_eq!(work.back(Callback::new(&listener)).unwrap(), 2);
            let told = [
                "server calls told",
                "export calls told",
                "client serves told",
                "client ended told ok",
                "export ended told ok",
                "server ended told ok",
            ];
            let around = nested("back", "ok");
            let expected = [&around[..3], &told.map(str::to_owned), &told.map(str::to_owned)];
            assert_eq!(log.take(), [&expected.concat()[..], &around[3..]].concat());
        });
    }
}

#[test]
fn calls_of_other_systems_are_seen() {
    #[interface(onc(program = 0x2000_0178, version = 1))]
    trait Clock {
        #[onc(7)]
        fn ticks(&self, after: u32) -> peregrine::Result<u32>;
    }
    struct Ticks;
    impl Clock for Ticks {
        fn ticks(&self, after: u32) -> peregrine::Result<u32> {
            Ok(after + 1)
        }
    }
    let _alone = alone();
    let _directory = own_directory();
    let log = Log::default();
    let server = Server::new().layer(writes("server", &log));
    let server = server.export("clock", ClockServer::new(Ticks)).unwrap();
    let running = server.listen("onc+tcp:127.0.0.1:0").unwrap().spawn().unwrap();
    let at = running.addresses()[0].to_string();
    let options = BindOptions::default().layer(writes("client", &log));
    assert_eq!(ClockClient::bind_with(&at, &options).unwrap().ticks(1).unwrap(), 2);
    let seen = ["client calls ticks", "server serves ticks", "server ended ticks ok"];
    assert_eq!(log.take(), [&seen[..], &["client ended ticks ok"]].concat());
    let adding =
        ClockClient::bind_with(&at, &BindOptions::default().layer(Adds("k", "v"))).unwrap();
    let error = adding.ticks(1).unwrap_err();
    assert!(error.to_string().contains("ONC RPC cannot carry metadata"), "{error}");
    running.stop();
}

mod older {
    /// An older age of the interface, with a procedure that has moved since then.
    #[peregrine::interface]
    pub(crate) trait Grown {
        fn first(&self, number: u32) -> peregrine::Result<u32>;
        fn second(&self, number: u32) -> peregrine::Result<u32>;
    }
}

mod newer {
    /// The newer age. Calls of `first` are converted, and `second` has another number.
    #[peregrine::interface]
    pub(crate) trait Grown {
        fn added(&self) -> peregrine::Result<()>;
        fn first(&self, number: u32, #[default(7)] more: u32) -> peregrine::Result<u32>;
        fn second(&self, number: u32) -> peregrine::Result<u32>;
    }

    pub(crate) struct Object;
    impl Grown for Object {
        fn added(&self) -> peregrine::Result<()> {
            Ok(())
        }
        fn first(&self, number: u32, more: u32) -> peregrine::Result<u32> {
            Ok(number + more)
        }
        fn second(&self, number: u32) -> peregrine::Result<u32> {
            Ok(number)
        }
    }
}

#[test]
fn calls_between_ages_are_seen_by_the_names_of_each_side() {
    use older::Grown as _;
    let _alone = alone();
    let _directory = own_directory();
    let log = Log::default();
    let server = Server::new().layer(writes("server", &log));
    let running = server.export("grown", newer::GrownServer::new(newer::Object)).unwrap();
    let running = running.spawn().unwrap();
    let options = BindOptions::default().layer(writes("client", &log));
    let grown = older::GrownClient::bind_with("local:grown", &options).unwrap();
    assert_eq!((grown.first(1).unwrap(), grown.second(2).unwrap()), (8, 2));
    let seen = |name| {
        [
            format!("client calls {name}"),
            format!("server serves {name}"),
            format!("server ended {name} ok"),
            format!("client ended {name} ok"),
        ]
    };
    assert_eq!(log.take(), [seen("first"), seen("second")].concat());
    running.stop();
}

/// The sizes of arguments and result, the path and the name.
type Fact = (usize, usize, PathKind, String);

/// Notes the facts of calls.
struct Facts(Arc<Mutex<Vec<Fact>>>);

impl Layer for Facts {
    type State = (usize, PathKind, String);

    fn begin(&self, call: &mut LayerCall<'_>) -> Result<Self::State, LayerRefusal> {
        assert_eq!((call.interface().name(), call.procedure_number()), ("Work", 4));
        assert!(call.deadline().is_some());
        assert!(call.caller().is_none_or(|caller| caller.export() == "work"));
        Ok((call.argument_bytes(), call.path(), call.name().to_owned()))
    }

    fn end(&self, (arguments, path, name): Self::State, end: &LayerEnd<'_>) {
        assert!(end.took() > Duration::ZERO && end.procedure_number() == 4);
        self.0.lock().unwrap().push((arguments, end.result_bytes(), path, name));
    }
}

#[test]
fn sizes_and_names_are_those_of_the_call() {
    let _alone = alone();
    let _directory = own_directory();
    for (path, kind) in [("local", PathKind::Local), ("tcp", PathKind::Tcp), ("udp", PathKind::Udp)]
    {
        let facts = Arc::new(Mutex::new(Vec::new()));
        let server = Server::new().layer(Facts(Arc::clone(&facts)));
        let server = server.export("work", WorkServer::new(Object::default())).unwrap();
        let server = match path {
            "local" => server,
            _ => server.listen(&format!("{path}:127.0.0.1:0")).unwrap(),
        };
        let running = server.spawn().unwrap();
        let at = address(&running);
        let options = BindOptions::default().layer(Facts(Arc::clone(&facts)));
        let work = client(&at, options.timeout(Duration::from_secs(60)));
        for bytes in [0, 10, 5000] {
            let mut into = Vec::with_capacity(8000);
            work.copy(&vec![7; bytes], Out::from(&mut into)).unwrap();
            assert_eq!(into, vec![7; bytes]);
            let mut facts = facts.lock().unwrap().drain(..).collect::<Vec<_>>().into_iter();
            let (served, called) = (facts.next().unwrap(), facts.next().unwrap());
            assert_eq!(
                (&served.2, &*served.3, &called.2, &*called.3),
                (&kind, "work", &kind, &*at)
            );
            for (arguments, results, ..) in [served, called] {
                assert!((bytes..bytes + 64).contains(&arguments), "{arguments} of {bytes}");
                assert!((bytes..bytes + 64).contains(&results), "{results} of {bytes}");
            }
        }
        running.stop();
    }
}
