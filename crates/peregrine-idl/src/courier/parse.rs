//! Parses tokens into a program. After an error, parsing continues with the next declaration.

mod values;

use std::collections::HashSet;

use winnow::Parser;
use winnow::combinator::opt;
use winnow::error::{ErrMode, ParserError};
use winnow::stream::{Stateful, Stream as _, TokenSlice};

use super::ast::{
    Arm, Count, Declaration, Dependency, Fields, Name, Numbers, Procedure, Program, Reference,
    Simple, Span, Tag, Type,
};
use super::lex::{Kind, Token};
use super::problems::Problems;
use crate::scan::NESTING_MAX;

/// Words that are not names.
pub(crate) const KEYWORDS: &[&str] = &[
    "ARRAY",
    "BEGIN",
    "BOOLEAN",
    "CARDINAL",
    "CHOICE",
    "DEPENDS",
    "END",
    "ERROR",
    "FALSE",
    "INTEGER",
    "LONG",
    "OF",
    "PROCEDURE",
    "PROGRAM",
    "RECORD",
    "REPORTS",
    "RETURNS",
    "SEQUENCE",
    "STRING",
    "TRUE",
    "TYPE",
    "UNSPECIFIED",
    "UPON",
    "VERSION",
];

type Input<'i, 'a> = Stateful<TokenSlice<'i, Token<'a>>, State<'i, 'a>>;
type Parsed<T> = Result<T, ErrMode<Fault>>;

#[derive(Clone, Debug)]
struct State<'i, 'a> {
    /// The number of types and constants that enclose the current one.
    depth: usize,
    /// The words that the text uses as names. All other words with the form of a hexadecimal number, such as
    /// `FFH`, are numbers.
    names: &'i HashSet<&'a str>,
    /// The length of the text in bytes.
    end: usize,
}

/// Where and why reading failed.
#[derive(Clone, Debug)]
struct Fault {
    span: Span,
    message: String,
    /// Whether the fault is only that the semicolon before the next declaration is missing.
    before_next: bool,
}

impl<'i, 'a> ParserError<Input<'i, 'a>> for Fault {
    type Inner = Self;

    fn from_input(input: &Input<'i, 'a>) -> Self {
        Self::expected(input, "something else")
    }

    fn into_inner(self) -> Result<Self, Self> {
        Ok(self)
    }
}

impl Fault {
    fn new(span: Span, message: String) -> ErrMode<Self> {
        ErrMode::Cut(Self { span, message, before_next: false })
    }

    fn expected(input: &Input<'_, '_>, wanted: &str) -> Self {
        let found = match input.first().map(|token| &token.kind) {
            Some(Kind::Word(found) | Kind::Number(found) | Kind::Symbol(found)) => {
                format!("`{found}`")
            }
            Some(Kind::Text(_)) => "a string".to_owned(),
            None => "the end of the text".to_owned(),
        };
        Self {
            span: here(input),
            message: format!("expected {wanted}, found {found}"),
            before_next: false,
        }
    }
}

/// Returns the place of the next token, or of the end of the text.
fn here(input: &Input<'_, '_>) -> Span {
    let end = input.state.end;
    input.first().map_or_else(|| Span::from(end..end), |token| token.span.clone())
}

fn expected<T>(input: &Input<'_, '_>, wanted: &str) -> Parsed<T> {
    Err(ErrMode::Backtrack(Fault::expected(input, wanted)))
}

/// Returns whether the token at `offset` is the keyword or symbol `wanted`. The next token has the offset 0.
fn is_at(input: &Input<'_, '_>, offset: usize, wanted: &str) -> bool {
    matches!(
        input.get(offset).map(|token| &token.kind),
        Some(Kind::Word(found) | Kind::Symbol(found)) if *found == wanted
    )
}

fn is_word_at(input: &Input<'_, '_>, offset: usize) -> bool {
    matches!(
        input.get(offset).map(|token| &token.kind),
        Some(Kind::Word(found)) if !KEYWORDS.contains(found)
    )
}

/// Reads one keyword or symbol.
fn just<'i, 'a: 'i>(wanted: &'static str) -> impl Parser<Input<'i, 'a>, Span, ErrMode<Fault>> {
    move |input: &mut Input<'i, 'a>| {
        if !is_at(input, 0, wanted) {
            return expected(input, &format!("`{wanted}`"));
        }
        let span = here(input);
        input.next_token();
        Ok(span)
    }
}

/// Reads a symbol if it is the next token.
fn may(input: &mut Input<'_, '_>, wanted: &'static str) -> Parsed<bool> {
    Ok(opt(just(wanted)).parse_next(input)?.is_some())
}

fn name(input: &mut Input<'_, '_>) -> Parsed<Name> {
    let Some(Token { kind: Kind::Word(text), span, .. }) = input.first() else {
        return expected(input, "a name");
    };
    if KEYWORDS.contains(text) {
        return expected(input, "a name");
    }
    let name = Name { text: (*text).to_owned(), span: span.clone() };
    input.next_token();
    Ok(name)
}

/// Reads one or more parts with commas between them.
fn listed<'i, 'a, T>(
    input: &mut Input<'i, 'a>,
    mut part: impl FnMut(&mut Input<'i, 'a>) -> Parsed<T>,
) -> Parsed<Vec<T>> {
    let mut all = vec![part(input)?];
    while may(input, ",")? {
        all.push(part(input)?);
    }
    Ok(all)
}

/// Reads a type or constant within another one, unless it is nested too deeply.
fn nested<'i, 'a, T>(
    input: &mut Input<'i, 'a>,
    mut part: impl FnMut(&mut Input<'i, 'a>) -> Parsed<T>,
) -> Parsed<T> {
    if input.state.depth == NESTING_MAX {
        let reason = format!("types or constants are nested more than {NESTING_MAX} levels deep");
        return Err(Fault::new(here(input), reason));
    }
    input.state.depth += 1;
    let part = part(input);
    input.state.depth -= 1;
    part
}

/// Reads a program. Returns `None` if its header is wrong, or if the program is not complete.
pub(crate) fn program(
    text: &str,
    tokens: &[Token<'_>],
    problems: &mut Problems,
) -> Option<Program> {
    let names = tokens.windows(2).filter_map(|pair| match (&pair[0].kind, &pair[1].kind) {
        (Kind::Word(word), Kind::Symbol(":" | "(" | "," | "=>")) => Some(*word),
        _ => None,
    });
    let names = names.collect();
    let state = State { depth: 0, names: &names, end: text.len() };
    let mut input = Stateful { input: TokenSlice::new(tokens), state };
    let head = head(&mut input);
    let mut program = match head {
        Ok(head) => head,
        Err(fault) => {
            report(fault, problems);
            return None;
        }
    };
    while !is_at(&input, 0, "END") {
        match declaration(&mut input) {
            Ok(declaration) => program.declarations.push(declaration),
            Err(fault) => {
                input.state.depth = 0;
                let before_next = report(fault, problems);
                if !skip(&mut input, before_next) {
                    return None;
                }
            }
        }
    }
    match end(&mut input) {
        Ok(()) => Some(program),
        Err(fault) => {
            report(fault, problems);
            None
        }
    }
}

/// Reports an error. Returns whether the next token begins the next declaration.
#[cold]
fn report(fault: ErrMode<Fault>, problems: &mut Problems) -> bool {
    let (ErrMode::Backtrack(fault) | ErrMode::Cut(fault)) = fault else { return false };
    problems.report(&fault.span, fault.message);
    fault.before_next
}

/// Skips the rest of a wrong declaration. Skips nothing if `before_next` says that the next token begins a
/// declaration. Returns whether there are more tokens.
fn skip(input: &mut Input<'_, '_>, before_next: bool) -> bool {
    while !(before_next || input.is_empty() || is_at(input, 0, "END") && is_at(input, 1, ".")) {
        let is_end = is_at(input, 0, ";");
        input.next_token();
        if is_end {
            break;
        }
    }
    !input.is_empty()
}

fn head(input: &mut Input<'_, '_>) -> Parsed<Program> {
    let docs = input.first().map(|token| token.docs.clone()).unwrap_or_default();
    let name = name(input)?;
    just(":").parse_next(input)?;
    just("PROGRAM").parse_next(input)?;
    let numbers = if is_at(input, 0, "=") { None } else { Some(numbers(input, false)?) };
    just("=").parse_next(input)?;
    just("BEGIN").parse_next(input)?;
    let mut depends = Vec::new();
    if may(input, "DEPENDS")? {
        just("UPON").parse_next(input)?;
        depends = listed(input, dependency)?;
        just(";").parse_next(input)?;
    }
    Ok(Program { docs, name, numbers, depends, declarations: Vec::new() })
}

fn end(input: &mut Input<'_, '_>) -> Parsed<()> {
    just("END").parse_next(input)?;
    just(".").parse_next(input)?;
    if input.is_empty() { Ok(()) } else { expected(input, "nothing after `END.`") }
}

/// Reads the number of a program, which may be in parentheses, and its version.
fn numbers(input: &mut Input<'_, '_>, in_parentheses: bool) -> Parsed<Numbers> {
    if in_parentheses {
        just("(").parse_next(input)?;
    }
    let program = bounded(input, "a program's number", u32::MAX.into())?;
    if in_parentheses {
        just(")").parse_next(input)?;
    }
    just("VERSION").parse_next(input)?;
    let version = bounded(input, "a version", u16::MAX.into())?;
    Ok(Numbers { program: program as u32, version: version as u16 })
}

fn bounded(input: &mut Input<'_, '_>, what: &str, max: i64) -> Parsed<i64> {
    let span = here(input);
    match values::number(input)? {
        number if number <= max => Ok(number),
        number => Err(Fault::new(span, format!("{what} is at most {max}, not {number}"))),
    }
}

fn dependency(input: &mut Input<'_, '_>) -> Parsed<Dependency> {
    Ok(Dependency { name: name(input)?, numbers: numbers(input, true)? })
}

fn declaration(input: &mut Input<'_, '_>) -> Parsed<Declaration> {
    let docs = input.first().map(|token| token.docs.clone()).unwrap_or_default();
    let name = name(input)?;
    just(":").parse_next(input)?;
    let is_type = may(input, "TYPE")?;
    if is_type {
        just("=").parse_next(input)?;
    }
    let ty = ty(input)?;
    let value = if is_type {
        None
    } else {
        just("=").parse_next(input)?;
        Some(values::constant(input)?)
    };
    if !may(input, ";")? {
        let mut fault = Fault::expected(input, "`;`");
        fault.before_next = is_word_at(input, 0) && is_at(input, 1, ":");
        return Err(ErrMode::Cut(fault));
    }
    Ok(Declaration { docs, name, ty, value })
}

fn reference(input: &mut Input<'_, '_>) -> Parsed<Reference> {
    let first = name(input)?;
    if may(input, ".")? {
        return Ok(Reference { program: Some(first), name: name(input)? });
    }
    Ok(Reference { program: None, name: first })
}

fn ty(input: &mut Input<'_, '_>) -> Parsed<Type> {
    nested(input, one_type)
}

fn one_type(input: &mut Input<'_, '_>) -> Parsed<Type> {
    if is_word_at(input, 0) {
        return Ok(Type::Named(reference(input)?));
    }
    let Some(Token { kind: Kind::Word(word) | Kind::Symbol(word), .. }) = input.first() else {
        return expected(input, "a type");
    };
    let word = *word;
    if matches!(word, "PROCEDURE" | "ERROR") && input.state.depth > 1 {
        return expected(input, "a type of data");
    }
    let simple = match word {
        "BOOLEAN" => Some(Simple::Boolean),
        "CARDINAL" => Some(Simple::Cardinal),
        "INTEGER" => Some(Simple::Integer),
        "UNSPECIFIED" => Some(Simple::Unspecified),
        "STRING" => Some(Simple::String),
        "LONG" | "{" | "ARRAY" | "SEQUENCE" | "RECORD" | "CHOICE" | "PROCEDURE" | "ERROR" => None,
        _ => return expected(input, "a type"),
    };
    input.next_token();
    if let Some(simple) = simple {
        return Ok(Type::Simple(simple));
    }
    match word {
        "LONG" => long(input),
        "{" => {
            let tags = listed(input, |input| tag(input, true))?;
            just("}").parse_next(input)?;
            Ok(Type::Enumeration(tags))
        }
        "ARRAY" => {
            let count = count(input)?;
            just("OF").parse_next(input)?;
            Ok(Type::Array(count, Box::new(ty(input)?)))
        }
        "SEQUENCE" => {
            let max = if is_at(input, 0, "OF") { None } else { Some(count(input)?) };
            just("OF").parse_next(input)?;
            Ok(Type::Sequence(max, Box::new(ty(input)?)))
        }
        "RECORD" => Ok(Type::Record(fields(input)?)),
        "CHOICE" => {
            let by = if is_at(input, 0, "OF") { None } else { Some(reference(input)?) };
            just("OF").parse_next(input)?;
            just("{").parse_next(input)?;
            let arms = listed(input, |input| arm(input, by.is_none()))?;
            just("}").parse_next(input)?;
            Ok(Type::Choice(by, arms))
        }
        "PROCEDURE" => procedure(input),
        _ => Ok(Type::Error(may_have_fields(input)?)),
    }
}

fn long(input: &mut Input<'_, '_>) -> Parsed<Type> {
    let long = match input.first().map(|token| &token.kind) {
        Some(Kind::Word("CARDINAL")) => Simple::LongCardinal,
        Some(Kind::Word("INTEGER")) => Simple::LongInteger,
        Some(Kind::Word("UNSPECIFIED")) => Simple::LongUnspecified,
        _ => return expected(input, "`CARDINAL`, `INTEGER` or `UNSPECIFIED` after `LONG`"),
    };
    input.next_token();
    Ok(Type::Simple(long))
}

fn count(input: &mut Input<'_, '_>) -> Parsed<Count> {
    if is_word_at(input, 0) && !values::is_number(input) {
        return Ok(Count::Named(reference(input)?));
    }
    let span = here(input);
    Ok(Count::Number(values::number(input)?, span))
}

/// Reads a name, and its number if it has one.
fn tag(input: &mut Input<'_, '_>, must_have_number: bool) -> Parsed<Tag> {
    let name = name(input)?;
    if !must_have_number && !is_at(input, 0, "(") {
        return Ok(Tag { name, number: None });
    }
    if !is_at(input, 0, "(") {
        let wanted = format!("a number after `{0}`, such as `{0}(0)`", name.text);
        return expected(input, &wanted);
    }
    just("(").parse_next(input)?;
    let number = count(input)?;
    just(")").parse_next(input)?;
    Ok(Tag { name, number: Some(number) })
}

fn arm(input: &mut Input<'_, '_>, must_have_number: bool) -> Parsed<Arm> {
    let tags = listed(input, |input| tag(input, must_have_number))?;
    just("=>").parse_next(input)?;
    Ok(Arm { tags, ty: ty(input)? })
}

/// Reads fields in brackets.
fn fields(input: &mut Input<'_, '_>) -> Parsed<Vec<Fields>> {
    just("[").parse_next(input)?;
    if may(input, "]")? {
        return Ok(Vec::new());
    }
    let fields = listed(input, |input| {
        let names = listed(input, name)?;
        just(":").parse_next(input)?;
        Ok(Fields { names, ty: ty(input)? })
    })?;
    just("]").parse_next(input)?;
    Ok(fields)
}

fn may_have_fields(input: &mut Input<'_, '_>) -> Parsed<Vec<Fields>> {
    if is_at(input, 0, "[") { fields(input) } else { Ok(Vec::new()) }
}

fn procedure(input: &mut Input<'_, '_>) -> Parsed<Type> {
    let mut procedure = Procedure { arguments: may_have_fields(input)?, ..Procedure::default() };
    if may(input, "RETURNS")? {
        procedure.results = fields(input)?;
    }
    if may(input, "REPORTS")? {
        just("[").parse_next(input)?;
        if !may(input, "]")? {
            procedure.reports = listed(input, reference)?;
            just("]").parse_next(input)?;
        }
    }
    Ok(Type::Procedure(procedure))
}
