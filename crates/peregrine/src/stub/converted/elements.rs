//! Converts many plain elements of a sequence at a time: first one part of all elements, then the next part
//! of all elements.

use super::convert::Stopped;
use super::program::{Extent, Move, Program};
use crate::value::{Invalid, Reader, Representation, Space, Window, Writer};

/// The size in bytes of the private memory for the elements of each side.
const MEMORY_BYTES: usize = 1024;
/// The size in bytes of the largest elements that are converted together. Larger elements are converted one
/// by one.
const ELEMENT_BYTES_MAX: usize = MEMORY_BYTES / 4;
/// The smallest number of elements that are converted together. Fewer elements are converted one by one.
const COUNT_MIN: u64 = 4;

/// The location of a part within the elements of one side.
#[derive(Clone, Copy)]
struct Place {
    /// The offset in bytes of the part within its element.
    at: usize,
    /// The size in bytes of an element.
    each: usize,
}

impl Program {
    /// Converts `count` plain elements. The moves of one element are `moves` entries of the program's list,
    /// from `first` on. Returns false, and reads nothing, if the elements must be converted one by one.
    pub(super) fn plain_elements<A: Representation, B: Representation>(
        &self,
        (source, target): (Extent, Extent),
        (first, moves): (u32, u32),
        count: u64,
        from: &mut Reader<'_, A>,
        to: &mut Writer<'_, B>,
    ) -> Result<bool, Stopped> {
        let (ours, theirs) = (source.bytes as usize, target.bytes as usize);
        let most = ours.max(theirs);
        if count < COUNT_MIN || ours.min(theirs) == 0 || most > ELEMENT_BYTES_MAX {
            return Ok(false);
        }
        let Some(size) = self.size_of_target(first, moves) else { return Ok(false) };
        if size != theirs {
            return Ok(false);
        }
        let Some(all) = usize::try_from(count).ok().and_then(|count| count.checked_mul(ours))
        else {
            return Err(Invalid::Short.into());
        };
        if all > from.remaining() {
            return Err(Invalid::Short.into());
        }
        let (mut received, mut sent) = ([0; MEMORY_BYTES], [0; MEMORY_BYTES]);
        // An element of the receiver: it has the defaults, and zeros in all other parts.
        let mut template = [0; ELEMENT_BYTES_MAX];
        let mut place = Writer::<B>::represented(Space::of_mut(&mut template[..theirs]));
        let zeros = Window::from(&received[..ours]);
        self.plain::<A, B>(first, moves, zeros, Extent { align: 1, ..target }, &mut place, 0)?;
        place.flush();
        let (mut left, at_once) = (all / ours, MEMORY_BYTES / most);
        repeat(&template[..theirs], &mut sent[..left.min(at_once) * theirs]);
        while left > 0 {
            let some = left.min(at_once);
            let (received, sent) = (&mut received[..some * ours], &mut sent[..some * theirs]);
            let window = from.window(source.align.into(), received.len())?;
            window.read(0, received).ok_or(Invalid::Short)?;
            let mut end = 0;
            for one in self.moves(first, moves) {
                match *one {
                    Move::Copy { at, bytes, unit } => {
                        let there = Place { at: end, each: theirs };
                        let here = Place { at: at as usize, each: ours };
                        let unit = if A::SWAPPED == B::SWAPPED { 1 } else { usize::from(unit) };
                        copy(received, here, sent, there, bytes as usize, unit);
                        end += bytes as usize;
                    }
                    Move::Fill(default, _) => end += self.filling(default).len(),
                    Move::Convert { .. } => {}
                }
            }
            to.bytes(target.align.into(), sent, None)?;
            left -= some;
        }
        Ok(true)
    }

    /// Returns the size in bytes of the element that these moves make. Returns `None` if a move converts a
    /// value.
    fn size_of_target(&self, first: u32, moves: u32) -> Option<usize> {
        self.moves(first, moves).iter().try_fold(0usize, |size, one| match *one {
            Move::Copy { bytes, .. } => size.checked_add(bytes as usize),
            Move::Fill(default, _) => size.checked_add(self.filling(default).len()),
            Move::Convert { .. } => None,
        })
    }
}

/// Fills `all`, whose length is a multiple of that of `one`, with copies of `one`.
fn repeat(one: &[u8], all: &mut [u8]) {
    let (mut done, len) = (one.len(), all.len());
    all[..done].copy_from_slice(one);
    while done < len {
        let more = done.min(len - done);
        all.copy_within(..more, done);
        done += more;
    }
}

/// Copies a part of every element. The part consists of numbers of `unit` bytes, and the bytes of each number
/// are reversed. A `unit` of 1 leaves the bytes unchanged.
fn copy(from: &[u8], here: Place, to: &mut [u8], there: Place, bytes: usize, unit: usize) {
    match (bytes, unit) {
        (1, _) => copy_fixed::<1>(from, here, to, there, false),
        (2, 1 | 2) => copy_fixed::<2>(from, here, to, there, unit == 2),
        (4, 1 | 4) => copy_fixed::<4>(from, here, to, there, unit == 4),
        (8, 1 | 8) => copy_fixed::<8>(from, here, to, there, unit == 8),
        (16, 1 | 16) => copy_fixed::<16>(from, here, to, there, unit == 16),
        _ => {
            let pairs = from.chunks_exact(here.each).zip(to.chunks_exact_mut(there.each));
            for (one, other) in pairs {
                let part = &mut other[there.at..there.at + bytes];
                part.copy_from_slice(&one[here.at..here.at + bytes]);
                if unit > 1 {
                    part.chunks_exact_mut(unit).for_each(<[u8]>::reverse);
                }
            }
        }
    }
}

/// Copies a part of `N` bytes of every element. If `reversed`, the order of these bytes is reversed.
#[inline]
fn copy_fixed<const N: usize>(
    from: &[u8],
    here: Place,
    to: &mut [u8],
    there: Place,
    reversed: bool,
) {
    let pairs = from.chunks_exact(here.each).zip(to.chunks_exact_mut(there.each));
    for (one, other) in pairs {
        let (Some(source), Some(target)) =
            (one[here.at..].first_chunk::<N>(), other[there.at..].first_chunk_mut::<N>())
        else {
            return;
        };
        *target = *source;
        if reversed {
            target.reverse();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::program::{Op, Part};
    use super::*;
    use crate::value::{ByteOrder, Native, Swapped};

    /// Returns a program that drops one field, adds one, and keeps the order of the others.
    fn program() -> (Program, (Extent, Extent), (u32, u32)) {
        let mut program = Program::default();
        program.ops.push(Op::Numbers { bytes: 4, count: 1 });
        program.defaults.push(Box::new([1, 2, 3, 4]));
        program.parts.push(Part::Fill(0, 0));
        program.moves.extend([
            Move::Copy { at: 0, bytes: 8, unit: 4 },
            Move::Fill(0, 0),
            Move::Copy { at: 12, bytes: 4, unit: 2 },
        ]);
        let extents = (Extent { bytes: 16, align: 4 }, Extent { bytes: 16, align: 4 });
        (program, extents, (0, 3))
    }

    fn converted<A: Representation, B: Representation>(count: u64, at_once: bool) -> Vec<u8> {
        let (program, (source, target), moves) = program();
        let from: Vec<u8> = (0..count * 16).map(|byte| byte as u8).collect();
        let mut to = vec![0xaa; from.len() + 64];
        let mut reader = Reader::<A>::represented(Window::from(&from[..]));
        let mut writer = Writer::<B>::represented(Space::of_mut(&mut to[..]));
        writer.plain(&7u8).unwrap();
        let extents = (source, target);
        if !at_once
            || !program.plain_elements(extents, moves, count, &mut reader, &mut writer).unwrap()
        {
            for _ in 0..count {
                let window = reader.window(4, 16).unwrap();
                program.plain::<A, B>(moves.0, moves.1, window, target, &mut writer, 0).unwrap();
            }
        }
        reader.finish().unwrap();
        writer.flush();
        let bytes = writer.len();
        to.truncate(bytes);
        to
    }

    #[test]
    fn elements_are_converted_at_once_as_one_by_one() {
        for count in [0, 1, 3, 4, 5, 63, 64, 65, 200] {
            let pairs = [
                (
                    converted::<Native, Native>(count, true),
                    converted::<Native, Native>(count, false),
                ),
                (
                    converted::<Native, Swapped>(count, true),
                    converted::<Native, Swapped>(count, false),
                ),
                (
                    converted::<Swapped, Native>(count, true),
                    converted::<Swapped, Native>(count, false),
                ),
                (
                    converted::<Swapped, Swapped>(count, true),
                    converted::<Swapped, Swapped>(count, false),
                ),
            ];
            for (number, (at_once, one_by_one)) in pairs.iter().enumerate() {
                assert_eq!(at_once, one_by_one, "{count} {number}");
            }
            if count == 4 && ByteOrder::NATIVE == ByteOrder::Little {
                assert_eq!(pairs[0].0[4..20], [0, 1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 12, 13, 14, 15]);
                assert_eq!(pairs[1].0[4..20], [3, 2, 1, 0, 7, 6, 5, 4, 4, 3, 2, 1, 13, 12, 15, 14]);
            }
        }
    }

    #[test]
    fn elements_that_were_not_sent_are_refused() {
        let (program, extents, moves) = program();
        let (from, mut to) = ([0; 100], [0; 4096]);
        let mut reader = Reader::<Native>::represented(Window::from(&from[..]));
        let mut writer = Writer::<Native>::represented(Space::of_mut(&mut to[..]));
        for count in [7, u64::MAX / 16, u64::MAX] {
            let refused = program.plain_elements(extents, moves, count, &mut reader, &mut writer);
            assert!(matches!(refused, Err(Stopped::Invalid(Invalid::Short))));
        }
        let mut small = [0; 90];
        let mut writer = Writer::<Native>::represented(Space::of_mut(&mut small[..]));
        let full = program.plain_elements(extents, moves, 6, &mut reader, &mut writer);
        assert!(matches!(full, Err(Stopped::Overflow(_))));
    }
}
