//! A message in the making, and the two ways in which values go between it and the user.

use std::sync::atomic::{Ordering, compiler_fence};

/// What is left of a buffer.
#[derive(Debug)]
pub(crate) struct Packet<'a> {
    rest: &'a mut [u8],
}

impl<'a> Packet<'a> {
    pub(crate) const fn new(bytes: &'a mut [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Moves by way of a copy of the position that nobody else sees, so that it stays in registers however
    /// many [fences](apart) there are.
    #[inline(always)]
    pub(crate) fn locally(&mut self, moves: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        let mut local = Self { rest: core::mem::take(&mut self.rest) };
        moves(&mut local)?;
        self.rest = local.rest;
        Some(())
    }

    /// How many bytes are left.
    #[inline(always)]
    pub(crate) const fn left(&self) -> usize {
        self.rest.len()
    }

    /// The next so many bytes; `None` if there are not as many.
    #[inline(always)]
    pub(crate) fn next(&mut self, bytes: usize) -> Option<&'a mut [u8]> {
        let (place, rest) = core::mem::take(&mut self.rest).split_at_mut_checked(bytes)?;
        self.rest = rest;
        Some(place)
    }

    /// The next four bytes; `None` if there are not as many.
    #[inline(always)]
    pub(crate) fn word(&mut self) -> Option<&'a mut [u8; 4]> {
        let (place, rest) = core::mem::take(&mut self.rest).split_first_chunk_mut()?;
        self.rest = rest;
        Some(place)
    }
}

/// Keeps the compiler from making one of what are to be several moves: neither are two of them merged
/// into one of twice the width, nor is a loop of them turned into vectors. There is no instruction for it.
#[inline(always)]
pub(crate) fn apart() {
    compiler_fence(Ordering::SeqCst);
}

/// To the message or from it.
pub(crate) trait Way: 'static {
    /// Moves as many bytes as either has.
    fn block(packet: &mut [u8], user: &mut [u8]);

    /// Moves a byte.
    fn byte(packet: &mut u8, user: &mut u8);
}

/// From the user to the message.
#[derive(Debug)]
pub(crate) struct Marshal;

/// From the message to the user.
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
