//! Creates the private runtime directory of a run. Other programs do not find the exports in this directory.

use std::error::Error;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::process::{Signal, set_parent_process_death_signal};

/// The name of an environment variable that is set in the process that measures. The variable shows that the
/// runtime directory of the run exists. Its value is the id of the process that created this directory.
const INSIDE: &str = "PEREGRINE_BENCH_INSIDE";

/// A directory that is removed when this value is dropped.
pub(crate) struct RunDirectory(PathBuf);

impl RunDirectory {
    /// Creates the directory with access for this user only.
    pub(crate) fn make() -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("peregrine-bench-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
        remove_shared(&self.0);
    }
}

/// Returns the directory of this run, which is removed after the run.
pub(crate) fn of_this_run() -> std::io::Result<PathBuf> {
    let directory = std::env::var_os("PEREGRINE_DIR");
    directory.map(PathBuf::from).ok_or_else(|| std::io::Error::other("this run has no directory"))
}

/// Returns the prefix of the names of shared memory that other systems (the peers) create during a run.
#[cfg(feature = "peers")]
pub(crate) fn shared_names(directory: &Path) -> String {
    let run = directory.file_name().unwrap_or_default();
    format!("{}_", run.to_string_lossy())
}

/// Removes the shared memory that peers keep for later processes, or leave when they are killed.
#[cfg(feature = "peers")]
fn remove_shared(directory: &Path) {
    let names = shared_names(directory);
    let Ok(files) = fs::read_dir("/dev/shm") else { return };
    for file in files.flatten() {
        if file.file_name().to_string_lossy().starts_with(&names) {
            let _ = fs::remove_file(file.path());
        }
    }
}

#[cfg(not(feature = "peers"))]
const fn remove_shared(_: &Path) {}

/// Returns whether a process of this program started this one, and gave it a directory in
/// `$PEREGRINE_DIR`.
pub(crate) fn inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Asks the kernel to kill this process when the thread that started it ends.
pub(crate) fn end_with_parent() {
    // If this fails, the run still works.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
}

/// Asks the kernel to kill this process when the process that created the runtime directory ends. Exits at
/// once if that process has ended already, because then nothing would read the result. The children of this
/// process end when this process ends.
pub(crate) fn end_with_creator() {
    end_with_parent();
    let creator = std::env::var(INSIDE).ok().and_then(|pid| pid.parse().ok());
    if creator.is_some_and(|pid: u32| pid != std::os::unix::process::parent_id()) {
        std::process::exit(1);
    }
}

/// Runs this program again, if possible in a new network namespace. The `$PEREGRINE_DIR` of the second run is
/// a new directory. It is removed after that run, in whatever way the run ends.
pub(crate) fn enter() -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
    let directory = RunDirectory::make()?;
    let status = crate::network::link::enter()?
        .args(std::env::args_os().skip(1))
        .env("PEREGRINE_DIR", &directory.0)
        .env(INSIDE, std::process::id().to_string())
        .status()?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}
