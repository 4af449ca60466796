//! Prints a tree as Rust: a trait for each version of each program, types and constants, in the order of the
//! file.

use std::collections::HashMap;

use proc_macro2::{Ident, Literal, TokenStream};
use quote::quote;

use super::ast::*;
use super::check::Checked;
use super::{Imported, ImportedInterface, ImportedProcedure, ImportedType};
use crate::diagnostic::Diagnostics;
use crate::layout;
use crate::names::{self, Names, ident};

/// The name of the struct for an unsigned char in an array, unless the name is taken.
const CELL: &str = "UnsignedChar";

struct Printer<'a> {
    checked: &'a Checked<'a>,
    names: Names,
    /// The name that each type has in Rust, by its name in the file.
    types: HashMap<&'a str, String>,
    items: Vec<TokenStream>,
    /// The name of the struct for an unsigned char in an array. `None` if no array contains one.
    cell: Option<String>,
    /// The number of the cycle of the declared type that is being printed, if this type contains itself.
    cycle: Option<u32>,
    /// Structs for arguments and results with a maximum length. They are printed after the program.
    passed: Vec<TokenStream>,
    uses_byte_string: bool,
    interfaces: Vec<ImportedInterface>,
    described: Vec<ImportedType>,
}

/// A type in Rust, with its maximum length.
struct Field {
    ty: TokenStream,
    max: Option<i128>,
}

impl Field {
    /// Returns the attribute for the maximum length.
    fn attribute(&self) -> Option<TokenStream> {
        self.max.map(|max| {
            let max = Literal::i128_unsuffixed(max);
            quote!(#[foreign(max = #max)])
        })
    }
}

/// Prints a tree that has no errors.
pub(super) fn rust(checked: &Checked<'_>, file: &str, warnings: Diagnostics) -> Imported {
    let mut printer = Printer {
        checked,
        names: Names::of_types(),
        types: HashMap::new(),
        items: Vec::new(),
        cell: None,
        cycle: None,
        passed: Vec::new(),
        uses_byte_string: false,
        interfaces: Vec::new(),
        described: Vec::new(),
    };
    // Declared types get their names first, so that these names do not depend on types without names.
    let tree = checked.tree;
    for definition in &tree.definitions {
        if let Definition::Type(one) = definition {
            let name = printer.names.take(names::camel(&one.name.text));
            printer.types.insert(&one.name.text, name);
        }
    }
    for missing in &checked.missing {
        let name = printer.names.take(names::camel(missing));
        printer.types.insert(missing, name);
    }
    let mut constants = Names::default();
    for definition in &tree.definitions {
        match definition {
            Definition::Constant(one) => printer.constant(one, &mut constants),
            Definition::Type(one) => {
                let name = printer.types[&*one.name.text].clone();
                printer.cycle = checked.recursive.get(&*one.name.text).copied();
                printer.body(&one.body, &one.name.text, &name, &one.docs);
                printer.cycle = None;
            }
            Definition::Program(one) => printer.program(one),
        }
    }
    if let Some(cell) = &printer.cell {
        let docs = docs("An unsigned char in an array, where it takes four bytes.");
        let (derive, cell) = (derive(), ident(cell));
        printer.items.push(quote!(#docs #derive pub struct #cell(pub u8);));
    }
    let rust = printer.text(file);
    let missing = checked.missing.iter().map(|name| (*name).to_owned()).collect();
    Imported {
        specification: tree.clone(),
        rust,
        interfaces: printer.interfaces,
        types: printer.described,
        missing,
        warnings,
    }
}

impl<'a> Printer<'a> {
    fn text(&self, file: &str) -> String {
        let file: String = file.chars().filter(|c| !c.is_control()).collect();
        let mut text = format!("// Imported from {file}.\n");
        for missing in &self.checked.missing {
            let name = &self.types[missing];
            text.push_str(&format!(
                "// `{missing}` is declared nowhere: define the type `{name}`.\n"
            ));
        }
        let mut used = Vec::new();
        if self.uses_byte_string {
            used.push(quote!(foreign::ByteString));
        }
        if !self.interfaces.is_empty() {
            used.push(quote!(interface));
        }
        let import = match &*used {
            [] => None,
            [one] => Some(quote!(use peregrine::#one;)),
            all => Some(quote!(use peregrine::{#(#all),*};)),
        };
        for item in import.iter().chain(&self.items) {
            text.push('\n');
            // The items should always be valid Rust. If one is not, its tokens are printed, so that the
            // compiler shows the error.
            text.push_str(&match syn::parse2::<syn::File>(item.clone()) {
                Ok(file) => layout::with_methods(&prettyplease::unparse(&file)),
                Err(_) => item.to_string(),
            });
        }
        text
    }

    fn constant(&mut self, one: &Constant, constants: &mut Names) {
        let docs = docs(&one.docs);
        let name = ident(&constants.take(names::shouty(&one.name.text)));
        self.items.push(match &one.value {
            ConstantValue::Text(text) => quote!(#docs pub const #name: &str = #text;),
            ConstantValue::Number(value) => {
                let number = self.checked.number(value).unwrap_or_default();
                let ty = if u32::try_from(number).is_ok() {
                    quote!(u32)
                } else if i32::try_from(number).is_ok() {
                    quote!(i32)
                } else if u64::try_from(number).is_ok() {
                    quote!(u64)
                } else if i64::try_from(number).is_ok() {
                    quote!(i64)
                } else {
                    quote!(i128)
                };
                let number = Literal::i128_unsuffixed(number);
                quote!(#docs pub const #name: #ty = #number;)
            }
        });
    }

    /// Prints a type of the file whose name in Rust is `name`.
    fn body(&mut self, body: &'a Body, original: &str, name: &str, comment: &str) {
        let described = ImportedType {
            name: original.to_owned(),
            rust: name.to_owned(),
            kind: match body {
                Body::Enum(_) => "enum",
                Body::Struct(_) => "struct",
                Body::Union(_) => "union",
                Body::Alias(_) => "typedef",
            },
        };
        self.described.push(described);
        let (docs, derive) = (docs(comment), derive());
        // If a type contains itself, the derive `Foreign` cannot find out which foreign representations it
        // has, so an attribute names XDR.
        let is_recursive = self.cycle.is_some_and(|number| self.checked.is_in_cycle(body, number));
        let xdr = is_recursive.then(|| quote!(#[foreign(xdr)]));
        let head = quote!(#docs #derive #xdr);
        // Types without a name are printed after the type that contains them.
        let at = self.items.len();
        self.items.push(TokenStream::new());
        let item = match body {
            Body::Enum(members) => self.enumeration(members, name, &head),
            Body::Struct(fields) => self.structure(fields, original, name, &head),
            Body::Union(union) => self.union(union, name, &head),
            Body::Alias(ty) => {
                let field = self.field(ty, name);
                let name = ident(name);
                match field.attribute() {
                    Some(max) => {
                        let ty = field.ty;
                        quote!(#head pub struct #name(#max pub #ty);)
                    }
                    None => {
                        let ty = field.ty;
                        quote!(#docs pub type #name = #ty;)
                    }
                }
            }
        };
        self.items[at] = item;
    }

    fn enumeration(&self, members: &[Member], name: &str, head: &TokenStream) -> TokenStream {
        let mut names = Names::default();
        let mut known: HashMap<i32, Ident> = HashMap::new();
        let (mut variants, mut others) = (Vec::new(), Vec::new());
        for (member, number) in members.iter().zip(self.checked.member_numbers(members)) {
            let number = number as i32;
            let docs = docs(&member.docs);
            if let Some(first) = known.get(&number) {
                // This member has the same number as an earlier one, and becomes a constant.
                let name = ident(&names.take(names::shouty(&member.name.text)));
                others.push(quote!(#docs pub const #name: Self = Self::#first;));
                continue;
            }
            let variant = ident(&names.take(names::camel(&member.name.text)));
            let literal = Literal::i32_unsuffixed(number);
            variants.push(quote!(#docs #variant = #literal));
            known.insert(number, variant);
        }
        let name = ident(name);
        let more = (!others.is_empty()).then(|| quote!(impl #name { #(#others)* }));
        quote!(#head pub enum #name { #(#variants),* } #more)
    }

    fn structure(
        &mut self,
        fields: &'a [Declaration],
        original: &str,
        name: &str,
        head: &TokenStream,
    ) -> TokenStream {
        let mut names = Names::default();
        let mut printed = Vec::new();
        for (number, field) in fields.iter().enumerate() {
            let docs = docs(&field.docs);
            let ident_of = ident(&names.take(names::snake(&field.name.text)));
            let is_last = number + 1 == fields.len();
            if is_last && self.is_link(&field.ty, original) {
                let node = ident(name);
                printed.push(quote!(#docs #[list] pub #ident_of: Option<Box<#node>>));
                continue;
            }
            let hint = format!("{name}{}", names::camel(&field.name.text));
            let field = self.field(&field.ty, &hint);
            let (max, ty) = (field.attribute(), field.ty);
            printed.push(quote!(#docs #max pub #ident_of: #ty));
        }
        let name = ident(name);
        quote!(#head pub struct #name { #(#printed),* })
    }

    /// Returns whether a type is a pointer to the struct `node`.
    fn is_link(&self, ty: &Type, node: &str) -> bool {
        let Type::Pointer(of) = self.checked.end(ty) else { return false };
        matches!(self.checked.end(of), Type::Named(name) if name.text == node)
    }

    fn union(&mut self, union: &'a Union, name: &str, head: &TokenStream) -> TokenStream {
        let switch = match self.checked.end(&union.switch.ty) {
            Type::Bool => Some(quote!(#[foreign(switch = bool)])),
            Type::Named(_) | Type::Inline(_) => {
                let hint = format!("{name}{}", names::camel(&union.switch.name.text));
                let ty = self.field(&union.switch.ty, &hint).ty;
                Some(quote!(#[foreign(switch = #ty)]))
            }
            _ => None,
        };
        let is_bool = matches!(self.checked.end(&union.switch.ty), Type::Bool);
        let mut names = Names::default();
        if union.default.is_some() {
            let _ = names.take("Default");
        }
        let mut variants = Vec::new();
        for arm in &union.arms {
            let docs = docs(&arm.docs);
            // All cases of an arm have the same data, so a type without a name is printed once.
            let data = arm.data.as_ref().map(|one| self.data(one, name));
            let data = data.map(|data| quote!((#data)));
            for case in &arm.cases {
                let number = self.checked.number(case).unwrap_or_default();
                let wanted = match case {
                    _ if is_bool => if number == 0 { "False" } else { "True" }.to_owned(),
                    Value::Name(name) => names::camel(&name.text),
                    Value::Number(number) => names::of_case(*number),
                };
                let variant = ident(&names.take(&wanted));
                let number = Literal::i32_unsuffixed(number as i32);
                variants.push(quote!(#docs #[foreign(case = #number)] #variant #data));
            }
        }
        if let Some(default) = &union.default {
            let docs = docs(&default.docs);
            let more = default.data.as_ref().map(|one| self.data(one, name));
            let more = more.map(|data| quote!(, #data));
            variants.push(quote!(#docs #[foreign(default)] Default(i32 #more)));
        }
        let name = ident(name);
        quote!(#head #switch pub enum #name { #(#variants),* })
    }

    /// Returns the data of an arm of the union `union`.
    fn data(&mut self, one: &'a Declaration, union: &str) -> TokenStream {
        let hint = format!("{union}{}", names::camel(&one.name.text));
        let field = self.field(&one.ty, &hint);
        let (max, ty) = (field.attribute(), field.ty);
        quote!(#max #ty)
    }

    /// Returns a type as it is used in a field. `hint` is the name for a type without a name.
    fn field(&mut self, ty: &'a Type, hint: &str) -> Field {
        let length = |this: &Self, value: &Value| {
            Literal::i128_unsuffixed(this.checked.number(value).unwrap_or_default())
        };
        let max = self.checked.max(ty);
        let ty = match ty {
            Type::Void => quote!(()),
            Type::Bool => quote!(bool),
            Type::Char => quote!(i8),
            Type::UnsignedChar => quote!(u8),
            Type::Short => quote!(i16),
            Type::UnsignedShort => quote!(u16),
            Type::Int => quote!(i32),
            Type::UnsignedInt => quote!(u32),
            Type::Hyper => quote!(i64),
            Type::UnsignedHyper => quote!(u64),
            Type::Float => quote!(f32),
            Type::Double => quote!(f64),
            // Rust has no floating-point type of 16 bytes, so the field contains the bytes of the number.
            Type::Quadruple => quote!([u8; 16]),
            Type::String(_) => {
                self.uses_byte_string = true;
                quote!(ByteString)
            }
            Type::Opaque(count) => {
                let count = length(self, count);
                quote!([u8; #count])
            }
            Type::Bytes(_) => quote!(Vec<u8>),
            Type::Named(name) => match (self.types.get(&*name.text), self.checked.end(ty)) {
                (Some(name), _) => {
                    let name = ident(name);
                    quote!(#name)
                }
                (None, Type::Named(_)) => unreachable!("a missing type has a name"),
                (None, scalar) => return self.field(scalar_of(scalar), hint),
            },
            Type::Inline(body) => {
                let name = self.names.take(hint);
                self.body(body, hint, &name, "");
                let name = ident(&name);
                quote!(#name)
            }
            Type::Array(of, count) => {
                let (of, count) = (self.element(of, hint), length(self, count));
                quote!([#of; #count])
            }
            Type::Sequence(of, _) => {
                let of = self.element(of, hint);
                quote!(Vec<#of>)
            }
            Type::Pointer(of) => {
                let is_boxed = self.checked.is_boxed(of);
                let of = self.field(of, hint).ty;
                match is_boxed {
                    true => quote!(Option<Box<#of>>),
                    false => quote!(Option<#of>),
                }
            }
        };
        Field { ty, max }
    }

    /// Returns the type of an element of an array or a sequence. There, each unsigned char has a cell of four
    /// bytes. But an array of `u8` is an `opaque`, with one byte for each element. So such an element is a
    /// struct with a `u8`.
    fn element(&mut self, of: &'a Type, hint: &str) -> TokenStream {
        if !matches!(self.checked.end(of), Type::UnsignedChar) {
            return self.field(of, hint).ty;
        }
        let name = match &self.cell {
            Some(name) => ident(name),
            None => {
                let name = self.names.take(CELL);
                self.cell = Some(name.clone());
                ident(&name)
            }
        };
        quote!(#name)
    }

    /// Returns the type of an argument or a result. If the type has a maximum length, the result is a struct
    /// with one field, whose attribute contains the maximum.
    fn passed(&mut self, ty: &'a Type, hint: &str) -> TokenStream {
        let field = self.field(ty, hint);
        let Some(max) = field.attribute() else { return field.ty };
        let (derive, name, ty) = (derive(), ident(&self.names.take(hint)), field.ty);
        self.passed.push(quote!(#derive pub struct #name(#max pub #ty);));
        quote!(#name)
    }

    fn program(&mut self, program: &'a Program) {
        let base = program_name(&program.name.text);
        for version in &program.versions {
            let wanted = match program.versions.len() {
                1 => names::camel(base),
                _ => format!("{}V{}", names::camel(base), self.whole(&version.number)),
            };
            let name = self.interface_name(&wanted);
            self.version(program, version, base, &name);
        }
        self.items.append(&mut self.passed);
    }

    fn whole(&self, value: &Value) -> i128 {
        self.checked.number(value).unwrap_or_default()
    }

    /// Takes a name for a trait. The names that `#[interface]` makes from this name must be free, too.
    fn interface_name(&mut self, wanted: &str) -> String {
        const MADE: [&str; 5] = ["Client", "Server", "Async", "AsyncClient", "AsyncServer"];
        let mut tried = wanted.to_owned();
        let mut number = 1;
        loop {
            let is_free = |end: &str| self.names.is_free(&format!("{tried}{end}"));
            if is_free("") && MADE.iter().all(|end| is_free(end)) {
                break;
            }
            number += 1;
            tried = format!("{wanted}{number}");
        }
        for end in MADE {
            let _ = self.names.take(format!("{tried}{end}"));
        }
        self.names.take(&tried)
    }

    fn version(&mut self, program: &'a Program, version: &'a Version, base: &str, name: &str) {
        let at = self.items.len();
        self.items.push(TokenStream::new());
        let (numbers, mut names) = ([&program.number, &version.number], Names::default());
        let [program_number, version_number] = numbers.map(|number| self.whole(number));
        let (mut methods, mut procedures) = (Vec::new(), Vec::new());
        for one in &version.procedures {
            let number = self.whole(&one.number);
            // Every interface has procedure 0, so the trait does not declare it.
            if number == 0 {
                continue;
            }
            let method_name = names.take(names::snake(procedure_name(&one.name.text)));
            let hint = names::camel(&method_name);
            let mut parameters = Names::default();
            let mut printed = Vec::new();
            for argument in &one.arguments {
                let wanted = match (&argument.name, &argument.ty) {
                    (Some(name), _) | (None, Type::Named(name)) => names::snake(&name.text),
                    _ => "value".to_owned(),
                };
                let parameter = parameters.take(&wanted);
                let ty = self.passed(&argument.ty, &format!("{hint}{}", names::camel(&parameter)));
                let parameter = ident(&parameter);
                printed.push(quote!(#parameter: #ty));
            }
            let result = self.passed(&one.result, &format!("{hint}Result"));
            let docs = docs(&one.docs);
            let (method, literal) = (ident(&method_name), Literal::i128_unsuffixed(number));
            methods.push(quote! {
                #docs #[onc(#literal)]
                fn #method(&self #(, #printed)*) -> peregrine::Result<#result>;
            });
            procedures.push(ImportedProcedure {
                name: one.name.text.clone(),
                number: number as u32,
                method: method_name,
            });
        }
        let docs = docs(if version.docs.is_empty() { &program.docs } else { &version.docs });
        let exported = names::snake(base);
        let [p, v] = [program_number, version_number].map(Literal::i128_unsuffixed);
        let ident = ident(name);
        self.items[at] = quote! {
            #docs
            #[interface(name = #exported, version = #v, onc(program = #p, version = #v))]
            pub trait #ident { #(#methods)* }
        };
        self.interfaces.push(ImportedInterface {
            program: program.name.text.clone(),
            program_number: program_number as u32,
            version: version.name.text.clone(),
            version_number: version_number as u32,
            name: name.to_owned(),
            procedures,
        });
    }
}

/// Returns the same type with the lifetime `'static`. The type is a number that the headers of C declare.
fn scalar_of(ty: &Type) -> &'static Type {
    match ty {
        Type::Char => &Type::Char,
        Type::UnsignedChar => &Type::UnsignedChar,
        Type::Short => &Type::Short,
        Type::UnsignedShort => &Type::UnsignedShort,
        Type::UnsignedInt => &Type::UnsignedInt,
        Type::Hyper => &Type::Hyper,
        Type::UnsignedHyper => &Type::UnsignedHyper,
        _ => &Type::Int,
    }
}

fn derive() -> TokenStream {
    quote!(#[derive(Clone, Debug, PartialEq, peregrine::Value, peregrine::foreign::Foreign)])
}

/// Returns a comment as documentation. Indented lines would be examples, which `cargo test` runs.
fn docs(comment: &str) -> TokenStream {
    let lines = comment.lines().map(|line| format!(" {}", line.trim()).trim_end().to_owned());
    quote!(#(#[doc = #lines])*)
}

/// Returns the name of a program without `PROG` or `PROGRAM` at its end.
fn program_name(name: &str) -> &str {
    let ends = ["_PROGRAM", "_PROG", "PROGRAM", "PROG"];
    let shorter = ends.iter().find_map(|end| name.strip_suffix(end));
    shorter.filter(|rest| rest.contains(|c: char| c.is_ascii_alphabetic())).unwrap_or(name)
}

/// Returns the name of a procedure without a prefix such as `NFSPROC_` or `NFSPROC3_`.
fn procedure_name(name: &str) -> &str {
    let Some((before, rest)) = name.split_once('_') else { return name };
    let is_prefix = before.trim_end_matches(|c: char| c.is_ascii_digit()).ends_with("PROC");
    let is_name = rest.starts_with(|c: char| c.is_ascii_alphabetic());
    if is_prefix && is_name { rest } else { name }
}
