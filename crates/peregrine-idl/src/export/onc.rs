//! Converts traits to the tree of an interface file of ONC RPC.

use std::collections::{HashMap, HashSet};

use peregrine::interface::{DescribedPlainVariant, DescribedType, Direction, Shape, System};
use proc_macro2::{Delimiter, Span, TokenTree};
use syn::parse::{ParseStream, Parser as _};
use syn::{Error, Token, Visibility};

use super::{
    Chosen, Exported, ascii, bytes, is_byte_string, is_error, last_of, no_form, numbered, split,
    text_of, value_of,
};
use crate::diagnostic::Diagnostics;
use crate::names::{Names, camel, of_case, shouty, snake};
use crate::onc::{self as file, Definition as Item, Name, Place, Sources};
use crate::parse;
use crate::syntax::{
    self, Constant, Definition, Field, Method, Parameter, Source, Trait, Variant, is_enumeration,
};
use crate::tokens::{name, number, sign};

/// Words that cannot be names in an interface file.
const WORDS: &str = "bool case char const default double enum float hyper int long opaque program \
                     quadruple short string struct switch typedef union unsigned version void";

pub(super) fn export(source: &Source, text: &str, name: &str) -> Result<Exported, Diagnostics> {
    let sources = Sources::of(name, text);
    let mut writer = Writer {
        source,
        text,
        sources,
        types: HashMap::new(),
        type_names: reserved(),
        constants: reserved(),
        members: HashMap::new(),
        numbers: Vec::new(),
        more: Vec::new(),
    };
    let tree = writer.specification();
    let (text, warnings) = file::checked_text(&tree, writer.sources)?;
    Ok(Exported { text, warnings })
}

fn reserved() -> Chosen {
    Chosen { taken: WORDS.split_whitespace().map(str::to_owned).collect() }
}

struct Writer<'a> {
    source: &'a Source,
    text: &'a str,
    sources: Sources,
    /// The name that each type has in the file, by its path in Rust.
    types: HashMap<String, String>,
    type_names: Chosen,
    constants: Chosen,
    /// The members of each enumeration, by its path: the name in Rust, the name in the file, and the number.
    members: HashMap<String, Vec<(String, String, i128)>>,
    /// The constants that are numbers. For each of them: the name in Rust, written like that of a variant,
    /// the name in the file, and the number.
    numbers: Vec<(String, String, i128)>,
    /// Types that the file needs, and that have no name in Rust.
    more: Vec<Item>,
}

impl<'a> Writer<'a> {
    fn place(&self, span: Span) -> Place {
        let (start, end) = bytes(span, self.text);
        Place::new(start, end)
    }

    fn name(&self, text: String, span: Span) -> Name {
        Name { text, place: self.place(span) }
    }

    fn error(&mut self, span: Span, message: impl Into<String>) {
        let place = self.place(span);
        self.sources.error(place, message);
    }

    fn specification(&mut self) -> file::Specification {
        let source = self.source;
        let constants: Vec<Option<Item>> =
            source.items.iter().map(|item| self.constant(item)).collect();
        for (path, one) in self.declared() {
            let last = ascii(last_of(path));
            let wanted = [snake(&last), last.clone(), split(&last)];
            let wanted = wanted.map(|one| ascii(&one));
            let chosen = self.type_names.pick(&wanted, |name| camel(name) == last);
            self.types.insert(path.clone(), chosen);
            self.enumeration(path, one);
        }
        let mut definitions = Vec::new();
        let mut programs: Vec<(u32, usize)> = Vec::new();
        for (item, constant) in source.items.iter().zip(constants) {
            definitions.extend(constant);
            let syntax::Item::Type(path) = item else { continue };
            let Some(one) = source.types.get(path) else { continue };
            match &one.body {
                syntax::Body::Interface(interface) => {
                    self.interface(one, interface, &mut definitions, &mut programs);
                }
                _ if self.is_declared(path, one) => {
                    let body = self.body(path, one);
                    let name = self.name(self.types[path].clone(), one.span);
                    let docs = one.docs.clone();
                    definitions.push(Item::Type(file::TypeDefinition { docs, name, body }));
                }
                _ => {}
            }
            definitions.append(&mut self.more);
        }
        file::Specification { definitions: file::ordered(definitions) }
    }

    /// Returns the types that are declared in the file.
    fn declared(&self) -> Vec<(&'a String, &'a Definition)> {
        let source = self.source;
        let all = source.items.iter().filter_map(|item| match item {
            syntax::Item::Type(path) => Some((path, source.types.get(path)?)),
            _ => None,
        });
        all.filter(|(path, one)| self.is_declared(path, one)).collect()
    }

    fn is_declared(&self, path: &str, one: &Definition) -> bool {
        !matches!(one.body, syntax::Body::Interface(_)) && !is_error(one) && !self.is_cell(path)
    }

    /// Returns whether a type is a struct around a `u8`. Imports print such a struct for an unsigned char in
    /// an array, where it takes four bytes.
    fn is_cell(&self, path: &str) -> bool {
        match self.source.types.get(path).map(|one| &one.body) {
            Some(syntax::Body::Struct(fields)) => matches!(
                &**fields,
                [Field { name, ty: syntax::Type::Simple(DescribedType::U8), .. }] if name == "0"
            ),
            _ => false,
        }
    }

    fn constant(&mut self, item: &syntax::Item) -> Option<Item> {
        let syntax::Item::Constant(one) = item else { return None };
        let value = value_of(one).and_then(|value| match value.ty {
            None => text_of(&value.tokens).map(file::ConstantValue::Text),
            Some(_) => {
                let parser = |input: ParseStream<'_>| number::<i128>(input, "i128");
                let number = parser.parse2(value.tokens)?;
                Ok(file::ConstantValue::Number(file::Value::Number(number)))
            }
        });
        let Constant { name, span, docs, .. } = one;
        let Ok(value) = value else {
            let place = self.place(*span);
            let message =
                format!("`{name}` is left out, because only numbers and texts are constants");
            self.sources.warn(place, message);
            return None;
        };
        let wanted = [ascii(name)];
        let chosen = self.constants.pick(&wanted, |one| shouty(one) == *name);
        if let file::ConstantValue::Number(file::Value::Number(number)) = &value {
            self.numbers.push((camel(&chosen), chosen.clone(), *number));
        }
        let (docs, name) = (docs.clone(), self.name(chosen, *span));
        Some(Item::Constant(file::Constant { docs, name, value }))
    }

    /// Names the members of an enumeration.
    fn enumeration(&mut self, path: &str, one: &Definition) {
        let variants: Vec<(&str, i128)> = match &one.body {
            syntax::Body::Enum(variants) if is_enumeration(variants) => {
                variants.iter().map(|one| (&*one.name, one.number)).collect()
            }
            syntax::Body::PlainEnum { variants, .. } => {
                variants.iter().map(|one| (&*one.name, one.value)).collect()
            }
            _ => return,
        };
        let of = shouty(&last_of(path).chars().chain(['x']).collect::<String>());
        let of = of.trim_end_matches('X');
        let mut all = Vec::new();
        for (name, number) in variants {
            let own = ascii(name);
            let upper = heck::ToShoutySnakeCase::to_shouty_snake_case(&*own);
            let wanted = [upper.clone(), split(&own).to_uppercase(), own, format!("{of}_{upper}")];
            let chosen = self.constants.pick(&wanted, |one| camel(one) == name);
            all.push((name.to_owned(), chosen, number));
        }
        // If two members have the same number, the second one is not a variant in Rust, but a constant in an
        // `impl` block.
        for (own, target, _) in self.aliases(path) {
            let number = all.iter().find(|(name, ..)| *name == target).map(|(.., number)| *number);
            let Some(number) = number else { continue };
            let chosen = self.constants.pick(&[ascii(&own)], |one| shouty(one) == own);
            all.push((camel(&own), chosen, number));
        }
        self.members.insert(path.to_owned(), all);
    }

    /// Returns the constants in the `impl` blocks of an enum whose values are variants. For each of them: the
    /// name, the variant, and the documentation.
    fn aliases(&self, path: &str) -> Vec<(String, String, String)> {
        let mut all = Vec::new();
        for item in &self.source.items {
            let syntax::Item::Impl(Some(of), content) = item else { continue };
            if of != path {
                continue;
            }
            let constants = |input: ParseStream<'_>| -> Result<(), Error> {
                while !input.is_empty() {
                    match alias(input) {
                        Ok(alias) => all.push(alias),
                        // Another item, such as a method, is ignored.
                        Err(_) => skip_item(input)?,
                    }
                }
                Ok(())
            };
            // An error means that the block ends in the middle of an item. What was read before is used.
            let _ = constants.parse2(content.clone());
        }
        all
    }

    fn body(&mut self, path: &str, one: &Definition) -> file::Body {
        if let Some(parameter) = one.parameters.first() {
            self.error(
                one.span,
                format!("a type with the parameter `{parameter}` has no form in XDR"),
            );
        }
        match &one.body {
            syntax::Body::Struct(fields) | syntax::Body::Plain { fields, .. } => match &**fields {
                [only] if only.name == "0" && !mentions(&only.ty, path, self.source) => {
                    file::Body::Alias(self.field(only, last_of(path)))
                }
                fields => file::Body::Struct(self.fields(fields, path)),
            },
            syntax::Body::Alias(ty) => {
                file::Body::Alias(self.ty(ty, None, one.span, last_of(path)))
            }
            syntax::Body::PlainEnum { variants, .. } => {
                let docs = variants.iter().map(|_: &DescribedPlainVariant| String::new());
                self.enumerated(path, docs.collect(), one.span)
            }
            syntax::Body::Enum(variants) if is_enumeration(variants) => {
                let docs = variants.iter().map(|one| one.docs.clone()).collect();
                self.enumerated(path, docs, one.span)
            }
            syntax::Body::Enum(variants) => self.union(path, one, variants),
            syntax::Body::Interface(_) => file::Body::Struct(Vec::new()),
        }
    }

    fn enumerated(&self, path: &str, docs: Vec<String>, span: Span) -> file::Body {
        let members = self.members.get(path).map(Vec::as_slice).unwrap_or_default();
        let others = self.aliases(path).into_iter().map(|(.., docs)| docs);
        let docs = docs.into_iter().chain(others);
        let member = |((_, name, number), docs): (&(String, String, i128), String)| file::Member {
            docs,
            name: self.name(name.clone(), span),
            value: Some(file::Value::Number(*number)),
        };
        file::Body::Enum(members.iter().zip(docs).map(member).collect())
    }

    fn fields(&mut self, fields: &[Field], path: &str) -> Vec<file::Declaration> {
        let mut names = reserved();
        let mut all = Vec::new();
        for field in fields {
            let own = match &*field.name {
                number if number.starts_with(|c: char| c.is_ascii_digit()) => {
                    format!("field{number}")
                }
                own => ascii(own),
            };
            let chosen = names.pick(&[own.clone(), format!("{own}_")], |one| snake(one) == own);
            let ty = self.field(field, &format!("{}_{own}", last_of(path)));
            let (docs, name) = (field.docs.clone(), self.name(chosen, field.span));
            all.push(file::Declaration { docs, name, ty });
        }
        all
    }

    fn field(&mut self, field: &Field, hint: &str) -> file::Type {
        let max = field.foreign.max;
        self.ty(&field.ty, max, field.span, hint)
    }

    fn union(&mut self, path: &str, one: &Definition, variants: &[Variant]) -> file::Body {
        let switch = &one.foreign.switch;
        let (mut ty, mut members, mut is_bool) = (file::Type::Int, Vec::new(), false);
        if let Some(switch) = switch {
            ty = self.ty(switch, None, one.span, "switch");
            is_bool = ty == file::Type::Bool;
            if let syntax::Type::Named(of) = switch {
                members =
                    self.members.get(&of.path_in(&self.source.types)).cloned().unwrap_or_default();
            }
        }
        let name = self.name("kind".to_owned(), one.span);
        let switch = file::Declaration { docs: String::new(), name, ty };
        let (mut arms, mut default) = (Vec::new(), None);
        for variant in variants {
            let own = &variant.foreign;
            let docs = variant.docs.clone();
            let fields = &variant.fields[usize::from(own.is_default).min(variant.fields.len())..];
            let data = self.data(path, variant, fields);
            let Some(case) = own.case.filter(|_| !own.is_default) else {
                if !own.is_default {
                    let text = "write `#[foreign(case = N)]` before this variant: its number";
                    self.error(variant.span, text);
                }
                default = Some(file::DefaultArm { docs, data });
                continue;
            };
            let case = i128::from(case);
            let same = |one: &&(String, String, i128)| one.0 == variant.name && one.2 == case;
            let named = members.iter().chain(&self.numbers).find(same);
            let is_number = variant.name == of_case(case);
            let any = members.iter().find(|(.., of)| *of == case).filter(|_| !is_number);
            let case = match named.or(any) {
                Some((_, name, _)) => file::Value::Name(self.name(name.clone(), variant.span)),
                None if is_bool => {
                    let word = if case == 0 { "FALSE" } else { "TRUE" };
                    file::Value::Name(self.name(word.to_owned(), variant.span))
                }
                None => file::Value::Number(case),
            };
            arms.push(file::Arm { docs, cases: vec![case], data });
        }
        file::Body::Union(Box::new(file::Union { switch, arms, default }))
    }

    /// Returns the declaration of the data of an arm. Returns `None` if the arm has no data.
    fn data(
        &mut self,
        path: &str,
        variant: &Variant,
        fields: &[Field],
    ) -> Option<file::Declaration> {
        let own = snake(&variant.name);
        let hint = format!("{}_{own}", last_of(path));
        let ty = match fields {
            [] => return None,
            [one] => self.field(one, &hint),
            several => {
                let fields = self.fields(several, path);
                file::Type::Inline(Box::new(file::Body::Struct(fields)))
            }
        };
        let chosen = reserved().pick(&[ascii(&own), format!("{}_", ascii(&own))], |_| true);
        Some(file::Declaration { docs: String::new(), name: self.name(chosen, variant.span), ty })
    }

    fn ty(&mut self, ty: &syntax::Type, max: Option<u32>, span: Span, hint: &str) -> file::Type {
        let max = max.map(|max| file::Value::Number(max.into()));
        match ty {
            syntax::Type::Simple(simple) => match simple {
                DescribedType::Bool => file::Type::Bool,
                DescribedType::I8 => file::Type::Char,
                DescribedType::U8 => file::Type::UnsignedChar,
                DescribedType::I16 => file::Type::Short,
                DescribedType::U16 => file::Type::UnsignedShort,
                DescribedType::I32 => file::Type::Int,
                DescribedType::U32 => file::Type::UnsignedInt,
                DescribedType::I64 => file::Type::Hyper,
                DescribedType::U64 => file::Type::UnsignedHyper,
                DescribedType::F32 => file::Type::Float,
                DescribedType::F64 => file::Type::Double,
                DescribedType::Text => file::Type::String(max),
                _ => self.none(ty, span),
            },
            syntax::Type::Array(of, count) => {
                let count = file::Value::Number((*count).into());
                match **of {
                    syntax::Type::Simple(DescribedType::U8) => file::Type::Opaque(count),
                    _ => file::Type::Array(Box::new(self.part(of, span, hint)), count),
                }
            }
            syntax::Type::Sequence(of) => match **of {
                syntax::Type::Simple(DescribedType::U8) => file::Type::Bytes(max),
                _ => file::Type::Sequence(Box::new(self.part(of, span, hint)), max),
            },
            syntax::Type::Option(of) => file::Type::Pointer(Box::new(self.part(of, span, hint))),
            syntax::Type::Named(name) if is_byte_string(name, self.source) => {
                file::Type::String(max)
            }
            syntax::Type::Named(name) => {
                let path = name.path_in(&self.source.types);
                if self.is_cell(&path) {
                    return file::Type::UnsignedChar;
                }
                if !name.arguments.is_empty() || self.is_library(&path) {
                    return self.none(ty, name.span);
                }
                let chosen = match self.types.get(&path) {
                    Some(chosen) => chosen.clone(),
                    None => {
                        let chosen = snake(&ascii(last_of(&path)));
                        let place = self.place(name.span);
                        let text = format!(
                            "type `{path}` is declared nowhere; the file needs a type `{chosen}`"
                        );
                        self.sources.warn(place, text);
                        chosen
                    }
                };
                file::Type::Named(self.name(chosen, name.span))
            }
            syntax::Type::Result(..) | syntax::Type::Tuple(_) | syntax::Type::Interface(_) => {
                self.none(ty, span)
            }
        }
    }

    fn is_library(&self, path: &str) -> bool {
        !self.source.types.contains_key(path) && crate::library::has(path)
    }

    fn none(&mut self, ty: &syntax::Type, span: Span) -> file::Type {
        self.error(span, no_form(ty, "XDR"));
        file::Type::Void
    }

    /// Returns the type of an element. The language has no element that is an array or an optional value, so
    /// such a type gets a name.
    fn part(&mut self, ty: &syntax::Type, span: Span, hint: &str) -> file::Type {
        let converted = self.ty(ty, None, span, hint);
        self.specifier(converted, span, hint)
    }

    fn specifier(&mut self, ty: file::Type, span: Span, hint: &str) -> file::Type {
        use file::Type::{Array, Bytes, Opaque, Pointer, Sequence};
        let is_text = matches!(ty, file::Type::String(_));
        if !is_text && !matches!(ty, Array(..) | Bytes(_) | Opaque(_) | Pointer(_) | Sequence(..)) {
            return ty;
        }
        let chosen = self.type_names.pick(&[snake(&ascii(&format!("{hint}_item")))], |_| true);
        let name = self.name(chosen, span);
        let (docs, body) = (String::new(), file::Body::Alias(ty));
        self.more.push(Item::Type(file::TypeDefinition { docs, name: name.clone(), body }));
        file::Type::Named(name)
    }

    /// Adds a trait as a version of a program. All versions of a program are in one definition.
    fn interface(
        &mut self,
        one: &Definition,
        interface: &Trait,
        definitions: &mut Vec<Item>,
        programs: &mut Vec<(u32, usize)>,
    ) {
        let numbers = interface.program(System::Onc);
        let Some((program, version)) = numbers.and_then(|program| program.numbers) else {
            let text = "write `onc(program = N, version = N)` in `#[interface]` of this trait";
            return self.error(one.span, text);
        };
        let base = shouty(&ascii(&interface.name).to_uppercase());
        let short = base.replace('_', "");
        let procedures = self.procedures(interface, &short);
        let known = programs.iter().find(|(number, _)| *number == program).map(|(_, at)| *at);
        let of = |number: u32| file::Value::Number(number.into());
        let vers = |number: Option<u32>| {
            let number = number.map_or_else(String::new, |number| number.to_string());
            format!("{short}VERS{number}")
        };
        let docs = one.docs.clone();
        if let Some(Item::Program(known)) = known.map(|at| &mut definitions[at]) {
            if let [first] = &mut *known.versions {
                // While a program has only one version, the program has the documentation of that version.
                first.docs = core::mem::take(&mut known.docs);
                let file::Value::Number(number) = &first.number else { return };
                first.name.text = vers(u32::try_from(*number).ok());
            }
            let name = self.name(vers(Some(version)), one.span);
            known.versions.push(file::Version { docs, name, number: of(version), procedures });
            return;
        }
        let name = self.name(vers(None), one.span);
        let versions =
            vec![file::Version { docs: String::new(), name, number: of(version), procedures }];
        let name = self.name(format!("{base}PROG"), one.span);
        programs.push((program, definitions.len()));
        definitions.push(Item::Program(file::Program {
            docs,
            name,
            number: of(program),
            versions,
        }));
    }

    fn procedures(&mut self, interface: &Trait, base: &str) -> Vec<file::Procedure> {
        let mut names = Chosen::default();
        let mut all = Vec::new();
        for method in &interface.methods {
            let own = ascii(&method.name).to_uppercase();
            let chosen = names.pick(&[format!("{base}PROC_{own}")], |_| true);
            let Some(number) = method.number(System::Onc) else {
                self.error(method.span, "write `#[onc(N)]` before this method: its number");
                continue;
            };
            if number == 0 {
                let text =
                    "procedure 0 of every program does nothing: give this method another number";
                self.error(method.span, text);
                continue;
            }
            if method.oneway {
                self.error(method.span, "an ONC procedure always has a result: remove `#[oneway]`");
            }
            let arguments = self.arguments(method);
            let result = self.result(method);
            let (docs, name) = (method.docs.clone(), self.name(chosen, method.span));
            let number = file::Value::Number(number.into());
            all.push(file::Procedure { docs, name, number, arguments, result });
        }
        all
    }

    fn result(&mut self, method: &Method) -> file::Type {
        let is_call_error = matches!(
            &method.error,
            syntax::Type::Named(name) if last_of(&name.path) == "CallError"
        );
        if !is_call_error {
            let text = "ONC RPC has no errors of procedures: return `peregrine::Result<T>`, and let `T` say \
                        what failed";
            self.error(method.span, text);
        }
        match &method.result {
            syntax::Type::Simple(DescribedType::Unit) => file::Type::Void,
            ty => match self.ty(ty, None, method.span, &method.name) {
                plain @ file::Type::String(None) => plain,
                ty => self.specifier(ty, method.span, &format!("{}_result", method.name)),
            },
        }
    }

    fn arguments(&mut self, method: &Method) -> Vec<file::Argument> {
        let (mut defaults, mut all) = (Names::default(), Vec::new());
        for parameter in &method.parameters {
            let Parameter { name, span, direction, shape, ty, max_len, .. } = parameter;
            if *direction != Direction::In {
                self.error(
                    *span,
                    "a parameter of an ONC procedure is a value, `&T`, `&str` or `&[T]`",
                );
                continue;
            }
            let whole = syntax::Type::Sequence(Box::new(ty.clone()));
            let ty = if *shape == Shape::Buffer { &whole } else { ty };
            let hint = format!("{}_{name}", method.name);
            let ty = self.ty(ty, *max_len, *span, &hint);
            // As the type of an argument, `rpcgen` permits only the name of a type, or a string.
            let ty = match ty {
                plain @ file::Type::String(_) => plain,
                ty => self.specifier(ty, *span, &hint),
            };
            let usual = match &ty {
                file::Type::Named(of) => snake(&of.text),
                _ => "value".to_owned(),
            };
            let is_word = WORDS.split_whitespace().any(|word| word == name);
            let own = ascii(name);
            let is_usual = numbered(&mut defaults, &usual) == crate::names::written(name);
            let named = if is_word { format!("{own}_") } else { own };
            let name = (!is_usual).then(|| self.name(named, *span));
            all.push(file::Argument { name, ty });
        }
        all
    }
}

/// Reads a constant that is a second name of a variant: its name, the variant, and the documentation.
fn alias(input: ParseStream<'_>) -> Result<(String, String, String), Error> {
    let docs = parse::docs(input)?;
    input.parse::<Visibility>()?;
    sign::<Token![const]>(input, "`const`")?;
    let (own, _) = name(input)?;
    sign::<Token![:]>(input, "`:`")?;
    name(input)?;
    sign::<Token![=]>(input, "`=`")?;
    name(input)?;
    sign::<Token![::]>(input, "`::`")?;
    let (target, _) = name(input)?;
    sign::<Token![;]>(input, "`;`")?;
    Ok((own, target, docs))
}

/// Skips what is left of an item: up to a `;`, or up to a block in braces.
fn skip_item(input: ParseStream<'_>) -> Result<(), Error> {
    loop {
        match input.parse::<TokenTree>()? {
            TokenTree::Punct(sign) if sign.as_char() == ';' => return Ok(()),
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return Ok(()),
            _ => {}
        }
    }
}

/// Returns whether a type mentions the type at `path`, directly or through aliases.
fn mentions(ty: &syntax::Type, path: &str, source: &Source) -> bool {
    let mut seen = HashSet::new();
    let mut work = vec![ty];
    while let Some(one) = work.pop() {
        match one {
            syntax::Type::Array(of, _) | syntax::Type::Sequence(of) | syntax::Type::Option(of) => {
                work.push(of);
            }
            syntax::Type::Tuple(parts) => work.extend(parts),
            syntax::Type::Named(name) => {
                let other = name.path_in(&source.types);
                if other == path {
                    return true;
                }
                if let Some(Definition { body: syntax::Body::Alias(of), .. }) =
                    source.types.get(&other)
                    && seen.insert(other)
                {
                    work.push(of);
                }
            }
            _ => {}
        }
    }
    false
}
