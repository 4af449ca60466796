//! The words of an A-stack: how a call or a reply is handed over, and how the other side waits.
//!
//! One word per line. The side that *posts* owns the memory behind it until it posts, the side
//! that *waits* from then on. Posting is one swap, whose old value says how the other side waits.
//! A word is a kind in the low three bits and, if posted, a sequence number above:
//!
//! | from | to | by | meaning |
//! |---|---|---|---|
//! | any | `POSTED(n)` | poster | message n is there; the old value says what the poster owes |
//! | `POSTED(n-1)`, `LOOKING` | `SLEEP` | waiter | owes a futex wake-up |
//! | `AWAY` | `LOOKING` | waiter | a server thread has come |
//! | `POSTED(n-1)`, `LOOKING`, `SLEEP` | `AWAY` | waiter | nobody looks; owes a ring on the session's socket |
//! | `SLEEP` | `LOOKING` | waiter | it was woken for another reason, and looks again |
//! | any but `POSTED` | `DEAD` | keeper | the session has ended |
//!
//! A posted word stays as it is while the waiter looks at memory: a hot call writes each word
//! once. What either side believes about the other is a hint; a peer that scribbles here gets
//! wrong answers itself, and the truth (sequence, who is attached, who is dead) is private.
//! `DESCRIPTOR` is reserved for waiters that are no blocked thread.

use core::sync::atomic::{AtomicU32, Ordering};

/// What the machine needs of an atomic word, so that a model checker can bring its own.
pub(crate) trait Atomic {
    /// Acquire.
    fn load(&self) -> u32;
    /// Release.
    fn store(&self, to: u32);
    /// Acquire and release.
    fn swap(&self, to: u32) -> u32;
    /// Acquire and release; whether it was exchanged.
    fn exchange(&self, from: u32, to: u32) -> bool;
}

impl Atomic for AtomicU32 {
    #[inline(always)]
    fn load(&self) -> u32 {
        Self::load(self, Ordering::Acquire)
    }
    fn store(&self, to: u32) {
        Self::store(self, to, Ordering::Release);
    }
    #[inline(always)]
    fn swap(&self, to: u32) -> u32 {
        Self::swap(self, to, Ordering::AcqRel)
    }
    #[inline(always)]
    fn exchange(&self, from: u32, to: u32) -> bool {
        self.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

const KIND: u32 = 7;
/// Untouched memory: nobody waits, and a call rings.
pub(crate) const AWAY: u32 = 0;
const POSTED: u32 = 1;
/// The value of a word whose waiter sleeps.
pub(crate) const SLEEP: u32 = 2;
/// The value of a word whose session has ended.
pub(crate) const DEAD: u32 = 3;
#[allow(dead_code)] // reserved on the wire from the first version on
const DESCRIPTOR: u32 = 4;
const LOOKING: u32 = 5;

/// The word that posts message `sequence`.
#[inline(always)]
pub(crate) const fn posted(sequence: u32) -> u32 {
    sequence << 3 | POSTED
}

/// What the poster owes the side that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owed {
    /// Nothing: it looks at the word, or will.
    Nothing,
    /// A futex wake-up.
    Wake,
    /// A ring on the session's socket.
    Ring,
}

/// Posts a message; returns what is owed for it.
// SYNC: astack-call and astack-reply, seen in `look`: the message behind the word comes along.
#[inline(always)]
pub(crate) fn post(word: &impl Atomic, message: u32) -> Owed {
    match word.swap(message) {
        SLEEP => Owed::Wake,
        AWAY => Owed::Ring,
        _ => Owed::Nothing,
    }
}

/// What a look at a word shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// No new message; the word as it is, for [`fall_asleep`] and [`leave`].
    Nothing(u32),
    /// A message: the word that posted it.
    Posted(u32),
    /// The keeper says that the session has ended.
    Dead,
}

/// Looks for a message other than the one that was `seen` last.
// SYNC: astack-call and astack-reply, posted in `post`.
#[inline(always)]
pub(crate) fn look(word: &impl Atomic, seen: u32) -> Look {
    let value = word.load();
    if value != seen && value & KIND == POSTED {
        return Look::Posted(value);
    }
    if value == DEAD { Look::Dead } else { Look::Nothing(value) }
}

/// The waiter says that it will sleep; false if the word has changed since `value` was seen.
pub(crate) fn fall_asleep(word: &impl Atomic, value: u32) -> bool {
    value == SLEEP || word.exchange(value, SLEEP)
}

/// A server thread says that it looks at the word from now on, whatever it finds there.
pub(crate) fn come(word: &impl Atomic) {
    word.exchange(AWAY, LOOKING);
}

/// The server thread goes away; false if the word has changed since `value` was seen.
pub(crate) fn leave(word: &impl Atomic, value: u32) -> bool {
    word.exchange(value, AWAY)
}

/// Says that the session has ended, but never over a message: one that is there is still good.
/// Whoever looks at it learns of the end from its own side's flag, which must be set before.
pub(crate) fn bury(word: &impl Atomic) {
    // A peer that writes all the time cannot keep the keeper here; it is told again later.
    for _ in 0..100 {
        let value = word.load();
        // An exchange in any case: it orders the flag before what the waiter does next.
        let to = if value & KIND == POSTED { value } else { DEAD };
        if word.exchange(value, to) {
            return;
        }
    }
}

/// A waiter that slept looks again; true if it was asleep as far as the word tells.
pub(crate) fn rouse(word: &impl Atomic) -> bool {
    word.exchange(SLEEP, LOOKING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_old_value_says_what_is_owed() {
        let word = AtomicU32::new(AWAY);
        assert_eq!(post(&word, posted(1)), Owed::Ring);
        assert_eq!(look(&word, AWAY), Look::Posted(posted(1)));
        assert_eq!(look(&word, posted(1)), Look::Nothing(posted(1)));
        assert_eq!(post(&word, posted(2)), Owed::Nothing);
        assert!(!fall_asleep(&word, posted(1)));
        assert!(fall_asleep(&word, posted(2)));
        assert_eq!(post(&word, posted(3)), Owed::Wake);
        assert!(leave(&word, posted(3)));
        come(&word);
        assert_eq!(post(&word, posted(4)), Owed::Nothing);
        bury(&word);
        assert_eq!(look(&word, posted(3)), Look::Posted(posted(4)));
        assert!(fall_asleep(&word, posted(4)));
        bury(&word);
        assert_eq!(look(&word, posted(4)), Look::Dead);
    }

    /// The same functions under a model checker: every interleaving of a poster and a waiter.
    mod model {
        use super::super::*;
        use loom::sync::atomic::{AtomicU32, Ordering};
        use loom::sync::{Arc, Condvar, Mutex};
        use loom::thread;

        struct Word {
            value: AtomicU32,
            /// A futex as the kernel has it: the value is compared under a lock.
            queue: Mutex<()>,
            woken: Condvar,
            rung: AtomicU32,
        }

        impl Atomic for Word {
            fn load(&self) -> u32 {
                self.value.load(Ordering::Acquire)
            }
            fn store(&self, to: u32) {
                self.value.store(to, Ordering::Release);
            }
            fn swap(&self, to: u32) -> u32 {
                self.value.swap(to, Ordering::AcqRel)
            }
            fn exchange(&self, from: u32, to: u32) -> bool {
                self.value.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
            }
        }

        impl Word {
            fn new() -> Self {
                Self {
                    value: AtomicU32::new(AWAY),
                    queue: Mutex::new(()),
                    woken: Condvar::new(),
                    rung: AtomicU32::new(0),
                }
            }
            fn sleep(&self) {
                let mut queue = self.queue.lock().unwrap();
                while self.load() == SLEEP {
                    queue = self.woken.wait(queue).unwrap();
                }
            }
            fn wake(&self) {
                let _queue = self.queue.lock().unwrap();
                self.woken.notify_all();
            }
            fn pay(&self, owed: Owed) {
                match owed {
                    Owed::Nothing => {}
                    Owed::Wake => self.wake(),
                    Owed::Ring => {
                        self.rung.fetch_add(1, Ordering::AcqRel);
                    }
                }
            }
            fn receive(&self, seen: u32) -> u32 {
                loop {
                    match look(self, seen) {
                        Look::Posted(message) => return message,
                        Look::Nothing(value) => {
                            if fall_asleep(self, value) {
                                self.sleep();
                            }
                        }
                        Look::Dead => panic!("nobody died"),
                    }
                }
            }
        }

        /// Every interleaving with at most three involuntary switches, which is where lost
        /// wake-ups are found; without a bound the models take minutes.
        fn check(model: impl Fn() + Sync + Send + 'static) {
            let mut builder = loom::model::Builder::new();
            builder.preemption_bound = Some(3);
            builder.check(model);
        }

        #[test]
        fn no_wake_up_is_lost_and_the_message_comes_along() {
            check(|| {
                let call = Arc::new((Word::new(), AtomicU32::new(0)));
                let reply = Arc::new((Word::new(), AtomicU32::new(0)));
                let server = {
                    let (call, reply) = (Arc::clone(&call), Arc::clone(&reply));
                    thread::spawn(move || {
                        come(&call.0);
                        let mut seen = AWAY;
                        for _ in 0..2 {
                            seen = call.0.receive(seen);
                            let argument = call.1.load(Ordering::Relaxed);
                            reply.1.store(argument + 10, Ordering::Relaxed);
                            let owed = post(&reply.0, seen);
                            reply.0.pay(owed);
                        }
                    })
                };
                let mut seen = AWAY;
                for sequence in 1..=2 {
                    call.1.store(sequence, Ordering::Relaxed);
                    let owed = post(&call.0, posted(sequence));
                    call.0.pay(owed);
                    seen = reply.0.receive(seen);
                    assert_eq!(seen, posted(sequence));
                    assert_eq!(reply.1.load(Ordering::Relaxed), sequence + 10);
                }
                server.join().unwrap();
            });
        }

        /// A call to an A-stack whose server thread goes away is rung for, or seen by it.
        #[test]
        fn no_call_is_lost_when_the_server_goes_away() {
            check(|| {
                let call = Arc::new(Word::new());
                call.swap(posted(1));
                let server = {
                    let call = Arc::clone(&call);
                    thread::spawn(move || match look(&*call, posted(1)) {
                        Look::Posted(_) => true,
                        Look::Nothing(value) => !leave(&*call, value),
                        Look::Dead => false,
                    })
                };
                let owed = post(&*call, posted(2));
                call.pay(owed);
                let seen_by_server = server.join().unwrap();
                let rung = call.rung.load(Ordering::Acquire) == 1;
                assert!(seen_by_server != rung, "seen {seen_by_server}, rung {rung}");
            });
        }

        /// The keeper's notice reaches a waiter that is about to sleep, and takes no message away.
        #[test]
        fn death_is_noticed_in_every_state() {
            check(|| {
                let reply = Arc::new((Word::new(), AtomicU32::new(0)));
                let keeper = {
                    let reply = Arc::clone(&reply);
                    thread::spawn(move || {
                        reply.1.store(1, Ordering::Release);
                        bury(&reply.0);
                        reply.0.wake();
                    })
                };
                let server = {
                    let reply = Arc::clone(&reply);
                    thread::spawn(move || {
                        let owed = post(&reply.0, posted(1));
                        reply.0.pay(owed);
                    })
                };
                let got = loop {
                    match look(&reply.0, AWAY) {
                        Look::Posted(_) => break true,
                        Look::Dead => break false,
                        Look::Nothing(value) => {
                            let dead = || reply.1.load(Ordering::Acquire) == 1;
                            if fall_asleep(&reply.0, value) && !dead() {
                                reply.0.sleep();
                            } else if dead() {
                                break false;
                            }
                        }
                    }
                };
                server.join().unwrap();
                keeper.join().unwrap();
                // A message that was there before the end is never lost.
                assert!(got || look(&reply.0, AWAY) == Look::Posted(posted(1)));
            });
        }
    }
}
