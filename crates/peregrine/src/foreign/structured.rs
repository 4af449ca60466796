//! Implements `Foreign` for arrays, sequences, texts, options, boxes and tuples.

use super::numbers::fixed;
use super::{Bounded, Cells, Foreign, Input, Invalid, Optional, Output, Overflow};

impl<R: Cells> Foreign<R> for () {
    const LEAST: usize = 0;
    fixed!(R);

    #[inline]
    fn put_at(&self, _: &mut [u8]) {}

    #[inline]
    fn take_at(_: &[u8]) -> Result<Self, Invalid> {
        Ok(())
    }
}

/// Returns the number of bytes of `count` elements of fixed size. Returns `None` if the number is too large.
const fn bytes_of<R: Cells, T: Foreign<R>>(count: usize) -> Option<usize> {
    match T::PACKED {
        true => count.checked_next_multiple_of(R::CELL),
        false => count.checked_mul(T::LEAST),
    }
}

/// Appends elements, without their number.
#[inline]
pub(super) fn put_all<R: Cells, T: Foreign<R>>(
    values: &[T],
    to: &mut Output<'_, R>,
) -> Result<(), Overflow> {
    if !T::FIXED {
        return values.iter().try_for_each(|value| value.put(to));
    }
    let bytes = bytes_of::<R, T>(values.len()).ok_or(Overflow::Full)?;
    if let Some(cells) = to.claim(bytes)? {
        T::put_all_at(values, cells);
    }
    Ok(())
}

/// Takes `count` elements. Allocates memory only for elements that have arrived, not for a count that a peer
/// claims.
fn take_all<R: Cells, T: Foreign<R>>(
    count: usize,
    from: &mut Input<'_, R>,
) -> Result<Vec<T>, Invalid> {
    if T::FIXED && T::LEAST > 0 {
        let bytes = bytes_of::<R, T>(count).ok_or(Invalid::Short)?;
        return T::take_all_at(count, from.claim(bytes)?);
    }
    let there = from.rest().len();
    if count.checked_mul(T::LEAST).is_none_or(|least| least > there) {
        return Err(Invalid::Short);
    }
    let mut values = Vec::with_capacity(count.min(there / size_of::<T>().max(1)));
    for _ in 0..count {
        let before = from.rest().len();
        values.push(T::take(from)?);
        if from.rest().len() == before {
            from.empty()?;
        }
    }
    Ok(values)
}

/// Writes elements of fixed size one after the other.
#[inline]
pub(super) fn put_all_at<R: Cells, T: Foreign<R>>(values: &[T], cells: &mut [u8]) {
    if T::LEAST > 0 {
        let cells = cells.chunks_exact_mut(T::LEAST);
        values.iter().zip(cells).for_each(|(value, cells)| value.put_at(cells));
    }
}

/// Reads elements of fixed size one after the other. Their size is not zero.
#[inline]
pub(super) fn take_all_at<R: Cells, T: Foreign<R>>(
    count: usize,
    cells: &[u8],
) -> Result<Vec<T>, Invalid> {
    let mut values = Vec::with_capacity(count);
    for cells in cells.chunks_exact(T::LEAST) {
        values.push(T::take_at(cells)?);
    }
    Ok(values)
}

/// Makes an array. `take` returns the element with the given index. Fails with the first error of `take`.
#[inline]
pub(super) fn array<T, const N: usize>(
    mut take: impl FnMut(usize) -> Result<T, Invalid>,
) -> Result<[T; N], Invalid> {
    let mut failed = None;
    let mut slots: [Option<T>; N] = core::array::from_fn(|i| match failed {
        Some(_) => None,
        None => take(i).map_err(|invalid| failed = Some(invalid)).ok(),
    });
    match failed {
        Some(invalid) => Err(invalid),
        None => Ok(core::array::from_fn(|i| slots[i].take().expect("none failed"))),
    }
}

/// Removes the cells of a value of fixed size from the front of `cells`, and returns them. The generated code
/// for structs, and the code for tuples, use this function.
#[doc(hidden)]
#[inline(always)]
pub fn cells_of<'a, R: Cells, T: Foreign<R>>(cells: &mut &'a [u8]) -> &'a [u8] {
    cells.split_off(..T::LEAST).expect("the cells of all parts")
}

/// Like [`cells_of`], for cells that are written.
#[doc(hidden)]
#[inline(always)]
pub fn cells_of_mut<'a, R: Cells, T: Foreign<R>>(cells: &mut &'a mut [u8]) -> &'a mut [u8] {
    cells.split_off_mut(..T::LEAST).expect("the cells of all parts")
}

impl<R: Cells, T: Foreign<R>, const N: usize> Foreign<R> for [T; N] {
    const LEAST: usize = bytes_of::<R, T>(N).expect("an array that fits memory");
    const FIXED: bool = T::FIXED;
    const ANY_CELLS: bool = T::ANY_CELLS;

    #[inline]
    fn put(&self, to: &mut Output<'_, R>) -> Result<(), Overflow> {
        put_all(self, to)
    }

    #[inline]
    fn take(from: &mut Input<'_, R>) -> Result<Self, Invalid> {
        if T::FIXED { from.fixed() } else { array(|_| T::take(from)) }
    }

    #[inline]
    fn put_at(&self, cells: &mut [u8]) {
        T::put_all_at(self, cells);
    }

    #[inline]
    fn take_at(cells: &[u8]) -> Result<Self, Invalid> {
        if T::ANY_CELLS { Ok(T::array_of_cells(cells)) } else { T::take_array_at(cells) }
    }

    #[inline(always)]
    fn of_cells(cells: &[u8]) -> Self {
        T::array_of_cells(cells)
    }
}

impl<R: Cells, T: Foreign<R>> Foreign<R> for Vec<T> {
    const LEAST: usize = R::CELL;

    #[inline]
    fn put(&self, to: &mut Output<'_, R>) -> Result<(), Overflow> {
        to.sequence(self)
    }

    #[inline]
    fn take(from: &mut Input<'_, R>) -> Result<Self, Invalid> {
        Self::take_at_most(usize::MAX, from)
    }
}

impl<R: Cells, T: Foreign<R>> Bounded<R> for Vec<T> {
    #[inline]
    fn count(&self) -> usize {
        self.len()
    }

    #[inline]
    fn take_at_most(most: usize, from: &mut Input<'_, R>) -> Result<Self, Invalid> {
        let count = from.count(most)?;
        from.deeper_by(size_of::<T>(), |from| take_all(count, from))
    }
}

impl<R: Cells> Foreign<R> for String {
    const LEAST: usize = R::CELL;

    #[inline]
    fn put(&self, to: &mut Output<'_, R>) -> Result<(), Overflow> {
        to.text(self)
    }

    #[inline]
    fn take(from: &mut Input<'_, R>) -> Result<Self, Invalid> {
        Self::take_at_most(usize::MAX, from)
    }
}

impl<R: Cells> Bounded<R> for String {
    #[inline]
    fn count(&self) -> usize {
        self.len()
    }

    #[inline]
    fn take_at_most(most: usize, from: &mut Input<'_, R>) -> Result<Self, Invalid> {
        from.text(most).map(Self::from)
    }
}

/// One cell says whether there is a value. The value follows.
impl<R: Optional, T: Foreign<R>> Foreign<R> for Option<T> {
    const LEAST: usize = R::CELL;

    #[inline]
    fn put(&self, to: &mut Output<'_, R>) -> Result<(), Overflow> {
        self.is_some().put(to)?;
        match self {
            Some(value) => to.deeper(|to| value.put(to)),
            None => Ok(()),
        }
    }

    #[inline]
    fn take(from: &mut Input<'_, R>) -> Result<Self, Invalid> {
        if bool::take(from)? { from.deeper(T::take).map(Some) } else { Ok(None) }
    }
}

/// A box is sent as its content. Boxes permit recursive types, so both sides limit the depth of nesting.
impl<R: Cells, T: Foreign<R>> Foreign<R> for Box<T> {
    const LEAST: usize = T::LEAST;

    #[inline]
    fn put(&self, to: &mut Output<'_, R>) -> Result<(), Overflow> {
        to.deeper(|to| T::put(self, to))
    }

    #[inline]
    fn take(from: &mut Input<'_, R>) -> Result<Self, Invalid> {
        from.deeper(T::take).map(Self::new)
    }
}

macro_rules! tuples {
    ($(($($name:ident $index:tt),+))*) => {$(
        impl<R: Cells, $($name: Foreign<R>),+> Foreign<R> for ($($name,)+) {
            const LEAST: usize = 0 $(+ $name::LEAST)+;
            const FIXED: bool = true $(&& $name::FIXED)+;

            #[inline]
            fn put(&self, to: &mut Output<'_, R>) -> Result<(), Overflow> {
                if Self::FIXED {
                    return to.fixed(self);
                }
                $(self.$index.put(to)?;)+
                Ok(())
            }

            #[inline]
            fn take(from: &mut Input<'_, R>) -> Result<Self, Invalid> {
                if Self::FIXED { from.fixed() } else { Ok(($($name::take(from)?,)+)) }
            }

            #[inline]
            fn put_at(&self, mut cells: &mut [u8]) {
                $(self.$index.put_at(cells_of_mut::<R, $name>(&mut cells));)+
            }

            #[inline]
            fn take_at(mut cells: &[u8]) -> Result<Self, Invalid> {
                Ok(($($name::take_at(cells_of::<R, $name>(&mut cells))?,)+))
            }
        }
    )*};
}
tuples! {
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
}
