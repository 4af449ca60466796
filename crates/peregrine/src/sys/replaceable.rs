//! A shared value that can be replaced while other threads read it.

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicPtr, Ordering};
use std::sync::Arc;

use crate::sync::Mutex;

/// The largest number of replacements of one [`Replaceable`], which keeps all earlier values.
const REPLACEMENTS_MAX: usize = 8;

/// A shared value. Readers get the value with one load, and may use it for as long as they borrow the
/// `Replaceable`.
///
/// Readers are not counted, so the `Replaceable` cannot know when the last reader of an earlier value has
/// finished. Therefore it keeps all earlier values until it is dropped. [`REPLACEMENTS_MAX`] bounds their
/// number.
pub(crate) struct Replaceable<T, P: Pointer<T> = AtomicPtr<T>> {
    /// The current value. The pointer comes from `Arc::into_raw`, and owns one reference.
    current: P,
    replaced: Mutex<Vec<Arc<T>>>,
}

/// An atomic pointer of the standard library, or of the model checker.
pub(crate) trait Pointer<T> {
    fn new(value: *mut T) -> Self;
    /// Loads with `Acquire`.
    fn load(&self) -> *mut T;
    /// Stores with `Release`.
    fn store(&self, value: *mut T);
}

impl<T> Pointer<T> for AtomicPtr<T> {
    fn new(value: *mut T) -> Self {
        Self::new(value)
    }
    #[inline(always)]
    fn load(&self) -> *mut T {
        self.load(Ordering::Acquire)
    }
    fn store(&self, value: *mut T) {
        self.store(value, Ordering::Release);
    }
}

impl<T, P: Pointer<T>> Replaceable<T, P> {
    pub(crate) fn new(value: Arc<T>) -> Self {
        Self { current: P::new(Arc::into_raw(value).cast_mut()), replaced: Mutex::default() }
    }

    /// Returns the current value.
    #[inline(always)]
    pub(crate) fn get(&self) -> &T {
        // SAFETY: the pointer comes from `Arc::into_raw`. The reference that the pointer owns is released
        // only by `drop`, and all borrows of `self` end before.
        unsafe { &*self.current.load() }
    }

    /// Returns a new counted reference to the current value. Takes no lock.
    pub(crate) fn share(&self) -> Arc<T> {
        let current = self.current.load();
        // SAFETY: as in `get`, the value has at least one reference at this point.
        unsafe { Arc::increment_strong_count(current) };
        // SAFETY: the result owns the reference that was just added.
        unsafe { Arc::from_raw(current) }
    }

    /// Replaces the current value by `next` if the current value is `expected`, and fewer than
    /// [`REPLACEMENTS_MAX`] replacements were made before. Returns whether the value was replaced.
    pub(crate) fn replace(&self, expected: &Arc<T>, next: &Arc<T>) -> bool {
        let mut replaced = self.replaced.lock();
        let current = self.current.load();
        if Arc::as_ptr(expected) != current.cast_const() || replaced.len() >= REPLACEMENTS_MAX {
            return false;
        }
        self.current.store(Arc::into_raw(Arc::clone(next)).cast_mut());
        // SAFETY: the pointer comes from `Arc::into_raw`. This thread holds the lock, so no other thread has
        // replaced this pointer. The reference that the pointer owns therefore moves into the list only once.
        replaced.push(unsafe { Arc::from_raw(current) });
        true
    }
}

impl<T, P: Pointer<T>> Drop for Replaceable<T, P> {
    fn drop(&mut self) {
        // SAFETY: the pointer comes from `Arc::into_raw`, and nothing reads the pointer afterwards.
        drop(unsafe { Arc::from_raw(self.current.load()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom::sync::atomic::AtomicPtr as Modelled;

    impl<T> Pointer<T> for Modelled<T> {
        fn new(value: *mut T) -> Self {
            Self::new(value)
        }
        fn load(&self) -> *mut T {
            self.load(Ordering::Acquire)
        }
        fn store(&self, value: *mut T) {
            self.store(value, Ordering::Release);
        }
    }

    #[test]
    fn earlier_values_stay_and_their_number_is_bounded() {
        let first = Arc::new(0);
        let value = <Replaceable<_>>::new(Arc::clone(&first));
        let borrowed = value.get();
        let mut all = vec![Arc::clone(&first)];
        for number in 1..=100_000 {
            let next = Arc::new(number);
            let replaced = value.replace(&value.share(), &next);
            assert_eq!(replaced, all.len() <= REPLACEMENTS_MAX);
            if replaced {
                assert_eq!(*value.get(), number);
                all.push(next);
            }
        }
        assert!(!value.replace(&first, &Arc::new(1)), "`first` was replaced twice");
        assert_eq!(*borrowed, 0);
        assert_eq!(all.len(), REPLACEMENTS_MAX + 1);
        assert!(all[1..].iter().all(|one| Arc::strong_count(one) == 2));
        drop(value);
        assert!(all[1..].iter().all(|one| Arc::strong_count(one) == 1));
    }

    /// Each value contains a cell of the model checker. The cell reports a read that is not ordered after the
    /// write of the value.
    #[test]
    #[allow(clippy::arc_with_non_send_sync)] // the model runs one thread at a time
    fn reader_sees_the_whole_value_in_every_interleaving() {
        loom::model(|| {
            let cell = |number| {
                let cell = loom::cell::UnsafeCell::new(0);
                cell.with_mut(|_| ());
                Arc::new((number, cell))
            };
            let first = cell(1);
            let value = Replaceable::<_, Modelled<_>>::new(Arc::clone(&first));
            let value = loom::sync::Arc::new(value);
            let reader = {
                let value = loom::sync::Arc::clone(&value);
                loom::thread::spawn(move || {
                    let read = value.get();
                    read.1.with(|_| ());
                    let shared = value.share();
                    shared.1.with(|_| ());
                    assert!(read.0 <= shared.0);
                })
            };
            assert!(value.replace(&first, &cell(2)));
            reader.join().unwrap();
        });
    }
}
