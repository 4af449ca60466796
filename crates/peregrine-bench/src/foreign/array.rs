//! Measures the case `array-256`: an array of 256 integers, `(A[256] I)` in the study of stubs, is written as
//! XDR and read again. The limit copies the same number of bytes into a message and out of it.

use std::hint::black_box;

use peregrine::foreign::{Foreign, Input, Output, Xdr};

use crate::Selection;
use crate::local::{in_turn, split};
use crate::row::Row;
use crate::stubs::{INTEGERS, MIDDLE, PACKET, Placed, Repeated, Used};
use crate::subject::Failure;

/// The name of the case.
pub(crate) const ARRAY: &str = "array-256";
/// The name of the limit.
pub(crate) const COPIES: &str = "memcpy";

/// The number of bytes of the array in XDR.
const BYTES: usize = 4 * INTEGERS;

type Integers = Placed<[i32; INTEGERS], MIDDLE>;
type Bytes = Placed<[u8; BYTES], MIDDLE>;

/// Writes the array to a message and reads it again, as the stubs do. Like a server stub, this function
/// passes on only a reference to the array that it has read.
fn marshalled(array: &mut Box<Integers>, message: &mut [u8]) -> Used {
    let mut output = Output::<Xdr>::new(message);
    array.put(&mut output).ok()?;
    let bytes = output.len();
    let mut input = Input::<Xdr>::new(black_box(&*message).get(..bytes)?);
    let taken = match input.cells_of::<[i32; INTEGERS]>().ok()? {
        Some(cells) => Foreign::<Xdr>::of_cells(cells),
        None => <[i32; INTEGERS]>::take(&mut input).ok()?,
    };
    input.finish().ok()?;
    black_box(&taken);
    Some(bytes)
}

/// Copies the bytes to a message, and from there to other memory.
fn copied(bytes: &mut Box<Bytes>, message: &mut [u8]) -> Used {
    message.get_mut(..BYTES)?.copy_from_slice(&bytes[..]);
    let taken: [u8; BYTES] = *black_box(&*message).first_chunk()?;
    black_box(&taken);
    Some(BYTES)
}

/// Measures `marshalled` and its limit `copied` in the same rounds. Returns the row of the case.
pub(crate) fn measure(selection: &Selection) -> Result<Row, Failure> {
    let message = || Placed::boxed([0; PACKET]);
    let array = Placed::boxed(core::array::from_fn(|i| i as i32));
    let mut both = [
        Repeated::calling(array, message(), marshalled),
        Repeated::calling(Placed::boxed([0xa5; BYTES]), message(), copied),
    ];
    let samples = in_turn(selection.rounds(), both.len(), |which| {
        both[which].measure(selection.slice() / 2)
    })?;
    let ((ours, _), (copies, _)) = (split(&samples[0]), split(&samples[1]));
    let row = Row { path: Some("memory"), ..Row::new(ARRAY) };
    Ok(row.ours(&ours, &[]).limit(COPIES, &copies).ratio(&ours, &copies))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn array_is_written_and_read_as_xdr() {
        let values: [i32; INTEGERS] =
            core::array::from_fn(|i| (i as i32).wrapping_mul(0x0123_4567));
        let (mut array, mut message) = (Placed::boxed(values), [0; BYTES]);
        assert_eq!(marshalled(&mut array, &mut message), Some(BYTES));
        let expected: Vec<u8> = values.iter().flat_map(|value| value.to_be_bytes()).collect();
        assert_eq!(message[..], expected[..]);
        assert_eq!(marshalled(&mut array, &mut message[1..]), None);
    }
}
