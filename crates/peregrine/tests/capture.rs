//! Tests captures: what a program sees of each kind of call of a server, and that it never delays a call.
#![cfg(feature = "async")]

mod support;

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use peregrine::{
    CallError, Callback, Capture, CaptureOptions, Captured, CapturedArgument, Disclosure, Dynamic,
    Executed, ExportOptions, Kind, Layer, LayerCall, LayerEnd, LayerOutcome, LayerRefusal, Lent,
    Out, Running, Server, Sink, Source, interface, limits,
};
use support::futures::{block_on, join_all};
use support::{alone, own_directory, until};

/// How long a test waits for a record that must come.
const LONG: Duration = Duration::from_secs(30);

#[interface]
trait Listener {
    fn told(&self, number: u32) -> peregrine::Result<u32>;
}

#[interface]
trait Work {
    fn add(&self, a: u32, b: u32) -> peregrine::Result<u32>;
    fn greet(&self, name: &str, titles: &[String]) -> peregrine::Result<String>;
    fn fails(&self) -> peregrine::Result<()>;
    fn panics(&self) -> peregrine::Result<()>;
    fn copy(&self, from: &[u8], lent: Lent<'_, u16>, into: Out<'_, u8>) -> peregrine::Result<()>;
    #[oneway]
    fn note(&self, number: u32) -> peregrine::Result<()>;
    fn send(&self, times: u32, items: Sink<'_, u32>) -> peregrine::Result<()>;
    fn sum(&self, items: Source<'_, u32>) -> peregrine::Result<u32>;
    fn back(&self, listener: Callback<'_, dyn Listener>) -> peregrine::Result<u32>;
    /// Returns when the gate is open.
    fn waits(&self) -> peregrine::Result<()>;
}

/// A gate, which is closed at first.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

#[derive(Default)]
struct Object {
    gate: Arc<Gate>,
}

impl Work for Object {
    fn add(&self, a: u32, b: u32) -> peregrine::Result<u32> {
        Ok(a + b)
    }
    fn greet(&self, name: &str, titles: &[String]) -> peregrine::Result<String> {
        Ok(format!("{} {name}", titles.join(" ")))
    }
    fn fails(&self) -> peregrine::Result<()> {
        Err(CallError::new(Kind::NotFound, Executed::Maybe, "the procedure's own"))
    }
    fn panics(&self) -> peregrine::Result<()> {
        panic!("the test makes this panic");
    }
    fn copy(&self, from: &[u8], _: Lent<'_, u16>, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        let _ = into.put(from);
        Ok(())
    }
    fn note(&self, _: u32) -> peregrine::Result<()> {
        Ok(())
    }
    fn send(&self, times: u32, mut items: Sink<'_, u32>) -> peregrine::Result<()> {
        (0..times).try_for_each(|number| items.send(number))
    }
    fn sum(&self, items: Source<'_, u32>) -> peregrine::Result<u32> {
        items.sum()
    }
    fn back(&self, listener: Callback<'_, dyn Listener>) -> peregrine::Result<u32> {
        listener.told(1)
    }
    fn waits(&self) -> peregrine::Result<()> {
        let open = self.gate.open.lock().unwrap();
        drop(self.gate.opened.wait_while(open, |open| !*open).unwrap());
        Ok(())
    }
}

impl Listener for Object {
    fn told(&self, number: u32) -> peregrine::Result<u32> {
        Ok(number)
    }
}

/// An object with an async procedure that is deferred.
struct AsyncObject;

#[interface]
trait Sums {
    fn add(&self, a: u32, b: u32) -> peregrine::Result<u32>;
    #[oneway]
    fn note(&self, number: u32) -> peregrine::Result<()>;
}

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

impl SumsAsync for AsyncObject {
    async fn add(&self, a: u32, b: u32) -> peregrine::Result<u32> {
        if a.is_multiple_of(2) {
            yields().await;
        }
        Ok(a + b)
    }
    async fn note(&self, number: u32) -> peregrine::Result<()> {
        if number.is_multiple_of(2) {
            yields().await;
        }
        Ok(())
    }
}

/// Refuses the calls of one procedure.
struct Refuses(&'static str);

impl Layer for Refuses {
    type State = ();

    fn begin(&self, call: &mut LayerCall<'_>) -> Result<(), LayerRefusal> {
        match call.procedure() == self.0 {
            true => Err(LayerRefusal::denied("the layer's reason")),
            false => Ok(()),
        }
    }

    fn end(&self, _: (), _: &LayerEnd<'_>) {}
}

fn serve(path: &str, options: ExportOptions) -> (Running, String) {
    let server = Server::new().export_with("work", WorkServer::new(Object::default()), options);
    started(server.unwrap(), path, "work")
}

fn started(server: Server, path: &str, name: &str) -> (Running, String) {
    let running = match path {
        "local" => server.spawn().unwrap(),
        _ => server.listen(&format!("{path}:127.0.0.1:0")).unwrap().spawn().unwrap(),
    };
    let address = match running.addresses().first() {
        None => format!("local:{name}"),
        Some(endpoint) => format!("{endpoint}/{name}"),
    };
    (running, address)
}

/// Returns the next call, which must come.
fn next(capture: &mut Capture) -> Captured {
    capture.next_within(LONG).unwrap().expect("a call has ended")
}

/// Returns the values of the arguments of a call. Other arguments are described as text.
fn arguments(call: &Captured) -> Vec<(String, Dynamic)> {
    let text = |text: String| Dynamic::from(&*text);
    let shown = |one| match one {
        CapturedArgument::Value(value) => value,
        CapturedArgument::Out { bytes } => text(format!("out {bytes}")),
        CapturedArgument::Lent { bytes } => text(format!("lent {bytes}")),
        other => text(format!("{other:?}")),
    };
    call.arguments().unwrap().into_iter().map(|(name, one)| (name, shown(one))).collect()
}

fn is_returned(call: &Captured) -> bool {
    call.outcome() == LayerOutcome::Returned
}

#[test]
fn each_kind_of_call_is_seen_with_its_arguments() {
    let _alone = alone();
    let _directory = own_directory();
    for path in ["local", "tcp", "udp"] {
        println!("{path}");
        let (running, address) = serve(path, ExportOptions::default());
        let work = WorkClient::bind(&address).unwrap();
        work.add(1, 1).unwrap();
        let mut capture = Capture::open("work").unwrap();
        let mut seen = |procedure: &str, expected: &[(&str, Dynamic)]| {
            let call = next(&mut capture);
            assert_eq!((call.procedure(), call.path()), (procedure, path));
            let expected: Vec<_> =
                expected.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
            assert_eq!(arguments(&call), expected);
            assert_eq!(call.from().is_some(), path != "local");
            // A client does not tell its process over UDP.
            let process = if path == "udp" { 0 } else { std::process::id() };
            assert_eq!(call.process(), process);
            assert!(call.begun() <= std::time::SystemTime::now());
            call
        };
        work.add(2, 3).unwrap();
        let call = seen("add", &[("a", Dynamic::U32(2)), ("b", Dynamic::U32(3))]);
        assert!(is_returned(&call) && call.number() == 0 && call.result_bytes() == 4);
        assert!(call.argument_bytes() >= 8);
        work.greet("Ada", &["Dr".to_owned(), "Lady".to_owned()]).unwrap();
        let titles = Dynamic::List(vec![Dynamic::from("Dr"), Dynamic::from("Lady")]);
        let call = seen("greet", &[("name", Dynamic::from("Ada")), ("titles", titles)]);
        assert!(is_returned(&call));
        work.fails().unwrap_err();
        assert_eq!(seen("fails", &[]).outcome(), LayerOutcome::ReturnedError);
        work.panics().unwrap_err();
        let call = seen("panics", &[]);
        let LayerOutcome::Failed { kind, executed, text } = call.outcome() else { panic!() };
        assert_eq!((kind, executed), (Kind::Panicked, Executed::Maybe), "{text}");
        let mut into = Vec::with_capacity(64);
        work.copy(b"bytes", Lent::from(&[7u16; 100][..]), Out::from(&mut into)).unwrap();
        assert_eq!(into, b"bytes", "the capture must not change the message");
        seen(
            "copy",
            &[
                ("from", Dynamic::plain(b"bytes")),
                ("lent", Dynamic::from("lent 200")),
                ("into", Dynamic::from("out 64")),
            ],
        );
        work.note(9).unwrap();
        work.flush().unwrap();
        seen("note", &[("number", Dynamic::U32(9))]);
        let mut items = Vec::new();
        work.send(3, Sink::new(|item| items.push(item))).unwrap();
        assert_eq!(items, [0, 1, 2]);
        seen("send", &[("times", Dynamic::U32(3)), ("items", Dynamic::from("Sink"))]);
        assert_eq!(work.sum(Source::new(1..=3)).unwrap(), 6);
        seen("sum", &[("items", Dynamic::from("Source"))]);
        let listener = Object::default();
        assert_eq!(work.back(Callback::new(&listener)).unwrap(), 1);
        seen("back", &[("listener", Dynamic::from("Callback"))]);
        work.binding().ping().unwrap();
        assert_eq!(capture.left_out(), 0);
        running.stop();
        let ended = capture.next().unwrap().unwrap_err();
        assert_eq!(ended.kind(), Kind::Withdrawn, "{ended}");
        assert!(capture.next().is_none());
    }
}

#[test]
fn each_of_many_calls_is_seen_once() {
    const CALLS: u32 = 300;
    let _alone = alone();
    let _directory = own_directory();
    for path in ["local", "tcp", "udp"] {
        for is_async in [true, false] {
            println!("{path} {is_async}");
            let server = match is_async {
                true => Server::new().export("sums", SumsAsyncServer::new(AsyncObject)).unwrap(),
                false => Server::new().export("sums", WorkServer::new(Object::default())).unwrap(),
            };
            let (running, address) = started(server, path, "sums");
            let mut capture = Capture::open("sums").unwrap();
            let mut expected = Vec::new();
            if is_async {
                let sums = block_on(SumsAsyncClient::bind(&address)).unwrap();
                let calls = (0..CALLS).map(|a| SumsAsync::add(&sums, a, 1));
                join_all(calls).into_iter().for_each(|sum| assert!(sum.is_ok()));
                (0..CALLS).for_each(|number| block_on(SumsAsync::note(&sums, number)).unwrap());
                block_on(sums.flush()).unwrap();
            } else {
                let work = WorkClient::bind(&address).unwrap();
                let awaited = WorkAsyncClient::from(work.clone());
                let calls = (0..CALLS).map(|a| WorkAsync::add(&awaited, a, 1));
                join_all(calls).into_iter().for_each(|sum| assert!(sum.is_ok()));
                (0..CALLS).for_each(|number| work.note(number).unwrap());
                work.flush().unwrap();
            }
            expected.extend((0..CALLS).map(|number| ("add".to_owned(), number)));
            expected.extend((0..CALLS).map(|number| ("note".to_owned(), number)));
            let mut seen: Vec<_> = (0..2 * CALLS)
                .map(|number| {
                    let call = next(&mut capture);
                    assert_eq!(call.number(), u64::from(number));
                    assert!(is_returned(&call));
                    let Dynamic::U32(first) = arguments(&call)[0].1 else { panic!() };
                    (call.procedure().to_owned(), first)
                })
                .collect();
            seen.sort();
            assert_eq!(seen, expected);
            running.stop();
        }
    }
}

#[test]
fn refused_call_is_seen() {
    let _alone = alone();
    let _directory = own_directory();
    let (running, address) = serve("local", ExportOptions::default().layer(Refuses("add")));
    let work = WorkClient::bind(&address).unwrap();
    let options = CaptureOptions::default().failed_only();
    let mut capture = Capture::open_with("work", &options).unwrap();
    work.fails().unwrap_err();
    work.add(1, 2).unwrap_err();
    let call = next(&mut capture);
    let denied = LayerOutcome::Failed {
        kind: Kind::Denied,
        executed: Executed::No,
        text: "the layer's reason",
    };
    assert_eq!((call.procedure(), call.outcome()), ("add", denied));
    assert_eq!(arguments(&call)[1], ("b".to_owned(), Dynamic::U32(2)));
    running.stop();
}

#[interface(onc(program = 0x2000_0078, version = 1), courier(program = 0x2000_0078, version = 1))]
trait Shop {
    #[onc(7)]
    #[courier(7)]
    fn buy(&self, name: &str, count: u32) -> peregrine::Result<u32>;
    /// Calls the same object once more.
    #[onc(9)]
    #[courier(9)]
    fn twice(&self, count: u32) -> peregrine::Result<u32>;
    #[onc(10)]
    #[courier(10)]
    #[callers("uid:4294967294")]
    fn close(&self) -> peregrine::Result<()>;
}

struct Seller(String);

impl Shop for Seller {
    fn buy(&self, _: &str, count: u32) -> peregrine::Result<u32> {
        Ok(count)
    }
    fn twice(&self, count: u32) -> peregrine::Result<u32> {
        ShopClient::bind(&self.0)?.buy("within", 2 * count)
    }
    fn close(&self) -> peregrine::Result<()> {
        Ok(())
    }
}

#[test]
fn calls_of_other_systems_are_seen_with_their_arguments() {
    let _alone = alone();
    let _directory = own_directory();
    for scheme in ["onc+tcp", "onc+udp", "courier+tcp", "courier+udp", "courier+exchange"] {
        println!("{scheme}");
        let server = Server::new().export("shop", ShopServer::new(Seller("shop".to_owned())));
        let at = format!("{scheme}:127.0.0.1:0");
        let running = server.unwrap().listen(&at).unwrap().spawn().unwrap();
        let endpoint = running.addresses()[0].to_string();
        let port = endpoint.rsplit_once(':').unwrap().1.to_owned();
        let shop = ShopClient::bind(&format!("{scheme}:127.0.0.1:{port}")).unwrap();
        let mut capture = Capture::open("shop").unwrap();
        assert_eq!(shop.buy("tea", 3).unwrap(), 3);
        let call = next(&mut capture);
        let expected = [("name", Dynamic::from("tea")), ("count", Dynamic::U32(3))];
        let expected = expected.map(|(name, value)| (name.to_owned(), value));
        assert_eq!((call.procedure(), &arguments(&call)[..]), ("buy", &expected[..]));
        assert!(is_returned(&call) && call.from().is_some(), "{scheme}");
        shop.close().unwrap_err();
        let call = next(&mut capture);
        assert_eq!(call.procedure(), "close", "{scheme}");
        let LayerOutcome::Failed { kind, executed, .. } = call.outcome() else { panic!() };
        assert_eq!((kind, executed), (Kind::Denied, Executed::No), "{scheme}");
        running.stop();
    }
}

#[test]
fn calls_within_a_procedure_are_seen_before_its_end() {
    let _alone = alone();
    let _directory = own_directory();
    let server = Server::new().export("shop", ShopServer::new(Seller("shop".to_owned()))).unwrap();
    let running = server.spawn().unwrap();
    let shop = ShopClient::bind("shop").unwrap();
    let mut capture = Capture::open("shop").unwrap();
    assert_eq!(shop.twice(4).unwrap(), 8);
    let seen = [next(&mut capture), next(&mut capture)];
    assert_eq!([seen[0].procedure(), seen[1].procedure()], ["buy", "twice"]);
    assert_eq!(arguments(&seen[0])[1].1, Dynamic::U32(8));
    assert!(seen[0].begun() >= seen[1].begun() && seen.iter().all(is_returned));
    running.stop();
}

#[test]
fn large_arguments_are_cut() {
    let _alone = alone();
    let _directory = own_directory();
    let (running, address) = serve("local", ExportOptions::default());
    let work = WorkClient::bind(&address).unwrap();
    let options = CaptureOptions::default().procedure("copy").argument_bytes(256);
    let mut capture = Capture::open_with("work", &options).unwrap();
    let mut into = Vec::with_capacity(4);
    work.add(1, 2).unwrap();
    work.copy(&[1; 100], Lent::from(&[][..]), Out::from(&mut into)).unwrap();
    work.copy(&[1; 5000], Lent::from(&[][..]), Out::from(&mut into)).unwrap();
    assert_eq!(arguments(&next(&mut capture))[0].1, Dynamic::plain(&[1u8; 100]));
    let cut = next(&mut capture).arguments().unwrap();
    assert_eq!(cut[0].1, CapturedArgument::Cut { bytes: Some(5000) });
    assert_eq!(cut[2].1, CapturedArgument::Out { bytes: 4 });
    let mut all =
        Capture::open_with("work", &CaptureOptions::default().argument_bytes(64)).unwrap();
    work.greet("Ada", &vec!["x".repeat(50); 20]).unwrap();
    let cut = next(&mut all).arguments().unwrap();
    assert_eq!(cut[1].1, CapturedArgument::Cut { bytes: None });
    running.stop();
}

#[test]
fn capture_that_does_not_read_loses_calls_and_delays_none() {
    let _alone = alone();
    let _directory = own_directory();
    let (running, address) = serve("local", ExportOptions::default());
    let work = WorkClient::bind(&address).unwrap();
    let mut capture = Capture::open("work").unwrap();
    let mut reads = Capture::open("work").unwrap();
    // The socket holds less than 1 MiB of records, and the queue at most 4096 records.
    let calls = limits::CAPTURE_RECORDS as u64 + 8000;
    for number in 0..calls {
        work.add(number as u32, 0).unwrap();
        let seen = next(&mut reads);
        assert_eq!((seen.number(), reads.left_out()), (number, 0));
    }
    let (mut seen, mut last) = (0, None);
    while last != Some(calls) {
        // By now, the server has sent records from its queue, so the queue has room. A call after the loss
        // tells how many calls were left out.
        if seen == 2048 {
            work.add(0, 0).unwrap();
        }
        let call = next(&mut capture);
        assert!(last.is_none_or(|last| call.number() > last));
        last = Some(call.number());
        seen += 1;
        if call.number() == calls - 1 {
            panic!("the last call was not left out");
        }
    }
    assert_eq!(seen + capture.left_out(), calls + 1);
    assert!(capture.left_out() > 0);
    running.stop();
}

#[test]
fn server_stops_while_a_capture_does_not_read() {
    let _alone = alone();
    let _directory = own_directory();
    let (running, address) = serve("local", ExportOptions::default());
    let work = WorkClient::bind(&address).unwrap();
    let capture = Capture::open("work").unwrap();
    (0..5000).for_each(|number| assert_eq!(work.add(number, 0).unwrap(), number));
    running.stop();
    drop(capture);
}

/// Returns the number of threads of this process that send records.
fn senders() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    tasks
        .filter_map(|task| name(task).ok())
        .filter(|name| name.starts_with("peregrine-captu"))
        .count()
}

#[test]
fn tap_is_off_after_its_captures_end() {
    let _alone = alone();
    let _directory = own_directory();
    let (running, address) = serve("local", ExportOptions::default());
    let work = WorkClient::bind(&address).unwrap();
    assert_eq!(senders(), 0);
    for _ in 0..3 {
        let mut captures: Vec<_> =
            (0..limits::CAPTURES_MAX).map(|_| Capture::open("work").unwrap()).collect();
        let error = Capture::open("work").unwrap_err();
        assert_eq!(error.kind(), Kind::Exhausted, "{error}");
        work.add(1, 2).unwrap();
        captures.iter_mut().for_each(|capture| assert!(is_returned(&next(capture))));
        assert_eq!(senders(), limits::CAPTURES_MAX as usize);
        drop(captures);
        until("the threads have ended", || senders() == 0);
    }
    running.stop();
}

#[test]
fn running_call_is_not_seen_by_a_later_capture() {
    let _alone = alone();
    let _directory = own_directory();
    let gate = Arc::new(Gate::default());
    let object = Object { gate: Arc::clone(&gate) };
    let server = Server::new().export("work", WorkServer::new(object));
    let (running, address) = started(server.unwrap(), "local", "work");
    let work = WorkClient::bind(&address).unwrap();
    let waits = work.clone();
    let calling = std::thread::spawn(move || waits.waits());
    until("the call runs", || running.stat().exports.iter().any(|one| one.counts.in_flight > 0));
    let mut capture = Capture::open("work").unwrap();
    *gate.open.lock().unwrap() = true;
    gate.opened.notify_all();
    calling.join().unwrap().unwrap();
    work.add(1, 2).unwrap();
    assert_eq!(next(&mut capture).procedure(), "add");
    running.stop();
}

#[test]
fn capture_ends_with_its_export() {
    let _alone = alone();
    let _directory = own_directory();
    let server = Server::new().export("work", WorkServer::new(Object::default())).unwrap();
    let running = server.export("other", WorkServer::new(Object::default())).unwrap();
    let running = running.spawn().unwrap();
    let mut capture = Capture::open("work").unwrap();
    let mut other = Capture::open("other").unwrap();
    let work = WorkClient::bind("local:work").unwrap();
    work.add(1, 2).unwrap();
    assert!(running.withdraw("work"));
    assert_eq!(next(&mut capture).procedure(), "add");
    assert_eq!(capture.next_within(LONG).unwrap_err().kind(), Kind::Withdrawn);
    WorkClient::bind("local:other").unwrap().add(3, 4).unwrap();
    assert_eq!(arguments(&next(&mut other))[0].1, Dynamic::U32(3));
    assert!(other.next_within(Duration::ZERO).unwrap().is_none());
    running.stop();
}

#[test]
fn capture_is_refused_with_the_reason() {
    let _alone = alone();
    let _directory = own_directory();
    let object = WorkServer::new(Object::default());
    let server = Server::new().disclosure(Disclosure::Nothing).export("work", object).unwrap();
    let running = server.spawn().unwrap();
    let kind = |name: &str, options: CaptureOptions| {
        Capture::open_with(name, &options).unwrap_err().kind()
    };
    let all = CaptureOptions::default;
    assert_eq!(kind("work", all()), Kind::Denied);
    assert_eq!(kind("work", all().procedure("subtract")), Kind::NoSuchProcedure);
    assert_eq!(kind("nothing", all()), Kind::NotFound);
    assert_eq!(kind("work@localhost", all()), Kind::BadName);
    running.stop();
}
