//! What the derived code for enums uses: the numbers of variants, and errors of Courier procedures.

use super::{Cells, Courier, Input, Invalid, Output, Overflow, Xdr};

/// The errors that a Courier procedure reports: an enum with `#[foreign(error = N)]` on its variants.
///
/// `#[derive(Foreign)]` implements this trait for such an enum. A variant with the attribute is an ERROR of
/// the Courier program, and its fields are the error's arguments. Other variants are failures that the
/// procedure does not report, such as a [`CallError`](crate::CallError).
///
/// ```
/// use peregrine::CallError;
/// use peregrine::foreign::{Courier, Foreign, Input, Output, Reports};
///
/// #[derive(Debug, Foreign)]
/// enum TimeError {
///     #[foreign(error = 1)]
///     Busy { retry_seconds: u16 },
///     Failed(CallError),
/// }
///
/// let mut memory = [0; 2];
/// let busy = TimeError::Busy { retry_seconds: 5 };
/// busy.put_arguments(&mut Output::new(&mut memory)).unwrap();
/// assert_eq!((busy.number(), memory), (Some(1), [0, 5]));
///
/// let mut arguments = Input::<Courier>::new(&memory);
/// let error = TimeError::take_error(1, &mut arguments).unwrap();
/// assert!(matches!(error, Some(TimeError::Busy { retry_seconds: 5 })));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an enum of Courier errors",
    label = "no `#[foreign(error = N)]`",
    note = "derive `peregrine::foreign::Foreign`, and write `#[foreign(error = N)]` on each variant that is an ERROR"
)]
pub trait Reports: Sized {
    /// Returns the number of the error. Returns `None` for a failure that the procedure does not report.
    fn number(&self) -> Option<u16>;

    /// Appends the arguments of the error.
    ///
    /// # Errors
    /// If an argument cannot be appended.
    fn put_arguments(&self, to: &mut Output<'_, Courier>) -> Result<(), Overflow>;

    /// Takes the arguments of the error with the number `number`. Returns `None` if no variant has this
    /// number.
    ///
    /// # Errors
    /// If the bytes are not the arguments of the error.
    fn take_error(number: u16, from: &mut Input<'_, Courier>) -> Result<Option<Self>, Invalid>;
}

/// A type that selects a variant: what may be between the parentheses of `switch` in XDR.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot select a variant",
    label = "not a type for `switch`",
    note = "`#[foreign(switch = T)]` takes `bool`, `i32`, `u32`, `u16`, or an enum that derives `Foreign`"
)]
pub trait Cases {
    /// The numbers of all variants, in their order. `None` for an integer type, of which every value is a
    /// number.
    const NUMBERS: Option<&'static [i64]>;
}

impl Cases for bool {
    const NUMBERS: Option<&'static [i64]> = Some(&[0, 1]);
}

macro_rules! any_number {
    ($($type:ty),*) => {$(
        impl Cases for $type {
            const NUMBERS: Option<&'static [i64]> = None;
        }
    )*};
}
any_number!(i32, u32, u16);

/// Returns the content of the cell that selects the variant with the index `index` of the enum `E`.
#[must_use]
pub const fn case<R: Cells, E: Cases>(index: usize) -> u32 {
    let Some(numbers) = E::NUMBERS else { panic!("an enum has numbers") };
    let number = numbers[index];
    assert!(
        R::CASE_MIN <= number && number <= R::CASE_MAX,
        "the number of a variant does not fit the representation: Courier has numbers of 16 bits"
    );
    number as u32
}

/// Returns the number of the error with the index `index` in `numbers`.
#[must_use]
pub const fn error_number(numbers: &[i64], index: usize) -> u16 {
    let number = numbers[index];
    assert!(0 <= number && number <= u16::MAX as i64, "the number of an error has 16 bits");
    number as u16
}

/// Checks at compile time that the number with the index `index` differs from all earlier numbers, and that
/// the type of the switch has this number.
pub const fn check_case(numbers: &[i64], index: usize, switch: Option<&[i64]>) {
    let number = numbers[index];
    let mut other = 0;
    while other < index {
        assert!(numbers[other] != number, "two variants have the same number");
        other += 1;
    }
    let Some(switch) = switch else { return };
    let mut found = false;
    let mut one = 0;
    while one < switch.len() {
        found |= switch[one] == number;
        one += 1;
    }
    assert!(found, "the type of `switch` does not have this number");
}

/// Returns whether the content of a cell is the number of a variant of `E`.
#[inline]
#[must_use]
pub fn is_one_of<E: Cases>(cell: u32) -> bool {
    E::NUMBERS.is_some_and(|numbers| numbers.iter().any(|number| *number as u32 == cell))
}

/// The type of the number in the variant with `#[foreign(default)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the type of a number of a variant in `{R}`",
    label = "the first field of the variant with `#[foreign(default)]` is the number",
    note = "its type is `i32` or `u32` in XDR, and `u16` in Courier"
)]
pub trait CaseNumber<R: Cells>: Copy {
    /// Returns the cell of the number.
    fn cell(self) -> u32;
    /// Returns the number that a cell contains.
    fn of(cell: u32) -> Self;
}

macro_rules! case_numbers {
    ($($type:ty: $representation:ty),*) => {$(
        impl CaseNumber<$representation> for $type {
            #[inline]
            fn cell(self) -> u32 {
                self as u32
            }
            #[inline]
            fn of(cell: u32) -> Self {
                cell as Self
            }
        }
    )*};
}
case_numbers!(i32: Xdr, u32: Xdr, u16: Courier);
