//! Holds the user's values of the three types of the study.

/// The number of elements of the array of integers.
pub(crate) const INTEGERS: usize = 256;
/// The number of elements of the array of records.
pub(crate) const RECORDS: usize = 86;
/// The number of bytes of the text.
pub(crate) const TEXT: usize = 1024;

/// One of the three data types. Its number is the position of its procedure in
/// [`Three`](super::shipped::Three).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    /// An integer.
    One,
    /// An array of 256 integers.
    Array,
    /// Three integers, an array of 256 integers, an array of 86 records of three integers, and a record of an
    /// integer and a text.
    Structure,
}

impl Data {
    pub(crate) const ALL: [Self; 3] = [Self::One, Self::Array, Self::Structure];

    /// Returns the notation of the type in the paper.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::One => "(I)",
            Self::Array => "(A[256] I)",
            Self::Structure => "(Structure)",
        }
    }

    /// Returns the number of bytes of a message: the values, and a count before each array and text.
    #[cfg(test)]
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::One => 4,
            Self::Array => 4 + 4 * INTEGERS,
            Self::Structure => 3 * 4 + (4 + 4 * INTEGERS) + (4 + 12 * RECORDS) + 4 + (4 + TEXT),
        }
    }
}

/// A value that begins `BEFORE` bytes after the start of a page. A copy takes longer if the page offset of
/// its source is slightly larger than the page offset of its destination. So messages begin at the start of
/// pages. The data that is copied to them or from them begins in the middle of pages. The text is an
/// exception: it begins at the start of a page, because the place of the text in a message is near the middle
/// of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C, align(4096))]
pub(crate) struct Placed<T, const BEFORE: usize> {
    before: [u8; BEFORE],
    pub(crate) value: T,
}

/// The distance in bytes from the start of a page to its middle.
pub(crate) const MIDDLE: usize = 2048;

impl<T, const BEFORE: usize> Placed<T, BEFORE> {
    /// Allocates separate memory for the value, which begins `BEFORE` bytes after the start of a page.
    pub(crate) fn boxed(value: T) -> Box<Self> {
        Box::new(Self { before: [0; BEFORE], value })
    }
}

impl<T, const BEFORE: usize> core::ops::Deref for Placed<T, BEFORE> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T, const BEFORE: usize> core::ops::DerefMut for Placed<T, BEFORE> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

/// Memory for a message.
pub(crate) type Room = Box<Placed<[u8; PACKET], 0>>;

/// The size in bytes of memory that can hold a message of any of the types.
pub(crate) const PACKET: usize = 4096;

/// The sizes in bytes of the measured blocks.
pub(crate) const BLOCKS: [u64; 9] = [12, 32, 64, 128, 256, 512, 1024, 1032, 3108];

/// The user's values of the three types. Each part of the structure is a separate field, because a procedure
/// takes the parts as separate arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) one: i32,
    pub(crate) first: i32,
    pub(crate) array: Box<Placed<[i32; INTEGERS], MIDDLE>>,
    pub(crate) second: i32,
    pub(crate) records: Box<Placed<[[i32; 3]; RECORDS], MIDDLE>>,
    pub(crate) third: i32,
    pub(crate) label: i32,
    pub(crate) text: Box<Placed<[u8; TEXT], 0>>,
    /// The lengths of `array` and `records`: [`INTEGERS`] and [`RECORDS`]. As in a stub for a slice
    /// (`&[i32]`), the compiler does not know the lengths, so it cannot unroll the loops.
    pub(crate) elements: [usize; 2],
    /// The sizes in [`BLOCKS`], as variables that the compiler does not know.
    pub(crate) lengths: [usize; BLOCKS.len()],
    /// Bytes that are moved to or from a message as one block.
    pub(crate) flat: Box<Placed<[u8; PACKET], MIDDLE>>,
}

impl User {
    /// Returns values of the three types. Adjacent numbers and letters differ.
    pub(crate) fn full() -> Self {
        let number = |i: usize| (i as i32 + 1).wrapping_mul(0x0102_0305);
        Self {
            one: number(0),
            first: number(1),
            array: Placed::boxed(core::array::from_fn(|i| number(i + 10))),
            second: number(2),
            records: Placed::boxed(core::array::from_fn(|i| {
                core::array::from_fn(|j| number(1000 + 3 * i + j))
            })),
            third: number(3),
            label: number(4),
            text: Placed::boxed(core::array::from_fn(|i| b'a' + (i % 26) as u8)),
            elements: [INTEGERS, RECORDS],
            lengths: BLOCKS.map(|bytes| bytes as usize),
            flat: Placed::boxed([0; PACKET]),
        }
    }

    /// Returns the array as a slice.
    #[inline(always)]
    pub(crate) fn integers(&mut self) -> Option<&mut [i32]> {
        self.array.get_mut(..self.elements[0])
    }

    /// Returns the records as a slice.
    #[inline(always)]
    pub(crate) fn records(&mut self) -> Option<&mut [[i32; 3]]> {
        self.records.get_mut(..self.elements[1])
    }

    /// Returns values that are zero, into which a message can be unmarshalled.
    #[cfg(test)]
    pub(crate) fn empty() -> Self {
        Self {
            one: 0,
            first: 0,
            array: Placed::boxed([0; INTEGERS]),
            second: 0,
            records: Placed::boxed([[0; 3]; RECORDS]),
            third: 0,
            label: 0,
            text: Placed::boxed([0; TEXT]),
            elements: [INTEGERS, RECORDS],
            lengths: BLOCKS.map(|bytes| bytes as usize),
            flat: Placed::boxed([0; PACKET]),
        }
    }

    /// Returns the values of one type. All other values are zero.
    #[cfg(test)]
    pub(crate) fn only(&self, data: Data) -> Self {
        let mut only = Self::empty();
        match data {
            Data::One => only.one = self.one,
            Data::Array => only.array = self.array.clone(),
            Data::Structure => only = Self { one: 0, ..self.clone() },
        }
        only
    }
}
