//! Futexes: threads sleep on words of memory that several processes may share, until another thread wakes
//! them.

use core::sync::atomic::AtomicU32;
use core::time::Duration;

use rustix::thread::futex;

/// If the word holds `value`, sleeps until another thread wakes this one, for at most `timeout`. The sleep
/// can also end with a spurious wakeup.
#[inline]
pub fn futex_wait(word: &AtomicU32, value: u32, timeout: Option<Duration>) {
    let limit = timeout.map(|timeout| rustix::time::Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    // The reason for the return does not matter: the caller reads the word again.
    let _ = futex::wait(word, futex::Flags::empty(), value, limit.as_ref());
}

/// Wakes all threads that sleep on the word, and returns how many threads slept.
#[inline]
pub fn futex_wake(word: &AtomicU32) -> usize {
    futex::wake(word, futex::Flags::empty(), i32::MAX.cast_unsigned()).unwrap_or(0)
}

/// Wakes one of the threads that sleep on the word.
#[inline]
pub(crate) fn futex_wake_one(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::empty(), 1);
}

/// A set of words to sleep on. A wakeup on any of them ends the sleep.
#[derive(Debug)]
pub(crate) struct FutexSet<'a, const N: usize> {
    waits: [futex::Wait; N],
    count: usize,
    words: core::marker::PhantomData<&'a AtomicU32>,
}

impl<'a, const N: usize> FutexSet<'a, N> {
    /// Returns an empty set.
    #[inline]
    pub(crate) const fn new() -> Self {
        Self { waits: [futex::Wait::new(); N], count: 0, words: core::marker::PhantomData }
    }

    /// Adds a word that must hold `value` when the sleep begins. If the set already has `N` words, ignores
    /// the word.
    #[inline]
    pub(crate) fn push(&mut self, word: &'a AtomicU32, value: u32) {
        if let Some(wait) = self.waits.get_mut(self.count) {
            wait.val = value.into();
            wait.uaddr = futex::WaitPtr::new(word.as_ptr().cast());
            wait.flags = futex::WaitFlags::SIZE_U32;
            self.count += 1;
        }
    }

    /// If all words hold their values, sleeps until another thread wakes this one, for at most `timeout`. The
    /// sleep can also end with a spurious wakeup.
    pub(crate) fn wait(&self, timeout: Option<Duration>) {
        let clock = rustix::time::ClockId::Monotonic;
        let until = timeout.map(|timeout| {
            let now = rustix::time::clock_gettime(clock);
            let (seconds, nanos) = (timeout.as_secs(), i64::from(timeout.subsec_nanos()));
            let nanos = nanos + now.tv_nsec;
            let seconds = i64::try_from(seconds).unwrap_or(i64::MAX / 2) + nanos / 1_000_000_000;
            rustix::time::Timespec {
                tv_sec: now.tv_sec.saturating_add(seconds),
                tv_nsec: nanos % 1_000_000_000,
            }
        });
        let waits = &self.waits[..self.count];
        // The reason for the return does not matter: the caller reads the words again.
        let _ = futex::waitv(waits, futex::WaitvFlags::empty(), until.as_ref(), clock);
    }
}

/// Returns whether a thread can sleep on several words (Linux 5.16 and later).
pub(crate) fn has_futex_sets() -> bool {
    static HAS: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *HAS.get_or_init(|| {
        let word = AtomicU32::new(1);
        let mut set = FutexSet::<1>::new();
        // The word does not hold the value 0, so a kernel that supports the call returns at once.
        set.push(&word, 0);
        let clock = rustix::time::ClockId::Monotonic;
        let flags = futex::WaitvFlags::empty();
        let past = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        let waited = futex::waitv(&set.waits, flags, Some(&past), clock);
        waited == Err(rustix::io::Errno::AGAIN)
    })
}
