//! Measures the limit of the machine: the shortest round trip between two processes.
//!
//! The limit is the smallest program that moves the same data as a call, in the same way as a call. One
//! process writes the payload to shared memory and swaps a word. The other process detects the new word,
//! reads the payload, and replies in the same way. Each process writes one cache line. Either both processes
//! poll memory (*lines*), or both sleep on a futex (*futex*: four system calls per round trip).

use core::hint::spin_loop;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::fs::OpenOptions;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use peregrine::sys::{Memory, futex_wait, futex_wake};
use rustix::process::Signal;
use serde_json::json;

use crate::args::DemoEcho;
use crate::home::Home;
use crate::output::{self, Failure, OrFail};
use crate::serve::end_with;

/// The size in bytes of the shared memory. Cache lines that different processes write are far apart in it,
/// because a processor may also prefetch adjacent lines.
const BYTES: usize = 16 << 10;
/// The offset of the number of the round. The peer sleeps on this number between two rounds.
const ROUND: usize = 0;
/// The offset of the parameters of a round, each of 32 bits: request bytes, reply bytes, whether to sleep,
/// number of round trips, and the number of the last round trip before this round.
const TERMS: usize = 512;
/// The offset of the cache line that the measuring process writes. The line contains a word, and a payload if
/// the payload is short enough.
const CALL: usize = 1024;
/// The offset of the cache line that the peer writes.
const REPLY: usize = 2048;
/// The offset of a request payload that is too long for the cache line at `CALL`.
const CALL_BLOCK: usize = 4096;
/// The offset of a reply payload that is too long for the cache line at `REPLY`.
const REPLY_BLOCK: usize = 8192;
/// The maximum length in bytes of a payload that is stored in the cache line of the word.
const LINE_ROOM: usize = 60;
/// Maximum number of bytes of a payload.
const PAYLOAD_BYTES: usize = 4096;

/// How long to wait for the peer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The payload of a round trip, and how both sides wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrip {
    /// Payload bytes of the request.
    pub(super) there: usize,
    /// Payload bytes of the reply.
    pub(super) back: usize,
    /// Whether both sides sleep on a futex instead of polling.
    pub(super) asleep: bool,
}

/// The measuring process's side of the ping-pong.
pub(super) struct Limit {
    memory: Memory,
    last: u32,
    rounds: u32,
    /// The process ID of the peer.
    pub(super) process: u32,
}

impl Limit {
    /// Starts the peer.
    pub(super) fn start(home: &Home) -> Result<Self, Failure> {
        let (memory, file) = Memory::shared(BYTES).or_fail("cannot create shared memory")?;
        // While this process keeps the memory open, the child can open it by this path.
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let (process, _) = home.spawn(&["demo-echo", "--memory", &path])?;
        Ok(Self { memory, last: 0, rounds: 0, process })
    }

    /// Makes `times` round trips. Returns the total duration of these round trips.
    pub(super) fn round(&mut self, terms: RoundTrip, times: u32) -> Result<Duration, Failure> {
        let values = [terms.there as u32, terms.back as u32, terms.asleep.into(), times, self.last];
        for (i, value) in values.into_iter().enumerate() {
            self.memory.word(TERMS + 4 * i).store(value, Release);
        }
        self.rounds += 1;
        self.memory.word(ROUND).store(self.rounds, Release);
        futex_wake(self.memory.word(ROUND));
        let mut payload = [7; PAYLOAD_BYTES];
        let begun = Instant::now();
        for _ in 0..times {
            self.last = self.last.wrapping_add(1);
            let sent = send(&mut self.memory, CALL, &payload[..terms.there], self.last, terms);
            let back = &mut payload[..terms.back];
            sent.and_then(|()| receive(&mut self.memory, REPLY, back, self.last, terms))
                .ok_or_else(|| {
                    Failure::local("the peer of the ping-pong does not reply", "try again")
                })?;
        }
        Ok(begun.elapsed())
    }
}

/// Runs the peer. The peer replies until it is killed.
pub(crate) fn echo(part: &DemoEcho) -> Result<(), Failure> {
    end_with(part.parent, Signal::KILL)?;
    let file = OpenOptions::new().read(true).write(true).open(&part.memory);
    let file = file.or_fail("cannot open the shared memory")?;
    let mut memory =
        Memory::received(file.as_fd(), BYTES).or_fail("cannot map the shared memory")?;
    output::print(json!({ "ready": true }))?;
    let mut payload = [7; PAYLOAD_BYTES];
    let mut seen = 0;
    loop {
        while memory.word(ROUND).load(Acquire) == seen {
            futex_wait(memory.word(ROUND), seen, None);
        }
        seen = memory.word(ROUND).load(Acquire);
        let term = |i: usize| memory.word(TERMS + 4 * i).load(Acquire);
        let length = |i: usize| (term(i) as usize).min(PAYLOAD_BYTES);
        let terms = RoundTrip { there: length(0), back: length(1), asleep: term(2) != 0 };
        let (times, mut last) = (term(3), term(4));
        for _ in 0..times {
            last = last.wrapping_add(1);
            let received = receive(&mut memory, CALL, &mut payload[..terms.there], last, terms);
            let back = &payload[..terms.back];
            if received.and_then(|()| send(&mut memory, REPLY, back, last, terms)).is_none() {
                return Ok(());
            }
        }
    }
}

/// Returns the offset of a payload of `bytes` bytes. `line` is the offset of the word that announces the
/// payload.
const fn place(line: usize, bytes: usize) -> usize {
    match line {
        _ if bytes <= LINE_ROOM => line + 4,
        CALL => CALL_BLOCK,
        _ => REPLY_BLOCK,
    }
}

#[inline]
fn send(
    memory: &mut Memory,
    line: usize,
    payload: &[u8],
    number: u32,
    terms: RoundTrip,
) -> Option<()> {
    if !payload.is_empty() {
        memory.space_mut().write(place(line, payload.len()), payload)?;
    }
    // SYNC: demo-line, acquired in `receive`.
    memory.word(line).swap(number, AcqRel);
    if terms.asleep {
        futex_wake(memory.word(line));
    }
    Some(())
}

#[inline]
fn receive(
    memory: &mut Memory,
    line: usize,
    into: &mut [u8],
    number: u32,
    terms: RoundTrip,
) -> Option<()> {
    let word = memory.word(line);
    // SYNC: demo-line, released in `send`.
    if terms.asleep || word.load(Acquire) != number {
        wait(word, number, terms.asleep)?;
    }
    if !into.is_empty() {
        let place = place(line, into.len());
        memory.space_mut().read(place, into)?;
    }
    Some(())
}

/// Waits until the word has the value `number`. Returns `None` after a timeout.
fn wait(word: &AtomicU32, number: u32, asleep: bool) -> Option<()> {
    let before = number.wrapping_sub(1);
    let mut until = None;
    loop {
        for _ in 0..if asleep { 1 } else { 1 << 16 } {
            if word.load(Acquire) == number {
                return Some(());
            }
            if asleep {
                futex_wait(word, before, Some(TIMEOUT));
            } else {
                spin_loop();
            }
        }
        if word.load(Acquire) != number {
            let now = Instant::now();
            if now > *until.get_or_insert(now + TIMEOUT) {
                return None;
            }
        }
    }
}
