//! Prints a tree as an interface file of ONC RPC.

use core::fmt::Write as _;
use std::collections::HashSet;

use super::ast::*;
use super::text::escaped;

/// Prints a tree. Parsing the text results in the same tree.
pub(super) fn text(tree: &Specification) -> String {
    let tagged = tree.definitions.iter().filter(|one| one.is_tagged());
    let tagged = tagged.filter_map(|one| match one {
        Definition::Type(one) => Some(&*one.name.text),
        _ => None,
    });
    let mut out = Out { text: String::new(), depth: 0, later: tagged.collect() };
    for (number, definition) in tree.definitions.iter().enumerate() {
        if number > 0 {
            out.text.push('\n');
        }
        match definition {
            Definition::Constant(one) => {
                out.docs(&one.docs);
                let value = match &one.value {
                    ConstantValue::Number(value) => value_text(value),
                    ConstantValue::Text(text) => format!("\"{}\"", escaped(text)),
                };
                out.line(&format!("const {} = {value};", one.name));
            }
            Definition::Type(one) => out.definition(one),
            Definition::Program(one) => out.program(one),
        }
    }
    out.text
}

struct Out<'t> {
    text: String,
    /// The structs and unions whose declarations have not been printed completely. C needs the word `struct`
    /// before their names.
    later: HashSet<&'t str>,
    /// The number of levels by which the next line is indented.
    depth: usize,
}

impl Out<'_> {
    fn line(&mut self, line: &str) {
        self.begin();
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn begin(&mut self) {
        self.text.extend(core::iter::repeat_n('\t', self.depth));
    }

    fn docs(&mut self, docs: &str) {
        if docs.is_empty() {
            return;
        }
        // Documentation that was not read from a comment may contain `*/`, which would end the comment.
        let docs = docs.replace("*/", "* /");
        self.line("/*");
        docs.lines().for_each(|line| self.line(format!(" * {line}").trim_end()));
        self.line(" */");
    }

    fn definition(&mut self, one: &TypeDefinition) {
        self.docs(&one.docs);
        let (keyword, name) = match &one.body {
            Body::Alias(ty) => {
                self.text.push_str("typedef ");
                self.declared(ty, &one.name.text);
                return self.text.push_str(";\n");
            }
            Body::Enum(_) => ("enum", &one.name),
            Body::Struct(_) => ("struct", &one.name),
            Body::Union(_) => ("union", &one.name),
        };
        let _ = write!(self.text, "{keyword} {name} ");
        self.body(&one.body);
        self.later.remove(&*one.name.text);
        self.text.push_str(";\n");
    }

    /// Prints a body without its keyword. The last line has no line break.
    fn body(&mut self, body: &Body) {
        match body {
            Body::Enum(members) => {
                self.open();
                for (number, member) in members.iter().enumerate() {
                    self.docs(&member.docs);
                    let comma = if number + 1 == members.len() { "" } else { "," };
                    let value = member.value.as_ref().map(value_text);
                    let value = value.map_or(String::new(), |value| format!(" = {value}"));
                    self.line(&format!("{}{value}{comma}", member.name));
                }
                self.close();
            }
            Body::Struct(fields) => {
                self.open();
                fields.iter().for_each(|field| self.field(&field.docs, Some(field)));
                self.close();
            }
            Body::Union(union) => {
                self.text.push_str("switch (");
                self.declared(&union.switch.ty, &union.switch.name.text);
                self.text.push_str(") ");
                self.open();
                for arm in &union.arms {
                    self.docs(&arm.docs);
                    for case in &arm.cases {
                        self.line(&format!("case {}:", value_text(case)));
                    }
                    self.depth += 1;
                    self.field("", arm.data.as_ref());
                    self.depth -= 1;
                }
                if let Some(default) = &union.default {
                    self.docs(&default.docs);
                    self.line("default:");
                    self.depth += 1;
                    self.field("", default.data.as_ref());
                    self.depth -= 1;
                }
                self.close();
            }
            Body::Alias(_) => {}
        }
    }

    fn open(&mut self) {
        self.text.push_str("{\n");
        self.depth += 1;
    }

    fn close(&mut self) {
        self.depth -= 1;
        self.begin();
        self.text.push('}');
    }

    fn field(&mut self, docs: &str, field: Option<&Declaration>) {
        self.docs(docs);
        self.begin();
        match field {
            Some(field) => self.declared(&field.ty, &field.name.text),
            None => self.text.push_str("void"),
        }
        self.text.push_str(";\n");
    }

    /// Prints a type and a name. The name may be empty.
    fn declared(&mut self, ty: &Type, name: &str) {
        let space = if name.is_empty() { "" } else { " " };
        match ty {
            Type::String(max) => {
                let _ = write!(self.text, "string{space}{name}");
                // A string without a maximum is the same with and without `<>`.
                if max.is_some() || !name.is_empty() {
                    self.up_to(max.as_ref());
                }
            }
            Type::Opaque(count) => {
                let _ = write!(self.text, "opaque{space}{name}[{}]", value_text(count));
            }
            Type::Bytes(max) => {
                let _ = write!(self.text, "opaque{space}{name}");
                self.up_to(max.as_ref());
            }
            Type::Array(of, count) => {
                self.specifier(of);
                let _ = write!(self.text, "{space}{name}[{}]", value_text(count));
            }
            Type::Sequence(of, max) => {
                self.specifier(of);
                let _ = write!(self.text, "{space}{name}");
                self.up_to(max.as_ref());
            }
            Type::Pointer(of) => {
                self.specifier(of);
                let _ = write!(self.text, " *{name}");
            }
            ty => {
                self.specifier(ty);
                let _ = write!(self.text, "{space}{name}");
            }
        }
    }

    fn up_to(&mut self, max: Option<&Value>) {
        let _ = write!(self.text, "<{}>", max.map(value_text).unwrap_or_default());
    }

    fn specifier(&mut self, ty: &Type) {
        let word = match ty {
            Type::Void => "void",
            Type::Bool => "bool",
            Type::Char => "char",
            Type::UnsignedChar => "unsigned char",
            Type::Short => "short",
            Type::UnsignedShort => "unsigned short",
            Type::Int => "int",
            Type::UnsignedInt => "unsigned int",
            Type::Hyper => "hyper",
            Type::UnsignedHyper => "unsigned hyper",
            Type::Float => "float",
            Type::Double => "double",
            Type::Quadruple => "quadruple",
            Type::Named(name) if self.later.contains(&*name.text) => {
                self.text.push_str("struct ");
                &name.text
            }
            Type::Named(name) => &name.text,
            Type::Inline(body) => {
                self.text.push_str(match **body {
                    Body::Enum(_) => "enum ",
                    Body::Struct(_) => "struct ",
                    Body::Union(_) => "union ",
                    Body::Alias(_) => "",
                });
                return self.body(body);
            }
            // `declared` prints these types itself. They are printed here only within another type, such as a
            // pointer.
            Type::String(_) => "string",
            Type::Opaque(_) | Type::Bytes(_) => "opaque",
            Type::Array(of, _) | Type::Sequence(of, _) | Type::Pointer(of) => {
                return self.specifier(of);
            }
        };
        self.text.push_str(word);
    }

    fn program(&mut self, program: &Program) {
        self.docs(&program.docs);
        let _ = write!(self.text, "program {} ", program.name);
        self.open();
        for version in &program.versions {
            self.docs(&version.docs);
            self.begin();
            let _ = write!(self.text, "version {} ", version.name);
            self.open();
            version.procedures.iter().for_each(|one| self.procedure(one));
            self.close();
            let _ = writeln!(self.text, " = {};", value_text(&version.number));
        }
        self.close();
        let _ = writeln!(self.text, " = {};", value_text(&program.number));
    }

    fn procedure(&mut self, one: &Procedure) {
        self.docs(&one.docs);
        self.begin();
        self.declared(&one.result, "");
        let _ = write!(self.text, " {}(", one.name);
        if one.arguments.is_empty() {
            self.text.push_str("void");
        }
        for (number, argument) in one.arguments.iter().enumerate() {
            if number > 0 {
                self.text.push_str(", ");
            }
            self.declared(&argument.ty, argument.name.as_ref().map_or("", |name| &name.text));
        }
        let _ = writeln!(self.text, ") = {};", value_text(&one.number));
    }
}

fn value_text(value: &Value) -> String {
    match value {
        Value::Number(number) => number.to_string(),
        Value::Name(name) => name.text.clone(),
    }
}
