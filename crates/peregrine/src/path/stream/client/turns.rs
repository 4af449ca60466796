//! Which thread receives at a connection, and when the keeper does.
//!
//! The thread that holds the lock of the received bytes is the *leader*. A caller that waits for a reply
//! becomes the leader, or is a *follower* while another thread leads. A pending call has no thread that
//! waits. Such a call *sleeps* after its bell was armed. While calls sleep, some thread must receive their
//! replies: the leader, a follower that is about to lead, or the keeper, for which epoll watches the socket.
//!
//! One atomic word holds the state that these threads must read and change together:
//!
//! | bits | meaning |
//! |---|---|
//! | 0 to 11 | the number of followers |
//! | 12 to 23 | the number of calls that sleep |
//! | `WATCHED` | epoll wakes the keeper when bytes arrive |
//! | `DUE` | the registration with epoll has fired once and must be renewed |
//!
//! The rules:
//!
//! 1. A call that falls asleep is counted, and its slot becomes `ARMED`. Then its thread tries to lead. If
//!    there is another leader, that leader receives the reply or hands over. Otherwise the thread hands over
//!    (rule 3).
//! 2. A thread that gives up the lead looks at the word afterwards. If the word is not 0, the thread hands
//!    over.
//! 3. To hand over, a thread wakes one follower, if there is one. That follower leads, or looks at the word
//!    when its own wait ends. Otherwise the thread leads for a moment. It takes the replies out of the bytes
//!    that were received ahead, because epoll knows nothing of them. It sets `WATCHED`, clears `DUE`, gives
//!    up the lead, and renews the registration with epoll.
//! 4. The registration fires once. The keeper then clears `WATCHED` and sets `DUE`, and tries to lead. If
//!    there is another leader, that leader sees `DUE` when it gives up the lead, and renews the registration.
//!    Otherwise the keeper receives, and renews the registration itself.
//!
//! While a program has no pending calls, usually only the number of followers changes in the word.
//!
//! SYNC: leader. Each of these threads writes the word, and then tries to take the lock: a follower (count),
//! a call that falls asleep (count), the keeper (`DUE`). A leader releases the lock, and then reads the word.
//! Each of them executes a sequentially consistent fence between its two steps. So either the thread gets the
//! lock, or a leader sees what the thread wrote. After each handing over, the thread that led reads the word
//! once more, for the same reason.
//!
//! SYNC: watch. A thread sets `WATCHED` before it renews the registration. If the keeper clears `WATCHED`
//! between the two steps, the renewed registration does not wake the keeper when bytes arrive. But then the
//! keeper has also set `DUE`, or it renews the registration afterwards.

use core::sync::atomic::{AtomicU32, Ordering, fence};

/// What one follower adds to the word.
pub(super) const FOLLOWER: u32 = 1;
const FOLLOWERS: u32 = (1 << 12) - 1;
/// What one call that sleeps adds to the word.
pub(super) const SLEEPER: u32 = 1 << 12;
pub(super) const SLEEPERS: u32 = FOLLOWERS << 12;
/// Whether epoll wakes the keeper when bytes arrive.
pub(super) const WATCHED: u32 = 1 << 30;
/// Whether the registration with epoll must be renewed.
pub(super) const DUE: u32 = 1 << 31;

const _: () = assert!(crate::limits::ASTACKS_MAX <= FOLLOWERS, "too many A-stacks for `FOLLOWERS`");

/// The word of a connection. All operations are sequentially consistent.
pub(super) trait Word {
    fn load(&self) -> u32;
    fn add(&self, what: u32);
    fn sub(&self, what: u32);
    /// Replaces the value by what `change` returns. Changes nothing if `change` returns `None`. May call
    /// `change` several times.
    fn update(&self, change: impl FnMut(u32) -> Option<u32>);
}

/// What happened after the registration with epoll had fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fired {
    /// The keeper has received what had arrived.
    Received,
    /// Another thread leads, and renews the registration when it gives up the lead.
    LeftToLeader,
    /// Another thread leads. The keeper must try again soon, because no thread renews the registration.
    Retry,
}

/// The operations of a connection with which threads take turns at receiving.
pub(super) trait Turns {
    type Word: Word;
    /// The right to receive. Dropping this value gives up the lead.
    type Lead<'a>
    where
        Self: 'a;

    /// A sequentially consistent fence.
    fn fence();
    fn word(&self) -> &Self::Word;
    /// Becomes the leader, unless another thread is the leader.
    fn try_lead(&self) -> Option<Self::Lead<'_>>;
    /// Receives what has arrived. Returns whether a bell must ring.
    fn receive(&self, lead: &mut Self::Lead<'_>) -> bool;
    /// Takes the messages out of the bytes that were received ahead. Returns false if some are left.
    fn receive_ahead(&self, lead: &mut Self::Lead<'_>) -> bool;
    /// Gives up the lead, and then rings the bells of the calls whose replies were received.
    fn ring(&self, lead: Self::Lead<'_>);
    /// Asks one follower to lead.
    fn poke(&self);
    /// Returns whether the server still owes replies to calls that their callers have given up.
    fn owes_replies(&self) -> bool;
    /// Registers the socket with epoll again. When bytes arrive, epoll wakes the keeper only if `WATCHED` is
    /// set.
    fn renew(&self);

    /// Hands over if calls or threads need another thread that receives. The calling thread must have given
    /// up the lead.
    #[inline]
    fn pass_on(&self) {
        // SYNC: leader. This thread has released the lock, and now reads the word.
        Self::fence();
        if self.word().load() != 0 {
            self.hand_over();
        }
    }

    /// Finds a receiver: wakes a follower if there is one. Otherwise lets the keeper watch the socket, if
    /// calls sleep or replies are owed. The calling thread does not lead.
    #[cold]
    fn hand_over(&self) {
        let mut is_dry = false;
        loop {
            let word = self.word().load();
            if word & FOLLOWERS != 0 {
                return self.poke();
            }
            let sleeps = word & SLEEPERS != 0;
            let is_due = word & DUE != 0 || sleeps && word & WATCHED == 0;
            if !is_due && (is_dry || !sleeps) {
                return;
            }
            let Some(mut lead) = self.try_lead() else { return };
            is_dry = self.receive_ahead(&mut lead);
            let renews = self.plan(false);
            self.ring(lead);
            if renews {
                self.renew();
            }
            // SYNC: leader. This thread has released the lock, so it reads the word again.
            Self::fence();
        }
    }

    /// Decides what epoll watches from now on, and returns whether the registration must be renewed. The
    /// calling thread leads. If there are followers, nothing changes: one of them leads next.
    ///
    /// `rang` says that a bell is about to ring. In that case, epoll watches even if no call sleeps now.
    /// Another call will probably sleep soon. Then the registration need not be renewed again.
    fn plan(&self, rang: bool) -> bool {
        let mut renews = false;
        self.word().update(|word| {
            renews = false;
            if word & FOLLOWERS != 0 {
                return None;
            }
            let is_due = word & DUE != 0;
            let wanted = rang || word & SLEEPERS != 0 || is_due && self.owes_replies();
            renews = is_due || wanted && word & WATCHED == 0;
            let kept = word & !DUE;
            Some(if wanted { kept | WATCHED } else { kept })
        });
        renews
    }

    /// Makes sure that a thread receives the reply of a call that sleeps. The call was counted before.
    fn sleep(&self) {
        // SYNC: leader. The word was changed before, and now this thread tries to take the lock.
        Self::fence();
        if let Some(lead) = self.try_lead() {
            drop(lead);
            self.hand_over();
        }
    }

    /// Makes sure that a reply is received although its caller has given up the call.
    #[cold]
    fn watch_for_owed_replies(&self) {
        self.word().update(|word| Some(word | DUE));
        self.sleep();
    }

    /// Receives on behalf of the keeper, after the registration has fired. `ends` says whether the socket
    /// reports the end of the connection.
    fn fired(&self, ends: bool) -> Fired {
        self.word().update(|word| Some(word & !WATCHED | DUE));
        // SYNC: leader. The keeper has set `DUE`, and now tries to take the lock.
        Self::fence();
        let Some(mut lead) = self.try_lead() else {
            // Epoll keeps reporting the end of the connection until the leader has read all bytes. So the
            // keeper pauses (`Retry`). The keeper also pauses if it watches for owed replies only, because
            // each reply to another caller would wake the keeper.
            if !ends && self.word().load() & SLEEPERS != 0 {
                return Fired::LeftToLeader;
            }
            self.word().update(|word| Some(word & !DUE));
            return Fired::Retry;
        };
        let rings = self.receive(&mut lead);
        let renews = self.plan(rings);
        self.ring(lead);
        if renews {
            self.renew();
        }
        self.pass_on();
        Fired::Received
    }
}

impl Word for AtomicU32 {
    #[inline]
    fn load(&self) -> u32 {
        self.load(Ordering::SeqCst)
    }
    fn add(&self, what: u32) {
        self.fetch_add(what, Ordering::SeqCst);
    }
    fn sub(&self, what: u32) {
        self.fetch_sub(what, Ordering::SeqCst);
    }
    fn update(&self, change: impl FnMut(u32) -> Option<u32>) {
        let _ = self.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change);
    }
}

/// A sequentially consistent fence of the machine.
#[inline]
pub(super) fn full_fence() {
    fence(Ordering::SeqCst);
}

#[cfg(test)]
mod model;
