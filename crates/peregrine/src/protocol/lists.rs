//! Numbered places for values, and lists of these numbers. A value is added to a list, and removed from any
//! place in it, in a few steps and without an allocation, because the links of the lists are in the values.

use core::ops::{Index, IndexMut};

/// Values with numbers. A number is used again after its value was removed.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Adds a value, and returns its number.
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(number) = self.free.pop() {
            self.places[number as usize] = Some(value);
            return number;
        }
        self.places.push(Some(value));
        u32::try_from(self.places.len() - 1).expect("fewer values than numbers")
    }

    /// Removes a value.
    ///
    /// # Panics
    /// If there is no value with this number.
    pub(crate) fn remove(&mut self, number: u32) -> T {
        let value = self.places[number as usize].take().expect(MISSING);
        self.free.push(number);
        value
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

const MISSING: &str = "the number of a value";

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, number: u32) -> &T {
        self.places[number as usize].as_ref().expect(MISSING)
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, number: u32) -> &mut T {
        self.places[number as usize].as_mut().expect(MISSING)
    }
}

/// The neighbours of a value in a list: the older and the newer one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Links {
    older: Option<u32>,
    newer: Option<u32>,
}

/// A value that may be in several lists at the same time. Each list has a number.
pub(crate) trait Linked {
    #[cfg(test)]
    fn links(&self, list: usize) -> &Links;
    fn links_mut(&mut self, list: usize) -> &mut Links;
}

/// A list of values, oldest first.
#[derive(Debug)]
pub(crate) struct List {
    /// Which links of a value this list uses. A value is in at most one list with the same number.
    number: usize,
    oldest: Option<u32>,
    newest: Option<u32>,
    len: usize,
}

impl List {
    pub(crate) const fn new(number: usize) -> Self {
        Self { number, oldest: None, newest: None, len: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn oldest(&self) -> Option<u32> {
        self.oldest
    }

    fn links<'a, T: Linked>(&self, values: &'a mut Slab<T>, value: u32) -> &'a mut Links {
        values[value].links_mut(self.number)
    }

    /// Adds a value, which becomes the newest one. It must not be in the list.
    pub(crate) fn push<T: Linked>(&mut self, values: &mut Slab<T>, value: u32) {
        *self.links(values, value) = Links { older: self.newest, newer: None };
        match self.newest {
            None => self.oldest = Some(value),
            Some(newest) => self.links(values, newest).newer = Some(value),
        }
        self.newest = Some(value);
        self.len += 1;
    }

    /// Removes a value, which must be in the list.
    pub(crate) fn remove<T: Linked>(&mut self, values: &mut Slab<T>, value: u32) {
        let Links { older, newer } = core::mem::take(self.links(values, value));
        match older {
            None => self.oldest = newer,
            Some(older) => self.links(values, older).newer = newer,
        }
        match newer {
            None => self.newest = older,
            Some(newer) => self.links(values, newer).older = older,
        }
        self.len -= 1;
    }

    /// Returns the numbers of the values, and checks that the links of all values agree.
    #[cfg(test)]
    pub(crate) fn values<T: Linked>(&self, values: &Slab<T>) -> Vec<u32> {
        let mut found = Vec::new();
        let mut next = self.oldest;
        while let Some(value) = next {
            let links = values[value].links(self.number);
            assert_eq!(links.older, found.last().copied());
            found.push(value);
            next = links.newer;
        }
        assert_eq!((found.last().copied(), found.len()), (self.newest, self.len));
        found
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    struct Value([Links; 2]);

    impl Linked for Value {
        fn links(&self, list: usize) -> &Links {
            &self.0[list]
        }

        fn links_mut(&mut self, list: usize) -> &mut Links {
            &mut self.0[list]
        }
    }

    proptest! {
        #[test]
        fn lists_keep_the_order_of_additions(steps in vec((any::<bool>(), 0_usize..8), 0..60)) {
            let mut values = Slab::default();
            let mut lists = [List::new(0), List::new(1)];
            let mut expected: Vec<u32> = Vec::new();
            for (adds, which) in steps {
                if adds || expected.is_empty() {
                    let value = values.insert(Value(Default::default()));
                    prop_assert!(!expected.contains(&value));
                    lists.iter_mut().for_each(|list| list.push(&mut values, value));
                    expected.push(value);
                } else {
                    let value = expected.remove(which % expected.len());
                    lists.iter_mut().for_each(|list| list.remove(&mut values, value));
                    values.remove(value);
                }
                prop_assert_eq!(values.len(), expected.len());
                for list in &lists {
                    prop_assert_eq!(&list.values(&values), &expected);
                    prop_assert_eq!(list.oldest(), expected.first().copied());
                }
            }
        }
    }
}
