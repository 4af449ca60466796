//! Splits files into tokens. Evaluates the lines for the preprocessor, and skips lines for C programs.

use std::collections::HashMap;
use std::rc::Rc;

use super::ast::{Constant, ConstantValue, Name, Place, Value};
use super::condition;
use super::source::{Source, Sources};
use super::text::unescaped;
use super::{ONC_BYTES_MAX, ONC_INCLUDES_MAX, Onc};

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A name or a keyword.
    Word,
    /// A number, perhaps with a sign.
    Number,
    /// A text in double quotes.
    Text,
    /// A character of the syntax.
    Symbol(u8),
    /// The end of the last file.
    End,
}

/// A token, with the comments at it. A comment that does not exist has the default place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) place: Place,
    /// The comments before the token, without an empty line in between.
    pub(super) before: Place,
    /// The comment after the token, if the token is the last one in its line.
    pub(super) after: Place,
}

/// What the scanner has found.
pub(super) struct Scanned {
    pub(super) tokens: Vec<Token>,
    /// The constants that `#define` defines.
    pub(super) constants: Vec<Constant>,
    /// The content of lines for C programs.
    pub(super) passed: Passed,
}

/// The headers and constants in lines with `%`, which are for C programs.
#[derive(Default)]
pub(super) struct Passed {
    /// The headers that are included.
    pub(super) headers: Vec<String>,
    /// The constants that are defined.
    pub(super) constants: Vec<Constant>,
}

/// A macro of the preprocessor.
#[derive(Clone)]
pub(super) enum Macro {
    /// A macro whose value is a number or the name of another macro.
    Number(Value),
    /// A macro without a value, or with another kind of value.
    Other,
}

/// A conditional of the preprocessor.
struct Condition {
    place: Place,
    /// Whether the lines around the conditional are read.
    around: bool,
    /// Whether the lines of the current branch are read.
    is_active: bool,
    /// Whether a branch of the conditional was read.
    was_active: bool,
    has_else: bool,
}

struct Scanner<'s, 'o> {
    onc: &'s Onc<'o>,
    sources: &'s mut Sources,
    macros: HashMap<String, Macro>,
    tokens: Vec<Token>,
    constants: Vec<Constant>,
    passed: Passed,
    /// The total length in bytes of all files that were read so far.
    bytes: usize,
}

/// Splits a file, and the files that it includes, into tokens. The last token is [`Kind::End`].
pub(super) fn tokens(onc: &Onc<'_>, text: &str, name: &str, sources: &mut Sources) -> Scanned {
    let mut macros: HashMap<String, Macro> = HashMap::new();
    // The file is read as for a client.
    macros.insert("RPC_CLNT".to_owned(), Macro::Number(Value::Number(1)));
    let mut constants = Vec::new();
    for (name, value) in &onc.defines {
        let number = value.map(|value| Value::Number(value.into()));
        if let Some(number) = number.clone() {
            constants.push(Constant {
                docs: String::new(),
                name: (&**name).into(),
                value: ConstantValue::Number(number),
            });
        }
        macros.insert(name.clone(), number.map_or(Macro::Other, Macro::Number));
    }
    let mut scanner = Scanner {
        onc,
        sources,
        macros,
        tokens: Vec::new(),
        constants,
        passed: Passed::default(),
        bytes: text.len(),
    };
    let end = scanner.file(text.into(), name.to_owned(), 0);
    let none = Place::default();
    scanner.tokens.push(Token { kind: Kind::End, place: end, before: none, after: none });
    let Scanner { tokens, constants, passed, .. } = scanner;
    Scanned { tokens, constants, passed }
}

impl Scanner<'_, '_> {
    /// Reads a file. `depth` is the number of files in the chain of includes that leads to it. Returns the
    /// place of the end of the file.
    fn file(&mut self, text: Rc<str>, name: String, depth: usize) -> Place {
        let file = self.sources.files.len() as u32;
        self.sources.files.push(Source { name, text: text.clone() });
        let mut lines = Lines {
            file,
            text: &text,
            at: 0,
            starts_line: true,
            line: 1,
            comment: None,
            last: None,
            conditions: Vec::new(),
        };
        while lines.at < text.len() {
            self.step(&mut lines, depth);
        }
        for one in lines.conditions {
            self.sources.error(one.place, "this conditional has no `#endif`");
        }
        let end = text.len() as u32;
        Place { file, start: end, end }
    }

    /// Reads a space, a comment, a token, or a line for the preprocessor.
    fn step(&mut self, lines: &mut Lines<'_>, depth: usize) {
        let Lines { text, at, .. } = *lines;
        let rest = &text[at..];
        let is_active = lines.conditions.last().is_none_or(|one| one.is_active);
        match rest.as_bytes()[0] {
            b'\n' => {
                lines.at += 1;
                lines.line += 1;
                lines.starts_line = true;
            }
            byte if byte.is_ascii_whitespace() => lines.at += 1,
            b'/' if rest.starts_with("/*") || rest.starts_with("//") => self.comment(lines),
            b'#' if lines.starts_line => self.directive(lines, is_active, depth),
            b'%' if lines.starts_line => {
                let start = lines.at;
                let line = self.whole_line(lines);
                lines.comment = None;
                self.pass(lines.place_from(start), &line[1..]);
            }
            b'"' => self.text(lines, is_active),
            byte if byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-' => {
                let is_rest = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
                let length = rest[1..].find(is_rest).map_or(rest.len(), |length| length + 1);
                let kind = match byte {
                    b'-' if length == 1 => Kind::Symbol(byte),
                    b'-' | b'0'..=b'9' => Kind::Number,
                    _ => Kind::Word,
                };
                self.token(lines, kind, length, is_active);
            }
            byte @ (b'{' | b'}' | b'(' | b')' | b'[' | b']' | b'<' | b'>' | b'=' | b',' | b';'
            | b':' | b'*') => self.token(lines, Kind::Symbol(byte), 1, is_active),
            _ => {
                // Consecutive characters that are not allowed are reported as one error.
                let is_part = |c: char| c.is_ascii_graphic() || c.is_whitespace();
                let first = rest.chars().next().map_or(1, char::len_utf8);
                let more = rest[first..].find(is_part).unwrap_or(rest.len() - first);
                let place = lines.place(first + more);
                if is_active {
                    let shown: String = rest.chars().take(1).collect();
                    let shown = shown.escape_debug();
                    self.sources.error(place, format!("`{shown}` is not part of the language"));
                }
                lines.at += first + more;
                lines.starts_line = false;
            }
        }
    }

    fn token(&mut self, lines: &mut Lines<'_>, kind: Kind, length: usize, is_active: bool) {
        let place = lines.place(length);
        lines.at += length;
        lines.starts_line = false;
        let comment = lines.comment.take();
        if is_active {
            let is_near = |(_, end_line): &(Place, usize)| end_line + 1 >= lines.line;
            let before = comment.filter(is_near).map_or(Place::default(), |(place, _)| place);
            lines.last = Some((self.tokens.len(), lines.line));
            self.tokens.push(Token { kind, place, before, after: Place::default() });
        }
    }

    fn text(&mut self, lines: &mut Lines<'_>, is_active: bool) {
        let rest = &lines.text[lines.at..];
        let mut is_escaped = false;
        let end = rest.bytes().enumerate().skip(1).find(|&(_, byte)| {
            let is_end = byte == b'\n' || (byte == b'"' && !is_escaped);
            is_escaped = byte == b'\\' && !is_escaped;
            is_end
        });
        match end {
            Some((at, b'"')) => self.token(lines, Kind::Text, at + 1, is_active),
            end => {
                let length = end.map_or(rest.len(), |(at, _)| at);
                if is_active {
                    self.sources.error(lines.place(length), "this text has no closing quote");
                }
                lines.at += length;
            }
        }
    }

    fn comment(&mut self, lines: &mut Lines<'_>) {
        let rest = &lines.text[lines.at..];
        let first_line = lines.line;
        let length = self.comment_length(lines, rest);
        let place = lines.place(length);
        lines.line += rest[..length].matches('\n').count();
        lines.at += length;
        if lines.starts_line {
            // Comments in consecutive lines are joined.
            let joined = match lines.comment.take() {
                Some((before, end)) if end + 1 >= first_line => {
                    Place { start: before.start, ..place }
                }
                _ => place,
            };
            lines.comment = Some((joined, lines.line));
        } else if let Some((token, line)) = lines.last
            && line == first_line
            && lines.text[lines.at..].lines().next().unwrap_or_default().trim().is_empty()
        {
            self.tokens[token].after = place;
        }
    }

    /// Returns the length of the comment at the start of `rest`.
    fn comment_length(&mut self, lines: &Lines<'_>, rest: &str) -> usize {
        if rest.starts_with("//") {
            return rest.find('\n').unwrap_or(rest.len());
        }
        match rest[2..].find("*/") {
            Some(end) => end + 4,
            None => {
                let start = (lines.text.len() - rest.len()) as u32;
                let place = Place { file: lines.file, start, end: start + 2 };
                self.sources.error(place, "this comment has no `*/`");
                rest.len()
            }
        }
    }

    /// Takes the rest of a line, up to the line break, and the lines that continue it. Returns the text
    /// without comments.
    fn whole_line(&mut self, lines: &mut Lines<'_>) -> String {
        let start = lines.at;
        let mut line = String::new();
        loop {
            let rest = &lines.text[lines.at..];
            let special = rest.find(['\n', '\\', '/', '"']).unwrap_or(rest.len());
            line.push_str(&rest[..special]);
            lines.at += special;
            let rest = &rest[special..];
            let length = match rest {
                "" => break,
                rest if rest.starts_with("/*") || rest.starts_with("//") => {
                    line.push(' ');
                    self.comment_length(lines, rest)
                }
                rest if rest.starts_with("\\\n") => 2,
                rest if rest.starts_with("\\\r\n") => 3,
                rest if rest.starts_with('\n') => break,
                rest if rest.starts_with('"') => {
                    // Comments do not start within a text.
                    let end = rest[1..].find(['"', '\n']).map_or(rest.len(), |end| end + 1);
                    let length = end + usize::from(rest[end..].starts_with('"'));
                    line.push_str(&rest[..length]);
                    length
                }
                rest => {
                    line.push_str(&rest[..1]);
                    1
                }
            };
            lines.at += length;
        }
        lines.line += lines.text[start..lines.at].matches('\n').count();
        lines.starts_line = false;
        line
    }

    /// Keeps the header or the constant that a line for C programs contains. It is kept even if the
    /// conditionals around the line are false.
    fn pass(&mut self, place: Place, line: &str) {
        let Some(words) = line.trim_start().strip_prefix('#').map(str::trim_start) else { return };
        if let Some(name) = words.strip_prefix("include").and_then(included) {
            self.passed.headers.push(name.to_owned());
        } else if let Some(rest) = words.strip_prefix("define")
            && let Some((name, value)) = rest.trim_start().split_once(char::is_whitespace)
            && let Some(value) = constant_value(value.trim(), place)
            && is_name(name)
        {
            let (docs, name) = (String::new(), Name { text: name.to_owned(), place });
            self.passed.constants.push(Constant { docs, name, value });
        }
    }

    fn directive(&mut self, lines: &mut Lines<'_>, is_active: bool, depth: usize) {
        let comment = lines.comment.take();
        let (start, line) = (lines.at, lines.line);
        let text = self.whole_line(lines);
        let shown = lines.text[start..lines.at].lines().next().unwrap_or_default().trim_end();
        let place =
            Place { file: lines.file, start: start as u32, end: (start + shown.len()) as u32 };
        let words = text[1..].trim();
        let end = words.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(words.len());
        let (directive, rest) = (&words[..end], words[end..].trim());
        let first = rest.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next();
        let first = first.unwrap_or_default();
        let open = |is_true: bool| Condition {
            place,
            around: is_active,
            is_active: is_active && is_true,
            was_active: is_true,
            has_else: false,
        };
        match directive {
            "ifdef" => lines.conditions.push(open(self.macros.contains_key(first))),
            "ifndef" => lines.conditions.push(open(!self.macros.contains_key(first))),
            "if" => {
                let is_true = is_active && self.is_true(rest, place);
                lines.conditions.push(open(is_true));
            }
            "elif" | "else" => {
                let is_else = directive == "else";
                let can_be = lines.conditions.last().map(|one| !one.has_else);
                let wanted = match lines.conditions.last() {
                    Some(one) if one.around && !one.was_active => {
                        is_else || self.is_true(rest, place)
                    }
                    _ => false,
                };
                match (can_be, lines.conditions.last_mut()) {
                    (Some(true), Some(one)) => {
                        one.is_active = wanted;
                        one.was_active |= wanted;
                        one.has_else = is_else;
                    }
                    (None, _) => {
                        let message = format!("`#{directive}` without `#if`");
                        self.sources.error(place, message);
                    }
                    _ => self.sources.error(place, format!("`#{directive}` after `#else`")),
                }
            }
            "endif" => match lines.conditions.pop() {
                Some(_) => {}
                None => self.sources.error(place, "`#endif` without `#if`"),
            },
            _ if !is_active => {}
            "define" => {
                let docs = comment
                    .filter(|(_, end)| end + 1 >= line)
                    .map_or(String::new(), |(place, _)| self.sources.comment(place));
                self.define(lines, place, first, rest[first.len()..].trim(), docs);
            }
            "undef" => drop(self.macros.remove(first)),
            "include" => self.include(rest, place, depth),
            "error" => self.sources.error(place, rest),
            // `#pragma`, `#ident`, `#line`, and the lines that a preprocessor writes.
            _ => {}
        }
    }

    fn is_true(&mut self, expression: &str, place: Place) -> bool {
        match condition::evaluate(expression, &self.macros) {
            Ok(value) => value != 0,
            Err(reason) => {
                self.sources.error(place, reason);
                false
            }
        }
    }

    fn define(&mut self, lines: &Lines<'_>, place: Place, name: &str, value: &str, docs: String) {
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            return self.sources.error(place, "`#define` needs a name");
        }
        let line = self.sources.text(place);
        let start = place.start + line.find(name).unwrap_or_default() as u32;
        let at = Place { file: lines.file, start, end: start + name.len() as u32 };
        let constant = constant_value(value, at);
        let known = match &constant {
            Some(ConstantValue::Number(number)) => Macro::Number(number.clone()),
            _ => Macro::Other,
        };
        self.macros.insert(name.to_owned(), known);
        match constant {
            Some(value) => {
                let name = Name { text: name.to_owned(), place: at };
                self.constants.push(Constant { docs, name, value });
            }
            None if value.is_empty() => {}
            None => {
                let message = format!(
                    "macro `{name}` is ignored: its value is neither a number, a name nor a text"
                );
                self.sources.warn(at, message);
            }
        }
    }

    fn include(&mut self, rest: &str, place: Place, depth: usize) {
        // Headers of C, in angle brackets, contain nothing for this language.
        let is_interface = |name: &&str| rest.starts_with('"') || name.ends_with(".x");
        let Some(name) = included(rest).filter(is_interface) else { return };
        if depth == ONC_INCLUDES_MAX || self.sources.files.len() > 10 * ONC_INCLUDES_MAX {
            let message = format!("more than {ONC_INCLUDES_MAX} files include each other");
            return self.sources.error(place, message);
        }
        let text = match (self.onc.include)(name) {
            Ok(text) => text,
            Err(error) => {
                return self.sources.error(place, format!("cannot include `{name}`: {error}"));
            }
        };
        self.bytes += text.len();
        if self.bytes > ONC_BYTES_MAX {
            let message = format!("the files together have more than {ONC_BYTES_MAX} bytes");
            return self.sources.error(place, message);
        }
        let _ = self.file(text.into(), name.to_owned(), depth + 1);
    }
}

/// Returns the name of a file between quotes or angle brackets.
fn included(rest: &str) -> Option<&str> {
    let rest = rest.trim_start();
    let inner = rest.strip_prefix('"').and_then(|inner| inner.split_once('"'));
    let inner = inner.or_else(|| rest.strip_prefix('<')?.split_once('>'));
    inner.map(|(name, _)| name)
}

/// Converts the value of a macro to the value of a constant. `place` is the place of the macro.
fn constant_value(value: &str, place: Place) -> Option<ConstantValue> {
    let inner = value.strip_prefix('(').and_then(|inner| inner.strip_suffix(')'));
    let plain = inner.unwrap_or(value).trim();
    let text = plain.strip_prefix('"').and_then(|inner| inner.strip_suffix('"'));
    match (number(plain), text) {
        (Some(number), _) => Some(ConstantValue::Number(Value::Number(number))),
        (_, Some(text)) if !text.contains('"') => Some(ConstantValue::Text(unescaped(text))),
        _ if is_name(plain) => {
            let name = Name { text: plain.to_owned(), place };
            Some(ConstantValue::Number(Value::Name(name)))
        }
        _ => None,
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Where the scanner is in a file.
struct Lines<'t> {
    file: u32,
    text: &'t str,
    at: usize,
    /// Whether the line contains only spaces and comments before `at`.
    starts_line: bool,
    line: usize,
    /// The place of the last comment that starts a line, and the number of the line in which it ends.
    comment: Option<(Place, usize)>,
    /// The index of the last token, and the number of its line.
    last: Option<(usize, usize)>,
    conditions: Vec<Condition>,
}

impl Lines<'_> {
    /// Returns the place from `start` to the next byte.
    const fn place_from(&self, start: usize) -> Place {
        Place { file: self.file, start: start as u32, end: self.at as u32 }
    }

    /// Returns the place of the next `length` bytes.
    const fn place(&self, length: usize) -> Place {
        let start = self.at as u32;
        Place { file: self.file, start, end: start + length as u32 }
    }
}

/// Reads a number in decimal, hexadecimal or octal digits, with an optional sign.
pub(super) fn number(text: &str) -> Option<i128> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let digits = digits.trim_end_matches(['u', 'U', 'l', 'L']);
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (digits, radix) = match hexadecimal {
        Some(digits) => (digits, 16),
        None if digits.len() > 1 && digits.starts_with('0') => (digits, 8),
        None => (digits, 10),
    };
    // The parser of the standard library would accept a second sign, as in `-+1` or `0x+1`.
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    Some(sign * i128::from(magnitude))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_one_sign_and_three_bases() {
        let numbers =
            [("17", 17), ("-17", -17), ("0x1F", 31), ("-0X1f", -31), ("017", 15), ("0", 0)];
        for (text, expected) in numbers {
            assert_eq!(number(text), Some(expected), "{text}");
        }
        assert_eq!(number("18446744073709551615UL"), Some(u64::MAX.into()));
        for text in ["", "-", "0x", "+1", "-+1", "--1", "0x+5", "0x-5", "08", "1.5", "x", "0x1G"] {
            assert_eq!(number(text), None, "{text}");
        }
    }
}
