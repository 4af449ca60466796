//! `copy`: fetches one file from a server of `Files`, wherever it is.

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
use crate::interrupt::{Interrupt, Terms};
use crate::output::{self, BOLD, Counted, During, Failure};

/// A call that takes longer than this has no server that works.
const LIMIT: Duration = Duration::from_secs(30);
/// How long a chunk has to come to its end when the copy is interrupted.
const GRACE: Duration = Duration::from_millis(200);

/// Copies one file.
pub(crate) fn run(copy: &Copy, format: Format) -> Result<(), Failure> {
    let (address, path) = Address::split(&copy.from)?;
    let path = path.filter(|path| !path.is_empty()).ok_or_else(|| {
        let what = format!("`{}` names no file", copy.from);
        Failure::local(what, "write the file's path behind the address: ADDRESS/PATH")
    })?;
    let target = target(&copy.to, path);
    // What is no file, a pipe or a device for one, is written to, and never replaced.
    let in_place = target.symlink_metadata().is_ok_and(|about| !about.is_file());
    let files = FilesClient::bind(&address.to_string())?.with_timeout(LIMIT);
    let begun = Instant::now();
    let bytes = files.size(path)?;
    let what = || format!("writing {}", target.display());
    let copied = if in_place {
        let mut to =
            File::options().write(true).create(true).truncate(true).open(&target).during(what())?;
        let progress = Progress::new(bytes, false);
        let interrupt = progress.mind(format, None)?;
        fetch(&files, path, &progress, &interrupt, &mut to, &what)?
    } else {
        // The copy has its name when it is whole.
        let directory = target.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        let mut made = tempfile::NamedTempFile::new_in(directory).during(what())?;
        let progress = Progress::new(bytes, true);
        let interrupt = progress.mind(format, Some(made.path().to_owned()))?;
        let copied = fetch(&files, path, &progress, &interrupt, made.as_file_mut(), &what)?;
        make_readable(made.as_file()).during(what())?;
        interrupt.check(|| progress.interrupted())?;
        interrupt.leave();
        made.persist(&target).map_err(|error| error.error).during(what())?;
        copied
    };
    let took = begun.elapsed();
    let per_s = copied as f64 / took.as_secs_f64().max(1e-9);
    let way = files.binding().path().to_string();
    if format.is_json() {
        return output::print(json!({
            "from": copy.from,
            "to": target.display().to_string(),
            "path": way,
            "bytes": copied,
            "seconds": took.as_secs_f64(),
            "bytes_per_s": per_s,
            "took_ns": output::whole_ns(took),
        }));
    }
    let said = format!(
        "{copied} bytes of {BOLD}{}{BOLD:#} to {BOLD}{}{BOLD:#}, path {way}: {:.2} GB/s",
        copy.from,
        target.display(),
        per_s / 1e9
    );
    if !in_place {
        return output::say(said);
    }
    // Standard output may be what was written to.
    output::tell(said);
    Ok(())
}

/// Where the copy goes: in a directory it has the file's own name.
fn target(to: &Path, path: &str) -> PathBuf {
    match path.rsplit('/').next() {
        Some(name) if to.is_dir() => to.join(name),
        _ => to.to_owned(),
    }
}

/// A temporary file is its owner's alone; a copy is as any new file.
fn make_readable(file: &File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}

/// How far the copy is, for who watches.
struct Progress {
    bytes: u64,
    /// Whether a copy that is interrupted goes.
    goes: bool,
    bar: ProgressBar,
    done: Arc<AtomicU64>,
}

impl Progress {
    fn new(bytes: u64, goes: bool) -> Self {
        Self {
            bytes,
            goes,
            bar: output::bar(bytes, "copying", Counted::Bytes),
            done: Arc::default(),
        }
    }

    fn set(&self, bytes: u64) {
        self.done.store(bytes, Ordering::Relaxed);
        self.bar.set_position(bytes);
    }

    fn interrupted(&self) -> String {
        interrupted(self.done.load(Ordering::Relaxed), self.bytes, self.goes)
    }

    /// Minds signals: what was begun at `part` goes, if the copy does not end by itself.
    fn mind(&self, format: Format, part: Option<PathBuf>) -> Result<Interrupt, Failure> {
        let terms = Terms { format, grace: GRACE, executed: "maybe" };
        let (bytes, goes, done) = (self.bytes, self.goes, Arc::clone(&self.done));
        let last = move || {
            part.map(std::fs::remove_file);
            interrupted(done.load(Ordering::Relaxed), bytes, goes)
        };
        Interrupt::mind(terms, || {}, last)
    }
}

fn interrupted(done: u64, bytes: u64, goes: bool) -> String {
    let gone = if goes { ", and are removed again" } else { "" };
    format!("{done} of {bytes} bytes were copied{gone}")
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
        // The server has run what was called.
        let unwritten = |error| Failure::Unwritten { what: what(), error };
        made.write_all(&chunk[..filled]).map_err(unwritten)?;
        at += filled as u64;
        progress.set(at);
        interrupt.check(|| progress.interrupted())?;
    }
    progress.bar.finish_and_clear();
    if at < progress.bytes {
        return Err(Failure::Said(format!("`{path}` has become shorter")));
    }
    Ok(at)
}
