//! Tests of buffers. Values, files and blocks must arrive completely, and no other memory may be written.

use super::*;
use crate::value::{Block, CopyMethod, Departs};
use std::io::{Seek, SeekFrom};
use std::sync::Mutex;

#[test]
fn out_of_a_slice_a_vector_and_a_space() {
    fn fill(mut out: Out<'_, u16>) {
        out.put(&[1, 2]).unwrap();
        out.set(2, 9).unwrap();
        out.set(0, 7).unwrap();
        assert_eq!(out.put(&[1, 1]), Err(Full { remaining: 1 }));
    }
    let mut slice = [0u16; 4];
    let mut out = Out::from(&mut slice);
    fill(out.by_ref());
    assert_eq!((out.filled(), out.remaining()), (3, 1));
    assert_eq!(slice, [7, 2, 9, 0]);

    let mut vec = Vec::with_capacity(4);
    vec.push(55u16);
    assert_eq!(vec.capacity(), 4);
    fill(Out::from(&mut vec));
    assert_eq!(vec, [7, 2, 9]);

    let (mut memory, mut filled) = ([0u8; 8], 0);
    fill(Out::of_space(Space::of_mut(&mut memory), &mut filled));
    assert_eq!((filled, memory[0], memory[4]), (3, 7, 9));
}

#[test]
fn a_block_takes_only_valid_whole_values_that_fit() {
    let mut values = [false; 3];
    let mut out = Out::from(&mut values);
    let mut block = out.block();
    assert_eq!(block.fill(Window::from(&[1u8, 1, 1, 1][..])), Err(Invalid::TooLong));
    assert_eq!(block.fill(Window::from(&[1u8, 3][..])), Err(Invalid::Bits));
    assert_eq!(block.fill(Window::from(&[1u8, 0][..])), Ok(()));
    assert_eq!(out.filled(), 2);
    let mut vec = Vec::<char>::with_capacity(4);
    let mut out = Out::from(&mut vec);
    let text: Vec<u8> = "ab".chars().flat_map(|c| u32::from(c).to_ne_bytes()).collect();
    assert_eq!(out.block().fill(Window::from(&text[..])), Ok(()));
    assert_eq!(vec, ['a', 'b']);
    let mut words = [0u32; 2];
    let mut out = Out::from(&mut words);
    assert_eq!(out.block().fill(Window::from(&[1u8, 2, 3][..])), Err(Invalid::Block));
}

#[test]
fn lent_copies_and_refuses_what_is_not_there() {
    let lent = Lent::from(&[1u32, 2, 3]);
    let mut two = [0; 2];
    assert_eq!(lent.copy_to(2, &mut two), Err(Invalid::Short));
    assert_eq!(lent.copy_to(usize::MAX, &mut two), Err(Invalid::Short));
    assert_eq!(lent.copy_to(0, &mut two), Ok(()));
    assert_eq!(two, [1, 2]);
}

fn file_of(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn all_of(file: &mut File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

fn counted(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

#[test]
fn out_is_full_at_its_capacity() {
    let mut slice = [0u32; 3];
    let mut out = Out::from(&mut slice);
    assert_eq!(out.put(&[1, 2, 3]), Ok(()));
    assert_eq!((out.put(&[4]), out.remaining()), (Err(Full { remaining: 0 }), 0));
    let (mut memory, mut filled) = ([0xaa; 16], 9);
    let mut out = Out::<u32>::of_space(Space::of_mut(&mut memory), &mut filled);
    out.put(&[1, 2, 3]).unwrap();
    out.set(2, 0x0505_0505).unwrap();
    assert_eq!((out.filled(), out.capacity()), (3, 4));
    assert_eq!(memory[8..], [5, 5, 5, 5, 0xaa, 0xaa, 0xaa, 0xaa]);
}

#[test]
fn bytes_in_shared_memory_are_not_given_to_be_changed() {
    let mut slice = [7; 4];
    let mut out = Out::from(&mut slice);
    out.put(&[1, 2]).unwrap();
    assert!(!out.is_shared());
    assert_eq!(out.filled_mut(), [1, 2]);
    let mut vec = Vec::with_capacity(4);
    let mut out = Out::from(&mut vec);
    out.put(&[1, 2, 3]).unwrap();
    assert_eq!(out.filled_mut(), [1, 2, 3]);
    let (mut memory, mut filled) = ([0; 8], 0);
    let mut out = Out::of_space(Space::of_mut(&mut memory), &mut filled);
    out.put(&[1, 2, 3]).unwrap();
    assert!(out.is_shared() && out.filled_mut().is_empty());
}

/// A reader that returns at most 700 bytes at a time. Every third read is interrupted. If `fails` is true,
/// the reader returns an error after its last byte.
struct Trickle<'a> {
    bytes: &'a [u8],
    calls: u32,
    fails: bool,
}

impl Read for Trickle<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.calls += 1;
        assert!(self.calls < 1000, "the reader is called for ever");
        if self.calls.is_multiple_of(3) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if self.bytes.is_empty() && self.fails {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let bytes = to.len().min(700).min(self.bytes.len());
        to[..bytes].copy_from_slice(&self.bytes[..bytes]);
        self.bytes = &self.bytes[bytes..];
        Ok(bytes)
    }
}

#[test]
fn a_reader_fills_until_its_end_or_until_the_buffer_is_full() {
    let source = counted(10_000);
    for (room, come) in [(12_000, 9_990), (5000, 4990), (10, 0)] {
        let mut buffer = vec![0; room];
        let mut out = Out::from(&mut buffer[..]);
        out.put(&[1; 10]).unwrap();
        let mut reader = Trickle { bytes: &source[10..], calls: 0, fails: false };
        assert_eq!(out.fill_from(&mut reader).unwrap(), come);
        assert_eq!(out.filled(), 10 + come);
        assert_eq!(buffer[10..10 + come], source[10..10 + come]);
    }
    let mut buffer = vec![0; 12_000];
    let mut out = Out::from(&mut buffer[..]);
    let mut reader = Trickle { bytes: &source, calls: 0, fails: true };
    let error = out.fill_from(&mut reader).unwrap_err();
    assert_eq!((error.kind(), out.filled()), (io::ErrorKind::BrokenPipe, 10_000));
}

#[test]
fn a_file_fills_every_kind_of_buffer_from_its_offset() {
    let source = counted(3 * FILE_BYTES + 17);
    let file = file_of(&source);
    for (room, offset) in [(1000, 5), (4 * FILE_BYTES, 5), (4 * FILE_BYTES, source.len())] {
        let come = (room - 3).min(source.len() - offset);
        let check = |mut out: Out<'_, u8>| {
            out.put(&[9; 3]).unwrap();
            assert_eq!(out.fill_from_file(&file, offset as u64).unwrap(), come);
            assert_eq!(out.filled(), 3 + come);
        };
        let is_right = |bytes: &[u8]| {
            assert_eq!(bytes[..3], [9; 3]);
            assert!(bytes[3..3 + come] == source[offset..offset + come]);
        };
        let mut slice = vec![0; room];
        check(Out::from(&mut slice[..]));
        is_right(&slice);
        let mut vec = Vec::with_capacity(room);
        check(Out::from(&mut vec));
        is_right(&vec);
        let (mut memory, mut filled) = (vec![0; room], 0);
        check(Out::of_space(Space::of_mut(&mut memory), &mut filled));
        is_right(&memory);
    }
}

#[test]
fn lent_bytes_are_written_whole() {
    assert!(Lent::<u32>::from(&[]).is_empty());
    assert!(!Lent::from(&[1u32]).is_empty());
    assert_eq!(Lent::from(&[1u32, 2]).len(), 2);
    for bytes in [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * FILE_BYTES + 3] {
        let source = counted(bytes);
        let lent = Lent::from(&source[..]);
        let mut written = Vec::new();
        lent.write_to(&mut written).unwrap();
        assert!(written == source, "{bytes} bytes to a writer");
        let mut file = file_of(&[7; 5]);
        lent.write_to_file(&file, 3).unwrap();
        let written = all_of(&mut file);
        assert_eq!(written[..3], [7; 3]);
        assert!(written[3..3 + bytes] == source, "{bytes} bytes to a file");
        assert_eq!(written.len(), 5.max(3 + bytes));
    }
}

#[test]
fn what_came_early_is_not_copied_again_unless_it_does_not_hold() {
    let (first, last) = (counted(MUCH_BYTES + 10), vec![3; MUCH_BYTES + 10]);
    for forget in [false, true] {
        let mut words = vec![0u16; first.len() / 2];
        let mut out = Out::from(&mut words[..]);
        let mut block = out.block();
        // With an odd number of bytes, the last value is incomplete, and is not copied.
        block.fill_early(Window::from(&first[..101]));
        assert_eq!(block.early, 100);
        block.fill_early(Window::from(&last[..100]));
        if forget {
            block.forget_early();
        }
        block.fill(Window::from(&last[..])).unwrap();
        let bytes = bytes_of(&words);
        assert_eq!(bytes[..100], if forget { &last } else { &first }[..100]);
        assert_eq!(bytes[100..], last[100..]);
    }
    // Values of types with invalid bit patterns are checked first, so they are never copied early.
    let mut flags = [false; 8];
    let mut out = Out::from(&mut flags);
    let mut block = out.block();
    block.fill_early(Window::from(&[1u8; 8][..]));
    assert_eq!(block.early, 0);
    // No more bytes are copied early than fit the buffer.
    let mut small = [0u8; 4];
    let mut out = Out::from(&mut small);
    let mut block = out.block();
    block.fill_early(Window::from(&first[..9]));
    assert_eq!(block.early, 4);
}

#[test]
fn blocks_of_any_size_are_filled_and_checked() {
    for count in [0, 1, 1000, 1024, 1025, 2048, 5000] {
        let letters: Vec<char> = (0..count).map(|n| char::from(b'a' + (n % 26) as u8)).collect();
        let mut vec = Vec::<char>::with_capacity(count);
        let mut out = Out::from(&mut vec);
        out.block().fill(Window::from(bytes_of(&letters))).unwrap();
        assert!(vec == letters, "{count}");
        let bytes: Vec<u8> = counted(4 * count);
        let mut words = vec![0u32; count];
        let mut out = Out::from(&mut words[..]);
        let mut block = out.block();
        assert_eq!(block.contents().len(), 4 * count);
        block.fill(Window::from(&bytes[..])).unwrap();
        assert!(bytes_of(&words) == bytes, "{count}");
    }
    // One invalid value after the first chunk is detected.
    let mut letters = vec![u32::from('x'); 5000];
    letters[4999] = 0xd800;
    let mut vec = Vec::<char>::with_capacity(5000);
    let mut out = Out::from(&mut vec);
    assert_eq!(out.block().fill(Window::from(bytes_of(&letters))), Err(Invalid::Bits));
    assert!(vec.is_empty());
}

/// Records the offset and the length of each piece that `write` copied, and whether `changed` was called. For
/// a call of `there`, it records the end of the announced bytes, with the length 0.
#[derive(Debug, Default)]
struct RecordingDeparts(Mutex<(Vec<(usize, usize)>, bool)>);

impl Departs for RecordingDeparts {
    fn write(&self, at: usize, to: Space<'_>, block: &Block<'_>, from: usize) {
        block.copy_to(from, to, CopyMethod::Short);
        self.0.lock().unwrap().0.push((at, to.len()));
    }
    fn there(&self, end: usize) {
        self.0.lock().unwrap().0.push((end, 0));
    }
    fn changed(&self) {
        self.0.lock().unwrap().1 = true;
    }
}

#[test]
fn what_is_put_where_somebody_reads_is_told_from_the_start_of_the_message() {
    let told = RecordingDeparts::default();
    let (mut memory, mut filled) = (vec![0; 600_000], 0);
    let departing = Departing::new(Space::of_mut(&mut memory), 48, Some(&told));
    assert!(!departing.is_empty() && departing.beginning(0).unwrap().is_empty());
    assert_eq!(departing.beginning(10).unwrap().len(), 10);
    assert!(departing.beginning(600_001).is_none());
    let mut out = Out::<u8>::of_space(departing, &mut filled);
    out.put(&[1; 20]).unwrap();
    out.put(&[2; 30]).unwrap();
    let bytes = counted(300_000);
    assert_eq!(out.fill_from_file(&file_of(&bytes), 0).unwrap(), bytes.len());
    let seen = core::mem::take(&mut told.0.lock().unwrap().0);
    assert_eq!(seen[..2], [(48, 20), (68, 30)]);
    assert_eq!(seen.last(), Some(&(48 + 50 + bytes.len(), 0)));
    assert!(seen.len() > 3, "a large file is announced in pieces: {seen:?}");
    let changed = || core::mem::take(&mut told.0.lock().unwrap().1);
    assert!(!changed());
    out.set(3, 7).unwrap();
    assert!(changed());
    let _ = out.block();
    assert!(changed());
    assert_eq!((memory[3], memory[20], memory[50]), (7, 2, 0));
}

/// Fills blocks as interpreted stubs do. The values are single bytes, but longer numbers are converted.
#[test]
fn what_comes_early_is_cut_between_numbers_and_all_of_it_is_written() {
    let sent: Vec<u8> = (1..=32).collect();
    let swaps = [Swap::of::<u16>(), Swap::of::<u32>(), Swap::of::<u64>(), Swap::of::<u128>()];
    for (swap, unit) in swaps.into_iter().zip([2, 4, 8, 16]) {
        let mut turned = sent.clone();
        turned.chunks_exact_mut(unit).for_each(<[u8]>::reverse);
        for early in 0..=32 {
            let mut vec = vec![0; 32];
            let mut out = Out::from(&mut vec);
            let mut block = out.block().converted(swap);
            for early in [early / 2, early] {
                block.fill_early(Window::from(&sent[..early]));
            }
            block.fill(Window::from(&sent[..])).unwrap();
            assert_eq!(vec, turned, "numbers of {unit} bytes, {early} bytes early");
        }
    }
}
