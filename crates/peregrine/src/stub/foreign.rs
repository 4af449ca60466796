//! The runtime of the generated code that calls servers of other RPC systems, and that serves their clients.
//!
//! A foreign call passes through the same frames and the same [`CallPath`](crate::call::CallPath) as other
//! calls. Its head is the arguments in the representation of the other system, and there are no blocks. The
//! head of the reply is the results. If the procedure reports an error (Courier), the head is the number of
//! the error in one cell, and the arguments of the error.

use core::cell::RefCell;

use super::compiled::{
    Arguments, CallTarget, Outcome, Returned, Stub, does_not_fit, made, unreadable,
};
use crate::binding::Binding;
use crate::call::{Answer, ForeignAnswer, Refusal, ServedForeign};
use crate::error::{CallError, Executed, Kind};
use crate::foreign::{Cells, Ends, Fails as _, Foreign as _, Input, Output};
use crate::limits;
use crate::value::{Invalid, Overflow};

thread_local! {
    /// The memory in which a thread writes arguments, and reads results.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Runs `with` on the scratch memory of the thread. Afterwards, memory that only a large message needed is
/// released. The bytes of the remaining memory are not cleared, because clearing would take as long as
/// writing.
fn with_scratch<T>(with: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    let mut scratch = SCRATCH.take();
    let done = with(&mut scratch);
    scratch.truncate(limits::ESTACK_BYTES_KEPT);
    scratch.shrink_to(limits::ESTACK_BYTES_KEPT);
    SCRATCH.set(scratch);
    done
}

/// Returns the first `bytes` bytes of scratch memory, which may contain old data. Returns `None` if there is
/// not enough memory.
fn sized(scratch: &mut Vec<u8>, bytes: usize) -> Option<&mut [u8]> {
    if let Some(more) = bytes.checked_sub(scratch.len()) {
        scratch.try_reserve(more).ok()?;
        scratch.resize(bytes, 0);
    }
    scratch.get_mut(..bytes)
}

/// Counts the bytes that `put` writes.
fn counted<F: Cells, E: From<Overflow>>(
    put: impl Fn(&mut Output<'_, F>) -> Result<(), E>,
) -> Result<usize, E> {
    let mut counted = Output::counting(limits::MESSAGE_BYTES_MAX);
    put(&mut counted)?;
    Ok(counted.len())
}

/// Appends what `put` writes. `put` is called twice: the first time, its bytes are only counted.
pub(super) fn append<F: Cells, E: From<Overflow>>(
    bytes: &mut Vec<u8>,
    put: impl Fn(&mut Output<'_, F>) -> Result<(), E>,
) -> Result<(), E> {
    let more = counted(&put)?;
    let begin = bytes.len();
    bytes.try_reserve(more).map_err(|_| Overflow::Full)?;
    bytes.resize(begin + more, 0);
    put(&mut Output::new(&mut bytes[begin..]))
}

impl CallTarget<'_> {
    /// Returns whether to make the call by [`call_foreign`], in the representation `F`.
    #[cold]
    pub fn is_foreign<F: Cells>(self) -> bool {
        self.system() == Some(F::SYSTEM)
    }
}

/// Makes a call like [`call()`](super::call()), to a server of another RPC system.
///
/// # Errors
/// Any error of a call.
#[cold]
#[inline(never)]
pub fn call_foreign<O: Outcome>(
    binding: &Binding,
    procedure: u32,
    body: impl FnMut(&mut Stub<'_>) -> Result<O, CallError>,
) -> O {
    let made = made(CallTarget::special(binding), procedure, body);
    made.unwrap_or_else(|error| O::from_result(Err(error.into())))
}

impl Arguments<'_> {
    /// Writes all arguments of a call in the representation `F`.
    ///
    /// # Errors
    /// If the arguments do not fit the message, or exceed a limit of the representation.
    pub fn foreign<F: Cells>(
        &mut self,
        put: impl Fn(&mut Output<'_, F>) -> Result<(), Overflow>,
    ) -> Result<(), CallError> {
        self.foreign_or(put).map_err(does_not_fit)
    }

    /// Writes all arguments, like [`foreign`](Self::foreign). The errors of `put` can be of any type.
    pub(super) fn foreign_or<F: Cells, E: From<Overflow>>(
        &mut self,
        put: impl Fn(&mut Output<'_, F>) -> Result<(), E>,
    ) -> Result<(), E> {
        with_scratch(|scratch| {
            let bytes = counted(&put)?;
            let memory = sized(scratch, bytes).ok_or(Overflow::Full)?;
            put(&mut Output::new(memory))?;
            Ok(self.head().plain_all(memory)?)
        })
    }
}

impl Returned<'_> {
    /// Reads the outcome of a call in the representation `F`.
    ///
    /// # Errors
    /// If the server sent no result, or an invalid one.
    pub fn foreign<F: Cells, O: Ends<F>>(&mut self) -> Result<O, CallError> {
        self.foreign_with(|answer, bytes| {
            let mut input = Input::<F>::new(bytes);
            let result = if answer == Answer::Ok {
                Ok(O::Ok::take(&mut input).map_err(unreadable)?)
            } else {
                let number = input.cell().map_err(unreadable)?;
                let error = O::Err::take_report(number, &mut input);
                match error.map_err(unreadable)? {
                    Some(error) => Err(error),
                    None => return Err(unknown_error(number)),
                }
            };
            input.finish_results().map_err(unreadable)?;
            Ok(O::of(result))
        })
    }

    /// Calls `read` with the kind of the answer, which is a result or an error, and with the bytes of the
    /// answer.
    ///
    /// # Errors
    /// Fails if the answer is neither a result nor an error. Also returns the error of `read`.
    pub(super) fn foreign_with<T>(
        &mut self,
        read: impl FnOnce(Answer, &[u8]) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let answer = self.answer();
        if !matches!(answer, Answer::Ok | Answer::Err) {
            return Err(self.refused());
        }
        let head = self.head().rest();
        with_scratch(|scratch| {
            let memory = sized(scratch, head.len()).ok_or(Invalid::Short).map_err(unreadable)?;
            head.read(0, memory).ok_or(Invalid::Short).map_err(unreadable)?;
            read(answer, memory)
        })
    }
}

#[cold]
pub(super) fn unknown_error(number: u32) -> CallError {
    let text = format!("the procedure reports error {number}, which the interface does not have");
    CallError::new(Kind::BadResult, Executed::Maybe, text)
}

/// Appends the outcome of a method to the results of a call in the representation `F`.
///
/// # Errors
/// If the outcome has no form in the other system. The procedure has run.
pub fn answer_foreign<F: Cells, O: Ends<F>>(outcome: &O, results: &mut Vec<u8>) -> ServedForeign {
    let appended = match outcome.as_result() {
        Ok(value) => append::<F, _>(results, |to| value.put(to)).map(|()| ForeignAnswer::Returned),
        Err(error) => match error.report() {
            Some(number) => append::<F, _>(results, |to| error.put_arguments(to))
                .map(|()| ForeignAnswer::Reported(number)),
            None => return Err(Refusal::failed(error.failure())),
        },
    };
    appended.map_err(Refusal::unsent)
}

/// Checks the length of a value before the value is sent.
///
/// # Errors
/// If the value is longer than the interface allows.
pub const fn check_put(len: usize, max_len: usize) -> Result<(), Overflow> {
    if len > max_len { Err(Overflow::TooLong) } else { Ok(()) }
}
