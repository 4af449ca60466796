//! `InterfaceFile`: the interface of a server that cannot describe itself, read from a file that may change.

use core::fmt;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use peregrine::interface::Described;

use crate::setup::Log;

type Read = dyn Fn(&Path) -> Result<Described, String> + Send + Sync;

/// A file with the description of an interface.
///
/// The bridge looks at the file before each call. If the file has changed, the bridge reads it again, and
/// uses the new interface from then on. If the file cannot be read, the bridge keeps the earlier interface,
/// and [logs](crate::Bridge::log) why.
pub struct InterfaceFile {
    path: PathBuf,
    read: Box<Read>,
    state: Mutex<State>,
}

/// Identifies the content of the file without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    /// The time of the last change of the content, in seconds and nanoseconds.
    modified: (i64, i64),
    /// The time of the last change of the content or of the attributes, in seconds and nanoseconds. Programs
    /// cannot set this time.
    changed: (i64, i64),
}

impl Stamp {
    fn of(file: &Metadata) -> Self {
        Self {
            inode: file.ino(),
            bytes: file.len(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }
}

struct State {
    /// The stamp when the bridge last looked at the file, or the kind of the error. The content with this
    /// stamp may have been invalid.
    seen: Result<Stamp, io::ErrorKind>,
    /// The interface that the file had when it was last read without an error.
    current: Arc<Described>,
}

impl fmt::Debug for InterfaceFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterfaceFile").field("path", &self.path).finish_non_exhaustive()
    }
}

fn look(path: &Path) -> Result<Stamp, io::ErrorKind> {
    std::fs::metadata(path).map(|file| Stamp::of(&file)).map_err(|error| error.kind())
}

impl InterfaceFile {
    /// Reads the file at `path` with `read`, which returns the description, or why the content is no
    /// description. The bridge calls `read` again whenever the file has changed. `read` may read further
    /// files, but the bridge does not see their changes.
    ///
    /// ```
    /// use peregrine::interface::Described;
    /// use peregrine_bridge::InterfaceFile;
    ///
    /// let path = std::env::temp_dir().join(format!("doc-interface-{}", std::process::id()));
    /// std::fs::write(&path, "interface Empty version 0\n")?;
    /// let file = InterfaceFile::new(&path, |path| {
    ///     let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    ///     Described::parse(&text).map_err(|error| error.to_string())
    /// });
    /// assert!(file.is_ok());
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the error of `read`.
    pub fn new(
        path: impl Into<PathBuf>,
        read: impl Fn(&Path) -> Result<Described, String> + Send + Sync + 'static,
    ) -> Result<Self, String> {
        let path = path.into();
        // The stamp is taken before the content is read. So a change in between is noticed at the next look.
        let seen = look(&path);
        let current = Arc::new(read(&path)?);
        let state = Mutex::new(State { seen, current });
        Ok(Self { path, read: Box::new(read), state })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the interface. Reads the file if it has changed since the last look.
    pub(crate) fn current(&self, log: &Log) -> Arc<Described> {
        let seen = look(&self.path);
        let mut state = self.state();
        if state.seen != seen {
            state.seen = seen;
            let read = match seen {
                Ok(_) => (self.read)(&self.path),
                Err(kind) => Err(kind.to_string()),
            };
            match read {
                Ok(new) if new != *state.current => state.current = Arc::new(new),
                Ok(_) => {}
                Err(why) => log.say(&format!(
                    "the interface in {} is not taken up, and the earlier one stays in use: {why}",
                    self.path.display()
                )),
            }
        }
        Arc::clone(&state.current)
    }
}
