//! [`Standing`]: a registration, or a watch, that lasts until it is dropped.

use core::fmt;

type End = Box<dyn FnOnce() + Send + Sync>;
type Problem = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// A registration in a directory, or a watch of a name. It ends when this value is dropped.
///
/// ```
/// use peregrine::directory::Standing;
///
/// let standing = Standing::new(|| println!("withdrawn"), || None);
/// assert_eq!(standing.problem(), None);
/// drop(standing); // prints `withdrawn`
/// ```
#[must_use = "the registration or the watch ends when this is dropped"]
pub struct Standing {
    end: Option<End>,
    problem: Problem,
    /// A forked child ends nothing that its parent began.
    process: u32,
}

impl Standing {
    /// Makes a value that calls `end` when it is dropped, unless a forked child drops it. `problem` returns
    /// why the registration or the watch does not work now, for people, or `None` if it works.
    pub fn new(
        end: impl FnOnce() + Send + Sync + 'static,
        problem: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let process = std::process::id();
        Self { end: Some(Box::new(end)), problem: Box::new(problem), process }
    }

    /// Returns why the directory does not know of the registration now, or why the watch misses changes.
    /// `None`: it works. The directory goes on trying.
    pub fn problem(&self) -> Option<String> {
        (self.problem)()
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        let end = self.end.take();
        if self.process == std::process::id()
            && let Some(end) = end
        {
            end();
        }
    }
}

impl fmt::Debug for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Standing").field("problem", &self.problem()).finish()
    }
}
