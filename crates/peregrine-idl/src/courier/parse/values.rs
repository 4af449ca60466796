//! Parses tokens into numbers and constants.

use core::num::{IntErrorKind, ParseIntError};

use winnow::Parser as _;
use winnow::error::ErrMode;
use winnow::stream::Stream as _;

use super::{Fault, Input, Parsed, expected, here, is_at, is_word_at, just, listed, may, name};
use super::{nested, reference};
use crate::courier::ast::{Constant, Reference, Span, Value};
use crate::courier::lex::{Kind, Token};

/// Returns whether the next token is a number. A hexadecimal number may have the form of a name, such as
/// `FFH`. It is a number unless the text uses it as a name.
pub(super) fn is_number(input: &Input<'_, '_>) -> bool {
    match input.first().map(|token| &token.kind) {
        Some(Kind::Number(_)) => true,
        Some(Kind::Word(word)) => !input.state.names.contains(word) && hexadecimal(word).is_some(),
        _ => false,
    }
}

/// Returns the digits of a hexadecimal number.
fn hexadecimal(word: &str) -> Option<&str> {
    let is_digit = |c: char| c.is_ascii_digit() || ('A'..='F').contains(&c);
    word.strip_suffix('H').filter(|digits| !digits.is_empty() && digits.chars().all(is_digit))
}

/// Reads a number without a sign.
pub(super) fn number(input: &mut Input<'_, '_>) -> Parsed<i64> {
    let Some(Token { kind: Kind::Word(letters) | Kind::Number(letters), span, .. }) =
        input.first().filter(|_| is_number(input))
    else {
        return expected(input, "a number");
    };
    let parsed = if let Some(digits) = hexadecimal(letters) {
        u32::from_str_radix(digits, 16)
    } else if let Some(digits) = letters.strip_suffix('B') {
        u32::from_str_radix(digits, 8)
    } else {
        letters.strip_suffix('D').unwrap_or(letters).parse()
    };
    let number = parsed.map_err(|error| wrong_number(letters, span, &error))?;
    input.next_token();
    Ok(number.into())
}

#[cold]
fn wrong_number(letters: &str, span: &Span, error: &ParseIntError) -> ErrMode<Fault> {
    let letters: String = letters.chars().take(40).collect();
    let message = match error.kind() {
        IntErrorKind::PosOverflow => {
            format!("`{letters}` does not fit in 32 bits, the longest number of Courier")
        }
        _ => format!("`{letters}` is not a number: write 10, 12B (octal) or 0AH (hexadecimal)"),
    };
    Fault::new(span.clone(), message)
}

pub(super) fn constant(input: &mut Input<'_, '_>) -> Parsed<Constant> {
    nested(input, |input| {
        let span = here(input);
        Ok(Constant { span, value: value(input)? })
    })
}

/// Returns whether the next token begins a constant.
fn is_constant(input: &Input<'_, '_>) -> bool {
    let first = input.first().map(|token| &token.kind);
    let is_value = matches!(first, Some(Kind::Text(_) | Kind::Symbol("-" | "[")));
    let is_word = matches!(first, Some(Kind::Word("TRUE" | "FALSE")));
    is_value || is_word || is_word_at(input, 0) || is_number(input)
}

fn value(input: &mut Input<'_, '_>) -> Parsed<Value> {
    if is_number(input) {
        return Ok(Value::Number(number(input)?));
    }
    if is_word_at(input, 0) {
        let Reference { program, name } = reference(input)?;
        return Ok(match program {
            None if is_constant(input) => Value::Chosen(name, Box::new(constant(input)?)),
            program => Value::Named(Reference { program, name }),
        });
    }
    let value = match input.first().map(|token| &token.kind) {
        Some(Kind::Text(text)) => Value::Text(text.clone()),
        Some(Kind::Word("TRUE")) => Value::Boolean(true),
        Some(Kind::Word("FALSE")) => Value::Boolean(false),
        Some(Kind::Symbol("-")) => {
            input.next_token();
            return Ok(Value::Number(-number(input)?));
        }
        Some(Kind::Symbol("[")) => return list(input),
        _ => return expected(input, "a constant"),
    };
    input.next_token();
    Ok(value)
}

fn list(input: &mut Input<'_, '_>) -> Parsed<Value> {
    just("[").parse_next(input)?;
    if may(input, "]")? {
        return Ok(Value::List(Vec::new()));
    }
    let value = if begins_field(input) {
        Value::Fields(listed(input, |input| {
            let names = listed(input, name)?;
            just(":").parse_next(input)?;
            Ok((names, constant(input)?))
        })?)
    } else {
        Value::List(listed(input, constant)?)
    };
    just("]").parse_next(input)?;
    Ok(value)
}

/// Returns whether the next tokens are one or more names and a colon.
fn begins_field(input: &Input<'_, '_>) -> bool {
    let mut offset = 0;
    while is_word_at(input, offset) && is_at(input, offset + 1, ",") {
        offset += 2;
    }
    is_word_at(input, offset) && is_at(input, offset + 1, ":")
}
