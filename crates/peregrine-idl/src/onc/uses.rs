//! Which names definitions declare and use, and the order in which C can read them.

use std::collections::{HashMap, HashSet};

use super::ast::*;
use super::check::arms;
use crate::graph;

/// Orders definitions so that each type is declared before its use, as `rpcgen` and C need it. Definitions
/// that have this order keep their places. A pointer or a sequence may lead to a struct or a union that is
/// declared later.
pub(crate) fn ordered(definitions: Vec<Definition>) -> Vec<Definition> {
    let names: Vec<Names> = definitions.iter().map(Names::of).collect();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (place, one) in names.iter().enumerate() {
        places.extend(one.declared.iter().map(|name| (&**name, place)));
    }
    let needs = |one: &Names| -> Vec<usize> {
        let linked = one.linked.iter().filter_map(|name| places.get(&**name)).copied();
        let linked = linked.filter(|place| !definitions[*place].is_tagged());
        let used = one.used.iter().filter_map(|name| places.get(&**name)).copied();
        used.chain(linked).collect()
    };
    let needs = |(one, names): (&Definition, _)| match one {
        // `rpcgen` puts the functions of programs at the end, so a program may precede the types that it
        // uses.
        Definition::Program(_) => Vec::new(),
        _ => needs(names),
    };
    let needs: Vec<Vec<usize>> = definitions.iter().zip(&names).map(needs).collect();
    // Definitions that need each other have no valid order, and keep their current order.
    let cycle = graph::cycles(&needs);
    let mut groups: HashMap<u32, Vec<usize>> = HashMap::new();
    for (place, number) in cycle.iter().enumerate() {
        groups.entry(*number).or_default().push(place);
    }
    let (mut seen, mut order) = (HashSet::new(), Vec::<usize>::new());
    for root in &cycle {
        // The groups on the path to the current group. With each group: the groups that it needs and that are
        // still to be visited.
        let mut work: Vec<(u32, Option<Vec<u32>>)> = vec![(*root, None)];
        while let Some((number, next)) = work.pop() {
            let mut next: Vec<u32> = match next {
                Some(next) => next,
                None if !seen.insert(number) => continue,
                None => {
                    let needs = groups[&number].iter().flat_map(|place| &needs[*place]);
                    needs.rev().map(|place| cycle[*place]).filter(|one| *one != number).collect()
                }
            };
            match next.pop() {
                Some(one) => work.extend([(number, Some(next)), (one, None)]),
                None => order.extend(&groups[&number]),
            }
        }
    }
    let mut definitions: Vec<Option<Definition>> = definitions.into_iter().map(Some).collect();
    order.into_iter().filter_map(|place| definitions[place].take()).collect()
}

/// The names of types and constants that definitions declare and use.
#[derive(Default)]
pub(super) struct Names {
    pub(super) declared: HashSet<String>,
    /// The names that C needs to be declared before the definition.
    pub(super) used: Vec<String>,
    /// The names of types to which pointers and sequences lead.
    pub(super) linked: Vec<String>,
}

impl Names {
    pub(super) fn of(one: &Definition) -> Self {
        let mut names = Self::default();
        names.definition(one);
        names
    }

    /// Returns all names that are used.
    pub(super) fn all(&self) -> impl Iterator<Item = &String> {
        self.used.iter().chain(&self.linked)
    }

    pub(super) fn definition(&mut self, one: &Definition) {
        match one {
            Definition::Constant(one) => {
                self.declares(&one.name);
                if let ConstantValue::Number(value) = &one.value {
                    self.value(value);
                }
            }
            Definition::Type(one) => {
                self.declares(&one.name);
                self.body(&one.body);
            }
            Definition::Program(one) => {
                self.declares(&one.name);
                self.value(&one.number);
                for version in &one.versions {
                    self.declares(&version.name);
                    self.value(&version.number);
                    for procedure in &version.procedures {
                        self.declares(&procedure.name);
                        self.value(&procedure.number);
                        procedure.arguments.iter().for_each(|argument| self.ty(&argument.ty));
                        self.ty(&procedure.result);
                    }
                }
            }
        }
    }

    fn declares(&mut self, name: &Name) {
        self.declared.insert(name.text.clone());
    }

    fn uses(&mut self, name: &Name) {
        if !["TRUE", "FALSE"].contains(&&*name.text) {
            self.used.push(name.text.clone());
        }
    }

    fn value(&mut self, value: &Value) {
        if let Value::Name(name) = value {
            self.uses(name);
        }
    }

    fn body(&mut self, body: &Body) {
        match body {
            Body::Enum(members) => {
                for member in members {
                    self.declares(&member.name);
                    member.value.iter().for_each(|value| self.value(value));
                }
            }
            Body::Struct(fields) => fields.iter().for_each(|field| self.ty(&field.ty)),
            Body::Union(union) => {
                self.ty(&union.switch.ty);
                union.arms.iter().flat_map(|arm| &arm.cases).for_each(|case| self.value(case));
                arms(union).for_each(|data| self.ty(&data.ty));
            }
            Body::Alias(ty) => self.ty(ty),
        }
    }

    fn ty(&mut self, ty: &Type) {
        match ty {
            Type::Named(name) => self.uses(name),
            Type::Inline(body) => self.body(body),
            Type::String(count) | Type::Bytes(count) => {
                count.iter().for_each(|count| self.value(count));
            }
            Type::Opaque(count) => self.value(count),
            Type::Array(of, count) => {
                self.ty(of);
                self.value(count);
            }
            Type::Sequence(of, count) => {
                self.link(of);
                count.iter().for_each(|count| self.value(count));
            }
            Type::Pointer(of) => self.link(of),
            _ => {}
        }
    }
    fn link(&mut self, of: &Type) {
        match of {
            Type::Named(name) => self.linked.push(name.text.clone()),
            of => self.ty(of),
        }
    }
}
