//! Copy loops for many bytes. They copy through the processor's caches or past them, and can also shuffle the
//! bytes of each lane. A lane is the 16 bytes of one vector register.
//!
//! For long copies, the C library uses the processor's string instruction. That instruction is optimized for
//! data in memory, and is slower if the cache lines are in another processor's cache. These loops copy whole
//! cache lines with vector registers.

#![allow(unsafe_code)]

/// The length of a lane in bytes. One instruction shuffles one lane.
pub(crate) const LANE_BYTES: usize = 16;
/// The largest number of masks in [`Shuffles`].
const LANES_MAX: usize = 16;

/// How to shuffle one lane. For each place in the lane, a mask has the index of the byte that moves to that
/// place.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Mask([u8; LANE_BYTES]);

/// How to shuffle consecutive lanes: the lane with the number `n` is shuffled by the mask `n % count`.
#[derive(Clone)]
pub(crate) struct Shuffles {
    masks: [Mask; LANES_MAX],
    count: usize,
}

impl Shuffles {
    /// Returns the number of bytes after which the masks repeat.
    pub(crate) const fn bytes(&self) -> usize {
        self.count * LANE_BYTES
    }

    /// Returns the shuffles that reverse the bytes of each number of `unit` bytes. Returns `None` if there are
    /// no numbers of this size, or if the processor has no shuffle instruction.
    #[inline]
    pub(crate) fn reversing(unit: usize) -> Option<&'static Self> {
        static REVERSING: [Shuffles; 4] = [
            Shuffles::reversing_each(2),
            Shuffles::reversing_each(4),
            Shuffles::reversing_each(8),
            Shuffles::reversing_each(16),
        ];
        let index = match unit {
            2 => 0,
            4 => 1,
            8 => 2,
            16 => 3,
            _ => return None,
        };
        if can_shuffle() { Some(&REVERSING[index]) } else { None }
    }

    const fn reversing_each(unit: usize) -> Self {
        let mut masks = [Mask([0; LANE_BYTES]); LANES_MAX];
        let mut place = 0;
        while place < LANE_BYTES {
            masks[0].0[place] = (place ^ (unit - 1)) as u8;
            place += 1;
        }
        Self { masks, count: 1 }
    }

    /// Returns the shuffles that do what `reorder` does to each group of `unit` bytes. Returns `None` in
    /// three cases: a lane would need bytes of another lane, too many masks would be needed, or the processor
    /// has no shuffle instruction.
    pub(crate) fn of(unit: usize, reorder: fn(&mut [u8])) -> Option<Self> {
        let lanes = unit >> unit.trailing_zeros().min(LANE_BYTES.trailing_zeros());
        if lanes > LANES_MAX || !can_shuffle() {
            return None;
        }
        // Reordering the indices 0, 1, 2, ... yields, for each place, the index of the byte that moves there.
        let mut places: [u8; LANES_MAX * LANE_BYTES] = core::array::from_fn(|place| place as u8);
        reorder(&mut places[..lanes * LANE_BYTES]);
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

#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::{can_shuffle, copy_cached, copy_shuffled, copy_streaming};

#[cfg(not(target_arch = "x86_64"))]
pub(super) use portable::{can_shuffle, copy_cached, copy_shuffled, copy_streaming};

/// Copies of whole cache lines. The compiler can assume nothing about the copied bytes, as after
/// [`fetch`](super::window::fetch). If a peer writes a byte during the copy, the old or the new value of that
/// byte is copied.
#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use core::arch::asm;
    use core::ptr;

    use super::{LANE_BYTES, Shuffles};

    const LINE: usize = 64;

    /// Copies all whole cache lines with the store instruction `$store`. Evaluates to the number of bytes
    /// copied.
    macro_rules! copy_whole {
        ($store:literal, $from:ident, $to:ident, $bytes:ident) => {{
            let whole = $bytes & !(LINE - 1);
            if whole > 0 {
                // SAFETY: reads and writes `whole` bytes, which the caller guarantees to exist. The
                // caller also guarantees the alignment that the store needs.
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

    /// Copies the bytes from `done` up to `bytes`.
    ///
    /// # Safety
    /// As for [`copy_cached`].
    unsafe fn copy_rest(from: *const u8, to: *mut u8, done: usize, bytes: usize) {
        // SAFETY: `done` is at most `bytes`, which the caller guarantees to exist.
        let from = unsafe { from.add(done) };
        // SAFETY: as above.
        let to = unsafe { to.add(done) };
        // SAFETY: guaranteed by the caller; the ranges may overlap.
        unsafe { ptr::copy(from, to, bytes - done) };
        // SAFETY: the assembly code is empty; see `fetch`.
        unsafe { asm!("/* {0} */", in(reg) to, options(nostack, preserves_flags)) };
    }

    /// Copies all whole cache lines, and shuffles every lane by the same mask. Evaluates to the number of
    /// bytes copied.
    macro_rules! shuffle_lines {
        ($store:literal, $from:ident, $to:ident, $bytes:ident, $shuffles:ident) => {{
            let whole = $bytes & !(LINE - 1);
            if whole > 0 {
                // SAFETY: reads one mask, and reads and writes `whole` bytes, which the caller guarantees
                // to exist. The caller also guarantees the alignment that the store needs, and that
                // the processor has the instruction.
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
                        masks = in(reg) $shuffles.masks.as_ptr(),
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

    /// Copies all whole cache lines, and shuffles two lanes at a time by the first mask. Returns the number of
    /// bytes copied.
    ///
    /// # Safety
    /// As for [`copy_shuffled`]. The processor has AVX2.
    unsafe fn shuffle_wide(
        from: *const u8,
        to: *mut u8,
        bytes: usize,
        shuffles: &Shuffles,
    ) -> usize {
        let whole = bytes & !(LINE - 1);
        if whole > 0 {
            // SAFETY: reads one mask, and reads and writes `whole` bytes, which the caller guarantees to
            // exist. `vzeroupper` clears a part of all vector registers, and all are declared as changed.
            unsafe {
                asm!(
                    "vbroadcasti128 ymm0, [rdx]",
                    "2:",
                    "vmovdqu ymm1, [rdi + rax]",
                    "vmovdqu ymm2, [rdi + rax + 32]",
                    "vpshufb ymm1, ymm1, ymm0",
                    "vpshufb ymm2, ymm2, ymm0",
                    "vmovdqu [rsi + rax], ymm1",
                    "vmovdqu [rsi + rax + 32], ymm2",
                    "add rax, 64",
                    "cmp rax, rcx",
                    "jb 2b",
                    "vzeroupper",
                    in("rdi") from,
                    in("rsi") to,
                    in("rdx") shuffles.masks.as_ptr(),
                    in("rcx") whole,
                    inout("rax") 0_usize => _,
                    clobber_abi("sysv64"),
                    options(nostack),
                );
            }
        }
        whole
    }

    /// Copies lanes, and shuffles each lane by its mask. `$bytes` is a multiple of [`LANE_BYTES`].
    macro_rules! shuffle_lanes {
        ($store:literal, $from:ident, $to:ident, $bytes:ident, $shuffles:ident, $lane:ident) => {
            if $bytes > 0 {
                // SAFETY: as in `shuffle_lines`, but reads all masks.
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
                        masks = in(reg) $shuffles.masks.as_ptr(),
                        mask = inout(reg) $lane % $shuffles.count * LANE_BYTES => _,
                        period = in(reg) $shuffles.count * LANE_BYTES,
                        at = inout(reg) 0_usize => _,
                        whole = in(reg) $bytes,
                        a = out(xmm_reg) _,
                        options(nostack),
                    );
                }
            }
        };
    }

    /// Returns whether the processor has the shuffle instruction. All x86-64 processors since 2011 have it.
    pub(in crate::sys) fn can_shuffle() -> bool {
        std::is_x86_feature_detected!("ssse3")
    }

    /// Copies bytes, and shuffles each lane. `lane` is the number of the first lane, and selects the mask of
    /// that lane. If `streaming` is true, writes past the caches.
    ///
    /// # Safety
    /// `bytes` is a multiple of [`LANE_BYTES`]. `bytes` bytes may be read at `from` and written at `to`. The
    /// two ranges are the same or do not overlap. (`Shuffles` only exist if the processor has the
    /// instruction.)
    #[inline(never)]
    pub(in crate::sys) unsafe fn copy_shuffled(
        from: *const u8,
        to: *mut u8,
        bytes: usize,
        shuffles: &Shuffles,
        lane: usize,
        streaming: bool,
    ) {
        let before = to.align_offset(LINE).min(bytes);
        if !streaming || !before.is_multiple_of(LANE_BYTES) {
            // SAFETY: guaranteed by the caller.
            return unsafe { shuffle_cached(from, to, bytes, shuffles, lane) };
        }
        // SAFETY: `before` is at most `bytes`.
        unsafe { shuffle_cached(from, to, before, shuffles, lane) };
        let lane = lane + before / LANE_BYTES;
        // SAFETY: as above.
        let from = unsafe { from.add(before) };
        // SAFETY: as above. The new `to` is aligned to a line, unless no bytes are left.
        let to = unsafe { to.add(before) };
        let bytes = bytes - before;
        if shuffles.count == 1 {
            let done = shuffle_lines!("movntdq", from, to, bytes, shuffles);
            // SAFETY: `done` is at most `bytes`.
            let from = unsafe { from.add(done) };
            // SAFETY: as above.
            let to = unsafe { to.add(done) };
            // SAFETY: as above.
            unsafe { shuffle_cached(from, to, bytes - done, shuffles, lane) };
        } else {
            shuffle_lanes!("movntdq", from, to, bytes, shuffles, lane);
        }
        // SAFETY: see `copy_streaming`.
        unsafe { asm!("sfence", options(nostack, preserves_flags)) };
    }

    /// Copies through the caches, and shuffles each lane.
    ///
    /// # Safety
    /// As for [`copy_shuffled`].
    unsafe fn shuffle_cached(
        from: *const u8,
        to: *mut u8,
        bytes: usize,
        shuffles: &Shuffles,
        lane: usize,
    ) {
        let mut done = 0;
        if shuffles.count == 1 {
            done = if std::is_x86_feature_detected!("avx2") {
                // SAFETY: the caller guarantees the ranges, and the processor has AVX2.
                unsafe { shuffle_wide(from, to, bytes, shuffles) }
            } else {
                shuffle_lines!("movdqu", from, to, bytes, shuffles)
            };
        }
        // SAFETY: `done` is at most `bytes`.
        let from = unsafe { from.add(done) };
        // SAFETY: as above.
        let to = unsafe { to.add(done) };
        let bytes = bytes - done;
        shuffle_lanes!("movdqu", from, to, bytes, shuffles, lane);
    }

    /// Copies through the caches.
    ///
    /// # Safety
    /// `bytes` bytes may be read at `from` and written at `to`.
    #[inline(never)]
    pub(in crate::sys) unsafe fn copy_cached(from: *const u8, to: *mut u8, bytes: usize) {
        let done = copy_whole!("movdqu", from, to, bytes);
        // SAFETY: guaranteed by the caller.
        unsafe { copy_rest(from, to, done, bytes) };
    }

    /// Copies past the caches, with streaming stores.
    ///
    /// # Safety
    /// As for [`copy_cached`].
    #[inline(never)]
    pub(in crate::sys) unsafe fn copy_streaming(from: *const u8, to: *mut u8, bytes: usize) {
        let before = to.align_offset(LINE).min(bytes);
        // SAFETY: `before` is at most `bytes`.
        unsafe { copy_rest(from, to, 0, before) };
        // SAFETY: as above.
        let from = unsafe { from.add(before) };
        // SAFETY: as above. If a whole line is left, the new `to` is aligned to a line.
        let to = unsafe { to.add(before) };
        let bytes = bytes - before;
        let done = copy_whole!("movntdq", from, to, bytes);
        // SAFETY: guaranteed by the caller.
        unsafe { copy_rest(from, to, done, bytes) };
        // SAFETY: a fence. It orders the streaming stores before all later stores, such as the store of the
        // word that announces a message. No other instruction orders the streaming stores.
        unsafe { asm!("sfence", options(nostack, preserves_flags)) };
    }
}

/// The C library's copy, for processors on which nothing faster has been measured.
#[cfg(not(target_arch = "x86_64"))]
mod portable {
    use core::ptr;

    /// Copies bytes.
    ///
    /// # Safety
    /// `bytes` bytes may be read at `from` and written at `to`.
    pub(in crate::sys) unsafe fn copy_cached(from: *const u8, to: *mut u8, bytes: usize) {
        // SAFETY: guaranteed by the caller; the ranges may overlap.
        unsafe { ptr::copy(from, to, bytes) };
        // SAFETY: the assembly code is empty; see `fetch`.
        unsafe { core::arch::asm!("/* {0} */", in(reg) to, options(nostack, preserves_flags)) };
    }

    /// Copies bytes.
    ///
    /// # Safety
    /// As for [`copy_cached`].
    pub(in crate::sys) unsafe fn copy_streaming(from: *const u8, to: *mut u8, bytes: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe { copy_cached(from, to, bytes) };
    }

    /// Returns false. On these processors, the loops that the compiler generates reorder the bytes.
    pub(in crate::sys) const fn can_shuffle() -> bool {
        false
    }

    /// Does nothing: no `Shuffles` exist here.
    ///
    /// # Safety
    /// Always safe.
    pub(in crate::sys) const unsafe fn copy_shuffled(
        _: *const u8,
        _: *mut u8,
        _: usize,
        _: &super::Shuffles,
        _: usize,
        _: bool,
    ) {
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{Space, Window};

    #[test]
    fn copies_write_all_bytes_and_none_outside() {
        let source: Vec<u8> = (0..=255).cycle().take(400).collect();
        for start in [0, 1, 15, 16, 31, 63, 64] {
            for bytes in (0..200).chain([256, 300]) {
                for streaming in [false, true] {
                    let mut memory = vec![0xaa; 500];
                    let to = Space::of_mut(&mut memory).part(start, bytes).unwrap();
                    let from = Window::from(&source[start / 2..start / 2 + bytes]);
                    if streaming {
                        to.copy_streaming(from)
                    } else {
                        to.copy_cached(from)
                    }
                    let copied = &memory[start..start + bytes];
                    assert_eq!(copied, &source[start / 2..start / 2 + bytes]);
                    let outside = memory[..start].iter().chain(&memory[start + bytes..]);
                    assert!(outside.copied().all(|byte| byte == 0xaa), "{bytes} at {start}");
                }
            }
        }
        // The copy stops at the end of the destination.
        let mut memory = [0; 70];
        Space::of_mut(&mut memory).copy_streaming(Window::from(&source[..]));
        assert_eq!(memory, source[..70]);
    }

    /// The bytes of shuffled lanes equal the reordered bytes, at any address and with any first lane. A copy
    /// from a range to the same range also shuffles correctly.
    #[test]
    fn shuffled_lanes_equal_reordered_bytes() {
        let each =
            |bytes: &mut [u8]| bytes.as_chunks_mut::<4>().0.iter_mut().for_each(|n| n.reverse());
        // In each group of 24 bytes, one number of eight bytes and two numbers of four bytes are reversed.
        // The other eight bytes keep their order.
        let mixed = |bytes: &mut [u8]| {
            for value in bytes.as_chunks_mut::<24>().0 {
                value[..8].reverse();
                value[12..16].reverse();
                value[20..].reverse();
            }
        };
        let source: Vec<u8> = (0..=255).cycle().take(1536).collect();
        // This order needs the largest number of masks, and no two of them are equal.
        let long = |bytes: &mut [u8]| {
            for value in bytes.as_chunks_mut::<256>().0 {
                for (n, lane) in value.as_chunks_mut::<16>().0.iter_mut().enumerate() {
                    lane.rotate_left(n);
                }
            }
        };
        for (unit, reorder, lanes) in
            [(4, each as fn(&mut [u8]), 1), (24, mixed, 3), (256, long, 16)]
        {
            let Some(shuffles) = Shuffles::of(unit, reorder) else {
                assert!(!can_shuffle(), "units of {unit} bytes");
                continue;
            };
            assert_eq!(shuffles.bytes(), 16 * lanes);
            let mut reordered = source.clone();
            reorder(&mut reordered);
            for (lane, start) in
                [(0, 0), (0, 16), (0, 32), (1, 48), (4, 16), (4, 32), (2, 7), (5, 64)]
            {
                for bytes in [0, 15, 16, 48, 64, 200, 700, 1000] {
                    for streaming in [false, true] {
                        let mut memory = vec![0xaa; 1200];
                        let to = Space::of_mut(&mut memory).part(start, bytes).unwrap();
                        let from = Window::from(&source[16 * lane..16 * lane + bytes]);
                        let done = to.copy_shuffled(from, &shuffles, lane, streaming);
                        assert_eq!(done, bytes / 16 * 16);
                        let expected = &reordered[16 * lane..16 * lane + done];
                        assert!(&memory[start..start + done] == expected, "{unit} {lane} {bytes}");
                        let outside = memory[..start].iter().chain(&memory[start + done..]);
                        assert!(outside.copied().all(|byte| byte == 0xaa));
                    }
                }
            }
            let mut memory = source[..960].to_vec();
            let space = Space::of_mut(&mut memory);
            space.copy_shuffled(space.window(), &shuffles, 0, false);
            assert_eq!(memory, reordered[..960]);
        }
        for unit in [2, 4, 8, 16] {
            let reorder: fn(&mut [u8]) = match unit {
                2 => |bytes| bytes.chunks_mut(2).for_each(<[u8]>::reverse),
                4 => |bytes| bytes.chunks_mut(4).for_each(<[u8]>::reverse),
                8 => |bytes| bytes.chunks_mut(8).for_each(<[u8]>::reverse),
                _ => |bytes| bytes.chunks_mut(16).for_each(<[u8]>::reverse),
            };
            let (made, reversing) = (Shuffles::of(unit, reorder), Shuffles::reversing(unit));
            let first = |shuffles: &Shuffles| (shuffles.count, shuffles.masks[0].0);
            assert_eq!(reversing.map(first), made.as_ref().map(first));
        }
        assert!([0, 1, 3, 32].into_iter().all(|unit| Shuffles::reversing(unit).is_none()));
        // Some groups of 12 bytes span two lanes. Groups of 17 * 16 + 1 bytes would need too many masks.
        assert!(Shuffles::of(12, |bytes| bytes.chunks_mut(12).for_each(<[u8]>::reverse)).is_none());
        assert!(Shuffles::of(17 * 16 + 1, each).is_none());
        // The first lane needs the first byte of the second lane.
        assert!(Shuffles::of(32, |bytes| bytes[0] = bytes[16]).is_none());
    }
}
