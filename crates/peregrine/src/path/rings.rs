//! The frames whose bells a leader rings after it has given up the lead. A bell wakes a future, which runs
//! code of the application. So no lock is held while a bell rings.

/// Frames whose bells must ring.
pub(super) struct Rings {
    list: [u32; Self::MAX],
    count: usize,
    /// The frames that do not fit into `list`. It is empty unless many replies arrive together.
    more: Vec<u32>,
}

impl Rings {
    const MAX: usize = 64;

    pub(super) const fn new() -> Self {
        Self { list: [0; Self::MAX], count: 0, more: Vec::new() }
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns whether the leader should give up the lead before it receives more.
    pub(super) const fn is_full(&self) -> bool {
        self.count == Self::MAX
    }

    /// Adds a frame. Allocates memory if the list is full.
    pub(super) fn push(&mut self, frame: u32) {
        match self.list.get_mut(self.count) {
            Some(place) => {
                *place = frame;
                self.count += 1;
            }
            None => self.more.push(frame),
        }
    }

    /// Returns the frames.
    pub(super) fn frames(&self) -> impl Iterator<Item = u32> {
        self.list[..self.count].iter().chain(&self.more).copied()
    }

    /// Moves the frames out of this list.
    pub(super) const fn take(&mut self) -> Self {
        core::mem::replace(self, Self::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_frame_is_forgotten() {
        let mut rings = Rings::new();
        for frame in 0..200 {
            assert_eq!(rings.is_full(), frame >= 64);
            rings.push(frame);
        }
        assert!(rings.take().frames().eq(0..200));
        assert!(rings.is_empty() && !rings.is_full());
        assert_eq!(rings.frames().count(), 0);
    }
}
