//! The static directory: a hosts file that lists the machines on which servers export names.
//!
//! ```text
//! # name     where it is served
//! files      files@fs.example.org:7000
//! archive    tcp:disk@192.0.2.9:7000  udp:disk@192.0.2.9:7001
//! ```
//!
//! Each line contains a name and one or more addresses. Each address contains a machine. An address may have
//! another name than its line. If several lines have the same name, their addresses are combined. Several
//! files are searched, but only the first file that contains the name is used:
//!
//! | file | when |
//! |---|---|
//! | `$PEREGRINE_HOSTS` | if set; then no other file is read, and this file must exist |
//! | `$XDG_CONFIG_HOME/peregrine/hosts`, or `~/.config/peregrine/hosts` | if it exists |
//! | `/etc/peregrine/hosts` | if it exists |

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::Directory;
use crate::address::Address;
use crate::error::{CallError, Kind, Phase};
use crate::{limits, sys};

/// A directory that consists of hosts files, in the order in which they are searched.
///
/// ```
/// use peregrine::directory::{Directory, Hosts};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("hosts");
/// std::fs::write(&path, "files  files@fs.example.org:7000\n").unwrap();
/// let offers = Hosts::of([path]).offers("files")?;
/// assert_eq!(offers[0].to_string(), "files@fs.example.org:7000");
/// # Ok::<(), peregrine::CallError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Hosts {
    files: Vec<PathBuf>,
    /// Whether a missing file is an error.
    is_required: bool,
    /// What chose the file, for errors: ` ($PEREGRINE_HOSTS)`, or nothing.
    chosen_by: &'static str,
}

impl Hosts {
    /// Returns a directory that consists of these files. A file that does not exist is skipped.
    pub fn of(files: impl IntoIterator<Item = PathBuf>) -> Self {
        Self { files: files.into_iter().collect(), is_required: false, chosen_by: "" }
    }

    /// Returns a directory that consists of one file, which must exist.
    pub(super) fn required(file: PathBuf) -> Self {
        Self { is_required: true, ..Self::of([file]) }
    }

    /// Returns the directory that consists of the files that the environment selects. If the program has more
    /// rights than its user (set-user-id, file capabilities), the only file is `/etc/peregrine/hosts`.
    pub fn of_environment() -> Self {
        let set = sys::trusted_variable;
        if let Some(file) = set("PEREGRINE_HOSTS") {
            return Self { chosen_by: " ($PEREGRINE_HOSTS)", ..Self::required(file.into()) };
        }
        let home = || set("HOME").map(|home| PathBuf::from(home).join(".config"));
        let config = set("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home);
        let own = config.map(|config| config.join("peregrine/hosts"));
        Self::of(own.into_iter().chain([PathBuf::from("/etc/peregrine/hosts")]))
    }

    /// Reads a file. Returns `None` if there is no such file, and it need not exist.
    ///
    /// # Errors
    /// If the file cannot be read.
    fn read(&self, file: &Path) -> Result<Option<String>, CallError> {
        match read(file) {
            Ok(text) => Ok(Some(text)),
            Err(error) if !self.is_required && is_nowhere(&error) => Ok(None),
            Err(error) => {
                let what = format!("reading {}{}", file.display(), self.chosen_by);
                Err(CallError::system(Phase::Resolve, what, error))
            }
        }
    }
}

impl Directory for Hosts {
    fn offers(&self, name: &str) -> Result<Vec<Address>, CallError> {
        for file in &self.files {
            let Some(text) = self.read(file)? else { continue };
            let offers = offers_in(&text, name).map_err(|(line, error)| {
                let text = format!("{}:{line}: {}", file.display(), error.detail());
                CallError::not_executed(Kind::BadName, Phase::Resolve, text)
            })?;
            if !offers.is_empty() {
                return Ok(offers);
            }
        }
        Ok(Vec::new())
    }

    fn describe(&self) -> String {
        let files: Vec<_> = self.files.iter().map(|file| file.display().to_string()).collect();
        format!("hosts file {}", files.join(" or "))
    }

    fn names(&self) -> Result<Vec<String>, CallError> {
        let mut names = Vec::new();
        for file in &self.files {
            let text = self.read(file)?.unwrap_or_default();
            let words = text.lines().map(|line| line.split('#').next().unwrap_or(line));
            let first = words.filter_map(|line| line.split_whitespace().next());
            names.extend(first.map(str::to_owned));
        }
        names.sort();
        names.dedup();
        Ok(names)
    }
}

/// Returns whether the error means that the file does not exist, or that this user may not read it, for
/// example after `sudo`. In these cases the next file is read.
fn is_nowhere(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    matches!(error.kind(), NotFound | NotADirectory | PermissionDenied)
}

fn read(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    let most = limits::HOSTS_BYTES_MAX as u64;
    let mut text = String::new();
    if file.take(most + 1).read_to_string(&mut text)? as u64 > most {
        return Err(io::Error::other(format!("it has more than {most} bytes")));
    }
    Ok(text)
}

/// Returns the addresses that the text of a hosts file lists for a name. An error contains the number of the
/// invalid line. Lines for other names are not checked.
fn offers_in(text: &str, name: &str) -> Result<Vec<Address>, (usize, CallError)> {
    let mut offers = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or(line);
        let mut words = line.split_whitespace();
        if words.next() != Some(name) {
            continue;
        }
        let before = offers.len();
        for word in words {
            let address: Address = word.parse().map_err(|error| (number, error))?;
            if address.place().is_none() {
                let text = format!("`{word}` names no machine: write NAME@HOST or NAME@HOST:PORT");
                return Err((number, CallError::not_executed(Kind::BadName, Phase::Resolve, text)));
            }
            offers.push(address);
        }
        if offers.len() == before {
            let text = format!("no address follows `{name}`");
            return Err((number, CallError::not_executed(Kind::BadName, Phase::Resolve, text)));
        }
        if offers.len() > limits::OFFERS_MAX {
            let text = format!("more than {} addresses of `{name}`", limits::OFFERS_MAX);
            return Err((number, CallError::not_executed(Kind::BadName, Phase::Resolve, text)));
        }
    }
    Ok(offers)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# where things are
files    files@fs:7000        # all paths
archive  tcp:disk@192.0.2.9:7000 udp:192.0.2.9:7001/disk
files    tcp:old@[::1]:7
broken   tcp:disk
empty
";

    fn offers(name: &str) -> Vec<String> {
        let found = offers_in(TEXT, name).unwrap_or_else(|(_, error)| panic!("{error}"));
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_are_found_and_lines_add_up() {
        assert_eq!(offers("files"), ["files@fs:7000", "tcp:old@[::1]:7"]);
        assert_eq!(offers("archive"), ["tcp:disk@192.0.2.9:7000", "udp:disk@192.0.2.9:7001"]);
        assert!(offers("file").is_empty());
    }

    #[test]
    fn names_of_all_files_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        let files = [dir.path().join("own"), dir.path().join("none"), dir.path().join("all")];
        std::fs::write(&files[0], "photos photos@fs:7000\n").unwrap();
        std::fs::write(&files[2], TEXT).unwrap();
        let names = Hosts::of(files).names().unwrap();
        assert_eq!(names, ["archive", "broken", "empty", "files", "photos"]);
        assert!(Hosts::required(dir.path().join("none")).names().is_err());
    }

    #[test]
    fn a_wrong_line_is_pointed_at_and_harms_no_other_name() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hosts");
        std::fs::write(&file, TEXT).unwrap();
        let hosts = Hosts::of([dir.path().join("none"), file]);
        assert_eq!(hosts.offers("files").unwrap().len(), 2);
        for (name, what) in
            [("broken", "hosts:5: `tcp:disk` names no machine"), ("empty", "hosts:6: no address")]
        {
            let error = hosts.offers(name).unwrap_err();
            assert_eq!((error.kind(), error.phase()), (Kind::BadName, Phase::Resolve));
            assert!(error.to_string().contains(what), "{error}");
        }
        let many = "files a@b:1 ".to_owned() + &"a@b:1 ".repeat(limits::OFFERS_MAX);
        assert!(offers_in(&many, "files").is_err());
    }

    #[test]
    fn a_file_that_the_environment_names_must_be_there() {
        let dir = tempfile::tempdir().unwrap();
        let missing = Hosts::of([dir.path().join("hosts")]);
        assert!(missing.offers("files").unwrap().is_empty());
        let chosen_by = " ($PEREGRINE_HOSTS)";
        let required = Hosts { is_required: true, chosen_by, ..missing };
        let error = required.offers("files").unwrap_err();
        assert!(error.to_string().contains("hosts ($PEREGRINE_HOSTS)"), "{error}");
    }

    #[test]
    fn a_file_without_end_is_not_read_to_its_end() {
        let hosts = Hosts::of([PathBuf::from("/dev/zero")]);
        let error = hosts.offers("files").unwrap_err();
        assert!(error.to_string().contains("more than"), "{error}");
    }
}
