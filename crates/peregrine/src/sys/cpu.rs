//! Functions about processors: the current processor, the affinity of a thread, and a barrier that makes a
//! fence on the fast path unnecessary.

#![allow(unsafe_code)]

use std::io;

/// Returns the processor that this thread runs on. The kernel may move the thread at any time.
///
/// If the C library supports restartable sequences, the function only reads memory (2 ns).
#[inline]
pub fn current_cpu() -> u32 {
    // SAFETY: takes no pointers.
    let cpu = unsafe { libc::sched_getcpu() };
    cpu.cast_unsigned()
}

/// Restricts this thread to the processor `cpu`.
///
/// # Errors
/// Fails if the processor does not exist, or this process may not use it.
pub fn pin_to(cpu: u32) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu as usize);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// Returns the number of processors that are online.
pub fn online_cpus() -> usize {
    // SAFETY: takes no pointers.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(count).unwrap_or(1)
}

/// Moves this thread away from the processor `cpu`, and returns whether that worked. The scheduler may
/// move it back later.
pub fn leave_cpu(cpu: u32) -> bool {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else { return false };
    let mut others = allowed;
    others.unset(cpu as usize);
    // The affinity changes only for a moment, because the processor may become free again.
    others.count() > 0
        && rustix::thread::sched_setaffinity(None, &others).is_ok()
        && rustix::thread::sched_setaffinity(None, &allowed).is_ok()
}

/// Executes a full barrier on every processor that runs a thread of this process, so that the other threads
/// need no fence. Returns false if the kernel does not support such a barrier.
pub fn membarrier() -> bool {
    use std::sync::OnceLock;
    const REGISTER: libc::c_int = 1 << 4; // MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED
    const EXPEDITED: libc::c_int = 1 << 3; // MEMBARRIER_CMD_PRIVATE_EXPEDITED
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    let command = |command: libc::c_int| {
        // SAFETY: membarrier takes three integers and accesses no memory of this process.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    };
    *REGISTERED.get_or_init(|| command(REGISTER)) && command(EXPEDITED)
}

/// Reads the processor's clock. On x86-64 this is a counter with a constant rate, and the counters of all
/// processors of the machine agree. On other architectures it is the kernel's monotonic clock in nanoseconds.
/// The read is not a fence: earlier instructions may not have completed.
#[cfg(feature = "stamps")]
#[inline(always)]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads a counter; every x86-64 processor has it.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
    }
}
