//! `Representation`: how values become bytes on a binding. There are two, and stubs are compiled once
//! for each, so that neither asks whether it is the other.

use core::fmt::Debug;

mod sealed {
    pub trait Sealed {}
}

/// How values become bytes: decided when a client binds, and known at compile time in each stub.
///
/// A server always reads and writes [`Native`] values. The client converts, both ways (Peregrine,
/// section 3.2).
pub trait Representation: sealed::Sealed + Copy + Debug + Send + Sync + 'static {
    /// Whether numbers are turned to the other byte order on their way.
    const SWAPPED: bool;
}

/// As this machine lays values out: nothing is converted.
#[derive(Clone, Copy, Debug)]
pub struct Native;

/// As a machine of the other byte order lays them out: every number is turned round.
#[derive(Clone, Copy, Debug)]
pub struct Swapped;

impl sealed::Sealed for Native {}
impl sealed::Sealed for Swapped {}

impl Representation for Native {
    const SWAPPED: bool = false;
}

impl Representation for Swapped {
    const SWAPPED: bool = true;
}

/// Which byte of a number comes first.
///
/// ```
/// use peregrine::value::ByteOrder;
///
/// assert!(ByteOrder::NATIVE.is_native());
/// assert_eq!(ByteOrder::from_number(ByteOrder::Big.number()), Some(ByteOrder::Big));
/// assert_eq!(ByteOrder::Big.other(), ByteOrder::Little);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// The least.
    Little,
    /// The most significant.
    Big,
}

impl ByteOrder {
    /// That of this machine.
    pub const NATIVE: Self = if cfg!(target_endian = "little") { Self::Little } else { Self::Big };

    /// Whether it is that of this machine.
    #[inline]
    pub const fn is_native(self) -> bool {
        matches!((self, Self::NATIVE), (Self::Little, Self::Little) | (Self::Big, Self::Big))
    }

    /// The one that it is not.
    pub const fn other(self) -> Self {
        match self {
            Self::Little => Self::Big,
            Self::Big => Self::Little,
        }
    }

    /// The number by which it is told: 1 or 2.
    pub const fn number(self) -> u32 {
        match self {
            Self::Little => 1,
            Self::Big => 2,
        }
    }

    /// The byte order with this number.
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Little),
            2 => Some(Self::Big),
            _ => None,
        }
    }
}
