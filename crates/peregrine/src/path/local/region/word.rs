//! The words of an A-stack: how a call or a reply is handed over, and how the other side waits for it.
//!
//! Each A-stack has one word for calls and one word for replies. One side *posts* messages, the other side
//! *waits* for them. The poster owns the memory of the message until it posts the message. Afterwards the
//! waiter owns the memory. To post is to swap the word once: the old value shows how the other side waits.
//! The low three bits of a word are its kind. If the kind is `POSTED`, the bits above hold a sequence number:
//!
//! | from | to | by | meaning |
//! |---|---|---|---|
//! | any | `POSTED(n)` | poster | message n is posted; the old value shows whether to wake the waiter |
//! | `POSTED(n-1)`, `LOOKING`, `AWAY` | `SLEEP` | waiter | it sleeps: the poster must wake its futex |
//! | `AWAY` | `LOOKING` | waiter | a server thread polls the word from now on |
//! | `POSTED(n-1)`, `LOOKING`, `SLEEP` | `AWAY` | waiter | no thread polls: the poster must ring |
//! | `SLEEP` | `LOOKING` | waiter | the waiter was woken for another reason, and polls again |
//! | any but `POSTED` | `DEAD` | keeper | the session has ended |
//!
//! To ring is to send a message on the session's socket. The keeper is a background thread of the client.
//!
//! While the waiter polls, the word keeps its posted value. If calls are frequent, each call therefore
//! changes each of the two words only once. What a word shows about the other side is only a hint. A peer
//! that writes other values only disturbs its own calls. Sequence numbers, assignments and the end of the
//! session are also kept in private memory, and only those copies decide. `DESCRIPTOR` is reserved for
//! waiters that are not blocked threads.

use core::sync::atomic::{AtomicU32, Ordering};

/// The operations on an atomic word that the state machine needs. A model checker implements them, too.
pub(crate) trait Atomic {
    /// Reads the word, with acquire ordering.
    fn load(&self) -> u32;
    /// Writes the word, with release ordering.
    fn store(&self, to: u32);
    /// Replaces the value of the word, with acquire and release ordering. Returns the old value.
    fn swap(&self, to: u32) -> u32;
    /// Replaces the value `from` by `to`, with acquire and release ordering. Returns false if the word has
    /// another value.
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
/// The value of untouched memory: no thread waits, so a client that posts a call must ring.
pub(crate) const AWAY: u32 = 0;
const POSTED: u32 = 1;
/// The value of a word whose waiter sleeps.
pub(crate) const SLEEP: u32 = 2;
/// The value of a word whose session has ended.
pub(crate) const DEAD: u32 = 3;
#[allow(dead_code)] // reserved on the wire since the first version
const DESCRIPTOR: u32 = 4;
const LOOKING: u32 = 5;

/// Returns the value that posts message `sequence`. The value identifies a call on its A-stack: the
/// reply word gets the same value as the call word.
#[inline(always)]
pub(crate) const fn posted(sequence: u32) -> u32 {
    sequence << 3 | POSTED
}

/// The number of times that a waiter polls before it does anything else. The reply to a short call usually
/// arrives during these polls.
pub(crate) const FIRST_POLLS: u32 = 64;
/// The number of times that a waiter yields a processor that it shares with its peer, before it sleeps. The
/// peer often runs meanwhile, finds its message and answers. Neither side then needs a futex.
pub(crate) const YIELDS: u32 = 2;

/// What the poster must do so that the waiter notices the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notify {
    /// Nothing: the waiter polls the word, or is about to poll it.
    Nothing,
    /// The poster must wake the futex of the word.
    Wake,
    /// The poster must ring: send a message on the session's socket.
    Ring,
}

/// Posts a message. `id` is its [`posted`] value.
// SYNC: astack-call and astack-reply, seen in `look`: a thread that sees the word also sees the message.
#[inline(always)]
pub(crate) fn post(word: &impl Atomic, id: u32) -> Notify {
    match word.swap(id) {
        SLEEP => Notify::Wake,
        AWAY => Notify::Ring,
        _ => Notify::Nothing,
    }
}

/// What a word shows to its waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// No new message. Holds the value of the word, for [`mark_asleep`] and [`mark_away`].
    Nothing(u32),
    /// A new message. Holds the [`posted`] value of the message.
    Posted(u32),
    /// The keeper has marked the session as ended.
    Dead,
}

/// Looks for a new message. `last` is the [`posted`] value of the message that was taken last.
// SYNC: astack-call and astack-reply, posted in `post`.
#[inline(always)]
pub(crate) fn look(word: &impl Atomic, last: u32) -> Look {
    let value = word.load();
    if value != last && value & KIND == POSTED {
        return Look::Posted(value);
    }
    if value == DEAD { Look::Dead } else { Look::Nothing(value) }
}

/// Marks the waiter as asleep. Returns false if the word is no longer `value`.
pub(crate) fn mark_asleep(word: &impl Atomic, value: u32) -> bool {
    value == SLEEP || word.exchange(value, SLEEP)
}

/// Marks that a server thread polls the word from now on, if no thread polled it before.
pub(crate) fn mark_present(word: &impl Atomic) {
    word.exchange(AWAY, LOOKING);
}

/// Marks that no server thread polls the word any more. Returns false if the word is no longer `value`.
pub(crate) fn mark_away(word: &impl Atomic, value: u32) -> bool {
    word.exchange(value, AWAY)
}

/// Marks the session as ended, but never overwrites a posted message, because the message is still valid. A
/// waiter that finds a message detects the end by a private flag of its own side. The caller must have set
/// this flag.
pub(crate) fn mark_dead(word: &impl Atomic) {
    // The number of attempts is bounded, because a peer may write to the word all the time. The keeper
    // tries again later.
    for _ in 0..100 {
        let value = word.load();
        // A posted value is replaced by the same value. A waiter that reads the word after this exchange also
        // sees the flag that the caller has set.
        let to = if value & KIND == POSTED { value } else { DEAD };
        if word.exchange(value, to) {
            return;
        }
    }
}

/// Marks that a waiter polls again after a sleep. Returns whether the word was still [`SLEEP`].
pub(crate) fn mark_awake(word: &impl Atomic) -> bool {
    word.exchange(SLEEP, LOOKING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_value_shows_how_to_notify_the_waiter() {
        let word = AtomicU32::new(AWAY);
        assert_eq!(post(&word, posted(1)), Notify::Ring);
        assert_eq!(look(&word, AWAY), Look::Posted(posted(1)));
        assert_eq!(look(&word, posted(1)), Look::Nothing(posted(1)));
        assert_eq!(post(&word, posted(2)), Notify::Nothing);
        assert!(!mark_asleep(&word, posted(1)));
        assert!(mark_asleep(&word, posted(2)));
        assert_eq!(post(&word, posted(3)), Notify::Wake);
        assert!(mark_away(&word, posted(3)));
        mark_present(&word);
        assert_eq!(post(&word, posted(4)), Notify::Nothing);
        mark_dead(&word);
        assert_eq!(look(&word, posted(3)), Look::Posted(posted(4)));
        assert!(mark_asleep(&word, posted(4)));
        mark_dead(&word);
        assert_eq!(look(&word, posted(4)), Look::Dead);
    }

    /// Runs interleavings of a poster and a waiter under a model checker.
    mod model {
        use super::super::*;
        use loom::sync::atomic::{AtomicU32, Ordering};
        use loom::sync::{Arc, Condvar, Mutex};
        use loom::thread;

        struct Word {
            value: AtomicU32,
            /// As in the kernel's futex, `sleep` compares the value while it holds this lock.
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
            fn notify(&self, notify: Notify) {
                match notify {
                    Notify::Nothing => {}
                    Notify::Wake => self.wake(),
                    Notify::Ring => {
                        self.rung.fetch_add(1, Ordering::AcqRel);
                    }
                }
            }
            fn receive(&self, last: u32) -> u32 {
                loop {
                    match look(self, last) {
                        Look::Posted(id) => return id,
                        Look::Nothing(value) => {
                            if mark_asleep(self, value) {
                                self.sleep();
                            }
                        }
                        Look::Dead => panic!("a word is dead, but no session has ended"),
                    }
                }
            }
        }

        /// Runs every interleaving with at most three preemptions. Three preemptions suffice to find lost
        /// wake-ups. Without this bound the models take minutes.
        fn check(model: impl Fn() + Sync + Send + 'static) {
            let mut builder = loom::model::Builder::new();
            builder.preemption_bound = Some(3);
            builder.check(model);
        }

        #[test]
        fn poster_wakes_the_waiter_and_the_message_is_visible() {
            check(|| {
                let call = Arc::new((Word::new(), AtomicU32::new(0)));
                let reply = Arc::new((Word::new(), AtomicU32::new(0)));
                let server = {
                    let (call, reply) = (Arc::clone(&call), Arc::clone(&reply));
                    thread::spawn(move || {
                        mark_present(&call.0);
                        let mut last = AWAY;
                        for _ in 0..2 {
                            last = call.0.receive(last);
                            let argument = call.1.load(Ordering::Relaxed);
                            reply.1.store(argument + 10, Ordering::Relaxed);
                            let notify = post(&reply.0, last);
                            reply.0.notify(notify);
                        }
                    })
                };
                let mut last = AWAY;
                for sequence in 1..=2 {
                    call.1.store(sequence, Ordering::Relaxed);
                    let notify = post(&call.0, posted(sequence));
                    call.0.notify(notify);
                    last = reply.0.receive(last);
                    assert_eq!(last, posted(sequence));
                    assert_eq!(reply.1.load(Ordering::Relaxed), sequence + 10);
                }
                server.join().unwrap();
            });
        }

        /// If a call comes while the server thread leaves the A-stack, either the thread sees the call or
        /// the client rings.
        #[test]
        fn call_posted_while_the_server_thread_leaves_is_seen_or_rings() {
            check(|| {
                let call = Arc::new(Word::new());
                call.swap(posted(1));
                let server = {
                    let call = Arc::clone(&call);
                    thread::spawn(move || match look(&*call, posted(1)) {
                        Look::Posted(_) => true,
                        Look::Nothing(value) => !mark_away(&*call, value),
                        Look::Dead => false,
                    })
                };
                let notify = post(&*call, posted(2));
                call.notify(notify);
                let seen_by_server = server.join().unwrap();
                let rung = call.rung.load(Ordering::Acquire) == 1;
                assert!(seen_by_server != rung, "seen {seen_by_server}, rung {rung}");
            });
        }

        /// The keeper's mark of the end reaches a waiter that is about to sleep. The mark overwrites no
        /// posted message.
        #[test]
        fn waiter_notices_the_end_of_the_session_in_every_state() {
            check(|| {
                let reply = Arc::new((Word::new(), AtomicU32::new(0)));
                let keeper = {
                    let reply = Arc::clone(&reply);
                    thread::spawn(move || {
                        reply.1.store(1, Ordering::Release);
                        mark_dead(&reply.0);
                        reply.0.wake();
                    })
                };
                let server = {
                    let reply = Arc::clone(&reply);
                    thread::spawn(move || {
                        let notify = post(&reply.0, posted(1));
                        reply.0.notify(notify);
                    })
                };
                let got = loop {
                    match look(&reply.0, AWAY) {
                        Look::Posted(_) => break true,
                        Look::Dead => break false,
                        Look::Nothing(value) => {
                            let dead = || reply.1.load(Ordering::Acquire) == 1;
                            if mark_asleep(&reply.0, value) && !dead() {
                                reply.0.sleep();
                            } else if dead() {
                                break false;
                            }
                        }
                    }
                };
                server.join().unwrap();
                keeper.join().unwrap();
                // A message that was posted before the end is never lost.
                assert!(got || look(&reply.0, AWAY) == Look::Posted(posted(1)));
            });
        }
    }
}
