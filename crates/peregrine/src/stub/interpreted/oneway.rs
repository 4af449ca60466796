//! Calls of an interpreted client whose interface has one-way procedures.
//!
//! An interpreted client does not queue one-way calls: it makes each call at once, and waits for its end. The
//! outcomes are those of a compiled stub: if a one-way call fails, the next call returns the error.

use super::client::{Argument, GenericClient};
use super::program::Routine;
use crate::error::CallError;
use crate::interface::DescribedProcedure;
use crate::stub::oneway::{InPlace, after_oneway, flush, in_place};
use crate::value::Dynamic;

impl GenericClient {
    /// Waits until all one-way calls that were made before have ended.
    ///
    /// # Errors
    /// If a one-way call has failed, and no call has reported this failure yet.
    pub fn flush(&self) -> Result<(), CallError> {
        flush(self.binding())
    }

    /// Makes a call of an interface that has one-way procedures.
    #[cold]
    #[inline(never)]
    pub(super) fn call_in_order(
        &self,
        number: u32,
        routine: &Routine,
        arguments: &mut [Argument<'_>],
        result: &mut Dynamic,
    ) -> Result<bool, CallError> {
        let procedure = &self.described().procedures[number as usize];
        if !procedure.oneway {
            let ordered = after_oneway(self.binding(), number)?;
            return self.call_over(ordered.binding(), number, routine, arguments, result);
        }
        let place = in_place(self.binding(), number)?;
        let made = self.call_over(place.binding(), number, routine, arguments, result);
        self.end_oneway(place, number, made, result)
    }

    /// Ends a one-way call. If the call has failed, the next call returns the error.
    pub(super) fn end_oneway(
        &self,
        place: InPlace<'_>,
        number: u32,
        made: Result<bool, CallError>,
        result: &mut Dynamic,
    ) -> Result<bool, CallError> {
        let procedure = &self.described().procedures[number as usize];
        let failure = match made {
            Ok(true) => return Ok(true),
            Ok(false) => Ok(self.text_of(procedure, result)),
            Err(error) => Err(error),
        };
        *result = Dynamic::Unit;
        place.ended_with(number, failure).map(|()| true)
    }

    /// Returns the text of an error that a procedure returned, if the error is a `CallError`.
    fn text_of(&self, procedure: &DescribedProcedure, error: &Dynamic) -> Option<String> {
        match error {
            Dynamic::List(parts) if self.described().is_call_error(&procedure.error) => {
                match &parts[..] {
                    [Dynamic::Text(text)] => Some(text.clone()),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}
