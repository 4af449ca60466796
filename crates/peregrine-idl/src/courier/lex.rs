//! Splits the text of a program into tokens. Comments directly before a token become its documentation.

use winnow::combinator::{alt, fail, opt, repeat};
use winnow::error::{ContextError as Unmatched, ErrMode};
use winnow::stream::{LocatingSlice, Location as _, Stream as _};
use winnow::token::{any, literal, none_of, one_of, take, take_while};
use winnow::{ModalResult, Parser as _};

use super::ast::Span;
use super::problems::Problems;

/// A word, number, string or symbol.
#[derive(Clone, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind<'a>,
    pub(crate) span: Span,
    /// The lines of the comment directly before the token.
    pub(crate) docs: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind<'a> {
    /// A name or a keyword.
    Word(&'a str),
    /// Digits, and the letters that follow them.
    Number(&'a str),
    /// A string, without its quotes.
    Text(String),
    Symbol(&'a str),
}

/// The symbols of one character.
const SYMBOLS: &str = ":;,.[](){}=-";

type Text<'a> = LocatingSlice<&'a str>;

/// Returns the tokens of a text. Characters that are not part of a token are reported and skipped.
pub(crate) fn tokens<'a>(text: &'a str, problems: &mut Problems) -> Vec<Token<'a>> {
    let mut input = LocatingSlice::new(text);
    let mut all: Vec<Token<'a>> = Vec::new();
    let mut docs = Docs { own_line: true, lines: Vec::new() };
    // Whether the last characters were a comment.
    let mut was_comment = false;
    loop {
        if let Ok(space) = space(&mut input) {
            docs.space(space);
            was_comment = false;
            continue;
        }
        let start = input.current_token_start();
        if let Ok(comment) = comment(&mut input, !was_comment) {
            docs.comment(comment);
            was_comment = true;
            continue;
        }
        was_comment = false;
        if input.is_empty() {
            return all;
        }
        let before = input.checkpoint();
        match token(&mut input) {
            Ok(kind) => {
                let span = Span::from(start..input.previous_token_end());
                all.push(Token { kind, span, docs: docs.take() });
            }
            Err(_) => {
                input.reset(&before);
                unreadable(&mut input, problems);
            }
        }
    }
}

/// The comments since the last token.
struct Docs<'a> {
    /// Whether the current line has no token yet. A comment after a token on the same line belongs to that
    /// token.
    own_line: bool,
    lines: Vec<&'a str>,
}

impl<'a> Docs<'a> {
    fn space(&mut self, space: &str) {
        let lines = space.matches('\n').count();
        self.own_line |= lines > 0;
        if lines > 1 {
            self.lines.clear();
        }
    }

    fn comment(&mut self, comment: &'a str) {
        let line = comment.trim();
        if self.own_line && line.contains(|c| c != '-') {
            self.lines.push(line);
        }
    }

    fn take(&mut self) -> String {
        self.own_line = false;
        let docs = self.lines.join("\n");
        self.lines.clear();
        docs
    }
}

fn space<'a>(input: &mut Text<'a>) -> ModalResult<&'a str> {
    take_while(1.., char::is_whitespace).parse_next(input)
}

/// Reads a comment: from `--` to the next `--` or the end of the line. If `may_be_rule` is true, a line of any
/// number of dashes is one comment: the dashes inside the line do not end it.
fn comment<'a>(input: &mut Text<'a>, may_be_rule: bool) -> ModalResult<&'a str> {
    let start = input.checkpoint();
    literal("--").parse_next(input)?;
    if may_be_rule {
        let inside = input.checkpoint();
        (take_while(0.., '-'), take_while(0.., (' ', '\t', '\r'))).void().parse_next(input)?;
        if input.is_empty() || input.starts_with('\n') {
            return Ok("");
        }
        input.reset(&inside);
    }
    let mut bytes = input.bytes().zip(input.bytes().skip(1).chain([0]));
    let end = bytes.position(|pair| pair.0 == b'\n' || pair == (b'-', b'-'));
    let Some(text) = input.get(..end.unwrap_or(input.len())) else {
        input.reset(&start);
        return fail.parse_next(input);
    };
    take(text.chars().count()).void().parse_next(input)?;
    opt(literal("--")).void().parse_next(input)?;
    Ok(text)
}

fn token<'a>(input: &mut Text<'a>) -> ModalResult<Kind<'a>> {
    let letters = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let quoted = repeat(0.., alt((none_of('"'), literal("\"\"").value('"')))).fold(
        String::new,
        |mut all, letter| {
            all.push(letter);
            all
        },
    );
    alt((
        (one_of(|c: char| c.is_ascii_alphabetic()), take_while(0.., letters))
            .take()
            .map(Kind::Word),
        (one_of(|c: char| c.is_ascii_digit()), take_while(0.., letters)).take().map(Kind::Number),
        alt((literal("=>"), one_of(|c| SYMBOLS.contains(c)).take())).map(Kind::Symbol),
        ('"', quoted, '"').map(|(_, text, _)| Kind::Text(text)),
    ))
    .parse_next(input)
}

/// Reports characters that are not part of the language, and skips them.
#[cold]
fn unreadable(input: &mut Text<'_>, problems: &mut Problems) {
    let start = input.current_token_start();
    let first = input.chars().next().unwrap_or_default();
    if first == '"' {
        problems.report(&Span::from(start..start + 1), "this string has no closing quote");
        let _ = input.finish();
        return;
    }
    let rest = |c: char| {
        !c.is_ascii_alphanumeric() && !c.is_whitespace() && c != '"' && !SYMBOLS.contains(c)
    };
    let mut skipped = (any::<_, ErrMode<Unmatched>>, take_while(0.., rest)).void();
    let _ = skipped.parse_next(input);
    let what = format!("`{}` is not part of the language", first.escape_debug());
    problems.report(&Span::from(start..input.previous_token_end()), what);
}
