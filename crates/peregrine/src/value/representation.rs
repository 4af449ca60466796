//! `Representation` defines how values become bytes on a binding. There are two representations. Stubs are
//! compiled for each of them. So a stub need not check at run time which representation it uses.

use core::fmt::Debug;

mod sealed {
    pub trait Sealed {}
}

/// How values become bytes. The representation is chosen when a client binds. Stubs are compiled for each
/// representation.
///
/// A server always reads and writes [`Native`] values. The client converts calls and results (Peregrine,
/// section 3).
pub trait Representation: sealed::Sealed + Copy + Debug + Send + Sync + 'static {
    /// Whether numbers are converted to the other byte order.
    const SWAPPED: bool;
}

/// The layout of this machine. Nothing is converted.
#[derive(Clone, Copy, Debug)]
pub struct Native;

/// The layout of a machine with the other byte order. Every number is converted.
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

/// The order of the bytes of a number.
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
    /// The least significant byte comes first.
    Little,
    /// The most significant byte comes first.
    Big,
}

impl ByteOrder {
    /// The byte order of this machine.
    pub const NATIVE: Self = if cfg!(target_endian = "little") { Self::Little } else { Self::Big };

    /// Returns whether this is the byte order of this machine.
    #[inline]
    pub const fn is_native(self) -> bool {
        matches!((self, Self::NATIVE), (Self::Little, Self::Little) | (Self::Big, Self::Big))
    }

    /// Returns the other byte order.
    pub const fn other(self) -> Self {
        match self {
            Self::Little => Self::Big,
            Self::Big => Self::Little,
        }
    }

    /// Returns the number that stands for the byte order in messages: 1 or 2.
    pub const fn number(self) -> u32 {
        match self {
            Self::Little => 1,
            Self::Big => 2,
        }
    }

    /// Returns the byte order that has this number, or `None` if there is none.
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Little),
            2 => Some(Self::Big),
            _ => None,
        }
    }
}
