//! `Window` and `Space`: memory that a peer may write, with copying accessors only.
//!
//! No reference to such memory ever exists: a `&T` promises that nobody writes, and a
//! neighbour keeps no promises. A window fetches each byte at most once, into private memory,
//! and only the private copy is looked at (LRPC's argument copy E; Peregrine remaps instead,
//! which today costs a hundred times a packet's copy).

#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr;

use super::{Invalid, Native, Plain, Representation};

/// A stretch of memory that may be shared with a peer. Lengths and offsets are in bytes.
///
/// Accessors return `None` (or `false`) when asked to reach outside; they never panic.
///
/// Its copies are not atomic, so a window stays with one thread:
///
/// ```compile_fail
/// let mut bytes = [0; 64];
/// let space = peregrine::value::Space::of_mut(&mut bytes);
/// std::thread::scope(|scope| {
///     scope.spawn(move || space.write(0, &[1; 64]));
///     space.window().read(0, &mut [0; 64]);
/// });
/// ```
///
/// Laid out as the kernel's `iovec`, so that a list of windows is one of those.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Window<'a> {
    base: *mut u8,
    bytes: usize,
    memory: PhantomData<&'a ()>,
}

impl<'a> Window<'a> {
    /// An empty window.
    #[inline]
    pub const fn empty() -> Self {
        Self { base: ptr::dangling_mut::<u128>().cast(), bytes: 0, memory: PhantomData }
    }

    /// A window on private memory, for what is gathered from several places.
    #[inline]
    pub const fn of(memory: &'a [u8]) -> Self {
        Self { base: memory.as_ptr().cast_mut(), bytes: memory.len(), memory: PhantomData }
    }

    /// How many bytes there are.
    #[inline]
    pub const fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there is none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The part of `bytes` bytes that begins at `at`.
    #[inline]
    pub fn part(&self, at: usize, bytes: usize) -> Option<Self> {
        if at > self.bytes || bytes > self.bytes - at {
            return None;
        }
        // SAFETY: at <= self.bytes was checked, so the sum stays inside or one past the end.
        let base = unsafe { self.base.add(at) };
        Some(Self { base, bytes, memory: PhantomData })
    }

    /// Copies from the window, beginning at `at`, until `private` is full.
    #[inline]
    pub fn read(&self, at: usize, private: &mut [u8]) -> Option<()> {
        let part = self.part(at, private.len())?;
        // SAFETY: `part` has private.len() bytes; private memory never overlaps shared memory.
        unsafe { fetch(part.base, private.as_mut_ptr(), private.len()) };
        Some(())
    }

    /// Fetches one plain value, once. `None` outside the window or if its bits are not a `T`.
    #[inline]
    pub fn read_plain<T: Plain>(&self, at: usize) -> Option<T> {
        self.read_represented::<T, Native>(at)
    }

    /// As [`read_plain`](Self::read_plain), in a representation.
    #[inline(always)]
    pub(super) fn read_represented<T: Plain, R: Representation>(&self, at: usize) -> Option<T> {
        let part = self.part(at, size_of::<T>())?;
        let mut private = MaybeUninit::<T>::uninit();
        // SAFETY: `part` and `private` both have size_of::<T>() bytes.
        unsafe { fetch(part.base, private.as_mut_ptr().cast(), size_of::<T>()) };
        // SAFETY: all bytes of `private` were just written.
        if !unsafe { made::<T, R>(&mut private) } {
            return None;
        }
        // SAFETY: all bytes are written, and they are a valid T: any are, or these were checked.
        Some(unsafe { private.assume_init() })
    }

    /// As [`read_represented`](Self::read_represented), where a function call would move a large value once more;
    /// says why there is none.
    #[inline(always)]
    pub(super) fn read_large<T: Plain, R: Representation>(&self, at: usize) -> Result<T, Invalid> {
        let Some(part) = self.part(at, size_of::<T>()) else { return Err(Invalid::Short) };
        let mut private = MaybeUninit::<T>::uninit();
        // SAFETY: `part` and `private` both have size_of::<T>() bytes.
        unsafe { fetch(part.base, private.as_mut_ptr().cast(), size_of::<T>()) };
        // SAFETY: all bytes of `private` were just written.
        if !unsafe { made::<T, R>(&mut private) } {
            return Err(Invalid::Bits);
        }
        // SAFETY: all bytes are written, and they are a valid T: any are, or these were checked.
        Ok(unsafe { private.assume_init() })
    }

    /// Where the window begins, for the kernel to read (never to be dereferenced here).
    #[inline]
    pub const fn as_ptr(&self) -> *const u8 {
        self.base
    }
}

/// A window that may also be written.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Space<'a>(Window<'a>);

impl<'a> Space<'a> {
    /// The space of `bytes` bytes at `base`.
    ///
    /// # Safety
    /// For all of `'a`, the memory must stay mapped for reading and writing, and no Rust
    /// reference to it may be alive.
    #[inline]
    pub const unsafe fn new(base: *mut u8, bytes: usize) -> Self {
        Self(Window { base, bytes, memory: PhantomData })
    }

    /// A space in private memory, for paths that share none.
    #[inline]
    pub const fn of_mut(memory: &'a mut [u8]) -> Self {
        Self(Window { base: memory.as_mut_ptr(), bytes: memory.len(), memory: PhantomData })
    }

    /// Asks the processor to own the first line of the space: what is about to be written comes
    /// over from the other processor while the arguments are still being thought about.
    #[inline(always)]
    pub fn prefetch_write(&self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint; it changes nothing and never faults, whatever the address.
        unsafe {
            core::arch::asm!("prefetchw [{0}]", in(reg) self.0.base, options(nostack, preserves_flags, readonly));
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        unsafe {
            core::arch::asm!("prfm pstl1keep, [{0}]", in(reg) self.0.base, options(nostack, preserves_flags, readonly));
        }
    }

    /// As [`Space::prefetch_write`], for all lines but the first (at which somebody may look), up
    /// to as many as a processor can wait for at a time: they come over together rather than one
    /// after the other.
    #[inline]
    pub fn prefetch_write_all(&self) {
        const LINE: usize = 64;
        const LINES: usize = 32;
        let mut at = LINE;
        while at < self.0.bytes + LINE && at < LINES * LINE {
            let line = self.0.base.wrapping_add(at.min(self.0.bytes.saturating_sub(1)));
            Self(Window { base: line, bytes: 0, memory: PhantomData }).prefetch_write();
            at += LINE;
        }
    }

    /// A space of no bytes.
    #[inline]
    pub const fn none() -> Self {
        Self(Window::empty())
    }

    /// The space to be looked at only.
    #[inline]
    pub const fn window(&self) -> Window<'a> {
        self.0
    }

    /// The part of `bytes` bytes that begins at `at`.
    #[inline]
    pub fn part(&self, at: usize, bytes: usize) -> Option<Self> {
        self.0.part(at, bytes).map(Self)
    }

    /// Copies `private` into the space at `at`.
    #[inline]
    pub fn write(&self, at: usize, private: &[u8]) -> Option<()> {
        let part = self.part(at, private.len())?;
        // SAFETY: `part` has private.len() bytes; private memory never overlaps shared memory.
        unsafe { ptr::copy_nonoverlapping(private.as_ptr(), part.as_mut_ptr(), private.len()) };
        Some(())
    }

    /// Copies a plain value into the space at `at`.
    #[inline]
    pub fn write_plain<T: Plain>(&self, at: usize, value: &T) -> Option<()> {
        let part = self.part(at, size_of::<T>())?;
        // SAFETY: `part` has size_of::<T>() bytes, a Plain type has no padding, and unaligned
        // writes ask for no alignment.
        unsafe { part.as_mut_ptr().cast::<T>().write_unaligned(*value) };
        Some(())
    }

    /// Copies the whole of `from`, which must not be longer, to the start of this space.
    #[inline]
    pub(crate) fn copy_from(&self, from: Window<'_>) {
        let bytes = from.bytes.min(self.0.bytes);
        // SAFETY: both have that many bytes; they may overlap, for nobody keeps a caller from it.
        unsafe { ptr::copy(from.base, self.0.base, bytes) };
    }

    /// As [`Space::copy_from`], for much that another processor has just written or will read next.
    /// The C library's copy of so many bytes is one instruction of the processor's, which is made
    /// for memory and slower at taking lines over from another cache.
    #[inline]
    pub(crate) fn copy_lines(&self, from: Window<'_>) {
        let bytes = from.bytes.min(self.0.bytes);
        // SAFETY: both have that many bytes.
        unsafe { lines::copy(from.base, self.0.base, bytes) };
    }

    /// As [`Space::copy_lines`], past the caches: lines that another processor holds need not come
    /// here before they are written.
    #[inline]
    pub(crate) fn copy_past(&self, from: Window<'_>) {
        let bytes = from.bytes.min(self.0.bytes);
        // SAFETY: both have that many bytes.
        unsafe { lines::copy_past(from.base, self.0.base, bytes) };
    }

    /// As [`copy_lines`](Self::copy_lines) or, if `past`, as [`copy_past`](Self::copy_past), with the
    /// bytes of each lane in the order of its mask; the first lane has that of `lane`. What is less
    /// than a lane at the end is not copied: how many bytes were.
    #[inline]
    pub(super) fn copy_turned(
        &self,
        from: Window<'_>,
        masks: &Masks,
        lane: usize,
        past: bool,
    ) -> usize {
        let bytes = from.bytes.min(self.0.bytes) & !(LANE_BYTES - 1);
        // SAFETY: both have that many bytes, a multiple of a lane's.
        unsafe { lines::copy_turned(from.base, self.0.base, bytes, masks, lane, past) };
        bytes
    }

    /// Writes the first `bytes` of `line`, as far as there is room, and perhaps up to three more.
    ///
    /// Word by word: most values are words, and a wide load of what was just stored in words
    /// would wait until all of them have left the store buffer.
    #[inline]
    pub(super) fn write_words<const N: usize>(&self, line: &[u8; N], bytes: usize) {
        const { assert!(N.is_multiple_of(4)) };
        if self.0.bytes < N {
            let bytes = bytes.min(self.0.bytes).min(N);
            let _ = self.write(0, &line[..bytes]);
            return;
        }
        let (to, from) = (self.0.base.cast::<u32>(), line.as_ptr().cast::<u32>());
        for word in 0..bytes.div_ceil(4).min(N / 4) {
            // SAFETY: word < N / 4, and `line` has N bytes.
            let from = unsafe { from.add(word) };
            // SAFETY: word < N / 4, and the space has N bytes at least.
            let to = unsafe { to.add(word) };
            // SAFETY: four bytes of `line`, wherever it is aligned.
            let value = unsafe { from.read_unaligned() };
            // SAFETY: four bytes of the space.
            unsafe { to.write_unaligned(value) };
        }
    }

    /// Writes zeros over `bytes` bytes from `at`.
    #[inline]
    pub fn zero(&self, at: usize, bytes: usize) -> Option<()> {
        let part = self.part(at, bytes)?;
        // SAFETY: `part` has `bytes` bytes.
        unsafe { ptr::write_bytes(part.as_mut_ptr(), 0, bytes) };
        Some(())
    }

    /// Where the space begins, for the kernel to write (never to be dereferenced here).
    #[inline]
    pub const fn as_mut_ptr(&self) -> *mut u8 {
        self.0.base
    }
}

impl<'a> core::ops::Deref for Space<'a> {
    type Target = Window<'a>;
    #[inline]
    fn deref(&self) -> &Window<'a> {
        &self.0
    }
}

impl core::fmt::Debug for Space<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Space({} bytes)", self.0.bytes)
    }
}

impl<'a> From<&'a [u8]> for Window<'a> {
    #[inline]
    fn from(memory: &'a [u8]) -> Self {
        Self { base: memory.as_ptr().cast_mut(), bytes: memory.len(), memory: PhantomData }
    }
}

impl core::fmt::Debug for Window<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Window({} bytes)", self.bytes)
    }
}

/// Bytes that one instruction puts in another order.
const LANE_BYTES: usize = 16;
/// Lanes after which an order repeats, at most.
const LANES_MAX: usize = 16;

/// From where in its lane each byte of a lane comes.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Mask([u8; LANE_BYTES]);

/// The masks of so many lanes, after which they repeat.
pub(super) struct Masks {
    masks: [Mask; LANES_MAX],
    count: usize,
}

impl Masks {
    /// Bytes of a lane.
    pub(super) const LANE_BYTES: usize = LANE_BYTES;

    /// Bytes after which they repeat.
    pub(super) const fn bytes(&self) -> usize {
        self.count * LANE_BYTES
    }

    /// Those of an order that repeats after `unit` bytes, which `turn` makes of bytes as they are.
    /// `None` if a lane would need bytes of another, or this processor has no such instruction.
    pub(super) fn of(unit: usize, turn: fn(&mut [u8])) -> Option<Self> {
        let lanes = unit >> unit.trailing_zeros().min(LANE_BYTES.trailing_zeros());
        if lanes > LANES_MAX || !lines::can_turn() {
            return None;
        }
        // What becomes of the bytes' own places says where each comes from.
        let mut places: [u8; LANES_MAX * LANE_BYTES] = core::array::from_fn(|place| place as u8);
        turn(&mut places[..lanes * LANE_BYTES]);
        let mut masks = [Mask([0; LANE_BYTES]); LANES_MAX];
        for (lane, (mask, places)) in
            masks.iter_mut().zip(places.as_chunks::<LANE_BYTES>().0).enumerate()
        {
            let first = (lane * LANE_BYTES) as u8;
            for (byte, place) in mask.0.iter_mut().zip(places) {
                *byte = place.wrapping_sub(first);
            }
        }
        let own = |mask: &Mask| mask.0.iter().all(|byte| usize::from(*byte) < LANE_BYTES);
        masks[..lanes].iter().all(own).then_some(Self { masks, count: lanes })
    }
}

/// Bytes that a [`Chunk`] holds without asking for memory: what stays in the first cache.
const CHUNK_BYTES: usize = 8192;

/// Private memory through which bytes go that are looked at or changed on their way.
#[repr(align(64))]
pub(super) struct Chunk {
    stack: [MaybeUninit<u8>; CHUNK_BYTES],
    /// For values that are larger than that.
    heap: Vec<u8>,
}

impl Chunk {
    #[inline(always)]
    pub(super) const fn new() -> Self {
        Self { stack: [MaybeUninit::uninit(); CHUNK_BYTES], heap: Vec::new() }
    }

    /// How many bytes to fetch at a time, so that they are whole units of so many bytes.
    #[inline]
    pub(super) const fn whole(unit: usize) -> usize {
        if unit > CHUNK_BYTES { unit } else { CHUNK_BYTES - CHUNK_BYTES % unit }
    }

    /// Fetches those bytes of a window, once; `None` if they lie outside.
    #[inline]
    pub(super) fn fetch(&mut self, from: Window<'_>, at: usize, bytes: usize) -> Option<&mut [u8]> {
        if bytes > CHUNK_BYTES {
            self.heap.resize(bytes, 0);
            from.read(at, &mut self.heap)?;
            return Some(&mut self.heap);
        }
        let from = from.part(at, bytes)?;
        let start = self.stack.as_mut_ptr().cast::<u8>();
        // SAFETY: either has `bytes` bytes, and the chunk is our own.
        unsafe { fetch(from.base, start, bytes) };
        // SAFETY: so many bytes were just written, and the chunk is borrowed for as long.
        Some(unsafe { core::slice::from_raw_parts_mut(start, bytes) })
    }
}

/// Copies `bytes` bytes from shared to private memory so that the compiler can neither read
/// the source again later nor look through the copy.
///
/// # Safety
/// As for [`ptr::copy_nonoverlapping`], save that a peer may write `from` at the same time.
#[inline(always)]
unsafe fn fetch(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: by the caller. A racing peer can make the copied bytes anything, which every
    // reader of the copy allows for; the barrier below keeps the compiler from assuming that
    // source and copy are still equal.
    unsafe { ptr::copy_nonoverlapping(from, to, bytes) };
    // SAFETY: empty; it only makes the compiler believe that the copy may have changed.
    unsafe { core::arch::asm!("/* {0} */", in(reg) to, options(nostack, preserves_flags)) };
}

/// Makes a value of bytes that were fetched: false if they are none.
///
/// # Safety
/// All bytes of `private` were written.
#[inline(always)]
unsafe fn made<T: Plain, R: Representation>(private: &mut MaybeUninit<T>) -> bool {
    let start = private.as_mut_ptr().cast::<u8>();
    if R::SWAPPED {
        // SAFETY: all bytes were written, by the caller, and nobody else has them.
        T::swap(unsafe { core::slice::from_raw_parts_mut(start, size_of::<T>()) });
    }
    if T::ANY_BITS {
        return true;
    }
    // SAFETY: as above.
    T::valid(unsafe { core::slice::from_raw_parts(start, size_of::<T>()) })
}

/// Copies of whole lines. Like [`fetch`] they are nothing that the compiler could look through, and
/// a byte that a peer writes meanwhile may be copied as it was or as it is.
#[cfg(target_arch = "x86_64")]
mod lines {
    use core::arch::asm;
    use core::ptr;

    use super::{LANE_BYTES, Masks};

    const LINE: usize = 64;

    /// Copies line after line while there is a whole one, with these instructions; how many bytes.
    macro_rules! copy_whole {
        ($store:literal, $from:ident, $to:ident, $bytes:ident) => {{
            let whole = $bytes & !(LINE - 1);
            if whole > 0 {
                // SAFETY: reads and writes `whole` bytes from either on, no more than the caller
                // says that there are; the alignment of stores is the caller's to know.
                unsafe {
                    asm!(
                        "2:",
                        "movdqu {a}, [{from} + {at}]",
                        "movdqu {b}, [{from} + {at} + 16]",
                        "movdqu {c}, [{from} + {at} + 32]",
                        "movdqu {d}, [{from} + {at} + 48]",
                        concat!($store, " [{to} + {at}], {a}"),
                        concat!($store, " [{to} + {at} + 16], {b}"),
                        concat!($store, " [{to} + {at} + 32], {c}"),
                        concat!($store, " [{to} + {at} + 48], {d}"),
                        "add {at}, 64",
                        "cmp {at}, {whole}",
                        "jb 2b",
                        from = in(reg) $from,
                        to = in(reg) $to,
                        at = inout(reg) 0_usize => _,
                        whole = in(reg) whole,
                        a = out(xmm_reg) _,
                        b = out(xmm_reg) _,
                        c = out(xmm_reg) _,
                        d = out(xmm_reg) _,
                        options(nostack),
                    );
                }
            }
            whole
        }};
    }

    /// Copies what is less than a line; nothing at all is no bytes of it.
    ///
    /// # Safety
    /// As for [`copy`].
    unsafe fn copy_rest(from: *const u8, to: *mut u8, done: usize, bytes: usize) {
        // SAFETY: `done` is at most what either has by the caller.
        let from = unsafe { from.add(done) };
        // SAFETY: as above.
        let to = unsafe { to.add(done) };
        // SAFETY: by the caller; they may overlap.
        unsafe { ptr::copy(from, to, bytes - done) };
        // SAFETY: empty; see `fetch`.
        unsafe { asm!("/* {0} */", in(reg) to, options(nostack, preserves_flags)) };
    }

    /// Copies lines of lanes that all have the same mask; how many bytes.
    macro_rules! turn_lines {
        ($store:literal, $from:ident, $to:ident, $bytes:ident, $masks:ident) => {{
            let whole = $bytes & !(LINE - 1);
            if whole > 0 {
                // SAFETY: reads and writes `whole` bytes from either on, no more than the caller
                // says that there are, and reads one mask; the alignment of stores is the caller's
                // to know, and so is whether the processor can.
                unsafe {
                    asm!(
                        "movdqa {mask}, [{masks}]",
                        "2:",
                        "movdqu {a}, [{from} + {at}]",
                        "movdqu {b}, [{from} + {at} + 16]",
                        "movdqu {c}, [{from} + {at} + 32]",
                        "movdqu {d}, [{from} + {at} + 48]",
                        "pshufb {a}, {mask}",
                        "pshufb {b}, {mask}",
                        "pshufb {c}, {mask}",
                        "pshufb {d}, {mask}",
                        concat!($store, " [{to} + {at}], {a}"),
                        concat!($store, " [{to} + {at} + 16], {b}"),
                        concat!($store, " [{to} + {at} + 32], {c}"),
                        concat!($store, " [{to} + {at} + 48], {d}"),
                        "add {at}, 64",
                        "cmp {at}, {whole}",
                        "jb 2b",
                        from = in(reg) $from,
                        to = in(reg) $to,
                        masks = in(reg) $masks.masks.as_ptr(),
                        at = inout(reg) 0_usize => _,
                        whole = in(reg) whole,
                        mask = out(xmm_reg) _,
                        a = out(xmm_reg) _,
                        b = out(xmm_reg) _,
                        c = out(xmm_reg) _,
                        d = out(xmm_reg) _,
                        options(nostack),
                    );
                }
            }
            whole
        }};
    }

    /// Copies lanes, each with its mask; `$bytes` is a multiple of a lane's.
    macro_rules! turn_lanes {
        ($store:literal, $from:ident, $to:ident, $bytes:ident, $masks:ident, $lane:ident) => {
            if $bytes > 0 {
                // SAFETY: as in `turn_lines`; of the masks it reads as many as there are.
                unsafe {
                    asm!(
                        "2:",
                        "movdqu {a}, [{from} + {at}]",
                        "pshufb {a}, [{masks} + {mask}]",
                        concat!($store, " [{to} + {at}], {a}"),
                        "add {mask}, 16",
                        "cmp {mask}, {period}",
                        "jb 3f",
                        "xor {mask:e}, {mask:e}",
                        "3:",
                        "add {at}, 16",
                        "cmp {at}, {whole}",
                        "jb 2b",
                        from = in(reg) $from,
                        to = in(reg) $to,
                        masks = in(reg) $masks.masks.as_ptr(),
                        mask = inout(reg) $lane % $masks.count * LANE_BYTES => _,
                        period = in(reg) $masks.count * LANE_BYTES,
                        at = inout(reg) 0_usize => _,
                        whole = in(reg) $bytes,
                        a = out(xmm_reg) _,
                        options(nostack),
                    );
                }
            }
        };
    }

    /// Whether this processor can put the bytes of a lane in another order, as all can that were made
    /// since 2011.
    pub(super) fn can_turn() -> bool {
        std::is_x86_feature_detected!("ssse3")
    }

    /// # Safety
    /// `bytes` bytes, a multiple of a lane's, may be read at `from` and written at `to`; they are the
    /// same or do not overlap. The masks are proof that the processor can.
    #[inline(never)]
    pub(super) unsafe fn copy_turned(
        from: *const u8,
        to: *mut u8,
        bytes: usize,
        masks: &Masks,
        lane: usize,
        past: bool,
    ) {
        let before = to.align_offset(LINE).min(bytes);
        if !past || !before.is_multiple_of(LANE_BYTES) {
            // SAFETY: by the caller.
            return unsafe { turn_cached(from, to, bytes, masks, lane) };
        }
        // SAFETY: no more than `bytes`.
        unsafe { turn_cached(from, to, before, masks, lane) };
        let lane = lane + before / LANE_BYTES;
        // SAFETY: as above.
        let from = unsafe { from.add(before) };
        // SAFETY: as above; it is aligned to a line.
        let to = unsafe { to.add(before) };
        let bytes = bytes - before;
        if masks.count == 1 {
            let done = turn_lines!("movntdq", from, to, bytes, masks);
            // SAFETY: what is left of it.
            let from = unsafe { from.add(done) };
            // SAFETY: as above.
            let to = unsafe { to.add(done) };
            // SAFETY: as above.
            unsafe { turn_cached(from, to, bytes - done, masks, lane) };
        } else {
            turn_lanes!("movntdq", from, to, bytes, masks, lane);
        }
        // SAFETY: see `copy_past`.
        unsafe { asm!("sfence", options(nostack, preserves_flags)) };
    }

    /// # Safety
    /// As for [`copy_turned`].
    unsafe fn turn_cached(from: *const u8, to: *mut u8, bytes: usize, masks: &Masks, lane: usize) {
        let mut done = 0;
        if masks.count == 1 {
            done = turn_lines!("movdqu", from, to, bytes, masks);
        }
        // SAFETY: no more than `bytes`.
        let from = unsafe { from.add(done) };
        // SAFETY: as above.
        let to = unsafe { to.add(done) };
        let bytes = bytes - done;
        turn_lanes!("movdqu", from, to, bytes, masks, lane);
    }

    /// # Safety
    /// `bytes` bytes may be read at `from` and written at `to`.
    #[inline(never)]
    pub(super) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
        let done = copy_whole!("movdqu", from, to, bytes);
        // SAFETY: by the caller.
        unsafe { copy_rest(from, to, done, bytes) };
    }

    /// # Safety
    /// As for [`copy`].
    #[inline(never)]
    pub(super) unsafe fn copy_past(from: *const u8, to: *mut u8, bytes: usize) {
        let before = to.align_offset(LINE).min(bytes);
        // SAFETY: no more than `bytes`.
        unsafe { copy_rest(from, to, 0, before) };
        // SAFETY: as above.
        let from = unsafe { from.add(before) };
        // SAFETY: as above; a whole line may follow only where one begins, which is aligned.
        let to = unsafe { to.add(before) };
        let bytes = bytes - before;
        let done = copy_whole!("movntdq", from, to, bytes);
        // SAFETY: by the caller.
        unsafe { copy_rest(from, to, done, bytes) };
        // SAFETY: orders what was written past the caches before what is written next, such as
        // the word that tells of it; nothing else would.
        unsafe { asm!("sfence", options(nostack, preserves_flags)) };
    }
}

/// Where nobody has measured what is better than the C library's copy.
#[cfg(not(target_arch = "x86_64"))]
mod lines {
    use core::ptr;

    /// # Safety
    /// `bytes` bytes may be read at `from` and written at `to`.
    pub(super) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
        // SAFETY: by the caller; they may overlap.
        unsafe { ptr::copy(from, to, bytes) };
        // SAFETY: empty; see `fetch`.
        unsafe { core::arch::asm!("/* {0} */", in(reg) to, options(nostack, preserves_flags)) };
    }

    /// # Safety
    /// As for [`copy`].
    pub(super) unsafe fn copy_past(from: *const u8, to: *mut u8, bytes: usize) {
        // SAFETY: by the caller.
        unsafe { copy(from, to, bytes) };
    }

    /// There are no masks: the compiler's loops turn what is turned.
    pub(super) const fn can_turn() -> bool {
        false
    }

    /// # Safety
    /// None: nobody has masks.
    pub(super) const unsafe fn copy_turned(
        _: *const u8,
        _: *mut u8,
        _: usize,
        _: &super::Masks,
        _: usize,
        _: bool,
    ) {
    }
}

#[cfg(test)]
mod tests;
