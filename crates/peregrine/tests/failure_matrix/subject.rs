//! Defines the interface that the failure matrix calls, and the process that serves this interface.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use peregrine::interface::Type;
use peregrine::value::{Overflow, Reader, Representation, Writer};
use peregrine::{
    CallError, Callback, Insecure, Invalid, Kind, Out, Security, Server, Sink, Source, Value,
    interface,
};

use super::client::keys;
use super::document::Cell;
use super::elsewhere::told;
use super::world::{NAME, PLACE, PLACE_BESIDE};

/// The longest time that a procedure waits.
const LONG: Duration = Duration::from_secs(60);

/// The size in bytes of the result of `fill`. It exceeds the buffers of a TCP connection.
pub(crate) const FILLED_BYTES: u32 = 16 << 20;
/// The number of items of a stream.
pub(crate) const ITEMS: u32 = 100;

#[interface]
pub(crate) trait Subject {
    fn echo(&self, x: u32) -> peregrine::Result<u32>;
    /// Writes a note (see [`Notes`]) that it has begun. Then waits for `ms` milliseconds, or until there is a
    /// note `end`.
    fn wait(&self, ms: u32) -> peregrine::Result<u32>;
    /// Ends the process after the procedure has returned, and before the result is sent.
    fn last(&self) -> peregrine::Result<Deadly>;
    fn panic(&self) -> peregrine::Result<()>;
    /// Calls a server that does not exist.
    fn relay(&self) -> peregrine::Result<()>;
    fn swallow(&self, bytes: &[u8]) -> peregrine::Result<u32>;
    /// Fills the whole buffer. If `half` is true, ends the process when half of the buffer is
    /// filled.
    fn fill(&self, half: bool, #[max_len(FILLED_BYTES)] into: Out<'_, u8>)
    -> peregrine::Result<()>;
    /// Writes a note that it has begun, and waits until its call is cancelled.
    fn outlive(&self) -> peregrine::Result<()>;
    /// Writes a note that it has begun. Then waits as [`wait`](Self::wait) does, or panics if `ms` is the
    /// largest number.
    #[oneway]
    fn note(&self, ms: u32) -> peregrine::Result<()>;
    /// Sends half of [`ITEMS`] numbers. Then panics if `panics` is true. If `panics` is false, waits until
    /// there is a note `end`, and sends the other half. Returns early if the caller wants no more.
    fn send(&self, panics: bool, numbers: Sink<'_, u32>) -> peregrine::Result<()>;
    /// Takes all items. Writes a note if the source fails.
    fn take(&self, numbers: Source<'_, u32>) -> peregrine::Result<()>;
    /// Calls the object, and notes the outcome of this call. If the call of the object has timed out, waits
    /// until there is a note `given up`.
    fn call_back(&self, ms: u32, object: Callback<'_, dyn Called>) -> peregrine::Result<()>;
    /// Keeps the object. A thread calls the object until a call fails. The thread then calls the object once
    /// more, and notes the outcome of this last call.
    fn keep(&self, object: Callback<'static, dyn Called>) -> peregrine::Result<()>;
}

/// An object of a caller.
#[interface]
pub(crate) trait Called {
    /// Writes a note that it has begun. Then waits as [`wait`](Subject::wait) does, or panics if `ms` is the
    /// largest number.
    fn called(&self, ms: u32) -> peregrine::Result<()>;
}

/// An incompatible interface with the same name.
pub(crate) mod other {
    #[peregrine::interface]
    pub(crate) trait Subject {
        fn echo(&self, x: u64) -> peregrine::Result<u64>;
    }
}

/// A result whose encoding ends the process.
#[derive(Debug)]
pub(crate) struct Deadly;

impl Value for Deadly {
    const TYPE: Type = Type::Unit;

    fn encode<R: Representation>(&self, _: &mut Writer<'_, R>) -> Result<(), Overflow> {
        die();
        Ok(())
    }

    fn decode<R: Representation>(_: &mut Reader<'_, R>) -> Result<Self, Invalid> {
        Ok(Self)
    }
}

/// Ends this process as if another process had killed it.
fn die() {
    let own = i32::try_from(std::process::id()).expect("a process number");
    // SAFETY: `kill` accesses no memory of this process, and ends the process at once.
    unsafe { libc::kill(own, libc::SIGKILL) };
}

/// Returns the byte at the index `at` of a [filled](Subject::fill) buffer.
pub(crate) const fn filled(at: usize) -> u8 {
    (at * 31 / 7) as u8
}

/// The directory with the notes of a server's procedures. Each note is a file, so it remains when the server
/// is killed.
pub(crate) struct Notes(PathBuf);

impl Notes {
    pub(crate) fn of(directory: &Path) -> Self {
        Self(directory.join("notes"))
    }

    pub(crate) fn write(&self, what: &str) {
        let _ = std::fs::create_dir(&self.0);
        let file = OpenOptions::new().append(true).create(true).open(self.0.join(what));
        let noted = file.and_then(|mut file| file.write_all(b"."));
        noted.unwrap_or_else(|error| panic!("noting `{what}`: {error}"));
    }

    /// Writes a note with the outcome of a call of the caller's object.
    fn tell(&self, outcome: &Cell) {
        let _ = std::fs::create_dir(&self.0);
        // A reader finds the whole note, or none.
        let unfinished = self.0.join("unfinished");
        std::fs::write(&unfinished, told(outcome)).expect("a note");
        std::fs::rename(unfinished, self.0.join("outcome")).expect("a note");
    }

    /// Returns the note `what`.
    pub(crate) fn read(&self, what: &str) -> String {
        std::fs::read_to_string(self.0.join(what)).expect("a note")
    }

    /// Returns how often the note `what` was written.
    pub(crate) fn times(&self, what: &str) -> u64 {
        std::fs::metadata(self.0.join(what)).map_or(0, |file| file.len())
    }

    pub(crate) fn say(&self, what: &str) -> bool {
        self.0.join(what).exists()
    }

    pub(crate) fn forget(&self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The object that the server exports, and that a caller passes as a callback.
pub(crate) struct Answer(Notes);

impl Answer {
    /// Makes an object whose notes are in a directory.
    pub(crate) fn of(directory: &Path) -> Self {
        Self(Notes::of(directory))
    }

    pub(crate) const fn noting(notes: Notes) -> Self {
        Self(notes)
    }

    fn wait_for(&self, what: &str, mut is_so: impl FnMut() -> bool, limit: Duration) {
        let until = Instant::now() + limit.min(LONG);
        while !is_so() && !self.0.say(what) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Subject for Answer {
    fn echo(&self, x: u32) -> peregrine::Result<u32> {
        self.0.write("echo ran");
        Ok(x)
    }
    fn wait(&self, ms: u32) -> peregrine::Result<u32> {
        self.0.write("wait ran");
        self.wait_for("end", || false, Duration::from_millis(ms.into()));
        self.0.write("wait ended");
        Ok(ms)
    }
    fn last(&self) -> peregrine::Result<Deadly> {
        self.0.write("last ran");
        Ok(Deadly)
    }
    fn panic(&self) -> peregrine::Result<()> {
        panic!("on purpose")
    }
    fn relay(&self) -> peregrine::Result<()> {
        other::SubjectClient::bind("local:nobody").map(drop)
    }
    fn swallow(&self, bytes: &[u8]) -> peregrine::Result<u32> {
        Ok(bytes.len() as u32)
    }
    fn fill(&self, half: bool, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        let all: Vec<u8> = (0..FILLED_BYTES as usize).map(filled).collect();
        let (first, second) = all.split_at(all.len() / 2);
        into.put(first).expect("enough space");
        if half {
            die();
        }
        into.put(second).expect("enough space");
        Ok(())
    }
    fn outlive(&self) -> peregrine::Result<()> {
        self.0.write("outlive ran");
        let caller = peregrine::caller().expect("a caller");
        self.wait_for("end", || caller.is_cancelled(), LONG);
        if caller.is_cancelled() {
            self.0.write("outlive was cancelled");
            // The procedure returns so late that the caller does not get the result any more.
            std::thread::sleep(Duration::from_millis(300));
        }
        Ok(())
    }
    fn note(&self, ms: u32) -> peregrine::Result<()> {
        self.0.write("note ran");
        assert!(ms < u32::MAX, "on purpose");
        self.wait_for("end", || false, Duration::from_millis(ms.into()));
        Ok(())
    }
    fn send(&self, panics: bool, mut numbers: Sink<'_, u32>) -> peregrine::Result<()> {
        (0..ITEMS / 2).try_for_each(|number| numbers.send(number))?;
        assert!(!panics, "on purpose");
        self.wait_for("end", || numbers.is_stopped(), LONG);
        if numbers.is_stopped() {
            self.0.write("send was stopped");
            return Ok(());
        }
        (ITEMS / 2..ITEMS).try_for_each(|number| numbers.send(number))
    }
    fn take(&self, mut numbers: Source<'_, u32>) -> peregrine::Result<()> {
        loop {
            match numbers.next() {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(()),
                Err(error) => {
                    self.0.write("take failed");
                    // The procedure returns so late that the caller does not get the error any more.
                    std::thread::sleep(Duration::from_millis(300));
                    return Err(error);
                }
            }
        }
    }
    fn call_back(&self, ms: u32, object: Callback<'_, dyn Called>) -> peregrine::Result<()> {
        let called = object.called(ms);
        let is_late = called.as_ref().is_err_and(|error| error.kind() == Kind::TimedOut);
        self.0.tell(&Cell::of(called));
        if is_late {
            self.wait_for("given up", || false, LONG);
        }
        Ok(())
    }
    fn keep(&self, object: Callback<'static, dyn Called>) -> peregrine::Result<()> {
        let notes = Notes(self.0.0.clone());
        std::thread::spawn(move || {
            while object.called(0).is_ok() {
                std::thread::sleep(Duration::from_millis(2));
            }
            notes.tell(&Cell::of(object.called(0)));
        });
        Ok(())
    }
}

impl Called for Answer {
    fn called(&self, ms: u32) -> peregrine::Result<()> {
        self.0.write("object ran");
        assert!(ms < u32::MAX, "on purpose");
        self.wait_for("end", || false, Duration::from_millis(ms.into()));
        Ok(())
    }
}

/// Serves [`Subject`] in this process. `part` is the role `PLACE THREADS QUEUE FORM`. The place `near` is the
/// local path, and the places `far` and `beside` are addresses at the far end of the link. `THREADS` is the
/// number of threads, and `QUEUE` is the largest number of waiting calls.
/// `FORM` is the form of the calls of clients.
pub(crate) fn serve(part: &str) {
    let words = part.split(' ').skip(1).take(2);
    let numbers: Vec<usize> = words.map(|word| word.parse().unwrap()).collect();
    let directory = crate::support::directory();
    let notes = Notes::of(&directory);
    let start = || -> Result<_, CallError> {
        let answer = SubjectServer::new(Answer::of(&directory));
        let mut server =
            Server::new().threads(numbers[0]).queue(numbers[1]).export(NAME, answer)?;
        let security = || match part.ends_with("sealed") {
            true => Security::from(keys()),
            false => Insecure::ITrustThisNetwork.into(),
        };
        if part.starts_with("far") {
            server = server.listen_beyond_this_machine(&format!("tcp:{PLACE}"), security())?;
            server = server.listen_beyond_this_machine(&format!("eth:{PLACE}"), security())?;
        } else if part.starts_with("beside") {
            let at = format!("udp:{PLACE_BESIDE}");
            server = server.listen_beyond_this_machine(&at, security())?;
        }
        server.spawn()
    };
    // The previous server, which was killed, may not have ended completely yet.
    let until = Instant::now() + Duration::from_secs(20);
    let running = loop {
        match start() {
            Ok(running) => break running,
            Err(error) if Instant::now() < until => drop(error),
            Err(error) => panic!("{error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    println!("\nready");
    let until = Instant::now() + Duration::from_secs(120);
    while Instant::now() < until {
        if notes.say("withdraw") && running.withdraw(NAME) {
            notes.write("withdrawn");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
