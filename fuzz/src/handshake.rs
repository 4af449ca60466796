//! Parses messages of either side of the handshake. When a parsed message is emitted again, the bytes are the
//! same except for padding and the truncated texts of refusals.

use peregrine::fuzzing::{answer, request};

/// Checks that a parsed message can be emitted, and that the emitted bytes are parsed as the same message.
/// The emitted bytes may differ from the input only in padding, which is emitted as zeros, and in the text of
/// a refusal, which may be truncated. `read` parses a message, and returns the bytes in which it emits this
/// message again.
fn check_round_trip(read: fn(&[u8]) -> Option<Vec<u8>>, bytes: &[u8]) {
    let Some(written) = read(bytes) else { return };
    assert_eq!(read(&written).as_ref(), Some(&written));
    // Bytes of different lengths are allowed only for a refusal, because its text may be truncated.
    if written.len() == bytes.len() {
        let same = |(ours, theirs): (&u8, &u8)| ours == theirs || *ours == 0;
        assert!(written.iter().zip(bytes).all(same), "{written:?} was {bytes:?}");
    } else {
        assert_eq!(written[..4], 102u32.to_ne_bytes(), "{written:?} was {bytes:?}");
    }
}

/// Checks an input twice: as a message of the client, and as a message of the server.
pub fn run(bytes: &[u8]) {
    check_round_trip(request, bytes);
    check_round_trip(answer, bytes);
}
