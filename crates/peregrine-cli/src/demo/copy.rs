//! Copies a file with calls of `Files`, and also measures the same reads without calls.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use peregrine::{Lent, Out};
use sha2::{Digest, Sha256};

use crate::files::{CHUNK_BYTES, Files};
use crate::output::{self, Counted, Failure, OrFail};

/// The result of a copy.
pub(super) struct Copied {
    /// The number of bytes that were copied.
    pub(super) bytes: u64,
    /// For each chunk, the duration of the call, and the duration of the same read in this process.
    pub(super) times: Vec<[Duration; 2]>,
    /// The hash of the source file, which this process read without calls.
    pub(super) source: String,
    /// The hash of the copy on disk.
    pub(super) copy: String,
}

/// Creates a file of `bytes` pseudo-random bytes (xorshift64*).
pub(super) fn make(path: &Path, bytes: u64) -> Result<(), Failure> {
    let what = || format!("cannot create {}", path.display());
    let mut file = File::create(path).or_fail(what())?;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut left = bytes;
    let bar = bar(bytes, "creating");
    while left > 0 {
        for word in chunk.chunks_exact_mut(8) {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            word.copy_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_ne_bytes());
        }
        let part = left.min(CHUNK_BYTES as u64);
        file.write_all(&chunk[..part as usize]).or_fail(what())?;
        left -= part;
        bar.inc(part);
    }
    bar.finish_and_clear();
    Ok(())
}

/// Copies the file that the server knows as `name` to `target`. The same file has the path `source` in this
/// process.
pub(super) fn copy(
    files: &impl Files,
    name: &str,
    source: &Path,
    target: &Path,
) -> Result<Copied, Failure> {
    let reading = || format!("cannot read {}", source.display());
    let own = File::open(source).or_fail(reading())?;
    let mut made =
        File::create(target).or_fail(format_args!("cannot create {}", target.display()))?;
    let bytes = files.size(name)?;
    let bar = bar(bytes, "copying");
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut same = vec![0; CHUNK_BYTES];
    let mut hash = Sha256::new();
    let (mut at, mut times) = (0, Vec::new());
    while at < bytes {
        // The order of the two reads alternates, because the second read of the same chunk is faster.
        let call_first = (at / CHUNK_BYTES as u64).is_multiple_of(2);
        let (mut filled, mut took) = (0, [Duration::ZERO; 2]);
        for by_call in [call_first, !call_first] {
            let begun = Instant::now();
            if by_call {
                let mut out = Out::from(&mut chunk[..]);
                files.read(name, at, out.by_ref())?;
                filled = out.filled();
                took[0] = begun.elapsed();
            } else {
                let wanted = (bytes - at).min(CHUNK_BYTES as u64) as usize;
                own.read_exact_at(&mut same[..wanted], at).or_fail(reading())?;
                took[1] = begun.elapsed();
                hash.update(&same[..wanted]);
            }
        }
        if filled == 0 {
            return Err(Failure::Refused(format!("`{name}` was truncated during the copy")));
        }
        made.write_all(&chunk[..filled])
            .or_fail(format_args!("cannot write {}", target.display()))?;
        at += filled as u64;
        times.push(took);
        bar.set_position(at);
    }
    bar.finish_and_clear();
    let source = hex(&hash.finalize());
    Ok(Copied { bytes, times, source, copy: hash_of(target)? })
}

/// Writes the file `note` with calls that have a `Lent` parameter. Returns the number of bytes that were
/// written, and whether the file contains exactly these bytes.
pub(super) fn write(files: &impl Files, root: &Path) -> Result<(usize, bool), Failure> {
    let note: Vec<u8> = (0..CHUNK_BYTES + 4321).map(|i| (i * i / 7) as u8).collect();
    for (i, part) in note.chunks(CHUNK_BYTES).enumerate() {
        files.write("note", (i * CHUNK_BYTES) as u64, Lent::from(part))?;
    }
    let found = std::fs::read(root.join("note")).or_fail("cannot read the written file")?;
    Ok((note.len(), found == note))
}

/// Returns the SHA-256 of a file.
fn hash_of(path: &Path) -> Result<String, Failure> {
    let what = || format!("cannot read {}", path.display());
    let mut file = File::open(path).or_fail(what())?;
    let bytes = file.metadata().or_fail(what())?.len();
    let bar = bar(bytes, "verifying");
    let mut hash = Sha256::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match file.read(&mut chunk).or_fail(what())? {
            0 => break,
            read => {
                hash.update(&chunk[..read]);
                bar.inc(read as u64);
            }
        }
    }
    bar.finish_and_clear();
    Ok(hex(&hash.finalize()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a progress bar that counts bytes.
fn bar(bytes: u64, what: &'static str) -> ProgressBar {
    output::bar(bytes, what, Counted::Bytes)
}
