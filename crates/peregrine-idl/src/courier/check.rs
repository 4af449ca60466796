//! Checks the meaning of a program: its names, numbers and constants, and types that contain themselves.

mod values;

pub(crate) use values::is_tag;

use std::collections::{HashMap, HashSet};

use super::ast::{Arm, Count, Declaration, Fields, Name, Procedure, Reference, Span, Tag, Type};
use super::problems::Problems;
use super::world::{Found, Id, World};
use crate::graph;

/// The largest number of a procedure, an error or a designator, and the largest count. Each of them is a word
/// of 16 bits.
pub(crate) const WORD_MAX: i64 = u16::MAX as i64;

/// The maximum number of steps for checking all constants. In `[a, b: [1, 2]]`, for example, two fields share
/// a written value, and each of them is checked. So constants can be much longer than their text.
const STEPS_MAX: usize = 1 << 18;

/// The declarations of which a trait consists.
pub(crate) struct Checked {
    /// All declarations of the program that is imported, and all declarations that these use.
    pub(crate) reached: Vec<Id>,
    pub(crate) places: HashMap<Id, usize>,
    /// For each declaration in `reached`, the types that it uses.
    pub(crate) uses: Vec<Vec<Use>>,
    /// For each declaration in `reached`, whether it contains a `BulkData.Source` or `BulkData.Sink`, also
    /// through other declarations.
    pub(crate) bulk: Vec<bool>,
}

/// The use of a declared type in a declaration.
#[derive(Clone, Copy)]
pub(crate) struct Use {
    /// The place of the type in `reached`.
    pub(crate) of: usize,
    pub(crate) around: Around,
}

/// What surrounds the use of a type within a declaration.
#[derive(Clone, Copy, Default)]
pub(crate) struct Around {
    /// Whether the use is within a sequence, which may be empty.
    pub(crate) sequence: bool,
    /// Whether the use is within a choice, which may have another designator.
    pub(crate) choice: bool,
    /// Whether the use is within a record, a choice or a sequence with a maximum. These types have a name in
    /// Rust.
    pub(crate) named: bool,
}

/// Checks the first program of a world, which is the program that is imported, and all declarations that this
/// program uses.
pub(crate) fn check(world: &World, problems: &mut Problems) -> Checked {
    let checked =
        Checked { reached: Vec::new(), places: HashMap::new(), uses: Vec::new(), bulk: Vec::new() };
    let mut checker = Checker {
        world,
        problems,
        checked,
        bulk: HashSet::new(),
        place: 0,
        unit: 0,
        steps: Some(STEPS_MAX),
    };
    let count = world.units[0].program.declarations.len();
    for number in 0..count {
        checker.reach((0, number));
    }
    let mut place = 0;
    while place < checker.checked.reached.len() && !checker.is_full() {
        let id = checker.checked.reached[place];
        (checker.place, checker.unit) = (place, id.0);
        checker.problems.enter(id.0);
        checker.declaration(world.declaration(id));
        place += 1;
    }
    checker.procedure_numbers();
    checker.endless();
    let Checker { mut checked, bulk, .. } = checker;
    let uses: Vec<Vec<usize>> =
        checked.uses.iter().map(|uses| uses.iter().map(|one| one.of).collect()).collect();
    checked.bulk = graph::reaching(&uses, bulk);
    checked
}

struct Checker<'w, 'p> {
    world: &'w World,
    problems: &'p mut Problems,
    checked: Checked,
    /// The places in `reached` of declarations that name a `BulkData.Source` or `BulkData.Sink`.
    bulk: HashSet<usize>,
    /// The place in `reached` of the declaration that is being checked.
    place: usize,
    /// The index in `World::units` of the program that contains this declaration.
    unit: usize,
    /// The number of steps that are left for checking constants. `None` after more than [`STEPS_MAX`] were
    /// needed.
    steps: Option<usize>,
}

impl<'w> Checker<'w, '_> {
    /// Returns whether no further problem would be shown.
    fn is_full(&self) -> bool {
        self.problems.errors.omitted() > 0
    }

    /// Returns the place of a declaration in `reached`. A new declaration is added there, so that it is
    /// checked later.
    fn reach(&mut self, id: Id) -> usize {
        let Checked { reached, places, uses, .. } = &mut self.checked;
        *places.entry(id).or_insert_with(|| {
            reached.push(id);
            uses.push(Vec::new());
            reached.len() - 1
        })
    }

    fn declaration(&mut self, declaration: &'w Declaration) {
        let Declaration { name, ty, value, .. } = declaration;
        match ty {
            Type::Procedure(procedure) => self.procedure(procedure),
            Type::Error(arguments) => self.fields(arguments, Around::default()),
            _ if value.is_some() && self.is_code(ty) => drop(self.declared_type(ty)),
            _ if value.is_none() => self.data_or_code(ty),
            _ => self.data(ty, Around::default()),
        }
        if let Some(value) = value {
            self.constant(ty, value);
        } else if let Type::Named(_) = ty
            && self.world.end(self.checked.reached[self.place]).is_none()
        {
            self.problems.report(&name.span, format!("`{}` is defined by itself", name.text));
        }
    }

    /// Returns whether a type is a procedure or an error, which are not data.
    fn is_code(&self, ty: &Type) -> bool {
        matches!(self.world.base(self.unit, ty).1, Type::Procedure(_) | Type::Error(_))
    }

    fn data_or_code(&mut self, ty: &'w Type) {
        match ty {
            Type::Named(_) if self.is_code(ty) => drop(self.declared_type(ty)),
            _ => self.data(ty, Around::default()),
        }
    }

    fn data(&mut self, ty: &'w Type, mut around: Around) {
        match ty {
            Type::Simple(_) => {}
            Type::Enumeration(tags) => self.enumeration(tags),
            Type::Array(count, element) => {
                self.count(count, "an array has");
                self.data(element, around);
            }
            Type::Sequence(max, element) => {
                if let Some(max) = max {
                    self.count(max, "a sequence has");
                }
                around.sequence = true;
                around.named |= max.as_ref().is_some_and(|max| self.world.is_bound(self.unit, max));
                self.data(element, around);
            }
            Type::Record(fields) => self.fields(fields, Around { named: true, ..around }),
            Type::Choice(by, arms) => {
                self.choice(by.as_ref(), arms);
                let around = Around { named: true, choice: true, ..around };
                arms.iter().for_each(|arm| self.data(&arm.ty, around));
            }
            // The parser accepts these types only directly in a declaration, and not within another type.
            Type::Procedure(_) | Type::Error(_) => {}
            Type::Named(reference) if self.is_code(ty) => {
                let reason =
                    format!("`{}` is a procedure or an error, and not data", reference.name.text);
                self.report(&reference.name.span, reason);
            }
            Type::Named(_) => {
                if let Some(of) = self.declared_type(ty) {
                    self.checked.uses[self.place].push(Use { of, around });
                }
            }
        }
    }

    /// Returns the place in `reached` of a declared type. Reports an error if the type is not declared.
    fn declared_type(&mut self, ty: &'w Type) -> Option<usize> {
        let Type::Named(reference) = ty else { return None };
        let id = self.find(reference, "type")?;
        if self.world.declaration(id).value.is_some() {
            let reason = format!("`{}` is a constant, and not a type", reference.name.text);
            self.report(&reference.name.span, reason);
            return None;
        }
        Some(self.reach(id))
    }

    fn report(&mut self, span: &Span, reason: impl Into<String>) {
        self.problems.report(span, reason);
    }

    /// Returns the declaration to which a reference leads. Reports an error if the reference leads to no
    /// declaration.
    fn find(&mut self, reference: &Reference, what: &str) -> Option<Id> {
        let Name { text, span } = &reference.name;
        let program = reference.program.as_ref();
        let of = program.map_or_else(String::new, |program| format!(" in `{}`", program.text));
        match self.world.find(self.unit, reference) {
            Found::Declaration(id) => return Some(id),
            Found::Bulk => drop(self.bulk.insert(self.place)),
            _ if self.is_full() => self.report(span, ""),
            Found::NoText(numbers) => {
                let (program, version) = (numbers.program, numbers.version);
                let reason = format!(
                    "the text of program {program} version {version}, which has the {what} `{text}`, is missing"
                );
                self.report(span, reason);
            }
            Found::NoProgram => {
                let span = program.map_or(span, |program| &program.span);
                self.report(span, format!("no program{of} is depended upon"));
            }
            Found::Nothing => {
                let unit = if program.is_some() { None } else { Some(self.unit) };
                let similar = unit.and_then(|unit| self.world.similar(unit, text));
                let similar = similar.map_or_else(String::new, |one| format!("; there is `{one}`"));
                self.report(span, format!("there is no {what} `{text}`{of}{similar}"));
            }
        }
        None
    }

    /// Checks a count of elements.
    fn count(&mut self, count: &Count, what: &str) {
        if let Some((number, span)) = self.number(count)
            && !(0..=WORD_MAX).contains(&number)
        {
            self.report(&span, format!("{what} at most {WORD_MAX} elements, not {number}"));
        }
    }

    /// Returns the number that `count` contains, or the value of the constant that it names, with the place
    /// in the text. Reports an error if the constant is not a number.
    fn number(&mut self, count: &Count) -> Option<(i64, Span)> {
        let reference = match count {
            Count::Number(number, span) => return Some((*number, span.clone())),
            Count::Named(reference) => reference,
        };
        let id = self.find(reference, "constant")?;
        match self.world.number_of(id) {
            Some(number) => Some((number, reference.name.span.clone())),
            None => {
                let reason = format!("`{}` is not a number", reference.name.text);
                self.report(&reference.name.span, reason);
                None
            }
        }
    }

    /// Checks that names differ.
    fn names<'n>(&mut self, names: impl Iterator<Item = &'n Name>, what: &str) {
        let mut seen = HashSet::new();
        for name in names {
            if !seen.insert(&name.text) {
                self.report(&name.span, format!("there are two {what} `{}`", name.text));
            }
        }
    }

    fn fields(&mut self, fields: &'w [Fields], around: Around) {
        self.names(fields.iter().flat_map(|fields| &fields.names), "fields");
        fields.iter().for_each(|fields| self.data(&fields.ty, around));
    }

    fn enumeration(&mut self, tags: &[Tag]) {
        self.names(tags.iter().map(|tag| &tag.name), "names");
        let mut seen = HashMap::new();
        for Tag { name, number } in tags {
            let Some((number, span)) = number.as_ref().and_then(|number| self.number(number))
            else {
                continue;
            };
            if !(0..=WORD_MAX).contains(&number) {
                self.report(
                    &span,
                    format!("numbers of names are at most {WORD_MAX}, not {number}"),
                );
            }
            if let Some(other) = seen.insert(number, &name.text) {
                let reason = format!("`{}` and `{other}` have the same number {number}", name.text);
                self.report(&span, reason);
            }
        }
    }

    /// Checks the designators of a choice.
    fn choice(&mut self, by: Option<&'w Reference>, arms: &'w [Arm]) {
        let tags = || arms.iter().flat_map(|arm| &arm.tags);
        let Some(by) = by else {
            let tags: Vec<Tag> = tags().cloned().collect();
            return self.enumeration(&tags);
        };
        self.names(tags().map(|tag| &tag.name), "arms for");
        let Some(id) = self.find(by, "enumeration") else { return };
        self.reach(id);
        let world = self.world;
        let Some((unit, Type::Enumeration(all))) = world.enumeration(self.unit, by) else {
            return self.report(&by.name.span, format!("`{}` is not an enumeration", by.name.text));
        };
        let numbers: HashMap<&str, Option<i64>> = all
            .iter()
            .map(|tag| {
                (&*tag.name.text, tag.number.as_ref().and_then(|one| world.number(unit, one)))
            })
            .collect();
        for Tag { name, number } in tags() {
            let Some(right) = numbers.get(&*name.text) else {
                let reason = format!("`{}` is not a name of `{}`", name.text, by.name.text);
                self.report(&name.span, reason);
                continue;
            };
            let written = number.as_ref().and_then(|number| self.number(number));
            if let (Some((number, span)), Some(right)) = (written, right)
                && number != *right
            {
                let by = &by.name.text;
                self.report(&span, format!("`{}` has the number {right} in `{by}`", name.text));
            }
        }
    }

    fn procedure(&mut self, procedure: &'w Procedure) {
        let Procedure { arguments, results, reports } = procedure;
        self.fields(arguments, Around::default());
        self.fields(results, Around::default());
        let mut seen = HashMap::new();
        for reference in reports {
            let Name { text, span } = &reference.name;
            let Some(id) = self.find(reference, "error") else { continue };
            let declaration = self.world.declaration(id);
            let is_error = matches!(self.world.base(id.0, &declaration.ty).1, Type::Error(_));
            if !is_error || declaration.value.is_none() {
                self.report(span, format!("`{text}` is not an error with a number"));
                continue;
            }
            let of = self.reach(id);
            self.checked.uses[self.place].push(Use { of, around: Around::default() });
            let number = self.world.number_of(id);
            if let Some(other) = number.and_then(|number| seen.insert(number, text)) {
                let reason = format!("`{text}` and `{other}` are errors of the same number");
                self.report(span, reason);
            }
        }
    }

    /// Checks that no two procedures have the same number.
    fn procedure_numbers(&mut self) {
        let mut seen = HashMap::new();
        self.problems.enter(0);
        let world = self.world;
        for (number, declaration) in world.units[0].program.declarations.iter().enumerate() {
            let is_procedure = matches!(world.base(0, &declaration.ty).1, Type::Procedure(_));
            let Some(value) = world.number_of((0, number)).filter(|_| is_procedure) else {
                continue;
            };
            let Name { text, span } = &declaration.name;
            if let Some(other) = seen.insert(value, text) {
                self.report(
                    span,
                    format!("`{text}` and `{other}` are procedures of the same number"),
                );
            }
        }
    }

    /// Reports types of which each value would have to contain another value of the same type.
    fn endless(&mut self) {
        let always = |one: &&Use| !one.around.sequence && !one.around.choice;
        let parts: Vec<Vec<usize>> = (self.checked.uses.iter())
            .map(|uses| uses.iter().filter(always).map(|one| one.of).collect())
            .collect();
        for (place, is_endless) in graph::in_cycle(&parts).into_iter().enumerate() {
            let id = self.checked.reached[place];
            let Declaration { name, ty, .. } = self.world.declaration(id);
            // An alias that is defined by itself has already been reported.
            if is_endless && !matches!(ty, Type::Named(_)) {
                self.problems.enter(id.0);
                let reason = format!(
                    "each value of `{}` would contain another one, without end; a choice or a sequence can end",
                    name.text
                );
                self.report(&name.span, reason);
            }
        }
    }
}
