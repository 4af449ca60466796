//! Tests of copies: every way copies all and nothing else.

use super::{CHUNK_BYTES, Chunk, Masks, Space, Window, lines};

#[test]
fn every_way_to_copy_copies_all_and_nothing_else() {
    let source: Vec<u8> = (0..=255).cycle().take(400).collect();
    for start in [0, 1, 15, 16, 31, 63, 64] {
        for bytes in (0..200).chain([256, 300]) {
            for past in [false, true] {
                let mut memory = vec![0xaa; 500];
                let to = Space::of_mut(&mut memory).part(start, bytes).unwrap();
                let from = Window::from(&source[start / 2..start / 2 + bytes]);
                if past {
                    to.copy_past(from)
                } else {
                    to.copy_lines(from)
                }
                let copied = &memory[start..start + bytes];
                assert_eq!(copied, &source[start / 2..start / 2 + bytes]);
                let outside = memory[..start].iter().chain(&memory[start + bytes..]);
                assert!(outside.copied().all(|byte| byte == 0xaa), "{bytes} at {start}");
            }
        }
    }
    // Never more than there is room for.
    let mut memory = [0; 70];
    Space::of_mut(&mut memory).copy_past(Window::from(&source[..]));
    assert_eq!(memory, source[..70]);
}

/// Lanes are turned as bytes would be, wherever they lie and whichever comes first; also in place.
#[test]
fn lanes_are_turned_as_their_masks_say() {
    let each = |bytes: &mut [u8]| bytes.as_chunks_mut::<4>().0.iter_mut().for_each(|n| n.reverse());
    // Of 24 bytes, a number of eight and two of four, and what is left as it is.
    let mixed = |bytes: &mut [u8]| {
        for value in bytes.as_chunks_mut::<24>().0 {
            value[..8].reverse();
            value[12..16].reverse();
            value[20..].reverse();
        }
    };
    let source: Vec<u8> = (0..=255).cycle().take(1536).collect();
    // As many lanes as there are masks for, each in another order.
    let long = |bytes: &mut [u8]| {
        for value in bytes.as_chunks_mut::<256>().0 {
            for (n, lane) in value.as_chunks_mut::<16>().0.iter_mut().enumerate() {
                lane.rotate_left(n);
            }
        }
    };
    for (unit, turn, lanes) in [(4, each as fn(&mut [u8]), 1), (24, mixed, 3), (256, long, 16)] {
        let Some(masks) = Masks::of(unit, turn) else {
            assert!(!lines::can_turn(), "units of {unit} bytes");
            continue;
        };
        assert_eq!(masks.bytes(), 16 * lanes);
        let mut turned = source.clone();
        turn(&mut turned);
        for (lane, start) in [(0, 0), (0, 16), (0, 32), (1, 48), (4, 16), (4, 32), (2, 7), (5, 64)]
        {
            for bytes in [0, 15, 16, 48, 64, 200, 700, 1000] {
                for past in [false, true] {
                    let mut memory = vec![0xaa; 1200];
                    let to = Space::of_mut(&mut memory).part(start, bytes).unwrap();
                    let from = Window::from(&source[16 * lane..16 * lane + bytes]);
                    let done = to.copy_turned(from, &masks, lane, past);
                    assert_eq!(done, bytes / 16 * 16);
                    let expected = &turned[16 * lane..16 * lane + done];
                    assert!(&memory[start..start + done] == expected, "{unit} {lane} {bytes}");
                    let outside = memory[..start].iter().chain(&memory[start + done..]);
                    assert!(outside.copied().all(|byte| byte == 0xaa));
                }
            }
        }
        let mut memory = source[..960].to_vec();
        let space = Space::of_mut(&mut memory);
        space.copy_turned(space.window(), &masks, 0, false);
        assert_eq!(memory, turned[..960]);
    }
    // A number that lies in two lanes, and an order that is too long.
    assert!(Masks::of(12, |bytes| bytes.chunks_mut(12).for_each(<[u8]>::reverse)).is_none());
    assert!(Masks::of(17 * 16 + 1, each).is_none());
    // A lane that needs the first byte of the next one.
    assert!(Masks::of(32, |bytes| bytes[0] = bytes[16]).is_none());
}

#[test]
fn reaches_nothing_outside() {
    let mut memory = [7u8; 8];
    let window = Space::of_mut(&mut memory);
    assert!(window.part(8, 0).is_some());
    assert!(window.part(8, 1).is_none());
    assert!(window.part(9, 0).is_none());
    assert!(window.part(1, usize::MAX).is_none());
    assert!(window.read(1, &mut [0; 8]).is_none());
    assert!(window.write(7, &[1, 2]).is_none());
    assert!(window.read_plain::<u64>(1).is_none());
    assert!(window.zero(0, 9).is_none());
    assert_eq!(window.read_plain::<u32>(4), Some(0x0707_0707));
}

#[test]
fn invalid_bits_never_become_a_value() {
    let mut memory = [2u8, 0, 0, 0, 0xd8, 0, 0, 0];
    let window = Space::of_mut(&mut memory);
    assert_eq!(window.read_plain::<bool>(0), None);
    assert_eq!(window.read_plain::<bool>(1), Some(false));
    window.write_plain(0, &0xd800_u32).unwrap();
    assert_eq!(window.read_plain::<char>(0), None);
}

#[test]
fn a_chunk_holds_whole_units_and_whatever_is_larger() {
    let units =
        [(1, CHUNK_BYTES), (24, CHUNK_BYTES - CHUNK_BYTES % 24), (CHUNK_BYTES, CHUNK_BYTES)];
    for (unit, bytes) in units.into_iter().chain([(CHUNK_BYTES + 1, CHUNK_BYTES + 1)]) {
        assert_eq!(Chunk::whole(unit), bytes);
    }
    let source: Vec<u8> = (0..=255).cycle().take(3 * CHUNK_BYTES).collect();
    let window = Window::from(&source[..]);
    let mut chunk = Chunk::new();
    for bytes in [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, 5] {
        let fetched = chunk.fetch(window, 7, bytes).unwrap();
        assert!(fetched == &source[7..7 + bytes], "{bytes} bytes");
    }
    assert!(chunk.fetch(window, 7, source.len()).is_none());
    assert!(chunk.fetch(window, source.len(), 1).is_none());
}
