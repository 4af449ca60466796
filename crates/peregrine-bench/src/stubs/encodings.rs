//! Measures how long the three types of the study take in other encodings, and compares the times with
//! Peregrine's. A value is encoded into a buffer that is reused, and decoded into an owned value.
//!
//! * `prost`: Protocol Buffers. Integers are `sfixed32`, which is the fastest encoding for them.
//! * `capnp`: Cap'n Proto. Hand-written code replaces the output of its compiler, and uses the same runtime.
//!   Decoding copies the message into values. A program that reads the fields in the message avoids this
//!   copy.
//! * `rkyv`: archives that can be read without decoding (`access`, checked). Decoding creates owned values
//!   from them.
//! * `postcard`: a compact encoding for serde.
//!
//! For Peregrine, only the encoding and the decoding of a value are measured, in the native representation.
//! All decoders check what they read.

use std::hint::black_box;

use capnp::message::{self, ReaderOptions, ScratchSpaceHeapAllocator};
use capnp::private::layout::{ElementSize, PointerBuilder, PointerReader, StructSize};
use capnp::traits::{FromPointerBuilder, FromPointerReader};
use capnp::{any_pointer, primitive_list, serialize};
use prost::Message;
use rkyv::rancor;
use rkyv::util::AlignedVec;

use super::repeated::Repeated;
use super::shipped::{self, Row as Ours};
use super::user::{Data, User};
use crate::local::{in_turn, split};
use crate::row::Row;
use crate::subject::Failure;
use crate::{Progress, Selection};

/// The encodings with which Peregrine is compared.
const PEERS: [&str; 4] = ["prost", "capnp", "rkyv", "postcard"];

/// The structure (one of the three types), for encodings that derive their code from this definition.
#[derive(
    Clone,
    Debug,
    PartialEq,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
    serde::Serialize,
    serde::Deserialize,
)]
struct Derived {
    a: i32,
    b: i32,
    c: i32,
    d: Vec<i32>,
    e: Vec<Triple>,
    n: i32,
    s: String,
}

#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    rkyv::Archive,
    rkyv::Serialize,
    rkyv::Deserialize,
    serde::Serialize,
    serde::Deserialize,
)]
struct Triple {
    first: i32,
    second: i32,
    third: i32,
}

#[derive(Clone, PartialEq, Message)]
struct ProtoOne {
    #[prost(sfixed32, tag = "1")]
    i: i32,
}

#[derive(Clone, PartialEq, Message)]
struct ProtoArray {
    #[prost(sfixed32, repeated, tag = "1")]
    a: Vec<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct ProtoTriple {
    #[prost(sfixed32, tag = "1")]
    first: i32,
    #[prost(sfixed32, tag = "2")]
    second: i32,
    #[prost(sfixed32, tag = "3")]
    third: i32,
}

#[derive(Clone, PartialEq, Message)]
struct ProtoStructure {
    #[prost(sfixed32, tag = "1")]
    a: i32,
    #[prost(sfixed32, tag = "2")]
    b: i32,
    #[prost(sfixed32, tag = "3")]
    c: i32,
    #[prost(sfixed32, repeated, tag = "4")]
    d: Vec<i32>,
    #[prost(message, repeated, tag = "5")]
    e: Vec<ProtoTriple>,
    #[prost(sfixed32, tag = "6")]
    n: i32,
    #[prost(string, tag = "7")]
    s: String,
}

fn derived(user: &User) -> Derived {
    let triple = |&[first, second, third]: &[i32; 3]| Triple { first, second, third };
    Derived {
        a: user.first,
        b: user.second,
        c: user.third,
        d: user.array.to_vec(),
        e: user.records.iter().map(triple).collect(),
        n: user.label,
        s: String::from_utf8_lossy(&user.text[..]).into_owned(),
    }
}

fn proto(of: &Derived) -> ProtoStructure {
    let triple = |&Triple { first, second, third }: &Triple| ProtoTriple { first, second, third };
    let Derived { a, b, c, d, e, n, s } = of.clone();
    ProtoStructure { a, b, c, d, e: e.iter().map(triple).collect(), n, s }
}

/// Returns the program that encodes `value`, or the one that decodes it.
fn pair<T: 'static>(
    encodes: bool,
    value: T,
    encode: fn(&T, &mut Vec<u8>) -> bool,
    decode: fn(&mut T, &[u8]) -> bool,
) -> Repeated {
    let (mut value, mut buffer) = (value, Vec::with_capacity(8192));
    let (encode, decode) = black_box((encode, decode));
    encode(&value, &mut buffer);
    Repeated::new(move |times| {
        (0..times).fold(true, |fine, _| {
            fine & if encodes {
                buffer.clear();
                encode(&value, &mut buffer)
            } else {
                decode(&mut value, &buffer)
            }
        })
    })
}

fn with_prost<T: Message + Default + 'static>(encodes: bool, value: T) -> Repeated {
    pair(
        encodes,
        value,
        |value, buffer| value.encode(buffer).is_ok(),
        |value, bytes| T::decode(bytes).map(|decoded| *value = decoded).is_ok(),
    )
}

fn with_postcard<T>(encodes: bool, value: T) -> Repeated
where
    T: serde::Serialize + serde::de::DeserializeOwned + 'static,
{
    let (mut value, mut room, mut used) = (value, vec![0; 8192], 0);
    used = postcard::to_slice(&value, &mut room).map_or(used, |bytes| bytes.len());
    Repeated::new(move |times| {
        (0..times).fold(true, |fine, _| {
            let (value, room) = black_box((&mut value, &mut room));
            fine & if encodes {
                postcard::to_slice(value, room).is_ok()
            } else {
                postcard::from_bytes(&room[..used]).map(|decoded| *value = decoded).is_ok()
            }
        })
    })
}

/// Returns the program that encodes or decodes a value with rkyv. Rkyv needs an aligned buffer, so the type
/// of the buffer differs from that of other encodings.
fn with_rkyv<T>(encodes: bool, value: T) -> Repeated
where
    T: rkyv::Archive + 'static,
    T: for<'a> rkyv::Serialize<
            rkyv::api::high::HighSerializer<
                AlignedVec,
                rkyv::ser::allocator::ArenaHandle<'a>,
                rancor::Error,
            >,
        >,
    T::Archived: for<'a> rkyv::bytecheck::CheckBytes<rkyv::api::high::HighValidator<'a, rancor::Error>>
        + rkyv::Deserialize<T, rkyv::api::high::HighDeserializer<rancor::Error>>,
{
    let (mut value, mut buffer) = (value, AlignedVec::with_capacity(8192));
    if let Ok(filled) = rkyv::api::high::to_bytes_in::<_, rancor::Error>(&value, buffer.clone()) {
        buffer = filled;
    }
    Repeated::new(move |times| {
        (0..times).fold(true, |fine, _| {
            let (value, buffer) = black_box((&mut value, &mut buffer));
            fine & if encodes {
                let mut room = core::mem::take(buffer);
                room.clear();
                match rkyv::api::high::to_bytes_in::<_, rancor::Error>(&*value, room) {
                    Ok(filled) => {
                        *buffer = filled;
                        true
                    }
                    Err(_) => false,
                }
            } else {
                let decoded = rkyv::from_bytes::<T, rancor::Error>(buffer);
                decoded.map(|decoded| *value = decoded).is_ok()
            }
        })
    })
}

/// A substitute for the code that Cap'n Proto's compiler would generate for writing a struct. It only passes
/// on the pointer of the struct. The functions below give the size of the struct and the places of its
/// fields. (The trait prescribes names that begin with `get_`. They are raw identifiers, because
/// `tests/tidy.rs` forbids such names for functions of this project.)
struct Built<'a>(PointerBuilder<'a>);

impl<'a> FromPointerBuilder<'a> for Built<'a> {
    fn init_pointer(builder: PointerBuilder<'a>, _: u32) -> Self {
        Self(builder)
    }

    fn r#get_from_pointer(
        builder: PointerBuilder<'a>,
        _: Option<&'a [capnp::Word]>,
    ) -> capnp::Result<Self> {
        Ok(Self(builder))
    }
}

/// A substitute for the code that Cap'n Proto's compiler would generate for reading a struct.
struct Read<'a>(PointerReader<'a>);

impl<'a> FromPointerReader<'a> for Read<'a> {
    fn r#get_from_pointer(
        reader: &PointerReader<'a>,
        _: Option<&'a [capnp::Word]>,
    ) -> capnp::Result<Self> {
        Ok(Self(*reader))
    }
}

/// The size of `struct { i @0 :Int32; }`.
const ONE_SIZE: StructSize = StructSize { data: 1, pointers: 0 };
/// The size of `struct { a @0 :List(Int32); }`.
const ARRAY_SIZE: StructSize = StructSize { data: 0, pointers: 1 };
/// The size of `struct { first @0 :Int32; second @1 :Int32; third @2 :Int32; }`.
const TRIPLE_SIZE: StructSize = StructSize { data: 2, pointers: 0 };
/// The size of `struct { a @0 :Int32; b @1 :Int32; c @2 :Int32; d @3 :List(Int32); e @4 :List(Triple); n @5
/// :Int32; s @6 :Text; }`.
const STRUCTURE_SIZE: StructSize = StructSize { data: 2, pointers: 3 };

/// Writes a list of numbers, as one block if the machine has the byte order of the message.
fn set_numbers(pointer: PointerBuilder<'_>, numbers: &[i32]) {
    let mut list = primitive_list::Builder::<i32>::init_pointer(pointer, numbers.len() as u32);
    if let Some(room) = list.as_slice() {
        room.copy_from_slice(numbers);
        return;
    }
    for (i, number) in numbers.iter().enumerate() {
        list.set(i as u32, *number);
    }
}

/// Copies a list of numbers.
fn numbers(pointer: PointerReader<'_>) -> capnp::Result<Vec<i32>> {
    let list = primitive_list::Reader::<i32>::get_from_pointer(&pointer, None)?;
    Ok(match list.as_slice() {
        Some(numbers) => numbers.to_vec(),
        None => list.iter().collect(),
    })
}

/// Returns the program that encodes or decodes a value with Cap'n Proto. Encoding builds a message in reused
/// memory, and writes the message to the buffer.
fn with_capnp<T: 'static>(
    encodes: bool,
    value: T,
    build: fn(&T, PointerBuilder<'_>),
    read: fn(&mut T, PointerReader<'_>) -> capnp::Result<()>,
) -> Repeated {
    let mut scratch = capnp::Word::allocate_zeroed_vec(1024);
    let (mut value, mut buffer) = (value, Vec::with_capacity(8192));
    let mut encode = move |value: &T, buffer: &mut Vec<u8>| {
        let room = capnp::Word::words_to_bytes_mut(&mut scratch);
        let allocator = ScratchSpaceHeapAllocator::new(room);
        let mut message = message::Builder::new(allocator);
        let root: any_pointer::Builder<'_> = message.init_root();
        build(value, root.init_as::<Built<'_>>().0);
        serialize::write_message(buffer, &message).is_ok()
    };
    encode(&value, &mut buffer);
    Repeated::new(move |times| {
        (0..times).fold(true, |fine, _| {
            let (value, buffer) = black_box((&mut value, &mut buffer));
            fine & if encodes {
                buffer.clear();
                encode(value, buffer)
            } else {
                decode_capnp(value, buffer, read).is_ok()
            }
        })
    })
}

fn decode_capnp<T>(
    value: &mut T,
    mut bytes: &[u8],
    read: fn(&mut T, PointerReader<'_>) -> capnp::Result<()>,
) -> capnp::Result<()> {
    // The buffer begins at a word boundary, because allocators align large allocations.
    let message = serialize::read_message_from_flat_slice(&mut bytes, ReaderOptions::default())?;
    let root: any_pointer::Reader<'_> = message.get_root()?;
    read(value, root.get_as::<Read<'_>>()?.0)
}

fn build_structure(of: &Derived, pointer: PointerBuilder<'_>) {
    let mut all = pointer.init_struct(STRUCTURE_SIZE);
    for (i, number) in [of.a, of.b, of.c, of.n].into_iter().enumerate() {
        all.set_data_field(i, number);
    }
    set_numbers(all.reborrow().get_pointer_field(0), &of.d);
    let records = all.reborrow().get_pointer_field(1);
    let mut records = records.init_struct_list(of.e.len() as u32, TRIPLE_SIZE);
    for (i, triple) in of.e.iter().enumerate() {
        let record = records.reborrow().get_struct_element(i as u32);
        record.set_data_field(0, triple.first);
        record.set_data_field(1, triple.second);
        record.set_data_field(2, triple.third);
    }
    all.get_pointer_field(2).set_text(of.s.as_str().into());
}

fn read_structure(of: &mut Derived, pointer: PointerReader<'_>) -> capnp::Result<()> {
    let all = pointer.get_struct(None)?;
    let records = all.get_pointer_field(1).get_list(ElementSize::InlineComposite, None)?;
    let triple = |i| {
        let record = records.get_struct_element(i);
        Triple {
            first: record.get_data_field(0),
            second: record.get_data_field(1),
            third: record.get_data_field(2),
        }
    };
    *of = Derived {
        a: all.get_data_field(0),
        b: all.get_data_field(1),
        c: all.get_data_field(2),
        n: all.get_data_field(3),
        d: numbers(all.get_pointer_field(0))?,
        e: (0..records.len()).map(triple).collect(),
        s: all.get_pointer_field(2).get_text(None)?.to_string()?,
    };
    Ok(())
}

/// Returns the program that encodes or decodes a type with another system (a peer).
fn program(peer: &str, data: Data, encodes: bool) -> Repeated {
    let user = User::full();
    let all = derived(&user);
    match (peer, data) {
        ("prost", Data::One) => with_prost(encodes, ProtoOne { i: user.one }),
        ("prost", Data::Array) => with_prost(encodes, ProtoArray { a: all.d }),
        ("prost", Data::Structure) => with_prost(encodes, proto(&all)),
        ("capnp", Data::One) => with_capnp(
            encodes,
            user.one,
            |one, pointer| pointer.init_struct(ONE_SIZE).set_data_field(0, *one),
            |one, pointer| {
                *one = pointer.get_struct(None)?.get_data_field(0);
                Ok(())
            },
        ),
        ("capnp", Data::Array) => with_capnp(
            encodes,
            all.d,
            |array, pointer| {
                set_numbers(pointer.init_struct(ARRAY_SIZE).get_pointer_field(0), array)
            },
            |array, pointer| {
                *array = numbers(pointer.get_struct(None)?.get_pointer_field(0))?;
                Ok(())
            },
        ),
        ("capnp", Data::Structure) => with_capnp(encodes, all, build_structure, read_structure),
        ("rkyv", Data::One) => with_rkyv(encodes, user.one),
        ("rkyv", Data::Array) => with_rkyv(encodes, all.d),
        ("rkyv", Data::Structure) => with_rkyv(encodes, all),
        (_, Data::One) => with_postcard(encodes, user.one),
        (_, Data::Array) => with_postcard(encodes, all.d),
        (_, Data::Structure) => with_postcard(encodes, all),
    }
}

/// Returns the name of the case for a type and a direction.
const fn case(data: Data, encodes: bool) -> &'static str {
    match (data, encodes) {
        (Data::One, true) => "encode-one",
        (Data::Array, true) => "encode-array",
        (Data::Structure, true) => "encode-structure",
        (Data::One, false) => "decode-one",
        (Data::Array, false) => "decode-array",
        (Data::Structure, false) => "decode-structure",
    }
}

/// Measures all encodings, with separate rounds for each type and direction.
pub(crate) fn measure(selection: &Selection, progress: &Progress) -> Result<Vec<Row>, Failure> {
    let calling = shipped::Calling::shared();
    let mut rows = Vec::new();
    for encodes in [true, false] {
        for data in Data::ALL {
            progress.show(case(data, encodes));
            let mut programs = vec![shipped::program(Ours::Value, data, encodes, &calling)?];
            programs.extend(PEERS.map(|peer| program(peer, data, encodes)));
            let samples = in_turn(selection.rounds(), programs.len(), |which| {
                programs[which].measure(selection.slice() / 2)
            })?;
            let (ours, _) = split(&samples[0]);
            for (peer, samples) in PEERS.into_iter().zip(&samples[1..]) {
                let (theirs, _) = split(samples);
                let row = Row { callers: 0, ..Row::new(case(data, encodes)) };
                rows.push(row.ours(&ours, &[]).limit(peer, &theirs).ratio(&ours, &theirs));
            }
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_decodes_its_own_encoding() {
        for peer in PEERS {
            for data in Data::ALL {
                for encodes in [true, false] {
                    assert!(program(peer, data, encodes).once(), "{peer} {data:?} {encodes}");
                }
            }
        }
        let all = derived(&User::full());
        let mut other = derived(&User::empty());
        let mut message = message::Builder::new_default();
        let root: any_pointer::Builder<'_> = message.init_root();
        build_structure(&all, root.init_as::<Built<'_>>().0);
        let bytes = serialize::write_message_to_words(&message);
        decode_capnp(&mut other, &bytes, read_structure).unwrap();
        assert_eq!(other, all);
    }
}
