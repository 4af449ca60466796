//! Most of the fuzz targets, and the types and the interface that they share. Tests of the workspace also
//! compile the targets, and replay their corpora.

#[cfg(feature = "json")]
pub mod dynamic;
pub mod foreign;
pub mod foreign_dynamic;
#[cfg(feature = "json")]
pub mod growth;
pub mod server;
pub mod values;

// These targets need private types of the library. The library's unit tests compile these files, too.
#[cfg(fuzzing)]
pub mod client;
#[cfg(fuzzing)]
pub mod datagrams;
#[cfg(fuzzing)]
pub mod handshake;
#[cfg(fuzzing)]
pub mod sealed;
#[cfg(fuzzing)]
pub mod words;

use peregrine::value::{Reader, Representation, Space, Window, Writer};
use peregrine::{CallError, Lent, Out, Plain, Value, interface};

/// An upper bound of the encoded size, in bytes, of a value that is decoded from an input.
pub const HEAD_BYTES: usize = 1 << 17;

#[derive(Clone, Debug, PartialEq, Value)]
pub struct List {
    pub value: u32,
    pub next: Option<Box<Self>>,
}

#[derive(Clone, Debug, PartialEq, Value)]
pub struct Tree {
    pub name: String,
    pub children: Vec<Self>,
    pub best: Option<Box<Self>>,
}

#[derive(Clone, Debug, PartialEq, Value)]
pub enum Shape {
    Empty,
    Circle(f32),
    Named { name: String, sides: u16 },
    Many(Vec<Self>),
    Failed(Result<Box<Self>, u8>),
}

impl From<CallError> for Shape {
    fn from(_: CallError) -> Self {
        Self::Empty
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Plain)]
#[repr(C)]
pub struct Point {
    pub id: u64,
    pub at: [i16; 2],
    pub visible: bool,
    pub colour: Shade,
    pub pad: [u8; 2],
    pub letter: char,
    pub flags: [bool; 4],
}

#[derive(Clone, Copy, Debug, PartialEq, Plain)]
#[repr(u8)]
pub enum Shade {
    Dark = 1,
    Light = 200,
}

#[derive(Clone, Copy, Debug, PartialEq, Plain)]
#[repr(u16)]
pub enum Colour {
    Red = 1,
    Green = 0x0203,
}

#[derive(Clone, Debug, PartialEq, Value)]
pub struct Nothing {}

/// An interface with every kind of parameter.
#[interface(version = 3)]
pub trait Everything {
    fn nothing(&self) -> peregrine::Result<()>;
    fn add(&self, a: i32, b: u128) -> peregrine::Result<u64>;
    fn text(&self, flag: bool, path: &str, #[max_len(64)] key: &str) -> peregrine::Result<String>;
    fn slices(&self, points: &[Point], wide: &[u128], names: &[String]) -> peregrine::Result<u32>;
    fn lend(&self, a: Lent<'_, u8>, #[max_len(32)] b: Lent<'_, Colour>) -> peregrine::Result<u64>;
    fn fill(
        &self,
        offset: u64,
        #[max_len(48)] bytes: Out<'_, u8>,
        points: Out<'_, Point>,
    ) -> peregrine::Result<Vec<Colour>>;
    fn change(
        &self,
        list: &mut List,
        numbers: &mut [u64],
        letters: &mut [char],
        shapes: &mut [Shape],
    ) -> peregrine::Result<bool>;
    fn fail(&self, shape: &Shape, into: Out<'_, u16>) -> Result<Tree, Shape>;
    fn odd(
        &self,
        units: Vec<Vec<()>>,
        empty: Vec<Vec<Nothing>>,
        boxes: Vec<Box<()>>,
        none: &[[u32; 0]],
        nested: Option<Result<[Option<Box<Tree>>; 3], (u8, [u64; 0], char)>>,
    ) -> peregrine::Result<CallError>;
}

/// An object whose procedures read all of their arguments.
#[derive(Debug)]
pub struct Object;

impl Everything for Object {
    fn nothing(&self) -> peregrine::Result<()> {
        Ok(())
    }
    fn add(&self, a: i32, b: u128) -> peregrine::Result<u64> {
        Ok((b as u64).wrapping_add(a as u64))
    }
    fn text(&self, flag: bool, path: &str, key: &str) -> peregrine::Result<String> {
        assert!(key.len() <= 64);
        Ok(if flag { path.to_uppercase() } else { key.chars().rev().collect() })
    }
    fn slices(&self, points: &[Point], wide: &[u128], names: &[String]) -> peregrine::Result<u32> {
        let seen = format!("{points:?}{wide:?}{names:?}");
        Ok(seen.chars().count() as u32)
    }
    fn lend(&self, a: Lent<'_, u8>, b: Lent<'_, Colour>) -> peregrine::Result<u64> {
        let mut bytes = vec![0; a.len()];
        a.copy_to(0, &mut bytes).expect("the buffer has the right length");
        let mut colours = vec![Colour::Red; b.len()];
        assert!(colours.len() <= 32);
        let read = b.copy_to(0, &mut colours).is_ok();
        assert!(b.copy_to(1, &mut colours).is_err() || colours.is_empty());
        Ok(format!("{bytes:?}{colours:?}{read}").len() as u64)
    }
    fn fill(
        &self,
        offset: u64,
        mut bytes: Out<'_, u8>,
        mut points: Out<'_, Point>,
    ) -> peregrine::Result<Vec<Colour>> {
        assert!(bytes.capacity() <= 48);
        let some = [7; 48];
        let _ = bytes.put(&some[..(offset as usize % 49)]);
        let point = Point {
            id: offset,
            at: [1, -1],
            visible: true,
            colour: Shade::Dark,
            pad: [0; 2],
            letter: 'é',
            flags: [false, true, true, false],
        };
        while !offset.is_multiple_of(3) && points.filled() < 5 && points.put(&[point]).is_ok() {}
        if points.filled() > 1 {
            points.set(0, Point { visible: false, ..point }).expect("the element is initialized");
        }
        Ok(vec![Colour::Green; (offset % 7) as usize])
    }
    fn change(
        &self,
        list: &mut List,
        numbers: &mut [u64],
        letters: &mut [char],
        shapes: &mut [Shape],
    ) -> peregrine::Result<bool> {
        list.value = list.value.wrapping_add(1);
        numbers.reverse();
        letters.sort_unstable();
        shapes.reverse();
        Ok(list.next.is_none())
    }
    fn fail(&self, shape: &Shape, mut into: Out<'_, u16>) -> Result<Tree, Shape> {
        let _ = into.put(&[1, 2, 3]);
        match shape {
            Shape::Named { name, sides: 3 } => {
                Ok(Tree { name: name.clone(), children: vec![], best: None })
            }
            other => Err(other.clone()),
        }
    }
    fn odd(
        &self,
        units: Vec<Vec<()>>,
        empty: Vec<Vec<Nothing>>,
        boxes: Vec<Box<()>>,
        none: &[[u32; 0]],
        nested: Option<Result<[Option<Box<Tree>>; 3], (u8, [u64; 0], char)>>,
    ) -> peregrine::Result<CallError> {
        let lengths = (units.len(), empty.len(), boxes.len(), none.len());
        let text = format!("{lengths:?} {nested:?}");
        Ok(CallError::new(peregrine::Kind::Relayed, peregrine::Executed::Maybe, text))
    }
}

/// Encodes a value. Returns `None` if the encoded value is longer than [`HEAD_BYTES`].
pub fn encode<T: Value, R: Representation>(value: &T) -> Option<Vec<u8>> {
    let mut memory = vec![0xaa; HEAD_BYTES];
    let mut head = Writer::<R>::represented(Space::of_mut(&mut memory));
    value.encode(&mut head).ok()?;
    head.flush();
    let bytes = head.len();
    memory.truncate(bytes);
    Some(memory)
}

/// Decodes the value at the start of `bytes`. Returns the value and its encoded length.
pub fn decode<T: Value, R: Representation>(bytes: &[u8]) -> Option<(T, usize)> {
    let mut head = Reader::<R>::represented(Window::from(bytes));
    let value = T::decode(&mut head).ok()?;
    Some((value, bytes.len() - head.remaining()))
}

/// Returns a client that uses a given binding.
pub fn over(binding: peregrine::Binding) -> EverythingClient {
    EverythingClient { binding }
}
