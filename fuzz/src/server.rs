//! Passes any message with any header to a server stub. The stub answers, and stays within its memory.

use peregrine::Kind;
use peregrine::call::{Answer, EStack, Incoming, PING, Ran, execute};
use peregrine::value::{Reader, Space, Value, Window};

use super::{EverythingServer, Object};

/// Runs a call. The input consists of a header of 8 bytes and the message. The header contains the number of
/// the procedure (255 is `PING`), the number of kibibytes that the memory for the reply has in addition to
/// 4 KiB, and three lengths of 16 bits. The largest 16-bit length represents the largest 32-bit length.
pub fn run(bytes: &[u8]) {
    let Some((header, message)) = bytes.split_at_checked(8) else { return };
    let length = |at: usize| match u16::from_le_bytes([header[at], header[at + 1]]) {
        u16::MAX => u32::MAX as usize,
        length => length.into(),
    };
    let incoming = Incoming {
        arrives: None,
        departs: None,
        procedure: if header[0] == 255 { PING } else { header[0].into() },
        space: Window::from(message),
        head_bytes: length(2),
        copied: length(4),
        total: length(6),
    };
    // The buffer has exactly the announced size, so that the sanitizer detects any access beyond it.
    let mut reply = vec![0xaa; 4096 + 1024 * usize::from(header[1])];
    let mut estack = EStack::default();
    let server = EverythingServer::new(Object);
    let Ran { answer, head_at: at, head_bytes: bytes, .. } =
        execute(&server, &incoming, Space::of_mut(&mut reply), &mut estack);
    let head = Window::from(&*reply).part(at as usize, bytes as usize).expect("within the reply");
    if matches!(answer, Answer::NotExecuted | Answer::MayHaveExecuted) {
        let mut head = Reader::new(head);
        let kind: u32 = head.plain().expect("a kind");
        let known = [Kind::NoSuchProcedure, Kind::BadArguments, Kind::TooLarge];
        assert!(known.iter().any(|known| *known as u32 == kind), "kind {kind}");
        String::decode(&mut head).expect("a text");
        head.finish().expect("no further bytes");
    }
}
