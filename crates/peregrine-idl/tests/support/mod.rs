//! The interface files that several test programs read: those of this crate, and those that packages install.

use std::fs;
use std::path::{Path, PathBuf};

use peregrine_idl::Diagnostics;
use peregrine_idl::courier::{self, Dependency, Source, import_courier};
use peregrine_idl::onc::{self, Onc};

/// Returns the interface files of ONC RPC on this machine. The packages `rpcsvc-proto` and `libtirpc-dev` of
/// Debian install them.
pub(crate) fn installed() -> Vec<PathBuf> {
    let directories = ["rpcsvc", "tirpc/rpcsvc", "tirpc/rpc", "rpc"];
    let files =
        directories.iter().flat_map(|one| files_in(&Path::new("/usr/include").join(one), "x"));
    let files: Vec<_> = files.collect();
    if files.is_empty() {
        eprintln!(
            "skipped: no interface files in /usr/include; the packages rpcsvc-proto and \
             libtirpc-dev install them"
        );
    }
    files
}

/// Returns the files in a directory whose names end in `.` and the extension, in order.
pub(crate) fn files_in(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let files = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let mut files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|end| end == extension)).collect();
    files.sort();
    files
}

/// Returns a directory of the tests of this crate.
pub(crate) fn tests(directory: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(directory)
}

/// Imports a file of ONC RPC. Files that it includes are read from the directory of `path`.
pub(crate) fn onc(text: &str, path: &Path) -> Result<onc::Imported, Diagnostics> {
    let mut onc = Onc::new();
    let directory = path.parent().unwrap().to_owned();
    onc.include(move |name| fs::read_to_string(directory.join(name)));
    onc.import(text, path.file_name().unwrap().to_str().unwrap())
}

/// Returns the text of a Courier program of the tests.
pub(crate) fn stored(name: &str, version: u16) -> Option<Source> {
    let file = format!("{name}{version}.cr");
    let text = fs::read_to_string(tests("courier").join(&file)).ok()?;
    Some(Source { name: file, text })
}

/// Imports a Courier program. Programs that it depends upon are those of the tests.
pub(crate) fn courier(text: &str, name: &str) -> Result<courier::Imported, Diagnostics> {
    import_courier(text, name, &mut |one: &Dependency| stored(&one.name.text, one.numbers.version))
}
