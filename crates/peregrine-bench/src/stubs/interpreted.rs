//! Implements interpreted stubs. One stub traverses the description of a procedure in a short form, and calls
//! itself for nested types.
//!
//! It is the stub of the paper (see `mod.rs`). The stub is straightforward, and does not know sizes in
//! advance. (Peregrine's own interpreter flattens descriptions when a client binds.)

use core::slice;

use crate::cost::Copying;

use super::copying::{InlineItem, Mover, Nothing, with_mover};
use super::packet::{Marshal, Packet, Way};
use super::user::{Data, INTEGERS, RECORDS, User};
use super::{Stub, Used};

/// The description of a type, in the short form that the stub interprets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Code {
    /// An integer: `I` in the paper.
    Integer,
    /// A text: `S<n>` in the paper.
    Text,
    /// An array: `A[n] ...` in the paper.
    Array(usize, &'static [Self]),
    /// A record: `(...)` in the paper.
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

/// A piece of the user's memory: either words or text.
enum Memory<'a> {
    Words(&'a mut [i32]),
    Text(&'a mut [u8]),
}

/// The user's values as a sequence of pieces of memory.
struct Values<'a, 'b> {
    /// The rest of the current piece of words.
    words: &'a mut [i32],
    pieces: slice::IterMut<'b, Memory<'a>>,
}

impl<'a, 'b> Values<'a, 'b> {
    fn new(pieces: &'b mut [Memory<'a>]) -> Self {
        Self { words: &mut [], pieces: pieces.iter_mut() }
    }

    /// Returns between one and `most` adjacent words, or `None` if no words follow.
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

/// Moves the values that `codes` describe.
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
                // Integers are copied together if their codes follow each other in one record.
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

/// Calls the generic stub with the arguments and the description of a procedure.
#[inline(always)]
fn call<M: Mover>(mover: &M, pieces: &mut [Memory<'_>], codes: &[Code], packet: &mut [u8]) -> Used {
    let (bytes, mut packet) = (packet.len(), Packet::new(packet));
    // The compiler must treat the description as data.
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

/// Returns the stub of a procedure.
pub(crate) fn stub<W: Way>(copying: Copying, data: Data) -> Stub {
    with_mover!(copying, W, [one, array, structure])[data as usize]
}

/// The number of arrays in [`arrays_for_nothing`], and of integers in [`integers_for_nothing`].
pub(crate) const MANY: usize = 32;

/// Interprets an empty description.
pub(crate) fn nothing(user: &mut User, packet: &mut [u8]) -> Used {
    call(&Nothing, &mut [Memory::Words(&mut user.array[..])], &[], packet)
}

/// Finds one integer in the user's memory, and does not move it.
pub(crate) fn integer_for_nothing(user: &mut User, packet: &mut [u8]) -> Used {
    call(&Nothing, &mut [Memory::Words(&mut user.array[..])], ONE, packet)
}

/// Finds many integers, and does not move them.
pub(crate) fn integers_for_nothing(user: &mut User, packet: &mut [u8]) -> Used {
    const CODES: &[Code] = &[Code::Integer; MANY];
    call(&Nothing, &mut [Memory::Words(&mut user.array[..])], CODES, packet)
}

/// Finds many arrays of one integer each, and does not move them.
pub(crate) fn arrays_for_nothing(user: &mut User, packet: &mut [u8]) -> Used {
    const CODES: &[Code] = &[Code::Array(1, ONE); MANY];
    call(&Nothing, &mut [Memory::Words(&mut user.array[..])], CODES, packet)
}

/// Finds the array of records, and moves nothing.
pub(crate) fn records_found(user: &mut User, packet: &mut [u8]) -> Used {
    call(&Nothing, &mut [Memory::Words(user.records.as_flattened_mut())], RECORDS_ONLY, packet)
}

/// Moves the array of records as items.
pub(crate) fn records_moved(user: &mut User, packet: &mut [u8]) -> Used {
    let mover = InlineItem::<Marshal>::new();
    call(&mover, &mut [Memory::Words(user.records.as_flattened_mut())], RECORDS_ONLY, packet)
}

/// Finds the integers of the array of records, and moves nothing. Each integer has a code. All codes are in
/// one sequence that contains no records.
pub(crate) fn row_found(user: &mut User, packet: &mut [u8]) -> Used {
    const CODES: &[Code] = &[Code::Integer; 3 * RECORDS];
    call(&Nothing, &mut [Memory::Words(user.records.as_flattened_mut())], CODES, packet)
}

const RECORDS_ONLY: &[Code] = &[Code::Array(RECORDS, &[Code::Record(TRIPLE)])];
