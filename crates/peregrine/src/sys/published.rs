//! A shared value that can be replaced any number of times while other threads read it.
//!
//! A reader needs no locked instruction and writes only to memory of its own thread: it stores the pointer of
//! the value in a *slot*, and loads the pointer again. If it has not changed, the value stays until the slot is
//! cleared. A writer replaces the pointer, makes every processor execute a barrier (`membarrier`), and then looks
//! at all slots. The barrier is executed on a reader's processor
//!
//! * before the reader loads the pointer again. The reader then sees that it has changed; or
//! * after that, and therefore after the reader has stored to its slot. The writer then sees the slot.
//!
//! These are hazard pointers (M. Michael, IEEE Transactions on Parallel and Distributed Systems 15(6), 2004),
//! with the barrier at the writer. Without `membarrier`, readers execute a fence.

#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering, compiler_fence, fence};
use std::sync::Arc;

use super::membarrier;
use crate::sync::Mutex;

/// The number of values that a thread can read at the same time without counting references. Calls nest:
/// a procedure may make calls.
const DEPTH: usize = 4;

/// A pointer that is shared between threads, of the standard library or of the model checker.
trait Word<T> {
    fn load(&self) -> *mut T;
    fn store(&self, value: *mut T);
}

impl<T> Word<T> for AtomicPtr<T> {
    #[inline(always)]
    fn load(&self) -> *mut T {
        self.load(Ordering::Acquire)
    }
    #[inline(always)]
    fn store(&self, value: *mut T) {
        self.store(value, Ordering::Release);
    }
}

/// Loads a pointer and stores it in a slot, so that the value to which it points stays. `barrier` orders the
/// store before the second load.
#[inline(always)]
fn protect<T>(now: &impl Word<T>, slot: &impl Word<T>, barrier: impl Fn()) -> *mut T {
    loop {
        let value = now.load();
        slot.store(value);
        barrier();
        if now.load() == value {
            return value;
        }
    }
}

/// The slots of one thread. They are never freed, because a writer looks at them at any time. A thread that ends
/// leaves them to another thread.
#[repr(align(128))]
struct Slots {
    slots: [AtomicPtr<()>; DEPTH],
    is_used: AtomicBool,
    next: *mut Self,
}

/// All slots of the process, as a list to which slots are only added. It has no lock that a forked child could
/// find locked.
static ALL: AtomicPtr<Slots> = AtomicPtr::new(ptr::null_mut());

impl Slots {
    /// Returns slots that no other thread uses.
    #[cold]
    fn obtain() -> &'static Self {
        for slots in Self::all() {
            // SYNC: the slots of a thread that has ended. That thread cleared them before.
            let free =
                slots.is_used.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed);
            if free.is_ok() {
                return slots;
            }
        }
        let slots = [const { AtomicPtr::new(ptr::null_mut()) }; DEPTH];
        let new = Box::into_raw(Box::new(Self {
            slots,
            is_used: AtomicBool::new(true),
            next: ptr::null_mut(),
        }));
        let mut first = ALL.load(Ordering::Acquire);
        loop {
            // SAFETY: made above, and no other thread has seen it.
            unsafe { (*new).next = first };
            // SYNC: list of slots, followed by `all`.
            match ALL.compare_exchange_weak(first, new, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: as above. From now on it is only shared, and it is never freed.
                Ok(_) => return unsafe { &*new },
                Err(other) => first = other,
            }
        }
    }

    /// Returns the slots of all threads.
    fn all() -> impl Iterator<Item = &'static Self> {
        let mut next = ALL.load(Ordering::Acquire);
        core::iter::from_fn(move || {
            // SAFETY: the pointer is null, or points to slots that are never freed, and that do not change but
            // for their atomic fields.
            let slots = unsafe { next.as_ref() }?;
            next = slots.next;
            Some(slots)
        })
    }
}

/// The slots of a thread, until it ends.
struct Own(&'static Slots);

impl Drop for Own {
    fn drop(&mut self) {
        // A value that is still being read is read further, so its slots are not given to another thread.
        if self.0.slots.iter().all(|slot| slot.load(Ordering::Relaxed).is_null()) {
            self.0.is_used.store(false, Ordering::Release);
        }
    }
}

thread_local! {
    static OWN: Own = Own(Slots::obtain());
}

/// Returns a slot of this thread that is free.
#[inline]
fn free_slot() -> Option<&'static AtomicPtr<()>> {
    let own = OWN.try_with(|own| own.0).ok()?;
    own.slots.iter().find(|slot| slot.load(Ordering::Relaxed).is_null())
}

/// A shared value that can be replaced.
pub(crate) struct Published<T> {
    now: AtomicPtr<T>,
    /// Whether writers make every processor execute a barrier, so that readers need no fence.
    has_barrier: bool,
    /// Former values that may be read.
    former: Mutex<Former<T>>,
}

struct Former<T> {
    values: Vec<Arc<T>>,
    /// Values that were replaced without a barrier. They stay until no thread can read them any more, at the
    /// latest when the `Published` is dropped.
    kept: Vec<Arc<T>>,
}

/// A value that is being read. It stays as long as this exists.
pub(crate) struct Reading<'a, T> {
    value: &'a T,
    slot: Option<&'static AtomicPtr<()>>,
    /// A counted reference, if no slot was free.
    _counted: Option<Arc<T>>,
    /// The slot belongs to this thread.
    _thread: PhantomData<*mut ()>,
}

impl<T> Deref for Reading<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        self.value
    }
}

impl<T> Drop for Reading<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            slot.store(ptr::null_mut(), Ordering::Release);
        }
    }
}

impl<T: Send + Sync> Published<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            now: AtomicPtr::new(Arc::into_raw(Arc::new(value)).cast_mut()),
            has_barrier: membarrier(),
            former: Mutex::new(Former { values: Vec::new(), kept: Vec::new() }),
        }
    }

    /// Reads the current value.
    #[inline(always)]
    pub(crate) fn read(&self) -> Reading<'_, T> {
        let slot = free_slot();
        let (value, counted) = match slot {
            Some(slot) if self.has_barrier => {
                (protect(&self.now, &Typed(slot), || compiler_fence(Ordering::SeqCst)), None)
            }
            Some(slot) => (protect(&self.now, &Typed(slot), || fence(Ordering::SeqCst)), None),
            None => {
                let counted = self.share();
                (Arc::as_ptr(&counted).cast_mut(), Some(counted))
            }
        };
        // SAFETY: the pointer comes from `Arc::into_raw`. The reference that it owns is dropped by `replace`,
        // `collect` or `drop`. The first two do not drop a value that is in a slot, as the documentation of
        // this module argues, and `drop` has exclusive access, so no `Reading` exists. If no slot was free,
        // the value stays as long as the reference, which `Reading` keeps.
        let value = unsafe { &*value };
        Reading { value, slot, _counted: counted, _thread: PhantomData }
    }

    /// Returns a counted reference to the current value.
    #[cold]
    pub(crate) fn share(&self) -> Arc<T> {
        // Values are replaced under this lock, so the current value stays.
        let former = self.former.lock();
        let now = self.now.load(Ordering::Acquire);
        // SAFETY: the pointer comes from `Arc::into_raw`, and owns a reference.
        unsafe { Arc::increment_strong_count(now) };
        drop(former);
        // SAFETY: the result owns the reference that was just added.
        unsafe { Arc::from_raw(now) }
    }

    /// Replaces the value. Returns former values that are not read any more. The caller drops them when it
    /// holds no lock.
    #[must_use]
    pub(crate) fn replace(&self, value: T) -> Vec<Arc<T>> {
        let new = Arc::into_raw(Arc::new(value)).cast_mut();
        let mut former = self.former.lock();
        let old = self.now.swap(new, Ordering::AcqRel);
        // SAFETY: the pointer comes from `Arc::into_raw`. It was just replaced, so the reference that it owns
        // moves into the list only once.
        let old = unsafe { Arc::from_raw(old) };
        let is_ordered = match self.has_barrier {
            true => membarrier(),
            false => {
                fence(Ordering::SeqCst);
                true
            }
        };
        if !is_ordered {
            former.kept.push(old);
            return Vec::new();
        }
        former.values.push(old);
        unread(&mut former.values)
    }

    /// Returns former values that are not read any more, as [`replace`](Self::replace) does, and whether
    /// others are still read.
    #[must_use]
    pub(crate) fn collect(&self) -> (Vec<Arc<T>>, bool) {
        let mut former = self.former.lock();
        let unread = unread(&mut former.values);
        (unread, !former.values.is_empty())
    }
}

/// Removes the values that are in no slot. A value that was replaced enters no slot any more, but for a moment,
/// after which its reader sees that it was replaced.
fn unread<T>(values: &mut Vec<Arc<T>>) -> Vec<Arc<T>> {
    let is_read = |value: &Arc<T>| {
        let own = Arc::as_ptr(value).cast_mut().cast();
        Slots::all()
            .any(|thread| thread.slots.iter().any(|slot| slot.load(Ordering::Acquire) == own))
    };
    let (read, unread) = core::mem::take(values).into_iter().partition(is_read);
    *values = read;
    unread
}

/// A slot for pointers of one type.
struct Typed(&'static AtomicPtr<()>);

impl<T> Word<T> for Typed {
    #[inline(always)]
    fn load(&self) -> *mut T {
        self.0.load(Ordering::Acquire).cast()
    }
    #[inline(always)]
    fn store(&self, value: *mut T) {
        self.0.store(value.cast(), Ordering::Release);
    }
}

impl<T> Drop for Published<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer comes from `Arc::into_raw`, and nothing reads it afterwards.
        drop(unsafe { Arc::from_raw(*self.now.get_mut()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicUsize;
    use loom::sync::atomic::AtomicPtr as Modelled;

    impl<T> Word<T> for Modelled<T> {
        fn load(&self) -> *mut T {
            self.load(Ordering::Acquire)
        }
        fn store(&self, value: *mut T) {
            self.store(value, Ordering::Release);
        }
    }

    /// Counts the values that exist, and is worth its number.
    struct Counted<'a>(usize, &'a AtomicUsize);

    impl<'a> Counted<'a> {
        fn new(number: usize, count: &'a AtomicUsize) -> Self {
            count.fetch_add(1, Ordering::Relaxed);
            Self(number, count)
        }
    }

    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.1.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn value_stays_while_it_is_read_and_no_longer() {
        let count = AtomicUsize::new(0);
        let value = Published::new(Counted::new(1, &count));
        let first = value.read();
        assert!(value.replace(Counted::new(2, &count)).is_empty());
        let second = value.read();
        assert_eq!((first.0, second.0), (1, 2));
        assert!(value.replace(Counted::new(3, &count)).is_empty());
        assert_eq!(count.load(Ordering::Relaxed), 3);
        drop(first);
        let (unread, others) = value.collect();
        assert_eq!((unread.len(), unread[0].0, others), (1, 1, true));
        drop((unread, second));
        assert_eq!(value.collect().0.len(), 1);
        assert_eq!(count.load(Ordering::Relaxed), 1);
        assert_eq!(value.share().0, 3);
        drop(value);
        assert_eq!(count.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn more_values_than_slots_can_be_read() {
        let count = AtomicUsize::new(0);
        let value = Published::new(Counted::new(0, &count));
        let mut readings = Vec::new();
        for number in 1..=3 * DEPTH {
            readings.push(value.read());
            drop(value.replace(Counted::new(number, &count)));
        }
        assert!(readings.iter().enumerate().all(|(number, reading)| reading.0 == number));
        readings.clear();
        drop(value.collect());
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn threads_read_whole_values_while_they_are_replaced() {
        let count = AtomicUsize::new(0);
        let value = Published::new(Counted::new(0, &count));
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut last = 0;
                    while !ended.load(Ordering::Acquire) {
                        let reading = value.read();
                        assert!(reading.0 >= last && ptr::eq(reading.1, &raw const count));
                        last = reading.0;
                    }
                });
            }
            (1..5000).for_each(|number| drop(value.replace(Counted::new(number, &count))));
            ended.store(true, Ordering::Release);
        });
        drop(value.collect());
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    /// The model has fences at both sides in place of the barrier. Each value has a cell of the model checker,
    /// which reports an access that is not ordered.
    #[test]
    fn value_in_a_slot_is_not_freed_in_any_interleaving() {
        use loom::cell::UnsafeCell;
        use loom::sync::Arc;
        use loom::sync::atomic::fence;

        loom::model(|| {
            let values = Arc::new([UnsafeCell::new(1), UnsafeCell::new(2)]);
            let at =
                |values: &Arc<[UnsafeCell<u32>; 2]>, i: usize| (&raw const values[i]).cast_mut();
            let now = Arc::new(Modelled::new(at(&values, 0)));
            let slot = Arc::new(Modelled::new(ptr::null_mut()));
            let reader = {
                let (values, now, slot) = (values.clone(), now.clone(), slot.clone());
                loom::thread::spawn(move || {
                    let read = protect(&*now, &*slot, || fence(Ordering::SeqCst));
                    let at = usize::from(read != (&raw const values[0]).cast_mut());
                    values[at].with(|value| {
                        // SAFETY: the model checker checks the access.
                        assert_eq!(unsafe { *value }, 1 + at as u32);
                    });
                    Word::store(&*slot, ptr::null_mut());
                })
            };
            let old = now.swap(at(&values, 1), Ordering::AcqRel);
            fence(Ordering::SeqCst);
            if Word::load(&*slot) != old {
                // The value is freed.
                values[0].with_mut(|value| {
                    // SAFETY: as above.
                    unsafe { *value = 0 }
                });
            }
            reader.join().unwrap();
        });
    }
}
