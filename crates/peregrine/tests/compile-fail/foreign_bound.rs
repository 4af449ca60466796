//! These types have no form in Courier.

use peregrine::foreign::{ByteString, Courier, Foreign, to_bytes};

#[derive(Foreign)]
struct Wide {
    number: u64,
}

#[derive(Foreign)]
#[foreign(courier)]
struct Chosen {
    real: f32,
    bytes: [u8; 4],
    maybe: Option<bool>,
    name: ByteString,
}

#[derive(Foreign)]
struct Node {
    #[list]
    next: Option<Box<Self>>,
}

#[derive(Foreign)]
#[foreign(xdr)]
struct Unbounded(#[foreign(max = 4)] u32);

fn main() {
    let _ = to_bytes::<Courier>(&Wide { number: 1 });
    let _ = to_bytes::<Courier>(&7u64);
}
