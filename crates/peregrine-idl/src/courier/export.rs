//! Prints a program in the language of Courier.

use core::fmt::Write as _;

use super::ast::{
    Arm, Constant, Count, Declaration, Fields, Name, Numbers, Procedure, Program, Reference,
    Simple, Tag, Type, Value,
};

/// The maximum width of a line, unless the line cannot be broken.
const COLUMNS: usize = 100;

/// Prints a program in the language of Courier. All numbers are decimal.
///
/// ```
/// use peregrine_idl::courier::{export_courier, import_courier};
///
/// let text = "Clock: PROGRAM 17B VERSION 2 =\nBEGIN Time: TYPE = LONG CARDINAL; END.";
/// let clock = import_courier(text, "Clock2.cr", &mut |_| None)?;
/// assert_eq!(
///     export_courier(&clock.program),
///     "Clock: PROGRAM 15 VERSION 2 =\nBEGIN\n    Time: TYPE = LONG CARDINAL;\nEND.\n"
/// );
/// # Ok::<(), peregrine_idl::Diagnostics>(())
/// ```
pub fn export_courier(program: &Program) -> String {
    let Program { docs, name, numbers, depends, declarations } = program;
    let mut text = comment("", docs);
    let _ = write!(text, "{}: PROGRAM ", name.text);
    if let Some(Numbers { program, version }) = numbers {
        let _ = write!(text, "{program} VERSION {version} ");
    }
    text.push_str("=\nBEGIN\n");
    if !depends.is_empty() {
        let depends: Vec<String> = depends
            .iter()
            .map(|one| {
                let Numbers { program, version } = one.numbers;
                format!("\n        {} ({program}) VERSION {version}", one.name.text)
            })
            .collect();
        let _ = write!(text, "    DEPENDS UPON{};\n\n", depends.join(","));
    }
    for (number, declaration) in declarations.iter().enumerate() {
        let Declaration { docs, name, ty, value } = declaration;
        if number > 0 && (!docs.is_empty() || is_long(&declarations[number - 1])) {
            text.push('\n');
        }
        text.push_str(&comment("    ", docs));
        let _ = write!(text, "    {}: ", name.text);
        let is_type = value.is_none();
        text.push_str(if is_type { "TYPE = " } else { "" });
        let used = 4 + name.text.len() + if is_type { 9 } else { 2 };
        text.push_str(&broken(ty, used, 4));
        if let Some(value) = value {
            let _ = write!(text, " = {}", constant(value));
        }
        text.push_str(";\n");
    }
    text.push_str("END.\n");
    text
}

/// Returns whether a declaration is printed on more than one line.
fn is_long(declaration: &Declaration) -> bool {
    broken(&declaration.ty, declaration.name.text.len() + 13, 4).contains('\n')
}

fn comment(indent: &str, docs: &str) -> String {
    docs.lines().map(|line| format!("{indent}-- {}\n", line.replace("--", "- -"))).collect()
}

/// Returns a type on one line.
fn flat(ty: &Type) -> String {
    match ty {
        Type::Simple(simple) => word(*simple).to_owned(),
        Type::Enumeration(tags) => format!("{{{}}}", joined(tags, tag)),
        Type::Array(count, element) => format!("ARRAY {} OF {}", number(count), flat(element)),
        Type::Sequence(None, element) => format!("SEQUENCE OF {}", flat(element)),
        Type::Sequence(Some(max), element) => {
            format!("SEQUENCE {} OF {}", number(max), flat(element))
        }
        Type::Record(fields) => format!("RECORD [{}]", joined(fields, field)),
        Type::Choice(by, arms) => format!("{}{{{}}}", choice(by.as_ref()), joined(arms, arm)),
        Type::Procedure(Procedure { arguments, results, reports }) => {
            let mut text = "PROCEDURE".to_owned();
            if !arguments.is_empty() {
                let _ = write!(text, " [{}]", joined(arguments, field));
            }
            if !results.is_empty() {
                let _ = write!(text, " RETURNS [{}]", joined(results, field));
            }
            if !reports.is_empty() {
                let _ = write!(text, " REPORTS [{}]", joined(reports, reference));
            }
            text
        }
        Type::Error(fields) if fields.is_empty() => "ERROR".to_owned(),
        Type::Error(fields) => format!("ERROR [{}]", joined(fields, field)),
        Type::Named(name) => reference(name),
    }
}

/// Returns a type on as many lines as it needs. `used` columns of the first line are used, and further lines
/// are indented by at least `indent`.
fn broken(ty: &Type, used: usize, indent: usize) -> String {
    let one = flat(ty);
    if used + one.len() < COLUMNS {
        return one;
    }
    let fields = |fields: &[Fields], indent: usize| {
        lines("[", "]", indent, fields, |one, indent| {
            let names = joined(&one.names, |name: &Name| name.text.clone());
            format!("{names}: {}", broken(&one.ty, indent + names.len() + 2, indent))
        })
    };
    match ty {
        Type::Enumeration(tags) => lines("{", "}", indent, tags, |one, _| tag(one)),
        Type::Array(count, element) => {
            let start = format!("ARRAY {} OF ", number(count));
            let element = broken(element, used + start.len(), indent);
            start + &element
        }
        Type::Sequence(max, element) => {
            let max = max.as_ref().map_or_else(String::new, |max| number(max) + " ");
            let start = format!("SEQUENCE {max}OF ");
            let element = broken(element, used + start.len(), indent);
            start + &element
        }
        Type::Record(all) => format!("RECORD {}", fields(all, indent)),
        Type::Choice(by, arms) => {
            let arms = lines("{", "}", indent, arms, |one, indent| {
                let tags = joined(&one.tags, tag);
                format!("{tags} => {}", broken(&one.ty, indent + tags.len() + 4, indent))
            });
            choice(by.as_ref()) + &arms
        }
        Type::Procedure(Procedure { arguments, results, reports }) => {
            let next = format!("\n{:1$}", "", indent + 4);
            let mut text = "PROCEDURE".to_owned();
            if !arguments.is_empty() {
                let _ = write!(text, " {}", fields(arguments, indent));
            }
            if !results.is_empty() {
                let _ = write!(text, "{next}RETURNS {}", fields(results, indent + 4));
            }
            if !reports.is_empty() {
                let _ = write!(text, "{next}REPORTS [{}]", joined(reports, reference));
            }
            text
        }
        Type::Error(all) if !all.is_empty() => format!("ERROR {}", fields(all, indent)),
        Type::Simple(_) | Type::Error(_) | Type::Named(_) => one,
    }
}

/// Returns parts in brackets, one on each line.
fn lines<T>(
    open: &str,
    close: &str,
    indent: usize,
    parts: &[T],
    text: impl Fn(&T, usize) -> String,
) -> String {
    let inner = indent + 4;
    let parts: Vec<String> =
        parts.iter().map(|part| format!("\n{:inner$}{}", "", text(part, inner))).collect();
    format!("{open}{}\n{:indent$}{close}", parts.join(","), "")
}

fn joined<T>(parts: &[T], text: impl Fn(&T) -> String) -> String {
    parts.iter().map(text).collect::<Vec<_>>().join(", ")
}

fn word(simple: Simple) -> &'static str {
    match simple {
        Simple::Boolean => "BOOLEAN",
        Simple::Cardinal => "CARDINAL",
        Simple::LongCardinal => "LONG CARDINAL",
        Simple::Integer => "INTEGER",
        Simple::LongInteger => "LONG INTEGER",
        Simple::Unspecified => "UNSPECIFIED",
        Simple::LongUnspecified => "LONG UNSPECIFIED",
        Simple::String => "STRING",
    }
}

fn number(count: &Count) -> String {
    match count {
        Count::Number(number, _) => number.to_string(),
        Count::Named(name) => reference(name),
    }
}

fn reference(reference: &Reference) -> String {
    let Reference { program, name } = reference;
    match program {
        Some(program) => format!("{}.{}", program.text, name.text),
        None => name.text.clone(),
    }
}

fn tag(tag: &Tag) -> String {
    match &tag.number {
        Some(count) => format!("{}({})", tag.name.text, number(count)),
        None => tag.name.text.clone(),
    }
}

fn field(fields: &Fields) -> String {
    let names = joined(&fields.names, |name: &Name| name.text.clone());
    format!("{names}: {}", flat(&fields.ty))
}

fn choice(by: Option<&Reference>) -> String {
    by.map_or_else(|| "CHOICE OF ".to_owned(), |by| format!("CHOICE {} OF ", reference(by)))
}

fn arm(arm: &Arm) -> String {
    format!("{} => {}", joined(&arm.tags, tag), flat(&arm.ty))
}

fn constant(constant: &Constant) -> String {
    let inner = self::constant;
    match &constant.value {
        Value::Boolean(true) => "TRUE".to_owned(),
        Value::Boolean(false) => "FALSE".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Text(text) => format!("\"{}\"", text.replace('"', "\"\"")),
        Value::Named(name) => reference(name),
        Value::Chosen(name, value) => format!("{} {}", name.text, inner(value)),
        Value::List(all) => format!("[{}]", joined(all, inner)),
        Value::Fields(all) => format!(
            "[{}]",
            joined(all, |(names, value): &(Vec<Name>, Constant)| {
                let names = joined(names, |name: &Name| name.text.clone());
                format!("{names}: {}", inner(value))
            })
        ),
    }
}
