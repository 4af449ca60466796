//! Implements the five ways in which stubs move items. A stub moves an item byte by byte or as a whole, and
//! it does this inline or by a procedure call. In the fifth way, a stub moves adjacent items as one block.
//!
//! An item is an integer of four bytes. To move it, a stub checks whether the message has space for it (or
//! contains further bytes), moves the item, and advances in the message. The stubs of the paper (see
//! `mod.rs`) did the same. In all designs, text is moved as a count and a block.

use core::marker::PhantomData;
use std::hint::black_box;

use super::packet::{Packet, Way, keep_separate};

/// A way to move values of each shape. Every function returns `None` if the message is too short for the
/// values, or is invalid.
pub(crate) trait Mover {
    /// Whether adjacent items are moved as one block.
    const BLOCKS: bool = false;

    /// Moves one integer.
    fn item(&self, packet: &mut Packet<'_>, user: &mut i32) -> Option<()>;

    /// Moves adjacent bytes.
    fn block(&self, packet: &mut Packet<'_>, user: &mut [u8]) -> Option<()>;

    /// Moves adjacent integers.
    #[inline(always)]
    fn items(&self, packet: &mut Packet<'_>, user: &mut [i32]) -> Option<()> {
        packet.locally(|packet| user.iter_mut().try_for_each(|one| self.item(packet, one)))
    }

    /// Moves one of several records.
    #[inline(always)]
    fn record(&self, packet: &mut Packet<'_>, user: &mut [i32; 3]) -> Option<()> {
        let [a, b, c] = user;
        self.item(packet, a)?;
        self.item(packet, b)?;
        self.item(packet, c)
    }

    /// Moves adjacent records.
    #[inline(always)]
    fn records(&self, packet: &mut Packet<'_>, user: &mut [[i32; 3]]) -> Option<()> {
        for one in user {
            self.record(packet, one)?;
        }
        Some(())
    }

    /// Moves the number of elements. A message that contains another number is invalid.
    #[inline(always)]
    fn count(&self, packet: &mut Packet<'_>, count: usize) -> Option<()> {
        let mut count_read = count as i32;
        self.item(packet, &mut count_read)?;
        (count_read == count as i32).then_some(())
    }

    /// Moves text that has the length of the user's buffer.
    #[inline(always)]
    fn text(&self, packet: &mut Packet<'_>, user: &mut [u8]) -> Option<()> {
        self.count(packet, user.len())?;
        self.block(packet, user)
    }
}

/// Moves an item byte by byte, as a swap of the byte order would.
#[inline(always)]
fn by_byte<W: Way>(packet: &mut Packet<'_>, user: &mut i32) -> Option<()> {
    let [p0, p1, p2, p3] = packet.word()?;
    let [u0, u1, u2, u3] = bytemuck::bytes_of_mut(user).first_chunk_mut::<4>()?;
    W::byte(p0, u0);
    keep_separate();
    W::byte(p1, u1);
    keep_separate();
    W::byte(p2, u2);
    keep_separate();
    W::byte(p3, u3);
    keep_separate();
    Some(())
}

#[inline(always)]
fn as_one<W: Way>(packet: &mut Packet<'_>, user: &mut i32) -> Option<()> {
    W::block(packet.word()?, bytemuck::bytes_of_mut(user));
    keep_separate();
    Some(())
}

#[inline(always)]
fn as_block<W: Way>(packet: &mut Packet<'_>, user: &mut [u8]) -> Option<()> {
    W::block(packet.next(user.len())?, user);
    Some(())
}

/// Moves items inline, byte by byte.
#[derive(Debug)]
pub(crate) struct InlineByte<W>(PhantomData<W>);

/// Moves items inline, each item as a whole.
#[derive(Debug)]
pub(crate) struct InlineItem<W>(PhantomData<W>);

/// Moves adjacent data as one block, and a single value as an item.
#[derive(Debug)]
pub(crate) struct Block<W>(PhantomData<W>);

/// Moves values by procedures that are called through a table. The same stub works with any [`Procedures`].
#[derive(Debug)]
pub(crate) struct Procedural<W> {
    procedures: &'static Procedures,
    way: PhantomData<W>,
}

/// A procedure that moves one integer.
type Item = fn(&mut Packet<'_>, &mut i32) -> Option<()>;

/// The procedures with which a stub is linked.
#[derive(Debug)]
pub(crate) struct Procedures {
    item: Item,
    record: fn(&Self, &mut Packet<'_>, &mut [i32; 3]) -> Option<()>,
}

/// Moves each field of a record by a procedure call. A stub makes one more procedure call for each record:
/// the call of this function.
#[inline(never)]
fn record_by_procedures(
    procedures: &Procedures,
    packet: &mut Packet<'_>,
    user: &mut [i32; 3],
) -> Option<()> {
    let [a, b, c] = user;
    (procedures.item)(packet, a)?;
    (procedures.item)(packet, b)?;
    (procedures.item)(packet, c)
}

#[inline(never)]
fn called_by_byte<W: Way>(packet: &mut Packet<'_>, user: &mut i32) -> Option<()> {
    by_byte::<W>(packet, user)
}

#[inline(never)]
fn called_as_one<W: Way>(packet: &mut Packet<'_>, user: &mut i32) -> Option<()> {
    as_one::<W>(packet, user)
}

/// Uses its arguments, and moves nothing.
#[inline(never)]
fn called_for_nothing(packet: &mut Packet<'_>, user: &mut i32) -> Option<()> {
    keep_separate();
    black_box(&packet);
    black_box(&user);
    Some(())
}

/// Advances in the message, and moves nothing.
#[inline(never)]
fn called_to_advance(packet: &mut Packet<'_>, user: &mut i32) -> Option<()> {
    black_box(packet.word()?);
    black_box(&user);
    Some(())
}

impl<W: Way> InlineByte<W> {
    pub(crate) const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<W: Way> InlineItem<W> {
    pub(crate) const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<W: Way> Block<W> {
    pub(crate) const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<W: Way> Procedural<W> {
    const BY_BYTE: Procedures =
        Procedures { item: called_by_byte::<W>, record: record_by_procedures };
    const AS_ONE: Procedures =
        Procedures { item: called_as_one::<W>, record: record_by_procedures };
    const NOTHING: Procedures =
        Procedures { item: called_for_nothing, record: record_by_procedures };

    const ADVANCE: Procedures =
        Procedures { item: called_to_advance, record: record_by_procedures };

    fn linked(procedures: &'static Procedures) -> Self {
        // The compiler must not know the procedures. Otherwise the compiler could call them directly.
        Self { procedures: black_box(procedures), way: PhantomData }
    }

    pub(crate) fn by_byte() -> Self {
        Self::linked(&Self::BY_BYTE)
    }

    pub(crate) fn as_one() -> Self {
        Self::linked(&Self::AS_ONE)
    }

    /// Returns a mover whose procedures advance the position in the message, and move nothing.
    pub(crate) fn advance() -> Self {
        Self::linked(&Self::ADVANCE)
    }

    /// Returns a mover whose procedures do nothing. This mover shows the cost of procedure calls.
    pub(crate) fn nothing() -> Self {
        Self::linked(&Self::NOTHING)
    }
}

impl<W: Way> Mover for InlineByte<W> {
    #[inline(always)]
    fn item(&self, packet: &mut Packet<'_>, user: &mut i32) -> Option<()> {
        by_byte::<W>(packet, user)
    }

    #[inline(always)]
    fn block(&self, packet: &mut Packet<'_>, user: &mut [u8]) -> Option<()> {
        as_block::<W>(packet, user)
    }
}

impl<W: Way> Mover for InlineItem<W> {
    #[inline(always)]
    fn item(&self, packet: &mut Packet<'_>, user: &mut i32) -> Option<()> {
        as_one::<W>(packet, user)
    }

    #[inline(always)]
    fn block(&self, packet: &mut Packet<'_>, user: &mut [u8]) -> Option<()> {
        as_block::<W>(packet, user)
    }
}

impl<W: Way> Mover for Procedural<W> {
    #[inline(always)]
    fn item(&self, packet: &mut Packet<'_>, user: &mut i32) -> Option<()> {
        (self.procedures.item)(packet, user)
    }

    #[inline(always)]
    fn items(&self, packet: &mut Packet<'_>, user: &mut [i32]) -> Option<()> {
        user.iter_mut().try_for_each(|one| self.item(packet, one))
    }

    #[inline(always)]
    fn record(&self, packet: &mut Packet<'_>, user: &mut [i32; 3]) -> Option<()> {
        (self.procedures.record)(self.procedures, packet, user)
    }

    #[inline(always)]
    fn block(&self, packet: &mut Packet<'_>, user: &mut [u8]) -> Option<()> {
        as_block::<W>(packet, user)
    }
}

impl<W: Way> Mover for Block<W> {
    const BLOCKS: bool = true;

    #[inline(always)]
    fn item(&self, packet: &mut Packet<'_>, user: &mut i32) -> Option<()> {
        as_one::<W>(packet, user)
    }

    #[inline(always)]
    fn block(&self, packet: &mut Packet<'_>, user: &mut [u8]) -> Option<()> {
        as_block::<W>(packet, user)
    }

    #[inline(always)]
    fn items(&self, packet: &mut Packet<'_>, user: &mut [i32]) -> Option<()> {
        self.block(packet, bytemuck::cast_slice_mut(user))
    }

    #[inline(always)]
    fn records(&self, packet: &mut Packet<'_>, user: &mut [[i32; 3]]) -> Option<()> {
        self.block(packet, bytemuck::cast_slice_mut(user))
    }
}

/// Expands to an array of the stubs `$stub`, each with the mover for `$copying`. A `$stub` is a function that
/// takes a mover, the user's values and the message.
macro_rules! with_mover {
    ($copying:expr, $way:ty, [$($stub:ident),*]) => {{
        use crate::cost::Copying;
        use $crate::stubs::copying::{Block, InlineByte, InlineItem, Procedural};
        let stubs: [$crate::stubs::Stub; 3] = match $copying {
            Copying::InlineByte => {
                [$(|user, packet| $stub(&InlineByte::<$way>::new(), user, packet)),*]
            }
            Copying::InlineItem => {
                [$(|user, packet| $stub(&InlineItem::<$way>::new(), user, packet)),*]
            }
            Copying::ProceduralByte => {
                [$(|user, packet| $stub(&Procedural::<$way>::by_byte(), user, packet)),*]
            }
            Copying::ProceduralItem => {
                [$(|user, packet| $stub(&Procedural::<$way>::as_one(), user, packet)),*]
            }
            Copying::Block => [$(|user, packet| $stub(&Block::<$way>::new(), user, packet)),*],
        };
        stubs
    }};
}
pub(crate) use with_mover;

/// A mover that moves nothing. It shows the time that the rest of a stub takes.
#[derive(Debug)]
pub(crate) struct Nothing;

impl Mover for Nothing {
    #[inline(always)]
    fn item(&self, _: &mut Packet<'_>, user: &mut i32) -> Option<()> {
        // `black_box` makes the stub find the value in the user's memory, although nothing is moved.
        black_box(user);
        Some(())
    }

    #[inline(always)]
    fn block(&self, _: &mut Packet<'_>, _: &mut [u8]) -> Option<()> {
        Some(())
    }

    #[inline(always)]
    fn items(&self, _: &mut Packet<'_>, user: &mut [i32]) -> Option<()> {
        black_box(user);
        Some(())
    }
}
