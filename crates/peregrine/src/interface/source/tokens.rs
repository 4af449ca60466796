//! Words of Rust, as far as a trait of an interface needs them.

use crate::interface::TextError;

/// A word, and the line it stands in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Word,
    pub(super) line: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// A name or a number; `r#` is not part of it.
    Name(String),
    /// Text in quotes.
    Text(String),
    /// A line of documentation.
    Docs(String),
    /// `'_` and the like.
    Lifetime,
    /// Anything else, letter by letter, save for `->` and `::`.
    Sign(&'static str),
    /// The end.
    End,
}

const SIGNS: &[&str] = &[
    "->", "::", "#", "[", "]", "(", ")", "{", "}", "<", ">", ",", ";", ":", "=", "&", "!", "-",
    "*", "+", ".", "|", "?", "/", "@", "$", "%", "^", "~",
];

impl Word {
    /// As one reads it.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Name(name) => format!("`{}`", name.escape_debug()),
            Self::Text(text) => format!("{text:?}"),
            Self::Docs(_) => "documentation".into(),
            Self::Lifetime => "a lifetime".into(),
            Self::Sign(sign) => format!("`{sign}`"),
            Self::End => "the end".into(),
        }
    }
}

/// All words of a text.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, TextError> {
    let mut all = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        if first == '\n' {
            line += 1;
        }
        if first.is_whitespace() {
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let fail = |what: String| Err(TextError::new(line, what));
        let (kind, length) = if let Some(comment) = rest.strip_prefix("//") {
            let length = comment.find('\n').unwrap_or(comment.len());
            let docs = comment[..length].strip_prefix('/').filter(|one| !one.starts_with('/'));
            match docs {
                Some(docs) => {
                    let docs = docs.strip_prefix(' ').unwrap_or(docs);
                    (Word::Docs(docs.strip_suffix('\r').unwrap_or(docs).to_owned()), length + 2)
                }
                None => {
                    rest = &comment[length..];
                    continue;
                }
            }
        } else if rest.starts_with("/*") {
            let Some(length) = rest.find("*/") else {
                return fail("a comment without an end".into());
            };
            line += rest[..length].matches('\n').count();
            rest = &rest[length + 2..];
            continue;
        } else if first == '"' {
            match quoted(rest) {
                Some((text, length)) => {
                    line += rest[..length].matches('\n').count();
                    (Word::Text(text), length)
                }
                None => return fail("quotes that do not end, or cannot be read".into()),
            }
        } else if first == '\'' {
            (Word::Lifetime, 1 + name_length(&rest[1..]))
        } else if name_length(rest) > 0 {
            let raw = rest.strip_prefix("r#").filter(|raw| name_length(raw) > 0);
            let name = raw.unwrap_or(rest);
            let length = name_length(name);
            (Word::Name(name[..length].to_owned()), length + rest.len() - name.len())
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            (Word::Sign(sign), sign.len())
        } else {
            return fail(format!("`{}` means nothing here", first.escape_debug()));
        };
        all.push(Token { kind, line });
        rest = &rest[length..];
    }
    all.push(Token { kind: Word::End, line });
    Ok(all)
}

fn name_length(text: &str) -> usize {
    text.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(text.len())
}

/// Text in quotes with the escapes that are printed, and its length with them.
fn quoted(text: &str) -> Option<(String, usize)> {
    let mut read = String::new();
    let mut letters = text.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        let one = match letter {
            '"' => return Some((read, at + 1)),
            '\\' => match letters.next()?.1 {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                '0' => '\0',
                'u' => {
                    let mut number = String::new();
                    letters.next().filter(|(_, open)| *open == '{')?;
                    loop {
                        match letters.next()?.1 {
                            '}' => break,
                            digit if number.len() < 8 => number.push(digit),
                            _ => return None,
                        }
                    }
                    char::from_u32(u32::from_str_radix(&number, 16).ok()?)?
                }
                other => other,
            },
            other => other,
        };
        read.push(one);
    }
    None
}
