//! Processors: which one we run on, and the barrier that spares the fast path one.

#![allow(unsafe_code)]

use std::io;

/// The processor that this thread runs on, as far as one can know: it may move at once.
///
/// With a C library that has restartable sequences this is a memory read (2 ns).
#[inline]
pub fn current_cpu() -> u32 {
    // SAFETY: takes no pointers.
    let cpu = unsafe { libc::sched_getcpu() };
    cpu.cast_unsigned()
}

/// Lets this thread run on `cpu` only.
///
/// # Errors
/// If there is no such processor, or this process may not use it.
pub fn pin_to(cpu: u32) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu as usize);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// How many processors the machine has that run.
pub fn online_cpus() -> usize {
    // SAFETY: takes no pointers.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(count).unwrap_or(1)
}

/// Moves this thread to another processor than `cpu`, if it may run on any; it may come back.
pub fn leave_cpu(cpu: u32) -> bool {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else { return false };
    let mut others = allowed;
    others.unset(cpu as usize);
    // Two calls rather than one binding for good: who else needs this processor is not for us
    // to say.
    others.count() > 0
        && rustix::thread::sched_setaffinity(None, &others).is_ok()
        && rustix::thread::sched_setaffinity(None, &allowed).is_ok()
}

/// A full barrier on every processor that runs a thread of this process, so that the other
/// threads need none themselves. False if the kernel has none.
pub fn membarrier() -> bool {
    use std::sync::OnceLock;
    const REGISTER: libc::c_int = 1 << 4; // MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED
    const EXPEDITED: libc::c_int = 1 << 3; // MEMBARRIER_CMD_PRIVATE_EXPEDITED
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    let command = |command: libc::c_int| {
        // SAFETY: membarrier takes three integers and touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    };
    *REGISTERED.get_or_init(|| command(REGISTER)) && command(EXPEDITED)
}

/// The processor's clock: cycles of a constant rate, the same on all processors of the machine
/// (x86-64), else nanoseconds. Waits for nothing: what stands before it in the program may still be
/// under way.
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
