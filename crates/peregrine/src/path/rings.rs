//! The frames whose bells a leader rings after it has given up the lead. A bell wakes a future, which runs
//! code of the application. So no lock is held while a bell rings.

/// Frames whose bells must ring.
pub(super) struct Rings {
    list: [u32; Self::MAX],
    count: usize,
}

impl Rings {
    const MAX: usize = 64;

    pub(super) const fn new() -> Self {
        Self { list: [0; Self::MAX], count: 0 }
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns whether the leader must give up the lead before it receives more.
    pub(super) const fn is_full(&self) -> bool {
        self.count == Self::MAX
    }

    /// Adds a frame. Does nothing if the list is full. So the leader must receive nothing while
    /// [`is_full`](Self::is_full) returns true.
    pub(super) fn push(&mut self, frame: u32) {
        if let Some(place) = self.list.get_mut(self.count) {
            *place = frame;
            self.count += 1;
        }
    }

    /// Returns the frames.
    pub(super) fn frames(&self) -> &[u32] {
        &self.list[..self.count]
    }

    /// Moves the frames out of this list.
    pub(super) const fn take(&mut self) -> Self {
        core::mem::replace(self, Self::new())
    }
}
