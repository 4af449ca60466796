//! Messages of the handshake of either side: what is parsed is emitted again in the same bytes.

use peregrine::fuzzing::{answer, request};

/// Checks that a parsed message can be emitted, and that the result is parsed as the same. It may differ from
/// the input only in padding, which is zero when it is emitted.
fn check_round_trip(read: fn(&[u8]) -> Option<Vec<u8>>, bytes: &[u8]) {
    let Some(written) = read(bytes) else { return };
    assert_eq!(read(&written).as_ref(), Some(&written));
    // The text of a refusal is truncated when it is emitted.
    if written.len() == bytes.len() {
        let same = |(ours, theirs): (&u8, &u8)| ours == theirs || *ours == 0;
        assert!(written.iter().zip(bytes).all(same), "{written:?} was {bytes:?}");
    } else {
        assert_eq!(written[..4], 102u32.to_ne_bytes(), "{written:?} was {bytes:?}");
    }
}

/// Input: a message.
pub fn run(bytes: &[u8]) {
    check_round_trip(request, bytes);
    check_round_trip(answer, bytes);
}
