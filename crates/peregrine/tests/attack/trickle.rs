//! A client whose messages never stop coming, and never come: a byte every few milliseconds.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::wire::Session;

/// Time from one piece to the next: shorter than a server waits for a client that has stopped.
const PAUSE: Duration = Duration::from_millis(3);
/// Bytes of each message: at this pace they take an hour.
const BYTES: u32 = 1_000_000;

/// What a trickling client sends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// Arguments that the server copies before the procedure runs: procedure `copy`.
    Copied,
    /// A buffer that the procedure itself reads: procedure `sum`.
    Lent,
}

/// Sends such messages in `count` sessions until `until`, one in each at a time; how many of them
/// were answered, and how many of the answers were something else than *post again*.
pub(crate) fn trickle(directory: &Path, count: usize, what: What, until: Instant) -> [u64; 2] {
    let session = |_| Session::new(directory, "vault", 1).expect("a session");
    let mut sessions: Vec<_> = (0..count).map(session).map(|one| (one, 0, 0)).collect();
    let [mut answered, mut run] = [0; 2];
    while Instant::now() < until {
        for (session, message, sent) in &mut sessions {
            let reply = session.region.reply(0);
            if session.region.word(reply).load(Ordering::Acquire) == *message {
                const POST_AGAIN: u32 = 4;
                if *message != 0 {
                    answered += 1;
                    let answer = session.region.word(reply + 4).load(Ordering::Relaxed);
                    run += u64::from(answer != POST_AGAIN);
                }
                *sent = 64;
                *message = match what {
                    What::Copied => session.post_arriving(0, 1, &[], BYTES, BYTES, *sent),
                    What::Lent => {
                        let lent = 60_000;
                        session.post_arriving(0, 3, &[7, lent], 16, 16 + lent, *sent)
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
