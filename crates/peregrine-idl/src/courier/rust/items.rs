//! Prints structs, enums and aliases.

use core::fmt::Write as _;

use super::super::ast::{Arm, Fields, Procedure, Tag, Type};
use super::super::world::Id;
use super::{Printer, has_name};
use crate::names::{Names, camel, snake, written};

/// The derives of all types but enumerations.
pub(super) const DERIVES: &str = "#[derive(Clone, Debug, PartialEq, Eq, Hash, Foreign, Value)]\n";

/// The maximum width of the fields of a variant on one line, as in `rustfmt`.
const VARIANT_COLUMNS: usize = 35;

/// Returns a comment as documentation.
pub(super) fn docs(indent: &str, docs: &str) -> String {
    let mut text = String::new();
    for line in docs.lines() {
        let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        // The spaces in place of control characters are trimmed as those of the file are, and a line of them is
        // no line.
        let line = line.trim();
        if !line.is_empty() {
            let _ = writeln!(text, "{indent}/// {line}");
        }
    }
    text
}

/// A field as it is printed.
pub(super) struct Field {
    pub(super) name: String,
    pub(super) ty: String,
    pub(super) max: Option<i64>,
}

impl Field {
    fn attribute(&self) -> Option<String> {
        self.max.map(|max| format!("#[foreign(max = {max})]"))
    }
}

impl<'w> Printer<'w> {
    /// Prints a declared type, and the types without declarations within it.
    pub(super) fn declared_type(&mut self, id: Id, comment: &str) -> String {
        let place = self.checked.places[&id];
        let (name, ty) = (self.declared[place].clone(), &self.world.declaration(id).ty);
        let mut text = docs("", comment);
        if has_name(self.world, id.0, ty) {
            text.push_str(&self.item(id, &name, ty));
        } else if self.is_wrapped[place] {
            self.imports.value = true;
            let (derives, inner) = (self.derives(id), self.ty(id.0, id, ty, false));
            let _ = writeln!(text, "{derives}pub struct {name}(pub {inner});");
        } else {
            let _ = writeln!(text, "pub type {name} = {};", self.ty(id.0, id, ty, false));
        }
        text + &self.inner_types(id, ty)
    }

    /// Returns the derives of a type within a declaration. If the type contains itself, the derive `Foreign`
    /// cannot find out which foreign representations it has, so an attribute names Courier.
    fn derives(&self, owner: Id) -> String {
        let is_recursive = self.is_recursive[self.checked.places[&owner]];
        DERIVES.to_owned() + if is_recursive { "#[foreign(courier)]\n" } else { "" }
    }

    /// Prints the types without declarations that are within a type.
    pub(super) fn inner_types(&mut self, owner: Id, ty: &'w Type) -> String {
        match ty {
            Type::Array(_, element) | Type::Sequence(_, element) => self.inner_type(owner, element),
            Type::Record(fields) | Type::Error(fields) => self.inner_of(owner, fields),
            Type::Choice(_, arms) => {
                arms.iter().map(|arm| self.inner_type(owner, &arm.ty)).collect()
            }
            Type::Procedure(Procedure { arguments, results, .. }) => {
                self.inner_of(owner, arguments) + &self.inner_of(owner, results)
            }
            _ => String::new(),
        }
    }

    fn inner_of(&mut self, owner: Id, fields: &'w [Fields]) -> String {
        fields.iter().map(|fields| self.inner_type(owner, &fields.ty)).collect()
    }

    pub(super) fn inner_type(&mut self, owner: Id, ty: &'w Type) -> String {
        let item = match self.inner.get(&core::ptr::from_ref(ty)).cloned() {
            Some(name) => format!("\n{}", self.item(owner, &name, ty)),
            None => String::new(),
        };
        item + &self.inner_types(owner, ty)
    }

    /// Prints a struct or an enum.
    fn item(&mut self, owner: Id, name: &str, ty: &'w Type) -> String {
        self.imports.value = true;
        match ty {
            Type::Enumeration(tags) => self.enumeration(owner.0, name, tags.iter()),
            Type::Record(fields) => {
                let fields = self.fields(owner.0, owner, fields);
                structure(&self.derives(owner), name, &fields)
            }
            Type::Choice(_, arms) if arms.iter().all(is_empty) => {
                let tags = arms.iter().flat_map(|arm| &arm.tags);
                self.choice_numbers(owner.0, name, ty, tags)
            }
            Type::Choice(..) => self.choice(owner, name, ty),
            Type::Sequence(Some(max), element) => {
                let max = self.world.number(owner.0, max).unwrap_or_default();
                let element = self.ty(owner.0, owner, element, true);
                let derives = self.derives(owner);
                format!("{derives}pub struct {name}(#[foreign(max = {max})] pub Vec<{element}>);\n")
            }
            _ => String::new(),
        }
    }

    /// Returns the fields of a struct in Rust: one for each name in `fields`.
    pub(super) fn fields(&mut self, at: usize, owner: Id, fields: &'w [Fields]) -> Vec<Field> {
        let mut names = Names::default();
        let mut all = Vec::new();
        for Fields { names: of, ty } in fields {
            let (printed, max) = (self.ty(at, owner, ty, false), self.max(owner, ty));
            for name in of {
                let name = written(&names.take(snake(&name.text)));
                all.push(Field { name, ty: printed.clone(), max });
            }
        }
        all
    }

    /// Returns the maximum of the sequence that is the type of a field.
    fn max(&self, owner: Id, ty: &Type) -> Option<i64> {
        match ty {
            Type::Sequence(Some(max), _) if self.world.is_bound(owner.0, max) => {
                self.world.number(owner.0, max)
            }
            _ => None,
        }
    }

    fn enumeration<'t>(
        &self,
        unit: usize,
        name: &str,
        tags: impl Iterator<Item = &'t Tag>,
    ) -> String {
        let number = |tag: &Tag| tag.number.as_ref().and_then(|one| self.world.number(unit, one));
        let numbered = tags.map(|tag| (tag, number(tag).unwrap_or_default()));
        enumeration(name, numbered)
    }

    /// Prints a choice whose arms have no values.
    fn choice_numbers<'t>(
        &self,
        unit: usize,
        name: &str,
        ty: &Type,
        tags: impl Iterator<Item = &'t Tag>,
    ) -> String {
        enumeration(name, tags.map(|tag| (tag, self.case(unit, ty, tag))))
    }

    /// Returns the number of a designator.
    fn case(&self, unit: usize, ty: &Type, tag: &Tag) -> i64 {
        if let Some(number) = &tag.number {
            return self.world.number(unit, number).unwrap_or_default();
        }
        let Type::Choice(Some(by), _) = ty else { return 0 };
        let Some((unit, Type::Enumeration(tags))) = self.world.enumeration(unit, by) else {
            return 0;
        };
        let same = tags.iter().find(|one| one.name == tag.name);
        let number = same.and_then(|one| one.number.as_ref());
        number.and_then(|number| self.world.number(unit, number)).unwrap_or_default()
    }

    fn choice(&mut self, owner: Id, name: &str, ty: &'w Type) -> String {
        let Type::Choice(by, arms) = ty else { return String::new() };
        let mut text = self.derives(owner);
        if let Some(id) = by.as_ref().and_then(|by| self.world.id(owner.0, by)) {
            let _ = writeln!(text, "#[foreign(switch = {})]", self.path(owner.0, id));
        }
        let _ = writeln!(text, "pub enum {name} {{");
        let mut names = Names::default();
        for arm in arms {
            for tag in &arm.tags {
                let case = self.case(owner.0, ty, tag);
                let _ = writeln!(text, "    #[foreign(case = {case})]");
                let variant = names.take(camel(&tag.name.text));
                text.push_str(&self.variant(owner, &variant, arm));
            }
        }
        text + "}\n"
    }

    fn variant(&mut self, owner: Id, name: &str, arm: &'w Arm) -> String {
        match &arm.ty {
            Type::Record(fields) if fields.is_empty() => format!("    {},\n", written(name)),
            Type::Record(fields) if arm.tags.len() == 1 => {
                let fields = self.fields(owner.0, owner, fields);
                variant(name, &fields)
            }
            ty => {
                let (printed, max) = (self.ty(owner.0, owner, ty, false), self.max(owner, ty));
                let max = max.map_or_else(String::new, |max| format!("#[foreign(max = {max})] "));
                format!("    {}({max}{printed}),\n", written(name))
            }
        }
    }
}

fn is_empty(arm: &Arm) -> bool {
    matches!(&arm.ty, Type::Record(fields) if fields.is_empty())
}

fn enumeration<'t>(name: &str, numbered: impl Iterator<Item = (&'t Tag, i64)>) -> String {
    let derives = DERIVES.replace("Clone,", "Clone, Copy,");
    let mut text = format!("{derives}pub enum {name} {{\n");
    let mut names = Names::default();
    for (tag, number) in numbered {
        let _ = writeln!(text, "    {} = {number},", written(&names.take(camel(&tag.name.text))));
    }
    text + "}\n"
}

/// Prints a struct, after its derives.
pub(super) fn structure(derives: &str, name: &str, fields: &[Field]) -> String {
    let mut text = format!("{derives}pub struct {name} {{\n");
    for field in fields {
        if let Some(attribute) = field.attribute() {
            let _ = writeln!(text, "    {attribute}");
        }
        let _ = writeln!(text, "    pub {}: {},", field.name, field.ty);
    }
    text + "}\n"
}

/// Prints a variant with fields, as `rustfmt` lays it out.
pub(super) fn variant(name: &str, fields: &[Field]) -> String {
    let name = written(name);
    if fields.is_empty() {
        return format!("    {name},\n");
    }
    let one: Vec<String> = fields.iter().map(|one| format!("{}: {}", one.name, one.ty)).collect();
    let one = one.join(", ");
    if one.len() <= VARIANT_COLUMNS && fields.iter().all(|field| field.max.is_none()) {
        return format!("    {name} {{ {one} }},\n");
    }
    let mut text = format!("    {name} {{\n");
    for field in fields {
        if let Some(attribute) = field.attribute() {
            let _ = writeln!(text, "        {attribute}");
        }
        let _ = writeln!(text, "        {}: {},", field.name, field.ty);
    }
    text + "    },\n"
}

impl Printer<'_> {
    /// Returns the name of the variant for the tag `of` in an enum that has a variant for each of `tags`.
    pub(super) fn variant_name<'t>(tags: impl Iterator<Item = &'t Tag>, of: &str) -> String {
        let mut names = Names::default();
        for tag in tags {
            let name = names.take(camel(&tag.name.text));
            if tag.name.text == of {
                return written(&name);
            }
        }
        String::new()
    }
}
