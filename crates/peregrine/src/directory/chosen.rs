//! Which directory a program uses: `$PEREGRINE_DIRECTORY`, or a text of the same form.
//!
//! | text | directory |
//! |---|---|
//! | `hosts:PATH` | the [hosts file](super::Hosts) at this path |
//! | `file:PATH` | the [tree](super::Tree) of files at this path (feature `json`) |
//! | `SCHEME:`... | a directory of another crate, which [`add_scheme`] made known |

use std::ffi::OsString;
use std::sync::{Arc, OnceLock, Weak};

use super::{Directory, Hosts};
use crate::error::{CallError, Kind, Phase};
use crate::limits;
use crate::sync::{Mutex, Rank};
use crate::sys::{self, PerProcess};

/// Opens a directory. The argument is the text after `SCHEME:`.
pub type OpenDirectory = fn(&str) -> Result<Arc<dyn Directory>, CallError>;

/// The environment variable that chooses the directory of a program.
const VARIABLE: &str = "PEREGRINE_DIRECTORY";

/// The schemes of this crate.
const OWN: [&str; 2] = ["file", "hosts"];

/// The schemes of other crates. They are only added, and without a lock, so that a forked child finds them.
static SCHEMES: [OnceLock<(&str, OpenDirectory)>; limits::SCHEMES_MAX] =
    [const { OnceLock::new() }; limits::SCHEMES_MAX];

/// The directories that this process has opened. A forked child opens its own.
static OPENED: PerProcess<Locked> = PerProcess::new();

/// The directories that a process has opened, with their texts.
#[derive(Default)]
struct Opened {
    all: Vec<(String, Weak<dyn Directory>)>,
    /// The directory that the environment selected last. It stays open.
    of_environment: Option<Arc<dyn Directory>>,
}

struct Locked(Mutex<Opened>);

impl Default for Locked {
    fn default() -> Self {
        Self(Mutex::ranked(Rank::Directories, Opened::default()))
    }
}

/// Makes a kind of directory known, so that [`open`] and `$PEREGRINE_DIRECTORY` find it by its scheme. A
/// program calls this before it binds or exports. Returns false if another directory has this scheme, or if
/// there are [`limits::SCHEMES_MAX`] already.
///
/// ```
/// use std::sync::Arc;
///
/// use peregrine::directory::{self, Directory};
/// use peregrine::{Address, CallError};
///
/// /// All names are served by one machine.
/// #[derive(Debug)]
/// struct Central(String);
///
/// impl Directory for Central {
///     fn offers(&self, name: &str) -> Result<Vec<Address>, CallError> {
///         Ok(vec![format!("{name}@{}", self.0).parse()?])
///     }
///
///     fn describe(&self) -> String {
///         format!("central machine {}", self.0)
///     }
/// }
///
/// assert!(directory::add_scheme("central", |host| Ok(Arc::new(Central(host.to_owned())))));
/// let central = directory::open("central:fs.example.org")?;
/// assert_eq!(central.describe(), "central machine fs.example.org");
/// # Ok::<(), CallError>(())
/// ```
pub fn add_scheme(scheme: &'static str, open: OpenDirectory) -> bool {
    if OWN.contains(&scheme) {
        return false;
    }
    SCHEMES
        .iter()
        .map(|place| place.get_or_init(|| (scheme, open)))
        .find(|known| known.0 == scheme)
        .is_some_and(|known| core::ptr::fn_addr_eq(known.1, open))
}

/// Opens the directory that a text describes. While a directory is open, the same text returns the same
/// directory, so that a process has one connection to it.
///
/// ```
/// use peregrine::directory::{self, Directory};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("hosts");
/// std::fs::write(&path, "files  files@fs.example.org:7000\n").unwrap();
/// let hosts = directory::open(&format!("hosts:{}", path.display()))?;
/// assert_eq!(hosts.offers("files")?[0].to_string(), "files@fs.example.org:7000");
/// # Ok::<(), peregrine::CallError>(())
/// ```
///
/// # Errors
/// If no directory has this scheme, or the rest of the text is not valid for it.
pub fn open(text: &str) -> Result<Arc<dyn Directory>, CallError> {
    let known = |opened: &mut Opened| {
        opened.all.retain(|one| one.1.strong_count() > 0);
        opened.all.iter().find(|one| one.0 == text).and_then(|one| one.1.upgrade())
    };
    let opened = &OPENED.own().0;
    if let Some(known) = known(&mut opened.lock()) {
        return Ok(known);
    }
    // No lock is held, because this may take long.
    let new = open_new(text)?;
    let mut opened = opened.lock();
    // Another thread may have opened it meanwhile.
    if let Some(known) = known(&mut opened) {
        drop(opened);
        return Ok(known);
    }
    opened.all.push((text.to_owned(), Arc::downgrade(&new)));
    Ok(new)
}

fn open_new(text: &str) -> Result<Arc<dyn Directory>, CallError> {
    let wrong = |text| CallError::not_executed(Kind::BadName, Phase::Resolve, text);
    let (scheme, rest) =
        text.split_once(':').filter(|(_, rest)| !rest.is_empty()).ok_or_else(|| {
            wrong(format!("`{}` does not name a directory: write SCHEME:WHERE", shown(text)))
        })?;
    let added = || SCHEMES.iter().map_while(OnceLock::get);
    match scheme {
        "hosts" => return Ok(Arc::new(Hosts::required(rest.into()))),
        #[cfg(feature = "json")]
        "file" => return Ok(Arc::new(super::Tree::at(rest))),
        _ => {}
    }
    if let Some((_, open)) = added().find(|known| known.0 == scheme) {
        return open(rest);
    }
    let own = if cfg!(feature = "json") { "file, hosts" } else { "hosts" };
    let known: String = added().map(|known| format!(", {}", known.0)).collect();
    let text = format!("`{}`: the directories of this program are {own}{known}", shown(text));
    Err(wrong(text).with_advice(NO_SCHEME))
}

/// Returns a text of a directory without what is in front of its hosts, where somebody may have written
/// a password.
fn shown(text: &str) -> String {
    match (text.split_once("//"), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, hosts))) => format!("{scheme}//...@{hosts}"),
        _ => text.to_owned(),
    }
}

/// The advice for a directory that this program does not know.
const NO_SCHEME: &str = "write one of these in front of the colon, or use a program that was built with this \
     kind of directory, such as `peregrine`";

/// Returns the directory that the environment selects: that of `$PEREGRINE_DIRECTORY`, or else the [hosts
/// files](Hosts::of_environment). A program that has more rights than its user ignores the variable.
///
/// # Errors
/// As [`open`].
pub fn of_environment() -> Result<Arc<dyn Directory>, CallError> {
    let Some(text) = sys::trusted_variable(VARIABLE) else {
        return Ok(Arc::new(Hosts::of_environment()));
    };
    let named = |error: CallError| {
        let text = format!("${VARIABLE}: {}", error.detail());
        CallError::not_executed(error.kind(), error.phase(), text).advised_like(&error)
    };
    let found = open(&text.to_string_lossy()).map_err(named)?;
    let before = OPENED.own().0.lock().of_environment.replace(Arc::clone(&found));
    // The last reference to a directory may end its threads, so it is dropped without the lock.
    drop(before);
    Ok(found)
}

/// Returns a variable of the environment, for the settings of a directory. `None`: it is not set, or is
/// empty, or this program has more rights than the user who chose its environment (set-user-id, file
/// capabilities).
pub fn trusted_variable(name: &str) -> Option<OsString> {
    sys::trusted_variable(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_text_opens_one_directory() {
        let text = "hosts:/nonexistent/hosts-of-chosen";
        let (one, other) = (open(text).unwrap(), open(text).unwrap());
        assert!(Arc::ptr_eq(&one, &other));
        drop(other);
        let weak = Arc::downgrade(&one);
        drop(one);
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn unknown_directories_are_refused_with_the_known_ones() {
        for (text, what) in [
            ("files", "`files` does not name a directory"),
            ("hosts:", "`hosts:` does not name a directory"),
            ("nis:domain", "`nis:domain`: the directories of this program are "),
            ("nis://me:secret@host", "`nis://...@host`: the directories of this program are "),
        ] {
            let error = open(text).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
            assert_eq!((error.kind(), error.phase()), (Kind::BadName, Phase::Resolve));
            assert!(error.to_string().contains(what), "{error}");
        }
    }

    #[test]
    fn required_hosts_file_must_exist() {
        let hosts = open("hosts:/nonexistent/hosts").unwrap();
        assert_eq!(hosts.offers("files").unwrap_err().kind(), Kind::System);
    }
}
