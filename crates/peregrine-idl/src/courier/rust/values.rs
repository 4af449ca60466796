//! Prints constants.

use core::fmt::Write as _;

use super::super::ast::{
    Constant, Count, Declaration, Fields, Name, Reference, Simple, Tag, Type, Value,
};
use super::super::check::is_tag;
use super::super::world::Id;
use super::items::docs;
use super::{Printer, has_name};
use crate::layout::{self, Expression};
use crate::names::{Names, snake, written};

impl<'w> Printer<'w> {
    /// Prints a declared constant.
    pub(super) fn constant(&mut self, id: Id, comment: &str) -> String {
        let Declaration { ty, value, .. } = self.world.declaration(id);
        let Some(value) = value else { return String::new() };
        self.current = id.0;
        let name = self.path(id.0, id);
        let mut text = docs("", comment);
        if self.is_text(id) {
            let own = match &value.value {
                Value::Named(reference) => {
                    self.world.id(id.0, reference).map(|id_of| self.path(id.0, id_of))
                }
                Value::Text(text) => Some(format!("{text:?}")),
                _ => None,
            };
            let _ = writeln!(text, "pub const {name}: &str = {};", own.unwrap_or_default());
            return text;
        }
        let printed = self.ty(id.0, id, ty, false);
        let own = self.value(id.0, id, ty, value);
        // The constants of other programs are in modules, whose content is indented.
        let module = if id.0 == 0 { 0 } else { layout::INDENT };
        let _ = if self.is_function(id) {
            let inside = module + layout::INDENT;
            let own = layout::dedented(&own.laid_out(inside, inside, 0), module);
            writeln!(text, "pub fn {name}() -> {printed} {{\n    {own}\n}}")
        } else {
            let head = format!("pub const {name}: {printed} =");
            let own = own.after(&head, module);
            writeln!(text, "{head}{};", layout::dedented(&own, module))
        };
        text
    }

    /// Returns a value as an expression in the module of the program `at`. The type is within the declaration
    /// `owner`.
    fn value(&mut self, at: usize, owner: Id, ty: &'w Type, constant: &'w Constant) -> Expression {
        let inner = match ty {
            Type::Named(reference) => self.declared_value(at, owner, reference, constant),
            _ => self.own_value(at, owner, ty, constant),
        };
        inner.unwrap_or_else(|| Expression::Atom(String::new()))
    }

    /// Returns a value of a declared type.
    fn declared_value(
        &mut self,
        at: usize,
        owner: Id,
        reference: &Reference,
        constant: &'w Constant,
    ) -> Option<Expression> {
        let id = self.world.id(owner.0, reference)?;
        let ty = &self.world.declaration(id).ty;
        let base = self.world.base(id.0, ty).1;
        let is_other = matches!(&constant.value, Value::Named(name) if !is_tag(base, name));
        let value = match ty {
            _ if is_other => self.other(at, base, constant)?,
            Type::Named(next) => self.declared_value(at, id, next, constant)?,
            ty => self.own_value(at, id, ty, constant)?,
        };
        let place = self.checked.places[&id];
        let value = match self.is_wrapped[place] && !is_other && !has_name(self.world, id.0, ty) {
            true => Expression::call(&self.path(at, id), value),
            false => value,
        };
        Some(match self.is_boxed(owner, id) {
            true => Expression::call("Box::new", value),
            false => value,
        })
    }

    /// Returns the expression for a value that is the name of another constant.
    fn other(&mut self, at: usize, base: &Type, constant: &Constant) -> Option<Expression> {
        let Value::Named(reference) = &constant.value else { return None };
        let id = self.world.id(self.current, reference)?;
        let path = self.path(at, id);
        Some(Expression::Atom(match base {
            Type::Simple(Simple::String) => return Some(self.bytes(path)),
            Type::Simple(simple) => self.number(id, *simple).unwrap_or(path),
            _ if self.is_function(id) => format!("{path}()"),
            _ => path,
        }))
    }

    /// Returns the number of another constant as a literal, if the Rust type of that constant is not the
    /// wanted one.
    fn number(&self, id: Id, wanted: Simple) -> Option<String> {
        let ty = self.world.base(id.0, &self.world.declaration(id).ty).1;
        match ty {
            Type::Simple(simple) if rust(*simple) == rust(wanted) => None,
            _ => self.world.number_of(id).map(|number| literal(number, wanted)),
        }
    }

    fn bytes(&mut self, text: String) -> Expression {
        self.imports.byte_string = true;
        Expression::call("ByteString::from", Expression::Atom(text))
    }

    /// Returns a value whose type is written out, and is not the name of a declared type.
    fn own_value(
        &mut self,
        at: usize,
        owner: Id,
        ty: &'w Type,
        constant: &'w Constant,
    ) -> Option<Expression> {
        let is_other = matches!(&constant.value, Value::Named(name) if !is_tag(ty, name));
        if is_other {
            return self.other(at, ty, constant);
        }
        Some(match (ty, &constant.value) {
            (_, Value::Boolean(value)) => Expression::Atom(value.to_string()),
            (Type::Simple(simple), Value::Number(number)) => {
                Expression::Atom(literal(*number, *simple))
            }
            (_, Value::Text(text)) => self.bytes(format!("{text:?}")),
            (Type::Enumeration(tags), Value::Named(reference)) => {
                let path = self.item_path(at, owner, ty);
                let variant = Self::variant_name(tags.iter(), &reference.name.text);
                Expression::Atom(format!("{path}::{variant}"))
            }
            (Type::Array(_, element), Value::List(all)) => self.list("[", at, owner, element, all),
            (Type::Sequence(max, element), Value::List(all)) => {
                let list = self.list("vec![", at, owner, element, all);
                match self.is_struct(owner, ty, max.as_ref()) {
                    true => Expression::call(&self.item_path(at, owner, ty), list),
                    false => list,
                }
            }
            (Type::Record(fields), value) if !fields.is_empty() => {
                let path = self.item_path(at, owner, ty);
                Expression::Struct(path, self.record(at, owner, fields, value)?)
            }
            (Type::Choice(..), Value::Chosen(tag, value)) => {
                self.arm(at, owner, ty, tag, Some(value))?
            }
            (Type::Choice(..), Value::Named(tag)) => self.arm(at, owner, ty, &tag.name, None)?,
            _ => Expression::Atom("()".to_owned()),
        })
    }

    /// Returns whether a sequence with a maximum is a struct of its own, and not the field of another struct.
    fn is_struct(&self, owner: Id, ty: &Type, max: Option<&Count>) -> bool {
        let is_bound = max.is_some_and(|max| self.world.is_bound(owner.0, max));
        is_bound
            && (self.inner.contains_key(&core::ptr::from_ref(ty))
                || core::ptr::eq(ty, &self.world.declaration(owner).ty))
    }

    /// Returns the name of a struct or an enum within a declaration, or of the declaration itself.
    fn item_path(&self, at: usize, owner: Id, ty: &Type) -> String {
        match self.inner.get(&core::ptr::from_ref(ty)) {
            Some(name) => self.prefix(at, owner.0) + name,
            None => self.path(at, owner),
        }
    }

    fn list(
        &mut self,
        open: &str,
        at: usize,
        owner: Id,
        element: &'w Type,
        all: &'w [Constant],
    ) -> Expression {
        let all = all.iter().map(|one| self.value(at, owner, element, one)).collect();
        Expression::List(open.to_owned(), all, ']')
    }

    fn record(
        &mut self,
        at: usize,
        owner: Id,
        fields: &'w [Fields],
        value: &'w Value,
    ) -> Option<Vec<(String, Expression)>> {
        let mut names = Names::default();
        let flat = fields.iter().flat_map(|one| one.names.iter().map(move |name| (name, &one.ty)));
        let values: Vec<&Constant> = match value {
            Value::List(all) => all.iter().collect(),
            Value::Fields(all) => {
                let by_name: std::collections::HashMap<&str, &Constant> = all
                    .iter()
                    .flat_map(|(names, one)| names.iter().map(move |name| (&*name.text, one)))
                    .collect();
                flat.clone()
                    .map(|(name, _)| by_name.get(&*name.text).copied())
                    .collect::<Option<_>>()?
            }
            _ => return None,
        };
        let one = |((name, ty), one): ((&Name, &'w Type), _)| {
            let name = written(&names.take(snake(&name.text)));
            (name, self.value(at, owner, ty, one))
        };
        Some(flat.zip(values).map(one).collect())
    }

    fn arm(
        &mut self,
        at: usize,
        owner: Id,
        ty: &'w Type,
        tag: &Name,
        value: Option<&'w Constant>,
    ) -> Option<Expression> {
        let Type::Choice(_, arms) = ty else { return None };
        let tags = arms.iter().flat_map(|arm| &arm.tags);
        let variant = Self::variant_name(tags, &tag.text);
        let path = format!("{}::{variant}", self.item_path(at, owner, ty));
        let is_it = |one: &Tag| one.name == *tag;
        let arm = arms.iter().find(|arm| arm.tags.iter().any(is_it))?;
        let is_empty = matches!(&arm.ty, Type::Record(fields) if fields.is_empty());
        let Some(value) = value.filter(|_| !is_empty) else {
            return Some(Expression::Atom(path));
        };
        Some(match &arm.ty {
            Type::Record(fields) if arm.tags.len() == 1 => {
                Expression::Struct(path, self.record(at, owner, fields, &value.value)?)
            }
            ty => Expression::call(&path, self.value(at, owner, ty, value)),
        })
    }
}

fn rust(simple: Simple) -> u8 {
    match simple {
        Simple::Boolean => 0,
        Simple::Cardinal | Simple::Unspecified => 1,
        Simple::LongCardinal | Simple::LongUnspecified => 2,
        Simple::Integer => 3,
        Simple::LongInteger => 4,
        Simple::String => 5,
    }
}

/// Returns a number as a literal. The bits of an `UNSPECIFIED` may be written as a negative number.
fn literal(number: i64, simple: Simple) -> String {
    match simple {
        Simple::Unspecified if number < 0 => (number as u16).to_string(),
        _ => number.to_string(),
    }
}
