//! Operations on a block. They check that the block's parts are valid values, convert a block to the other
//! byte order, and pack a block from its parts.
//!
//! A block of integers or floats in the native representation needs neither a check nor a conversion.

use super::program::{Number, Op, OpId, Program, Unfit};
use crate::value::{Dynamic, Plain, Swap, bytes_of};

/// Returns how to convert blocks of numbers of `unit` bytes to the other byte order.
pub(super) const fn swap_of(unit: u8) -> Option<&'static Swap> {
    match unit {
        2 => Swap::of::<u16>(),
        4 => Swap::of::<u32>(),
        8 => Swap::of::<u64>(),
        16 => Swap::of::<u128>(),
        _ => None,
    }
}

impl Number {
    fn is_valid(self, bytes: &[u8]) -> bool {
        match self {
            Self::Bool => bool::valid(bytes),
            Self::Char => char::valid(bytes),
            _ => true,
        }
    }

    /// Returns the integer in these bytes: the discriminant of an enum in a block.
    fn integer(self, bytes: &[u8]) -> i128 {
        fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
            bytes.first_chunk().copied().unwrap_or([0; N])
        }
        match self {
            Self::U8 => array::<1>(bytes)[0].into(),
            Self::U16 => u16::from_ne_bytes(array(bytes)).into(),
            Self::U32 => u32::from_ne_bytes(array(bytes)).into(),
            Self::U64 => u64::from_ne_bytes(array(bytes)).into(),
            Self::I8 => i8::from_ne_bytes(array(bytes)).into(),
            Self::I16 => i16::from_ne_bytes(array(bytes)).into(),
            Self::I32 => i32::from_ne_bytes(array(bytes)).into(),
            Self::I64 => i64::from_ne_bytes(array(bytes)).into(),
            _ => i128::from_ne_bytes(array(bytes)),
        }
    }
}

impl Program {
    /// Returns the size of a part of a block.
    fn part_bytes(&self, op: OpId) -> usize {
        self.solid(op).map_or(0, |solid| solid.bytes as usize)
    }

    /// Calls `one` for each part of a block, with the part's index, its step in the program, and its range of
    /// bytes. A value that is not a block has no parts.
    fn each_part(
        &self,
        op: OpId,
        mut one: impl FnMut(usize, OpId, core::ops::Range<usize>) -> Result<(), Unfit>,
    ) -> Result<(), Unfit> {
        match self.op(op) {
            Op::Solid(_, loose) => self.each_part(loose, one),
            Op::Array(part, count) => {
                let bytes = self.part_bytes(part);
                (0..count as usize).try_for_each(|i| one(i, part, i * bytes..(i + 1) * bytes))
            }
            Op::Record { first, count } => {
                let mut at = 0;
                self.parts(first, count).iter().enumerate().try_for_each(|(i, part)| {
                    let end = at + self.part_bytes(part.op);
                    one(i, part.op, core::mem::replace(&mut at, end)..end)
                })
            }
            _ => Ok(()),
        }
    }

    /// Adds the name or index of a part to the path in `unfit`.
    #[cold]
    fn inside(&self, op: OpId, index: usize, unfit: Unfit) -> Unfit {
        match self.op(op) {
            Op::Solid(_, loose) => self.inside(loose, index, unfit),
            Op::Record { first, count } => match self.parts(first, count).get(index) {
                Some(part) => unfit.of(&part.name),
                None => unfit,
            },
            _ => unfit.at(index),
        }
    }

    /// Checks whether the bytes are a valid value.
    pub(super) fn check(&self, op: OpId, bytes: &[u8]) -> Result<(), Unfit> {
        if !self.solid(op).is_some_and(|solid| solid.checked) {
            return Ok(());
        }
        match self.op(op) {
            Op::Number(number) if number.is_valid(bytes) => Ok(()),
            Op::Choice { repr, first, count } => self.choice(repr.integer(bytes), first, count),
            Op::Number(number) => Err(Unfit::expected(number.text(), "other bits")),
            _ => self.each_part(op, |i, part, at| {
                let bytes = bytes.get(at).unwrap_or(&[]);
                self.check(part, bytes).map_err(|unfit| self.inside(op, i, unfit))
            }),
        }
    }

    /// Checks each element of a block.
    pub(super) fn check_all(&self, op: OpId, one: usize, bytes: &[u8]) -> Result<(), Unfit> {
        if !self.solid(op).is_some_and(|solid| solid.checked) {
            return Ok(());
        }
        let mut all = bytes.chunks_exact(one.max(1)).enumerate();
        all.try_for_each(|(i, bytes)| self.check(op, bytes).map_err(|unfit| unfit.at(i)))
    }

    /// Checks whether an enum has this discriminant.
    pub(super) fn choice(&self, value: i128, first: u32, count: u32) -> Result<(), Unfit> {
        if self.discriminants(first, count).binary_search(&value).is_ok() {
            return Ok(());
        }
        Err(Unfit::expected("one of the enum's values", &value.to_string()))
    }

    /// Converts values to the other byte order, in place.
    pub(super) fn turn(&self, op: OpId, bytes: &mut [u8]) {
        if let Op::Number(number) | Op::Choice { repr: number, .. } = self.op(op) {
            let number = usize::from(number.bytes());
            return bytes.chunks_exact_mut(number).for_each(<[u8]>::reverse);
        }
        let Some(solid) = self.solid(op) else { return };
        for one in bytes.chunks_exact_mut(solid.bytes as usize) {
            if solid.unit > 0 {
                one.chunks_exact_mut(usize::from(solid.unit)).for_each(<[u8]>::reverse);
                continue;
            }
            let _ = self.each_part(op, |_, part, at| {
                self.turn(part, one.get_mut(at).unwrap_or(&mut []));
                Ok(())
            });
        }
    }

    /// Appends `value`, which is a part of a block, to the block.
    pub(super) fn pack(&self, op: OpId, value: &Dynamic, block: &mut Vec<u8>) -> Result<(), Unfit> {
        let mut put = |bytes: &[u8]| {
            block.extend_from_slice(bytes);
            Ok(())
        };
        macro_rules! numbers {
            ($number:expr; $($variant:ident)*) => {
                match ($number, value) {
                    $((Number::$variant, Dynamic::$variant(number)) => put(bytes_of(&[*number])),)*
                    (number, other) => Err(Unfit::expected(number.text(), other.kind())),
                }
            };
        }
        match self.op(op) {
            Op::Number(number) => {
                numbers!(number; Bool Char U8 U16 U32 U64 U128 I8 I16 I32 I64 I128 F32 F64)
            }
            Op::Choice { repr, first, count } => {
                let at = block.len();
                let mut put = |bytes: &[u8]| {
                    block.extend_from_slice(bytes);
                    Ok(())
                };
                macro_rules! integers {
                    ($($variant:ident)*) => {
                        match (repr, value) {
                            $((Number::$variant, Dynamic::$variant(number)) => {
                                put(bytes_of(&[*number]))
                            })*
                            (_, other) => Err(Unfit::expected(&self.expected(op), other.kind())),
                        }
                    };
                }
                integers!(U8 U16 U32 U64 U128 I8 I16 I32 I64 I128)?;
                self.choice(repr.integer(&block[at..]), first, count)
            }
            Op::Solid(solid, loose) => {
                self.pack_solid(op, solid.bytes as usize, loose, value, block)
            }
            Op::Nothing if value.is_nothing() => Ok(()),
            _ => Err(Unfit::expected(&self.expected(op), value.kind())),
        }
    }

    fn pack_solid(
        &self,
        op: OpId,
        bytes: usize,
        loose: OpId,
        value: &Dynamic,
        block: &mut Vec<u8>,
    ) -> Result<(), Unfit> {
        match value {
            Dynamic::Plain(plain) if plain.len() == bytes => {
                self.check(op, plain)?;
                block.extend_from_slice(plain);
                Ok(())
            }
            Dynamic::Plain(plain) => {
                let got = format!("{} bytes", plain.len());
                Err(Unfit::expected(&self.expected(op), &got))
            }
            Dynamic::List(parts) => {
                let wanted = match self.op(loose) {
                    Op::Array(_, count) => count as usize,
                    Op::Record { count, .. } => count as usize,
                    _ => 0,
                };
                if parts.len() != wanted {
                    let got = format!("{} values", parts.len());
                    return Err(Unfit::expected(&self.expected(loose), &got));
                }
                self.each_part(loose, |i, part, _| {
                    let value = parts.get(i).unwrap_or(&Dynamic::Unit);
                    let packed = self.pack(part, value, block);
                    packed.map_err(|unfit| self.inside(loose, i, unfit))
                })
            }
            other => Err(Unfit::expected(&self.expected(op), other.kind())),
        }
    }
}

impl Dynamic {
    /// Returns whether the value takes no bytes in a message.
    pub(super) fn is_nothing(&self) -> bool {
        match self {
            Self::Unit | Self::Units(_) => true,
            Self::List(parts) => parts.iter().all(Self::is_nothing),
            _ => false,
        }
    }
}
