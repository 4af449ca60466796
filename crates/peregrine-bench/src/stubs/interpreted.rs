//! Interpreted stubs: one that walks a short-form description, and calls itself for what is nested.
//!
//! It is the paper's: straightforward, without knowledge of sizes beforehand. (The one that Peregrine ships
//! flattens descriptions when it binds.)

use core::slice;

use crate::cost::Copying;

use super::copying::{InlineItem, Mover, Nothing, with_mover};
use super::packet::{Marshal, Packet, Way};
use super::user::{Data, INTEGERS, RECORDS, User};
use super::{Stub, Used};

/// The short form of a type.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Code {
    /// `I`
    Integer,
    /// `S<n>`
    Text,
    /// `A[n] ...`
    Array(usize, &'static [Self]),
    /// `(...)`
    Record(&'static [Self]),
}

const ONE: &[Code] = &[Code::Integer];
const ARRAY: &[Code] = &[Code::Array(INTEGERS, ONE)];
const TRIPLE: &[Code] = &[Code::Integer, Code::Integer, Code::Integer];
const STRUCTURE: &[Code] = &[
    Code::Integer,
    Code::Integer,
    Code::Integer,
    Code::Array(INTEGERS, ONE),
    Code::Array(RECORDS, &[Code::Record(TRIPLE)]),
    Code::Record(&[Code::Integer, Code::Text]),
];

/// What the user's values are to one who does not know their types: memory.
enum Memory<'a> {
    Words(&'a mut [i32]),
    Text(&'a mut [u8]),
}

/// The user's values, one piece of memory after the other.
struct Values<'a, 'b> {
    /// What is left of the present piece.
    words: &'a mut [i32],
    pieces: slice::IterMut<'b, Memory<'a>>,
}

impl<'a, 'b> Values<'a, 'b> {
    fn new(pieces: &'b mut [Memory<'a>]) -> Self {
        Self { words: &mut [], pieces: pieces.iter_mut() }
    }

    /// At most so many words that lie together, and at least one.
    #[inline(always)]
    fn words_up_to(&mut self, most: usize) -> Option<&'a mut [i32]> {
        if self.words.is_empty() {
            self.words = match self.pieces.next()? {
                Memory::Words(words) => core::mem::take(words),
                Memory::Text(_) => return None,
            };
        }
        let words = core::mem::take(&mut self.words);
        let (these, rest) = words.split_at_mut(most.min(words.len()));
        self.words = rest;
        Some(these)
    }

    #[inline(always)]
    fn word(&mut self) -> Option<&'a mut i32> {
        self.words_up_to(1)?.first_mut()
    }

    #[inline(always)]
    fn text(&mut self) -> Option<&'a mut [u8]> {
        match self.pieces.next()? {
            Memory::Text(text) => Some(core::mem::take(text)),
            Memory::Words(_) => None,
        }
    }
}

/// Moves the values of so many codes.
#[inline(never)]
fn interpret<M: Mover>(
    mover: &M,
    codes: &[Code],
    values: &mut Values<'_, '_>,
    packet: &mut Packet<'_>,
) -> Option<()> {
    let mut codes = codes.iter();
    while let Some(code) = codes.next() {
        match code {
            Code::Integer if M::BLOCKS => {
                // What it sees of what lies together: the integers that follow in this record.
                let mut run = 1;
                while let Some((Code::Integer, rest)) = codes.as_slice().split_first() {
                    (run, codes) = (run + 1, rest.iter());
                }
                while run > 0 {
                    match values.words_up_to(run)? {
                        [word] => {
                            mover.item(packet, word)?;
                            run -= 1;
                        }
                        words => {
                            mover.items(packet, words)?;
                            run -= words.len();
                        }
                    }
                }
            }
            Code::Integer => mover.item(packet, values.word()?)?,
            Code::Text => mover.text(packet, values.text()?)?,
            Code::Array(count, codes) => {
                mover.count(packet, *count)?;
                match codes {
                    [Code::Integer] => {
                        let words = values.words_up_to(*count)?;
                        if words.len() != *count {
                            return None;
                        }
                        mover.items(packet, words)?;
                    }
                    [Code::Record(codes)] | codes => {
                        for _ in 0..*count {
                            interpret(mover, codes, values, packet)?;
                        }
                    }
                }
            }
            Code::Record(codes) => interpret(mover, codes, values, packet)?,
        }
    }
    Some(())
}

/// The generic stub, called with the arguments of one of the procedures.
#[inline(always)]
fn call<M: Mover>(mover: &M, pieces: &mut [Memory<'_>], codes: &[Code], packet: &mut [u8]) -> Used {
    let (bytes, mut packet) = (packet.len(), Packet::new(packet));
    // What it is called with is data.
    let codes = std::hint::black_box(codes);
    interpret(mover, codes, &mut Values::new(pieces), &mut packet)?;
    Some(bytes - packet.left())
}

#[inline(always)]
fn one(mover: &impl Mover, user: &mut User, packet: &mut [u8]) -> Used {
    call(mover, &mut [Memory::Words(slice::from_mut(&mut user.one))], ONE, packet)
}

#[inline(always)]
fn array(mover: &impl Mover, user: &mut User, packet: &mut [u8]) -> Used {
    call(mover, &mut [Memory::Words(&mut user.array[..])], ARRAY, packet)
}

#[inline(always)]
fn structure(mover: &impl Mover, user: &mut User, packet: &mut [u8]) -> Used {
    let mut pieces = [
        Memory::Words(slice::from_mut(&mut user.first)),
        Memory::Words(slice::from_mut(&mut user.second)),
        Memory::Words(slice::from_mut(&mut user.third)),
        Memory::Words(&mut user.array[..]),
        Memory::Words(user.records.as_flattened_mut()),
        Memory::Words(slice::from_mut(&mut user.label)),
        Memory::Text(&mut user.text[..]),
    ];
    call(mover, &mut pieces, STRUCTURE, packet)
}

/// The stub of a procedure.
pub(crate) fn stub<W: Way>(copying: Copying, data: Data) -> Stub {
    with_mover!(copying, W, [one, array, structure])[data as usize]
}

/// Arrays in [`arrays_for_nothing`], and integers in [`integers_for_nothing`].
pub(crate) const MANY: usize = 32;

/// A description of nothing.
pub(crate) fn nothing(user: &mut User, packet: &mut [u8]) -> Used {
    call(&Nothing, &mut [Memory::Words(&mut user.array[..])], &[], packet)
}

/// One integer that is found and not moved.
pub(crate) fn integer_for_nothing(user: &mut User, packet: &mut [u8]) -> Used {
    call(&Nothing, &mut [Memory::Words(&mut user.array[..])], ONE, packet)
}

/// Many integers that are found and not moved.
pub(crate) fn integers_for_nothing(user: &mut User, packet: &mut [u8]) -> Used {
    const CODES: &[Code] = &[Code::Integer; MANY];
    call(&Nothing, &mut [Memory::Words(&mut user.array[..])], CODES, packet)
}

/// Many arrays of one integer each, which are found and not moved.
pub(crate) fn arrays_for_nothing(user: &mut User, packet: &mut [u8]) -> Used {
    const CODES: &[Code] = &[Code::Array(1, ONE); MANY];
    call(&Nothing, &mut [Memory::Words(&mut user.array[..])], CODES, packet)
}

/// The array of records, of which nothing is moved.
pub(crate) fn records_found(user: &mut User, packet: &mut [u8]) -> Used {
    call(&Nothing, &mut [Memory::Words(user.records.as_flattened_mut())], RECORDS_ONLY, packet)
}

/// The array of records, moved as items.
pub(crate) fn records_moved(user: &mut User, packet: &mut [u8]) -> Used {
    let mover = InlineItem::<Marshal>::new();
    call(&mover, &mut [Memory::Words(user.records.as_flattened_mut())], RECORDS_ONLY, packet)
}

/// The same integers, each with a code in one row.
pub(crate) fn row_found(user: &mut User, packet: &mut [u8]) -> Used {
    const CODES: &[Code] = &[Code::Integer; 3 * RECORDS];
    call(&Nothing, &mut [Memory::Words(user.records.as_flattened_mut())], CODES, packet)
}

const RECORDS_ONLY: &[Code] = &[Code::Array(RECORDS, &[Code::Record(TRIPLE)])];
