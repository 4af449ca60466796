//! Interpreted calls of other RPC systems: the steps of a [`Program`] that marshal values to XDR and Courier.
//!
//! The steps are those of native messages. Information that only other systems need is not in the steps but
//! in [`ForeignNotes`], so it does not slow down native calls.

mod put;
mod take;

use std::borrow::Cow;
use std::sync::OnceLock;

use super::client::{
    Argument, GenericClient, Sender as _, relayed, stopped, unfit, value_of, window_of, wrong_count,
};
use super::marshal::Stopped;
use super::program::{Form, Number, Op, OpId, Part, Program, Routine, Step, Unfit};
use super::server::{GenericCall, GenericParameter, GenericServer, wrong};
use crate::binding::Binding;
use crate::call::{Answer, ForeignAnswer, ForeignCall, Refusal, ServedForeign};
use crate::error::{CallError, Kind};
use crate::foreign::{Cells, Courier, Output, Xdr};
use crate::interface::{self, Case, Described, DescribedVariant, Direction, System};
use crate::limits;
use crate::stub::compiled::{Arguments, CallTarget, Returned, Stub, does_not_fit, failed, made};
use crate::stub::foreign::{append, unknown_error};
use crate::value::{Dynamic, Invalid, Native, Overflow};
use take::{Received, Unread};

/// The `max` of a text or a sequence that has no bound.
pub(super) const NO_MAX: u32 = u32::MAX;

/// Information about the types of a program that only calls of other RPC systems need.
#[derive(Clone, Debug)]
pub(super) struct ForeignNotes {
    /// For each enum: the index of its first part, and the numbers of its variants. Sorted by the index.
    unions: Vec<(u32, Union)>,
    /// The steps of the named types that are byte strings, in ascending order.
    byte_strings: Vec<OpId>,
    /// For each procedure, why ONC RPC and Courier cannot carry it. Each reason is determined when it is
    /// first needed.
    lacks: OnceLock<Box<[[Lack; 2]]>>,
}

/// Why a system cannot carry a procedure. `None`: it can.
type Lack = OnceLock<Option<Unfit>>;

/// The numbers of the variants of an enum.
#[derive(Clone, Debug)]
pub(super) struct Union {
    /// The case of each variant: how the variant is sent. `None`: the variant is a failure that is not sent.
    cases: Vec<Option<Case>>,
    /// For each number of a variant: the cell that encodes the number, and the index of the variant. Sorted
    /// by the cell.
    cells: Vec<(u32, u32)>,
    /// The index of the variant for all other numbers.
    default: Option<u32>,
}

impl ForeignNotes {
    pub(super) fn of(described: &Described) -> Self {
        let types = 0..described.types.len();
        Self {
            unions: Vec::new(),
            byte_strings: types
                .filter(|one| described.is_byte_string(*one))
                .map(|one| one as OpId)
                .collect(),
            lacks: OnceLock::new(),
        }
    }

    /// Adds an enum whose parts begin at the index `first`. Enums must be added in ascending order of
    /// `first`.
    pub(super) fn add(&mut self, first: u32, union: Union) {
        self.unions.push((first, union));
    }

    fn union(&self, first: u32) -> &Union {
        const NONE: &Union = &Union { cases: Vec::new(), cells: Vec::new(), default: None };
        // An enum without variants has the same first index as the enum after it, so the last enum with this
        // index is taken.
        let after = self.unions.partition_point(|(one, _)| *one <= first);
        let found = after.checked_sub(1).and_then(|index| self.unions.get(index));
        found.map_or(NONE, |(_, union)| union)
    }
}

impl Union {
    pub(super) fn of(variants: &[DescribedVariant]) -> Self {
        let has_errors = variants.iter().any(|one| matches!(one.case, Some(Case::Error(_))));
        let case = |(index, variant): (usize, &DescribedVariant)| match variant.case {
            None if has_errors => None,
            None => Some(Case::Number(index as i64)),
            some => some,
        };
        let cases: Vec<_> = variants.iter().enumerate().map(case).collect();
        let (mut cells, mut default) = (Vec::new(), None);
        for (index, case) in (0..).zip(&cases) {
            match case {
                Some(Case::Number(number)) => cells.push((*number as u32, index)),
                Some(Case::Error(number)) => cells.push((u32::from(*number), index)),
                Some(Case::Default) => default = Some(index),
                None => {}
            }
        }
        cells.sort_unstable();
        Self { cases, cells, default }
    }

    fn case(&self, index: u32) -> Option<Case> {
        self.cases.get(index as usize).copied().flatten()
    }

    /// Returns the index of the variant that has the number in this cell.
    fn index_of(&self, cell: u32) -> Option<u32> {
        let found = self.cells.binary_search_by_key(&cell, |(cell, _)| *cell);
        found.ok().map(|at| self.cells[at].1)
    }

    /// Returns whether the numbers of all variants are in the range of the representation.
    fn has_form<R: Cells>(&self) -> bool {
        self.cases.iter().all(|case| match case {
            Some(Case::Number(number)) => (R::CASE_MIN..=R::CASE_MAX).contains(number),
            _ => true,
        })
    }
}

impl Number {
    /// Returns whether the representation can encode numbers of this type.
    const fn has_form<R: Cells>(self) -> bool {
        match self {
            Self::Bool | Self::U16 | Self::I16 | Self::U32 | Self::I32 => true,
            Self::U8 | Self::I8 | Self::U64 | Self::I64 | Self::F32 | Self::F64 => R::CELL == 4,
            Self::Char | Self::U128 | Self::I128 => false,
        }
    }
}

#[cold]
fn no_form<R: Cells>(what: &str) -> Unfit {
    Unfit::new(format!("{what} has no form in {}", R::NAME))
}

impl Program {
    /// Returns a part of the interface that another RPC system cannot carry, if there is such a part.
    pub(super) fn missing_in(&self, system: System) -> Option<Unfit> {
        (0..).zip(&self.routines).find_map(|(number, routine)| {
            Some(self.lack_in(system, number)?.clone().of(&routine.name))
        })
    }

    fn lack_in(&self, system: System, procedure: u32) -> Option<&Unfit> {
        match system {
            System::Onc => self.lack::<Xdr>(procedure),
            System::Courier => self.lack::<Courier>(procedure),
        }
    }

    /// Returns why a system cannot carry the procedure, if it cannot.
    fn lack<R: Cells>(&self, procedure: u32) -> Option<&Unfit> {
        let all = self
            .foreign
            .lacks
            .get_or_init(|| self.routines.iter().map(|_| Default::default()).collect());
        let place = procedure as usize;
        let routine = self.routines.get(place)?;
        let one = &all.get(place)?[usize::from(R::SYSTEM == System::Courier)];
        one.get_or_init(|| self.lack_of::<R>(routine)).as_ref()
    }

    fn lack_of<R: Cells>(&self, routine: &Routine) -> Option<Unfit> {
        let mut seen = vec![false; self.ops.len()];
        let parameter = |step: &Step| {
            let what = match (step.direction, step.form) {
                (Direction::In, Form::One(op)) => self.missing::<R>(op, &mut seen, 0)?,
                (Direction::In, Form::Text) => return None,
                (Direction::In, Form::Block(_, one) | Form::Head(one)) => {
                    self.missing_in_sequence::<R>(one, &mut seen, 0)?
                }
                _ => Unfit::new("other systems only send values with the call"),
            };
            Some(what.of(&step.name))
        };
        let parameters = routine.parameters.iter().find_map(parameter);
        let result = || {
            let missing = self.missing::<R>(routine.result, &mut seen_by(self), 0);
            missing.map(|unfit| unfit.of("result"))
        };
        let error = || match self.op(routine.error) {
            // ONC RPC sends no errors of procedures.
            Op::Enum { first, count } if R::SYSTEM == System::Courier => {
                let union = self.foreign.union(first);
                (0..).zip(self.parts(first, count)).find_map(|(index, part)| {
                    matches!(union.case(index), Some(Case::Error(_))).then_some(())?;
                    let missing = self.missing::<R>(part.op, &mut seen_by(self), 0)?;
                    Some(missing.of(&part.name).of("error"))
                })
            }
            _ => None,
        };
        parameters.or_else(result).or_else(error)
    }

    /// Returns which part of a type has no form in the representation. Types that are nested too deeply are
    /// not examined, because their values are refused anyway.
    fn missing<R: Cells>(&self, op: OpId, seen: &mut [bool], depth: u32) -> Option<Unfit> {
        let is_seen = seen.get_mut(op as usize).is_none_or(|seen| core::mem::replace(seen, true));
        if is_seen || depth > limits::INTERPRETED_DEPTH_MAX {
            return None;
        }
        let has_bytes = R::CELL == 4;
        match self.op(op) {
            Op::Nothing | Op::Text => None,
            Op::Number(number) => (!number.has_form::<R>()).then(|| no_form::<R>(number.text())),
            Op::Choice { first, count, .. } => {
                let range = i128::from(R::CASE_MIN)..=i128::from(R::CASE_MAX);
                let known = self.discriminants(first, count);
                let fits = known.iter().all(|one| range.contains(one));
                (!fits).then(|| no_form::<R>("the number of a variant"))
            }
            Op::Solid(_, loose) => self.missing::<R>(loose, seen, depth + 1),
            Op::Sequence(one) => self.missing_in_sequence::<R>(one, seen, depth),
            Op::Array(one, _) => self.missing::<R>(one, seen, depth + 1),
            Op::Option(_) if !has_bytes => Some(no_form::<R>("an option")),
            Op::Option(one) => self.missing::<R>(one, seen, depth + 1),
            // The bytes of a byte string have a form in every representation.
            Op::Record { .. } if self.foreign.byte_strings.binary_search(&op).is_ok() => None,
            Op::Record { first, count } => self
                .parts(first, count)
                .iter()
                .find_map(|part| Some(self.missing::<R>(part.op, seen, depth + 1)?.of(&part.name))),
            Op::Enum { first, .. } if !self.foreign.union(first).has_form::<R>() => {
                Some(no_form::<R>("the number of a variant"))
            }
            Op::Enum { first, count } => self
                .parts(first, count)
                .iter()
                .find_map(|part| Some(self.missing::<R>(part.op, seen, depth + 1)?.of(&part.name))),
            Op::Result(..) => Some(no_form::<R>("a result")),
            Op::Refused => Some(no_form::<R>("the type")),
        }
    }

    fn missing_in_sequence<R: Cells>(
        &self,
        one: OpId,
        seen: &mut [bool],
        depth: u32,
    ) -> Option<Unfit> {
        self.missing::<R>(one, seen, depth + 1).map(|unfit| unfit.at(0))
    }

    /// Appends the arguments of a call.
    fn put_arguments_of<R: Cells>(
        &self,
        routine: &Routine,
        values: &[Cow<'_, Dynamic>],
        to: &mut Output<'_, R>,
    ) -> Result<(), (usize, Stopped)> {
        let all = routine.parameters.iter().zip(values).enumerate();
        for (index, (step, value)) in all {
            let max = u32::try_from(step.max_len).unwrap_or(NO_MAX);
            match (step.form, &**value) {
                (Form::One(op), value) => self.put_cells(op, value, NO_MAX, to, 0),
                (Form::Text, Dynamic::Text(text)) if text.len() > step.max_len => {
                    Err(Overflow::TooLong.into())
                }
                (Form::Text, Dynamic::Text(text)) => to.text(text).map_err(Stopped::from),
                (Form::Text, other) => Err(Unfit::expected("text", other.kind()).into()),
                (Form::Block(_, one) | Form::Head(one), value) => {
                    self.put_elements(one, value, max, to, 0)
                }
                _ => Err(no_form::<R>("the parameter").into()),
            }
            .map_err(|stopped| (index, stopped))?;
        }
        Ok(())
    }

    /// Returns the arguments of a call in the representation `R`.
    ///
    /// # Errors
    /// If the arguments are not valid.
    pub(super) fn arguments_in<R: Cells>(
        &self,
        routine: &Routine,
        bytes: &[u8],
    ) -> Result<Vec<Dynamic>, String> {
        let taken = self.take_arguments_of(routine, &mut Received::<R>::new(bytes));
        taken.map_err(|unread| unread.at.to_string())
    }

    /// Takes the arguments of a call.
    fn take_arguments_of<R: Cells>(
        &self,
        routine: &Routine,
        from: &mut Received<'_, R>,
    ) -> Result<Vec<Dynamic>, Unread> {
        let argument = |step: &Step| {
            let max = u32::try_from(step.max_len).unwrap_or(NO_MAX);
            let value = match step.form {
                Form::One(op) => self.take_cells(op, NO_MAX, from, 0),
                Form::Text => {
                    let text = from.input.text(step.max_len);
                    text.map(Dynamic::from).map_err(Unread::from)
                }
                Form::Block(_, one) | Form::Head(one) => self.take_elements(one, max, from, 0),
                Form::Stream(_) | Form::Callback => Err(Invalid::Bits.into()),
            };
            value.map_err(|unread| unread.inside(|unfit| unfit.of(&step.name)))
        };
        let values = routine.parameters.iter().map(argument).collect::<Result<_, _>>()?;
        from.input.finish()?;
        Ok(values)
    }

    /// If the procedure reports the variant `variant` of its error type, returns the error's number and its
    /// part.
    fn reported(&self, routine: &Routine, variant: u32) -> Option<(u16, &Part)> {
        let Op::Enum { first, count } = self.op(routine.error) else { return None };
        match self.foreign.union(first).case(variant)? {
            Case::Error(number) => {
                let part = self.parts(first, count).get(variant as usize)?;
                Some((number, part))
            }
            _ => None,
        }
    }

    /// Takes the error with the number `number`. Returns `None` if the procedure does not have this error.
    fn take_reported<R: Cells>(
        &self,
        routine: &Routine,
        number: u32,
        from: &mut Received<'_, R>,
    ) -> Result<Option<Dynamic>, Unread> {
        let Op::Enum { first, count } = self.op(routine.error) else { return Ok(None) };
        let union = self.foreign.union(first);
        let Some(index) = union.index_of(number) else { return Ok(None) };
        if !matches!(union.case(index), Some(Case::Error(_))) {
            return Ok(None);
        }
        let fields = self.take_arguments(first, count, index, from, 0)?;
        Ok(Some(Dynamic::Variant(index, fields)))
    }
}

fn seen_by(program: &Program) -> Vec<bool> {
    vec![false; program.ops.len()]
}

impl GenericClient {
    /// Makes a call over a binding to a server of another RPC system.
    #[cold]
    #[inline(never)]
    pub(super) fn call_foreign(
        &self,
        system: System,
        binding: &Binding,
        procedure: u32,
        arguments: &mut [Argument<'_>],
        result: &mut Dynamic,
    ) -> Result<bool, CallError> {
        let values = self.foreign_values(system, procedure, arguments);
        let values = values.map_err(|error| failed(binding, procedure, error))?;
        made(CallTarget::special(binding), procedure, |stub: &mut Stub<'_>| {
            self.put_foreign(system, procedure, stub, &values)?;
            let returned = stub.send(&[], &[], &mut [])?;
            self.take_foreign(system, procedure, returned, result)
        })
    }

    /// Returns the argument values of a call to a server of another RPC system.
    ///
    /// # Errors
    /// If there is not one argument for each parameter, or the system cannot carry the procedure.
    pub(super) fn foreign_values<'v>(
        &self,
        system: System,
        procedure: u32,
        arguments: &'v [Argument<'_>],
    ) -> Result<Vec<Cow<'v, Dynamic>>, CallError> {
        let program = self.program();
        let routine = &program.routines[procedure as usize];
        if arguments.len() != routine.parameters.len() {
            return Err(wrong_count(routine, arguments.len()));
        }
        if let Some(lack) = program.lack_in(system, procedure) {
            return Err(unfit(lack));
        }
        let all = routine.parameters.iter().zip(arguments);
        all.map(|(step, one)| owned(step, one)).collect()
    }

    /// Writes the arguments of a call of another system.
    ///
    /// # Errors
    /// If an argument does not match the interface, or the arguments do not fit the message.
    pub(super) fn put_foreign(
        &self,
        system: System,
        procedure: u32,
        to: &mut Arguments<'_, Native>,
        values: &[Cow<'_, Dynamic>],
    ) -> Result<(), CallError> {
        let program = self.program();
        let routine = &program.routines[procedure as usize];
        match system {
            System::Onc => put_in::<Xdr>(program, routine, to, values),
            System::Courier => put_in::<Courier>(program, routine, to, values),
        }
    }

    /// Reads the result of a call of another system.
    ///
    /// # Errors
    /// If the result is not what the interface says, or the call has failed.
    pub(super) fn take_foreign(
        &self,
        system: System,
        procedure: u32,
        returned: Returned<'_, Native>,
        result: &mut Dynamic,
    ) -> Result<bool, CallError> {
        let program = self.program();
        let routine = &program.routines[procedure as usize];
        match system {
            System::Onc => take_in::<Xdr>(program, routine, returned, result),
            System::Courier => take_in::<Courier>(program, routine, returned, result),
        }
    }
}

fn put_in<R: Cells>(
    program: &Program,
    routine: &Routine,
    to: &mut Arguments<'_, Native>,
    values: &[Cow<'_, Dynamic>],
) -> Result<(), CallError> {
    to.foreign_or::<R, _>(|to| {
        program.put_arguments_of(routine, values, to).map_err(Failed::Argument)
    })
    .map_err(|failed| match failed {
        Failed::Argument((index, error)) => stopped(error, &routine.parameters[index]),
        Failed::Overflow(overflow) => does_not_fit(overflow),
    })
}

fn take_in<R: Cells>(
    program: &Program,
    routine: &Routine,
    mut returned: Returned<'_, Native>,
    result: &mut Dynamic,
) -> Result<bool, CallError> {
    returned.foreign_with(|answer, bytes| {
        let mut from = Received::<R>::new(bytes);
        let is_ok = answer == Answer::Ok;
        *result = match is_ok {
            true => program
                .take_cells(routine.result, NO_MAX, &mut from, 0)
                .map_err(|unread| unreadable(unread.inside(|unfit| unfit.of("result"))))?,
            false => {
                let number = from.input.cell().map_err(Unread::from).map_err(unreadable)?;
                let error = program.take_reported(routine, number, &mut from);
                let error = error.map_err(unreadable)?;
                error.ok_or_else(|| unknown_error(number))?
            }
        };
        from.input.finish_results().map_err(Unread::from).map_err(unreadable)?;
        match is_ok || !routine.fails_as_call {
            true => Ok(is_ok),
            false => Err(relayed(result)),
        }
    })
}

/// Why arguments could not be written: one argument is wrong (its index is given), or the message is too
/// large.
enum Failed {
    Argument((usize, Stopped)),
    Overflow(Overflow),
}

impl From<Overflow> for Failed {
    fn from(overflow: Overflow) -> Self {
        Self::Overflow(overflow)
    }
}

/// Returns the value of an argument. Converts an argument of bytes to a value.
fn owned<'v>(step: &Step, argument: &'v Argument<'_>) -> Result<Cow<'v, Dynamic>, CallError> {
    let Argument::Bytes(lent) = argument else {
        return value_of(step, argument).map(Cow::Borrowed);
    };
    let window = window_of(lent)?;
    let mut bytes = vec![0; window.len()];
    let _ = window.read(0, &mut bytes);
    let value = match step.form {
        Form::Text => String::from_utf8(bytes).ok().map(Dynamic::Text),
        Form::Block(solid, _) if bytes.len().is_multiple_of(solid.bytes as usize) => {
            Some(Dynamic::Plain(bytes))
        }
        _ => None,
    };
    value.map(Cow::Owned).ok_or_else(|| super::client::another(step, "other bytes, or a value"))
}

#[cold]
fn unreadable(unread: Unread) -> CallError {
    CallError::bad_result(unread.at.to_string())
}

impl GenericServer {
    /// Answers a call of a client of another RPC system.
    pub(super) fn answer_foreign(
        &self,
        call: &ForeignCall<'_>,
        results: &mut Vec<u8>,
    ) -> ServedForeign {
        let ForeignCall { system, program, version, procedure, arguments } = *call;
        let is_called = |one: &&interface::Program| {
            (one.system, one.number, one.version) == (system, program, version)
        };
        let program = self.known.programs().iter().find(is_called);
        let program = program.ok_or_else(|| Refusal::no_such_program(system))?;
        let number = program.index_of(procedure);
        let number = number.ok_or_else(|| Refusal::no_such_procedure(procedure))?;
        match system {
            System::Onc => self.answer_in::<Xdr>(number, arguments, results),
            System::Courier => self.answer_in::<Courier>(number, arguments, results),
        }
    }

    fn answer_in<R: Cells>(
        &self,
        number: u32,
        arguments: &[u8],
        results: &mut Vec<u8>,
    ) -> ServedForeign {
        let program = &self.program;
        let place = number as usize;
        let (Some(routine), Some(procedure)) =
            (program.routines.get(place), self.described.procedures.get(place))
        else {
            return Err(Refusal::no_such_procedure(number));
        };
        if let Some(lack) = program.lack::<R>(number) {
            return Err(Refusal::new(Kind::NoSuchProcedure, format!("{}: {lack}", procedure.name)));
        }
        let values =
            program.take_arguments_of(routine, &mut Received::<R>::new(arguments)).map_err(
                |unread| Refusal::new(Refusal::from(unread.invalid).kind(), unread.at.to_string()),
            )?;
        let parameters = values.into_iter().map(GenericParameter::In).collect();
        let (outcome, _) = self.run(GenericCall { number, procedure, parameters });
        let written = match outcome.map_err(|error| self.failed(&error))? {
            Ok(value) => append::<R, Stopped>(results, |to| {
                program
                    .put_cells(routine.result, &value, NO_MAX, to, 0)
                    .map_err(|stopped| stopped.inside(|unfit| unfit.of("result")))
            })
            .map(|()| ForeignAnswer::Returned),
            Err(Dynamic::Variant(variant, fields)) if R::SYSTEM == System::Courier => {
                let reported = program.reported(routine, variant);
                let (error, part) = reported.ok_or_else(|| Refusal::failed(NOT_REPORTED.into()))?;
                append::<R, Stopped>(results, |to| {
                    program
                        .put_arguments(part.op, &fields, to, 0)
                        .map_err(|stopped| stopped.inside(|unfit| unfit.of(&part.name)))
                })
                .map(|()| ForeignAnswer::Reported(error))
            }
            Err(error) => return Err(Refusal::failed(text_of(&error))),
        };
        written.map_err(|stopped| match stopped {
            Stopped::Unfit(unfit) => wrong(&unfit),
            Stopped::Overflow(overflow) => Refusal::unsent(overflow),
        })
    }
}

const NOT_REPORTED: &str = "the procedure failed with an error that it does not report";

/// Returns the text of a `CallError` that a procedure returned, or says that the error is not reported.
fn text_of(error: &Dynamic) -> String {
    match error {
        Dynamic::List(parts) => match &parts[..] {
            [Dynamic::Text(text)] => text.clone(),
            _ => NOT_REPORTED.to_owned(),
        },
        _ => NOT_REPORTED.to_owned(),
    }
}
