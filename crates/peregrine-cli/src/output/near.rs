//! Suggestions: existing names, paths and files that are similar to the wrong one that a user wrote.

use core::fmt::Display;
use std::io;
use std::path::Path;

use peregrine::Address;

use crate::security::bind_options;

use super::failure::{Failure, OrFail as _};

/// The maximum number of suggestions for one word.
const SUGGESTIONS_MAX: usize = 3;

/// Returns the candidates that are similar to `word`, most similar first, without `word` itself.
pub(crate) fn closest(word: &str, candidates: impl IntoIterator<Item = String>) -> Vec<String> {
    let within = (word.chars().count() / 3).max(2);
    let mut near: Vec<(usize, String)> = candidates
        .into_iter()
        .filter(|candidate| candidate != word)
        // The length is limited, because a hostile server can return texts that are longer than any name.
        .filter(|candidate| candidate.len() <= 256)
        // A common letter is required, because the distance between any two short words is small.
        .filter(|candidate| word.chars().any(|letter| candidate.contains(letter)))
        .map(|candidate| (distance(word, &candidate), candidate))
        .filter(|(distance, _)| *distance <= within)
        .collect();
    near.sort();
    near.dedup();
    near.into_iter().take(SUGGESTIONS_MAX).map(|(_, candidate)| candidate).collect()
}

/// Reads a file by `read`. If there is no such file, suggests files with similar names. `what` says what
/// failed, such as `cannot read the file`.
pub(crate) fn read_or_suggest<T>(
    path: &Path,
    what: impl Display,
    read: impl FnOnce(&Path) -> io::Result<T>,
) -> Result<T, Failure> {
    read(path).or_fail(what).map_err(|failure| match path.exists() {
        true => failure,
        false => failure.suggest(files(path)),
    })
}

/// Returns names that exist and are similar to the name in an address. If the address has a host, asks the
/// server at that host for its exports, and returns complete addresses. If the address has no host, returns
/// names of exports of this machine.
pub(super) fn names(address: &str) -> Vec<String> {
    let Ok(parsed) = address.parse::<Address>() else { return Vec::new() };
    if parsed.place().is_none() {
        let entries = peregrine::directory::list().into_iter();
        return closest(
            parsed.name(),
            entries.filter(|entry| entry.alive != Some(false)).map(|entry| entry.name),
        );
    }
    let exports = peregrine::exports_with(address, &bind_options()).unwrap_or_default();
    let near = closest(parsed.name(), exports.into_iter().map(|one| one.name));
    near.into_iter().filter_map(|name| renamed(address, &parsed, &name)).collect()
}

/// Replaces the name in the text of an address by another name.
fn renamed(text: &str, address: &Address, name: &str) -> Option<String> {
    let places = text.match_indices(address.name()).map(|(at, _)| at);
    let mut whole = places.map(|at| {
        let (before, rest) = text.split_at(at);
        format!("{before}{name}{}", &rest[address.name().len()..])
    });
    // The host can contain the old name, too. So the result is parsed to check that only the name has
    // changed.
    whole.find(|whole| {
        let parsed = whole.parse::<Address>();
        parsed.is_ok_and(|one| one.name() == name && one.place() == address.place())
    })
}

/// Returns variants of an address whose path is unknown. In each variant, the unknown path is replaced by an
/// existing path with a similar name.
pub(super) fn paths(address: &str) -> Vec<String> {
    let Some((path, rest)) = address.split_once(':') else { return Vec::new() };
    let paths = ["local", "eth", "udp", "tcp"];
    if paths.contains(&path) || path.contains(['@', '/', '[']) {
        return Vec::new();
    }
    let near = match path {
        "shm" | "ipc" | "unix" => vec!["local".to_owned()],
        "ethernet" => vec!["eth".to_owned()],
        _ => closest(path, paths.map(str::to_owned)),
    };
    let whole = near.into_iter().map(|path| format!("{path}:{rest}"));
    whole.filter(|address| address.parse::<Address>().is_ok()).collect()
}

/// Returns paths of files whose names are similar to the name of a missing file in the same directory.
pub(crate) fn files(path: &Path) -> Vec<String> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Vec::new() };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let Ok(beside) = std::fs::read_dir(parent.unwrap_or(Path::new("."))) else {
        return Vec::new();
    };
    // The number of names is limited, because a directory can be very large.
    let names = beside.take(10_000).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let whole = |name: String| match parent {
        Some(parent) => parent.join(name).display().to_string(),
        None => name,
    };
    closest(name, names).into_iter().map(whole).collect()
}

/// Returns the Levenshtein distance of two words.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let exchanged = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = exchanged.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_is_levenshtein() {
        for (a, b, steps) in [("", "abc", 3), ("files", "files", 0), ("fiels", "files", 2)] {
            assert_eq!(distance(a, b), steps);
            assert_eq!(distance(b, a), steps);
        }
    }

    #[test]
    fn most_similar_names_come_first() {
        let names = ["files", "field", "miles", "archive", "fiels"].map(str::to_owned);
        assert_eq!(closest("fiels", names.clone()), ["field", "files"]);
        assert!(closest("xy", ["ab".to_owned()]).is_empty());
        assert!(closest("", names).is_empty());
    }

    #[test]
    fn renamed_address_keeps_its_host() {
        for (text, name, whole) in [
            ("tcp:fiels@fiels:7", "files", "tcp:files@fiels:7"),
            ("udp:fiels:7/fiels", "files", "udp:fiels:7/files"),
            ("p@tcp:7", "q", "q@tcp:7"),
        ] {
            let address = text.parse().unwrap();
            assert_eq!(renamed(text, &address, name).as_deref(), Some(whole));
        }
        assert_eq!(renamed("a@b:7", &"a@b:7".parse().unwrap(), "no name"), None);
    }

    #[test]
    fn unknown_path_gets_similar_paths() {
        assert_eq!(paths("udo:files"), ["udp:files"]);
        assert_eq!(paths("shm:files"), ["local:files"]);
        assert_eq!(paths("upd:files@host:7"), ["udp:files@host:7"]);
        for address in ["udp:files", "files", "host:7000/files", "a@b:7", "quite-other:files"] {
            assert!(paths(address).is_empty(), "{address}");
        }
    }

    #[test]
    fn missing_file_gets_similar_files() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("archive"), "").unwrap();
        let near = files(&dir.path().join("archvie"));
        assert_eq!(near, [dir.path().join("archive").display().to_string()]);
        assert!(files(&dir.path().join("nowhere/archvie")).is_empty());
    }
}
