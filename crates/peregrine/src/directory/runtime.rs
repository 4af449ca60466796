//! The runtime directories of this machine. Servers publish names in them, and clients search them for names.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::error::{CallError, Kind, Phase};
use crate::sys;

/// Returns the runtime directories, in the order in which clients search them.
pub fn search_path() -> Vec<PathBuf> {
    let mut path = chosen();
    if let Some(own) = own_directory()
        && if path.is_empty() { fault_of(&own).is_none() } else { is_safe(&own) }
    {
        path.push(own);
    }
    path.push(PathBuf::from("/run/peregrine"));
    path
}

/// Returns the directories that environment variables select.
fn chosen() -> Vec<PathBuf> {
    let dir = sys::trusted_variable("PEREGRINE_DIR").map(PathBuf::from);
    let user = sys::trusted_variable("XDG_RUNTIME_DIR");
    dir.into_iter().chain(user.map(|user| PathBuf::from(user).join("peregrine"))).collect()
}

/// Returns the user's own directory. Returns `None` for root, which uses `/run/peregrine`. A process
/// publishes names in this directory if no environment variable selects one, as in containers, in cron jobs
/// and after `su`.
fn own_directory() -> Option<PathBuf> {
    let user = rustix::process::geteuid();
    (!user.is_root()).then(|| PathBuf::from(format!("/tmp/peregrine-{}", user.as_raw())))
}

/// Returns the directory in which this process publishes names. This is the first directory that an
/// environment variable selects. Without such a variable, it is `/run/peregrine` for root. For another user,
/// it is the user's own directory, which is created if necessary.
///
/// # Errors
/// Fails if the user's own directory is not safe, because another user created it or can change it.
pub(super) fn export_directory() -> Result<PathBuf, CallError> {
    if let Some(first) = chosen().into_iter().next() {
        return Ok(first);
    }
    let Some(own) = own_directory() else { return Ok(PathBuf::from("/run/peregrine")) };
    // Other users can write to /tmp. But they can neither rename nor remove a directory of this user in it.
    // So no other user can replace the directory after the check below.
    let created = fs::DirBuilder::new().mode(0o700).create(&own);
    if is_safe(&own) {
        return Ok(own);
    }
    let dir = own.display();
    let Some(fault) = fault_of(&own) else {
        // The directory cannot be created, or it was the directory of another user, who has removed it.
        let error = created.err().unwrap_or_else(|| io::ErrorKind::NotFound.into());
        return Err(CallError::system(Phase::Export, format!("creating {dir}"), error));
    };
    let text = format!("cannot export in {dir}: {fault}; set PEREGRINE_DIR to another directory");
    Err(CallError::not_executed(Kind::Denied, Phase::Export, text))
}

/// Returns whether this process may look for names in a directory of the [search path](search_path).
///
/// The user's own directory may not exist when the search path is made. Another user could create it before a
/// client connects, and serve in it. So it must be checked again. Once it exists and is safe, no other user
/// can replace it.
pub(super) fn may_search(dir: &Path) -> bool {
    may_search_among(dir, own_directory().as_deref(), chosen)
}

/// As [`may_search`], for this directory of the user. `chosen` returns the directories that environment
/// variables select, which need not be safe.
fn may_search_among(dir: &Path, own: Option<&Path>, chosen: impl FnOnce() -> Vec<PathBuf>) -> bool {
    own != Some(dir) || chosen().iter().any(|one| one == dir) || is_safe(dir)
}

/// Returns why clients do not search the user's own directory. Returns `None` if clients search the
/// directory, or if it does not exist.
pub(super) fn unsafe_directory() -> Option<String> {
    let own = own_directory()?;
    let fault = fault_of(&own)?;
    Some(format!("{} is not searched: {fault}", own.display()))
}

fn is_safe(dir: &Path) -> bool {
    dir.symlink_metadata().is_ok() && fault_of(dir).is_none()
}

/// Returns why a directory is not safe, or `None` if it is safe or does not exist. Any user could have
/// created this directory.
fn fault_of(dir: &Path) -> Option<String> {
    let about = dir.symlink_metadata().ok()?;
    let (user, mode) = (about.uid(), about.mode() & 0o7777);
    if !about.is_dir() {
        Some("it is not a directory".to_owned())
    } else if user != rustix::process::geteuid().as_raw() {
        Some(format!("it belongs to user {user}"))
    } else if mode & 0o022 != 0 {
        Some(format!("other users may write to it (mode {mode:o})"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_directory_is_trusted_only_if_nobody_else_can_change_it() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("own");
        assert!(
            fault_of(&own).is_none() && !is_safe(&own),
            "a missing directory is neither faulty nor safe"
        );
        fs::create_dir(&own).unwrap();
        for (mode, safe) in [(0o700, true), (0o755, true), (0o770, false), (0o1777, false)] {
            fs::set_permissions(&own, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_safe(&own), safe, "{mode:o}");
            let fault = fault_of(&own).unwrap_or_default();
            assert_eq!(fault.contains("other users may write"), !safe, "{fault}");
        }
        fs::set_permissions(&own, fs::Permissions::from_mode(0o700)).unwrap();
        let link = dir.path().join("link");
        symlink(&own, &link).unwrap();
        assert!(!is_safe(&link), "a symbolic link is not safe: it may lead to any directory");
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(!is_safe(&file));
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&own, Some(61_003), None).unwrap();
            assert_eq!(fault_of(&own).unwrap(), "it belongs to user 61003");
        }
    }

    #[test]
    fn own_directory_is_searched_only_once_it_exists_and_is_safe() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("own");
        let may = |chosen: &[PathBuf]| may_search_among(&own, Some(&own), || chosen.to_vec());
        assert!(!may(&[]), "another user could create the directory after this check");
        assert!(may(&[dir.path().to_owned(), own.clone()]), "the environment selects it");
        assert!(may_search_among(dir.path(), Some(&own), Vec::new), "another directory");
        assert!(may_search_among(&own, None, Vec::new), "root has no directory of its own");
        fs::create_dir(&own).unwrap();
        for (mode, safe) in [(0o700, true), (0o777, false)] {
            fs::set_permissions(&own, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(may(&[]), safe, "{mode:o}");
        }
    }
}
