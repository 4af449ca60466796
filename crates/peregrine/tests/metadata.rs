//! Tests metadata with every kind of call: streams, one-way calls, callbacks and generic clients. The contract
//! of all paths (`tests/contract/`) tests it with ordinary calls of blocking and async clients.

mod support;

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use peregrine::{
    Argument, BindOptions, Callback, Dynamic, Executed, ExportOptions, GenericClient, Kind, Server,
    Sink, caller, interface, limits,
};
use support::futures::block_on;
use support::impairments::Impairments;
use support::paths::on_each_path;
use support::relay::Relay;
use support::stream::{BOUND, REPLY};
use support::wire::{LIMIT, Session};
use support::{KeepGoing, alone, own_directory, stream};

/// An object of the caller.
#[interface]
trait Listener {
    /// Returns the metadata of the call.
    fn told(&self) -> peregrine::Result<Vec<String>>;
}

/// Returns what arrives with calls.
#[interface]
trait Seen {
    /// Returns the metadata of the call.
    fn seen(&self) -> peregrine::Result<Vec<String>>;
    /// Returns the metadata of the call.
    fn taken(&self, bytes: &[u8]) -> peregrine::Result<Vec<String>>;
    /// Notes the metadata of the call.
    #[oneway]
    fn note(&self, number: u32) -> peregrine::Result<()>;
    /// Returns the notes.
    fn notes(&self) -> peregrine::Result<Vec<String>>;
    /// Sends the metadata of the call `times` times.
    fn send(&self, times: u32, items: Sink<'_, String>) -> peregrine::Result<()>;
    /// Returns what the listener sees of a call without metadata, and of one with metadata.
    fn back(&self, listener: Callback<'_, dyn Listener>) -> peregrine::Result<Vec<Vec<String>>>;
}

/// A program of another system.
#[interface(onc(program = 0x2000_0177, version = 1))]
trait Clock {
    #[onc(1)]
    fn ticks(&self) -> peregrine::Result<u32>;
}

#[derive(Default)]
struct Object(Mutex<Vec<String>>);

fn seen() -> Vec<String> {
    let caller = caller().expect("a procedure has a caller");
    let pairs = caller.metadata().iter();
    pairs.map(|(key, value)| format!("{key}={value}")).collect()
}

impl Seen for Object {
    fn seen(&self) -> peregrine::Result<Vec<String>> {
        Ok(seen())
    }
    fn taken(&self, _: &[u8]) -> peregrine::Result<Vec<String>> {
        Ok(seen())
    }
    fn note(&self, number: u32) -> peregrine::Result<()> {
        self.0.lock().unwrap().push(format!("{number} {}", seen().join(" ")));
        Ok(())
    }
    fn notes(&self) -> peregrine::Result<Vec<String>> {
        Ok(self.0.lock().unwrap().clone())
    }
    fn send(&self, times: u32, mut items: Sink<'_, String>) -> peregrine::Result<()> {
        (0..times).try_for_each(|_| items.send(seen().join(" "))).map_err(Into::into)
    }
    fn back(&self, listener: Callback<'_, dyn Listener>) -> peregrine::Result<Vec<Vec<String>>> {
        let client = listener.client().expect("the callback is called through a client");
        let full = client.with_metadata("long", &"v".repeat(3000))?;
        let all = [
            client.told()?,
            client.with_metadata("from", "server")?.told()?,
            client.with_metadata_of(&caller().expect("a caller"))?.told()?,
            full.told()?,
            client.told()?,
        ];
        Ok(all.into())
    }
}

impl Listener for Object {
    fn told(&self) -> peregrine::Result<Vec<String>> {
        Ok(seen())
    }
}

impl Clock for Object {
    fn ticks(&self) -> peregrine::Result<u32> {
        Ok(7)
    }
}

fn server() -> Server {
    Server::new().export("seen", SeenServer::new(Object::default())).unwrap()
}

/// Runs `test` with a client on each path.
fn everywhere(test: impl Fn(&SeenClient)) {
    let _alone = alone();
    let _directory = own_directory();
    test(&SeenClient::in_process(Object::default()));
    on_each_path("seen", || (server(), ()), |at, ()| test(&SeenClient::bind(at).unwrap()));
}

/// Returns a client with as much metadata as is allowed, and what its calls bring.
fn full(client: &SeenClient) -> (SeenClient, Vec<String>) {
    let value = "v".repeat(limits::METADATA_BYTES_MAX - 4 - 1);
    (client.with_metadata("k", &value).unwrap(), vec![format!("k={value}")])
}

#[test]
fn one_way_calls_bring_their_own_metadata_in_order() {
    everywhere(|client| {
        let traced = client.with_metadata("trace", "7").unwrap();
        let awaited = SeenAsyncClient::from(traced.clone());
        for number in (0..90).step_by(3) {
            client.note(number).unwrap();
            traced.note(number + 1).unwrap();
            block_on(SeenAsync::note(&awaited, number + 2)).unwrap();
        }
        client.flush().unwrap();
        let expected = (0..90).map(|number| match number % 3 {
            0 => format!("{number} "),
            _ => format!("{number} trace=7"),
        });
        assert_eq!(client.notes().unwrap(), expected.collect::<Vec<_>>());
    });
}

#[test]
fn calls_with_streams_bring_metadata() {
    everywhere(|client| {
        for (client, expected) in
            [(client.clone(), ""), (client.with_metadata("trace", "7").unwrap(), "trace=7")]
        {
            let mut items = Vec::new();
            client.send(100, Sink::new(|item| items.push(item))).unwrap();
            assert_eq!(items, [expected; 100]);
            let (awaited, mut items) = (SeenAsyncClient::from(client.clone()), Vec::new());
            block_on(SeenAsync::send(&awaited, 100, Sink::new(|item| items.push(item)))).unwrap();
            assert_eq!(items, [expected; 100]);
        }
    });
}

#[test]
fn calls_of_callbacks_bring_the_metadata_of_their_client() {
    everywhere(|client| {
        let traced = client.with_metadata("trace", "7").unwrap();
        let (listener, long) = (Object::default(), format!("long={}", "v".repeat(3000)));
        for (client, own) in [(client, &[][..]), (&traced, &["trace=7"])] {
            let told = client.back(Callback::new(&listener)).unwrap();
            assert_eq!(told, [&[][..], &["from=server"], own, &[&*long], &[]]);
        }
    });
}

#[test]
fn generic_clients_send_metadata() {
    let _alone = alone();
    let _directory = own_directory();
    on_each_path(
        "seen",
        || (server(), ()),
        |at, ()| {
            let client = GenericClient::bind(at).unwrap();
            let traced = client.with_metadata("trace", "7").unwrap();
            let seen = |client: &GenericClient| client.call("seen", &mut []).unwrap().unwrap();
            assert_eq!(seen(&client), Dynamic::List(Vec::new()));
            let expected = Dynamic::List(vec![Dynamic::Text("trace=7".into())]);
            assert_eq!(seen(&traced), expected);
            let mut result = Dynamic::Unit;
            let number = client.described().procedure("seen").unwrap().0;
            let made =
                block_on(traced.call_async(number, &mut [] as &mut [Argument<'_>], &mut result));
            assert_eq!((made.unwrap(), result), (true, expected));
        },
    );
}

#[test]
fn metadata_that_does_not_fit_with_the_message_is_not_sent() {
    const BYTES: usize = 64 << 10;
    let _alone = alone();
    let _directory = own_directory();
    let options = ExportOptions::default().message_bytes_max(BYTES);
    let start = || {
        let server =
            Server::new().export_with("seen", SeenServer::new(Object::default()), options.clone());
        (server.unwrap(), ())
    };
    on_each_path("seen", start, |at, ()| {
        let client =
            SeenClient::bind_with(at, &BindOptions::default().message_bytes(BYTES)).unwrap();
        let (full, expected) = full(&client);
        // The head has 16 bytes, with the padding before the bytes.
        let largest = vec![7; BYTES - 16];
        assert!(client.taken(&largest).unwrap().is_empty());
        assert_eq!(full.taken(&largest[..BYTES - 4096]).unwrap(), expected);
        match full.taken(&largest) {
            Ok(seen) => assert!(!at.starts_with("udp") && seen == expected),
            // Over datagrams, metadata is a part of the message.
            Err(error) => {
                assert_eq!((error.kind(), error.executed()), (Kind::TooLarge, Executed::No));
                assert!(at.starts_with("udp") && error.to_string().contains("metadata"), "{error}");
            }
        }
    });
}

#[test]
fn retransmitted_calls_bring_the_same_metadata() {
    let _alone = alone();
    let _directory = own_directory();
    let running = server().listen("udp:127.0.0.1:0").unwrap().spawn().unwrap();
    let at = running.addresses()[0].to_string();
    let at = at.strip_prefix("udp:").unwrap().parse().unwrap();
    let impairments = Impairments { lost: 200, duplicated: 100, ..Impairments::default() };
    let mut relay = Relay::new("127.0.0.1:0".parse().unwrap(), at, impairments, 7);
    let (address, going) = (format!("udp:{}/seen", relay.address()), AtomicBool::new(true));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while going.load(Ordering::Relaxed) {
                relay.step(&mut |_, _| ());
            }
        });
        let _stops = KeepGoing::new(&going);
        let options = BindOptions::default().bind_timeout(LIMIT);
        let client = SeenClient::bind_with(&address, &options).unwrap();
        let (full, expected) = full(&client);
        let awaited = SeenAsyncClient::from(full.clone());
        for _ in 0..30 {
            assert_eq!(full.seen().unwrap(), expected);
            assert_eq!(block_on(SeenAsync::seen(&awaited)).unwrap(), expected);
            assert!(client.seen().unwrap().is_empty());
        }
    });
}

#[test]
fn clients_of_other_systems_refuse_metadata() {
    let _alone = alone();
    let _directory = own_directory();
    let server = Server::new().export("clock", ClockServer::new(Object::default())).unwrap();
    let running = server.listen("onc+tcp:127.0.0.1:0").unwrap().spawn().unwrap();
    let clock = ClockClient::bind(&running.addresses()[0].to_string()).unwrap();
    let error = clock.with_metadata("trace", "7").unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::BadArguments, Executed::No), "{error}");
    assert!(error.to_string().contains("ONC RPC cannot carry metadata"), "{error}");
    assert_eq!(clock.ticks().unwrap(), 7);
}

/// Returns extensions with invalid metadata: of each kind one.
fn invalid() -> Vec<Vec<u8>> {
    let pair = |key: &[u8], value: &[u8]| {
        let lengths = [key.len() as u16, value.len() as u16].map(u16::to_le_bytes);
        [&lengths.concat(), key, value].concat()
    };
    let many = (0..33).map(|n| pair(format!("k{n}").as_bytes(), b"")).collect::<Vec<_>>().concat();
    let contents = [
        many,
        [pair(b"k", b"1"), pair(b"k", b"2")].concat(),
        pair(b"k", &[0xff]),
        pair(b"K", b""),
        pair(b"", b"v"),
        pair(&[b'k'; 65], b""),
        pair(b"k", &[b'v'; 3100]),
        b"\x01\x00\xff\xffk".to_vec(),
        vec![7],
    ];
    let extension = |content: &Vec<u8>| {
        [&3u32.to_le_bytes(), &(content.len() as u32).to_le_bytes(), &content[..]].concat()
    };
    contents.iter().map(extension).collect()
}

#[test]
fn invalid_metadata_is_refused() {
    let _alone = alone();
    let directory = own_directory();
    let running = server().listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
    /// The answer to a call that was not executed.
    const NOT_EXECUTED: u32 = 2;
    let mut local = Session::new(directory.path(), "seen", 1).unwrap();
    let at = running.addresses()[0].to_string();
    let mut tcp = TcpStream::connect(at.strip_prefix("tcp:").unwrap()).unwrap();
    tcp.write_all(&stream::bind("seen")).unwrap();
    let bound = stream::receive(&mut tcp).expect("an answer");
    assert_eq!(bound.kind, BOUND);
    let binding = u32::from_le_bytes(bound.body[8..12].try_into().unwrap());
    let valid = [&3u32.to_le_bytes()[..], &6u32.to_le_bytes(), b"\x01\x00\x01\x00kv"].concat();
    for (number, invalid) in (1..).zip(invalid()) {
        for (extensions, answer) in [(&invalid, NOT_EXECUTED), (&valid, 0), (&Vec::new(), 0)] {
            let message = local.post_extended(0, 0, extensions);
            assert_eq!(local.reply_to(message, 0, LIMIT), Some(answer), "{extensions:?}");
            tcp.write_all(&stream::call(binding, number, 0, extensions)).unwrap();
            let reply = stream::receive(&mut tcp).expect("a reply");
            assert_eq!((reply.kind, reply.words[0], reply.words[2]), (REPLY, number, answer));
            let text = String::from_utf8_lossy(&reply.body).into_owned();
            assert_eq!(text.contains("the metadata of the call is invalid"), answer != 0, "{text}");
        }
    }
}
