//! Resolves the names of types and constants in a tree. Reports names that are not declared, and declarations
//! that are not valid.

use std::collections::{HashMap, HashSet};

use super::ast::*;
use super::source::Sources;
use crate::graph;

/// The numbers that fit in a cell of four bytes, with or without a sign.
const CELL: core::ops::RangeInclusive<i128> = i32::MIN as i128..=u32::MAX as i128;

/// The value of a constant.
enum Known<'a> {
    /// A number or the name of a constant, and a number that is added to it.
    Sum(&'a Value, i128),
    Number(i128),
    /// The constant is being evaluated.
    Open,
    /// The constant has no value. This was reported.
    Wrong,
    /// The constant is a text.
    Text,
}

/// A tree whose names are resolved.
pub(super) struct Checked<'a> {
    pub(super) tree: &'a Specification,
    types: HashMap<&'a str, &'a TypeDefinition>,
    constants: HashMap<&'a str, Known<'a>>,
    /// The types that are declared nowhere, in the order of their first uses.
    pub(super) missing: Vec<&'a str>,
    /// The types that contain themselves, directly or through other types. With each type: the number of its
    /// cycle.
    pub(super) recursive: HashMap<&'a str, u32>,
    /// For each alias that only renames another type, the type at the end of the chain of such aliases.
    ends: HashMap<&'a str, &'a Type>,
}

/// Resolves the names of a tree. The result can be used if no error was added to `sources`.
pub(super) fn checked<'a>(tree: &'a Specification, sources: &mut Sources) -> Checked<'a> {
    let mut checked = Checked {
        tree,
        types: HashMap::new(),
        constants: HashMap::new(),
        missing: Vec::new(),
        recursive: HashMap::new(),
        ends: HashMap::new(),
    };
    checked.collect(sources);
    checked.find_ends();
    let mut seen = HashSet::new();
    for definition in &tree.definitions {
        match definition {
            Definition::Constant(one) => {
                if let ConstantValue::Number(value) = &one.value {
                    let _ = checked.value(value, &one.name, sources);
                }
            }
            Definition::Type(one) => checked.body(&one.body, &one.name, &mut seen, sources),
            Definition::Program(one) => checked.program(one, &mut seen, sources),
        }
    }
    checked.cycles(sources);
    checked
}

impl<'a> Checked<'a> {
    fn collect(&mut self, sources: &mut Sources) {
        for definition in &self.tree.definitions {
            match definition {
                Definition::Constant(one) => match &one.value {
                    ConstantValue::Number(value) => {
                        self.constant(&one.name, Known::Sum(value, 0), sources);
                    }
                    ConstantValue::Text(_) => {
                        self.constant(&one.name, Known::Text, sources);
                    }
                },
                Definition::Type(one) => {
                    if self.types.insert(&one.name.text, one).is_some() {
                        let message = format!("type `{}` is declared twice", one.name);
                        sources.error(one.name.place, message);
                    }
                    self.members(&one.body, sources);
                }
                Definition::Program(_) => {}
            }
        }
        // The names of programs, versions and procedures are also constants. The same procedure may be in
        // several versions.
        let numbered = self.tree.definitions.iter().filter_map(|definition| match definition {
            Definition::Program(program) => Some(program),
            _ => None,
        });
        for program in numbered {
            let mut add = |name: &'a Name, number: &'a Value| {
                self.constants.entry(&name.text).or_insert(Known::Sum(number, 0));
            };
            add(&program.name, &program.number);
            for version in &program.versions {
                add(&version.name, &version.number);
                version.procedures.iter().for_each(|one| add(&one.name, &one.number));
            }
        }
    }

    fn constant(&mut self, name: &'a Name, value: Known<'a>, sources: &mut Sources) {
        if self.constants.insert(&name.text, value).is_some() {
            sources.error(name.place, format!("constant `{name}` is declared twice"));
        }
    }

    /// Adds the members of all enums within a body to the constants.
    fn members(&mut self, body: &'a Body, sources: &mut Sources) {
        match body {
            Body::Enum(members) => {
                const ZERO: &Value = &Value::Number(0);
                let (mut base, mut more) = (ZERO, 0);
                for member in members {
                    if let Some(value) = &member.value {
                        (base, more) = (value, 0);
                    }
                    self.constant(&member.name, Known::Sum(base, more), sources);
                    more += 1;
                }
            }
            Body::Struct(fields) => {
                fields.iter().for_each(|field| self.members_of(&field.ty, sources));
            }
            Body::Union(union) => {
                self.members_of(&union.switch.ty, sources);
                arms(union).for_each(|data| self.members_of(&data.ty, sources));
            }
            Body::Alias(ty) => self.members_of(ty, sources),
        }
    }

    fn members_of(&mut self, ty: &'a Type, sources: &mut Sources) {
        match ty {
            Type::Inline(body) => self.members(body, sources),
            Type::Array(of, _) | Type::Sequence(of, _) | Type::Pointer(of) => {
                self.members_of(of, sources);
            }
            _ => {}
        }
    }

    /// Finds the end of each chain of aliases. Each chain is followed only once, because it may be long.
    fn find_ends(&mut self) {
        for definition in &self.tree.definitions {
            let Definition::Type(TypeDefinition { name, body: Body::Alias(ty), .. }) = definition
            else {
                continue;
            };
            let (mut chain, mut ty) = (HashSet::from([&*name.text]), ty);
            while let Type::Named(next) = ty {
                if let Some(end) = self.ends.get(&*next.text) {
                    ty = *end;
                    break;
                }
                match self.body_of(&next.text) {
                    // If an alias is visited a second time, the chain is a cycle, which is reported later.
                    Some(Body::Alias(further)) if chain.insert(&next.text) => ty = further,
                    _ => break,
                }
            }
            self.ends.extend(chain.into_iter().map(|name| (name, ty)));
        }
    }

    /// Returns the type to which a type leads through aliases. The result is a name only if it is the name of
    /// an enum, a struct, a union, or a missing type.
    pub(super) fn end<'t>(&self, ty: &'t Type) -> &'t Type
    where
        'a: 't,
    {
        let Type::Named(name) = ty else { return ty };
        match self.ends.get(&*name.text) {
            Some(end) => self.declared(end),
            None => self.declared(ty),
        }
    }

    /// Returns the type that the headers of C programs declare for a name, if the file does not declare it.
    /// Otherwise, returns `ty`.
    fn declared<'t>(&self, ty: &'t Type) -> &'t Type {
        match ty {
            Type::Named(name) if !self.types.contains_key(&*name.text) => {
                builtin(&name.text).unwrap_or(ty)
            }
            _ => ty,
        }
    }

    /// Returns the body of a named type.
    pub(super) fn body_of(&self, name: &str) -> Option<&'a Body> {
        self.types.get(name).map(|one| &one.body)
    }

    /// Returns the number for which a value stands. If the value stands for no number, reports an error. `user`
    /// is the name of the declaration that needs the number.
    fn value(&mut self, value: &'a Value, user: &Name, sources: &mut Sources) -> Option<i128> {
        let name = match value {
            Value::Number(number) => return Some(*number),
            Value::Name(name) => name,
        };
        let (mut chain, mut at) = (Vec::new(), name);
        let found = loop {
            let known = match self.constants.get_mut(&*at.text) {
                None => {
                    let truth = ["FALSE", "TRUE"].iter().position(|truth| *truth == at.text);
                    break truth.map(|truth| truth as i128).ok_or_else(|| {
                        let message = format!("constant `{at}` is declared nowhere");
                        sources.error(at.place, message);
                    });
                }
                Some(known) => known,
            };
            match known {
                Known::Number(number) => break Ok(*number),
                Known::Wrong => break Err(()),
                Known::Text => {
                    sources.error(at.place, format!("`{at}` is a text, and not a number"));
                    break Err(());
                }
                Known::Open => {
                    let message = format!("the value of `{user}` depends on itself");
                    sources.error(user.place, message);
                    break Err(());
                }
                Known::Sum(base, more) => {
                    let (base, more) = (*base, *more);
                    *known = Known::Open;
                    chain.push((&*at.text, more));
                    match base {
                        Value::Number(number) => break Ok(*number),
                        Value::Name(next) => at = next,
                    }
                }
            }
        };
        let mut found = found.ok();
        for (name, more) in chain.into_iter().rev() {
            found = found.map(|number| number + more);
            let known = found.map_or(Known::Wrong, Known::Number);
            self.constants.insert(name, known);
        }
        found
    }

    /// Returns the number that a value means in a tree without errors.
    pub(super) fn number(&self, value: &Value) -> Option<i128> {
        match value {
            Value::Number(number) => Some(*number),
            Value::Name(name) => match self.constants.get(&*name.text) {
                Some(Known::Number(number)) => Some(*number),
                Some(Known::Sum(Value::Number(number), more)) => Some(number + more),
                _ => ["FALSE", "TRUE"]
                    .iter()
                    .position(|truth| *truth == name.text)
                    .map(|at| at as i128),
            },
        }
    }

    /// Returns the numbers of the members of an enum.
    pub(super) fn member_numbers(&self, members: &[Member]) -> Vec<i128> {
        let mut next = 0;
        let number = |member: &Member| {
            next =
                member.value.as_ref().map_or(next, |value| self.number(value).unwrap_or(next)) + 1;
            next - 1
        };
        members.iter().map(number).collect()
    }

    /// Checks that a value is a number within a range.
    fn within(
        &mut self,
        value: &'a Value,
        range: &core::ops::RangeInclusive<i128>,
        user: &Name,
        sources: &mut Sources,
    ) -> Option<i128> {
        let number = self.value(value, user, sources)?;
        if !range.contains(&number) {
            let place = match value {
                Value::Name(name) => name.place,
                Value::Number(_) => user.place,
            };
            let (least, most) = (range.start(), range.end());
            let message = format!("{number} at `{user}` is not in the range {least} to {most}");
            sources.error(place, message);
        }
        Some(number)
    }

    fn body(
        &mut self,
        body: &'a Body,
        name: &'a Name,
        seen: &mut HashSet<&'a str>,
        sources: &mut Sources,
    ) {
        match body {
            Body::Enum(members) => {
                let mut previous = -1;
                for member in members {
                    if let Some(value) = &member.value {
                        previous = self.within(value, &CELL, &member.name, sources).unwrap_or(0);
                    } else {
                        previous += 1;
                        if !CELL.contains(&previous) {
                            let message = format!("{previous} does not fit in four bytes");
                            sources.error(member.name.place, message);
                        }
                    }
                }
            }
            Body::Struct(fields) => {
                let mut names = HashSet::new();
                for field in fields {
                    if !names.insert(&field.name.text) {
                        let message = format!("field `{}` is declared twice", field.name);
                        sources.error(field.name.place, message);
                    }
                    self.ty(&field.ty, &field.name, seen, sources);
                }
            }
            Body::Union(union) => self.union(union, name, seen, sources),
            Body::Alias(ty) => self.ty(ty, name, seen, sources),
        }
    }

    fn union(
        &mut self,
        union: &'a Union,
        name: &'a Name,
        seen: &mut HashSet<&'a str>,
        sources: &mut Sources,
    ) {
        let switch = &union.switch;
        self.ty(&switch.ty, &switch.name, seen, sources);
        let range = match self.end(&switch.ty) {
            Type::Bool => 0..=1,
            Type::Int | Type::UnsignedInt => CELL,
            Type::Short | Type::UnsignedShort => i16::MIN.into()..=u16::MAX.into(),
            Type::Char | Type::UnsignedChar => i8::MIN.into()..=u8::MAX.into(),
            Type::Inline(body) if matches!(**body, Body::Enum(_)) => CELL,
            Type::Named(of) if matches!(self.body_of(&of.text), None | Some(Body::Enum(_))) => CELL,
            _ => {
                let message = "the type after `switch` must be an integer of at most 32 bits, a \
                               bool or an enum";
                return sources.error(switch.name.place, message);
            }
        };
        if union.arms.is_empty() && union.default.is_none() {
            sources.error(name.place, format!("union `{name}` has no arm"));
        }
        let mut numbers = HashSet::new();
        for case in union.arms.iter().flat_map(|arm| &arm.cases) {
            let number = self.within(case, &range, name, sources);
            if let Some(number) = number.filter(|number| !numbers.insert(*number as u32)) {
                let place = match case {
                    Value::Name(case) => case.place,
                    Value::Number(_) => name.place,
                };
                sources.error(place, format!("union `{name}` has two cases of {number}"));
            }
        }
        for data in arms(union) {
            self.ty(&data.ty, &data.name, seen, sources);
        }
    }

    fn ty(
        &mut self,
        ty: &'a Type,
        user: &'a Name,
        seen: &mut HashSet<&'a str>,
        sources: &mut Sources,
    ) {
        let lengths = 0..=i128::from(u32::MAX);
        match ty {
            Type::Named(name) => {
                let is_known = self.types.contains_key(&*name.text);
                if !is_known && builtin(&name.text).is_none() && seen.insert(&name.text) {
                    self.missing.push(&name.text);
                    let message = format!(
                        "type `{name}` is declared nowhere; the Rust text needs a type `{}`",
                        crate::names::camel(&name.text)
                    );
                    sources.warn(name.place, message);
                }
            }
            Type::String(Some(value)) | Type::Bytes(Some(value)) => {
                self.maximum(value, user, sources);
            }
            Type::Opaque(value) => drop(self.within(value, &lengths, user, sources)),
            Type::Array(of, value) => {
                let _ = self.within(value, &lengths, user, sources);
                self.ty(of, user, seen, sources);
            }
            Type::Sequence(of, max) => {
                if let Some(max) = max {
                    self.maximum(max, user, sources);
                }
                self.ty(of, user, seen, sources);
            }
            Type::Pointer(of) => self.ty(of, user, seen, sources),
            Type::Inline(body) => self.body(body, user, seen, sources),
            _ => {}
        }
    }

    /// Checks a maximum length. A missing constant is only a warning, because all values are valid without a
    /// maximum.
    fn maximum(&mut self, max: &'a Value, user: &Name, sources: &mut Sources) {
        if let Value::Name(name) = max
            && !self.constants.contains_key(&*name.text)
        {
            let message =
                format!("constant `{name}` is declared nowhere; `{user}` has no maximum length");
            return sources.warn(name.place, message);
        }
        let _ = self.within(max, &(0..=u32::MAX.into()), user, sources);
    }

    fn program(
        &mut self,
        program: &'a Program,
        seen: &mut HashSet<&'a str>,
        sources: &mut Sources,
    ) {
        let numbers = 0..=i128::from(u32::MAX);
        let _ = self.within(&program.number, &numbers, &program.name, sources);
        let mut versions = HashSet::new();
        for version in &program.versions {
            let number = self.within(&version.number, &numbers, &version.name, sources);
            if number.is_some_and(|number| !versions.insert(number)) {
                let message = format!("program `{}` has this version twice", program.name);
                sources.error(version.name.place, message);
            }
            let (mut procedures, mut names) = (HashSet::new(), HashSet::new());
            for one in &version.procedures {
                let number = self.within(&one.number, &numbers, &one.name, sources);
                let is_again = number.is_some_and(|number| !procedures.insert(number));
                if is_again || !names.insert(&one.name.text) {
                    let message = "this version has another procedure of the same number or name";
                    sources.error(one.name.place, message);
                }
                if number == Some(0) && !(one.arguments.is_empty() && one.result == Type::Void) {
                    let message = "procedure 0 has neither arguments nor a result; it is left out";
                    sources.warn(one.name.place, message);
                }
                self.ty(&one.result, &one.name, seen, sources);
                for argument in &one.arguments {
                    self.ty(&argument.ty, &one.name, seen, sources);
                }
            }
        }
    }

    /// Returns whether an optional value of this type is in a box. This is so for types that may contain
    /// themselves.
    pub(super) fn is_boxed(&self, ty: &Type) -> bool {
        match self.end(ty) {
            Type::Named(name) => {
                matches!(self.body_of(&name.text), Some(Body::Struct(_) | Body::Union(_)))
            }
            Type::Inline(body) => !matches!(**body, Body::Enum(_)),
            Type::Array(..) | Type::Pointer(_) => true,
            _ => false,
        }
    }

    /// Returns whether a `typedef` becomes a struct with one field. This is so if its type has a maximum
    /// length, because only the attribute of a field can contain the maximum.
    pub(super) fn is_bounded(&self, ty: &Type) -> bool {
        self.max(ty).is_some()
    }

    /// Returns the maximum length of a string, of bytes, or of a sequence, if it has one.
    pub(super) fn max(&self, ty: &Type) -> Option<i128> {
        match ty {
            Type::String(max) | Type::Bytes(max) | Type::Sequence(_, max) => {
                max.as_ref().and_then(|max| self.number(max))
            }
            _ => None,
        }
    }

    /// Reports types that would have no finite size, and aliases that are defined by themselves.
    fn cycles(&mut self, sources: &mut Sources) {
        let mut names: Vec<&'a Name> = self.types.values().map(|one| &one.name).collect();
        names.sort_by_key(|name| (name.place.file, name.place.start));
        let numbers: HashMap<&str, usize> =
            names.iter().enumerate().map(|(number, name)| (&*name.text, number)).collect();
        let mut inside: Vec<Vec<usize>> = Vec::new();
        let mut renames: Vec<Vec<usize>> = Vec::new();
        let mut uses: Vec<Vec<usize>> = Vec::new();
        for name in &names {
            let body = &self.types[&*name.text].body;
            let mut parts = Vec::new();
            self.parts(body, false, &mut parts);
            inside.push(parts.iter().filter_map(|part| numbers.get(part)).copied().collect());
            parts.clear();
            if let Body::Alias(ty) = body
                && !self.is_bounded(ty)
            {
                self.parts_of(ty, true, &mut parts);
            }
            renames.push(parts.iter().filter_map(|part| numbers.get(part)).copied().collect());
            parts.clear();
            self.parts(body, true, &mut parts);
            uses.push(parts.iter().filter_map(|part| numbers.get(part)).copied().collect());
        }
        let numbers = graph::cycles(&uses);
        let recursive = graph::in_cycle(&uses).into_iter().enumerate().filter(|(_, is_in)| *is_in);
        let recursive = recursive.map(|(place, _)| (&*names[place].text, numbers[place])).collect();
        for number in graph::one_of_each(&renames) {
            let name = names[number];
            sources.error(name.place, format!("type `{name}` is defined by itself"));
        }
        for number in graph::one_of_each(&inside) {
            let name = names[number];
            let message =
                format!("type `{name}` contains itself; only a pointer to it can be there");
            sources.error(name.place, message);
        }
        self.recursive = recursive;
    }

    /// Returns whether a body mentions a type of the cycle `number`.
    pub(super) fn is_in_cycle(&self, body: &'a Body, number: u32) -> bool {
        let mut parts = Vec::new();
        self.parts(body, true, &mut parts);
        parts.iter().any(|part| self.recursive.get(part) == Some(&number))
    }

    /// Collects the types that are inside of a body. Types in a box or a sequence are collected only if `all`
    /// is true.
    fn parts(&self, body: &'a Body, all: bool, into: &mut Vec<&'a str>) {
        match body {
            Body::Enum(_) => {}
            Body::Struct(fields) => {
                fields.iter().for_each(|field| self.parts_of(&field.ty, all, into));
            }
            Body::Union(union) => arms(union).for_each(|data| self.parts_of(&data.ty, all, into)),
            Body::Alias(ty) => self.parts_of(ty, all, into),
        }
    }

    fn parts_of(&self, ty: &'a Type, all: bool, into: &mut Vec<&'a str>) {
        match ty {
            Type::Named(name) => into.push(&name.text),
            Type::Inline(body) => self.parts(body, all, into),
            Type::Array(of, _) => self.parts_of(of, all, into),
            Type::Sequence(of, _) if all => self.parts_of(of, all, into),
            Type::Pointer(of) if all || !self.is_boxed(of) => self.parts_of(of, all, into),
            _ => {}
        }
    }
}

/// Returns the data of all arms of a union.
pub(super) fn arms(union: &Union) -> impl Iterator<Item = &Declaration> {
    let default = union.default.iter().filter_map(|default| default.data.as_ref());
    union.arms.iter().filter_map(|arm| arm.data.as_ref()).chain(default)
}

/// Returns the type that the headers of C programs declare under a name.
pub(super) fn builtin(name: &str) -> Option<&'static Type> {
    Some(match name {
        "int8_t" => &Type::Char,
        "u_char" | "uint8_t" | "u_int8_t" => &Type::UnsignedChar,
        "int16_t" => &Type::Short,
        "u_short" | "ushort" | "uint16_t" | "u_int16_t" => &Type::UnsignedShort,
        "int32_t" | "enum_t" => &Type::Int,
        "u_int" | "uint" | "u_long" | "ulong" | "uint32_t" | "u_int32_t" | "rpcprog_t"
        | "rpcvers_t" | "rpcproc_t" | "rpcprot_t" | "rpcport_t" => &Type::UnsignedInt,
        "int64_t" | "quad_t" | "longlong_t" => &Type::Hyper,
        "uint64_t" | "u_int64_t" | "u_quad_t" | "u_longlong_t" => &Type::UnsignedHyper,
        _ => return None,
    })
}
