//! A client that writes its messages slowly: 1 or 64 bytes every few milliseconds.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::wire::Session;

/// The time between two writes. It is shorter than the time for which a server waits for a client that has
/// stopped writing.
const PAUSE: Duration = Duration::from_millis(3);
/// The number of bytes of a message with copied arguments. With one byte per pause, sending it takes almost
/// an hour.
const BYTES: u32 = 1_000_000;
/// The number of bytes of a message with a lent buffer (a buffer that the procedure reads directly). With 64
/// bytes per pause, sending it takes almost three seconds.
const LENT_BYTES: u32 = 60_016;

/// The kind of call that a trickling client sends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// A call of `copy`: the server copies the arguments before the procedure runs. Each write adds 1 byte.
    Copied,
    /// A call of `sum`: the procedure itself reads the buffer. Each write adds 64 bytes.
    Lent,
}

/// Sends slow messages in `count` sessions until the time `until`, one at a time in each session. Returns two
/// numbers. The first is how many messages the server answered before they were complete. The second is how
/// many of these answers did not ask the client to post the call again.
pub(crate) fn trickle(directory: &Path, count: usize, what: What, until: Instant) -> [u64; 2] {
    let session = |_| Session::new(directory, "vault", 1).expect("a session");
    let mut sessions: Vec<_> = (0..count).map(session).map(|one| (one, 0, 0)).collect();
    let [mut answered, mut run] = [0; 2];
    let total = match what {
        What::Copied => BYTES,
        What::Lent => LENT_BYTES,
    };
    while Instant::now() < until {
        for (session, message, sent) in &mut sessions {
            let reply = session.region.reply(0);
            if session.region.word(reply).load(Ordering::Acquire) == *message {
                const POST_AGAIN: u32 = 4;
                if *message != 0 && *sent < total {
                    answered += 1;
                    let answer = session.region.word(reply + 4).load(Ordering::Relaxed);
                    run += u64::from(answer != POST_AGAIN);
                }
                *sent = 64;
                *message = match what {
                    What::Copied => session.post_arriving(0, 1, &[], total, total, *sent),
                    What::Lent => {
                        let lent = total - 16;
                        session.post_arriving(0, 3, &[7, lent], 16, total, *sent)
                    }
                };
            } else {
                *sent += match what {
                    What::Copied => 1,
                    What::Lent => 64,
                };
                let [progress, _] = session.region.progress(0);
                session.region.word(progress).store(*sent, Ordering::Release);
            }
        }
        std::thread::sleep(PAUSE);
    }
    [answered, run]
}
