//! Lays out signatures and values as `rustfmt` does with its default settings.

use core::fmt::Write as _;

/// The width of a level of indentation.
pub(crate) const INDENT: usize = 4;

/// The maximum width of a line.
const COLUMNS: usize = 100;

/// The maximum width of the elements of a list or a call that is on one line.
const LIST_COLUMNS: usize = 60;

/// The maximum width of the fields of a struct's value that is on one line.
const STRUCT_COLUMNS: usize = 18;

/// The maximum width of an element that shares a line with others, in a list that has several lines.
const SHARED_COLUMNS: usize = 10;

/// Returns a method without a body, with `indent` before each line, and a line break at its end.
pub(crate) fn method(indent: &str, name: &str, parameters: &[String], returns: &str) -> String {
    let head = format!("{indent}fn {name}({})", parameters.join(", "));
    match width(&head) + width(&format!(" -> {returns};")) {
        // If the whole method would be exactly as wide as a line, `rustfmt` moves only the result to the next
        // line.
        COLUMNS => return format!("{head}\n{indent}-> {returns};\n"),
        all if all < COLUMNS => return format!("{head} -> {returns};\n"),
        _ => {}
    }
    let mut text = format!("{indent}fn {name}(\n");
    for parameter in parameters {
        let _ = writeln!(text, "{indent}    {parameter},");
    }
    text + &format!("{indent}) -> {returns};\n")
}

/// Lays out again the methods of a text that `prettyplease` has printed. `prettyplease` breaks lines that
/// `rustfmt` does not break.
pub(crate) fn with_methods(text: &str) -> String {
    let mut laid_out = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let head = line.strip_prefix("    fn ").and_then(|head| head.strip_suffix('('));
        let Some(name) = head else {
            laid_out.push_str(line);
            laid_out.push('\n');
            continue;
        };
        let mut parameters = Vec::new();
        for line in lines.by_ref() {
            if let Some(returns) = line.strip_prefix("    ) -> ") {
                laid_out += &method("    ", name, &parameters, returns.trim_end_matches(';'));
                break;
            }
            parameters.push(line.trim().trim_end_matches(',').to_owned());
        }
    }
    laid_out
}

/// A value.
pub(crate) enum Expression {
    /// A name, a number or a text.
    Atom(String),
    /// The opening text, such as `vec![` or `Box::new(`, the elements, and the closing bracket.
    List(String, Vec<Self>, char),
    /// The path of a struct, and its fields.
    Struct(String, Vec<(String, Self)>),
}

impl Expression {
    /// Returns a call with one argument, or a tuple struct with one field.
    pub(crate) fn call(path: &str, of: Self) -> Self {
        Self::List(format!("{path}("), vec![of], ')')
    }

    /// Returns the value on one line. Returns `None` if a list or a struct in it is so wide that `rustfmt`
    /// breaks it.
    fn line(&self) -> Option<String> {
        match self {
            Self::Atom(text) => Some(text.clone()),
            Self::List(open, all, close) => {
                let all: Option<Vec<String>> = all.iter().map(Self::line).collect();
                let all = all?.join(", ");
                (width(&all) <= LIST_COLUMNS).then(|| format!("{open}{all}{close}"))
            }
            Self::Struct(path, fields) => {
                let field = |(name, value): &(String, Self)| {
                    value.line().map(|value| format!("{name}: {value}"))
                };
                let all: Option<Vec<String>> = fields.iter().map(field).collect();
                let all = all?.join(", ");
                (width(&all) <= STRUCT_COLUMNS).then(|| format!("{path} {{ {all} }}"))
            }
        }
    }

    /// Lays out the value of a constant, with the space or the line break before it. `indent` is the
    /// indentation of the constant, and `head` the text up to `=`.
    pub(crate) fn after(&self, head: &str, indent: usize) -> String {
        let before = indent + width(head) + 1;
        match self {
            // A value without parts moves to a line of its own if it fits only there.
            Self::Atom(text)
                if before + width(text) >= COLUMNS && indent + INDENT + width(text) < COLUMNS =>
            {
                format!("\n{}{text}", " ".repeat(indent + INDENT))
            }
            one => format!(" {}", one.laid_out(indent, before, 1)),
        }
    }

    /// Lays out the value. `indent` is the indentation of its line, `before` the width of the text before it
    /// on that line, and `after` the width of the text that follows it.
    pub(crate) fn laid_out(&self, indent: usize, before: usize, after: usize) -> String {
        if let Some(line) = self.line().filter(|line| before + width(line) + after <= COLUMNS) {
            return line;
        }
        let (inner, outer) = (" ".repeat(indent + INDENT), " ".repeat(indent));
        match self {
            Self::Atom(text) => text.clone(),
            Self::List(open, all, close) => {
                if let [one @ (Self::List(..) | Self::Struct(..))] = &**all {
                    let one = one.laid_out(indent, before + width(open), after + 1);
                    return format!("{open}{one}{close}");
                }
                let mut text = format!("{open}\n");
                let shared = |one: &Self| one.line().filter(|line| width(line) <= SHARED_COLUMNS);
                let shared: Option<Vec<String>> = match close {
                    ']' => all.iter().map(shared).collect(),
                    _ => None,
                };
                match shared {
                    Some(all) => text += &filled(&all, &inner),
                    None => {
                        for one in all {
                            let one = one.laid_out(indent + INDENT, indent + INDENT, 1);
                            let _ = writeln!(text, "{inner}{one},");
                        }
                    }
                }
                format!("{text}{outer}{close}")
            }
            Self::Struct(path, fields) => {
                let mut text = format!("{path} {{\n");
                for (name, value) in fields {
                    let value =
                        value.laid_out(indent + INDENT, indent + INDENT + 2 + width(name), 1);
                    let _ = writeln!(text, "{inner}{name}: {value},");
                }
                format!("{text}{outer}}}")
            }
        }
    }
}

/// Puts as many elements in each line as fit.
fn filled(all: &[String], indent: &str) -> String {
    let mut text = String::new();
    let mut line = String::new();
    for one in all {
        if !line.is_empty() && indent.len() + width(&line) + width(one) + 2 > COLUMNS {
            let _ = writeln!(text, "{indent}{line}");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        let _ = write!(line, "{one},");
    }
    let _ = writeln!(text, "{indent}{line}");
    text
}

/// Removes `columns` spaces at the start of each line but the first.
pub(crate) fn dedented(text: &str, columns: usize) -> String {
    text.replace(&format!("\n{}", " ".repeat(columns)), "\n")
}

fn width(text: &str) -> usize {
    text.chars().count()
}
