//! Prints a checked program as a Rust trait with its types.

mod interface;
mod items;
mod values;

use std::collections::HashMap;

use super::ast::{Declaration, Fields, Procedure, Simple, Type};
use super::check::{Checked, Use};
use super::problems::Problems;
use super::world::{Id, World};
use crate::graph;
use crate::names::{self, Names, camel, shouty, snake};

/// Prints a program that has no errors.
pub(crate) fn print(world: &World, checked: &Checked, problems: &mut Problems) -> String {
    let mut printer = Printer::new(world, checked);
    let main = printer.module(0, problems);
    let mut others = String::new();
    for unit in 1..world.units.len() {
        let Some(module) = printer.modules[unit].clone() else { continue };
        let Numbered { docs, text } = printer.other_module(unit, problems);
        others.push_str(&format!("\n/// {docs}\npub mod {module} {{\n{}}}\n", indented(&text)));
    }
    main + &others
}

/// The text of a module, and its documentation.
struct Numbered {
    docs: String,
    text: String,
}

fn indented(text: &str) -> String {
    let line = |line: &str| match line {
        "" => "\n".to_owned(),
        line => format!("    {line}\n"),
    };
    text.lines().map(line).collect()
}

/// For each of these names of the library, whether a module uses the name.
#[derive(Default)]
struct Imports {
    byte_string: bool,
    value: bool,
    call_error: bool,
    interface: bool,
}

struct Printer<'w> {
    world: &'w World,
    checked: &'w Checked,
    /// For each reached declaration, its name in Rust.
    declared: Vec<String>,
    /// For each undeclared type that needs a name in Rust, that name.
    inner: HashMap<*const Type, String>,
    /// For each program, the name of its module. `None` for the first program, and for a program of which
    /// nothing is used.
    modules: Vec<Option<String>>,
    names: Vec<Names>,
    trait_name: String,
    /// For each reached declaration that contains itself without a sequence in between, the number of its
    /// cycle. Such a declaration contains itself directly or through other declarations.
    cycles: Vec<Option<u32>>,
    /// For each reached declaration, whether its type cannot be an alias, because the alias would contain
    /// itself.
    is_wrapped: Vec<bool>,
    /// For each reached declaration, whether it contains itself, directly or through other declarations.
    is_recursive: Vec<bool>,
    /// For each reached declaration, whether its values need allocated memory, so that constants must be
    /// functions.
    needs_memory: Vec<bool>,
    imports: Imports,
    /// The number of the program that contains the constant that is being printed.
    current: usize,
}

impl<'w> Printer<'w> {
    fn new(world: &'w World, checked: &'w Checked) -> Self {
        let parts = |filter: &dyn Fn(usize, &Use) -> bool| -> Vec<Vec<usize>> {
            let uses = checked.uses.iter().enumerate();
            uses.map(|(place, uses)| {
                uses.iter().filter(|one| filter(place, one)).map(|one| one.of).collect()
            })
            .collect()
        };
        let direct = parts(&|_, one| !one.around.sequence);
        let numbers = graph::cycles(&direct);
        let is_in = graph::in_cycle(&direct);
        let cycles = is_in.iter().zip(numbers).map(|(is_in, number)| is_in.then_some(number));
        let cycles: Vec<Option<u32>> = cycles.collect();
        let is_alias: Vec<bool> = checked
            .reached
            .iter()
            .map(|id| !has_name(world, id.0, &world.declaration(*id).ty))
            .collect();
        let aliases = parts(&|place, one| is_alias[place] && is_alias[one.of] && !one.around.named);
        let seeds = checked.reached.iter().enumerate().filter(|(place, id)| {
            cycles[*place].is_some() || contains_memory(&world.declaration(**id).ty)
        });
        let seeds: Vec<usize> = seeds.map(|(place, _)| place).collect();
        let mut printer = Self {
            world,
            checked,
            declared: vec![String::new(); checked.reached.len()],
            inner: HashMap::new(),
            modules: vec![None; world.units.len()],
            names: world.units.iter().map(|_| Names::of_types()).collect(),
            trait_name: String::new(),
            cycles,
            is_wrapped: graph::in_cycle(&aliases),
            is_recursive: graph::in_cycle(&parts(&|_, _| true)),
            needs_memory: graph::reaching(&parts(&|_, _| true), seeds),
            imports: Imports::default(),
            current: 0,
        };
        printer.name_all();
        printer
    }

    fn name_all(&mut self) {
        let (world, checked) = (self.world, self.checked);
        for (place, id) in checked.reached.iter().enumerate() {
            let Declaration { name, ty, value, .. } = world.declaration(*id);
            let is_code = matches!(world.base(id.0, ty).1, Type::Procedure(_) | Type::Error(_));
            let wanted = match value {
                None => camel(&name.text),
                // Procedures become methods, and errors become variants. Both get their names where they are
                // printed.
                Some(_) if is_code => continue,
                Some(_) if self.is_function(*id) => snake(&name.text),
                Some(_) => shouty(&name.text),
            };
            self.declared[place] = self.names[id.0].take(wanted);
        }
        let mut modules = Names::default();
        for id in checked.reached.iter().filter(|id| id.0 > 0) {
            if self.modules[id.0].is_none() {
                let program = &world.units[id.0].program;
                let version = program.numbers.map_or(0, |numbers| numbers.version);
                let wanted = format!("{}_v{version}", snake(&program.name.text));
                self.modules[id.0] = Some(modules.take(wanted));
            }
        }
        self.name_trait();
        for (place, id) in checked.reached.iter().enumerate() {
            let Declaration { name, ty, value, .. } = world.declaration(*id);
            let hint = match value {
                None => self.declared[place].clone(),
                Some(_) => camel(&name.text),
            };
            match ty {
                Type::Procedure(Procedure { arguments, results, .. }) => {
                    self.name_fields(id.0, &hint, arguments, false);
                    let is_struct = results.iter().map(|one| one.names.len()).sum::<usize>() > 1;
                    self.name_fields(id.0, &hint, results, is_struct);
                }
                Type::Error(arguments) => self.name_fields(id.0, &hint, arguments, true),
                _ if value.is_some() => self.name_inner(id.0, &hint, ty, false),
                _ => self.name_parts(id.0, &hint, ty),
            }
        }
    }

    /// Names the trait. The names of the client and the server, which the macro makes, must be free, too.
    fn name_trait(&mut self) {
        const MADE: [&str; 6] = ["", "Client", "Server", "Async", "AsyncClient", "AsyncServer"];
        let base = camel(&self.world.units[0].program.name.text);
        let names = &mut self.names[0];
        let is_free =
            |wanted: &String| MADE.iter().all(|made| names.is_free(&format!("{wanted}{made}")));
        let numbered = (2..).map(|number| format!("{base}Program{number}"));
        let mut wanted = [base.clone(), format!("{base}Program")].into_iter().chain(numbered);
        self.trait_name = wanted.find(is_free).unwrap_or(base);
        for made in MADE {
            names.take(format!("{}{made}", self.trait_name));
        }
    }

    /// Gives names to a type without a declaration, and to the types within it. `in_field` says whether the
    /// type is that of a field. A sequence with a maximum needs no name there, because an attribute of the
    /// field can contain the maximum.
    fn name_inner(&mut self, unit: usize, hint: &str, ty: &'w Type, in_field: bool) {
        let is_bounded_field = in_field && matches!(ty, Type::Sequence(..));
        if !is_bounded_field && has_name(self.world, unit, ty) && !matches!(ty, Type::Named(_)) {
            let name = self.names[unit].take(hint);
            self.inner.insert(core::ptr::from_ref(ty), name.clone());
            return self.name_parts(unit, &name, ty);
        }
        self.name_parts(unit, hint, ty);
    }

    /// Gives names to the types within a type.
    fn name_parts(&mut self, unit: usize, hint: &str, ty: &'w Type) {
        match ty {
            Type::Array(_, element) | Type::Sequence(_, element) => {
                self.name_inner(unit, &format!("{hint}Item"), element, false);
            }
            Type::Record(fields) => self.name_fields(unit, hint, fields, true),
            Type::Choice(_, arms) => {
                for arm in arms {
                    let hint = format!("{hint}{}", camel(&arm.tags[0].name.text));
                    match &arm.ty {
                        // The fields of a record become those of the variant.
                        Type::Record(fields) if arm.tags.len() == 1 => {
                            self.name_fields(unit, &hint, fields, true);
                        }
                        ty => self.name_inner(unit, &hint, ty, true),
                    }
                }
            }
            _ => {}
        }
    }

    fn name_fields(&mut self, unit: usize, hint: &str, fields: &'w [Fields], in_field: bool) {
        for fields in fields {
            let hint = format!("{hint}{}", camel(&fields.names[0].text));
            self.name_inner(unit, &hint, &fields.ty, in_field);
        }
    }

    /// Returns whether a constant must be a function, because its value needs allocated memory. A constant
    /// that is just a string need not be a function.
    fn is_function(&self, id: Id) -> bool {
        let place = self.checked.places[&id];
        self.needs_memory[place] && !self.is_text(id)
    }

    /// Returns whether a declaration is a string type or a constant of such a type.
    fn is_text(&self, id: Id) -> bool {
        let base = self.world.base(id.0, &self.world.declaration(id).ty).1;
        matches!(base, Type::Simple(Simple::String))
    }

    /// Returns the path of the module of the program `unit`, as it is written before names in the module of
    /// the program `at`.
    fn prefix(&self, at: usize, unit: usize) -> String {
        let module = |unit: usize| self.modules[unit].clone().unwrap_or_default();
        match (at, unit) {
            (at, unit) if at == unit => String::new(),
            (0, unit) => format!("{}::", module(unit)),
            (_, 0) => "super::".to_owned(),
            (_, unit) => format!("super::{}::", module(unit)),
        }
    }

    /// Returns the path of a declaration, as it is written in the module of the program `at`.
    fn path(&self, at: usize, id: Id) -> String {
        let name = names::written(&self.declared[self.checked.places[&id]]);
        self.prefix(at, id.0) + &name
    }

    /// Returns a type as it is written in the module of the program `at`. The type is within the declaration
    /// `owner`.
    fn ty(&mut self, at: usize, owner: Id, ty: &'w Type, in_sequence: bool) -> String {
        if let Some(name) = self.inner.get(&core::ptr::from_ref(ty)) {
            return self.prefix(at, owner.0) + name;
        }
        match ty {
            Type::Simple(simple) => match simple {
                Simple::Boolean => "bool",
                Simple::Cardinal | Simple::Unspecified => "u16",
                Simple::LongCardinal | Simple::LongUnspecified => "u32",
                Simple::Integer => "i16",
                Simple::LongInteger => "i32",
                Simple::String => {
                    self.imports.byte_string = true;
                    "ByteString"
                }
            }
            .to_owned(),
            Type::Array(count, element) => {
                let count = self.world.number(owner.0, count).unwrap_or_default();
                format!("[{}; {count}]", self.ty(at, owner, element, in_sequence))
            }
            Type::Sequence(_, element) => format!("Vec<{}>", self.ty(at, owner, element, true)),
            Type::Named(reference) => match self.world.id(owner.0, reference) {
                Some(id) if !in_sequence && self.is_boxed(owner, id) => {
                    format!("Box<{}>", self.path(at, id))
                }
                Some(id) => self.path(at, id),
                None => "()".to_owned(),
            },
            // All other types have names, except for a record without fields.
            _ => "()".to_owned(),
        }
    }

    /// Returns whether a use of a type within a declaration must be in a box.
    fn is_boxed(&self, owner: Id, of: Id) -> bool {
        let place = |id| self.checked.places[&id];
        let cycle = self.cycles[place(owner)];
        cycle.is_some() && cycle == self.cycles[place(of)] && self.is_item(owner)
    }

    /// Returns whether a declared type is a type in Rust, and not an alias.
    fn is_item(&self, id: Id) -> bool {
        let place = self.checked.places[&id];
        self.is_wrapped[place] || has_name(self.world, id.0, &self.world.declaration(id).ty)
    }
}

/// Returns whether a type is a struct or an enum in Rust, and not an alias. A sequence with a maximum is a
/// struct.
fn has_name(world: &World, unit: usize, ty: &Type) -> bool {
    match ty {
        Type::Enumeration(_) | Type::Choice(..) => true,
        Type::Record(fields) => !fields.is_empty(),
        Type::Sequence(Some(max), _) => world.is_bound(unit, max),
        _ => false,
    }
}

/// Returns whether the values of a type need allocated memory. Declared types within the type are not
/// considered.
fn contains_memory(ty: &Type) -> bool {
    let any = |fields: &[Fields]| fields.iter().any(|fields| contains_memory(&fields.ty));
    match ty {
        Type::Sequence(..) | Type::Simple(Simple::String) => true,
        Type::Array(_, element) => contains_memory(element),
        Type::Record(fields) | Type::Error(fields) => any(fields),
        Type::Choice(_, arms) => arms.iter().any(|arm| contains_memory(&arm.ty)),
        _ => false,
    }
}
