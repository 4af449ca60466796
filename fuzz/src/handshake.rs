//! Messages of the handshake, of either side: what is read is written again as it was.

use peregrine::fuzzing::{answer, request};

/// What was understood can be said, and said again it is understood as the same. Of the bytes that
/// came, only padding may differ: it is zero when we write it.
fn holds(read: fn(&[u8]) -> Option<Vec<u8>>, bytes: &[u8]) {
    let Some(written) = read(bytes) else { return };
    assert_eq!(read(&written).as_ref(), Some(&written));
    // A refusal's text is cut when it is said.
    if written.len() == bytes.len() {
        let same = |(ours, theirs): (&u8, &u8)| ours == theirs || *ours == 0;
        assert!(written.iter().zip(bytes).all(same), "{written:?} was {bytes:?}");
    } else {
        assert_eq!(written[..4], 102u32.to_ne_bytes(), "{written:?} was {bytes:?}");
    }
}

/// Input: a message.
pub fn run(bytes: &[u8]) {
    holds(request, bytes);
    holds(answer, bytes);
}
