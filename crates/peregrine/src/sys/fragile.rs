//! `Fragile` is a value whose drop may panic. The panic does not unwind into the code that drops the value.

#![allow(unsafe_code)]

use core::any::Any;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A value of a type that this library does not control. If the drop of the value panics, the panic is caught
/// and reported.
pub(crate) struct Fragile<T, R: Fn(Box<dyn Any + Send>)> {
    value: ManuallyDrop<T>,
    report: R,
}

impl<T, R: Fn(Box<dyn Any + Send>)> Fragile<T, R> {
    pub(crate) const fn new(value: T, report: R) -> Self {
        Self { value: ManuallyDrop::new(value), report }
    }
}

impl<T, R: Fn(Box<dyn Any + Send>)> Deref for Fragile<T, R> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T, R: Fn(Box<dyn Any + Send>)> Drop for Fragile<T, R> {
    fn drop(&mut self) {
        let value = &mut self.value;
        // SAFETY: this is the only place that drops the value, it runs once, and nothing uses the
        // value afterwards. If the drop of one field panics, the other fields are still dropped.
        let drops = || unsafe { ManuallyDrop::drop(value) };
        // The value is gone even if the drop panicked, so nothing can observe a state that the panic left
        // behind.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(drops)) {
            (self.report)(panic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    struct Panics<'a>(&'a Cell<u32>);

    impl Drop for Panics<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
            panic!("on purpose");
        }
    }

    #[test]
    fn panic_of_a_drop_is_reported_once_and_does_not_unwind() {
        let (dropped, reported) = (Cell::new(0), Cell::new(0));
        let report = |panic: Box<dyn Any + Send>| {
            assert_eq!(panic.downcast_ref(), Some(&"on purpose"));
            reported.set(reported.get() + 1);
        };
        drop(Fragile::new((Panics(&dropped), String::from("another field")), report));
        assert_eq!((dropped.get(), reported.get()), (1, 1));
        // If a thread is already unwinding, a panic of the drop does not abort the process.
        let unwinds = catch_unwind(AssertUnwindSafe(|| {
            let _value = Fragile::new(Panics(&dropped), report);
            panic!("another panic");
        }));
        assert!(unwinds.is_err());
        assert_eq!((dropped.get(), reported.get()), (2, 2));
    }
}
