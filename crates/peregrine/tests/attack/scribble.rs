//! Writes into the memory of another process, as a fault in that process could do.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use super::noise::Noise;
use super::wire::Region;

/// The number of A-stacks (frames of single calls) that a session keeps active by default.
const USED: u64 = 8;
/// The number of A-stacks of a region that is only used to compute offsets. The offsets do not depend on this
/// number.
const COUNT: u32 = 64;

/// Writes to the words by which a client and its servers post calls and replies, until the time `until`.
/// These words are in the client's regions (the shared memory of its sessions). Returns the number of writes.
/// The offsets of these words are right only if the client's A-stacks have messages of 1 MiB.
pub(crate) fn scribble(pid: u32, seed: u64, until: Instant) -> u64 {
    let memory = File::options().write(true).open(format!("/proc/{pid}/mem")).expect("its memory");
    // This region is used only to compute offsets.
    let (region, _) = Region::new(COUNT, 1 << 20);
    let (mut noise, mut written) = (Noise::new(seed), 0);
    while Instant::now() < until {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("a process");
        for line in maps.lines().filter(|line| line.contains("memfd:peregrine")) {
            let start = line.split('-').next().expect("an address");
            let start = u64::from_str_radix(start, 16).expect("an address");
            for _ in 0..4 {
                let astack = noise.below(USED) as u32;
                let words = [region.call(astack), region.reply(astack), region.taken(astack)];
                let value = match noise.below(3) {
                    // Valid call words, and invalid ones that resemble them.
                    0 | 1 => noise.below(8) as u32,
                    _ => noise.word(8),
                };
                let at = start + noise.one_of(&words.map(|at| at as u32)) as u64;
                // The process may have ended meanwhile.
                written += u64::from(memory.write_all_at(&value.to_ne_bytes(), at).is_ok());
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    written
}
