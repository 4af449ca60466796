//! Checks the bytes of values in both byte orders, and bytes that are not a valid value.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::ffi::OsString;
use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::num::NonZero;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use peregrine::interface::Type;
use peregrine::value::{Invalid, Native, Reader, Representation, Space, Swapped, Window, Writer};
use peregrine::{CallError, Executed, Kind, Plain, Value};

use crate::document::{bytes, check, vectors};

#[derive(Clone, Debug, PartialEq, Value)]
pub(crate) struct List {
    value: u32,
    next: Option<Box<Self>>,
}

#[derive(Clone, Debug, PartialEq, Value)]
pub(crate) enum Shape {
    Empty,
    Circle(f32),
    Named { name: String, sides: u16 },
}

#[derive(Clone, Copy, Debug, PartialEq, Plain)]
#[repr(C)]
pub(crate) struct Point {
    id: u64,
    at: [i16; 2],
    visible: bool,
    pad: [u8; 3],
}

#[derive(Clone, Copy, Debug, PartialEq, Plain)]
#[repr(u16)]
pub(crate) enum Colour {
    Red = 1,
    Green = 0x0203,
}

#[derive(Clone, Debug, PartialEq, Value)]
struct Nothing {}

fn encode<T: Value>(value: &T) -> Vec<u8> {
    encode_in::<T, Native>(value)
}

pub(crate) fn encode_in<T: Value, R: Representation>(value: &T) -> Vec<u8> {
    let mut memory = [0xaa; 4096];
    let mut writer = Writer::<R>::represented(Space::of_mut(&mut memory));
    value.encode(&mut writer).expect("enough space");
    writer.flush();
    let bytes = writer.len();
    memory[..bytes].to_vec()
}

fn decode<T: Value>(bytes: &[u8]) -> Result<T, Invalid> {
    decode_in::<T, Native>(bytes)
}

pub(crate) fn decode_in<T: Value, R: Representation>(bytes: &[u8]) -> Result<T, Invalid> {
    let mut reader = Reader::<R>::represented(Window::from(bytes));
    let value = T::decode(&mut reader)?;
    reader.finish()?;
    Ok(value)
}

/// Returns the name of the vector that a big-endian server uses. If the bytes are the same in both byte
/// orders, this is the vector `name` itself.
pub(crate) fn big(name: &str) -> String {
    let big = format!("big {name}");
    if vectors().contains_key(&big) { big } else { name.to_owned() }
}

pub(crate) fn holds<T: Value + PartialEq + Debug>(name: &str, value: T) {
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
            "{name}: the first {short} bytes are also a value"
        );
    }
}

pub(crate) const VALUES: &[&str] = &[
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
    "plain struct after a byte",
    "plain enum",
    "variant 0",
    "variant 1",
    "variant 2",
    "struct without fields",
    "call error",
    "empty aligned sequence",
    "empty array after a byte",
    "non-zero",
    "set",
    "map",
    "duration",
    "system time",
    "ipv4",
    "ipv6",
    "ip",
    "socket v4",
    "socket v6",
    "socket",
    "path",
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
fn values_of_the_standard_library() {
    let pairs = [("b".to_owned(), 2u16), ("a".to_owned(), 1)];
    holds("non-zero", NonZero::new(5u32).expect("five"));
    holds("set", BTreeSet::from([3u16, 1, 2]));
    holds("set", HashSet::from([3u16, 1, 2]));
    holds("map", BTreeMap::from(pairs.clone()));
    holds("map", HashMap::from(pairs));
    holds("duration", Duration::from_millis(1500));
    holds("system time", SystemTime::UNIX_EPOCH - Duration::from_nanos(1));
    let (v4, v6) = (Ipv4Addr::new(192, 0, 2, 7), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7));
    holds("ipv4", v4);
    holds("ipv6", v6);
    holds("ip", IpAddr::from(v4));
    holds("socket v4", SocketAddrV4::new(v4, 7193));
    let socket = SocketAddrV6::new(v6, 7193, 1, 2);
    holds("socket v6", socket);
    holds("socket", SocketAddr::from(socket));
    let name = OsString::from_vec(b"/tmp\xff".to_vec());
    holds("path", PathBuf::from(&name));
    holds("path", name);
    holds("text", Box::<str>::from("falcon"));
    holds("text", Arc::<str>::from("falcon"));
    holds("text", Rc::<str>::from("falcon"));
    holds("text", Cow::Borrowed("falcon"));
    holds("sequence", VecDeque::from([7u16, 8, 9]));
    holds("sequence", Box::<[u16]>::from([7, 8, 9]));
    holds("sequence", Arc::<[u16]>::from([7, 8, 9]));
    holds("sequence", Rc::<[u16]>::from([7, 8, 9]));
    holds("sequence", Cow::<'static, [u16]>::Owned(vec![7, 8, 9]));
    holds("box", Arc::new(0x1234_5678u32));
    holds("box", Rc::new(0x1234_5678u32));
    holds("box", Cow::<'static, u32>::Owned(0x1234_5678));
}

#[test]
fn plain_types() {
    let point = Point { id: 1, at: [2, -2], visible: true, pad: [0; 3] };
    holds("plain struct", point);
    holds("plain struct after a byte", (9u8, point));
    holds("plain enum", Colour::Green);
    assert_eq!(decode(&[1, 0]), Ok(Colour::Red));
}

/// Padding is only inserted before an element, so an array or a sequence without elements has no padding.
#[test]
fn empty_arrays_and_sequences_have_no_padding() {
    holds("empty array after a byte", (1u8, [0u64; 0], 2u8));
    holds("empty aligned sequence", Vec::<u64>::new());
}

#[test]
fn call_errors_are_sent_as_truncated_text() {
    let error = CallError::new(Kind::ServerGone, Executed::Maybe, "process 77");
    check("call error", &encode(&error));
    check("big call error", &encode_in::<_, Swapped>(&error));
    let relayed: CallError = decode(&bytes("call error", 0)).unwrap();
    assert_eq!((relayed.kind(), relayed.executed()), (Kind::Relayed, Executed::Maybe));
    assert_eq!(relayed.detail(), "calling: the server is gone: process 77");
    let long = CallError::new(Kind::ServerGone, Executed::Maybe, "é".repeat(2000));
    // A prefix of 29 bytes and 1009 letters of two bytes are sent. Only half of the next letter would fit, so
    // that letter is not sent.
    assert_eq!(encode(&long).len(), 4 + 2047);
}

pub(crate) const INVALID: &[&str] = &[
    "not a bool",
    "not a char",
    "not a variant",
    "not a plain struct",
    "not a plain enum",
    "not text",
    "not an option",
    "not a non-zero",
    "not a set",
    "not a map",
    "not a duration",
    "not a system time",
    "not an ip",
    "short text",
    "long u16",
];

/// Asserts that the bytes of the vector `name` are not a valid value of the type `T`, in either byte order.
pub(crate) fn refused<T: Value + Debug>(name: &str, why: Invalid) {
    assert_eq!(decode::<T>(&bytes(name, 0)).err(), Some(why), "{name}");
    let big = format!("big {name}");
    if vectors().contains_key(&big) {
        assert_eq!(decode_in::<T, Swapped>(&bytes(&big, 0)).err(), Some(why), "{big}");
    }
}

#[test]
fn invalid_values_are_refused() {
    refused::<bool>("not a bool", Invalid::Bits);
    refused::<char>("not a char", Invalid::Bits);
    refused::<Shape>("not a variant", Invalid::Bits);
    refused::<Point>("not a plain struct", Invalid::Bits);
    refused::<Colour>("not a plain enum", Invalid::Bits);
    refused::<String>("not text", Invalid::Utf8);
    refused::<Option<u8>>("not an option", Invalid::Bits);
    refused::<NonZero<u32>>("not a non-zero", Invalid::Bits);
    refused::<BTreeSet<u16>>("not a set", Invalid::Duplicate);
    refused::<HashSet<u16>>("not a set", Invalid::Duplicate);
    refused::<BTreeMap<u16, u16>>("not a map", Invalid::Duplicate);
    refused::<HashMap<u16, u16>>("not a map", Invalid::Duplicate);
    refused::<Duration>("not a duration", Invalid::Bits);
    refused::<SystemTime>("not a system time", Invalid::Bits);
    refused::<IpAddr>("not an ip", Invalid::Bits);
    refused::<String>("short text", Invalid::Short);
    refused::<u16>("long u16", Invalid::Long);
}

/// A value whose depth of nesting is given by the bytes from which it is decoded.
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
    // Each level is an option and a box, so 128 levels are nested 256 deep.
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
