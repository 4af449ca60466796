//! Tests callbacks of interpreted clients and servers, with each other and with compiled ones, on every path.

mod support;

use std::sync::{Arc, Mutex};

use peregrine::call::Serve;
use peregrine::interface::Described;
use peregrine::{
    Argument, BindOptions, Binding, CallError, Callback, Dynamic, GenericCall, GenericClient,
    GenericOutcome, GenericParameter, GenericServer, Kind, Out, Server, Value, interface,
};
use support::{alone, own_directory};

/// Why a listener refuses a line.
#[derive(Debug, PartialEq, Value)]
enum Refused {
    Line(String),
    Call(String),
}

impl From<CallError> for Refused {
    fn from(error: CallError) -> Self {
        Self::Call(error.to_string())
    }
}

/// A line of text with its number.
#[derive(Clone, Debug, PartialEq, Value)]
struct Line {
    number: u32,
    text: String,
}

/// An object of the caller.
#[interface]
trait Listener {
    /// Returns the number of the line's letters. Refuses lines without letters.
    fn said(&self, line: Line) -> Result<u32, Refused>;
    /// Fills the buffer with the bytes in reverse order.
    fn reverse(&self, bytes: &[u8], into: Out<'_, u8>) -> peregrine::Result<()>;
    /// Asks the room for its size, and returns the size.
    fn meet(&self, room: Callback<'_, dyn Room>) -> peregrine::Result<u32>;
}

/// A service that calls objects of its callers.
#[interface]
trait Room {
    /// Says `lines` lines to the listener. Returns the number of letters in all of them.
    fn join(
        &self,
        name: String,
        lines: u32,
        listener: Callback<'_, dyn Listener>,
    ) -> Result<u32, Refused>;
    /// Lets the listener reverse `size` bytes. Returns the first byte of the reversed bytes.
    fn exchange(&self, size: u32, listener: Callback<'_, dyn Listener>) -> peregrine::Result<u8>;
    /// Shows the listener a room with `visitors` visitors.
    fn show(&self, visitors: u32, listener: Callback<'_, dyn Listener>) -> peregrine::Result<u32>;
    /// Keeps the listener.
    fn keep(&self, listener: Callback<'static, dyn Listener>) -> peregrine::Result<()>;
    /// Says a line to the listener that was kept.
    fn say(&self, text: String) -> Result<u32, Refused>;
    /// Returns the number of visitors.
    fn size(&self) -> peregrine::Result<u32>;
}

#[derive(Default)]
struct Object {
    visitors: u32,
    kept: Mutex<Option<Arc<Callback<'static, dyn Listener>>>>,
}

impl Room for Object {
    fn join(
        &self,
        name: String,
        lines: u32,
        listener: Callback<'_, dyn Listener>,
    ) -> Result<u32, Refused> {
        let line = |number| Line { number, text: name.repeat(number as usize) };
        (1..=lines).map(|number| listener.said(line(number))).sum()
    }
    fn exchange(&self, size: u32, listener: Callback<'_, dyn Listener>) -> peregrine::Result<u8> {
        let bytes: Vec<u8> = (0..size).map(|number| number as u8).collect();
        let mut reversed = vec![0; size as usize];
        let mut out = Out::from(&mut reversed[..]);
        listener.reverse(&bytes, out.by_ref())?;
        assert_eq!(out.filled(), bytes.len());
        assert!(reversed.iter().rev().eq(&bytes));
        Ok(reversed[0])
    }
    fn show(&self, visitors: u32, listener: Callback<'_, dyn Listener>) -> peregrine::Result<u32> {
        let room = Self { visitors, ..Self::default() };
        listener.meet(Callback::new(&room))
    }
    fn keep(&self, listener: Callback<'static, dyn Listener>) -> peregrine::Result<()> {
        *self.kept.lock().unwrap() = Some(Arc::new(listener));
        Ok(())
    }
    fn say(&self, text: String) -> Result<u32, Refused> {
        let kept = self.kept.lock().unwrap().clone().unwrap();
        kept.said(Line { number: 0, text })
    }
    fn size(&self) -> peregrine::Result<u32> {
        Ok(self.visitors)
    }
}

/// A listener that notes the lines.
#[derive(Default)]
struct Notes(Mutex<Vec<Line>>);

impl Notes {
    fn taken(&self) -> Vec<Line> {
        core::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Listener for Notes {
    fn said(&self, line: Line) -> Result<u32, Refused> {
        if line.text.is_empty() {
            return Err(Refused::Line(format!("line {} is empty", line.number)));
        }
        let letters = line.text.len() as u32;
        self.0.lock().unwrap().push(line);
        Ok(letters)
    }
    fn reverse(&self, bytes: &[u8], mut into: Out<'_, u8>) -> peregrine::Result<()> {
        let reversed: Vec<u8> = bytes.iter().rev().copied().collect();
        into.put(&reversed).expect("the buffer has as many bytes");
        Ok(())
    }
    fn meet(&self, room: Callback<'_, dyn Room>) -> peregrine::Result<u32> {
        room.size()
    }
}

fn described() -> Described {
    Described::parse(&RoomClient::INTERFACE.canonical_text()).unwrap()
}

/// Returns the interface of the listener, as the description of the service contains it.
fn listener() -> Described {
    let described = described();
    let (_, join) = described.procedure("join").unwrap();
    described.interface_of(&join.parameters[2].ty).unwrap()
}

/// Forwards a received call, and the callbacks that are its arguments, to another server.
fn forward(client: &GenericClient, call: &mut GenericCall<'_>) -> GenericOutcome {
    let number = call.number();
    let mut arguments: Vec<Argument<'_>> = call
        .parameters()
        .iter_mut()
        .map(|parameter| match parameter {
            GenericParameter::In(value) => Argument::In(value),
            GenericParameter::Out(out) => Argument::Out(out.by_ref()),
            GenericParameter::Callback(callback) => Argument::Callback(forwarder(callback)),
            other => unreachable!("{other:?}"),
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

/// Returns a generic server whose procedures do the same as those of [`Object`].
fn interpreted_server() -> GenericServer {
    let kept: Mutex<Option<GenericClient>> = Mutex::default();
    GenericServer::new(described(), move |call| {
        let name = call.procedure().name.clone();
        let said = |listener: &GenericClient, number: u32, text: String| {
            let line = Dynamic::List(vec![Dynamic::U32(number), Dynamic::Text(text)]);
            listener.call("said", &mut [Argument::In(&line)])
        };
        match (&*name, call.parameters()) {
            (
                "join",
                [
                    GenericParameter::In(Dynamic::Text(name)),
                    GenericParameter::In(Dynamic::U32(lines)),
                    GenericParameter::Callback(listener),
                ],
            ) => {
                let mut letters = 0;
                for number in 1..=*lines {
                    match said(listener, number, name.repeat(number as usize))? {
                        Ok(Dynamic::U32(more)) => letters += more,
                        other => return Ok(other),
                    }
                }
                Ok(Ok(Dynamic::U32(letters)))
            }
            (
                "exchange",
                [GenericParameter::In(Dynamic::U32(size)), GenericParameter::Callback(listener)],
            ) => {
                let bytes: Vec<u8> = (0..*size).map(|number| number as u8).collect();
                let mut reversed = vec![0; *size as usize];
                let mut arguments = [
                    Argument::Bytes((&bytes[..]).into()),
                    Argument::Out(Out::from(&mut reversed[..])),
                ];
                assert_eq!(listener.call("reverse", &mut arguments)?, Ok(Dynamic::Unit));
                drop(arguments);
                assert!(reversed.iter().rev().eq(&bytes));
                Ok(Ok(Dynamic::U8(reversed[0])))
            }
            (
                "show",
                [
                    GenericParameter::In(Dynamic::U32(visitors)),
                    GenericParameter::Callback(listener),
                ],
            ) => {
                let visitors = *visitors;
                let (_, meet) = listener.described().procedure("meet").unwrap();
                let room = listener.described().interface_of(&meet.parameters[0].ty).unwrap();
                let room = GenericServer::new(room, move |call| {
                    assert_eq!(call.procedure().name, "size");
                    Ok(Ok(Dynamic::U32(visitors)))
                });
                listener.call("meet", &mut [Argument::Callback(Arc::new(room))])
            }
            ("keep", [GenericParameter::Callback(listener)]) => {
                *kept.lock().unwrap() = Some(listener.clone());
                Ok(Ok(Dynamic::Unit))
            }
            ("say", [GenericParameter::In(Dynamic::Text(text))]) => {
                let kept = kept.lock().unwrap().clone().unwrap();
                said(&kept, 0, text.clone())
            }
            (name, other) => unreachable!("{name}: {other:?}"),
        }
    })
}

fn compiled_server() -> RoomServer<Object> {
    RoomServer::new(Object::default())
}

/// Returns a generic server that forwards calls through a generic client to the compiled server.
fn bridge() -> GenericServer {
    let inner = Binding::in_process(Arc::new(compiled_server()), &BindOptions::default());
    let client = GenericClient::over(inner, described());
    GenericServer::new(described(), move |call| forward(&client, call))
}

/// Calls `test` with a binding to a server on each path.
fn on_each_path<S: Serve + 'static>(what: &str, server: impl Fn() -> S, test: impl Fn(Binding)) {
    println!("{what}, in process");
    let options = BindOptions::default();
    test(Binding::in_process_as(described(), Arc::new(server()), &options).unwrap());
    for path in ["local:room", "tcp:room@127.0.0.1", "udp:room@127.0.0.1"] {
        println!("{what}, {path}");
        let server = Server::new().threads(2).export("room", server()).unwrap();
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

fn with_each_server(test: impl Fn(Binding)) {
    let _alone = alone();
    let _directory = own_directory();
    on_each_path("compiled", compiled_server, &test);
    on_each_path("interpreted", interpreted_server, &test);
    on_each_path("bridge", bridge, &test);
}

fn lines(texts: impl IntoIterator<Item = &'static str>) -> Vec<Line> {
    let line = |(number, text): (u32, &str)| Line { number, text: text.to_owned() };
    (1..).zip(texts).map(line).collect()
}

#[test]
fn compiled_client_is_called_by_each_server() {
    with_each_server(|binding| {
        let client = RoomClient { binding };
        let notes = Arc::new(Notes::default());
        assert_eq!(client.join("ab".into(), 3, Callback::new(&*notes)), Ok(12));
        assert_eq!(notes.taken(), lines(["ab", "abab", "ababab"]));
        let made = client.join(String::new(), 3, Callback::new(&*notes));
        assert_eq!(made, Err(Refused::Line("line 1 is empty".into())));
        for size in [1, 1000, 100_000] {
            let first = client.exchange(size, Callback::new(&*notes)).unwrap();
            assert_eq!(first, (size - 1) as u8);
        }
        assert_eq!(client.show(7, Callback::new(&*notes)).unwrap(), 7);
        client.keep(Callback::new(Arc::clone(&notes))).unwrap();
        assert_eq!(client.say("later".into()), Ok(5));
        assert_eq!(notes.taken(), [Line { number: 0, text: "later".into() }]);
    });
}

#[test]
fn generic_client_is_called_by_each_server() {
    with_each_server(|binding| {
        let client = GenericClient::over(binding, described());
        let notes = Arc::new(Notes::default());
        let compiled: Arc<dyn Serve> = Arc::new(ListenerServer::new(Arc::clone(&notes)));
        let inner = Binding::in_process(Arc::clone(&compiled), &BindOptions::default());
        let interpreted = forwarder(&GenericClient::over(inner, listener()));
        for listener in [compiled, interpreted] {
            let callback = || Argument::Callback(Arc::clone(&listener));
            let join = |name: &str, lines: u32| {
                let (name, lines) = (Dynamic::from(name), Dynamic::U32(lines));
                let mut arguments = [Argument::In(&name), Argument::In(&lines), callback()];
                client.call("join", &mut arguments).unwrap()
            };
            assert_eq!(join("ab", 3), Ok(Dynamic::U32(12)));
            assert_eq!(notes.taken(), lines(["ab", "abab", "ababab"]));
            let refused = Dynamic::Variant(0, vec!["line 1 is empty".into()]);
            assert_eq!(join("", 3), Err(refused));
            let size = Dynamic::U32(100_000);
            let made = client.call("exchange", &mut [Argument::In(&size), callback()]).unwrap();
            assert_eq!(made, Ok(Dynamic::U8(99_999_u32 as u8)));
            let visitors = Dynamic::U32(9);
            let made = client.call("show", &mut [Argument::In(&visitors), callback()]).unwrap();
            assert_eq!(made, Ok(Dynamic::U32(9)));
            assert_eq!(client.call("keep", &mut [callback()]).unwrap(), Ok(Dynamic::Unit));
            let text = Dynamic::from("later");
            let made = client.call("say", &mut [Argument::In(&text)]).unwrap();
            assert_eq!(made, Ok(Dynamic::U32(5)));
            assert_eq!(notes.taken(), [Line { number: 0, text: "later".into() }]);
        }
    });
}

#[test]
fn argument_that_is_not_the_callback_is_refused_before_the_call() {
    let client = GenericClient::in_process(interpreted_server());
    let unit = Dynamic::Unit;
    let error = client.call("keep", &mut [Argument::In(&unit)]).unwrap_err();
    assert_eq!(error.kind(), Kind::BadArguments);
    assert_eq!(error.detail(), "listener: expected a server of a callback");
    let room = Argument::Callback(Arc::new(compiled_server()));
    let error = client.call("keep", &mut [room]).unwrap_err();
    assert_eq!(error.kind(), Kind::BadArguments);
    let wanted = "listener: expected a server of interface `Listener` version 0 (";
    assert!(error.detail().starts_with(wanted), "{error}");
    assert!(error.detail().contains("), got interface `Room` version 0 ("), "{error}");
    let error = client.call("keep", &mut []).unwrap_err();
    assert_eq!(error.detail(), "expected 1 arguments (listener), got 0");
}
