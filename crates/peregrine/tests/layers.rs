//! Tests layers: what they see of each kind of call at both sides, and how they refuse calls.
#![cfg(feature = "async")]

mod support;

use std::future::pending;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use peregrine::{
    BindOptions, CallError, Callback, Executed, ExportOptions, Kind, Layer, LayerCall, LayerEnd,
    LayerOutcome, LayerRefusal, LayerSide, Out, PathKind, Running, Server, Sink, caller, interface,
};
use support::futures::{block_on, join_all};
use support::heap::{Counting, fewest_allocations};
use support::impairments::Impairments;
use support::relay::Relay;
use support::{KeepGoing, alone, own_directory, until};

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

/// Refuses the calls of one procedure.
struct Refuses(&'static str, fn(&'static str) -> LayerRefusal);

impl Layer for Refuses {
    type State = ();

    fn begin(&self, call: &mut LayerCall<'_>) -> Result<(), LayerRefusal> {
        if call.procedure() == self.0 { Err(self.1("the layer's reason")) } else { Ok(()) }
    }

    fn end(&self, _: (), _: &LayerEnd<'_>) {}
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
fn refused_call_is_not_executed() {
    let _alone = alone();
    let _directory = own_directory();
    everywhere(false, |at, log| {
        let options = BindOptions::default()
            .layer(writes("client", log))
            .layer(Refuses("add", LayerRefusal::exhausted))
            .layer(writes("inner", log));
        let work = client(at, options);
        let awaited = WorkAsyncClient::from(work.clone());
        for blocks in [true, false] {
            let result = match blocks {
                true => work.add(1, 2),
                false => block_on(WorkAsync::add(&awaited, 1, 2)),
            };
            let error = result.unwrap_err();
            assert_eq!((error.kind(), error.executed()), (Kind::Exhausted, Executed::No));
            assert!(error.to_string().contains("the layer's reason"), "{error}");
            let ended = "client ended add Exhausted not executed";
            assert_eq!(log.take(), ["client calls add", ended]);
        }
    });
    let log = Log::default();
    let server = Server::new().layer(writes("server", &log));
    let options = ExportOptions::default().layer(Refuses("add", LayerRefusal::denied));
    let blocking = server.export_with("work", WorkServer::new(Object::default()), options);
    let options = ExportOptions::default().layer(Refuses("add", LayerRefusal::denied));
    let both = blocking.unwrap();
    let both = both.export_with("awork", WorkAsyncServer::new(AsyncObject), options).unwrap();
    let running = both.spawn().unwrap();
    for name in ["local:work", "local:awork"] {
        let error = WorkClient::bind(name).unwrap().add(1, 2).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::Denied, Executed::No), "{error}");
        assert!(error.to_string().contains("the layer's reason"), "{error}");
        assert_eq!(log.take(), ["server serves add", "server ended add Denied not executed"]);
    }
    running.stop();
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
fn call_that_is_given_up_has_timed_out() {
    let _alone = alone();
    let _directory = own_directory();
    let timed_out = "TimedOut may have executed";
    everywhere(true, |at, log| {
        let options = BindOptions::default().layer(writes("client", log));
        let limited = client(at, options.timeout(Duration::from_millis(50)));
        assert_eq!(limited.waits().unwrap_err().kind(), Kind::TimedOut);
        let lines = log.wait(6);
        for name in ["client", "server", "export"] {
            assert_eq!(count(&lines, name, timed_out), 1, "{lines:?}");
        }
        // The future of a call is dropped.
        let options = BindOptions::default().layer(writes("client", log));
        let awaited = WorkAsyncClient::from(client(at, options));
        {
            let mut call = pin!(WorkAsync::waits(&awaited));
            let context = &mut Context::from_waker(Waker::noop());
            until("the procedure has begun", || {
                assert!(call.as_mut().poll(context).is_pending());
                log.0.lock().unwrap().len() == 3
            });
        }
        let lines = log.wait(6);
        for name in ["client", "server", "export"] {
            assert_eq!(count(&lines, name, timed_out), 1, "{lines:?}");
        }
    });
}

#[test]
fn call_that_the_server_refuses_is_seen() {
    let _alone = alone();
    let _directory = own_directory();
    for path in ["local", "tcp", "udp"] {
        println!("{path}");
        let (log, object) = (Log::default(), Arc::new(Object::default()));
        let server = Server::new().layer(writes("server", &log)).threads(1).queue(0);
        let server = server.export("work", WorkServer::new(Arc::clone(&object))).unwrap();
        let server = match path {
            "local" => server,
            _ => server.listen(&format!("{path}:127.0.0.1:0")).unwrap(),
        };
        let running = server.spawn().unwrap();
        let work = client(&address(&running), BindOptions::default());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| work.waits());
            assert_eq!(log.wait(1), ["server serves waits"]);
            let error = work.add(1, 2).unwrap_err();
            assert_eq!((error.kind(), error.executed()), (Kind::Overloaded, Executed::No));
            assert_eq!(
                log.wait(2),
                ["server serves add", "server ended add Overloaded not executed"]
            );
            object.open();
            waits.join().unwrap().unwrap();
        });
        running.stop();
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

#[test]
fn layers_themselves_allocate_nothing_for_a_call() {
    struct Times;
    impl Layer for Times {
        type State = (std::time::Instant, [u64; 4]);
        fn begin(&self, _: &mut LayerCall<'_>) -> Result<Self::State, LayerRefusal> {
            Ok((std::time::Instant::now(), [7; 4]))
        }
        fn end(&self, (_, kept): Self::State, _: &LayerEnd<'_>) {
            assert_eq!(kept, [7; 4]);
        }
    }
    let _alone = alone();
    let _directory = own_directory();
    let server = Server::new().layer(Times).layer(Times);
    let running = server.export("work", WorkServer::new(Object::default())).unwrap();
    let running = running.listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
    for at in ["local:work".to_owned(), address(&running)] {
        let work = client(&at, BindOptions::default().layer(Times).layer(Times));
        let fewest = fewest_allocations(|| assert_eq!(work.add(1, 2).unwrap(), 3));
        assert_eq!(fewest, 0, "{at}");
    }
    running.stop();
}

/// Counts the retransmissions of calls.
struct Retransmissions(Arc<AtomicU32>);

impl Layer for Retransmissions {
    type State = LayerSide;

    fn begin(&self, call: &mut LayerCall<'_>) -> Result<LayerSide, LayerRefusal> {
        Ok(call.side())
    }

    fn end(&self, side: LayerSide, end: &LayerEnd<'_>) {
        assert!(side == LayerSide::Client || end.retransmissions() == 0);
        self.0.fetch_add(end.retransmissions(), Ordering::Relaxed);
    }
}

#[test]
fn retransmissions_of_lost_packets_are_counted() {
    const CLEAN: Impairments = Impairments {
        lost: 0,
        duplicated: 0,
        delayed: 0,
        delayed_us: 0,
        damaged: 0,
        delay_us: 0,
        cut_ms: (0, 0),
    };
    let _alone = alone();
    let _directory = own_directory();
    let count = Arc::new(AtomicU32::new(0));
    let layer = || Retransmissions(Arc::clone(&count));
    let server = Server::new().layer(layer());
    let server = server.export("work", WorkServer::new(Object::default())).unwrap();
    let running = server.listen("udp:127.0.0.1:0").unwrap().spawn().unwrap();
    let endpoint = running.addresses()[0].to_string();
    let place = endpoint.strip_prefix("udp:").unwrap().parse().unwrap();
    let mut relay = Relay::new("127.0.0.1:0".parse().unwrap(), place, CLEAN, 7);
    let at = format!("udp:{}/work", relay.address());
    let (going, loses) = (AtomicBool::new(true), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _going = KeepGoing::new(&going);
        scope.spawn(|| {
            while going.load(Ordering::Relaxed) {
                let lost = if loses.load(Ordering::Relaxed) { 200 } else { 0 };
                relay.impair(Impairments { lost, ..CLEAN });
                relay.step(&mut |_, _| ());
            }
        });
        let work = client(&at, BindOptions::default().layer(layer()));
        let awaited = WorkAsyncClient::from(work.clone());
        let copies = |blocks: bool| {
            let mut into = Vec::with_capacity(8000);
            let out = Out::from(&mut into);
            match blocks {
                true => work.copy(&[7; 8000], out).unwrap(),
                false => block_on(WorkAsync::copy(&awaited, &[7; 8000], out)).unwrap(),
            }
            assert_eq!(into, [7; 8000]);
        };
        [true, false].map(copies);
        assert_eq!(count.load(Ordering::Relaxed), 0);
        loses.store(true, Ordering::Relaxed);
        for blocks in [true, false] {
            count.store(0, Ordering::Relaxed);
            until("a packet of a call was lost", || {
                copies(blocks);
                count.load(Ordering::Relaxed) > 0
            });
        }
    });
    running.stop();
}

/// Writes to a log, and is idle at one side or at both.
struct Idle {
    writes: Writes,
    sides: &'static [LayerSide],
}

impl Layer for Idle {
    type State = String;

    fn begin(&self, call: &mut LayerCall<'_>) -> Result<String, LayerRefusal> {
        self.writes.begin(call)
    }
    fn end(&self, state: String, end: &LayerEnd<'_>) {
        self.writes.end(state, end);
    }
    fn is_idle(&self, side: LayerSide) -> bool {
        self.sides.contains(&side)
    }
}

#[test]
fn idle_layers_see_only_calls_with_metadata() {
    const BOTH: &[LayerSide] = &[LayerSide::Client, LayerSide::Server];
    let _alone = alone();
    let _directory = own_directory();
    let log = Log::default();
    let idle = |name, sides| Idle { writes: writes(name, &log), sides };
    for path in ["local", "tcp", "udp"] {
        println!("{path}");
        let server = Server::new().layer(idle("server", BOTH));
        let server = server.export("work", WorkServer::new(Object::default())).unwrap();
        let asynchronous = WorkAsyncServer::new(AsyncObject);
        let server = server.export("awork", asynchronous).unwrap();
        let listener = ExportOptions::default().layer(idle("export", &[LayerSide::Server]));
        let server =
            server.export_with("back", WorkServer::new(Object::default()), listener).unwrap();
        let running = match path {
            "local" => server.spawn().unwrap(),
            _ => server.listen(&format!("{path}:127.0.0.1:0")).unwrap().spawn().unwrap(),
        };
        for name in ["work", "awork"] {
            let at = match running.addresses().first() {
                None => format!("local:{name}"),
                Some(endpoint) => format!("{endpoint}/{name}"),
            };
            let work = client(&at, BindOptions::default().layer(idle("client", BOTH)));
            let awaited = WorkAsyncClient::from(work.clone());
            assert_eq!(work.add(2, 3).unwrap(), 5);
            assert_eq!(block_on(WorkAsync::add(&awaited, 2, 3)).unwrap(), 5);
            assert_eq!(work.fails().unwrap_err().kind(), Kind::NotFound);
            assert_eq!(work.panics().unwrap_err().kind(), Kind::Panicked);
            assert_eq!(log.take(), [""; 0]);
            let told = work.with_metadata("key", "value").unwrap();
            assert_eq!(told.add(2, 3).unwrap(), 5);
            let seen = ["client calls add", "server serves add"];
            let ended = ["server ended add ok", "client ended add ok"];
            assert_eq!(log.take(), [seen, ended].concat());
            // A call after a call with metadata carries none.
            assert_eq!(work.add(2, 3).unwrap(), 5);
            assert_eq!(log.take(), [""; 0]);
        }
        // A layer of the export is not idle for the calls that a procedure makes.
        let at = address(&running).replace("/work", "/back").replace(":work", ":back");
        let work = client(&at, BindOptions::default());
        let listener = Object::default();
        assert_eq!(work.back(Callback::new(&listener)).unwrap(), 2);
        let told = ["server calls told", "export calls told"];
        let ended = ["export ended told ok", "server ended told ok"];
        assert_eq!(log.take(), [told, ended, told, ended].concat());
        running.stop();
    }
}

#[test]
fn layers_do_not_admit_callers_that_may_not_call() {
    #[interface]
    trait Guarded {
        #[callers("ops/*")]
        fn erase(&self) -> peregrine::Result<()>;
        fn list(&self) -> peregrine::Result<()>;
        fn read(&self) -> peregrine::Result<()>;
    }
    struct Disk;
    impl Guarded for Disk {
        fn erase(&self) -> peregrine::Result<()> {
            Ok(())
        }
        fn list(&self) -> peregrine::Result<()> {
            Ok(())
        }
        fn read(&self) -> peregrine::Result<()> {
            Ok(())
        }
    }
    let _alone = alone();
    let _directory = own_directory();
    let log = Log::default();
    for path in ["local", "tcp", "udp"] {
        for of_server in [true, false] {
            println!("{path}, {of_server}");
            let options = ExportOptions::default().allow("list", ["backup"]);
            let (server, options) = match of_server {
                true => (Server::new().layer(writes("layer", &log)), options),
                false => (Server::new(), options.layer(writes("layer", &log))),
            };
            let server = server.export_with("work", GuardedServer::new(Disk), options).unwrap();
            let running = match path {
                "local" => server.spawn().unwrap(),
                _ => server.listen(&format!("{path}:127.0.0.1:0")).unwrap().spawn().unwrap(),
            };
            let disk = GuardedClient::bind(&address(&running)).unwrap();
            disk.read().unwrap();
            assert_eq!(log.take(), ["layer serves read", "layer ended read ok"]);
            for (name, ended) in [("erase", disk.erase()), ("list", disk.list())] {
                if path == "local" {
                    // The server's own user may call all procedures on this machine.
                    ended.unwrap();
                    continue;
                }
                let error = ended.unwrap_err();
                assert_eq!(
                    (error.kind(), error.executed()),
                    (Kind::Denied, Executed::No),
                    "{name}"
                );
                let lines = log.take();
                assert_eq!(count(&lines, "layer ended", " ok"), 0, "{lines:?}");
            }
            log.take();
            running.stop();
        }
    }
}

#[test]
#[should_panic(expected = "more than 8 layers")]
fn too_many_layers_are_refused() {
    let log = Log::default();
    let _ = (0..9).fold(BindOptions::default(), |options, _| options.layer(writes("one", &log)));
}
