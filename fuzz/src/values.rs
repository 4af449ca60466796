//! Values of many types, from any bytes: what is a value is written again as it was.

use std::fmt::Debug;

use peregrine::value::{Invalid, Native, Representation, Swapped, plain_mut, plain_slice};
use peregrine::{CallError, Plain, Value};

use super::{Colour, List, Nothing, Point, Shade, Shape, Tree, decode, encode};

/// Input: which type, then its bytes.
pub fn run(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 28 {
        0 => holds::<List>(bytes),
        1 => holds::<Tree>(bytes),
        2 => holds::<Shape>(bytes),
        3 => holds::<Point>(bytes),
        4 => holds::<(u8, Colour, Point)>(bytes),
        5 => holds::<String>(bytes),
        6 => holds::<Vec<String>>(bytes),
        7 => holds::<Vec<Option<Result<String, u16>>>>(bytes),
        8 => holds::<[Vec<u8>; 3]>(bytes),
        9 => holds::<Box<(u8, u64, char)>>(bytes),
        10 => holds::<Vec<Vec<()>>>(bytes),
        11 => holds::<Vec<Vec<Nothing>>>(bytes),
        12 => holds::<Vec<Box<()>>>(bytes),
        13 => holds::<Vec<Vec<Box<()>>>>(bytes),
        14 => holds::<(Vec<bool>, Vec<char>, Vec<Point>)>(bytes),
        15 => holds::<(u8, [u64; 0], u128)>(bytes),
        16 => holds::<Vec<[u32; 0]>>(bytes),
        17 => holds::<Option<Result<[Option<Box<Tree>>; 3], (u8, [u64; 0], char)>>>(bytes),
        18 => holds::<(bool, u8, i16, u32, i64, f32, f64, i128)>(bytes),
        19 => holds::<Vec<(Colour, u64)>>(bytes),
        20 => holds::<Vec<[Vec<Shade>; 2]>>(bytes),
        21 => holds::<Result<Box<Shape>, Vec<List>>>(bytes),
        22 => {
            // Relayed as text: it comes back as another error.
            let _ = decode::<CallError, Native>(bytes).map(|(error, _)| error.to_string());
        }
        23 => block::<Point>(bytes),
        24 => block::<[bool; 3]>(bytes),
        25 => block::<char>(bytes),
        26 => block::<u128>(bytes),
        _ => block::<[Colour; 2]>(bytes),
    }
}

/// In both representations.
fn holds<T: Value>(bytes: &[u8]) {
    holds_in::<T, Native>(bytes);
    holds_in::<T, Swapped>(bytes);
}

/// What was read is written in as many bytes, of which only padding may differ, and read again.
fn holds_in<T: Value, R: Representation>(bytes: &[u8]) {
    let Some((value, taken)) = decode::<T, R>(bytes) else { return };
    let written = encode::<T, R>(&value).expect("what came can be sent");
    assert_eq!(written.len(), taken);
    let same = |(ours, theirs): (&u8, &u8)| ours == theirs || *ours == 0;
    assert!(written.iter().zip(bytes).all(same), "{written:?} was {bytes:?}");
    let (again, all) = decode::<T, R>(&written).expect("what was sent can be read");
    assert_eq!(all, taken);
    assert_eq!(encode::<T, R>(&again), Some(written));
    // Nothing of what was read stood behind its end, nor can it be read from less.
    assert!(decode::<T, R>(&bytes[..taken]).is_some());
    assert!(taken == 0 || decode::<T, R>(&bytes[..taken - 1]).is_none());
}

/// A block is values only if it lies right, is whole, and every value is one.
fn block<T: Plain + Value + Debug>(bytes: &[u8]) {
    let mut memory = vec![0; bytes.len() + 32];
    let aligned = memory.as_ptr().align_offset(16);
    for start in [aligned, aligned + 1] {
        let image = &mut memory[start..start + bytes.len()];
        image.copy_from_slice(bytes);
        let valid = bytes.len().is_multiple_of(size_of::<T>())
            && bytes.chunks_exact(size_of::<T>()).all(|one| decode::<T, Native>(one).is_some())
            && (start == aligned || align_of::<T>() == 1);
        let found = plain_slice::<T>(image).map(|values| format!("{values:?}"));
        assert_eq!(found.is_ok(), valid, "{bytes:?}");
        if let Err(invalid) = &found {
            assert!(matches!(invalid, Invalid::Block | Invalid::Bits));
        }
        assert_eq!(plain_mut::<T>(image).map(|values| format!("{values:?}")), found);
    }
}
