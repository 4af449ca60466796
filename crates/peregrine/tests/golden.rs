//! The bytes of `docs/REPRESENTATION.md` and `docs/PROTOCOL.md`, held one by one.
//!
//! The vectors stand in the documents, in blocks marked `golden`, and nowhere else: these tests
//! read them there. Values are encoded and decoded; calls are what a client really wrote into a
//! region that a hand-written server gave it; replies are what a server stub really answered.

#![cfg(target_endian = "little")]

mod document;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use document::{bytes, check, parse, pattern, vectors};
use peregrine::call::{Answer, EStack, Incoming, Reply, Request, Serve, Served, execute};
use peregrine::interface::{Known, Type};
use peregrine::value::{
    ByteOrder, Invalid, Native, Reader, Representation, Space, Swapped, Window, Writer,
};
use peregrine::{
    BindOptions, Binding, CallError, Executed, Kind, Lent, Out, Plain, Value, Wait, interface, sys,
};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};

/// No vector stands in a document that no test looks at.
#[test]
fn every_vector_is_of_a_known_kind() {
    let held: BTreeSet<&str> = VALUES.iter().chain(INVALID).chain(HANDSHAKE).copied().collect();
    for name in vectors().keys() {
        if let Some(little) = name.strip_prefix("big ") {
            let case = ["call ", "reply "].iter().find_map(|part| little.strip_prefix(part));
            let of_case = case.is_some_and(|case| BIG_CASES.contains(&case));
            assert!(of_case || held.contains(little), "no test holds `{name}`");
            continue;
        }
        let of_case = CASES.iter().chain(SERVER_CASES).any(|case| {
            let parts = [format!("call {case}"), format!("reply {case}")];
            parts.iter().any(|part| name == part || *name == format!("{part} header"))
        });
        assert!(of_case || held.contains(&**name), "no test holds `{name}`");
    }
    for name in held {
        pattern(name);
    }
}

#[test]
fn vectors_that_differ_are_noticed() {
    let mut vectors = BTreeMap::new();
    parse("```golden\na: 01 | ..*2 ..\n   ff # more\n```\nb: 02\n", &mut vectors);
    assert_eq!(vectors["a"], [Some(1), None, None, None, Some(255)]);
    assert_eq!(vectors.len(), 1);
    let wrong = catch_unwind(|| check("u16", &[0x34, 0x13]));
    let short = catch_unwind(|| check("u16", &[0x34]));
    assert!(wrong.is_err() && short.is_err());
}

// Values.

#[derive(Clone, Debug, PartialEq, Value)]
struct List {
    value: u32,
    next: Option<Box<Self>>,
}

#[derive(Clone, Debug, PartialEq, Value)]
enum Shape {
    Empty,
    Circle(f32),
    Named { name: String, sides: u16 },
}

#[derive(Clone, Copy, Debug, PartialEq, Plain)]
#[repr(C)]
struct Point {
    id: u64,
    at: [i16; 2],
    visible: bool,
    pad: [u8; 3],
}

#[derive(Clone, Copy, Debug, PartialEq, Plain)]
#[repr(u16)]
enum Colour {
    Red = 1,
    Green = 0x0203,
}

#[derive(Clone, Debug, PartialEq, Value)]
struct Nothing {}

fn encode<T: Value>(value: &T) -> Vec<u8> {
    encode_in::<T, Native>(value)
}

fn encode_in<T: Value, R: Representation>(value: &T) -> Vec<u8> {
    let mut memory = [0xaa; 4096];
    let mut writer = Writer::<R>::represented(Space::of_mut(&mut memory));
    value.encode(&mut writer).expect("room");
    writer.flush();
    let bytes = writer.len();
    memory[..bytes].to_vec()
}

fn decode<T: Value>(bytes: &[u8]) -> Result<T, Invalid> {
    decode_in::<T, Native>(bytes)
}

fn decode_in<T: Value, R: Representation>(bytes: &[u8]) -> Result<T, Invalid> {
    let mut reader = Reader::<R>::represented(Window::from(bytes));
    let value = T::decode(&mut reader)?;
    reader.finish()?;
    Ok(value)
}

/// The name of a vector for a big-endian server: of what looks the same there is none of its own.
fn big(name: &str) -> String {
    let big = format!("big {name}");
    if vectors().contains_key(&big) { big } else { name.to_owned() }
}

fn holds<T: Value + PartialEq + Debug>(name: &str, value: T) {
    holds_in::<T, Native>(name, &value);
    holds_in::<T, Swapped>(&big(name), &value);
}

fn holds_in<T: Value + PartialEq + Debug, R: Representation>(name: &str, value: &T) {
    check(name, &encode_in::<T, R>(value));
    let bytes = bytes(name, 0);
    assert_eq!(decode_in::<T, R>(&bytes).as_ref(), Ok(value), "{name}");
    for short in 0..bytes.len() {
        assert!(
            decode_in::<T, R>(&bytes[..short]).is_err(),
            "{name}: {short} bytes are a value too"
        );
    }
}

const VALUES: &[&str] = &[
    "unit",
    "false",
    "true",
    "u8",
    "i8",
    "u16",
    "i16",
    "u32",
    "i32",
    "u64",
    "i64",
    "u128",
    "i128",
    "f32",
    "f64",
    "char",
    "array",
    "array of bool",
    "array of text",
    "tuple",
    "text",
    "empty text",
    "sequence",
    "aligned sequence",
    "sequence of text",
    "some",
    "none",
    "ok",
    "err",
    "box",
    "list",
    "plain struct",
    "plain struct behind a byte",
    "plain enum",
    "variant 0",
    "variant 1",
    "variant 2",
    "struct without fields",
    "call error",
    "empty aligned sequence",
    "empty array behind a byte",
];

#[test]
fn values() {
    holds("unit", ());
    holds("false", false);
    holds("true", true);
    holds("u8", 0x12u8);
    holds("i8", -2i8);
    holds("u16", 0x1234u16);
    holds("i16", -2i16);
    holds("u32", 0x1234_5678u32);
    holds("i32", -2i32);
    holds("u64", 0x1234_5678_9abc_def0u64);
    holds("i64", -2i64);
    holds("u128", 1u128 << 120 | 2);
    holds("i128", -2i128);
    holds("f32", 1.5f32);
    holds("f64", -2.5f64);
    holds("char", 'é');
    holds("array", [1u16, 2, 3]);
    holds("array of bool", [true, false]);
    holds("array of text", ["a".to_owned(), "b".to_owned()]);
    holds("tuple", (1u8, 2u32, 3u16, 4u64));
    holds("text", "falcon".to_owned());
    holds("empty text", String::new());
    holds("sequence", vec![7u16, 8, 9]);
    holds("aligned sequence", vec![1u64]);
    holds("sequence of text", vec!["a".to_owned(), "bc".to_owned()]);
    holds("some", Some(5u32));
    holds("none", None::<u32>);
    holds("ok", Ok::<u16, String>(7));
    holds("err", Err::<u16, String>("no".into()));
    holds("box", Box::new(0x1234_5678u32));
    holds("list", List { value: 1, next: Some(Box::new(List { value: 2, next: None })) });
    holds("variant 0", Shape::Empty);
    holds("variant 1", Shape::Circle(1.5));
    holds("variant 2", Shape::Named { name: "tri".into(), sides: 3 });
    holds("struct without fields", Nothing {});
}

#[test]
fn plain_types() {
    let point = Point { id: 1, at: [2, -2], visible: true, pad: [0; 3] };
    holds("plain struct", point);
    holds("plain struct behind a byte", (9u8, point));
    holds("plain enum", Colour::Green);
    assert_eq!(decode(&[1, 0]), Ok(Colour::Red));
}

/// Padding stands before an element: where there is none, there is no padding.
#[test]
fn nothing_is_padded_for_no_element() {
    holds("empty array behind a byte", (1u8, [0u64; 0], 2u8));
    holds("empty aligned sequence", Vec::<u64>::new());
}

#[test]
fn errors_of_calls_travel_as_text_that_is_cut() {
    let error = CallError::new(Kind::ServerGone, Executed::Maybe, "process 77");
    check("call error", &encode(&error));
    check("big call error", &encode_in::<_, Swapped>(&error));
    let relayed: CallError = decode(&bytes("call error", 0)).unwrap();
    assert_eq!((relayed.kind(), relayed.executed()), (Kind::Relayed, Executed::Maybe));
    assert_eq!(relayed.detail(), "calling: the server is gone: process 77");
    let long = CallError::new(Kind::ServerGone, Executed::Maybe, "é".repeat(2000));
    // 29 bytes and 1009 letters of two bytes: half a letter is not sent.
    assert_eq!(encode(&long).len(), 4 + 2047);
}

const INVALID: &[&str] = &[
    "not a bool",
    "not a char",
    "not a variant",
    "not a plain struct",
    "not a plain enum",
    "not text",
    "not an option",
    "short text",
    "long u16",
];

#[test]
fn what_is_no_value_is_refused() {
    fn refused<T: Value + Debug>(name: &str, why: Invalid) {
        assert_eq!(decode::<T>(&bytes(name, 0)).err(), Some(why), "{name}");
        let big = format!("big {name}");
        if vectors().contains_key(&big) {
            assert_eq!(decode_in::<T, Swapped>(&bytes(&big, 0)).err(), Some(why), "{big}");
        }
    }
    refused::<bool>("not a bool", Invalid::Bits);
    refused::<char>("not a char", Invalid::Bits);
    refused::<Shape>("not a variant", Invalid::Bits);
    refused::<Point>("not a plain struct", Invalid::Bits);
    refused::<Colour>("not a plain enum", Invalid::Bits);
    refused::<String>("not text", Invalid::Utf8);
    refused::<Option<u8>>("not an option", Invalid::Bits);
    refused::<String>("short text", Invalid::Short);
    refused::<u16>("long u16", Invalid::Long);
}

/// A value that is nested as deeply as a list of numbers can say.
#[derive(Debug)]
struct Nest(Option<Box<Self>>);

impl Value for Nest {
    const TYPE: Type = Type::Unit;
    fn encode<R: Representation>(
        &self,
        head: &mut Writer<'_, R>,
    ) -> Result<(), peregrine::value::Overflow> {
        self.0.encode(head)
    }
    fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
        Option::decode(head).map(Self)
    }
}

#[test]
fn depth_and_empty_values_are_bounded() {
    // Each level is an option and a box: 128 of them are 256 deep.
    let deep = |levels: usize| {
        let mut bytes = vec![1; levels];
        bytes.push(0);
        decode::<Nest>(&bytes).map(|_| ())
    };
    assert_eq!(deep(128), Ok(()));
    assert_eq!(deep(129), Err(Invalid::TooDeep));
    let many = |count: u32| decode::<Vec<Nothing>>(&count.to_le_bytes()).map(|v| v.len());
    assert_eq!(many(65536), Ok(65536));
    assert_eq!(many(65537), Err(Invalid::TooLong));
}

// Identity.

#[interface(version = 1)]
trait Pulse {
    #[idempotent]
    fn beat(&self, shape: &Shape, point: Point) -> peregrine::Result<Vec<Colour>>;
    fn copy(
        &self,
        #[max_len(8)] from: Lent<'_, u8>,
        into: Out<'_, [u16; 2]>,
        list: &mut List,
    ) -> Result<(), Shape>;
}

impl From<CallError> for Shape {
    fn from(_: CallError) -> Self {
        Self::Empty
    }
}

/// A block of a document that is marked with `kind`.
fn block(document: &str, kind: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(document);
    let text = std::fs::read_to_string(path).expect("the document");
    let (_, rest) = text.split_once(&format!("```{kind}\n")).expect("the block");
    rest.split("```").next().expect("its end").to_owned()
}

#[test]
fn the_canonical_text_and_its_digest() {
    let text = block("REPRESENTATION.md", "canonical");
    assert_eq!(PulseClient::INTERFACE.canonical_text(), text);
    let digest = block("REPRESENTATION.md", "digest");
    assert_eq!(PulseClient::INTERFACE.digest().to_string(), digest.trim());
}

#[interface(name = "Word")]
trait WordAsBlock {
    fn say(&self, word: &str) -> peregrine::Result<()>;
}

#[interface(name = "Word")]
trait WordAsValue {
    fn say(&self, word: String) -> peregrine::Result<()>;
}

#[interface(name = "Word")]
trait Words {
    fn say(&self, word: &[String]) -> peregrine::Result<()>;
}

/// `&str` travels as a block, a `String` in the head, and `&[String]` there too, with a count of
/// its own: no client may take one for the other.
#[test]
fn text_in_a_block_and_texts_in_the_head_are_told_apart() {
    let lines = block("REPRESENTATION.md", "words");
    let interfaces =
        [WordAsBlockClient::INTERFACE, WordAsValueClient::INTERFACE, WordsClient::INTERFACE];
    for (line, interface) in lines.lines().zip(interfaces) {
        assert_eq!(interface.canonical_text().lines().nth(1), Some(line));
    }
    assert_eq!(lines.lines().count(), interfaces.len());
}

// Calls and replies.

#[derive(Debug, PartialEq, Value)]
enum GoldenError {
    Call(String),
    Code(u16),
}

impl From<CallError> for GoldenError {
    fn from(error: CallError) -> Self {
        Self::Call(error.to_string())
    }
}

#[interface]
trait Golden {
    fn nothing(&self) -> peregrine::Result<()>;
    fn add(&self, a: i32, b: i32) -> peregrine::Result<i32>;
    fn mixed(
        &self,
        flag: bool,
        path: &str,
        numbers: &[u16],
        names: &[String],
    ) -> peregrine::Result<u64>;
    fn lend(&self, key: &str, a: Lent<'_, u8>, b: Lent<'_, u16>) -> peregrine::Result<u32>;
    fn read(
        &self,
        offset: u64,
        #[max_len(24)] text: Out<'_, u8>,
        digits: Out<'_, u16>,
    ) -> peregrine::Result<u64>;
    fn change(
        &self,
        counter: &mut u32,
        values: &mut [u16],
        names: &mut [String],
    ) -> peregrine::Result<bool>;
    fn fail(&self, code: u16, into: Out<'_, u8>) -> Result<(), GoldenError>;
    fn wide(&self, into: Out<'_, u8>) -> peregrine::Result<String>;
    fn stop(&self) -> peregrine::Result<()>;
}

struct Object;

const WIDE: &str = "a result that is too long for the rest";

impl Golden for Object {
    fn nothing(&self) -> peregrine::Result<()> {
        Ok(())
    }
    fn add(&self, a: i32, b: i32) -> peregrine::Result<i32> {
        Ok(a + b)
    }
    fn mixed(
        &self,
        flag: bool,
        path: &str,
        numbers: &[u16],
        names: &[String],
    ) -> peregrine::Result<u64> {
        assert_eq!((flag, path, numbers), (true, "falcon", &[1, 2, 3][..]));
        assert_eq!(names, ["a", "bc"]);
        Ok(0x0102)
    }
    fn lend(&self, key: &str, a: Lent<'_, u8>, b: Lent<'_, u16>) -> peregrine::Result<u32> {
        let (mut first, mut second) = ([0; 3], [0; 2]);
        a.copy_to(0, &mut first).expect("three bytes");
        b.copy_to(0, &mut second).expect("two numbers");
        assert_eq!((key, first, second), ("k", [7, 8, 9], [0x0102, 0x0304]));
        Ok(5)
    }
    fn read(
        &self,
        offset: u64,
        mut text: Out<'_, u8>,
        mut digits: Out<'_, u16>,
    ) -> peregrine::Result<u64> {
        assert_eq!((offset, text.capacity(), digits.capacity()), (7, 24, 3));
        text.put(b"hello").expect("room");
        digits.put(&[1, 2]).expect("room");
        Ok(9)
    }
    fn change(
        &self,
        counter: &mut u32,
        values: &mut [u16],
        names: &mut [String],
    ) -> peregrine::Result<bool> {
        *counter += 1;
        values.reverse();
        names[0] = "q".into();
        Ok(true)
    }
    fn fail(&self, code: u16, mut into: Out<'_, u8>) -> Result<(), GoldenError> {
        into.put(&[1]).expect("room");
        Err(GoldenError::Code(code))
    }
    fn wide(&self, mut into: Out<'_, u8>) -> peregrine::Result<String> {
        into.put(&[1, 2]).expect("room");
        Ok(WIDE.into())
    }
    fn stop(&self) -> peregrine::Result<()> {
        panic!("stop")
    }
}

/// Calls of which a client is the source, in this order.
const CASES: &[&str] =
    &["nothing", "add", "mixed", "lend", "read", "change", "fail", "wide", "stop", "ping"];
/// Calls that no client of ours makes.
const SERVER_CASES: &[&str] = &["unknown", "unreadable", "overfull"];

/// Makes the call of a case and looks at what comes of it.
fn call(client: &GoldenClient, case: &str) {
    match case {
        "nothing" => client.nothing().unwrap(),
        "add" => assert_eq!(client.add(2, -5).unwrap(), -3),
        "mixed" => {
            let names = ["a".to_owned(), "bc".to_owned()];
            assert_eq!(client.mixed(true, "falcon", &[1, 2, 3], &names).unwrap(), 0x0102);
        }
        "lend" => {
            let (a, b) = (Lent::from(&[7, 8, 9]), Lent::from(&[0x0102, 0x0304]));
            assert_eq!(client.lend("k", a, b).unwrap(), 5);
        }
        "read" => {
            let (mut text, mut digits) = ([0; 100], [0; 3]);
            let (mut a, mut b) = (Out::from(&mut text), Out::from(&mut digits));
            assert_eq!(client.read(7, a.by_ref(), b.by_ref()).unwrap(), 9);
            assert_eq!((a.filled(), b.filled()), (5, 2));
            assert_eq!((&text[..5], &digits[..2]), (&b"hello"[..], &[1, 2][..]));
        }
        "change" => {
            let (mut counter, mut values, mut names) = (41, [1, 2], ["x".to_owned()]);
            assert!(client.change(&mut counter, &mut values, &mut names).unwrap());
            assert_eq!((counter, values, &*names[0]), (42, [2, 1], "q"));
        }
        "fail" => {
            let mut buffer = [0; 2];
            let failed = client.fail(0x0201, Out::from(&mut buffer));
            assert_eq!(failed, Err(GoldenError::Code(0x0201)));
        }
        "wide" => {
            let mut buffer = [0; 4];
            assert_eq!(client.wide(Out::from(&mut buffer)).unwrap(), WIDE);
            assert_eq!(buffer, [1, 2, 0, 0]);
        }
        "stop" => {
            let error = client.stop().unwrap_err();
            assert_eq!((error.kind(), error.executed()), (Kind::Panicked, Executed::Maybe));
            assert_eq!(error.detail(), "stop");
        }
        "ping" => client.binding().ping().unwrap(),
        // Replies that only a refusing server gives.
        _ => {
            let error = client.nothing().unwrap_err();
            assert_eq!(error.executed(), Executed::No, "{case}");
            let kinds = [Kind::NoSuchProcedure, Kind::BadArguments, Kind::TooLarge];
            assert!(kinds.contains(&error.kind()), "{case}: {error}");
        }
    }
}

/// The words of a header as the document has them.
fn words(name: &str) -> Vec<u32> {
    let bytes = bytes(name, 0);
    bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

/// Cases that stand in the document as a big-endian server sees them.
const BIG_CASES: &[&str] = &["add", "mixed", "lend", "read", "change", "fail", "stop"];

/// A big-endian server that has learnt the document by heart.
struct Big;

impl Serve for Big {
    fn interface(&self) -> Known {
        GoldenClient::INTERFACE.into()
    }
    fn byte_order(&self) -> ByteOrder {
        ByteOrder::Big
    }
    fn serve(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Served {
        let case = BIG_CASES
            .iter()
            .find(|case| words(&format!("call {case} header"))[0] == request.procedure());
        let case = case.expect("a case of the document");
        let [_, head_bytes, copied, total] =
            words(&format!("call {case} header")).try_into().expect("four words");
        let raw = request.raw();
        let mut message = vec![0; total as usize];
        let (head, rest) = message.split_at_mut(head_bytes as usize);
        raw.head.read(0, head).expect("a head as long as it says");
        let blocks = rest.len() - raw.copied.len() - raw.lent.len();
        let rest = &mut rest[blocks..];
        rest[..raw.copied.len()].copy_from_slice(raw.copied);
        raw.lent.read(&mut rest[raw.copied.len()..])?;
        assert_eq!(total as usize - raw.lent.len(), copied as usize, "{case}");
        check(&format!("big call {case}"), &message);

        let [answer, _, head_at, head_bytes] = {
            let header = bytes(&format!("reply {case} header"), 0);
            let word = |at| u32::from_le_bytes(header[at..at + 4].try_into().expect("a word"));
            [0, 4, 8, 12].map(|at| word(at) as usize)
        };
        let message = bytes(&format!("big reply {case}"), 0);
        let capacities: &[usize] = match *case {
            "read" => &[24, 6],
            "change" => &[4, 0],
            "fail" => &[2],
            _ => &[],
        };
        reply.expect(capacities.len());
        let mut at = 32;
        for (index, capacity) in capacities.iter().enumerate() {
            let block = reply.block(*capacity).expect("room");
            if answer == 0 {
                let filled = message[4 * index..][..4].try_into().expect("the table's entry");
                let filled = u32::from_le_bytes(filled) as usize;
                block.write(0, message.get(at..at + filled).unwrap_or(&[])).expect("room");
                reply.filled(index, filled)?;
                at = (at + capacity).next_multiple_of(16);
            }
        }
        let answer = Answer::from_number(answer as u32).expect("an answer");
        reply.raw(answer, &message[head_at..head_at + head_bytes])
    }
}

/// A little-endian client sends to a big-endian server what stands in the document, and understands
/// its replies.
#[test]
fn a_client_converts_to_the_byte() {
    let binding = Binding::in_process(Arc::new(Big), &BindOptions::default());
    let client = GoldenClient { binding };
    for case in BIG_CASES {
        call(&client, case);
    }
}

/// The stub of a server answers the calls of the document with its replies.
#[test]
fn a_server_stub_answers_to_the_byte() {
    for case in CASES.iter().chain(SERVER_CASES) {
        let words = words(&format!("call {case} header"));
        let message = bytes(&format!("call {case}"), 0);
        assert_eq!(message.len(), words[3] as usize, "{case}");
        let mut space = [0u128; 256];
        for (place, chunk) in space.iter_mut().zip(message.chunks(16)) {
            let mut whole = [0; 16];
            whole[..chunk.len()].copy_from_slice(chunk);
            *place = u128::from_le_bytes(whole);
        }
        let image: Vec<u8> = space.iter().flat_map(|part| part.to_le_bytes()).collect();
        let incoming = Incoming {
            procedure: words[0],
            space: Window::from(&image[..]),
            head_bytes: words[1] as usize,
            copied: words[2] as usize,
            total: words[3] as usize,
            arrives: None,
            departs: None,
        };
        let mut reply = [0xaa; 4096];
        let server = GoldenServer::new(Object);
        let mut estack = EStack::default();
        let run = || execute(&server, &incoming, Space::of_mut(&mut reply), &mut estack);
        let Ok((answer, head_at, head_bytes)) = catch_unwind(AssertUnwindSafe(run)) else {
            // Paths catch panics and refuse; what a client makes of it is held below.
            assert_eq!(*case, "stop");
            continue;
        };
        let mut header = Vec::new();
        for word in [answer as u32, 0, head_at, head_bytes] {
            header.extend(word.to_le_bytes());
        }
        check(&format!("reply {case} header"), &header);
        let name = format!("reply {case}");
        check(&name, &reply[..pattern(&name).len()]);
        assert!(head_at as usize + head_bytes as usize <= pattern(&name).len(), "{case}");
        assert_eq!(Answer::from_number(answer as u32), Some(answer));
    }
}

// The other side of the local path, written from the documents alone.

const HANDSHAKE: &[&str] = &[
    "describe",
    "description",
    "bind",
    "bound",
    "bind again",
    "bound again",
    "ring",
    "refused",
    "goodbye",
    "unbind",
    "revoked",
    "deadline",
    "count",
    "counters",
    "counters header",
    "counters thread",
    "counters export",
    "counters session",
    "counters binding",
    "counters lane",
];

/// How long calls took that were counted: in the middle of a bucket.
const LATENCY: Duration = Duration::from_nanos(100);
/// How long the client waits for a call that nobody answers.
const LIMIT: Duration = Duration::from_millis(500);

/// A server that knows nothing of this crate but its shared memory.
struct Foreign {
    listener: OwnedFd,
}

impl Foreign {
    fn new(directory: &Path, name: &str) -> Self {
        let listener =
            rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        let address = SocketAddrUnix::new(directory.join(name)).unwrap();
        rustix::net::bind(&listener, &address).unwrap();
        rustix::net::listen(&listener, 4).unwrap();
        Self { listener }
    }

    /// Lets a client in and checks what it asks for.
    fn asked(&self, request: &str) -> OwnedFd {
        let socket = rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC).unwrap();
        check(request, &received(&socket));
        socket
    }

    fn serve(&self, taken_all: &Receiver<()>) {
        let asked = self.asked("describe");
        send(&asked, &bytes("description", 0), None);
        let asked = self.asked("count");
        let (counters, file) = counters();
        send(&asked, &bytes("counters", 0), Some(&file));
        drop(counters);
        let refused = self.asked("bind");
        send(&refused, &bytes("refused", 0), None);

        let socket = self.asked("bind");
        // 4096 reserved bytes; a half is 32 + 2^20 + 2^21 bytes up to a multiple of 128.
        let half = 3 * (1 << 20) + 128;
        let (call, reply, taken) = (4096, 4096 + half, 4096 + 2 * half);
        let (memory, file) = sys::Memory::shared(6_299_648).unwrap();
        send(&socket, &bytes("bound", 0), Some(&file));
        // The call of that number, once the client has rung for it. On a machine that is late it rings
        // again for one that was answered meanwhile.
        let rung_for = |n: u32| {
            loop {
                check("ring", &received(&socket));
                match memory.word(call).load(Ordering::Acquire) {
                    0 => {}
                    posted => {
                        assert_eq!(posted, n << 3 | 1);
                        return posted;
                    }
                }
            }
        };
        let mut calls = 0;
        for (n, case) in (1u32..).zip(CASES.iter().chain(SERVER_CASES)) {
            let posted = rung_for(n);
            let (call_word, reply_word) = (memory.word(call), memory.word(reply));
            memory.word(taken).store(posted, Ordering::Relaxed);
            if CASES.contains(case) {
                let mut header = [0; 28];
                memory.space().read(call + 4, &mut header).unwrap();
                assert_eq!(header[..4], bytes("bound", 0)[32..36], "the binding's number");
                check(&format!("call {case} header"), &header[4..20]);
                assert_eq!(header[24..], [0; 4], "nothing is unusual about it");
                let mut message = bytes(&format!("call {case}"), 0);
                memory.space().read(call + 32, &mut message).unwrap();
                check(&format!("call {case}"), &message);
            }
            let header = bytes(&format!("reply {case} header"), 0xff);
            memory.space().write(reply + 4, &header).unwrap();
            let message = bytes(&format!("reply {case}"), 0xee);
            memory.space().write(reply + 32, &message).unwrap();
            calls = n;
            if reply_word.swap(posted, Ordering::AcqRel) == 2 {
                sys::futex_wake(reply_word);
            }
            // The server leaves after it has replied: the next call rings. A call that is posted
            // already rings when its caller sees that the call is not taken.
            let _ = call_word.compare_exchange(posted, 0, Ordering::AcqRel, Ordering::Acquire);
        }
        // What has a limit says how long its caller still waits, behind a message of no bytes.
        let posted = rung_for(calls + 1);
        memory.word(taken).store(posted, Ordering::Relaxed);
        let manner: u32 = memory.space().read_plain(call + 28).unwrap();
        assert_eq!(manner, 16, "bytes of extensions");
        let mut deadline = [0; 16];
        memory.space().read(call + 32, &mut deadline).unwrap();
        check("deadline", &deadline);
        let left = u64::from_le_bytes(*deadline.last_chunk().unwrap());
        assert!((1..=LIMIT.as_micros() as u64).contains(&left), "{left} us");
        // It is not answered: the client gives it up, and says so.
        taken_all.recv().expect("the client gave up");
        // It may have rung again before it saw that the call was taken.
        let mut again = [0; 256];
        while let Ok((bytes, _)) = rustix::net::recv(&socket, &mut again, RecvFlags::DONTWAIT) {
            check("ring", &again[..bytes]);
        }
        assert_eq!(memory.word(taken + 132).load(Ordering::Relaxed), posted);
        memory.space().write(reply + 4, &bytes("reply nothing header", 0)).unwrap();
        memory.word(reply).swap(posted, Ordering::AcqRel);
        memory.word(call).store(0, Ordering::Release);
        taken_all.recv().expect("the client took the last reply");
        // A second binding joins the session; it is revoked, and goes.
        let second = self.asked("bind again");
        send(&second, &bytes("bound again", 0), None);
        drop(second);
        taken_all.recv().expect("the client is bound twice");
        send(&socket, &bytes("revoked", 0), None);
        check("unbind", &received(&socket));
        send(&socket, &bytes("goodbye", 0), None);
        // Until the client has gone.
        assert!(received(&socket).is_empty());
    }
}

/// Counters of a server, as the document has them.
fn counters() -> (sys::Memory, OwnedFd) {
    let (memory, file) = sys::Memory::shared(88_117_248).unwrap();
    for (at, name) in [
        (0, "header"),
        (4_096 + 128, "thread"),
        (20_480, "export"),
        (36_864, "session"),
        (1_085_440 + 64 * 128, "binding"),
        // Of the second thread, of that binding.
        (2_134_016 + (8_192 + 64) * 64, "lane"),
        // Nine calls that took 100 ns: in the bucket of 96 to 104.
    ] {
        let vector = bytes(&format!("counters {name}"), 0);
        memory.space().write(at, &vector).unwrap();
    }
    memory.space().write(20_480 + 16 * 8, b"Alloy").unwrap();
    let bucket = (4 << 3) + 4;
    let calls = 9u64.to_ne_bytes();
    memory.space().write(69_242_880 + 64 * 2_304 + bucket * 8, &calls).unwrap();
    (memory, file)
}

fn received(socket: &OwnedFd) -> Vec<u8> {
    let mut buffer = [0u8; 256];
    let (bytes, _) = rustix::net::recv(socket, &mut buffer, RecvFlags::empty()).unwrap();
    buffer[..bytes].to_vec()
}

fn send(socket: &OwnedFd, message: &[u8], file: Option<&OwnedFd>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let files = file.map(|file| [file.as_fd()]);
    if let Some(files) = &files {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(files)));
    }
    let message = [std::io::IoSlice::new(message)];
    rustix::net::sendmsg(socket, &message, &mut ancillary, SendFlags::empty()).unwrap();
}

/// A client calls through a region that a hand-written server gave it.
#[test]
fn a_client_writes_and_reads_to_the_byte() {
    const PART: &str = "PEREGRINE_TEST_PART";
    if std::env::var_os(PART).is_none() {
        // Names are looked up in a directory of this test's own.
        let directory = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["a_client_writes_and_reads_to_the_byte", "--exact", "--nocapture"])
            .env(PART, "client")
            .env("PEREGRINE_DIR", directory.path())
            .spawn()
            .unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while Instant::now() < until {
            if let Some(status) = child.try_wait().unwrap() {
                assert!(status.success(), "see what the child says above");
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        panic!("client and server wait for each other");
    }
    let directory = std::env::var_os("PEREGRINE_DIR").expect("set by the test");
    let foreign = Foreign::new(Path::new(&directory), "golden");
    let (took_all, taken_all) = channel();
    let server = std::thread::spawn(move || foreign.serve(&taken_all));

    let description = peregrine::describe("golden").unwrap();
    assert_eq!((&*description.interface, description.version), ("Golden", 0));
    assert_eq!((&*description.text, &*description.docs), ("text", &["d".to_owned()][..]));
    assert_eq!((description.process, description.age_ms, description.bindings), (1, 2, 3));
    assert_eq!(
        (&*description.listens, description.network),
        (&["tcp:127.0.0.1".to_owned()][..], 4)
    );
    let stat = peregrine::stat("golden").unwrap();
    assert_eq!((stat.server.process, stat.server.threads), (77, [0, 1, 0]));
    assert_eq!((stat.server.waits.spun, stat.server.waits.slept), (5, 6));
    assert_eq!((stat.server.resent, stat.server.came_again), (7, 8));
    let (gold, session) = (stat.export("gold").unwrap(), &stat.sessions[0]);
    assert_eq!((&*gold.interface, gold.version, gold.digest), ("Alloy", 3, [0xab; 16]));
    assert_eq!((session.number, &*session.path, &*session.from), (9, "tcp", "192.0.2.7:7001"));
    let counts = stat.bindings[0].counts;
    assert_eq!((counts.calls, counts.in_flight, counts.refused), (3, 1, 1));
    assert_eq!((counts.failed, counts.bytes_in, counts.bytes_out), (0, 64, 128));
    assert_eq!((gold.counts, session.counts, gold.bindings), (counts, counts, 1));
    assert_eq!((gold.latency.calls(), gold.latency.percentile(1.0)), (9, Some(LATENCY)));
    let options = BindOptions::default().astacks(1).wait(Wait::Block);
    let error = GoldenClient::bind_with("golden", &options).unwrap_err();
    assert_eq!((error.kind(), error.detail()), (Kind::Denied, "no"));

    // A server that finds other bytes than it expects ends, and its calls with it.
    let client = GoldenClient::bind_with("golden", &options);
    let client = client.unwrap();
    for case in CASES.iter().chain(SERVER_CASES) {
        call(&client, case);
    }
    let error = client.with_timeout(LIMIT).nothing().unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::Maybe));
    took_all.send(()).expect("the server waits for it");
    took_all.send(()).expect("the server waits for it");
    let second = GoldenClient::bind_with("golden", &options).unwrap();
    assert!(second.is_alive());
    took_all.send(()).expect("the server waits for it");
    let until = Instant::now() + Duration::from_secs(10);
    while second.is_alive() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!second.is_alive() && client.is_alive());
    drop(second);
    let until = Instant::now() + Duration::from_secs(10);
    while client.is_alive() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    let error = client.nothing().unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::Withdrawn, Executed::No));
    drop(client);
    server.join().expect("the server found every byte");
}
