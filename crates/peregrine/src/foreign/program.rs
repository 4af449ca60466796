//! [`Program`]: an interface as a program of another RPC system.

use super::{Cells, Courier, Foreign, Input, Invalid, Output, Overflow, Reports};
use crate::error::CallError;

/// An interface that is also a program of another RPC system: of ONC RPC for [`Xdr`](super::Xdr), and of
/// Courier for [`Courier`].
///
/// `#[interface]` implements this trait for the client of a trait that has the argument `onc(...)` or
/// `courier(...)`. Each method then has the attribute `#[onc(N)]` or `#[courier(N)]`, with the number of its
/// procedure. A parameter or a result that has no form in the representation is an error of the compiler.
///
/// The argument `courier` without numbers is for a program that is started by its name, as those of Cooper's
/// compiler are. Its number and its version are 0.
///
/// ```
/// use peregrine::foreign::{ByteString, Program, Xdr};
/// use peregrine::interface;
///
/// /// The protocol by which clients of a file server look up its directories.
/// #[interface(name = "mount", onc(program = 100005, version = 3))]
/// pub trait Mount {
///     /// Returns the handle of a directory.
///     #[onc(1)]
///     fn mount(&self, path: ByteString) -> peregrine::Result<Vec<u8>>;
///     #[onc(4)]
///     fn unmount_all(&self) -> peregrine::Result<()>;
/// }
///
/// assert_eq!(<MountClient as Program<Xdr>>::NUMBER, 100_005);
/// assert_eq!(<MountClient as Program<Xdr>>::PROCEDURES, [1, 4]);
/// ```
pub trait Program<R: Cells> {
    /// The number of the program.
    const NUMBER: u32;
    /// The version of the program.
    const VERSION: u32;
    /// The number of each procedure, in the order of the methods.
    const PROCEDURES: &'static [u32];
}

/// The result type of a method whose procedure another system can call.
#[diagnostic::on_unimplemented(
    message = "a procedure cannot return `{Self}` in `{R}`",
    label = "has no form in `{R}`",
    note = "return `peregrine::Result<T>`, where `T` has a form in `{R}`",
    note = "a Courier procedure may also fail with an enum that has `#[foreign(error = N)]` on its variants"
)]
pub trait Ends<R: Cells> {
    /// The type of the value in `Ok`.
    type Ok: Foreign<R>;
    /// The type of the error in `Err`.
    type Err: Fails<R>;

    /// Converts from a `Result`.
    fn of(result: Result<Self::Ok, Self::Err>) -> Self;

    /// Converts to a `Result`.
    ///
    /// # Errors
    /// If this is an error.
    fn as_result(&self) -> Result<&Self::Ok, &Self::Err>;
}

impl<R: Cells, T: Foreign<R>, E: Fails<R>> Ends<R> for Result<T, E> {
    type Ok = T;
    type Err = E;

    fn of(result: Self) -> Self {
        result
    }

    fn as_result(&self) -> Result<&T, &E> {
        self.as_ref()
    }
}

/// The error type of a method whose procedure another system can call.
#[diagnostic::on_unimplemented(
    message = "a procedure cannot fail with `{Self}` in `{R}`",
    label = "is not sent in `{R}`",
    note = "ONC RPC has no errors of procedures: return `peregrine::Result<T>`, and let `T` say what failed",
    note = "a Courier procedure may fail with an enum that has `#[foreign(error = N)]` on its variants"
)]
pub trait Fails<R: Cells>: Sized {
    /// Returns the number of the error. Returns `None` for a failure that the procedure does not report.
    fn report(&self) -> Option<u16>;

    /// Appends the arguments of the error.
    ///
    /// # Errors
    /// If an argument cannot be appended.
    fn put_arguments(&self, to: &mut Output<'_, R>) -> Result<(), Overflow>;

    /// Takes the arguments of the error with the number `number`. Returns `None` if there is no such error.
    ///
    /// # Errors
    /// If the bytes are not the arguments of the error.
    fn take_report(number: u32, from: &mut Input<'_, R>) -> Result<Option<Self>, Invalid>;

    /// Returns the text that says why the procedure failed. It is for a failure that the procedure does not
    /// report.
    fn failure(&self) -> String;
}

impl<R: Cells> Fails<R> for CallError {
    fn report(&self) -> Option<u16> {
        None
    }

    fn put_arguments(&self, _: &mut Output<'_, R>) -> Result<(), Overflow> {
        Ok(())
    }

    fn take_report(_: u32, _: &mut Input<'_, R>) -> Result<Option<Self>, Invalid> {
        Ok(None)
    }

    fn failure(&self) -> String {
        self.relayed_text()
    }
}

impl<E: Reports> Fails<Courier> for E {
    fn report(&self) -> Option<u16> {
        self.number()
    }

    fn put_arguments(&self, to: &mut Output<'_, Courier>) -> Result<(), Overflow> {
        Reports::put_arguments(self, to)
    }

    fn take_report(number: u32, from: &mut Input<'_, Courier>) -> Result<Option<Self>, Invalid> {
        u16::try_from(number).map_or(Ok(None), |number| Self::take_error(number, from))
    }

    fn failure(&self) -> String {
        "the procedure failed with an error that it does not report".to_owned()
    }
}
