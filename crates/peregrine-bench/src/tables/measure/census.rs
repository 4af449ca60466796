//! Counts the calls of a program that reads a tree of files through a file service, by the number of bytes
//! that they carry. Also counts the packets that this machine has sent.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use peregrine::{BindOptions, Out, Wait, interface};

use super::super::measured::{Measured, Sizes};
use super::marshalled;
use crate::Progress;
use crate::peer::Peer;
use crate::subject::Failure;

/// The largest number of bytes that a call reads.
const BLOCK: usize = 4096;

/// A file service. A path that cannot be read is empty.
#[interface]
pub(crate) trait Files {
    /// Returns the names in a directory, each with a 0 after it. The names of directories end with `/`.
    fn list(
        &self,
        #[max_len(4096)] path: &str,
        #[max_len(65536)] names: Out<'_, u8>,
    ) -> peregrine::Result<()>;
    /// Returns the size of a file.
    fn size(&self, #[max_len(4096)] path: &str) -> peregrine::Result<u64>;
    /// Reads from a file.
    fn read(
        &self,
        #[max_len(4096)] path: &str,
        at: u64,
        #[max_len(4096)] into: Out<'_, u8>,
    ) -> peregrine::Result<()>;
}

/// The files of this machine.
#[derive(Debug)]
pub(crate) struct Tree;

impl Files for Tree {
    fn list(&self, path: &str, mut names: Out<'_, u8>) -> peregrine::Result<()> {
        let mut all = Vec::new();
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            let Ok(name) = entry.file_name().into_string() else { continue };
            if kind.is_dir() || kind.is_file() {
                let end = if kind.is_dir() { "/\0" } else { "\0" };
                let fits = all.len() + name.len() + end.len() <= names.capacity();
                if fits {
                    all.extend(name.bytes().chain(end.bytes()));
                }
            }
        }
        // `put` does not fail, because the names fit.
        let _ = names.put(&all);
        Ok(())
    }

    fn size(&self, path: &str) -> peregrine::Result<u64> {
        Ok(fs::metadata(path).map_or(0, |file| file.size()))
    }

    fn read(&self, path: &str, at: u64, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        let mut bytes = vec![0; into.capacity().min(BLOCK)];
        let read = fs::File::open(path).and_then(|file| file.read_at(&mut bytes, at)).unwrap_or(0);
        // `put` does not fail, because the length is limited to the capacity of the buffer.
        let _ = into.put(&bytes[..read]);
        Ok(())
    }
}

/// The tree that the program reads. Every machine has it.
pub(crate) const ROOT: &str = "/etc";
/// The largest number of calls of the program.
const CALLS_MAX: u64 = 20_000;

/// Reads all files of a tree, as a search for a word does. Counts the calls by the bytes that they carry.
fn read_all(client: &FilesClient) -> Result<Sizes, Failure> {
    let mut sizes = Sizes::new();
    let mut count = |bytes: usize| *sizes.entry(bytes as u64).or_default() += 1;
    let mut calls = 0;
    let mut todo = vec![PathBuf::from(ROOT)];
    let mut names = vec![0; 65_536];
    let mut block = vec![0; BLOCK];
    while let Some(directory) = todo.pop() {
        let path = text(&directory);
        let mut out = Out::from(&mut names[..]);
        client.list(path, out.by_ref())?;
        let listed = out.filled();
        count(path.len() + listed);
        let found = String::from_utf8_lossy(&names[..listed]).into_owned();
        for name in found.split_terminator('\0') {
            let place = directory.join(name.trim_end_matches('/'));
            if name.ends_with('/') {
                todo.push(place);
                continue;
            }
            let path = text(&place);
            let size = client.size(path)?;
            count(path.len() + size_of::<u64>());
            let mut at = 0;
            while at < size {
                let mut out = Out::from(&mut block[..]);
                client.read(path, at, out.by_ref())?;
                let read = out.filled();
                count(path.len() + size_of::<u64>() + read);
                if read == 0 {
                    break;
                }
                at += read as u64;
                calls += 1;
            }
            calls += 1;
            if calls > CALLS_MAX {
                return Ok(sizes);
            }
        }
    }
    Ok(sizes)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}

/// Counts the calls, and the packets of this machine.
pub(crate) fn measure(into: &mut Measured, progress: &Progress) -> Result<(), Failure> {
    progress.show("tables: census");
    let peer = Peer::start(None)?;
    let name = peer.named(marshalled::FILES);
    let client = FilesClient::bind_with(&name, &BindOptions::default().wait(Wait::Adaptive))?;
    into.sizes = read_all(&client)?;
    // The namespace of the first process of this machine has the interfaces to other machines.
    let packets = fs::read_to_string("/proc/1/net/dev")?;
    let (own, other) = sent(&packets);
    into.set("packets/own".into(), own as f64);
    into.set("packets/other".into(), other as f64);
    Ok(())
}

/// Returns the number of packets that were sent over loopback, and over all other interfaces.
fn sent(text: &str) -> (u64, u64) {
    let mut sent = (0, 0);
    for (name, numbers) in text.lines().filter_map(|line| line.split_once(':')) {
        let packets = numbers.split_whitespace().nth(9).and_then(|n| n.parse::<u64>().ok());
        let side = if name.trim() == "lo" { &mut sent.0 } else { &mut sent.1 };
        *side += packets.unwrap_or(0);
    }
    sent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sent_packets_are_counted_by_interface() {
        let text = "Inter-|   Receive                   |  Transmit\n face |bytes packets\n\
            \x20   lo: 9 8 0 0 0 0 0 0 7 6 0 0 0 0 0 0\n  eth0: 1 2 0 0 0 0 0 0 3 4 0 0 0 0 0 0\n\
            \x20 eth1: 1 2 0 0 0 0 0 0 3 5 0 0 0 0 0 0\n";
        assert_eq!(sent(text), (6, 9));
        assert_eq!(sent(""), (0, 0));
    }

    #[test]
    fn calls_of_the_census_carry_what_the_files_have() {
        let sizes = read_all(&FilesClient::in_process(Tree)).unwrap();
        assert!(sizes.values().sum::<u64>() > 3, "{sizes:?}");
        assert!(sizes.keys().all(|bytes| *bytes <= 65_536 + 4096), "{sizes:?}");
    }
}
