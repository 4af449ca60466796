//! Checks the bytes of values in the representations of ONC RPC and Courier.

use std::fmt::Debug;

use peregrine::foreign::{
    ByteString, Cells, Courier, Foreign, Output, Reports, Xdr, from_bytes, to_bytes,
};

use crate::document::{bytes, check, vectors};

/// Returns whether the test of this file checks the vector with this name.
pub(crate) fn is_own(name: &str) -> bool {
    name.starts_with("xdr ") || name.starts_with("courier ")
}

#[derive(Debug, PartialEq, Foreign)]
struct File {
    #[foreign(max = 255)]
    name: ByteString,
    kind: FileType,
    #[foreign(max = 32)]
    owner: String,
    #[foreign(max = 65536)]
    data: Vec<u8>,
}

#[derive(Debug, PartialEq, Foreign)]
#[foreign(switch = FileKind)]
enum FileType {
    #[foreign(case = FileKind::Text)]
    Text,
    #[foreign(case = FileKind::Data)]
    Data(#[foreign(max = 255)] String),
    #[foreign(case = FileKind::Exec)]
    Exec(#[foreign(max = 255)] String),
}

#[derive(Debug, PartialEq, Foreign)]
enum FileKind {
    Text = 0,
    Data = 1,
    Exec = 2,
}

#[derive(Debug, PartialEq, Foreign)]
struct List {
    value: u32,
    next: Option<Box<Self>>,
}

#[derive(Debug, PartialEq, Foreign)]
enum Open {
    #[foreign(case = 0)]
    Known,
    #[foreign(default)]
    Other(i32, u32),
}

#[derive(Debug, PartialEq, Foreign)]
enum Letters {
    A,
    B = 7,
}

#[derive(Debug, PartialEq, Foreign)]
struct Address {
    network: u32,
    host: [u16; 3],
    socket: u16,
}

#[derive(Debug, PartialEq, Foreign)]
enum StreamOf<T> {
    #[foreign(case = 0)]
    Next(Vec<T>, Box<Self>),
    #[foreign(case = 1)]
    Last(Vec<T>),
}

#[derive(Debug, Foreign)]
enum CallError {
    #[foreign(error = 1)]
    Call(u16),
}

/// The names of the vectors that were checked.
#[derive(Default)]
struct Held(Vec<&'static str>);

impl Held {
    fn value<R: Cells, T: Foreign<R> + PartialEq + Debug>(&mut self, name: &'static str, value: T) {
        check(name, &to_bytes::<R>(&value).expect("a value within all limits"));
        assert_eq!(from_bytes::<R, T>(&bytes(name, 0)), Ok(value), "{name}");
        self.0.push(name);
    }
}

#[test]
fn values_of_foreign_representations() {
    let held = &mut Held::default();
    in_xdr(held);
    in_courier(held);
    held.0.sort_unstable();
    let own: Vec<&str> = vectors().keys().map(|name| &**name).filter(|name| is_own(name)).collect();
    assert_eq!(held.0, own, "each vector is checked once");
}

fn in_xdr(held: &mut Held) {
    let file = File {
        name: "sillyprog".into(),
        kind: FileType::Exec("lisp".into()),
        owner: "john".into(),
        data: b"(quit)".to_vec(),
    };
    held.value::<Xdr, _>("xdr file", file);
    held.value::<Xdr, _>("xdr true", true);
    held.value::<Xdr, _>("xdr i32 -2", -2i32);
    held.value::<Xdr, _>("xdr u32", 0x1234_5678u32);
    held.value::<Xdr, _>("xdr i64 -2", -2i64);
    held.value::<Xdr, _>("xdr u64", 0x0102_0304_0506_0708u64);
    held.value::<Xdr, _>("xdr i16 -1", -1i16);
    held.value::<Xdr, _>("xdr u16", 0xffffu16);
    held.value::<Xdr, _>("xdr i8 -1", -1i8);
    held.value::<Xdr, _>("xdr u8", 0xffu8);
    held.value::<Xdr, _>("xdr f32 1.5", 1.5f32);
    held.value::<Xdr, _>("xdr f64 -1.5", -1.5f64);
    held.value::<Xdr, _>("xdr opaque[3]", [1u8, 2, 3]);
    held.value::<Xdr, _>("xdr opaque<> of 3", vec![1u8, 2, 3]);
    held.value::<Xdr, _>("xdr i16 x[2]", [1i16, -1]);
    held.value::<Xdr, _>("xdr u64 x<>", vec![7u64]);
    held.value::<Xdr, _>("xdr string", String::from("abc"));
    held.value::<Xdr, _>("xdr option", Some(7u32));
    held.value::<Xdr, _>("xdr none", None::<u32>);
    let next = Some(Box::new(List { value: 2, next: None }));
    held.value::<Xdr, _>("xdr list 1 2", List { value: 1, next });
    held.value::<Xdr, _>("xdr default 9", Open::Other(9, 5));
    assert_eq!(to_bytes::<Xdr>(&(Open::Known, Letters::A)), Ok(vec![0; 8]));
    let text = (FileType::Text, FileType::Data("x".into()));
    assert_eq!(to_bytes::<Xdr>(&text), Ok(vec![0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, b'x', 0, 0, 0]));
}

fn in_courier(held: &mut Held) {
    held.value::<Courier, _>("courier TRUE", true);
    held.value::<Courier, _>("courier INTEGER -1", -1i16);
    held.value::<Courier, _>("courier CARDINAL", 0xfffeu16);
    held.value::<Courier, _>("courier LONG INTEGER -2", -2i32);
    held.value::<Courier, _>("courier LONG CARDINAL", 0x1234_5678u32);
    held.value::<Courier, _>("courier STRING empty", String::new());
    held.value::<Courier, _>("courier STRING ab", String::from("ab"));
    held.value::<Courier, _>("courier STRING abc", ByteString::from("abc"));
    let record = ["Xerox", "PA", "x"].map(String::from);
    held.value::<Courier, _>("courier RECORD", <(String, String, String)>::from(record));
    held.value::<Courier, _>("courier ARRAY", [1u16, 2]);
    held.value::<Courier, _>("courier SEQUENCE", vec![1u16, 2]);
    held.value::<Courier, _>("courier enumeration", Letters::B);
    let address = Address { network: 0x0401, host: [0x1000, 0xff12, 0x3401], socket: 5 };
    held.value::<Courier, _>("courier addresses", vec![address]);
    held.value::<Courier, _>("courier StreamOf one segment", StreamOf::Last(vec![1u16, 2, 3]));
    let stream = StreamOf::Next(vec![1u16, 2], Box::new(StreamOf::Last(vec![3])));
    held.value::<Courier, _>("courier StreamOf two segments", stream);
    let error = CallError::Call(2);
    let mut memory = [0xaa; 2];
    error.put_arguments(&mut Output::new(&mut memory)).expect("two bytes");
    assert_eq!(error.number(), Some(1));
    check("courier error arguments", &memory);
    held.0.push("courier error arguments");
}
