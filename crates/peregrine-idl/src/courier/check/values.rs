//! Checks that constants are values of their types.

use std::collections::HashMap;

use super::{Checker, WORD_MAX};
use crate::courier::ast::{Constant, Fields, Name, Reference, Simple, Span, Type, Value};
use crate::courier::world::World;

/// Returns the smallest and the largest number of a type whose values are numbers.
fn range(simple: Simple) -> Option<(i64, i64)> {
    Some(match simple {
        Simple::Cardinal => (0, WORD_MAX),
        Simple::LongCardinal | Simple::LongUnspecified => (0, u32::MAX.into()),
        Simple::Integer => (i16::MIN.into(), i16::MAX.into()),
        Simple::LongInteger => (i32::MIN.into(), i32::MAX.into()),
        // A value of `UNSPECIFIED` is 16 bits, which may also be written as a signed number.
        Simple::Unspecified => (i16::MIN.into(), WORD_MAX),
        Simple::Boolean | Simple::String => return None,
    })
}

impl<'w> Checker<'w, '_> {
    /// Checks the value of a constant, a procedure or an error of the program that is checked.
    pub(super) fn constant(&mut self, ty: &'w Type, constant: &'w Constant) {
        let program = self.unit;
        self.value(program, ty, constant);
    }

    /// Checks a constant of the type `ty`, which is written in the program `unit`.
    fn value(&mut self, unit: usize, ty: &'w Type, constant: &'w Constant) {
        let world = self.world;
        let (unit, base) = world.base(unit, ty);
        let Constant { span, value } = constant;
        let names = match base {
            Type::Enumeration(tags) => tags.len(),
            Type::Choice(_, arms) => arms.iter().map(|arm| arm.tags.len()).sum(),
            _ => 0,
        };
        let Some(steps) = self.steps else { return };
        self.steps = steps.checked_sub(1 + names);
        if self.steps.is_none() {
            return self.report(span, "the constants are too long, because they repeat values");
        }
        if let Value::Named(reference) = value
            && !is_tag(base, reference)
        {
            return self.same(base, reference);
        }
        match (base, value) {
            // The type is unknown. This has already been reported.
            (Type::Named(_), _) => {}
            (Type::Procedure(_) | Type::Error(_), Value::Number(number)) => {
                self.in_range(*number, (0, WORD_MAX), span);
            }
            (Type::Simple(Simple::Boolean), Value::Boolean(_))
            | (Type::Simple(Simple::String), Value::Text(_))
            | (Type::Enumeration(_) | Type::Choice(..), Value::Named(_)) => {}
            (Type::Simple(simple), Value::Number(number)) if range(*simple).is_some() => {
                self.in_range(*number, range(*simple).unwrap_or_default(), span);
            }
            (Type::Array(count, element), Value::List(all)) => {
                let count = world.number(unit, count);
                if count.is_some_and(|count| all.len() as i64 != count) {
                    let (found, count) = (all.len(), count.unwrap_or_default());
                    self.report(span, format!("{found} elements for an array of {count}"));
                }
                all.iter().for_each(|one| self.value(unit, element, one));
            }
            (Type::Sequence(max, element), Value::List(all)) => {
                let max = max.as_ref().and_then(|max| world.number(unit, max)).unwrap_or(WORD_MAX);
                if all.len() as i64 > max {
                    let found = all.len();
                    self.report(span, format!("{found} elements for a sequence of at most {max}"));
                }
                all.iter().for_each(|one| self.value(unit, element, one));
            }
            (Type::Record(fields), Value::List(all)) => self.in_order(unit, fields, all, span),
            (Type::Record(fields), Value::Fields(all)) => self.by_name(unit, fields, all, span),
            (Type::Choice(_, arms), Value::Chosen(tag, inner)) => {
                let arm = arms.iter().find(|arm| arm.tags.iter().any(|one| one.name == *tag));
                match arm {
                    Some(arm) => self.value(unit, &arm.ty, inner),
                    None => self.report(span, format!("the choice has no arm `{}`", tag.text)),
                }
            }
            _ => {
                let wanted = noun(base);
                self.report(span, format!("this is not the value of {wanted}"));
            }
        }
    }

    fn in_range(&mut self, number: i64, (least, most): (i64, i64), span: &Span) {
        if !(least..=most).contains(&number) {
            self.report(
                span,
                format!("{number} is not in the range {least} to {most} of its type"),
            );
        }
    }

    /// Checks a value that is the name of a constant: the constant must have the type of the value.
    fn same(&mut self, base: &'w Type, reference: &Reference) {
        let world = self.world;
        let Name { text, span } = &reference.name;
        let Some(id) = self.find(reference, "constant") else { return };
        self.reach(id);
        let declaration = world.declaration(id);
        if declaration.value.is_none() {
            return self.report(span, format!("`{text}` is a type, and not a constant"));
        }
        if world.end(id).is_none() {
            return self.report(span, format!("`{text}` is defined by itself"));
        }
        let other = world.base(id.0, &declaration.ty).1;
        let wanted = match base {
            Type::Simple(simple) => range(*simple),
            Type::Procedure(_) | Type::Error(_) => Some((0, WORD_MAX)),
            _ => None,
        };
        match (wanted, world.number_of(id)) {
            (Some(wanted), Some(number)) => self.in_range(number, wanted, span),
            _ if core::ptr::eq(base, other) => {}
            _ if matches!(base, Type::Simple(_)) && base == other => {}
            _ => self.report(span, format!("`{text}` has another type than {} here", noun(base))),
        }
    }

    fn in_order(&mut self, unit: usize, fields: &'w [Fields], all: &'w [Constant], span: &Span) {
        let types = fields.iter().flat_map(|one| one.names.iter().map(|_| &one.ty));
        let count = types.clone().count();
        if count != all.len() {
            self.report(span, format!("{} values for a record of {count} fields", all.len()));
        }
        types.zip(all).for_each(|(ty, one)| self.value(unit, ty, one));
    }

    fn by_name(
        &mut self,
        unit: usize,
        fields: &'w [Fields],
        all: &'w [(Vec<Name>, Constant)],
        span: &Span,
    ) {
        let types =
            fields.iter().flat_map(|one| one.names.iter().map(|name| (&*name.text, &one.ty)));
        let mut types: HashMap<&str, &Type> = types.collect();
        for (names, one) in all {
            for name in names {
                match types.remove(&*name.text) {
                    Some(ty) => self.value(unit, ty, one),
                    None => {
                        let reason = format!("the record has no field `{}` left", name.text);
                        self.report(&name.span, reason);
                    }
                }
            }
        }
        if let Some(name) = types.into_keys().min() {
            self.report(span, format!("the field `{name}` has no value"));
        }
    }
}

/// Returns whether a reference is a name of an enumeration, or the designator of an arm without a value.
pub(crate) fn is_tag(base: &Type, reference: &Reference) -> bool {
    let is_same = |name: &Name| reference.program.is_none() && *name == reference.name;
    match base {
        Type::Enumeration(tags) => tags.iter().any(|tag| is_same(&tag.name)),
        Type::Choice(_, arms) => arms.iter().any(|arm| {
            matches!(&arm.ty, Type::Record(fields) if fields.is_empty())
                && arm.tags.iter().any(|tag| is_same(&tag.name))
        }),
        _ => false,
    }
}

fn noun(ty: &Type) -> &'static str {
    match ty {
        Type::Simple(Simple::Boolean) => "a BOOLEAN",
        Type::Simple(Simple::String) => "a STRING",
        Type::Simple(_) => "a number type",
        Type::Enumeration(_) => "an enumeration",
        Type::Array(..) => "an array",
        Type::Sequence(..) => "a sequence",
        Type::Record(_) => "a record",
        Type::Choice(..) => "a choice",
        Type::Procedure(_) => "a procedure",
        Type::Error(_) => "an error",
        Type::Named(_) => "a declared type",
    }
}

impl World {
    /// Returns the type to which the reference `by` leads, and the index of its program. Returns `None` if
    /// `by` does not lead to a type.
    pub(crate) fn enumeration(&self, unit: usize, by: &Reference) -> Option<(usize, &Type)> {
        let id = self.id(unit, by)?;
        let declaration = self.declaration(self.end(id)?);
        Some((self.end(id)?.0, &declaration.ty)).filter(|_| declaration.value.is_none())
    }

    /// Returns whether the count of a sequence, a word of 16 bits, could exceed the maximum of the sequence.
    pub(crate) fn is_bound(&self, unit: usize, max: &crate::courier::ast::Count) -> bool {
        self.number(unit, max).is_some_and(|max| max < WORD_MAX)
    }
}
