//! Splits text into tokens. To protect the parser, limits the nesting of tokens and the length of numbers.

use core::str::FromStr;

use proc_macro2::{LexError, TokenStream, TokenTree};

use crate::error::ParseError;

/// The maximum nesting of brackets of all kinds, also in code that the parser skips. The parser recurses for
/// each level.
///
/// ```
/// let nested = |depth| format!("trait A {{}}\nimpl B {}{}", "{".repeat(depth), "}".repeat(depth));
/// assert!(peregrine_idl::parse_trait(&nested(peregrine_idl::NESTING_MAX)).is_ok());
/// assert!(peregrine_idl::parse_trait(&nested(peregrine_idl::NESTING_MAX + 1)).is_err());
/// ```
pub const NESTING_MAX: usize = 128;

/// The maximum number of characters in a number. The time that parsing a number takes is quadratic in its
/// length. A `u128` needs at most 130 characters: 128 binary digits and a prefix. The rest of the limit is
/// for `_` between digits.
///
/// ```
/// let digits = "9".repeat(peregrine_idl::NUMBER_LETTERS_MAX + 1);
/// let error = peregrine_idl::parse_trait(&format!("enum A {{ B = {digits} }}")).unwrap_err();
/// assert!(error.to_string().contains("257 characters"));
/// ```
pub const NUMBER_LETTERS_MAX: usize = 256;

/// Returns all tokens of a text.
pub(crate) fn tokens(text: &str) -> Result<TokenStream, ParseError> {
    let tokens = TokenStream::from_str(text).map_err(|error| unreadable(text, &error))?;
    // This loop replaces a recursion. The current token is in several groups. For each of these groups,
    // `around` contains the tokens of the group that are still to be checked.
    let mut around = vec![tokens.clone().into_iter()];
    while let Some(inner) = around.last_mut() {
        match inner.next() {
            None => drop(around.pop()),
            Some(TokenTree::Group(group)) if around.len() > NESTING_MAX => {
                let reason = format!("brackets are nested more than {NESTING_MAX} levels deep");
                return Err(ParseError::at(group.span_open(), reason));
            }
            Some(TokenTree::Group(group)) => around.push(group.stream().into_iter()),
            Some(TokenTree::Literal(literal)) => {
                let written = literal.to_string();
                let is_number = written.starts_with(|c: char| c.is_ascii_digit());
                if is_number && written.len() > NUMBER_LETTERS_MAX {
                    let count = written.len();
                    let reason = format!(
                        "this number has {count} characters, more than {NUMBER_LETTERS_MAX}"
                    );
                    return Err(ParseError::at(literal.span(), reason));
                }
            }
            Some(_) => {}
        }
    }
    Ok(tokens)
}

/// Explains why a text cannot be split into tokens.
#[cold]
fn unreadable(text: &str, error: &LexError) -> ParseError {
    let start = error.span().start();
    let line = text.lines().nth(start.line.saturating_sub(1)).unwrap_or_default();
    let rest: String = line.chars().skip(start.column).take(3).collect();
    let reason = match rest.chars().next() {
        _ if rest.starts_with("/*") => "this comment has no `*/`".to_owned(),
        _ if rest.starts_with("//") => "this comment contains a carriage return".to_owned(),
        Some('"') => "this string has no closing quote, or an unknown escape sequence".to_owned(),
        Some('\'') => "`'` starts neither a lifetime nor a character".to_owned(),
        Some(open @ ('(' | '[' | '{')) => format!("this `{open}` is never closed"),
        Some(close @ (')' | ']' | '}')) => format!("this `{close}` closes no bracket of its kind"),
        Some(other) => format!("`{}` is not part of the language", other.escape_debug()),
        None => "this text has an invalid token".to_owned(),
    };
    ParseError::at(error.span(), reason)
}
