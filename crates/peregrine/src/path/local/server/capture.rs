//! A program that captures the calls of an export: what the server keeps of it, and the thread that sends the
//! records.
//!
//! The thread exists only while the program captures. It waits for the program if the socket is full. The
//! threads that serve calls only add records to the queue of the capture.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::Kind;
use crate::limits;
use crate::observe::{Feed, Taken, Tap, Wanted};
use crate::path::local::{ServerMessage, record_bytes};
use crate::serving::export::Export;
use crate::sync::Mutex;
use crate::sys::Seqpacket;

/// The name of the thread.
const THREAD: &str = "peregrine-capture";

/// A program that captures the calls of an export.
pub(super) struct Capture {
    feed: Arc<Feed>,
    tap: Weak<Tap>,
    /// The number of the export.
    pub(super) export: u64,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// One of the captures that a server permits at a time.
struct Permit(Arc<AtomicU32>);

impl Permit {
    fn take(count: &Arc<AtomicU32>) -> Option<Self> {
        let more = |now| (now < limits::CAPTURES_MAX).then_some(now + 1);
        let taken = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| Self(Arc::clone(count)))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Capture {
    /// Answers the request of a program, and begins to send records to it. `count` is the number of captures
    /// of the server.
    ///
    /// # Errors
    /// If there are too many captures, or no thread can be started.
    pub(super) fn begin(
        export: &Export,
        wanted: Wanted,
        socket: &Arc<Seqpacket>,
        count: &Arc<AtomicU32>,
    ) -> Result<Self, (Kind, String)> {
        let permit = Permit::take(count).ok_or_else(|| {
            let most = limits::CAPTURES_MAX;
            (Kind::Exhausted, format!("{most} programs capture calls of the server already"))
        })?;
        let feed = Feed::new(wanted);
        let (takes, to) = (Arc::clone(&feed), Arc::clone(socket));
        let send = move || {
            // If the program has gone, the keeper also notices it, and ends the capture.
            let _ = send_all(&takes, &to);
            drop(permit);
        };
        let (tap, thread) = (Arc::downgrade(&export.tap), Mutex::default());
        let capture = Self { feed, tap, export: export.number, thread };
        // The program may make a call as soon as it has the answer, and this call must be captured.
        export.tap.attach(&capture.feed);
        let begun = socket.send(&ServerMessage::Capturing.to_bytes(), None);
        let begun = begun.map_err(|error| (Kind::System, format!("cannot answer: {error}")));
        let begun = begun.and_then(|()| {
            let thread = std::thread::Builder::new().name(THREAD.into()).spawn(send);
            thread.map_err(|error| (Kind::Exhausted, format!("cannot start a thread: {error}")))
        });
        match begun {
            Ok(thread) => *capture.thread.lock() = Some(thread),
            Err(error) => {
                capture.end();
                return Err(error);
            }
        }
        Ok(capture)
    }

    /// Captures no more calls. The thread still sends the records of calls that have ended, if the program
    /// reads them.
    pub(super) fn end(&self) {
        if let Some(tap) = self.tap.upgrade() {
            tap.detach(&self.feed);
        }
        self.feed.close();
    }

    /// Waits until the thread has ended. It ends soon after [`end`](Self::end), because it then does not wait
    /// for the program any more.
    pub(super) fn join(&self) {
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

/// Sends records until the feed is closed and empty. Then tells the program that no more will come.
fn send_all(feed: &Feed, to: &Seqpacket) -> io::Result<()> {
    while let Some(Taken { number, left_out, record }) = feed.take() {
        send_one(feed, to, &record_bytes(number, left_out, &record))?;
    }
    to.send(&ServerMessage::Goodbye.to_bytes(), None)
}

/// Sends one message. Waits while the socket is full, unless the feed is closed.
fn send_one(feed: &Feed, to: &Seqpacket, message: &[u8]) -> io::Result<()> {
    /// The interval at which the thread checks whether the feed was closed.
    const CHECK: Duration = Duration::from_millis(100);
    loop {
        match to.send(message, None) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !feed.is_closed() => {
                to.writable_within(CHECK)?;
            }
            sent => return sent,
        }
    }
}
