//! `copy`: fetches one file from a server of `Files`, wherever it is.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use peregrine::{Address, Out};
use serde_json::json;

use crate::args::{Copy, Format};
use crate::files::{CHUNK_BYTES, Files as _, FilesClient};
use crate::output::{self, BOLD, During, Failure};

/// A call that takes longer than this has no server that works.
const LIMIT: Duration = Duration::from_secs(30);

/// Copies one file.
pub(crate) fn run(copy: &Copy, format: Format) -> Result<(), Failure> {
    let (address, path) = Address::split(&copy.from)?;
    let path = path.filter(|path| !path.is_empty()).ok_or_else(|| {
        let what = format!("`{}` names no file", copy.from);
        Failure::local(what, "write the file's path behind the address: ADDRESS/PATH")
    })?;
    let target = target(&copy.to, path);
    let files = FilesClient::bind(&address.to_string())?.with_timeout(LIMIT);
    let begun = Instant::now();
    let bytes = files.size(path)?;
    let what = || format!("writing {}", target.display());
    // The copy has its name when it is whole.
    let directory = target.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    let mut made = tempfile::NamedTempFile::new_in(directory).during(what())?;
    let copied = fetch(&files, path, bytes, made.as_file_mut(), &what)?;
    make_readable(made.as_file()).during(what())?;
    made.persist(&target).map_err(|error| error.error).during(what())?;
    let seconds = begun.elapsed().as_secs_f64();
    let per_s = copied as f64 / seconds.max(1e-9);
    let way = files.binding().path().to_string();
    match format {
        Format::Json => output::print(json!({
            "from": copy.from,
            "to": target.display().to_string(),
            "path": way,
            "bytes": copied,
            "seconds": seconds,
            "bytes_per_s": per_s,
        })),
        Format::Human => output::print(format_args!(
            "{copied} bytes of {BOLD}{}{BOLD:#} to {BOLD}{}{BOLD:#}, path {way}: {:.2} GB/s",
            copy.from,
            target.display(),
            per_s / 1e9
        )),
    }
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

fn fetch(
    files: &FilesClient,
    path: &str,
    bytes: u64,
    made: &mut File,
    what: &dyn Fn() -> String,
) -> Result<u64, Failure> {
    let style =
        "  {msg} {wide_bar} {binary_bytes:>10} of {binary_total_bytes} {binary_bytes_per_sec}";
    let style =
        ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(bytes).with_style(style).with_message("copying");
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = 0;
    loop {
        let mut out = Out::from(&mut chunk[..]);
        files.read(path, at, out.by_ref())?;
        let filled = out.filled();
        if filled == 0 {
            break;
        }
        made.write_all(&chunk[..filled]).during(what())?;
        at += filled as u64;
        bar.set_position(at);
    }
    bar.finish_and_clear();
    if at < bytes {
        return Err(Failure::Said(format!("`{path}` has become shorter")));
    }
    Ok(at)
}
