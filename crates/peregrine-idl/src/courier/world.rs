//! All programs of an import, and what their references lead to.

use std::collections::HashMap;

use super::ast::{
    Constant, Count, Declaration, Dependency, Numbers, Program, Reference, Type, Value,
};
use super::problems::Problems;
use super::{COURIER_BYTES_MAX, COURIER_PROGRAMS_MAX, Source};
use super::{lex, parse};

/// The number of the standard program whose `Source` and `Sink` are streams of bytes outside of the messages
/// of a call.
const BULK_DATA: u32 = 0;

/// A declaration: the number of its program, and its number in the program.
pub(crate) type Id = (usize, usize);

/// A program, and where its references lead.
pub(crate) struct Unit {
    pub(crate) program: Program,
    /// The index of each declaration in the program, by its name.
    scope: HashMap<String, usize>,
    /// The programs in `DEPENDS UPON`, by their names: the numbers in the text, and the place in
    /// [`World::units`] if the text of the program is known.
    depends: HashMap<String, (Numbers, Option<usize>)>,
}

/// All programs. The first one is the program that is imported.
pub(crate) struct World {
    pub(crate) units: Vec<Unit>,
    /// For each program and each of its declarations, the end of the chain of names that begins at the
    /// declaration. For a type, this is the first type that is not just the name of another type. For a
    /// constant, it is the first constant whose value is not just the name of another constant.
    ends: Vec<Vec<Option<Id>>>,
}

/// Where a reference leads.
pub(crate) enum Found {
    Declaration(Id),
    /// `BulkData.Source` or `BulkData.Sink`.
    Bulk,
    /// A declaration of a program whose text is missing.
    NoText(Numbers),
    /// There is no such program in `DEPENDS UPON`.
    NoProgram,
    /// The program has no such declaration.
    Nothing,
}

/// Reads a program and those that it depends upon. Returns `None` if a text is wrong.
pub(crate) fn read(
    main: Source,
    files: &mut dyn FnMut(&Dependency) -> Option<Source>,
    problems: &mut Problems,
) -> Option<World> {
    let mut units = vec![unit(main, problems)?];
    let key = |program: &Program| Some((program.name.text.clone(), program.numbers?));
    let mut known: HashMap<(String, Numbers), Option<usize>> = HashMap::new();
    known.extend(key(&units[0].program).map(|key| (key, Some(0))));
    let mut done = 0;
    while done < units.len() {
        for dependency in units[done].program.depends.clone() {
            let Dependency { name, numbers } = &dependency;
            let key = (name.text.clone(), *numbers);
            let found = match known.get(&key) {
                Some(found) => *found,
                None if known.len() == COURIER_PROGRAMS_MAX => {
                    problems.enter(done);
                    let reason =
                        format!("more than {COURIER_PROGRAMS_MAX} programs depend upon each other");
                    problems.report(&name.span, reason);
                    return None;
                }
                None => {
                    let new = match files(&dependency) {
                        Some(source) => {
                            let unit = unit(source, problems)?;
                            is_wanted(&unit.program, &dependency, done, problems).then_some(())?;
                            units.push(unit);
                            Some(units.len() - 1)
                        }
                        None => None,
                    };
                    known.insert(key, new);
                    new
                }
            };
            if units[done].depends.insert(name.text.clone(), (*numbers, found)).is_some() {
                problems.enter(done);
                problems.report(&name.span, format!("`{}` is depended upon twice", name.text));
            }
        }
        done += 1;
    }
    let mut world = World { units, ends: Vec::new() };
    world.ends = world.all_ends();
    Some(world)
}

/// Returns whether a text contains the wanted program. If it does not, reports an error in the program `by`.
fn is_wanted(program: &Program, wanted: &Dependency, by: usize, problems: &mut Problems) -> bool {
    if program.name.text == wanted.name.text && program.numbers == Some(wanted.numbers) {
        return true;
    }
    let header = |name: &str, numbers: Option<Numbers>| match numbers {
        Some(Numbers { program, version }) => format!("`{name}` {program} version {version}"),
        None => format!("`{name}` without a number"),
    };
    let has = header(&program.name.text, program.numbers);
    let wants = header(&wanted.name.text, Some(wanted.numbers));
    problems.enter(by);
    problems.report(&wanted.name.span, format!("the text for {wants} is program {has}"));
    false
}

fn unit(source: Source, problems: &mut Problems) -> Option<Unit> {
    let Source { name, text } = source;
    let length = text.len();
    if length > COURIER_BYTES_MAX {
        problems.enter_next(name, String::new());
        let reason = format!("{length} bytes are too long: at most {COURIER_BYTES_MAX} are read");
        problems.report(&(0..0).into(), reason);
        return None;
    }
    // Xerox' systems ended lines with a carriage return.
    let text = text.replace("\r\n", " \n").replace('\r', "\n");
    problems.enter_next(name, text.clone());
    let tokens = lex::tokens(&text, problems);
    let program = parse::program(&text, &tokens, problems)?;
    let mut scope = HashMap::new();
    for (number, declaration) in program.declarations.iter().enumerate() {
        let name = &declaration.name;
        if scope.insert(name.text.clone(), number).is_some() {
            problems.report(&name.span, format!("`{}` is declared twice", name.text));
        }
    }
    Some(Unit { program, scope, depends: HashMap::new() })
}

impl World {
    pub(crate) fn declaration(&self, (unit, number): Id) -> &Declaration {
        &self.units[unit].program.declarations[number]
    }

    /// Returns where a reference in a program leads.
    pub(crate) fn find(&self, unit: usize, reference: &Reference) -> Found {
        let here = &self.units[unit];
        let name = &reference.name.text;
        let there = match &reference.program {
            None => unit,
            Some(program) => match here.depends.get(&program.text) {
                Some((Numbers { program: BULK_DATA, .. }, _))
                    if name == "Source" || name == "Sink" =>
                {
                    return Found::Bulk;
                }
                Some((numbers, None)) => return Found::NoText(*numbers),
                Some((_, Some(there))) => *there,
                None if program.text == here.program.name.text => unit,
                None => return Found::NoProgram,
            },
        };
        match self.units[there].scope.get(name) {
            Some(number) => Found::Declaration((there, *number)),
            None => Found::Nothing,
        }
    }

    /// Returns the declaration to which a correct reference leads.
    pub(crate) fn id(&self, unit: usize, reference: &Reference) -> Option<Id> {
        match self.find(unit, reference) {
            Found::Declaration(id) => Some(id),
            _ => None,
        }
    }

    /// Returns a name that the program declares, and that differs from `name` only in the case of letters.
    /// Returns `None` if there is no such name.
    pub(crate) fn similar(&self, unit: usize, name: &str) -> Option<&str> {
        let mut names = self.units[unit].scope.keys().filter(|one| one.eq_ignore_ascii_case(name));
        names.next().map(String::as_str)
    }

    /// Returns the declaration that follows `id` in a chain of names. Returns `None` if the chain ends at
    /// `id`.
    fn next(&self, id: Id) -> Option<Id> {
        let Declaration { ty, value, .. } = self.declaration(id);
        match (value, ty) {
            (None, Type::Named(reference)) => {
                self.id(id.0, reference).filter(|id| self.declaration(*id).value.is_none())
            }
            (Some(Constant { value: Value::Named(reference), .. }), _) => {
                self.id(id.0, reference).filter(|id| self.declaration(*id).value.is_some())
            }
            _ => None,
        }
    }

    /// Follows all chains of names to their ends, and visits each declaration only once.
    fn all_ends(&self) -> Vec<Vec<Option<Id>>> {
        let counts = self.units.iter().map(|unit| unit.program.declarations.len());
        let mut ends: Vec<Vec<Option<Id>>> =
            counts.clone().map(|count| vec![None; count]).collect();
        let mut seen: Vec<Vec<bool>> = counts.map(|count| vec![false; count]).collect();
        let all = ends
            .iter()
            .enumerate()
            .flat_map(|(unit, ends)| (0..ends.len()).map(move |one| (unit, one)));
        for start in all.collect::<Vec<Id>>() {
            let (mut chain, mut one) = (Vec::new(), start);
            let end = loop {
                if core::mem::replace(&mut seen[one.0][one.1], true) {
                    // This chain joins a chain that has been followed, or it is a circle and has no end.
                    break ends[one.0][one.1];
                }
                chain.push(one);
                match self.next(one) {
                    Some(next) => one = next,
                    None => break Some(one),
                }
            };
            chain.iter().for_each(|(unit, number)| ends[*unit][*number] = end);
        }
        ends
    }

    /// Returns the end of a chain of names. Returns `None` if the chain is a circle.
    pub(crate) fn end(&self, id: Id) -> Option<Id> {
        self.ends[id.0][id.1]
    }

    /// Returns the declaration that defines the type of `id`. If this type is only the name of another
    /// declaration, follows the names up to a type that is written out.
    pub(crate) fn end_of_type(&self, id: Id) -> Id {
        match &self.declaration(id).ty {
            Type::Named(reference) => {
                self.id(id.0, reference).and_then(|id| self.end(id)).unwrap_or(id)
            }
            _ => id,
        }
    }

    /// Returns the type to which the names in `ty` lead, and the index of its program. The result is a name
    /// only if that name leads nowhere.
    pub(crate) fn base<'w>(&'w self, unit: usize, ty: &'w Type) -> (usize, &'w Type) {
        let Type::Named(reference) = ty else { return (unit, ty) };
        let id = self.id(unit, reference).filter(|id| self.declaration(*id).value.is_none());
        match id.and_then(|id| self.end(id)) {
            Some(id) => (id.0, &self.declaration(id).ty),
            None => (unit, ty),
        }
    }

    /// Returns the number that `count` contains, or the value of the constant that it names.
    pub(crate) fn number(&self, unit: usize, count: &Count) -> Option<i64> {
        match count {
            Count::Number(number, _) => Some(*number),
            Count::Named(reference) => self.number_of(self.id(unit, reference)?),
        }
    }

    /// Returns the number of a constant, a procedure or an error.
    pub(crate) fn number_of(&self, id: Id) -> Option<i64> {
        let end = self.declaration(self.end(id)?);
        match end.value.as_ref()?.value {
            Value::Number(number) => Some(number),
            _ => None,
        }
    }
}
