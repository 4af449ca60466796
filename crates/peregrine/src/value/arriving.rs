//! `Arriving` is a window on a message that its sender is still writing.
//!
//! The sender of a large message first announces the message, and then writes it piece by piece. So the
//! receiver can copy one piece while the sender writes the next one. A read through this type waits for bytes
//! that have not arrived yet.

use super::{Invalid, Space, Window};

/// Reports how much of a message has arrived. The path that carries the message implements this trait.
pub trait Arrives: Sync {
    /// Waits until more than `bytes` bytes of the message have arrived, and returns the number of bytes that
    /// have arrived. Returns `None` if the sender has stopped, so that no more bytes will arrive.
    fn wait(&self, bytes: usize) -> Option<usize>;

    /// Prepares for a procedure that reads the rest of the message itself. Returns false if the procedure
    /// must not run: the rest has not arrived, and the procedure is not allowed to wait for it.
    fn lend(&self) -> bool {
        true
    }
}

/// The smallest number of bytes that [`Arriving::read`] waits for. A sender of this library never announces
/// fewer bytes at a time. This minimum bounds the number of copies and waits, whatever a peer announces.
const PIECE: usize = 8 << 10;

/// A part of a message that may not have arrived completely.
#[derive(Clone, Copy)]
pub struct Arriving<'a> {
    window: Window<'a>,
    /// The offset of the part in the message.
    at: usize,
    /// Reports which bytes have arrived. `None` if the whole part has arrived.
    arrives: Option<&'a dyn Arrives>,
}

impl<'a> Arriving<'a> {
    /// Makes the part of a message that lies in `window`, `at` bytes from the start of the message.
    #[inline]
    pub const fn new(window: Window<'a>, at: usize, arrives: Option<&'a dyn Arrives>) -> Self {
        Self { window, at, arrives }
    }

    /// Returns the number of bytes of the part, including those that have not arrived.
    #[inline]
    pub const fn len(&self) -> usize {
        self.window.len()
    }

    /// Returns whether the length is 0.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.window.is_empty()
    }

    /// Returns the part of `bytes` bytes that begins at `at`.
    ///
    /// # Errors
    /// [`Invalid::Short`] if the requested part is not inside this part.
    #[inline]
    pub fn part(&self, at: usize, bytes: usize) -> Result<Self, Invalid> {
        let window = self.window.part(at, bytes).ok_or(Invalid::Short)?;
        Ok(Self { window, at: self.at + at, arrives: self.arrives })
    }

    /// Waits until the whole part has arrived, and returns a window on it.
    ///
    /// # Errors
    /// [`Invalid::Stopped`] if the rest of the part will not arrive.
    #[inline]
    pub fn whole(&self) -> Result<Window<'a>, Invalid> {
        if let Some(arrives) = self.arrives
            && !self.window.is_empty()
        {
            let end = self.at + self.window.len();
            // `wait` returns once more than `end - 1` bytes of the message have arrived. These include the
            // whole part.
            while arrives.wait(end - 1).ok_or(Invalid::Stopped)? < end {}
        }
        Ok(self.window)
    }

    /// Copies the part into `private`, which must have the same length. Each piece is copied as soon as it
    /// arrives.
    ///
    /// # Errors
    /// [`Invalid::Stopped`] if the rest will not arrive; [`Invalid::Short`] if the part has fewer bytes.
    pub fn read(&self, private: &mut [u8]) -> Result<(), Invalid> {
        let Some(arrives) = self.arrives else {
            return self.window.read(0, private).ok_or(Invalid::Short);
        };
        let mut done = 0;
        while done < private.len() {
            let least = (private.len() - done).min(PIECE);
            let there = arrives.wait(self.at + done + least - 1).ok_or(Invalid::Stopped)?;
            let piece = there.saturating_sub(self.at + done).min(private.len() - done);
            let to = Space::of_mut(&mut private[done..done + piece]);
            to.copy_cached(self.window.part(done, piece).ok_or(Invalid::Short)?);
            done += piece;
        }
        Ok(())
    }
}

impl<'a> From<Window<'a>> for Arriving<'a> {
    #[inline]
    fn from(window: Window<'a>) -> Self {
        Self::new(window, 0, None)
    }
}

impl core::fmt::Debug for Arriving<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Arriving({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicUsize, Ordering};

    /// Delivers three bytes each time a reader waits, and at most `stops` bytes in all.
    struct Slowly {
        there: AtomicUsize,
        stops: usize,
    }

    impl Arrives for Slowly {
        fn wait(&self, bytes: usize) -> Option<usize> {
            while self.there.load(Ordering::Relaxed) <= bytes {
                if self.there.fetch_add(3, Ordering::Relaxed) + 3 > self.stops {
                    return None;
                }
            }
            Some(self.there.load(Ordering::Relaxed))
        }
    }

    /// Delivers exactly the awaited bytes each time a reader waits. Records the argument of each wait.
    struct RecordingArrives(std::sync::Mutex<Vec<usize>>);

    impl Arrives for RecordingArrives {
        fn wait(&self, bytes: usize) -> Option<usize> {
            let mut asked = self.0.lock().unwrap();
            // A reader that waits for the same bytes again would never end, so such a wait fails.
            if asked.last().is_some_and(|last| bytes <= *last) {
                return None;
            }
            asked.push(bytes);
            Some(bytes + 1)
        }
    }

    #[test]
    fn read_waits_for_each_piece_in_order() {
        let memory: Vec<u8> = (0..u8::MAX).cycle().take(5 * PIECE + 7).collect();
        let asked = RecordingArrives(std::sync::Mutex::default());
        let arriving = Arriving::new(Window::from(&memory[3 * PIECE..]), 3 * PIECE, Some(&asked));
        let mut copy = vec![0; 2 * PIECE + 7];
        arriving.read(&mut copy).unwrap();
        assert_eq!(copy, memory[3 * PIECE..]);
        let last_bytes = [4 * PIECE, 5 * PIECE, 5 * PIECE + 7].map(|end| end - 1);
        assert_eq!(*asked.0.lock().unwrap(), last_bytes);
    }

    #[test]
    fn arrived_bytes_are_copied_while_the_rest_is_awaited() {
        let memory: Vec<u8> = (0..20).collect();
        let slowly = Slowly { there: AtomicUsize::new(0), stops: 100 };
        let arriving = Arriving::new(Window::from(&memory[4..]), 4, Some(&slowly));
        let mut copy = [0; 16];
        arriving.read(&mut copy).unwrap();
        assert_eq!(copy, memory[4..]);
        let stops = Slowly { there: AtomicUsize::new(0), stops: 12 };
        let arriving = Arriving::new(Window::from(&memory[4..]), 4, Some(&stops));
        assert_eq!(arriving.part(0, 8).unwrap().whole().unwrap().len(), 8);
        assert_eq!(arriving.whole().unwrap_err(), Invalid::Stopped);
        assert_eq!(arriving.read(&mut copy), Err(Invalid::Stopped));
        assert_eq!(arriving.part(9, 8).unwrap_err(), Invalid::Short);
        assert_eq!(arriving.part(16, 0).unwrap().whole().unwrap().len(), 0);
        assert!(arriving.part(16, 0).unwrap().is_empty() && !arriving.is_empty());
        // More bytes of the message have arrived than the part contains.
        let more = Slowly { there: AtomicUsize::new(20), stops: 100 };
        let arriving = Arriving::new(Window::from(&memory[4..]), 4, Some(&more));
        assert_eq!(arriving.part(0, 8).unwrap().whole().unwrap().len(), 8);
        let mut some = [0; 5];
        arriving.part(1, 5).unwrap().read(&mut some).unwrap();
        assert_eq!(some, memory[5..10]);
    }
}
