//! Decodes any bytes as values in XDR and Courier. When a decoded value is encoded again, the bytes are the
//! same except for padding.

use peregrine::foreign::{ByteString, Cells, Courier, Foreign, Xdr, from_bytes, to_bytes};

#[derive(Foreign)]
pub struct Tree {
    pub name: ByteString,
    pub children: Vec<Self>,
    pub best: Option<Box<Self>>,
}

#[derive(Foreign)]
pub struct Node {
    pub value: u64,
    pub next: Option<Box<Self>>,
}

#[derive(Foreign)]
pub enum Kind {
    Text = 0,
    Data = 1,
    Far = 0x0102,
}

#[derive(Foreign)]
#[foreign(switch = Kind)]
pub enum Choice {
    #[foreign(case = Kind::Text)]
    Text(#[foreign(max = 9)] String),
    #[foreign(case = Kind::Data)]
    Data { words: Vec<u16>, kind: Kind, pairs: Vec<(bool, i32)> },
    #[foreign(case = Kind::Far)]
    Far(Vec<Self>),
}

#[derive(Foreign)]
pub enum StreamOf<T> {
    #[foreign(case = 0)]
    Next(Vec<T>, Box<Self>),
    #[foreign(case = 1)]
    Last(Vec<T>),
}

#[derive(Foreign)]
pub enum Open {
    #[foreign(case = -1)]
    Numbers([i8; 3], [u8; 3], f64),
    #[foreign(default)]
    Other(i32, Vec<u8>),
}

/// Decodes a value of one of several types. The input consists of the number of the type and the bytes of
/// the value.
pub fn run(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 12 {
        0 => check::<Xdr, Tree>(bytes),
        1 => check::<Xdr, Node>(bytes),
        2 => check::<Xdr, Choice>(bytes),
        3 => check::<Courier, Choice>(bytes),
        4 => check::<Xdr, StreamOf<u64>>(bytes),
        5 => check::<Courier, StreamOf<(u16, Kind)>>(bytes),
        6 => check::<Xdr, Vec<Open>>(bytes),
        7 => check::<Xdr, (Vec<i32>, Vec<u64>, Vec<f32>, [i16; 4])>(bytes),
        8 => check::<Courier, (Vec<i32>, Vec<u16>, [bool; 3], String)>(bytes),
        9 => check::<Xdr, Vec<Vec<()>>>(bytes),
        10 => check::<Courier, Vec<Vec<Choice>>>(bytes),
        _ => check::<Xdr, Vec<Option<[Vec<u8>; 2]>>>(bytes),
    }
}

fn check<R: Cells, T: Foreign<R>>(bytes: &[u8]) {
    let Ok(value) = from_bytes::<R, T>(bytes) else { return };
    let written = to_bytes::<R>(&value).expect("a value that was taken can be put");
    assert_eq!(written.len(), bytes.len());
    // Padding is written as zero.
    let same = |(ours, theirs): (&u8, &u8)| ours == theirs || *ours == 0;
    assert!(written.iter().zip(bytes).all(same), "{written:?} was {bytes:?}");
    let again = from_bytes::<R, T>(&written).unwrap_or_else(|_| panic!("{written:?}"));
    assert_eq!(to_bytes::<R>(&again), Ok(written));
    for short in 0..bytes.len().min(64) {
        assert!(from_bytes::<R, T>(&bytes[..short]).is_err());
    }
}
