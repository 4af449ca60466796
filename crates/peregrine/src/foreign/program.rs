//! [`Program`]: an interface as a program of another RPC system.

use super::{Cells, Courier, Foreign, Reports, Xdr};
use crate::error::CallError;

/// An interface that is also a program of another RPC system: of ONC RPC for [`Xdr`], of Courier for
/// [`Courier`].
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
pub trait Ends<R: Cells> {}

impl<R: Cells, T: Foreign<R>, E: Fails<R>> Ends<R> for Result<T, E> {}

/// The error type of such a method.
#[diagnostic::on_unimplemented(
    message = "a procedure cannot fail with `{Self}` in `{R}`",
    label = "is not sent in `{R}`",
    note = "ONC RPC has no errors of procedures: return `peregrine::Result<T>`, and let `T` say what failed",
    note = "a Courier procedure may fail with an enum that has `#[foreign(error = N)]` on its variants"
)]
pub trait Fails<R: Cells> {}

impl Fails<Xdr> for CallError {}
impl Fails<Courier> for CallError {}
impl<E: Reports> Fails<Courier> for E {}
