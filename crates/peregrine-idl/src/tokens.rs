//! Parses names, numbers, signs and brackets, and creates the error for an unexpected token.

use core::fmt::Display;
use core::str::FromStr;

use proc_macro2::{Delimiter, Span, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseBuffer, ParseStream};
use syn::{Error, Ident, LitInt, LitStr, Result, Token, braced, bracketed, parenthesized, token};

/// The largest number of characters of a token that an error shows.
const SHOWN_MAX: usize = 40;

/// Returns the error for an unexpected token.
#[cold]
pub(crate) fn expected(input: ParseStream<'_>, wanted: impl Display) -> Error {
    let span = input.span();
    let found = match input.cursor().token_tree() {
        Some((TokenTree::Group(group), _)) => match group.delimiter() {
            Delimiter::Parenthesis => "`(`".to_owned(),
            Delimiter::Bracket => "`[`".to_owned(),
            Delimiter::Brace | Delimiter::None => "`{`".to_owned(),
        },
        Some((token, _)) => quoted(&token.to_string()),
        // At the end of a group, the span is the span of the group's closing bracket.
        None => span.source_text().map_or("the end of the text".to_owned(), |text| quoted(&text)),
    };
    Error::new(span, format!("expected {wanted}, found {found}"))
}

fn quoted(token: &str) -> String {
    let shown: String = token.chars().take(SHOWN_MAX).collect();
    let more = if shown.len() < token.len() { "..." } else { "" };
    // Control characters are replaced: a string may contain any characters, and errors are printed on
    // terminals.
    let shown = shown.replace(char::is_control, "\u{fffd}");
    format!("`{shown}{more}`")
}

/// Consumes a keyword or a sign if it is the next token. Returns whether it was the next token.
pub(crate) fn keyword<T: Parse>(input: ParseStream<'_>) -> bool {
    input.parse::<T>().is_ok()
}

/// Consumes a sign. If the sign is not the next token, returns an error, which calls the sign `wanted`.
pub(crate) fn sign<T: Parse>(input: ParseStream<'_>, wanted: &str) -> Result<()> {
    if keyword::<T>(input) { Ok(()) } else { Err(expected(input, wanted)) }
}

/// Consumes a name. Returns the name and its position. The name may be a keyword, or be in quotes.
pub(crate) fn name(input: ParseStream<'_>) -> Result<(String, Span)> {
    let span = input.span();
    if input.peek(Ident::peek_any) {
        return Ok((input.call(Ident::parse_any)?.unraw().to_string(), span));
    }
    if !input.peek(LitStr) {
        return Err(expected(input, "a name"));
    }
    let name = input.parse::<LitStr>()?.value();
    match is_name(&name) {
        true => Ok((name, span)),
        false => {
            let what = "a name in quotes consists of letters, digits, `_`, `-` and `.`";
            Err(Error::new(span, format!("{} is not a name: {what}", quoted(&name))))
        }
    }
}

/// Returns whether a canonical text can contain this name (REPRESENTATION.md, part 6).
pub(crate) fn is_name(name: &str) -> bool {
    let letter = |c: char| match c.is_ascii() {
        true => c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'),
        false => !c.is_whitespace() && !c.is_control(),
    };
    !name.is_empty() && name.chars().all(letter)
}

/// Consumes an integer, which may be negative. `ty` is the name of the type `N` for the error message.
pub(crate) fn number<N: FromStr>(input: ParseStream<'_>, ty: &str) -> Result<N> {
    let span = input.span();
    let minus = if keyword::<Token![-]>(input) { "-" } else { "" };
    if !input.peek(LitInt) {
        return Err(expected(input, format_args!("a number of type `{ty}`")));
    }
    let digits = format!("{minus}{}", input.parse::<LitInt>()?.base10_digits());
    digits.parse().map_err(|_| {
        let what = format!("expected a number of type `{ty}`, found {}", quoted(&digits));
        Error::new(span, what)
    })
}

pub(crate) fn braces<'a>(input: ParseStream<'a>) -> Result<ParseBuffer<'a>> {
    if !input.peek(token::Brace) {
        return Err(expected(input, "`{`"));
    }
    let inside;
    braced!(inside in input);
    Ok(inside)
}

pub(crate) fn brackets<'a>(input: ParseStream<'a>) -> Result<ParseBuffer<'a>> {
    if !input.peek(token::Bracket) {
        return Err(expected(input, "`[`"));
    }
    let inside;
    bracketed!(inside in input);
    Ok(inside)
}

pub(crate) fn parentheses<'a>(input: ParseStream<'a>) -> Result<ParseBuffer<'a>> {
    if !input.peek(token::Paren) {
        return Err(expected(input, "`(`"));
    }
    let inside;
    parenthesized!(inside in input);
    Ok(inside)
}

/// Parses all elements in brackets. There are commas between the elements.
pub(crate) fn list<T>(
    inside: ParseStream<'_>,
    mut one: impl FnMut(ParseStream<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let mut all = Vec::new();
    while !inside.is_empty() {
        all.push(one(inside)?);
        if !inside.is_empty() {
            sign::<Token![,]>(inside, "`,`")?;
        }
    }
    Ok(all)
}
