//! `Nodes` counts the nodes of a linked list. Linked lists are encoded, decoded and freed in a loop.

use super::{Invalid, Overflow, Reader, Representation};
use crate::limits;

/// Counts the nodes of a linked list. The code that `#[derive(Value)]` generates uses it.
#[derive(Debug)]
pub struct Nodes {
    left: usize,
}

impl Nodes {
    /// Returns a counter that has counted the first node. `is_list` is whether a field of the type is
    /// declared `#[list]`. Such a type frees its nodes in a loop, so any number of nodes is allowed. The
    /// nodes of other types are freed by code that the compiler generates. This code needs stack for each
    /// node, so their number is limited.
    #[inline]
    #[must_use]
    pub const fn new(is_list: bool) -> Self {
        Self { left: if is_list { usize::MAX } else { limits::LIST_NODES_MAX - 1 } }
    }

    /// Counts one more node of a list that is encoded.
    ///
    /// # Errors
    /// If the list has more than [`LIST_NODES_MAX`](limits::LIST_NODES_MAX) nodes, and its type has no
    /// `#[list]`.
    #[inline]
    pub fn encoded(&mut self) -> Result<(), Overflow> {
        self.left = self.left.checked_sub(1).ok_or(Overflow::LongList)?;
        Ok(())
    }

    /// Counts one more node of a list that is decoded.
    ///
    /// # Errors
    /// As for [`encoded`](Self::encoded). Also fails if the head has too few bytes for the nodes.
    #[inline]
    pub fn decoded<R: Representation>(&mut self, head: &mut Reader<'_, R>) -> Result<(), Invalid> {
        self.taken()?;
        head.makes_one()
    }

    /// Counts one more node of a list that is taken from received bytes.
    ///
    /// # Errors
    /// As for [`encoded`](Self::encoded).
    #[inline]
    pub fn taken(&mut self) -> Result<(), Invalid> {
        self.left = self.left.checked_sub(1).ok_or(Invalid::LongList)?;
        Ok(())
    }
}

/// A linked list that frees its nodes in a loop. `#[derive(Value)]` implements it for a type with `#[list]`.
#[diagnostic::on_unimplemented(
    message = "`#[list]` needs `#[derive(Value)]` on `{Self}`",
    label = "would be freed by recursion",
    note = "`#[derive(peregrine::Value)]` generates the code that frees the nodes of a long list in a loop"
)]
pub trait FreesInALoop {}

/// Writes that a list is too long, and what the user can do.
pub(super) fn too_long(f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
    let most = limits::LIST_NODES_MAX;
    write!(
        f,
        "a linked list of more than {most} nodes: declare its last field `#[list]` to allow any length"
    )
}
