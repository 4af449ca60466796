//! The names of programs of ONC RPC, from the file `/etc/rpc`. Each line of the file has a name, a number,
//! and other names. A `#` begins a comment.

use std::collections::BTreeMap;

/// The path of the file.
const FILE: &str = "/etc/rpc";
/// The largest number of bytes of the file that are read.
const BYTES_MAX: u64 = 1 << 20;

/// Returns the names of programs by their numbers. Returns an empty map if the file cannot be read.
pub(super) fn names() -> BTreeMap<u32, String> {
    use std::io::Read as _;
    let mut text = String::new();
    let read =
        std::fs::File::open(FILE).and_then(|file| file.take(BYTES_MAX).read_to_string(&mut text));
    if read.is_err() {
        return BTreeMap::new();
    }
    parsed(&text)
}

fn parsed(text: &str) -> BTreeMap<u32, String> {
    let mut names = BTreeMap::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        if let (Some(name), Some(Ok(number))) = (words.next(), words.next().map(str::parse)) {
            // If several lines have the same number, the first line counts.
            names.entry(number).or_insert_with(|| name.to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_name_of_each_program_is_found() {
        let text = "# comment\nportmapper\t100000\tportmap sunrpc\n\nnfs 100003 nfsprog # files\n\
                    other 100003\nwrong x\nalone\n";
        let names = parsed(text);
        let expected = [(100_000, "portmapper"), (100_003, "nfs")];
        assert!(names.iter().map(|(number, name)| (*number, &**name)).eq(expected));
    }
}
