//! Tests streams of interpreted clients and servers, with each other and with compiled ones, on every path.

mod support;

use core::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use peregrine::call::Serve;
use peregrine::interface::Described;
use peregrine::{
    Argument, BindOptions, Binding, CallError, Dynamic, Executed, GenericCall, GenericClient,
    GenericOutcome, GenericParameter, GenericServer, Kind, Out, Server, Sink, Source, Value,
    interface,
};
use support::{alone, own_directory};

/// An item with padding, text and an option.
#[derive(Clone, Debug, PartialEq, Value)]
struct Entry {
    kind: u8,
    size: u128,
    name: String,
    tag: Option<u16>,
}

fn entry(number: u32) -> Entry {
    let (kind, size) = (number as u8, u128::from(number) << 70);
    Entry {
        kind,
        size,
        name: "ä".repeat(number as usize % 40),
        tag: (!number.is_multiple_of(3)).then_some(7),
    }
}

/// Why a procedure failed.
#[derive(Clone, Debug, PartialEq, Value)]
enum Trouble {
    Enough(u32),
    Call(String),
}

impl From<CallError> for Trouble {
    fn from(error: CallError) -> Self {
        Self::Call(format!("{:?}: {error}", error.kind()))
    }
}

/// Procedures with streams. One of them also has parameters of other kinds.
#[interface]
trait Feed {
    /// Sends the numbers below `end`. Returns their count.
    fn count(&self, end: u64, numbers: Sink<'_, u64>) -> peregrine::Result<u64>;
    /// Returns the sum of the numbers.
    fn sum(&self, numbers: Source<'_, u64>) -> peregrine::Result<u64>;
    /// Sends each entry back with the name `name`. If the kind of an entry is `stop`, fails with the
    /// number of this entry.
    fn rename(
        &self,
        name: &str,
        entries: Source<'_, Entry>,
        largest: &mut u128,
        renamed: Sink<'_, Entry>,
        names: Out<'_, u8>,
        stop: u8,
    ) -> Result<u32, Trouble>;
    /// Sends numbers until its caller wants no more. Returns how many were sent.
    fn endless(&self, numbers: Sink<'_, u64>) -> peregrine::Result<u64>;
    /// Takes `count` numbers, and returns the last one.
    fn first(&self, count: u32, numbers: Source<'_, u64>) -> peregrine::Result<Option<u64>>;
    /// Sends the number 1, and panics.
    fn panic(&self, numbers: Sink<'_, u64>) -> peregrine::Result<()>;
    /// Sends `count` units.
    fn units(&self, count: u32, units: Sink<'_, ()>) -> peregrine::Result<()>;
}

struct Object;

impl Feed for Object {
    fn count(&self, end: u64, mut numbers: Sink<'_, u64>) -> peregrine::Result<u64> {
        (0..end).try_for_each(|number| numbers.send(number))?;
        Ok(end)
    }
    fn sum(&self, mut numbers: Source<'_, u64>) -> peregrine::Result<u64> {
        let mut sum = 0;
        while let Some(number) = numbers.next()? {
            sum += number;
        }
        Ok(sum)
    }
    fn rename(
        &self,
        name: &str,
        mut entries: Source<'_, Entry>,
        largest: &mut u128,
        mut renamed: Sink<'_, Entry>,
        mut names: Out<'_, u8>,
        stop: u8,
    ) -> Result<u32, Trouble> {
        let mut count = 0;
        while let Some(entry) = entries.next()? {
            if entry.kind == stop {
                return Err(Trouble::Enough(count));
            }
            *largest = entry.size.max(*largest);
            let _ = names.put(entry.name.as_bytes());
            renamed.send(Entry { name: name.to_owned(), ..entry })?;
            count += 1;
        }
        Ok(count)
    }
    fn endless(&self, mut numbers: Sink<'_, u64>) -> peregrine::Result<u64> {
        for number in 0.. {
            if let Err(error) = numbers.send(number) {
                assert_eq!(error.kind(), Kind::Stopped, "{error}");
                return Ok(number);
            }
        }
        unreachable!()
    }
    fn first(&self, count: u32, mut numbers: Source<'_, u64>) -> peregrine::Result<Option<u64>> {
        let mut last = None;
        for _ in 0..count {
            last = numbers.next()?;
        }
        Ok(last)
    }
    fn panic(&self, mut numbers: Sink<'_, u64>) -> peregrine::Result<()> {
        numbers.send(1)?;
        panic!("on purpose");
    }
    fn units(&self, count: u32, mut units: Sink<'_, ()>) -> peregrine::Result<()> {
        (0..count).try_for_each(|_| units.send(()))
    }
}

fn described() -> Described {
    Described::parse(&FeedClient::INTERFACE.canonical_text()).unwrap()
}

/// Forwards a received call, and the streams that are its arguments, to another server.
fn forward(client: &GenericClient, call: &mut GenericCall<'_>) -> GenericOutcome {
    let number = call.number();
    let mut arguments: Vec<Argument<'_>> = call
        .parameters()
        .iter_mut()
        .map(|parameter| match parameter {
            GenericParameter::In(value) => Argument::In(value),
            GenericParameter::Lent(lent) => Argument::Bytes(*lent),
            GenericParameter::Out(out) => Argument::Out(out.by_ref()),
            GenericParameter::InOut(value) => Argument::InOut(value),
            GenericParameter::Sink(sink) => {
                Argument::Sink(core::mem::replace(sink, Sink::new(drop)))
            }
            GenericParameter::Source(source) => {
                Argument::Source(core::mem::replace(source, Source::new([])))
            }
            GenericParameter::Callback(callback) => Argument::Callback(forwarder(callback)),
        })
        .collect();
    let mut result = Dynamic::Unit;
    let ok = client.call_into(number, &mut arguments, &mut result)?;
    Ok(if ok { Ok(result) } else { Err(result) })
}

/// Returns a server that forwards its calls to `callback`.
fn forwarder(callback: &GenericClient) -> Arc<dyn Serve> {
    let callback = callback.clone();
    let described = callback.described().clone();
    Arc::new(GenericServer::new(described, move |call| forward(&callback, call)))
}

/// Runs a call of a generic server. Each procedure does the same as that of [`Object`].
fn interpreted(call: &mut GenericCall<'_>) -> GenericOutcome {
    let name = call.procedure().name.clone();
    let ok = match (&*name, call.parameters()) {
        ("count", [GenericParameter::In(Dynamic::U64(end)), GenericParameter::Sink(numbers)]) => {
            (0..*end).try_for_each(|number| numbers.send(Dynamic::U64(number)))?;
            Dynamic::U64(*end)
        }
        ("sum", [GenericParameter::Source(numbers)]) => {
            let mut sum = 0;
            while let Some(number) = numbers.next()? {
                let Dynamic::U64(number) = number else { unreachable!("{number:?}") };
                sum += number;
            }
            Dynamic::U64(sum)
        }
        (
            "rename",
            [
                GenericParameter::In(name),
                GenericParameter::Source(entries),
                GenericParameter::InOut(Dynamic::U128(largest)),
                GenericParameter::Sink(renamed),
                GenericParameter::Out(names),
                GenericParameter::In(Dynamic::U8(stop)),
            ],
        ) => {
            let mut count = 0;
            while let Some(entry) = entries.next()? {
                let Dynamic::List(mut fields) = entry else { unreachable!("{entry:?}") };
                let [Dynamic::U8(kind), Dynamic::U128(size), Dynamic::Text(text), _] = &fields[..]
                else {
                    unreachable!("{fields:?}");
                };
                if kind == stop {
                    return Ok(Err(Dynamic::Variant(0, vec![Dynamic::U32(count)])));
                }
                *largest = (*size).max(*largest);
                let _ = names.put(text.as_bytes());
                fields[2] = name.clone();
                renamed.send(Dynamic::List(fields))?;
                count += 1;
            }
            Dynamic::U32(count)
        }
        ("endless", [GenericParameter::Sink(numbers)]) => {
            let sent = (0..).position(|number| numbers.send(Dynamic::U64(number)).is_err());
            Dynamic::U64(sent.unwrap() as u64)
        }
        (
            "first",
            [GenericParameter::In(Dynamic::U32(count)), GenericParameter::Source(numbers)],
        ) => {
            let mut last = None;
            for _ in 0..*count {
                last = numbers.next()?;
            }
            Dynamic::Option(last.map(Box::new))
        }
        ("panic", [GenericParameter::Sink(numbers)]) => {
            numbers.send(Dynamic::U64(1))?;
            panic!("on purpose");
        }
        ("units", [GenericParameter::In(Dynamic::U32(count)), GenericParameter::Sink(units)]) => {
            (0..*count).try_for_each(|_| units.send(Dynamic::Unit))?;
            Dynamic::Unit
        }
        (name, other) => unreachable!("{name}: {other:?}"),
    };
    Ok(Ok(ok))
}

/// Calls `test` with a binding to a server on each path.
fn on_each_path<S: Serve + 'static>(what: &str, server: impl Fn() -> S, test: impl Fn(Binding)) {
    println!("{what}, in process");
    let options = BindOptions::default();
    test(Binding::in_process_as(described(), Arc::new(server()), &options).unwrap());
    for path in ["local:feed", "tcp:feed@127.0.0.1", "udp:feed@127.0.0.1"] {
        println!("{what}, {path}");
        let server = Server::new().threads(2).export("feed", server()).unwrap();
        let server = match path.starts_with("local") {
            true => server,
            false => server.listen("127.0.0.1:0").unwrap(),
        };
        let running = server.spawn().unwrap();
        let endpoint = running.addresses().first().map(ToString::to_string);
        let port = endpoint.as_deref().and_then(|endpoint| endpoint.rsplit(':').next());
        let address = port.map_or(path.to_owned(), |port| format!("{path}:{port}"));
        test(Binding::bind(&address, described(), &BindOptions::default()).unwrap());
        running.stop();
    }
}

fn compiled_server() -> FeedServer<Object> {
    FeedServer::new(Object)
}

fn interpreted_server() -> GenericServer {
    GenericServer::new(described(), interpreted)
}

/// Returns a generic server that forwards calls through a generic client to the compiled server.
fn bridge() -> GenericServer {
    let inner = Binding::in_process(Arc::new(compiled_server()), &BindOptions::default());
    let client = GenericClient::over(inner, described());
    GenericServer::new(described(), move |call| forward(&client, call))
}

fn with_each_server(test: impl Fn(Binding)) {
    let _alone = alone();
    let _directory = own_directory();
    on_each_path("compiled", compiled_server, &test);
    on_each_path("interpreted", interpreted_server, &test);
    on_each_path("bridge", bridge, &test);
}

#[test]
fn compiled_client_has_streams_with_each_server() {
    with_each_server(|binding| {
        let client = FeedClient { binding };
        for end in [0, 1, 10_000] {
            let mut next = 0;
            let receive = |number| {
                assert_eq!(number, next);
                next += 1;
            };
            assert_eq!(client.count(end, Sink::new(receive)).unwrap(), end);
            assert_eq!(next, end);
            assert_eq!(client.sum(Source::new(0..end)).unwrap(), (0..end).sum::<u64>());
        }
        let (mut largest, mut back, mut names) = (5, Vec::new(), [0; 100]);
        let mut out = Out::from(&mut names[..]);
        let entries = Source::new((0..5000).map(entry));
        let sink = Sink::from(&mut back);
        let made =
            client.rename("new", entries, &mut largest, sink, out.by_ref(), 255).unwrap_err();
        assert_eq!((made, largest, back.len()), (Trouble::Enough(255), 5, 255));
        back.clear();
        let entries = Source::new((0..200).map(entry));
        let sink = Sink::from(&mut back);
        let made = client.rename("new", entries, &mut largest, sink, out.by_ref(), 255);
        assert_eq!((made, largest, out.filled()), (Ok(200), 199 << 70, 100));
        let new = |entry: Entry| Entry { name: "new".into(), ..entry };
        assert!(back.into_iter().eq((0..200).map(entry).map(new)));
        let mut count = 0;
        let receive = |number| {
            assert_eq!(number, count);
            count += 1;
            if count == 1000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        assert!(client.endless(Sink::until(receive)).unwrap() >= 1000);
        assert_eq!(client.first(3, Source::new(10..)).unwrap(), Some(12));
        assert_eq!(client.first(3, Source::new(10..11)).unwrap(), None);
        let mut count = 0;
        client.units(40_000, Sink::new(|()| count += 1)).unwrap();
        assert_eq!(count, 40_000);
    });
}

fn numbers(numbers: impl IntoIterator<Item = u64>) -> Vec<Dynamic> {
    numbers.into_iter().map(Dynamic::U64).collect()
}

fn dynamic(Entry { kind, size, name, tag }: Entry) -> Dynamic {
    let tag = Dynamic::Option(tag.map(|tag| Box::new(Dynamic::U16(tag))));
    Dynamic::List(vec![Dynamic::U8(kind), Dynamic::U128(size), Dynamic::Text(name), tag])
}

#[test]
fn generic_client_has_streams_with_each_server() {
    with_each_server(|binding| {
        let client = GenericClient::over(binding, described());
        for end in [0, 1, 10_000] {
            let mut received = Vec::new();
            let mut arguments =
                [Argument::In(&Dynamic::U64(end)), Argument::Sink(Sink::from(&mut received))];
            assert_eq!(client.call("count", &mut arguments).unwrap(), Ok(Dynamic::U64(end)));
            // The first call has taken the sink out of `arguments`. So the items of this call are
            // discarded.
            assert_eq!(client.call("count", &mut arguments).unwrap(), Ok(Dynamic::U64(end)));
            drop(arguments);
            assert_eq!(received, numbers(0..end));
            let source = Source::new((0..end).map(Dynamic::U64));
            let sum = client.call("sum", &mut [Argument::Source(source)]).unwrap();
            assert_eq!(sum, Ok(Dynamic::U64((0..end).sum())));
        }
        let rename = |count: u32, stop: u8| {
            let (mut largest, mut back, mut names) = (Dynamic::U128(5), Vec::new(), [0; 100]);
            let mut out = Out::from(&mut names[..]);
            let made = client.call(
                "rename",
                &mut [
                    Argument::In(&"new".into()),
                    Argument::Source(Source::new((0..count).map(entry).map(dynamic))),
                    Argument::InOut(&mut largest),
                    Argument::Sink(Sink::from(&mut back)),
                    Argument::Out(out.by_ref()),
                    Argument::In(&Dynamic::U8(stop)),
                ],
            );
            (made.unwrap(), largest, out.filled(), back)
        };
        let new = |number| dynamic(Entry { name: "new".into(), ..entry(number) });
        let (made, largest, filled, back) = rename(200, 255);
        assert_eq!(made, Ok(Dynamic::U32(200)));
        assert_eq!((largest, filled), (Dynamic::U128(199 << 70), 100));
        assert!(back.into_iter().eq((0..200).map(new)));
        let (made, largest, _, back) = rename(5000, 255);
        assert_eq!(made, Err(Dynamic::Variant(0, vec![Dynamic::U32(255)])));
        assert_eq!((largest, back.len()), (Dynamic::U128(5), 255));
        let mut count = 0;
        let receive = |number| {
            assert_eq!(number, Dynamic::U64(count));
            count += 1;
            if count == 1000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let sent = client.call("endless", &mut [Argument::Sink(Sink::until(receive))]).unwrap();
        assert!(matches!(sent, Ok(Dynamic::U64(1000..))), "{sent:?}");
        let endless = Argument::Source(Source::new((10..).map(Dynamic::U64)));
        let first = client.call("first", &mut [Argument::In(&Dynamic::U32(3)), endless]).unwrap();
        assert_eq!(first, Ok(Dynamic::Option(Some(Box::new(Dynamic::U64(12))))));
        let mut received = Vec::new();
        let error = client.call("panic", &mut [Argument::Sink(Sink::from(&mut received))]);
        let error = error.unwrap_err();
        assert!(matches!(error.kind(), Kind::Panicked | Kind::Relayed), "{error}");
        assert_eq!(received, numbers([1]));
    });
}

#[test]
fn item_of_another_type_ends_the_call_and_is_named() {
    let _alone = alone();
    let _directory = own_directory();
    on_each_path("compiled", compiled_server, |binding| {
        let client = GenericClient::over(binding, described());
        let items = [Dynamic::U64(1), Dynamic::U64(2), Dynamic::U32(3), Dynamic::U64(4)];
        let error = client.call("sum", &mut [Argument::Source(Source::new(items))]).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::BadArguments, Executed::Maybe));
        assert_eq!(error.detail(), "numbers[2]: expected u64, got a u32");
        let mut wrong = dynamic(entry(1));
        let Dynamic::List(fields) = &mut wrong else { unreachable!() };
        fields[2] = Dynamic::Text("a".repeat(40 << 20));
        let mut largest = Dynamic::U128(0);
        let error = client
            .call(
                "rename",
                &mut [
                    Argument::In(&"new".into()),
                    Argument::Source(Source::new([wrong])),
                    Argument::InOut(&mut largest),
                    Argument::Sink(Sink::new(drop)),
                    Argument::Out(Out::from(&mut [][..])),
                    Argument::In(&Dynamic::U8(9)),
                ],
            )
            .unwrap_err();
        assert_eq!(error.kind(), Kind::TooLarge, "{error}");
        // After the failed call, the binding still carries streams.
        let items = Source::new([Dynamic::U64(1)]);
        let sum = client.call("sum", &mut [Argument::Source(items)]).unwrap();
        assert_eq!(sum, Ok(Dynamic::U64(1)));
    });
    let seen = Arc::new(Mutex::new(Vec::new()));
    let server = || {
        let seen = Arc::clone(&seen);
        GenericServer::new(described(), move |call| {
            let [GenericParameter::Sink(numbers)] = call.parameters() else { unreachable!() };
            numbers.send(Dynamic::U64(1))?;
            let error = numbers.send(Dynamic::from("two")).unwrap_err();
            seen.lock().unwrap().push(error.detail().to_owned());
            // The item of the wrong type was not sent, and the stream continues.
            numbers.send(Dynamic::U64(3))?;
            Ok(Ok(Dynamic::U64(2)))
        })
    };
    on_each_path("interpreted", server, |binding| {
        let mut received = Vec::new();
        let client = FeedClient { binding };
        assert_eq!(client.endless(Sink::from(&mut received)).unwrap(), 2);
        assert_eq!(received, [1, 3]);
    });
    let seen = seen.lock().unwrap();
    assert_eq!(seen[..], ["numbers[1]: expected u64, got text"; 4]);
}

#[test]
fn source_that_fails_ends_the_call_with_its_reason() {
    with_each_server(|binding| {
        let client = FeedClient { binding };
        let items = Source::fallible([Ok(1), Ok(2), Err("the disk is gone")]);
        let error = client.sum(items).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::Stopped, Executed::Maybe));
        assert_eq!(error.detail(), "the items are not complete: the disk is gone");
        let (source, mut sender) = Source::channel(4);
        std::thread::scope(|scope| {
            let call = scope.spawn(|| client.sum(source));
            assert_eq!(sender.send(1), Ok(()));
            sender.fail("the disk is gone");
            let error = call.join().unwrap().unwrap_err();
            assert_eq!(error.detail(), "the items are not complete: the disk is gone");
        });
        assert_eq!(client.sum(Source::new([1, 2])).unwrap(), 3);
    });
}

/// If a procedure has streams, its parameters that are not streams may differ between client and server.
#[test]
fn procedure_with_streams_may_get_other_parameters() {
    let _alone = alone();
    let _directory = own_directory();
    let text = FeedClient::INTERFACE.canonical_text();
    let text = text.replace(
        "count(in end: u64, sink numbers: u64)",
        "count(in start: u64 = x0300000000000000, in end: u64, sink numbers: u64, in b: option<u8>)",
    );
    let newer = Described::parse(&text).unwrap();
    assert_ne!(newer.digest(), described().digest());
    let server = || {
        GenericServer::new(newer.clone(), |call| {
            let [
                GenericParameter::In(Dynamic::U64(start)),
                GenericParameter::In(Dynamic::U64(end)),
                GenericParameter::Sink(numbers),
                GenericParameter::In(Dynamic::Option(None)),
            ] = call.parameters()
            else {
                unreachable!("{call:?}");
            };
            (*start..*end).try_for_each(|number| numbers.send(Dynamic::U64(number)))?;
            Ok(Ok(Dynamic::U64(*end)))
        })
    };
    on_each_path("newer", server, |binding| {
        let mut received = Vec::new();
        let client = FeedClient { binding };
        assert_eq!(client.count(1000, Sink::from(&mut received)).unwrap(), 1000);
        assert!(received.into_iter().eq(3..1000));
    });
}

#[test]
fn argument_that_is_not_the_stream_is_refused_before_the_call() {
    let client = GenericClient::in_process(interpreted_server());
    let end = Dynamic::U64(1);
    let source = || Argument::Source(Source::new([]));
    let sink = || Argument::Sink(Sink::new(drop));
    for (name, mut arguments, said) in [
        ("sum", vec![Argument::In(&end)], "numbers: expected a source"),
        ("sum", vec![sink()], "numbers: expected a source"),
        ("count", vec![Argument::In(&end), source()], "numbers: expected a sink"),
        ("count", vec![sink(), sink()], "end: expected a value"),
        ("count", vec![sink()], "expected 2 arguments (end, numbers), got 1"),
    ] {
        let error = client.call(name, &mut arguments).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::BadArguments, Executed::No));
        assert_eq!(error.detail(), said);
        assert!(error.to_string().contains(&format!("`{name}`")), "{error}");
    }
}
