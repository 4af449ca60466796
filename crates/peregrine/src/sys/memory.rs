//! `Memory` is an owned mapping, private or shared with a peer. The program accesses it only through windows
//! and atomics.

#![allow(unsafe_code)]

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat,
    fstatfs, ftruncate, memfd_create,
};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use super::Space;

/// Mapped memory. It is unmapped when this value is dropped.
///
/// Threads that share the memory access it only by atomics. The copies of a [`Space`] are not atomic, so a
/// space needs exclusive access to the whole memory:
///
/// ```compile_fail
/// let memory = peregrine::sys::Memory::private(4096)?;
/// std::thread::scope(|scope| {
///     scope.spawn(|| memory.space_mut().write(0, &[1; 64]));
///     scope.spawn(|| memory.space_mut().write(0, &[2; 64]));
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// With atomics, two writes at the same time are no error. It is not determined which writer's bytes remain
/// at the end:
///
/// ```
/// let memory = peregrine::sys::Memory::private(4096)?;
/// std::thread::scope(|scope| {
///     scope.spawn(|| memory.write(0, &[1; 64]));
///     scope.spawn(|| memory.write(0, &[2; 64]));
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// A process may map the same file twice ([`received`](Self::received)). For the threads that use one
/// mapping, a thread that uses the other mapping is like another process: it may change the bytes at any
/// time.
pub struct Memory {
    base: NonNull<u8>,
    bytes: usize,
    shared: bool,
    /// The process that mapped the memory. A forked child does not inherit shared mappings (`MADV_DONTFORK`),
    /// so in the child other memory may lie at their addresses.
    pid: u32,
}

// SAFETY: the mapping is not bound to a thread, and is only accessed through windows and atomics.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// Returns the seals of a region, the memory file that a client and a server share. With these seals, the
/// size of the region cannot change any more, so accesses never fault.
fn sealed() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
}

/// Checks that the file has `bytes` bytes, and can neither shrink nor grow.
fn check(file: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let wrong = |text: &str| io::Error::new(io::ErrorKind::InvalidData, text.to_owned());
    let seals = fcntl_get_seals(file).map_err(|_| wrong("the region is not a memfd"))?;
    if !seals.contains(sealed()) {
        return Err(wrong("the region is not sealed"));
    }
    // Huge pages come from a pool. If the pool is empty, the first access to a huge page causes a fault.
    if fstatfs(file)?.f_type != libc::TMPFS_MAGIC {
        return Err(wrong("the region does not consist of ordinary pages"));
    }
    if u64::try_from(fstat(file)?.st_size).ok() != Some(bytes as u64) || bytes == 0 {
        return Err(wrong("the size of the region differs from the announced size"));
    }
    Ok(())
}

impl Memory {
    /// Maps `bytes` bytes of private zeroed memory. Pages are allocated when first touched. Memory that was
    /// never touched does not count against the limit of memory that the kernel may commit (`MAP_NORESERVE`).
    ///
    /// # Errors
    /// Fails if the kernel has no memory left.
    pub fn private(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.max(1);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh anonymous mapping replaces nothing.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), bytes, protection, flags) };
        Self::mapped(base?, bytes, false)
    }

    /// Creates zeroed memory to share with a peer. Maps a sealed memfd, and returns the descriptor of the
    /// memfd, which the peer maps.
    ///
    /// # Errors
    /// Fails if the kernel has no memory or descriptor left.
    pub fn shared(bytes: usize) -> io::Result<(Self, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create(c"peregrine", flags)?;
        ftruncate(&file, bytes as u64)?;
        fcntl_add_seals(&file, sealed())?;
        Ok((Self::map(file.as_fd(), bytes)?, file))
    }

    /// Creates zeroed memory to publish. Works as [`shared`](Self::shared), but other processes can map the
    /// descriptor for reading only. Needs Linux 5.1.
    ///
    /// # Errors
    /// Fails if the kernel has no memory or descriptor left, or cannot seal a file against writing.
    pub(crate) fn shown(bytes: usize) -> io::Result<(Self, OwnedFd)> {
        let file = memfd_create(c"counters", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, bytes as u64)?;
        let memory = Self::map(file.as_fd(), bytes)?;
        fcntl_add_seals(&file, SealFlags::FUTURE_WRITE)?;
        fcntl_add_seals(&file, sealed())?;
        Ok((memory, file))
    }

    /// Maps, for reading only, the memory that a peer publishes. Checks the file as
    /// [`received`](Self::received) does. A write to the mapping causes a fault.
    ///
    /// # Errors
    /// Fails if the file is not a sealed memfd of `bytes` bytes.
    pub(crate) fn seen(file: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        check(file, bytes)?;
        Self::map_for(file, bytes, ProtFlags::READ)
    }

    /// Maps the file that a peer sent, after checking that the file has `bytes` bytes and can neither shrink
    /// nor grow. Because of this check, no later access can fault.
    ///
    /// # Errors
    /// Fails if the file is not a sealed memfd of `bytes` bytes.
    pub fn received(file: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        check(file, bytes)?;
        Self::map(file, bytes)
    }

    /// Works as [`received`](Self::received) for a file of `all` bytes, but maps only the first `bytes`
    /// bytes.
    ///
    /// # Errors
    /// Fails in the cases in which [`received`](Self::received) fails.
    pub(crate) fn received_part(
        file: BorrowedFd<'_>,
        all: usize,
        bytes: usize,
    ) -> io::Result<Self> {
        check(file, all)?;
        Self::map(file, bytes.min(all))
    }

    /// Maps the first `bytes` bytes of a file, and allocates blocks of the file system for them. Without
    /// these blocks, a write to a hole would end this process (`SIGBUS`) if the file system is full. If the
    /// file is truncated, a write has the same effect. So use this function only for files that no other user
    /// may write.
    ///
    /// # Errors
    /// Fails if the file system is full or cannot allocate blocks in advance, or the file cannot be
    /// mapped.
    pub(crate) fn of_file(file: &File, bytes: usize) -> io::Result<Self> {
        fallocate(file, FallocateFlags::empty(), 0, bytes as u64)?;
        Self::map(file.as_fd(), bytes)
    }

    fn map(file: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        Self::map_for(file, bytes, ProtFlags::READ | ProtFlags::WRITE)
    }

    fn map_for(file: BorrowedFd<'_>, bytes: usize, protection: ProtFlags) -> io::Result<Self> {
        // SAFETY: a fresh mapping replaces nothing. The file does not shrink, because it is sealed, or
        // because no other user may write it. So the mapping stays backed by memory.
        let base = unsafe { mmap(ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0) };
        let memory = Self::mapped(base?, bytes, true)?;
        // SAFETY: advice about the mapping just made: a child process does not inherit the mapping.
        unsafe { madvise(memory.base.as_ptr().cast(), bytes, Advice::LinuxDontFork) }?;
        memory.leave_out_of_dumps();
        Ok(memory)
    }

    /// Excludes the memory from core dumps. A dump would read pages that were never touched, and the kernel
    /// would then allocate shared memory for them. A dump would also write the data of other processes to
    /// disk.
    pub(crate) fn leave_out_of_dumps(&self) {
        // SAFETY: advice about an owned mapping. If the kernel refuses it, dumps are larger.
        let _ = unsafe { madvise(self.base.as_ptr().cast(), self.bytes, Advice::LinuxDontDump) };
    }

    fn mapped(base: *mut core::ffi::c_void, bytes: usize, shared: bool) -> io::Result<Self> {
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, bytes, shared, pid: std::process::id() })
    }

    /// Frees the whole pages between the offsets `from` and `to`. The pages then read as zeros, on both sides
    /// if the memory is shared. Pages that the kernel cannot free keep their contents.
    pub(crate) fn release(&self, from: usize, to: usize) {
        const PAGE: usize = 4096;
        // The mapping extends to the end of its last page.
        let to =
            if to >= self.bytes { self.bytes.next_multiple_of(PAGE) } else { to & !(PAGE - 1) };
        let from = from.next_multiple_of(PAGE);
        if from >= to {
            return;
        }
        // SAFETY: inside the mapping, because `to` is at most the end of its last page.
        let start = unsafe { self.base.add(from) };
        let advice = if self.shared { Advice::LinuxRemove } else { Advice::LinuxDontNeed };
        // SAFETY: memory that is only accessed through windows and atomics may become zero at any time: a
        // peer can write zeros, too. Private memory that is not in use may become zero, too.
        let _ = unsafe { madvise(start.as_ptr().cast(), to - from, advice) };
    }

    /// Returns the number of bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        self.bytes
    }

    /// Returns false: there is always at least one byte.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns a space of the whole memory, for the exclusive owner.
    #[inline]
    pub const fn space_mut(&mut self) -> Space<'_> {
        self.space()
    }

    /// Returns a space of the whole memory. Within this crate, the threads of a process agree on which thread
    /// writes to which part.
    #[inline]
    pub(crate) const fn space(&self) -> Space<'_> {
        // SAFETY: the memory is mapped for reading and writing for as long as `self` lives. The only Rust
        // references to it are references to atomics.
        unsafe { Space::new(self.base.as_ptr(), self.bytes) }
    }

    /// Copies bytes from offset `at` until `into` is full. Returns `None` if the range is not inside the
    /// memory.
    ///
    /// Other threads and peers may write to the range at the same time. Each word or byte then has the value
    /// that one of them wrote.
    pub fn read(&self, at: usize, into: &mut [u8]) -> Option<()> {
        self.holds(at, into.len())?;
        let words = self.words_at(at, into.len());
        let (whole, rest) = into.split_at_mut(words * 4);
        for (index, private) in whole.chunks_exact_mut(4).enumerate() {
            let word = self.word(at + 4 * index).load(Ordering::Relaxed);
            private.copy_from_slice(&word.to_ne_bytes());
        }
        for (index, private) in rest.iter_mut().enumerate() {
            *private = self.byte(at + 4 * words + index).load(Ordering::Relaxed);
        }
        Some(())
    }

    /// Copies `from` to offset `at`. If the range is not inside the memory, returns `None` and writes
    /// nothing.
    ///
    /// Other threads and peers may read and write the range at the same time. Each word or byte then has the
    /// value that this function or one of them wrote.
    pub fn write(&self, at: usize, from: &[u8]) -> Option<()> {
        self.holds(at, from.len())?;
        let words = self.words_at(at, from.len());
        let (whole, rest) = from.split_at(words * 4);
        for (index, private) in whole.as_chunks().0.iter().enumerate() {
            self.word(at + 4 * index).store(u32::from_ne_bytes(*private), Ordering::Relaxed);
        }
        for (index, private) in rest.iter().enumerate() {
            self.byte(at + 4 * words + index).store(*private, Ordering::Relaxed);
        }
        Some(())
    }

    fn holds(&self, at: usize, bytes: usize) -> Option<()> {
        (at <= self.bytes && bytes <= self.bytes - at).then_some(())
    }

    /// Returns how many whole words a copy of `bytes` bytes at the offset `at` can transfer first. The number
    /// is 0 if the offset is not a multiple of four.
    const fn words_at(&self, at: usize, bytes: usize) -> usize {
        if at.is_multiple_of(4) { bytes / 4 } else { 0 }
    }

    fn byte(&self, at: usize) -> &AtomicU8 {
        assert!(at < self.bytes, "no byte at {at}");
        // SAFETY: the byte is inside the mapping.
        let byte = unsafe { self.base.add(at) };
        // SAFETY: as for the word in `word`.
        unsafe { AtomicU8::from_ptr(byte.as_ptr()) }
    }

    /// Returns the word of 32 bits at byte `at`, which must be a multiple of four.
    ///
    /// # Panics
    /// Panics if `at` is not a multiple of four, or the word is not inside the memory.
    #[inline]
    pub fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at <= self.bytes.saturating_sub(4), "no word at {at}");
        // SAFETY: the word is inside the mapping. The mapping is page-aligned, so the word is aligned.
        let word = unsafe { self.base.add(at) };
        // SAFETY: the word is valid for as long as `self`. This process accesses it only as an atomic or
        // through windows, whose copies may see any value.
        unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) }
    }

    /// Returns the `N` words of 64 bits at byte `at`, which must be a multiple of eight.
    ///
    /// # Panics
    /// Panics if `at` is not a multiple of eight, or the words are not inside the memory.
    #[inline]
    pub(crate) fn longs<const N: usize>(&self, at: usize) -> &[AtomicU64; N] {
        let fits = self.bytes.checked_sub(8 * N).is_some_and(|last| at <= last);
        assert!(at.is_multiple_of(8) && fits, "no {N} words at {at}");
        // SAFETY: the words are inside the mapping. The mapping is page-aligned, so the words are aligned.
        let words = unsafe { self.base.add(at) };
        // SAFETY: the words are valid for as long as `self`. Both sides access them only as atomics or
        // through windows, whose copies may see any value. If the memory is mapped for reading only, this
        // process only loads the words.
        unsafe { words.cast().as_ref() }
    }

    /// Returns whether this process mapped the memory. A forked child does not have the mapping.
    pub(crate) fn is_ours(&self) -> bool {
        self.pid == std::process::id()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            return;
        }
        // SAFETY: this value owns the mapping. Everything that could reach the mapping borrowed or owned this
        // value.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} bytes)", self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn received_region_must_be_sealed_and_of_the_announced_size() {
        let (memory, file) = Memory::shared(8192).unwrap();
        memory.space().write(100, b"falcon").unwrap();
        let other = Memory::received(file.as_fd(), 8192).unwrap();
        let mut copy = [0; 6];
        other.space().read(100, &mut copy).unwrap();
        assert_eq!(&copy, b"falcon");
        assert!(Memory::received(file.as_fd(), 4096).is_err());
        assert!(ftruncate(&file, 100).is_err(), "the size can still be changed");

        let open = memfd_create(c"open", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&open, 4096).unwrap();
        let error = Memory::received(open.as_fd(), 4096).unwrap_err();
        assert!(error.to_string().contains("not sealed"));
        let plain = tempfile::tempfile().unwrap();
        assert!(Memory::received(plain.as_fd(), 4096).is_err());

        let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        let Ok(huge) = memfd_create(c"huge", flags) else {
            eprintln!("skipped in part: the kernel has no huge pages");
            return;
        };
        // The kernel allocates no huge page until a page of the file is touched.
        ftruncate(&huge, 1 << 30).unwrap();
        fcntl_add_seals(&huge, sealed()).unwrap();
        let error = Memory::received(huge.as_fd(), 1 << 30).unwrap_err();
        assert!(error.to_string().contains("ordinary"), "{error}");
    }
}
