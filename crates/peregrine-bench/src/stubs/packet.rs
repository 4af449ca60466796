//! Represents a message that a stub writes or reads, and the two directions in which stubs move values.

use std::sync::atomic::{Ordering, compiler_fence};

/// The rest of a message, from the current position to the end of the message's memory.
#[derive(Debug)]
pub(crate) struct Packet<'a> {
    rest: &'a mut [u8],
}

impl<'a> Packet<'a> {
    pub(crate) const fn new(bytes: &'a mut [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Calls `moves` with a local copy of the position, so that the position stays in registers across any
    /// number of [fences](keep_separate).
    #[inline(always)]
    pub(crate) fn locally(&mut self, moves: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        let mut local = Self { rest: core::mem::take(&mut self.rest) };
        moves(&mut local)?;
        self.rest = local.rest;
        Some(())
    }

    /// Returns the number of bytes that are left.
    #[inline(always)]
    pub(crate) const fn left(&self) -> usize {
        self.rest.len()
    }

    /// Returns the next `bytes` bytes, or `None` if fewer are left.
    #[inline(always)]
    pub(crate) fn next(&mut self, bytes: usize) -> Option<&'a mut [u8]> {
        let (place, rest) = core::mem::take(&mut self.rest).split_at_mut_checked(bytes)?;
        self.rest = rest;
        Some(place)
    }

    /// Returns the next four bytes, or `None` if fewer are left.
    #[inline(always)]
    pub(crate) fn word(&mut self) -> Option<&'a mut [u8; 4]> {
        let (place, rest) = core::mem::take(&mut self.rest).split_first_chunk_mut()?;
        self.rest = rest;
        Some(place)
    }
}

/// Prevents the compiler from combining several moves. The compiler does not merge two moves into one of
/// twice the width, and does not vectorize a loop of moves. No instruction is emitted.
#[inline(always)]
pub(crate) fn keep_separate() {
    compiler_fence(Ordering::SeqCst);
}

/// The direction in which values are moved: to the message or from it.
pub(crate) trait Way: 'static {
    /// Moves a whole slice. Both slices have the same length.
    fn block(packet: &mut [u8], user: &mut [u8]);

    /// Moves a byte.
    fn byte(packet: &mut u8, user: &mut u8);
}

/// The direction from the user's values to the message.
#[derive(Debug)]
pub(crate) struct Marshal;

/// The direction from the message to the user's values.
#[derive(Debug)]
pub(crate) struct Unmarshal;

impl Way for Marshal {
    #[inline(always)]
    fn block(packet: &mut [u8], user: &mut [u8]) {
        packet.copy_from_slice(user);
    }

    #[inline(always)]
    fn byte(packet: &mut u8, user: &mut u8) {
        *packet = *user;
    }
}

impl Way for Unmarshal {
    #[inline(always)]
    fn block(packet: &mut [u8], user: &mut [u8]) {
        user.copy_from_slice(packet);
    }

    #[inline(always)]
    fn byte(packet: &mut u8, user: &mut u8) {
        *user = *packet;
    }
}
