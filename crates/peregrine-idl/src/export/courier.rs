//! Converts a trait to a Courier program.

use std::collections::HashMap;

use peregrine::interface::{DescribedType, Direction, Shape, System};
use proc_macro2::Span;
use syn::parse::{ParseStream, Parser as _};
use syn::{Ident, LitBool, LitInt, LitStr, Token, token};

use super::{
    Chosen, Exported, ascii, bytes, is_byte_string, is_error, last_of, module_of, no_form, split,
    value_of,
};
use crate::courier::{
    self as file, Count, Declaration, Fields, Name, Numbers, Problems, Reference, Simple, Tag,
    Value,
};
use crate::diagnostic::Diagnostics;
use crate::names::{camel, shouty, snake};
use crate::syntax::{
    Body, Constant, Definition, Field, Item, Method, Source, Trait, Type, Variant, is_enumeration,
};
use crate::tokens::{braces, brackets, expected, keyword, list, name, number, parentheses, sign};

pub(super) fn export(source: &Source, text: &str, name: &str) -> Result<Exported, Diagnostics> {
    let mut problems = Problems::default();
    problems.enter_next(name.to_owned(), text.to_owned());
    let mut writer =
        Writer { source, text, problems, names: HashMap::new(), scopes: HashMap::new() };
    writer.name_all();
    let program = writer.program();
    if writer.problems.errors.has_error() {
        return Err(writer.problems.errors);
    }
    let written = file::export_courier(&program);
    // The text is imported, in order to find everything else that the language does not permit, such as a
    // type that contains itself.
    let mut others: HashMap<String, String> = HashMap::new();
    for dependency in &program.depends {
        let module = writer.module(dependency);
        others.insert(dependency.name.text.clone(), file::export_courier(&module));
    }
    let mut files = |one: &file::Dependency| {
        let text = others.get(&one.name.text)?.clone();
        Some(file::Source { name: format!("{}.cr", one.name.text), text })
    };
    let file_name = format!("{}.cr", program.name.text);
    file::import_courier(&written, &file_name, &mut files)?;
    Ok(Exported { text: written, warnings: writer.problems.warnings })
}

struct Writer<'a> {
    source: &'a Source,
    text: &'a str,
    problems: Problems,
    /// The names that types and constants have in the file, by their paths in Rust.
    names: HashMap<String, String>,
    /// The names that are taken in each module, by the name of the module. For the program itself, this is
    /// "".
    scopes: HashMap<String, Chosen>,
}

impl<'a> Writer<'a> {
    fn error(&mut self, span: Span, message: impl Into<String>) {
        let (start, end) = bytes(span, self.text);
        self.problems.report(&(start..end).into(), message);
    }

    fn pick(&mut self, module: &str, wanted: &[String], is_right: impl Fn(&str) -> bool) -> String {
        self.scopes.entry(module.to_owned()).or_default().pick(wanted, is_right)
    }

    /// Names all types and constants.
    fn name_all(&mut self) {
        let source = self.source;
        for item in &source.items {
            match item {
                Item::Type(path) => {
                    let last = ascii(last_of(path));
                    let wanted = [last.clone(), split(&last)];
                    let module = module_of(path).unwrap_or_default();
                    let is_type = source.types.get(path).is_some_and(|one| {
                        !matches!(one.body, Body::Interface(_)) && !is_error(one)
                    });
                    if is_type && self.results_of(path).is_none() {
                        let chosen = self.pick(module, &wanted, |name| camel(name) == last);
                        self.names.insert(path.clone(), chosen);
                    }
                }
                Item::Constant(one) => {
                    let module = one.module.as_deref().unwrap_or_default();
                    let own = ascii(&one.name);
                    let wanted = [lower(&own), own.to_lowercase(), own.clone()];
                    let chosen = self
                        .pick(module, &wanted, |name| shouty(name) == own || snake(name) == own);
                    self.names.insert(joined(module, &one.name), chosen);
                }
                Item::Impl(..) => {}
            }
        }
    }

    /// Returns the method whose results are the fields of a struct, if the struct exists only for these
    /// results.
    fn results_of(&self, path: &str) -> Option<&'a Method> {
        let Body::Struct(fields) = &self.source.types.get(path)?.body else { return None };
        let base = path.strip_suffix("Results").filter(|_| fields.len() > 1)?;
        let (_, interface) = self.interface()?;
        interface.methods.iter().find(|one| {
            camel(&one.name) == base
                && matches!(&one.result, Type::Named(name) if name.path_in(&self.source.types) == path)
        })
    }

    /// Returns the trait that is a Courier program.
    fn interface(&self) -> Option<(&'a Definition, &'a Trait)> {
        self.interfaces().into_iter().next()
    }

    fn interfaces(&self) -> Vec<(&'a Definition, &'a Trait)> {
        let source = self.source;
        let all = source.items.iter().filter_map(|item| match item {
            Item::Type(path) => source.types.get(path),
            _ => None,
        });
        let all = all.filter_map(|one| match &one.body {
            Body::Interface(interface) => Some((one, interface)),
            _ => None,
        });
        all.collect()
    }

    /// Returns the program whose types a module contains. The documentation of the module names this program.
    fn dependency(&self, module: &str) -> Option<file::Dependency> {
        let docs = self.source.modules.get(module)?;
        let (name, rest) = docs.strip_prefix("Types of program `")?.split_once("`, number ")?;
        let (program, version) = rest.strip_suffix('.')?.split_once(", version ")?;
        let numbers = Numbers { program: program.parse().ok()?, version: version.parse().ok()? };
        Some(file::Dependency { name: Name::from(name), numbers })
    }

    /// Returns the name and the numbers of the program itself, by which other programs depend upon it.
    fn main(&self) -> Option<file::Dependency> {
        let (_, interface) = self.interface()?;
        let program = interface.program(System::Courier)?;
        let (program, version) = program.numbers?;
        let numbers = Numbers { program, version: version as u16 };
        Some(file::Dependency { name: Name::from(&*ascii(&interface.name)), numbers })
    }

    fn program(&mut self) -> file::Program {
        let interfaces = self.interfaces();
        if let Some((second, _)) = interfaces.get(1) {
            self.error(second.span, "a Courier file has one program, but this is the second trait");
        }
        let mut declarations = self.declarations("");
        let (mut docs, mut numbers, mut name) = (String::new(), None, "Types".to_owned());
        if let Some((definition, interface)) = interfaces.first() {
            let program = interface.program(System::Courier);
            match program {
                Some(program) => {
                    numbers = program
                        .numbers
                        .map(|(program, version)| Numbers { program, version: version as u16 });
                }
                None => {
                    let text =
                        "write `courier(program = N, version = N)` in `#[interface]` of this trait";
                    self.error(definition.span, text);
                }
            }
            docs.clone_from(&definition.docs);
            name = ascii(&interface.name);
            self.procedures(interface, &mut declarations);
        }
        let depends = self.depends();
        file::Program { docs, name: Name::from(&*name), numbers, depends, declarations }
    }

    /// Returns the programs whose types are in modules.
    fn depends(&self) -> Vec<file::Dependency> {
        let modules = self.source.modules.keys();
        let mut all: Vec<_> = modules.filter_map(|module| self.dependency(module)).collect();
        all.sort_by(|one, other| one.name.text.cmp(&other.name.text));
        all
    }

    /// Returns the program `of`, with the types of its module.
    fn module(&mut self, of: &file::Dependency) -> file::Program {
        let modules = self.source.modules.keys();
        let mut same = modules.filter(|module| self.dependency(module).as_ref() == Some(of));
        let module = same.next().cloned().unwrap_or_default();
        let declarations = self.declarations(&module);
        let (name, numbers) = (of.name.clone(), Some(of.numbers));
        let others = self.depends().into_iter().filter(|one| one != of);
        let depends = others.chain(self.main()).collect();
        file::Program { docs: String::new(), name, numbers, depends, declarations }
    }

    /// Returns the types and the constants of a module.
    fn declarations(&mut self, module: &str) -> Vec<Declaration> {
        let source = self.source;
        let mut all = Vec::new();
        for item in &source.items {
            match item {
                Item::Type(path) if module_of(path).unwrap_or_default() == module => {
                    let (Some(one), Some(name)) = (source.types.get(path), self.names.get(path))
                    else {
                        continue;
                    };
                    let (name, docs) = (Name::from(&**name), one.docs.clone());
                    let ty = self.body(path, one);
                    all.push(Declaration { docs, name, ty, value: None });
                }
                Item::Constant(one) if one.module.as_deref().unwrap_or_default() == module => {
                    all.extend(self.constant(one));
                }
                _ => {}
            }
        }
        all
    }

    fn body(&mut self, path: &str, one: &Definition) -> file::Type {
        if let Some(parameter) = one.parameters.first() {
            let text = format!("a type with the parameter `{parameter}` has no form in Courier");
            self.error(one.span, text);
        }
        match &one.body {
            Body::Struct(fields) | Body::Plain { fields, .. } => match &**fields {
                [only] if only.name == "0" => self.field(only, path),
                fields => file::Type::Record(self.fields(fields, path)),
            },
            Body::Alias(ty) => self.ty(ty, None, one.span, path),
            Body::PlainEnum { variants, .. } => {
                let all = variants.iter().map(|one| (&*one.name, one.value));
                file::Type::Enumeration(tags(all))
            }
            Body::Enum(variants) => self.choice(path, one, variants),
            Body::Interface(_) => file::Type::Record(Vec::new()),
        }
    }

    fn choice(&mut self, path: &str, one: &Definition, variants: &[Variant]) -> file::Type {
        if is_enumeration(variants) {
            return file::Type::Enumeration(tags(
                variants.iter().map(|one| (&*one.name, one.number)),
            ));
        }
        let (mut by, mut known) = (None, Vec::new());
        if let Some(Type::Named(name)) = &one.foreign.switch {
            let of = name.path_in(&self.source.types);
            if let Some(Definition { body: Body::Enum(all), .. }) = self.source.types.get(&of) {
                known = all.iter().map(|one| (one.name.clone(), one.number)).collect();
            }
            by = Some(self.reference(&of, module_of(path)));
        }
        let mut names = Chosen::default();
        let mut arms = Vec::new();
        for variant in variants {
            let own = &variant.foreign;
            let Some(case) = own.case.filter(|_| !own.is_default) else {
                let text = "a CHOICE has a number for each arm: write `#[foreign(case = N)]`";
                self.error(variant.span, text);
                continue;
            };
            let name = Name::from(&*tag_name(&mut names, &variant.name));
            let is_known = known
                .iter()
                .any(|(name, number)| *name == variant.name && *number == i128::from(case));
            let number = (!is_known).then(|| Count::Number(case, Default::default()));
            let ty = match &*variant.fields {
                [only] if only.name == "0" => self.field(only, path),
                fields => file::Type::Record(self.fields(fields, path)),
            };
            arms.push(file::Arm { tags: vec![Tag { name, number }], ty });
        }
        file::Type::Choice(by, arms)
    }

    fn fields(&mut self, fields: &[Field], path: &str) -> Vec<Fields> {
        let mut names = Chosen::default();
        let mut all = Vec::new();
        for field in fields {
            let name = field_name(&mut names, &field.name);
            let ty = self.field(field, path);
            all.push(Fields { names: vec![Name::from(&*name)], ty });
        }
        all
    }

    fn field(&mut self, field: &Field, path: &str) -> file::Type {
        let max = field.foreign.max;
        self.ty(&field.ty, max, field.span, path)
    }

    /// Converts a type that is within the declaration `path`.
    fn ty(&mut self, ty: &Type, max: Option<u32>, span: Span, path: &str) -> file::Type {
        let count = |count: i64| Count::Number(count, Default::default());
        match ty {
            Type::Simple(simple) => match simple {
                DescribedType::Bool => file::Type::Simple(Simple::Boolean),
                DescribedType::U16 => file::Type::Simple(Simple::Cardinal),
                DescribedType::I16 => file::Type::Simple(Simple::Integer),
                DescribedType::U32 => file::Type::Simple(Simple::LongCardinal),
                DescribedType::I32 => file::Type::Simple(Simple::LongInteger),
                DescribedType::Text => file::Type::Simple(Simple::String),
                DescribedType::Unit => file::Type::Record(Vec::new()),
                _ => self.none(ty, span),
            },
            Type::Array(of, length) => {
                let length = i64::try_from(*length).unwrap_or(i64::MAX);
                file::Type::Array(count(length), Box::new(self.ty(of, None, span, path)))
            }
            Type::Sequence(of) => {
                let max = max.map(|max| count(max.into()));
                file::Type::Sequence(max, Box::new(self.ty(of, None, span, path)))
            }
            Type::Named(name) if is_byte_string(name, self.source) => {
                file::Type::Simple(Simple::String)
            }
            Type::Named(name) if name.arguments.is_empty() => {
                let of = name.path_in(&self.source.types);
                match self.names.contains_key(&of) {
                    true => file::Type::Named(self.reference(&of, module_of(path))),
                    false => self.none(ty, name.span),
                }
            }
            _ => self.none(ty, span),
        }
    }

    fn none(&mut self, ty: &Type, span: Span) -> file::Type {
        self.error(span, no_form(ty, "Courier"));
        file::Type::Record(Vec::new())
    }

    /// Returns the reference to a type or a constant, as it is written in the module `at`.
    fn reference(&self, path: &str, at: Option<&str>) -> Reference {
        let module = module_of(path);
        let program = match module {
            _ if module == at => None,
            Some(module) => self.dependency(module),
            None => self.main(),
        };
        let name = self.names.get(path).map_or_else(|| last_of(path), String::as_str);
        Reference { program: program.map(|one| one.name), name: Name::from(name) }
    }

    fn procedures(&mut self, interface: &Trait, declarations: &mut Vec<Declaration>) {
        let source = self.source;
        // The declared errors. For each of them: the name in Rust and the number, and the name in the file.
        let mut errors: Vec<((String, u16), String)> = Vec::new();
        let mut procedures = Vec::new();
        for method in &interface.methods {
            let Some(number) = method.number(System::Courier) else {
                self.error(method.span, "write `#[courier(N)]` before this method: its number");
                continue;
            };
            let mut reports = Vec::new();
            let path = match &method.error {
                Type::Named(name) => name.path_in(&source.types),
                _ => String::new(),
            };
            match source.types.get(&path) {
                Some(one @ Definition { body: Body::Enum(variants), .. }) if is_error(one) => {
                    for variant in variants {
                        let Some(number) = variant.foreign.error else { continue };
                        let key = (variant.name.clone(), number);
                        let known = errors.iter().find(|(of, _)| *of == key);
                        let name = match known {
                            Some((_, name)) => name.clone(),
                            None => {
                                let last = ascii(&variant.name);
                                let wanted = [last.clone(), split(&last), lower(&last)];
                                let name = self.pick("", &wanted, |name| camel(name) == last);
                                errors.push((key, name.clone()));
                                let ty = file::Type::Error(self.fields(&variant.fields, &path));
                                declarations.push(Declaration {
                                    docs: variant.docs.clone(),
                                    name: Name::from(&*name),
                                    ty,
                                    value: Some(of_number(number.into())),
                                });
                                name
                            }
                        };
                        reports.push(Reference { program: None, name: Name::from(&*name) });
                    }
                }
                _ if last_of(&path) == "CallError" => {}
                _ => {
                    let text = "a Courier procedure fails with an enum that has `#[foreign(error = N)]` on \
                                its variants";
                    self.error(method.span, text);
                }
            }
            let (arguments, results) = (self.arguments(method), self.results(method));
            let ty = file::Type::Procedure(file::Procedure { arguments, results, reports });
            procedures.push((method, ty, number));
        }
        for (method, ty, number) in procedures {
            let last = camel(&ascii(&method.name));
            let wanted = [last.clone(), lower(&last), split(&last)];
            let name = self.pick("", &wanted, |name| snake(name) == method.name);
            declarations.push(Declaration {
                docs: method.docs.clone(),
                name: Name::from(&*name),
                ty,
                value: Some(of_number(number.into())),
            });
        }
    }

    fn arguments(&mut self, method: &Method) -> Vec<Fields> {
        let mut names = Chosen::default();
        let mut all = Vec::new();
        for parameter in &method.parameters {
            if parameter.direction != Direction::In {
                let text = "a parameter of a Courier procedure is a value, `&T`, `&str` or `&[T]`";
                self.error(parameter.span, text);
                continue;
            }
            let whole = Type::Sequence(Box::new(parameter.ty.clone()));
            let ty = if parameter.shape == Shape::Buffer { &whole } else { &parameter.ty };
            let ty = self.ty(ty, parameter.max_len, parameter.span, "");
            let name = field_name(&mut names, &parameter.name);
            all.push(Fields { names: vec![Name::from(&*name)], ty });
        }
        all
    }

    fn results(&mut self, method: &Method) -> Vec<Fields> {
        let one = |name: &str, ty| Fields { names: vec![Name::from(name)], ty };
        match &method.result {
            Type::Simple(DescribedType::Unit) => Vec::new(),
            Type::Tuple(parts) => {
                let part = |(place, ty): (usize, &Type)| {
                    one(&format!("result{place}"), self.ty(ty, None, method.span, ""))
                };
                parts.iter().enumerate().map(part).collect()
            }
            Type::Named(name) => {
                let path = name.path_in(&self.source.types);
                let fields = match self.source.types.get(&path).map(|one| &one.body) {
                    Some(Body::Struct(fields)) if self.results_of(&path).is_some() => fields,
                    _ => {
                        return vec![one("result", self.ty(&method.result, None, method.span, ""))];
                    }
                };
                self.fields(fields, &path)
            }
            ty => vec![one("result", self.ty(ty, None, method.span, ""))],
        }
    }

    fn constant(&mut self, one: &Constant) -> Option<Declaration> {
        let Constant { name, span, docs, module, .. } = one;
        let module = module.as_deref().unwrap_or_default();
        let value = value_of(one).and_then(|value| {
            let parser = |input: ParseStream<'_>| self.value(input, module);
            Ok((value.ty, parser.parse2(value.tokens)?))
        });
        let Ok((ty, value)) = value else {
            let (start, end) = bytes(*span, self.text);
            let text = format!("`{name}` is left out, because its value has no form in Courier");
            self.problems.warn(&(start..end).into(), text);
            return None;
        };
        let path = joined(module, name);
        let ty = match ty {
            Some(ty) => self.ty(&ty, None, *span, &path),
            None => file::Type::Simple(Simple::String),
        };
        let name = Name::from(&**self.names.get(&path)?);
        let value = Some(file::Constant { span: Default::default(), value });
        Some(Declaration { docs: docs.clone(), name, ty, value })
    }

    /// Parses an expression in the form in which imports print it.
    fn value(&self, input: ParseStream<'_>, module: &str) -> syn::Result<Value> {
        let inner = |input: ParseStream<'_>| -> syn::Result<file::Constant> {
            let value = self.value(input, module)?;
            Ok(file::Constant { span: Default::default(), value })
        };
        if input.peek(LitInt) || input.peek(Token![-]) {
            return number(input, "i64").map(Value::Number);
        }
        if input.peek(LitStr) {
            return Ok(Value::Text(input.parse::<LitStr>()?.value()));
        }
        if input.peek(LitBool) {
            return Ok(Value::Boolean(input.parse::<LitBool>()?.value));
        }
        if input.peek(token::Bracket) {
            return list(&brackets(input)?, inner).map(Value::List);
        }
        if input.peek(token::Paren) {
            let inside = parentheses(input)?;
            return if inside.is_empty() {
                Ok(Value::List(Vec::new()))
            } else {
                Err(expected(&inside, "`)`"))
            };
        }
        if !input.peek(Ident) && !input.peek(Token![super]) {
            return Err(expected(input, "a value"));
        }
        let mut parts = vec![name(input)?.0];
        while keyword::<Token![::]>(input) {
            parts.push(name(input)?.0);
        }
        if keyword::<Token![!]>(input) {
            return list(&brackets(input)?, inner).map(Value::List);
        }
        if let [first, _] = &*parts
            && ["ByteString", "Box"].contains(&&**first)
        {
            return self.value(&parentheses(input)?, module);
        }
        let is_above = parts[0] == "super";
        let parts: Vec<&str> =
            parts.iter().map(String::as_str).skip(usize::from(is_above)).collect();
        let at = if is_above { "" } else { module };
        let types = &self.source.types;
        let full = |parts: &[&str]| {
            let path = parts.join("::");
            let within = joined(at, &path);
            if types.contains_key(&within) || self.names.contains_key(&within) {
                within
            } else {
                path
            }
        };
        let variant = parts.split_last().filter(|(_, of)| {
            matches!(
                types.get(&full(of)).map(|one| &one.body),
                Some(Body::Enum(_) | Body::PlainEnum { .. })
            )
        });
        let variant = variant.map(|(name, of)| self.tag(&full(of), name));
        let chosen = |value: Value| match &variant {
            Some(tag) => {
                let value = file::Constant { span: Default::default(), value };
                Value::Chosen(Name::from(&**tag), Box::new(value))
            }
            None => value,
        };
        if input.peek(token::Brace) {
            let mut names = Chosen::default();
            let fields = list(&braces(input)?, |input| {
                let name = field_name(&mut names, &name(input)?.0);
                sign::<Token![:]>(input, "`:`")?;
                Ok((vec![Name::from(&*name)], inner(input)?))
            })?;
            return Ok(chosen(Value::Fields(fields)));
        }
        if input.peek(token::Paren) {
            let inside = parentheses(input)?;
            if !inside.is_empty() {
                return self.value(&inside, module).map(chosen);
            }
        }
        Ok(Value::Named(match variant {
            Some(tag) => Reference { program: None, name: Name::from(&*tag) },
            None => self.reference(&full(&parts), Some(module).filter(|module| !module.is_empty())),
        }))
    }

    /// Returns the name that the variant `variant` of the enum at `path` has in the file.
    fn tag(&self, path: &str, variant: &str) -> String {
        let mut names = Chosen::default();
        let all: Vec<&str> = match self.source.types.get(path).map(|one| &one.body) {
            Some(Body::Enum(all)) => all.iter().map(|one| &*one.name).collect(),
            Some(Body::PlainEnum { variants, .. }) => {
                variants.iter().map(|one| &*one.name).collect()
            }
            _ => Vec::new(),
        };
        let mut found = variant.to_owned();
        for one in all {
            let name = tag_name(&mut names, one);
            if one == variant {
                found = name;
            }
        }
        found
    }
}

fn joined(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") }
}

fn of_number(number: i64) -> file::Constant {
    file::Constant { span: Default::default(), value: Value::Number(number) }
}

fn tags<'t>(all: impl Iterator<Item = (&'t str, i128)>) -> Vec<Tag> {
    let mut names = Chosen::default();
    let tag = |(name, number): (&str, i128)| {
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        let name = Name::from(&*tag_name(&mut names, name));
        Tag { name, number: Some(Count::Number(number, Default::default())) }
    };
    all.map(tag).collect()
}

/// Returns the name for a variant in the file, and adds it to `names`.
fn tag_name(names: &mut Chosen, own: &str) -> String {
    let own = ascii(own);
    names.pick(&[lower(&own), own.clone(), split(&own)], |name| camel(name) == own)
}

/// Returns the name for a field or an argument in the file, and adds it to `names`.
fn field_name(names: &mut Chosen, own: &str) -> String {
    let own = match own.starts_with(|c: char| c.is_ascii_digit()) {
        true => format!("field{own}"),
        false => ascii(own),
    };
    names.pick(&[lower(&own), own.clone()], |name| snake(name) == own)
}

/// Returns a name in camel case, with a lower-case first letter.
fn lower(name: &str) -> String {
    heck::ToLowerCamelCase::to_lower_camel_case(name)
}
