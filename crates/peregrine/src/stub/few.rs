//! `Few`: a list that needs no allocation if it is short.

/// A list that needs no allocation for up to `N` elements.
pub(super) struct Few<T, const N: usize> {
    few: [T; N],
    count: usize,
    many: Vec<T>,
}

impl<T, const N: usize> Few<T, N> {
    #[inline]
    pub(super) fn new(count: usize, none: impl Fn() -> T) -> Self {
        let many = if count > N { Vec::with_capacity(count) } else { Vec::new() };
        Self { few: core::array::from_fn(|_| none()), count: 0, many }
    }

    #[inline]
    pub(super) fn push(&mut self, one: T) {
        if self.many.capacity() > 0 {
            self.many.push(one);
        } else if let Some(place) = self.few.get_mut(self.count) {
            *place = one;
            self.count += 1;
        }
    }

    #[inline]
    pub(super) fn all(&mut self) -> &mut [T] {
        if self.many.capacity() > 0 { &mut self.many } else { &mut self.few[..self.count] }
    }

    /// Returns a list of `count` elements. `one` makes each element.
    #[inline]
    pub(super) fn filled(count: usize, one: impl Fn() -> T) -> Self {
        let mut list = Self::new(count, &one);
        (0..count).for_each(|_| list.push(one()));
        list
    }
}
