//! Decodes values of many types from any bytes. When a decoded value is encoded again, the bytes are the same
//! except for padding.

use std::fmt::Debug;

use peregrine::value::{Invalid, Native, Representation, Swapped, plain_mut, plain_slice};
use peregrine::{CallError, Plain, Value};

use super::{Colour, List, Nothing, Point, Shade, Shape, Tree, decode, encode};

/// Decodes a value of one of several types. The input consists of the number of the type and the bytes of the
/// value.
pub fn run(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 28 {
        0 => check_round_trip::<List>(bytes),
        1 => check_round_trip::<Tree>(bytes),
        2 => check_round_trip::<Shape>(bytes),
        3 => check_round_trip::<Point>(bytes),
        4 => check_round_trip::<(u8, Colour, Point)>(bytes),
        5 => check_round_trip::<String>(bytes),
        6 => check_round_trip::<Vec<String>>(bytes),
        7 => check_round_trip::<Vec<Option<Result<String, u16>>>>(bytes),
        8 => check_round_trip::<[Vec<u8>; 3]>(bytes),
        9 => check_round_trip::<Box<(u8, u64, char)>>(bytes),
        10 => check_round_trip::<Vec<Vec<()>>>(bytes),
        11 => check_round_trip::<Vec<Vec<Nothing>>>(bytes),
        12 => check_round_trip::<Vec<Box<()>>>(bytes),
        13 => check_round_trip::<Vec<Vec<Box<()>>>>(bytes),
        14 => check_round_trip::<(Vec<bool>, Vec<char>, Vec<Point>)>(bytes),
        15 => check_round_trip::<(u8, [u64; 0], u128)>(bytes),
        16 => check_round_trip::<Vec<[u32; 0]>>(bytes),
        17 => {
            check_round_trip::<Option<Result<[Option<Box<Tree>>; 3], (u8, [u64; 0], char)>>>(bytes)
        }
        18 => check_round_trip::<(bool, u8, i16, u32, i64, f32, f64, i128)>(bytes),
        19 => check_round_trip::<Vec<(Colour, u64)>>(bytes),
        20 => check_round_trip::<Vec<[Vec<Shade>; 2]>>(bytes),
        21 => check_round_trip::<Result<Box<Shape>, Vec<List>>>(bytes),
        22 => {
            // An error is relayed as text, so encoding a decoded error can produce other bytes.
            let _ = decode::<CallError, Native>(bytes).map(|(error, _)| error.to_string());
        }
        23 => block::<Point>(bytes),
        24 => block::<[bool; 3]>(bytes),
        25 => block::<char>(bytes),
        26 => block::<u128>(bytes),
        _ => block::<[Colour; 2]>(bytes),
    }
}

/// Checks the value in both byte orders.
fn check_round_trip<T: Value>(bytes: &[u8]) {
    check_round_trip_in::<T, Native>(bytes);
    check_round_trip_in::<T, Swapped>(bytes);
}

/// Checks that a decoded value is encoded in as many bytes as it was decoded from. The new bytes must differ
/// from the old bytes only in padding. Decoding the new bytes must produce the same value.
fn check_round_trip_in<T: Value, R: Representation>(bytes: &[u8]) {
    let Some((value, taken)) = decode::<T, R>(bytes) else { return };
    let written = encode::<T, R>(&value).expect("a decoded value can be encoded");
    assert_eq!(written.len(), taken);
    let same = |(ours, theirs): (&u8, &u8)| ours == theirs || *ours == 0;
    assert!(written.iter().zip(bytes).all(same), "{written:?} was {bytes:?}");
    let (again, all) = decode::<T, R>(&written).expect("an encoded value can be decoded");
    assert_eq!(all, taken);
    assert_eq!(encode::<T, R>(&again), Some(written));
    // Decoding must read nothing beyond the end of the value, and must fail if the last byte is missing.
    assert!(decode::<T, R>(&bytes[..taken]).is_some());
    assert!(taken == 0 || decode::<T, R>(&bytes[..taken - 1]).is_none());
}

/// Checks that a block of values is accepted if it is aligned and complete and all values in it are valid.
/// Otherwise the block must be refused.
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
