//! Prints an interface as a Rust trait.

mod default;

use core::fmt::Write as _;
use std::collections::HashSet;

use self::default::{Choices, Types};
use crate::graph;
use crate::layout;
use crate::library;
use crate::syntax::name_of;
use peregrine::interface::{
    Case, Described, DescribedBody, DescribedField, DescribedGrowth, DescribedNamed,
    DescribedParameter, DescribedProcedure, DescribedType, DescribedVariant, Direction, Program,
    Shape, System,
};
use unicode_ident::{is_xid_continue, is_xid_start};

/// Names that no type of an interface can have, because Rust or Peregrine already defines them.
pub(crate) const TAKEN: &str = "bool char str u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64 \
    String Vec Option Result Box Lent Out Sink Source Callback CallError Self Plain Value";

/// Keywords, which are valid names only with the prefix `r#`.
pub(crate) const KEYWORDS: &str = concat!(
    "abstract as async await become box break const continue do dyn else enum extern ",
    "false final fn for gen if impl in let loop macro match mod move mut override ",
    "priv pub ref return static struct trait true try type typeof un",
    "safe unsized use virtual where while yield",
);

pub(crate) fn trait_of(described: &Described) -> String {
    let printer = Printer {
        described,
        root: root(described),
        in_modules: in_modules(described),
        cycles: cycles(described),
        failed: failed(described),
        choices: Choices::default(),
        text: String::new(),
    };
    printer.whole()
}

struct Printer<'a> {
    described: &'a Described,
    /// The number of the type that describes the interface itself. `None` if no callback has this interface.
    root: Option<usize>,
    /// For each type, whether it is printed in a separate module. This is necessary if its name is
    /// already used.
    in_modules: Vec<bool>,
    /// For each type, the number of its cycle. The types in one cycle contain each other, without a sequence
    /// in between.
    cycles: Vec<u32>,
    /// The numbers of the types that are errors of procedures.
    failed: HashSet<usize>,
    choices: Choices,
    text: String,
}

/// Returns the number of the type that describes the interface itself, if callbacks have this interface.
fn root(described: &Described) -> Option<usize> {
    // Only the first type with the name, version and number of procedures of the interface is compared in
    // full. A peer could send very many types of this name, and comparing all of them would take too long.
    let number = described.types.iter().position(|one| match &one.body {
        DescribedBody::Interface { version, procedures } => {
            one.name == described.name
                && *version == described.version
                && procedures.len() == described.procedures.len()
        }
        _ => false,
    })?;
    let same = described.interface_of(&DescribedType::Named(number))?;
    (same.to_string() == described.to_string()).then_some(number)
}

/// Returns the numbers of the types that are errors of procedures.
fn failed(described: &Described) -> HashSet<usize> {
    let nested = described.types.iter().filter_map(|one| match &one.body {
        DescribedBody::Interface { procedures, .. } => Some(procedures),
        _ => None,
    });
    let all = nested.chain([&described.procedures]).flatten();
    all.filter_map(|one| named(&one.error)).collect()
}

fn named(ty: &DescribedType) -> Option<usize> {
    if let DescribedType::Named(number) = ty { Some(*number) } else { None }
}

pub(crate) fn is_one_of(words: &str, word: &str) -> bool {
    words.split(' ').any(|one| one == word)
}

/// Returns whether a word has the form of a name in Rust. Keywords have this form, too.
fn is_identifier(name: &str) -> bool {
    let mut letters = name.chars();
    let first = letters.next().is_some_and(|c| c == '_' || is_xid_start(c));
    first && name != "_" && letters.all(is_xid_continue)
}

/// Returns a name as it is printed: in the syntax of Rust, or in quotes if it cannot be a name in Rust.
fn name(name: &str) -> String {
    match name {
        word if is_one_of(KEYWORDS, word) => format!("r#{word}"),
        word if is_identifier(word) => word.to_owned(),
        other => format!("{other:?}"),
    }
}

/// Returns for each type whether its name is already the name of an earlier type, or of a type that Rust or
/// Peregrine defines.
fn in_modules(described: &Described) -> Vec<bool> {
    // `#[interface]` generates types, whose names are also taken.
    let made = |name: &str| {
        let ident = ident(name);
        vec![format!("{ident}Client"), format!("{ident}Server"), ident]
    };
    let mut seen: HashSet<String> = made(&described.name).into_iter().collect();
    let root = root(described);
    let in_module = |(number, one): (usize, &DescribedNamed)| {
        let names = match &one.body {
            DescribedBody::Interface { .. } if root == Some(number) => return false,
            DescribedBody::Interface { .. } => made(&one.name),
            _ => vec![one.name.clone()],
        };
        let is_taken = |name: &String| seen.contains(name) || is_one_of(TAKEN, name);
        let in_module = names.iter().any(is_taken);
        if !in_module {
            seen.extend(names);
        }
        in_module
    };
    described.types.iter().enumerate().map(in_module).collect()
}

/// Returns for each type the number of its cycle. Types that contain each other have the same number. A field
/// must be in a box if its type is in the same cycle as the struct or enum around it. Otherwise these types
/// would have no finite size.
fn cycles(described: &Described) -> Vec<u32> {
    let parts: Vec<Vec<usize>> = described.types.iter().map(inside).collect();
    graph::cycles(&parts)
}

/// Returns the named types that a type contains directly, without a sequence in between.
fn inside(named: &DescribedNamed) -> Vec<usize> {
    fn all(ty: &DescribedType, into: &mut Vec<usize>) {
        match ty {
            DescribedType::Named(number) => into.push(*number),
            DescribedType::Array(one, _) | DescribedType::Option(one) => all(one, into),
            DescribedType::Result(ok, err) => {
                all(ok, into);
                all(err, into);
            }
            DescribedType::Tuple(parts) => parts.iter().for_each(|one| all(one, into)),
            _ => {}
        }
    }
    let mut into = Vec::new();
    let mut fields = |fields: &[DescribedField]| {
        fields.iter().for_each(|field| all(&field.ty, &mut into));
    };
    match &named.body {
        DescribedBody::Plain { fields: all, .. } | DescribedBody::Struct(all) => fields(all),
        DescribedBody::Enum(variants) => variants.iter().for_each(|one| fields(&one.fields)),
        // This is a type without fields, or a kind of type that a later version of the library adds.
        _ => {}
    }
    into
}

/// Returns the name of the trait. It is the name of the interface if possible, and otherwise derived from
/// that name.
fn ident(own: &str) -> String {
    let plain = is_identifier(own)
        && own.starts_with(char::is_uppercase)
        && !is_one_of(KEYWORDS, own)
        && own != "Self";
    if plain { own.to_owned() } else { camel(own) }
}

/// Derives the name of a trait from a name that no Rust type can have, such as `ShapesV2` from `shapes.v2`.
fn camel(name: &str) -> String {
    let parts =
        name.split(|c: char| c == '_' || !is_xid_continue(c)).filter(|part| !part.is_empty());
    let camel: String = parts
        .map(|part| {
            let mut letters = part.chars();
            let first = letters.next().map(char::to_uppercase);
            first.into_iter().flatten().chain(letters).collect::<String>()
        })
        .collect();
    if is_identifier(&camel) { camel } else { format!("The{camel}") }
}

impl<'a> Printer<'a> {
    fn whole(mut self) -> String {
        let Described { name: own, version, docs, procedures, types, .. } = self.described;
        self.docs("", docs);
        self.interface("", (own, *version), procedures, None);
        for (number, named) in types.iter().enumerate() {
            // Three kinds of types are not printed here. The interface itself was printed above. Peregrine
            // defines `CallError`. The standard library defines its own types.
            let is_defined = self.root == Some(number)
                || self.described.is_call_error(&DescribedType::Named(number))
                || library::path_of(self.described, named).is_some();
            if !is_defined {
                self.text.push('\n');
                self.named(number, named);
            }
        }
        self.text
    }

    /// Prints a trait. If the trait is the interface of a callback, `within` is the number of its type.
    fn interface(
        &mut self,
        indent: &str,
        (own, version): (&str, u32),
        procedures: &[DescribedProcedure],
        within: Option<usize>,
    ) {
        let ident = ident(own);
        let programs = if within.is_none() { &self.described.programs[..] } else { &[] };
        let name = (ident != *own).then(|| format!("name = {own:?}"));
        let version = (version != 0).then(|| format!("version = {version}"));
        let programs = programs.iter().map(|Program { system, number, version, .. }| {
            match (system, number, version) {
                // A Courier program that is started by its name has zeros instead of its numbers.
                (System::Courier, 0, 0) => name_of(*system).to_owned(),
                _ => format!("{}(program = {number}, version = {version})", name_of(*system)),
            }
        });
        let arguments: Vec<_> = name.into_iter().chain(version).chain(programs).collect();
        if !arguments.is_empty() {
            self.line(format_args!("{indent}#[interface({})]", arguments.join(", ")));
        }
        self.line(format_args!("{indent}pub trait {ident} {{"));
        for (number, procedure) in procedures.iter().enumerate() {
            self.procedure(&format!("{indent}    "), (number, procedure), within);
        }
        self.line(format_args!("{indent}}}"));
    }

    fn line(&mut self, text: core::fmt::Arguments<'_>) {
        let _ = writeln!(self.text, "{text}");
    }

    fn docs(&mut self, indent: &str, docs: &str) {
        if docs.is_empty() {
            return;
        }
        for line in docs.split('\n') {
            // Control characters are replaced, because they could change what a terminal shows.
            let line: String =
                line.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
            let space = if line.is_empty() { "" } else { " " };
            self.line(format_args!("{indent}///{space}{line}"));
        }
    }

    fn procedure(
        &mut self,
        indent: &str,
        (number, procedure): (usize, &DescribedProcedure),
        within: Option<usize>,
    ) {
        self.docs(indent, &procedure.docs);
        if procedure.idempotent {
            self.line(format_args!("{indent}#[idempotent]"));
        }
        if procedure.oneway {
            self.line(format_args!("{indent}#[oneway]"));
        }
        if within.is_none() {
            for program in &self.described.programs {
                let number = program.procedures.get(number).copied().unwrap_or_default();
                self.line(format_args!("{indent}#[{}({number})]", name_of(program.system)));
            }
        }
        if !procedure.was.is_empty() {
            let was = was(&procedure.was);
            self.line(format_args!("{indent}{}", was.trim_end()));
        }
        let parameters: Vec<String> = core::iter::once("&self".to_owned())
            .chain(procedure.parameters.iter().map(|one| self.parameter(one, within)))
            .collect();
        let result = self.ty(&procedure.result, within);
        let returns = match self.described.is_call_error(&procedure.error) {
            true => format!("peregrine::Result<{result}>"),
            false => format!("Result<{result}, {}>", self.ty(&procedure.error, within)),
        };
        let name = name(&procedure.name);
        self.text.push_str(&layout::method(indent, &name, &parameters, &returns));
    }

    fn parameter(&self, parameter: &DescribedParameter, within: Option<usize>) -> String {
        let DescribedParameter { name: own, direction, shape, ty, max_len, growth } = parameter;
        let one = self.ty(ty, within);
        let written = match (shape, direction) {
            (Shape::Text, _) => "&str".to_owned(),
            (Shape::Buffer, Direction::In) => format!("&[{one}]"),
            (Shape::Buffer, Direction::Lent) => format!("Lent<'_, {one}>"),
            (Shape::Buffer, Direction::Out) => format!("Out<'_, {one}>"),
            (Shape::Buffer, Direction::InOut) => format!("&mut [{one}]"),
            (Shape::One, Direction::InOut) => format!("&mut {one}"),
            (_, Direction::Sink) => format!("Sink<'_, {one}>"),
            (_, Direction::Source) => format!("Source<'_, {one}>"),
            (_, Direction::Callback) => format!("Callback<'_, dyn {}>", self.unboxed(ty, within)),
            (Shape::One, _) => match ty {
                DescribedType::Named(_) | DescribedType::Array(..) => format!("&{one}"),
                _ => one,
            },
        };
        let bound = max_len.map(|max_len| format!("#[max_len({max_len})] ")).unwrap_or_default();
        let growth = match shape {
            Shape::One => self.growth(ty, growth, within),
            _ if growth.default.is_some() => format!("{}#[default] ", attributes(growth)),
            _ => attributes(growth),
        };
        format!("{bound}{growth}{}: {written}", name(own))
    }

    /// Returns the growth attributes of a field or a parameter. A space follows each attribute.
    fn growth(
        &self,
        ty: &DescribedType,
        growth: &DescribedGrowth,
        within: Option<usize>,
    ) -> String {
        let default = growth.default.as_deref().map(|bytes| {
            let types = Types {
                path: &|number| self.path(number, within),
                is_boxed: &|whole, part| self.is_boxed(whole, part),
                choices: &self.choices,
            };
            let value = default::expression(self.described, ty, bytes, &types, within);
            format!("#[default({value})] ")
        });
        format!("{}{}", attributes(growth), default.unwrap_or_default())
    }

    /// Returns the text of a type that is used in the named type `within`. If `within` is `None`, a method
    /// uses the type.
    fn ty(&self, ty: &DescribedType, within: Option<usize>) -> String {
        let inner = |one: &DescribedType| self.ty(one, within);
        match ty {
            DescribedType::Unit => "()".into(),
            DescribedType::Text => "String".into(),
            DescribedType::Array(one, count) => format!("[{}; {count}]", inner(one)),
            DescribedType::Sequence(one) => match within {
                // The elements need no box, because the size of a `Vec` does not depend on them.
                Some(_) => format!("Vec<{}>", self.unboxed(one, within)),
                None => format!("Vec<{}>", inner(one)),
            },
            DescribedType::Option(one) => format!("Option<{}>", inner(one)),
            DescribedType::Result(ok, err) => format!("Result<{}, {}>", inner(ok), inner(err)),
            DescribedType::Tuple(parts) => {
                let all: Vec<_> = parts.iter().map(inner).collect();
                let comma = if all.len() == 1 { "," } else { "" };
                format!("({}{comma})", all.join(", "))
            }
            DescribedType::Named(number) => {
                let named = self.path(*number, within);
                match within {
                    Some(whole) if self.is_boxed(whole, *number) => format!("Box<{named}>"),
                    _ => named,
                }
            }
            simple => self.described.type_text(simple),
        }
    }

    /// Returns whether the type `whole` contains the type `part` in a box.
    fn is_boxed(&self, whole: usize, part: usize) -> bool {
        self.cycles.get(whole) == self.cycles.get(part)
    }

    fn unboxed(&self, ty: &DescribedType, within: Option<usize>) -> String {
        match ty {
            DescribedType::Named(number) => self.path(*number, within),
            other => self.ty(other, within),
        }
    }

    /// Returns the path of a named type that is used in the named type `within`. If `within` is `None`, a
    /// method uses it.
    fn path(&self, number: usize, within: Option<usize>) -> String {
        let Some(named) = self.described.types.get(number) else { return "()".into() };
        if self.described.is_call_error(&DescribedType::Named(number)) {
            return "peregrine::CallError".into();
        }
        if let Some(path) = library::path_of(self.described, named) {
            return path.to_owned();
        }
        let own = match named.body {
            DescribedBody::Interface { .. } => ident(&named.name),
            _ => name(&named.name),
        };
        let from_module = within.is_some_and(|within| self.is_in_module(within));
        let up = if from_module { "super::" } else { "" };
        if self.is_in_module(number) {
            format!("{up}m{number}::{own}")
        } else {
            format!("{up}{own}")
        }
    }

    fn is_in_module(&self, number: usize) -> bool {
        self.in_modules.get(number).copied().unwrap_or(false)
    }

    fn named(&mut self, number: usize, named: &'a DescribedNamed) {
        let own = name(&named.name);
        let in_module = self.is_in_module(number);
        let indent = if in_module { "    " } else { "" };
        if in_module {
            self.line(format_args!("pub mod m{number} {{"));
            self.line(format_args!("    use super::*;"));
        }
        let is_foreign = self.is_foreign(number, &named.body);
        let foreign = if is_foreign { ", peregrine::Foreign" } else { "" };
        match &named.body {
            DescribedBody::Plain { align, fields, .. } => {
                let alignments = fields.iter().map(|one| self.described.plain_alignment(&one.ty));
                let natural = alignments.map(|one| one.unwrap_or(1)).max().unwrap_or(1);
                let more = match align {
                    align if *align > natural => format!(", align({align})"),
                    align if *align < natural => format!(", packed({align})"),
                    _ => String::new(),
                };
                self.line(format_args!("{indent}#[derive(Clone, Copy, Plain{foreign})]"));
                self.line(format_args!("{indent}#[repr(C{more})]"));
                self.fields(indent, &format!("pub struct {own}"), fields, number);
            }
            DescribedBody::PlainEnum { repr, variants } => {
                let repr = self.described.type_text(repr);
                self.line(format_args!("{indent}#[derive(Clone, Copy, Plain{foreign})]"));
                self.line(format_args!("{indent}#[repr({repr})]"));
                self.line(format_args!("{indent}pub enum {own} {{"));
                for variant in variants {
                    let (own, value) = (name(&variant.name), variant.value);
                    let before = marks(&variant.was, variant.is_other);
                    self.line(format_args!("{indent}    {before}{own} = {value},"));
                }
                self.line(format_args!("{indent}}}"));
            }
            DescribedBody::Struct(fields) => {
                self.line(format_args!("{indent}#[derive(Value{foreign})]"));
                self.fields(indent, &format!("pub struct {own}"), fields, number);
            }
            DescribedBody::Enum(variants) => {
                self.line(format_args!("{indent}#[derive(Value{foreign})]"));
                self.line(format_args!("{indent}pub enum {own} {{"));
                let has_discriminants = has_discriminants(variants);
                for (index, variant) in (0..).zip(variants) {
                    let fields: Vec<_> = variant
                        .fields
                        .iter()
                        .map(|field| {
                            let before = self.growth(&field.ty, &field.growth, Some(number));
                            let before = format!("{}{before}", max(field));
                            let ty = self.ty(&field.ty, Some(number));
                            (name(&field.name), before, ty)
                        })
                        .collect();
                    let written = match (fields.is_empty(), numbered(&variant.fields)) {
                        (true, _) => String::new(),
                        (_, true) => {
                            let all: Vec<_> = fields
                                .into_iter()
                                .map(|(_, before, ty)| format!("{before}{ty}"))
                                .collect();
                            format!("({})", all.join(", "))
                        }
                        (_, false) => {
                            let all: Vec<_> = fields
                                .iter()
                                .map(|(name, before, ty)| format!("{before}{name}: {ty}"))
                                .collect();
                            format!(" {{ {} }}", all.join(", "))
                        }
                    };
                    let before = marks(&variant.was, variant.is_other);
                    let (case, discriminant) = match variant.case {
                        Some(Case::Number(number)) if has_discriminants => {
                            (String::new(), format!(" = {number}"))
                        }
                        case if is_foreign && !has_discriminants => {
                            (of_case(case, index, variants), String::new())
                        }
                        _ if has_discriminants && variants.iter().any(|one| one.case.is_some()) => {
                            (String::new(), format!(" = {index}"))
                        }
                        _ => (String::new(), String::new()),
                    };
                    self.line(format_args!(
                        "{indent}    {case}{before}{}{written}{discriminant},",
                        name(&variant.name)
                    ));
                }
                self.line(format_args!("{indent}}}"));
            }
            DescribedBody::Interface { version, procedures } => {
                self.interface(indent, (&named.name, *version), procedures, Some(number));
            }
            // This is a kind of type that a later version of the library adds. It cannot be printed yet.
            _ => {}
        }
        if self.failed.contains(&number) {
            self.failure(indent, &own, &named.body);
        }
        if in_module {
            self.line(format_args!("}}"));
        }
    }

    /// Returns whether a type has forms in the representations of other RPC systems.
    fn is_foreign(&self, number: usize, body: &DescribedBody) -> bool {
        let has_max = |fields: &[DescribedField]| fields.iter().any(|one| one.max.is_some());
        let in_program = !self.described.programs.is_empty();
        match body {
            DescribedBody::Enum(variants) => {
                let has_case = variants.iter().any(|one| one.case.is_some());
                let is_error = self.failed.contains(&number);
                has_case && !has_discriminants(variants)
                    || variants.iter().any(|one| has_max(&one.fields))
                    || in_program && !is_error
            }
            DescribedBody::Struct(fields) => in_program || has_max(fields),
            _ => in_program,
        }
    }

    /// Prints the conversion of a `CallError` to the type `own`, which is the error of a procedure. If no
    /// variant of `own` can hold a `CallError`, prints a comment instead.
    fn failure(&mut self, indent: &str, own: &str, body: &DescribedBody) {
        let variants = match body {
            DescribedBody::Enum(variants) => &variants[..],
            _ => &[],
        };
        let holds = variants.iter().find(|variant| match &variant.fields[..] {
            [one] => one.name == "0" && self.described.is_call_error(&one.ty),
            _ => false,
        });
        let Some(variant) = holds.map(|variant| name(&variant.name)) else {
            return self.line(format_args!(
                "{indent}// `impl From<peregrine::CallError> for {own}` is not part of the description."
            ));
        };
        self.line(format_args!("{indent}impl From<peregrine::CallError> for {own} {{"));
        self.line(format_args!("{indent}    fn from(error: peregrine::CallError) -> Self {{"));
        self.line(format_args!("{indent}        Self::{variant}(error)"));
        self.line(format_args!("{indent}    }}"));
        self.line(format_args!("{indent}}}"));
    }

    fn fields(&mut self, indent: &str, head: &str, fields: &[DescribedField], whole: usize) {
        if fields.is_empty() {
            return self.line(format_args!("{indent}{head} {{}}"));
        }
        if numbered(fields) {
            let field = |one: &DescribedField| {
                let before = self.growth(&one.ty, &one.growth, Some(whole));
                format!("{}{before}pub {}", max(one), self.ty(&one.ty, Some(whole)))
            };
            let all: Vec<_> = fields.iter().map(field).collect();
            return self.line(format_args!("{indent}{head}({});", all.join(", ")));
        }
        self.line(format_args!("{indent}{head} {{"));
        for field in fields {
            let ty = self.ty(&field.ty, Some(whole));
            let before = self.growth(&field.ty, &field.growth, Some(whole));
            let before = format!("{}{before}", max(field));
            self.line(format_args!("{indent}    {before}pub {}: {ty},", name(&field.name)));
        }
        self.line(format_args!("{indent}}}"));
    }
}

/// Returns whether the numbers that the variants have in other systems are printed as discriminants.
fn has_discriminants(variants: &[DescribedVariant]) -> bool {
    let is_number = |case| matches!(case, None | Some(Case::Number(_)));
    variants.iter().all(|one| one.fields.is_empty() && is_number(one.case))
}

/// Returns the attribute with the number of a variant in other systems. A space follows the attribute.
fn of_case(case: Option<Case>, index: i64, variants: &[DescribedVariant]) -> String {
    let is_error = |one: &DescribedVariant| matches!(one.case, Some(Case::Error(_)));
    match case {
        Some(Case::Error(number)) => format!("#[foreign(error = {number})] "),
        Some(Case::Default) => "#[foreign(default)] ".to_owned(),
        Some(Case::Number(number)) => format!("#[foreign(case = {number})] "),
        None if variants.iter().any(is_error) => String::new(),
        None => format!("#[foreign(case = {index})] "),
    }
}

/// Returns the attribute with the maximum length of a field. A space follows the attribute.
fn max(field: &DescribedField) -> String {
    field.max.map(|max| format!("#[foreign(max = {max})] ")).unwrap_or_default()
}

/// Returns the attribute `#[was(...)]` with earlier names. A space follows the attribute.
fn was(was: &[String]) -> String {
    let names: Vec<_> = was.iter().map(|name| format!("{name:?}")).collect();
    if names.is_empty() { String::new() } else { format!("#[was({})] ", names.join(", ")) }
}

/// Returns the growth attributes of a field or a parameter, except `#[default]`. A space follows each
/// attribute.
fn attributes(growth: &DescribedGrowth) -> String {
    format!("{}{}", was(&growth.was), if growth.widens { "#[widens] " } else { "" })
}

/// Returns the attributes of a variant. A space follows each attribute.
fn marks(earlier: &[String], is_other: bool) -> String {
    format!("{}{}", was(earlier), if is_other { "#[other] " } else { "" })
}

/// Returns whether the names of fields are numbers, as in a tuple.
fn numbered(fields: &[DescribedField]) -> bool {
    fields.iter().enumerate().all(|(i, field)| field.name == i.to_string())
}
