//! Evaluates the expressions of `#if` and `#elif`.

use std::collections::HashMap;

use winnow::ascii::multispace0;
use winnow::combinator::{alt, delimited, fail, opt, preceded, repeat};
use winnow::error::{EmptyError, ErrMode};
use winnow::token::take_while;
use winnow::{ModalResult, Parser, Stateful};

use super::ast::Value;
use super::scan::{Macro, number};

/// The maximum number of characters of an expression.
const LENGTH_MAX: usize = 1024;

/// The maximum number of `(` in an expression. The parser recurses for each level of parentheses.
const PARENTHESES_MAX: usize = 32;

/// The maximum number of macros that are followed if each macro has the name of the next one as its value.
const REPLACED_MAX: usize = 16;

/// The result of a parser. It has no reason of a failure, because all failures lead to the same message.
type Parsed<T> = ModalResult<T, EmptyError>;
type Input<'t> = Stateful<&'t str, Macros<'t>>;

#[derive(Clone, Copy)]
struct Macros<'t>(&'t HashMap<String, Macro>);

impl core::fmt::Debug for Macros<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} macros", self.0.len())
    }
}

/// Evaluates an expression. A name that is not a macro has the value 0, as in C.
pub(super) fn evaluate(text: &str, macros: &HashMap<String, Macro>) -> Result<i128, String> {
    if text.len() > LENGTH_MAX {
        return Err(format!("this condition is longer than {LENGTH_MAX} characters"));
    }
    if text.matches('(').count() > PARENTHESES_MAX {
        return Err(format!("this condition has more than {PARENTHESES_MAX} parentheses"));
    }
    let input = Stateful { input: text, state: Macros(macros) };
    either.parse(input).map_err(|_| {
        "this condition is not a comparison of numbers, names and `defined`".to_owned()
    })
}

fn either(input: &mut Input<'_>) -> Parsed<i128> {
    let first = both(input)?;
    let more = repeat(0.., preceded(symbol("||"), both));
    more.fold(move || first, |all, one| i128::from(all != 0 || one != 0)).parse_next(input)
}

fn both(input: &mut Input<'_>) -> Parsed<i128> {
    let first = comparison(input)?;
    let more = repeat(0.., preceded(symbol("&&"), comparison));
    more.fold(move || first, |all, one| i128::from(all != 0 && one != 0)).parse_next(input)
}

fn comparison(input: &mut Input<'_>) -> Parsed<i128> {
    let left = unary(input)?;
    let operator = alt(["==", "!=", "<=", ">=", "<", ">"].map(symbol));
    let Some((operator, right)) = opt((operator, unary)).parse_next(input)? else {
        return Ok(left);
    };
    Ok(i128::from(match operator {
        "==" => left == right,
        "!=" => left != right,
        "<=" => left <= right,
        ">=" => left >= right,
        "<" => left < right,
        _ => left > right,
    }))
}

fn unary(input: &mut Input<'_>) -> Parsed<i128> {
    let marks: Vec<&str> = repeat(0.., symbol("!")).parse_next(input)?;
    let value = alt((delimited(symbol("("), either, symbol(")")), word)).parse_next(input)?;
    Ok(match marks.len() {
        0 => value,
        count => i128::from((value == 0) == (count % 2 == 1)),
    })
}

fn word(input: &mut Input<'_>) -> Parsed<i128> {
    let macros = input.state.0;
    let text = name(input)?;
    if text == "defined" {
        let inner = alt((delimited(symbol("("), name, symbol(")")), name)).parse_next(input)?;
        return Ok(i128::from(macros.contains_key(inner)));
    }
    if text.starts_with(|c: char| c == '-' || c.is_ascii_digit()) {
        return match number(text) {
            Some(number) => Ok(number),
            None => fail.parse_next(input),
        };
    }
    let mut named = text;
    for _ in 0..REPLACED_MAX {
        match macros.get(named) {
            Some(Macro::Number(Value::Number(number))) => return Ok(*number),
            Some(Macro::Number(Value::Name(other))) => named = &other.text,
            _ => break,
        }
    }
    Ok(0)
}

fn name<'t>(input: &mut Input<'t>) -> Parsed<&'t str> {
    let letters = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    delimited(multispace0, take_while(1.., letters), multispace0).parse_next(input)
}

fn symbol<'t>(text: &'static str) -> impl Parser<Input<'t>, &'t str, ErrMode<EmptyError>> {
    delimited(multispace0, text, multispace0)
}
