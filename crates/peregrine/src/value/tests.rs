//! Tests of readers and writers together: the ends of heads, nesting, counts, and both representations.

use super::*;
use crate::limits;
use crate::value::swap::CopyMethod;

fn written<R: Representation>(
    bytes: usize,
    write: impl FnOnce(&mut Writer<'_, R>) -> Result<(), Overflow>,
) -> (Result<(), Overflow>, usize, Vec<u8>) {
    let mut memory = vec![0xaa; bytes];
    let mut writer = Writer::<R>::represented(Space::of_mut(&mut memory));
    let done = write(&mut writer);
    writer.flush();
    let length = writer.len();
    (done, length, memory)
}

#[test]
fn lengths_are_rounded_up_and_saturate() {
    let rounded = [(0, 0), (1, 16), (15, 16), (16, 16), (17, 32), (usize::MAX, usize::MAX & !15)];
    for (bytes, up) in rounded {
        assert_eq!(align_up(bytes), up);
    }
}

/// Tests a value at each offset. The value is aligned relative to the start of the head, and its padding is
/// zero. No byte beyond the end of the value is needed or written.
#[test]
fn a_value_fits_up_to_the_last_byte() {
    for before in 0..70 {
        let at = usize::next_multiple_of(before, 4);
        for room in [at + 3, at + 4, at + 5] {
            let write = |head: &mut Writer<'_, Native>| {
                (0..before).try_for_each(|n| head.plain(&(n as u8 + 1)))?;
                head.plain(&0x0706_0504u32)
            };
            let (done, length, memory) = written::<Native>(room, write);
            assert_eq!(done.is_ok(), room >= at + 4, "{before} bytes before it, room for {room}");
            if done.is_ok() {
                assert_eq!(length, at + 4);
                let mut expected: Vec<u8> = (1..=before as u8).collect();
                expected.resize(at, 0);
                expected.extend(0x0706_0504u32.to_ne_bytes());
                assert_eq!(memory[..at + 4], expected);
                let mut reader = Reader::new(Window::from(&memory[..at + 4]));
                for n in 0..before {
                    assert_eq!(reader.remaining(), at + 4 - n);
                    assert_eq!(reader.plain(), Ok(n as u8 + 1));
                }
                assert_eq!(reader.finish(), Err(Invalid::Long));
                assert_eq!(reader.plain(), Ok(0x0706_0504u32));
                assert_eq!((reader.finish(), reader.remaining()), (Ok(()), 0));
                assert_eq!(reader.plain::<u8>(), Err(Invalid::Short));
            }
        }
    }
}

#[test]
fn a_head_can_begin_elsewhere_and_move() {
    let mut memory = [0xaa; 128];
    let mut other = [0xbb; 128];
    let (space, elsewhere) = (Space::of_mut(&mut memory), Space::of_mut(&mut other));
    let mut head = Writer::<Native>::new(space);
    assert!(head.is_empty());
    head.plain_all(&[1u8; 20]).unwrap();
    assert!(!head.is_empty());
    // This discards what was written from offset 12 on. From now on, values are aligned relative to offset
    // 12.
    head.restart(12, 40);
    assert!(head.is_empty());
    head.plain(&2u8).unwrap();
    head.plain(&0x0303_0303u32).unwrap();
    assert_eq!(head.len(), 8);
    head.plain_all(&[4u8; 20]).unwrap();
    assert_eq!(head.plain(&5u8), Err(Overflow::Full));
    assert_eq!(head.len(), 28);
    head.move_to(elsewhere.part(0, 50).unwrap()).unwrap();
    // The head now has the size of the new space.
    head.plain_all(&[6u8; 10]).unwrap();
    assert_eq!(head.plain(&7u8), Err(Overflow::Full));
    assert!(head.move_to(elsewhere.part(0, 49).unwrap()).is_none());
    head.flush();
    let mut expected = vec![1; 12];
    expected.extend([2, 0, 0, 0, 3, 3, 3, 3]);
    expected.extend([4; 20]);
    expected.extend([6; 10]);
    assert_eq!(other[..50], expected);
    assert_eq!(other[50..], [0xbb; 78]);
}

#[test]
fn structures_nest_as_deeply_as_they_may_on_both_sides() {
    fn deeper(head: &mut Writer<'_, Native>, more: u32) -> Result<(), Overflow> {
        if more == 0 { Ok(()) } else { head.deeper(|head| deeper(head, more - 1)) }
    }
    fn taken(head: &mut Reader<'_>, more: u32) -> Result<u8, Invalid> {
        if more == 0 { Ok(1) } else { head.deeper(|head| taken(head, more - 1)) }
    }
    let (most, mut memory) = (limits::DEPTH_MAX, [0; 8]);
    let mut writer = Writer::new(Space::of_mut(&mut memory));
    // A failed attempt leaves the depth unchanged, so each round has the same result.
    for _ in 0..3 {
        assert_eq!(deeper(&mut writer, most), Ok(()));
        assert_eq!(deeper(&mut writer, most + 1), Err(Overflow::TooDeep));
    }
    let mut reader = Reader::new(Window::empty());
    for _ in 0..3 {
        assert_eq!(taken(&mut reader, most), Ok(1));
        assert_eq!(taken(&mut reader, most + 1), Err(Invalid::TooDeep));
    }
    // If values are large, the number of bytes on the stack limits the depth.
    let half = limits::DEPTH_BYTES_MAX / 2;
    let three = |reader: &mut Reader<'_>, bytes: usize| {
        reader.deeper_by(bytes, |reader| {
            reader.deeper_by(bytes, |reader| reader.deeper_by(0, |_| Ok(())))
        })
    };
    assert_eq!(three(&mut reader, half - 1), Ok(()));
    assert_eq!(three(&mut reader, half), Err(Invalid::TooDeep));
    assert_eq!(three(&mut reader, half - 1), Ok(()));
}

#[test]
fn values_without_bytes_are_counted() {
    let bytes = [0; 10];
    let mut reader = Reader::new(Window::from(&bytes[..]));
    for _ in 0..limits::EMPTY_VALUES_MAX {
        assert_eq!(reader.empty(), Ok(()));
    }
    assert_eq!(reader.empty(), Err(Invalid::TooLong));
    let mut reader = Reader::new(Window::from(&bytes[..]));
    for _ in 0..limits::EMPTY_VALUES_MAX + 4 * bytes.len() {
        assert_eq!(reader.makes_one(), Ok(()));
    }
    assert_eq!(reader.makes_one(), Err(Invalid::TooLong));
}

#[test]
fn bytes_are_taken_at_their_place_and_turned_if_wanted() {
    let source: Vec<u8> = (1..=40).collect();
    for (swap, first) in [(None, [5, 6, 7, 8]), (Swap::of::<u32>(), [8, 7, 6, 5])] {
        let mut reader = Reader::new(Window::from(&source[..]));
        reader.plain::<u8>().unwrap();
        let mut bytes = vec![9; 3];
        // A read of zero bytes skips no padding.
        reader.bytes(4, 0, swap, &mut bytes).unwrap();
        assert_eq!((bytes.len(), reader.remaining()), (0, 39));
        reader.bytes(4, 8, swap, &mut bytes).unwrap();
        assert_eq!((&bytes[..4], bytes.len(), reader.remaining()), (&first[..], 8, 28));
        assert_eq!(reader.bytes(4, 29, swap, &mut bytes), Err(Invalid::Short));
        assert_eq!(reader.remaining(), 28);
    }
    let (done, length, memory) = written::<Native>(20, |head| {
        head.plain(&1u8)?;
        head.bytes(4, &[1, 2, 3, 4], None)?;
        head.bytes(4, &[1, 2, 3, 4], Swap::of::<u32>())
    });
    assert_eq!((done, length), (Ok(()), 12));
    assert_eq!(memory[..12], [1, 0, 0, 0, 1, 2, 3, 4, 4, 3, 2, 1]);
}

/// Checks that a value is read as it was written, in both representations, and that no shorter message is
/// accepted.
fn there_and_back<T: Value + PartialEq + core::fmt::Debug>(value: &T) {
    fn way<T: Value + PartialEq + core::fmt::Debug, R: Representation>(value: &T) -> Vec<u8> {
        // The value follows a single byte, so that the test also covers its alignment.
        let (done, length, mut memory) = written::<R>(4096, |head| {
            head.plain(&1u8)?;
            value.encode(head)
        });
        assert_eq!(done, Ok(()), "{value:?}");
        memory.truncate(length);
        let read = |bytes: &[u8]| {
            let mut reader = Reader::<R>::represented(Window::from(bytes));
            reader.plain::<u8>()?;
            let value = T::decode(&mut reader)?;
            reader.finish().map(|()| value)
        };
        assert_eq!(read(&memory).as_ref(), Ok(value));
        if length > 1 {
            assert!(read(&memory[..length - 1]).is_err(), "{value:?}");
        }
        let mut longer = memory.clone();
        longer.push(0);
        assert_eq!(read(&longer).err(), Some(Invalid::Long), "{value:?}");
        memory
    }
    let (native, swapped) = (way::<T, Native>(value), way::<T, Swapped>(value));
    assert_eq!(native.len(), swapped.len());
}

#[test]
fn values_come_back_as_they_were() {
    there_and_back(&());
    there_and_back(&(1u8, -2i16, 3u32, -4i64, 5u128));
    there_and_back(&(true, 'x', 1.5f32, -2.5f64, [1u16, 2, 3]));
    there_and_back(&String::from("falcon"));
    there_and_back(&Some(Box::new(String::from("wing"))));
    there_and_back(&None::<u64>);
    there_and_back(&Ok::<u32, String>(7));
    there_and_back(&Err::<u32, String>("no".into()));
    there_and_back(&vec![vec![1u32, 2], vec![], vec![3]]);
    there_and_back(&vec![true, false]);
    there_and_back(&vec!['a', 'b', 'c']);
    there_and_back(&vec![[true, false]; 5]);
    there_and_back(&vec![(); 9]);
    there_and_back(&vec![Some(1u8), None]);
    there_and_back(&[vec![1u8], vec![2, 3]]);
    there_and_back(&vec![1u64; 300]);
}

#[test]
fn plain_values_are_blocks_and_others_are_none() {
    let mut flags = [true, false];
    assert_eq!(bool::as_block(&flags), Some(&[1, 0][..]));
    assert_eq!(bool::as_block_mut(&mut flags).map(|block| block.capacity()), Some(2));
    assert!(String::as_block(&[String::new()]).is_none());
    assert!(String::as_block_mut(&mut [String::new()]).is_none());
    assert!(String::from_block(&mut [0; 8]).is_none());
    assert_eq!(bool::from_block(&mut [1, 0]), Some(Ok(&mut [true, false][..])));
    assert_eq!(bool::from_block(&mut [2]), Some(Err(Invalid::Bits)));
    let mut pairs = [[1u8, 2], [3, 4]];
    assert_eq!(<[u8; 2]>::as_block(&pairs), Some(&[1, 2, 3, 4][..]));
    assert_eq!(<[u8; 2]>::as_block_mut(&mut pairs).map(|block| block.capacity()), Some(4));
    assert_eq!(<[u8; 2]>::from_block(&mut [1, 2, 3, 4]), Some(Ok(&mut [[1, 2], [3, 4]][..])));
    assert_eq!(<[u8; 2]>::from_block(&mut [1, 2, 3]), Some(Err(Invalid::Block)));
    assert!(<[String; 1]>::from_block(&mut [0; 8]).is_none());
    assert_eq!([common_unit(&[2]), common_unit(&[4, 4, 4]), common_unit(&[4, 4, 2])], [2, 4, 0],);
}

#[test]
fn counts_of_structured_values_are_bounded_by_the_bytes_that_are_left() {
    // Each string takes at least four bytes, so 40 bytes hold at most ten strings.
    let mut reader = Reader::new(Window::from(&[0; 40][..]));
    assert!(String::decode_all(11, &mut reader).is_err());
    let mut reader = Reader::new(Window::from(&[0; 40][..]));
    let strings = String::decode_all(10, &mut reader).unwrap();
    assert_eq!((strings.len(), reader.finish()), (10, Ok(())));
    assert!(strings.capacity() <= 40, "memory for more values than the message can contain");
}

#[test]
fn a_failed_call_travels_as_text_that_is_cut() {
    use crate::error::{CallError, Executed, Kind};
    let error =
        CallError::new(Kind::Panicked, Executed::No, "x".repeat(2 * limits::TEXT_BYTES_MAX));
    let (done, _, memory) =
        written::<Native>(4 * limits::TEXT_BYTES_MAX, |head| error.encode(head));
    done.unwrap();
    let back = CallError::decode(&mut Reader::new(Window::from(&memory[..]))).unwrap();
    assert_eq!((back.kind(), back.executed()), (Kind::Relayed, Executed::Maybe));
    assert_eq!(back.detail().len(), limits::TEXT_BYTES_MAX);
    assert!(error.chain().starts_with(back.detail()));
}

#[test]
fn byte_orders_have_numbers() {
    use ByteOrder::{Big, Little};
    assert_eq!([Little, Big].map(ByteOrder::number), [1, 2]);
    assert_eq!([0, 1, 2, 3].map(ByteOrder::from_number), [None, Some(Little), Some(Big), None]);
    assert!(ByteOrder::NATIVE.is_native() && !ByteOrder::NATIVE.other().is_native());
}

/// Copies parts of a block through the caches or past them, with and without conversion. The lengths are
/// around each size at which the copy method changes.
#[test]
fn parts_of_a_block_are_copied_by_every_method() {
    let words: Vec<u32> = (0..5000).map(|n| (n << 16) ^ (n * 7)).collect();
    let turned: Vec<u32> = words.iter().map(|word| word.swap_bytes()).collect();
    for swap in [None, Swap::of::<u32>()] {
        let expected = bytes_of(if swap.is_some() { &turned } else { &words });
        let block = Block::new(Window::from(bytes_of(&words)), swap);
        assert_eq!(block.unconverted().is_some(), swap.is_none());
        assert!(!block.is_empty());
        for how in [CopyMethod::Short, CopyMethod::Cached, CopyMethod::Streaming] {
            for (at, bytes) in [(0, 0), (0, 20_000), (1, 63), (17, 127), (16, 64), (5, 9001)] {
                let mut to = vec![0xaa; bytes + 40];
                let place = Space::of_mut(&mut to).part(20, bytes).unwrap();
                block.copy_to(at, place, how);
                assert!(to[20..20 + bytes] == expected[at..at + bytes], "{how:?} {bytes} at {at}");
                assert!(to[..20].iter().chain(&to[20 + bytes..]).all(|byte| *byte == 0xaa));
            }
        }
    }
    assert_eq!(Swap::of::<u32>().map(Swap::unit_bytes), Some(4));
    assert_eq!(Swap::of::<[u16; 3]>().map(Swap::unit_bytes), Some(2));
}
