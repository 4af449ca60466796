//! Chooses which items of a Rust text are exported. The text may be the source file of a server.

use std::collections::{HashMap, HashSet};

use peregrine::interface::{DescribedType, System};

use super::is_byte_string;
use crate::library;
use crate::syntax::{Body, Constant, Definition, Field, Item, Source, Trait, Type};

/// Leaves out items that are not meant for the interface file:
///
/// * traits that are no programs of the system, if other traits are;
/// * types that no program uses. An alias or a type that derives `Foreign` is kept nevertheless, if all types
///   that it uses have a form in the system;
/// * functions, except public ones for Courier, because imports from Courier print some constants as
///   functions.
pub(super) fn chosen(mut source: Source, system: System) -> Source {
    let is_program = |one: &Definition| match &one.body {
        Body::Interface(one) => one.program(system).is_some(),
        _ => false,
    };
    let has_program = source.types.values().any(is_program);
    let mut items = core::mem::take(&mut source.items);
    let uses = Uses::of(&source, system, has_program);
    let (used, without_form) = (uses.used(), uses.without_form());
    let types = &source.types;
    items.retain(|item| match item {
        Item::Type(path) => types.get(path).is_some_and(|one| match &one.body {
            Body::Interface(_) => !has_program || is_program(one),
            body => {
                let is_meant = one.is_foreign || matches!(body, Body::Alias(_));
                used.contains(&**path) || (is_meant && !without_form.contains(&**path))
            }
        }),
        Item::Constant(Constant { is_function, is_public, .. }) => {
            !is_function || (system == System::Courier && *is_public)
        }
        Item::Impl(..) => true,
    });
    source.items = items;
    source
}

/// Which types use which other types.
struct Uses<'s> {
    /// The types that each type uses, by their paths.
    of: HashMap<&'s str, Vec<String>>,
    /// The types that programs use.
    roots: Vec<String>,
    /// The types that directly use a type without a form in the system.
    wrong: Vec<&'s str>,
}

impl<'s> Uses<'s> {
    fn of(source: &'s Source, system: System, has_program: bool) -> Self {
        let mut uses = Self { of: HashMap::new(), roots: Vec::new(), wrong: Vec::new() };
        for (path, one) in &source.types {
            let mut parts = Parts { source, system, paths: Vec::new(), is_wrong: false };
            match &one.body {
                Body::Interface(interface) => {
                    if !has_program || interface.program(system).is_some() {
                        parts.interface(interface);
                        uses.roots.append(&mut parts.paths);
                    }
                    continue;
                }
                Body::Struct(fields) | Body::Plain { fields, .. } => parts.fields(fields),
                Body::Enum(variants) => {
                    variants.iter().for_each(|variant| parts.fields(&variant.fields));
                }
                Body::PlainEnum { .. } => {}
                Body::Alias(ty) => parts.ty(ty),
            }
            one.foreign.switch.iter().for_each(|switch| parts.ty(switch));
            if parts.is_wrong || !one.parameters.is_empty() {
                uses.wrong.push(path);
            }
            uses.of.insert(path, parts.paths);
        }
        uses
    }

    /// Returns the types that programs use, also through other types.
    fn used(&self) -> HashSet<String> {
        let mut all = HashSet::new();
        let mut work = self.roots.clone();
        while let Some(path) = work.pop() {
            if let Some(more) = self.of.get(&*path).filter(|_| !all.contains(&path)) {
                work.extend(more.iter().cloned());
            }
            all.insert(path);
        }
        all
    }

    /// Returns the types that use a type without a form in the system, directly or through other types.
    fn without_form(&self) -> HashSet<&'s str> {
        let mut users: HashMap<&str, Vec<&'s str>> = HashMap::new();
        for (user, used) in &self.of {
            used.iter().for_each(|path| users.entry(path).or_default().push(*user));
        }
        let mut all = HashSet::new();
        let mut work = self.wrong.clone();
        while let Some(path) = work.pop() {
            if all.insert(path) {
                work.extend(users.get(path).into_iter().flatten());
            }
        }
        all
    }
}

/// The types within an item.
struct Parts<'s> {
    source: &'s Source,
    system: System,
    paths: Vec<String>,
    /// Whether one of the types has no form in the system.
    is_wrong: bool,
}

impl Parts<'_> {
    fn interface(&mut self, one: &Trait) {
        for method in &one.methods {
            method.parameters.iter().for_each(|parameter| self.ty(&parameter.ty));
            self.ty(&method.result);
            self.ty(&method.error);
        }
    }

    fn fields(&mut self, fields: &[Field]) {
        fields.iter().for_each(|field| self.ty(&field.ty));
    }

    fn ty(&mut self, ty: &Type) {
        let is_onc = self.system == System::Onc;
        match ty {
            Type::Simple(simple) => self.is_wrong |= !has_form(simple, self.system),
            Type::Array(of, _) | Type::Sequence(of) => self.ty(of),
            Type::Option(of) => {
                self.is_wrong |= !is_onc;
                self.ty(of);
            }
            Type::Tuple(parts) => {
                self.is_wrong = true;
                parts.iter().for_each(|part| self.ty(part));
            }
            Type::Result(..) | Type::Interface(_) => self.is_wrong = true,
            Type::Named(name) => {
                self.is_wrong |= !name.arguments.is_empty();
                name.arguments.iter().for_each(|argument| self.ty(argument));
                let path = name.path_in(&self.source.types);
                if self.source.types.contains_key(&path) {
                    self.paths.push(path);
                } else if !is_byte_string(name, self.source) {
                    // A file of ONC RPC may use a type that is declared nowhere.
                    self.is_wrong |= !is_onc || library::has(&path);
                }
            }
        }
    }
}

/// Returns whether a type without a name has a form in a system.
fn has_form(ty: &DescribedType, system: System) -> bool {
    match ty {
        DescribedType::Bool
        | DescribedType::I16
        | DescribedType::U16
        | DescribedType::I32
        | DescribedType::U32
        | DescribedType::Text => true,
        DescribedType::Unit => system == System::Courier,
        DescribedType::I8
        | DescribedType::U8
        | DescribedType::I64
        | DescribedType::U64
        | DescribedType::F32
        | DescribedType::F64 => system == System::Onc,
        _ => false,
    }
}
