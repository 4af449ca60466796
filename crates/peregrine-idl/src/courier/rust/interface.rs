//! Prints the trait, the errors of its methods, and the modules of other programs.

use core::fmt::Write as _;
use std::collections::HashMap;

use super::super::ast::{Declaration, Fields, Numbers, Procedure, Type};
use super::super::problems::Problems;
use super::super::world::Id;
use super::items::{DERIVES, docs, structure, variant};
use super::{Imports, Numbered, Printer};
use crate::layout;
use crate::names::{Names, camel, snake, written};

/// The maximum width of the arguments of an attribute on one line, as in `rustfmt`.
const ATTRIBUTE_COLUMNS: usize = 70;

impl<'w> Printer<'w> {
    /// Prints the module of the program that is imported.
    pub(super) fn module(&mut self, unit: usize, problems: &mut Problems) -> String {
        self.imports = Imports::default();
        let interface = self.interface(problems);
        let items = self.items(unit, problems);
        self.uses() + &interface + &items
    }

    /// Prints the types of another program.
    pub(super) fn other_module(&mut self, unit: usize, problems: &mut Problems) -> Numbered {
        self.imports = Imports::default();
        let items = self.items(unit, problems);
        let program = &self.world.units[unit].program;
        let Numbers { program: number, version } =
            program.numbers.unwrap_or(Numbers { program: 0, version: 0 });
        let docs = format!(
            "Types of program `{}`, number {number}, version {version}.",
            program.name.text
        );
        let text = self.uses() + &items;
        Numbered { docs, text: text.trim_start_matches('\n').to_owned() }
    }

    /// Prints the `use` declarations of a module.
    fn uses(&self) -> String {
        let Imports { byte_string, value, call_error, interface } = self.imports;
        let list = |names: &[(bool, &'static str)]| -> Vec<&'static str> {
            names.iter().filter(|(is_used, _)| *is_used).map(|(_, name)| *name).collect()
        };
        let line = |path: &str, names: Vec<&str>| match &*names {
            [] => String::new(),
            [name] => format!("use {path}::{name};\n"),
            names => format!("use {path}::{{{}}};\n", names.join(", ")),
        };
        let used = [(call_error, "CallError"), (value, "Value"), (interface, "interface")];
        let used = list(&used);
        let is_first = matches!(*used, ["CallError" | "Value"]);
        let own = line("peregrine", used);
        let foreign =
            line("peregrine::foreign", list(&[(byte_string, "ByteString"), (value, "Foreign")]));
        // `rustfmt` puts a `use` of one type before that of the module `foreign`. It puts a `use` of
        // `interface`, or of a list, after it.
        if is_first { own + &foreign } else { foreign + &own }
    }

    /// Prints the declarations of a program that are types or constants.
    fn items(&mut self, unit: usize, problems: &mut Problems) -> String {
        let mut places: Vec<usize> = (0..self.checked.reached.len()).collect();
        places.retain(|place| self.checked.reached[*place].0 == unit);
        places.sort_by_key(|place| self.checked.reached[*place].1);
        let mut text = String::new();
        let mut was_line = false;
        for place in places {
            let id = self.checked.reached[place];
            let Declaration { docs, name, ty, value } = self.world.declaration(id);
            let base = self.world.base(unit, ty).1;
            let item = match base {
                _ if self.checked.bulk[place] => {
                    problems.enter(unit);
                    if matches!(base, Type::Procedure(_) | Type::Error(_)) || value.is_some() {
                        continue;
                    }
                    let reason = format!("`{}` is left out, because it is bulk data", name.text);
                    problems.warn(&name.span, reason);
                    continue;
                }
                // The arguments become parameters or fields. Only the types within the arguments are printed
                // here.
                Type::Procedure(_) | Type::Error(_) => {
                    let inner = self.inner_types(id, ty);
                    text.push_str(&inner);
                    was_line &= inner.is_empty();
                    continue;
                }
                _ if value.is_some() => self.constant(id, docs) + &self.inner_type(id, ty),
                _ => self.declared_type(id, docs),
            };
            let is_line = item.lines().count() == 1;
            text.push_str(if is_line && was_line { "" } else { "\n" });
            text.push_str(&item);
            was_line = is_line;
        }
        text
    }

    /// Prints the trait, and the types that only its methods use.
    fn interface(&mut self, problems: &mut Problems) -> String {
        let world = self.world;
        let program = &world.units[0].program;
        let procedures: Vec<(Id, &Declaration, &Procedure, usize)> =
            (0..program.declarations.len())
                .filter_map(|number| {
                    let declaration = world.declaration((0, number));
                    declaration.value.as_ref()?;
                    match world.base(0, &declaration.ty) {
                        (unit, Type::Procedure(procedure)) => {
                            Some(((0, number), declaration, procedure, unit))
                        }
                        _ => None,
                    }
                })
                .collect();
        if procedures.is_empty() {
            return String::new();
        }
        let (errors, named) = self.errors(&procedures);
        self.imports.interface = true;
        let mut text = format!("\n{}{}", docs("", &program.docs), self.attribute());
        let _ = writeln!(text, "pub trait {} {{", self.trait_name);
        let mut results = String::new();
        let mut names = Names::default();
        for (number, (id, declaration, procedure, _)) in procedures.iter().enumerate() {
            let Declaration { docs: comment, name, .. } = declaration;
            let procedure_number = world.number_of(*id).unwrap_or_default();
            let separator = if number > 0 && !comment.is_empty() { "\n" } else { "" };
            if self.checked.bulk[self.checked.places[id]] {
                problems.enter(0);
                let reason = "because it transfers bulk data, which is not carried";
                problems
                    .warn(&name.span, format!("procedure `{}` is left out, {reason}", name.text));
                let (name, number) = (&name.text, procedure_number);
                let _ = writeln!(
                    text,
                    "    // Procedure {number}, `{name}`, transfers bulk data, and is left out."
                );
                continue;
            }
            text.push_str(separator);
            text.push_str(&docs("    ", comment));
            let _ = writeln!(text, "    #[courier({procedure_number})]");
            let method = written(&names.take(snake(&name.text)));
            let (method, result) = self.method(*id, &method, procedure, named.get(id));
            text.push_str(&method);
            results.push_str(&result);
        }
        text + "}\n" + &results + &errors
    }

    fn attribute(&self) -> String {
        let program = &self.world.units[0].program;
        let name = &program.name.text;
        let arguments = match program.numbers {
            Some(Numbers { program, version }) => vec![
                format!("name = \"{name}\""),
                format!("version = {version}"),
                format!("courier(program = {program}, version = {version})"),
            ],
            None => vec![format!("name = \"{name}\""), "courier".to_owned()],
        };
        let one = arguments.join(", ");
        match one.len() <= ATTRIBUTE_COLUMNS {
            true => format!("#[interface({one})]\n"),
            false => format!("#[interface(\n    {}\n)]\n", arguments.join(",\n    ")),
        }
    }

    /// Returns a method, and the types that only this method needs.
    fn method(
        &mut self,
        id: Id,
        name: &str,
        procedure: &'w Procedure,
        error: Option<&String>,
    ) -> (String, String) {
        let owner = self.world.end_of_type(id);
        let Procedure { arguments, results, .. } = procedure;
        let mut names = Names::default();
        names.take("self");
        let mut parameters = vec!["&self".to_owned()];
        for Fields { names: of, ty } in arguments {
            let ty = self.ty(0, owner, ty, false);
            for one in of {
                parameters.push(format!("{}: {ty}", written(&names.take(snake(&one.text)))));
            }
        }
        let mut types = String::new();
        let result = match &**results {
            [] => "()".to_owned(),
            [Fields { names, ty }] if names.len() == 1 => self.ty(0, owner, ty, false),
            several => {
                let wanted = format!("{}Results", camel(&self.world.declaration(id).name.text));
                let own = self.names[0].take(wanted);
                let fields = self.fields(0, owner, several);
                self.imports.value = true;
                let called = &self.world.declaration(id).name.text;
                let _ = write!(
                    types,
                    "\n/// The results of `{called}`.\n{}",
                    structure(DERIVES, &own, &fields)
                );
                own
            }
        };
        let returns = match error {
            Some(error) => format!("Result<{result}, {error}>"),
            None => format!("peregrine::Result<{result}>"),
        };
        (layout::method("    ", name, &parameters, &returns), types)
    }

    /// Prints an enum for each different list of errors that procedures report. Also returns the name of the
    /// enum for each procedure that reports errors.
    fn errors(
        &mut self,
        procedures: &[(Id, &'w Declaration, &'w Procedure, usize)],
    ) -> (String, HashMap<Id, String>) {
        let mut lists: Vec<(Vec<Id>, Vec<Id>)> = Vec::new();
        let mut known: HashMap<Vec<Id>, usize> = HashMap::new();
        for (id, _, procedure, unit) in procedures {
            let is_bulk = self.checked.bulk[self.checked.places[id]];
            if procedure.reports.is_empty() || is_bulk {
                continue;
            }
            let reports = procedure.reports.iter().filter_map(|one| self.world.id(*unit, one));
            let mut reports: Vec<Id> = reports.collect();
            reports.sort_by_key(|error| (self.world.number_of(*error), *error));
            let place = *known.entry(reports.clone()).or_insert_with(|| {
                lists.push((reports, Vec::new()));
                lists.len() - 1
            });
            lists[place].1.push(*id);
        }
        let is_only = lists.len() == 1;
        let (mut text, mut names) = (String::new(), HashMap::new());
        for (reports, of) in lists {
            let first = &self.world.declaration(of[0]).name.text;
            let base = if is_only { self.trait_name.clone() } else { camel(first) };
            let name = self.names[0].take(format!("{base}Error"));
            text.push_str(&self.error(&name, &reports));
            names.extend(of.into_iter().map(|id| (id, name.clone())));
        }
        (text, names)
    }

    /// Prints an enum of errors, with a variant for calls that fail.
    fn error(&mut self, name: &str, reports: &[Id]) -> String {
        (self.imports.value, self.imports.call_error) = (true, true);
        let mut text = format!(
            "\n/// Why a call failed.\n#[derive(Debug, Foreign, Value)]\npub enum {name} {{\n"
        );
        let mut names = Names::default();
        for id in reports {
            let Declaration { docs: comment, name, ty, .. } = self.world.declaration(*id);
            let number = self.world.number_of(*id).unwrap_or_default();
            text.push_str(&docs("    ", comment));
            let _ = writeln!(text, "    #[foreign(error = {number})]");
            let owner = self.world.end_of_type(*id);
            let Type::Error(fields) = self.world.base(id.0, ty).1 else { continue };
            let fields = self.fields(0, owner, fields);
            text.push_str(&variant(&names.take(camel(&name.text)), &fields));
        }
        let call = names.take("Call");
        let _ = write!(
            text,
            "    /// The call failed for a reason that is not the procedure's.\n    {call}(CallError),\n}}\n\n\
             impl From<CallError> for {name} {{\n    fn from(error: CallError) -> Self {{\n        \
             Self::{call}(error)\n    }}\n}}\n"
        );
        text
    }
}
