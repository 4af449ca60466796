//! `Arriving`: a window on a message that its sender is still writing.
//!
//! The sender of a large message posts it first and writes it then, piece by piece, so that the
//! receiver copies one piece while the sender writes the next. Whoever reads through this type
//! waits for what has not come yet.

use super::{Invalid, Space, Window};

/// How much of a message has come; the message's path knows.
pub trait Arrives: Sync {
    /// Waits until more than `bytes` bytes of the message are there, from its start; how many are.
    /// `None` if the sender has stopped: more will not come.
    fn wait(&self, bytes: usize) -> Option<usize>;

    /// A procedure is about to run that reads the rest of the message by itself. False if it must
    /// not: the rest is not there, and its sender is not to be waited for.
    fn lend(&self) -> bool {
        true
    }
}

/// What [`Arriving::read`] waits for at a time, at least: the least that senders tell of. So the
/// pieces that it copies, and the waits, are no more than a sender with a purpose would make them.
const PIECE: usize = 8 << 10;

/// A part of a message, all of which may not have come yet.
#[derive(Clone, Copy)]
pub struct Arriving<'a> {
    window: Window<'a>,
    /// Where it begins in the message.
    at: usize,
    /// `None`: all of it is there.
    arrives: Option<&'a dyn Arrives>,
}

impl<'a> Arriving<'a> {
    /// The part of a message that lies in `window`, `at` bytes from its start.
    #[inline]
    pub const fn new(window: Window<'a>, at: usize, arrives: Option<&'a dyn Arrives>) -> Self {
        Self { window, at, arrives }
    }

    /// How many bytes there are, or will be.
    #[inline]
    pub const fn len(&self) -> usize {
        self.window.len()
    }

    /// Whether there are none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.window.is_empty()
    }

    /// A part of it.
    ///
    /// # Errors
    /// [`Invalid::Short`] if it reaches outside.
    #[inline]
    pub fn part(&self, at: usize, bytes: usize) -> Result<Self, Invalid> {
        let window = self.window.part(at, bytes).ok_or(Invalid::Short)?;
        Ok(Self { window, at: self.at + at, arrives: self.arrives })
    }

    /// All of it, once it is there.
    ///
    /// # Errors
    /// [`Invalid::Stopped`] if it will not come.
    #[inline]
    pub fn whole(&self) -> Result<Window<'a>, Invalid> {
        if let Some(arrives) = self.arrives
            && !self.window.is_empty()
        {
            let end = self.at + self.window.len();
            // More than all but the last byte: all.
            while arrives.wait(end - 1).ok_or(Invalid::Stopped)? < end {}
        }
        Ok(self.window)
    }

    /// Copies all of it into `private`, which is as long, each piece as it comes.
    ///
    /// # Errors
    /// [`Invalid::Stopped`] if it will not come, [`Invalid::Short`] if there is less.
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

    /// Three bytes more come with each wait, and no more than `stops`.
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

    /// As many bytes come as are waited for, and what was waited for is noted.
    struct Asked(std::sync::Mutex<Vec<usize>>);

    impl Arrives for Asked {
        fn wait(&self, bytes: usize) -> Option<usize> {
            let mut asked = self.0.lock().unwrap();
            // A reader that does not wait for more would never end.
            if asked.last().is_some_and(|last| bytes <= *last) {
                return None;
            }
            asked.push(bytes);
            Some(bytes + 1)
        }
    }

    #[test]
    fn read_waits_for_each_piece_after_those_that_it_has() {
        let memory: Vec<u8> = (0..u8::MAX).cycle().take(5 * PIECE + 7).collect();
        let asked = Asked(std::sync::Mutex::default());
        let arriving = Arriving::new(Window::from(&memory[3 * PIECE..]), 3 * PIECE, Some(&asked));
        let mut copy = vec![0; 2 * PIECE + 7];
        arriving.read(&mut copy).unwrap();
        assert_eq!(copy, memory[3 * PIECE..]);
        let last_bytes = [4 * PIECE, 5 * PIECE, 5 * PIECE + 7].map(|end| end - 1);
        assert_eq!(*asked.0.lock().unwrap(), last_bytes);
    }

    #[test]
    fn what_has_come_is_copied_and_the_rest_waited_for() {
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
        // More has come than the part has.
        let more = Slowly { there: AtomicUsize::new(20), stops: 100 };
        let arriving = Arriving::new(Window::from(&memory[4..]), 4, Some(&more));
        assert_eq!(arriving.part(0, 8).unwrap().whole().unwrap().len(), 8);
        let mut some = [0; 5];
        arriving.part(1, 5).unwrap().read(&mut some).unwrap();
        assert_eq!(some, memory[5..10]);
    }
}
