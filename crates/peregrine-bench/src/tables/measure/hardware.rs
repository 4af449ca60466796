//! Measures the memory and the disk: bandwidths and latencies of Lampson's tables.

use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

use super::super::measured::Measured;
use crate::Progress;
use crate::run_directory::of_this_run;
use crate::subject::Failure;

/// Returns the key of a latency in nanoseconds.
pub(crate) fn latency_key(of: &str) -> String {
    format!("hardware/{of}/latency")
}

/// Returns the key of a bandwidth in bytes per nanosecond, which are gigabytes per second.
pub(crate) fn bandwidth_key(of: &str) -> String {
    format!("hardware/{of}/bandwidth")
}

/// The first-level cache of a processor.
pub(crate) const CACHE: &str = "cache";
/// The main memory.
pub(crate) const MEMORY: &str = "memory";
/// The disk with the temporary files.
pub(crate) const DISK: &str = "disk";

const CACHE_BYTES: usize = 16 << 10;
const MEMORY_BYTES: usize = 256 << 20;
const LINE: usize = 64;

/// Measures all of them.
pub(crate) fn measure(into: &mut Measured, progress: &Progress) -> Result<(), Failure> {
    progress.show("tables: memory and disk");
    for (name, bytes, steps) in [(CACHE, CACHE_BYTES, 1 << 22), (MEMORY, MEMORY_BYTES, 1 << 21)] {
        into.set(latency_key(name), latency(bytes, steps));
        into.set(bandwidth_key(name), bandwidth(bytes));
    }
    let directory = of_this_run()?.join("disk");
    std::fs::create_dir_all(&directory)?;
    let file = directory.join("file");
    let block = vec![0x5a; 1 << 20];
    let mut written = File::create(&file)?;
    written.write_all(&block)?;
    written.sync_data()?;
    // One sector at a time, as a transaction that must survive a crash.
    let mut times = Vec::new();
    for _ in 0..32 {
        let start = Instant::now();
        written.write_all(&block[..512])?;
        written.sync_data()?;
        times.push(start.elapsed().as_nanos() as f64);
    }
    into.set(latency_key(DISK), crate::statistics::median(&times));
    let start = Instant::now();
    for _ in 0..64 {
        written.write_all(&block)?;
    }
    written.sync_data()?;
    let ns = start.elapsed().as_nanos() as f64;
    into.set(bandwidth_key(DISK), (64 << 20) as f64 / ns);
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}

/// Returns the time of a load whose address is the result of the previous one, in nanoseconds.
fn latency(bytes: usize, steps: usize) -> f64 {
    let lines = bytes / LINE;
    // Each line has the number of the next one. A step of about the golden ratio visits all lines once, and
    // the processor cannot foresee the order.
    let mut next = vec![0_u32; bytes / size_of::<u32>()];
    let mut order: Vec<u32> = (0..lines as u32).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for at in (1..lines).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        order.swap(at, (state >> 33) as usize % (at + 1));
    }
    let per_line = LINE / size_of::<u32>();
    for (at, line) in order.iter().enumerate() {
        next[*line as usize * per_line] = order[(at + 1) % lines] * per_line as u32;
    }
    let mut fastest = f64::INFINITY;
    let mut at = 0_u32;
    for _ in 0..3 {
        let start = Instant::now();
        for _ in 0..steps {
            at = next[at as usize];
        }
        black_box(at);
        fastest = fastest.min(start.elapsed().as_nanos() as f64 / steps as f64);
    }
    fastest
}

/// Returns the number of bytes that one processor reads in a nanosecond.
fn bandwidth(bytes: usize) -> f64 {
    let words = vec![1_u64; bytes / size_of::<u64>()];
    let rounds = ((64 << 20) / bytes).max(1);
    let mut fastest = f64::INFINITY;
    for _ in 0..5 {
        let start = Instant::now();
        for _ in 0..rounds {
            black_box(black_box(&words).iter().copied().fold(0, u64::wrapping_add));
        }
        fastest = fastest.min(start.elapsed().as_nanos() as f64 / rounds as f64);
    }
    bytes as f64 / fastest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_a_latency_and_a_bandwidth() {
        assert!((0.1..1e6).contains(&latency(CACHE_BYTES, 1 << 12)));
        assert!((1e-4..1e5).contains(&bandwidth(CACHE_BYTES)));
    }
}
