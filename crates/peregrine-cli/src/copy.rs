//! `copy`: copies one file from a server that exports `Files`, over any path.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use peregrine::{Address, Out};
use serde_json::json;

use crate::args::{Copy, Format};
use crate::files::{CHUNK_BYTES, Files as _, FilesClient};
use crate::interrupt::{Interrupt, InterruptOptions};
use crate::output::{self, BOLD, Counted, Failure, OrFail};
use crate::security::bind_options;

/// Time limit of a call.
const LIMIT: Duration = Duration::from_secs(30);
/// How long the call for the current chunk may still run after a signal interrupted the copy.
const GRACE: Duration = Duration::from_millis(200);

/// Copies one file.
pub(crate) fn run(copy: &Copy, format: Format) -> Result<(), Failure> {
    let (address, path) = Address::split(&copy.from)?;
    let path = path.filter(|path| !path.is_empty()).ok_or_else(|| {
        let what = format!("missing file path in `{}`", copy.from);
        Failure::local(what, "write the path of the file after the address: ADDRESS/PATH")
    })?;
    let target = target(&copy.to, path);
    // A special file, such as a pipe or a device, must be written to, and must not be replaced.
    let in_place = target.symlink_metadata().is_ok_and(|about| !about.is_file());
    let files = FilesClient::bind_with(&address.to_string(), &bind_options())?.with_timeout(LIMIT);
    let begun = Instant::now();
    let bytes = files.size(path)?;
    let what = || format!("cannot write {}", target.display());
    let copied = if in_place {
        let mut to =
            File::options().write(true).create(true).truncate(true).open(&target).or_fail(what())?;
        let progress = Progress::new(bytes, false);
        let interrupt = progress.handle_signals(format, None)?;
        fetch(&files, path, &progress, &interrupt, &mut to, &what)?
    } else {
        // The copy gets its final name only when it is complete.
        let directory = target.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        let mut made = tempfile::NamedTempFile::new_in(directory).or_fail(what())?;
        let progress = Progress::new(bytes, true);
        let interrupt = progress.handle_signals(format, Some(made.path().to_owned()))?;
        let copied = fetch(&files, path, &progress, &interrupt, made.as_file_mut(), &what)?;
        make_readable(made.as_file()).or_fail(what())?;
        interrupt.check(|| progress.interrupted())?;
        interrupt.leave();
        made.persist(&target).map_err(|error| error.error).or_fail(what())?;
        copied
    };
    let took = begun.elapsed();
    let per_s = copied as f64 / took.as_secs_f64().max(1e-9);
    let used = files.binding().path().to_string();
    if format.is_json() {
        return output::print(json!({
            "from": copy.from,
            "to": target.display().to_string(),
            "path": used,
            "bytes": copied,
            "seconds": took.as_secs_f64(),
            "bytes_per_s": per_s,
            "took_ns": output::whole_ns(took),
        }));
    }
    let text = format!(
        "{copied} bytes of {BOLD}{}{BOLD:#} to {BOLD}{}{BOLD:#}, path {used}: {:.2} GB/s",
        copy.from,
        target.display(),
        per_s / 1e9
    );
    if !in_place {
        return output::say(text);
    }
    // Standard output may contain the copy itself, so this text goes to standard error.
    output::note(text);
    Ok(())
}

/// Returns the path of the copy. If `to` is a directory, the copy gets the name of the source file.
fn target(to: &Path, path: &str) -> PathBuf {
    match path.rsplit('/').next() {
        Some(name) if to.is_dir() => to.join(name),
        _ => to.to_owned(),
    }
}

/// Makes the copy readable by all users. A temporary file is readable only by its owner.
fn make_readable(file: &File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}

/// The progress of the copy.
struct Progress {
    bytes: u64,
    /// Whether the incomplete file is removed if the copying is interrupted.
    is_removed: bool,
    bar: ProgressBar,
    done: Arc<AtomicU64>,
}

impl Progress {
    fn new(bytes: u64, is_removed: bool) -> Self {
        Self {
            bytes,
            is_removed,
            bar: output::bar(bytes, "copying", Counted::Bytes),
            done: Arc::default(),
        }
    }

    fn set(&self, bytes: u64) {
        self.done.store(bytes, Ordering::Relaxed);
        self.bar.set_position(bytes);
    }

    fn interrupted(&self) -> String {
        interrupted(self.done.load(Ordering::Relaxed), self.bytes, self.is_removed)
    }

    /// Installs the handling of signals. The file `part` is removed in two cases: if the copy does not end
    /// within `GRACE` after a signal, and at a second signal.
    fn handle_signals(&self, format: Format, part: Option<PathBuf>) -> Result<Interrupt, Failure> {
        let signals = InterruptOptions { format, grace: GRACE, executed: "maybe" };
        let (bytes, is_removed, done) = (self.bytes, self.is_removed, Arc::clone(&self.done));
        let last = move || {
            part.map(std::fs::remove_file);
            interrupted(done.load(Ordering::Relaxed), bytes, is_removed)
        };
        Interrupt::handle(signals, || {}, last)
    }
}

fn interrupted(done: u64, bytes: u64, is_removed: bool) -> String {
    let removed = if is_removed { "; the incomplete copy is removed" } else { "" };
    format!("{done} of {bytes} bytes were copied{removed}")
}

fn fetch(
    files: &FilesClient,
    path: &str,
    progress: &Progress,
    interrupt: &Interrupt,
    made: &mut File,
    what: &dyn Fn() -> String,
) -> Result<u64, Failure> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = 0;
    loop {
        let mut out = Out::from(&mut chunk[..]);
        files.read(path, at, out.by_ref())?;
        let filled = out.filled();
        if filled == 0 {
            break;
        }
        // The failure if the call was executed, but its result cannot be written to the file.
        let unwritten = |error| Failure::Unwritten { what: what(), error };
        made.write_all(&chunk[..filled]).map_err(unwritten)?;
        at += filled as u64;
        progress.set(at);
        interrupt.check(|| progress.interrupted())?;
    }
    progress.bar.finish_and_clear();
    if at < progress.bytes {
        return Err(Failure::Refused(format!("`{path}` was truncated during the copy")));
    }
    Ok(at)
}
